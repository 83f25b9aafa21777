"""Pictures: projections, outlines, labels, layouts, and what is drawn of a graph."""

import io
import itertools
from pathlib import Path

import metrics
import numpy as np
import pytest
from numpy.testing import assert_allclose

import semiring_mm as sm
from semiring_mm import cli
from semiring_mm.files import Graph
from semiring_mm.files.graph import EARTH_RADIUS_KM, great_circle
from semiring_mm.plot import draw, great_circle_arcs
from semiring_mm.plot.draw import figure, style
from semiring_mm.plot.land import outlines
from semiring_mm.plot.layout import layout, neighbourhood
from semiring_mm.plot.network import view_of
from semiring_mm.plot.projections import Azimuthal, EqualEarth, Plane, choose

EXAMPLES = Path(__file__).parents[2] / "examples"
rng = np.random.default_rng(7)
CITIES = {
    "Auckland": (174.79, -37.01), "Los Angeles": (-118.41, 33.94), "Paris": (2.55, 49.01),
    "Easter Island": (-109.42, -27.16), "Longyearbyen": (15.47, 78.25), "Tokyo": (139.78, 35.55),
    "Berlin": (13.5, 52.36), "Munich": (11.79, 48.35), "Hamburg": (9.99, 53.63),
}  # fmt: skip


def network(names, edges, places=None, *, geographic=False, unit=""):
    row, col = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    places = None if places is None else np.array(places, dtype=float)
    names = [str(name) for name in names]
    return Graph(names, row, col, np.ones(len(row)), False, places, geographic, unit=unit)


def cities(*names):
    return network(
        names, list(itertools.pairwise(range(len(names)))), [CITIES[k] for k in names],
        geographic=True,
    )  # fmt: skip


def page(graph, path=(), *, result=None, title="", what=("map",), missing=np.inf):
    pytest.importorskip("matplotlib")
    result = np.zeros((len(graph.nodes),) * 2) if result is None else result
    with style():
        made = figure(result, graph, path, "distance", missing, title, what)
        made.draw_without_rendering()
    return made


def texts(made):
    return [text.get_text() for text in made.findobj(lambda x: hasattr(x, "get_text"))]


# --- projections ---------------------------------------------------------------------------------


def test_great_circle_arcs_keep_to_the_great_circle():
    arc = great_circle_arcs(np.array([[0.0, 0.0]]), np.array([[90.0, 60.0]]), 5)
    assert_allclose(arc[0, [0, -1]], [[0, 0], [90, 60]], atol=1e-9)
    lon, lat = np.radians(arc[0].T)
    points = np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)])
    normal = np.cross(points[:, 0], points[:, -1])
    assert_allclose(normal @ points, 0, atol=1e-12)
    assert_allclose(great_circle_arcs(np.ones((1, 2)), np.ones((1, 2)), 3), 1)


@pytest.mark.parametrize("projection", [EqualEarth(11.0), Azimuthal(-70.0, 35.0)])
def test_projections_keep_areas(projection):
    lon, lat = rng.uniform(-60, 60, 200) + projection.longitude, rng.uniform(-80, 80, 200)
    at = np.stack([lon, lat], axis=1)
    steps = 1e-4 * np.eye(2)  # degrees
    east, north = ((projection(at + d) - projection(at - d)) / np.radians(2e-4) for d in steps)
    area = east[:, 0] * north[:, 1] - east[:, 1] * north[:, 0]
    assert_allclose(area, np.cos(np.radians(lat)), rtol=1e-5)


