"""The page of one run, or of several seeds of it, section by section."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.config import shown_parameters
from fedlsvi.errors import FedLSVIError
from fedlsvi.logs.action_names import numbered
from fedlsvi.protocol.messages import SCALAR_BYTES
from fedlsvi.protocol.records import tenth
from fedlsvi.remote.mail import STUDY
from fedlsvi.report import html
from fedlsvi.report.began import warm
from fedlsvi.report.estimates import estimates
from fedlsvi.report.groups import Group
from fedlsvi.report.html import measured, number
from fedlsvi.report.intervals import interval_name
from fedlsvi.report.privacy import privacy, smallest_upload
from fedlsvi.report.protections import protections
from fedlsvi.report.remembered import remembered
from fedlsvi.report.rerun import command, rerun
from fedlsvi.report.rounds import remarks, synchronisations, triggers
from fedlsvi.run import Bound, Run
from fedlsvi.run_views import most_rounds
from fedlsvi.storage import files

SHOWN = 200
"""Agents in the list of what left."""

CATEGORIES = {
    "init": "first broadcast, down",
    "signal": "signals and control, both ways",
    "up_stats": "statistics, up",
    "up_raw": "raw trajectories, up",
    "down_model": "models, down",
    "down_raw": "raw trajectories, down",
}
"""What the categories of the ledger are called on pages."""

CAPTIONS = {
    "alone": "The same number of agents on the same task. An agent that learns alone replans after "
    "every episode, because that costs no communication.",
    "regret": "How much less reward all agents together earned than an optimal policy. A curve "
    "that is flat at the end has stopped losing. The dashed line is the smallest multiple of √t "
    "that the run stays below; the theorem allows regret to grow like it. Where most is lost "
    "early, the axis of episodes is logarithmic.",
    "returns": "Mean return of the episodes, in the environment's own units; higher is better.",
    "rounds": "How often the agents synchronised, beside the bounds of the theory and, where the "
    "settings have one, the budget.",
    "scalars": "Numbers sent over the network, both ways, all agents together. Sharing "
    "trajectories counts one way only.",
    "lengths": "Episodes between two synchronisations. Short rounds reveal more about each "
    "episode.",
    "triggers": "Which agent ended a round, and at which step of the horizon it had new data.",
    "logdet": "How much the agents have seen at each step h of the horizon.",
    "coverage": "How much the logs hold about each direction of feature space, best covered "
    "first; with one-hot features, how often each state and action was seen. Anything "
    "below one visit is as good as unseen.",
}

WITHOUT_BOUNDS = CAPTIONS | {
    "regret": "How much less reward all agents together earned than an optimal policy. A curve "
    "that is flat at the end has stopped losing; the dashed line is the smallest multiple of √t "
    "that the run stays below.",
    "rounds": "How often the agents synchronised.",
}
"""Of algorithms that the paper's theorems do not cover."""

POLICIES = {
    "learned": "learned policy",
    "exploring": "learned policy with its exploration bonus",
    "optimal": "optimal policy",
    "uniform": "uniform random policy",
    "random": "uniform random policy",
}


BESIDE = ("optimal", "uniform", "random")
"""Policies whose returns stand beside the learned one's, where they are known."""


