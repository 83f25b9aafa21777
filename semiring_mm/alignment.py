"""Alignments of pairs of sequences: dynamic time warping, edit distance, alignment scores.

>>> from semiring_mm import alignment
>>> alignment.edit_distance("kitten", "sitting")
3
>>> alignment.dtw([0, 1, 2, 2, 1], [0, 0, 1, 2, 1])
np.float64(0.0)
"""

from __future__ import annotations

import contextlib
import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arrays import Call, check_memory, joined
from .bit_rows import in_rows
from .chains import as_lengths
from .engine import AlignmentRule, Ragged
from .naming import integer, listing
from .neighbours import Within
from .progress import Progress, reporter
from .traceback import Alignment, trace
from .warn import warn

__all__ = [
    "Alignment", "cdist", "dtw", "edit_distance", "needleman_wunsch", "smith_waterman", "within",
]  # fmt: skip
__dir__ = listing(__all__)

Array = Any


def dtw(
    x: Any,
    y: Any,
    *,
    cost: str = "absolute",
    band: int | None = None,
    return_path: bool = False,
    lengths: Any = None,
    device: str | None = None,
    progress: Progress = None,
) -> Any:
    """Dynamic time warping: the least cost of aligning two series, each point with one or more.

    Parameters
    ----------
    x, y : array_like, shape (n,) or (n, d), or (pairs, n, d), or a list of the former
        Two series, of d features at each time; or as many first as second ones, which are paired:
        lists of series of any lengths, or a stack of one length each, which takes no work for each
        pair. A stack of one feature is ``x[..., np.newaxis]``. A 2-D array is one series today,
        with a warning: from the next release on it is a collection of series, as elsewhere. ``[x]``
        is one series of several features.
    cost : {"absolute", "squared"}
        Of two points: the sum over features of ``abs(x - y)`` or of ``(x - y)**2``. The square root
        of the latter's total is what dtaidistance and tslearn return.
    band : int, optional
        Only points with ``|i - j| <= band`` are aligned (Sakoe and Chiba, 1978).
    return_path : bool, default False
        Also return an alignment of that cost; of two series, or lists of one each.
    lengths : pair of array_like of int, shape (pairs,), optional
        How many points each series has of the stack x, and of the stack y; None: all. What lies
        behind them has no effect.
    device : {None, "cpu", "cuda", "cuda:N"}
        Where to run. None: where the series live.
    progress : bool or callable, optional
        True shows a bar by tqdm, on the terminal or in a notebook, for work over a second; a
        callable is called with (done, in all), of the cells of all tables, and may raise to stop
        the work. On a device it is told at the end.

    Returns
    -------
    distance : float, or ndarray with one for each pair
        inf where the band is narrower than the lengths differ or one of two series is empty, 0 for
        two empty ones; NaN where an entry is.
    path : ndarray of int64, shape (steps, 2)
        Only with `return_path`: the pairs (i, j), from the first points to the last; none where the
        band is narrower than the lengths differ.

    Raises
    ------
    ValueError, TypeError
        For shapes that do not match, entries that are not real numbers, a negative band.

    Notes
    -----
    O(n m), with a band O(n band), in antidiagonals: O(n) memory, with a path O(n m). Pairs are
    spread over the threads; on a device all are one launch, and arrays there give arrays there. The
    costs of points with several features take up to a gigabyte there. float32 is
    computed with as such, all else in float64.

    Examples
    --------
    >>> from semiring_mm import alignment
    >>> distance, path = alignment.dtw([0, 3, 4], [0, 0, 3, 5], return_path=True)
    >>> distance, path.tolist()
    (np.float64(1.0), [[0, 0], [0, 1], [1, 2], [2, 3]])
    >>> alignment.dtw([[1, 2, 3], [5]], [[1, 2], [7, 7]], cost="squared")
    array([1., 8.])
    >>> stacks = np.arange(24.0).reshape(2, 3, 4, 1)  # three series of four points, and three more
    >>> alignment.dtw(*stacks, lengths=([4, 3, 2], None))
    array([48., 49., 51.])
    """
    if cost not in ("absolute", "squared"):
        raise ValueError(f'dtw: cost is "absolute" or "squared", got {cost!r}')
    if flat := [name for name, v in (("x", x), ("y", y)) if getattr(v, "ndim", 0) == 2]:
        name = flat[0]
        warn(
            f"dtw: {' and '.join(flat)} of two axes is one series of several features today, and "
            f"from the next release on a collection of series of one feature. Write [{name}] for "
            f"the former, {name}[..., None] for the latter",
            FutureWarning,
        )
    with _pairs("dtw", x, y, _series, device, lengths, progress) as pairs:
        if return_path and pairs.many and len(pairs.both[0].starts) != 1:
            raise ValueError("dtw: return_path is for two series, not for several")
        features = {s.entries.shape[1] for s in pairs.both if len(s.entries)}
        if len(features) > 1:
            raise ValueError(f"dtw: all series have as many features, got {sorted(features)}")
        first, second = pairs.both
        narrow = first.entries.dtype == second.entries.dtype == np.float32
        rule = AlignmentRule("f4" if narrow else "f8", cost, warp=True)
        found, path = pairs.align(rule, band, [0.0] * 4, keep=return_path)
        distance = pairs.give(found)
    return (distance, path) if return_path else distance