def test_projections_at_known_points():
    # The Equal Earth map's width and height for a sphere of radius 1, from its authors' paper.
    assert_allclose(EqualEarth(0.0)(np.array([180.0, 0.0])), [2.70663, 0], atol=5e-6)
    assert_allclose(EqualEarth(0.0)(np.array([0.0, 90.0])), [0, 1.31736], atol=5e-6)
    # Snyder's numerical example, page 332: a sphere of radius 3.
    there = Azimuthal(-100.0, 40.0)
    assert_allclose(3 * there(np.array([100.0, -20.0])), [-4.2339303, 4.0257775], atol=1e-7)
    assert_allclose(there(np.array([-100.0, 40.0])), 0, atol=1e-15)
    assert_allclose(np.hypot(*there(np.array([80.0, -40.0]))), 2)


def test_a_city_is_drawn_to_scale():
    at = np.array([[13.3, 52.4], [13.5, 52.6]])
    x, y = choose(at, at)(at)
    assert_allclose(np.hypot(*(x - y)) * EARTH_RADIUS_KM, great_circle(*at), rtol=1e-5)


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["Berlin", "Munich", "Hamburg"], Azimuthal),
        (["Paris", "Longyearbyen"], Azimuthal),
        (["Auckland", "Paris", "Los Angeles"], EqualEarth),
        (["Berlin"], Azimuthal),
    ],
)
def test_the_projection_is_chosen_for_the_extent(names, kind):
    at = np.array([CITIES[name] for name in names])
    assert type(choose(at, at[:0])) is kind


def test_a_region_across_the_antimeridian_is_one_region():
    at = np.array([[175.0, -40.0], [-175.0, -15.0], [178.0, -18.0]])
    projection = choose(at, at[:0])
    assert isinstance(projection, Azimuthal)
    assert np.ptp(projection(at)[:, 0]) < np.radians(15)


@pytest.mark.parametrize(
    "names",
    [
        ["Auckland", "Los Angeles"],
        ["Tokyo", "Los Angeles", "Easter Island"],
        ["Easter Island", "Paris", "Longyearbyen"],
    ],
)
def test_a_path_stays_in_one_piece(names):
    graph = cities(*names, *(name for name in CITIES if name not in names))
    view = view_of(graph, range(len(names)))
    assert isinstance(view.projection, EqualEarth)
    stops = np.arange(len(names))
    assert len(view.lines(stops[:-1], stops[1:])) == len(names) - 1


def test_arcs_are_cut_at_the_edge_of_the_map():
    world = EqualEarth(11.0)
    lines = world.lines(np.array([[170.0, 10.0]]), np.array([[-120.0, 40.0]]))
    first, second = lines
    edge = world.edge()
    east, west = edge[:181], edge[181:]
    assert_allclose(first[-1, 0], np.interp(first[-1, 1], east[:, 1], east[:, 0]), rtol=1e-3)
    assert_allclose(second[0, 0], np.interp(second[0, 1], *west[::-1].T[::-1]), rtol=1e-3)
    assert_allclose(first[-1, 1], second[0, 1])
    assert_allclose(first[0], world(np.array([170.0, 10.0])))
    assert_allclose(second[-1], world(np.array([-120.0, 40.0])))
    # No line jumps across the map, wherever it begins and ends.
    start, end = (
        np.stack([rng.uniform(-180, 180, 300), rng.uniform(-89, 89, 300)], 1) for _ in "ab"
    )
    for line in world.lines(start, end):
        assert np.abs(line[:, 0]).max() <= edge[:, 0].max() + 1e-9
        inside = np.abs(line[:, 1]) < 0.95 * edge[:, 1].max()  # at a pole a line may turn at once
        assert np.abs(np.diff(line[:, 0]))[inside[1:] & inside[:-1]].max(initial=0) < 0.6
    short = world.lines(np.array([[-169.4, 5.0]]), np.array([[-168.6, 5.0]]))
    assert [len(line) for line in short] == [2, 2]


# --- outlines of land ----------------------------------------------------------------------------

LAND = [(2.3, 48.8), (-100, 40), (134, -25), (-60, -10), (100, 60), (-45, 72), (0, -85), (30, 0)]
SEA = [(-30, 30), (-150, 0), (80, -30), (180, 0), (0, 89), (51, 42), (-30, -50), (5, 40)]


