"""What uploads give away: the rank, and the attacks that it predicts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp, nnls

import fedlsvi
from fedlsvi import FedLSVI
from fedlsvi.cli.text import single_lines
from fedlsvi.core.statistics import pack
from fedlsvi.envs import RandomLinearMDP, RiverSwim
from fedlsvi.features import FourierFeatures, OneHot, TableFeatures, visit_recovery
from fedlsvi.features.recovery import VisitRecovery, distinct, upload_map
from fedlsvi.report.groups import Group
from fedlsvi.report.privacy import privacy


def linear(pairs: int, dim: int) -> TableFeatures:
    env = RandomLinearMDP(n_states=pairs // 5, n_actions=5, dim=dim, seed=0)
    phi = env.default_features()
    assert isinstance(phi, TableFeatures)
    return phi


def counts_of(rows: np.ndarray, visits: int, seed: int) -> np.ndarray:
    drawn = np.random.default_rng(seed).integers(0, len(rows), visits)
    return np.bincount(drawn, minlength=len(rows))


def uploaded(rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Λ^loc packed, and the length of the round."""
    gram = np.einsum("n,ni,nj->ij", counts, rows, rows)
    return np.append(pack(gram, "packed"), counts.sum())


def weights(dim: int) -> np.ndarray:
    """Of the packed entries in `upload_map`."""
    return np.append(pack(np.where(np.eye(dim) > 0.0, 1.0, np.sqrt(2.0)), "packed"), 1.0)


def least_squares(rows: np.ndarray, upload: np.ndarray) -> np.ndarray:
    found, _ = nnls(upload_map(rows), upload * weights(rows.shape[1]), maxiter=20 * len(rows))
    return np.rint(found).astype(int)


def integers(rows: np.ndarray, upload: np.ndarray) -> np.ndarray:
    sent, n = upload * weights(rows.shape[1]), len(rows)
    found = milp(
        np.zeros(n),
        constraints=LinearConstraint(upload_map(rows), sent - 1e-6, sent + 1e-6),
        integrality=np.ones(n),
        bounds=Bounds(0, upload[-1]),
    )
    return np.rint(found.x).astype(int)


@pytest.mark.parametrize("visits", [1, 100, 100_000])
def test_independent_matrices_give_every_count_at_any_length(visits: int) -> None:
    phi = linear(50, 10)
    assert visit_recovery(phi) == VisitRecovery(50, 50, 50, 50)
    rows = phi.table.reshape(50, 10)
    counts = counts_of(rows, visits, 0)
    np.testing.assert_array_equal(least_squares(rows, uploaded(rows, counts)), counts)


def test_a_hundred_visits_to_250_pairs_are_read_from_one_upload() -> None:
    phi = linear(250, 20)
    assert visit_recovery(phi) == VisitRecovery(250, 250, 210, 0)
    rows = phi.table.reshape(250, 20)
    for seed in range(3):
        counts = counts_of(rows, 100, seed)
        np.testing.assert_array_equal(least_squares(rows, uploaded(rows, counts)), counts)


def test_fewer_visits_than_the_rank_are_read_though_no_count_is_determined() -> None:
    phi = linear(80, 8)
    assert visit_recovery(phi) == VisitRecovery(80, 80, 36, 0)
    rows = phi.table.reshape(80, 8)
    counts = counts_of(rows, 30, 0)
    upload = uploaded(rows, counts)
    np.testing.assert_array_equal(integers(rows, upload), counts)
    # and what the rank says: other real counts lead to the same upload
    assert np.abs(least_squares(rows, upload) - counts).sum() > 0


def test_counts_that_follow_are_those_that_the_null_space_leaves() -> None:
    # three pairs along one axis and its half, and one along another axis
    table = np.array([[[1.0, 0.0], [0.5, 0.0]], [[0.25, 0.0], [0.0, 1.0]]])
    found = visit_recovery(TableFeatures(table))
    assert found == VisitRecovery(pairs=4, kinds=4, rank=3, solved=1)
    null = np.linalg.svd(upload_map(table.reshape(4, 2)))[2][-1]
    assert abs(null[3]) < 1e-9
    assert (np.abs(null[:3]) > 1e-3).all()


def test_signs_and_twins_are_one_kind() -> None:
    rows = np.array([[0.6, 0.8], [-0.6, -0.8], [0.6, 0.8], [0.0, 0.0], [0.0, -1.0]])
    assert len(distinct(rows)) == 3
    found = visit_recovery(TableFeatures(rows[None]))
    assert found == VisitRecovery(pairs=5, kinds=3, rank=3, solved=3)
    assert found.complete


def test_one_hot_features_give_every_count() -> None:
    env = RiverSwim(n_states=4)
    assert visit_recovery(OneHot().bind(env)) == VisitRecovery(8, 8, 8, 8)
    shared = np.zeros((4, 2, 3))
    shared[:, 0, 0] = shared[:2, 1, 1] = shared[2:, 1, 2] = 1.0
    assert visit_recovery(TableFeatures(shared)) == VisitRecovery(8, 3, 3, 3)


def test_what_is_too_large_is_not_computed() -> None:
    rows = np.random.default_rng(0).normal(size=(400, 5, 60))
    phi = TableFeatures(rows / np.linalg.norm(rows, axis=2, keepdims=True))
    assert visit_recovery(phi) == VisitRecovery(2000, 2000, None, None)


def test_nothing_is_claimed_of_continuous_states() -> None:
    assert visit_recovery(FourierFeatures(4)) is None


def test_the_summary_the_folder_and_the_report_say_it(tmp_path: Path) -> None:
    env = RandomLinearMDP(n_states=6, n_actions=2, dim=3, seed=0)
    run = FedLSVI(n_agents=2).learn(env, episodes=20, seed=0, folder=str(tmp_path / "run"))
    assert run.recovery == visit_recovery(env.default_features())
    assert run.recovery is not None
    assert run.recovery.rank == 6
    written = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert written["recovery"] == {"pairs": 12, "kinds": 12, "rank": 6, "solved": 0}
    loaded = fedlsvi.load(tmp_path / "run")
    assert loaded.recovery == run.recovery
    assert any("given away" in line for line in single_lines(loaded.summary()))
    assert "have rank 6" in privacy(Group("", [loaded]))
    alone = fedlsvi.algorithms.make("independent", n_agents=2).learn(env, episodes=20, seed=0)
    assert alone.recovery is None
