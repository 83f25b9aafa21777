"""A second quantity along the best paths, against pairs of numbers that are compared like words."""

import contextlib
import itertools

import numpy as np
import pytest
from metrics import leave_core
from optional import csgraph, nx, pd, pl, real_file, sp

import semiring_mm as sm
from semiring_mm.closures.edges import EdgeList
from semiring_mm.files import read_graph


def random_edges(seed, n=13, m=30, *, directed=True, least=1, dtype="f8"):
    """Edges of which some are parallel, of equal weights, and some are loops; a node without."""
    rng = np.random.default_rng(seed)
    row, col = rng.integers(0, n - 1, (2, m))
    weight = rng.integers(least, 4, m)
    row[:4], col[:4], weight[:4] = row[4:8], col[4:8], weight[4:8]
    return EdgeList(range(n), row, col, weight.astype(dtype), directed), rng.integers(0, 9, m)


def brute(edges, along, sign=1):
    """Weights and sums of all pairs, by rounds over all edges: (min, +) of pairs in their order."""
    n, far = edges.n, (np.inf, np.inf)
    found = np.full((2, n, n), np.inf)
    arcs = list(zip(edges.row, edges.col, sign * edges.weight, along, strict=True))
    if not edges.directed:
        arcs += [(v, u, w, x) for u, v, w, x in arcs]
    arcs = [arc for arc in arcs if arc[2] < np.inf]
    for s in range(n):
        best = [far] * n
        best[s] = (0, 0)
        for _ in range(n):
            for u, v, w, x in arcs:
                if best[u] != far:
                    best[v] = min(best[v], (best[u][0] + w, best[u][1] + x))
        found[:, s] = np.array(best).T
    return sign * found[0], found[1]


def check(net, edges, along, expected, given=None):
    """All ways to a table: one source, a few, many; to all nodes, to few, and to many."""
    n, given = edges.n, along if given is None else given
    zero = net.semiring.identities(net.dtype)[0]
    weight = np.where(np.isinf(expected[0]), zero, expected[0])
    for rows in ([n - 2], [0, 5, 5], range(n), None):
        for columns in ([3], [n - 1, 2, 0], range(1, n), None):
            if rows is columns is None:
                continue
            d, sums = net.distances(rows, columns, along=given)
            cells = np.ix_(*(range(n) if x is None else x for x in (rows, columns)))
            np.testing.assert_array_equal(d, weight[cells])
            np.testing.assert_array_equal(sums, expected[1][cells])
            np.testing.assert_array_equal(d, net.distances(rows, columns))
            assert (d.dtype, sums.dtype) == (net.dtype, np.float64)


@pytest.mark.parametrize("core", [False, True])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("least", [0, 1])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "u8"])
def test_small_graphs(dtype, least, directed, core, monkeypatch):
    if core:
        leave_core(monkeypatch)
    for seed in range(4):
        edges, along = random_edges(seed, directed=directed, least=least, dtype=dtype)
        net = sm.prepare(edges, dtype=dtype)
        assert bool(net.core) == core
        check(net, edges, along, brute(edges, along))
        check(net, edges, along, brute(edges, along / 8), along / 8)


@pytest.mark.parametrize("fraction", [1, 8])
@pytest.mark.parametrize("directed", [False, True])
def test_large_blocks(directed, fraction):
    """Also in whole numbers of 32 bits, in which many sources are swept."""
    edges, along = random_edges(7, 90, 160, directed=directed)
    edges = edges.weighted(edges.weight / fraction)
    check(sm.prepare(edges), edges, along, brute(edges, along))


def test_against_networkx():
    """Of whole numbers a weight and a length are one number."""
    for seed in range(10):
        g = nx.gnm_random_graph(30, 60, seed=seed, directed=bool(seed % 2))
        rng = np.random.default_rng(seed)
        for _, _, edge in g.edges(data=True):
            edge["weight"], edge["km"] = rng.integers(1, 4), rng.integers(0, 5)
            edge["both"] = int(1000 * edge["weight"] + edge["km"])
        expected = np.asarray(nx.floyd_warshall_numpy(g, weight="both"))
        net = sm.prepare(g)
        d, km = net.distances(along=[km for *_, km in g.edges(data="km")], sources=range(30))
        there = np.isfinite(expected)
        assert (there == np.isfinite(d)).all()
        assert (there == np.isfinite(km)).all()
        np.testing.assert_array_equal((1000 * d + km)[there], expected[there])


