"""Prepared graphs: all questions against closures, SciPy and brute force, new weights, files."""

import contextlib
import functools
import itertools
import json
import math
import pickle
import sys

import numpy as np
import pytest
from metrics import grid, leave_core
from optional import csgraph, nx, pd, sp
from plain_kernels import MIN_PLUS, both

import semiring_mm as sm
from semiring_mm.closures import paths
from semiring_mm.closures.edges import EdgeList
from semiring_mm.expressions import evaluate
from semiring_mm.graphs.kernels import queries as kernels
from semiring_mm.hierarchy import symbolic as elimination
from semiring_mm.hierarchy.symbolic import analyze


def family(name, rng):
    """The number of nodes and the ends of edges of a graph of some kind."""
    pick = rng.integers
    match name:
        case "none":
            return 0, np.empty((2, 0), int)
        case "one":
            return 1, np.empty((2, 0), int)
        case "loop":
            return 1, np.zeros((2, 2), int)
        case "no edges":
            return 6, np.empty((2, 0), int)
        case "tree":
            child = np.arange(1, 40)
            return 40, np.stack([child, (child * rng.random(39)).astype(int)])
        case "star":
            return 30, np.stack([np.zeros(29, int), np.arange(1, 30)])
        case "caterpillar":
            spine = np.stack([np.arange(9), np.arange(1, 10)])
            return 40, np.concatenate(
                [spine, np.stack([np.arange(10, 40) % 10, np.arange(10, 40)])], 1
            )
        case "grid":
            return 42, np.stack(grid(6, 7)[1:])
        case "small world":
            ring = np.stack([np.arange(40), (np.arange(40) + 1) % 40])
            return 40, np.concatenate([ring, pick(0, 40, (2, 8))], 1)
        case "parallel":
            return 12, np.concatenate([pick(0, 12, (2, 20))] * 2, 1)
        case "disconnected":
            return 45, np.concatenate([pick(0, 15, (2, 20)), pick(20, 40, (2, 25))], 1)
        case "dense":
            return 20, np.stack([*np.nonzero(~np.eye(20, dtype=bool))])


FAMILIES = [
    "none", "one", "loop", "no edges", "tree", "star", "caterpillar", "grid", "small world",
    "parallel", "disconnected", "dense",
]  # fmt: skip
WEIGHTS = {
    "min_plus": lambda rng, m: rng.integers(0, 9, m),
    "max_min": lambda rng, m: rng.integers(-5, 9, m),
    "min_max": lambda rng, m: rng.integers(-5, 9, m),
    "max_times": lambda rng, m: 2.0 ** -rng.integers(0, 4, m),
}


def graph(name, weights, rng, *, directed, dtype=float):
    n, (row, col) = family(name, rng)
    row, col = row.astype(np.int64), col.astype(np.int64)
    return EdgeList(range(n), row, col, weights(rng, len(row)).astype(dtype), directed)


def best_edges(s, g):
    """The best weight of the edges between two nodes."""
    found = {}
    ends = [*zip(g.row.tolist(), g.col.tolist(), g.weight.tolist(), strict=True)]
    ends += [] if g.directed else [(v, u, w) for u, v, w in ends]
    better = min if s.add_kind == "min" else max
    for u, v, w in ends:
        found[u, v] = better(w, found[u, v]) if (u, v) in found else w
    return found


def check(net, g, expected, most=400):
    """Questions to a prepared graph have the answers of the closure."""
    s, n = net.semiring, g.n
    np.testing.assert_array_equal(net.distances(), expected)
    some = np.arange(n)[::2]
    np.testing.assert_array_equal(net.distances(some), expected[some])
    np.testing.assert_array_equal(net.distances(some, some[::-1]), expected[some][:, some[::-1]])
    edges, zero = best_edges(s, g), s.identities(net.dtype)[0]
    along = {"+": sum, "min": min, "max": max, "*": math.prod}[s.mul_kind]
    pairs = np.array([*itertools.product(range(n), repeat=2)], int).reshape(-1, 2)
    for u, v in np.random.default_rng(n).permutation(pairs)[:most].tolist():
        assert net.distance(u, v) == expected[u, v]
        if u != v and expected[u, v] == zero:
            with pytest.raises(ValueError, match=f"there is no path from {u} to {v}"):
                net.path(u, v)
            continue
        path = net.path(u, v)
        assert (path[0], path[-1]) == (u, v)
        assert len(set(path)) == len(path)
        if u != v:
            assert along(edges[x] for x in itertools.pairwise(path)) == expected[u, v]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("semiring", WEIGHTS)
