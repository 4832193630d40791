"""A log of decisions, which is the caller's: a learner keeps sums only.

A row is a context, the action taken, its propensity and, once it is known, its reward. That is what
off-policy estimates and replay need (`fedlsvi.bandits.off_policy`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from fedlsvi.bandits.contexts import checked_contexts, checked_rewards, checked_sites
from fedlsvi.checks import needs_pandas
from fedlsvi.core.statistics import read_only
from fedlsvi.errors import InvalidInput

if TYPE_CHECKING:
    from fedlsvi.bandits.learner import Decisions

COLUMNS = ("token", "site", "action", "reward", "propensity")


@dataclass(frozen=True, eq=False)
class LoggedDecisions:
    """Decisions whose rewards are known, row by row.

    `np.savez("log.npz", **vars(log))` keeps them, `LoggedDecisions(**np.load("log.npz"))` reads
    them.

    Attributes:
        contexts: (n, d), or (n, K, d) with a row for each arm.
        actions: (n,) labels of the arms that were taken.
        rewards: (n,) what they earned.
        propensities: (n,) the probabilities with which these arms were taken, above 0.
        sites: (n,) where; one number stands for all.
        tokens: (n,) by which a reward found its decision; None is 0, 1, …
    """

    contexts: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    propensities: np.ndarray
    sites: Any = 0
    tokens: Any = None

    def __post_init__(self) -> None:
        contexts = checked_contexts(self.contexts)
        n = len(contexts)
        tokens = np.arange(n) if self.tokens is None else np.asarray(self.tokens)
        actions = np.asarray(self.actions)
        for name, column in (("actions", actions), ("tokens", tokens)):
            if column.shape != (n,):
                raise InvalidInput(
                    f"{name} have shape {column.shape}: give {n}, one for each context",
                    code="bad-log",
                )
        checked = {
            "contexts": contexts,
            "actions": actions,
            "rewards": checked_rewards(self.rewards, n),
            "propensities": checked_propensities(self.propensities, n),
            "sites": checked_sites(self.sites, n, np.iinfo(np.int64).max),
            "tokens": tokens,
        }
        for name, column in checked.items():
            object.__setattr__(self, name, read_only(column))

    def __len__(self) -> int:
        return len(self.actions)

    @classmethod
    def from_frame(cls, frame: Any, features: Sequence[str] | None = None) -> Self:
        """The rows of a data frame.

        Args:
            frame: Has columns action, reward and propensity, and may have site and token.
            features: The columns of the context; None takes all others, in their order.
        """
        missing = [name for name in COLUMNS[2:] if name not in frame.columns]
        if missing:
            raise InvalidInput(
                f"the frame has no column {missing[0]!r}: a log has action, reward and propensity",
                code="bad-log",
            )
        given = {name: frame[name].to_numpy() for name in COLUMNS if name in frame.columns}
        others = [name for name in frame.columns if name not in COLUMNS]
        contexts = frame[others if features is None else list(features)].to_numpy()
        return cls(
            contexts, given["action"], given["reward"], given["propensity"],
            given.get("site", 0), given.get("token"),
        )  # fmt: skip

    def to_frame(self, features: Sequence[str] | None = None) -> Any:
        """A data frame that `from_frame` reads.

        Args:
            features: Names of the columns of the context; None is x0, x1, …
        """
        if self.contexts.ndim == 3:
            raise InvalidInput(
                "a frame has one row of features for a decision, but here every arm has its own: "
                'keep the arrays, np.savez("log.npz", **vars(log))',
                code="bad-log",
            )
        names = features or [f"x{i}" for i in range(self.contexts.shape[1])]
        columns = (self.tokens, self.sites, self.actions, self.rewards, self.propensities)
        return needs_pandas().DataFrame(
            dict(zip(COLUMNS, columns, strict=True))
            | dict(zip(names, self.contexts.T, strict=True))
        )


class Row(NamedTuple):
    """A decision in a log."""

    context: np.ndarray
    action: Any
    propensity: float
    site: int


class DecisionLog:
    """Collects what `decide` chose, and rewards as they come."""

    def __init__(self) -> None:
        self._rows: dict[int, Row] = {}
        self._rewards: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, X: Any, decided: Decisions, site: Any = 0) -> Self:
        """Enter decisions.

        Args:
            X: The contexts that `decide` was given.
            decided: What it returned.
            site: The site or sites it was given.
        """
        contexts = checked_contexts(X)
        sites = checked_sites(site, len(contexts), np.iinfo(np.int64).max)
        tokens, chosen = decided.tokens.tolist(), decided.actions.tolist()
        if len(tokens) != len(contexts):
            raise InvalidInput(
                f"X has {len(contexts)} rows, but {len(tokens)} decisions were made: give the X "
                "that decide() was given",
                code="bad-log",
            )
        entered = zip(contexts, chosen, decided.propensities.tolist(), sites.tolist(), strict=True)
        for token, row in zip(tokens, entered, strict=True):
            if token in self._rows:
                raise InvalidInput(
                    f"token {token} is logged already: keep a log for each learner",
                    code="unknown-token",
                )
            self._rows[token] = Row(row[0].copy(), *row[1:])
        return self

    def reward(self, tokens: Any, rewards: Any) -> Self:
        """Enter what decisions earned, in any order.

        Args:
            tokens: Of `decide`: a number, or (n,).
            rewards: A number, or (n,).
        """
        which = np.atleast_1d(np.asarray(tokens)).tolist()
        earned = checked_rewards(np.atleast_1d(rewards), len(which))
        unknown = [token for token in which if token not in self._rows]
        if unknown:
            raise InvalidInput(
                f"no decision is logged under token {unknown[0]!r}: call add first",
                code="unknown-token",
            )
        self._rewards.update(zip(which, earned.tolist(), strict=True))
        return self

    def decisions(self) -> LoggedDecisions:
        """The decisions whose rewards are known, in the order in which they were made."""
        tokens = [token for token in self._rows if token in self._rewards]
        if not tokens:
            raise InvalidInput("no reward is logged yet: call reward first", code="bad-log")
        rows = [self._rows[token] for token in tokens]
        return LoggedDecisions(
            np.array([row.context for row in rows]),
            np.array([row.action for row in rows]),
            np.array([self._rewards[token] for token in tokens]),
            np.array([row.propensity for row in rows]),
            np.array([row.site for row in rows]),
            np.array(tokens),
        )


def checked_propensities(propensities: Any, n: int) -> np.ndarray:
    """(n,) probabilities in (0, 1]."""
    p = np.asarray(propensities, np.float64)
    if p.shape != (n,) or not ((p > 0.0) & (p <= 1.0 + 1e-9)).all():
        raise InvalidInput(
            f"propensities must be {n} probabilities above 0, one for each row: an arm that was "
            "taken had one",
            code="bad-propensities",
        )
    return np.ascontiguousarray(p)
