"""Breadth-first searches on a CUDA device, as they are on the CPU."""

import numpy as np
import pytest

from semiring_mm.gpu import device
from semiring_mm.gpu.bfs import HopSearches, Shape
from semiring_mm.graphs.hops import Hops
from tests.gpu.test_bfs_kernels import check
from tests.graphs.test_hops import FAMILIES, family

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(bool(device.why_not()), reason=device.why_not() or "there is a device"),
]


def with_rows(there):
    """The device's rows as the host's."""
    rows = there.rows
    there.rows = lambda *args: rows(*args).get()
    return there


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_searches(name, directed):
    n = 3000
    graph = Hops(n, *family(name, n), directed=directed)
    sources = np.random.default_rng(0).permutation(n)[:1500]
    for shape in (None, Shape(1, 64, 8, 20), Shape(2, 1024, 1)):
        check(graph, with_rows(HopSearches(n, graph.out, graph.back, shape=shape)), sources)


def test_a_large_graph():
    n = 200_000
    ends = np.random.default_rng(0).integers(0, n, (2, 5 * n))
    graph = Hops(n, *ends, directed=True)
    check(graph, with_rows(HopSearches(n, graph.out, graph.back)), np.arange(700))
