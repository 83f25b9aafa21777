"""Real networks, against SciPy. The files are not part of the repository."""

import csv
import gzip
import itertools
import re

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from optional import csgraph, real_file, sp

import semiring_mm as sm
from semiring_mm.files import read_graph


def matrix(graph):
    """CSR with explicit zeros, the least of parallel edges."""
    n = len(graph.nodes)
    best = {}
    for u, v, w in zip(graph.row.tolist(), graph.col.tolist(), graph.weight.tolist(), strict=True):
        for edge in ((u, v), (v, u))[: 1 if graph.directed else 2]:
            best[edge] = min(w, best.get(edge, np.inf))
    row, col = np.array(list(best)).T
    return sp.csr_array((list(best.values()), (row, col)), (n, n))


def walk(graph, d, p, sources, rng, count=300):
    """Sum up some paths, edge by edge."""
    edges = matrix(graph).todok()
    rows, n = p.shape
    for i in rng.integers(0, rows, count).tolist():
        j = int(rng.integers(n))
        if j == sources[i] or not np.isfinite(d[i, j]):
            continue
        path = sm.reconstruct_path(np.asarray(p), sources[i], j)
        assert (path[0], path[-1]) == (sources[i], j)
        total = sum(edges[u, v] for u, v in itertools.pairwise(path))
        assert all((u, v) in edges for u, v in itertools.pairwise(path))
        assert total == pytest.approx(d[i, j], rel=1e-12)


def test_rome():
    graph = read_graph(real_file("rome99.gr"))
    assert len(graph.nodes) == 3353
    assert len(graph.row) == 8870
    expected = csgraph.dijkstra(matrix(graph))
    d, p = sm.apsp(graph, return_predecessors=True)
    assert_array_equal(d, expected)
    walk(graph, d, p, range(3353), np.random.default_rng(0))
    assert_array_equal(sm.apsp(real_file("rome99.gr"), sources=["6", "3001"]), expected[[5, 3000]])
    assert expected.max() == 77403


@pytest.mark.parametrize("name", ["test_FW_1000.mtx", "test_FW_2003.mtx", "test_FW_2500.mtx"])
def test_matrices_with_zeros_and_loops(name):
    graph = read_graph(real_file(name))
    expected = csgraph.dijkstra(matrix(graph))
    d, p = sm.apsp(graph, return_predecessors=True)
    assert_allclose(d, expected, rtol=1e-12)
    walk(graph, d, p, range(len(d)), np.random.default_rng(1))


def test_chicago_from_some_sources():
    graph = read_graph(real_file("ChicagoRegional_net.tntp"))
    assert len(graph.nodes) == 12982
    rng = np.random.default_rng(2)
    sources = rng.choice(12982, 12, replace=False).tolist()
    expected = csgraph.dijkstra(matrix(graph), indices=sources)
    labels = [graph.nodes[i] for i in sources]
    d, p = sm.apsp(graph, sources=labels, return_predecessors=True)
    assert_allclose(d, expected, rtol=1e-12)
    walk(graph, d, p, sources, rng)


@pytest.mark.slow
@pytest.mark.large
def test_chicago():
    graph = read_graph(real_file("ChicagoRegional_net.tntp"))
    adjacency, _ = sm.adjacency(graph, dtype=np.float32)
    d = sm.apsp(adjacency, overwrite=True)
    sources = np.random.default_rng(3).choice(12982, 50, replace=False)
    expected = csgraph.dijkstra(matrix(graph), indices=sources)
    assert_allclose(d[sources], expected, rtol=1e-5)


def test_miles_are_a_metric_closure():
    """Road distances obey the triangle inequality: shortest paths change what was not shortest."""
    text = gzip.decompress(real_file("knuth_miles.txt.gz").read_bytes()).decode("latin-1")
    rows, cities = [], 0
    for line in text.splitlines():
        if line.startswith("*"):
            continue
        if re.match(r"[A-Za-z]", line):
            cities += 1
            rows.append([])
        elif rows:
            rows[-1] += [int(x) for x in line.split()]
    assert cities == 128
    miles = np.full((128, 128), np.iinfo(np.int32).max, np.int32)
    for i, row in enumerate(rows):
        assert len(row) == i
        for j, x in enumerate(row):  # from the city before it backwards
            miles[i, i - 1 - j] = miles[i - 1 - j, i] = x
    d, p = sm.apsp(miles, return_predecessors=True)
    np.fill_diagonal(miles, 0)
    assert_array_equal(d, csgraph.floyd_warshall(miles))
    assert (d <= miles).all()
    assert (d == miles).mean() > 0.9
    assert_array_equal(p == np.arange(128)[:, None], (d == miles) & ~np.eye(128, dtype=bool))


def test_the_german_grid_by_capacity():
    with real_file("scigrid_de_lines.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    names = sorted({line[end] for line in lines for end in ("bus0", "bus1")})
    index = {name: k for k, name in enumerate(names)}
    w = np.full((len(names), len(names)), -np.inf)
    for line in lines:
        u, v = index[line["bus0"]], index[line["bus1"]]
        w[u, v] = w[v, u] = max(w[u, v], float(line["s_nom"]))
    c, p = sm.closure(w, "max_min", return_predecessors=True)
    # The widest path runs in a maximum spanning tree.
    tree = csgraph.minimum_spanning_tree(sp.csr_array(np.where(w > 0, -w, 0))).toarray()
    tree = np.where(tree < 0, -tree, -np.inf)
    assert_array_equal(c, sm.closure(tree, "max_min", directed=False))
    for i in range(0, len(names), 37):
        for j in range(0, len(names), 11):
            if i != j and c[i, j] > 0:
                path = sm.reconstruct_path(p, i, j)
                assert min(w[u, v] for u, v in itertools.pairwise(path)) == c[i, j]


def test_the_stand_in_for_csgraph_on_a_road_network():
    from semiring_mm import csgraph as ours

    graph = matrix(read_graph(real_file("rome99.gr")))
    some = [0, 1500, 3352]
    expected = csgraph.dijkstra(graph, indices=some)
    for d in (ours.dijkstra(graph)[some], ours.shortest_path(graph, indices=some)):
        assert_array_equal(d, expected)
