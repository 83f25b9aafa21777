"""Graph files as they are found in public collections, each read whole or refused in one line."""

import gzip
import random
import time

import numpy as np
import pytest
from optional import nx

from semiring_mm.files import GraphFileError, bulk, read_graph
from tests.files.test_files import edges, write
from tests.files.test_files_fuzz import damaged


def outcome(path):
    """All that is known of a graph, or the message that refuses it."""
    try:
        graph = read_graph(path)
    except GraphFileError as error:
        return str(error)
    return list(graph.nodes), edges(graph), graph.directed, graph.weight_source


# --- lines of numbers, read a block at a time --------------------------------------------------

PLAIN = [
    ("a.gr", b"c x\np sp 4 4\nc y\na 1 2 5\na 2 3 0\na 1 2 25\na 4 1 7\n"),
    ("b.gr", b"p sp 4 3\r\na 1 2 5.25\r\na 2 3 1e-3\r\nc z\r\na 4 1 -7\r\n"),
    ("c.gr", b"c x\np tw 4 3\n1 2\n2 3\nc y\n4 1\n"),
    ("a.mtx", b"%%MatrixMarket matrix coordinate real general\n%\n3 3 3\n1 2 0.5\n3 3 0\n2 1 -4\n"),
    ("b.mtx", b"%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n  3 1\n\n"),
]


@pytest.mark.parametrize(("name", "data"), PLAIN, ids=[name for name, _ in PLAIN])
@pytest.mark.parametrize("block", [1, 12, 1 << 20])
def test_blocks_and_lines_agree_on_damaged_files(tmp_path, monkeypatch, name, data, block):
    """NumPy takes a file only where the loop, which words the errors, reads the same graph."""
    monkeypatch.setattr(bulk, "_BLOCK", block)
    path, taken, at_once = write(tmp_path, name, data), [], bulk.plain_edges

    def watched(*given):
        taken.append(rows := at_once(*given))
        return rows

    monkeypatch.setattr(bulk, "plain_edges", watched)
    for k in range(100):
        path.write_bytes(damaged(random.Random(f"{name} {k}"), data) if k else data)
        found = outcome(path)
        with monkeypatch.context() as patch:
            patch.setattr(bulk, "plain_edges", lambda *given: None)
            assert found == outcome(path)
        assert k or taken[0] is not None, "the whole file is not plain"
    assert sum(graph is not None for graph in taken) > 1


@pytest.mark.parametrize(
    "line",
    ["a 1 2 1-2\na 1 2", "a 1 2 3 1\na 2 3", "a 1.0 2 3", "a +1 2 3", "a 1 2 1e", "a 1 2 -",
     "a 1 2 99999999999999999999", "a 1 9999999999999999999 1", "a\t1 2 3", " a 1 2 3", "a 1 2 3 ",
     "a 1 2 nan", "a 1 2 1e999", "a 1 2 9007199254740993", "a 1 2 0.1", "a 1 2 1_0", "c \0",
     "c \xe9", "c x\ra 1 2 3", "c\ra 1 2 3", "a 1 2 3\x0c", "a 1 2 3\x00", "aa 1 2", "a a 1 2"],
)  # fmt: skip
def test_blocks_and_lines_agree_on_odd_lines(tmp_path, monkeypatch, line):
    for m in (1, 2, 3):
        path = write(tmp_path, "a.gr", f"p sp 3 {m}\na 1 3 2\n{line}\n".encode("latin-1"))
        found = outcome(path)
        with monkeypatch.context() as patch:
            patch.setattr(bulk, "plain_edges", lambda *given: None)
            assert found == outcome(path)


def test_many_arcs_are_read_at_numpy_s_speed(tmp_path, monkeypatch):
    m = 100_000
    ends = np.random.default_rng(1).integers(1, 1000, (m, 3))
    lines = "".join(f"a {u} {v} {w}\n" for u, v, w in ends.tolist())
    path = write(tmp_path, "a.gr", f"c\np sp 1000 {m}\n{lines}")
    start = time.process_time()
    graph = read_graph(path)
    taken = time.process_time() - start
    np.testing.assert_array_equal(np.stack([graph.row + 1, graph.col + 1, graph.weight], 1), ends)
    monkeypatch.setattr(bulk, "plain_edges", lambda *given: None)
    start = time.process_time()
    read_graph(path)
    assert taken < (time.process_time() - start) / 2


# --- files as collections and programs write them ----------------------------------------------

