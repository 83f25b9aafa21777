"""All operators, of which one has functions of PyTorch on a device."""

from __future__ import annotations

from typing import Any

import torch

from .. import gradients
from ..differentiable.rows import VERBS
from ..semirings import semiring_of
from .operators import define, operate

__all__ = ["shares"]

Tensor = Any


def shares(
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
    define(_verb, shares if _verb.name == "product_shares" else _verb.compute)
