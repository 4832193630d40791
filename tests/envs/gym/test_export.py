"""Our environments behind Gymnasium's interface."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from expecting import refused
from fedlsvi.envs import FiniteMDP, RiverSwim, registry
from fedlsvi.envs.allowed import RESTRICTED
from fedlsvi.envs.gym.convert import REGISTERED
from fedlsvi.envs.gym.export import MDPEnv
from fedlsvi.envs.gym.ids import IDS, register_all
from fedlsvi.errors import InvalidEnvironment

register_all()


@pytest.mark.parametrize("id", IDS)
def test_every_environment_passes_gymnasiums_own_check(id: str) -> None:
    check_env(gymnasium.make(id).unwrapped, skip_render_check=False)


def test_every_registered_environment_has_an_id() -> None:
    others = [REGISTERED, RESTRICTED]  # which are made of other environments
    assert sorted([*IDS.values(), *others]) == registry.names()
    for id, name in IDS.items():
        made = registry.entry(name).constructor
        assert id == f"fedlsvi/{made.__name__}-v0"  # type: ignore[attr-defined]


def test_an_episode_has_h_steps_and_repeats_with_its_seed() -> None:
    env = gymnasium.make("fedlsvi/RiverSwim-v0", n_states=4, horizon=5, render_mode="ansi")

    def play() -> list[int]:
        states = [env.reset(seed=3)[0]]
        for h in range(1, 6):
            x, reward, terminated, truncated, info = env.step(1)
            assert 0.0 <= reward <= 1.0
            assert not terminated
            assert truncated == (h == 5)
            assert info == {"step": h + 1}
            states.append(x)
        return states

    assert play() == play()
    assert str(env.render()).startswith("RiverSwim: the end, state")
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.unwrapped.step(1)


@pytest.mark.parametrize("action", [-1, 2, 7, 0.9, None])
def test_an_action_of_another_space_is_refused(action: object) -> None:
    env = MDPEnv(RiverSwim())
    env.reset(seed=0)
    with pytest.raises(gymnasium.error.InvalidAction, match="give a whole number from 0 to 1"):
        env.step(action)
    assert env.step(np.int64(1))[4] == {"step": 2}  # and nothing had happened


def test_the_laws_are_those_of_the_environment() -> None:
    inner = RiverSwim(4, 2000)
    env = MDPEnv(inner)
    x, _ = env.reset(seed=0)
    moves = np.zeros((4, 4))
    for _ in range(2000):
        y, *_ = env.step(1)
        moves[x, y] += 1
        x = y
    seen = moves[0] / moves[0].sum()
    assert np.abs(seen - inner.P[0, 0, 1]).max() < 0.08


def test_it_needs_an_environment_or_a_name() -> None:
    with refused(InvalidEnvironment, "bad-env"):
        MDPEnv()


def test_the_state_after_the_end_is_never_shown() -> None:
    """Two states and a third that is the end: the episode terminates in place of showing it."""
    mdp = FiniteMDP(np.eye(3)[[[1], [2], [2]]], np.array([[0.0], [1.0], [0.0]]), horizon=4)
    mdp.after_end = True
    env = MDPEnv(mdp)
    assert env.observation_space == gymnasium.spaces.Discrete(2)
    assert env.reset(seed=0)[0] == 0
    assert env.step(0)[:4] == (1, 0.0, False, False)
    assert env.step(0)[:4] == (1, 1.0, True, False)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)
