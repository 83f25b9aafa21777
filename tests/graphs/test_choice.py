"""Where and how a graph's paths are found: the decision, and the search that it may choose."""

import math

import numpy as np
import pytest
import walks
from metrics import only
from numpy.testing import assert_allclose, assert_array_equal
from optional import sp

import semiring_mm as sm
from semiring_mm.graphs import choice, methods
from semiring_mm.graphs.choice import Request, count_edges
from semiring_mm.hierarchy import costs
from semiring_mm.tiles import TileOptions

GB = 1 << 30
CPU, GPU, SMALL_GPU = None, 64 * GB, GB  # bytes free
F8 = np.dtype("f8")
MIN_PLUS = sm.semirings["min_plus"]
TILES = TileOptions(memory="1GB")
DENSE = Request(MIN_PLUS, 10_000, F8)
RANDOM = Request(MIN_PLUS, 8_000, F8, 32_000)  # sparse elimination fills it
METHODS = {
    "elimination": "elimination in blocks",
    "hops": "powers of the matrix",
    "sources": "rounds of products",
    "squaring": "repeated squaring",
}


def asks(request, **changes):
    if "semiring" in changes:
        changes["s"] = sm.semirings[changes.pop("semiring")]
    return choice.replace(request, **changes)


def placed(request, gpu):
    """It, on a machine of two threads whose device has so much memory, if there is one."""
    request = asks(request)
    request.gpu, request.threads = gpu, 2
    return request.place()


def cost(name, request):
    """Nanoseconds of a method by numbers alone."""
    request = asks(request) if "threads" not in request.__dict__ else request
    request.threads = request.__dict__.get("threads", 2)
    request.searchable = True
    method = next(x for x in methods.METHODS if x.name == name)
    return math.inf if method.refuses(request) else method.cost(request, math.inf)


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
        (asks(DENSE, hops=3), GPU, "cuda", False, "hops"),
        (asks(DENSE, sources=3), GPU, None, False, "sources"),
        (asks(DENSE, sources=3, hops=3), CPU, None, False, "sources"),
        (asks(DENSE, method="sparse"), GPU, None, False, "elimination"),
        (RANDOM, GPU, None, False, "elimination"),  # stays where a sparse method may be faster
        (asks(RANDOM, semiring="min_max"), GPU, None, False, "elimination"),
        (asks(RANDOM, semiring="plus_times"), GPU, "cuda", False, "elimination"),
        # what a device cannot hold streams through it, or stays on the host
        (DENSE, SMALL_GPU, "cuda", True, "elimination"),
        (asks(DENSE, n=4_000), SMALL_GPU, "cuda", False, "elimination"),
        (asks(DENSE, n=4_000, predecessors=True), SMALL_GPU, "cuda", False, "elimination"),
        (asks(DENSE, n=7_000, dtype=np.dtype("f4")), SMALL_GPU, "cuda", False, "elimination"),
        (asks(DENSE, n=7_000), SMALL_GPU, "cuda", False, "elimination"),
        (asks(DENSE, n=7_000, predecessors=True), SMALL_GPU, "cuda", True, "elimination"),
        (asks(DENSE, overwrite=True), SMALL_GPU, None, False, "elimination"),
        (asks(DENSE, method="squaring"), SMALL_GPU, None, False, "squaring"),
        (asks(DENSE, device="cuda"), SMALL_GPU, "cuda", True, "elimination"),
        (asks(DENSE, device="cuda", hops=3), SMALL_GPU, "cuda", False, "hops"),
        (asks(DENSE, options=TILES), GPU, None, True, "elimination"),
        (asks(DENSE, options=TILES, device="cuda"), GPU, "cuda", True, "elimination"),
    ],
)
def test_where(request_, machine, device, tiles, method):
    found = placed(request_, machine)
    assert (found.device, found.tiles) == (device, tiles)
    here = asks(found, tiles=False)
    dense = [x for x in methods.METHODS if x.name in METHODS.values()]
    assert next(x.name for x in dense if not x.refuses(here)) == METHODS[method]


@pytest.mark.parametrize("request_", [DENSE, RANDOM])
def test_a_sparse_elimination_that_is_asked_for_is_not_refused(request_):
    found = asks(request_, method="sparse")
    assert not found.matrix_only
    for name in ("elimination in blocks", "a search from each source"):
        assert cost(name, found) == math.inf


@pytest.mark.parametrize(
    ("changes", "times"),
    [
        ({"predecessors": True}, costs.PREDECESSORS),
        ({"dtype": np.dtype("f4")}, costs.NARROW),
        ({"undirected": True}, 0.5),
        ({"undirected": True, "predecessors": True}, costs.PREDECESSORS),
    ],
)
def test_what_a_dense_method_takes(changes, times):
    made = costs.BEGIN + costs.ENTRY * 8000**2
    name = "elimination in blocks"
    before, after = (cost(name, x) - made for x in (asks(RANDOM), asks(RANDOM, **changes)))
    assert after / before == pytest.approx(times)
    more = asks(RANDOM)
    more.threads = 4
    assert cost(name, more) - made == pytest.approx(before / 2)
    one = cost("rounds of products", asks(RANDOM, sources=1, **changes))
    assert made < one < after / 10