def page_of_run(group: Group, svgs: Mapping[str, bytes], levels: Mapping[str, float]) -> str:
    """The page.

    Args:
        group: Runs that differ in their seed alone.
        svgs: SVG files by the name of their figure.
        levels: Returns of the learned policy and of others, by name.
    """
    run = group.first
    captions = CAPTIONS if run.bounds else WITHOUT_BOUNDS

    def figures(names: Sequence[str], aside: str = "") -> str:
        return html.images({n: svgs[n] for n in names if n in svgs}, captions, aside)

    merits = units(run) + policy_values(group, levels) + each_seed(group)
    title = "Regret" if run.regret is not None else "Return"
    parts = [
        html.paragraph(", ".join(described(group)), "sub"),
        html.paragraph(outcome(group, levels), "outcome"),
        html.paragraph(unfinished([group])),
        *(html.paragraph(f"{text[:1].upper()}{text[1:]}.", "note") for text in notes(group)),
        numbers(group, levels),
        *began(run),
        html.heading("Regret and return" if not_known(run) else title),
        figures(("alone", "regret", "returns"), merits),
        *coverage(run, figures),
        *estimates(run, levels, _only(group)),
        *_model_card(run),
        html.heading("Rounds and traffic" + (" against the bounds" if run.bounds else "")),
        figures(("rounds", "scalars")),
        bounds(group),
        *remembered(run, _only(group)),
        html.heading("When and why the agents synchronised" + _only(group)),
        figures(("lengths", "triggers", "logdet"), triggers(run) + remarks(run)),
        synchronisations(run),
        *_closing(group, 2),
    ]
    return html.document(f"{run.algorithm} on {run.environment_name}", parts)


def _model_card(run: Run) -> list[str]:
    """The card, where the run is of a study; making one takes all that a study is made of."""
    if not run.folder or not files.exists(Path(run.folder) / STUDY):
        return []
    from fedlsvi.report.model_card import section

    return section(run)


def notes(group: Group) -> list[str]:
    """How the run went on, and what its numbers say against its settings: of several seeds, the
    first that says so."""
    found: dict[str, str] = {}
    for run in group.runs:
        for advice in run.advice:
            found.setdefault(advice.code, advice.sentence)
    return [*group.first.extended, *found.values()]


def began(run: Run) -> list[str]:
    """What the run knew before its first episode; nothing where it began with nothing."""
    found = warm(run.counts, asdict(run.parameters))
    if not found:
        return []
    paragraphs = [html.paragraph(f"{text[:1].upper()}{text[1:]}.") for text in found]
    return [html.heading("What it started from"), *paragraphs]


def coverage(run: Run, figures: Callable[[Sequence[str]], str]) -> list[str]:
    """What the logs of a run have seen; nothing where the agents played."""
    if run.algorithm != "pevi":
        return []
    counts, held = run.counts, ""
    if "logged_episodes" in counts:  # where the logs are at sites, only these know
        held = (
            f"{plural(counts['logged_episodes'], 'logged episode')} with "
            f"{plural(counts['logged_transitions'], 'transition')}, of which "
            f"{counts['left_out']:,} have no target. "
        )
    text = f"{held}At β = {run.parameters.beta:.4g}, {run.coverage.meaning()}."
    parts = [html.heading("What the logs cover"), html.paragraph(text), figures(("coverage",))]
    if names := run.policy.action_names:
        parts.insert(2, html.paragraph(f"Actions: {numbered(names)}."))
    return parts


def folded_run(group: Group) -> str:
    """One of several groups on a page that compares them."""
    run = group.first
    parts = [
        html.paragraph(", ".join(described(group)), "sub"),
        html.paragraph(outcome(group, {})),
        numbers(group),
        each_seed(group),
        bounds(group),
        html.heading("When and why the agents synchronised" + _only(group), 3),
        triggers(run),
        synchronisations(run),
        remarks(run),
        *_closing(group, 3),
    ]
    return html.folded(group.label, parts)


def _closing(group: Group, level: int) -> list[str]:
    run = group.first
    return [
        html.heading("What left each agent" + _only(group), level),
        sent(run),
        agents(run),
        html.heading("Privacy: what uploads reveal", level),
        html.paragraph(privacy(group)),
        html.table(("protection" + _only(group), "in this run"), protections(run), (0, 1), True),
        html.heading("Where the time went", level),
        timing(group),
        html.heading("Run it again", level),
        rerun(group),
    ]


def described(group: Group) -> list[str]:
    """Who played what for how long."""
    run = group.first
    p = run.parameters
    ended = "stopped" if run.ending == "stopped" else "interrupted"
    state = "" if run.played == p.episodes else f" ({ended}; {p.episodes:,} were planned)"
    seeds = ", ".join(str(one.seed) for one in group.runs)
    return [
        plural(p.n_agents, "agent"),
        f"{plural(run.played, 'episode')} each{state}",
        *took_part(run),
        f"horizon {p.horizon}",
        plural(p.dim, "feature"),
        *shown_parameters(asdict(run.settings), asdict(p)),
        f"{'seed' if len(group.runs) == 1 else 'seeds'} {seeds}",
    ]


