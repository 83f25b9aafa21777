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

from .. import engine as engines
from .. import pool
from ..engine import Engine
from ..graphs.kernels import trees as kernels
from ..plan import entry_plan
from ..semirings import Semiring
from .edges import EdgeList
from .paths import NO_PREDECESSOR, epsilon

__all__ = ["best_edges", "cyclic_rows", "repair_trees"]

Array = Any  # of the engine's library
Index = NDArray[np.int64]

_ENTRIES = 1 << 17  # of predecessors that a task of a thread follows, about


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

    All nodes keep their predecessors but those of one path to each cycle. It leads there from a
    node that the root reaches, by edges along which ``d[u] ⊗ w`` differs from ``d[v]`` the least,
    in sum over the path.

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
    if engine.xp is not np:
        for rows in cyclic_rows(engine, s, d, p, roots):
            entering = entering or edges().entering
            at = engine.from_host(rows)
            trees = engine.to_host(p[at])
            _repair(s, entering, engine.to_host(d[at]), trees, roots[rows])
            p[at] = engine.from_host(trees)
        return
    _clear_roots(engine, p, roots)
    for part in _parts(engine, p):  # the repair of a row that is a tree sees that it is one
        if entering is None and _cyclic_on_host(p[part], roots[part]).any():
            entering = edges().entering
        if entering is not None:
            trees = np.ascontiguousarray(p[part])
            _repair(s, entering, np.ascontiguousarray(d[part]), trees, roots[part])
            if not np.shares_memory(trees, p):
                p[part] = trees


def cyclic_rows(engine: Engine, s: Semiring, d: Array, p: Array, roots: Index) -> Iterator[Index]:
    """The rows of `p` that are no trees, some at a time.

    Roots lose what predecessors they have: rounding may take a cycle for better than none.
    """
    _clear_roots(engine, p, roots)
    if engine.xp is np:
        for part in _parts(engine, p):
            rows = part.start + np.flatnonzero(_cyclic_on_host(p[part], roots[part]))
            if rows.size:
                yield rows
        return
    # Where each step back is strictly nearer, there can be no cycle.
    doubtful = engine.doubtful(s, d, p)
    for part in _parts(engine, p[: len(doubtful)]):
        rows = doubtful[part]
        rows = rows[_cyclic_on_device(engine, p[engine.from_host(rows)], roots[rows])]
        if rows.size:
            yield rows


def _clear_roots(engine: Engine, p: Array, roots: Index) -> None:
    """Take the predecessors of roots away."""
    p[engine.xp.arange(len(p)), engine.from_host(roots)] = NO_PREDECESSOR


def _parts(engine: Engine, p: Array) -> Iterator[slice]:
    """Rows that are looked at together."""
    rows, n = p.shape
    height = max(1, engine.TILE**2 * 4 // max(n, 1))
    for top in range(0, rows, height):
        yield slice(top, min(top + height, rows))


def _cyclic_on_host(p: NDArray[np.int32], roots: Index) -> NDArray[np.bool_]:
    """Whether each row has a node that does not lead to its root."""
    rows, n = p.shape
    p = np.ascontiguousarray(p)
    cyclic = np.zeros(rows, np.uint8)

    def some(lo: int, hi: int) -> None:
        engines.compiled(kernels.cyclic, "i4")(
            n=n, rows=hi - lo, root=roots[lo:hi], p=p[lo:hi], cyclic=cyclic[lo:hi],
            state=np.empty(n, np.int32), on_cycle=np.empty(n + 1, np.int32),
        )  # fmt: skip

    pool.run_parts(some, rows, -(-p.size // _ENTRIES))
    return cyclic.astype(bool)


def _cyclic_on_device(engine: Engine, p: Array, roots: Index) -> NDArray[np.bool_]:
    """The same by array operations, so that only rows with cycles leave the device."""
    xp = engine.xp
    home, count = engine.from_host(roots.astype(np.int32))[:, np.newaxis], -1
    ends = xp.where(p >= 0, p, home)
    # Steps of 2, 4, 8, …: once no further node comes to its root, none will.
    while count != (count := int(xp.count_nonzero(ends == home))) and count < ends.size:
        ends = xp.take_along_axis(ends, ends, 1)
    cyclic: NDArray[np.bool_] = engine.to_host(((ends != home) & (p >= 0)).any(axis=1))
    return cyclic


def _repair(s: Semiring, entering: EdgeList, d: Array, p: NDArray[np.int32], roots: Index) -> None:
    """Change rows of predecessors, on the host, into trees."""
    rows, n = p.shape
    unit = 0.0 if s.order_only else epsilon(d.dtype)
    plan = entry_plan(s, d.dtype)
    tail = np.ascontiguousarray(entering.col, np.int32)
    weight = np.ascontiguousarray(entering.weight.astype(d.dtype, copy=False))
    lost = np.empty(rows, np.int64)

    def some(lo: int, hi: int) -> None:
        nodes = {name: np.empty(n, np.int32) for name in ("state", "following", "mark", "queue")}
        engines.compiled(kernels.repair, plan)(
            n=n, rows=hi - lo, unit=unit, sums=int(s.mul_kind == "+"), root=roots[lo:hi],
            first=entering.starts, tail=tail, weight=weight, d=d[lo:hi], p=p[lo:hi],
            on_cycle=np.empty(n + 1, np.int32), label=np.empty(n), lost=lost[lo:hi], **nodes,
        )  # fmt: skip

    pool.run_parts(some, rows, -(-p.size // _ENTRIES))
    for row in np.flatnonzero(lost >= 0)[:1]:
        raise ValueError(
            f"{s.name}: no path along edges from node {roots[row]} to node "
            f"{lost[row]} is worth what the closure says; see Semiring.check_laws"
        )


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
