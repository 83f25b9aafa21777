"""Searches over the lists of a matrix in CSR that nobody has looked at, beside SciPy's."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import semiring_mm as sm
from semiring_mm.closures.edges import EdgeList
from semiring_mm.graphs import dijkstra
from semiring_mm.graphs.dijkstra import Lists, search_lists
from semiring_mm.graphs.kernels import dijkstra as kernels
from semiring_mm.kernel import Operations

sp = pytest.importorskip("scipy.sparse")
theirs = pytest.importorskip("scipy.sparse.csgraph")
from semiring_mm import csgraph  # noqa: E402

inf = np.inf


def random(n, degree, seed, *, weights="whole", symmetric=False):
    """A graph with loops, edges of weight 0 and, often, nodes that are not reached."""
    rng = np.random.default_rng([n, degree, seed])
    m = n * degree
    row, col = rng.integers(0, n, (2, m))
    weight = {
        "whole": rng.integers(0, 9, m).astype(float),
        "real": rng.random(m),
        "equal": np.full(m, 0.1),
    }[weights]
    if symmetric:
        row, col, weight = np.append(row, col), np.append(col, row), np.tile(weight, 2)
    order = np.lexsort((weight, col, row))
    row, col, weight = row[order], col[order], weight[order]
    kept = np.append(True, (np.diff(row) != 0) | (np.diff(col) != 0))
    return sp.csr_array((weight[kept], (row[kept], col[kept])), shape=(n, n))


def assert_tree(graph, d, pred, source, directed):
    """Each predecessor attains its node's distance; nodes without a path have none."""
    weight = np.full(graph.shape, inf)
    row = np.repeat(np.arange(len(d)), np.diff(graph.indptr))
    np.minimum.at(weight, (row, graph.indices), graph.data)
    if not directed:
        weight = np.minimum(weight, weight.T)
    there = (d < inf) & (np.arange(len(d)) != source)
    assert_array_equal(pred >= 0, there)
    nodes = np.flatnonzero(there)
    assert_array_equal(d[pred[nodes]] + weight[pred[nodes], nodes], d[nodes])


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("weights", ["whole", "real", "equal"])
@pytest.mark.parametrize(("n", "degree"), [(1, 1), (2, 1), (30, 1), (40, 3), (300, 8)])
def test_from_some_sources(n, degree, weights, directed, symmetric):
    for seed in range(4):
        graph = random(n, degree, seed, weights=weights, symmetric=symmetric)
        rng = np.random.default_rng(seed)
        source = int(rng.integers(n))
        expected = theirs.dijkstra(graph, directed, indices=source)
        d, pred = csgraph.dijkstra(graph, directed, source, return_predecessors=True)
        assert_array_equal(d, expected)
        assert_tree(graph, d, pred, source, directed)
        words = {} if directed else {"directed": False}
        d, pred = sm.apsp(graph, sources=[source], return_predecessors=True, **words)
        assert_array_equal(d[0], expected)
        assert_tree(graph, d[0], pred[0], source, directed)
        rows = rng.integers(0, n, 5)
        lists = Lists.of(n, graph.indptr, graph.indices, graph.data)
        found = search_lists(lists, rows, predecessors=False, directed=directed)
        assert_array_equal(found.d, theirs.dijkstra(graph, directed, indices=rows))


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("unweighted", [False, True])
@pytest.mark.parametrize("limit", [0, 2, 2.5, 7, inf])
def test_a_limit_and_the_nearest_source(limit, unweighted, directed, symmetric):
    for seed in range(4):
        graph = random(60, 3, seed, symmetric=symmetric)
        rows = np.random.default_rng(seed).integers(0, 60, 4)
        words = {"unweighted": unweighted, "limit": limit, "return_predecessors": True}
        for indices in (rows[0], rows, None):
            d, pred = csgraph.dijkstra(graph, directed, indices, **words)
            expected, tree = theirs.dijkstra(graph, directed, indices, **words)
            assert_array_equal(d, expected)
            assert_array_equal(pred >= 0, tree >= 0)
        d, pred, root = csgraph.dijkstra(graph, directed, rows, min_only=True, **words)
        expected, tree, roots = theirs.dijkstra(graph, directed, rows, min_only=True, **words)
        assert_array_equal(d, expected)
        assert_array_equal(pred >= 0, tree >= 0)
        assert_array_equal(root >= 0, roots >= 0)
        each = theirs.dijkstra(graph, directed, np.arange(60), unweighted=unweighted, limit=limit)
        nodes = np.flatnonzero(root >= 0)
        assert np.isin(root[nodes], rows).all()
        assert_array_equal(each[root[nodes], nodes], d[nodes])