@pytest.mark.parametrize(
    "projection",
    [EqualEarth(11.0), EqualEarth(-170.0), EqualEarth(100.0)]
    + [Azimuthal(*at) for at in [*LAND, *SEA]],
    ids=str,
)
def test_land_is_land_and_sea_is_sea(projection):
    rings = outlines(projection)
    for at, land in [*((at, 1) for at in LAND), *((at, 0) for at in SEA)]:
        at = np.array(at, dtype=float)
        if isinstance(projection, EqualEarth):
            at = projection.wrapped(at)
        place = projection(at)
        if isinstance(projection, Azimuthal) and np.hypot(*place) > 1.4:
            continue  # more than 89° away: never in a picture
        turns = 0
        for ring in rings:
            x, y = (np.append(ring, ring[:1], axis=0) - place).T
            turns += round(np.sum(np.diff(np.unwrap(np.arctan2(y, x)))) / (2 * np.pi))
        assert turns == land, at


# --- what is drawn -------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error::UserWarning")
def test_a_node_without_coordinates_is_left_out():
    pytest.importorskip("matplotlib")
    graph = network(["$a", "b$", "名"], [(0, 1), (1, 2)], [(0, 0), (1, 2), (np.nan, np.nan)])
    file = io.BytesIO()
    draw(file, np.array([[0, 1, 2.0], [np.inf, 0, 1], [np.inf, np.inf, 0]]), graph, path=[0, 1, 2])
    assert file.getvalue().startswith(b"\x89PNG")
    written = texts(page(graph, [0, 1, 2]))
    assert "without coordinates, so not drawn: 名" in written
    assert {"$a", "b$"} <= set(written)
    assert "名" not in written


def test_all_coordinates_missing_are_no_coordinates():
    graph = network("abc", [(0, 1), (1, 2)], np.full((3, 2), np.nan))
    view = view_of(graph, [0, 1, 2])
    assert not np.isnan(view.places).any()
    assert not view.notes


def boxes_of_labels(made):
    axes = made.axes[0]
    return {t.get_text(): t.get_window_extent() for t in axes.texts}


def crowded(k=30):
    at = np.random.default_rng(k).normal((10, 50), 0.4, size=(k, 2))
    return network(
        [f"a rather long name {i}" for i in range(k)], list(itertools.pairwise(range(k))), at,
        geographic=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("graph", "path"),
    [
        (crowded(), list(range(14))),
        (crowded(12), list(range(12))),
        (cities(*CITIES), list(range(len(CITIES)))),
        (network([f"node {k}" for k in range(25)], [(0, k) for k in range(1, 25)]), [3, 0, 7]),
        (network("abcde", [(0, 1), (1, 2), (2, 3)], [(0, 0)] * 5), [0, 1, 2, 3]),
    ],
)
def test_labels_do_not_touch(graph, path):
    boxes = boxes_of_labels(page(graph, path))
    assert {graph.nodes[path[0]], graph.nodes[path[-1]]} <= set(boxes)
    for a, b in itertools.combinations(boxes.values(), 2):
        assert not a.overlaps(b)


def test_labels_are_on_the_picture():
    made = page(crowded(), list(range(14)), title="A title that is much too long " * 5)
    for box in boxes_of_labels(made).values():
        assert made.bbox.x0 <= box.x0 < box.x1 <= made.bbox.x1
    title = next(t for t in made.texts if t.get_text().startswith("A title"))
    assert title.get_window_extent().x1 <= made.bbox.x1


def test_more_edges_are_fainter_and_thinner():
    pytest.importorskip("matplotlib")
    seen = []
    for n in (10, 100, 1000):
        edges = np.random.default_rng(n).integers(0, n, (20 * n, 2))
        graph = network(range(n), edges, np.random.default_rng(n).random((n, 2)))
        lines = page(graph).axes[0].collections[0]
        seen.append((lines.get_alpha(), lines.get_linewidth()[0]))
    assert seen == sorted(seen, reverse=True)
    assert seen[0][0] > seen[2][0]
    assert seen[0][1] > seen[2][1]


