"""Prepared products of NumPy matrices: one look-up from the operands to compiled code.

The checks of a verb cost more than a small product. What follows from the semiring, the dtype, the
shapes and the strides alone is kept in one dictionary; what follows from the entries (NaN, signs,
infinities, the ranges of integers) is looked at in each call. :func:`repeat` computes exactly what
:func:`.product.product` does, or returns None where the verb's own checks are needed.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..engine import PLAIN, Scaling
from ..expressions import Expr
from ..memory import workspace
from ..plan import needs_facts
from ..semirings import Semiring
from . import product
from .compiler import KEPT
from .facts import class_scan, facts_of_class

__all__ = ["learn", "prepared", "recorded", "repeat"]

Array = NDArray[Any]

_PAIRS = 1 << 20  # of the largest product that is prepared; a BLAS takes all sizes


class _Call(NamedTuple):
    """What a product of matrices of one layout needs besides their addresses."""

    dtype: np.dtype[Any]  # of the result
    shape: tuple[int, ...]
    #: From A, B and C whether C ← A ⊗ B was done; else the general way is to be taken.
    multiply: Callable[[Array, Array, Array], bool]
    joins: bool = False  # whether C is joined


_calls: dict[tuple[Any, ...], _Call] = {}


def repeat(
    head: tuple[Any, ...], operands: tuple[Any, ...], out: Any = None, dtype: str = ""
) -> Array | None:
    """A ⊗ B of matrices that lie like earlier ones; see :meth:`semiring_mm.engine.Calls.repeat`.

    NumPy's own arrays are served, of one native dtype; `out` if it needs neither an error nor a
    temporary array. The head says, with the dtype, what the semiring is, and what scales.
    """
    if len(operands) == 2:
        (a, b), joined = operands, None
    elif len(operands) == 3:
        a, b, joined = operands
        if type(joined) is not np.ndarray:
            return None
    else:
        return None
    if type(a) is not np.ndarray or type(b) is not np.ndarray:
        return None
    try:
        call = _calls.get(_key(head, a, b))
    except TypeError:  # no semiring can be unhashable
        return None
    if call is None or (dtype and dtype != call.dtype) or call.joins is (joined is None):
        return None
    return _made(call, a, b, out, joined)


def _key(head: tuple[Any, ...], a: Array, b: Array) -> tuple[Any, ...]:
    """What a product of matrices depends on, but for their entries."""
    return head, a.dtype, b.dtype, a.shape, a.strides, b.shape, b.strides, pool.get_num_threads()


def _made(
    call: _Call, a: Array, b: Array, out: Any, joined: Array | None = None
) -> Array | None:  # fmt: skip
    """A ⊗ B by a prepared call, or None where the general way is to be taken."""
    if out is not None and not _fits(out, call, a, b):
        return None
    if joined is not None:
        if joined.shape != call.shape or joined.dtype is not call.dtype:
            return None
        c = joined.copy()  # also where it is `out`: the general way may have to read it again
    else:
        c = np.empty(call.shape, call.dtype) if out is None else out
    if not call.multiply(a, b, c):
        return None
    return c if joined is None else _put(c, out)


def _put(c: Array, out: Array | None) -> Array:
    """The result, in `out` where there is one."""
    if out is None:
        return c
    out[...] = c
    return out


def _fits(out: Any, call: _Call, a: Array, b: Array) -> bool:
    """Whether the result can be written to `out` at once."""
    return (
        type(out) is np.ndarray
        and out.dtype is call.dtype
        and out.shape == call.shape
        and out.flags.writeable
        and (0 not in out.strides or out.size == 1)
        and not np.may_share_memory(out, a)
        and not np.may_share_memory(out, b)
    )


def prepared(
    head: tuple[Any, ...], semiring: Semiring, a: Array, b: Array, out: Any = None,
    scaling: Scaling = PLAIN, final: Expr | None = None,
) -> Array | None:  # fmt: skip
    """:func:`repeat`, of a product that is prepared if it was not; None of one that joins `out`."""
    key = _key(head, a, b)
    call = _calls.get(key)
    if call is None:
        call = _prepare(semiring, a, b, scaling, final)
        if call is None:
            return None
        if len(_calls) >= KEPT:
            _calls.clear()
        _calls[key] = call
    return None if scaling.accumulate else _made(call, a, b, out)


def recorded() -> contextlib.AbstractContextManager[None]:
    """Nothing: no launches are learned from."""
    return contextlib.nullcontext()


def learn(
    notes: Sequence[Any], head: tuple[Any, ...], operands: Sequence[Any], out: Any, given: Any,
    arrays: Sequence[Array], result: Array, holds: Sequence[Callable[[Any], bool]] = (),
) -> None:  # fmt: skip
    """Do nothing: :func:`prepared` knows all of a call before it is made."""


def _prepare(
    semiring: Semiring, a: Array, b: Array, scaling: Scaling, final: Expr | None
) -> _Call | None:
    """Prepare the product of two matrices, or of one and a vector, if that can be done."""
    (m, depth), n, dtype = a.shape, math.prod(b.shape[1:]), a.dtype
    if b.shape[0] != depth or not m * n * depth or not (dtype.isnative and b.dtype is dtype):
        return None
    joins = scaling.accumulate
    if b.ndim == 1:
        from .vector import gemv  # imported lazily: many calls have matrices alone

        def by_rows(a: Array, b: Array, c: Array) -> bool:
            gemv(semiring, a, b, c, scaling)
            return True

        return _Call(dtype, (m,), by_rows, joins)
    if scaling == PLAIN and product.blas_serves(semiring, a, b):
        return None if final is not None else _Call(dtype, (m, n), _by_blas)
    if m * n * depth > _PAIRS or not (final is None or product.ends(semiring, dtype, final)):
        return None

    def code(*classes: int) -> _Code | None:
        known = [facts_of_class(x, dtype) for x in classes]
        try:
            return product.code_of(semiring, dtype, known, (m, n), depth, scaling, final)
        except OverflowError:  # integers as large as these may be have no type wide enough
            return None

    if not needs_facts(semiring, dtype):
        return _Call(dtype, (m, n), functools.partial(_run, code()), joins)
    scan_a, scan_b = class_scan(semiring, a), class_scan(semiring, b)
    scan_c = class_scan(semiring, np.empty((m, n), dtype)) if joins else None
    codes: dict[tuple[int, ...], _Code | None] = {}

    def multiply(a: Array, b: Array, c: Array) -> bool:
        classes: tuple[int, ...] = scan_a(a), scan_b(b)
        if scan_c is not None:
            classes = *classes, scan_c(c)
        try:
            own = codes[classes]
        except KeyError:
            own = codes[classes] = code(*classes)
        return _run(own, a, b, c)

    return _Call(dtype, (m, n), multiply, joins)


def _by_blas(a: Array, b: Array, c: Array) -> bool:
    if not product.lie_well(a, b, c):
        return False
    product.by_blas(a, b, c)
    return True


_Code = tuple[Any, bytes, int]  # the compiled function, its parameters and bytes of workspace


def _run(code: _Code | None, a: Array, b: Array, c: Array) -> bool:
    if code is None:
        return False
    function, params, room = code
    buffer = workspace(room)
    if function((a, b, c, buffer, params, c, c)):  # an integer does not fit: an error is raised
        buffer[:64] = 0
        return False
    return True
