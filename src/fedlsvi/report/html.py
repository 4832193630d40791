"""One self-contained HTML page for a run or for several: no address outside, nothing to load."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from fedlsvi.records import RoundRecord
from fedlsvi.report.statistics import aggregate
from fedlsvi.run import Run

SHOWN = 6
"""Rounds at either end of the table of triggers."""

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem 1.25rem 4rem; color: #222;
  background: #fff; font: 16px/1.5 system-ui, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .25rem; }
h2 { font-size: 1.15rem; margin: 2.25rem 0 .75rem; }
p { margin: .4rem 0 .8rem; max-width: 46rem; }
.sub, caption, .note { color: #555; }
.numbers { display: grid; grid-template-columns: repeat(auto-fit, minmax(13rem, 1fr));
  gap: .75rem; margin: 1.25rem 0; }
.numbers div { border: 1px solid #ddd; border-radius: .5rem; padding: .7rem .9rem; }
.numbers b { display: block; font-size: 1.45rem; line-height: 1.3;
  font-variant-numeric: tabular-nums; }
.numbers span { color: #555; font-size: .9rem; }
.figures { display: grid; gap: 1.5rem 2rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); }
figure { margin: 0; }
figure img { width: 100%; height: auto; display: block; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .35rem 1.1rem .35rem 0; border-bottom: 1px solid #e3e3e3;
  vertical-align: top; }
td.n, th.n { text-align: right; }
pre { background: #f6f6f6; border-radius: .5rem; padding: .9rem 1rem; overflow-x: auto;
  font-size: .85rem; line-height: 1.45; }
.good { color: #00664b; } .bad { color: #a33c00; font-weight: 600; }
@media (max-width: 30rem) { body { padding: 1rem .9rem 3rem; } h1 { font-size: 1.35rem; }
  .numbers { grid-template-columns: 1fr 1fr; gap: .5rem; } .numbers b { font-size: 1.15rem; } }
"""

CAPTIONS = {
    "alone": "The same number of agents on the same task. Alone, an agent replans after every "
    "episode, which costs it nothing.",
    "regret": "What all agents together lost against an optimal policy. A curve that is flat at "
    "the end has stopped losing; one along the √t line grows as the theorem allows.",
    "rounds": "How often the agents synchronised, between the fewest and the most that are "
    "possible.",
    "scalars": "Numbers that crossed the network, both ways, all agents together. Sharing "
    "trajectories counts one way only.",
    "lengths": "Episodes between two synchronisations. Short rounds say more about each episode.",
    "logdet": "How much the agents have seen at each step h of the horizon.",
}


