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

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from .. import pool
from ..arrays import check_memory, device_index
from ..closures.edges import EdgeList, edge_dtype
from ..closures.solve import Problem
from ..closures.sources import EdgeSource, WorsenedEdges, weights_of
from ..closures.trees import repair_trees
from ..hierarchy import costs
from ..hierarchy.devices import fetch, place
from ..hierarchy.metric import Metric, customize
from ..hierarchy.symbolic import eliminate
from ..memory import free_memory
from ..progress import Progress, reporter
from ..semirings import Semiring, semirings
from .choice import Choice, hop_device, sweep_device
from .dijkstra import search, search_shifted, searchable
from .hops import Hops

__all__ = ["count_hops", "has_ties", "solve", "solve_edges", "solve_sparse"]

Array = NDArray[Any]
Index = NDArray[np.int64]
#: Bytes that the structure of an elimination takes for a node without edges.
_NODE = 350
#: Nodes of a core above which a device does better without an elimination.
_CORE = 4096
Solved = tuple[Array, NDArray[np.int32] | None]


def solve(
    problem: Problem,
    *,
    sources: Index | None,
    limit: float = math.inf,
    out: Array | None = None,
    device: str | None = None,
) -> Solved | None:
    """Paths, and predecessors if the problem has them, from all or some sources.

    Parameters
    ----------
    problem : Problem
        Of a source that has its edges at hand.
    limit : float
        Nanoseconds of the alternative; None is returned where this method would take longer.
    out : ndarray, optional
        Filled in place of a new array of distances; rows are contiguous.
    device : {None, "cpu", "cuda", "cuda:N"}
        Where the sweeps run; None: on a CUDA device if there is one and there is much to do.
    """
    source, trees, steps = problem.source, problem.predecessors, problem.steps
    n = source.n
    count, size = n if sources is None else len(sources), steps.dtype.itemsize
    result = count * n * ((0 if out is not None else size) + 4 * trees)
    if limit == math.inf:
        check_memory(result + _NODE * n, f"the elimination of {n} nodes")  # before any work
    assert isinstance(source, EdgeSource | WorsenedEdges)
    structure = eliminate(n, *source.given.arrays[:2], sources=count, limit=limit, itemsize=size)
    if structure is None:
        return None
    needed = result + structure.bytes(size, trees=trees)
    if limit < math.inf and needed > (free_memory() or 0):
        return None
    check_memory(needed, f"the result of {count} x {n} entries")
    there = sweep_device(device, structure, count, size)
    if device is not None and there is not None and limit < math.inf and structure.core > _CORE:
        return None  # which is better closed there as a whole
    metric = customize(structure, problem, trees=trees and there is None)
    chosen = np.arange(n) if sources is None else sources
    d = np.empty((count, n), steps.dtype) if out is None else out
    p = np.empty(d.shape, np.int32) if trees else None
    total = float(count) * n
    tick = reporter(problem.progress, total, "sparse elimination", "entries")
    if there is None:
        (metric.narrowed(d.dtype, count) or metric).sweep(chosen, d, p, tick)
    else:
        _fetched(metric, problem, chosen, d, p, there)
    if p is not None and has_ties(problem):
        repair_trees(engines.named("cpu"), source.s, d, p, source.edges, chosen)
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


def has_ties(problem: Problem) -> bool:
    """Whether a predecessor may be no nearer than the node that follows it, so that rings close."""
    facts, s, n = problem.weights.facts, problem.source.s, problem.source.n
    if s.name != "min_plus":
        return True
    if facts.lo > facts.hi:
        return False
    if problem.source.dtype.kind in "iu":
        return facts.lo <= 0
    eps = float(np.finfo(problem.source.dtype).eps)
    return facts.lo <= 2 * float(n) ** 2 * eps * max(abs(facts.lo), abs(facts.hi))


