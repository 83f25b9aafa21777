"""Alignments against plain loops over the whole table, and against dtaidistance."""

import functools
import threading

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from optional import Optional
from plain_kernels import MIN_PLUS, both
from reference import naive

from semiring_mm import alignment, set_num_threads
from semiring_mm.cpu import alignment as cpu
from semiring_mm.cpu.kernels import alignment as kernels
from semiring_mm.progress import Watched

theirs = Optional("dtaidistance.dtw")
inf = np.inf
RNG = np.random.default_rng(23)
LENGTHS = [(1, 1), (1, 7), (5, 5), (40, 33), (17, 64), (0, 3), (0, 0)]


@pytest.mark.parametrize("band", [None, 0, 1, 3, 9])
@pytest.mark.parametrize(("cost", "features"), [("absolute", 0), ("squared", 0), ("squared", 3)])
def test_paths_of_dtw(cost, features, band):
    """Of whole numbers: exactly."""
    x, y = (RNG.integers(-9, 9, (n, features) if features else n) * 1.0 for n in (40, 33))
    expected = naive.dtw(x, y, cost=cost, band=band)
    given = ([x], [y]) if features else (x, y)
    distance, path = alignment.dtw(*given, cost=cost, band=band, return_path=True)
    assert distance == expected
    if np.isfinite(expected):
        gaps = np.abs(x[path[:, 0]] - y[path[:, 1]])
        assert (gaps if cost == "absolute" else gaps**2).sum() == expected
        assert_array_equal(path[[0, -1]], [[0, 0], [39, 32]])
        steps = np.diff(path, axis=0)
        assert set(map(tuple, steps.tolist())) <= {(0, 1), (1, 0), (1, 1)}
        assert band is None or (abs(path[:, 0] - path[:, 1]) <= band).all()


def stacked(pairs, fill):
    """Sequences of each side as a stack, what lies behind them being `fill`."""
    for k in (0, 1):
        group = [pair[k] for pair in pairs]
        shape = len(group), max(map(len, group)) + 1, *group[0].shape[1:]
        stack = np.full(shape, fill, group[0].dtype)
        for row, one in zip(stack, group, strict=True):
            row[: len(one)] = one
        yield stack


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2"])
def test_stacks_of_series(dtype):
    """As lists of the same, whatever lies behind the ends; also of rows that are not contiguous."""
    pairs = [[RNG.integers(-9, 9, (n, 2)).astype(dtype) for n in pair] for pair in LENGTHS]
    counts = np.transpose(LENGTHS)
    x, y = stacked(pairs, 99 if dtype == "i2" else np.nan)
    found = alignment.dtw(x, y, lengths=counts.tolist())
    assert_array_equal(found, alignment.dtw(*map(list, zip(*pairs, strict=True))))
    assert found.dtype == ("f4" if dtype == "f4" else "f8")
    x, y = x[:, :1], y[:, :1]
    every = alignment.dtw(np.asfortranarray(x[:5]), list(y[:5]))
    assert_array_equal(every, [naive.dtw(*pair) for pair in zip(x[:5], y[:5], strict=True)])
    assert alignment.dtw(x[:0], y[:0]).shape == (0,)


def test_stacks_of_codes():
    pairs = [[RNG.integers(0, 4, n) for n in pair] for pair in LENGTHS]
    counts = tuple(np.transpose(LENGTHS))
    lists = [*map(list, zip(*pairs, strict=True))]
    for call, options in (
        (alignment.edit_distance, {}),
        (alignment.smith_waterman, {"gap_open": -2}),
        (alignment.needleman_wunsch, {"matrix": np.diag([1, 2, 3, 4])}),
    ):
        found = call(*stacked(pairs, 2**40), lengths=counts, **options)
        assert_array_equal(found, call(*lists, **options))
    x, y = np.array([[[1, 2], [3, 4]], [[1, 3], [2, 4]]])
    assert alignment.edit_distance(x, y).tolist() == [1, 1]


