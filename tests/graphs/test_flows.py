"""Flows of a demand, in all its forms, and of a gravity model; what is refused."""

import itertools
import math

import numpy as np
import pytest
from metrics import only
from numpy.testing import assert_allclose, assert_array_equal
from optional import nx, pd, sp

import semiring_mm as sm
from semiring_mm.graphs.methods import METHODS

STREETS = {"a": {"b": 3.0, "c": 3.0}, "b": {"d": 1.0}, "c": {"d": 1.0}, "e": {"a": 1.0}}
NODES = [*"abced"]  # those with a neighbour first
TRIPS = (["a", "a", "e", "a"], ["d", "b", "d", "d"], [60, 20, 8, 40])
SHARED = [74, 54, 54, 54, 8]  # a - b, a - c, b - d, c - d, e - a


def town(side=6):
    """A grid of streets with many ties, its nodes by name."""
    G = nx.grid_2d_graph(side, side)
    nx.set_edge_attributes(G, 2.0, "weight")
    return G


def checked(found, d, demand):
    """The length of all trips is demand times distance."""
    there = np.isfinite(d)
    np.fill_diagonal(demand, 0)
    assert found.trips == pytest.approx(demand.sum(), 1e-12)
    assert found.without_path == pytest.approx(demand[~there].sum(), 1e-12)
    assert_allclose(found.load @ found.edges.weight, (demand * np.where(there, d, 0)).sum(), 1e-12)
    assert found.distance == pytest.approx(found.load @ found.edges.weight, 1e-12)


def matrix():
    demand = np.zeros((5, 5))
    for o, d, trips in zip(*TRIPS, strict=True):
        demand[NODES.index(o), NODES.index(d)] += trips
    return demand


def forms(tmp_path):
    """The same demand in all forms, and what goes with them."""
    columns = dict(zip(("origin", "destination", "trips"), TRIPS, strict=True))
    frame, wide = pd.DataFrame(columns), pd.DataFrame(matrix(), NODES, NODES)
    path = tmp_path / "demand.csv"
    frame.rename(columns={"trips": "cars"}).to_csv(path, index=False)
    records = np.rec.fromarrays([np.array(x) for x in TRIPS], names="from,to,trips")
    some = {"sources": ["e", "a"], "targets": ["d", "b"]}
    few = np.array([[8, 0], [100, 20]])
    yield from (
        (TRIPS, {}), (tuple(map(np.array, TRIPS)), {}), (columns, {}), (records, {}), (frame, {}),
        ({"a": {"d": 100, "b": 20}, "e": {"d": 8}}, {}), (wide, {}), (matrix(), {}),
        (matrix().tolist(), {}), (sp.csr_array(matrix()), {}), (sp.coo_array(few), some),
        (few, some), (few.astype(np.float32), some), (path, {"trips": "cars"}),
        (pd.DataFrame(few, ["e", "a"], ["d", "b"]), {}),
        (str(path), {"trips": 3}), (sm.files.read_graph(path, weight="cars"), {}),
        (np.array([[8, 0], [30, 5], [70, 15]]), some | {"sources": ["e", "a", "a"]}),
    )  # fmt: skip


def test_demands_in_all_forms(tmp_path):
    net = sm.prepare(STREETS)
    for demand, more in forms(tmp_path):
        for found in (sm.flows(STREETS, demand, **more), net.flows(demand, **more)):
            assert_array_equal(found.load, SHARED, err_msg=repr(demand))
            assert (found.trips, found.without_path) == (128, 0)


def test_what_is_told_of_flows():
    found = sm.flows(STREETS, ([*"aabda"], [*"edeaa"], [5, 2, 3, 4, 9]), ties="one")
    assert (found.trips, found.without_path, found.distance) == (14, 12, 8)
    assert repr(found) == "<Flows: 14 trips on 5 edges, 12 without a path>"
    assert "<td>a</td>" in found._repr_html_()
    frame = found.to_frame()
    assert [*frame] == ["from", "to", "weight", "load"]
    assert frame[frame.load > 0].values.tolist() in (
        [["a", "b", 3.0, 2.0], ["b", "d", 1.0, 2.0]], [["a", "c", 3.0, 2.0], ["c", "d", 1.0, 2.0]]
    )  # fmt: skip
    assert repr(sm.flows(STREETS, TRIPS)) == "<Flows: 128 trips on 5 edges>"
    assert not sm.flows(STREETS, ([], [], [])).load.any()


