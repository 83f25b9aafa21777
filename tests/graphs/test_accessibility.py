"""Accessibility against sums over the matrix of all distances."""

import functools
import math
from dataclasses import replace

import numpy as np
import pytest
from metrics import graph, leave_core, only, squares
from optional import DATA, csgraph, pd
from plain_kernels import both

import semiring_mm as sm
from semiring_mm.cpu import engine as cpu
from semiring_mm.graphs import accessibility as module
from semiring_mm.graphs.accessibility import Decay
from semiring_mm.graphs.kernels import reach as kernels

INF = np.inf
DECAYS = [
    (("exponential", 0.3), lambda d: np.exp(-0.3 * d)),
    (("gaussian", 4), lambda d: np.exp(-(d**2) / 32)),
    (("logistic", 6, 1.5), lambda d: 1 / (1 + np.exp((d - 6) / 1.5))),
    (("power", 1.7, 2), lambda d: np.maximum(d, 2) ** -1.7),
    (("linear", 9), lambda d: np.maximum(0, 1 - d / 9)),
    ({8: 0.25, 2: 1, 5: 0.5}, lambda d: np.select([d <= 2, d <= 5, d <= 8], [1, 0.5, 0.25], 0)),
    ("1 / (1 + d * d)", lambda d: 1 / (1 + d * d)),
    ("(d > 1) & (d < 7)", lambda d: 1.0 * ((d > 1) & (d < 7))),
    ("sqrt(d) - 1", lambda d: np.sqrt(d) - 1),
    ("2", lambda d: 2 + 0 * d),
]


def naive(d, places, weights, radius, decay=None):
    """Row i of `d` has the distances of node i."""
    d = d[:, places]
    f = np.where(d < INF, 1.0 if decay is None else decay(np.where(d < INF, d, 0)), 0)
    return np.where(d <= radius, f, 0) @ weights


@pytest.mark.parametrize("way", ["sweeps", "core", "search"])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_sums_are_those_of_the_matrix(way, directed, whole, monkeypatch):
    """From nodes or to them, of all nodes or some, within several radii and with each decay."""
    if way == "search":
        only(monkeypatch, "a search from each source", "elimination in blocks")
    if way == "core":
        leave_core(monkeypatch)
    for seed in range(6):
        given = graph(seed, directed=directed, whole=whole)
        d, rng = np.asarray(sm.apsp(given)), np.random.default_rng(seed)
        asked = given if way == "search" else sm.prepare(given)
        places, few = rng.integers(0, given.n, 50), rng.integers(0, given.n, 7)
        weights = rng.random((50, 2))
        find = functools.partial(sm.accessibility, asked)
        radii = [4, 0, 7 + 1e-7, INF]  # methods round in other orders
        for outward, rows in ((True, d), (False, d.T)):
            found = find(places, weights, radius=radii, outward=outward)
            assert found.shape == (given.n, 4, 2)
            for r, radius in enumerate(radii):
                expected = naive(rows, places, weights, radius)
                np.testing.assert_allclose(found[:, r], expected, rtol=1e-12)
        for decay, f in DECAYS:
            for radius in (None, 6 + 1e-7):
                found = find(places, weights[:, 0], radius=radius, decay=decay)
                expected = naive(d, places, weights[:, 0], radius or INF, f)
                np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
                found = find(places, weights, radius=radius, decay=decay, sources=few)
                expected = naive(d[few], places, weights, radius or INF, f)
                np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("large", [False, True])
def test_types_of_distances(dtype, large):
    """Also distances of more than 32 bits."""
    given = graph(4, directed=True, whole=True, density=2)
    scale = 2**31 if large and dtype != "int32" else 1
    given = replace(given, weight=given.weight * scale)
    d, net = np.asarray(sm.apsp(given)), sm.prepare(given, dtype=dtype)
    places, weights = [5, 9, 60, 61], np.array([1.5, 2, 0.5, 9])
    for radius in (0, 8 * scale, INF):
        found = net.accessibility(places, weights, radius=radius)
        np.testing.assert_allclose(found, naive(d, places, weights, radius), rtol=1e-12)
        found = net.accessibility(
            places, weights, radius=radius, sources=[3, 8], decay=f"d / {scale}"
        )
        expected = naive(d[[3, 8]], places, weights, radius, lambda x: x / scale)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_negative_weights():
    given = {"a": {"b": -2, "c": 4}, "b": {"c": 9}, "c": {"a": 1, "d": -3}, "d": {}}
    d, net = np.asarray(sm.apsp(given)), sm.prepare(given)
    for radius in (0, 1, 4, INF):
        found = net.accessibility(["a", "d"], [1, 10], radius=radius)
        assert found.tolist() == naive(d, [0, 3], np.array([1, 10]), radius).tolist()


