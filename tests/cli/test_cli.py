"""The command line: what it prints, what it writes, what it refuses, and how it ends."""

import contextlib
import csv
import gzip
import importlib.machinery
import importlib.util
import json
import os
import signal
import subprocess
import sys
import types
import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from optional import csgraph, nx, real_file, sp

import semiring_mm as sm
from semiring_mm import progress
from semiring_mm.cli import compute, tables
from semiring_mm.cli.options import OPTIONS, settings
from semiring_mm.files import Graph, read_graph
from semiring_mm.gpu import device
from semiring_mm.naming import named
from semiring_mm.progress import ProgressBar, reporter

ROOT = Path(__file__).parents[2]
EXAMPLE = [
    str(ROOT / "examples" / "routes.csv"),
    "--nodes",
    str(ROOT / "examples" / "airports.csv"),
    "--undirected",
]

# A directed graph with a loop, parallel edges, a zero weight and a node nothing leads to.
SOURCES = "weight: weight (column 3, summed); edges: 7, directed (the default of an edge list)"
EDGES = "from,to,weight\nA,B,4\nA,B,3\nB,C,0\nC,A,5\nC,C,2\nD,A,1\nB,D_2,2.5\n"


#: How progress is given where none is shown.
SILENT = progress.Watched()


@pytest.fixture
def edges(tmp_path):
    path = tmp_path / "edges.csv"
    path.write_text(EDGES)
    return path


def scipy_distances(graph):
    n = len(graph.nodes)
    best = {}
    ends = list(zip(graph.row, graph.col, graph.weight, strict=True))
    if not graph.directed:
        ends += [(v, u, w) for u, v, w in ends]
    for u, v, w in ends:
        best[u, v] = min(w, best.get((u, v), np.inf))
    rows, cols = np.array(list(best)).T
    matrix = sp.csr_array((list(best.values()), (rows, cols)), (n, n))
    return csgraph.dijkstra(matrix)


def network(graph):
    out = nx.MultiDiGraph() if graph.directed else nx.MultiGraph()
    out.add_nodes_from(graph.nodes)
    for u, v, w in zip(graph.row, graph.col, graph.weight, strict=True):
        out.add_edge(graph.nodes[u], graph.nodes[v], weight=w)
    return out


# --- what it prints ----------------------------------------------------------------------------


def test_example_path_and_summary(run):
    code, out, err = run("apsp", *EXAMPLE, "--from", "IPC", "--to", "LYR", "--summary")
    assert (code, err) == (0, "")
    graph = read_graph(EXAMPLE[0], nodes=EXAMPLE[2], directed=False)
    best = nx.shortest_path(network(graph), "IPC", "LYR", weight="weight")
    table = [line.split() for line in out.splitlines() if line.startswith("  ")][1:]
    assert [row[0] for row in table[: len(best)]] == best
    total = nx.shortest_path_length(network(graph), "IPC", "LYR", weight="weight")
    assert table[len(best) - 1][-1] == f"{total:,.0f}"
    first = out.splitlines()[0]
    assert first == f"Easter Island (IPC) → Longyearbyen (LYR): {total:,.0f} km in 5 legs"
    distances = scipy_distances(graph)
    assert f"diameter   {distances.max():,.0f} km" in out
    assert "nodes      85" in out
    assert "edges      400, undirected (--undirected)" in out
    assert "weight     great-circle length of each edge (summed)" in out
    assert "reachable  100 % of 7,140 ordered pairs, connected" in out
    assert f"average    {distances.sum() / (85 * 84):,.1f} km" in out


def test_large_results_are_asked_for(run, edges, monkeypatch):
    monkeypatch.setattr("semiring_mm.arrays._ALL_PAIRS", 1)
    err = run.refused("apsp", edges)
    assert "a matrix of all pairs of 5 nodes needs " in err
    assert "--force takes it, -o D.npy --memory-limit 4GB works in a file" in err
    assert run("apsp", edges, "--force")[0] == 0


@pytest.mark.parametrize("block", [1, compute._BLOCK])
def test_summary_is_the_default(run, edges, monkeypatch, block):
    monkeypatch.setattr(compute, "_BLOCK", block)
    code, out, _ = run("apsp", edges)
    assert code == 0
    *lines, last = out.splitlines()
    # A, B and C reach each other and D_2; D reaches all of them.
    assert lines == [
        "edges.csv: shortest paths",
        "  nodes      5",
        "  edges      7, directed (the default of an edge list)",
        "  weight     weight (column 3, summed)",
        "  reachable  65 % of 20 ordered pairs, not strongly connected",
        "  diameter   10.500, C → D_2",
        "  average    4.4615",
    ]
    assert last.startswith("  time ")
    assert run("apsp", edges, "--summary")[1].splitlines()[:-1] == lines


def test_path_over_parallel_edges(run, edges):
    code, out, _ = run("apsp", edges, "--from", "D", "--to", "C")
    assert code == 0
    assert out.splitlines()[0] == "D → C: 4.0000 in 3 legs"
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["leg", "total"], ["D"], ["A", "1.0000", "1.0000"], ["B", "3.0000", "4.0000"],
        ["C", "0.0000", "4.0000"],
        ["weight", "weight", "(column", "3,", "summed)"],
        ["edges", "7,", "directed", "(the", "default", "of", "an", "edge", "list)"],
    ]  # fmt: skip


def test_path_from_a_node_to_itself(run, edges):
    code, out, _ = run("apsp", edges, "--from", "B", "--to", "B")
    assert code == 0
    assert out.splitlines()[0] == "B → B: 0 in 0 legs"


def test_display_names_find_nodes(run):
    by_name = run("apsp", *EXAMPLE, "--from", "auckland", "--to", "Reykjavík")
    assert by_name == run("apsp", *EXAMPLE, "--from", "AKL", "--to", "KEF")
    assert by_name[0] == 0


@pytest.mark.parametrize(
    ("semiring", "words"),
    [
        ("max_min", ["widest paths", "narrowest", "A → C: 0.50000 in 2 legs", "width"]),
        ("min_max", ["minimax paths", "worst", "A → C: 0.10000 in 1 leg", "largest leg"]),
        ("max_times", ["most reliable paths", "least", "A → C: 0.45000 in 2 legs", "reliability"]),
        ("lor_land", ["reachability", "A → C in ", "reachable  50 % of 6 ordered pairs"]),
    ],
)
def test_other_semirings_have_their_own_words(run, tmp_path, semiring, words):
    (tmp_path / "g.csv").write_text("A,B,0.5\nA,B,0.9\nB,C,0.5\nA,C,0.1\n")
    code, out, err = run(
        "apsp", "g.csv", "--semiring", semiring, "--from", "A", "--to", "C", "--summary"
    )
    assert (code, err) == (0, "")
    for word in words:
        assert word in out


