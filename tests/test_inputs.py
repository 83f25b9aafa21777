"""What is taken as a graph, and what is refused before any work."""

import tracemalloc
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from optional import nx

import semiring_mm as sm
from semiring_mm.files import Graph

scipy = pytest.importorskip("scipy")
from semiring_mm import csgraph  # noqa: E402


def network(weight):
    graph = nx.Graph()
    graph.add_edge("a", "b", weight=weight)
    return graph


def edges(row=(0,), col=(1,), weight=(1.0,)):
    return Graph(["a", "b"], np.array(row), np.array(col), np.array(weight), directed=True)


def sparse(weight):
    return scipy.sparse.coo_array(([weight], ([0], [1])), (2, 2))


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
    ([["1", "2"], ["3", "4"]], TypeError, "got dtype <U1|has dtype <U1"),
    (edges(col=[5]), ValueError, "an edge at node 5, and nodes are 0 to 1"),
    (edges(row=[-1]), ValueError, "an edge at node -1, and nodes are 0 to 1"),
    (edges(row=[0.5]), TypeError, "row and col are numbers of nodes, got dtype float64"),
    (edges(row=[0, 1]), ValueError, r"one length, got shapes \(2,\), \(1,\) and \(1,\)"),
    (edges(weight=["1"]), TypeError, "edge weights are real numbers, got dtype <U1"),
]


@pytest.mark.parametrize("function", [sm.apsp, sm.closure, sm.adjacency])
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
@pytest.mark.parametrize("function", [sm.apsp, sm.closure, sm.adjacency])
def test_memory_is_checked_before_any_scan_or_list(function, graph, monkeypatch):
    if isinstance(graph, Graph):
        graph = Graph(range(VAST), graph.row, graph.col, graph.weight, directed=False)
    monkeypatch.setattr(np, "count_nonzero", None)  # a scan of the matrix
    tracemalloc.start()
    try:
        with pytest.raises(MemoryError, match="needs"):
            function(graph)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()


def test_memory_of_an_elimination_is_checked(monkeypatch):
    graph = scipy.sparse.coo_array(([1.0], ([0], [1])), (VAST, VAST))
    from semiring_mm.cpu import engine

    monkeypatch.setattr(engine, "free_memory", lambda: 10**10)  # enough for one row of the result
    with pytest.raises(MemoryError, match="the elimination of 100000000 nodes needs 3"):
        sm.apsp(graph, method="sparse", sources=[0])
