"""A run under way: one driver for all of them, and the player that is Fed-LSVI.

`Session` holds what is the same in every run: the loop over the episode budget, one record per
round, the regret curve, and saving between rounds. What happens in a round is the business of its
player: server and transport of Fed-LSVI (below), whose agents may be anywhere, or the parties of
another algorithm (`fedlsvi.algorithms.shared.comparator.Play`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Protocol, Self, cast

import numpy as np

from fedlsvi.config import Parameters
from fedlsvi.envs.base import Environment
from fedlsvi.envs.gym.world import GymWorld
from fedlsvi.experience.kinds import empty_values
from fedlsvi.experience.values import TabularValues
from fedlsvi.protocol.agent import Cohort
from fedlsvi.protocol.cohorts import cohorts_of
from fedlsvi.protocol.kept_models import KeptModels, refuse_many
from fedlsvi.protocol.ledger import Ledger
from fedlsvi.protocol.messages import Signal
from fedlsvi.protocol.passes import connect, in_process, second_pass
from fedlsvi.protocol.plan import Plan, schedule_of
from fedlsvi.protocol.records import LISTED, Ending, RoundRecord
from fedlsvi.protocol.regret_meter import meter_of
from fedlsvi.protocol.snapshot import Snapshot
from fedlsvi.protocol.transport import Transport

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Played:
    """What a player did in one round, as a record is made of it."""

    first: int
    last: int
    signals: int
    triggers: list[tuple[int, int]]
    logdet: np.ndarray  # (H,)
    gaps: np.ndarray | None  # (last − first + 1,) group regret of each episode, where it is known
    seconds: dict[str, float]
    rounds: int = 1
    overshoot: int = 0
    notes: list[str] = field(default_factory=list)
    mean_return: float | None = None
    fewest: int | None = None
    present: int | None = None
    steps: int | None = None
    clipped: int | None = None


class Player(Protocol):
    """What a session drives. It holds the model, the ledger and whoever plays.

    Attributes:
        algorithm: Its name in the registry.
        parameters: The numbers in force.
        plan: Environments and features; None where both are elsewhere.
        measured: Whether it knows regret.
        goes_on: Whether a longer run would have begun in the same way, numbers in force apart.
        counts: What the closed formula of the scalars needs beyond the records.
        values: The policy in force; None where no environment is here.
        cohorts: Cohorts in this process; none where the agents are elsewhere.
        elsewhere: Whether the agents are in other processes.
        deployed: The values of the pass after the last round; None before it, or without one.
        deployed_w: Its weights, (H, d); None likewise.
        fit: How well the model fits what agents saw, (M, H, 5); None where they did not say.
        t: Episodes that every agent has played.
        k: Rounds that have ended.
        w: (H, d) weights.
        gram: (H, d, d) Gram matrices, or (H, d) where they are diagonal.
        ledger: What was sent.
        noise_key: The secret of a private run's noise, where it is in this process.
    """

    @property
    def algorithm(self) -> str: ...
    @property
    def parameters(self) -> Parameters: ...
    @property
    def plan(self) -> Plan | None: ...
    @property
    def measured(self) -> bool: ...
    @property
    def goes_on(self) -> bool: ...
    @property
    def counts(self) -> Mapping[str, int]: ...
    @property
    def values(self) -> Any: ...
    @property
    def cohorts(self) -> Sequence[Cohort]: ...
    @property
    def elsewhere(self) -> bool: ...
    @property
    def deployed(self) -> Any: ...
    @property
    def deployed_w(self) -> np.ndarray | None: ...
    @property
    def fit(self) -> np.ndarray | None: ...
    @property
    def t(self) -> int: ...
    @property
    def k(self) -> int: ...
    @property
    def w(self) -> np.ndarray: ...
    @property
    def gram(self) -> np.ndarray: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def noise_key(self) -> bytes | None: ...

    def use_noise_key(self, key: bytes) -> None:
        """Go on with the noise of this secret, before the next round."""
        ...

    def dismiss(self) -> None:
        """The last round is written down: agents elsewhere delete what hid their uploads."""
        ...

    def start(self) -> None:
        """Make ready for the next round, at the beginning or after `restore`."""
        ...

    def may_end(self) -> bool:
        """Whether T may cut the next round short."""
        ...

    def play_round(self) -> Played:
        """Play until the next record is due."""
        ...

    def finish(self) -> list[str]:
        """The last round has been played; what is left to do belongs to its record. Returns the
        notes for it."""
        ...

    def rest(self) -> None:
        """The round has been recorded; nothing is under way."""
        ...

    def followed(self) -> np.ndarray | None:
        """(H, S) table of the policy in force; None where states are not finite."""
        ...

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Arrays and plain values from which `restore` continues, taken between rounds."""
        ...

    def history(self, first: int, last: int) -> Arrays:
        """Raw episodes after `first` up to `last` that `state` leaves out because they only grow;
        empty where the state space is finite. They stay on the agents' side."""
        ...

    def extend(self, first: int, arrays: Arrays) -> None:
        """Put back what `history` gave, in order, before `restore`."""
        ...

    def restore(self, arrays: Arrays, plain: Mapping[str, Any]) -> None:
        """Continue after the round at which `state` was taken."""
        ...

    def close(self) -> None:
        """End threads and connections."""
        ...


