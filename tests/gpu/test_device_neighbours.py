"""The nearest rows on a device, which is the host's stand-in, and a CUDA device if one is there."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import semiring_mm as sm
from semiring_mm import neighbours
from semiring_mm.gpu import engine, select
from semiring_mm.gpu.views import address
from tests.verbs.test_neighbours import by_sorting

nan, inf = np.nan, np.inf
RNG = np.random.default_rng(0)


@pytest.fixture
def small_tiles(monkeypatch):
    """Of 40 columns, the last one narrower."""
    monkeypatch.setattr(select, "_COLUMNS", 40)
    monkeypatch.setattr(select, "_TILE", 40 * 4 * 7)
    monkeypatch.setattr(neighbours, "_TILES", 2)
    monkeypatch.setattr(neighbours, "_ALONE", 0)
    monkeypatch.setattr(select, "_FIRST", 20)
    monkeypatch.setattr(select, "_WIDTH", 4)


def both(there, *arrays):
    return [there.put(x) for x in arrays]


def check(there, found, compared, k):
    """Found are the k least of each row of a matrix, and their columns."""
    d, i = map(there.get, found)
    expected, order = by_sorting(compared, k)
    assert_array_equal(i, order)
    assert_allclose(d, expected, rtol=1e-6)
    assert i.dtype == np.int64


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize(("metric", "dtype"), [
    ("cityblock", "f4"), ("chebyshev", "f8"), ("hamming", "i1"),
])  # fmt: skip
def test_the_nearest(metric, dtype, there):
    x, y = (RNG.integers(0, 4, (m, 6)).astype(dtype) for m in (9, 131))  # many are equally near
    for k in (1, 5, 70, 131):
        found = sm.neighbours.knn(*both(there, x, y), k, metric)
        check(there, found, sm.neighbours.cdist(x, y, metric), k)
    _, i = sm.neighbours.argbest(*both(there, x, y), metric)
    assert_array_equal(there.get(i), by_sorting(sm.neighbours.cdist(x, y, metric), 1)[1][:, 0])
    counts = sm.neighbours.radius_count(*both(there, x, y), 2, "l1")
    assert_array_equal(there.get(counts), (sm.neighbours.cdist(x, y, "l1") <= 2).sum(axis=1))


def sieves(monkeypatch):
    """Sets of points of any size are sieved; the rooms for candidates are listed."""
    monkeypatch.setattr(neighbours, "_SIEVED", 1)
    monkeypatch.setattr(neighbours, "_screen", lambda *_: None)
    rooms, search = [], select.Sieve._search

    def spy(sieve, rows, k, capacity):
        found = search(sieve, rows, k, capacity)
        rooms.append((capacity, int((found[2] > capacity).sum())))
        return found

    monkeypatch.setattr(select.Sieve, "_search", spy)
    return rooms


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize(("metric", "dtype"), [
    ("cityblock", "f4"), ("chebyshev", "f8"), ("hamming", "f4"), ("l2", "f4"), ("own", "f8"),
])  # fmt: skip
def test_sums_are_compared_before_they_are_stored(metric, dtype, there, monkeypatch):
    """Of equal ones the lower numbers are kept, and what is no number comes last."""
    rooms = sieves(monkeypatch)
    metric = {"own": sm.neighbours.Metric("own", "abs(a - b)", final="1 / (a + 1)")}.get(
        metric, metric
    )
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 4, (m, 5)).astype(dtype) for m in (9, 700))
    y[::7, 1], y[5, 2], x[3] = nan, inf, nan
    with np.errstate(all="ignore"):
        compared = sm.neighbours.cdist(x, y, metric)
    for k in (1, 6, 40):
        check(there, sm.neighbours.knn(*both(there, x, y), k, metric), compared, k)
    assert rooms == [(room, 0) for room in (36, 56, 320)]


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("pays", [1, 0])
def test_sieved_rows_with_many_candidates_are_searched_again(pays, there, monkeypatch):
    """Points that come nearer and nearer in the order of a search."""
    rooms = sieves(monkeypatch)
    monkeypatch.setattr(select, "_PAYS", pays)
    order = there.get(select.evenly(400))
    x, y = np.zeros((3, 1), "f4"), np.empty((400, 1), "f4")
    y[order, 0] = np.arange(400, 0, -1)
    check(there, sm.neighbours.knn(*both(there, x, y), 3, "l1"), abs(x - y.T), 3)
    assert rooms == [(44, 3), (192, 0)][: 1 + pays]


@pytest.mark.usefixtures("small_tiles")
def test_sieves_are_for_one_product(there, monkeypatch):
    rooms = sieves(monkeypatch)
    rng = np.random.default_rng(1)
    x, y = (rng.integers(1, 4, (m, 3)).astype("f4") for m in (5, 300))
    weights = [0.5, 2.0, 1.0]
    for metric in ("l1", "chebyshev", "hamming", "braycurtis"):
        found = sm.neighbours.knn(*both(there, x, y), 2, metric, w=weights)
        check(there, found, sm.neighbours.cdist(x, y, metric, w=weights), 2)
    assert len(rooms) == 3
    for dtype in ("?", "i1", "i8"):  # bits are counted, others compared as float32
        x, y = (v.astype(dtype) for v in (x, y))
        check(
            there,
            sm.neighbours.knn(*both(there, x, y), 2, "hamming"),
            sm.neighbours.cdist(x, y, "hamming"),
            2,
        )
    assert len(rooms) == 5


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_zeros_of_both_signs_are_equal(dtype, there):
    least = sm.neighbours.Metric("least", "a * b", "min(a, b)")
    y = np.array([[0.0], [-0.0]] * 45, dtype)
    found = sm.neighbours.knn(*both(there, np.ones((2, 1), dtype), y), 50, least)
    assert_array_equal(there.get(found[1]), [np.arange(50)] * 2)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "i4"])
def test_the_worst_of_all_values_fill_a_list(dtype, there):
    """No value is left out while there is room, in tiles as wide as a warp looks at at once."""
    worst = inf if dtype[0] == "f" else np.iinfo(dtype).max
    heaps = select.empty(2, 70, np.dtype(dtype))
    tile = there.put(np.full((2, 2048), worst, dtype))
    select.put(*heaps, tile[:, :1024], 0)
    select.put(*heaps, tile[:, 1024:], 1024)
    assert_array_equal(there.get(heaps[1]), [np.arange(70)] * 2)


#: Weighted sums of small integers, in whole numbers.
WHOLE = {
    "cityblock": lambda gap, w: (w * gap).sum(2),
    "sqeuclidean": lambda gap, w: (w * gap**2).sum(2),
    "euclidean": lambda gap, w: (w * gap**2).sum(2),
    "hamming": lambda gap, w: (w * (gap > 0)).sum(2),
}


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("sieved", [False, True])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("columns", [1, 3, 8, 33])
def test_ties_of_weighted_integers(columns, dtype, sieved, there, monkeypatch):
    """Equally near rows in the order of their indices, as their whole distances say."""
    if sieved:
        sieves(monkeypatch)
    rng = np.random.default_rng(columns)
    x, y = (rng.integers(-3, 4, (m, columns)) for m in (9, 131))
    w = rng.integers(0, 7, columns)
    w[0] = 3
    given, weights = both(there, x.astype(dtype), y.astype(dtype)), there.put(w)
    for metric, whole in WHOLE.items():
        d = whole(abs(x[:, np.newaxis] - y), w)
        _, order = by_sorting(d, 20)
        assert_array_equal(there.get(sm.neighbours.knn(*given, 20, metric, w=weights)[1]), order)
        counts = sm.neighbours.radius_count(*given, 2, "l1", w=weights)
        assert_array_equal(
            there.get(counts), (WHOLE["cityblock"](abs(x[:, None] - y), w) <= 2).sum(1)
        )
        if metric in ("cityblock", "sqeuclidean"):
            assert_array_equal(there.get(sm.neighbours.cdist(*given, metric, w=weights)), d)


@pytest.mark.usefixtures("small_tiles")
def test_what_is_no_number_comes_last(there):
    y = RNG.normal(size=(90, 1)).astype("f4")
    y[::7], y[5::11], y[6] = nan, inf, -0.0
    x = np.array([[0.0], [1.0]], "f4")
    for k in (1, 64, 90):
        with np.errstate(all="ignore"):
            check(there, sm.neighbours.knn(*both(there, x, y), k, "l1"), abs(x - y.T), k)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("points", ["falling", "rising", "equal"])
def test_points_in_any_order(points, there):
    y = {"falling": np.arange(150.0, 0, -1), "rising": np.arange(150.0), "equal": np.ones(150)}
    x, y = np.array([[-1.0], [70.5]], "f4"), y[points].astype("f4")[:, np.newaxis]
    check(there, sm.neighbours.knn(*both(there, x, y), 33, "l1"), abs(x - y.T), 33)


def points(case, dtype, m=17, n=300):
    rng, columns = np.random.default_rng(3), 20 if case == "wide" else 9
    x, y = rng.normal(size=(m, columns)), rng.normal(size=(n, columns))
    if case == "equal":
        x, y = (rng.integers(0, 2, v.shape) / 3 for v in (x, y))
    if case == "clusters":  # one after the other
        x, y = x[:, :1] // 1 * 2 + x / 9, np.sort(y[:, :1] // 1, axis=0) * 2 + y / 9
    x, y = x + 1e4 * (case == "far"), y + 1e4 * (case == "far")
    y[3] += 1e6 * (case == "outlier")
    y[n // 3 :] *= 10.0 ** rng.integers(-6, 1, (n - n // 3, 1)) if case == "spread" else 1
    return x.astype(dtype), y.astype(dtype)


def same_as_without(there, monkeypatch, x, y, k):
    """Differences are summed up in the product's order, squares by one rounding more or less."""
    screened = sm.neighbours.knn(*both(there, x, y), k, "sqeuclidean")
    with monkeypatch.context() as direct:
        direct.setattr(neighbours, "_screen", lambda *_: None)
        expected = sm.neighbours.knn(*both(there, x, y), k, "sqeuclidean")
    assert_array_equal(there.get(screened[1]), there.get(expected[1]))
    assert_allclose(there.get(screened[0]), there.get(expected[0]), rtol=4 * np.finfo(x.dtype).eps)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize(("case", "dtype", "k", "fused"), [
    ("normal", "f4", 1, True), ("normal", "f4", 12, True), ("equal", "f4", 12, True),
    ("far", "f4", 12, True), ("outlier", "f4", 12, True), ("wide", "f4", 12, True),
    ("clusters", "f4", 12, True), ("far", "f8", 1, True), ("spread", "f8", 12, True),
    ("normal", "f4", 12, False), ("spread", "f8", 12, False),
])  # fmt: skip
def test_a_screen_excludes_no_neighbour(case, dtype, k, fused, there, monkeypatch):
    """Nor does one of a product that is stored, which other chips than Hopper's take."""
    x, y = points(case, dtype)
    if not fused:
        monkeypatch.setattr(select, "has", lambda *_: False)
    calls = []
    for name in ("put", "_search"):
        method = getattr(select.Screen, name)
        monkeypatch.setattr(
            select.Screen, name,
            lambda *args, name=name, method=method: calls.append(name) or method(*args),
        )  # fmt: skip
    same_as_without(there, monkeypatch, x, y, k)
    assert set(calls) == {"_search" if fused else "put"}


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize(("dtype", "w"), [("f4", None), ("f2", None), ("f8", np.arange(9) / 9)])
def test_angles_are_screened(dtype, w, there, monkeypatch):
    """1 - x·y of unit vectors is half of a squared distance; float16 is computed in float32."""
    x, y = points("normal", dtype, 12, 200)
    y[7], y[8] = 4 * x[2], -x[3]
    searches, search = [], select.Screen._search
    monkeypatch.setattr(
        select.Screen, "_search", lambda *args: searches.append(search(*args)) or searches[-1]
    )
    given = w if w is None else there.put(w)
    d, i = map(there.get, sm.neighbours.knn(*both(there, x, y), 5, "cosine", w=given))
    assert searches
    root = np.sqrt(np.ones(9) if w is None else w)
    u, v = (z * root / np.linalg.norm(z * root, axis=1)[:, np.newaxis] for z in (x, y))
    u, v = (z.astype("f8") for z in (u, v))
    expected, order = by_sorting(1 - u @ v.T, 5)
    assert_array_equal(i, order)
    assert_allclose(d, expected, atol=1e-6 if dtype != "f8" else 1e-15)
    assert d.dtype == ("f8" if dtype == "f8" else "f4")
    opposite = there.get(sm.neighbours.knn(*both(there, x[3:4], y), 200, "cosine")[0])[0, -1]
    assert opposite == pytest.approx(2)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("pays", [1, 0.2, 0])
