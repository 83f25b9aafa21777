"""Alignments with their columns: each CIGAR string is one of the sequences, and has the score."""

import itertools
import re

import numpy as np
import pytest
from plain_kernels import both
from reference import naive

from semiring_mm import alignment, arrays, traceback
from semiring_mm import traceback_kernels as kernels

RNG = np.random.default_rng(32)
VERBS = {
    "edit_distance": alignment.edit_distance,
    "needleman_wunsch": alignment.needleman_wunsch,
    "smith_waterman": alignment.smith_waterman,
}
SCORES = [
    {}, {"gap_open": -2}, {"match": 2, "mismatch": -3, "gap": -0.5, "gap_open": -1.5},
    {"gap": 0}, {"mismatch": -9, "gap_open": -1}, {"match": 0.1, "mismatch": -0.3, "gap": -0.7},
    {"band": 2}, {"band": 5, "gap_open": -3},
    {"matrix": np.array([[3.0, -1, 0], [-1, 2, -2], [1, -2, 1]]), "gap": -2},
    {"matrix": np.array([[3.0, -1, 0], [-1, 2, -2], [1, -2, 1]]), "gap_open": -4},
]  # fmt: skip
ENDS = ["x", "y", ("x", "y"), "x_start", "y_end", ["x_end", "y_start"], {"x_start", "x_end", "y"}]
CASES = (
    [("edit_distance", {}), ("edit_distance", {"band": 2})]
    + [(name, options) for name in ("needleman_wunsch", "smith_waterman") for options in SCORES]
    + [
        ("needleman_wunsch", SCORES[i % len(SCORES)] | {"free_ends": ends})
        for i, ends in enumerate(ENDS * 3)
    ]
    + [("edit_distance", {"free_ends": "y"}), ("edit_distance", {"free_ends": "y_end", "band": 3})]
)


def rescored(
    found, x, y, *, match=1, mismatch=-1, gap=-1, gap_open=0, matrix=None, band=None, free_ends=()
):  # fmt: skip
    """The score of a CIGAR string, which is checked against the sequences."""
    runs = [(int(n), kind) for n, kind in re.findall(r"(\d+)([=XID])", found.cigar)]
    assert "".join(f"{n}{kind}" for n, kind in runs) == found.cigar
    assert all(n > 0 for n, _ in runs)
    assert all(a[1] != b[1] for a, b in itertools.pairwise(runs))
    i, j = found.start
    total, first, second = 0.0, [], []
    for count, kind in runs:
        total += gap_open * (kind in "ID")
        for _ in range(count):
            one, other = None, None
            if kind != "D":
                one, i = x[i], i + 1
            if kind != "I":
                other, j = y[j], j + 1
            if kind in "=X":
                assert (one == other) == (kind == "=")
                own = match if kind == "=" else mismatch
                total += own if matrix is None else matrix[one, other]
            else:
                total += gap
            assert band is None or abs(i - j) <= band
            first.append(one)
            second.append(other)
    assert (i, j) == found.end
    assert found.aligned == (first, second)
    return total


@pytest.mark.parametrize(("name", "options"), CASES)
def test_columns_have_the_score(name, options):
    """Of sequences of few letters, where many alignments are equally good."""
    verb, local = VERBS[name], name == "smith_waterman"
    own = {"match": 0} | options if name == "edit_distance" else options
    for _ in range(200):
        x, y = (RNG.integers(0, 3, RNG.integers(0, 12)) for _ in "xy")
        found = verb(x, y, return_path=True, **options)
        score = verb(x, y, **options)
        assert found.score == pytest.approx(score, abs=1e-12)
        assert type(found.score) is type(score) or name != "edit_distance"
        expected = naive.aligned(x, y, local=local, **own)
        if np.isinf(expected):
            assert found == alignment.Alignment(score, "", ([], []), (0, 0), (0, 0))
            continue
        total = rescored(found, x, y, **own)
        assert alignment.cdist([x], [y], name, **options) == score
        assert total == pytest.approx(expected, abs=1e-12)
        assert total == pytest.approx(-score if name == "edit_distance" else score, abs=1e-12)
        if not local:
            free = alignment._ends("", options.get("free_ends"))
            gone = np.transpose([found.start, np.subtract([len(x), len(y)], found.end)]).ravel()
            assert all(free >> i & 1 for i in np.flatnonzero(gone))
            assert not gone.reshape(2, 2).all(0).any()  # ends of one of both


