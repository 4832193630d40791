"""Learning from logs with allowed actions: given, in a column, or those that a site has seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlsvi
from agreement import assert_agrees
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.cli import main
from fedlsvi.envs import RandomMDP, as_environment, logged_worlds, record_episodes, write_records
from fedlsvi.errors import InvalidEnvironment
from fedlsvi.logs.allowed import seen_actions
from fedlsvi.logs.rows import InvalidRecord
from fedlsvi.logs.world import records
from fedlsvi.remote.site_settings import SiteSettings
from literal import literal_fed_lsvi
from literal_pevi import pevi, transitions
from problems import Setting, continuous, one_hot, one_hot_table
from recorded import recorded
from repeats import repeats
from transports_over_frames import over_frames

S, A, H = 5, 3, 3
SITES = 3


def ward() -> RandomMDP:
    return RandomMDP(n_states=S, n_actions=A, horizon=H, seed=3)


def logs(episodes: int = 8) -> list[dict[str, Any]]:
    return [record_episodes(ward(), episodes + m, seed=m, agent=m, ends=[1]) for m in range(SITES)]


def vectors(log: dict[str, Any]) -> dict[str, Any]:
    """Numbered states as points of the plane."""
    place = np.random.default_rng(0).random((S, 2))
    return log | {key: place[log[key]] for key in ("observation", "next_observation")}


def bumps(states: np.ndarray) -> np.ndarray:
    """Five features of each of three actions, in the unit ball."""
    waves = np.cos(states @ np.array([[3.0, 1.0, 2.0, 5.0, 0.0], [1.0, 4.0, 2.0, 0.0, 5.0]]))
    return np.stack([np.roll(waves, a, axis=1) for a in range(A)], axis=1) / 3.0


def counted(log: dict[str, Any]) -> np.ndarray:
    found = np.zeros((S, A), int)
    for x, a in zip(log["observation"], log["action"], strict=True):
        found[x, a] += 1
    return found


def listed(table: np.ndarray) -> Any:
    return lambda h, x: np.flatnonzero(table[x]).tolist()


SETTINGS: dict[str, Any] = {"beta": 0.3, "lam": 0.5, "horizon": H, "n_actions": A, "n_states": S}


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("how", ["given", "seen", "column"])
def test_offline_with_masks_is_the_literal_algorithm(how: str, stationary: bool) -> None:
    parts, unit = logs(), np.eye(S * A)
    masks = [seen_actions(counted(log), 3) for log in parts]
    given: dict[str, Any] = {"allowed": "seen", "at_least": 3}
    if how == "given":
        rng = np.random.default_rng(1)
        table = rng.random((S, A)) < 0.5
        table[:, 0] |= ~table.any(axis=1)
        masks, given = [table] * SITES, {"allowed": table}
    elif how == "column":
        masks = [counted(log) > 0 for log in parts]
        masks = [np.where(mask.any(axis=1)[:, None], mask, True) for mask in masks]
        parts = [log | {"allowed": mask[log["observation"]]}
                 for log, mask in zip(parts, masks, strict=True)]  # fmt: skip
        given = {}
    run = fedlsvi.offline(parts, progress=False, stationary=stationary, **SETTINGS, **given)
    w, gram, best = pevi(
        parts, lambda x, a: unit[A * x + a], A, H, S * A, 0.5, 0.3, stationary=stationary,
        allowed=[listed(mask) for mask in masks],
    )  # fmt: skip
    assert np.abs(run.w - w).max() < 1e-9
    assert np.abs(run.gram - gram).max() < 1e-9
    wanted = [[best(h, x)[0] for x in range(S)] for h in range(1, H + 1)]
    assert run.policy.table.tolist() == wanted  # agent 0's
    assert masks[0][np.arange(S), run.policy.table].all()
    there = fedlsvi.offline(
        parts, progress=False, stationary=stationary, transport=over_frames(SITES), **SETTINGS,
        **given,
    )  # fmt: skip
    assert there.w.tobytes() == run.w.tobytes()


def test_vectors_take_a_function() -> None:
    parts = [vectors(log) for log in logs()]

    def allowed(h: int, x: np.ndarray) -> np.ndarray:
        found = np.ones((len(x), A), bool)
        found[x[:, 0] < 0.5, h % A] = False
        return found

    sizes: dict[str, Any] = {"beta": 0.3, "lam": 0.5, "horizon": H, "n_actions": A}
    run = fedlsvi.offline(parts, progress=False, features=bumps, allowed=allowed, **sizes)
    which = [lambda h, x: np.flatnonzero(allowed(h, x[None])[0]).tolist()] * SITES
    w, _, _ = pevi(parts, lambda x, a: bumps(x[None])[0, a], A, H, 5, 0.5, 0.3, allowed=which)
    assert np.abs(run.w - w).max() < 1e-9
    states = np.random.default_rng(0).random((40, 2))
    assert allowed(2, states)[np.arange(40), run.policy.actions(2, states)].all()
    with refused(InvalidEnvironment, "bad-allowed"):
        table = np.ones((S, A), bool)
        fedlsvi.offline(parts, progress=False, features=bumps, allowed=table, **sizes)


def seen_often(log: dict[str, Any], phi: Any, d: int, at_least: int) -> Any:
    """By the definition: the actions of a state whose features the log has seen so often."""
    gram = 1e-3 * np.eye(d)
    for x, a in zip(log["observation"], log["action"], strict=True):
        gram += np.outer(phi(x, a), phi(x, a))
    inverse = np.linalg.inv(gram)

    def allowed(h: int, x: Any) -> list[int]:
        visits = []
        for f in (phi(x, a) for a in range(A)):
            visits.append(1.0 / (f @ inverse @ f) - 1e-3 / (f @ f))
        often = [a for a in range(A) if visits[a] >= at_least - 1e-6]
        return often or [a for a in range(A) if visits[a] >= max(visits) - 1e-6]

    return allowed


@pytest.mark.parametrize("stationary", [False, True])
def test_what_was_seen_often_is_counted_by_feature_where_states_are_vectors(
    stationary: bool,
) -> None:
    """Each site by its own log; the literal algorithm, over frames too."""
    parts = [vectors(log) for log in logs(14)]

    def phi(x: Any, a: int) -> np.ndarray:
        return bumps(np.asarray(x)[None])[0, a]

    masks = [seen_often(log, phi, 5, 9) for log in parts]
    own: dict[str, Any] = {"beta": 0.3, "lam": 0.5, "horizon": H, "n_actions": A,
                           "features": bumps, "allowed": "seen", "at_least": 9,
                           "stationary": stationary, "progress": False}  # fmt: skip
    run = fedlsvi.offline(parts, **own)
    w, _, _ = pevi(parts, phi, A, H, 5, 0.5, 0.3, stationary=stationary, allowed=masks)
    assert np.abs(run.w - w).max() < 1e-9
    free = fedlsvi.offline(parts, **own | {"allowed": None})
    assert np.abs(run.w - free.w).max() > 1e-6  # it has an effect
    there = fedlsvi.offline(parts, transport=over_frames(SITES), **own)
    assert there.w.tobytes() == run.w.tobytes()
    states = np.random.default_rng(0).random((40, 2))
    for x, a in zip(states, run.policy.actions(2, states), strict=True):
        assert a in masks[0](2, x)
    world = logged_worlds(parts[0], horizon=H, n_actions=A, allowed="seen", at_least=9)[0]
    with refused(InvalidEnvironment, "needs-features"):
        world.allowed(1, states)


def test_by_feature_is_by_state_where_features_are_one_hot() -> None:
    """Numbers that are seen as vectors: the same mask, and the same model."""
    parts = logs()
    seen = [log | {key: log[key][:, None].astype(float)
                   for key in ("observation", "next_observation")} for log in parts]  # fmt: skip

    def unit(states: np.ndarray) -> np.ndarray:
        return one_hot_table(S, A)[states[:, 0].astype(int)]

    own: dict[str, Any] = {"beta": 0.3, "lam": 0.5, "horizon": H, "n_actions": A,
                           "allowed": "seen", "at_least": 3, "progress": False}  # fmt: skip
    by_state = fedlsvi.offline(parts, n_states=S, **own)
    by_feature = fedlsvi.offline(seen, features=unit, **own)
    assert np.abs(by_state.w - by_feature.w).max() < 1e-9
    states = np.arange(S)
    for m, log in enumerate(parts):
        mask = by_feature.plan.envs[m].allowed(1, states[:, None].astype(float))
        assert (mask == seen_actions(counted(log), 3)).all()


def test_a_warm_start_plays_what_its_log_has_seen_by_feature() -> None:
    """On continuous states, where nobody who has no log is bound."""
    problem = continuous()
    data, steps = recorded(problem.one, [12, 0, 9], problem.horizon, 3)

    def phi(x: Any, a: int) -> np.ndarray:
        return problem.phi(np.asarray(x)[None])[0, a]

    masks = [
        (lambda h, x: [0, 1, 2]) if log is None else seen_often(log, phi, 5, 4) for log in data
    ]
    setting = Setting(3, 24, 6.0, 5, 0.5)
    run = problem.learn(setting, data=data, allowed="seen", at_least=4)
    assert_agrees(run, problem.literal(setting, logs=steps, allowed=masks))


def test_what_was_seen_often_is_allowed() -> None:
    counts = np.array([[5, 2, 0], [1, 1, 0], [0, 0, 0]])
    assert seen_actions(counts, 2).tolist() == [[True, True, False], [True, True, False],
                                                [True, True, True]]  # fmt: skip
    assert seen_actions(counts, 9).tolist()[0] == [True, False, False]
    for seed in range(repeats(3, 20)):
        log = record_episodes(ward(), 30, seed=seed)
        world = logged_worlds(log, allowed="seen", at_least=4, n_states=S, n_actions=A)[0]
        assert (world.allowed[0] == seen_actions(counted(log), 4)).all()


def test_a_file_remembers_how_it_was_read(tmp_path: Path) -> None:
    for m, log in enumerate(logs()):
        write_records(log, tmp_path / f"{m}.parquet")
    file = tmp_path / "0.parquet"
    sizes = {"horizon": H, "n_states": S, "n_actions": A}
    world = logged_worlds(file, allowed="seen", at_least=3, **sizes)[0]
    again = records(**world.spec()["params"])
    assert (again.allowed == world.allowed).all()
    mask = np.ones((S, A), bool)
    mask[0, 1] = False
    world = logged_worlds(file, allowed=mask, **sizes)[0]
    assert (records(**world.spec()["params"]).allowed == world.allowed).all()
    run = fedlsvi.offline(file, progress=False, allowed="seen", at_least=3, **sizes)
    asked = ["offline", str(file), "--horizon", "3", "--states", "5", "--actions", "3"]
    assert main([*asked, "--seen", "3", "--out", str(tmp_path / "run")]) == 0
    loaded = fedlsvi.load(tmp_path / "run")
    assert np.array_equal(loaded.w, run.w)
    assert np.array_equal(loaded.policy.table, run.policy.table)


def test_a_site_names_it_in_its_own_settings(tmp_path: Path) -> None:
    class Federation:
        horizon, n_actions, n_states, reward_range = H, A, S, (0.0, 1.0)
        features, one_hot, dim = None, True, S * A
        algorithm, logged, action_names = "pevi", 0, None

    write_records(logs()[0], tmp_path / "records.parquet")
    settings = tmp_path / "fedlsvi.toml"
    settings.write_text('data = {file = "records.parquet", allowed = "seen", at_least = 3}\n')
    world = SiteSettings.read(settings).world(Federation, 1, 0)[0][0]
    assert (world.allowed[0] == seen_actions(counted(logs()[0]), 3)).all()
    settings.write_text('[env]\ngym = "Taxi-v4"\nhorizon = 5\nallowed = "env"\n')
    assert SiteSettings.read(settings).env.allowed.mean() < 1.0


def test_masks_that_do_not_fit_are_refused_with_the_row() -> None:
    log = logs()[0]
    n = len(log["step"])
    whole = np.ones((n, A), int)

    def but(row: int, *mask: int) -> np.ndarray:
        found = whole.copy()
        found[row - 1] = mask
        return found

    taken = int(log["action"][4])
    others = [int(a != taken) for a in range(A)]
    for column, code, row in (
        (but(5, 0, 0, 0), "no-action", 5),
        (but(5, 1, 2, 1), "not-boolean", 5),
        (but(5, *others), "action-not-allowed", 5),
        (np.ones((n, 2), int), "bad-width", 1),
        (np.ones(n, int), "bad-width", 1),
    ):
        with refused(InvalidRecord, code) as caught:
            logged_worlds(log | {"allowed": column}, n_states=S, n_actions=A)
        assert caught.value.row == row  # type: ignore[attr-defined]
    again = np.flatnonzero(log["observation"] == log["observation"][0])[1]
    mask = [1, 1, 1]
    mask[(int(log["action"][again]) + 1) % A] = 0
    with refused(InvalidRecord, "mask-not-of-state") as caught:
        logged_worlds(log | {"allowed": but(int(again) + 1, *mask)}, n_states=S, n_actions=A)
    assert caught.value.row == again + 1  # type: ignore[attr-defined]
    with refused(InvalidEnvironment, "bad-allowed"):
        logged_worlds(log, allowed="often")


def test_the_mask_of_an_environment_holds_for_its_logs() -> None:
    table = np.ones((S, A), bool)
    table[2, 1] = table[3, 0] = False
    env = as_environment(ward(), allowed=table)
    log = record_episodes(env, 40)
    assert table[log["observation"], log["action"]].all()  # the uniform behaviour keeps to it
    world = logged_worlds(log, like=env, allowed="seen", at_least=5)[0]
    assert not world.allowed[0][~table].any()


@pytest.mark.parametrize("stationary", [False, True])
def test_a_warm_start_plays_only_what_its_log_has_seen(stationary: bool) -> None:
    """Each agent has a log and a mask of its own, in the round of logs and in those it plays."""
    env = one_hot(3, S=S, A=A, H=H).one
    parts = [record_episodes(env, 8 + m, seed=m, agent=m) for m in range(SITES)]
    masks = [seen_actions(counted(log), 3) for log in parts]
    assert 0.3 < np.mean(masks) < 0.95
    settings: dict[str, Any] = {"gamma": 5.0, "beta": 0.6, "lam": 0.7, "preset": "paper"}
    learner = FedLSVI(SITES, stationary=stationary, **settings)
    given: dict[str, Any] = {"data": parts, "allowed": "seen", "at_least": 3, "progress": False}
    run = learner.learn(env, 20, 2, keep_models=True, **given)
    steps = [transitions(log, H, stationary) for log in parts]
    literal = literal_fed_lsvi(
        env, one_hot_table(S, A), SITES, 20, H, 2, 0.7, 0.6, 5.0, logs=steps,
        allowed=[listed(mask) for mask in masks], stationary=stationary,
    )  # fmt: skip
    assert list(run.taus) == literal.taus
    assert np.abs(run.w - literal.w).max() < 1e-9
    assert np.abs(run.gram - literal.gram).max() < 1e-9
    there = learner.learn(env, 20, 2, transport=over_frames(SITES), **given)
    assert there.w.tobytes() == run.w.tobytes()
    with refused(InvalidRecord, "no-records"):
        learner.learn(env, 5, allowed="seen", progress=False)