def test_notes_are_printed_unless_quiet(run, tmp_path):
    path = tmp_path / "a_net.tntp"
    path.write_text(
        "<NUMBER OF NODES> 3\n<FIRST THRU NODE> 3\n<NUMBER OF LINKS> 2\n<END OF METADATA>\n"
        "~ init_node term_node length ;\n1 3 2 ;\n3 2 0.5 ;\n"
    )
    _, out, err = run("apsp", path)
    assert "semiring-mm: note: nodes 1-2 are zone centroids" in err
    assert "note" not in out
    assert run("apsp", path, "--quiet")[2] == ""
    assert "1 → 2: 2.5000 in 2 legs" in run("apsp", path, "--from", "1", "--to", "2")[1]


def test_pairs_to_the_terminal(run, edges):
    code, out, err = run("apsp", edges, "--pairs", "A,C; C , A;A,D;D,D_2")
    assert (code, err) == (0, f"semiring-mm: {SOURCES}\n")
    assert out == "from,to,distance\nA,C,3\nC,A,5\nA,D,inf\nD,D_2,6.5\n"


def test_pairs_from_and_to_files(run, edges, tmp_path):
    (tmp_path / "pairs.csv").write_text("from,to\nA,C\n\nA,D\n")
    code, out, _ = run("apsp", edges, "--pairs", "pairs.csv", "-o", "out.csv")
    assert (code, out) == (0, "")
    with open(tmp_path / "out.csv", newline="") as file:
        assert list(csv.reader(file)) == [
            ["from", "to", "distance"], ["A", "C", "3"], ["A", "D", "inf"],
        ]  # fmt: skip


# --- what it writes ----------------------------------------------------------------------------


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_distances_and_predecessors(run, tmp_path, monkeypatch, mapped, dtype):
    if mapped:
        monkeypatch.setattr(compute, "_MAPPED_FROM", 0)
    code, out, err = run(
        "apsp", *EXAMPLE, "-o", "D.npy", "--predecessors", "P.npy", "--dtype", dtype
    )
    assert (code, out) == (0, "")
    assert err.splitlines() == [
        "semiring-mm: weight: great-circle length of each edge (summed); edges: 400, undirected "
        "(--undirected)",
        f"semiring-mm: wrote D.npy (85 × 85, {dtype}), D.nodes.txt, P.npy (85 × 85, int32)",
    ]
    graph = read_graph(EXAMPLE[0], nodes=EXAMPLE[2], directed=False)
    distances, predecessors = np.load(tmp_path / "D.npy"), np.load(tmp_path / "P.npy")
    assert distances.dtype == dtype
    assert predecessors.dtype == np.int32
    assert_allclose(distances, scipy_distances(graph), rtol=1e-6 if dtype == "float32" else 1e-13)
    assert (predecessors.diagonal() == -9999).all()
    assert sm.reconstruct_path(predecessors, 0, 5)[0] == 0
    assert sorted(os.listdir(tmp_path)) == ["D.nodes.txt", "D.npy", "P.npy"]
    assert (tmp_path / "D.nodes.txt").read_text().splitlines() == graph.nodes
    assert (tmp_path / "D.npy").stat().st_mode & 0o777 == 0o666 & ~umask()


@pytest.mark.parametrize("kind", ["npy", "zarr"])
def test_the_folder_is_flushed_after_the_result_is_renamed(tmp_path, monkeypatch, kind):
    target, part, flushed = tmp_path / f"D.{kind}", tmp_path / f"part.{kind}", []
    monkeypatch.setattr(compute, "sync_folder", lambda x: flushed.append((x, target.exists())))
    if kind == "npy":
        mapped = np.lib.format.open_memmap(part, mode="w+", dtype=float, shape=(2, 2))
        compute.save(str(target), mapped, part)
    else:
        zarr = pytest.importorskip("zarr")
        array = types.SimpleNamespace(to_zarr=lambda path: zarr.save_array(path, np.eye(2)))
        compute._gather(array, str(target))
    assert flushed == [(tmp_path, True)]


def test_labels_of_the_rows(run, tmp_path):
    """Beside the matrix, for all nodes that are not 0, 1, 2, ...; nothing is overwritten."""
    (tmp_path / "g.csv").write_text("from,to\n0,1\n1,2\n")
    (tmp_path / "g.gr").write_text("p sp 2 1\na 1 2 3\n")
    np.save(tmp_path / "a.npy", np.ones((2, 2)))
    labels = tmp_path / "D.nodes.txt"
    for graph in ("g.csv", "a.npy"):
        assert "wrote D.npy (" in run("apsp", graph, "-o", "D.npy", "--force")[2]
        assert not labels.exists()
    assert run("apsp", "g.gr", "-o", "D.npy", "--force")[2].endswith(", D.nodes.txt\n")
    assert labels.read_text() == "1\n2\n"
    (tmp_path / "D.npy").unlink()
    for graph in ("g.gr", "g.csv"):  # labels of other nodes would be wrong of the new matrix
        err = run.refused("apsp", graph, "-o", "D.npy")
        assert "its labels go to D.nodes.txt, which exists; --force" in err
        assert labels.read_text() == "1\n2\n"
    assert run("apsp", "g.csv", "-o", "D.npy", "--force")[0] == 0
    assert labels.read_text() == "0\n1\n2\n"
    assert run("apsp", "g.gr", "--predecessors", "P.npy")[0] == 0
    assert (tmp_path / "P.nodes.txt").read_text() == "1\n2\n"


def test_labels_that_no_file_can_hold(run, tmp_path):
    (tmp_path / "g.csv").write_text('from,to\n"a\nb",c\n')
    (tmp_path / "D.nodes.txt").write_text("id\na\nb\n")
    (tmp_path / "h.csv").write_text("from,to\na,b\n")
    before = sorted(os.listdir(tmp_path))
    assert "write --output D.csv or D.parquet" in run.refused("apsp", "g.csv", "-o", "E.npy")
    words = ["apsp", "h.csv", "--nodes", "D.nodes.txt", "-o", "D.npy", "--force"]
    assert "D.nodes.txt, which is read here" in run.refused(*words)
    assert sorted(os.listdir(tmp_path)) == before


# --- a row for each pair -----------------------------------------------------------------------


def table_of(path):
    if path.suffix == ".parquet":
        from pyarrow import parquet

        rows = parquet.read_table(path).to_pylist()
        return [list(rows[0]), *(list(row.values()) for row in rows)]
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


