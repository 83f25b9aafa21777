"""Chains of products, see :mod:`semiring_mm.torch`."""

from __future__ import annotations

from typing import Any

import torch

from .. import chain_gradients, chains
from ..semirings import Semiring
from .operators import LIBRARY, batched, operate, register, row_of, semiring_of

__all__ = ["chain", "scan"]

Tensor = Any
_HALVES = (torch.float16, torch.bfloat16)


def chain(
    a: Tensor,
    x: Tensor | None = None,
    semiring: str | Semiring = "plus_times",
    *,
    emissions: Tensor | None = None,
    lengths: Any = None,
    reverse: bool = False,
) -> Tensor:
    """The product of a chain of matrices, or a vector carried through it, with gradients.

    Parameters
    ----------
    a, x, semiring, emissions, lengths, reverse
        As for :func:`semiring_mm.chain`; tensors on one device.

    Returns
    -------
    Tensor, shape (..., S) with `x`, else (..., S, S)

    Raises
    ------
    NotImplementedError
        When a gradient is wanted and ⊕ is not min, max, a + b or logaddexp; and as
        :func:`semiring_mm.chain`.
    TypeError, ValueError, OverflowError
        As :func:`semiring_mm.chain`.

    Notes
    -----
    Gradients of all orders, by the shares of :func:`semiring_mm.torch.matmul`; over ⊕ = min or max
    they go along the best sequence of states. The first derivative is a chain over plus_times of
    the steps' Jacobian matrices: O(T S²) memory for a carried vector, O(T S³) without. For the sum
    over all sequences of a model with emissions, :func:`semiring_mm.torch.sequences.log_partition`
    needs no such memory.

    Examples
    --------
    >>> import torch
    >>> from semiring_mm.torch import chain
    >>> steps = torch.tensor([[[2.0, 0.0], [1.0, 3.0]]] * 3, requires_grad=True)
    >>> chain(steps, torch.tensor([0.0, 0.0]), "max_plus")[1].backward()
    >>> steps.grad[:, 1, 1]  # the longest way stays at 1
    tensor([1., 1., 1.])
    """
    return _call("chain", a, semiring, x, emissions, lengths, reverse, False, -3)


def scan(
    a: Tensor,
    semiring: str | Semiring = "plus_times",
    *,
    x: Tensor | None = None,
    emissions: Tensor | None = None,
    axis: int = -3,
    lengths: Any = None,
    reverse: bool = False,
) -> Tensor:
    """All prefixes of a chain of matrices, or what they make of a vector, with gradients.

    Parameters
    ----------
    a, semiring, x, emissions, axis, lengths, reverse
        As for :func:`semiring_mm.scan`; tensors on one device.

    Returns
    -------
    Tensor, shape (..., T, S) with `x`, else (..., T, S, S)

    Raises
    ------
    NotImplementedError, TypeError, ValueError, OverflowError
        As :func:`chain`, whose notes are of this function too.

    Examples
    --------
    >>> import torch
    >>> from semiring_mm.torch import scan
    >>> a = torch.tensor([[[2.0]], [[3.0]], [[5.0]]], requires_grad=True)
    >>> products = scan(a)
    >>> products.sum().backward()  # 2 + 2 · 3 + 2 · 3 · 5
    >>> a.grad.flatten()
    tensor([19., 12.,  6.])
    """
    return _call("scan", a, semiring, x, emissions, lengths, reverse, True, axis)


def _call(
    verb: str, a: Tensor, semiring: Any, x: Tensor | None, e: Tensor | None, lengths: Any,
    reverse: bool, every: bool, axis: int,
) -> Tensor:  # fmt: skip
    if isinstance(x, (str, Semiring)):
        raise TypeError(f"{verb}: x is a vector, got {x!r}: write {verb}(a, semiring={x!r})")
    present = take(verb, a=a, x=x, emissions=e)
    dtype = present[0].dtype
    for one in present[1:]:
        dtype = torch.promote_types(dtype, one.dtype)
    work = torch.float32 if dtype in _HALVES else dtype
    a, x, e = (None if v is None else v.to(work) for v in (a, x, e))
    a = a[None] if e is not None and a.ndim == 2 else a
    axis = chains.axis_of_steps(verb, a.ndim, axis) if a.ndim > 2 else -3
    a = a.movedim(axis, -3) if axis != -3 else a
    lengths = as_lengths(lengths, a)
    shapes = (None if v is None else v.shape for v in (a, e, x, lengths))
    batch, _ = chains.batch_of_chain(verb, shapes, torch.broadcast_shapes)
    found = operate(
        "chain", a.expand(*batch, *a.shape[-3:]),
        None if e is None else e.expand(*batch, *e.shape[-2:]),
        None if x is None else x.expand(*batch, x.shape[-1]),
        None if lengths is None else lengths.expand(batch), row_of(semiring), reverse, every,
    ).to(dtype)  # fmt: skip
    return found.movedim(-3, axis) if every and x is None and axis != -3 else found


def take(verb: str, **operands: Any) -> list[Tensor]:
    """The operands that are given, all of them tensors."""
    for name, v in operands.items():
        if v is not None and not isinstance(v, torch.Tensor):
            raise TypeError(
                f"{verb}: {name} is a {type(v).__name__}, and semiring_mm.torch takes tensors: use "
                f"torch.as_tensor({name}), or semiring_mm itself for other arrays"
            )
    return [v for v in operands.values() if v is not None]


def as_lengths(lengths: Any, like: Tensor) -> Tensor | None:
    return None if lengths is None else torch.as_tensor(lengths, device=like.device)


# --- the operator ---------------------------------------------------------------------------------


def _chain(
    a: Tensor, e: Tensor | None, x: Tensor | None, lengths: Tensor | None, row: str,
    reverse: bool, every: bool,
) -> Tensor:  # fmt: skip
    s = semiring_of(row)
    if every:
        return chains.scan(a, s, x=x, emissions=e, lengths=lengths, reverse=reverse)
    return chains.chain(a, x, s, emissions=e, lengths=lengths, reverse=reverse)


def _fake(
    a: Tensor, e: Tensor | None, x: Tensor | None, lengths: Tensor | None, row: str,
    reverse: bool, every: bool,
) -> Tensor:  # fmt: skip
    steps = a.shape[-3] if e is None else e.shape[-2]
    rows = a.shape[-2:] if x is None else a.shape[-1:]
    return a.new_empty(*a.shape[:-3], *((steps,) if every else ()), *rows)


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    a, e, x, lengths, ctx.row, ctx.reverse, every = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(a, e, x, lengths, output if every else None)


def _backward(ctx: Any, g: Tensor | None) -> tuple[Tensor | None, ...]:
    if g is None:
        return (None,) * 7
    a, e, x, lengths, y = ctx.saved_tensors
    found = chain_gradients.along_chain(
        LIBRARY, semiring_of(ctx.row), g, a, e, x, lengths, y, reverse=ctx.reverse
    )
    return *found, None, None, None, None


def _vmap(info: Any, dims: Any, *args: Any) -> tuple[Tensor, int]:
    return operate("chain", *batched(info, dims[:4], *args[:4]), *args[4:]), 0


register(
    "chain",
    "(Tensor a, Tensor? e, Tensor? x, Tensor? lengths, str semiring, bool reverse, bool every) "
    "-> Tensor",
    _chain, _fake, _vmap, _backward, _setup,
)  # fmt: skip
