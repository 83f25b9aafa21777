"""Paths of graphs whose whole matrix is in one engine's memory: elimination, products, batches."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..closures import memory
from ..closures.edges import EdgeList
from ..closures.solve import Problem
from ..closures.sources import ArraySource
from ..closures.trees import cyclic_rows, repair_trees
from ..closures.weights import edges_of
from ..hierarchy.costs import TooExpensive
from ..products import multiply
from ..progress import part_of, reporter
from .choice import SPARSE_FROM, Request

__all__ = [
    "close", "close_at_once", "close_stack", "from_sources", "hops_cost", "hops_on_device",
    "powers", "squaring",
]  # fmt: skip

_STRIP = 256  # rows that are looked at together
_COUNTED = ("int32", "int64", "float32", "float64")  # types that hold numbers of edges
#: Nodes from which a matrix on a device is looked at for weights that are all 1; sources whose
#: searches tell how many levels there are; and up to how many of a matrix full of edges a level of
#: all nodes takes less time than an elimination.
_DEVICE_FROM, _PROBES, _LEVELS = 8192, 8, 2
_BYTES = 9  # of an entry of a matrix full of edges: whether it is one, and lists of both its ends
Array = Any  # of the engine's library
Index = NDArray[np.int64]
#: Nodes from which ranges of the weights are known before a closure in one launch: it leaves no
#: room for a scan beside it.
_FACTS_FROM = 1200
Solved = tuple[Array, Array | None]


def in_matrix(r: Request, work: Callable[[Problem], Solved]) -> Solved:
    """What some work on the matrix gives, in the memory of the matrix unless of some rows only."""
    rows = None if r.rows is None else r.engine.from_host(r.rows)

    def run(given: Problem) -> Solved:
        problem = given.in_numbers()
        d, p = work(problem)
        return memory.finish(problem, d, rows, memory.source_of(given).array), p

    return r.problem.solve(run)


def close(r: Request) -> Solved:
    """All pairs, or rows of them, by an elimination in blocks."""
    if r.rows is None:
        return in_matrix(r, memory.close)
    index = r.engine.from_host(r.rows)

    def rows(problem: Problem) -> Solved:
        whole, trees = memory.close(replace(problem, progress=None))
        return whole[index], None if trees is None else trees[index]

    return in_matrix(r, rows)


def squaring(r: Request) -> Solved:
    """All pairs by repeated squaring."""
    return in_matrix(r, _squaring)


def powers(r: Request) -> Solved:
    """Paths of at most so many edges."""
    limit = r.hops
    assert limit is not None
    return in_matrix(r, lambda problem: (_power(problem, limit), None))


def from_sources(r: Request) -> Solved:
    """Paths from some nodes by rounds of products."""
    rows, limit = r.rows, r.hops
    assert rows is not None
    return in_matrix(r, lambda problem: _from_sources(problem, rows, limit))


def close_stack(r: Request) -> Solved:
    """Every matrix of a stack, in its memory; small ones are spread over the threads."""
    source = r.given
    engine, d = source.engine, source.array
    count, n = d.shape[:2]
    tick = reporter(r.progress, float(count), "a batch", "graphs")
    p = engine.xp.empty(d.shape, np.int32) if r.predecessors else None

    def some(first: int, last: int) -> None:
        for i in range(first, last):
            part = ArraySource(engine, source.s, d[i], undirected=source.undirected)
            _, tree = _alone(r, part)
            if p is not None:
                p[i] = tree

    if n > 4 * engine.BASE or not engine.SPARSE:
        for i in range(count):
            some(i, i + 1)
            if tick is not None:
                tick(float(i + 1))
    elif count:
        parts = min(count, 8 * pool.get_num_threads())
        cuts = np.linspace(0, count, parts + 1).astype(int).tolist()
        pool.run(
            [functools.partial(some, *x) for x in itertools.pairwise(cuts)],
            None if tick is None else (lambda k: tick(float(cuts[k]))),
        )
    return d, p


def _alone(r: Request, source: ArraySource) -> Solved:
    """One matrix of a stack, as if it were the only one."""
    from .methods import solve

    alone = Request(
        r.s, source.n, source.dtype, method="auto", predecessors=r.predecessors,
        directed=r.directed, call=r.call,
    )  # fmt: skip
    alone.given = source
    if source.engine.SPARSE:
        alone.count_arcs(source.array)
    solved: Solved = solve(alone, leave_out="one launch")
    return solved


def close_at_once(r: Request) -> Solved:
    """A matrix, or each of a stack, in one launch; TooExpensive where the engine has none.

    A matrix that is not to be overwritten stays, and the result is a new array.
    """
    source = r.kept_given
    engine, xp, s, d = source.engine, source.engine.xp, source.s, source.array
    tick = reporter(r.progress, 1.0, "closures", "launches")
    problem = Problem.of(source, True, r.predecessors, r.labels, r.progress)
    keep = source.original is not None
    p = xp.empty(d.shape, np.int32) if problem.predecessors else None
    closed = xp.empty(d.shape, d.dtype) if keep else d
    # the device computes while the host reads facts; they make much arithmetic faster
    early = keep and d.dtype.kind not in "biu" and d.shape[-1] < _FACTS_FROM
    done: Array | bool = False
    if early:
        source.look_ahead()
        done = engine.closure_batch(s, d, None, closed, p)
    weights = problem.weights
    wide = d if early else source.take(weights, trees=problem.predecessors)
    if wide is not d:
        closed = wide
    if not early:
        done = engine.closure_batch(s, wide, weights.known(), closed, p)
    if done is False:
        raise TooExpensive("the engine has no such launch")
    each, trees, originals = map(_stacked, (closed, p, source.original))
    for i in _improving(problem, each):
        if originals is None:  # there is no cycle to name
            problem.solve(functools.partial(_check, each[i].diagonal()))
        found, tree = _alone(r, ArraySource(engine, s, originals[i].copy()))
        each[i] = weights.widen(found)
        if trees is not None:
            trees[i] = tree
    if trees is not None:
        for i in _cyclic(problem, each, trees, None if done is True else done):
            part = ArraySource(engine, s, each[i], None if originals is None else originals[i])
            memory.repair(replace(problem, source=part), each[i], trees[i])
    if wide is not d:
        closed = weights.narrow(closed)
        if not keep:
            d[...] = closed
            closed = d
    if tick is not None:
        tick(1.0)
    if r.call is not None and not weights.look(1):
        r.call.holds = [weights.alike] if p is None or done is True else [weights.alike, _are_trees]
    return closed, p


def _are_trees(open_rows: NDArray[np.uint8]) -> bool:
    """Whether no row of predecessors is open: see :func:`_cyclic`."""
    return not open_rows.any()


def _stacked(x: Array) -> Array:
    return x if x is None or x.ndim == 3 else x[np.newaxis]


def _improving(problem: Problem, closed: Array) -> list[int]:
    """The matrices of a stack in which a cycle improved itself."""
    if not problem.weights.look(1):
        return []
    engine, one = memory.source_of(problem).engine, problem.source.s.identities(closed.dtype)[1]
    wrong = engine.to_host((engine.xp.diagonal(closed, 0, -2, -1) != one).any(1))
    found: list[int] = np.flatnonzero(wrong).tolist()
    return found


def _cyclic(problem: Problem, closed: Array, p: Array, open_rows: Array | None) -> list[int]:
    """The matrices of a stack with a cycle among the predecessors of a row.

    One k after the other with strict improvements gives trees, but for rounding; in blocks, ties
    close cycles, too. `open_rows`, if they are known, are not 0 for the rows that may have some.
    """
    engine, (count, n) = memory.source_of(problem).engine, closed.shape[:2]
    if not problem.weights.look(1) and n <= engine.BASE:
        return []
    flat = (count * n, n)
    if open_rows is not None and _are_trees(engine.to_host(open_rows)):
        return []
    if open_rows is None and not len(
        engine.doubtful(problem.source.s, closed.reshape(flat), p.reshape(flat))
    ):
        return []
    roots = np.tile(np.arange(n), count)
    found: set[int] = set()
    s = problem.source.s
    for rows in cyclic_rows(engine, s, closed.reshape(flat), p.reshape(flat), roots):
        found.update((rows // n).tolist())
    return sorted(found)


# --- breadth-first searches of a matrix ----------------------------------------------------------


def hops_cost(r: Request, limit: float) -> float:
    """Nanoseconds of breadth-first searches of a matrix whose edges all count 1, on the host.

    On a device none are known: TooExpensive where paths have many edges.
    """
    from . import hops

    if r.hop_graph is not None:
        return r.hop_graph.time(r.count, labels=True)
    there = _edges_that_count_one(r)
    problem, engine = r.matrix, r.engine
    if engine.SPARSE:
        r.hop_graph = hops.Hops.of_matrix(there, symmetric=problem.source.symmetric())
        return r.hop_graph.time(r.count, labels=True)
    assert engine.HopSearches is not None
    lists = hops.lists_of_rows(engine.xp, there)
    back = lists if problem.source.symmetric() else hops.lists_of_rows(engine.xp, there.T)
    r.device_hops = searches = engine.HopSearches(r.n, lists, back)
    probes = searches.statistics(r.nodes[:: -(-r.count // _PROBES)], np.empty(0, np.int64))
    if (int(probes["far"].max()) + 1) * len(back[1]) > _LEVELS * r.n * r.n:
        raise TooExpensive("paths have many edges")
    return 0.0


def hops_on_device(r: Request) -> Solved:
    """Distances by breadth-first searches of a matrix in a device's memory."""
    problem, source = r.matrix, memory.source_of(r.matrix)
    d = memory.begin(problem)
    zero, out = source.s.identities(d.dtype)[0], d if r.rows is None else None
    found = r.device_hops.rows(r.nodes, d.dtype, zero, out)
    rows = None if r.rows is None else r.engine.from_host(r.rows)
    return memory.finish(problem, found, rows, source.array), None


