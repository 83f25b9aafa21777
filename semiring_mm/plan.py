"""How a semiring is computed in a dtype: a pure function of the two and of what the operands hold.

The decisions made here, once, for every verb of both engines:

* floating point computes in its own type, 16-bit floats in float32 (each result is rounded once);
* a minimum that drops NaN is used where no NaN can appear, and NumPy's rule is kept elsewhere;
* max-min of floats may run on order-preserving integer keys;
* integers compute in the narrowest type that holds every intermediate result, found by interval
  arithmetic from the operands' ranges. Where that is wider than the dtype, each result is checked
  as it is stored. What 64 bits cannot hold is refused. Nothing wraps;
* bool computes on 32 columns at a time, one bit each.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, NoReturn

import numpy as np

from . import expressions as ex
from .lazy import cached_property
from .semirings import Semiring, fold_start

__all__ = [
    "ALPHA", "BETA", "BROKEN", "FLOATS", "READ_C", "Facts", "Plan", "absent", "bit_join",
    "bytewise", "can_use_fma", "can_use_keys", "closure_plan", "computed", "contracted",
    "distributes", "entry_plan", "float_key", "infinite_zero", "make_plan", "make_step_plan",
    "needs_facts", "overflow", "refuse_dtype", "scalar", "scalar_bits", "scaled_bools", "stored",
    "unpack_bits", "unseen_plan", "with_keys", "words_of_bits",
]  # fmt: skip


class Facts(NamedTuple):
    """Range of an array's entries.

    `lo` and `hi` leave out NaN and, for integers, the semiring's infinite zero; `special` tells
    whether any of these is there. An empty range has lo > hi.
    """

    lo: float | int
    hi: float | int
    special: bool

    def kinds(self) -> frozenset[str]:
        return ex.kinds_between(self.lo, self.hi, self.special)

    def interval(self) -> tuple[int, int]:
        return (int(self.lo), int(self.hi)) if self.lo <= self.hi else (0, 0)

    def join(self, other: Facts) -> Facts:
        return Facts(min(self.lo, other.lo), max(self.hi, other.hi), self.special or other.special)


@dataclass(frozen=True)
class Plan:
    """The algebra as the code generators take it; equal plans share their code."""

    add: ex.Expr
    mul: ex.Expr
    storage: str  # NumPy's name of the arrays' dtype
    compute: str  # kind and bits of the type computed in: "f32", "i16", "u64", ...
    # How a stored value becomes one to compute with: "plain", "key", "sentinel", "bits" or "mask".
    codec: str = "plain"
    start: float | int = 0  # what an accumulator starts from
    # What stands for an infinite zero in the arrays, where that is computed with as an integer.
    missing: float | int | None = None
    infinite: int = 0  # what stands for it while computing
    keep_nan: bool = False  # whether minima and maxima must keep NaN
    annihilate: bool = False  # whether ⊗ must test its operands for ``infinite``
    check: bool = False  # whether a result can leave the range of the dtype
    fma: bool = False  # whether ``a + b`` is computed as ``fma(b, 1, a)``
    # what is stored for a result ``a``, and ``b``, which is `total`; of floats
    final: ex.Expr | None = None
    total: float = 0.0

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:  # looked up at each call of a kernel
        return hash(tuple(getattr(self, x.name) for x in fields(self)))

    @cached_property
    def computed_in(self) -> np.dtype[Any]:
        """The type computed in."""
        return np.dtype(f"{self.compute[0]}{int(self.compute[1:]) // 8}")


Kinds = frozenset[str]
#: Floating-point dtypes, and the types that they are computed in.
FLOATS = {"float16": "f32", "bfloat16": "f32", "float32": "f32", "float64": "f64"}
_SUM = (ex.Expr("+", (ex.A, ex.B)), ex.Expr("+", (ex.B, ex.A)))
_EXTREMA = frozenset({"min", "max"})


def computed(plan: Plan, x: Any) -> Any:
    """Stored values in the type computed in; the same array where the types are equal."""
    given, kind = np.asarray(x), plan.computed_in
    if plan.missing is None and given.dtype == kind:
        return x if given.ndim else given.item()
    with np.errstate(invalid="ignore"):  # what is missing may be no integer
        found = given.astype(kind, copy=plan.missing is not None)
    if plan.missing is not None:
        found[given == plan.missing] = plan.infinite
    return found if found.ndim else found.item()


def stored(plan: Plan, x: Any, dtype: np.dtype[Any]) -> Any:
    """Computed values as they are stored."""
    found = x.astype(dtype)
    if plan.missing is not None:
        found[x == plan.infinite] = plan.missing
    return found


def overflow(semiring: Semiring, dtype: np.dtype[Any]) -> OverflowError:
    """The error for an integer result that does not fit its dtype."""
    wider = "np.int64" if dtype.itemsize < 8 else "np.float64"
    return OverflowError(
        f"a result of {semiring.name} does not fit {dtype}: use a wider dtype, for example "
        f"A.astype({wider})"
    )


#: Message for an invalid CSR matrix.
BROKEN = (
    "a's indices hold column indices out of range, or its indptr does not ascend from 0 to the "
    "number of its entries; a.check_format() finds the place"
)

#: Bits of a kernel's mode: C is joined; the product, or C, is scaled.
READ_C, ALPHA, BETA = 1, 2, 4


def is_sum(plan: Plan) -> bool:
    """Whether floats are only added up: ⊕ is +, and ⊗ leaves its right operand out."""
    return plan.compute[0] == "f" and ex.joins(plan.add) == "+" and "b" not in plan.mul.ops()


def scalar_bits(plan: Plan, value: float | int | None) -> int:
    """A scalar as a 64-bit parameter, whose low bytes are it in the type computed in."""
    if value is None:
        return 0
    number = scalar(plan, value)
    text = struct.pack({"f32": "f", "f64": "d", "u64": "Q"}.get(plan.compute, "q"), number)
    return int.from_bytes(text.ljust(8, b"\0"), "little", signed=True)


def scalar(plan: Plan, value: float | int | None) -> float | int | None:
    """A scalar in the type computed in."""
    if value is None:
        return None
    assert plan.codec != "key", "keys are not scaled"
    if plan.missing is not None and value == plan.missing:
        value = plan.infinite
    if plan.compute[0] != "f":
        return int(value)
    return _float32(value) if plan.compute == "f32" else value


def absent(semiring: Semiring, dtype: np.dtype[Any], plan: Plan) -> float | int | None:
    """The value that joins a sum of fewer than k terms, or None if none has to.

    That is the semiring's zero where ⊕ starts from another number: max_times has zero 0, but the
    largest of negative products is negative.
    """
    zero, _ = semiring.identities(dtype)
    if plan.codec == "mask":
        value: float | int = -int(zero)
    else:
        value = float(zero) if plan.compute[0] == "f" else int(zero)
    start = plan.missing if plan.missing is not None and plan.start == plan.infinite else plan.start
    return None if value == start else value


def distributes(semiring: Semiring, dtype: np.dtype[Any], alpha: float | int) -> bool:
    """Whether a sum may be scaled at its end: α ⊗ (x ⊕ y) for (α ⊗ x) ⊕ (α ⊗ y).

    That has to be exact, overflow included, but in floating point over plus_times and log_plus,
    whose sums are rounded in no fixed order.
    """
    add, mul = semiring.add_kind, semiring.mul_kind
    if mul in ("min", "max"):
        return add in ("min", "max")
    if dtype.kind in "iub":
        if mul == "&":
            return add in ("|", "^", "&")
        if mul == "+":
            return add in ("min", "max")
        return mul == "*" and (add == "+" or (add in ("min", "max") and alpha >= 0))
    if not math.isfinite(alpha):
        return False
    return (add, mul) == ("+", "*") or (semiring.add_expr.op == "logaddexp" and mul == "+")


@functools.lru_cache(maxsize=1024)
def needs_facts(semiring: Semiring, dtype: np.dtype[Any]) -> bool:
    """Whether :func:`make_plan` looks at what the operands hold."""
    if dtype.name in FLOATS:
        return bool(_EXTREMA & (semiring.add_expr.ops() | semiring.mul_expr.ops()))
    return dtype.kind in "iu" and not semiring.order_only


def make_plan(
    semiring: Semiring,
    dtype: np.dtype[Any],
    a: Facts | None,
    b: Facts | None,
    k: int,
    *,
    c: Facts | None = None,
    alpha: float | int | None = None,
    beta: float | int | None = None,
) -> Plan:
    """Decide how to compute (α ⊗ A ⊗ B) ⊕ (β ⊗ C).

    Facts may be None where :func:`needs_facts` says so; `c` is None where C is not read.

    Raises
    ------
    TypeError
        If the semiring makes no sense in the dtype.
    OverflowError
        If a result could leave what 64 bits hold.
    """
    if dtype.name in FLOATS:
        # of ranges only the kinds of numbers count, so that few plans serve all data
        kinds = (None if x is None else x.kinds() for x in (a, b, c))
        return _float_plan(semiring, dtype, *kinds, alpha, beta)
    if dtype.kind == "b":
        return _bool_plan(semiring)
    if dtype.kind in "iu":
        scales = [None if x is None else int(x) for x in (alpha, beta)]
        return _integer_plan(semiring, dtype, a, b, k, c, *scales)
    refuse_dtype(semiring, dtype)


def make_step_plan(
    semiring: Semiring, dtype: np.dtype[Any], factors: Iterable[Facts], k: int, *, reverse: bool
) -> Plan:
    """The plan of a step of a chain of integers: any row, times matrices and emissions.

    `factors` are the ranges of these; reversed they are the left operands.

    Raises
    ------
    TypeError, OverflowError
        As :func:`make_plan`.
    """
    row, factor = _any_integer(dtype), functools.reduce(Facts.join, factors)
    operands = (factor, row) if reverse else (row, factor)
    return make_plan(semiring, dtype, *operands, k)


def _any_integer(dtype: np.dtype[Any]) -> Facts:
    """The widest range."""
    info = np.iinfo(dtype)
    return Facts(int(info.min), int(info.max), True)


@functools.lru_cache(maxsize=4096)
def unseen_plan(
    semiring: Semiring, dtype: np.dtype[Any], depth: int, alpha: float | int | None = None,
    beta: float | int | None = None, joined: bool = False, *, nan: bool = False,
) -> Plan:  # fmt: skip
    """The plan for whatever the operands hold, and a C that is `joined`; of truth values in bytes.

    `depth`: how many products an entry of C joins, at most; 1 where that does not matter. `nan`:
    NaN is kept in floats, whatever the operations are.

    Raises
    ------
    TypeError, OverflowError
        As :func:`make_plan`.
    """
    known = _any_integer(dtype) if needs_facts(semiring, dtype) and dtype.kind in "iu" else None
    third = known if joined else None
    plan = make_plan(semiring, dtype, known, known, depth, c=third, alpha=alpha, beta=beta)
    plan = bytewise(plan) if plan.codec == "bits" else plan
    return replace(plan, keep_nan=True) if nan and plan.compute[0] == "f" else plan


def refuse_dtype(s: Semiring, dtype: np.dtype[Any]) -> NoReturn:
    """Raise TypeError for a dtype that no semiring is computed in."""
    extra = ""
    if dtype.kind == "c":
        extra = "; complex numbers have no order, and no semiring here is defined on them"
    elif dtype.char == "g":
        extra = "; use float64"
    elif dtype.kind == "O":
        extra = "; convert the objects first, for example with A.astype(float)"
    raise TypeError(
        f"{s.name} on dtype {dtype}: float16, bfloat16, float32, float64, the integers and bool "
        f"are accepted{extra}"
    )


# --- floating point ---------------------------------------------------------------------------


@functools.lru_cache(maxsize=1024)
def _float_plan(
    semiring: Semiring,
    dtype: np.dtype[Any],
    a: Kinds | None,
    b: Kinds | None,
    c: Kinds | None,
    alpha: float | None,
    beta: float | None,
) -> Plan:
    ops = semiring.add_expr.ops() | semiring.mul_expr.ops()
    if ex.BITWISE & _numeric_ops(semiring.add_expr) | ex.BITWISE & _numeric_ops(semiring.mul_expr):
        raise TypeError(
            f"{semiring.name} works on bits (⊕ is {semiring.add}, ⊗ is {semiring.mul}) and has no "
            f"{dtype} form: use dtype bool, or max_min / max_times for numbers"
        )
    compute = FLOATS[dtype.name]
    keep_nan = False
    if _EXTREMA & ops:
        anything = frozenset(ex._KINDS)
        kinds_a, kinds_b = (anything if x is None else x for x in (a, b))
        kinds_c = frozenset() if c is None else c
        keep_nan = "nan" in kinds_c
        for scale, kinds in ((alpha, kinds_a), (beta, kinds_c)):
            if scale is not None and kinds:
                one = ex.kinds_between(scale, scale, math.isnan(scale))
                keep_nan |= ex.may_be_nan(semiring.mul_expr, one, kinds)
        if alpha is not None:  # α ⊗ A may hold anything but NaN now
            kinds_a = anything - {"nan"}
        keep_nan |= ex.may_be_nan(semiring.mul_expr, kinds_a, kinds_b)
        if not semiring.add_kind:
            numbers = anything - {"nan"}
            keep_nan |= ex.may_be_nan(semiring.add_expr, numbers, numbers)
    add, mul = semiring.add_expr, semiring.mul_expr
    if compute == "f32":
        add, mul = _in_float32(add), _in_float32(mul)
    start = float(fold_start(semiring))
    return Plan(add, mul, dtype.name, compute, start=start, keep_nan=keep_nan)


def _in_float32(expr: ex.Expr) -> ex.Expr:
    """The expression with constants that float32 cannot hold as infinities.

    One that has none is returned itself: plans that share it are compared by identity.
    """
    if expr.op == "const":
        far = math.isinf(_float32(expr.value))
        return ex.Expr("const", (), _float32(expr.value)) if far else expr
    args = tuple(map(_in_float32, expr.args))
    same = all(new is old for new, old in zip(args, expr.args, strict=True))
    return expr if same else ex.Expr(expr.op, args, expr.value)


def _float32(value: float | int) -> float | int:
    """The value itself, or an infinity where it rounds to one in float32, as in NumPy."""
    try:
        struct.pack("<f", value)
    except OverflowError:
        return math.copysign(math.inf, value)
    return value


@functools.lru_cache(maxsize=1024)
def _numeric_ops(expr: ex.Expr) -> frozenset[str]:
    """Operations applied to numbers, leaving out ``&`` and ``|`` between comparisons."""
    found = set()
    for node in expr.walk():
        logical = all(_is_logical(arg) for arg in node.args)
        if not (node.op in ex.BITWISE and logical):
            found.add(node.op)
    return frozenset(found)


def _is_logical(expr: ex.Expr) -> bool:
    if expr.op in ex.BITWISE:
        return all(_is_logical(arg) for arg in expr.args)
    return expr.op in ex.COMPARISONS


def with_keys(plan: Plan) -> Plan:
    """The same product of floats on order-preserving integers; exact, but NaN has no place."""
    bits = int(plan.compute[1:])
    key = float_key(plan.start, bits)
    return replace(plan, compute=f"i{bits}", codec="key", start=key)


def can_use_keys(plan: Plan) -> bool:
    ops = plan.add.ops() | plan.mul.ops()
    return plan.compute[0] == "f" and not plan.keep_nan and ops <= {"min", "max", "a", "b"}


def can_use_fma(plan: Plan) -> bool:
    return plan.compute[0] == "f" and plan.mul in _SUM


def contracted(plan: Plan) -> tuple[ex.Expr, ex.Expr, ex.Expr | None] | None:
    """The multiply-add of ⊗ = x * y, or x * y + z, where ⊕ is the sum of floats.

    There the product is not rounded before it is added: to the accumulator, or to z.
    """
    floating = plan.compute[0] == "f" and not plan.annihilate
    return ex.multiply_add(plan.mul) if floating and ex.joins(plan.add) == "+" else None


def float_key(x: float, bits: int) -> int:
    raw = int(np.array(x, f"f{bits // 8}").view(f"i{bits // 8}")[()])
    return raw ^ ((raw >> (bits - 1)) & ((1 << (bits - 1)) - 1))


# --- bool -------------------------------------------------------------------------------------

_TABLES = {
    0b1000: ex.Expr("&", (ex.A, ex.B)),
    0b1110: ex.Expr("|", (ex.A, ex.B)),
    0b0110: ex.Expr("^", (ex.A, ex.B)),
}


def _bool_plan(semiring: Semiring) -> Plan:
    zero, _ = semiring.identities(np.dtype(bool))
    add, mul = (_truth_table(semiring, expr) for expr in (semiring.add_expr, semiring.mul_expr))
    start = fold_start(semiring)
    full = bool(zero) if start == semiring.zero else start > 0
    return Plan(add, mul, "bool", "i32", codec="bits", start=-1 if full else 0)


def bytewise(plan: Plan) -> Plan:
    """A bool plan one byte an element, for work that does not repay packing bits."""
    return replace(plan, compute="i8", codec="mask")


def closure_plan(
    semiring: Semiring, dtype: np.dtype[Any], known: tuple[Facts, Facts, Facts] | None, depth: int,
    *, annihilate: bool = True,
) -> Plan:  # fmt: skip
    """How entries of a closure, which stay in their ranges, come from `depth` pairs of others.

    `annihilate`: ⊗ tests for sentinels, also where sums with them are beyond all numbers.
    """
    fa, fb, fc = known or (None, None, None)
    plan = make_plan(semiring, dtype, fa, fb, depth, c=fc)
    plan = bytewise(plan) if plan.codec == "bits" else plan
    tests = plan.annihilate or (annihilate and plan.codec == "sentinel")
    return replace(plan, check=False, annihilate=tests)


def entry_plan(semiring: Semiring, dtype: np.dtype[Any]) -> Plan:
    """How entries of any closure are compared, and joined with an edge."""
    known = None
    if needs_facts(semiring, dtype) and dtype.kind in "iu":
        limit = 1 << (8 * dtype.itemsize - 4)  # as in closures
        known = (Facts(-limit, limit, True),) * 3
    return closure_plan(semiring, dtype, known, 1)


def scaled_bools(semiring: Semiring, scale: bool, x: Any) -> Any:
    """``scale ⊗ x`` for an array of truth values, of NumPy or CuPy."""
    table = _truth_table(semiring, semiring.mul_expr)
    return x & False if table.op == "const" else ex.evaluate(table, np.bool_(scale), x)


def unpack_bits(xp: Any, bits: Any, n: int) -> Any:
    """Bool (..., m, n) from packed bits (..., m, ceil(n / 8)) in the order of numpy.packbits."""
    whole = xp.unpackbits(xp.ascontiguousarray(bits).ravel())
    return whole.reshape(*bits.shape[:-1], 8 * bits.shape[-1])[..., :n].view(bool)


@functools.lru_cache(maxsize=1024)
def bit_join(semiring: Semiring) -> str:
    """The operation that joins truth values multiplied by "and": "|", "^", or "" for others."""
    plan = _bool_plan(semiring)
    join = ex.joins(plan.add)
    return join if join in ("|", "^") and ex.joins(plan.mul) == "&" else ""


def words_of_bits(semiring: Semiring) -> Semiring:
    """The semiring that computes products of packed bits, where A's are masks in integers.

    Raises
    ------
    TypeError
        If truth values are not multiplied by "and" and joined by "or" or "xor".
    """
    join = bit_join(semiring)
    if not join:
        raise TypeError(
            f"{semiring.name} on packed bits: ⊗ must be 'and', and ⊕ 'or' or 'xor', as of lor_land "
            f"and xor_land; use arrays of dtype bool (A.unpack())"
        )
    return _WORDS[join]


_WORDS = {x: Semiring("words", f"a {x} b", "a & b", 0, -1) for x in "|^"}


def _truth_table(semiring: Semiring, expr: ex.Expr) -> ex.Expr:
    """The expression in bitwise operations that agrees with `expr` on 0 and 1."""
    table, terms = 0, []
    for a in (0, 1):
        for b in (0, 1):
            value = _on_bits(expr, a, b)
            if value not in (0, 1):
                raise TypeError(
                    f"{semiring.name} is not closed on bool: with a = {a}, b = {b} the expression "
                    f"{ex.short(semiring.add if expr is semiring.add_expr else semiring.mul)} "
                    f"gives {value:g}; use lor_land, or a numeric dtype (A.astype(float))"
                )
            if value:
                table |= 1 << (2 * a + b)
                left = ex.A if a else ex.Expr("~", (ex.A,))
                right = ex.B if b else ex.Expr("~", (ex.B,))
                terms.append(ex.Expr("&", (left, right)))
    if table in _TABLES:
        return _TABLES[table]
    if not terms:
        return ex.Expr("const", (), 0)
    return functools.reduce(lambda x, y: ex.Expr("|", (x, y)), terms)


def _on_bits(expr: ex.Expr, a: int, b: int) -> float:
    """The value of an expression on truth values: as integers where that has a meaning."""
    if ex.BITWISE & _numeric_ops(expr):
        return float(ex.evaluate(expr, np.bool_(a), np.bool_(b)))
    try:
        _, (lo, hi) = ex.intervals(expr, (0, 1), (0, 1))
        exact = max(-lo, hi) < 1 << 62
    except ValueError:  # a division, a root, a fraction
        exact = False
    number = np.int64 if exact else np.float64
    return float(ex.evaluate(expr, number(a), number(b)))


# --- integers ---------------------------------------------------------------------------------


def infinite_zero(semiring: Semiring, dtype: np.dtype[Any]) -> int | None:
    """The integer that stands for an infinite zero, or None if zero is an ordinary number."""
    if dtype.kind not in "iu" or semiring.order_only or math.isfinite(semiring.zero):
        return None
    return int(semiring.identities(dtype)[0])


def _integer_plan(
    semiring: Semiring,
    dtype: np.dtype[Any],
    a: Facts | None,
    b: Facts | None,
    k: int,
    c: Facts | None,
    alpha: int | None,
    beta: int | None,
) -> Plan:
    add, mul = semiring.add_expr, semiring.mul_expr
    zero, one = semiring.identities(dtype)
    _check_bitwise(semiring, dtype, int(one))
    info = np.iinfo(dtype)
    own = f"{dtype.kind}{8 * dtype.itemsize}"
    if semiring.order_only:
        start = info.max if semiring.add_kind == "min" else info.min
        return Plan(add, mul, dtype.name, own, start=int(start))
    missing = infinite_zero(semiring, dtype)
    assert a is not None
    assert b is not None
    finite_lo = info.min + (semiring.zero == -math.inf)
    finite_hi = info.max - (semiring.zero == math.inf)

    def bounds(x: ex.Interval, y: ex.Interval) -> tuple[ex.Interval, ex.Interval]:
        try:
            return ex.intervals(mul, x, y)
        except ValueError as error:
            raise TypeError(
                f"{semiring.name} on {dtype}: {error}; use float32 or float64"
            ) from None

    operands = [a.interval(), b.interval()]
    reach: list[ex.Interval] = []  # of all that is computed

    def scaled(scale: int | None, facts: Facts) -> ex.Interval:
        if scale is None or scale == missing:
            return facts.interval()
        result, between = bounds((scale, scale), facts.interval())
        operands.append(result)
        reach.append(between)
        return result

    product, between = bounds(scaled(alpha, a), b.interval())
    total = product
    match semiring.add_kind:
        case "+":
            total = (min(0, k * product[0]), max(0, k * product[1]))
        case "min" | "max":
            pass
        case "&" | "|" | "^":
            bits = max((x if x >= 0 else ~x).bit_length() for x in product)
            total = (-(1 << bits) if product[0] < 0 else 0, (1 << bits) - 1)
        case _:
            raise TypeError(
                f"{semiring.name} on {dtype}: how far ⊕ = {semiring.add} can grow is not known, so "
                f"integers could overflow; use float32 or float64"
            )
    if c is not None:
        other = scaled(beta, c)
        operands.append(c.interval())
        if semiring.add_kind == "+":
            total = (total[0] + min(0, other[0]), total[1] + max(0, other[1]))
        else:
            total = (min(total[0], other[0]), max(total[1], other[1]))
    reach += [*operands, between, total]
    lo, hi = min(r[0] for r in reach), max(r[1] for r in reach)

    short = mul in _SUM and semiring.selective and missing is not None
    for bits in (8, 16, 32, 64):
        if bits < 8 * dtype.itemsize:
            continue
        unit = 1 << (bits - 4)
        if short:  # a finite sum stays below the sum of infinity and anything
            fits = all(-unit <= r[0] and r[1] <= unit for r in operands)
        else:  # the outermost integer is infinity, where there is one
            bound = (1 << (bits - 1)) - (missing is not None)
            fits = -bound <= lo and hi < bound
        if fits:
            break
    else:
        raise OverflowError(
            f"{semiring.name} on {dtype}: with entries from {min(r[0] for r in operands)} to "
            f"{max(r[1] for r in operands)} and k = {k}, a result may need more than 64 bits; "
            f"use float64, or scale the entries down"
        )
    plan = Plan(
        add,
        mul,
        dtype.name,
        f"i{bits}",
        missing=missing,
        check=total[0] < finite_lo or total[1] > finite_hi,
    )
    highest = (1 << (bits - 1)) - 1
    if missing is not None:
        far = 4 * unit - 1 if short else highest
        far = far if semiring.zero > 0 else -far - (not short)
        return replace(plan, codec="sentinel", infinite=far, start=far, annihilate=not short)
    if semiring.selective and k == 0:
        return replace(plan, start=int(zero))
    starts = {"min": highest, "max": -highest - 1, "&": -1}
    return replace(plan, start=starts.get(semiring.add_kind, 0))


def _check_bitwise(semiring: Semiring, dtype: np.dtype[Any], one: int) -> None:
    """Refuse an algebra of truth values on integers, where its ``one`` is not neutral."""
    if not ex.BITWISE & _numeric_ops(semiring.mul_expr):
        return
    for x in (1, 2, 6):
        result = int(ex.evaluate(semiring.mul_expr, np.int64(one), np.int64(x)))
        if result != x:
            raise TypeError(
                f"{semiring.name} on {dtype}: one = {semiring.one:g} is not neutral, since "
                f"{semiring.one:g} ⊗ {x} = {result}; use dtype bool, or any_pair for numbers"
            )
