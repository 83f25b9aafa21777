"""The best path of one pair over a customized elimination, compiled for a semiring."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..graph_kernels import Factor, Index, Node
from ..plan import computed
from .codegen import compiled
from .kernels import queries as kernels

__all__ = ["PathQuery"]


class PathQuery:
    """Kernels bound to the memory of one query: :class:`semiring_mm.graph_kernels.PathQuery`."""

    def __init__(self, factor: Factor, low_first: Index, low_tail: Node, low_edge: Index) -> None:
        x, kind = factor.structure, factor.out.dtype
        self._algebra = (
            factor.plan,
            *(computed(factor.plan, y) for y in factor.semiring.identities(factor.dtype)),
        )
        self._value, self._ends = np.empty(1, kind), np.zeros(2, np.int64)
        self._walk, self._count = np.empty(x.n, np.int32), np.empty(1, np.int64)
        self._core = {"core": x.core, "matrix": factor.core}
        self._fields: dict[str, Any] = {
            "n": x.n, "fringe": x.fringe, "ends": self._ends, "first": x.first, "parent": x.parent,
            "head": x.head, "out": factor.out, "back": factor.back, "up": np.empty(x.n, kind),
            "down": np.empty(x.n, kind), "value": self._value,
        }  # fmt: skip
        capacity = 3 * (int(x.level.max(initial=0)) + 1) + 8
        self._tails: dict[str, Any] = {
            "low_first": low_first, "low_edge": low_edge, "low_tail": low_tail,
            "up_tail": np.empty(x.n, np.int32), "down_tail": np.empty(x.n, np.int32),
            "walk": self._walk, "room": x.n, "count": self._count, "capacity": capacity,
            "stack": np.empty((capacity, 2), np.int64),
        }  # fmt: skip

    def meet(self, source: int, target: int) -> Any:
        """The weight from one position to another, in the type computed in."""
        return self._run(self._meet, source, target)

    def route(self, source: int, target: int) -> tuple[Any, Node | None]:
        """The same, and the positions after the source on a walk along real edges, if it fits."""
        value, count = self._run(self._route, source, target), int(self._count[0])
        return value, None if count < 0 else self._walk[:count].copy()

    def _run(self, call: Callable[[], None], source: int, target: int) -> Any:
        self._ends[0], self._ends[1] = source, target
        call()
        return self._value[0].item()

    @functools.cached_property
    def _meet(self) -> Callable[[], None]:
        return compiled(kernels.meet, *self._algebra).bind(**self._fields, **self._core)

    @functools.cached_property
    def _route(self) -> Callable[[], None]:
        return compiled(kernels.route, *self._algebra).bind(**self._fields, **self._tails)
