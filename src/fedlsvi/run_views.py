"""What a run offers to those who look at it: figures, tables, pages, a notebook's view, pickles."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from fedlsvi.checks import needs_pandas
from fedlsvi.errors import InvalidInput
from fedlsvi.policy import pickled

if TYPE_CHECKING:
    from fedlsvi.run import Run


def most_rounds(bounds: Mapping[str, Mapping[str, Any]]) -> str:
    """What limits the number of rounds, in a few words: a budget of the settings, or a theorem.

    Args:
        bounds: As in a run's summary, by name.
    """
    proven, budget = bounds.get("theorem_3"), bounds.get("budget")
    possible = ""
    if proven is not None and proven["bound"] is not None:
        possible = f"at most {proven['bound']:,.0f} are possible"
    if budget is None:
        return possible
    name = budget["claim"].removeprefix("rounds K ≤ ")
    return f"{name} is {budget['bound']:,.0f}" + (f"; without it {possible}" if possible else "")


class RunViews:
    """The part of `fedlsvi.Run` that shows it."""

    @property
    def _run(self) -> Run:
        return cast("Run", self)

    def _repr_html_(self) -> str:
        from fedlsvi.report.notebook import html_of_run

        return html_of_run(self._run)

    def plot(self, what: str | None = None, path: str | None = None, ax: Any = None) -> Any:
        """A Matplotlib figure: "regret" or, in a black box, "returns"; "rounds", "scalars",
        "communication" (these two), "lengths" of the rounds, "triggers", "logdet" or "coverage".

        Args:
            what: Which; None is regret or, where it is not known, returns.
            path: Where to save it.
            ax: Matplotlib axes to draw on, in place of a new figure.
        """
        from fedlsvi.report.figures import figure

        usual = "regret" if self._run.regret is not None else "returns"
        return figure(usual if what is None else what, self._run, path, ax=ax)

    def evaluate(self, episodes: int = 100, seed: int | None = None, env: Any = None) -> Any:
        """Play the learned policy and return what the episodes earned (`Evaluation`).

        Args:
            episodes: How many.
            seed: Of the episodes; None is the run's, with which agent 0 began them too.
            env: Another environment than agent 0's.
        """
        from fedlsvi.envs.gym.play import evaluate_policy
        from fedlsvi.run import first_environment

        world = first_environment(self._run) if env is None else env
        seed = self._run.seed if seed is None else seed
        return evaluate_policy(
            self._run.first_policy, world, episodes, seed,
            horizon=self._run.parameters.horizon,
        )  # fmt: skip

    def report(self, folder: str | PathLike[str] | None = None) -> Path:
        """Write report.html and its plots into a folder, or one page; returns the page.

        Args:
            folder: Where; None is the run's own folder. A name that ends in .html is that of the
                page, which holds its figures.
        """
        from fedlsvi.report import write_report

        where = self._run.folder if folder is None else folder
        if where is None:
            raise InvalidInput(
                'this run has no folder: say where to write, run.report("report")', code="no-folder"
            )
        return write_report([self._run], Path(where))[0]

    def to_pandas(self) -> Any:
        """A DataFrame with one row for each record: as a rule, one for each round."""
        return needs_pandas().DataFrame([r.row() for r in self._run.records])

    def __getstate__(self) -> dict[str, Any]:
        """What pickle writes: no raw episodes, and an environment only where it can be written."""
        left_out = dict.fromkeys(("memory", "learner", "world"))
        return {**vars(self), **left_out, "plan": self._run.plan and pickled(self._run.plan)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """The run again; it says what is missing when that is needed."""
        plan = state["plan"] and pickle.loads(state["plan"])
        self.__dict__.update(state | {"plan": plan})
