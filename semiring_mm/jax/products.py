"""Products and closures, see :mod:`semiring_mm.jax`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from .. import blas, gradients
from ..graphs import apsp as graphs
from ..semirings import Semiring, as_semiring, semirings
from .operators import Functions, once, run

__all__ = ["apsp", "closure", "matmul"]

Array = Any


def matmul(
    a: Array, b: Array, semiring: str | Semiring = "plus_times", *, return_arg: bool = False
) -> Any:
    """Matrix product over a semiring, with gradients.

    Parameters
    ----------
    a : array, shape (..., m, k) or (k,)
    b : array, shape (..., k, n) or (k,)
        Leading dimensions broadcast, and 1-D arrays are treated, as in :func:`jax.numpy.matmul`.
    semiring : str or Semiring, default "plus_times"
        A name from :data:`semiring_mm.semirings` or your own.
    return_arg : bool, default False
        Also return, for a semiring whose ⊕ is min or max, the k that attained each entry.

    Returns
    -------
    c : array, shape (..., m, n)
        Of the dtype that JAX promotes the operands to.
    arg : array of int32, shape (..., m, n)
        Only with `return_arg`. The smallest k on ties.

    Raises
    ------
    NotImplementedError
        Inside ``jit`` or ``vmap`` for any device but the CPU; and when a gradient is wanted and ⊕
        is not min, max, a + b or logaddexp.

    Notes
    -----
    On arrays that are not traced, it runs where they live. On traced ones it is a call back to the
    host (:func:`jax.pure_callback`), which on the CPU costs the operands' copies and no more; from
    another device they would be taken to the host and back without a word, so that is an error.

    Gradients are those of :func:`semiring_mm.torch.matmul`, in reverse mode: by the k that attained
    an entry where ⊕ is min or max, in full over plus_times and log_plus, by the derivative of ⊗ as
    an expression. Second derivatives (``jax.grad`` of ``jax.grad``) where ⊕ is min or max and over
    plus_times. An error of the product is JAX's inside ``jit``, with the same words in it.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from semiring_mm.jax import matmul
    >>> jax.grad(lambda a: matmul(a, jnp.zeros(2), "log_plus"))(jnp.array([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """
    s = as_semiring(semiring)
    a, b = jnp.asarray(a), jnp.asarray(b)
    if not (a.ndim and b.ndim) or a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
        raise ValueError(
            f"matmul multiplies matrices and vectors of one k, got shapes {a.shape} and {b.shape}: "
            f"the last axis of a must match the second last (or only) one of b"
        )
    dtype, rank = jnp.promote_types(a.dtype, b.dtype), max(a.ndim, b.ndim, 2)
    left = a[None] if a.ndim == 1 else a
    right = b[:, None] if b.ndim == 1 else b
    left, right = (x.astype(dtype).reshape((1,) * (rank - x.ndim) + x.shape) for x in (left, right))
    results = _product(s, return_arg, left, right)
    dropped = tuple(axis for axis, x in ((-2, a), (-1, b)) if x.ndim == 1)
    c, arg = (None if x is None else jnp.squeeze(x, dropped) for x in results)
    return (c, arg) if return_arg else c


def closure(a: Array, semiring: str | Semiring, *, return_predecessors: bool = False) -> Any:
    """The closure of a matrix: the best path between every two nodes, with gradients.

    Parameters
    ----------
    a : array, shape (n, n) or (b, n, n)
        The semiring's zero means no edge.
    semiring : str or Semiring
        With an idempotent ⊕.
    return_predecessors : bool, default False

    Returns
    -------
    closure : array, shape (n, n) or (b, n, n)
    predecessors : array of int32
        Only with `return_predecessors`; see :func:`semiring_mm.closure`.

    Notes
    -----
    Runs where :func:`matmul` does. An entry's gradient goes along its best path, as described for
    :func:`semiring_mm.torch.closure`; there are no second derivatives.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from semiring_mm.jax import closure
    >>> width = jnp.array([[0.0, 5, 1], [0, 0, 3], [0, 0, 0]])
    >>> jax.grad(lambda w: closure(w, "max_min")[0, 2])(width).tolist()
    [[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    """
    distances, predecessors = _closure(
        as_semiring(semiring), None, return_predecessors, jnp.asarray(a)
    )
    return (distances, predecessors) if return_predecessors else distances


def apsp(
    graph: Array, *, sources: Sequence[int] | None = None, return_predecessors: bool = False
) -> Any:
    """All-pairs shortest paths, with gradients.

    Parameters
    ----------
    graph : array, shape (n, n) or (b, n, n)
        Edge weights; inf means no edge.
    sources : sequence of int, optional
        Only paths from these nodes, of one graph: the result has a row for each.
    return_predecessors : bool, default False

    Returns
    -------
    distances : array, shape (n, n), (len(sources), n) or (b, n, n)
    predecessors : array of int32
        Only with `return_predecessors`; see :func:`semiring_mm.apsp`.

    Notes
    -----
    The derivative of a distance with respect to a weight is 1 for the edges of one shortest path
    and 0 for all others. Runs where :func:`matmul` does. Inside ``jit`` a negative cycle is an
    error of JAX with the words of :class:`semiring_mm.NegativeCycleError`.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from semiring_mm.jax import apsp
    >>> weights = jnp.array([[0, 3, 8], [jnp.inf, 0, 1], [2, jnp.inf, 0]])
    >>> jax.grad(lambda w: apsp(w)[0, 2])(weights).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    """
    rows = None if sources is None else tuple(int(i) for i in sources)
    distances, predecessors = _closure(
        semirings["min_plus"], rows, return_predecessors, jnp.asarray(graph)
    )
    return (distances, predecessors) if return_predecessors else distances


# --- products -------------------------------------------------------------------------------------


class _Functions(Functions):
    @staticmethod
    def product(a: Array, b: Array) -> Array:
        return _product(semirings["plus_times"], False, a, b)[0]


_JAX = _Functions()


def _multiply(s: Semiring, wanted: bool, a: Array, b: Array) -> tuple[Array, Array | None]:
    batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*batch, a.shape[-2], b.shape[-1])
    results = [jax.ShapeDtypeStruct(shape, a.dtype)]
    if wanted:
        results.append(jax.ShapeDtypeStruct(shape, jnp.int32))

    def multiply(a: Array, b: Array) -> tuple[Array, ...]:
        found = blas.matmul(a, b, s, return_arg=wanted)
        return found if wanted else (found,)

    found = run(multiply, results, a, b)
    return found[0], found[1] if wanted else None


def _product_forward(s: Semiring, wanted: bool, a: Array, b: Array) -> tuple[Any, Any]:
    gradients.way(s)
    c, arg = _product(
        s, wanted or (s.selective and a.shape[-1] > 0), a, b
    )  # the winning k, if the gradient needs it
    return (c, arg if wanted else None), (a, b, c, arg)


def _product_backward(s: Semiring, _: bool, kept: Any, came: Any) -> tuple[Array, Array]:
    a, b, c, arg = kept
    g, shapes, both = came[0], (a.shape, b.shape), (True, True)
    kind = gradients.way(s)
    if kind == "summed":
        results = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (a, b)]

        def shares(g: Array, a: Array, b: Array, c: Array) -> tuple[Array, Array]:
            return gradients.summed(s, g, a, b, c, both)

        pair: Any = once(shares, results, g, a, b, c)
    elif kind == "bilinear":
        pair = gradients.bilinear(_JAX, g, a, b, shapes, both)
    elif arg is None:  # an empty k
        pair = jnp.zeros_like(a), jnp.zeros_like(b)
    else:
        pair = gradients.selective(_JAX, s, g, arg, a, b, shapes, both)
    return pair[0].astype(a.dtype), pair[1].astype(b.dtype)


_product = jax.custom_vjp(_multiply, nondiff_argnums=(0, 1))
_product.defvjp(_product_forward, _product_backward)


# --- closures -------------------------------------------------------------------------------------


def _close(
    s: Semiring, sources: tuple[int, ...] | None, wanted: bool, a: Array
) -> tuple[Array, Array | None]:
    shape = a.shape if sources is None else (len(sources), a.shape[-1])
    results = [jax.ShapeDtypeStruct(shape, a.dtype), jax.ShapeDtypeStruct(shape, jnp.int32)]

    def close(a: Array) -> tuple[Array, ...]:
        x = a if a.ndim < 4 else a.reshape(-1, *a.shape[-2:])  # vmapped, possibly more than once
        if s.name == "min_plus":
            found = graphs.apsp(x, sources=sources, return_predecessors=wanted)
        else:
            found = graphs.closure(x, s, return_predecessors=wanted)
        return tuple(
            y.reshape(*a.shape[:-2], *y.shape[-2:]) for y in (found if wanted else (found,))
        )

    batched = "expand_dims" if sources is None else "sequential"
    found = run(close, results[: 1 + wanted], a, batched=batched)
    return found[0], found[1] if wanted else None


def _closure_forward(
    s: Semiring, sources: tuple[int, ...] | None, wanted: bool, a: Array
) -> tuple[Any, Any]:
    gradients.way(s)
    d, p = _closure(s, sources, True, a)
    read = gradients.reads(s, (True, True))
    return (d, p if wanted else None), (d if "a" in read else None, a if "b" in read else None, p)


def _closure_backward(
    s: Semiring, sources: tuple[int, ...] | None, wanted: bool, kept: Any, came: Any
) -> tuple[Array, ...]:
    g, (d, w, p) = came[0], kept
    given = {name: x for name, x in zip("gdwp", (g, d, w, p), strict=True) if x is not None}

    def trees(*arrays: Array) -> tuple[Array]:
        found = dict(zip(given, arrays, strict=True))
        return (gradients.along_trees(s, *(found.get(name) for name in "gdwp")),)

    n = p.shape[-1]
    result = jax.ShapeDtypeStruct((*p.shape[:-2], n, n), g.dtype)
    return once(trees, [result], *given.values())


_closure = jax.custom_vjp(_close, nondiff_argnums=(0, 1, 2))
_closure.defvjp(_closure_forward, _closure_backward)