def test_all_questions_over_semirings(name, semiring, monkeypatch):
    s = sm.semirings[semiring]
    for seed, (directed, core) in enumerate(itertools.product([True, False], [True, False])):
        rng = np.random.default_rng(seed)
        dtype = np.int32 if semiring != "max_times" and seed % 2 else np.float64
        g = graph(name, WEIGHTS[semiring], rng, directed=directed, dtype=dtype)
        with monkeypatch.context() as patched:
            if core:
                leave_core(patched)
            net = sm.prepare(g, semiring=s, dtype=dtype)
        assert net.dtype == dtype
        assert bool(net._structure.core) == (core and g.n > 3)
        expected = sm.closure(sm.adjacency(g, s, dtype=dtype)[0], s)
        check(net, g, expected, 40 if core else 400)
        g = graph(name, WEIGHTS[semiring], np.random.default_rng(seed), directed=directed)
        weight = WEIGHTS[semiring](rng, len(g.row)).astype(dtype)
        g = EdgeList(g.nodes, g.row, g.col, weight, directed)
        net.customize(weight)
        expected = sm.closure(sm.adjacency(g, s, dtype=dtype)[0], s)
        check(net, g, expected, 40 if core else 400)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "int64"])
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("core", [True, False])
def test_small_tables_are_scipy_s(dtype, directed, core, monkeypatch):
    """Many forms, with ties, edges of length 0, nodes without a path, and repeated nodes."""
    if core:
        leave_core(monkeypatch)
    for seed, name in enumerate(FAMILIES):
        rng = np.random.default_rng(seed)
        g = graph(name, lambda rng, m: rng.integers(0, 4, m), rng, directed=directed)
        if not g.n:
            continue
        edges = best_edges(sm.semirings["min_plus"], g)
        matrix = np.full((g.n, g.n), np.inf)
        for (u, v), weight in edges.items():
            matrix[u, v] = weight
        given = csgraph.csgraph_from_dense(matrix, null_value=np.inf)
        expected = csgraph.dijkstra(given)
        net = sm.prepare(g, dtype=dtype)
        far = net.semiring.identities(net.dtype)[0]
        expected[expected == np.inf] = far
        for count, width in ((1, 1), (1, 10), (3, 3), (10, 10), (1, 50), (50, 1), (40, 45)):
            sources, targets = rng.integers(0, g.n, count), rng.integers(0, g.n, width)
            found = net.distances(sources, targets)
            assert found.dtype == dtype
            np.testing.assert_array_equal(found, expected[np.ix_(sources, targets)])
            for i, j in zip(range(count), range(width), strict=False):
                assert net.distance(int(sources[i]), int(targets[j])) == found[i, j]


@pytest.mark.parametrize("core", [True, False])
def test_reachability(core, monkeypatch):
    if core:
        leave_core(monkeypatch)
    for name in FAMILIES:
        g = graph(name, WEIGHTS["min_plus"], np.random.default_rng(1), directed=True)
        net = sm.prepare(g, semiring="lor_land")
        expected = sm.closure(sm.adjacency(g, "lor_land")[0], "lor_land")
        assert net.distances().dtype == bool
        np.testing.assert_array_equal(net.distances(), expected)
        some = np.arange(g.n)[::2]
        np.testing.assert_array_equal(net.distances(some, some), expected[some][:, some])
        edges = best_edges(sm.semirings["max_min"], g)
        for u, v in itertools.product(range(min(g.n, 12)), repeat=2):
            found = net.distance(u, v)
            assert isinstance(found, bool)
            assert found == expected[u, v]
            if found:
                path = net.path(u, v)
                assert (path[0], path[-1]) == (u, v)
                assert set(itertools.pairwise(path)) <= set(edges)
    with pytest.raises(ValueError, match="an edge has no weight"):
        net.customize(np.ones(net._arcs.row.size))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "int64"])
def test_negative_weights_and_cycles_of_weight_zero(dtype):
    """Potentials make edges negative, and the circles of weight zero stay."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        g = graph("small world", lambda rng, m: rng.integers(0, 3, m), rng, directed=True)
        h = rng.integers(-9, 9, g.n)
        weight = (g.weight + h[g.row] - h[g.col]).astype(dtype)
        g = EdgeList(g.nodes, g.row, g.col, weight, True)
        check(
            sm.prepare(g, dtype=dtype), g, sm.closure(sm.adjacency(g, dtype=dtype)[0], "min_plus")
        )


def test_a_semiring_of_the_user_that_does_not_commute():
    """The last edge's weight where the first is at most 3: an undirected graph has two ways."""
    s = sm.Semiring("min_last", "min(a, b)", "b if a < inf else inf", np.inf, -np.inf)
    g = EdgeList(range(3), np.array([0, 1]), np.array([1, 2]), np.array([5.0, 7.0]), False)
    found = sm.prepare(g, semiring=s).distances()
    assert found[0, 2] == 7
    assert found[2, 0] == 5


#: Ordinals below ω², 1000 k + m being ω k + m, are added up: 1 + ω = ω < ω + 1. And the other way.
ORDINALS = {
    "forward": "a if a == inf else (a + b if b < 1000 else a // 1000 * 1000 + b)",
    "backward": "b if b == inf else (b + a if a < 1000 else b // 1000 * 1000 + a)",
}