def edit_distance(
    x: Any, y: Any, *, band: int | None = None, free_ends: str | Iterable[str] | None = None,
    return_path: bool = False, lengths: Any = None, device: str | None = None,
    progress: Progress = None,
) -> Any:  # fmt: skip
    """The least number of insertions, deletions and substitutions from one sequence to another.

    Parameters
    ----------
    x, y : str, bytes or array_like of int, or a list of such, or a stack (pairs, n) of int
        Two sequences, or as many first as second ones, which are paired.
    band : int, optional
        Only alignments within ``|i - j| <= band``: distances of at most `band` are right, others
        are not less than they are.
    free_ends : str or several, optional
        Ends that may be left out at no cost: "x_start", "x_end", "y_start", "y_end"; "x" and "y"
        are both ends of one. ``"y"`` finds x anywhere in y, and ``"y_end"`` at its beginning
        (edlib's modes HW and SHW).
    return_path : bool, default False
        Return an :class:`Alignment` of that distance, or a list with one for each pair.
    lengths, device, progress
        As for :func:`dtw`.

    Returns
    -------
    int, or ndarray of int64 with one for each pair, or Alignment
        -1 where no alignment is within the band: without free ends, where the lengths differ by
        more.

    Raises
    ------
    ValueError, TypeError
        For lists of different lengths, entries that are not whole numbers, other ends; for
        `return_path` of sequences on a device.
    MemoryError
        Where there is no room for the rows of `return_path`.

    Notes
    -----
    Levenshtein's distance (1966), in O(n m) as of :func:`dtw`. With `return_path` the host fills a
    table of a byte for each cell, or for those of the band. Where that is more than 1 GiB, or than
    is free, it keeps every r-th row, r of about the square root of n, and computes the cells
    between two of them again: O(√n m) memory, twice the time, the same alignment. Of equally good
    alignments the one is returned that, seen from the end, has entries of both before one of x
    alone, and that before one of y; of ends equally good the first.

    Examples
    --------
    >>> from semiring_mm import alignment
    >>> alignment.edit_distance(["night", "GATTACA"], ["nacht", "GCATGCU"])
    array([2, 4])
    >>> found = alignment.edit_distance("kitten", "sitting", return_path=True)
    >>> found.score, found.cigar, found.aligned
    (3, '1X3=1X1=1D', ('kitten-', 'sitting'))
    >>> found = alignment.edit_distance("GATA", "CCAGGTACC", free_ends="y", return_path=True)
    >>> found.score, found.aligned, found.start, found.end
    (1, ('GATA', 'GGTA'), (0, 3), (4, 7))
    """
    with _pairs("edit_distance", x, y, _code, device, lengths, progress) as pairs:
        rule = AlignmentRule("f4", "equal", ends=_ends("edit_distance", free_ends))
        if return_path:
            return pairs.trace(rule, band, _EDITS, score=_edits)
        found, _ = pairs.align(rule, band, _EDITS)
        if not pairs.many:
            return _edits(found.item())
        whole = pairs.xp.where(pairs.xp.isinf(found), -1, found).astype(np.int64)
        return pairs.give(whole)


def needleman_wunsch(
    x: Any,
    y: Any,
    *,
    match: float = 1,
    mismatch: float = -1,
    gap: float = -1,
    gap_open: float = 0,
    matrix: str | ArrayLike | None = None,
    band: int | None = None,
    free_ends: str | Iterable[str] | None = None,
    return_path: bool = False,
    lengths: Any = None,
    device: str | None = None,
    progress: Progress = None,
) -> Any:
    """The best score of a global alignment (Needleman and Wunsch, 1970).

    Parameters
    ----------
    x, y : str, bytes or array_like of int, or a list of such, or a stack (pairs, n) of int
        Two sequences, or as many first as second ones, which are paired.
    match, mismatch : float, default 1 and -1
        What two equal entries score, and two different ones.
    gap, gap_open : float, default -1 and 0
        What each entry that is left out scores, and the first of several in a row besides.
    matrix : str or array_like, shape (letters, letters), optional
        In place of `match` and `mismatch` a matrix of Biopython's by its name, such as
        ``"BLOSUM62"``, for its letters; or the score of entries i and j, of sequences of whole
        numbers from 0 on. Number letters: ``["ACGT".index(c) for c in x]``.
    band : int, optional
        Only alignments within ``|i - j| <= band``.
    free_ends, return_path
        As for :func:`edit_distance`, which has the notes and errors too. With ``("x", "y")`` an
        alignment is semi-global, as parasail's ``sg`` and for overlaps of reads.
    lengths, device, progress
        As for :func:`dtw`.

    Returns
    -------
    float, or ndarray of float64 with one for each pair, or Alignment
        -inf where no alignment is within the band.

    Raises
    ------
    ValueError, TypeError
        For lists of different lengths, entries that are not whole numbers, or not in the matrix.

    Notes
    -----
    O(n m), in antidiagonals; affine gaps by Gotoh's three recurrences (1982).

    Examples
    --------
    >>> from semiring_mm import alignment
    >>> alignment.needleman_wunsch("GATTACA", "GCATGCU")
    np.float64(0.0)
    >>> alignment.needleman_wunsch("ACGT", "AT", gap_open=-2)
    np.float64(-2.0)
    >>> print(alignment.needleman_wunsch("GATTACA", "GATCA", gap_open=-2, return_path=True))
    GATTACA
    |||  ||
    GAT--CA
    >>> ends = "x_start", "y_end"  # the end of x on the start of y
    >>> print(alignment.needleman_wunsch("CCTACG", "TACGGA", free_ends=ends, return_path=True))
    TACG
    ||||
    TACG
    """
    return _scores(
        "needleman_wunsch", x, y, match, mismatch, gap, gap_open, matrix, band, lengths, device,
        progress, ends=_ends("needleman_wunsch", free_ends), return_path=return_path,
    )  # fmt: skip


