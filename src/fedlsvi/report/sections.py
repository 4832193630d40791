"""The sections of a report that a group of runs fills: what fired, what left, how long it took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.protocol.messages import SCALAR_BYTES
from fedlsvi.protocol.records import LISTED, RoundRecord
from fedlsvi.report import html
from fedlsvi.report.groups import Group, alike, common
from fedlsvi.report.words import judged, measured, number, regrets, unit
from fedlsvi.run import Run

SHOWN = 200
"""Rounds at either end of the list of synchronisations, and agents in the list of what left."""

SENT = {
    "init": "first broadcast, down",
    "signal": "signals and control, both ways",
    "up_stats": "statistics, up",
    "up_raw": "trajectories, up",
    "down_model": "models, down",
    "down_raw": "trajectories, down",
}


def numbers(group: Group) -> str:
    """What people look for first, each with what to hold against it."""
    first, runs = group.first, group.runs
    most = first.bounds.get("theorem_3")
    cells = []
    if regrets(group):
        mapped = "" if unit(first) == 1.0 else "; rewards mapped into [0, 1]"
        cells.append((measured(regrets(group)), f"cumulative regret, all agents{mapped}"))
    allowed = (
        f"rounds; Theorem 3 allows {most.bound:,.0f}"
        if most and np.isfinite(most.bound)
        else "rounds"
    )
    cells.append((measured([run.rounds for run in runs]), allowed))
    raw = "not known here" if first.scalars_raw is None else f"{first.scalars_raw:,}"
    against = f"scalars sent; sharing trajectories: {raw}"
    cells.append((measured([run.ledger.total for run in runs]), against))
    size = measured([sum(run.ledger.bytes.values()) / 1e6 for run in runs])
    cells.append((f"{size} MB", "sent, at eight bytes a scalar"))
    return html.boxes(cells)


def levels(found: Mapping[str, float], seed: int) -> str:
    """What an episode is worth, in the environment's own units."""
    if not found:
        return ""
    names = {"learned": f"learned policy (seed {seed})", "optimal": "optimal policy",
             "uniform": "uniform policy", "best seen": f"best round seen (seed {seed})",
             "random": "random policy"}  # fmt: skip
    rows = [(names.get(name, name), f"{value:,.5g}") for name, value in found.items()]
    return html.table(("an episode is worth", "mean return"), rows)


def units(run: Run) -> str:
    """What regret is counted in, where that is not the environment's own unit."""
    if run.regret is None or unit(run) == 1.0:
        return ""
    return html.paragraph(
        f"Regret counts rewards that were mapped into [0, 1]: 1 of it is {number(unit(run))} in "
        "the environment's own units.",
        "note",
    )


def every(group: Group) -> str:
    """Each seed's run."""
    rows = []
    name, (found,) = judged([group])
    for i, run in enumerate(group.runs):
        merit = f"{found[i]:,.2f}" if found else "–"
        row = (f"seed {run.seed}", merit, f"{run.rounds:,}", f"{run.ledger.total:,}")
        rows.append((*row, _smallest([run])))
    return html.table(("run", name, "rounds", "scalars", "smallest upload"), rows, stack=True)


def _smallest(runs: Sequence[Run]) -> str:
    """Episodes in the smallest upload."""
    sent = any(run.ledger.scalars["up_stats"] + run.ledger.scalars["up_raw"] for run in runs)
    return f"{min(r.smallest for run in runs for r in run.records):,}" if sent else "–"


def bounds(group: Group) -> str:
    """The theorems beside what was measured; of several runs all must keep to them."""
    run, rows = group.first, []
    if not run.bounds:
        return ""
    for name, bound in run.bounds.items():
        held = [one.bounds[name].holds for one in group.runs if name in one.bounds]
        verdict = "not measured" if None in held else "holds" if all(held) else "broken"
        verdict += f", {len(held)} seeds" if len(held) > 1 and None not in held else ""
        shown = "–" if bound.measured is None else number(bound.measured)
        rows.append((bound.claim, number(bound.bound), shown, verdict))
    note = (
        "The regret theorems hold for the theorem's β. At a smaller one, such as the practical "
        "preset's, their right-hand side is shown for comparison."
    )
    which = "" if len(group.runs) == 1 else f", seed {run.seed}"
    listed = html.table(("claim", f"bound{which}", f"measured{which}", "verdict"), rows, stack=True)
    return listed + html.paragraph(note, "note")


