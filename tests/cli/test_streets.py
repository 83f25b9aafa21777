"""The command line over maps of streets: access, routes, and places for other commands."""

import csv
import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

geopandas = pytest.importorskip("geopandas")
shapely = pytest.importorskip("shapely")
pd = pytest.importorskip("pandas")

#: Crossings 0 to 3 are at (0, 0), (300, 0), (300, 400) and (600, 300); the last street is one-way.
LINES = [[(0, 0), (300, 0)], [(300, 0), (300, 400)], [(300, 0), (600, 0), (600, 300)]]
SHOPS = "id,x,y,weight,beds\nbaker,100,5,2,0.5\nbutcher,300,390,1,4\n"
TRIPS = "id,from_x,from_y,to_x,to_y\na,50,0,300,200\nb,600,100,0,0\n"


@pytest.fixture
def run(run):
    """The command line, in a folder with a map, shops and trips."""
    columns = {
        "name": ["west", "north", "east"],
        "oneway": ["no", "no", "yes"],
        "kmh": [36, 18, 36],
    }
    lines = [shapely.LineString(x) for x in LINES]
    roads = geopandas.GeoDataFrame(columns, geometry=lines, crs="EPSG:3067")
    roads.to_file("roads.gpkg", layer="roads")
    roads.to_parquet("roads.parquet")
    Path("shops.csv").write_text(SHOPS)
    Path("trips.csv").write_text(TRIPS)
    return run


def table(text):
    """The columns of CSV, numbers as such."""
    rows = list(csv.DictReader(io.StringIO(text)))

    def number(x):
        try:
            return float(x)
        except ValueError:
            return x

    return {name: [number(row[name]) for row in rows] for name in rows[0]}


def rows(run, *words):
    code, out, err = run(*words, "--quiet")
    assert code == 0, err
    assert [x for x in err.splitlines() if "are islands" not in x] == []
    return table(out)


