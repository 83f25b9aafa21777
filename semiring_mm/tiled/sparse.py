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
from ..closures.weights import as_numbers
from ..graphs.choice import DENSE, SPARSE_FROM, Request, count_edges
from ..graphs.methods import plan
from ..graphs.rows import WIDE, Forest, Rows, Searches, Sweeps
from ..graphs.spanning import forest_of
from ..hierarchy.costs import TooExpensive
from ..hierarchy.metric import customize
from ..progress import reporter
from ..semirings import Semiring, semirings
from .budget import allowance, beyond_limit
from .rows import RowFiles

__all__ = ["sparse_rows"]

Array = NDArray[Any]
Index = NDArray[np.int64]
Node = NDArray[np.int32]

#: Rows of a strip at least: a product with a core, or sweeps by all threads, are worthwhile then.
_ROWS = 256
_STRIP = 256 << 20  # bytes of strips of more rows


def sparse_rows(graph: Any, request: Request) -> Any:
    """The closure of a sparse graph, or some rows of it, in files or beside little memory.

    The graph is an EdgeList, or what gives arrays on the host for two slices. Rows are from the
    nodes in `request`, however dense the graph is; else from all, if it is sparse. Raises
    TooExpensive if tiles take less time, or less memory than there is.
    """
    s, options, rows, directed = request.s, request.options, request.rows, request.directed
    predecessors, progress = request.predecessors, request.progress
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
        raise TooExpensive("tiles were begun")
    problem, forest = replace(asked, progress=None), _forest(asked, graph)
    if forest is None:
        most = math.inf if forced else DENSE * given.n
        edges = _edges(s, graph, given, directed, most)
        if not (forced or _sparse(s, edges)):
            raise TooExpensive(f"over {DENSE} edges a node")
        problem = replace(asked, source=edges, directed=None if s.commutes else True, progress=None)
        if as_numbers(s, given.dtype):
            numbers = edges.numbers(semirings["max_min"])
            problem = replace(problem, source=numbers, truth=True)
    state = None if files is None else files.find()
    solver: Rows
    if forest is not None:
        solver = Forest(problem, forest)
    elif state is not None and state.phase == "publish":
        solver = Searches(problem)  # has nothing left to do
    else:
        solver = _solver(problem, request, count, allowance(options.limit()), forced)
    height = _height(solver, count, allowance(options.limit()), state.tile if state else None)
    tick = reporter(progress, float(count) * given.n, solver.method, "entries")
    if files is not None:
        files.write(solver.problem, solver.write, height, options.checkpoint or 1, tick)
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
    solver: Rows, rows: Index | None, count: int, height: int,
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
        solver.write(chosen[part], d[part], None if p is None else p[part])
        if tick is not None:
            tick(float(part.stop) * n)
    return d, p


def _given(found: tuple[Any, Any], predecessors: bool) -> Any:
    return found if predecessors else found[0]


def _sparse(s: Semiring, edges: EdgeSource) -> bool:
    few = len(edges.given.col) <= DENSE * edges.n and edges.n >= SPARSE_FROM
    return few and (s.selective or edges.dtype.kind == "b")


def _edges(
    s: Semiring, graph: Any, given: Source, directed: bool | None, most: float
) -> EdgeSource:
    """The edges of a graph; TooExpensive if a matrix has too many of them."""
    if isinstance(graph, EdgeList):
        assert isinstance(given, EdgeSource)
        edges = given.given
    else:
        if math.isfinite(most):
            few = isinstance(graph, np.ndarray) and given.n >= SPARSE_FROM
            zero = s.identities(given.dtype)[0]
            if not few or count_edges(graph, zero, int(most)) is None:
                raise TooExpensive(f"over {DENSE} edges a node")
        edges = replace(given.edges(), directed=directed is not False)
    if given.dtype.kind != "b":
        edges = edges.kept(edges.weight != s.identities(given.dtype)[0])
    return EdgeSource(s, edges, given.dtype)


def _solver(problem: Problem, request: Request, count: int, limit: int, forced: bool) -> Rows:
    """What takes the least time, within a limit of memory; TooExpensive: tiles do."""
    source = problem.source
    assert isinstance(source, EdgeSource)
    inner = Request(
        problem.source.s, source.n, problem.dtype, len(source.given.col), method=request.method,
        predecessors=problem.predecessors, sources=count, undirected=source.symmetric(),
        device="cpu", kept=False, metric=True, strips=not forced, room=limit,
        extra=lambda x: Sweeps.bytes(problem, x) + _row_bytes(problem) + _wide_bytes(problem),
    )  # fmt: skip
    inner.sparse = problem
    best = plan(inner).name
    if best == "sparse elimination":
        structure = inner.structure
        assert structure is not None

        def run(given: Problem) -> Sweeps:
            rows = Sweeps(customize(structure, given, trees=problem.predecessors), given, count)
            rows.method = best
            return rows

        return problem.solve(run)
    if best == "a search from each source":
        return Searches(problem)
    raise TooExpensive("tiles take less time, or less memory than there is")


def _row_bytes(problem: Problem) -> int:
    """Of a row that is computed and of one that is written, and of temporary ones."""
    return problem.source.n * 2 * (problem.dtype.itemsize + 8 * problem.predecessors)


def _wide_bytes(problem: Problem) -> int:
    """Of rows that are converted."""
    return WIDE * problem.source.n * 3 * problem.steps.dtype.itemsize


def _height(solver: Rows, count: int, limit: int, fixed: int | None) -> int:
    """Rows of a strip."""
    problem, each = solver.problem, _row_bytes(solver.problem) + solver.extra
    taken = solver.fixed + _wide_bytes(problem)
    room = (limit - taken) // max(1, each)
    if room < (fixed or 1):
        needed = taken + (fixed or 1) * each
        what = f"a strip of {fixed or 1} rows of {problem.source.n} nodes"
        raise beyond_limit(what, needed, limit)
    if fixed is not None:
        return fixed
    most = max(_ROWS, _STRIP // max(1, problem.source.n * problem.dtype.itemsize))
    height = min(count, most, room)
    whole = solver.width * pool.get_num_threads()
    return max(1, height // whole * whole if height > whole else height)
