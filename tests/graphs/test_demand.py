"""Loads of edges by a demand between pairs of nodes, against all shortest paths one by one."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from optional import nx, sp

from semiring_mm.closures.edges import EdgeList
from semiring_mm.graphs import methods
from semiring_mm.graphs.rows import Sweeps
from semiring_mm.graphs.statistics import problem_of, request_of
from semiring_mm.hierarchy.demand import Demand
from semiring_mm.hierarchy.metric import customize
from semiring_mm.hierarchy.symbolic import factorize, neighbours

METHODS = ["reverse sweeps", "searches and back"]


def rows_by(name, edges):
    """Rows that count shortest paths, by one of the methods."""
    request = request_of(edges, edges.n, loads=True)
    method = next(x for x in methods.METHODS if x.name == name)
    method.cost(request, math.inf)
    return method.run(request)


def graph(seed, *, directed):
    """A random graph with many ties, often disconnected, with loops and parallel edges."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 20))
    row, col = rng.integers(0, n, (2, int(n * rng.choice([0.7, 1.5, 4]))))
    weight = rng.integers(1, [2, 3, 6, 99][seed % 4], len(row))
    return EdgeList(range(n), row, col, weight, directed), rng


def shared(edges, demand):
    """Loads of edges as fractions, and the demand without a path."""
    G = (nx.DiGraph if edges.directed else nx.Graph)()
    G.add_nodes_from(range(edges.n))
    parallel = {}
    for e, (u, v, w) in enumerate(zip(*(x.tolist() for x in edges.arrays), strict=True)):
        for pair in {(u, v), (u, v) if edges.directed else (v, u)} if u != v else ():
            parallel.setdefault(pair, []).append((w, e))
    for (u, v), some in parallel.items():
        G.add_edge(u, v, weight=min(some)[0])
    loads, lost = [Fraction(0)] * len(edges.col), Fraction(0)
    for (s, t), amount in np.ndenumerate(demand):
        if s == t or not amount:
            continue
        if not nx.has_path(G, s, t):
            lost += Fraction(amount)
            continue
        paths = list(nx.all_shortest_paths(G, s, t, weight="weight"))
        for pair in itertools.chain.from_iterable(map(itertools.pairwise, paths)):
            least = [e for w, e in parallel[pair] if w == min(parallel[pair])[0]]
            for e in least:
                loads[e] += Fraction(amount) / len(paths) / len(least)
    return np.array(loads, float), float(lost)


def distances(edges):
    d = np.full((edges.n, edges.n), np.inf)
    for u, v, w in zip(*edges.arrays, strict=True):
        d[u, v] = min(d[u, v], w)
        if not edges.directed:
            d[v, u] = min(d[v, u], w)
    np.fill_diagonal(d, 0)
    for k in range(edges.n):
        d = np.minimum(d, d[:, k : k + 1] + d[k])
    return d


def amounts(rng, n, *, negative=False):
    """Of some pairs, none of some sources."""
    matrix = rng.integers(-9 if negative else 1, 10, (n, n)) * (rng.random((n, n)) < 0.3)
    matrix[rng.random(n) < 0.3] = 0
    return matrix.astype(float)


def between(n, matrix):
    return Demand.of(n, np.arange(n), np.arange(n), matrix)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_shortest_paths_share_the_demand(directed, negative, method):
    for seed in range(40):
        edges, rng = graph(seed, directed=directed)
        demand = amounts(rng, edges.n, negative=negative)
        expected, without = shared(edges, demand)
        found, lost = rows_by(method, edges).edge_loads(between(edges.n, demand))
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
        assert lost == without


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_one_shortest_path_carries_the_demand(directed, negative, method):
    """Whole numbers stay whole; each node passes on what arrives, and all lengths are shortest."""
    for seed in range(40):
        edges, rng = graph(seed, directed=directed)
        d, rows = distances(edges), rows_by(method, edges)
        demand = amounts(rng, edges.n, negative=negative)
        np.fill_diagonal(demand, 0)
        found, lost = rows.edge_loads(between(edges.n, demand), single=True)
        np.testing.assert_array_equal(found, np.rint(found))
        assert lost == demand[np.isinf(d)].sum()
        assert (found * edges.weight).sum() == (demand * np.where(np.isinf(d), 0, d)).sum()
        for s, t in np.argwhere(np.isfinite(d) & (d > 0))[:5]:
            alone = Demand.between(edges.n, np.array([s]), np.array([t]), np.ones(1))
            path, _ = rows.edge_loads(alone, single=True)
            assert set(path.tolist()) <= {0.0, 1.0}
            at, left = s, np.flatnonzero(path).tolist()
            while left:  # the edges are one path
                e = next(e for e in left if at in (edges.row[e], edges.col[e]))
                assert at == edges.row[e] or not directed
                at = edges.row[e] + edges.col[e] - at
                left.remove(e)
            assert at == t


