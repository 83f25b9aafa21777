"""The little language in which a semiring's two operations are written.

An expression in the names ``a`` and ``b`` is parsed with :mod:`ast` against a list of what is
allowed, so no text of the caller's is ever evaluated unchecked. The tree is then read in four ways:
by NumPy (:func:`evaluate`), as CUDA C++ (:func:`to_cuda`), as vector code by the CPU engine's
compiler, and by two small analyses that decide whether an integer can overflow (:func:`interval`)
and whether a NaN can appear (:func:`may_be_nan`). :func:`derivative` makes a tree of a tree.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

__all__ = [
    "Expr",
    "derivative",
    "evaluate",
    "intervals",
    "joins",
    "may_be_nan",
    "multiply_add",
    "parse",
    "short",
    "to_cuda",
]


@dataclass(frozen=True, slots=True)
class Expr:
    """A node: an operation, its operands, and for ``op == "const"`` its value.

    Variables are the nodes with ``op`` ``"a"`` and ``"b"``; every other ``op`` is the source text
    of the operator or function (``"+"``, ``"min"``, ``"<"``, ``"if"`` with operands condition,
    then, else).
    """

    op: str
    args: tuple[Expr, ...] = ()
    value: float | int = 0

    def walk(self) -> Iterator[Expr]:
        yield self
        for arg in self.args:
            yield from arg.walk()

    def ops(self) -> frozenset[str]:
        """All operations in the tree, the variables and constants included."""
        return frozenset(node.op for node in self.walk())


A, B = Expr("a"), Expr("b")
#: The weight of a coordinate, at least 0 and finite: only in what pairs of coordinates add.
W = Expr("w")

ARITHMETIC = frozenset({"+", "-", "*", "/", "//", "%"})
COMPARISONS = frozenset({"<", "<=", ">", ">=", "==", "!="})
BITWISE = frozenset({"&", "|", "^", "~"})
FLOAT_ONLY = frozenset({"/", "exp", "log", "log1p", "expm1", "sqrt", "logaddexp"})
_NUMERIC = ARITHMETIC | FLOAT_ONLY | {"neg", "abs"}

_BINARY: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_UNARY: dict[type[ast.AST], str] = {ast.USub: "neg", ast.Invert: "~"}
_FUNCTIONS = {
    "abs": 1, "exp": 1, "log": 1, "log1p": 1, "expm1": 1, "sqrt": 1, "logaddexp": 2,
}  # fmt: skip
_ALLOWED = (
    "the names a and b, numbers, inf, + - * / // % & | ^ ~, comparisons, 'x if c else y', and "
    "min max abs exp log log1p expm1 sqrt logaddexp"
)
_HINTS: dict[type[ast.AST], str] = {
    ast.Pow: "write a product (a * a) instead of '**'",
    ast.And: "write '&' instead of 'and'",
    ast.Or: "write '|' instead of 'or'",
    ast.Not: "write '~' instead of 'not'",
    ast.BoolOp: "write '&' and '|' instead of 'and' and 'or'",
}
_MAX_NODES, _MAX_LENGTH = 200, 10_000


@lru_cache(maxsize=512)
def parse(text: str) -> Expr:
    """Parse an expression in ``a`` and ``b``.

    ValueError, with the offending part, if the text is not an expression of the language.

    >>> parse("min(a, b)").op
    'min'
    """
    if not isinstance(text, str):
        raise TypeError(f"an expression is a string such as 'min(a, b)', got {text!r}")
    if len(text) > _MAX_LENGTH:
        raise ValueError(
            f"the expression {short(text)} has {len(text)} characters; at most {_MAX_LENGTH} are "
            f"accepted"
        )
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        expr = _canonical(_convert(tree, text))
        nodes = sum(1 for _ in expr.walk())
    except (RecursionError, MemoryError):
        raise ValueError(
            f"the expression {short(text)} is nested too deeply: at most {_MAX_NODES} operations "
            f"are accepted"
        ) from None
    except SyntaxError as error:
        raise ValueError(f"cannot parse the expression {short(text)}: {error.msg}") from None
    if nodes > _MAX_NODES:
        raise ValueError(f"the expression {short(text)} has more than {_MAX_NODES} operations")
    return expr


def short(text: str) -> str:
    """The source of an expression, quoted for a message; a long one is cut."""
    return repr(text) if len(text) <= 80 else f"{text[:60]!r}..."


def _convert(node: ast.AST, text: str) -> Expr:
    def refuse(what: str) -> ValueError:
        return ValueError(f"{what} is not allowed in the expression {short(text)}: use {_ALLOWED}")

    def constant(value: float | int) -> Expr:
        try:
            float(value)
        except OverflowError:
            digits = str(abs(value))
            raise refuse(
                f"the number {digits[:20]}... of {len(digits)} digits, more than float64 holds,"
            ) from None
        return Expr("const", (), value)

    def hint(operator: ast.AST) -> ValueError:
        error = refuse(short(ast.unparse(node)))
        extra = _HINTS.get(type(operator))
        return ValueError(f"{error}; {extra}") if extra else error

    match node:
        case ast.Name(id="a" | "b" as name):
            return Expr(name)
        case ast.Name(id="inf"):
            return Expr("const", (), math.inf)
        case ast.Name(id=name):
            raise refuse(f"the name {short(name)}")
        case ast.Constant(value=bool() as value):
            return Expr("const", (), int(value))
        case ast.Constant(value=int() | float() as value):
            return constant(value)
        case ast.BinOp(left=left, op=op, right=right):
            if type(op) not in _BINARY:
                raise hint(op)
            return Expr(_BINARY[type(op)], (_convert(left, text), _convert(right, text)))
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _convert(operand, text)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return constant(-value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Name(id="inf")):
            return Expr("const", (), -math.inf)
        case ast.UnaryOp(op=op, operand=operand):
            if type(op) not in _UNARY:
                raise hint(op)
            return Expr(_UNARY[type(op)], (_convert(operand, text),))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _BINARY:
            return Expr(_BINARY[type(op)], (_convert(left, text), _convert(right, text)))
        case ast.Compare(ops=ops) if len(ops) > 1:
            raise refuse(f"the chained comparison {short(ast.unparse(node))} (join two with '&')")
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return Expr("if", tuple(_convert(x, text) for x in (test, body, orelse)))
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=args, keywords=[]):
            if len(args) < 2:
                raise refuse(f"{name} of {len(args)} argument(s)")
            folded = _convert(args[0], text)
            for arg in args[1:]:
                folded = Expr(name, (folded, _convert(arg, text)))
            return folded
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            if len(args) != _FUNCTIONS[name]:
                raise refuse(f"{name} of {len(args)} argument(s)")
            return Expr(name, tuple(_convert(arg, text) for arg in args))
        case ast.BoolOp():
            raise hint(node)
        case _:
            raise refuse(short(ast.unparse(node)))


def _canonical(expr: Expr) -> Expr:
    """Write ``x if x < y else y`` and its three sisters as min or max.

    A compare-and-select costs twice the instructions of a minimum, and only a recognised minimum
    is known to be selective and idempotent.
    """
    args = tuple(_canonical(arg) for arg in expr.args)
    if expr.op == "if" and args[0].op in ("<", "<=", ">", ">="):
        condition, chosen, other = args
        less = condition.op in ("<", "<=")
        if condition.args == (chosen, other):
            return Expr("min" if less else "max", (chosen, other))
        if condition.args == (other, chosen):
            return Expr("max" if less else "min", (other, chosen))
    return Expr(expr.op, args, expr.value)


# --- NumPy ------------------------------------------------------------------------------------

_UFUNCS: dict[str, Callable[..., Any]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.true_divide,
    "//": np.floor_divide, "%": np.remainder, "&": np.bitwise_and, "|": np.bitwise_or,
    "^": np.bitwise_xor, "~": np.invert, "neg": np.negative, "abs": np.abs,
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
    "==": np.equal, "!=": np.not_equal, "min": np.minimum, "max": np.maximum,
    "exp": np.exp, "log": np.log, "log1p": np.log1p, "expm1": np.expm1, "sqrt": np.sqrt,
    "logaddexp": np.logaddexp, "if": np.where,
}  # fmt: skip


#: Operations whose operands may change places.
_COMMUTE = ("+", "*", "min", "max", "|", "&", "^")


def joins(expr: Expr) -> str:
    """The commutative operation that joins ``a`` and ``b`` as they are, or ``""``."""
    return expr.op if expr.op in _COMMUTE and expr.args in ((A, B), (B, A)) else ""


def joins_logarithms(expr: Expr) -> bool:
    """Whether ``expr`` is ``logaddexp(a, b)``, in either order."""
    return expr.op == "logaddexp" and expr.args in ((A, B), (B, A))


def multiply_add(expr: Expr) -> tuple[Expr, Expr, Expr | None] | None:
    """x, y and z where ``expr`` is ``x * y`` (z is None) or ``x * y + z``, else None.

    Of two products none is chosen: ``a * a - b * b`` is to be 0 where a and b are equal.
    """
    if expr.op == "*":
        return (*expr.args, None)  # type: ignore[return-value]
    if expr.op == "+" and [arg.op for arg in expr.args].count("*") == 1:
        product, other = sorted(expr.args, key=lambda arg: arg.op != "*")
        return (*product.args, other)  # type: ignore[return-value]
    return None


def evaluate(expr: Expr, a: Any, b: Any) -> Any:
    """Evaluate ``expr`` on NumPy arrays or scalars: the meaning that both engines reproduce.

    A comparison gives booleans, which count as 0 and 1 where a number is wanted.
    """
    if expr.op == "a":
        return a
    if expr.op == "b":
        return b
    if expr.op == "const":
        return expr.value
    args = [evaluate(arg, a, b) for arg in expr.args]
    if expr.op in _NUMERIC:  # NumPy's own + on booleans would be "or", its exp would be of float16
        number = np.result_type(*(getattr(x, "dtype", x) for x in (a, b)), np.int8)
        args = [x.astype(number) if getattr(x, "dtype", None) == np.bool_ else x for x in args]
    with np.errstate(all="ignore"):
        return _UFUNCS[expr.op](*args)


# --- derivatives ------------------------------------------------------------------------------

ZERO, ONE = Expr("const", (), 0), Expr("const", (), 1)


@lru_cache(maxsize=512)
def derivative(expr: Expr, variable: str) -> Expr:
    """The derivative of ``expr`` with respect to ``a`` or ``b``, simplified where it is constant.

    Where two operands of min or max are equal, it is that of the first; that of ``abs`` at 0 is 0.
    Comparisons, bitwise operations and ``//`` are constant between their jumps.

    >>> derivative(parse("max(a, b)"), "a") == parse("1 if a >= b else 0")
    True
    """
    if expr.op == variable:
        return ONE
    if not expr.args or expr.op in COMPARISONS | BITWISE or expr.op == "//":
        return ZERO
    if expr.op == "if":
        return _choice(expr.args[0], *(derivative(arg, variable) for arg in expr.args[1:]))
    u, v = (*expr.args, ZERO)[:2]
    du, dv = derivative(u, variable), derivative(v, variable)
    match expr.op:
        case "+":
            return _sum(du, dv)
        case "-":
            return _sum(du, _negative(dv))
        case "neg":
            return _negative(du)
        case "*":
            return _sum(_times(du, v), _times(u, dv))
        case "/":
            return _over(_sum(du, _negative(_times(expr, dv))), v)
        case "%":
            return _sum(du, _negative(_times(Expr("//", (u, v)), dv)))
        case "min":
            return _choice(Expr("<=", (u, v)), du, dv)
        case "max":
            return _choice(Expr(">=", (u, v)), du, dv)
        case "abs":
            below = _choice(Expr("<", (u, ZERO)), _negative(du), ZERO)
            return _choice(Expr(">", (u, ZERO)), du, below)
        case "exp":
            return _times(expr, du)
        case "expm1":
            return _times(Expr("exp", (u,)), du)
        case "log":
            return _over(du, u)
        case "log1p":
            return _over(du, _sum(ONE, u))
        case "sqrt":
            return _over(du, _times(Expr("const", (), 2), expr))
        case "logaddexp":  # equal operands share, infinite ones too
            half = Expr("const", (), 0.5)
            shares = [
                _choice(Expr("==", (u, v)), half, Expr("exp", (Expr("-", (x, expr)),)))
                for x in (u, v)
            ]
            return _sum(_times(shares[0], du), _times(shares[1], dv))
    raise AssertionError(f"no rule for {expr.op}")


def _sum(u: Expr, v: Expr) -> Expr:
    return v if u == ZERO else u if v == ZERO else Expr("+", (u, v))


def _negative(u: Expr) -> Expr:
    return Expr("const", (), -u.value) if u.op == "const" else Expr("neg", (u,))


def _times(u: Expr, v: Expr) -> Expr:
    if ZERO in (u, v):
        return ZERO
    return v if u == ONE else u if v == ONE else Expr("*", (u, v))


def _over(u: Expr, v: Expr) -> Expr:
    return u if u == ZERO else Expr("/", (u, v))


def _choice(condition: Expr, u: Expr, v: Expr) -> Expr:
    return u if u == v else Expr("if", (condition, u, v))


# --- integers: can it overflow? ---------------------------------------------------------------

Interval = tuple[int, int]


def intervals(expr: Expr, a: Interval, b: Interval) -> tuple[Interval, Interval]:
    """Bounds of ``expr`` over integers in the closed intervals `a` and `b`, by interval arithmetic.

    And those of 0 and of every intermediate result, operands included: an integer type that holds
    them holds the whole computation. ValueError where an operation has no integer meaning (``/``,
    ``exp``, ...).
    """
    reach = [0, 0]

    def go(node: Expr) -> Interval:
        lo, hi = step(node)
        reach[:] = min(reach[0], lo), max(reach[1], hi)
        return lo, hi

    def step(node: Expr) -> Interval:
        match node.op:
            case "a":
                return a
            case "b":
                return b
            case "const":
                if node.value != int(node.value) if math.isfinite(node.value) else True:
                    raise ValueError(f"the constant {node.value} is not an integer")
                return int(node.value), int(node.value)
            case op if op in COMPARISONS:
                for arg in node.args:
                    go(arg)
                return 0, 1
        if node.op in FLOAT_ONLY:
            raise ValueError(f"{node.op!r} has no integer meaning")
        args = [go(arg) for arg in node.args]
        if node.op == "if":
            (_, (lo0, hi0), (lo1, hi1)) = args
            return min(lo0, lo1), max(hi0, hi1)
        if node.op == "abs":
            ((lo, hi),) = args
            return (0 if lo <= 0 <= hi else min(abs(lo), abs(hi))), max(abs(lo), abs(hi))
        if node.op == "neg":
            return -args[0][1], -args[0][0]
        if node.op == "~":
            return ~args[0][1], ~args[0][0]
        (lo0, hi0), (lo1, hi1) = args
        match node.op:
            case "+":
                return lo0 + lo1, hi0 + hi1
            case "-":
                return lo0 - hi1, hi0 - lo1
            case "*":
                ends = [x * y for x in (lo0, hi0) for y in (lo1, hi1)]
                return min(ends), max(ends)
            case "min":
                return min(lo0, lo1), min(hi0, hi1)
            case "max":
                return max(lo0, lo1), max(hi0, hi1)
            case "//":  # x // 0 is 0, as in NumPy; the largest quotients are those by 1 and -1
                ends = [0]
                ends += [lo0, hi0] if hi1 > 0 else []
                ends += [-lo0, -hi0] if lo1 < 0 else []
                return min(ends), max(ends)
            case "%":  # x % 0 is 0; other remainders are smaller than the divisor, with its sign
                return min(0, lo1 + 1), max(0, hi1 - 1)
            case _:  # & | ^ stay inside the smallest power of two around both
                bits = max((x if x >= 0 else ~x).bit_length() for x in (lo0, hi0, lo1, hi1))
                return (-(1 << bits) if min(lo0, lo1) < 0 else 0), (1 << bits) - 1

    result = go(expr)
    return result, (reach[0], reach[1])


# --- floats: can a NaN appear? ----------------------------------------------------------------

#: One value of every kind that decides where a NaN comes from.
_KINDS: dict[str, tuple[float, ...]] = {
    "nan": (math.nan,),
    "-inf": (-math.inf,),
    "-": (-1e308, -2.0, -1.0, -0.5, -1e-308),
    "0": (0.0, -0.0),
    "+": (1e-308, 0.5, 1.0, 2.0, 1e308),
    "+inf": (math.inf,),
}
Kinds = frozenset[str]


def kinds_between(lo: float, hi: float, nan: bool) -> Kinds:
    """The kinds of value that an array with minimum `lo` and maximum `hi` may hold."""
    return _present(nan, lo == -math.inf, hi == math.inf, lo < 0, lo <= 0 <= hi, hi > 0)


@lru_cache
def _present(*there: bool) -> Kinds:
    kinds = "nan", "-inf", "+inf", "-", "0", "+"
    return frozenset(kind for kind, is_there in zip(kinds, there, strict=True) if is_there)


def _kinds_of(values: Any) -> Kinds:
    return kinds_between(
        lo=float(np.nanmin(values)) if not np.isnan(values).all() else math.inf,
        hi=float(np.nanmax(values)) if not np.isnan(values).all() else -math.inf,
        nan=bool(np.isnan(values).any()),
    )


@lru_cache(maxsize=4096)
def may_be_nan(expr: Expr, a: Kinds, b: Kinds) -> bool:
    """Whether a NaN can appear anywhere in ``expr`` when its operands are of the given kinds.

    Each operation is tried on representatives of the kinds its operands can have. The answer errs
    on the side of yes.
    """
    seen_nan = False

    def go(node: Expr) -> Kinds:
        nonlocal seen_nan
        if node.op in "ab":
            kinds = a if node.op == "a" else b
        elif node == W:
            kinds = frozenset({"0", "+"})
        elif node.op == "const":
            kinds = kinds_between(node.value, node.value, math.isnan(node.value))
        else:
            choices = [[v for k in go(arg) for v in _KINDS[k]] for arg in node.args]
            if not all(choices):
                return frozenset()
            columns = np.array(list(itertools.product(*choices))).T
            if node.op in BITWISE:
                columns = columns != 0
            with np.errstate(all="ignore"):
                kinds = _kinds_of(np.asarray(_UFUNCS[node.op](*columns), dtype=np.float64))
            if node.op == "neg" or node.op in ARITHMETIC:
                kinds |= {"0"}  # underflow and cancellation
        seen_nan = seen_nan or "nan" in kinds
        return kinds

    go(expr)
    return seen_nan


# --- CUDA C++ ---------------------------------------------------------------------------------


def to_cuda(expr: Expr, scalar: str) -> str:
    """Render ``expr`` as a CUDA C++ expression in ``a`` and ``b`` of type `scalar`.

    Functions are those of the kernels' namespace ``sr``, overloaded there for every scalar type
    and with NumPy's rules (``sr::min`` keeps a NaN, ``sr::floor_div`` rounds down).

    >>> to_cuda(parse("min(a, b + 1)"), "float")
    'sr::min(a, (b + float(1)))'
    """
    if expr.op in ("a", "b", "w"):
        return expr.op
    if expr.op == "const":
        if math.isinf(expr.value):
            return f"{'-' if expr.value < 0 else ''}sr::infinity<{scalar}>()"
        return f"{scalar}({expr.value!r})"
    args = [to_cuda(arg, scalar) for arg in expr.args]
    if expr.op == "if":
        return f"({args[0]} ? {args[1]} : {args[2]})"
    if expr.op == "neg":
        return f"(-{args[0]})"
    if expr.op == "~":
        invert = "!" if expr.args[0].op in COMPARISONS else "~"
        return f"({invert}{args[0]})"
    if expr.op in ("//", "%"):
        return f"sr::{'floor_div' if expr.op == '//' else 'floor_mod'}({args[0]}, {args[1]})"
    if expr.op in ARITHMETIC | BITWISE:
        # a comparison used as a number counts as 0 or 1 of the scalar type
        logical = all(arg.op in COMPARISONS for arg in expr.args)
        if not logical:
            args = [
                f"{scalar}({text})" if node.op in COMPARISONS else text
                for node, text in zip(expr.args, args, strict=True)
            ]
        return f"({args[0]} {expr.op} {args[1]})"
    if expr.op in COMPARISONS:
        return f"({args[0]} {expr.op} {args[1]})"
    return f"sr::{expr.op}({', '.join(args)})"
