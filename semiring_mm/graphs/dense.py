"""Paths of graphs whose whole matrix is in one engine's memory: elimination, products, batches."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..arrays import check_memory
from ..closures import memory, spanning
from ..closures.edges import EdgeList
from ..closures.solve import Problem
from ..closures.sources import ArraySource, EdgeSource
from ..closures.trees import cyclic_rows, repair_trees
from ..closures.weights import edges_of
from ..hierarchy import costs
from ..products import multiply
from ..progress import Progress, part_of, reporter
from .choice import SPARSE_FROM, Choice, Machine, Request, choose, machine_for

__all__ = ["Dense"]

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
#: Blocks of rows from which a spanning forest takes less time than an elimination.
_FOREST = 4
Solved = tuple[Array, Array | None]


@dataclass(frozen=True)
class Dense:
    """What is asked of a dense matrix, or of each of a stack of them.

    Attributes
    ----------
    request : Request
    directed : bool, optional
    sources : (k,) int64, optional
    hops : int, optional
        The most edges of a path.
    labels : sequence, optional
        Names of the nodes, for messages.
    progress : bool or callable, optional
    """

    request: Request
    directed: bool | None = None
    sources: Index | None = None
    hops: int | None = None
    labels: Sequence[Any] | None = None
    progress: Progress = None

    def problem(self, source: ArraySource, method: str = "elimination") -> Problem:
        """The problem; only an elimination gains by symmetry, which is not looked for else."""
        directed = self.directed if method == "elimination" else True
        return Problem.of(source, directed, self.request.predecessors, self.labels, self.progress)

    def solve(self, source: ArraySource, choice: Choice) -> Solved:
        """Distances, in the memory of the source unless of some rows only, and predecessors."""
        n, engine, rows = source.n, source.engine, None
        problem = self.problem(source, "elimination" if choice.forest else choice.method)
        extra = 4 * self.request.predecessors if self.sources is None else 0
        if choice.method == "squaring":
            extra += 2 * source.dtype.itemsize
        check_memory(extra * n * n, f"the work beside the {n} x {n} matrix", engine)
        if self.sources is not None:
            rows = engine.from_host(self.sources)

        def run(given: Problem) -> Solved:
            problem = given.in_numbers()
            d, p = self._work(problem, choice)
            return memory.finish(problem, d, rows, memory.source_of(given).array), p

        return problem.solve(run)

    def _work(self, problem: Problem, choice: Choice) -> Solved:
        if choice.sparse:
            solved = _sparse(problem, self.sources, choice)
            if solved is not None:
                return solved
        if self._from_forest(problem, choice):
            return spanning.close(problem, self.sources)
        if self.request.method == "auto" and choice.method in ("elimination", "sources"):
            d = _hops(problem, self.sources)
            if d is not None:
                return d, None
        if choice.method == "sources":
            assert self.sources is not None
            return _from_sources(problem, self.sources, self.hops)
        if choice.method == "hops":
            assert self.hops is not None
            return _power(problem, self.hops), None
        if choice.method == "squaring":
            return _squaring(problem)
        return memory.close(problem)

    def _from_forest(self, problem: Problem, choice: Choice) -> bool:
        large = problem.source.n >= _FOREST * memory.source_of(problem).engine.BASE
        return choice.forest and large and problem.undirected and spanning.applies(problem)

    def forest(self, source: ArraySource, choice: Choice) -> Solved | None:
        """From a spanning forest of a matrix that is not to be overwritten, or None."""
        n = source.n
        count = n if self.sources is None else len(self.sources)
        size = count * n * (source.dtype.itemsize + 4 * self.request.predecessors)
        check_memory(size, f"the result of {count} x {n} entries", source.engine)
        problem = self.problem(source)
        if not self._from_forest(problem, choice):  # which looks whether the matrix is symmetric
            return None
        return spanning.close(problem, self.sources, keep=True)

    def each(self, source: ArraySource, choice: Choice) -> Solved:
        """One matrix of a stack, as if it were the only one; `choice` is that of small ones."""
        request = self.request
        if source.engine.SPARSE and request.countable:
            request = request.counted(source.array, source.s.identities(source.dtype)[0])
            choice = choose(request, machine_for(request))
        return self.solve(source, choice)

    def stack(self, source: ArraySource) -> Solved:
        """Every matrix of a stack, in its memory; small ones are spread over the threads."""
        engine, d = source.engine, source.array
        count, n = d.shape[:2]
        tick = reporter(self.progress, float(count), "a batch", "graphs")
        p = engine.xp.empty(d.shape, np.int32) if self.request.predecessors else None
        alone, choice = replace(self, progress=None), choose(self.request, Machine())

        def some(first: int, last: int) -> None:
            for i in range(first, last):
                part = ArraySource(engine, source.s, d[i], undirected=source.undirected)
                _, tree = alone.each(part, choice)
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

    def at_once(self, source: ArraySource) -> Solved | None:
        """A matrix, or each of a stack, in one launch, or None where the engine has no such way.

        A source that has its array as its original keeps it, and the result is a new array.
        """
        engine, xp, s, d = source.engine, source.engine.xp, source.s, source.array
        problem = self.problem(source, "stack")
        keep = source.original is not None
        p = xp.empty(d.shape, np.int32) if problem.predecessors else None
        closed = xp.empty(d.shape, d.dtype) if keep else d
        # the device computes while the host reads facts; they make much arithmetic faster
        early = keep and d.dtype.kind not in "biu" and d.shape[-1] < _FACTS_FROM
        done: Array | bool = False
        if early:
            done = source.facts_beside(lambda: engine.closure_batch(s, d, None, closed, p))
            if done is False:
                return None
        weights = problem.weights
        wide = source.take(weights, trees=problem.predecessors)
        if wide is not d:
            closed = wide
        if not early:
            done = engine.closure_batch(s, wide, weights.known(), closed, p)
            if done is False:
                return None
        each, trees, originals = map(_stacked, (closed, p, source.original))
        for i in _improving(problem, each):
            if originals is None:  # there is no cycle to name
                problem.solve(functools.partial(_check, each[i].diagonal()))
            part = ArraySource(engine, s, originals[i].copy())
            found, tree = replace(self, progress=None).each(part, choose(self.request, Machine()))
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
        return closed, p


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
    if open_rows is not None and not engine.to_host(open_rows).any():
        return []
    if open_rows is None and not len(
        engine.doubtful(problem.source.s, closed.reshape(flat), p.reshape(flat))
    ):
        return []
    roots = np.tile(np.arange(n), count)
    found: set[int] = set()
    s = problem.source.s
    for rows, _ in cyclic_rows(engine, s, closed.reshape(flat), p.reshape(flat), roots):
        found.update((rows // n).tolist())
    return sorted(found)


# --- algorithms on a matrix that they may overwrite ---------------------------------------------


def _sparse(problem: Problem, rows: Index | None, choice: Choice) -> Solved | None:
    """By sparse elimination or by searches; None where both are refused."""
    from .contraction import solve_sparse

    source, n = memory.source_of(problem), problem.source.n
    d = memory.begin(problem)
    zero, one = source.s.identities(d.dtype)
    there = d != zero
    np.fill_diagonal(there, d.diagonal() != one)
    row, col = np.nonzero(there)
    del there
    small = {"i": np.int32, "f": np.float32, "V": np.float32}[d.dtype.kind]
    weight = d[row, col].astype(d.dtype if d.dtype.itemsize >= 4 else small)
    whole = rows is None and weight.dtype == d.dtype and d.strides[1] == d.itemsize
    edges = EdgeSource(source.s, EdgeList.of(n, row, col, weight), weight.dtype)
    given = replace(problem, source=edges)
    solved = solve_sparse(given, choice, rows, d if whole else None)
    if solved is None or whole:
        return solved
    distances, p = solved
    narrow = distances.astype(d.dtype)
    narrow[distances == source.s.identities(distances.dtype)[0]] = zero
    if rows is not None:
        return narrow, p
    d[...] = narrow
    return d, p


def _hops(problem: Problem, rows: Index | None) -> Array | None:
    """By breadth-first searches where every edge counts 1; None where one does not."""
    source, facts, n = memory.source_of(problem), problem.weights.facts, problem.source.n
    engine, xp = source.engine, source.engine.xp
    if engine.HopSearches is None:
        return None
    if n < (SPARSE_FROM if engine.SPARSE else _DEVICE_FROM) or source.s.name != "min_plus":
        return None
    if problem.predecessors or not 0 <= facts.lo <= 1:
        return None
    free = engine.free_memory()
    if free is not None and free < _BYTES * n * n:
        return None
    d = memory.begin(problem)
    zero, out = source.s.identities(d.dtype)[0], d if rows is None else None
    there = _ones(xp, d, zero) if d.dtype.name in _COUNTED else None
    if there is None:
        return None
    from .contraction import count_hops
    from .hops import Hops, lists_of_rows

    chosen = np.arange(n) if rows is None else rows
    if engine.SPARSE:
        graph = Hops.of_matrix(there, symmetric=source.symmetric())
        del there
        team = pool.get_num_threads()
        if graph.time(len(chosen), labels=True) > costs.closure(n, None, threads=team):
            return None
        return count_hops(problem, graph, chosen, out)
    lists = lists_of_rows(xp, there)
    back = lists if source.symmetric() else lists_of_rows(xp, there.T)
    del there
    searches = engine.HopSearches(n, lists, back)
    probes = searches.statistics(chosen[:: -(-len(chosen) // _PROBES)], np.empty(0, np.int64))
    if (int(probes["far"].max()) + 1) * len(back[1]) > _LEVELS * n * n:
        return None  # in many levels
    return searches.rows(chosen, d.dtype, zero, out)


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

    After as many rounds as the elimination of the whole matrix would cost, that is done instead;
    so the work is at most twice the cheaper of the two.
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
            whole, trees = memory.close(replace(problem, progress=None))
            return whole[index], None if trees is None else trees[index]
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
