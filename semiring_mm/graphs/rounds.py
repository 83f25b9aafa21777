"""Best paths of few edges from some nodes: rounds of Bellman and Ford over a list of edges."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import check_memory
from ..closures.solve import Problem
from ..closures.sources import EdgeSource
from ..progress import reporter
from .choice import Request

__all__ = ["solve_rounds"]

Array = NDArray[Any]
Index = NDArray[np.int64]

_PIECE = 1 << 20  # sums that are compared at a time


def solve_rounds(r: Request) -> tuple[Array, None]:
    """The weights of best paths of at most so many edges, over min_plus, from some nodes.

    O(edges) a source and round, and no memory beside the result but of some rows.
    """
    edges, rows, limit = r.edges, r.rows, r.hops
    assert edges is not None
    assert rows is not None
    assert limit is not None
    problem = Problem.of(EdgeSource(r.s, edges, r.dtype), labels=edges.nodes, progress=r.progress)
    check_memory(r.result_bytes, f"the result of {r.count} x {r.n} entries")
    return problem.solve(lambda given: _rounds(given, rows, limit)), None


def _rounds(problem: Problem, rows: Index, limit: int) -> Array:
    n, (row, col, weight) = problem.source.n, problem.source.edges().arrays
    zero, one = problem.steps.identities
    order = np.argsort(col, kind="stable")
    tail, weight = row[order], weight[order]
    heads, first = np.unique(col[order], return_index=True)
    d = np.full((len(rows), n), zero, problem.dtype)
    d[np.arange(len(rows)), rows] = one
    lines = max(1, _PIECE // max(1, len(tail)))
    total = float(len(rows)) * n
    tick = reporter(problem.progress, total, "rounds over the edges", "entries")
    for begin in range(0, len(rows) if len(tail) else 0, lines):
        x = d[begin : begin + lines]
        own = np.arange(len(x)), rows[begin : begin + lines]
        for _ in range(limit):
            before = x[:, heads]
            best = np.minimum.reduceat(x[:, tail] + weight, first, axis=1)
            if not (best < before).any():
                break
            x[:, heads] = np.minimum(before, best)
            problem.steps.check(x[own], own[1])
        if tick is not None:
            tick(float(min(begin + lines, len(rows))) * n)
    return d