def solve_edges(
    s: Semiring, edges: EdgeList, choice: Choice, rows: Index | None, predecessors: bool,
    progress: Progress,
) -> Solved | None:  # fmt: skip
    """Paths of a list of edges by the sparse methods of a choice; None where they are refused."""
    if edge_dtype(s, edges.weight).kind == "b":  # whether there is a path: one of any width
        ones = edges.weighted(np.ones(len(edges.col), np.float32))
        found = solve_edges(semirings["max_min"], ones, choice, rows, predecessors, progress)
        return None if found is None else (found[0] > 0, found[1])
    dtype = np.float32 if edges.weight.dtype == np.float32 else np.float64
    source = EdgeSource(s, edges.kept(edges.weight != s.zero), dtype)
    problem = Problem.of(source, None, predecessors, edges.nodes, progress)
    return solve_sparse(problem, choice, rows)


def solve_sparse(
    problem: Problem, choice: Choice, rows: Index | None, out: Array | None = None
) -> Solved | None:
    """An elimination where it takes less time than the choice's other methods, or searches.

    None where the dense method of the choice takes the least.
    """
    assert isinstance(problem.source, EdgeSource)
    plain, n, m = searchable(problem), problem.source.n, len(problem.source.given.col)
    if not plain and problem.weights.may_overflow:  # which the dense method tells
        return None
    chosen = np.arange(n) if rows is None else rows
    shifts = not plain and problem.source.s.name == "min_plus"
    searches = choice.search if plain or shifts else math.inf
    if shifts:
        searches += costs.potentials(n, m)
    limit, found = min(choice.dense, searches), None
    hops = _hops(problem, len(chosen), limit) if plain and choice.dense < math.inf else None
    walks = math.inf if hops is None else hops.time(len(chosen), labels=True)
    limit = min(limit, walks)
    if costs.least(n, m, len(chosen), threads=pool.get_num_threads()) <= limit:

        def run(given: Problem) -> Solved | None:
            return solve(given, sources=rows, limit=limit, out=out, device=choice.device)

        found = problem.solve(run)
    if found is None and hops is not None and walks == limit:
        there = device_index(choice.device)
        if choice.device is None:
            there = hop_device(walks, hops.n, hops.arcs)
        return count_hops(problem, hops, chosen, out, there), None
    if found is None and searches < math.inf and searches <= choice.dense:
        found = (search if plain else search_shifted)(problem, sources=rows, out=out)
    return found


def _hops(problem: Problem, count: int, limit: float) -> Hops | None:
    """The graph where the distances wanted are numbers of edges, and from several sources.

    None, too, where searches for these would take more than a number of nanoseconds.
    """
    source, facts = problem.source, problem.weights.facts
    if problem.predecessors or source.s.name != "min_plus" or not facts.lo == facts.hi == 1:
        return None
    assert isinstance(source, EdgeSource)  # no weight is worsened where none improves
    row, col, _ = source.given.arrays
    engine = engines.named("cpu")
    assert engine.HopSearches is not None
    free = engine.free_memory()
    needed = engine.HopSearches.bytes(source.n, len(row), count, labels=True)
    if count < 2 or (free is not None and needed > free):
        return None
    if Hops.least(source.n, len(row), count, labels=True) > limit:
        return None
    return Hops(source.n, row, col, directed=not source.symmetric())


def count_hops(
    problem: Problem, hops: Hops, sources: Index, out: Array | None, device: int | None = None
) -> Array:
    """Distances by breadth-first searches, of the types of a problem whose edges all count 1."""
    n, count, dtype = hops.n, len(sources), problem.steps.dtype
    if out is None:
        check_memory(count * n * dtype.itemsize, f"the result of {count} x {n} entries")
    tick = reporter(problem.progress, float(count) * n, "breadth-first searches", "entries")
    return hops.distances(
        sources, dtype, problem.steps.identities[0], out=out, device=device,
        done=None if tick is None else (lambda number: tick(float(number) * n)),
    )  # fmt: skip