def test_rows_with_many_candidates_are_searched_again(pays, there, monkeypatch):
    """With room for all of them; or directly, where they are too many."""
    x, y = points("normal", "f4", 40, 500)
    x[::2] = y[::2] = 0.25  # equally near are half of the points
    monkeypatch.setattr(select, "_PAYS", pays)
    searches, search = [], select.Screen._search

    def counted(screen, points, rows, k, capacity, fill):
        found = search(screen, points, rows, k, capacity, fill)
        searches.append((capacity, len(rows), int((found[2] > capacity).sum())))
        return found

    monkeypatch.setattr(select.Screen, "_search", counted)
    same_as_without(there, monkeypatch, x, y, 3)
    (room, m, over), *again = searches
    assert (room, m) == (44, 40)
    assert 20 <= over < 40
    assert len(again) == (pays > 0)
    assert all(capacity > room and rows <= over and not more for capacity, rows, more in again)


@pytest.mark.usefixtures("small_tiles")
def test_clusters_in_order_leave_few_candidates(there, monkeypatch):
    x, y = points("clusters", "f4", 20, 2000)
    monkeypatch.setattr(select, "_FIRST", 128)
    most, search = [], select.Screen._search
    monkeypatch.setattr(
        select.Screen, "_search", lambda *args: most.append(search(*args)) or most[-1]
    )
    same_as_without(there, monkeypatch, x, y, 4)
    assert np.median(there.get(most[0][2])) <= 24


