"""Mistakes in a custom algorithm are refused."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from expecting import refused
from fedlsvi.algorithms import check_algorithm, make, register, registry
from fedlsvi.algorithms.shared.comparator import Comparator, Play, Segment
from fedlsvi.algorithms.shared.explorer import Explorer
from fedlsvi.algorithms.shared.lsvi_sums import LSVISums
from fedlsvi.algorithms.shared.settings import LinearSettings
from fedlsvi.envs import RandomMDP
from fedlsvi.errors import InvalidInput
from fedlsvi.experience.kinds import empty_values


class Pooling(Play):
    """Everybody's trajectories go to the server after every fifth episode; no mistake."""

    algorithm = "own"

    def __init__(self, plan: Any, settings: Any, keep_models: bool) -> None:
        super().__init__(plan, settings, keep_models)
        everyone = np.arange(plan.parameters.n_agents)
        self.agents, self.meter = Explorer(plan, everyone), self.regret_meter.group(everyone)
        self.sums = LSVISums(plan)
        self.sums.backward_pass()
        self.values = self.sums.values

    def advance(self) -> Segment:
        first, n = self.t + 1, min(5, self.episodes - self.t)
        seen = self.agents.play(first, n, self.values.policy)
        self.measure(first, n)
        self.learn(seen)
        return self.done(first, n)

    def measure(self, first: int, n: int) -> None:
        self.meter.record(first, n, self.sums.values.policy)

    def learn(self, seen: Any) -> None:
        self.sums.add(self.channel.gather("up_raw", *seen))
        self.sums.backward_pass()

    def done(self, first: int, n: int) -> Any:
        return Segment(first + n - 1)

    def report(self) -> Any:
        return self.sums.w, self.sums.gram

    def parties(self) -> Any:
        return {"server": self.sums}

    def resumed(self) -> None:
        self.sums.backward_pass()


def registered(monkeypatch: pytest.MonkeyPatch, **mistakes: Any) -> None:
    """The algorithm "own", with these methods in place of the right ones."""
    monkeypatch.setattr(registry.REGISTRY, "rows", dict(registry.REGISTRY.rows))
    play = type("OwnPlay", (Pooling,), mistakes)
    members = {"name": "own", "settings_type": LinearSettings, "play_type": play}
    register("own", type("Own", (Comparator,), members), "a custom algorithm")


def learn(episodes: int = 12) -> Any:
    env = RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1)
    return make("own", n_agents=3).learn(env, episodes, progress=False)


def test_without_a_mistake_it_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    registered(monkeypatch)
    check_algorithm("own")


def named(value: Any) -> str:
    """Functions have no name that is the same in every process."""
    return value if isinstance(value, str) else "own"


def recorded(*spans: tuple[int, int]) -> dict[str, Any]:
    """Records other episodes than (0, n), counted from the first that was played."""

    def measure(self: Any, first: int, n: int) -> None:
        for offset, length in spans:
            self.meter.record(first + offset, length or n, self.values.policy)

    return {"measure": measure}


def done(value: Any) -> dict[str, Any]:
    return {"done": lambda self, first, n: value(first, n) if callable(value) else value}


def reported(w: Any, gram: Any = 1.0) -> dict[str, Any]:
    """The right model, times these numbers."""
    return {"report": lambda self: (self.sums.w * w, self.sums.gram * gram)}


def first_agent_thrice(self: Any, first: int, n: int) -> None:
    for _ in range(3):
        self.regret_meter.group([0]).record(first, n, self.values.policy)


class Mute:
    """A party without state."""


class Plain:
    """A party whose state is a number."""

    def state(self) -> Any:
        return {"x": 3.0}

    def restore(self, state: Any) -> None:
        """Nothing."""


