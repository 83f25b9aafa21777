"""An elimination tree in connected pieces, each of which a block of threads can hold."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..graph_kernels import Index, Node, SymbolicFactor, offsets, ranges

__all__ = ["Cut", "Limits", "Regions", "cut", "pieces", "regions", "subtrees"]

_ALIGNED = 2  # edges; those of a node begin at a multiple

#: What a sweep takes on a device, in pairs of a dense product there: an edge; and an edge whose
#: labels are not in shared memory.
_EDGE, _FAR = 12.0, 400.0


class Cut(NamedTuple):
    """A factor with more nodes in its dense core."""

    structure: SymbolicFactor
    edges: Index  # its edges, among those of the structure as it was
    inner: Index  # (k,): the edges that lie within the core now
    tail: Node  # their ends, from the first node of the core on
    head: Node
    old: int  # the core as it was is its last so many nodes


def cut(x: SymbolicFactor, rows: int, most: int) -> Cut:
    """Move the upper ends of the elimination tree, where degrees are large, to the dense core.

    Dense products are so much faster on a device than sweeps, one node after the other, that this
    pays as long as the core has a few times as many nodes as the edges of one that joins it. `rows`
    nodes and their heads fit into shared memory; the core gets at most `most` nodes, if it is not
    larger already.
    """
    degree = np.diff(x.first)
    deepest = degree.astype(np.int64)  # the largest degree in each subtree
    for nodes in _levels(x):
        nodes = nodes[x.parent[nodes] < x.eliminated]
        np.maximum.at(deepest, x.parent[nodes], deepest[nodes])
    order = np.argsort(-deepest, kind="stable")
    ends = np.flatnonzero(np.diff(deepest[order], append=-1)) + 1
    ends = np.concatenate([[0], ends[ends + x.core <= max(most, x.core)]])
    each = np.where(degree < rows, _EDGE, _FAR) * degree
    done = np.concatenate([[0], np.cumsum(each[order])])
    core = x.core + ends.astype(np.float64)
    costs = done[-1] - done[ends] + core**2 + core**3 / max(x.n, 1)
    gone = np.zeros(x.n, bool)
    gone[order[: ends[np.argmin(costs)]]] = True
    gone[x.eliminated :] = True
    kept = np.flatnonzero(~gone)
    eliminated = len(kept)
    place = np.empty(x.n + 1, np.int32)
    place[np.concatenate([kept, np.flatnonzero(gone)])] = np.arange(x.n, dtype=np.int32)
    place[x.n] = x.n
    tail = np.repeat(np.arange(x.eliminated), degree)
    inside = gone[tail]
    inner = np.flatnonzero(inside)
    first = offsets(degree[kept])
    edges = np.flatnonzero(~inside)
    node = np.empty_like(x.order)
    node[place[:-1]] = x.order
    structure = SymbolicFactor(
        eliminated, place[x.rank], node, place[x.parent[kept]], x.height[kept], first,
        place[x.head[edges]],
    )  # fmt: skip
    ends_of = place[tail[inner]] - eliminated, place[x.head[inner]] - eliminated
    return Cut(structure, edges, inner, *ends_of, x.core)


def _levels(x: SymbolicFactor) -> Iterator[Index]:
    """Eliminated positions by levels of the elimination tree, the lowest ones first."""
    order = np.argsort(x.height, kind="stable")
    cuts = np.searchsorted(x.height[order], np.arange(x.height.max(initial=-1) + 2))
    for begin, end in itertools.pairwise(cuts.tolist()):
        yield order[begin:end]


class Limits(NamedTuple):
    """How large a region may be."""

    nodes: int  # at most, unless it is a single node
    rows: int  # nodes, and heads of edges above the region, of one that is held
    edges: int  # at most, as nodes


@dataclass(frozen=True)
class Regions:
    """Regions by ascending positions of their highest nodes, so that children come first.

    Nodes are named by places: those of the regions one after the other, in each by descending
    positions; the core's keep their positions.
    """

    place: Node  # (n,): of each position
    position: Node  # (n,): at each place
    first: Node  # (count + 1,): the places of each region begin here
    parent: Node  # (count,): the region above it, -1 where there is none
    depth: Node  # (count,): how many are above it
    level: Node  # (eliminated,): of each place, how many nodes of its region are above it
    levels: Node  # (count,): how many there are in each region
    # (count,): whether none is below it, and it is as small as a leaf may be
    leaf: NDArray[np.bool_]
    held: NDArray[np.bool_]  # (count,): whether the heads of its edges are numbered
    outer_first: Node  # (count + 1,): in `outer`, those of each region begin here
    outer: Node  # places of the heads above each region that is held
    edge_first: Index  # (count + 1,): the edges of each region begin here
    edge: Index  # the structure's edge; -1 in the gaps
    # The head of each edge: its number among the nodes of the region and the heads above it
    # (level_row: among its levels and these heads); in a region that is not held, its place.
    row: Node
    level_row: Node
    # (eliminated,): where the edges of each place end, from the first edge of its region on; those
    # of the next one begin at the next even number
    end: Node

    @property
    def of_place(self) -> Node:
        """The region of each place outside of the core."""
        return np.repeat(np.arange(len(self.leaf), dtype=np.int32), np.diff(self.first))


def regions(x: SymbolicFactor, leaf: Limits, upper: Limits) -> Regions:
    """Whole subtrees as large as `leaf` allows, and pieces as `upper` allows of what is above."""
    degree = np.diff(x.first)
    parent = np.where(x.parent < x.eliminated, x.parent, -1).astype(np.int32)
    of, roots = pieces(x, leaf, upper)
    count = len(roots)
    order = np.lexsort((-np.arange(x.eliminated), of))
    position = np.concatenate([order, np.arange(x.eliminated, x.n)]).astype(np.int32)
    place = np.empty(x.n, np.int32)
    place[position] = np.arange(x.n, dtype=np.int32)
    first = offsets(np.bincount(of, minlength=count)).astype(np.int32)

    above = np.where(parent[roots] >= 0, of[parent[roots]], -1).astype(np.int32)
    depth = np.zeros(count, np.int32)
    for f in range(count - 1, -1, -1):
        if above[f] >= 0:
            depth[f] = depth[above[f]] + 1
    nodes, rows = np.diff(first), np.diff(first) + degree[roots]
    level = np.zeros(x.eliminated, np.int32)
    for some in reversed([*_levels(x)]):  # parents first
        some = some[parent[some] >= 0]
        some = some[of[parent[some]] == of[some]]
        level[some] = level[parent[some]] + 1
    levels = np.zeros(count, np.int32)
    np.maximum.at(levels, of, level + 1)
    held = rows <= upper.rows
    room = -(-degree // _ALIGNED) * _ALIGNED
    total = np.bincount(of, weights=room, minlength=count).astype(np.int64)
    is_leaf = (rows <= min(leaf.rows, upper.rows)) & (total <= leaf.edges)
    is_leaf[above[above >= 0]] = False
    outers = np.where(held, degree[roots], 0)
    outer_first = offsets(outers).astype(np.int32)
    above_head = x.head[ranges(x.first[roots], outers)]
    key = np.repeat(roots.astype(np.int64), outers) * x.n + above_head  # ascending

    sizes = degree[order]
    source = ranges(x.first[order], sizes)
    tail = np.repeat(np.arange(x.eliminated), sizes)  # places
    head, piece = x.head[source], of[order][tail]
    row = place[head]
    inside = np.zeros(len(head), bool)
    below = head < x.eliminated
    inside[below] = of[head[below]] == piece[below]
    inside &= held[piece]
    level_row = row.copy()
    row[inside] -= first[piece[inside]]
    level_row[inside] = level[head[inside]]
    staged = ~inside & held[piece]
    outer_at = np.searchsorted(key, roots[piece[staged]].astype(np.int64) * x.n + head[staged])
    outer_at -= outer_first[piece[staged]]
    row[staged] = outer_at + nodes[piece[staged]]
    level_row[staged] = outer_at + levels[piece[staged]]

    edge_first = offsets(total)
    begin = np.cumsum(room[order]) - room[order]
    where = ranges(begin, sizes)
    edge = np.full(edge_first[-1], -1, np.int64)
    numbered, by_level = np.zeros((2, edge_first[-1]), np.int32)
    edge[where], numbered[where], by_level[where] = source, row, level_row
    end = begin + sizes - edge_first[of[order]]
    return Regions(
        place, position, first, above, depth, level[order], levels, is_leaf, held, outer_first,
        place[above_head], edge_first, edge, numbered, by_level, end.astype(np.int32),
    )  # fmt: skip


def subtrees(x: SymbolicFactor, leaf: Limits) -> tuple[Index, Index]:
    """The largest subtrees that are as `leaf` allows: their highest nodes, ascending, and sizes."""
    n = x.eliminated
    size = np.ones(n, np.int64)
    for nodes in _levels(x):
        nodes = nodes[x.parent[nodes] < n]
        np.add.at(size, x.parent[nodes], size[nodes])
    low = np.arange(n) - size + 1  # subtrees are ranges of positions
    fits = (
        (size <= leaf.nodes)
        & (size + np.diff(x.first) <= leaf.rows)
        & (x.first[1:] - x.first[low] <= leaf.edges)
    )
    # A subtree that fits and is in no other one: no later one that fits begins before it.
    begins = np.where(fits, low, n)
    later = np.full(n, n, np.int64)
    later[:-1] = np.minimum.accumulate(begins[:0:-1])[::-1]
    top = np.flatnonzero(fits & (later > np.arange(n)))
    return top, size[top]


def pieces(x: SymbolicFactor, leaf: Limits, upper: Limits) -> tuple[Node, Node]:
    """The region of each position, and the highest node of each region."""
    n, degree = x.eliminated, np.diff(x.first)
    parent = np.where(x.parent < n, x.parent, -1)
    top, size = subtrees(x, leaf)
    of = np.full(n, -1, np.int64)
    for_leaf = ranges(top - size + 1, size)
    of[for_leaf] = np.repeat(top, size)

    rest = np.flatnonzero(of < 0)[::-1]
    piece = of.tolist()
    above, degrees = parent.tolist(), degree.tolist()
    nodes_in, edges_in = dict[int, int](), dict[int, int]()
    for v in rest.tolist():
        root = piece[above[v]] if above[v] >= 0 else -1
        edges = degrees[v]
        if root >= 0:
            taken, sums = nodes_in[root] + 1, edges_in[root] + edges
            outers = degrees[root] if degrees[root] < upper.rows else 0
            if taken <= upper.nodes and taken + outers <= upper.rows and sums <= upper.edges:
                piece[v], nodes_in[root], edges_in[root] = root, taken, sums
                continue
        piece[v], nodes_in[v], edges_in[v] = v, 1, edges
    roots, piece_of = np.unique(np.array(piece, np.int64), return_inverse=True)
    return piece_of.astype(np.int32), roots.astype(np.int32)
