"""A finished run: what was learned, what it cost, and the theorems beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from fedlsvi.advice import (
    Advice,
    above_value_range,
    agents_differ,
    below_random,
    features_say_little,
    rewards_clipped,
    time_matters,
)
from fedlsvi.checks import finite, number, plural
from fedlsvi.config import Parameters
from fedlsvi.core import theory
from fedlsvi.core.coverage import Coverage
from fedlsvi.core.statistics import every_step, full
from fedlsvi.envs.allowed import RESTRICTED
from fedlsvi.envs.base import Environment, in_own_units
from fedlsvi.errors import FedLSVIError, InvalidInput, warn
from fedlsvi.features.recovery import VisitRecovery, visit_recovery
from fedlsvi.policy import EPISODES, PATIENCE, Policy, Worth, affordable, worth_of
from fedlsvi.protocol.kept_models import KeptModels
from fedlsvi.protocol.ledger import Ledger
from fedlsvi.protocol.plan import Plan
from fedlsvi.protocol.records import Ending, Observer, RoundRecord, late_return
from fedlsvi.protocol.session import Session
from fedlsvi.protocol.snapshot import Snapshot
from fedlsvi.run_views import RunViews

SENDS_SUMS = ("fed-lsvi", "periodic", "stale")
"""Algorithms whose agents upload Σφφᵀ."""


@dataclass(frozen=True)
class Bound:
    """A theorem's right-hand side beside the number that was measured."""

    claim: str
    bound: float
    measured: float | None
    exact: bool = False
    """Whether the claim is an equality."""
    applies: bool = True
    """Whether the settings in force meet the theorem's assumptions; else it promises nothing."""

    @property
    def holds(self) -> bool | None:
        """Whether the measurement keeps to the bound; None where there is no measurement."""
        if self.measured is None:
            return None
        return self.measured == self.bound if self.exact else self.measured <= self.bound

    def row(self) -> dict[str, Any]:
        """The bound, ready for JSON: null where it is beyond every number."""
        bound = self.bound if finite(self.bound) else None
        found = {"claim": self.claim, "bound": bound, "measured": self.measured}
        return found | {"holds": self.holds, "applies": self.applies}


