"""The pages, read from top to bottom: one group of runs, or several set against each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from html import escape

from fedlsvi.checks import plural
from fedlsvi.report import html, sections
from fedlsvi.report.again import again
from fedlsvi.report.choices import in_force
from fedlsvi.report.groups import Group
from fedlsvi.report.privacy import privacy
from fedlsvi.report.words import outcome, ranked, unfinished, verdict

CAPTIONS = {
    "alone": "The same number of agents on the same task. Alone, an agent replans after every "
    "episode, which costs it nothing.",
    "regret": "What all agents together lost against an optimal policy. A curve that is flat at "
    "the end has stopped losing; one along the √t line grows as the theorem allows.",
    "returns": "What episodes earned on average, in the environment's own units; more is better.",
    "rounds": "How often the agents synchronised, between the fewest and the most that are "
    "possible.",
    "scalars": "Numbers that crossed the network, both ways, all agents together. Sharing "
    "trajectories counts one way only.",
    "lengths": "Episodes between two synchronisations. Short rounds say more about each episode.",
    "triggers": "Which agent ended a round, and at which step of the horizon its data were new.",
    "logdet": "How much the agents have seen at each step h of the horizon.",
}

UNBOUNDED = CAPTIONS | {
    "regret": "What all agents together lost against an optimal policy. A curve that is flat at "
    "the end has stopped losing; the dashed one grows as √t.",
    "rounds": "How often the agents synchronised.",
}
"""Of algorithms that no theorem here is about."""

CONTRASTS = CAPTIONS | {
    "regret": "What the agents lost against an optimal policy; less is better. Bands are over the "
    "seeds.",
    "returns": "What episodes earned on average; more is better. Bands are over the seeds.",
    "price": "Each run's regret against what it sent for it; crosses sent nothing. Best is low and "
    "to the left.",
    "worth": "What the last tenth of the episodes earned, against what was sent for it; crosses "
    "sent nothing. Best is high and to the left.",
    "traffic": "The same regret against what had been sent by then. Best is low and to the left.",
    "rounds": "How often the agents synchronised. An agent that learns alone replans in rounds of "
    "its own.",
}


def page(group: Group, svgs: Mapping[str, bytes], levels: Mapping[str, float]) -> str:
    """One run, or several seeds of it. `svgs`: figure → SVG file."""
    run, several = group.first, len(group.runs) > 1
    captions = CAPTIONS if run.bounds else UNBOUNDED

    def figures(*names: str) -> str:
        return html.images({name: svgs[name] for name in names if name in svgs}, captions)

    parts = [
        html.paragraph(", ".join(_what(group)), "sub"),
        html.paragraph(outcome(group, levels), "outcome"),
        _remark([group]),
        sections.numbers(group),
        _heading("Return" if run.regret is None else "Regret"),
        figures("alone", "regret", "returns"),
        sections.units(run),
        sections.levels(levels, run.seed),
        sections.every(group) if several else "",
        _heading("Rounds and traffic" + (" against the bounds" if run.bounds else "")),
        figures("rounds", "scalars"),
        sections.bounds(group),
        _heading("When and why the agents synchronised" + _only(group)),
        sections.why(run),
        figures("lengths", "triggers", "logdet"),
        sections.synchronisations(run),
        sections.remarks(run),
        _heading("What left each agent" + _only(group)),
        sections.sent(run),
        sections.agents(run),
        _heading("Privacy: the smallest upload"),
        privacy(group),
        _heading("Where the time went"),
        sections.timing(group),
        _heading("Run it again"),
        again(group),
    ]
    return html.document(f"{run.algorithm} on {run.environment_name}", parts)


def comparison(groups: Sequence[Group], svgs: Mapping[str, bytes]) -> str:
    """Several groups on one problem."""
    first = groups[0].first
    names = {group.first.algorithm for group in groups}
    one = f"{len(groups)} settings of {first.algorithm}"
    what = one if len(names) == 1 else f"{len(names)} algorithms"
    parts = [
        html.paragraph(_shared(groups), "sub"),
        html.paragraph(verdict(groups), "outcome"),
        _remark(groups),
        sections.ranking(groups, ranked(groups)),
        _heading("Return" if "returns" in svgs else "Regret"),
        html.images(
            {n: svgs[n] for n in ("regret", "returns", "price", "worth") if n in svgs}, CONTRASTS
        ),
        sections.units(first),
        _heading("Rounds and traffic"),
        html.images({n: svgs[n] for n in ("rounds", "scalars") if n in svgs}, CONTRASTS),
        _heading("Each of them"),
    ]
    for group in groups:
        run = group.first
        inside = [
            html.paragraph(", ".join(_what(group)), "sub"),
            html.paragraph(outcome(group, {})), sections.numbers(group),
            sections.every(group) if len(group.runs) > 1 else "", sections.bounds(group),
            _small("When and why the agents synchronised" + _only(group)), sections.why(run),
            sections.synchronisations(run), sections.remarks(run),
            _small("What left each agent" + _only(group)), sections.sent(run),
            sections.agents(run),
            _small("Privacy: the smallest upload"), privacy(group),
            _small("Where the time went"), sections.timing(group),
            _small("Run it again"), again(group),
        ]  # fmt: skip
        parts.append(html.folded(group.label, inside))
    return html.document(f"{what} on {first.environment_name}", parts)


def ranking(
    title: str,
    sentence: str,
    svgs: Mapping[str, bytes],
    tables: Mapping[str, tuple[Sequence[str], Sequence[Sequence[str]]]],
    again: str,
) -> str:
    """A comparison of which the runs themselves were not kept: tables by their headings."""
    parts = [
        html.paragraph(sentence, "outcome"),
        html.images(svgs, CONTRASTS),
    ]
    for heading, (head, rows) in tables.items():
        parts += [_heading(heading), html.table(head, rows, (0, 1), stack=True)]
    parts += [_heading("Run it again"), html.code(again)]
    return html.document(title, parts)


def _shared(groups: Sequence[Group]) -> str:
    """What all of them have in common."""
    first, *others = (_what(group) for group in groups)
    return ", ".join(part for part in first if all(part in other for other in others))


def _what(group: Group) -> list[str]:
    """Who played what for how long."""
    run = group.first
    p = run.parameters
    state = "" if run.played == p.episodes else f" (interrupted; {p.episodes:,} were planned)"
    seeds = ", ".join(str(one.seed) for one in group.runs)
    return [
        plural(p.n_agents, "agent"),
        f"{plural(run.played, 'episode')} each{state}",
        f"horizon {p.horizon}",
        plural(p.dim, "feature"),
        *in_force(asdict(run.settings), asdict(p)),
        f"{'seed' if len(group.runs) == 1 else 'seeds'} {seeds}",
    ]


def _only(group: Group) -> str:
    """What a section shows of several runs."""
    return "" if len(group.runs) == 1 else f", seed {group.first.seed}"


def _remark(groups: Sequence[Group]) -> str:
    """Who was interrupted."""
    text = unfinished(groups)
    return html.paragraph(text) if text else ""


def _heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


def _small(text: str) -> str:
    return f"<h3>{escape(text)}</h3>"
