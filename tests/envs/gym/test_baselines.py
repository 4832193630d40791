"""Baselines in black boxes: equal to plain loops over episodes, and to each other where they must
be; repeatable, resumable, and ranked by return."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds import Coin, Corridor, Tiny, walk_features

import fedlsvi
from expecting import refused
from fedlsvi.algorithms import registry
from fedlsvi.algorithms.shared import lsvi_sums
from fedlsvi.algorithms.shared.explorer import Explorer
from fedlsvi.cli import main
from fedlsvi.envs import as_environment, gymnasium
from fedlsvi.envs.gym.world import reset_seeds
from fedlsvi.errors import InvalidEnvironment, InvalidInput
from fedlsvi.features import FourierFeatures
from fedlsvi.learner import FedLSVI, drive
from fedlsvi.protocol.return_log import ReturnLog
from fedlsvi.run import Run

PAPER = {"preset": "paper", "lam": 0.5, "beta": 0.3}
ANYWHERE = ["centralised", "independent", "low-switching", "periodic", "rare-switch", "stale"]
KNOWN_REWARDS = {"lsvi-ucb-pp", "ucrl-vtr", "fed-ucrl-vtr"}
FINITE = sorted(set(registry.names()) - KNOWN_REWARDS - {"pevi"})
SETTINGS: dict[str, dict[str, Any]] = {"periodic": {"period": 7}}


class Hall(Tiny):
    """Two states without a table; an episode may end."""

    def __init__(self) -> None:
        super().__init__()
        self.law, self.P = self.P, None

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.P = self.law
        try:
            return super().step(action)
        finally:
            self.P = None


def _world(kind: str) -> tuple[Any, Any]:
    """A stepped world and its features."""
    if kind == "walked":
        return as_environment(lambda: Corridor(), horizon=5, reward_range=(-1, 1)), walk_features
    if kind == "ending":
        return as_environment(lambda: Hall(), horizon=5, reward_range=(0, 3)), None
    return as_environment(lambda: Coin(), horizon=5), None


def _learner(name: str, M: int = 3, given: dict[str, Any] | None = None) -> Any:
    own = SETTINGS.get(name, {}) if given is None else given
    linear = name in (*ANYWHERE, "fed-lsvi")
    return registry.make(name, n_agents=M, **((PAPER if linear else {}) | own))


def _play(name: str, kind: str, T: int = 20, M: int = 3, **options: Any) -> Run:
    learner = _learner(name, M, options.pop("settings", None))
    env, features = _world(kind)
    return learner.learn(env, T, 4, features=features, progress=False, **options)


def _literal(
    make: Callable[[], Any], span: tuple[float, float], phi: Any, end: int | None, agents: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """LSVI-UCB on what `agents` see together, from the raw episodes: w (H, d) and the returns
    (T, m). `end` is the number of the state after the end; None: the steps after it are left out.
    """
    T, H, lam, beta, (low, high) = 20, 5, 0.5, 0.3, span
    zero = -low / (high - low)
    d = phi(0.0 if end is not None else np.zeros(2)).shape[1]
    seen: list[list[Any]] = [[] for _ in range(H)]
    w, gram = np.zeros((H, d)), np.stack([lam * np.eye(d)] * H)
    earned = np.zeros((T, len(agents)))

    def scores(h: int, x: Any) -> np.ndarray:
        rows = phi(x)
        wide = [np.sqrt(row @ np.linalg.solve(gram[h], row)) for row in rows]
        return rows @ w[h] + beta * np.array(wide)

    def value(h: int, x: Any) -> float:
        return 0.0 if h == H else float(np.clip(scores(h, x).max(), 0.0, H))

    for t in range(T):
        for i, m in enumerate(agents):
            env = make()
            x, _ = env.reset(seed=int(reset_seeds(4, [m], t + 1, 1)[0, 0]))
            over = False
            for h in range(H):
                found = scores(h, x)
                a = int(np.argmax(found > found.max() - 1e-9))  # of equal ones the first
                if over:
                    seen[h].append((phi(x)[a], zero, x, False))
                    continue
                following, paid, over, _, _ = env.step(a)
                earned[t, i] += paid
                following = end if over and end is not None else following
                seen[h].append((phi(x)[a], (paid - low) / (high - low), following, over))
                x = following
                if over and end is None:
                    break
        for h in range(H - 1, -1, -1):
            gram[h], b = lam * np.eye(d), np.zeros(d)
            for row, paid, following, over in seen[h]:
                left = H - 1 - h
                v = left * zero if over and end is None else value(h + 1, following)
                gram[h] += np.outer(row, row)
                b += row * (paid + v)
            w[h] = np.linalg.solve(gram[h], b)
    return w, earned


def _one_hot(n_states: int) -> Any:
    return lambda x: np.eye(2 * n_states)[2 * int(x) : 2 * int(x) + 2]


LITERAL = {
    "walked": (Corridor, (-1.0, 1.0), lambda x: walk_features(np.asarray(x)[None])[0], None),
    "ending": (Hall, (0.0, 3.0), _one_hot(3), 2),
    "numbered": (Coin, (0.0, 1.0), _one_hot(4), 3),
}


@pytest.mark.parametrize("kind", LITERAL)
@pytest.mark.parametrize("name", ["centralised", "independent"])
def test_a_baseline_is_the_plain_loop_over_episodes(name: str, kind: str) -> None:
    run = _play(name, kind)
    agents = [0, 1, 2]
    alone = [_literal(*LITERAL[kind], [m]) for m in agents] if name == "independent" else []
    w, earned = alone[0] if alone else _literal(*LITERAL[kind], agents)
    if alone:
        earned = np.concatenate([one[1] for one in alone], axis=1)
    assert np.allclose(run.w, w, atol=1e-9)
    assert run.regret is None
    assert run.mean_returns is not None
    assert np.allclose(run.mean_returns, earned.mean(axis=1))


@pytest.mark.parametrize("kind", LITERAL)
def test_whoever_replans_after_every_episode_is_the_same(kind: str) -> None:
    """With one agent, all of them are LSVI-UCB; with three, those that share everything are."""
    always: dict[str, dict[str, Any]] = {"fed-lsvi": {"gamma": 1.0}, "periodic": {"period": 1}}
    for M, names in ((1, ["independent", *always]), (3, list(always))):
        one = _play("centralised", kind, M=M)
        for name in names:
            other = _play(name, kind, M=M, settings=always.get(name, {}))
            assert other.rounds == 20
            assert np.allclose(other.w, one.w, atol=1e-12)
            assert np.allclose(other.mean_returns, one.mean_returns)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["centralised", "independent"])
@pytest.mark.parametrize("kind", ["numbered", "ending"])
def test_counts_of_transitions_take_the_place_of_large_sums(
    name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dense = _play(name, kind)
    monkeypatch.setattr(lsvi_sums, "SMALL", 0)
    counted = _play(name, kind)
    assert np.allclose(counted.w, dense.w, atol=1e-12)
    assert np.array_equal(counted.gram, dense.gram)
    assert np.allclose(counted.mean_returns, dense.mean_returns)  # type: ignore[arg-type]
    _resumes(name, kind)


def _resumes(name: str, kind: str, given: dict[str, Any] | None = None) -> None:
    """Repeated, cut otherwise, and continued in another session: the same bits."""
    whole = _play(name, kind, settings=given)
    cut = _play(name, kind, threads=1, block=1, cohorts=3, settings=given)
    env, features = _world(kind)
    learner = _learner(name, 3, given)
    half = learner.prepare(env, 20, 4, features=features)
    records = []
    for record in half.rounds():
        records.append(record)
        if record.last >= 7:
            break
    arrays, plain = half.player.state()
    arrays = {key: np.array(array) for key, array in arrays.items()}
    history = half.player.history(0, half.player.t)
    rest = learner.prepare(env, 20, 4, features=features)
    if history:
        rest.player.extend(0, history)
    rest.restore(arrays, json.loads(json.dumps(plain)), None, records)
    drive(rest, [])
    assert records[-1].last < 20
    for other in (cut, Run.of(rest, learner.settings)):
        assert other.w.tobytes() == whole.w.tobytes()
        assert other.gram.tobytes() == whole.gram.tobytes()
        assert [r.mean_return for r in other.records] == [r.mean_return for r in whole.records]
        assert other.ledger.to_dict() == whole.ledger.to_dict()


@pytest.mark.parametrize("name", FINITE)
def test_finite_black_boxes_are_played_by_all_that_need_no_table(name: str) -> None:
    _resumes(name, "ending")
    run = _play(name, "ending")
    formula = registry.entry(name).scalars
    assert formula is not None
    assert run.ledger.scalars == dict.fromkeys(run.ledger.scalars, 0) | formula(run)


@pytest.mark.parametrize("name", ANYWHERE)
def test_black_boxes_of_vectors_are_played_by_the_linear_baselines(name: str) -> None:
    _resumes(name, "walked")
    run = _play(name, "walked")
    formula = registry.entry(name).scalars
    assert formula is not None
    assert run.ledger.scalars == dict.fromkeys(run.ledger.scalars, 0) | formula(run)


@pytest.mark.parametrize("kind", ["walked", "ending", "numbered"])
def test_alone_and_pooled_are_compared_with_together_in_the_same_model(kind: str) -> None:
    """By default a black box has one model for all steps, also for an agent alone or a server that
    has all episodes: who always replans is Fed-LSVI that does."""

    def learn(name: str, M: int, **own: Any) -> Run:
        env, features = _world(kind)
        learner = registry.make(name, n_agents=M, beta=0.3, lam=0.5, **own)
        return learner.learn(env, 15, 4, features=features, progress=False)

    for name, M in (("independent", 1), ("centralised", 1), ("centralised", 3)):
        one, other = learn(name, M), learn("fed-lsvi", M, gamma=1.0, diversity=0)
        assert one.parameters.stationary
        assert other.rounds == 15
        assert np.allclose(one.w, other.w, rtol=0.0, atol=1e-12)
        assert np.array_equal(one.mean_returns, other.mean_returns)  # type: ignore[arg-type]
        formula = registry.entry(name).scalars
        assert formula is not None
        assert one.ledger.scalars == dict.fromkeys(one.ledger.scalars, 0) | formula(one)
    for name in ("independent", "low-switching", "centralised"):
        _resumes(name, kind, {"preset": "practical"})


@pytest.mark.parametrize("name", ["independent", "low-switching", "centralised"])
def test_where_the_world_is_known_baselines_are_as_published(name: str) -> None:
    assert not registry.make(name).learn("river-swim", 5, progress=False).parameters.stationary
    pooled = registry.make(name, stationary=True).learn("river-swim", 5, progress=False)
    assert pooled.parameters.stationary


def test_who_cannot_play_it_says_so() -> None:
    for name in KNOWN_REWARDS:
        with refused(InvalidEnvironment, "needs-known-transitions", name):
            _play(name, "numbered")
    with refused(InvalidEnvironment, "needs-finite-states", "fed-ucbvi"):
        _play("fed-ucbvi", "walked")


def test_returns_are_recorded_once_they_are_played() -> None:
    log = ReturnLog()
    log.put([0, 2], 3, np.array([[1.0, 2.0], [3.0, 4.0]]))
    log.put([2], 5, np.array([[5.0]]))
    assert log.take([2], 3, 2).tolist() == [[3.0, 4.0]]
    log.put([2], 4, np.array([[7.0, 8.0]]))  # played again, after a cut
    assert log.take([2], 4, 2).tolist() == [[7.0, 8.0]]
    for agent, first, n in ((0, 3, 3), (1, 3, 1), (2, 3, 1)):
        with refused(InvalidInput, "recorded-before-played", str(agent)):
            log.take([agent], first, n)


def test_an_explorer_refuses_what_is_not_a_policy_before_it_plays() -> None:
    for kind, policy in (("walked", np.zeros((5, 3), int)), ("numbered", np.full((5, 4), 2))):
        env, features = _world(kind)
        plan = FedLSVI(1).prepare(env, 5, features=features).plan
        with refused(InvalidInput, "bad-policy"):
            Explorer(plan, np.array([0])).play(1, 1, policy)


@pytest.mark.parametrize("name", ["centralised", "low-switching"])
def test_a_baseline_in_a_folder_is_resumed_to_the_same_bits(name: str, tmp_path: Path) -> None:
    class Unplugged(Exception):
        """The machine went away."""

    def unplug(record: Any) -> None:
        if record.k == 3:
            raise Unplugged

    env = gymnasium("CartPole-v1", horizon=12)
    features = FourierFeatures(3, [1.5, 1.5, 0.15, 1.5])

    def learn(folder: str, *observers: Any) -> Run:
        learner = registry.make(name, n_agents=2, value_range=6)
        return learner.learn(
            env, 10, features=features, folder=tmp_path / folder, progress=False,
            checkpoint_seconds=0, observers=observers,
        )  # fmt: skip

    whole = learn("whole")
    with pytest.raises(Unplugged):
        learn("cut", unplug)
    rest = fedlsvi.resume(tmp_path / "cut", progress=False)
    assert rest.w.tobytes() == whole.w.tobytes()
    assert np.array_equal(rest.mean_returns, whole.mean_returns)  # type: ignore[arg-type]
    loaded = fedlsvi.load(tmp_path / "whole")
    assert np.array_equal(loaded.mean_returns, whole.mean_returns)  # type: ignore[arg-type]
    if name == "centralised":
        assert main(["report", str(tmp_path / "whole")]) == 0


@pytest.mark.usefixtures("here")
def test_a_black_box_is_tuned_by_return(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["tune", "--env", "CartPole-v1", "--features", "fourier", "--set", "env.horizon=8",
            "--set", "features.n_frequencies=2", "--algorithms", "fed-lsvi,independent",
            "--tune", "0:1", "--test", "5:6", "--episodes", "4", "--out", "t",
            "--jobs", "1"]  # fmt: skip
    assert main(line) == 0
    assert "return, last tenth" in capsys.readouterr().out
    rows = json.loads(Path("t/summary.json").read_text())["tuned"]
    assert [row["held_out"]["median"] for row in rows] == sorted(
        (row["held_out"]["median"] for row in rows), reverse=True
    )
    assert all(1.0 <= row["tuning_mean"] <= 8.0 for row in rows)
