"""Results keep the labels of graphs: names into apsp, names out of it."""

import copy
import pickle
import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from optional import igraph, nx, pd, sp

import semiring_mm as sm

inf = np.inf
EDGES = [("a", "b", 3.0), ("a", "c", 8.0), ("b", "c", 1.0)]
DISTANCES = [[0, 3, 4], [inf, 0, 1], [inf, inf, 0]]


def networkx():
    graph = nx.DiGraph()
    graph.add_weighted_edges_from(EDGES)
    return graph


def multigraph():
    graph = nx.MultiDiGraph()
    graph.add_weighted_edges_from([*EDGES, ("a", "b", 5), ("a", "c", 9)])
    return graph


def table(**names):
    return pd.DataFrame(EDGES, columns=["source", "target", "weight"]).rename(columns=names)


def matrix():
    return pd.DataFrame([[0, 3, 8], [inf, 0, 1], [inf, inf, 0.0]], [*"abc"], [*"abc"])


GRAPHS = {
    "NetworkX": networkx,
    "NetworkX's multigraph": multigraph,
    "igraph": lambda: igraph.Graph.TupleList(EDGES, directed=True, weights=True),
    "pandas": table,
    "pandas, from and to": lambda: table(source="From", target="to"),
    "pandas, categories": lambda: table().astype({"source": "category"}),
    "pandas, a matrix": matrix,
    "a dict of dicts": lambda: {"a": {"b": 3, "c": 8}, "b": {"c": 1}},
    "a dict of attributes": lambda: nx.to_dict_of_dicts(networkx()),
    "a dict of parallel edges": lambda: nx.to_dict_of_dicts(multigraph()),
    "adjacency of NetworkX": lambda: networkx().adj,
    "another result": lambda: sm.apsp(networkx()),
}


@pytest.mark.parametrize("kind", GRAPHS)
def test_labels_go_through(kind):
    graph = GRAPHS[kind]()
    d, p = sm.apsp(graph, return_predecessors=True)
    assert_array_equal(d, DISTANCES)
    assert list(d.nodes) == list(d.sources) == list(p.nodes) == [*"abc"]
    assert d.predecessors is p
    if kind != "another result":
        assert d.path("a", "c") == p.path("a", "c") == sm.reconstruct_path(p, "a", "c") == [*"abc"]
        assert d.path("c", "c") == ["c"]
        with pytest.raises(ValueError, match="there is no path from 'c' to 'a'"):
            d.path("c", "a")
    d, p = sm.apsp(graph, sources=["c", "a"], return_predecessors=True)
    assert_array_equal(d, [DISTANCES[2], DISTANCES[0]])
    assert list(d.sources) == list(p.sources) == ["c", "a"]
    assert sm.reconstruct_path(p, "a", "c")[::2] in (["a", "c"], ["a"])
    assert d.path("c", "c") == ["c"]
    with pytest.raises(ValueError, match="'b' is not one of the sources; labels are 'c', 'a'"):
        d.path("b", "c")
    assert list(sm.apsp(graph, sources="b").sources) == ["b"]
    widest = sm.closure(graph, "min_max")
    assert list(widest.nodes) == [*"abc"]
    assert sm.adjacency(graph)[1] == [*"abc"]


@pytest.mark.parametrize("name", ["w.csv", "w.npy", "w.mtx"])
def test_files(name, tmp_path):
    path = tmp_path / name
    if name == "w.csv":
        path.write_text("from,to,weight\na,b,3\na,c,8\nb,c,1\n")
        labels = [*"abc"]
    elif name == "w.mtx":
        path.write_text(
            "%%MatrixMarket matrix coordinate real general\n3 3 3\n1 2 3\n1 3 8\n2 3 1\n"
        )
        labels = [*"123"]
    else:
        np.save(path, np.array([[0, 3, 8], [inf, 0, 1], [inf, inf, 0]]))
        labels = range(3)  # the numbers of the rows, so that the result is a plain array
    d, p = sm.apsp(path, sources=labels[:2], return_predecessors=True)
    assert_array_equal(d, DISTANCES[:2])
    assert type(d) is (np.ndarray if name == "w.npy" else sm.LabelledArray)
    assert sm.reconstruct_path(p, labels[0], labels[2]) == list(labels)
    if name != "w.npy":
        with pytest.raises(ValueError, match="0 is not a node"):
            sm.apsp(path, sources=[0])


