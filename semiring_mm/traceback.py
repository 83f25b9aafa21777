"""Traceback of an alignment: which entries of two sequences stand together, as a CIGAR string."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import engine as engines
from . import pool
from .arrays import check_memory
from .engine import AlignmentRule
from .traceback_kernels import COLUMNS, fill, walk

__all__ = ["Alignment", "trace"]

INF = math.inf
_PIECE = 1 << 24  # cells in a call, between which Ctrl-C is seen
_TABLE = 1 << 30  # bytes of a table, at most
_UNASKED = 1 << 20  # bytes that are there
_OF_X, _OF_Y = COLUMNS[2:]


@dataclass(frozen=True)
class Alignment:
    """An alignment of two sequences: what ``return_path=True`` returns.

    Attributes
    ----------
    score : int or float
        What the function returns without `return_path`.
    cigar : str
        Runs of columns, as ``"3=1X2I"``: ``=`` of equal entries, ``X`` of different ones, ``I`` of
        entries of x alone, ``D`` of y alone. In SAM's words x is the query and y the reference.
    aligned : tuple of two str, bytes or list
        The aligned parts of x and of y, with a gap in place of each entry that is left out: "-", of
        bytes b"-", of other sequences None.
    start, end : tuple of int
        These parts are ``x[start[0]:end[0]]`` and ``y[start[1]:end[1]]``: all of both, unless the
        alignment is local or has free ends.

    Notes
    -----
    Where no alignment is within the band, there are no columns.
    """

    __module__ = "semiring_mm.alignment"

    score: Any
    cigar: str
    aligned: tuple[Any, Any]
    start: tuple[int, int]
    end: tuple[int, int]

    def __str__(self) -> str:
        """Both sequences, and between them where they are equal, if they are of letters."""
        first, second = (x.decode("latin-1") if isinstance(x, bytes) else x for x in self.aligned)
        if not isinstance(first, str) or not isinstance(second, str):
            return repr(self)
        marks = {"=": "|", "X": ".", "I": " ", "D": " "}
        return "\n".join([first, "".join(marks[kind] for kind in _columns(self.cigar)), second])


def _columns(cigar: str) -> str:
    """The letter of each column."""
    found, count = "", ""
    for c in cigar:
        if c.isdigit():
            count += c
        else:
            found, count = found + c * int(count), ""
    return found


def trace(
    rule: AlignmentRule, x: NDArray[np.int32], y: NDArray[np.int32], band: int | None,
    gaps: Sequence[float], table: Any, given: tuple[Any, Any], verb: str,
    tick: Callable[[float], None],
) -> tuple[float, Alignment]:  # fmt: skip
    """The cost of the best alignment of two sequences of codes, and that alignment.

    `given` are the sequences as they came, of whose entries the aligned ones are made; the score is
    left at the cost. Where there is no room for a byte of each cell, some rows of costs are kept,
    and those between two of them are computed again on the way back.
    """
    n, m = len(x), len(y)
    none = np.zeros(0, bool)
    nothing = _aligned(given[0][:0], none), _aligned(given[1][:0], none)
    nowhere = INF, Alignment(INF, "", nothing, (0, 0), (0, 0))
    if band is not None and abs(n - m) > band and not rule.local and not rule.ends:
        return nowhere
    band = n + m if band is None else min(band, n + m)
    width = min(m, 2 * band) + 1
    host, kept, size = engines.named("cpu"), 8 * (1 + rule.affine), (n + 1) * width
    free = host.free_memory() if size > _UNASKED else None
    tall = n + 1 if size <= min(_TABLE, free or _TABLE) else math.isqrt(kept * n) + 1
    check_memory(
        (tall + n // tall * kept) * width,
        f"{verb}: the table of return_path for sequences of {n:,} and {m:,}",
        less="give a band=, leave return_path out, which takes a few rows of it,",
        halves=False,
    )
    fields: dict[str, Any] = {
        "n": n, "m": m, "band": band, "width": width, "x": x, "y": y,
        "ways": np.zeros((min(tall, n + 1), width), np.uint8),
    }  # fmt: skip
    best, lines = np.full(1, INF if rule.ends else 0.0), np.full((2, m + 1), INF)
    run, step, done = engines.compiled(fill), max(1, _PIECE // width), 0
    tops = range(0, n + 1, tall)

    def rows(top: int, best: NDArray[np.float64], place: NDArray[np.int64]) -> None:
        nonlocal done
        stop = min(top + tall, n + 1)
        for begin in range(top, stop, step):
            end = min(begin + step, stop)
            run(
                **fields, affine=rule.affine, local=rule.local, ends=rule.ends, begin=begin,
                end=end, top=top, table=table, gaps=np.array(gaps, np.float64), line=lines[0],
                up_line=lines[1], best=best, place=place,
            )  # fmt: skip
            pool.look()
            done += end - begin
            tick(done / (n + 1) / min(2, len(tops)))

    before = [slice(max(top - 1 - band, 0), top + band) for top in tops]  # of the rows above
    place, above = np.zeros(3, np.int64), list[NDArray[np.float64]]()
    for top, part in zip(tops, before, strict=True):
        above.append(lines[: 1 + rule.affine, part].copy())
        rows(top, best, place)
    if math.isinf(best[0]):
        return nowhere
    last: tuple[int, int] = (int(place[0]), int(place[1]))
    room, count = np.empty(n + m, np.uint8), 0
    for k in range(last[0] // tall, -1, -1):
        if k < len(tops) - 1:
            lines[:] = INF
            lines[: 1 + rule.affine, before[k]] = above[k]
            rows(tops[k], np.zeros(1), np.zeros(3, np.int64))
        count += engines.compiled(walk)(**fields, top=tops[k], place=place, columns=room[count:])
        if place[0] >= tops[k]:
            break
    if len(tops) > 1:
        tick(1.0)
    kinds = room[:count][::-1]
    first: tuple[int, int] = (int(place[0]), int(place[1]))
    runs = ((chr(kind), len(list(some))) for kind, some in itertools.groupby(kinds.tolist()))
    aligned = (
        _aligned(given[0][first[0] : last[0]], kinds == _OF_Y),
        _aligned(given[1][first[1] : last[1]], kinds == _OF_X),
    )
    cigar = "".join(f"{count}{kind}" for kind, count in runs)
    return float(best[0]), Alignment(float(best[0]), cigar, aligned, first, last)


def _aligned(entries: Any, gaps: NDArray[np.bool_]) -> Any:
    """Entries with gaps between them."""
    letters = isinstance(entries, (str, bytes))
    rest = iter(entries if letters else entries.tolist())
    found: list[Any] = [
        ("-" if isinstance(entries, str) else ord("-") if letters else None) if gap else next(rest)
        for gap in gaps
    ]
    return "".join(found) if isinstance(entries, str) else bytes(found) if letters else found
