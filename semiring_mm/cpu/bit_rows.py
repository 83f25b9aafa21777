"""Distances between rows of bits, on all threads; see :class:`semiring_mm.engine.BitRows`."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..metrics import BIT_METRICS
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
    """The pairs within a radius; of one set each pair once, its lower row first."""
    m, sides = len(x), _Sides(metric, columns, x, y)
    parts = sides.parts()
    counts = np.zeros((len(parts), m), np.int64)
    found: dict[tuple[int, int], tuple[Array, ...]] = {}

    def task(i: int, j: int, start: int, end: int) -> None:
        room = max(_ROOM, 2 * (j - i) * sides.wide) if lists else 0
        row, column = np.empty(room, np.int32), np.empty(room, np.int64) if lists else None
        distance, total = np.empty(room), np.zeros(1, np.int64)
        some, at = list[tuple[Array, Array, Array]](), max(start, i) if itself else start
        while at < end:
            total[0] = 0
            at = sides.run(
                i, j, at, end, most=room, radius=radius, margin=_SLACK,
                after=i if itself else _NEVER, counts=counts[parts.index((start, end)), i:j],
                row=row, column=column, distance=distance, found=total,
            )  # fmt: skip
            if column is not None and total[0]:
                taken = slice(int(total[0]))
                some.append((row[taken].copy(), column[taken].copy(), distance[taken].copy()))
        if some:
            rows, *others = (np.concatenate(v) for v in zip(*some, strict=True))
            order = rows.astype(np.int16).argsort(kind="stable")
            found[i, start] = rows[order] + np.int64(i), *(v[order] for v in others)

    pool.run(_tasks(task, m, parts))
    return counts.sum(0), [found[at] for at in sorted(found)]


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
            "sizes": np.empty(self.wide), "line": np.empty(self.wide),
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