def test_a_demand_of_ones_is_betweenness():
    for seed, directed in itertools.product(range(20), (False, True)):
        edges, _ = graph(seed, directed=directed)
        for rows in (rows_by(method, edges) for method in METHODS):
            collector, every = rows.loads(), np.arange(edges.n)
            results = collector.empty(edges.n)
            collector.run(every, every, results)
            found, _ = rows.edge_loads(between(edges.n, np.ones((edges.n, edges.n))))
            np.testing.assert_allclose(found, collector.loads(results)[1], rtol=1e-12)


def test_blocks_of_a_demand_between_millions_of_nodes():
    """Nodes times blocks are more than 32 bits hold, and take no memory."""
    n = (1 << 31) - 1
    amounts = {(0, n - 1): 1.0, (0, 5): 2.0, (1, 5): 3.0, (4, n - 1): 4.0, (5, 0): 5.0}
    source, target = np.array([*amounts]).T
    first = np.searchsorted(source, np.arange(7))
    demand = Demand(n, target.astype(np.int32), first, np.array([*amounts.values()]))
    blocks = demand.blocks(np.arange(6), 2)
    found, entry = {}, blocks["entry_first"]
    for block, (begin, end) in enumerate(blocks["bounds"].tolist()):
        assert (np.diff(blocks["target"][begin:end]) > 0).all()
        for i in range(begin, end):
            for e in range(entry[i], entry[i + 1]):
                pair = 2 * block + int(blocks["entry_lane"][e]), int(blocks["target"][i])
                found[pair] = float(blocks["amount"][e])
    assert found == amounts


def test_demands_in_all_forms_are_the_same():
    edges, rng = graph(6, directed=True)
    n, rows = edges.n, rows_by("reverse sweeps", edges)
    sources, targets = rng.permutation(n)[:5], rng.permutation(n)[:4]
    matrix = rng.integers(0, 4, (5, 4)) * 1.0
    whole = np.zeros((n, n))
    whole[np.ix_(sources, targets)] = matrix
    i, j = np.nonzero(matrix)
    order = rng.permutation(len(i))
    halves = np.concatenate([order, order])  # each pair comes twice
    zeros_too = np.indices((5, 4)).reshape(2, -1)
    given = [
        between(n, whole), Demand.of(n, sources, targets, matrix),
        Demand.of(n, sources, targets, sp.csr_array(matrix)),
        Demand.of(n, sources, targets, sp.coo_array((matrix.ravel(), tuple(zeros_too)))),
        Demand.between(n, sources[i[halves]], targets[j[halves]], matrix[i, j][halves] / 2),
    ]  # fmt: skip
    expected, _ = rows.edge_loads(given[0])
    assert expected.any()
    for demand in given[1:]:
        np.testing.assert_array_equal(rows.edge_loads(demand)[0], expected)
    assert not rows.edge_loads(between(n, 0 * whole))[0].any()


@pytest.mark.parametrize("single", [False, True])
def test_any_order_of_elimination_gives_the_same(single):
    """Where one path carries all, the same length."""
    for seed, directed in itertools.product(range(10), (False, True)):
        edges, rng = graph(seed, directed=directed)
        demand, problem = between(edges.n, amounts(rng, edges.n)), problem_of(edges)
        found = []
        for _ in range(3):
            order = rng.permutation(edges.n).astype(np.int32)
            first, near = neighbours(edges.n, edges.row, edges.col)
            structure = factorize(edges.n, first, near, order, edges.n)
            metric = problem.solve(lambda x, structure=structure: customize(structure, x))
            found.append(Sweeps(metric, problem).edge_loads(demand, single=single)[0])
        for loads in found[1:]:
            if single:
                assert (loads * edges.weight).sum() == (found[0] * edges.weight).sum()
            else:
                np.testing.assert_allclose(loads, found[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("unit", [1, 1 / 3])
def test_cycles_of_length_zero_are_for_one_path(unit):
    rng = np.random.default_rng(3)
    row, col = rng.integers(0, 30, (2, 90))
    weight = rng.integers(0, 3, 90) * unit
    for directed in (False, True):
        edges = EdgeList(range(30), row, col, weight, directed)
        rows, demand, d = rows_by("reverse sweeps", edges), amounts(rng, 30), distances(edges)
        reached = ~np.isinf(d)
        demand *= reached
        found, lost = rows.edge_loads(between(30, demand), single=True)
        np.testing.assert_array_equal(found, np.rint(found))
        assert lost == 0
        np.testing.assert_allclose(
            (found * weight).sum(), (demand * np.where(reached, d, 0)).sum(), 1e-12
        )
        with pytest.raises(ValueError, match="the length of the cycle"):
            rows.edge_loads(between(30, demand))