def test_plain_matrices_have_plain_results():
    w = np.array([[0, 3, 8], [inf, 0, 1], [inf, inf, 0]])
    unnamed = igraph.Graph([(0, 1), (1, 2)], directed=True)
    for graph in (w, w.tolist(), w[None], sp.csr_array(np.where(w < inf, w, 0)), unnamed):
        for found in sm.apsp(graph, return_predecessors=True):
            assert type(found) is np.ndarray
    assert type(sm.closure(w, "min_max")) is np.ndarray
    assert type(sm.apsp(sm.apsp(networkx()).T)) is np.ndarray  # the labels were lost before


def test_what_is_computed_from_a_result_has_no_labels():
    d = sm.apsp(networkx())
    plain = [
        d[0], d[:, :2], d[d < 5], d[[1, 0]], d[...], d + 1, -d, d == 1, d.max(0), np.sqrt(d),
        (d == 0) @ np.eye(3), np.where(d < 5, d, 0), next(iter(d)), np.asarray(d),
    ]  # fmt: skip
    assert {type(x) for x in plain} == {np.ndarray}
    assert type(d.sum()) is type(d[0, 1]) is np.float64
    for x in (d.T, d.astype("f4"), d.reshape(-1), np.sort(d), np.partition(d, 1), d.view(np.int64)):
        assert getattr(x, "nodes", None) is getattr(x, "sources", None) is None
    with pytest.raises(ValueError, match="this array has no labels"):
        d.T.path("a", "b")
    d += 1  # in place the array stays what it is
    d[0, 1] = 7
    assert d.nodes == [*"abc"]
    assert d[0, 1] == 7


@pytest.mark.parametrize(
    "copied",
    [lambda d: d.copy(), copy.copy, copy.deepcopy]
    + [lambda d, k=k: pickle.loads(pickle.dumps(d, k)) for k in (2, 5)],
)
def test_copies_keep_labels(copied):
    d, p = sm.apsp(networkx(), sources=["b", "a"], return_predecessors=True)
    for x in (copied(d), copied(p)):
        assert type(x) is sm.LabelledArray
        assert (x.nodes, x.sources) == ([*"abc"], ["b", "a"])
        assert x.path("a", "c") == [*"abc"]
    assert copied(d).predecessors is not None
    other = copied(d)
    other[0, 0] = 9
    assert d[0, 0] == inf


def test_tables():
    d, p = sm.apsp(networkx(), return_predecessors=True)
    wide = d.to_frame()
    assert wide.loc["a", "c"] == 4
    assert (wide.index.name, wide.columns.name) == ("from", "to")
    assert_array_equal(sm.apsp(wide), d)  # there and back
    long = d.to_frame(long=True)
    assert long.to_dict("list") == {
        "from": [*"aab"], "to": [*"bcc"], "distance": [3, 4, 1], "legs": [1, 2, 1]
    }  # fmt: skip
    assert list(sm.apsp(networkx()).to_frame(long=True)) == ["from", "to", "distance"]
    assert p.to_frame().loc["a", "c"] == "b"
    some = sm.apsp(networkx(), sources=["b"], return_predecessors=True)[0].to_frame(long=True)
    assert some.to_dict("list") == {"from": ["b"], "to": ["c"], "distance": [1], "legs": [1]}
    reach = sm.closure(networkx(), "lor_land").to_frame(long=True)
    assert list(reach) == ["from", "to", "lor_land"]
    assert len(reach) == 3
    grid = nx.grid_2d_graph(2, 2)
    assert sm.apsp(grid).to_frame().loc[[(0, 0)]].to_numpy().tolist() == [[0, 1, 1, 2]]
    assert sm.apsp(grid).to_frame(long=True)["from"].tolist()[:1] == [(0, 0)]


def test_labels_that_are_tuples():
    grid = nx.grid_2d_graph(2, 3)
    d, _ = sm.apsp(grid, sources=(0, 0), return_predecessors=True)
    assert d.shape == (1, 6)
    assert d.path((0, 0), (0, 2)) == [(0, 0), (0, 1), (0, 2)]
    assert sm.apsp(grid, sources=[(0, 0), (1, 2)]).shape == (2, 6)


def test_numbers_of_nodes_are_labels_too():
    graph = nx.DiGraph([(7, 3), (3, 5)])
    d, p = sm.apsp(graph, sources=np.array([3]), return_predecessors=True)
    assert d.sources == [3]
    assert sm.reconstruct_path(p, 3, 5) == [3, 5]
    assert sm.reconstruct_path(np.asarray(p), 1, 2) == [1, 2]  # without labels: positions


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ("z", "'z' is not a node of the graph; labels are 'a', 'b', 'c'"),
        (["a", "z"], "'z' is not a node"),
        ([0], "0 is not a node"),
        ([["a"]], r"\['a'\] is not a node"),
    ],
)
def test_sources_that_are_no_labels(sources, words):
    with pytest.raises(ValueError, match=words):
        sm.apsp(networkx(), sources=sources)


