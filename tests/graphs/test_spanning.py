"""Widest and minimax paths of undirected graphs by spanning forests, against the elimination."""

import contextlib
import itertools
from dataclasses import replace

import numpy as np
import plain_engine
import pytest
from numpy.testing import assert_array_equal
from reference import BFLOAT16

import semiring_mm as sm
from semiring_mm.closures import memory, spanning
from semiring_mm.closures.edges import EdgeList
from semiring_mm.closures.paths import leg_counts
from semiring_mm.cpu import engine as cpu
from semiring_mm.gpu import engine as gpu
from semiring_mm.graphs import apsp
from semiring_mm.graphs import spanning as of_edges
from semiring_mm.graphs.choice import Request
from semiring_mm.tiled import solve
from tests.contract.test_contract import both

inf = np.inf
NAMES = ["max_min", "min_max"]
FLOATS = [np.dtype(x) for x in ("f4", "f8", "f2")] + [BFLOAT16]
DTYPES = [*FLOATS, *map(np.dtype, ("i1", "u1", "i2", "i4", "u4", "i8", "u8", "?"))]


@pytest.fixture
def forest(monkeypatch):
    """Spanning forests of small matrices, too, and no elimination."""
    monkeypatch.setattr(of_edges, "_FOREST", 0)
    monkeypatch.setattr(memory, "close", None)


def request_of(name, edges):
    """All pairs of some edges, with predecessors."""
    dtype = edges.weight.dtype
    return Request(sm.semirings[name], edges.n, dtype, edges=edges, predecessors=True)


def undirected(name, n, dtype, edges=0.1, seed=0, most=9):
    """A symmetric matrix, with ties; negative weights where the dtype has them."""
    rng = np.random.default_rng(seed)
    zero = sm.semirings[name].identities(dtype)[0]
    weight = rng.integers(-most if dtype.kind in "fiV" else 0, most, (n, n)).astype(dtype)
    weight = weight << 60 if dtype == np.uint64 else weight  # beyond what is signed
    weight[rng.random((n, n)) > edges] = zero
    return np.where(np.tri(n, dtype=bool), weight, weight.T)


def eliminated(a, name):
    """The closure by the elimination, which a directed graph takes."""
    return sm.closure(a, name, directed=True, device="cpu")


def by_numpy(a, name):
    """Warshall's algorithm."""
    d, s = a.copy(), sm.semirings[name]
    kinds = {"min": np.minimum, "max": np.maximum, "|": np.logical_or, "&": np.logical_and}
    best, worst = kinds[s.add_kind], kinds[s.mul_kind]
    np.fill_diagonal(d, s.identities(a.dtype)[1])
    for k in range(len(d)):
        d = best(d, worst(d[:, k, None], d[k]))
    return d


def check_trees(a, d, p, name):
    """Every row of predecessors is a tree of edges along which the closure holds."""
    s = sm.semirings[name]
    zero = s.identities(a.dtype)[0]
    n = len(a)
    leg_counts(p, np.arange(n))
    i, j = np.nonzero(p >= 0)
    assert_array_equal(p >= 0, (d != zero) & ~np.eye(n, dtype=bool))
    before = p[i, j]
    worst = {"min": np.minimum, "max": np.maximum}[s.mul_kind]
    assert_array_equal(worst(d[i, before], a[before, j]), d[i, j])
    assert (a[before, j] != zero).all()


# --- dense matrices -----------------------------------------------------------------------------


@pytest.mark.usefixtures("forest")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_matrices(name, dtype, monkeypatch):
    for n, edges in ((0, 1), (1, 1), (2, 1), (3, 0.5), (70, 0), (70, 0.02), (133, 0.1), (67, 1)):
        a = undirected(name, n, dtype, edges, seed=n)
        before = a.copy()
        d, p = sm.closure(a, name, return_predecessors=True)
        assert_array_equal(a, before)
        assert_array_equal(sm.closure(a, name), d)
        with monkeypatch.context() as usual:
            usual.setattr(of_edges, "_FOREST", 1 << 30)
            usual.setattr(memory, "close", CLOSE)
            assert_array_equal(d, eliminated(a, name))
        assert d.dtype == dtype
        if dtype.kind != "b":
            check_trees(a, d, p, name)
        else:
            leg_counts(p, np.arange(n))


CLOSE = memory.close