class Session:
    """A player, its records and its regret; can be saved between rounds and continued.

    Attributes:
        player: Who plays.
        records: One for each round so far.
        regret: (T,) cumulative group regret, filled up to episode `player.t`; None if unknown.
        models: (w, Λ) after each round, if `keep_models`.
        policies: The policy table before each round, if `keep_models` and states are finite.
        ending: How the run ended.
        before: The state before the last round, where T may have cut that one short.
    """

    def __init__(self, player: Player, keep_models: bool = False) -> None:
        self.player, self.keep_models = player, keep_models
        if keep_models:
            p = player.parameters
            few = player.algorithm == "fed-lsvi"  # others may have a record of every episode
            rounds = math.ceil(p.most_rounds(p.episodes)) if few else p.episodes
            refuse_many(rounds, p, player.gram, player.followed())
        self.records: list[RoundRecord] = []
        self.regret: np.ndarray | None = None
        if player.measured:
            self.regret = np.zeros(player.parameters.episodes)
        self.models: KeptModels | None = KeptModels() if keep_models else None
        self.policies: list[np.ndarray] = []
        self.ending: Ending = "unfinished"
        self.before: Snapshot | None = None

    @property
    def plan(self) -> Plan:
        """What is played; a session whose environments are elsewhere has none."""
        assert self.player.plan is not None
        return self.player.plan

    def rounds(self) -> Iterator[RoundRecord]:
        """Play to the end of the episode budget."""
        player = self.player
        player.start()
        while player.t < player.parameters.episodes:
            self.before = Snapshot.of(player) if player.may_end() else None
            if self.keep_models and (table := player.followed()) is not None:
                self.policies.append(table.copy())
            done = player.play_round()
            ended = player.t >= player.parameters.episodes
            late = [note for note in player.finish() if note not in done.notes] if ended else []
            regret = self._extend_regret(done)
            if self.models is not None:
                self.models.keep(player.w, player.gram, player.parameters.matrices)
            record = RoundRecord(
                k=player.k,
                first=done.first,
                last=done.last,
                signals=done.signals,
                triggers=done.triggers[:LISTED],
                logdet=done.logdet.tolist(),
                scalars=player.ledger.scalars,
                regret=regret,
                overshoot=done.overshoot,
                seconds=done.seconds,
                notes=[*done.notes, *late],
                mean_return=done.mean_return,
                rounds=done.rounds,
                fewest=done.fewest,
                present=done.present,
                steps=done.steps,
                clipped=done.clipped,
            )
            self.records.append(record)
            player.rest()
            self.ending = "finished" if ended else self.ending
            yield record

    def _extend_regret(self, done: Played) -> float | None:
        """Extend the curve of cumulative regret by the round's episodes."""
        if self.regret is None or done.gaps is None:
            return None
        before = self.regret[done.first - 2] if done.first > 1 else 0.0
        self.regret[done.first - 1 : done.last] = before + np.cumsum(done.gaps)
        return float(self.regret[done.last - 1])

    def restore(
        self,
        arrays: Arrays,
        plain: Mapping[str, Any],
        regret: np.ndarray | None,
        records: Sequence[RoundRecord],
    ) -> None:
        """Continue after the round at which the player's `state` was taken."""
        self.player.restore(arrays, plain)
        self.records = list(records)
        if regret is not None and self.regret is not None:
            self.regret[: len(regret)] = regret

    def close(self) -> None:
        """End threads and connections."""
        self.player.close()


