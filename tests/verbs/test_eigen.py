"""Cycle means and eigenvectors over max_plus and min_plus."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from optional import sp

import semiring_mm as sm

inf = np.inf


def brute_force(a):
    """The largest mean of a simple cycle."""
    best = -inf
    for length in range(1, len(a) + 1):
        for nodes in itertools.permutations(range(len(a)), length):
            if nodes[0] == min(nodes):
                weights = [a[i, j] for i, j in zip(nodes, nodes[1:] + nodes[:1], strict=True)]
                best = max(best, sum(weights) / length)
    return best


def karp(a):
    """Karp's theorem (1978), of a graph in which node 0 reaches all others."""
    n = len(a)
    rows = [np.where(np.arange(n) == 0, 0.0, -inf)]
    for _ in range(n):
        rows.append(sm.matmul(rows[-1], a, "max_plus"))
    with np.errstate(invalid="ignore"):
        means = [(rows[n] - rows[k]) / (n - k) for k in range(n)]
    return np.fmin.reduce(means).max()


def exact_karp(edges, n):
    """The largest mean of a cycle by Karp's theorem, of walks from anywhere; None: no cycle."""
    rows = [[Fraction(0)] * n]
    for _ in range(n):
        new = [None] * n
        for i, j, w in edges:
            if rows[-1][i] is not None and (new[j] is None or rows[-1][i] + w > new[j]):
                new[j] = rows[-1][i] + w
        rows.append(new)
    return max(
        (
            min((rows[n][j] - rows[k][j]) / (n - k) for k in range(n) if rows[k][j] is not None)
            for j in range(n) if rows[n][j] is not None
        ),
        default=None,
    )  # fmt: skip


def check_exactly(a, found):
    """Over max_plus, all as it is in rational numbers: the vector to some roundings."""
    n = len(a)
    edges = [(i, j, Fraction(a[i][j])) for i in range(n) for j in range(n) if a[i][j] > -inf]
    value = exact_karp(edges, n)
    if value is None:
        assert (found.value, found.cycle) == (-inf, [])
        return
    assert found.value == float(value)
    closed = [*found.cycle, found.cycle[0]]
    weights = [Fraction(a[i][j]) for i, j in itertools.pairwise(closed)]
    assert sum(weights) / len(weights) == value
    assert len(set(found.cycle)) == len(found.cycle)
    potential = {i: Fraction(x) for i, x in enumerate(found.vector) if x > -inf}
    assert set(found.cycle) <= potential.keys()
    for i in range(n):
        sums = [(w + potential[j], abs(w), j) for k, j, w in edges if k == i and j in potential]
        assert bool(sums) == (i in potential)
        if sums:
            best, size, j = max(sums)
            size = max(size, abs(value), abs(potential[i]), abs(potential[j]))
            rounding = size * Fraction(2) ** -51 + Fraction(2) ** -1073
            assert abs(best - value - potential[i]) <= rounding


def check(a, found, name="max_plus"):
    """The vector is one, and the cycle is there and has that mean."""
    with np.errstate(invalid="ignore"):
        assert_allclose(sm.matmul(a, found.vector, name), found.value + found.vector, atol=1e-9)
    assert np.isfinite(found.vector).any()
    if found.cycle:
        closed = [*found.cycle, found.cycle[0]]
        assert len(set(found.cycle)) == len(found.cycle)
        weights = [a[i, j] for i, j in itertools.pairwise(closed)]
        assert_allclose(np.mean(weights), found.value, rtol=1e-14, atol=1e-14)


WEIGHTS = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "tiny": lambda rng, shape: 1e-12 * rng.normal(size=shape),
    "ties": lambda rng, shape: rng.integers(-2, 3, shape),
    "tenths": lambda rng, shape: rng.integers(-5, 6, shape) * 0.1,
    "of all sizes": lambda rng, shape: (
        rng.integers(-3, 4, shape) * 10.0 ** rng.integers(-300, 300, shape)
    ),
    "subnormal": lambda rng, shape: rng.integers(-9, 10, shape) * 5e-324,
    "large integers": lambda rng, shape: rng.integers(-(2**62), 2**62, shape),
}


