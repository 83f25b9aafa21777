"""The command line over large sparse graphs: prepare, table, stats, and a pair of a million."""

import csv
import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from metrics import grid
from numpy.testing import assert_allclose, assert_array_equal

import semiring_mm as sm
from semiring_mm.cli import compute, table
from semiring_mm.files import Graph, read_graph
from semiring_mm.gpu import device
from semiring_mm.graphs import statistics
from semiring_mm.plot.draw import draw_statistics, statistics_figure, style
from semiring_mm.plot.network import view_of

ROOT = Path(__file__).parents[2]
ROUTES, AIRPORTS = (str(ROOT / "examples" / name) for name in ("routes.csv", "airports.csv"))
EXAMPLE = [ROUTES, "--nodes", AIRPORTS, "--undirected"]
EDGES = "from,to,km\nA,B,4\nA,B,3\nB,C,0\nC,A,5\nC,C,2\nD,A,1\nB,D_2,2.5\n"


@pytest.fixture
def run(run):
    """The command line, in a folder with a graph."""
    Path("g.csv").write_text(EDGES)
    return run


@pytest.fixture(scope="module")
def distances():
    """All pairs of the small graph."""
    inf = np.inf
    weights = [[0, 3, inf, inf, inf], [inf, 0, 0, inf, 2.5], [5, inf, 0, inf, inf],
               [1, inf, inf, 0, inf], [inf, inf, inf, inf, 0]]  # fmt: skip
    return "A B C D D_2".split(), sm.apsp(np.array(weights))


@pytest.fixture(scope="module")
def example():
    graph = read_graph(ROUTES, nodes=AIRPORTS, directed=False)
    return graph.nodes, np.asarray(sm.apsp(graph))


# --- a pair of very many nodes -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("semiring", "first"),
    [
        ("shortest", "1 → 30000: 29,999 in 29999 legs"),
        ("widest", "1 → 30000: 1 in 29999 legs"),
        ("reliable", "1 → 30000: 1 in 29999 legs"),
        ("reachability", "1 → 30000 in 29999 legs"),
    ],
)
def test_a_pair_of_many_nodes_needs_no_matrix(run, semiring, first):
    """That of all pairs would take 7 GB, and is refused."""
    n = 30_000
    arcs = "".join(f"a {k} {k + 1} 1\n" for k in range(1, n))
    Path("path.gr").write_text(f"p sp {n} {n - 1}\n{arcs}")
    words = ["apsp", "path.gr", "--semiring", semiring, "--from", 1, "--to", n]
    code, out, err = run(*words)
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == first
    assert run(*words, "--summary")[0] == 2


def test_pairs_of_many_nodes_need_some_rows_at_a_time(run, monkeypatch):
    words = ["apsp", *EXAMPLE, "--pairs", "SYD,LHR;IPC,LYR;SYD,IPC", "--quiet"]
    expected = run(*words)[1]
    asked, plain = [], sm.apsp
    monkeypatch.setattr(sm, "apsp", lambda g, **x: asked.append(x["sources"]) or plain(g, **x))
    monkeypatch.setattr(compute, "_ROWS", 0)
    assert run(*words) == (0, expected, "")
    assert len(asked) == len({i for (i,) in asked}) == 2


def test_the_legs_of_a_path(run):
    """The best of parallel edges, of either direction where edges lead both ways."""
    Path("h.csv").write_text("from,to,km\nB,A,4\nA,B,3\nB,C,2\nC,B,7\n")
    for words, legs in ((["--undirected"], [3, 2]), ([], [4, 7])):
        ends = ["A", "C"] if words else ["C", "A"]
        out = run("apsp", "h.csv", *words, "--from", ends[0], "--to", ends[1], "--json")[1]
        assert sorted(leg["weight"] for leg in json.loads(out)["path"]["legs"]) == sorted(legs)


# --- prepare -----------------------------------------------------------------------------------


def test_prepare(run, distances):
    code, out, err = run("prepare", "g.csv", "-o", "net.npz")
    assert (code, err) == (0, "semiring-mm: wrote net.npz\n")
    *lines, last = out.splitlines()
    assert lines == [
        "g.csv: prepared for shortest paths",
        "  nodes       5",
        "  edges       7, directed (the default of an edge list)",
        "  weight      km (column 3, summed)",
        "  fill edges  5",
        "  depth       4",
        "  core        0 nodes",
    ]
    assert last.startswith("  time        ")
    net = sm.load("net.npz")
    assert (net.nodes, net.dtype, net.directed) == (distances[0], np.float64, True)
    assert_array_equal(net.distances(), distances[1])
    found = run.json("prepare", "g.csv", "-o", "net.npz", "--force", "--quiet")
    assert found.pop("seconds") > 0
    assert found == {
        "graph": ["g.csv"], "semiring": "min_plus", "directed": True, "nodes": 5, "edges": 7,
        "direction_source": "the default of an edge list", "weight_source": "km (column 3)",
        "weights": "summed", "unit": "km", "fill_edges": 5, "core": 0, "depth": 4, "warnings": [],
        "notes": [], "written": ["net.npz"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "semiring", "dtype", "value"),
    [
        (["--unweighted", "--undirected"], "min_plus", "float64", 2),
        (["--weight", "km", "--dtype", "float32"], "min_plus", "float32", np.inf),
        (["--unweighted", "--dtype", "int32"], "min_plus", "int32", np.iinfo("i4").max),
        (["--semiring", "widest", "--undirected"], "max_min", "float64", 3),
        (["--semiring", "reachability"], "lor_land", "bool", False),
        (["--order", "minimum_degree"], "min_plus", "float64", np.inf),
    ],
)
def test_how_a_graph_is_prepared(run, options, semiring, dtype, value):
    """The value is that of the best path from A to D, to which no edge leads but backwards."""
    assert run("prepare", "g.csv", "-o", "net.npz", *options)[0] == 0
    net = sm.load("net.npz")
    assert (net.semiring.name, net.dtype) == (semiring, dtype)
    value = {2: 1, 3: 1}.get(value, value)
    assert net.distance("A", "D") == value