def test_lists_have_a_limit(there):
    y = np.zeros((1100, 1), "f4")
    with pytest.raises(ValueError, match=r"on a device k is at most 1024, got 1025; more are for"):
        sm.neighbours.knn(*both(there, y[:2], y), 1025)
    _, i = sm.neighbours.knn(*both(there, y[:2], y), 1024)
    assert_array_equal(there.get(i), [np.arange(1024)] * 2)


@pytest.mark.parametrize("metric", ["euclidean", "hamming", "cosine", "own", "keys"])
@pytest.mark.parametrize("k", [0, 35])
def test_distances_are_one_pass(metric, k, there, monkeypatch):
    """What is done with a sum is done before it is stored."""
    if k:
        monkeypatch.setattr(engine, "apply", None)
    rng = np.random.default_rng(6)
    x, y = (rng.integers(1, 9, (m, k)).astype("f4") for m in (20, 37))
    own = {
        "own": sm.neighbours.Metric("own", "abs(a - b)", final="a / (b + 1)"),
        "keys": sm.neighbours.Metric("keys", "min(a, b)", "max(a, b)", final="a + b"),
    }
    metric = own.get(metric, metric)
    with np.errstate(all="ignore"):
        found, expected = (
            sm.neighbours.cdist(*both(there, x, y), metric),
            sm.neighbours.cdist(x, y, metric),
        )
    assert_allclose(there.get(found), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("metric", "order", "w"), [
    ("cityblock", "C", None), ("hamming", "C", [1, 2, 1, 2, 1]), ("cityblock", "F", None),
    ("chebyshev", "C", None),
])  # fmt: skip
def test_many_points_are_laid_by_coordinates(metric, order, w, there, monkeypatch):
    """Columns become contiguous and aligned; points laid out so already are not copied."""
    monkeypatch.setattr(neighbours, "_MANY", 1)
    rng = np.random.default_rng(7)
    rows = (8, 12) if order == "F" else (9, 14)
    x, y = (np.asarray(rng.integers(0, 4, (m, 5)).astype("f4"), order=order) for m in rows)
    seen, product = [], engine.product

    def spy(semiring, a, b, *args, **options):
        seen.append((a, b.T))
        product(semiring, a, b, *args, **options)

    monkeypatch.setattr(engine, "product", spy)
    given = [there.put(v.T).T for v in (x, y)] if order == "F" else both(there, x, y)
    found = sm.neighbours.cdist(*given, metric, w=w if w is None else there.put(np.array(w)))
    assert_allclose(there.get(found), sm.neighbours.cdist(x, y, metric, w=w), rtol=1e-6)
    for v in (points for pair in seen for points in pair):
        assert (v.strides[0] == 4) == (metric != "chebyshev")
        assert v.strides[1] % 16 == 0 or metric == "chebyshev"
    if order == "F":
        assert [*map(address, seen[0])] == [*map(address, given)]
