"""What is taken as a graph, and what is refused before any work."""

import re
import tracemalloc
import warnings
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from optional import igraph, nx, pd

import semiring_mm as sm
from semiring_mm import arrays
from semiring_mm.files import Graph
from semiring_mm.graphs import apsp, contraction, inputs

scipy = pytest.importorskip("scipy")
from semiring_mm import csgraph  # noqa: E402
from semiring_mm.closures.edges import EdgeList  # noqa: E402
from semiring_mm.cpu import engine as cpu  # noqa: E402


def network(weight):
    graph = nx.Graph()
    graph.add_edge("a", "b", weight=weight)
    return graph


def edges(row=(0,), col=(1,), weight=(1.0,)):
    return Graph(["a", "b"], np.array(row), np.array(col), np.array(weight), directed=True)


def sparse(weight):
    return scipy.sparse.coo_array(([weight], ([0], [1])), (2, 2))


def widest(graph):
    return sm.closure(graph, "max_min")


@pytest.mark.parametrize(
    "weight", [3, 3.0, True, np.float32(3), np.int8(3), Fraction(5, 2), Decimal("2.5"), np.inf]
)
def test_numbers_are_weights(weight):
    (matrix, nodes) = sm.adjacency(network(weight))
    assert_array_equal(matrix, [[np.inf, weight], [weight, np.inf]])
    assert matrix.dtype == np.float64
    assert nodes == ["a", "b"]


REFUSED = [
    (network("3"), TypeError, "edge weights must be numbers, got '3' between 'a' and 'b'"),
    (network(b"3"), TypeError, "edge weights must be numbers, got b'3'"),
    (network(None), TypeError, "edge weights must be numbers, got None"),
    (network(1 + 2j), TypeError, r"edge weights must be numbers, got \(1\+2j\)"),
    (network(np.complex64(1)), TypeError, "edge weights must be numbers"),
    (network([1]), TypeError, "edge weights must be numbers"),
    (network(10**400), ValueError, "does not fit float64: 1000"),
    (network(np.nan), ValueError, "has weight NaN"),
    (sparse(1 + 2j), TypeError, "edge weights are real numbers, got dtype complex128"),
    (np.full((2, 2), 1j), TypeError, "a graph's weights are real numbers, got dtype complex128"),
    ([["1", "2"], ["3", "4"]], TypeError, "got an array of dtype <U1"),
    (edges(col=[5]), ValueError, "an edge at node 5, and nodes are 0 to 1"),
    (edges(row=[-1]), ValueError, "an edge at node -1, and nodes are 0 to 1"),
    (edges(row=[0.5]), TypeError, "row and col are numbers of nodes, got dtype float64"),
    (edges(row=[0, 1]), ValueError, r"one length, got shapes \(2,\), \(1,\) and \(1,\)"),
    (edges(weight=["1"]), TypeError, "edge weights are real numbers, got dtype <U1"),
]


@pytest.mark.parametrize("function", [sm.apsp, widest, sm.adjacency])
@pytest.mark.parametrize(("graph", "error", "words"), REFUSED)
def test_what_is_no_weight_is_refused(function, graph, error, words):
    with pytest.raises(error, match=words):
        function(graph)


@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_array, np.ndarray.tolist])
def test_csgraph_refuses_complex_weights(make):
    with pytest.raises(TypeError, match="a graph's weights are real numbers"):
        csgraph.shortest_path(make(np.array([[0, 1 + 2j], [1, 0]])))


VAST = 10**8  # nodes


