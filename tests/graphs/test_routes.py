"""Many paths at once: each is a best path of real edges, and the one that path() finds."""

import itertools

import numpy as np
import pytest
from metrics import leave_core
from optional import nx, pd, pl

import semiring_mm as sm
from semiring_mm.closures.edges import EdgeList
from semiring_mm.graphs import prepared

NAMED = {"a": {"b": 3, "c": 8}, "b": {"c": 1}, "d": {}}


def random_edges(seed, n=14, m=30, *, directed=True, least=1, dtype="f8"):
    """Edges of which some are parallel and some are loops, and a node without any."""
    rng = np.random.default_rng(seed)
    row, col = rng.integers(0, n - 1, (2, m))
    row[:4], col[:4] = row[4:8], col[4:8]
    return EdgeList(range(n), row, col, rng.integers(least, 6, m).astype(dtype), directed)


def check(net, edges, pairs):
    """Every path leads from its source to its target along edges that add up to its weight."""
    found = net.paths(pairs)
    best = net.semiring.add_kind
    assert len(found) == len(pairs)
    for i, (source, target) in enumerate(pairs):
        nodes = found.nodes[found.indptr[i] : found.indptr[i + 1]].tolist()
        used = found.edges[found.edge_indptr[i] : found.edge_indptr[i + 1]].tolist()
        weight = net.distance(source, target)
        assert found.weight[i] == weight
        try:
            assert nodes == net.path(source, target) == found.labels(i)
        except ValueError:
            assert nodes == used == []
            assert found.without_path[i]
            continue
        assert (nodes[0], nodes[-1]) == (source, target)
        assert len(set(nodes)) == len(nodes) == len(used) + 1
        for e, (u, v) in zip(used, itertools.pairwise(nodes), strict=True):
            ends = (edges.row[e], edges.col[e])
            assert ends == (u, v) or (not edges.directed and ends == (v, u))
            parallel = (edges.row == ends[0]) & (edges.col == ends[1])
            if not edges.directed:
                parallel |= (edges.row == ends[1]) & (edges.col == ends[0])
            same = edges.weight[parallel]
            assert edges.weight[e] == (same.max() if best == "max" else same.min())
            assert e == np.flatnonzero(parallel & (edges.weight == edges.weight[e]))[0]
        if best == "min" and used:
            assert edges.weight[used].sum() == weight
        elif used:
            assert edges.weight[used].min() == weight
    return found


@pytest.mark.parametrize("core", [False, True])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize(
    ("semiring", "least", "dtype"),
    [("min_plus", 1, "f8"), ("min_plus", 0, "f4"), ("min_plus", 0, "i4"), ("max_min", 1, "f8")],
)
def test_all_pairs(semiring, least, dtype, directed, core, monkeypatch):
    if core:
        leave_core(monkeypatch)
    for seed in range(6):
        edges = random_edges(seed, directed=directed, least=least, dtype=dtype)
        net = sm.prepare(edges, semiring=semiring, dtype=dtype)
        pairs = list(itertools.product(range(edges.n), repeat=2))
        found = check(net, edges, pairs)
        assert found.weight.dtype == net.dtype
        if semiring == "min_plus":
            there = ~found.without_path
            np.testing.assert_array_equal(found.sums(edges.weight)[there], found.weight[there])
            assert np.isinf(found.sums(edges.weight)[~there]).all()


def test_reachability():
    edges = np.zeros((4, 4), bool)
    edges[0, 1] = edges[1, 2] = True
    found = sm.prepare(edges, semiring="lor_land").paths([(0, 2), (2, 0), (3, 3)])
    assert list(found) == [[0, 1, 2], [], [3]]
    assert (found.weight.dtype, found.weight.tolist()) == (bool, [True, False, True])
    assert found.edges.tolist() == [0, 1]


@pytest.mark.parametrize("core", [False, True])
def test_progress(core, monkeypatch):
    if core:
        leave_core(monkeypatch)
    told = []
    net = sm.prepare(random_edges(0))
    net.paths([(0, 1)] * 100, progress=lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1] == (100, 100)


def test_edges_have_the_weights_of_now():
    edges = EdgeList(range(2), np.array([0, 0]), np.array([1, 1]), np.array([2.0, 1.0]), True)
    net = sm.prepare(edges)
    assert net.paths([(0, 1)]).edges.tolist() == [1]
    net.customize([2, 3])
    assert net.paths([(0, 1)]).edges.tolist() == [0]
    net.customize([np.inf, np.inf])
    assert net.paths([(0, 1)]).without_path.tolist() == [True]


@pytest.mark.parametrize("threads", [1, 2])
def test_many_tasks_and_little_room(threads, monkeypatch):
    """Paths in the order of their pairs, whoever finds them."""
    monkeypatch.setattr("semiring_mm.graphs.queries._ROOM", 1)
    monkeypatch.setattr(prepared, "_PAIRS", 3)
    before = sm.get_num_threads()
    sm.set_num_threads(threads)
    try:
        g = nx.grid_2d_graph(7, 8)
        net = sm.prepare(g)
        pairs = [(u, v) for u in g for v in g][::5]
        found = net.paths(pairs)
        assert list(found) == [net.path(u, v) for u, v in pairs]
        assert found.legs.tolist() == [abs(u[0] - v[0]) + abs(u[1] - v[1]) for u, v in pairs]
    finally:
        sm.set_num_threads(before)


