"""All pairs of two lists of sequences, and those within a cutoff, against plain loops."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from plain_kernels import both
from reference import naive

from semiring_mm import alignment, arrays, set_num_threads
from semiring_mm.cpu import alignment as cpu
from semiring_mm.cpu import engine
from semiring_mm.cpu.kernels import alignment as kernels

RNG = np.random.default_rng(32)


def plain(x, y):
    """Levenshtein's distance, row by row."""
    before = list(range(len(y) + 1))
    for i, a in enumerate(x, 1):
        now = [i]
        for j, b in enumerate(y, 1):
            now.append(min(before[j] + 1, now[-1] + 1, before[j - 1] + (a != b)))
        before = now
    return before[-1]


def words(count, longest, letters="abc"):
    return ["".join(RNG.choice([*letters], n)) for n in RNG.integers(0, longest + 1, count)]


LISTS = {
    "short": (words(37, 9), words(23, 9)),
    "words of 64 bits": (words(9, 80, "ab"), [*words(5, 150, "ab"), "a" * 64, "b" * 128]),
    "other letters": (words(20, 12, "aeé"), words(20, 12, "xe\U0001f600")),
    "one": (["abc"], ["abd"]),
    "empty ones": (["", ""], ["", "a"]),
}


@pytest.fixture(params=["rows", "pairs", "alike"])
def way(request, monkeypatch):
    """With a table of the codes, where there is no room for one, and those with like letters."""
    if request.param == "pairs":
        monkeypatch.setattr(cpu, "_MOST", 0)
    if request.param == "alike":
        few = {"_FEW": 0, "_ALIKE": 2.0, "_BITS": 48, "_COUNTED": 90, "_LISTED": {True: 60}}
        for name, value in few.items():
            monkeypatch.setattr(alignment, name, value)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", LISTS)
def test_edit_distances_of_all_pairs(name, threads):
    set_num_threads(threads)
    x, y = LISTS[name]
    expected = np.array([[plain(a, b) for b in y] for a in x])
    found = alignment.cdist(x, y)
    assert_array_equal(found, expected)
    assert found.dtype == "i4"
    for cutoff in (0, 1, 2, 5, 40, 200):
        near = alignment.within(x, y, cutoff=cutoff)
        i, j = np.nonzero(expected <= cutoff)
        assert near.shape == expected.shape
        assert_array_equal(np.repeat(np.arange(len(x)), np.diff(near.indptr)), i)
        assert_array_equal(near.indices, j)
        assert_array_equal(near.distance, expected[i, j])


@pytest.mark.usefixtures("way")
def test_a_list_with_itself():
    x = words(40, 20)
    assert_array_equal(alignment.cdist(x), alignment.cdist(x, x))
    x[7] = x[3]
    d, own = alignment.cdist(x), alignment.within(x, cutoff=3)
    near = (d <= 3) & ~np.eye(len(x), dtype=bool)
    assert near[3, 7]
    row = np.repeat(np.arange(len(x)), np.diff(own.indptr))
    assert_array_equal(np.stack([row, own.indices]), np.nonzero(near))
    assert_array_equal(own.distance, d[near])


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("cutoff", [0, 1, 2, 3])
def test_long_ones_at_the_cutoff(cutoff):
    """Full groups, whose bound is met exactly up to the last letters."""
    x = ["ab" * 20 + "c" * k for k in (0, 1, 2, 3) for _ in range(32)]
    y = ["ab" * 20 + "d" * k for k in (0, 1, 2, 3)]
    expected = np.array([[plain(a, b) for b in y] for a in x])
    found = alignment.within(x, y, cutoff=cutoff)
    i, j = np.nonzero(expected <= cutoff)
    assert_array_equal(np.repeat(np.arange(len(x)), np.diff(found.indptr)), i)
    assert_array_equal(found.indices, j)
    assert_array_equal(found.distance, expected[i, j])


def test_edits_change_few_bits(monkeypatch):
    """Those with edits at the cutoff are found, however many bits there are."""
    monkeypatch.setattr(alignment, "_ALIKE", 2.0)
    letters, y = [*"ACDEFGHIKLMNPQRSTVWY"], []
    x = ["".join(RNG.choice(letters, n)) for n in RNG.integers(0, 40, 400)]
    for i, word in enumerate(x):
        for _ in range(i % 4):
            at = int(RNG.integers(0, len(word) + 1))
            word = word[:at] + str(RNG.choice([*letters, ""])) + word[at + int(RNG.integers(2)) :]
        y.append(word)
    expected = alignment.cdist(x, y)
    for cutoff in (0, 1, 2, 3):
        found = alignment.within(x, y, cutoff=cutoff)
        i, j = np.nonzero(expected <= cutoff)
        assert_array_equal(np.repeat(np.arange(len(x)), np.diff(found.indptr)), i)
        assert_array_equal(found.indices, j)
        assert_array_equal(found.distance, expected[i, j])


