"""The model card of a policy learned by mail: what it was learned from, and what it is good for.

One list of parts, which `write_card` writes as Markdown into the run folder and `section` as HTML
into the report.
"""

from __future__ import annotations

from pathlib import Path

from fedlsvi.checks import is_number, plural
from fedlsvi.logs.action_names import numbered
from fedlsvi.remote.mail import STUDY, UPLOADS
from fedlsvi.remote.mail.letter import CONTRIBUTION, Sealed
from fedlsvi.remote.mail.study import Study, grouped
from fedlsvi.report import html
from fedlsvi.report.protections import protections
from fedlsvi.run import Run
from fedlsvi.storage import evaluations, files
from fedlsvi.storage.run_header import versions

CARD = "model-card.md"

Part = tuple[str, list[tuple[str, str]]]
"""A title, and rows of two columns."""


def card(run: Run, folder: Path) -> list[Part]:
    """The parts of a card."""
    study = Study.read(folder / STUDY)
    return [
        ("Question", _question(study, run)),
        ("Data", _data(study, folder)),
        ("Protections", protections(run)),
        ("Estimates", _estimates(folder)),
        ("Coverage", _coverage(run)),
        ("Limits", _limits(study, run)),
        ("Made with", [(name, str(value)) for name, value in versions().items()
                       if name in ("fedlsvi", "python", "numpy", "machine")]),
    ]  # fmt: skip


def write_card(run: Run, folder: str | Path) -> Path:
    """Write the card as Markdown; its path."""
    where = Path(folder)
    study = Study.read(where / STUDY)
    lines = [f"# Model card: {study.called}", ""]
    for title, rows in card(run, where):
        lines += [f"## {title}", "", "| | |", "|---|---|"]
        lines += [f"| {what} | {_cell(said)} |" for what, said in rows]
        lines.append("")
    path = where / CARD
    files.write(path, "\n".join(lines).encode())
    return path


def section(run: Run) -> list[str]:
    """The card in the report of a study's run."""
    parts = [html.heading("Model card")]
    for title, rows in card(run, Path(str(run.folder))):
        parts += [html.heading(title, 3), html.table(("", ""), rows)]
    return parts


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _question(study: Study, run: Run) -> list[tuple[str, str]]:
    p = run.parameters
    states = f"{study.states:,}" if study.states else f"vectors, {p.dim} features"
    if study.cut is not None:
        cuts = [f"{column} at {', '.join(f'{e:g}' for e in edges)}"
                for column, edges in study.cut.edges.items()]  # fmt: skip
        states += f": bins of {'; '.join(cuts)}"
    names = study.federation.action_names
    low, high = study.reward_range
    pooled = "one model for all steps" if p.stationary else "a model for each step"
    return [
        ("study", f"{study.name}, digest {grouped(study.digest)}"),
        ("steps of an episode", f"{study.horizon:,}"),
        ("states", states),
        ("actions", f"{study.n_actions}" if names is None else numbered(names)),
        ("rewards", f"from {low:g} to {high:g}"),
        ("features", f"{study.features['name']}, dimension {p.dim:,}; {pooled}"),
        ("learned by", f"pessimistic value iteration, β = {p.beta:.4g}, λ = {p.lam:g}"),
    ]


def _data(study: Study, folder: Path) -> list[tuple[str, str]]:
    rows = []
    for name in study.names:
        path = folder / UPLOADS / f"{name}.{CONTRIBUTION}"
        held = "sums"
        if files.exists(path):
            about = Sealed.read(path, study).letter.about
            held = f"sums over {plural(about.get('episodes', 0), 'episode')}"
        rows.append((name, f"{held}; key {grouped(study.keys[name])}"))
    return [*rows, ("records", "none left a site")]


def _estimates(folder: Path) -> list[tuple[str, str]]:
    found = evaluations.read(folder)
    rows = []
    for one in found["estimated"]:
        value = f"{one['value']:.4g}"
        if one["low"] is not None:
            value += f", 95 % interval {one['low']:.4g} to {one['high']:.4g}"
        unseen = f"what the records do not show could add {one['unseen']:.4g}"
        records = f"{plural(one['episodes'], 'episode')} of {', '.join(one['data'])}"
        rows.append(("value, estimated from records", f"{value}; {unseen}; {records}"))
        if is_number(robust := one.get("robust")):
            low, high = one.get("robust_low"), one.get("robust_high")
            known = is_number(low) and is_number(high)
            between = f", 95 % interval {low:.4g} to {high:.4g}" if known else ""
            rows.append(("the same, doubly robust", f"{robust:.4g}{between}"))
        rows.append(("return of the behaviour in them", f"{one['behaviour']:.4g}"))
    rows += [
        (f"return, measured in {one['environment']}",
         f"{one['mean']:.4g} over {plural(one['episodes'], 'episode')}")
        for one in found["measured"]
    ]  # fmt: skip
    nothing = "not estimated: sums do not say what the policy is worth; `fedlsvi evaluate` with "
    return rows or [("value", f"{nothing}records of other patients does")]


def _coverage(run: Run) -> list[tuple[str, str]]:
    seen = run.coverage
    worst = int(seen.unseen.argmax())
    return [
        ("transitions with a target", f"{seen.visits.sum():,.0f}, all sites together"),
        ("unseen", f"{plural(int(seen.unseen.sum()), 'direction')} out of "
                   f"{seen.eigenvalues.size:,} of all steps with less than one visit; most at "
                   f"step {worst + 1}"),
        ("meaning", f"at β = {run.parameters.beta:.4g}, {seen.meaning()}"),
    ]  # fmt: skip


def _limits(study: Study, run: Run) -> list[tuple[str, str]]:
    rows = [
        ("not tried", "the policy was never followed; before it is, it needs a trial"),
        ("behaviour", "what the records hardly ever show counts as worth nothing, so the policy "
                      "stays close to what was done"),
        ("reasons", "where actions were chosen for reasons that the states do not show, learned "
                    "and estimated values are wrong, and no interval says so"),
        ("sites", "records were not looked at by anybody else: a site that makes up consistent "
                  "sums cannot be noticed"),
    ]  # fmt: skip
    if study.cut is not None:
        rows.append(("bins", "patients of one bin are treated alike, whatever else differs"))
    if run.parameters.privacy is not None:
        rows.append(
            ("noise", "sums have noise for privacy: another draw would give another policy")
        )
    return rows
