"""A finished run: what was learned, what it cost, and the theorems beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from fedlsvi.checks import finite, number, plural
from fedlsvi.config import Parameters
from fedlsvi.core import theory
from fedlsvi.core.coverage import Coverage
from fedlsvi.core.statistics import full
from fedlsvi.envs.allowed import RESTRICTED
from fedlsvi.envs.base import Environment, in_own_units
from fedlsvi.errors import FedLSVIError, InvalidInput
from fedlsvi.features.recovery import VisitRecovery, visit_recovery
from fedlsvi.policy import EPISODES, Policy, Worth, affordable, worth_of
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
    """What was learned."""
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
    models: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list, repr=False)
    """(w, Λ) after each round, where `keep_models` was asked for."""
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
    deployed: Policy | None = field(default=None, repr=False)
    """The policy without its exploration bonus, where the run ended with one (`exploit`)."""
    deployed_w: np.ndarray | None = field(default=None, repr=False)
    """(H, d), its weights."""
    reward_range: tuple[float, float] | None = None
    """What 0 and 1 stand for there; None where only the environment itself says."""
    _worth: dict[int, dict[str, Worth]] = field(default_factory=dict, repr=False, compare=False)
    visits: VisitRecovery | None = field(default=None, repr=False)
    """What uploads give away about visits, as read from a folder; `recovery` is for every run."""

    @classmethod
    def of(cls, session: Session, settings: Any, folder: str | None = None) -> Run:
        """The result of a session that has ended."""
        plan, player = session.plan, session.player
        regret = session.regret
        return cls(
            regret=None if regret is None else regret[: player.t],
            ending=session.ending,
            taus=[1, *(r.last + 1 for r in session.records)],
            w=player.w,
            gram_packed=player.gram,
            ledger=player.ledger,
            policy=Policy.of(session),
            deployed=Policy.deployed_of(session),
            deployed_w=getattr(player, "deployed_w", None),
            records=session.records,
            parameters=plan.parameters,
            settings=settings,
            seed=plan.seed,
            environment=plan.describe(),
            models=session.models,
            policies=session.policies,
            algorithm=player.algorithm,
            counts=dict(player.counts),
            raw_scalars_per_step=raw_scalars_per_step(plan),
            plan=plan,
            folder=folder,
            reward_range=plan.world.reward_range,
        )

    @property
    def gram(self) -> np.ndarray:
        """Λ_h, (H, d, d)."""
        return full(self.gram_packed)

    @cached_property
    def recovery(self) -> VisitRecovery | None:
        """How far uploads determine the visits of agents; None where that is not known, or where
        no sums of φφᵀ were uploaded."""
        if self.algorithm not in SENDS_SUMS:
            return None
        return self.visits if self.plan is None else visit_recovery(self.plan.features)

    @property
    def coverage(self) -> Coverage:
        """How much of feature space the data has seen, from Λ."""
        p = self.parameters
        return Coverage.of(self.gram_packed, p.lam, p.beta * p.taper_factors, p.ceilings)

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
        """What is saved, evaluated, recorded and reported: without the exploration bonus where the
        run ended with such a policy, else `policy`."""
        return self.policy if self.deployed is None else self.deployed

    def exploit(self, pessimism: float | None = None) -> Policy:
        """A policy to deploy: one more backward pass over the same sums, without the bonus.

        Args:
            pessimism: b ≥ 0: subtract b times the width instead, a lower confidence bound; None is
                what the settings say. The pass of the settings ended the run itself and is in its
                ledger. Another one is made here and now, from what the agents remember: it needs a
                run of this process whose agents were here.
        """
        p = self.parameters
        b = p.pessimism if pessimism is None else pessimism
        number("pessimism", b, 0.0, "0 takes the estimates as they are", error=InvalidInput)
        if self.deployed is not None and b == p.pessimism:
            return self.deployed
        from fedlsvi.continuation import exploited

        return exploited(self, float(b))

    def references(self, episodes: int = EPISODES) -> dict[str, float]:
        """Values to compare the learned policy with, in the environment's own units.

        Where the model is known: exact values of the learned, the optimal and the uniform policy
        in agent 0's environment. In a black box: mean returns of the learned and of the random
        policy over that many episodes, which are played now. For a log: the mean return of the
        logged episodes, since nothing can be played.
        """
        return {name: value.mean for name, value in self.worth(episodes).items()}

    def worth(self, episodes: int = EPISODES) -> dict[str, Worth]:
        """`references` with standard errors and numbers of episodes."""
        if episodes not in self._worth:
            self._worth[episodes] = worth_of(self, self._first_environment(), episodes)
        return self._worth[episodes]

    @property
    def worth_known(self) -> dict[str, Worth]:
        """The result of the last call of `worth`; empty before."""
        return self._worth.get(EPISODES, {})

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
        known = self.reward_range or self._first_environment().reward_range
        return in_own_units(value, self.parameters.horizon, known)

    def _first_environment(self) -> Environment:
        """Agent 0's; a sentence where its folder cannot make it and nobody gave it."""
        if self.plan is not None:
            return self.plan.world
        if self.world is not None:  # what `load` gives
            return self.world()
        raise InvalidInput(
            "this run was pickled without its environment, because pickle cannot store it: use "
            "the run that `learn` returned, or evaluate_policy(run.policy, env)",
            code="not-pickled",
        )

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
        release = self.parameters.release
        return None if release is None else release.spent(self.rounds)

    def summary(self, values: bool = True) -> dict[str, Any]:
        """The run in numbers, ready for JSON.

        Args:
            values: Whether to include the values of the learned policy and others. In a black box
                this plays up to 50 episodes with each, once for a run; fewer, or none, where steps
                are slow.
        """
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
            "values": self._valued() if values else None,
            "steps": _sum([record.steps for record in self.records]),
            "clipped": _sum([record.clipped for record in self.records]),
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

    def _valued(self) -> dict[str, Any] | None:
        """`worth` for a summary; None where the run has not ended or nothing is known here."""
        if self.played < self.parameters.episodes or (self.plan is None and self.world is None):
            return None
        try:
            env = self._first_environment()
            found = self.worth(n) if (n := affordable(env)) else {}
        except (FedLSVIError, ImportError):
            return None
        return {name: asdict(value) for name, value in found.items()} or None

    @property
    def bounds(self) -> dict[str, Bound]:
        """Theorems 1 (or 2, where ξ > 0) and 3, and the exact count of scalars where nobody was
        away; Fed-LSVI's only."""
        if self.algorithm != "fed-lsvi":
            return {}
        p = self.parameters
        size = (p.dim, p.horizon, p.n_agents)
        T, measured = p.episodes, None if self.regret is None else float(self.regret[-1])
        found = {}
        proved = theory.beta_theory(*size, T, p.xi, p.confidence)
        # all play, and within a round every ratio stays below γ/Δt: a floor or budget may break it
        proper = p.min_round == 1 and p.rounds is None and not (p.stationary or p.some_away)
        proper = proper and not (self.extended or p.logged or p.prior or p.taper or p.diversity)
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
        rounds = float(p.most_rounds(T))
        if not self.extended:  # else the first rounds had another γ
            found["theorem_3"] = Bound("rounds K ≤ Theorem 3, and ≤ T", rounds, self.rounds)
        # with secure sums, and in one trip, nobody can be away
        if self.ledger.alike or p.aggregation == "secure" or p.exchange == "one-trip":
            signals, sites = sum(r.signals for r in self.records), self.counts.get("sites")
            rounds_sent = self.rounds + (p.logged > 0)  # logs take one more, without signals
            sent = (*size, p.packing, rounds_sent, signals)
            scalars = theory.scalars_total(*sent, sites, p.stationary)
            if p.exchange == "one-trip":
                more = self.counts.get("next_state_scalars", 0)
                scalars = theory.scalars_one_trip(*sent, more, sites, p.states, p.stationary)
            if self.deployed_w is not None:
                scalars += theory.scalars_exploit(*size, sites)
            # an engine whose agents cannot call asks them, beside the paper's messages
            asked = rounds_sent + (self.deployed_w is not None)
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


def _sum(counts: list[int | None]) -> int | None:
    """The sum of what every round counted; None where one did not."""
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def raw_scalars_per_step(plan: Plan) -> int:
    """ρ = s + 2; s = 1 where states are finite."""
    return int(getattr(plan.world, "state_dim", 1)) + 2
