"""Questions between nodes and places, against a graph that is split by hand at each place."""

import itertools
import warnings

import networkx as nx
import numpy as np
import pytest
from geo.towns import town
from numpy.testing import assert_allclose, assert_array_equal

import semiring_mm as sm
from semiring_mm.geo import Places
from semiring_mm.geo.streets import lengths

pytest.importorskip("geopandas")
pytestmark = pytest.mark.filterwarnings(
    "ignore:.* are islands", "ignore:.* off the network", "ignore:.*are in reach of no demand"
)


def split(net, *groups):
    """The distances between all nodes and places, by NetworkX."""
    streets, weight = net.streets, net.graph.edges.weight
    graph = nx.MultiDiGraph()
    graph.add_nodes_from(range(len(streets.nodes)))
    cuts, names = {}, []
    for g, places in enumerate(groups):
        for i, (edge, fraction) in enumerate(zip(places.edge, places.fraction, strict=True)):
            graph.add_node((g, i))
            names.append((g, i))
            twin = streets.twin[edge]
            for e, f in ((edge, fraction), (twin, 1 - fraction)):
                if edge >= 0 and e >= 0:
                    cuts.setdefault(int(e), []).append((f, (g, i)))
    for e, (u, v, w) in enumerate(zip(streets.u, streets.v, weight, strict=True)):
        stops = [(0.0, int(u)), *sorted(cuts.get(e, []), key=lambda stop: stop[0]), (1.0, int(v))]
        for (f, a), (g, b) in itertools.pairwise(stops):
            graph.add_edge(a, b, weight=w * (g - f))
            if f == g:  # two at one spot
                graph.add_edge(b, a, weight=0.0)
    order = [*range(len(streets.nodes)), *names]
    place = {name: i for i, name in enumerate(order)}
    d = np.full((len(order), len(order)), np.inf)
    for a, row in nx.all_pairs_dijkstra_path_length(graph):
        for b, value in row.items():
            d[place[a], place[b]] = value
    return d


def asked(seed, *, crs=None, limit=60.0):
    """A network, two groups of places, some of them at ends, at one spot and off the network."""
    rng = np.random.default_rng(seed)
    streets = town(rng, crs=crs, islands=2)
    net = sm.geo.network(streets, crs=crs)
    scale = 1.0 if crs is None else 1e-5
    x, y = (
        rng.uniform(z.min() - 90 * scale, z.max() + 90 * scale, 25) for z in (streets.x, streets.y)
    )
    x[:3], y[:3] = x[3], y[3]
    x[4:6], y[4:6] = streets.x[4:6], streets.y[4:6]
    return rng, net, net.snap(x, y, limit=limit), net.snap(x[::-2], y[::-2])


CASES = [(seed, crs) for seed in range(6) for crs in (None, "EPSG:4326")]


@pytest.mark.parametrize(("seed", "crs"), CASES)
def test_tables_between_nodes_and_places(seed, crs):
    _, net, a, b = asked(seed, crs=crs)
    d, n = split(net, a, b), len(net.nodes)
    rows = {"nodes": slice(0, n), "a": slice(n, n + len(a)), "b": slice(n + len(a), None)}
    given = {"nodes": None, "a": a, "b": b}
    assert a.off.any()
    assert np.isfinite(d).any()
    for i, source in given.items():
        for j, target in given.items():
            found = net.distances(source, target)
            assert_allclose(found, d[rows[i], rows[j]], rtol=1e-9, atol=1e-9)
    few = net.distances(["n3", "n0"], a[5:9])
    assert_allclose(few, d[[3, 0]][:, n + 5 : n + 9], atol=1e-9)
    assert (few.sources, few.nodes) == (["n3", "n0"], [5, 6, 7, 8])
    assert net.distance(a[7], b[2]) == pytest.approx(d[n + 7, n + len(a) + 2])
    assert net.distance("n1", a[3]) == pytest.approx(d[1, n + 3])


