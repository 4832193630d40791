"""β_h = β·v_h/v_1, the bonus of the practical preset: the literal loop, on every path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlsvi
from agreement import assert_agrees, assert_close
from expecting import refused
from fedlsvi import FedLSVI, algorithms
from fedlsvi.config import Settings
from fedlsvi.errors import InvalidSetting
from fedlsvi.experiments.tune import scale_of
from fedlsvi.groups import PRACTICAL_BETA, ProblemSize
from fedlsvi.policy import Policy
from literal import tapered
from literal_lsvi import literal_lsvi_ucb, literal_pooled_lsvi_ucb
from problems import Problem, Setting, chain, continuous, heterogeneous, one_hot, simplex
from transports_over_frames import assert_same, over_frames

S = Setting(3, 40, 12.0, 5, 0.5)
PROBLEMS = [simplex(3), one_hot(3), chain(), heterogeneous(1, M=3), continuous()]
CASES = [(problem, False) for problem in PROBLEMS] + [(one_hot(3), True), (chain(), True)]


def clip(H: int, v: float = np.inf) -> list[float]:
    return [min(H - h + 1.0, v) for h in range(1, H + 1)]


@pytest.mark.parametrize("v", [None, 1.5])
@pytest.mark.parametrize(
    ("problem", "stationary"), CASES, ids=[f"{p.name}-{pooled}" for p, pooled in CASES]
)
def test_it_is_the_literal_loop(problem: Problem, stationary: bool, v: float | None) -> None:
    H, most = problem.horizon, np.inf if v is None else v
    own: dict[str, Any] = {"stationary": stationary, "value_range": v, "taper": True}
    run = problem.learn(S, "practical", policy="explore", **own)
    literal = problem.literal(
        S, beta=tapered(S.beta, H, most), clip=clip(H, most), stationary=stationary,
        advice=run.policies if problem.finite else None,
    )  # fmt: skip
    assert_agrees(run, literal)
    assert_same(run, problem.learn(S, "practical", policy="explore", cohorts=2, **own))
    assert run.w.tobytes() != problem.learn(S, "practical", **own | {"taper": False}).w.tobytes()


@pytest.mark.parametrize("problem", [simplex(3), continuous()], ids=lambda p: p.name)
def test_the_default_is_this_rule(problem: Problem) -> None:
    """c·(H − h + 1); a β that is given, the theorem's and the paper's are the same at each step."""
    H = problem.horizon
    own = {"stationary": False, "bonus": "constant"}
    run = FedLSVI(S.M, gamma=S.gamma, lam=S.lam, **own).learn(
        problem.envs, S.T, S.seed, features=problem.features, progress=False, keep_models=True
    )
    beta = [PRACTICAL_BETA * (H - h + 1) for h in range(1, H + 1)]
    advice = run.policies if problem.finite else None
    assert_agrees(run, problem.literal(S, beta=beta, clip=clip(H), advice=advice))
    given: dict[str, Any]
    for given in ({"beta": 1.0}, {"beta": "theory"}, {"preset": "paper"}):
        assert not Settings(2, **given).resolve(ProblemSize(50, H, 4, False)).taper
    assert not run.bounds["theorem_1"].applies
    paper = Settings(2, preset="paper", taper=True).resolve(ProblemSize(50, 4, 4, False))
    assert paper.taper_factors.tolist() == [1.0, 0.75, 0.5, 0.25]


@pytest.mark.parametrize("problem", [simplex(3), one_hot(3)], ids=lambda p: p.name)
def test_comparators_have_it_too(problem: Problem) -> None:
    H, beta = problem.horizon, tapered(S.beta, problem.horizon)
    size = (S.T, H, S.seed, S.lam)
    for name, M in (("centralised", 3), ("independent", 1)):
        learner = algorithms.make(name, n_agents=M, beta=S.beta, lam=S.lam, taper=True)
        run = learner.learn(problem.envs, S.T, S.seed, progress=False, keep_models=True)
        about = (problem.one, problem.phi, *size, beta, clip(H))
        if M == 1:
            literal = literal_lsvi_ucb(*about, advice=run.policies)
        else:
            about = (problem.envs, problem.phi, M, *size, beta, clip(H))
            literal = literal_pooled_lsvi_ucb(*about, advice=run.policies)
        assert_close(run.w, literal.w, name)
        assert_close(run.regret, literal.regret, f"regret of {name}")


@pytest.mark.parametrize("problem", [chain(), continuous()], ids=lambda p: p.name)
def test_over_frames_in_folders_and_in_policy_files(problem: Problem, tmp_path: Path) -> None:
    """The pass at the end has one β for all steps, 0 or −b."""
    learner = FedLSVI(S.M, gamma=S.gamma, lam=S.lam, pessimism=0.3)

    def learn(**own: Any) -> Any:
        options = {"features": problem.features, "progress": False, "keep_models": True} | own
        return learner.learn(problem.envs, S.T, S.seed, **options)

    class Killed(Exception):
        pass

    def kill(record: Any) -> None:
        if record.k == 2:
            raise Killed

    here = learn(folder=tmp_path / "whole")
    assert here.parameters.taper
    there = learn(transport=over_frames(2))
    assert_same(here, there)
    assert here.policy_w.tobytes() == there.policy_w.tobytes()
    with pytest.raises(Killed):
        learn(folder=tmp_path / "run", checkpoint_seconds=0.0, observers=[kill])
    given = {} if problem.finite else {"env": problem.one, "features": problem.features}
    resumed = fedlsvi.resume(tmp_path / "run", progress=False, **given)
    assert_same(here, resumed)
    stored = fedlsvi.load(tmp_path / "whole", **given)
    phi = {} if problem.finite else {"features": problem.features}
    x = np.arange(problem.one.n_states) if problem.finite else np.linspace(0.0, 1.0, 60)[:, None]
    for name in ("policy", "exploring_policy"):
        mine = getattr(here, name)
        mine.save(tmp_path / name)
        for other in (getattr(stored, name), Policy.load(tmp_path / name, **phi)):
            for h in range(1, problem.horizon + 1):
                assert np.array_equal(mine.actions(h, x), other.actions(h, x))
    widths = here.coverage.beta
    assert_close(widths, tapered(here.parameters.beta, problem.horizon), "β")


def test_tuning_keeps_the_rule_and_nothing_else_is_taken() -> None:
    p = Settings(2).resolve(ProblemSize(50, 4, 5, False))
    assert scale_of("fed-lsvi", p).tapered
    assert not scale_of(
        "fed-lsvi", Settings(2, beta=1.0).resolve(ProblemSize(50, 4, 5, False))
    ).tapered
    with refused(InvalidSetting, "bad-taper", "'slowly'"):
        Settings(2, taper="slowly")  # type: ignore[arg-type]
