"""Dependencies by the CUDA kernels, on the host, against the CPU's and NetworkX's."""

import contextlib

import numpy as np
import pytest
from host_device import HostDevice
from metrics import only
from optional import nx

import semiring_mm as sm
from semiring_mm.closures.edges import EdgeList
from semiring_mm.gpu import dependencies, device
from semiring_mm.gpu import engine as gpu
from semiring_mm.gpu.dependencies import HopDependencies
from semiring_mm.graphs import choice, statistics
from semiring_mm.graphs.dependencies import Dependencies
from semiring_mm.hierarchy.demand import Demand
from tests.graphs.test_dependencies import doubling, graph

HOST = HostDevice()
WHAT = ["betweenness", "edge_betweenness", "stress"]


@pytest.fixture
def host(monkeypatch, gxx):
    monkeypatch.setattr(device, "current", lambda: HOST)
    monkeypatch.setattr(device, "why_not", lambda: "")
    monkeypatch.setattr(gpu, "on", lambda index: contextlib.ExitStack())
    monkeypatch.setattr(dependencies, "_THREADS", 64)
    return HOST


def there(arcs, **options):
    """Sums of the graph on a device."""
    lists, back = Dependencies(arcs)._lists, arcs.entering
    return HopDependencies(
        arcs.n, (lists["first"], lists["head"]), (back.starts, back.col.astype(np.int32)), **options
    )


def check(arcs, device, sources):
    """All sums are the host's, and the same bits when they are asked for again."""
    some = Demand.to(arcs.n, np.flatnonzero(np.random.default_rng(2).random(arcs.n) < 0.5))
    here = Dependencies(arcs)
    for stress in (False, True):
        for demand, given in ((None, None), (some, some.of_targets)):
            nodes, edges, _ = here.loads(sources, demand, edges=True, stress=stress)
            first = device.sums(sources, given, 1e300, edges=True, stress=stress)
            np.testing.assert_allclose(first[0], nodes, 1e-13, 1e-13)
            np.testing.assert_allclose(first[1], edges, 1e-13, 1e-13)
            again = device.sums(sources, given, 1e300, edges=False, stress=stress)
            np.testing.assert_array_equal(again[0], first[0])
            assert again[1] is None
            assert not first[2]


@pytest.mark.parametrize(("n", "m"), [(1, 0), (2, 3), (9, 12), (40, 100), (60, 500)])
@pytest.mark.parametrize(("words", "limit"), [(2, 256), (1, 5)])
def test_sums(host, n, m, words, limit):
    """Several batches; loops and parallel edges; nodes that a warp, and that a block takes."""
    arcs = graph(n, m, "units", n)
    check(arcs, there(arcs, words=words, limit=limit), np.arange(n + 70) % n)


@pytest.mark.parametrize("limit", [1000, 40])
def test_nodes_of_many_edges(host, limit):
    """More edges than a warp reads at once, and than all warps of a block do."""
    n = 200
    row, col = np.zeros(n - 1, int), np.arange(1, n)
    wheel = np.concatenate([row, col, col]), np.concatenate([col, row, np.roll(col, 1)])
    order = np.argsort(wheel[0], kind="stable")
    row, col = (x[order] for x in wheel)
    arcs = EdgeList.by_rows(np.searchsorted(row, np.arange(n + 1)), col, np.ones(len(col)))
    check(arcs, there(arcs, words=1, limit=limit), np.arange(5))


def test_many_levels(host, monkeypatch):
    """More than are launched before any is looked at; few sources after that."""
    monkeypatch.setattr(dependencies, "_LEVELS", 8)
    monkeypatch.setattr(dependencies, "_FIRST", 3)
    n = 40
    arcs = EdgeList.by_rows(np.append(np.arange(n), n - 1), np.arange(1, n), np.ones(n - 1))
    check(arcs, there(arcs, words=1), np.array([0, 20, 39]))


def test_too_many_paths(host):
    nodes, _, _ = Dependencies(doubling(990, 1.0), -1).loads(np.array([0]))
    np.testing.assert_array_equal(nodes[1:], np.arange(989, -1, -1))
    with pytest.raises(OverflowError, match="1e\\+300 shortest paths"):
        Dependencies(doubling(1000, 1.0), -1).loads(np.array([0]))


def test_more_nodes_than_are_numbered(host, monkeypatch):
    monkeypatch.setattr(dependencies, "_EVENTS", 64 * 9)
    there(graph(8, 9, "units", 1), words=1)
    with pytest.raises(ValueError, match="less than 2²⁶ nodes, got 9"):
        there(graph(9, 9, "units", 1), words=1)


# --- public functions -----------------------------------------------------------------------------


