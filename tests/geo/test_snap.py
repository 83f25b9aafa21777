"""Places: the nearest street and the offset on it, against shapely's tree of lines."""

import warnings

import numpy as np
import pytest
from geo.towns import town
from numpy.testing import assert_allclose, assert_array_equal
from plain_kernels import both

import semiring_mm as sm
from semiring_mm.geo import Streets, kernels
from semiring_mm.geo.places import Locator, points_of
from semiring_mm.geo.streets import distance

geopandas = pytest.importorskip("geopandas")
shapely = pytest.importorskip("shapely")
pytestmark = pytest.mark.filterwarnings("ignore:.* are islands")


def lines_of(streets):
    first, points = streets.lines
    return shapely.linestrings(points, indices=np.repeat(np.arange(len(streets.u)), np.diff(first)))


def straight(*ends, crs=None):
    """Streets between given points, one way."""
    points = np.array(ends, float).reshape(-1, 2)
    m = len(points) // 2
    at = np.arange(2 * m).reshape(m, 2)
    return Streets(range(2 * m), *points.T, crs, *at.T, {})


@pytest.mark.parametrize("seed", range(5))
def test_the_nearest_is_that_of_shapely(seed):
    rng = np.random.default_rng(seed)
    streets = town(rng, side=rng.integers(2, 12))
    locator, lines = Locator(streets, np.zeros(len(streets.u), bool)), lines_of(streets)
    low, high = (np.array([f(streets.x), f(streets.y)]) for f in (np.min, np.max))
    room = rng.choice([0.1, 1, 30]) * (high - low)
    points = rng.uniform(low - room, high + room, (300, 2))
    for limit in (None, 30.0, 1e9):
        found = locator.nearest(points, limit, range(300))
        tree = shapely.STRtree(lines)
        which, far = tree.query_nearest(
            shapely.points(points), return_distance=True, all_matches=False
        )
        own = far if limit is None else np.where(far <= limit, far, np.inf)
        assert_allclose(found.distance, own, rtol=1e-9)
        on = ~found.off
        assert_array_equal(on, np.isfinite(own))
        mine = shapely.line_interpolate_point(
            lines[found.edge[on]], found.fraction[on], normalized=True
        )
        at = np.stack([found.x, found.y], axis=1)
        assert_allclose(shapely.get_coordinates(mine), at[on], atol=1e-7)
        assert_array_equal(at[~on], points[~on])
        assert len(which[0]) == 300


@pytest.mark.parametrize("latitude", [0.0, 60.0, -75.0])
def test_degrees_are_compared_in_metres(latitude):
    """A street 100 m to the east is nearer than one 120 m to the north, at any latitude."""
    metre, north = 1 / 111_194.0, np.cos(np.radians(latitude))
    lon, lat = 25.0, latitude
    east, up = lon + 100 * metre / north, lat + 120 * metre
    streets = straight(
        (east, lat - 0.1), (east, lat + 0.1), (lon - 0.1, up), (lon + 0.1, up), crs="EPSG:4326"
    )
    locator = Locator(streets, np.zeros(2, bool))
    for limit, edge in ((None, 0), (101.0, 0), (99.0, -1)):
        found = locator.nearest(np.array([[lon, lat]]), limit, [0])
        assert found.edge[0] == edge
        if edge >= 0:
            assert found.distance[0] == pytest.approx(100, rel=1e-3)
            assert found.fraction[0] == pytest.approx(0.5, abs=1e-6)


def test_feet_are_no_metres():
    streets = straight((0, 0), (1000, 0), crs="EPSG:2263")  # of New York, in feet
    found = Locator(streets, np.zeros(1, bool)).nearest(np.array([[250.0, 100.0]]), None, [0])
    assert found.distance[0] == pytest.approx(30.48, rel=1e-4)
    assert streets.lengths[0] == pytest.approx(304.8, rel=1e-4)
    for limit, off in ((31, False), (30, True)):
        places = Locator(streets, np.zeros(1, bool)).nearest(np.array([[250.0, 100.0]]), limit, [0])
        assert places.off[0] == off


def test_streets_of_no_length_and_no_streets():
    streets = straight((5, 5), (5, 5), (0, 0), (1, 0))
    found = Locator(streets, np.zeros(2, bool)).nearest(
        np.array([[5.0, 6.0], [0.5, 0]]), None, [0, 1]
    )
    assert_array_equal(found.edge, [0, 1])
    assert_array_equal(found.fraction, [0, 0.5])
    for none in (straight(), streets):
        places = Locator(none, np.ones(len(none.u), bool)).nearest(np.ones((2, 2)), None, [0, 1])
        assert places.off.all()
        assert np.isinf(places.distance).all()
    net = sm.geo.network(streets, crs="metres")
    assert np.isfinite(net.distances(net.snap([5.0], [5.0]), net.snap([5.0], [5.0]))).all()


