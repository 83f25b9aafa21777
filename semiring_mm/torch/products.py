"""Products and closures, see :mod:`semiring_mm.torch`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import blas, gradients
from ..arrays import repeat
from ..graphs import apsp as graphs
from ..semirings import Semiring
from .operators import LIBRARY, aligned, is_plain, operate, register, row_of, semiring_of, unmapped

__all__ = ["apsp", "closure", "matmul"]

Tensor = Any


def matmul(
    a: Tensor, b: Tensor, semiring: str | Semiring = "plus_times", *, return_arg: bool = False
) -> Any:
    """Matrix product over a semiring, with gradients.

    Parameters
    ----------
    a : Tensor, shape (..., m, k) or (k,)
    b : Tensor, shape (..., k, n) or (k,)
        Of any strides, on one device. Leading dimensions broadcast, and 1-D tensors are treated, as
        in :func:`torch.matmul`.
    semiring : str or Semiring, default "plus_times"
        A name from :data:`semiring_mm.semirings` or your own.
    return_arg : bool, default False
        Also return, for a semiring whose ⊕ is min or max, the k that attained each entry.

    Returns
    -------
    c : Tensor, shape (..., m, n)
        Of the dtype that PyTorch promotes the operands to.
    arg : Tensor of int32, shape (..., m, n)
        Only with `return_arg`. The smallest k on ties.

    Raises
    ------
    NotImplementedError
        When a gradient is wanted and ⊕ is not min, max, a + b or logaddexp.
    TypeError, ValueError, OverflowError
        As :func:`semiring_mm.matmul`.

    Notes
    -----
    Where ⊕ is min or max, the gradient of an entry goes to the k that attained it, the smallest on
    ties; over ⊗ = a + b to both operands, over a * b times the other one, over min(a, b) and
    max(a, b) to the one that decided, `a` if they are equal. plus_times and log_plus have their
    full gradients: those of a sum and of a log-sum-exp. A ⊗ of your own is differentiated as the
    expression that it is.

    Gradients are of the operands' dtype; sums of 16-bit ones are added up in float32. Kept for them
    are, over min_plus and max_plus, the m × n int32 numbers of `return_arg` and no operand; else
    the operands that they read, over log_plus the product too. There is no m × k × n tensor.

    Second derivatives: all where ⊕ is min or max and over plus_times; none over log_plus and
    others that sum, where asking for them is an error. There is no forward mode.

    ``torch.autocast`` changes nothing: operands keep their dtypes, mixed ones are promoted. Under
    it a tensor from a linear layer is of 16 bits; such products compute in float32 and round once.

    Examples
    --------
    >>> import torch
    >>> from semiring_mm.torch import matmul
    >>> log_a = torch.tensor([[0.0, -1.0]], requires_grad=True)
    >>> matmul(log_a, torch.zeros(2, 1), "log_plus").backward()
    >>> log_a.grad  # the softmax
    tensor([[0.7311, 0.2689]])
    """
    if is_plain():
        c = repeat(("matmul", semiring, return_arg), (a, b))  # of tensors without gradients
        if c is not None:
            return c
    for name, x in (("a", a), ("b", b)):
        if not isinstance(x, torch.Tensor):
            raise TypeError(
                f"{name} is a {type(x).__name__}, and semiring_mm.torch takes tensors: use "
                f"torch.as_tensor({name}), or semiring_mm.matmul for other arrays"
            )
    if not (a.ndim and b.ndim) or a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
        raise ValueError(
            f"matmul multiplies matrices and vectors of one k, got shapes {tuple(a.shape)} and "
            f"{tuple(b.shape)}: the last axis of a must match the second last (or only) one of b"
        )
    row, dtype = row_of(semiring), torch.promote_types(a.dtype, b.dtype)
    left, right = _as(a, dtype), _as(b, dtype)
    left = left[None] if a.ndim == 1 else left
    right = right[:, None] if b.ndim == 1 else right
    differentiated = torch.is_grad_enabled() and (a.requires_grad or b.requires_grad)
    wanted = return_arg or (differentiated and a.shape[-1] > 0 and _selective(row))
    results = operate("product", left, right, row, wanted)[: 1 + return_arg]
    if b.ndim == 1:
        results = [x.squeeze(-1) for x in results]
    if a.ndim == 1:
        results = [x.squeeze(-1 if b.ndim == 1 else -2) for x in results]
    return tuple(results) if return_arg else results[0]


def closure(a: Tensor, semiring: str | Semiring, *, return_predecessors: bool = False) -> Any:
    """The closure of a matrix: the best path between every two nodes, with gradients.

    Parameters
    ----------
    a : Tensor, shape (n, n) or (b, n, n)
        The semiring's zero means no edge.
    semiring : str or Semiring
        With an idempotent ⊕.
    return_predecessors : bool, default False

    Returns
    -------
    closure : Tensor, shape (n, n) or (b, n, n)
    predecessors : Tensor of int32
        Only with `return_predecessors`; see :func:`semiring_mm.closure`.

    Notes
    -----
    An entry's gradient goes along its best path, that of the predecessors: over min_plus and
    max_plus to each edge of it, over max_min and min_max to the edge that decides (the first of
    equals), over max_times to each edge times the product of the others. Of several best paths one
    is taken. O(n² log h) for paths of at most h edges, by sums up the n trees of best paths; only
    these are kept, in int32, and over other ⊗ than a + b the matrix and the closure. There are no
    second derivatives.

    Examples
    --------
    >>> import torch
    >>> from semiring_mm.torch import closure
    >>> width = torch.tensor([[0.0, 5, 1], [0, 0, 3], [0, 0, 0]], requires_grad=True)
    >>> closure(width, "max_min")[0, 2].backward()
    >>> width.grad  # the narrowest edge of the widest path
    tensor([[0., 0., 0.],
            [0., 0., 1.],
            [0., 0., 0.]])
    """
    return _best_paths(a, semiring, None, return_predecessors)


def apsp(
    graph: Tensor, *, sources: Sequence[int] | None = None, return_predecessors: bool = False
) -> Any:
    """All-pairs shortest paths, with gradients.

    Parameters
    ----------
    graph : Tensor, shape (n, n) or (b, n, n)
        Edge weights; inf means no edge.
    sources : sequence of int, optional
        Only paths from these nodes, of one graph: the result has a row for each.
    return_predecessors : bool, default False

    Returns
    -------
    distances : Tensor, shape (n, n), (len(sources), n) or (b, n, n)
    predecessors : Tensor of int32
        Only with `return_predecessors`; see :func:`semiring_mm.apsp`.

    Raises
    ------
    semiring_mm.NegativeCycleError
        With the cycle in it.

    Notes
    -----
    The derivative of a distance with respect to a weight is 1 for the edges of one shortest path,
    that of the predecessors, and 0 for all others; see :func:`closure`.

    Examples
    --------
    >>> import torch
    >>> from semiring_mm.torch import apsp
    >>> inf = torch.inf
    >>> weights = torch.tensor([[0, 3, 8], [inf, 0, 1], [2, inf, 0]], requires_grad=True)
    >>> apsp(weights).sum().backward()
    >>> weights.grad  # how many shortest paths use an edge
    tensor([[0., 3., 0.],
            [0., 0., 3.],
            [3., 0., 0.]])
    """
    return _best_paths(graph, "min_plus", sources, return_predecessors)


def _best_paths(
    a: Tensor, semiring: str | Semiring, sources: Sequence[int] | None, return_predecessors: bool
) -> Any:
    if not isinstance(a, torch.Tensor):
        raise TypeError(
            f"the graph is a {type(a).__name__}, and semiring_mm.torch takes tensors: use "
            f"semiring_mm.apsp or closure for other graphs"
        )
    differentiated = torch.is_grad_enabled() and a.requires_grad
    trees = return_predecessors or differentiated
    rows = None if sources is None else list(sources)
    distances, predecessors = operate("closure", a, row_of(semiring), rows, trees)
    return (distances, predecessors) if return_predecessors else distances


def _selects(row: str) -> bool:
    return semiring_of(row).selective


_selective = torch.compiler.assume_constant_result(_selects)


def _as(x: Tensor, dtype: Any) -> Tensor:
    return x if x.dtype == dtype else x.to(dtype)  # a conversion to the same takes its time, too


def _shapes(a: Tensor, b: Tensor) -> tuple[int, ...]:
    return (*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])


# --- products -------------------------------------------------------------------------------------


def _product(a: Tensor, b: Tensor, row: str, arg: bool) -> tuple[Tensor, Tensor]:
    s = semiring_of(row) if ";" in row else row  # by the name in a call, by which that is kept
    if arg:
        c, k = blas.matmul(a, b, s, return_arg=True)
        return c, k
    return blas.matmul(a, b, s), a.new_empty(0, dtype=torch.int32)


def _product_fake(a: Tensor, b: Tensor, row: str, arg: bool) -> tuple[Tensor, Tensor]:
    shape = _shapes(a, b)
    return a.new_empty(shape), a.new_empty(shape if arg else 0, dtype=torch.int32)


def _product_setup(ctx: Any, inputs: Any, output: Any) -> None:
    a, b, row, wanted = inputs
    c, arg = output
    ctx.row, ctx.shapes, ctx.needs = row, (a.shape, b.shape), ctx.needs_input_grad[:2]
    ctx.set_materialize_grads(False)
    s = semiring_of(row)
    try:
        read = gradients.reads(s, ctx.needs)
    except NotImplementedError:  # raised when the gradient is computed
        read = set()
    if s.selective and not wanted:  # compute the product again, with the winning k
        read = {"a", "b"}
    present = {"a": a, "b": b, "c": c, "arg": arg}
    ctx.save_for_backward(*(x if name in read else None for name, x in present.items()))


def _product_backward(ctx: Any, g: Tensor | None, _: Any) -> tuple[Any, ...]:
    if g is None:
        return None, None, None, None
    s = semiring_of(ctx.row)
    a, b, c, arg = ctx.saved_tensors
    kind = gradients.way(s)
    pair: tuple[Any, ...]
    if kind == "summed":
        found = operate("product_shares", g, a, b, c, ctx.row, *ctx.needs)
        pair = tuple(x if need else None for x, need in zip(found, ctx.needs, strict=True))
    elif kind == "bilinear":
        pair = gradients.bilinear(LIBRARY, g, a, b, ctx.shapes, ctx.needs)
    elif ctx.shapes[0][-1] == 0:
        pair = tuple(g.new_zeros(shape) for shape in ctx.shapes)
    else:
        if arg is None:
            arg = operate("product", a, b, ctx.row, True)[1]
        arg = arg.long()  # once for both
        pair = gradients.selective(LIBRARY, s, g, arg, a, b, ctx.shapes, ctx.needs)
    return *(None if x is None else _as(x, g.dtype) for x in pair), None, None


def _product_vmap(
    info: Any, dims: Any, a: Tensor, b: Tensor, row: str, arg: bool
) -> tuple[Any, Any]:
    a, b = aligned(dims[:2], a, b)
    return operate("product", a, b, row, arg), (0, 0 if arg else None)


def _shares(
    g: Tensor, a: Tensor, b: Tensor, c: Tensor, row: str, need_a: bool, need_b: bool
) -> tuple[Tensor, Tensor]:
    def times(x: Tensor, y: Tensor) -> Tensor:
        return operate("product", x, y, row, False)[0]

    s, dtype = semiring_of(row), a.dtype
    if dtype.itemsize < 4:  # recompute c: its rounding would scale every contribution
        g, a, b = g.float(), a.float(), b.float()
        c = times(a, b)
    shapes, batch, needs = (a.shape, b.shape), c.shape[:-2], (need_a, need_b)
    if _on_device(g) and gradients.is_log_plus(s) and not gradients.small(g, a, b, c):
        pair = gradients.log_shares(torch, times, g, a, b, c, needs)
    else:
        a, b = (x if x.shape[:-2] == batch else x.expand(*batch, -1, -1) for x in (a, b))
        pair = gradients.summed(s, g, a, b, c, needs)
    left, right = (
        g.new_empty(0, dtype=dtype) if x is None else _as(gradients.sum_to(x, shape), dtype)
        for x, shape in zip(pair, shapes, strict=True)
    )
    return left, right


def _on_device(x: Tensor) -> bool:
    """There PyTorch's functions take less of the host than the conversion of tensors."""
    return bool(x.is_cuda)