@pytest.mark.parametrize("ties", ["share", "one"])
@pytest.mark.parametrize("method", ["prepared", "reverse sweeps", "searches and back"])
def test_flows_times_weights_are_trips_times_distances(method, ties, monkeypatch):
    if method != "prepared":
        only(monkeypatch, *(x.name for x in METHODS if not x.loads or x.name == method))
    rng = np.random.default_rng(2)
    for directed in (False, True):
        G = town().to_directed() if directed else town()
        G.remove_nodes_from([(0, 1), (1, 0)])  # a corner without a street
        given = sm.prepare(G) if method == "prepared" else G
        n = len(G)
        d = np.asarray(sm.apsp(G))
        demand = rng.integers(0, 4, (n, n))
        found = sm.flows(given, demand, ties=ties)
        checked(found, d, demand)
        assert found.load.shape == (G.number_of_edges(),)
        if ties == "one":
            assert_array_equal(found.load, np.rint(found.load))
        elif not directed:
            ones = sm.statistics(G, "edge_betweenness").edge_betweenness
            assert_allclose(sm.flows(given, np.ones((n, n))).load, 2 * ones, 1e-12)


def test_the_only_path_is_that_of_the_prepared_graph():
    rng = np.random.default_rng(0)
    G = nx.gnm_random_graph(60, 150, seed=1, directed=True)
    for *_, data in G.edges(data=True):
        data["weight"] = rng.random()
    net, at = sm.prepare(G), {e: k for k, e in enumerate(G.edges)}
    for s, t in rng.integers(0, 60, (20, 2)).tolist():
        if s == t or not np.isfinite(net.distance(s, t)):
            continue
        path = net.path(s, t)
        expected = [at[e] for e in itertools.pairwise(path)]
        for ties in ("share", "one"):
            load = net.flows(([s], [t], [7]), ties=ties).load
            assert sorted(np.flatnonzero(load)) == sorted(expected)
            assert set(load[load > 0]) == {7}


def test_hops_parallel_edges_and_edges_without_end():
    G = nx.MultiGraph([("a", "b", {"w": 1}), ("a", "b", {"w": 1}), ("b", "c", {"w": math.inf})])
    G.add_edge("a", "c", w=1)
    trips = {"b": {"a": 6, "c": 4}}
    assert sm.flows(G, trips, weight="w").load.tolist() == [5, 5, 4, 0]
    assert sm.prepare(G, weight="w").flows(trips, ties="one").load.tolist() in (
        [10, 0, 4, 0], [0, 10, 4, 0]
    )  # fmt: skip
    assert sm.flows(G, trips, weight=None).load.tolist() == [3, 3, 0, 4]


def test_cycles_of_length_zero():
    G = nx.Graph([("a", "b", {"weight": 0}), ("b", "c", {"weight": 2})])
    for given in (G, sm.prepare(G)):
        assert sm.flows(given, {"a": {"c": 3}}, ties="one").load.tolist() == [3, 3]
        with pytest.raises(ValueError, match=r"ties='one'"):
            sm.flows(given, {"a": {"c": 3}})


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("decay", [{"exponential": 0.5}, {"power": 1.5}])
@pytest.mark.parametrize("prepared", [False, True])
def test_gravity(prepared, decay, constrained, monkeypatch):
    """As the matrix of its trips; in batches of sources, and with some nodes without a mass."""
    G, rng = town(), np.random.default_rng(3)
    G.add_edge("x", "y", weight=5.0)
    d, n = np.asarray(sm.apsp(G)), len(G)
    given, nodes = sm.prepare(G) if prepared else G, list(G)
    out, into = rng.integers(0, 5, (2, n))
    for sources, targets in ((None, None), ([3, 1, 37], [2, 3, 5, 9])):
        start, end = (np.arange(n) if x is None else np.array(x) for x in (sources, targets))
        with np.errstate(divide="ignore"):
            f = np.exp(-0.5 * d) if "exponential" in decay else d**-1.5
        trips = np.where(np.isfinite(d) & (d > 0), f, 0)[np.ix_(start, end)] * into[end]
        if constrained:
            trips /= np.maximum(trips.sum(axis=1, keepdims=True), 1e-300)
        demand = np.zeros((n, n))
        demand[np.ix_(start, end)] = out[start, np.newaxis] * trips
        if constrained and sources is None:
            some = trips.sum(axis=1) > 0
            assert_allclose(demand.sum(axis=1)[some], out[some], 1e-12)
        chosen = {k: None if x is None else [nodes[i] for i in x]
                  for k, x in (("sources", sources), ("targets", targets))}  # fmt: skip
        model = sm.Gravity(out[start], into[end], constrained=constrained, **decay)
        monkeypatch.setattr("semiring_mm.hierarchy.demand._ENTRIES", 10 * n)
        found = sm.flows(given, model, **chosen)
        assert_allclose(found.load, sm.flows(given, demand).load, 1e-10, 1e-12)
        checked(found, d, demand)
        assert found.without_path == 0


