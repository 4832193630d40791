"""A run keeps the rewards that 0 and 1 stand for, and is measured in no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlsvi
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.envs import FiniteMDP, RandomMDP
from fedlsvi.errors import InvalidEnvironment, InvalidInput
from fedlsvi.protocol.records import RoundRecord
from fedlsvi.storage.settings_file import Job

P = np.full((2, 2, 2), 0.5)
R = np.array([[0.0, 1.0], [0.5, 0.25]])


class Paid(FiniteMDP):
    """Rewards from 1 to 5."""

    reward_range: Any = (1.0, 5.0)

    def __init__(self, reward_range: Any = (1.0, 5.0)) -> None:
        super().__init__(P, R, horizon=3)
        self.reward_range = reward_range


def _unplug(record: RoundRecord) -> None:
    if record.k == 2:
        raise KeyError


def broken_off(folder: Path, env: Any) -> None:
    with pytest.raises(KeyError):
        FedLSVI(2).learn(
            env, 20, folder=folder, progress=False, checkpoint_seconds=0, observers=[_unplug]
        )


@pytest.mark.parametrize("given", [(1.0, 5.0), [1, 5], np.array([1.0, 5.0])])
def test_a_range_without_0_comes_back(given: Any, tmp_path: Path) -> None:
    """Nothing is paid after the end of an episode where episodes do not end early."""
    broken_off(tmp_path / "x", Paid(given))
    rest = fedlsvi.resume(tmp_path / "x", progress=False)
    run = fedlsvi.load(tmp_path / "x")
    assert run.original_value(0.0) == 3.0  # 1 at each of 3 steps
    assert run.references() == rest.references()
    # R is 1/2 on average in the first state, 7/16 over both
    assert run.references()["uniform"] == pytest.approx(3.0 + 4.0 * (1 / 2 + 7 / 16 + 7 / 16))


@pytest.mark.parametrize("given", [[5.0, 1.0], [0.0, float("inf")], [1.0], 3, ["a", "b"]])
def test_what_is_no_range_gets_a_sentence(given: Any, tmp_path: Path) -> None:
    """Before anything is written."""
    entry = {"name": "arrays", "P": P, "r": R, "horizon": 3, "reward_range": given}
    with refused(InvalidEnvironment, "bad-reward_range"):
        Job.parse({"env": entry}).environments()
    with refused(InvalidEnvironment, "bad-reward_range"):
        FedLSVI(1).learn(Paid(given), 5, folder=tmp_path / "x", progress=False)
    assert not (tmp_path / "x").exists()


def test_another_range_is_refused(tmp_path: Path) -> None:
    broken_off(tmp_path / "x", Paid())
    both = "(0.0, 5.0)", "(1.0, 5.0)"
    with refused(InvalidInput, "other-problem", *both):
        fedlsvi.resume(tmp_path / "x", env=Paid((0, 5)), progress=False)
    run = fedlsvi.load(tmp_path / "x", env=Paid((0, 5)))
    assert run.policy.action(0, 1) in (0, 1)  # to act, it does not matter
    with refused(InvalidInput, "other-problem", *both):
        run.references()


def test_agents_agree_on_numbers_and_not_on_types() -> None:
    several = [Paid((0, 1)), Paid([0.0, 1.0]), FiniteMDP(P, R, horizon=3)]
    assert FedLSVI(3).learn(several, 4, progress=False).played == 4
    with refused(InvalidEnvironment, "agents-disagree", "reward_range="):
        FedLSVI(2).learn([Paid(), Paid((0.0, 5.0))], 4, progress=False)


def test_an_empty_list_is_no_environment(tmp_path: Path) -> None:
    FedLSVI(1).learn(RandomMDP(3, 2, 2), 5, folder=tmp_path / "x", progress=False)
    with refused(InvalidInput, "bad-env"):
        fedlsvi.load(tmp_path / "x", env=[]).policy.action(0, 1)