TNTP_HEAD = (
    "<NUMBER OF NODES> 3\n<NUMBER OF LINKS> 2\n<END OF METADATA>\n\n"
    "~\tinit_node\tterm_node\tcapacity\tlength\tfree_flow_time\t;\n"
)
GEPHI_GEXF = """<?xml version='1.0' encoding='UTF-8'?>
<gexf xmlns="http://www.gexf.net/1.3" version="1.3" xmlns:viz="http://www.gexf.net/1.3/viz">
  <meta lastmodifieddate="2022-03-01"><creator>Gephi 0.9</creator></meta>
  <graph defaultedgetype="undirected" mode="static">
    <attributes class="edge" mode="static">
      <attribute id="d" title="days" type="integer"/></attributes>
    <nodes>
      <node id="11" label="Valjean"><viz:position x="-87.9" y="0.4" z="0.0"/></node>
      <node id="48" label="Gavroche"><viz:position x="387.8" y="-110.4"/></node>
      <node id="9" label="Myriel"/>
    </nodes>
    <edges>
      <edge id="0" source="11" target="48" weight="4.0">
        <attvalues><attvalue for="d" value="3"/></attvalues></edge>
      <edge id="1" source="9" target="11"/>
    </edges>
  </graph>
</gexf>
"""
YED = """<?xml version="1.0" encoding="UTF-8" standalone="no"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns" xmlns:y="http://www.yworks.com/xml/graphml">
  <key for="node" id="d6" yfiles.type="nodegraphics"/>
  <key for="edge" id="d10" yfiles.type="edgegraphics"/>
  <key attr.name="length" attr.type="double" for="edge" id="d8"/>
  <graph edgedefault="directed" id="G">
    <node id="n0"><data key="d6"><y:ShapeNode>
      <y:Geometry height="30.0" width="30.0" x="476.0" y="294.0"/>
      <y:NodeLabel>Bern</y:NodeLabel><y:Shape type="rectangle"/></y:ShapeNode></data></node>
    <node id="n1"><data key="d6"><y:ShapeNode>
      <y:Geometry height="30.0" width="30.0" x="620.0" y="12.5"/>
      <y:NodeLabel>Basel</y:NodeLabel><y:Shape type="rectangle"/></y:ShapeNode></data></node>
    <edge id="e0" source="n0" target="n1"><data key="d8">95.5</data>
      <data key="d10"><y:PolyLineEdge><y:Arrows source="none"/></y:PolyLineEdge></data></edge>
  </graph>
</graphml>
"""
GRAPHML = (
    '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="{}">'
    '<node id="a"/><node id="b"/><edge source="a" target="b"{}/></graph></graphml>'
)
LEGS, ATTRIBUTE = "none: legs are counted", "weight (attribute)"

