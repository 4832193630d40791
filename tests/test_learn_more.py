"""A run that goes on is the run that was longer from the start; observers and Ctrl-C end one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import fedlsvi
from expecting import refused
from fedlsvi import STOP, FedLSVI, Run
from fedlsvi.algorithms import registry as algorithms
from fedlsvi.envs import ContinuousLinearMDP, RandomLinearMDP
from fedlsvi.errors import ContinuationWarning, InvalidInput
from fedlsvi.features import FourierFeatures
from fedlsvi.protocol import snapshot
from fedlsvi.protocol.records import RoundRecord

QUIET: dict[str, Any] = {"progress": False}


@cache
def finite() -> RandomLinearMDP:
    return RandomLinearMDP(8, 3, 4, horizon=3, seed=0, initial="uniform")


def black_box(features: Any = None) -> dict[str, Any]:
    """A Gymnasium environment that is stepped, and what `learn` needs to know of it."""
    pytest.importorskip("gymnasium")
    from fedlsvi.envs.gym.convert import as_environment

    if features is None:
        env = as_environment("FrozenLake-v1", horizon=6, tables=False)
        return {"env": env}
    env = as_environment("CartPole-v1", horizon=8)
    return {"env": env, "features": features}


PROBLEMS: dict[str, Callable[[], dict[str, Any]]] = {
    "finite": lambda: {"env": finite()},
    "continuous": lambda: {"env": ContinuousLinearMDP(dim=4, n_actions=2, horizon=3, seed=1)},
    "stepped finite": black_box,
    "stepped continuous": lambda: black_box(FourierFeatures(3)),
}
TRIGGERS: list[dict[str, Any]] = [
    {"gamma": "anytime", "cap": "agents"},
    {"gamma": 20.0},
    {"gamma": "anytime"},
    {"gamma": 20.0, "min_round": 6},
    {"gamma": 20.0, "overshoot": "keep"},
]


def same(one: Run, other: Run) -> None:
    """τ's, w, Λ, regret, ledger and what every round recorded, to the last bit."""
    assert one.taus == other.taus
    assert one.w.tobytes() == other.w.tobytes()
    assert one.gram.tobytes() == other.gram.tobytes()
    assert (one.regret is None) == (other.regret is None)
    if one.regret is not None and other.regret is not None:
        assert one.regret.tobytes() == other.regret.tobytes()
    assert one.ledger.to_dict() == other.ledger.to_dict()
    for here, there in zip(one.records, other.records, strict=True):
        timeless = {"seconds": {}}
        assert here.to_dict() | timeless == there.to_dict() | timeless


@pytest.mark.parametrize(
    ("problem", "trigger"),
    [("finite", trigger) for trigger in TRIGGERS]
    + [(problem, TRIGGERS[0]) for problem in PROBLEMS if problem != "finite"],
    ids=str,
)
def test_a_run_that_goes_on_is_one_longer_run(
    problem: str, trigger: dict[str, Any], tmp_path: Path
) -> None:
    given = PROBLEMS[problem]()
    learner = FedLSVI(3, beta=0.3, **trigger)
    longer = learner.learn(episodes=60, seed=3, **given, **QUIET)
    short = learner.learn(episodes=31, seed=3, **given, **QUIET)
    same(short.learn_more(29, **QUIET), longer)
    same(short.learn_more(1, **QUIET).learn_more(28, **QUIET), longer)
    folder = tmp_path / "run"
    learner.learn(episodes=31, seed=3, folder=folder, **given, **QUIET)
    same(fedlsvi.resume(folder, episodes=60, **given, **QUIET), longer)
    same(fedlsvi.load(folder), longer)
    assert fedlsvi.load(folder).extended == ()
    short.save(str(tmp_path / "saved"))
    same(fedlsvi.load(tmp_path / "saved").learn_more(29, **given, **QUIET), longer)


def test_the_round_that_t_cuts_short_is_taken_back() -> None:
    """Else the equality above would hold trivially."""
    learner = FedLSVI(3, gamma=20.0, rounds="off")
    short = learner.learn(finite(), 45, 3, **QUIET)
    longer = learner.learn(finite(), 90, 3, **QUIET)
    assert 46 in short.taus
    assert 46 not in longer.taus
    assert short.taus[:-1] == longer.taus[: short.rounds]