def _edges_that_count_one(r: Request) -> Array:
    """Where a matrix has edges; TooExpensive if one does not count 1, or for lack of memory."""
    engine, n = r.engine, r.n
    if engine.HopSearches is None or n < (SPARSE_FROM if engine.SPARSE else _DEVICE_FROM):
        raise TooExpensive("needs a larger matrix, on an engine with such searches")
    facts = r.matrix.weights.facts
    if not 0 <= facts.lo <= 1:
        raise TooExpensive("needs edges that all count 1")
    free = engine.free_memory()
    if free is not None and free < _BYTES * n * n:
        raise TooExpensive(f"{_BYTES * n * n / 1e9:.3g} GB are not free")
    d = memory.begin(r.matrix)
    zero = memory.source_of(r.matrix).s.identities(d.dtype)[0]
    there = _ones(engine.xp, d, zero) if d.dtype.name in _COUNTED else None
    if there is None:
        raise TooExpensive("needs edges that all count 1")
    return there


def _ones(xp: Any, d: Array, zero: Any) -> Array | None:
    """Where a matrix is 1; None if any entry beside its diagonal is neither that nor zero."""
    n = len(d)
    there = xp.empty((n, n), bool)
    for i in range(0, n, _STRIP):
        part, ones = d[i : i + _STRIP], there[i : i + _STRIP]
        xp.equal(part, 1, out=ones)
        if int(xp.count_nonzero(ones) + xp.count_nonzero(part == zero)) + len(part) < part.size:
            return None
    return there


