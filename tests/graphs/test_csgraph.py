"""The stand-in for scipy.sparse.csgraph: SciPy's own tests, and random graphs against SciPy."""

import re
import warnings

import numpy as np
import processes
import pytest
from numpy.testing import assert_array_equal
from walks import check_paths

import semiring_mm as sm

scipy = pytest.importorskip("scipy")
import scipy.sparse.csgraph as theirs  # noqa: E402
from csgraph_stand_in import force  # noqa: E402

from semiring_mm import csgraph as ours  # noqa: E402
from semiring_mm.graphs import contraction  # noqa: E402

inf, nan = np.inf, np.nan
NAMES = ("shortest_path", "floyd_warshall", "johnson", "bellman_ford", "dijkstra")


@pytest.fixture(params=["engine", "search", "at once"], autouse=True)
def way(request, monkeypatch):
    """Every test runs all ways that a graph may take, whatever is estimated to be the fastest."""
    force(request.param, monkeypatch.setattr)
    return request.param


def random_graph(rng, n=23, density=0.2, lowest=1):
    """Small integers, so that any order of additions gives the same."""
    weights = rng.integers(lowest, 10, (n, n)).astype(float)
    return np.where(rng.random((n, n)) < density, weights, 0)


def explicit(weights):
    """CSR in which zeros are edges and inf is none."""
    row, col = np.nonzero(np.isfinite(weights))
    return scipy.sparse.csr_array((weights[row, col], (row, col)), weights.shape)


def reference(weights, directed=True):
    """Floyd and Warshall on a matrix with inf where there is no edge."""
    d = np.minimum(weights, weights.T) if not directed else weights.copy()
    d[np.diag_indices_from(d)] = np.minimum(d.diagonal(), 0)
    for k in range(len(d)):
        d = np.minimum(d, d[:, k : k + 1] + d[k])
    assert (d.diagonal() == 0).all(), "the test's graph has a negative cycle"
    return d


KINDS = {
    "float64": np.asarray,
    "float32": lambda g: g.astype("f4"),
    "integers": lambda g: g.astype("i4"),
    "lists": lambda g: g.tolist(),
    "matrix": lambda g: g.view(np.matrix),
    "Fortran": lambda g: g.T.copy().T,
    "no edges": lambda g: np.where(g == 0, np.resize([inf, nan, 0, -inf], g.shape), g),
    "masked": lambda g: np.ma.masked_equal(g, 0),
    "CSR": scipy.sparse.csr_array,
    "CSC": scipy.sparse.csc_array,
    "COO": scipy.sparse.coo_array,
    "LIL": scipy.sparse.lil_array,
    "old sparse matrix": scipy.sparse.csr_matrix,
    "64-bit indices": lambda g: _wide(scipy.sparse.csr_array(g)),
}  # fmt: skip
#: Where SciPy raises an error or, in Fortran's order, gives the matrix back as it came.
FAILS = {
    "lists": "shortest_path",
    "COO": "shortest_path floyd_warshall",  # the first where it takes the second
    "Fortran": "shortest_path floyd_warshall",
}


def _wide(g):
    indices, indptr = g.indices.astype("i8"), g.indptr.astype("i8")
    return scipy.sparse.csr_array((g.data, indices, indptr), g.shape)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("unweighted", [True, False])
def test_all_pairs_of_every_kind_of_graph(kind, directed, unweighted):
    g = random_graph(np.random.default_rng(1))
    graph = KINDS[kind](g)
    w = np.where(g == 0, inf, 1 if unweighted else g)
    expected = reference(w, directed)
    for name in NAMES:
        options = {"directed": directed, "unweighted": unweighted}
        if name not in FAILS.get(kind, ""):
            assert_array_equal(getattr(theirs, name)(graph, **options), expected)
        got = getattr(ours, name)(graph, **options)
        assert_array_equal(got, expected)
        assert type(got) is np.ndarray
        assert got.dtype == np.float64
        d, p = getattr(ours, name)(graph, return_predecessors=True, **options)
        assert_array_equal(d, expected)
        check_paths(w if directed else np.minimum(w, w.T), d, p)