# --- table -------------------------------------------------------------------------------------


def read_table(path):
    if path.endswith(".parquet"):
        parquet = pytest.importorskip("pyarrow.parquet")
        rows = parquet.read_table(path).to_pylist()
        return [list(rows[0]), *(list(row.values()) for row in rows)]
    if path.endswith(".npy"):
        start, end = (Path(f"T.{x}.txt").read_text().splitlines() for x in ("from", "to"))
        values = zip(start, np.load(path).tolist(), strict=True)
        return [["from", *end], *([x, *row] for x, row in values)]
    with open(path, newline="") as file:
        return list(csv.reader(file))


@pytest.mark.parametrize("entries", [1, 1 << 24])
@pytest.mark.parametrize("name", ["T.csv", "T.parquet", "T.npy"])
def test_a_table_between_chosen_nodes(run, example, monkeypatch, name, entries):
    """Of a graph, and of what was prepared of it; some rows at a time, or all."""
    if name == "T.parquet":
        pytest.importorskip("pyarrow")
    monkeypatch.setattr(table, "_ENTRIES", entries)
    monkeypatch.setattr(table, "_ROWS", 1)
    assert run("prepare", *EXAMPLE, "-o", "net.npz")[0] == 0
    Path("a.csv").write_text("code,note\nIPC,far\nLYR,north\nIPC,again\n")
    Path("b.csv").write_text("SYD\n\nLHR\n")
    nodes, d = example
    at = {label: k for k, label in enumerate(nodes)}
    start, end = ["IPC", "LYR", "IPC"], ["SYD", "LHR"]
    words = ["--from-file", "a.csv", "--to-file", "b.csv", "-o", name, "--force"]
    for graph in (["net.npz"], EXAMPLE):
        code, out, err = run("table", *graph, *words)
        assert (code, out) == (0, "")
        assert f"wrote {name} (3 × 2, float64)" in err
        header, *rows = read_table(name)
        assert header == ["from", *end]
        assert [row[0] for row in rows] == start
        values = [[float(x) for x in row[1:]] for row in rows]
        wanted = d[[[at[x]] for x in start], [at[x] for x in end]]
        assert_allclose(values, wanted, rtol=1e-14)  # sums have other brackets
    left = {"a.csv", "b.csv", "g.csv", "net.npz", name}
    left |= {"T.from.txt", "T.to.txt"} if name == "T.npy" else set()
    assert {*os.listdir()} == left


def test_a_table_on_the_terminal(run):
    """What is left out stands for all nodes; what is not read from a file is named."""
    code, out, err = run("table", "g.csv", "--from", "D", "--from", "A")
    assert (code, out) == (0, "from,A,B,C,D,D_2\nD,1,4,4,0,6.5\nA,0,3,3,inf,5.5\n")
    assert err == (
        "semiring-mm: weight: km (column 3, summed); edges: 7, directed (the default of an edge "
        "list)\n"
    )
    assert run("table", "g.csv", "--to", "D_2", "--quiet")[1:] == (
        "from,D_2\nA,5.5\nB,2.5\nC,10.5\nD,6.5\nD_2,0\n", "",
    )  # fmt: skip
    words = ["table", "g.csv", "--semiring", "reachability", "--from", "A", "--quiet"]
    assert run(*words)[1] == "from,A,B,C,D,D_2\nA,1,1,1,0,1\n"


def test_headers_of_files_of_nodes(run):
    """A first line without a node is a header, which is said unless its name is a usual one."""
    table = ["table", "g.csv", "--to", "A", "--from-file", "d.csv"]
    note = "semiring-mm: note: d.csv: line 1 is taken for a header: depot\n"
    for text, noted in (
        ("depot,size\nD,4\nA,2\n", True), ("depot\nD\nA\n", True), ("size,node\n4,D\n2,A\n", False),
        ("D\nA\n", False),
    ):  # fmt: skip
        Path("d.csv").write_text(text)
        code, out, err = run(*table)
        assert (code, out) == (0, "from,A\nD,1\nA,0\n")
        assert (note in err) == noted
    assert "D" in run("stats", "g.csv", "--sources", "d.csv")[1]
    for first in ("D_3", "17", "E"):  # like a node, a number, and no other line
        Path("d.csv").write_text(f"{first}\nD\n" if first != "E" else "E\n")
        assert f"d.csv:1: no node '{first}'" in run.refused(*table)
    for header, noted in (("origin,destination", False), ("home,work", True)):
        Path("p.csv").write_text(f"{header}\nD,A\n")
        code, out, err = run("apsp", "g.csv", "--pairs", "p.csv")
        assert (code, out, "header: home, work" in err) == (0, "from,to,distance\nD,A,1\n", noted)
    Path("p.csv").write_text("A,B\nD,A\n")
    assert run("apsp", "g.csv", "--pairs", "p.csv")[1].endswith("A,B,3\nD,A,1\n")


def test_a_table_as_json(run):
    run("prepare", "g.csv", "-o", "net.npz", "--dtype", "int32", "--unweighted")
    words = ["--from", "D", "--from", "A", "--to", "D", "--to", "C"]
    found = run.json("table", "net.npz", *words)
    assert [found[x] for x in ("from", "to", "values", "written")] == [
        ["D", "A"], ["D", "C"], [[0, 3], [None, 2]], [],
    ]  # fmt: skip
    assert (found["semiring"], found["edges"], found["notes"]) == ("min_plus", 7, [])
    assert run("table", "net.npz", *words, "--quiet")[1] == "from,D,C\nD,0,3\nA,inf,2\n"
    found = run.json("table", "g.csv", *words, "-o", "T.csv")
    assert (found["written"], "values" in found) == (["T.csv"], False)


