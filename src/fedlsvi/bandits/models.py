"""The models of a bandit's arms: a regression for each of them, or one that they share.

Arms with regressions of their own are independent of each other in everything, the trigger too, so
that an arm that comes or goes changes no other. Only the rounds of a private run are common: its
schedule is public, so all arms synchronise together.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedlsvi.algorithms.shared.thompson_kernels import normals
from fedlsvi.bandits import choice
from fedlsvi.bandits.contexts import Arms
from fedlsvi.bandits.regression import FederatedRegression
from fedlsvi.bandits.settings import BanditSettings
from fedlsvi.bandits.sites import SideBySide
from fedlsvi.checks import plural
from fedlsvi.core.trigger import schedule
from fedlsvi.errors import InvalidInput
from fedlsvi.protocol.ledger import Ledger


class ArmModels:
    """What all sites know of all arms.

    Args:
        settings: Of the bandit, checked.
        arms: How many, their labels, or None: labels come as they appear.
        dim: d.
        shared: Whether one regression serves all arms.

    Attributes:
        arms: Their labels, in order.
        ledger: What was sent.
        regressions: One, or one for each arm.
    """

    def __init__(self, settings: BanditSettings, arms: Any, dim: int, shared: bool) -> None:
        self.settings, self.shared, self.dim = settings, shared, dim
        self.n_sites, self.fresh = settings.n_sites, settings.fresh
        self.parameters = settings.parameters(dim)
        self.arms, self.ledger = Arms(arms), Ledger(settings.n_sites)
        self.regressions = [self._made() for _ in range(1 if shared else len(self.arms))]
        self._gone = self._rewards = self._releases = 0
        self._side_by_side = SideBySide(dim, 0)

    def _made(self) -> FederatedRegression:
        given = self.settings
        return FederatedRegression(self.parameters, self.ledger, given.trigger, given.threshold)

    @property
    def private(self) -> bool:
        """Whether noise is added."""
        return self.parameters.privacy is not None

    @property
    def rounds(self) -> int:
        """Synchronisations so far, of each regression, those of arms that went included."""
        return self._gone + sum(model.rounds for model in self.regressions)

    def add(self, label: Any) -> None:
        """A new arm, of which nothing is known."""
        self.arms.append(label)
        if not self.shared:
            self.regressions.append(self._made())

    def drop(self, label: Any) -> None:
        """Forget an arm; where arms share a regression, only that it exists."""
        at = self.arms.position(label)
        self.arms.remove(label)
        if not self.shared:
            self._gone += self.regressions.pop(at).rounds

    def learn(
        self, phi: np.ndarray, positions: np.ndarray, rewards: np.ndarray, sites: np.ndarray,
        dropped: int = 0,
    ) -> None:  # fmt: skip
        """Add features (n, d) of the arms that were taken; sites whose trigger fires synchronise.

        Args:
            phi: Their features.
            positions: (n,) their places among the arms.
            rewards: (n,).
            sites: (n,) whose decisions they were.
            dropped: Rewards of arms that are gone. Rounds of a private run end after so many
                rewards whatever arms were taken, or one decision would move all later ones.
        """
        if self.private:
            refuse_unbounded(phi, rewards)
        touched = [0] if self.shared else sorted(set(positions.tolist()))
        for at in touched:
            of_arm = slice(None) if self.shared else positions == at
            self.regressions[at].observe(phi[of_arm], rewards[of_arm], sites[of_arm])
        self._rewards += len(rewards) + dropped
        if not self.private:
            for at in touched:
                self.regressions[at].synchronise_if_due()
            return
        ends = self._ends()
        while self._releases < len(ends) and self._rewards >= self.n_sites * ends[self._releases]:
            self._release(ends)

    def synchronise(self) -> None:
        """All sites send what they have not sent yet."""
        if self.private:
            self._release(self._ends())
            return
        for model in self.regressions:
            behind = [m for c in model.cohorts for m in c.agents[c.length > 0].tolist()]
            if behind:
                model.synchronise(np.array(behind))

    def unsent(self) -> list[int]:
        """Rewards that sites have not sent yet, of each regression."""
        return [sum(int(c.length.sum()) for c in model.cohorts) for model in self.regressions]

    def _ends(self) -> list[int]:
        """Rewards of a site after which the rounds of a private run end."""
        p = self.parameters
        assert p.rounds is not None
        ends: list[int] = schedule(p.episodes, p.rounds, p.min_round).tolist()
        return ends

    def _release(self, ends: list[int]) -> None:
        """One synchronisation of a private run: of all arms, whatever was seen of them."""
        if self._releases == len(ends):
            raise InvalidInput(
                f"this private run has spent its {plural(len(ends), 'round')}: start a new run, or "
                "give more rounds=",
                code="budget-spent",
            )
        for model in self.regressions:
            model.synchronise(np.arange(self.n_sites), ends[self._releases])
        self._releases += 1

    def statistics(self) -> tuple[np.ndarray, np.ndarray]:
        """(A, b) of what was synchronised: (K, d, d) and (K, d), or shared (d, d) and (d,)."""
        found = [model.statistics() for model in self.regressions]
        if self.shared:
            return found[0]
        d = self.dim
        A = np.array([A for A, _ in found]).reshape(-1, d, d)
        return A, np.array([b for _, b in found]).reshape(-1, d)

    def absorb(self, other: ArmModels) -> None:
        """Add what another bandit has synchronised, and take over its arms."""
        same = (self.shared, self.dim, self.parameters.lam)
        alike = same == (other.shared, other.dim, other.parameters.lam)
        if not alike or (self.shared and len(self.arms) != len(other.arms)):
            raise InvalidInput(
                "the other learner has another lam, another number of features, or another way to "
                "describe arms: merge learners of one kind",
                code="cannot-merge",
            )
        if unsent := sum(other.unsent()):
            raise InvalidInput(
                f"the other learner has {plural(unsent, 'reward')} its sites have not sent: "
                "call its synchronise() first",
                code="not-synchronised",
            )
        for at, theirs in enumerate(other.regressions):
            here = 0
            if not self.shared:
                label = other.arms.labels[at]
                if label not in self.arms:
                    self.add(label)
                here = self.arms.position(label)
            A, b = theirs.statistics()
            seen = A - self.parameters.lam * np.eye(self.dim)
            self.regressions[here].absorb(seen, b, theirs.common)

    def scores(self, rows: np.ndarray, sites: np.ndarray, alpha: float) -> np.ndarray:
        """(n, K) φᵀw + α‖φ‖_{Λ⁻¹} of contexts (n, d) or (n, K, d), as these sites (n,) see them."""
        views = self._views(sites)
        if not self.shared and len(views) == 1 and isinstance(views[0][1], slice):
            if len(self._side_by_side) != len(self.arms):
                self._side_by_side = SideBySide(self.dim, len(self.arms))
            self._side_by_side.take([one.cohorts[0].model for one in self.regressions])
            return self._side_by_side.scores(rows, alpha)
        scores = np.empty((len(rows), len(self.arms)))
        for m, some in views:
            here = rows[some]
            if self.shared:
                flat = self.regressions[0].model(m, self.fresh).scores(self._flat(here), alpha)
                scores[some] = flat.reshape(len(here), -1)
            else:
                for a, regression in enumerate(self.regressions):
                    scores[some, a] = regression.model(m, self.fresh).scores(here, alpha)
        return scores

    def draws(
        self, rows: np.ndarray, sites: np.ndarray, numbers: np.ndarray, samples: int
    ) -> np.ndarray:
        """(S, n, K) φᵀ(θ̃ − w) with θ̃ ~ N(w, Λ⁻¹), of the decisions of these numbers (n,)."""
        n, K = len(rows), len(self.arms)
        width = self.dim if self.shared else K  # arms with regressions of their own: independent
        noise, drawn = np.empty((n, samples, width)), np.empty((samples, n, K))
        for j, (m, t) in enumerate(zip(sites.tolist(), numbers.tolist(), strict=True)):
            normals(self.settings.seed, choice.POSTERIOR, m, t, noise[j])
        for m, some in self._views(sites):
            here = rows[some]
            if self.shared:
                factor = self.regressions[0].model(m, self.fresh).factor
                y = factor.whiten(self._flat(here)).reshape(len(here), K, self.dim)
                drawn[:, some] = np.matmul(noise[some], y.swapaxes(1, 2)).swapaxes(0, 1)
            else:
                for a, regression in enumerate(self.regressions):
                    norms2 = regression.model(m, self.fresh).norms2(here)
                    drawn[:, some, a] = (np.sqrt(norms2)[:, None] * noise[some, :, a]).T
        return drawn

    def _views(self, sites: np.ndarray) -> list[tuple[int, Any]]:
        """A site for each group of rows that see the same models."""
        if not self.fresh and self.settings.trigger != "own":
            return [(0, slice(None))]
        return [(m, sites == m) for m in np.unique(sites).tolist()]

    def _flat(self, rows: np.ndarray) -> np.ndarray:
        return rows.reshape(-1, self.dim)


def refuse_unbounded(phi: np.ndarray, rewards: np.ndarray) -> None:
    """Refuse what the noise of a private run would not hide."""
    longest = float(np.sqrt(np.einsum("ni,ni->n", phi, phi).max(initial=0.0)))
    if longest > 1.0 + 1e-9 or ((rewards < 0.0) | (rewards > 1.0)).any():
        raise InvalidInput(
            f"privacy needs features of norm at most 1, got {longest:g}, and rewards in [0, 1]: "
            "scale them by public numbers",
            code="not-bounded",
        )
