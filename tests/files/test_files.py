"""Every reader, and every way to refuse a file."""

import bz2
import gzip
import io
import lzma
import os
import sys
import threading
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from optional import real_file, scipy

import semiring_mm as sm
from semiring_mm import arrays
from semiring_mm.closures.edges import NumberLabels
from semiring_mm.files import (
    GraphFileError,
    columns,
    file,
    great_circle,
    npy,
    npz,
    read_graph,
    read_matrix,
)  # fmt: skip
from semiring_mm.files.npy import zero_warnings

ROOT = Path(__file__).parents[2]


def write(folder, name, text):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def edges(graph):
    """The edges by label, in the file's order."""
    return [
        (graph.nodes[u], graph.nodes[v], w)
        for u, v, w in zip(graph.row, graph.col, graph.weight.tolist(), strict=True)
    ]


def refused(words, *given, **options):
    with pytest.raises(GraphFileError) as caught:
        read_graph(*given, **options)
    assert words in str(caught.value)
    return str(caught.value)


GR = "c a comment\np sp 3 3\na 1 2 5\na 2 3 0\na 1 2 2.5\n"
MTX = "%%MatrixMarket matrix coordinate real general\n% comment\n3 3 2\n1 2 0.5\n3 3 0\n"
TNTP = (
    "<NUMBER OF ZONES> 1\n<NUMBER OF NODES> 3\n<FIRST THRU NODE> 2\n<NUMBER OF LINKS> 2\n"
    "<ORIGINAL HEADER>~ \tfrom\tto\t\n<END OF METADATA>\n\n"
    "~\tInit node\tTerm node\tLength (miles)\tFree Flow Time (min)\t;\n"
    "\t1\t2\t1.5\t3\t;\n\t2\t3\t0.25\t0\t;\n"
)


# --- what is read ------------------------------------------------------------------------------


def test_dimacs(tmp_path):
    graph = read_graph(write(tmp_path, "a.gr", GR))
    assert graph.nodes == ["1", "2", "3"]
    assert edges(graph) == [("1", "2", 5.0), ("2", "3", 0.0), ("1", "2", 2.5)]
    assert graph.directed
    assert graph.row.dtype == graph.col.dtype == np.int64
    assert graph.weight.dtype == np.float64


def test_dimacs_isolated_nodes_and_no_arcs(tmp_path):
    graph = read_graph(write(tmp_path, "a.gr", "p sp 4 0\n"))
    assert (len(graph.nodes), len(graph.row)) == (4, 0)


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_other_line_ends_and_byte_order_mark(tmp_path, end):
    text = b"\xef\xbb\xbf" + GR.replace("\n", end).encode()
    assert len(read_graph(write(tmp_path, "a.gr", text)).row) == 3


def packed(kind, data):
    """The data in that compression."""
    if kind == ".zst":
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            zstd = pytest.importorskip("backports.zstd")
        return zstd.compress(data)
    return {".gz": gzip, ".bz2": bz2, ".xz": lzma}[kind].compress(data)


@pytest.mark.parametrize("kind", file.PACKINGS)
@pytest.mark.parametrize(
    ("name", "text"),
    [("a.gr", GR), ("a.mtx", MTX), ("a_net.tntp", TNTP), ("a.csv", "A,B\n"), ("A.GR", GR)],
)
def test_compressed_files_read_the_same(tmp_path, kind, name, text):
    plain = read_graph(write(tmp_path, name, text))
    squeezed = read_graph(write(tmp_path, name + kind, packed(kind, text.encode())))
    assert edges(plain) == edges(squeezed)
    assert plain.nodes == squeezed.nodes


@pytest.mark.parametrize(("kind", "name"), file.PACKINGS.items())
def test_damaged_compressed_files(tmp_path, kind, name):
    for data in (b"junk", packed(kind, GR.encode())[:-9]):
        with pytest.raises(GraphFileError, match=f"a.gr{kind}: not a whole {name} file "):
            read_graph(write(tmp_path, f"a.gr{kind}", data))


def test_matrix_market_symmetric_is_undirected(tmp_path):
    text = MTX.replace("general", "symmetric").replace("1 2 0.5", "2 1 0.5")
    path = write(tmp_path, "a.mtx", text)
    assert not read_graph(path).directed
    assert edges(read_graph(path)) == [("2", "1", 0.5), ("3", "3", 0.0)]
    both = read_graph(path, directed=True)
    assert both.directed
    assert sorted(edges(both)) == [("1", "2", 0.5), ("2", "1", 0.5), ("3", "3", 0.0)]


@pytest.mark.parametrize("symmetry", ["general", "symmetric"])
def test_matrix_market_array_agrees_with_scipy(tmp_path, symmetry):
    rng = np.random.default_rng(3)
    matrix = rng.integers(0, 9, (5, 5)).astype(float)
    if symmetry == "symmetric":
        matrix = matrix + matrix.T
    scipy.io.mmwrite(tmp_path / "a.mtx", matrix, symmetry=symmetry)
    graph = read_graph(tmp_path / "a.mtx", directed=True)
    read = np.full((5, 5), np.inf)
    read[graph.row, graph.col] = graph.weight
    assert_array_equal(read, matrix)


def test_matrix_market_array_inf_is_no_edge(tmp_path):
    text = "%%MatrixMarket matrix array real general\n2 2\n0\n7\ninf\n0\n"
    graph = read_graph(write(tmp_path, "a.mtx", text))
    assert ("2", "1", 7.0) in edges(graph)
    assert len(graph.row) == 3


def test_tntp(tmp_path):
    path = write(tmp_path, "a_net.tntp", TNTP)
    graph = read_graph(path)
    assert edges(graph) == [("1", "2", 1.5), ("2", "3", 0.25)]
    assert graph.unit == "miles"
    assert graph.notes[0] == "nodes 1-1 are zone centroids; paths here may pass through them"
    assert graph.centroids.tolist() == [0]
    for name in ("free_flow_time", "Free Flow Time (min)", "FREE_FLOW_TIME"):
        other = read_graph(path, weight=name)
        assert other.weight.tolist() == [3.0, 0.0]
        assert other.unit == "min"


TRIPS = """<NUMBER OF ZONES> 3
<TOTAL OD FLOW> 12.5
<END OF METADATA>

~ who goes where
Origin  1
    1 :    0.0;     2 :    2.5;    3 : 4;
Origin 3
1:6;
"""


def test_zone_centroids_of_a_table_of_nodes_and_of_several_files(tmp_path):
    path = write(tmp_path, "a_net.tntp", TNTP)
    nodes = write(tmp_path, "a.csv", "node,x,y\n3,0,0\n1,0,0\n2,0,0\n")
    assert read_graph(path, nodes=nodes).centroids.tolist() == [1]
    other = write(tmp_path, "b_net.tntp", TNTP.replace("THRU NODE> 2", "THRU NODE> 1"))
    assert read_graph(other).centroids is None
    both = read_graph([other, path])
    assert [both.nodes[k] for k in both.centroids] == ["1"]


def test_tntp_trips(tmp_path):
    graph = read_graph(write(tmp_path, "a_trips.tntp", TRIPS), weight="trips")
    assert edges(graph) == [("1", "1", 0.0), ("1", "2", 2.5), ("1", "3", 4.0), ("3", "1", 6.0)]
    assert graph.directed
    net = read_graph(write(tmp_path, "a_net.tntp", TNTP))
    found = sm.flows(net, graph)
    assert found.load.tolist() == [6.5, 4.0]
    assert found.without_path == 6


