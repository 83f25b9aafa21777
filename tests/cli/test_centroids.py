"""Zone centroids of TNTP networks, which begin and end paths only, in all commands."""

import csv
import io
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from optional import csgraph, nx, real_file, sp

import semiring_mm as sm
from semiring_mm.files import read_graph

HEAD = """<NUMBER OF ZONES> {zones}
<NUMBER OF NODES> {n}
<FIRST THRU NODE> {first}
<NUMBER OF LINKS> {m}
<END OF METADATA>
~ from to length ;
"""
#: The shortest paths between nodes 4 and 5 lead over centroid 2.
LINKS = [(1, 4, 1), (4, 1, 1), (2, 4, 1), (4, 2, 1), (2, 5, 1), (5, 2, 1), (3, 5, 1), (5, 3, 1),
         (4, 6, 10), (6, 5, 10), (5, 4, 30)]  # fmt: skip
TRIPS = """<NUMBER OF ZONES> 3
<END OF METADATA>
Origin 1
1 : 7; 2 : 2; 3 : 5;
Origin 3
1 : 4;
"""
ZONES, N = 6, 14  # of the random network
inf = np.inf


def links():
    """A network, made up, whose nodes have zones as neighbours, and zones each other."""
    rng = np.random.default_rng(31)
    pairs = {(int(u), int(v)) for u, v in rng.integers(1, N + 1, (60, 2)) if u != v}
    pairs |= {(1, 2), (2, 1)}
    return [(u, v, int(rng.integers(1, 6))) for u, v in sorted(pairs)]


RANDOM = links()


@pytest.fixture
def zones(run):
    for name, n, k, some in (("z", 6, 3, LINKS), ("r", N, ZONES, RANDOM)):
        head = HEAD.format(zones=k, n=n, first=k + 1, m=len(some))
        Path(f"{name}_net.tntp").write_text(head + "".join(f"{u} {v} {w} ;\n" for u, v, w in some))
    Path("z_trips.tntp").write_text(TRIPS)
    return run


def matrix(some, n, source=0, target=0, zones=0):
    """The weights of the paths from a node to another: others that are centroids are closed."""
    w = np.full((n, n), inf)
    for u, v, length in some:
        if all(x > zones or x in (source, target) for x in (u, v)):
            w[u - 1, v - 1] = min(length, w[u - 1, v - 1])
    for x in range(1, zones + 1):  # where a path begins it does not come again, nor goes on
        if x == source:
            w[:, x - 1] = inf
        elif x == target:
            w[x - 1] = inf
    np.fill_diagonal(w, 0)
    return w


def around(some, n, zones):
    """Distances, each found in a network of its own."""
    found = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if i != j:
                w = matrix(some, n, i + 1, j + 1, zones)
                g = nx.from_numpy_array(np.where(np.isinf(w), 0, w), create_using=nx.DiGraph)
                found[i, j] = nx.single_source_dijkstra_path_length(g, i).get(j, inf)
    return found


@pytest.fixture(scope="module")
def expected():
    whole = sm.apsp(matrix(RANDOM, N))
    found = around(RANDOM, N, ZONES)
    assert (found > whole).sum() > 10  # where paths through centroids are shorter
    assert np.isfinite(found).sum() > 100
    return found


@pytest.fixture(params=["graph", "prepared"])
def network(request, zones):
    """The command line, and a file of the random network."""
    if request.param == "graph":
        return zones, "r_net.tntp"
    assert zones("prepare", "r_net.tntp", "-o", "net.npz")[0] == 0
    return zones, "net.npz"


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("through", [False, True])
def test_no_path_of_a_table_passes_through_a_centroid(zones, through):
    words = ["table", "z_net.tntp", *(x for k in range(1, 7) for x in ("--from", k))]
    code, out, err = zones(*words, *["--through"] * through)
    assert code == 0
    told = "paths here may pass" if through else "no path passes"
    assert f"note: nodes 1-3 are zone centroids; {told} through them" in err
    table = list(csv.reader(out.splitlines()))
    assert table[0] == ["from", *"123456"]
    found = np.array([row[1:] for row in table[1:]], float)
    assert_array_equal(found, sm.apsp(matrix(LINKS, 6)) if through else around(LINKS, 6, 3))


def test_table(network, expected):
    run, file = network
    out = run("table", file, *(x for k in range(1, N + 1) for x in ("--from", k)))[1]
    table = list(csv.reader(out.splitlines()))
    assert_array_equal(np.array([row[1:] for row in table[1:]], float), expected)