@pytest.mark.parametrize("name", ["D.csv", "D.csv.gz", "D.parquet"])
@pytest.mark.parametrize("rows", [1, 1 << 18])
def test_all_pairs_with_their_legs(run, tmp_path, monkeypatch, name, rows):
    if name == "D.parquet":
        pytest.importorskip("pyarrow")
    monkeypatch.setattr(tables, "_ROWS", rows)
    (tmp_path / "g.csv").write_text('from,to,weight\nA,"B,é",0.1\n"B,é",C,2\nD,A,7\nA,A,1\n')
    code, out, err = run("apsp", "g.csv", "-o", name, "--dtype", "float32")
    assert (code, out) == (0, "")
    assert f"wrote {name} (6 rows, 6 pairs without a path left out)" in err
    header, *found = table_of(tmp_path / name)
    assert header == ["from", "to", "distance", "legs"]
    assert [(a, b, round(float(d), 6), int(k)) for a, b, d, k in found] == [
        ("A", "B,é", 0.1, 1), ("A", "C", 2.1, 2), ("B,é", "C", 2, 1),
        ("D", "A", 7, 1), ("D", "B,é", 7.1, 2), ("D", "C", 9.1, 3),
    ]  # fmt: skip
    if name == "D.csv":
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert text.splitlines()[1:3] == ['A,"B,é",0.1,1', "A,C,2.1,2"]
    assert sorted(os.listdir(tmp_path)) == [name, "g.csv"]
    assert "the file exists" in run("apsp", "g.csv", "-o", name)[2]


@pytest.mark.parametrize(
    ("options", "header", "row"),
    [
        ([], "from,to,distance,legs", "C,A,5,1"),
        (["--max-hops", "2"], "from,to,distance", "C,A,5"),
        (["--pairs", "C,A;A,D"], "from,to,distance", "C,A,5"),
        (["--semiring", "minimax"], "from,to,largest_leg,legs", "C,A,5,1"),
        (["--semiring", "reachability"], "from,to,reachability,legs", "C,A,1,1"),
    ],
)
def test_the_columns_of_a_table(run, edges, tmp_path, options, header, row):
    assert run("apsp", edges, "-o", "D.csv", *options)[0] == 0
    lines = (tmp_path / "D.csv").read_text().splitlines()
    assert lines[0] == header
    assert row in lines


# --- JSON --------------------------------------------------------------------------------------


def test_json_has_everything_and_nothing_else_is_printed(run, edges):
    code, out, err = run(
        "apsp", edges, "--json", "--summary", "--from", "D", "--to", "C", "--pairs", "A,D",
        "-o", "D.npy",
    )  # fmt: skip
    assert (code, err) == (0, "semiring-mm: wrote D.npy (5 × 5, float64), D.nodes.txt\n")
    found = json.loads(out)
    assert found.pop("seconds") > 0
    leg = {"from": "B", "to": "C", "weight": 0, "value": 4}
    assert found["path"].pop("legs")[-1] == leg
    assert found["summary"].pop("average") == pytest.approx(58 / 13)
    assert found == {
        "graph": [str(edges)], "semiring": "min_plus", "nodes": 5, "edges": 7, "directed": True,
        "direction_source": "the default of an edge list",
        "weight_source": "weight (column 3)", "weights": "summed", "unit": None,
        "summary": {
            "pairs": 20, "reachable": 13, "worst": {"value": 10.5, "from": "C", "to": "D_2"},
        },
        "path": {"from": "D", "to": "C", "value": 4},
        "pairs": [{"from": "A", "to": "D", "value": None}],
        "method": "elimination in blocks", "warnings": [], "notes": [],
        "written": ["D.npy", "D.nodes.txt"],
    }  # fmt: skip


def test_json_of_no_path(run, edges):
    code, out, err = run("apsp", edges, "--json", "--from", "A", "--to", "D")
    assert (code, json.loads(out)["path"]) == (1, None)
    assert err == "semiring-mm: error: there is no path from A to D\n"


def test_standard_input_and_several_files(edges):
    """As processes: what is on standard output is the result alone."""
    text = EDGES.encode()
    half = len("from,to,weight\nA,B,4\nA,B,3\n")
    (edges.parent / "one.csv").write_text(EDGES[:half])
    (edges.parent / "two.csv").write_text("from,to,weight\n" + EDGES[half:])
    found = []
    for words, data in (
        (["-", "--format", "csv"], text),
        (["-", "--format", ".csv.gz"], gzip.compress(text)),
        (["one.csv", "two.csv"], b""),
    ):
        process = started(
            "apsp", *words, "--json", cwd=edges.parent, stdin=subprocess.PIPE, text=False
        )
        out, err = process.communicate(data, timeout=60)
        assert (process.returncode, err) == (0, b"")
        found.append(json.loads(out)["summary"])
    assert found[0] == found[1] == found[2]
    assert found[0]["worst"] == {"value": 10.5, "from": "C", "to": "D_2"}


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_matrix_in_matrix_out(run, tmp_path):
    rng = np.random.default_rng(0)
    matrix = rng.integers(1, 99, (30, 30)).astype(float)
    matrix[rng.random((30, 30)) < 0.8] = np.inf
    np.save(tmp_path / "a.npy", matrix)
    assert run("apsp", "a.npy", "-o", "D.npy")[0] == 0
    np.fill_diagonal(matrix, 0)
    assert_array_equal(
        np.load(tmp_path / "D.npy"),
        csgraph.floyd_warshall(np.ma.masked_invalid(matrix).filled(0)),
    )
    assert_array_equal(np.load(tmp_path / "a.npy").diagonal() >= 1, True)
    code, out, _ = run("apsp", "a.npy", "--undirected", "--from", "0", "--to", "29", "--summary")
    assert code == 0
    assert "undirected" in out


@pytest.mark.parametrize("name", ["plot.png", "plot.svg"])
def test_plot_of_a_map(run, tmp_path, name):
    code, _, err = run("apsp", *EXAMPLE, "--from", "AKL", "--to", "KEF", "--plot", name)
    assert (code, err) == (0, f"semiring-mm: wrote {name}\n")
    data = (tmp_path / name).read_bytes()
    assert data.startswith(b"\x89PNG" if name.endswith("png") else b"<?xml")
    assert os.listdir(tmp_path) == [name]


def test_plot_without_coordinates_and_without_paths(run, edges, tmp_path):
    assert run("apsp", edges, "--plot", "a.png", "--quiet") == (0, "", "")
    (tmp_path / "lone.gr").write_text("p sp 2 0\n")
    assert run("apsp", "lone.gr", "--plot", "b.png", "--quiet") == (0, "", "")
    assert (tmp_path / "b.png").stat().st_size > 1000