def test_two_nodes_of_one_name():
    graph = igraph.Graph([(0, 1), (1, 2)], directed=True, vertex_attrs={"name": [*"aba"]})
    d, _ = sm.apsp(graph, return_predecessors=True)
    assert_array_equal(d, [[0, 1, 2], [inf, 0, 1], [inf, inf, 0]])
    for call in (lambda: d.path("a", "b"), lambda: sm.apsp(graph, sources=["b"])):
        with pytest.raises(ValueError, match="two nodes have the label 'a'"):
            call()


def test_a_path_needs_predecessors():
    net = sm.prepare(networkx())
    tables = [sm.apsp(networkx()), net.distances(), net.distances("a", ["b", "b"])]
    for d in tables:
        with pytest.raises(ValueError, match=r"return_predecessors=True\), or net.path"):
            d.path("a", "b")
    with pytest.raises(ValueError, match="'c' is not one of the targets; labels are 'b', 'b'"):
        tables[2].path("a", "c")
    with pytest.raises(ValueError, match="'b' is not one of the sources; labels are 'a'"):
        tables[2].path("b", "b")


def test_names_look_up_distances():
    d, p = sm.apsp(networkx(), return_predecessors=True)
    assert (d["a", "c"], d["a", 2], d[0, "c"], p["a", "c"]) == (4, 4, 4, 1)
    assert_array_equal(d["a"], [0, 3, 4])
    assert_array_equal(d[:, "c"], [4, 1, 0])
    assert type(d["a"]) is np.ndarray
    some = sm.prepare(networkx()).distances(["b", "a"], ["c", "c"])
    assert (some["a", "c"], some.nodes, some.sources) == (4, ["c", "c"], ["b", "a"])
    grid = sm.apsp(nx.grid_2d_graph(2, 2))
    assert grid[(0, 0), (1, 1)].tolist() == [1, 1]  # NumPy's positions, as before
    named = sm.apsp({("x", 1): {("y", 2): 5}, ("y", 2): {}})
    assert named[("x", 1), ("y", 2)] == 5
    number = sm.apsp({10: {20: 5.0}, 20: {}, 2.5: {}})
    assert (number[0, 1], number[2.5, 2.5]) == (5, 0)
    for key in (("a", "z"), "z", (slice(None), "z")):
        with pytest.raises(IndexError, match="'z' is not a node of the graph; labels are 'a'"):
            d[key]
    for key in ((10, 20), ["a"]):
        with pytest.raises(IndexError, match="ind"):
            number[key]
    with pytest.raises(IndexError, match="only integers"):
        d.T["a"]


def test_labels_are_shown():
    d = sm.apsp(networkx(), sources=["b", "a"])
    assert repr(d).splitlines() == [
        "LabelledArray, 2 x 3, float64",
        "     a  b  c",
        "b  inf  0  1",
        "a    0  3  4",
    ]
    assert str(d) == repr(d)
    assert repr(d.T).startswith("LabelledArray([[inf,")
    markup = sm.apsp({"<b>": {"x": 1.5}})._repr_html_()
    assert "<caption>LabelledArray, 2 x 2, float64</caption>" in markup
    assert "<tr><th>&lt;b&gt;</th><td>0</td><td>1.5</td></tr>" in markup
    large = sm.apsp({f"station {k}": {f"station {k + 1}": 1} for k in range(5000)}, sources=[
        "station 3", "station 7"
    ])  # fmt: skip
    lines = repr(large).splitlines()
    assert max(map(len, lines)) <= 80
    assert "..." in lines[1]
    assert lines[1].split("  ")[-1] == "station 5000"
    assert len(repr(sm.apsp({k: {f"n{k}": 1} for k in range(100)})).splitlines()) == 13


def test_in_files_results_stay_files(tmp_path):
    d = sm.apsp(networkx(), tiles=sm.Tiles(out=tmp_path / "d.npy"))
    assert type(d) is np.memmap
    assert type(sm.apsp(networkx(), tiles=sm.Tiles(memory="1MB"))) is sm.LabelledArray


def test_large_sparse_graphs_are_searched_with_labels():
    graph = nx.grid_2d_graph(30, 30)
    d, _ = sm.apsp(graph, return_predecessors=True, method="sparse")
    path = d.path((0, 0), (29, 29))
    assert len(path) == 59
    assert path[-1] == (29, 29)


def test_a_table_needs_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r'pip install "semiring-mm\[pandas\]"'):
        sm.apsp({"a": {"b": 3}}).to_frame()
