"""Prepared products of NumPy matrices: one look-up from the operands to compiled code.

The checks of a verb cost more than a small product. What follows from the semiring, the dtype, the
shapes and the strides alone is kept in one dictionary; what follows from the entries (NaN, signs,
infinities, the ranges of integers) is looked at in each call. :func:`repeat` computes exactly what
:func:`.product.product` does, or returns None where the verb's own checks are needed.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..engine import PLAIN, Scaling
from ..memory import workspace
from ..plan import needs_facts
from ..semirings import Semiring
from . import product
from .compiler import KEPT
from .facts import class_scan, facts_of_class

__all__ = ["learn", "prepared", "recorded", "repeat"]

Array = NDArray[Any]

_PAIRS = 1 << 20  # of the largest product that is prepared; a BLAS takes all sizes

_Code = tuple[Any, bytes, int]  # the compiled function, its parameters and bytes of workspace


@dataclass(slots=True, eq=False)
class _Call:
    """What a product of matrices of one layout needs besides their addresses."""

    semiring: Semiring
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    depth: int
    blas: bool
    scaling: Scaling = PLAIN  # where it joins C, that is what is joined
    # Where the choice of code depends on them: compiled functions for the classes of A, of B and of
    # C, if that is joined (:func:`.facts.class_of`).
    scan: Any = None
    # by these classes; None where the general way is to be taken
    codes: dict[tuple[int, ...], _Code | None] = field(default_factory=dict)
    gemv: Callable[..., None] | None = None  # where B is a vector, what multiplies

    def code(self, classes: tuple[int, ...]) -> _Code | None:
        """Choose the code for operands of some classes, and keep it."""
        known = [facts_of_class(x, self.dtype) for x in classes]
        try:
            code = product.code_of(
                self.semiring, self.dtype, known, self.shape, self.depth, self.scaling
            )
        except OverflowError:  # integers as large as these may be have no type wide enough
            code = None
        self.codes[classes] = code
        return code


_calls: dict[tuple[Any, ...], _Call] = {}


def repeat(
    head: tuple[Any, ...], operands: tuple[Any, ...], out: Any = None, dtype: str = ""
) -> Array | None:
    """A ⊗ B of matrices that lie like earlier ones; see :meth:`semiring_mm.engine.Calls.repeat`.

    NumPy's own arrays are served, of one native dtype; `out` if it needs neither an error nor a
    temporary array. The head says, with the dtype, what the semiring is, and what scales.
    """
    for x in operands:
        if type(x) is not np.ndarray:
            return None
    if len(operands) < 2:
        return None
    a, b, *joined = operands
    try:
        call = _calls.get(_key(head, a, b))
    except TypeError:  # no semiring can be unhashable
        return None
    if call is None or (dtype and dtype != call.dtype):
        return None
    if call.scaling.accumulate != bool(joined):
        return None
    return _made(call, a, b, out, *joined)


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
    if call.gemv is not None:
        call.gemv(call.semiring, a, b, c, call.scaling)
        return c if joined is None else _put(c, out)
    if call.blas:
        return product.by_blas(a, b, c) if product.lie_well(a, b, c) else None
    scan = call.scan
    classes: tuple[int, ...] = (scan[0](a), scan[1](b)) if scan else ()
    if joined is not None and scan:
        classes = *classes, scan[2](c)
    try:
        code = call.codes[classes]
    except KeyError:
        code = call.code(classes)
    if code is None:
        return None
    function, params, room = code
    buffer = workspace(room)
    function(a, b, c, buffer, params, c, c)
    if buffer[0]:  # an integer does not fit: the general way raises the error
        buffer[:64] = 0
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
    scaling: Scaling = PLAIN,
) -> Array | None:  # fmt: skip
    """:func:`repeat`, of a product that is prepared if it was not; None of one that joins `out`."""
    key = _key(head, a, b)
    call = _calls.get(key)
    if call is None:
        call = _prepare(semiring, a, b, scaling)
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


def _prepare(semiring: Semiring, a: Array, b: Array, scaling: Scaling) -> _Call | None:
    """Prepare the product of two matrices, or of one and a vector, if that can be done."""
    (m, depth), n, dtype = a.shape, math.prod(b.shape[1:]), a.dtype
    if b.shape[0] != depth or not m * n * depth or not (dtype.isnative and b.dtype is dtype):
        return None
    if b.ndim == 1:
        from .vector import gemv  # imported lazily: many calls have matrices alone

        return _Call(semiring, dtype, (m,), depth, False, scaling, gemv=gemv)
    blas = scaling == PLAIN and product.blas_serves(semiring, a, b)
    if not blas and m * n * depth > _PAIRS:
        return None
    call = _Call(semiring, dtype, (m, n), depth, blas, scaling)
    if needs_facts(semiring, dtype) and not blas:
        read = [a, b, np.empty((m, n), dtype)] if scaling.accumulate else [a, b]
        call.scan = [class_scan(semiring, x) for x in read]
    return call
