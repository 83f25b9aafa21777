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

_STRIP = 64 << 10  # bytes of each matrix that stay in the second-level cache


def apply(expr: Expr, x: Array, other: Array | float) -> None:
    """x ← expr(x, other): see :meth:`semiring_mm.engine.Engine.apply`."""
    to = x if x.strides[1] == x.itemsize else np.ascontiguousarray(x)
    alone = not isinstance(other, np.ndarray)
    second = np.ascontiguousarray([[other]] if alone else other, x.dtype)
    _compiled(expr, x.dtype)(
        alone=alone, rows=x.shape[0], columns=x.shape[1], x=to, other=second
    )
    if to is not x:
        x[...] = to


@functools.lru_cache(maxsize=KEPT)
def _compiled(expr: Expr, dtype: np.dtype[Any]) -> Compiled:
    return compiled(
        kernels.apply, Plan(expr, expr, dtype.name, f"f{8 * dtype.itemsize}", keep_nan=True)
    )


def unit_rows(x: Array) -> Array:
    """The rows divided by their norms: see :meth:`semiring_mm.engine.Engine.unit_rows`."""
    unit, info = np.empty(x.shape, x.dtype), np.finfo(x.dtype)
    code = compiled(kernels.unit_rows, x.dtype.str[1:])
    straight = x.strides[1] == x.itemsize or len(x) < 2

    def divide(i: int, j: int) -> None:
        rows = unit[i:j]
        if not straight:
            rows[...] = x[i:j]
        code(
            mantissa=info.nmant, bias=info.maxexp - 1, rows=len(rows), columns=x.shape[1],
            x=x[i:j] if straight else rows, unit=rows,
        )  # fmt: skip

    if x.nbytes < 2 * _STRIP:
        divide(0, len(x))
    else:
        step = max(1, _STRIP // (x.shape[1] * x.itemsize))
        pool.run([functools.partial(divide, i, i + step) for i in range(0, len(x), step)])
    return unit