# --- a prepared graph answers --------------------------------------------------------------------


def test_paths_of_a_prepared_graph(run, monkeypatch):
    """The same words as for the file, without a search of it."""
    Path("g.csv").write_text(EDGES.replace("km", "cost"))
    assert run("prepare", "g.csv", "-o", "net.npz")[0] == 0
    words = [
        ["--from", "D", "--to", "D_2"], ["--from", "D", "--to", "D_2", "--json"],
        ["--pairs", "D,D_2;A,A;A,D"], ["--pairs", "D,D_2;A,A;A,D", "--routes"],
        ["--from", "D", "--to", "C", "--pairs", "A,B", "--routes"],
    ]  # fmt: skip

    def plain(graph, *options):
        code, out, _ = run("apsp", graph, *options)
        if "--json" not in options:
            return code, [x for x in out.splitlines() if not x.startswith(("weight", "edges"))]
        return code, json.loads(out)["path"]

    expected = [plain("g.csv", *x) for x in words]
    with monkeypatch.context() as patch:
        for name in ("apsp", "closure", "adjacency"):
            patch.setattr(sm, name, None)
        assert [plain("net.npz", *x) for x in words] == expected
    assert run("apsp", "net.npz", "--from", "A", "--to", "D")[0] == 1
    known, new = ("weight", "edges", "time"), []
    for graph in ("g.csv", "net.npz"):
        lines = run("apsp", graph)[1].splitlines()[1:]
        new.append([x for x in lines if not x.strip().startswith(known)])
    assert new[0] == new[1]


@pytest.mark.parametrize("rows", [0, 1 << 30])
def test_routes_of_pairs(run, monkeypatch, rows):
    """The nodes of each path, also of some rows at a time."""
    monkeypatch.setattr(compute, "_ROWS", rows)
    words = ["apsp", "g.csv", "--pairs", "D,D_2;A,A;A,D", "--routes"]
    text = "from,to,distance,route\nD,D_2,6.5,D;A;B;D_2\nA,A,0,A\nA,D,inf,\n"
    assert run(*words, "--quiet") == (0, text, "")
    found = run.json(*words)["pairs"]
    assert [x["path"] for x in found] == [["D", "A", "B", "D_2"], ["A"], []]
    for name in ("R.csv", "R.parquet"):
        if name == "R.parquet":
            pytest.importorskip("pyarrow")
        assert run(*words, "-o", name)[0] == 0
        assert [row[3] for row in read_table(name)] == ["route", "D;A;B;D_2", "A", ""]
    Path("h.csv").write_text('from,to,cost\n"x;1","y, 2",3\n')
    Path("p.csv").write_text('"x;1","y, 2"\n')
    out = run("apsp", "h.csv", "--pairs", "p.csv", "--routes", "--quiet")[1]
    (cell,) = [row[3] for row in csv.reader(out.splitlines()[1:])]
    assert next(csv.reader([cell], delimiter=";")) == ["x;1", "y, 2"]


@pytest.mark.parametrize("options", [[], ["--undirected"], ["--semiring", "widest"]])
def test_new_weights_of_a_prepared_graph(run, options):
    """From a column of another file of the edges, in any order."""
    Path("g.csv").write_text("from,to,km\nA,B,3\nB,C,2\nC,A,5\n")
    Path("r.csv").write_text("u,v,km,rush\nA,B,1,6\nC,A,1,4\nB,C,1,2.5\n")
    assert run("prepare", "g.csv", "-o", "net.npz", *options)[0] == 0
    asked = [["table", "--from", "C"], ["apsp", "--from", "B", "--to", "A"], ["apsp"]]
    if "widest" not in options:
        asked += [
            ["stats", "--what", "mean,closeness"],
            ["nearest", "--facilities", "B,C", "-k", 2],
        ]
    for command, *words in asked:
        new = run(command, "net.npz", *words, "--weights", "r.csv", "--weight", "rush")
        plain = run(command, "r.csv", "--weight", "rush", *words, *options)
        assert new[0] == plain[0] == 0
        assert "rush (column 4) of r.csv (" in "".join(new[1:])
        known = ("weight", "edges", "time", "net.npz:", "r.csv:")
        results = [
            [x for x in y[1].splitlines() if not x.strip().startswith(known)] for y in (new, plain)
        ]
        assert results[0] == results[1] != []
    assert sm.load("net.npz").distance("A", "B") == 3  # the file is as it was
    net = sm.prepare("g.csv", weight="km", source="from", target="to")
    net.customize(read_graph("r.csv", weight="rush"))
    assert net.distance("A", "B") == 6


# --- nearest -------------------------------------------------------------------------------------


def test_nearest(run):
    run("prepare", "g.csv", "-o", "net.npz")
    Path("f.csv").write_text("shop,size\nC,2\nD,1\n")
    rows = "A,1,C,3\nB,1,C,0\nC,1,C,0\nD,1,D,0\nD,2,C,4\n"
    for graph in ("g.csv", "net.npz"):
        code, out, err = run("nearest", graph, "--facilities", "f.csv", "-k", 2)
        assert (code, out) == (0, f"node,rank,facility,distance\n{rows}")
        assert "note: 1 nodes have no path to a facility and are left out" in err
        assert "line 1 is taken for a header: shop" in err
    out = run("nearest", "net.npz", "--facilities", "C,D", "--outward", "--quiet")[1]
    assert out.splitlines()[1:] == ["A,1,D,1", "B,1,D,4", "C,1,C,0", "D,1,D,0", "D_2,1,D,6.5"]
    found = run.json("nearest", "g.csv", "--facilities", "C")
    assert found["nearest"][0] == {"node": "A", "rank": 1, "facility": "C", "distance": 3}
    code, out, err = run("nearest", "g.csv", "--facilities", "C", "-o", "N.csv")
    assert (code, out) == (0, "")
    assert err.endswith("wrote N.csv (4 rows)\n")
    assert read_table("N.csv")[1] == ["A", "1", "C", "3"]


