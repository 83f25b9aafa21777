"""Derivatives of products and closures, written once for all libraries that differentiate.

A product's entry is c = ⊕_k (a_k ⊗ b_k). How c answers to one a_k is the share that ⊕ gives to
that k, times the derivative of ⊗, which is taken from its expression:

==============  =========================================================================
⊕               share of k
==============  =========================================================================
min, max        1 for the k that attained c (the smallest on ties), 0 for all others
a + b           1
logaddexp       exp(a_k ⊗ b_k - c), and 0 where c is -inf
==============  =========================================================================

Of other ⊕ nothing is known. :func:`selective` and :func:`bilinear` are written in the functions of
the library itself, which can differentiate them again; :func:`summed` and :func:`along_trees` run
on the engines, where the arrays live.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .arrays import Call, repeat
from .engine import Engine
from .expressions import A, B, Expr, derivative
from .products import flatten_leading, multiply
from .semirings import Semiring, semirings
from .verb import Library

__all__ = [
    "along_trees",
    "bilinear",
    "factors",
    "is_log_plus",
    "log_shares",
    "reads",
    "scaled",
    "selective",
    "small",
    "summed",
    "value_of",
    "way",
]  # fmt: skip

Array = Any  # of any array library
Pair = tuple[Array, Array]  # gradients of both operands; None where not needed
Shapes = tuple[Sequence[int], Sequence[int]]  # the shapes of both operands
Needs = tuple[bool, bool]  # which operands need a gradient

_ENTRIES = 1 << 20  # entries of a temporary array, at most


def way(s: Semiring) -> str:
    """Return which function computes a product's gradients: "selective", "bilinear" or "summed".

    Raises
    ------
    NotImplementedError
        If ⊕ is none of those whose shares are known.
    """
    if s.selective:
        return "selective"
    if s.add_kind == "+":
        return "bilinear" if s.mul_kind == "*" else "summed"
    if s.add_expr.op == "logaddexp" and set(s.add_expr.args) == {A, B}:
        return "summed"
    raise NotImplementedError(
        f"no gradient is known for {s.name}, whose ⊕ is {s.add}: there is one for min(a, b), "
        f"max(a, b), a + b and logaddexp(a, b); leave the operands out of it by a.detach() in "
        f"PyTorch, jax.lax.stop_gradient(a) in JAX"
    )


@functools.lru_cache(maxsize=256)
def factors(s: Semiring) -> tuple[Expr, Expr]:
    """The derivatives of ⊗ with respect to its two operands."""
    return derivative(s.mul_expr, "a"), derivative(s.mul_expr, "b")


@functools.lru_cache(maxsize=256)
def reads(s: Semiring, needs: Needs) -> frozenset[str]:
    """Return the arrays that the gradients need, of "a", "b", the product "c" and "arg"."""
    kind = way(s)
    if kind == "summed":
        return frozenset({"a", "b", "c"})
    names = {"arg"} if kind == "selective" else set()
    for factor, need in zip(factors(s), needs, strict=True):
        names |= factor.ops() & {"a", "b"} if need else set()
    return frozenset(names)


# --- in the library's own functions ---------------------------------------------------------------


def selective(
    library: Library,
    s: Semiring,
    g: Array,
    arg: Array,
    a: Array,
    b: Array,
    shapes: Shapes,
    needs: Needs,
) -> Pair:
    """Gradients of a product with a selective ⊕: an entry's goes to the k that attained it.

    `g` is what came to the product, `arg` the k that won; `a` and `b` are the operands, where
    :func:`reads` names them, `shapes` theirs, and `needs` says which gradients are wanted.
    """
    rank = len(g.shape)
    winners = [
        None if x is None
        else library.take(x.reshape((1,) * (rank - len(x.shape)) + tuple(x.shape)), arg, axis)
        for x, axis in ((a, -1), (b, -2))
    ]  # fmt: skip
    results: list[Array] = []
    for factor, shape, axis, need in zip(factors(s), shapes, (-1, -2), needs, strict=True):
        if not need:
            results.append(None)
            continue
        part = g if factor.value == 1 else g * value_of(library.xp, factor, *winners)
        whole = (*g.shape[:-2], *shape[-2:])
        results.append(library.add_at(whole, axis, arg, part))
    return results[0], results[1]


def bilinear(library: Library, g: Array, a: Array, b: Array, needs: Needs) -> Pair:
    """The gradients of a product over plus_times, two more such products."""

    def product(x: Array, y: Array) -> Array:
        return library.run("product", x, y, "plus_times", False)[0]

    return (
        product(g, b.mT) if needs[0] else None,
        product(a.mT, g) if needs[1] else None,
    )


_OPERATORS: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod, "&": operator.and_, "|": operator.or_,
    "^": operator.xor, "~": operator.invert, "neg": operator.neg, "abs": operator.abs,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_ARITHMETIC = {"+", "-", "*", "/", "//", "%", "neg", "abs"}


def value_of(xp: Any, expr: Expr, a: Array, b: Array) -> Any:
    """Evaluate `expr` by a library's own differentiable functions; see `evaluate`."""
    if expr.op in ("a", "b"):
        return a if expr.op == "a" else b
    if expr.op == "const":
        return expr.value
    args = [value_of(xp, arg, a, b) for arg in expr.args]
    if expr.op == "if":
        return xp.where(*args)
    if expr.op in _ARITHMETIC:  # a comparison counts as 0 or 1
        args = [xp.where(x, 1, 0) if "bool" in str(getattr(x, "dtype", "")) else x for x in args]
    if expr.op in _OPERATORS:
        return _OPERATORS[expr.op](*args)
    like = b if a is None else a
    args = [x if hasattr(x, "dtype") else xp.full_like(like, x) for x in args]
    return getattr(xp, {"min": "minimum", "max": "maximum"}.get(expr.op, expr.op))(*args)


