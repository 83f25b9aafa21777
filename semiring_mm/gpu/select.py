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

from ..semirings import semirings
from . import device
from .product import product
from .source import STORAGE, flags, pack
from .views import address, wide_along

__all__ = ["BEHIND", "MOST", "Screen", "empty", "finish", "put", "room_of", "run", "select_source"]

Array = Any

MOST = 1024  #: the longest list
BEHIND = 0  #: bytes behind a tile that are read
_ROOM = 64  # entries that a warp collects: sr::Select's
_NOTHING = (1 << 63) - 1
_TILE = 128 << 20  # bytes of a tile: a launch is long, and some of it is in L2 when it is read
_COLUMNS = 4096  # of a tile, if lists are short
_BLOCK = 1 << 16  # rows that a screen prepares at once
#: Roundings of a product: of two operands to 11 bits, of the result to float16, and of each step,
#: which tensor cores truncate.
_OPERANDS, _RESULT, _STEP = 2.0**-10, 2.0**-11, 2.0**-22
_NORM = 2.0**5  # of the farthest point: products of two fit float16
_SPREAD = 2.0**7  # times the norm of most points, to which those of float16 keep their digits


@functools.lru_cache(maxsize=64)
def select_source(value: str, tile: str, warps: int, screen: bool, wide: bool) -> str:
    """The text of the kernel that merges a tile into lists of a dtype."""
    types = f"{STORAGE[value]}, {STORAGE[tile]}"
    return f"""#include "select.cuh"
extern "C" __global__ void __launch_bounds__({32 * warps})
kernel(const __grid_constant__ sr::SelectParams p) {{
  sr::Select<{types}, {warps}, {flags(screen, wide)}>::run(p);
}}
"""


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
    _launch(value, index, tile, base, (0,) * 5, 0, 0, screen=False, wide=False)


def finish(value: Array, index: Array) -> None:
    """The lists are sorted already."""


def _launch(
    value: Array, index: Array, tile: Array, base: int, given: tuple[int, ...],
    growth: int, width: int, *, screen: bool, wide: bool,
) -> None:  # fmt: skip
    here = device.current()
    rows, k = value.shape
    entry = 12 if value.itemsize == 8 else 8
    each = 2 * (k + _ROOM) * entry  # bytes of a warp
    warps = 1 << max(0, min(2, int(math.log2(here.shared_limit // each))))
    params = pack(
        (address(tile), address(value), address(index), *given, tile.strides[0] // tile.itemsize,
         growth, base),
        (rows, tile.shape[1], k, width),
    )  # fmt: skip
    kernel = here.kernel(select_source(value.dtype.name, tile.dtype.name, warps, screen, wide))
    kernel.launch(-(-rows // warps), 32 * warps, warps * each, params)


class Screen:
    """Two sets of points, as :class:`.cpu.screen.Screen` has them.

    2 x·y is a product in float16, or in TF32 where the norms of the points differ much; what it
    puts beyond the k-th best by more than its error bound is not looked at, and the squared
    distances of the rest are summed up directly.

    With u = 2⁻¹¹ the roundings of both operands are at most 2 u |2 x_i y_i| together, so in all at
    most 2 u (|x|² + |y|²); that of the result is at most u times that, and a step of the sum adds
    at most 2⁻²². Below float16's normal numbers a rounding is at most 2⁻²⁵: of both operands in all
    √width (|x| + |y|) times that, and once of the result.
    """

    def __init__(self, x: Array, y: Array, range_: float) -> None:
        xp = device.current().xp
        self.x, self.y = (xp.ascontiguousarray(v) for v in (x, y))
        n, width = y.shape
        # any point serves as the origin; one amid the others leaves the products small
        self.center = self.y[:: max(1, n // 1000)].mean(axis=0, dtype=np.float64)
        self.scale = _NORM * 2.0 ** -math.ceil(math.log2(range_ * math.sqrt(width)))
        right, squares = xp.empty((n, width), np.float32), xp.empty(n)
        for i in range(0, n, _BLOCK):
            rows = slice(i, i + _BLOCK)
            right[rows], squares[rows] = self._moved(self.y[rows])
        near = float(xp.median(squares)) * _SPREAD**2 >= _NORM**2
        self.dtype = np.dtype(np.float16 if near else np.float32)
        self.right = right.astype(self.dtype)
        self.error = _OPERANDS + near * _RESULT + (width + 16) * _STEP
        self.column = (squares * (1 - self.error)).astype(np.float32)
        own = np.finfo(x.dtype)  # of distances that are summed up directly
        growth = self.scale**2 * (1 + (width + 4) * float(own.eps))
        self.growth = struct.unpack("<q", struct.pack("<d", growth))[0]
        self.least = (width + 16) * (2.0**-145 + float(own.smallest_subnormal) * growth)
        self.least += near * 2.0**-25 * (4 * math.sqrt(width) * _NORM + 1)
        self.wide = wide_along(self.x, -1, 16 // x.itemsize) and wide_along(
            self.y, -1, 16 // x.itemsize
        )
        self._block: tuple[slice, Array, Array] | None = None

    def _moved(self, v: Array) -> tuple[Array, Array]:
        """Points near the origin, and their squares."""
        moved = ((v - self.center) * self.scale).astype(np.float32)
        return moved, (moved * moved.astype(np.float64)).sum(axis=1)

    def put(self, rows: slice, columns: slice, tile: Array, value: Array, index: Array) -> int:
        """Put the rows of Y in `columns` into full lists of squared distances.

        The number of candidates is returned, but only where it has not been for these rows, so
        that the device is seldom waited for; else 0.
        """
        fresh = self._block is None or self._block[0] != rows
        if self._block is None or fresh:
            left, squares = self._moved(self.x[rows])
            offset = squares * (self.error - 1) + self.least
            self._block = rows, (left * np.float32(-2)).astype(self.dtype), offset
        found = device.current().xp.zeros(1, np.uint32)
        _, left, offset = self._block
        precision = "tf32" if self.dtype == np.float32 else None
        product(semirings["plus_times"], left, self.right[columns].T, tile, precision=precision)
        width = self.x.shape[1]
        given = (
            address(self.x) + rows.start * width * self.x.itemsize,
            address(self.y) + columns.start * width * self.y.itemsize,
            address(self.column) + columns.start * 4,
            address(offset),
            address(found),
        )
        _launch(value, index, tile, columns.start, given, self.growth, width, screen=True,
                wide=self.wide)  # fmt: skip
        return int(found[0]) if fresh else 0
