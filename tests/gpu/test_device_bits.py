"""Rows of bits on a device, which is the host's stand-in, and a CUDA device if one is there."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import semiring_mm as sm
from semiring_mm.gpu import bit_rows, select
from semiring_mm.metrics import BIT_METRICS
from tests.verbs.test_bit_neighbours import expected, nearest, rows

nb = sm.neighbours


def packed(there, x):
    return sm.BitMatrix(there.put(np.packbits(x, axis=1)), x.shape[1])


@pytest.fixture(params=["screened", "stored"])
def small(request, monkeypatch):
    """Pairs are screened by tensor cores, in small blocks, or all distances computed."""
    monkeypatch.setattr(bit_rows, "_SCREENED", 1 if request.param == "screened" else 1 << 60)
    monkeypatch.setattr(bit_rows, "_BLOCK", 40)
    monkeypatch.setattr(bit_rows, "_CAPACITY", 4)
    monkeypatch.setattr(bit_rows, "_FIRST", 8)
    monkeypatch.setattr(bit_rows, "_SHARE", 0.5)
    monkeypatch.setattr(bit_rows, "_LISTS", 12 * 9 * 16)
    monkeypatch.setattr(select, "_WIDTH", 4)
    monkeypatch.setattr(select, "_COLUMNS", 40)
    monkeypatch.setattr(select, "_TILE", 40 * 8 * 7)
    return request.param


@pytest.mark.parametrize("metric", BIT_METRICS)
def test_rows_of_bits(metric, small, there, monkeypatch):
    passes = []
    sift = bit_rows._Sides.sift
    monkeypatch.setattr(bit_rows._Sides, "sift", lambda *args: passes.append(sift(*args)))
    for m, n, columns in ((65, 131, 70), (3, 9, 300), (1, 1, 1)):
        x, y = rows(m, columns, 0.3), rows(n, columns, 0.3)
        a, b = packed(there, x), packed(there, y)
        d = expected(metric, x, y)
        assert_array_equal(there.get(nb.cdist(a, b, metric)), d)
        for k in {1, min(n, 5), n}:
            for found, wanted in zip(nb.knn(a, b, k, metric), nearest(d, k, metric), strict=True):
                assert_array_equal(there.get(found), wanted)
        for radius in np.quantile(d, [0.05, 0.7], method="nearest"):
            near = d >= radius if metric == "intersection" else d <= radius
            assert_array_equal(there.get(nb.radius_count(a, b, radius, metric)), near.sum(1))
            found = nb.within(a, b, radius=radius, metric=metric)
            row, column = np.nonzero(near)
            assert_array_equal(there.get(found.indices), column)
            assert_array_equal(there.get(found.indptr), np.searchsorted(row, np.arange(m + 1)))
            assert_array_equal(there.get(found.distance), d[near])
            own = expected(metric, y, y)
            near = own >= radius if metric == "intersection" else own <= radius
            np.fill_diagonal(near, False)
            found = nb.within(b, radius=radius, metric=metric)
            row, column = np.nonzero(near)
            assert_array_equal(there.get(found.indices), column)
            assert_array_equal(there.get(found.distance), own[near])
            assert found.to_scipy().nnz == near.sum()
    assert bool(passes) == (small == "screened")


@pytest.mark.usefixtures("small")
def test_bounds_leave_no_pair_out(there):
    """Thresholds at equality: all that some pairs have, of few and of many bits."""
    for columns in (9, 130):
        x = rows(40, columns, 0.5)
        a = packed(there, x)
        for metric in BIT_METRICS:
            d = expected(metric, x, x)
            for radius in np.unique(d)[::7]:
                near = d >= radius if metric == "intersection" else d <= radius
                counts = nb.radius_count(a, a, radius, metric)
                assert_array_equal(there.get(counts), near.sum(1), f"{metric} {radius}")