def test_whole_numbers_are_exact():
    n = 4000
    weights = np.random.default_rng(0).integers(-(2**40), 2**40, n)
    ends = np.zeros(n - 1, np.int64), np.arange(1, n)
    net = sm.prepare(sm.files.Graph(range(n), *ends, np.ones(n - 1), False))
    found = net.accessibility(np.arange(n), weights, radius=[1, 2])
    assert found.dtype == np.int64
    assert found[5].tolist() == [weights[0] + weights[5], weights.sum()]
    assert net.accessibility(np.arange(n), radius=1)[:2].tolist() == [n, 2]
    assert net.accessibility([3, 3, 4], radius=0, sources=[3, 4, 3]).tolist() == [2, 1, 2]
    with pytest.raises(OverflowError, match=r"may add up to 2\*\*53 or more: give them as float"):
        net.accessibility([0, 1], [2**52, 2**52], radius=1)
    assert net.accessibility([0, 1], [2.0**52, 2.0**52], radius=1)[0] == 2**53


def test_results_are_the_same_on_any_number_of_threads(monkeypatch):
    given = graph(8, directed=False, whole=False, density=2)
    net, rng = sm.prepare(given), np.random.default_rng(0)
    places, weights = np.arange(given.n), rng.random(given.n)
    results = []
    for threads in (1, 2, 3):
        sm.set_num_threads(threads)
        results.append([
            net.accessibility(places, weights, decay=("exponential", 0.2)),
            net.accessibility(places, weights, radius=9, sources=places[:40]),
        ])  # fmt: skip
    for other in results[1:]:
        for found, expected in zip(other, results[0], strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("decay", [None, ("gaussian", 3), {2: 1, 6: 0.3}])
@pytest.mark.parametrize("outward", [True, False])
def test_catchment_areas(decay, outward):
    """The two steps, by the matrix: those who reach a supply share it."""
    given = graph(5, directed=True, whole=True)
    d, rng = np.asarray(sm.apsp(given)), np.random.default_rng(1)
    d = d if outward else d.T
    places = rng.permutation(given.n)[:20]
    supply, demand = rng.random((20, 2)) + 1, rng.integers(0, 50, given.n)
    f = {None: None, ("gaussian", 3): lambda x: np.exp(-(x**2) / 18)}.get(
        decay if decay is None or isinstance(decay, tuple) else "zones",
        lambda x: np.select([x <= 2, x <= 6], [1, 0.3], 0),
    )
    demand[d[:, places[:3]].min(axis=1) < INF] = 0  # in reach of these there is none
    radii = [4, 9]
    with pytest.warns(UserWarning, match="of 20 places, such as .* are in reach of no demand"):
        found = sm.accessibility(
            given, places, supply, radius=radii, decay=decay, outward=outward, competition=demand
        )
    for r, radius in enumerate(radii):
        there = naive(d[:, places].T, np.arange(given.n), demand, radius, f)[:, np.newaxis]
        share = np.divide(supply, there, out=np.zeros(supply.shape), where=there > 0)
        np.testing.assert_allclose(found[:, r], naive(d, places, share, radius, f), rtol=1e-12)
        # what is shared is the supply that someone reaches
        taken = (found[:, r] * demand[:, np.newaxis]).sum(axis=0)
        np.testing.assert_allclose(taken, supply[there[:, 0] > 0].sum(axis=0))


def test_demand_of_some_nodes():
    net = sm.prepare({"a": {"b": 1}, "b": {"c": 1}}, directed=False)
    found = net.accessibility(["b"], [12], radius=1, competition=(["a", "c", "a"], [1, 2, 3]))
    assert found.tolist() == [2, 2, 2]


def test_labels_tables_and_nothing():
    net = sm.prepare({"a": {"b": 3, "c": 8}, "b": {"c": 1}})
    assert net.accessibility("c", radius=3, sources=["c", "a"]).tolist() == [1, 0]
    frame = pd.DataFrame({"jobs": [1, 2], "shops": [30, 40]})
    found = net.accessibility(["b", "c"], frame, radius=4)
    assert found.tolist() == [[3, 70], [3, 70], [2, 40]]
    assert net.accessibility([], radius=[1, 2]).tolist() == [[0, 0]] * 3
    assert net.accessibility([], [], radius=1).tolist() == [0, 0, 0]
    assert net.accessibility(["a"], [0], radius=INF).tolist() == [0, 0, 0]
    assert net.accessibility(["a"], sources=[], decay="d").shape == (0,)
    assert sm.accessibility(np.zeros((0, 0)), [], radius=1).shape == (0,)


@pytest.mark.parametrize("name", list(module.DECAYS))
def test_what_a_decay_leaves_out_is_below_its_limit(name):
    rule = module.DECAYS[name]
    decay = Decay.of((name, *[3.0, 0.5][: len(rule.parameters)]))
    assert decay(np.array([0.0]))[0] > 0.2
    if decay.cut < INF:
        beyond = decay(decay.cut * np.array([1.0, 1.001, 2, 1e9]))
        assert (beyond <= 2.0**-63.99).all()
        assert (np.diff(beyond) <= 0).all()


NET = {"a": {"b": 3, "c": 8}, "b": {"c": 1}}


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({}, "give a radius, a decay, or both"),
        ({"radius": -1}, "radius is not negative, got -1"),
        ({"radius": [1, "2"]}, "radius is a number in the unit of the weights, got '2'"),
        ({"radius": []}, "radius: at least one"),
        ({"radius": 1, "places": ["x"]}, "'x' is not a node"),
        ({"radius": 1, "places": None}, "places: a node or several, got None"),
        ({"radius": 1, "sources": ["x"]}, "'x' is not a node"),
        ({"radius": 1, "weights": [1]}, r"weights: a number for each place, of shape \(2,\) or"),
        ({"radius": 1, "weights": 1}, r"of shape \(2,\) or \(2, columns\), got shape \(\)"),
        ({"radius": 1, "weights": [1, INF]}, "weights are finite, got inf for place 1"),
        ({"radius": 1, "weights": ["1", "2"]}, "weights are numbers, got dtype <U1"),
        (
            {"decay": ("exp", 1)},
            "there is no decay 'exp': give a name with its parameters, such as",
        ),
        ({"decay": "exponential"}, 'takes rate, in the unit .* write \\("exponential", rate\\)'),
        ({"decay": ("logistic", 1)}, "takes middle and scale"),
        ({"decay": ("gaussian", 0)}, "the decay 'gaussian': scale is positive and finite, got 0"),
        ({"decay": ("linear", INF)}, "the decay 'linear': end is positive and finite"),
        ({"decay": {}}, "a decay by zones has at least one"),
        ({"decay": {-1: 1}}, "the radius of a zone is not negative"),
        ({"decay": {1: "x"}}, "the value of a zone is a finite number, got 'x'"),
        ({"decay": "exp(-x)"}, "the name 'x' is not allowed in .* use the name d, numbers"),
        ({"decay": "a * d"}, "expression in the distance d, and 'a . d' has a"),
        ({"decay": "exp(-d"}, "cannot parse the expression"),
        ({"decay": "d ^ 2"}, "computed in float64, and 'd . 2' has bits"),
        ({"decay": "1 / d"}, r"the decay 1 / d is inf at distance 0, .* write max\(d, ...\)"),
        ({"decay": "log(3 - d)"}, r"the decay log\(3 - d\) is not finite at all distances"),
        ({"decay": 3}, "there is no decay 3"),
        (
            {"radius": 1, "competition": [1, 2]},
            r"competition: a number for each node, of shape \(3,",
        ),
        ({"radius": 1, "competition": [1, -2, 0]}, "competition: a demand for each node"),
        ({"radius": 1, "device": "tpu"}, "device"),
    ],
)
def test_errors(given, error):
    with pytest.raises((ValueError, TypeError), match=error):
        sm.accessibility(NET, **{"places": ["b", "c"]} | given)


