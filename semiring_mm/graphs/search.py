"""The order in which a search reaches the nodes, and its tree, from distances that are known."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from .. import pool
from ..closures.edges import EdgeList
from .kernels import search as kernels

__all__ = ["search_order", "settle"]

Float = NDArray[np.float64]
Index = NDArray[np.int64]
Node = NDArray[np.int32]

#: Of a part that a thread works on.
_ROWS = 64


def settle(arcs: EdgeList, d: NDArray[Any], sources: Index) -> Float:
    """Distances as a search adds them up, edge by edge from the source.

    Floating-point sums depend on their brackets. Of all paths the least such sum is taken, which is
    what Dijkstra's algorithm finds, since adding what is not negative is monotone.

    Parameters
    ----------
    arcs : EdgeList
        By rows; weights are finite and not negative.
    d : (k, n) array
        Distances up to rounding, inf where there is no path: nodes are visited in their order, so
        that one pass, and one more to see that nothing changes, are nearly always enough.
    sources : (k,) int64

    Returns
    -------
    (k, n) float64
    """
    settled = np.full(d.shape, np.inf)
    settled[np.arange(len(sources)), sources] = 0

    def some(rows: slice) -> None:
        near = np.argsort(d[rows])
        engines.compiled(kernels.settle)(**_fields(arcs, len(d[rows])), d=settled[rows], near=near)

    _in_parts(some, len(sources))
    return settled


def search_order(arcs: EdgeList, d: Float, sources: Index) -> tuple[Node, Node]:
    """The nodes in the order of a search from each source, and its tree.

    Nodes come by their distance; equally near ones in the order in which the search found the edge
    that brings them there, that is by the order of their predecessors, then of the edges. That is
    Dijkstra's algorithm with a heap that breaks ties by age and, over equal weights, breadth-first
    search. O(m) a source beyond sorting its row.

    Parameters
    ----------
    arcs : EdgeList
    d : (k, n) float64
        Distances that are sums from the source on, exactly: of :func:`settle`, or of numbers whose
        sums have no rounding.
    sources : (k,) int64

    Returns
    -------
    order : (k, n) int32
        -1 behind the nodes that can be reached.
    predecessors : (k, n) int32
        -1 where there is no path, and at the source itself.
    """
    order, pred = np.full(d.shape, -1, np.int32), np.full(d.shape, -1, np.int32)
    equal = bool(arcs.weight.size) and arcs.weight.min() == arcs.weight.max() > 0
    starts = np.ascontiguousarray(sources, np.int64)

    def some(rows: slice) -> None:
        group, slot = np.zeros(d[rows].shape, np.int64), np.zeros(d[rows].shape, np.int64)
        if not equal:  # else one queue is in order of distance by itself
            _groups(d[rows], group, slot)
        own = {"d": d[rows], "order": order[rows], "pred": pred[rows], "source": starts[rows]}
        engines.compiled(kernels.order)(
            **_fields(arcs, len(d[rows])), **own, group=group, slot=slot
        )

    _in_parts(some, len(sources))
    pred[np.arange(len(sources)), sources] = -1
    return order, pred


def _groups(d: Float, group: Index, slot: Index) -> None:
    """For each node the first place, by distance, of those as near as it; and all places."""
    near = np.argsort(d)
    slot[...] = np.arange(d.shape[1])
    ascending = np.take_along_axis(d, near, 1)
    new = np.ones(d.shape, bool)
    new[:, 1:] = ascending[:, 1:] != ascending[:, :-1]
    np.put_along_axis(group, near, np.maximum.accumulate(np.where(new, slot, 0), 1), 1)


def _fields(arcs: EdgeList, rows: int) -> dict[str, Any]:
    head = np.ascontiguousarray(arcs.col, np.int32)
    edges = {"first": arcs.first, "head": head, "weight": arcs.weight}
    return {"n": arcs.n, "rows": rows} | edges


def _in_parts(some: Callable[[slice], None], count: int) -> None:
    """All rows, in some parts on all threads."""
    cuts = range(0, count, max(1, min(_ROWS, -(-count // pool.get_num_threads()))))
    parts = [slice(i, min(i + cuts.step, count)) for i in cuts]
    pool.run([functools.partial(some, part) for part in parts])
