"""Closures over other semirings than that of shortest paths."""

import itertools
import re

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from walks import check_paths

import semiring_mm as sm
from semiring_mm.closures.edges import EdgeList
from semiring_mm.closures.steps import Improves, Steps
from semiring_mm.cpu import closure_program
from semiring_mm.cpu import engine as cpu
from semiring_mm.cpu import product as cpu_product
from semiring_mm.plan import Facts

inf = np.inf
# semiring: (⊕, ⊗, zero, one, weights of the edges)
CASES = {
    "max_min": (np.maximum, np.minimum, -inf, inf, lambda rng, n: rng.integers(-9, 9, (n, n))),
    "min_max": (np.minimum, np.maximum, inf, -inf, lambda rng, n: rng.integers(-9, 9, (n, n))),
    "max_times": (np.maximum, np.multiply, 0, 1, lambda rng, n: 0.5 ** rng.integers(0, 4, (n, n))),
    "min_times": (
        np.minimum,
        np.multiply,
        inf,
        1,
        lambda rng, n: 2.0 ** rng.integers(4, size=(n, n)),
    ),
    "min_plus": (np.minimum, np.add, inf, 0, lambda rng, n: rng.integers(0, 5, (n, n))),
}


def graph(name, n, density, dtype=np.float64):
    rng = np.random.default_rng(n)
    *_, zero, _, make = CASES[name]
    return np.where(rng.random((n, n)) < density, make(rng, n), zero).astype(dtype)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint8, np.int64])
@pytest.mark.parametrize("name", ["max_min", "min_max"])
def test_integers_that_are_only_compared(name, dtype):
    info = np.iinfo(dtype)
    low, high = (info.min, info.max) if name == "max_min" else (info.max, info.min)
    rng = np.random.default_rng(1)
    w = rng.integers(1, 100, (90, 90)).astype(dtype)
    w[rng.random((90, 90)) < 0.95] = low
    c = sm.closure(w, name)
    wide = np.where(w == low, -inf if name == "max_min" else inf, w.astype(float))
    expected = sm.closure(wide, name)
    assert_array_equal(c[~np.isinf(expected)], expected[~np.isinf(expected)])
    assert (c[np.isinf(expected) & ~np.eye(90, dtype=bool)] == low).all()
    assert (c.diagonal() == high).all()


@pytest.mark.parametrize("n", [0, 1, 2, 31, 33, 64, 65, 100, 200])
def test_reachability(n):
    rng = np.random.default_rng(n)
    for density in (0.5 / max(n, 1), 1.5 / max(n, 1), 0.3):
        a = rng.random((n, n)) < density
        c = sm.closure(a, "lor_land")
        assert c.dtype == bool
        power = np.eye(n, dtype=bool) | a
        for _ in range(8):
            power = (power.astype(np.float32) @ power.astype(np.float32)) > 0
        assert_array_equal(c, power)
        c, p = sm.closure(a, "lor_land", return_predecessors=True)
        assert_array_equal(c, power)
        check_paths(a, c, p, mul=lambda x, y: x and y, zero=False, one=True)


def test_longest_paths_without_cycles():
    rng = np.random.default_rng(2)
    n = 150
    w = np.where(np.triu(rng.random((n, n)) < 0.1, 1), rng.integers(-5, 9, (n, n)), -inf)
    order = rng.permutation(n)
    w = w[np.ix_(order, order)]
    c, p = sm.closure(w, "max_plus", return_predecessors=True)
    assert_array_equal(c, -sm.apsp(-w))
    check_paths(w, c, p, zero=-inf)
    low = np.iinfo(np.int32).min
    ints = np.where(np.isinf(w), low, w).astype(np.int32)
    assert_array_equal(sm.closure(ints, "max_plus"), np.where(np.isinf(c), low, c))


