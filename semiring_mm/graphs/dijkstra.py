"""Best paths of sparse graphs whose weights improve nothing, by a search from each source."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from .. import pool
from ..arrays import check_memory
from ..closures.edges import EdgeList
from ..closures.paths import NegativeCycleError, find_negative_cycle
from ..closures.solve import Problem
from ..closures.sources import EdgeSource
from ..closures.steps import Steps, path_plan
from ..hierarchy import costs
from ..memory import workspace
from ..plan import Facts, Plan, computed, stored
from ..progress import Progress, reporter
from ..semirings import semirings
from .kernels import dijkstra as kernels

__all__ = ["MALFORMED", "Found", "Lists", "listed", "search", "search_lists", "search_shifted"]

Array = NDArray[np.generic]
Index = NDArray[np.int64]
#: Nodes taken from the heap in a call, between which Ctrl-C is seen.
_MOST = 1 << 20
#: Lists that are no graph's: elsewhere they are checked before.
MALFORMED = (
    "indptr or indices of the sparse matrix are out of range: graph.check_format(full_check=True) "
    "says where"
)
#: Nanoseconds of searches in a task of a thread: handing it out takes a fiftieth of that.
_PART = 1e6


class Lists(NamedTuple):
    """Arcs row after row."""

    n: int
    first: NDArray[Any]  # (n + 1,) of int32 or int64
    head: NDArray[Any]  # (m,) of int32 or int64
    weight: Array | None  # (m,) in the type computed in; None: every arc weighs `step`
    step: float = 1

    @classmethod
    def of(cls, n: int, first: NDArray[Any], head: NDArray[Any], weight: Array) -> Lists:
        """Lists in which equal weights, not negative ones, are one number."""
        # the ends tell at once of most weights
        if len(weight) and weight[0] == weight[-1] >= 0 and (weight == weight[0]).all():
            return cls(n, first, head, None, weight[0].item())
        return cls(n, first, head, weight)


class Found(NamedTuple):
    """Labels of a search, and trees if they are wanted."""

    d: Array  # (k, n)
    pred: NDArray[np.int32] | None  # (k, n)
    # (n,), of a search from the nearest source: where the path to each node starts
    root: NDArray[np.int32] | None
    state: int  # what the kernel told of the lists


def _lists(problem: Problem, plan: Plan) -> Lists:
    """The arcs of each node, and their weights."""
    source, facts = problem.source, problem.weights.facts
    assert isinstance(source, EdgeSource)
    assert source.margins is None  # where none improves
    edges, step = source.given, 1
    given = np.ascontiguousarray(computed(plan, problem.weights.widen(edges.weight)))
    weight: Array | None = given
    if facts.lo == facts.hi:  # of no edges these are infinities
        weight, step = None, given[0].item()
    if edges.first is not None:
        return Lists(source.n, edges.first, np.ascontiguousarray(edges.col), weight, step)
    both = not edges.directed
    return listed(source.n, edges.row, edges.col, weight, step, both=both, plan=plan)


def listed(
    n: int, row: Array, col: Array, weight: Array | None = None, step: float = 1, *,
    both: bool, plan: Plan | str = "f8",
) -> Lists:  # fmt: skip
    """Lists of edges, in their order; `both`: each in both directions."""
    row, col = (np.ascontiguousarray(x, np.int64) for x in (row, col))
    m = len(row) * (1 + both)
    ways = None if weight is None else np.empty(m, weight.dtype)
    lists = Lists(n, np.zeros(n + 1, np.int64), np.empty(m, np.int32), ways, step)
    engines.compiled(kernels.arcs, plan)(
        n=n, m=len(row), both=int(both), row=row, col=col, given=weight, first=lists.first,
        head=lists.head, weight=ways,
    )  # fmt: skip
    return lists


def search(
    problem: Problem, *, sources: Index | None, out: Array | None = None
) -> tuple[Array, NDArray[np.int32] | None]:
    """Paths, and predecessors if the problem has them, from all or some sources.

    O((m + n) log n) a source, O(m + n) if all edges weigh the same; the sources are spread over all
    threads.

    Parameters
    ----------
    problem : Problem
        ⊕ chooses, no weight is better than one, and its source has its edges at hand.
    out : (n, n) array, optional
        Filled in place of a new array; rows are contiguous.
    """
    steps, n = problem.steps, problem.source.n
    plan = path_plan(steps, n)
    zero, one = (computed(plan, x) for x in steps.identities)
    found = _search(
        plan, (zero, one), _lists(problem, plan), np.arange(n) if sources is None else sources,
        steps.dtype, out=out, trees=problem.predecessors, progress=problem.progress,
    )  # fmt: skip
    if found.state >= kernels.WRONG:
        raise ValueError(MALFORMED)
    return found.d, found.pred


def search_lists(
    lists: Lists, sources: Index, *, predecessors: bool, limit: float = math.inf,
    directed: bool = True, nearest: bool = False, dtype: str = "float64",
) -> Found | None:  # fmt: skip
    """Shortest paths from some nodes over lists that nobody has looked at.

    They are checked as they are searched. Where arcs lead both ways they are followed as they are
    listed, until a path against an arc proves to be shorter: of a symmetric matrix none is.

    Parameters
    ----------
    lists : Lists
    limit : float, default inf
        Paths that are longer count as none: of float64.
    directed : bool, default True
        False: arcs lead both ways.
    nearest : bool, default False
        Only the shortest path from any source to each node: one row.
    dtype : {"float64", "float32"}
        Of the distances.

    Returns
    -------
    Found or None
        None if an index is out of range, or a weight is negative or NaN.
    """
    plan, identities = _shortest(dtype)
    n, first, head, weight, step = lists = Lists(
        lists.n, _indices(lists.first), _indices(lists.head),
        None if lists.weight is None else np.ascontiguousarray(lists.weight, dtype), lists.step,
    )  # fmt: skip
    bound = None if limit == math.inf else math.nextafter(limit, math.inf)

    def run(lists: Lists, *, both: bool = False) -> Found:
        return _search(
            plan, identities, lists, sources, plan.computed_in, trees=predecessors, both=both,
            bound=bound, nearest=nearest,
        )  # fmt: skip

    found = None
    # a limit leaves arcs that no path follows, and for each row they would have to be looked at
    if directed or nearest or len(sources) == 1 or bound is None:
        found = run(lists, both=not directed)
        if found.state in (kernels.DONE, kernels.WRONG):
            return found if found.state == kernels.DONE else None
        if found.state == kernels.UNREAD and not directed:
            return found
    m = int(first[-1])
    again = found is None or found.state == kernels.ONE_WAY
    if (again or bound is None) and not _fit(n, first, head, m):
        return None
    head, weight = head[:m], None if weight is None else weight[:m]
    if again:
        row = np.arange(n).repeat(first[1:] - first[:-1])
        found = run(listed(n, row, head, weight, step, both=True, plan=plan))
    if weight is not None and m and not np.minimum.reduce(weight) >= 0:
        return None
    return found


def _fit(n: int, first: NDArray[Any], head: NDArray[Any], m: int) -> bool:
    """Whether lists are in order, and lead to nodes."""
    inside = first[0] == 0 and m <= len(head) and not (first[1:] < first[:-1]).any()
    return inside and (not m or bool(head[:m].min() >= 0 and head[:m].max() < n))


def _indices(x: Array) -> Array:
    if x.dtype == np.int32 and x.flags.c_contiguous:
        return x
    return np.ascontiguousarray(x, np.int64)


@functools.cache
def _shortest(dtype: str) -> tuple[Plan, tuple[Any, Any]]:
    """How shortest paths are computed in a floating-point type, and the identities."""
    labels = Facts(0.0, math.inf, False)
    steps = Steps(semirings["min_plus"], np.dtype(dtype), (labels, labels, labels), look=False)
    return path_plan(steps, 0), (math.inf, 0.0)


def _search(
    plan: Plan, identities: tuple[Any, Any], lists: Lists, sources: Index, dtype: np.dtype[Any], *,
    out: Array | None = None, trees: bool = False, both: bool = False,
    bound: float | None = None, nearest: bool = False, progress: Progress = None,
) -> Found:  # fmt: skip
    """Labels from some sources."""
    n, first, head, weight, step = lists
    starts = len(sources)
    count = 1 if nearest else starts
    check_memory(
        count * n * ((0 if out is not None else dtype.itemsize) + 4 * trees),
        f"the result of {count} x {n} entries",
    )
    arcs = len(head) if weight is None else min(len(head), len(weight))
    kind = plan.computed_in
    d = np.empty((count, n), dtype) if out is None else out
    p = np.empty((count, n), np.int32) if trees else None
    root = np.empty(n, np.int32) if nearest else None
    kernel = engines.compiled(kernels.search, plan, *identities)
    states = [kernels.DONE]

    def some(begin: int, end: int) -> None:
        found, rows = d[begin:end], end - begin
        direct = d.dtype == kind and found.flags.c_contiguous and plan.missing is None
        label = found if direct else np.empty((rows, n), kind)
        own = sources if nearest else sources[begin:end]
        going, room, size = np.zeros(2, np.int64), arcs + len(own), kind.itemsize
        keys = 64 + size * (3 + room * (weight is not None))  # children share a cache line
        buffer = workspace(keys + 4 * room)
        run = kernel.bind(
            n=n, rows=rows, arcs=arcs, starts=len(own), first=first, head=head, weight=weight,
            step=step, node=buffer[keys : keys + 4 * room].view(np.int32), root=root, label=label,
            key=None if weight is None else buffer[64 + 3 * size : keys].view(kind), both=both,
            open=going, source=np.array(own, np.int64), pred=None if p is None else p[begin:end],
            bound=bound,
            most=_MOST if rows == 1 else 1 << 62,  # several searches are short
        )  # fmt: skip
        state = run()
        while state < kernels.WRONG and going[0]:
            pool.look()
            state = run()
        states.append(state)
        if not direct:
            found[...] = stored(plan, label, d.dtype)

    tick = reporter(progress, float(count) * n, "a search from each source", "entries")
    parts = 1
    if count > 1:
        expected = costs.searches(n, arcs, count, equal=weight is None)
        parts = max(1, min(count, int(expected / _PART)))
    cuts = [count * i // parts for i in range(parts + 1)]

    def done(part: int) -> None:
        if tick is not None:
            tick(float(cuts[part]) * n)

    if parts == 1:
        some(0, count)
        done(1)
    else:
        pool.run([functools.partial(some, *x) for x in itertools.pairwise(cuts)], done)
    return Found(d, p, root, max(states))


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
