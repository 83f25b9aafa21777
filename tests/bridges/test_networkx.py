"""The backend for NetworkX against NetworkX: values, types, the order of keys, exceptions."""

import collections
import inspect
import itertools
import logging
import pickle
import random
import tracemalloc
import warnings
from fractions import Fraction

import numpy as np
import processes
import pytest

nx = pytest.importorskip("networkx")
import _nx_semiring_mm  # noqa: E402
from semiring_mm.hierarchy import costs  # noqa: E402
from semiring_mm.nx import backend, convert, distances, functions  # noqa: E402
from semiring_mm.nx.distances import _ROWS  # noqa: E402

#: (name, arguments) of what is compared on random graphs.
UNWEIGHTED = [
    ("all_pairs_shortest_path", {}),
    ("all_pairs_shortest_path", {"cutoff": 1.5}),
    ("all_pairs_shortest_path_length", {}),
    ("all_pairs_shortest_path_length", {"cutoff": 0}),
    ("all_pairs_shortest_path_length", {"cutoff": 2}),
    ("average_shortest_path_length", {}),
    ("barycenter", {}),
    ("betweenness_centrality", {}),
    ("betweenness_centrality", {"endpoints": True}),
    ("betweenness_centrality", {"normalized": False}),
    ("betweenness_centrality", {"k": 1, "seed": 5}),
    ("betweenness_centrality", {"k": 2, "seed": 5, "endpoints": True}),
    ("betweenness_centrality", {"k": 3, "seed": 5, "normalized": False}),
    ("center", {}),
    ("closeness_centrality", {}),
    ("closeness_centrality", {"wf_improved": False}),
    ("diameter", {}),
    ("eccentricity", {}),
    ("global_efficiency", {}),
    ("gutman_index", {}),
    ("harmonic_centrality", {}),
    ("harmonic_diameter", {}),
    ("hyper_wiener_index", {}),
    ("local_efficiency", {}),
    ("periphery", {}),
    ("radius", {}),
    ("schultz_index", {}),
    ("shortest_path", {}),
    ("shortest_path_length", {}),
    ("transitive_closure", {}),
    ("transitive_closure", {"reflexive": None}),
    ("transitive_closure", {"reflexive": True}),
    ("wiener_index", {}),
]
WEIGHTED = [
    ("all_pairs_dijkstra", {}),
    ("all_pairs_dijkstra", {"cutoff": 2}),
    ("all_pairs_dijkstra_path", {}),
    ("all_pairs_dijkstra_path_length", {"cutoff": 1.5}),
    ("average_shortest_path_length", {"weight": "weight"}),
    ("barycenter", {"weight": "weight"}),
    ("betweenness_centrality", {"weight": "weight"}),
    ("center", {"weight": "weight"}),
    ("closeness_centrality", {"distance": "weight"}),
    ("diameter", {"weight": "weight"}),
    ("eccentricity", {"weight": "weight"}),
    ("floyd_warshall_numpy", {}),
    ("gutman_index", {"weight": "weight"}),
    ("harmonic_centrality", {"distance": "weight"}),
    ("harmonic_diameter", {"weight": "weight"}),
    ("hyper_wiener_index", {"weight": "weight"}),
    ("johnson", {}),
    ("periphery", {"weight": "weight"}),
    ("radius", {"weight": "weight"}),
    ("schultz_index", {"weight": "weight"}),
    ("shortest_path", {"weight": "weight"}),
    ("shortest_path_length", {"weight": "weight"}),
    ("wiener_index", {"weight": "weight"}),
]
SEEN_FIRST = "all_pairs_dijkstra all_pairs_dijkstra_path johnson shortest_path".split()
BELLMAN_FORD = ["all_pairs_bellman_ford_path", "all_pairs_bellman_ford_path_length"]
DRAW = {
    "int": lambda rng: rng.randint(1, 9),
    "zeros": lambda rng: rng.randint(0, 3),
    "quarters": lambda rng: rng.randint(0, 8) / 4,
    "float": lambda rng: rng.random(),
    "tiny": lambda rng: rng.choice([0.0, 1e-17, 0.1, 0.2, 0.3, 0.7]),
    "numpy": lambda rng: np.float64(rng.random()),
    "numpy, whole": lambda rng: np.float64(rng.randint(0, 9)),
}
#: Functions whose sums have another order than NetworkX's, and by how many units of rounding, of
#: 2**-52 of a number, they may differ: in these tests by fewer than there are terms in a sum.
REORDERED, UNITS = "betweenness", 64
#: Sums of these are rounded: Floyd and Warshall's algorithm puts other brackets.
ROUNDED = ("float", "tiny", "numpy")


