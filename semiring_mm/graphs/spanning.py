"""Closures of undirected edge lists over minimum and maximum, from their spanning forests."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from ..arrays import check_memory
from ..closures.edges import EdgeList, edge_dtype
from ..closures.solve import Problem
from ..closures.sources import EdgeSource
from ..closures.spanning import SpanningForest, applies, of_edges
from ..progress import Progress, reporter
from ..semirings import Semiring

__all__ = ["as_undirected", "forest_of", "solve_forest"]


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


def solve_forest(
    s: Semiring, edges: EdgeList, rows: NDArray[np.int64] | None, predecessors: bool,
    progress: Progress,
) -> tuple[NDArray[Any], NDArray[np.int32] | None] | None:  # fmt: skip
    """Rows of the closure of an undirected graph and its predecessors: see :func:`forest_of`."""
    dtype = edge_dtype(s, edges.weight)
    shape = edges.n if rows is None else len(rows), edges.n
    size = shape[0] * shape[1] * (dtype.itemsize + 4 * predecessors)
    check_memory(size, f"the result of {shape[0]} x {shape[1]} entries")
    problem = Problem.of(EdgeSource(s, edges, dtype), None, predecessors, edges.nodes, progress)
    tick = reporter(progress, float(shape[0]) * shape[1], "a spanning tree", "entries")
    forest = forest_of(problem)
    if forest is None:
        return None
    d = np.empty(shape, dtype)
    p = np.empty(shape, np.int32) if predecessors else None
    forest.write(engines.named("cpu"), d, p, None if rows is None else rows.astype(np.int32))
    if tick is not None:
        tick(math.inf)
    return d, p
