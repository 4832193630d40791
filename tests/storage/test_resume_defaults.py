"""A run with default settings resumes with the numbers that it began with, all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedlsvi import FedLSVI, resume
from fedlsvi.envs import RandomLinearMDP

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(
    "own",
    [{}, {"gamma": "anytime", "cap": "off"}, {"n_agents": 8}],
    ids=["default", "off", "gamma-of-one"],
)
def test_a_run_that_was_interrupted_ends_in_the_same_bits(
    own: dict[str, Any], tmp_path: Path
) -> None:
    """gamma="auto" brings a cap and a budget of rounds with it; γ alone, as a number, does not."""
    env = RandomLinearMDP(seed=0)

    def stop(record: Any) -> None:
        if record.k == 5:
            raise KeyboardInterrupt

    learner, folder = FedLSVI(**{"n_agents": 4} | own), tmp_path / "run"
    whole = learner.learn(env, 60, 1, progress=False)
    with pytest.raises(KeyboardInterrupt):
        learner.learn(
            env, 60, 1, folder=folder, checkpoint_seconds=0.0, observers=[stop], progress=False
        )
    done = resume(folder, progress=False)
    assert done.parameters == whole.parameters
    assert done.taus == whole.taus
    assert done.w.tobytes() == whole.w.tobytes()
