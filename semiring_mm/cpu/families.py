"""Families of kernels (:mod:`semiring_mm.graph_kernels`) that are called as they are."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from ..graph_kernels import Elimination, ForestKernels
from ..kernel import Kernel
from .codegen import compiled
from .kernels import elimination as e
from .kernels import forest as f

__all__ = ["elimination", "forest"]


def _family(*kernels: Kernel) -> Any:
    def called(kernel: Kernel) -> Any:
        def call(fields: Mapping[str, Any]) -> None:
            compiled(kernel)(**fields)

        return call

    return SimpleNamespace(**{kernel.name: called(kernel) for kernel in kernels})


elimination: Elimination = _family(
    e.adjacency, e.climb, e.elimination_tree, e.locate, e.minimum_degree, e.postorder, e.repack,
    e.symbolic, e.totals, e.transpose,
)  # fmt: skip
forest: ForestKernels = _family(f.grow, f.kruskal, f.preorder)