# --- flows ---------------------------------------------------------------------------------------

DEMAND = "origin,destination,trips\nA,B,10\nA,D_2,5\nD_2,A,2\nB,B,9\nD_2,D_2,1\n"


def test_flows(run):
    Path("d.csv").write_text(DEMAND)
    run("prepare", "g.csv", "-o", "net.npz")
    rows = ["A,B,4,0", "A,B,3,15", "B,C,0,0", "C,A,5,0", "C,C,2,0", "D,A,1,0", "B,D_2,2.5,5"]
    for graph in ("g.csv", "net.npz"):
        code, out, err = run("flows", graph, "--demand", "d.csv")
        assert (code, out.splitlines()) == (0, ["from,to,weight,load", *rows])
        assert "note: 2 trips have no path and are left out" in err
    out = run("flows", "net.npz", "--demand", "d.csv", "--explain")[1]
    assert "a tree 4 deep" in out
    out = run("flows", "g.csv", "--demand", "d.csv", "--explain")[1]
    assert "2 sources, all shortest paths" in out
    assert out.count("taken") == 1
    found = run.json("flows", "g.csv", "--demand", "d.csv", "--ties", "one")
    assert (found["trips"], found["without_path"], found["distance"]) == (17, 2, 57.5)
    assert found["flows"][1] == {"from": "A", "to": "B", "weight": 3, "load": 15}
    code, out, err = run("flows", "g.csv", "--demand", "d.csv", "-o", "F.csv")
    assert (code, out.splitlines()) == (0, [
        "g.csv: flows",
        "  edges         7, directed (the default of an edge list)",
        "  trips         17",
        "  distance      57.500 km, 3.8333 km a trip",
        "  largest load  15, A → B",
    ])  # fmt: skip
    assert err.endswith("wrote F.csv (7 rows)\n")
    assert [",".join(row) for row in read_table("F.csv")[1:]] == rows


def test_flows_of_other_files(run):
    """By the number of a column, and by the names of nodes; undirected edges that tie."""
    Path("h.csv").write_text("from,to\na,b\na,c\nb,d\nc,d\n")
    Path("names.csv").write_text("id,name\na,North\nb,East\nc,West\nd,South\n")
    Path("d.csv").write_text("South,North,6\nd,a,4\n")
    given = ["flows", "h.csv", "--undirected", "--nodes", "names.csv", "--demand", "d.csv"]
    loads = [row["load"] for row in run.json(*given, "--trips", "3")["flows"]]
    assert loads == [5, 5, 5, 5]
    loads = [row["load"] for row in run.json(*given, "--trips", "3", "--ties", "one")["flows"]]
    assert sorted(loads) == [0, 0, 10, 10]
    Path("d_trips.tntp").write_text("<NUMBER OF ZONES> 2\n<END OF METADATA>\nOrigin 2\n1 : 3.5;\n")
    Path("i.csv").write_text("2,9,1\n9,1,1\n2,1,3\n")
    loads = run.json("flows", "i.csv", "--demand", "d_trips.tntp")["flows"]
    assert [row["load"] for row in loads] == [3.5, 3.5, 0]


# --- stats -------------------------------------------------------------------------------------


def test_statistics(run):
    """C is the farthest from D_2, and no node reaches D."""
    code, out, err = run("stats", "g.csv", "--within", "3,6")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[:10] == [
        "g.csv: distances",
        "  nodes        5",
        "  edges        7, directed (the default of an edge list)",
        "  weight       km (column 3, summed)",
        "  reachable    65 % of 20 ordered pairs, not strongly connected",
        "  diameter     10.500 km, C → D_2",
        "  radius       6.5000 km, D",
        "  average      4.4615 km",
        "  closeness    at most 0.32143, C",
        "  harmonic     at most 1.4, A",
    ]
    assert lines[10:12] == [
        "  within 3 km  2 nodes on average, at most 3, A",
        "  within 6 km  3 nodes on average, at most 4, A",
    ]
    assert lines[12].startswith("  time         ")
    assert [line.split("%")[0].split() for line in lines[13:15]] == [
        ["0", "km", "–", "1", "km", "7.7"], ["1", "km", "–", "2", "km", "7.7"],
    ]  # fmt: skip


