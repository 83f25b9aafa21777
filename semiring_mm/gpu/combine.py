"""Functions of the entries of matrices on the device, in one pass over memory."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ..expressions import Expr, evaluate, to_cuda
from ..semirings import Semiring
from . import device
from .launch import entry, launch, struct_of
from .source import STORAGE, flags
from .views import strides, wide_along

__all__ = ["apply", "combine", "scaled", "unit_rows"]

Array = Any

_THREADS = 256  # sr::Combine's


def apply(expr: Expr, x: Array, other: Array | float) -> None:
    """x ← expr(x, other), entry by entry: see :meth:`semiring_mm.engine.Engine.apply`."""
    combine(expr, x, other, x)


def combine(expr: Expr, x: Array, other: Array | float, to: Array) -> None:
    """to ← expr(x, other), of matrices of one shape and dtype; `to` may be an operand."""
    arrays = [to, x] if isinstance(other, float) else [to, x, other]
    (m, n), size = x.shape, x.itemsize
    if not m * n:
        return
    chunk = 16 // size
    wide = all(wide_along(y, -1, chunk) for y in arrays)
    chunks = n // chunk if wide else n
    lanes = min(_THREADS, 1 << (chunks - 1).bit_length())
    segments = -(-chunks // lanes)
    row, column = zip(*(strides(y)[1:] for y in arrays), strict=True)
    blocks = segments * -(-m // (_THREADS // lanes))
    launch(
        _source(x.dtype.name, expr, len(arrays), wide), struct_of("CombineParams", N=len(arrays)),
        blocks, _THREADS, x=arrays, row=row, column=column, rows=m, columns=n, segments=segments,
        scalar=other if isinstance(other, float) else 0.0, lanes=lanes,
    )  # fmt: skip


@functools.cache
def _source(storage: str, expr: Expr, count: int, wide: bool) -> str:
    """The text of the kernel; `wide`: 16 bytes can be read and written at once along the rows."""
    run = f"sr::Combine<T, Function, {count}, {flags(wide)}>::run"
    return entry("combine.cuh", f"sr::CombineParams<{count}>", run, _THREADS, f"""
using T = {STORAGE[storage]};
struct Function {{
  SR_FN static T of([[maybe_unused]] T a, [[maybe_unused]] T b) {{
    return T({to_cuda(expr, "T")});
  }}
}};
""")  # fmt: skip


def scaled(semiring: Semiring, alpha: float | int, x: Array) -> Array:
    """α ⊗ x, where ⊗ does not distribute and a product cannot be scaled at its end."""
    if x.dtype.kind in "iu" and semiring.mul_kind not in ("min", "max", "&", "|", "^"):
        raise ValueError(
            f"alpha = {alpha} over {semiring.name} in {x.dtype} on a GPU would have to scale an "
            f"operand, which might overflow: scale it first, or use float64"
        )
    if x.ndim == 2 and x.dtype.kind == "f" and semiring.commutes:
        result = device.scratch(x.shape, x.dtype)
        combine(semiring.mul_expr, x, float(alpha), result)
        return result
    return evaluate(semiring.mul_expr, x.dtype.type(alpha), x).astype(x.dtype, copy=False)


def unit_rows(x: Array) -> Array:
    """The rows divided by their norms: see :meth:`semiring_mm.engine.Engine.unit_rows`."""
    xp = device.current().xp
    with np.errstate(all="ignore"):
        _, exponent = xp.frexp(xp.abs(x).max(axis=1))
        rows = xp.ldexp(x, -exponent[:, np.newaxis])  # exactly: squares neither overflow nor vanish
        return rows / xp.sqrt((rows * rows).sum(axis=1))[:, np.newaxis]