def test_existing_output_needs_force(run, edges, tmp_path):
    for option, name in (("-o", "D.npy"), ("--predecessors", "P.npy"), ("--plot", "f.png")):
        (tmp_path / name).write_text("mine")
        err = run.refused("apsp", edges, option, name)
        assert f"{name}: the file exists; --force overwrites it" in err
        assert (tmp_path / name).read_text() == "mine"
        assert run("apsp", edges, option, name, "--force")[0] == 0
        assert (tmp_path / name).read_bytes() != b"mine"


def test_a_rate_is_of_work_that_was_done(run, tmp_path):
    (tmp_path / "ring.csv").write_text("".join(f"{k},{(k + 1) % 1100}\n" for k in range(1100)))
    np.save(tmp_path / "dense.npy", np.random.default_rng(0).random((1100, 1100)))
    sparse, dense = (
        run("apsp", name, "--summary", *options)[1].splitlines()[-1].split(" s, ")[1]
        for name, options in (("ring.csv", []), ("dense.npy", ["--device", "cpu"]))
    )
    assert sparse
    assert ":" not in sparse  # whichever way it is
    assert dense.startswith("elimination in blocks: 1.33e+09 pairs (⊗, ⊕) at ")


def test_the_path_the_summary_and_the_values_agree(run, tmp_path):
    """One number of one result: the same digits wherever it is shown, also in float32."""
    (tmp_path / "g.csv").write_text("from,to,km\nA,B,0.1\nB,C,0.7\nC,D,2.2\nD,E,-1\n")
    for dtype in ("float32", "float64"):
        words = ["apsp", "g.csv", "--from", "A", "--to", "D", "--dtype", dtype, "--summary"]
        title, *table = run(*words)[1].splitlines()
        assert title == "A → D: 3.0000 km in 3 legs"
        assert table[4].split() == ["D", "2.2000", "3.0000"]
        assert "  diameter   3.0000 km, A → D" in table
    found = run.json(*words)
    assert found["path"]["value"] == found["path"]["legs"][-1]["value"]
    assert found["path"]["value"] == found["summary"]["worst"]["value"]


#: Where the direction of one edge comes from.
DEFAULT = "1, directed (the default of an edge list)"

# --- where weights and directions come from ----------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "options", "weight", "edges"),
    [
        ("g.csv", "from,to,price\na,b,3\n", ["--weight", "price"],
         "price (column 3, summed)", DEFAULT),
        ("g.csv", "from,to,price\na,b,3\n", ["--weight", "3", "--undirected"],
         "price (column 3, summed)", "1, undirected (--undirected)"),
        ("g.csv", "from,to,km\na,b,3\n", ["--unweighted", "--directed"],
         "none: legs are counted", "1, directed (--directed)"),
        ("g.csv", "from,to\na,b\n", ["--semiring", "widest"],
         "none: every edge weighs 1", DEFAULT),
        ("g.csv", "from,to,capacity\na,b,3\n", ["--weight", "capacity", "--semiring", "widest"],
         "capacity (column 3, the smallest counts)", DEFAULT),
        ("g.csv", "from,to,p\na,b,0.5\n", ["--weight", "p", "--semiring", "RELIABLE"],
         "p (column 3, multiplied)", DEFAULT),
        ("g.csv", "a,b,3\n", ["--semiring", "reachability"],
         "not used: all paths are equal", DEFAULT),
        ("g.csv", "Source,Target,Type,Weight\na,b,Undirected,3\n", [],
         "Weight (column 4, summed)", "1, undirected (column Type)"),
        ("g.csv", "fare,head,foot\n9,a,b\n", ["--columns", "2,foot", "--weight", "1"],
         "fare (column 1, summed)", DEFAULT),
        ("g.edges", "a b 3\n", [], "column 3 (summed)", DEFAULT),
        ("odd.name", "a,b,3\n", ["--format", "csv"],
         "column 3 (summed)", DEFAULT),
    ],
)  # fmt: skip
def test_what_was_measured(run, tmp_path, name, text, options, weight, edges):
    """The same words in a summary, below a path, and on standard error beside other results."""
    (tmp_path / name).write_text(text)
    summary = run("apsp", name, *options)[1]
    assert f"\n  weight     {weight}\n" in summary
    assert f"\n  edges      {edges}\n" in summary
    path = run("apsp", name, *options, "--from", "a", "--to", "b")[1]
    assert path.splitlines()[-2:] == [f"weight  {weight}", f"edges   {edges}"]
    _, out, err = run("apsp", name, *options, "--pairs", "a,b")
    assert out.count("\n") == 2
    assert f"semiring-mm: weight: {weight}; edges: {edges}\n" in err


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("from,to,price\na,b,3\n", [], "price; choose one by --weight NAME"),
        ("from,to,capacity\na,b,3\n", ["--weight", "capacity"],
         "weight: capacity (column 3, summed); for the path of the largest capacity write "
         "--semiring widest"),
        ("from,to,prob\na,b,1\n", ["--weight", "prob"], "write --semiring reliable"),
        ("a,b\n", ["--semiring", "widest"], "weight: none: every edge weighs 1, and so does every"),
    ],
)  # fmt: skip
def test_warnings_go_to_standard_error(run, tmp_path, text, options, words):
    (tmp_path / "g.csv").write_text(text)
    code, out, err = run("apsp", "g.csv", *options, "--quiet")
    assert code == 0
    assert "warning" not in out
    assert err.startswith("semiring-mm: warning: ")
    assert err.count("\n") == 1
    assert words in err
    (warning,) = run.json("apsp", "g.csv", *options)["warnings"]
    assert f"warning: {warning}\n" in err


def test_what_packages_deprecate_is_not_the_users_concern(capsys):
    with settings(types.SimpleNamespace(threads=None)):
        warnings.warn("write it otherwise", DeprecationWarning, stacklevel=1)
        warnings.warn("look here", UserWarning, stacklevel=1)
    assert capsys.readouterr().err == "semiring-mm: warning: look here\n"


def test_no_warning_of_what_was_chosen(run, tmp_path):
    (tmp_path / "g.csv").write_text("from,to,capacity\na,b,3\n")
    for options in (["--unweighted"], ["--weight", "capacity", "--semiring", "shortest"]):
        assert run("apsp", "g.csv", *options, "--quiet")[2] == ""


