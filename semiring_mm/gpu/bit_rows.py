"""Distances between rows of bits on the device; see :class:`semiring_mm.engine.BitRows`.

On Hopper the near pairs are found by its binary tensor cores: while the counts of a tile of pairs
are in registers, each is compared with a bound of its row (``sr::Screened``), and the columns of
those that pass are listed. The bounds are floats, a little too far; so the distances of listed
pairs are computed once more, from whole numbers, and only these decide. Rows are sorted by their
numbers of bits first: those of very different ones are not near, and not multiplied.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..metrics import reach
from ..plan import bytewise, make_plan
from ..semirings import semirings
from . import device, select
from .chips import has
from .launch import entry, launch, struct_of
from .source import PRODUCT
from .tensor import BINARY, ROWS, Shape, TensorKernel, in_place, tensor_source
from .views import address, to_host

__all__ = ["MOST", "distances", "nearest", "within"]

Array = Any

MOST = select.MOST
_FIRST = 512  # rows of Y whose distances are all computed, if lists are short
_THREADS, _SIDE, _DEPTH = 256, 64, 16  # sr::BitTile's
_SCREENED = 1 << 18  # pairs from which they are screened
_BLOCK = 1 << 14  # rows of X that are screened at once
_CAPACITY = 64  # candidates of a row, at first
_LISTS = 1 << 30  # bytes of their lists, and of a tile of distances
_SHARE = 1 / 16  # of all pairs, up to which it does to list candidates
_SLACK = 2.0**-20  # relative error of a bound, and more


def distances(metric: str, columns: int, x: Array, y: Array, out: Array) -> None:
    """All distances."""
    sides = _Sides(metric, columns, x, y)
    sides.tile(slice(0, len(x)), slice(0, len(y)), out)


def nearest(metric: str, columns: int, x: Array, y: Array, k: int) -> tuple[Array, Array]:
    """The k nearest rows of Y to each row of X."""
    xp, (m, n) = device.current().xp, (len(x), len(y))
    sides = _Sides(metric, columns, x, y)
    value, index = select.empty(m, k, np.dtype(np.float64))
    rest = xp.arange(m)
    if sides.screened and n >= 16 * k:
        order = select.evenly(n)
        spread = _Sides(metric, columns, x, sides.y[order])

        def search(rows: Array, capacity: int) -> tuple[Array, Array, Array]:
            return spread.nearest_of(rows, order.astype(np.uint32), k, capacity)

        capacity = max(select.first_pass(k, _FIRST), 4 * k + 32)
        rest = select.searched(search, value, index, sides.y, capacity, 12)
    size, width = select.room_of(len(rest), n, k, value.dtype)
    for i in range(0, len(rest), size):
        rows = rest[i : i + size]
        some = select.empty(len(rows), k, value.dtype)
        room = xp.empty((len(rows), -(-width // 2) * 2))
        for first in range(0, n, width):
            tile = room[:, : min(width, n - first)]
            sides.tile(rows, slice(first, first + tile.shape[1]), tile)
            select.put(*some, tile, first)
        value[rows], index[rows] = some
    return value, index


def within(
    metric: str, columns: int, x: Array, y: Array, radius: float, itself: bool, lists: bool
) -> tuple[Array, list[tuple[Array, ...]]]:
    """The pairs within a radius, in any order; of one set each pair once."""
    xp, sides = device.current().xp, _Sides(metric, columns, x, y)
    rows, others = sides.sort()
    counts, parts = xp.zeros(len(x), np.int64), list[tuple[Array, ...]]()
    for i, start, column, distance in sides.pairs(radius, itself):
        near = distance <= radius
        if itself:
            near &= column + start > i + xp.arange(len(distance))[:, None]
        counts[rows[i : i + len(distance)]] += near.sum(1)
        if lists:
            row, place = xp.nonzero(near)
            column = xp.broadcast_to(column, near.shape)[row, place].astype(np.int64)
            parts.append((rows[row + i], others[column + start], distance[row, place]))
    return counts, parts


class _Sides:
    """Rows of X and Y, in words of which each row has an even number."""

    def __init__(self, metric: str, columns: int, x: Array, y: Array) -> None:
        self.metric, self.columns, self.same = metric, columns, x is y
        self.x = _aligned(x)
        self.y = self.x if self.same else _aligned(y)
        self.p = _sizes(self.x)
        self.q = self.p if self.same else _sizes(self.y)
        here = device.current()
        self.screened = has(here.arch, "HGMMA") and len(x) * len(y) >= _SCREENED
        self.run = f"sr::{{}}<sr::{metric.upper()}{{}}>::run"

    def sort(self) -> tuple[Array, Array]:
        """Sort the rows of X, and of Y, by their numbers of bits; where they were."""
        xp = device.current().xp
        rows = others = xp.argsort(self.p)
        self.x, self.p = self.x[rows], self.p[rows]
        if self.same:
            self.y, self.q = self.x, self.p
        else:
            others = xp.argsort(self.q)
            self.y, self.q = self.y[others], self.q[others]
        return rows, others

    def _launch(self, kernel: str, more: str, blocks: int, rows: Any, columns: slice,
                shared: int = 0, **fields: Any) -> None:  # fmt: skip
        x, y, params = self.x[rows], self.y[columns], struct_of("BitParams")
        if blocks:
            launch(
                entry("bits.cuh", params, self.run.format(kernel, more), _THREADS), params, blocks,
                _THREADS, shared, fields, left=x, right=y, left_bits=self.p[rows],
                right_bits=self.q[columns], columns=float(self.columns), m=len(x), n=len(y),
                words=2 * x.shape[1],
            )  # fmt: skip

    def tile(self, rows: Any, columns: slice, out: Array) -> None:
        """The distances of some rows, of X and of Y."""
        blocks = -(-out.shape[0] // _SIDE) * -(-out.shape[1] // _SIDE)
        shared = 2 * _SIDE * (_DEPTH + 1) * 4
        self._launch("BitTile", "", blocks, rows, columns, shared, out=out,
                     step=out.strides[0] // 8)  # fmt: skip

    def listed(self, rows: Any, columns: slice, count: Array, candidates: Array) -> Array:
        """The distances of candidates, rows of Y from the first of `columns` on; else NaN."""
        out = device.current().xp.full(candidates.shape, np.nan)
        self._launch("BitPairs", f", {_THREADS}", -(-len(out) // (_THREADS // 32)), rows, columns,
                     out=out, count=count, candidates=candidates,
                     capacity=candidates.shape[1])  # fmt: skip
        return out

    def pairs(self, radius: float, itself: bool) -> Iterator[tuple[int, int, Array, Array]]:
        """Rectangles of sorted rows: the first row, what is added to columns, these, and distances.

        These are NaN where there is no column.
        """
        xp, m, n = device.current().xp, len(self.x), len(self.y)
        height, width = _BLOCK, n
        if not self.screened:
            height, width = select.room_of(m, n, 1, np.dtype(np.float64))
        bits, others = (self._begins(v) for v in (self.p, self.q))  # [number of bits]
        sizes = np.flatnonzero(np.diff(others))
        for i in range(0, m, height):
            j = min(i + height, m)
            first, last = np.searchsorted(bits, (i, j - 1), "right") - 1
            low, high = reach(self.metric, self.columns, radius, sizes, first, last)
            start, end = max(int(others[low]), i if itself else 0), int(others[high + 1])
            if start >= end:
                continue
            if self.screened:
                yield from self._near(i, j, start, end, xp.full(j - i, radius), _CAPACITY)
            else:
                yield from self._all(i, j, start, end, width)

    def _begins(self, sizes: Array) -> NDArray[np.int64]:
        """Where rows with 0, 1, ... bits begin, of sorted ones, and where the last end."""
        xp = device.current().xp
        every = xp.arange(self.columns + 2, dtype=sizes.dtype)
        return to_host(xp.searchsorted(sizes, every)).astype(np.int64)

    def _all(self, i: int, j: int, start: int, end: int, width: int) -> Iterator[Any]:
        """All distances of some rows of X and of Y, in tiles."""
        xp = device.current().xp
        for first in range(start, end, width):
            tile = xp.empty((j - i, min(width, end - first)))
            self.tile(slice(i, j), slice(first, first + tile.shape[1]), tile)
            yield i, first, xp.arange(tile.shape[1]), tile

    def _near(
        self, i: int, j: int, start: int, end: int, radius: Array, capacity: int
    ) -> Iterator[Any]:
        """The candidates of some rows of X in some of Y, in as many parts as it takes."""
        xp, rows, columns = device.current().xp, slice(i, j), slice(start, end)
        count = xp.zeros(j - i, np.uint32)
        candidates = xp.zeros((j - i, capacity), np.uint32)
        self.sift(rows, columns, radius, count, candidates)
        most = int(count.max())  # waits for the device
        if most <= capacity:
            yield i, start, candidates, self.listed(rows, columns, count, candidates)
            return
        if int(count.sum(dtype=np.int64)) > _SHARE * (j - i) * (end - start):
            size, width = select.room_of(j - i, end - start, 1, np.dtype(np.float64))
            for first in range(i, j, size):
                yield from self._all(first, min(first + size, j), start, end, width)
            return
        size = max(1, _LISTS // (12 * most))
        for first in range(i, j, size):
            last = min(first + size, j)
            yield from self._near(first, last, start, end, radius[first - i : last - i], most)

    def nearest_of(
        self, rows: Array, numbers: Array, k: int, capacity: int
    ) -> tuple[Array, Array, Array]:
        """Lists of some rows, and the most candidates that each has had at once.

        Rows of Y are in an order in which any first ones are spread over all; `numbers` are theirs.
        Distances to the first ones are all computed; the k-th best of these screens the next as
        many, and so on (:class:`.select.Sieve`).
        """
        xp, m, n = device.current().xp, len(rows), len(self.y)
        value, index = select.empty(m, k, np.dtype(np.float64))
        count, most = (xp.zeros(m, np.uint32) for _ in range(2))
        candidates = xp.empty((m, capacity), np.uint32)
        start, end = 0, min(n, select.first_pass(k, _FIRST))
        while start < n:
            columns = slice(start, end)
            if start:
                self.sift(rows, columns, value[:, -1], count, candidates)
                kept = self.listed(rows, columns, count, candidates)
            else:
                kept = xp.empty((m, capacity))
                self.tile(rows, columns, kept[:, :end])
                candidates[:, :end] = xp.arange(end, dtype=np.uint32)
                count[...] = end
            select.merge(value, index, None, 0, {
                "candidates": candidates, "count": count, "kept": kept, "capacity": capacity,
                "order": numbers[start:], "most": most,
            })  # fmt: skip
            start, end = end, min(n, 3 * end)
        return value, index, most

    def sift(
        self, rows: Any, columns: slice, radius: Array, count: Array, candidates: Array
    ) -> None:
        """Append to candidates the columns of pairs within a radius of their row, and some more.

        A pair passes if ``column[j] - scale[i] * common <= bound[i]``.
        """
        here = device.current()
        x, y = self.x[rows], self.y[columns]
        scale, bound, column = self._bounds(self.p[rows], self.q[columns], radius)
        kernel, (m, n) = _kernel(), (len(x), len(y))
        cluster, bn = kernel.shape.cluster, kernel.shape.columns
        width, maps = 8 * x.shape[1], []
        for v, lines in ((x, ROWS), (y, bn // cluster)):
            bits = v.view(np.uint8)
            operand = in_place("uint8", 1, bits, lines)
            assert operand is not None, "see _aligned"
            maps.append((operand.load(here, address(bits))[0], address(bits)))
        tiles_m, tiles_n = -(-m // ROWS // cluster) * cluster, -(-n // bn)
        product = PRODUCT().pack(
            m=m, n=n, k=width, batch=1, tiles_m=tiles_m, tiles_n=tiles_n, whole=tiles_m * tiles_n,
            splits=1, k_split=width,
        )  # fmt: skip
        padded = here.xp.full(tiles_n * bn, np.inf, np.float32)  # tiles are read to their ends
        padded[:n] = column
        least = padded.reshape(-1, bn).min(1)
        params = struct_of("TensorParams").pack(
            p=product, column=padded, bound=bound, count=count, candidates=candidates,
            capacity=candidates.shape[1], scale=scale, least=least,
        )  # fmt: skip
        maps.append((bytes(device.TENSOR_MAP), 0))
        here.kernel(tensor_source(kernel), "a").launch(
            min(tiles_m * tiles_n, here.sms // cluster * cluster), kernel.threads, kernel.shared,
            params, None, tuple(maps),
        )  # fmt: skip

    def _bounds(self, p: Array, q: Array, radius: Array) -> tuple[Array, Array, Array]:
        """What :meth:`sift` compares; of pairs that it is not sure of, it leaves more than less.

        A distance (p + q - 2 c) / (p + q - c) is at most r where c (2 - r) / (1 - r) >= p + q, and
        so on.
        """
        xp = device.current().xp
        p, q = p.astype(np.float64), q.astype(np.float64)
        rest = xp.maximum(1 - radius, 1e-30)
        none = xp.zeros_like(p)
        size = float(self.columns)
        if self.metric == "hamming":
            scale, bound, column = none + 2, radius * size - p, q
        elif self.metric == "jaccard":
            scale, bound, column = (2 - radius) / rest, -p, q
        elif self.metric == "dice":
            scale, bound, column = 2 / rest, -p, q
        elif self.metric == "cosine":
            scale, bound, column = 1 / (rest * xp.sqrt(xp.maximum(p, 1))), none, xp.sqrt(q)
            size = math.sqrt(size)
        else:
            scale, bound, column = none + 1, radius + none, xp.zeros_like(q)
        bound = bound + _SLACK * (size + xp.abs(bound) + 1)
        if self.metric in ("jaccard", "dice", "cosine"):
            every = radius >= 1
            scale, bound = xp.where(every, 0, scale), xp.where(every, math.inf, bound)
        return tuple(v.astype(np.float32) for v in (scale, bound, column))


def _aligned(x: Array) -> Array:
    """Rows of an even number of words that begin at multiples of 16 bytes."""
    if x.shape[1] % 2 == 0 and address(x) % 16 == 0:
        return x
    room = device.current().xp.zeros((len(x), -(-x.shape[1] // 2) * 2), np.uint64)
    room[:, : x.shape[1]] = x
    return room


def _sizes(x: Array) -> Array:
    """How many bits rows have."""
    found, params = device.current().xp.zeros(len(x), np.uint32), struct_of("BitParams")
    if len(x):
        source = entry("bits.cuh", params, f"sr::BitSizes<{_THREADS}>::run", _THREADS)
        launch(
            source, params, -(-len(x) // (_THREADS // 32)), _THREADS, 0, left=x, left_bits=found,
            m=len(x), words=2 * x.shape[1],
        )  # fmt: skip
    return found


@functools.cache
def _kernel() -> TensorKernel:
    """The product of packed bits that is screened instead of stored."""
    plan = bytewise(make_plan(semirings["lor_land"], np.dtype(bool), None, None, 1))
    return TensorKernel(plan, BINARY, True, True, False, shape=Shape(cluster=2), screens=True)
