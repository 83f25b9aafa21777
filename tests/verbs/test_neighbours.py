"""Distances between rows and the nearest rows, against SciPy and against sorting."""

import functools
import itertools
import json
import math
import sys
import warnings

import numpy as np
import pytest
import reference
from numpy.testing import assert_allclose, assert_array_equal
from optional import Optional
from plain_kernels import both

import semiring_mm as sm
from semiring_mm import arrays, neighbours
from semiring_mm import expressions as ex
from semiring_mm.cpu import engine as cpu
from semiring_mm.cpu import select
from semiring_mm.cpu.kernels import combine
from semiring_mm.cpu.kernels import select as kernels
from semiring_mm.cpu.screen import Screen
from semiring_mm.kernel import Operations
from semiring_mm.plan import Plan

distance = Optional("scipy.spatial.distance")
inf, nan = np.inf, np.nan
RNG = np.random.default_rng(0)

#: Names and what is given with them.
METRICS = {
    **{name: (name, {}) for name in (
        "cityblock", "euclidean", "sqeuclidean", "chebyshev", "hamming", "canberra", "braycurtis",
        "cosine", "correlation", "jaccard",
    )},
    **{f"minkowski {p:g}": ("minkowski", {"p": p}) for p in (0.7, 2.5, inf)},
}  # fmt: skip


def whole(low, high, dtype, rows=(20, 31), columns=7):
    return [RNG.integers(low, high, (m, columns)).astype(dtype) for m in rows]


#: Pairs of operands: X and Y.
POINTS = {
    "normal": [RNG.normal(size=(37, 19)), RNG.normal(size=(53, 19))],
    "far from the origin": [1e6 + RNG.normal(size=(5, 3)), 1e6 + RNG.normal(size=(6, 3))],
    "equal coordinates": [x.astype(float) for x in whole(0, 4, "i1")],
    "bytes with a sign": whole(-128, 128, "i1", columns=300),
    "bytes": whole(0, 256, "u1", columns=300),
    "integers": whole(-(10**6), 10**6, "i8"),
    "truth values": whole(0, 2, "?"),
    "one row": [np.ones((1, 4)), RNG.normal(size=(9, 4))],
    "one point": [RNG.normal(size=(9, 4)), np.ones((1, 4))],
    "one column": [RNG.normal(size=(9, 1)), RNG.normal(size=(8, 1))],
    "zeros": [np.zeros((2, 3)), np.array([[0.0, 0, 0], [1, 0, 0]])],
    "no columns": [np.zeros((2, 0)), np.zeros((3, 0))],
    "no rows": [np.zeros((0, 3)), np.zeros((3, 3))],
    "no points": [np.zeros((2, 3)), np.zeros((0, 3))],
    "no numbers": [np.array([[nan, 1, 2], [1, 2, 3], [inf, 1, 2], [-inf, 1, inf]])] * 2,
}
WEIGHTS = {"none": None, "all": lambda k: RNG.random(k) * 3, "few": lambda k: np.arange(k) % 3.0}


def options_of(name, weights, x):
    w = {} if weights == "none" else {"w": WEIGHTS[weights](x.shape[1])}
    return METRICS[name][1] | w


def by_scipy(x, y, metric, options):
    """SciPy's distances; where it skips NaN (Chebyshev's), NaN as its function of two rows has."""
    x, y = x.astype(float), y.astype(float)
    with warnings.catch_warnings(action="ignore"):  # of weights that are all 0, and of NaN
        expected = distance.cdist(x, y, metric, **options)
    if metric == "chebyshev" or options.get("p") == inf:
        w = options.get("w", np.ones(x.shape[1])) > 0
        with np.errstate(invalid="ignore"):
            gaps = x[:, np.newaxis, w] - y[np.newaxis, :, w]
        expected[np.isnan(gaps).any(axis=2)] = nan
    if metric == "correlation" and x.size and y.size:  # of equal coordinates it has rounding errors
        x_same, y_same = (np.ptp(v, axis=1) == 0 for v in (x, y))
        expected[x_same[:, np.newaxis] | y_same] = nan
    return expected


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("points", POINTS)
def test_scipys_results(points, weights):
    x, y = POINTS[points]
    for name, (metric, _) in METRICS.items():
        options = options_of(name, weights, x)
        found, expected = (
            sm.neighbours.cdist(x, y, metric, **options),
            by_scipy(x, y, metric, options),
        )
        assert found.dtype == np.float64
        near = 0.0  # cosine is 1 - a number near 1, and weights are multiplied with the coordinates
        if metric in ("cosine", "correlation") or weights != "none":
            near = 1e-14 * np.nan_to_num(abs(x.astype(float)), posinf=1).max(initial=1)
            near *= {"sqeuclidean": 100}.get(metric, 1)
        assert_allclose(found, expected, 3e-13, near, err_msg=name)


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
def test_short_floats_compute_in_float32(dtype):
    dtype = reference.BFLOAT16 if dtype == "bfloat16" else np.dtype(dtype)
    if dtype.kind == "V" and dtype.name != "bfloat16":
        pytest.skip("bfloat16: pip install ml_dtypes")
    x, y = (v.astype(dtype) for v in POINTS["normal"])
    for metric in ("cityblock", "chebyshev", "canberra", "cosine"):
        found = sm.neighbours.cdist(x, y, metric)
        assert found.dtype == np.float32
        expected = sm.neighbours.cdist(x.astype(float), y.astype(float), metric)
        assert_allclose(found, expected, 1e-5, 1e-6, err_msg=metric)


