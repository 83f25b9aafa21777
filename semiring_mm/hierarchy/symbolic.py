"""Symbolic factorization: an ordering, the elimination tree, the fill, and a dense core."""

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
from ..naming import optional
from ..progress import Progress, reporter
from . import costs
from .costs import TooExpensive

__all__ = [
    "Structure",
    "analyze",
    "eliminate",
    "factorize",
    "minimum_degree",
    "neighbours",
    "transpose",
]  # fmt: skip

#: Work of an order by minimum degree, a node and edge, beyond which there are no small separators.
_WORK = 5000
#: Work of an order that is done at a time, at first and at most: a third of a second.
_BEGIN, _GRANT = 1 << 20, 1 << 26
#: Core of a prepared graph up to which it is eliminated, too (a larger one only if it has no more
#: edges than the rest): then a path is unpacked by triangles.
_CORE = 1024
#: Largest graph for which an order by minimum degree is good enough.
_SMALL = 1000
#: Degrees of which the median tells how they grow, while a part of the nodes left is eliminated.
_WINDOW = 16
_LARGE = "separators are large: takes longer"
#: Least degree of the elimination from which nested dissection orders the rest.
_LOW = 6
#: By how many thousandths one side of a separator may exceed half of the nodes. More than METIS's
#: own 200: separators are smaller, and a pair climbs over fewer edges. (With 1000 one side may be
#: empty, and METIS does not end.)
_UNEVEN = 400
#: Entries to spare behind lists of neighbours: a small graph never needs more memory for them.
_SPARE = 1 << 16
#: Parts at most of about the same work in which weights are joined by threads, and the least work
#: of one: as much time as it takes to hand out a hundred.
_PARTS, _LEAST = 64, 1 << 18

#: Nodes, where the neighbours of each begin, and these, by their places among the nodes.
Rest = tuple[Node, Index, Node]