@pytest.mark.parametrize(
    "text",
    [
        "from,to,weight\nA,B,2\nB,C,3\n",
        "A,B,2\nB,C,3\n",
        "A B 2\n\nB   C 3\n",
        "A\tB\t2\nB\tC\t3\n",
        "A;B;2\nB;C;3\n",
        '# comment with " a quote\nSource;Target;Distance\nA;B;2\n% more\nB;C;3',
        'weight,v,u\n2,"B","A"\n3, C ,B\n',
    ],
)
def test_edge_list_in_any_dress(tmp_path, text):
    graph = read_graph(write(tmp_path, "a.txt", text))
    assert sorted(edges(graph)) == [("A", "B", 2.0), ("B", "C", 3.0)]
    assert graph.directed
    assert not read_graph(tmp_path / "a.txt", directed=False).directed


def test_edge_list_quoted_labels_and_unit(tmp_path):
    path = write(tmp_path, "a.csv", 'from,to,length_km\n"Paris, Gare de Lyon","Zürich HB",489\n')
    graph = read_graph(path)
    assert graph.nodes == ["Paris, Gare de Lyon", "Zürich HB"]
    assert graph.unit == "km"


UNUSED = "weight {}; numbers of the edges that are not used: {}; choose one by weight='NAME'"
LEGS = "none: legs are counted"


@pytest.mark.parametrize(
    ("header", "row", "weight", "value", "source", "warned", "noted"),
    [
        ("from,to,price", "A,B,7", "weight", 1, LEGS, "price", ""),
        ("from,to,capacity", "A,B,7", "weight", 1, LEGS, "capacity", ""),
        ("from,to,price,toll,airline", "A,B,7,8,XY", "weight", 1, LEGS, "price, toll", ""),
        ("from,to,price,id,edge_id,osmid", "A,B,7,1,2,3", "weight", 1, LEGS, "price", ""),
        ("from,to,price", "A,B,", "weight", 1, LEGS, "", ""),
        (",from,to,price,Unnamed: 4", "0,A,B,7,1", "weight", 1, LEGS, "price", ""),
        ("from,to,price", "A,B,7", None, 1, LEGS, "", ""),
        ("from,to,length", "A,B,7", None, 1, LEGS, "", ""),
        ("from,to,price", "A,B,7", "price", 7, "price (column 3)", "", ""),
        ("from,to,price", "A,B,7", "3", 7, "price (column 3)", "", ""),
        ("from,to,price", "A,B,7", 3, 7, "price (column 3)", "", ""),
        ("from,to,price", "A,B,7", np.int64(3), 7, "price (column 3)", "", ""),
        ("3,from,to,price", "9,A,B,7", "3", 9, "3 (column 1)", "", ""),
        ("price,from,length_km,to", "7,A,8,B", "weight", 8, "length_km (column 3)", "", "price"),
        ("from,to,length,Capacity", "A,B,7,9", "capacity", 9, "Capacity (column 4)", "", ""),
        ("", "A,B,7", "weight", 7, "column 3", "", ""),
        ("", "A,B,7", None, 1, LEGS, "", ""),
        ("", "A,B,x,7", 4, 7, "column 4", "", ""),
        ("", "A,B,x,7", None, 1, LEGS, "", ""),
    ],
)
def test_what_edges_weigh_and_what_is_not_used(
    tmp_path, header, row, weight, value, source, warned, noted
):
    path = write(tmp_path, "a.csv", f"{header}\n{row}\n")
    graph = read_graph(path, weight=weight)
    assert edges(graph) == [("A", "B", float(value))]
    assert graph.weight_source == source
    assert graph.warnings == ((UNUSED.format(source, warned),) if warned else ())
    assert graph.notes == ((f"other numbers of the edges: {noted}",) if noted else ())


def test_great_circle_lengths_where_there_are_minutes(tmp_path):
    nodes = write(tmp_path, "nodes.csv", "id,lat,lon\nA,0,0\nB,0,1\n")
    path = write(tmp_path, "a.csv", "from,to,minutes\nA,B,7\n")
    measured = read_graph(path, nodes=nodes)
    assert measured.weight_source == "great-circle length of each edge"
    assert measured.warnings == (UNUSED.format(measured.weight_source, "minutes"),)
    legs = read_graph(path, nodes=nodes, weight=None)
    assert (legs.weight.tolist(), legs.unit, legs.weight_source) == ([1.0], "", LEGS)
    minutes = read_graph(path, nodes=nodes, weight="minutes")
    assert (minutes.weight.tolist(), minutes.unit, minutes.warnings) == ([7.0], "", ())


@pytest.mark.parametrize(
    ("name", "text"), [("a.gr", GR), ("a.mtx", MTX), ("a_net.tntp", TNTP), ("a.el", "A B 2")]
)
def test_legs_of_any_format(tmp_path, name, text):
    graph = read_graph(write(tmp_path, name, text), weight=None)
    assert set(graph.weight) == {1.0}
    assert (graph.weight_source, graph.unit) == (LEGS, "")


@pytest.mark.parametrize(
    ("text", "ways", "why"),
    [
        ("u,v\nA,B\nB,C", "AB BC", "the default of an edge list"),
        ("u,v,Type\nA,B,Undirected\nB,C,undirected", "AB BA BC CB", "column Type"),
        ("u,v,Type\nA,B,Directed\nB,C,Directed", "AB BC", "column Type"),
        ("u,v,Type\nA,B,Undirected\nB,C,Directed", "AB BA BC",
         "column Type: 1 of 2 edges lead both ways"),
        ("u,v,type\nA,B,road\nB,C,ferry", "AB BC", "the default of an edge list"),
        ("u,v,type\nA,B,0\nB,C,1", "AB BC", "the default of an edge list"),
        ("u,v,directed\nA,B,true\nB,C,True", "AB BC", "column directed"),
        ("u,v,directed\nA,B,0\nB,C,0", "AB BA BC CB", "column directed"),
        ("u,v,directed\nA,B,0\nB,C,1", "AB BA BC",
         "column directed: 1 of 2 edges lead both ways"),
        ("# Undirected graph: ../amazon.ungraph.txt\n# Nodes: 3\nA B\nB C", "AB BA BC CB",
         "line 1: undirected graph"),
        ("# Directed graph (each unordered pair once)\nA B\nB C", "AB BC",
         "line 1: directed graph"),
        ("% sym unweighted\n% 2 3 3\nA B\nB C", "AB BA BC CB", "line 1: sym"),
        ("% asym positive\nA B 1 1082008561\nB C 1 1082008561", "AB BC", "line 1: asym"),
        ("%%MatrixMarket matrix coordinate pattern symmetric\n3 3 1\n2 1", "12 21", ""),
        ("%%MatrixMarket matrix coordinate pattern symmetric\n%3 3 1\n2 1", "12 21",
         "line 1: symmetric"),
        ("%%MatrixMarket matrix coordinate pattern general\n%3 3 1\n2 1", "21", "line 1: general"),
    ],
)  # fmt: skip
def test_what_the_file_says_of_directions(tmp_path, text, ways, why):
    path = write(tmp_path, "a.txt", text + "\n")
    graph = read_graph(path)
    row, col = read_graph(path, directed=True).row, read_graph(path, directed=True).col
    assert {graph.nodes[u] + graph.nodes[v] for u, v in zip(row, col, strict=True)} == set(
        ways.split()
    )
    assert graph.directed == (len(row) == len(graph.row))
    assert graph.direction_source == why or not why
    undirected = read_graph(path, directed=False)
    assert not undirected.directed
    assert len(undirected.row) == len({frozenset(way) for way in ways.split()})
    assert undirected.direction_source == "directed=False"