@pytest.mark.parametrize("rows", [9, 300])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i2"])
def test_ties_of_weighted_integers(dtype, rows):
    """Equally near rows in the order of their indices, as their whole distances say."""
    metrics = {
        "cityblock": lambda gap, w: w * gap, "euclidean": lambda gap, w: w * gap**2,
        "sqeuclidean": lambda gap, w: w * gap**2, "hamming": lambda gap, w: w * (gap > 0),
    }  # fmt: skip
    for trial in range(20 if rows < 100 else 6):  # the reference sorts whole rows
        columns = (trial if rows < 100 else 2 * trial) % 9 + 1
        x, y = (RNG.integers(-3, 4, (m, columns)) for m in (rows, 40 * rows))
        w = RNG.integers(0, 8, columns)
        for metric, term in metrics.items():
            d = sum(term(abs(x[:, c, None] - y[:, c]), w[c]) for c in range(columns))
            order = np.argsort(d, axis=1, kind="stable")[:, :9]
            given = x.astype(dtype), y.astype(dtype)
            assert_array_equal(sm.neighbours.knn(*given, 9, metric, w=w)[1], order)
            assert_array_equal(sm.neighbours.argbest(*given, metric, w=w)[1], order[:, 0])
            if metric == "cityblock":
                assert_array_equal(sm.neighbours.cdist(*given, metric, w=w), d)
                assert_array_equal(
                    sm.neighbours.radius_count(*given, 5, metric, w=w), (d <= 5).sum(1)
                )


@pytest.mark.parametrize(("dtype", "far"), [("f4", 1e3), ("f8", 1e6)])
@pytest.mark.parametrize("name", ["cityblock", "euclidean", "minkowski 2.5"])
def test_weights_keep_the_digits_of_points_far_from_the_origin(name, dtype, far):
    metric, options = METRICS[name]
    x, y = (RNG.normal(size=(m, 5)).astype(dtype) for m in (30, 40))
    x, y = x + np.dtype(dtype).type(far), y + np.dtype(dtype).type(far)
    w = RNG.random(5) * 3
    near = sm.neighbours.cdist(x.astype(float) - far, y.astype(float) - far, metric, w=w, **options)
    found = sm.neighbours.cdist(x, y, metric, w=w, **options)
    assert_allclose(found, near, 4 * np.finfo(dtype).eps)


def test_integers_that_no_float_tells_apart():
    x = np.array([[2**63 - 1, 2**53 + 1, 0]])
    y = np.array([[2**63 - 2, 2**53, 0]])
    for _ in range(3):  # small calls of floats are known from now on
        sm.neighbours.cdist(x.astype(float), y.astype(float), "hamming")
    for dtype in ("i8", "u8"):
        found = sm.neighbours.cdist(x.astype(dtype), y.astype(dtype), "hamming")
        assert_array_equal(found, [[2 / 3]])
    many = np.zeros((2, 40_000), "i1")
    many[1] = 1
    assert_array_equal(sm.neighbours.cdist(many, many, "hamming"), [[0, 1], [1, 0]])
    assert_array_equal(sm.neighbours.knn(many, many, 2, "hamming")[0], [[0, 1], [0, 1]])


def test_neither_squares_nor_norms_leave_the_range():
    x = np.array([[3e200, 4e200], [3e-200, 4e-200]])
    assert_allclose(sm.neighbours.cdist(x, x[:1] / 7, "cosine"), [[0], [0]], atol=1e-15)


def test_metrics_of_ones_own():
    x, y = POINTS["normal"]
    least = sm.neighbours.Metric("least", "abs(a - b)", "min(a, b)")
    assert_array_equal(sm.neighbours.cdist(x, y, least), abs(x[:, None] - y).min(2))
    huber = sm.neighbours.Metric("huber", "abs(a - b) if abs(a - b) > 1 else (a - b) * (a - b)")
    gap = abs(x[:, None] - y)
    terms = np.where(gap > 1, gap, gap * gap)
    assert_allclose(sm.neighbours.cdist(x, y, huber), terms.sum(2), 1e-13)
    w = np.arange(19) % 4 / 2
    assert_allclose(sm.neighbours.cdist(x, y, huber, w=w), (w * terms).sum(2), 1e-13)
    mean = sm.neighbours.Metric("mean", "abs(a - b)", final="a / b")
    assert_allclose(sm.neighbours.cdist(x, y, mean, w=w), (w * gap).sum(2) / w.sum(), 1e-13)
    dot = sm.neighbours.Metric(
        "dot", "a * b", final="-a"
    )  # the largest inner products are the nearest
    d, i = sm.neighbours.knn(x, y, 3, dot)
    assert_array_equal(i, np.argsort(-(x @ y.T), axis=1)[:, :3])
    assert_allclose(d, np.sort(-(x @ y.T))[:, :3], 1e-12)


