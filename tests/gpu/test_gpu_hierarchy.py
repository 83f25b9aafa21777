"""Sweeps on a CUDA device, as they are on the CPU: full blocks, many batches, every word."""

import numpy as np
import pytest
import scipy.sparse
from metrics import grid, metric_of, on_device, swept
from numpy.testing import assert_allclose, assert_array_equal

import semiring_mm as sm
from semiring_mm.gpu import device
from semiring_mm.gpu.sweeps import KINDS, Shape
from tests.gpu.test_sweep_kernels import WEIGHTS, check, figures

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(bool(device.why_not()), reason=device.why_not() or "there is a device"),
]


def with_rows(there):
    """The device's rows as the host's."""
    rows = there.rows
    there.rows = lambda *args, **options: rows(*args, **options).get()
    return there


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("name", WEIGHTS)
def test_sweeps_over_semirings(name, dtype):
    if name == "max_times" and dtype[0] != "f":
        pytest.skip("its weights are fractions")
    n, row, col = grid(70)
    rng = np.random.default_rng(1)
    weight = WEIGHTS[name](rng, 2 * len(row)).astype(dtype)
    metric = metric_of(name, n, np.append(row, col), np.append(col, row), weight, sources=300)
    assert metric.structure.eliminated > 2000
    size = on_device(metric).size
    for shape in (None, Shape(64, 8 // size, narrow=1), Shape(32, 1, 5, 9, 30, 4, 1, 0)):
        there = with_rows(on_device(metric, shape=shape))
        check(metric, there, rng.permutation(n)[:700], batch=512)
        check(metric, there, rng.permutation(n)[:33])


@pytest.mark.parametrize("side", [300])
def test_a_large_grid(side):
    n, row, col = grid(side)
    rng = np.random.default_rng(2)
    weight = rng.integers(1, 1000, len(row)).astype("int32")
    metric = metric_of("min_plus", n, row, col, weight, directed=False, sources=n)
    there = on_device(metric)
    sources = rng.permutation(n)[:5000]
    some = rng.permutation(5000)[:40]
    expected = swept(metric, sources[some])
    assert_array_equal(there.rows(sources, batch=2048)[some].get(), expected)
    edges = np.linspace(0, expected.max(), 101)
    options = {"radii": np.array([9000, 700, 2e4, 5, 1e5]), "mass": rng.integers(0, 9, n)}
    bound = 2 * expected.max()
    found = there.statistics(sources, KINDS, edges=edges, bound=bound, **options)
    again = there.statistics(sources[::-1], KINDS, edges=edges, batch=768, **options)
    for key, value in found.items():  # to the last bit, whatever other sources are in a batch
        if key not in ("inverse", "bins"):
            assert_array_equal(value, again[key][::-1])
    bins = there.statistics(sources[some], ["bins"], edges=edges)["bins"]
    for key, value in figures(expected, options["radii"], options["mass"], edges).items():
        if key == "inverse":
            assert_allclose(found[key][some], value, rtol=1e-12)
        else:
            assert_array_equal(bins if key == "bins" else found[key][some], value)
    targets = rng.permutation(n)[:50]
    table = there.rows(sources, targets=targets)
    assert_array_equal(table[some].get(), expected[:, targets])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_all_pairs_that_are_fetched_as_they_are_computed(dtype):
    n, row, col = grid(60)
    weight = np.random.default_rng(3).integers(1, 100, len(row)).astype(dtype)
    graph = scipy.sparse.coo_array((weight, (row, col)), shape=(n, n)).tocsr()
    found = sm.apsp(graph, directed=False, device="cuda")
    assert type(found) is np.ndarray
    assert found.nbytes > 1 << 25  # as large copies are
    assert_array_equal(found, sm.apsp(graph, directed=False, device="cpu"))
