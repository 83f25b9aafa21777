"""The matrix-vector product y ← (α ⊗ A ⊗ x) ⊕ (β ⊗ y), bound by reading A once."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..engine import PLAIN, Scalar, Scaling
from ..expressions import joins_logarithms
from ..memory import workspace
from ..plan import (
    ALPHA,
    BETA,
    READ_C,
    Facts,
    Plan,
    bytewise,
    is_sum,
    make_plan,
    needs_facts,
    overflow,
    scalar_bits,
)  # fmt: skip
from ..semirings import Semiring
from . import product, vmath
from .algebra import Algebra
from .compiler import KEPT, Target, host_target
from .facts import facts
from .ir import I64, PTR, Function, Type, Value, Var
from .product_code import PARAMS, params_of
from .views import HEAD, ArrayView, array_function

__all__ = ["CHUNK", "gemv", "gemv_functions", "vector_plan"]

Array = NDArray[Any]

#: Elements of y that stay in the cache while columns of A pass by.
CHUNK = 2048
_ROWS, _UNROLL, _COLUMNS = 4, 2, 4
_PIECE = 1 << 28  # pairs in a call, between which Ctrl-C is seen
#: Where ⊕ is logaddexp: steps of k, or columns, that are looked at twice in a row.
_STEPS, _TOGETHER = 1024, 16
#: In a sum of floats: steps of k, or columns, that are added up before they meet the total.
_BLOCK = 8


def gemv(
    semiring: Semiring, a: Array, x: Array, y: Array, scaling: Scaling = PLAIN, *,
    scale_x: bool = False,
) -> None:  # fmt: skip
    """y ← ((α ⊗ A) ⊗ x) ⊕ (β ⊗ y); see :meth:`semiring_mm.engine.Engine.gemv`."""
    if scaling == PLAIN and product.blas_serves(semiring, a, x, y):
        product.by_blas(a, x, y)
        return
    m, depth = a.shape[-2:]
    left, right = (x, a) if scale_x else (a, x)
    plan = vector_plan(semiring, left, right, y, depth, scaling)
    code = _code(plan, scaling.alpha is not None and not scale_x)
    size = _room(plan, depth)
    mode = scaling.mode if scale_x else replace(scaling, alpha=None).mode
    stack = a.shape[0] if a.ndim == 3 else 1
    a_batch, y_batch = (a.strides[0], y.strides[0]) if a.ndim == 3 else (0, 0)

    def part(b0: int, b1: int, i0: int, i1: int) -> None:
        """Rows i0 to i1 - 1 of matrices b0 to b1 - 1."""
        buffer = workspace(size)
        code(a, x, y, buffer, params_of(
            plan, 0, 0, 0, i0=i0, i1=i1, mode=mode, alpha=scalar_bits(plan, scaling.alpha),
            beta=scalar_bits(plan, scaling.beta), batch=b1 - b0, a_batch=a_batch, c_batch=y_batch,
            a_offset=b0 * a_batch, c_offset=b0 * y_batch,
        ))  # fmt: skip
        if buffer[0]:
            buffer[:64] = 0
            raise overflow(semiring, y.dtype)

    workers = pool.get_num_threads()
    whole_matrices, least = stack >= 2 * workers, stack * m * depth // _PIECE
    few = m < 2 * workers and not whole_matrices
    if stack * m * depth < 1 << 17 or (workers == 1 and not least) or few:
        part(0, stack, 0, m)
        return
    count, step = (stack, 1) if whole_matrices else (m, 16)
    cuts = (np.linspace(0, count // step, max(workers, least) + 1).astype(int) * step).tolist()
    cuts[-1] = count
    pool.run([
        functools.partial(part, *((i, j, 0, m) if whole_matrices else (0, stack, i, j)))
        for i, j in itertools.pairwise(cuts) if i < j
    ])  # fmt: skip


def _room(plan: Plan, depth: int) -> int:
    """Bytes of workspace for a matrix of so many columns."""
    return 64 + (2 * CHUNK + depth + 64) * (int(plan.compute[1:]) // 8)


def vector_plan(
    semiring: Semiring, a: Array, x: Array, y: Array, depth: int, scaling: Scaling
) -> Plan:
    """The plan of a product whose time is that of reading A: if possible without a scan of it.

    α scales `a`; `depth`: how many products an entry of y joins, at most.
    """
    dtype, alpha, beta = a.dtype, scaling.alpha, scaling.beta
    if not needs_facts(semiring, dtype) or dtype.kind not in "iu":
        return _factless_plan(semiring, dtype, depth if dtype.kind in "iu" else 1, alpha, beta)
    try:
        plan = _widest_plan(semiring, dtype, depth, scaling)
    except OverflowError:
        third = facts(semiring, y) if scaling.accumulate else None
        left, right = facts(semiring, a), facts(semiring, x)
        plan = make_plan(semiring, dtype, left, right, depth, c=third, alpha=alpha, beta=beta)
    return plan


def _widest_plan(semiring: Semiring, dtype: np.dtype[Any], depth: int, scaling: Scaling) -> Plan:
    """The plan for whatever integers the operands hold."""
    info = np.iinfo(dtype)
    widest = Facts(int(info.min), int(info.max), True)
    return make_plan(
        semiring, dtype, widest, widest, depth, c=widest if scaling.accumulate else None,
        alpha=scaling.alpha, beta=scaling.beta,
    )  # fmt: skip


@functools.lru_cache(maxsize=4096)
def _factless_plan(
    semiring: Semiring, dtype: np.dtype[Any], depth: int, alpha: Scalar, beta: Scalar
) -> Plan:
    plan = make_plan(semiring, dtype, None, None, depth, alpha=alpha, beta=beta)
    if plan.codec == "bits":
        return bytewise(plan)
    return replace(plan, keep_nan=plan.compute[0] == "f")


@functools.lru_cache(maxsize=KEPT)
def _code(plan: Plan, scaled: bool) -> Any:
    return array_function(gemv_functions(plan, host_target(), scaled=scaled), 5)


def gemv_functions(plan: Plan, target: Target, *, scaled: bool) -> list[Function]:
    """Generate ``gemv(A, x, y, workspace, params)`` for rows i0 to i1 of A.

    Where rows are contiguous, each is folded with x in vectors (dot form). Where columns are, they
    pass over a chunk of y (axpy form). Any other strides take the dot form element by element.
    With `scaled` α scales the entries of A as they are read; in mode ``ALPHA`` it scales x. A stack
    of matrices is ``batch`` of them, ``a_batch`` bytes apart.

    Sums of floats that are no products (see :func:`.plan.is_sum`) are compensated: what
    adding a block of some terms rounds off is added up beside the total, so that the error does
    not grow with the number of terms.
    """
    f = Function("gemv", [PTR] * 5, opaque=False)
    A, X, Y, workspace, params = f.args
    a, x, y = (ArrayView(f, v) for v in (A, X, Y))
    p = {name: f.load(params.at(8 * i), I64) for i, name in enumerate(PARAMS)}
    field = {name: params.at(8 * i) for i, name in enumerate(PARAMS)}
    algebra = Algebra(f, plan)
    t, s = algebra.compute, algebra.storage
    lanes = target.vector_bytes // t.size
    m, depth = a.dim(-2), a.dim(-1)
    rs, cs = a.stride(-2), a.stride(-1)
    i0, i1 = p["i0"], f.select(p["i1"].cmp("<", 0), m, p["i1"])
    flags = f.load(workspace.at(HEAD), PTR, 8)
    chunk = flags.at(64)
    lost = chunk.at(CHUNK * t.size)
    xs = lost.at(CHUNK * t.size)
    logarithms = joins_logarithms(plan.add)
    compensated = is_sum(plan)
    data, results = f.var(a.data), f.var(y.data)  # of one matrix of the stack
    alpha = f.load(field["alpha"], t) if scaled else None

    def entry(x: Value) -> Value:
        """(α ⊗) a stored entry of A, or some."""
        x = algebra.decode(x)
        return x if alpha is None else algebra.scale(alpha.splat(x.type.lanes), x)

    with f.loop(0, f.const(0, I64) if compensated else depth) as k:  # a sum does not read x
        value = f.var(algebra.decode(f.load(x.data.at(k * x.stride(-1)), s)))
        with f.if_((p["mode"] & ALPHA).cmp("!=", 0)):
            value.set(algebra.scale(f.load(field["alpha"], t), value.get()))
        f.store(value.get(), xs.at(k * t.size), t.size)

    def finish(i: Value, value: Value) -> None:
        """Join β ⊗ y and store y[i]."""
        result = f.var(value)
        place = results.get().at(i * y.stride(-1))
        with f.if_((p["mode"] & READ_C).cmp("!=", 0)):
            old = f.var(algebra.decode(f.load(place, s)))
            with f.if_((p["mode"] & BETA).cmp("!=", 0)):
                old.set(algebra.scale(f.load(field["beta"], t), old.get()))
            result.set(algebra.add(result.get(), old.get()))
        stored, overflow = algebra.encode(result.get())
        f.store(stored, place)
        if overflow is not None:
            byte = Type("i", 8)
            f.store(f.load(flags, byte) | overflow.to(Type("u", 8)).to(byte), flags)

    def fold(state: Var, left: Value, right: Value) -> None:
        state.set(algebra.add(state.get(), algebra.mul(left, right)))

    def dot(first: Value, rows: int) -> None:
        width = lanes * _UNROLL
        whole = f.select(cs.cmp("==", s.size), depth // width * width, f.const(0, I64))
        base = [data.get().at((first + r) * rs) for r in range(rows)]
        vectors = [[f.var(algebra.start(lanes)) for _ in range(_UNROLL)] for _ in range(rows)]
        tails = [f.var(algebra.start(1)) for _ in range(rows)]

        def run(
            first: Value | int, last: Value, take: Callable[[int, int, Value, Value], None]
        ) -> None:
            with f.loop(first, last, width) as k:
                for u in range(_UNROLL):
                    at = k + u * lanes
                    right = f.load(xs.at(at * t.size), t.vector(lanes), t.size)
                    for r in range(rows):
                        left = entry(f.load(base[r].at(at * s.size), s.vector(lanes)))
                        take(r, u, left, right)

        if logarithms:
            with f.loop(0, whole, _STEPS) as k:
                sums = [[vmath.LogSum(f, t.vector(lanes)) for _ in x] for x in vectors]
                last = f.low(k + _STEPS, whole)
                run(k, last, lambda r, u, x, y: sums[r][u].look(algebra.mul(x, y)))
                for sum_ in chain(*sums):
                    sum_.begin()
                run(k, last, lambda r, u, x, y: sums[r][u].add(algebra.mul(x, y)))
                for state, sum_ in zip(chain(*vectors), chain(*sums), strict=True):
                    state.set(algebra.add(state.get(), sum_.value()))
        elif compensated:
            totals = [vmath.Sum(f, algebra.start(lanes)) for _ in range(rows)]
            with f.loop(0, whole, _BLOCK * width) as k:
                last = f.low(k + _BLOCK * width, whole)
                run(k, last, lambda r, u, x, y: fold(vectors[r][u], x, y))
                for total, states in zip(totals, vectors, strict=True):
                    total.add(functools.reduce(algebra.add, [x.get() for x in states]))
                    for state in states:
                        state.set(algebra.start(lanes))
        else:
            run(0, whole, lambda r, u, x, y: fold(vectors[r][u], x, y))

        def rest(first: Value, last: Value, take: Callable[[int, Value, Value], None]) -> None:
            with f.loop(first, last) as k:
                right = f.load(xs.at(k * t.size), t, t.size)
                for r in range(rows):
                    take(r, entry(f.load(base[r].at(k * cs), s)), right)

        if logarithms:  # all of k where neighbours do not lie side by side
            with f.loop(whole, depth, _STEPS) as k:
                single = [vmath.LogSum(f, t) for _ in tails]
                last = f.low(k + _STEPS, depth)
                rest(k, last, lambda r, x, y: single[r].look(algebra.mul(x, y)))
                for sum_ in single:
                    sum_.begin()
                rest(k, last, lambda r, x, y: single[r].add(algebra.mul(x, y)))
                for state, sum_ in zip(tails, single, strict=True):
                    state.set(algebra.add(state.get(), sum_.value()))
        elif compensated:
            ends, block = [vmath.Sum(f, algebra.start(1)) for _ in tails], _BLOCK * _UNROLL
            with f.loop(whole, depth, block) as k:
                with f.if_(k.cmp(">", whole)):  # short rows have one block, and no sum of blocks
                    for end, tail in zip(ends, tails, strict=True):
                        end.add(tail.get())
                        tail.set(algebra.start(1))
                rest(k, f.low(k + block, depth), lambda r, x, y: fold(tails[r], x, y))
            with f.if_((depth - whole).cmp(">", block)):
                for end, tail in zip(ends, tails, strict=True):
                    tail.set(algebra.add(end.value(), tail.get()))
        else:
            rest(whole, depth, lambda r, x, y: fold(tails[r], x, y))
        for r in range(rows):
            with f.if_(whole.cmp(">", 0)):
                if compensated:
                    vector = totals[r].value()
                else:
                    vector = functools.reduce(algebra.add, [x.get() for x in vectors[r]])
                tails[r].set(algebra.add(tails[r].get(), _across(f, algebra, vector)))
            finish(first + r, tails[r].get())

    def axpy(first: Value) -> None:
        size = f.low(i1 - first, CHUNK)
        padded = f.ceil_div(size, lanes) * lanes
        with f.loop(0, padded, lanes) as e:
            for place in (chunk, lost) if compensated else (chunk,):
                f.store(algebra.start(lanes), place.at(e * t.size), t.size)
        whole = size // lanes * lanes

        def columns(k: Value, n: int) -> None:
            right = [f.load(xs.at((k + c) * t.size), t, t.size) for c in range(n)]
            base = [data.get().at(first * rs + (k + c) * cs) for c in range(n)]
            wide = [r.splat(lanes) for r in right]
            for lo, hi, step in ((0, whole, lanes), (whole, size, 1)):
                with f.loop(lo, hi, step) as e:
                    place, aside = chunk.at(e * t.size), lost.at(e * t.size)
                    acc = f.load(place, t.vector(step), t.size)
                    terms = []
                    for c in range(n):
                        left = entry(f.load(base[c].at(e * s.size), s.vector(step)))
                        terms.append(algebra.mul(left, wide[c] if step > 1 else right[c]))
                    if compensated:
                        total = vmath.Sum(f, acc, f.load(aside, t.vector(step), t.size))
                        total.add(_pairwise(algebra, terms))
                        acc = total.total.get()
                        f.store(total.lost.get(), aside, t.size)
                    elif logarithms and n > 1:
                        acc = _log_sum(f, [acc, *terms])
                    else:
                        acc = functools.reduce(algebra.add, terms, acc)
                    f.store(acc, place, t.size)

        together = _TOGETHER if logarithms else _BLOCK if compensated else _COLUMNS
        paired = depth // together * together
        with f.loop(0, paired, together) as k:
            columns(k, together)
        with f.loop(paired, depth) as k:
            columns(k, 1)
        with f.loop(0, size) as e:
            value = f.load(chunk.at(e * t.size), t, t.size)
            if compensated:
                value = vmath.Sum(f, value, f.load(lost.at(e * t.size), t, t.size)).value()
            finish(first + e, value)

    with f.loop(0, p["batch"]) as n:
        data.set(a.data.at(p["a_offset"] + n * p["a_batch"]))
        results.set(y.data.at(p["c_offset"] + n * p["c_batch"]))
        with f.if_else(rs.cmp("==", s.size) & cs.cmp("!=", s.size)) as otherwise:
            with f.loop(i0, i1, CHUNK) as i:
                axpy(i)
            with otherwise():
                grouped = i0 + (i1 - i0) // _ROWS * _ROWS
                with f.loop(i0, grouped, _ROWS) as i:
                    dot(i, _ROWS)
                with f.loop(grouped, i1) as i:
                    dot(i, 1)
    return [f]


def _log_sum(f: Function, terms: Sequence[Value]) -> Value:
    """log Σ exp(x), one exponential each."""
    total = vmath.LogSum(f, terms[0].type)
    for x in terms:
        total.look(x)
    total.begin()
    for x in terms:
        total.add(x)
    return total.value()


def _across(f: Function, algebra: Algebra, x: Value) -> Value:
    """⊕ over the lanes of a vector, by halves."""
    while (half := x.type.lanes // 2) > 1:
        low, high = (f.shuffle(x, x, range(i, i + half)) for i in (0, half))
        x = algebra.add(low, high)
    return algebra.add(x[0], x[1]) if half else x


def _pairwise(algebra: Algebra, terms: list[Value]) -> Value:
    """⊕ over terms, by halves."""
    while len(terms) > 1:
        half = len(terms) // 2
        terms = [*map(algebra.add, terms[:half], terms[half:]), *terms[2 * half :]]
    return terms[0]
