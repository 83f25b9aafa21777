"""Where and how a graph's paths are found: the decision, and the search that it may choose."""

import math

import numpy as np
import pytest
import walks
from numpy.testing import assert_allclose, assert_array_equal

import semiring_mm as sm
from semiring_mm.graphs import choice
from semiring_mm.graphs.choice import Choice, Machine, Request, choose, count_edges

GB = 1 << 30
CPU, BARE = Machine(threads=2, scipy=True), Machine(threads=2)
GPU = Machine(gpu=64 * GB, threads=2, scipy=True)
SMALL_GPU = Machine(gpu=1 * GB, threads=2, scipy=True)
DENSE = Request("min_plus", 10_000, 8)
RANDOM = Request("min_plus", 8_000, 8, edges=32_000)  # sparse elimination fills it
ROADS = Request("min_plus", 3_000, 8, edges=8_000)


def asks(request, **changes):
    return choice.replace(request, **changes)


@pytest.mark.parametrize(
    ("request_", "machine", "device", "tiles", "method"),
    [
        (DENSE, CPU, None, False, "elimination"),
        (DENSE, GPU, "cuda", False, "elimination"),
        (asks(DENSE, n=2047), GPU, None, False, "elimination"),
        (asks(DENSE, host=False), GPU, None, False, "elimination"),
        (asks(DENSE, device="cpu"), GPU, "cpu", False, "elimination"),
        (asks(DENSE, device="cuda:1"), GPU, "cuda:1", False, "elimination"),
        (
            asks(DENSE, device="cuda"),
            CPU,
            "cuda",
            False,
            "elimination",
        ),  # and an error
        (asks(DENSE, semiring="max_min"), GPU, "cuda", False, "elimination"),
        (asks(DENSE, method="squaring"), GPU, "cuda", False, "squaring"),
        (asks(DENSE, hops=True), GPU, "cuda", False, "hops"),
        (asks(DENSE, sources=3), GPU, None, False, "sources"),
        (asks(DENSE, sources=3, hops=True), CPU, None, False, "sources"),
        (asks(DENSE, method="sparse"), GPU, None, False, "elimination"),
        (RANDOM, GPU, None, False, "elimination"),  # stays where a sparse method may be faster
        (asks(RANDOM, semiring="min_max"), GPU, "cuda", False, "elimination"),
        # what a device cannot hold streams through it, or stays on the host
        (DENSE, SMALL_GPU, "cuda", True, "elimination"),
        (asks(DENSE, n=4_000), SMALL_GPU, "cuda", False, "elimination"),
        (asks(DENSE, n=4_000, predecessors=True), SMALL_GPU, "cuda", False, "elimination"),
        (asks(DENSE, n=7_000, itemsize=4), SMALL_GPU, "cuda", False, "elimination"),
        (asks(DENSE, n=7_000), SMALL_GPU, "cuda", False, "elimination"),
        (asks(DENSE, n=7_000, predecessors=True), SMALL_GPU, "cuda", True, "elimination"),
        (asks(DENSE, overwrite=True), SMALL_GPU, None, False, "elimination"),
        (asks(DENSE, method="squaring"), SMALL_GPU, None, False, "squaring"),
        (asks(DENSE, device="cuda"), SMALL_GPU, "cuda", True, "elimination"),
        (asks(DENSE, device="cuda", hops=True), SMALL_GPU, "cuda", False, "hops"),
        (asks(DENSE, tiles=True), GPU, None, True, "elimination"),
        (asks(DENSE, tiles=True, device="cuda"), GPU, "cuda", True, "elimination"),
    ],
)
def test_where(request_, machine, device, tiles, method):
    found = choose(request_, machine)
    assert (found.device, found.tiles, found.method) == (device, tiles, method)


