"""Closures of undirected edge lists over minimum and maximum, from their spanning forests."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import engine as engines
from ..arrays import check_memory
from ..closures import memory
from ..closures.edges import EdgeList
from ..closures.solve import Problem
from ..closures.sources import EdgeSource
from ..closures.spanning import SpanningForest, applies, close, of_edges
from ..progress import reporter
from .choice import Request
from .dense import in_matrix
from .inputs import warn_of_edges

__all__ = ["as_undirected", "forest_of", "gives", "solve_forest"]

#: Blocks of rows from which a spanning forest takes less time than an elimination.
_FOREST = 4
Solved = tuple[Any, Any]


def as_undirected(edges: EdgeList, least: bool) -> EdgeList:
    """The list as one of undirected edges if each leads back at the same weight.

    Of parallel edges, as many as lead back, the one of `least` weight counts, or else the largest.
    """
    leaving, entering = (np.bincount(x, minlength=edges.n) for x in (edges.row, edges.col))
    if not (edges.directed and np.array_equal(leaving, entering)):  # the usual case, seen at once
        return edges
    row, col, weight = edges.row, edges.col, edges.weight.astype(np.float64)
    order = np.lexsort((weight if least else -weight, col, row))
    row, col, weight = row[order], col[order], weight[order]
    best = np.ones(len(row), bool)
    best[1:] = (row[1:] != row[:-1]) | (col[1:] != col[:-1])
    row, col, weight = row[best], col[best], weight[best]
    back = np.lexsort((row, col))
    pairs = ((row, col[back]), (col, row[back]), (weight, weight[back]))
    same = all(np.array_equal(x, y) for x, y in pairs)
    return edges.undirected() if same else edges


def forest_of(problem: Problem) -> SpanningForest | None:
    """The spanning forest of a problem; None if it does not give the paths."""
    source = problem.source
    if not (isinstance(source, EdgeSource) and source.symmetric() and applies(problem)):
        return None
    x = source.given
    kept = x.kept((x.weight != source.s.identities(x.weight.dtype)[0]) & (x.row != x.col))
    return of_edges(source.s, source.n, *kept.arrays)


def gives(r: Request) -> bool:
    """Whether a spanning forest gives the paths of a request."""
    if r.edges is not None and not (r.elsewhere or r.edges.directed):
        return forest_of_edges(r) is not None
    large = r.n >= _FOREST * r.engine.BASE
    return large and _problem(r).undirected and applies(_problem(r))


def forest_of_edges(r: Request) -> SpanningForest | None:
    """The spanning forest of a request's edges, made once."""
    if r.forest is None:
        assert r.edges is not None
        source = EdgeSource(r.s, r.edges, r.dtype)
        warn_of_edges(r.s, r.edges)
        r.forest = forest_of(Problem.of(source, None, r.predecessors, r.edges.nodes))
    return r.forest


def _problem(r: Request) -> Problem:
    """That of the matrix as it was given."""
    if "given" in r.__dict__ or r.edges is not None:
        return r.problem
    return Problem.of(r.kept_given, r.directed, r.predecessors, r.labels, r.progress)


def solve_forest(r: Request) -> Solved:
    """Rows of the closure of an undirected graph, and its predecessors."""
    n, count = r.n, r.count
    size = count * n * (r.dtype.itemsize + 4 * r.predecessors)
    if r.edges is None or r.elsewhere or r.edges.directed:
        problem = _problem(r)
        keep = memory.source_of(problem).original is not None
        if keep:
            check_memory(size, f"the result of {count} x {n} entries", r.engine)
            return close(problem, r.rows, keep=True)
        return in_matrix(r, lambda given: close(given, r.rows))
    check_memory(size, f"the result of {count} x {n} entries")
    tick = reporter(r.progress, float(count) * n, "a spanning tree", "entries")
    forest = forest_of_edges(r)
    assert forest is not None
    d = np.empty((count, n), r.dtype)
    p = np.empty((count, n), np.int32) if r.predecessors else None
    forest.write(engines.named("cpu"), d, p, None if r.rows is None else r.rows.astype(np.int32))
    if tick is not None:
        tick(math.inf)
    return d, p