@pytest.mark.parametrize(
    ("name", "text", "given", "wanted"),
    [
        ("routes.dat", "2B,410,AER,2965,KZN\n2B,410,ASF,2966,KZN\n",
         {"source": 3, "target": "5"}, [("AER", "KZN", 1.0), ("ASF", "KZN", 1.0)]),
        ("a.csv", "person,friend,price\n1,2,3\n", {"source": "person", "target": "friend"},
         [("1", "2", 1.0)]),
        ("a.csv", "person,friend,price\n1,2,3\n", {"source": 2, "target": 1, "weight": "price"},
         [("2", "1", 3.0)]),
        ("a.csv", "person,friend,price\n1,2,3\n", {"source": 1, "target": 2, "weight": 3},
         [("1", "2", 3.0)]),
        ("a.csv", "from,to,via\n1,2,3\n", {"target": "via"}, [("1", "3", 1.0)]),
        ("a.edges", "% asym unweighted\n% 2 3 3\n1,2\n2,3\n", {},
         [("1", "2", 1.0), ("2", "3", 1.0)]),
        ("a.el", "1 2 5\n", {}, [("1", "2", 5.0)]),
        ("a.mtx", MTX, {}, [("1", "2", 0.5), ("3", "3", 0.0)]),
        ("a.mtx", "%%MatrixMarket matrix coordinate pattern general\n2 2 1\n2 1\n", {},
         [("2", "1", 1.0)]),
        ("a.csv", "id_1,id_2\n1,2\n", {}, [("1", "2", 1.0)]),
        ("a.csv", "x1,x2\nAnn,Bob\n", {}, [("Ann", "Bob", 1.0)]),
        ("a.csv", "node1,node2,km\nnode3,node4,5\n", {}, [("node3", "node4", 5.0)]),
        ("a.txt", "n1 n2\nn2 n3\n", {}, [("n1", "n2", 1.0), ("n2", "n3", 1.0)]),
        ("a.txt", "n1 n2 5\nn2 n3 7\n", {}, [("n1", "n2", 5.0), ("n2", "n3", 7.0)]),
        ("a.txt", "n1 n2\n", {}, [("n1", "n2", 1.0)]),
        ("a.txt", "u v\nv w\n", {}, [("u", "v", 1.0), ("v", "w", 1.0)]),
        ("a.txt", "u v\na b\n", {}, [("a", "b", 1.0)]),
        ("out.wiki", "% asym positive\n33 28 1\t1138206644\n", {}, [("33", "28", 1.0)]),
        ("a.tsv", "1\t\t2\t5\n", {"source": 1, "target": 3, "weight": 4}, [("1", "2", 5.0)]),
        ("a.edgelist", "a b {'weight': 3, 'color': 'red, blue'}\nb c {'weight': 2.5}\n", {},
         [("a", "b", 3.0), ("b", "c", 2.5)]),
        ("a.edgelist", "a b {}\n", {}, [("a", "b", 1.0)]),
        ("a.edgelist", "a,b,{'toll': 4}\n", {"weight": "toll"}, [("a", "b", 4.0)]),
        ("out.opsahl-usairport", "% sym positive\n1 2 4 9\n", {}, [("1", "2", 4.0)]),
        ("out.gz", gzip.compress(b"1 2 4\n", mtime=0), {"format": "txt"}, [("1", "2", 4.0)]),
        ("whatever", "1 2 4\n", {"format": "csv"}, [("1", "2", 4.0)]),
        ("whatever.gr", "1 2 4\n", {"format": ".CSV"}, [("1", "2", 4.0)]),
        ("whatever", gzip.compress(b"1 2 4\n", mtime=0), {"format": "csv.gz"}, [("1", "2", 4.0)]),
    ],
)  # fmt: skip
def test_edge_lists_of_public_collections(tmp_path, name, text, given, wanted):
    assert edges(read_graph(write(tmp_path, name, text), **given)) == wanted


def test_edge_list_in_parquet(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"source": [1, 2], "target": ["a", "é"], "price": [2.5, 4.0], "id": [1, 2]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    graph = read_graph(tmp_path / "a.parquet")
    assert edges(graph) == [("1", "a", 1.0), ("2", "é", 1.0)]
    assert graph.warnings == (UNUSED.format(LEGS, "price"),)
    assert read_graph(tmp_path / "a.parquet", weight="price").weight.tolist() == [2.5, 4.0]
    pq.write_table(pa.table({**columns, "price": [1.0, None]}), tmp_path / "a.parquet")
    with pytest.raises(GraphFileError, match=r"a\.parquet:2: expected a finite number as weight"):
        read_graph(tmp_path / "a.parquet", weight="price")
    with pytest.raises(GraphFileError, match="not a Parquet file"):
        read_graph(write(tmp_path, "b.parquet", b"PAR1junkPAR1"))


def test_parquet_of_more_rows_than_memory(tmp_path, monkeypatch):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    ends = np.zeros(100_000, np.int64)
    pq.write_table(pa.table({"source": ends, "target": ends}), tmp_path / "a.parquet")
    monkeypatch.setattr(columns, "free_memory", lambda: 4_000_000)
    with pytest.raises(GraphFileError, match="100,000 rows are too many for the memory"):
        read_graph(tmp_path / "a.parquet")


def test_streams(tmp_path):
    text = b"from,to,km\nA,B,2\n"
    for stream, kind in (
        (io.BytesIO(text), "csv"),
        (io.BytesIO(bz2.compress(text)), "csv.bz2"),
        (io.BytesIO(GR.encode()), ".gr"),
    ):
        assert ("2" if kind == ".gr" else "B") in read_graph(stream, format=kind).nodes
    with pytest.raises(GraphFileError, match=r"<stream>:2: expected 3 fields"):
        read_graph(io.BytesIO(b"A,B,2\nB,C"), format="csv")
    for matrix in ("npy", "npz"):
        held = io.BytesIO()
        {"npy": np.save, "npz": np.savez}[matrix](held, [[0, 2.0], [np.inf, 0]])
        held.seek(0)
        assert edges(read_graph(held, format=matrix)) == [("0", "1", 2.0)]
    with pytest.raises(GraphFileError, match=r"<stream>: unknown extension '\(none\)'"):
        read_graph(io.BytesIO(text))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_a_pipe_is_a_stream(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    write_text = (tmp_path / "pipe").write_text  # waits until the pipe is read
    threading.Thread(target=write_text, args=["A B 2\n"], daemon=True).start()
    assert edges(read_graph(tmp_path / "pipe", format="txt")) == [("A", "B", 2.0)]


def test_several_files_are_one_graph(tmp_path):
    first = write(tmp_path, "a.csv", "from,to,km\nA,B,2\nB,C,3\n")
    second = write(tmp_path, "b.tsv", "C\tD\t4\nA\tB\t5\n".replace("C\tD", "from\tto\tkm\nC\tD"))
    graph = read_graph([first, second])
    assert graph.nodes == ["A", "B", "C", "D"]
    assert edges(graph) == [("A", "B", 2.0), ("B", "C", 3.0), ("C", "D", 4.0), ("A", "B", 5.0)]
    assert (graph.unit, graph.weight_source) == ("km", "km (column 3)")
    nodes = write(tmp_path, "n.csv", "id,name,lat,lon\nD,Dee,0,0\nC,,0,1\nB,,0,2\nA,,0,3\n")
    table = read_graph([first, second], nodes=nodes)
    assert table.nodes == ["D", "C", "B", "A"]
    assert edges(table) == edges(graph)
    assert_array_equal(table.coordinates[:, 0], [0, 1, 2, 3])
    assert read_graph([first]).nodes == ["A", "B", "C"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("from,to,km,Type\nA,B,2,Undirected\n",
         "b.csv: its edges lead both ways (column Type), those of "),
        ("from,to\nA,B\n", "b.csv: the weights are none: legs are counted, those of "),
        ("from,to,miles\nA,B,2\n", "b.csv: the weights are miles (column 3) in miles, those of "),
        ("from,to,m\nA,B,2\n", "b.csv: the weights are m (column 3) in no unit, those of "),
    ],
)  # fmt: skip
def test_several_files_that_differ_in_kind(tmp_path, text, words):
    first = write(tmp_path, "a.csv", "from,to,km\nA,B,2\nB,C,3\n")
    refused(words, [first, write(tmp_path, "b.csv", text)])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"weight": True}, "weight is a column's name or its number from 1 on, got True"),
        ({"weight": " "}, "weight is a column's name or its number from 1 on, got ' '"),
        ({"source": 1.5}, "source is a column's name or its number from 1 on, got 1.5"),
        ({"format": 3}, "format is an extension such as 'csv', got 3"),
        ({"directed": "no"}, "directed is True, False or None, got 'no'"),
        ({"path": 3}, "read from a path, a list of paths or a stream of bytes such as sys.stdin."),
        ({"path": io.StringIO("A B")}, "sys.stdin.buffer, got StringIO"),
    ],
)
def test_arguments_of_another_type(tmp_path, given, words):
    path = write(tmp_path, "a.csv", "A,B\n")
    with pytest.raises(TypeError) as caught:
        read_graph(given.pop("path", path), **given)
    assert words in str(caught.value)
    with pytest.raises(ValueError, match="from one file or more, got an empty list"):
        read_graph([])