@pytest.mark.parametrize("prepared", [False, True])
def test_statistics_as_json(run, distances, prepared):
    """The numbers of the whole matrix, of a graph or of what was prepared of it."""
    if prepared:
        assert run("prepare", "g.csv", "-o", "net.npz", "--quiet")[0] == 0
    name = "net.npz" if prepared else "g.csv"
    edges, words = [0, 1, 5, 20], ["--bins", "0,1,5,20", "--within", "3", "--json"]
    found = json.loads(run("stats", name, *words)[1])
    d = distances[1]
    off = d[~np.eye(5, dtype=bool) & np.isfinite(d)]
    assert found.pop("seconds") > 0
    assert found.pop("method")
    assert found.pop("average") == pytest.approx(off.mean())
    assert found.pop("closeness") == {"value": pytest.approx(3 / 7 * 3 / 4), "node": "C"}
    assert found.pop("harmonic") == {"value": pytest.approx(1.4), "node": "A"}
    origin = "of net.npz" if prepared else "the default of an edge list"
    assert found == {
        "graph": [name], "semiring": "min_plus", "weights": "summed", "nodes": 5, "edges": 7,
        "directed": True, "direction_source": origin,
        "weight_source": "that of net.npz" if prepared else "km (column 3)",
        "unit": None if prepared else "km", "pairs": 20, "reachable": 13,
        "diameter": {"value": 10.5, "from": "C", "to": "D_2"},
        "radius": {"value": 6.5, "node": "D"},
        "within": [{"radius": 3, "mean": 2.0, "value": 3, "node": "A"}],
        "histogram": {"counts": np.histogram(off, edges)[0].tolist(), "edges": edges},
        "warnings": [], "notes": [], "written": [],
    }  # fmt: skip


@pytest.mark.parametrize("name", ["S.csv", "S.parquet", "S.npz"])
def test_a_row_for_each_node(run, example, name):
    """With what is within a distance: nodes, or a column of their table."""
    if name == "S.parquet":
        pytest.importorskip("pyarrow")
    Path("towns.csv").write_text(
        "iata,people\n" + "".join(f"{x},{k}\n" for k, x in enumerate(example[0]))
    )
    # lengths are great circles only where the table has coordinates
    assert run("prepare", *EXAMPLE, "-o", "net.npz")[0] == 0
    words = ["--nodes", "towns.csv", "--within", "9000", "--attribute", "people", "-o", name]
    code, _, err = run("stats", "net.npz", *words)
    assert (code, err) == (0, f"semiring-mm: wrote {name}\n")
    nodes, d = example
    if name == "S.npz":
        with np.load(name) as file:
            found = dict(file)
        assert found["histogram_counts"].sum() == 85 * 84
        assert {*found["ends"].tolist()} == {nodes[k] for k in divmod(int(d.argmax()), 85)}
        assert_allclose(found["diameter"], d.max())
    else:
        header, *rows = read_table(name)
        columns = zip(*rows, strict=True)
        found = {x: np.array(y) for x, y in zip(header, columns, strict=True)}
    assert found["node"].tolist() == nodes
    found = {x: y.astype(float) for x, y in found.items() if x not in ("node", "ends")}
    assert_allclose(found["eccentricity"], d.max(1))
    assert_allclose(found["mean"], d.sum(1) / 84)
    assert_allclose(found["closeness"], 84 / d.sum(0))
    assert_allclose(found["within 9000"], (d <= 9000) @ np.arange(85))
    off = np.where(np.eye(85), np.inf, d)
    assert_allclose(found["harmonic"], (1 / off).sum(0))


def test_where_the_work_is_done(run, monkeypatch):
    """The devices are the library's arguments, and it is their option that an error names."""
    given, plain = [], sm.statistics
    monkeypatch.setattr(
        sm, "statistics",
        lambda g, **x: given.append((x.pop("device"), x.pop("tiles").devices)) or plain(g, **x),
    )  # fmt: skip
    for words in ([], ["--device", "cuda:1"], ["--devices", "all"], ["--devices", "0,2"]):
        assert run("stats", "g.csv", *words)[0] == 0
    assert given == [(None, None), ("cuda:1", None), (None, "all"), (None, [0, 2])]
    monkeypatch.setattr(device, "why_not", lambda: "there is none")
    words = ["table", "g.csv", "--from", "A", "--device", "cuda"]
    assert run(*words) == (2, "", "semiring-mm: error: --device cuda: there is none\n")


def test_statistics_of_some_nodes(run):
    Path("some.csv").write_text("id\nD\nA\n")
    for sources in ("some.csv", "D,A"):
        code, _, _ = run("stats", "g.csv", "--sources", sources, "-o", "S.csv", "--force")
        assert code == 0
        _, *rows = read_table("S.csv")
        assert [row[:3] for row in rows] == [["D", "5", "6.5"], ["A", "4", "5.5"]]
    out = run("stats", "g.csv", "--sources", "D", "--what", "eccentricity,mean")[1]
    assert "  nodes      5, of 1 of them\n" in out
    assert "  reachable  100 % of 4 ordered pairs\n" in out
    assert "closeness" not in out


def test_matrices_and_graphs_without_paths(run):
    np.save("a.npy", np.array([[0, 2, np.inf], [2, 0, np.inf], [np.inf, np.inf, 0]]))
    assert "  diameter   2, 0 → 1\n" in run("stats", "a.npy")[1]
    Path("lone.gr").write_text("p sp 2 0\n")
    code, out, _ = run("stats", "lone.gr", "--within", "1")
    assert code == 0
    assert "  reachable  0 % of 2 ordered pairs, not strongly connected\n" in out
    assert run.json("stats", "lone.gr")["average"] is None


