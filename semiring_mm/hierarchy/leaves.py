"""Places on edges: a hierarchy extended by nodes in the middle of edges, without a new elimination.

A place has two neighbours on its edge. Places of one edge u → v are eliminated as a balanced tree:
the i-th of them, b being the lowest bit of i, after those between the places i - b and i + b, which
are its higher neighbours; u and v stand for what lies beyond the first and the last. So each place
has two higher neighbours, whatever is around, its weights are sums along the edge, and nothing else
changes: the way from u to v over the places is as long as the edge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..closures.edges import EdgeList
from ..closures.steps import Steps
from ..graph_kernels import Index, Node, offsets
from ..plan import Plan
from .metric import Arcs, Metric
from .symbolic import Structure

__all__ = ["Leaves"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Leaves:
    """Places on the edges of a graph, edge by edge, and nodes without any edge after them."""

    before: Structure  # of the graph without them
    # with them; their nodes have the next numbers. A postorder still: the places of an edge come
    # right before that of its ends which comes first
    after: Structure
    moved: Index  # (n,): positions in `after` of those in `before`
    shifted: Index  # (f,): the same of edges
    index: Index  # (k,): the number of each place among those of its edge, from 1 on
    count: Index  # (k,): how many these are
    # (k,): nodes that are the higher neighbours, in the direction of the edge
    left: Index
    right: Index
    own: Index  # (2, k): the edges to them in `after`

    @classmethod
    def of(cls, x: Structure, edge: Index, u: Index, v: Index, alone: int) -> Leaves:
        """Leaves of a structure.

        Parameters
        ----------
        x : Structure
        edge : (k,) int64, ascending
            The edge that each place is on; places of one edge are in its direction.
        u, v : (k,) int64
            The nodes at its ends.
        alone : int
            Nodes without any edge.

        Returns
        -------
        Leaves
            O(n + f + k log k) time, of copies.
        """
        k, n, eliminated = len(edge), x.n, x.eliminated
        new = k + alone
        first = np.flatnonzero(np.diff(edge, prepend=edge[:1] - 1))
        size = np.diff(first, append=k)
        count, index = np.repeat(size, size), np.arange(k) - np.repeat(first, size) + 1
        low = index & -index
        begins, ends = index == low, index + low > count
        left = np.where(begins, u, n + np.arange(k) - low)
        right = np.where(ends, v, n + np.arange(k) + low)

        # positions: of each place before the first of the ends, one that ends a subtree later later
        key = np.full(new, eliminated)
        key[:k] = np.minimum(np.minimum(x.rank[u], x.rank[v]), eliminated)
        last = np.minimum(index + low - 1, count)
        order = np.arange(new)
        order[:k] = np.lexsort([low, last, edge, key[:k]])
        order = order[np.argsort(key[order], kind="stable")]
        at = np.empty(new, np.int64)
        at[order] = np.arange(new) + key[order]
        shift = np.cumsum(np.bincount(key, minlength=eliminated + 1))
        moved = np.arange(n) + shift[np.minimum(np.arange(n), eliminated)]
        ranked = np.concatenate([moved[x.rank[:n]], at])
        place = np.empty(n + new, np.int32)
        place[ranked] = np.arange(n + new)

        heads = np.sort(np.stack([ranked[left], ranked[right]]), axis=0)
        single = heads[0] == heads[1]  # the last place of a loop
        tall = eliminated + new
        degree = np.zeros(tall, np.int64)
        degree[moved[:eliminated]] = x.degree
        degree[at[:k]] = 2 - single
        begin = offsets(degree)
        shifted = np.arange(len(x.head))
        shifted += np.repeat(begin[moved[:eliminated]] - x.first[:-1], x.degree)
        head = np.empty(begin[-1], np.int32)
        head[shifted] = moved[x.head]
        own = np.stack([begin[at[:k]], begin[at[:k] + 1] - 1])
        head[own] = heads
        swapped = ranked[left] > ranked[right]
        own = np.where(swapped, own[::-1], own)

        parent = np.full(tall, n + new, np.int32)
        parent[moved[:eliminated]] = np.append(moved, n + new)[x.parent]
        parent[at[:k]] = heads[0]
        height = np.zeros(tall, np.int32)
        height[moved[:eliminated]] = x.height
        height[at[:k]] = np.log2(low).astype(np.int32)
        _raise_parents(at[:k][begins & ends], parent, height)
        after = Structure(tall, ranked.astype(np.int32), place, parent, height, begin, head)
        return cls(x, after, moved, shifted, index, count, left, right, own)

    def metric(self, metric: Metric, steps: Steps, plan: Plan, out: Array, back: Array) -> Metric:
        """The metric of the graph with the leaves.

        Parameters
        ----------
        metric : Metric
            Without them, over min_plus.
        steps, plan
            Of the graph with them.
        out, back : (2, k) arrays
            The weights along the edge, and against it, between each place and what is right before
            it on the edge (``[0]``), and right after it (``[1]``).
        """
        out, back = out.copy(), back.copy()
        index, count = self.index, self.count
        low = index & -index
        step = 2
        while step <= count.max(initial=0):
            rows = np.flatnonzero(low == step)
            before = rows - step // 2  # whose neighbours are the one before and this one
            for ways in (out, back):
                ways[0, rows] = ways[0, before] + ways[1, before]
            rest = count[rows] - index[rows]  # places after it, of which a power of two is the last
            some = rest > 0
            rows, rest = rows[some], np.minimum(rest[some], step - 1)
            after = rows + (1 << np.log2(rest).astype(np.int64))
            for ways in (out, back):
                ways[1, rows] = ways[0, after] + ways[1, after]
            step *= 2
        loop = self.own[0] == self.own[1]
        made: list[Array] = []
        # up from a place: against the edge to what is before it, along it to what is after
        for old, first, second in ((metric.out, back, out), (metric.back, out, back)):
            if made and metric.back is metric.out:
                break
            new = np.empty(len(self.after.head), old.dtype)
            new[self.shifted] = old
            new[self.own[0]], new[self.own[1]] = first[0], second[1]
            new[self.own[0][loop]] = np.minimum(first[0], second[1])[loop]
            made.append(new)
        return replace(
            metric, structure=self.after, steps=steps, plan=plan, out=made[0], back=made[-1],
            out_pred=None, back_pred=None, core_pred=None,
        )  # fmt: skip

    def split(
        self, edges: EdgeList, edge: Index, fraction: NDArray[np.float64], twin: Index | None
    ) -> tuple[EdgeList, list[Array], Index, NDArray[np.float64]]:
        """The graph's edges and those of the places.

        Parameters are as of :meth:`PreparedGraph.with_places`.

        Returns
        -------
        EdgeList
        list of (2, k) arrays
            ``out`` and ``back`` of :meth:`metric`.
        edge, share : (added,) arrays
            Of which edge each edge of places is a part, and how much of it.
        """
        k, n, first, last = len(edge), self.before.n, self.index == 1, self.index == self.count
        node, before = n + np.arange(k), np.where(first, 0.0, np.roll(fraction, 1))
        tail = np.append(np.where(first, edges.row[edge], node - 1), node[last])
        head = np.append(node, edges.col[edge[last]])
        share = np.append(fraction - before, (1 - fraction)[last])
        on = np.append(np.arange(k), np.flatnonzero(last))  # the place that each is beside
        kind, part = edges.weight.dtype, edge[on]
        ways = [(share * edges.weight[part]).astype(kind)]
        row, col, weight = [edges.row, tail], [edges.col, head], [edges.weight, ways[0]]
        if edges.directed and twin is not None and k:
            other = twin[on]
            there = other >= 0
            ways.append(np.where(there, share * edges.weight[other], np.inf).astype(kind))
            row.append(head[there])
            col.append(tail[there])
            weight.append(ways[1][there])
            part, share = np.append(part, other[there]), np.append(share, share[there])
        elif edges.directed:
            ways.append(np.full(len(part), np.inf, kind))
        after = np.arange(1, k + 1)
        after[last] = np.arange(k, len(tail))
        ends = np.concatenate(row), np.concatenate(col)
        joined = EdgeList(range(self.after.n), *ends, np.concatenate(weight), edges.directed)
        return joined, [np.stack([x[:k], x[after]]) for x in ways], part, share

    def arcs(self, before: Arcs, edges: EdgeList) -> Arcs:
        """Where edges go, of which the first ones are those of the graph without the leaves."""
        slot, m = before.slot.copy(), len(before.row)
        row, col = edges.row[m:], edges.col[m:]
        outside = slot >= 0
        edge, side = np.divmod(slot[outside], 2)
        slot[outside] = 2 * self.shifted[edge] + side
        apart = before.apart
        if not isinstance(apart, slice):
            apart = np.concatenate([apart, np.arange(m, m + len(row))])
        slot = np.concatenate([slot, self.after.slots(row, col)])
        return Arcs(edges.row, edges.col, before.undirected, apart, slot)


def _raise_parents(position: Index, parent: Node, height: Node) -> None:
    """Let parents be higher than their children, from some children on."""
    while position.size:
        up = parent[position]
        inside = up < len(parent)
        up, least = up[inside].astype(np.int64), height[position[inside]] + 1
        higher = least > height[up]
        np.maximum.at(height, up[higher], least[higher])
        position = np.unique(up[higher])