@pytest.fixture
def devices(host, monkeypatch):
    """Where ``device="cuda"`` is: a list that a test may change."""
    places = [0]
    monkeypatch.setattr(
        statistics.TileOptions, "indices", lambda self: places if self.device == "cuda" else None
    )
    HOST.launched.clear()
    return places


def launched():
    """Whether kernels of a device ran since the last call."""
    ran = any("sr::PathShare" in x for x in HOST.launched)
    HOST.launched.clear()
    return ran


@pytest.mark.parametrize("kind", [nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph])
def test_as_networkx(devices, kind):
    """Random graphs full of ties, disconnected, with loops and parallel edges."""
    for seed in range(3):
        G = kind()
        G.add_nodes_from(range(30))
        G.add_edges_from(np.random.default_rng(seed).integers(0, 25, (25 + 15 * seed, 2)).tolist())
        found = sm.statistics(G, WHAT[:2], weight=None, device="cuda")
        assert launched()
        expected = nx.betweenness_centrality(nx.DiGraph(G) if G.is_directed() else nx.Graph(G),
                                             normalized=False)  # fmt: skip
        np.testing.assert_allclose(found.betweenness, [*expected.values()], 1e-13, 1e-13)
        edges = nx.edge_betweenness_centrality(G, normalized=False)
        loops = sum(u == v for u, v in G.edges())
        np.testing.assert_allclose(found.edge_betweenness.sum(), sum(edges.values()), 1e-13)
        assert np.count_nonzero(found.edge_betweenness) <= G.number_of_edges() - loops


@pytest.mark.parametrize("more", [{}, {"sources": [3, 4, 4], "targets": [5, 9, 3]}])
@pytest.mark.parametrize("places", [[0], [0, 1]])
def test_statistics(devices, more, places):
    devices[:] = places
    row, col = np.random.default_rng(0).integers(0, 50, (2, 160))
    for directed in (False, True):
        edges = sm.files.Graph(range(50), row, col, np.full(160, 3.0), directed)
        here = sm.statistics(edges, WHAT, device="cpu", **more)
        assert not launched()
        found = sm.statistics(edges, WHAT, device="cuda", **more)
        assert launched()
        for name in WHAT:
            expected = getattr(here, name)
            np.testing.assert_allclose(getattr(found, name), expected, 1e-13, 1e-13)
    if not more:
        both = sm.statistics(edges, ["mean", "betweenness"], device="cuda")
        assert launched()
        np.testing.assert_allclose(both.betweenness, here.betweenness, 1e-13)


def test_a_device_by_itself(devices, monkeypatch):
    """Where there is much to do, and each edge counts 1."""
    monkeypatch.setattr(choice, "gpu_has", lambda memory: memory > 0)
    only(monkeypatch, "searches and back")
    G = nx.gnm_random_graph(300, 1500, seed=1)
    nx.set_edge_attributes(G, {e: 1 + i % 3 for i, e in enumerate(G.edges())}, "weight")
    here = sm.statistics(G, "betweenness", weight=None)
    assert not launched()
    monkeypatch.setattr(choice, "GPU_HOPS", 0.0)
    found = sm.statistics(G, "betweenness", weight=None)
    assert launched()
    np.testing.assert_allclose(found.betweenness, here.betweenness, 1e-13)
    sm.statistics(G, "betweenness")
    sm.statistics(G, "betweenness", weight=None, device="cpu")
    assert not launched()


@pytest.mark.parametrize("name", ["cpu", "cuda", "auto"])
def test_the_device_of_networkx(devices, name, monkeypatch):
    monkeypatch.setattr(choice, "gpu_has", lambda memory: memory > 0)
    monkeypatch.setattr(choice, "GPU_HOPS", 0.0)
    G = nx.gnm_random_graph(60, 150, seed=1)
    nx.set_edge_attributes(G, {e: 1 + i % 3 for i, e in enumerate(G.edges())}, "weight")
    with nx.config.backends.semiring_mm(device=name):
        found = nx.betweenness_centrality(G, backend="semiring_mm")
        assert launched() == (name != "cpu")
        edges = nx.edge_betweenness_centrality(G, backend="semiring_mm")
        some = nx.betweenness_centrality(G, k=9, seed=3, backend="semiring_mm")
        assert launched() == (name != "cpu")
        nx.betweenness_centrality(G, weight="weight", backend="semiring_mm")
        assert not launched()
    assert found == pytest.approx(nx.betweenness_centrality(G), 1e-12)
    assert edges == pytest.approx(nx.edge_betweenness_centrality(G), 1e-12)
    assert some == pytest.approx(nx.betweenness_centrality(G, k=9, seed=3), 1e-12)