# --- algorithms on a matrix that they may overwrite ---------------------------------------------


def _squaring(problem: Problem) -> Solved:
    """Repeated squaring, until nothing changes."""
    source, steps = memory.source_of(problem), problem.steps
    engine, n = source.engine, source.n
    first = memory.begin(problem)
    p = memory.first_predecessors(problem, first) if problem.predecessors else None
    rounds = max(1, math.ceil(math.log2(max(n - 1, 1))) + 1)
    tick = reporter(problem.progress, rounds * float(n) ** 3, "repeated squaring", "pairs at most")
    d = first
    for step in range(rounds):
        following = d.copy()
        marks = None if p is None else p.copy()
        on_done = part_of(tick, step * float(n) ** 3, float(n) ** 3)
        steps.update(engine, d, d, following, marks, p, on_done=on_done)
        _check(following.diagonal(), problem)
        same = bool(engine.xp.array_equal(following, d))
        d, p = following, marks
        if same:
            break
    if tick is not None:
        tick(math.inf)
    first[...] = d
    if p is not None:
        memory.repair(problem, first, p)
    return first, p


def _power(problem: Problem, limit: int) -> Array:
    """Distances over at most `limit` edges: a power of the matrix with one on its diagonal."""
    source = memory.source_of(problem)
    engine, xp = source.engine, source.engine.xp
    d = memory.begin(problem)
    zero, one = source.s.identities(d.dtype)
    result: Array | None = None
    square, times = d, functools.partial(multiply, engine, source.s)
    products = max(1, limit.bit_length() + limit.bit_count() - 1)
    tick = reporter(problem.progress, float(products), "products by repeated squaring", "products")
    done = 0
    if limit == 0:
        result = xp.full_like(d, zero)
        xp.fill_diagonal(result, one)
    while limit:
        if limit & 1:
            result = square.copy() if result is None else times(result, square)
            done += 1
        limit >>= 1
        if limit:
            square = times(square, square)
            done += 1
        if tick is not None:
            tick(float(done))
    assert result is not None
    _check(result.diagonal(), problem)
    d[...] = result
    return d


