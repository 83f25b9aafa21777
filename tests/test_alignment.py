"""Alignments against plain loops over the whole table, and against dtaidistance."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from optional import Optional

from semiring_mm import alignment

theirs = Optional("dtaidistance.dtw")
inf = np.inf
RNG = np.random.default_rng(23)
LENGTHS = [(1, 1), (1, 7), (5, 5), (40, 33), (17, 64), (0, 3), (0, 0)]


def warped(x, y, cost, band=None):
    """The table of dynamic time warping, cell by cell."""
    x, y = (v[:, np.newaxis] if v.ndim == 1 else v for v in (x, y))
    d = np.full((len(x) + 1, len(y) + 1), inf)
    d[0, 0] = 0
    for i in range(1, len(x) + 1):
        for j in range(1, len(y) + 1):
            if band is None or abs(i - j) <= band:
                gap = np.abs(x[i - 1] - y[j - 1])
                own = gap.sum() if cost == "absolute" else (gap**2).sum()
                d[i, j] = own + np.minimum(np.minimum(d[i - 1, j], d[i, j - 1]), d[i - 1, j - 1])
    return d[-1, -1]


def aligned(x, y, score, gap, gap_open=0.0, local=False, band=None):
    """The best score: every length of every gap is tried, cell by cell."""
    n, m = len(x), len(y)
    d = np.full((n + 1, m + 1), -inf)
    for i in range(n + 1):
        for j in range(m + 1):
            if band is not None and abs(i - j) > band:
                continue
            ways = [0.0] if local or i == j == 0 else []
            if i and j:
                ways.append(d[i - 1, j - 1] + score(x[i - 1], y[j - 1]))
            ways += [d[i - k, j] + gap_open + k * gap for k in range(1, i + 1)
                     if band is None or abs(i - k - j) <= band]  # fmt: skip
            ways += [d[i, j - k] + gap_open + k * gap for k in range(1, j + 1)
                     if band is None or abs(j - k - i) <= band]  # fmt: skip
            d[i, j] = max(ways)
    return d.max() if local else d[-1, -1]


@pytest.mark.parametrize("band", [None, 0, 1, 3, 9])
@pytest.mark.parametrize(("cost", "features"), [("absolute", 0), ("squared", 0), ("squared", 3)])
def test_dtw(cost, features, band):
    """In a list, each pair alone, and in float32, of whole numbers: exactly."""
    shapes = [[(n, features) if features else (n,) for n in pair] for pair in LENGTHS[:5]]
    xs, ys = ([RNG.integers(-9, 9, s[k]) * 1.0 for s in shapes] for k in (0, 1))
    found = alignment.dtw(xs, ys, cost=cost, band=band)
    expected = [warped(x, y, cost, band) for x, y in zip(xs, ys, strict=True)]
    assert_array_equal(found, expected)
    single = alignment.dtw(xs[3].astype("f4"), ys[3].astype("f4"), cost=cost, band=band)
    assert single == expected[3]
    assert single.dtype == np.float32
    if np.isfinite(expected[3]):
        distance, path = alignment.dtw(xs[3], ys[3], cost=cost, band=band, return_path=True)
        gaps = np.abs(xs[3][path[:, 0]] - ys[3][path[:, 1]])
        assert (gaps if cost == "absolute" else gaps**2).sum() == distance == expected[3]
        assert_array_equal(path[[0, -1]], [[0, 0], [39, 32]])
        steps = np.diff(path, axis=0)
        assert set(map(tuple, steps.tolist())) <= {(0, 1), (1, 0), (1, 1)}
        assert band is None or (abs(path[:, 0] - path[:, 1]) <= band).all()


def test_rules_of_dtw():
    assert alignment.dtw([], []) == 0
    assert alignment.dtw([], []).dtype == "f8"
    assert alignment.dtw([], [1.0]) == inf
    distance, path = alignment.dtw([1, 2, 3], [1], band=1, return_path=True)
    assert distance == inf
    assert path.shape == (0, 2)
    assert np.isnan(alignment.dtw([1, np.nan, 2], [1, 2, 3]))
    assert alignment.dtw([inf, 1], [1, 1]) == inf
    assert alignment.dtw([], [], return_path=True)[1].shape == (0, 2)
    assert alignment.dtw(np.ones(5, int), np.ones(6, bool)) == 0
    many = [RNG.normal(size=300) for _ in range(9)]  # some work for each thread
    alone = [alignment.dtw(x, y) for x, y in zip(many, many[::-1], strict=True)]
    assert_array_equal(alignment.dtw(many, many[::-1]), alone)


def test_dtaidistance():
    x, y = RNG.normal(size=150), RNG.normal(size=170)
    assert_allclose(np.sqrt(alignment.dtw(x, y, cost="squared")), theirs.distance(x, y))
    found = np.sqrt(alignment.dtw(x, y[:150], cost="squared", band=10))
    assert_allclose(found, theirs.distance(x, y[:150], window=11))


@pytest.mark.parametrize("band", [None, 2, 8])
def test_scores(band):
    pairs = [[RNG.integers(0, 4, n) for n in pair] for pair in LENGTHS]
    xs, ys = zip(*pairs, strict=True)
    table = np.add.outer([1, 2, 3, 1], [0, -1, -2, 1]) - 2.0  # not symmetric
    rules = [
        ({}, lambda p, q: 1.0 if p == q else -1.0, -1.0, 0.0),
        ({"match": 3, "mismatch": -2, "gap": -1, "gap_open": -4},
         lambda p, q: 3.0 if p == q else -2.0, -1.0, -4.0),
        ({"matrix": table, "gap": -2}, lambda p, q: table[p, q], -2.0, 0.0),
    ]  # fmt: skip
    for options, score, gap, opening in rules:
        for local, call in ((False, alignment.needleman_wunsch), (True, alignment.smith_waterman)):
            found = call(list(xs), list(ys), band=band, **options)
            expected = [aligned(x, y, score, gap, opening, local, band) for x, y in pairs]
            assert_array_equal(found, expected)
    distances = alignment.edit_distance(list(xs), list(ys), band=band)
    expected = [-aligned(x, y, lambda p, q: 0.0 if p == q else -1.0, -1.0, band=band)
                for x, y in pairs]  # fmt: skip
    assert_array_equal(distances, np.where(np.isinf(expected), -1, expected))


def test_strings():
    assert alignment.edit_distance("", "") == 0
    assert alignment.edit_distance("Grüße", "Gruße") == 1
    assert alignment.edit_distance(b"abc", b"") == 3
    assert type(alignment.edit_distance("a", "b")) is int
    assert alignment.edit_distance([], []) == 0
    assert alignment.edit_distance([""], [""]).tolist() == [0]
    assert alignment.smith_waterman("xxACGTyy", "ACGT") == 4


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: alignment.dtw([1, 2], [[1, 2], [3]]), ValueError, "one of each came"),
        (lambda: alignment.dtw([[1], [2]], [[1, 2]]), ValueError, "got 2 and 1"),
        (lambda: alignment.dtw([1], [2], cost="cubed"), ValueError, "absolute"),
        (lambda: alignment.dtw([1], [2], band=-1), ValueError, "at least 0"),
        (lambda: alignment.dtw([1], [2], band=1.5), TypeError, "whole number"),
        (lambda: alignment.dtw(np.ones((3, 2)), np.ones((3, 1))), ValueError, r"features, got \[1"),
        (lambda: alignment.dtw(["a"], ["b"]), TypeError, "real numbers"),
        (lambda: alignment.dtw([[1]], [[2]], return_path=True), ValueError, "for two series"),
        (lambda: alignment.edit_distance([1.5], [2]), TypeError, "whole numbers"),
        (lambda: alignment.edit_distance("ab", ["ab"]), ValueError, "one of each"),
        (lambda: alignment.needleman_wunsch("a", "b", gap=1), ValueError, "at most 0"),
        (lambda: alignment.needleman_wunsch("a", "b", match=inf), ValueError, "finite"),
        (lambda: alignment.smith_waterman("a", "b", gap=None), ValueError, "gap is a finite"),
        (lambda: alignment.smith_waterman([3], [0], matrix=np.eye(3)), ValueError, "0 to 2"),
        (lambda: alignment.smith_waterman([0], [0], matrix=[[1, 2]]), ValueError, "square"),
    ],
)
def test_what_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
