"""Paths of sparse graphs by eliminating their vertices, where that is less work than another way.

An elimination joins the neighbours of a vertex through it and takes it away. In the order in which
vertices go, every shortest path then has one of equal length that first only rises and then only
falls, along original and added edges. Where separators are small, as in road networks, few edges
are added, and a sweep up and down over them replaces each search of Dijkstra's (Planken, de Weerdt
and van der Krogt, 2012). As only the structure decides the order, it is chosen before any weight
is looked at (Dibbelt, Strasser and Wagner, 2016). Where separators are large, what is left becomes
a dense core (:mod:`..hierarchy`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import check_memory, device_index
from ..closures import memory
from ..closures.solve import Problem
from ..closures.sources import weights_of
from ..hierarchy import costs
from ..hierarchy.costs import TooExpensive
from ..hierarchy.devices import fetch, place
from ..hierarchy.gradient import SweepLoads
from ..hierarchy.metric import Metric, customize
from ..hierarchy.symbolic import Structure, analyze, eliminate
from ..progress import part_of, reporter
from .choice import Request, hop_device, sweep_device
from .dijkstra import search, search_shifted
from .hops import Hops
from .rows import Sweeps

__all__ = [
    "by_elimination", "by_hops", "by_search", "by_search_shifted", "elimination_cost", "hops_cost",
    "reverse_sweeps_bytes", "reverse_sweeps_cost", "rows_by_sweeps",
]  # fmt: skip

Array = NDArray[Any]
Index = NDArray[np.int64]
#: Bytes that the structure of an elimination takes for a node without edges.
_NODE = 350
#: Edges of which the cost of one is told.
_EDGES = 1e6
#: Part of the nodes that are sources from which nested dissection is worth its time.
_DISSECT = 16
#: Nodes of a core above which a device does better without an elimination.
_CORE = 4096
Solved = tuple[Array, NDArray[np.int32] | None]


def elimination_cost(r: Request, limit: float) -> float:
    """Nanoseconds of an elimination and its sweeps; TooExpensive from a limit on.

    The order is found on the way, and kept for the elimination.
    """
    problem, n = r.sparse, r.n
    size = problem.steps.dtype.itemsize
    edges = r.listed
    if costs.least(n, len(edges.col), r.count, threads=r.threads) > limit:
        raise TooExpensive("takes longer, whatever the separators")
    row, col = edges.row, edges.col
    if limit == math.inf and r.kept:  # before any work
        check_memory(r.result_bytes + _NODE * n, f"the elimination of {n} nodes")
    if r.structure is not None:
        cost = costs.eliminations(
            n, len(row), np.diff(r.structure.first), r.count, itemsize=size, threads=r.threads
        )[-1]
        return float(cost)
    structure, cost = eliminate(
        n, row, col, sources=r.count, limit=limit, itemsize=size, threads=r.threads
    )  # fmt: skip
    if r.elsewhere and r.kept and limit < math.inf and structure.core > _CORE:
        raise TooExpensive(f"a device closes more than {_CORE} nodes of a core as a whole")
    r.structure = structure
    return cost


def reverse_sweeps_cost(r: Request, limit: float) -> float:
    """Nanoseconds of reverse sweeps; TooExpensive from a limit on, as far as the order tells."""
    row, col, _ = r.listed.arrays

    def cost(edges: float, triangles: float) -> float:
        return costs.reverse_sweeps(r.n, len(row), edges, triangles, r.count, threads=r.threads)

    least = cost(0, 0)
    if least > limit:
        raise TooExpensive("takes longer, whatever the separators")
    if r.structure is None:
        each = (cost(_EDGES, 0) - least) / _EDGES
        work = (costs.ATTEMPT * limit - costs.neighbours(r.n, len(row))) / costs.ORDER
        # nested dissection takes as long as the sweeps of some sources
        order = "auto" if _DISSECT * r.count > r.n else "minimum_degree"
        most = None if limit == math.inf else (limit - least) / each
        r.structure = analyze(r.n, row, col, order, most=most, work=max(0.0, work))
    return cost(len(r.structure.head), r.structure.pairs)


def reverse_sweeps_bytes(r: Request) -> int:
    """Memory of the elimination, and of reverse sweeps by all threads."""
    x = r.structure
    assert x is not None
    return r.structure_bytes + SweepLoads.needed(x, x.depth, r.sparse.steps.dtype)


def by_elimination(r: Request) -> Solved:
    """Paths by sweeps over the elimination tree of the request's structure."""

    def run(into: Array | None) -> Solved:
        structure, count = r.structure, r.count
        assert structure is not None
        there = sweep_device(r.device, structure, count, r.sparse.steps.dtype.itemsize)
        return r.sparse.solve(
            functools.partial(
                rows_by_sweeps, structure=structure, sources=r.rows, out=into, index=there
            )
        )

    return _in_place(r, run)


