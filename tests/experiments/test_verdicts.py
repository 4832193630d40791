"""Verdicts: what data say when a claim is true, when it is false, and when there are too few."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedlsvi.core import theory
from fedlsvi.experiments import reproduce, sweeps
from fedlsvi.experiments.claims import averages, gaps, single_agent
from fedlsvi.experiments.runner import Outcome, RunSpec
from fedlsvi.experiments.sweeps import random_linear, run_spec
from fedlsvi.experiments.verdicts import Check, Finding, Verdict, above, always, below, overall
from fedlsvi.report.intervals import Interval

HOLDS, FAILS, OPEN = Verdict.HOLDS, Verdict.FAILS, Verdict.OPEN


@pytest.mark.parametrize(
    ("interval", "at_most", "at_least"),
    [
        ((0.4, 0.3, 0.49), HOLDS, FAILS),
        ((0.6, 0.55, 0.7), FAILS, HOLDS),
        ((0.5, 0.4, 0.6), OPEN, OPEN),
    ],
)
def test_an_interval_on_one_side_decides(
    interval: tuple[float, float, float], at_most: Verdict, at_least: Verdict
) -> None:
    assert below(Interval(*interval), 0.5) is at_most
    assert above(Interval(*interval), 0.5) is at_least


def test_a_single_run_decides_nothing() -> None:
    assert below(Interval(0.1, -np.inf, np.inf), 0.5) is OPEN
    assert always([]) is OPEN


def test_one_failure_decides_and_what_stands_beside_does_not() -> None:
    good, bad, open_ = (Check("", "", verdict) for verdict in (HOLDS, FAILS, OPEN))
    assert overall([good, good]) is HOLDS
    assert overall([good, open_]) is OPEN
    assert overall([good, open_, bad]) is FAILS
    assert overall([good, replace(bad, counts=False)]) is HOLDS
    assert overall([replace(good, counts=False)]) is OPEN


Law = Callable[[RunSpec, np.random.Generator], tuple[float, int]]
"""Regret and rounds of a made-up run."""


def made_up(claim: str, law: Law) -> Finding:
    """The analysis of a claim's quick sweep, on outcomes that follow a law."""
    study, rng = reproduce.study(claim), np.random.default_rng(0)
    cells = study.sweep("quick")
    outcomes = {c.key: _outcome(c, *law(c, rng)) for c in cells}
    return study.finding(reproduce.points(cells, outcomes))


