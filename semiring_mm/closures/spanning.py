"""Closures of undirected graphs over minimum and maximum, from spanning forests.

Over max_min the best path between two nodes is the one in a maximum spanning tree (Hu, 1961). As
Kruskal's method joins parts along ever worse edges, it also puts the nodes in a line in which the
worst gap between two places is that path's worst edge (Gower and Ross, 1969). So O(n²) suffice to
write the closure, after the edges are sorted or, of a dense matrix, after the rounds of Borůvka
(1926), in which every part looks for its best edge to another. A row is read again only where its
best edge has come to lie within a part, and the part knows of no better one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from ..engine import Engine, Forest
from ..graphs.kernels import forest as kernels
from ..graphs.kernels.elimination import adjacency
from ..progress import reporter
from ..semirings import Semiring
from . import memory
from .solve import Problem

__all__ = ["SpanningForest", "applies", "close", "of_edges", "of_matrix", "spans"]

Array = Any  # of the engine's library
Host = NDArray[Any]
Index = NDArray[np.int32]


def spans(s: Semiring, dtype: np.dtype[Any]) -> bool:
    """Whether ⊕ and ⊗ are minimum and maximum, or maximum and minimum, in a dtype."""
    kinds = s.add_kind, s.mul_kind
    if dtype.kind == "b" and kinds in (("|", "&"), ("&", "|")):
        return True
    return kinds in (("min", "max"), ("max", "min"))


def applies(problem: Problem) -> bool:
    """Whether a problem of an undirected graph can be solved here.

    Every entry has to lie between zero and one, which are infinite or the domain's ends: an edge
    that is worse than none, or better than staying, is the elimination's matter.
    """
    source, facts = problem.source, problem.weights.facts
    if not spans(source.s, source.dtype):
        return False
    ends = sorted(float(x) for x in source.s.identities(source.dtype))
    return facts.lo > facts.hi or (ends[0] <= facts.lo and facts.hi <= ends[1])


@dataclass(frozen=True)
class SpanningForest:
    """The best spanning trees of a graph's parts."""

    s: Semiring
    # (edges,): the ends of the edges
    row: Index
    col: Index
    place: Index  # (n,): of each node in the line
    gaps: Host  # (n - 1,): behind each place but the last; zero between two trees

    def rooted(self) -> Forest:
        """The trees, each with a root."""
        n, m = len(self.place), len(self.row)
        first, near = np.zeros(n + 2, np.int64), np.empty(2 * m, np.int32)
        engines.compiled(adjacency)(
            n=n, m=m, row=self.row, col=self.col, first=first, near=near,
            mark=np.full(n, -1, np.int32),
        )  # fmt: skip
        found = Forest(*(np.empty(n, np.int32) for _ in range(3)))
        above = np.full(n, -2, np.int32)
        engines.compiled(kernels.preorder)(
            n=n, first=first, near=near, above=above, **found._asdict()
        )
        return found

    def write(self, engine: Engine, d: Array, p: Array | None, rows: Index | None = None) -> None:
        """The closure of all or some rows, and predecessors; rows of both are contiguous."""
        chosen = np.arange(len(self.place), dtype=np.int32) if rows is None else rows
        engine.between(self.s, self.gaps, self.place, chosen, d)
        if p is not None:
            engine.towards(self.rooted(), chosen, p)