@pytest.mark.parametrize(("error", "message", "call"), [
    (ValueError, "join is 'a \\+ b'", lambda: sm.neighbours.Metric("m", "a - b", "a * b")),
    (ValueError, "the name 'c' is not allowed", lambda: sm.neighbours.Metric("m", "a - c")),
    (ValueError, "identifier such as", lambda: sm.neighbours.Metric("my metric", "a - b")),
    (ValueError, "no metric 'yule': choose one of", lambda: sm.neighbours.cdist(*X, "yule")),
    (TypeError, "metric must be a name .* got builtin", lambda: sm.neighbours.cdist(*X, math.dist)),
    (ValueError, "p must be a number above 0", lambda: sm.neighbours.cdist(*X, "minkowski", p=0)),
    (ValueError, "K = 3 as in X; got shape .2, 2", lambda: sm.neighbours.cdist(X[0], X[0][:, :2])),
    (ValueError, "X is of .* got shape .3,", lambda: sm.neighbours.cdist(X[0][0], X[0])),
    (ValueError, r"number for each of 3 columns", lambda: sm.neighbours.cdist(*X, w=[1, 2])),
    (ValueError, "negative weights", lambda: sm.neighbours.cdist(*X, w=[1, 2, -1])),
    (ValueError, "infinite or NaN", lambda: sm.neighbours.cdist(*X, w=[1, inf, 1])),
    (ValueError, "infinite or NaN", lambda: sm.neighbours.knn(*X, 1, w=[1, nan, 1])),
    (TypeError, "complex128 .* are accepted", lambda: sm.neighbours.cdist(X[0] * 1j, X[0])),
    (ValueError, "out has shape", lambda: sm.neighbours.cdist(*X, out=np.empty((2, 3)))),
    (ValueError, "k is from 1 to the 2 rows of Y, got 3", lambda: sm.neighbours.knn(*X, 3)),
    (ValueError, "k is from 1 to the 2 rows of Y, got 0", lambda: sm.neighbours.knn(*X, 0)),
    (ValueError, "argbest: Y has no rows", lambda: sm.neighbours.argbest(X[0], X[0][:0])),
    (ValueError, "the radius is a number", lambda: sm.neighbours.radius_count(*X, nan)),
    (ValueError, "the radius is a number", lambda: sm.neighbours.radius_count(*X, "a")),
    (ValueError, "beyond the range of float64; use inf",
     lambda: sm.neighbours.radius_count(*X, 10**400)),
    (ValueError, r"haversine is of rows \(latitude, longitude\), .* got 3 columns",
     lambda: sm.neighbours.cdist(*X, "haversine")),
    (ValueError, "without weights, got w",
     lambda: sm.neighbours.cdist([[0, 0]], [[0, 1]], "haversine", w=[1, 1])),
    (ValueError, "a latitude of 52.5: convert degrees by numpy.radians",
     lambda: sm.neighbours.argbest([[nan, 0], [52.5, 13.4]], [[0, 1]], "haversine")),
    (TypeError, "k must be an integer", lambda: sm.neighbours.knn(*X, 1.5)),
    (TypeError, "argbest: Y must be an array .* got None",
     lambda: sm.neighbours.argbest(X[0], None)),
])  # fmt: skip
def test_what_is_refused(error, message, call):
    with pytest.raises(error, match=message):
        call()


X = [np.arange(6.0).reshape(2, 3)] * 2


# --- the nearest --------------------------------------------------------------------------------


