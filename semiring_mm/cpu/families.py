"""Families of kernels (:mod:`semiring_mm.graph_kernels`) that are called as they are."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from .. import pool
from ..graph_kernels import (
    Elimination,
    ForestKernels,
    NearestKernels,
    OrderKernels,
    SearchKernels,
)
from ..kernel import Kernel
from ..plan import Plan
from .codegen import compiled
from .kernels import dijkstra as d
from .kernels import elimination as e
from .kernels import forest as f
from .kernels import nearest as n
from .kernels import search as s

__all__ = ["elimination", "forest", "nearest", "orders", "searches"]

_MOST = 1 << 20  # nodes that a search takes in a call, between which Ctrl-C is seen


def _namespace(**functions: Any) -> Any:
    return SimpleNamespace(**functions)


def _family(*kernels: Kernel) -> Any:
    def called(kernel: Kernel) -> Any:
        def call(fields: Mapping[str, Any]) -> None:
            compiled(kernel)(**fields)

        return call

    return _namespace(**{kernel.name: called(kernel) for kernel in kernels})


elimination: Elimination = _family(
    e.adjacency, e.climb, e.elimination_tree, e.locate, e.minimum_degree, e.postorder, e.repack,
    e.symbolic, e.totals, e.transpose,
)  # fmt: skip
forest: ForestKernels = _family(f.grow, f.kruskal, f.preorder)
orders: OrderKernels = _family(s.dependencies, s.order, s.settle)


def _lists(plan: Plan, fields: Mapping[str, Any]) -> None:
    compiled(d.lists, plan)(**fields)


def _search(plan: Plan, zero: float | int, one: float | int, fields: Mapping[str, Any]) -> None:
    going = np.zeros(1, np.int64)
    most = _MOST if fields["rows"] == 1 else 1 << 62  # several searches are short
    call = compiled(d.search, plan, zero, one).bind(**fields, most=most, open=going)
    call()
    while going[0]:
        pool.look()
        call()


def _k_nearest(fields: Mapping[str, Any]) -> None:
    compiled(n.k_nearest, fields["label"].dtype.str[1:])(**fields)


searches: SearchKernels = _namespace(lists=_lists, search=_search)
nearest: NearestKernels = _namespace(k_nearest=_k_nearest)