#: Name, text, edges, directed, weight_source.
READ = [
    # SNAP, KONECT, Network Repository, SuiteSparse, DIMACS
    ("roadNet-XX.txt", "# Directed graph (each unordered pair of nodes is saved once)\n"
     "# Nodes: 3 Edges: 2\n# FromNodeId\tToNodeId\n0\t1\n1\t2\n",
     [("0", "1", 1), ("1", "2", 1)], True, LEGS),
    ("facebook_combined.txt", "0 1\n1 2\n", [("0", "1", 1), ("1", "2", 1)], True, LEGS),
    ("musae_edges.csv", "id_1,id_2\n0,1\n1,2\n", [("0", "1", 1), ("1", "2", 1)], True, LEGS),
    ("out.ucidata-zachary", "% sym unweighted\n% 2 3 3\n1 2 \n2 3 \n",
     [("1", "2", 1), ("2", "3", 1)], False, LEGS),
    ("out.moreno_x", "% asym posweighted\n1\t2\t5\n2\t3\t1\n",
     [("1", "2", 5), ("2", "3", 1)], True, "column 3"),
    ("inf-power.mtx", "%%MatrixMarket matrix coordinate pattern symmetric \n% 3 3 2\n"
     "3 3 2\n2 1\n3 2\n",
     [("2", "1", 1), ("3", "2", 1)], False, LEGS),
    ("bcspwr.mtx", "%%MatrixMarket matrix coordinate real symmetric\n%----\n% UF\n%\n2 2 2\n1 1 9\n"
     "2 1 -1.5e+00\n", [("1", "1", 9), ("2", "1", -1.5)], False, "values of the entries"),
    ("plskz.mtx", "%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n2 1 3\n",
     [("2", "1", 3), ("1", "2", -3)], True, "values of the entries"),
    ("USA-road-d.XX.gr", "c 9th DIMACS\nc\np sp 3 2\nc graph contains 3 nodes and 2 arcs\nc\n"
     "a 1 2 803\na 2 1 803\n",
     [("1", "2", 803), ("2", "1", 803)], True, "third number of each arc"),
    ("pace.gr", "c\np tw 3 2\n1 2\n2 3\n", [("1", "2", 1), ("2", "3", 1)], False, LEGS),
    ("pace2019.gr", "p td 3 1\n3 2\n", [("3", "2", 1)], False, LEGS),
    # METIS, Chaco
    ("manual.graph", "% a comment\n3 2 001\n2 5\n1 5 3 0.5\n2 0.5\n",
     [("1", "2", 5), ("2", "3", 0.5)], False, "number behind each neighbour"),
    ("sizes.graph", "3 2 111 2\n7 8 9 2 1\n7 8 9 1 1 3 4\n7 8 9 2 4\n",
     [("1", "2", 1), ("2", "3", 4)], False, "number behind each neighbour"),
    ("nodes.graph", "3 1 10\n9 2\n9 1\n9\n", [("1", "2", 1)], False, LEGS),
    ("chaco.graph", "3 1 100\n1 2\n2 1\n3\n", [("1", "2", 1)], False, LEGS),
    ("isolated.graph", "4 1\n\n4\n\n2\n", [("2", "4", 1)], False, LEGS),
    ("stripped.graph", "4 1\n2\n1\n", [("1", "2", 1)], False, LEGS),
    ("loop.graph", "2 2\n1 2\n1\n", [("1", "1", 1), ("1", "2", 1)], False, LEGS),
    # Pajek
    ("gephi.net", '*Vertices 3\n1 "Valjean" -87.9 0.4 0.0\n2 "Jean, V." 1 2 0\n3 "x" 3 4 0\n'
     "*Arcs\n*Edges\n1 2 4.0\n2 3 1.0\n",
     [("Valjean", "Jean, V.", 4), ("Jean, V.", "x", 1)], False, "value of each line"),
    ("mixed.net", '*Network m\n% c\n*Vertices 2\n1 a\n2 b\n*Arcs :1 "likes"\n1 2 3 c Blue\n'
     '*Edges :2 "knows"\n1 2 5\n',
     [("a", "b", 3), ("a", "b", 5), ("b", "a", 5)], True, "value of each line"),
    ("bare.net", "*vertices 3\n*arcslist\n1 2 3\n", [("1", "2", 1), ("1", "3", 1)], True, LEGS),
    ("relations.net", "*Vertices 2\n*Edges\n1: 1 2 7 [1-3]\n", [("1", "2", 7)], False,
     "value of each line"),
    ("some.net", "*Vertices 3\n*Edges\n1 2 7\n2 3\n", [("1", "2", 7), ("2", "3", 1)], False,
     "value of each line"),
    ("matrix.net", "*Vertices 2\n*Matrix\n0 2\n0 0\n", [("1", "2", 2)], True, "value of each line"),
    ("modes.net", "Two kinds of nodes\n\n*Vertices 5 2\n*Matrix\n0 2 0\n1 0 4\n",
     [("1", "4", 2), ("2", "3", 1), ("2", "5", 4)], False, "value of each line"),
    ("same.net", '*Vertices 2\n1 "a"\n2 "a"\n*Edges\n1 2 3\n', [("1", "2", 3)], False,
     "value of each line"),
    # igraph
    ("a.ncol", "a b 1.5\nb c 2\n", [("a", "b", 1.5), ("b", "c", 2)], False, "column 3"),
    ("b.ncol", "a b\n", [("a", "b", 1)], False, LEGS),
    ("igraph.gml", 'Creator "igraph version 1.0.0"\nVersion 1\ngraph\n[\n  directed 0\n  node\n'
     '  [\n    id 0\n    name "Zürich"\n  ]\n  node\n  [\n    id 1\n    name "b"\n  ]\n  edge\n'
     "  [\n    source 1\n    target 0\n    weight 1.5\n  ]\n  edge\n"
     "  [\n    source 0\n    target 1\n    weight 3\n  ]\n]\n",
     [("Zürich", "b", 1.5), ("Zürich", "b", 3)], False, ATTRIBUTE),
    # Gephi, yEd, OGDF
    ("miserables.gexf", GEPHI_GEXF, [("11", "48", 4), ("11", "9", 1)], False, ATTRIBUTE),
    ("yed.graphml", YED, [("n0", "n1", 95.5)], True, "length (attribute)"),
    ("default.graphml", GRAPHML.format("directed", "").replace("<graph ", '<key id="k" for="edge" '
     'attr.name="weight" attr.type="double"><default>2.5</default></key><graph '),
     [("a", "b", 2.5)], True, ATTRIBUTE),
    ("ogdf.gml", 'Creator "ogdf::GraphIO::writeGML"\ngraph [\n  directed 1\n'
     '  node [ id 0 label "0"\n'
     "    graphics [ x 1.5 y 2 w 20 h 20 ] ]\n  node [ id 1 label \"1\" ]\n"
     "  edge [ source 0 target 1 generalization 0 ]\n]\n", [("0", "1", 1)], True, LEGS),
    ("gephi.csv", "Source,Target,Type,Id,Label,timeset,Weight\n1,2,Undirected,0,,,2.0\n"
     "2,3,Undirected,1,,,1.0\n", [("1", "2", 2), ("2", "3", 1)], False, "Weight (column 7)"),
    # nothing
    ("a.gexf", '<gexf xmlns="http://gexf.net/1.3"><graph/></gexf>', [], False, LEGS),
    ("a.net", "*Vertices 0\n", [], True, LEGS),
    ("a.graph", "0 0\n", [], False, LEGS),
    # TransportationNetworks
    ("Sydney_net.tntp", TNTP_HEAD + "\t1\t2\t9\t0.5\t2\t\n\t2\t3\t9\t4\t1\n",
     [("1", "2", 0.5), ("2", "3", 4)], True, "length (column 4)"),
    ("Hessen_net.tntp", TNTP_HEAD.replace("\t;", " \t\t;") + "\t1\t2\t9\t0.5\t2\t1;\n"
     "2\t3\t9\t4\t1\t1;\n", [("1", "2", 0.5), ("2", "3", 4)], True, "length (column 4)"),
    ("munich_net.tntp", TNTP_HEAD + "\t75674\t75778\t9\t0.5\t\t;\n"
     "\t75778\t2146237932\t9\t4\tinf\t;\n",
     [("75674", "75778", 0.5), ("75778", "2146237932", 4)], True, "length (column 4)"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "arcs", "directed", "source"), READ)