@dataclass(frozen=True)
class Structure(SymbolicFactor):
    """Symbolic factorization of a graph: a customizable contraction hierarchy without weights."""

    @classmethod
    def checked(cls, row: Index, col: Index, order: Node, **given: Any) -> Structure:
        """Symbolic factorization of edges in an order, compared with arrays of unknown origin.

        Parameters
        ----------
        row, col : (m,) int64
            Edges between nodes that `order` has.
        order : (n,) int32
        given
            The other fields of the factor but `rank`.

        Raises
        ------
        ValueError
            If they are not those of the elimination. O(n + edges) time and memory.
        """
        n, eliminated = len(order), given["eliminated"]
        if not 0 <= eliminated <= n:
            raise ValueError(f"{eliminated} of {n} nodes are eliminated")
        if n and not 0 <= order.min() <= order.max() < n:
            raise ValueError(f"order: {order[(order < 0) | (order >= n)][0]} is out of range")
        if n and np.bincount(order).max() > 1:
            raise ValueError("order: a node has two positions")
        most = len(given["head"])
        computed = factorize(n, *neighbours(n, row, col), order, eliminated, most=most)
        for name, x in (given | {"order": order}).items():
            if not np.array_equal(getattr(computed, name), x):
                raise ValueError(f"{name}: not that of an elimination in this order")
        return computed

    @cached_property
    def down(self) -> tuple[Index, Node, Index]:
        """Lower neighbours of each position, ascending: where they begin, they, and their edges.

        RoutingKit's ``down_first_out``, ``down_head`` and ``down_to_up``.
        """
        return transpose(self.n, self.eliminated, self.first, self.head)

    @property
    def degree(self) -> Index:
        """Number of higher neighbours of each eliminated position."""
        degree: Index = self.first[1:] - self.first[:-1]
        return degree

    @cached_property
    def pairs(self) -> float:
        """Pairs (⊗, ⊕) that join the weights of the edges: Σ degree²."""
        degree = self.degree
        return float(degree @ degree)

    @cached_property
    def depth(self) -> int:
        """Nodes on the longest path up the elimination tree, without the core."""
        return int(self.height.max(initial=-1)) + 1

    @property
    def summary(self) -> str:
        """How good the elimination is, in words."""
        return (
            f"{len(self.head):,} edges with those filled in, a tree {self.depth:,} deep, a dense "
            f"core of {self.core:,} nodes"
        )

    def bytes(self, itemsize: int, *, trees: bool, width: int | None = None) -> int:
        """Memory of weights of that size for all edges, of the core, and of sweeps.

        These are from `width` sources a thread; None: as many as there are at a time at most.
        """
        edges, width = len(self.head), width or 2 * 64 // itemsize
        each = itemsize + 4 * trees
        core = 2 * self.core**2 * each
        labels = pool.get_num_threads() * width * self.n * each
        return 2 * edges * each + 8 * edges + core + labels

    @cached_property
    def schedule(self) -> tuple[Node, Index]:
        """The eliminated positions in an order for threads, and where its parts begin and end.

        The parts are disjoint subtrees, in any order, but for the last, which comes after them.
        """
        count = min(_PARTS, int(self.pairs + 8 * self.eliminated) // _LEAST)
        if count < 2:
            return np.arange(self.eliminated, dtype=np.int32), np.array([0, self.eliminated])
        work, size = self.degree, np.ones(self.eliminated, np.int64)
        work *= work  # in place: these arrays are the peak of the memory of a preparation
        work += 8
        compiled(kernels.subtree_sums)(n=self.eliminated, work=work, size=size, parent=self.parent)
        most = work[self.parent >= self.eliminated].sum() // count
        small = np.append(work <= most, False)
        roots = np.flatnonzero(small[:-1] & ~small[np.minimum(self.parent, self.eliminated)])
        mark = np.zeros(self.eliminated + 1, np.int8)  # +1 where a subtree begins, -1 behind it
        np.add.at(mark, roots + 1 - size[roots], 1)
        np.add.at(mark, roots + 1, -1)
        below = np.cumsum(mark[:-1], dtype=np.int8) > 0
        done = np.cumsum(work[roots])
        ends = np.cumsum(size[roots])
        del work, size
        nodes = np.concatenate([np.flatnonzero(x).astype(np.int32) for x in (below, ~below)])
        parts = np.searchsorted(done, np.arange(1, count) * (done[-1:].sum() / count))
        inner = ends[np.minimum(parts, max(0, len(ends) - 1))] if len(ends) else ends
        cuts = np.unique(np.concatenate([[0], inner, ends[-1:]]))
        return nodes, np.append(cuts, self.eliminated).astype(np.int64)

    def ancestors(self, positions: Index) -> Index:
        """These positions and all their ancestors, and the core; ascending."""
        found = np.empty(self.n, np.int64)
        count = compiled(kernels.ancestors)(
            m=len(positions), n=self.n, eliminated=self.eliminated, start=np.sort(positions),
            parent=self.parent, found=found,
        )  # fmt: skip
        return found[:count]

    def restricted(self, kept: Index) -> tuple[Structure, Index]:
        """The structure of positions that are :meth:`ancestors` some, and its edges among all.

        What are positions here are its nodes.
        """
        n, inner = len(kept), kept[: len(kept) - self.core]
        place = np.empty(self.n + 1, np.int32)  # others are not looked up
        place[kept], place[self.n] = np.arange(n, dtype=np.int32), n
        counts = self.first[inner + 1] - self.first[inner]
        first, edges = offsets(counts), ranges(self.first[inner], counts)
        part = Structure(
            len(inner), place, kept.astype(np.int32), place[self.parent[inner]],
            self.height[inner], first, place[self.head[edges]],
        )  # fmt: skip
        return part, edges

    def slots(self, row: Index, col: Index) -> Index:
        """Where arcs between different nodes go.

        2 e upward along edge e and 2 e + 1 downward; -1 - (i c + j) from the i-th to the j-th node
        of a core of c.
        """
        slot = np.empty(len(row), np.int64)
        compiled(kernels.locate)(
            m=len(row), eliminated=self.eliminated, core=self.core, rank=self.rank,
            first=self.first, head=self.head, row=np.ascontiguousarray(row, np.int64),
            col=np.ascontiguousarray(col, np.int64), slot=slot,
        )  # fmt: skip
        return slot


def analyze(
    n: int, row: Index, col: Index, order: str, progress: Progress = None, *,
    most: float | None = None, work: float = math.inf,
) -> Structure:  # fmt: skip
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
    most : float, optional
        Edges of the factor above which an elimination of all nodes is too expensive; None:
        separators may be large.
    work : float
        Units of work (:data:`.costs.ORDER`) in which separators are to prove small.

    Raises
    ------
    TooExpensive
        For `most` or `work`, about as soon as that can be told.
    """
    first, near = neighbours(n, row, col)
    tick = reporter(progress, float(n), "order", "nodes")

    def look(degree: Node) -> None:
        if most is not None and degree.sum(dtype=np.int64) + _rest_of_fill(n, degree) > most:
            raise TooExpensive(_LARGE)
        if tick is not None:
            tick(float(len(degree)))

    work = min(work, _WORK * (n + len(near)))
    ranked, degree, rest = minimum_degree(n, first, near, int(work), n, _CORE, look=look, low=_LOW)
    if tick is not None:
        tick(float(n))
    core = n - len(degree)
    if core > _CORE and core**2 > 2 * degree.sum(dtype=np.int64):
        if most is not None:
            raise TooExpensive(_LARGE)
        return factorize(n, first, near, ranked, len(degree))
    if order == "auto":
        there = n > _SMALL and importlib.util.find_spec("pymetis") is not None
        order = "nested_dissection" if there else "minimum_degree"
    if order == "nested_dissection":
        ranked = _dissected(ranked, rest)
    return factorize(n, first, near, ranked, n)


def _rest_of_fill(n: int, degree: Node) -> float:
    """About how many edges of the factor the nodes that are left have, or fewer.

    Half of what it were if their least degree went on growing as it did, until they are a clique.
    """
    left = n - len(degree)
    window = min(len(degree) // 2, left // _WINDOW)
    if not window:
        return 0.0
    last, before = (float(np.median(x[-_WINDOW:])) for x in (degree, degree[:-window]))
    growth = max(0.0, last - before) / window
    steps = max(0.0, left - last) / (1 + growth)
    return (last * steps + growth * steps**2 / 2 + (left - steps) ** 2 / 2) / 2


def _dissected(order: Node, rest: Rest | None) -> Node:
    """The order with METIS's nested dissection of what minimum degree left in between.

    The few edges that the nodes before fill in are the same in either order, and METIS has a
    smaller graph to look at: that takes a twentieth of the time, and the tree is nearly as flat.
    """
    pymetis = optional("pymetis", "order='nested_dissection' is computed by METIS", "metis")
    if rest is None:
        return order
    nodes, begin, beside = rest
    options = pymetis.Options(ufactor=_UNEVEN)
    dissected, _ = pymetis.nested_dissection(pymetis.CSRAdjacency(begin, beside), options=options)
    return np.concatenate([order[: len(order) - len(nodes)], nodes[np.array(dissected)]])


def eliminate(
    n: int, row: Index, col: Index, *, sources: int | None = None, limit: float = math.inf,
    itemsize: int = 8, threads: int = 1,
) -> tuple[Structure, float]:  # fmt: skip
    """The structure by minimum degree and its cost (:func:`.costs.eliminations`).

    Parameters
    ----------
    n, row, col
        As for :func:`analyze`.
    sources : int, optional
        From how many there will be sweeps, which weigh against a dense core; default from all.
    limit : float
        Nanoseconds in which there is another method.
    itemsize : int
        Bytes of a label.
    threads : int
        That work.

    Returns
    -------
    structure : Structure
        O(Σ degree²) time, the degrees being those of the elimination.
    cost : float

    Raises
    ------
    TooExpensive
        Where it takes longer than the limit, after a small part of that time
        (:data:`.costs.ATTEMPT`).
    """
    count = n if sources is None else sources
    spare = costs.ATTEMPT * limit - costs.neighbours(n, len(row))
    if spare < 0:
        raise TooExpensive(_LARGE)
    first, near = neighbours(n, row, col)
    work = min(_WORK * (n + len(near)), spare / costs.ORDER)

    def look(degree: Node) -> None:
        left, edges = n - len(degree), _rest_of_fill(n, degree)
        if costs.rest(n, left, edges, count, itemsize=itemsize, threads=threads) > limit:
            raise TooExpensive(_LARGE)

    order, degree, _ = minimum_degree(n, first, near, int(work), count, look=look)
    expected = costs.eliminations(n, len(row), degree, count, itemsize=itemsize, threads=threads)
    eliminated = int(expected.argmin())
    if expected[eliminated] > limit:
        raise TooExpensive(_LARGE)
    return factorize(n, first, near, order, eliminated), float(expected[eliminated])


def neighbours(n: int, row: Index, col: Index) -> tuple[Index, Node]:
    """The distinct neighbours of each node."""
    first, near = np.empty(n + 2, np.int64), np.empty(2 * len(row), np.int32)
    compiled(kernels.adjacency)(
        n=n, m=len(row), row=np.ascontiguousarray(row, np.int64),
        col=np.ascontiguousarray(col, np.int64), first=first, near=near, mark=np.empty(n, np.int32),
    )  # fmt: skip
    return first[:-1], near[: first[n]].copy()


def minimum_degree(
    n: int, first: Index, near: Node, work: int, sources: int, least: int = 0,
    look: Callable[[Node], None] | None = None, low: int | None = None,
) -> tuple[Node, Node, Rest | None]:  # fmt: skip
    """All nodes by minimum degree, the degrees of the eliminated ones, and what was left before.

    The others are a core: of at least `least` nodes, unless `work` was used up. `look` is told the
    degrees so far every third of a second at least, and may raise what ends the work. Before was
    when all degrees exceeded `low`, None: there was no such time.
    """
    order, degree, size = np.empty((3, n), np.int32)
    near = near.copy()
    contracted = compiled(kernels.contract)(
        n=n, first=first, near=near, size=size, turn=np.empty(n, np.int32),
        lists=np.empty((2, n), np.int32), order=order, degree=degree,
    )  # fmt: skip
    nodes, first, near = _left(size, first[:-1], near, 0)
    m = len(nodes)
    room, size = np.empty((2, m), np.int32)
    bucket, following, before = np.empty((3, m + 1), np.int32)
    state = np.array([0, 0, 0, 0, 2], np.int64)
    lists: dict[str, Any] = {
        "n": m, "state": state, "mark": np.empty(m, np.int64), "begin": np.empty(m, np.int64),
        "size": size, "bucket": bucket, "following": following, "before": before, "room": room,
    }  # fmt: skip
    larger = np.empty(_larger(m, len(near)), np.int32)
    compiled(kernels.begin_degrees)(first=first, near=near, pool=larger, **lists)
    near, working, grant = larger, pool.get_num_threads(), _BEGIN
    fields = lists | {
        "sources": sources, "least": least, "order_cost": round(1000 * costs.ORDER * working),
        "triangle": round(1000 * costs.TRIANGLE), "sweep": round(1000 * costs.SWEEP),
        "pair": round(1000 * costs.PAIR), "order": order[contracted:],
        "degree": degree[contracted:], "contracted": contracted,
    }  # fmt: skip
    rest: Rest | None = None
    low = n if low is None else low
    while state[4] in (1, 3) or (state[4] == 2 and work > 0):
        if state[4] == 3:
            left, begin, beside = _left(size, lists["begin"], near, 1)
            rest, low = (nodes[left], begin, beside), n
        elif state[4] == 1:
            larger = np.empty(_larger(m - int(state[0]), int(size.sum())), np.int32)
            compiled(kernels.repack)(
                n=m, state=state, begin=lists["begin"], size=size, room=room, pool=near,
                larger=larger,
            )  # fmt: skip
            near = larger
        state[3] += (some := min(work, grant))  # so that Ctrl-C need not wait for all
        work, grant = work - some, min(2 * grant, _GRANT)
        if look is not None and state[0] > 0:  # contracted ones tell nothing of the others
            look(degree[: contracted + state[0]])
        compiled(kernels.minimum_degree)(**fields, low=low, capacity=len(near), pool=near)
    done = contracted + int(state[0])
    order[contracted:done] = nodes[order[contracted:done]]
    gone = np.zeros(n, bool)
    gone[order[:done]] = True
    order[done:] = (~gone).nonzero()[0]
    return order, degree[:done], rest


def _left(size: Node, begin: Index, near: Node, least: int) -> Rest:
    """The graph of the nodes with lists of at least so many neighbours, which are such nodes."""
    n = len(size)
    (nodes, place), first = np.empty((2, n), np.int32), np.empty(n + 1, np.int64)
    beside = np.empty(len(near), np.int32)
    m = compiled(kernels.induced)(
        n=n, least=least, begin=begin, size=size, near=near, place=place, nodes=nodes, first=first,
        beside=beside,
    )  # fmt: skip
    return nodes[:m], first[: m + 1], beside[: first[m]]


def _larger(lists: int, entries: int) -> int:
    """Memory for lists: half of their size to spare for each, and twice as much behind."""
    return 3 * (entries + entries // 2 + 4 * lists) + _SPARE


def factorize(
    n: int, first: Index, near: Node, order: Node, eliminated: int, most: int | None = None
) -> Structure:
    """Symbolic factorization in an order: elimination tree, postorder, and struct of each position.

    Parameters
    ----------
    n : int
    first, near
        Neighbours of each node.
    order : (n,) int32
    eliminated : int
        Of so many nodes of the order; the others are the core.
    most : int, optional
        Edges of the factor above which there is an error.

    Raises
    ------
    ValueError
        If there are more than `most` edges.
    """
    given, position = np.ascontiguousarray(order, np.int32), np.empty((2, n), np.int32)
    graph: dict[str, Any] = {"n": n, "near": near, "order": position[0], "rank": position[1]}
    parent, height = np.empty((2, eliminated), np.int32)
    compiled(kernels.elimination_tree)(
        **graph, eliminated=eliminated, first=first, given=given, parent=parent, height=height,
        scratch=np.empty((6, n), np.int32),
    )  # fmt: skip
    struct_first, head = np.empty(eliminated + 1, np.int64), np.empty(2 * len(near) + n, np.int32)
    state, scratch = np.array([0, 1], np.int64), np.empty((3, n), np.int32)
    while state[1]:
        state[1] = 0
        compiled(kernels.symbolic)(
            **graph, stop=eliminated, capacity=len(head), state=state, first=struct_first,
            near_first=first, child=scratch[0], sibling=scratch[1], mark=scratch[2], head=head,
            parent=parent,
        )  # fmt: skip
        if most is not None and struct_first[state[0]] > most:
            raise ValueError(f"head: an elimination in this order has more than {most} edges")
        if state[1]:
            head = np.concatenate([head, np.empty(len(head), np.int32)])
    head.resize(struct_first[-1], refcheck=False)  # in place
    begin = np.zeros(n + 2, np.int64)
    tail, edge = np.empty(len(head), np.int32), np.empty(len(head), np.int64)
    compiled(kernels.sort_heads)(
        n=n, rows=eliminated, first=struct_first, head=head, begin=begin, tail=tail, edge=edge,
        free=np.empty(eliminated, np.int64),
    )  # fmt: skip
    found = Structure(eliminated, graph["rank"], graph["order"], parent, height, struct_first, head)
    vars(found)["down"] = begin[:-1], tail, edge
    return found


def transpose(n: int, rows: int, first: Index, head: Node) -> tuple[Index, Node, Index]:
    """Transpose of a pattern: for each head where its edges begin, their tails, and the edges."""
    begin = np.zeros(n + 2, np.int64)
    tail, edge = np.empty(len(head), np.int32), np.empty(len(head), np.int64)
    compiled(kernels.transpose)(
        n=n, rows=rows, first=first, head=head, begin=begin, tail=tail, edge=edge
    )
    return begin[:-1], tail, edge
