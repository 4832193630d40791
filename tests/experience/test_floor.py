"""Under a floor no upload sums up fewer episodes, also at steps that few episodes reach."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from fedlsvi import FedLSVI, resume
from fedlsvi.envs.gym.convert import as_environment
from fedlsvi.experience.experience import Experience
from fedlsvi.protocol.messages import Upload
from fedlsvi.protocol.transport import InProcess
from transports_over_frames import assert_same, over_frames

H, FLOOR = 5, 6


class Fading(gymnasium.Env[Any, Any]):
    """A walk on [0, 1]² whose episodes end more often than not."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.np_random.random(2, np.float32), {}

    def step(self, action: int) -> Any:
        x = self.np_random.random(2, np.float32)
        ended = bool(self.np_random.random() < 0.45)
        return x, float(x[action]), ended, False, {}


def fading() -> Any:
    return as_environment(Fading, horizon=H, reward_range=(0.0, 1.0))


def learn(floor: int = FLOOR, **options: Any) -> Any:
    # where each step has its matrix, and no pass follows the last round
    own = {
        "stationary": False,
        "policy": "explore",
        "bonus": "constant",
        **options.pop("settings", {}),
    }
    learner = FedLSVI(n_agents=3, gamma=8.0, min_round=floor, **own)
    return learner.learn(fading(), 60, 2, features="rbf", progress=False, **options)


def test_steps_that_few_episodes_reached_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every upload is zero or over at least `floor` episodes, counted by hand from the raw
    episodes; Λ_h and b_h are sums over the same episodes after every round."""
    totals = np.zeros((3, H, 64, 64))
    waited = told = 0
    summarise = Experience.summarise

    def checked(world: Any, h: int) -> Any:
        nonlocal waited, told
        gram, b = summarise(world, h)
        d = world.dim
        for i, store in enumerate(world.memory.stores):
            square = np.zeros((d, d))
            square[np.triu_indices(d)] = gram[i]
            totals[world.agents[i], h - 1, :d, :d] += square
            lengths = store.lengths[: store.episodes]
            if not gram[i].any():
                waited += 1
            else:
                told += 1
                new = lengths[world.memory.uploaded[i, h - 1] :]
                assert np.count_nonzero(new >= h) >= FLOOR
            # Λ so far, and b, by a plain loop over the episodes that were told
            upto, at, sums, response = world.memory.due[i, h - 1], 0, np.zeros((d, d)), np.zeros(d)
            for e, length in enumerate(lengths):
                if e < upto and length >= h:
                    row = at + h - 1
                    phi = world.values.features.chosen(
                        store.states[row : row + 1], store.actions[row : row + 1]
                    )[0]
                    sums += np.outer(phi, phi)
                    response += phi * store.rewards[row] if h == H else 0.0
                at += length
            np.testing.assert_allclose(
                totals[world.agents[i], h - 1, :d, :d], np.triu(sums), atol=1e-10
            )
            if h == H:
                np.testing.assert_allclose(b[i], response, atol=1e-10)
        return gram, b

    monkeypatch.setattr(Experience, "summarise", checked)
    run = learn()
    assert run.summary()["smallest_upload"] >= FLOOR
    assert waited > 0
    assert told > 0


def test_without_a_floor_nothing_waits() -> None:
    assert learn(1).summary()["smallest_upload"] < FLOOR


@pytest.mark.parametrize("aggregation", ["float", "secure"])
def test_the_server_accepts_what_waited(aggregation: Any) -> None:
    settings = {"aggregation": aggregation}
    here = learn(settings=settings, cohorts=3)
    assert_same(here, learn(settings=settings, transport=over_frames(3)))


def test_what_waits_survives_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = learn()
    deliver, left = InProcess.deliver, 25

    def dying(self: InProcess, message: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt
        return deliver(self, message)

    monkeypatch.setattr(InProcess, "deliver", dying)
    with pytest.raises(KeyboardInterrupt):
        learn(folder=tmp_path / "run", checkpoint_seconds=0)
    again = resume(tmp_path / "run", env=fading(), progress=False)
    assert again.taus == here.taus
    assert again.w.tobytes() == here.w.tobytes()


def test_uploads_have_the_paper_s_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """One upload for each step and round, waiting or not."""
    seen = 0
    deliver = InProcess.deliver

    def spy(self: InProcess, message: Any) -> Any:
        nonlocal seen
        replies = deliver(self, message)
        seen += sum(isinstance(reply, Upload) for reply in replies)
        return replies

    monkeypatch.setattr(InProcess, "deliver", spy)
    run = learn()
    assert seen == run.rounds * H
    assert run.bounds["scalars"].measured == run.bounds["scalars"].bound
