"""Cycle means and eigenvectors over max_plus and min_plus."""

import itertools

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


@pytest.mark.parametrize("density", [0.2, 0.4, 1.0])
def test_all_cycles_of_small_graphs(density):
    """Also of several parts that do not reach each other, and without any cycle."""
    rng = np.random.default_rng(int(10 * density))
    for trial in range(25):
        n = trial % 6 + 1
        a = np.where(rng.random((n, n)) < density, rng.integers(-9, 9, (n, n)) * 1.0, -inf)
        found = sm.eigen(a, "max_plus")
        assert_allclose(found.value, brute_force(a), rtol=1e-14)
        check(a, found)
        least = sm.eigen(-a, "min_plus")
        assert least.value == -found.value
        assert_array_equal(least.vector, -found.vector)
        assert not (np.signbit(least.vector) & (least.vector == 0)).any()
        assert least.cycle == found.cycle


def test_karp():
    a = np.random.default_rng(3).normal(size=(60, 60))
    found = sm.eigen(a)
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
    found = sm.eigen(a, "max_plus")
    assert 7 <= found.value < 7 + 1e-2
    through = a.tocoo()
    best = np.full(n, -inf)
    np.maximum.at(best, through.row, through.data + found.vector[through.col])
    assert_allclose(best, found.value + found.vector, atol=1e-8)


def test_rules():
    none = sm.eigen(np.array([[-inf, 1.0], [-inf, -inf]]))
    assert (none.value, none.cycle) == (-inf, [])
    assert_array_equal(none.vector, [0, -inf])
    assert sm.eigen(np.zeros((0, 0))).value == -inf
    assert sm.eigen([[4]]).cycle == [0]
    apart = sm.eigen(np.array([[2.0, -inf], [-inf, 5.0]]))
    assert (apart.value, apart.cycle) == (5.0, [1])
    assert_array_equal(apart.vector, [-inf, 0])
    integers = sm.eigen(np.array([[0, 3], [4, 0]], "i2"), "max_plus")
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
        sm.eigen(a, semiring)
