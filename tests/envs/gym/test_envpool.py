"""EnvPool ids: episodes that do not depend on how many are stepped at once."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from expecting import refused
from fedlsvi import FedLSVI, load
from fedlsvi.envs import as_environment
from fedlsvi.envs.gym.envpool_ids import NO_LIMIT, PooledCopies
from fedlsvi.envs.gym.episodes import Players
from fedlsvi.errors import InvalidEnvironment, UnknownName

ID = "envpool:CartPole-v1"
BOX = spaces.Box(-8.0, 8.0, (2,), np.float32)


class FakePool:
    """A walk on a line in EnvPool's manners: seeds are fixed when it is made, an end is followed by
    a reset that takes no action, and answers come in any order."""

    def __init__(self, seeds: list[int]) -> None:
        self.rngs = [np.random.default_rng(seed) for seed in seeds]
        self.x = np.zeros((len(seeds), 2), np.float32)
        self.over = np.ones(len(seeds), bool)

    def _begin(self, i: int) -> None:
        self.x[i], self.over[i] = self.rngs[i].normal(size=2), False

    def _order(self, rows: np.ndarray) -> np.ndarray:
        return np.argsort(-np.asarray(rows))

    def reset(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        rows = np.arange(len(self.rngs))
        for i in rows:
            self._begin(i)
        order = self._order(rows)
        return self.x[order].copy(), {"env_id": rows[order].astype(np.int32)}

    def step(self, actions: np.ndarray, rows: np.ndarray | None = None) -> tuple[Any, ...]:
        rows = np.arange(len(self.rngs)) if rows is None else rows
        assert len(rows) == len(actions)
        rewards = np.zeros(len(rows), np.float32)
        for k, i in enumerate(rows):
            if self.over[i]:
                self._begin(i)
                continue
            self.x[i, 0] += 2 * int(actions[k]) - 1
            self.x[i, 1] = self.rngs[i].normal()
            rewards[k] = self.x[i, 0] > 0
            self.over[i] = abs(self.x[i, 0]) > 4
        order = self._order(rows)
        info = {"env_id": np.asarray(rows, np.int32)[order]}
        flat = np.zeros(len(rows), bool)
        at = np.asarray(rows)[order]
        return self.x[at].copy(), rewards[order], self.over[at].copy(), flat, info

    def close(self) -> None:
        """Nothing is held."""


def fake() -> ModuleType:
    module: Any = ModuleType("envpool")
    module.made = []

    def make(name: str, env_type: str, num_envs: int, seed: list[int], **more: Any) -> FakePool:
        assert (name, env_type, len(seed)) == ("CartPole-v1", "gymnasium", num_envs)
        assert more.pop("max_episode_steps") == NO_LIMIT
        module.made.append(num_envs)
        return FakePool(seed)

    module.make = make
    module.list_all_envs = lambda: ["CartPole-v1", "Pendulum-v1"]
    config = SimpleNamespace(max_episode_steps=30)
    module.make_spec = lambda name, **more: SimpleNamespace(
        observation_space=BOX, action_space=spaces.Discrete(2), config=config
    )
    return module


@pytest.fixture(params=["fake", "real"])
def pool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "real":
        pytest.importorskip("envpool")
    else:
        monkeypatch.setitem(sys.modules, "envpool", fake())
    return sys.modules["envpool"]


def turns(h: int, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Actions that depend on the episode and the step."""
    action: np.ndarray = (rows // 2 + h * (rows + 1)) % 2
    return action


@pytest.mark.filterwarnings("ignore")  # of the real one's spaces
def test_an_episode_does_not_depend_on_what_is_stepped_beside_it(pool: Any) -> None:
    """Twelve episodes by one call, one by one through `reset` and `step`, and one alone."""
    env = as_environment(ID, horizon=25)
    assert env.copies is PooledCopies
    together = Players(env, np.arange(3), 5).play(1, 4, turns)
    assert len(np.unique(together.lengths)) > 2
    env.copies = None
    apart = Players(env, np.arange(3), 5).play(1, 4, turns)
    for one, other in zip(together, apart, strict=True):
        assert one.tobytes() == other.tobytes()
    env.copies = PooledCopies
    alone = Players(env, np.array([2]), 5).play(3, 1, lambda h, x, rows: turns(h, x, rows + 10))
    n = int(alone.lengths[0, 0])
    assert n == together.lengths[2, 2]
    assert alone.states[0, 0, :n].tobytes() == together.states[2, 2, :n].tobytes()


@pytest.mark.filterwarnings("ignore")
def test_a_run_has_the_same_bits_in_cohorts_and_from_its_folder(pool: Any, tmp_path: Path) -> None:
    options: Any = {"features": "fourier", "horizon": 20, "progress": False}
    whole = FedLSVI(3).learn(ID, 12, **options, folder=tmp_path / "run")
    split = FedLSVI(3).learn(ID, 12, **options, cohorts=3, block=1)
    assert split.taus == whole.taus
    assert split.w.tobytes() == whole.w.tobytes()
    again = load(tmp_path / "run")
    assert again.w.tobytes() == whole.w.tobytes()
    assert again.environment[0]["params"]["id"] == ID


def test_the_horizon_is_that_of_envpool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "envpool", fake())
    assert as_environment(ID).horizon == 30
    with refused(UnknownName, "unknown-environment"):
        as_environment("envpool:CartPol-v1")


def test_where_it_is_not_installed_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(InvalidEnvironment, match="envpool") as caught:
        as_environment(ID)
    assert caught.value.code == "import-failed"
    assert "pip install envpool" in str(caught.value)
