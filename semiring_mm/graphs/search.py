"""The order in which a search reaches the nodes, and its tree, from distances that are known."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cpu import search as code
from ..cpu import threads

__all__ = ["Arcs", "search_order", "settle"]

Float = NDArray[np.float64]
Index = NDArray[np.int64]
Node = NDArray[np.int32]


@dataclass(frozen=True)
class Arcs:
    """Edges in one direction each, by the node where they start, in the order of a search.

    Attributes
    ----------
    first : (n + 1,) int64
        Where those of each node begin.
    head : (m,) int32
        Where each leads.
    weight : (m,) float64
        Finite and not negative.
    """

    first: Index
    head: Node
    weight: Float

    @property
    def tail(self) -> Index:
        return np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))

    def kept(self, wanted: NDArray[np.bool_], weight: Float | None = None) -> Arcs:
        """Some of them."""
        first = np.concatenate([[0], np.cumsum(wanted)])[self.first]
        weight = self.weight if weight is None else weight
        return Arcs(first, self.head[wanted], weight[wanted])

    def shortest(self, d: NDArray[Any], margin: float) -> Arcs:
        """Those that are shortest paths, but for a margin: a search needs no others."""
        return self.kept(self.weight <= d[self.tail, self.head] + margin)


def settle(arcs: Arcs, d: NDArray[Any], sources: Index) -> Float:
    """Distances as a search adds them up, edge by edge from the source.

    Floating-point sums depend on their brackets. Of all paths the least such sum is taken, which is
    what Dijkstra's algorithm finds, since adding what is not negative is monotone.

    Parameters
    ----------
    arcs : Arcs
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

    def row(i: int) -> None:
        code.settle(_fields(arcs) | {"d": settled[i], "near": np.argsort(d[i])})

    _rows(row, len(sources))
    return settled


def search_order(arcs: Arcs, d: Float, sources: Index) -> tuple[Node, Node]:
    """The nodes in the order of a search from each source, and its tree.

    Nodes come by their distance; equally near ones in the order in which the search found the edge
    that brings them there, that is by the order of their predecessors, then of the edges. That is
    Dijkstra's algorithm with a heap that breaks ties by age and, over equal weights, breadth-first
    search. O(m) a source beyond sorting its row.

    Parameters
    ----------
    arcs : Arcs
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
    n = d.shape[1]
    equal = bool(arcs.weight.size) and arcs.weight.min() == arcs.weight.max() > 0
    one_group = np.zeros(n, np.int64)  # equal weights: a queue is in order of distance

    def row(i: int) -> None:
        group, slot = (one_group, np.zeros(n, np.int64)) if equal else _groups(d[i])
        fields = {"source": int(sources[i]), "order": order[i], "pred": pred[i], "d": d[i]}
        code.order(_fields(arcs) | fields | {"group": group, "slot": slot})
        pred[i, sources[i]] = -1

    _rows(row, len(sources))
    return order, pred


def _groups(d: Float) -> tuple[Index, Index]:
    """For each node the first place, by distance, of those as near as it; and all places."""
    near = np.argsort(d)
    place = np.arange(len(d))
    ascending = d[near]
    new = np.ones(len(d), bool)
    new[1:] = ascending[1:] != ascending[:-1]
    group = np.empty_like(near)
    group[near] = np.maximum.accumulate(np.where(new, place, 0))
    return group, place


def _fields(arcs: Arcs) -> dict[str, Any]:
    n = len(arcs.first) - 1
    return {"n": n, "first": arcs.first, "head": arcs.head, "weight": arcs.weight}


def _rows(row: Callable[[int], None], count: int) -> None:
    """All rows, in runs of them on all threads."""
    tasks = min(count, 4 * threads.get_num_threads())

    def some(task: int) -> None:
        for i in range(task, count, tasks):
            row(i)

    threads.run([functools.partial(some, task) for task in range(tasks)])