@pytest.mark.parametrize(("seed", "crs"), CASES)
def test_a_path_is_as_long_as_its_line(seed, crs):
    rng, net, a, b = asked(seed, crs=crs)
    n, streets = len(net.nodes), net.streets
    d, count = split(net, a, b), 0
    ends = [*net.nodes, *(a[i] for i in range(len(a))), *(b[i] for i in range(len(b)))]
    point = np.array([
        *zip(streets.x, streets.y, strict=True), *zip(a.x, a.y, strict=True),
        *zip(b.x, b.y, strict=True),
    ])  # fmt: skip
    for i, j in [*rng.integers(0, len(ends), (60, 2)), *((n + k, n + k + 1) for k in range(4))]:
        if np.isinf(d[i, j]):
            with pytest.raises(ValueError, match="there is no path from"):
                net.path(ends[i], ends[j])
            continue
        route, count = net.path(ends[i], ends[j]), count + 1
        assert route.weight == pytest.approx(d[i, j], abs=1e-9)
        own = lengths(np.array([0, len(route.line)]), route.line, streets.crs)[0]
        assert own == pytest.approx(d[i, j], rel=1e-5, abs=1e-6)
        assert_allclose(route.line[[0, -1]], point[[i, j]], atol=1e-7)
        assert route.ids == [streets.edge_id(e) for e in route.edges]
        assert_array_equal(streets.v[route.edges[:-1]], streets.u[route.edges[1:]])
        if isinstance(ends[i], str):
            assert route.nodes[0] == ends[i]
        assert route.to_linestring().length >= 0
    assert count > 20


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("k", [1, 3, 30])
def test_nearest_places(seed, k):
    _, net, a, b = asked(seed)
    d, n = split(net, a, b), len(net.nodes)
    for sources, rows in ((None, slice(0, n)), (b, slice(n + len(a), None)), (["n2"], [2])):
        for outward in (False, True):
            table = d.T if outward else d
            wanted = np.sort(table[rows][:, n : n + len(a)][:, ~a.off], axis=1)
            wanted = np.pad(wanted, ((0, 0), (0, k)), constant_values=np.inf)[:, :k]
            found = net.nearest(a, k, sources=sources, outward=outward)
            assert_allclose(found.distance, wanted, atol=1e-9)
            there = found.facility >= 0
            assert_array_equal(there, np.isfinite(wanted))
            which = found.facility - len(wanted)
            row = np.arange(len(d))[rows]
            own = table[row[:, np.newaxis], n + which]
            assert_allclose(own[there], wanted[there], atol=1e-9)
            for line in which:  # each of them once
                assert len(set(line[line >= 0])) == (line >= 0).sum()
            assert list(found.nodes)[len(wanted) :] == list(a.ids)


def test_nearest_of_each_category():
    _, net, a, _ = asked(1)
    kinds = np.array(["school", "shop", "shop"])[np.arange(len(a)) % 3]
    found = net.nearest({kind: a[kinds == kind] for kind in ("school", "shop")}, 2)
    assert list(found) == ["school", "shop"]
    for kind, one in found.items():
        assert_array_equal(one.distance, net.nearest(a[kinds == kind], 2).distance)


@pytest.mark.parametrize("seed", range(4))
def test_statistics_of_places(seed):
    _, net, a, b = asked(seed)
    d, n = split(net, a, b), len(net.nodes)
    people = np.arange(1, len(a) + 1)
    found = net.statistics(
        ["within", "eccentricity"], sources=b, targets=a, radius=300, attribute=people
    )
    table = d[n + len(a) :, n : n + len(a)]
    assert_array_equal(found.within[:, 0], (table <= 300) @ people)
    far = np.where(np.isfinite(table), table, 0).max(axis=1)
    assert_allclose(found.eccentricity, far, atol=1e-9)
    assert list(found.nodes) == list(b.ids)
    counted = net.statistics("within", sources=["n1", "n0"], targets=a, radius=[100, 300])
    near = [(d[[1, 0], n : n + len(a)] <= r).sum(axis=1) for r in (100, 300)]
    assert_array_equal(counted.within, np.stack(near, axis=1))
    whole = net.statistics("within", sources=b, radius=300)
    assert_array_equal(whole.within[:, 0], (d[n + len(a) :, :n] <= 300).sum(axis=1))
    diameter = net.statistics("diameter", sources=b, targets=a)
    assert {*diameter.ends} <= {*a.ids, *b.ids}
    with pytest.raises(ValueError, match="stress counts shortest paths, and a street with a place"):
        net.statistics(["mean", "stress"], sources=a)
    among = net.statistics("betweenness").betweenness
    assert_array_equal(among, sm.statistics(net.graph, "betweenness").betweenness)
    with pytest.raises(ValueError, match="attribute has shape"):
        net.statistics("within", targets=a, radius=1, attribute=[1])


