"""Sparse elimination against SciPy's Dijkstra, and its trees walked edge by edge."""

import itertools

import numpy as np
import pytest
from metrics import grid
from optional import csgraph, nx, sp
from walks import check_paths

import semiring_mm as sm
from semiring_mm.closures.trees import has_ties

FLOATS = [np.float32, np.float64]


def matrix(n, row, col, weight):
    """CSR with explicit zeros, the shortest of parallel edges, and no loops."""
    order = np.lexsort((weight, col, row))
    row, col, weight = np.asarray(row)[order], np.asarray(col)[order], np.asarray(weight)[order]
    kept = np.ones(len(row), bool)
    kept[1:] = (np.diff(row) != 0) | (np.diff(col) != 0)
    kept &= row != col
    return sp.csr_array((weight[kept], (row[kept], col[kept])), shape=(n, n))


def random_graph(n, degree, high=20, seed=0, low=1):
    rng = np.random.default_rng([n, degree, seed])
    m = n * degree // 2
    row, col = rng.integers(0, n, m), rng.integers(0, n, m)
    return matrix(n, row, col, rng.integers(low, high, m).astype(float))


def undirected(graph):
    edges = nx.convert_node_labels_to_integers(graph).edges
    u, v = np.array(edges, int).reshape(-1, 2).T
    rng = np.random.default_rng(len(u))
    both = np.concatenate([u, v]), np.concatenate([v, u])
    return matrix(len(graph), *both, rng.integers(1, 9, 2 * len(u)).astype(float))


GRAPHS = {
    "cubic": undirected(nx.random_regular_graph(3, 200, seed=1)),
    "grid": undirected(nx.grid_2d_graph(13, 17)),
    "tree": undirected(nx.random_labeled_tree(150, seed=2)),
    "star": undirected(nx.star_graph(70)),
    "path": undirected(nx.path_graph(90)),
    "complete": undirected(nx.complete_graph(40)),
    "ladder": undirected(nx.circular_ladder_graph(50)),
    "islands": undirected(nx.disjoint_union_all([nx.cycle_graph(k) for k in range(3, 15)])),
    "no edges": sp.csr_array((33, 33)),
    "sparse": random_graph(300, 3),
    "directed": random_graph(130, 8),
}


