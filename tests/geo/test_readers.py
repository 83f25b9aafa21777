"""Networks in: the same town as NetworkX, GeoPandas, tables and files have it."""

import networkx as nx
import numpy as np
import pytest
from geo.towns import town
from numpy.testing import assert_allclose, assert_array_equal

import semiring_mm as sm
from semiring_mm.geo import Streets

geopandas = pytest.importorskip("geopandas")
pd = pytest.importorskip("pandas")
shapely = pytest.importorskip("shapely")
pytestmark = pytest.mark.filterwarnings("ignore:.* are islands")


def town_of(crs="EPSG:4326", seed=0):
    streets = town(np.random.default_rng(seed), crs=crs)
    lines = [shapely.LineString(streets.line(e)) for e in range(len(streets.u))]
    return streets, lines


def osmnx_graph(streets, lines):
    """As OSMnx has it: straight streets have no geometry."""
    graph = nx.MultiDiGraph(crs=streets.crs)
    for label, x, y in zip(streets.nodes, streets.x, streets.y, strict=True):
        graph.add_node(label, x=x, y=y)
    for e, line in enumerate(lines):
        u, v, key = streets.edge_id(e)
        own = {
            "length": streets.lengths[e],
            "osmid": [e, e + 1] if e % 5 == 0 else e,
            "oneway": True,
        }
        if len(line.coords) > 2:
            own["geometry"] = line
        graph.add_edge(u, v, int(key), **own)
    return graph


def frames(streets, lines):
    """As ``osmnx.graph_to_gdfs`` gives them."""
    points = geopandas.points_from_xy(streets.x, streets.y)
    nodes = geopandas.GeoDataFrame({"osmid": streets.nodes}, geometry=points, crs=streets.crs)
    index = pd.MultiIndex.from_tuples(
        map(streets.edge_id, range(len(lines))), names=["u", "v", "key"]
    )
    edges = geopandas.GeoDataFrame(
        {"row": range(len(lines))}, geometry=lines, index=index, crs=streets.crs
    )
    return nodes.set_index("osmid"), edges


def one_row_a_street(streets, lines):
    """A GeoDataFrame with a row for each street, in one direction, and a column oneway."""
    keep = np.flatnonzero((streets.twin < 0) | (np.arange(len(lines)) < streets.twin))
    words = np.where(streets.twin[keep] < 0, "yes", "no").astype(object)
    words[words == "no"] = np.array(["no", None, "", "False", "0"], object)[
        np.arange((words == "no").sum()) % 5
    ]
    back = np.flatnonzero(words == "yes")[::2]  # drawn against their direction
    rows = [lines[e] for e in keep]
    for i in back:
        words[i], rows[i] = "-1", rows[i].reverse()
    ends = [np.array(streets.nodes)[end[keep]] for end in (streets.u, streets.v)]
    ends[0][back], ends[1][back] = ends[1][back], ends[0][back].copy()
    table = {"u": ends[0], "v": ends[1], "oneway": words}
    return geopandas.GeoDataFrame(table, geometry=rows, crs=streets.crs)


def tables(streets, edges, kind):
    nodes = {"id": np.array(streets.nodes), "lon": streets.x, "lat": streets.y}
    edges = {
        "u": edges["u"].to_numpy(),
        "v": edges["v"].to_numpy(),
        "oneway": [x if isinstance(x, str) else None for x in edges["oneway"]],
        "length": edges.length_.to_numpy(),
    }
    if kind == "dict":
        return nodes, edges
    if kind == "pandas":
        return pd.DataFrame(nodes).set_index("id"), pd.DataFrame(edges)
    if kind == "polars":
        polars = pytest.importorskip("polars")
        return polars.DataFrame(nodes), polars.DataFrame(edges)
    arrow = pytest.importorskip("pyarrow")
    return arrow.table(nodes), arrow.table(edges)


def same(net, streets, wanted=None):
    """That a network has these streets: distances between all nodes, and lengths in all."""
    places = np.stack([net.streets.x, net.streets.y], axis=1)
    gap = np.abs(places[:, None] - np.stack([streets.x, streets.y], axis=1)).sum(axis=2)
    at = gap.argmin(axis=0)
    assert gap.min(axis=0).max() < 1e-9
    wanted = sm.geo.network(streets).distances() if wanted is None else wanted
    assert_allclose(np.asarray(net.distances())[np.ix_(at, at)], wanted, rtol=1e-9)