@pytest.mark.parametrize("core", [False, True])
def test_negative_numbers(core, monkeypatch):
    """Heights that are climbed add up to a difference of heights."""
    if core:
        leave_core(monkeypatch)
    edges, _ = random_edges(1)
    height = np.random.default_rng(0).integers(-9, 9, edges.n)
    climb = height[edges.col] - height[edges.row]
    check(sm.prepare(edges), edges, climb, brute(edges, climb))
    potential = np.random.default_rng(4).integers(0, 5, edges.n)
    tilted = edges.weighted(edges.weight + potential[edges.col] - potential[edges.row])
    assert (tilted.weight < 0).any()
    check(sm.prepare(tilted), tilted, climb, brute(tilted, climb))


@pytest.mark.parametrize("core", [False, True])
def test_longest_paths(core, monkeypatch):
    if core:
        leave_core(monkeypatch)
    edges, along = random_edges(2, m=40)
    apart = edges.row != edges.col
    edges = EdgeList(
        range(13), *np.sort([edges.row[apart], edges.col[apart]], 0), edges.weight[apart], True
    )
    net = sm.prepare(edges, semiring="max_plus")
    check(net, edges, along[apart], brute(edges, along[apart], sign=-1))


def test_closed_edges_and_other_weights():
    edges, along = random_edges(5)
    net = sm.prepare(edges)
    check(net, edges, along, brute(edges, along))
    rng = np.random.default_rng(1)
    for _ in range(3):
        weight = np.where(rng.random(30) < 0.3, np.inf, rng.integers(1, 4, 30))
        net.customize(weight)
        check(net, edges, along, brute(edges.weighted(weight), along))
        without = np.where(np.isinf(weight), np.nan, along)
        without[0] = np.inf if np.isinf(weight[0]) else along[0]
        if np.isnan(without).any():
            with pytest.raises(ValueError, match=r"along: the weight of edge \d+.* is NaN"):
                net.distances(0, along=without)
        check(net, edges, along, brute(edges.weighted(weight), along), np.nan_to_num(without))


def test_what_has_been_computed_is_used_again(monkeypatch):
    calls = []
    from semiring_mm.graphs import prepared

    original = prepared.customize_along
    monkeypatch.setattr(
        prepared, "customize_along", lambda *args: (calls.append(1), original(*args))[1]
    )
    edges, along = random_edges(6)
    net = sm.prepare(edges)
    first = net.distances(0, along=along)[1]
    net.distances(1, along=list(along))
    net.distances(1, along=along.astype("f4"))
    assert len(calls) == 1
    along += 1  # in place
    legs = net.distances(0, along=np.ones(30))[1]
    assert (net.distances(0, along=along)[1] > first).any()
    assert np.isfinite(legs).any()
    net.distances(0, along=along - 1)
    assert len(calls) == 3
    net.customize(edges.weight)
    net.distances(0, along=along - 1)
    assert len(calls) == 4


def test_many_threads_ask():
    edges, along = random_edges(8, 400, 900)
    net, before = sm.prepare(edges), sm.get_num_threads()
    expected = net.distances(range(400), along=along)
    sm.set_num_threads(3)
    try:
        for x, y in zip(net.distances(range(400), along=along), expected, strict=True):
            np.testing.assert_array_equal(x, y)
    finally:
        sm.set_num_threads(before)


TABLE = {
    "from": ["a", "b", "a", "b"], "to": ["b", "c", "c", "c"], "minutes": [1, 2, 3, 9],
    "km": [5.0, 5.0, 9.5, 1.0], "oneway": ["no", "yes", "no", "yes"],
}  # fmt: skip


