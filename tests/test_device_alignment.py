"""Alignments on a device, which is the host's stand-in, and a CUDA device if one is there."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from test_alignment import aligned, warped
from test_device import moves, there  # noqa: F401

from semiring_mm import alignment, arrays

RNG = np.random.default_rng(5)
LENGTHS = [(70, 40), (9, 100), (0, 5), (33, 33)]


@pytest.fixture
def _looked_at(there, monkeypatch):  # noqa: F811
    monkeypatch.setattr(alignment, "where", arrays.where)  # which the host's stand-in replaces


def both(there, pairs):  # noqa: F811
    return [[there.put(pair[k]) for pair in pairs] for k in (0, 1)]


@pytest.mark.usefixtures("_looked_at")
@pytest.mark.parametrize("band", [None, 95])
@pytest.mark.parametrize("dtype", ["f4", "i8"])
def test_series(dtype, band, there):  # noqa: F811
    pairs = [[RNG.integers(-9, 9, (n, 2)).astype(dtype) for n in pair] for pair in LENGTHS]
    found = there.get(alignment.dtw(*both(there, pairs), cost="squared", band=band))
    assert_array_equal(found, [warped(*pair, "squared", band) for pair in pairs])
    assert found.dtype == ("f4" if dtype == "f4" else "f8")
    x, y = pairs[0]
    distance, path = alignment.dtw(there.put(x), there.put(y), return_path=True, band=band)
    assert abs(x[path[:, 0]] - y[path[:, 1]]).sum() == there.get(distance)
    assert_array_equal(path[[0, -1]], [[0, 0], [69, 39]])
    assert {*map(tuple, np.diff(path, axis=0).tolist())} <= {(0, 1), (1, 0), (1, 1)}


@pytest.mark.usefixtures("_looked_at")
def test_codes(there):  # noqa: F811
    pairs = [[RNG.integers(0, 4, n) for n in pair] for pair in LENGTHS]
    found = there.get(alignment.edit_distance(*both(there, pairs)))
    assert_array_equal(found, [-aligned(x, y, lambda p, q: -1.0 * (p != q), -1) for x, y in pairs])
    table = RNG.integers(-3, 4, (4, 4)) * 1.0
    ways = [
        ({"match": 3, "mismatch": -2, "gap_open": -4}, lambda p, q: 3 if p == q else -2, -4, None),
        ({"matrix": table, "band": 95}, lambda p, q: table[p, q], 0, 95),
    ]  # fmt: skip
    for options, score, opening, band in ways:
        for local, verb in ((False, alignment.needleman_wunsch), (True, alignment.smith_waterman)):
            found = there.get(verb(*both(there, pairs), **options))
            expected = [aligned(x, y, score, -1, opening, local, band) for x, y in pairs]
            assert_array_equal(found, expected)
    with pytest.raises(ValueError, match="entries are from 0 to 2"):
        alignment.needleman_wunsch(*both(there, pairs), matrix=np.eye(3))


@pytest.mark.usefixtures("moves")
def test_sequences_of_the_host_move():
    words = ["kitten", "", "flaw"], ["sitting", "a", "lawn"]
    assert_array_equal(alignment.edit_distance(*words, device="cuda"), [3, 1, 2])
    assert alignment.edit_distance("night", "nacht", device="cuda") == 2
    assert alignment.dtw([0, 1, 2, 2, 1], [0, 0, 1, 2, 1], device="cuda") == 0