@pytest.mark.parametrize("method", ["auto", "FW", "D", "BF", "J"])
def test_every_method_gives_the_same(method):
    g = random_graph(np.random.default_rng(2))
    assert_array_equal(ours.shortest_path(g, method), theirs.shortest_path(g, method))


@pytest.mark.parametrize("indices", [3, -1, [5], [4, 0, 4], [[1, 2], [3, -2]], [], np.int64(2)])
@pytest.mark.parametrize("directed", [True, False])
def test_paths_from_some_nodes(indices, directed):
    g = random_graph(np.random.default_rng(3))
    w = np.where(g == 0, inf, g)
    for name in ("shortest_path", "johnson", "bellman_ford", "dijkstra"):
        options = {"directed": directed, "indices": indices}
        expected = getattr(theirs, name)(g, **options)
        assert_array_equal(getattr(ours, name)(g, **options), expected)
        d, p = getattr(ours, name)(g, return_predecessors=True, **options)
        assert_array_equal(d, expected)
        assert p.shape == d.shape
        starts = np.array(indices, int).ravel() % len(g)
        flat = (x.reshape(len(starts), len(g)) for x in (d, p))
        check_paths(w if directed else np.minimum(w, w.T), *flat, sources=starts)


@pytest.mark.parametrize("limit", [0, 3, 7.5, inf])
@pytest.mark.parametrize("indices", [None, 2, [3, 1]])
@pytest.mark.parametrize("directed", [True, False])
def test_dijkstra_within_a_limit(limit, indices, directed):
    g = random_graph(np.random.default_rng(4))
    options = {"limit": limit, "indices": indices, "directed": directed}
    d, p = ours.dijkstra(g, return_predecessors=True, **options)
    assert_array_equal(d, theirs.dijkstra(g, **options))
    assert_array_equal(d, ours.dijkstra(g, **options))
    assert_array_equal(p >= 0, (d < inf) & (d > 0))


@pytest.mark.parametrize("indices", [None, 2, [3, 1, 3], [[0, 5]]])
def test_dijkstra_from_the_nearest_source(indices):
    g = random_graph(np.random.default_rng(5), density=0.1)
    options = {"indices": indices, "min_only": True, "return_predecessors": True}
    for got, expected in zip(
        ours.dijkstra(g, **options), theirs.dijkstra(g, **options), strict=True
    ):
        assert_array_equal(got, expected)
        assert got.dtype == expected.dtype


# Negative weights


def negative_graph(rng, n=19):
    """No cycle is negative: an edge from u to v has what a potential loses, and something more."""
    h = rng.integers(0, 12, n).astype(float)
    w = h[:, None] - h + rng.integers(0, 6, (n, n))
    w[rng.random((n, n)) < 0.75] = inf
    return w


@pytest.mark.parametrize("seed", range(4))
def test_negative_weights_in_every_function(seed):
    w = negative_graph(np.random.default_rng(seed))
    expected = reference(w)
    assert (w < 0).any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in NAMES:
            function = getattr(ours, name)
            d, p = function(explicit(w), return_predecessors=True)
            assert_array_equal(d, expected)
            check_paths(w, d, p)
            if name != "floyd_warshall":
                assert_array_equal(function(explicit(w), indices=[3, 0]), expected[[3, 0]])
    assert_array_equal(
        ours.dijkstra(explicit(w), limit=2), np.where(expected > 2, inf, expected)
    )  # fmt: skip


@pytest.mark.parametrize("indices", [[2], [7, 3, 0]])
@pytest.mark.parametrize("limit", [inf, 1])
def test_the_nearest_source_with_negative_weights(indices, limit):
    w = negative_graph(np.random.default_rng(6))
    best = reference(w)[indices].min(axis=0)
    best[best > limit] = inf
    d, p, source = ours.dijkstra(
        explicit(w), indices=indices, min_only=True, limit=limit, return_predecessors=True
    )
    assert_array_equal(d, best)
    for node in np.flatnonzero(d < inf):
        end, length = node, 0.0
        while p[node] >= 0:
            length += w[p[node], node]
            node = p[node]
        assert node == source[end]
        assert node in indices
        assert length == d[end]
    assert_array_equal(source[d == inf], -9999)
    assert_array_equal(ours.dijkstra(explicit(w), indices=indices, min_only=True, limit=limit), d)


