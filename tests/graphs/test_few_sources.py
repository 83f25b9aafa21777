"""A few sources of a large graph take memory for their rows, and for no matrix."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

import semiring_mm as sm
from semiring_mm.closures.edges import EdgeList
from semiring_mm.graphs import choice

N = 5000


def edges(degree, *, directed=True, seed=0):
    rng = np.random.default_rng([degree, seed])
    row, col = rng.integers(0, N, (2, N * degree))
    return EdgeList(range(N), row, col, rng.integers(1, 9, N * degree).astype(float), directed)


@pytest.mark.parametrize("count", [1, 20])
@pytest.mark.parametrize(
    ("degree", "words"),
    [
        (2, {}), (3, {"return_predecessors": True}), (20, {}), (3, {"max_hops": 4}),
        (20, {"max_hops": 2}), (3, {"directed": False}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("negative", [False, True])
def test_there_is_no_matrix(monkeypatch, count, degree, words, negative):
    monkeypatch.setattr(choice, "adjacency", None)
    graph = edges(degree)
    if negative and words.get("directed", True):
        high = np.random.default_rng(0).integers(0, 9, N)
        graph = replace(graph, weight=graph.weight + high[graph.row] - high[graph.col])
    tracemalloc.start()
    try:
        sm.apsp(graph, sources=range(count), **words)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * N * N  # a quarter of the bytes of the matrix


@pytest.mark.parametrize("hops", [0, 1, 3, 50])
@pytest.mark.parametrize("directed", [False, True])
def test_paths_of_few_edges(hops, directed):
    rng = np.random.default_rng(hops)
    row, col = rng.integers(0, 60, (2, 130))
    graph = EdgeList(range(60), row, col, rng.integers(0, 9, 130) / 4, directed)
    graph = EdgeList([f"n{i}" for i in range(60)], row, col, graph.weight, directed)
    rows = [5, 5, 9]
    found = sm.apsp(graph, sources=[f"n{i}" for i in rows], max_hops=hops)
    w = sm.adjacency(graph)[0]
    np.testing.assert_array_equal(found, sm.apsp(w, max_hops=hops)[rows])
    assert found.sources == ["n5", "n5", "n9"]


def test_negative_weights_and_cycles_of_few_edges():
    rng = np.random.default_rng(1)
    row, col = rng.integers(0, 40, (2, 90))
    high = rng.integers(0, 9, 40)
    weight = rng.integers(1, 9, 90) + high[row] - high[col] * 1.0
    graph = EdgeList(range(40), row, col, weight, True)
    w = sm.adjacency(graph)[0]
    np.testing.assert_array_equal(
        sm.apsp(graph, sources=range(5), max_hops=3), sm.apsp(w, max_hops=3)[:5]
    )
    ring = EdgeList(range(40), np.arange(3), np.array([1, 2, 0]), np.array([1.0, 1, -3]), True)
    with pytest.raises(sm.NegativeCycleError) as found:
        sm.apsp(ring, sources=[1], max_hops=3)
    assert sorted(found.value.cycle) == [0, 1, 2]
    assert sm.apsp(ring, sources=[1], max_hops=2)[0, 0] == -2
    none = EdgeList(range(40), np.arange(0), np.arange(0), np.arange(0.0), True)
    assert np.isfinite(sm.apsp(none, sources=[1], max_hops=2)).sum() == 1