def random_graph(seed, weights=None):
    """A graph of any kind with labels of any kind, loops and parallel edges among them."""
    rng = random.Random(seed)
    n = rng.choice([0, 1, 2, 3, 5, 8, 13, 20])
    labels = [rng.choice([i, str(i), (i, "x"), frozenset([i])]) for i in range(n)]
    rng.shuffle(labels)
    G = rng.choice([nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph])()
    G.add_nodes_from(labels)
    for _ in range(int(n * rng.choice([0, 0.5, 1.5, 3, 6]))):
        data = {"weight": DRAW[weights](rng)} if weights else {}
        G.add_edge(rng.choice(labels), rng.choice(labels), **data)
    return G


def outcome(call):
    """The result, with a generator as a list, or the exception's type and message."""
    try:
        result = call()
        return list(result) if isinstance(result, collections.abc.Iterator) else result
    except Exception as error:
        return type(error), str(error)


def assert_same(mine, theirs, units=0):
    """Equal in all; floats may differ by some units of rounding."""
    assert type(mine) is type(theirs)
    if isinstance(mine, dict):
        assert list(mine) == list(theirs)
        assert_same(list(mine.values()), list(theirs.values()), units)
    elif isinstance(mine, (list, tuple)):
        assert len(mine) == len(theirs)
        for x, y in zip(mine, theirs, strict=True):
            assert_same(x, y, units)
    elif isinstance(mine, float) and mine == mine and units:
        assert abs(mine - theirs) <= units * 2.0**-52 * abs(theirs)
    elif isinstance(mine, np.ndarray):
        np.testing.assert_array_equal(mine, theirs)
        assert mine.dtype == theirs.dtype
    elif isinstance(mine, nx.Graph):
        assert_same(mine._adj, theirs._adj)
        assert_same(mine._node, theirs._node)
    else:
        assert mine == theirs or (mine != mine and theirs != theirs)


def run(name, G, **arguments):
    return outcome(lambda: getattr(nx, name)(G, backend="semiring_mm", **arguments))


def compare(name, G, **arguments):
    """Whether the backend took the call; then its outcome is networkx's."""
    theirs = outcome(lambda: getattr(nx, name)(G, backend="networkx", **arguments))
    mine = run(name, G, **arguments)
    refused = isinstance(mine, tuple) and mine[:1] == (NotImplementedError,)
    if refused and "not implemented for" not in str(mine[1]):
        return False
    assert_same(mine, theirs, UNITS if REORDERED in name else 0)
    return True


def agree(name, G):
    """As :func:`compare`; before NetworkX 3.6 paths were in the order of first sight."""
    if nx.__version__ < "3.6" and name in SEEN_FIRST:
        return dict(run(name, G)) == dict(getattr(nx, name)(G, backend="networkx"))
    return compare(name, G)


def has(name):
    return hasattr(nx, name)


@pytest.mark.parametrize(("name", "arguments"), UNWEIGHTED)
def test_unweighted(name, arguments):
    if not has(name):
        pytest.skip(f"this networkx has no {name}")
    taken = sum(compare(name, random_graph(seed), **arguments) for seed in range(24))
    assert taken >= 20  # it leaves centres of trees to networkx


@pytest.mark.parametrize("weights", DRAW)
@pytest.mark.parametrize(("name", "arguments"), WEIGHTED)
def test_weighted(name, arguments, weights):
    if not has(name):
        pytest.skip(f"this networkx has no {name}")
    if name == "floyd_warshall_numpy" and weights in ROUNDED:
        pytest.skip("agrees to rounding: see the test of that")
    if nx.__version__ < "3.6" and name in SEEN_FIRST:
        pytest.skip("paths were in the order of first sight, not of distance")
    taken = sum(compare(name, random_graph(seed, weights), **arguments) for seed in range(16))
    whole = "schultz gutman hyper".split()
    few = weights not in ("int", "zeros") and name.split("_")[0] in whole
    few |= weights not in ("int", "float", "numpy") and "betweenness" in name  # zeros
    assert taken >= (2 if few else 14)  # without edges there is nothing to round


ONE_NODE = [
    ("closeness_centrality", "u", "distance"),
    ("eccentricity", "v", "weight"),
    ("shortest_path", "source", "weight"),
    ("shortest_path_length", "source", "weight"),
    ("single_source_dijkstra", "source", "weight"),
    ("single_source_dijkstra_path", "source", "weight"),
    ("single_source_dijkstra_path_length", "source", "weight"),
    ("single_source_shortest_path", "source", None),
    ("single_source_shortest_path_length", "source", None),
]