@pytest.mark.parametrize(
    "graph",
    [
        scipy.sparse.coo_array(([1.0], ([0], [1])), (VAST, VAST)),
        np.broadcast_to(np.inf, (300_000, 300_000)),
        edges(),
    ],
    ids=["sparse", "broadcast", "labels"],
)
@pytest.mark.parametrize("function", [sm.apsp, widest, sm.adjacency])
def test_memory_is_checked_before_any_scan_or_list(function, graph, monkeypatch):
    if isinstance(graph, Graph):
        graph = Graph(range(VAST), graph.row, graph.col, graph.weight, directed=False)
    monkeypatch.setattr(np, "count_nonzero", None)  # scans of the matrix
    monkeypatch.setattr(cpu, "symmetric", None)
    for module in (apsp, inputs):
        monkeypatch.setattr(module, "warn_of_entries", None)
    tracemalloc.start()
    try:
        with pytest.raises(MemoryError, match=r"needs|all pairs of 100,000,000 nodes"):
            function(graph)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["<i8", ">i8", ">i4", "<u2", "i1"])
def test_ends_of_edges_in_any_type_of_integers(kind):
    matrix, _ = sm.adjacency(edges(row=np.array([1], kind), col=np.array([0], kind)))
    assert_array_equal(matrix, [[np.inf, np.inf], [1, np.inf]])
    with pytest.raises(ValueError, match="an edge at node 3, and nodes are 0 to 1"):
        sm.adjacency(edges(row=np.array([3], kind)))


def test_memory_of_an_elimination_is_checked(monkeypatch):
    graph = scipy.sparse.coo_array(([1.0], ([0], [1])), (VAST, VAST))
    monkeypatch.setattr(cpu, "free_memory", lambda: 10**10)  # enough for one row of the result
    with pytest.raises(MemoryError, match="the elimination of 100000000 nodes needs 3"):
        sm.apsp(graph, method="sparse", sources=[0])


def test_an_elimination_is_not_begun_where_its_memory_lacks(monkeypatch):
    monkeypatch.setattr(arrays, "_UNASKED", 0)
    monkeypatch.setattr(cpu, "free_memory", lambda: 200 * 350)
    monkeypatch.setattr(contraction, "eliminate", None)
    with pytest.raises(MemoryError, match="the elimination of 200 nodes needs"):
        sm.apsp(nx.path_graph(200), method="sparse", sources=[0])


# --- weight= ------------------------------------------------------------------------------------


def attributes(*edges):
    graph = nx.DiGraph()
    for u, v, known in edges:
        graph.add_edge(u, v, **known)
    return graph


def igraph_of(**columns):
    return igraph.Graph([(0, 1), (1, 2)], directed=True, edge_attrs=columns)


def table(**columns):
    return pd.DataFrame({"source": [*"ab"], "target": [*"bc"], **columns})


LENGTHS = {
    "NetworkX": lambda: attributes(("a", "b", {"length": 3}), ("b", "c", {"length": 4, "no": "x"})),
    "igraph": lambda: igraph_of(length=[3, 4], no=[*"xy"]),
    "dict": lambda: {"a": {"b": {"length": 3}}, "b": {"c": {"length": 4, "no": "x"}}},
}


@pytest.mark.parametrize("kind", LENGTHS)
@pytest.mark.parametrize("call", [sm.apsp, widest, sm.adjacency])
def test_edges_without_the_weight_but_with_numbers_are_warned_of(call, kind):
    words = (
        "no edge has 'weight', and without it an edge counts as 1, although edges have 'length': "
        "write weight='length', or weight=None to count edges"
    )
    with pytest.warns(UserWarning, match=re.escape(words)) as found:
        call(LENGTHS[kind]())
    assert len(found) == 1
    assert found[0].filename == __file__


@pytest.mark.parametrize("kind", LENGTHS)
def test_weight_names_an_attribute_or_counts_edges(kind):
    graph = LENGTHS[kind]()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sm.apsp(graph, weight="length")[0, 2] == 7
        assert sm.closure(graph, "max_min", weight="length")[0, 2] == 3
        assert sm.adjacency(graph, weight="length")[0][1, 2] == 4
        assert sm.apsp(graph, weight=None)[0, 2] == 2
    with pytest.raises(ValueError, match="weight='lenght': no edge has it; edges have 'length'"):
        sm.apsp(graph, weight="lenght")
    with pytest.raises(TypeError, match="edge weights must be numbers, got 'x' between"):
        sm.apsp(graph, weight="no")


