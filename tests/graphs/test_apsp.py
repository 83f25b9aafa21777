"""Shortest paths against SciPy, NetworkX and one edge at a time."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metrics import grid
from numpy.testing import assert_allclose, assert_array_equal
from optional import csgraph, nx, sp
from walks import brute, check_cycle, potentials, scipy_distances, sparse, weights

import semiring_mm as sm
from semiring_mm import arrays, pool
from semiring_mm.cpu import engine
from semiring_mm.files import Graph
from semiring_mm.graphs import methods

inf = np.inf
SIZES = [1, 2, 3, 7, 16, 63, 64, 65, 129, 513]


def rng(*seed):
    return np.random.default_rng(seed)


def networkx_of(w, directed=True):
    graph = nx.DiGraph() if directed else nx.Graph()
    graph.add_nodes_from(range(len(w)))
    none = inf if w.dtype.kind == "f" else np.iinfo(w.dtype).max
    graph.add_weighted_edges_from(
        (int(u), int(v), w[u, v].item()) for u, v in np.argwhere(w != none)
    )
    return graph


# --- right distances ---------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["auto", "floyd_warshall", "squaring"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("n", SIZES)
def test_against_scipy(n, directed, dtype, method):
    w = weights(rng(n), n, density=min(1, 3 / n), lo=0, directed=directed, dtype=dtype)
    before = w.copy()
    d = sm.apsp(w, method=method)
    assert d.dtype == dtype
    assert d.shape == (n, n)
    assert_array_equal(w, before)
    expected = scipy_distances(w)
    none = inf if w.dtype.kind == "f" else np.iinfo(dtype).max
    assert_array_equal(np.where(d == none, inf, d), expected)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 9),
    st.integers(0, 2**32),
    st.sampled_from([np.float64, np.float32, np.int16, np.int64]),
    st.floats(0, 1),
    st.booleans(),
)
def test_small_graphs_one_edge_at_a_time(n, seed, dtype, density, loops):
    w = weights(rng(seed), n, density=density, lo=0, hi=3, dtype=dtype, loops=loops)
    none = inf if w.dtype.kind == "f" else np.iinfo(dtype).max
    expected = brute(np.where(w == none, inf, w).astype(float), max(n - 1, 0))
    d = sm.apsp(w)
    assert d.dtype == dtype
    assert_array_equal(np.where(d == none, inf, d), expected)


@pytest.mark.parametrize("shape", [(0, 0), (1, 1), (0, 3, 3), (2, 0, 0), (3, 1, 1)])
def test_nothing_and_next_to_nothing(shape):
    for method in ("auto", "squaring"):
        d, p = sm.apsp(np.full(shape, 7.0), return_predecessors=True, method=method)
        assert d.shape == p.shape == shape
        if 0 not in shape:
            assert not d.any()
            assert (p == -9999).all()


def test_real_numbers_agree_to_rounding():
    w = rng(6).random((150, 150))
    for dtype, tol in ((np.float64, 1e-14), (np.float32, 1e-6), (np.float16, 1e-2)):
        d = sm.apsp(w.astype(dtype))
        assert d.dtype == dtype
        assert_allclose(d, scipy_distances(w), rtol=tol, atol=tol)


# --- some rows, few edges, many graphs ----------------------------------------------------------


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("n", [2, 3, 10, 130])
def test_sources(n, negative):
    w = weights(rng(n, 7), n, density=min(1, 4 / n))
    if negative:
        w = potentials(rng(n, 8), w)
    whole = sm.apsp(w)
    for sources in ([0], [n - 1, 0], [1, 1, 0], range(n), np.array([1])):
        assert_array_equal(sm.apsp(w, sources=sources), whole[list(sources)])
    assert_array_equal(sm.apsp(w, sources=1), whole[[1]])
    assert_array_equal(sm.apsp(w, sources=np.int32(1)), whole[[1]])
    assert sm.apsp(w, sources=[]).shape == (0, n)


def test_sources_far_away():
    """A long road: more rounds than the elimination of it all is worth."""
    n = 300
    w = np.full((n, n), inf)
    w[np.arange(n - 1), np.arange(1, n)] = 1
    d = sm.apsp(w, sources=[0, 1, 2])
    assert_array_equal(d[0], np.arange(n))
    assert_array_equal(d[2], np.where(np.arange(n) < 2, inf, np.arange(n) - 2))


def test_batch_names_a_cycle_and_refuses_what_is_for_one_graph():
    stack = np.full((3, 2, 2), 1.0)
    stack[2] = -1
    with pytest.raises(sm.NegativeCycleError):
        sm.apsp(stack)
    with pytest.raises(ValueError, match="for one graph, not for a batch"):
        sm.apsp(np.ones((3, 2, 2)), sources=0)
    with pytest.raises(ValueError, match=r"a batch of graphs has shape \(b, n, n\)"):
        sm.apsp(np.ones((3, 2, 1)))


# --- what a graph may be ------------------------------------------------------------------------


def test_kinds_of_graphs(tmp_path):
    w = weights(rng(11), 30, density=0.15, lo=0)
    expected = sm.apsp(w)
    row, col = np.nonzero(np.isfinite(w))
    named = Graph([f"n{k}" for k in range(30)], row, col, w[row, col], directed=True)
    kinds = [
        w.tolist(), np.asfortranarray(w), w[::-1, ::-1][::-1, ::-1], w.astype(">f8"),
        sparse(w), sp.coo_matrix(sparse(w)), sp.csc_array(sparse(w)), networkx_of(w), named,
    ]  # fmt: skip
    for graph in kinds:
        assert_array_equal(sm.apsp(graph), expected)
    lines = ["from,to,weight", *(f"{u},{v},{w[u, v]}" for u, v in zip(row, col, strict=True))]
    path = tmp_path / "graph.csv"
    path.write_text("\n".join(lines) + "\n")
    for name in (path, str(path)):
        matrix, nodes = sm.adjacency(name)
        order = [nodes.index(str(k)) for k in range(30)]
        assert_array_equal(matrix[np.ix_(order, order)], w)
        assert_array_equal(sm.apsp(name)[np.ix_(order, order)], expected)


def test_parallel_edges_and_duplicates():
    coo = sp.coo_array(([5.0, 2, 3, 0], ([0, 0, 0, 1], [1, 1, 1, 2])), (3, 3))
    expected = [[0, 2, 2], [inf, 0, 0], [inf, inf, 0]]
    assert_array_equal(sm.apsp(coo), expected)
    graph = nx.MultiDiGraph()
    graph.add_weighted_edges_from([(0, 1, 5), (0, 1, 2), (0, 1, 3), (1, 2, 0)])
    assert_array_equal(sm.apsp(graph), expected)
    matrix, nodes = sm.adjacency(graph, "max_min")
    assert matrix[0, 1] == 5
    assert nodes == [0, 1, 2]


def test_undirected_reads_edges_both_ways():
    w = weights(rng(12), 80, density=0.03)
    both = np.minimum(w, w.T)
    expected = scipy_distances(both)
    for graph in (w, sparse(w), networkx_of(w)):
        assert_array_equal(sm.apsp(graph, directed=False), expected)
    assert_array_equal(sm.apsp(both, directed=True), expected)
    graph = networkx_of(both, directed=False)
    assert_array_equal(sm.apsp(graph), expected)
    assert_array_equal(sm.apsp(w.copy(), directed=False, overwrite=True), expected)


def test_weights_of_networkx_default_to_one_and_keep_their_order():
    graph = nx.Graph([("b", "a"), ("a", "c")])
    matrix, nodes = sm.adjacency(graph)
    assert nodes == ["b", "a", "c"]
    assert_array_equal(matrix, [[inf, 1, inf], [1, inf, 1], [inf, 1, inf]])


# --- dtypes -------------------------------------------------------------------------------------


def test_dtype_of_the_result():
    one = [[0, 1], [2, 0]]
    for dtype in "float16 float32 float64 int8 int16 int32 int64 uint8 uint32 uint64".split():
        assert sm.apsp(np.array(one, dtype)).dtype == dtype
    assert sm.apsp(one).dtype == np.int64
    for dtype, result in (("float32", "float32"), ("float64", "float64"), ("int32", "float64")):
        assert sm.apsp(sp.csr_array(np.array(one, dtype))).dtype == result


def test_bfloat16():
    types = pytest.importorskip("ml_dtypes")
    w = weights(rng(13), 70, density=0.1, hi=3).astype(types.bfloat16)
    d = sm.apsp(w)
    assert d.dtype == types.bfloat16
    assert_array_equal(d.astype(float), scipy_distances(w.astype(float)))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32])
def test_narrow_integers_are_widened_and_come_back(dtype):
    top = np.iinfo(dtype).max
    w = np.full((70, 70), top, dtype)
    w[np.arange(69), np.arange(1, 70)] = 1
    expected = np.where(np.tri(70, k=-1, dtype=bool), top, np.arange(70) - np.arange(70)[:, None])
    assert_array_equal(sm.apsp(w), expected)
    for step in (top // 69, top // 69 + 1):
        w[np.arange(69), np.arange(1, 70)] = step
        if step * 69 < top:
            assert sm.apsp(w)[0, 69] == step * 69
        else:
            with pytest.raises(OverflowError, match=f"does not fit {np.dtype(dtype)}; use int64"):
                sm.apsp(w)
            with pytest.raises(OverflowError, match="does not fit"):
                sm.apsp(w.copy(), overwrite=True)


def test_integers_too_large_for_any_type():
    w = np.array([[0, 2**62], [1, 0]])
    with pytest.raises(OverflowError, match=r"add up to \d+, and .* up to 2\*\*59; use float64"):
        sm.apsp(w)
    unsigned = np.array([[0, 2**64 - 1], [2**63, 0]], np.uint64)
    with pytest.raises(
        OverflowError, match=f"2 weights of up to {2**63} may add up to {3 * 2**63}"
    ):
        sm.apsp(unsigned)
    unsigned[1, 0] = (2**59 - 1) // 3
    assert_array_equal(sm.apsp(unsigned), unsigned)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("n", [3, 40, 150])
def test_the_largest_type_without_a_sign(n, dense):
    top = np.iinfo(np.uint64).max
    random = rng(n)
    w = random.integers(0, 2**59 // (n + 1), (n, n)).astype(np.uint64)
    w[random.random((n, n)) < (0 if dense else 0.9)] = top
    np.fill_diagonal(w, 0)
    signed = np.where(w == top, np.iinfo(np.int64).max, w.astype(np.int64))
    expected = sm.apsp(signed)
    expected = np.where(expected == np.iinfo(np.int64).max, top, expected.astype(np.uint64))
    d, p = sm.apsp(w, return_predecessors=True)
    for found in (d, sm.apsp(w), sm.apsp(w, sources=range(n)), sm.apsp(w, method="squaring"),
                  sm.apsp(w.copy(), overwrite=True), sm.apsp(np.stack([w, w]))[1],
                  sm.closure(w, "min_plus")):  # fmt: skip
        assert found.dtype == np.uint64
        assert_array_equal(found, expected)
    assert_array_equal(p < 0, (d == top) | np.eye(n, dtype=bool))


def test_no_edge_is_no_number_in_integers():
    top = np.iinfo(np.int32).max
    w = np.array([[0, -5, top], [top, 0, top], [top, 7, 0]], np.int32)
    assert_array_equal(sm.apsp(w), w)


# --- memory -------------------------------------------------------------------------------------


def test_overwrite_uses_the_memory_of_the_input(tmp_path):
    w = weights(rng(14), 150, density=0.1)
    expected = sm.apsp(w)
    for order in "CF":
        mine = np.array(w, order=order)
        out = sm.apsp(mine, overwrite=True)
        assert np.shares_memory(out, mine)
        assert_array_equal(mine, expected)
    for method in ("squaring", "floyd_warshall"):
        mine = w.copy()
        assert np.shares_memory(sm.apsp(mine, overwrite=True, method=method), mine)
        assert_array_equal(mine, expected)
    mapped = np.lib.format.open_memmap(tmp_path / "w.npy", mode="w+", dtype=float, shape=w.shape)
    mapped[...] = w
    out, p = sm.apsp(mapped, overwrite=True, return_predecessors=True)
    mapped.flush()
    assert_array_equal(np.load(tmp_path / "w.npy"), expected)
    assert p.shape == w.shape
    narrow = np.full((3, 3), 127, np.int8)
    narrow[0, 1] = narrow[1, 2] = 60
    out = sm.apsp(narrow, overwrite=True)
    assert np.shares_memory(out, narrow)
    assert narrow[0, 2] == 120


def test_overwrite_is_refused_where_it_cannot_be():
    with pytest.raises(ValueError, match="needs a NumPy array to overwrite, got list"):
        sm.apsp([[0, 1], [1, 0]], overwrite=True)
    with pytest.raises(ValueError, match="read-only"):
        sm.apsp(np.broadcast_to(1.0, (3, 3)), overwrite=True)
    assert_array_equal(sm.apsp(np.broadcast_to(1.0, (3, 3))), 1 - np.eye(3))


def test_too_large_is_said_before_the_work(monkeypatch):
    empty = sp.csr_array((10**6, 10**6))
    monkeypatch.setattr(engine, "free_memory", lambda: 10**9)
    empty_array = np.empty

    def small(shape, *rest, **more):
        assert np.prod(shape, dtype=float) < 1e8, "allocated"
        return empty_array(shape, *rest, **more)

    monkeypatch.setattr(np, "empty", small)
    with pytest.raises(MemoryError, match=r"needs 8e\+03 GB, and 1 GB are free: .*out='D\.npy'"):
        sm.apsp(empty)
    with pytest.raises(MemoryError, match=r"1000000 x 1000000 .* needs 8e\+03 GB, and 1 GB are"):
        sm.apsp(empty, sources=range(10**6))
    monkeypatch.undo()
    monkeypatch.setattr(arrays, "_UNASKED", 0)
    monkeypatch.setattr(methods, "_UNASKED", 0)
    monkeypatch.setattr(engine, "free_memory", lambda: 250_000)
    with pytest.raises(MemoryError, match=r"needs 0\.32 MB, and 0\.25 MB are free: use float32"):
        sm.apsp(sp.csr_array((200, 200)))
    monkeypatch.setattr(engine, "free_memory", lambda: 400_000)
    with pytest.raises(MemoryError, match="the work beside the 200 x 200 matrix"):
        sm.apsp(np.ones((200, 200)), method="squaring")


def test_all_pairs_are_asked_for(monkeypatch):
    """More than 4 GiB of them are not taken without a word, in Python as on the command line."""
    path, inf = nx.path_graph(200), np.inf
    monkeypatch.setattr(arrays, "_ALL_PAIRS", 8 * 200**2 - 1)
    net = sm.prepare(path)
    for call in (
        lambda: sm.apsp(path), lambda: sm.closure(path, "max_min"), lambda: net.distances(),
        lambda: sm.apsp(path, return_predecessors=True), lambda: sm.apsp(path, method="sparse"),
        lambda: sm.apsp(path, sources=range(100), max_hops=5),
    ):  # fmt: skip
        with pytest.raises(
            MemoryError, match=r"^a matrix of all pairs of 200 nodes needs .* MB.*sources"
        ):
            call()
    expected = abs(np.subtract.outer(np.arange(200.0), np.arange(200)))
    for found in (
        sm.apsp(path, tiles=sm.Tiles(memory="1GB")), sm.apsp(path, sources=range(200)),
        sm.apsp(np.where(expected == 1, 1, inf)), net.distances(range(200)),
        net.distances(targets=range(200)), nx.floyd_warshall_numpy(path, backend="semiring_mm"),
        csgraph.shortest_path(nx.to_scipy_sparse_array(path)),
    ):  # fmt: skip
        assert_array_equal(found, expected)
    monkeypatch.setattr(arrays, "_ALL_PAIRS", 8 * 200**2)
    assert_array_equal(sm.apsp(path), expected)
    with pytest.raises(MemoryError, match="all pairs"):
        sm.apsp(path, return_predecessors=True)


def test_memory_that_the_system_does_not_tell(monkeypatch):
    monkeypatch.setattr(engine, "free_memory", lambda: None)
    assert sm.apsp(sp.csr_array((3, 3))).shape == (3, 3)
    monkeypatch.undo()
    assert 2**20 < engine.free_memory() < 2**50


# --- progress -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"directed": False}, {"return_predecessors": True}, {"method": "squaring"},
     {"max_hops": 5}, {"sources": [0, 1]}],
)  # fmt: skip
def test_progress_grows_to_its_total(options):
    w = weights(rng(16), 300, directed=False)
    seen = []
    d = sm.apsp(w, progress=lambda done, total: seen.append((done, total)), **options)
    quiet = sm.apsp(w, **options)
    for x, y in zip(np.atleast_1d(d), np.atleast_1d(quiet), strict=True):
        assert_array_equal(x, y)
    done, totals = zip(*seen, strict=True)
    assert len(set(totals)) == 1
    assert list(done) == sorted(done)
    assert 0 < done[0] <= done[-1] <= totals[0]
    assert done[-1] == totals[0]


def test_progress_of_a_batch():
    for n in (10, 300):
        seen = []
        sm.apsp(
            np.ones((4, n, n)), progress=lambda done, total, seen=seen: seen.append((done, total))
        )
        assert seen[-1] == (4, 4)


def test_an_exception_in_progress_stops_the_work():
    calls = []

    def stop(done, total):
        calls.append(done)
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        sm.apsp(weights(rng(17), 600), progress=stop)
    assert len(calls) == 1
    assert_array_equal(sm.apsp(np.array([[0.0, 1], [1, 0]])), [[0, 1], [1, 0]])


def test_progress_is_a_flag_or_a_function(capsys):
    sm.apsp(np.ones((9, 9)), progress=True)
    assert capsys.readouterr() == ("", "")  # nothing for less than a second
    with pytest.raises(TypeError, match="progress is True, False or a callable"):
        sm.apsp("nowhere.csv", progress=3)  # before the graph is looked at


# --- negative cycles ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.int16])
@pytest.mark.parametrize("n", [2, 5, 64, 65, 150])
def test_negative_cycles_are_real(n, dtype):
    for seed in range(3):
        w = weights(rng(n, seed), n, density=min(1, 5 / n), dtype=dtype)
        ring = rng(n, seed, 1).permutation(n)[: 2 + seed % (n - 1)]
        w[ring, np.roll(ring, -1)] = 3
        w[ring[0], np.roll(ring, -1)[0]] = -3 * (len(ring) - 1) - 1
        for options in (
            {}, {"overwrite": True}, {"method": "squaring"}, {"return_predecessors": True},
            {"sources": int(ring[0])}, {"max_hops": n},
        ):  # fmt: skip
            with pytest.raises(sm.NegativeCycleError, match="shortest paths do not exist") as found:
                sm.apsp(w.copy(), **options)
            check_cycle(w, found.value)


def test_negative_cycle_of_a_large_graph_far_from_the_source():
    n = 700
    w = weights(rng(18), n, density=0.01)
    w[600, 650], w[650, 600] = 5, -6
    for options in ({}, {"sources": [0, 1]}):
        with pytest.raises(sm.NegativeCycleError) as found:
            sm.apsp(w, **options)
        check_cycle(w, found.value)


def test_negative_cycle_that_sources_do_not_reach():
    w = np.array([[0, 1, inf, inf], [inf, 0, inf, inf], [inf, inf, 0, -2], [inf, inf, 1, 0]])
    assert_array_equal(sm.apsp(w, sources=0), [[0, 1, inf, inf]])
    for source in (2, 3):
        with pytest.raises(sm.NegativeCycleError):
            sm.apsp(w, sources=source)


@pytest.mark.parametrize("overwrite", [False, True])
def test_negative_loops_and_undirected_edges(overwrite):
    for n in (1, 2, 100):
        w = weights(rng(n), n)
        w[n - 1, n - 1] = -2
        for options in ({}, {"sources": n - 1}, {"sources": 0}):
            if n == 100 or options.get("sources", n - 1) == n - 1:
                with pytest.raises(sm.NegativeCycleError) as found:
                    sm.apsp(w.copy(), **options, **({} if options else {"overwrite": overwrite}))
                assert (found.value.cycle, found.value.weight) == ([n - 1], -2)
    w = np.array([[0, inf, inf], [4, 0, -1], [inf, inf, 0]])
    with pytest.raises(sm.NegativeCycleError) as found:
        sm.apsp(w.copy(), directed=False, overwrite=overwrite)
    assert sorted(found.value.cycle) == [1, 2]
    assert found.value.weight == -2
    assert sm.apsp(w)[1, 2] == -1


def test_negative_loop_beside_the_source_of_two_nodes():
    w = np.array([[0, 1.0], [inf, -1]])
    for options in ({}, {"sources": 0}, {"max_hops": 2}):
        with pytest.raises(sm.NegativeCycleError):
            sm.apsp(w, **options)


def test_the_cycle_is_shown_by_label():
    graph = nx.DiGraph()
    graph.add_weighted_edges_from([("a", "b", 1), ("b", "c", -3), ("c", "a", 1.5), ("c", "d", 1)])
    with pytest.raises(sm.NegativeCycleError, match=r"-0\.5: (a → b → c → a|b → c → a → b|c → a)"):
        sm.apsp(graph)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "legs", [(0.1, 0.2, -0.3), (0.7, 0.1, -0.8), (1.1, 2.2, -3.3), (1e3, 1e-2, -1000.01)]
)
def test_rounding_makes_no_negative_cycle(legs, dtype):
    unit = 2000 * float(np.finfo(dtype).eps)  # twice the largest leg's
    for turn in range(3):
        w = np.full((70, 70), inf, dtype)
        w[[0, 33, 69], [33, 69, 0]] = np.roll(legs, turn)
        for options in (
            {},
            {"method": "squaring"},
            {"sources": [0, 5]},
            {"return_predecessors": True},
        ):
            d = sm.apsp(w, **options)
            d = d[0] if isinstance(d, tuple) else d
            assert_allclose(d[0, 33], w[0, 33], rtol=0, atol=unit)
            assert d[0, 0] == 0
    w = np.full((3, 3), inf, dtype)
    w[[0, 1, 2], [1, 2, 0]] = 0.7, 0.1, -0.81
    with pytest.raises(sm.NegativeCycleError):
        sm.apsp(w)


def test_rounded_potentials_on_many_nodes():
    n = 150
    w = rng(19).random((n, n))
    w[rng(20).random((n, n)) < 0.9] = 0
    height = 10 * rng(21).random(n)
    shifted = w + height[:, None] - height
    d = sm.apsp(shifted)
    assert_allclose(d - height[:, None] + height, scipy_distances(w), atol=1e-11)


# --- refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("graph", "error", "words"),
    [
        (np.array([[0, np.nan], [1, 0]]), ValueError, r"weight at \[0, 1\] is NaN; use inf for no"),
        (np.array([[0, 1], [-inf, 0]]), ValueError, r"weight at \[1, 0\] is -inf; use inf"),
        (np.ones((2, 3)), ValueError, r"a graph's matrix is square, got shape \(2, 3\)"),
        (np.ones(4), ValueError, r"square, got shape \(4,\)"),
        (np.ones((2, 2, 2, 2)), ValueError, r"square, got shape \(2, 2, 2, 2\)"),
        (np.ones((2, 2), complex), TypeError, "weights are real numbers, got dtype complex128"),
        (np.array([["a", "b"]] * 2), TypeError, "real numbers, got dtype <U1"),
        (np.array([[1, None]] * 2, object), TypeError, "real numbers, got dtype object"),
        (np.ones((2, 2), bool), TypeError, "use lor_land, or a numeric dtype"),
        (np.ma.masked_equal(np.eye(2), 0), TypeError, r"masked array: use graph.filled\(inf\)"),
        (np.ma.ones((2, 2, 2)), TypeError, "masked array"),
        (sp.csr_array((2, 3)), ValueError, r"square, got shape \(2, 3\)"),
        (sp.csr_array(np.eye(2) * 1j), TypeError, "real numbers, got dtype complex128"),
        (sp.csr_array(np.eye(2) * np.nan), ValueError, "from node 0 to node 0 has weight NaN"),
        (nx.DiGraph([(1, 2, {"weight": "x"})]), TypeError, "must be numbers, got 'x'"),
        (nx.DiGraph([(1, 2, {"weight": None})]), TypeError, "must be numbers, got None between 1"),
        (None, TypeError, "or a path to a file, got NoneType"),
        (3, TypeError, "a graph is a square array of numbers, .* got int"),
        ("absent.gr", OSError, "No such file"),
    ],
)  # fmt: skip
def test_what_is_no_graph(graph, error, words):
    with pytest.raises(error, match=words):
        sm.apsp(graph)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"method": "dijkstra"}, ValueError, "method is 'auto', .* got 'dijkstra'"),
        ({"max_hops": 1.5}, TypeError, "max_hops must be an integer, got 1.5"),
        ({"max_hops": -1}, ValueError, "max_hops must be at least 0, got -1"),
        ({"max_hops": 2, "return_predecessors": True}, ValueError, "leave out return_predecessors"),
        ({"max_hops": 2, "method": "floyd_warshall"}, ValueError, "needs method='squaring'"),
        ({"sources": 3}, ValueError, "there is no node 3, they are 0 to 2"),
        ({"sources": [0, -1]}, ValueError, "there is no node -1"),
        ({"sources": [0.5]}, TypeError, "sources must be an integer, got 0.5"),
        ({"sources": "a"}, TypeError, "sources must be an integer, got 'a'"),
        ({"device": "cuda"}, ValueError, "CuPy"),
    ],
)
def test_options_refused(options, error, words):
    with pytest.raises(error, match=words):
        sm.apsp(np.ones((3, 3)), **options)


# --- the same each time ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_bits_do_not_depend_on_the_threads(dtype):
    w = rng(22).random((300, 300)).astype(dtype)
    w[w > 0.1] = inf
    found = []
    for threads in (1, 2, 4, 2):
        sm.set_num_threads(threads)
        d, p = sm.apsp(w, return_predecessors=True)
        found.append((d.tobytes(), p.tobytes(), sm.apsp(w).tobytes()))
        found[-1] += (sm.apsp(np.minimum(w, w.T)).tobytes(),)
    assert len(set(found)) == 1


@pytest.mark.parametrize("shape", [(40, 40), (3, 20, 20)])
@pytest.mark.parametrize("predecessors", [False, True])
@pytest.mark.parametrize("dtype", [">f8", ">f4", ">i4", ">i2"])
def test_foreign_byte_order_in_place(dtype, shape, predecessors):
    """The result is in the memory given, in its byte order."""
    w = np.random.default_rng(0).integers(1, 50, shape).astype(dtype)
    expected = sm.apsp(w.astype(w.dtype.newbyteorder("=")))
    found = sm.apsp(w, overwrite=True, return_predecessors=predecessors)
    d = found[0] if predecessors else found
    assert d is w
    assert d.dtype == dtype
    assert_array_equal(d, expected)


@pytest.mark.parametrize(("side", "most"), [(10, 270), (30, 316), (45, 323)])
def test_calls_do_not_grow_with_the_graph(side, most):
    """Nothing is done in Python for each node, level, or block of sources.

    Some 300 calls are left: each of 15 kernels checks its arguments once, and memory, weights and
    costs are looked at once.
    """
    n, row, col = grid(side)
    weight = np.random.default_rng(0).random(2 * len(row)) + 0.1
    ends = np.append(row, col), np.append(col, row)
    graph = sp.csr_array((weight, ends), shape=(n, n))
    calls = 0

    def count(frame, event, arg):
        nonlocal calls
        calls += event == "call"

    with pool.limited(1):
        for _ in range(2):
            sm.apsp(graph)
        sys.setprofile(count)
        try:
            sm.apsp(graph)
        finally:
            sys.setprofile(None)
    assert calls <= most
