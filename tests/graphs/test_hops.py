"""Breadth-first searches from many sources at once against SciPy and NumPy."""

import numpy as np
import pytest
from metrics import only
from optional import csgraph, nx, sp

import semiring_mm as sm
from semiring_mm.cpu import bfs
from semiring_mm.cpu.kernels import bfs as kernels
from semiring_mm.graphs.hops import HopCollector, Hops
from semiring_mm.hierarchy.collector import Wanted

EVERYTHING = frozenset(["largest", "count", "sum", "inverse", "within", "bins"])


def family(name, n):
    rng = np.random.default_rng(n)
    match name:
        case "path":
            return np.arange(n - 1), np.arange(1, n)
        case "star":
            return np.zeros(n - 1, int), np.arange(1, n)
        case "none":
            return np.empty((2, 0), int)
        case "loops":
            return rng.integers(0, n, (2, n))[[0, 0]]
        case "power":  # few nodes have most of the edges
            return (n * rng.random((2, 5 * n)) ** 4).astype(int)
        case "sparse":
            return rng.integers(0, n, (2, n))
        case "dense":
            return rng.integers(0, n, (2, 40 * n))


def matrix(u, v, n, directed):
    graph = sp.csr_array((np.ones(len(u)), (u, v)), shape=(n, n))
    return csgraph.shortest_path(graph, "D", directed=directed, unweighted=True)


FAMILIES = ["path", "star", "none", "loops", "power", "sparse", "dense"]


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("n", [1, 2, 37, bfs.LANES - 1, bfs.LANES, 700])
@pytest.mark.parametrize("name", FAMILIES)
def test_distances_and_their_statistics(name, n, directed):
    u, v = family(name, n)
    graph = Hops(n, u, v, directed=directed)
    d = matrix(u, v, n, directed)
    there, every = np.isfinite(d), np.arange(n)
    z = np.where(there, d, 0).astype(int)
    np.testing.assert_array_equal(graph.distances(every), np.where(there, z, -1))
    edges, radii = np.array([0, 1, 2, 7, 9]), np.array([-1, 0, 2.5, 1e9, np.inf])
    for way, table in ((graph, z), (graph.reverse(), z.T)):
        found = (c := HopCollector(way, Wanted(EVERYTHING, edges, radii))).empty(n)
        c.run(every, every, found)
        known = there if way is graph else there.T
        np.testing.assert_array_equal(found["largest"], table.max(axis=1))
        np.testing.assert_array_equal(found["count"], known.sum(axis=1))
        np.testing.assert_array_equal(found["sum"], table.sum(axis=1))
        inverse = np.divide(1, table, out=np.zeros((n, n)), where=table > 0)
        np.testing.assert_allclose(found["inverse"], inverse.sum(axis=1), rtol=1e-13)
        np.testing.assert_array_equal(found["bins"], np.histogram(table[known], edges)[0])
        for i, r in enumerate(radii):
            np.testing.assert_array_equal(found["within"][:, i], (known & (table <= r)).sum(axis=1))