@pytest.mark.parametrize("prepared", [False, True])
def test_what_paths_pass_through(run, prepared):
    """A row for each node, and for each edge in a table of its own; both ways of giving a graph."""
    name = "net.npz" if prepared else "g.csv"
    if prepared:
        assert run("prepare", "g.csv", "-o", "net.npz", "--quiet")[0] == 0
    graph = read_graph("g.csv")
    found = sm.statistics(graph, ["betweenness", "edge_betweenness", "stress"])
    what = ["--what", "betweenness,edge_betweenness,stress"]
    code, out, err = run("stats", name, *what, "-o", "S.csv")
    assert (code, err) == (0, "semiring-mm: wrote S.csv, S.edges.csv\n")
    nodes = np.genfromtxt("S.csv", delimiter=",", names=True, dtype=None, encoding="utf-8")
    edges = np.genfromtxt("S.edges.csv", delimiter=",", names=True, dtype=None, encoding="utf-8")
    assert nodes["node"].tolist() == [*graph.nodes]
    np.testing.assert_allclose(nodes["betweenness"], found.betweenness)
    np.testing.assert_allclose(nodes["stress"], found.stress)
    place = {x: k for k, x in enumerate(graph.nodes)}
    ends = [[place[x] for x in edges[name]] for name in ("source", "target")]
    shape = len(place), len(place)
    np.testing.assert_allclose(  # of parallel edges the sum
        np.bincount(np.ravel_multi_index(ends, shape), edges["edge_betweenness"], 25),
        np.bincount(
            np.ravel_multi_index((graph.row, graph.col), shape), found.edge_betweenness, 25
        ),
    )
    best = graph.nodes[int(np.argmax(found.betweenness))]
    assert f"  betweenness  at most {found.betweenness.max():.5g}, {best}\n" in out
    assert f"  edges        at most {found.edge_betweenness.max():.5g}, " in out
    assert run.json("stats", name, *what[:1], "betweenness")["betweenness"]["node"] == best
    some = ["--what", "edge_betweenness", "--sources", "A", "-o"]
    assert run("stats", name, *some, "one.csv")[2] == "semiring-mm: wrote one.csv\n"
    assert Path("one.csv").read_text().startswith("source,target,edge_betweenness\n")
    assert run("stats", name, *some, "one.npz")[0] == 0
    with np.load("one.npz") as file:
        assert file["edge_betweenness"].sum() < found.edge_betweenness.sum()
        assert file["source"].tolist() == edges["source"].tolist()
    if not prepared:
        out = run("stats", name, *what, "--explain")[1]
        assert "all shortest paths" in out
        assert out.count("taken") == 1
        assert run("stats", name, "--what", "mean,stress", "--explain")[1].count("taken") == 2


def test_extremes_alone(run):
    """By few searches: no statistic of each node."""
    out = run("stats", "g.csv", "--undirected", "--what", "radius")[1]
    assert "  radius  " in out
    alone, usual = (run.json("stats", "g.csv", "--undirected", *what)
                    for what in (["--what", "center,diameter"], []))  # fmt: skip
    assert alone["radius"] == usual["radius"]
    assert alone["diameter"]["value"] == usual["diameter"]["value"]
    assert alone["histogram"] is None


# --- stats: runs that are ended ----------------------------------------------------------------


@pytest.fixture
def ended(monkeypatch):
    """The state is written after each batch; the run of a graph is ended by Ctrl-C once."""
    monkeypatch.setattr("semiring_mm.graphs.statistics._EVERY", 0.0)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    plain = statistics._State.keep

    def keep(self, *given, **last):
        plain(self, *given, **last)
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as once:
        once.setattr(statistics._State, "keep", keep)
        yield once
    signal.signal(signal.SIGINT, before)


def test_a_run_that_was_ended_goes_on(run, ended):
    words = ["stats", "g.csv", "-o", "S.csv", "--quiet"]
    code, out, err = run(*words, "--checkpoint")
    assert (code, out) == (130, "")
    assert err == ("semiring-mm: interrupted: --resume goes on with what is in S.csv.part.npz\n")
    assert sorted(os.listdir()) == ["S.csv.part.npz", "g.csv"]
    assert "--resume goes on with it, or remove it" in run.refused(*words, "--checkpoint")
    Path("h.csv").write_text("A,B,1\n")
    assert "is the state of other work" in run.refused("stats", "h.csv", "-o", "S.csv", "--resume")
    ended.undo()
    assert run(*words, "--resume")[0] == 0
    assert sorted(os.listdir()) == ["S.csv", "S.csv.done.json", "g.csv", "h.csv"]
    resumed = Path("S.csv").read_text()
    assert run("stats", "g.csv", "-o", "S.csv", "--resume") == (
        0, "", "semiring-mm: note: nothing to do: S.csv is finished\n",
    )  # fmt: skip
    assert "S.csv is the result of a run with bins = 50, and this one" in run.refused(
        *words, "--bins", "7", "--resume"
    )
    assert "is the result of a run on another graph" in run.refused(
        "stats", "h.csv", "-o", "S.csv", "--resume"
    )
    assert run(*words, "--force")[0] == 0
    assert Path("S.csv").read_text() == resumed


# --- stats: pictures ---------------------------------------------------------------------------


@pytest.mark.parametrize("geographic", [False, True])
def test_the_network_has_the_colours_of_closeness(geographic):
    """All edges, whatever their number, as some long lines; those nearest to all on top."""
    pytest.importorskip("matplotlib")
    side = 52
    places = np.stack(np.divmod(np.arange(side**2), side), axis=1) / side + 10.0
    n, row, col = grid(side)
    labels = [str(k) for k in range(n)]
    graph = Graph(labels, row, col, np.ones(len(row)), False, places, geographic=geographic)
    found = sm.statistics(replace(graph, nodes=range(graph.n)), ["closeness", "histogram"])
    with style():
        page = statistics_figure(found, graph, "title")
    panel, network, key = page.axes
    (lines,) = [x for x in network.collections if len(x.get_paths()) > 9]
    points = np.concatenate([path.vertices for path in lines.get_paths()])
    gaps = np.isnan(points[:, 0]).sum()
    assert (gaps, len(points) - gaps) == (len(graph.row), 2 * len(graph.row))
    assert len(lines.get_paths()) < len(graph.row) / 50
    assert lines.get_rasterized()
    middle = view_of(graph, []).places.mean(axis=0)
    away = [np.nanmean(np.hypot(*(path.vertices - middle).T)) for path in lines.get_paths()]
    assert away[0] == max(away)
    assert away[-1] == min(away)
    assert panel.get_ylabel() == "share of pairs"
    assert sum(bar.get_height() for bar in panel.patches) == pytest.approx(100)
    assert "closeness" in [text.get_text() for text in page.texts]
    low, high = key.get_xlim()
    assert found.closeness.min() <= low < high <= found.closeness.max()