@pytest.mark.parametrize("method", ["auto", "floyd_warshall", "sparse", "squaring"])
def test_apsp(network, expected, method):
    run, file = network
    words = ["apsp", file, "-o", "D.npy", "--method", method, "--force"]
    assert run(*words, "--predecessors", "P.npy")[0] == 0
    d, p = np.load("D.npy"), np.load("P.npy")
    assert_array_equal(d, expected)
    w = matrix(RANDOM, N)
    for i, j in np.argwhere(np.isfinite(d)).tolist():
        path = sm.reconstruct_path(p, i, j) if i != j else [i]
        assert all(x >= ZONES for x in path[1:-1])
        assert sum(w[a, b] for a, b in itertools.pairwise(path)) == d[i, j]
    assert (p[np.arange(N), np.arange(N)] == -9999).all()
    assert run(*words)[0] == 0
    assert_array_equal(np.load("D.npy"), expected)


def test_pairs_and_routes(network, expected):
    run, file = network
    pairs = ";".join(f"{i},{j}" for i in (1, 2, 9) for j in range(1, N + 1))
    out = run.json("apsp", file, "--pairs", pairs, "--routes")
    w = matrix(RANDOM, N)
    for pair in out["pairs"]:
        i, j = int(pair["from"]) - 1, int(pair["to"]) - 1
        value = inf if pair["value"] is None else pair["value"]
        assert value == expected[i, j]
        path = [int(x) - 1 for x in pair["path"]]
        assert all(x >= ZONES for x in path[1:-1])
        assert not path or (path[0], path[-1]) == (i, j)
        assert value == inf or sum(w[a, b] for a, b in itertools.pairwise(path)) == value
    summary = run.json("apsp", file, "--summary")["summary"]
    assert summary["reachable"] == np.isfinite(expected).sum() - N
    assert summary["worst"]["value"] == expected[np.isfinite(expected)].max()
    assert run("apsp", file, "-o", "D.csv")[0] == 0
    for row in rows(Path("D.csv").read_text()):
        assert float(row["distance"]) == expected[int(row["from"]) - 1, int(row["to"]) - 1]


@pytest.mark.parametrize("outward", [False, True])
def test_nearest(network, expected, outward):
    run, file = network
    places = [1, 9, 4, 2]
    words = ["--facilities", ",".join(map(str, places)), "-k", 3, *["--outward"] * outward]
    found = rows(run("nearest", file, *words)[1])
    d = expected if outward else expected.T
    wanted = []
    for node in range(N):
        near = sorted((d[p - 1, node], k, p) for k, p in enumerate(places) if d[p - 1, node] < inf)
        wanted += [(node + 1, r, p, x) for r, (x, _, p) in enumerate(near[:3], 1)]
    assert [
        (int(x["node"]), int(x["rank"]), int(x["facility"]), float(x["distance"])) for x in found
    ] == wanted


def test_stats(network, expected):
    run, file = network
    d, there = expected, np.isfinite(expected)
    far = np.where(there, d, 0)
    words = ["stats", file, "--bins", "0,3,6,9,100", "--within", "4"]
    assert run(*words, "-o", "S.npz")[0] == 0
    found = np.load("S.npz")
    assert_array_equal(found["reached"], there.sum(1))
    assert_array_equal(found["eccentricity"], far.max(1))
    assert_allclose(found["mean"], far.sum(1) / (there.sum(1) - 1), rtol=1e-15)
    near = there.sum(0) - 1
    assert_allclose(found["closeness"], near / far.sum(0) * near / (N - 1), rtol=1e-14)
    inverse = np.divide(1, d, out=np.zeros_like(d), where=d > 0)
    assert_allclose(found["harmonic"], inverse.sum(0), rtol=1e-14)
    assert_array_equal(found["within 4"], (d <= 4).sum(1))
    apart = d[there & ~np.eye(N, dtype=bool)]
    assert_array_equal(found["histogram_counts"], np.histogram(apart, [0, 3, 6, 9, 100])[0])
    assert found["diameter"] == far.max()
    a, b = (int(x) - 1 for x in found["ends"])
    assert d[a, b] == far.max()
    assert_allclose(found["mean_distance"], apart.mean(), rtol=1e-15)
    some = run.json(
        "stats", file, "--sources", "2,9", "--what", "eccentricity,closeness", "-o", "T.csv"
    )
    assert some["pairs"] == 2 * (N - 1)
    table = rows(Path("T.csv").read_text())
    assert [x["node"] for x in table] == ["2", "9"]
    assert_allclose([float(x["closeness"]) for x in table], found["closeness"][[1, 8]], rtol=1e-14)