def _outcome(cell: RunSpec, regret: float, rounds: int) -> Outcome:
    t = cell.table
    env = t["env"].get("reference", {}).get("params", t["env"])
    M, T, d, H = t["n_agents"], t["episodes"], env.get("dim", 8), env.get("horizon", 5)
    auto, gamma = theory.gamma_auto(M, d, T), t.get("gamma", "auto")
    gamma = auto if isinstance(gamma, str) else gamma
    bounds = {
        "theorem_1": 1e9, "theorem_2": 1e9,
        "theorem_3": theory.rounds_bound(d, H, M, T, gamma, 0.001),
    }  # fmt: skip
    share = 1.0 if t["algorithm"] in ("fed-lsvi", "stale", "periodic") else 0.0
    raw = int((1.0 - share) * M * T * H * 3)
    stats = int(rounds * 2 * M * H * (d * (d + 3) // 2))
    return Outcome(
        algorithm=t["algorithm"], seed=t["seed"], n_agents=M, episodes=T, horizon=H, dim=d,
        gamma=gamma, beta=0.5, lam=0.001, rounds=rounds, scalars=raw + stats,
        scalars_by_category={"up_raw": raw, "down_raw": 0, "up_stats": stats}, regret=regret,
        late=0.0, uniform=float(M * T), bounds=bounds, raw_per_step=3, seconds=0.1,
        curve={"t": [1, T], "scalars": [0.0, 1.0], "regret": [1.0, regret]},
    )  # fmt: skip


def _noise(rng: np.random.Generator) -> float:
    return float(np.exp(0.05 * rng.normal()))


def _rounds(cell: RunSpec) -> int:
    t = cell.table
    d = t["env"].get("dim", 8)
    gamma = t.get("gamma", theory.gamma_auto(t["n_agents"], d, t["episodes"]))
    return theory.rounds_floor(t["episodes"], gamma) + 3


def test_theorem_1_holds_for_data_of_its_kind_and_fails_for_linear_regret() -> None:
    def law(cell: RunSpec, rng: np.random.Generator, power: float = 0.4) -> tuple[float, int]:
        M, T = cell.table["n_agents"], cell.table["episodes"]
        group = M**0.3 * T**power
        if cell.table["algorithm"] == "independent":
            group = M * T**power
        return group * _noise(rng), 70

    assert made_up("theorem-1", law).verdict is HOLDS
    assert made_up("theorem-1", lambda c, r: law(c, r, 0.9)).verdict is FAILS


def test_theorem_1_fails_where_company_does_not_help() -> None:
    def law(cell: RunSpec, rng: np.random.Generator) -> tuple[float, int]:
        return cell.table["n_agents"] * cell.table["episodes"] ** 0.4 * _noise(rng), 70

    found = {check.claim: check.verdict for check in made_up("theorem-1", law).checks}
    assert found["it falls at least as fast as 1/√M: exponent at most −0.5"] is FAILS


def test_theorem_3_holds_at_the_floor_and_fails_beyond_the_bound() -> None:
    assert made_up("theorem-3", lambda c, r: (1.0, _rounds(c))).verdict is HOLDS
    assert made_up("theorem-3", lambda c, r: (1.0, 10**6)).verdict is FAILS


def test_a_run_that_arms_share_is_counted_once() -> None:
    cells = reproduce.study("theorem-3").sweep("quick")
    runs = len({c.key for c in cells})
    assert len(reproduce.distinct(cells)) == runs < len(cells)
    for check in made_up("theorem-3", lambda c, r: (1.0, _rounds(c))).checks[:2]:
        assert check.measured.startswith(f"{runs} runs")


def test_theorem_2_sees_a_break_at_its_place_and_one_that_is_too_early() -> None:
    def law(cell: RunSpec, rng: np.random.Generator, at: float = 1.0) -> tuple[float, int]:
        T, factor = cell.table["episodes"], cell.labels["factor"]
        return T**0.5 * (1.0 + (factor / at) ** 2) * _noise(rng), 70

    late = made_up("theorem-2", lambda c, r: law(c, r, 1.2))
    assert late.verdict is not FAILS
    assert "the start of the grid" not in late.notes[1]
    early = made_up("theorem-2", lambda c, r: law(c, r, 0.05))
    assert early.verdict is FAILS
    assert "β without ξ: at most 0.1·√(d/(MT)), the start of the grid" in early.notes[1]


@pytest.mark.parametrize(("power", "said"), [(0.5, HOLDS), (2.0, FAILS)])
def test_growth_beyond_the_break_stands_beside_theorem_2(power: float, said: Verdict) -> None:
    """No part of the claim, which says nothing of it."""
    found = made_up("theorem-2", lambda c, r: (100.0 + c.labels["factor"] ** power * 1e4, 70))
    beyond = [check for check in found.checks if "grows no faster than ξ" in check.claim]
    assert [(check.verdict, check.counts) for check in beyond] == [(said, False)] * 3
    assert "beyond" not in found.claim


def test_the_trigger_may_cost_a_root_and_no_more() -> None:
    def law(cell: RunSpec, rng: np.random.Generator, power: float = 0.2) -> tuple[float, int]:
        return (100.0 + cell.table["gamma"]) ** power * _noise(rng), _rounds(cell)

    assert made_up("trigger", law).verdict is HOLDS
    assert made_up("trigger", lambda c, r: law(c, r, 1.0)).verdict is FAILS


@pytest.mark.parametrize(("factor", "said"), [(1.0, HOLDS), (3.0, FAILS)])
def test_one_agent_is_compared_with_lsvi_ucb(factor: float, said: Verdict) -> None:
    def law(cell: RunSpec, rng: np.random.Generator) -> tuple[float, int]:
        times = factor if cell.table["algorithm"] == "fed-lsvi" else 1.0
        return times * cell.table["episodes"] ** 0.3 * _noise(rng), 40

    assert made_up("single-agent", law).verdict is said


@pytest.mark.parametrize(("factor", "said"), [(2.0, HOLDS), (0.9, FAILS)])
def test_staleness_is_harm_only_where_it_costs(factor: float, said: Verdict) -> None:
    def law(cell: RunSpec, rng: np.random.Generator) -> tuple[float, int]:
        times = factor if cell.table["algorithm"] == "stale" else 1.0
        return 100.0 * times * float(np.exp(0.01 * rng.normal())), 40

    found = made_up("stale", law)
    assert found.verdict is said
    assert len(found.notes) == 1


def test_a_verdict_that_rests_on_deterministic_problems_says_so() -> None:
    def law(cell: RunSpec, rng: np.random.Generator) -> tuple[float, int]:
        fixed = "deep-sea" in cell.labels["problem"]
        times = 2.0 if fixed and cell.table["algorithm"] == "stale" else 1.0
        return 100.0 * times * (1.0 if fixed else _noise(rng)), 40

    found = made_up("stale", law)
    assert found.verdict is HOLDS
    assert found.checks[0].measured == "on 1 of 6: deep-sea, H = 10"
    assert found.notes[1].startswith("The verdict rests only on deterministic problems")


@pytest.mark.parametrize(("factor", "said"), [(1.1, HOLDS), (2.0, FAILS)])
def test_the_centralised_learner_is_the_yardstick(factor: float, said: Verdict) -> None:
    def law(cell: RunSpec, rng: np.random.Generator) -> tuple[float, int]:
        fed = cell.table["algorithm"] == "fed-lsvi"
        return 100.0 * (factor if fed else 1.0), 1 if fed else 5000

    found = made_up("centralised", law)
    assert found.verdict is said
    ratio = f"{factor:.2f} times the centralised learner's instead of {factor:.2f}"
    assert f"{ratio}, with 100% of the scalars (river-swim)" in found.notes[0]
    judged = {check.claim.split(":")[0] for check in found.checks if check.counts}
    assert judged == {"random-linear", "n-chain", "river-swim"}
    assert len({row[0] for row in found.rows}) == 7  # all families are in the table


def test_the_page_says_which_numbers_have_too_few_seeds_for_an_interval() -> None:
    def cells(counts: dict[str, int]) -> list[RunSpec]:
        return [RunSpec({}, {"arm": arm, "seed": i}) for arm, n in counts.items() for i in range(n)]

    assert reproduce.seeds(cells({"a": 6, "b": 6})).endswith("interval in brackets")
    mixed = reproduce.seeds(cells({"a": 6, "b": 2}))
    assert "6 seeds, with the 95 %" in mixed
    assert mixed.endswith("some have 2 seeds and the min–max")
    assert "95 %" not in reproduce.seeds(cells({"a": 3, "b": 2}))


def test_no_bound_on_rounds_is_above_the_episodes() -> None:
    cell = run_spec("fed-lsvi", random_linear(0), 20, 1, 0, {})
    short = _outcome(cell, 1.0, 7)
    assert short.bounds["theorem_3"] > 20.0  # the formula alone
    assert sweeps.theorem_3(short) == 20.0
    assert single_agent.most_policies(short) == 20.0
    long = replace(short, episodes=10**6)
    assert sweeps.theorem_3(long) < 10**6
    assert single_agent.most_policies(long) == sweeps.theorem_3(long)  # a cap of 2 costs nothing


@pytest.mark.parametrize("claim", ["theorem-1", "theorem-2"])
def test_the_table_says_what_a_verdict_at_the_practical_beta_is_worth(
    claim: str, tmp_path: Path
) -> None:
    def law(cell: RunSpec, rng: np.random.Generator) -> tuple[float, int]:
        return cell.table["episodes"] ** 0.4 * _noise(rng), 70

    found = made_up(claim, law)
    assert "guarantees nothing" in found.scope
    reproduce.write(tmp_path, claim, replace(found, panels=found.panels[:1]), "", "")
    assert f"**{found.verdict}** ({found.scope})" in reproduce.index(tmp_path)


def test_communication_needs_flat_scalars() -> None:
    def law(cell: RunSpec, rng: np.random.Generator, flat: bool = True) -> tuple[float, int]:
        ours = cell.table["algorithm"] == "fed-lsvi"
        return 10.0, (2 if flat or not ours else cell.table["episodes"])

    assert made_up("communication", law).verdict is HOLDS
    assert made_up("communication", lambda c, r: law(c, r, False)).verdict is FAILS


def test_two_laws_of_growth_are_told_apart_by_the_halves_of_log_t() -> None:
    T = 4.0 ** np.arange(4, 11)
    runs = np.stack([7.0 + 3.0 * np.log(T), 7.0 + 3.0 * np.sqrt(T)])
    assert gaps.halves(T, runs) == pytest.approx([1.0, gaps.between(T) ** 2])
    assert gaps.between(T) == pytest.approx(8.0**0.5)


@pytest.mark.parametrize(
    ("gap_left", "shrinking", "said"),
    [(np.log, np.sqrt, HOLDS), (np.sqrt, np.sqrt, FAILS), (np.log, np.log, FAILS)],
)
def test_gaps_need_a_logarithm_and_a_measure_that_sees_a_root(
    gap_left: Callable[[int], float], shrinking: Callable[[int], float], said: Verdict
) -> None:
    def law(cell: RunSpec, rng: np.random.Generator) -> tuple[float, int]:
        grows = shrinking if cell.labels["arm"] == "shrinking" else gap_left
        return 50.0 + 10.0 * float(grows(cell.table["episodes"])) * _noise(rng) ** 0.1, 40

    assert made_up("gaps", law).verdict is said


@pytest.mark.parametrize(("rounds", "said"), [(100, HOLDS), (20, FAILS), (3000, OPEN)])
def test_a_period_is_read_at_the_rounds_of_the_trigger(rounds: int, said: Verdict) -> None:
    """A period's regret is 1,000/√K: 100 at K = 100, which is above 1.1·80, and 224 at 20."""

    def law(cell: RunSpec, rng: np.random.Generator) -> tuple[float, int]:
        K = cell.labels.get("K")
        return (80.0 if rounds == 100 else 250.0, rounds) if K is None else (1000.0 / K**0.5, K)

    found = made_up("periods", law)
    assert found.verdict is said
    measured = {"1.25 [1.25, 1.25] times": 100, "0.89 [0.89, 0.89] times": 20}
    assert measured.get(found.checks[0].measured, 3000) == rounds


@pytest.mark.parametrize(("factor", "said"), [(0.5, HOLDS), (1.5, FAILS)])
def test_averages_are_judged_at_their_best(factor: float, said: Verdict) -> None:
    arms = list(averages.ARMS)

    def law(cell: RunSpec, rng: np.random.Generator) -> tuple[float, int]:
        at = arms.index(cell.labels["arm"])
        return 100.0 * (at if at else factor) * _noise(rng), 40

    found = made_up("averages", law)
    assert found.verdict is said
    assert all(arms[1] in check.measured for check in found.checks)


def test_averages_may_have_more_rounds_than_fed_lsvi() -> None:
    assert averages.EPISODES["full"] / averages.PERIOD > 320
