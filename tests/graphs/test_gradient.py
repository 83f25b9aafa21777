"""Betweenness of nodes and edges against NetworkX, and exact numbers of shortest paths."""

import itertools

import numpy as np
import pytest
from metrics import only
from optional import igraph, nx, pd, sp
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


GRAPHS, NODES = 720, 6  # small ones, of which each case has one disjoint union


def small_graphs(seed, *, directed, parallel):
    """Many graphs with ties, some of them disconnected, as sorted edges of their union."""
    rng = np.random.default_rng(seed)
    number = np.repeat(np.arange(GRAPHS), rng.integers(0, 16, GRAPHS))
    row, col = rng.integers(0, NODES, (2, len(number)))
    if not directed:
        row, col = np.minimum(row, col), np.maximum(row, col)
    row, col = (x + NODES * number for x in (row, col))
    order = np.lexsort((col, row))
    row, col, n = row[order], col[order], NODES * GRAPHS
    if not parallel:
        row, col = np.divmod(np.unique((row * n + col)[row != col]), n)
    return EdgeList(range(n), row, col, rng.integers(1, 4, len(row)), directed)


def shares_of(edges, begins, ends):
    """Stress, betweenness and edge betweenness of small graphs, by all numbers of their paths."""
    shape = (GRAPHS, NODES, NODES)
    number, row, col = edges.row // NODES, edges.row % NODES, edges.col % NODES
    w = np.full(shape, np.inf)
    np.minimum.at(w, (number, row, col), edges.weight)
    if not edges.directed:
        w = np.minimum(w, w.transpose(0, 2, 1))
    w[:, range(NODES), range(NODES)] = np.inf  # a loop is in no path
    d = np.where(np.eye(NODES, dtype=bool), 0, w)
    for k in range(NODES):
        d = np.minimum(d, d[:, :, k, np.newaxis] + d[:, np.newaxis, k])
    before, after = d[:, :, :, np.newaxis], d[:, np.newaxis]
    last = before + w[:, np.newaxis] == d[:, :, np.newaxis]  # the arc u - v of paths from s
    last &= np.isfinite(w[:, np.newaxis])
    paths = step = np.tile(np.eye(NODES), (GRAPHS, 1, 1))
    for _ in range(NODES):
        step = np.einsum("gsu,gsuv->gsv", step, last)
        paths = paths + step
    pairs = begins.reshape(-1, NODES, 1) & ends.reshape(-1, 1, NODES) & (d > 0) & np.isfinite(d)
    once = pairs * (1 if edges.directed else 0.5)
    share = once / np.maximum(paths, 1)
    ahead = before + after == d[:, :, np.newaxis]  # v is in paths from s to t
    through = ahead & (before > 0) & (after > 0)
    stress, nodes = (
        np.einsum("gst,gsv,gvt,gsvt->gv", x, paths, paths, through).ravel() for x in (once, share)
    )
    arcs = np.einsum("gst,gsu,gvt,gsuv,gsvt->guv", share, paths, paths, last, ahead, optimize=True)
    if not edges.directed:
        arcs = arcs + arcs.transpose(0, 2, 1)
    shortest = (edges.weight == w[number, row, col]) & (row != col)
    parallel = np.zeros(shape)
    np.add.at(parallel, (number, row, col), shortest)
    carried = arcs[number, row, col] * shortest / np.maximum(parallel[number, row, col], 1)
    return {"stress": stress, "betweenness": nodes, "edge_betweenness": carried}


def network_of(edges):
    G = (nx.MultiDiGraph if edges.directed else nx.MultiGraph)()
    G.add_nodes_from(edges.nodes)
    G.add_weighted_edges_from(zip(*(x.tolist() for x in edges.arrays), strict=True))
    return G


def igraph_of(edges):
    ends = np.stack([edges.row, edges.col], 1).tolist()
    weight = {"weight": edges.weight.tolist()}
    return igraph.Graph(edges.n, ends, edges.directed, edge_attrs=weight)


def table_of(edges):
    return pd.DataFrame(dict(zip(("source", "target", "weight"), edges.arrays, strict=True)))


def dict_of(edges):
    graph = {v: {} for v in edges.nodes}
    for u, v, w in zip(*(x.tolist() for x in edges.arrays), strict=True):
        graph[u][v] = w
    return graph


def matrix_of(edges):
    return sp.csr_array((edges.weight, (edges.row, edges.col)), (edges.n, edges.n))


FORMS = {
    "edges": lambda edges: edges, "searches": lambda edges: edges, "prepared": sm.prepare,
    "NetworkX": network_of, "igraph": igraph_of, "pandas": table_of,
    "dict": dict_of, "SciPy": matrix_of,
}  # fmt: skip
SIMPLE = "dict", "SciPy"  # without parallel edges; undirected, they have each edge twice


@pytest.mark.parametrize(
    ("form", "directed"),
    [(x, directed) for x in FORMS for directed in (True, False) if directed or x not in SIMPLE],
)
def test_many_small_graphs_in_all_forms(form, directed, monkeypatch):
    """Against the numbers of all shortest paths, which are exact: of all pairs, and of some."""
    if form == "searches":
        only(monkeypatch, *(x.name for x in METHODS if x.name != "reverse sweeps"))
    seed = 2 * [*FORMS].index(form) + directed
    rng = np.random.default_rng(seed)
    edges = small_graphs(seed, directed=directed, parallel=form not in SIMPLE)
    given, what = FORMS[form](edges), ["stress", *BOTH]
    more = {"directed": directed} if form == "pandas" else {}
    there = np.unique(np.concatenate([edges.row, edges.col]))  # a table has no other nodes
    every = np.ones(edges.n, bool)
    begins, ends = (np.isin(range(edges.n), rng.permutation(there)[: edges.n // 3]) for _ in "st")
    for some in ({}, {"sources": np.flatnonzero(begins), "targets": np.flatnonzero(ends)}):
        found = sm.statistics(given, what, **more, **some)
        expected = shares_of(edges, *((begins, ends) if some else (every, every)))
        nodes = np.array(found.nodes)
        assert len(nodes) == edges.n or form == "pandas"
        np.testing.assert_array_equal(found.stress, expected["stress"][nodes])
        near = {"rtol": 1e-12, "atol": 1e-12}
        np.testing.assert_allclose(found.betweenness, expected["betweenness"][nodes], **near)
        np.testing.assert_allclose(found.edge_betweenness, expected["edge_betweenness"], **near)


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