@pytest.mark.parametrize("what", ["edge_betweenness", "betweenness", "stress"])
def test_the_network_has_the_colours_of_what_passes(what):
    """Of a ladder the middle has most; edges have their own numbers, both directions together."""
    pytest.importorskip("matplotlib")
    n = 40
    at = np.arange(n)
    graph = Graph(
        [*map(str, at)], np.append(at[:-1], at[1:]), np.append(at[1:], at[:-1]),
        np.ones(2 * n - 2), True, np.stack([at, 0 * at], axis=1) + 1.0,
    )  # fmt: skip
    found = sm.statistics(replace(graph, nodes=range(n)), what)
    with style():
        page = statistics_figure(found, graph, "title")
    network, key = page.axes
    (lines,) = [x for x in network.collections if len(x.get_paths()) > 3]
    last = lines.get_paths()[-1].vertices[:, 0]
    assert abs(np.nanmean(last) - view_of(graph, []).places[:, 0].mean()) < 2
    assert (len(set(lines.get_linewidths())) > 1) == (what == "edge_betweenness")
    assert what.replace("_", " ") in [text.get_text() for text in page.texts]
    numbers = getattr(found, what)
    assert key.get_xlim()[1] <= 2 * numbers.max()


@pytest.mark.parametrize(
    ("n", "words", "axes", "title"),
    [
        (20, [], 3, "closeness and distances"),  # laid out
        (400, [], 1, "distances"),  # the histogram alone
        (20, ["--what", "histogram"], 1, "distances"),
        (20, ["--what", "closeness"], 2, "closeness"),
        (20, ["--sources", "3,4"], 3, "closeness and distances"),
    ],
)
def test_what_is_drawn(run, monkeypatch, n, words, axes, title):
    pytest.importorskip("matplotlib")
    pages = []
    plain = statistics_figure
    caller = draw_statistics.__globals__
    monkeypatch.setitem(
        caller, "statistics_figure", lambda *x: pages.append(plain(*x)) or pages[-1]
    )
    Path("ring.csv").write_text("".join(f"{k},{(k + 1) % n}\n" for k in range(n)))
    code, _, err = run("stats", "ring.csv", "--plot", "s.png", *words)
    assert (code, err.splitlines()[-1]) == (0, "semiring-mm: wrote s.png")
    assert ("note: s.png has no map: more nodes than can be laid out" in err) == (n == 400)
    assert f"ring.csv: {title}" in [text.get_text() for text in pages[0].texts]
    assert Path("s.png").read_bytes().startswith(b"\x89PNG")
    assert len(pages[0].axes) == axes