@pytest.mark.parametrize(
    ("request_", "machine", "sparse", "search"),
    [
        (DENSE, CPU, False, False),
        (asks(DENSE, n=400, edges=400), CPU, False, False),
        (asks(DENSE, edges=170_000), CPU, False, False),
        (asks(DENSE, method="sparse"), CPU, math.inf, False),
        (RANDOM, CPU, True, True),
        (RANDOM, BARE, 8_000.0**3, False),  # without SciPy
        (asks(RANDOM, n=5_000, edges=20_000), CPU, 5_000.0**3, False),  # a dense run is faster
        (asks(RANDOM, n=5_000, edges=20_000, predecessors=True), CPU, True, True),
        (asks(RANDOM, n=20_000, itemsize=4), CPU, True, True),
        (asks(RANDOM, itemsize=4), CPU, 8_000.0**3, False),
        (asks(RANDOM, undirected=True), CPU, 8_000.0**3, False),  # half the pairs
        (RANDOM, Machine(threads=16, scipy=True), 8_000.0**3, False),  # which searches do not use
        (ROADS, CPU, 3_000.0**3, False),
        (asks(ROADS, sources=1), CPU, True, True),
        (asks(RANDOM, hops=True), CPU, False, False),
        (asks(RANDOM, method="floyd_warshall"), CPU, False, False),
        (asks(RANDOM, method="squaring"), CPU, False, False),
        (asks(RANDOM, method="sparse"), CPU, math.inf, False),
        (asks(RANDOM, semiring="max_min"), CPU, False, False),
        (asks(RANDOM, device="cuda"), GPU, False, False),
    ],
)
def test_how_on_the_cpu(request_, machine, sparse, search):
    found = choose(request_, machine)
    assert found.search is search
    if sparse is True:  # no longer than a search would take
        assert 0 < found.sparse <= float(request_.n) ** 3
    else:
        assert found.sparse == sparse