@pytest.mark.parametrize("n", [254, 255, 256, 257, 1200])
def test_nodes_farther_than_a_byte_holds(n):
    graph = Hops(n, *family("path", n), directed=True)
    sources = (0, n // 2, 3)
    d = graph.distances(np.array(sources))
    for row, first in zip(d, sources, strict=True):
        np.testing.assert_array_equal(row, np.where(np.arange(n) < first, -1, np.arange(n) - first))


def test_counters_of_many_nodes_in_a_level():
    """More nodes than the slices of a counter count before they are added up."""
    n = 5000
    c = HopCollector(
        Hops(n, *family("star", n), directed=False), Wanted(EVERYTHING - {"within"}, np.arange(4))
    )
    found = c.empty(2)
    c.run(np.array([0, 9]), np.arange(2), found)
    assert found["sum"].tolist() == [n - 1, 1 + 2 * (n - 2)]
    assert found["bins"].tolist() == [2, n, n - 2]


@pytest.fixture(
    params=["sparse elimination", "breadth-first searches", "a search from each source"]
)
def way(request, monkeypatch):
    """Statistics in one of the three ways, whatever is the fastest."""
    only(monkeypatch, request.param)


@pytest.mark.parametrize("directed", [False, True])
def test_all_ways_have_the_same_statistics(way, directed):
    G = nx.gnm_random_graph(60, 90, seed=1, directed=directed)
    found = sm.statistics(G, weight=None, radius=[1, 3], bins=[1, 2, 3, 30])
    closeness, harmonic = nx.closeness_centrality(G), nx.harmonic_centrality(G)
    np.testing.assert_allclose(found.closeness, [closeness[u] for u in G], rtol=1e-13)
    np.testing.assert_allclose(found.harmonic, [harmonic[u] for u in G], rtol=1e-13)
    rows = [nx.single_source_shortest_path_length(G, u) for u in G]
    assert found.eccentricity.tolist() == [max(row.values()) for row in rows]
    assert found.reached.tolist() == [len(row) for row in rows]
    pairs = np.concatenate([list(row.values()) for row in rows])
    assert found.mean_distance == pairs.sum() / (len(pairs) - len(G))
    np.testing.assert_array_equal(found.histogram.counts, np.histogram(pairs, [1, 2, 3, 30])[0])
    near = [[sum(x <= r for x in row.values()) for r in (1, 3)] for row in rows]
    np.testing.assert_array_equal(found.within, near)
    assert rows[found.ends[0]][found.ends[1]] == found.diameter
    auto = sm.statistics(G, "histogram", weight=None).histogram
    np.testing.assert_array_equal(np.histogram(pairs[pairs > 0], auto.edges)[0], auto.counts)


def searches(monkeypatch):
    """A list that becomes longer with each pass of breadth-first searches."""
    calls, compiled = [], bfs.compiled
    monkeypatch.setattr(bfs, "compiled", lambda *kernel: calls.append(0) or compiled(*kernel))
    return calls


@pytest.mark.parametrize("dtype", ["int32", "float32", "float64"])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("name", ["sparse", "dense"])
def test_paths_of_edges_that_count_one(name, directed, dtype, monkeypatch):
    """All pairs, and some, of lists and matrices, by breadth-first searches."""
    n, calls = 600, searches(monkeypatch)
    u, v = family(name, n)
    expected, rows = matrix(u, v, n, directed), np.arange(n)[::-2]
    unreached = np.iinfo(dtype).max if dtype[0] == "i" else np.inf
    W = np.full((n, n), unreached, dtype)
    W[u, v] = 1
    if not directed:
        W[v, u] = 1
    edges = sm.files.Graph(range(n), u, v, np.ones(len(u), dtype), directed)
    for given in (W, edges):
        for sources, d in ((None, expected), (rows, expected[rows])):
            found = np.asarray(sm.apsp(given, sources=sources))
            np.testing.assert_array_equal(np.where(found == unreached, np.inf, found), d)
            assert calls, (type(given), sources)
            calls.clear()
    W[5, 6] = 2
    other = sm.apsp(W, directed=directed)
    assert not calls
    assert other[5, 6] == min(expected[5, 6], 2) or expected[5, 6] == 1


def test_progress_of_searches():
    seen = []
    rng = np.random.default_rng(0)
    sm.apsp(
        sm.files.Graph(range(2000), *rng.integers(0, 2000, (2, 9000)), np.ones(9000), False),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen[-1] == (2000**2, 2000**2)
    assert len(seen) >= 2


@pytest.mark.parametrize(("words", "sources"), [(1, 64), (kernels.WORDS, 70)])
@pytest.mark.parametrize("dtype", [None, "u1", "i4"])
def test_the_kernel_in_python(dtype, words, sources):
    """A word after the other, in place of the lanes of a vector."""
    n, rng = 80, np.random.default_rng(3)
    graph = Hops(n, *rng.integers(0, n, (2, 140)), directed=True)
    source, shape = rng.permutation(n), (64, words)
    full = np.packbits(np.arange(64 * words) < sources, bitorder="little").view("u8")
    copies = [
        {name: np.zeros(shape, "i8") for name in ("counts", "reached", "total", "far")} | {
            "inverse": np.zeros(shape), "within": np.zeros((1, *shape), "i8"),
            "table": np.zeros(n + 2, "i8"), "bits": np.zeros((3, n, words), "u8"),
            "label": None if dtype is None else np.zeros((n, 64 * words), dtype),
        }
        for _ in range(2)
    ]  # fmt: skip
    given = {
        "words": words, "n": n, "arcs": graph.arcs, "sources": sources,
        "source": source[:sources], "radii": 1, "radius": np.array([2]), "most": 4,
        "first": graph.out[0], "near": graph.out[1],
        "back_first": graph.back[0], "back_near": graph.back[1], "full": full,
    }  # fmt: skip
    bfs.compiled(kernels.levels, dtype or "u1")(
        **given, **copies[0], nodes=np.zeros((2, n), np.int32)
    )
    kernels.levels.plain(**given, **copies[1], nodes=np.zeros((2, n), np.int32))
    for name, x in copies[0].items():
        np.testing.assert_array_equal(x, copies[1][name], err_msg=name)
    assert copies[0]["far"].max() > 4