def test_progress():
    told = []
    net = sm.prepare(town(20))
    demand = np.ones((400, 400))
    net.flows(demand, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (400, 400)
    with pytest.raises(TypeError, match="progress is True, False or a callable"):
        net.flows(demand, progress=3)


@pytest.mark.parametrize(
    ("demand", "more", "words"),
    [
        ((["a"], ["q"], [1]), {}, "'q' is not a node of the graph; labels are 'a', 'b', 'c'"),
        ((["a"], ["b"], [-1]), {}, "not negative, got -1 from 'a' to 'b'"),
        ((["a", "a"], ["b", "c"], [1, math.nan]), {}, "finite .* got nan from 'a' to 'c'"),
        ((["a"], ["b"], ["many"]), {}, "trips are numbers"),
        ((["a"], ["b"], [1, 2]), {}, "of one length, got 1, 1 and shape"),
        ((["a"], ["b"]), {}, "three columns, origins, destinations and trips, got 2"),
        ((["a"], ["b"], [1]), {"sources": ["a"]}, "rows and columns of a matrix; .* leave them"),
        ({"a": {"b": -3}}, {}, "got -3.0 from 'a' to 'b'"),
        (np.ones((4, 5)), {}, r"each of the 5 sources .* 5 targets, got shape \(4, 5\)"),
        (np.ones((1, 5)), {"sources": ["q"]}, "'q' is not a node"),
        (np.full((1, 1), np.inf), {"sources": ["a"], "targets": ["b"]}, "inf from 'a' to 'b'"),
        (np.full((1, 5), "x"), {"sources": ["a"]}, "a demand is a table or file of origins"),
        (5, {}, "a demand is a table or file of origins"),
        (object(), {}, "a demand is a table or file of origins"),
        (np.ones((5, 5)), {"ties": "all"}, "ties is 'share' or 'one', got 'all'"),
        (np.ones((5, 5)), {"weight": "km"}, "weight"),
        (sm.Gravity([1, 2], [1, 2], power=1), {}, r"origins has a mass for each of the 5 nodes"),
        (sm.Gravity([1, 2], [1] * 5, power=1), {"sources": ["a", "a"]}, "a node comes twice"),
        (sm.Gravity([1] * 5, [-1] * 5, power=1), {}, "destinations are finite and not negative"),
    ],
)  # fmt: skip
def test_what_is_refused(demand, more, words):
    with pytest.raises((ValueError, TypeError), match=words):
        sm.flows(STREETS, demand, **more)


def test_other_errors():
    wrong = ({}, {"power": 1, "exponential": 1}, {"power": -1}, {"exponential": math.nan})
    for given in (*wrong, {"power": "x"}):
        with pytest.raises(ValueError, match="one of exponential= and power="):
            sm.Gravity([1], [1], **given)
    with pytest.raises(ValueError, match=r"from 'a' to 'b', 0\.0 apart"):
        sm.flows({"a": {"b": 0}}, sm.Gravity([1, 1], [1, 1], power=1))
    with pytest.raises(ValueError, match="distances are of min_plus"):
        sm.prepare(STREETS, semiring="max_min").flows(TRIPS)
    with pytest.raises(ValueError, match="cycle"):
        sm.flows({"a": {"b": -1}, "b": {"a": 0}}, {"a": {"b": 1}})
    with pytest.raises(TypeError, match=r"a demand is a table or file .* got a NoneType"):
        sm.flows(STREETS, None)
    frame = pd.DataFrame({"origin": ["a"], "destination": ["b"], "n": [1]})
    with pytest.raises(ValueError, match="no column 'trips'; columns: origin, destination, n"):
        sm.flows(STREETS, frame)
