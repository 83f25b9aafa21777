"""All-pairs shortest paths of sparse graphs by eliminating their vertices.

An elimination joins the neighbours of a vertex through it and takes it away. In the order in which
vertices go, every shortest path then has one of equal length that first only rises and then only
falls, along original and added edges. Where separators are small, as in road networks, few edges
are added, and a sweep up and down over them replaces each search of Dijkstra's (Planken, de Weerdt
and van der Krogt, 2012). As only the structure decides the order, it is chosen before any weight
is looked at (Dibbelt, Strasser and Wagner, 2016).
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import check_memory
from ..closures.edges import EdgeList
from ..closures.paths import NegativeCycleError, find_negative_cycle
from ..closures.progress import Progress, reporter
from ..closures.trees import Edges, repair_trees
from ..closures.weights import Rounding, first_margins, with_margins, worsened
from ..cpu import engine, sweep, threads
from ..semirings import semirings
from .choice import dense_pairs

__all__ = ["solve", "solve_edges"]

Array = NDArray[Any]
Index = NDArray[np.int64]

# Cost model, in pairs of a dense elimination: to eliminate a vertex, per squared degree on one
# thread; to contract, per triangle on one thread; to sweep, per edge and source on all threads.
_CHOICE, _TRIANGLE, _SWEEP = 3000.0, 100.0, 4.0

#: Bytes that an elimination takes for a node without edges.
_NODE = 350


def solve(
    n: int,
    row: Index,
    col: Index,
    weight: Array,
    *,
    sources: Index | None,
    trees: bool,
    pairs: float = math.inf,
    out: Array | None = None,
    labels: Sequence[Any] | None = None,
    progress: Progress = None,
) -> tuple[Array, NDArray[np.int32] | None] | None:
    """Distances, and predecessors if `trees` are wanted, from all or some sources.

    Parameters
    ----------
    n : int
        Nodes of the graph.
    row, col, weight : (m,) arrays
        The edges, in one direction each; see :class:`Sweeps`.
    pairs : float
        The work of the alternative method; None is returned where this one would take longer.
    out : ndarray, optional
        Filled in place of a new array of distances; rows are contiguous.
    labels : list, optional
        Names of the nodes, for messages.
    """
    work = threads.get_num_threads()
    count = n if sources is None else len(sources)
    size, width = weight.dtype.itemsize, sweep.chunk_width(weight.dtype)
    result = count * n * ((0 if out is not None else size) + 4 * trees)
    check_memory(result, f"the result of {count} x {n} entries")  # before any work
    check_memory(result + _NODE * n, f"the elimination of {n} nodes")
    chosen = np.arange(n) if sources is None else sources
    order = eliminate(n, row, col, pairs / (_CHOICE * work))
    if order is None or _SWEEP * len(chosen) * len(order.tail) > pairs:
        return None
    needed = result + len(order.tail) * 80 + work * width * n * (size + 8 * trees)
    check_memory(needed, f"the result of {len(chosen)} x {n} entries")
    s, graph = semirings["min_plus"], weight

    def contracted(margins: Array | None) -> tuple[Array, Sweeps]:
        weight = graph if margins is None else worsened(s, graph, margins[row], margins[col])
        sweeps = Sweeps(order, row, col, weight, trees=trees)
        if sweeps.cycle:
            found = find_negative_cycle(row, col, graph, n)
            if isinstance(found, tuple):
                raise NegativeCycleError(*found, labels)
            raise Rounding(first_margins(row, col, graph, found))
        return weight, sweeps

    weight, sweeps = with_margins(s, graph.dtype, contracted)
    d = np.empty((len(chosen), n), weight.dtype) if out is None else out
    p = np.empty(d.shape, np.int32) if trees else None
    total = float(len(chosen)) * n
    tick = reporter(progress, total, "sparse elimination", "entries")
    doubtful = sweeps.run(chosen, d, p, tick)
    if p is not None and doubtful.size:
        repaired = p[doubtful]
        repair_trees(
            engine, s, d[doubtful], repaired,
            lambda: Edges.by_end(n, row, col, weight), chosen[doubtful],
        )  # fmt: skip
        p[doubtful] = repaired
    if tick is not None:
        tick(total)
    return d, p


def solve_edges(
    edges: EdgeList,
    method: str,
    rows: Index | None,
    predecessors: bool,
    progress: Progress,
    limit: float = math.inf,
) -> tuple[Array, NDArray[np.int32] | None] | None:
    """As :func:`solve`, for a list of edges; None also where `limit` pairs would take less time."""
    n, row, col, weight = len(edges.nodes), edges.row, edges.col, edges.weight
    pairs = dense_pairs(n, len(row), method, None if rows is None else len(rows))
    if not pairs:
        return None
    weight = weight.astype(np.float32 if weight.dtype == np.float32 else np.float64)
    if (lowest := np.flatnonzero(weight == -np.inf)).size:
        i, j = row[lowest[0]], col[lowest[0]]
        raise ValueError(f"the weight at [{i}, {j}] is -inf; use inf for no edge")
    kept = weight < np.inf
    row, col, weight = row[kept], col[kept], weight[kept]
    if not edges.directed:
        row, col = np.concatenate([row, col]), np.concatenate([col, row])
        weight, pairs = np.concatenate([weight, weight]), pairs / 2
    return solve(
        n, row, col, weight, sources=rows, trees=predecessors, pairs=min(pairs, limit),
        labels=edges.nodes, progress=progress,
    )  # fmt: skip


@dataclass(frozen=True)
class Elimination:
    """An elimination order and the edges of the graph that it fills in.

    Attributes
    ----------
    position : (n,) int64
        Of each vertex in the order, which is a postorder of the elimination tree: the descendants
        of a vertex come right before it.
    parent : (n,) int64
        By position: the first higher neighbour, n where there is none.
    tail, head : (edges,) int64
        Positions that an edge joins, tail < head, in ascending order.
    """

    position: Index
    parent: Index
    tail: Index
    head: Index


def eliminate(n: int, row: Index, col: Index, limit: float = math.inf) -> Elimination | None:
    """The elimination order by minimum degree.

    Returns None if the sum of squared degrees, to which time is proportional, exceeds a limit.
    """
    names = list(range(n))  # one object for each vertex: sets find those by identity
    near: list[set[int]] = [set() for _ in names]
    for u, v in zip(row.tolist(), col.tolist(), strict=True):
        near[u].add(names[v])
        near[v].add(names[u])
    for v in names:
        near[v].discard(v)
    order: list[int] = []
    heap = [(len(around), v) for v, around in enumerate(near)]
    heapq.heapify(heap)
    gone = bytearray(n)
    while heap:
        degree, v = heapq.heappop(heap)
        around = near[v]
        if gone[v] or len(around) < degree:  # a stale entry
            continue
        if len(around) > degree:
            heapq.heappush(heap, (len(around), v))
            continue
        if 3 * degree >= n - len(order):
            break
        limit -= degree * degree + 8
        if limit < 0:
            return None
        gone[v] = True
        order.append(v)
        for u in around:
            others = near[u]
            before = len(others)
            others |= around
            others.discard(u)
            others.discard(v)
            if len(others) < before:
                heapq.heappush(heap, (len(others), u))
    # The rest is nearly a clique: any order is as good, and needs no sets.
    left = n - len(order)
    limit -= left**3 / 6 * _TRIANGLE / _CHOICE
    if limit < 0:
        return None
    counts = np.array([len(near[v]) for v in order], np.int64)
    head = np.fromiter(itertools.chain.from_iterable(near[v] for v in order), np.int64)
    order += [v for v in names if not gone[v]]
    rank = np.empty(n, np.int64)
    rank[order] = np.arange(n)
    clique = np.triu_indices(left, 1)
    tail = np.concatenate([np.repeat(np.arange(len(counts)), counts), clique[0] + n - left])
    head = np.concatenate([rank[head], clique[1] + n - left])
    parent = np.full(n + 1, n)
    np.minimum.at(parent, tail, head)
    post = _postorder(parent[:n].tolist())
    key = np.sort(post[tail] * n + post[head])
    parent[post[:n]] = post[parent[:n]]
    return Elimination(post[rank], parent[:n], key // max(n, 1), key % max(n, 1))


def _postorder(parent: list[int]) -> Index:
    """The position of each node of a forest; children have smaller numbers than their parents."""
    n = len(parent)
    size, begin, post = [1] * (n + 1), [0] * (n + 1), [n] * (n + 1)
    for v, up in enumerate(parent):
        size[up] += size[v]
    for v in reversed(range(n)):
        begin[v] = begin[parent[v]]
        begin[parent[v]] += size[v]
        post[v] = begin[v] + size[v] - 1
    return np.array(post, np.int64)


class Sweeps:
    """Shortest paths over the edges of an elimination.

    Parameters
    ----------
    order : Elimination
    row, col, weight : (m,) arrays
        The edges; of parallel ones the shortest counts. float32, float64, int32 or int64 weights,
        finite; n + 1 integers must add up to less than an eighth of what the type holds.
    trees : bool
        Whether to find predecessors.

    Attributes
    ----------
    cycle : bool
        Whether a cycle seems to have negative weight (by rounding or in truth).
    """

    def __init__(
        self, order: Elimination, row: Index, col: Index, weight: Array, *, trees: bool
    ) -> None:
        self.order, self.trees, self.dtype = order, trees, weight.dtype
        n = len(order.position)
        self.hops = trees and _ties(weight, n)
        first = np.searchsorted(order.tail, np.arange(n + 1))
        head = order.head.astype(np.int32)
        status = np.zeros(1, np.int64)
        loops = row == col
        self.cycle = bool((weight[loops] < 0).any())
        a, b = order.position[row[~loops]], order.position[col[~loops]]
        at = np.searchsorted(order.tail * n + order.head, np.minimum(a, b) * n + np.maximum(a, b))
        fields: dict[str, Any] = {"n": n, "first": first, "head": head, "status": status}
        for way, there in (("out", a < b), ("back", a > b)):
            edges = fields[way] = np.full(len(head), sweep.unreached(self.dtype), self.dtype)
            np.minimum.at(edges, at[there], weight[~loops][there])
            if trees:
                before = fields[f"{way}_pred"] = np.full(len(head), sweep.UNREACHED, np.int32)
                before[at[there]] = row[~loops][there]
                fields[f"{way}_hops"] = np.ones(len(head), np.int32)
        sweep.contract(self.dtype, trees, self.hops, fields)
        self.cycle = self.cycle or bool(status[0])
        where = np.ascontiguousarray(order.position)
        self.fields: dict[str, Any] = {"n": n, "where": where, "parent": order.parent}
        for way, source in (("up", "out"), ("down", "back")):
            kept = fields[source] < sweep.unreached(self.dtype) / 2
            self.fields[f"{way}_first"] = np.concatenate([[0], np.cumsum(kept)])[first]
            self.fields[f"{way}_head"] = head[kept]
            for kind in ("", "_hops", "_pred") if trees else ("",):
                self.fields[way + kind] = fields[source + kind][kept]

    @property
    def edges(self) -> int:
        """Number of edges of a downward pass."""
        return len(self.fields["down"])

    def run(
        self,
        sources: Index,
        d: Array,
        p: NDArray[np.int32] | None,
        tick: Callable[[float], None] | None = None,
    ) -> Index:
        """Fill a row of `d` (and `p`), contiguous, for each source.

        Returns the rows of `p` that rounding may have kept from being trees.
        """
        width = sweep.chunk_width(self.dtype)
        if not len(sources):
            return sources
        position = self.order.position[sources]
        rows = np.argsort(position, kind="stable")
        chunks = -(-len(rows) // width)
        rows = np.concatenate([rows, np.repeat(rows[-1:], chunks * width - len(rows))])
        doubt = np.zeros(len(rows), np.int64)
        tasks = min(chunks, 16 * threads.get_num_threads())
        cuts = (np.linspace(0, chunks, tasks + 1).astype(int) * width).tolist()

        def some(begin: int, end: int) -> None:
            n = len(self.order.position)
            kinds = {"label": self.dtype.itemsize, "hops": 4 * self.hops, "pred": 4 * self.trees}
            fields = self.fields | {x: _aligned(n * width * size) for x, size in kinds.items()}
            fields |= {"d": d, "p": d if p is None else p}
            for i in range(begin, end, width):
                chunk = rows[i : i + width]
                fields["sources"] = np.append(position[chunk], n)
                fields["d_offsets"] = chunk * d.strides[0]
                fields["p_offsets"] = chunk * (0 if p is None else p.strides[0])
                fields["doubt"] = doubt[i : i + width]
                sweep.sweep(self.dtype, self.trees, self.hops, fields)

        def done(count: int) -> None:
            if tick is not None:
                tick(float(min(cuts[count], len(sources))) * len(self.order.position))

        threads.run([functools.partial(some, *x) for x in itertools.pairwise(cuts)], done)
        return np.unique(rows[doubt != 0])


def _ties(weight: Array, n: int) -> bool:
    """Whether weights are so near zero that a predecessor may not be strictly nearer."""
    if not weight.size:
        return False
    least, largest = weight.min(), float(abs(weight).max())
    if weight.dtype.kind == "i":
        return bool(least <= 0)
    return bool(least <= 2 * float(n) ** 2 * float(np.finfo(weight.dtype).eps) * largest)


def _aligned(size: int) -> NDArray[np.uint8]:
    """Memory that begins with a cache line."""
    raw = np.empty(size + 64, np.uint8)
    first = -raw.ctypes.data % 64
    return raw[first : first + size]