@dataclass(frozen=True, repr=False)
class Run(RunViews):
    """The outcome of `learn`."""

    regret: np.ndarray | None
    """(T,) cumulative group regret, exact; None where the environment does not know V*."""
    taus: list[int]
    """[1, τ₂, …, T+1]: first episodes of the rounds."""
    w: np.ndarray
    """(H, d), the weights of the last model."""
    ledger: Ledger
    """What was sent."""
    policy: Policy
    """The one to use: without an exploration bonus, where the run ended with that pass."""
    exploring_policy: Policy
    """What the agents would follow next; the same where there was no such pass."""
    records: list[RoundRecord]
    """One for each round."""
    parameters: Parameters
    """The numbers in force: M, T, H, d, γ, β, λ and so on."""
    settings: Any
    """What was asked for."""
    seed: int
    environment: list[dict[str, Any]]
    """Names and parameters of the environments: one entry, or one for each agent."""
    gram_packed: np.ndarray = field(repr=False)
    """(H, d, d), or (H, d) where features are one-hot and Gram matrices diagonal."""
    models: KeptModels = field(default_factory=KeptModels, repr=False)
    """(w, Λ) after each round, (H, d) and (H, d, d), where `keep_models` was asked for; `.packed`
    has them as they are kept, Λ diagonal as (H, d)."""
    policies: list[np.ndarray] = field(default_factory=list, repr=False)
    """The policy table of each round, likewise."""
    algorithm: str = "fed-lsvi"
    """Its name in the registry."""
    raw_scalars_per_step: int = 3
    """ρ = s + 2: state, action and reward of one step, were trajectories shared; 0 where the
    environments are known to the agents alone."""
    plan: Plan | None = field(default=None, repr=False)
    """What was played; None where the run was read from a folder."""
    folder: str | None = None
    """Where it was written or read."""
    counts: dict[str, int] = field(default_factory=dict, repr=False)
    """What the algorithm counted: all that its closed formula of the scalars needs beyond the
    records, and the switches of policies where agents learn alone."""
    world: Callable[[], Environment] | None = field(default=None, repr=False)
    """Makes agent 0's environment, where the run was read from a folder."""
    ending: Ending = "finished"
    """How it ended: with all its episodes, "stopped" by an observer, "interrupted" by Ctrl-C."""
    extended: tuple[str, ...] = ()
    """How it differs from a run that knew its number of episodes from the start, because it went
    on: a sentence each time. Empty where it is the same to the last bit."""
    learner: Any = field(default=None, repr=False)
    """Who learned it, where it was played here."""
    memory: Snapshot | None = field(default=None, repr=False)
    """What `learn_more` starts from, where the run has no folder."""
    agent_policies: tuple[Policy, ...] = field(default=(), repr=False)
    """With features of their own, each agent's policy, where the agents were in this process; with
    none of its own, `policy` is that of the shared coefficients alone."""
    fit: np.ndarray | None = field(default=None, repr=False)
    """(M, H, 5): how well the model fits the targets of each agent at each step, as
    `core.model_fit` reads it; None where agents did not say."""
    policy_w: np.ndarray | None = field(default=None, repr=False)
    """(H, d), the weights of `policy`, where these are not `w`."""
    reward_range: tuple[float, float] | None = None
    """What 0 and 1 stand for there; None where only the environment itself says."""
    _worth: dict[tuple[int, float | None], dict[str, Worth]] = field(
        default_factory=dict, repr=False, compare=False
    )
    visits: VisitRecovery | None = field(default=None, repr=False)
    """What uploads give away about visits, as read from a folder; `recovery` is for every run."""

    @classmethod
    def of(cls, session: Session, settings: Any, folder: str | None = None) -> Run:
        """The result of a session that has ended."""
        plan, player = session.plan, session.player
        regret, exploring = session.regret, Policy.exploring_of(session)
        shared = all(env is plan.envs[0] for env in plan.envs)
        return cls(
            regret=None if regret is None else regret[: player.t],
            ending=session.ending,
            taus=[1, *(r.last + 1 for r in session.records)],
            w=player.w,
            gram_packed=player.gram,
            ledger=player.ledger,
            policy=Policy.of(session) or exploring,
            exploring_policy=exploring,
            policy_w=player.deployed_w,
            agent_policies=Policy.of_agents(session),
            fit=player.fit,
            records=session.records,
            parameters=plan.parameters,
            settings=settings,
            seed=plan.seed,
            environment=[env.spec() for env in (plan.envs[:1] if shared else plan.envs)],
            models=session.models or KeptModels(),
            policies=session.policies,
            algorithm=player.algorithm,
            counts=dict(player.counts),
            raw_scalars_per_step=plan.raw_scalars_per_step,
            plan=plan,
            folder=folder,
            reward_range=plan.world.reward_range,
        )

    @property
    def gram(self) -> np.ndarray:
        """Λ_h, (H, d, d): one matrix, to read, where all steps share it."""
        p = self.parameters
        return every_step(full(self.gram_packed[: p.matrices]), p.horizon)

    @cached_property
    def recovery(self) -> VisitRecovery | None:
        """How far uploads determine the visits of agents; None where that is not known, or where
        no sums of φφᵀ were uploaded."""
        if self.algorithm not in SENDS_SUMS or self.parameters.own_features:
            return None
        return self.visits if self.plan is None else visit_recovery(self.plan.features)

    @property
    def coverage(self) -> Coverage:
        """How much of feature space the data has seen, from Λ."""
        p = self.parameters
        return Coverage.of(self.gram_packed, p.lam, p.beta * p.taper_factors, p.ceilings)

    @property
    def first_policy(self) -> Policy:
        """`policy`, or agent 0's where agents have coefficients of their own and were here."""
        return self.agent_policies[0] if self.agent_policies else self.policy

    @property
    def rounds(self) -> int:
        """K, the number of rounds."""
        return sum(record.rounds for record in self.records)

    @property
    def played(self) -> int:
        """Episodes per agent so far; T, unless the run was interrupted."""
        return self.taus[-1] - 1

    @property
    def agent_episodes(self) -> int:
        """Episodes of all agents together; fewer than Mt with partial participation."""
        return round(float(self.agent_episodes_until(self.played)))

    def agent_episodes_until(self, t: Any) -> np.ndarray:
        """The same up to episode t, a number or an array of them."""
        M = self.parameters.n_agents
        played = [r.length * (M if r.present is None else r.present) for r in self.records]
        ends = [0, *(r.last for r in self.records)]
        return np.asarray(np.interp(t, ends, np.cumsum([0, *played])))

    @property
    def scalars_raw(self) -> int | None:
        """What sharing every trajectory would have cost one way, MtHρ, where ρ is known."""
        p = self.parameters
        if self.raw_scalars_per_step == 0:
            return None
        return theory.scalars_raw(p.horizon, 1, self.agent_episodes, self.raw_scalars_per_step)

    @property
    def mean_returns(self) -> np.ndarray | None:
        """(K,) mean return of each round's episodes, in the environment's own units; None where
        regret is known instead."""
        found = [record.mean_return for record in self.records]
        return None if None in found else np.array(found, np.float64)

    @property
    def final_policy(self) -> Policy:
        """Deprecated: `policy`."""
        warn("run.final_policy is now run.policy", DeprecationWarning)
        return self.policy

    def exploit(self, pessimism: float | None = None) -> Policy:
        """Deprecated: `policy`, or `policy_at`."""
        warn("run.exploit() is now run.policy, or run.policy_at(pessimism)", DeprecationWarning)
        return self.policy_at(self.parameters.pessimism if pessimism is None else pessimism)

    def policy_at(self, pessimism: float) -> Policy:
        """The policy of one more backward pass over the same sums, without the bonus.

        The pass with the pessimism of the settings ended the run and is in its ledger. Another is
        made here and now, from what the agents remember: it needs a run of this process whose
        agents were here.

        Args:
            pessimism: b ≥ 0: subtract b times the width, a lower confidence bound.
        """
        number("pessimism", pessimism, 0.0, "0 takes the estimates as they are", error=InvalidInput)
        if self.policy_w is not None and pessimism == self.parameters.pessimism:
            return self.policy
        from fedlsvi.continuation import policy_at

        return policy_at(self, float(pessimism))

    def references(
        self,
        episodes: int = EPISODES,
        *,
        seconds: float | None = PATIENCE,
        progress: bool | None = None,
    ) -> dict[str, float]:
        """Values to compare the learned policy with, in the environment's own units.

        Where the model is known: exact values of the learned, the optimal and the uniform policy
        in agent 0's environment. In a black box: mean returns of the learned and of the random
        policy over that many episodes, which are played now; beside them V* of the same first
        states, where it is known. For a log: the mean return of the logged episodes, since nothing
        can be played.

        Args:
            episodes: To play with each policy in a black box.
            seconds: Where steps are slow, fewer episodes are played, so that they take about this
                long; a warning then says how many. At least one; None sets no limit.
            progress: A progress bar; None shows one in a terminal or a notebook.
        """
        worth = self.worth(episodes, seconds=seconds, progress=progress)
        return {name: value.mean for name, value in worth.items()}

    def worth(
        self,
        episodes: int = EPISODES,
        *,
        seconds: float | None = PATIENCE,
        progress: bool | None = None,
    ) -> dict[str, Worth]:
        """`references` with standard errors and numbers of episodes."""
        if seconds is not None:
            number("seconds", seconds, 0.0, "None sets no limit", strict=True, error=InvalidInput)
        asked = (episodes, seconds)
        measured = self._worth.pop(asked, None)
        if measured is None:
            from fedlsvi.observers.progress import MeasuringBar

            with closing(MeasuringBar(episodes, progress)) as tell:
                measured = worth_of(self, first_environment(self), episodes, seconds, tell)
        self._worth[asked] = measured
        return measured

    @property
    def worth_known(self) -> dict[str, Worth]:
        """The result of the last call of `worth`; empty before."""
        return next(reversed(self._worth.values()), {})

    def __repr__(self) -> str:
        known = "" if self.regret is None else f", regret {self.regret[-1]:,.6g}"
        return (
            f"<Run {self.algorithm} on {self.environment_name}: M={self.parameters.n_agents}, "
            f"{plural(self.played, 'episode')} each, seed {self.seed}, "
            f"{plural(self.rounds, 'round')}, "
            f"{plural(self.ledger.total, 'scalar')}{known}>"
        )

    def original_value(self, value: Any) -> Any:
        """A value of a whole episode in the environment's own units."""
        known = self.reward_range or first_environment(self).reward_range
        return in_own_units(value, self.parameters.horizon, known)

    @property
    def environment_name(self) -> str:
        """The registered name of the (first) environment, its Gymnasium id, or its given name; and
        whether it allows only some actions."""
        first = self.environment[0]
        masked = "allowed" in first["params"]
        while first["name"] == RESTRICTED:
            first = first["params"]["env"]
        made = first["params"]
        named = None if first["name"] == "arrays" else first["name"]
        title = str(made.get("id") or named or made.get("title") or "arrays")
        return f"{title} with masks" if masked else title

    @property
    def epsilon_spent(self) -> float | None:
        """ε of differential privacy at the δ that was set, for all rounds so far; None where no
        noise was added."""
        p = self.parameters  # in one trip, a pass after the last round takes no release
        passed = self.policy_w is not None and p.exchange == "stepwise"
        return p.epsilon_spent(self.rounds, passed)

    def summary(self, values: bool = True) -> dict[str, Any]:
        """The run in numbers, ready for JSON.

        Args:
            values: Whether to include the values of the learned policy and others. In a black box
                this plays up to 50 episodes with each, once for a run; fewer, or none, where steps
                are slow.
        """
        valued = self._valued() if values else None
        return {
            "algorithm": self.algorithm,
            "environment": self.environment_name,
            "seed": self.seed,
            "finished": self.played == self.parameters.episodes,
            "ending": self.ending,
            "extended": list(self.extended),
            "episodes": self.played,
            "agent_episodes": self.agent_episodes,
            "rounds": self.rounds,
            "counts": self.counts,
            "regret": None if self.regret is None else float(self.regret[-1]),
            "return": late_return(self.records, self.played),
            "values": valued,
            "advice": [asdict(advice) for advice in self.advice],
            "steps": self._counted("steps"),
            "clipped": self._counted("clipped"),
            "scalars": self.ledger.total,
            "scalars_by_category": self.ledger.scalars,
            "bytes": sum(self.ledger.bytes.values()),
            "scalars_raw": self.scalars_raw,
            # privacy: statistics of few episodes say much about each of them
            "shortest_round": min(r.shortest for r in self.records),
            "smallest_upload": min(
                [*(r.smallest for r in self.records), *self._smallest_log],
            ),
            "recovery": self.recovery and asdict(self.recovery),
            "epsilon_spent": self.epsilon_spent,
            "seconds": {
                phase: sum(r.seconds[phase] for r in self.records)
                for phase in self.records[0].seconds
            },
            "parameters": asdict(self.parameters),
            "bounds": {name: bound.row() for name, bound in self.bounds.items()},
        }  # fmt: skip

    @property
    def _smallest_log(self) -> list[int]:
        """Episodes of the shortest log that was uploaded, where there was one."""
        shortest = self.counts.get("shortest_log", 0) if self.parameters.logged else 0
        return [min(shortest, self.parameters.logged)] if shortest else []

    @property
    def advice(self) -> list[Advice]:
        """What the run's numbers say against its settings, with the setting to change. Whatever
        compares policies looks at the last call of `worth`, and a summary with values makes one."""
        p, worth = self.parameters, self.worth_known
        found = [
            below_random(worth),
            rewards_clipped(self._counted("steps"), self._counted("clipped"), p.horizon),
        ]
        if self.fit is not None:
            # a model that misses steps misses agents and variance, too: one sentence about it
            one_hot = p.packing == "diagonal"
            found.append(
                (time_matters(self.fit, p.ceilings, one_hot) if p.stationary else None)
                or features_say_little(self.fit, worth)
                or agents_differ(self.fit, p.ceilings)
            )
        if worth and p.value_range is not None:
            ends = float(self.original_value(0.0)), float(self.original_value(1.0))
            found.append(above_value_range(worth, p.value_range, ends))
        return [advice for advice in found if advice is not None]

    def _counted(self, what: str) -> int | None:
        """The sum of what every round counted; None where one did not."""
        counts = [getattr(record, what) for record in self.records]
        return None if None in counts or not counts else sum(counts)

    def _valued(self) -> dict[str, Any] | None:
        """`worth` for a summary; None where the run has not ended or nothing is known here."""
        if self.played < self.parameters.episodes or (self.plan is None and self.world is None):
            return None
        try:
            env = first_environment(self)
            found = self.worth(n) if (n := affordable(env)) else {}
        except (FedLSVIError, ImportError):
            return None
        return {name: asdict(value) for name, value in found.items()} or None

    @property
    def bounds(self) -> dict[str, Bound]:
        """Theorems 1 (or 2, where ξ > 0) and 3, the budget of rounds, and the exact count of
        scalars where nobody was away; Fed-LSVI's only."""
        if self.algorithm != "fed-lsvi":
            return {}
        p = self.parameters
        size, sent_size = ((d, p.horizon, p.n_agents) for d in (p.pooled_dim, p.dim))
        T, measured = p.episodes, None if self.regret is None else float(self.regret[-1])
        found = {}
        proved = theory.beta_theory(*size, T, p.xi, p.confidence)
        # all play, and within a round every ratio stays below γ/Δt: a floor or budget may break it
        proper = p.min_round == 1 and p.rounds is None and not (p.stationary or p.some_away)
        proper = proper and not (
            self.extended or p.logged or p.prior or p.taper or p.diversity or p.noisy
        )
        applies = proper and p.lam >= 1.0 and p.beta >= proved * (1.0 - 1e-12)
        gamma = max(p.growth * T, 1.0) if p.growth else p.gamma  # the largest in force
        if p.xi == 0.0:
            right = theory.regret_bound(*size, T, gamma, p.beta, p.lam, p.confidence)
            found["theorem_1"] = Bound(_regret(1), right, measured, applies=applies)
        else:
            right = theory.regret_bound_misspecified(
                *size, T, gamma, p.beta, p.xi, p.lam, p.confidence
            )
            found["theorem_2"] = Bound(_regret(2), right, measured, applies=applies)
        if not self.extended:  # else the first rounds had another γ
            if p.privacy is None:  # else no trigger ends a round
                proven = float(p.proven_rounds(T))
                found["theorem_3"] = Bound("rounds K ≤ Theorem 3, and ≤ T", proven, self.rounds)
            if p.rounds is not None or p.min_round > 1:
                allowed = float(p.allowed_rounds(T))
                claim = "rounds K ≤ " + ("the budget" if allowed == p.rounds else "T/min_round")
                found["budget"] = Bound(claim, allowed, self.rounds)
        # sites' sums and tables of next states are never alike; with secure sums nobody can be away
        unlike = p.aggregation == "secure" or (p.exchange == "one-trip" and not p.some_away)
        if self.ledger.alike or unlike:
            signals, sites = sum(r.signals for r in self.records), self.counts.get("sites")
            rounds_sent = self.rounds + (p.logged > 0)  # logs take one more, without signals
            sent = (*sent_size, p.packing, rounds_sent, signals)
            scalars = theory.scalars_total(*sent, sites, p.stationary, p.noisy)
            if p.exchange == "one-trip":
                more = self.counts.get("next_state_scalars", 0)
                kind = (sites, p.columns, p.stationary, p.noisy)
                scalars = theory.scalars_one_trip(*sent, more, *kind)
            if self.policy_w is not None:
                trip = p.exchange == "one-trip"
                scalars += theory.scalars_exploit(*sent_size, sites, trip, self.fit is not None)
            # an engine whose agents cannot call asks them, beside the paper's messages
            asked = rounds_sent + (self.policy_w is not None)
            control = self.ledger.scalars["signal"] - (p.n_agents * asked + 2 * signals)
            claim = "scalars = closed formula" + (
                f", and {control:,} of control" if control else ""
            )
            found["scalars"] = Bound(claim, scalars, self.ledger.total - control, exact=True)
        return found

    def learn_more(
        self,
        episodes: int,
        *,
        env: Any = None,
        features: Any = None,
        progress: bool | None = None,
        observers: Iterable[Observer] = (),
        threads: int | None = None,
    ) -> Run:
        """Continue for more episodes per agent; a run that has a folder continues in it.

        The round that T cut short is undone and played on. If no setting depends on T, as with
        gamma="anytime", the result equals one longer run, to the last bit; otherwise a
        `ContinuationWarning` says what differs, and `extended` keeps the sentence.

        Args:
            episodes: How many more; `self` stays as it is.
            env: The environments, needed only if a folder cannot make them (your own objects).
            features: The features, likewise.
            progress: A progress bar; None shows one in a terminal or a notebook.
            observers: Called with the record of each round, including the one that is played on.
            threads: Threads that explore.
        """
        from fedlsvi.continuation import continue_run

        watch: dict[str, Any] = {"progress": progress, "observers": observers}
        return continue_run(self, episodes, env, features, threads=threads, **watch)

    def save(self, folder: str) -> None:
        """Write a run folder that `fedlsvi report` and `fedlsvi.load` read."""
        from fedlsvi.storage import save_run

        save_run(self, folder)


def _regret(theorem: int) -> str:
    """What a theorem on regret claims."""
    return f"regret ≤ Theorem {theorem} at the β and λ in force"


def first_environment(run: Run) -> Environment:
    """Agent 0's; a sentence where the run's folder cannot make it and nobody gave it."""
    if run.plan is not None:
        return run.plan.world
    if run.world is not None:  # what `load` gives
        return run.world()
    raise InvalidInput(
        "this run was pickled without its environment, because pickle cannot store it: use "
        "the run that `learn` returned, or evaluate_policy(run.policy, env)",
        code="not-pickled",
    )
