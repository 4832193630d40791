"""Both sides of a remote run made from a plan: endpoints for the agents, checks for the server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from fedlsvi.envs.gym.world import GymWorld
from fedlsvi.privacy.masks import check_sites
from fedlsvi.protocol.agent import Cohort
from fedlsvi.protocol.cohorts import cohort_of
from fedlsvi.protocol.plan import Plan
from fedlsvi.remote.bounds import Bounds
from fedlsvi.remote.codec import run_id
from fedlsvi.remote.endpoint import Endpoint
from fedlsvi.remote.guard import Guard
from fedlsvi.remote.identity import SiteIdentity, run_identities
from fedlsvi.remote.journal import Journal
from fedlsvi.storage import files


@dataclass(frozen=True)
class EndpointFactory:
    """Makes the endpoint of agents lo … hi−1 in the process that calls it.

    Attributes:
        plan: The run.
        lo, hi: Its share of the agents.
        folder: Where the journals of all endpoints go, each in a folder of its own; None: none.
        durable: Whether the journal survives a power failure.
        lock_seconds: How long to wait for a process that is ending to release the journal.
        scratch: Whether the journal is deleted when its endpoint is closed.
        identity: Of its site, where sums are secure.
    """

    plan: Plan
    lo: int
    hi: int
    folder: Path | None = None
    durable: bool = True
    lock_seconds: float = 0.0
    scratch: bool = False
    identity: SiteIdentity | None = None

    def cohort(self) -> Cohort:
        """The agents before their first message."""
        return cohort_of(self.plan, self.lo, self.hi)

    def __call__(self) -> Endpoint:
        journal = None
        if self.folder is not None:
            own = files.inside(self.folder, f"agents-{self.lo}-{self.hi - 1}")
            files.make_private(own)
            journal = Journal(own, self.durable, self.lock_seconds, self.scratch)
        run = run_id(self.plan.parameters, self.plan.seed)
        try:
            return Endpoint(
                self.cohort, self.plan.parameters, run, journal, identity=self.identity,
                agreed=self.plan.agreed,
            )  # fmt: skip
        except BaseException:
            if journal is not None:
                journal.release()
            raise


def endpoint_factories(
    plan: Plan,
    cohorts: int,
    folder: str | Path | None = None,
    durable: bool = True,
    threads: int | None = None,
    lock_seconds: float = 0.0,
    scratch: bool = False,
) -> list[EndpointFactory]:
    """One factory for each of `cohorts` equal shares of the agents.

    Args:
        plan: The run.
        cohorts: Number of shares.
        threads: Threads of each cohort; None is what the plan says.
        folder, durable, lock_seconds, scratch: See `EndpointFactory`.
    """
    if threads is not None:
        plan = replace(plan, threads=threads)
    cuts = [plan.parameters.n_agents * c // cohorts for c in range(cohorts + 1)]
    where = None if folder is None else Path(folder)
    identities: Sequence[SiteIdentity | None] = [None] * cohorts
    if plan.parameters.aggregation == "secure":
        check_sites(cohorts)
        identities = run_identities(cuts[:-1])
    return [
        EndpointFactory(plan, lo, hi, where, durable, lock_seconds, scratch, identity)
        for (lo, hi), identity in zip(pairwise(cuts), identities, strict=True)
    ]


def guard_for(plan: Plan) -> Guard:
    """The server's checks, with what is known about the features."""
    phi = plan.features
    # an episode of a black box that has ended adds nothing to Λ^loc, whatever its features sum to
    ends = any(isinstance(env, GymWorld) and not env.finite for env in plan.envs)
    simplex = phi.simplex and not ends
    bounds = Bounds.of(plan.parameters, phi.nonnegative, simplex, ends)
    if plan.prior is not None:
        bounds = replace(bounds, prior=plan.prior.energy(bounds.y_max))
    return Guard(plan.layout, bounds)