def page(runs: Sequence[Run], svgs: Mapping[str, bytes], settings: str) -> str:
    """The page. `svgs`: figure → SVG file; `settings`: the TOML that plays the first run again."""
    first = runs[0].summary()
    p = first["parameters"]
    agents = "1 agent" if p["n_agents"] == 1 else f"{p['n_agents']} agents"
    title = f"{first['algorithm']} on {first['environment']}"
    seeds = ", ".join(str(run.seed) for run in runs)
    state = "" if first["finished"] else f" (interrupted; {p['episodes']:,} were planned)"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="sub">{agents}, {first["episodes"]:,} episodes each{state}, '
        f"horizon {p['horizon']}, {p['dim']} features, "
        f"{'seed' if len(runs) == 1 else 'seeds'} {seeds}</p>",
        _numbers(runs, first),
        "<h2>Figures</h2>",
        '<div class="figures">' + "".join(_image(w, svg) for w, svg in svgs.items()) + "</div>",
    ]
    if len(runs) > 1:
        parts += ["<h2>Every run</h2>", _every(runs)]
    if first["bounds"]:
        parts += ["<h2>Bounds beside measurements</h2>", _bounds(first)]
    parts += [
        "<h2>What was sent</h2>",
        _sent(runs[0]),
        "<h2>Privacy</h2>",
        _privacy(first),
        "<h2>Who triggered</h2>",
        _triggers(runs[0].records),
        "<h2>Where the time went</h2>",
        _table(("phase", "seconds"), [(k, f"{v:.2f}") for k, v in first["seconds"].items()]),
        "<h2>Run it again</h2>",
        "<p>Save as settings.toml and call <code>fedlsvi run settings.toml</code>.</p>",
        f"<pre>{escape(settings)}</pre>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _numbers(runs: Sequence[Run], first: Mapping[str, Any]) -> str:
    """The four numbers that people look for, with what to hold against them."""
    together = aggregate([run.summary() for run in runs])
    most = first["bounds"].get("theorem_3")
    boxes = [
        ("regret", "cumulative regret, all agents"),
        ("rounds", f"rounds; Theorem 3 allows {most['bound']:,.0f}" if most else "rounds"),
        ("scalars", f"scalars sent; sharing trajectories: {first['scalars_raw']:,}"),
    ]
    cells = []
    for name, text in boxes:
        found = together[name]
        if found is not None:
            cells.append(f"<div><b>{_spread(found)}</b><span>{text}</span></div>")
    if together["scalars"]["mean"] > 0.0:
        ratio = first["scalars_raw"] / together["scalars"]["mean"]
        cells.append(
            f"<div><b>{ratio:,.3g} : 1</b>"
            "<span>scalars of all trajectories to scalars sent</span></div>"
        )
    return f'<div class="numbers">{"".join(cells)}</div>'


def _spread(found: Mapping[str, float | None]) -> str:
    mean, high = found["mean"], found["high"]
    assert mean is not None
    shown = f"{mean:,.0f}" if abs(mean) >= 100.0 or mean.is_integer() else f"{mean:,.2f}"
    return shown if high is None else f"{shown} ± {high - mean:,.3g}"


def _image(what: str, svg: bytes) -> str:
    # as an image, so that the names inside one figure cannot meet those of another
    data = base64.b64encode(svg).decode()
    caption = escape(CAPTIONS[what])
    return (
        f'<figure><img alt="{caption}" src="data:image/svg+xml;base64,{data}">'
        f'<figcaption class="note">{caption}</figcaption></figure>'
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: bool = True) -> str:
    """Cells are escaped; all columns but the first are numbers unless told otherwise."""

    def line(cells: Sequence[str], tag: str) -> str:
        inside = ""
        for i, cell in enumerate(cells):
            kind = ' class="n"' if numbers and i else ""
            inside += f"<{tag}{kind}>{escape(cell)}</{tag}>"
        return f"<tr>{inside}</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f'<div class="scroll"><table>{line(head, "th")}{body}</table></div>'


def _every(runs: Sequence[Run]) -> str:
    rows = [
        (f"seed {run.seed}", "–" if run.regret is None else f"{run.regret[-1]:,.2f}",
         f"{run.rounds:,}", f"{run.ledger.total:,}")
        for run in runs
    ]  # fmt: skip
    return _table(("run", "regret", "rounds", "scalars"), rows)


def _bounds(summary: Mapping[str, Any]) -> str:
    rows = []
    for bound in summary["bounds"].values():
        measured = bound["measured"]
        verdict = {True: "holds", False: "broken", None: "not measured"}[bound["holds"]]
        shown = "–" if measured is None else f"{measured:,.6g}"
        rows.append((bound["claim"], f"{bound['bound']:,.6g}", shown, verdict))
    note = (
        '<p class="note">The regret theorems hold for the theorem\'s β. At a smaller one, such as '
        "the practical preset's, their right-hand side is shown for comparison.</p>"
    )
    return _table(("claim", "bound", "measured", "verdict"), rows) + note


def _sent(run: Run) -> str:
    words = {
        "init": "first broadcast", "signal": "signals", "up_stats": "statistics, up",
        "up_raw": "trajectories, up", "down_model": "models, down",
        "down_raw": "trajectories, down",
    }  # fmt: skip
    rows = [
        (words.get(name, name), f"{count:,}", f"{run.ledger.bytes[name]:,}")
        for name, count in run.ledger.scalars.items()
    ]
    return _table(("what", "scalars", "bytes"), rows)


def _privacy(summary: Mapping[str, Any]) -> str:
    least = summary["shortest_round"]
    episodes = "1 episode" if least == 1 else f"{least:,} episodes"
    return (
        f"<p>No trajectory left an agent. The smallest upload summed up {episodes}: with one "
        "episode a Gram matrix shows the feature vector up to its sign, and the more episodes are "
        "in it, the less it says about each.</p>"
    )


def _triggers(records: Sequence[RoundRecord]) -> str:
    shown: list[RoundRecord | None] = list(records)
    if len(records) > 2 * SHOWN + 1:
        shown = [*records[:SHOWN], None, *records[-SHOWN:]]
    rows = []
    for record in shown:
        if record is None:
            rows.append(("…", "", "", "", ""))
            continue
        agent, step = record.triggers[0] if record.triggers else (-1, 0)
        first = "end of the run" if step == 0 else f"agent {agent} at h = {step}"
        more = f" and {record.signals - 1} more" if record.signals > 1 and step else ""
        regret = "–" if record.regret is None else f"{record.regret:,.2f}"
        episodes = f"{record.first:,} – {record.last:,}"
        rows.append((f"{record.k:,}", episodes, f"{record.length:,}", first + more, regret))
    head = ("round", "episodes", "Δt", "who fired", "regret so far")
    return _table(head, rows, numbers=False)


def write_page(path: Path, text: str) -> None:
    """Replace the page in one step."""
    temp = path.with_name(f".{path.name}.tmp")
    temp.write_text(text, encoding="utf-8")
    temp.replace(path)
