"""The compiled figures of an upload equal the plain formulas."""

from __future__ import annotations

import numpy as np
import pytest

from fedlsvi.core.statistics import pack, read_only, unpack
from fedlsvi.remote import guard_kernels as s


@pytest.mark.parametrize("packing", ["packed", "dense"])
def test_figures_equal_the_plain_formulas(packing: str) -> None:
    """19 agents: one full block of the working arrays and a rest. Agent 3 is not positive."""
    m, d, rng = 19, 6, np.random.default_rng(0)
    phi = rng.normal(size=(m, 40, d))
    loc = phi.transpose(0, 2, 1) @ phi
    loc[3] -= 2.0 * np.linalg.eigvalsh(loc[3])[0] * np.eye(d)
    before, base = 3.0 * loc + np.eye(d), 5.0 * loc.sum(axis=0)
    b, last = rng.normal(size=(2, m, d))
    gram, past, model = (pack(a, packing) for a in (loc, before, base))  # type: ignore[arg-type]
    where = unpack(np.arange(gram.shape[1]), d, packing)  # type: ignore[arg-type]
    bound = np.einsum("ij,mji->m", np.linalg.inv(base), loc)
    most = float(np.quantile(bound, 0.6) + 1e-9)
    close, seen = np.zeros(m, np.bool_), np.empty((s.FIGURES, m))
    close[int(bound.argmin())] = True
    weight = s.weights(model, where)
    sums = map(read_only, (gram, past, b, last))
    s.examine(*sums, model, weight, where, 0.0, 0.0, 0.0, True, most, close, seen)
    grown = np.linalg.slogdet(base + loc)[1] - np.linalg.slogdet(base)[1]
    exact = bound > most
    exact[bound.argmin()] = True
    assert np.array_equal(close, exact)
    assert np.allclose(seen[s.GROWTH], np.where(exact, grown, bound))
    assert np.allclose(seen[s.TRACE], np.trace(loc, axis1=1, axis2=2))
    assert np.allclose(seen[s.MOST], loc.sum(axis=(1, 2)))
    assert np.allclose(seen[s.LEAST], -loc.sum(axis=(1, 2)))
    entries = np.tril(loc).sum(axis=(1, 2)) + b.sum(axis=1)
    assert np.allclose(seen[s.SUM], np.abs(entries))
    assert np.isclose(s.quadratic(b[0], model, where), b[0] @ base @ b[0])
    assert np.allclose(seen[s.DEPTH], -b.min(axis=1))
    assert np.flatnonzero(seen[s.SHAKY]).tolist() == [3]
    solved = np.linalg.solve(before + loc, b[..., None])[..., 0]
    assert np.allclose(np.delete(seen[s.ENERGY], 3), np.delete((b * solved).sum(axis=1), 3))
    step = b - last
    solved = np.linalg.solve(loc, step[..., None])[..., 0]
    assert np.allclose(np.delete(seen[s.STEP], 3), np.delete((step * solved).sum(axis=1), 3))
    assert np.isnan(seen[s.STEP, 3])


@pytest.mark.parametrize("m", [3, s.ABREAST, 11])
@pytest.mark.parametrize("d", [6, s.LONG, 60])
def test_factors_do_not_depend_on_how_many_are_factored(d: int, m: int) -> None:
    """Abreast or one after the other; a matrix that is not positive ends in NaN, the others not."""
    phi = np.random.default_rng(1).normal(size=(m, 2 * d, d))
    square = phi.transpose(0, 2, 1) @ phi
    square[1] -= 2.0 * np.linalg.eigvalsh(square[1])[0] * np.eye(d)
    found = np.ascontiguousarray(square.transpose(1, 2, 0))
    s.factorise(found)
    for i in range(m):
        if i == 1:
            assert np.isnan(found[d - 1, d - 1, i])
            continue
        lower = np.tril(found[:, :, i])
        np.testing.assert_allclose(lower, np.linalg.cholesky(square[i]), rtol=1e-9, atol=1e-9)
