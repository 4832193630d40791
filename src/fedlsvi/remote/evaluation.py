"""The passes of an evaluation from logs behind frames, on any engine that carries them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from fedlsvi.algorithms.shared.evaluation_site import Evaluation, EvaluationSite, Pass
from fedlsvi.config import cohort_count
from fedlsvi.envs.logged.world import LoggedWorld
from fedlsvi.errors import MessageRefused
from fedlsvi.protocol.transport import Transport, layout
from fedlsvi.remote.codec import peek, run_id
from fedlsvi.remote.endpoint import Endpoint, FrameHandler
from fedlsvi.remote.frame_transport import FrameTransport
from fedlsvi.remote.guard import Facts, Guard
from fedlsvi.remote.threads import ThreadTransport

Make = Callable[..., FrameTransport]
"""Makes a transport from parameters, factories, a run's number, a policy of retries and a guard."""


def pass_id(evaluation: Evaluation, one: Pass) -> int:
    """The number that the frames of a pass carry."""
    return run_id(evaluation.parameters(one), evaluation.passes.index(one))


def pass_guard(evaluation: Evaluation, one: Pass) -> Guard:
    """The server's checks in a pass."""
    p = evaluation.parameters(one)
    facts = Facts.of(p, evaluation.features.nonnegative)
    if evaluation.stationary:  # all rows of an episode count for each step
        facts = replace(facts, steps=evaluation.horizon)
    return Guard(layout(p), facts)


@dataclass(frozen=True)
class SiteFactory:
    """Makes the handler of some agents in the process that calls it.

    Attributes:
        evaluation: What is evaluated.
        worlds: The logs of these agents.
        lo: The number of the first.
    """

    evaluation: Evaluation
    worlds: tuple[LoggedWorld, ...]
    lo: int

    def __call__(self) -> FrameHandler:
        return PassHandler(EvaluationSite(self.evaluation, self.worlds, self.lo))


class PassHandler:
    """Answers the frames of one pass after the other; the logs are read once.

    Nothing is written down: a site that was restarted within a pass refuses the rest of it, and the
    evaluation is asked for again.
    """

    def __init__(self, site: EvaluationSite) -> None:
        self.site = site
        self._passes = {pass_id(site.evaluation, one): one for one in site.evaluation.passes}
        self._take(next(iter(self._passes)))

    @property
    def agents(self) -> tuple[int, int]:
        """The number of the first agent, and how many there are."""
        return self.site.lo, len(self.site.worlds)

    def handle(self, frame: bytes) -> bytes:
        """The reply to a request; one of a pass that nobody agreed on is refused."""
        try:
            run = peek(frame)[2].run
        except MessageRefused:
            run = self._endpoint.run
        if run != self._endpoint.run and run in self._passes:
            self._endpoint.close()
            self._take(run)
        return self._endpoint.handle(frame)

    def _take(self, run: int) -> None:
        one = self._passes[run]
        make = partial(self.site.cohort, one)
        self._endpoint = Endpoint(make, self.site.evaluation.parameters(one), run)

    def close(self) -> None:
        """End the pass under way."""
        self._endpoint.close()


class FramePasses:
    """The sites of an evaluation behind a transport of frames."""

    def __init__(self, evaluation: Evaluation, transport: FrameTransport) -> None:
        self.evaluation, self.transport = evaluation, transport

    def begin(self, one: Pass) -> Transport:
        """The transport, ready for a pass."""
        own = self.evaluation
        self.transport.change_run(pass_id(own, one), pass_guard(own, one))
        return self.transport

    def close(self) -> None:
        """Release the sites."""
        self.transport.close()


def placed(
    make: Make,
    evaluation: Evaluation,
    worlds: Sequence[LoggedWorld],
    cohorts: int | None,
    **how: Any,
) -> FramePasses:
    """The sites behind a transport, the agents in equal shares."""
    M = evaluation.n_agents
    n = cohort_count(cohorts, M)
    cuts = [M * c // n for c in range(n + 1)]
    factories = [SiteFactory(evaluation, tuple(worlds[lo:hi]), lo) for lo, hi in pairwise(cuts)]
    first = evaluation.passes[0]
    transport = make(
        evaluation.parameters(first), factories, pass_id(evaluation, first),
        guard=pass_guard(evaluation, first), **how,
    )  # fmt: skip
    return FramePasses(evaluation, transport)


def in_threads(
    evaluation: Evaluation, worlds: Sequence[LoggedWorld], cohorts: int | None = None
) -> FramePasses:
    """The sites in threads of this process, behind frames."""
    return placed(ThreadTransport, evaluation, worlds, cohorts)