# --- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["prepare", "g.csv"], "the following arguments are required: -o/--output"),
        (["prepare", "g.csv", "-o", "n.npy"], "--output n.npy: expected a name in .npz"),
        (["prepare", "g.csv", "-o", "net.npz"], "the file exists; --force overwrites it"),
        (["prepare", "net.npz", "-o", "n.npz"], "net.npz is prepared already"),
        (["prepare", "g.csv", "-o", "n.npz", "--dtype", "int32"], "2.5, which int32 does not hold"),
        (
            ["prepare", "g.csv", "-o", "n.npz", "--semiring", "reachability", "--dtype", "int32"],
            "lor_land has results of dtype bool; leave out --dtype",
        ),
        (["apsp", "net.npz", "--dtype", "float32"], "net.npz is prepared, and --dtype is for"),
        (["apsp", "wide.npz", "--max-hops", "2"], "--max-hops and --method are for min_plus, not"),
        (["apsp", "net.npz", "--weight", "km"], "leave it out, or name new weights with --weights"),
        (["apsp", "net.npz", "--weights", "big.csv"], "big.csv: node '0' is not in net.npz"),
        (["apsp", "net.npz", "--weights", "edge.csv"], "the weights are of another graph"),
        (["nearest", "wide.npz", "--facilities", "A"], "wide.npz is over max_min, and distances"),
        (["nearest", "g.csv", "--facilities", "A,Q"], "--facilities: no node 'Q'"),
        (["table", "net.npz"], "say from where or to where: --from A or --from-file a.csv"),
        (["table", "net.npz", "--from-file", "bad.csv"], "bad.csv:4: no node 'Q'"),
        (["table", "net.npz", "--to-file", "short.csv"], "short.csv:3: expected 2 fields, got"),
        (["table", "net.npz", "--to-file", "none.csv"], "none.csv: no nodes in it"),
        (["table", "net.npz", "--to-file", "absent.csv"], "absent.csv: No such file"),
        (["table", "net.npz", "--from", "D2"], "no node 'D2'; did you mean D_2"),
        (["table", "net.npz", "--from", "A", "--from-file", "bad.csv"], "not allowed with"),
        (["table", "net.npz", "--from", "A", "--unweighted"], "net.npz is prepared, and --weight"),
        (
            ["table", "net.npz", "--from", "A", "--order", "auto"],
            "net.npz is prepared, and --order",
        ),
        (["table", "net.npz", "--from", "A", "--nodes", "places.csv"], "node 'B' is not in places"),
        (["table", "net.npz", "--from", "A", "-o", "T.txt"], "expected a name in .csv, .csv.gz"),
        (["table", "net.npz", "--from", "A", "-o", "T.npy"], "T.from.txt, which exists; --force"),
        (
            ["table", "g.csv", "--to", "A", "--to", "A", "-o", "T.parquet"],
            "two would be 'A'; write --output T.csv or T.npy",
        ),
        (["stats", "net.npz", "--plot", "s.bmp"], "--plot s.bmp: expected a name in .png"),
        (["stats", "net.npz", "-o", "S.npy"], "expected a name in .csv, .csv.gz, .parquet, .npz"),
        (["stats", "net.npz", "--what", "median"], "expected some of eccentricity,mean"),
        (["stats", "net.npz", "--bins", "0"], "expected a positive whole number, got '0'"),
        (["stats", "net.npz", "--bins", "1,x"], "expected a number, or several: 5,10, got '1,x'"),
        (["stats", "net.npz", "--bins", "5,1"], "bins: a number of them, or at least two"),
        (["stats", "net.npz", "--within", "near"], "expected a number, or several"),
        (["stats", "net.npz", "--sources", "A,Q"], "--sources: no node 'Q'"),
        (["stats", "net.npz", "--attribute", "x"], "add --nodes FILE and --within R"),
        (
            ["stats", "edge.csv", "--within", "1", "--nodes", "two.csv", "--attribute", "people"],
            "two.csv:3: expected a finite number as people, got 'many'",
        ),
        (["flows", "net.npz"], "the following arguments are required: --demand"),
        (["flows", "net.npz", "--demand", "absent.csv"], "absent.csv: No such file"),
        (["flows", "wide.npz", "--demand", "d.csv"], "wide.npz is over max_min, and distances are"),
        (["flows", "net.npz", "--demand", "d.csv", "--trips", "n"], "d.csv:1: no column 'n'"),
        (["flows", "net.npz", "--demand", "short.csv"], "short.csv:1: no column 'trips'"),
        (["flows", "net.npz", "--demand", "less.csv"], "less.csv: trips are not negative, got -3"),
        (["flows", "net.npz", "--demand", "far.csv"], "far.csv: no node 'Q'"),
        (["flows", "net.npz", "--demand", "d.csv", "--ties", "all"], "invalid choice: 'all'"),
        (["flows", "net.npz", "--demand", "d.csv", "-o", "F.npy"], "expected a name in .csv"),
        (["flows", "loop.csv", "--demand", "edge.csv", "--trips", "3"], "negative cycle of weight"),
        (
            ["flows", "zero.csv", "--demand", "edge.csv", "--trips", "3"],
            "the cycle through 'A' and",
        ),
        (["stats", "net.npz", "--resume"], "keep a state beside the output: add -o S.csv"),
        (["stats", "wide.npz"], "wide.npz is over max_min, and distances are of min_plus"),
        (["stats", "big.csv", "--plot", "s.png", "--what", "mean"], "there is nothing to draw"),
        (
            ["stats", "big.csv", "--plot", "s.png", "--what", "betweenness"],
            "nodes without coordinates are too many to be laid out; add --nodes FILE",
        ),
        (
            ["stats", "net.npz", "--what", "betweenness,mean", "--sources", "A"],
            "ask for them in two calls",
        ),
        (["stats", "loop.csv"], "negative cycle of weight -1: "),
        (["table", "loop.csv", "--from", "A"], "negative cycle of weight -1: A → B → A"),
        (["table", "damaged.npz", "--from", "A"], "or damaged: its contents are not what was"),
    ],
)
def test_refused(run, arguments, words):
    if "T.parquet" in arguments:
        pytest.importorskip("pyarrow")
    if "--plot" in arguments:
        pytest.importorskip("matplotlib")
    Path("bad.csv").write_text("id\nA\n\nQ\nR\n")
    Path("short.csv").write_text("note,id\nx,A\ny\n")
    Path("none.csv").write_text("id\n")
    Path("places.csv").write_text("id,x,y\nA,1,2\n")
    Path("loop.csv").write_text("A,B,1\nB,A,-2\n")
    Path("T.from.txt").write_text("mine\n")
    Path("two.csv").write_text("id,people\nA,3\nB,many\n")
    Path("edge.csv").write_text("A,B,1\n")
    Path("zero.csv").write_text("A,B,0\nB,A,0\n")
    Path("d.csv").write_text(DEMAND)
    Path("less.csv").write_text("from,to,trips\nA,B,-3\n")
    Path("far.csv").write_text("from,to,trips\nA,Q,1\n")
    Path("big.csv").write_text("".join(f"{k},{k + 1}\n" for k in range(400)))
    net = sm.prepare("g.csv")
    net.save("net.npz")
    sm.prepare("g.csv", semiring="max_min").save("wide.npz")
    with np.load("net.npz") as file:
        np.savez("damaged.npz", **{**file, "weights": file["weights"] + 1})
    before = sorted(os.listdir())
    code, out, err = run(*arguments)
    assert (code, out) == (1 if "loop.csv" in arguments else 2, "")
    assert err.startswith("semiring-mm: error: ")
    assert err.count("\n") == 1
    assert words in err
    assert sorted(os.listdir()) == before


def test_a_large_core_is_told(run, monkeypatch):
    monkeypatch.setattr("semiring_mm.graphs.prepared._LONG", 1e6)
    monkeypatch.setattr("semiring_mm.hierarchy.symbolic._CORE", 10)
    rng = np.random.default_rng(4)
    lines = (f"{u},{v},1" for u, v in rng.integers(0, 300, (3000, 2)))
    Path("g.csv").write_text("\n".join(["from,to,weight", *lines]) + "\n")
    code, _, err = run("prepare", "g.csv", "-o", "net.npz")
    assert code == 0
    told = [x for x in err.splitlines() if "become a dense core" in x]
    assert len(told) == 1
    assert told[0].startswith("semiring-mm: warning: ")