def test_kinds_of_lists():
    """Of strings, bytes, lists and arrays together, and of one library."""
    words = ["ab", b"ac", [97, 98], np.array([97, 99], "u1"), np.array([])]
    assert alignment.edit_distance(words, ["ab"] * 5).tolist() == [0, 1, 0, 1, 2]
    assert alignment.edit_distance([b"ab", bytearray(b"b")], ["", "b"]).tolist() == [2, 0]
    assert alignment.edit_distance(["\udcff", "a"], ["a", "a"]).tolist() == [1, 0]
    assert alignment.dtw([[], [1.0, 2.0]], [[], [[1.0], [3.0]]]).tolist() == [0, 1]
    torch = pytest.importorskip("torch")
    found = alignment.dtw([torch.ones(3), torch.zeros(2)], [torch.ones(2), torch.ones(5)])
    assert isinstance(found, torch.Tensor)
    assert found.tolist() == [0, 5]


def test_an_array_of_two_axes_will_be_a_collection():
    x, y = RNG.random((2, 5, 3))
    with pytest.warns(
        FutureWarning, match=r"x and y .*next release.*\[x\] .*x\[..., None\]"
    ) as told:
        found = alignment.dtw(x, y)
    assert told[0].filename == __file__
    assert_array_equal(alignment.dtw([x], [y]), [found])
    each = [alignment.dtw(*pair) for pair in zip(x, y, strict=True)]
    assert_array_equal(alignment.dtw(x[..., None], y[..., None]), each)


@pytest.mark.parametrize("gap_open", [0, -10])
def test_named_matrices(gap_open):
    names = pytest.importorskip("Bio.Align.substitution_matrices")
    table = names.load("BLOSUM62")
    x, y = (["".join(RNG.choice([*table.alphabet[:20]], n)) for n in (30, 0, 41)] for _ in "xy")
    numbers = ([[table.alphabet.index(c) for c in s] for s in some] for some in (x, y))
    options = {"gap": -1, "gap_open": gap_open}
    for verb in (alignment.smith_waterman, alignment.needleman_wunsch):
        expected = verb(*numbers, matrix=np.array(table), **options)
        assert_array_equal(verb(x, y, matrix="BLOSUM62", **options), expected)
        numbers = ([[table.alphabet.index(c) for c in s] for s in some] for some in (x, y))
    for text in ("MKb", "M\N{GREEK SMALL LETTER ALPHA}"):
        with pytest.raises(ValueError, match=f"letters of the matrix are .*{text[-1]}' in y"):
            alignment.smith_waterman("MK", text, matrix="BLOSUM62")
    with pytest.raises(ValueError, match=r"one of BENNER22.*got 'BLOSUM'"):
        alignment.smith_waterman("MK", "M", matrix="BLOSUM")


@pytest.mark.parametrize(
    ("costs", "length", "narrow"),
    [
        ({}, 60, True), ({"gap": -0.125, "mismatch": -2.5}, 60, True), ({"gap": -0.1}, 60, False),
        ({"match": 7, "gap_open": -11}, 9000, True), ({"match": 1 << 15}, 60, False),
        ({"matrix": np.eye(4) * 3 - 0.5}, 60, True), ({"matrix": np.eye(4) / 3}, 60, False),
    ],
)  # fmt: skip
def test_scores_that_are_exact_in_float32_are_computed_so(costs, length, narrow, monkeypatch):
    rng, kinds = np.random.default_rng(3), []
    pairs = [[rng.integers(0, 4, length - 9 * i) for i in range(3)] for _ in "xy"]
    real = alignment._Pairs.align
    for verb in (alignment.needleman_wunsch, alignment.smith_waterman):
        monkeypatch.setattr(
            alignment._Pairs, "align",
            lambda self, rule, *given, **more: kinds.append(rule.dtype)
            or real(self, rule, *given, **more),
        )  # fmt: skip
        found = verb(*pairs, **costs)
        assert found.dtype == "f8"
        monkeypatch.setattr(alignment._Pairs, "narrow", lambda *_: False)
        assert_array_equal(found, verb(*pairs, **costs))
        monkeypatch.undo()
    assert kinds == ["f4" if narrow else "f8", "f8"] * 2


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


