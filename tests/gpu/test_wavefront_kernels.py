"""The kernel of alignments on the host, against the CPU engine; see tests/gpu/test_kernels.py."""

import numpy as np
import pytest
from host_device import HostDevice
from numpy.testing import assert_array_equal

from semiring_mm.cpu import alignment as cpu
from semiring_mm.engine import AlignmentRule, Ragged
from semiring_mm.gpu import device, wavefront
from semiring_mm.gpu.launch import launch

pytestmark = pytest.mark.usefixtures("gxx")
HOST = HostDevice()
RNG = np.random.default_rng(7)
#: Of pairs: within a strip of rows, of many strips, more columns than rows, empty.
LENGTHS = [(5, 9), (70, 40), (33, 130), (150, 97), (0, 4), (3, 0), (0, 0), (600, 64), (1, 1)]
TABLE = np.add.outer([1, 2, 3, 1], [0, -1, -2, 1]) - 2.0  # not symmetric

RULES = {
    "dtw": AlignmentRule("f4", "absolute", warp=True),
    "dtw of features": AlignmentRule("f8", "squared", warp=True),
    "edits": AlignmentRule("f4", "equal"),
    "global, table": AlignmentRule("f8", "table"),
    "global, affine": AlignmentRule("f8", "equal", affine=True),
    "local": AlignmentRule("f8", "equal", local=True),
    "x in y": AlignmentRule("f4", "equal", ends=12),
    "overlap, affine": AlignmentRule("f8", "table", affine=True, ends=15),
    "an end": AlignmentRule("f8", "equal", ends=2),
    "starts": AlignmentRule("f8", "equal", affine=True, ends=5),
    "local, affine": AlignmentRule("f8", "table", affine=True, local=True),
}
GAPS = {False: [0.0, 1.0, -1.0, 1.0], True: [2.0, 0.5, -3.0, 1.0]}


@pytest.fixture(autouse=True)
def _host(monkeypatch):
    monkeypatch.setattr(device, "current", lambda: HOST)


def sequences(rule, lengths, features=1):
    for n in np.transpose(lengths).sum(1):
        if rule.warp:
            yield RNG.integers(-9, 9, (n, features)).astype(rule.dtype)
        else:
            yield RNG.integers(0, 4, n).astype("i4")


def both(rule, lengths, band, gaps, features=1, *, keep=False, operands=None):
    x, y = (
        Ragged(s, np.cumsum(n) - n, n, int(max(n)))
        for s, n in zip(operands or sequences(rule, lengths, features),
                        np.array(lengths, np.int64).T.copy(), strict=True)
    )  # fmt: skip
    table = TABLE.astype(rule.dtype) if rule.cost == "table" else None
    return [verbs.align(rule, x, y, band, gaps, table, keep=keep) for verbs in (wavefront, cpu)]


@pytest.mark.parametrize(("warps", "enough"), [(1, 1), (3, 16), (1, 16)])
@pytest.mark.parametrize("name", RULES)
def test_costs(name, warps, enough, monkeypatch):
    """Of all rules, with and without a band: the CPU engine's to the last bit. By one warp that has
    all strips, by warps that follow each other, and by blocks that do."""
    monkeypatch.setattr(wavefront, "_MOST_WARPS", warps)
    monkeypatch.setattr(wavefront, "_ENOUGH", enough)  # of 4 multiprocessors, for 9 pairs
    monkeypatch.setattr(wavefront, "_SHARED", 2)
    rule, features = RULES[name], 3 if name == "dtw of features" else 1
    for band in (None, 0, 7, 40):
        (found, _), (expected, _) = both(rule, LENGTHS, band, GAPS[rule.affine], features)
        near = abs(np.subtract(*np.transpose(LENGTHS))) <= (np.inf if band is None else band)
        near |= rule.ends > 0
        assert_array_equal(found[near], expected[near])
        assert rule.local or np.isinf(found[~near]).all()


INTEGERS = {False: [0.0, 1.0, -2.0, 1.0], True: [3.0, 1.0, -3.0, 2.0]}


@pytest.mark.parametrize("rows", [1, 3, 16])
@pytest.mark.parametrize("name", [k for k, rule in RULES.items() if not rule.warp | rule.ends])
def test_couples(name, rows, monkeypatch):
    """Two pairs at a time, of other lengths, one of them alone: of costs in 16 bits."""
    for place, value in (("_MANY", 0), ("_WORK", 0), ("_ROWS", rows), ("_ENOUGH", 16)):
        monkeypatch.setattr(wavefront, place, value)
    sources = []
    monkeypatch.setattr(
        wavefront, "launch", lambda text, *args: (sources.append(text), launch(text, *args))
    )
    rule = RULES[name]._replace(dtype="f4")
    for lengths in (LENGTHS, [(100, 90)] * 4):
        (found, _), (expected, _) = both(rule, lengths, None, INTEGERS[rule.affine])
        assert_array_equal(found, expected)
    assert ["sr::Couple" in text for text in sources] == [True, True]