def test_a_limit_that_is_a_distance_is_kept():
    """Paths of exactly this length count, whatever the rounding beside it."""
    graph = sp.csr_array(np.diag([0.1, 0.2, 0.3], 1))
    for limit in (0.1 + 0.2, np.nextafter(0.1 + 0.2, 0), np.nextafter(0.1 + 0.2, 1)):
        assert_array_equal(
            csgraph.dijkstra(graph, indices=0, limit=limit),
            theirs.dijkstra(graph, indices=0, limit=limit),
        )


@pytest.mark.parametrize("index", [np.int32, np.int64, np.int16, ">i4"])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i4", "u1", "?", ">f8", "f2"])
def test_types_of_indices_and_of_weights(index, dtype):
    graph = random(50, 3, 0)
    weight = graph.data.astype(dtype)
    given = sp.csr_array((weight, graph.indices, graph.indptr), graph.shape)
    given.indices, given.indptr = given.indices.astype(index), given.indptr.astype(index)
    d = sm.apsp(given, sources=[3, 7])
    assert d.dtype == ("f4" if dtype == "f4" else "f8")
    values = weight.astype(float)
    expected = sp.csr_array((values, graph.indices, graph.indptr), graph.shape)
    assert_array_equal(d, theirs.dijkstra(expected, indices=[3, 7]))


def test_arrays_with_gaps_and_more_room_than_is_used():
    graph = random(50, 3, 0)
    expected = theirs.dijkstra(graph, indices=[3])
    wide = np.repeat(graph.data, 2)
    for data, indices in (
        (wide[::2], np.repeat(graph.indices, 2)[::2]),
        (np.append(graph.data, np.nan), np.append(graph.indices, 999)),
    ):
        given = graph.copy()
        given.data, given.indices = data, indices
        lists = Lists.of(50, given.indptr, given.indices, given.data)
        assert_array_equal(search_lists(lists, np.array([3]), predecessors=False).d, expected)


def test_duplicates_any_order_and_infinite_weights():
    rng = np.random.default_rng(0)
    graph = random(40, 4, 1, weights="real")
    row = np.repeat(np.arange(40), np.diff(graph.indptr))
    order = np.lexsort((rng.random(len(row)), row))
    graph.indices, graph.data = graph.indices[order], graph.data[order]
    twice = sp.csr_array(
        (np.repeat(graph.data, 2) + np.tile([0, 1.0], graph.nnz), np.repeat(graph.indices, 2),
         2 * graph.indptr), graph.shape,
    )  # fmt: skip
    expected = theirs.dijkstra(graph, indices=[5])
    twice.data[1::6] = inf
    for directed in (True, False):
        expected = theirs.dijkstra(graph, directed, indices=[5])
        assert_array_equal(csgraph.dijkstra(twice, directed, indices=[5]), expected)
        assert_array_equal(
            sm.apsp(twice, sources=[5], directed=None if directed else False), expected
        )


def broken(name):
    """A matrix with something wrong at node 2, which node 0 does not reach."""
    graph = sp.csr_array(
        (np.array([1.0, 2, 3, 4]), np.array([1, 0, 3, 2]), np.array([0, 1, 2, 3, 4])), shape=(4, 4)
    )
    if name == "index":
        graph.indices[2] = 9
    elif name == "negative index":
        graph.indices[2] = -1
    elif name == "indptr":
        graph.indptr[3] = 1
    else:
        graph.data[2] = {"nan": np.nan, "negative": -5, "-inf": -inf}[name]
    return graph