@pytest.mark.parametrize("options", [[], ["-o", "D.npy", "--memory-limit", "1MB"]])
def test_zeros_off_the_diagonal_of_a_matrix(run, tmp_path, options):
    np.save(tmp_path / "a.npy", np.array([[0.0, 4], [0, 0]]))
    _, out, err = run("apsp", "a.npy", "--summary", *options)
    assert "warning: zeros off the diagonal: 1, an edge of weight 0 each" in err
    assert "weight     the entries of the matrix (summed)" in out
    np.save(tmp_path / "a.npy", np.array([[0.0, 4], [np.inf, 0]]))
    assert "warning" not in run("apsp", "a.npy", *options, "--force")[2]


# --- several devices, and files larger than memory ----------------------------------------------


@pytest.fixture
def calls(monkeypatch):
    """Stands in for the tiled algorithms: writes what the plain one finds; what it was called with.

    The algorithms have tests of their own.
    """
    seen = []
    plain = {"apsp": sm.apsp, "closure": sm.closure}

    def stand_in(name):
        def solve(graph, *semiring, **given):
            seen.append((name, graph, given))
            own = {k: given[k] for k in ("directed", "return_predecessors")}
            solved = plain[name](graph, *semiring, **own)
            arrays = solved if own["return_predecessors"] else (solved,)
            reporter(given["progress"], 1.0)
            out = given["tiles"].out if "tiles" in given else None
            if out is not None:
                files = out if isinstance(out, tuple) else (out,)
                arrays = [write(*pair) for pair in zip(files, arrays, strict=True)]
            return tuple(arrays) if own["return_predecessors"] else arrays[0]

        return solve

    for name in plain:
        monkeypatch.setattr(sm, name, stand_in(name))
    return seen


def write(file, array):
    assert given_up(file)
    if file.endswith(".npy"):
        np.save(file, array)
        return np.load(file, mmap_mode="r")
    zarr = pytest.importorskip("zarr")
    stored = zarr.create_array(file, shape=array.shape, chunks=(2, 3), dtype=array.dtype)
    stored[...] = array
    return zarr.open_array(file, mode="r")


def given_up(file):
    """Whether the place is free: the command has taken away what it may overwrite."""
    return not Path(file).exists()


def test_devices_share_the_work(run, edges, tmp_path, calls):
    code, _, err = run("apsp", edges, "--devices", "0,cuda:2", "-o", "D.npy", "--quiet")
    assert (code, err) == (0, "")
    ((name, graph, given),) = calls
    assert name == "apsp"
    assert given == {
        "directed": True, "return_predecessors": False, "progress": SILENT, "device": None,
        "method": "auto", "tiles": sm.Tiles(devices=[0, 2]),
    }  # fmt: skip
    assert isinstance(graph, Graph)  # of which no matrix was made here
    assert_array_equal(np.load(tmp_path / "D.npy"), scipy_distances(read_graph(edges)))
    assert run("apsp", edges, "--devices", "all", "--semiring", "max_min")[0] == 0
    assert calls[1][0] == "closure"
    assert calls[1][2]["tiles"] == sm.Tiles(devices="all")


@pytest.mark.parametrize("form", ["npy", "zarr"])
def test_a_matrix_in_a_file(run, edges, tmp_path, calls, form):
    if form == "zarr":
        pytest.importorskip("zarr")
    files = f"D.{form}", f"P.{form}"
    words = ["apsp", edges, "-o", files[0], "--predecessors", files[1], "--memory-limit", "2GB"]
    words += ["--dtype", "float32", "--from", "D", "--to", "C", "--summary"]
    code, out, err = run(*words, "--checkpoint", "4", "--device", "cpu", "--quiet")
    assert (code, err) == (0, "")
    ((_, graph, given),) = calls
    assert graph.weight.dtype == np.float32
    assert given == {
        "directed": True, "return_predecessors": True, "progress": SILENT, "device": "cpu",
        "tiles": sm.Tiles(memory=2 * 10**9, checkpoint=4, out=files), "method": "auto",
    }  # fmt: skip
    in_memory = run("apsp", edges, "--from", "D", "--to", "C", "--summary")[1]
    assert out.splitlines()[:-1] == in_memory.splitlines()[:-1]  # but for the time
    assert sorted(os.listdir(tmp_path)) == sorted([*files, "D.nodes.txt", "edges.csv"])
    for name in files:
        assert "the file exists; --force overwrites it" in run(*words)[2]
        assert not given_up(tmp_path / name)
    assert run(*words, "--force")[0] == 0


def test_resuming(run, edges, calls, monkeypatch):
    assert run("apsp", edges, "-o", "D.npy", "--resume")[0] == 0
    assert calls[0][2]["tiles"] == sm.Tiles(out="D.npy", resume=True)

    def unfinished(*_, **__):
        on = f"{named('tiles.resume', True)} goes on with it"
        raise FileExistsError(f"{named('tiles.out')}: D.npy.part is left; {on}")

    monkeypatch.setattr(sm, "apsp", unfinished)
    err = run.refused("apsp", edges, "-o", "D.npy", "--checkpoint", "2", "--force")
    assert err == "semiring-mm: error: --output: D.npy.part is left; --resume goes on with it\n"


def test_an_old_result_stays_until_there_is_a_new_one(run, edges, tmp_path):
    """Refused after the door, and so after --force was seen."""
    old = tmp_path / "D.npy"
    np.save(old, np.eye(2))
    words = ["apsp", edges, "-o", "D.npy", "--force", "--memory-limit"]
    err = run.refused(*words, "1")
    assert "use a larger --memory-limit" in err
    assert_array_equal(np.load(old), np.eye(2))
    (tmp_path / "D.npy.old").touch()
    assert "the old result of an earlier run is there" in run(*words, "9MB")[2]
    (tmp_path / "D.npy.old").unlink()
    assert run(*words, "9MB")[0] == 0
    assert len(np.load(old)) == 5
    assert {path.name for path in tmp_path.iterdir()} == {
        "D.nodes.txt", "D.npy", "D.npy.done.json", "edges.csv",
    }  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_a_file_of_floats_is_read_where_it_is(run, tmp_path, calls, dtype):
    np.save(tmp_path / "a.npy", np.array([[0, 4, 9], [1, 0, 3], [9, 9, 0]], dtype))
    assert run("apsp", "a.npy", "-o", "D.npy", "--memory-limit", "1MB")[0] == 0
    (_, graph, _), *_ = calls
    if dtype == "int64":  # which means no edge by inf as the others do
        assert graph.dtype == np.float64
    else:
        assert isinstance(graph, np.memmap)
        assert graph.dtype == dtype
    assert np.load(tmp_path / "D.npy").tolist() == [[0, 4, 7], [1, 0, 3], [9, 9, 0]]


