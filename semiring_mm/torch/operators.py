"""What the operators share: semirings as text, PyTorch's functions for formulas, registration."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from ..semirings import Semiring, as_semiring, semirings

__all__ = [
    "LIBRARY", "TENSORS", "aligned", "batched", "is_plain", "node", "operate", "register", "row_of",
    "semiring_of", "unmapped",
]  # fmt: skip

Tensor = Any


# --- semirings as text, which operators take as arguments -----------------------------------------


def row_of(semiring: str | Semiring) -> str:
    if isinstance(semiring, str):
        return semiring
    s = as_semiring(semiring)
    return f"{s.name}; {s.add}; {s.mul}; {s.zero!r}; {s.one!r}; {s.domain}; {s.use}"


@functools.lru_cache(maxsize=256)
def semiring_of(row: str) -> Semiring:
    if ";" not in row:
        return as_semiring(row)
    name, add, mul, zero, one, domain, use = row.split("; ", 6)
    s = Semiring(name, add, mul, float(zero), float(one), domain, use)
    return semirings[name] if semirings.get(name) == s else s


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


# --- PyTorch's functions for the formulas ---------------------------------------------------------


class _Functions:
    xp = torch

    @staticmethod
    def take(x: Tensor, index: Tensor, axis: int) -> Tensor:
        return torch.take_along_dim(x, index.long(), axis)

    @staticmethod
    def add_at(shape: Sequence[int], axis: int, index: Tensor, values: Tensor) -> Tensor:
        wide = torch.promote_types(values.dtype, torch.float32)
        zeros = torch.zeros(shape, dtype=wide, device=values.device)
        return zeros.scatter_add(axis, index.long(), values.to(wide))

    @staticmethod
    def product(a: Tensor, b: Tensor) -> Tensor:
        return operate("product", a, b, "plus_times", False)[0]

    @staticmethod
    def count(n: int, like: Tensor) -> Tensor:
        return torch.arange(n, device=like.device)

    @staticmethod
    def scan(a: Tensor, x: Tensor, reverse: bool) -> Tensor:
        given = x.expand(*a.shape[:-3], x.shape[-1])
        return _Functions.prefixes(semirings["plus_times"], a, None, given, None, reverse)

    @staticmethod
    def prefixes(
        s: Semiring, a: Tensor, e: Tensor | None, x: Tensor | None, lengths: Tensor | None,
        reverse: bool,
    ) -> Tensor:  # fmt: skip
        return operate("chain", a, e, x, lengths, row_of(s), reverse, True)

    @staticmethod
    def posterior(
        e: Tensor, a: Tensor, start: Tensor, end: Tensor, lengths: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        total, states, pairs = operate("posterior", e, a, start, end, lengths, 2, "marginals")
        return total, states, pairs


LIBRARY = _Functions()


def aligned(dims: Sequence[int | None], *tensors: Tensor) -> list[Tensor]:
    """Move the mapped axis of each tensor to the front (length 1 where absent), at one rank."""
    moved = [
        x[None] if dim is None else x.movedim(dim, 0) for x, dim in zip(tensors, dims, strict=True)
    ]
    rank = max(x.ndim for x in moved)
    return [x.reshape(x.shape[0], *(1,) * (rank - x.ndim), *x.shape[1:]) for x in moved]


def batched(info: Any, dims: Sequence[int | None], *tensors: Tensor | None) -> list[Tensor | None]:
    """The mapped axis of each tensor in front, or one of its own that repeats it."""
    return [
        None if x is None else x.expand(info.batch_size, *x.shape) if dim is None
        else x.movedim(dim, 0)
        for x, dim in zip(tensors, dims, strict=True)
    ]  # fmt: skip


def unmapped(x: Tensor, dim: int | None) -> tuple[int, ...]:
    return tuple(size for i, size in enumerate(x.shape) if i != dim)


# --- registration ---------------------------------------------------------------------------------


def _once(ctx: Any, *_: Any) -> Any:
    raise NotImplementedError(
        "semiring_mm.torch has second derivatives of products whose ⊕ is min or max and over "
        "plus_times: none of other products, and none of closures"
    )


def _nothing(ctx: Any, inputs: Any, output: Any) -> None:
    pass


#: By the name of an operator, the function that it computes, and the same with its gradient.
_nodes: dict[str, tuple[Any, Any]] = {}


def operate(name: str, *args: Any) -> Any:
    """The results of an operator; without its dispatch, which takes longer than small work.

    Where tensors are only computed with, the operator is needed by nobody.
    """
    tensors = [x for x in args if isinstance(x, torch.Tensor)]
    if not is_plain(*tensors):
        return getattr(torch.ops.semiring_mm, name)(*args)
    computed, node = _nodes[name]
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

    parts = {"forward": forward, "backward": backward}
    kind: Any = torch.autograd.Function
    return type(kind)(name, (kind,), {key: staticmethod(x) for key, x in parts.items()})


def register(
    name: str, schema: str, run: Any, fake: Any, vmap: Any, backward: Any = _once, setup: Any = None
) -> None:
    def call(*args: Any) -> Any:  # engines refuse tensors that require a gradient
        return run(*(x.detach() if isinstance(x, torch.Tensor) else x for x in args))

    _nodes[name] = call, node(name, call, setup or _nothing, backward)
    op = torch.library.custom_op(f"semiring_mm::{name}", call, mutates_args=(), schema=schema)
    op.register_fake(fake)
    op.register_vmap(vmap)
    op.register_autograd(backward, setup_context=setup)
