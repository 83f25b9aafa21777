"""Betweenness on a CUDA device, as it is on the CPU."""

import numpy as np
import pytest
from optional import nx

import semiring_mm as sm
from semiring_mm.gpu import device
from tests.gpu.test_dependency_kernels import WHAT, check, there
from tests.graphs.test_dependencies import graph

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(bool(device.why_not()), reason=device.why_not() or "there is a device"),
]


@pytest.mark.parametrize(("n", "m"), [(5, 9), (800, 900), (800, 3000), (3000, 30_000)])
@pytest.mark.parametrize(("words", "limit"), [(None, 256), (3, 8), (16, 1)])
def test_sums(n, m, words, limit):
    arcs = graph(n, m, "units", n)
    check(arcs, there(arcs, words=words, limit=limit), np.arange(n + 70) % n)


@pytest.mark.parametrize("directed", [False, True])
def test_statistics(directed):
    G = nx.scale_free_graph(2000, seed=1) if directed else nx.barabasi_albert_graph(2000, 3, seed=1)
    more = {"sources": list(range(500)), "targets": list(range(300, 900))}
    for options in ({}, more):
        here = sm.statistics(G, WHAT, weight=None, device="cpu", **options)
        found = sm.statistics(G, WHAT, weight=None, device="cuda", **options)
        for name in WHAT:
            np.testing.assert_allclose(getattr(found, name), getattr(here, name), 1e-11, 1e-9)


@pytest.mark.skipif("semiring_mm" not in nx.config.backends, reason="the backend is not installed")
def test_networkx():
    G = nx.barabasi_albert_graph(500, 3, seed=2)
    with nx.config.backends.semiring_mm(device="cuda"):
        found = nx.betweenness_centrality(G, backend="semiring_mm")
    assert found == pytest.approx(nx.betweenness_centrality(G), 1e-11)