@pytest.mark.parametrize("core", [True, False])
@pytest.mark.parametrize("way", ORDINALS)
def test_the_order_of_factors(way, core, monkeypatch):
    if core:
        leave_core(monkeypatch)
    s = sm.Semiring(f"min_{way}", "min(a, b)", ORDINALS[way], np.inf, 0)
    assert not s.commutes
    for seed, directed in itertools.product(range(3), [True, False]):
        rng = np.random.default_rng(seed)
        name = ["small world", "grid", "disconnected"][seed]
        g = graph(name, lambda rng, m: rng.integers(0, 3, m) * 1000 + rng.integers(1, 9, m), rng,
                  directed=directed)  # fmt: skip
        net = sm.prepare(g, semiring=s)
        assert bool(net._structure.core) == core
        expected = sm.closure(sm.adjacency(g, s)[0], s)
        np.testing.assert_array_equal(net.distances(), expected)
        edges = best_edges(s, g)
        for u, v in itertools.product(range(seed, g.n, 4), range(g.n)):
            assert net.distance(u, v) == expected[u, v]
            if u != v and expected[u, v] < np.inf:
                weights = [edges[x] for x in itertools.pairwise(net.path(u, v))]
                assert (
                    functools.reduce(functools.partial(evaluate, s.mul_expr), weights)
                    == (expected[u, v])
                )


def test_cycles_of_weight_zero_do_not_show_on_the_diagonal():
    """However their weights round."""
    for seed in range(80):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(3, 12))
        row, col = rng.integers(0, n, (2, int(rng.integers(n, 3 * n))))
        h = rng.random(n) * 3
        weight = (h[col] - h[row]).astype(["float64", "float32"][seed % 2])
        net = sm.prepare(EdgeList(range(n), row, col, weight, True))
        assert (np.diagonal(net.distances()) == 0).all()
        assert (np.diagonal(net.distances(targets=range(n))) == 0).all()


def test_rows_that_are_not_aligned():
    """Such as of a matrix in a file; they are not written past the caches."""
    g = large()
    for dtype in ("float64", "float32", "int32"):
        net = sm.prepare(g, dtype=dtype)
        expected, size = net.distances(range(9)), np.dtype(dtype).itemsize
        for offset in (1, size - 1):
            memory = np.zeros(expected.nbytes + 8, np.uint8)
            rows = memory[offset : offset + expected.nbytes].view(dtype).reshape(expected.shape)
            assert not rows.flags.aligned
            net.metric.sweep(np.arange(9), rows, None)
            np.testing.assert_array_equal(rows, expected)


def test_no_distance_exceeds_the_bound():
    """That of the components, one way or both."""
    for seed, directed in itertools.product(range(40), [True, False]):
        rng = np.random.default_rng(seed)
        name = ["tree", "disconnected", "small world", "caterpillar"][seed % 4]
        g = graph(name, lambda rng, m: rng.random(m), rng, directed=directed)
        if directed and seed % 8:  # both ways, but not of the same weights
            row, col = np.concatenate([[g.row, g.col], [g.col, g.row]], 1)
            g = EdgeList(g.nodes, row, col, rng.random(len(row)), True)
        check_bound(sm.prepare(g))


def check_bound(net):
    d = net.distances()
    bound, tight = net.metric.bound
    most = d[np.isfinite(d)].max()
    assert bound >= most
    assert not tight or bound <= 2 * most * (1 + 1e-5)


