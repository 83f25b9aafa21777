"""Making trees of the rows of a predecessor matrix where ties have closed a ring.

An elimination that takes one k at a time and only strict improvements gives trees. In blocks, two
equally good ways may be chosen for two nodes such that each is said to come before the other:
cycles of weight zero do that over min_plus, and any tie does over max_min. The distances are right
then; the predecessors of the nodes on such a ring are chosen again, from outside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..expressions import evaluate
from ..semirings import Semiring
from .paths import NO_PREDECESSOR

__all__ = ["Edges", "mend"]

Array = Any  # of the engine's library


@dataclass(frozen=True)
class Edges:
    """Edges ordered by the node to which they lead."""

    start: NDArray[np.int64]  # (m,)
    end: NDArray[np.int64]  # (m,) ascending
    weight: Array  # (m,)
    first: NDArray[np.int64]  # (n + 1,) of each end

    @classmethod
    def by_end(
        cls, n: int, start: NDArray[np.int64], end: NDArray[np.int64], weight: Array
    ) -> Edges:
        """Edges in any order between n nodes."""
        order = np.lexsort((start, end))
        end = end[order]
        return cls(start[order], end, weight[order], np.searchsorted(end, np.arange(n + 1)))

    @classmethod
    def chosen(cls, engine: Any, matrix: Array, kept: Array) -> Edges:
        """The entries of a matrix at the places kept."""
        places = engine.xp.nonzero(kept.T)
        end, start, weight = map(engine.to_host, (*places, matrix[places[::-1]]))
        first = np.searchsorted(end, np.arange(matrix.shape[0] + 1))
        return cls(start, end, weight, first)

    def into(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The positions of all edges that lead to some nodes."""
        counts = self.first[nodes + 1] - self.first[nodes]
        skipped = np.repeat(self.first[nodes] - (np.cumsum(counts) - counts), counts)
        return skipped + np.arange(len(skipped))


def mend(
    engine: Any,
    s: Semiring,
    d: Array,
    p: Array,
    sources: NDArray[np.int64] | None = None,
    adjacency: Array | Edges | Callable[[], Edges] | None = None,
) -> None:
    """Change predecessors, in place, so that every row of `p` is a tree.

    Parameters
    ----------
    engine : module
        Whose arrays the others are.
    s : Semiring
    d, p : arrays of shape (rows, n)
        Distances and predecessors.
    sources : (rows,) int64 of NumPy, optional
        The node at the root of each row; default 0 … n - 1.
    adjacency : (n, n), Edges or a callable that gives them, optional
        Where the edges are; a callable is asked only where a ring is found. Default: those on best
        paths are read off `d` and `p`, both whole: an edge that is a best path keeps its start as
        predecessor, since nothing is strictly better.
    """
    xp = engine.xp
    rows, n = p.shape
    roots = np.arange(n) if sources is None else sources
    own = engine.from_host(roots.astype(np.int32))[:, np.newaxis]
    # which may be there where rounding took a cycle for better than none
    p[xp.arange(rows), own[:, 0]] = NO_PREDECESSOR
    edges: Edges | None = None
    height = max(1, engine.TILE**2 * 4 // max(n, 1))
    for top in range(0, rows, height):
        part = slice(top, min(top + height, rows))
        before = xp.where(p[part] >= 0, p[part], own[part])
        nearer = xp.take_along_axis(d[part], before, 1)
        better = (evaluate(s.add_expr, nearer, d[part]) == nearer) & (nearer != d[part])
        # Where each step back is strictly nearer, no ring can be.
        doubtful = xp.flatnonzero(((p[part] >= 0) & ~better).any(axis=1))
        if not doubtful.size:
            continue
        ends, known = before[doubtful], -1
        # Steps of 2, 4, 8, …: once no further node comes to its root, none will.
        home = own[part][doubtful]
        while known != (known := int(xp.count_nonzero(ends == home))) and known < ends.size:
            ends = xp.take_along_axis(ends, ends, 1)
        astray = (ends != home) & (p[part][doubtful] >= 0)
        rings = xp.flatnonzero(astray.any(axis=1))
        for row, stray in zip(
            engine.to_host(doubtful[rings]).tolist(), engine.to_host(astray[rings]), strict=True
        ):
            if edges is None:  # only now: it takes a pass over the matrix
                edges = _edges(engine, s, d, p, adjacency)
            tree = engine.to_host(p[top + row])
            _replant(s, edges, engine.to_host(d[top + row]), tree, np.flatnonzero(stray))
            p[top + row] = engine.from_host(tree)


def _edges(
    engine: Any, s: Semiring, d: Array, p: Array,
    adjacency: Array | Edges | Callable[[], Edges] | None,
) -> Edges:  # fmt: skip
    n = p.shape[1]
    if callable(adjacency):
        found: Edges = adjacency()
        return found
    if isinstance(adjacency, Edges):
        return adjacency
    if adjacency is None:
        return Edges.chosen(engine, d, p == engine.xp.arange(n, dtype=np.int32)[:, np.newaxis])
    kept = adjacency != s.identities(adjacency.dtype)[0]
    kept &= ~engine.xp.eye(n, dtype=bool)
    return Edges.chosen(engine, adjacency, kept)


def _replant(
    s: Semiring, edges: Edges, d: Array, p: NDArray[np.int32], stray: NDArray[np.int64]
) -> None:
    """Hang the stray nodes of one row on its tree again."""
    planted = np.ones(len(d), bool)
    planted[stray] = False
    at = edges.into(stray)
    start, end = edges.start[at], edges.end[at]
    value = evaluate(s.mul_expr, d[start], edges.weight[at])
    exact = value == d[end]
    fits = np.flatnonzero(exact)
    while True:
        open_ = fits[planted[start[fits]] & ~planted[end[fits]]]
        if open_.size:
            chosen, where = np.unique(end[open_], return_index=True)
            p[chosen] = start[open_[where]]
            planted[chosen] = True
            continue
        if planted.all():
            return
        # Rounding left no edge that fits to the last bit: take the one that comes nearest.
        open_ = np.flatnonzero(planted[start] & ~planted[end])
        if not open_.size:
            raise AssertionError("a reachable node without an edge to it")
        nearest = open_[np.argmin(np.abs(value[open_] - d[end[open_]]))]
        p[end[nearest]] = start[nearest]
        planted[end[nearest]] = True
