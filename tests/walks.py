"""Graphs to test on, and a look at every path that is claimed."""

import itertools
import math

import numpy as np
from optional import csgraph, sp

import semiring_mm as sm

MISSING = -9999


def weights(rng, n, *, density=0.2, lo=1, hi=50, directed=True, dtype=np.float64, loops=False):
    """A matrix of whole weights, in which the dtype's zero of min_plus means no edge."""
    dtype = np.dtype(dtype)
    none = np.inf if dtype.kind == "f" else np.iinfo(dtype).max
    w = rng.integers(lo, hi + 1, (n, n)).astype(dtype)
    w[rng.random((n, n)) >= density] = none
    if not directed:
        w = np.minimum(w, w.T)
    if not loops:
        np.fill_diagonal(w, none)
    return w


def potentials(rng, w, largest=40):
    """The same graph with weights of both signs and no cycle cheaper than before."""
    height = rng.integers(-largest, largest + 1, len(w)).astype(w.dtype)
    out = w + height[:, None] - height[None, :]
    out[np.isinf(w)] = np.inf
    return out


def sparse(w):
    """A CSR matrix whose stored entries are the edges, zeros too."""
    none = np.inf if w.dtype.kind == "f" else np.iinfo(w.dtype).max
    row, col = np.nonzero(w != none)
    return sp.csr_array((w[row, col].astype(float), (row, col)), w.shape)


def scipy_distances(w, method="dijkstra", **options):
    """Distances by an algorithm that keeps edges of weight zero."""
    return getattr(csgraph, method)(sparse(w), **options)


def brute(w, hops, add=np.minimum, mul=np.add, zero=np.inf, one=0):
    """Best values over at most `hops` edges, one edge at a time."""
    n = len(w)
    step = w.copy()
    step[np.arange(n), np.arange(n)] = add(step.diagonal(), one)
    best = np.full_like(w, zero)
    np.fill_diagonal(best, one)
    for _ in range(hops if n else 0):
        before, best = best, add.reduce(mul(best[:, :, None], step[None]), axis=1)
        if np.array_equal(before, best, equal_nan=True):  # and so are all that follow
            break
    return best


def check_paths(w, d, p, *, mul=lambda a, b: a + b, zero=np.inf, one=0, sources=None, tol=0.0):
    """Walk every path: real edges, no node twice, and worth what the matrix says."""
    rows, n = d.shape
    roots = range(rows) if sources is None else sources
    assert p.dtype == np.int32
    assert p.shape == d.shape
    for i, root in enumerate(roots):
        assert p[i, root] == MISSING
        for j in range(n):
            if j == root:
                assert d[i, j] == one
                continue
            if d[i, j] == zero:
                assert p[i, j] == MISSING
                continue
            walk, node = [j], j
            while node != root:
                node = int(p[i, node])
                assert 0 <= node < n
                walk.append(node)
                assert len(walk) <= n
            walk.reverse()
            total = one
            for u, v in itertools.pairwise(walk):
                assert w[u, v] != zero
                total = mul(total, w[u, v].item())
            if tol:
                assert math.isclose(total, d[i, j], rel_tol=tol, abs_tol=tol)
            else:
                assert total == d[i, j]
            if j % 5 == 0:
                assert sm.reconstruct_path(np.asarray(p), root, j) == walk


def check_cycle(w, error):
    """A negative cycle is one: real edges of which the sum is its weight, below zero."""
    cycle = error.cycle
    assert len(cycle) == len(set(cycle)) > 0
    none = np.inf if w.dtype.kind == "f" else np.iinfo(w.dtype).max
    legs = [w[u, v] for u, v in zip(cycle, [*cycle[1:], cycle[0]], strict=True)]
    assert none not in legs
    total = math.fsum(float(x) for x in legs)
    assert total < 0
    assert math.isclose(total, error.weight, rel_tol=1e-14)
    assert "negative weight" in str(error)