def rows_by_sweeps(
    problem: Problem, structure: Structure, sources: Index | None, out: Array | None = None,
    index: int | None = None,
) -> Solved:  # fmt: skip
    """Paths, and predecessors if the problem has them, from all or some sources.

    Parameters
    ----------
    problem : Problem
        Of a source that has its edges at hand.
    out : ndarray, optional
        Filled in place of a new array of distances; rows are contiguous.
    index : int, optional
        The CUDA device of the sweeps; None: the CPU.
    """
    trees, n = problem.predecessors, problem.source.n
    chosen = np.arange(n) if sources is None else sources
    rows = Sweeps(
        customize(structure, problem, trees=trees and index is None), problem, len(chosen)
    )
    d = np.empty((len(chosen), n), problem.steps.dtype) if out is None else out
    p = np.empty(d.shape, np.int32) if trees else None
    total = float(len(chosen)) * n
    tick = reporter(problem.progress, total, "sparse elimination", "entries")
    if index is None:
        rows.fill(chosen, d, p, part_of(tick, 0.0, total))
    else:
        _fetched(rows.metric, problem, chosen, d, p, index)
        rows.repair(chosen, d, p)
    if tick is not None:
        tick(total)
    return d, p


def _fetched(
    metric: Metric, problem: Problem, sources: Index, d: Array, p: NDArray[np.int32] | None,
    index: int,
) -> None:  # fmt: skip
    """Rows by the sweeps of a CUDA device."""
    source, edges = problem.source, None
    if p is not None:
        given = source.edges()
        weight = problem.weights.widen(weights_of(source, given))
        edges = given.row, given.col, weight
    fetch(place(metric, [index]), sources, d, p=p, edges=edges)


def by_search(r: Request) -> Solved:
    """Paths by a search from each source."""
    return _in_place(r, lambda into: search(r.sparse, sources=r.rows, out=into))


def by_search_shifted(r: Request) -> Solved:
    """The same with potentials for negative weights."""
    return _in_place(r, lambda into: search_shifted(r.sparse, sources=r.rows, out=into))


def _in_place(r: Request, run: Callable[[Array | None], Solved]) -> Solved:
    """Paths by the edges, in the memory and the type of the matrix if the graph has one."""
    if r.edges is not None:
        d, p = run(None)
        return (d > 0 if r.dtype.kind == "b" else d), p
    problem = r.matrix
    source, kind = memory.source_of(problem), r.sparse.source.dtype
    matrix = memory.begin(problem)
    flat = r.engine.SPARSE and kind == matrix.dtype and matrix.strides[1] == matrix.itemsize
    d, p = run(matrix if r.rows is None and flat else None)
    if d is not matrix:
        missing = d == r.sparse.source.s.identities(d.dtype)[0]
        d = d.astype(matrix.dtype)
        d[missing] = problem.source.s.identities(matrix.dtype)[0]
        d = r.engine.from_host(d)
        if r.rows is None:
            matrix[...] = d
            d = matrix
    rows = None if r.rows is None else r.engine.from_host(r.rows)
    return memory.finish(problem, d, rows, source.array), p


def hops_cost(r: Request, limit: float) -> float:
    """Nanoseconds of breadth-first searches over edges that all count 1."""
    row, col, _ = r.listed.arrays
    lists = 0.0 if r.hop_graph is not None else 2 * costs.LIST * len(row)
    least = lists + Hops.least(r.n, len(row), r.count, labels=r.kept)
    if least > limit:
        raise TooExpensive(f"{least / 1e9:.3g} s or more")
    if r.hop_graph is None:
        r.hop_graph = Hops(r.n, row, col, directed=not r.sparse.source.symmetric())
    return lists + r.hop_graph.time(r.count, labels=r.kept)


def by_hops(r: Request) -> Solved:
    """Distances by breadth-first searches."""
    graph = r.hop_graph
    if graph is None:  # of a matrix on a device
        from . import dense

        return dense.hops_on_device(r)

    def run(into: Array | None) -> Solved:
        index = device_index(r.device)
        if r.device is None:
            index = hop_device(graph.time(r.count, labels=True), graph.n, graph.arcs)
        return _counted(r, graph, into, index), None

    if r.edges is None and r.matrix_only:  # of a matrix full of edges
        problem = r.matrix
        d = memory.begin(problem)
        d = _counted(r, graph, d if r.rows is None else None, None)
        return memory.finish(problem, d, r.rows, memory.source_of(problem).array), None
    return _in_place(r, run)


def _counted(r: Request, graph: Hops, into: Array | None, index: int | None) -> Array:
    """Distances in the type that a problem is computed in."""
    problem = r.matrix if r.edges is None and r.matrix_only else r.sparse
    tick = reporter(r.progress, float(r.count) * r.n, "breadth-first searches", "entries")
    return graph.distances(
        r.nodes, problem.steps.dtype, problem.steps.identities[0], out=into, device=index,
        done=None if tick is None else (lambda number: tick(float(number) * r.n)),
    )  # fmt: skip