def walk(graph, distances, trees, sources=None):
    """Every path of a predecessor matrix walks edges of the graph and is as long as it is said."""
    n = graph.shape[0]
    weight = {
        (int(u), int(v)): w for u, v, w in zip(*graph.tocoo().coords, graph.data, strict=True)
    }
    for i, source in enumerate(range(n) if sources is None else sources):
        assert trees[i, source] == -9999
        assert ((trees[i] == -9999) == (np.isinf(distances[i]) | (np.arange(n) == source))).all()
        length = {source: 0.0}
        for end in np.flatnonzero(trees[i] >= 0).tolist():
            path = [end]
            while path[-1] not in length:
                path.append(int(trees[i, path[-1]]))
                assert len(path) <= n, "the predecessors close a ring"
            for after, before in zip(path[-2::-1], path[::-1], strict=False):
                length[after] = length[before] + weight[before, after]
        ends = list(length)
        np.testing.assert_allclose(distances[i, ends], list(length.values()), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", GRAPHS)
def test_equals_dijkstra(name, dtype):
    graph = GRAPHS[name].astype(dtype)
    expected = csgraph.dijkstra(graph)
    distances = sm.apsp(graph, method="sparse")
    assert distances.dtype == dtype
    np.testing.assert_array_equal(distances, expected)
    distances, trees = sm.apsp(graph, method="sparse", return_predecessors=True)
    np.testing.assert_array_equal(distances, expected)
    walk(graph, distances, trees)


@pytest.mark.parametrize("n", [1, 2, 3, 15, 16, 17, 31, 32, 33, 64, 65])
@pytest.mark.parametrize("dtype", FLOATS)
def test_edges_of_vectors_and_chunks(n, dtype):
    graph = random_graph(n, 5).astype(dtype)
    distances, trees = sm.apsp(graph, method="sparse", return_predecessors=True)
    np.testing.assert_array_equal(distances, csgraph.dijkstra(graph))
    walk(graph, distances, trees)


def test_no_nodes():
    assert sm.apsp(np.empty((0, 0)), method="sparse").shape == (0, 0)


@pytest.mark.parametrize("sources", [[0], [5, 5, 2], range(0, 130, 3), []])
def test_some_sources(sources):
    graph = GRAPHS["directed"]
    distances, trees = sm.apsp(graph, method="sparse", sources=sources, return_predecessors=True)
    np.testing.assert_array_equal(distances, csgraph.dijkstra(graph)[list(sources)])
    walk(graph, distances, trees, sources)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("scale", [1, 0.1])
def test_ties_and_rings_of_weight_zero(seed, scale):
    graph = random_graph(90, 6, high=2, low=0, seed=seed)
    graph.data *= scale
    both = matrix(90, *np.hstack([graph.tocoo().coords, graph.tocoo().coords[::-1]]),
                  np.tile(graph.data, 2))  # fmt: skip
    for dtype in FLOATS:
        given = both.astype(dtype)
        distances, trees = sm.apsp(given, method="sparse", return_predecessors=True)
        np.testing.assert_allclose(distances, csgraph.dijkstra(given), rtol=1e-6)
        walk(given, distances, trees)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("scale", [1, 0.1])
def test_negative_weights(seed, scale):
    graph = random_graph(120, 5, low=0, high=4, seed=seed).tocoo()
    potential = np.random.default_rng(seed).integers(-20, 20, 120)
    row, col = graph.coords
    length = (graph.data + potential[row] - potential[col]) * scale
    graph = sp.csr_array((length, (row, col)), shape=(120, 120))
    distances, trees = sm.apsp(graph, method="sparse", return_predecessors=True)
    expected = sm.apsp(sm.adjacency(graph)[0], method="floyd_warshall")
    np.testing.assert_allclose(distances, expected, atol=1e-12)
    walk(graph, distances, trees)


@pytest.mark.parametrize("cycle", [[3], [3, 8], [0, 5, 9, 2, 7]])
def test_negative_cycle(cycle):
    graph = nx.DiGraph()
    graph.add_weighted_edges_from((u, v, 2) for u, v in itertools.pairwise(range(40)))
    for u, v in itertools.pairwise([*cycle, cycle[0]]):
        graph.add_edge(u, v, weight=-1)
    with pytest.raises(sm.NegativeCycleError) as caught:
        sm.apsp(graph, method="sparse")
    found = caught.value.cycle
    assert caught.value.weight == sum(
        graph.edges[u, v]["weight"] for u, v in itertools.pairwise([*found, found[0]])
    )
    assert caught.value.weight < 0


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "f2", "f4", "f8"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_dense_matrices(dtype, overwrite):
    graph = GRAPHS["islands"].toarray()
    missing = np.inf if dtype[0] == "f" else np.iinfo(dtype).max
    dense = graph.astype(dtype)
    dense[graph == 0] = missing
    expected = csgraph.dijkstra(GRAPHS["islands"])
    given = dense.copy()
    distances, trees = sm.apsp(
        given, method="sparse", overwrite=overwrite, return_predecessors=True
    )
    assert distances.dtype == dense.dtype
    assert (distances is given) == overwrite
    np.testing.assert_array_equal(np.where(distances == missing, np.inf, distances), expected)
    walk(GRAPHS["islands"], expected, trees)
    fortran = sm.apsp(np.asfortranarray(dense), method="sparse")
    np.testing.assert_array_equal(fortran, distances)


def test_what_is_refused():
    graph = GRAPHS["star"]
    with pytest.raises(ValueError, match="max_hops"):
        sm.apsp(graph, method="sparse", max_hops=2)
    with pytest.raises(ValueError, match="-inf"):
        sm.apsp(sp.csr_array([[0, -np.inf], [0, 0]]), method="sparse")
    with pytest.raises(ValueError, match="NaN"):
        sm.apsp(sp.csr_array([[0, np.nan], [0, 0]]), method="sparse")


@pytest.mark.parametrize("sources", [[0], [1, 2], None])
@pytest.mark.parametrize("n", [5, 150])
def test_sums_that_leave_the_range_are_told(n, sources):
    """Potentials of -1e308 and more would be infinite, and hide it."""
    ring = nx.cycle_graph(n, nx.DiGraph)
    nx.set_edge_attributes(ring, -1e308, "weight")
    ring[n - 1][0]["weight"] = 1e308
    for method in ("auto", "sparse"):
        with pytest.raises(ValueError, match="leave the range of float64"):
            sm.apsp(ring, sources=sources, method=method)


def test_progress_rises_to_the_end():
    seen = []
    sm.apsp(
        GRAPHS["cubic"], method="sparse", progress=lambda done, total: seen.append((done, total))
    )
    done = [x for x, _ in seen]
    assert done == sorted(done)
    assert seen[-1][0] == seen[-1][1] == 200.0**2


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_what_is_out_of_reach_has_no_predecessor_beside_negative_integers(dtype):
    """An edge below zero would make the sentinel for no path look shorter."""
    none = np.iinfo(dtype).max
    small = np.array([[0, -1, none], [none, 0, none], [none, none, 0]], dtype)
    rng = np.random.default_rng(1)
    start, end = np.sort(rng.integers(0, 500, (2, 1000)), axis=0)
    large = np.full((500, 500), none, dtype)
    large[start, end] = rng.integers(-1, 2, 1000) if dtype == np.int8 else rng.integers(-5, 5, 1000)
    np.fill_diagonal(large, 0)  # acyclic
    for w in (small, large):
        d, p = sm.apsp(w, method="sparse", return_predecessors=True)
        check_paths(w, d, p, zero=none)
        np.testing.assert_array_equal(d, sm.apsp(w, method="floyd_warshall"))


@pytest.mark.parametrize("small", [1e-20, -0.0, 0.0, 2e-15])
def test_trees_where_a_step_back_is_not_strictly_nearer(small):
    """A small weight vanishes beside another, or nearly."""
    rng = np.random.default_rng(3)
    w = np.full((60, 60), np.inf)
    for path in (rng.permutation(60), rng.permutation(60)):
        w[path[:-1], path[1:]] = w[path[1:], path[:-1]] = rng.choice([small, 1.0], 59, p=[0.7, 0.3])
    for dtype, largest in itertools.product(FLOATS, (1.0, 7.0)):
        x = (w * largest).astype(dtype)
        x[0, 30] = 40
        d, p = sm.apsp(x, method="sparse", return_predecessors=True)
        check_paths(x, d, p, tol=60 * np.finfo(dtype).eps)


@pytest.mark.parametrize(
    ("dtype", "weights"), [("i4", [0, 1]), ("f4", [1e-9, 1]), ("f8", [1e-20, 1e-3, 5])]
)
def test_trees_of_grids_where_most_paths_tie(dtype, weights):
    """Weights that are 0, or vanish beside others, leave nodes equally far: no ring may close."""
    for seed in range(4):
        n, row, col = grid(9)
        w = np.random.default_rng(seed).choice(np.array(weights, dtype), len(row))
        graph = matrix(n, np.append(row, col), np.append(col, row), np.tile(w, 2))
        distances, trees = sm.apsp(graph, method="sparse", return_predecessors=True)
        walk(graph, distances, trees)


@pytest.mark.parametrize(
    ("dtype", "least", "ties"),
    [("i4", 0, True), ("i8", 1, False), ("f4", 1e-6, True), ("f8", 1e-6, False), ("f8", 0, True)],
)
def test_which_weights_may_tie(dtype, least, ties):
    s, dtype = sm.semirings["min_plus"], np.dtype(dtype)
    assert has_ties(s, 4, dtype, dtype.type(least), dtype.type(5)) == ties
    assert not has_ties(s, 4, dtype, np.inf, -np.inf)  # of no edges


@pytest.mark.parametrize("dtype", FLOATS)
def test_rings_of_weight_zero_that_round_below_zero(dtype):
    """Differences of heights: each way back sums up to 0, but for rounding."""
    n, row, col = grid(12)
    height = np.random.default_rng(6).random(n)
    row, col = np.append(row, col), np.append(col, row)
    graph = matrix(n, row, col, (height[col] - height[row]).astype(dtype))
    found = sm.apsp(graph, method="sparse")
    assert found.dtype == dtype
    expected = height - height[:, np.newaxis]
    np.testing.assert_allclose(found, expected, atol=4 * n * np.finfo(dtype).eps)


@pytest.mark.parametrize("semiring", ["max_min", "min_max", "max_times", "lor_land"])
def test_closures_from_some_nodes(semiring, monkeypatch):
    """Rows of the closure; of a graph of edges by a search or sweeps, and without its matrix."""
    graph = GRAPHS["directed"].copy()
    graph.data = (graph.data + 1) / 21
    sources = [5, 0, 5, 77]
    edges = sm.files.Graph(
        range(graph.shape[0]), *(x.astype(int) for x in graph.tocoo().coords), graph.data, True
    )
    whole = sm.closure(edges, semiring)
    dense = sm.closure(sm.adjacency(edges, semiring)[0], semiring, sources=sources)
    np.testing.assert_allclose(dense, whole[sources], rtol=1e-14)
    monkeypatch.setattr("semiring_mm.graphs.choice.SPARSE_FROM", 1)
    monkeypatch.setattr("semiring_mm.graphs.choice.adjacency", None)
    d, p = sm.closure(edges, semiring, sources=sources, return_predecessors=True)
    assert d.dtype == whole.dtype
    np.testing.assert_allclose(d, whole[sources], rtol=1e-14)
    there = whole[sources] != sm.semirings[semiring].identities(d.dtype)[0]
    there[np.arange(4), sources] = False
    np.testing.assert_array_equal(p >= 0, there)