@pytest.mark.parametrize("shape", [(2, 1), (3, 3), (9, 4), (4, 20), (1, 5)])
def test_nan_anywhere_is_passed_on(shape):
    for side, n in enumerate(shape):
        for place in range(n):
            pair = [np.ones(k) for k in shape]
            pair[side][place] = np.nan
            assert np.isnan(alignment.dtw(*pair)), (side, place)
            assert np.isnan(alignment.dtw(*(s.astype("f4") for s in pair), cost="squared"))


def test_a_path_goes_along_both_where_ways_are_equal():
    _, path = alignment.dtw(np.zeros(4), np.zeros(4), return_path=True)
    assert path.tolist() == [[0, 0], [1, 1], [2, 2], [3, 3]]
    _, path = alignment.dtw(np.zeros(2), np.zeros(4), return_path=True)
    assert path.tolist() == [[0, 0], [0, 1], [0, 2], [1, 3]]


def test_dtaidistance():
    x, y = RNG.normal(size=150), RNG.normal(size=170)
    assert_allclose(np.sqrt(alignment.dtw(x, y, cost="squared")), theirs.distance(x, y))
    found = np.sqrt(alignment.dtw(x, y[:150], cost="squared", band=10))
    assert_allclose(found, theirs.distance(x, y[:150], window=11))