def took_part(run: Run) -> list[str]:
    """How many agents played a round, where some were away."""
    if not run.parameters.some_away:
        return []
    there = [record.present or 0 for record in run.records]
    return [f"{min(there):,} to {max(there):,} of them in a round, {np.mean(there):.3g} on "
            f"average, and {plural(run.agent_episodes, 'episode')} played in total"]  # fmt: skip


def _only(group: Group) -> str:
    """What a section shows of several runs."""
    return "" if len(group.runs) == 1 else f", seed {group.first.seed}"


def not_known(run: Run) -> bool:
    """Whether neither regret nor returns are known, as where only the server's side was kept."""
    return run.regret is None and run.mean_returns is None


def outcome(group: Group, levels: Mapping[str, float]) -> str:
    """One sentence: what was learned, and what it took."""
    run = group.first
    p = run.parameters
    opening = f"After {plural(run.played, 'episode')} each"
    if len(group.runs) > 1:
        opening += f" (median of {plural(len(group.runs), 'seed')})"
    if group.regrets():
        lost = unit(run) * float(np.median(group.regrets()))
        late = unit(run) * float(np.median([late_loss(one) for one in group.runs]))
        who = "the agent" if p.n_agents == 1 else f"the {plural(p.n_agents, 'agent')} together"
        text = (
            f"{opening}, {who} had lost {number(lost)} reward against an optimal policy: "
            f"{number(lost / run.agent_episodes)} per episode played, and {number(late)} per "
            "episode in the last tenth"
        )
    elif earned := group.late_returns(group.played):
        late = float(np.median(earned))
        text = f"{opening}, the last tenth of the episodes earned {number(late)} each"
        known = [f"{name} policy {number(level)}" for name, level in levels.items()]
        text += f" ({', '.join(known)})" if known else ""
    else:
        text = f"{opening}, the return of the policy is not known here"
    return f"{text}; {_price(group)}."


def _price(group: Group) -> str:
    """What was sent for it."""
    total = float(np.median([run.ledger.total for run in group.runs]))
    if total == 0.0:
        return "nothing was sent"
    rounds = float(np.median([run.rounds for run in group.runs]))
    took = (
        f"learning took {plural(round(rounds), 'synchronisation')} and "
        f"{plural(round(total), 'scalar')}"
    )
    if group.first.scalars_raw is None:
        return took
    ratio = group.first.scalars_raw / total
    times = f"{number(ratio)} times fewer" if ratio >= 1.0 else f"{number(1.0 / ratio)} times more"
    return f"{took}, {times} than sharing every trajectory"


def unfinished(groups: Sequence[Group]) -> str:
    """Who was interrupted, and which seeds are left out for it."""
    found = []
    for group in groups:
        several = len(groups) > 1
        if several and group.first.played < group.first.parameters.episodes:
            found.append(f"{group.label} was interrupted after {_so_far(group.first)}.")
        for run in group.left_out:
            who = f"{group.label}, seed {run.seed}," if several else f"Seed {run.seed}"
            rest = f": {command('resume', run.folder)} plays the rest." if run.folder else "."
            found.append(f"{who} was interrupted after {_so_far(run)} and is left out{rest}")
    return " ".join(found)


def _so_far(run: Run) -> str:
    return f"{run.played:,} of {plural(run.parameters.episodes, 'episode')}"


def late_loss(run: Run) -> float:
    """Reward lost per episode and agent over the last tenth of the episodes."""
    assert run.regret is not None
    n = len(run.regret)
    last = tenth(n)
    before = run.regret[n - last - 1] if last < n else 0.0
    earlier, played = run.agent_episodes_until([n - last, n])
    return float(run.regret[-1] - before) / float(played - earlier)