def _shares_fake(
    g: Tensor, a: Tensor, b: Tensor, c: Tensor, row: str, need_a: bool, need_b: bool
) -> tuple[Tensor, Tensor]:
    return g.new_empty(a.shape if need_a else 0), g.new_empty(b.shape if need_b else 0)


def _shares_vmap(info: Any, dims: Any, *args: Any) -> tuple[Any, Any]:
    ranked = aligned(dims[:4], *args[:4])
    g, a, b, c = (x.expand(info.batch_size, *x.shape[1:]) for x in ranked)
    pair = operate("product_shares", g, a, b, c, *args[4:])
    shapes = [unmapped(x, dim) for x, dim in zip(args[1:3], dims[1:3], strict=True)]
    return tuple(
        x.reshape(info.batch_size, *shape) if need else x
        for x, shape, need in zip(pair, shapes, args[5:], strict=True)
    ), tuple(0 if need else None for need in args[5:])


# --- closures -------------------------------------------------------------------------------------


def _closure(
    a: Tensor, row: str, sources: Sequence[int] | None, trees: bool
) -> tuple[Tensor, Tensor]:
    if row == "min_plus":
        found = graphs.apsp(a, sources=sources, return_predecessors=trees)
    else:
        found = graphs.closure(a, semiring_of(row), return_predecessors=trees)
    return found if trees else (found, a.new_empty(0, dtype=torch.int32))


