"""What the practical preset sets where a user does not: the cap, and a budget of rounds."""

from __future__ import annotations

from typing import Any

import pytest

from expecting import refused
from fedlsvi import FedLSVI, algorithms
from fedlsvi.config import Parameters, Settings
from fedlsvi.core import theory
from fedlsvi.envs import RandomLinearMDP
from fedlsvi.errors import InvalidSetting
from fedlsvi.groups import ProblemSize

M, T, H, D = 4, 3_000, 3, 5


def numbers(T: int = T, one_hot: bool = False, **given: Any) -> Parameters:
    return Settings(**{"n_agents": M} | given).resolve(ProblemSize(T, H, D, one_hot))


def test_eager_within_what_the_raw_data_pays() -> None:
    """c = 1 + 1/M; a round takes 2MH(P + d) + 3MH + 3M scalars, the pass at the end 2MHd + 5MH + M,
    and the data has 3MTH."""
    p = numbers()
    each, first = 2 * M * H * (15 + D) + 3 * M * H + 3 * M, M * (H * (15 + D + 1) + 3)
    last = 2 * M * H * D + 5 * M * H + M
    assert (p.cap, p.rounds) == (1.25, (3 * M * T * H - first - last) // each)
    assert numbers(policy="explore").rounds == (3 * M * T * H - first) // each
    most = theory.scalars_total(D, H, M, p.packing, p.rounds, M * p.rounds, noisy=True) + last
    assert most <= theory.scalars_raw(H, M, T) < most + each
    first = M * (H * 11 + 3)
    assert numbers(one_hot=True).rounds == (3 * M * T * H - first - last) // (276 + 12)


@pytest.mark.parametrize("episodes", [1, 50, 500])
def test_short_runs_may_have_forty_rounds(episodes: int) -> None:
    assert numbers(episodes).rounds == 40


@pytest.mark.parametrize(("given", "least"), [
    ({}, 320),
    ({"aggregation": "exact"}, 320),
    ({"aggregation": "secure"}, 40),
    ({"gamma": 1.0, "rounds": 5}, 5),
    ({"exchange": "one-trip"}, 320),
])  # fmt: skip
def test_where_states_are_finite_learning_comes_first(given: dict[str, Any], least: int) -> None:
    """Where ends are public every round of the budget is played, and 40 stay the least."""
    settings = Settings(**{"n_agents": M} | given)
    assert settings.resolve(ProblemSize(50, H, D, one_hot=True, states=9)).rounds == least


def test_vectors_keep_forty() -> None:
    """A round takes a pass over the whole history there."""
    assert Settings(n_agents=M).resolve(ProblemSize(50, H, D, one_hot=False)).rounds == 40


def test_a_default_run_sends_no_more_than_its_raw_data() -> None:
    env = RandomLinearMDP(6, 3, D, horizon=H, seed=1)
    run = FedLSVI(M).learn(env, T, seed=0, progress=False)
    assert run.parameters.rounds is not None
    assert 40 < run.rounds <= run.parameters.rounds
    assert run.scalars_raw is not None
    assert run.ledger.total <= run.scalars_raw


@pytest.mark.parametrize(
    ("given", "cap", "rounds"),
    [
        ({"preset": "paper"}, None, None),
        ({"gamma": 20.0}, None, None),
        ({"gamma": "anytime"}, 1.25, None),
        ({"cap": "off", "rounds": "off"}, None, None),
        ({"cap": 3.0, "rounds": "off"}, 3.0, None),
        ({"rounds": 7}, 1.25, 7),
        ({"gamma": 20.0, "cap": "agents", "rounds": 7}, 1.25, 7),
        ({"preset": "paper", "cap": "agents"}, 1.25, None),
    ],
)
def test_what_a_user_gives_comes_first(
    given: dict[str, Any], cap: float | None, rounds: int | None
) -> None:
    p = numbers(**given)
    assert (p.cap, p.rounds) == (cap, rounds)


def test_scalars_alone_set_the_budget() -> None:
    """Also where they pay for more rounds than the raw data would."""
    default = numbers().rounds
    assert default is not None
    more = numbers(scalars=10 * theory.scalars_raw(H, M, T)).rounds
    assert more is not None
    assert more > default


def test_a_floor_keeps_the_default() -> None:
    p = numbers(min_round=10)
    assert (p.cap, p.rounds, p.min_round) == (1.25, numbers().rounds, 10)
    assert p.most_rounds(T) <= T // 10


@pytest.mark.parametrize("name", sorted(set(algorithms.names()) - {"fed-lsvi", "stale", "pevi"}))
def test_comparators_keep_their_own_times(name: str) -> None:
    """Only Fed-LSVI, and its ablation with the same trigger, have a cap and a budget; pevi plays
    nothing and has its one round."""
    p = algorithms.make(name, n_agents=M).settings.resolve(ProblemSize(T, H, D, True))
    assert (p.cap, p.rounds) == (None, None)


def test_the_ablation_has_the_trigger_of_fed_lsvi() -> None:
    p = algorithms.make("stale", n_agents=M).settings.resolve(ProblemSize(T, H, D, False))
    assert p.trigger == numbers(policy="explore").trigger  # it has no pass at the end


def test_no_other_words() -> None:
    for name in ("cap", "rounds"):
        with refused(InvalidSetting, f"bad-{name}", "'none'"):
            Settings(n_agents=M, **{name: "none"})  # type: ignore[arg-type]