def test_the_bound_allows_for_roundings(monkeypatch):
    """Sums from one end of a path to the other have other brackets than those by its middle."""

    def by_the_middle(n, row, col, *_):
        first, near = elimination.neighbours(n, row, col)
        order = np.array([*range(n // 2), *range(n - 1, n // 2 - 1, -1)], np.int32)
        return elimination.factorize(n, first, near, order, n)

    monkeypatch.setattr("semiring_mm.graphs.prepared.analyze", by_the_middle)
    for seed in range(40):
        i, rng = np.arange(4 + seed % 10), np.random.default_rng(seed)
        row, col = np.concatenate([[i, i + 1], [i + 1, i]], 1)
        check_bound(sm.prepare(EdgeList(range(len(i) + 1), row, col, rng.random(len(row)), True)))


def test_graphs_without_small_separators(monkeypatch):
    """The order stops early, and what is left is a dense core, or an error says what to write."""
    rng, n = np.random.default_rng(5), 4000
    row, col = rng.integers(0, n, (2, 3 * n))
    x = analyze(n, row, col, "auto")
    assert 1024 < x.core < n / 2
    assert np.diff(x.first).max() < x.core / 5  # before the rest is nearly a clique
    monkeypatch.setattr("semiring_mm.cpu.engine.free_memory", lambda: 8 * x.core**2)
    g = EdgeList(range(n), row, col, np.ones(len(row)), True)
    with pytest.raises(MemoryError, match=r"no small separators .* sm\.apsp\(graph, sources=") as e:
        sm.prepare(g)
    assert f"{x.core:,} of the 4,000 nodes" in str(e.value)
    monkeypatch.undo()
    assert sm.apsp(g, sources=[3]).shape == (1, n)


def test_a_large_core_is_told_before_its_closure(monkeypatch):
    """With the time that it takes; the progress, which may stop it, goes from 0 to all."""
    rng, n, seen = np.random.default_rng(5), 4000, []
    g = EdgeList(range(n), *rng.integers(0, n, (2, 3 * n)), np.ones(3 * n), True)
    monkeypatch.setattr("semiring_mm.graphs.prepared._LONG", 1e6)
    with pytest.warns(UserWarning, match=r"of the 4,000 nodes .* a dense core of 0\.0.* GB, .* s"):
        net = sm.prepare(g, progress=lambda done, total: seen.append((done, total)))
    core = net._structure.core
    totals = {n, net._structure.pairs + core**3}
    assert {total for _, total in seen} == totals
    for total in totals:
        done = [x for x, of in seen if of == total]
        assert done == sorted(done)
        assert done[-1] == pytest.approx(total)
        assert len(done) > 3

    def stop(done, total):
        if done > total / 2 and total != n:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        net.customize(2 * g.weight, progress=stop)
    assert net.distance(*g.row[:1].tolist(), *g.col[:1].tolist()) <= 1  # as before
    with pytest.raises(TypeError, match="progress is True, False or a callable"):
        sm.prepare(g, progress="yes")


def test_an_order_in_pieces_is_the_same(monkeypatch):
    """So that Ctrl-C need not wait for the whole."""
    g = large()
    whole = analyze(g.n, g.row, g.col, "minimum_degree")
    for name in ("_BEGIN", "_GRANT"):
        monkeypatch.setattr(f"semiring_mm.hierarchy.symbolic.{name}", 1000)
    seen = []
    pieces = analyze(g.n, g.row, g.col, "minimum_degree", lambda done, total: seen.append(done))
    np.testing.assert_array_equal(pieces.order, whole.order)
    np.testing.assert_array_equal(pieces.head, whole.head)
    assert len(set(seen)) > 100


@pytest.mark.parametrize("order", ["minimum_degree", "nested_dissection"])
def test_orders(order):
    if order == "nested_dissection":
        pytest.importorskip("pymetis")
    for name in FAMILIES:
        g = graph(name, WEIGHTS["min_plus"], np.random.default_rng(3), directed=False)
        net = sm.prepare(g, order=order)
        np.testing.assert_array_equal(net.distances(), sm.apsp(sm.adjacency(g)[0]))


def test_an_order_without_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(ImportError, match=r'pip install "semiring-mm\[metis\]"'):
        sm.prepare(NAMED, order="nested_dissection")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    g = large()
    x = analyze(g.n, g.row, g.col, "auto")
    other = analyze(g.n, g.row, g.col, "minimum_degree")
    np.testing.assert_array_equal(x.order, other.order)


def test_nested_dissection_is_flat():
    pytest.importorskip("pymetis")
    i = np.arange(50 * 50).reshape(50, 50)
    row = np.concatenate([i[:, 1:].ravel(), i[1:].ravel()])
    col = np.concatenate([i[:, :-1].ravel(), i[:-1].ravel()])
    found = analyze(i.size, row, col, "nested_dissection")
    assert found.eliminated == i.size
    assert found.height.max() < 250
    other = analyze(i.size, row, col, "minimum_degree")
    assert len(found.head) < 1.3 * len(other.head)
    assert found.height.max() < other.height.max()


def large(seed=0):
    rng = np.random.default_rng(seed)
    n, row, col = grid(60, 70)
    row, col = np.append(row, [0, 5]), np.append(col, [9, 4000])
    return EdgeList(range(n), row, col, rng.integers(1, 100, len(row)), False)


def test_against_scipy_with_threads():
    g = large()
    rows = np.random.default_rng(1).integers(0, g.n, 70)
    row, col = np.concatenate([g.row, g.col]), np.concatenate([g.col, g.row])
    matrix = sp.csr_array((np.concatenate([g.weight, g.weight]).astype(float), (row, col)))
    expected = csgraph.dijkstra(matrix, indices=rows)
    for dtype in ("float32", "float64", "int32", "int64"):
        net = sm.prepare(g, dtype=dtype)
        found = net.distances(rows)
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(net.distances(rows, rows[:9]), found[:, rows[:9]])
    from_matrix = sm.prepare(matrix)
    assert from_matrix.directed
    np.testing.assert_array_equal(from_matrix.distances(rows), expected)
    limit = sm.get_num_threads()
    try:
        sm.set_num_threads(1)
        np.testing.assert_array_equal(sm.prepare(g).distances(rows), expected)
    finally:
        sm.set_num_threads(limit)


def test_integers_in_pieces(monkeypatch):
    """int16 is computed in int64, and narrowed some rows at a time."""
    g = large()
    net, rows = sm.prepare(g, dtype="int16"), np.arange(0, g.n, 90)
    expected = sm.prepare(g).distances(rows)
    for name, value in (("WIDE", 9), ("_PIECE", 1), ("_LINE", 2 * g.n)):
        monkeypatch.setattr(f"semiring_mm.graphs.rows.{name}", value)
    found = net.distances(rows)
    assert found.dtype == np.int16
    assert net._state.metric.steps.dtype != found.dtype
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(net.distances(rows, rows[:5]), expected[:, rows[:5]])


def test_memory_is_compared_before_the_order(monkeypatch):
    n, row, col = grid(100)
    graph = sp.coo_array((np.ones(len(row)), (row, col)), shape=(n, n))
    needed = 100 * n + 60 * len(row)
    monkeypatch.setattr("semiring_mm.cpu.engine.free_memory", lambda: needed - 1)
    monkeypatch.setattr("semiring_mm.graphs.prepared.analyze", None)
    with pytest.raises(MemoryError, match="preparing 10,000 nodes and 19,800 edges needs"):
        sm.prepare(graph)


def test_preparing_takes_no_memory_for_sweeps_from_many_sources(monkeypatch):
    """Labels from 16 sources for each of many threads would be more than the rest."""
    n, row, col = grid(100)
    graph = sp.coo_array((np.ones(len(row)), (row, col)), shape=(n, n))
    monkeypatch.setattr("semiring_mm.cpu.engine.free_memory", lambda: 6_000_000)
    monkeypatch.setattr("semiring_mm.pool.get_num_threads", lambda: 8)
    net = sm.prepare(graph, directed=False)
    assert net._structure.bytes(8, trees=False) > 8_000_000
    assert net.distances([0], [n - 1]) == 198


def test_subtrees_for_threads_are_disjoint_and_whole():
    g = large()
    x = analyze(g.n, g.row, g.col, "minimum_degree")
    nodes, cuts = x.schedule
    assert (np.sort(nodes) == np.arange(x.eliminated)).all()
    assert (cuts[0], cuts[-1], (np.diff(cuts) >= 0).all()) == (0, x.eliminated, True)
    assert len(cuts) > 8
    part = np.empty(x.n + 1, int)
    for k, (begin, end) in enumerate(itertools.pairwise(cuts)):
        part[nodes[begin:end]] = k
        assert (np.diff(nodes[begin:end]) > 0).all()
    last = len(cuts) - 2
    inner = np.flatnonzero(x.parent < x.eliminated)
    above = part[x.parent[inner]]
    assert ((above == part[inner]) | (above == last)).all()
    assert cuts[-1] - cuts[-2] < g.n / 4


def test_threads_ask_at_once():
    from concurrent.futures import ThreadPoolExecutor

    g = large()
    net = sm.prepare(g)
    pairs = np.random.default_rng(2).integers(0, g.n, (300, 2)).tolist()
    expected = [net.distance(*x) for x in pairs]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda x: net.distance(*x), pairs)) == expected


NAMED = {"a": {"b": 3, "c": 8}, "b": {"c": 1}, "c": {}}


def test_labels():
    net = sm.prepare(NAMED)
    assert repr(net) == "<PreparedGraph: 3 nodes, 3 directed edges, min_plus, float64>"
    found = net.distances()
    assert isinstance(found, sm.LabelledArray)
    assert found.nodes == found.sources == ["a", "b", "c"]
    table = net.distances("a", targets=["c", "b"])
    assert (table.sources, table.nodes) == (["a"], ["c", "b"])
    np.testing.assert_array_equal(table, [[4, 3]])
    assert net.path("a", "c") == ["a", "b", "c"]
    columns = net.distances(targets="c")
    assert (columns.sources, columns.nodes) == (["a", "b", "c"], ["c"])
    frame = pd.DataFrame(net.distances(["a", "b"], ["b", "c"]).to_frame(long=True))
    assert frame.values.tolist() == [["a", "b", 3.0], ["a", "c", 4.0], ["b", "c", 1.0]]


@pytest.mark.parametrize("directed", [None, False])
def test_columns_of_tables(tmp_path, directed):
    columns = {"von": [*"abc"], "nach": [*"bca"], "km": [1.5, 2, 3], "min": [4, 5, 6]}
    table = pd.DataFrame(columns, index=[7, 3, 5])
    ends = {"source": "von", "target": "nach"}
    net = sm.prepare(table, weight="km", directed=directed, **ends)
    assert net.distance("a", "c") == (3.5 if directed is None else 3)
    net.save(tmp_path / "net.npz")
    for x in (net, sm.load(tmp_path / "net.npz")):
        column = table["min"]
        for weights in (column, column.astype("Int64"), column.astype(object), table[["min"]]):
            x.customize(weights)
            assert x.distance("a", "c") == (9 if directed is None else 6)
        x.customize(table[::-1])  # as a graph, by its ends
        assert x.distance("b", "c") == 2
        for wrong, message in (
            (column.astype(str), "weights are real numbers, got '4' for edge 0, from 'a' to 'b'"),
            (column.where(column != 5), "the weight of edge 1, from 'b' to 'c', is NaN"),
            (pd.Series([1, None, 2], dtype="Int64"), "got <NA> for edge 1|edge 1, .* is NaN"),
            (column[:2], "has 3 edges, one weight each, got 2"),
            (table[["km", "min"]], "the table: no column 'von'; columns: km, min"),
        ):
            with pytest.raises((ValueError, TypeError), match=message):
                x.customize(wrong)
    with pytest.raises(ValueError, match=r"no column 'source' .*as source= .* sm.prepare"):
        sm.prepare(table)
    with pytest.raises(ValueError, match="source and target are columns of a table"):
        sm.prepare(np.eye(2), source="von")


def test_weights_of_another_order():
    g = large()
    net = sm.prepare(g)
    weight = np.random.default_rng(5).integers(1, 9, len(g.row))
    expected = sm.prepare(EdgeList(g.nodes, g.row, g.col, weight, False)).distances(range(9))
    order = np.random.default_rng(6).permutation(len(g.row))
    ends = np.where(order % 2, [g.row[order], g.col[order]], [g.col[order], g.row[order]])
    net.customize(EdgeList(range(g.n), *ends, weight[order], False))
    np.testing.assert_array_equal(net.distances(range(9)), expected)
    named = sm.prepare(NAMED)
    named.customize({"b": {"c": 10}, "c": {}, "a": {"c": 8, "b": 3}})
    assert named.path("a", "c") == ["a", "c"]
    named.customize(pd.Series([1, 9, 2]))
    assert named.distance("a", "c") == 3
    named.customize([1, np.inf, np.inf])
    assert named.distances("a").tolist() == [[0, 1, np.inf]]


CUSTOMIZE_ERRORS = {
    "length": ([1, 2], "the prepared graph has 3 edges, one weight each, got 2"),
    "NaN": ([1, np.nan, 2], "the weight of edge 1, from 'a' to 'c', is NaN"),
    "other edges": ({"a": {"b": 3, "c": 8}, "b": {"a": 1}, "c": {}}, "between other nodes"),
    "other nodes": ({"a": {"b": 3, "x": 8}, "b": {"x": 1}}, "the weights are of another graph"),
    "fewer edges": ({"a": {"b": 3}, "c": {}}, "3 nodes and 1 directed edges, the prepared one"),
    "-inf": ([1, 2, -np.inf], "the edge from node b to node c has weight -inf; use inf for no"),
}


@pytest.mark.parametrize("case", CUSTOMIZE_ERRORS)
def test_weights_that_do_not_fit(case):
    net = sm.prepare(NAMED)
    weights, message = CUSTOMIZE_ERRORS[case]
    with pytest.raises(ValueError, match=message):
        net.customize(weights)
    assert net.distance("a", "c") == 4  # as before


def test_negative_cycles_are_named():
    net = sm.prepare({"a": {"b": 3}, "b": {"c": 1}, "c": {"a": 1}})
    with pytest.raises(sm.NegativeCycleError, match="negative weight -1: ") as caught:
        net.customize([3, 1, -5])
    assert sorted(caught.value.cycle) == [0, 1, 2]
    with pytest.raises(sm.NegativeCycleError, match=r"a → b → a|b → a → b"):
        sm.prepare({"a": {"b": -1}, "b": {"a": 0.5}})
    with pytest.raises(sm.NegativeCycleError, match="1 → 1"):
        sm.prepare(EdgeList(range(2), np.array([0, 1]), np.array([1, 1]), np.array([1, -2]), True))
    assert net.distance("a", "c") == 4


def test_a_long_negative_cycle_takes_few_passes_over_the_edges(monkeypatch):
    """After some rounds of Bellman and Ford only the cycle's surroundings change."""
    n, length = 250, 200  # a grid, and a cycle along one of its lines
    at = np.arange(n * n).reshape(n, n)
    row = np.concatenate([at[:, 1:].ravel(), at[1:].ravel()])
    col = np.concatenate([at[:, :-1].ravel(), at[:-1].ravel()])
    row, col = np.append(row, col), np.append(col, row)
    weight = np.random.default_rng(1).integers(100, 200, len(row))
    along = at[100, 20 : 20 + length]
    row, col = np.append(row, along[:-1]), np.append(col, along[1:])
    row, col = np.append(row, along[-1]), np.append(col, along[0])
    weight = np.append(weight, np.ones(length - 1, int))
    edges = EdgeList(range(n * n), row, col, np.append(weight, -length), True)
    followed, add = [], paths._pair_sum
    monkeypatch.setattr(paths, "_pair_sum", lambda a, b: followed.append(len(b)) or add(a, b))
    with pytest.raises(sm.NegativeCycleError, match="negative weight -1: ") as caught:
        sm.prepare(edges)
    cycle = caught.value.cycle
    start = cycle.index(along[0])
    np.testing.assert_array_equal(cycle[start:] + cycle[:start], along)
    assert sum(followed) < 20 * len(row)


ERRORS = {
    "semiring": (lambda: sm.prepare(NAMED, semiring="plus_times"), "⊕ chooses one of its operands"),
    "order": (lambda: sm.prepare(NAMED, order="amd"), "order is 'auto', 'minimum_degree' or"),
    "source": (lambda: sm.prepare(NAMED).distance("x", "a"), "'x' is not a node of the graph"),
    "target": (lambda: sm.prepare(NAMED).path("a", "x"), "'x' is not a node of the graph"),
    "table": (lambda: sm.prepare(NAMED).distances(["a"], ["b", "x"]), "'x' is not a node"),
    "number": (lambda: sm.prepare(large()).distance(0, 9999), "there is no node 9999, they are 0"),
    "negative": (lambda: sm.prepare(large()).distance(-1, 0), "there is no node -1, they are 0"),
    "path": (lambda: sm.prepare(large()).path(0, -1), "there is no node -1, they are 0 to 4199"),
    "numbers": (
        lambda: sm.prepare(large()).distances([0], [7, -1]), "targets: there is no node -1"),
    "fraction": (
        lambda: sm.prepare({0: {1: 1.5}}, dtype="int32"), "weight 1.5, which int32 does not hold"),
    "shape": (lambda: sm.prepare(np.zeros((2, 3))), "square, got shape"),
    "suffix": (lambda: sm.prepare(NAMED).save("net.bin"), r"saved as .npz: save\('net.bin.npz'\)"),
    "label": (
        lambda: sm.prepare({frozenset("a"): {1: 2}}).save("net.npz"), "is a frozenset"),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case):
    call, message = ERRORS[case]
    with pytest.raises(ValueError, match=message):
        call()


def test_integers_that_do_not_fit():
    net = sm.prepare(
        EdgeList(range(3), np.arange(2), np.arange(1, 3), np.array([90, 90]), True), dtype="int8"
    )
    assert net.distance(0, 1) == 90
    for ask in (lambda: net.distance(0, 2), lambda: net.distances(0)):
        with pytest.raises(OverflowError, match="a distance of 180 does not fit int8"):
            ask()
    assert net.path(0, 2) == [0, 1, 2]


LABELS = {
    "numbers": [4, 7, 9], "strings": ["a", "ü", "\n"], "tuples": [(0, 1), (1, (2, "x")), (3,)],
    "mixed": [None, 1.5, "1.5"], "NumPy": list(np.array([3, 4, 5])),
}  # fmt: skip


@pytest.mark.parametrize("case", LABELS)
def test_saved_and_loaded(case, tmp_path):
    labels = LABELS[case]
    g = EdgeList(labels, np.array([0, 1]), np.array([1, 2]), np.array([3.0, 4.0]), case != "tuples")
    path = tmp_path / "net.npz"
    net = sm.prepare(g, semiring="min_max" if case == "mixed" else "min_plus")
    net.customize([5, 6])
    net.save(path)
    again = sm.load(path)
    assert list(again.nodes) == labels
    assert (again.semiring, again.dtype, again.directed) == (net.semiring, net.dtype, net.directed)
    np.testing.assert_array_equal(again.distances(), net.distances())
    assert again.path(labels[0], labels[2]) == labels
    again.customize([1, 1])
    again.save(path)
    assert sm.load(path).distance(*labels[:2]) == 1


def test_a_large_graph_and_a_semiring_of_the_user_saved_and_loaded(tmp_path):
    s = sm.Semiring("min_plus_2", "min(a, b)", "a + b", np.inf, 0)
    g = large()
    net = sm.prepare(g, semiring=s, dtype="int32")
    net.save(tmp_path / "net.npz")
    again = sm.load(tmp_path / "net.npz")
    assert again.semiring == s
    assert isinstance(again.nodes, range)
    rows = np.arange(0, g.n, 400)
    np.testing.assert_array_equal(again.distances(rows), net.distances(rows))
    assert again.path(3, 4100) == net.path(3, 4100)


def test_a_copy_for_another_process():
    net = sm.prepare(NAMED)
    again = pickle.loads(pickle.dumps(net))
    net.customize([9, 9, 9])
    assert again.path("a", "c") == ["a", "b", "c"]
    assert again.distance("a", "c") == 4


def damaged(path, how):
    data = bytearray(path.read_bytes())
    if how == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif how == "text":
        path.write_text("no archive")
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "array":
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    elif how in ("other", "matrix"):
        np.savez(path, x=np.zeros((3, 3)))
    elif how == "bit":
        middle = data.index(b"weights.npy") + 200
        data[middle] ^= 1
        path.write_bytes(data)
    else:
        with np.load(path) as file:
            arrays = dict(file)
        if how == "version":
            about = json.loads(bytes(arrays["about"])) | {"version": 99}
            arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
        elif how == "pickle":
            arrays["about"] = np.array([{}], object)
        elif how == "weights":
            arrays["weights"] = arrays["weights"] + 1
        elif how != "packed":
            del arrays[how]
        (np.savez_compressed if how == "packed" else np.savez)(path, **arrays)


@pytest.mark.parametrize(
    ("how", "message"),
    {
        "cut": "or damaged", "text": "or damaged", "empty": "or damaged", "bit": "damaged",
        "array": "is no prepared graph", "other": "net.save", "pickle": "or damaged",
        "version": "version 99 of the format, and this is version 2: prepare the graph anew",
        "weights": "its contents are not what was saved", "head": "its contents are not",
        "matrix": r"sm\.prepare\('.*net\.npz'\) prepares a graph", "packed": "packed in",
    }.items(),
)  # fmt: skip
def test_files_that_are_none(how, message, tmp_path):
    path = tmp_path / "net.npz"
    sm.prepare(large()).save(path)
    damaged(path, how)
    with pytest.raises(ValueError, match=message) as caught:
        sm.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_cut_files_and_changed_bytes(tmp_path):
    """One line each; what is of no account, such as the time of an array, may change."""
    path, rng, errors = tmp_path / "net.npz", np.random.default_rng(8), []
    net = sm.prepare(NAMED)
    net.save(path)
    data = path.read_bytes()
    ends = rng.integers(0, len(data), 100)
    for end, bit in [*zip(ends, [None] * 100, strict=True), *rng.integers(0, 8, (300, 2))]:
        other = bytearray(data[:end] if bit is None else data)
        if bit is not None:
            other[rng.integers(len(data))] ^= 1 << int(bit)
        path.write_bytes(other)
        try:
            assert sm.load(path).distances().tolist() == net.distances().tolist()
        except ValueError as error:
            errors.append(str(error))
    assert len(errors) > 250
    for text in errors:
        assert repr(str(path)) in text
        assert "\n" not in text
        assert len(text) < len(str(path)) * 2 + 300


def test_the_matrix_of_a_file_is_no_prepared_graph(tmp_path):
    path = tmp_path / "d.npy"
    np.save(path, np.array([[0, 2.0], [np.inf, 0]]))
    with pytest.raises(ValueError, match=r"no prepared graph.* sm\.prepare\('.*d\.npy'\)"):
        sm.load(path)
    assert sm.prepare(path).distance(0, 1) == 2


def test_a_semiring_without_laws_does_not_crash():
    """What zero does not annihilate has no tail to follow."""
    for mul in ("min(a, b)", "1", "a - b", "max(b, 0)"):
        s = sm.Semiring("lawless", "min(a, b)", mul, np.inf, 0)
        net = sm.prepare({0: {1: 5}, 1: {}, 2: {}, 3: {2: 4, 1: 1}}, semiring=s)
        for u, v in itertools.permutations(range(4), 2):
            with contextlib.suppress(ValueError):
                assert net.path(u, v)[-1] == v


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"net\.npz"):
        sm.load(tmp_path / "net.npz")