def why(run: Run) -> str:
    """What makes agents synchronise, and who did it how often."""
    p, records = run.parameters, run.records
    fired = [trigger for record in records for trigger in record.triggers if trigger[1]]
    if run.ledger.total == 0:
        return html.paragraph("The agents never synchronised: each learned alone.")
    if not fired:
        return html.paragraph("No agent asked for a synchronisation: their times were fixed.")
    text = ""
    if run.bounds:
        text = (
            "A round of Δt episodes ends when an agent's own data have multiplied det Λ at some "
            f"step h by γ/Δt or more, γ = {p.gamma:.4g}: the longer a round, the less it takes. "
        )
    agents, steps = Counter(a for a, _ in fired), Counter(h for _, h in fired)
    (agent, most), (step, often) = agents.most_common(1)[0], steps.most_common(1)[0]
    text += (
        f"{len(agents)} of {plural(p.n_agents, 'agent')} fired at {plural(len(steps), 'step')} "
        f"of {p.horizon}; most often agent {agent} ({most} of {len(fired)} signals) and step "
        f"h = {step} ({often})."
    )
    if any(record.signals > len(record.triggers) for record in records):
        text += f" Of each round at most {LISTED} signals are named and counted here."
    return html.paragraph(text)


def synchronisations(run: Run) -> str:
    """Every round: when, how long, who fired where, what it sent."""
    records = run.records
    shown: list[int | None] = list(range(len(records)))
    if len(records) > 2 * SHOWN + 1:
        shown = [*shown[:SHOWN], None, *shown[-SHOWN:]]
    before = [run.ledger.scalars["init"], *(sum(r.scalars.values()) for r in records)]
    rows = []
    for i in shown:
        if i is None:
            left = sum(record.rounds for record in records[SHOWN:-SHOWN])
            rows.append(("…", f"{plural(left, 'round')}: records.jsonl", "", "", "", ""))
            continue
        record = records[i]
        gained = record.regret if record.mean_return is None else record.mean_return
        rows.append((
            f"{record.k:,}", f"{record.first:,} – {record.last:,}", f"{record.length:,}",
            _fired(record), f"{before[i + 1] - before[i]:,}",
            "–" if gained is None else f"{gained:,.2f}",
        ))  # fmt: skip
    last = "regret so far" if run.mean_returns is None else "mean return"
    head = ("round", "episodes", "Δt", "who fired", "scalars", last)
    return html.table(head, rows, words=(0, 1, 3))


def remarks(run: Run) -> str:
    """What was out of the ordinary: agents that were left out, episodes beyond a signal."""
    rows = [(f"{r.k:,}", note) for r in run.records for note in r.notes]
    kept = sum(record.overshoot for record in run.records)
    text = f"{plural(kept, 'episode')} beyond a signal were kept." if kept else ""
    return (html.paragraph(text) if text else "") + (
        html.table(("round", "out of the ordinary"), rows, words=(0, 1)) if rows else ""
    )


def _fired(record: RoundRecord) -> str:
    if not record.triggers:
        return "–"
    agent, step = record.triggers[0]
    if step == 0:
        return "end of the run"
    fired = max(record.signals, len(record.triggers))  # agents alone fire, and signal nobody
    more = f" and {fired - 1} more" if fired > 1 else ""
    return f"agent {agent} at h = {step}{more}"


def sent(run: Run) -> str:
    """Scalars and bytes by category, all agents together."""
    rows = [
        (SENT[name], f"{total:,}", f"{run.ledger.bytes[name]:,}")
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
    head = ("", "statistics out", "trajectories out", "bytes out", "signals", "scalars in")
    note = (
        "Scalars, unless bytes are said. Signals are a flag and the number of an episode; they are "
        "counted both ways together and are not in the bytes."
    )
    return html.table(head, rows, stack=True) + html.paragraph(note, "note")


def timing(group: Group) -> str:
    """Seconds by phase, and each phase's share; the mean where there are several runs."""
    found = [run.summary()["seconds"] for run in group.runs]
    phases = {name: float(np.mean([one[name] for one in found])) for name in found[0]}
    total = sum(phases.values())
    rows = [
        (name, f"{value:.2f}", f"{100 * value / total:.0f} %" if total else "–")
        for name, value in phases.items()
    ]
    each = number(1e3 * total / group.first.played)
    rows.append(("all", f"{total:.2f}", f"{each} ms an episode"))
    return html.table(("phase", "seconds", "share"), rows)


def ranking(groups: Sequence[Group], order: Sequence[int]) -> str:
    """One row for each group, at as many episodes as all have."""
    name, found = judged(groups)
    head = ("", "seeds", name, "rounds", "scalars sent", "of them trajectories",
            "smallest upload", "seconds")  # fmt: skip
    rows, t = [], common(groups)
    for i in order:
        group, runs = groups[i], groups[i].runs
        counts = (group.counted(what, t) for what in ("rounds", "scalars", "trajectories"))
        rows.append((
            group.label, f"{len(runs)}", measured(found[i]) if found[i] else "–",
            *(measured(values) for values in counts), _smallest(runs),
            number(float(np.mean([sum(r.summary()["seconds"].values()) for r in runs]))),
        ))  # fmt: skip
    note = (
        f"After {plural(t, 'episode')} each, as many as all of them have; the smallest upload and "
        "the seconds are those of the whole runs."
    )
    return html.table(head, rows, stack=True) + (
        "" if alike(groups) else html.paragraph(note, "note")
    )
