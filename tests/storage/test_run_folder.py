"""The run folder: what is in it, what comes back out of it, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlsvi
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.envs import (
    ContinuousLinearMDP,
    FiniteMDP,
    Garnet,
    RandomLinearMDP,
    RandomMDP,
    xi_close,
)
from fedlsvi.errors import FolderExists, InvalidInput, InvalidSetting, StoreError
from fedlsvi.features import (
    CallableFeatures,
    FourierFeatures,
    HatFeatures,
    OneHot,
    RBFFeatures,
    TableFeatures,
    registry,
)
from fedlsvi.policy import Policy
from fedlsvi.storage import checkpoint, run_writer
from fedlsvi.storage.settings_file import Job, read

TINY: dict[str, Any] = {"seed": 3, "progress": False, "threads": 1}


def small() -> RandomLinearMDP:
    return RandomLinearMDP(6, 3, 4, horizon=3, seed=1, initial="uniform")


def learner(**settings: Any) -> FedLSVI:
    return FedLSVI(**{"n_agents": 3, "gamma": 12.0, "beta": 0.5, "lam": 1.0, **settings})


def content(run: fedlsvi.Run) -> tuple[Any, ...]:
    regret = None if run.regret is None else run.regret.tobytes()
    return run.w.tobytes(), run.gram.tobytes(), run.taus, regret, run.ledger.to_dict()


class Stop(Exception):
    """What an observer raises to break a run off."""


def stop_after(rounds: int) -> Any:
    def observe(record: fedlsvi.protocol.records.RoundRecord) -> None:
        if record.k == rounds:
            raise Stop

    return observe


def broken_off(folder: Path, env: Any, rounds: int = 4, features: Any = None, **more: Any) -> None:
    """A run that ended early, as if killed after so many rounds."""
    with pytest.raises(Stop):
        learner(**more).learn(
            env, 120, **TINY, features=features, folder=folder, checkpoint_seconds=0,
            observers=[stop_after(rounds)],
        )  # fmt: skip


@pytest.fixture(scope="module")
def run() -> fedlsvi.Run:
    return learner().learn(small(), 120, **TINY)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, run: fedlsvi.Run) -> Path:
    path = tmp_path_factory.mktemp("runs") / "first"
    kept = learner().learn(small(), 120, **TINY, folder=path)
    assert content(kept) == content(run)
    assert kept.folder == str(path)
    return path


def test_the_folder_holds_what_is_needed_to_trust_it_and_run_it_again(folder: Path) -> None:
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    assert names == {
        "settings.toml", "versions.json", "parameters.json", "records.jsonl", "regret.bin",
        "ledger.json", "summary.json", "checkpoints",
    }  # fmt: skip
    versions = json.loads((folder / "versions.json").read_text())
    assert versions["format"] == 1
    assert {"python", "numpy", "scipy", "numba", "fedlsvi", "platform", "cpus"} <= set(
        versions["versions"]
    )
    assert len(list((folder / "checkpoints").iterdir())) <= 4  # the last two, two files each


def test_load_gives_the_run_back(folder: Path, run: fedlsvi.Run) -> None:
    back = fedlsvi.load(folder)
    assert content(back) == content(run)
    assert back.records[2].triggers == run.records[2].triggers
    assert back.parameters == run.parameters
    assert back.settings == run.settings
    assert (back.policy.table == run.policy.table).all()
    assert back.policy.action(2, step=1) == run.policy.action(2, step=1)
    untimed = {**run.summary(), "seconds": None}
    assert {**back.summary(), "seconds": None} == untimed


def test_saved_and_kept_runs_load_alike(tmp_path: Path, run: fedlsvi.Run) -> None:
    run.save(str(tmp_path / "saved"))
    back = fedlsvi.load(tmp_path / "saved")
    assert content(back) == content(run)
    back.save(str(tmp_path / "copied"))
    assert content(fedlsvi.load(tmp_path / "copied")) == content(run)
    assert content(fedlsvi.resume(tmp_path / "copied")) == content(run)  # nothing left to do


def test_the_settings_file_plays_the_same_run_again(folder: Path, run: fedlsvi.Run) -> None:
    job = Job.parse(read(folder / "settings.toml"), folder)
    again = job.learner().learn(job.environments(), job.episodes, job.seed, progress=False)
    assert content(again) == content(run)


def test_a_run_is_never_overwritten(folder: Path, tmp_path: Path, run: fedlsvi.Run) -> None:
    before = sorted((p, p.stat().st_mtime_ns) for p in folder.rglob("*"))
    with refused(FolderExists, "folder-exists", "fedlsvi resume"):
        learner().learn(small(), 120, **TINY, folder=folder)
    with pytest.raises(FolderExists):
        run.save(str(folder))
    assert before == sorted((p, p.stat().st_mtime_ns) for p in folder.rglob("*"))
    (tmp_path / "notes.txt").write_text("mine")
    with refused(FolderExists, "folder-exists"):
        learner().learn(small(), 120, **TINY, folder=tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_nothing_is_written_before_everything_is_checked(tmp_path: Path) -> None:
    for bad in (
        lambda: learner().learn(small(), 0, folder=tmp_path / "x"),
        lambda: learner().learn(small(), 9, seed=-1, folder=tmp_path / "x"),
        lambda: learner().learn(
            small(), 9, features=2.0 * np.ones((6, 3, 2)), folder=tmp_path / "x"
        ),
        lambda: learner().learn(small(), 9, cohorts=4, folder=tmp_path / "x"),
        lambda: learner().learn(small(), 9, folder=tmp_path / "x", checkpoint_seconds=-1.0),
    ):
        with pytest.raises(InvalidInput):
            bad()
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_may_be_used(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert learner().learn(small(), 20, **TINY, folder=tmp_path / "empty").played == 20


def by_hand(seed: int = 5) -> FiniteMDP:
    """Rewards on transitions, laws per step, starts per agent: all that arrays can say."""
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.ones(4), size=(3, 4, 2))
    start = rng.dirichlet(np.ones(4), size=3)
    return FiniteMDP(P, rng.random((3, 4, 2, 4)), initial=start)


def own_hat(states: np.ndarray) -> np.ndarray:
    return HatFeatures(4, 2)(states) * 0.5


GARNETS = [Garnet(4, 2, 2, 3, seed=seed) for seed in range(2)]
CONTINUOUS = {"dim": 4, "n_actions": 2, "horizon": 3, "seed": 1}


@pytest.mark.parametrize(
    ("env", "features"),
    [
        (small(), None),
        (small(), OneHot()),
        (small(), TableFeatures(small().phi[:, :, ::-1])),
        (by_hand(), None),
        (by_hand(), lambda states: np.full((len(states), 2, 3), (1 + states[:, None, None]) / 16)),
        ([by_hand(m) for m in range(3)], None),
        (xi_close(small(), 3, 0.05), None),
        ([GARNETS[0], GARNETS[0], GARNETS[1]], None),
        ([RandomMDP(3, 2, 2, agent=m) for m in range(3)], None),
        (ContinuousLinearMDP(**CONTINUOUS), None),
        (ContinuousLinearMDP(**CONTINUOUS), RBFFeatures(3)),
        (ContinuousLinearMDP(**CONTINUOUS), RBFFeatures([[0.1], [0.7]], bandwidth=[0.3])),
        (ContinuousLinearMDP(**CONTINUOUS), FourierFeatures(3, 0.5, seed=2)),
        (ContinuousLinearMDP(**CONTINUOUS), "hat"),
    ],
    ids=["named", "one-hot", "table", "arrays", "callable-finite", "arrays-each", "xi-close",
         "shared", "alike",
         "continuous", "rbf", "rbf-centres", "fourier", "hat"],
)  # fmt: skip
def test_every_kind_of_problem_resumes_from_its_folder(
    tmp_path: Path, env: Any, features: Any
) -> None:
    broken_off(tmp_path / "x", env, features=features)
    whole = learner().learn(env, 120, **TINY, features=features)
    resumed = fedlsvi.resume(tmp_path / "x", progress=False, threads=1)
    assert content(resumed) == content(whole)
    back = fedlsvi.load(tmp_path / "x")
    state = 1 if whole.parameters.packing == "diagonal" or back.raw_scalars_per_step == 3 else 0.3
    assert back.policy.action(state, 2) == whole.policy.action(state, 2)


def test_cohorts_are_remembered(tmp_path: Path, run: fedlsvi.Run) -> None:
    with pytest.raises(Stop):
        learner().learn(
            small(), 120, **TINY, cohorts=3, folder=tmp_path / "x", checkpoint_seconds=0,
            observers=[stop_after(3)],
        )  # fmt: skip
    assert content(fedlsvi.resume(tmp_path / "x", progress=False)) == content(run)


def test_a_function_of_ones_own_must_be_given_again(tmp_path: Path) -> None:
    env = ContinuousLinearMDP(**CONTINUOUS)
    broken_off(tmp_path / "x", env, features=own_hat)
    with refused(InvalidInput, "features-were-given", "own_hat", "features="):
        fedlsvi.resume(tmp_path / "x", progress=False)
    run = fedlsvi.load(tmp_path / "x")  # all but the policy is there
    with refused(InvalidInput, "features-were-given", "features="):
        run.policy.action(0.5, 1)
    assert fedlsvi.load(tmp_path / "x", features=own_hat).policy.action(0.5, 1) in (0, 1)
    whole = learner().learn(env, 120, **TINY, features=own_hat)
    resumed = fedlsvi.resume(tmp_path / "x", features=own_hat, progress=False)
    assert content(resumed) == content(whole)


def test_a_function_registered_by_name_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry.REGISTRY, "rows", dict(registry.REGISTRY.rows))
    registry.register("own-hat", lambda: CallableFeatures(own_hat), "a function of one's own")
    env = ContinuousLinearMDP(**CONTINUOUS)
    broken_off(tmp_path / "x", env, features="own-hat")
    resumed = fedlsvi.resume(tmp_path / "x", progress=False)
    assert content(resumed) == content(learner().learn(env, 120, **TINY, features=own_hat))
    resumed.policy.save(tmp_path / "policy")
    loaded = Policy.load(tmp_path / "policy")
    assert loaded.action(0.5, 1) == resumed.policy.action(0.5, 1)


def test_another_environment_is_not_accepted(tmp_path: Path) -> None:
    broken_off(tmp_path / "x", small())
    other = RandomLinearMDP(6, 3, 4, horizon=3, seed=2, initial="uniform")
    with refused(StoreError, "other-environment"):
        fedlsvi.resume(tmp_path / "x", env=other, progress=False)


def test_a_run_in_use_is_left_alone(tmp_path: Path) -> None:
    def meddle(record: fedlsvi.protocol.records.RoundRecord) -> None:
        if record.last == 30:  # a finished run may be read by anyone
            return
        with refused(StoreError, "in-use"):
            fedlsvi.resume(tmp_path / "x", progress=False)

    learner().learn(
        small(), 30, **TINY, folder=tmp_path / "x", checkpoint_seconds=0, observers=[meddle]
    )


def test_presets_of_a_later_version_do_not_reach_a_run_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """β and λ are those in force when the run began."""
    broken_off(tmp_path / "x", small(), beta=None, lam=None)
    whole = learner(beta=None, lam=None).learn(small(), 120, **TINY)
    monkeypatch.setattr(fedlsvi.groups, "PRACTICAL_LAM", 0.5)
    monkeypatch.setattr(fedlsvi.groups, "PRACTICAL_BETA", 7.0)
    assert content(fedlsvi.resume(tmp_path / "x", progress=False)) == content(whole)


def test_checkpoints_take_a_small_share_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However short the interval that was asked for, as long as it is not 0. By this clock a round
    takes a second, and so does a checkpoint."""
    now, saved, save = 0.0, 0, checkpoint.save

    def pass_a_second(_: Any = None) -> None:
        nonlocal now
        now += 1.0

    def counted(*given: Any) -> Any:
        nonlocal saved
        saved += 1
        pass_a_second()
        return save(*given)

    monkeypatch.setattr(run_writer, "perf_counter", lambda: now)
    monkeypatch.setattr(checkpoint, "save", counted)
    learner(gamma=2.0).learn(
        small(), 300, **TINY, folder=tmp_path / "x", checkpoint_seconds=1e-9,
        observers=[pass_a_second],
    )  # fmt: skip
    rounds = fedlsvi.load(tmp_path / "x").rounds
    assert rounds > 100
    # one whenever its share of rounds has passed, the first and the last besides
    assert rounds / (run_writer.SHARE + 1) - 1 <= saved <= rounds / run_writer.SHARE + 2


def test_resume_needs_a_run(tmp_path: Path) -> None:
    with refused(StoreError, "no-run", "nothing"):
        fedlsvi.resume(tmp_path / "nothing")
    with refused(StoreError, "no-run", "versions.json"):
        fedlsvi.load(tmp_path)
    (tmp_path / "seed-3").mkdir()
    (tmp_path / "seed-3" / "versions.json").touch()
    with refused(StoreError, "no-run", "several seeds", "seed-3"):
        fedlsvi.load(tmp_path)
    with pytest.raises(InvalidSetting):
        learner(gamma=0.5)


def test_a_run_whose_checkpoints_are_gone_is_played_again(tmp_path: Path) -> None:
    """What `evaluate` and `report` then tell the user to do."""
    whole = learner().learn(small(), 40, folder=tmp_path / "run", **TINY)
    for file in (tmp_path / "run/checkpoints").iterdir():
        file.unlink()
    (tmp_path / "run/checkpoints").rmdir()
    again = fedlsvi.resume(tmp_path / "run", progress=False)
    assert content(again) == content(whole)
    assert content(fedlsvi.load(tmp_path / "run")) == content(whole)