def test_both_directions_are_drawn_once():
    graph = network("abc", [(0, 1), (1, 0), (0, 1), (1, 2), (2, 2)])
    assert len(page(graph).axes[0].collections[0].get_segments()) == 2


def test_of_very_many_edges_a_sample_is_drawn_and_said(monkeypatch):
    monkeypatch.setattr("semiring_mm.plot.network._MOST_EDGES", 50)
    edges = list(itertools.combinations(range(20), 2))
    made = page(network(range(20), edges, rng.random((20, 2))))
    assert len(made.axes[0].collections[0].get_segments()) == 50
    assert any("50 of 190 edges" in text for text in texts(made))


def test_the_map_alone_unless_more_is_asked_for():
    graph = cities("Berlin", "Munich", "Hamburg")
    assert len(page(graph).axes) == 1
    assert len(page(graph, what=["histogram"]).axes) == 1
    result = np.arange(9.0).reshape(3, 3)
    made = page(graph, what=["histogram", "matrix", "map"], result=result)
    assert len(made.axes) == 4  # with the colour bar
    assert len(page(graph, what=["matrix"], result=result >= 0).axes) == 1  # one value: without


@pytest.mark.parametrize("what", ["map", [], ["map", "chart"]])
def test_what_is_checked(what):
    graph = network("ab", [(0, 1)])
    with pytest.raises(ValueError, match="what: expected a list of some of map, histogram, matrix"):
        draw(io.BytesIO(), np.zeros((2, 2)), graph, what=what)


def test_the_average_has_the_digits_of_the_summary():
    pytest.importorskip("matplotlib")
    result = np.array([[0, 1.25, 7.5], [np.inf, 0, 10 / 3], [2, np.inf, 0]])
    made = page(network("abc", [], unit="km"), result=result, what=["histogram"])
    assert "average 3.5208 km" in texts(made)


def test_a_graph_without_nodes_is_refused():
    with pytest.raises(ValueError, match="no nodes"):
        draw(io.BytesIO(), np.zeros((0, 0)), network("", []))


# --- graphs without coordinates ------------------------------------------------------------------


def grid(side):
    n, row, col = metrics.grid(side)
    return network([str(i) for i in range(n)], np.stack([col, row], 1))


def test_a_layout_shows_distances():
    graph = grid(6)
    places, _ = layout(graph, [])
    hops = sm.apsp(graph)
    apart = np.linalg.norm(places[:, None] - places, axis=2)
    pairs = ~np.eye(36, dtype=bool)
    assert np.corrcoef(hops[pairs], apart[pairs])[0, 1] > 0.95
    assert apart[pairs].min() > 0.5


def test_a_path_runs_from_left_to_right():
    places, path = layout(grid(5), [4, 3, 2, 1, 0, 5, 10, 15, 20])
    ends = places[[path[0], path[-1]]]
    assert ends[0, 0] < ends[1, 0]
    assert_allclose(ends[0, 1], ends[1, 1], atol=1e-9)


def test_of_a_large_graph_the_path_and_its_neighbours_are_shown():
    graph = grid(40)
    path = list(range(0, 40))
    nodes = neighbourhood(graph, path)
    assert set(path) < set(nodes.tolist())
    assert nodes.max() < 40 * 5  # the rows next to the path's
    made = page(graph, path)
    assert any(f"{len(nodes):,} of 1,600 nodes" in text for text in texts(made))


