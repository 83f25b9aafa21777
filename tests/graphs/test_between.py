"""Paths between chosen sources and targets, and graphs of chosen columns in a dtype."""

import importlib

import numpy as np
import pytest
from optional import pd, sp

import semiring_mm as sm
from semiring_mm.graphs import statistics
from semiring_mm.graphs.rows import Searches

GRAPH = {"a": {"b": 3, "c": 8}, "b": {"c": 1}, "d": {"a": 2}}


def random(n=40, seed=0):
    rng = np.random.default_rng(seed)
    w = rng.integers(1, 9, (n, n)) * 1.0
    w[rng.random((n, n)) < 0.9] = np.inf
    return w


CHOSEN = [(None, [5]), (None, [1, 1, 7]), ([3, 4, 5], [7]), ([7], [9, 0, 3]), (3, 5), ([], [2])]


@pytest.mark.parametrize(("sources", "targets"), CHOSEN)
@pytest.mark.parametrize("kind", ["matrix", "sparse", "undirected"])
def test_a_part_of_all_pairs(kind, sources, targets):
    w = random()
    graph = sp.csr_array(np.where(np.isinf(w), 0, w)) if kind == "sparse" else w
    directed = False if kind == "undirected" else None
    rows = slice(None) if sources is None else np.atleast_1d(np.array(sources, int))
    part = sm.apsp(w, directed=directed)[rows][:, np.atleast_1d(targets)]
    found = sm.apsp(graph, sources=sources, targets=targets, directed=directed)
    np.testing.assert_array_equal(found, part)
    whole = sm.closure(w, "min_max", directed=directed)
    found = sm.closure(graph, "min_max", sources=sources, targets=targets, directed=directed)
    np.testing.assert_array_equal(found, whole[rows][:, np.atleast_1d(targets)])
    hops = sm.apsp(w, max_hops=2, directed=directed)
    found = sm.apsp(graph, sources=sources, targets=targets, max_hops=2, directed=directed)
    np.testing.assert_array_equal(found, hops[rows][:, np.atleast_1d(targets)])


def test_few_targets_are_sources_of_the_reversed_graph(monkeypatch):
    module, seen = importlib.import_module("semiring_mm.graphs.apsp"), []

    class Noted(module.Task):
        def __init__(self, *graph, sources, **asked):
            seen.append(len(sources))
            super().__init__(*graph, sources=sources, **asked)

    monkeypatch.setattr(module, "Task", Noted)
    sm.apsp(random(), targets=[3, 4])
    sm.apsp(random(), sources=range(9), targets=[3, 4])
    sm.apsp(random(), sources=[1], targets=range(9))
    assert seen == [2, 2, 1]


def test_labels_of_sources_and_targets():
    found = sm.apsp(GRAPH, sources=["d", "a"], targets=["c", "b"])
    assert (found.sources, found.nodes) == (["d", "a"], ["c", "b"])
    np.testing.assert_array_equal(found, [[6, 5], [4, 3]])
    found = sm.apsp(GRAPH, targets="c")
    assert found["d", "c"] == 6
    np.testing.assert_array_equal(found[:, 0], [4, 1, 6, 0])


def test_an_operation_that_does_not_commute():
    """Paths are not reversed then."""
    last = sm.Semiring("last", "min(a, b)", "max(a, b + 0 * a)", np.inf, -np.inf)
    assert not last.commutes
    w = random(12)
    np.testing.assert_array_equal(
        sm.closure(w, last, targets=[3, 4]), sm.closure(w, last)[:, [3, 4]]
    )


def test_a_negative_cycle_is_in_the_order_of_its_edges():
    graph = {"a": {"b": 1}, "b": {"c": 1}, "c": {"a": -3}}
    with pytest.raises(sm.NegativeCycleError) as caught:
        sm.apsp(graph, targets="c")
    cycle = caught.value.cycle
    k = cycle.index(0)
    assert cycle[k:] + cycle[:k] == [0, 1, 2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"return_predecessors": True}, "return_predecessors is for all targets: leave out"),
        ({"overwrite": True}, "overwrite is for all targets"),
        ({"tiles": sm.Tiles(memory="1GB")}, "tiles is for all targets"),
        ({"targets": [40]}, "targets: there is no node 40, they are 0 to 39"),
    ],
)
def test_refusals(words, message):
    with pytest.raises(ValueError, match=message):
        sm.apsp(random(), **{"targets": [1]} | words)
    with pytest.raises(ValueError, match="are for one graph, not for a batch"):
        sm.apsp(np.stack([random(), random()]), targets=[1])


