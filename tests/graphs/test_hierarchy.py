"""Sparse eliminations: their structure by brute force, and closures over all kinds of semirings."""

import numpy as np
import pytest
from metrics import solved

import semiring_mm as sm
from semiring_mm.closures.edges import EdgeList
from semiring_mm.closures.solve import Problem
from semiring_mm.closures.sources import EdgeSource
from semiring_mm.hierarchy import symbolic
from semiring_mm.hierarchy.costs import TooExpensive
from semiring_mm.hierarchy.symbolic import analyze, eliminate


def random_edges(seed, largest=50):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, largest))
    return rng, n, *rng.integers(0, n, (2, int(rng.integers(0, 3 * n))))


@pytest.mark.parametrize("seed", range(60))
def test_the_structure_is_that_of_the_elimination(seed):
    _, n, row, col = random_edges(seed)
    x, _ = eliminate(n, row, col)
    assert (np.sort(x.rank) == np.arange(n)).all()
    assert (x.rank[x.order] == np.arange(n)).all()
    near = np.zeros((n, n), bool)
    near[x.rank[row], x.rank[col]] = near[x.rank[col], x.rank[row]] = True
    np.fill_diagonal(near, False)
    for v in range(x.eliminated):
        above = np.flatnonzero(near[v, v + 1 :]) + v + 1
        assert (x.head[x.first[v] : x.first[v + 1]] == above).all()
        assert x.parent[v] == (above[0] if len(above) else n)
        near[np.ix_(above, above)] = True
        np.fill_diagonal(near, False)
    first, *down = x.down
    for u in range(n):
        tails, edges = (a[first[u] : first[u + 1]] for a in down)
        assert (np.diff(tails) > 0).all()
        assert (x.head[edges] == u).all()
        assert ((x.first[tails] <= edges) & (edges < x.first[tails + 1])).all()
        if u < x.eliminated:
            assert (x.height[tails] < x.height[u]).all()


@pytest.mark.parametrize("seed", range(20))
def test_every_arc_has_its_slot(seed):
    _, n, row, col = random_edges(seed)
    x, _ = eliminate(n, row, col)
    row, col = row[row != col], col[row != col]
    tail = np.repeat(np.arange(x.eliminated), np.diff(x.first))
    for slot, u, v in zip(x.slots(row, col), x.rank[row], x.rank[col], strict=True):
        if slot < 0:
            assert tuple(x.eliminated + y for y in divmod(-1 - slot, x.core)) == (u, v)
        else:
            ends = tail[slot // 2], x.head[slot // 2]
            assert (ends if slot % 2 == 0 else ends[::-1]) == (u, v)


@pytest.mark.usefixtures("two_threads")
def test_the_fill_grows_beyond_the_first_guess():
    """Of a grid the lists outgrow the pool, and the fill its array."""
    i = np.arange(60 * 60).reshape(60, 60)
    row = np.concatenate([i[:, 1:].ravel(), i[1:].ravel()])
    col = np.concatenate([i[:, :-1].ravel(), i[:-1].ravel()])
    x, _ = eliminate(i.size, row, col)
    assert len(x.head) > 2 * 2 * len(row) + i.size
    assert 0 < x.core < 400


def test_chains_and_trees_are_contracted_to_flat_ones():
    """Half of the nodes of a chain go in a round; leaves of a hub are left to their degree."""
    n = 4096
    along = np.arange(n - 1), np.arange(1, n)
    ring = np.append(along[0], n - 1), np.append(along[1], 0)
    for row, col, depth in ((*ring, 40), (np.zeros(n - 1, int), np.arange(1, n), 4)):
        x = analyze(n, row, col, "minimum_degree")
        assert x.eliminated == n
        assert x.depth <= depth
        assert x.degree.max() <= 2
    rng = np.random.default_rng(0)
    tree = np.arange(1, n), rng.integers(0, np.arange(1, n))
    x = analyze(n, *tree, "minimum_degree")
    assert len(x.head) == n - 1  # nothing is filled in


WEIGHTS = {
    "min_plus": lambda rng, m: rng.integers(1, 20, m),
    "max_min": lambda rng, m: rng.integers(-5, 9, m),
    "min_max": lambda rng, m: rng.integers(-5, 9, m),
    "max_times": lambda rng, m: rng.random(m),
}
DTYPES = ["float32", "float64", "int32", "int64", "uint8"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", WEIGHTS)
def test_closures_over_semirings(name, dtype):
    if name == "max_times" and dtype[0] != "f":
        pytest.skip("products along paths overflow in integers")
    if name in ("max_min", "min_max") and dtype == "uint8":
        pytest.skip("negative weights")
    s = sm.semirings[name]
    for seed in range(6):
        rng, n, row, col = random_edges(seed)
        graph = EdgeList(range(n), row, col, WEIGHTS[name](rng, len(row)).astype(dtype), True)
        expected = sm.closure(sm.adjacency(graph, s, dtype=dtype)[0], s)
        for trees in (False, True):
            problem = Problem.of(EdgeSource(s, graph, dtype), predecessors=trees)
            d, p = problem.solve(solved)
            if name == "max_times":  # products have other brackets
                np.testing.assert_allclose(d, expected, rtol=50 * np.finfo(dtype).eps)
            else:
                np.testing.assert_array_equal(problem.restore(d), expected)
            assert (p is not None) == trees


def test_large_separators_are_told_early(monkeypatch):
    """The order ends after a small part of its work, where the degrees grow too fast."""
    rng, spent = np.random.default_rng(0), []
    row, col = rng.integers(0, 20_000, (2, 80_000))
    minimum_degree = symbolic.minimum_degree

    def noted(*graph, look=None, **options):
        def told(degree):
            spent.append(len(degree))
            look(degree)

        return minimum_degree(*graph, look=told, **options)

    monkeypatch.setattr(symbolic, "minimum_degree", noted)
    eliminated = 20_000 - eliminate(20_000, row, col, sources=1)[0].core
    for call in (
        lambda: analyze(20_000, row, col, "minimum_degree", most=2e6),
        lambda: eliminate(20_000, row, col, limit=1e10),
    ):
        spent.clear()
        with pytest.raises(TooExpensive, match="separators are large"):
            call()
        assert 0 < spent[-1] < eliminated
    with pytest.raises(TooExpensive, match="separators are large"):
        analyze(20_000, row, col, "minimum_degree", most=1e9, work=1e6)


def test_small_separators_are_not_taken_for_large_ones():
    """Of grids and trees, whatever the limit above their edges."""
    i = np.arange(150 * 150).reshape(150, 150)
    grid = np.append(i[:, :-1], i[:-1]), np.append(i[:, 1:], i[1:])
    tree = np.arange(1, i.size), np.random.default_rng(1).integers(0, np.arange(1, i.size))
    for row, col in (grid, tree):
        x = analyze(i.size, row, col, "minimum_degree")
        again = analyze(i.size, row, col, "minimum_degree", most=len(x.head))
        np.testing.assert_array_equal(x.order, again.order)