def test_a_usual_name_is_proposed_before_others():
    with pytest.warns(UserWarning, match="edges have 'id', 'km': write weight='km', or"):
        sm.apsp({"a": {"b": {"id": 7, "km": 3}}})


def test_some_edges_without_the_weight():
    """They count as 1, as for NetworkX; if they have other numbers that is hardly meant."""
    graph = attributes(("a", "b", {"weight": 3}), ("b", "c", {}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sm.apsp(graph)[0, 2] == 4
        assert sm.apsp(nx.path_graph(3))[0, 2] == 2  # nothing to warn of
        assert sm.apsp(attributes(("a", "b", {"name": "x", "toll": True})))[0, 1] == 1
    graph.add_edge("c", "d", km=5)
    with pytest.warns(UserWarning, match="not every edge has 'weight', .* edges have 'km'"):
        assert sm.apsp(graph)[0, 3] == 5


def test_weight_where_there_are_no_attributes():
    pair = scipy.sparse.coo_array(([5.0], ([0], [1])), (2, 2))
    assert sm.apsp(pair, weight=None)[0, 1] == 1
    assert sm.apsp(edges(weight=[5.0]), weight=None)[0, 1] == 1
    assert sm.apsp({"a": {"b": 5}}, weight=None)[0, 1] == 1
    for graph, words in (
        (np.eye(2), "a matrix has one number for each edge and no attributes; leave weight out"),
        (pair, "a sparse matrix has one number for each edge"),
        ({"a": {"b": 5}}, "the edge 'a' - 'b' has no attributes, it is 5; leave weight out"),
        (edges(), r"chosen when the graph was read; write read_graph\(path, weight='km'\)"),
    ):
        with pytest.raises(ValueError, match=words):
            sm.apsp(graph, weight="km")
    with pytest.raises(ValueError, match="to count edges give the matrix 1 for each"):
        sm.apsp(np.eye(2), weight=None)
    with pytest.raises(TypeError, match="weight is the name of an attribute of edges, or None"):
        sm.apsp(np.eye(2), weight=1.5)


def test_what_is_said_of_a_file_points_at_the_caller(tmp_path):
    path = tmp_path / "prices.csv"
    path.write_text("from,to,price,seats\na,b,3,100\nb,c,4,50\n")
    with pytest.warns(UserWarning, match="price") as found:
        assert sm.apsp(path)[0, 2] == 2
    assert {x.filename for x in found} == {__file__}
    assert sm.apsp(path, weight="price")[0, 2] == sm.apsp(path, weight=3)[0, 2] == 7
    assert sm.adjacency(path, source="to", target="from", weight="price")[0][0, 1] == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sm.apsp(path, weight=None)[0, 2] == 2


def test_several_files_are_one_graph(tmp_path):
    paths = [tmp_path / "one.csv", str(tmp_path / "two.csv")]
    for path, edge in zip(paths, ("a,b,3", "b,c,4"), strict=True):
        Path(path).write_text(f"from,to,weight\n{edge}\n")
    d = sm.apsp(paths)
    assert list(d.nodes) == [*"abc"]
    assert d[0, 2] == 7


# --- tables and dictionaries --------------------------------------------------------------------


def test_tables_name_their_columns():
    graph = table(weight=np.float32([3, 4])).rename(columns={"source": "here", "target": "there"})
    matrix, nodes = sm.adjacency(graph, source="here", target="there")
    assert_array_equal(matrix, [[np.inf, 3, np.inf], [np.inf, np.inf, 4], [np.inf] * 3])
    assert matrix.dtype == np.float32
    assert nodes == [*"abc"]
    assert_array_equal(
        sm.apsp(table(weight=[3, 4]), directed=False), [[0, 3, 7], [3, 0, 4], [7, 4, 0]]
    )


@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        (lambda: table().rename(columns={"source": "x"}), {}, "no column 'source' .*: x, target"),
        (table, {"source": "x"}, "the table: no column 'x'; columns: source, target"),
        (lambda: table(weight=[1, np.nan]), {}, "row 1 of the table: .* number as weight, got nan"),
        (lambda: table(weight=[1, 10**400]), {}, "row 1 of the table: .* not fit float64: 1000"),
        (lambda: table(weight=[1, "x"]), {}, "row 1 of the table: .* number as weight, got 'x'"),
        (lambda: table(length=[1, 2]), {"weight": "lenght"}, "no column 'lenght'; columns: source"),
        (lambda: table(target=["b", None]), {}, "row 1 .*: a node without a name, in .* 'target'"),
        (lambda: table(target=["b", ["c"]]), {}, "the table: what names a node .*unhashable"),
        (lambda: table(x=[1, 2]).set_axis([*"aab"], axis=1), {}, "two columns .* named 'a'"),
        (
            lambda: {},
            {"source": "x"},
            "source and target are columns .* got dict",
        ),
    ],
)
def test_tables_that_are_refused(make, options, words):
    with pytest.raises(ValueError, match=words):
        sm.adjacency(make(), **options)


