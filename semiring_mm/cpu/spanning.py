"""Closures from spanning forests: the best edges of rows, and rows of paths; trees of paths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..engine import Forest
from ..memory import scratch
from ..plan import entry_plan
from ..semirings import Semiring
from ..spanning import in_line, range_table, spanning_plan
from .codegen import compiled
from .kernels import spanning as kernels

__all__ = ["best_outside", "between", "doubtful", "towards"]

Array = NDArray[Any]
Index = NDArray[np.int32]

_ENTRIES = 1 << 20  # that a task reads or writes, about
_PREDECESSORS = 1 << 17


def best_outside(
    semiring: Semiring, a: Array, group: Index, rows: Index, at: Index, value: Array
) -> None:
    """The best entry of each of some rows in a column of another group than the row's."""
    n = a.shape[1]
    kernel = compiled(kernels.best_outside, spanning_plan(semiring, a.dtype))
    zero = np.array([semiring.identities(a.dtype)[0]], a.dtype)

    def some(lo: int, hi: int) -> None:
        kernel(
            n=n, count=hi - lo, rows=rows[lo:hi], group=group, worst=zero, a=a, at=at[lo:hi],
            value=value[lo:hi],
        )  # fmt: skip

    pool.run_parts(some, len(rows), -(-len(rows) * n // _ENTRIES))


def between(semiring: Semiring, gaps: Array, place: Index, rows: Index, out: Array) -> None:
    """Rows of the closure of a line: ⊗ of the gaps between the places of two nodes."""
    n = len(place)
    plan = spanning_plan(semiring, gaps.dtype)
    kernel, kind = compiled(kernels.between, plan), plan.computed_in
    table = range_table(semiring, gaps)
    node = np.empty(n, np.int32)
    node[place] = np.arange(n, dtype=np.int32)
    spots, lines = in_line(place, rows)

    def some(lo: int, hi: int) -> None:
        kernel(
            n=n, count=hi - lo, place=place, node=node, spots=spots[lo:hi], lines=lines[lo:hi],
            table=table, near=scratch(n * kind.itemsize)[0].view(kind), out=out,
        )  # fmt: skip

    _in_blocks(some, len(rows), n)


def towards(forest: Forest, rows: Index, out: Index) -> None:
    """Rows of predecessors: the neighbour of each node in its tree towards that of the row."""
    n = len(forest.order)
    place = np.empty(n, np.int32)
    place[forest.order] = np.arange(n, dtype=np.int32)
    spots, lines = in_line(place, rows)

    def some(lo: int, hi: int) -> None:
        compiled(kernels.towards, "i4")(
            n=n, count=hi - lo, spots=spots[lo:hi], lines=lines[lo:hi], out=out,
            row=scratch(4 * n)[0].view(np.int32), **forest._asdict(),
        )  # fmt: skip

    _in_blocks(some, len(rows), n)


def doubtful(semiring: Semiring, d: Array, p: Index) -> NDArray[np.int64]:
    """Rows of predecessors in which one is not strictly nearer than its node."""
    kernel = compiled(kernels.doubtful, entry_plan(semiring, d.dtype))
    rows, n = p.shape
    wrong = np.zeros(rows, np.uint8)

    def some(lo: int, hi: int) -> None:
        near, marks = (np.ascontiguousarray(x[lo:hi]) for x in (d, p))
        kernel(rows=hi - lo, n=n, d=near, p=marks, wrong=wrong[lo:hi])

    pool.run_parts(some, rows, -(-p.size // _PREDECESSORS))
    return np.flatnonzero(wrong)


def _in_blocks(some: Callable[[int, int], None], rows: int, n: int) -> None:
    """Call a function for parts of some rows, which have what is computed for many of them."""
    pool.run_parts(some, rows, min(-(-rows // kernels.ROWS), -(-rows * n // _ENTRIES)))
