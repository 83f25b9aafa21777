"""Products over log_plus as products over plus-times of shifted exponentials.

With r the largest entry of each row of A and c that of each column of B, an entry is
``r + c + log Σ exp(a - r) exp(b - c)``: one exponential for each entry of the operands, not one for
each term. Where such a sum is too small to be right, the engine's own product computes the entry.
``docs/log_plus.md`` has the error bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..engine import Scaling
from ..plan import Plan, scalar
from .codegen import compiled
from .compiler import host_target
from .kernels import logsum as kernels
from .views import even_strides

__all__ = ["RANGES", "product"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Range:
    """Powers of two for exponentials that never become denormal.

    Many processors are slow at denormal numbers.
    """

    lift: int  # exponentials are ``2**lift`` times what they are, sums twice that
    # exponentials that are then below ``2**least`` count as zero: no product of two is denormal
    least: int
    mantissa: int  # bits of the significand

    def sum_from(self, depth: int) -> float:
        """Sums of so many terms from which all that counted as zero is less than half a unit."""
        return depth * 2.0 ** (self.least - self.lift + self.mantissa + 1)


RANGES = {32: Range(52, -63, 24), 64: Range(400, -511, 53)}
_ROWS, _PIECE = 64, 1 << 16  # and entries that a thread takes at a time, at least
_RUN = 64  # entries of a row that some vectors have
_DENSE = 0.4  # of the entries left, from which all of their rows are computed


Product = Callable[[Array, Array, Array], None]  # C ← A B


def product(
    plus_times: Product,
    or_and: Product,
    direct: Product,
    plan: Plan,
    a: Array,
    b: Array,
    c: Array,
    scaling: Scaling,
) -> None:
    """C ← ((α ⊗ A) ⊗ B) ⊕ (β ⊗ C) for one matrix.

    By products of arrays of the type computed in, and of truth values; and the product itself, term
    by term, with α, β and C.
    """
    if c.strides[1] != c.itemsize or not even_strides(c):
        out = np.ascontiguousarray(c)
        product(plus_times, or_and, direct, plan, a, b, out, scaling)
        c[...] = out
        return
    alpha, beta = scaling.alpha, scaling.beta
    dtype = plan.computed_in
    limits = RANGES[8 * dtype.itemsize]
    least = limits.sum_from(a.shape[1])
    left = np.zeros(len(c), np.uint8)
    sums = np.empty(c.shape, dtype)

    def finish(i: int, j: int) -> None:
        compiled(kernels.finish, plan, plan.start)(
            i0=i, i1=j, n=c.shape[1], sums=sums, factor=2.0 ** (-2 * limits.lift), rows=rows,
            columns=columns, c=c, more=scaling.accumulate, alpha=scalar(plan, alpha),
            beta=scalar(plan, beta), least=least, left=left,
        )  # fmt: skip

    with np.errstate(all="ignore"):
        e_rows, rows = _shifted(a, dtype)
        e_columns, columns = _shifted(b.T, dtype)
        plus_times(e_rows, e_columns.T, sums)
        _in_rows(c.shape, finish)
        which = np.flatnonzero(left)
        if not which.size:
            return
        nothing, unsettled = _unsettled(or_and, which, sums[which], rows, columns, a, b, least)
        i, j = np.nonzero(nothing)
        if not scaling.accumulate:
            c[which[i], j] = -math.inf
        elif beta is not None:
            c[which[i], j] = c[which[i], j].astype(dtype) + beta
        count = np.count_nonzero(unsettled)
        if count > _DENSE * unsettled.size:
            block = c[which]
            direct(a[which], b, block)
            c[which] = np.where(unsettled, block, c[which])
        elif count:
            i, j = np.nonzero(unsettled)
            value = _entries(a, b, which[i], j, dtype)
            if alpha is not None:
                value += dtype.type(alpha)
            if scaling.accumulate:
                old = c[which[i], j].astype(dtype)
                value = np.logaddexp(value, old if beta is None else old + dtype.type(beta))
            c[which[i], j] = value


def _in_rows(shape: tuple[int, ...], run: Callable[[int, int], None]) -> None:
    """Call `run` for all rows, some at a time, on all threads."""
    most = 4 * pool.get_num_threads()
    pieces = max(1, min(most, shape[0] // _ROWS, shape[0] * shape[1] // _PIECE))
    pool.run_parts(run, shape[0], pieces)


def _shifted(x: Array, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """2**lift * exp(x - r) in the layout of `x`, and r: the largest of a row, 0 if that is -inf."""
    by_rows = abs(x.strides[1]) <= abs(x.strides[0])
    e = np.empty(x.shape, dtype, order="C" if by_rows else "F")
    largest, limits = np.empty(len(x), dtype), RANGES[8 * dtype.itemsize]

    def run(i: int, j: int) -> None:
        part = x[i:j].astype(dtype, copy=False)
        top = part.max(axis=1)
        top[top == -math.inf] = 0
        largest[i:j] = top
        own, to = (part, e[i:j]) if by_rows else (part.T, e[i:j].T)
        if own.strides[1] != own.itemsize or not even_strides(own):
            own = np.ascontiguousarray(own)
        compiled(kernels.shift, dtype.str[1:])(
            rows=len(own), n=own.shape[1], x=own, down=top if by_rows else None,
            along=None if by_rows else top, lift=limits.lift, least=limits.least, to=to,
        )  # fmt: skip

    _in_rows(x.shape, run)
    return e, largest


def _unsettled(
    or_and: Product, which: Array, sums: Array, rows: Array, columns: Array, a: Array, b: Array,
    least: float,
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:  # fmt: skip
    """Of the rows `which`, in some of whose entries the sums are too small, two sets of entries.

    Those whose terms are all -inf, and those that are to be computed term by term.
    """
    total = sums * sums.dtype.type(2.0 ** (-2 * RANGES[8 * sums.itemsize].lift))
    direct = ~((total >= least) & (total < math.inf))
    direct &= ~np.isnan(rows[which, np.newaxis] + columns)  # NaN is what they are
    nothing = direct & (sums == 0)
    if nothing.any():  # or underflow: is there a term of two finite entries?
        reached = np.empty(sums.shape, bool)
        or_and(a[which] > -math.inf, b > -math.inf, reached)
        nothing &= ~reached
    return nothing, direct & ~nothing


def _entries(a: Array, b: Array, i: Array, j: Array, dtype: np.dtype[Any]) -> Array:
    """log Σ exp(A[i, k] + B[k, j]) for some i and j."""
    value = np.empty(len(i), dtype)
    rows, at_row = np.unique(i, return_inverse=True)
    columns, at_column = np.unique(j, return_inverse=True)
    left = _padded(a[rows], dtype, -math.inf)
    right = _padded(b[:, columns].T, dtype, 0)
    places = np.stack([at_row, at_column]).astype(np.int64, copy=False)
    width = host_target().vector_bytes // dtype.itemsize

    def some(first: int, last: int) -> None:
        compiled(kernels.entries, dtype.str[1:])(
            first=first, last=last, n=left.shape[1], a=left, b=right, places=places, to=value,
            width=width,
        )  # fmt: skip

    pool.run_parts(some, len(i), 4 * pool.get_num_threads())
    return value


def _padded(x: Array, dtype: np.dtype[Any], fill: float) -> Array:
    """Rows that lie one after the other, of a length that vectors divide."""
    out = np.full((x.shape[0], -(-x.shape[1] // _RUN) * _RUN), fill, dtype)
    out[:, : x.shape[1]] = x
    return out
