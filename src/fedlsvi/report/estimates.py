"""What the learned policy is worth: *estimated* from logs beside *measured*, never mixed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite

from fedlsvi.checks import is_number, plural
from fedlsvi.report import html
from fedlsvi.report.rerun import command
from fedlsvi.run import Run
from fedlsvi.storage import evaluations
from fedlsvi.storage.evaluations import Entry
from fedlsvi.storage.settings_file import AT_SITES

NOT_PLAYED = (
    "Estimated from logs of another policy; nothing was played. The estimate counts 0 for what "
    "the logs have not seen, and the interval (95 %, bootstrap over episodes) includes the most "
    "it can be worth; those of the doubly robust estimate and of importance sampling have noise "
    "alone. The bounds from Λ use the theorem's β. If the policy was learned or selected with the "
    "same logs, the estimate is too high."
)


def estimates(run: Run, levels: Mapping[str, float], which: str = "") -> list[str]:
    """The section; nothing where no log had a part in the run and nothing was estimated.

    Args:
        run: The run.
        levels: Returns of its policies and of others, by name, measured or exact.
        which: Behind the heading, where the page is of several runs.
    """
    kept = evaluations.read(run.folder) if run.folder else {"estimated": [], "measured": []}
    logged = run.algorithm == "pevi" or run.parameters.logged > 0
    if not (logged or kept["estimated"]):
        return []
    estimated, measured = (_of_this_policy(kept[kind], run) for kind in ("estimated", "measured"))
    late = len(kept["estimated"]) + len(kept["measured"]) - len(estimated) - len(measured)
    note = (
        f"{plural(late, 'evaluation')} of the policy before the last episodes "
        f"{'is' if late == 1 else 'are'} left out."
    )
    return [
        html.heading(f"Estimated and measured value{which}"),
        html.heading("Estimated, from logs", 3),
        _estimated(run, estimated),
        html.heading("Measured", 3),
        _measured(run, estimated, measured, levels),
        html.paragraph(note if late else "", "note"),
    ]


def _of_this_policy(entries: Sequence[Entry], run: Run) -> list[Entry]:
    return [entry for entry in entries if entry["played"] == run.played]


def _estimated(run: Run, entries: Sequence[Entry]) -> str:
    if not entries:
        at_sites = run.environment_name == AT_SITES
        ask = command("evaluate", "KIT" if at_sites else run.folder or "RUN", "--data", "RECORDS")
        where = " at a site, with its startup kit" * at_sites
        return html.paragraph(
            f"The policy has not been evaluated from logs: {ask} does that{where}."
        )
    rows = []
    for entry in entries:
        steps = ", all rows at every step" if entry["stationary"] else ""
        logs = f"{', '.join(entry['data'])}\n{plural(entry['episodes'], 'episode')}{steps}"
        missing = entry.get("importance_missing")
        sampled = "–" if missing is None else f"none: {missing}"
        if entry.get("epsilon") is not None:
            sampled = f"none\n(ε = {entry['epsilon']:.3g} at δ = {entry['delta']:g})"
        effective = entry["effective"]
        if entry["importance"] is not None and effective is not None and isfinite(effective):
            sampled = _with_interval(entry, "importance")
            sampled += f"\nof {plural(round(effective), 'episode')}"
        rows.append(
            (
                logs,
                _short(entry["value"]),
                _between(entry["low"], entry["high"]),
                _short(entry["unseen"]),
                _between(entry["pessimistic"], entry["optimistic"]),
                _with_interval(entry, "robust"),
                sampled,
            )
        )
    head = (
        "logs", "estimate", "interval", "what the logs have not seen could add", "bounds from Λ",
        "doubly robust", "importance sampling",
    )  # fmt: skip
    return html.table(head, rows, stack=True) + html.paragraph(NOT_PLAYED, "note")


def _measured(
    run: Run, estimated: Sequence[Entry], measured: Sequence[Entry], levels: Mapping[str, float]
) -> str:
    rows = []
    if "learned" in levels:
        worth = run.worth_known.get("learned")
        how = "exact, in the environment"
        if worth is not None and worth.standard_error is not None:
            how = f"± {worth.standard_error:.2g}, {plural(worth.episodes or 0, 'episode')} played"
        rows.append(("learned policy", _short(levels["learned"]), how))
    for entry in measured:
        how = f"{plural(entry['episodes'], 'episode')} played in {entry['environment']}"
        if entry["low"] is not None:
            how = f"{_between(entry['low'], entry['high'])}, {how}"
        rows.append(("learned policy", _short(entry["mean"]), how))
    played = bool(rows)
    for entry in estimated:
        how = f"{plural(entry['episodes'], 'episode')} of {', '.join(entry['data'])}"
        if entry["behaviour_low"] is not None:
            how = f"{_between(entry['behaviour_low'], entry['behaviour_high'])}, {how}"
        row = ("behaviour in the logs", _short(entry["behaviour"]), how)
        rows += [] if row in rows else [row]
    found = html.table(("policy", "mean return of an episode", "how"), rows, words=(0, 2)) * bool(
        rows
    )
    if played:
        return found
    ask = command("evaluate", run.folder or "RUN", "--env", "NAME")
    return found + html.paragraph(
        f"The learned policy was not measured, because logs cannot be played: {ask} plays it where "
        "there is a simulator."
    )


def _short(value: float) -> str:
    return f"{value:,.4g}"


def _with_interval(entry: Entry, name: str) -> str:
    """An estimate of which older files have no interval, or nothing at all."""
    value, low, high = (
        number if is_number(number) else None
        for number in (entry.get(f"{name}{end}") for end in ("", "_low", "_high"))
    )
    if value is None:
        return "–"
    return _short(value) + (f"\n{_between(low, high)}" if None not in (low, high) else "")


def _between(low: float | None, high: float | None) -> str:
    return "–" if low is None or high is None else f"{_short(low)} to {_short(high)}"
