"""Products of one engine's arrays: check shapes and dtypes, then call the engine."""

from __future__ import annotations

import ast
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from .engine import JOIN, PLAIN, Engine, Scaling
from .plan import FLOATS, refuse_dtype, scaled_bools
from .semirings import Semiring

__all__ = [
    "check_dtype", "check_inner", "check_out", "common_dtype", "flatten_leading", "join_leading",
    "multiply", "multiply_into", "overlaps", "raised",
]  # fmt: skip

Array = Any  # NumPy or CuPy; results have the operands' library
Shape = tuple[int, ...]


def multiply(
    engine: Engine,
    s: Semiring,
    x: Array,
    y: Array,
    out: Array | None = None,
    return_arg: bool = False,
    head: tuple[Any, ...] | None = None,
) -> Any:
    """:func:`matmul` on arrays of one engine; `head` as of :func:`multiply_into`."""
    xp = engine.xp
    x, y = common_dtype(s, x, y)
    if x.ndim == 0 or y.ndim == 0:
        raise ValueError(
            f"matmul multiplies matrices and vectors, got shapes {x.shape} and {y.shape}; "
            f"use gemm(alpha, ...) to scale"
        )
    left = x[np.newaxis] if x.ndim == 1 else x
    right = y[:, np.newaxis] if y.ndim == 1 else y
    check_inner(x.shape, y.shape)
    batch = join_leading("matmul", (left.shape[:-2], right.shape[:-2]))
    m, n = left.shape[-2], right.shape[-1]
    shape = final = (*batch, m, n)
    dropped = tuple(axis for axis, operand in ((-2, x), (-1, y)) if operand.ndim == 1)
    if dropped:
        final = (*batch, *([m] if x.ndim > 1 else []), *([n] if y.ndim > 1 else []))
    if out is not None:
        check_out(out, final, x.dtype)
    arg = _arg_array(xp, s, return_arg, shape, left.shape[-1])
    direct = out is not None and not overlaps(xp, out, x, y)
    c: Array = out if direct else xp.empty(shape, x.dtype)
    if direct and dropped:
        c = xp.expand_dims(out, dropped)
    multiply_into(engine, s, left, right, c, arg=arg, head=head)
    result = c.reshape(final) if dropped else c
    if out is None:
        result = result if final else result[()]
    else:
        if not direct:
            out[...] = result
        result = out
    if arg is None:
        return result
    index = arg.reshape(final)
    return result, (index if final else index[()])


def raised(base: Array, k: int, product: Callable[[Array, Array], Array]) -> Array:
    """The k-th power of a matrix by squarings; k is at least 1."""
    power: Array | None = None
    while True:
        if k & 1:
            power = base.copy() if power is None else product(power, base)
        k >>= 1
        if not k:
            return power
        base = product(base, base)


def multiply_into(
    engine: Engine,
    s: Semiring,
    a: Array,
    b: Array,
    c: Array,
    scaling: Scaling = PLAIN,
    *,
    arg: Array | None = None,
    precision: str | None = None,
    head: tuple[Any, ...] | None = None,
) -> None:
    """Checked operands of at least two dimensions to the engine, one stack of matrices a call.

    A product on the host is prepared, under the `head` that later ones are looked up by
    (:class:`.engine.Calls`); a plain one has a head if none is given.
    """
    if c.size == 0:
        return
    m, n, k = c.shape[-2], c.shape[-1], a.shape[-1]
    if c.dtype.kind == "b":  # a packed product takes no scalars: they scale an operand before it
        head = head if scaling == PLAIN else None
        if scaling.alpha is not None:
            a = scaled_bools(s, bool(scaling.alpha), a)
        if scaling.beta is not None:
            c[...] = scaled_bools(s, bool(scaling.beta), c)
        scaling = JOIN if scaling.accumulate else PLAIN
    if k == 0:
        if scaling.accumulate:
            _join_zero(engine, s, c, scaling)
        else:
            c[...] = s.identities(c.dtype)[0]
        return
    calls = engine.calls
    if scaling == PLAIN:
        head = head or ("matmul", s, False)
    kept = head is not None and arg is None and engine.HOST
    if c.ndim == 2 and arg is None and (m == 1 or n == 1):
        if n == 1:
            b, c = b[:, 0], c[:, 0]
            if not kept or calls.prepared(head or (), s, a, b, c, scaling) is None:
                engine.gemv(s, a, b, c, scaling)
            return
        if s.commutes or scaling in (PLAIN, JOIN):
            t = s if s.commutes else _swapped(s)
            engine.gemv(t, b.T, a[0], c[0], scaling, scale_x=True)
            return
    if c.ndim == 2:
        if not kept or calls.prepared(head or (), s, a, b, c, scaling) is None:
            engine.product(s, a, b, c, scaling, arg=arg, precision=precision)
        return
    batch, xp = c.shape[:-2], engine.xp
    a, b = xp.broadcast_to(a, (*batch, m, k)), xp.broadcast_to(b, (*batch, k, n))
    arrays = (a, b, c) if arg is None else (a, b, c, arg)
    stacks = [flatten_leading(xp, x, len(batch)) for x in arrays]
    if all(x is not None for x in stacks):
        flat: list[Any] = stacks
        if n == 1 and arg is None and flat[1].strides[0] == 0:  # one vector for the whole stack
            engine.gemv(s, flat[0], flat[1][0, :, 0], flat[2][..., 0], scaling)
            return
        engine.product(
            s, flat[0], flat[1], flat[2], scaling, arg=flat[3] if arg is not None else None,
            precision=precision,
        )  # fmt: skip
        return
    for i in range(batch[0]):
        multiply_into(
            engine, s, a[i], b[i], c[i], scaling, arg=None if arg is None else arg[i],
            precision=precision,
        )  # fmt: skip


