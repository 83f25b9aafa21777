"""Each verb with a gradient as an operator of PyTorch, and PyTorch's functions for the formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from .. import arrays, gradients
from ..differentiable.functions import CONSTANTS
from ..differentiable.rows import VERBS
from ..semirings import semiring_of
from ..verb import Verb

__all__ = ["LIBRARY", "TENSORS", "PyTorch", "is_plain", "node", "operate"]

Tensor = Any

# --- whether operators are needed -----------------------------------------------------------------

#: And no class of tensors that wants to see each function.
TENSORS = {torch.Tensor, torch.nn.Parameter}
_modes: Any = getattr(torch._C, "_len_torch_dispatch_stack", None)  # absent: there may be some
_transforms: Any = getattr(torch._C, "_are_functorch_transforms_active", None)
_stacked: Any = getattr(torch._C._functorch, "is_legacy_batchedtensor", None)  # of many gradients


def is_plain(*tensors: Tensor) -> bool:
    """Whether a call is only computed: not compiled, traced or transformed, and seen by no mode.

    And whether all `tensors` are of PyTorch's own classes, and none stands for a stack of them.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    asked = None not in (_modes, _transforms, _stacked)
    if not asked or _modes() or _transforms():
        return False
    return TENSORS.issuperset(map(type, tensors)) and not any(map(_stacked, tensors))