def test_the_run_itself_stays_as_it_was() -> None:
    learner = FedLSVI(3, gamma="anytime")
    short = learner.learn(finite(), 47, 3, keep_models=True, **QUIET)
    again = learner.learn(finite(), 47, 3, **QUIET)
    longer = short.learn_more(20, **QUIET)
    same(short, again)
    assert len(longer.models) == len(longer.policies) == longer.rounds


@pytest.mark.parametrize("settings", [{}, {"gamma": "anytime", "preset": "paper"}], ids=str)
def test_where_numbers_follow_t_a_sentence_says_what_differs(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    learner = FedLSVI(3, **settings)
    short = learner.learn(finite(), 300, 3, **QUIET)
    symbol = "β" if settings else "γ"
    with pytest.warns(ContinuationWarning, match=symbol):
        longer = short.learn_more(300, **QUIET)
    assert len(longer.extended) == 1
    assert longer.played == longer.parameters.episodes == 600
    assert longer.parameters.gamma == 600 / 12
    assert longer.regret is not None
    assert len(longer.regret) == 600
    assert "theorem_3" not in longer.bounds
    assert longer.bounds["scalars"].holds
    learner.learn(finite(), 300, 3, folder=tmp_path / "run", **QUIET)
    with pytest.warns(ContinuationWarning, match=symbol):
        in_folder = fedlsvi.resume(tmp_path / "run", episodes=600, **QUIET)
    same(in_folder, longer)
    assert in_folder.extended == fedlsvi.load(tmp_path / "run").extended == longer.extended


@pytest.mark.parametrize("name", ["centralised", "independent", "periodic", "stale"])
def test_comparators_without_t_go_on(name: str, tmp_path: Path) -> None:
    own = {"periodic": {"period": 9}, "stale": {"gamma": 20.0}}.get(name, {})
    learner = algorithms.make(name, n_agents=2, **own)
    longer = learner.learn(finite(), 90, 3, **QUIET)
    short = learner.learn(finite(), 47, 3, **QUIET)
    same(short.learn_more(43, **QUIET), longer)
    learner.learn(finite(), 47, 3, folder=tmp_path / "run", **QUIET)
    same(fedlsvi.resume(tmp_path / "run", episodes=90, **QUIET), longer)


@pytest.mark.parametrize("name", ["fedq-hoeffding", "rare-switch", "coop-lsvi", "async-coop"])
def test_comparators_that_follow_t_are_refused(name: str, tmp_path: Path) -> None:
    learner = algorithms.make(name, n_agents=2)
    run = learner.learn(finite(), 40, 3, **QUIET)
    with refused(InvalidInput, "cannot-continue", name):
        run.learn_more(5, **QUIET)
    learner.learn(finite(), 40, 3, folder=tmp_path / "run", **QUIET)
    with refused(InvalidInput, "cannot-continue", name):
        fedlsvi.resume(tmp_path / "run", episodes=45, **QUIET)
    same(fedlsvi.load(tmp_path / "run"), run)


def test_a_budget_is_not_exceeded_by_continuation(tmp_path: Path) -> None:
    run = FedLSVI(3, rounds=5).learn(finite(), 60, 3, folder=tmp_path / "run", **QUIET)
    with refused(InvalidInput, "cannot-continue", "rounds"):
        run.learn_more(60, **QUIET)


def test_numbers_of_episodes_are_checked(tmp_path: Path) -> None:
    run = FedLSVI(2).learn(finite(), 30, folder=tmp_path / "run", **QUIET)
    with refused(InvalidInput, "bad-episodes", "0"):
        run.learn_more(0)
    with refused(InvalidInput, "bad-episodes", "30"):
        fedlsvi.resume(tmp_path / "run", episodes=20)


def test_what_is_too_large_is_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(snapshot, "LARGEST", 100)
    run = FedLSVI(2).learn(finite(), 30, **QUIET)
    with refused(InvalidInput, "cannot-continue", "too large"):
        run.learn_more(5, **QUIET)
    FedLSVI(2).learn(finite(), 30, folder=tmp_path / "run", **QUIET)
    with refused(InvalidInput, "cannot-continue", "too large"):
        fedlsvi.resume(tmp_path / "run", episodes=35, **QUIET)


class StopAt:
    """An observer that ends the run after the round with this episode."""

    def __init__(self, episode: int) -> None:
        self.episode, self.seen, self.closed = episode, 0, False

    def __call__(self, record: RoundRecord) -> Any:
        self.seen = record.last
        return STOP if record.last >= self.episode else None

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("problem", PROBLEMS)
def test_an_observer_ends_a_run(problem: str, tmp_path: Path) -> None:
    given = PROBLEMS[problem]()
    learner = FedLSVI(3, gamma="anytime")
    whole = learner.learn(episodes=90, seed=3, **given, **QUIET)
    stop, other = StopAt(40), StopAt(1000)
    run = learner.learn(episodes=90, seed=3, observers=[stop, other], **given, **QUIET)
    assert (run.ending, run.played) == ("stopped", stop.seen)
    assert stop.seen == other.seen < 90
    assert stop.closed
    assert other.closed
    assert run.summary()["ending"] == "stopped"
    assert not run.summary()["finished"]
    assert run.taus == whole.taus[: len(run.taus)]
    assert run.regret is None or len(run.regret) == run.played
    same(run.learn_more(90 - run.played, **QUIET), whole)

    folder = tmp_path / "run"
    learner.learn(
        episodes=90, seed=3, folder=folder, observers=[StopAt(40)], checkpoint_seconds=1e6,
        **given, **QUIET,
    )  # fmt: skip
    kept = fedlsvi.load(folder)
    same(kept, run)
    assert kept.ending == "stopped"
    run.save(str(tmp_path / "saved"))
    for where in (folder, tmp_path / "saved"):
        finished = fedlsvi.resume(where, **given, **QUIET)
        same(finished, whole)
        assert fedlsvi.load(where).ending == "finished"


def test_a_stop_with_the_last_round_is_a_finished_run() -> None:
    run = FedLSVI(2).learn(finite(), 20, observers=[StopAt(20)], **QUIET)
    assert (run.ending, run.played) == ("finished", 20)


def test_ctrl_c_without_a_folder_returns_the_run_so_far(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def press(record: RoundRecord) -> None:
        if record.last == 30:
            os.kill(os.getpid(), signal.SIGINT)

    learner = FedLSVI(2, gamma=1.0)
    run = learner.learn(finite(), 500, observers=[press], **QUIET)
    assert run.ending == "interrupted"
    assert 30 <= run.played < 500
    assert "interrupted after episode" in capsys.readouterr().err
    same(run.learn_more(500 - run.played, **QUIET), learner.learn(finite(), 500, **QUIET))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_somebody_elses_ctrl_c_is_left_alone() -> None:
    pressed: list[int] = []

    def press(record: RoundRecord) -> None:
        if record.last == 3:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    try:
        run = FedLSVI(2, gamma=1.0).learn(finite(), 10, observers=[press], **QUIET)
    finally:
        signal.signal(signal.SIGINT, before)
    assert pressed == [signal.SIGINT]
    assert run.ending == "finished"


def test_agents_elsewhere_do_not_go_on(tmp_path: Path) -> None:
    from transports_over_frames import over_frames

    where: Any = {"transport": over_frames(2), **QUIET}
    run = FedLSVI(3, gamma=5.0).learn(finite(), 30, 3, observers=[StopAt(20)], **where)
    assert run.ending == "stopped"
    with refused(InvalidInput, "cannot-continue", "other processes"):
        run.learn_more(10, **QUIET)
    over = over_frames(2, tmp_path / "journals")
    FedLSVI(3, gamma=5.0).learn(finite(), 30, 3, transport=over, folder=tmp_path / "run", **QUIET)
    with refused(InvalidInput, "cannot-continue", "other processes"):
        fedlsvi.resume(tmp_path / "run", episodes=40, transport=over, **QUIET)