CYCLE = scipy.sparse.csr_array(
    np.array([[0, 2, 0, 0], [0, 0, 1, 0], [0, -4, 0, 0], [0, 0, 1.0, 0]])
)


@pytest.mark.parametrize("name", NAMES)
def test_a_negative_cycle_is_both_libraries_error_and_named(name):
    for error in (theirs.NegativeCycleError, ours.NegativeCycleError, sm.NegativeCycleError):
        with pytest.raises(error, match="negative weight -3") as caught:
            getattr(ours, name)(CYCLE)
    assert sorted(caught.value.cycle) == [1, 2]
    assert caught.value.weight == -3


def test_an_edge_of_negative_weight_is_a_cycle_if_undirected():
    graph = scipy.sparse.csr_array(np.array([[0, 1.0, 0], [0, 0, -2], [0, 0, 0]]))
    for options in ({}, {"indices": [0, 2], "min_only": True}, {"indices": 0, "limit": 3}):
        with pytest.raises(theirs.NegativeCycleError, match="negative weight -4") as caught:
            ours.dijkstra(graph, directed=False, **options)
        assert sorted(caught.value.cycle) == [1, 2]


def test_a_negative_cycle_that_no_source_reaches():
    graph = scipy.sparse.block_diag([[[0, 1.0], [0, 0]], CYCLE], "csr")
    for function in (ours.bellman_ford, ours.dijkstra):
        assert_array_equal(function(graph, indices=0), [0, 1, inf, inf, inf, inf])
        assert_array_equal(function(graph, indices=[1]), [[inf, 0, inf, inf, inf, inf]])
        with pytest.raises(theirs.NegativeCycleError):
            function(graph, indices=[0, 5])
    assert_array_equal(theirs.bellman_ford(graph, indices=0), ours.bellman_ford(graph, indices=0))
    for function in (ours.johnson, ours.shortest_path, theirs.johnson):
        with pytest.raises(theirs.NegativeCycleError):
            function(graph, indices=0)


def test_a_cycle_that_is_negative_by_rounding_only():
    """0.1 + 0.7 - 0.8 is below zero in floating point; SciPy's johnson never returns from it."""
    assert 0.1 + 0.7 - 0.8 < 0
    graph = scipy.sparse.csr_array(np.array([[0, 0.1, 0], [0, 0, 0.7], [-0.8, 0, 0]]))
    np.testing.assert_allclose(ours.johnson(graph)[0], [0, 0.1, 0.8], rtol=1e-15)


# Where SciPy errs


def test_masked_edges_of_weight_zero_are_edges():
    graph = np.ma.masked_invalid([[inf, 0, 3], [inf, inf, 1], [inf, inf, inf]])
    expected = [[0, 0, 1], [inf, 0, 1], [inf, inf, 0]]
    for name in NAMES:
        assert_array_equal(getattr(ours, name)(graph), expected)
    assert_array_equal(theirs.dijkstra(graph), expected)
    assert theirs.floyd_warshall(graph)[0, 1] == inf, "mended in SciPy: docs/scipy.md says else"


def test_a_negative_loop_is_a_negative_cycle():
    graph = scipy.sparse.csr_array(np.array([[-1.0, 1], [1, 0]]))
    for name in NAMES:
        with pytest.raises(theirs.NegativeCycleError):
            getattr(ours, name)(graph)
    theirs.floyd_warshall(graph)  # raises nothing: docs/scipy.md says so


# What is an edge