def test_parasail():
    parasail = pytest.importorskip("parasail")
    blosum, letters = parasail.Matrix("blosum62"), "ARNDCQEGHILKMFPSTWYV"
    for _ in range(20):
        x, y = ("".join(RNG.choice([*letters], n)) for n in RNG.integers(1, 60, 2))
        for ends, name in (
            ("x", "sg_qx"), ("y", "sg_dx"), ("x_start", "sg_qb"), ("y_end", "sg_de"),
            (["x_end", "y_start"], "sg_qe_db"), (["x", "y"], "sg"), ((), "nw"),
        ):  # fmt: skip
            expected = getattr(parasail, f"{name}_striped_16")(x, y, 11, 1, blosum).score
            options = {"matrix": "BLOSUM62", "gap": -1, "gap_open": -10, "free_ends": ends}
            if name in ("sg", "sg_qe_db"):  # parasail always aligns something
                expected = max(0, expected)
            assert alignment.needleman_wunsch(x, y, **options) == expected


def test_pairs_are_as_alone():
    """Lists and stacks give a list."""
    x = [RNG.integers(0, 3, n) for n in (0, 1, 5, 200)]
    y = [RNG.integers(0, 3, n) for n in (2, 0, 5, 190)]
    told = []
    for verb in VERBS.values():
        found = verb(x, y, return_path=True, progress=lambda *given: told.append(given))
        assert found == [verb(a, b, return_path=True) for a, b in zip(x, y, strict=True)]
        assert told[-1] == (25 + 200 * 190,) * 2
    stacks = RNG.integers(0, 3, (2, 4, 9))
    lengths = [9, 3, 0, 5], [1, 2, 3, 9]
    expected = [
        alignment.edit_distance(a[:n], b[:m], return_path=True)
        for a, b, n, m in zip(*stacks, *lengths, strict=True)
    ]
    assert alignment.edit_distance(*stacks, lengths=lengths, return_path=True) == expected
    assert alignment.edit_distance([], [[]][:0], return_path=True).cigar == ""


@pytest.mark.parametrize(
    ("x", "y", "cigar", "aligned"),
    [
        ("", "", "", ("", "")),
        ("a", "", "1I", ("a", "-")),
        ("", "ab", "2D", ("--", "ab")),
        ("a", "b", "1X", ("a", "b")),
        ("Grüße😀", "Gruße", "2=1X2=1I", ("Grüße😀", "Gruße-")),
        ("\udcff", "\udcff", "1=", ("\udcff", "\udcff")),
        (b"ACGT", b"AGT", "1=1I2=", (b"ACGT", b"A-GT")),
        (bytearray(b"A"), "", "1I", (b"A", "-")),
        ([7, 8], [8], "1I1=", ([7, 8], [None, 8])),
        ("ab", [98], "1I1=", ("ab", [None, 98])),
    ],
)
def test_kinds_of_sequences(x, y, cigar, aligned):
    found = alignment.edit_distance(x, y, return_path=True)
    assert (found.cigar, found.aligned) == (cigar, aligned)
    (listed,) = alignment.edit_distance([x], [y], return_path=True)
    assert (listed.cigar, listed.aligned) == (cigar, aligned)


def test_text():
    found = alignment.needleman_wunsch(b"GATTACA", "GCTACA", return_path=True)
    assert str(found) == "GATTACA\n| .||||\nG-CTACA"
    assert str(alignment.edit_distance([1], [1], return_path=True)).startswith("Alignment(score=0")