def test_kernels_as_python():
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0, 4, (30, 2)), rng.uniform(0, 3, (30, 2))
    y[:5, 1] = y[:5, 0]
    grid = {"m": 30, "wide": 4, "high": 3, "x": x, "y": y}
    counted = both(
        kernels.sort_segments, None, None, **grid, count=np.zeros(13, np.int64),
        held=np.empty(0, np.int32), full=0,
    )  # fmt: skip
    first = np.cumsum(counted["count"])
    held = np.empty(first[-1], np.int32)
    held = both(kernels.sort_segments, None, None, **grid, count=first.copy(), held=held, full=1)[
        "held"
    ]
    assert set(held) == set(range(30))
    p = rng.uniform(-2, 6, (2, 40))
    found = both(
        kernels.nearest_segments, None, None, begin=0, end=40, wide=4, high=3, first=first,
        held=held, x=x, y=y, px=p[0], py=p[1], most=4.0, found=np.empty(40, np.int64),
        part=np.empty(40), square=np.empty(40),
    )["found"]  # fmt: skip
    lines = shapely.linestrings(np.stack([x, y], axis=2))
    far = shapely.distance(shapely.points(p.T)[:, None], lines)
    assert_array_equal(found, np.where(far.min(axis=1) <= 2, far.argmin(axis=1), -1))
    assert {-1} < set(found)


def test_points_of_all_kinds():
    streets = straight((24.9, 60.1), (25.0, 60.2), crs="EPSG:4326")
    at = np.array([[24.91, 60.12], [24.93, 60.13]])
    series = geopandas.GeoSeries(shapely.points(at), index=["a", "b"], crs="EPSG:4326")
    frame = geopandas.GeoDataFrame({"name": [1, 2]}, index=series.index, geometry=series)
    cases = [
        ((at, None), range(2)), ((at.tolist(), None), range(2)), ((*at.T,), range(2)),
        ((series, None), ["a", "b"]), ((frame, None), ["a", "b"]),
        ((series.to_crs("EPSG:3067"), None), ["a", "b"]), ((shapely.points(at), None), range(2)),
    ]  # fmt: skip
    for given, ids in cases:
        points, found = points_of(*given, None, streets)
        assert_allclose(points, at, atol=1e-9)
        assert list(found) == list(ids)
    turned = np.stack(shapely.get_coordinates(series.to_crs("EPSG:3857").values).T, axis=1)
    assert_allclose(points_of(turned, None, "EPSG:3857", streets)[0], at, atol=1e-9)
    one, _ = points_of(24.91, 60.12, None, streets)
    assert_array_equal(one, at[:1])
    assert distance(at[:1].T, at[1:].T, "EPSG:4326")[0] == pytest.approx(1571, abs=5)


@pytest.mark.parametrize(
    ("x", "crs", "words"),
    [
        ([[np.nan, 1.0], [2, 2]], None, r"place 0 is at \(nan, 1.0\) \(one of 1 such places\)"),
        ([1.0, 2.0, 3.0], None, r"got shape \(3,\)"),
        ([[1.0, 2.0, 3.0]], None, r"got shape \(1, 3\)"),
        ([shapely.Point()], None, "places are points: place 0 is POINT EMPTY"),
        ([shapely.LineString([(0, 0), (1, 1)])], None, "places are points: place 0 is LINESTRING"),
        ([[1.0, 2.0]], "EPSG:4326", "the places have crs='EPSG:4326', and the network has none"),
    ],
)
def test_points_that_are_none(x, crs, words):
    net = sm.geo.network(straight((0, 0), (900, 0)), largest=True)
    with pytest.raises(ValueError, match=words):
        net.snap(x, crs=crs)


def test_points_in_two_systems():
    series = geopandas.GeoSeries([shapely.Point(1, 1)], crs="EPSG:4326")
    with pytest.raises(
        ValueError, match="the places have a CRS, WGS 84, and crs='EPSG:3067' differs"
    ):
        points_of(series, None, "EPSG:3067", straight())
    with pytest.raises(ValueError, match="crs is what pyproj takes"):
        points_of([[1.0, 2.0]], None, "EPSG:1", straight((0, 0), (1, 1), crs="EPSG:4326"))


def test_what_is_told_of_places():
    net = sm.geo.network(straight((0, 0), (900, 0)))
    with pytest.warns(
        UserWarning, match="1 of the 3 places have no street within 50 m: .*off the n"
    ):
        places = net.snap([[10, 20], [30, 60], [800, 1]], limit=50)
    assert_array_equal(places.off, [False, True, False])
    assert repr(places) == "<Places: 3, 1 off the network, 10.5 m from the street>"
    with pytest.warns(UserWarning, match="none of the 2 places is near the network: .*which CRS"):
        net.snap([[24.0e4, 60.0], [25.0e4, 61.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert net.snap([[1.0, 1]], ids=["x"]).ids == ["x"]
        assert len(net.snap(np.empty((0, 2)))) == 0
    for options, words in [({"ids": "ab"}, "2 entries for 1 places"), ({"limit": -1}, "got -1")]:
        with pytest.raises(ValueError, match=words):
            net.snap([[1.0, 1]], **options)