def test_dictionaries():
    hops = sm.apsp({"a": ["b"], "b": ["c", "a"], "d": []})
    assert hops.nodes == [*"abdc"]  # keys, then neighbours that are none
    assert hops[0, 3] == 2
    parallel = {"a": {"b": {0: {"weight": 5}, 1: {"weight": 3}}}}
    assert sm.apsp(parallel)[0, 1] == 3
    for graph in ({"a": "bc"}, {"a": 3}, {"a": None}):
        with pytest.raises(TypeError, match="in a dict, each node has a dict of its neighbours"):
            sm.apsp(graph)


@pytest.mark.parametrize("graph", [{1, 2}, None, 3, object(), (x for x in ())])
@pytest.mark.parametrize("function", [sm.apsp, widest, sm.adjacency])
def test_what_is_no_graph_is_told_what_is(function, graph):
    words = r"igraph, a table of edges \(pandas, Polars, Arrow\), a dict of dicts, .* got"
    with pytest.raises(TypeError, match=words):
        function(graph)


@pytest.mark.parametrize(
    ("edges", "error"),
    [
        ([("a", "b", 3), ("b", "c", 4)], TypeError),
        ([("a", "b")], TypeError),
        ([(0, 1, 3.0), (1, 2, 4.0)], ValueError),
        (np.zeros((5, 2)), ValueError),
    ],
)
@pytest.mark.parametrize("function", [sm.apsp, widest, sm.adjacency])
def test_a_list_of_edges_is_told_what_to_be(function, edges, error):
    with pytest.raises(error, match=r"a list of edges is a table: pandas.DataFrame\(edges, col"):
        function(edges)


def test_labels_of_columns_are_none_of_rows():
    """A result from some sources, of other nodes, is no matrix with labels."""
    given = {"a": {"b": 3}, "b": {"c": 1}, "c": {}}
    every, some = sm.apsp(given), sm.apsp(given, sources=["c", "a", "b"])
    assert sm.adjacency(every)[1] == [*"abc"]
    matrix, nodes = sm.adjacency(some)
    assert_array_equal(matrix, np.asarray(every)[[2, 0, 1]])
    assert list(nodes) == [0, 1, 2]


def test_directed_leaves_an_undirected_graph_as_it_is():
    """Each of its edges leads both ways: there is no direction to keep."""
    graph = network(3)
    for directed in (None, True, False):
        assert_array_equal(sm.apsp(graph, directed=directed), [[0, 3], [3, 0]])


# --- inf for "no edge" where that is -inf -------------------------------------------------------