def by_sorting(d, k):
    """The k least of each row and their indices; NaN last, equal ones by their indices."""
    order = np.argsort(d, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(d, order, 1), order


@pytest.mark.parametrize("weights", ["none", "few"])
@pytest.mark.parametrize("points", [x for x in POINTS if x != "no points"])
def test_the_nearest_of_all_metrics(points, weights):
    x, y = POINTS[points]
    for name, (metric, _) in METRICS.items():
        options = options_of(name, weights, x)
        all_distances = sm.neighbours.cdist(x, y, metric, **options)
        for k in {1, len(y) // 2} - {0}:
            d, i = sm.neighbours.knn(x, y, k, metric, **options)
            assert (d.shape, i.shape, i.dtype) == ((len(x), k), (len(x), k), np.int64)
            assert_allclose(d, by_sorting(all_distances, k)[0], 1e-13, 1e-14, err_msg=name)
            assert_allclose(np.take_along_axis(all_distances, i, 1), d, 1e-13, 1e-14)
            assert all(len(set(row)) == k for row in i.tolist())
        r = np.nan_to_num(np.nanmedian([*all_distances.flat, 1]))
        counts = sm.neighbours.radius_count(x, y, r, metric, **options)
        assert_array_equal(counts, (all_distances <= r).sum(1), name)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_radii_are_compared_with_distances_to_the_last_bit(dtype):
    x, y = (RNG.random((n, 3)).astype(dtype) for n in (40, 60))
    d = sm.neighbours.cdist(x, y)
    huge, tiny = np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal
    for r in (*d.ravel()[:50], *np.nextafter(d.ravel()[:50], 0), -1.0, 0.0, huge, tiny, inf):
        assert_array_equal(
            sm.neighbours.radius_count(x, y, float(r)), (d <= d.dtype.type(r)).sum(axis=1)
        )
    with warnings.catch_warnings(action="error"):  # beyond the range of float32
        for metric in ("euclidean", "cityblock"):
            assert_array_equal(sm.neighbours.radius_count(x, y, 1e300, metric), np.full(40, 60))
    far = np.array([[huge, huge]])
    assert_array_equal(sm.neighbours.radius_count(far, -far, inf), [1])
    assert_array_equal(sm.neighbours.radius_count(far, -far, huge), [0])


@pytest.mark.parametrize("metric", ["cityblock", "euclidean", "cosine", "hamming"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_equal_points_come_by_their_index(metric, dtype, monkeypatch):
    """Across the tiles, at the edges of both operands, and whatever the order of the points."""
    monkeypatch.setattr(select, "_TILE", 64 << 10)
    kind = RNG.integers(0, 30, 1601)
    y = RNG.integers(1, 4, (30, 6))[kind].astype(dtype) / 3
    x = np.concatenate([y[:40], RNG.random((3, 6)).astype(dtype)])
    compared = sm.neighbours.cdist(x, y, {"euclidean": "sqeuclidean"}.get(metric, metric))
    for k in (1, 17, 200, 1601):
        i = sm.neighbours.knn(x, y, k, metric)[1]
        assert_array_equal(i, by_sorting(compared, k)[1])
        same = np.diff(kind[i], axis=1) == 0
        assert (np.diff(i, axis=1)[same] > 0).all()
    assert_array_equal(sm.neighbours.argbest(x, y, metric)[1], by_sorting(compared, 1)[1][:, 0])


@pytest.mark.parametrize("dtype", ["f4", "f8", "u1", "i8"])
def test_the_kernels_of_heaps_in_python(dtype):
    tile = RNG.integers(0, 20, (3, 150)).astype(dtype)
    if real := tile.dtype.kind == "f":
        tile[1, ::9] = np.nan
    value, index = select.empty(3, 7, tile.dtype)
    heaps = both(
        kernels.put, None, dtype, many=1, real=real, rows=3, columns=150, k=7, base=5, value=value,
        index=index, tile=tile,
    )  # fmt: skip
    own = {name: heaps[name] for name in ("value", "index")}
    best = both(kernels.sort, None, dtype, rows=3, k=7, **own)
    expected = np.argsort(tile, 1, kind="stable")[:, :7]
    assert_array_equal(best["index"], expected + 5)
    assert_array_equal(best["value"], np.take_along_axis(tile, expected, 1))


def test_the_kernels_of_entries_in_python():
    x, other = RNG.normal(size=(2, 5, 21))
    plan = Plan(ex.parse("a - 2 * b"), ex.parse("a - 2 * b"), "float64", "f64", keep_nan=True)
    operations = Operations(min, lambda a, b: a - 2 * b, min, 0.0, 0.0)
    fields = {"rows": 5, "columns": 21, "x": x}
    both(combine.apply, operations, plan, alone=True, other=other[:1, :1].copy(), **fields)
    both(combine.apply, operations, plan, alone=False, other=other, **fields)
    x[1], x[2] = 0, 1e-200 * x[2]
    found = both(
        combine.unit_rows, None, "f8", (), 1e-14, mantissa=52, bias=1023, unit=np.empty((5, 21)),
        **fields,
    )["unit"]  # fmt: skip
    assert_allclose(np.linalg.norm(found, axis=1), [1, np.nan, 1, 1, 1])


def sphere(n, columns=9):
    """Unit vectors, of which each one has its opposite."""
    half = RNG.normal(size=(n // 2, columns))
    half /= np.linalg.norm(half, axis=1, keepdims=True)
    return np.concatenate([half, -half])


#: X and Y whose Euclidean neighbours are found by a screen.
SCREENED = {
    "uniform": [RNG.random((60, 20)), RNG.random((5000, 20))],
    "far from the origin": [1e4 + RNG.random((60, 9)), 1e4 + RNG.random((5000, 9))],
    "equal points": [RNG.integers(0, 3, (60, 10)) / 3, RNG.integers(0, 3, (5000, 10)) / 3],
    "an outlier": [RNG.random((60, 20)), np.vstack([RNG.random((4999, 20)), np.full(20, 1e6)])],
    "tiny": [1e-25 * RNG.random((60, 20)), 1e-25 * RNG.random((5000, 20))],
    "huge": [1e15 * RNG.random((60, 20)), 1e15 * RNG.random((5000, 20))],
    "all sizes": [RNG.random((m, 9)) * 10.0 ** RNG.integers(-20, 18, (m, 1)) for m in (60, 5000)],
    "nearer and nearer": [
        RNG.random((60, 9)), np.linspace(5, 0, 5000)[:, None] + RNG.random((5000, 9)) / 100,
    ],
    # of which rounding decides: at equal distances, around points amid them, and after a few points
    # far away, so near each other that squares are no normal numbers
    "equally far": [
        np.full((60, 8), 0.35),
        RNG.choice([-0.35, 0.35], (5000, 1)) + sphere(5000, 8) * (1 + 1e-8 * RNG.random((5000, 1))),
    ],
    "around two": [
        np.full((60, 8), 4.0),
        RNG.choice([-4.0, 4.0], (5000, 1)) + sphere(5000, 8) * (1 + RNG.random((5000, 1)) / 1000),
    ],
    "around some": [
        2e-8 * sphere(60),
        sphere(5000) * (1 + 1e-6 * RNG.random((5000, 1))) * (np.arange(5000) % 250 > 0)[:, None],
    ],
    "far nearer than others": [
        1e-21 * sphere(60),
        np.vstack([sphere(500), 1e-21 * sphere(4500) * (1 + RNG.random((4500, 1)) / 500)]),
    ],
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("points", SCREENED)
def test_a_screen_leaves_every_bit_as_it_is(points, dtype, monkeypatch):
    x, y = (v.astype(dtype) for v in SCREENED[points])
    monkeypatch.setattr(select, "FEW", 0)
    monkeypatch.setattr(select, "_ROWS", 4)
    monkeypatch.setattr(select, "_TILE", 4 * 4 * 500)
    candidates, put = [], Screen.put

    def counted(screen, rows, columns, tile, *heaps):
        candidates.append(put(screen, rows, columns, tile, *heaps) / tile.size)
        return candidates[-1] * tile.size

    monkeypatch.setattr(Screen, "put", counted)
    calls = [(1, "sqeuclidean"), (40, "euclidean")]
    found = [sm.neighbours.knn(x, y, k, metric) for k, metric in calls]
    assert candidates
    if points in ("uniform", "far from the origin", "huge"):
        assert np.median(candidates) < 0.02
    monkeypatch.setattr(neighbours, "_screen", lambda *_: None)
    direct = [sm.neighbours.knn(x, y, k, metric) for k, metric in calls]
    for got, want in zip(sum(found, ()), sum(direct, ()), strict=True):
        assert_array_equal(got, want)


def test_what_is_not_finite_is_not_screened():
    x, y = RNG.random((5, 9)), RNG.random((9000, 9))
    y[7], y[8], y[9] = nan, inf, 1e200
    with np.errstate(all="ignore"):
        expected, order = by_sorting(sm.neighbours.cdist(x, y), 9000)
    d, i = sm.neighbours.knn(x, y, 900)
    assert_array_equal(d, expected[:, :900])
    assert_array_equal(i, order[:, :900])


def places(n):
    """Latitudes and longitudes, of which some are nearly antipodes, and near the poles and 180°."""
    latitude, longitude = np.arcsin(RNG.uniform(-1, 1, n)), RNG.uniform(-np.pi, np.pi, n)
    latitude[:2], longitude[2:4] = (np.pi / 2, -np.pi / 2), (np.pi, 1e-9 - np.pi)
    latitude[4], longitude[4] = -latitude[5], longitude[5] + np.pi
    latitude[6:9] = latitude[9:12] + 1e-7  # 64 cm
    longitude[6:9] = longitude[9:12]
    return np.stack([latitude, longitude], 1)


def great_circles(x, y):
    """Angles by tangents, which are exact at all distances."""
    (a, b), gap = (np.meshgrid(y[:, 0], x[:, 0])[::-1]), y[:, 1] - x[:, 1:]
    across = np.cos(a) * np.sin(b) - np.sin(a) * np.cos(b) * np.cos(gap)
    return np.arctan2(
        np.hypot(np.cos(b) * np.sin(gap), across),
        np.sin(a) * np.sin(b) + np.cos(a) * np.cos(b) * np.cos(gap),
    )


def test_places_on_a_sphere(monkeypatch):
    x = places(700)
    want = great_circles(x, x)
    d = sm.neighbours.cdist(x, x, "haversine")
    near = want < 2  # the angle of opposite places is as the root of the error of their chord
    assert_allclose(d[near], want[near], 1e-15, 1e-15)
    assert_allclose(d, want, atol=3e-8)
    short = sm.neighbours.cdist(*2 * [x.astype("f4")], "haversine")
    assert short.dtype == np.float32
    assert_allclose(short[near], want[near], 1e-6, 3e-7)
    assert (d.diagonal() == 0).all()
    for planted in (1 << 30, 0):  # by all distances, and in a tree
        monkeypatch.setattr(neighbours, "_PLANTED", planted)
        found, index = sm.neighbours.knn(x, x, 5, "haversine")
        assert_array_equal(found, by_sorting(d, 5)[0])
        assert_array_equal(np.take_along_axis(d, index, 1), found)
        for r in (0.2, d[0, 1], 1e-7, 0):
            counts = sm.neighbours.radius_count(x, x, r, "haversine")
            assert_array_equal(counts, (d <= r).sum(1))
            close = sm.neighbours.within(x, x, radius=r, metric="haversine")
            assert_array_equal(close.distance, d[d <= r])
    assert np.isnan(sm.neighbours.cdist([[nan, 0], [0, inf]], x[:1], "haversine")).all()


def holes(rows, columns=2):
    """Points some of which have coordinates that are NaN or infinite."""
    points = RNG.random((rows, columns))
    points[::7, 0], points[1::11, 1], points[2::13] = nan, inf, -inf
    return points


GRID = RNG.integers(0, 50, (2900, 2))
#: X and Y of few coordinates, and of which rows a tree is sure.
PLANTED = {
    "uniform": (RNG.random((700, 3)), RNG.random((2900, 3)), "all"),
    "a line": (RNG.random((700, 1)), RNG.random((2900, 1)), "all"),
    "a grid": (GRID[:700] * 0.1, GRID * 0.1, "some"),
    "whole numbers": (GRID[:700], GRID, "some"),
    "equal pairs": (RNG.random((700, 2)), np.repeat(RNG.random((1450, 2)), 2, 0), "some"),
    "one place": (np.ones((700, 2)), np.ones((2900, 2)), "none"),
    "around a place": (np.full((700, 2), 0.1), RNG.choice([-0.4, 0.6], (2900, 2)), "none"),
    "far from the origin": (
        1e6 + RNG.random((700, 2)),
        1e6 + RNG.random((2900, 2)),
        "some, in float32",
    ),
    "no number": (np.full((700, 2), nan), RNG.random((2900, 2)), "none"),
    "among no numbers": (RNG.random((700, 2)), np.full((2900, 2), nan), "none"),
    "not finite": (holes(700), holes(2900), "some"),
    "tiny": (1e-25 * RNG.random((700, 2)), 1e-25 * RNG.random((2900, 2)), "some, in float32"),
    "huge": (
        1e38 * RNG.normal(size=(700, 2)),
        1e38 * RNG.normal(size=(2900, 2)),
        "some, in float32",
    ),
}


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("points", PLANTED)
def test_a_tree_leaves_every_bit_as_it_is(points, dtype, monkeypatch):
    """Ties at the k-th place and at the radius; what is beyond the range of squares, too."""
    pytest.importorskip("scipy")
    x, y, sure = PLANTED[points]
    with warnings.catch_warnings(action="ignore"):
        x, y = x.astype(dtype), y.astype(dtype)
    monkeypatch.setattr(neighbours, "_PLANTED", 1 << 20)
    left, search = [], neighbours._Tree.search
    monkeypatch.setattr(
        neighbours._Tree, "search", lambda *args: left.append(search(*args)) or left[-1]
    )
    metrics = {
        "euclidean": 2, "sqeuclidean": 2, "cityblock": 1, "chebyshev": inf, "minkowski": 2.3
    }  # fmt: skip
    found, direct = [], []
    for metric, p in metrics.items():
        d = sm.neighbours.cdist(x[:9], y, metric, p=p)
        near = np.sort(d[np.isfinite(d)])  # a radius that some pairs are at
        radius = float(near[near.size // 200]) if near.size else 1.0
        calls = [
            *(functools.partial(sm.neighbours.knn, x, y, k, metric, p=p) for k in (1, 40)),
            functools.partial(sm.neighbours.radius_count, x, y, radius, metric, p=p),
            functools.partial(sm.neighbours.within, x, y, radius=radius, metric=metric, p=p),
        ]
        found += [call() for call in calls]
        with monkeypatch.context() as without:
            without.setitem(sys.modules, "scipy.spatial", None)
            direct += [call() for call in calls]
    assert len(left) == 2 * len(metrics)
    shares = [len(rest) / len(x) for rest in left]
    if sure == "some, in float32":
        sure = "some" if dtype == "f4" else "all"
    assert (max(shares) < 0.05, min(shares) == 1) == (sure == "all", sure == "none")
    for got, want in zip(found, direct, strict=True):
        for one, other in zip(_parts(got), _parts(want), strict=True):
            assert one.dtype == other.dtype
            assert_array_equal(one, other)


def _parts(found):
    if isinstance(found, sm.neighbours.Within):
        return found.indptr, found.indices, found.distance
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("order", ["falling", "rising", "equal"])
def test_points_in_any_order(order):
    y = (
        np.linspace(10, 1, 5000)[:, None]
        if order == "falling"
        else np.linspace(1, 10, 5000)[:, None]
    )
    y = y * (order != "equal")
    x = np.array([[0.0], [11.0], [5.0]])
    d, i = sm.neighbours.knn(x, y, 700, "l1")
    expected, indices = by_sorting(abs(x - y.T), 700)
    assert_array_equal(d, expected)
    assert_array_equal(i, indices)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_any_number_of_threads(workers):
    x, y = RNG.normal(size=(401, 5)), RNG.normal(size=(2000, 5))

    def found():
        return (
            *sm.neighbours.knn(x, y, 9, "l1"),
            sm.neighbours.cdist(x, y, "l1"),
            sm.neighbours.radius_count(x, y, 1, "l1"),
        )

    expected = found()
    sm.set_num_threads(workers)
    for got, want in zip(found(), expected, strict=True):
        assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["i1", "f4", "f8"])
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_few_queries_share_the_points(workers, dtype, monkeypatch):
    """Threads take columns; ties go over their borders, and NaN stays last."""
    y = RNG.integers(0, 3, (60_000, 4)).astype(dtype)
    x = y[:3].copy()
    if dtype != "i1":
        y[59_000:] = nan
    compared = sm.neighbours.cdist(x, y, "hamming" if dtype == "i1" else "l1")
    parts = []
    split = neighbours._Pairs.across
    monkeypatch.setattr(
        neighbours._Pairs, "across", lambda *args: parts.append(split(*args)) or parts[-1]
    )
    sm.set_num_threads(workers)
    for k in (1, 700, 60_000):
        d, i = sm.neighbours.knn(x, y, k, "hamming" if dtype == "i1" else "l1")
        expected, order = by_sorting(compared, k)
        assert_array_equal(d, expected)
        assert_array_equal(i, order)
    assert [len(found) for found in parts] == [workers, workers, 1]
    counts = sm.neighbours.radius_count(x, y, 1, "hamming" if dtype == "i1" else "l1")
    assert_array_equal(counts, (compared <= 1).sum(1))


def test_nothing_of_size_mn_is_made(monkeypatch):
    made = []

    def empty(shape, *rest, **kwargs):
        made.append(math.prod(np.atleast_1d(shape).tolist()) // (8 if np.uint8 in rest else 1))
        return np.zeros(shape, *rest, **kwargs)

    monkeypatch.setattr(neighbours.np, "empty", empty)
    x, y = RNG.normal(size=(1000, 3)), RNG.normal(size=(16_000, 3))
    sm.neighbours.knn(x, y, 2, "braycurtis")
    sm.neighbours.radius_count(x, y, 1.0, "canberra", w=[1, 2, 3])
    assert max(made) < len(x) * len(y) / 20


# --- arrays of other libraries ------------------------------------------------------------------


@pytest.mark.parametrize("what", ["cdist", "knn"])
def test_the_benchmark_beside_scipy_and_scikit_learn_runs(what, tmp_path, capsys):
    pytest.importorskip("sklearn", "1.6")
    from bench import neighbours_knn

    out = tmp_path / "raw.json"
    assert neighbours_knn.main([what, "--quick", "--out", str(out)]) == 0
    assert "scikit-learn" in capsys.readouterr().out
    result = json.loads(out.read_text())
    assert all(line["checked"] for line in result["lines"])
    assert "scikit-learn" in neighbours_knn.table(result, "raw.json")


# --- repeated small calls -----------------------------------------------------------------------

SMALL = {
    "rows": (RNG.random((9, 5)), RNG.random((17, 5))),
    "one row": (RNG.random((1, 5)), RNG.random((17, 5))),
    "one point": (RNG.random((9, 5)), RNG.random((1, 5))),
    "one column": (RNG.random((9, 1)), RNG.random((17, 1))),
    "few rows of two columns": (RNG.random((2, 2)), RNG.random((37, 2))),
    "few rows of three columns": (RNG.random((7, 3)), RNG.random((100, 3))),
    "columns of several slabs": (RNG.random((3, 5000)), RNG.random((7, 5000))),
    "strides": (RNG.random((5, 9)).T, RNG.random((34, 15))[::-2, ::3]),
    "zeros, infinities, NaN": (
        np.array([[0.0, 0, 0], [inf, 1, -1], [nan, 0, 2], [-0.0, 3, 1]]),
        np.array([[0.0, 0, 0], [-inf, 1, 2], [1, nan, 0], [5, 0.0, 7]]),
    ),
}  # fmt: skip
FAR = sm.neighbours.Metric("far", "abs(a - b) * abs(a - b)", "max(a, b)", final="sqrt(a) / b")


@pytest.fixture
def general(monkeypatch):
    """A list that grows with each call that takes the general way."""
    calls = []
    monkeypatch.setattr(neighbours, "Call", lambda *a, **k: calls.append(a) or arrays.Call(*a, **k))
    return calls


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("points", SMALL)
def test_repeated_small_calls_take_the_quick_way_and_change_no_bit(points, dtype, general):
    x, y = (v.astype(dtype) for v in SMALL[points])
    k = min(3, len(y))
    for metric, p in [*((metric, o.get("p", 2)) for metric, o in METRICS.values()), (FAR, 2)]:
        own = functools.partial(sm.neighbours.cdist, x, y, metric, p=p)
        turned = np.zeros((len(y), len(x)), dtype).T
        verbs = {
            "cdist": own,
            "cdist to out": functools.partial(own, out=turned),
            "knn": functools.partial(sm.neighbours.knn, x, y, k, metric, p=p),
            "argbest": functools.partial(sm.neighbours.argbest, x, y, metric, p=p),
            "radius_count": functools.partial(sm.neighbours.radius_count, x, y, 0.7, metric, p=p),
        }
        for _ in range(3):
            own()
        for name, call in verbs.items():
            general.clear()
            got = call()
            assert not general, (metric, name)
            assert name != "cdist to out" or got is turned
            got = [v.copy() for v in (got if type(got) is tuple else (got,))]
            wanted = call(device="cpu")  # a call that names a device takes the general way
            assert general
            for one, other in zip(got, wanted if len(got) > 1 else (wanted,), strict=True):
                assert one.dtype == other.dtype
                assert_array_equal(one, other, f"{metric} {name}")


@pytest.mark.parametrize("columns", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_points_of_few_columns_have_the_same_bits_however_they_lie(columns, dtype):
    for m, n in itertools.product((1, 2, 8, 9), (31, 32, 33, 100, 3000)):
        x, y = (RNG.normal(size=(rows, columns)).astype(dtype) for rows in (m, n))
        for metric in ("euclidean", "cityblock", "canberra", "chebyshev"):
            lying = [np.ascontiguousarray(y), np.asfortranarray(y), np.repeat(y, 2, 1)[:, ::2]]
            found = [sm.neighbours.cdist(x, v, metric) for v in lying]
            for other in found[1:]:
                assert_array_equal(found[0], other)
            assert_allclose(found[0], distance.cdist(x, y, metric), rtol=1e-5)


def test_metrics_of_the_same_expressions_are_not_taken_for_each_other():
    """A built-in metric of places or unit vectors, and the user's of what these join."""
    x, y = RNG.uniform(-1, 1, (3, 2)), RNG.uniform(-1, 1, (40, 2))
    for name, final in (("haversine", "min(sqrt(a) / 2, 1)"), ("cosine", "min(max(1 - a, 0), 2)")):
        pair = "b * a" if name == "cosine" else "(a - b) * (a - b)"
        own = sm.neighbours.Metric("own", pair, final=final)
        for _ in range(2):
            found = [sm.neighbours.cdist(x, y, metric) for metric in (own, name)]
            for metric, d in zip((own, name), found, strict=True):
                assert_array_equal(d, sm.neighbours.cdist(x, y, metric, device="cpu"))
        assert abs(found[0] - found[1]).max() > 0.1


@pytest.mark.parametrize("dtype", ["i8", "u1", "?"])
def test_repeated_small_calls_of_whole_numbers(dtype, general):
    x, y = (RNG.integers(0, 5, (n, 4)).astype(dtype) for n in (8, 13))
    for metric in ("cityblock", "euclidean", "cosine", "hamming"):
        calls = [
            functools.partial(f, x, y, metric=metric)
            for f in (sm.neighbours.cdist, sm.neighbours.argbest)
        ]
        for call in calls:
            for _ in range(3):
                call()
            general.clear()
            got = call()
            # which compares them as they are, or by their bits
            assert bool(general) == (metric == "hamming" and dtype != "?")
            for one, other in zip(got, call(device="cpu"), strict=True):
                assert one.dtype == other.dtype
                assert_array_equal(one, other)


def test_other_calls_than_the_quick_ones(general):
    """Errors, and operands that the quick way has no code for, after it was learned."""
    x, y = SMALL["rows"]
    for _ in range(4):
        sm.neighbours.cdist(x, y), sm.neighbours.cdist(x, y, "cosine"), sm.neighbours.knn(x, y, 3)
    expected = sm.neighbours.cdist(x, y)
    general.clear()
    assert_array_equal(
        sm.neighbours.cdist(x, y.astype("f4")), sm.neighbours.cdist(x, y.astype("f4").astype("f8"))
    )
    assert_array_equal(sm.neighbours.cdist(x.astype(">f8"), y.astype(">f8")), expected)
    assert_array_equal(sm.neighbours.cdist(x.astype(">f8"), y.astype(">f8"), "cosine"),
                       sm.neighbours.cdist(x, y, "cosine"))  # fmt: skip
    assert_array_equal(sm.neighbours.cdist(x.tolist(), y.tolist()), expected)
    own = np.vstack([x, y])
    square = sm.neighbours.cdist(own, own)
    room = np.zeros((26, 26))
    room[:, :5] = own
    assert_array_equal(sm.neighbours.cdist(room[:, :5], room[:, :5], out=room), square)
    assert sm.neighbours.cdist(x, y[:0]).shape == (9, 0)
    assert_array_equal(sm.neighbours.cdist(x[:, :0], y[:, :0]), np.zeros((9, 17)))
    for message, call in {
        r"Y is of shape \(N, K\) with K = . as in X; got": lambda: sm.neighbours.cdist(x, y[:, 1:]),
        "out has shape": lambda: sm.neighbours.cdist(x, y, out=np.zeros((9, 16))),
        "and dtype float32": lambda: sm.neighbours.cdist(x, y, out=np.zeros((9, 17), "f4")),
        "from 1 to the 17 rows": lambda: sm.neighbours.knn(x, y, 18),
        "read-only": lambda: sm.neighbours.cdist(x, y, out=np.broadcast_to(0.0, (9, 17))),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()


def test_too_little_memory_is_told_before_any_work(monkeypatch):
    monkeypatch.setattr(arrays, "_UNASKED", 0)
    monkeypatch.setattr(cpu, "free_memory", lambda: 1000)
    x = np.ones((40, 3))
    text = "^a matrix of 40 × 40 distances needs .* free: keep the near pairs alone, by within"
    with pytest.raises(MemoryError, match=text):
        sm.neighbours.cdist(x, x, device="cpu")