def smith_waterman(
    x: Any,
    y: Any,
    *,
    match: float = 1,
    mismatch: float = -1,
    gap: float = -1,
    gap_open: float = 0,
    matrix: str | ArrayLike | None = None,
    band: int | None = None,
    return_path: bool = False,
    lengths: Any = None,
    device: str | None = None,
    progress: Progress = None,
) -> Any:
    """The best score of a local alignment: of any part of one and of the other sequence.

    Parameters
    ----------
    x, y, match, mismatch, gap, gap_open, matrix, band, return_path, lengths, device, progress
        As for :func:`needleman_wunsch`, which has the errors too.

    Returns
    -------
    float, or ndarray of float64 with one for each pair, or Alignment
        At least 0, the score of nothing. An alignment has the places where it starts and ends.

    Notes
    -----
    Smith and Waterman (1981), O(n m).

    Examples
    --------
    >>> from semiring_mm import alignment
    >>> alignment.smith_waterman("TGTTACGG", "GGTTGACTA", match=3, mismatch=-3, gap=-2)
    np.float64(13.0)
    >>> found = alignment.smith_waterman("xxACGTyy", "zACGT", return_path=True)
    >>> found.aligned, found.start, found.end
    (('ACGT', 'ACGT'), (2, 1), (6, 5))
    """
    return _scores(
        "smith_waterman", x, y, match, mismatch, gap, gap_open, matrix, band, lengths, device,
        progress, local=True, return_path=return_path,
    )  # fmt: skip