def _is_transformed() -> bool:
    """Whether a call is under ``torch.func`` alone, whose gradients of operators are errors."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or None in (_modes, _transforms):
        return False
    return bool(_transforms()) and not _modes()


# --- PyTorch for the formulas ---------------------------------------------------------------------


class PyTorch:
    """What :class:`semiring_mm.verb.Library` has, of PyTorch."""

    ARRAY = "Tensor"
    xp = torch

    def run(self, name: str, /, *args: Any) -> tuple[Any, ...]:
        found = operate(name, *args)
        return found if isinstance(found, tuple) else (found,)

    def fused(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function

    def take(self, x: Tensor, index: Tensor, axis: int) -> Tensor:
        return torch.take_along_dim(x, index.long(), axis)

    def add_at(self, shape: Sequence[int], axis: int, index: Tensor, values: Tensor) -> Tensor:
        wide = torch.promote_types(values.dtype, torch.float32)
        zeros = torch.zeros(shape, dtype=wide, device=values.device)
        return zeros.scatter_add(axis, index.long(), values.to(wide))

    def count(self, n: int, like: Tensor) -> Tensor:
        return torch.arange(n, device=like.device)

    def arrays(self, verb: str, /, **operands: Any) -> list[Any]:
        for name, v in operands.items():
            if v is not None and not isinstance(v, torch.Tensor):
                raise TypeError(
                    f"{verb}: {name} is a {type(v).__name__}, and semiring_mm.torch takes tensors: "
                    f"use torch.as_tensor, or semiring_mm itself for other arrays"
                )
        return list(operands.values())

    def promoted(self, *tensors: Tensor) -> list[Any]:
        dtype = tensors[0].dtype
        for x in tensors[1:]:
            dtype = dtype if x is None else torch.promote_types(dtype, x.dtype)
        return [None if x is None else self.cast(x, dtype) for x in tensors]

    def real(self, verb: str, *tensors: Tensor) -> list[Any]:
        dtype = torch.float32
        for x in tensors:
            if x is None:
                continue
            if x.is_complex():
                raise TypeError(f"{verb} takes real numbers, got dtype {x.dtype}: use float32")
            exact = not x.is_floating_point()
            dtype = torch.promote_types(dtype, torch.float64 if exact else x.dtype)
        return [None if x is None else self.cast(x, dtype) for x in tensors]

    def lengths(self, lengths: Any, like: Tensor) -> Tensor:
        return torch.as_tensor(lengths, device=like.device)

    def concrete(self, x: Tensor) -> bool:
        return is_plain()

    def differentiated(self, *tensors: Tensor) -> list[bool]:
        enabled = torch.is_grad_enabled()
        return [enabled and getattr(x, "requires_grad", False) for x in tensors]

    def cast(self, x: Tensor, dtype: Any) -> Tensor:
        return x if x.dtype == dtype else x.to(dtype)  # a conversion to the same takes its time

    def wide(self, x: Tensor) -> Tensor:
        return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x

    broadcast_shapes = staticmethod(torch.broadcast_shapes)

    def repeated(self, verb: str, *arguments: Any) -> Any:
        *more, a, b = arguments
        return arrays.repeat((verb, *more), (a, b)) if is_plain() else None


LIBRARY = PyTorch()


for _constant in CONSTANTS:
    torch.compiler.assume_constant_result(_constant)


# --- operators ------------------------------------------------------------------------------------

#: By the name of an operator, the function that it computes, the same with its gradient, and with
#: one that is transformed.
_nodes: dict[str, tuple[Any, Any, Any]] = {}
_DTYPES = {"i4": torch.int32, "i8": torch.int64}


def operate(name: str, *args: Any) -> Any:
    """The results of an operator; without its dispatch, which takes longer than small work.

    Where tensors are only computed with, the operator is needed by nobody.
    """
    tensors = [x for x in args if isinstance(x, torch.Tensor)]
    if not is_plain(*tensors):
        if _is_transformed():
            return _nodes[name][2].apply(*args)
        return getattr(torch.ops.semiring_mm, name)(*args)
    computed, node, _ = _nodes[name]
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        return node.apply(*args)
    return computed(*args)


def node(name: str, run: Any, setup: Any, backward: Any) -> Any:
    """A class of autograd's nodes.

    They are set up in `forward`: where `setup_context` stands by itself, PyTorch looks at the
    signature of `forward` in each call.
    """

    def forward(ctx: Any, *args: Any) -> Any:
        output = run(*args)
        setup(ctx, args, output)
        return output

    return _function(name, {"forward": forward, "backward": backward})


def _function(name: str, parts: dict[str, Any]) -> Any:
    kind: Any = torch.autograd.Function
    return type(kind)(name, (kind,), {key: staticmethod(x) for key, x in parts.items()})


def _define(verb: Verb, compute: Callable[..., Any]) -> None:
    """Make an operator of a row, with the shapes of results, ``vmap`` and gradients.

    A result that is not computed is a tensor without entries.
    """
    count, alone = len(verb.operands), len(verb.results) == 1
    names = [x.name for x in verb.operands]
    everything = (*names, *(x.name for x in verb.results))
    dtypes = [_DTYPES.get(x.dtype or "") for x in verb.results]

    def call(*args: Any) -> Any:  # engines refuse tensors that require a gradient
        given = [x.detach() if isinstance(x, torch.Tensor) else x for x in args]
        found = [_as_tensor(x, given[0], dtype)
                 for x, dtype in zip(compute(*given), dtypes, strict=True)]  # fmt: skip
        return found[0] if alone else tuple(found)

    def fake(*args: Any) -> Any:
        found = [
            args[0].new_empty(0 if shape is None else shape, dtype=dtype or args[0].dtype)
            for shape, dtype in zip(
                verb.result_shapes(args, torch.broadcast_shapes), dtypes, strict=True
            )
        ]
        return found[0] if alone else tuple(found)

    def vmap(info: Any, dims: Any, *args: Any) -> tuple[Any, Any]:
        given = verb.front(dims, args, info.batch_size, torch.movedim, torch.Tensor.expand)
        there = verb.present(dict(zip(verb.names, args, strict=True)))
        places = tuple(None if axes is None else 0 for axes in there)
        return operate(verb.name, *given), places[0] if alone else places

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        results = (output,) if alone else output
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(x for x in results if not x.is_floating_point()))
        ctx.more = dict(zip(verb.names[count:], inputs[count:], strict=True))
        ctx.shapes = {
            name: None if x is None else x.shape for name, x in zip(names, inputs, strict=False)
        }
        ctx.dtype = inputs[0].dtype
        ctx.needs = dict(zip(names, ctx.needs_input_grad, strict=False))
        kept = everything if verb.keeps is None else verb.keeps(ctx.more, ctx.needs)
        arrays = zip(everything, (*inputs[:count], *results), strict=True)
        ctx.save_for_backward(*(x if name in kept else None for name, x in arrays))

    def backward(ctx: Any, *came: Tensor | None) -> tuple[Tensor | None, ...]:
        nothing = (None,) * len(verb.names)
        if all(g is None for g in came):
            return nothing
        given = ctx.more | dict(zip(everything, ctx.saved_tensors, strict=True))
        found = verb.backward(LIBRARY, came, given, ctx.shapes, ctx.needs)
        parts = (LIBRARY.cast(g, ctx.dtype) if g is not None and ctx.needs[name] else None
                 for name, g in zip(names, found, strict=True))  # fmt: skip
        return *parts, *nothing[count:]

    operands = [f"Tensor{'?' if x.default else ''} {x.name}" for x in verb.operands]
    schema = ", ".join([*operands, *(f"{kind} {name}" for name, kind in verb.options)])
    returns = "Tensor" if alone else f"({', '.join(['Tensor'] * len(verb.results))})"
    parts = {"forward": call, "setup_context": setup, "backward": backward, "vmap": vmap}
    transformed = _function(verb.name, parts)
    _nodes[verb.name] = call, node(verb.name, call, setup, backward), transformed
    op = torch.library.custom_op(
        f"semiring_mm::{verb.name}", call, mutates_args=(), schema=f"({schema}) -> {returns}"
    )
    op.register_fake(fake)
    op.register_vmap(vmap)
    op.register_autograd(backward, setup_context=setup)


def _as_tensor(x: Any, like: Tensor, dtype: Any) -> Tensor:
    if x is None:
        return like.new_empty(0, dtype=dtype or like.dtype)
    return torch.from_numpy(x).to(like.device) if isinstance(x, np.ndarray) else x


def _shares(
    g: Tensor, a: Tensor, b: Tensor, c: Tensor, row: str, need_a: bool, need_b: bool
) -> tuple[Tensor | None, Tensor | None]:
    """``product_shares``: on a device conversions of tensors would take longer on the host."""
    log_plus = gradients.is_log_plus(semiring_of(row))
    if not (_on_device(g) and log_plus) or gradients.small(g, a, b, c):
        return VERBS["product_shares"].compute(g, a, b, c, row, need_a, need_b)

    def times(x: Tensor, y: Tensor) -> Tensor:
        return operate("product", x, y, row, False)[0]

    return gradients.log_shares(torch, times, g, a, b, c, (need_a, need_b))


def _on_device(x: Tensor) -> bool:
    return bool(x.is_cuda)


for _verb in VERBS.values():
    _define(_verb, _shares if _verb.name == "product_shares" else _verb.compute)