def _closure_fake(
    a: Tensor, row: str, sources: Sequence[int] | None, trees: bool
) -> tuple[Tensor, Tensor]:
    shape = a.shape if sources is None else (len(sources), a.shape[-1])
    return a.new_empty(shape), a.new_empty(shape if trees else 0, dtype=torch.int32)


def _closure_setup(ctx: Any, inputs: Any, output: Any) -> None:
    a, row, sources, trees = inputs
    d, p = output
    ctx.row, ctx.sources, ctx.trees = row, sources, trees
    ctx.set_materialize_grads(False)
    s = semiring_of(row)
    read = gradients.reads(s, (True, True)) if s.selective else set()
    ctx.save_for_backward(
        d if "a" in read else None, a if "b" in read or not trees else None, p if trees else None
    )


def _closure_backward(ctx: Any, g: Tensor | None, _: Any) -> tuple[Any, ...]:
    if g is None:
        return None, None, None, None
    gradients.way(semiring_of(ctx.row))
    d, a, p = ctx.saved_tensors
    if p is None:
        p = operate("closure", a, ctx.row, ctx.sources, True)[1]
    return operate("closure_trees", g, d, a, p, ctx.row), None, None, None


def _closure_vmap(
    info: Any, dims: Any, a: Tensor, row: str, sources: Sequence[int] | None, trees: bool
) -> tuple[Any, Any]:
    a = a.movedim(dims[0], 0)
    d, p = operate("closure", _stacked(a), row, sources, trees)
    return (d.reshape(a.shape), p.reshape(a.shape) if trees else p), (0, 0 if trees else None)