@pytest.mark.skipif(not (DATA / "rome99.gr").exists(), reason="there is no such file")
def test_the_streets_of_rome():
    net = sm.prepare(DATA / "rome99.gr")
    x, rng = net.edges, np.random.default_rng(0)
    places, people = rng.permutation(x.n)[:300], rng.integers(0, 90, x.n)
    names = [net.nodes[i] for i in places]
    matrix, kind = sm.adjacency(x, "min_plus", dtype=float)[0], ("gaussian", 1500)
    d = csgraph.dijkstra(csgraph.csgraph_from_dense(matrix, null_value=INF))
    found = net.within(2000).to_scipy().toarray()
    np.testing.assert_array_equal(found, np.where(d <= 2000, d, 0))
    assert net.accessibility(names, radius=2000).tolist() == (d[:, places] <= 2000).sum(1).tolist()
    f = np.exp(-((d / 1500) ** 2) / 2)
    share = 1 / (people @ f[:, places])
    found = net.accessibility(names, decay=kind, competition=people)
    np.testing.assert_allclose(found, f[:, places] @ share, rtol=1e-12, atol=2.0**-64)


def test_sums_that_do_not_fit(monkeypatch):
    net = sm.prepare(squares())
    weights = np.ones((3, 100))
    monkeypatch.setattr(cpu, "free_memory", lambda: 2_000_000)
    with pytest.raises(MemoryError, match="the sums of 900 x 1 x 100 entries needs"):
        net.accessibility([1, 2, 3], weights, radius=1)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