def test_betweenness(network):
    run, file = network
    words = ["stats", file, "--what", "betweenness,edge_betweenness,stress", "-o", "B.npz"]
    assert run(*words)[0] == 0
    found = np.load("B.npz")
    share, paths = np.zeros(N), np.zeros(N)
    edges = {(u, v): 0.0 for u, v, _ in RANDOM}
    for i in range(N):
        for j in range(N):
            w = matrix(RANDOM, N, i + 1, j + 1, ZONES)
            g = nx.from_numpy_array(np.where(np.isinf(w), 0, w), create_using=nx.DiGraph)
            if i == j or not nx.has_path(g, i, j):
                continue
            every = list(nx.all_shortest_paths(g, i, j, "weight"))
            for path in every:
                share[path[1:-1]] += 1 / len(every)
                paths[path[1:-1]] += 1
                for a, b in itertools.pairwise(path):
                    edges[a + 1, b + 1] += 1 / len(every)
    assert_allclose(found["betweenness"], share, atol=1e-12)
    assert (found["betweenness"][:ZONES] == 0).all()
    assert_allclose(found["stress"], paths, atol=1e-9)
    ends = [(int(u), int(v)) for u, v in zip(found["source"], found["target"], strict=True)]
    assert_allclose(found["edge_betweenness"], [edges[e] for e in ends], atol=1e-12)


@pytest.mark.parametrize("prepared", [False, True])
def test_no_trip_passes_through_a_centroid(zones, prepared):
    file = "z_net.tntp"
    if prepared:
        file = "z.npz"
        assert zones("prepare", "z_net.tntp", "-o", file)[0] == 0
    found = zones.json("flows", file, "--demand", "z_trips.tntp")
    assert [x["load"] for x in found["flows"]] == [7, 4, 0, 2, 0, 0, 4, 5, 5, 5, 4]
    assert [(int(x["from"]), int(x["to"]), x["weight"]) for x in found["flows"]] == LINKS
    assert (found["trips"], found["without_path"]) == (11, 0)
    assert found["distance"] == 2 * 2 + 5 * 22 + 4 * 32
    through = zones.json("flows", "z_net.tntp", "--demand", "z_trips.tntp", "--through")
    assert [x["load"] for x in through["flows"]] == [7, 4, 4, 7, 5, 4, 4, 5, 0, 0, 0]


@pytest.mark.parametrize(
    "semiring", ["max_min", "min_max", "lor_land", "min_times"], ids=str
)  # fmt: skip
def test_other_semirings(zones, semiring):
    s = sm.semirings[semiring]
    expected = np.empty((N, N))
    for i in range(N):
        for j in range(N):
            w = matrix(RANDOM, N, i + 1, j + 1, ZONES)
            w = np.isfinite(w) if s.bitwise else np.where(np.isinf(w), s.zero, w)
            np.fill_diagonal(w, s.one)
            expected[i, j] = s.one if i == j else sm.closure(w, s)[i, j]
    words = ["--semiring", semiring]
    assert zones("apsp", "r_net.tntp", *words, "-o", "D.npy")[0] == 0
    assert_array_equal(np.load("D.npy"), expected)
    assert zones("prepare", "r_net.tntp", *words, "-o", "net.npz")[0] == 0
    net = sm.load("net.npz")
    assert_array_equal(net.distances(), expected)
    assert net.distance("2", "1") == expected[1, 0]
    assert zones("prepare", "r_net.tntp", *words, "-o", "n2.npz")[2].count("warning") == 0


def test_what_a_prepared_network_answers(zones, expected):
    assert zones("prepare", "r_net.tntp", "-o", "net.npz")[0] == 0
    net = sm.load("net.npz")
    assert list(net.nodes) == [str(k) for k in range(1, N + 1)]
    table = net.distances()
    assert table.shape == (N, N)
    assert_array_equal(table, expected)
    assert_array_equal(net.distances(["3", "9"], ["9", "3"]), expected[np.ix_([2, 8], [8, 2])])
    found = net.paths([(u, v) for u in net.nodes for v in net.nodes])
    assert_array_equal(found.weight, expected.ravel())
    assert_array_equal(found.sums(np.array([w for *_, w in RANDOM])), expected.ravel())
    for path, weight in zip(found, found.weight, strict=True):
        if weight < inf:
            one = net.path(path[0], path[-1])
            assert (one[0], one[-1]) == (path[0], path[-1])
            assert all(int(x) > ZONES for x in path[1:-1])
    d, sums = net.distances(along=np.array([w + 1 for *_, w in RANDOM]))  # the fewest legs
    assert_array_equal(d, expected)
    legs = sums[np.isfinite(d)] - d[np.isfinite(d)]
    assert (legs <= np.array([len(x) - 1 for x in found if x])).all()
    assert_array_equal(legs == 0, np.eye(N, dtype=bool)[np.isfinite(d)])
    net.customize([2.0 * w for *_, w in RANDOM])
    assert_array_equal(net.distances(), 2 * expected)
    net.customize(read_graph("r_net.tntp"))
    assert_array_equal(net.distances(), expected)
    with pytest.raises(ValueError, match=f"has {len(RANDOM)} edges, one weight each, got 3"):
        net.customize([1, 2, 3])
    for refused in (
        lambda: net.within(3, "1"), lambda: net.accessibility(["9"], radius=2),
        lambda: net.with_places(np.array([0]), np.array([0.5])),
        lambda: net.reweighted(np.ones(len(RANDOM))),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="without zone centroids: semiring-mm prepare --thr"):
            refused()
    with pytest.raises(ValueError, match="given by pairs, not as a matrix"):
        net.flows(np.ones((N, N)))
    net.save("again.npz")
    assert_array_equal(sm.load("again.npz").distances(), expected)


