"""Several runs side by side, as a notebook wants them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedlsvi.checks import needs_pandas, plural
from fedlsvi.errors import UnknownName
from fedlsvi.report.comparison import comparable, comparison_figure
from fedlsvi.report.groups import Group, grouped
from fedlsvi.report.html import number
from fedlsvi.report.model_class import MODEL, model_class
from fedlsvi.report.plotting import save
from fedlsvi.run import Run


class Comparison:
    """Runs on one environment: those that differ in their seed alone are one group.

    >>> Comparison([together, alone, alone_again]).plot("regret")
    """

    HEAD: ClassVar = ("", "seeds", MODEL, "regret or return", "rounds", "scalars", "raw data")

    def __init__(self, runs: Sequence[Run]) -> None:
        """Group the runs.

        Args:
            runs: All of one environment.

        Raises:
            InvalidInput: There are none, they are of several environments, or one algorithm pools
                the data of all steps and another does not.
        """
        self.runs = list(runs)
        self.groups: list[Group] = grouped(self.runs)
        self.model_class = model_class(self.groups)

    def rows(self) -> list[tuple[str, ...]]:
        """For each group: its label, seeds, model class, median regret (or late return), rounds,
        scalars, and what sharing every trajectory would take."""
        found: list[tuple[str, ...]] = []
        for group in self.groups:
            merits = group.regrets() or group.late_returns(group.played)
            raw = group.first.scalars_raw
            found.append(
                (
                    group.label or group.first.algorithm,
                    f"{len(group.runs)}",
                    self.model_class.row(group.label),
                    number(float(np.median(merits))) if merits else "–",
                    number(float(np.median([run.rounds for run in group.runs]))),
                    number(float(np.median([run.ledger.total for run in group.runs]))),
                    "–" if raw is None else f"{raw:,}",
                )
            )
        return found

    def to_pandas(self) -> Any:
        """A DataFrame with a row for each run."""
        pandas = needs_pandas()
        columns = ("algorithm", "seed", "episodes", "rounds", "regret", "return", "scalars",
                   "scalars_raw", "shortest_round")  # fmt: skip
        summaries = [run.summary(values=False) for run in self.runs]
        return pandas.DataFrame(
            [
                {name: one[name] for name in columns}
                | {"stationary": one["parameters"]["stationary"]}
                for one in summaries
            ]
        )

    def plot(self, what: str | None = None, path: str | Path | None = None) -> Any:
        """A Matplotlib figure; None draws the first kind that all runs have data for."""
        known = comparable(self.groups)
        if what is not None and what not in known:
            raise UnknownName("figure of these runs", what, known)
        made = comparison_figure(what or known[0], self.groups)
        if path is not None:
            save(made, path)
        return made

    def report(self, folder: str | Path) -> Path:
        """Write report.html and its plots into a folder, or one page where the name ends in .html;
        returns the page."""
        from fedlsvi.report import write_report

        return write_report(self.runs, folder)[0]

    def __repr__(self) -> str:
        shown = [f"{row[0]} ({row[3]})" for row in self.rows()[:8]]
        more = f" and {len(self.groups) - 8} more" if len(self.groups) > 8 else ""
        return f"<Comparison of {plural(len(self.runs), 'run')}: {', '.join(shown)}{more}>"

    def _repr_html_(self) -> str:
        from fedlsvi.report.notebook import html_of_comparison

        return html_of_comparison(self)
