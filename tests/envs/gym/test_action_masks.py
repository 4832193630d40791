"""`info["action_mask"]`: an environment that refuses all other actions is learned, played, saved,
killed and compared, and never refuses one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import fedlsvi
from agreement import assert_close
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.algorithms import registry
from fedlsvi.envs import as_environment, make
from fedlsvi.envs.gym.export import MDPEnv
from fedlsvi.envs.gym.play import evaluate_policy
from fedlsvi.envs.registry import from_spec
from fedlsvi.errors import InvalidEnvironment, InvalidInput
from fedlsvi.policy import Policy
from literal import literal_fed_lsvi
from literal_gym import BlackBox
from problems import one_hot_table
from repeats import repeats
from transports_over_frames import assert_same, over_frames

N, A = 5, 3


OPEN = np.array([[(x + a) % 3 != 0 for a in range(A)] for x in range(N)], np.int8)
"""(rooms, A); in every room two doors are open at least."""

ANGLES = [2.0 * np.pi * x / N for x in range(N)]
POINTS = [np.array([np.cos(angle), np.sin(angle)]) for angle in ANGLES]
SHUT = frozenset((x, a) for x in range(N) for a in range(A) if not OPEN[x, a])


class Doors(gymnasium.Env[Any, Any]):
    """A ring of rooms in which some doors are shut; the last room may end the episode.

    Args:
        vector: Whether rooms are seen as points on a circle.
        ends: Whether an episode may end.
    """

    steps = 0  # of all of them
    shut = SHUT

    def __init__(self, vector: bool = False, ends: bool = True) -> None:
        self.vector, self.ends = vector, ends
        box: spaces.Space[Any] = spaces.Box(-1.0, 1.0, (2,), np.float64)
        self.observation_space = box if vector else spaces.Discrete(N)
        self.action_space = spaces.Discrete(A)

    def _seen(self) -> tuple[Any, dict[str, Any]]:
        what: Any = POINTS[self.x] if self.vector else self.x
        return what, {"action_mask": self.open()}

    def open(self) -> np.ndarray:
        return OPEN[self.x].copy()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x = int(self.np_random.integers(N))
        return self._seen()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        Doors.steps += 1
        door = int(action)
        if (self.x, door) in self.shut:
            raise RuntimeError(f"door {door} of room {self.x} is shut")
        lucky = self.np_random.random() < (0.7 if (door + self.x) % 2 else 0.4)
        over = self.ends and self.x == N - 1 and not lucky
        self.x = (self.x + 1 + int(lucky)) % N
        what, info = self._seen()
        return what, float(lucky), over, False, info


def seen(states: np.ndarray) -> np.ndarray:
    """Six features of a point, another length for each action."""
    both = np.concatenate([states, np.ones((len(states), 1))], axis=1) / np.sqrt(2.0)
    phi = np.zeros((len(states), A, 9))
    for a in range(A):
        phi[:, a, 3 * a : 3 * a + 3] = both * (1.0 - 0.1 * a)
    return phi


def doors(vector: bool, ends: bool = True, horizon: int = 4) -> Any:
    return as_environment(
        lambda: Doors(vector, ends), horizon=horizon, reward_range=(-1.0, 1.0), allowed="env"
    )


KINDS: dict[str, tuple[bool, Any, Callable[[], Any]]] = {
    "numbered": (False, None, lambda: doors(False)),
    "vectors": (True, seen, lambda: doors(True)),
}
QUIET: dict[str, Any] = {"progress": False}


def open_doors(h: int, x: Any) -> list[int]:
    """For the reference; behind the end everything is allowed."""
    if isinstance(x, np.ndarray):
        x = round(float(np.arctan2(x[1], x[0])) * N / (2.0 * np.pi)) % N
    if x == N:
        return [0, 1, 2]
    some = [a for a in range(A) if (x + a) % 3 != 0]
    return some or [1]


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_run_in_a_masked_black_box_is_the_literal_loop(kind: str, stationary: bool) -> None:
    vector, phi, _ = KINDS[kind]
    ends = not (vector and stationary)  # what an end is worth then differs from step to step
    settings: dict[str, Any] = {"gamma": 6.0, "lam": 0.8, "beta": 0.7, "preset": "paper"}
    run = FedLSVI(2, **settings, stationary=stationary).learn(
        doors(vector, ends), 20, 3, features=phi, keep_models=True, **QUIET
    )
    box = BlackBox(lambda: Doors(vector, ends), (-1.0, 1.0), None if vector else N)
    features = seen if vector else one_hot_table(N + 1, A)
    literal = literal_fed_lsvi(
        box, features, 2, 20, 4, 3, 0.8, 0.7, 6.0, allowed=[open_doors] * 2, stationary=stationary
    )
    assert list(run.taus) == literal.taus
    for mine, theirs in zip(run.models, literal.models, strict=True):
        assert_close(mine[0], theirs[0], "w")
        assert_close(mine[1], theirs[1], "Λ")


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_shut_door_is_never_tried(kind: str) -> None:
    """In a million steps, where CI is set, and in some more after which episodes end."""
    vector, phi, _ = KINDS[kind]
    horizon = repeats(4, 50)
    for ends, episodes in ((True, repeats(150, 1_000)), (False, repeats(150, 5_000))):
        before, env = Doors.steps, doors(vector, ends, horizon)
        run = FedLSVI(4, gamma=2_000.0, rounds=5).learn(env, episodes, features=phi, **QUIET)
        assert Doors.steps - before >= 4 * episodes * (2 if ends else horizon)
        for policy in (run.policy, run.exploring_policy, "random"):
            evaluate_policy(policy, env, 20)


@pytest.mark.parametrize("kind", list(KINDS))
def test_no_bit_depends_on_where_and_in_how_many_pieces(kind: str, tmp_path: Path) -> None:
    _, phi, made = KINDS[kind]
    learner, given = FedLSVI(3, gamma=8.0), {"features": phi, **QUIET}
    whole = learner.learn(made(), 40, **given)
    assert_same(whole, learner.learn(made(), 40, cohorts=3, block=1, **given))
    assert_same(whole, learner.learn(made(), 40, transport=over_frames(2), **given))
    seen_rounds: list[Any] = []

    def end(record: Any) -> Any:
        seen_rounds.append(record)
        return fedlsvi.STOP if len(seen_rounds) == 2 else None

    env = made()
    learner.learn(env, 40, folder=tmp_path / "run", observers=[end], checkpoint_seconds=0, **given)
    resumed = fedlsvi.resume(tmp_path / "run", env=made(), features=phi, progress=False)
    assert_same(whole, resumed)
    for at in ((0, 1), (1, 2), (3, 4)):
        x = whole.plan.envs[0].probe(1)[0] if kind == "vectors" else at[0]
        mask = np.array([1, 0, 1])
        assert whole.policy.action(x, at[1], mask) == resumed.policy.action(x, at[1], mask)


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_policy_asks_what_is_allowed(kind: str, tmp_path: Path) -> None:
    _, phi, made = KINDS[kind]
    run = FedLSVI(2, gamma=9.0).learn(made(), 40, features=phi, **QUIET)
    run.policy.save(tmp_path / "policy")
    again = Policy.load(tmp_path / "policy", features=phi)
    env = Doors(kind == "vectors")
    for policy in (run.policy, again, run.exploring_policy):
        x, info = env.reset(seed=1)
        with refused(InvalidInput, "needs-mask"):
            policy.action(x, 1)
        state = None
        for h in range(1, 5):
            a = policy.action(x, h, info["action_mask"])
            assert a == run.policy.action(x, h, info["action_mask"]) or policy is not again
            found, state = policy.predict(x, state, action_masks=info["action_mask"])
            assert found == a
            x, _, over, _, info = env.step(a)
            if over:
                break
    assert evaluate_policy(again, made(), 10).mean == evaluate_policy(run.policy, made(), 10).mean


def test_comparators_know_told_masks_or_say_that_they_do_not() -> None:
    refusals = {"masks-not-supported", "needs-known-transitions", "needs-finite-states"}
    for _, phi, made in KINDS.values():
        said = {}
        for name in registry.names():
            if not registry.entry(name).offline:
                try:
                    registry.make(name, n_agents=2).learn(made(), 12, features=phi, **QUIET)
                except InvalidEnvironment as error:
                    said[name] = error.code
        assert set(said.values()) <= refusals, said
        assert not {"fed-lsvi", "independent", "periodic", "stale", "low-switching"} & set(said)


def test_taxi_can_be_asked() -> None:
    free = as_environment("Taxi-v4", horizon=20)
    taxi = as_environment("Taxi-v4", horizon=20, allowed="env")
    inner = gymnasium.make("Taxi-v4").unwrapped
    for x in (0, 17, 123, 499):
        assert (taxi.allowed[0, x] == inner.action_mask(x)).all()
    assert 0.3 < taxi.allowed.mean() < 0.9
    # no action that is left out is ever the only good one
    assert np.allclose(taxi.optimal_values()[0], free.optimal_values()[0], atol=1e-12)
    assert from_spec(taxi.spec()).fingerprint == taxi.fingerprint != free.fingerprint
    assert free.allowed is None
    stepped = as_environment(
        "Taxi-v4", horizon=5, reward_range=(-10, 20), allowed="env", tables=False
    )
    FedLSVI(2).learn(stepped, 6, **QUIET)
    known = stepped.known[:-1]
    assert known.sum() > 10
    assert (stepped.allowed[0, :-1][known] == taxi.allowed[0, : len(known)][known]).all()


class Moody(Doors):
    """What is allowed in a room changes from visit to visit."""

    shut: frozenset[tuple[int, int]] = frozenset()

    def open(self) -> np.ndarray:
        return np.array([1, int(self.np_random.random() < 0.5), 1], np.int8)


class Mute(Doors):
    """It says what is allowed at the reset and then no more."""

    shut: frozenset[tuple[int, int]] = frozenset()

    def open(self) -> np.ndarray:
        return np.ones(A, np.int8)

    def step(self, action: Any) -> Any:
        return (*super().step(action)[:4], {})


class Shut(Doors):
    """One room has no way out."""

    def open(self) -> np.ndarray:
        found: np.ndarray = super().open()
        return found * (self.x != 2)

    def step(self, action: Any) -> Any:
        self.x = (self.x + 1) % N
        what, info = self._seen()
        return what, 0.0, False, False, info


@pytest.mark.parametrize(
    ("make_one", "options", "code"),
    [
        (lambda: Moody(), {}, "mask-not-of-state"),
        (lambda: Mute(), {}, "bad-action-mask"),
        (lambda: Shut(), {}, "no-action"),
        (lambda: Doors(), {"repeat": 2}, "held-action"),
        (lambda: gymnasium.make("CliffWalking-v1"), {}, "no-masks"),
        (lambda: Doors(), {"allowed": "all"}, "environment-raised"),
    ],
)
def test_masks_that_cannot_be_used_are_refused(make_one: Any, options: Any, code: str) -> None:
    given = {"horizon": 6, "reward_range": (-100.0, 1.0), "allowed": "env"} | options
    with refused(InvalidEnvironment, code):
        FedLSVI(2).learn(make_one, 60, **given, **QUIET)


def test_an_environment_of_this_package_tells_its_masks() -> None:
    env = make("river-swim", n_states=4, horizon=5)
    mask = np.ones((4, 2), bool)
    mask[1, 0] = mask[2, 1] = False
    env = as_environment(env, allowed=mask)
    shown = MDPEnv(env)
    x, info = shown.reset(seed=0)
    for _ in range(4):
        assert (info["action_mask"] == mask[x]).all()
        x, _, _, _, info = shown.step(int(np.flatnonzero(info["action_mask"])[-1]))
    run = FedLSVI(2).learn(env, 30, **QUIET)
    found = evaluate_policy(run.policy, env, 20)
    assert np.isfinite(found.returns).all()
    with refused(InvalidEnvironment, "not-gymnasium"):
        as_environment(env, allowed="env")
