"""Best-first search from each source, compiled for a semiring: Dijkstra (1959), in a 4-ary heap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import pool
from ..plan import Plan
from .codegen import compiled
from .kernels import dijkstra as kernels

__all__ = ["lists", "search"]

_MOST = 1 << 20  # nodes taken from the heap in a call, between which Ctrl-C is seen


def search(plan: Plan, zero: float | int, one: float | int, fields: Mapping[str, Any]) -> None:
    """Rows of ``label`` and, unless it is None, of ``pred`` from the sources.

    Arcs are those of ``first`` and ``head``; no ``weight`` may be better than one. ``node`` and
    ``key``, one more than there are arcs each, are scratch.
    """
    going = np.zeros(1, np.int64)
    most = _MOST if fields["rows"] == 1 else 1 << 62  # several searches are short
    call = compiled(kernels.search, plan, zero, one).bind(**fields, most=most, open=going)
    call()
    while going[0]:
        pool.look()
        call()


def lists(plan: Plan, fields: Mapping[str, Any]) -> None:
    """The arcs of each node, in ``head`` and ``weight`` from ``first`` on, of m edges.

    ``both``: edges lead in both directions. ``first``, n + 1, holds zeros.
    """
    compiled(kernels.arcs, plan)(**fields)
