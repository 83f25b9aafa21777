"""Best paths of sparse graphs whose weights improve nothing, by a search from each source."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from .. import pool
from ..arrays import check_memory
from ..closures.edges import EdgeList
from ..closures.paths import NegativeCycleError, find_negative_cycle
from ..closures.solve import Problem
from ..closures.sources import EdgeSource
from ..closures.steps import path_plan
from ..hierarchy import costs
from ..memory import scratch
from ..plan import Plan, computed, stored
from ..progress import reporter
from .kernels import dijkstra as kernels

__all__ = ["search", "search_shifted"]

Array = NDArray[np.generic]
Index = NDArray[np.int64]
#: Nodes taken from the heap in a call, between which Ctrl-C is seen.
_MOST = 1 << 20
#: Nanoseconds of searches in a task of a thread: handing it out takes a fiftieth of that.
_PART = 1e6


def _lists(problem: Problem, plan: Plan) -> tuple[Array, dict[str, Any]]:
    """The arcs of each node, and their weights."""
    source = problem.source
    assert isinstance(source, EdgeSource)
    assert source.margins is None  # where none improves
    edges, both = source.given, not source.given.directed
    given = np.ascontiguousarray(computed(plan, problem.weights.widen(edges.weight)))
    if edges.first is not None:
        head = edges.col.astype(np.int32)
        return given, {"n": source.n, "first": edges.first, "head": head, "weight": given}
    row, col = (np.ascontiguousarray(x, np.int64) for x in (edges.row, edges.col))
    m = len(row) * (1 + both)
    first = np.zeros(source.n + 1, np.int64)
    head, weight = np.empty(m, np.int32), np.empty(m, given.dtype)
    engines.compiled(kernels.arcs, plan)(
        n=source.n, m=len(row), both=int(both), row=row, col=col, first=first, head=head,
        weight=weight, given=given,
    )  # fmt: skip
    return weight, {"n": source.n, "first": first, "head": head, "weight": weight}


def search(
    problem: Problem, *, sources: Index | None, out: Array | None = None
) -> tuple[Array, NDArray[np.int32] | None]:
    """Paths, and predecessors if the problem has them, from all or some sources.

    O((m + n) log n) a source; the sources are spread over all threads.

    Parameters
    ----------
    problem : Problem
        ⊕ chooses, no weight is better than one, and its source has its edges at hand.
    out : (n, n) array, optional
        Filled in place of a new array; rows are contiguous.
    """
    steps, n = problem.steps, problem.source.n
    count = n if sources is None else len(sources)
    dtype, trees = steps.dtype, problem.predecessors
    check_memory(
        count * n * ((0 if out is not None else dtype.itemsize) + 4 * trees),
        f"the result of {count} x {n} entries",
    )
    chosen = np.arange(n) if sources is None else sources
    plan = path_plan(steps, n)
    zero, one = (computed(plan, x) for x in steps.identities)
    weight, fields = _lists(problem, plan)
    room = len(weight) + 1
    d = np.empty((count, n), dtype) if out is None else out
    p = np.empty((count, n), np.int32) if trees else None
    tick = reporter(problem.progress, float(count) * n, "a search from each source", "entries")

    def some(begin: int, end: int) -> None:
        found, rows = d[begin:end], end - begin
        direct = d.dtype == weight.dtype and found.flags.c_contiguous and plan.missing is None
        label = found if direct else np.empty((rows, n), weight.dtype)
        nodes, keys = scratch(4 * room, weight.itemsize * (room + 3))
        key = keys.view(weight.dtype)[3:]  # children share a cache line
        going = np.zeros(1, np.int64)
        run = engines.compiled(kernels.search, plan, zero, one).bind(
            **fields, node=nodes.view(np.int32), key=key, label=label, rows=rows,
            source=np.array(chosen[begin:end], np.int64), pred=None if p is None else p[begin:end],
            open=going, most=_MOST if rows == 1 else 1 << 62,  # several searches are short
        )  # fmt: skip
        run()
        while going[0]:
            pool.look()
            run()
        if not direct:
            found[...] = stored(plan, label, d.dtype)

    parts = max(1, min(count, int(costs.searches(n, len(weight), count) / _PART)))
    cuts = [count * i // parts for i in range(parts + 1)]

    def done(part: int) -> None:
        if tick is not None:
            tick(float(cuts[part]) * n)

    pool.run([functools.partial(some, *x) for x in itertools.pairwise(cuts)], done)
    return d, p


def search_shifted(
    problem: Problem, *, sources: Index | None, out: Array | None = None
) -> tuple[Array, NDArray[np.int32] | None]:
    """The same over min_plus where some weights are negative: Johnson (1977).

    Potentials of the nodes, from rounds of Bellman and Ford, make up for them.

    Raises
    ------
    NegativeCycleError
    """
    n, source = problem.source.n, problem.source
    row, col, weight = source.edges().arrays
    found = find_negative_cycle(row, col, weight, n)
    if isinstance(found, tuple):
        raise NegativeCycleError(*found, problem.labels)
    whole = weight.dtype.kind in "iu"
    dtype = np.dtype(np.int64 if whole else np.float64)
    h = found.astype(dtype)
    shifted = np.maximum(weight.astype(dtype) + h[row] - h[col], 0)
    edges = EdgeSource(source.s, EdgeList.of(n, row, col, shifted), dtype)
    d, p = search(replace(problem, source=edges, directed=True), sources=sources)
    missing, start = d == source.s.identities(dtype)[0], h if sources is None else h[sources]
    for i in range(len(d)):  # no second matrix
        d[i] += h - start[i]
    result = d.astype(problem.steps.dtype, copy=False) if out is None else out
    if result is not d:
        result[...] = d
    result[missing] = problem.steps.identities[0]
    return result, p
