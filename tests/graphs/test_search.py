"""The order of a search and its tree, from distances, against a heap."""

import heapq
import itertools

import numpy as np
import pytest
from plain_kernels import both

import semiring_mm as sm
from semiring_mm.closures.edges import EdgeList
from semiring_mm.graphs.kernels import search as kernels
from semiring_mm.graphs.search import search_order, settle


def graph(n, density, draw, seed):
    """A matrix, and its edges shuffled: their order decides between equally short paths."""
    rng = np.random.default_rng(seed)
    there = rng.random((n, n)) < density
    matrix = np.where(there, draw(rng, (n, n)), np.inf)
    heads = [rng.permutation(np.flatnonzero(row)) for row in there]
    first = np.cumsum([0, *map(len, heads)])
    head = np.concatenate([*heads, []]).astype(np.int32)
    tail = np.repeat(np.arange(n), np.diff(first))
    return matrix, EdgeList.by_rows(first, head, matrix[tail, head])


def dijkstra(arcs, source):
    """Nodes as they leave a heap that breaks ties by age, their distances and predecessors."""
    age, done, best, before = itertools.count(), {}, {source: 0.0}, {}
    heap = [(0.0, next(age), source)]
    while heap:
        distance, _, v = heapq.heappop(heap)
        if v in done:
            continue
        done[v] = distance
        for e in range(arcs.first[v], arcs.first[v + 1]):
            u, through = int(arcs.col[e]), distance + float(arcs.weight[e])
            if u not in done and through < best.get(u, np.inf):
                best[u], before[u] = through, v
                heapq.heappush(heap, (through, next(age), u))
    return done, before


DRAW = {
    "small integers": lambda rng, shape: rng.integers(0, 4, shape).astype(float),
    "units": lambda rng, shape: np.ones(shape),
    "floats": lambda rng, shape: rng.random(shape),
    "smaller than rounding": lambda rng, shape: rng.choice([0, 1e-17, 0.1, 0.2, 0.3, 0.7], shape),
}


@pytest.mark.parametrize("draw", DRAW)
@pytest.mark.parametrize("n", [0, 1, 2, 7, 65, 130])
@pytest.mark.parametrize("density", [0.0, 0.03, 0.3])
def test_a_search_from_every_node(n, density, draw):
    matrix, arcs = graph(n, density, DRAW[draw], n)
    d = sm.apsp(matrix)
    sources = np.arange(n)[::-1]
    shortest = arcs.kept(arcs.weight <= d[arcs.row, arcs.col] + 1e-12)
    settled = settle(shortest, d[sources], sources)
    order, before = search_order(arcs, settled, sources)
    for source, *rows in zip(sources.tolist(), settled, order, before, strict=True):
        distance, line, tree = (row.tolist() for row in rows)
        done, expected = dijkstra(arcs, source)
        assert line == [*done, *[-1] * (n - len(done))]
        assert distance == [done.get(v, np.inf) for v in range(n)]  # to the last bit
        assert tree == [expected.get(v, -1) for v in range(n)]


@pytest.mark.parametrize("by_rows", [False, True])
def test_some_edges_are_kept(by_rows):
    first, row = np.array([0, 2, 3, 3]), np.array([0, 0, 1])
    col, weight = np.array([2, 1, 2]), np.array([5.0, 1, 3])
    edges = EdgeList.by_rows(first, col, weight) if by_rows else EdgeList.of(3, row, col, weight)
    kept = edges.kept(edges.weight < 4)
    assert [x.tolist() for x in kept.arrays] == [[0, 1], [1, 2], [1, 3]]
    if by_rows:
        assert kept.first.tolist() == [0, 1, 2, 2]
    assert edges.kept(edges.weight < 9) is edges


def test_kernels_in_python():
    _, arcs = graph(12, 0.3, DRAW["small integers"], 5)
    arcs = EdgeList.by_rows(arcs.first, arcs.col.astype("i4"), arcs.weight + 1)
    sources, shape = np.array([3, 0]), (2, 12)
    given = {
        "n": 12, "rows": 2, "first": arcs.first, "head": arcs.col, "weight": arcs.weight
    }  # fmt: skip
    start = np.full(shape, np.inf)
    start[[0, 1], sources] = 0
    near = np.tile(np.arange(12), (2, 1))
    d = both(kernels.settle, **given, near=near, d=start)["d"]
    slot, none = np.zeros(shape, "i8"), np.full(shape, -1, "i4")
    given |= {"source": sources, "d": d}
    tree = both(kernels.order, **given, group=slot, slot=slot, order=none, pred=none)
    assert (tree["order"] >= 0).any()