def test_a_semiring_of_ones_own():
    steps = sm.Semiring("min_maxabs", "min(a, b)", "max(abs(a), abs(b))", inf, 0)
    w = np.abs(graph("min_max", 100, 0.1))
    expected = sm.closure(w, "min_max")
    np.fill_diagonal(expected, 0)
    assert_array_equal(sm.closure(w, steps), expected)
    reliable = sm.Semiring("max_reliable", "max(a, b)", "a * b", 0, 1)
    w = graph("max_times", 100, 0.1)
    for x, y in zip(
        sm.closure(w, reliable, return_predecessors=True),
        sm.closure(w, "max_times", return_predecessors=True),
        strict=True,
    ):
        assert_array_equal(x, y)


def test_sparse_graphs_hold_any_edge_as_true():
    sp = pytest.importorskip("scipy.sparse")
    a = sp.csr_array(([0.0, 5], ([0, 1], [1, 2])), (3, 3))
    assert_array_equal(sm.closure(a, "lor_land"), np.triu(np.ones((3, 3), bool)))
    assert_array_equal(sm.closure(a, "max_min"), [[inf, 0, 0], [-inf, inf, 5], [-inf, -inf, inf]])


def test_overwrite_and_progress():
    w = graph("max_min", 200, 0.1)
    expected = sm.closure(w, "max_min")
    seen = []
    out = sm.closure(w, "max_min", overwrite=True, progress=lambda *x: seen.append(x))
    assert np.shares_memory(out, w)
    assert_array_equal(w, expected)
    assert seen[-1][0] == seen[-1][1]


@pytest.mark.parametrize(
    ("a", "semiring", "words"),
    [
        (np.eye(2), "plus_times", r"needs an idempotent ⊕ .* plus_times has ⊕ = a \+ b; use"),
        (np.eye(2), "log_plus", "needs an idempotent ⊕"),
        (np.eye(2), "xor_land", "needs an idempotent ⊕"),
        (np.eye(2), "nonsense", "no built-in semiring 'nonsense': choose one of plus_times"),
        (np.full((2, 2), 2.0), "max_plus", "max_plus: the cycle .* improves itself, so no closure"),
        (np.full((2, 2), np.nan), "max_min", r"weight at \[0, 0\] is NaN; use -inf for no edge"),
        (np.array([[0, inf], [0, 0]]), "max_plus", r"\[0, 1\] is inf; use -inf"),
    ],
)
def test_refused(a, semiring, words):
    with pytest.raises(ValueError, match=words):
        sm.closure(a, semiring)


