"""The structure of a sparse elimination: an order, the edges that it fills in, and a dense core."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import pool
from ..engine import compiled
from ..graph_kernels import Index, Node, SymbolicFactor, offsets, ranges
from ..graphs.kernels import elimination as kernels
from ..lazy import cached_property
from ..naming import install
from ..progress import Progress, reporter
from . import costs

__all__ = ["Structure", "eliminate", "prepare_structure"]

#: Work of an order by minimum degree, a node and edge, beyond which there are no small separators.
_WORK = 5000
#: Work of an order that is done at a time: a third of a second.
_GRANT = 1 << 26
#: Core of a prepared graph up to which it is eliminated, too (a larger one only if it has no more
#: edges than the rest): then a path is unpacked by triangles.
_CORE = 1024
#: Largest graph for which an order by minimum degree is good enough.
_SMALL = 1000
#: Least degree of the elimination from which nested dissection orders the rest.
_LOW = 4
#: Parts of about the same work in which weights are joined by threads.
_PARTS = 64


@dataclass(frozen=True)
class Structure(SymbolicFactor):
    """A symbolic factor with the lower neighbours of its positions.

    Attributes
    ----------
    low_first : (n + 1,) int64
    low_tail : (edges,) int32
    low_edge : (edges,) int64
        The lower neighbours of each position, ascending, and the edges to them.
    """

    low_first: Index
    low_tail: Node
    low_edge: Index

    @classmethod
    def restored(
        cls, fringe: int, node: Node, parent: Node, level: Node, first: Index, head: Node
    ) -> Structure:
        """The structure with what follows from some of its arrays."""
        n = len(node)
        position = np.empty(n, np.int32)
        position[node] = np.arange(n, dtype=np.int32)
        low = _transposed(n, fringe, first, head)
        return cls(fringe, position, node, parent, level, first, head, *low)

    @classmethod
    def checked(
        cls, fringe: int, node: Node, parent: Node, level: Node, first: Index, head: Node
    ) -> Structure:
        """As :meth:`restored`, of arrays that may be anything.

        Raises
        ------
        ValueError
            If they are not those of an elimination. O(n + edges) time, and nothing compiled sees
            indices that may be out of range.
        """
        n = len(node)

        def check(right: bool | np.bool_, what: str) -> None:
            if not right:
                raise ValueError(what)

        check(0 <= fringe <= n, f"{fringe} of {n} nodes are eliminated")
        _check_range("node", node, n)
        check(n == 0 or np.bincount(node).max() == 1, "node: a node has two positions")
        check(
            len(parent) == len(level) == len(first) - 1 == fringe,
            f"parent, level and first are of {len(parent)}, {len(level)} and {len(first) - 1} "
            f"eliminated nodes, not {fringe}",
        )
        ends = first[0] == 0 and first[-1] == len(head)
        check(ends and (first[1:] >= first[:-1]).all(), "first: not the ranges of head")
        _check_range("head", head, n)
        degree = np.diff(first)
        tail = np.repeat(np.arange(fringe, dtype=np.int32), degree)
        lower = np.concatenate([tail[:1], head[:-1]])  # than each head: the one before it
        begin = first[:-1][degree > 0]
        lower[begin] = tail[begin]
        check((head > lower).all(), "head: not ascending positions above the tail")
        lowest = np.full(fringe, n, np.int32)
        lowest[degree > 0] = head[begin]
        check((parent == lowest).all(), "parent: not the lowest of the higher neighbours")
        inner = np.flatnonzero(parent < fringe)
        up = parent[inner]
        height = np.zeros(fringe, np.int32)
        np.maximum.at(height, up, level[inner] + np.int32(1))
        check((level == height).all(), "level: not the heights of the elimination tree")
        size = np.ones(fringe, np.int64)
        compiled(kernels.totals)(n=fringe, work=size.copy(), size=size, parent=parent)
        low = np.arange(fringe) - size + 1
        check((low[up] <= low[inner]).all(), "parent: not in postorder")
        # the other higher neighbours of a node are those of its parent, too
        rest = np.ones(len(head), bool)
        rest[begin] = False
        rest &= parent[tail] < fringe
        _slots(first, head, parent[tail[rest]], head[rest])
        return cls.restored(fringe, node, parent, level, first, head)

    @cached_property
    def pairs(self) -> float:
        """Pairs (⊗, ⊕) that join the weights of the edges: Σ degree²."""
        return float((np.diff(self.first).astype(np.float64) ** 2).sum())

    def bytes(self, itemsize: int, *, trees: bool) -> int:
        """Memory of weights of that size for all edges, of the core, and of sweeps."""
        edges, width = len(self.head), 2 * 64 // itemsize
        each = itemsize + 4 * trees
        core = 2 * self.core**2 * each
        labels = pool.get_num_threads() * width * self.n * each
        return 2 * edges * each + 8 * edges + core + labels

    @cached_property
    def schedule(self) -> tuple[Node, Index]:
        """The fringe in an order for threads, and where its parts begin and end.

        The parts are disjoint subtrees, in any order, but for the last, which comes after them.
        """
        degree = np.diff(self.first)
        work, size = degree * degree + 8, np.ones(self.fringe, np.int64)
        compiled(kernels.totals)(n=self.fringe, work=work, size=size, parent=self.parent)
        most = work[self.parent >= self.fringe].sum() // _PARTS
        above = np.append(work, most + 1)[np.minimum(self.parent, self.fringe)]
        roots = np.flatnonzero((work <= most) & (above > most))
        mark = np.zeros(self.fringe + 1, np.int8)  # +1 where a subtree begins, -1 behind it
        np.add.at(mark, roots + 1 - size[roots], 1)
        np.add.at(mark, roots + 1, -1)
        below = np.cumsum(mark[:-1], dtype=np.int8) > 0
        nodes = np.concatenate([np.flatnonzero(below), np.flatnonzero(~below)])
        done = np.cumsum(work[roots])
        ends = np.cumsum(size[roots])
        parts = np.searchsorted(done, np.arange(1, _PARTS) * (done[-1:].sum() / _PARTS))
        inner = ends[np.minimum(parts, max(0, len(ends) - 1))] if len(ends) else ends
        cuts = np.unique(np.concatenate([[0], inner, ends[-1:]]))
        return nodes.astype(np.int32), np.append(cuts, self.fringe).astype(np.int64)

    def above(self, positions: Index) -> Index:
        """These positions and all their ancestors, and the core; ascending."""
        mark = np.zeros(self.n, np.int8)
        mark[self.fringe :] = 1
        compiled(kernels.climb)(
            m=len(positions), fringe=self.fringe, start=positions, parent=self.parent, mark=mark,
        )  # fmt: skip
        return np.flatnonzero(mark.view(bool))  # a lot faster than of bytes

    def part(self, kept: Index) -> tuple[Structure, Index]:
        """The structure of positions that are :meth:`above` some, and its edges among all.

        What are positions here are its nodes. It has no lower neighbours.
        """
        n, inner = len(kept), kept[: len(kept) - self.core]
        place = np.empty(self.n + 1, np.int32)  # others are not looked up
        place[kept], place[self.n] = np.arange(n, dtype=np.int32), n
        counts = self.first[inner + 1] - self.first[inner]
        first, edges = offsets(counts), ranges(self.first[inner], counts)
        none = np.empty(0, np.int32)
        found = Structure(
            len(inner), place, kept.astype(np.int32), place[self.parent[inner]],
            self.level[inner], first, place[self.head[edges]], first, none, none.astype(np.int64),
        )  # fmt: skip
        return found, edges

    def slots(self, row: Index, col: Index) -> Index:
        """Where arcs between different nodes go.

        2 e upward along edge e and 2 e + 1 downward; -1 - (i c + j) from the i-th to the j-th node
        of a core of c.
        """
        u, v = self.position[row], self.position[col]
        slot = np.empty(len(u), np.int64)
        inside = (u >= self.fringe) & (v >= self.fringe)
        i, j = (x[inside].astype(np.int64) - self.fringe for x in (u, v))
        slot[inside] = -1 - (i * self.core + j)
        outside = ~inside
        slot[outside] = _slots(self.first, self.head, u[outside], v[outside])
        return slot


def _check_range(name: str, x: Node, end: int) -> None:
    if len(x) and not 0 <= x.min() <= x.max() < end:
        raise ValueError(f"{name}: {x[(x < 0) | (x >= end)][0]} is out of range")


def _slots(first: Index, head: Node, row: Node, col: Node) -> Index:
    """2 e upward along edge e and 2 e + 1 downward, between positions.

    Raises
    ------
    ValueError
        If there is no such edge.
    """
    slot = np.empty(len(row), np.int64)
    compiled(kernels.locate)(m=len(row), first=first, slot=slot, row=row, col=col, head=head)
    if len(row):
        low = np.minimum(row, col)
        there = first[low] < first[low + 1]
        if not (there.all() and (head[slot >> 1] == np.maximum(row, col)).all()):
            raise ValueError("head: lacks an edge of the graph, or one that elimination fills in")
    return slot


def prepare_structure(
    n: int, row: Index, col: Index, order: str, progress: Progress = None
) -> Structure:
    """The structure for any use, by minimum degree or, on top of it, nested dissection.

    All nodes are eliminated one by one, unless the order by minimum degree stops at a large core;
    then separators are large.

    Parameters
    ----------
    n : int
        Number of nodes.
    row, col : (m,) int64
        Edges, in any direction; loops and parallel edges are ignored.
    order : {"auto", "minimum_degree", "nested_dissection"}
        "auto" is nested dissection where METIS is installed and the graph is not small.
    """
    first, near = _neighbours(n, row, col)
    tick = reporter(progress, float(n), "order", "nodes")
    ranked, degree = _minimum_degree(n, first, near, _WORK * (n + len(near)), n, _CORE, tick)
    if tick is not None:
        tick(float(n))
    core = n - len(degree)
    if core > _CORE and core**2 > 2 * degree.sum(dtype=np.int64):
        return _structure(n, first, near, ranked, len(degree))
    if order == "auto":
        there = n > _SMALL and importlib.util.find_spec("pymetis") is not None
        order = "nested_dissection" if there else "minimum_degree"
    if order == "nested_dissection":
        larger = np.flatnonzero(degree > _LOW)
        ranked = _dissected(first, near, ranked, int(larger[0]) if larger.size else len(degree))
    return _structure(n, first, near, ranked, n)


def _dissected(first: Index, near: Node, order: Node, kept: int) -> Node:
    """The order with METIS's nested dissection of what is left behind the first `kept` nodes.

    The few edges that these fill in are the same in either order, and METIS has a smaller graph to
    look at: that takes a tenth of the time, and the tree is as flat.
    """
    try:
        import pymetis
    except ImportError:
        raise ImportError(
            f"order='nested_dissection' is found by METIS: {install('metis')}"
        ) from None
    n = len(order)
    x = _structure(n, first, near, order, kept)
    # Left are edges between nodes that are, and cliques of the last neighbours of others.
    tail = np.repeat(np.arange(n), np.diff(first))
    ends = [x.position[tail] - kept, x.position[near] - kept]
    inside = (ends[0] >= 0) & (ends[1] > ends[0])
    row, col = ([y[inside]] for y in ends)
    last = np.flatnonzero((x.parent >= kept) & (x.parent < n))
    degree = np.diff(x.first)[last]
    for d in range(2, int(degree.max(initial=0)) + 1):
        around = x.head[x.first[last[degree == d], np.newaxis] + np.arange(d)] - kept
        i, j = np.triu_indices(d, 1)
        row.append(around[:, i].ravel())
        col.append(around[:, j].ravel())
    rest = n - kept
    begin, beside = _neighbours(rest, np.concatenate(row), np.concatenate(col))
    found = np.arange(rest)
    if len(beside):
        found = np.array(pymetis.nested_dissection(pymetis.CSRAdjacency(begin, beside))[0])
    return np.concatenate([x.node[:kept], x.node[kept:][found]])


def eliminate(
    n: int, row: Index, col: Index, *, sources: int | None = None, limit: float = math.inf,
    itemsize: int = 8,
) -> Structure | None:  # fmt: skip
    """The structure by minimum degree, or None.

    Parameters
    ----------
    n : int
        Number of nodes.
    row, col : (m,) int64
        Edges, in any direction; loops and parallel edges are ignored.
    sources : int, optional
        From how many there will be sweeps, which weigh against a dense core; default from all.
    limit : float
        Nanoseconds in which there is another method: None is returned where this one takes longer,
        after a small part of that time (:data:`.costs.ATTEMPT`).
    itemsize : int
        Bytes of a label.

    Returns
    -------
    Structure
        O(Σ degree²) time, the degrees being those of the elimination.
    """
    count, working = n if sources is None else sources, pool.get_num_threads()
    spare = costs.ATTEMPT * limit - costs.neighbours(n, len(row))
    if spare < 0 or costs.least(n, len(row), count, threads=working) > limit:
        return None
    first, near = _neighbours(n, row, col)
    work = min(_WORK * (n + len(near)), spare / costs.ORDER)
    order, degree = _minimum_degree(n, first, near, int(work), count)
    expected = costs.fringes(n, len(row), degree, count, itemsize=itemsize, threads=working)
    fringe = int(np.argmin(expected))
    return _structure(n, first, near, order, fringe) if expected[fringe] <= limit else None


def _neighbours(n: int, row: Index, col: Index) -> tuple[Index, Node]:
    """The distinct neighbours of each node."""
    apart = row != col
    u, v = (np.ascontiguousarray(x[apart], np.int32) for x in (row, col))
    first = offsets(np.bincount(u, minlength=n) + np.bincount(v, minlength=n))
    near = np.empty(2 * len(u), np.int32)
    mark = np.full(n, -1, np.int32)
    compiled(kernels.adjacency)(
        n=n, m=len(u), first=first, place=first.copy(), row=u, col=v, near=near, mark=mark,
    )  # fmt: skip
    return first, near[: first[-1]].copy()


def _minimum_degree(
    n: int, first: Index, near: Node, work: int, sources: int, least: int = 0,
    tick: Callable[[float], None] | None = None,
) -> tuple[Node, Node]:  # fmt: skip
    """All nodes by minimum degree, and the degrees of the eliminated ones.

    The others are a core: of at least `least` nodes, unless `work` was used up.
    """
    size = np.diff(first).astype(np.int32)
    order, degree = np.empty(n, np.int32), np.empty(n, np.int32)
    by_size = np.argsort(size, kind="stable")
    following, before, bucket = np.full((3, n + 1), -1, np.int32)
    same = np.zeros(n, bool)  # as the one before it
    same[1:] = size[by_size[1:]] == size[by_size[:-1]]
    following[by_size[:-1]] = np.where(same[1:], by_size[1:], -1)
    before[by_size[1:]] = np.where(same[1:], by_size[:-1], -1)
    bucket[size[by_size[~same]]] = by_size[~same]
    state = np.array([0, 0, 0, 0, 1], np.int64)
    working = pool.get_num_threads()
    fields: dict[str, Any] = {
        "n": n, "sources": sources, "least": least, "state": state,
        "order_cost": round(1000 * costs.ORDER * working), "triangle": round(1000 * costs.TRIANGLE),
        "sweep": round(1000 * costs.SWEEP), "pair": round(1000 * costs.PAIR),
        "mark": np.zeros(n, np.int64), "size": size, "bucket": bucket, "following": following,
        "before": before, "order": order, "degree": degree,
    }  # fmt: skip
    lists, begin = near, first[:-1]
    while state[4] == 1 or (state[4] == 2 and work > 0):
        if state[4] == 1:
            lists, begin, room = _repacked(lists, begin, size)
            state[1] = room.sum(dtype=np.int64)
        state[3] += (some := min(work, _GRANT))  # so that Ctrl-C need not wait for all
        work -= some
        if tick is not None:
            tick(float(state[0]))
        compiled(kernels.minimum_degree)(
            **fields, capacity=len(lists), pool=lists, begin=begin, room=room,
        )  # fmt: skip
    done = int(state[0])
    gone = np.zeros(n, bool)
    gone[order[:done]] = True
    order[done:] = np.flatnonzero(~gone)
    return order, degree[:done]


def _repacked(lists: Node, begin: Index, size: Node) -> tuple[Node, Index, Node]:
    """The lists in new memory, each with half of its size to spare, and twice as much behind."""
    room = np.where(size > 0, size + size // 2 + 4, 0).astype(np.int32)
    places = np.zeros(len(size), np.int64)
    np.cumsum(room[:-1], out=places[1:])
    larger = np.empty(3 * int(room.sum(dtype=np.int64)), np.int32)
    compiled(kernels.repack)(
        n=len(size), begin=begin, place=places, size=size, pool=lists, larger=larger,
    )  # fmt: skip
    return larger, places, room


def _structure(n: int, first: Index, near: Node, order: Node, fringe: int) -> Structure:
    """The structure of an elimination order."""
    rank = np.empty(n, np.int32)
    rank[order] = np.arange(n, dtype=np.int32)
    graph: dict[str, Any] = {"n": n, "near": near}
    parent, ancestor = np.full((2, n), n, np.int32)
    compiled(kernels.elimination_tree)(
        **graph, first=first, order=order, rank=rank, parent=parent, ancestor=ancestor,
    )  # fmt: skip
    position = np.arange(n, dtype=np.int32)
    level = np.zeros(fringe, np.int32)
    compiled(kernels.postorder)(
        n=fringe, size=np.zeros(fringe, np.int64), parent=parent, position=position,
        below=np.empty(fringe, np.int32), level=level,
    )  # fmt: skip
    by_position = np.empty(fringe, np.int32)
    by_position[position[:fringe]] = level
    node = np.empty(n, np.int32)
    node[position] = order
    position = np.empty(n, np.int32)
    position[node] = np.arange(n, dtype=np.int32)

    row_first = np.zeros(fringe + 1, np.int64)
    head = np.empty(2 * len(near) + n, np.int32)
    state = np.array([0, 1], np.int64)
    child, sibling, mark = np.full((3, n), -1, np.int32)
    parent = np.full(fringe, n, np.int32)
    while state[1]:
        state[1] = 0
        compiled(kernels.symbolic)(
            **graph, stop=fringe, capacity=len(head), state=state, first=row_first,
            near_first=first, order=node, rank=position, child=child, sibling=sibling, mark=mark,
            head=head, parent=parent,
        )  # fmt: skip
        if state[1]:
            head = np.concatenate([head, np.empty(len(head), np.int32)])
    head = head[: row_first[-1]]
    # By ascending tails: first the lower neighbours of each position, then the higher ones.
    low_first, low_tail, _ = _transposed(n, fringe, row_first, head)
    _, head, _ = _transposed(fringe, n, low_first, low_tail)
    return Structure.restored(fringe, node, parent, by_position, row_first, head)


def _transposed(n: int, rows: int, first: Index, head: Node) -> tuple[Index, Node, Index]:
    """Of the edges of some rows: by head where they begin, their tails, and the place of each."""
    begin = offsets(np.bincount(head, minlength=n))
    tail, edge = np.empty(len(head), np.int32), np.empty(len(head), np.int64)
    compiled(kernels.transpose)(
        n=rows, first=first, place=begin[:-1].copy(), edge=edge, head=head, tail=tail,
    )  # fmt: skip
    return begin, tail, edge
