"""The best path of one pair over a customized elimination."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from ..hierarchy.sweeps import Metric
from ..lazy import cached_property
from .kernels import queries as kernels

__all__ = ["PathQuery"]


class PathQuery:
    """One query at a time, and its memory.

    Parameters
    ----------
    metric : Metric
        On the host.
    """

    def __init__(self, metric: Metric) -> None:
        x, kind = metric.structure, metric.out.dtype
        self._algebra = (metric.plan, *metric.identities)
        self._value, self._ends = np.empty(1, kind), np.zeros(2, np.int64)
        self._walk, self._count = np.empty(x.n, np.int32), np.empty(1, np.int64)
        self._core = {"core": x.core, "matrix": metric.core}
        self._fields: dict[str, Any] = {
            "n": x.n, "fringe": x.fringe, "first": x.first, "parent": x.parent, "head": x.head,
            "out": metric.out, "back": metric.back, "ends": self._ends,
            "up": np.empty(x.n, kind), "down": np.empty(x.n, kind), "value": self._value,
        }  # fmt: skip
        capacity = 3 * (int(x.level.max(initial=0)) + 1) + 8
        self._tails: dict[str, Any] = {
            "low_first": x.low_first, "low_edge": x.low_edge, "low_tail": x.low_tail,
            "up_tail": np.empty(x.n, np.int32), "down_tail": np.empty(x.n, np.int32),
            "walk": self._walk, "room": x.n, "count": self._count, "capacity": capacity,
            "stack": np.empty((capacity, 2), np.int64),
        }  # fmt: skip

    def meet(self, source: int, target: int) -> Any:
        """The weight from one position to another, in the type computed in."""
        return self._run(self._meet, source, target)

    def route(self, source: int, target: int) -> tuple[Any, NDArray[np.int32] | None]:
        """The same where there is no core, and the positions after the source on a walk.

        The walk leads along real edges; None where ties make it longer than there are nodes.
        """
        value, count = self._run(self._route, source, target), int(self._count[0])
        return value, None if count < 0 else self._walk[:count].copy()

    def _run(self, call: Callable[[], None], source: int, target: int) -> Any:
        self._ends[0], self._ends[1] = source, target
        call()
        return self._value[0].item()

    @cached_property
    def _meet(self) -> Callable[[], None]:
        call: Callable[[], None] = engines.compiled(kernels.meet, *self._algebra).bind(
            **self._fields, **self._core
        )
        return call

    @cached_property
    def _route(self) -> Callable[[], None]:
        call: Callable[[], None] = engines.compiled(kernels.route, *self._algebra).bind(
            **self._fields, **self._tails
        )
        return call