def test_entries_stored_twice():
    """They add up in COO, and are parallel edges in CSR, as in SciPy."""
    data, row, col = [1.0, 2, 5], [0, 0, 1], [1, 1, 2]
    coo = scipy.sparse.coo_array((data, (row, col)), (3, 3))
    csr = scipy.sparse.csr_array((data, col, [0, 2, 3, 3]), (3, 3))
    for graph, first in ((coo, 3), (csr, 1)):
        for name in NAMES:
            got = getattr(ours, name)(graph, return_predecessors=True)
            assert_array_equal(got[0][0], [0, first, first + 5])
            if graph is csr or name not in FAILS["COO"]:
                expected = getattr(theirs, name)(graph, return_predecessors=True)
                assert_array_equal(got[0], expected[0])
                assert_array_equal(got[1], expected[1])


def test_zeros_stored_are_edges_and_nan_and_inf_are_none():
    data, row, col = [0.0, nan, inf, 2], [0, 0, 1, 2], [1, 2, 2, 0]
    graph = scipy.sparse.csr_array((data, (row, col)), (3, 3))
    expected = [[0, 0, inf], [inf, 0, inf], [2, 2, 0]]
    for name in NAMES:
        d, p = getattr(ours, name)(graph, return_predecessors=True)
        assert_array_equal(d, expected)
        assert_array_equal(p, [[-9999, 0, -9999], [-9999, -9999, -9999], [2, 0, -9999]])
    masked = np.ma.MaskedArray([[0, nan], [inf, 5]], [[True, False], [False, False]])
    assert_array_equal(ours.dijkstra(masked), [[0, inf], [inf, 0]])


def test_an_array_of_the_package_sparse_is_asked_for_scipys():
    class Array:
        def to_scipy_sparse(self, accept_fv):
            assert any(x == 0 for x in accept_fv)
            return scipy.sparse.csc_array([[0, 2.0], [0, 0]])

    assert_array_equal(ours.dijkstra(Array()), [[0, 2], [inf, 0]])


def test_overwrite_uses_the_memory_given_and_nothing_else_does(way):
    g = random_graph(np.random.default_rng(8))
    expected = theirs.floyd_warshall(g)
    for name in ("shortest_path", "floyd_warshall"):
        x = g.copy()
        assert_array_equal(getattr(ours, name)(x), expected)
        assert_array_equal(x, g)
        got = getattr(ours, name)(x, overwrite=True)
        assert_array_equal(got, expected)
        if way == "engine":  # a search gives a matrix of its own
            assert np.shares_memory(got, x)
        x.flags.writeable = False
        assert_array_equal(getattr(ours, name)(np.abs(x)), getattr(theirs, name)(np.abs(x)))
    for kind in ("CSR", "float32"):
        x = KINDS[kind](g)
        assert_array_equal(ours.floyd_warshall(x, overwrite=True), expected)
        assert_array_equal(x.toarray() if kind == "CSR" else x, g)
    csr = explicit(np.where(g == 0, inf, g))
    csr.data.flags.writeable = False  # as workers of joblib get it
    assert_array_equal(
        ours.shortest_path(csr, unweighted=True), theirs.shortest_path(g, unweighted=True)
    )


@pytest.mark.parametrize("n", [0, 1])
def test_almost_no_graph(n):
    for graph in (np.zeros((n, n)), scipy.sparse.csr_array((n, n))):
        d, p = ours.shortest_path(graph, return_predecessors=True)
        assert_array_equal(d, np.zeros((n, n)))
        assert_array_equal(p, np.full((n, n), -9999))