@pytest.mark.usefixtures("forest")
@pytest.mark.parametrize(
    "weights",
    [[inf, 1.0, -inf], [0.0, -0.0], [-inf, -1.0], [inf], [1e-310, 0.0, -1e-310], [5.0]],
    ids=str,
)
@pytest.mark.parametrize("name", NAMES)
def test_weights_at_the_ends_of_the_range(name, weights):
    rng = np.random.default_rng(1)
    a = np.asarray(rng.choice(weights, (41, 41)))
    a = np.where(np.tri(41, dtype=bool), a, a.T)
    warned = inf in weights and name == "max_min"
    with pytest.warns(UserWarning, match="inf") if warned else contextlib.nullcontext():
        d, p = sm.closure(a, name, return_predecessors=True)
    assert_array_equal(d, by_numpy(a, name))
    check_trees(a, d, p, name)


@pytest.mark.usefixtures("forest")
def test_memory_of_every_layout():
    a = undirected("max_min", 90, np.dtype("f8"), 0.2)
    expected = sm.closure(a, "max_min")
    for view in (
        lambda x: x,
        lambda x: x.T,
        lambda x: x[::-1, ::-1],
        lambda x: np.repeat(x, 2, axis=1)[:, ::2],
        lambda x: np.repeat(np.repeat(x, 2, axis=1), 2, axis=0)[::2, ::2].T,
        lambda x: x.astype(x.dtype.newbyteorder()),
    ):
        given = view(a)
        closed = view(expected)
        assert_array_equal(sm.closure(given, "max_min"), closed)
        own = given.copy() if given.base is None else given
        assert sm.closure(own, "max_min", overwrite=True) is own
        assert_array_equal(own, closed)
        a = undirected("max_min", 90, np.dtype("f8"), 0.2)


@pytest.mark.usefixtures("forest")
def test_batches():
    stack = np.stack([undirected("min_max", 40, np.dtype("f4"), 0.2, seed) for seed in range(3)])
    d, p = sm.closure(stack, "min_max", return_predecessors=True)
    for a, own, tree in zip(stack, d, p, strict=True):
        assert_array_equal(own, sm.closure(a, "min_max"))
        check_trees(a, own, tree, "min_max")


@pytest.mark.usefixtures("forest")
def test_both_triangles_are_joined():
    rng = np.random.default_rng(2)
    a = np.where(rng.random((60, 60)) < 0.05, rng.random((60, 60)), -inf)
    both_ways = np.maximum(a, a.T)
    assert_array_equal(
        sm.closure(a, "max_min", directed=False), sm.closure(both_ways, "max_min", directed=False)
    )


def test_what_a_forest_does_not_give(monkeypatch):
    """Directed graphs, and entries beyond zero or one, are the elimination's, as before."""
    monkeypatch.setattr(of_edges, "_FOREST", 0)
    monkeypatch.setattr(of_edges, "close", None)
    a = undirected("max_min", 40, np.dtype("f8"), 0.2)
    a[3, 5] = 4
    a[5, 3] = 2
    assert_array_equal(sm.closure(a, "max_min"), eliminated(a, "max_min"))
    degrees = sm.Semiring("fuzzy", "max(a, b)", "min(a, b)", 0, 1)
    truth = np.abs(undirected("max_min", 40, np.dtype("f8"), 1)) / 4
    with pytest.raises(ValueError, match="improves itself"):
        sm.closure(truth, degrees)
    worse = np.where(truth > 1, -1, truth)
    assert_array_equal(sm.closure(worse, degrees), eliminated(worse, degrees))


@pytest.mark.usefixtures("forest")
def test_semirings_of_ones_own():
    degrees = sm.Semiring("fuzzy", "max(a, b)", "b if b < a else a", 0, 1)
    a = np.abs(undirected("max_min", 50, np.dtype("f8"), 1)) / 10
    d = sm.closure(a, degrees)
    expected = sm.closure(np.where(a == 0, -inf, a), "max_min")
    np.fill_diagonal(expected, 1)
    assert_array_equal(d, np.maximum(expected, 0))


def test_nan_is_refused():
    a = undirected("max_min", 300, np.dtype("f8"), 0.2)
    a[7, 9] = a[9, 7] = np.nan
    with pytest.raises(ValueError, match=r"the weight at \[7, 9\] is NaN"):
        sm.closure(a, "max_min")


