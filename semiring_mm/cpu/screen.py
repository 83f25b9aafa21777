"""The nearest rows by Euclidean distance, of candidates that a product in float32 leaves.

|x - y|² - |x|² = |y|² - 2 x·y is a matrix product, one fused multiply-add for a pair of
coordinates, in float32 for float64, too. It is wrong by a rounding error that has a bound.
Rows of Y that it puts beyond the k-th best by more than that bound cannot be among the k best; the
squared distances of the others are summed up directly. So results are those of the direct way, to
the last bit.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..metrics import Origin
from ..semirings import Semiring
from .codegen import compiled
from .compiler import host_target
from .kernels import screen as kernels
from .product import product

__all__ = ["Screen"]

Array = NDArray[Any]

# not plus_times, which a BLAS may compute on threads of its own
_PLUS_TIMES = Semiring("screen", "a + b", "b * a", 0, 1)
_UNIT = 2.0**-24  # the relative error of a rounding in float32
_LEAST = 2.0**-145  # above the absolute error of one below its normal numbers
_BLOCK = 128  # rows that are prepared at once
_FAR = 16  # times the spread of points, up to which their origin serves as it is
_RANGE = 1e15  # and of their range, and its inverse


class Screen:
    """Two sets of rows, (m, width) and (n, width), of finite numbers.

    `range_` is their greatest less their least, from 1e-150 to 1e150.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, x: Array, y: Array, range_: float) -> None:
        self.x, self.y = (np.ascontiguousarray(v) for v in (x, y))
        (m, width), n = x.shape, len(y)
        origin = Origin(y, range_)
        plain = y.dtype == np.float32 and 1 / _RANGE < range_ < _RANGE and _centred(origin, y)
        if plain:
            origin.center, origin.scale = np.zeros(width), 1.0
        self.left, self.squares = np.empty((m, width), np.float32), np.empty(m)
        self.right, squares = self.y if plain else np.empty((n, width), np.float32), np.empty(n)

        def part(v: Array, to: Array, to_squares: Array, i: int) -> None:
            rows = slice(i, i + _BLOCK)
            if to is v:
                to_squares[rows] = np.vecdot(v[rows], v[rows])
            else:
                to[rows], to_squares[rows] = origin.moved(v[rows])

        pool.run([
            functools.partial(part, *side, i)
            for side in ((self.x, self.left, self.squares), (self.y, self.right, squares))
            for i in range(0, len(side[0]), _BLOCK)
        ])  # fmt: skip
        self.left *= -2
        self.norms, self.right_norms = np.sqrt(self.squares), np.sqrt(squares)
        self.right_squares = squares.astype(np.float32)
        # Relative to (|x| + |y|)² the product is wrong by width roundings, the sum by one; those of
        # coordinates add two, |y|² and the bound itself one each, |y|² in float32 width. The rest
        # is a margin.
        self.error = ((1 + plain) * width + 16) * _UNIT
        own = np.finfo(x.dtype)  # of distances that are summed up directly
        self.growth = float(origin.scale**2 * (1 + (width + 4) * float(own.eps)))
        tiny = float(own.smallest_subnormal) * self.growth
        self.least = (width + 16) * (_LEAST + tiny)

    def search(self, *_: Any) -> None:
        """Tiles are looked at one by one."""

    def put(
        self, rows: slice, columns: slice, tile: Array, value: Array, index: NDArray[np.int64]
    ) -> int:
        """Put the rows of Y in `columns` into full heaps of squared distances.

        The number of candidates is returned; `tile`, float32 as :func:`.select.put` takes it, is
        overwritten.
        """
        product(_PLUS_TIMES, self.left[rows], self.right[columns].T, tile)
        reach = self.norms[rows] + self.right_norms[columns].max()
        offset = self.error * reach * reach + self.least - self.squares[rows]
        # four vectors of keys are compared at once, which are as many bytes as a vector has columns
        found = compiled(kernels.put, value.dtype.str[1:])(
            many=value.itemsize, together=host_target().vector_bytes, rows=len(tile),
            columns=tile.shape[1],
            width=self.x.shape[1], k=value.shape[1], base=columns.start, growth=self.growth,
            offset=offset, squares=self.right_squares[columns], tile=tile, left=self.x[rows],
            right=self.y[columns], value=value, index=index,
            waiting=np.empty(kernels.MOST, np.int64), sums=np.empty(kernels.TAKEN, value.dtype),
        )  # fmt: skip
        pool.look()
        return int(found)


def _centred(origin: Origin, points: Array) -> bool:
    """Whether some points are about as far from 0 as from their mean."""
    some = points[:: max(1, len(points) // 1000)]
    spread = ((some - origin.center) ** 2).sum(1).mean()
    return bool((origin.center**2).sum() <= _FAR * spread)
