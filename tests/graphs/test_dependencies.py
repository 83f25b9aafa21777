"""Shares of shortest paths through nodes and edges, against all paths one by one."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from plain_kernels import MIN_PLUS, both

import semiring_mm as sm
from semiring_mm.closures.edges import EdgeList
from semiring_mm.graphs import dependencies, statistics
from semiring_mm.graphs.dependencies import Dependencies, SearchLoads
from semiring_mm.graphs.kernels import dependencies as kernels
from semiring_mm.graphs.rows import Searches
from semiring_mm.hierarchy.demand import Demand
from semiring_mm.plan import Facts, make_plan
from semiring_mm.semirings import semirings

KINDS = ["units", "integers", "floats"]


def graph(n, m, kind, seed):
    """Directed edges by rows, loops and parallel ones among them."""
    rng = np.random.default_rng(seed)
    row, col = np.sort(rng.integers(0, n, m)), rng.integers(0, n, m).astype(np.int32)
    weight = {
        "units": np.ones(m), "integers": rng.integers(1, 4, m) + 0.0, "floats": rng.random(m)
    }[kind]  # fmt: skip
    return EdgeList.by_rows(np.searchsorted(row, np.arange(n + 1)), col, weight)


def paths_from(arcs, source):
    """For each node its shortest paths, as lists of arcs: by Bellman and Ford, then backwards."""
    d = {source: 0.0}
    for _ in range(arcs.n):
        for u, v, w in zip(*(x.tolist() for x in arcs.arrays), strict=True):
            if u in d:
                d[v] = min(d.get(v, np.inf), d[u] + w)

    def paths(v):
        if v == source:
            return [[]]
        last = (e for e in np.flatnonzero(arcs.col == v) if d.get(arcs.row[e], np.inf) < d[v])
        return [
            [*path, e] for e in last if d[arcs.row[e]] + arcs.weight[e] == d[v]
            for path in paths(arcs.row[e])
        ]  # fmt: skip

    return {v: paths(v) for v in d if v != source}


def each_way(amount):
    """The demand of these amounts of each node from all others."""
    n = len(amount)
    return Demand.of(n, np.arange(n), np.arange(n), np.tile(amount, (n, 1)))


def shares(arcs, sources, demand):
    """Exact sums, path by path."""
    nodes, edges = [Fraction()] * arcs.n, [Fraction()] * len(arcs.col)
    for source in sources.tolist():
        for v, paths in paths_from(arcs, source).items():
            for e in itertools.chain.from_iterable(paths):
                share = Fraction(demand[v]) / len(paths)
                edges[e] += share
                if arcs.col[e] != v:
                    nodes[arcs.col[e]] += share
    return np.array(nodes, float), np.array(edges, float)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "m"), [(1, 0), (2, 3), (9, 12), (24, 60), (40, 100)])
def test_shares_of_all_paths(n, m, kind):
    arcs, rng = graph(n, m, kind, n), np.random.default_rng(1)
    sources = rng.integers(0, n, n)  # some of them twice
    demand = rng.integers(0, 3, n) / 2
    for given, amount in ((None, np.ones(n)), (each_way(demand), demand)):
        nodes, edges = shares(arcs, sources, amount)
        found, none, _ = Dependencies(arcs).loads(sources, given)
        assert none is None
        np.testing.assert_allclose(found, nodes, 1e-14 * n)
        found, carried, _ = Dependencies(arcs).loads(sources, given, edges=True)
        np.testing.assert_allclose(found, nodes, 1e-14 * n)
        np.testing.assert_allclose(carried, edges, 1e-14 * n)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("many", [0, 1 << 15])
def test_paths_are_as_long_as_they_are(kind, many, monkeypatch):
    """What edges carry, times their weights, is the sum of all distances."""
    monkeypatch.setattr(dependencies, "_MANY", many)  # batches of eight sources, and of sixteen
    arcs = graph(300, 1500, kind, 2)
    matrix = np.full((300, 300), np.inf)
    np.minimum.at(matrix, (arcs.row, arcs.col), arcs.weight)
    d = sm.apsp(matrix)
    np.fill_diagonal(d, 0)
    nodes, edges, _ = Dependencies(arcs).loads(np.arange(300), edges=True)
    assert np.vdot(edges, arcs.weight) == pytest.approx(d[np.isfinite(d)].sum(), 1e-12)
    entering = np.bincount(arcs.col, edges, 300)
    reached = np.isfinite(d).sum(axis=0) - 1  # paths that end there
    np.testing.assert_allclose(nodes, entering - reached, 1e-11, 1e-9)


def test_no_sources_and_no_nodes():
    arcs = graph(5, 9, "units", 3)
    nodes, edges, _ = Dependencies(arcs).loads(np.arange(0), edges=True)
    assert not nodes.any()
    assert not edges.any()
    nodes, *_ = Dependencies(graph(5, 0, "units", 3).kept(np.ones(0, bool))).loads(np.arange(5))
    assert not nodes.any()


@pytest.mark.parametrize("kind", ["units", "floats"])
def test_the_number_of_threads_changes_no_bit(kind):
    arcs, threads = graph(500, 3000, kind, 4), sm.get_num_threads()
    found = []
    try:
        for count in (1, 3):
            sm.set_num_threads(count)
            found.append(Dependencies(arcs).loads(np.arange(500), edges=True))
    finally:
        sm.set_num_threads(threads)
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])


@pytest.mark.parametrize("kind", [*KINDS, "decimals"])
@pytest.mark.parametrize("directed", [False, True])
def test_statistics_of_paths_where_separators_are_large(kind, directed, monkeypatch):
    """As by reverse sweeps: parallel edges and loops, decimals, some targets, stress."""
    arcs = graph(60, 200, "integers" if kind == "decimals" else kind, 5)
    weight = arcs.weight / 10 if kind == "decimals" else arcs.weight
    edges = EdgeList(range(60), arcs.row, arcs.col, weight, directed)
    what = ["betweenness", "edge_betweenness", "stress"]
    for more in ({}, {"sources": [3, 4], "targets": [5, 9, 3]}):
        swept = sm.statistics(edges, what, **more)
        with monkeypatch.context() as patch:
            patch.setattr(statistics, "finder", lambda request: Searches(request.sparse))
            found = sm.statistics(edges, what, **more)
        for name in what:
            near = {"rtol": 1e-12, "atol": 1e-9}
            np.testing.assert_allclose(getattr(found, name), getattr(swept, name), **near)


def test_distances_that_float64_rounds_are_refused():
    weight = np.array([1 << 53, 1])
    edges = EdgeList.of(3, np.array([0, 1]), np.array([1, 2]), weight)
    with pytest.raises(OverflowError, match="may not be exact"):
        SearchLoads(edges)


def test_stress_beyond_float64_is_refused():
    chain = Dependencies(doubling(990, 1.0))
    with pytest.raises(OverflowError, match="1e\\+300"):
        chain.loads(np.array([0]), each_way(np.full(991, 1e100)), stress=True)


@pytest.mark.parametrize("weight", [0.0, 1e-17])
def test_edges_that_add_nothing_are_refused(weight):
    arcs = EdgeList.by_rows(np.array([0, 1, 2, 2]), np.array([1, 2]), np.array([1.0, weight]))
    with pytest.raises(ValueError, match="some are 0, negative, or too small"):
        Dependencies(arcs).loads(np.arange(3))


def doubling(places, weight):
    """Two parallel edges at each place: twice as many paths."""
    first = 2 * np.minimum(np.arange(places + 2), places)
    return EdgeList.by_rows(first, np.repeat(np.arange(places) + 1, 2), np.full(2 * places, weight))


@pytest.mark.parametrize("weight", [1.0, 2.0])
def test_numbers_of_paths_beyond_float64_are_refused(weight):
    nodes, edges, _ = Dependencies(doubling(990, weight)).loads(np.array([0]), edges=True)
    np.testing.assert_array_equal(nodes[1:], np.arange(989, -1, -1))
    np.testing.assert_array_equal(edges, np.repeat(np.arange(990, 0, -1) / 2, 2))
    for places in (1000, 1100):  # a little too many, and more than there are floats
        with pytest.raises(OverflowError, match="1e\\+300 shortest paths"):
            Dependencies(doubling(places, weight)).loads(np.array([0]))


@pytest.mark.parametrize("edges", [False, True])
@pytest.mark.parametrize(("stress", "single"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize(
    "demand", [None, Demand.to(20, np.arange(0, 20, 3)), each_way(np.arange(20) % 3 / 2)]
)
def test_kernels_in_python(edges, stress, single, demand):
    arcs = graph(20, 60, "integers", 6)
    lists = {"n": 20, "arcs": 60, "first": arcs.first, "head": arcs.col}
    place = np.full(20, -1, "i4")
    numbered = both(
        kernels.breadth_first, **lists, root=np.arange(20)[::-1].copy(), node=place, place=place
    )
    assert sorted(numbered["place"]) == list(range(20))
    zeros, words = np.zeros(20), np.zeros
    sums = {
        "node_load": zeros, "arc_load": np.zeros(60) if edges else None, "most": np.ones(1),
        "lost": np.zeros(1), "stress": stress, "single": single and edges,
    }  # fmt: skip
    back = {"back_first": arcs.entering.first, "tail": arcs.entering.col.astype("i4")}
    room = {
        "seen": words(20, "u4"), "mask": words((2, 20), "u4"), "node": words(21 * 8, "i4"),
        "event": words(21 * 8, "u4"), "begins": words(22, "i8"), "value": np.zeros((20, 8)),
    }  # fmt: skip
    sources = np.arange(0, 20, 2)
    source = np.append(sources, [20] * 6).reshape(2, 8)

    def given(width):
        if demand is None:
            return dict.fromkeys((*dependencies._TARGETS, "demand"))
        return demand.blocks(sources, width) | {"demand": np.zeros((20, width))}

    by_levels = both(
        kernels.by_levels, None, "f8", [*room], 1e-13, **lists, **back, **sums, **room, **given(8),
        batches=2, width=8, source=source,
    )  # fmt: skip
    room = {"heap": words(61, "i4"), "key": np.zeros(61), "node": words(20, "i4")}
    room |= {"label": np.zeros(20), "value": np.zeros(20)}
    kind = Facts(0.0, np.inf, False)
    plan = make_plan(semirings["min_plus"], np.dtype("f8"), kind, kind, 20)
    by_searches = both(
        kernels.by_searches, MIN_PLUS, plan, (), 1e-13, **lists, **sums, **room,
        **given(1), weight=np.ones(60), sources=10, source=sources,
    )  # fmt: skip
    queue = {"bucket": np.full(4, -1, "i4"), "following": words(61, "i4"), "slots": 4}
    by_buckets = both(
        kernels.by_buckets, MIN_PLUS, plan, (), 1e-13, **lists, **sums, **room, **queue,
        **given(1), scale=1.1, weight=np.ones(60), sources=10, source=sources,
    )  # fmt: skip
    assert (by_buckets["bucket"] == -1).all()
    if not (single and edges):  # which may take other paths
        np.testing.assert_allclose(by_buckets["node_load"], by_searches["node_load"], 1e-13)
    for name in ("node_load", "arc_load"):
        if by_levels[name] is not None:
            if not (single and edges):  # which may take other paths
                np.testing.assert_allclose(by_levels[name], by_searches[name], 1e-13)
            assert by_levels[name].any()