def test_columns_and_dtypes():
    table = pd.DataFrame({"u": ["a", "b"], "v": ["b", "c"], "len": [1.5, 2.0]})
    columns = {"source": "u", "target": "v", "weight": "len"}
    d = sm.apsp(table, **columns, dtype="f4")
    assert d.dtype == np.float32
    assert d["a", "c"] == 3.5
    assert sm.closure(table, "max_min", **columns)["a", "c"] == 1.5
    assert sm.statistics(table, **columns).diameter == 3.5
    assert sm.statistics(table, **columns, dtype="f4").eccentricity.dtype == np.float32
    assert sm.nearest(table, "c", **columns, dtype="f4").distance.dtype == np.float32
    assert sm.apsp(random(), dtype="f4").dtype == np.float32
    w = random().astype("f4")
    assert sm.apsp(w, dtype="f4").dtype == np.float32
    assert sm.closure(GRAPH, "lor_land", dtype=bool).dtype == bool
    with pytest.raises(TypeError, match=r"float32 or float64 over min_plus, got int32; sm.adja"):
        sm.apsp(GRAPH, dtype="i4")
    with pytest.raises(ValueError, match="source and target are columns of a table"):
        sm.apsp(GRAPH, source="u")
    net = sm.prepare(table, **columns)
    with pytest.raises(ValueError, match="are chosen when a graph is prepared"):
        sm.statistics(net, dtype="f4")


@pytest.mark.parametrize("prepared", [False, True])
def test_progress_of_the_nearest(prepared):
    graph, seen = sm.prepare(GRAPH) if prepared else GRAPH, []
    sm.nearest(graph, ["a", "b"], progress=lambda *x: seen.append(x))
    assert seen[-1] == (2, 2)


@pytest.mark.parametrize("way", ["sweeps", "searches", "prepared", "hops"])
@pytest.mark.parametrize("sources", [None, [4, 9, 0]])
def test_statistics_of_some_targets(way, sources, monkeypatch):
    """As of a part of the matrix of all distances; a node's distance to itself does not count."""
    w, targets = random(60, 3), [9, 4, 30, 31, 4]
    if way == "hops":
        w[np.isfinite(w)] = 1.0
    graph = sp.csr_array(np.where(np.isinf(w), 0, w))
    if way == "searches":
        monkeypatch.setattr(statistics, "finder", lambda x: Searches(x.sparse))
    if way == "prepared":
        graph = sm.prepare(graph)
    found = sm.statistics(graph, sources=sources, targets=targets, radius=[5, 9], bins=[0, 4, 99])
    rows, columns = np.arange(60) if sources is None else np.array(sources), np.unique(targets)
    d, away = sm.apsp(w)[rows][:, columns], sm.apsp(w)[columns][:, rows].T
    other = rows[:, None] != columns
    there = np.isfinite(d)
    np.testing.assert_array_equal(found.reached, there.sum(1))
    np.testing.assert_array_equal(found.eccentricity, np.where(there, d, 0).max(1))
    pairs = there & other
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(found.mean, np.where(pairs, d, 0).sum(1) / pairs.sum(1))
    assert found.mean_distance == pytest.approx(d[pairs].mean())
    inward = np.isfinite(away) & other
    r, total = inward.sum(1), np.where(inward, away, 0).sum(1)
    closeness = np.divide(r * r, total * other.sum(1), out=np.zeros(len(rows)), where=total > 0)
    np.testing.assert_allclose(found.closeness, closeness)
    inverse = np.divide(1, away, out=np.zeros(away.shape), where=inward)
    np.testing.assert_allclose(found.harmonic, inverse.sum(1))
    np.testing.assert_array_equal(found.within, [[(x <= 5).sum(), (x <= 9).sum()] for x in d])
    np.testing.assert_array_equal(found.histogram.counts, np.histogram(d[pairs], [0, 4, 99])[0])
    assert found.diameter == d[there].max()
    a, b = found.ends
    assert d[list(rows).index(a), list(columns).index(b)] == found.diameter
    assert found.n == len(columns)


def test_an_attribute_of_targets_and_refusals():
    mass = np.arange(60.0)
    found = sm.statistics(random(60, 3), targets=[7, 8], radius=np.inf, attribute=mass)
    there = np.isfinite(sm.apsp(random(60, 3))[:, [7, 8]])
    np.testing.assert_array_equal(found.within[:, 0], there @ mass[[7, 8]])
    with pytest.raises(ValueError, match="computed on the CPU: leave out device"):
        sm.statistics(GRAPH, targets="a", device="cuda")
    with pytest.raises(ValueError, match="targets: at least one node"):
        sm.statistics(GRAPH, targets=[])


@pytest.mark.parametrize(
    ("shift", "targets"), [(0, None), (0, [3, 4]), (0.5, None)], ids=["whole", "table", "real"]
)
def test_progress_of_distances(shift, targets):
    net, seen = sm.prepare(random() + shift), []
    net.distances(range(40), targets, progress=lambda *x: seen.append(x))
    assert seen[-1] == (40, 40)
    assert seen == sorted(seen)
