"""Alignments on a device, which is the host's stand-in, and a CUDA device if one is there."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from reference import naive

from semiring_mm import alignment
from semiring_mm.gpu import wavefront

RNG = np.random.default_rng(5)
LENGTHS = [(70, 40), (9, 100), (0, 5), (33, 33)]


def both(there, pairs):
    return [[there.put(pair[k]) for pair in pairs] for k in (0, 1)]


def test_stacks(there):
    x, y = (RNG.integers(-9, 9, (4, n, 1)).astype("f4") for n in (50, 40))
    counts = [50, 9, 0, 33], [40, 40, 7, 1]
    x[1, 9:] = np.nan
    found = alignment.dtw(there.put(x), there.put(y), lengths=(there.put(counts[0]), counts[1]))
    expected = [naive.dtw(p[:n], q[:m]) for p, q, n, m in zip(x, y, *counts, strict=True)]
    assert_array_equal(there.get(found), expected)
    x, y = RNG.integers(0, 4, (2, 5, 30))
    found = alignment.edit_distance(there.put(x), there.put(y))
    assert_array_equal(there.get(found), alignment.edit_distance(x.tolist(), y.tolist()))
    found = alignment.edit_distance([*map(there.put, x)], [*map(there.put, y)])
    assert_array_equal(there.get(found), alignment.edit_distance(x.tolist(), y.tolist()))


def test_long_pairs(there):
    """Few of them are shared by several blocks."""
    pairs = [[RNG.normal(size=n).astype("f4") for n in pair] for pair in [(3000, 70), (2100, 33)]]
    lists = [*map(list, zip(*pairs, strict=True))]
    found = there.get(alignment.dtw(*both(there, pairs)))
    assert_array_equal(found, alignment.dtw(*lists))
    x, y = pairs[0]
    path = alignment.dtw(there.put(x), there.put(y), return_path=True)[1]
    assert_array_equal(path, alignment.dtw(x, y, return_path=True)[1])
    codes = [[RNG.integers(0, 3, len(s)) for s in pair] for pair in pairs]
    found = there.get(alignment.smith_waterman(*both(there, codes)))
    assert_array_equal(found, alignment.smith_waterman(*map(list, zip(*codes, strict=True))))


def test_progress_is_told_at_both_ends(there):
    pairs = [[RNG.integers(0, 4, n) for n in pair] for pair in LENGTHS]
    seen = []
    alignment.smith_waterman(*both(there, pairs), progress=lambda *given: seen.append(given))
    cells = sum(n * m for n, m in LENGTHS)
    assert seen == [(0, cells), (cells, cells)]


@pytest.mark.usefixtures("moves")
def test_sequences_of_the_host_move():
    words = ["kitten", "", "flaw"], ["sitting", "a", "lawn"]
    assert_array_equal(alignment.edit_distance(*words, device="cuda"), [3, 1, 2])
    assert alignment.edit_distance("night", "nacht", device="cuda") == 2
    assert alignment.dtw([0, 1, 2, 2, 1], [0, 0, 1, 2, 1], device="cuda") == 0


BLOSUM = RNG.integers(-4, 5, (20, 20))
SCORES = [
    ("smith_waterman", {}),
    ("smith_waterman", {"matrix": BLOSUM + 9 * np.eye(20, dtype=int), "gap_open": -7}),
    ("needleman_wunsch", {"gap_open": -3, "mismatch": -4}),
    ("needleman_wunsch", {"matrix": BLOSUM, "gap": -2}),
    ("needleman_wunsch", {"gap": -0.25, "free_ends": "y"}),
    ("edit_distance", {}),
]


@pytest.mark.parametrize(("verb", "options"), SCORES)
def test_many_pairs(there, verb, options, monkeypatch):
    """Two at a time in 16 bits, short ones by bits, and in 32 bits: all as on the host."""
    align = getattr(alignment, verb)
    lengths = RNG.integers(0, 90, (2, 45))
    x, y = RNG.integers(0, 20, (2, 45, 90))
    y[:, 9:] = x[:, :-9]  # alike, at another place
    for given in (None, tuple(lengths)):
        expected = align(x, y, lengths=given, **options)
        for many in (0, 1 << 20):
            for name in ("_MANY", "_WORK", "_MANY_SHORT"):
                monkeypatch.setattr(wavefront, name, many)
            found = align(there.put(x), there.put(y), lengths=given, **options)
            assert_array_equal(there.get(found), expected)


def test_many_short_pairs(there, monkeypatch):
    monkeypatch.setattr(wavefront, "_MANY_SHORT", 0)
    x, y = RNG.integers(0, 4, (45, 50)), RNG.integers(0, 4, (45, 90))
    found = alignment.edit_distance(there.put(x), there.put(y))
    assert_array_equal(there.get(found), alignment.edit_distance(x, y))


def test_pairs_within_a_distance(there):
    """Candidates are rows of bits, whose distances are those of pairs."""
    x = RNG.integers(0, 5, (600, 14)).astype("i4")
    x[::3, :12] = x[1::3, :12]
    lengths = RNG.integers(10, 15, 600)
    for cutoff in (0, 1, 2):
        found = alignment.within(there.put(x), cutoff=cutoff, lengths=(lengths, lengths))
        expected = alignment.within(x, cutoff=cutoff, lengths=(lengths, lengths))
        for name in ("indptr", "indices", "distance"):
            assert_array_equal(there.get(getattr(found, name)), getattr(expected, name))
    some = there.put(x[:20])
    for metric in ("edit_distance", "smith_waterman", "needleman_wunsch"):
        found = alignment.cdist(some, some, metric)
        assert_array_equal(there.get(found), alignment.cdist(x[:20], metric=metric))
    y = there.put(x[:50])
    found = alignment.within(there.put(x), y, cutoff=1)
    expected = alignment.within(x, x[:50], cutoff=1)
    assert_array_equal(there.get(found.indices), expected.indices)