@pytest.mark.parametrize("most", [32, 64])
def test_short_edit_distances(most, monkeypatch):
    """A thread for each pair, by bits; whichever of the two has the shorter sequences."""
    monkeypatch.setattr(wavefront, "_MANY_SHORT", 0)
    lengths = [(*RNG.integers(0, (most + 1, 90)),) for _ in range(300)]
    lengths += [(most, 90), (most, 3), (most - 1, most), (0, 0), (0, 5), (5, 0)]
    for order in (1, -1):
        both_ways = [pair[::order] for pair in lengths]
        (found, _), (expected, _) = both(RULES["edits"], both_ways, None, [0.0, 1.0, 0.0, 1.0])
        assert_array_equal(found, expected)
    assert "sr::Edits" in HOST.launched[-1]
    both(RULES["edits"], [(65, 70)] * 9, None, [0.0, 1.0, 0.0, 1.0])
    assert "sr::Edits" not in HOST.launched[-1]


def test_costs_of_more_than_16_bits(monkeypatch):
    """Are computed in 32 bits, as are those of codes that are no letters."""
    monkeypatch.setattr(wavefront, "_MANY", 0)
    monkeypatch.setattr(wavefront, "_WORK", 0)
    rule = AlignmentRule("f4", "equal", local=True)
    for size, gaps in ((1, [0, 1, -300, 1]), (1, [0, 1, -0.5, 1]), (1 << 13, [0, 1, -2, 1])):
        x, y = (size * RNG.integers(0, 9, n, "i4") for n in (190, 170))
        (found, _), (expected, _) = both(rule, [(90, 80), (100, 90)], None, gaps, operands=(x, y))
        assert_array_equal(found, expected)
        assert "sr::Couple" not in HOST.launched[-1]


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("gaps", [[0, 1, -264, 5], [700, 60, -20, 90], [0, 119, 0, 240]])
def test_costs_near_16_bits(local, gaps, monkeypatch):
    """All equal, and all different, so that costs are as far from 0 as they come."""
    monkeypatch.setattr(wavefront, "_MANY", 0)
    monkeypatch.setattr(wavefront, "_WORK", 0)
    rule = AlignmentRule("f4", "equal", affine=gaps[0] > 0, local=local)
    for other in (1, 2):
        x, y = np.ones(180, "i4"), np.full(160, other, "i4")
        (found, _), (expected, _) = both(rule, [(90, 80)] * 2, None, gaps, operands=(x, y))
        assert_array_equal(found, expected)
        assert "sr::Couple" in HOST.launched[-1]


@pytest.mark.parametrize("most", [8, 1])
def test_paths(most, monkeypatch):
    """Through some tiles of moves, of one block and of blocks that follow each other."""
    monkeypatch.setattr(wavefront, "_MOST_WARPS", most)
    monkeypatch.setattr(wavefront, "_SHARED", 1)
    for rule in (RULES["dtw"], RULES["dtw of features"]):
        for lengths in ([(70, 300)], [(600, 20)], [(1, 1)], [(0, 0)]):
            for band in (None, 600, 240)[: 3 if lengths[0][0] < 300 else 2]:
                found, expected = both(rule, lengths, band, [0.0] * 4, keep=True)
                for one, other in zip(found, expected, strict=True):
                    assert_array_equal(one, other)


@pytest.mark.parametrize(("features", "dtype"), [(0, "f4"), (2, "f4"), (40, "f8"), (51, "f4")])
@pytest.mark.parametrize("most", [1, 1 << 13, 1 << 29])
def test_costs_of_features(features, dtype, most, monkeypatch):
    """Of strips of a pair at a time, of some pairs, and of all of them."""
    monkeypatch.setattr(wavefront, "_MOST", most)
    monkeypatch.setattr(wavefront, "_MOST_WARPS", 1)
    monkeypatch.setattr(wavefront, "_SHARED", 2)
    rule = AlignmentRule(dtype, "squared", warp=True)
    for band in (None, 7, 40):
        (found, _), (expected, _) = both(rule, LENGTHS, band, [0.0] * 4, features)
        near = abs(np.subtract(*np.transpose(LENGTHS))) <= (np.inf if band is None else band)
        assert_array_equal(found[near], expected[near])
        assert np.isinf(found[~near]).all()
    for lengths in ((600, 20), (70, 300), (0, 0)):
        found, expected = both(rule, [lengths], None, [0.0] * 4, features, keep=True)
        for one, other in zip(found, expected, strict=True):
            assert_array_equal(one, other)


def test_more_pairs_than_blocks(monkeypatch):
    """A block's line is the next pair's when it is done."""
    monkeypatch.setattr(wavefront, "_BLOCKS", 1)
    (found, _), (expected, _) = both(RULES["edits"], [(20, 30), (40, 7)] * 9, None, GAPS[False])
    assert_array_equal(found, expected)


def test_what_is_no_number():
    x, y = (RNG.normal(size=(n, 1)).astype("f4") for n in (80, 50))
    x[13], y[20], y[44] = np.inf, -np.inf, np.nan
    for end in (40, 50):  # without and with the NaN
        found, expected = both(
            RULES["dtw"], [(80, end)], None, [0.0] * 4, operands=(x, y[:end].copy())
        )
        assert_array_equal(found[0], expected[0])


def test_what_is_too_long():
    none = np.zeros(0, np.int32), np.array([0])
    x, y = Ragged(*none, np.array([1 << 31]), 1 << 31), Ragged(*none, np.array([1]), 1)
    with pytest.raises(ValueError, match="more than 1073741824 entries are not aligned"):
        wavefront.align(RULES["edits"], x, y, None, GAPS[False], None, keep=False)