def test_parallel_edges_and_loops_are_kept(tmp_path):
    graph = read_graph(write(tmp_path, "a.csv", "A,B,2\nA,B,1\nB,B,0\n"))
    assert edges(graph) == [("A", "B", 2.0), ("A", "B", 1.0), ("B", "B", 0.0)]


def test_nodes_give_order_names_and_great_circle_lengths(tmp_path):
    nodes = write(
        tmp_path,
        "nodes.csv",
        "iata,city,latitude,longitude\nLHR,London,51.4706,-0.4619\nXXX,Nowhere,,\n"
        "JFK,New York,40.6398,-73.7789\n",
    )
    graph = read_graph(write(tmp_path, "a.csv", "from,to\nJFK,LHR\n"), nodes=nodes)
    assert graph.nodes == ["LHR", "XXX", "JFK"]
    assert graph.names == ["London", "Nowhere", "New York"]
    assert graph.geographic
    assert_allclose(graph.coordinates[0], [-0.4619, 51.4706])
    assert np.isnan(graph.coordinates[1]).all()
    assert (graph.row.tolist(), graph.col.tolist()) == ([2], [0])
    assert_allclose(graph.weight, 5540, rtol=1e-3)
    assert graph.unit == "km"


def test_labels_of_gephi_are_names(tmp_path):
    nodes = write(tmp_path, "nodes.csv", "Id,Label,timeset\n2,Bob,\n1,Ann,\n")
    graph = read_graph(write(tmp_path, "a.csv", "Source,Target\n1,2\n"), nodes=nodes)
    assert (graph.nodes, graph.names) == (["2", "1"], ["Bob", "Ann"])


def test_nodes_with_x_and_y_do_not_measure(tmp_path):
    nodes = write(tmp_path, "nodes.csv", "id,name,x,y\n2,two,500,3\n1,one,-1,4\n")
    graph = read_graph(write(tmp_path, "a.gr", "p sp 2 1\na 1 2 7\n"), nodes=nodes)
    assert graph.nodes == ["2", "1"]
    assert edges(graph) == [("1", "2", 7.0)]
    assert not graph.geographic
    assert_array_equal(graph.coordinates, [[500, 3], [-1, 4]])


def test_tntp_node_table_serves_as_nodes(tmp_path):
    nodes = write(tmp_path, "a_node.tntp", "Node\tX\tY\t;\n1\t0\t0\t;\n2\t1\t0\t;\n3\t1\t1\t;\n")
    graph = read_graph(write(tmp_path, "a_net.tntp", TNTP), nodes=nodes)
    assert_array_equal(graph.coordinates, [[0, 0], [1, 0], [1, 1]])


def test_great_circle_known_distances():
    equator = great_circle(np.array([[0.0, 0.0]]), np.array([[90.0, 0.0], [180.0, 0.0]]))
    assert_allclose(equator, np.pi * 6371.0088 * np.array([0.5, 1.0]))
    assert great_circle(np.array([5.0, 50.0]), np.array([5.0, 50.0])) == 0
    near = great_circle(np.array([5.0, 50.0]), np.array([5.0, 50.000001]))
    assert_allclose(near, 6371.0088 * np.radians(1e-6), rtol=1e-6)


def test_networkx_weight_attribute_and_longitude(tmp_path):
    nx = pytest.importorskip("networkx")
    source = nx.DiGraph()
    source.add_node(0, lon=8.5, lat=47.4)
    source.add_node(1, lon=2.3, lat=48.9)
    source.add_edge(0, 1, toll=4)
    nx.write_graphml(source, tmp_path / "g.graphml")
    measured = read_graph(tmp_path / "g.graphml")
    assert measured.directed
    assert measured.geographic
    assert measured.unit == "km"
    assert_allclose(measured.weight, 489, rtol=0.02)
    assert read_graph(tmp_path / "g.graphml", weight="toll").weight.tolist() == [4.0]


def test_networkx_position_attribute(tmp_path):
    nx = pytest.importorskip("networkx")
    source = nx.Graph([("a", "b")])
    nx.set_node_attributes(source, {"a": "1.5,2", "b": "-3,4e1"}, "pos")
    nx.write_graphml(source, tmp_path / "g.graphml")
    graph = read_graph(tmp_path / "g.graphml")
    assert_array_equal(graph.coordinates, [[1.5, 2], [-3, 40]])
    assert graph.weight.tolist() == [1.0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.gml", "graph [ directed 1 ]"),
        ("a.graphml", "<graphml xmlns='http://graphml.graphdrawing.org/xmlns'>"
         "<graph edgedefault='directed'/></graphml>"),
        ("a.gr", "p sp 0 0\n"),
        ("a.mtx", "%%MatrixMarket matrix coordinate real general\n0 0 0\n"),
    ],
)  # fmt: skip
def test_graphs_without_nodes(tmp_path, name, text):
    graph = read_graph(write(tmp_path, name, text))
    assert (len(graph.nodes), len(graph.row), graph.directed) == (0, 0, True)


@pytest.mark.parametrize("names", ["length,length_m", "length_m,length"])
def test_a_column_without_a_unit_goes_first(tmp_path, names):
    weights = "2,2000" if names.startswith("length,") else "2000,2"
    path = write(tmp_path, "a.csv", f"from,to,{names}\nA,B,{weights}\n")
    assert read_graph(path).weight.tolist() == [2.0]


def test_weight_column_by_exact_name_where_two_are_alike(tmp_path):
    path = write(tmp_path, "a.csv", "from,to,weight,Weight\nA,B,2,3\n")
    assert read_graph(path, weight="Weight").weight.tolist() == [3.0]
    with pytest.raises(GraphFileError, match="'weight' and 'Weight' go by the same name"):
        read_graph(path, weight="WEIGHT")


def test_npy(tmp_path):
    matrix = np.array([[0, 2, np.inf], [np.inf, 0, 0], [1, np.inf, 5]])
    np.save(tmp_path / "a.npy", matrix)
    graph = read_graph(tmp_path / "a.npy")
    assert edges(graph) == [("0", "1", 2.0), ("1", "2", 0.0), ("2", "0", 1.0), ("2", "2", 5.0)]
    zeros = "zeros off the diagonal: 1, an edge of weight 0 each; where no edge is meant, write inf"
    assert graph.warnings == zero_warnings(matrix) == (zeros,)
    assert_array_equal(read_matrix(tmp_path / "a.npy"), matrix)