def unit(run: Run) -> float:
    """What 1 of regret is in the environment's own units: high − low, where rewards were mapped
    from [low, high] into [0, 1]; 1 where only an environment says so that cannot be made here."""
    try:
        return round(float(run.original_value(1.0) - run.original_value(0.0)), 9)
    except (FedLSVIError, ImportError):
        return 1.0


def numbers(group: Group, levels: Mapping[str, float] | None = None) -> str:
    """What people look for first, each with something to compare it with."""
    first, runs = group.first, group.runs
    cells = []
    if levels and "learned" in levels:
        others = [f"{name} {levels[name]:,.4g}" for name in BESIDE if name in levels]
        what = f"mean return of the learned policy{_only(group)}"
        cells.append((f"{levels['learned']:,.4g}", "; ".join([what, *others])))
    if regrets := group.regrets():
        mapped = "" if unit(first) == 1.0 else "; rewards mapped into [0, 1]"
        cells.append((measured(regrets), f"cumulative regret, all agents{mapped}"))
    elif earned := group.late_returns(group.played):
        cells.append((measured(earned), "mean return of the last tenth of the episodes"))
    else:
        cells.append(("not known here", "regret and return"))
    allowed = most_rounds({name: bound.row() for name, bound in first.bounds.items()})
    what = f"rounds; {allowed}" if allowed else "rounds"
    cells.append((measured([run.rounds for run in runs]), what))
    raw = "not known here" if first.scalars_raw is None else f"{first.scalars_raw:,}"
    against = f"scalars sent; sharing trajectories: {raw}"
    cells.append((measured([run.ledger.total for run in runs]), against))
    size = measured([sum(run.ledger.bytes.values()) / 1e6 for run in runs])
    cells.append((size, "megabytes sent, at eight bytes a scalar"))
    note = (
        f"Medians of {plural(len(runs), 'seed')}, with the {interval_name(len(runs))} in brackets."
    )
    return html.boxes(cells) + (html.paragraph(note, "note") if len(runs) > 1 else "")


def policy_values(group: Group, levels: Mapping[str, float]) -> str:
    """What an episode is worth to each policy, in the environment's own units."""
    if not_known(group.first):
        return html.paragraph(
            "Neither regret nor returns are known here: this folder holds only what reached the "
            "server. Evaluate the learned policy where the environment is."
        )
    if not levels:
        return ""
    played = {n: v for n, v in group.first.worth_known.items() if v.standard_error is not None}

    def shown(name: str, value: float) -> str:
        worth = played.get(name)
        if worth is None:
            return f"{value:,.5g}"
        episodes = plural(worth.episodes or 0, "episode")
        return f"{value:,.5g} ± {worth.standard_error:.2g} ({episodes})"

    rows = [
        (POLICIES.get(name, name) + (_only(group) if name == "learned" else ""), shown(name, value))
        for name, value in levels.items()
    ]
    return html.table(("policy", "mean return of an episode"), rows)


def units(run: Run) -> str:
    """What regret is counted in, where that is not the environment's own unit."""
    if run.regret is None or unit(run) == 1.0:
        return ""
    return html.paragraph(
        f"Regret is measured in rewards mapped to [0, 1]: 1 is {number(unit(run))} in "
        "the environment's own units.",
        "note",
    )


def each_seed(group: Group) -> str:
    """Each seed's run, where there are several."""
    if len(group.runs) == 1:
        return ""
    regrets = group.regrets()
    found = regrets or group.late_returns(group.played)
    rows = []
    for i, run in enumerate(group.runs):
        merit = f"{found[i]:,.2f}" if found else "–"
        row = (f"seed {run.seed}", merit, f"{run.rounds:,}", f"{run.ledger.total:,}")
        rows.append((*row, smallest_upload([run])))
    name = "regret, all agents" if regrets else "return, last tenth"
    return html.table(("run", name, "rounds", "scalars", "smallest upload"), rows, stack=True)