W = np.array([[0, 3, np.inf], [np.inf, 0, 1], [2, np.inf, 0]])


@pytest.mark.parametrize(
    "call",
    [
        lambda: sm.closure(W, "max_min"),
        lambda: sm.closure(W.tolist(), "max_min"),
        lambda: sm.closure(np.stack([np.eye(3), W]), "max_min"),
        lambda: sm.closure(W, "max_min", tiles=sm.Tiles(memory="1MB")),
        lambda: sm.closure({"a": {"b": np.inf}}, "max_min"),
        lambda: sm.adjacency(W, "max_min"),
        lambda: sm.adjacency(W, "max_plus"),
    ],
)
def test_infinite_widths_are_warned_of(call):
    with pytest.warns(UserWarning, match="is inf, .* where inf means no edge, write -inf") as found:
        call()
    assert len(found) == 1
    assert found[0].filename == __file__


def test_the_place_of_an_infinite_width(monkeypatch):
    monkeypatch.setattr(inputs, "_PIECE", 20)  # in pieces of two rows, and of one matrix
    w = np.diag([np.inf] * 9)
    w[7, 2] = np.inf
    for x, place in ((w, "[7, 2]"), (np.stack([np.eye(9), w]), "[1, 7, 2]")):
        with pytest.warns(UserWarning, match=re.escape(f"the weight at {place} is inf")):
            sm.closure(x, "max_min")


@pytest.mark.parametrize(
    ("matrix", "semiring"),
    [(np.where(np.isinf(W), -W, W), "max_min"), (np.diag([np.inf] * 3), "max_min"), (W, "min_max")],
)
def test_other_infinities_are_not_warned_of(matrix, semiring):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sm.closure(matrix, semiring)


# --- 0 for "no edge" where that is inf ----------------------------------------------------------

ROADS = np.eye(5, k=1) + np.eye(5, k=-1)


@pytest.mark.parametrize(
    "call",
    [
        sm.apsp,
        sm.adjacency,
        lambda w: sm.closure(w, "min_max"),
        lambda w: sm.apsp(w.astype(np.int8)),
        lambda w: sm.apsp(w.tolist()),
        lambda w: sm.apsp(pd.DataFrame(w)),
        lambda w: sm.apsp(np.stack([w, w])),
        lambda w: sm.apsp(w, sources=[2]),
        lambda w: sm.apsp(w, tiles=sm.Tiles(memory="1MB")),
        lambda w: sm.prepare(w).distances(),
        lambda w: sm.nearest(w, [0]),
        lambda w: sm.statistics(w),
    ],
)
def test_zeros_for_no_edge_are_warned_of(call):
    words = (
        r"\d+ of \d+ entries off the diagonal are 0 and none is inf: .* Where it means no edge, "
        r"write np.where\(W == 0, np.inf, W\), or use semiring_mm.csgraph"
    )
    with pytest.warns(UserWarning, match=words) as found:
        call(ROADS)
    assert len(found) == 1
    assert found[0].filename == __file__
    with pytest.warns(UserWarning, match=words):
        call(nx.to_numpy_array(nx.path_graph(4)))  # half of the entries


@pytest.mark.parametrize(
    ("matrix", "semiring"),
    [
        (np.where(ROADS == 0, np.inf, ROADS), "min_plus"),
        (np.where(ROADS == 0, 127, ROADS).astype(np.int8), "min_plus"),
        (np.where(np.tri(5, k=-3), np.inf, 0), "min_plus"),  # somebody knows of inf
        (1 - np.eye(5), "min_plus"),
        (np.array([[0, 0], [1, 0]]), "min_plus"),  # a single one
        (ROADS, "max_min"),  # a width of 0 is as good as none
        (ROADS != 0, "lor_land"),
        (np.zeros((1, 1)), "min_plus"),
        (np.zeros((0, 0)), "min_plus"),
        (scipy.sparse.csr_array(ROADS), "min_plus"),
    ],
)
def test_other_zeros_are_not_warned_of(matrix, semiring):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sm.closure(matrix, semiring)