def test_walks_that_are_too_long_are_paths_by_trees(monkeypatch):
    """As of semirings in which ties lengthen them beyond all nodes."""
    edges = random_edges(3, least=0)
    net = sm.prepare(edges)
    expected = net.paths(pairs := list(itertools.product(range(edges.n), repeat=2)))
    original = prepared.PathQuery.paths

    def cut(self, ends):
        value, count, walk, used = original(self, ends)
        long = count > 1
        kept = np.repeat(~long, count)
        return value, np.where(long, -1, count), walk[kept], used[kept]

    monkeypatch.setattr(prepared.PathQuery, "paths", cut)
    found = net.paths(pairs)
    np.testing.assert_array_equal(found.weight, expected.weight)
    np.testing.assert_array_equal(found.sums(edges.weight), expected.sums(edges.weight))
    for i, (_, target) in enumerate(pairs):
        assert found.without_path[i] or found.labels(i)[-1] == target


PAIRS = [("a", "c"), ("c", "a"), ("d", "d"), ("b", "c")]
FORMS = {
    "list": lambda: PAIRS,
    "generator": lambda: (x for x in PAIRS),
    "array": lambda: np.array(PAIRS),
    "two sequences": lambda: tuple(map(list, zip(*PAIRS, strict=True))),
    "two arrays": lambda: tuple(np.array(PAIRS).T),
    "pandas": lambda: pd.DataFrame(PAIRS, columns=["origin", "destination"]),
    "polars": lambda: pl.DataFrame(PAIRS, schema=["from", "to"], orient="row"),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_pairs(form):
    found = sm.prepare(NAMED).paths(FORMS[form]())
    assert list(found) == [["a", "b", "c"], [], ["d"], ["b", "c"]]
    assert found.weight.tolist() == [4, np.inf, 0, 1]
    assert found.legs.tolist() == [2, 0, 0, 1]
    assert repr(found) == "<Paths: 4 with 3 edges, 1 pairs without a path>"


def test_a_file_of_pairs(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("origin,destination,name\na,c,first\nb,c,second\n")
    assert list(sm.prepare(NAMED).paths(path)) == [["a", "b", "c"], ["b", "c"]]


def test_no_pairs():
    found = sm.prepare(NAMED).paths([])
    assert len(found) == len(found.nodes) == len(found.edges) == 0
    assert found.indptr.tolist() == found.edge_indptr.tolist() == [0]
    assert found.sums([1, 2, 3]).tolist() == []
    assert len(found.to_frame()) == len(found.to_frame(legs=True)) == 0


def test_frames():
    found = sm.prepare(NAMED).paths(PAIRS)
    table = found.to_frame()
    assert table.columns.tolist() == ["from", "to", "weight", "legs"]
    assert table.values.tolist()[0] == ["a", "c", 4, 2]
    legs = found.to_frame(legs=True)
    assert legs.values.tolist() == [[0, "a", "b", 0], [0, "b", "c", 2], [3, "b", "c", 2]]
    assert "<td>8" not in found._repr_html_()
    assert found._repr_html_().count("<tr") == 5


def test_rows_of_a_table_that_leads_both_ways():
    table = pd.DataFrame(
        {
            "u": ["a", "b", "a"],
            "v": ["b", "c", "c"],
            "weight": [1, 2, 9],
            "oneway": ["no", "yes", "no"],
        }
    )
    net = sm.prepare(table)
    found = net.paths([("a", "c"), ("c", "b"), ("c", "a")])
    assert list(found) == [["a", "b", "c"], ["c", "a", "b"], ["c", "a"]]
    assert found.rows.tolist() == [0, 1, 2, 0, 2]
    assert found.sums(table["weight"]).tolist() == found.weight.tolist() == [3, 10, 9]


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (("a", "c"), "got a tuple of two nodes: path"),
        ((["a"], ["b"], ["c"]), "got a tuple"),
        (["ac"], "got 'ac' in place of a pair"),
        ([("a", "b", "c")], "in place of a pair"),
        (np.array(["a", "b"]), r"got an array of shape \(2,\)"),
        (np.zeros((2, 3)), r"got an array of shape \(2, 3\)"),
        ((["a", "b"], ["c"]), "2 sources and 1 targets"),
        ([("a", "x")], "'x' is not a node of the graph"),
    ],
)
def test_what_are_no_pairs(pairs, message):
    with pytest.raises(ValueError, match=message):
        sm.prepare(NAMED).paths(pairs)


def test_other_errors():
    net = sm.prepare(NAMED)
    for pairs in (None, 3, [3]):
        with pytest.raises(TypeError, match="pairs are a sequence"):
            net.paths(pairs)
    found = net.paths(PAIRS)
    with pytest.raises(IndexError, match="there are 4 paths, 0 to 3, got 4"):
        found.labels(4)
    assert found.labels(-1) == ["b", "c"]
    with pytest.raises(ValueError, match=r"values are 3 numbers.* got shape \(2,\)"):
        found.sums([1, 2])
    with pytest.raises(ValueError, match="there is no node 9, they are 0 to 1"):
        sm.prepare(np.array([[0, 1.0], [1, 0]])).paths([(0, 9)])


@pytest.mark.parametrize("core", [False, True])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("dtype", ["f8", "i4"])
def test_weights_alone(dtype, directed, core, monkeypatch):
    if core:
        leave_core(monkeypatch)
    net = sm.prepare(random_edges(4, directed=directed, dtype=dtype))
    ends = np.stack(np.divmod(np.arange(14 * 14), 14), axis=1)
    found = net.weights(ends)
    assert found.dtype == net.dtype
    assert np.array_equal(found.reshape(14, 14), net.distances())
    assert net.weights(ends[:0]).shape == (0,)
