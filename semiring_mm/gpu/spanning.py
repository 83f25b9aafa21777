"""Closures from spanning forests on the device: the best edges of rows, and rows of paths."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine import Forest
from ..graph_kernels import offsets
from ..plan import Plan
from ..semirings import Semiring
from ..spanning import in_line, range_table, spanning_plan
from .launch import entry, launch, struct_of
from .memory import from_host
from .source import algebra, flags, word_size
from .views import bits_of, strides, wide_along

__all__ = ["best_outside", "between", "towards"]

Array = Any  # of the device
Index = NDArray[np.int32]

_THREADS = 256  # sr::Outside's, sr::Between's and sr::Towards's
_OUTSIDE, _LINES = 4, 64  # their rows


def _launch(
    plan: Plan | None, body: str, params: str, blocks: int, shared: int,
    fields: dict[str, Any] | None = None, /, **more: Any,
) -> None:  # fmt: skip
    """Run a struct of ``kernels/spanning.cuh`` with its arguments."""
    given, kind = algebra(plan) if plan else "", struct_of(params)
    source = entry("spanning.cuh", kind, f"sr::{body}::run", _THREADS, given)
    launch(source, kind, blocks, _THREADS, shared, fields, **more)


def best_outside(
    semiring: Semiring, a: Array, group: Array, rows: Array, at: Array, value: Array
) -> None:
    """The best entry of each of some rows in a column of another group than the row's."""
    plan = spanning_plan(semiring, a.dtype)
    wide = flags(wide_along(a, -1, 16 // a.itemsize))
    _launch(
        plan, f"Outside<Algebra, {wide}>", "OutsideParams", -(-len(rows) // _OUTSIDE),
        _THREADS * (word_size(plan) + 4), a=a, group=group, rows=rows, at=at, value=value,
        pitch=strides(a)[1], zero=bits_of(semiring.identities(a.dtype)[0], a.dtype),
        n=a.shape[1], count=len(rows),
    )  # fmt: skip


def between(semiring: Semiring, gaps: NDArray[Any], place: Index, rows: Index, out: Array) -> None:
    """Rows of the closure of a line: ⊗ of the gaps between the places of two nodes."""
    plan, n = spanning_plan(semiring, out.dtype), out.shape[1]
    table = from_host(range_table(semiring, gaps))
    there = from_host(place)
    spots, lines = map(from_host, in_line(place, rows))
    width = 16 // out.itemsize
    wide = wide_along(out, -1, width)
    columns = -(-n // (_THREADS * (width if wide else 1)))
    _launch(
        plan, f"Between<Algebra, {flags(wide)}>", "BetweenParams",
        -(-len(rows) // _LINES) * columns, _LINES * (2 * word_size(plan) + 8), table=table,
        place=there, spots=spots, lines=lines, out=out, pitch=strides(out)[1], n=n,
        count=len(rows), columns=columns,
    )  # fmt: skip


def towards(forest: Forest, rows: Index, out: Array) -> None:
    """Rows of predecessors: the neighbour of each node in its tree towards that of the row."""
    order, up, last = forest
    n = len(order)
    own = np.arange(n, dtype=np.int32)
    place, top = np.empty((2, n), np.int32)
    place[order] = own
    np.maximum.accumulate(np.where(up < 0, own, 0), out=top)
    below = np.flatnonzero(up >= 0)
    children = below[np.argsort(up[below], kind="stable")].astype(np.int32)
    first = offsets(np.bincount(up[below], minlength=n)).astype(np.int32)
    spots, lines = in_line(place, rows)
    lists = {
        "place": place, "order": order, "up": up, "last": last, "top": top, "first": first,
        "children": children, "spots": spots, "lines": lines,
    }  # fmt: skip
    there = {name: from_host(np.ascontiguousarray(x)) for name, x in lists.items()}
    columns = -(-n // _THREADS)
    _launch(
        None, "Towards<>", "TowardsParams", -(-len(rows) // _LINES) * columns, 0, there, out=out,
        pitch=strides(out)[1], n=n, count=len(rows), columns=columns,
    )  # fmt: skip