@pytest.fixture
def workers(monkeypatch):
    """Stand in for a client and for the functions that take one; what they were called with."""
    dask_array = pytest.importorskip("dask.array")
    seen = []

    class Client:
        def __init__(self, address):
            self.address = address

        def __enter__(self):
            return self

        def __exit__(self, *_):
            seen.append("closed")

    def solve(plain):
        def function(client, graph, *semiring, **given):
            seen.append((client.address, given))
            if "tiles" in given:
                Path("D.zarr.steps").mkdir()
            own = {k: given[k] for k in ("directed", "return_predecessors")}
            solved = plain(graph, *semiring, **own)
            if not own["return_predecessors"]:
                return dask_array.from_array(solved, chunks=2)
            return tuple(dask_array.from_array(x, chunks=2) for x in solved)

        return function

    contents = {
        "distributed": {"Client": Client},
        "semiring_mm.dask": {"apsp": solve(sm.apsp), "closure": solve(sm.closure)},
    }
    for name, functions in contents.items():
        module = types.ModuleType(name)
        vars(module).update(functions, __spec__=importlib.machinery.ModuleSpec(name, None))
        monkeypatch.setitem(sys.modules, name, module)
    return seen


def test_workers_of_a_scheduler(run, edges, tmp_path, workers):
    assert run("apsp", edges, "--scheduler", "tcp://host:8786", "-o", "D.npy")[0] == 0
    given = {"directed": True, "return_predecessors": False, "progress": SILENT}
    assert workers == [("tcp://host:8786", given), "closed"]
    assert_array_equal(np.load(tmp_path / "D.npy"), scipy_distances(read_graph(edges)))
    words = ["apsp", edges, "--semiring", "max_min", "--summary", "--from", "D", "--to", "C"]
    plain = run(*words)[1].splitlines()[:-1]
    assert run(*words, "--scheduler", "tcp://host:8786")[1].splitlines()[:-1] == plain


def test_workers_write_arrays_of_zarr(run, edges, tmp_path, workers):
    zarr = pytest.importorskip("zarr")
    words = ["apsp", edges, "--scheduler", "tcp://h:1", "-o", "D.zarr", "--predecessors", "P.npy"]
    assert run(*words, "--checkpoint", "3", "--quiet") == (0, "", "")
    assert workers[0][1]["tiles"] == sm.Tiles(out="D.zarr.steps", checkpoint=3)
    assert_array_equal(zarr.open_array("D.zarr")[:], scipy_distances(read_graph(edges)))
    assert np.load("P.npy").dtype == np.int32
    names = ["D.nodes.txt", "D.zarr", "D.zarr.done.json", "P.npy", "edges.csv"]
    assert sorted(os.listdir(tmp_path)) == names
    assert run(*words, "--force", "--resume")[0] == 0
    assert workers[2][1]["tiles"] == sm.Tiles(out="D.zarr.steps", resume=True)


@pytest.mark.parametrize("option", [["-o", "D.zarr"], ["--scheduler", "tcp://host:1"]])
def test_a_package_that_is_absent_is_named(run, edges, monkeypatch, option):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    err = run.refused("apsp", edges, *option)
    assert 'pip install "semiring-mm[' in err


