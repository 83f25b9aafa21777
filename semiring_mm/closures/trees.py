"""Repair of predecessor rows in which ties or rounding have closed a cycle.

An elimination that takes one k at a time and only strict improvements gives trees. In blocks, two
equally good paths may be chosen for two nodes such that each is the predecessor of the other:
cycles of weight zero do that over min_plus, and any tie does over max_min. The distances are right
then, and every predecessor belongs to an edge that ends a shortest path, up to rounding. Only the
nodes on such a cycle, and behind it, need another predecessor.

Most cycles of weight zero are made of edges of weight zero, and these are the same for all rows:
their strongly connected components are computed once, and entered by one edge in each row. Then
other cycles are left only where weights are negative or rounding hides them, or ties are no sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

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

__all__ = ["best_edges", "cyclic_rows", "has_ties", "repair_trees"]

Array = Any  # of the engine's library
Index = NDArray[np.int64]

_ENTRIES = 1 << 18  # of predecessors that a task of a thread follows, about


class _Edges(NamedTuple):
    """The edges of a graph, and its components of edges whose weight is one."""

    entering: EdgeList  # by the nodes to which they lead
    # arguments of :func:`..graphs.kernels.trees.enter`; None: there are no components
    components: dict[str, Any] | None
    others: bool  # whether cycles may be left once these are entered

    @classmethod
    def of(cls, s: Semiring, dtype: np.dtype[Any], entering: EdgeList) -> _Edges:
        """Those of a graph in the type of its distances."""
        n, head, tail = entering.n, *(np.asarray(x, np.int32) for x in entering.arrays[:2])
        weight = entering.weight.astype(dtype, copy=False)
        neutral = weight == s.identities(dtype)[1]
        rest = weight[~neutral]
        low, high = (rest.min(), rest.max()) if rest.size else (1, 0)
        others = has_ties(s, n, dtype, low, high)
        names = ("number", "low", "above", "stack", "component", "top")
        nodes = {name: np.empty(n, np.int32) for name in names}
        count = engines.compiled(kernels.strong_components, "i4")(
            n=n, first=_starts(head[neutral], n), head=tail[neutral], at=np.empty(n, np.int64),
            **nodes,
        )  # fmt: skip
        part, top = nodes["component"], nodes["top"][:count]
        large = np.bincount(part, minlength=count) > 1
        part = np.where(large, np.cumsum(large) - 1, -1)[part].astype(np.int32)
        parts, top = int(large.sum()), top[large]
        if not parts:
            return cls(entering, None, True)
        inside = np.flatnonzero(neutral & (part[head] == part[tail]) & (part[head] >= 0))
        inside = inside[np.argsort(tail[inside], kind="stable")]
        outside = np.flatnonzero((part[head] >= 0) & (part[head] != part[tail]))
        outside = outside[np.argsort(part[head[outside]], kind="stable")]
        before = np.full(n, -1, np.int32)
        engines.compiled(kernels.span, "i4")(
            n=n, parts=parts, top=top, first=_starts(tail[inside], n), head=head[inside],
            before=before, queue=nodes["stack"],
        )  # fmt: skip
        components = {
            "parts": parts, "part": part, "top": top, "before": before, "above": nodes["above"],
            "into": _starts(part[head[outside]], parts), "tail": tail[outside],
            "head": head[outside], "weight": weight[outside],
        }  # fmt: skip
        return cls(entering, components, others)


def _starts(numbers: NDArray[np.int32], n: int) -> Index:
    """Where each of n numbers begins in a sorted array."""
    return np.searchsorted(numbers, np.arange(n + 1)).astype(np.int64)


def has_ties(s: Semiring, n: int, dtype: np.dtype[Any], low: Any, high: Any) -> bool:
    """Whether a predecessor may be no nearer than the node that follows it, so that cycles close.

    Weights are between `low` and `high`, and there are none where `low` is larger.
    """
    if s.name != "min_plus":
        return True
    if low > high:
        return False
    if dtype.kind in "iu":
        return bool(low <= 0)
    eps = float(np.finfo(dtype).eps)
    return bool(low <= 2 * float(n) ** 2 * eps * max(abs(float(low)), abs(float(high))))


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

    Each component of edges whose weight is ⊗'s one, 0 of sums, is entered by one edge. Then all
    nodes keep their predecessors but those of one path to each cycle that is left. It leads there
    from a node that the root reaches, by edges along which ``d[u] ⊗ w`` differs from ``d[v]`` the
    least, in sum over the path.

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
    if engine.xp is not np:
        of: _Edges | None = None
        for rows in cyclic_rows(engine, s, d, p, roots):
            of = of or _Edges.of(s, d.dtype, edges().entering)
            at = engine.from_host(rows)
            trees = engine.to_host(p[at])
            _repair(s, of, engine.to_host(d[at]), trees, roots[rows])
            p[at] = engine.from_host(trees)
        return
    _clear_roots(engine, p, roots)
    for part in _parts(engine, p):
        if _cyclic_on_host(p[part], roots[part]).any():
            rest = slice(part.start, None)  # the repair of a row that is a tree sees that it is one
            of = _Edges.of(s, d.dtype, edges().entering)
            _repair(s, of, d[rest], p[rest], roots[rest])
            return


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


def _repair(s: Semiring, of: _Edges, d: Array, p: NDArray[np.int32], roots: Index) -> None:
    """Change rows of predecessors, on the host, into trees."""
    rows, n = p.shape
    unit = 0.0 if s.order_only else epsilon(d.dtype)
    plan = entry_plan(s, d.dtype)
    tail = np.ascontiguousarray(of.entering.col, np.int32)
    weight = np.ascontiguousarray(of.entering.weight.astype(d.dtype, copy=False))
    lost = np.full(rows, -1)

    def some(lo: int, hi: int) -> None:
        trees = np.ascontiguousarray(p[lo:hi])
        given = {"n": n, "rows": hi - lo, "root": roots[lo:hi], "p": trees, "lost": lost[lo:hi],
                 "d": np.ascontiguousarray(d[lo:hi])}  # fmt: skip
        if of.components is not None:
            label = np.empty(n, plan.computed_in)
            engines.compiled(kernels.enter, plan)(**given, **of.components, label=label)
        if of.others and not (lost[lo:hi] >= 0).any():
            nodes = {
                name: np.empty(n, np.int32) for name in ("state", "following", "mark", "queue")
            }
            engines.compiled(kernels.repair, plan)(
                **given, **nodes, unit=unit, sums=int(s.mul_kind == "+"), first=of.entering.starts,
                tail=tail, weight=weight, on_cycle=np.empty(n + 1, np.int32), label=np.empty(n),
            )  # fmt: skip
        if not np.shares_memory(trees, p):
            p[lo:hi] = trees

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