def cdist(
    x: Any,
    y: Any = None,
    metric: str = "edit_distance",
    *,
    device: str | None = None,
    progress: Progress = None,
    **options: Any,
) -> Any:
    """Edit distances, alignment scores or warping costs of all pairs of two lists of sequences.

    Parameters
    ----------
    x, y : list of sequences, or stack
        As `metric` takes them; any numbers of them. y None: those of x, with each other.
    metric : {"edit_distance", "dtw", "needleman_wunsch", "smith_waterman"}
        The function of this module that compares two.
    device, progress
        As for :func:`dtw`.
    **options
        Other arguments of that function, such as `band`, `cost` or `gap_open`.

    Returns
    -------
    ndarray, shape (len(x), len(y))
        int32 of edit distances, else of the function's dtype.

    Raises
    ------
    ValueError, TypeError
        As of the function; for a metric that there is not.
    MemoryError
        If the matrix does not fit; of edit distances :func:`within` gives the small ones.

    Notes
    -----
    Edit distances without a band take, on a CPU, O(n m / 64) steps for two vectors of sequences of
    x at once (Myers, 1999; Hyyro, Fredriksson and Navarro, 2005), whose tables are made once. All
    else is computed as pairs, about a million at a time.

    Examples
    --------
    >>> from semiring_mm import alignment
    >>> alignment.cdist(["night", "GATTACA"], ["nacht", "GCATGCU", ""])
    array([[2, 7, 5],
           [7, 4, 7]], dtype=int32)
    >>> alignment.cdist([[1, 2], [5]], metric="dtw", cost="squared")
    array([[ 0., 25.],
           [25.,  0.]])
    """
    if metric not in _METRICS:
        raise ValueError(f"cdist: metric is one of {', '.join(_METRICS)}, got {metric!r}")
    if options.get("return_path"):
        raise TypeError(f"cdist: paths are of single pairs: call alignment.{metric} with these")
    read = _series if metric == "dtw" else _code
    with _pairs("cdist", x, x if y is None else y, read, device, options.pop("lengths", None),
                progress, every=True) as pairs:  # fmt: skip
        xp, (first, second) = pairs.xp, pairs.both
        shape = len(first.starts), len(second.starts)
        edits, bare = metric == "edit_distance", not options
        kind = np.dtype(np.int32 if edits else np.float64)
        if metric == "dtw" and all(s.entries.dtype == np.float32 for s in pairs.both):
            kind = np.dtype(np.float32)
        size = kind.itemsize * shape[0] * shape[1]
        check_memory(size, "the matrix of all pairs", pairs.call.engine, "take fewer sequences")
        out = xp.empty(shape, kind)
        if edits and bare and out.size and pairs.by_rows(None, _into(out)):
            return pairs.call.give(out)
        tick = reporter(progress, float(max(1, shape[0])), "cdist", "sequences")
        step = max(1, _TOGETHER // max(1, shape[1]))
        lib, there = (np, pairs) if metric == "dtw" else (xp, pairs.resident())
        for i in range(0, shape[0], step):
            rows = lib.arange(i, min(i + step, shape[0]))
            given = there.of(lib.repeat(rows, shape[1]), lib.tile(lib.arange(shape[1]), len(rows)))
            found = _METRICS[metric](given, None, **options)
            out[i : i + len(rows)] = found.reshape(len(rows), shape[1])
            if tick is not None:
                tick(float(i + len(rows)))
        return pairs.call.give(out)


def within(
    x: Any, y: Any = None, *, cutoff: int, lengths: Any = None, device: str | None = None,
    progress: Progress = None,
) -> Within:  # fmt: skip
    """Pairs of sequences within an edit distance of each other, without the matrix of all pairs.

    Parameters
    ----------
    x, y : list of str, bytes or array_like of int, or stack
        As for :func:`edit_distance`; any numbers of them. y None: those of x with each other, but
        none with itself.
    cutoff : int
        Pairs at this distance belong to it.
    lengths, device, progress
        As for :func:`dtw`.

    Returns
    -------
    semiring_mm.neighbours.Within
        Compressed sparse rows: `indptr`, `indices` (ascending in each row), `distance` (int32),
        `shape`.

    Raises
    ------
    ValueError, TypeError
        As of :func:`edit_distance`, and for a negative cutoff.

    Notes
    -----
    Sequences are compared if their lengths differ by no more than the cutoff, and the numbers of
    their letters and of two letters side by side by no more than six times the cutoff: these are
    compared before, as rows of bits, of all O(n m) pairs. If more than some hundredths of the pairs
    remain, all are computed as for :func:`cdist`, on a CPU.

    Examples
    --------
    >>> from semiring_mm import alignment
    >>> found = alignment.within(["CASSL", "CASSF", "CAWRT"], ["CASSF", "CAS"], cutoff=1)
    >>> found.indptr, found.indices, found.distance
    (array([0, 1, 2, 2]), array([0, 0]), array([1, 0], dtype=int32))
    """
    limit = integer(cutoff, "within: cutoff")
    if limit < 0:
        raise ValueError(f"within: cutoff must be at least 0, got {cutoff}")
    with _pairs("within", x, x if y is None else y, _code, device, lengths, progress,
                every=True) as pairs:  # fmt: skip
        shape = len(pairs.both[0].starts), len(pairs.both[1].starts)
        parts, count = list[tuple[Array, ...]](), 0

        def keep(*part: Array) -> None:
            nonlocal count
            parts.append(part)
            count += len(part[0])
            what = "the pairs within the cutoff"
            check_memory(_PAIR * count, what, pairs.call.engine, "take a smaller one", halves=False)

        if all(shape):
            _near(pairs, limit, y is None, keep)
        found = in_rows(pairs.xp, shape, parts, np.int32, mirror=y is None)
        indptr, indices, distance = pairs.call.give(found)
        return Within(indptr, indices, distance, shape)


def _near(pairs: _Pairs, limit: int, same: bool, keep: Callable[..., None]) -> None:
    """Give first and second sequences within a distance, and it; of one set each pair once.

    Candidates are those whose letters are alike, unless these are so many that all are compared.
    """
    engine, xp, shape = pairs.call.engine, pairs.xp, [len(s.starts) for s in pairs.both]
    few = engine.edit_rows is not None and math.prod(shape) <= _FEW
    sieve = None if few else _Sieve(pairs, limit, same)
    share = 1.0 if sieve is None else sieve.share()
    longest = max(s.longest for s in pairs.both)
    if share > _ALIKE * min(max(1.0, longest / _LONG), _GAIN):

        def take(i: Array, j: Array, d: Array) -> None:
            near = (d <= limit) & (i < j[:, np.newaxis]) if same else d <= limit
            at, place = np.nonzero(near)
            keep(i[place], j[at], d[at, place].astype(np.int32))

        if pairs.by_rows(limit, take):
            return
    sieve = sieve or _Sieve(pairs, limit, same)
    tick = reporter(pairs.progress, float(shape[0]), pairs.verb, "sequences")
    there = pairs.resident()
    listed, together = (_LISTED, _TOGETHER) if engine.HOST else (_LISTED_THERE, _TOGETHER_THERE)
    step = max(1, min(shape[0], int(listed / max(1.0, share * shape[1]))))
    for begin in range(0, shape[0], step):
        end = min(begin + step, shape[0])
        for i, j in sieve.alike(begin, end):
            for some in range(0, len(i), together):
                a, b = (v[some : some + together] for v in (i, j))
                d = edit_distance(there.of(a, b), None)
                near = xp.flatnonzero(d <= limit)
                keep(a[near], b[near], d[near].astype(np.int32))
        if tick is not None:
            tick(float(end))


class _Sieve:
    """Rows of bits for sequences: those of two similar sequences differ in few bits.

    A bit says whether a letter, or two of them side by side, occurs so often. Each insertion,
    deletion or substitution changes at most two numbers of letters and four of neighbours by one
    (Ukkonen, 1992), and so six bits.
    """

    def __init__(self, pairs: _Pairs, limit: int, same: bool) -> None:
        self.engine, self.same, self.both = pairs.call.engine, same, pairs.both
        self.limit = limit
        some = [
            self._counts(s, _evenly(len(s.starts), min(_SAMPLE, self._step(s))))
            for s in self.both[: 2 - same]
        ]
        count = np.minimum(self.engine.to_host(self.engine.xp.concatenate(some)), _LEVELS)
        each = (count * _FEATURES + np.arange(_FEATURES)).ravel()
        each = np.bincount(each, minlength=(_LEVELS + 1) * _FEATURES).reshape(-1, _FEATURES)
        part = each[:0:-1].cumsum(axis=0)[::-1] / len(count)  # that have at least so many
        spread = (part * (1 - part)).ravel()
        best = np.argsort(-spread, kind="stable")[:_BITS]
        level, feature = np.unravel_index(best[spread[best] > 0], part.shape)
        self.columns, self.level = len(level), self.engine.xp.asarray(level + 1)
        self.used, place = np.unique(feature, return_inverse=True)
        self.feature = self.engine.xp.asarray(place)
        self.radius = _CHANGED * limit / max(1, self.columns)
        self.bits = [self._bits(s) for s in self.both[: 2 - same]]
        self.lengths = [self.engine.xp.asarray(s.lengths) for s in self.both]

    def _step(self, s: Ragged) -> int:
        """How many sequences are counted at a time."""
        return max(1, _COUNTED // max(_FEATURES, s.longest))

    def _counts(self, s: Ragged, rows: Array, used: Array | None = None) -> Array:
        """How often sequences have each letter and each two neighbours, by their remainders."""
        xp, kinds = self.engine.xp, _FEATURES if used is None else len(used)
        place = np.full(_FEATURES, -1)
        place[slice(None) if used is None else used] = np.arange(kinds)
        place, length = xp.asarray(place), s.lengths[rows]
        total = int(length.sum())
        row = xp.asarray(np.repeat(np.arange(len(rows)), length))
        at = np.repeat(s.starts[rows] - np.cumsum(length) + length, length)
        code = s.entries[xp.asarray(at) + xp.arange(total)].astype(np.int64)
        beside = row[1:] == row[:-1]
        two = _LETTERS + (code[:-1] * 31 + code[1:])[beside] % (_FEATURES - _LETTERS)
        kind = place[xp.concatenate([code % _LETTERS, two])]
        row = xp.concatenate([row, row[1:][beside]])
        place = (row * kinds + kind)[kind >= 0]
        if not len(place):
            return xp.zeros((len(rows), kinds), np.int64)
        return xp.bincount(place, minlength=len(rows) * kinds).reshape(len(rows), kinds)

    def _bits(self, s: Ragged) -> Array:
        xp, n = self.engine.xp, len(s.starts)
        words = max(1, -(-self.columns // 64))
        out = xp.zeros((n, 8 * words), np.uint8)
        step = self._step(s)
        for begin in range(0, n if self.columns else 0, step):
            rows = np.arange(begin, min(begin + step, n))
            count = xp.minimum(self._counts(s, rows, self.used), _LEVELS).astype(np.uint8)
            packed = self.engine.pack_bits(count[:, self.feature] >= self.level)
            out[rows[0] : rows[-1] + 1, : packed.shape[1]] = packed
        return out.view(np.uint64)

    def _within(self, x: Array, y: Array, *, itself: bool, lists: bool) -> tuple[Array, Any]:
        return self.engine.bit_rows.within(
            "hamming", max(1, self.columns), x, y, self.radius, itself, lists
        )

    def share(self) -> float:
        """Which part of the pairs are alike, by a sample."""
        x, y = self.bits[0], self.bits[-1]
        some = x[self.engine.xp.asarray(_evenly(len(x), 64))]
        counts, _ = self._within(some, y, itself=False, lists=False)
        return float(counts.sum()) / (len(some) * len(y))

    def alike(self, begin: int, end: int) -> Iterator[tuple[Array, Array]]:
        """The pairs of some of the first sequences that may be near each other."""
        xp, x, y = self.engine.xp, self.bits[0], self.bits[-1]
        first, second = self.lengths
        whole = self.same and end - begin == len(x)
        start = begin if self.same else 0
        some = x if whole else x[begin:end]
        _, parts = self._within(some, x if whole else y[start:], itself=whole, lists=True)
        for i, j, _ in parts:
            i, j = i + begin, j + start
            near = xp.abs(first[i] - second[j]) <= self.limit
            if self.same and not whole:
                near &= i < j
            yield i[near], j[near]


def _evenly(n: int, most: int) -> NDArray[np.int64]:
    return np.linspace(0, n - 1, min(n, most)).astype(np.int64)


_SAMPLE = 1024  # sequences by which bits are chosen
_LETTERS, _FEATURES = 64, 320  # remainders of letters, and with those of neighbours
_LEVELS = 255  # of their numbers
_BITS = 512
_CHANGED = 6  # bits that an edit changes, at most
_COUNTED = 1 << 22  # numbers at a time
_FEW = 1 << 17  # pairs of which all are compared at once
_ALIKE = 0.02  # of all pairs, from which comparing all takes less time, by groups of pairs,
_LONG, _GAIN = 100, 20.0  # which gain less where sequences are longer, and in the end nothing
_LISTED = 1 << 23  # pairs that are alike, at a time
_BEGIN = np.zeros(1, np.int64)  # where a single sequence starts
_TOGETHER = 1 << 20  # pairs
_LISTED_THERE, _TOGETHER_THERE = 1 << 25, 1 << 23  # on a device
_PAIR = 64  # bytes of one that is found, while all are put in order
_METRICS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (edit_distance, dtw, needleman_wunsch, smith_waterman)
}


def _into(out: Array) -> Callable[[Array, Array, Array], None]:
    """What puts blocks of distances in their places."""

    def take(i: Array, j: Array, d: Array) -> None:
        out[i[:, np.newaxis], j] = d.T

    return take


def _scores(
    verb: str, x: Any, y: Any, match: float, mismatch: float, gap: float, gap_open: float,
    matrix: Any, band: int | None, lengths: Any, device: str | None, progress: Progress, *,
    return_path: bool, local: bool = False, ends: int = 0,
) -> Any:  # fmt: skip
    numbers: dict[str, Any] = {
        "match": match, "mismatch": mismatch, "gap": gap, "gap_open": gap_open,
    }  # fmt: skip
    for name, value in numbers.items():
        if not isinstance(value, (int, float, np.number)) or not math.isfinite(value):
            raise ValueError(f"{verb}: {name} is a finite number, got {value!r}")
    if gap > 0 or gap_open > 0:
        raise ValueError(f"{verb}: gaps score at most 0, got gap={gap}, gap_open={gap_open}")
    table, alphabet = None, ""
    if isinstance(matrix, str):
        matrix, alphabet = _named(verb, matrix)
    if matrix is not None:
        table = -np.asarray(matrix, np.float64)
        if table.ndim != 2 or table.shape[0] != table.shape[1] or not np.isfinite(table).all():
            raise ValueError(f"{verb}: matrix is square and finite, got shape {table.shape}")
    kind = "equal" if table is None else "table"
    rule = AlignmentRule("f8", kind, affine=gap_open != 0, local=local, ends=ends)
    with _pairs(verb, x, y, _code, device, lengths, progress) as pairs:
        shown = pairs.both
        if alphabet:
            pairs = pairs.numbered(alphabet)
        elif table is not None:
            for name, s in zip("xy", (s.entries for s in pairs.both), strict=True):
                if len(s) and int(s.view(np.uint32).max()) >= len(table):
                    beyond = s[(s < 0) | (s >= len(table))]
                    raise ValueError(
                        f"{verb}: with matrix= entries are whole numbers from 0 to "
                        f"{len(table) - 1}, got {int(beyond[0])} in {name}; letters are their code "
                        f"points: number them, for example ['ACGT'.index(c) for c in {name}]"
                    )
        gaps = [-gap_open, -gap, -match, -mismatch]
        if return_path:
            return pairs.trace(rule, band, gaps, table, shown, score=lambda cost: 0.0 - cost)
        if pairs.narrow(gaps, table):
            rule = rule._replace(dtype="f4")
        found, _ = pairs.align(rule, band, gaps, table)
        return pairs.give(pairs.xp.subtract(0.0, found, dtype=np.float64))


def _edits(cost: float) -> int:
    return -1 if math.isinf(cost) else int(cost)


_EDITS = [0.0, 1.0, 0.0, 1.0]  # what the numbers of gaps and entries are for edit distances
_ENDS = {"x_start": 1, "x_end": 2, "y_start": 4, "y_end": 8, "x": 3, "y": 12}


def _ends(verb: str, given: Any) -> int:
    """Free ends as the bits of a rule."""
    if given is None:
        return 0
    names = [given] if isinstance(given, str) or not hasattr(given, "__iter__") else [*given]
    if not all(isinstance(name, str) and name in _ENDS for name in names):
        raise ValueError(f"{verb}: free_ends are of {', '.join(_ENDS)}; got {given!r}")
    return functools.reduce(operator.or_, map(_ENDS.__getitem__, names), 0)


def _named(verb: str, name: str) -> tuple[Array, str]:
    """A matrix of Biopython's, and its letters."""
    try:
        from Bio.Align import substitution_matrices
    except ImportError:
        raise ImportError(
            f"{verb}: matrix={name!r} is read from Biopython: pip install biopython"
        ) from None
    load: Any = substitution_matrices.load  # without types
    known = load()
    if name not in known:
        raise ValueError(f"{verb}: matrix is an array or one of {', '.join(known)}; got {name!r}")
    found = load(name)
    if not isinstance(found.alphabet, str):
        raise ValueError(f"{verb}: matrix {name} is of {found.alphabet[0]!r} and such, not letters")
    return np.array(found, np.float64), found.alphabet


# --- sequences in, costs out ----------------------------------------------------------------------


@dataclass
class _Pairs:
    """As many first as second sequences, checked."""

    verb: str
    call: Call
    both: tuple[Ragged, Ragged]
    many: bool
    progress: Progress
    given: tuple[Any, Any] = (None, None)  # what they were made of
    inner: bool = False  # some pairs of a larger call, which converts the results

    @property
    def xp(self) -> Any:
        return self.call.engine.xp

    def align(
        self, rule: AlignmentRule, band: int | None, gaps: list[float],
        table: NDArray[Any] | None = None,
        *, keep: bool = False,
    ) -> tuple[Array, Array | None]:  # fmt: skip
        """The cost of each pair, and a path."""
        limit = self._limit(band)
        dtype = np.dtype(rule.dtype)
        kind = dtype if rule.warp else np.dtype(np.int32)
        x, y = self.both
        x, y = self._of_kind(x, kind), self._of_kind(y, kind)
        if not len(x.starts):
            return self.xp.zeros(0, dtype), None
        if table is not None:
            table = np.ascontiguousarray(table, dtype)
        if keep and self.call.engine.HOST:
            longest = max(x.longest, y.longest)
            what = f"{self.verb}: the table of return_path for {longest:,} points"
            check_memory(
                2 * longest * longest * dtype.itemsize, what, less="leave return_path out,"
            )
        tick = self._tick(limit)
        found, path = self.call.engine.align(rule, x, y, limit, gaps, table, keep=keep, tick=tick)
        if keep and limit is not None and abs(x.lengths[0] - y.lengths[0]) > limit:
            path = np.empty((0, 2), np.int64)  # there is none
        return found, path

    def _of_kind(self, s: Ragged, kind: np.dtype[Any]) -> Ragged:
        if s.entries.dtype == kind and s.entries.flags.c_contiguous:
            return s
        return s._replace(entries=self.xp.ascontiguousarray(s.entries.astype(kind, copy=False)))

    def _limit(self, band: int | None) -> int | None:
        limit = None if band is None else integer(band, f"{self.verb}: band", " or None")
        if limit is not None and limit < 0:
            raise ValueError(f"{self.verb}: band must be at least 0, got {band}")
        return limit

    def trace(
        self, rule: AlignmentRule, band: int | None, gaps: list[float], table: Array | None = None,
        shown: tuple[Ragged, Ragged] | None = None, *, score: Callable[[float], Any],
    ) -> Any:  # fmt: skip
        """The alignment of each pair; `shown` has the entries before they were numbered."""
        if not self.call.engine.HOST:
            raise ValueError(
                f"{self.verb}: return_path is computed on the host: take the sequences there, or "
                "leave device= out"
            )
        limit = self._limit(band)
        tick, count = self._tick(limit), len(self.both[0].starts)
        if table is not None:
            table = np.ascontiguousarray(table, np.float64)

        def tell(part: float) -> None:
            if tick is not None:
                tick((len(found) + part) / count)

        found: list[Alignment] = []
        for k in range(count):
            x, y = (_entries(s, k) for s in self.both)
            first, second = (
                bytes(v) if isinstance(v, (bytes, bytearray)) else v if isinstance(v, str) else own
                for v, own in zip(
                    (v[k] if self.many else v for v in self.given),
                    (_entries(s, k) for s in shown or self.both), strict=True,
                )
            )  # fmt: skip
            cost, one = trace(rule, x, y, limit, gaps, table, (first, second), self.verb, tell)
            found.append(replace(one, score=score(cost)))
        return found if self.many else found[0]

    def numbered(self, alphabet: str) -> _Pairs:
        """Letters as their places in an alphabet."""
        codes = np.frombuffer(alphabet.encode("utf-32-le"), np.int32)
        places = np.full(int(codes.max()) + 2, -1, np.int32)
        places[codes] = np.arange(len(codes))
        places = self.xp.asarray(places)
        both = []
        for name, s in zip("xy", self.both, strict=True):
            found = places[self.xp.clip(s.entries, -1, len(places) - 1)]
            if len(found) and int(found.min()) < 0:
                beyond = s.entries[found < 0]
                raise ValueError(
                    f"{self.verb}: letters of the matrix are {alphabet!r}, got "
                    f"{chr(int(beyond[0]) % 0x110000)!r} in {name}"
                )
            both.append(s._replace(entries=found))
        return replace(self, both=(both[0], both[1]))

    def narrow(self, gaps: list[float], table: Array | None) -> bool:
        """Whether all costs are exact in float32: eighths whose sums have few digits."""
        costs = np.abs(gaps if table is None else np.append(table, gaps)) * 8
        steps = sum(s.longest for s in self.both) + 2
        most = steps * (costs.max() + 8 * abs(gaps[0]))
        return bool(most < 1 << 24) and not (costs % 1).any()

    def resident(self) -> _Pairs:
        """The same with the places of sequences of codes where these are, to choose many pairs."""
        first, second = (
            s._replace(starts=self.xp.asarray(s.starts), lengths=self.xp.asarray(s.lengths))
            for s in self.both
        )
        return replace(self, both=(first, second))

    def of(self, i: Array, j: Array) -> _Pairs:
        """The pairs of first sequences i and second ones j."""
        both = list[Ragged]()
        for s, k in zip(self.both, (i, j), strict=True):
            lengths, longest = s.lengths[k], s.longest
            if self.call.engine.HOST and len(k):
                longest = int(lengths.max())
            both.append(Ragged(s.entries, s.starts[k], lengths, longest))
        first, second = both
        return _Pairs(self.verb, self.call, (first, second), True, None, inner=True)

    def by_rows(self, cutoff: int | None, take: Callable[[Array, Array, Array], None]) -> bool:
        """Edit distances of all from all by the engine, if it has a way of its own."""
        run = self.call.engine.edit_rows
        if run is None:
            return False
        tick = reporter(self.progress, float(len(self.both[0].starts)), self.verb, "sequences")
        count = len(self.both[0].starts)
        return run(*self.both, cutoff, take, None if tick is None else lambda d: tick(d * count))

    def _tick(self, band: int | None) -> Callable[[float], None] | None:
        """What tells the progress, of the part of the work that is done."""
        if self.progress is None:
            return None
        rows, columns = (s.lengths.astype(np.float64) for s in self.both)
        cells = float((rows * columns).sum())
        if band is not None:
            cells -= float(_beyond(rows, columns, band).sum() + _beyond(columns, rows, band).sum())
        total = max(1.0, cells)
        tick = reporter(self.progress, total, self.verb, "cells")
        if tick is None:
            return None
        tick(0.0)
        return lambda part: tick(part * total)

    def give(self, found: Array) -> Any:
        if self.inner:
            return found
        return self.call.give(found if self.many else found[0])


def _entries(s: Ragged, k: int) -> Array:
    """The codes of a sequence."""
    begin = int(s.starts[k])
    return np.ascontiguousarray(s.entries[begin : begin + int(s.lengths[k])], np.int32)


def _beyond(rows: Array, columns: Array, band: int) -> Array:
    """How many cells (i, j) of tables have i - j > band."""
    last = np.maximum(rows - band - 1, 0)  # columns of the last row, if there are so many
    more = np.maximum(last - columns, 0)
    return (last * (last + 1) - more * (more + 1)) / 2


@contextlib.contextmanager
def _pairs(
    verb: str, x: Any, y: Any, read: Callable[[str, str, Array, bool], Array], device: str | None,
    lengths: Any, progress: Progress, *, every: bool = False,
) -> Iterator[_Pairs]:  # fmt: skip
    reporter(progress, 1.0)  # the argument's own errors come first
    if lengths is not None and not (isinstance(lengths, (tuple, list)) and len(lengths) == 2):
        raise ValueError(f"{verb}: lengths are two arrays, of x and of y, or None, got {lengths!r}")
    if isinstance(x, _Pairs):  # of all from all, some
        yield x
        return
    sides = [
        _Side(verb, name, s, read, own, every)
        for name, s, own in zip("xy", (x, y), lengths or (None, None), strict=True)
    ]
    if sides[0].many != sides[1].many:
        raise ValueError(f"{verb} takes two sequences, or several of each: one and several came")
    with Call(device, **sides[0].given, **sides[1].given) as call:
        first, second = (side.sequences(call) for side in sides)
        if every and not sides[0].many:
            raise ValueError(f"{verb} takes lists of sequences, or stacks; single ones came")
        if not every and len(first.starts) != len(second.starts):
            raise ValueError(
                f"{verb} takes as many sequences of each, got {len(first.starts)} and "
                f"{len(second.starts)}"
            )
        yield _Pairs(verb, call, (first, second), sides[0].many, progress, (x, y))


class _Side:
    """The first sequences, or the second ones: a single one, a list of them, or a stack.

    Attributes
    ----------
    given : dict
        The operands by their names in messages: all sequences in one array where that can be
        made at once, else each.
    many : bool
        Whether they are more than a single one.
    """

    def __init__(
        self, verb: str, name: str, x: Any, read: Callable[[str, str, Array, bool], Array],
        lengths: Any, every: bool = False,
    ) -> None:  # fmt: skip
        if every and read is _series and getattr(x, "ndim", 0) == 2:
            x = x[..., None]  # series of one feature
        self._none = every and isinstance(x, (list, tuple)) and not x
        self._verb, self._name, self._read, self._given_lengths = verb, name, read, lengths
        self._every = every
        self._lengths: Array | None = None  # of a list in one array
        letters = read is _code
        listed = isinstance(x, (list, tuple)) and any(map(_long, x))
        self._stack = getattr(x, "ndim", 0) == (2 if letters else 3)
        self.many = listed or self._stack or self._none
        if lengths is not None and not self._stack:
            raise ValueError(f"{verb}: lengths are for stacks, and {name} is none")
        self.given = {name: _codes_of(x) if letters else x}
        if listed:
            whole, self._lengths = _joined(x, letters)
            if whole is not None:
                self.given = {name: whole}
            else:
                own = map(_codes_of, x) if letters else x
                self.given = {f"{name}[{i}]": v for i, v in enumerate(own)}
        for place, v in self.given.items():
            if v is None:
                raise TypeError(f"{verb}: {place} is a sequence, or several, got None")

    def sequences(self, call: Call) -> Ragged:
        """The sequences where they are aligned."""
        xp = call.engine.xp
        if self._stack:
            return self._of_stack(xp, call[self._name])
        found = [self._read(self._verb, name, call[name], False) for name in self.given]
        if not self.many:
            return Ragged(found[0], _BEGIN, np.array([len(found[0])]), len(found[0]), True)
        lengths = self._lengths
        if lengths is None:
            lengths = np.fromiter(map(len, found), np.int64, len(found))
        starts = lengths.cumsum() - lengths
        longest = int(lengths.max())
        if self._none:
            return Ragged(found[0], starts[:0], lengths[:0], 0)
        if len(found) == 1:
            return Ragged(found[0], starts, lengths, longest)
        features = {s.shape[1:] for s in found if len(s)}
        if len(features) > 1:
            raise ValueError(
                f"{self._verb}: all series have as many features, got "
                f"{sorted(n for (n,) in features)}"
            )
        some = [s for s in found if len(s)] or found[:1]
        return Ragged(xp.concatenate(some), starts, lengths, longest)

    def _of_stack(self, xp: Any, stack: Array) -> Ragged:
        pairs, most = stack.shape[:2]
        even = self._given_lengths is None
        # where all pairs are as they lie, what says so is made on the device
        lib = xp if even and stack.ndim == 2 and not self._every else np
        if even:
            lengths = lib.full(pairs, most, np.int64)
        else:  # zeros behind the ends are entries like others
            lengths = as_lengths(self._given_lengths, (pairs,), most, self._verb)
            inside = xp.arange(most) < xp.asarray(lengths)[:, np.newaxis]
            inside = inside.reshape(inside.shape + (1,) * (stack.ndim - 2))
            stack = xp.where(inside, stack, stack.dtype.type(0))
        entries = self._read(self._verb, self._name, stack, True)
        starts = lib.arange(pairs, dtype=np.int64) * most
        entries = entries.reshape(pairs * most, *entries.shape[2:])
        return Ragged(entries, starts, lengths, most, even)


def _long(x: Any) -> bool:
    """Whether an entry of a list is a sequence."""
    return isinstance(x, (str, bytes)) or bool(getattr(x, "ndim", None) or np.ndim(x) > 0)


def _joined(x: Sequence[Any], letters: bool) -> tuple[Array | None, Array | None]:
    """Sequences one after the other and their lengths, where they are of one kind."""
    kinds = set(map(type, x))
    whole: Any = None
    try:
        lengths = np.fromiter(map(len, x), np.int64, len(x))
        if letters and kinds == {str}:
            whole = _codes_of("".join(x))
        elif letters and kinds <= {bytes, bytearray}:
            whole = _codes_of(b"".join(x))
        else:
            some = x if lengths.all() else [s for s in x if len(s)] or x[:1]
            whole = joined(list(map(np.asarray, some)) if kinds <= {list, tuple} else some)
    except (TypeError, ValueError):  # of no length, or lists that are no arrays
        pass
    return whole, None if whole is None else lengths


def _codes_of(x: Any) -> Any:
    """Letters as whole numbers; other sequences as they are."""
    if isinstance(x, str):
        return np.frombuffer(x.encode("utf-32-le", "surrogatepass"), np.int32)
    if isinstance(x, (bytes, bytearray)):
        return np.frombuffer(x, np.uint8)
    return x


def _series(verb: str, name: str, x: Array, stack: bool) -> Array:
    if x.size == 0 and x.ndim == 1:
        return x.reshape(0, 1).astype(np.float32 if x.dtype == np.float32 else np.float64)
    if x.dtype.kind not in "fiub" or x.ndim not in ((3,) if stack else (1, 2)):
        raise TypeError(
            f"{verb}: a series is of real numbers, shape (n,) or (n, d), and a stack of them "
            f"(pairs, n, d); got {name} of {x.dtype}, shape {x.shape}"
        )
    if x.dtype not in (np.float64, np.float32):
        x = x.astype(np.float64)
    return x[:, np.newaxis] if x.ndim == 1 else x


def _code(verb: str, name: str, x: Array, stack: bool) -> Array:
    if x.size == 0 and x.ndim == 1:
        return x.astype(np.int32)
    if x.dtype.kind not in "iu" or x.ndim != 1 + stack:
        raise TypeError(
            f"{verb}: a sequence is a string, bytes or whole numbers, and a stack of them "
            f"(pairs, n); got {name} of {x.dtype}, shape {x.shape}"
        )
    narrow = x.astype(np.int32, copy=False)
    if (x.dtype.itemsize > 4 or x.dtype == np.uint32) and bool((narrow != x).any()):
        raise ValueError(f"{verb}: entries are numbers of 32 bits, and some of {name} are not")
    return narrow