# --- how it ends -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["frobnicate"], "there is no command 'frobnicate' (see: semiring-mm --help)"),
        (["aps", "edges.csv"], "there is no command 'aps'; did you mean apsp?"),
        (["--verson"], "there is no option --verson; did you mean --version? (see: semiring-mm -"),
        (["apsp"], "the following arguments are required: GRAPH"),
        (
            ["apsp", "edges.csv", "--sumary"],
            "there is no option --sumary; did you mean --summary or --resume?",
        ),
        (["apsp", "--form=A", "edges.csv"], "there is no option --form; did you mean --"),
        (["prepare", "edges.csv", "--ouput", "n.npz"], "--ouput; did you mean --output"),
        (["apsp", "edges.csv", "--routes"], "--routes is for --pairs"),
        (["apsp", "edges.csv", "--pairs", "A,B", "--routes", "--max-hops", "2"], "and --routes"),
        (["apsp", "edges.csv", "--weights", "edges.csv"], "--weights is for a prepared graph"),
        (
            ["apsp", "edges.csv", "--semiring", "plus_times"],
            "plus_times has no best paths: choose one of min_plus",
        ),
        (["apsp", "edges.csv", "--from", "A"], "--from and --to go together"),
        (["apsp", "edges.csv", "--max-hops", "0"], "expected a positive whole number, got '0'"),
        (["apsp", "edges.csv", "--directed", "--undirected"], "not allowed with argument"),
        (["apsp", "edges.csv", "--semiring", "max_min", "--max-hops", "2"], "are for min_plus"),
        (["apsp", "edges.csv", "--semiring", "lor_land", "--dtype", "float32"], "of dtype bool"),
        (["apsp", "-"], "say what it is, with --format csv for instance"),
        (["apsp", "edges.csv", "--format", "xyz"], "name one of these by --format EXT"),
        (["apsp", "places.csv"], "give it as --nodes, beside"),
        (["apsp", "wide.csv"], "as --columns, or the weight's as --weight, by name"),
        (["apsp", "edges.csv", "--device", "gpu"], "expected cpu, cuda or cuda:N, got 'gpu'"),
        (["apsp", "edges.csv", "--columns", "1"], "expected two columns such as"),
        (["apsp", "edges.csv", "--weight", "9"], "edges.csv:1: no column 9"),
        (["apsp", "edges.csv", "--weight", "a", "--unweighted"], "not allowed with argument"),
        (["apsp", "edges.csv", "--plot-what", "map,pie"], "expected some of map,histogram,matrix"),
        (["apsp", "edges.csv", "--semiring", "widst"], "no semiring 'widst': did you mean widest?"),
        (["apsp", "edges.csv", "--semiring", "qqq"], "choose one of boolean, bottleneck, "),
        (["apsp", "edges.csv", "--max-hops", "2", "--method", "sparse"], "--method squaring"),
        (["apsp", "edges.csv", "--max-hops", "2", "--from", "A", "--to", "B"], "leave out --pred"),
        (["apsp", "edges.csv", "--method", "sparse", "--device", "cuda"], "leave out --device"),
        (["apsp", "absent.gr"], "absent.gr: No such file or directory"),
        (["apsp", "."], ".: it is a directory: give a file, or several, which make one graph"),
        (["apsp", "bad.gr"], "bad.gr:2: expected 'a FROM TO WEIGHT', got 'a 1 x'"),
        (["apsp", "edges.csv", "--weight", "toll"], "edges.csv:1: no column 'toll'; columns: "),
        (["apsp", "edges.csv", "--nodes", "absent.csv"], "absent.csv: No such file"),
        (["apsp", "empty.gr"], "empty.gr: the graph has no nodes"),
        (["apsp", "edges.csv", "--from", "A", "--to", "D2"], "no node 'D2'; did you mean D_2"),
        (["apsp", "two.gr", "--from", "1", "--to", "3"], "no node '3': nodes are 1 to 2"),
        (["apsp", *EXAMPLE, "--from", "oslow", "--to", "LYR"], "did you mean OSL (Oslo)"),
        (["apsp", "edges.csv", "--pairs", "A"], "neither a file nor pairs such as 'A,B;C,D'"),
        (["apsp", "edges.csv", "--pairs", "A,B,C"], "expected a pair of nodes, got 'A,B,C'"),
        (["apsp", "edges.csv", "--pairs", "A,Q"], "--pairs: no node 'Q'"),
        (["apsp", "edges.csv", "--pairs", "pairs.csv"], "pairs.csv:2: no node 'Q'"),
        (["apsp", "edges.csv", "-o", "D.txt"], "--output D.txt: expected a name in .npy, .zarr"),
        (["apsp", "edges.csv", "-o", "no/D.npy"], "there is no directory no"),
        (["apsp", "edges.csv", "-o", "folder.npy", "--force"], "that is a directory"),
        (["apsp", "edges.csv", "-o", "a.npy", "--predecessors", "a.npy"], "already given"),
        (["apsp", "a.npy", "-o", "a.npy", "--force"], "already given to another file here"),
        (["apsp", "edges.csv", "--plot", "f.bmp"], "--plot f.bmp: expected a name in .png, "),
        (["apsp", "edges.csv", "--devices", "0,x"], "expected all, or GPUs such as 0,1, got '0,x'"),
        (["apsp", "edges.csv", "--devices", "1,1"], "expected all, or GPUs such as 0,1"),
        (["apsp", "edges.csv", "--devices", "all", "--device", "cpu"], "not allowed with argument"),
        (["apsp", "edges.csv", "--devices", "0", "--scheduler", "tcp://h:1"], "not allowed with"),
        (["apsp", "edges.csv", "--scheduler", "h:8786"], "address such as tcp://HOST:8786"),
        (["apsp", "edges.csv", "--scheduler", "tcp://h:1", "--threads", "2"], "--nthreads"),
        (["apsp", "edges.csv", "--scheduler", "tcp://h:1", "--memory-limit", "1GB"], "dask worker"),
        (["apsp", "edges.csv", "--memory-limit", "lots"], "expected a size such as '16GB'"),
        (["apsp", "edges.csv", "--memory-limit", "1GB"], "add --output D.zarr (or D.npy)"),
        (["apsp", "edges.csv", "--resume"], "add --output D.zarr (or D.npy)"),
        (["apsp", "edges.csv", "--checkpoint", "0", "-o", "D.npy"], "a positive whole number"),
        (["apsp", "edges.csv", "--predecessors", "P.zarr"], "add --output D.zarr (or D.npy)"),
        (
            ["apsp", "edges.csv", "-o", "D.zarr", "--from", "A", "--to", "B"],
            "--predecessors P.zarr",
        ),
        (["apsp", "edges.csv", "-o", "D.zarr", "--plot", "f.png"], "--plot draws from a .npy file"),
        (["apsp", "edges.csv", "-o", "D.zarr", "--max-hops", "3"], "take --method floyd_warshall"),
        (["apsp", "edges.csv", "--devices", "0", "--method", "sparse"], "floyd_warshall"),
        (["apsp", "edges.csv", "-o", "folder.zarr", "--force"], "that is a directory"),
        (["apsp", "single.npy", "-o", "D.zarr", "--dtype", "float64"], "single.npy holds float32"),
    ],
)
def test_refused(run, edges, tmp_path, arguments, words):
    (tmp_path / "bad.gr").write_text("p sp 2 1\na 1 x\n")
    (tmp_path / "empty.gr").write_text("p sp 0 0\n")
    (tmp_path / "two.gr").write_text("p sp 2 1\na 1 2 3\n")
    (tmp_path / "pairs.csv").write_text("A,B\nQ,A\n")
    (tmp_path / "places.csv").write_text("id,name\n1,A\n")
    (tmp_path / "wide.csv").write_text("1,2,3,4,5\n")
    np.save(tmp_path / "single.npy", np.zeros((2, 2), "f4"))
    (tmp_path / "folder.npy").mkdir()
    (tmp_path / "folder.zarr").mkdir()
    before = sorted(os.listdir(tmp_path))
    err = run.refused(*arguments)
    assert err.startswith("semiring-mm: error: ")
    assert err.count("\n") == 1
    assert words in err
    assert sorted(os.listdir(tmp_path)) == before


def test_messages_name_options(run, edges, monkeypatch, capsys):
    """The library's own, too; Python's arguments are in those for callers from Python."""
    monkeypatch.setattr(device, "why_not", lambda: "there is none")
    for words in (["--device", "cuda"], ["--devices", "all"], ["--devices", "0"]):
        code, _, err = run("apsp", edges, *words)
        option = " ".join(words[:1] if words[0] == "--devices" else words)
        assert (code, err) == (2, f"semiring-mm: error: {option}: there is none\n")
    with pytest.raises(ValueError, match="device='cuda': there is none"):
        sm.apsp(np.ones((2, 2)), device="cuda")
    with pytest.raises(SystemExit):
        run("apsp", "--help")
    shown = capsys.readouterr().out
    assert all(f"{option} " in shown for option in OPTIONS.values())


def test_no_path_is_1(run, edges):
    code, out, err = run("apsp", edges, "--from", "A", "--to", "D")
    assert (code, out) == (1, "")
    assert err == "semiring-mm: error: there is no path from A to D\n"


@pytest.mark.parametrize("mapped", [False, True])
def test_negative_cycle_is_1_and_printed(run, tmp_path, monkeypatch, mapped):
    if mapped:
        monkeypatch.setattr(compute, "_MAPPED_FROM", 0)
    (tmp_path / "g.csv").write_text("A,B,1\nB,C,-3\nC,A,1.5\nC,D,1\n")
    code, out, err = run("apsp", "g.csv", "-o", "D.npy")
    assert (code, out) == (1, "")
    assert "negative cycle of weight -0.50000: " in err
    walk = err.split(": ")[-1].split()[::2]
    assert walk[0] == walk[-1]
    assert set(walk) == set("ABC")
    assert os.listdir(tmp_path) == ["g.csv"]


def test_negative_weights_without_a_cycle(run, tmp_path):
    (tmp_path / "g.csv").write_text("A,B,4\nA,C,2\nB,C,-3\n")
    assert run("apsp", "g.csv", "--from", "A", "--to", "C")[1].startswith("A → C: 1 in 2 legs")