def test_closure_has_no_semiring_of_its_own():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'semiring'"):
        sm.closure(W)


@pytest.mark.parametrize("call", [sm.apsp, csgraph.dijkstra])
def test_one_source_of_a_matrix_in_csr_takes_its_rows_as_they_are(monkeypatch, call):
    """The row of every edge would take a tenth of the time of the search."""
    rng = np.random.default_rng(4)
    graph = scipy.sparse.random_array((4000, 4000), density=1e-3, format="csr", rng=rng)
    words = {"sources": [7]} if call is sm.apsp else {"indices": [7]}
    expected = scipy.sparse.csgraph.dijkstra(graph, indices=[7])
    with monkeypatch.context() as patch:
        patch.delattr(EdgeList, "__getattr__")
        np.testing.assert_allclose(call(graph, **words), expected, rtol=1e-12)
    np.testing.assert_allclose(sm.apsp(graph, sources=[7], max_hops=4000), expected, rtol=1e-12)


def test_a_matrix_in_csr_may_have_room_for_more():
    graph = scipy.sparse.csr_array(np.array([[0, 2.0, 5], [0, 0, 1], [0, 0, 0]]))
    expected = sm.apsp(graph, sources=[0])
    graph.data = np.append(graph.data, -9.0)
    graph.indices = np.append(graph.indices, 0)
    np.testing.assert_array_equal(sm.apsp(graph, sources=[0]), expected)


@pytest.mark.parametrize("first", [[1, 1, 2], [0, 2, 1]])
def test_row_pointers_that_are_none_are_refused(first):
    graph = scipy.sparse.csr_array(np.array([[1.0, 2], [0, 0]]))
    graph.indptr = np.array(first)
    with pytest.raises(ValueError, match="indptr of a sparse matrix begins with 0"):
        sm.apsp(graph, sources=[0])


GRAPH = np.array([[0.0, 1.0], [2.0, 0.0]])
COUNTS = {
    "a number of neighbours": ("knn: k", lambda x: sm.neighbours.knn(GRAPH, GRAPH, x)),
    "an exponent": ("matrix_power: k", lambda x: sm.matrix_power(GRAPH, x)),
    "sequences": ("viterbi: k", lambda x: sm.sequences.viterbi(GRAPH, GRAPH, k=x)),
    "draws": ("sample: size", lambda x: sm.sequences.sample(GRAPH, GRAPH, size=x)),
    "an axis of steps": ("scan: axis", lambda x: sm.scan(np.ones((2, 2, 2)), axis=x)),
    "an axis": ("einsum: an axis", lambda x: sm.einsum(GRAPH, [0, x])),
    "a band": ("dtw: band", lambda x: sm.alignment.dtw([1], [2], band=x)),
    "columns": ("columns", lambda x: sm.BitMatrix(np.zeros((2, 1), np.uint8), x)),
    "edges": ("max_hops", lambda x: sm.apsp(GRAPH, max_hops=x)),
    "a source": ("sources", lambda x: sm.apsp(GRAPH, sources=[x])),
    "sources of a mask": ("sources", lambda x: sm.apsp(GRAPH, sources=np.array([x, x]))),
    "a node": ("a node", lambda x: sm.reconstruct_path(np.zeros((2, 2), int), x, 0)),
    "bytes": ("a size", lambda x: sm.apsp(GRAPH, tiles=sm.Tiles(memory=x))),
}


@pytest.mark.parametrize("value", [True, np.True_], ids=repr)
@pytest.mark.parametrize("name", COUNTS)
def test_truth_values_are_no_counts(name, value):
    argument, call = COUNTS[name]
    with pytest.raises(TypeError, match=f"{argument} must be an integer.*, got .*True"):
        call(value)