@pytest.mark.parametrize("weights", [None, "int", "float"])
@pytest.mark.parametrize(("name", "node", "weight"), ONE_NODE)
def test_paths_from_one_node(name, node, weight, weights):
    if (weight and "path" in name) or name == "single_source_dijkstra":
        pytest.importorskip("networkx", "3.6")  # another order of the same paths before
    for seed in range(20):
        G = random_graph(seed, weights)
        arguments = {weight: "weight"} if weights and weight else {}
        for start in [*list(G)[:4], "absent"]:
            if start == "absent" and name == "eccentricity":
                continue  # there a word may also be a set of nodes
            assert compare(name, G, **{node: start}, **arguments)


@pytest.fixture
def by_parts(monkeypatch):
    """Nothing is found from the matrix of all distances, but from some rows or by a collector."""
    monkeypatch.setattr(distances, "_ENTRIES", 64)
    monkeypatch.setattr(distances, "SPARSE_FROM", 0)


#: Families of graphs: without an edge, without cycles, with long paths and short ones, in parts.
FAMILIES = {
    "none": lambda: nx.empty_graph(0),
    "one": lambda: nx.empty_graph(1),
    "apart": lambda: nx.empty_graph(5),
    "loops": lambda: nx.MultiGraph([(0, 0), (0, 1), (1, 0), (1, 1), (2, 1)]),
    "path": lambda: nx.path_graph(40, nx.DiGraph),
    "tree": lambda: nx.random_labeled_tree(40, seed=1),
    "star": lambda: nx.star_graph(30),
    "caterpillar": lambda: nx.Graph([(i // 2 * 2, i + 1 + i % 2) for i in range(30)]),
    "grid": lambda: nx.grid_2d_graph(6, 7),
    "small world": lambda: nx.watts_strogatz_graph(40, 4, 0.2, seed=1),
    "power law": lambda: nx.barabasi_albert_graph(40, 2, seed=1),
    "cycle": lambda: nx.cycle_graph(40, nx.DiGraph),
    "strong": lambda: nx.compose(nx.cycle_graph(30, nx.DiGraph), nx.gnp_random_graph(
        30, 0.05, seed=1, directed=True)),
    "parallel": lambda: nx.MultiDiGraph([(i % 9, (i * 7 + 1) % 9) for i in range(40)]),
    "in parts": lambda: nx.disjoint_union(nx.path_graph(9), nx.cycle_graph(8)),
}  # fmt: skip
MEASURES = """
    average_shortest_path_length barycenter center closeness_centrality diameter eccentricity
    harmonic_centrality harmonic_diameter periphery radius shortest_path_length wiener_index
    betweenness_centrality global_efficiency hyper_wiener_index schultz_index transitive_closure
""".split()


@pytest.mark.parametrize("weights", [None, "int", "zeros", "quarters", "float"])
@pytest.mark.parametrize("family", FAMILIES)
def test_families_by_parts(family, weights, by_parts):
    G, rng = FAMILIES[family](), random.Random(3)
    if weights:
        for *_, data in G.edges(data=True):
            data["weight"] = DRAW[weights](rng)
    taken = 0
    for name in filter(has, MEASURES):
        parameters = backend._signature(name).parameters
        weight = next((x for x in ("weight", "distance") if x in parameters), None)
        if weight is not None or not weights:
            taken += compare(name, G, **({weight: "weight"} if weights else {}))
    assert taken >= (8 if weights == "zeros" else 11)


def test_weights_of_which_sums_are_rounded_or_too_large(by_parts):
    """Distances are exact, but not their sums: they are added up as NetworkX does."""
    for draw, G in itertools.product(
        (
            lambda r: float(r.randint(2**45, 3 * 2**44)), lambda r: r.randint(2**44, 2**45),
            lambda r: float(r.randint(2**51, 2**52)),  # nor are distances
        ),
        (nx.gnm_random_graph(40, 120, seed=2), nx.path_graph(40)),
    ):  # fmt: skip
        G, rng = G.copy(), random.Random(1)
        for *_, data in G.edges(data=True):
            data["weight"] = draw(rng)
        for name in ("average_shortest_path_length", "barycenter", "eccentricity", "wiener_index"):
            assert compare(name, G, weight="weight")
        assert compare("closeness_centrality", G, distance="weight")


@pytest.mark.parametrize("order", [*itertools.permutations("abcd")], ids="".join)
def test_an_edge_that_another_sum_of_the_same_path_is_shorter_than(order):
    for x, y, z in ((0.1, 0.2, 0.3), (1.0, 1.0, 2.0**53)):
        assert x + (y + z) < (x + y) + z
        G = nx.DiGraph()
        G.add_nodes_from(order)
        G.add_weighted_edges_from([("a", "b", x), ("b", "c", y), ("c", "d", z)])
        G.add_edge("a", "d", weight=x + y + z)
        assert agree("all_pairs_dijkstra", G)


@pytest.mark.parametrize("name", ["average_shortest_path_length", "closeness_centrality"])
def test_no_memory_for_all_pairs(name):
    """Of 4,000 nodes a matrix of bytes would be 16 MB."""
    G = nx.random_labeled_tree(4000, seed=1)
    for weights in (None, "weight"):
        arguments = {"distance" if name.startswith("closeness") else "weight": weights}
        nx.set_edge_attributes(G, 3, "weight")
        getattr(backend, name)(nx.path_graph(600), **arguments)  # what is compiled is kept
        tracemalloc.start()
        try:
            getattr(backend, name)(G, **arguments)
            assert tracemalloc.get_traced_memory()[1] < 16e6
        finally:
            tracemalloc.stop()


def test_the_device_is_that_of_the_configuration(monkeypatch, by_parts):
    asked, plain = [], distances.collect
    monkeypatch.setattr(distances, "collect", lambda *a: asked.append(a[3]) or plain(*a[:3], "cpu"))
    with nx.config.backends.semiring_mm(device="cuda:1"):
        assert compare("eccentricity", nx.cycle_graph(9))
    assert compare("eccentricity", nx.cycle_graph(9))
    assert asked == ["cuda:1", None]


def test_rows_come_some_at_a_time(monkeypatch):
    """The first row of a generator takes neither the time nor the memory of all."""
    counts = []
    net = convert.Graph(nx.path_graph(50)).network(None)
    kind = type(distances.finder(distances.request_of(net.edges(net.arcs.weight), 3)))
    plain = kind.rows
    monkeypatch.setattr(
        kind, "rows", lambda self, some: counts.append(len(some)) or plain(self, some)
    )
    monkeypatch.setattr(distances, "_ENTRIES", 500)
    lengths = backend.all_pairs_shortest_path_length(nx.complete_graph(50))
    assert next(lengths)[0] == 0
    assert counts == [10]
    assert len(list(lengths)) == 49
    assert counts == [10] * 5


SEVERAL = [
    ("multi_source_dijkstra", "sources"),
    ("multi_source_dijkstra_path", "sources"),
    ("multi_source_dijkstra_path_length", "sources"),
    ("voronoi_cells", "center_nodes"),
]


@pytest.mark.parametrize("weights", [None, "int", "zeros", "float", "numpy"])
@pytest.mark.parametrize(("name", "starts"), SEVERAL)
def test_paths_from_several_nodes(name, starts, weights):
    if name.startswith("multi"):
        pytest.importorskip("networkx", "3.6")  # another order of the same paths before
    for seed in range(16):
        G = random_graph(seed, weights)
        nodes = list(G)
        for some in (nodes[:1], nodes[::-3], nodes[:2] * 2, set(nodes[1::2]), [], ["absent"]):
            assert compare(name, G, **{starts: some})
        if starts == "sources" and nodes:
            for cutoff in (-1, 0, 2):
                assert compare(name, G, sources=nodes[:2], cutoff=cutoff)


@pytest.mark.parametrize("weights", [None, "int", "float", "numpy"])
def test_harmonic_centrality_of_and_from_some_nodes(weights):
    pytest.importorskip("networkx", "3.6")  # another order of the same sums before
    distance = "weight" if weights else None
    for seed in range(12):
        G = random_graph(seed, weights)
        nodes = list(G)
        for nbunch, sources in ((nodes[:2], None), (None, nodes[:2]), (nodes[:3], nodes[2:]),
                                (nodes[0] if nodes else None, nodes), ([], nodes)):  # fmt: skip
            arguments = {"nbunch": nbunch, "sources": sources, "distance": distance}
            assert compare("harmonic_centrality", G, **arguments)


def test_eccentricity_of_some_nodes():
    assert compare("eccentricity", nx.cycle_graph(6), v=[5, 0, 9])
    G = nx.path_graph(6, nx.DiGraph)
    for v in (0, [0], [1, 0], 5, []):  # the first reaches all, and no other
        assert compare("eccentricity", G, v=v)


def test_cutoffs_from_one_node():
    G = nx.path_graph(9)
    for cutoff in (0, 1.5, 3):
        for name in ("single_source_dijkstra_path_length", "single_source_shortest_path"):
            assert compare(name, G, source=2, cutoff=cutoff)


@pytest.fixture(params=["searches", "sweeps"])
def counting(request, monkeypatch):
    """Shortest paths are counted by either method, where weights are exact."""
    if request.param == "sweeps":
        monkeypatch.setattr(costs, "reversed_searches", lambda *_, **__: 1e18)


@pytest.mark.usefixtures("counting")
@pytest.mark.parametrize("weights", [None, "int", "float", "quarters"])
def test_edge_betweenness(weights):
    taken = 0
    for seed in range(60):
        G, weight = random_graph(seed, weights), "weight" if weights else None
        for normalized in (True, False):
            arguments = {"weight": weight, "normalized": normalized}
            taken += compare("edge_betweenness_centrality", G, **arguments)
    assert taken == 120 if weights != "quarters" else taken >= 30  # of which some are 0


def test_edge_betweenness_from_a_sample():
    pytest.importorskip("networkx", "3.6")  # which divides by the number of sources
    for seed in range(20):
        for k in (1, 4):
            assert compare("edge_betweenness_centrality", random_graph(seed), k=k, seed=seed)


@pytest.mark.usefixtures("counting")
@pytest.mark.parametrize("weights", [None, "int", "float"])
def test_betweenness_by_either_method(weights):
    for seed in range(20):
        G, weight = random_graph(seed, weights), "weight" if weights else None
        for arguments in ({}, {"endpoints": True}, {"k": min(3, len(G)), "seed": seed}):
            assert compare("betweenness_centrality", G, weight=weight, **arguments)


@pytest.mark.usefixtures("counting")
@pytest.mark.parametrize("weights", [None, "int", "float"])
def test_betweenness_of_subsets(weights):
    for seed in range(40):
        G, weight = random_graph(seed, weights), "weight" if weights else None
        rng = random.Random(seed)
        some = [rng.choice(list(G)) for _ in range(len(G) // 2)]  # some of them twice
        for normalized in (True, False):
            arguments = {"sources": some, "weight": weight, "normalized": normalized}
            ends = [*list(G)[::2], "absent"]
            assert compare("betweenness_centrality_subset", G, targets=ends, **arguments)
            assert compare("edge_betweenness_centrality_subset", G, targets=list(G), **arguments)
    absent = {"sources": ["absent"], "targets": []}
    assert compare("betweenness_centrality_subset", nx.path_graph(3), **absent)


def test_subsets_are_worth_reading_the_graph():
    """Unlike one search from several sources."""
    arguments = {"sources": range(200), "targets": range(200)}
    graph = nx.path_graph(300)
    assert backend.should_run("betweenness_centrality_subset", (graph,), arguments) is True


def test_transitive_closure_of_a_dag():
    G = nx.gnp_random_graph(40, 0.1, seed=3, directed=True)
    with pytest.raises(nx.NetworkXUnfeasible):
        nx.transitive_closure_dag(G, backend="semiring_mm")
    G.remove_edges_from([(u, v) for u, v in G.edges if u >= v])
    mine = nx.transitive_closure_dag(G, backend="semiring_mm")
    assert nx.utils.graphs_equal(mine, nx.transitive_closure_dag(G))


@pytest.mark.parametrize("weights", ["int", "zeros", "quarters", "numpy, whole"])
def test_floyd_warshall(weights):
    for seed in range(60):
        assert compare("floyd_warshall", random_graph(seed, weights))


@pytest.mark.parametrize("weights", ROUNDED)
def test_floyd_warshall_to_rounding(weights):
    for seed in range(40):
        G = random_graph(seed, weights)
        mine, theirs = run("floyd_warshall", G), nx.floyd_warshall(G)
        assert list(mine) == list(theirs)
        for node, row in mine.items():
            assert list(row) == list(theirs[node])
            assert list(map(type, row.values())) == list(map(type, theirs[node].values()))
            assert row == pytest.approx(theirs[node], rel=1e-15 * 40)
        matrix = run("floyd_warshall_numpy", G)
        np.testing.assert_allclose(matrix, nx.floyd_warshall_numpy(G), rtol=1e-15 * 40)


def weigh(G, path):
    """What a path weighs by its lightest edges."""
    edges = itertools.pairwise(path)
    if G.is_multigraph():
        return sum(min(d.get("weight", 1) for d in G[u][v].values()) for u, v in edges)
    return sum(G[u][v].get("weight", 1) for u, v in edges)


@pytest.mark.parametrize("name", ["floyd_warshall_predecessor_and_distance", "floyd_warshall_tree"])
@pytest.mark.parametrize("weights", [None, "int", "zeros"])
def test_predecessors_of_floyd_and_warshall(name, weights):
    """Of equally short paths another one may come back, and keys of farther nodes in any order."""
    for seed in range(40):
        G = random_graph(seed, weights)
        theirs, distance = nx.floyd_warshall_predecessor_and_distance(G, backend="networkx")
        mine, found = getattr(backend, name)(G)
        assert list(mine) == list(theirs)
        for u, row in mine.items():
            assert row.keys() == theirs[u].keys()
            near = list(dict.fromkeys(theirs[u]))[: len(set(G[u]))]
            assert list(row)[: len(near)] == near
            for v in row.keys() - {u}:
                path = nx.reconstruct_path(u, v, mine)
                assert (path[0], path[-1]) == (u, v)
                if weights:
                    assert weigh(G, path) == distance[u][v]
        if name == "floyd_warshall_tree":
            for u, row in found.items():
                begun = {v for v in G if v in theirs}
                expected = {v for v in G if v in begun or distance[u][v] < np.inf}
                assert dict(row) == {v: distance[u][v] for v in expected}
        else:
            assert_same(
                {u: list(row.items()) for u, row in found.items()},
                {u: list(row.items()) for u, row in distance.items()},
            )


def negative_graph(seed, n=14):
    """A directed graph without negative cycles: weights of either sign by potentials."""
    rng = random.Random(seed)
    G = nx.gnp_random_graph(n, 3.5 / n, seed=seed, directed=True)
    height = [rng.randint(-9, 9) for _ in G]
    for u, v, data in G.edges(data=True):
        data["weight"] = rng.randint(0, 6) + height[u] - height[v]
    return G


@pytest.mark.parametrize("seed", range(30))
def test_negative_weights(seed):
    G = negative_graph(seed)
    assert not compare("closeness_centrality", G, distance="weight")
    if nx.__version__ >= "3.6":
        assert compare("johnson", G)
    assert run("johnson", G) == nx.johnson(G)
    assert compare("floyd_warshall", G)
    assert run("all_pairs_dijkstra_path_length", G)[0] is NotImplementedError
    check_bellman_ford(G)


@pytest.mark.parametrize("weights", ["int", "float"])
def test_more_nodes_than_are_searched_at_a_time(weights):
    G = nx.gnp_random_graph(_ROWS + 22, 0.03, seed=1, directed=True)
    rng = random.Random(2)
    for _, _, data in G.edges(data=True):
        data["weight"] = DRAW[weights](rng)
    for name in ("all_pairs_dijkstra", "all_pairs_dijkstra_path_length", "johnson"):
        assert agree(name, G)


def test_more_nodes_than_are_searched_at_a_time_with_negative_weights():
    G = negative_graph(5, _ROWS + 22)
    assert run("johnson", G) == nx.johnson(G)
    check_bellman_ford(G)


@pytest.mark.parametrize("weights", [None, "int", "zeros", "quarters", "float"])
def test_bellman_ford(weights):
    """Equal as dictionaries; keys come by distance, and another path may be as short."""
    for seed in range(40):
        check_bellman_ford(random_graph(seed, weights))


def check_bellman_ford(G):
    mine = dict(run("all_pairs_bellman_ford_path_length", G))
    theirs = dict(nx.all_pairs_bellman_ford_path_length(G))
    assert mine == theirs
    for source, paths in run("all_pairs_bellman_ford_path", G):
        assert paths.keys() == theirs[source].keys()
        for end, path in paths.items():
            assert (path[0], path[-1]) == (source, end)
            assert weigh(G, path) == pytest.approx(theirs[source][end], rel=1e-14)


def test_negative_cycles():
    G = nx.DiGraph([(0, 1, {"weight": 1}), (1, 0, {"weight": -2}), (2, 0, {"weight": 1})])
    assert compare("johnson", G)
    for name in (*BELLMAN_FORD, "floyd_warshall", "floyd_warshall_numpy"):
        with pytest.raises(NotImplementedError) as error:
            getattr(backend, name)(G)
        assert "negative weight" in str(error.value)


@pytest.mark.parametrize("seed", range(20))
def test_views(seed):
    G = random_graph(seed, "int")
    nodes = random.Random(seed).sample(list(G), len(G) // 2)
    for view in (G.subgraph(nodes), nx.restricted_view(G, nodes[:2], []), G.to_directed(True)):
        assert compare("all_pairs_dijkstra_path_length", view)
        assert compare("floyd_warshall", view)
        assert compare("transitive_closure", view)


def test_nodelist():
    G = random_graph(5, "int")
    nodes = list(G)
    for nodelist in (nodes[::-1], nodes[:-1], [*nodes[:-1], nodes[0]], [*nodes[:-1], "none"]):
        assert compare("floyd_warshall_numpy", G, nodelist=nodelist)


@pytest.mark.parametrize(
    ("weight", "says"),
    [
        (Fraction(1, 2), "Fraction"),
        ("1", "str"),
        (None, "NoneType"),
        (True, "bool"),
        (np.int64(2), "int64"),
        (float("nan"), "NaN"),
        (float("inf"), "infinite"),
        (2**60, "2**51"),
    ],
)
def test_weights_that_are_left_to_networkx(weight, says):
    G = nx.Graph([(0, 1, {"weight": weight})])
    with pytest.raises(NotImplementedError) as error:
        backend.all_pairs_dijkstra_path_length(G)
    assert says in str(error.value)
    assert "networkx" in str(error.value)


def test_weights_of_two_types_are_left_to_networkx():
    G = nx.Graph([(0, 1, {"weight": 1.5}), (1, 2)])
    with pytest.raises(NotImplementedError, match="float, int"):
        backend.all_pairs_dijkstra_path_length(G)
    assert compare("floyd_warshall", G)  # there an edge without a weight counts as 1.0
    assert compare("floyd_warshall_numpy", nx.Graph([(0, 1, {"weight": 1.5}), (1, 2)]))


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("all_pairs_dijkstra", {"weight": lambda u, v, d: 1}, "weight is a function"),
        ("closeness_centrality", {"distance": lambda u, v, d: 1}, "distance is a function"),
        ("multi_source_dijkstra", {"sources": [0], "target": 2}, "target is given"),
        ("voronoi_cells", {"center_nodes": iter([0])}, "read once"),
        ("eccentricity", {"sp": {}}, "sp is given"),
        ("diameter", {"usebounds": True}, "usebounds"),
        ("diameter", {"e": {}}, "e is given"),
        ("barycenter", {"attr": "b"}, "attr is given"),
        ("shortest_path", {"source": 1, "target": 0}, "target is given"),
        ("shortest_path", {"source": 1, "weight": "w", "method": "bellman-ford"}, "Bellman"),
        ("betweenness_centrality", {"weight": "zero"}, "some are 0"),
        ("edge_betweenness_centrality_subset", {"sources": [0], "targets": [2]}, "no targets"),
        ("betweenness_centrality_subset", {"sources": iter([0]), "targets": [2]}, "read once"),
        ("transitive_closure_dag", {"topo_order": [0, 1, 2]}, "topo_order is given"),
    ],
)
def test_a_refusal_has_its_reason(name, arguments, says):
    """In the traceback of a call with `backend=`, and in the answer of should_run."""
    G = nx.path_graph(3, create_using=nx.DiGraph if name.endswith("dag") else None)
    nx.set_edge_attributes(G, 0, "zero")
    with pytest.raises(NotImplementedError, match="semiring_mm") as error:
        getattr(nx, name)(G, backend="semiring_mm", **arguments)
    assert says in str(error.value.__cause__)
    assert "networkx" in str(error.value.__cause__) or "function" in says
    if says.endswith("given"):
        assert says in backend.should_run(name, (G,), arguments)


def test_parameters_of_another_release_are_refused():
    assert "other" in backend.can_run("diameter", (nx.path_graph(3),), {"other": 1})


@pytest.fixture
def automatic():
    """NetworkX chooses the backend by itself."""
    with nx.config(backend_priority=["semiring_mm"]):
        yield


def used(caplog):
    return [r.getMessage() for r in caplog.records if "Using backend" in r.getMessage()]


def test_networkx_chooses_the_backend_where_it_gains(automatic, caplog):
    caplog.set_level(logging.DEBUG, "networkx")
    small, large = nx.cycle_graph(100), nx.cycle_graph(250)
    for G, count in ((small, 0), (large, 1)):
        caplog.clear()
        assert nx.wiener_index(G) == len(G) ** 3 / 8
        assert len(used(caplog)) == count
    with nx.config.backends.semiring_mm(min_nodes=10):
        caplog.clear()
        nx.wiener_index(small)
        assert len(used(caplog)) == 1


def test_networkx_goes_on_where_the_backend_refuses(automatic):
    G = nx.path_graph(250)
    nx.set_edge_attributes(G, Fraction(1, 2), "weight")
    assert nx.average_shortest_path_length(G, weight="weight") == Fraction(251, 6)


def test_should_run_says_why_not():
    huge = nx.empty_graph(10**6)
    assert backend.should_run("closeness_centrality", (huge,), {}) is True
    assert "lists" in backend.should_run("all_pairs_shortest_path", (nx.path_graph(300),), {})
    assert "lists" in backend.should_run("shortest_path", (nx.path_graph(300),), {})
    weighted = backend.should_run("shortest_path", (nx.path_graph(300),), {"weight": "weight"})
    assert weighted is True
    assert "too small" in backend.should_run("local_efficiency", (nx.path_graph(300),), {})
    assert "needs" in backend.should_run("floyd_warshall", (huge,), {})


def test_a_graph_is_read_once_until_it_changes(monkeypatch):
    read, reads = convert._read, []
    monkeypatch.setattr(convert, "_read", lambda *a: reads.append(a[1:]) or read(*a))
    G = nx.cycle_graph(6)
    lengths = [dict(run("all_pairs_dijkstra_path_length", G))[0][1] for _ in range(3)]
    assert lengths == [1, 1, 1]
    assert run("betweenness_centrality", G, weight="weight")
    assert len(reads) == 1
    G.add_edge(0, 1, weight=100)
    assert dict(run("all_pairs_dijkstra_path_length", G))[0][1] == 5
    assert len(reads) == 2
    assert dict(pickle.loads(pickle.dumps(G)).edges) == dict(G.edges)


def test_networkx_warns_of_a_graph_that_it_kept():
    """A weight that is changed past the methods of the graph is not seen: NetworkX says so."""
    G = nx.cycle_graph(6)
    run("diameter", G)
    with warnings.catch_warnings(action="default", category=UserWarning):
        warnings.simplefilter("always")
        with pytest.warns(UserWarning, match="cached graph"):
            run("diameter", G)
    with nx.config(cache_converted_graphs=False):
        G[0][1]["weight"] = 100
        assert dict(run("all_pairs_dijkstra_path_length", G))[0][1] == 5


def test_one_search_runs_where_the_graph_was_read():
    G = nx.path_graph(300)
    arguments = (G, 0)
    assert "not kept" in backend.should_run("single_source_dijkstra", arguments, {})
    run("diameter", G)
    assert backend.should_run("single_source_dijkstra", arguments, {}) is True


def three_ways(places):
    return nx.Graph((4 * i + a, 4 * i + b) for i in range(places) for a, b in
                    [(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4)])  # fmt: skip


def test_numbers_of_paths_are_rounded_beyond_53_bits():
    G = three_ways(40)  # 3**40 > 2**53
    nx.set_edge_attributes(G, 1.5, "weight")
    assert compare("betweenness_centrality", G)
    assert compare("edge_betweenness_centrality", G, weight="weight")


@pytest.mark.parametrize("weight", [None, "weight"])
def test_numbers_of_paths_beyond_float64(weight):
    """Sweeps count any number: hubs separate what is left and right of them."""
    G = three_ways(650)  # 3**650 > 1e308
    nx.set_edge_attributes(G, 1.5, "weight")
    found = run("betweenness_centrality", G, weight=weight, normalized=False)
    for i in range(1, 650):
        assert found[4 * i] == pytest.approx(16 * i * (650 - i) + 3, rel=1e-12)


def test_numbers_of_paths_beyond_float64_are_left_to_networkx():
    G = three_ways(650)
    nx.set_edge_attributes(G, 1 / 3, "weight")
    with pytest.raises(NotImplementedError) as error:
        nx.betweenness_centrality(G, weight="weight", backend="semiring_mm")
    assert "more than 1e+300 shortest paths" in str(error.value.__cause__)


def test_the_address_of_the_project(monkeypatch):
    class Metadata:
        def get_all(self, name):
            return ["Source, https://example.org/semiring_mm"] if name == "Project-URL" else None

    monkeypatch.setattr(_nx_semiring_mm, "metadata", lambda name: Metadata())
    assert _nx_semiring_mm.get_info()["url"] == "https://example.org/semiring_mm"


def test_graphs_go_through_and_come_back():
    G = nx.path_graph(3)
    wrapped = backend.convert_from_nx(G, edge_attrs={"weight": 1}, name="x", graph_name="G")
    assert backend.convert_to_nx(wrapped) is G
    assert backend.convert_to_nx([1]) == [1]
    assert nx.diameter(wrapped) == 2


def test_configuration_is_checked():
    config = nx.config.backends.semiring_mm
    for key, value in [("device", "gpu"), ("device", None), ("min_nodes", -1), ("min_nodes", True)]:
        with pytest.raises(ValueError, match=f"{key} is .*, got {value!r}"):
            setattr(config, key, value)
    with config(device="cpu", min_nodes=0):
        assert nx.diameter(nx.path_graph(4), backend="semiring_mm") == 3
    assert config.device == "auto"


def test_the_information_names_what_there_is():
    names = set(functions.__all__)
    assert names == set(_nx_semiring_mm.get_info()["functions"])
    known = nx.utils.backends._registered_algorithms
    newer = {"floyd_warshall_tree", "hyper_wiener_index"}
    assert names - newer <= known.keys()
    for name in names & known.keys():  # the same parameters
        mine = list(backend._signature(name).parameters.values())
        theirs = list(inspect.signature(known[name].orig_func).parameters.values())
        assert [(p.name, p.kind, p.default) for p in mine] == [
            (p.name, p.kind, p.default) for p in theirs
        ]


def test_importing_networkx_loads_neither_numpy_nor_this_package():
    text = """
import networkx as nx, sys
assert "all_pairs_dijkstra" in nx.utils.backends.backend_info["semiring_mm"]["functions"]
assert nx.config.backends.semiring_mm.device == "auto"
assert "semiring_mm" in nx.all_pairs_dijkstra.__doc__
print(*({"numpy", "semiring_mm"} & sys.modules.keys()))
"""
    done = processes.run("-c", text)
    assert (done.stdout.strip(), done.stderr) == ("", "")


def test_the_benchmark_compares_both():
    done = processes.run("-W", "ignore", "-m", "bench.neighbours_networkx", "--quick")
    assert done.returncode == 0, done.stderr
    assert "transitive_closure(G)" in done.stdout
