"""Best paths of sparse graphs whose weights improve nothing, by a search from each source."""

from __future__ import annotations

import functools
import itertools

import numpy as np
from numpy.typing import NDArray

from ..arrays import check_memory
from ..closures.progress import reporter
from ..closures.solve import Problem
from ..closures.steps import computed, path_plan, stored
from ..cpu import threads
from ..cpu.dijkstra import search as code
from ..cpu.memory import scratch

__all__ = ["search", "searchable"]

Array = NDArray[np.generic]
Index = NDArray[np.int64]


def searchable(problem: Problem) -> bool:
    """Whether a search finds best paths: ⊕ chooses, and no weight is better than one."""
    return problem.source.s.selective and not problem.weights.look(1)


def search(
    problem: Problem, *, sources: Index | None, out: Array | None = None
) -> tuple[Array, NDArray[np.int32] | None]:
    """Paths, and predecessors if the problem has them, from all or some sources.

    O((m + n) log n) a source; the sources are spread over all threads.

    Parameters
    ----------
    problem : Problem
        It is :func:`searchable`, and its source has its edges at hand.
    out : (n, n) array, optional
        Filled in place of a new array; rows are contiguous.
    """
    source, steps, n = problem.source, problem.steps, problem.source.n
    count = n if sources is None else len(sources)
    dtype, trees = steps.dtype, problem.predecessors
    check_memory(
        count * n * ((0 if out is not None else dtype.itemsize) + 4 * trees),
        f"the result of {count} x {n} entries",
    )
    chosen = np.arange(n) if sources is None else sources
    row, col, weight = source.edges()
    order = np.argsort(row, kind="stable")
    plan = path_plan(steps, n)
    weight = computed(plan, problem.weights.widen(weight[order]))
    first = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(row, minlength=n), out=first[1:])
    fields = {"n": n, "first": first, "head": col[order].astype(np.int32), "weight": weight}
    zero, one = (computed(plan, x) for x in steps.identities)
    d = np.empty((count, n), dtype) if out is None else out
    p = np.empty((count, n), np.int32) if trees else None
    tick = reporter(problem.progress, float(count) * n, "a search from each source", "entries")

    def some(begin: int, end: int) -> None:
        direct = d.dtype == weight.dtype and d.strides[1] == d.itemsize and plan.missing is None
        for i in range(begin, end):
            label = d[i] if direct else np.empty(n, weight.dtype)
            heap = scratch(8 * n)[0].view(np.int32)
            own = {"heap": heap[:n], "place": heap[n:], "label": label, "rows": 1}
            own |= {"source": np.array(chosen[i : i + 1], np.int64)}
            code(plan, zero, one, trees, fields | own | {"pred": None if p is None else p[i]})
            if not direct:
                d[i] = stored(plan, label, d.dtype)

    parts = max(1, min(count, 64 * threads.get_num_threads()))
    cuts = np.linspace(0, count, parts + 1).astype(int).tolist()

    def done(part: int) -> None:
        if tick is not None:
            tick(float(cuts[part]) * n)

    threads.run([functools.partial(some, *x) for x in itertools.pairwise(cuts)], done)
    return d, p
