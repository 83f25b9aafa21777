"""Betweenness of nodes and edges against NetworkX, and exact numbers of shortest paths."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from metrics import only
from optional import nx
from plain_kernels import Operations, both

import semiring_mm as sm
from semiring_mm.closures.edges import EdgeList
from semiring_mm.graphs.kernels import gradient as kernels
from semiring_mm.graphs.methods import METHODS
from semiring_mm.graphs.rows import Searches
from semiring_mm.graphs.statistics import problem_of
from semiring_mm.hierarchy import gradient
from semiring_mm.hierarchy.demand import Demand
from semiring_mm.hierarchy.gradient import SweepLoads, whole_weights
from semiring_mm.hierarchy.metric import customize
from semiring_mm.hierarchy.symbolic import factorize, neighbours

MIN_PLUS = Operations(min, lambda x, y: x + y, lambda x, y: x < y, (1 << 30) - 1, 0)
BOTH = ("betweenness", "edge_betweenness")


def graph(seed, *, directed, unit=1, multi=False):
    """A random graph with many ties, often disconnected, with loops."""
    rng = np.random.default_rng(seed)
    kind = (nx.MultiDiGraph if directed else nx.MultiGraph) if multi else (
        nx.DiGraph if directed else nx.Graph
    )  # fmt: skip
    G, n = kind(), int(rng.integers(1, 40))
    G.add_nodes_from(rng.permutation(n).tolist())
    for u, v in rng.integers(0, n, (int(n * rng.choice([0.7, 1.5, 4])), 2)).tolist():
        G.add_edge(u, v, weight=int(rng.integers(1, [2, 3, 6, 99][seed % 4])) * unit)
    return G


def near(found, expected):
    np.testing.assert_allclose(found, list(expected.values()), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("weight", ["weight", None])
@pytest.mark.parametrize("directed", [False, True])
def test_of_graphs_with_ties(directed, weight, prepared):
    for seed in range(40):
        G = graph(seed, directed=directed)
        given = sm.prepare(G, weight=weight) if prepared else G
        found = sm.statistics(given, BOTH, **({} if prepared else {"weight": weight}))
        near(found.betweenness, nx.betweenness_centrality(G, weight=weight, normalized=False))
        expected = nx.edge_betweenness_centrality(G, weight=weight, normalized=False)
        near(found.edge_betweenness, expected)
        assert list(found.nodes) == list(G)


@pytest.mark.parametrize("weight", ["weight", None])
@pytest.mark.parametrize("directed", [False, True])
def test_parallel_edges_share_what_their_ends_carry(directed, weight):
    for seed in range(40):
        G = graph(seed, directed=directed, multi=True)
        found = sm.statistics(G, BOTH, weight=weight)
        near(found.betweenness, nx.betweenness_centrality(G, weight=weight, normalized=False))
        expected = nx.edge_betweenness_centrality(G, weight=weight, normalized=False)
        near(found.edge_betweenness, expected)


@pytest.mark.parametrize("unit", [0.1, 0.25, 1e-3, np.float32(0.1), 1 / 3, np.pi * 1e5])
@pytest.mark.parametrize("directed", [False, True])
def test_lengths_that_are_equal_but_for_rounding(directed, unit):
    """0.1 + 0.2 is 0.3: ties are those of the graph in whole numbers."""
    for seed in range(30):
        G, whole = graph(seed, directed=directed, unit=unit), graph(seed, directed=directed)
        dtype = np.float32 if isinstance(unit, np.float32) else None
        found = sm.statistics(G, "betweenness", dtype=dtype).betweenness
        near(found, nx.betweenness_centrality(whole, weight="weight", normalized=False))


@pytest.mark.parametrize("method", ["reverse sweeps", "searches and back"])
@pytest.mark.parametrize("unit", [5e-324, 1e-300, 1e300, 2.0**62, 2.0**63, 8e307])
def test_the_smallest_and_the_largest_floats(unit, method, monkeypatch):
    only(monkeypatch, *(x.name for x in METHODS if not x.loads or x.name == method))
    G = nx.DiGraph()
    G.add_weighted_edges_from([(0, 1, unit), (1, 2, unit), (0, 3, unit), (3, 2, unit)])
    assert sm.statistics(G, "betweenness").betweenness.tolist() == [0, 0.5, 0, 0.5]


def test_whole_numbers_beyond_float64_are_told_apart():
    big, row, col = 1 << 53, np.array([0, 1, 0, 3, 0, 4]), np.array([1, 2, 3, 2, 4, 2])
    for weight in ([big + 1, 1, big, 2, big, 3], [5, 1, 4, 2, 4, 3]):
        edges = EdgeList(range(5), row, col, np.array(weight), False)
        found = sm.statistics(edges, "betweenness", sources=[0])  # as few as searches would take
        np.testing.assert_array_equal(found.betweenness, [0, 0.25, 0, 0.25, 0])
        assert sm.statistics(edges, "betweenness").betweenness.tolist() == [0, 0.5, 3, 0.5, 0]
    assert "2**53" in str(sm.explain(EdgeList(range(5), row, col, np.array(weight) << 53, False),
                                     "betweenness"))  # fmt: skip


def test_the_order_of_additions_does_not_matter():
    """Two paths whose sums in floating point differ by the order in which they are added up."""
    lengths = [0.1 + 1e-14, 1 / 3, 1e-3 * np.pi, 7.7, 1e3 / 7] * 20
    for seed in range(5):
        rng, G = np.random.default_rng(seed), nx.Graph()
        for side in range(2):
            stops = ["a", *((side, i) for i in range(len(lengths) - 1)), "b"]
            for (u, v), w in zip(itertools.pairwise(stops), rng.permutation(lengths), strict=True):
                G.add_edge(u, v, weight=float(w))
        found = sm.statistics(G, "betweenness", sources=["a"], targets=["b"])
        inner = np.array([x not in ("a", "b") for x in found.nodes])
        np.testing.assert_allclose(found.betweenness[inner], 0.25, rtol=1e-12)


def test_whole_weights():
    whole, most, slack = whole_weights(np.array([0.1, 2.75, 3e-4]), 100.0)
    assert (whole.tolist(), most, slack) == ([1000, 27500, 3], 1_000_001, 0)
    assert whole_weights(np.array([2.0, 5.0]), 7.0)[1:] == (8, 0)
    for unit in (1.0, 1e-300, 1e300):
        fixed, most, slack = whole_weights(np.array([1 / 3, np.sqrt(2)]) * unit, 10.0 * unit)
        assert slack > 0
        np.testing.assert_allclose(fixed / most, [1 / 30, np.sqrt(2) / 10], rtol=2e-6)
        assert fixed[1] / fixed[0] == pytest.approx(np.sqrt(18), 1e-15)
    with pytest.raises(OverflowError, match="give the weights in a larger unit"):
        whole_weights(np.array([1 << 59]), 1 << 61)


def loads(edges, order=None, *, wide=False, **more):
    """Loads of nodes and edges over an elimination in some order."""
    first, near = neighbours(edges.n, edges.row, edges.col)
    order = np.arange(edges.n) if order is None else order
    structure = factorize(edges.n, first, near, order.astype(np.int32), edges.n)
    metric = problem_of(edges).solve(lambda x: customize(structure, x))
    collector = SweepLoads(metric, edges, **more)
    collector.wide = wide
    results, every = collector.empty(edges.n), np.arange(edges.n)
    collector.run(every, every, results)
    return collector.loads(results)


def edges_of(G):
    place = {v: i for i, v in enumerate(G)}
    row, col = np.array([(place[u], place[v]) for u, v in G.edges()], np.int64).reshape(-1, 2).T
    weight = np.array([w for *_, w in G.edges(data="weight")])
    return EdgeList(range(len(G)), row, col, weight, G.is_directed())


def test_graphs_without_small_separators_are_searched():
    rng = np.random.default_rng(0)
    G = nx.Graph(rng.integers(0, 3000, (15000, 2)).tolist())
    some = list(G)[:5]
    for given in (G, sm.prepare(G)):
        found = sm.statistics(given, BOTH, sources=some)
        near(found.betweenness, nx.betweenness_centrality_subset(G, some, list(G)))
    ends = np.array([0]), np.array([1])
    negative, large = (Searches(problem_of(EdgeList.of(3, *ends, np.array([w]))))
                       for w in (-1.0, 1 << 53))  # fmt: skip
    with pytest.raises(ValueError, match="negative"):
        negative.loads().collect(0, np.arange(3))
    with pytest.raises(OverflowError, match="give the weights in a larger unit"):
        large.loads()


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_any_order_of_elimination_gives_the_same(directed, wide):
    """With numbers of paths as they are, and with exponents."""
    for seed in range(10):
        edges, rng = edges_of(graph(seed, directed=directed)), np.random.default_rng(seed)
        expected = loads(edges)
        for _ in range(3):
            for x, y in zip(
                loads(edges, rng.permutation(edges.n), wide=wide), expected, strict=True
            ):
                np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


def test_numbers_of_paths_beyond_float64(monkeypatch):
    """A chain of 400 diamonds of 30 ways each has 30⁴⁰⁰ shortest paths; each way has a 30th."""
    ways, links = 30, 400
    hubs = np.arange(links + 1)
    inner = np.arange(links * ways) + links + 1
    link = np.repeat(np.arange(links), ways)
    row, col = np.concatenate([hubs[link], inner]), np.concatenate([inner, hubs[link + 1]])
    edges = EdgeList(range(len(inner) + links + 1), row, col, np.ones(len(row), np.int64), True)
    with monkeypatch.context() as patch:
        only(patch, "searches and back")
        with pytest.raises(OverflowError, match="a prepared graph"):
            sm.statistics(edges, "betweenness", sources=[0])
    edges = sm.prepare(edges)
    found = sm.statistics(edges, BOTH, sources=[0], targets=[links])
    np.testing.assert_allclose(found.betweenness[inner], 1 / ways, rtol=1e-12)
    np.testing.assert_allclose(found.betweenness[hubs[1:-1]], 1, rtol=1e-12)
    np.testing.assert_allclose(found.edge_betweenness, 1 / ways, rtol=1e-12)
    with pytest.raises(OverflowError, match="shortest paths"):
        sm.statistics(edges, "stress", sources=[0])


def shares_of(G, sources, targets):
    """Stress and betweenness of nodes, and betweenness of edges, as exact fractions."""
    arcs = G.to_directed()
    d = dict(nx.all_pairs_dijkstra_path_length(arcs))
    number = {s: {s: Fraction(1)} for s in arcs}
    for s, paths in number.items():
        for v in sorted(d[s], key=d[s].get)[1:]:
            tight = [
                u for u in arcs.pred[v] if d[s].get(u, np.inf) + arcs[u][v]["weight"] == d[s][v]
            ]
            paths[v] = sum(paths[u] for u in tight)
    stress, nodes = ({v: Fraction(0) for v in G} for _ in range(2))
    edges = {e: Fraction(0) for e in G.edges()}
    once = 1 if G.is_directed() else Fraction(1, 2)
    for s, t in itertools.product(sources, targets):
        if s == t or t not in d[s]:
            continue
        for v in set(arcs) - {s, t}:
            if v in d[s] and t in d[v] and d[s][v] + d[v][t] == d[s][t]:
                stress[v] += once * number[s][v] * number[v][t]
                nodes[v] += once * number[s][v] * number[v][t] / number[s][t]
        for u, v, w in arcs.edges(data="weight"):
            if u != v and u in d[s] and t in d[v] and d[s][u] + w + d[v][t] == d[s][t]:
                e = (u, v) if (u, v) in edges else (v, u)
                edges[e] += once * number[s][u] * number[v][t] / number[s][t]
    return ({k: float(x) for k, x in share.items()} for share in (stress, nodes, edges))


@pytest.mark.parametrize("some", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_shares_are_those_of_exact_numbers_of_paths(directed, some):
    for seed in range(15):
        G, rng = graph(seed, directed=directed), np.random.default_rng(seed)
        sources = targets = list(G)
        if some:
            sources, targets = (
                rng.choice(sources, int(rng.integers(1, len(G) + 1)), replace=False).tolist()
                for _ in range(2)
            )
        given = {"sources": sources, "targets": targets} if some else {}
        found = sm.statistics(G, ["stress", *BOTH], **given)
        stress, nodes, edges = shares_of(G, sources, targets)
        np.testing.assert_array_equal(found.stress, list(stress.values()))
        near(found.betweenness, nodes)
        near(found.edge_betweenness, edges)
        assert len(found.nodes) == found.n == len(G)
        subset = nx.betweenness_centrality_subset(
            G, sources, targets, weight="weight", normalized=False
        )
        near(found.betweenness, subset)


@pytest.mark.parametrize("weights", [(0, 1), (5, -5)])
def test_cycles_of_length_zero_are_an_error(weights):
    G = nx.DiGraph()
    G.add_weighted_edges_from([(0, 1, weights[0]), (1, 2, 3), (2, 1, 4), (1, 0, weights[1])])
    if sum(weights):
        near(sm.statistics(G, "betweenness").betweenness, {0: 0.0, 1: 2.0, 2: 0.0})
        G = G.to_undirected()
        G[0][1]["weight"] = 0
    with pytest.raises(ValueError, match=r"the length of the cycle through . and . is 0"):
        sm.statistics(G, "betweenness")


def test_lengths_that_are_lost_in_rounding_are_an_error():
    G = nx.Graph()
    G.add_weighted_edges_from([("a", "b", 1 / 3 * 1e-17), ("b", "c", np.pi)])
    with pytest.raises(ValueError, match="through 'a' and 'b' is lost in rounding"):
        sm.statistics(G, "betweenness")


def test_edges_without_end_and_negative_ones():
    G = nx.DiGraph()
    G.add_weighted_edges_from([(0, 1, 4), (1, 2, -3), (0, 2, np.inf), (0, 3, 1), (3, 2, 0)])
    for given in (G, sm.prepare(G)):
        found = sm.statistics(given, BOTH)
        assert found.betweenness.tolist() == [0, 0.5, 0, 0.5]
        assert found.edge_betweenness.tolist() == [1.5, 0, 1.5, 1.5, 1.5]


@pytest.mark.parametrize("unit", [1, 1 / 3])
def test_what_is_asked_for_together(unit):
    G = graph(6, directed=False, unit=unit)
    found = sm.statistics(G, ["betweenness", "eccentricity", "stress"])
    alone = sm.statistics(G, "eccentricity")
    np.testing.assert_array_equal(found.eccentricity, alone.eccentricity)
    assert set(found.columns()) == {"reached", "eccentricity", "betweenness", "stress"}
    G = graph(6, directed=False)
    near(found.betweenness, nx.betweenness_centrality(G, weight="weight", normalized=False))
    with pytest.raises(ValueError, match="'betweenness' is of all nodes"):
        sm.statistics(G, ["betweenness", "mean"], sources=list(G)[:1])


def test_a_run_that_is_resumed_gives_the_same(tmp_path, monkeypatch):
    G, path = sm.prepare(nx.grid_2d_graph(20, 20)), tmp_path / "run.npz"
    monkeypatch.setattr(gradient, "_BATCH", 64)
    monkeypatch.setattr(gradient, "_VECTORS", 1)
    expected = sm.statistics(G, BOTH)
    run, calls = SweepLoads.run, []

    def killed(self, *args):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        run(self, *args)

    monkeypatch.setattr(SweepLoads, "run", killed)
    with pytest.raises(KeyboardInterrupt):
        sm.statistics(G, BOTH, tiles=sm.Tiles(out=path, checkpoint=1))
    assert path.exists()
    found = sm.statistics(G, BOTH, tiles=sm.Tiles(out=path, checkpoint=1, resume=True))
    np.testing.assert_array_equal(found.betweenness, expected.betweenness)
    np.testing.assert_array_equal(found.edge_betweenness, expected.edge_betweenness)


@pytest.mark.parametrize(
    "more", [{}, {"wide": True}, {"demand": True}, {"demand": True, "single": True}]
)
@pytest.mark.parametrize("directed", [False, True])
def test_kernels_are_those_of_python(directed, more, monkeypatch):
    """Each call of a kernel, in plain Python on copies of its arrays."""
    edges, calls = edges_of(graph(2, directed=directed)), []
    if "demand" in more:
        every, rng = np.arange(edges.n), np.random.default_rng(1)
        amounts = rng.integers(-2, 3, (edges.n, edges.n))
        more = more | {"demand": Demand.of(edges.n, every, every, amounts)}
    compiled = gradient.engines.compiled
    monkeypatch.setattr(gradient, "_VECTORS", 1)

    def kept(kernel, plan=None, *identities):
        run = compiled(kernel, plan, *identities)

        def call(**fields):
            calls.append((kernel, plan, {k: np.copy(x) if isinstance(x, np.ndarray) else x
                                         for k, x in fields.items()}))  # fmt: skip
            return run(**fields)

        return call

    monkeypatch.setattr("semiring_mm.engine.compiled", kept)
    loads(edges, **more)
    monkeypatch.undo()
    taken = {kernels.reverse_sweeps, kernels.reverse_customization}
    taken |= set() if "single" in more else {kernels.count_paths}
    scratch = (
        "place visited chain label paths power demand up_label up_paths up_power up_demand"
    ).split()
    for kernel, plan, fields in calls:
        if kernel in taken:
            both(kernel, MIN_PLUS, plan, (*scratch, "walk", "met_row"), 1e-12, **fields)
            taken.discard(kernel)
    assert not taken