def test_read_as_collections_write(tmp_path, name, text, arcs, directed, source):
    if name.endswith((".gml", ".graphml", ".gexf")):
        pytest.importorskip("networkx")
    for end in ("\n", "\r\n"):
        graph = read_graph(write(tmp_path, name, text.replace("\n", end)))
        assert sorted(edges(graph)) == sorted(arcs)
        assert (graph.directed, graph.weight_source) == (directed, source)
        assert graph.direction_source
    if not name.startswith("out."):
        packed = read_graph(write(tmp_path, f"{name}.gz", gzip.compress(text.encode())))
        assert edges(packed) == edges(graph)
    if "gexf.net" in text:
        for version in (
            "http://www.gexf.net/1.1draft",
            "http://gexf.net/1.3",
            "http://gexf.net/1.2",
        ):
            other = text.replace("http://www.gexf.net/1.3", version)
            assert edges(read_graph(write(tmp_path, name, other))) == edges(graph)


REFUSED = [
    ("a.gr", "p edge 3 2\ne 1 2\n", ":1: expected 'p sp NODES ARCS' (shortest paths) or 'p tw "
     "NODES EDGES' (PACE), got 'p edge 3 2'"),
    ("a.gr", "c flow\np max 3 2\nn 1 s\na 1 2 3\n", ":2: expected 'p sp NODES ARCS' "),
    ("a.gr", "p tw 3 1\na 1 2 3\n", ":2: expected 'FROM TO', got 'a 1 2 3'"),
    ("a.gr", "p tw 3 1\n1 4\n", ":2: node 4 is out of range: nodes are 1 to 3"),
    ("a.gr", "p tw 3 2\n1 2\n", ":2: the file ends after 1 of the 2 edges promised on line 1"),
    ("a.graph", "2\n", ":1: expected 'NODES EDGES' of a METIS graph"),
    ("a.graph", "2 1 002\n", ":1: expected 'NODES EDGES' of a METIS graph"),
    ("a.graph", "a b\n", ":1: expected a number of nodes, got 'a'"),
    ("a.graph", "% only\n", ":1: only comments and blank lines"),
    ("a.graph", "3 2\n2\n3\n\n", ":2: node 1 names node 2 (weight 1), which does not name it back"),
    ("a.graph", "3 2 1\n2 5\n1 6 3 1\n2 1\n", ":2: node 1 names node 2 (weight 5), which does not"),
    ("a.graph", "3 2\n2\n1\n\n", ":4: the file ends after 1 of the 2 edges promised on line 1"),
    ("a.graph", "3 1\n2\n1 3\n2\n", ":3: more than the 1 edges promised on line 1"),
    ("a.graph", "2 1\n2\n1\n\n9\n", ":5: more than the 2 nodes promised on line 1"),
    ("a.graph", "2 1\n3\n1\n", ":2: node 3 is out of range: nodes are 1 to 2"),
    ("a.graph", "2 1\n2 x\n1\n", ":2: expected neighbours, for node 1; got '2 x'"),
    ("a.graph", "2 1 11\n1 2\n1 1 1\n", ":2: expected 1 whole number and then neighbours each "),
    ("a.graph", "2 1 1\n2 inf\n1 inf\n", ":2: weight inf; expected a finite number"),
    ("a.net", "1 2\n", ":1: no line '*Vertices NODES' in the file"),
    ("a.net", "*Edges\n1 2\n", ":1: expected '*Vertices NODES' first"),
    ("a.net", "*Network\n", ":1: no line '*Vertices NODES' in the file"),
    ("a.net", "*Vertices x\n", ":1: expected a number of nodes, got 'x'"),
    ("a.net", "*Vertices 2\n*Partition p\n1\n", ":2: expected *Vertices, *Arcs, *Edges, *Arcslist"),
    ("a.net", "*Vertices 2\n*Edges\n1 3\n", ":3: node 3 is out of range: nodes are 1 to 2"),
    ("a.net", "*Vertices 2\n*Edges\n1\n", ":3: expected 'FROM TO' or 'FROM TO VALUE', got '1'"),
    ("a.net", "*Vertices 2\n*Edges\n1 2 3,5\n", ":3: expected 'FROM TO' or 'FROM TO VALUE'"),
    ("a.net", "*Vertices 2\n*Edges\na b\n", ":3: expected the number of a node, got 'a b'"),
    ("a.net", "*Vertices 2\n*Edges\n1 2 nan\n", ":3: weight nan; expected a finite number"),
    ("a.net", '*Vertices 2\n1 "a"\n1 "b"\n', ":3: node 1 again"),
    ("a.net", "*Vertices 2\n*Vertices 2\n", ":2: a second *Vertices, after that on line 1"),
    ("a.net", "*Vertices 2\n*Matrix\n0 1\n", ":3: the file ends after 1 of 2 rows"),
    ("a.net", "*Vertices 2\n*Matrix\n0 1 2\n", ":3: expected 2 rows of 2 numbers, got '0 1 2'"),
    ("a.net", '*Vertices 50000000\n1 "a"\n', ":1: only 1 of the 50000000 nodes have a line"),
    ("a.ncol", "a b c d\n", ":1: expected FROM, TO and perhaps WEIGHT"),
    ("a.gexf", "<gexf>", ":1: not XML (no element found"),
    ("a.gexf", "<gexf></gexf>", "not a .gexf graph (NetworkXError: No <graph> element"),
    ("a.gexf", GEPHI_GEXF.replace('target="11"', 'target="11" type="directed"'),
     ": directed and undirected edges in one graph; write edges of one kind"),
    ("a.graphml", GRAPHML.format("directed", ' directed="false"'), ": directed and undirected "),
    ("a.graphml", GRAPHML.format("directed", "").replace("/></graph>", '><graph edgedefault='
     '"directed"><edge source="b" target="a"/></graph></edge></graph>'),
     "NetworkX reads 1 of the file's 2 edges, not those of nested graphs"),
    ("a.gexf", GEPHI_GEXF.replace('id="1" source="9"', 'id="0" source="48"'),
     "NetworkX reads 1 of the file's 2 edges"),
    ("a.graphml", "<graphml></graphml>", "not a .graphml graph (NetworkXError: file not success"),
    ("a.gml", b'graph [\n node [ id 0 label "caf\xe9" ]\n]', ":2: byte 0xe9 is not UTF-8"),
    ("a.gml", "Creator 1\n", "not a .gml graph (NetworkXError: input contains no graph)"),
    ("a.tntp", TNTP_HEAD + "\t1\t2\t9\t\t2\t;\n", ":6: expected a finite number as length, got '': "
     "write one there, or choose another weight, of capacity, length, free_flow_time"),
    ("a.tntp", TNTP_HEAD + "\t1\t2\t9\tinf\t2\t;\n", ":6: expected a finite number as "),
    ("a.tntp", TNTP_HEAD + "1 2 9 5\n", ":6: expected 5 numbers (init_node, term_node, capacity, "),
    ("a.tntp", TNTP_HEAD + "1 2 9 5 1\n4 5 9 5 1\n", ":7: node 4 is out of range: nodes are"),
    ("a.tntp", TNTP_HEAD + "1 0 9 5 1\n", ":6: node 0 is out of range: nodes are 1 to 3"),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")  # of networkx, about the file
@pytest.mark.parametrize(("name", "text", "words"), REFUSED)
def test_refused_as_collections_write(tmp_path, name, text, words):
    if name.endswith((".gml", ".graphml", ".gexf")):
        pytest.importorskip("networkx")
    path = write(tmp_path, name, text)
    with pytest.raises(GraphFileError) as caught:
        read_graph(path)
    assert str(caught.value).startswith(f"{path}{words}" if words[0] == ":" else f"{path}: {words}")
    assert "\n" not in str(caught.value)


GML = (
    'Creator "x 1e5 graph [" {}graph [\n node [ id 0 label "1e5" ] # 1e9 "\n'
    ' node [ id 1 label "b" ]\n{}]'
)


@pytest.mark.parametrize("before", ["", "\n"])
@pytest.mark.parametrize(
    ("word", "value"),
    [("1e+20", 1e20), ("5E-7", 5e-7), ("-2e3", -2e3), ("1.5e3", 1.5e3), (".5e1", 5), ("7", 7)],
)
def test_numbers_of_gml_are_read_whole(tmp_path, before, word, value):
    """NetworkX reads 1e+20, as igraph writes it, as a weight 1 and an attribute e of 20."""
    pytest.importorskip("networkx")
    edge = f' edge [ source 0 target 1 note "a 2e3" weight {word} ]\n'
    graph = read_graph(write(tmp_path, "a.gml", GML.format(before, edge + edge)))
    assert graph.weight.tolist() == [value, value]
    assert (graph.nodes, graph.notes) == (["1e5", "b"], ())


#: What is read of a Pajek file, by its fault in NetworkX: body below two nodes a and b, our edges,
#: and those of `networkx.read_pajek`, or the type of its error.
PAJEK_FAULTS = {
    "lists": ("*Arcslist\n1 2 1\n", [("a", "b", 1), ("a", "a", 1)], [("a", "b", 1)]),
    "edges behind arcs": (
        "*Arcs\n1 2 3\n*Edges\n1 2 5\n",
        [("a", "b", 3), ("a", "b", 5), ("b", "a", 5)], [("a", "b", 3), ("a", "b", 5)],
    ),
    "headings": (
        '*Arcs :1 "likes"\n1 2 3\n*Arcs :2 "knows"\n1 2 5\n',
        [("a", "b", 3), ("a", "b", 5)], [("a", "b", 3), ("a", "b", 5), ("*Arcs", ":2", 1)],
    ),
    "relations": ("*Arcs\n1: 1 2 7\n", [("a", "b", 7)], [("1:", "a", 2)]),
    "comments": (
        "*Arcs\n% in 2020\n1 2 7\n", [("a", "b", 7)], [("a", "b", 7), ("%", "in", 2020)],
    ),
    "fractions": ("*Matrix\n0 0.5\n0 0\n", [("a", "b", 0.5)], ValueError),
    "node out of range": ("*Arcs\n1 3 7\n", GraphFileError, [("a", "3", 7)]),
    "no number": ("*Arcs\n1 2 x7\n", GraphFileError, [("a", "b", 1)]),
    "cut short": ("*Matrix\n0 2\n", GraphFileError, [("a", "b", 2)]),
}  # fmt: skip
PAJEK_NODES = {
    "same labels": ("*Vertices 2\n1 a\n2 a\n", ["1", "2"], ["a"]),
    "two kinds": ("*Vertices 2 1\n1 a\n2 b\n", ["a", "b"], ValueError),
    "no lines": ("*Vertices 2\n*Arcs\n1 2\n", ["1", "2"], ValueError),
    "blank lines": ("*Vertices 2\n1 a\n\n2 b\n", ["a", "b"], ValueError),
    "apostrophes": ("*Vertices 2\n1 O'Hare\n2 b\n", ["O'Hare", "b"], ValueError),
    "byte order marks": (
        "\ufeff*Vertices 2\n1 a\n2 b\n*Arcs\n1 2\n",
        ["a", "b"],
        UnboundLocalError,
    ),
}


def outcome_of(read, path):
    try:
        return read(path)
    except (ValueError, UnboundLocalError) as error:
        return type(error)


@pytest.mark.parametrize("fault", PAJEK_FAULTS)
def test_networkx_reads_these_lines_of_pajek_wrongly(tmp_path, fault):
    """Why `files.pajek` is there; where NetworkX has learned one of these, strike it out."""
    body, ours, theirs = PAJEK_FAULTS[fault]
    path = write(tmp_path, "a.net", f"*Vertices 2\n1 a\n2 b\n{body}")

    def networkx(path):
        return [(u, v, w) for u, v, w in nx.read_pajek(path).edges(data="weight", default=1)]

    assert outcome_of(lambda path: edges(read_graph(path)), path) == ours
    found = outcome_of(networkx, path)
    assert (found if isinstance(theirs, type) else sorted(found)) == (
        theirs if isinstance(theirs, type) else sorted(theirs)
    )


@pytest.mark.parametrize("fault", PAJEK_NODES)
def test_networkx_reads_these_nodes_of_pajek_wrongly(tmp_path, fault):
    text, ours, theirs = PAJEK_NODES[fault]
    path = write(tmp_path, "a.net", text)
    assert outcome_of(lambda path: list(read_graph(path).nodes), path) == ours
    assert outcome_of(lambda path: list(nx.read_pajek(path)), path) == theirs


@pytest.mark.parametrize("kind", ["Graph", "DiGraph", "MultiGraph", "MultiDiGraph"])
@pytest.mark.parametrize("form", ["graphml", "gml", "gexf", "pajek"])
def test_what_networkx_writes_is_read_back(tmp_path, kind, form):
    source = getattr(nx, kind)()
    source.add_edge("Zürich", "b", weight=3.5, lanes=2)
    source.add_edge("b", "c d", weight=1.5, lanes=1)
    source.add_edge("c d", "Zürich", weight=9.0, lanes=1)
    source.add_node("alone")
    if source.is_multigraph():
        source.add_edge("Zürich", "b", weight=0.25, lanes=3)
    if form == "pajek":  # it writes texts only
        nx.set_edge_attributes(source, "2", "lanes")
    path = tmp_path / f"g.{'net' if form == 'pajek' else form}"
    getattr(nx, f"write_{form}")(source, path)
    graph = read_graph(path)
    assert graph.nodes == ["Zürich", "b", "c d", "alone"]
    assert graph.directed == source.is_directed()
    ends = [(frozenset if not graph.directed else tuple)(edge[:2]) for edge in edges(graph)]
    expected = [
        ((frozenset if not graph.directed else tuple)((u, v)), w)
        for u, v, w in source.edges(data="weight")
    ]
    assert sorted(zip(ends, graph.weight, strict=True), key=lambda x: x[1]) == sorted(
        expected, key=lambda x: x[1]
    )
    assert graph.coordinates is None
    assert graph.warnings == ()
    if form != "pajek":
        assert graph.notes == ("other numbers of the edges: lanes",)


@pytest.mark.parametrize("form", ["graphml", "gml", "gexf"])
def test_attributes_that_are_not_the_weight_are_warned_of(tmp_path, form):
    source = nx.Graph()
    source.add_edge("a", "b", price=3.5, kind="bus", stops=2)
    getattr(nx, f"write_{form}")(source, tmp_path / f"g.{form}")
    graph = read_graph(tmp_path / f"g.{form}")
    assert graph.weight_source == LEGS
    assert len(graph.warnings) == 1
    assert "numbers of the edges that are not used: price, stops;" in graph.warnings[0]
    for name in ("price", "Price"):
        chosen = read_graph(tmp_path / f"g.{form}", weight=name)
        assert (chosen.weight.tolist(), chosen.weight_source) == ([3.5], "price (attribute)")
        assert chosen.warnings == ()
    legs = read_graph(tmp_path / f"g.{form}", weight=None)
    assert (legs.weight.tolist(), legs.weight_source, legs.warnings) == ([1.0], LEGS, ())
    with pytest.raises(GraphFileError, match=r"no attribute 'toll'; attributes: .*price"):
        read_graph(tmp_path / f"g.{form}", weight="toll")


@pytest.mark.parametrize("form", ["graphml", "gml"])
@pytest.mark.parametrize("names", [("lon", "lat"), ("x", "y")])
def test_one_missing_coordinate_is_harmless(tmp_path, form, names):
    source = nx.Graph()
    source.add_edge("a", "b", weight=2.0)
    source.add_edge("b", "c", weight=3.0)
    for k, node in enumerate("ab"):
        source.nodes[node].update(zip(names, (8.5 + k, 47.0), strict=True))
    getattr(nx, f"write_{form}")(source, tmp_path / f"g.{form}")
    graph = read_graph(tmp_path / f"g.{form}")
    np.testing.assert_array_equal(graph.coordinates, [[8.5, 47], [9.5, 47], [np.nan, np.nan]])
    assert graph.geographic == (names[0] == "lon")
    assert graph.weight.tolist() == [2, 3]
    if graph.geographic:
        for *_, known in source.edges(data=True):
            del known["weight"]
        getattr(nx, f"write_{form}")(source, tmp_path / f"g.{form}")
        with pytest.raises(GraphFileError, match=r"node 'c' no coordinates .* or count legs"):
            read_graph(tmp_path / f"g.{form}")
        assert read_graph(tmp_path / f"g.{form}", weight=None).weight.tolist() == [1, 1]


def test_coordinates_and_names_of_other_programs(tmp_path):
    pytest.importorskip("networkx")
    text = {name: text for name, text, *_ in READ}
    gephi = read_graph(write(tmp_path, "a.gexf", text["miserables.gexf"]))
    nan = np.nan
    np.testing.assert_array_equal(gephi.coordinates, [[-87.9, 0.4], [387.8, -110.4], [nan, nan]])
    assert gephi.names == ["Valjean", "Gavroche", "Myriel"]
    assert gephi.notes == ("other numbers of the edges: days",)
    yed = read_graph(write(tmp_path, "a.graphml", text["yed.graphml"]))
    np.testing.assert_array_equal(yed.coordinates, [[476, 294], [620, 12.5]])
    assert yed.names == ["Bern", "Basel"]
    ogdf = read_graph(write(tmp_path, "a.gml", text["ogdf.gml"]))
    np.testing.assert_array_equal(ogdf.coordinates, [[1.5, 2], [nan, nan]])
    pajek = read_graph(write(tmp_path, "a.net", text["gephi.net"]))
    np.testing.assert_array_equal(pajek.coordinates, [[-87.9, 0.4], [1, 2], [3, 4]])
    same = read_graph(write(tmp_path, "b.net", text["same.net"]))
    assert (list(same.nodes), same.names) == (["1", "2"], ["a", "a"])


def test_a_reader_says_which_way_edges_lead_and_why(tmp_path):
    text = {name: text for name, text, *_ in READ}
    for name, why in (
        ("pace.gr", "a PACE file lists edges"),
        ("USA-road-d.XX.gr", "a .gr file lists arcs"),
        ("inf-power.mtx", "a symmetric matrix"),
        ("plskz.mtx", "a skew-symmetric matrix"),
        ("manual.graph", "a METIS file lists edges"),
        ("mixed.net", "a Pajek file of arcs and edges"),
        ("a.ncol", "a .ncol file lists edges"),
        ("Sydney_net.tntp", "a .tntp file lists links of one direction"),
    ):
        assert read_graph(write(tmp_path, name, text[name])).direction_source == why
    undirected = read_graph(write(tmp_path, "mixed.net", text["mixed.net"]), directed=False)
    assert [w for *_, w in edges(undirected)] == [3, 5]
    assert not undirected.directed


def test_tntp_names_the_other_weight(tmp_path):
    path = write(tmp_path, "a_net.tntp", TNTP_HEAD + "1 2 9 0.5 2 ;\n2 3 9 4 1 ;\n")
    assert read_graph(path).notes == (
        "the weight is length (column 4); free_flow_time can be chosen instead",
    )
    for weight in ("free_flow_time", "5", 5):
        graph = read_graph(path, weight=weight)
        assert (graph.weight.tolist(), graph.notes) == ([2, 1], ())
        assert graph.weight_source == "free_flow_time (column 5)"
    with pytest.raises(
        GraphFileError, match="'init_node' is an end of the links; choose the weight"
    ):
        read_graph(path, weight=1)