def test_pieces_and_plain_python(monkeypatch):
    """The rows of a table in several calls; the same kernels in Python."""
    x, y = (RNG.integers(0, 4, n) for n in (70, 65))
    cases = [(v, o) for v in VERBS.values() for o in ({}, {"band": 7})]
    cases += [(alignment.edit_distance, {"free_ends": ends}) for ends in ENDS]
    cases += [(alignment.needleman_wunsch, {"gap_open": -2}), (alignment.smith_waterman, SCORES[2])]
    expected = [verb(x, y, return_path=True, **options) for verb, options in cases]
    monkeypatch.setattr(traceback, "_PIECE", 200)
    assert [verb(x, y, return_path=True, **options) for verb, options in cases] == expected
    compiled = []

    def twice(kernel):
        compiled.append(kernel)

        def run(**given):
            if kernel is kernels.walk:
                return kernel.plain(**given)
            made = both(kernel, **given)
            for name, v in made.items():
                if isinstance(v, np.ndarray):
                    given[name][...] = v
            return None

        return run

    monkeypatch.setattr(traceback.engines, "compiled", twice)
    assert [verb(x, y, return_path=True, **options) for verb, options in cases] == expected
    assert {*compiled} == {kernels.fill, kernels.walk}


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize("piece", [1, 1 << 24])
def test_rows_that_are_computed_again(name, options, piece, monkeypatch):
    """Where a table would not fit the alignment is the same; one gap goes through blocks."""
    pairs = [
        [RNG.integers(0, 3, n) for n in some] for some in ((90, 90), (150, 60), (1, 9), (0, 3))
    ]
    pairs.append([np.r_[x := RNG.integers(0, 3, 50), [2] * 150, x], np.r_[x, x]])
    expected = [VERBS[name](*pair, return_path=True, **options) for pair in pairs]
    monkeypatch.setattr(traceback, "_TABLE", 0)
    monkeypatch.setattr(traceback, "_PIECE", piece)
    told = []
    for pair, own in zip(pairs, expected, strict=True):
        progress = lambda done, total: told.append(done / total)  # noqa: E731
        assert VERBS[name](*pair, return_path=True, progress=progress, **options) == own
        assert told[-1] == 1.0 or own.cigar == ""


def test_no_room_for_the_table(monkeypatch):
    cpu = arrays.engines.named("cpu")
    monkeypatch.setattr(cpu, "free_memory", lambda: 2 * 10**6)
    x = np.zeros(3000, int)
    assert alignment.edit_distance(x, x, return_path=True).cigar == "3000="
    monkeypatch.setattr(cpu, "free_memory", lambda: 5 * 10**5)
    monkeypatch.setattr(arrays, "_UNASKED", 10**5)
    with pytest.raises(MemoryError, match=r"return_path for sequences of 3,000 and 3,000.*band="):
        alignment.edit_distance(x, x, return_path=True)
    assert alignment.edit_distance(x, x, return_path=True, band=9).cigar == "3000="
    assert alignment.edit_distance(x, x) == 0
    with pytest.raises(MemoryError, match=r"dtw: the table of return_path for 3,000 points.*leave"):
        alignment.dtw(x, x[:9], return_path=True)


def test_named_matrices_and_what_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="edit_distance: band must be at least 0"):
        alignment.edit_distance("ab", "ab", band=-1, return_path=True)
    alphabet = "AEGHPW"
    scores = RNG.integers(-4, 6, (6, 6)) * 1.0
    monkeypatch.setattr(alignment, "_named", lambda verb, name: (scores, alphabet))
    for x in ("HEAGAWGHEE", [ord(c) for c in "HEAGAWGHEE"]):
        options = {"matrix": "BLOSUM62", "gap": -1, "gap_open": -9}
        found = alignment.needleman_wunsch(x, "PAWHEAE", return_path=True, **options)
        assert found.score == alignment.needleman_wunsch(x, "PAWHEAE", **options)
        assert [c for c in found.aligned[0] if c not in ("-", None)] == list(x)
        assert found.aligned[1].replace("-", "") == "PAWHEAE"