def test_edit_distances_by_bits(monkeypatch):
    """Of whole words and of parts of one, alone and in groups, by one thread and by several."""
    ends = [0, 1, 63, 64, 65, 128, 200]
    x, y = ([RNG.integers(-2, 2, n) for n in RNG.permutation(ends * 8)] for _ in "xy")
    groups = [
        (x, y),
        (x[:3], y[:3]),
        ([RNG.integers(0, 9, 2000)] * 9, [RNG.integers(0, 9, 99)] * 9),
    ]
    found = [alignment.edit_distance(*group) for group in groups]
    alone = [alignment.edit_distance(*pair) for pair in zip(x, y, strict=True)]
    assert_array_equal(found[0], alone)
    monkeypatch.setattr(cpu, "_MOST", 0)  # no table: by antidiagonals
    for group, distances in zip(groups, found, strict=True):
        assert_array_equal(alignment.edit_distance(*group), distances)
    assert alignment.edit_distance([-(2**31), 2**31 - 1], [2**31 - 1]) == 1


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
        (lambda: alignment.dtw([1, 2], [[1, 2], [3]]), ValueError, "one and several came"),
        (lambda: alignment.dtw([[1], [2]], [[1, 2]]), ValueError, "got 2 and 1"),
        (lambda: alignment.dtw([1], [2], cost="cubed"), ValueError, "absolute"),
        (lambda: alignment.dtw([1], [2], band=-1), ValueError, "at least 0"),
        (lambda: alignment.dtw([1], [2], band=1.5), TypeError, "band must be an integer"),
        (
            lambda: alignment.dtw([np.ones((3, 2))], [np.ones((3, 1))]),
            ValueError,
            r"features, got \[1",
        ),
        (lambda: alignment.dtw(["a"], ["b"]), TypeError, "numbers are accepted"),
        (lambda: alignment.dtw([1j], [1]), TypeError, "real numbers"),
        (lambda: alignment.dtw([[[1, 2]], [[1]]], [[1], [1]]), ValueError, r"features, got \[1, 2"),
        (lambda: alignment.dtw(np.ones((2, 3, 1)), [[1]]), ValueError, "got 2 and 1"),
        (lambda: alignment.dtw(np.ones((2, 3, 1)), np.ones(3)), ValueError, "one and several"),
        (
            lambda: alignment.edit_distance(np.ones((2, 3)), ["a", "b"]),
            TypeError,
            "a stack of them",
        ),
        (
            lambda: alignment.edit_distance([1], [2], lengths=3),
            ValueError,
            "two arrays, of x and of",
        ),
        (
            lambda: alignment.edit_distance([1], [2], lengths=(1, 1)),
            ValueError,
            "for stacks, and x",
        ),
        (lambda: alignment.edit_distance([2**40], [2]), ValueError, "of 32 bits, and some of x"),
        (
            lambda: alignment.edit_distance(
                np.ones((2, 3), int), np.ones((2, 3), int), lengths=(None, [3, 4])
            ),
            ValueError,
            "from 0 to the 3",
        ),
        (lambda: alignment.dtw([[1], [2]], [[2], [1]], return_path=True), ValueError, "two series"),
        (lambda: alignment.edit_distance([1.5], [2]), TypeError, "whole numbers"),
        (lambda: alignment.edit_distance("ab", None), TypeError, "y is a sequence.*got None"),
        (lambda: alignment.dtw([[1], None], [[1], [2]]), TypeError, r"x\[1\] is a sequence"),
        (lambda: alignment.edit_distance("ab", ["ab"]), ValueError, "one and several"),
        (lambda: alignment.needleman_wunsch("a", "b", gap=1), ValueError, "at most 0"),
        (
            lambda: alignment.edit_distance("a", "b", free_ends="z"),
            ValueError,
            "x_start, .*got 'z'",
        ),
        (lambda: alignment.needleman_wunsch("a", "b", free_ends=3), ValueError, "free_ends are of"),
        (
            lambda: alignment.edit_distance("", "", free_ends=[["x"]]),
            ValueError,
            "free_ends are of",
        ),
        (lambda: alignment.needleman_wunsch("a", "b", match=inf), ValueError, "finite"),
        (lambda: alignment.smith_waterman("a", "b", gap=None), ValueError, "gap is a finite"),
        (lambda: alignment.smith_waterman([3], [0], matrix=np.eye(3)), ValueError, "0 to 2"),
        (lambda: alignment.smith_waterman([0], [0], matrix=[[1, 2]]), ValueError, "square"),
        (
            lambda: alignment.smith_waterman([0, 1], "AC", matrix=np.eye(4)),
            ValueError,
            "from 0 to 3, got 65 in y; letters are .* number them, for example ",
        ),
        (lambda: alignment.needleman_wunsch("a", "b", gap_open=1), ValueError, "gap_open=1"),
    ],
)
def test_what_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()


SERIES, CODES = (
    [[make(n) for n in some] for some in zip(*LENGTHS, strict=True)]
    for make in (RNG.random, lambda n: RNG.integers(0, 3, n))
)
VERBS = {
    "dtw": (alignment.dtw, SERIES),
    "edit_distance": (alignment.edit_distance, CODES),
    "needleman_wunsch": (alignment.needleman_wunsch, CODES),
    "smith_waterman": (alignment.smith_waterman, CODES),
}