def test_bad_input_is_refused_at_the_door():
    g = random_graph(np.random.default_rng(9))
    for name, arguments, message in (
        (
            "shortest_path",
            {"method": "SPAM"},
            "method is 'auto', 'FW', 'D', 'BF' or 'J', got 'SPAM'",
        ),
        ("shortest_path", {"method": "FW", "indices": [0]}, "takes no indices"),
        ("dijkstra", {"indices": [0, 23]}, "no node 23 among 23"),
        ("johnson", {"indices": -24}, "no node -24 among 23"),
        ("dijkstra", {"limit": -1}, "limit must be at least 0, got -1"),
        ("dijkstra", {"limit": nan}, "limit must be at least 0, got nan"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            getattr(ours, name)(g, **arguments)
    for graph in (g[:3], g[0], scipy.sparse.csr_array(g[:3])):
        with pytest.raises(ValueError, match="square"):
            ours.shortest_path(graph)
    with pytest.raises(ValueError, match="a weight is -inf"):
        ours.dijkstra(scipy.sparse.csr_array([[0, -inf], [0, 0]]))


# The choice


@pytest.mark.usefixtures("two_threads")
def test_the_way_is_chosen_by_cost(monkeypatch):
    monkeypatch.undo()  # of the fixture
    taken = []

    def noted(name):
        function = getattr(ours, name)

        def call(*arguments, **options):
            taken.append(name)
            return function(*arguments, **options)

        return call

    for name in ("distances", "plan", "search_lists"):
        monkeypatch.setattr(ours, name, noted(name))
    rng = np.random.default_rng(10)
    ours.shortest_path(1 + rng.random((300, 300)))
    ours.shortest_path(random_graph(rng, 2000, 0.01), indices=0)
    ours.shortest_path(np.eye(5))
    assert taken == ["distances", "search_lists", "search_lists"]


@pytest.mark.usefixtures("two_threads")
def test_sparse_graphs_are_eliminated_where_that_is_faster(monkeypatch):
    """Of large graphs neither all n³ steps nor searches, if their separators are small."""
    monkeypatch.undo()  # of the fixture
    short, long = (scipy.sparse.diags_array([1.0], offsets=[1], shape=(n, n)) for n in (2, 512))
    grid = scipy.sparse.kronsum(short, long).tocsr()
    rng = np.random.default_rng(11)
    grid.data = rng.integers(1, 9, grid.nnz).astype(float)
    monkeypatch.setattr(ours, "distances", None)
    monkeypatch.setattr(contraction, "search", None)
    d = ours.shortest_path(grid, directed=False)
    assert_array_equal(d, theirs.dijkstra(grid, directed=False))


# SciPy's own


def test_all_other_names_are_scipys():
    assert set(ours.__all__) == set(theirs.__all__)
    for name in theirs.__all__:
        assert (getattr(ours, name) is getattr(theirs, name)) == (name not in NAMES), name


def test_signatures_are_scipys():
    import inspect

    for name in NAMES:
        mine = inspect.signature(getattr(ours, name)).parameters.values()
        scipys = inspect.signature(getattr(theirs, name)).parameters.values()
        assert [(p.name, p.default) for p in mine] == [(p.name, p.default) for p in scipys]


def test_scipys_tests_of_these_functions(way, tmp_path):
    pytest.importorskip("scipy.sparse.csgraph.tests.test_shortest_path")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = processes.run(
        "-m", "pytest", "-q", "-p", "csgraph_stand_in", "-p", "no:cacheprovider",
        "-c", "pytest.ini", "--pyargs", "scipy.sparse.csgraph.tests.test_shortest_path",
        "scipy.sparse.csgraph.tests.test_conversions", cwd=tmp_path, CSGRAPH_WAY=way,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed, done.stdout
    assert int(passed[1]) >= 75, done.stdout  # SciPy 1.15 has 75, 1.17 has 93


def test_scipys_tests_see_the_functions_replaced(tmp_path):
    (tmp_path / "look.py").write_text(
        "import csgraph_stand_in\n"
        "from scipy.sparse.csgraph.tests import test_shortest_path as suite\n"
        "for name in ('shortest_path', 'dijkstra', 'johnson', 'bellman_ford'):\n"
        "    assert getattr(suite, name).__module__ == 'semiring_mm.csgraph', name\n"
    )
    done = processes.run("look.py", cwd=tmp_path, CSGRAPH_WAY="engine")
    assert done.returncode == 0, done.stderr


def test_without_scipy_the_import_says_what_to_install():
    script = "import sys; sys.modules['scipy'] = None; import semiring_mm.csgraph"
    done = processes.run("-c", script)
    assert "ImportError: semiring_mm.csgraph stands in for scipy.sparse.csgraph" in done.stderr
    assert "semiring-mm[scipy]" in done.stderr
