"""A site whose data contradict those of all others is noticed; honest ones are left alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlsvi
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.envs import RandomLinearMDP, RiverSwim, xi_close
from fedlsvi.errors import InvalidSetting, MessageRefused
from fedlsvi.experiments.studies import liars
from fedlsvi.experiments.studies.liars import Sites, Trial, play
from fedlsvi.protocol.messages import Upload
from fedlsvi.remote.codec import decode_reply, encode
from fedlsvi.remote.retry_policy import RetryPolicy
from fedlsvi.remote.suspicion import due, residuals, suspect
from repeats import repeats
from transports_over_frames import over_frames

M, EPISODES, LIAR = 4, 120, 3
ENV = RandomLinearMDP(n_states=8, n_actions=2, dim=4, horizon=3, seed=2)
SWIM = RiverSwim(n_states=3, horizon=4)

Lie = Callable[[Upload], Upload]


def zero(upload: Upload) -> Upload:
    return Upload(upload.h, upload.gram, 0.0 * upload.b)


def halved(upload: Upload) -> Upload:
    return Upload(upload.h, upload.gram, 0.5 * upload.b)


def lying(make: Any, lie: Lie, liar: int = LIAR) -> Any:
    """Makes a transport over whose frames a site lies, within all bounds."""

    def made(plan: Any) -> Any:
        transport = make(plan)
        honest = transport.handlers[liar].handle

        def handle(frame: bytes) -> bytes:
            answer: bytes = honest(frame)
            address, reply = decode_reply(answer, transport.layout)
            return encode(lie(reply), address) if isinstance(reply, Upload) else answer

        transport.handlers[liar].handle = handle
        return transport

    return made


def learn(suspicious: Any, lie: Lie | None = halved, env: Any = ENV, **options: Any) -> Any:
    make: Any = over_frames(M, retry=RetryPolicy(60.0, 1, suspicious=suspicious))
    if lie is not None:
        make = lying(make, lie)
    learner = FedLSVI(n_agents=M, **options.pop("settings", {}))
    return learner.learn(env, EPISODES, 0, transport=make, progress=False, **options)


def notes(run: Any) -> list[str]:
    return [note for record in run.records for note in record.notes]


def test_residuals_by_hand() -> None:
    """Three sites with one feature: 4, 9 and 1 visits, targets 1, 1 and 0."""
    gram, b, lam = np.array([[4.0], [9.0], [1.0]]), np.array([[4.0], [9.0], [0.0]]), 0.5
    weight = [9.0 / 10.5, 4.0 / 5.5, 13.0 / 13.5]
    e = b[:, 0] - gram[:, 0] * weight
    expected = e**2 * (1.0 / (gram[:, 0] + 1.0) - 1.0 / (14.0 + lam + 1.0))
    np.testing.assert_allclose(residuals(gram, b, lam), expected)
    np.testing.assert_allclose(residuals(gram[:, :, None], b, lam), expected)


def test_diagonals_are_matrices() -> None:
    rng = np.random.default_rng(0)
    counts, b = rng.integers(0, 9, (5, 6)).astype(float), rng.random((5, 6))
    full = np.stack([np.diag(row) for row in counts])
    np.testing.assert_allclose(residuals(counts, b, 0.1), residuals(full, b, 0.1))
    one, other = (suspect(gram, b, 0.1, 1.0, 0.1) for gram in (counts, full))
    assert one.site == other.site
    np.testing.assert_allclose([one.residual, one.limit], [other.residual, other.limit])


def test_who_saw_what_nobody_else_saw_contradicts_nobody() -> None:
    """Where the others have no data there is nothing to contradict."""
    gram = np.zeros((4, 2))
    gram[:3, 0], gram[3, 1] = 100.0, 100.0
    b = np.array([[50.0, 0.0]] * 3 + [[0.0, 100.0]])
    assert not suspect(gram, b, 1e-3, 1.0, 0.0).suspected
    b[3], gram[3] = [100.0, 0.0], [100.0, 0.0]  # the same targets where the others have data
    found = suspect(gram, b, 1e-3, 1.0, 0.0)
    assert found.suspected
    assert found.site == 3


def test_an_agreed_heterogeneity_is_allowed_for() -> None:
    gram = np.full((4, 1), 1000.0)
    b = np.array([[500.0], [500.0], [500.0], [560.0]])
    assert suspect(gram, b, 1e-3, 1.0, xi=0.0).suspected
    assert not suspect(gram, b, 1e-3, 1.0, xi=0.1).suspected


def test_sites_are_compared_as_episodes_grow() -> None:
    ends = np.unique(np.geomspace(1, 10_000, 400).astype(int)).tolist()
    compared = sum(due(a, b) for a, b in zip([0, *ends], ends, strict=False))
    assert due(0, 1)
    assert 60 < compared < 110  # log 10,000 / log 1.1 = 97, and early rounds coincide
    assert not due(1000, 1001) or not due(1001, 1002)


@pytest.mark.parametrize("lie", [zero, halved])
def test_a_liar_is_noted_once(lie: Lie) -> None:
    run = learn("note", lie)
    (note,) = notes(run)
    assert f"agent {LIAR} suspected" in note
    assert run.rounds > 3


def test_a_liar_is_excluded_and_the_others_go_on() -> None:
    run = learn("exclude")
    (note,) = notes(run)
    assert f"agent {LIAR} excluded" in note
    # a feature vector on the simplex adds 1 to 1ᵀΛ1: only the others' episodes are left
    visits = run.gram.sum(axis=(1, 2)) - run.parameters.dim * run.parameters.lam
    np.testing.assert_allclose(visits, 3 * EPISODES, rtol=1e-9)


def test_a_run_may_stop_for_a_liar() -> None:
    with refused(MessageRefused, "contradicts-others", f"agent {LIAR}"):
        learn("fail")


@pytest.mark.parametrize("env", [ENV, xi_close(ENV, M, 0.05, seed=1), SWIM],
                         ids=["alike", "different", "one-hot"])  # fmt: skip
def test_honest_sites_are_left_alone(env: Any) -> None:
    """And nothing else about the run changes."""
    there = learn("fail", None, env)
    here = FedLSVI(n_agents=M).learn(env, EPISODES, 0, progress=False)
    assert there.w.tobytes() == here.w.tobytes()
    assert notes(there) == []


def test_one_hot_liars_are_found_too() -> None:
    assert any("suspected" in note for note in notes(learn("note", zero, SWIM)))


def test_a_suspect_is_noted_once_also_after_a_restart(tmp_path: Path) -> None:
    def stop(record: Any) -> None:
        if record.notes:
            raise KeyboardInterrupt

    folder = tmp_path / "run"
    retry = RetryPolicy(60.0, 1)
    make = lying(over_frames(M, tmp_path / "journals", retry), halved)
    with pytest.raises(KeyboardInterrupt):
        FedLSVI(n_agents=M).learn(ENV, EPISODES, 0, folder=folder, checkpoint_seconds=0.0,
                                  observers=[stop], transport=make, progress=False)  # fmt: skip
    run = fedlsvi.resume(folder, transport=make, progress=False)
    assert len(notes(run)) == 1
    assert run.w.tobytes() == learn("note").w.tobytes()


def test_two_sites_are_not_compared() -> None:
    """Nobody can tell which of them lies."""
    make = lying(over_frames(2), zero, liar=1)
    run = FedLSVI(n_agents=2).learn(ENV, EPISODES, 0, transport=make, progress=False)
    assert notes(run) == []


@pytest.mark.parametrize("setting", [{"aggregation": "secure"}, {"exchange": "one-trip"}])
def test_where_sites_are_not_compared_that_is_said(setting: dict[str, str]) -> None:
    with refused(InvalidSetting, "bad-suspicious", "exclude"):
        learn("exclude", None, settings=setting)


@pytest.mark.parametrize("attack", liars.ATTACKS)
def test_the_study_finds_every_attack(attack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liars, "EPISODES", 200)
    for instance in range(repeats(1, 5)):
        result = play(Trial(5, 0.05, attack, "exclude", instance))
        assert 0 < result.found <= 60
        assert result.wrong == 0


def test_the_study_compares_as_the_server_does() -> None:
    """The same model as over frames, with a liar that is excluded on the way."""
    beta = {"beta": 0.6}  # a run in which the excluded agent, who still plays here, ends no round
    there = learn("exclude", settings=beta)
    made = lambda plan: Sites(plan, "halved", "exclude", 0.0)  # noqa: E731
    learner = FedLSVI(n_agents=M, policy="explore", **beta)
    here = learner.learn(ENV, EPISODES, 0, transport=made, progress=False)
    np.testing.assert_allclose(here.w, there.w, rtol=1e-9, atol=1e-12)
    assert here.taus == there.taus
