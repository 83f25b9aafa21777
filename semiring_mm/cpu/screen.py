"""The nearest rows by Euclidean distance, of candidates that a product in float32 leaves.

|x - y|² - |x|² = |y|² - 2 x·y is a matrix product of one more column: one fused multiply-add for a
pair of coordinates, in float32 for float64, too. It is wrong by a rounding error that has a bound.
Rows of Y that it puts beyond the k-th best by more than that bound cannot be among the k best; the
squared distances of the others are summed up directly. So results are those of the direct way, to
the last bit.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..metrics import Origin
from ..semirings import Semiring
from .algebra import storage_type
from .blocks import Items, address, block, load_block, load_item
from .compiler import compile_functions, host_target
from .ir import F32, F64, I64, PTR, Function, Type, Value, Var
from .product import product
from .select import each_hit, sink_function, worse

__all__ = ["Screen"]

Array = NDArray[Any]

# not plus_times, which a BLAS may compute on threads of its own
_PLUS_TIMES = Semiring("screen", "a + b", "b * a", 0, 1)
_UNIT = 2.0**-24  # the relative error of a rounding in float32
_LEAST = 2.0**-145  # above the absolute error of one below its normal numbers
_BLOCK = 1024  # rows that are prepared at once
_TAKEN = 8  # distances that are summed up together
_FIELDS = (
    "rows columns step k base width : index found : : value tile left right offset growth"
)  # fmt: skip


class Screen:
    """Two sets of rows, (m, width) and (n, width), of finite numbers.

    `range_` is their greatest less their least, from 1e-150 to 1e150.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, x: Array, y: Array, range_: float) -> None:
        self.x, self.y = (np.ascontiguousarray(v) for v in (x, y))
        (m, width), n = x.shape, len(y)
        origin = Origin(y, range_)
        self.left, self.squares = np.empty((m, width + 1), np.float32), np.empty(m)
        self.right, squares = np.empty((width + 1, n), np.float32), np.empty(n)

        def part(v: Array, to: Array, to_squares: Array, factor: float, i: int) -> None:
            rows = slice(i, i + _BLOCK)
            moved, to_squares[rows] = origin.moved(v[rows])
            to[rows, :width] = moved * np.float32(factor)

        pool.run([
            *(functools.partial(part, self.x, self.left, self.squares, -2, i)
              for i in range(0, m, _BLOCK)),
            *(functools.partial(part, self.y, self.right.T, squares, 1, i)
              for i in range(0, n, _BLOCK)),
        ])  # fmt: skip
        self.left[:, width], self.right[width] = 1, squares
        self.norms, self.right_norms = np.sqrt(self.squares), np.sqrt(squares)
        # Relative to (|x| + |y|)² the product is wrong by width + 1 roundings; those of coordinates
        # add two, |y|² and the bound itself one each. The rest is a margin.
        self.error = (width + 16) * _UNIT
        own = np.finfo(x.dtype)  # of distances that are summed up directly
        self.growth = np.array(origin.scale**2 * (1 + (width + 4) * float(own.eps)))
        tiny = float(own.smallest_subnormal) * float(self.growth)
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
        product(_PLUS_TIMES, self.left[rows], self.right[:, columns], tile)
        reach = self.norms[rows] + self.right_norms[columns].max()
        offset = self.error * reach * reach + self.least - self.squares[rows]
        found = np.zeros(1, np.int64)
        values = block(_FIELDS, {
            "rows": tile.shape[0], "columns": tile.shape[1], "step": tile.strides[0],
            "k": value.shape[1], "base": columns.start, "width": self.x.shape[1], "index": index,
            "found": found, "value": value, "tile": tile, "left": self.x[rows],
            "right": self.y[columns], "offset": offset, "growth": self.growth,
        })  # fmt: skip
        _compiled(value.dtype.name)(address(values))
        pool.look()
        return int(found[0])


@functools.cache
def _compiled(dtype: str) -> Any:
    t, target = storage_type(dtype), host_target()
    sink = sink_function(t)
    take = _take_function(t, sink)
    functions = [sink, take, _put_function(t, take, target.vector_bytes // 4)]
    return compile_functions(functions, target).function("put", ctypes.c_void_p)


def _put_function(t: Type, take: Function, lanes: int) -> Function:
    f = Function("put", [PTR])
    x = load_block(f, _FIELDS)
    k, width = x["k"], x["width"]
    growth, zero = f.load(x["growth"], F64, 8), f.const(0, I64)
    total, waiting = f.var(zero), f.var(zero)
    taken = Items(f, f.alloca(I64, _TAKEN), I64)  # columns whose distances are to be summed up
    with f.loop(0, x["rows"]) as r:
        keys, value = x["tile"].at(r * x["step"]), x["value"].at(r * k * t.size)
        base = x["index"].base.at(r * k * 8)
        row, offset = x["left"].at(r * width * t.size), load_item(f, x["offset"], r, F64)

        def bound(value: Value = value, offset: Value = offset) -> Value:
            """No key of a row that is among the k best is larger."""
            return (load_item(f, value, zero, t).to(F64) * growth + offset).to(F32)

        most = f.var(bound())

        def hits(c: Value, keys: Value = keys, most: Var = most) -> Value:
            new = f.load(keys.at(c * 4), F32.vector(lanes), 4)
            return new.cmp("<=", most.get().splat(lanes))

        def sum_up(
            row: Value = row, value: Value = value, base: Value = base, most: Var = most,
            bound: Callable[[], Value] = bound,
        ) -> None:  # fmt: skip
            count = waiting.get()
            f.invoke(take, [taken.base, count, row, x["right"], width, value, base, k, x["base"]])
            total.set(total.get() + count)
            waiting.set(zero)
            most.set(bound())

        def visit(j: Value, sum_up: Callable[[], None] = sum_up) -> None:
            taken[waiting.get()] = j
            waiting.set(waiting.get() + 1)
            with f.if_(waiting.get().cmp("==", _TAKEN)):
                sum_up()

        each_hit(f, x["columns"], lanes, hits, visit)
        with f.if_(waiting.get().cmp(">", 0)):
            sum_up()
    x["found"][0] = total.get()
    return f


def _take_function(t: Type, sink: Function) -> Function:
    """Put some columns' squared distances, each summed up in a product's order, into a heap.

    Arguments: the columns and how many there are, the row, the other rows, coordinates, the heap's
    values and indices, its size, and the first column's index.
    """
    f = Function("take", [PTR, I64, PTR, PTR, I64, PTR, PTR, I64, I64], private=True)
    columns, count, row, right, width, value, index, k, base = f.args
    some, last, zero = Items(f, columns, I64), count - 1, f.const(0, I64)
    numbers = [some[f.low(last, s)] for s in range(_TAKEN)]
    starts = [right.at(j * width * t.size) for j in numbers]
    totals = [f.var(f.const(0, t)) for _ in numbers]
    with f.loop(0, width) as c:  # a sum waits for each of its additions: some at once
        own = load_item(f, row, c, t)
        for start, total in zip(starts, totals, strict=True):
            gap = own - load_item(f, start, c, t)
            total.set(f.fma(gap, gap, total.get()))
    for s, (j, total) in enumerate(zip(numbers, totals, strict=True)):
        d, i = total.get(), base + j
        better = worse(f, load_item(f, value, zero, t), Items(f, index, I64)[0], d, i)
        with f.if_(better & count.cmp(">", s)):
            f.invoke(sink, [value, index, k, d, i])
    return f