@pytest.fixture
def pieces(monkeypatch):
    """Calls of few terms."""
    monkeypatch.setattr(cpu, "_PIECE", 10)


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("band", [None, 9])
@pytest.mark.parametrize("name", VERBS)
def test_progress_grows_to_the_cells_of_all_tables(name, band, threads):
    set_num_threads(threads)
    verb, several = VERBS[name]
    for chosen in (slice(None), 3):  # several pairs, and one
        x, y = (some[chosen] for some in several)
        seen = []
        watched = Watched(lambda *given, seen=seen: seen.append((*given, threading.get_ident())))
        assert_array_equal(verb(x, y, band=band, progress=watched), verb(x, y, band=band))
        tables = LENGTHS if chosen == slice(None) else [LENGTHS[chosen]]
        cells = sum(
            band is None or abs(i - j) <= band for n, m in tables for i, j in np.ndindex(n, m)
        )
        done, totals, threads_ = zip(*seen, strict=True)
        assert (watched.method, watched.unit) == (name, "cells")
        assert {*totals} == {watched.total} == {cells}
        assert list(done) == sorted({*done})
        assert (done[0], done[-1]) == (0, cells)
        assert len(done) > 3 or threads > 1  # another one may have done it all before it is seen
        assert {*threads_} == {threading.get_ident()}


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("name", VERBS)
def test_an_exception_in_progress_stops_the_work(name):
    verb, several = VERBS[name]

    def stop(done, total):
        seen.append(done)
        if done:
            raise KeyError("enough")

    seen = []
    with pytest.raises(KeyError, match="enough"):
        verb(*several, progress=stop)
    assert 0 < seen[-1] == seen[1]


@pytest.mark.parametrize("name", VERBS)
def test_progress_is_a_flag_or_a_function(name, capsys):
    verb, several = VERBS[name]
    for shown in (True, False):
        assert_array_equal(verb(*several, progress=shown), verb(*several))
    assert capsys.readouterr() == ("", "")  # nothing for less than a second
    with pytest.raises(TypeError, match="progress is True, False or a callable"):
        verb(None, None, progress=3)  # before the sequences are looked at
    seen = []
    verb([[]], [[]], progress=lambda *given: seen.append(given))
    assert seen[-1] == (1, 1)  # no cells, and callers divide by their number


@pytest.mark.parametrize("count", [1, 2])
def test_the_kernel_of_edit_distances_in_python(count):
    rows = np.array([[70, 9], [0, 128]])[:, :count]
    columns = np.array([[11, 66], [5, 7]])[:, :count]
    x, y = RNG.integers(3, 6, (2, 300), "i4")
    shared = {
        "count": count, "first": 0, "last": 2, "low": 3, "letters": 3, "words": 2, "rows": rows,
        "columns": columns, "x_starts": rows // 2, "y_starts": columns, "x": x, "y": y,
        "table": np.zeros((3, 2, count), "u8"), "room": np.zeros((2, 2, count), "u8"),
        "out": np.zeros((2, count), "i8"),
    }  # fmt: skip
    found = both(kernels.edit_distances, **shared, begin=0, end=100)
    expected = [
        alignment.edit_distance(x[i // 2 :][:i].copy(), y[j:][:j].copy())
        for i, j in zip(rows.flat, columns.flat, strict=True)
    ]
    assert found["out"].ravel().tolist() == expected
    assert not found["table"].any()


@pytest.mark.parametrize(
    ("verb", "options"),
    [
        (alignment.dtw, {"cost": "squared", "band": 3}),
        (alignment.dtw, {"return_path": True}),
        (alignment.needleman_wunsch, {"gap_open": -2}),
        (alignment.smith_waterman, {"gap_open": -2}),
        (alignment.smith_waterman, {"matrix": np.diag([3.0, 2, 1])}),
        (alignment.edit_distance, {"band": 9}),
        (alignment.edit_distance, {"free_ends": ["x_start", "y"]}),
        (alignment.needleman_wunsch, {"free_ends": "x_end", "gap_open": -2, "band": 4}),
    ],
)  # fmt: skip
def test_the_kernel_of_antidiagonals_in_python(verb, options, monkeypatch):
    x, y = (RNG.integers(0, 3, n) for n in (21, 24))
    if verb is alignment.dtw:
        x, y = (v if "cost" in options else [np.stack([v, v[::-1]], 1)] for v in (x, y))
    expected = verb(x, y, **options)
    run = functools.partial(kernels.align.plain, MIN_PLUS)
    monkeypatch.setattr(cpu, "_compiled", lambda dtype: run)
    found = verb(x, y, **options)
    if "return_path" in options:
        assert_array_equal(found[1], expected[1])
        found, expected = found[0], expected[0]
    assert found == expected