def test_many_blocks(monkeypatch):
    x, y = words(50, 20), words(60, 20)
    expected = alignment.cdist(x, y), alignment.within(x, y, cutoff=8)
    monkeypatch.setattr(cpu, "_PIECE", 16 * 20 * 16 * 7)  # a few of y at a time
    monkeypatch.setattr(alignment, "_TOGETHER", {True: 100})
    assert_array_equal(alignment.cdist(x, y), expected[0])
    assert_array_equal(alignment.cdist(x, y, band=60), expected[0])
    found = alignment.within(x, y, cutoff=8)
    assert_array_equal(found.indices, expected[1].indices)


@pytest.mark.parametrize(
    ("metric", "options"),
    [
        ("edit_distance", {"band": 2}),
        ("needleman_wunsch", {"gap_open": -2}),
        ("smith_waterman", {"match": 3}),
    ],
)
def test_other_metrics(metric, options):
    x, y = words(7, 9), words(5, 9)
    one = getattr(alignment, metric)
    expected = [[one(a, b, **options) for b in y] for a in x]
    assert_array_equal(alignment.cdist(x, y, metric, **options), expected)


def test_dtw_of_a_stack_of_series():
    x, y = RNG.integers(-9, 9, (4, 8)) * 1.0, RNG.integers(-9, 9, (3, 6)) * 1.0
    expected = [[naive.dtw(a[:, None], b[:, None], cost="absolute") for b in y] for a in x]
    assert_array_equal(alignment.cdist(x, y, "dtw"), expected)
    assert_array_equal(alignment.cdist([*x], [*y], "dtw"), expected)
    narrow = alignment.cdist(x.astype("f4"), y.astype("f4"), "dtw")
    assert_array_equal(narrow, expected)
    assert narrow.dtype == "f4"


def test_no_sequences():
    assert alignment.cdist([], ["a"]).shape == (0, 1)
    assert alignment.cdist(["a", "b"], []).shape == (2, 0)
    found = alignment.within(["a", "b"], [], cutoff=1)
    assert (found.indptr.tolist(), found.shape) == ([0, 0, 0], (2, 0))


def test_other_libraries_and_progress():
    torch = pytest.importorskip("torch")
    x = torch.tensor([[1, 2, 3], [1, 3, 3]])
    found = alignment.cdist(x, lengths=([3, 2], [3, 1]))
    assert isinstance(found, torch.Tensor)
    assert found.tolist() == [[0, 2], [1, 1]]
    assert isinstance(alignment.within(x, cutoff=1).distance, torch.Tensor)
    seen = []
    alignment.cdist(words(40, 9), progress=lambda *given: seen.append(given))
    assert seen[-1] == (40, 40)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: alignment.cdist(["a"], metric="hamming"), ValueError, "metric is one of edit_dis"),
        (lambda: alignment.cdist("ab", "ac"), ValueError, "lists of sequences"),
        (lambda: alignment.within("ab", ["ac"], cutoff=1), ValueError, "one and several"),
        (lambda: alignment.within(["ab"], cutoff=-1), ValueError, "at least 0"),
        (lambda: alignment.within(["ab"], cutoff=1.5), TypeError, "cutoff must be an integer"),
        (lambda: alignment.cdist(["a"], gap=1), TypeError, "gap"),
    ],
)
def test_what_is_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize(("bounded", "cutoff"), [(False, 0), (True, 3)])
@pytest.mark.parametrize("longest", [20, 70])
def test_the_kernel_in_python(longest, bounded, cutoff):
    rows = np.array([[longest, 9]])
    columns = np.array([11, 40, 0])
    x, y = RNG.integers(0, 3, (2, 200), "i4")
    words_ = -(-longest // 64)
    found = both(
        kernels.edit_rows, count=2, single=words_ == 1, bounded=bounded, first=0, last=1, others=3,
        letters=4, words=words_, cutoff=cutoff, rows=rows, x_starts=rows // 2, x=x,
        y_starts=columns, columns=columns, y=y, table=np.zeros((4, words_, 2), "u8"),
        room=np.zeros((words_, 2, 2), "u8"), out=np.zeros((1, 3, 2), "i8"),
    )  # fmt: skip
    expected = np.array([[plain(x[n // 2 :][:n], y[m:][:m]) for n in rows[0]] for m in columns])
    near = expected <= cutoff if bounded else np.ones((3, 2), bool)
    assert_array_equal(found["out"][0][near], expected[near])
    assert (found["out"][0][~near] > cutoff).all()
    assert not found["table"].any()


def test_paths_are_of_single_pairs():
    with pytest.raises(TypeError, match=r"cdist: paths are of single pairs: call alignment.dtw"):
        alignment.cdist([[1, 2], [5]], metric="dtw", return_path=True)


def test_pairs_that_do_not_fit(monkeypatch):
    monkeypatch.setattr(engine, "free_memory", lambda: 1 << 10)
    monkeypatch.setattr(arrays, "_UNASKED", 0)
    with pytest.raises(MemoryError, match="the pairs within the cutoff"):
        alignment.within(["a", "b"] * 20, cutoff=1)
