"""Closures over tiles: on several devices, or streamed from files or the host."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from .. import engine as engines
from ..arrays import check_memory
from ..closures.edges import EdgeList
from ..closures.solve import Problem
from ..closures.sources import best_edges, source_of
from ..closures.trees import repair_trees
from ..progress import Progress, reporter
from ..semirings import Semiring
from ..tiles import TileOptions
from .blocks import Blocks, beyond_devices, shape_of
from .devices import Device, cuda_devices
from .stored import solve_streamed
from .timeline import Timeline

__all__ = ["close_tiles", "over", "tile_of"]

Array = Any
Out = tuple[Path, Path | None] | None


def tile_of(n: int, height: int, width: int) -> int:
    """Side of the tiles for a matrix over height x width devices.

    Large enough for the product's speed, which 4096 steps of k reach, and for the copies of a step
    to take less time than its products; small enough that each device has some 8 x 8 of them, so
    that all have work until the end.
    """
    each = n // (8 * max(height, width))
    return min(4096, max(256, each // 128 * 128))


Run = Callable[[Problem], tuple[Array, Array | None]]


def over(
    devices: Sequence[Device], tile: int | None = None, otherwise: Run | None = None,
    timeline: Timeline | None = None,
) -> Run:  # fmt: skip
    """An executor in the memory of some devices; the result is on the host.

    `otherwise` runs where they have too little memory, which is a MemoryError without it.
    """

    def run(given: Problem) -> tuple[Array, Array | None]:
        problem = given.in_numbers()
        source = problem.source
        n, whole = source.n, slice(0, source.n)
        side = tile or tile_of(n, *shape_of(len(devices)))
        blocks = Blocks(devices, n, side, problem.steps, timeline)
        if short := _lacking(blocks):
            if otherwise is not None:
                return otherwise(given)
            raise short
        d, p = _results(problem)
        blocks.load(lambda rows, columns, xp: problem.weights.widen(source.read(rows, columns)))
        blocks.run(reporter(problem.progress, blocks.pairs, "elimination over devices"))

        edges = functools.cache(lambda: best_edges(source, lambda rows: blocks.read(rows, whole)))

        def take(i: int) -> None:
            rows = blocks.grid.part(i)
            strip = blocks.read(rows, whole)
            if p is not None:
                p[rows] = blocks.read(rows, whole, 1)
                own = np.arange(rows.start, rows.stop)
                repair_trees(engines.named("cpu"), source.s, strip, p[rows], edges, own)
            d[rows] = problem.restore(strip)

        with ThreadPoolExecutor(2 * len(devices)) as pool:
            list(pool.map(take, range(blocks.grid.count)))
        return d, p

    return run


def streamed(
    out: Out, *, devices: Sequence[int] | None, memory_limit: int | None, checkpoint: int,
    resume: bool, timeline: Timeline | None = None,
) -> Run:  # fmt: skip
    """An executor over tiles in files or the host's memory (:func:`solve_streamed`)."""

    def run(problem: Problem) -> tuple[Any, Any]:
        # truth values stay: a tile that takes one k after the other finds trees of them, too
        if devices is not None and problem.in_numbers() is not problem:
            raise TypeError(
                "predecessors of truth values do not stream through devices: leave them to the "
                "CPU, or give numbers 0 and 1 and the semiring max_min"
            )
        return solve_streamed(
            problem, out=_results(problem) if out is None else out, devices=devices,
            memory_limit=memory_limit, checkpoint=checkpoint, resume=resume,
            tick=reporter(problem.progress, problem.pairs, "elimination in tiles"),
            timeline=timeline,
        )  # fmt: skip

    return run


def _check_room(problem: Problem) -> None:
    """Raise MemoryError if the host cannot hold the results."""
    n, dtype, trees = problem.source.n, problem.dtype, problem.predecessors
    check_memory(n * n * (dtype.itemsize + 4 * trees), f"the {n} x {n} result in {dtype}")


def _results(problem: Problem) -> tuple[Array, Array | None]:
    """Arrays on the host for distances and predecessors; MemoryError if there is no room."""
    _check_room(problem)
    n, dtype, trees = problem.source.n, problem.dtype, problem.predecessors
    return np.empty((n, n), dtype), np.empty((n, n), np.int32) if trees else None


def _lacking(blocks: Blocks) -> MemoryError | None:
    """What is missing where the blocks do not fit."""
    for device in blocks.devices:
        with device:
            free = device.engine.free_memory()
        if free is not None and blocks.needed() > free:
            n, dtype = blocks.grid.n, blocks.steps.dtype
            what = f"{device.name}: its part of the {n} x {n} matrix in {dtype}"
            return beyond_devices(what, blocks.needed(), free)
    return None


# --- what users call ----------------------------------------------------------------------------


def close_tiles(
    s: Semiring, graph: Any, options: TileOptions, *, directed: bool | None, predecessors: bool,
    progress: Progress,
) -> Any:  # fmt: skip
    """The closure of a graph over tiles; see :func:`semiring_mm.apsp`.

    The graph is an EdgeList, or what gives arrays on the host for two slices.
    """
    devices, limit, paths = options.indices(), options.limit(), options.paths(predecessors)
    labels = graph.nodes if isinstance(graph, EdgeList) else None
    problem = Problem.of(source_of(s, graph, directed), directed, predecessors, labels, progress)
    if paths is None:
        _check_room(problem)  # before the weights are scanned
    stream = streamed(
        paths, devices=devices, memory_limit=limit, checkpoint=options.checkpoint or 1,
        resume=options.resume,
    )  # fmt: skip
    if paths is not None or limit is not None or devices is None:
        found = problem.solve(stream)
    else:
        found = problem.solve(over(cuda_devices(devices), otherwise=stream))
    return found if predecessors else found[0]
