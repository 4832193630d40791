"""Stations made from a plan: the agents' side of a run, wherever its process is."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from fedlsvi.envs.gym.world import GymWorld
from fedlsvi.protocol.agent import Cohort
from fedlsvi.protocol.plan import Plan
from fedlsvi.remote.endpoint import Station
from fedlsvi.remote.frame_transport import facts, run_name
from fedlsvi.remote.guard import Guard
from fedlsvi.remote.journal import Journal
from fedlsvi.storage import files


class KeptStation(Station):
    """A station with a journal that it closes itself, and removes where it is `scratch`."""

    scratch = False

    def close(self) -> None:
        super().close()
        if isinstance(self.memory, Journal):
            self.memory.close()
            if self.scratch:
                shutil.rmtree(self.memory.folder, ignore_errors=True)
                with suppress(OSError):  # others on this machine have theirs beside it
                    self.memory.folder.parent.rmdir()


@dataclass(frozen=True)
class Maker:
    """Makes the station of agents lo … hi−1 in the process that calls it."""

    plan: Plan
    lo: int
    hi: int
    folder: Path | None = None
    durable: bool = True
    patience: float = 0.0
    """Seconds that a journal may still be held by a process that is ending."""
    scratch: bool = False
    """Whether the journal goes when its station is closed."""

    def cohort(self) -> Cohort:
        """The agents before their first message."""
        return self.plan.cohort(self.lo, self.hi)

    def __call__(self) -> Station:
        journal = None
        if self.folder is not None:
            own = files.inside(self.folder, f"agents-{self.lo}-{self.hi - 1}")
            files.make_private(own)
            journal = Journal(own, self.durable, self.patience)
        run = run_name(self.plan.parameters, self.plan.seed)
        try:
            station = KeptStation(self.cohort, self.plan.parameters, run, journal)
        except BaseException:
            if journal is not None:
                journal.close()
            raise
        station.scratch = self.scratch
        return station


def makers(
    plan: Plan, cohorts: int, folder: str | Path | None = None, durable: bool = True,
    threads: int | None = None, patience: float = 0.0, scratch: bool = False,
) -> list[Maker]:  # fmt: skip
    """One maker for each of `cohorts` equal shares of the agents."""
    if threads is not None:
        plan = replace(plan, threads=threads)
    cuts = [plan.parameters.n_agents * c // cohorts for c in range(cohorts + 1)]
    where = None if folder is None else Path(folder)
    return [Maker(plan, lo, hi, where, durable, patience, scratch) for lo, hi in pairwise(cuts)]


def guard(plan: Plan) -> Guard:
    """The server's checks, with what is known of the features."""
    phi = plan.features
    # an episode of a black box that has ended adds nothing to Λ^loc, whatever its features sum to
    ends = any(isinstance(env, GymWorld) and not env.finite for env in plan.envs)
    return Guard(plan.layout, facts(plan.parameters, phi.nonnegative, phi.simplex and not ends))