#: Weights that are factors, with one cycle that is better than one, and what is said of it.
BEYOND = {
    "above one": (
        "max_times", [[0, 2, 0], [0, 0, 0.25], [3, 0, 0]],
        "the weight at [2, 0] is 3, and a cycle through node 0 multiplies to 1.5, better than "
        "one = 1, so no closure exists; give weights from 0 to 1",
    ),
    "a loop": ("max_times", [[0, 0, 0], [0, 5, 0], [0, 0, 0]], "the weight at [1, 1] is 5, and"),
    "negative": (
        "max_times", [[0, -2, 0], [-1, 0, 0], [0, 0, 0]],
        "the weight at [0, 1] is -2, and a cycle through node 0 multiplies to 2",
    ),
    "infinite": (
        "max_times", [[0, inf, 0], [0, 0, 0.5], [0, 0, 0]],
        "paths through node 0 leave the range of float64, as the weight at [0, 1] is inf; give",
    ),
    "below one": (
        "min_times", [[inf, 0.25, inf], [2, inf, inf], [inf, inf, inf]],
        "the weight at [0, 1] is 0.25, and a cycle through node 0 multiplies to 0.5, better than "
        "one = 1, so no closure exists; give weights of at least 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BEYOND)
def test_a_factor_beyond_one_is_named(case):
    semiring, rows, words = BEYOND[case]
    small = np.array(rows, float)
    words = f"{semiring}: {words}"
    large = np.full((150, 150), float(sm.semirings[semiring].zero))
    large[:3, :3] = small
    for given in (
        {"a": small}, {"a": large}, {"a": large.copy(), "overwrite": True},
        {"a": np.stack([small, small])}, {"a": large, "tiles": sm.Tiles(memory="64MB")},
        {"a": small, "return_predecessors": True},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"^{re.escape(words)}") as caught:
            sm.closure(**given, semiring=semiring)
        assert caught.value.__context__ is None
    without_cycle = np.triu(np.full((3, 3), 2.0), 1)
    assert sm.closure(without_cycle, "max_times")[0, 2] == 4


def test_a_factor_beyond_one_is_named_by_its_nodes():
    edges = EdgeList(["a", "b"], np.array([0, 1]), np.array([1, 0]), np.array([0.5, 4.0]), True)
    with pytest.raises(ValueError, match="the weight from b to a is 4, and a cycle through node a"):
        sm.closure(edges, "max_times")


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i4", "u1"])
@pytest.mark.parametrize("semiring", ["lor_land", "boolean"])
def test_numbers_over_bits_are_refused_as_in_a_product(dtype, semiring):
    a = np.eye(3, dtype=dtype)
    with pytest.raises(TypeError) as of_product:
        sm.matmul(a, a, semiring)
    for options in ({}, {"tiles": sm.Tiles(memory="64MB")}, {"return_predecessors": True}):
        with pytest.raises(TypeError) as of_closure:
            sm.closure(a, semiring, **options)
        assert str(of_closure.value) == str(of_product.value)
    assert "use dtype bool" in str(of_product.value)


def test_products_of_integers_are_refused():
    with pytest.raises(TypeError, match="integers would overflow; use float32 or float64"):
        sm.closure(np.ones((3, 3), int), "max_times")


def test_negative_cycle_over_min_plus():
    with pytest.raises(sm.NegativeCycleError):
        sm.closure(np.full((3, 3), -1.0), "min_plus")


def test_predecessors_need_a_choice():
    half = sm.Semiring("mid", "a if a == b else 0", "a * b", 0, 1)
    with pytest.raises(ValueError, match="chooses one of its operands; mid has ⊕"):
        sm.closure(np.eye(3), half, return_predecessors=True)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_an_operation_that_only_looks_like_a_sum(dtype):
    """a + b + 1: every step costs one more, so the empty path is -1 and edges of -1 are free."""
    toll = sm.Semiring("toll", "min(a, b)", "a + b + 1", np.inf, -1)
    w = np.random.default_rng(3).integers(-1, 20, (40, 40)).astype(dtype)
    expected = w.astype("f8")
    np.fill_diagonal(expected, -1)
    for k in range(40):
        expected = np.minimum(expected, expected[:, k : k + 1] + expected[k] + 1)
    assert_array_equal(sm.closure(w, toll), expected)
    w[3, 3] = -2
    with pytest.raises(ValueError, match="cycle through node 3 improves itself"):
        sm.closure(w, toll)
    with pytest.raises(TypeError, match="integers would overflow; use float32 or float64"):
        sm.closure(w.astype("i4"), toll)


@pytest.mark.parametrize("name", ["min_max", "max_min", "lor_land"])
def test_predecessors_of_truth_values(name):
    """Over min and max a bool is a number like others; over or/and no operand wins."""
    a = np.random.default_rng(3).random((40, 40)) < 0.1
    a = ~a if name == "min_max" else a
    d, p = sm.closure(a, name, return_predecessors=True)
    np.testing.assert_array_equal(d, sm.closure(a, name))
    tiled, _ = sm.closure(a, name, return_predecessors=True, tiles=sm.Tiles(memory="1MB"))
    np.testing.assert_array_equal(tiled, d)
    edge = ~a if name == "min_max" else a
    for i, j in np.argwhere((~d if name == "min_max" else d) & ~np.eye(40, dtype=bool))[::7]:
        path = sm.reconstruct_path(p, i, j)
        assert all(edge[u, v] for u, v in itertools.pairwise(path))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [6, 70, 150])
@pytest.mark.parametrize("predecessors", [False, True])
def test_paths_that_leave_the_range_are_told(n, dtype, predecessors):
    """-inf + inf and inf * 0 are NaN, which must not get lost beside numbers."""
    long = np.full((n, n), np.inf, dtype)
    long[[0, 1, 2], [1, 2, 3]] = -np.finfo(dtype).max / 1.5
    wide = np.zeros((n, n), dtype)
    wide[[0, 1], [1, 2]] = np.inf, 0.5
    for w, name in ((long, "min_plus"), (wide, "max_times")):
        for graph in (w, np.stack([w, w])):
            with pytest.raises(
                ValueError, match=f"{name}: paths .* leave the range of {dtype.__name__}"
            ):
                sm.closure(graph, name, return_predecessors=predecessors)


@pytest.mark.parametrize("kind", ["matrix", "edges", "tiles"])
def test_undirected_graphs_whose_product_does_not_commute_have_two_ways(kind, tmp_path):
    """The weight of the last edge counts, so ways there and back differ."""
    last = "a if b == -inf else b if a < inf else inf"
    s = sm.Semiring("min_last", "min(a, b)", last, np.inf, -np.inf)
    n = 200  # more than one tile of a small closure
    # dense in files, where else a search from each node is tried
    w = np.full((n, n), 1000.0 if kind == "tiles" else np.inf)
    steps = np.arange(n - 1)
    w[steps, steps + 1] = w[steps + 1, steps] = steps + 5
    if kind == "edges":
        graph = sm.files.Graph(range(n), steps, steps + 1, steps + 5.0, directed=False)
    else:
        graph = w
    options = {"tiles": sm.Tiles(memory="9MB")} if kind == "tiles" else {}
    d = np.asarray(sm.closure(graph, s, directed=False, **options))
    assert d[0, n - 1] == n + 3
    assert d[n - 1, 0] == 5
    assert (d == sm.closure(w, s, directed=True)).all()


# --- the steps on the CPU: one program for all threads ------------------------------------------


def graph_of(kind, n, rng):
    """Distances, undirected ones, weights below 0, and ones that are mostly no edge."""
    a = rng.random((n, n)).astype("f4")
    if kind == "undirected":
        return np.minimum(a, a.T)
    if kind == "negative":
        height = rng.random(n).astype("f4")
        return a + height[:, None] - height
    if kind == "few":
        a[rng.random(a.shape) < 0.9] = inf
    return a


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("kind", ["plain", "undirected", "negative", "few"])
def test_a_program_of_steps_gives_what_the_steps_give(monkeypatch, kind, threads):
    """To the last bit: however many threads there are, and wherever the program is cut."""
    a = graph_of(kind, 421, np.random.default_rng(11))

    def found():
        trees = sm.apsp(a, method="floyd_warshall", return_predecessors=True, device="cpu")
        return [sm.apsp(a, method="floyd_warshall", device="cpu"), *trees]

    before = sm.get_num_threads()
    try:
        sm.set_num_threads(1)
        monkeypatch.setattr(cpu, "eliminate", None)
        expected = found()
        monkeypatch.undo()
        sm.set_num_threads(threads)
        for longest in (1 << 32, 1 << 20):
            monkeypatch.setattr(cpu_product, "_LONGEST", longest)
            closure_program._program.cache_clear()
            for x, y in zip(found(), expected, strict=True):
                assert_array_equal(x, y)
    finally:
        closure_program._program.cache_clear()
        sm.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("at", [0, 63, 64, 200, 318])
def test_a_program_stops_at_the_first_cycle(monkeypatch, at, threads):
    a = np.random.default_rng(12).random((320, 320)) + 1
    a[at, at + 1], a[at + 1, at] = -9, 0.5
    np.fill_diagonal(a, 0)
    known = (Facts(-inf, inf, False),) * 3

    steps = Steps(sm.semirings["min_plus"], a.dtype, known, look=True)

    def found():
        with pytest.raises(Improves) as error:
            steps.close(cpu, a.copy(), None)
        return error.value.node, error.value.value

    before = sm.get_num_threads()
    try:
        sm.set_num_threads(threads)
        node, value = found()
        monkeypatch.setattr(cpu, "eliminate", None)
        assert (node, value) == found()
        assert value < 0
    finally:
        sm.set_num_threads(before)


def test_a_program_tells_how_much_is_done():
    seen = []
    a = np.random.default_rng(13).random((400, 400))

    def stop(done, total):
        seen.append(done / total)
        if done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sm.apsp(a, method="floyd_warshall", device="cpu", progress=stop)
    assert len(seen) > 10
    assert seen == sorted(seen)
    assert 0.5 < seen[-1] < 0.8