def test_a_prepared_graph_is_no_graph():
    with pytest.raises(TypeError, match="prepared already; customize"):
        sm.prepare(sm.prepare(NAMED))


@pytest.mark.parametrize("core", [True, False])
def test_kernels_in_python(core, monkeypatch):
    if core:
        leave_core(monkeypatch)
    g = nx.gnp_random_graph(12, 0.3, seed=4, directed=True)
    for k, (_, _, edge) in enumerate(g.edges(data=True)):
        edge["weight"] = 1 + k % 5
    net = sm.prepare(g)
    metric, n = net.metric, len(g)
    fields = vars(metric.structure) | {"out": metric.out, "back": metric.back}
    shared = {name: fields[name] for name in ("first", "parent", "head", "out", "back")}
    shared |= {
        "n": n,
        "eliminated": fields["eliminated"],
        "core": metric.structure.core,
        "matrix": metric.core,
        "capacity": 40,
    }
    shared |= {name: np.zeros(n) for name in ("up", "down")} | {"value": np.zeros(4)}
    lower = dict(zip(("low_first", "low_tail", "low_edge"), metric.structure.down, strict=True))
    lower |= {"walk": np.zeros(3 * n, "i4"), "used": np.zeros(3 * n, "i4")}
    lower |= {"place": np.zeros(n, "i4"), "count": np.zeros(4, "i8")}
    lower |= {
        "stack": np.zeros((40, 2), "i8"),
        "sides": np.zeros((2 * len(shared["head"]), 3), "i4"),
    }
    shared["both"] = 2
    given = (MIN_PLUS, metric.plan)
    for i, j in itertools.permutations(range(0, n, 4), 2):
        ends = np.array([[i, j], [j, i], [i, i], [3, j]])
        shared["ends"] = metric.structure.rank[ends].astype("i8")
        alone = dict.fromkeys(lower)
        found = both(kernels.query, *given, **shared, **alone, room=n, size=n, begin=0, end=4)
        assert found["value"].tolist() == list(itertools.starmap(net.distance, ends.tolist()))
        if not core:
            for room, begin in ((n, 0), (n, 2), (1, 0)):
                sizes = {"room": room, "size": 3 * n, "begin": begin, "end": 4}
                both(kernels.query, *given, **shared, **lower, **sizes)
                both(kernels.query, *given, **shared, **lower | {"used": None}, **sizes)
    if core:
        return
    depth, position = metric.structure.depth, metric.structure.rank[[0, 4, 8, 4, 1]]
    edges = {name: shared[name] for name in ("first", "parent", "head", "out", "back")}
    found = both(
        kernels.table, *given, **edges, low=0, high=5, begin=0, end=3, sources=3, targets=2,
        eliminated=n, depth=depth, position=position.astype("i8"), count=np.zeros(5, "i8"),
        chain=np.zeros((5, depth), "i4"), row=np.zeros((5, depth)), label=np.zeros(n),
        d=np.zeros((3, 2)),
    )  # fmt: skip
    np.testing.assert_array_equal(found["d"], net.distances()[np.ix_([0, 4, 8], [4, 1])])
