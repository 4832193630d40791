"""Mistakes in an algorithm of one's own are refused with a sentence that says what to change."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedlsvi.algorithms import check_algorithm, make, register, registry
from fedlsvi.algorithms.shared.comparator import Comparator, Play, Stretch
from fedlsvi.algorithms.shared.explorer import Explorer
from fedlsvi.algorithms.shared.lsvi_sums import Memory
from fedlsvi.algorithms.shared.settings import LinearSettings
from fedlsvi.envs import RandomMDP
from fedlsvi.errors import InvalidInput


class Pooling(Play):
    """Everybody's trajectories go to the server after every fifth episode; no mistake."""

    algorithm = "own"

    def __init__(self, plan: Any, settings: Any, keep_models: bool) -> None:
        super().__init__(plan, settings, keep_models)
        everyone = np.arange(plan.parameters.n_agents)
        self.agents, self.seat = Explorer(plan, everyone), self.ruler.seat(everyone)
        self.memory = Memory(plan)
        self.memory.replan()
        self.values = self.memory.values

    def advance(self) -> Stretch:
        first, n = self.t + 1, min(5, self.episodes - self.t)
        seen = self.agents.play(first, n, self.values.policy)
        self.hold(first, n)
        self.learn(seen)
        return self.done(first, n)

    def hold(self, first: int, n: int) -> None:
        self.seat.hold(first, n, self.memory.values.policy)

    def learn(self, seen: Any) -> None:
        self.memory.add(self.channel.gather("up_raw", *seen))
        self.memory.replan()

    def done(self, first: int, n: int) -> Any:
        return Stretch(first + n - 1)

    def report(self) -> Any:
        return self.memory.w, self.memory.gram

    def parties(self) -> Any:
        return {"server": self.memory}

    def resumed(self) -> None:
        self.memory.replan()


def registered(monkeypatch: pytest.MonkeyPatch, **mistakes: Any) -> None:
    """The algorithm "own", with these methods in place of the right ones."""
    monkeypatch.setattr(registry.REGISTRY, "rows", dict(registry.REGISTRY.rows))
    play = type("OwnPlay", (Pooling,), mistakes)
    members = {"name": "own", "settings_type": LinearSettings, "play_type": play}
    register("own", type("Own", (Comparator,), members), "an algorithm of one's own")


def learn(episodes: int = 12) -> Any:
    env = RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1)
    return make("own", n_agents=3).learn(env, episodes, progress=False)


def refusal(act: Callable[[], Any]) -> str:
    with pytest.raises(InvalidInput) as caught:
        act()
    return str(caught.value)


def test_without_a_mistake_it_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    registered(monkeypatch)
    check_algorithm("own")


def named(value: Any) -> str:
    """Functions have no name that is the same in every process."""
    return value if isinstance(value, str) else "own"


def held(*spans: tuple[int, int]) -> dict[str, Any]:
    """Holds other episodes than (0, n), counted from the first that was played."""

    def hold(self: Any, first: int, n: int) -> None:
        for offset, length in spans:
            self.seat.hold(first + offset, length or n, self.values.policy)

    return {"hold": hold}


def done(value: Any) -> dict[str, Any]:
    return {"done": lambda self, first, n: value(first, n) if callable(value) else value}


def reported(w: Any, gram: Any = 1.0) -> dict[str, Any]:
    """The right model, times these numbers."""
    return {"report": lambda self: (self.memory.w * w, self.memory.gram * gram)}


def first_agent_thrice(self: Any, first: int, n: int) -> None:
    for _ in range(3):
        self.ruler.seat([0]).hold(first, n, self.values.policy)


class Mute:
    """A party without state."""


class Plain:
    """A party whose state is a number."""

    def state(self) -> Any:
        return {"x": 3.0}

    def restore(self, state: Any) -> None:
        """Nothing."""


