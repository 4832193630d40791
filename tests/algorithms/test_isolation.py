"""Nobody learns anything about another agent's data except through the channel.

Three ways to look: parties share no memory; what arrives is a frozen copy; and with the wire cut,
an agent's model does not depend on what the others meet.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from algorithms.roster import AGENTS, ANCHOR, NAMES, make, strangers
from fedlsvi.algorithms.coop_lsvi import CoopLSVI, CoopPlay
from fedlsvi.algorithms.shared.channel import Channel
from fedlsvi.algorithms.shared.comparator import Play
from fedlsvi.algorithms.shared.regret_meter import GroupMeter, RunMeter
from fedlsvi.envs.base import Environment
from fedlsvi.experience.workers import Workers
from fedlsvi.features.base import FeatureMap
from fedlsvi.protocol.agent import Cohort
from fedlsvi.protocol.messages import Upload
from fedlsvi.protocol.plan import Plan

SEVERAL = [name for name in NAMES if name != ANCHOR]

OUTSIDE = (
    Plan,
    RunMeter,
    GroupMeter,
    Environment,
    FeatureMap,
    Workers,
    types.FunctionType,
    types.MethodType,
)
"""The problem itself and the instruments that measure it belong to no party."""


def arrays_of(thing: Any, seen: set[int] | None = None) -> Iterator[np.ndarray]:
    """Every array that can be reached from a party."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, OUTSIDE):
        return
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        yield thing
        if thing.base is not None:
            yield from arrays_of(thing.base, seen)
    elif isinstance(thing, dict):
        for value in thing.values():
            yield from arrays_of(value, seen)
    elif isinstance(thing, list | tuple | set):
        for value in thing:
            yield from arrays_of(value, seen)
    elif hasattr(thing, "__dict__"):
        yield from arrays_of(vars(thing), seen)


def parties(session: Any) -> dict[str, Any]:
    if isinstance(session.player, Play):
        return session.player.parties()
    cohorts = {f"cohort{c}": cohort for c, cohort in enumerate(session.player.cohorts)}
    return cohorts | {"server": session.player.server}


def shared(session: Any) -> list[tuple[str, str]]:
    """Pairs of parties that hold memory in common. What nobody can write to is no leak, nor is the
    description of the problem that all of them were given."""
    given = list(arrays_of(vars(session.plan.features)))
    for env in session.plan.envs:
        given += list(arrays_of(vars(env)))
    found = []
    held = {
        name: [
            a for a in arrays_of(party)
            if a.flags.writeable and a.size and not any(np.may_share_memory(a, g) for g in given)
        ]
        for name, party in parties(session).items()
    }  # fmt: skip
    names = list(held)
    for i, one in enumerate(names):
        for two in names[i + 1 :]:
            if any(np.may_share_memory(a, b) for a in held[one] for b in held[two]):
                found.append((one, two))
    return found


def prepared(name: str, other: int = 7, **settings: Any) -> Any:
    return make(name, **settings).prepare(strangers(other), 40, 2, cohorts=AGENTS)


@pytest.mark.parametrize("name", SEVERAL)
def test_parties_share_no_memory(name: str) -> None:
    session = prepared(name)
    assert len(parties(session)) >= 2
    for record in session.rounds():
        if record.k in (1, 2, 5) or record.last == 40:
            assert shared(session) == []
    session.close()


class Cheat(CoopPlay):
    """Coop-LSVI as some public code has it: after a synchronisation all agents hold one buffer."""

    def exchange(self) -> None:
        super().exchange()
        for agent in self.agents:
            agent.sums = self.agents[0].sums


class CheatingCoop(CoopLSVI):
    play_type = Cheat


class Peek(CoopPlay):
    """An agent that only looks: it holds a view of another's sums."""

    def exchange(self) -> None:
        super().exchange()
        self.agents[1].window = self.agents[0].sums.u[:1]  # type: ignore[attr-defined]


