"""Predecessors: every path is walked and summed, above all where there are ties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from walks import MISSING, check_paths, potentials, scipy_distances, weights

import semiring_mm as sm
from semiring_mm.closures import labelled
from semiring_mm.closures.paths import leg_counts

inf = np.inf


def none_of(w):
    return inf if w.dtype.kind == "f" else np.iinfo(w.dtype).max


@pytest.mark.parametrize("options", [{}, {"method": "squaring"}, {"sources": True}])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32, np.int16, np.uint8])
@pytest.mark.parametrize("n", [1, 2, 9, 64, 65, 129])
def test_paths_are_walked(n, dtype, options):
    for directed in (True, False):
        w = weights(
            np.random.default_rng(n), n, density=min(1, 4 / n), lo=1, hi=9,
            directed=directed, dtype=dtype,
        )  # fmt: skip
        sources = [n - 1, 0, n // 2] if "sources" in options else None
        more = {"sources": sources} if sources else options
        before = w.copy()
        d, p = sm.apsp(w, return_predecessors=True, **more)
        assert_array_equal(w, before)
        check_paths(w, d, p, zero=none_of(w), sources=sources)
        assert_array_equal(d, sm.apsp(w, **more))


@pytest.mark.parametrize("options", [{}, {"method": "squaring"}, {"sources": True}])
@pytest.mark.parametrize("n", [5, 66, 140])
def test_cycles_of_weight_zero(n, options):
    """Full of ties: each block of the elimination may choose a different equal path."""
    for density in (3 / n, 0.1, 1):
        rng = np.random.default_rng(n)
        plain = weights(rng, n, density=min(1, density), lo=0, hi=2)
        plain[plain == 1] = 0
        for w in (plain, potentials(rng, plain), np.where(np.isfinite(plain), 0, inf)):
            sources = list(range(0, n, 7)) if "sources" in options else None
            more = {"sources": sources} if sources else options
            d, p = sm.apsp(w, return_predecessors=True, **more)
            check_paths(w, d, p, sources=sources)
            assert_array_equal(d, scipy_distances(w, "johnson")[sources or slice(None)])


@settings(max_examples=80, deadline=None)
@given(
    st.integers(2, 12), st.integers(0, 2**32), st.sampled_from([np.float64, np.float32, np.int8]),
    st.floats(0.1, 1), st.integers(0, 2), st.booleans(),
)  # fmt: skip
def test_small_graphs_dense_in_ties(n, seed, dtype, density, hi, directed):
    rng = np.random.default_rng(seed)
    w = weights(rng, n, density=density, lo=0, hi=hi, dtype=dtype, directed=directed, loops=True)
    for options in ({}, {"method": "squaring"}, {"sources": range(n)}):
        d, p = sm.apsp(w, return_predecessors=True, **options)
        check_paths(w, d, p, zero=none_of(w))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_real_weights_that_round(dtype):
    for n in (60, 150):
        rng = np.random.default_rng(n)
        w = rng.random((n, n)).astype(dtype)
        w[rng.random((n, n)) < 0.8] = inf
        height = rng.random(n).astype(dtype)
        for x in (w, w + height[:, None] - height, 1e-9 * w, np.where(w < 0.1, 0, w)):
            x = x.astype(dtype)
            d, p = sm.apsp(x, return_predecessors=True)
            check_paths(x, d, p, tol=1e-12 if dtype == np.float64 else 2e-5)


def test_the_same_as_scipy_where_paths_are_unique():
    rng = np.random.default_rng(5)
    w = rng.random((80, 80))
    w[rng.random((80, 80)) < 0.9] = inf
    d, p = sm.apsp(w, return_predecessors=True)
    _, expected = scipy_distances(w, return_predecessors=True)
    assert_array_equal(p, expected)
    for i in range(0, 80, 9):
        for j in range(80):
            if i != j and np.isfinite(d[i, j]):
                walk = sm.reconstruct_path(expected, i, j)
                assert walk == sm.reconstruct_path(p, i, j)
                assert (walk[0], walk[-1]) == (i, j)


@pytest.mark.parametrize("sources", [[1, 2, 0], [2], [0, 1, 2], [2, 0], [1, 1]])
def test_rows_are_found_by_their_source(sources):
    """Also in a square matrix of which the rows are not in the order of the nodes."""
    w = np.full((3, 3), inf)
    w[0, 1] = w[1, 2] = w[2, 0] = 1
    _, p = sm.apsp(w, return_predecessors=True, sources=sources)
    for i in range(3):
        for j in range(3):
            if i in sources:
                expected = [(i + k) % 3 for k in range((j - i) % 3 + 1)]
                assert sm.reconstruct_path(p, i, j) == expected
            else:
                with pytest.raises(ValueError, match=f"has no row of paths from node {i}"):
                    sm.reconstruct_path(p, i, j)


def test_a_source_without_edges_is_told_from_others():
    w = np.full((4, 4), inf)
    w[0, 1] = w[1, 0] = w[2, 0] = 1  # nothing leads from 3
    for sources in ([3, 2], [1, 3, 0, 2]):
        _, p = sm.apsp(w, return_predecessors=True, sources=sources)
        assert sm.reconstruct_path(p, 3, 3) == [3]
        assert sm.reconstruct_path(p, 2, 1) == [2, 0, 1]
        for end in (0, 1, 2):
            with pytest.raises(ValueError, match=f"there is no path from node 3 to node {end}"):
                sm.reconstruct_path(p, 3, end)


def test_a_large_matrix_is_searched_in_pieces(monkeypatch):
    monkeypatch.setattr(labelled, "_PIECE", 50)
    n = 20
    w = np.full((n, n), inf)
    w[np.arange(n), np.roll(np.arange(n), -1)] = 1
    sources = np.random.default_rng(1).permutation(n)[:15]
    _, p = sm.apsp(w, return_predecessors=True, sources=sources)
    for i in sources.tolist():
        assert sm.reconstruct_path(p, i, (i + 2) % n) == [i, (i + 1) % n, (i + 2) % n]


def test_a_path_to_itself_and_none():
    p = np.full((2, 2), MISSING, np.int32)
    assert sm.reconstruct_path(p, 1, 1) == [1]
    for rows in (p, p[:1]):
        with pytest.raises(ValueError, match="there is no path from node 0 to node 1"):
            sm.reconstruct_path(rows, 0, 1)


@pytest.mark.parametrize(
    ("p", "i", "j", "error", "words"),
    [
        (np.zeros((2, 2)), 0, 1, TypeError, "signed integers, got shape .2, 2. and dtype float64"),
        (np.zeros((2, 2), "u4"), 0, 1, TypeError, "signed integers, .* dtype uint32"),
        (np.zeros(2, int), 0, 1, TypeError, r"got shape \(2,\)"),
        (np.zeros((2, 2), int), 0, 2, IndexError, "nodes 0 and 2 are not both among 0 to 1"),
        (np.zeros((1, 2), int), -1, 1, IndexError, "nodes -1 and 1 are not both among 0 to 1"),
        (np.zeros((2, 2), int), 0.5, 1, TypeError, "a node must be an integer, got 0.5"),
        (np.zeros((2, 2), int), 0, "b", TypeError, "an integer, got 'b'; .* take labels"),
        (np.array([[-9999, 0, 3, 2]]), 0, 2, ValueError, "row 0 .* does not describe a tree"),
        (np.array([[-9999, 0, 7]]), 0, 2, ValueError, "row 0 .* does not describe a tree"),
    ],
)
def test_refused(p, i, j, error, words):
    with pytest.raises(error, match=words):
        sm.reconstruct_path(p, i, j)


@pytest.mark.parametrize("n", [1, 2, 3, 64, 65, 129])
def test_leg_counts_are_those_of_the_paths(n):
    w = weights(np.random.default_rng(n), n, density=min(1, 2 / n), lo=1, hi=9)
    if n % 2:  # a path through all nodes
        w = np.where(np.arange(n)[:, None] + 1 == np.arange(n), 1.0, inf)
    sources = [n - 1, 0]
    p = sm.apsp(w, return_predecessors=True, sources=sources)[1]
    counts = leg_counts(p, sources)
    assert counts.dtype == np.int32
    for k, source in enumerate(sources):
        for node in range(n):
            if p[k, node] >= 0:
                assert counts[k, node] == len(sm.reconstruct_path(p, source, node)) - 1
            else:
                assert counts[k, node] == (0 if node == source else -1)
    assert leg_counts(p[:0], []).shape == (0, n)


@pytest.mark.parametrize(
    "row", [[-9999, 2, 1], [1, 0, -9999], [-9999, -9999, 1], [-9999, 2, 2], [2, 0, 1]]
)
def test_leg_counts_of_what_is_no_tree(row):
    with pytest.raises(ValueError, match="row 1 of predecessors does not describe a tree from"):
        leg_counts(np.array([[-9999, 0, 0], row]), [0, 0])