HALF = {"hold": lambda self, first, n: self.seat.hold(first, (n + 1) // 2, self.values.policy)}
ONE = {"hold": lambda self, first, n: self.ruler.seat([1]).hold(first, n, self.values.policy)}


@pytest.mark.parametrize(("mistakes", "sentence"), [
    (HALF, "own: 0 of 3 agents were held in episode 4: advance() must call seat.hold for every"),
    (ONE, "own: 1 of 3 agents were held in episode 1"),
    (held(), "own: 0 of 3 agents were held in episode 1"),
    (held((0, 0), (0, 0)), "agent 0 was held up to episode 5 before: hold each agent once"),
    ({"hold": first_agent_thrice}, "agent 0 was held up to episode 5 before: hold each agent once"),
    (held((-1, 0)), "seat.hold(first=0, n=5): episodes are 1 … 12"),
    (done(None), "own: advance() returned None: it must return a Stretch"),
    (done(lambda first, n: first + n - 1), "own: advance() returned 5: it must return a Stretch"),
    (done(lambda first, n: Stretch(first - 1)), "Stretch(last=0): last must be an integer from 1"),
    (done(lambda first, n: Stretch(first + 99)), "last must be an integer from 1 to 12"),
    (done(lambda first, n: Stretch(last=n / 1)), "Stretch(last=5.0): last must be an integer"),
    (done(lambda first, n: Stretch(5, -1)), "Stretch(rounds=-1): rounds must be an integer of at"),
    (done(lambda first, n: Stretch(5, 1, [(99, 99)])), "the trigger (99, 99): triggers is a list"),
    (done(lambda first, n: Stretch(5, 1, [(0, 4)])), "agents 0 … 2, steps 1 … 3 or 0 for the end"),
    (done(lambda first, n: Stretch(5, 1, [(1.0, 2.0)])), "the trigger (1.0, 2.0): triggers is a"),
    (done(lambda first, n: Stretch(5, 1, [(True, 0)])), "the trigger (True, 0): triggers is a l"),
    (done(lambda first, n: Stretch(5, 1, [7])), "the trigger 7: triggers is a list of (agent, st"),
    (reported(np.nan), "own: report() returned w with entries that are not finite numbers"),
    (reported(1.0, np.inf), "own: report() returned Λ with entries that are not finite numbers"),
    ({"report": lambda self: (self.memory.w[:1], self.memory.gram)},
     "own: report() returned w as an array of shape (1, 12): it must be an array of shape (3, 12)"),
    ({"report": lambda self: (0.0, self.memory.gram)}, "own: report() returned w as 0.0: it must"),
    ({"report": lambda self: self.memory.w[0]}, "own: report() must return (w, Λ), or None, got"),
], ids=named)  # fmt: skip
def test_every_run_refuses(
    mistakes: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered(monkeypatch, **mistakes)
    assert sentence in refusal(learn)


def sends(send: Any) -> dict[str, Any]:
    return {"hold": lambda self, first, n: send(self.channel)}


ROW = np.zeros((3, 2))


@pytest.mark.parametrize(("mistakes", "sentence"), [
    (sends(lambda c: c.broadcast("nope", ROW)), "unknown category of the ledger 'nope': choose"),
    (sends(lambda c: c.send(0, "up_stat", ROW)), "'up_stat': did you mean 'up_stats'?"),
    (sends(lambda c: c.gather(ROW, ROW)), "unknown category of the ledger 'ndarray': choose from"),
    (sends(lambda c: c.send(-1, "up_raw", ROW)), "there is no agent -1, agents are 0 … 2"),
    (sends(lambda c: c.gather("up_raw", ROW[:2])), "has shape (2, 2), but its first axis must be"),
    (sends(lambda c: c.send(0, "up_raw", {"all": 1})), "send arrays of real numbers, not of obj"),
    ({"hold": lambda self, first, n: self.ruler.seat([0, 3])}, "a list of agents, 0 … 2, each"),
    ({"hold": lambda self, first, n: self.seat.hold(first, n, self.values.policy[:2])},
     "the policy has shape (2, 4): it must be an integer array of shape (H, S) = (3, 4)"),
    ({"hold": lambda self, first, n: self.seat.hold(first, n, self.values.policy + 3)},
     "the policy names actions from 3 to 3: it must be an integer array"),
    ({"hold": lambda self, first, n: self.seat.hold(first, n, self.values.policy * 1.0)},
     "the policy has entries of type float64: it must be an integer array"),
    ({"hold": lambda self, first, n: self.agents.play(first, n, self.values.policy * 1.0)},
     "the policy has entries of type float64: it must be an integer array"),
    (sends(lambda c: c.signal(np.array([1, -1]), 3)), "agents are 0 … 2, got [1, -1]"),
    (sends(lambda c: c.signal(np.array([3]), 3)), "channel.signal: agents are 0 … 2, got [3]"),
    ({"hold": lambda self, first, n: self.seat.hold(first, n, self.values.policy - 1)},
     "the policy names actions from -1 to -1: it must be an integer array"),
    ({"hold": lambda self, first, n: self.agents.play(first, n, self.values.policy - 3)},
     "the policy names actions from -3 to -3: it must be an integer array"),
], ids=named)  # fmt: skip
def test_the_instruments_refuse(
    mistakes: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered(monkeypatch, **mistakes)
    assert sentence in refusal(learn)


def nobody_tells(self: Any, seen: Any) -> None:
    self.memory.add(seen)
    self.memory.replan()


def tosses(self: Any, seen: Any) -> None:
    random.random()
    Pooling.learn(self, seen)


def late(self: Any, first: int, n: int) -> Any:
    """Holds a policy that has been renewed since it was played."""
    self.seat.hold(first, n, self.memory.values.policy)
    return Stretch(first + n - 1)


def elsewhere(self: Any, plan: Any, settings: Any, keep_models: bool) -> None:
    """What it reports, and plays, is a policy that nobody renews."""
    Pooling.__init__(self, plan, settings, keep_models)
    self.values = plan.values()


def signals_twice(self: Any, seen: Any) -> None:
    self.channel.signal(np.array([1, 1]), self.t)
    Pooling.learn(self, seen)


def counts(self: Any, seen: Any) -> None:
    self.counts = {"seen": np.int64(3)}
    Pooling.learn(self, seen)


@pytest.mark.parametrize(("mistakes", "sentence"), [
    ({"parties": lambda self: None}, "own: parties() returned None: it must return a dict"),
    ({"parties": lambda self: {"x": Mute()}}, "names 'x', a Mute without state(): state() returns"),
    ({"parties": lambda self: {"x": Plain()}}, "state() of party 'x' must return a dict of arrays"),
    ({"parties": lambda self: {"server": self.memory, "agent0": self.memory}},
     "parties 'server' and 'agent0' share an array"),
    ({"learn": nobody_tells}, "nothing was sent, but agent 0's model depends on what other agents"),
    ({"learn": tosses}, "draws from Python's or NumPy's global generator"),
    ({"hold": lambda self, first, n: None, "done": late}, "is not that of the policy which self"),
    ({"__init__": elsewhere}, "is not that of the policy which self.values"),
    ({"learn": signals_twice}, "the ledger counts an agent twice"),
    ({"learn": counts}, "self.counts must be a dict of Python's integers"),
    (reported(1.0, -1.0), "log det Λ is not finite in record 0"),
], ids=named)  # fmt: skip
@pytest.mark.filterwarnings("ignore:invalid value")
def test_the_check_refuses(
    mistakes: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered(monkeypatch, **mistakes)
    assert sentence in refusal(lambda: check_algorithm("own"))


def test_integers_of_numpy_become_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record can be written down, whatever kind of integer its author counted with."""

    def numpy(first: int, n: int) -> Stretch:
        one = np.int64(1)
        return Stretch(np.int64(first + n - 1), one, [(one, one)], one)  # type: ignore[list-item, arg-type]

    registered(monkeypatch, **done(numpy))
    record = learn().records[-1]
    found = [record.k, record.last, record.rounds, record.signals, *record.triggers[0]]
    assert all(type(value) is int for value in found)