def _from_sources(problem: Problem, rows: Index, limit: int | None) -> Solved:
    """Paths from some nodes: rounds of Bellman and Ford for all of them at once.

    TooExpensive after as many rounds as the elimination of the whole matrix would cost, which is
    done instead: so the work is at most twice the cheaper of the two.
    """
    source, steps = memory.source_of(problem), problem.steps
    engine, xp, n = source.engine, source.engine.xp, source.n
    d = memory.begin(problem)
    zero, one = source.s.identities(d.dtype)
    index = engine.from_host(rows)
    own = (xp.arange(len(rows)), index)
    x, p = d[index], None
    if limit == 0:
        x[...] = zero
        x[own] = one
        return x, None
    if problem.predecessors:
        p = memory.first_predecessors(problem, x, index)
    worth = limit - 1 if limit is not None else max(4, n // max(1, len(rows)))
    tick = reporter(problem.progress, float(max(1, worth)), "rounds of products", "products")
    for step in range(worth):
        following = x.copy()
        arg = None if p is None else p.copy()
        steps.update(engine, x, d, following, arg)
        steps.check(following[own], rows)
        same = bool(xp.array_equal(following, x))
        x, p = following, arg
        if tick is not None:
            tick(math.inf if same else float(step + 1))
        if same:
            break
    else:
        if limit is None:
            raise TooExpensive(f"paths have more than {worth} edges")
    if p is not None:
        repair_trees(engine, source.s, x, p, functools.partial(_edges, problem, d), rows)
    return x, p


def _edges(problem: Problem, d: Array) -> EdgeList:
    """The edges of the matrix of a graph that has one on its diagonal."""
    weights, n = memory.source_of(problem).engine.to_host(d), problem.source.n
    edges = EdgeList.of(n, *edges_of(problem.source.s, weights))
    return edges.kept(edges.row != edges.col)


def _check(diagonal: Array, problem: Problem) -> None:
    """Raise Improves if an entry of the diagonal is better than one."""
    problem.steps.check(diagonal, range(problem.source.n))
