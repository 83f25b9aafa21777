"""Chains of products, see :mod:`semiring_mm.jax`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .. import chain_gradients, chains
from ..semirings import Semiring, as_semiring, semirings
from .operators import Functions, run

__all__ = ["ChainFunctions", "chain", "scan"]

Array = Any


def chain(
    a: Array,
    x: Array | None = None,
    semiring: str | Semiring = "plus_times",
    *,
    emissions: Array | None = None,
    lengths: Any = None,
    reverse: bool = False,
) -> Array:
    """The product of a chain of matrices, or a vector carried through it, with gradients.

    Parameters
    ----------
    a, x, semiring, emissions, lengths, reverse
        As for :func:`semiring_mm.chain`; arrays on one device.

    Returns
    -------
    Array, shape (..., S) with `x`, else (..., S, S)

    Raises
    ------
    NotImplementedError
        As :func:`semiring_mm.jax.matmul`, and :func:`semiring_mm.chain`.
    TypeError, ValueError, OverflowError
        As :func:`semiring_mm.chain`.

    Notes
    -----
    Gradients of all orders, by the shares of :func:`semiring_mm.jax.matmul`; over ⊕ = min or max
    they go along the best sequence of states. The first derivative is a chain over plus_times of
    the steps' Jacobian matrices: O(T S²) memory for a carried vector, O(T S³) without. For the sum
    over all sequences of a model with emissions, :func:`semiring_mm.jax.sequences.log_partition`
    needs no such memory.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from semiring_mm.jax import chain
    >>> steps = jnp.array([[[2.0, 0.0], [1.0, 3.0]]] * 3)
    >>> longest = jax.grad(lambda a: chain(a, jnp.zeros(2), "max_plus")[1])
    >>> longest(steps)[:, 1, 1].tolist()  # the longest way stays at 1
    [1.0, 1.0, 1.0]
    """
    return _call("chain", a, semiring, x, emissions, lengths, reverse, False, -3)


def scan(
    a: Array,
    semiring: str | Semiring = "plus_times",
    *,
    x: Array | None = None,
    emissions: Array | None = None,
    axis: int = -3,
    lengths: Any = None,
    reverse: bool = False,
) -> Array:
    """All prefixes of a chain of matrices, or what they make of a vector, with gradients.

    Parameters
    ----------
    a, semiring, x, emissions, axis, lengths, reverse
        As for :func:`semiring_mm.scan`; arrays on one device.

    Returns
    -------
    Array, shape (..., T, S) with `x`, else (..., T, S, S)

    Raises
    ------
    NotImplementedError, TypeError, ValueError, OverflowError
        As :func:`chain`, whose notes are of this function too.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from semiring_mm.jax import scan
    >>> a = jnp.array([[[2.0]], [[3.0]], [[5.0]]])
    >>> jax.grad(lambda a: scan(a).sum())(a).ravel().tolist()  # of 2 + 2 · 3 + 2 · 3 · 5
    [19.0, 12.0, 6.0]
    """
    return _call("scan", a, semiring, x, emissions, lengths, reverse, True, axis)


def _call(
    verb: str, a: Array, semiring: Any, x: Array | None, e: Array | None, lengths: Any,
    reverse: bool, every: bool, axis: int,
) -> Array:  # fmt: skip
    if isinstance(x, (str, Semiring)):
        raise TypeError(f"{verb}: x is a vector, got {x!r}: write {verb}(a, semiring={x!r})")
    a, x, e, lengths = (None if v is None else jnp.asarray(v) for v in (a, x, e, lengths))
    dtype = jnp.result_type(*(v for v in (a, x, e) if v is not None))
    work = jnp.float32 if dtype in (jnp.float16, jnp.bfloat16) else dtype
    a, x, e = (None if v is None else v.astype(work) for v in (a, x, e))
    a = a[None] if e is not None and a.ndim == 2 else a
    axis = chains.axis_of_steps(verb, a.ndim, axis) if a.ndim > 2 else -3
    a = jnp.moveaxis(a, axis, -3) if axis != -3 else a
    shapes = (None if v is None else v.shape for v in (a, e, x, lengths))
    batch, _ = chains.batch_of_chain(verb, shapes)
    found = _chain(
        as_semiring(semiring), reverse, every, jnp.broadcast_to(a, (*batch, *a.shape[-3:])),
        None if e is None else jnp.broadcast_to(e, (*batch, *e.shape[-2:])),
        None if x is None else jnp.broadcast_to(x, (*batch, *x.shape[-1:])),
        None if lengths is None else jnp.broadcast_to(lengths, batch),
    ).astype(dtype)  # fmt: skip
    return jnp.moveaxis(found, -3, axis) if every and x is None and axis != -3 else found


# --- the operator ---------------------------------------------------------------------------------


def _compute(
    s: Semiring, reverse: bool, every: bool, a: Array, e: Array | None, x: Array | None,
    lengths: Array | None,
) -> Array:  # fmt: skip
    names = [n for n, v in zip("aexl", (a, e, x, lengths), strict=True) if v is not None]

    def carried(*arrays: Array) -> tuple[Array]:
        v = dict(zip(names, arrays, strict=True))
        more: dict[str, Any] = {"emissions": v.get("e"), "lengths": v.get("l"), "reverse": reverse}
        if every:
            return (chains.scan(v["a"], s, x=v.get("x"), **more),)
        return (chains.chain(v["a"], v.get("x"), s, **more),)

    steps = a.shape[-3] if e is None else e.shape[-2]
    rows = a.shape[-2:] if x is None else a.shape[-1:]
    result = jax.ShapeDtypeStruct((*a.shape[:-3], *((steps,) if every else ()), *rows), a.dtype)
    return run(carried, [result], *(v for v in (a, e, x, lengths) if v is not None))[0]


def _forward(s: Semiring, reverse: bool, every: bool, *operands: Array | None) -> tuple[Any, Any]:
    y = _chain(s, reverse, every, *operands)
    return y, (*operands, y if every else None)


def _backward(s: Semiring, reverse: bool, _: bool, kept: Any, g: Array) -> tuple[Any, ...]:
    found = chain_gradients.along_chain(LIBRARY, s, g, *kept, reverse=reverse)
    return *found, None


_chain = jax.custom_vjp(_compute, nondiff_argnums=(0, 1, 2))
_chain.defvjp(_forward, _backward)


class ChainFunctions(Functions):
    """Also those for :mod:`semiring_mm.chain_gradients`, but posterior probabilities."""

    @staticmethod
    def count(n: int, like: Array) -> Array:
        return jnp.arange(n)

    @staticmethod
    def scan(a: Array, x: Array, reverse: bool) -> Array:
        given = jnp.broadcast_to(x, (*a.shape[:-3], x.shape[-1]))
        return _chain(semirings["plus_times"], reverse, True, a, None, given, None)

    @staticmethod
    def prefixes(
        s: Semiring, a: Array, e: Array | None, x: Array | None, lengths: Array | None,
        reverse: bool,
    ) -> Array:  # fmt: skip
        return _chain(s, reverse, True, a, e, x, lengths)


LIBRARY = ChainFunctions()