class FederatedPlayer:
    """Algorithm 1 on a transport: Fed-LSVI's server, and its agents wherever they are."""

    def __init__(
        self,
        parameters: Parameters,
        transport: Transport,
        plan: Plan | None = None,
        cohorts: Sequence[Cohort] = (),
        algorithm: str = "fed-lsvi",
        values: TabularValues | None = None,
        seed: int = 0,
    ) -> None:
        """Make the server.

        Args:
            parameters: The numbers in force.
            transport: The way to the agents.
            plan: Environments and features, to measure regret and to act with the policy; None
                where they are known to the agents alone.
            cohorts: The agents, where they are in this process.
            algorithm: The name that the run reports.
            values: With one trip per synchronisation and no plan: what turns models into values.
            seed: Of the run, where there is no plan.
        """
        p = self.parameters = parameters
        self.plan, self.transport, self.cohorts = plan, transport, cohorts
        self.algorithm, self.goes_on = algorithm, bool(cohorts) and not p.pessimistic
        own = values
        if plan is not None and p.exchange == "one-trip" and own is None:
            own = cast("TabularValues", empty_values(plan))
        self.server, self.agents, self.between = connect(p, transport, own)
        self.values: Any = None
        if plan is not None:
            here = bool(cohorts) and not p.own_features
            self.values = cohorts[0].values if here else empty_values(plan)
        self.meter = None if plan is None else meter_of(plan)
        if p.own_features and not cohorts:  # each policy is known where its agent is
            self.meter = None
        self.measured = self.meter is not None
        self.deployed_w: np.ndarray | None = None  # (H, d) of the pass after the last round
        self.deployed: Any = None
        self.fit: np.ndarray | None = None  # (M, H, 5) of that pass
        self._ledger: Ledger | None = None
        self.logged: Mapping[str, int] = {}
        if p.some_away:
            schedule = schedule_of(p, seed if plan is None else plan.seed)
            transport.membership.follow(schedule, p.logged > 0)
        if plan is not None and plan.prior is not None:
            plan.prior.begin(self.server)

    @classmethod
    def of(
        cls,
        plan: Plan,
        cohorts: int = 1,
        transport: Transport | None = None,
        algorithm: str = "fed-lsvi",
    ) -> Self:
        """The player of a plan; without a transport its agents are here, in so many cohorts."""
        p = plan.parameters
        if transport is not None:
            return cls(p, transport, plan, algorithm=algorithm)
        here = cohorts_of(plan, cohorts, together=True)
        return cls(p, in_process(here, p), plan, here, algorithm)

    @property
    def t(self) -> int:
        return self.server.t

    @property
    def k(self) -> int:
        return self.server.k

    @property
    def w(self) -> np.ndarray:
        return self.server.w

    @property
    def gram(self) -> np.ndarray:
        return self.server.gram

    @property
    def ledger(self) -> Ledger:
        return self.transport.ledger

    @property
    def counts(self) -> Mapping[str, int]:
        found: dict[str, int] = dict(self.logged)
        if self.plan is not None and self.plan.logs:
            from fedlsvi.protocol.warm_start import logged_counts

            found |= logged_counts(self.plan)
        p = self.parameters
        if p.aggregation == "secure":
            found["sites"] = len(self.transport.sites())
        elif p.exchange == "one-trip":  # what N took, which depends on what was seen
            found["next_state_scalars"] = self.ledger.single("up_stats")
        if p.privacy is not None and p.privacy["unit"] == "user" and self.cohorts:
            named = [cohort.experience.names_users for cohort in self.cohorts]
            found["named_users"] = int(all(named))
        return found

    @property
    def elsewhere(self) -> bool:
        return not self.cohorts

    def followed(self) -> np.ndarray | None:
        return None if self.values is None else cast("np.ndarray | None", self.values.policy)

    def start(self) -> None:
        self.server.start(self.agents)
        if self._ledger is not None:  # what a restart sends again is not part of the run
            self.transport.ledger = self._ledger
        elif self.parameters.logged:
            from fedlsvi.protocol.warm_start import read_logs

            read_logs(self.server, self.agents)
        self._follow()

    def may_end(self) -> bool:
        return self.goes_on and self.transport.may_end(self.server.t)

    def play_round(self) -> Played:
        began = perf_counter()
        if self.meter is not None:
            self.meter.follow(*self._policies())
        measured, before = perf_counter(), self._stepped()
        done = self.server.round(self.agents)
        ended, last = perf_counter(), self.server.t
        gaps = self._gaps(done.first, last - done.first + 1)
        explored, signal = self.transport.explored, done.signal
        seconds = {
            "explore": explored,
            "synchronise": ended - measured - explored,
            "evaluate": perf_counter() - ended + measured - began,
        }
        self._follow()
        steps, clipped = since(before, self._stepped())
        return Played(
            first=done.first,
            last=last,
            signals=len(signal.agents),
            triggers=_listed(signal),
            logdet=done.logdet,
            gaps=gaps,
            seconds=seconds,
            overshoot=self.transport.kept,
            notes=self.transport.take_notes(),
            mean_return=None if self.measured else self._mean_return(done.first, last),
            fewest=self._fewest(done.first, last),
            present=self._present(),
            steps=steps,
            clipped=clipped,
        )

    def finish(self) -> list[str]:
        p = self.parameters
        if not p.exploit:
            return []
        self.deployed_w, fit = second_pass(self.server, self.agents, -p.pessimism)
        self.fit = fit if p.fits else None
        self._deploy()
        return self.transport.take_notes()

    def _policies(self) -> list[Any]:
        """The policy in force, or each agent's."""
        if not self.parameters.own_features:
            return [self.values]
        return [cohort.values for cohort in self.cohorts]

    def _deploy(self) -> None:
        """The policy of the last backward pass, where there is an environment to act in."""
        if self.values is None or self.deployed_w is None:
            return
        deployed = self.values.another(-self.parameters.pessimism)
        for h in range(self.parameters.horizon, 0, -1):
            deployed.update(h, self.deployed_w[h - 1], self.server.gram[h - 1])
        self.deployed = deployed

    def _played_by(self) -> np.ndarray | None:
        """Numbers of the agents that played the round; None is all, as far as is known here."""
        attendance = self.transport.membership.attendance
        players = None
        if self.plan is not None and self.plan.logs:
            players = np.array(self.plan.players, np.int64)
            players = None if len(players) == self.parameters.n_agents else players
        if attendance is None:
            return players
        there = attendance.there
        return there if players is None else np.intersect1d(there, players)

    def _present(self) -> int | None:
        """How many agents played; None is all of them, as far as is known here."""
        played_by = self._played_by()
        return None if played_by is None else len(played_by)

    def _gaps(self, first: int, n: int) -> np.ndarray | None:
        """(n,) regret of who played the round's episodes, where it is known."""
        if self.meter is None:
            return None
        attendance, agents = self.transport.membership.attendance, self._played_by()
        if attendance is None or agents is None:
            return self.meter.regret(first, n)
        return self.meter.regret_of(agents, attendance.played[agents] + 1, n)

    def rest(self) -> None:
        self.transport.membership.close(self.server.t)
        self.transport.rest(self.server.k, self.server.t)

    def _follow(self) -> None:
        """Where the agents are elsewhere, or have coefficients of their own, no cohort here keeps
        the values up to date."""
        if self.values is not None and (not self.cohorts or self.parameters.own_features):
            weights = self.server.weights
            for h in range(self.parameters.horizon, 0, -1):
                self.values.update(h, weights[h - 1], self.server.gram[h - 1])

    def _stepped(self) -> tuple[int, int] | None:
        """What the agents here have done in a black box so far."""
        return stepped(self.plan.worlds) if self.plan is not None and self.cohorts else None

    def _mean_return(self, first: int, last: int) -> float | None:
        """What the agents here earned per episode of the round, in the world's own units."""
        earned = [cohort.experience.returns(first - 1, last) for cohort in self.cohorts]
        known = [part for part in earned if part is not None]
        if not known or len(known) < len(earned):
            return None
        return float(np.concatenate(known).mean())

    def _fewest(self, first: int, last: int) -> int | None:
        """Episodes in the emptiest Gram matrix of the round, where the agents here count them."""
        counts = [cohort.experience.fewest(first - 1, last) for cohort in self.cohorts]
        known = [count for count in counts if count is not None]
        return min(known) if known and len(known) == len(counts) else None

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        arrays, own = self.transport.state(self.server.t)
        matrices = self.server.layout.matrices
        arrays |= {"w": self.server.w, "gram": self.server.gram[:matrices]}
        if self.parameters.noisy:
            arrays["noise"] = self.server.noise
        if self.deployed_w is not None:
            arrays["exploit.w"] = self.deployed_w
        if self.fit is not None:
            arrays["fit"] = self.fit
        if self.between is not None:
            arrays |= self.between.state()
        for c, cohort in enumerate(self.cohorts):
            arrays |= {f"cohort{c}.{k}": v for k, v in cohort.state().items()}
        plain = {
            "t": self.server.t,
            "k": self.server.k,
            "last": self.transport.last,
            "ledger": self.transport.ledger.to_dict(),
            "transport": own,
            "counts": dict(self.counts),
        }
        return arrays, plain

    @property
    def noise_key(self) -> bytes | None:
        return self.transport.noise_key

    def use_noise_key(self, key: bytes) -> None:
        self.transport.use_noise_key(key)

    def dismiss(self) -> None:
        self.transport.dismiss()

    def history(self, first: int, last: int) -> Arrays:
        arrays: Arrays = {}
        for c, cohort in enumerate(self.cohorts):
            part = cohort.experience.history(first, last)
            arrays |= {f"cohort{c}.{k}": v for k, v in part.items()}
        return arrays

    def extend(self, first: int, arrays: Arrays) -> None:
        for c, cohort in enumerate(self.cohorts):
            cohort.experience.extend(first, part_of(f"cohort{c}", arrays))

    def restore(self, arrays: Arrays, plain: Mapping[str, Any]) -> None:
        self.server.w[:], self.server.gram[:] = arrays["w"], arrays["gram"]
        if self.parameters.noisy:
            self.server.noise[:] = arrays["noise"]
        self.server.t, self.server.k = plain["t"], plain["k"]
        self.transport.last = plain["last"]
        if self.between is not None:
            self.between.restore(arrays)
        self.transport.restore(arrays, plain["transport"], plain["t"], plain["k"])
        for c, cohort in enumerate(self.cohorts):
            cohort.restore(part_of(f"cohort{c}", arrays))
        self._ledger = Ledger.from_dict(plain["ledger"])
        if "exploit.w" in arrays:
            self.deployed_w = arrays["exploit.w"]
        self.fit = arrays.get("fit")

    def close(self) -> None:
        for cohort in self.cohorts:
            cohort.experience.workers.close()
        self.transport.close()


def stepped(envs: Iterable[Environment]) -> tuple[int, int] | None:
    """Steps taken here in black boxes so far, and rewards of theirs that were clipped; None where
    nothing is stepped."""
    worlds = {id(env): env for env in envs if isinstance(env, GymWorld)}.values()
    if not worlds:
        return None
    return sum(env.stepped for env in worlds), sum(env.clipped for env in worlds)


def _listed(signal: Signal) -> list[tuple[int, int]]:
    """The first agents that signalled, with their steps: a record has no more."""
    agents, steps = signal.agents[:LISTED], signal.steps[:LISTED]
    return list(zip(agents.tolist(), steps.tolist(), strict=True))


def since(
    before: tuple[int, int] | None, now: tuple[int, int] | None
) -> tuple[int | None, int | None]:
    """Steps and clipped rewards between two readings of `stepped`."""
    if before is None or now is None:
        return None, None
    return now[0] - before[0], now[1] - before[1]


def part_of(name: str, arrays: Arrays) -> Arrays:
    """The arrays that are called `name.…`, without that prefix."""
    prefix = f"{name}."
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
