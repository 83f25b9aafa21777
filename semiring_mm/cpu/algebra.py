"""A plan's operations and conversions as IR: everything the kernels know of arithmetic."""

from __future__ import annotations

import operator
from collections.abc import Callable

from ..expressions import COMPARISONS, Expr
from ..plan import Plan, contracted
from . import vmath
from .ir import F32, I1, Function, Type, Value

__all__ = ["Algebra", "absolute", "compute_type", "storage_type"]

_STORAGE = {
    "float16": Type("f", 16), "bfloat16": Type("u", 16), "float32": F32, "float64": Type("f", 64),
    "bool": Type("u", 8),
}  # fmt: skip
_OPERATORS: dict[str, Callable[[Value, Value], Value]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "&": operator.and_, "|": operator.or_, "^": operator.xor,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Value]] = {
    "exp": vmath.exp, "log": vmath.log, "log1p": vmath.log1p, "expm1": vmath.expm1,
    "logaddexp": vmath.logaddexp, "sqrt": lambda f, x: f.intrinsic("sqrt", x),
}  # fmt: skip


def absolute(f: Function, x: Value) -> Value:
    """The absolute value of floats or integers."""
    return f.intrinsic("fabs", x) if x.type.kind == "f" else f.select(x.cmp("<", 0), -x, x)


def storage_type(name: str) -> Type:
    if name in _STORAGE:
        return _STORAGE[name]
    bits = int(name.lstrip("uint"))
    return Type("u" if name[0] == "u" else "i", bits)


def compute_type(plan: Plan) -> Type:
    return Type(plan.compute[0], int(plan.compute[1:]))


