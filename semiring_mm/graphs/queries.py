"""Best paths of pairs of nodes over a customized elimination."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..hierarchy.metric import Metric
from .kernels import queries as kernels

__all__ = ["PathQuery"]

_ROOM = 1 << 20  # steps of paths that are computed at a time at least
_WALKS = "low_first", "low_tail", "low_edge", "sides", "stack", "place"


class PathQuery:
    """Elimination tree queries, one or many at a time, and their memory.

    The metric is on the host. With `ties` walks may have rings, which are left out.
    """

    def __init__(self, metric: Metric, *, ties: bool = True) -> None:
        x, kind = metric.structure, metric.out.dtype
        self._value, self._ends = np.empty(1, kind), np.zeros((1, 2), np.int64)
        self._walk, self._count = np.empty(x.n, np.int32), np.empty(1, np.int64)
        capacity, both = 3 * (x.depth + 3), 1 if metric.back is metric.out else 2
        # of large graphs the system gives zeros when they are touched
        self._small = np.int32 if len(x.head) < np.iinfo(np.int32).max // 2 else np.int64
        self._fields: dict[str, Any] = {
            "n": x.n, "eliminated": x.eliminated, "core": x.core, "first": x.first,
            "parent": x.parent, "head": x.head, "out": metric.out, "back": metric.back,
            "matrix": metric.core, "up": np.empty(x.n, kind), "down": np.empty(x.n, kind),
            "room": x.n, "capacity": capacity, "both": both, "begin": 0,
        }  # fmt: skip
        self._kernel = metric.compiled(kernels.query)
        self._room = max(2 * x.n, _ROOM)

        @functools.cache
        def walks() -> dict[str, Any]:
            first, tail, edge = x.down
            return {
                "low_first": first, "low_tail": tail, "low_edge": edge,
                "sides": np.zeros((both * len(x.head), 3), self._small),
                "stack": np.empty((capacity, 2), np.int64),
                "place": np.zeros(x.n, np.int32) if ties else None,
            }  # fmt: skip

        @functools.cache
        def bound(walk: bool) -> Callable[[], None]:
            one = {"ends": self._ends, "value": self._value, "count": self._count, "end": 1}
            paths = walks() | {"walk": self._walk} if walk else dict.fromkeys([*_WALKS, "walk"])
            call: Callable[[], None] = self._kernel.bind(
                **self._fields, **one, **paths, used=None, size=x.n
            )
            return call

        self._walks, self._bound = walks, bound

    def distance(self, source: int, target: int, *, walk: bool = False) -> Any:
        """The weight from one position to another, in the type computed in."""
        self._ends[0] = source, target
        self._bound(walk)()
        return self._value[0].item()

    def path(self, source: int, target: int) -> tuple[Any, NDArray[np.int32] | None]:
        """The same where there is no core, and the positions after the source on a path.

        The path leads along real edges; None where ties make the walk longer than there are nodes.
        """
        value, count = self.distance(source, target, walk=True), int(self._count[0])
        return value, None if count < 0 else self._walk[:count].copy()

    def weights(self, ends: NDArray[np.int64]) -> Any:
        """The weights alone for the rows of `ends`, pairs of positions; (k,)."""
        value, count = np.empty(len(ends), self._value.dtype), np.empty(len(ends), np.int64)
        fields = self._fields | dict.fromkeys([*_WALKS, "walk", "used"])
        fields |= {"ends": ends, "value": value, "count": count, "end": len(ends)}
        self._kernel(**fields, size=self._fields["n"])
        return value

    def paths(self, ends: NDArray[np.int64]) -> tuple[Any, NDArray[np.int64], Any, Any]:
        """The same for the rows of `ends`, pairs of positions.

        Returns
        -------
        value : (k,) array
        count : (k,) int64
            The steps of each path, -1 for None.
        walk : array of int32
            The positions after the sources.
        used : array
            Of each step twice the edge of the elimination, and one more downward.
        """
        value, count = np.empty(len(ends), self._value.dtype), np.empty(len(ends), np.int64)
        walk, used = np.empty(self._room, np.int32), np.empty(self._room, self._small)
        fields = self._fields | self._walks() | {"ends": ends, "value": value, "count": count}
        fields |= {"walk": walk, "used": used, "end": len(ends), "size": self._room}
        parts, done = list[tuple[Any, Any]](), 0
        while done < len(ends):
            fields["begin"] = done
            after = self._kernel(**fields)
            steps = int(np.maximum(count[done:after], 0).sum())
            parts.append((walk[:steps].copy(), used[:steps].copy()))
            done = after
        walk, used = (np.concatenate(x) for x in zip(*parts, strict=True))
        return value, count, walk, used
