"""Functions of the entries of matrices."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..expressions import Expr
from ..plan import Plan
from . import threads
from .algebra import Algebra, storage_type
from .blocks import block, load_block
from .compiler import KEPT, compile_functions, host_target
from .ir import I64, PTR, Function

__all__ = ["apply", "combine"]

Array = NDArray[Any]

_FIELDS = "rows columns step other_step : : : x other"
_STRIP = 64 << 10  # bytes of each matrix that stay in the second-level cache


def combine(sums: Sequence[tuple[int, int, int, int]], arrays: Sequence[Array]) -> None:
    """Sums of matrices, entry by entry, one after the other.

    Parameters
    ----------
    sums : sequence of (to, left, sign, right)
        ``arrays[to] ← arrays[left] + sign · arrays[right]``, with sign 1 or -1. Where `to` is the
        number of arrays, it is a temporary value that later sums may read and replace.
    arrays : sequence of ndarray (m, n)
        Floating point, any strides. Two may be the same matrix.
    """
    if abs(arrays[0].strides[0]) < abs(arrays[0].strides[1]):
        arrays = [x.T for x in arrays]
    m, n = arrays[0].shape
    step = max(1, _STRIP // (n * arrays[0].itemsize or 1))
    threads.run(
        [
            functools.partial(_strip, sums, [x[i : i + step] for x in arrays])
            for i in range(0, m, step)
        ]
    )


def apply(expr: Expr, x: Array, other: Array | float) -> None:
    """x ← expr(x, other): see :meth:`semiring_mm.engine.Engine.apply`."""
    to = x if x.strides[1] == x.itemsize else np.ascontiguousarray(x)
    alone = not isinstance(other, np.ndarray)
    other = np.full((1, 1), other, x.dtype) if alone else np.ascontiguousarray(other, x.dtype)
    values = block(_FIELDS, {
        "rows": x.shape[0], "columns": x.shape[1], "step": to.strides[0],
        "other_step": 0 if alone else other.strides[0], "x": to, "other": other,
    })  # fmt: skip
    _compiled(expr, x.dtype, alone)(values.ctypes.data)
    if to is not x:
        x[...] = to


@functools.lru_cache(maxsize=KEPT)
def _compiled(expr: Expr, dtype: np.dtype[Any], alone: bool) -> Any:
    t, target = storage_type(dtype.name), host_target()
    lanes = target.vector_bytes // t.size
    f = Function("apply", [PTR])
    x = load_block(f, _FIELDS)
    algebra = Algebra(f, Plan(expr, expr, dtype.name, f"f{t.bits}", keep_nan=True))
    columns, vector = x["columns"], t.vector(lanes)
    order = f.iota(I64.vector(lanes))
    with f.loop(0, x["rows"]) as r:
        row, second = x["x"].at(r * x["step"]), x["other"].at(r * x["other_step"])
        with f.loop(0, columns, lanes) as c:
            inside = order.cmp("<", (columns - c).splat(lanes))
            place, from_ = row.at(c * t.size), second.at(c * t.size)
            b = (
                f.load(second, t, t.size).splat(lanes)
                if alone
                else f.load_masked(from_, vector, inside, t.size)
            )
            a = f.load_masked(place, vector, inside, t.size)
            f.store_masked(algebra.mul(a, b), place, inside, t.size)
    return compile_functions([f], target).function("apply", ctypes.c_void_p)


def _strip(sums: Sequence[tuple[int, int, int, int]], strips: list[Array]) -> None:
    if any(to == len(strips) for to, *_ in sums):
        strips = [*strips, np.empty(strips[0].shape, strips[0].dtype)]
    with np.errstate(all="ignore"):
        for to, left, sign, right in sums:
            (np.add if sign > 0 else np.subtract)(strips[left], strips[right], out=strips[to])
