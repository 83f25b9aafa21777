"""Places on edges: the extended hierarchy against one that is prepared from scratch."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import semiring_mm as sm
from semiring_mm.closures.edges import EdgeList
from semiring_mm.hierarchy.metric import customize
from semiring_mm.hierarchy.symbolic import Structure, factorize, neighbours


def graph(kind, rng):
    """Directed edges in pairs, the second one the way back of the first: ends, and their number."""
    if kind == "street":
        return np.array([0, 1]), np.array([1, 2]), 3
    if kind == "loops":
        return np.array([0, 0, 1, 2, 1]), np.array([0, 1, 1, 2, 0]), 4
    if kind == "grid":
        at = np.arange(48).reshape(6, 8)
        pairs = [(at[1:].ravel(), at[:-1].ravel()), (at[:, 1:].ravel(), at[:, :-1].ravel())]
        return *(np.concatenate(x) for x in zip(*pairs, strict=True)), 48
    if kind == "dense":
        return *rng.integers(0, 12, (2, 60)), 12
    return *rng.integers(0, 40, (2, 50)), 45  # with islands, parallel edges and loops


def places_on(rng, m, k):
    """Ascending edges, and fractions by 64, by which weights are multiplied."""
    spots = np.sort(rng.choice(63 * m, min(k, 63 * m), replace=False))
    return spots // 63, (spots % 63 + 1) / 64


CASES = [
    (kind, k, directed)
    for kind in ("street", "loops", "grid", "dense", "islands")
    for k in (0, 1, 7, 90)
    for directed in (True, False)
]


def prepared(kind, k, directed, rng, *, core=None):
    u, v, n = graph(kind, rng)
    m = len(u)
    w = 64.0 * rng.integers(1, 50, m)
    edge, fraction = places_on(rng, m, k)
    twin = None
    if directed:  # a third of the streets are one-way
        open_ = np.flatnonzero(rng.random(m) < 0.7)
        back = np.full(m, -1)
        back[open_] = m + np.arange(len(open_))
        twin = back[edge]
        u, v = np.append(u, v[open_]), np.append(v, u[open_])
        w = np.append(w, 64.0 * rng.integers(1, 50, len(open_)))
    net = sm.prepare(EdgeList(range(n), u, v, w, directed))
    if core is not None:
        first, near = neighbours(n, u, v)
        structure = factorize(n, first, near, net._structure.order, n - core)
        columns = ("weight", None, None)
        net = sm.PreparedGraph(net.semiring, net.edges, structure, columns)
    return net, net.with_places(edge, fraction, twin=twin, alone=2)


@pytest.mark.parametrize(("kind", "k", "directed"), CASES)
@pytest.mark.parametrize("core", [None, 3])
def test_the_hierarchy_is_that_of_its_graph(kind, k, directed, core):
    rng = np.random.default_rng(k)
    net, more = prepared(kind, k, directed, rng, core=core)
    x, edges, n = more._structure, more.edges, len(more.nodes)
    assert n == len(net.nodes) + k + 2
    fields = ("parent", "height", "first", "head")
    given = {name: getattr(x, name) for name in fields} | {"eliminated": x.eliminated}
    computed = Structure.checked(edges.row, edges.col, x.order, **given)
    assert_array_equal(computed.rank, x.rank)
    assert x.core == net.core
    anew = customize(x, more.problem)
    for name in ("out", "back", "core"):
        assert_array_equal(getattr(more.metric, name), getattr(anew, name), err_msg=name)
    assert (more.metric.back is more.metric.out) == (not directed)
    assert_array_equal(more.spread(net.edges.weight), edges.weight)
    assert_array_equal(more._arcs.slot, x.slots(edges.row, edges.col)[...][more._arcs.apart])


@pytest.mark.parametrize(("kind", "k", "directed"), CASES)
def test_questions_are_answered_as_by_a_graph_from_scratch(kind, k, directed):
    rng = np.random.default_rng(1 + k)
    net, more = prepared(kind, k, directed, rng)
    old, n = len(net.nodes), len(more.nodes)
    wanted = sm.prepare(more.edges)
    d = sm.apsp(more.edges)
    assert_array_equal(more.distances(range(n)), d)
    assert_array_equal(more.distances([old, 0], targets=[n - 1, n - 3]), d[[old, 0]][:, [-1, -3]])
    assert_array_equal(d[:old, :old], net.distances(range(old)))  # nothing else has changed
    facilities = rng.choice(n, min(n, 5), replace=False)
    for ask, name in [
        (lambda g: sm.nearest(g, facilities, 3), "distance"),
        (lambda g: sm.statistics(g, "eccentricity", targets=facilities), "eccentricity"),
        (lambda g: sm.statistics(g, "harmonic", sources=facilities), "harmonic"),
    ]:
        found, other = (getattr(ask(g), name) for g in (more, wanted))
        np.testing.assert_allclose(found, other, rtol=1e-14 * (name == "harmonic"), err_msg=name)
    arcs = {}
    for a, b, w in zip(more.edges.row, more.edges.col, more.edges.weight, strict=True):
        for i, j in ((a, b),) if directed else ((a, b), (b, a)):
            arcs[i, j] = min(w, arcs.get((i, j), np.inf))
    for i, j in rng.integers(0, n, (20, 2)).tolist():
        assert more.distance(i, j) == d[i, j]
        if np.isfinite(d[i, j]):
            path = more.path(i, j)
            assert [path[0], path[-1]] == [i, j]
            assert sum(arcs[step] for step in itertools.pairwise(path)) == d[i, j]


def test_places_on_edges_of_places():
    net, more = prepared("grid", 30, True, np.random.default_rng(5))
    m = len(net.edges.row)
    edge = np.array([3, m + 2, m + 9])
    twice = more.with_places(edge, np.array([0.5, 0.25, 0.75]))
    assert_array_equal(twice.distances(twice.nodes), sm.apsp(twice.edges))
    assert_array_equal(twice.spread(net.edges.weight), twice.edges.weight)
    whole = twice.whole(np.arange(len(twice.edges.row)))
    assert_array_equal(whole[:m], np.arange(m))
    assert_array_equal(whole[len(more.edges.row) :], np.tile(more.whole(edge), 2))


def test_new_weights_of_the_graph_with_places():
    rng = np.random.default_rng(3)
    _, more = prepared("grid", 30, True, rng)
    w = rng.integers(1, 9, len(more.edges.row)).astype(float)
    more.customize(w)
    wanted = sm.apsp(EdgeList(more.nodes, more.edges.row, more.edges.col, w, True))
    assert_array_equal(more.distances(more.nodes), wanted)


def test_the_graph_with_places_is_saved(tmp_path):
    _, more = prepared("islands", 30, True, np.random.default_rng(4))
    more.save(tmp_path / "net.npz")
    again = sm.load(tmp_path / "net.npz")
    assert_array_equal(again.distances(more.nodes), more.distances(more.nodes))


def test_closed_edges_stay_closed():
    net = sm.prepare({"a": {"b": np.inf}, "b": {"a": 4.0}})
    more = net.with_places(np.array([0, 0]), np.array([0.25, 0.5]), twin=np.array([1, 1]))
    expected = [
        [0, np.inf, np.inf, np.inf],
        [4, 0, 3, 2],
        [1, np.inf, 0, np.inf],
        [2, np.inf, 1, 0],
    ]
    assert_array_equal(more.distances(range(4)), expected)


@pytest.mark.parametrize(
    ("edge", "fraction", "words"),
    [
        ([1], [0.5], "positions among 1"),
        ([-1], [0.5], "positions among 1"),
        ([0], [0.0], "between 0 and 1"),
        ([0], [1.0], "between 0 and 1"),
        ([0], [np.nan], "between 0 and 1"),
        ([0, 0], [0.5, 0.5], "ascending along an edge"),
    ],
)
def test_places_that_are_none(edge, fraction, words):
    net = sm.prepare({0: {1: 2.0}})
    with pytest.raises(ValueError, match=words):
        net.with_places(np.array(edge), np.array(fraction))


def test_other_semirings_have_no_places():
    with pytest.raises(ValueError, match="the graph is over max_min"):
        sm.prepare({0: {1: 2.0}}, semiring="max_min").with_places(np.array([0]), np.array([0.5]))


def test_a_second_quantity_before_and_after_places():
    net, km = sm.prepare({0: {1: 8.0}, 1: {2: 2.0}}), np.array([10.0, 20.0])
    assert_array_equal(net.distances(0, along=km)[1], [[0, 10, 30]])
    more = net.with_places(np.array([0, 1]), np.array([0.25, 0.5]))
    assert_array_equal(more.distances(0, along=more.spread(km))[1], [[0, 10, 30, 2.5, 20]])
