"""Rows and tables of sweeps: numbers of sources, whole numbers in 32 bits, stores past caches."""

from dataclasses import replace

import numpy as np
import pytest
from metrics import leave_core
from optional import csgraph, nx

import semiring_mm as sm
from semiring_mm.hierarchy import metric as module
from semiring_mm.hierarchy.metric import customize
from tests.graphs.test_sparse import GRAPHS, random_graph, undirected, walk

WIDE = undirected(nx.path_graph(1100))  # more columns than are turned at a time


def prepared(graph, dtype=np.float64):
    net = sm.prepare(graph, dtype=dtype)
    return net, net.metric


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.int32])
@pytest.mark.parametrize("name", [*GRAPHS, "wide"])
def test_whole_numbers_in_32_bits(name, dtype, monkeypatch):
    monkeypatch.setattr(module, "_FEW", 1)
    graph = {**GRAPHS, "wide": WIDE}[name]
    net, metric = prepared(graph, dtype)
    expected = csgraph.dijkstra(graph)
    if np.dtype(dtype).kind == "i":
        far = np.isinf(expected)
        expected = np.where(far, 0, expected).astype(dtype)
        expected[far] = np.iinfo(dtype).max
    narrow = metric.narrowed(np.dtype(dtype), 99)
    assert metric.out.itemsize == 4 or narrow.out.dtype == np.int32
    np.testing.assert_array_equal(net.distances(), expected)
    sources, targets = np.arange(0, len(expected), 3), np.arange(1, len(expected), 7)
    np.testing.assert_array_equal(
        net.distances(sources, targets), expected[np.ix_(sources, targets)]
    )


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        (lambda w: w, True),
        (lambda w: w + 0.5, False),
        (lambda w: w * 2.0**22, True),
        (lambda w: w * 2.0**27, False),
        (lambda w: w * 0, True),
    ],
)
def test_only_where_all_distances_are_known_to_fit(change, fits):
    graph = GRAPHS["grid"].copy()
    graph.data = change(graph.data)
    net, metric = prepared(graph)
    assert (metric.narrowed(np.dtype(float), 1000) is not None) == fits
    np.testing.assert_array_equal(net.distances(), csgraph.dijkstra(graph))


def test_negative_weights_and_few_rows_stay_as_they_are():
    rng = np.random.default_rng(0)
    h = rng.integers(0, 9, 130)
    graph = GRAPHS["directed"].tocoo()
    graph.data = graph.data + h[graph.row] - h[graph.col]
    _, metric = prepared(graph)
    assert metric.narrowed(np.dtype(float), 1000) is None
    net, metric = prepared(GRAPHS["grid"])
    assert metric.narrowed(np.dtype(float), 1) is None
    assert "bound" not in metric.__dict__  # a single row looks for nothing
    net.distances()
    assert metric.narrowed(np.dtype(float), 2) is not None  # what is known is used
    assert metric.narrowed(np.dtype(float), 1) is None


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("trees", [False, True])
@pytest.mark.parametrize("name", ["grid", "islands", "complete", "directed"])
@pytest.mark.parametrize("core", [False, True])
def test_any_number_of_sources(name, trees, core, monkeypatch):
    """Blocks of one source, of a few, and of as many as registers hold."""
    if core:
        leave_core(monkeypatch)
    graph = GRAPHS[name]
    net, expected = sm.prepare(graph), csgraph.dijkstra(graph)
    problem = replace(net.problem, predecessors=trees)
    metric = customize(net.metric.structure, problem, trees=trees)
    widths = set()
    for count in (1, 2, 3, 5, 8, 9, 40):
        sources = np.random.default_rng(count).integers(0, len(expected), count)
        d, p = np.empty((count, len(expected))), None
        if trees:
            p = np.empty(d.shape, np.int32)
        metric.sweep(sources, d, p)
        np.testing.assert_array_equal(d, expected[sources])
        if trees:
            walk(graph, d, p, sources)
        widths.add(metric._width(count))
    assert len(widths) == 3


@pytest.mark.parametrize("shift", [0, 1, 4, 8, 24])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_may_begin_anywhere(shift, dtype):
    """Lines of the caches, and rows that begin between them; even between two numbers."""
    graph = random_graph(611, 3)
    _, metric = prepared(graph, dtype)
    n, size = graph.shape[0], np.dtype(dtype).itemsize
    memory = np.full(70 * n * size + 128, 7, np.uint8)
    start = -memory.ctypes.data % 64 + shift
    d = memory[start : start + 70 * n * size].view(dtype).reshape(70, n)
    sources = np.arange(500, 570)
    (metric.narrowed(d.dtype, 70) or metric).sweep(sources, d, None)
    np.testing.assert_array_equal(d, csgraph.dijkstra(graph)[sources])
    assert (memory[:start] == 7).all()
    assert (memory[start + d.nbytes :] == 7).all()


@pytest.mark.parametrize("name", ["grid", "star", "islands", "complete", "directed"])
def test_tables_fall_over_the_ancestors_of_targets(name):
    graph, rng = GRAPHS[name], np.random.default_rng(1)
    expected, (net, metric) = csgraph.dijkstra(graph), prepared(graph)
    n = len(expected)
    for count, width in ((1, 1), (n // 2, 1), (3, n // 2), (n, n), (5, 5)):
        sources, targets = rng.integers(0, n, count), rng.integers(0, n, width)
        np.testing.assert_array_equal(
            net.distances(sources, targets), expected[np.ix_(sources, targets)]
        )
    x = metric.structure
    ends = x.rank[targets].astype(np.int64)
    part = metric.restricted(x.rank[np.arange(n)].astype(np.int64), ends)
    assert len(part.targets) == len(x.ancestors(ends)) - x.core