def test_new_weights_for_a_prepared_network(zones, expected):
    assert zones("prepare", "r_net.tntp", "-o", "net.npz")[0] == 0
    text = "".join(f"{u},{v},{3 * w}\n" for u, v, w in RANDOM[::-1])
    Path("new.csv").write_text("from,to,minutes\n" + text)
    words = ["--weights", "new.csv", "--weight", "minutes", "-o", "T.npy"]
    assert zones("table", "net.npz", "--from", 1, "--from", 9, *words)[0] == 0
    assert_array_equal(np.load("T.npy"), 3 * expected[[0, 8]])


@pytest.mark.parametrize("change", ["row", "ends"])
def test_a_file_with_other_ends_is_refused(zones, change):
    from semiring_mm.storage import digest

    assert zones("prepare", "r_net.tntp", "-o", "net.npz")[0] == 0
    with np.load("net.npz") as file:
        arrays = dict(file)
    arrays[change] = arrays[change].copy()
    arrays[change][0 if change == "ends" else -1] += 1
    del arrays["digest"]
    arrays["digest"] = np.frombuffer(digest(arrays), np.uint8)
    np.savez("other.npz", **arrays)
    with pytest.raises(ValueError, match="ends are not those of zone centroids"):
        sm.load("other.npz")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("table g.csv --from A --through", "--through is for a TNTP network"),
        ("table net.npz --from 1 --through", "--through is for preparing it"),
        ("apsp r_net.tntp --undirected", "leave out --undirected, or add --through"),
        ("apsp r_net.tntp --semiring longest", "no better than none, and a link weighs"),
        ("apsp r_net.tntp -o D.zarr", "or add --through"),
        ("apsp r_net.tntp -o D.npy --memory-limit 1GB", "or add --through"),
    ],
    ids=str,
)
def test_refused(zones, words, told):
    Path("g.csv").write_text("from,to,km\nA,B,4\n")
    assert zones("prepare", "r_net.tntp", "-o", "net.npz")[0] == 0
    assert told in zones.refused(*words.split())


def test_what_is_told_of_a_prepared_network(zones):
    code, out, _ = zones("prepare", "r_net.tntp", "-o", "net.npz")
    assert code == 0
    assert f"  nodes       {N}\n" in out
    told = json.loads(zones("stats", "net.npz", "--json")[1])
    assert f"no path passes through its {ZONES} zone centroids" in told["notes"]
    assert (told["nodes"], told["edges"]) == (N, len(RANDOM))


def test_chicago(run):
    """Distances from some nodes: no edge leaves other centroids."""
    file = str(real_file("ChicagoRegional_net.tntp"))
    graph = read_graph(file)
    n, zones = len(graph.nodes), len(graph.centroids)
    sources = [0, 700, 5000, 12000]
    assert (
        run("table", file, *(x for i in sources for x in ("--from", i + 1)), "-o", "T.npy")[0] == 0
    )
    found = np.load("T.npy")
    shorter = 0
    for i, row in zip(sources, found, strict=True):
        kept = (graph.row >= zones) | (graph.row == i)
        # SciPy takes zeros for no edges
        w = sp.csr_matrix((graph.weight[kept] + 0.0, (graph.row[kept], graph.col[kept])), (n, n))
        d = csgraph.dijkstra(w, indices=i)
        assert_allclose(row, d, rtol=1e-12)
        every = sp.csr_matrix((graph.weight + 0.0, (graph.row, graph.col)), (n, n))
        shorter += int((csgraph.dijkstra(every, indices=i) < d - 1e-9).sum())
    assert shorter > 0