def test_npy_bool_is_reachability(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[False, True], [False, False]]))
    assert edges(read_graph(tmp_path / "a.npy")) == [("0", "1", 1.0)]


@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
@pytest.mark.parametrize("kind", ["array", "matrix"])
def test_npz_of_scipy(tmp_path, layout, kind):
    make = getattr(scipy.sparse, f"coo_{kind}")
    data, where = np.array([3, 0, 4]), (np.array([0, 1, 1]), np.array([1, 2, 0]))
    scipy.sparse.save_npz(tmp_path / "a.npz", make((data, where), (3, 3)).asformat(layout))
    graph = read_graph(tmp_path / "a.npz")
    assert sorted(edges(graph)) == [("0", "1", 3.0), ("1", "0", 4.0), ("1", "2", 0.0)]


def test_npz_of_rows_with_room_behind_them(tmp_path):
    held = {"indices": [1, 0, 9, 9], "indptr": [0, 1, 2], "data": [3.0, 4.0, 0.0, 0.0]}
    np.savez(tmp_path / "a.npz", format=b"csr", shape=(2, 2), **held)
    assert edges(read_graph(tmp_path / "a.npz")) == [("0", "1", 3.0), ("1", "0", 4.0)]


def test_npz_of_plain_arrays(tmp_path):
    np.savez(tmp_path / "a.npz", row=[0, 0], col=[1, 1], data=[2.0, 3.0], shape=(2, 2))
    assert edges(read_graph(tmp_path / "a.npz")) == [("0", "1", 2.0), ("0", "1", 3.0)]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_of_a_dense_matrix(tmp_path, save):
    matrix = np.array([[0, 2, 0], [np.inf, 0, 1], [5, np.inf, 0]])
    save(tmp_path / "a.npz", W=np.asfortranarray(matrix), names=np.array(["a", "b", "c"]))
    graph = read_graph(tmp_path / "a.npz")
    assert edges(graph) == [("0", "1", 2.0), ("0", "2", 0.0), ("1", "2", 1.0), ("2", "0", 5.0)]
    assert graph.warnings == zero_warnings(matrix)


def test_zeros_are_counted_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(npy, "_PIECE", 7)
    matrix = np.random.default_rng(0).integers(0, 3, (9, 9)).astype(np.float32)
    np.save(tmp_path / "a.npy", matrix)
    zeros = np.count_nonzero(matrix + np.eye(9) == 0)
    mapped = npy.map_matrix(file.File(tmp_path / "a.npy"))
    assert zero_warnings(mapped)[0].startswith(f"zeros off the diagonal: {zeros}, ")
    assert zero_warnings(np.where(matrix == 0, np.inf, matrix)) == ()
    assert zero_warnings(np.eye(3)[::-1] == 1) == ()
    assert zero_warnings(np.zeros((1, 1))) == zero_warnings(np.zeros((0, 0))) == ()


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            st.text("abcé ,;\"'#%_-1", min_size=1, max_size=5),
            st.text("abcé ,;\"'#%_-1", min_size=1, max_size=5),
            st.floats(allow_nan=False, allow_infinity=False),
        ).filter(lambda row: all(row[k].strip() == row[k] for k in (0, 1))),
        min_size=1,
        max_size=8,
    ),
    delimiter=st.sampled_from(",;\t"),
)
def test_edge_list_round_trip(tmp_path_factory, rows, delimiter):
    quoted = [
        [f'"{cell.replace(chr(34), 2 * chr(34))}"' for cell in row[:2]] + [repr(row[2])]
        for row in rows
    ]
    lines = [["from", "to", "weight"], *quoted]
    folder = tmp_path_factory.mktemp("round")
    path = write(folder, "a.csv", "".join(delimiter.join(line) + "\n" for line in lines))
    assert edges(read_graph(path)) == rows


def test_real_files():
    rome = read_graph(real_file("rome99.gr"))
    assert (len(rome.nodes), len(rome.row), rome.weight.min()) == (3353, 8870, 1)
    chicago = read_graph(real_file("ChicagoRegional_net.tntp"))
    assert (len(chicago.nodes), len(chicago.row)) == (12982, 39018)
    assert chicago.notes[0].startswith("nodes 1-1790 are zone centroids")
    assert read_graph(real_file("ChicagoRegional_net.tntp"), weight="free_flow_time").weight[0] == 0
    grid = read_graph(real_file("scigrid_de_lines.csv"), nodes=real_file("scigrid_de_buses.csv"))
    assert (len(grid.nodes), len(grid.row)) == (585, 852)
    for n in (1000, 2003, 2500):
        name = f"test_FW_{n}.mtx"
        graph = read_graph(real_file(name))
        whole = scipy.io.mmread(real_file(name))
        assert_array_equal(graph.row, whole.row)
        assert_array_equal(graph.col, whole.col)
        assert_array_equal(graph.weight, whole.data)


# --- what is refused ---------------------------------------------------------------------------

