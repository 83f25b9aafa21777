"""Values that the tests of RapidFuzz, parasail, dtaidistance and tslearn expect, where they apply.

Their other tests are of what is not here: weights of edits, sequences of words or of hashable
objects, penalties and largest steps of warping, soft and limited warping, profiles and files.
"""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from semiring_mm import alignment

HILLS = [0, 0, 1, 2, 1, 0, 1, 0, 0], [0, 1, 2, 0, 0, 0, 0, 0, 0], [1, 2, 0, 0, 0, 0, 0, 1]


def same(found, expected):
    assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        ("", "", 0), ("aaaa", "aaaa", 0), ("aaaa", b"aaaa", 0), (b"aaaa", b"aaaa", 0),
        ([0, -1], [0, -2], 1), ("\xc1\xc4", "ABCD", 4), ("\xc1\xc4", "\xc1\xc4", 0),
        ("0", "101", 2), ("0", "", 1), ("", "0", 1), ("00", "0", 1), ("qabxcd", "abycdf", 3),
        ("Lorem ipsum.", "XYZLorem ABC iPsum", 9), ("aaaa", [ord("a")] * 4, 0),
    ],
)  # fmt: skip
def test_edit_distances(x, y, expected):
    assert alignment.edit_distance(x, y) == expected
    found = alignment.edit_distance(x, y, return_path=True)
    assert found.score == expected
    assert sum(int(n) for n in "".join(c if c.isdigit() else " " for c in found.cigar).split()) == (
        len(found.aligned[0])
    )


@pytest.mark.parametrize(
    ("metric", "x", "y", "options", "expected"),
    [
        ("smith_waterman", "ASDF", "ASDF", {"matrix": "BLOSUM62"}, 20),
        ("smith_waterman", "acgt", "acgt", {}, 4),
        ("smith_waterman", "ACGT", "AcgT", {"match": 2, "mismatch": 1}, 6),
        ("needleman_wunsch", "GATTACA", "GCATGCU", {}, 0),
        ("needleman_wunsch", "GAAAAAAAT", "GAAT", {}, -1),
        ("needleman_wunsch", "GAAAAAAAT", "GAATA", {}, -1),
        ("needleman_wunsch", "AGACTAGTTACC", "CGAGACGTC", {}, 0),
    ],
)
def test_scores(metric, x, y, options, expected):
    if "matrix" in options:
        pytest.importorskip("Bio")
    options = {"gap_open": -9} | options if metric == "smith_waterman" else options
    score = getattr(alignment, metric)
    assert score(x, y, **options) == expected
    assert score(x, y, return_path=True, **options).score == expected


@pytest.mark.parametrize(
    ("x", "y", "options", "expected"),
    [
        (HILLS[0], HILLS[1], {"cost": "squared"}, 2),
        (HILLS[0], HILLS[1], {}, 2),
        ([0, 0, 2, 1, 1, 0, 0.0], [0, 1, 1, 1, 0, 0, 0.0], {"cost": "squared"}, 1),
        ([1, 2, 3], [1.0, 2.0, 2.0, 3.0], {}, 0),
        ([1, 2, 3], [1.0, 2.0, 2.0, 3.0, 4.0], {}, 1),
    ],
)
def test_warping(x, y, options, expected):
    same(alignment.dtw(x, y, **options), expected)
    same(alignment.dtw(np.array(x, "f4"), np.array(y, "f4"), **options), expected)


def test_warping_paths():
    path = alignment.dtw([1, 2, 3], [1.0, 2.0, 2.0, 3.0], return_path=True)[1]
    assert_array_equal(path, [(0, 0), (1, 1), (1, 2), (2, 3)])
    x = [0.0, 0, 1, 2, 1, 0, 1, 0, 0, 0, 0], [0.0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0]
    distance, path = alignment.dtw(*x, cost="squared", return_path=True)
    i, j = path.T
    same(distance, sum((np.array(x[0])[i] - np.array(x[1])[j]) ** 2))
    assert len(path) == 12


def test_warping_of_all_pairs():
    found = alignment.cdist([np.array(s, float) for s in HILLS], metric="dtw", cost="squared")
    same(found[0, 1], 2)
    x, y = [[1, 2, 2, 3], [1.0, 2.0, 3.0, 4.0]], [[1, 2, 3], [2, 3, 4, 5]]
    same(alignment.cdist(x, metric="dtw"), [[0, 1], [1, 0]])
    found = alignment.cdist(x, y, metric="dtw", cost="squared") ** 0.5
    same(found, [[0, 2.44949], [1, 1.414214]])


def test_a_band_of_nothing_leaves_the_diagonal():
    x, y = np.random.default_rng(0).normal(size=(2, 10, 3))
    found = alignment.dtw([x], [y], cost="squared", band=0)
    same(math.sqrt(found[0]), np.linalg.norm(x - y))


def test_what_is_refused():
    with pytest.raises(ValueError, match="features"):
        alignment.dtw([np.ones((5, 3))], [np.ones((5, 2))])
