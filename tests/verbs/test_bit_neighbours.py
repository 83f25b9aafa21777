"""Distances between rows of bits, against counts in NumPy: equal to the last bit."""

import json
from fractions import Fraction

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from optional import Optional

import semiring_mm as sm
from semiring_mm import arrays, pool
from semiring_mm.cpu import bit_rows
from semiring_mm.metrics import BIT_METRICS

distance = Optional("scipy.spatial.distance")
nb = sm.neighbours
pack = sm.BitMatrix.pack
RNG = np.random.default_rng(5)


def expected(metric, x, y):
    """Distances of rows of bool, by their counts."""
    common = (x.astype(np.int64) @ y.T.astype(np.int64)).astype(float)
    p, q = x.sum(1, dtype=float)[:, None], y.sum(1, dtype=float)
    gaps = p + q - 2 * common
    if metric == "intersection":
        return common
    if metric == "cosine":
        mean = np.sqrt(p * q)
        lone = (p + q > 0) & (mean == 0)
        return np.where(lone, 1, (mean - common) / np.where(mean > 0, mean, 1))
    whole = {"hamming": x.shape[1] + 0 * gaps, "jaccard": p + q - common, "dice": p + q}[metric]
    return gaps / np.maximum(whole, 1)


def rows(m, columns, density=None):
    x = RNG.random((m, columns)) < (RNG.random() if density is None else density)
    x[RNG.random(m) < 0.1] = False
    return x


