"""The executor in one engine's memory: an elimination in place, and what other algorithms share."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ..engine import JOIN
from ..progress import reporter
from .edges import EdgeList
from .paths import NO_PREDECESSOR, epsilon
from .solve import Problem
from .sources import ArraySource, best_edges
from .trees import repair_trees

__all__ = ["begin", "close", "finish", "first_predecessors", "repair", "source_of"]

Array = Any  # of the engine's library
#: Rows that are looked at, and the share of tight edges in them above which it takes longer to find
#: predecessors from the closure.
_SAMPLE, _TIGHT = 32, 0.1


def begin(problem: Problem) -> Array:
    """The matrix in the type to compute in, to be overwritten, with one on its diagonal."""
    source = source_of(problem)
    d, whole = source.take(problem.weights, trees=problem.predecessors), slice(0, source.n)
    problem.steps.join_one(source.engine.xp, d, whole, whole)
    return d


def first_predecessors(problem: Problem, d: Array, nodes: Array | None = None) -> Array:
    """Predecessors on single edges, for the rows of some nodes, or of all."""
    xp = source_of(problem).engine.xp
    starts = xp.arange(problem.source.n) if nodes is None else nodes
    p = problem.steps.first(xp, d, starts.astype(np.int32))
    p[xp.arange(len(starts)), starts] = NO_PREDECESSOR
    return p


def close(problem: Problem) -> tuple[Array, Array | None]:
    """The closure, in the memory of the source where types allow, and its predecessors."""
    source = source_of(problem)
    engine, d = source.engine, begin(problem)
    many = problem.predecessors and _many_tight(problem, d)
    if many and _at_once_fits(problem, d):
        return _close_at_once(problem, d)
    weights = _kept(problem, d) if problem.predecessors and not many else None
    # predecessors that are found from the closure need not be carried through it
    carried = problem if weights is None else replace(problem, predecessors=False)
    tick, found = reporter(problem.progress, carried.pairs, "elimination in blocks"), None
    p = first_predecessors(problem, d) if carried.predecessors else None
    carried.steps.close(engine, d, p, 0, tick)
    if weights is not None:
        assert engine.trees is not None
        p = engine.xp.empty(d.shape, np.int32)
        found = engine.trees.predecessors(source.s, weights, d, p, carried.steps.known)
    if tick is not None:
        tick(math.inf)
    if p is not None and (weights is None or engine.to_host(found).any()):
        repair(problem, d, p)
    return d, p


def _kept(problem: Problem, d: Array) -> Array | None:
    """The matrix before its closure `d`, where predecessors are found from the two, or None."""
    source = source_of(problem)
    if source.engine.trees is None:
        return None
    kept = source.original
    if kept is not None and kept.dtype == d.dtype and source.margins is None:
        return kept
    free = source.engine.free_memory()
    return None if free is not None and free < 2 * d.nbytes else d.copy()


def _at_once_fits(problem: Problem, d: Array) -> bool:
    """Whether the engine gives predecessors with a closure in one launch, and there is room."""
    source = source_of(problem)
    trees, free = source.engine.trees, source.engine.free_memory()
    assert trees is not None
    room = free is None or free >= 3 * d.nbytes + 4 * d.size
    return room and trees.splits(source.s, d.dtype, source.n)


def _close_at_once(problem: Problem, d: Array) -> tuple[Array, Array]:
    """The closure in one launch, in place, and predecessors."""
    source = source_of(problem)
    engine, p = source.engine, source.engine.xp.empty(d.shape, np.int32)
    found = engine.closure_batch(source.s, d, problem.steps.known, d, p)
    problem.steps.check(d.diagonal(), range(source.n))
    if engine.to_host(found).any():
        repair(problem, d, p)
    return d, p


def _many_tight(problem: Problem, d: Array) -> bool:
    """Whether many edges seem to be best paths themselves, beside paths of two edges.

    Then it takes long to search all these edges. Over orders they are not searched.
    """
    source = source_of(problem)
    if source.engine.trees is None or source.n <= source.engine.LEAF or source.s.order_only:
        return False
    engine, xp = source.engine, source.engine.xp
    edges = d[xp.arange(0, source.n, -(-source.n // _SAMPLE))]
    best = edges.copy()
    engine.product(source.s, edges, d, best, JOIN, known=problem.steps.known)
    same, unit = best == edges, epsilon(d.dtype)
    if unit:
        with np.errstate(invalid="ignore"):  # no edge: infinity less infinity
            same |= xp.abs(best - edges) <= 16 * unit * xp.abs(edges)
    same &= edges != source.s.identities(d.dtype)[0]
    count = int(xp.count_nonzero(same))
    return count > _TIGHT * float(same.size)


def repair(problem: Problem, d: Array, p: Array) -> None:
    """Make every row of the predecessors of a closure a tree, in place."""
    source = source_of(problem)
    to_host, n = source.engine.to_host, source.n

    def edges() -> EdgeList:
        if source.original is not None:
            return best_edges(source, lambda rows: to_host(d[rows]))
        # No cycle can be better than none: an edge that is a best path is that to the last bit,
        # and keeps its start as predecessor.
        row, col = np.nonzero(to_host(p) == np.arange(n)[:, np.newaxis])
        return EdgeList.of(n, row, col, to_host(d)[row, col])

    repair_trees(source.engine, source.s, d, p, edges)


def finish(problem: Problem, d: Array, rows: Array | None, into: Array) -> Array:
    """Restore what was computed: all of it `into` an array, or a new array of some rows.

    `rows` are the nodes whose rows `d` has; None: all.
    """
    if d is not into:
        d = problem.restore(d)
    if rows is not None or d is into:
        return d
    into[...] = d
    return into


def source_of(problem: Problem) -> ArraySource:
    """The source of a problem whose matrix is in memory."""
    source = problem.source
    assert isinstance(source, ArraySource)
    return source
