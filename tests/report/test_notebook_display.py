"""Runs, policies, ledgers and comparisons as a notebook user meets them."""

from __future__ import annotations

import pickle
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from expecting import refused
from fedlsvi import STOP, FedLSVI, Run, load
from fedlsvi.envs import ContinuousLinearMDP, FiniteMDP, RandomLinearMDP
from fedlsvi.errors import FedLSVIWarning, InvalidInput, UnknownName
from fedlsvi.report import Comparison
from fedlsvi.report.groups import Group
from fedlsvi.report.notebook import html_of_run
from fedlsvi.report.run_page import described, page_of_run

ENV = RandomLinearMDP(8, 3, 4, horizon=3, seed=0)


@pytest.fixture(scope="module")
def run() -> Run:
    return FedLSVI(3, gamma=20.0).learn(ENV, 200, progress=False)


@pytest.fixture(scope="module")
def box() -> Run:
    """Continuous states under features that pickle cannot write."""
    env = ContinuousLinearMDP(dim=4, n_actions=2, horizon=3, seed=1)
    known = env.default_features()
    return FedLSVI(2).learn(env, 30, features=lambda states: known(states), progress=False)


class Balanced(HTMLParser):
    """Refuses HTML whose tags do not match, or that loads or runs anything."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag not in ("script", "link", "img", "iframe")
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_everything_has_a_short_text_and_html(run: Run, box: Run) -> None:
    several = Comparison([run, FedLSVI(3, gamma=20.0).learn(ENV, 200, 1, progress=False)])
    for shown in (run, run.policy, run.ledger, box, box.policy, several):
        assert len(repr(shown)) < 2000
        Balanced(shown._repr_html_())
    html = run._repr_html_()
    assert "<polyline" in html
    assert f"{run.scalars_raw:,}" in html
    assert f"{run.ledger.total:,}" in html
    assert f"{run.ledger.total:,}" in run.ledger._repr_html_()


def test_names_are_escaped() -> None:
    env = FiniteMDP(ENV.P, ENV.r, horizon=3, name="<script>x</script>")
    run = FedLSVI(2).learn(env, 20, progress=False)
    for shown in (run, run.policy, Comparison([run])):
        Balanced(shown._repr_html_())


def test_a_run_survives_pickle(run: Run) -> None:
    again = pickle.loads(pickle.dumps(run))
    assert repr(again) == repr(run)
    assert again.regret.tobytes() == run.regret.tobytes()  # type: ignore[union-attr]
    assert np.array_equal(again.policy.table, run.policy.table)
    assert again.references() == run.references()
    assert again.summary() == run.summary()
    with refused(InvalidInput, "cannot-continue", "folder"):
        again.learn_more(5)
    assert np.array_equal(pickle.loads(pickle.dumps(run.policy)).table, run.policy.table)
    both = pickle.loads(pickle.dumps(Comparison([run])))
    assert both.rows() == Comparison([run]).rows()


def test_joblib_returns_runs() -> None:
    joblib = pytest.importorskip("joblib")
    play = joblib.delayed(_play)
    one, two = joblib.Parallel(n_jobs=2, prefer="threads")(play(seed) for seed in (1, 2))
    assert (one.seed, two.seed) == (1, 2)


def _play(seed: int) -> Run:
    return pickle.loads(pickle.dumps(FedLSVI(2).learn(ENV, 20, seed, progress=False)))  # type: ignore[no-any-return]


def test_what_pickle_cannot_write_is_left_out_and_named(box: Run) -> None:
    again = pickle.loads(pickle.dumps(box))
    assert again.w.tobytes() == box.w.tobytes()
    assert len(repr(again)) < 2000
    with refused(InvalidInput, "not-pickled", "features"):
        again.policy.action(np.array([0.5]), 1)
    with refused(InvalidInput, "not-pickled", "environment"):
        again.evaluate(3)


def test_a_run_from_a_folder_survives_pickle(run: Run, tmp_path: Path) -> None:
    run.save(str(tmp_path / "run"))
    again = pickle.loads(pickle.dumps(load(tmp_path / "run")))
    assert np.array_equal(again.policy.table, run.policy.table)


def test_rounds_become_a_table(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    table = run.to_pandas()
    assert len(table) == run.rounds
    assert table["length"].sum() == run.played
    assert table["scalars"].iloc[-1] == run.ledger.total
    assert list(Comparison([run]).to_pandas()["seed"]) == [0]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with refused(InvalidInput, "pandas-missing", "pandas"):
        run.to_pandas()


def test_figures_go_onto_given_axes(run: Run, tmp_path: Path) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    left, right = figure.subplots(1, 2)
    assert run.plot("regret", ax=left) is figure
    assert run.plot("rounds", ax=right, path=str(tmp_path / "both.png")) is figure
    assert left.lines
    assert right.lines
    assert (tmp_path / "both.png").stat().st_size > 1000
    with refused(InvalidInput, "several-panels", "2"):
        run.plot("communication", ax=left)
    with refused(InvalidInput, "bad-ax", "int"):
        run.plot(ax=3)
    assert Comparison([run]).plot("rounds").axes
    with refused(UnknownName, "unknown-figure", "returns"):
        Comparison([run]).plot("returns")


def test_a_policy_predicts_as_in_stable_baselines(run: Run) -> None:
    policy = run.policy
    state, actions = None, []
    for x in (1, 5, 2, 4):
        action, state = policy.predict(x, state)
        actions.append(action)
    steps = [1, 2, 3, 3]  # after the last step it stays there
    assert actions == [policy(x, h) for x, h in zip((1, 5, 2, 4), steps, strict=True)]
    batch, states = policy.predict(np.array([1, 5]), None, np.array([True, True]))
    assert batch.tolist() == [policy(1, 1), policy(5, 1)]
    batch, states = policy.predict(np.array([2, 2]), states, np.array([False, True]))
    assert batch.tolist() == [policy(2, 2), policy(2, 1)]
    assert states.tolist() == [3, 2]


def test_predict_without_a_state_is_warned_of(run: Run) -> None:
    policy = pickle.loads(pickle.dumps(run.policy))
    policy.predict(1)
    with pytest.warns(FedLSVIWarning, match="step 1"):
        policy.predict(1)


def test_evaluate_and_report(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("gymnasium")
    found = run.evaluate(5)
    assert len(found.returns) == 5
    with refused(InvalidInput, "no-folder", "report"):
        run.report()
    assert run.report(tmp_path / "page") == tmp_path / "page" / "report.html"


def test_what_is_evaluated_is_what_is_deployed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The policy without its bonus, and not the one that still explores."""
    asked = []
    monkeypatch.setattr("fedlsvi.envs.gym.play.evaluate_policy", lambda *a, **_: asked.append(a[0]))
    run.evaluate(3)
    assert asked == [run.policy]
    assert run.policy is not run.exploring_policy