def _join_zero(engine: Engine, s: Semiring, c: Array, scaling: Scaling) -> None:
    """C ← zero ⊕ (β ⊗ C): the product over an empty k is zero, as of matrices without entries."""
    if c.ndim > 2:
        for part in c:
            _join_zero(engine, s, part, scaling)
        return
    m, n = c.shape
    none, rows = (engine.xp.zeros(size, np.int32) for size in (0, m + 1))
    b = engine.xp.empty((0, n), c.dtype)
    engine.csr_product(s, none.astype(c.dtype), none, rows, b, c, scaling._replace(alpha=None))


def flatten_leading(xp: Any, x: Array, axes: int) -> Array | None:
    """Join the leading axes into one without a copy; None where strides do not allow it."""
    if axes == 1:
        return x
    moving = [i for i in range(axes) if x.shape[i] != 1]  # an axis of length 1 imposes no stride
    for i, j in itertools.pairwise(moving):
        if x.strides[i] != x.strides[j] * x.shape[j]:
            return None
    count = math.prod(x.shape[:axes])
    step = x.strides[moving[-1]] if moving else 0
    return xp.lib.stride_tricks.as_strided(x, (count, *x.shape[axes:]), (step, *x.strides[axes:]))


@functools.lru_cache(maxsize=256)
def _swapped(s: Semiring) -> Semiring:
    """The semiring with the operands of ⊗ exchanged, to read a product from the other side."""
    tree = ast.parse(s.mul.strip(), mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in ("a", "b"):
            node.id = "b" if node.id == "a" else "a"
    return Semiring(s.name, s.add, ast.unparse(tree), s.zero, s.one, s.domain, s.use)


# --- checks --------------------------------------------------------------------------------------


def common_dtype(s: Semiring, *arrays: Array) -> list[Array]:
    dtype = arrays[0].dtype
    if any(x.dtype is not dtype for x in arrays):
        try:
            dtype = np.result_type(*(x.dtype for x in arrays))
        except TypeError:
            names = " and ".join(str(x.dtype) for x in arrays)
            raise TypeError(f"{s.name}: dtypes {names} have no common dtype; convert one") from None
    dtype = dtype if dtype.isnative else dtype.newbyteorder("=")
    check_dtype(s, dtype)
    return [x if x.dtype is dtype else x.astype(dtype, copy=False) for x in arrays]


@functools.lru_cache(maxsize=1024)
def check_dtype(s: Semiring, dtype: np.dtype[Any]) -> None:
    if dtype.name not in FLOATS and dtype.kind not in "iub":
        refuse_dtype(s, dtype)
    if dtype.kind != "b":
        s.identities(dtype)


def join_leading(
    verb: str, leading: Iterable[Shape], join: Callable[..., Shape] = np.broadcast_shapes
) -> Shape:
    """Broadcast the leading dimensions of operands, by a library's function."""
    shapes = [tuple(shape) for shape in leading]
    if not any(shapes):
        return ()
    longest = max(shapes, key=len)
    if all(not shape or shape == longest for shape in shapes):
        return longest
    try:
        return tuple(join(*shapes))
    except (RuntimeError, ValueError):
        text = ", ".join(map(str, shapes))
        raise ValueError(f"{verb}: the leading dimensions {text} do not broadcast") from None


def check_inner(a: Shape, b: Shape) -> None:
    """Refuse shapes of a product's operands of at least one axis whose k differ."""
    k, other = a[-1], b[-2 if len(b) > 1 else 0]
    if k != other:
        raise ValueError(
            f"matmul: a of shape {tuple(a)} has k = {k}, but b of shape {tuple(b)} has "
            f"k = {other}: the last axis of a must match the "
            f"{'only' if len(b) == 1 else 'second last'} axis of b"
        )


def check_out(out: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if out.shape != shape or out.dtype != dtype:
        raise ValueError(
            f"out has shape {out.shape} and dtype {out.dtype}, the result has shape {shape} and "
            f"dtype {dtype}"
        )
    if not getattr(out.flags, "writeable", True):
        raise ValueError("out is read-only")
    shared = (n > 1 and not step for n, step in zip(out.shape, out.strides, strict=True))
    if out.size and any(shared):
        raise ValueError("out is a broadcast view whose entries share memory")


def overlaps(xp: Any, out: Array, *others: Array) -> bool:
    return any(xp.may_share_memory(out, x) for x in others)


def _arg_array(xp: Any, s: Semiring, wanted: bool, shape: Sequence[int], k: int) -> Array | None:
    if not wanted:
        return None
    if not s.selective:
        raise ValueError(
            f"return_arg needs a semiring whose ⊕ chooses one of its operands (min or max); "
            f"{s.name} has ⊕ = {s.add}"
        )
    if k == 0:
        raise ValueError("return_arg: over an empty k no index attains the result")
    if k >= 1 << 31:
        raise ValueError(f"return_arg: k = {k} exceeds the int32 range of the indices")
    return xp.empty(shape, np.int32)