@pytest.mark.parametrize("seed", range(4))
def test_accessibility_of_places(seed):
    rng, net, a, b = asked(seed)
    d, n = split(net, a, b), len(net.nodes)
    jobs = rng.integers(1, 9, len(a))
    places, homes = slice(n, n + len(a)), slice(n + len(a), None)
    assert_array_equal(net.accessibility(a, jobs, radius=300), (d[:n, places] <= 300) @ jobs)
    near = (d[homes, places] <= 300).astype(float)
    assert_array_equal(net.accessibility(a, jobs, radius=300, sources=b), near @ jobs)
    decay = net.accessibility(a, jobs, decay=("exponential", 0.01), sources=["n3"], outward=False)
    assert_allclose(decay, np.exp(-0.01 * d[places, 3]) @ jobs)
    people = rng.integers(1, 9, len(b))
    shared = net.accessibility(a, jobs, radius=300, sources=b, competition=(b, people))
    demand = people @ near
    supply = np.divide(jobs, demand, out=np.zeros(len(a)), where=demand > 0)
    assert_allclose(shared, near @ supply)
    crowd = rng.integers(1, 9, n)
    shared = net.accessibility(a, jobs, radius=300, competition=crowd)
    near = (d[:n, places] <= 300).astype(float)
    demand = crowd @ near
    assert_allclose(shared, near @ np.divide(jobs, demand, out=np.zeros(len(a)), where=demand > 0))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("batch", [None, 3])
def test_places_within_a_radius(seed, batch):
    _, net, a, b = asked(seed)
    d, n = split(net, a, b), len(net.nodes)
    part = {"nodes": slice(0, n), "a": slice(n, n + len(a)), "b": slice(n + len(a), None)}
    given = {"nodes": None, "a": a, "b": b}
    for i, sources in given.items():
        for j, targets in given.items():
            table, found = d[part[i], part[j]], np.full((len(d[part[i]]), len(d[part[j]])), np.inf)
            parts = net.within(250, sources, targets, batch=batch)
            for some in [parts] if batch is None else parts:
                row = np.repeat(some.sources, np.diff(some.indptr))
                assert np.isinf(found[row, some.indices]).all()  # each pair once
                found[row, some.indices] = some.distance
                assert list(some.nodes)[: len(table)] == list(
                    net.nodes if sources is None else sources.ids
                )
            assert_allclose(found, np.where(table <= 250, table, np.inf), atol=1e-9)
    if batch is None:
        frame = net.within(250, a[:5], ["n2", "n1"]).to_frame()
        assert set(frame.iloc[:, 1]) <= {"n1", "n2"}


def test_a_second_quantity_along_the_fastest_way():
    _, net, a, b = asked(1)
    net.customize(net.streets.lengths * (1 + net.streets.columns["key"] % 3), name="cost")
    cost, metres = net.distances(a, b, along="length")
    assert_allclose(cost, net.distances(a, b))
    for i, j in np.argwhere(np.isfinite(np.asarray(cost)))[::7]:
        route = net.path(a[i], b[j])
        own = lengths(np.array([0, len(route.line)]), route.line, None)[0]
        assert own == pytest.approx(metres[i, j])
    assert (metres.sources, metres.nodes) == (list(a.ids), list(b.ids))


def test_many_paths_at_once():
    _, net, a, b = asked(4)
    d = np.asarray(net.distances(a, b))
    i, j = (x.ravel() for x in np.indices(d.shape))
    for route, k, m in zip(net.paths(a[i], b[j]), i, j, strict=True):
        assert route.weight == pytest.approx(d[k, m])
        if np.isinf(d[k, m]):
            assert (route.nodes, route.ids, len(route.edges)) == ([], [], 0)
            assert route.to_linestring().is_empty
        elif route.weight > 0:
            assert_array_equal(route.line, net.path(a[k], b[m]).line)
    with pytest.raises(ValueError, match="as many sources as targets"):
        net.paths(a, b)
    assert [r.nodes[0] for r in net.paths(["n0", "n1"], ["n1", "n0"]) if r.nodes] <= ["n0", "n1"]


def test_new_weights_move_the_places():
    rng, net, a, b = asked(2)
    before = net.distances(a, b)
    net.customize(2 * net.graph.edges.weight)
    assert_allclose(net.distances(a, b), 2 * before)
    w = rng.uniform(1, 9, len(net.streets.u))
    net.customize(w, name="rush hour")
    n = len(net.nodes)
    assert_allclose(net.distances(a, b), split(net, a, b)[n : n + len(a), n + len(a) :], atol=1e-9)
    assert net.weight == "rush hour"
    i, j = np.argwhere(np.isfinite(net.distances()) & ~np.eye(n, dtype=bool))[-1]
    route = net.path(net.nodes[i], net.nodes[j])
    assert route.weight == pytest.approx(w[route.edges].sum())
    net.customize("length")
    assert_allclose(net.distances(a, b), before)


