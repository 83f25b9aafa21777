"""Questions to a customized elimination, compiled: paths of single pairs, nearest places."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..plan import Plan
from .codegen import compiled
from .kernels import nearest as lists
from .kernels import queries as kernels

__all__ = ["NOWHERE", "PairQueries", "nearest"]

NOWHERE = lists.NOWHERE

Array = NDArray[Any]


class PairQueries:
    """Answers one question at a time, in memory of its own.

    Parameters
    ----------
    plan : Plan
    zero, one : number
        In the type that the plan computes in.
    fields : mapping
        ``fringe``, ``core``, ``n`` and the arrays of a symbolic factor, ``out`` and ``back``.
    matrix : (core, core) array
        Best paths of the core, as they are stored.
    levels : int
        Of the elimination tree.
    """

    def __init__(
        self, plan: Plan, zero: float | int, one: float | int, fields: Mapping[str, Any],
        matrix: Array, levels: int,
    ) -> None:  # fmt: skip
        n, kind = fields["n"], fields["out"].dtype
        self._algebra, self._matrix = (plan, zero, one), matrix
        self._value, self._ends = np.empty(1, kind), np.empty(2, np.int64)
        self._fields = {
            name: fields[name] for name in ("fringe", "first", "parent", "head", "out", "back")
        } | {"up": np.empty(n, kind), "down": np.empty(n, kind)}
        self._fields |= {"value": self._value, "ends": self._ends}
        self._lower = {name: fields[name] for name in ("low_first", "low_edge", "low_tail")}
        self._rows = 3 * levels + 8  # of the stack

    def meet(self, i: int, j: int) -> Any:
        """The weight of a best path from position i to position j."""
        self._ends[0], self._ends[1] = i, j
        self._meet()
        return self._value[0].item()

    def route(self, i: int, j: int) -> tuple[Any, Array | None]:
        """The same where there is no core, and the positions after i on a walk along edges.

        None for a walk that is longer than a path.
        """
        self._ends[0], self._ends[1] = i, j
        walk, count, call = self._route
        call()
        found = int(count[0])
        return self._value[0].item(), None if found < 0 else walk[:found].copy()

    @functools.cached_property
    def _meet(self) -> Callable[[], None]:
        core = self._matrix
        stored = core.view(np.uint8) if core.dtype.kind == "b" else core
        call = compiled(kernels.meet, *self._algebra)
        return call.bind(**self._fields, core=len(core), matrix=stored)

    @functools.cached_property
    def _route(self) -> tuple[Array, Array, Callable[[], None]]:
        n = len(self._fields["up"])
        walk, count = np.empty(n, np.int32), np.empty(1, np.int64)
        call = compiled(kernels.route, *self._algebra).bind(
            **self._fields, **self._lower, room=n, walk=walk, count=count, capacity=self._rows,
            stack=np.empty((self._rows, 2), np.int64), up_tail=np.empty(n, np.int32),
            down_tail=np.empty(n, np.int32),
        )  # fmt: skip
        return walk, count, call


def nearest(fields: Mapping[str, Any]) -> None:
    """Complete the lists of the k nearest places to each vertex, and their distances.

    ``label`` and ``place`` have k entries for each vertex, ``far`` and NOWHERE where there is none,
    and the places themselves at distance 0. ``core_label`` and ``core_place`` are scratch, for the
    lists of the core.
    """
    compiled(lists.nearest, fields["label"].dtype.str[1:])(**fields)
