"""A run under way: Algorithm 1 on a transport, measured, one record per round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from time import perf_counter
from types import MappingProxyType
from typing import Any

import numpy as np

from fedlsvi.core.statistics import full
from fedlsvi.protocol.agent import Cohort
from fedlsvi.protocol.evaluation import Evaluator
from fedlsvi.protocol.ledger import Ledger
from fedlsvi.protocol.plan import Plan
from fedlsvi.protocol.records import LISTED, RoundRecord
from fedlsvi.protocol.server import Round, Server
from fedlsvi.protocol.transport import InProcess, Transport


class Session:
    """Server, transport and evaluator of one run; can be saved between rounds and continued."""

    algorithm = "fed-lsvi"
    """Its name in the registry."""

    counts: Mapping[str, int] = MappingProxyType({})
    """What the closed formula of the scalars needs beyond the records."""

    def __init__(
        self,
        plan: Plan,
        cohorts: int = 1,
        keep_models: bool = False,
        transport: Transport | None = None,
    ) -> None:
        """`transport` leads to agents elsewhere; None holds them here, in `cohorts` cohorts."""
        p = plan.parameters
        self.plan = plan
        self.cohorts: list[Cohort] = []
        self._elsewhere = transport is not None
        if transport is None:
            cuts = [p.n_agents * c // cohorts for c in range(cohorts + 1)]
            self.cohorts = [plan.cohort(a, b) for a, b in pairwise(cuts)]
            transport = InProcess(self.cohorts, p.gamma, p.overshoot)
        self.transport = transport
        self.server = Server(plan.layout, p.lam, p.gamma, p.beta, p.episodes)
        self.values = self.cohorts[0].values if self.cohorts else plan.values()
        self.evaluator: Evaluator = plan.evaluator(self.values)  # type: ignore[arg-type]
        self.regret: np.ndarray | None = np.zeros(p.episodes)
        self.records: list[RoundRecord] = []
        self._ledger: Ledger | None = None
        self.keep_models = keep_models
        self.models: list[tuple[np.ndarray, np.ndarray]] = []
        self.policies: list[np.ndarray] = []

    def rounds(self) -> Iterator[RoundRecord]:
        """Play to the end of the episode budget."""
        self.server.start(self.transport)
        if self._ledger is not None:  # a resumed simulation has sent nothing anew
            self.transport.ledger = self._ledger
        self._follow()
        while self.server.t < self.server.T:
            began = perf_counter()
            self.evaluator.begin()
            if self.keep_models and hasattr(self.values, "policy"):
                self.policies.append(self.values.policy.copy())
            measured = perf_counter()
            done = self.server.round(self.transport)
            ended = perf_counter()
            regret = self._measure(done.first, self.server.t)
            explored = self.transport.explored
            seconds = {
                "explore": explored,
                "synchronise": ended - measured - explored,
                "evaluate": perf_counter() - ended + measured - began,
            }
            if self.keep_models:
                self.models.append((self.server.w.copy(), full(self.server.gram.copy())))
            self._follow()
            record = self._record(done, regret, seconds)
            self.records.append(record)
            self.transport.rest(self.server.k, self.server.t)
            yield record

    def _follow(self) -> None:
        """Where the agents are elsewhere, no cohort here keeps the values up to date."""
        if self._elsewhere:
            for h in range(self.plan.parameters.horizon, 0, -1):
                self.values.update(h, self.server.w[h - 1], self.server.gram[h - 1])

    def close(self) -> None:
        """End threads and connections."""
        for cohort in self.cohorts:
            cohort.experience.workers.close()
        self.transport.close()

    def _measure(self, first: int, last: int) -> float | None:
        """Extend the curve of cumulative regret by the round's episodes."""
        if self.regret is None:
            return None
        gaps = self.evaluator.regret(first, last - first + 1)
        if gaps is None:
            self.regret = None
            return None
        before = self.regret[first - 2] if first > 1 else 0.0
        np.cumsum(gaps, out=gaps)
        self.regret[first - 1 : last] = before + gaps
        return float(self.regret[last - 1])

    def _record(self, done: Round, regret: float | None, seconds: dict[str, float]) -> RoundRecord:
        signal = done.signal
        named = zip(signal.agents[:LISTED].tolist(), signal.steps[:LISTED].tolist(), strict=True)
        return RoundRecord(
            k=done.k,
            first=done.first,
            last=signal.t,
            signals=len(signal.agents),
            triggers=list(named),
            logdet=done.logdet.tolist(),
            scalars=self.transport.ledger.scalars,
            regret=regret,
            overshoot=self.transport.kept,
            seconds=seconds,
            notes=self.transport.told(),
            mean_return=self._mean_return(done.first, signal.t),
            fewest=self._fewest(done.first, signal.t),
        )

    def _mean_return(self, first: int, last: int) -> float | None:
        """What the agents here earned per episode of the round, in the world's own units."""
        earned = [getattr(cohort.experience, "returns", None) for cohort in self.cohorts]
        if self.regret is not None or not earned or None in earned:
            return None
        return float(np.concatenate([f(first - 1, last) for f in earned]).mean())  # type: ignore[misc]

    def _fewest(self, first: int, last: int) -> int | None:
        """Episodes in the emptiest Gram matrix of the round, where the agents here count them."""
        counts = [getattr(cohort.experience, "fewest", None) for cohort in self.cohorts]
        if not counts or None in counts:
            return None
        return min(int(f(first - 1, last)) for f in counts)  # type: ignore[misc]

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values from which `restore` continues, taken between rounds."""
        arrays, own = self.transport.state(self.server.t)
        arrays |= {"w": self.server.w, "gram": self.server.gram}
        for c, cohort in enumerate(self.cohorts):
            arrays |= {f"cohort{c}.{k}": v for k, v in cohort.experience.state().items()}
        plain = {
            "t": self.server.t,
            "k": self.server.k,
            "last": self.transport.last,
            "ledger": self.transport.ledger.to_dict(),
            "transport": own,
        }
        return arrays, plain

    def history(self, first: int, last: int) -> dict[str, np.ndarray]:
        """Raw episodes after `first` up to `last` that `state` leaves out because they only grow;
        empty where the state space is finite. They stay on the agents' side."""
        arrays: dict[str, np.ndarray] = {}
        for c, cohort in enumerate(self.cohorts):
            part = cohort.experience.history(first, last)
            arrays |= {f"cohort{c}.{k}": v for k, v in part.items()}
        return arrays

    def extend(self, first: int, arrays: dict[str, np.ndarray]) -> None:
        """Put back what `history` gave, in order, before `restore`."""
        for c, cohort in enumerate(self.cohorts):
            cohort.experience.extend(first, _mine(c, arrays))

    def restore(
        self,
        arrays: dict[str, np.ndarray],
        plain: dict[str, Any],
        regret: np.ndarray | None,
        records: list[RoundRecord],
    ) -> None:
        """Continue after the round at which `state` was taken."""
        self.server.w[:], self.server.gram[:] = arrays["w"], arrays["gram"]
        self.server.t, self.server.k = plain["t"], plain["k"]
        self.transport.last = plain["last"]
        self.transport.restore(arrays, plain.get("transport", {}), plain["t"], plain["k"])
        for c, cohort in enumerate(self.cohorts):
            cohort.experience.restore(_mine(c, arrays))
        self.records = list(records)
        if regret is None:
            self.regret = None
        elif self.regret is not None:
            self.regret[: len(regret)] = regret
        self._ledger = Ledger.from_dict(plain["ledger"])


def _mine(c: int, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of cohort c, without its prefix."""
    prefix = f"cohort{c}."
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