class Algebra:
    """The operations of a plan, emitted into one function."""

    def __init__(self, f: Function, plan: Plan, one: Value | None = None) -> None:
        self.f, self.plan = f, plan
        self.storage, self.compute = storage_type(plan.storage), compute_type(plan)
        self.weight: Value | None = None  # what ``w`` stands for; None: 1
        self.one = one  # a 1.0 that the compiler cannot see through, in vector lanes

    def start(self, lanes: int) -> Value:
        return self.f.const(self.plan.start, self.compute.vector(lanes))

    def add(self, a: Value, b: Value) -> Value:
        return self._number(self._emit(self.plan.add, a, b))

    def mul(self, a: Value, b: Value) -> Value:
        if self.plan.fma and self.one is not None and a.type == self.one.type:
            return self.f.fma(b, self.one, a)
        product = self._number(self._emit(self.plan.mul, a, b))
        return self._annihilated(a, b, product) if self.plan.annihilate else product

    def fold(self, total: Value, a: Value, b: Value) -> Value:
        """total ⊕ (a ⊗ b), by a multiply-add where ⊕ is a sum and ⊗ a product."""
        parts = contracted(self.plan)
        if parts is None:
            return self.add(total, self.mul(a, b))
        x, y = (self._number(self._emit(e, a, b)) for e in parts[:2])
        if parts[2] is None:
            return self.f.fma(x, y, total)
        return total + self.f.fma(x, y, self._number(self._emit(parts[2], a, b)))

    def scale(self, factor: Value, x: Value) -> Value:
        """factor ⊗ x outside the inner loop, where an infinite zero is always looked for."""
        product = self._number(self._emit(self.plan.mul, factor, x))
        return self._annihilated(factor, x, product) if self.plan.missing is not None else product

    def _annihilated(self, a: Value, b: Value, product: Value) -> Value:
        far = self.f.const(self.plan.infinite, a.type)
        return self.f.select(a.cmp("==", far) | b.cmp("==", far), far, product)

    def ended(self, x: Value) -> Value:
        """What is stored for a result of floats."""
        return x if self.plan.final is None else self._number(self._emit(self.plan.final, x, x))

    def better(self, new: Value, old: Value) -> Value:
        """Whether `new` strictly wins over `old` under a selective ⊕; a NaN wins over a number."""
        low = self.plan.add.op in ("min", "|")  # of bytes that are 0 or -1, max is |
        wins = new.cmp("<" if low else ">", old)
        if self.plan.keep_nan:
            wins = wins | (new.cmp("uno", new) & old.cmp("ord", old))
        return wins

    def same(self, x: Value, y: Value) -> Value:
        equal = x.cmp("==", y)
        if self.plan.keep_nan:
            equal = equal | (x.cmp("uno", x) & y.cmp("uno", y))
        return equal

    # --- expressions

    def _number(self, x: Value) -> Value:
        """A comparison's outcome as 0 or 1 (in packed bits, as it is)."""
        if x.type.bits != 1:
            return x
        return self.f.select(
            x, *(self.f.const(v, self.compute.vector(x.type.lanes)) for v in (1, 0))
        )

    def _emit(self, expr: Expr, a: Value, b: Value) -> Value:
        f, op = self.f, expr.op
        if op == "a":
            return a
        if op == "b":
            return b
        if op == "w":
            return f.const(1, a.type) if self.weight is None else self.weight
        if op == "const":
            value = expr.value
            if self.plan.codec == "bits":
                value = -1 if value else 0
            return f.const(value, a.type)
        args = [self._emit(arg, a, b) for arg in expr.args]
        if op in ("&", "|", "^", "~") and all(x.type.bits == 1 for x in args):
            pass
        elif op == "if":
            condition = args[0] if args[0].type.bits == 1 else args[0].cmp("!=", 0)
            return f.select(condition, self._number(args[1]), self._number(args[2]))
        else:
            args = [self._number(x) for x in args]
        x, y = args[0], args[-1]
        if op in COMPARISONS:
            return x.cmp(op, y)
        if op in _OPERATORS:
            return _OPERATORS[op](x, y)
        if op in _FUNCTIONS:
            return _FUNCTIONS[op](f, *args)
        match op:
            case "//" | "%":
                return self._floor_div(x, y, op)
            case "~":
                return x ^ (1 if x.type.bits == 1 else -1)
            case "neg":
                return -x
            case "min" | "max":
                return self._extremum(x, y, "<" if op == "min" else ">")
        assert op == "abs", op
        return absolute(f, x)

    def _extremum(self, x: Value, y: Value, op: str) -> Value:
        wins = x.cmp(op, y)
        if self.plan.keep_nan and x.type.kind == "f":
            wins = wins | x.cmp("uno", x)
        return self.f.select(wins, x, y)

    def _floor_div(self, x: Value, y: Value, op: str) -> Value:
        """Floor division and its remainder as NumPy has them, division by zero included."""
        f = self.f
        if x.type.kind != "f":
            # the processor traps on a division by zero, and on that of the least integer by -1:
            # both are divided by 1 instead, and every lane is computed, whatever is selected later
            zero, minus = y.cmp("==", 0), y.cmp("==", -1)
            safe = f.select(zero | minus, f.const(1, y.type), y)
            quotient, rest = x // safe, x % safe
            off = rest.cmp("!=", 0) & (rest ^ safe).cmp("<", 0)
            if op == "//":
                quotient = f.select(off, quotient - 1, f.select(minus, -x, quotient))
                return f.select(zero, f.const(0, x.type), quotient)
            return f.select(zero, f.const(0, x.type), f.select(off, rest + safe, rest))
        rest = x % y
        off = rest.cmp("!=", 0.0) & (rest.cmp("<", 0.0) ^ y.cmp("<", 0.0))
        if op == "%":
            exact = f.intrinsic("copysign", f.const(0.0, y.type), y)
            return f.select(off, rest + y, f.select(rest.cmp("==", 0.0), exact, rest))
        quotient = (x - rest) / y
        quotient = f.select(off, quotient - 1.0, quotient)
        floor = f.intrinsic("floor", quotient)
        floor = f.select((quotient - floor).cmp(">", 0.5), floor + 1.0, floor)
        signed = f.intrinsic("copysign", f.const(0.0, x.type), x / y)
        floor = f.select(quotient.cmp("==", 0.0), signed, floor)
        return f.select(y.cmp("==", 0.0), x / y, floor)

    # --- conversions; for packed bits these are the masks of the left operand

    def decode(self, x: Value) -> Value:
        """A stored value as one to compute with."""
        f, plan = self.f, self.plan
        out = self.compute.vector(x.type.lanes)
        if plan.codec in ("bits", "mask"):
            return f.select(x.cmp("!=", 0), f.const(-1, out), f.const(0, out))
        if plan.storage == "bfloat16":
            wide = x.to(Type("u", 32)) << 16
            x = wide.bits_as(F32.vector(x.type.lanes))
        elif self.storage.kind == "f" and self.storage.bits == 16:
            x = x.to(F32)
        if plan.codec == "key":
            x = x + 0.0  # -0.0 becomes 0.0, so that the two compare equal as keys
            raw = x.bits_as(out)
            return raw ^ ((raw >> (out.bits - 1)) & ((1 << (out.bits - 1)) - 1))
        if plan.codec == "sentinel":
            missing = x.cmp("==", self._stored_missing())
            return f.select(missing, f.const(plan.infinite, out), x.to(self.compute))
        return x.to(self.compute)

    def encode(self, x: Value) -> tuple[Value, Value | None]:
        """A result as it is stored, and where it does not fit (None: everywhere it does)."""
        f, plan = self.f, self.plan
        lanes = x.type.lanes
        out = self.storage.vector(lanes)
        if plan.codec == "mask":
            return (x & 1).to(self.storage), None
        if plan.codec == "key":
            mask = (1 << (x.type.bits - 1)) - 1
            raw = x ^ ((x >> (x.type.bits - 1)) & mask)
            wide = F32 if x.type.bits == 32 else Type("f", 64)
            x = raw.bits_as(wide.vector(lanes))
        if plan.storage == "bfloat16":
            return self._to_bfloat16(x), None
        if x.type.kind == "f":
            return x.to(self.storage), None
        missing = None
        if plan.codec == "sentinel":
            if plan.annihilate:
                missing = x.cmp("==", plan.infinite)
            else:  # infinity plus a finite number is beyond three quarters of infinity
                limit = (abs(plan.infinite) + 1) // 4 * 3 - 1
                missing = x.cmp(">=", limit) if plan.infinite > 0 else x.cmp("<=", -limit)
        narrow = x.to(self.storage)
        overflow = None
        if plan.check:
            lowest, highest = self._finite_range()
            overflow = f.const(0, I1.vector(lanes))
            if lowest > -(1 << (x.type.bits - 1)):
                overflow = overflow | x.cmp("<", lowest)
            if highest < (1 << (x.type.bits - 1)) - 1:
                overflow = overflow | x.cmp(">", highest)
            if missing is not None:
                overflow = overflow & (missing ^ 1)
        if missing is not None:
            narrow = f.select(missing, f.const(self._stored_missing(), out), narrow)
        return narrow, overflow

    def _stored_missing(self) -> float | int:
        """The sentinel as a constant of the storage."""
        assert self.plan.missing is not None
        return self.plan.missing

    def _finite_range(self) -> tuple[int, int]:
        bits, missing = self.storage.bits, self.plan.missing
        lowest = 0 if self.storage.kind == "u" else -(1 << (bits - 1))
        highest = (1 << bits) - 1 if self.storage.kind == "u" else (1 << (bits - 1)) - 1
        return lowest + (missing == lowest), highest - (missing == highest)

    def _to_bfloat16(self, x: Value) -> Value:
        """Round to the nearest even; NaN stays NaN."""
        f = self.f
        raw = x.bits_as(Type("u", 32).vector(x.type.lanes))
        odd = (raw >> 16) & 1
        rounded = (raw + odd + 0x7FFF) >> 16
        quiet = (raw >> 16) | 0x40
        return f.select(x.cmp("uno", x), quiet, rounded).to(Type("u", 16))