def scaled(xp: Any, x: Array, factor: Expr, a: Array, b: Array) -> Array:
    """A gradient or a share times a derivative; 0 where it is 0, whatever the derivative is."""
    return x if factor.value == 1 else xp.where(x == 0, 0, x * value_of(xp, factor, a, b))


# --- on the engines -------------------------------------------------------------------------------


def summed(s: Semiring, g: Array, a: Array, b: Array, c: Array, needs: Needs) -> Pair:
    """Gradients of a product whose ⊕ is a + b or logaddexp: every k contributes.

    `g` is what came to the product, `c` the product, and `needs` says which gradients are wanted.
    They have the leading dimensions of the product, and are None where they are not wanted.

    Over log_plus they are log_plus products themselves: Σ_j g_ij exp(a_ik + b_kj - c_ij) is
    exp(a_ik + l_ik), where l is the product of log g - c with b transposed. No exponent is ever
    above that of the gradient itself, so nothing overflows, and small shares are lost only where
    they are small in the result; the positive and the negative part of g are taken by themselves.
    On a device small ones are summed term by term, in one launch. With another ⊗, O(m·n·k) values
    of it in parts of some megabytes.
    """
    few = is_log_plus(s) and small(g, a, b, c)
    alone = a.shape[:-2] == b.shape[:-2] == c.shape[:-2]  # nothing is broadcast
    head = ("log_shares", *needs) if few and alone else None
    found = None if head is None else repeat(head, (a, b, c, g))
    if found is None:
        with Call(a=a, b=b, c=c, g=g, head=head) as call:
            parts = zip(_shares(s, call, needs, few), needs, strict=True)
            results = [x.astype(call["a"].dtype, copy=False) for x, need in parts if need]
            found = call.give(tuple(results) if all(needs) else results[0])
    there = iter(found if all(needs) else (found,))
    left, right = (next(there) if need else None for need in needs)
    return left, right


def _shares(s: Semiring, call: Call, needs: Needs, few: bool) -> Pair:
    """:func:`summed` of a call's arrays."""
    g, a, b, c = (call[name] for name in "gabc")
    if few and call.engine.log_shares is not None:
        return _at_once(call.engine, call.engine.log_shares, g, a, b, c, needs)
    if a.dtype.itemsize < 4:  # recompute c: its rounding would scale every contribution
        g, a, b = (x.astype(np.float32) for x in (g, a, b))
        c = multiply(call.engine, s, a, b)
    with np.errstate(all="ignore"):
        if is_log_plus(s):
            times = functools.partial(multiply, call.engine, s)
            return log_shares(call.engine.xp, times, g, a, b, c, needs)
        return _any_shares(call.engine, s, g, a, b, c, needs)