def test_on_a_device(moves, directed, dtype):
    given = graph(5, directed=directed, whole=True)
    net, rng = sm.prepare(given, dtype=dtype), np.random.default_rng(0)
    places, weights = rng.integers(0, given.n, 40), rng.random((40, 2))
    for more in (
        {"radius": [3, 8]},
        {"decay": ("exponential", 0.3)},
        {"decay": {2: 1, 6: 0.5}, "radius": [5, INF, 2]},
        {"sources": [3, 1], "radius": 5},
    ):
        for outward in (False, True):
            call = functools.partial(net.accessibility, places, weights, outward=outward, **more)
            np.testing.assert_allclose(call(device="cuda"), call(), rtol=1e-12)
            call = functools.partial(net.accessibility, places, outward=outward, **more)
            np.testing.assert_allclose(call(device="cuda"), call(), rtol=1e-12)
    demand = rng.random(given.n) + 1
    call = functools.partial(net.accessibility, places, radius=5, competition=demand)
    np.testing.assert_allclose(call(device="cuda"), call(), rtol=1e-12)


@pytest.mark.parametrize(("kind", "decay"), [(None, lambda d: 1 + 0 * d), *DECAYS])
@pytest.mark.parametrize("columns", [1, 3])
def test_what_a_device_computes_of_rows(kind, decay, columns):
    """The products and expressions, by the engine of the host."""
    rng, radii = np.random.default_rng(0), np.array([0.0, 4.5, INF])
    rows = rng.integers(0, 20, (13, 31)) / 2.0
    rows[rng.random(rows.shape) < 0.2] = INF
    sums = module._Sums(None, Decay.of(kind), None, away=True)
    for d in (rows, rows.T):
        weight = rng.random((d.shape[1], columns))
        total = np.ones((3, len(d), columns))
        sums._add_on_device(cpu, d.copy(order="K"), radii, weight, total)
        for found, limit in zip(total, radii, strict=True):
            expected = naive(d, slice(None), weight, limit, decay)
            np.testing.assert_allclose(found - 1, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["whole", "single", "real"])
def test_the_kernels_in_python(name):
    """⊗ is the decay, whose order of summation over lanes is the compiler's."""
    rng, width, blocks = np.random.default_rng(0), 8, 3
    ends, rows = np.array([4, 9, 0]), 11
    label = rng.integers(0, 9, (rows, width)).astype(
        {"whole": "i4", "single": "f4"}.get(name, "f8")
    )
    decay = Decay.of("1 / (2 + d)")

    class Operations:
        add, zero, one = None, 0.0, 1.0

        def __init__(self):
            self.add, self.mul, self.better = max, lambda x, _: 1 / (2 + x), max

    fields = {
        "begin": 0, "end": blocks, "rows": rows, "width": width, "vectors": 1, "radii": 2,
        "amounts": 2, "ends": ends, "vertex": rng.integers(0, 5, rows).astype("i4"),
        **dict.fromkeys(("whole", "single", "real")), name: label, "radius": np.array([3.0, 6.0]),
        "value": np.zeros((2, width)),
    }  # fmt: skip
    one = {"alone": True, "radii": 1, "amounts": 1, "radius": np.array([6.0])}
    for kernel, shape, total, more in (
        (kernels.add_at_vertices, (2, blocks, width), (5, 2, 2), {"alone": False}),
        (kernels.add_at_vertices, (1, blocks, width), (5, 1, 1), one),
        (kernels.add_at_sources, (2, 5), (blocks, 2, 2, width), {}),
    ):
        found = both(
            kernel, Operations(), decay.plan, (), 1e-12, weight=rng.random(shape),
            total=np.zeros(total), **fields | more,
        )["total"]  # fmt: skip
        assert math.isfinite(found.sum())
        assert found.max() > 0