def _trees(g: Tensor, d: Tensor | None, w: Tensor | None, p: Tensor, row: str) -> Tensor:
    return gradients.along_trees(semiring_of(row), g, d, w, p)


def _trees_fake(g: Tensor, d: Tensor | None, w: Tensor | None, p: Tensor, row: str) -> Tensor:
    return g.new_empty(*p.shape[:-2], p.shape[-1], p.shape[-1])


def _trees_vmap(info: Any, dims: Any, *args: Any) -> tuple[Any, Any]:
    def stacked(x: Tensor | None, dim: int | None) -> Tensor | None:
        if x is None:
            return None
        front = x[None] if dim is None else x.movedim(dim, 0)
        return _stacked(front.expand(info.batch_size, *front.shape[1:]))

    stacks = map(stacked, args[:4], dims[:4])
    found = operate("closure_trees", *stacks, args[4])
    return found.reshape(info.batch_size, *unmapped(args[3], dims[3])[:-2], *found.shape[-2:]), 0


def _stacked(x: Tensor) -> Tensor:
    return x.reshape(-1, *x.shape[-2:])


# --- registration ---------------------------------------------------------------------------------


register(
    "product", "(Tensor a, Tensor b, str semiring, bool arg) -> (Tensor, Tensor)",
    _product, _product_fake, _product_vmap, _product_backward, _product_setup,
)  # fmt: skip
register(
    "product_shares",
    "(Tensor g, Tensor a, Tensor b, Tensor c, str semiring, bool need_a, bool need_b) "
    "-> (Tensor, Tensor)",
    _shares, _shares_fake, _shares_vmap,
)  # fmt: skip
register(
    "closure", "(Tensor a, str semiring, int[]? sources, bool trees) -> (Tensor, Tensor)",
    _closure, _closure_fake, _closure_vmap, _closure_backward, _closure_setup,
)  # fmt: skip
register(
    "closure_trees", "(Tensor g, Tensor? d, Tensor? w, Tensor p, str semiring) -> Tensor",
    _trees, _trees_fake, _trees_vmap,
)  # fmt: skip
