"""The command line over large sparse graphs: prepare, table, stats, and a pair of a million."""

import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import semiring_mm as sm
from semiring_mm import cli
from semiring_mm.cli import table
from semiring_mm.files import read_graph

ROOT = Path(__file__).parents[1]
ROUTES, AIRPORTS = (str(ROOT / "examples" / name) for name in ("routes.csv", "airports.csv"))
EXAMPLE = [ROUTES, "--nodes", AIRPORTS, "--undirected"]
EDGES = "from,to,km\nA,B,4\nA,B,3\nB,C,0\nC,A,5\nC,C,2\nD,A,1\nB,D_2,2.5\n"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run the command in a folder with a graph; gives exit code, standard output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEMIRING_MM_NUM_THREADS", "")
    Path("g.csv").write_text(EDGES)

    def command(*arguments):
        code = cli.main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return command


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
    found = json.loads(run("prepare", "g.csv", "-o", "net.npz", "--force", "--json", "--quiet")[1])
    assert found.pop("seconds") > 0
    assert found == {
        "graph": ["g.csv"], "semiring": "min_plus", "directed": True, "nodes": 5, "edges": 7,
        "fill_edges": 5, "core": 0, "depth": 4, "warnings": [], "notes": [],
        "written": ["net.npz"],
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
        (["apsp", "net.npz"], "net.npz is prepared already: semiring-mm table"),
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
        (["table", "loop.csv", "--from", "A"], "negative cycle of weight -1: B → A → B"),
        (["table", "damaged.npz", "--from", "A"], "is damaged: its contents are not what was"),
    ],
)
def test_refused(run, arguments, words):
    if "T.parquet" in arguments:
        pytest.importorskip("pyarrow")
    Path("bad.csv").write_text("id\nA\n\nQ\nR\n")
    Path("short.csv").write_text("note,id\nx,A\ny\n")
    Path("none.csv").write_text("id\n")
    Path("places.csv").write_text("id,x,y\nA,1,2\n")
    Path("loop.csv").write_text("A,B,1\nB,A,-2\n")
    Path("T.from.txt").write_text("mine\n")
    net = sm.prepare("g.csv")
    net.save("net.npz")
    with np.load("net.npz") as file:
        np.savez("damaged.npz", **{**file, "weights": file["weights"] + 1})
    before = sorted(os.listdir())
    code, out, err = run(*arguments)
    assert (code, out) == (1 if "loop.csv" in arguments else 2, "")
    assert err.startswith("semiring-mm: error: ")
    assert err.count("\n") == 1
    assert words in err
    assert sorted(os.listdir()) == before
