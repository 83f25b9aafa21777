"""Chains of products: all prefixes, the whole, or a vector that is carried through, in one call."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .arrays import Call
from .engine import Engine
from .expressions import joins_logarithms
from .naming import integer
from .products import common_dtype, multiply
from .semirings import Semiring, as_semiring
from .verb import Verb, check_lengths

__all__ = [
    "CHAIN",
    "as_lengths",
    "axis_of_steps",
    "chain",
    "flat",
    "on_host",
    "scan",
]

Array = Any
Shape = tuple[int, ...]


def _steps(sizes: dict[str, int], given: Mapping[str, Any]) -> str | None:
    """The steps T of a chain, of those U that its matrices have."""
    steps = sizes.setdefault("T", sizes["U"])
    return "emissions" if sizes["U"] not in (1, steps) else None


#: The operands of a chain, which may have one matrix for all steps where it has emissions.
CHAIN = Verb(
    "chain",
    "a ...USS, emissions ...TS = none, x ...S = none, lengths ...:i8 = T",
    sizes=_steps,
    wants={
        "a": lambda at: (
            "a chain takes square matrices, one for each step, of shape (..., T, S, "
            "S), or (S, S) for all steps with emissions (..., T, S)"
        ),
        "emissions": lambda at: (
            f"matrices of {at['U']} steps and S = {at['S']} states take "
            f"emissions of shape (..., {'T' if at['U'] == 1 else at['U']}, {at['S']})"
        ),
        "x": lambda at: f"matrices of S = {at['S']} states take x of shape (..., S)",
    },
)


def chain(
    a: ArrayLike,
    x: ArrayLike | None = None,
    semiring: str | Semiring = "plus_times",
    *,
    emissions: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    reverse: bool = False,
    device: str | None = None,
) -> Any:
    """The product A₁ ⊗ A₂ ⊗ … ⊗ A_T of a chain of matrices, or a vector carried through it.

    Parameters
    ----------
    a : array_like, shape (..., T, S, S)
        The matrices of each step; with `emissions` also (S, S) or (..., 1, S, S), one for all.
    x : array_like, shape (..., S), optional
        The vector that is carried: x ⊗ A₁ ⊗ … ⊗ A_T, with `reverse` A₁ ⊗ … ⊗ A_T ⊗ x.
    semiring : str or Semiring, default "plus_times"
        A name from :data:`semiring_mm.semirings` or your own.
    emissions : array_like, shape (..., T, S), optional
        Factors e of each step: its matrix is then A ⊗ diag(e), that is A[i, j] ⊗ e[j]. Where ⊗ is
        not known to distribute over ⊕, these matrices are made, in O(T S²) memory.
    lengths : array_like of int, optional
        How many of the T steps each chain has, broadcast to the leading dimensions of the other
        operands. What lies behind a chain's end is not read.
    reverse : bool, default False
        Carry `x` from the right. The whole product is the same from both sides, but for rounding.
    device : {None, "cpu", "cuda", "cuda:N"}
        As for :func:`matmul`.

    Returns
    -------
    ndarray, shape (..., S) with `x`, else (..., S, S)
        In NumPy's promoted dtype of the operands. Of a chain of no steps it is `x`, or the identity
        matrix.

    Raises
    ------
    NotImplementedError
        On a CUDA device, for more than 1,024 states, and for integers of 64 bits that might wrap.
    OverflowError
        If an integer does not fit its dtype, at any step.
    ValueError, TypeError
        For shapes that do not match, and dtypes that the semiring has no meaning in.

    See Also
    --------
    scan : All prefixes of the product.
    semiring_mm.sequences.viterbi : The best sequence of states of a hidden Markov model.

    Notes
    -----
    O(T S²) pairs (⊗, ⊕) for a vector, O(T S³) for the whole product, in one compiled call: what is
    carried stays in the cache, chains (and rows of few chains) are spread over the threads. So are
    long chains, too: the rows of a product are independent, and no work is added, as a parallel
    scan over the steps would. On a CUDA device few long chains are such a scan where ⊗ is +, or
    both operations are minima and maxima or logical, in float32, float64 and bool; sums are then
    rounded in another order.

    The result is that of :func:`matmul` step by step: the same where ⊕ is min or max, else but for
    rounding. 16-bit floats are carried in float32 and rounded once. Over log_plus a step has one
    exponential for each entry where the matrix is shared by all steps, shifted by the largest
    entries, as in docs/log_plus.md; else one for each term. What is carried is the excess over an
    offset in float64, so that errors of many steps do not grow with the logarithms.

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> rain = np.array([[0.9, 0.1], [0.5, 0.5]])
    >>> sm.chain(np.stack([rain] * 3), x=[0.0, 1.0]).round(3)
    array([0.78, 0.22])
    >>> hours = [[[3, 7], [2, 4]], [[5, 1], [1, 6]]]
    >>> sm.chain(hours, semiring="max_plus")
    array([[ 8, 13],
           [ 7, 10]])
    """
    return _run("chain", a, semiring, x, emissions, lengths, reverse, False, device, -3)


def scan(
    a: ArrayLike,
    semiring: str | Semiring = "plus_times",
    *,
    x: ArrayLike | None = None,
    emissions: ArrayLike | None = None,
    axis: int = -3,
    lengths: ArrayLike | None = None,
    reverse: bool = False,
    inclusive: bool = True,
    device: str | None = None,
) -> Any:
    """All prefixes A₁, A₁ ⊗ A₂, … of a chain of matrices, or what they make of a vector.

    Parameters
    ----------
    a, semiring
        As for :func:`chain`.
    x : array_like, shape (..., S), optional
        A vector: its products with the prefixes are computed in place of these.
    emissions : array_like, shape (..., T, S), optional
        As for :func:`chain`.
    axis : int, default -3
        The axis of `a` that the steps are along. Matrices come back in the same order of axes,
        vectors as (..., T, S).
    lengths : array_like of int, optional
        As for :func:`chain`.
    reverse : bool, default False
        All suffixes instead: A_t ⊗ … ⊗ A_T (⊗ x) at step t.
    inclusive : bool, default True
        False: without the step's own matrix, so that the identity, or `x`, is first (reversed:
        last).
    device : {None, "cpu", "cuda", "cuda:N"}

    Returns
    -------
    ndarray, shape (..., T, S) with `x`, else (..., T, S, S)
        The semiring's zero behind a chain's end.

    Raises
    ------
    NotImplementedError, OverflowError, ValueError, TypeError
        As for :func:`chain`.

    See Also
    --------
    chain : The last of the prefixes.

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> steps = np.array([[[1, 1], [1, 0]]] * 5)
    >>> sm.scan(steps)[:, 0, 1]  # Fibonacci's numbers
    array([1, 1, 2, 3, 5])
    >>> sm.scan(np.array([[0.0, 4], [1, 0]]), "min_plus", x=[0, 9], emissions=[[1, 1], [2, 0]])
    array([[1., 5.],
           [3., 5.]])
    """
    return _run("scan", a, semiring, x, emissions, lengths, reverse, not inclusive, device, axis)


def as_lengths(lengths: Any, batch: tuple[int, ...], steps: int, verb: str) -> Array:
    """How many steps each chain of a flattened batch has, as int64; all of them by default."""
    if lengths is None:
        return np.full(math.prod(batch), steps, np.int64)
    found = np.asarray(on_host(lengths))
    if found.dtype.kind not in "iu" and found.size:
        raise TypeError(f"{verb}: lengths must be whole numbers, got dtype {found.dtype}")
    check_lengths(verb, found.shape, batch, steps, np.broadcast_shapes)
    found = np.broadcast_to(found, batch)
    if found.size and not (found.min() >= 0 and found.max() <= steps):
        raise ValueError(
            f"{verb}: lengths must be from 0 to the {steps} steps there are, got "
            f"{found.min()} to {found.max()}"
        )
    return np.ascontiguousarray(found, np.int64).ravel()


def axis_of_steps(verb: str, ndim: int, axis: Any) -> int:
    """The axis along which the matrices of a chain lie."""
    number = integer(axis, f"{verb}: axis")
    if not -ndim <= number < ndim:
        raise ValueError(f"{verb}: axis is one of the {ndim} axes of a, got {number}")
    return number


def on_host(x: Any) -> Any:
    """An array of CuPy or PyTorch on the host, and all others as they are."""
    if hasattr(x, "__cuda_array_interface__") and hasattr(x, "get"):
        return x.get()
    return x.detach().cpu() if hasattr(x, "detach") else x


def _run(
    verb: str, a: Any, semiring: Any, x: Any, emissions: Any, lengths: Any, reverse: bool,
    exclusive: bool, device: str | None, axis: int,
) -> Any:  # fmt: skip
    if isinstance(x, (str, Semiring)):
        raise TypeError(f"{verb}: x is a vector, got {x!r}: write {verb}(a, semiring={x!r})")
    s = as_semiring(semiring)
    with Call(device, a=a, x=x, emissions=emissions) as call:
        arrays = [call[name] for name in ("a", "x", "emissions")]
        present = common_dtype(s, *(v for v in arrays if v is not None))
        a, x, e = (None if v is None else present.pop(0) for v in arrays)
        engine, xp = call.engine, call.engine.xp
        if e is not None and a.ndim == 2:
            a = a[np.newaxis]
        if a.ndim > 2 and (axis := axis_of_steps(verb, a.ndim, axis)) != -3:
            a = xp.moveaxis(a, axis, -3)
        shapes = [None if v is None else np.shape(v) for v in (a, e, x, lengths)]
        batch, sizes = CHAIN.check(shapes, verb=verb)
        steps, n = sizes["T"], sizes["S"]
        counts = as_lengths(lengths, batch, steps, verb)
        every, chains = verb == "scan", len(counts)
        out = xp.empty((chains, steps if every else 1, 1 if x is not None else n, n), a.dtype)
        carried = None if x is None else flat(xp, x, batch, (n,))[:, np.newaxis]
        if lengths is not None or exclusive or not every:
            _ends(xp, out, s, counts, carried, every, reverse, exclusive)
        if out.size and steps:
            matrices = xp.broadcast_to(a, (*batch, *a.shape[-3:]))
            matrices = matrices.reshape(chains, *a.shape[-3:])
            matrices = xp.broadcast_to(matrices, (chains, steps, n, n))
            e = None if e is None else flat(xp, e, batch, (steps, n))
            if e is not None and not _distributes(s, e):
                matrices, e = _multiplied(engine, s, matrices, e, counts), None
            engine.chains.carry(
                s,
                matrices,
                e,
                carried,
                out,
                counts,
                every=every,
                reverse=reverse,
                exclusive=exclusive,
            )
        if x is not None:
            return call.give(out.reshape(*batch, *((steps,) if every else ()), n))
        out = out.swapaxes(-1, -2) if reverse else out
        if not every:
            return call.give(out.reshape(*batch, n, n))
        return call.give(xp.moveaxis(out.reshape(*batch, steps, n, n), -3, axis))


#: ⊕ and ⊗ for which (x ⊗ A) ⊗ diag(e) is x ⊗ (A ⊗ diag(e)), but for rounding, whatever they hold;
#: with "*" for ⊗ minima and maxima only where no number of e is negative.
_DISTRIBUTE = {
    ("+", "*"), ("min", "+"), ("max", "+"), ("min", "*"), ("max", "*"), ("min", "max"),
    ("max", "min"), ("min", "min"), ("max", "max"), ("|", "&"), ("^", "&"), ("&", "|"),
    ("|", "|"), ("&", "&"),
}  # fmt: skip


def _distributes(s: Semiring, e: Array) -> bool:
    """Whether the columns of a product may be multiplied by emissions in place of the matrix."""
    if joins_logarithms(s.add_expr):
        return s.mul_kind == "+"
    signed = s.selective and s.mul_kind == "*" and e.dtype.kind not in "ub"
    return (s.add_kind, s.mul_kind) in _DISTRIBUTE and not (signed and bool((e < 0).any()))


def _multiplied(engine: Engine, s: Semiring, a: Array, e: Array, counts: Array) -> Array:
    """The matrices A ⊗ diag(e) of each step (chains, steps, S, S)."""
    xp, (_, one) = engine.xp, s.identities(e.dtype)
    inside = (xp.arange(e.shape[1]) < xp.asarray(counts)[:, np.newaxis])[..., np.newaxis]
    columns = xp.ascontiguousarray(xp.where(inside[..., np.newaxis], a, one).swapaxes(-1, -2))
    found = multiply(engine, s, columns[..., np.newaxis], xp.where(inside, e, one)[..., None, None])
    return found[..., 0].swapaxes(-1, -2)


def flat(xp: Any, v: Array, batch: Shape, shape: Shape) -> Array:
    """An operand of the chains of a flattened batch, whose last axis is contiguous."""
    if v.strides[-1] != v.itemsize or (xp is np and not v.flags.aligned):
        v = xp.ascontiguousarray(v)
    wanted = (math.prod(batch), *shape)
    if v.shape == shape and wanted[0] == 1:
        return v[np.newaxis]
    return v if v.shape == wanted else xp.broadcast_to(v, (*batch, *shape)).reshape(wanted)


def _ends(
    xp: Any, out: Array, s: Semiring, counts: Array, x: Array | None, every: bool, reverse: bool,
    exclusive: bool,
) -> None:  # fmt: skip
    """Fill what no step computes: behind a chain's end, before its first step, and empty chains."""
    zero, one = s.identities(out.dtype)
    chains, steps, _, n = out.shape
    if x is None:
        unit = np.full((n, n), zero, out.dtype)
        np.fill_diagonal(unit, one)
        x = xp.broadcast_to(xp.asarray(unit), (chains, n, n))
    if not every:
        if len(empty := np.flatnonzero(counts == 0)):
            empty = xp.asarray(empty)
            out[empty, 0] = x[empty]
        return
    if (counts < steps).any():
        out[xp.asarray(np.arange(steps) >= counts[:, np.newaxis])] = zero
    if exclusive and steps:
        there = np.flatnonzero(counts)
        place, there = (xp.asarray(v) for v in (counts[there] - 1 if reverse else 0, there))
        out[there, place] = x[there]
