"""Answers out: frames, batches, labelled tables, and matrices for solvers."""

import numpy as np
import pytest
from geo.test_network import asked
from numpy.testing import assert_allclose, assert_array_equal

import semiring_mm as sm

geopandas = pytest.importorskip("geopandas")
pytestmark = pytest.mark.filterwarnings("ignore:.* are islands", "ignore:.* off the network")


@pytest.fixture
def town():
    _, net, a, b = asked(0, crs="EPSG:4326")
    return net, a, b


def test_edges_and_nodes(town):
    net, *_ = town
    edges = net.to_geodataframe(load=np.arange(len(net.streets.u)))
    assert edges.crs == "EPSG:4326"
    assert edges.index.names == ["u", "v", "key"]
    again = sm.geo.network(edges)
    assert_allclose(
        again.distances(net.nodes[:25], net.nodes[:25]),
        net.distances(net.nodes[:25], net.nodes[:25]),
    )
    assert_array_equal(edges["load"], np.arange(len(edges)))
    nodes = net.to_geodataframe("nodes", part=net.islands)
    assert list(nodes.index) == list(net.nodes)
    assert_array_equal(nodes.geometry.x, net.streets.x)
    with pytest.raises(ValueError, match=f"load has 1 entries, and there are {len(edges)} edges"):
        net.to_geodataframe(load=[1])
    with pytest.raises(ValueError, match="what is 'edges' or 'nodes', got 'roads'"):
        net.to_geodataframe("roads")


def test_places_and_routes(town):
    net, a, b = town
    points = a.to_geodataframe(net.streets.crs, off=a.off)
    assert_array_equal(points.geometry.x, a.x)
    assert list(points.columns) == ["distance", "off", "geometry"]
    d = np.asarray(net.distances(a, b))
    pairs = np.argwhere(np.isfinite(d))[:5]
    frame = net.routes_frame([net.path(a[i], b[j]) for i, j in pairs], home=pairs[:, 0])
    assert_allclose(frame["weight"], d[tuple(pairs.T)])
    metres = frame.to_crs("EPSG:3857").length  # of latitude 60: twice as long
    assert_allclose(metres * np.cos(np.radians(60.1)), d[tuple(pairs.T)], rtol=0.01)


@pytest.mark.parametrize("pairs", [None, 1, 60])
def test_batches(town, pairs):
    pa = pytest.importorskip("pyarrow")
    net, a, b = town
    for sources, targets in ((a, b), (None, a), (["n1", "n2"], None)):
        given = list(net.batches(sources, targets, pairs=pairs))
        table = pa.Table.from_batches(given).to_pydict()
        d = net.distances(sources, targets)
        row, col = np.nonzero(np.isfinite(np.asarray(d)))
        assert table["from"] == [d.sources[i] for i in row]
        assert table["to"] == [d.nodes[j] for j in col]
        assert_allclose(table["distance"], np.asarray(d)[row, col], rtol=1e-14)
        assert len(given) == {None: 1, 1: len(d), 60: -(-len(d) // (60 // d.shape[1]))}[pairs]


def test_xarray(town):
    pytest.importorskip("xarray")
    net, a, _ = town
    found = sm.geo.to_xarray(net.distances(["n1", "n0"], a), "seconds")
    assert found.name == "seconds"
    assert found.sel({"from": "n0", "to": 7}) == net.distance("n0", a[7])


def test_matrices_of_solvers():
    table = np.array([[0, 12.4, np.inf], [9.6, 0, 3], [1, 2, 0]])
    with pytest.raises(ValueError, match=r"1 of 9 pairs have no path, such as \(0, 2\)"):
        sm.geo.solver_matrix("pyvrp", table)
    whole = [[0, 124, 999], [96, 0, 30], [10, 20, 0]]
    matrix = sm.geo.solver_matrix("pyvrp", table, scale=10, unreachable=999)
    assert matrix.dtype == np.int64
    assert_array_equal(matrix, whole)
    assert sm.geo.solver_matrix("ortools", table, scale=10, unreachable=999) == whole
    vroom = sm.geo.solver_matrix("vroom", table, scale=10, unreachable=999)
    assert vroom == {"matrices": {"car": {"durations": whole}}}
    for solver, given, words in [
        ("lkh", table, "solver is 'pyvrp', 'ortools', 'vroom'; got 'lkh'"),
        ("pyvrp", table[:2], r"a square table, got shape \(2, 3\)"),
        ("vroom", np.array([[5e9]]), "VROOM takes whole numbers to 4294967295, got 5000000000"),
    ]:
        with pytest.raises(ValueError, match=words):
            sm.geo.solver_matrix(solver, given)