REFUSED = [
    # DIMACS
    ("a.gr", GR.replace("a 2 3 0", "a 2 x"), ":4: expected 'a FROM TO WEIGHT', got 'a 2 x'"),
    ("a.gr", GR.replace("a 2 3 0", "a 2 3"), ":4: expected 'a FROM TO WEIGHT'"),
    ("a.gr", GR.replace("a 2 3 0", "a 2 3 1_0"), ":4: expected 'a FROM TO WEIGHT'"),
    ("a.gr", GR.replace("a 2 3 0", "arc 2 3 0"), ":4: expected 'a FROM TO WEIGHT'"),
    ("a.gr", GR.replace("a 2 3 0", "a 2 3 nan"), ":4: weight nan; expected a finite number"),
    ("a.gr", GR.replace("a 2 3 0", "a 2 3 1e999"), ":4: weight inf; expected a finite number"),
    ("a.gr", GR.replace("a 2 3 0", "a 2 4 0"), ":4: node 4 is out of range: nodes are 1 to 3"),
    ("a.gr", GR.replace("a 2 3 0", "a 0 3 0"), ":4: node 0 is out of range"),
    ("a.gr", GR.replace("a 2 3 0", "a -9 3 0"), ":4: node -9 is out of range"),
    ("a.gr", GR.replace("a 2 3 0", f"a {10**30} 3 0"), f":4: node {10**30} is out of range"),
    ("a.gr", GR.replace("a 2 3 0", "e 2 3 0"), ":4: expected 'a FROM TO WEIGHT', got 'e 2 3 0'"),
    ("a.gr", GR + "p sp 3 3\n", ":6: expected 'a FROM TO WEIGHT', got 'p sp 3 3'"),
    ("a.gr", GR + "a 1 3 1\n", ":6: more than the 3 arcs promised on line 2"),
    ("a.gr", GR[:-10], ":4: the file ends after 2 of the 3 arcs promised on line 2"),
    ("a.gr", "a 1 2 3\n", ":1: expected 'p sp NODES ARCS' (shortest paths) or 'p tw "),
    ("a.gr", "c only\n", ":1: no line 'p sp NODES ARCS' (shortest paths) or "),
    ("a.gr", "p edge 3 3\n", "(shortest paths) or 'p tw NODES EDGES' (PACE), got 'p edge 3 3'"),
    ("a.gr", "p sp 3 x\n", ":1: expected a number of arcs, got 'x'"),
    ("a.gr", "p sp -3 1\n", ":1: expected a number of nodes, got '-3'"),
    ("a.gr", "p sp 99999999999999 1\n", ":1: expected a number of nodes, got '99999999999999'"),
    ("a.gr", "", ": the file is empty"),
    ("a.gr", " \n\n", ": the file is empty"),
    ("a.gr", b"p sp 1 0\nc \x00\x01\x02\n", ":2: binary data, expected text"),
    ("a.gr", b"p sp 1 0\nc caf\xe9\n", ":2: byte 0xe9 is not UTF-8"),
    ("a.gr.gz", b"not gzip", ": not a whole gzip file"),
    ("a.gr.gz", gzip.compress(GR.encode(), mtime=0)[:-12], ": not a whole gzip file"),
    ("a.gr.gz", gzip.compress(b"", mtime=0), ": the file is empty"),
    # MatrixMarket
    ("a.mtx", "1 2 3\n", ":1: expected '%%MatrixMarket matrix coordinate real general'"),
    ("a.mtx", MTX.replace("real", "complex"), ":1: 'complex' is not supported; accepted: real, "),
    ("a.mtx", MTX.replace("general", "hermitian"), "'hermitian' is not supported; accepted: gen"),
    ("a.mtx", MTX.replace("general", "skew-symmetric"), "entry (3, 3) of a skew-symmetric"),
    ("a.mtx", MTX[:46], ":1: the file ends before the line with the matrix's size"),
    ("a.mtx", MTX.replace("3 3 2", "3 3"), ":3: expected 'ROWS COLUMNS ENTRIES', got '3 3'"),
    ("a.mtx", MTX.replace("3 3 2", "3 4 2"), ":3: a graph is a square matrix, got 3 × 4"),
    ("a.mtx", MTX.replace("3 3 2", "3 3 3"), ":5: the file ends after 2 of the 3 entries"),
    ("a.mtx", MTX.replace("3 3 2", "3 3 1"), ":5: more than the 1 entries promised on line 3"),
    ("a.mtx", MTX.replace("0.5", "half"), ":4: expected 'ROW COLUMN VALUE', got '1 2 half'"),
    ("a.mtx", MTX.replace("0.5", ""), ":4: expected 'ROW COLUMN VALUE', got '1 2'"),
    ("a.mtx", MTX.replace("1 2 0.5", "4 2 0.5"), ":4: node 4 is out of range: nodes are 1 to 3"),
    ("a.mtx", "%%MatrixMarket matrix array pattern general\n1 1\n1\n", "not a MatrixMarket"),
    ("a.mtx", "%%MatrixMarket matrix array real general\n1 1\nnan\n", ":3: weight nan; expected"),
    ("a.mtx", "%%MatrixMarket matrix array real general\n1 1\n1 1\n", ":3: expected 'VALUE'"),
    # TNTP
    ("a.tntp", "~ a b\n1 2\n", ":2: no <END OF METADATA> in the file"),
    ("a.tntp", TNTP.replace("<NUMBER OF NODES> 3\n", ""), ":5: no <NUMBER OF NODES> before"),
    ("a.tntp", TNTP.replace("<NUMBER OF NODES> 3", "<NUMBER OF ZONES> 3"), ":2: a second <NUMBER"),
    ("a.tntp", TNTP.replace("LINKS> 2", "LINKS> two"), ":4: expected a number of links, got 'two'"),
    ("a.tntp", TNTP.replace("LINKS> 2", "LINKS> 3"), ":10: the file ends after 2 of the 3 links"),
    ("a.tntp", TNTP.replace("LINKS> 2", "LINKS> 1"), ":10: more than the 1 links promised on line"),
    ("a.tntp", TNTP.replace("~\tInit", "Init"), ":8: expected '~' and the column names"),
    ("a.tntp", TNTP + "~ 1 2 3 ;\n", ":11: a second line of column names"),
    ("a.tntp", TNTP.replace("Length (miles)", "long"), ":8: no column 'length'; columns: Init "),
    ("a.tntp", TNTP.replace("0.25\t", ""), ":10: expected 4 numbers (Init node, Term node, "),
    ("a.tntp", TNTP.replace("\t2\t3", "\t2\t4"), ":10: node 4 is out of range"),
    ("a.tntp", TRIPS.replace("ZONES", "SQUARES"), ":3: no <NUMBER OF NODES> before"),
    ("a.tntp", TRIPS.replace("Origin  1", "From 1"), ":6: expected 'Origin ZONE', or"),
    ("a.tntp", TRIPS.replace("Origin  1", "Origin"), ":6: expected 'Origin ZONE', or"),
    ("a.tntp", TRIPS.replace("Origin  1\n", ""), ":6: expected 'Origin ZONE', or"),
    ("a.tntp", TRIPS.replace("2.5;", "many;"), ":7: expected 'Origin ZONE', or 'ZONE : TRIPS;' of"),
    ("a.tntp", TRIPS.replace("2.5;", "inf;"), ":7: expected 'Origin ZONE', or 'ZONE : TRIPS;' of"),
    ("a.tntp", TRIPS.replace("1:6", "1:6_0"), ":9: expected 'Origin ZONE', or 'ZONE : TRIPS;' of"),
    ("a.tntp", TRIPS.replace("Origin 3", "Origin 4"), ":8: node 4 is out of range: nodes are 1 to"),
    ("a.tntp", TRIPS.replace("3 : 4", "0 : 4"), ":7: node 0 is out of range: nodes are 1 to 3"),
    # edge lists
    ("a.csv", "A,B,2\nB,C,x\n", ":2: expected a finite number as weight, got 'x'"),
    ("a.csv", "A,B,2\nB,C,\n", ":2: expected a finite number as weight, got ''"),
    ("a.csv", "A,B,2\nB,C,NaN\n", ":2: expected a finite number as weight, got 'NaN'"),
    ("a.csv", "A,B,2\nB,C,inf\n", ":2: expected a finite number as weight, got 'inf'"),
    ("a.csv", "A,B,2\nB,C,1_0\n", ":2: expected a finite number as weight, got '1_0'"),
    ("a.csv", "A,B,2\nB,C\n", ":2: expected 3 fields, got 2: 'B, C'"),
    ("a.csv", "from,to,w\nA,B,2,3\n", ":2: expected 3 fields (from, to, w), got 4: 'A, B, 2, 3'"),
    ("a.csv", "from,to,w\nA,,2\n", ":2: a node without a name: 'A, , 2'"),
    ("a.csv", "from,to,w,w\nA,B,2,3\n", ":1: two columns are named 'w'"),
    ("a.csv", "from,to,w\nA,B,2\nfrom,to,w\n", ":3: expected a finite number as weight, got 'w'"),
    ("a.csv", "from,to,w\n", ":1: a header line and no edges"),
    ("a.csv", "A,B,2,3,4\n", ":1: expected FROM, TO and perhaps WEIGHT, or a header line"),
    ("a.csv", "from,to,weight,Weight\nA,B,2,3\n", ":1: columns 'weight' and 'Weight' go by"),
    ("a.csv", "from,to,length_km,Length (mi)\nA,B,2,3\n", "columns 'length_km' and 'Length (mi)'"),
    ("a.csv", "from,From,to\nA,B,2\n", ":1: columns 'from' and 'From' go by the same name"),
    ("a.csv", "A,B,1+2j\n", ":1: expected a finite number as weight, got '1+2j'"),
    ("a.csv", "A,B,\u0663\n", ":1: expected a finite number as weight, got '\u0663'"),
    ("a.csv", f"A,B,{'9' * 5000}\n", ":1: expected a finite number as weight, got '9999"),
    ("a.csv", f"A,{'B' * 200_000},1\n", ":1: field larger than field limit"),
    ("a.csv", ",,,\n", ":1: expected FROM, TO and perhaps WEIGHT"),
    ("a.csv", "lonely\n", ":1: expected FROM, TO and perhaps WEIGHT"),
    ("a.csv", "name,place,weight\nA,B,2\n", ":1: expected a finite number as weight, got 'weight'"),
    ("a.csv", "# nothing\n\n", ":2: only comments and blank lines in the file"),
    ("a.csv", 'from,to\nA,"B\n', ":2: unexpected end of data"),
    ("a.csv", b"PK\x03\x04\x00\x00", ":1: binary data, expected text"),
    ("a.csv", "Id,Label\n1,Ann\n2,Bob\n", ":1: 'Id, Label' are the columns of a table of nodes"),
    ("a.csv", "id,lat,lon\n1,2,3\n", ":1: 'id, lat, lon' are the columns of a table of nodes"),
    ("a.csv", "person,friend\n1,2\n2,3\n", ":1: 'person, friend' are the only nodes that are no"),
    ("a.csv", "person,friend,price\n1,2,3\n", "'price'; if the line has names of columns, call"),
    ("a.csv", "u,v,Type\n1,2,Undirected\n2,3,\n", ":3: column Type: expected directed or undirec"),
    ("a.csv", "u,v,directed\n1,2,0\n2,3,2\n", ":3: column directed: expected true, false, yes,"),
    ("a.txt", "4 4\n2 4\n1 3\n2 4\n1 3\n", ":1: a file of METIS, neighbours of node after node"),
    ("a.txt", "4 4 10\n1 2 4\n1 1 3\n1 2 4\n1 1 3\n", ":1: a file of METIS, neighbours of node"),
    ("a.txt", "3 2\n2\n1 3\n2\n", ":2: expected 2 fields, got 1: '2'; if line 1 has the sizes of"),
    ("a.txt", "% bip unweighted\n1 2\n2 3\n", ":1: a bipartite network, in which one number"),
    ("a.el", "a b {'weight': 3}\nb c {'weight': f()}\n", ":2: expected FROM, TO and {'name': val"),
    ("a.el", "a b {'weight': 3}\nb c {}\n", ":2: expected a finite number as weight, got ''"),
    ("a.el", "a b {'w': '" + "x" * 200_000 + "'}", ":1: expected FROM, TO and {'name': value}, go"),
    ("a.el", ",".join("a" * 9_999), ":1: expected FROM, TO and perhaps WEIGHT, or a header line"),
    ("a.el", "a b {'w': " + "[" * 3000 + "}", ":1: expected FROM, TO and {'name': value}, got"),
    # the others
    ("a.xyz", "A B\n", "unknown extension '.xyz'; accepted: .gr, .mtx, .graph, "),
    ("graph", "A B\n", "unknown extension '(none)'"),
    ("a.npy.gz", gzip.compress(b"x", mtime=0), "unknown extension '.npy.gz'"),
    ("a.npy", b"junk", "not a .npy file of numbers"),
    ("a.npy", b"", "not a .npy file of numbers"),
    ("a.npy", b"\x93NUMPY\x01\x00\x06\x00{'a': ", "not a .npy file of numbers"),
    ("a.npy", b"\x93NUMPY\x01\x00\x04\x00(((\n", "not a .npy file of numbers"),
    ("a.npz", b"junk", "not a .npz archive of numbers"),
    ("a.npz", b"PK\x03\x04junk", "not a .npz archive of numbers"),
    ("a.graphml", "<graphml>\n<graph>\n", ":3: not XML (no element found"),
    ("a.graphml", "<html></html>", "not a .graphml graph"),
    ("a.graphml", "<?xml version='1.0' encoding='rot13'?><graphml/>", "graph (LookupError"),
    ("a.graphml", "<graphml xmlns='http://graphml.graphdrawing.org/xmlns'/>", "not a .graphml"),
    ("a.gml", "graph [ node [", "not a .gml graph"),
    ("a.gml", "graph [ a " + "[ a " * 5000 + "] " * 5001, "not a .gml graph (RecursionError"),
    ("a.gml", "graph [ node [ id 0 lat 91 lon 0 ] ]",
     "node 0: expected a number from -90 to 90 as lat, got 91"),
    ("a.gml", "graph [ node [ id 0 x +INF y 0 ] ]", "node 0: expected a number as x, got inf"),
    ("a.gml", "graph [ node [ id 0 ] node [ id 1 ] edge [ source 0 target 1 weight \"x\" ] ]",
     "edge 0 - 1: expected a finite number as weight, got 'x'"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "words"), REFUSED)
