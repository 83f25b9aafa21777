"""The weight of a best path between two nodes, and the path, over a customized factor."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..engine import compiled
from ..graph_kernels import Index, Node
from ..hierarchy.sweeps import Metric
from .kernels import queries as kernels

__all__ = ["PathQuery"]


class PathQuery:
    """Answers one query at a time, in memory of its own.

    Parameters
    ----------
    metric : Metric
        Without or with a core; :meth:`route` is for those without.
    """

    def __init__(self, metric: Metric) -> None:
        x, kind = metric.structure, metric.out.dtype
        self._metric, self._algebra = metric, (metric.plan, *metric.identities)
        self._value, self._ends = np.empty(1, kind), np.empty(2, np.int64)
        self._fields = {
            "fringe": x.fringe, "first": x.first, "parent": x.parent, "head": x.head,
            "out": metric.out, "back": metric.back, "up": np.empty(x.n, kind),
            "down": np.empty(x.n, kind), "value": self._value, "ends": self._ends,
        }  # fmt: skip

    def meet(self, source: int, target: int) -> Any:
        """The weight from one position to another, in the type computed in."""
        self._ends[0], self._ends[1] = source, target
        self._meet()
        return self._value[0].item()

    def route(self, source: int, target: int) -> tuple[Any, Node | None]:
        """The same, and the positions after `source` on a walk along real edges.

        None where ties make the walk longer than there are nodes.
        """
        self._ends[0], self._ends[1] = source, target
        walk, count, run = self._route
        run()
        length = int(count[0])
        return self._value[0].item(), None if length < 0 else walk[:length].copy()

    @functools.cached_property
    def _meet(self) -> Callable[[], None]:
        core = np.ascontiguousarray(self._metric.core)
        core = core.view(np.uint8) if core.dtype.kind == "b" else core
        call = compiled(kernels.meet, *self._algebra)
        bound: Callable[[], None] = call.bind(**self._fields, core=len(core), matrix=core)
        return bound

    @functools.cached_property
    def _route(self) -> tuple[Node, Index, Callable[[], None]]:
        x = self._metric.structure
        rows = 3 * (int(x.level.max(initial=0)) + 1) + 8  # of the stack
        walk, count = np.empty(x.n, np.int32), np.empty(1, np.int64)
        call = compiled(kernels.route, *self._algebra).bind(
            **self._fields, low_first=x.low_first, low_edge=x.low_edge, low_tail=x.low_tail,
            room=x.n, walk=walk, count=count, capacity=rows, stack=np.empty((rows, 2), np.int64),
            up_tail=np.empty(x.n, np.int32), down_tail=np.empty(x.n, np.int32),
        )  # fmt: skip
        return walk, count, call
