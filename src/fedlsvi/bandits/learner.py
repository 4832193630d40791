"""Federated contextual bandits that follow scikit-learn's conventions.

What these learners have in common is in `FedLinUCB`: the others are the same class with other
defaults. Where contexts are (n, d), every arm has a regression of its own (disjoint LinUCB). Where
they are (n, K, d), a row for each arm, there is one regression of all arms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self, cast

import numpy as np

from fedlsvi.bandits import choice as choices
from fedlsvi.bandits.choice import Choice
from fedlsvi.bandits.contexts import (
    checked_contexts,
    checked_mask,
    checked_rewards,
    checked_sites,
    names_of,
    refuse_names,
)
from fedlsvi.bandits.models import ArmModels
from fedlsvi.bandits.settings import BanditSettings, When
from fedlsvi.checks import number
from fedlsvi.errors import InvalidInput, InvalidSetting
from fedlsvi.protocol.ledger import Ledger


class Decisions(NamedTuple):
    """What `decide` chose, row by row.

    Attributes:
        tokens: (n,) by which rewards are reported later.
        actions: (n,) labels of the arms.
        propensities: (n,) the probability with which that arm was taken.
        probabilities: (n, K) of all arms, in the order of `arms_`.
    """

    tokens: np.ndarray
    actions: np.ndarray
    propensities: np.ndarray
    probabilities: np.ndarray


class Waiting(NamedTuple):
    """A decision whose reward has not come yet."""

    arm: Any
    site: int
    row: np.ndarray


@dataclass(eq=False, repr=False)
class FedLinUCB(BanditSettings):
    """Fed-LSVI at H = 1: LinUCB on a common model, synchronised when some site has learned enough.

    Sites decide with the last common model. When Δt·det(Λ + Λ^loc)/det Λ ≥ γ at one of them, all
    send their sums. Settings: `BanditSettings`.

    Attributes:
        arms_: Labels of the arms.
        n_features_in_: d.
        ledger_: What was sent.
        rounds_: Synchronisations so far, of each regression.
        waiting_: How many decisions wait for their reward.
    """

    def fit(self, X: Any, action: Any, reward: Any = None, site: Any = 0) -> Self:
        """Forget everything, learn from logged decisions, and synchronise.

        Args:
            X: Contexts (n, d), or (n, K, d) with a row for each arm.
            action: (n,) labels of the arms that were taken.
            reward: (n,); None is 1 for each: examples of what was right.
            site: Whose decisions they are: a number, or (n,).
        """
        for name in ("_models", "n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
        self.partial_fit(X, action, reward, site)
        return self.synchronise()

    def partial_fit(self, X: Any, action: Any, reward: Any = None, site: Any = 0) -> Self:
        """Add decisions and their rewards; sites whose trigger fires synchronise afterwards.

        Args:
            X, action, reward, site: As in `fit`.
        """
        rows = checked_contexts(X, least=1)
        rewards = checked_rewards(reward, len(rows))
        models = self._known(X, rows)
        sites = checked_sites(site, len(rows), self.n_sites)
        grow = models.add if self.arms is None and not models.shared else None
        positions = models.arms.positions(action, len(rows), grow)
        models.learn(self._taken(rows, positions), positions, rewards, sites)
        return self

    def decision_function(self, X: Any, site: Any = 0) -> np.ndarray:
        """(n, K) φᵀw + α‖φ‖_{Λ⁻¹} of all arms, as a site sees them; with choice="thompson" the
        means alone.

        Args:
            X: Contexts, as in `fit`.
            site: Who asks: a number, or (n,).
        """
        models, rows, sites = self._asked(X, site)
        return models.scores(rows, sites, 0.0 if self.choice == "thompson" else self.alpha)

    def predict(self, X: Any, site: Any = 0, allowed: Any = None) -> np.ndarray:
        """(n,) labels of the arms with the largest `decision_function`.

        Args:
            X, site: As in `decision_function`.
            allowed: Booleans (K,) or (n, K), in the order of `arms_`; None allows all.
        """
        scores = self.decision_function(X, site)
        mask = checked_mask(allowed, scores.shape)
        return cast("np.ndarray", self.arms_[choices.best(np.where(mask, scores, -np.inf))])

    def probabilities(self, X: Any, site: Any = 0, allowed: Any = None) -> np.ndarray:
        """(n, K) with which probability `decide` would take each arm now.

        Args:
            X, site, allowed: As in `predict`.
        """
        models, rows, sites = self._asked(X, site)
        return self._probabilities(models, rows, sites, self._numbers(sites), allowed)

    def decide(self, X: Any, site: Any = 0, allowed: Any = None) -> Decisions:
        """Choose arms by `choice`, and remember the contexts until `reward` is called.

        Args:
            X, site, allowed: As in `predict`.
        """
        models, rows, sites = self._asked(X, site)
        numbers = self._numbers(sites)
        p = self._probabilities(models, rows, sites, numbers, allowed)
        positions = choices.drawn(p, choices.draws(self.seed, sites, numbers))
        np.add.at(self._decided, sites, 1)
        actions, first = self.arms_[positions], self._next_token
        taken = self._taken(rows, positions)
        for i, (arm, m) in enumerate(zip(actions.tolist(), sites.tolist(), strict=True)):
            self._waiting[first + i] = Waiting(arm, m, taken[i].copy())
        self._next_token += len(rows)
        tokens = np.arange(first, first + len(rows))
        return Decisions(tokens, actions, p[np.arange(len(p)), positions], p)

    def reward(self, tokens: Any, rewards: Any) -> Self:
        """Report what decisions earned, in any order and whenever it is known. Of an arm that was
        dropped nothing is learned.

        Args:
            tokens: Of `decide`: a number, or (n,).
            rewards: A number, or (n,).
        """
        which = np.atleast_1d(np.asarray(tokens)).tolist()
        earned = checked_rewards(np.atleast_1d(rewards), len(which))
        pending = self._pending
        unknown = [token for token in which if token not in pending]
        if unknown or len(set(which)) < len(which):
            what = (
                f"no decision waits under token {unknown[0]!r}" if unknown else "a token is twice"
            )
            raise InvalidInput(f"{what}: give each token of decide() once", code="unknown-token")
        arms, waiting = self._fitted().arms, [pending.pop(token) for token in which]
        kept = [i for i, one in enumerate(waiting) if one.arm in arms]
        positions = np.array([arms.position(waiting[i].arm) for i in kept], int)
        sites = np.array([waiting[i].site for i in kept], int)
        rows = np.array([waiting[i].row for i in kept]).reshape(-1, self.n_features_in_)
        dropped = len(which) - len(kept)
        self._fitted().learn(rows, positions, earned[kept], sites, dropped)
        return self

    def forget(self, tokens: Any) -> Self:
        """Stop waiting for the rewards of these decisions.

        Args:
            tokens: Of `decide`: a number, or (n,).
        """
        for token in np.atleast_1d(np.asarray(tokens)).tolist():
            self._pending.pop(token, None)
        return self

    def add_arm(self, label: Any) -> Self:
        """A new arm, of which nothing is known."""
        models = self._fitted()
        if models.private:
            raise InvalidSetting(
                "a private run accounts for the arms that it began with: give all of them in arms=",
                code="bad-arm",
            )
        models.add(label)
        return self

    def drop_arm(self, label: Any) -> Self:
        """Forget an arm; where arms share a regression, only that it exists."""
        self._fitted().drop(label)
        return self

    def synchronise(self) -> Self:
        """All sites send what they have not sent yet. In a private run this takes one of its
        rounds."""
        self._fitted().synchronise()
        return self

    def statistics(self) -> tuple[np.ndarray, np.ndarray]:
        """(A, b) of what was synchronised: A = λI + Σφφᵀ and b = Σφr, (K, d, d) and (K, d) with a
        regression for each arm, else (d, d) and (d,)."""
        return self._fitted().statistics()

    def merge(self, other: FedLinUCB) -> Self:
        """Add what another learner has synchronised; all sites receive the sum.

        Args:
            other: With the same λ, and contexts of the same shape; its arms are taken over.
        """
        self._fitted().absorb(other._fitted())
        return self

    @property
    def arms_(self) -> np.ndarray:
        return self._fitted().arms.labels

    @property
    def ledger_(self) -> Ledger:
        return self._fitted().ledger

    @property
    def rounds_(self) -> int:
        return self._fitted().rounds

    @property
    def waiting_(self) -> int:
        return len(self._pending)

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn asks before it treats this as one of its estimators."""
        from sklearn.utils import InputTags, Tags, TargetTags

        takes = InputTags(two_d_array=True, three_d_array=True)
        return Tags(None, TargetTags(required=True), input_tags=takes)

    def __sklearn_is_fitted__(self) -> bool:
        """Whether anything was learned."""
        return "_models" in self.__dict__

    def _known(self, X: Any, rows: np.ndarray) -> ArmModels:
        """The models, made now if these are the first contexts, after checking their sizes."""
        names = names_of(X)
        if "_models" not in self.__dict__:
            self._begin(rows, names)
        refuse_names(self, names)
        models = self._models
        if (rows.ndim == 3) != models.shared or rows.shape[-1] != models.dim:
            raise InvalidInput(
                f"X has {rows.shape[-1]} features, but {type(self).__name__} is expecting "
                f"{models.dim} features as input, in {2 + models.shared} dimensions",
                code="bad-contexts",
            )
        if models.shared and rows.shape[1] != len(models.arms):
            raise InvalidInput(
                f"X has rows for {rows.shape[1]} arms, but there are {len(models.arms)}: give one "
                "for each, in the order of arms_",
                code="bad-contexts",
            )
        return models

    def _begin(self, rows: np.ndarray, names: np.ndarray | None) -> None:
        """Check the settings and make the models of arms that are given beforehand."""
        self.check()
        shared, dim = rows.ndim == 3, rows.shape[-1]
        arms = self.arms if self.arms is not None or not shared else rows.shape[1]
        if self.privacy is not None and arms is None:
            raise InvalidSetting(
                "a private run needs to know its arms: give arms=", code="bad-arms"
            )
        self._models = ArmModels(self, arms, dim, shared)
        self.n_features_in_ = dim
        if names is not None:
            self.feature_names_in_ = names
        self._waiting: dict[int, Waiting] = {}
        self._next_token, self._decided = 0, np.zeros(self.n_sites, np.int64)

    def _asked(self, X: Any, site: Any) -> tuple[ArmModels, np.ndarray, np.ndarray]:
        """Models, contexts and sites to decide for. Arms that are given are enough to decide."""
        if "_models" not in self.__dict__ and self.arms is None:
            self._fitted()
        rows = checked_contexts(X)
        models = self._known(X, rows)
        if not len(models.arms):
            raise InvalidInput("there is no arm to choose: call add_arm first", code="bad-arm")
        return models, rows, checked_sites(site, len(rows), self.n_sites)

    def _fitted(self) -> ArmModels:
        """The models.

        Raises:
            ValueError: There are none yet: scikit-learn's own error where it is installed.
        """
        if "_models" in self.__dict__:
            return self._models
        sentence = (
            f"this {type(self).__name__} has not learned anything: call fit or partial_fit first"
        )
        try:
            from sklearn.exceptions import NotFittedError
        except ImportError:
            raise InvalidInput(sentence, code="not-fitted") from None
        raise NotFittedError(sentence)

    @property
    def _pending(self) -> dict[int, Waiting]:
        self._fitted()
        return self._waiting

    def _taken(self, rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """(n, d) features of the arms that were taken."""
        return rows[np.arange(len(rows)), positions] if self._models.shared else rows

    def _numbers(self, sites: np.ndarray) -> np.ndarray:
        """(n,) the number of each row's decision at its site, from 1 on."""
        numbers = np.empty(len(sites), np.int64)
        for m in set(sites.tolist()):
            of_m = np.flatnonzero(sites == m)
            numbers[of_m] = self._decided[m] + 1 + np.arange(len(of_m))
        return numbers

    def _probabilities(
        self, models: ArmModels, rows: np.ndarray, sites: np.ndarray, numbers: np.ndarray,
        allowed: Any,
    ) -> np.ndarray:  # fmt: skip
        mask = checked_mask(allowed, (len(rows), len(models.arms)))
        most = 1.0 / int(mask.sum(axis=1).max(initial=1))
        number("least_probability", self.least_probability, 0.0, "1/K at most", most=most)
        if self.choice == "thompson":
            drawn = self.alpha * models.draws(rows, sites, numbers, self.samples)
            scores = models.scores(rows, sites, 0.0) + drawn
            p = choices.frequencies(np.where(mask, scores, -np.inf))
        else:
            scores = np.where(mask, models.scores(rows, sites, self.alpha), -np.inf)
            sharp = self.choice == "greedy"
            p = choices.greedy(scores) if sharp else choices.softmax(scores, self.temperature)
        return choices.at_least(p, mask, self.least_probability)


@dataclass(eq=False, repr=False)
class DisLinUCB(FedLinUCB):
    """Sites decide with their own unsent data too, and all synchronise when Δt times the growth of
    a log-determinant reaches D. Settings: as `FedLinUCB`."""

    trigger: When = "log-det"
    fresh: bool = True


@dataclass(eq=False, repr=False)
class AsyncLinUCB(FedLinUCB):
    """A site whose determinant has grown by the factor 1 + α synchronises alone, and others keep
    the model they have. Settings: as `FedLinUCB`."""

    trigger: When = "own"


@dataclass(eq=False, repr=False)
class FedLinTS(FedLinUCB):
    """Thompson sampling in place of the bonus, with exact propensities. Settings: as `FedLinUCB`;
    `alpha` is the posterior's standard deviation."""

    choice: Choice = "thompson"
