"""One pass over an operand: its range, and whether NaN or the integer "no edge" is in it."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..plan import Facts, Plan, infinite_zero
from ..semirings import Semiring, semirings
from . import team
from .algebra import Algebra
from .compiler import KEPT, Library, Target, compile_functions, host_target
from .ir import F64, I64, PTR, Function, Type, Value
from .views import HEAD, ArrayView, array_function

__all__ = [
    "CLASSES",
    "class_code",
    "class_function",
    "class_of",
    "facts",
    "facts_beside",
    "facts_of_class",
    "scan_function",
]

Array = NDArray[Any]
T = TypeVar("T")

_UNROLL = 4
_SHARE = 512 << 10  # bytes that pay for one more thread
_NOTHING = Facts(math.inf, -math.inf, False)


def facts_beside(
    semiring: Semiring, x: Array, launch: Callable[[], T]
) -> tuple[T, Callable[[], Facts]]:
    """What `launch` returns, and a call that returns :func:`facts`."""
    return launch(), functools.partial(facts, semiring, x)


def facts(semiring: Semiring, x: Array) -> Facts:
    """Range of an array's entries (any shape), and whether it holds NaN or an integer "no edge"."""
    return facts_of(semiring, x)[0]


def facts_of(semiring: Semiring, *arrays: Array) -> list[Facts]:
    """The same of each of some arrays of one dtype, which threads look through together."""
    code = _scan_of(semiring, arrays[0].dtype)
    parts = [(i, x) for i, array in enumerate(arrays) for x in _matrices(array) if x.size]
    total = sum(x.nbytes for _, x in parts)
    workers = min(pool.get_num_threads(), total // _SHARE)
    found = [_NOTHING] * len(arrays)
    if workers < 2:
        out = np.empty(3, np.float64)
        for i, x in parts:
            code(x, out)
            seen = _facts_in(x, out)
            found[i] = seen if found[i] is _NOTHING else found[i].join(seen)
        return found
    with team.lease(workers - 1) as leased:
        workers = len(leased) + 1
        if leased:
            parts = [(i, y) for i, x in parts for y in _cut(x, workers * x.nbytes // total)]
        rows = [(x, np.empty(3, np.float64)) for _, x in parts]
        team.call_each(code, rows[:workers], leased)
        for row in rows[workers:]:
            code(*row)
    for (i, _), row in zip(parts, rows, strict=True):
        found[i] = found[i].join(_facts_in(*row))
    return found


def _matrices(x: Array) -> Iterable[Array]:
    """An array of any shape as matrices."""
    if x.ndim < 2:
        return [x.reshape(1, -1)]
    if x.ndim == 2:
        return [x]
    if x.flags.c_contiguous:
        return [x.reshape(-1, x.shape[-1])]
    return itertools.chain.from_iterable(_matrices(part) for part in x)


def _cut(x: Array, pieces: int) -> list[Array]:
    axis = 0 if x.shape[0] >= x.shape[1] else 1
    cuts = (
        np.linspace(0, x.shape[axis], max(1, min(pieces, x.shape[axis])) + 1).astype(int).tolist()
    )
    return [x[i:j] if axis == 0 else x[:, i:j] for i, j in itertools.pairwise(cuts)]


def _facts_in(x: Array, out: Array) -> Facts:
    """What a scan of an array found."""
    if x.dtype.kind in "iu":
        whole = out.view(np.int64 if x.dtype.kind == "i" else np.uint64)
        lo, hi = int(whole[0]), int(whole[1])
        return Facts(lo, hi, bool(whole[2])) if lo <= hi else Facts(np.inf, -np.inf, True)
    return Facts(float(out[0]), float(out[1]), bool(out.view(np.int64)[2]))


@functools.lru_cache(maxsize=KEPT)
def _scan_of(semiring: Semiring, dtype: np.dtype[Any]) -> Any:
    return _scan_code(dtype.name, infinite_zero(semiring, dtype))


@functools.lru_cache(maxsize=KEPT)
def _scan_code(storage: str, missing: int | None) -> Any:
    return array_function([scan_function(_any_plan(storage, missing), host_target())], 2)


def _any_plan(storage: str, missing: int | None) -> Plan:
    """A plan of which the storage and the missing integer count."""
    width = {"float64": "f64"}.get(storage, "f32") if "float" in storage else "i64"
    add, mul = semirings["min_plus"].add_expr, semirings["min_plus"].mul_expr
    return Plan(add, mul, storage, width, missing=missing)


def scan_function(plan: Plan, target: Target) -> Function:
    """Generate ``scan(A, out)``: lo, hi (float64, or 64-bit integers) and a flag, 8 bytes each.

    `plan` says the storage and which integer is missing; its operations are not used.
    """
    f = Function("scan", [PTR, PTR])
    out = f.load(f.args[1].at(HEAD), PTR, 8)
    low, high, odd = _range(f, ArrayView(f, f.args[0]), plan, target)
    wide = F64 if low.type.kind == "f" else Type(low.type.kind, 64)
    f.store(low.to(wide), out)
    f.store(high.to(wide), out.at(8))
    f.store(odd.to(I64), out.at(16))
    return f


#: Numbers of bits that the classes of integers part at.
_BITS = (0, 2, 4, 6, 7, 8, 10, 12, 15, 16, 20, 28, 31, 40, 52, 64)
CLASSES = 64


def class_function(plan: Plan, target: Target) -> Function:
    """Generate ``class(A)``, which returns :func:`class_of` a matrix's entries.

    `plan` says the storage and which integer is missing; its operations are not used.
    """
    f = Function("class", [PTR], result=I64)
    low, high, odd = _range(f, ArrayView(f, f.args[0]), plan, target)

    def count(tests: Iterable[Value], weight: int = 1) -> Value:
        numbers = (f.select(x, f.const(weight, I64), f.const(0, I64)) for x in tests)
        return functools.reduce(Value.__add__, numbers)

    def ends(x: Value) -> tuple[Value, ...]:
        return x.cmp(">", -math.inf), x.cmp(">=", 0.0), x.cmp(">", 0.0), x.cmp("==", math.inf)

    if low.type.kind == "f":
        number = count(ends(low), 5) + count(ends(high))
    else:
        wide, size = Type(low.type.kind, 64), Type("u", 64)
        some, nothing = low.cmp("<=", high), f.const(0, size)
        negative = some & low.cmp("<", 0)
        above = f.select(some & high.cmp(">", 0), high.to(wide).to(size), nothing)
        below = f.select(negative, (low.to(wide) ^ -1).to(size), nothing)
        most = f.select(above.cmp(">", below), above, below)
        number = count(((most >> bits).cmp("!=", 0) for bits in _BITS[:-1]), 2) + count([negative])
    f.result.set(number * 2 + odd.to(I64))
    return f


def class_of(x: Facts, dtype: np.dtype[Any]) -> int:
    """The class, below ``CLASSES``, of arrays whose ranges are alike: one plan serves them all.

    Floats: which ends of the range are infinite, zero, or of which sign. Integers: how many bits
    the entries need, and whether one is negative. Both: whether NaN or "no edge" is there.
    """
    if dtype.kind in "iu":
        lo, hi = x.interval()
        most = max(hi, ~lo) if lo < 0 else hi
        number = 2 * sum(most >> bits != 0 for bits in _BITS[:-1]) + (lo < 0)
    else:
        low, high = x.lo, x.hi
        number = 5 * ((low > -math.inf) + (low >= 0) + (low > 0) + (low == math.inf))
        number += (high > -math.inf) + (high >= 0) + (high > 0) + (high == math.inf)
    return 2 * number + x.special


@functools.lru_cache(maxsize=KEPT)
def facts_of_class(number: int, dtype: np.dtype[Any]) -> Facts:
    """The widest range of a class."""
    if dtype.kind in "iu":
        info, most = np.iinfo(dtype), 1 << _BITS[number >> 2]
        lo = max(int(info.min), -most) if number >> 1 & 1 else 0
        return Facts(lo, min(int(info.max), most - 1), bool(number & 1))
    ends = -math.inf, -1.0, 0.0, 1.0, math.inf
    return Facts(ends[(number >> 1) // 5], ends[(number >> 1) % 5], bool(number & 1))


@functools.lru_cache(maxsize=KEPT)
def class_code(storage: str, missing: int | None) -> Library:
    """The compiled :func:`class_function` for a dtype."""
    return compile_functions(
        [class_function(_any_plan(storage, missing), host_target())], host_target()
    )


def _range(f: Function, a: ArrayView, plan: Plan, target: Target) -> tuple[Value, Value, Value]:
    """Least and greatest entry of a matrix, and whether one is NaN or missing."""
    algebra = Algebra(f, plan)
    s = algebra.storage
    t = algebra.compute if s.kind == "f" or plan.storage == "bfloat16" else s
    lanes = target.vector_bytes // max(s.size, t.size)
    lowest, highest = algebra.scan_limits()

    def note(x: Value, low: Value, high: Value, odd: Value) -> tuple[Value, Value, Value]:
        if t.kind == "f":
            x = algebra.decode(x)
            odd = odd | x.cmp("uno", x)
        low_x = high_x = x
        if t.kind != "f" and plan.missing is not None:
            missing = x.cmp("==", plan.missing)
            odd = odd | missing
            low_x = f.select(missing, low, x)
            high_x = f.select(missing, high, x)
        low = f.select(low_x.cmp("<", low), low_x, low)
        return low, f.select(high_x.cmp(">", high), high_x, high), odd

    def running(n: int) -> list[tuple[object, object, object]]:
        shape = t.vector(n)
        return [
            (f.var(f.const(lowest, shape)), f.var(f.const(highest, shape)),
             f.var(f.const(0, Type("i", 1, n))))
            for _ in range(_UNROLL if n > 1 else 1)
        ]  # fmt: skip

    def step(state: tuple[object, object, object], x: Value) -> None:
        values = note(x, *(v.get() for v in state))  # type: ignore[attr-defined]
        for variable, value in zip(state, values, strict=True):
            variable.set(value)  # type: ignore[attr-defined]

    vectors, scalar = running(lanes), running(1)[0]
    # the axis with the shorter stride inside; strides may be negative
    stride = [a.stride(-2), a.stride(-1)]
    size = [a.dim(-2), a.dim(-1)]
    short = [f.select(x.cmp("<", 0), -x, x) for x in stride]
    swap = short[0].cmp("<", short[1])
    outer, inner = (f.select(swap, size[1], size[0]), f.select(swap, size[0], size[1]))
    out_s, in_s = (f.select(swap, stride[1], stride[0]), f.select(swap, stride[0], stride[1]))
    block = lanes * _UNROLL
    unit = in_s.cmp("==", s.size)
    whole = f.select(unit, inner // block * block, f.const(0, I64))
    single = f.select(unit, inner // lanes * lanes, f.const(0, I64))
    with f.loop(0, outer) as i:
        row = a.data.at(i * out_s)
        with f.loop(0, whole, block) as j:
            for u, state in enumerate(vectors):
                step(state, f.load(row.at((j + u * lanes) * s.size), s.vector(lanes)))
        with f.loop(whole, single, lanes) as j:
            step(vectors[0], f.load(row.at(j * s.size), s.vector(lanes)))
        with f.loop(single, inner) as j:
            step(scalar, f.load(row.at(j * in_s), s))

    low, high, odd = (v.get() for v in scalar)  # type: ignore[attr-defined]
    for state in vectors[1:]:  # fold the vectors, then the lanes
        others = [v.get() for v in state]  # type: ignore[attr-defined]
        mine = [v.get() for v in vectors[0]]  # type: ignore[attr-defined]
        folded = (
            f.select(others[0].cmp("<", mine[0]), others[0], mine[0]),
            f.select(others[1].cmp(">", mine[1]), others[1], mine[1]),
            others[2] | mine[2],
        )
        for variable, value in zip(vectors[0], folded, strict=True):
            variable.set(value)  # type: ignore[attr-defined]
    for state in vectors[:1]:
        lo, hi, nan = (v.get() for v in state)  # type: ignore[attr-defined]
        for lane in range(lanes):
            x, y = lo[lane], hi[lane]
            low = f.select(x.cmp("<", low), x, low)
            high = f.select(y.cmp(">", high), y, high)
            odd = odd | nan[lane]
    return low, high, odd