def test_closed_streets_are_no_streets():
    _, net, _, _ = asked(0)
    w = net.graph.edges.weight.copy()
    e = int(np.flatnonzero(net.streets.twin >= 0)[0])
    w[[e, net.streets.twin[e]]] = np.inf
    middle = net.streets.line(e).mean(axis=0)
    net.customize(w)
    assert net.snap(*middle).edge[0] not in (e, net.streets.twin[e])


def test_places_are_taken_by_numbers_slices_and_masks():
    _, net, a, _ = asked(3)
    d = net.distances(a, a)
    mask = ~a.off
    assert_array_equal(net.distances(a[mask], a[2:5]), np.asarray(d)[mask][:, 2:5])
    assert_array_equal(
        net.distances(a[mask][1], a[-1]), np.asarray(d)[np.flatnonzero(mask)[1], [-1]][None]
    )
    assert len(net._extended) == 1  # one extension serves them all
    assert isinstance(a[3], Places)
    assert a[3].ids == [3]


def test_what_is_no_place():
    _, net, a, _ = asked(3)
    with pytest.raises(ValueError, match=r"source is one place, as places\[0\]; got 25"):
        net.distance(a, "n0")
    with pytest.raises(ValueError, match="is not a node of the graph"):
        net.distances("nowhere", a)
    other = sm.geo.network(({"id": [0, 1], "x": [0, 999.0], "y": [0, 0]}, {"u": [0], "v": [1]}))
    with pytest.raises(ValueError, match="they are of another network"):
        other.distances(a)
    with pytest.raises(TypeError, match="facilities: a node or several"):
        net.nearest(None)


def test_islands_are_told():
    streets = town(np.random.default_rng(0), islands=3)
    with pytest.warns(UserWarning, match=r"of the 28 nodes are islands: .* largest=True leaves"):
        net = sm.geo.network(streets)
    assert (net.islands[25:] > 0).all()
    assert np.bincount(net.islands).argmax() == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rest = sm.geo.network(streets, largest=True)
    assert list(rest.nodes) == [f"n{i}" for i in np.flatnonzero(net.islands == 0)]
    assert np.isfinite(rest.distances()).all()
    names = list(rest.nodes)
    assert_allclose(rest.distances(), net.distances(names, names))


def test_weights_and_speeds_that_are_none():
    streets = town(np.random.default_rng(0))
    m = len(streets.u)
    bad = np.full(m, 30.0)
    bad[[4, 9]] = np.nan, -5
    words = np.array(["residential", "primary"], object)[np.arange(m) % 2]
    given = dict(streets.columns) | {
        "kmh": bad,
        "cost": -bad,
        "gap": bad * [np.nan],
        "highway": words,
    }
    streets = type(streets)(
        streets.nodes, streets.x, streets.y, None, streets.u, streets.v, given, streets.shape
    )
    for options, message in [
        ({"weight": "travel_time"}, "there is no column 'travel_time'.*speed= gives it"),
        (
            {"weight": "cost"},
            rf"'cost' is missing for 1 of {m} edges, such as \('n\d+', 'n\d+', 4\)",
        ),
        ({"weight": "gap"}, rf"'gap' is missing for {m} of {m} edges"),
        (
            {"weight": "highway"},
            "column 'highway' is to hold numbers, got 'residential'|got 'primary'",
        ),
        ({"speed": "kmh"}, rf"and 2 of {m} edges have none, such as .* with nan"),
        ({"speed": "mph"}, "no column 'mph' of speeds; there are 'row', 'key', 'kmh'"),
        ({"speed": "highway"}, "column 'highway' is to hold numbers of km/h"),
        ({"speed": 0}, rf"and {m} of {m} edges have none"),
        ({"speed": {"primary": 50}}, rf"{m - m // 2} of {m} edges have none, .*'residential'"),
    ]:
        with pytest.raises(ValueError, match=message):
            sm.geo.network(streets, **options)
    net = sm.geo.network(streets, speed={"primary": 50, None: 30}, weight="travel_time")
    kmh = np.where(words == "primary", 50, 30)
    assert_allclose(net.graph.edges.weight, streets.lengths / kmh * 3.6)
    for values, message in [
        (np.full(m, -1.0), f"'rush' is negative for {m} of {m}"),
        (np.ones(3), rf"rush is a number for each of {m} edges, got \(3,\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            net.customize(values, name="rush")


def test_lengths_that_are_no_metres_are_told():
    streets = town(np.random.default_rng(0))
    given = dict(streets.columns) | {"length": streets.lengths / 1000}
    kilometres = type(streets)(
        streets.nodes, streets.x, streets.y, None, streets.u, streets.v, given, streets.shape
    )
    with pytest.warns(UserWarning, match=r"'length' is 0.001 times as long as the lines"):
        sm.geo.network(kilometres, largest=True)
