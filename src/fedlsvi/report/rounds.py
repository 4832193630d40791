"""The rounds of a run on its page: who ended them, when, what each sent, what was out of the
ordinary."""

from __future__ import annotations

from collections import Counter

from fedlsvi.checks import plural
from fedlsvi.protocol.records import LISTED, RoundRecord
from fedlsvi.report import html
from fedlsvi.run import Run

SHOWN = 200
"""Rounds at either end of the list."""


def triggers(run: Run) -> str:
    """What makes agents synchronise, and who did it how often."""
    p, records = run.parameters, run.records
    fired = [trigger for record in records for trigger in record.triggers if trigger[1]]
    if run.ledger.total == 0:
        return html.paragraph("The agents never synchronised: each learned alone.")
    if not fired:
        return html.paragraph("No agent triggered a round: the rounds followed a fixed schedule.")
    text = ""
    if run.bounds:
        text = (
            "A round of Δt episodes ends when an agent's own data have multiplied det Λ at some "
            f"step h by γ/Δt or more, γ = {p.gamma:.4g}: the longer a round, the less it takes. "
        )
    by_agent, by_step = Counter(a for a, _ in fired), Counter(h for _, h in fired)
    (agent, most), (step, often) = by_agent.most_common(1)[0], by_step.most_common(1)[0]
    text += (
        f"{len(by_agent)} of {plural(p.n_agents, 'agent')} fired, at {len(by_step)} of "
        f"{plural(p.horizon, 'step')}; most often agent {agent} ({most} of "
        f"{plural(len(fired), 'signal')}) and step h = {step} ({often})."
    )
    if any(record.signals > len(record.triggers) for record in records):
        text += f" At most {LISTED} signals per round are listed and counted here."
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
    return html.table(head, rows, words=(0, 1, 3), stack=True)


def remarks(run: Run) -> str:
    """Anomalies: agents that were left out, episodes beyond a signal."""
    rows = [(f"{r.k:,}", note) for r in run.records for note in r.notes]
    kept = sum(record.overshoot for record in run.records)
    were = "was" if kept == 1 else "were"
    text = f"{plural(kept, 'episode')} beyond a signal {were} kept." if kept else ""
    return html.paragraph(text) + (
        html.table(("round", "anomaly"), rows, words=(0, 1)) if rows else ""
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