_LOG = semirings["log_plus"]
#: Up to so many terms, of 4 and of 8 bytes, one launch takes less time than products and the like.
_TERMS = {4: 1 << 28, 8: 1 << 26}


def small(g: Array, a: Array, b: Array, c: Array) -> bool:
    """Whether :attr:`.engine.Engine.log_shares` serves, where an engine has it."""
    same = bool(a.dtype == b.dtype == c.dtype == g.dtype)
    return same and 0 < math.prod(c.shape) * a.shape[-1] <= _TERMS.get(a.dtype.itemsize, 0)


def _at_once(
    engine: Engine, shares: Callable[..., None], g: Array, a: Array, b: Array, c: Array,
    needs: Needs,
) -> Pair:  # fmt: skip
    """:func:`log_shares` by the engine's verb, of stacks of matrices."""
    xp, batch = engine.xp, c.shape[:-2]
    found = [
        xp.empty((*batch, *x.shape[-2:]), x.dtype) if need else None
        for x, need in zip((a, b), needs, strict=True)
    ]
    stacks: list[Array] = []
    for x in (g, a, b, c, *found):
        if x is None:
            stacks.append(None)
            continue
        whole = xp.broadcast_to(x, (*batch, *x.shape[-2:])) if x.shape[:-2] != batch else x
        flat = flatten_leading(xp, whole, len(batch))
        if flat is None:
            flat = xp.ascontiguousarray(whole).reshape(-1, *x.shape[-2:])
        stacks.append(flat)
    shares(*stacks)
    return found[0], found[1]


def is_log_plus(s: Semiring) -> bool:
    """Whether a semiring has the operations of log_plus."""
    return (s.add, s.mul) == (_LOG.add, _LOG.mul)


def log_shares(
    xp: Any, times: Callable[[Array, Array], Array], g: Array, a: Array, b: Array, c: Array,
    needs: Needs,
) -> Pair:  # fmt: skip
    """:func:`summed` over log_plus, by the functions `xp` of a library and its products."""
    rows, cols = _largest(xp, a, -1), _largest(xp, b, -2)
    # contributions are unchanged by a common shift, and smaller numbers round less
    a, b, c = a - rows, b - cols, c - rows - cols
    parts = {1: xp.clip(g, 0, None), -1: xp.clip(-g, 0, None)}
    if xp is np:  # on a device the test would synchronise
        parts = {sign: part for sign, part in parts.items() if part.any()} or {1: parts[1]}
    # one batched product: for small matrices launches dominate
    weight = xp.log(xp.stack(list(parts.values()))) - c
    weight = xp.where(c == -math.inf, -math.inf, weight)  # no k contributes to an empty sum

    def joined(x: Array) -> Array:
        return x[0] - x[1] if len(x) == 2 else x[0] * next(iter(parts))

    left = right = None
    if needs[0]:
        left = joined(xp.exp(a + times(weight, b.swapaxes(-1, -2))))
    if needs[1]:
        right = joined(xp.exp(b + times(a.swapaxes(-1, -2), weight)))
    return left, right


def _largest(xp: Any, x: Array, axis: int) -> Array:
    """The largest entry along an axis, 0 where that is infinite."""
    if 0 in x.shape:
        return 0
    return xp.nan_to_num(xp.amax(x, axis, keepdims=True), nan=0, posinf=0, neginf=0)


