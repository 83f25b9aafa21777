"""Customization on a CUDA device, as it is on the CPU: many levels, wide and narrow ones."""

from functools import partial

import numpy as np
import pytest
from metrics import grid
from numpy.testing import assert_array_equal

import semiring_mm as sm
from semiring_mm.closures.edges import EdgeList
from semiring_mm.gpu import device, engine
from semiring_mm.hierarchy.devices import device_customizer, host_metric
from semiring_mm.hierarchy.metric import customize
from semiring_mm.hierarchy.symbolic import analyze, eliminate
from tests.gpu.test_customize_kernels import WEIGHTS, arcs_of, problem_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(bool(device.why_not()), reason=device.why_not() or "there is a device"),
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("name", WEIGHTS)
def test_semirings(name, dtype):
    if name == "max_times" and dtype[0] != "f":
        pytest.skip("its weights are fractions")
    n, row, col = grid(150)
    rng = np.random.default_rng(1)
    structures = [analyze(n, row, col, "minimum_degree")]
    if dtype[0] == "i" or name != "min_plus":  # sums in a core have other brackets
        structures.append(eliminate(n, row, col, sources=300)[0])
        assert structures[1].core > 100
    for structure in structures:
        for directed in (False, True):
            ends = (np.append(row, col), np.append(col, row)) if directed else (row, col)
            customizer = None
            for _ in range(3):
                weight = WEIGHTS[name](rng, len(ends[0])).astype(dtype)
                problem = problem_of(name, n, *ends, weight, directed=directed)
                arcs = arcs_of(structure, problem)
                customizer = customizer or device_customizer(engine, structure, arcs)
                expected = problem.solve(partial(customize, structure, arcs=arcs))
                found = host_metric(engine, problem.solve(customizer))
                assert_array_equal(found.out, expected.out)
                assert_array_equal(found.back, expected.back)
                if name == "max_times":
                    np.testing.assert_allclose(found.core, expected.core, rtol=1e-4)
                else:
                    assert_array_equal(found.core, expected.core)


@pytest.mark.parametrize("kind", ["fractions", "whole numbers", "int32"])
def test_a_prepared_graph(kind):
    """What is asked on the device, and on the host, is of the weights that were computed there."""
    import cupy

    n, row, col = grid(60)
    rng = np.random.default_rng(2)
    dtype = "int32" if kind == "int32" else "float32"

    def draw():
        found = rng.random(len(row)) if kind == "fractions" else rng.integers(1, 99, len(row))
        return found.astype(dtype)

    edges = EdgeList(range(n), row, col, draw(), False)
    net, same = sm.prepare(edges, dtype=dtype), sm.prepare(edges, dtype=dtype)
    rows, columns = rng.permutation(n)[:50], rng.permutation(n)[:70]
    for take in (np.asarray, cupy.asarray):
        weight = draw()
        net.customize(take(weight), device="cuda" if take is np.asarray else None)
        same.customize(weight)
        expected = same.distances(rows)
        there = net.distances(rows, device="cuda")
        if kind != "whole numbers":  # whose type is another one
            assert "metric" not in vars(net._state)
        if kind == "fractions":  # sums in the core have other brackets
            np.testing.assert_allclose(there, expected, rtol=1e-5)
        else:
            assert_array_equal(there, expected)
            table = net.distances(rows, columns, device="cuda")
            assert_array_equal(table, expected[:, columns])
            found = sm.statistics(net, device="cuda")
            assert_array_equal(found.eccentricity, sm.statistics(same).eccentricity)
        assert_array_equal(net.distances(rows), expected)
        assert net.path(3, 2000) == same.path(3, 2000)
    weight[5] = -1
    with pytest.raises(sm.NegativeCycleError):
        net.customize(weight, device="cuda")
    assert_array_equal(net.distances(rows), expected)