@pytest.mark.usefixtures("forest")
@pytest.mark.parametrize("name", ["lor_land", "max_min"])
def test_truth_values_are_connected_parts(name):
    sparse = pytest.importorskip("scipy.sparse.csgraph")
    a = np.random.default_rng(3).random((200, 200)) < 0.006
    a |= a.T
    part = sparse.connected_components(a)[1]
    assert 10 < part.max() < 150
    assert_array_equal(sm.closure(a, name), part[:, None] == part)
    d, p = sm.closure(a, name, return_predecessors=True)
    assert_array_equal(p >= 0, d & ~np.eye(200, dtype=bool))
    leg_counts(p, np.arange(200))


# --- lists of edges -----------------------------------------------------------------------------


def families():
    rng = np.random.default_rng(4)
    side = np.arange(64).reshape(8, 8)
    grid = np.concatenate([side[:, 1:].ravel(), side[1:].ravel()])
    back = np.concatenate([side[:, :-1].ravel(), side[:-1].ravel()])
    return {
        "none": (0, [], []),
        "one": (1, [], []),
        "loop": (2, [0, 1], [0, 1]),
        "isolated": (5, [1], [3]),
        "path": (60, range(59), range(1, 60)),
        "star": (40, [7] * 39, [x for x in range(40) if x != 7]),
        "caterpillar": (40, [*range(19), *range(20)], [*range(1, 20), *range(20, 40)]),
        "grid": (64, grid, back),
        "parallel": (6, rng.integers(0, 6, 50), rng.integers(0, 6, 50)),
        "random": (90, rng.integers(0, 90, 80), rng.integers(0, 90, 80)),
    }


@pytest.mark.parametrize("family", families())
@pytest.mark.parametrize("name", NAMES)
def test_edges_as_their_matrix(name, family):
    n, row, col = families()[family]
    rng = np.random.default_rng(5)
    m = len(row)
    weight = rng.choice([-2.0, 0, 1, 1, 3, 7.5], m)
    edges = EdgeList(range(n), np.array(row, np.int64), np.array(col, np.int64), weight, False)
    a = sm.adjacency(edges, name)[0]
    found = of_edges.solve_forest(request_of(name, edges))
    assert_array_equal(found[0], eliminated(a, name))
    check_trees(a, *found, name)


@pytest.mark.parametrize("name", NAMES)
def test_graphs_of_networkx(name, monkeypatch):
    nx = pytest.importorskip("networkx")
    monkeypatch.setattr(memory, "close", None)
    rng = np.random.default_rng(6)
    graph = nx.gnm_random_graph(70, 100, seed=1)
    graph.add_node("alone")
    for _, _, data in graph.edges(data=True):
        data["weight"] = float(rng.integers(-3, 5))
    d, p = sm.closure(graph, name, return_predecessors=True)
    assert d.nodes == list(graph)
    best = nx.maximum_spanning_tree if name == "max_min" else nx.minimum_spanning_tree
    worst = min if name == "max_min" else max
    tree = best(graph)
    for i, start in enumerate(graph):
        paths = nx.single_source_shortest_path(tree, start)
        for j, end in enumerate(graph):
            path = paths.get(end, [])
            legs = [graph.edges[x]["weight"] for x in itertools.pairwise(path)]
            ends = sm.semirings[name]
            assert d[i, j] == (worst(legs) if legs else ends.one if path else ends.zero)
    assert d.path(*list(graph)[:1], *list(graph)[:1]) == [0]
    check_trees(sm.adjacency(graph, name)[0], np.asarray(d), np.asarray(p), name)


def test_sparse_matrices(monkeypatch):
    """A stored zero is an edge, and a matrix that is symmetric an undirected graph."""
    sparse = pytest.importorskip("scipy.sparse")
    rng = np.random.default_rng(7)
    row, col = rng.integers(0, 80, (2, 150))
    weight = rng.integers(-2, 3, 150).astype(np.float32)
    once = sparse.coo_array((weight, (row, col)), (80, 80))
    twice = sparse.coo_array(
        (np.tile(weight, 2), (np.append(row, col), np.append(col, row))), (80, 80)
    )
    expected = eliminated(sm.adjacency(once, "max_min", directed=False)[0], "max_min")
    one_way = eliminated(sm.adjacency(once, "max_min")[0], "max_min")
    assert_array_equal(sm.closure(once, "max_min"), one_way)
    monkeypatch.setattr(memory, "close", None)
    assert_array_equal(sm.closure(once, "max_min", directed=False), expected)
    found = sm.closure(twice, "max_min")
    assert_array_equal(found, expected)
    assert found.dtype == np.float32
    assert_array_equal(sm.closure(twice, "lor_land"), expected != -inf)


