"""What the page says the policy goes by is in the model."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from fedlsvi import FedLSVI
from fedlsvi.envs import ContinuousLinearMDP, RandomLinearMDP, RiverSwim
from fedlsvi.features import FourierBasis
from fedlsvi.report import write_report
from fedlsvi.report.remembered import remembered, visited
from fedlsvi.storage import load


def cells(text: str) -> list[list[str]]:
    """The rows of a table, without tags."""
    rows = re.findall(r"<tr>(.*?)</tr>", text)
    return [[re.sub(r"<.*?>", "", cell) for cell in re.findall(r"<t[dh].*?</t[dh]>", row)]
            for row in rows]  # fmt: skip


def test_states_are_those_that_were_visited(tmp_path: Path) -> None:
    """RiverSwim, one-hot: visits are counts, so those of all states at a step are M·T."""
    folder = tmp_path / "run"
    run = FedLSVI(3, stationary=False).learn(RiverSwim(), 200, folder=folder, progress=False)
    heading, text, table = remembered(run)
    assert "goes by" in heading
    head, *rows = cells(table)
    assert head == ["state", "step", "visits", "action 0", "action 1"]
    phi = np.eye(12).reshape(6, 2, 12)
    visits = np.array([visited(gram, phi, run.parameters.lam) for gram in run.gram])
    w = run.w if run.policy_w is None else run.policy_w
    np.testing.assert_allclose(visits.sum(axis=1), visits.sum(axis=1).round(), atol=1e-6)
    assert visits.sum(axis=1) == pytest.approx(np.full(len(w), visits[0].sum()))
    for name, step, count, *values in rows:
        x, h = int(name.split()[1]), int(step) - 1
        assert float(count.replace(",", "")) == pytest.approx(visits[h, x], abs=0.5)
        assert [float(v.split()[0]) for v in values] == pytest.approx(phi[x] @ w[h], abs=6e-4)
        assert [a for a, v in enumerate(values) if "←" in v] == [run.policy.table[h, x]]
    assert remembered(load(folder)) == [heading, text, table]


def test_dense_features_of_finite_states_have_values_too() -> None:
    env = RandomLinearMDP(6, 8, 4, horizon=3, seed=1)
    run = FedLSVI(2).learn(env, 100, progress=False)
    head, *rows = cells(remembered(run)[-1])
    assert unescape(head[-1]) == "the policy's action"  # eight are too many for a column each
    assert all(re.fullmatch(r"-?\d\.\d{3} action \d", row[-1]) for row in rows)


def test_features_of_vectors_are_named_and_the_page_has_them(tmp_path: Path) -> None:
    env = ContinuousLinearMDP(dim=5, n_actions=2, horizon=3, cells=64)
    run = FedLSVI(2).learn(env, 60, features=FourierBasis(2), progress=False)
    head, *rows = cells(remembered(run)[-1])
    assert head == ["feature", "weight", "step", "Σφ²"]
    names = [row[0] for row in rows]
    assert set(names) == {f"{f}, action {a}" for a in range(2)
                          for f in ("1", "cos(π(1·x0))", "cos(π(2·x0))")}  # fmt: skip
    sizes = [abs(float(row[1])) for row in rows]
    assert sizes == sorted(sizes, reverse=True)
    pytest.importorskip("matplotlib")
    page = write_report([run], tmp_path)[0].read_text(encoding="utf-8")
    assert page.count("What the policy goes by") == 1
    assert "cos(π(2·x0)), action 1" in page


def test_nothing_is_said_where_nothing_is_known() -> None:
    run = FedLSVI(2).learn(RiverSwim(), 20, progress=False)
    assert remembered(replace(run, w=np.zeros_like(run.w), policy_w=None)) == []
