"""The best path of one pair over a customized elimination."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..hierarchy.metric import Metric
from .kernels import queries as kernels

__all__ = ["PathQuery"]


class PathQuery:
    """Elimination tree queries, one at a time, and their memory.

    Parameters
    ----------
    metric : Metric
        On the host.
    """

    def __init__(self, metric: Metric) -> None:
        x, kind = metric.structure, metric.out.dtype
        self._value, self._ends = np.empty(1, kind), np.zeros(2, np.int64)
        self._walk, self._count = np.empty(x.n, np.int32), np.empty(1, np.int64)
        capacity, both = 3 * (x.depth + 3), 1 if metric.back is metric.out else 2
        fields: dict[str, Any] = {
            "n": x.n, "eliminated": x.eliminated, "core": x.core, "first": x.first,
            "parent": x.parent, "head": x.head, "out": metric.out, "back": metric.back,
            "matrix": metric.core, "ends": self._ends, "up": np.empty(x.n, kind),
            "down": np.empty(x.n, kind), "value": self._value, "room": x.n, "count": self._count,
            "capacity": capacity, "both": both,
        }  # fmt: skip

        @functools.cache
        def bound(walk: bool) -> Callable[[], None]:
            paths = dict.fromkeys(("low_first", "low_edge", "low_tail", "walk", "stack", "sides"))
            if walk:
                paths["low_first"], paths["low_tail"], paths["low_edge"] = x.down
                # of large graphs the system gives zeros when they are touched
                small = len(x.head) < np.iinfo(np.int32).max
                paths["sides"] = np.zeros((both * len(x.head), 3), np.int32 if small else np.int64)
                paths |= {"walk": self._walk, "stack": np.empty((capacity, 2), np.int64)}
            call: Callable[[], None] = metric.compiled(kernels.query).bind(**fields, **paths)
            return call

        self._bound = bound

    def distance(self, source: int, target: int, *, walk: bool = False) -> Any:
        """The weight from one position to another, in the type computed in."""
        self._ends[0], self._ends[1] = source, target
        self._bound(walk)()
        return self._value[0].item()

    def path(self, source: int, target: int) -> tuple[Any, NDArray[np.int32] | None]:
        """The same where there is no core, and the positions after the source on a walk.

        The walk leads along real edges; None where ties make it longer than there are nodes.
        """
        value, count = self.distance(source, target, walk=True), int(self._count[0])
        return value, None if count < 0 else self._walk[:count].copy()
