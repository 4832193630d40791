"""What the command prints: plain lines, or one JSON object."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from fedlsvi.checks import plural


def as_json(content: Any) -> str:
    """One JSON object, NaN and infinity excluded."""
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)


def tell(form: str, found: dict[str, Any], lines: Sequence[str]) -> int:
    """Print what a command found or did, for programs or for people; returns the exit code."""
    print(as_json(found) if form == "json" else "\n".join(lines))
    return 0


def columns(rows: Sequence[Sequence[str]], align: str, indent: str = "") -> list[str]:
    """Rows as lines with columns of equal width.

    Args:
        rows: As many cells in each.
        align: "<" or ">" for each column; the last one counts for all that follow.
        indent: What every line begins with.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    align = align.ljust(len(widths), align[-1])
    return [
        (indent + "  ".join(f"{c:{a}{w}}" for c, a, w in zip(row, align, widths, strict=True)))
        .rstrip()
        for row in rows
    ]  # fmt: skip


def number(value: float | None) -> str:
    """12,345 or 12.3; a dash where there is nothing."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 or float(value).is_integer() else f"{value:,.2f}"


def heading(summary: Mapping[str, Any]) -> str:
    """Who learned what, for how long."""
    from fedlsvi.algorithms import registry as algorithms
    from fedlsvi.config import shown_parameters

    p, name = summary["parameters"], summary["algorithm"]
    numbers = [f"H = {p['horizon']}", f"d = {p['dim']}"]
    numbers += shown_parameters(algorithms.entry(name).parameters(), p)
    played, ending = summary["episodes"], summary["ending"]
    length = plural(played, "episode")
    if played < p["episodes"]:
        length = f"{played:,} of {plural(p['episodes'], 'episode')}"
    end = f", {ending}" if ending in ("stopped", "interrupted") else ""
    return (
        f"{name} on {summary['environment']}: {plural(p['n_agents'], 'agent')}, "
        f"{length} each{end} ({', '.join(numbers)})"
    )


def single_lines(summary: Mapping[str, Any]) -> list[str]:
    """One run."""
    from fedlsvi.run_views import most_rounds

    seconds = summary["seconds"]
    spent = ", ".join(f"{phase} {value:.2f}" for phase, value in seconds.items())
    rows = [
        *_merit(summary),
        ("rounds", number(summary["rounds"]), most_rounds(summary["bounds"])),
        *_switches(summary["counts"]),
        *_took_part(summary),
        ("scalars sent", number(summary["scalars"]), _raw(summary)),
        *_steps(summary),
        ("shortest round", number(summary["shortest_round"]), _least(summary)),
        *_given_away(summary),
        ("seconds", f"{sum(seconds.values()):.2f}", spent),
    ]  # fmt: skip
    lines = [f"{heading(summary)}, seed {summary['seed']}", *columns(rows, "<><", "  ")]
    notes = [*_warm(summary), *summary["extended"], *_advice([summary])]
    lines += [f"  note: {sentence}" for sentence in notes]
    if summary.get("folder"):
        lines += [_location(summary["folder"])]
    return lines


def _advice(summaries: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the numbers say against the settings: of several runs, the first that says so."""
    found: dict[str, str] = {}
    for summary in summaries:
        for advice in summary["advice"]:
            found.setdefault(advice["code"], advice["sentence"])
    return list(found.values())


def _warm(summary: Mapping[str, Any]) -> list[str]:
    """What the run knew before its first episode."""
    p = summary["parameters"]
    if not p["logged"] and not p["prior"]:
        return []
    from fedlsvi.report.began import warm

    return warm(summary["counts"], p)