def test_the_more_edges_the_fewer_searches():
    """The choice changes once along each axis."""
    for changes in (
        [{"arcs": 100_000 * i} for i in range(1, 128)],
        [{"n": 40_000 // i, "arcs": 160_000 // i} for i in range(1, 80)],
    ):
        taken = [methods.searches_first(asks(RANDOM, **x)) for x in changes]
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
    """No elimination, and searches are the fastest; gives a list of those made."""
    from semiring_mm.graphs import contraction

    made, search = [], contraction.search
    for name in ("SEARCH", "LIST", "CALL"):
        monkeypatch.setattr(costs, name, 1e-3)
    monkeypatch.setattr(choice, "SPARSE_FROM", 20)
    only(monkeypatch, *(x.name for x in methods.METHODS if x.name != "sparse elimination"))
    monkeypatch.setattr(
        contraction, "search", lambda *a, **k: made.append("search") or search(*a, **k)
    )
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
        graph = sp.coo_array(
            (twice([data + 1, data]), (twice([row, row]), twice([col, col]))), shape=w.shape
        )
    directed = False if kind == "undirected" else None
    d, p = sm.apsp(graph, return_predecessors=True, directed=directed)
    assert searches == ["search"]
    joined = np.minimum(w, w.T) if kind == "undirected" else w
    assert_array_equal(d, sm.apsp(joined, method="floyd_warshall"))
    walks.check_paths(joined, d, p)
    some = ["6", "3"] if kind == "file" else [5, 2]  # in a file nodes have labels
    assert_array_equal(sm.apsp(graph, sources=some, directed=directed), d[[5, 2]])


def test_float32_is_searched_in_float32(searches):
    rng = np.random.default_rng(1)
    w = weights("f4")
    w[np.isfinite(w)] = rng.random(np.isfinite(w).sum())
    row, col = np.nonzero(np.isfinite(w))
    for graph in (w, sp.csr_array((w[row, col], (row, col)), shape=w.shape)):
        d = sm.apsp(graph)
        assert d.dtype == np.float32
        assert_allclose(d, sm.apsp(w, method="floyd_warshall"), rtol=1e-5)
    assert searches == ["search"] * 2


def test_negative_weights_are_not_searched(searches, monkeypatch):
    monkeypatch.setattr(costs, "POTENTIAL", math.inf)
    w = weights("f8")
    h = np.arange(len(w), dtype=float)
    signed = w + h[:, None] - h
    assert_array_equal(sm.apsp(signed), sm.apsp(w, method="floyd_warshall") + h[:, None] - h)
    assert searches == []
    w[4, 5] = np.nan
    with pytest.raises(ValueError, match=r"\[4, 5\] is NaN"):
        sm.apsp(w)
    cycle = weights("f8")
    cycle[3, 3] = -1
    with pytest.raises(sm.NegativeCycleError):
        sm.apsp(cycle)


@pytest.mark.parametrize("predecessors", [False, True])
@pytest.mark.parametrize("sources", [None, [7, 3, 3]])
@pytest.mark.parametrize("dtype", ["f8", "i4"])
def test_potentials_make_up_for_negative_weights(
    searches, monkeypatch, dtype, sources, predecessors
):
    from semiring_mm.graphs import contraction, dijkstra

    made = []
    monkeypatch.setattr(costs, "POTENTIAL", 1e-3)
    monkeypatch.setattr(
        contraction, "search_shifted",
        lambda *a, **k: made.append(1) or dijkstra.search_shifted(*a, **k),
    )  # fmt: skip
    w = weights(dtype)
    zero = sm.semirings["min_plus"].identities(w.dtype)[0]
    h, there = np.arange(len(w)).astype(dtype), w != zero
    w[there] += (h[:, None] - h)[there]
    options = {"sources": sources, "return_predecessors": predecessors}
    found = sm.apsp(w, **options)
    assert (searches, made) == ([], [1])
    expected = sm.apsp(w, method="floyd_warshall", **options)
    d, p = found if predecessors else (found, None)
    assert d.dtype == w.dtype
    assert_array_equal(d, expected[0] if predecessors else expected)
    if predecessors and sources is None:
        walks.check_paths(w, d, p, zero=zero)
    w[3, 4], w[4, 3] = 1, -2
    with pytest.raises(sm.NegativeCycleError):
        sm.apsp(w, **options)


def test_large_integers_are_searched_exactly(searches):
    large = weights("i8")
    large[0, 1], large[1, 2] = 1 << 50, 1
    assert_array_equal(sm.apsp(large), sm.apsp(large, method="floyd_warshall"))
    assert searches == ["search"]


@pytest.mark.parametrize("name", ["max_min", "min_max", "max_times"])
def test_a_search_over_other_semirings(searches, name):
    rng, w = np.random.default_rng(4), weights("f8")
    row, col = np.nonzero(np.isfinite(w))
    labels = [str(i) for i in range(len(w))]
    graph = sm.files.Graph(labels, row, col, rng.random(len(row)), directed=True)
    s = sm.semirings[name]
    d, p = sm.closure(graph, s, return_predecessors=True)
    assert searches == ["search"]
    matrix = sm.adjacency(graph, s)[0]
    assert_allclose(np.asarray(d), sm.closure(matrix, s), rtol=1e-12)
    assert ((np.asarray(p) >= 0) == ((np.asarray(d) != s.zero) & ~np.eye(len(w), dtype=bool))).all()


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
    assert told[-1] == 1

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sm.apsp(weights("f8"), progress=stop)
    assert searches == ["search"] * 2