def test_refused_with_line_and_reason(tmp_path, name, text, words):
    path = write(tmp_path, name, text)
    with pytest.raises(GraphFileError) as caught:
        read_graph(path)
    assert str(caught.value).startswith(str(path))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((2, 3)), "expected a square matrix, got shape (2, 3)"),
        (np.zeros(4), "expected a square matrix, got shape (4,)"),
        (np.array([[0, np.nan], [1, 0]]), "entry (0, 1) is nan; weights are numbers"),
        (np.array([[0, 1], [-np.inf, 0]]), "entry (1, 0) is -inf"),
        (np.zeros((2, 2), complex), "expected real numbers, got dtype complex128"),
        (np.array([["a"]]), "expected real numbers, got dtype <U1"),
        (np.array([[None]], dtype=object), "not a .npy file of numbers"),
    ],
)
def test_npy_refused(tmp_path, array, words):
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    refused(words, tmp_path / "a.npy")


GOOD_NPZ = {"row": [0, 1], "col": [1, 0], "data": [2.0, 3.0], "shape": (2, 2)}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"weight": "7"}, ":1: no column 7; there are 3"),
        ({"weight": "0"}, ":1: no column 0; there are 3"),
        ({"weight": "2"}, ":1: one column twice: from from, to to, weight to; choose others"),
        ({"source": "2"}, ":1: one column twice: from to, to to; choose others"),
        ({"source": "place"}, ":1: no column 'place'; columns: from, to, price"),
    ],
)
def test_columns_refused(tmp_path, given, words):
    refused(words, write(tmp_path, "a.csv", "from,to,price\nA,B,2\n"), **given)