def _raw(summary: Mapping[str, Any]) -> str:
    """What sharing every trajectory would take, and how to send less than that."""
    raw = summary["scalars_raw"]
    if raw is None:
        return ""
    text = f"sharing every trajectory: {number(raw)}"
    if not _together(summary) or summary["scalars"] <= raw:
        return text
    from fedlsvi.config import Parameters
    from fedlsvi.observers.traffic import rounds_paid_for

    p = Parameters(**summary["parameters"])
    steps = p.n_agents * summary["episodes"] * p.horizon
    paid = rounds_paid_for(p, raw // steps)
    return f"{text}; --set rounds={paid} sends less and learns more slowly" if paid else text


def _together(summary: Mapping[str, Any]) -> bool:
    """Whether several agents learned with Fed-LSVI, which has settings for what they send."""
    return bool(summary["algorithm"] == "fed-lsvi" and summary["parameters"]["n_agents"] > 1)


def _took_part(summary: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """How much was played, where agents were away by design."""
    all_of_them = summary["parameters"]["n_agents"] * summary["episodes"]
    if summary["agent_episodes"] == all_of_them:
        return []
    text = f"played by all agents together, out of {number(all_of_them)} with full participation"
    return [("episodes", number(summary["agent_episodes"]), text)]


def _location(folder: str) -> str:
    """Where the result is, and the command that plots it."""
    return f"  folder: {folder}    plots: fedlsvi report {quote(folder)}"


def _switches(counts: Mapping[str, int]) -> list[tuple[str, str, str]]:
    """How often policies changed, where agents learn alone."""
    if "switches" not in counts:
        return []
    most = f"policy changes in total; at most {number(counts['most_switches'])} by one agent"
    return [("switches", number(counts["switches"]), most)]


def _logged(summary: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What the logs hold, and what was earned in them."""
    counts = summary["counts"]
    text = f"of {plural(counts['logged_episodes'], 'episode')}"
    if counts["left_out"]:
        text += f"; {counts['left_out']:,} after which an episode was truncated are left out"
    rows = [("transitions", number(counts["logged_transitions"]), text)]
    if summary["return"] is not None:
        rows.append(("behaviour", number(summary["return"]), "mean return of the logged episodes"))
    return rows


def _merit(summary: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What the learned policy and others earn, and regret, as far as they are known."""
    from fedlsvi.policy import Worth

    rows = []
    if values := summary.get("values"):
        found = {name: Worth(**value) for name, value in values.items()}
        if "learned" in found:
            learned = found.pop("learned")
            others = ", ".join(f"{name} {value}" for name, value in found.items())
            played = (
                "" if learned.episodes is None else f" in {plural(learned.episodes, 'new episode')}"
            )
            text = f"of the learned policy{played}; {others}"
            rows.append(("return", str(learned), text))
    if summary["regret"] is not None:
        rows.append(("regret", number(summary["regret"]), "reward lost while learning, all agents"))
    elif summary["algorithm"] == "pevi" and "logged_episodes" in summary["counts"]:
        rows += _logged(summary)
    elif summary["return"] is not None:
        name = "while learning" if rows else "return"
        rows.append((name, number(summary["return"]), "mean of the last tenth of the episodes"))
    return rows or [("return", "–", "not known here")]


def _steps(summary: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What a black box was asked to do."""
    steps, clipped = summary.get("steps"), summary.get("clipped")
    if steps is None:
        return []
    text = "taken in the environment, including episodes played ahead"
    if clipped:
        text += f"; {plural(clipped, 'reward')} clipped to reward_range"
    return [("steps", number(steps), text)]


def _least(summary: Mapping[str, Any]) -> str:
    """What the shortest round means for privacy."""
    least, shortest = summary["smallest_upload"], summary["shortest_round"]
    unit = "episode" if shortest == 1 else "episodes"
    if least < shortest:
        return f"{unit}; at late steps, which few episodes reach, an upload covers only {least:,}"
    floor = min(10, summary["episodes"])
    if summary.get("epsilon_spent") is not None:
        return f"{unit}; noise hides each of them"
    lengthen = shortest < floor and shortest == 1 and _together(summary)
    fix = f"; --set min_round={floor} lengthens them" if lengthen else ""
    return f"{unit}; short rounds reveal more about each episode{fix}"


def _given_away(summary: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Which visits can be computed from uploads, however long the rounds."""
    found, spent = summary.get("recovery"), summary.get("epsilon_spent")
    if spent is not None:
        privacy = summary["parameters"]["privacy"]
        text = f"of ε = {privacy['epsilon']:g} spent at δ = {privacy['delta']:g}, per "
        return [("privacy", number(spent), text + privacy["unit"])]
    if not found or found["rank"] is None:
        return []
    kinds, solved = found["kinds"], found["solved"]
    text = f"of {kinds:,} visit counts can be computed from any upload"
    if solved < kinds:
        text += f"; nearly all can if a round has fewer than {plural(found['rank'], 'episode')}"
    return [("given away", number(solved), text)]


def several_lines(
    summaries: Sequence[Mapping[str, Any]], together: Mapping[str, Any], out: Path | None
) -> list[str]:
    """Several runs: each, then median and interval."""
    from fedlsvi.report.intervals import FEWEST

    kinds = ("regret" if together["return"] is None else "return", "rounds", "scalars")
    rows = [["seed", *kinds]]
    rows += [[str(s["seed"]), *(number(s[kind]) for kind in kinds)] for s in summaries]
    ends = ("min", "max") if len(summaries) < FEWEST else ("95 % low", "95 % high")
    labels = {"median": "median", "low": ends[0], "high": ends[1]}
    for label, name in labels.items() if len(summaries) > 1 else ():
        rows.append([name, *(number(together[k] and together[k][label]) for k in kinds)])
    lines = [heading(summaries[0]), *columns(rows, "<>", "  ")]
    extended = dict.fromkeys(text for summary in summaries for text in summary["extended"])
    lines += [f"  note: {text}" for text in [*extended, *_advice(summaries)]]
    return lines if out is None else [*lines, _location(str(out))]