def test_a_policy_is_named_after_its_environment(run: Run) -> None:
    """Not after the package that it comes from."""
    lake = FedLSVI(1).learn("FrozenLake-v1", 2, horizon=4, progress=False)
    assert repr(lake.policy) == "<Policy of 4 steps for FrozenLake-v1>"
    assert repr(run.policy) == "<Policy of 3 steps for random-linear>"


def test_a_fresh_seed_is_kept() -> None:
    runs = [FedLSVI(2).learn(ENV, 10, seed=None, progress=False) for _ in range(2)]
    assert runs[0].seed != runs[1].seed
    again = FedLSVI(2).learn(ENV, 10, seed=runs[0].seed, progress=False)
    assert again.w.tobytes() == runs[0].w.tobytes()


def test_the_page_says_how_a_run_ended(run: Run, tmp_path: Path) -> None:
    stop = FedLSVI(3, gamma=20.0).learn(
        ENV, 200, progress=False, observers=[lambda record: STOP if record.last > 50 else None]
    )
    assert "(stopped; 200 were planned)" in ", ".join(described(Group("", [stop])))
    assert "interrupted" not in html_of_run(stop)
    sentence = "this run goes on after episode 3 & more"
    page = page_of_run(Group("", [replace(run, extended=(sentence,))]), {}, {})
    assert "This run goes on after episode 3 &amp; more." in page