@pytest.mark.parametrize("kind", WEIGHTS)
def test_exactly_as_in_fractions(kind):
    """Dense, sparse and of several parts, with entries far larger and far smaller than others."""
    rng = np.random.default_rng(sum(map(ord, kind)))
    for trial in range(430):
        n = trial % 7 + 1
        a = WEIGHTS[kind](rng, (n, n)).astype(object)
        for far in rng.choice([-1e13, -1e12, 1e-12, -1e-12, 1e12, 1e13], trial % 3):
            a[tuple(rng.integers(n, size=2))] = int(far) if kind == "large integers" else far
        there = rng.random((n, n)) < (0.2, 0.5, 1)[trial // 7 % 3]
        if trial // 21 % 2:  # parts that reach each other in one direction, or not at all
            there[n // 2 :, : n // 2] = False
        dtype = np.int64 if kind == "large integers" else np.float64
        missing = np.iinfo(np.int64).min if kind == "large integers" else -inf
        given = np.where(there, a, missing).astype(dtype)
        exact = np.where(there, a, -inf).tolist()
        check_exactly(exact, sm.eigenvalues.eigen(given, "max_plus"))


def test_the_value_is_rounded_once():
    ring = np.full((4, 4), -inf)
    ring[[0, 1, 2, 3], [1, 2, 3, 0]] = [1.0, 1e100, 1.0, -1e100]
    assert sm.eigenvalues.eigen(ring).value == 0.5


def test_integers_are_exact_and_their_ends_are_no_edges():
    big = 2**53
    assert sm.eigenvalues.eigen(np.array([[big + 1, big], [big, big]])).cycle == [0]
    assert sm.eigenvalues.eigen(np.array([[big, big], [big, big + 1]], "u8")).cycle == [1]
    assert sm.eigenvalues.eigen(np.array([[2**64 - 2, 0], [0, 2**64 - 3]], "u8")).cycle == [0]
    end = np.iinfo("i8").max
    assert sm.eigenvalues.eigen(np.array([[end, 3], [end, end]]), "min_plus").value == inf
    assert sm.eigenvalues.eigen(np.array([[end, 3], [4, end]]), "min_plus").value == 3.5
    least = sm.eigenvalues.eigen(np.array([[-end - 1, 3], [4, 0]]), "min_plus")
    assert (least.value, least.cycle) == (-(2.0**63), [0])


def test_sparse_integers_are_exact_too():
    big = 2**53
    a = sp.coo_array(([big, big + 1, 7], ([0, 1, 0], [0, 1, 1])), shape=(2, 2))
    assert sm.eigenvalues.eigen(a).cycle == [1]
    with pytest.raises(ValueError, match="matrix of numbers, got complex128"):
        sm.eigenvalues.eigen(a.astype(complex))


def test_a_long_path_takes_one_look_at_each_edge():
    n = 100_000
    path = sp.csr_array((np.ones(n), (np.arange(n), np.arange(1, n + 1))), shape=(n + 1, n + 1))
    assert sm.eigenvalues.eigen(path).cycle == []
    path = path.tolil()
    path[n, n] = 2.0
    assert sm.eigenvalues.eigen(path.tocsr()).vector[0] == -n


def test_a_vector_beyond_float64_is_refused():
    a = np.array([[1e308, -inf, -inf], [-1e308, -inf, -inf], [-inf, -1e308, -inf]])
    with pytest.raises(OverflowError, match="divide the weights by a power of two"):
        sm.eigenvalues.eigen(a)


@pytest.mark.parametrize("density", [0.2, 0.4, 1.0])
def test_all_cycles_of_small_graphs(density):
    """Also of several parts that do not reach each other, and without any cycle."""
    rng = np.random.default_rng(int(10 * density))
    for trial in range(25):
        n = trial % 6 + 1
        a = np.where(rng.random((n, n)) < density, rng.integers(-9, 9, (n, n)) * 1.0, -inf)
        found = sm.eigenvalues.eigen(a, "max_plus")
        assert_allclose(found.value, brute_force(a), rtol=1e-14)
        check(a, found)
        least = sm.eigenvalues.eigen(-a, "min_plus")
        assert least.value == -found.value
        assert_array_equal(least.vector, -found.vector)
        assert not (np.signbit(least.vector) & (least.vector == 0)).any()
        assert least.cycle == found.cycle


def test_karp():
    a = np.random.default_rng(3).normal(size=(60, 60))
    found = sm.eigenvalues.eigen(a)
    assert_allclose(found.value, karp(a), rtol=1e-12)
    check(a, found)
    assert np.isfinite(found.vector).all()


def test_a_large_ring_among_sparse_edges():
    n = 3000
    rng = np.random.default_rng(4)
    ring = np.roll(np.arange(n), -1)
    rows, columns = np.concatenate([np.arange(n), rng.integers(n, size=(2 * n,))]), None
    columns = np.concatenate([ring, rng.integers(n, size=(2 * n,))])
    weights = np.concatenate([np.full(n, 7.0), rng.random(2 * n)])
    a = sp.csr_array((weights, (rows, columns)), shape=(n, n))
    a.sum_duplicates()
    found = sm.eigenvalues.eigen(a, "max_plus")
    assert 7 <= found.value < 7 + 1e-2
    through = a.tocoo()
    best = np.full(n, -inf)
    np.maximum.at(best, through.row, through.data + found.vector[through.col])
    assert_allclose(best, found.value + found.vector, atol=1e-8)


def test_rules():
    none = sm.eigenvalues.eigen(np.array([[-inf, 1.0], [-inf, -inf]]))
    assert (none.value, none.cycle) == (-inf, [])
    assert_array_equal(none.vector, [0, -inf])
    assert sm.eigenvalues.eigen(np.zeros((0, 0))).value == -inf
    assert sm.eigenvalues.eigen([[4]]).cycle == [0]
    apart = sm.eigenvalues.eigen(np.array([[2.0, -inf], [-inf, 5.0]]))
    assert (apart.value, apart.cycle) == (5.0, [1])
    assert_array_equal(apart.vector, [-inf, 0])
    integers = sm.eigenvalues.eigen(np.array([[0, 3], [4, 0]], "i2"), "max_plus")
    assert (integers.value, integers.cycle) == (3.5, [0, 1])


@pytest.mark.parametrize(
    ("a", "semiring", "words"),
    [
        (np.zeros((2, 2)), "plus_times", "over max_plus or min_plus, got plus_times"),
        (np.zeros((2, 3)), "max_plus", r"square matrix, got shape \(2, 3\)"),
        (np.zeros(3), "max_plus", r"shape \(3,\)"),
        (np.array([[np.nan]]), "max_plus", "holds NaN"),
        (np.array([[inf]]), "max_plus", "holds inf"),
        (np.array([[-inf]]), "min_plus", "holds -inf"),
        (np.zeros((2, 2), complex), "max_plus", "complex"),
    ],
)
def test_what_is_refused(a, semiring, words):
    with pytest.raises(ValueError, match=words):
        sm.eigenvalues.eigen(a, semiring)