def test_the_more_edges_or_threads_the_fewer_searches():
    """The choice changes once along each axis."""
    for changes in (
        [{"edges": 1_000 * i} for i in range(1, 128)],
        [{"n": 40_000 // i, "edges": 160_000 // i} for i in range(1, 80)],
    ):
        taken = [choose(asks(RANDOM, **x), CPU).search for x in changes]
        assert taken == sorted(taken, reverse=True)
        assert {True, False} == set(taken)


def test_edges_are_counted_as_far_as_it_takes():
    w = np.full((300, 300), np.inf)
    np.fill_diagonal(w[1:], 1)  # 299 edges
    np.fill_diagonal(w, 0)
    assert count_edges(w, np.inf, 299) == 299
    assert count_edges(w, np.inf, 298) is None or count_edges(w, np.inf, 298) == 299

    class Counted(np.ndarray):
        rows = 0

        def __getitem__(self, at):
            Counted.rows += len(range(*at.indices(len(self)))) if isinstance(at, slice) else 0
            return np.asarray(self)[at]

    assert count_edges(np.zeros((1000, 1000)).view(Counted), np.inf, 16_000) is None
    assert Counted.rows == 64


# --- searches ----------------------------------------------------------------------------------


@pytest.fixture
def searches(monkeypatch):
    """Searches are the fastest there is; gives a list of those made."""
    pytest.importorskip("scipy")
    from semiring_mm.graphs import apsp, dense, dijkstra

    made = []

    def noting(function):
        return lambda *a, **k: made.append(function.__name__) or function(*a, **k)

    monkeypatch.setattr(choice, "SEARCH", 1e-3)
    monkeypatch.setattr(choice, "SPARSE_FROM", 20)
    monkeypatch.setattr(apsp, "search_edges", noting(dijkstra.search_edges))
    monkeypatch.setattr(dense, "search", noting(dijkstra.search))
    return made


def weights(dtype, n=150, degree=4, seed=0):
    rng = np.random.default_rng(seed)
    zero = np.iinfo(dtype).max if np.dtype(dtype).kind in "iu" else np.inf
    w = np.full((n, n), zero, dtype)
    w[rng.integers(0, n, degree * n), rng.integers(0, n, degree * n)] = rng.integers(
        0, 6, degree * n
    )  # zeros are edges, and close cycles
    return w


@pytest.mark.parametrize("predecessors", [False, True])
@pytest.mark.parametrize("sources", [None, [7, 3, 3]])
@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i1", "i4", "u2", "i8"])
def test_a_search_of_a_matrix(searches, dtype, sources, predecessors):
    w = weights(dtype)
    options = {"sources": sources, "return_predecessors": predecessors}
    found = sm.apsp(w, **options)
    assert searches == ["search"]
    expected = sm.apsp(w, method="floyd_warshall", **options)
    assert searches == ["search"]
    d, p = found if predecessors else (found, None)
    assert d.dtype == w.dtype
    assert_array_equal(d, expected[0] if predecessors else expected)
    if predecessors and sources is None:
        walks.check_paths(w, d, p, zero=w.dtype.type(sm.semirings["min_plus"].identities(dtype)[0]))


def test_a_search_in_place_and_back_to_front(searches):
    w = weights("f8")
    expected = sm.apsp(w, method="floyd_warshall")
    d = sm.apsp(w, overwrite=True)
    assert d is w
    assert_array_equal(d, expected)
    assert_array_equal(sm.apsp(weights("f8").T), expected.T)
    assert searches == ["search"] * 2


@pytest.mark.parametrize("kind", ["csr", "networkx", "file", "undirected"])
def test_a_search_of_edges(searches, tmp_path, kind):
    from scipy.sparse import coo_array

    w = weights("f8")
    row, col = np.nonzero(np.isfinite(w))
    data = w[row, col]
    if kind == "networkx":
        nx = pytest.importorskip("networkx")
        graph = nx.MultiDiGraph()
        graph.add_nodes_from(range(len(w)))
        graph.add_weighted_edges_from(zip(row.tolist(), col.tolist(), data.tolist(), strict=True))
        graph.add_weighted_edges_from([(u, v, x + 1) for u, v, x in graph.edges(data="weight")])
    elif kind == "file":
        graph = tmp_path / "graph.gr"
        lines = [f"a {i + 1} {j + 1} {int(x)}" for i, j, x in zip(row, col, data, strict=True)]
        graph.write_text("\n".join([f"p sp {len(w)} {len(row)}", *lines]) + "\n")
    else:  # parallel edges count once, explicit zeros are edges
        twice = np.concatenate
        graph = coo_array(
            (twice([data + 1, data]), (twice([row, row]), twice([col, col]))), shape=w.shape
        )
    directed = False if kind == "undirected" else None
    d, p = sm.apsp(graph, return_predecessors=True, directed=directed)
    assert searches == ["search_edges"]
    joined = np.minimum(w, w.T) if kind == "undirected" else w
    assert_array_equal(d, sm.apsp(joined, method="floyd_warshall"))
    walks.check_paths(joined, d, p)
    some = ["6", "3"] if kind == "file" else [5, 2]  # in a file nodes have labels
    assert_array_equal(sm.apsp(graph, sources=some, directed=directed), d[[5, 2]])


def test_float32_is_searched_in_double(searches):
    from scipy.sparse import csr_array

    rng = np.random.default_rng(1)
    w = weights("f4")
    w[np.isfinite(w)] = rng.random(np.isfinite(w).sum())
    row, col = np.nonzero(np.isfinite(w))
    for graph in (w, csr_array((w[row, col], (row, col)), shape=w.shape)):
        d = sm.apsp(graph)
        assert d.dtype == np.float32
        assert_allclose(d, sm.apsp(w, method="floyd_warshall"), rtol=1e-5)
    assert searches == ["search", "search_edges"]


def test_what_searches_cannot_do_is_not_searched(searches):
    """Negative weights, and integers whose sums float64 does not hold."""
    w = weights("f8")
    h = np.arange(len(w), dtype=float)
    signed = w + h[:, None] - h
    assert_array_equal(sm.apsp(signed), sm.apsp(w, method="floyd_warshall") + h[:, None] - h)
    large = weights("i8")
    large[0, 1] = 1 << 50
    large[1, 2] = 1
    assert_array_equal(sm.apsp(large), sm.apsp(large, method="floyd_warshall"))
    assert searches == []
    w[4, 5] = np.nan
    with pytest.raises(ValueError, match=r"\[4, 5\] is NaN"):
        sm.apsp(w)
    cycle = weights("f8")
    cycle[3, 3] = -1
    with pytest.raises(sm.NegativeCycleError):
        sm.apsp(cycle)


def test_small_integers_overflow_as_ever(searches):
    chain = np.full((60, 60), 127, np.int8)
    chain[np.arange(59), np.arange(1, 60)] = 9
    with pytest.raises(OverflowError, match="use int64"):
        sm.apsp(chain)
    assert searches == ["search"]


def test_a_search_tells_its_progress_and_may_be_stopped(searches):
    told = []
    sm.apsp(weights("f8"), progress=lambda done, total: told.append(done / total))
    assert told == sorted(told)
    assert len(told) == 3
    assert told[-1] == 1

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sm.apsp(weights("f8"), progress=stop)
    assert searches == ["search"] * 2


def test_without_scipy_there_is_no_search(monkeypatch):
    monkeypatch.setattr(choice, "_scipy", lambda: False)
    found = choose(RANDOM, choice.machine_for(RANDOM))
    assert found == Choice(None, False, "elimination", 8_000.0**3, search=False)
