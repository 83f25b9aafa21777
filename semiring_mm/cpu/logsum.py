"""Products over log_plus as products over plus-times of shifted exponentials.

With r the largest entry of each row of A and c that of each column of B, an entry is
``r + c + log Σ exp(a - r) exp(b - c)``: one exponential for each entry of the operands, not one for
each term. Where such a sum is too small to be right, the engine's own product computes the entry.
``docs/log_plus.md`` has the error bounds.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..plan import ALPHA, BETA, READ_C, Plan
from . import threads, vmath
from .algebra import Algebra
from .compiler import Target
from .ir import I64, PTR, Function, Type, Value
from .product import PARAMS, ArrayView

__all__ = ["LEAST", "Tools", "finish_function", "product", "shift_function"]

Array = NDArray[Any]

#: Sums from which the logarithm is taken, by the bits of the type.
LEAST = {32: 2.0**-64, 64: 2.0**-512}
_ROWS = 64  # that a thread takes at a time, at least
_DENSE = 8  # a block is computed whole where one entry in so many is wanted
_SIDE = 32  # or where it is this small


class Tools(NamedTuple):
    """What the engine brings.

    Parameters
    ----------
    plus_times, or_and : callable
        Products of arrays of the type computed in, and of truth values: (a, b, c).
    direct : callable
        The product itself, term by term, with α, β and C: (a, b, c).
    shift, finish : callable
        The compiled functions of this module.
    params : callable
        The parameter block for rows i0 to i1.
    """

    plus_times: Callable[[Array, Array, Array], None]
    or_and: Callable[[Array, Array, Array], None]
    direct: Callable[[Array, Array, Array], None]
    shift: Callable[[Array, Array, Array], None]
    finish: Callable[..., None]
    params: Callable[[int, int], bytes]


def product(
    tools: Tools, plan: Plan, a: Array, b: Array, c: Array, *, accumulate: bool, beta: float | None
) -> None:
    """C ← (α ⊗ A ⊗ B), or with `accumulate` C ← (α ⊗ A ⊗ B) ⊕ (β ⊗ C), for one matrix."""
    dtype = np.dtype(f"f{int(plan.compute[1:]) // 8}")
    with np.errstate(all="ignore"):
        e_rows, rows = _shifted(tools, a, dtype)
        e_columns, columns = _shifted(tools, b.T, dtype)
        sums = np.empty(c.shape, dtype)
        tools.plus_times(e_rows, e_columns.T, sums)
        left = np.zeros(len(c), np.uint8)
        _in_rows(
            len(c),
            lambda i, j: tools.finish(sums, rows, columns, c, tools.params(i, j), left),
        )
        if left.any():
            which = np.flatnonzero(left)
            _rest(tools, which, sums[which], rows, columns, a, b, c, accumulate, beta)


def _in_rows(count: int, run: Callable[[int, int], None]) -> None:
    """Call `run` for all rows, some at a time, on all threads."""
    pieces = max(1, min(4 * threads.get_num_threads(), count // _ROWS))
    cuts = np.linspace(0, count, pieces + 1).astype(int).tolist()
    threads.run([functools.partial(run, i, j) for i, j in itertools.pairwise(cuts)])


def _shifted(tools: Tools, x: Array, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """exp(x - r) in the layout of `x`, and r: the largest of each row, 0 if that is -inf."""
    by_rows = abs(x.strides[1]) <= abs(x.strides[0])
    e = np.empty(x.shape, dtype, order="C" if by_rows else "F")
    largest = np.empty(len(x), dtype)

    def run(i: int, j: int) -> None:
        part = x[i:j].astype(dtype, copy=False)
        top = part.max(axis=1)
        top[top == -math.inf] = 0
        largest[i:j] = top
        shift = np.broadcast_to(top[:, np.newaxis], part.shape)
        if by_rows:
            tools.shift(part, shift, e[i:j])
        else:
            tools.shift(part.T, shift.T, e[i:j].T)

    _in_rows(len(x), run)
    return e, largest


def _rest(
    tools: Tools, which: Array, sums: Array, rows: Array, columns: Array, a: Array, b: Array,
    c: Array, accumulate: bool, beta: float | None,
) -> None:  # fmt: skip
    """The entries of these rows whose sums are too small: those that are -inf, then the others."""
    least = LEAST[8 * sums.itemsize]
    todo = ~((sums >= least) & (sums < math.inf))
    todo &= ~np.isnan(rows[which, np.newaxis] + columns)  # NaN is what they are
    zero = todo & (sums == 0)
    if zero.any():  # underflow, or no term but -inf
        reached = np.empty(zero.shape, bool)
        tools.or_and(a[which] > -math.inf, b > -math.inf, reached)
        zero &= ~reached
        todo &= ~zero
        i, j = np.nonzero(zero)
        if not accumulate:
            c[which[i], j] = -math.inf
        elif beta is not None:
            c[which[i], j] = c[which[i], j].astype(sums.dtype) + beta
    blocks = list(_blocks(which, np.arange(c.shape[1]), todo))
    threads.run([functools.partial(_direct, tools, *block, a, b, c) for block in blocks])


def _direct(
    tools: Tools, rows: Array, columns: Array, wanted: Array, a: Array, b: Array, c: Array
) -> None:
    place = np.ix_(rows, columns)
    block = c[place]
    tools.direct(a[rows], b[:, columns], block)
    c[place] = np.where(wanted, block, c[place])


def _blocks(rows: Array, columns: Array, wanted: Array) -> Iterator[tuple[Array, Array, Array]]:
    """Rows and columns that cover what is wanted, and not much more."""
    some = wanted.any(1)
    rows, wanted = rows[some], wanted[some]
    some = wanted.any(0)
    columns, wanted = columns[some], wanted[:, some]
    if not wanted.size:
        return
    if wanted.size <= _SIDE * _SIDE or _DENSE * np.count_nonzero(wanted) >= wanted.size:
        yield rows, columns, wanted
        return
    if len(rows) >= len(columns):
        cuts = [slice(None, len(rows) // 2), slice(len(rows) // 2, None)]
        parts = [(rows[x], columns, wanted[x]) for x in cuts]
    else:
        cuts = [slice(None, len(columns) // 2), slice(len(columns) // 2, None)]
        parts = [(rows, columns[x], wanted[:, x]) for x in cuts]
    for part in parts:
        yield from _blocks(*part)


# --- generated code -----------------------------------------------------------------------------


def shift_function(plan: Plan, target: Target, head: int) -> Function:
    """Generate ``shift(X, R, E)``: E ← exp(X - R), where R repeats along one of the axes.

    X and R are of the type computed in; nothing of X may be above R. An exponential under twice
    the smallest normal number is zero.
    """
    f = Function("shift", [PTR] * 3)
    x, r, e = (ArrayView(f, v, head) for v in f.args)
    t = Algebra(f, plan).compute
    lanes = target.vector_bytes // t.size

    def row(i: Value, splat: bool) -> None:
        starts = [view.data.at(i * view.stride(-2)) for view in (x, r, e)]

        def some(k: Value, n: int) -> None:
            places = [
                start.at(k * view.stride(-1)) for start, view in zip(starts, (x, r, e), strict=True)
            ]
            by = f.load(places[1], t if splat else t.vector(n), t.size)
            value = f.load(places[0], t.vector(n)) - (by.splat(n) if splat else by)
            f.store(vmath.add_exp(f, f.const(0.0, t.vector(n)), value), places[2], t.size)

        _along(f, x.dim(-1), lanes, x.stride(-1).cmp("==", t.size), some)

    with f.if_else(r.stride(-1).cmp("==", 0)) as otherwise:
        with f.loop(0, x.dim(-2)) as i:
            row(i, True)
        with otherwise(), f.loop(0, x.dim(-2)) as i:
            row(i, False)
    return f


def finish_function(plan: Plan, target: Target, head: int) -> Function:
    """Generate ``finish(S, R, Q, C, params, left)``: C from sums and shifts, for rows i0 to i1.

    Where a sum is too small C stays as it is, and the row's byte in `left` is set.
    """
    f = Function("finish", [PTR] * 6)
    s, r, q, c = (ArrayView(f, v, head) for v in f.args[:4])
    left = ArrayView(f, f.args[5], head)
    params = f.args[4]
    p = {name: f.load(params.at(8 * i), I64) for i, name in enumerate(PARAMS)}
    field = {name: params.at(8 * i) for i, name in enumerate(PARAMS)}
    algebra = Algebra(f, plan)
    t, stored = algebra.compute, algebra.storage
    lanes = target.vector_bytes // t.size
    mode, byte = p["mode"], Type("i", 8)

    with f.loop(p["i0"], p["i1"]) as i:
        row = f.load(r.data.at(i * t.size), t)
        sums, out = s.data.at(i * s.stride(-2)), c.data.at(i * c.stride(-2))
        missed = f.var(f.const(0, byte))

        def some(j: Value, n: int) -> None:
            total = f.load(sums.at(j * t.size), t.vector(n), t.size)
            shift = row.splat(n) + f.load(q.data.at(j * t.size), t.vector(n), t.size)
            good = total.cmp(">=", LEAST[t.bits]) & total.cmp("<", math.inf)
            nothing = shift.cmp("uno", shift)  # every term is NaN
            value = f.var(f.select(nothing, shift, shift + vmath.log(f, total)))
            place = out.at(j * c.stride(-1))
            old = f.load(place, stored.vector(n))
            with f.if_((mode & ALPHA).cmp("!=", 0)):
                value.set(algebra.scale(f.load(field["alpha"], t).splat(n), value.get()))
            with f.if_((mode & READ_C).cmp("!=", 0)):
                was = f.var(algebra.decode(old))
                with f.if_((mode & BETA).cmp("!=", 0)):
                    was.set(algebra.scale(f.load(field["beta"], t).splat(n), was.get()))
                value.set(algebra.add(value.get(), was.get()))
            result, _ = algebra.encode(value.get())
            good = good | nothing
            f.store(f.select(good, result, old), place)
            bad = (good ^ 1).bits_as(Type("u", n)) if n > 1 else good ^ 1
            some_bad = bad.cmp("!=", 0) if n > 1 else bad
            missed.set(f.select(some_bad, f.const(1, byte), missed.get()))

        _along(f, s.dim(-1), lanes, c.stride(-1).cmp("==", stored.size), some)
        f.store(missed.get(), left.data.at(i))
    return f


def _along(
    f: Function, count: Value, lanes: int, unit: Value, some: Callable[[Value, int], None]
) -> None:
    """Vectors where neighbours lie side by side, then one by one."""
    whole = f.select(unit, count // lanes * lanes, f.const(0, I64))
    with f.loop(0, whole, lanes) as k:
        some(k, lanes)
    with f.loop(whole, count) as k:
        some(k, 1)