def of_edges(s: Semiring, n: int, row: Host, col: Host, weight: Host) -> SpanningForest:
    """The spanning forest of a list of edges, none of which has the weight zero."""
    order = np.argsort(_keys(s, weight), kind="stable")
    row, col = (np.ascontiguousarray(x[order], np.int32) for x in (row, col))
    own = np.arange(n, dtype=np.int32)
    scratch = {name: own.copy() for name in ("parent", "head", "tail")}
    none = {name: np.full(n, -1, np.int32) for name in ("following", "after")}
    line, gap = np.empty((2, n), np.int32)
    engines.compiled(kernels.kruskal)(
        n=n, m=len(row), row=row, col=col, order=line, gap=gap, size=np.ones(n, np.int32),
        **scratch, **none,
    )  # fmt: skip
    place = np.empty(n, np.int32)
    place[line] = own
    gaps = np.full(max(0, n - 1), s.identities(weight.dtype)[0], weight.dtype)
    known = gap[: len(gaps)] >= 0
    taken = gap[: len(gaps)][known]
    gaps[known] = weight[order[taken]]
    return SpanningForest(s, row[taken], col[taken], place, gaps)


def of_matrix(engine: Engine, s: Semiring, a: Array) -> SpanningForest:
    """The spanning forest of a symmetric matrix with contiguous rows."""
    n, xp = int(a.shape[0]), engine.xp
    own = np.arange(n, dtype=np.int32)
    group, parent, near, rows = own.copy(), own.copy(), own.copy(), own
    best: Host = np.empty(n, a.dtype)
    key, state = np.zeros(n, np.int64), np.zeros(2, np.int64)
    fresh, stale, again, joined = np.empty((4, n), np.int32)
    row, col = np.empty((2, n), np.int32)
    weight: Host = np.empty(n, a.dtype)
    grow = engines.compiled(kernels.grow).bind(
        n=n, state=state, key=key, near=near, group=group, parent=parent, fresh=fresh, stale=stale,
        joined=joined, rows=again,
    )  # fmt: skip
    while len(rows):
        at, value = xp.empty(len(rows), np.int32), xp.empty(len(rows), a.dtype)
        groups, chosen = engine.from_host(group), engine.from_host(rows)
        engine.best_outside(s, a, groups, chosen, at, value)
        near[rows], best[rows] = engine.to_host(at), engine.to_host(value)
        key[rows] = _keys(s, best[rows])
        before = int(state[0])
        grow()
        new = slice(before, int(state[0]))
        nodes = joined[new]
        row[new], col[new], weight[new] = nodes, near[nodes], best[nodes]
        rows = again[: int(state[1])].copy()
    edges = slice(0, int(state[0]))
    return of_edges(s, n, row[edges], col[edges], weight[edges])


def _keys(s: Semiring, x: Host) -> NDArray[np.int64]:
    """Integers that are less the better a number is."""
    if x.dtype.kind in "iub":
        wide = x.view(np.int64) ^ np.int64(-(1 << 63)) if x.dtype == np.uint64 else x
        keys = wide.astype(np.int64)
    else:
        raw = x.astype(np.float64).view(np.int64)
        keys = raw ^ ((raw >> 63) & np.int64((1 << 63) - 1))
    return keys if s.add_kind in ("min", "&") else ~keys


def close(
    problem: Problem, rows: NDArray[np.int64] | None = None, *, keep: bool = False
) -> tuple[Array, Array | None]:
    """The closure of a symmetric matrix, all of it or some rows, and its predecessors.

    All of it is in the memory of the source, unless that is to be kept.
    """
    source = memory.source_of(problem)
    engine, xp, n = source.engine, source.engine.xp, source.n
    count = n if rows is None else len(rows)
    tick = reporter(problem.progress, float(count) * n, "a spanning tree", "entries")
    d = source.array if keep else source.take(problem.weights, trees=False)
    # the rows of a symmetric matrix are its columns
    flat = next((x for x in (d, d.T) if x.strides[1] == x.itemsize), None)
    work = xp.ascontiguousarray(d) if flat is None else flat
    tree = of_matrix(engine, source.s, work)
    p = xp.empty((count, n), np.int32) if problem.predecessors else None
    if keep or rows is not None:
        d = work = xp.empty((count, n), d.dtype)
    tree.write(engine, work, p, None if rows is None else rows.astype(np.int32))
    if work is not d and flat is None:
        d[...] = work
    if tick is not None:
        tick(math.inf)
    return d, p