class PeekingCoop(CoopLSVI):
    play_type = Peek


@pytest.mark.parametrize("kind", [CheatingCoop, PeekingCoop])
def test_a_shared_reference_is_noticed(kind: Any) -> None:
    """The test above fails for algorithms that share for free."""
    session = kind(n_agents=AGENTS, threshold=1.0).prepare(strangers(7), 40, 2)
    list(session.rounds())
    assert shared(session)


@pytest.mark.parametrize("name", SEVERAL)
def test_what_arrives_is_a_frozen_copy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages are read-only, count what they carry, and alias nobody's memory."""
    session = prepared(name)
    before = sum(session.player.ledger.scalars.values())
    carried = 0

    def watch(method: str, copies: int) -> None:
        original = getattr(Channel, method)

        def send(self: Channel, *arguments: Any) -> Any:
            nonlocal carried
            arrived = original(self, *arguments)
            for array in arrived:
                assert not array.flags.writeable
                carried += copies * array.size
                for party in parties(session).values():
                    assert not any(np.may_share_memory(array, a) for a in arrays_of(party))
            return arrived

        monkeypatch.setattr(Channel, method, send)

    watch("send", 1)
    watch("gather", 1)
    watch("broadcast", AGENTS)
    for record in session.rounds():
        if record.k > 3:
            break
    if isinstance(session.player, Play):
        scalars = session.player.ledger.scalars
        assert carried == sum(scalars.values()) - scalars["signal"] - before
    session.close()


@pytest.mark.parametrize("name", SEVERAL)
def test_with_the_wire_cut_nobody_learns_from_others(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uploads arrive empty. Then agent 0's model (or the server's) cannot depend on the
    environments of the other agents; if it does, there is another way than the channel."""

    def cut(method: str) -> None:
        original = getattr(Channel, method)

        def send(self: Channel, *arguments: Any) -> Any:
            arrived = original(self, *arguments)
            category = next(word for word in arguments if isinstance(word, str))
            if category == "up_stats":
                arrived = tuple(np.zeros_like(array) for array in arrived)
            elif category in ("up_raw", "down_raw"):
                arrived = tuple(np.ascontiguousarray(array[..., :0]) for array in arrived)
            for array in arrived:
                array.setflags(write=False)
            return arrived

        monkeypatch.setattr(Channel, method, send)

    cut("send")
    cut("gather")
    upload = Cohort.upload

    def nothing(self: Cohort, h: int) -> Upload:
        sent = upload(self, h)
        return Upload(h, np.zeros_like(sent.gram), np.zeros_like(sent.b))

    monkeypatch.setattr(Cohort, "upload", nothing)
    runs = []
    for other in (7, 8):
        learner = make(name)
        runs.append(learner.learn(strangers(other), 40, 2, progress=False, cohorts=AGENTS))
    assert runs[0].w.tobytes() == runs[1].w.tobytes()
    assert runs[0].gram.tobytes() == runs[1].gram.tobytes()
    assert np.array_equal(runs[0].policy.table, runs[1].policy.table)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("independent", {}),
        ("low-switching", {}),
        ("rare-switch", {}),
        ("coop-lsvi", {"threshold": 1e12}),
        ("coopts-phe", {"threshold": 1e12}),
        ("coopts-lmc", {"threshold": 1e12}),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_agents_that_never_speak_are_alone(name: str, settings: dict[str, Any]) -> None:
    """Without a message the group's regret is the sum of what each agent does on its own: agent
    0's share does not change when the others' environments do."""
    alone = make(name, 1, **settings).learn(strangers(7)[:1], 40, 2, progress=False)
    for other in (7, 8):
        run = make(name, **settings).learn(strangers(other), 40, 2, progress=False)
        assert run.ledger.total == 0
        assert run.w.tobytes() == alone.w.tobytes()
        assert run.gram.tobytes() == alone.gram.tobytes()
