"""Damaged files of every format: each is read as a graph, or refused with one clear error.

The seed is printed where a file fails; SEMIRING_MM_FUZZ=COUNT tries so many files, from a seed of
the clock.
"""

import gzip
import importlib.util
import io
import os
import random
import time

import numpy as np
import pytest
from optional import sp

from semiring_mm.files import GraphFileError, read_graph
from semiring_mm.files.formats import FORMATS

pytest.importorskip("networkx")  # reads GraphML and GML
GR = b"c comment\np sp 4 4\na 1 2 5\na 2 3 0\na 1 2 2.5\na 4 1 -1e3\n"
MTX = b"%%MatrixMarket matrix coordinate real general\n% comment\n3 3 2\n1 2 0.5\n3 3 0\n"
TNTP = (
    b"<NUMBER OF ZONES> 1\n<NUMBER OF NODES> 3\n<FIRST THRU NODE> 2\n<NUMBER OF LINKS> 2\n"
    b"<ORIGINAL HEADER>~ \tfrom\tto\t\n<END OF METADATA>\n\n"
    b"~\tInit node\tTerm node\tLength (miles)\tFree Flow Time (min)\t;\n"
    b"\t1\t2\t1.5\t3\t;\n\t2\t3\t0.25\t0\t;\n"
)
NODES = b"iata,city,latitude,longitude\nA,London,51.4,-0.4\nB,Nowhere,,\nC,New York,40.6,-73.7\n"
GRAPHML = b"""<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="d0" for="node" attr.name="lon" attr.type="double"/>
<key id="d1" for="node" attr.name="lat" attr.type="double"/>
<key id="d2" for="edge" attr.name="weight" attr.type="double"/>
<graph edgedefault="directed">
<node id="a"><data key="d0">1.5</data><data key="d1">2</data></node>
<node id="b"><data key="d0">-3</data><data key="d1">40</data></node>
<edge source="a" target="b"><data key="d2">2.5</data></edge>
</graph></graphml>
"""
GML = b"""graph [
  directed 1
  node [ id 0 label "a" x 1.0 y 2.0 ]
  node [ id 1 label "b" x 3.0 y 4.5 ]
  edge [ source 0 target 1 weight 2.5 ]
]
"""
GEXF = b"""<?xml version="1.0" encoding="UTF-8"?>
<gexf xmlns="http://www.gexf.net/1.3" version="1.3" xmlns:viz="http://www.gexf.net/1.3/viz">
<graph defaultedgetype="directed"><attributes class="edge" mode="static">
<attribute id="km" title="km" type="double"/></attributes>
<nodes><node id="0" label="a"><viz:position x="1.5" y="2" z="0"/></node>
<node id="1" label="b"/></nodes>
<edges><edge id="0" source="0" target="1" weight="2.5">
<attvalues><attvalue for="km" value="7"/></attvalues></edge></edges></graph></gexf>
"""


def packed(**arrays):
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)
    return out.getvalue()


def dense(matrix):
    out = io.BytesIO()
    np.save(out, matrix)
    return out.getvalue()


def parquet(**columns):
    pa, pq = (importlib.import_module(name) for name in ("pyarrow", "pyarrow.parquet"))
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


def sparse(layout):
    out = io.BytesIO()
    matrix = sp.coo_array((np.array([3.0, 0, 4]), ([0, 1, 1], [1, 2, 0])), (3, 3))
    sp.save_npz(out, matrix.asformat(layout))
    return out.getvalue()


FILES = [
    ("a.gr", GR),
    ("a.gr.gz", gzip.compress(GR, mtime=0)),
    ("a.mtx", MTX),
    ("b.mtx", b"%%MatrixMarket matrix array integer symmetric\n2 2\n0\n7\ninf\n"),
    ("c.mtx", b"%%MatrixMarket matrix coordinate pattern symmetric\n2 2 1\n2 1\n"),
    ("a.tntp", TNTP),
    ("a.csv", b'from,to,length_km,Capacity\n"A, x",B,2,900\nB,C,1e3,\nC,"A, x",0,7\n'),
    ("a.tsv", b"# comment\nA\tB\t2\nB\tC\t-1.5\n"),
    ("a.txt", "A B 2\n\nZürich   B 3\n".encode()),
    ("b.csv", b"from,to\nA,B\nB,C\n"),
    ("a.graphml", GRAPHML),
    ("a.gml", GML),
    ("a.gexf", GEXF),
    ("a.graph", b"% c\n4 2 011 2\n7 7 2 5\n7 7 1 5 3 0.5\n7 7 2 0.5\n7 7\n"),
    ("b.graph", b"4 2\n2\n1 3\n2\n\n"),
    (
        "a.net",
        b'*Vertices 3\n1 "a b" 0.1 0.2\n2 "c" 0.3 0.4\n*Arcs\n1 2 3.5\n*Edges\n2 3 1 c Red\n',
    ),
    ("b.net", b"*vertices 3\n*arcslist\n1 2 3\n*matrix\n0 1 2\n0 0 0\n1 0 0.5\n"),
    ("a.ncol", b"a b 2\nb c 3.5\n"),
    ("b.gr", b"c x\np tw 4 3\n1 2\n2 3\n4 1\n"),
    ("d.mtx", b"%%MatrixMarket matrix coordinate real skew-symmetric\n3 3 2\n2 1 3\n3 1 -4\n"),
    ("a.npy", dense(np.array([[0, 2, np.inf], [np.inf, 0, 0], [1, np.inf, 5]]))),
    ("b.npy", dense(np.array([[1, 2], [3, 0]], np.int16))),
    ("a.edges", b"% sym weighted\n1 2 3 1e9\n2 3 4 1e9\n"),
    ("a.el", b"1 2\n2 3\n"),
    ("a.edgelist", b"a b {'weight': 3, 'x': [1, 'y']}\nb c {'weight': 2}\n"),
    ("a.dat", b"4 4\n2 4\n1 3\n2 4\n1 3\n"),
    ("g.csv", b"Source,Target,Type,Id,Weight\nA,B,Undirected,0,2\nB,C,Directed,1,3\n"),
    ("d.npz", packed(W=np.array([[0, 2.0], [np.inf, 0]]))),
    ("a.npz", packed(row=[0, 0], col=[1, 1], data=[2.0, 3.0], shape=(2, 2))),
    ("b.npz", sparse("csr")),
    ("c.npz", sparse("coo")),
]
if importlib.util.find_spec("pyarrow"):
    FILES.append(("a.parquet", parquet(source=[1, 2, 2], target=["a", "b", None], km=[1.5, 2, 3])))