def test_too_large_for_the_memory_is_2(run, tmp_path):
    (tmp_path / "g.gr").write_text("p sp 1000000 0\n")
    err = run.refused("apsp", "g.gr")
    assert err.count("\n") == 1


def test_a_full_disk_is_noticed_before_the_work(run, edges, tmp_path):
    (tmp_path / "g.gr").write_text("p sp 1000000 0\n")
    for option in ("-o", "--predecessors"):
        err = run.refused("apsp", "g.gr", option, "X.npy")
        assert "X.npy: 1,000,000 × 1,000,000 entries take " in err
        assert "GiB are free there" in err
    assert sorted(os.listdir(tmp_path)) == ["edges.csv", "g.gr"]


def test_interrupt_is_130(run, edges, tmp_path, monkeypatch):
    monkeypatch.setattr(compute, "_MAPPED_FROM", 0)
    monkeypatch.setattr(
        ProgressBar, "__call__", lambda *_: signal.raise_signal(signal.SIGINT), raising=True
    )
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's jobs
    try:
        code, out, err = run("apsp", edges, "-o", "D.npy", "--progress")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (code, out, err) == (130, "", "semiring-mm: interrupted\n")
    assert os.listdir(tmp_path) == ["edges.csv"]


def started(*arguments, **options):
    environment = os.environ | {"PYTHONPATH": str(Path(sm.__file__).parents[1])}
    return subprocess.Popen(
        [sys.executable, "-m", "semiring_mm", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        **{"text": True} | options,
    )


def test_closed_pipe_is_quiet(edges):
    process = started("apsp", edges)
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr.read() == ""
    process.stderr.close()


def test_version_and_help_as_a_module():
    for argument, word in (("--version", "semiring-mm"), ("--help", "COMMAND")):
        process = started(argument)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
        assert word in out


def test_nothing_optional_is_loaded_unasked(edges):
    code = (
        "import sys; from semiring_mm import cli; "
        "assert 'numpy' not in sys.modules or 'llvmlite' not in sys.modules; "
        f"assert cli.main(['apsp', {str(edges)!r}, '--quiet']) == 0; "
        "print(sorted({'scipy', 'networkx', 'matplotlib', 'cupy'} & set(sys.modules)))"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(sm.__file__).parents[1])}
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert out.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("semiring-mm nea", ["nearest"]),
        ("semiring-mm table g.csv --from-", ["--from-file"]),
        ("semiring-mm apsp g.csv --method s", ["sparse", "squaring"]),
    ],
)
def test_a_shell_completes_lines(tmp_path, line, words):
    pytest.importorskip("argcomplete")
    if not hasattr(os, "fork"):
        pytest.skip("completion is for shells of Unix")
    file = tmp_path / "words"
    asks = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9", "_ARGCOMPLETE": "1",
            "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_STDOUT_FILENAME": str(file),
            "_ARGCOMPLETE_SUPPRESS_SPACE": "1"}  # fmt: skip
    subprocess.run([sys.executable, "-m", "semiring_mm"], env={**os.environ, **asks}, check=True)
    assert sorted(file.read_text().split()) == words


def test_info(run):
    code, out, err = run("info")
    assert (code, err) == (0, "")
    found = run.json("info")
    assert list(found) == "version python platform packages cpu cache gpu".split()
    assert out.splitlines()[0] == f"semiring_mm {found['version']}"
    assert f"{found['cpu']['threads']} threads\n" in out
    assert found["gpu"]["devices"] or found["gpu"]["reason"] in out


@pytest.mark.parametrize(
    ("name", "program"), [("bench", "python -m bench"), ("ladder", "python -m apps.ladder")]
)
def test_programs_of_a_checkout_are_named(run, name, program, capsys):
    err = run.refused(name, "--help")
    assert f"{name} is not part of the installed program: run {program} in a checkout" in err
    with pytest.raises(SystemExit):
        run("--help")
    assert name not in capsys.readouterr().out


def test_who_asks_is_told_what_each_device_did():
    told = []

    def both(done, total, parts=None):
        told.append((done, total, parts))

    for callback in (both, lambda done, total: told.append((done, total))):
        tick = reporter(callback, 4.0)
        tick(2.0, {"cuda:0": 2.0})
        tick(5.0)
    assert told == [(2, 4, {"cuda:0": 2}), (4, 4, None), (2, 4), (4, 4)]
    reporter(max, 4.0)(1.0)  # a built-in function without a signature


def ring(n):
    return Graph(range(n), np.arange(n), (np.arange(n) + 1) % n, np.ones(n), directed=True)


def small_world(n):
    """All nodes within a few steps, along edges between any two."""
    ends = np.random.default_rng(0).integers(0, n, (2, 6 * n))
    return Graph(range(n), *ends, np.ones(6 * n), directed=True)


@pytest.mark.parametrize(
    ("graph", "options", "method", "unit"),
    [
        (ring(600), {"method": "sparse"}, "sparse elimination", "entries"),
        (ring(600), {}, "a search from each source", "entries"),
        (small_world(600), {}, "breadth-first searches", "entries"),
        (np.ones((70, 70)), {}, "elimination in blocks", "pairs"),
        (np.ones((70, 70)), {"method": "squaring"}, "repeated squaring", "pairs at most"),
        (np.ones((70, 70)), {"max_hops": 3}, "products by repeated squaring", "products"),
        (np.ones((70, 70)), {"sources": [3]}, "rounds of products", "products"),
        (np.ones((2, 9, 9)), {}, "a batch", "graphs"),
    ],
)
def test_who_watches_is_told_the_method(graph, options, method, unit):
    seen = []
    watched = progress.Watched(lambda *given: seen.append(given))
    sm.apsp(graph, progress=watched, **options)
    assert (watched.method, watched.unit, watched.total) == (method, unit, seen[-1][1])
    silent = progress.Watched()
    sm.apsp(graph, progress=silent, **options)
    assert silent == progress.Watched(None, method, unit, watched.total)


def test_real_networks_agree_with_scipy(run, tmp_path):
    path = real_file("rome99.gr")
    code, out, err = run("apsp", path, "-o", "D.npy", "--summary")
    assert code == 0
    assert err == "semiring-mm: wrote D.npy (3,353 × 3,353, float64), D.nodes.txt\n"
    distances = np.load(tmp_path / "D.npy", mmap_mode="r")
    expected = scipy_distances(read_graph(path))
    assert_array_equal(distances, expected)
    assert f"diameter   {expected.max():,.0f}, " in out
    assert "reachable  100 % of 11,239,256 ordered pairs, strongly connected" in out
    with contextlib.suppress(OSError):
        (tmp_path / "D.npy").unlink()