def _any_shares(
    engine: Engine, s: Semiring, g: Array, a: Array, b: Array, c: Array, needs: Needs
) -> Pair:
    xp, k = engine.xp, a.shape[-1]
    da, db = factors(s)
    left = xp.empty((*c.shape[:-1], k), g.dtype)
    right = xp.empty((*c.shape[:-2], k, c.shape[-1]), g.dtype)
    step = max(1, _ENTRIES // max(1, c.size))
    for first in range(0, k, step):
        part = slice(first, first + step)
        x = a[..., :, part, np.newaxis]  # (m, step, 1)
        y = b[..., np.newaxis, part, :]  # (1, step, n)
        share = g[..., :, np.newaxis, :]  # (m, 1, n)
        if s.add_kind != "+":
            over = c[..., :, np.newaxis, :]
            weight = xp.exp(value_of(xp, s.mul_expr, x, y) - over)
            share = share * xp.where(over == -math.inf, 0, weight)
        if needs[0]:
            left[..., :, part] = xp.sum(share * value_of(xp, da, x, y), -1)
        if needs[1]:
            right[..., part, :] = xp.sum(share * value_of(xp, db, x, y), -3)
    return left, right


def along_trees(s: Semiring, g: Array, d: Array | None, w: Array | None, p: Array) -> Array:
    """The gradient of a closure with respect to the matrix: along the best paths.

    An entry is d[i, j] = d[i, h] ⊗ w[h, j] with the predecessor h = p[i, j]. What came to d[i, j]
    and to all nodes behind it goes to w[h, j] and on to d[i, h], each time by the derivative of ⊗,
    where ⊕ is min or max. Entries of `g`, (..., rows, n), where no path leads are not read; `d` and
    `w` are the closure and the matrix, where :func:`reads` names them as "a" and "b". The result,
    (..., n, n), is in the dtype of `g`, and 0 where no best path of a tree uses an edge.

    By pointer jumping (Wyllie, 1979): after t rounds a node has the sums of all that is fewer than
    2^t edges behind it. O(rows·n) a round, and as many rounds as the logarithm of the most edges
    that a path has; sums are in float64.
    """
    with Call(g=g, d=d, w=w, p=p) as call:
        xp, n = call.engine.xp, call["p"].shape[-1]
        given = {name: call[name] for name in "gdwp" if call[name] is not None}
        batch = np.broadcast_shapes(*(x.shape[:-2] for x in given.values()))
        stack = dict.fromkeys("gdwp") | {
            name: xp.broadcast_to(x, (*batch, *x.shape[-2:])).reshape(-1, *x.shape[-2:])
            for name, x in given.items()
        }
        out = xp.empty((math.prod(batch), n, n), call["g"].dtype)
        for i in range(len(out)):
            one = {name: None if x is None else x[i] for name, x in stack.items()}
            with np.errstate(all="ignore"):  # infinite factors where there is no path
                _along_trees(xp, s, out=out[i], **one)
        return call.give(out.reshape(*batch, n, n))


def _along_trees(
    xp: Any, s: Semiring, g: Array, d: Array | None, w: Array | None, p: Array, out: Array
) -> None:
    rows, n = p.shape
    onward, own = factors(s)
    column = xp.arange(n)

    def factor(expr: Expr, top: slice, cols: slice, before: Array) -> Array:
        x = None if d is None else xp.take_along_axis(d[top], before, 1)
        y = None if w is None else w[before, column[cols]]
        return value_of(xp, expr, x, y)

    through = xp.empty((rows, n))  # gradient of a node plus that of its subtree
    height = max(1, _ENTRIES // max(1, n))
    for first in range(0, rows, height):
        top = slice(first, first + height)
        there = p[top] >= 0
        before = xp.where(there, p[top], 0).astype(np.int64)
        sums = xp.where(there, g[top], 0).astype(np.float64)
        passed = xp.where(there, factor(onward, top, slice(None), before), 0).astype(np.float64)
        target = before + n * xp.arange(len(sums))[:, np.newaxis]
        for _ in range(n.bit_length()):
            if not passed.any():
                break
            sums += _add_at(xp, target, passed * sums)
            passed *= passed.ravel()[target]
            target = target.ravel()[target]
        if onward.value == 1 and passed.any():  # more edges behind a node than there are nodes
            raise RuntimeError("these predecessors are no trees: a gradient follows best paths")
        through[top] = sums
    width = max(1, _ENTRIES // max(1, rows, n))
    for first in range(0, n, width):
        cols = slice(first, first + width)
        there = p[:, cols] >= 0
        before = xp.where(there, p[:, cols], 0).astype(np.int64)
        values = through[:, cols] * factor(own, slice(None), cols, before)
        target = before * there.shape[1] + xp.arange(there.shape[1])
        out[:, cols] = _add_at(xp, target, xp.where(there, values, 0), n)


def _add_at(xp: Any, target: Array, values: Array, rows: int | None = None) -> Array:
    """A matrix of zeros to which values are added at flat positions."""
    shape = (values.shape[0] if rows is None else rows, values.shape[1])
    return xp.bincount(target.ravel(), values.ravel(), math.prod(shape)).reshape(shape)
