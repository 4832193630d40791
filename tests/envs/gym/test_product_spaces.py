"""MultiDiscrete observations, and tuples and dictionaries of discrete ones, are numbered states."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from worlds import Blind

from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.envs import as_environment
from fedlsvi.envs.gym.play import evaluate_policy
from fedlsvi.envs.spaces import count_observations, describe, numbers
from fedlsvi.errors import InvalidInput
from fedlsvi.features import FourierFeatures, OneHot
from fedlsvi.policy import Policy

TWO, SQUARE = spaces.Discrete(2), spaces.MultiDiscrete([2, 2])


def test_blackjack_has_704_states(tmp_path: Path) -> None:
    """32 sums × 11 cards × usable ace, and the state after the end; files and evaluation agree."""
    run = FedLSVI(2).learn(
        "Blackjack-v1", 60, horizon=8, reward_range=(-1, 1), features=OneHot(), progress=False
    )
    assert run.plan is not None
    assert run.plan.envs[0].n_states == 704 + 1  # type: ignore[attr-defined]
    run.policy.save(tmp_path)
    loaded = Policy.load(tmp_path)
    for own, dealer, ace in product((4, 20, 31), (1, 10), (0, 1)):
        number = (own * 11 + dealer) * 2 + ace
        for policy in (run.policy, loaded):
            assert policy.action((own, dealer, ace), 3) == policy.table[2, number]
    means = [evaluate_policy(p, "Blackjack-v1", 50).mean for p in (run.policy, loaded)]
    assert means[0] == means[1]
    with refused(InvalidInput, "bad-state", "state[0]", "32"):
        loaded.action((32, 1, 0), 1)


@pytest.mark.parametrize(
    ("space", "seen", "number"),
    [
        (spaces.MultiDiscrete([3, 4]), np.array([2, 1]), 9),
        (spaces.MultiDiscrete([3, 4], start=[1, 5]), np.array([3, 6]), 9),
        (
            spaces.Tuple((spaces.Discrete(3, start=-1), SQUARE)),
            (1, [0, 1]),
            9,
        ),
        (spaces.Dict({"b": spaces.Discrete(4), "a": spaces.Discrete(3)}), {"b": 1, "a": 2}, 9),
        (spaces.Tuple((spaces.Tuple((TWO, TWO)), spaces.Discrete(3))), ((1, 1), 0), 9),
    ],
    ids=["many", "start", "tuple", "dict", "nested"],
)
def test_observations_are_numbered_in_c_order(space: Any, seen: Any, number: int) -> None:
    found = describe(space)
    assert found is not None
    assert count_observations(found) == 12
    assert numbers(found, [seen, seen]).tolist() == [number, number]
    world = as_environment(lambda: Blind(space, TWO), horizon=3)
    assert world.n_states == 13
    assert set(world.probe(60)) <= set(range(12))


def test_a_large_product_stays_a_vector() -> None:
    world = as_environment(
        lambda: Blind(spaces.MultiDiscrete([400, 251]), TWO), horizon=3
    )  # 100,400 combinations
    assert not world.finite
    assert world.state_dim == 651
    FedLSVI(1).learn(world, 3, features=FourierFeatures(4, seed=1), progress=False)
