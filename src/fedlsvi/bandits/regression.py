"""One ridge regression of rewards on features that M sites learn together: Fed-LSVI at H = 1.

It is Algorithm 1 with the `Server`, messages, ledger and protections of every other run. The only
difference: b = Σφr needs no relabelling, so sites send what is new and the server adds it up.

Three rules say when to synchronise (`trigger=`), and whom:

- "det": Δt·det(Λ + Λ^loc)/det Λ ≥ γ, or a ratio ≥ c, at any site; all synchronise (Fed-LSVI).
- "log-det": Δt·log(det(Λ + Λ^loc)/det Λ) ≥ D at any site; all synchronise. DisLinUCB: Wang, Hu,
  Chen, Wang (2020), "Distributed bandit learning: near-optimal regret with efficient
  communication", arXiv 1904.06309.
- "own": det(Λ_m + Λ^loc)/det Λ_m ≥ 1 + α; that site alone synchronises, and others keep their
  model. FedLinUCB: He, Wang, Min, Gu (2022), "A simple and provably efficient algorithm for
  asynchronous federated contextual linear bandits", arXiv 2207.03106.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedlsvi.bandits.sites import Ridge, Sites
from fedlsvi.config import Parameters
from fedlsvi.core.statistics import factorise, full
from fedlsvi.core.trigger import Rule
from fedlsvi.privacy.gram_repair import GramRepair
from fedlsvi.privacy.sums import UploadSums, sums_of
from fedlsvi.protocol.ledger import Ledger
from fedlsvi.protocol.membership import Membership
from fedlsvi.protocol.messages import Reply, Request, Signal
from fedlsvi.protocol.passes import in_process
from fedlsvi.protocol.server import Server
from fedlsvi.protocol.transport import InProcess, deliver_to, layout


class RunningSums:
    """Σ_m Λ^loc of a synchronisation, and Σφr of all of them.

    Args:
        sums: Adds the uploads.
        repair: Of a private run, makes noisy Gram matrices positive definite.
    """

    def __init__(self, sums: UploadSums, repair: GramRepair | None) -> None:
        self.sums, self.repair = sums, repair
        self.b = np.zeros(sums.layout.dim)
        self._releases = 0

    def __call__(self, uploads: Sequence[Reply], h: int) -> tuple[np.ndarray, np.ndarray]:
        gram, b = self.sums(uploads, h)
        self._releases += 1
        if self.repair is not None:
            gram = self.repair(slice(0, 1), gram[None], [self._releases])[0]
        self.b += b
        return gram, self.b


class SomeInProcess(InProcess):
    """Sites of which one may synchronise alone."""

    def deliver(self, message: Request) -> Sequence[Reply]:
        """Ask those that take part."""
        return deliver_to([self.cohorts[c] for c in self.membership.cohorts_there()], message)

    def alone(self, m: int | None) -> None:
        """From here on only site m takes part; None is everybody."""
        others = [c for c in range(len(self.cohorts)) if m is not None and c != m]
        self.membership.away = dict.fromkeys(others, 0)


class Signalled:
    """Agents as the server sees them, after some have signalled."""

    def __init__(self, transport: InProcess, signal: Signal) -> None:
        self.transport, self.signal = transport, signal
        self.broadcast = transport.broadcast

    def wait(self, t: int, left: int) -> Signal:
        """The signal, which is already here."""
        self.transport.ledger.some("signal", self.signal.agents, 2)
        return self.signal


class FederatedRegression:
    """θ of E[r] = φᵀθ, learned by M sites.

    Args:
        p: The numbers in force, H = 1.
        ledger: Where traffic is entered; several regressions may share one.
        trigger: "det", "log-det" or "own".
        threshold: γ, D or α of that trigger; None is max(t/5, 1), 2 or 1/M², t being the rewards
            that a site has on average.

    Attributes:
        server: Λ and w of what was synchronised.
        rounds: Synchronisations so far.
    """

    def __init__(
        self, p: Parameters, ledger: Ledger, trigger: str, threshold: float | None
    ) -> None:
        self.p, self.trigger, self.threshold, self.own = p, trigger, threshold, trigger == "own"
        M, size = p.n_agents, layout(p)
        cuts = [(m, 1) for m in range(M)] if self.own or size.secure else [(0, M)]
        self.cohorts = [Sites(np.arange(first, first + m), p.dim) for first, m in cuts]
        if self.own:
            self.transport: InProcess = SomeInProcess(self.cohorts, p.trigger)
            self.transport.membership = Membership(M, cuts)
        else:
            self.transport = in_process(self.cohorts, p)
        self.transport.ledger = ledger
        self.sums = RunningSums(sums_of(p, size), GramRepair.of(p, size))
        self.server = Server(size, p.lam, p.gamma, p.beta, p.episodes, self.sums)
        self.server.start(self.transport)
        self.rounds, self.common = 0, 0

    def home(self, m: int) -> tuple[Sites, int]:
        """The cohort of site m, and its position there."""
        return (self.cohorts[0], m) if len(self.cohorts) == 1 else (self.cohorts[m], 0)

    def model(self, m: int, fresh: bool) -> Ridge:
        """What site m decides with; `fresh` includes what it has not sent."""
        cohort, position = self.home(m)
        return cohort.known(position) if fresh else cohort.model

    def observe(self, phi: np.ndarray, rewards: np.ndarray, sites: np.ndarray) -> None:
        """Add feature rows (n, d) and rewards (n,) of these sites (n,)."""
        if len(self.cohorts) == 1:
            self.cohorts[0].observe(phi, rewards, sites)
            return
        for m in np.unique(sites).tolist():
            of_m = sites == m
            here = np.zeros(int(of_m.sum()), np.int64)
            self.cohorts[m].observe(phi[of_m], rewards[of_m], here)

    def synchronise_if_due(self) -> None:
        """Let those synchronise whose trigger fires."""
        rule = self.rule()
        firing = [found for cohort in self.cohorts if len(found := cohort.firing(rule))]
        if not firing:
            return
        if not self.own:
            self.synchronise(np.concatenate(firing))
            return
        for m in np.concatenate(firing).tolist():
            self.synchronise(np.array([m]))

    def synchronise(self, signalling: np.ndarray, t: int | None = None) -> None:
        """A round of Algorithm 1 ends. With trigger "own" these sites take part alone, one after
        another.

        Args:
            signalling: Numbers of the sites that ask for it.
            t: The counter of the messages; None is the number of rewards so far.
        """
        for some in np.split(signalling, len(signalling)) if self.own else [signalling]:
            if isinstance(self.transport, SomeInProcess):
                self.transport.alone(int(some[0]))
            there = self.cohorts if not self.own else [self.cohorts[int(some[0])]]
            self.common += sum(int(cohort.length.sum()) for cohort in there)
            at = self.common if t is None else t
            self.server.round(Signalled(self.transport, Signal(at, some, np.ones_like(some))))
            self.rounds += 1

    def rule(self) -> Rule:
        """The trigger in force until the next synchronisation."""
        M, given = self.p.n_agents, self.threshold
        if self.trigger == "own":
            return Rule(math.inf, math.log1p(M**-2.0 if given is None else given))
        if self.trigger == "log-det":
            return Rule(math.inf, math.inf, 1, LOG_DET if given is None else given)
        gamma = max(SHARE * self.common / M, 1.0) if given is None else given
        return Rule(math.log(gamma), math.inf if self.p.cap is None else math.log(self.p.cap))

    def statistics(self) -> tuple[np.ndarray, np.ndarray]:
        """(A, b), (d, d) and (d,), of what was synchronised: A = λI + Σφφᵀ, b = Σφr."""
        return full(self.server.gram)[0].copy(), self.sums.b.copy()

    def absorb(self, gram: np.ndarray, b: np.ndarray, rewards: int) -> None:
        """Add Σφφᵀ and Σφr of so many rewards to the common model, and send it to all sites."""
        self.server.gram[0] += gram
        self.sums.b += b
        self.common += rewards
        self.server.w[0] = factorise(self.server.gram[0]).solve(self.sums.b)
        if isinstance(self.transport, SomeInProcess):
            self.transport.alone(None)
        self.transport.broadcast(self.server.model(1))


SHARE, LOG_DET = 0.2, 2.0
"""γ(t)/t, and D (studies/bandits.md). A γ that grows with t makes the number of rounds
logarithmic."""