def bounds(group: Group) -> str:
    """The theorems and what was measured; of several runs all must keep to them."""
    run, rows = group.first, []
    if not run.bounds:
        return ""
    for name, bound in run.bounds.items():
        every = [one.bounds[name] for one in group.runs if name in one.bounds]
        shown = "–" if bound.measured is None else number(bound.measured)
        rows.append((bound.claim, number(bound.bound), shown, _verdict(every)))
    which = _only(group)
    head = ("claim", f"bound{which}", f"measured{which}", "verdict")
    listed = html.table(head, rows, words=(0, 3), stack=True)
    if all(bound.applies for bound in run.bounds.values()):
        return listed
    note = (
        "The theorem on regret is proved for its own β and λ = 1. At the values in force it "
        "guarantees nothing; its right-hand side is shown for comparison."
    )
    return listed + html.paragraph(note, "note")


def _verdict(every: Sequence[Bound]) -> str:
    held = [bound.holds for bound in every]
    if None in held:
        return "not known here"
    seeds = f", {plural(len(held), 'seed')}" if len(held) > 1 else ""
    if all(bound.applies for bound in every):
        return ("holds" if all(held) else "broken") + seeds
    return ("below" if all(held) else "above") + f"{seeds}; no guarantee at this β"


def sent(run: Run) -> str:
    """Scalars and bytes by category, all agents together."""
    rows = [
        (CATEGORIES[name], f"{total:,}", f"{run.ledger.bytes[name]:,}")
        for name, total in run.ledger.scalars.items()
    ]
    rows.append(("all", f"{run.ledger.total:,}", f"{run.ledger.total * SCALAR_BYTES:,}"))
    return html.table(("what, all agents together", "scalars", "bytes"), rows)


def agents(run: Run) -> str:
    """What left each agent, and what it received."""
    by = run.ledger.by_agent
    left = by["up_stats"] + by["up_raw"]
    came = by["init"] + by["down_model"] + by["down_raw"]
    columns = (by["up_stats"], by["up_raw"], left * SCALAR_BYTES, by["signal"], came)
    everyone = np.stack(columns, axis=1)
    rows = [(f"agent {m}", *(f"{v:,}" for v in row)) for m, row in enumerate(everyone[:SHOWN])]
    if len(everyone) > SHOWN:
        rows.append((f"{len(everyone) - SHOWN:,} more", *("…" for _ in columns)))
    head = ("", "statistics out", "raw trajectories out", "bytes out", "signals", "scalars in")
    note = (
        "Counts are scalars unless noted as bytes. A signal is a flag and the number of an "
        "episode; signals are counted both ways together and are not in the bytes."
    )
    return html.table(head, rows, stack=True) + html.paragraph(note, "note")


def timing(group: Group) -> str:
    """Seconds by phase, and each phase's share; the median where there are several runs."""
    found = [run.summary(values=False)["seconds"] for run in group.runs]
    phases = {name: float(np.median([one[name] for one in found])) for name in found[0]}
    total = sum(phases.values())
    rows = [
        (name, f"{value:.2f}", f"{100 * value / total:.0f} %" if total else "–")
        for name, value in phases.items()
    ]
    each = number(1e3 * total / group.first.played)
    rows.append(("all", f"{total:.2f}", f"{each} ms per episode"))
    return html.table(("phase", "seconds", "share"), rows) + _steps(group)


def _steps(group: Group) -> str:
    """What a black box was asked to do."""
    counts = [
        (run.summary(values=False)["steps"], run.summary(values=False)["clipped"])
        for run in group.runs
    ]
    if any(steps is None for steps, _ in counts):
        return ""
    steps, clipped = (round(float(np.median(each))) for each in zip(*counts, strict=True))
    text = (
        f"The agents took {plural(steps, 'step')} in the environment, including those of episodes "
        "that were played ahead and dropped."
    )
    if clipped:
        text += (
            f" {plural(clipped, 'reward')} lay outside the reward range and "
            f"{'was' if clipped == 1 else 'were'} clipped."
        )
    return html.paragraph(text)
