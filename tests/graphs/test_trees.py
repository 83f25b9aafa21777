"""Predecessors where cycles have weight zero, exactly or but for rounding: every path is walked."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

import semiring_mm as sm
from semiring_mm.closures.edges import EdgeList
from semiring_mm.closures.solve import Problem
from semiring_mm.closures.sources import DenseSource
from semiring_mm.closures.trees import repair_trees
from semiring_mm.cpu import engine
from semiring_mm.semirings import semirings
from semiring_mm.tiled.devices import Device
from semiring_mm.tiled.solve import over
from semiring_mm.tiled.stored import solve_streamed

i = np.inf
A = np.array([[i, -0.8, i], [0.8, i, i], [0.2, i, i]])
B = np.array([[i, 0.3, -0.4, i], [i, i, i, -0.9], [i, 0.8, i, -0.1], [i, 0.9, i, i]])
C = np.array([[i, i, i, 1.4], [i, i, 0.2, i], [i, i, i, 1.3], [i, i, -1.3, i]])
DTYPES = [np.float64, np.float32, np.int64, np.int32, np.int16]


def tenths(seed, n=30, density=0.3):
    """Weights h[v] - h[u] + 0 … 8, in tenths, and where there are edges: many cycles weigh 0."""
    rng = np.random.default_rng(seed)
    h = rng.integers(0, 100, n)
    there = (rng.random((n, n)) < density) & ~np.eye(n, dtype=bool)
    return h - h[:, None] + rng.integers(0, 9, (n, n)), there


def matrix(weights, there, dtype):
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return np.where(there, weights / 10, i).astype(dtype)
    return np.where(there, weights, np.iinfo(dtype).max).astype(dtype)


def exact(weights, there):
    """Distances in tenths, by Floyd and Warshall."""
    d = np.where(there, weights, 10**6)
    np.fill_diagonal(d, 0)
    for k in range(len(d)):
        d = np.minimum(d, d[:, k, None] + d[k])
    return d


def check(w, d, p, sources=None, best=None):
    """Rows of `p` are trees of edges of `w`, over all that is reached, as long as `d` says.

    A sum of up to n weights, in any order, is off by n half units of their absolute sum; so is
    the distance of the path that an elimination took, which may go around cycles of weight zero.
    """
    n = len(w)
    real = w.dtype.kind == "f"
    unit = n * Fraction(float(np.finfo(w.dtype).eps)) if real else 0
    none = i if real else np.iinfo(w.dtype).max
    size = 2 * Fraction(float(abs(w[w < none]).max())) if real else 0
    for line, root in enumerate(range(n) if sources is None else sources):
        assert p[line, root] == -9999
        assert d[line, root] == 0
        total, length = {root: Fraction(0)}, {root: Fraction(0)}
        for j in np.flatnonzero(d[line] == none):
            assert p[line, j] == -9999
        for j in np.flatnonzero(d[line] != none).tolist():
            walk = [j]
            while walk[-1] not in total:
                walk.append(int(p[line, walk[-1]]))
                assert 0 <= walk[-1] < n
                assert len(walk) <= n
            for v, u in itertools.pairwise(reversed(walk)):
                assert w[v, u] < none
                weight = Fraction(w[v, u].item())
                total[u], length[u] = total[v] + weight, length[v] + abs(weight)
            bound = unit * (length[j] + size)
            assert abs(total[j] - Fraction(d[line, j].item())) <= bound
            if best is not None:
                goal = Fraction(int(best[root, j]), 10 if real else 1)
                assert abs(total[j] - goal) <= bound


def dense(w, **options):
    return sm.apsp(w, return_predecessors=True, **options)


def negated(w):
    """The same over max_plus."""
    if w.dtype.kind == "f":
        d, p = sm.closure(-w, "max_plus", return_predecessors=True)
        return -d, p
    ends = np.iinfo(w.dtype)
    d, p = sm.closure(np.where(w == ends.max, ends.min, -w), "max_plus", return_predecessors=True)
    return np.where(d == ends.min, ends.max, -d), p


def batch(w):
    d, p = sm.apsp(np.stack([w, w]), return_predecessors=True)
    np.testing.assert_array_equal(p[0], p[1])
    return d[1], p[1]


def problem(w):
    return Problem.of(DenseSource(semirings["min_plus"], w), predecessors=True)


def tiles(w):
    return problem(w).solve(over([Device()], 8))


def out_of_core(w):
    into = np.empty_like(w), np.empty(w.shape, np.int32)
    return problem(w).solve(lambda x: solve_streamed(x, out=into, tile=8))


WAYS = {
    "floyd_warshall": lambda w: dense(w, method="floyd_warshall"),
    "squaring": lambda w: dense(w, method="squaring"),
    "sparse": lambda w: dense(w, method="sparse"),
    "overwrite": lambda w: dense(w.copy(), overwrite=True),
    "max_plus": negated,
    "batch": batch,
    "tiles": tiles,
    "out_of_core": out_of_core,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("w", [A, B, C], ids="ABC")
def test_small_cycles_that_round_to_zero(w, way):
    check(w, *WAYS[way](w))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_many_cycles_of_weight_zero(dtype, way):
    for seed in range(4):
        weights, there = tenths(seed)
        w = matrix(weights, there, dtype)
        check(w, *WAYS[way](w), best=exact(weights, there))


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int16])
@pytest.mark.parametrize("way", WAYS)
def test_integers(dtype, way):
    weights, there = tenths(9)
    w = matrix(weights, there, dtype)
    check(w, *WAYS[way](w), best=exact(weights, there))


@pytest.mark.parametrize("dtype", DTYPES)
def test_from_some_sources(dtype):
    for seed, sources in ((5, [3]), (6, [29, 0, 11])):
        weights, there = tenths(seed)
        w = matrix(weights, there, dtype)
        check(w, *dense(w, sources=sources), sources, exact(weights, there))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_larger_graphs(dtype):
    for n, density in ((150, 0.3), (200, 0.02)):
        weights, there = tenths(n, n, density)
        w = matrix(weights, there, dtype)
        check(w, *dense(w, method="floyd_warshall"), best=exact(weights, there))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_weights_that_vanish_beside_others(dtype):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        w = rng.choice([1e-20, 1, 1 + 1e-7, 0, i], (40, 40), p=[0.1, 0.1, 0.1, 0.05, 0.65])
        w = w.astype(dtype)
        np.fill_diagonal(w, i)
        for way in ("floyd_warshall", "squaring", "sparse", "overwrite", "batch", "tiles"):
            check(w, *WAYS[way](w))
        w = np.maximum(w, w.T)
        check(w, *dense(w, directed=False))


def test_products_along_cycles_that_round_to_one():
    """max_times, where w = h[v] / h[u] times up to one."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        h = rng.integers(1, 100, 30)
        w = h / h[:, None] * rng.choice([1, 0.875, 0.5], (30, 30)) * (1 - 1e-13)
        w[rng.random((30, 30)) < 0.7] = 0
        d, p = sm.closure(w, "max_times", return_predecessors=True)
        for root, j in zip(*np.nonzero(d), strict=True):
            value, node = 1.0, j
            for _ in range(31):
                if node == root:
                    break
                value, node = value * w[p[root, node], node], p[root, node]
            assert node == root
            np.testing.assert_allclose(value, d[root, j], rtol=1e-12)


