"""One pass over an operand: its range, and whether NaN or the integer "no edge" is in it."""

from __future__ import annotations

from .algebra import Algebra
from .compiler import Target
from .ir import F64, I64, PTR, Function, Type, Value
from .plan import Plan
from .product import ArrayView

__all__ = ["scan_function"]

_UNROLL = 4


def scan_function(plan: Plan, target: Target, head: int) -> Function:
    """Generate ``scan(A, out)``: lo, hi (float64, or 64-bit integers) and a flag, 8 bytes each.

    `plan` says the storage and which integer is missing; its operations are not used.
    """
    f = Function("scan", [PTR, PTR])
    a = ArrayView(f, f.args[0], head)
    out = f.load(f.args[1].at(head), PTR, 8)
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
    whole = f.select(in_s.cmp("==", s.size), inner // block * block, f.const(0, I64))
    with f.loop(0, outer) as i:
        row = a.data.at(i * out_s)
        with f.loop(0, whole, block) as j:
            for u, state in enumerate(vectors):
                step(state, f.load(row.at((j + u * lanes) * s.size), s.vector(lanes)))
        with f.loop(whole, inner) as j:
            step(scalar, f.load(row.at(j * in_s), s))

    low, high, odd = (v.get() for v in scalar)  # type: ignore[attr-defined]
    for state in vectors:
        lo, hi, nan = (v.get() for v in state)  # type: ignore[attr-defined]
        for lane in range(lanes):
            x, y = lo[lane], hi[lane]
            low = f.select(x.cmp("<", low), x, low)
            high = f.select(y.cmp(">", high), y, high)
            odd = odd | nan[lane]
    wide = F64 if t.kind == "f" else Type(t.kind, 64)
    f.store(low.to(wide), out)
    f.store(high.to(wide), out.at(8))
    f.store(odd.to(I64), out.at(16))
    return f
