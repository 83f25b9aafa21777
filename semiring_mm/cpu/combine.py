"""Functions of the entries of matrices."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..expressions import Expr
from ..plan import Plan
from .codegen import Compiled, compiled
from .compiler import KEPT
from .kernels import combine as kernels

__all__ = ["apply", "unit_rows"]

Array = NDArray[Any]

_STRIP = 256 << 10  # bytes of each matrix that stay in the second-level cache


def apply(expr: Expr, x: Array, other: Array | float) -> None:
    """x ← expr(x, other): see :meth:`semiring_mm.engine.Engine.apply`."""
    to = x if x.strides[1] == x.itemsize else np.ascontiguousarray(x)
    alone = not isinstance(other, np.ndarray)
    second = np.array(other, x.dtype, ndmin=2) if alone else np.ascontiguousarray(other, x.dtype)
    _compiled(expr, x.dtype)(alone=alone, rows=x.shape[0], columns=x.shape[1], x=to, other=second)
    if to is not x:
        x[...] = to


@functools.lru_cache(maxsize=KEPT)
def _compiled(expr: Expr, dtype: np.dtype[Any]) -> Compiled:
    return compiled(
        kernels.apply, Plan(expr, expr, dtype.name, f"f{8 * dtype.itemsize}", keep_nan=True)
    )


def unit_rows(x: Array) -> Array:
    """The rows divided by their norms: see :meth:`semiring_mm.engine.Engine.unit_rows`."""
    unit = np.empty(x.shape, x.dtype)
    pieces = -(-x.nbytes // _STRIP)
    pool.run_parts(lambda i, j: _divide(x[i:j], unit[i:j]), len(x), max(1, pieces))
    return unit


def _divide(x: Array, unit: Array) -> None:
    rows, columns = x.shape
    if x.strides[1] != x.itemsize:
        unit[...] = x
        x = unit
    mantissa, bias = (52, 1023) if x.itemsize == 8 else (23, 127)
    compiled(kernels.unit_rows, x.dtype.str[1:])(
        mantissa=mantissa, bias=bias, rows=rows, columns=columns, x=x, unit=unit
    )
