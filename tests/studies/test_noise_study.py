"""The study of the noise-aware bonus: its model of Fed-LSVI, and its rule."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedlsvi.core.value import TIE
from studies import noise
from studies.noise import CANDIDATES, HALF, LENGTHS, MORE, TEST, TODAY, TUNE, Candidate, Result

NEW = CANDIDATES[1]


def results(candidate: Candidate, regret: float, sticks: int = 0, worst: float = 0.0) -> list:
    late = [0.2] * sticks + [0.0] * 5
    return [
        Result(
            family, i, T, str(candidate), max(regret, worst if family == "garnet" else 0), late[i]
        )
        for family in ("garnet", "n-chain")
        for T in LENGTHS
        for i in range(5)
    ]


@pytest.mark.parametrize(
    ("regret", "sticks", "worst", "chosen"),
    [
        (0.4, 0, 0.0, str(NEW)),
        (HALF + 0.01, 0, 0.0, None),  # not half of today's
        (0.4, 2, 0.0, None),  # sticks more often
        (0.1, 0, 1.2, str(NEW)),  # beyond a family's limit, but there is none that keeps to all
    ],
)
def test_the_rule(regret: float, sticks: int, worst: float, chosen: str | None) -> None:
    made = results(TODAY, 1.0, sticks=1) + results(NEW, regret, sticks, worst)
    assert noise.choose(noise.cells(made)) == chosen


def test_a_candidate_inside_all_limits_is_preferred_to_a_cheaper_one() -> None:
    other = CANDIDATES[2]
    made = results(TODAY, 1.0) + results(NEW, 0.05, worst=1.2) + results(other, 0.45)
    table = noise.cells(made)
    assert noise.excess(table, str(NEW)) == (pytest.approx(1.2 / 1.05), ("garnet", 10_000))
    assert noise.choose(table) == str(other)


def test_instances_to_choose_on_are_not_those_to_report_on() -> None:
    assert not set(TUNE) & set(TEST)
    assert len(TEST) >= 20
    assert len({str(c) for c in CANDIDATES + MORE}) == len(CANDIDATES) + len(MORE)


@pytest.mark.parametrize(("family", "one_hot"), [("random-linear", False), ("garnet", True)])
@pytest.mark.parametrize("candidate", [TODAY, Candidate(1.5, 0.1, prior=True, capped=True), NEW])
def test_the_plan_is_least_squares_value_iteration(
    family: str, one_hot: bool, candidate: Candidate
) -> None:
    made = noise.WORLDS[family](0)
    rng, lam, H = np.random.default_rng(0), 0.001, made.horizon
    S, A = made.P.shape[2:4]
    G = 1 if made.pooled else H
    N = rng.integers(0, 3, (1, G, S, A, S)).astype(float)
    phi = np.eye(S * A) if one_hot else made.phi
    seen = N.sum(axis=(0, 4)).reshape(G, S * A)
    gram = lam * np.eye(phi.shape[1]) + np.einsum("gp,pi,pj->gij", seen, phi, phi)
    policy, V = np.zeros((H, S), np.int64), np.zeros(S)
    flags = (candidate.c1 == 0.0, candidate.prior, candidate.capped, candidate.linear)
    kept = gram[:, np.arange(S * A), np.arange(S * A)][..., None] if one_hot else gram
    about = (N, made.r[:, :H], made.phi, kept, lam, H, (1, G, S, A))
    noise._plan(*about, (candidate.c1, candidate.c2), flags, policy)
    for h in reversed(range(H)):
        g, v = min(h, G - 1), float(H - h)
        y = (made.r[0, min(h, made.r.shape[1] - 1)] + V).reshape(S * A, S)
        counts = N[0, g].reshape(S * A, S)
        b, inverse = phi.T @ (counts * y).sum(axis=1), np.linalg.inv(gram[g])
        w = inverse @ b
        rss, n, d = (counts * y * y).sum() - w @ b, counts.sum(), len(w)
        used = d - lam * np.trace(inverse)
        var = (rss + v * v / 4) / (n - used + 1) if candidate.prior else rss / max(n - d, 1)
        norm = np.sqrt(np.einsum("pi,ij,pj->p", phi, inverse, phi))
        bonus = v / 4 * norm
        if candidate.c1:
            aware = candidate.c1 * np.sqrt(var) * norm + candidate.c2 * v * norm**2
            bonus = np.minimum(bonus, aware) if candidate.capped else aware
        score = (phi @ w + bonus).reshape(S, A)
        best = score.max(axis=1)
        assert (score[np.arange(S), policy[h]] >= best - TIE * np.abs(best) - 1e-9).all()
        V = best.clip(0.0, v)


def test_a_run_is_kept_and_not_played_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = ("agents that differ", 0, 30, NEW)
    made = noise.Runs(tmp_path / "runs", stopped=False).get([job])
    assert 0.0 < made[0].regret < 1.5
    again = noise.Runs(tmp_path / "runs", stopped=False)
    monkeypatch.setattr(noise, "play", None)
    assert again.get([job]) == made
    assert noise.Runs(tmp_path / "none", stopped=True).get([job]) == []


def test_the_library_is_played_with_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "FAMILIES", {"n-chain": noise.FAMILIES["n-chain"]})
    *_, line = noise.library(1, episodes=40)
    family, constant, aware, ratio, *_ = (cell.strip() for cell in line.strip("| ").split("|"))
    assert family == "n-chain"
    assert float(aware) / float(constant) == pytest.approx(float(ratio), abs=0.02)
    assert constant != aware
