"""Rows of sparse graphs' closures, by sweeps or searches, into files."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from .. import pool
from ..arrays import check_memory
from ..closures.edges import EdgeList
from ..closures.solve import Problem
from ..closures.sources import EdgeSource, Source, source_of
from ..closures.spanning import SpanningForest, applies, of_matrix, spans
from ..closures.trees import repair_trees
from ..closures.weights import as_numbers
from ..graphs.choice import DENSE, SPARSE_FROM, Request, choose, count_edges, machine_for
from ..graphs.contraction import has_ties
from ..graphs.dijkstra import search, searchable
from ..graphs.spanning import forest_of
from ..hierarchy.structure import Structure, eliminate
from ..hierarchy.sweeps import Metric, customize
from ..memory import free_memory
from ..progress import Progress, reporter
from ..semirings import Semiring, semirings
from ..tiles import TileOptions
from .budget import beyond_limit
from .rows import RowFiles

__all__ = ["sparse_rows"]

Array = NDArray[Any]
Index = NDArray[np.int64]
Node = NDArray[np.int32]

#: Rows of a strip at least: a product with a core, or sweeps by all threads, are worthwhile then.
_ROWS = 256
_STRIP = 256 << 20  # bytes of strips of more rows
_WIDE = 64  # rows that are converted at a time


def sparse_rows(
    s: Semiring, graph: Any, request: Request, options: TileOptions, rows: Index | None, *,
    directed: bool | None, predecessors: bool, progress: Progress,
) -> Any:  # fmt: skip
    """The closure of a sparse graph, or some rows of it, in files or beside little memory.

    Parameters
    ----------
    graph : EdgeList, or what gives arrays on the host for two slices
    request : Request
        Of what is known of the graph.
    options : TileOptions
    rows : (rows,) int64, optional
        From which nodes, however dense the graph is; None: from all of them, if it is sparse.

    Returns
    -------
    result or None
        None: tiles take less time, or less memory than there is.
    """
    labels = graph.nodes if isinstance(graph, EdgeList) else None
    given = source_of(s, graph, directed)
    count = given.n if rows is None else len(rows)
    asked = Problem.of(given, directed, predecessors, labels, progress)
    paths, files = options.paths(predecessors), None
    if paths is not None:
        files = RowFiles(asked, paths, rows, options.resume)
        if files.finished:
            return _given(files.opened(), predecessors)
    forced = rows is not None or request.method == "sparse"
    forced = forced or (files is not None and files.begun == "rows")
    if not forced and files is not None and files.begun == "tiles":
        return None
    problem, forest = replace(asked, progress=None), _forest(asked, graph)
    if forest is None:
        edges = _edges(s, graph, given, directed, math.inf if forced else DENSE * given.n)
        if edges is None or not (forced or _sparse(s, edges)):
            return None
        problem = replace(asked, source=edges, directed=None if s.commutes else True, progress=None)
        if as_numbers(s, given.dtype):
            numbers = edges.numbers(semirings["max_min"])
            problem = replace(problem, source=numbers, truth=True)
    state = None if files is None else files.find()
    if forest is not None:
        solver: _Solver | None = _Forest(problem, forest)
    elif state is not None and state.phase == "publish":
        solver = _Searches(problem)  # has nothing left to do
    else:
        solver = _solver(problem, request, count, _limit(options), forced)
    if solver is None:
        return None
    height = _height(solver, count, _limit(options), state.tile if state else None)
    tick = reporter(progress, float(count) * given.n, solver.method, "entries")
    if files is not None:
        files.write(solver.problem, solver.fill, height, options.checkpoint or 1, tick)
        return _given(files.opened(), predecessors)
    return _given(_in_memory(solver, rows, count, height, tick), predecessors)


def _forest(problem: Problem, graph: Any) -> SpanningForest | None:
    """The spanning forest that a closure comes from, of edges or of a symmetric matrix."""
    if isinstance(graph, EdgeList):
        return forest_of(problem)
    flat = isinstance(graph, np.ndarray) and graph.ndim == 2 and graph.dtype.isnative
    if not (flat and graph.strides[1] == graph.itemsize and problem.directed is not True):
        return None
    engine = engines.named("cpu")
    if not (spans(problem.source.s, graph.dtype) and engine.symmetric(graph) and applies(problem)):
        return None
    return of_matrix(engine, problem.source.s, graph)


def _in_memory(
    solver: _Solver, rows: Index | None, count: int, height: int,
    tick: Callable[[float], None] | None,
) -> tuple[Array, Node | None]:  # fmt: skip
    problem, n = solver.problem, solver.problem.source.n
    each = problem.dtype.itemsize + 4 * problem.predecessors
    check_memory(count * n * each, f"the result of {count} x {n} entries")
    d = np.empty((count, n), problem.dtype)
    p = np.empty((count, n), np.int32) if problem.predecessors else None
    chosen = np.arange(n) if rows is None else rows
    for begin in range(0, count, height):
        part = slice(begin, min(begin + height, count))
        solver.fill(chosen[part], d[part], None if p is None else p[part])
        if tick is not None:
            tick(float(part.stop) * n)
    return d, p


def _given(found: tuple[Any, Any], predecessors: bool) -> Any:
    return found if predecessors else found[0]


def _limit(options: TileOptions) -> int:
    """Bytes that the work may take."""
    limit = options.limit()
    return limit if limit is not None else (free_memory() or 1 << 62) // 2


def _sparse(s: Semiring, edges: EdgeSource) -> bool:
    few = len(edges.given.col) <= DENSE * edges.n and edges.n >= SPARSE_FROM
    return few and (s.selective or edges.dtype.kind == "b")


def _edges(
    s: Semiring, graph: Any, given: Source, directed: bool | None, most: float
) -> EdgeSource | None:
    """The edges of a graph that has not too many of them."""
    if isinstance(graph, EdgeList):
        assert isinstance(given, EdgeSource)
        edges = given.given
    else:
        if math.isfinite(most):
            few = isinstance(graph, np.ndarray) and given.n >= SPARSE_FROM
            zero = s.identities(given.dtype)[0]
            if not few or count_edges(graph, zero, int(most)) is None:
                return None
        edges = replace(given.edges(), directed=directed is not False)
    if given.dtype.kind != "b":
        edges = edges.kept(edges.weight != s.identities(given.dtype)[0])
    return EdgeSource(s, edges, given.dtype)


def _solver(
    problem: Problem, request: Request, count: int, limit: int, forced: bool
) -> _Solver | None:
    """What takes the least time, within a limit of memory; None: tiles do."""
    source = problem.source
    assert isinstance(source, EdgeSource)
    request = replace(
        request, n=source.n, itemsize=problem.dtype.itemsize, edges=len(source.given.col),
        undirected=source.symmetric(), selective=True, tiles=False, device="cpu", sources=count,
    )  # fmt: skip
    choice = choose(request, machine_for(request))
    dense = math.inf if forced else choice.dense
    searches = choice.search if searchable(problem) else math.inf
    found = _sweeps(problem, count, min(dense, searches), limit)
    if isinstance(found, _Sweeps):
        return found
    if searches <= dense and searchable(problem):
        return _Searches(problem)
    if forced and found:
        raise beyond_limit(f"the elimination of {source.n} nodes", found, limit)
    return None


def _sweeps(problem: Problem, count: int, time: float, limit: int) -> _Sweeps | int:
    """Sweeps; or the bytes that they lack, 0 where they take more than `time`, in nanoseconds."""
    source, size = problem.source, problem.steps.dtype.itemsize
    row, col, _ = source.edges().arrays
    structure = eliminate(source.n, row, col, sources=count, limit=time, itemsize=size)
    if structure is None:
        return 0
    needed = _Sweeps.bytes(problem, structure) + _row_bytes(problem)
    if needed > limit:
        return needed

    def run(given: Problem) -> _Sweeps:
        return _Sweeps(given, customize(structure, given, trees=problem.predecessors), count)

    return problem.solve(run)


def _row_bytes(problem: Problem) -> int:
    """Of a row that is computed and of one that is written, and of temporary ones."""
    return problem.source.n * 2 * (problem.dtype.itemsize + 8 * problem.predecessors)


def _height(solver: _Solver, count: int, limit: int, fixed: int | None) -> int:
    """Rows of a strip."""
    problem, each = solver.problem, _row_bytes(solver.problem) + solver.extra
    room = (limit - solver.fixed) // max(1, each)
    if room < (fixed or 1):
        needed = solver.fixed + (fixed or 1) * each
        what = f"a strip of {fixed or 1} rows of {problem.source.n} nodes"
        raise beyond_limit(what, needed, limit)
    if fixed is not None:
        return fixed
    most = max(_ROWS, _STRIP // max(1, problem.source.n * problem.dtype.itemsize))
    height = min(count, most, room)
    whole = solver.width * pool.get_num_threads()
    return max(1, height // whole * whole if height > whole else height)


class _Solver:
    """Fills rows of the type of the result.

    Attributes
    ----------
    fixed : int
        Bytes that are taken however many rows there are.
    extra : int
        Bytes of each row beside it.
    width : int
        Rows that a thread computes at once.
    """

    method = ""
    fixed = extra = 0
    width = 1

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.plain = problem.steps.dtype == problem.dtype and not problem.truth

    def fill(self, sources: Index, d: Array, p: Node | None) -> None:
        if self.plain:
            self.rows(sources, d, p)
            return
        for begin in range(0, len(sources), _WIDE):
            part = slice(begin, min(begin + _WIDE, len(sources)))
            wide = np.empty(d[part].shape, self.problem.steps.dtype)
            self.rows(sources[part], wide, None if p is None else p[part])
            d[part] = self.problem.restore(wide)

    def rows(self, sources: Index, d: Array, p: Node | None) -> None:
        raise NotImplementedError

    @classmethod
    def _wide(cls, problem: Problem) -> int:
        """Bytes of the rows that are converted."""
        return _WIDE * problem.source.n * 3 * problem.steps.dtype.itemsize


class _Forest(_Solver):
    method = "a spanning tree"

    def __init__(self, problem: Problem, forest: SpanningForest) -> None:
        super().__init__(problem)
        self.forest, n = forest, problem.source.n
        size = problem.steps.dtype.itemsize
        self.fixed = n * (64 + size * (n.bit_length() + 2)) + self._wide(problem)

    def rows(self, sources: Index, d: Array, p: Node | None) -> None:
        self.forest.write(engines.named("cpu"), d, p, sources.astype(np.int32))


class _Sweeps(_Solver):
    method = "sparse elimination"

    def __init__(self, problem: Problem, metric: Metric, rows: int) -> None:
        super().__init__(problem)
        whole = None if problem.truth else metric.whole(problem.dtype, rows)
        self.plain = self.plain or whole is not None
        metric = whole or metric
        self.metric, self.width = metric, metric.width
        self.fixed = self.bytes(problem, metric.structure)
        self.extra = 4 * metric.structure.core * (problem.steps.dtype.itemsize + 4 * metric.trees)
        self.ties = metric.trees and has_ties(problem)

    @classmethod
    def bytes(cls, problem: Problem, structure: Structure) -> int:
        """Memory beside that of the rows."""
        size, arcs = problem.steps.dtype.itemsize, len(problem.source.edges().col)
        found = structure.bytes(size, trees=problem.predecessors) + arcs * (16 + size)
        return found + cls._wide(problem)

    def rows(self, sources: Index, d: Array, p: Node | None) -> None:
        self.metric.sweep(sources, d, p)
        if p is not None and self.ties:
            edges = self.problem.source.edges
            repair_trees(engines.named("cpu"), self.problem.source.s, d, p, edges, sources)


class _Searches(_Solver):
    method = "a search from each source"

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        arcs, size = len(problem.source.edges().col), problem.steps.dtype.itemsize
        self.fixed = arcs * (36 + 2 * size) + self._wide(problem)
        self.fixed += pool.get_num_threads() * (arcs + problem.source.n) * (4 + size)

    def rows(self, sources: Index, d: Array, p: Node | None) -> None:
        _, trees = search(self.problem, sources=sources, out=d)
        if p is not None and trees is not None:
            p[...] = trees
