"""Distances between rows of bits, on all threads; see :class:`semiring_mm.engine.BitRows`."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..metrics import BIT_METRICS, reach
from . import select
from .codegen import compiled
from .compiler import host_target
from .kernels import bit_rows as kernels

__all__ = ["MOST", "distances", "nearest", "within"]

Array = NDArray[Any]
Words = NDArray[np.uint64]

MOST = select.MOST
_ROWS = 256  # of X that meet a panel while it is in a cache
_CALL = 1 << 30  # pairs of words in a call: some tenths of a second
_ROOM = 1 << 18  # pairs of rows that are listed at once
_NEVER = -(1 << 62)
_SORTED = 512  # rows of X, from which it pays to sort those of Y
_FEW = 4  # words that rows have for each row of X, from which Y is not laid out for them
_SLACK = 2.0**-40  # of a bound, by which its product with a number of bits may be wrong


def distances(metric: str, columns: int, x: Words, y: Words, out: Array) -> None:
    """All distances."""
    sides = _Sides(metric, columns, x, y)

    def task(i: int, j: int, start: int, end: int) -> None:
        sides.run(i, j, start, end, out=out[i:j])

    pool.run(_tasks(task, len(x), sides.parts()))


def nearest(
    metric: str, columns: int, x: Words, y: Words, k: int
) -> tuple[Array, NDArray[np.int64]]:
    """The k nearest rows of Y to each row of X."""
    m, sides = len(x), _Sides(metric, columns, x, y)
    parts = sides.parts(k)
    value, index = (np.full((len(parts) * m, k), v) for v in (np.inf, select.NOTHING))

    def task(i: int, j: int, start: int, end: int) -> None:
        own = slice(*(parts.index((start, end)) * m + r for r in (i, j)))
        lists = {"value": value[own], "index": index[own]}
        sides.run(i, j, start, end, margin=sides.strict, k=k, **lists)
        select.finish(**lists)

    pool.run(_tasks(task, m, parts))
    if len(parts) > 1:
        value, index = (v.reshape(-1, m, k).swapaxes(0, 1).reshape(m, -1) for v in (value, index))
        best = np.lexsort((index, value))[:, :k]
        value, index = (np.take_along_axis(v, best, 1) for v in (value, index))
    return value, index


def within(
    metric: str, columns: int, x: Words, y: Words, radius: float, itself: bool, lists: bool
) -> tuple[NDArray[np.int64], list[tuple[Array, ...]]]:
    """The pairs within a radius, in any order; of one set each pair once.

    Many rows are sorted by their numbers of bits: those of very different ones are not near.
    """
    m, order = len(x), _Order(x, y, itself) if len(x) >= _SORTED else None
    sides = _Sides(metric, columns, *((x, y) if order is None else (order.x, order.y)))
    parts = sides.parts()
    counts = np.zeros((len(parts), m), np.int64)
    found = list[tuple[Array, ...]]()

    def task(i: int, j: int, start: int, end: int) -> None:
        own = counts[parts.index((start, end)), i:j]
        room = max(_ROOM, 2 * (j - i) * sides.wide) if lists else 0
        row, column = np.empty(room, np.int32), np.empty(room, np.int64) if lists else None
        distance, total = np.empty(room), np.zeros(1, np.int64)
        if order is not None:
            first, last = order.near(metric, columns, radius, i, j)
            start, end = max(start, first), min(end, last)
        at = max(start, i) if itself else start
        while at < end:
            total[0] = 0
            at = sides.run(
                i, j, at, end, most=room, radius=radius, margin=_SLACK,
                after=i if itself else _NEVER, counts=own, row=row, column=column,
                distance=distance, found=total,
            )  # fmt: skip
            if column is not None and total[0]:
                some = slice(int(total[0]))
                pairs = row[some] + np.int64(i), column[some]
                if order is not None:
                    pairs = order.rows[pairs[0]], order.columns[pairs[1]]
                found.append((pairs[0], pairs[1].copy(), distance[some].copy()))

    pool.run(_tasks(task, m, parts))
    number = counts.sum(0)
    if order is not None:
        number[order.rows] = number.copy()
    return number, found


class _Order:
    """Rows of X and Y by their numbers of bits; `rows` and `columns` are where they were."""

    def __init__(self, x: Words, y: Words, itself: bool) -> None:
        self.rows, self.bits = self.columns, self.other_bits = _by_size(x)
        self.x = self.y = x[self.rows]
        if not itself:
            self.columns, self.other_bits = _by_size(y)
            self.y = y[self.columns]
        self.sizes = np.unique(self.other_bits)

    def near(self, metric: str, columns: int, radius: float, i: int, j: int) -> tuple[int, int]:
        """The first of the rows of Y that may be near rows i to j - 1 of X, and their end."""
        low, high = reach(metric, columns, radius, self.sizes, self.bits[i], self.bits[j - 1])
        first = np.searchsorted(self.other_bits, low)
        return int(first), int(np.searchsorted(self.other_bits, high, "right"))


def _by_size(x: Words) -> tuple[NDArray[np.int64], Array]:
    """Rows in the order of their numbers of bits, and these in that order."""
    sizes = np.empty(len(x), np.int64)

    def part(first: int, last: int) -> None:
        for i in range(first, last, _SORTED):  # counts of words stay in a cache
            sizes[i : min(i + _SORTED, last)] = np.bitwise_count(x[i : min(i + _SORTED, last)]).sum(
                1
            )

    pool.run_parts(part, len(x), pool.get_num_threads())
    short = sizes.astype(np.uint16) if x.shape[1] < 1 << 10 else sizes
    order = np.argsort(short, kind="stable")  # by digits, if they are short
    return order, sizes[order]


class _Sides:
    """Rows of X and Y, and what the kernel is told of them."""

    def __init__(self, metric: str, columns: int, x: Words, y: Words) -> None:
        self.x, self.y = x, y
        self.wide = 2 * max(1, host_target().vector_bytes // 8)
        self.given: dict[str, Any] = dict.fromkeys(p.name for p in kernels.visit.parameters)
        self.given |= {
            "measure": BIT_METRICS.index(metric), "wide": self.wide, "n": len(y), "right": y,
            "words": x.shape[1], "columns": float(columns), "k": 0, "most": 0, "radius": 0.0,
            "after": _NEVER, "margin": 0.0,
        }  # fmt: skip
        # different quotients of numbers below 2^20 are 2^-40 apart: equal ones need no look then
        quotient = metric != "cosine" and columns < 1 << 20
        self.strict = -0.5 if metric == "intersection" else -_SLACK / 32 if quotient else _SLACK

    def parts(self, k: int = 1) -> list[tuple[int, int]]:
        """Rows of Y that threads take, each for all rows of X where these are few."""
        n = len(self.y)
        parts = pool.get_num_threads() if len(self.x) <= select.FEW else 1
        parts = max(1, min(parts, n // max(k, self.wide)))
        return list(itertools.pairwise(n * p // parts for p in range(parts + 1)))

    def run(self, i: int, j: int, start: int, end: int, **fields: Any) -> int:
        """Visit some rows of Y with rows i to j - 1 of X; where it stopped."""
        words, call = self.x.shape[1], compiled(kernels.visit, "f8")
        left = self.x[i:j]
        given = self.given | {
            "left": left, "bits": np.bitwise_count(left).sum(1, dtype=np.float64), "rows": j - i,
            "few": (j - i) * _FEW <= words, "panel": np.empty((words, self.wide), np.uint64),
            "room": np.empty((kernels.TOGETHER, self.wide), np.uint64),
            "sizes": np.empty(self.wide), "line": np.empty((kernels.TOGETHER, self.wide)),
            "found": np.zeros(1, np.int64), **fields,
        }  # fmt: skip
        step = -(-_CALL // ((j - i) * (words + 1)) // self.wide) * self.wide
        while start < end:
            last = min(start + step, end)
            stopped = int(call(**given | {"start": start, "end": last}))
            pool.look()
            if stopped < last:
                return stopped
            start = last
        return end


def _tasks(
    task: Callable[[int, int, int, int], None], m: int, parts: list[tuple[int, int]]
) -> list[Callable[[], None]]:
    """Calls of a function for blocks of rows of X, and parts of Y."""
    size = max(1, min(_ROWS, -(-m // pool.get_num_threads())))
    return [
        functools.partial(task, i, min(i + size, m), *part)
        for i in range(0, m, size) for part in parts
    ]  # fmt: skip
