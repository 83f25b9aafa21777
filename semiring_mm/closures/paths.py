"""Lengths of the paths of predecessor matrices, and negative cycles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graph_kernels import Index, offsets, ranges

__all__ = [
    "NO_PREDECESSOR", "NegativeCycleError", "epsilon", "find_negative_cycle", "leg_counts",
]  # fmt: skip

#: The entry of a predecessor matrix where a node has none (SciPy's convention).
NO_PREDECESSOR = -9999


class NegativeCycleError(ValueError):
    """The graph has a cycle of negative weight, so shortest paths do not exist.

    Attributes
    ----------
    cycle : list of int
        Nodes (rows of the matrix) along real edges; the last leads back to the first.
    weight : float
        Its weight.
    """

    __module__ = "semiring_mm"  # where users import it from

    def __init__(
        self, cycle: list[int], weight: float, labels: Sequence[Any] | None = None
    ) -> None:
        self.cycle, self.weight = cycle, weight
        shown = [str(labels[i] if labels else i) for i in [*cycle, cycle[0]]]
        if len(shown) > 12:
            shown = [*shown[:9], "…", *shown[-2:]]
        super().__init__(
            f"the graph has a cycle of negative weight {weight:g}: {' → '.join(shown)}; "
            f"shortest paths do not exist"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return NegativeCycleError, (self.cycle, self.weight), {"args": self.args}


def leg_counts(predecessors: NDArray[np.integer[Any]], sources: Any) -> NDArray[np.int32]:
    """Number of edges on the path from each source to each node.

    Parameters
    ----------
    predecessors : (k, n) array of integers
        Rows of a predecessor matrix.
    sources : (k,) array_like of int
        The node from which the paths of each row start.

    Returns
    -------
    (k, n) int32
        0 at the source, -1 where there is no path.

    Raises
    ------
    ValueError
        If a row does not describe a tree from its source.

    Examples
    --------
    >>> P = np.array([[-9999, 0, 1, -9999]])
    >>> leg_counts(P, [0])
    array([[ 0,  1,  2, -1]], dtype=int32)
    """
    n = predecessors.shape[1]
    start = np.asarray(sources, np.int64).reshape(-1, 1)
    node = np.arange(n)
    known = predecessors >= 0
    # Pointer doubling: after k rounds `far` is 2^k edges back, or the end of the path.
    far = np.where(known, predecessors, node)
    count: NDArray[np.int32] = known.astype(np.int32)
    for _ in range(n.bit_length()):
        step = np.take_along_axis(count, far, axis=1)
        if not step.any():
            break
        count += step
        far = np.take_along_axis(far, far, axis=1)
    wrong = known & ((far != start) | (node == start))
    if wrong.any():
        row = int(np.flatnonzero(wrong.any(axis=1))[0])
        raise ValueError(
            f"row {row} of predecessors does not describe a tree from node {start[row, 0]}"
        )
    count[~known & (node != start)] = -1
    return count


def epsilon(dtype: np.dtype[Any]) -> float:
    """The distance from 1 to the next number of a floating type; 0 of an exact type."""
    if dtype.kind == "f":
        return float(np.finfo(dtype).eps)
    return 2.0**-7 if dtype.name == "bfloat16" else 0.0


@np.errstate(over="ignore", invalid="ignore")  # paths that leave the range are refused later
def find_negative_cycle(
    row: Index, col: Index, weight: NDArray[Any], n: int
) -> tuple[list[int], float] | NDArray[np.float64]:
    """A cycle of negative weight and that weight or, if there is none, potentials.

    The exact sum of the weights decides, as they are in their type. Floating-point weights may
    stand for decimal fractions, from which each is off by half a unit in its last place, or less:
    where that much for each weight explains the sum, it counts as zero. 0.7 + 0.1 - 0.8, which is
    -8e-17, is meant as a return at no cost.

    With potentials h no edge is negative: w + h[u] - h[v] ≥ 0, but for rounding.

    Bellman and Ford from all nodes at once, with weights raised by these halves, in integers or
    pairs of floating-point numbers; a round follows the edges out of the nodes that the one before
    improved. A cycle is looked for in the graph of predecessors (Cherkassky and Goldberg, 1999)
    after 1, 2, 4, … rounds.
    """
    order = np.argsort(col, kind="stable")
    row, col, weight = row[order], col[order], weight[order]
    half = _half_units(weight)
    weight = weight.astype(np.float64 if weight.dtype.kind not in "iu" else np.int64)
    leaving, begin = np.argsort(row, kind="stable"), offsets(np.bincount(row, minlength=n))
    high, low = np.zeros((2, n), weight.dtype)  # whose sums are the distances by raised weights
    potentials = np.zeros(n, weight.dtype)  # along the same paths, as they are
    before = np.full(n, -1, np.int64)
    edge = np.full(n, -1, np.int64)
    edges, look = np.arange(len(row)), 1
    for step in range(1, n + 2):
        if not len(edges):
            break
        tail, head = row[edges], col[edges]
        starts = np.flatnonzero(np.diff(head, prepend=-1))
        ends, counts = head[starts], np.diff(starts, append=len(edges))
        near, rest = _pair_sum(high[tail], weight[edges])
        near, rest = _pair_sum(near, rest + low[tail] + half[edges])
        best = np.minimum.reduceat(near, starts)
        first = np.where(near == np.repeat(best, counts), rest, np.inf)
        beside = np.minimum.reduceat(first, starts)
        better = (best < high[ends]) | ((best == high[ends]) & (beside < low[ends]))
        winners = np.flatnonzero(first == np.repeat(beside, counts))
        winners = winners[np.searchsorted(winners, starts[better])]
        nodes, chosen = ends[better], edges[winners]
        high[nodes], low[nodes] = best[better], rest[winners]
        potentials[nodes] = potentials[row[chosen]] + weight[chosen]
        before[nodes], edge[nodes] = row[chosen], chosen
        edges = np.sort(leaving[ranges(begin[nodes], begin[nodes + 1] - begin[nodes])])
        if step == look or step > n:
            look *= 2
            for cycle in _cycles(before, nodes):
                at = edge[cycle]
                legs, halves = weight[at].tolist(), half[at].tolist()
                if weight.dtype.kind == "i":
                    if sum(legs) < 0:
                        return cycle, sum(legs)
                elif math.fsum([*legs, *halves]) < 0:
                    return cycle, math.fsum(legs)
    return potentials.astype(np.float64)


def _half_units(weight: NDArray[Any]) -> NDArray[Any]:
    """Half a unit in the last place of each weight; 0 for integers."""
    if weight.dtype.kind in "iu":
        return np.zeros(len(weight), np.int64)
    exponent = np.frexp(weight.astype(np.float64))[1]
    return np.where(weight == 0, 0.0, np.ldexp(epsilon(weight.dtype), exponent - 2))


def _pair_sum(a: NDArray[Any], b: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """a + b rounded, and what that leaves out (Knuth)."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


def _cycles(before: NDArray[np.int64], improved: NDArray[np.int64]) -> list[list[int]]:
    """The cycles of a graph of predecessors, at most one a node; each in the edges' direction.

    Each has a node that the last round `improved`: the others' distances fit their predecessors',
    and around a cycle of such the weights add up to zero, by which no distance improves.
    """
    parent = before.tolist()
    mark = [-1] * len(parent)
    found = []
    for start in improved.tolist():
        node, path = start, []
        while node >= 0 and mark[node] < 0:
            mark[node] = start
            path.append(node)
            node = parent[node]
        if node >= 0 and mark[node] == start and node in path:
            found.append(path[path.index(node) :][::-1])
    return found