def test_a_way_back_at_another_weight_is_directed():
    for weight, ends in (
        ([1, 2, 2, 1], {True: True, False: True}),
        ([1, 2, 1, 3], {True: True, False: False}),
        ([1, 3, 2, 3], {True: False, False: True}),
        ([1, 2, 3, 4], {True: False, False: False}),
    ):
        row, col = np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0])
        edges = EdgeList(range(3), row, col, np.array(weight), True)
        for least, same in ends.items():
            assert of_edges.as_undirected(edges, least).directed != same
    assert of_edges.as_undirected(EdgeList(range(3), row[:3], col[:3], row, True), True).directed


def test_edges_by_rows():
    """Their starts are made when they are asked for; where rows begin holds of directed edges."""
    first, col = np.array([0, 2, 3, 3, 4]), np.array([1, 3, 0, 0])
    edges = EdgeList.by_rows(first, col, np.array([5, 2, 5, 2]))
    assert "row" not in vars(edges)
    assert_array_equal(edges.row, [0, 0, 1, 3])
    assert (edges.n, edges.directed) == (4, True)
    again = replace(edges, weight=col)
    assert_array_equal(again.row, edges.row)
    assert again.first is first
    both_ways = of_edges.as_undirected(edges, True)
    assert not both_ways.directed
    assert both_ways.first is None
    assert_array_equal(both_ways.row, edges.row)
    with pytest.raises(AttributeError, match="EdgeList has no attribute 'rows'"):
        assert not edges.rows
    csr = pytest.importorskip("scipy.sparse").csr_array((edges.weight, col, first), (4, 4))
    distances = sm.apsp(csr, directed=False, method="sparse", sources=[1])
    assert_array_equal(distances, [[5, 0, np.inf, 7]])


@pytest.mark.parametrize("name", [*NAMES, "lor_land"])
def test_files_and_sources(name, tmp_path, monkeypatch):
    """Rows go to the file as they are found, without tiles; some rows are those of the whole."""
    monkeypatch.setattr(solve, "close_tiles", None)
    rng = np.random.default_rng(9)
    row, col = rng.integers(0, 90, (2, 80))
    edges = EdgeList(range(90), row, col, rng.integers(-2, 3, 80).astype("f8"), False)
    monkeypatch.setattr(apsp, "as_graph", lambda graph, **_: (graph, None))
    d, p = sm.closure(edges, name, return_predecessors=True)
    assert_array_equal(d, eliminated(sm.adjacency(edges, name)[0], name))
    out = tmp_path / "d.npy", tmp_path / "p.npy"
    found = sm.closure(edges, name, tiles=sm.Tiles(out=out), return_predecessors=True)
    for x, y in zip(found, (d, p), strict=True):
        assert type(x) is np.memmap
        assert_array_equal(x, y)
    rows = [7, 3, 7]
    some = sm.closure(edges, name, sources=rows, return_predecessors=True)
    assert_array_equal(some[0], d[rows])
    assert_array_equal(some[1], p[rows])


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("dtype", ["f4", "i2", "?"])
def test_matrices_in_files(dtype, tmp_path, monkeypatch):
    """A matrix is read where it is, and the rows of its closure are written once."""
    monkeypatch.setattr(solve, "close_tiles", None)
    monkeypatch.setattr(of_edges, "_FOREST", 0)
    a = undirected("max_min", 150, np.dtype(dtype), 0.01)
    np.save(tmp_path / "a.npy", a)
    stored = np.load(tmp_path / "a.npy", mmap_mode="r")
    d, p = sm.closure(a, "max_min", return_predecessors=True)
    out = tmp_path / "d.npy", tmp_path / "p.npy"
    seen = []
    found = sm.closure(
        stored, "max_min", tiles=sm.Tiles(out=out, memory="2MB"), return_predecessors=True,
        progress=lambda done, total: seen.append(done / total),
    )  # fmt: skip
    for x, y in zip(found, (d, p), strict=True):
        assert type(x) is np.memmap
        assert_array_equal(x, y)
    assert seen[-1] == 1
    rows = [3, 149, 3]
    some = sm.closure(a, "max_min", sources=rows, return_predecessors=True)
    assert_array_equal(some[0], d[rows])
    assert_array_equal(some[1], p[rows])
    assert_array_equal(
        sm.closure(stored, "max_min", sources=rows, tiles=sm.Tiles(memory="2MB")), d[rows]
    )
    one_way = a.copy()
    one_way[3, 5] = not one_way[5, 3]
    other = sm.closure(one_way, "max_min", tiles=sm.Tiles(out=tmp_path / "other.npy"))
    assert_array_equal(other, sm.closure(one_way, "max_min", directed=True))
    assert not np.array_equal(other, d)