def test_osmnx():
    streets, lines = town_of()
    net = sm.geo.network(osmnx_graph(streets, lines))
    assert net.streets.crs == "EPSG:4326"
    assert list(net.nodes) == streets.nodes
    same(net, streets)
    ids = [net.streets.edge_id(e) for e in range(len(net.streets.u))]
    assert set(ids) == {streets.edge_id(e) for e in range(len(streets.u))}
    place = {streets.edge_id(e): e for e in range(len(streets.u))}
    for e, name in enumerate(ids):
        assert_allclose(net.streets.line(e), streets.line(place[name]))
    assert {"osmid", "oneway", "length", "key"} <= net.streets.columns.keys()
    assert (net.streets.twin >= 0).sum() == (streets.twin >= 0).sum()


def test_frames_of_osmnx():
    streets, lines = town_of()
    nodes, edges = frames(streets, lines)
    for source in ((nodes, edges), edges, (nodes, edges.reset_index())):
        net = sm.geo.network(source)
        assert set(net.nodes) == set(streets.nodes)
        same(net, streets)
        assert net.streets.columns["row"][3] == 3


def test_frames_of_an_undirected_graph_of_osmnx():
    """Each street has a row with its (u, v, key), and says whether it leads both ways."""
    streets, lines = town_of()
    edges = frames(streets, lines)[1]
    edges["oneway"] = streets.twin < 0
    same(sm.geo.network(edges), streets)
    once = edges[(streets.twin < 0) | (np.arange(len(edges)) < streets.twin)]
    same(sm.geo.network(once), streets)
    assert len(sm.geo.network(once, directed=True).streets.u) == len(once)


def test_momepy():
    """A primal graph: undirected, nodes are their coordinates, lines in any direction."""
    streets, lines = town_of("EPSG:3857")
    graph = nx.MultiGraph(crs="EPSG:3857", approach="primal")
    for e, line in enumerate(lines):
        if e < streets.twin[e] or streets.twin[e] < 0:
            line = line.reverse() if e % 2 else line
            graph.add_edge(line.coords[-1], line.coords[0], mm_len=line.length, geometry=line)
    net = sm.geo.network(graph, weight="mm_len")
    same(net, streets, both_ways(streets))
    assert (net.streets.twin >= 0).all()
    graph.graph["approach"] = "dual"
    with pytest.raises(ValueError, match=r"momepy.gdf_to_nx\(streets, approach='primal'\)"):
        sm.geo.network(graph)


def both_ways(streets):
    graph = nx.Graph()
    graph.add_nodes_from(range(len(streets.nodes)))
    for u, v, w in zip(streets.u.tolist(), streets.v.tolist(), streets.lengths, strict=True):
        graph.add_edge(u, v, weight=min(w, graph.get_edge_data(u, v, {"weight": w})["weight"]))
    return sm.apsp(graph)


@pytest.mark.parametrize("which", ["lines", "pair", "dict", "pandas", "polars", "arrow"])
def test_a_row_for_each_street(which):
    streets, lines = town_of()
    edges = one_row_a_street(streets, lines)
    options = {}
    if which == "lines":
        source = edges.drop(columns=["u", "v"])
    elif which == "pair":
        source = frames(streets, lines)[0], edges
    else:
        edges["length_"] = [
            sm.geo.network(
                Streets(
                    [0, 1],
                    np.array(x.coords)[[0, -1], 0],
                    np.array(x.coords)[[0, -1], 1],
                    streets.crs,
                    np.array([0]),
                    np.array([1]),
                    {},
                    (np.array([0, len(x.coords)]), np.array(x.coords)),
                )
            ).streets.lengths[0]
            for x in edges.geometry
        ]
        source, options = tables(streets, edges, which), {"crs": "EPSG:4326"}
    net = sm.geo.network(source, **options)
    same(net, streets)
    assert_array_equal(np.unique(net.streets.columns["row"]), np.arange(len(edges)))
    undirected = sm.geo.network(source, directed=False, **options)
    same(undirected, streets, both_ways(streets))
    both = sm.geo.network(source, oneway=None, **options).streets
    assert both.twin[both.u != both.v].min() >= 0  # straight loops have no length


@pytest.mark.parametrize("ending", ["gpkg", "geojson", "parquet", "shp"])
def test_files(tmp_path, ending):
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    streets, lines = town_of()
    edges = one_row_a_street(streets, lines).drop(columns=["u", "v"])
    path = tmp_path / f"streets.{ending}"
    edges.to_parquet(path) if ending == "parquet" else edges.to_file(path)
    same(sm.geo.network(path), streets)


