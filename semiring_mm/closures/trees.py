"""Repair of predecessor rows in which ties or rounding have closed a cycle.

An elimination that takes one k at a time and only strict improvements gives trees. In blocks, two
equally good paths may be chosen for two nodes such that each is the predecessor of the other:
cycles of weight zero do that over min_plus, and any tie does over max_min. The distances are right
then, and every predecessor belongs to an edge that ends a shortest path, up to rounding. Only the
nodes on such a cycle, and behind it, need another predecessor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine import Engine
from ..expressions import evaluate
from ..graph_kernels import ranges
from ..semirings import Semiring
from .edges import EdgeList
from .paths import NO_PREDECESSOR, epsilon

__all__ = ["best_edges", "cyclic_rows", "repair_trees"]

Array = Any  # of the engine's library
Index = NDArray[np.int64]

_EDGES = 1 << 21  # that are looked at together, of as many rows as that takes


def best_edges(
    s: Semiring, n: int, strips: Iterable[tuple[int, NDArray[Any], NDArray[Any]]]
) -> EdgeList:
    """The edges that are best paths themselves, but for rounding.

    All best paths are made of such edges; in a dense graph they are few.

    Parameters
    ----------
    s : Semiring
    n : int
        Nodes.
    strips : iterable of (first row, weights, distances)
        Whole rows of the graph's matrix and of its closure, on the host.
    """
    parts = []
    for row, weights, d in strips:
        # each of up to 2 n additions on a path is off by half a unit of what the row holds
        near = _excess(s, weights, d, _scale(d)) <= 8 * n
        near &= weights != s.identities(weights.dtype)[0]
        start, end = np.nonzero(near)
        start, end = start[start + row != end], end[start + row != end]
        parts.append((start + row, end, weights[start, end].astype(d.dtype)))
    return EdgeList.joined(n, parts)


def repair_trees(
    engine: Engine,
    s: Semiring,
    d: Array,
    p: Array,
    edges: Callable[[], EdgeList],
    sources: Index | None = None,
) -> None:
    """Change predecessors, in place, so that every row of `p` is a tree of shortest paths.

    Nodes whose predecessors lead to the source keep them. The others are attached again by edges
    along which ``d[u] ⊗ w`` differs from ``d[v]`` the least, in sum over the path.

    Parameters
    ----------
    engine : module
        Whose arrays `d` and `p` are.
    s : Semiring
    d, p : arrays of shape (rows, n)
        Distances and predecessors.
    edges : callable
        Gives the graph's edges, or at least its :func:`best_edges`. Called only where a cycle is
        found, once.
    sources : (rows,) int64 of NumPy, optional
        The node at the root of each row; default 0 … n - 1.
    """
    roots = np.arange(p.shape[1]) if sources is None else sources
    entering: EdgeList | None = None
    for rows, stray in cyclic_rows(engine, s, d, p, roots):
        if entering is None:
            entering = edges().entering
        at = engine.from_host(rows)
        distances, trees = engine.to_host(d[at]), engine.to_host(p[at])
        for x in _parts(stray, entering):
            _attach(s, entering, distances[x], trees[x], stray[x], roots[rows][x])
        p[at] = engine.from_host(trees)


def cyclic_rows(
    engine: Engine, s: Semiring, d: Array, p: Array, roots: Index
) -> Iterator[tuple[Index, NDArray[np.bool_]]]:
    """The rows of `p` that are no trees, some at a time, with the nodes that miss the root.

    Roots lose what predecessors they have: rounding may take a cycle for better than none.
    """
    xp = engine.xp
    rows, n = p.shape
    own = engine.from_host(roots.astype(np.int32))[:, np.newaxis]
    p[xp.arange(rows), own[:, 0]] = NO_PREDECESSOR
    # Where each step back is strictly nearer, there can be no cycle.
    doubtful = engine.doubtful(s, d, p)
    height = max(1, engine.TILE**2 * 4 // max(n, 1))
    for top in range(0, len(doubtful), height):
        at = engine.from_host(doubtful[top : top + height])
        marks, home, count = p[at], own[at], -1
        ends = xp.where(marks >= 0, marks, home)
        # Steps of 2, 4, 8, …: once no further node comes to its root, none will.
        while count != (count := int(xp.count_nonzero(ends == home))) and count < ends.size:
            ends = xp.take_along_axis(ends, ends, 1)
        stray = (ends != home) & (marks >= 0)
        cyclic = xp.flatnonzero(stray.any(axis=1))
        if cyclic.size:
            yield engine.to_host(at[cyclic]), engine.to_host(stray[cyclic])


def _excess(s: Semiring, value: Array, d: Array, scale: Array) -> NDArray[np.float64]:
    """How far values are from distances, in units of rounding; infinite where that is exact.

    A sum is off by units of what it was added up from, which the :func:`_scale` of its row bounds;
    what other operations give by units of itself.
    """
    unit = 0.0 if s.order_only else epsilon(d.dtype)
    if not unit:
        return np.where(value == d, 0.0, np.inf)
    value, exact = value.astype(np.float64), d.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.abs(value - exact) / (unit * (scale if s.mul_kind == "+" else np.abs(exact)))
    return np.where(value == exact, 0.0, np.where(np.isnan(off), np.inf, off))


def _scale(d: Array) -> NDArray[np.float64]:
    """The largest finite distance of each row, (rows, 1)."""
    size = np.abs(d.astype(np.float64))
    largest: NDArray[np.float64] = size.max(1, keepdims=True, initial=0, where=np.isfinite(size))
    return largest


def _parts(stray: NDArray[np.bool_], entering: EdgeList) -> Iterator[slice]:
    """Rows whose stray nodes are attached at once, as many as fit."""
    counts = np.cumsum(stray @ np.diff(entering.starts))
    begin = 0
    while begin < len(stray):
        limit = _EDGES + (counts[begin - 1] if begin else 0)
        end = max(begin + 1, int(np.searchsorted(counts, limit, "right")))
        yield slice(begin, end)
        begin = end


def _attach(
    s: Semiring,
    entering: EdgeList,
    d: Array,
    p: NDArray[np.int32],
    stray: NDArray[np.bool_],
    roots: Index,
) -> None:
    """Attach the stray nodes of some rows to the trees of these.

    The method of Bellman and Ford searches in all rows at once, with excess as the weight. As no
    excess is negative, what a rounded sum strictly improves never closes a cycle.
    """
    row, node = np.nonzero(stray)
    place = np.full(stray.shape, -1)
    place[row, node] = np.arange(len(row))
    tree = (p >= 0) & ~stray
    tree[np.arange(len(p)), roots] = True

    # the edges into stray nodes (head), from the tree (tail < 0) or from other stray ones
    first, degree = entering.starts[:-1], np.diff(entering.starts)
    at, head = ranges(first[node], degree[node]), np.repeat(np.arange(len(row)), degree[node])
    start = entering.col[at]
    tail = place[row[head], start]
    usable = tree[row[head], start] | (tail >= 0)
    at, head, tail, start = at[usable], head[usable], tail[usable], start[usable]
    line = row[head]
    exact = d.dtype if s.order_only or not epsilon(d.dtype) else np.float64
    value = evaluate(s.mul_expr, d[line, start].astype(exact), entering.weight[at].astype(exact))
    excess = _excess(s, value, d[line, node[head]], _scale(d)[line, 0])

    label = np.full(len(row), np.inf)  # of a stray node: the excess of the path to it
    margin = 16.0
    while not np.isfinite(label).all():
        kept = np.flatnonzero(excess <= margin)
        kept = kept[np.argsort(tail[kept], kind="stable")]
        first = np.searchsorted(tail[kept], np.arange(len(row) + 1))
        active = kept[(tail[kept] < 0) | np.isfinite(label[tail[kept]])]
        while active.size:
            reach = excess[active] + np.where(tail[active] < 0, 0, label[tail[active]])
            order = np.lexsort((reach, head[active]))
            active, reach = active[order], reach[order]
            best = np.flatnonzero(np.diff(head[active], prepend=-1))
            best = best[reach[best] < label[head[active[best]]]]
            chosen = active[best]
            moved = head[chosen]
            label[moved] = reach[best]
            p[row[moved], node[moved]] = start[chosen]
            active = kept[ranges(first[moved], first[moved + 1] - first[moved])]
        if margin == np.inf:
            at_fault = int(np.flatnonzero(np.isinf(label))[0])
            raise ValueError(
                f"{s.name}: no path along edges from node {roots[row[at_fault]]} to node "
                f"{node[at_fault]} is worth what the closure says; see Semiring.check_laws"
            )
        margin *= margin
