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
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..engine import Scaling
from ..plan import ALPHA, BETA, READ_C, Plan
from . import vmath
from .algebra import Algebra
from .compiler import KEPT, Target, host_target
from .ir import I64, PTR, Function, Type, Value
from .product_code import PARAMS
from .views import ArrayView, array_function

__all__ = [
    "RANGES", "Tools", "entries_code", "entries_function", "finish_function", "product",
    "shift_function", "sum_code",
]  # fmt: skip

Array = NDArray[Any]


@dataclass(frozen=True)
class Range:
    """Powers of two for exponentials that never become denormal, which many processors are slow at.

    Parameters
    ----------
    lift : int
        Exponentials are ``2**lift`` times what they are, sums twice that.
    least : int
        Exponentials that are then below ``2**least`` count as zero: no product of two is denormal.
    mantissa : int
        Bits of the significand.
    """

    lift: int
    least: int
    mantissa: int

    def sum_from(self, depth: int) -> float:
        """Sums of so many terms from which all that counted as zero is less than half a unit."""
        return depth * 2.0 ** (self.least - self.lift + self.mantissa + 1)


RANGES = {32: Range(52, -63, 24), 64: Range(400, -511, 53)}
_ROWS, _PIECE = 64, 1 << 16  # and entries that a thread takes at a time, at least
_DENSE = 0.4  # of the entries left, from which all of their rows are computed


class Tools(NamedTuple):
    """What the engine brings.

    Parameters
    ----------
    plus_times, or_and : callable
        Products of arrays of the type computed in, and of truth values: (a, b, c).
    direct : callable
        The product itself, term by term, with α, β and C: (a, b, c).
    shift, finish, entries : callable
        The compiled functions of this module.
    params : callable
        The parameter block for rows i0 to i1 and the least sum that is right.
    """

    plus_times: Callable[[Array, Array, Array], None]
    or_and: Callable[[Array, Array, Array], None]
    direct: Callable[[Array, Array, Array], None]
    shift: Callable[[Array, Array, Array], None]
    finish: Callable[..., None]
    entries: Callable[..., None]
    params: Callable[[int, int, float], bytes]


def product(
    tools: Tools,
    plan: Plan,
    a: Array,
    b: Array,
    c: Array,
    scaling: Scaling,
) -> None:
    """C ← ((α ⊗ A) ⊗ B) ⊕ (β ⊗ C) for one matrix."""
    alpha, beta = scaling.alpha, scaling.beta
    dtype = np.dtype(f"f{int(plan.compute[1:]) // 8}")
    least = RANGES[8 * dtype.itemsize].sum_from(a.shape[1])
    left = np.zeros(len(c), np.uint8)
    sums = np.empty(c.shape, dtype)

    def finish(i: int, j: int) -> None:
        tools.finish(sums, rows, columns, c, tools.params(i, j, least), left)

    with np.errstate(all="ignore"):
        e_rows, rows = _shifted(tools, a, dtype)
        e_columns, columns = _shifted(tools, b.T, dtype)
        tools.plus_times(e_rows, e_columns.T, sums)
        _in_rows(c.shape, finish)
        which = np.flatnonzero(left)
        if not which.size:
            return
        todo = _unsettled(tools, which, sums[which], rows, columns, a, b, least)
        i, j = np.nonzero(todo.nothing)
        if not scaling.accumulate:
            c[which[i], j] = -math.inf
        elif beta is not None:
            c[which[i], j] = c[which[i], j].astype(dtype) + beta
        count = np.count_nonzero(todo.direct)
        if count > _DENSE * todo.direct.size:
            block = c[which]
            tools.direct(a[which], b, block)
            c[which] = np.where(todo.direct, block, c[which])
        elif count:
            i, j = np.nonzero(todo.direct)
            value = _entries(tools, a, b, which[i], j, dtype)
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
    cuts = np.linspace(0, shape[0], pieces + 1).astype(int).tolist()
    pool.run([functools.partial(run, i, j) for i, j in itertools.pairwise(cuts)])