def test_a_geopackage_with_layers(tmp_path):
    streets, lines = town_of()
    nodes, edges = frames(streets, lines)
    path = tmp_path / "town.gpkg"
    nodes.to_file(path, layer="nodes")
    edges.reset_index().to_file(path, layer="edges")
    net = sm.geo.network(str(path))  # as osmnx.save_graph_geopackage writes it
    same(net, streets)
    assert set(net.nodes) == set(streets.nodes)
    edges.reset_index().to_file(tmp_path / "two.gpkg", layer="streets")
    nodes.to_file(tmp_path / "two.gpkg", layer="stops")
    with pytest.raises(ValueError, match=r"has layers 'streets', 'stops': choose one .*layer="):
        sm.geo.network(tmp_path / "two.gpkg")
    same(sm.geo.network(tmp_path / "two.gpkg", layer="streets"), streets)


class Libpysal:
    """What a Graph of libpysal is asked for."""

    def __init__(self, pairs, isolates=()):
        index = pd.MultiIndex.from_tuples(
            [*pairs, *((i, i) for i in isolates)], names=["focal", "neighbor"]
        )
        self.adjacency = pd.Series(
            [*pairs.values(), *(0 for _ in isolates)], index=index, name="weight"
        )
        self.isolates = pd.Index(list(isolates))


def test_libpysal():
    points = geopandas.GeoDataFrame(
        geometry=geopandas.points_from_xy([0.0, 30, 30, 500], [0.0, 0, 40, 500]),
        index=[*"abcd"],
        crs="EPSG:3857",
    )
    pairs = {("a", "b"): 1.0, ("b", "a"): 2.0, ("b", "c"): 3.0}
    graph = Libpysal(pairs, isolates=["d"])
    w = type(
        "W",
        (),
        {
            "id_order": ["a", "b", "c"],
            "neighbors": {"a": ["b"], "b": ["a", "c"], "c": []},
            "weights": {"a": [1.0], "b": [2.0, 3.0], "c": []},
        },
    )()
    for given in (graph, w):
        net = sm.geo.network((points, given))
        assert (net.distance("a", "c"), net.distance("b", "a")) == (70.0, 30.0)
        assert net.distance("c", "b") == np.inf
        by = sm.geo.network((points, given), weight="weight")
        assert (by.distance("a", "c"), by.distance("b", "a")) == (4.0, 2.0)


def square(**columns):
    line = [[(0, 0), (300, 0)], [(300, 0), (300, 400)]]
    return geopandas.GeoDataFrame(
        columns, geometry=[shapely.LineString(x) for x in line], crs="EPSG:3857"
    )


def test_lines_of_several_parts():
    whole = shapely.MultiLineString([[(0, 0), (9, 0)], [(9, 0), (9, 9)]])
    edges = geopandas.GeoDataFrame({"name": ["x"]}, geometry=[whole], crs="EPSG:3857")
    net = sm.geo.network(edges)
    assert_array_equal(net.streets.columns["row"], [0, 0, 0, 0])
    assert list(net.streets.columns["name"]) == ["x"] * 4
    assert net.graph.edges.weight.sum() == 36


def broken(shape):
    edges = square()
    edges.loc[1, "geometry"] = shape
    return edges


DEGREES = {"id": [0, 1], "x": [24.9, 25.0], "y": [60.1, 60.2]}
ONE = {"u": [0], "v": [1]}


