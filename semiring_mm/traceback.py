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
    left at the cost.
    """
    n, m = len(x), len(y)
    none = np.zeros(0, bool)
    nothing = _aligned(given[0][:0], none), _aligned(given[1][:0], none)
    nowhere = INF, Alignment(INF, "", nothing, (0, 0), (0, 0))
    if band is not None and abs(n - m) > band and not rule.local and not rule.ends:
        return nowhere
    band = n + m if band is None else min(band, n + m)
    width = min(m, 2 * band) + 1
    check_memory(
        (n + 1) * width,
        f"{verb}: the table of return_path for sequences of {n:,} and {m:,}",
        less="give a band=, leave return_path out, which takes a few lines of it,",
        halves=False,
    )
    fields: dict[str, Any] = {
        "n": n, "m": m, "band": band, "width": width, "x": x, "y": y,
        "ways": np.zeros((n + 1, width), np.uint8), "place": np.zeros(2, np.int64),
    }  # fmt: skip
    best, lines = np.full(1, INF if rule.ends else 0.0), np.full((2, m + 1), INF)
    run, step = engines.compiled(fill), max(1, _PIECE // width)
    for begin in range(0, n + 1, step):
        end = min(begin + step, n + 1)
        run(
            **fields, affine=rule.affine, local=rule.local, ends=rule.ends, begin=begin, end=end,
            table=table, gaps=np.array(gaps, np.float64), line=lines[0], up_line=lines[1],
            best=best,
        )  # fmt: skip
        pool.look()
        tick(end / (n + 1))
    if math.isinf(best[0]):
        return nowhere
    place: NDArray[np.int64] = fields["place"]
    last: tuple[int, int] = (int(place[0]), int(place[1]))
    room = np.empty(n + m, np.uint8)
    kinds = room[: engines.compiled(walk)(**fields, columns=room)][::-1]
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