def _shifted(tools: Tools, x: Array, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """2**lift * exp(x - r) in the layout of `x`, and r: the largest of a row, 0 if that is -inf."""
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

    _in_rows(x.shape, run)
    return e, largest


class _Todo(NamedTuple):
    nothing: NDArray[np.bool_]  # entries whose terms are all -inf
    direct: NDArray[np.bool_]  # entries to be computed term by term


def _unsettled(
    tools: Tools, which: Array, sums: Array, rows: Array, columns: Array, a: Array, b: Array,
    least: float,
) -> _Todo:  # fmt: skip
    """What to do about the rows `which`, in some of whose entries the sums are too small."""
    total = sums * sums.dtype.type(2.0 ** (-2 * RANGES[8 * sums.itemsize].lift))
    direct = ~((total >= least) & (total < math.inf))
    direct &= ~np.isnan(rows[which, np.newaxis] + columns)  # NaN is what they are
    nothing = direct & (sums == 0)
    if nothing.any():  # or underflow: is there a term of two finite entries?
        reached = np.empty(sums.shape, bool)
        tools.or_and(a[which] > -math.inf, b > -math.inf, reached)
        nothing &= ~reached
    return _Todo(nothing, direct & ~nothing)


def _entries(tools: Tools, a: Array, b: Array, i: Array, j: Array, dtype: np.dtype[Any]) -> Array:
    """log Σ exp(A[i, k] + B[k, j]) for some i and j."""
    value = np.empty(len(i), dtype)
    rows, at_row = np.unique(i, return_inverse=True)
    columns, at_column = np.unique(j, return_inverse=True)
    left = _padded(a[rows], dtype, -math.inf)
    right = _padded(b[:, columns].T, dtype, 0)
    places = np.stack([at_row, at_column]).astype(np.int64, copy=False)
    pieces = min(4 * pool.get_num_threads(), len(i))
    cuts = np.linspace(0, len(i), pieces + 1).astype(int).tolist()
    parts = [slice(*x) for x in itertools.pairwise(cuts)]
    pool.run([functools.partial(tools.entries, left, right, places[:, x], value[x]) for x in parts])
    return value


def _padded(x: Array, dtype: np.dtype[Any], fill: float) -> Array:
    """Rows that lie one after the other, of a length that vectors divide."""
    out = np.full((x.shape[0], -(-x.shape[1] // _RUN) * _RUN), fill, dtype)
    out[:, : x.shape[1]] = x
    return out


# --- generated code -----------------------------------------------------------------------------


@functools.lru_cache(maxsize=KEPT)
def sum_code(plan: Plan) -> tuple[Any, Any]:
    shift = array_function([shift_function(plan, host_target())], 3)
    return shift, array_function([finish_function(plan, host_target())], 6)


@functools.lru_cache(maxsize=KEPT)
def entries_code(plan: Plan) -> Any:
    return array_function([entries_function(plan, host_target())], 4)


def shift_function(plan: Plan, target: Target) -> Function:
    """Generate ``shift(X, R, E)``: E ← 2**lift * exp(X - R), where R repeats along an axis.

    X and R are of the type computed in; nothing of X may be above R.
    """
    f = Function("shift", [PTR] * 3)
    x, r, e = (ArrayView(f, v) for v in f.args)
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
            lifted = vmath.lifted_exp(f, value, RANGES[t.bits].lift, RANGES[t.bits].least)
            f.store(lifted, places[2], t.size)

        _along(f, x.dim(-1), lanes, x.stride(-1).cmp("==", t.size), some)

    with f.if_else(r.stride(-1).cmp("==", 0)) as otherwise:
        with f.loop(0, x.dim(-2)) as i:
            row(i, True)
        with otherwise(), f.loop(0, x.dim(-2)) as i:
            row(i, False)
    return f


def finish_function(plan: Plan, target: Target) -> Function:
    """Generate ``finish(S, R, Q, C, params, left)``: C from sums and shifts, for rows i0 to i1.

    Where a sum is too small C stays as it is, and the row's byte in `left` is set.
    """
    f = Function("finish", [PTR] * 6)
    s, r, q, c = (ArrayView(f, v) for v in f.args[:4])
    left = ArrayView(f, f.args[5])
    params = f.args[4]
    p = {name: f.load(params.at(8 * i), I64) for i, name in enumerate(PARAMS)}
    field = {name: params.at(8 * i) for i, name in enumerate(PARAMS)}
    algebra = Algebra(f, plan)
    t, stored = algebra.compute, algebra.storage
    lanes = target.vector_bytes // t.size
    mode, byte, least = p["mode"], Type("i", 8), f.load(field["least"], t)

    with f.loop(p["i0"], p["i1"]) as i:
        row = f.load(r.data.at(i * t.size), t)
        sums, out = s.data.at(i * s.stride(-2)), c.data.at(i * c.stride(-2))
        missed = f.var(f.const(0, byte))

        def some(j: Value, n: int) -> None:
            total = f.load(sums.at(j * t.size), t.vector(n), t.size)
            total = total * 2.0 ** (-2 * RANGES[t.bits].lift)
            shift = row.splat(n) + f.load(q.data.at(j * t.size), t.vector(n), t.size)
            good = total.cmp(">=", least.splat(n)) & total.cmp("<", math.inf)
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
            overflow = (good ^ 1).bits_as(Type("u", n)) if n > 1 else good ^ 1
            some_bad = overflow.cmp("!=", 0) if n > 1 else overflow
            missed.set(f.select(some_bad, f.const(1, byte), missed.get()))

        _along(f, s.dim(-1), lanes, c.stride(-1).cmp("==", stored.size), some)
        f.store(missed.get(), left.data.at(i))
    return f


#: Vectors of a row that are looked at together, and a multiple of their elements.
_VECTORS, _RUN = 4, 64


def entries_function(plan: Plan, target: Target) -> Function:
    """Generate ``entries(A, B, IJ, V)``: V[e] ← log Σ exp(A[IJ[0, e], k] + B[IJ[1, e], k]).

    A and B are of the type computed in; their rows lie one after the other, and vectors divide
    them. One exponential a term, after the greatest of them, as in the product itself.
    """
    f = Function("entries", [PTR] * 4)
    a, b, ij, v = (ArrayView(f, x) for x in f.args)
    t = Algebra(f, plan).compute
    lanes = target.vector_bytes // t.size
    vec, zero = t.vector(lanes), f.const(0.0, t.vector(lanes))
    offsets, step = range(0, _VECTORS * vec.size, vec.size), _VECTORS * lanes
    with f.loop(0, v.dim(-1)) as e:
        i = f.load(ij.data.at(e * 8), I64, 8)
        j = f.load(ij.data.at(ij.stride(-2)).at(e * 8), I64, 8)
        left, right = a.data.at(i * a.stride(-2)), b.data.at(j * b.stride(-2))

        def terms(k: Value, left: Value = left, right: Value = right) -> list[Value]:
            sums = []
            for at in offsets:
                x, y = (f.load(row.at(k * t.size + at), vec, t.size) for row in (left, right))
                sums.append(x + y)
            return sums

        high = [f.var(f.const(-math.inf, vec)) for _ in offsets]  # may miss a NaN
        with f.loop(0, a.dim(-1), step) as k:
            for top, term in zip(high, terms(k), strict=True):
                top.set(f.select(term.cmp(">", top.get()), term, top.get()))
        best = _folded(f, [x.get() for x in high], lambda x, y: f.select(x.cmp(">", y), x, y))
        base = vmath.without_infinity(f, best).splat(lanes)
        total = [f.var(zero) for _ in offsets]
        with f.loop(0, a.dim(-1), step) as k:
            for sum_, term in zip(total, terms(k), strict=True):
                sum_.set(vmath.add_exp(f, sum_.get(), term - base))
        whole = _folded(f, [x.get() for x in total], lambda x, y: x + y)
        f.store(best + vmath.log(f, whole), v.data.at(e * t.size), t.size)
    return f


def _folded(f: Function, vectors: list[Value], join: Callable[[Value, Value], Value]) -> Value:
    """All lanes of all vectors joined, by halves."""
    while len(vectors) > 1:
        vectors = [join(*pair) for pair in zip(vectors[::2], vectors[1::2], strict=True)]
    x = vectors[0]
    while x.type.lanes > 2:
        n = x.type.lanes // 2
        x = join(f.shuffle(x, x, range(n)), f.shuffle(x, x, range(n, 2 * n)))
    return join(x[0], x[1])


def _along(
    f: Function, count: Value, lanes: int, unit: Value, some: Callable[[Value, int], None]
) -> None:
    """Vectors where neighbours lie side by side, then one by one."""
    whole = f.select(unit, count // lanes * lanes, f.const(0, I64))
    with f.loop(0, whole, lanes) as k:
        some(k, lanes)
    with f.loop(whole, count) as k:
        some(k, 1)
