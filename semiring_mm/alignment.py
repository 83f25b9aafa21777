"""Alignments of pairs of sequences: dynamic time warping, edit distance, alignment scores.

>>> from semiring_mm import alignment
>>> alignment.edit_distance("kitten", "sitting")
3
>>> alignment.dtw([0, 1, 2, 2, 1], [0, 0, 1, 2, 1])
np.float64(0.0)
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .arrays import Call, where
from .engine import AlignmentRule

__all__ = ["dtw", "edit_distance", "needleman_wunsch", "smith_waterman"]

Array = Any


def dtw(
    x: Any,
    y: Any,
    *,
    cost: str = "absolute",
    band: int | None = None,
    return_path: bool = False,
    device: str | None = None,
) -> Any:
    """Dynamic time warping: the least cost of aligning two series, each point with one or more.

    Parameters
    ----------
    x, y : array_like, shape (n,) or (n, d), or a list of such arrays
        Two series, of d features at each time; or two lists of as many, which are paired. Their
        lengths may differ.
    cost : {"absolute", "squared"}
        Of two points: the sum over features of ``abs(x - y)`` or of ``(x - y)**2``. The square root
        of the latter's total is what dtaidistance and tslearn return.
    band : int, optional
        Only points with ``|i - j| <= band`` are aligned (Sakoe and Chiba, 1978).
    return_path : bool, default False
        Also return an alignment of that cost; of two series.
    device : {None, "cpu", "cuda", "cuda:N"}
        Where to run. None: where the series live.

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
    spread over the threads; on a device all are one launch, and arrays there give arrays there.
    float32 is computed with as such, all else in float64.

    Examples
    --------
    >>> from semiring_mm import alignment
    >>> distance, path = alignment.dtw([0, 3, 4], [0, 0, 3, 5], return_path=True)
    >>> distance, path.tolist()
    (np.float64(1.0), [[0, 0], [0, 1], [1, 2], [2, 3]])
    >>> alignment.dtw([[1, 2, 3], [5]], [[1, 2], [7, 7]], cost="squared")
    array([1., 8.])
    """
    if cost not in ("absolute", "squared"):
        raise ValueError(f'dtw: cost is "absolute" or "squared", got {cost!r}')
    with _pairs("dtw", x, y, _series, device) as pairs:
        if return_path and pairs.many:
            raise ValueError("dtw: return_path is for two series, not for lists of them")
        features = {s.shape[1] for s in pairs.all}
        if len(features) > 1:
            raise ValueError(f"dtw: all series have as many features, got {sorted(features)}")
        narrow = all(s.dtype == np.float32 for s in pairs.all)
        rule = AlignmentRule("f4" if narrow else "f8", cost, warp=True)
        found, path = pairs.align(rule, band, [0.0] * 4, keep=return_path)
        distance = pairs.give(found)
    return (distance, path) if return_path else distance


def edit_distance(x: Any, y: Any, *, band: int | None = None, device: str | None = None) -> Any:
    """The least number of insertions, deletions and substitutions from one sequence to another.

    Parameters
    ----------
    x, y : str, bytes or array_like of int, or a list of such
        Two sequences, or two lists of as many, which are paired.
    band : int, optional
        Only alignments within ``|i - j| <= band``: distances of at most `band` are right, others
        are not less than they are.
    device : {None, "cpu", "cuda", "cuda:N"}
        As for :func:`dtw`.

    Returns
    -------
    int, or ndarray of int64 with one for each pair
        -1 where the lengths differ by more than the band.

    Raises
    ------
    ValueError, TypeError
        For lists of different lengths, and entries that are not whole numbers.

    Notes
    -----
    Levenshtein's distance (1966), in O(n m) as of :func:`dtw`.

    Examples
    --------
    >>> from semiring_mm import alignment
    >>> alignment.edit_distance(["night", "GATTACA"], ["nacht", "GCATGCU"])
    array([2, 4])
    """
    with _pairs("edit_distance", x, y, _code, device) as pairs:
        found, _ = pairs.align(AlignmentRule("f4", "equal"), band, [0, 1, 0, 1])
        whole = pairs.xp.where(pairs.xp.isinf(found), -1, found).astype(np.int64)
        return pairs.give(whole) if pairs.many else int(whole[0])


def needleman_wunsch(
    x: Any,
    y: Any,
    *,
    match: float = 1,
    mismatch: float = -1,
    gap: float = -1,
    gap_open: float = 0,
    matrix: ArrayLike | None = None,
    band: int | None = None,
    device: str | None = None,
) -> Any:
    """The best score of a global alignment (Needleman and Wunsch, 1970).

    Parameters
    ----------
    x, y : str, bytes or array_like of int, or a list of such
        Two sequences, or two lists of as many, which are paired.
    match, mismatch : float, default 1 and -1
        What two equal entries score, and two different ones.
    gap, gap_open : float, default -1 and 0
        What each entry that is left out scores, and the first of several in a row besides.
    matrix : array_like, shape (letters, letters), optional
        The score of entries i and j, of sequences of whole numbers, in place of `match` and
        `mismatch`.
    band : int, optional
        Only alignments within ``|i - j| <= band``.
    device : {None, "cpu", "cuda", "cuda:N"}
        As for :func:`dtw`.

    Returns
    -------
    float, or ndarray of float64 with one for each pair
        -inf where the lengths differ by more than the band.

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
    """
    return _scores(
        "needleman_wunsch", x, y, match, mismatch, gap, gap_open, matrix, band, device, local=False
    )


def smith_waterman(
    x: Any,
    y: Any,
    *,
    match: float = 1,
    mismatch: float = -1,
    gap: float = -1,
    gap_open: float = 0,
    matrix: ArrayLike | None = None,
    band: int | None = None,
    device: str | None = None,
) -> Any:
    """The best score of a local alignment: of any part of one and of the other sequence.

    Parameters
    ----------
    x, y, match, mismatch, gap, gap_open, matrix, band, device
        As for :func:`needleman_wunsch`, which has the errors too.

    Returns
    -------
    float, or ndarray of float64 with one for each pair
        At least 0, the score of nothing.

    Notes
    -----
    Smith and Waterman (1981), O(n m).

    Examples
    --------
    >>> from semiring_mm import alignment
    >>> alignment.smith_waterman("TGTTACGG", "GGTTGACTA", match=3, mismatch=-3, gap=-2)
    np.float64(13.0)
    """
    return _scores(
        "smith_waterman", x, y, match, mismatch, gap, gap_open, matrix, band, device, local=True
    )


def _scores(
    verb: str, x: Any, y: Any, match: float, mismatch: float, gap: float, gap_open: float,
    matrix: Any, band: int | None, device: str | None, *, local: bool,
) -> Any:  # fmt: skip
    numbers: dict[str, Any] = {
        "match": match, "mismatch": mismatch, "gap": gap, "gap_open": gap_open,
    }  # fmt: skip
    for name, value in numbers.items():
        if not isinstance(value, (int, float, np.number)) or not math.isfinite(value):
            raise ValueError(f"{verb}: {name} is a finite number, got {value!r}")
    if gap > 0 or gap_open > 0:
        raise ValueError(f"{verb}: gaps score at most 0, got gap={gap}, gap_open={gap_open}")
    table = None
    if matrix is not None:
        table = -np.asarray(matrix, np.float64)
        if table.ndim != 2 or table.shape[0] != table.shape[1] or not np.isfinite(table).all():
            raise ValueError(f"{verb}: matrix is square and finite, got shape {table.shape}")
    kind = "equal" if table is None else "table"
    rule = AlignmentRule("f8", kind, affine=gap_open != 0, local=local)
    with _pairs(verb, x, y, _code, device) as pairs:
        if table is not None:
            for s in pairs.all:
                if s.size and not (s.min() >= 0 and s.max() < len(table)):
                    raise ValueError(
                        f"{verb}: entries are from 0 to {len(table) - 1}, where the matrix has "
                        f"scores"
                    )
        found, _ = pairs.align(rule, band, [-gap_open, -gap, -match, -mismatch], table)
        return pairs.give(0.0 - found)


# --- sequences in, costs out ----------------------------------------------------------------------


@dataclass(frozen=True)
class _Pairs:
    """Two sequences, or two lists of as many, as checked arrays."""

    verb: str
    call: Call
    first: list[Array]
    second: list[Array]
    many: bool

    @property
    def all(self) -> list[Array]:
        return [*self.first, *self.second]

    @property
    def xp(self) -> Any:
        return self.call.engine.xp

    def align(
        self, rule: AlignmentRule, band: int | None, gaps: list[float], table: Array | None = None,
        *, keep: bool = False,
    ) -> tuple[Array, Array | None]:  # fmt: skip
        """The cost of each pair, and a path."""
        if band is not None and (isinstance(band, bool) or not isinstance(band, (int, np.integer))):
            raise TypeError(f"{self.verb}: band is a whole number or None, got {band!r}")
        if band is not None and band < 0:
            raise ValueError(f"{self.verb}: band must be at least 0, got {band}")
        dtype = np.dtype(rule.dtype)
        if not self.first:
            return self.xp.zeros(0, dtype), None
        rows, columns = (
            np.array([len(s) for s in part], np.int64) for part in (self.first, self.second)
        )
        kind = dtype if rule.warp else np.dtype(np.int32)
        x, y = (self._flat(part, kind) for part in (self.first, self.second))
        if table is not None:
            table = self.call.engine.from_host(np.ascontiguousarray(table, dtype))
        limit = None if band is None else int(band)
        found, path = self.call.engine.align(
            rule, x, y, rows, columns, limit, gaps, table, keep=keep
        )
        if keep and limit is not None and abs(rows[0] - columns[0]) > limit:
            path = np.empty((0, 2), np.int64)  # there is none
        return found, path

    def _flat(self, part: list[Array], dtype: np.dtype[Any]) -> Array:
        """All sequences one after the other, where they are aligned."""
        if not self.call.moved:
            return self.xp.concatenate(part).astype(dtype, copy=False)
        return self.call.engine.from_host(np.concatenate(part).astype(dtype, copy=False))

    def give(self, found: Array) -> Any:
        return self.call.give(found if self.many else found[0])


@contextlib.contextmanager
def _pairs(
    verb: str, x: Any, y: Any, read: Callable[[str, str, Array], Array], device: str | None
) -> Iterator[_Pairs]:
    many = [_several(s) for s in (x, y)]
    if many[0] != many[1]:
        raise ValueError(f"{verb} takes two sequences, or two lists of them: one of each came")
    groups = {
        name: s if several else [s] for name, s, several in zip("xy", (x, y), many, strict=True)
    }
    count, other = map(len, groups.values())
    if count != other:
        raise ValueError(f"{verb} takes two lists of as many sequences, got {count} and {other}")
    given = {
        f"{name}[{i}]" if many[0] else name: _codes_of(v) if read is _code else v
        for name, group in groups.items()
        for i, v in enumerate(group)
    }
    there = any(where(v, name) is not None for name, v in given.items())
    # sequences of the host move to a device together
    with Call(device, **(given if there else {})) as call:
        found = [
            read(verb, name, call[name] if there else np.asarray(v)) for name, v in given.items()
        ]
        yield _Pairs(verb, call, found[:count], found[count:], many[0])


def _several(x: Any) -> bool:
    """Whether x is a list of sequences: a list or tuple whose entries have a length."""
    return isinstance(x, (list, tuple)) and any(
        isinstance(v, (str, bytes)) or getattr(v, "ndim", None) or np.ndim(v) > 0 for v in x
    )


def _codes_of(x: Any) -> Any:
    """Letters as whole numbers; other sequences as they are."""
    if isinstance(x, str):
        return np.frombuffer(x.encode("utf-32-le"), np.int32)
    if isinstance(x, (bytes, bytearray)):
        return np.frombuffer(x, np.uint8).astype(np.int32)
    return x


def _series(verb: str, name: str, x: Array) -> Array:
    if x.size == 0 and x.ndim == 1:
        return x.reshape(0, 1).astype(np.float32 if x.dtype == np.float32 else np.float64)
    if x.dtype.kind not in "fiub" or x.ndim not in (1, 2):
        raise TypeError(
            f"{verb}: a series is of real numbers, shape (n,) or (n, d); got {name} of {x.dtype}, "
            f"shape {x.shape}"
        )
    if x.dtype != np.float32:
        x = x.astype(np.float64)
    return x[:, np.newaxis] if x.ndim == 1 else x


def _code(verb: str, name: str, x: Array) -> Array:
    if x.size == 0 and x.ndim == 1:
        return x.astype(np.int32)
    info = np.iinfo(np.int32)
    if x.dtype.kind not in "iu" or x.ndim != 1:
        raise TypeError(
            f"{verb}: a sequence is a string, bytes or whole numbers; got {name} of {x.dtype}, "
            f"shape {x.shape}"
        )
    if x.min() < info.min or x.max() > info.max:
        raise ValueError(f"{verb}: entries are numbers of 32 bits, and some of {name} are not")
    return x.astype(np.int32)