def nearest(d, k, metric):
    order = np.argsort(-d if metric == "intersection" else d, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(d, order, 1), order


def assert_within(found, d, near):
    row, column = np.nonzero(near)
    assert found.shape == d.shape
    assert_array_equal(found.indptr, np.searchsorted(row, np.arange(len(d) + 1)))
    assert_array_equal(found.indices, column)
    assert_array_equal(found.distance, d[near])
    assert found.indptr.dtype == found.indices.dtype == np.int64


@pytest.mark.parametrize("metric", BIT_METRICS)
def test_random_rows(metric):
    """Ten thousand rows of X among others, of sizes at and between those of words and panels."""
    done = 0
    while done < 10_000:
        m, n = (int(RNG.choice([1, 2, 3, 4, 5, 15, 16, 17, 33, 100, 257])) for _ in range(2))
        columns = int(RNG.choice([1, 7, 8, 63, 64, 65, 128, 166, 200, 1027]))
        x, y = rows(m, columns), rows(n, columns)
        a, b = pack(x), pack(y)
        d = expected(metric, x, y)
        assert_array_equal(nb.cdist(a, b, metric), d)
        k = int(RNG.integers(1, n + 1))
        for found, wanted in zip(nb.knn(a, b, k, metric), nearest(d, k, metric), strict=True):
            assert_array_equal(found, wanted)
        radius = d[RNG.integers(m), RNG.integers(n)]  # one at equality
        near = d >= radius if metric == "intersection" else d <= radius
        assert_within(nb.within(a, b, radius=radius, metric=metric), d, near)
        assert_array_equal(nb.radius_count(a, b, radius, metric), near.sum(1))
        done += m


@pytest.mark.parametrize("metric", BIT_METRICS)
@pytest.mark.parametrize(("threads", "sorts"), [(1, 1), (2, 99), (3, 1)])
def test_blocks_parts_and_lists_that_are_full(metric, threads, sorts, monkeypatch):
    monkeypatch.setattr(bit_rows, "_ROOM", 64)
    monkeypatch.setattr(bit_rows, "_CALL", 500)
    monkeypatch.setattr(bit_rows, "_ROWS", 8)
    monkeypatch.setattr(bit_rows, "_SORTED", sorts)
    before = pool.get_num_threads()
    pool.set_num_threads(threads)
    try:
        for m, n, columns in ((3, 301, 70), (130, 90, 300), (1, 40, 2000)):
            x, y = rows(m, columns, 0.3), rows(n, columns, 0.3)
            d = expected(metric, x, y)
            assert_array_equal(nb.cdist(x, y, metric), d)
            for found, wanted in zip(nb.knn(x, y, 9, metric), nearest(d, 9, metric), strict=True):
                assert_array_equal(found, wanted)
            radius = np.quantile(d, RNG.choice([0.02, 0.5, 0.98]), method="nearest")
            near = d >= radius if metric == "intersection" else d <= radius
            assert_within(nb.within(x, y, radius=radius, metric=metric), d, near)
            d = expected(metric, y, y)
            near = d >= radius if metric == "intersection" else d <= radius
            np.fill_diagonal(near, False)
            assert_within(nb.within(pack(y), radius=radius, metric=metric), d, near)
    finally:
        pool.set_num_threads(before)


@pytest.mark.parametrize("metric", BIT_METRICS)
def test_the_kernel_in_python(metric, monkeypatch):
    monkeypatch.setattr(
        bit_rows, "compiled", lambda kernel, _: lambda **given: kernel.plain(**given)
    )
    monkeypatch.setattr(bit_rows, "_ROOM", 99)
    x, y = rows(5, 600, 0.4), rows(37, 600, 0.4)
    for m in (5, 1):  # which are few
        d = expected(metric, x[:m], y)
        assert_array_equal(nb.cdist(x[:m], y, metric), d)
        for found, wanted in zip(nb.knn(x[:m], y, 4, metric), nearest(d, 4, metric), strict=True):
            assert_array_equal(found, wanted)
        near = d >= d[0, 2] if metric == "intersection" else d <= d[0, 2]
        assert_within(nb.within(x[:m], y, radius=d[0, 2], metric=metric), d, near)


def test_similarities_at_equality():
    """A threshold in decimals has the pairs of just that similarity, in every metric."""
    columns = 300
    for tenth in range(1, 10):
        radius = tenth / 10
        for common, only_x, only_y in ((10 - tenth, tenth, 0), (30 - 3 * tenth, tenth, 2 * tenth)):
            x, y = np.zeros((2, 1, columns), bool)
            x[0, : common + only_x] = True
            y[0, only_x : common + only_x + only_y] = True
            assert Fraction(int((x ^ y).sum()), int((x | y).sum())) == Fraction(tenth, 10)
            assert nb.within(x, y, radius=radius, metric="tanimoto").indices.tolist() == [0]
            below = np.nextafter(radius, 0)
            assert nb.within(x, y, radius=below, metric="jaccard").indices.size == 0
        x, y = np.zeros((2, 1, columns), bool)
        x[0, :10] = y[0, tenth : 10 + tenth] = True
        for metric in ("dice", "cosine"):
            assert nb.within(x, y, radius=radius, metric=metric).indices.tolist() == [0]
            assert nb.cdist(x, y, metric)[0, 0] == radius


@pytest.mark.parametrize("metric", ["hamming", "jaccard", "dice", "cosine"])
def test_as_scipy_but_for_rows_without_bits(metric):
    x, y = rows(30, 75, 0.3), rows(41, 75, 0.3)
    x[3], y[5], y[6, 0] = False, False, True
    given = (x, y) if metric != "cosine" else (x.astype(float), y.astype(float))
    with np.errstate(all="ignore"):
        theirs = distance.cdist(*given, metric)
    found, none = nb.cdist(x, y, metric), np.isnan(theirs)
    assert_allclose(found[~none], theirs[~none], 1e-15, 1e-15)
    assert found[3, 5] == 0
    assert metric == "hamming" or found[3, 6] == 1
    assert_allclose(nb.cdist(x * 1.0, y, metric)[~none], theirs[~none], 1e-12, 1e-15)


@pytest.mark.parametrize("metric", BIT_METRICS)
def test_no_rows_no_bits_and_few(metric):
    for m, n, columns in ((0, 3, 70), (3, 0, 70), (0, 0, 0), (3, 2, 0), (1, 1, 1)):
        x, y = np.ones((m, columns), bool), np.ones((n, columns), bool)
        d = expected(metric, x, y)
        for a, b in ((x, y), (pack(x), pack(y))):
            assert_array_equal(nb.cdist(a, b, metric), d)
            assert nb.within(a, b, radius=0, metric=metric).indices.size == m * n
            if n:
                assert_array_equal(nb.argbest(a, b, metric), (d[:, 0], np.zeros(m)))
            else:
                with pytest.raises(ValueError, match="Y has no rows"):
                    nb.argbest(a, b, metric)


def test_rows_of_one_set():
    x = rows(60, 40, 0.5)
    x[7:50] = x[7]  # many that are equal
    for metric in BIT_METRICS:
        d = expected(metric, x, x)
        away = d.copy()
        np.fill_diagonal(away, -1 if metric == "intersection" else 2)
        for a in (x, pack(x)):
            for found, wanted in zip(nb.knn(a, k=5, metric=metric), nearest(away, 5, metric),
                                     strict=True):  # fmt: skip
                assert_array_equal(found, wanted)
    points = RNG.integers(0, 3, (40, 2)) * 1.0
    d = nb.cdist(points, points)
    np.fill_diagonal(d, np.inf)
    for found, wanted in zip(nb.knn(points, k=39), nearest(d, 39, ""), strict=True):
        assert_array_equal(found, wanted)
    assert_within(nb.within(points, radius=1), d, d <= 1)
    assert_within(nb.within(points, points[:7], radius=2, metric="l1"),
                  far := nb.cdist(points, points[:7], "l1"), far <= 2)  # fmt: skip


def test_layouts_and_bits_past_the_last_column():
    x, y = rows(9, 77), rows(11, 77)
    wanted = expected("jaccard", x, y)
    bits = np.packbits(x, axis=1)
    bits[:, -1] |= 7
    strided = np.empty((9, 2 * bits.shape[1]), np.uint8)[:, ::2]
    strided[...] = bits
    for a in (bits, strided, np.asfortranarray(bits)):
        for b in (y, y.tolist(), pack(y)):
            assert_array_equal(nb.cdist(sm.BitMatrix(a, 77), b, "jaccard"), wanted)
    words = np.zeros(8 * 9 * 2 + 1, np.uint8)
    shifted = words[1:].reshape(9, 16)  # no address of a word
    shifted[:, : bits.shape[1]] = np.packbits(x, axis=1)
    padded = np.pad(y, ((0, 0), (0, 128 - 77)))
    assert_array_equal(nb.cdist(sm.BitMatrix(shifted), pack(padded), "jaccard"), wanted)
    out = np.empty((11, 9)).T
    assert nb.cdist(x, y, "jaccard", out=out) is out
    assert_array_equal(out, wanted)


def test_scipys_matrix():
    x = rows(20, 64, 0.4)
    found = nb.within(x, radius=0.5, metric="hamming")
    matrix = found.to_scipy()
    assert matrix.shape == (20, 20)
    assert matrix.nnz == len(found.indices)
    assert repr(found) == f"Within(20 x 20, {matrix.nnz} pairs)"
    wanted = np.where(matrix.toarray() > 0, expected("hamming", x, x), 0)
    assert_array_equal(matrix.toarray(), wanted)


def test_the_benchmark_runs(tmp_path, capsys):
    pytest.importorskip("scipy")
    from bench import bits

    out = tmp_path / "raw.json"
    assert bits.main(["cpu", "--quick", "--out", str(out)]) == 0
    assert "SciPy" in capsys.readouterr().out
    result = json.loads(out.read_text())
    assert all(line["checked"] for line in result["lines"])
    assert "SciPy" in bits.table(result, "raw.json")


def test_what_is_refused(monkeypatch):
    a, x = pack(rows(5, 20)), rows(5, 20)
    refused = [
        (lambda: nb.cdist(a, a), "metric='euclidean': A.unpack()"),
        (lambda: nb.cdist(a, a, "jaccard", w=np.ones(20)), "got weights"),
        (lambda: nb.cdist(a, a, nb.Metric("own", "a * b")), "metric='own'"),
        (lambda: nb.cdist(x * 1.0, x, "intersection"), "of rows of bits"),
        (lambda: nb.cdist(a, x[:, 1:], "dice"), "19"),
        (lambda: nb.knn(a, a, 6, "dice"), "from 1 to the 5 rows"),
        (lambda: nb.knn(a, k=5, metric="dice"), "from 1 to the 4 other rows"),
        (lambda: nb.within(a, radius="near", metric="dice"), "radius is a number"),
        (lambda: nb.cdist(a, a, "dice", out=np.empty((5, 5), "f4")), "out has"),
        (lambda: nb.cdist(sm.BitMatrix(np.zeros((2, 3, 4), np.uint8)), a, "dice"), "X"),
    ]
    for call, message in refused:
        with pytest.raises((ValueError, TypeError)) as error:
            call()
        assert message in str(error.value)
    with pytest.raises(TypeError, match="k, how many"):
        nb.knn(a)
    monkeypatch.setattr(arrays, "_UNASKED", 0)
    monkeypatch.setattr("semiring_mm.cpu.engine.free_memory", lambda: 150)
    with pytest.raises(MemoryError, match=r"5 × 5 distances needs .* free: keep .* within\(\)"):
        nb.cdist(a, a, "dice")