@pytest.mark.filterwarnings("ignore:the column 'length' is")
@pytest.mark.parametrize(
    ("source", "options", "words"),
    [
        (
            lambda: (DEGREES, ONE),
            {},
            "has no CRS, and its coordinates, x to 25 and y to 60.2, look like "
            "degrees: write crs='EPSG:4326'",
        ),
        (
            lambda: square(),
            {"crs": "EPSG:4326"},
            "the network is in WGS 84 / Pseudo-Mercator, and crs=",
        ),
        (
            lambda: (DEGREES | {"y": [60.1, 99]}, ONE),
            {"crs": "EPSG:4326"},
            "y goes to 99, which is no lat",
        ),
        (
            lambda: (DEGREES | {"y": [np.nan, 60]}, ONE),
            {"crs": "EPSG:4326"},
            r"node 0 is at \(24.9, nan\)",
        ),
        (
            lambda: broken(None),
            {},
            "the geometry of 1 of the 2 edges is empty, such as that of 1: leave",
        ),
        (lambda: broken(shapely.LineString()), {}, "of 1 of the 2 edges is empty"),
        (lambda: broken(shapely.Point(1, 2)), {}, r"that of 1 is a Point \(one of 1\)"),
        (
            lambda: square(oneway=["yes", "reversible"]),
            {},
            "'oneway' says 'reversible' of 1 edges; known",
        ),
        (lambda: square(), {"oneway": "way"}, "there is no column 'way'"),
        (lambda: square(length=[5.0, np.nan]), {}, "'length' is missing for 2 of 4 edges"),
        (lambda: square(length=[500.0, -5.0]), {}, "'length' is negative for 2 of 4 edges"),
        (
            lambda: (DEGREES, {"a": [0], "b": [1]}),
            {"crs": "EPSG:4326"},
            "ends of edges are columns 'u' and",
        ),
        (lambda: ({"id": [0]}, ONE), {}, "coordinates of nodes are columns 'x' and 'y' or"),
        (
            lambda: (DEGREES, {"u": [0], "v": [7]}),
            {"crs": "EPSG:4326"},
            "7 of edge 0 is none .one of 1 such",
        ),
        (
            lambda: nx.path_graph(3),
            {},
            "nodes have coordinates as attributes x and y, and 0 has not",
        ),
    ],
)
def test_bad_input_is_told(source, options, words):
    with pytest.raises(ValueError, match=words):
        sm.geo.network(source(), **options)


def test_other_bad_input(tmp_path):
    streets, lines = town_of()
    nodes, edges = frames(streets, lines)
    with pytest.raises(
        ValueError, match=r"the nodes are in WGS 84 and the edges in .*edges.to_crs"
    ):
        sm.geo.network((nodes, edges.to_crs("EPSG:3067")))
    other = edges.copy()
    other.index = pd.MultiIndex.from_tuples(
        [("a", "b", e) for e in range(len(edges))], names=["u", "v", "key"]
    )
    with pytest.raises(ValueError, match=r"lines that end at node .* end at different points"):
        sm.geo.network(other)
    with pytest.raises(
        TypeError, match=r"a street network is an OSMnx or NetworkX graph.*builtins.int"
    ):
        sm.geo.network(3)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        sm.geo.network(tmp_path / "none.gpkg")
    (tmp_path / "a.graphml").write_text("")
    with pytest.raises(ValueError, match=r"osmnx.load_graphml"):
        sm.geo.network(tmp_path / "a.graphml")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"nodes": ["a", "a"]}, "labels of nodes differ, and 1 are repeated"),
        ({"x": np.zeros(3)}, r"2 nodes have \(3,\) x and \(2,\) y coordinates"),
        ({"v": np.array([2])}, "ends of edges are positions of the 2 nodes, got 2"),
        ({"columns": {"length": np.ones(2)}}, r"column 'length' has shape \(2,\), of 1 edges"),
        (
            {"shape": (np.array([0, 1]), np.zeros((1, 2)))},
            r"the geometry of edge \('a', 'b', 0\) is empty",
        ),
        (
            {"shape": (np.array([0, 2]), np.full((2, 2), np.inf))},
            r"not those of edge \('a', 'b', 0\)",
        ),
        ({"shape": (np.array([0, 2]), np.zeros((3, 2)))}, "of 1 edges"),
    ],
)
def test_streets_that_are_none(change, words):
    given = {
        "nodes": ["a", "b"],
        "x": np.zeros(2),
        "y": np.ones(2),
        "crs": None,
        "u": np.array([0]),
        "v": np.array([1]),
        "columns": {},
    }
    with pytest.raises(ValueError, match=words):
        Streets(**given | change)


def test_twins_are_the_same_street():
    """Loops, parallel streets and dual carriageways keep apart."""
    loop = [(0, 0), (9, 5), (5, 9), (0, 0)]
    lines = [
        loop,
        loop[::-1],
        loop,
        [(0, 0), (50, 0)],
        [(50, 0), (0, 0)],
        [(0, 0), (25, 9), (50, 0)],
        [(50, 0), (25, -9), (0, 0)],
        [(50, 0), (25, 9), (0, 0)],
    ]
    ends = np.array([(0, 0), (0, 0), (0, 0), (0, 1), (1, 0), (0, 1), (1, 0), (1, 0)]).T
    shape = np.cumsum([0, *map(len, lines)]), np.concatenate(lines)
    streets = Streets([0, 1], np.array([0.0, 50]), np.zeros(2), None, *ends, {}, shape)
    twin = streets.twin
    assert twin[1] in (0, 2)
    assert twin[twin[1]] == 1
    assert_array_equal(twin[3:], [4, 3, 7, -1, 5])
    assert sorted(twin[:3])[0] == -1