@pytest.mark.parametrize(
    ("n", "edges", "path"),
    [
        (1, [], []),
        (2, [], []),
        (2, [(0, 1)], [0, 1]),
        (3, [(0, 0)], []),
        (5, [(0, 1), (2, 3)], [0, 1]),
        (40, [(0, k) for k in range(1, 40)], [3, 0, 5]),
        (500, [(k, k + 1) for k in range(499)], list(range(500))),
        (150, list(itertools.combinations(range(150), 2)), [0, 1]),
    ],
)
def test_layouts_of_odd_graphs(n, edges, path):
    graph = network([f"node {k}" for k in range(n)], edges)
    page(graph, path)
    places, shown = layout(graph, path)
    there = ~np.isnan(places[:, 0])
    assert there[shown].all()
    assert len(np.unique(places[there].round(6), axis=0)) == np.count_nonzero(there)
    if path:
        assert [shown[0], shown[-1]] == [path[0], path[-1]]
    assert isinstance(view_of(graph, path).projection, Plane)


# --- on the command line -------------------------------------------------------------------------

EXAMPLE = [EXAMPLES / "routes.csv", "--nodes", EXAMPLES / "airports.csv", "--undirected"]


@pytest.fixture
def command(monkeypatch, tmp_path, capsys):
    """Run the command in an empty folder; gives what it prints and what is drawn, with texts."""
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    drawn = {}

    def spy(file, result, graph, *, path, value, missing, title, what):
        with style():
            made = figure(result, graph, path, value, missing, title, what)
            made.savefig(file)
        drawn.update(path=list(path), result=result, texts=texts(made))

    monkeypatch.setattr("semiring_mm.cli.report.draw", spy)

    def run(*arguments):
        assert cli.main(["apsp", *map(str, arguments), "--plot", "f.png", "--force"]) == 0
        return capsys.readouterr().out, drawn

    return run


def test_totals_agree_in_title_table_and_picture(command):
    ends = ("--from", "IPC", "--to", "LYR", "--summary", "--plot-what", "map,histogram,matrix")
    out, drawn = command(*EXAMPLE, *ends)
    assert "average    9,463.2 km" in out.replace("average  9", "average    9")
    assert "average 9,463.2 km" in drawn["texts"]
    title = out.splitlines()[0]
    assert title in drawn["texts"]
    assert out.splitlines()[7].split()[-1] in title.split()  # the last of the running totals


@pytest.mark.parametrize("directed", ["--directed", "--undirected"])
def test_a_path_without_coordinates_is_drawn(command, tmp_path, directed):
    (tmp_path / "edges.csv").write_text("from,to,minutes\na,b,1\nb,c,2\nc,d,1\na,d,9\n")
    for ends in ((), ("--from", "a", "--to", "d")):
        _, drawn = command("edges.csv", directed, "--weight", "minutes", *ends)
        assert drawn["path"] == [0, 1, 2, 3]
        assert {"a", "b", "c", "d"} <= set(drawn["texts"])


def test_of_reachability_no_path_is_the_worst(command):
    _, drawn = command(*EXAMPLE, "--semiring", "lor_land", "--plot-what", "map,matrix")
    assert drawn["path"] == []
    assert "routes.csv: reachability" in drawn["texts"]


def test_a_map_of_one_path_needs_no_matrix(command):
    _, drawn = command(*EXAMPLE, "--from", "AKL", "--to", "KEF")
    assert drawn["result"].shape == (1, 85)


def test_one_missing_coordinate_is_harmless(command, tmp_path):
    (tmp_path / "edges.csv").write_text("from,to,weight\nBER,MUC,1\nMUC,XXX,2\nBER,HAM,3\n")
    (tmp_path / "nodes.csv").write_text(
        "id,latitude,longitude\nBER,52.4,13.5\nMUC,48.4,11.8\nHAM,53.6,10\nXXX,,\n"
    )
    _, drawn = command("edges.csv", "--nodes", "nodes.csv", "--from", "BER", "--to", "XXX")
    assert any("without coordinates, so not drawn: XXX" in text for text in drawn["texts"])
    assert {"BER", "MUC"} <= set(drawn["texts"])
