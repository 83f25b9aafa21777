"""Check the semiring laws on samples, and name the first that fails."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from .expressions import evaluate

if TYPE_CHECKING:
    from .semirings import Semiring

__all__ = ["SemiringLawError", "check_laws"]


class SemiringLawError(ValueError):
    """A law that does not hold, with a counter-example.

    Attributes
    ----------
    law : str
        ``"⊕ is associative"``, ``"⊗ distributes over ⊕ from the left"``, ...
    values : tuple
        The a, b, c for which the two sides differ (a and b where a result is not a bool).
    """

    __module__ = "semiring_mm"  # where users import it from

    def __init__(self, message: str, law: str, values: tuple[Any, ...]) -> None:
        super().__init__(message)
        self.law = law
        self.values = values

    def __reduce__(self) -> tuple[Any, ...]:
        return SemiringLawError, (str(self), self.law, self.values)


#: Small numbers, so that sums and products of three are exact in every dtype.
_SAMPLES = {
    "any": [-3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0],
    "nonnegative": [0.0, 0.25, 0.5, 1.0, 2.0, 3.0],
    "positive": [0.25, 0.5, 1.0, 2.0, 3.0],
    "binary": [0.0, 1.0],
}
_INEXACT = {"exp", "log", "log1p", "expm1", "sqrt", "logaddexp", "/"}


def check_laws(
    semiring: Semiring,
    dtype: Any,
    domain: str,
    samples: Iterable[float] | None,
    only: tuple[str, ...] = ("",),
) -> None:
    """Raise :class:`SemiringLawError` at the first law that fails on the samples.

    `only`: prefixes of the names of the laws to test; the empty prefix is all of them.
    """
    dtype = np.dtype(dtype)
    if domain not in _SAMPLES:
        raise ValueError(f"domain is one of {', '.join(_SAMPLES)}, got {domain!r}")
    zero, one = semiring.identities(dtype)
    chosen = np.array(list(_SAMPLES[domain] if samples is None else samples), dtype=np.float64)
    # Integers are tested in float64 with identities at ±inf. The engines compute the same
    # numbers, because a product that leaves the dtype raises and never wraps.
    if dtype.kind in "iu":
        chosen = chosen[chosen == np.floor(chosen)]
        if dtype.kind == "u":
            chosen = chosen[chosen >= 0]
    elif dtype.kind == "b":
        chosen = chosen[(chosen == 0) | (chosen == 1)]
    constants = [zero, one] if dtype.kind == "b" else [semiring.zero, semiring.one]
    work = dtype if dtype.kind in "fb" else np.dtype(np.float64)
    bitwise = {"&", "|", "^", "~"} & (semiring.add_expr.ops() | semiring.mul_expr.ops())
    if bitwise and dtype.kind in "iu":
        work, constants = dtype, [zero, one]
    values = np.unique(np.append(chosen.astype(work), np.array(constants, dtype=work)))

    def apply(sign: str, x: Any, y: Any) -> Any:
        expr = semiring.add_expr if sign == "⊕" else semiring.mul_expr
        try:
            result = np.asarray(evaluate(expr, x, y))
        except TypeError:
            raise TypeError(
                f"{semiring.name} on {dtype}: {sign} is "
                f"{semiring.add if sign == '⊕' else semiring.mul}, which has no {work} form"
            ) from None
        outside = (result != 0) & (result != 1)
        if work.kind == "b" and outside.any():
            x, y, result = (np.broadcast_to(v, outside.shape)[outside][0] for v in (x, y, result))
            raise SemiringLawError(
                f"{semiring.name} on bool: {x:g} {sign} {y:g} = {result:g} is not a bool",
                f"bool is closed under {sign}",
                (x.item(), y.item()),
            )
        return result.astype(work)

    def add(x: Any, y: Any) -> Any:
        return apply("⊕", x, y)

    def mul(x: Any, y: Any) -> Any:
        return apply("⊗", x, y)

    zero, one = (np.array(c, dtype=work)[()] for c in constants)
    laws: list[tuple[str, str, Callable[..., Any], Callable[..., Any]]] = [
        ("⊕ is commutative", "a ⊕ b = b ⊕ a",
         lambda a, b, c: add(a, b), lambda a, b, c: add(b, a)),
        ("zero is the identity of ⊕", "a ⊕ zero = a",
         lambda a, b, c: add(a, zero), lambda a, b, c: a),
        ("one is the identity of ⊗ from the right", "a ⊗ one = a",
         lambda a, b, c: mul(a, one), lambda a, b, c: a),
        ("one is the identity of ⊗ from the left", "one ⊗ a = a",
         lambda a, b, c: mul(one, a), lambda a, b, c: a),
        ("zero annihilates from the right", "a ⊗ zero = zero",
         lambda a, b, c: mul(a, zero), lambda a, b, c: zero),
        ("zero annihilates from the left", "zero ⊗ a = zero",
         lambda a, b, c: mul(zero, a), lambda a, b, c: zero),
        ("⊕ is associative", "(a ⊕ b) ⊕ c = a ⊕ (b ⊕ c)",
         lambda a, b, c: add(add(a, b), c), lambda a, b, c: add(a, add(b, c))),
        ("⊗ is associative", "(a ⊗ b) ⊗ c = a ⊗ (b ⊗ c)",
         lambda a, b, c: mul(mul(a, b), c), lambda a, b, c: mul(a, mul(b, c))),
        ("⊗ distributes over ⊕ from the left", "a ⊗ (b ⊕ c) = (a ⊗ b) ⊕ (a ⊗ c)",
         lambda a, b, c: mul(a, add(b, c)), lambda a, b, c: add(mul(a, b), mul(a, c))),
        ("⊗ distributes over ⊕ from the right", "(a ⊕ b) ⊗ c = (a ⊗ c) ⊕ (b ⊗ c)",
         lambda a, b, c: mul(add(a, b), c), lambda a, b, c: add(mul(a, c), mul(b, c))),
    ]  # fmt: skip
    a, b, c = np.meshgrid(values, values, values, indexing="ij")
    for law, formula, left, right in laws:
        if not law.startswith(only):
            continue
        x, y = (np.broadcast_to(side(a, b, c), a.shape) for side in (left, right))
        wrong = ~_agree(x, y, semiring)
        # ∞ − ∞ is undefined: a NaN that an infinite operand causes breaks no law
        infinite = np.isinf(a.astype(np.float64)) | np.isinf(b.astype(np.float64))
        infinite |= np.isinf(c.astype(np.float64))
        undefined = np.isnan(np.asarray(x, dtype=np.float64)) & infinite
        undefined |= np.isnan(np.asarray(y, dtype=np.float64)) & infinite
        if "annihilates" not in law:
            wrong &= ~undefined
        else:  # no semiring over ±inf defines the opposite infinity times zero
            opposite = np.isinf(a.astype(np.float64)) & (a != zero) & math.isinf(float(zero))
            wrong &= ~opposite
        if wrong.any():
            i = tuple(np.argwhere(wrong)[0])
            triple = tuple(v[i].item() for v in (a, b, c))
            raise SemiringLawError(
                f"{semiring.name} on {dtype}: {law} fails: {formula} at a = {triple[0]:g}, "
                f"b = {triple[1]:g}, c = {triple[2]:g} gives {x[i]:g} and {y[i]:g} "
                f"(⊕ is {semiring.add}, ⊗ is {semiring.mul}, zero {semiring.zero:g}, "
                f"one {semiring.one:g})",
                law,
                triple,
            )


def _agree(x: Any, y: Any, semiring: Semiring) -> Any:
    if x.dtype.kind == "f" and _INEXACT & (semiring.add_expr.ops() | semiring.mul_expr.ops()):
        eps = float(np.finfo(x.dtype).eps)
        return np.isclose(x, y, rtol=16 * eps, atol=16 * eps)
    return x == y