def test_ends_of_a_format_without_columns(tmp_path):
    with pytest.raises(GraphFileError, match=r"columns of the ends are those of edge lists, not o"):
        read_graph(write(tmp_path, "a.gr", GR), source=1)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"W": np.eye(2), "V": np.eye(2)}, "one square matrix of numbers, got W, V, among the arr"),
        ({"a": [1], "b": np.ones((2, 3))}, "of numbers, got none, among the arrays a, b; save one"),
        ({"W": np.array([[0, np.nan], [1, 0]])}, "entry (0, 1) is nan; weights are numbers"),
        ({}, "expected one square matrix of numbers, got none, among the arrays (none)"),
    ],
)
def test_dense_npz_refused(tmp_path, arrays, words):
    np.savez(tmp_path / "a.npz", **arrays)
    refused(words, tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"col": [1, 2]}, "entry (1, 2): out of range for n = 2"),
        ({"row": [0, -1]}, "entry (-1, 0): out of range for n = 2"),
        ({"data": [2.0, np.nan]}, "entry (1, 0): weight nan; expected a finite number"),
        ({"data": [2.0, -np.inf]}, "entry (1, 0): weight -inf; expected a finite number"),
        ({"data": [2.0]}, "2 row, 2 column and 1 data entries; expected equal"),
        ({"data": [2j, 1j]}, "expected real numbers as data, got complex128"),
        ({"row": [0.0, 1.0]}, "expected integers as row, got float64"),
        ({"shape": [-1, -1]}, "expected two whole numbers as shape, got (-1, -1) in int64"),
        ({"shape": [3.7, 3.7]}, "expected two whole numbers as shape, got (3.7, 3.7) in float64"),
        ({"shape": ["3", "3"]}, "expected two whole numbers as shape, got ('3', '3') in <U1"),
        ({"shape": 3}, "expected two whole numbers as shape, got (3,) in int64"),
        ({"shape": (10**9, 10**9)}, "expected at most 50,000,000 nodes, got shape (1000000000, "),
        ({"data": np.array(["1", None], object)}, "not a .npz archive of numbers (data.npy holds"),
        ({"format": ["csr", "csc"]}, "a sparse matrix in format \"['csr', 'csc']\""),
        ({"shape": (2, 3)}, "expected a square matrix, got shape (2, 3)"),
        ({"shape": None}, "no array 'shape' in the archive, which has: row, col, data"),
        ({"format": b"bsr"}, "a sparse matrix in format 'bsr'; accepted: csr, csc, coo"),
        ({"format": b"csr"}, "no array 'indices' in the archive"),
        ({"format": b"csr", "indices": [1, 0], "indptr": [0, 1]}, "indptr does not index the 2"),
    ],
)
def test_npz_refused(tmp_path, change, words):
    arrays = {name: value for name, value in (GOOD_NPZ | change).items() if value is not None}
    np.savez(tmp_path / "a.npz", **arrays, allow_pickle=True)
    refused(words, tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("iata,city\nA,x\nA,y\n", "nodes.csv:3: node 'A' again, after line 2"),
        ("iata,city\nA,x\n,y\n", "nodes.csv:3: a node without a name"),
        ("iata,city\nA\n", "nodes.csv:2: expected 2 fields (iata, city), got 1: 'A'"),
        ("iata,city\n", "nodes.csv:1: a header line and no nodes"),
        ("airport,place\nA,x\n", "nodes.csv:1: expected a header line with a column id, iata, "),
        ("id,id\nA,x\n", "nodes.csv:1: two columns are named 'id'"),
        ("id,lat,lon\nA,91,0\n", "nodes.csv:2: lat: expected a number from -90 to 90, got '91'"),
        ("id,lat,lon\nA,9,361\n", "nodes.csv:2: lon: expected a number from -360 to 360"),
        ("id,x,y\nA,9,far\n", "nodes.csv:2: y: expected a number, got 'far'"),
        ("id,lat,lon\nA,9,0\n", "routes.csv:2: node 'B' is not in "),
        ("id,lat,lon\nA,9,0\nB,,\n", "no weights and node 'B' no coordinates to measure"),
    ],
)
def test_nodes_refused(tmp_path, text, words):
    nodes = write(tmp_path, "nodes.csv", text)
    refused(words, write(tmp_path, "routes.csv", "from,to\nA,B\n"), nodes=nodes)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "from,to,km,toll\nA,B,1,2\n", ":1: no column 'cost'; columns: from, to, km"),
        ("a.csv", "A,B,2\n", ":1: no column 'cost': the file has no header line"),
        ("a.gr", GR, "a .gr file has one weight an edge and no column 'cost'"),
        ("a.gml", "graph [ node [ id 0 ] edge [ source 0 target 0 toll 1 ] ]",
         "no attribute 'cost'; attributes: toll"),
    ],
)  # fmt: skip
def test_unknown_weight_column(tmp_path, name, text, words):
    refused(words, write(tmp_path, name, text), weight="cost")


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("a.gml", ["networkx"]),
        ("a.parquet", ["pyarrow.parquet"]),
        ("a.csv.zst", ["backports.zstd", "compression.zstd"]),
    ],
)
def test_formats_of_other_packages_say_what_to_install(tmp_path, monkeypatch, name, modules):
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "semiring-mm\[io\]"'):
        read_graph(write(tmp_path, name, "graph [ ]"))


def test_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_graph(tmp_path / "absent.gr")
    with pytest.raises(FileNotFoundError):
        read_graph(tmp_path / "absent.npy")


# --- memory ------------------------------------------------------------------------------------


@pytest.fixture
def lean():
    """Whatever is done in the test takes little memory."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6


def test_labels_of_numbered_nodes_take_no_memory(tmp_path, lean):
    n = 50_000_000
    graph = read_graph(write(tmp_path, "a.gr", f"p sp {n} 1\na 1 {n} 2\n"))
    assert edges(graph) == [("1", str(n), 2.0)]
    np.savez(tmp_path / "a.npz", row=[0], col=[n - 1], data=[2.0], shape=(n, n))
    assert edges(read_graph(tmp_path / "a.npz")) == [("0", str(n - 1), 2.0)]


def test_number_labels_are_a_sequence_of_words():
    labels = read_graph(ROOT / "examples" / "routes.csv").nodes
    assert isinstance(labels, list)
    labels = NumberLabels(1, 12)
    words = [str(k) for k in range(1, 13)]
    assert labels == words
    assert labels == NumberLabels(1, 12) != NumberLabels(0, 12)
    assert labels != words[:-1]
    assert (labels[-1], labels[3:5], len(labels)) == ("12", ["4", "5"], 12)
    for word in [*words, "0", "13", "01", "+1", " 1", "x", "", "9" * 5000, 1, None]:
        assert (word in labels) == (word in words)
        if word in words:
            assert labels.index(word) == words.index(word)
    with pytest.raises(ValueError, match="'13' is not the label of a node"):
        labels.index("13")


@pytest.mark.parametrize("kind", file.PACKINGS)
@pytest.mark.parametrize("byte", [b"c", b"\n"])
def test_bombs(tmp_path, monkeypatch, kind, byte):
    monkeypatch.setattr(file, "_MIN_LIMIT", 1 << 16)
    data = packed(kind, byte * 5_000_000)
    with pytest.raises(GraphFileError, match=f"a.gr{kind}: unpacks to more than .* GB of text"):
        read_graph(write(tmp_path, f"a.gr{kind}", data))
    with pytest.raises(GraphFileError, match=r"<stream>: unpacks to more than .* GB of text"):
        read_graph(io.BytesIO(data), format=f"gr{kind}")


def test_text_larger_than_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(file, "free_memory", lambda: 4_000_000)
    with pytest.raises(GraphFileError, match=r"a\.csv: has more than 0\.001 GB of text"):
        read_graph(write(tmp_path, "a.csv", "A,B,2\n" * 200_000))


def test_npz_bombs(tmp_path, monkeypatch, lean):
    entries = np.zeros(100_000)
    np.savez_compressed(tmp_path / "a.npz", row=entries, col=entries, data=entries, shape=(3, 3))
    monkeypatch.setattr(npz, "free_memory", lambda: 4_000_000)
    with pytest.raises(GraphFileError, match=r"its arrays unpack to 0\.0024 GB, too much for"):
        read_graph(tmp_path / "a.npz")


def test_npz_with_a_header_that_lies(tmp_path, lean):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        for name in ("row", "col", "data", "shape"):
            with archive.open(name + ".npy", "w") as stream:
                header = {"descr": "<i8", "fortran_order": False, "shape": (10**12,)}
                np.lib.format.write_array_header_1_0(stream, header)
    with pytest.raises(GraphFileError, match=r"row\.npy is not of the size that its header"):
        read_graph(tmp_path / "a.npz")


def test_matrix_of_another_type_is_refused_before_it_is_converted(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", np.ones((1000, 1000), np.float32))
    monkeypatch.setattr(
        arrays, "check_memory", lambda needed, what: pytest.fail(f"{needed} {what}")
    )
    with pytest.raises(pytest.fail.Exception, match="8000000 the 1000 x 1000 matrix of "):
        read_matrix(tmp_path / "a.npy")