TOKENS = [
    *"""0 -1 1 2 99999999999999999999 1e400 nan inf -inf 1_0 ١ 0x1 True None 1+2j "" " ' #
    % ; , [ ] < > & ( ) \0 \r \n \t \ufeff é \x1c 3.7 "3" weight Weight from From <graph> [[[[[[
    (((((( encoding="utf-7" encoding="rot13" 1e-400 -0""".split(" "),
    "9" * 5000, "[" * 3000,
]  # fmt: skip


def test_every_format_is_here():
    assert {*FORMATS} - {".parquet"} <= {"." + name.split(".")[1] for name, _ in FILES}


def damaged(random, data):
    """The bytes after one to three changes."""
    for _ in range(random.randint(1, 3)):
        lines, words = data.split(b"\n"), data.split(b" ")
        i, j = sorted(random.randrange(len(data) + 1) for _ in range(2))
        change = random.randrange(9)
        if change == 0 and data:
            at = random.randrange(len(data))
            data = data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]
        elif change == 1:
            data = data[:i] + data[min(j, i + random.choice([1, 1, 4, len(data)])) :]
        elif change == 2:
            data = data[:j] + data[i:]
        elif change == 3:
            data = data[:i]
        elif change in (4, 5, 6):
            parts, joint = random.choice([(lines, b"\n"), (words, b" "), (data.split(b","), b",")])
            at = random.randrange(len(parts))
            new = [[], [parts[at]] * 2, [random.choice(TOKENS).encode()]][change - 4]
            data = joint.join(parts[:at] + new + parts[at + 1 :])
        elif change == 7:
            data = data[:i] + random.choice(TOKENS).encode() + data[i:]
        else:
            random.shuffle(lines)
            data = b"\n".join(lines)
    return data


def check(path, **given):
    refusal = ""
    try:
        graph = read_graph(path, **given)
    except GraphFileError as error:
        refusal = str(error)
    if refusal:
        assert "\n" not in refusal
        assert len(refusal) < 700
        assert refusal.startswith(str(path.parent))
        return
    n = len(graph.nodes)
    assert len(graph.row) == len(graph.col) == len(graph.weight)
    assert graph.weight.dtype == np.float64
    assert np.isfinite(graph.weight).all() or path.suffix == ".npy"
    assert not np.isnan(graph.weight).any()
    for ends in (graph.row, graph.col):
        assert ends.dtype == np.int64
        assert ((ends >= 0) & (ends < n)).all()
    assert graph.coordinates is None or graph.coordinates.shape == (n, 2)


@pytest.mark.filterwarnings("ignore")  # of networkx, about the file
@pytest.mark.parametrize(("name", "data"), [*FILES, ("nodes", NODES)], ids=lambda x: str(x)[:9])
def test_damaged_files(tmp_path, name, data):
    count = int(os.environ.get("SEMIRING_MM_FUZZ", 60))
    seed = time.time_ns() if "SEMIRING_MM_FUZZ" in os.environ else 5
    for k in range(count):
        changed = damaged(random.Random(f"{seed} {name} {k}"), data)
        path = tmp_path / (name if name != "nodes" else "nodes.csv")
        path.write_bytes(changed)
        try:
            if name == "nodes":
                (tmp_path / "a.csv").write_text("from,to\nA,C\nC,B\n")
                check(tmp_path / "a.csv", nodes=path)
            else:
                check(path)
        except BaseException:
            print(f"seed {seed}, file {k} of {name}: {changed!r:.2000}")
            raise