HALF = {
    "measure": lambda self, first, n: self.meter.record(first, (n + 1) // 2, self.values.policy)
}
ONE = {
    "measure": lambda self, first, n: self.regret_meter.group([1]).record(
        first, n, self.values.policy
    )
}


def segment(*fields: Any) -> dict[str, Any]:
    return done(lambda first, n: Segment(*fields))


@pytest.mark.parametrize(("mistakes", "code", "fragments"), [
    (HALF, "agents-not-recorded", "own; 0 of 3 agents; episode 4"),
    (ONE, "agents-not-recorded", "1 of 3 agents; episode 1"),
    (recorded(), "agents-not-recorded", "0 of 3 agents; episode 1"),
    (recorded((0, 0), (0, 0)), "recorded-twice", "agent 0; episode 5"),
    ({"measure": first_agent_thrice}, "recorded-twice", "agent 0; episode 5"),
    (recorded((-1, 0)), "no-such-episodes", "first=0; n=5; 1 … 12"),
    (done(None), "bad-segment", "own; None"),
    (done(lambda first, n: first + n - 1), "bad-segment", "own; 5"),
    (segment(0), "bad-last", "from 1 to 12; got 0; own"),
    (segment(100), "bad-last", "from 1 to 12; got 100"),
    (segment(5.0), "bad-last", "got 5.0"),
    (segment(True), "bad-last", "got True"),
    (segment(5, -1), "bad-rounds", "got -1; own"),
    (segment(5, 1, [], -1), "bad-signals", "got -1; own"),
    (segment(5, 1, [(99, 99)]), "bad-triggers", "own; (99, 99); 0 … 2; 1 … 3"),
    (segment(5, 1, [(0, 4)]), "bad-triggers", "(0, 4)"),
    (segment(5, 1, [(1.0, 2.0)]), "bad-triggers", "(1.0, 2.0)"),
    (segment(5, 1, [(True, 0)]), "bad-triggers", "(True, 0)"),
    (segment(5, 1, [7]), "bad-triggers", "trigger 7"),
    (reported(np.nan), "model-not-finite", "own; returned w"),
    (reported(1.0, np.inf), "model-not-finite", "own; returned Λ"),
    ({"report": lambda self: (self.sums.w[:1], self.sums.gram)},
     "bad-model-shape", "own; (1, 12); (3, 12)"),
    ({"report": lambda self: (0.0, self.sums.gram)}, "bad-model-shape", "own; 0.0; (3, 12)"),
    ({"report": lambda self: self.sums.w[0]}, "bad-model", "own; (12,)"),
], ids=named)  # fmt: skip
def test_every_run_refuses(
    mistakes: dict[str, Any], code: str, fragments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered(monkeypatch, **mistakes)
    with refused(InvalidInput, code, *fragments.split("; ")):
        learn()


def sends(send: Any) -> dict[str, Any]:
    return {"measure": lambda self, first, n: send(self.channel)}


ROW = np.zeros((3, 2))


def measures(change: Any) -> dict[str, Any]:
    """Records another policy than the one that is followed."""
    return {"measure": lambda self, t, n: self.meter.record(t, n, change(self.values.policy))}


def plays(change: Any) -> dict[str, Any]:
    """Plays another policy than the one that is recorded."""
    return {"measure": lambda self, t, n: self.agents.play(t, n, change(self.values.policy))}


@pytest.mark.parametrize(("mistakes", "code", "fragments"), [
    (sends(lambda c: c.broadcast("nope", ROW)), "unknown-category", "'nope'"),
    (sends(lambda c: c.send(0, "up_stat", ROW)), "unknown-category", "'up_stat'; 'up_stats'"),
    (sends(lambda c: c.gather(ROW, ROW)), "unknown-category", "'ndarray'"),
    (sends(lambda c: c.send(-1, "up_raw", ROW)), "no-such-agent", "agent -1; 0 … 2"),
    (sends(lambda c: c.gather("up_raw", ROW[:2])), "bad-message-shape", "(2, 2); 3 agents"),
    (sends(lambda c: c.send(0, "up_raw", {"all": 1})), "bad-dtype", "object"),
    (sends(lambda c: c.signal(np.array([1, -1]), 3)), "no-such-agent", "0 … 2; [1, -1]"),
    (sends(lambda c: c.signal(np.array([3]), 3)), "no-such-agent", "0 … 2; [3]"),
    ({"measure": lambda self, t, n: self.regret_meter.group([0, 3])}, "bad-agents", "[0, 3]"),
    (measures(lambda policy: policy[:2]), "bad-policy", "(2, 4); (3, 4)"),
    (measures(lambda policy: policy + 3), "bad-policy", "from 3 to 3; 0 … 2"),
    (measures(lambda policy: policy - 1), "bad-policy", "from -1 to -1"),
    (measures(lambda policy: policy * 1.0), "bad-policy", "float64"),
    (plays(lambda policy: policy * 1.0), "bad-policy", "float64"),
    (plays(lambda policy: policy - 3), "bad-policy", "from -3 to -3"),
], ids=named)  # fmt: skip
def test_the_instruments_refuse(
    mistakes: dict[str, Any], code: str, fragments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered(monkeypatch, **mistakes)
    with refused(InvalidInput, code, *fragments.split("; ")):
        learn()


def nobody_tells(self: Any, seen: Any) -> None:
    self.sums.add(seen)
    self.sums.backward_pass()


def tosses(self: Any, seen: Any) -> None:
    random.random()
    Pooling.learn(self, seen)


def late(self: Any, first: int, n: int) -> Any:
    """Records a policy that has been renewed since it was played."""
    self.meter.record(first, n, self.sums.values.policy)
    return Segment(first + n - 1)


def elsewhere(self: Any, plan: Any, settings: Any, keep_models: bool) -> None:
    """What it reports, and plays, is a policy that nobody renews."""
    Pooling.__init__(self, plan, settings, keep_models)
    self.values = empty_values(plan)


def signals_twice(self: Any, seen: Any) -> None:
    self.channel.signal(np.array([1, 1]), self.t)
    Pooling.learn(self, seen)


def counts(self: Any, seen: Any) -> None:
    self.counts = {"seen": np.int64(3)}
    Pooling.learn(self, seen)


@pytest.mark.parametrize(("mistakes", "code", "fragments"), [
    ({"parties": lambda self: None}, "bad-parties", "own; None"),
    ({"parties": lambda self: {"x": Mute()}}, "party-without-state", "'x'; Mute; state()"),
    ({"parties": lambda self: {"x": Plain()}}, "bad-party-state", "'x'"),
    ({"parties": lambda self: {"server": self.sums, "agent0": self.sums}},
     "shared-array", "'server'; 'agent0'"),
    ({"learn": nobody_tells}, "not-sent", "agent 0"),
    ({"learn": tosses}, "global-generator", ""),
    ({"measure": lambda self, first, n: None, "done": late}, "regret-of-another-policy", ""),
    ({"__init__": elsewhere}, "regret-of-another-policy", ""),
    ({"learn": signals_twice}, "counted-twice", ""),
    ({"learn": counts}, "bad-counts", ""),
    (reported(1.0, -1.0), "logdet-not-finite", "record 0"),
], ids=named)  # fmt: skip
@pytest.mark.filterwarnings("ignore:invalid value")
def test_the_check_refuses(
    mistakes: dict[str, Any], code: str, fragments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered(monkeypatch, **mistakes)
    with refused(InvalidInput, code, *fragments.split("; ")):
        check_algorithm("own")


def test_integers_of_numpy_become_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record can be written down, whatever kind of integer its author counted with."""

    def numpy(first: int, n: int) -> Segment:
        one = np.int64(1)
        return Segment(np.int64(first + n - 1), one, [(one, one)], one)  # type: ignore[list-item, arg-type]

    registered(monkeypatch, **done(numpy))
    record = learn().records[-1]
    found = [record.k, record.last, record.rounds, record.signals, *record.triggers[0]]
    assert all(type(value) is int for value in found)