@pytest.mark.parametrize("library", ["pandas", "polars", "a file"])
def test_columns(library, tmp_path):
    match library:
        case "pandas":
            table = pd.DataFrame(TABLE, index=[7, 5, 3, 1])
        case "polars":
            table = pl.DataFrame(TABLE)
        case _:
            table = tmp_path / "roads.csv"
            pd.DataFrame(TABLE).to_csv(table, index=False)
    net = sm.prepare(table, weight="minutes")
    for along in ("km", TABLE["km"]):
        minutes, km = net.distances(["a", "c"], along=along)
        assert isinstance(km, sm.LabelledArray)
        assert (minutes["a", "c"], km["a", "c"]) == (3, 9.5)  # of two ways the shorter one
        assert (minutes["c", "b"], km["c", "b"]) == (4, 14.5)
    net.customize("km")
    km, minutes = net.distances("a", ["c"], along="minutes")
    assert (km.item(), minutes.item()) == (6, 10)
    with pytest.raises(ValueError, match="litres"):
        net.distances("a", along="litres")


def test_no_nodes_and_no_edges():
    net = sm.prepare(EdgeList(range(3), *np.empty((2, 0), int), np.empty(0), True))
    d, sums = net.distances(range(3), along=[])
    np.testing.assert_array_equal(d, sums)
    assert sums.diagonal().tolist() == [0, 0, 0]
    d, sums = net.distances([], along=[])
    assert d.shape == sums.shape == (0, 3)


RING = {0: {1: 0.0}, 1: {2: 0.0}, 2: {0: 0.0}}


@pytest.mark.parametrize(
    ("graph", "options", "along", "error", "message"),
    [
        (RING, {}, [1, 2], ValueError, "along: the prepared graph has 3 edges.* got 2"),
        (RING, {}, [1, 2, np.nan], ValueError, "along: the weight of edge 2.* is NaN"),
        (RING, {}, [1, -np.inf, 1], ValueError, "along: the number of edge 1, .* is -inf"),
        (RING, {}, ["x", 1, 2], TypeError, "along: "),
        (RING, {}, "km", ValueError, "along='km' is a column, and .* no table"),
        (RING, {}, [1, 2, -4], ValueError, "a cycle through . and . weighs nothing"),
        (RING, {}, [1, 2, 1 << 53], OverflowError, r"may add up to more than 2\*\*53"),
        ({0: {0: 0.0}}, {}, [-1], ValueError, "edge 0, from 0 to 0, weighs nothing, and has -1"),
        (RING, {"semiring": "max_min"}, [1, 1, 1], ValueError, r"max_min has ⊗ = min"),
    ],
)  # fmt: skip
def test_errors(graph, options, along, error, message):
    net = sm.prepare(graph, **options)
    with pytest.raises(error, match=message):
        net.distances(0, along=along)
    with contextlib.suppress(ValueError):  # the graph is as before
        assert net.distances(0, along=[3] * len(along)) is not None
    assert net.distance(0, 0) == net.semiring.one


def test_a_cycle_of_weight_and_sum_zero():
    d, sums = sm.prepare(RING).distances(range(3), along=[1, 2, -3])
    assert not d.any()
    assert sums.tolist() == [[0, 1, 3], [-1, 0, 2], [-3, -2, 0]]


def test_a_device_is_not_asked(monkeypatch):
    net = sm.prepare(RING)
    np.testing.assert_array_equal(net.distances(0, along=[1, 1, 1], device="cpu")[1], [[0, 1, 2]])


def test_roads():
    """The shortest of the fastest ways of New York, against SciPy in one number for both."""
    edges = read_graph(real_file("road_NY.gr.xz"))
    m = len(edges.row)
    rng = np.random.default_rng(5)
    edges = EdgeList(range(edges.n), edges.row, edges.col, rng.integers(1, 50, m), False)
    km = rng.integers(0, 50, m)
    matrix = sp.csr_array((edges.weight * 2**20 + km, (edges.row, edges.col)), shape=(edges.n,) * 2)
    net, sources = sm.prepare(edges), rng.integers(0, edges.n, 3)
    d, sums = net.distances(sources, along=km)
    expected = csgraph.dijkstra(matrix, directed=False, indices=sources)
    np.testing.assert_array_equal(d * 2**20 + sums, expected)
    targets = rng.integers(0, edges.n, 300)
    for x, y in zip(net.distances(sources, targets, along=km), (d, sums), strict=True):
        np.testing.assert_array_equal(x, y[:, targets])
    found = net.paths(list(itertools.product(sources, targets)))
    assert (found.sums(km) >= sums[:, targets].ravel()).all()