def test_progress_is_told():
    seen = []
    a = undirected("max_min", 300, np.dtype("f4"))
    sm.closure(a, "max_min", progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (300.0**2, 300.0**2)


# --- engines ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("forest")
@pytest.mark.parametrize("dtype", ["f4", "i2", "?"])
def test_the_contract_of_engines(dtype):
    a = undirected("max_min", 23, np.dtype(dtype), 0.1)
    both(sm.closure, a, "max_min")
    if dtype != "?":
        both(sm.closure, a, "max_min", return_predecessors=True)
    else:
        both(sm.closure, a, "lor_land")


@pytest.mark.parametrize("count", [0, 1, 5, 70])
def test_some_rows(count):
    """The rows of a file, some at a time, are those of the whole."""
    n = 70
    a = undirected("max_min", n, np.dtype("f8"), 0.05)
    forest = spanning.of_matrix(cpu, sm.semirings["max_min"], a)
    d, p = np.empty((n, n)), np.empty((n, n), np.int32)
    forest.write(cpu, d, p)
    rows = np.random.default_rng(8).permutation(n)[:count].astype(np.int32)
    some, trees = np.empty((count, n)), np.empty((count, n), np.int32)
    for engine in (cpu, plain_engine):
        some[...], trees[...] = np.nan, 0
        forest.write(engine, some, trees, rows)
        assert_array_equal(some, d[rows])
        assert_array_equal(trees, p[rows])


def check_best(engine, put, get):
    """The first of the best entries in another group, where one is better than zero."""
    rng = np.random.default_rng(10)
    for name, n in (("max_min", 67), ("min_max", 96), ("max_min", 1030)):
        zero = sm.semirings[name].identities("f4")[0]
        a = rng.integers(-2, 3, (n, n)).astype("f4")
        a[rng.random((n, n)) < 0.5] = zero
        group = rng.integers(0, 3, n).astype("i4")
        a[4] = np.where(group == group[4], a[4], zero)  # finds none
        rows = np.append(rng.permutation(n)[:8], [4, 4]).astype("i4")
        at, value = put(np.full(10, 99, "i4")), put(np.full(10, 99, "f4"))
        engine.best_outside(sm.semirings[name], put(a), put(group), put(rows), at, value)
        seen = np.where(group == group[rows, None], zero, a[rows])
        best = seen.max(1) if name == "max_min" else seen.min(1)
        assert_array_equal(get(value), best)
        first = (seen == best[:, None]).argmax(1)
        assert_array_equal(get(at), np.where(best == zero, -1, first))


@pytest.mark.parametrize("engine", [cpu, plain_engine], ids=["cpu", "plain"])
def test_best_edges(engine):
    check_best(engine, np.array, np.asarray)


def test_best_edges_on_a_device(there):
    check_best(gpu, there.put, there.get)


@pytest.mark.usefixtures("forest")
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("max_min", np.dtype("f4")),
        ("min_max", np.dtype("f2")),
        ("max_min", np.dtype("f8")),
        ("min_max", np.dtype("u8")),
        ("lor_land", np.dtype("?")),
        ("max_min", BFLOAT16),
    ],
    ids=str,
)
def test_on_a_device(there, name, dtype):
    for n, edges in ((1, 1), (66, 0.01), (96, 0.2), (133, 1)):
        a = undirected(name, n, dtype, edges, seed=n)
        trees = dtype.kind != "b"
        found = sm.closure(there.put(a), name, return_predecessors=trees)
        d, *p = map(there.get, found if trees else (found,))
        assert_array_equal(d, by_numpy(a, name))
        if trees:
            check_trees(a, d, p[0], name)


def test_symmetry_on_a_device(there):
    for dtype in ("f4", "f2", "u1", "f8"):
        x = undirected("max_min", 70, np.dtype(dtype), 1)
        for view in (lambda x: x, lambda x: x[::2, ::2], lambda x: x.T):
            own = there.put(x)
            assert gpu.symmetric(view(own)) is True
            for i, j in ((0, 68), (68, 66)):
                own = there.put(x)
                own[i, j] += 1
                assert gpu.symmetric(view(own)) is False
        if dtype == "f4":
            x[2, 2] = np.nan
            assert gpu.symmetric(there.put(x)) is False
    assert gpu.symmetric(there.put(np.empty((0, 0)))) is True
