"""Alignments of pairs of sequences: dynamic time warping, edit distance, alignment scores.

>>> from semiring_mm import alignment
>>> alignment.edit_distance("kitten", "sitting")
3
>>> alignment.dtw([0, 1, 2, 2, 1], [0, 0, 1, 2, 1])
np.float64(0.0)
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .cpu import threads
from .cpu.wavefront import Rule, align, padding

__all__ = ["dtw", "edit_distance", "needleman_wunsch", "smith_waterman"]

Array = NDArray[Any]


def dtw(
    x: Any,
    y: Any,
    *,
    cost: str = "absolute",
    band: int | None = None,
    return_path: bool = False,
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

    Returns
    -------
    distance : float, or ndarray with one for each pair
        inf where the band is narrower than the lengths differ or one of two series is empty, 0 for
        two empty ones; NaN where an entry is.
    path : ndarray of int64, shape (steps, 2)
        Only with `return_path`: the pairs (i, j), from the first points to the last.

    Raises
    ------
    ValueError, TypeError
        For shapes that do not match, entries that are not real numbers, a negative band.

    Notes
    -----
    O(n m), with a band O(n band), in antidiagonals: O(n) memory, with a path O(n m). Pairs are
    spread over the threads. float32 is computed with as such, all else in float64.

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
    first, second, many = _pairs("dtw", x, y, _series)
    if return_path and many:
        raise ValueError("dtw: return_path is for two series, not for lists of them")
    features = {s.shape[1] for s in (*first, *second)}
    if len(features) > 1:
        raise ValueError(f"dtw: all series have as many features, got {sorted(features)}")
    kinds = {s.dtype for s in (*first, *second)}
    dtype = np.dtype(np.float32 if kinds == {np.dtype(np.float32)} else np.float64)
    rule = Rule(f"f{8 * dtype.itemsize}", cost, warp=True)
    found, kept = _run("dtw", rule, first, second, dtype, band, [0.0] * 4, keep=return_path)
    if return_path:
        return found[0], _path(kept, len(first[0]), len(second[0]))
    return found if many else found[0]


def edit_distance(x: Any, y: Any, *, band: int | None = None) -> Any:
    """The least number of insertions, deletions and substitutions from one sequence to another.

    Parameters
    ----------
    x, y : str, bytes or array_like of int, or a list of such
        Two sequences, or two lists of as many, which are paired.
    band : int, optional
        Only alignments within ``|i - j| <= band``: distances of at most `band` are right, others
        are not less than they are.

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
    found, one = _codes("edit_distance", Rule("f32", "equal"), x, y, band, [0, 1, 0, 1], None)
    whole = np.where(np.isinf(found), -1, found).astype(np.int64)
    return int(whole[0]) if one else whole


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
    return _scores("needleman_wunsch", x, y, match, mismatch, gap, gap_open, matrix, band, False)


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
) -> Any:
    """The best score of a local alignment: of any part of one and of the other sequence.

    Parameters
    ----------
    x, y, match, mismatch, gap, gap_open, matrix, band
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
    return _scores("smith_waterman", x, y, match, mismatch, gap, gap_open, matrix, band, True)


def _scores(
    verb: str, x: Any, y: Any, match: float, mismatch: float, gap: float, gap_open: float,
    matrix: Any, band: int | None, local: bool,
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
    rule = Rule("f64", "equal" if table is None else "table", affine=gap_open != 0, local=local)
    found, one = _codes(verb, rule, x, y, band, [-gap_open, -gap, -match, -mismatch], table)
    scores = 0.0 - found
    return scores[0] if one else scores


# --- sequences in, costs out ----------------------------------------------------------------------


def _several(x: Any) -> bool:
    """Whether x is a list of sequences: a list or tuple whose entries have a length."""
    return isinstance(x, (list, tuple)) and any(
        isinstance(v, (str, bytes)) or np.ndim(v) > 0 for v in x
    )


def _series(x: Any) -> Array:
    found = np.asarray(x)
    if found.size == 0 and found.ndim == 1:
        return np.zeros((0, 1), np.float32 if found.dtype == np.float32 else np.float64)
    if found.dtype.kind not in "fiub" or found.ndim not in (1, 2):
        raise TypeError(
            f"dtw: a series is of real numbers, shape (n,) or (n, d); got {found.dtype} of shape "
            f"{found.shape}"
        )
    if found.dtype != np.float32:
        found = found.astype(np.float64)
    return found[:, np.newaxis] if found.ndim == 1 else found


def _pairs(
    verb: str, x: Any, y: Any, read: Callable[[Any], Array]
) -> tuple[list[Array], list[Array], bool]:
    """The sequences of two lists of as many, or two alone, and whether lists came."""
    many = [_several(s) for s in (x, y)]
    first, second = (
        [read(v) for v in (s if m else [s])] for s, m in zip((x, y), many, strict=True)
    )
    if many[0] != many[1]:
        raise ValueError(f"{verb} takes two sequences, or two lists of them: one of each came")
    if len(first) != len(second):
        raise ValueError(
            f"{verb} takes two lists of as many sequences, got {len(first)} and {len(second)}"
        )
    return first, second, many[0]


def _code(verb: str, x: Any) -> Array:
    if isinstance(x, str):
        return np.frombuffer(x.encode("utf-32-le"), np.int32)
    if isinstance(x, (bytes, bytearray)):
        return np.frombuffer(x, np.uint8).astype(np.int32)
    found = np.asarray(x)
    if found.size == 0 and found.ndim == 1:
        return np.zeros(0, np.int32)
    info = np.iinfo(np.int32)
    if found.dtype.kind not in "iu" or found.ndim != 1:
        raise TypeError(
            f"{verb}: a sequence is a string, bytes or whole numbers; got {found.dtype} of shape "
            f"{found.shape}"
        )
    if found.min() < info.min or found.max() > info.max:
        raise ValueError(f"{verb}: entries are numbers of 32 bits")
    return found.astype(np.int32)


def _codes(
    verb: str, rule: Rule, x: Any, y: Any, band: int | None, gaps: list[float], table: Array | None
) -> tuple[Array, bool]:
    """Costs of sequences of codes, and whether it is one pair."""
    first, second, many = _pairs(verb, x, y, functools.partial(_code, verb))
    if table is not None:
        for s in (*first, *second):
            if s.size and not (s.min() >= 0 and s.max() < len(table)):
                raise ValueError(
                    f"{verb}: entries are from 0 to {len(table) - 1}, where the matrix has scores"
                )
    dtype = np.dtype(f"f{int(rule.dtype[1:]) // 8}")
    found, _ = _run(verb, rule, first, second, dtype, band, gaps, table)
    return found, not many


def _run(
    verb: str, rule: Rule, xs: list[Array], ys: list[Array], dtype: np.dtype[Any],
    band: int | None, gaps: list[float], table: Array | None = None, *, keep: bool = False,
) -> tuple[Array, Array]:  # fmt: skip
    """The cost of each pair, and with `keep` all antidiagonals of the only one."""
    if band is not None and (isinstance(band, bool) or not isinstance(band, (int, np.integer))):
        raise TypeError(f"{verb}: band is a whole number or None, got {band!r}")
    if band is not None and band < 0:
        raise ValueError(f"{verb}: band must be at least 0, got {band}")
    rows, columns = (np.array([len(s) for s in group], np.int64) for group in (xs, ys))
    more = padding(rule.dtype)
    longest = int(max(rows.max(initial=0), columns.max(initial=0)))
    width = longest + 2 * more
    if not xs:
        return np.zeros(0, dtype), np.zeros(0)
    numbers = rule.cost in ("absolute", "squared")
    out = np.empty(len(xs), dtype)
    # y lies backwards: entry j - 1 at width - j
    shape = (len(xs), xs[0].shape[1] if numbers else 1, width + more)
    x, y = (np.zeros(shape, dtype if numbers else np.int32) for _ in range(2))
    for i, (p, q) in enumerate(zip(xs, ys, strict=True)):
        x[i, :, : len(p)] = p.T
        y[i, :, width - len(q) : width] = q[::-1].T
    lines = longest * 2 + 4 if keep else 7
    kept = np.empty(0)
    fields = {
        "width": width, "band": 2 * width if band is None else min(int(band), 2 * width),
        "features": shape[1], "letters": 0 if table is None else len(table), "keep": keep,
        "x_batch": x.strides[0], "x_line": x.strides[1], "y_batch": y.strides[0],
        "y_line": y.strides[1], "rows": rows, "columns": columns, "x_codes": x, "y_codes": y,
        "x": x, "y": y, "out": out, "gaps": np.array(gaps, dtype),
        "table": None if table is None else np.ascontiguousarray(table, dtype),
    }  # fmt: skip
    if keep:
        kept = np.full((lines, width), np.inf, dtype)

    def part(first: int, last: int) -> None:
        room = kept if keep else np.full((lines, width), np.inf, dtype)
        align(rule, fields | {"first": first, "last": last, "room": room})

    work = int((rows * columns).sum())
    pieces = min(len(xs), 4 * threads.get_num_threads()) if work > 1 << 16 else 1
    cuts = np.linspace(0, len(xs), pieces + 1).astype(int).tolist()
    threads.run([functools.partial(part, i, j) for i, j in itertools.pairwise(cuts)])
    if band is not None and not rule.local:
        out[abs(rows - columns) > band] = np.inf
    return out, kept[2:]


def _path(kept: Array, n: int, m: int) -> Array:
    """From the last cell back: along the least of the three before; of equals along both.

    A line of `kept` is an antidiagonal, by the first index.
    """
    i, j, path = n, m, []
    while i and j:
        path.append((i - 1, j - 1))
        both, up, left = kept[i + j - 2, i - 1], kept[i + j - 1, i - 1], kept[i + j - 1, i]
        if both <= up and both <= left:
            i, j = i - 1, j - 1
        elif up <= left:
            i -= 1
        else:
            j -= 1
    return np.array(path[::-1], np.int64).reshape(-1, 2)
