"""The k least of each row of a matrix that comes tile by tile, on the device.

Of each row there is a list that ascends by (value, index), NaN last. A warp compares a tile's row
with the end of its list, and merges the entries that are before it.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..expressions import Expr
from ..metrics import Origin
from ..plan import make_plan
from ..semirings import Semiring, semirings
from . import device
from .chips import has
from .launch import entry, launch, struct_of
from .product import product, sift
from .source import PRODUCT, STORAGE, flags
from .tensor import ROWS, SCREENS, Shape, TensorKernel, in_place, tensor_source
from .views import address, wide_along

__all__ = [
    "FEW", "MOST", "Screen", "Sieve", "empty", "evenly", "finish", "first_pass", "merge", "put",
    "room_of", "run", "searched",
]  # fmt: skip

Array = Any

MOST = 1024  #: the longest list
FEW = 0
_ROOM = 64  # entries that a warp collects: sr::Select's
_NOTHING = (1 << 63) - 1
_TILE = 128 << 20  # bytes of a tile: a launch is long, and some of it is in L2 when it is read
_COLUMNS = 4096  # of a tile, if lists are short
_BLOCK = 1 << 25  # coordinates of points that are prepared at once
#: Roundings of a product: of two operands to 11 bits, of the result to float16, and of each step,
#: which tensor cores truncate.
_OPERANDS, _RESULT, _STEP = 2.0**-10, 2.0**-11, 2.0**-22
_NORM = 2.0**5  # of the farthest point: products of two fit float16
_SPREAD = 2.0**7  # times the norm of most points, to which those of float16 keep their digits
_FIRST = 512  # points whose distances are all summed up, if lists are short
_GROWTH = 2  # each pass screens this many times the points before it, by the same bounds
_CANDIDATES = 128 << 20  # bytes of their lists
_PAYS = 1 / 16  # the share of all points up to which it does to sum up those of candidates
_WIDTH = SCREENS["float16"].bn  # columns of a tile that is screened
_GOLDEN = (math.sqrt(5) - 1) / 2


def empty(rows: int, k: int, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """Lists that every value improves."""
    xp = device.current().xp
    worst = np.nan if dtype.kind == "f" else np.iinfo(dtype).max
    return xp.full((rows, k), worst, dtype), xp.full((rows, k), _NOTHING, np.int64)


def room_of(m: int, n: int, k: int, dtype: np.dtype[Any]) -> tuple[int, int]:
    """Rows and columns of the tiles of an m × n matrix."""
    width = min(n, max(_COLUMNS, 8 * k))
    return max(1, min(m, _TILE // (width * dtype.itemsize))), width


def run(tasks: Sequence[Callable[[], None]]) -> None:
    """Call functions that launch kernels, one after the other."""
    for task in tasks:
        task()


def put(value: Array, index: Array, tile: Array, base: int) -> None:
    """Put the values of a tile (rows, columns) into the lists (rows, k) of its rows.

    Column j has index ``base + j``, which increases from tile to tile. Rows of the tile begin at
    multiples of 16 bytes.
    """
    merge(value, index, tile, base, {})


def finish(value: Array, index: Array) -> None:
    """The lists are sorted already."""


def merge(
    value: Array, index: Array, tile: Array | None, base: int, points: dict[str, Any], *,
    wide: bool = False,
) -> None:  # fmt: skip
    """Merge the entries of a tile or, without one, candidates.

    `points` are fields of ``sr::SelectParams``: what distances are computed from.
    """
    here = device.current()
    rows, k = value.shape
    if tile is None:
        source = "KEPT" if "kept" in points else "CANDIDATES"
    else:
        source = "APPROXIMATIONS" if "left" in points else "VALUES"
    size = 12 if value.itemsize == 8 else 8
    each = 2 * (k + _ROOM) * size  # bytes of a warp
    warps = 1 << max(0, min(2, int(math.log2(here.shared_limit // each))))
    step, columns, dtype = 0, 0, np.dtype(np.float32)
    if tile is not None:
        step, columns, dtype = tile.strides[0] // tile.itemsize, tile.shape[1], tile.dtype
    types = f"{STORAGE[value.dtype.name]}, {STORAGE[dtype.name]}"
    run = f"sr::Select<{types}, {warps}, sr::{source}, {flags(wide)}>::run"  # of an sr::Source
    params = struct_of("SelectParams")
    launch(
        entry("select.cuh", params, run, 32 * warps), params, -(-rows // warps), 32 * warps,
        warps * each, points, tile=tile, value=value, index=index, step=step, base=base,
        rows=rows, columns=columns, k=k,
    )  # fmt: skip


class Screen:
    """Two sets of points, as :class:`.cpu.screen.Screen` has them.

    2 x·y is a product in float16, or in TF32 where the norms of the points differ much; what it
    puts beyond the k-th best by more than its error bound is not looked at, and the squared
    distances of the rest are summed up directly.

    With u = 2⁻¹¹ the roundings of both operands are at most 2 u |2 x_i y_i| together, so in all at
    most 2 u (|x|² + |y|²); that of the result is at most u times that, where it is stored, and a
    step of the sum adds at most 2⁻²². Below float16's normal numbers a rounding is at most 2⁻²⁵: of
    both operands in all √width (|x| + |y|) times that, and once of the result.
    """

    def __init__(self, x: Array, y: Array, range_: float) -> None:
        here = device.current()
        xp = here.xp
        self.x, self.y = (xp.ascontiguousarray(v) for v in (x, y))
        n, width = y.shape
        self.origin = Origin(self.y, range_, _NORM)
        right, squares = xp.empty((n, width), np.float32), xp.empty(n)
        size = max(1, _BLOCK // width)
        for i in range(0, n, size):
            rows = slice(i, i + size)
            right[rows], squares[rows] = self.origin.moved(self.y[rows])
        near = float(xp.median(squares)) * _SPREAD**2 >= _NORM**2
        self.dtype = np.dtype(np.float16 if near else np.float32)
        self.right = self._rounded(right)
        self.fused = has(here.arch, "HGMMA")  # the product is screened before it is stored
        self.error = _OPERANDS + (near and not self.fused) * _RESULT + (width + 16) * _STEP
        self.column = (squares * (1 - self.error)).astype(np.float32)
        own = np.finfo(x.dtype)  # of distances that are summed up directly
        growth = self.origin.scale**2 * (1 + (width + 4) * float(own.eps))
        self.growth = struct.unpack("<q", struct.pack("<d", growth))[0]
        self.least = (width + 16) * (2.0**-145 + float(own.smallest_subnormal) * growth)
        self.least += near * 2.0**-25 * (4 * math.sqrt(width) * _NORM + 1)
        self.wide = wide_along(self.x, -1, 16 // x.itemsize) and wide_along(
            self.y, -1, 16 // x.itemsize
        )
        self._block: tuple[slice, Array, Array] | None = None

    def _rounded(self, v: Array) -> Array:
        """Float32 with the digits that a product keeps, in rows of a multiple of 16 bytes."""
        n, width = v.shape
        rounded = device.current().xp.zeros((n, -(-width // 8) * 8), self.dtype)
        if self.dtype == np.float32:
            v = ((v.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
        rounded[:, :width] = v
        return rounded

    def _prepared(self, x: Array) -> tuple[Array, Array]:
        """Rows of X as the left operand, and what the bounds of their entries have in common."""
        left, squares = self.origin.moved(x)
        return self._rounded(left * np.float32(-2)), squares * (self.error - 1) + self.least

    def put(self, rows: slice, columns: slice, tile: Array, value: Array, index: Array) -> int:
        """Put the rows of Y in `columns` into full lists of squared distances.

        The number of candidates is returned, but only where it has not been for these rows, so
        that the device is seldom waited for; else 0.
        """
        found = None
        if self._block is None or self._block[0] != rows:
            self._block = rows, *self._prepared(self.x[rows])
            found = device.current().xp.zeros(1, np.uint32)
        _, left, offset = self._block
        precision = "tf32" if self.dtype == np.float32 else None
        product(semirings["plus_times"], left, self.right[columns].T, tile, precision=precision)
        points = {
            "left": self.x[rows], "right": self.y[columns], "column": self.column[columns],
            "offset": offset, "found": found, "growth": self.growth, "width": self.x.shape[1],
        }  # fmt: skip
        merge(value, index, tile, columns.start, points, wide=self.wide)
        return 0 if found is None else int(found[0])

    def search(
        self, value: Array, index: Array, fill: Callable[[Array, Array, Array], None]
    ) -> Array | None:
        """Find the nearest of all rows; see :class:`semiring_mm.engine.Screen`.

        Points are taken in an order in which any first ones are spread evenly over all: the golden
        ratio's, of Kronecker. Distances to the first ones are all summed up, for a first bound of
        each row. Then the product's entries of these and as many more points (``_GROWTH``) are
        compared with the bounds, entries within them go to the lists, and so on. About k of a row
        do each time; where more do than there is room for, all that did are counted, and the row is
        searched again with that much room.
        """
        if not self.fused:
            return None
        k, n = value.shape[1], len(self.y)
        points = _Ordered(self, min(n, first_pass(k, _FIRST)))

        def search(rows: Array, capacity: int) -> tuple[Array, Array, Array]:
            return self._search(points, rows, k, capacity, fill)

        return searched(search, value, index, self.y, 2 * _GROWTH * k + 32, 4)

    def _search(
        self, points: _Ordered, rows: Array, k: int, capacity: int,
        fill: Callable[[Array, Array, Array], None],
    ) -> tuple[Array, Array, Array]:  # fmt: skip
        """Lists of some rows, and the most candidates that each has had at once."""
        xp, m, n = device.current().xp, len(rows), len(self.y)
        x = self.x[rows]
        left, offset = self._prepared(x)
        value, index = empty(m, k, x.dtype)
        size = max(1, _TILE // (points.first * x.itemsize))
        tile = xp.empty((min(m, size), -(-points.first // 4) * 4), x.dtype)[:, : points.first]
        for i in range(0, m, size):
            part = rows[i : i + size]
            fill(part, points.order[: points.first], tile[: len(part)])
            put(value[i : i + size], index[i : i + size], tile[: len(part)], 0)
        bound, count, most = (xp.zeros(m, x) for x in (np.float32, np.uint32, np.uint32))
        candidates = xp.empty((m, capacity), np.uint32)

        def take(start: int) -> None:
            given = {
                "left": x, "right": self.y, "offset": offset, "candidates": candidates,
                "order": points.numbers[start:], "count": count, "most": most, "bound": bound,
                "capacity": capacity, "growth": self.growth, "width": x.shape[1],
            }  # fmt: skip
            merge(value, index, None, 0, given, wide=self.wide)

        take(0)  # no candidates yet, but the first bounds
        # Products may sum up in another order: these lists are not kept, so that equal points tie.
        value, index = empty(m, k, x.dtype)
        start, end = 0, min(n, points.first * _GROWTH)
        while start < n:
            points.sift(left, start, end, bound, count, candidates)
            take(start)
            start, end = end, min(n, end * _GROWTH)
        return value, index, most


def first_pass(k: int, least: int) -> int:
    """How many points there are in the first pass."""
    return -(-max(least, 8 * k) // _WIDTH) * _WIDTH


def evenly(n: int) -> Array:
    """The order of a search, in which any first ones are spread evenly: multiples of n / φ."""
    step = next(i for i in range(round(n * _GOLDEN), 0, -1) if math.gcd(i, n) == 1) if n > 1 else 1
    return device.current().xp.arange(n, dtype=np.int64) * step % n


def searched(
    search: Callable[[Array, int], tuple[Array, Array, Array]], value: Array, index: Array,
    y: Array, capacity: int, entry: int,
) -> Array:  # fmt: skip
    """Search all rows, and those again that had too many candidates; returns the hopeless ones.

    `search` returns lists of some rows, given room for so many candidates of each, and the most
    that there were at once. `entry`: bytes of a candidate.
    """
    xp, (n, width) = device.current().xp, y.shape
    rest, hopeless = xp.arange(len(value)), []
    while len(rest):
        size = max(1, min(_CANDIDATES // (entry * capacity), _BLOCK // width))
        most = xp.empty(len(rest), np.uint32)
        for i in range(0, len(rest), size):
            rows = rest[i : i + size]
            value[rows], index[rows], most[i : i + size] = search(rows, capacity)
        if int(most.max()) <= capacity:  # waits for the device
            break
        rest, most = rest[most > capacity], most[most > capacity]
        pays = most <= n * _PAYS
        hopeless.append(rest[~pays])
        rest, most = rest[pays], most[pays]
        capacity = int(most.max()) if len(rest) else 0
    return xp.concatenate(hopeless) if hopeless else rest[:0]


class Sieve:
    """Two sets of points, of whose distances by any metric the best are kept as they are summed up.

    Points are taken in the order of :meth:`Screen.search`. Those of the first pass all go to the
    lists of the rows, which each pass after it compares its distances with, in registers.
    """

    def __init__(
        self, algebra: Semiring, x: Array, y: Array, final: tuple[Expr, float] | None
    ) -> None:
        self.algebra, self.x, self.y, self.final = algebra, x, y, final
        order = evenly(len(y))
        self.right, self.numbers = _by_coordinates(y[order]), order.astype(np.uint32)

    def search(self, value: Array, index: Array) -> Array:
        """Find the nearest of all rows; see :class:`semiring_mm.engine.Sieve`."""
        k = value.shape[1]

        def search(rows: Array, capacity: int) -> tuple[Array, Array, Array]:
            return self._search(rows, k, capacity)

        capacity = max(first_pass(k, _FIRST // 2), 2 * _GROWTH * k + 32)
        return searched(search, value, index, self.y, capacity, 4 + value.itemsize)

    def _search(self, rows: Array, k: int, capacity: int) -> tuple[Array, Array, Array]:
        """Lists of some rows, and the most candidates that each has had at once."""
        xp, m, n = device.current().xp, len(rows), len(self.y)
        left = _by_coordinates(self.x[rows])
        value, index = empty(m, k, self.x.dtype)
        count, most = (xp.zeros(m, np.uint32) for _ in range(2))
        candidates, kept = (xp.empty((m, capacity), x) for x in (np.uint32, value.dtype))
        shared = {"candidates": candidates, "count": count, "kept": kept, "capacity": capacity}
        start, end = 0, min(n, first_pass(k, _FIRST // 2))
        while start < n:
            numbers = self.numbers[start:]
            right = self.right[start : -(-end // 4) * 4]
            same = shared | {"order": numbers}
            sizes = {"rows": m, "columns": end - start, "list": k}
            lists = same | sizes | {"value": value, "index": index}
            sift(self.algebra, left, right.T, self.final, lists)
            merge(value, index, None, 0, same | {"most": most})
            start, end = end, min(n, end * _GROWTH)
        return value, index, most


def _by_coordinates(points: Array) -> Array:
    """A copy whose columns are contiguous, with zeros up to a multiple of four points."""
    m, width = points.shape
    room = device.current().xp.zeros((width, -(-m // 4) * 4), points.dtype)
    room[:, :m] = points.T
    return room.T


class _Ordered:
    """The points of Y in the order of a search."""

    def __init__(self, screen: Screen, first: int) -> None:
        xp, n = device.current().xp, len(screen.y)
        order = evenly(n)
        self.first, self.order, self.numbers = first, order, order.astype(np.uint32)
        self.right, self.kernel = screen.right[order], _sift_kernel(screen.dtype.name)
        self.column = xp.full(n + _WIDTH, np.inf, np.float32)  # tiles are read to their ends
        self.column[:n] = screen.column[order]

    def sift(
        self, left: Array, start: int, end: int, bound: Array, count: Array, candidates: Array
    ) -> None:
        """Append to candidates those of some points that do not exceed the bounds."""
        here, (m, k), n, kind = device.current(), left.shape, end - start, self.kernel.kind
        maps = []
        cluster = self.kernel.shape.cluster
        for x, lines in ((left, ROWS), (self.right[start:end], kind.bn // cluster)):
            operand = in_place(kind.element, kind.size, x, lines)
            assert operand is not None, "see Screen._rounded"
            maps.append((operand.load(here, address(x))[0], address(x)))
        tiles_m, tiles_n = -(-m // ROWS // cluster) * cluster, -(-n // kind.bn)
        tiles = tiles_m * tiles_n
        product = PRODUCT().pack(
            m=m, n=n, k=k, batch=1, tiles_m=tiles_m, tiles_n=tiles_n, whole=tiles, splits=1,
            k_split=k,
        )  # fmt: skip
        params = struct_of("TensorParams").pack(
            p=product, column=self.column[start:], bound=bound, count=count, candidates=candidates,
            capacity=candidates.shape[1],
        )  # fmt: skip
        maps.append((bytes(device.TENSOR_MAP), 0))
        here.kernel(tensor_source(self.kernel), "a").launch(
            min(tiles, here.sms // cluster * cluster),
            self.kernel.threads,
            self.kernel.shared,
            params,
            None,
            tuple(maps),
        )


@functools.cache
def _sift_kernel(dtype: str) -> TensorKernel:
    """The product of operands of a dtype that is screened instead of stored."""
    plan = make_plan(semirings["plus_times"], np.dtype(np.float32), None, None, 1)
    shape = Shape(cluster=2)
    return TensorKernel(plan, SCREENS[dtype], True, True, False, shape=shape, screens=True)