def test_a_stray_node_takes_the_path_that_fits_best():
    """2 and 3 precede each other; of the edges into them 1 -> 2 is off by an ulp, 0 -> 3 by 0.5."""
    d = np.array([[0, 0.5, 1, 1.5]])
    p = np.array([[-9999, 0, 3, 2]], np.int32)
    start, end = np.array([0, 1, 0, 2, 3]), np.array([1, 2, 3, 3, 2])
    weight = np.array([0.5, 0.5 + 2**-53, 2.0, 0.5, -0.5])
    edges = EdgeList.of(4, start, end, weight)
    repair_trees(engine, semirings["min_plus"], d, p, lambda: edges, np.array([0]))
    np.testing.assert_array_equal(p, [[-9999, 0, 1, 2]])
    p[0, 2:] = 3, 2
    none = EdgeList.of(4, start[:1], end[:1], weight[:1])
    with pytest.raises(ValueError, match="min_plus: no path along edges from node 0 to node 2"):
        repair_trees(engine, semirings["min_plus"], d, p, lambda: none, np.array([0]))


def test_roots_lose_the_predecessors_that_rounding_gave_them():
    """Also where all else is right, and in rows of sources in any order."""
    d = np.array([[1.0, 0, 2], [0, 1, 3]])
    p = np.array([[1, 2, 1], [1, 0, 1]], np.int32)  # 1 -> 0, 1 -> 2 and 0 -> 1; -> root
    row, col = np.array([1, 0, 1]), np.array([0, 1, 2])
    edges = EdgeList.of(3, row, col, np.array([1.0, 1, 2]))
    repair_trees(engine, semirings["min_plus"], d, p, lambda: edges, np.array([1, 0]))
    np.testing.assert_array_equal(p, [[1, -9999, 1], [-9999, 0, 1]])


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("zeros", [0.3, 0.8, 1.0])
def test_edges_of_length_zero_abound(zeros, directed, dtype):
    """Parallel edges, too; by each method, from all and some nodes."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        n, m = 60, (70, 150)[seed % 2]
        row, col = rng.integers(0, n, (2, m))
        weight = np.where(rng.random(m) < zeros, 0, rng.integers(1, 9, m)).astype(dtype)
        edges = EdgeList(range(n), row, col, weight, directed)
        w = np.full((n, n), i)  # distances without a path are infinite, of integers, too
        np.minimum.at(w, (row, col), weight)
        w = w if directed else np.minimum(w, w.T)
        some = rng.permutation(n)[:9]
        for method in ("sparse", "squaring", "floyd_warshall"):
            check(w, *map(np.asarray, dense(edges, method=method)))
            check(w, *map(np.asarray, dense(edges, method=method, sources=some)), some)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.int32])
def test_random_graphs_with_cycles_of_weight_zero(dtype):
    """Parallel edges, loops, parts without a path, and edges that any shortest path ends with."""
    none, repaired = i if np.dtype(dtype).kind == "f" else np.iinfo(dtype).max, 0
    for seed in range(600):
        rng = np.random.default_rng(seed)
        n, directed = int(rng.integers(2, 13)), seed % 3 > 0
        row, col = rng.integers(0, n, (2, int(rng.integers(1, 3 * n))))
        weight = rng.choice([0, 0, 0, 1, 2, 5], len(row))
        if directed and seed % 2:  # cycles of weight 0 of other weights, too
            h = rng.integers(0, 4, n)
            weight += h[col] - h[row]
        edges = EdgeList(range(n), row, col, weight.astype(dtype), directed)
        w = np.full((n, n), i)
        np.minimum.at(w, (row, col), weight)
        w = w if directed else np.minimum(w, w.T)
        best = exact(np.where(w < i, w, 0), w < i)
        check(w, *map(np.asarray, dense(edges, method="sparse")))

        d, tree = best.astype(dtype), np.full((n, n), -9999, np.int32)
        d[best > 10**5] = none
        for root, v in zip(*np.nonzero(best < 10**5), strict=True):
            if v != root:  # an edge from the node to itself ends no path
                before = np.flatnonzero(best[root] + w[:, v] == best[root, v])
                tree[root, v] = rng.choice(before[before != v])
        given = tree.copy()
        repair_trees(engine, semirings["min_plus"], d, tree, lambda x=edges: x)
        check(w, np.where(d == none, i, d), tree)
        repaired += (given != tree).any()
    assert repaired > 100


@pytest.mark.filterwarnings("ignore:the weight at")
@pytest.mark.parametrize(
    ("name", "mul", "weights"),
    [
        ("max_min", np.minimum, [1, 2, i]),
        ("min_max", np.maximum, [1, 2, -i]),
        ("max_times", np.multiply, [1, 1, 0.5, 0.25]),
    ],
)
def test_cycles_of_edges_that_weigh_one(name, mul, weights):
    """The last edges of best paths lead back to the root, whichever cycles they close."""
    s = semirings[name]
    zero = s.identities(np.dtype(float))[0]
    for seed in range(150):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 12))
        w = np.where(rng.random((n, n)) < 0.3, rng.choice(weights, (n, n)), zero)
        np.fill_diagonal(w, zero)
        d, none = sm.closure(w, name), np.full((n, n), -9999, np.int32)
        last = mul(d[:, :, None], w) == d[:, None]  # i, u, v: u may be before v
        last &= (w != zero) & (d != zero)[:, :, None]
        p = np.where(last.any(axis=1), (last * rng.random((n, n, 1))).argmax(axis=1), none)
        p = p.astype(np.int32)
        row, col = np.nonzero(w != zero)
        edges = EdgeList.of(n, row, col, w[row, col])
        repair_trees(engine, s, d, p, lambda x=edges: x)
        node = np.where(d == zero, np.arange(n)[:, None], np.arange(n))
        for _ in range(n):
            before = np.take_along_axis(p, node, 1)
            node = np.where(before < 0, node, before)
        np.testing.assert_array_equal(node, np.arange(n)[:, None].repeat(n, axis=1))
        for root, v in zip(*np.nonzero(p >= 0), strict=True):
            assert last[root, p[root, v], v]


def test_a_path_to_one_cycle_opens_another():
    """1 and 2, 3 and 4, 5 and 6 precede each other; the one way is 0 -> 1 -> 2 -> ... -> 6."""
    edges = [(0, 1), *((u, v) for u in range(1, 6) for v in (u + 1,)), (2, 1), (4, 3), (6, 5)]
    row, col = np.array(edges).T
    for last in ([5, 6], [6, 5]):  # in either order
        names = np.arange(7)
        names[5:] = last
        p = np.full((1, 7), -9999, np.int32)
        p[0, names[1:]] = names[[2, 1, 4, 3, 6, 5]]
        list_of = EdgeList.of(7, names[row], names[col], np.zeros(len(row)))
        repair_trees(engine, semirings["min_plus"], np.zeros((1, 7)), p, lambda x=list_of: x,
                     np.array([0]))  # fmt: skip
        np.testing.assert_array_equal(p[0, names], [-9999, *names[:6]])


def cycle(*legs, dtype=float):
    """A cycle of these weights over some nodes of a larger graph."""
    dtype, n = np.dtype(dtype), 3 * len(legs)
    w = np.full((n, n), i if dtype.kind == "f" else np.iinfo(dtype).max, dtype)
    at = np.arange(0, n, 3)
    w[at, np.roll(at, -1)] = legs
    return w


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("legs", "dtype", "negative"),
    [
        ((0.7, 0.1, -0.8), np.float64, False),  # -8e-17: decimals that are off by half a unit
        ((0.7, 0.1, -0.8), np.float32, False),
        ((0.7, 0.1, -0.8 - 2**-52), np.float64, True),
        ((4.2e6, -1, -4.2e6), np.float32, True),
        ((4.2e6, -0.25, -4.2e6), np.float32, False),  # a quarter is half a unit of 4.2e6
        ((2**53, -1, -(2**53)), np.float64, False),
        ((2**54, -1, -(2**54)), np.int64, True),
        ((2**28, -1, -(2**28)), np.int32, True),
        ((1e-10, -2e-10), np.float64, True),
    ],
)
def test_the_exact_sum_decides_whether_a_cycle_is_negative(legs, dtype, negative, way):
    w = cycle(*legs, dtype=dtype)
    if not negative:
        check(w, *WAYS[way](w))
        return
    with pytest.raises(ValueError, match="cycle") as caught:
        WAYS[way](w)
    if way != "max_plus":
        assert sorted(caught.value.cycle) == list(range(0, len(w), 3))
        assert caught.value.weight == sum(map(Fraction, np.array(legs, dtype).tolist()))


@pytest.mark.parametrize("way", WAYS)
def test_a_cycle_that_rounds_takes_no_digits_from_other_weights(way):
    w = np.full((12, 12), i)
    w[[0, 1, 2], [1, 2, 0]] = 0.7, 0.1, -0.8
    w[[2, 3, 4], [3, 4, 5]] = 1, 1e-10, -1e6
    w[[5, 6, 6, 8, 7], [6, 7, 8, 7, 9]] = -1e17, 2, 1, 0.5, 1e-10
    w[10, [6, 7]] = 1, 4
    d, p = WAYS[way](w)
    check(w, d, p)
    np.testing.assert_array_equal(
        d[[3, 6, 6, 7, 10, 10, 0], [4, 7, 8, 9, 7, 8, 3]], [1e-10, 1.5, 1, 1e-10, 2.5, 2, d[0, 3]]
    )
