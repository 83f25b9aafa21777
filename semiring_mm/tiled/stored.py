"""Closures and products of matrices that are larger than memory, from a graph to the result."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from ..arrays import check_memory
from ..closures.elimination import Grid
from ..closures.solve import Problem
from ..closures.sources import best_edges
from ..closures.trees import repair_trees
from ..products import common_dtype
from ..progress import Progress, Tick, reporter
from ..semirings import Semiring
from ..sparse import is_sparse
from ..tiles import TileOptions, Tiles
from .budget import make_plan
from .run import Out, Run, Saver, task_of
from .stores import Store
from .streamed import Product, Streamed
from .timeline import Timeline

__all__ = ["multiply_tiles", "solve_streamed"]

Array = NDArray[Any]


def solve_streamed(
    problem: Problem,
    *,
    out: tuple[Out, Out],
    devices: Sequence[int] | None = None,
    memory_limit: int | None = None,
    checkpoint: int = 1,
    resume: bool = False,
    tick: Tick | None = None,
    timeline: Timeline | None = None,
    tile: int | None = None,
) -> tuple[Any, Any]:
    """Close the matrix of a graph out of core.

    Parameters
    ----------
    problem : Problem
    out : (Path or ndarray, Path, ndarray or None)
        Where distances and predecessors go: paths that end in ``.npy`` or ``.zarr``, or arrays of
        the source's dtype and of int32.
    devices : sequence of int, optional
        CUDA devices that compute; default the CPU.
    memory_limit : int, optional
        Bytes that tiles may take on the host; default half of what is free. An array given as
        `out` does not count. On a device nine tenths of what is free are used.
    checkpoint : int
        Steps from one state to the next (paths only).
    resume : bool
        Resume from the state beside the path (with its margins, if there are some); begin where
        there is nothing yet, and compute nothing where the results are there.
    tick, timeline : optional
    tile : int, optional
        Rows of a tile; default :func:`.budget.choose_tile`. A resumed run keeps its own.

    Returns
    -------
    distances, predecessors : ndarray or zarr.Array
        As they were given; a path is opened to read.

    Raises
    ------
    FileExistsError, OSError, ValueError
        As of :class:`.run.Run`.
    Improves
        If a cycle improves itself; then nothing is kept.
    """
    source, trees = problem.source, problem.predecessors
    dtypes, shape = [problem.dtype, np.dtype(np.int32)][: 1 + trees], (source.n, source.n)
    run = Run(out, dtypes, shape, task_of(problem, out), source.fingerprint, resume)
    if not run.finished:
        found = run.find(symmetric=problem.steps.symmetric)
        if found is not None:
            tile, margins = found.tile, found.margins()
            if margins is not None and source.margins is None:
                problem = replace(problem, source=source.worsened(margins))
        elif run.state is not None and source.margins is not None:
            run.state.keep_margins(source.margins)
        steps = problem.steps
        size = steps.dtype.itemsize + 4 * trees
        plan = make_plan(source.n, size, devices, memory_limit, tile)
        grid = Grid(source.n, plan.tile)
        with run.open((plan.tile, plan.tile), plan.loaders, steps.dtype):
            if run.phase == "load":
                _load(problem, grid, *run.stores, plan.loaders)
            if run.phase != "publish":
                with (
                    Saver(run, checkpoint) as saver,
                    Streamed(
                        grid, steps, *run.stores, plan, run.step, saver, tick, timeline
                    ) as executor,
                ):
                    executor.run()
                _repair(problem, grid, *run.stores)
                _narrow(problem, grid, run.stores[0], run.results[0])
            run.finish()
    return run.opened()


def _load(problem: Problem, grid: Grid, d: Store, p: Store | None, workers: int) -> None:
    """Read the graph into the stores, with one on the diagonal."""

    def load(i: int, j: int) -> None:
        at = grid.part(i), grid.part(j)
        block = problem.weights.widen(problem.source.read(*at))
        before = problem.steps.begin(np, block, *at)
        if p is not None:
            assert before is not None
            p.write(*at, before)
        d.write(*at, block)

    side = range(grid.count)
    with ThreadPoolExecutor(workers) as pool:
        futures = [
            pool.submit(load, i, j) for i in side for j in side[i * problem.steps.symmetric :]
        ]
        try:
            for future in futures:
                future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _repair(problem: Problem, grid: Grid, d: Store, p: Store | None) -> None:
    """Make every row of the predecessors a tree, a row of tiles at a time."""
    if p is None:
        return

    def strip(store: Store, rows: slice) -> Array:
        found = np.empty((rows.stop - rows.start, grid.n), store.dtype)
        store.read(rows, slice(0, grid.n), found)
        return found

    edges = functools.cache(lambda: best_edges(problem.source, functools.partial(strip, d)))
    for rows in map(grid.part, range(grid.count)):
        before, own = strip(p, rows), np.arange(rows.start, rows.stop)
        cpu = engines.named("cpu")
        repair_trees(cpu, problem.source.s, strip(d, rows), before, edges, own)
        p.write(rows, slice(0, grid.n), before)


def _narrow(problem: Problem, grid: Grid, d: Store, result: Store) -> None:
    """Mirror a symmetric matrix, and convert distances to the type of the result."""
    half, side = problem.steps.symmetric, range(grid.count)
    for i in side:
        for j in side if d is not result else side[: i * half]:
            rows, columns = grid.part(i), grid.part(j)
            other = half and j < i
            at = (columns, rows) if other else (rows, columns)
            block = np.empty([x.stop - x.start for x in at], d.dtype)
            d.read(*at, block)
            block = problem.weights.narrow(block.T if other else block)
            result.write(rows, columns, np.ascontiguousarray(block))


def multiply_tiles(
    s: Semiring, a: Any, b: Any, device: str | None, tiles: Tiles | None,
    progress: Progress = None, tile: int | None = None,
) -> Any:  # fmt: skip
    """A ⊗ B over tiles; see :func:`semiring_mm.matmul`.

    Floats of 16 bits are computed in float32 and rounded once. A step is a row of tiles; `tile`,
    rows of one, is as for :func:`solve_streamed`.
    """
    a, b, dtype = _by_blocks(s, a, b)
    options = TileOptions.of(device, tiles)
    devices, paths = options.indices(), options.paths(False)
    (m, k), n = a.shape, b.shape[1]
    tick = reporter(progress, float(m) * n * k)
    if paths is None:
        check_memory(m * n * dtype.itemsize, f"the {m} x {n} result in {dtype}")
    out = np.empty((m, n), dtype) if paths is None else paths[0]
    wide = np.dtype(np.float32 if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype)
    left, right = (Store(x, wide) for x in (a, b))
    task: dict[str, Any] = {
        "semiring": str(s), "m": m, "k": k, "n": n, "dtype": str(dtype),
        "operands": "" if paths is None else _fingerprint(left, right),
    }  # fmt: skip
    run = Run([out], [dtype], (m, n), task, lambda: str(task["operands"]), options.resume)
    if not run.finished:
        found = run.find()
        tile = tile if found is None else found.tile
        plan = make_plan(max(m, n, k), wide.itemsize, devices, options.limit(), tile)
        with run.open((plan.tile, plan.tile), plan.loaders):
            if run.phase != "publish":
                with (
                    Saver(run, options.checkpoint or 1) as saver,
                    Product(s, left, right, run.stores[0], plan, run.step, saver, tick) as product,
                ):
                    product.run()
            run.finish()
    return run.opened()[0]


def _by_blocks(s: Semiring, a: Any, b: Any) -> tuple[Any, Any, np.dtype[Any]]:
    """Operands that can be read by blocks as NumPy arrays, and the dtype of their product."""
    a, b = (np.asarray(x) if isinstance(x, (list, tuple)) else x for x in (a, b))
    for name, x in (("a", a), ("b", b)):
        sliced = all(hasattr(x, word) for word in ("shape", "dtype", "__getitem__"))
        there = sliced and isinstance(x.dtype, np.dtype) and not is_sparse(x)
        there = there and not hasattr(x, "__cuda_array_interface__")
        if not there or len(x.shape) != 2:
            came = f"shape {x.shape}" if there else type(x).__name__
            raise TypeError(
                f"matmul: over tiles {name} is a matrix on the host (NumPy, numpy.memmap, Zarr), "
                f"got {came}"
            )
    if a.shape[1] != b.shape[0]:
        raise ValueError(
            f"matmul: shapes {tuple(a.shape)} and {tuple(b.shape)} do not match: a has "
            f"{a.shape[1]} columns and b has {b.shape[0]} rows"
        )
    dtype = common_dtype(s, np.empty(0, a.dtype), np.empty(0, b.dtype))[0].dtype
    return a, b, dtype


def _fingerprint(*operands: Store) -> str:
    """A hash of matrices."""
    mark = hashlib.sha256()
    for x in operands:
        lines = max(1, (1 << 20) // max(1, x.shape[1]))
        for i in range(0, x.shape[0], lines):
            rows = slice(i, min(i + lines, x.shape[0]))
            part = np.empty((rows.stop - i, x.shape[1]), x.dtype)
            x.read(rows, slice(0, x.shape[1]), part)
            mark.update(part.tobytes())
    return mark.hexdigest()