@pytest.mark.parametrize("source", [0, 2])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("index", "an edge at node 9, and nodes are 0 to 3"),
        ("negative index", "an edge at node -1"), ("indptr", "never decreases"),
        ("nan", "from node 2 to node 3 has weight NaN"), ("-inf", "has weight -inf"),
        ("negative", "a cycle of negative weight"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("directed", [None, False])
def test_what_is_wrong_anywhere_is_told(name, message, source, directed):
    with pytest.raises(ValueError, match=message):
        sm.apsp(broken(name), sources=[source], directed=directed)


@pytest.mark.parametrize("name", ["index", "negative index", "indptr"])
@pytest.mark.parametrize("words", [{}, {"limit": 9}, {"min_only": True}, {"directed": False}])
def test_lists_out_of_range_are_told_in_csgraph(name, words):
    with pytest.raises(ValueError, match="indptr or indices of the sparse matrix are out of range"):
        csgraph.dijkstra(broken(name), indices=[2], **words)


def test_negative_weights_apart_from_a_one_way_arc():
    """Which makes the lists be written again, in both directions."""
    graph = sp.csr_array(np.array([[0, 0, 0, 0], [3, 0, 0, 0], [0, 0, 0, -5], [0, 0, 0, 0.0]]))
    assert_array_equal(csgraph.dijkstra(graph, indices=0), [0, inf, inf, inf])
    assert_array_equal(csgraph.dijkstra(graph, False, indices=0), [0, 3, inf, inf])
    with pytest.raises(sm.NegativeCycleError):
        sm.apsp(graph, sources=[0], directed=False)
    with pytest.raises(csgraph.NegativeCycleError):
        csgraph.johnson(graph, False, indices=0)


def test_negative_weights_beyond_the_limit_count():
    graph = sp.csr_array(np.array([[0, 1, 9, 0], [0, 0, 0, 0], [0, 0, 0, -8], [0, 0, 0, 0.0]]))
    assert_array_equal(csgraph.dijkstra(graph, indices=0, limit=2), [0, 1, inf, 1])
    graph.data[-1] = np.nan  # is no edge
    assert_array_equal(csgraph.dijkstra(graph, indices=0, limit=2), [0, 1, inf, inf])


@pytest.mark.parametrize("weights", ["whole", "equal"])
@pytest.mark.parametrize("directed", [False, True])
def test_a_search_goes_on_where_it_stopped(monkeypatch, weights, directed):
    """As often as Ctrl-C is looked for."""
    graph = random(80, 3, 2, weights=weights)
    expected = csgraph.dijkstra(graph, directed, indices=5)
    looks = []
    monkeypatch.setattr(dijkstra, "_MOST", 3)
    monkeypatch.setattr(dijkstra.pool, "look", lambda: looks.append(0))
    assert_array_equal(csgraph.dijkstra(graph, directed, indices=5), expected)
    assert len(looks) > 5


@pytest.mark.parametrize("weights", ["whole", "equal"])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("bound", [None, 9.0])
def test_the_kernel_in_python(weights, both, bound):
    graph = random(12, 2, 3, weights=weights, symmetric=both)
    lists = Lists.of(12, graph.indptr, graph.indices, graph.data)
    operations = Operations(min, lambda x, y: x + y, lambda x, y: x < y, inf, 0.0)
    room, label = graph.nnz + 2, np.empty((2, 12))
    kernels.search.plain(
        operations, n=12, rows=2, arcs=graph.nnz, starts=2, most=1 << 62, open=np.zeros(2, int),
        source=np.array([1, 7]), first=lists.first, head=lists.head, weight=lists.weight,
        step=lists.step, node=np.empty(room, np.int32), key=np.empty(room), root=None, pred=None,
        label=label, bound=bound, both=both,
    )  # fmt: skip
    expected = theirs.dijkstra(graph, indices=[1, 7])
    assert_array_equal(label, np.where(expected < (bound or inf), expected, inf))


def test_equal_weights_are_added_up_one_by_one():
    """A queue does in place of a heap, and rounds as that does."""
    graph = sp.csr_array(np.diag(np.full(99, 0.1), 1))
    expected = theirs.dijkstra(graph, indices=0)
    assert expected[30] != 30 * 0.1
    assert_array_equal(csgraph.dijkstra(graph, indices=0), expected)
    assert_array_equal(sm.apsp(graph, sources=[0])[0], expected)
    ends = np.arange(99), np.arange(1, 100)
    edges = EdgeList.of(100, *ends, np.full(99, 0.1))
    assert_array_equal(sm.apsp(edges, sources=[0])[0], expected)
    factors = edges.weighted(np.full(99, 0.5))
    assert_allclose(sm.closure(factors, "max_times", sources=[0])[0], 0.5 ** np.arange(100))
    huge = edges.weighted(np.full(99, 1e308))
    assert_array_equal(sm.apsp(huge, sources=[0])[0][:3], [0, 1e308, inf])