ROADS = ("roads.gpkg", "--places", "shops.csv")
#: Distances from each crossing to the baker and the butcher.
METRES = np.array([[100, 690], [200, 390], [600, 10], [math.inf, math.inf]])
SECONDS = np.array([[10, 108], [20, 78], [100, 2], [math.inf, math.inf]])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--radius 500m", (METRES <= 500) @ [2, 1]),
        ("--radius .5km", (METRES <= 500) @ [2, 1]),
        ("--radius 500", (METRES <= 500) @ [2, 1]),
        ("--radius 1min --speed kmh", (SECONDS <= 60) @ [2, 1]),
        ("--radius 100 --weight travel_time --speed kmh", (SECONDS <= 100) @ [2, 1]),
        ("--radius 500 --attribute beds", (METRES <= 500) @ [0.5, 4]),
        ("--decay exponential:200m", np.exp(-METRES / 200) @ [2, 1]),
        ("--radius 650 --decay linear", np.maximum(0, 1 - METRES / 650) @ [2, 1]),
        ("--radius 2min --decay exponential --speed kmh",
         (np.exp(-SECONDS / 120) * (SECONDS <= 120)) @ [2, 1]),
        ("--decay gaussian:0.3km", np.exp(-(METRES**2) / 2 / 300**2) @ [2, 1]),
        ("--decay logistic:300,50m", (1 / (1 + np.exp((METRES - 300) / 50))) @ [2, 1]),
        ("--decay power:2,50m", (np.maximum(METRES, 50) ** -2.0) @ [2, 1]),
        ("--decay 1/(1+d)", (1 / (1 + METRES)) @ [2, 1]),
        ("--radius 500 --inward",
         (np.array([[100, 690], [200, 390], [600, 10], [800, 990]]) <= 500) @ [2, 1]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("file", ["roads.gpkg", "roads.parquet"])
def test_access(run, words, expected, file):
    found = rows(run, "access", file, *ROADS[1:], *words.split())
    assert (found["node"], found["x"]) == ([0, 1, 2, 3], [0, 300, 300, 600])
    assert_allclose(found["access"], expected, rtol=1e-12)


def test_access_within_several_radii_from_places(run):
    Path("homes.csv").write_text("name,x,y\nhome,0,-50\nfarm,600,200\n")
    found = rows(run, "access", *ROADS, "--radius", "150, 2km", "--origins", "homes.csv")
    assert found == {
        "place": ["home", "farm"], "x": [0, 600], "y": [0, pytest.approx(200)],
        "access_150": [2, 0], "access_2km": [3, 0],
    }  # fmt: skip


def test_files_of_points_and_degrees(run):
    points = geopandas.GeoSeries.from_xy([100, 300], [5, 390], crs="EPSG:3067")
    expected = rows(run, "access", *ROADS, "--decay", "exponential:200")
    geopandas.GeoDataFrame({"weight": [2, 1]}, geometry=points).to_file("shops.gpkg")
    degrees = points.to_crs("EPSG:4326")
    pd.DataFrame({"lon": degrees.x, "lat": degrees.y, "weight": [2, 1]}).to_csv("lonlat.csv")
    for name in ("shops.gpkg", "lonlat.csv"):
        words = ["access", "roads.gpkg", "--places", name, "--decay", "exponential:200"]
        assert_allclose(rows(run, *words)["access"], expected["access"], rtol=1e-6)


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet", "a.gpkg", "a.geojson"])
def test_files_of_access(run, name):
    code, out, err = run("access", *ROADS, "--radius", 500, "-o", name)
    assert (code, out) == (0, "")
    assert f"wrote {name} (4 rows)" in err
    read = {"a.parquet": pd.read_parquet, "a.gpkg": geopandas.read_file}
    read["a.geojson"] = geopandas.read_file
    found = read.get(name, pd.read_csv)(name)
    assert found.access.tolist() == [2, 3, 1, 0]
    if name in ("a.gpkg", "a.geojson"):
        assert found.geometry.to_crs("EPSG:3067").x.round(3).tolist() == [0, 300, 300, 600]
    assert run("access", *ROADS, "--radius", 500, "-o", name)[0] == 2  # it exists


def test_access_as_json(run):
    found = run.json("access", *ROADS, "--radius", 500)
    assert found["access"][1] == {"node": "1", "x": 300, "y": 0, "access": 3}
    assert (found["unit"], found["weight_source"]) == ("m", "length")


def test_new_weights(run):
    Path("rush.csv").write_text("name,travel_time\nwest,90\nnorth,10\neast,1\n")
    words = ["access", *ROADS, "--radius", "31s", "--weights", "rush.csv"]
    assert rows(run, *words)["access"] == [2, 1, 1, 0]
    ends = [(0, 1, 90), (1, 0, 15), (1, 2, 10), (2, 1, 10), (1, 3, 1)]
    lines = "".join(f"{u},{v},{w}\n" for u, v, w in ends)
    Path("ends.csv").write_text(f"u,v,travel_time\n{lines}")
    assert rows(run, *words[:-1], "ends.csv")["access"] == [2, 3, 3, 0]
    for text, message in (
        ("name,travel_time\nwest,90\n", "3 of 5 edges have no weight in it, such as 'north'"),
        ("name,travel_time\nwest,90\nwest,80\n", "street 'west' has two weights, 90 and 80"),
        ("name,speed\nwest,90\n", "no column 'travel_time': choose --weight of name, speed"),
        ("street,travel_time\nwest,90\n", "the first column is one of the streets'"),
        ("name,travel_time\nwest,1\nnorth,-1\neast,1\n", "'travel_time' is negative"),
    ):
        Path("bad.csv").write_text(text)
        assert message in run.refused(*words[:-1], "bad.csv")


def test_routes(run):
    found = rows(run, "routes", "roads.gpkg", "--pairs", "trips.csv")
    assert found["trip"] == ["a", "b"]
    assert found["length"] == [450, math.inf]
    assert found["route"] == [1, ""]
    Path("nodes.csv").write_text("origin,destination\n0,3\n2,0\n")
    found = rows(run, "routes", "roads.gpkg", "--pairs", "nodes.csv")
    assert found == {
        "from": [0, 2], "to": [3, 0], "length": [900, 700], "edges": [2, 2],
        "route": ["0;1;3", "2;1;0"],
    }  # fmt: skip


@pytest.mark.parametrize("name", ["r.geojson", "r.gpkg", "r.parquet"])
def test_lines_of_routes(run, name):
    words = ["--weight", "travel_time", "--speed", 36]
    code, _, err = run("routes", "roads.gpkg", "--pairs", "trips.csv", "-o", name, *words)
    assert code == 0
    assert "1 of 2 trips have no route" in err
    read = geopandas.read_parquet if name == "r.parquet" else geopandas.read_file
    found = read(name).to_crs("EPSG:3067")
    assert found.travel_time[0] == 45
    assert_allclose(found.geometry[0].coords, [(50, 0), (300, 0), (300, 200)], atol=1e-3)
    assert found.geometry[1] is None or found.geometry[1].is_empty


def test_the_nearest_places(run):
    found = rows(run, "nearest", "roads.gpkg", "--facilities", "shops.csv", "-k", 2)
    assert found["node"] == [0, 0, 1, 1, 2, 2]
    assert found["facility"] == ["baker", "butcher"] * 2 + ["butcher", "baker"]
    assert_allclose(found["distance"], [100, 690, 200, 390, 10, 600])
    nodes = rows(run, "nearest", "roads.gpkg", "--facilities", "0,2")
    assert nodes["facility"] == [0, 0, 2]


def test_other_commands_read_maps(run):
    found = rows(run, "table", "roads.gpkg", "--from", 0)
    assert found == {"from": [0], "0": [0], "1": [300], "2": [700], "3": [900]}
    out = run("apsp", "roads.gpkg", "--from", 0, "--to", 3)[1]
    assert out.startswith("0 → 3: 900 m in 2 legs")
    assert run("stats", "roads.gpkg", "--quiet")[0] == 0


ACCESS = ["access", *ROADS]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["access", "trips.csv", *ROADS[1:], "--radius", 5], "trips.csv: expected a map of"),
        ([*ACCESS], "say what counts: --radius 15min"),
        ([*ACCESS, "--radius", "15min"], "no column 'travel_time' of the edges"),
        ([*ACCESS, "--radius", "15min", "--weight", "length"],
         "--radius 15min is a time, and --weight length is in m: write --weight travel_time"),
        ([*ACCESS, "--radius", "15min", "--weight", "kmh"], "--weight kmh is of no known unit"),
        ([*ACCESS, "--radius", "2 miles"], "expected a distance or a time such as 2km"),
        ([*ACCESS, "--radius", "-5"], "got '-5'"),
        ([*ACCESS, "--radius", "5min", "--decay", "linear:2km"], "both times, or both lengths"),
        ([*ACCESS, "--decay", "exponential"], "give its parameters, such as exponential:5min"),
        ([*ACCESS, "--decay", "logistic:5"], "such as logistic:15min,3min"),
        ([*ACCESS, "--decay", "exponential:0"], "its distance is positive"),
        ([*ACCESS, "--decay", "sqrt(e)"], "e"),
        ([*ACCESS, "--radius", 5, "--attribute", "jobs"], "shops.csv: no column 'jobs', but id, x"),
        ([*ACCESS, "--radius", 5, "--attribute", "id"], "column 'id' holds numbers"),
        (["access", "roads.gpkg", "--places", "rows.csv", "--radius", 5],
         "rows.csv: places have columns x and y or lon and lat, got a, b"),
        (["access", "roads.gpkg", "--places", "none.csv", "--radius", 5], "no such file"),
        (["routes", "roads.gpkg", "--pairs", "shops.csv"],
         "shops.csv: places have columns from_x and from_y or from_lon and from_lat"),
        (["table", "roads.gpkg", "--from", 0, "--unweighted"], "are for tables of edges"),
        (["table", "roads.gpkg", "--from", 0, "--semiring", "widest"], "in a map are sums"),
        (["table", "trips.csv", "--from", "a", "--speed", 5], "--speed is for maps of streets"),
    ],
)  # fmt: skip
def test_what_is_refused(run, words, message):
    Path("rows.csv").write_text("a,b\n1,2\n")
    assert message in run.refused(*words)


def test_places_off_the_network_are_told(run):
    Path("far.csv").write_text("x,y\n100,90\n200,4\n")
    code, out, err = run(
        "access", "roads.gpkg", "--places", "far.csv", "--radius", 500, "--limit", 9
    )
    assert code == 0
    assert "1 of the 2 places have no street within 9 m" in err
    assert table(out)["access"] == [1, 1, 1, 0]


def test_json_of_routes(run):
    found = run.json("routes", "roads.gpkg", "--pairs", "trips.csv")
    assert json.dumps(found["routes"][1]) == (
        '{"trip": "b", "length": null, "edges": 0, "route": ""}'
    )
    assert found["notes"] == ["1 of 2 trips have no route"]
