"""Closures of graphs that are spread over devices, or larger than memory: who does what."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import check_memory
from ..closures.edges import EdgeList, edge_dtype
from ..closures.progress import Progress, reporter
from ..closures.sources import (
    DenseSource,
    EdgeSource,
    LiftedSource,
    Source,
    TruthSource,
    best_edges,
)
from ..closures.steps import Improves, Steps
from ..closures.trees import Edges, mend
from ..closures.weights import Rounding, Weights, as_numbers, check_predecessors, improved
from ..cpu import engine as cpu
from ..semirings import Semiring, semirings
from .blocks import Blocks, shape_of
from .devices import Place, device_list, places_of
from .sizes import parse_size
from .stored import multiply_streamed, solve_streamed
from .timeline import Timeline

__all__ = ["Elimination", "Where", "close", "over", "product", "source_of", "tile_of"]

Array = Any
Out = tuple[Path, Path | None] | None


def source_of(s: Semiring, graph: Array | EdgeList, directed: bool | None) -> Source:
    """A host matrix or a list of edges as a source."""
    if not isinstance(graph, EdgeList):
        return DenseSource(s, graph, undirected=directed is False)
    return EdgeSource(s, graph, edge_dtype(s, graph.weight))


def tile_of(n: int, height: int, width: int) -> int:
    """Side of the tiles for a matrix over height x width devices.

    Large enough for the product's speed, which 4096 steps of k reach, and for the copies of a step
    to take less time than its products; small enough that each device has some 8 x 8 of them, so
    that all have work until the end.
    """
    each = n // (8 * max(height, width))
    return min(4096, max(256, each // 128 * 128))


@dataclass
class Elimination:
    """A closure over tiles, from a source to distances and predecessors on the host.

    Parameters
    ----------
    source : Source
    directed : bool, optional
        None: a symmetric matrix is found to be undirected.
    predecessors : bool
    labels : sequence, optional
        Names of the nodes, for messages.
    progress : bool or callable, optional
    timeline : Timeline, optional
    """

    source: Source
    directed: bool | None
    predecessors: bool
    labels: Sequence[Any] | None = None
    progress: Progress = None
    timeline: Timeline | None = None

    def __post_init__(self) -> None:
        s, source = self.source.s, self.source
        if self.predecessors:
            check_predecessors(s, source.dtype)
        self.truth = self.predecessors and as_numbers(s, source.dtype)
        if self.truth:
            self.source = TruthSource(source, semirings["max_min"])

    def weights(self) -> Weights:
        """What is known of the weights; refuses those that are none."""
        source = self.source
        weights = Weights(source.s, source.dtype, source.n, source.facts)
        if weights.broken:
            whole, step = slice(0, source.n), 2048
            for i in range(0, source.n, step):
                rows = slice(i, min(i + step, source.n))
                weights.refuse(source.read(rows, whole), (i, 0))
        return weights

    def steps(self, weights: Weights) -> Steps:
        """The operations on tiles."""
        undirected = not self.predecessors and self.directed is not True and self.source.symmetric()
        return Steps.of(weights, symmetric=undirected, predecessors=self.predecessors)

    def solve(self, run: Run) -> tuple[Any, Any]:
        """What ``run(elimination, weights, steps)`` gives, with cycles named and rounding mended.

        Raises
        ------
        NegativeCycleError, ValueError
            If a cycle improves itself.
        """
        reporter(self.progress, 1.0)  # the argument's own errors come first
        try:
            return self._attempt(run)
        except Rounding as rounding:
            potentials = rounding.potentials
        # out here what the exception's frames held, a whole matrix, is free again
        return replace(self, source=LiftedSource(self.source, potentials))._attempt(run)

    def _attempt(self, run: Run) -> tuple[Any, Any]:
        weights = self.weights()
        try:
            return run(self, weights, self.steps(weights))
        except Improves as found:
            improved(
                self.source.s, self.source.n, found.first, found.diagonal, self.source.edges,
                self.labels,
            )  # fmt: skip

    def lower(self, d: Array, weights: Weights, rows: slice, columns: slice) -> Array:
        """Entries of the closure as the user has them: without potentials, in the graph's type."""
        if isinstance(self.source, LiftedSource):
            return self.source.lower(d, rows, columns)
        return d != 0 if self.truth else weights.narrow(d)

    def results(self, weights: Weights) -> tuple[Array, Array | None]:
        """Arrays on the host for distances and predecessors; MemoryError if there is no room."""
        n, dtype = self.source.n, np.dtype(bool) if self.truth else weights.dtype
        check_memory(
            n * n * (dtype.itemsize + 4 * self.predecessors), f"the {n} x {n} result in {dtype}"
        )
        return np.empty((n, n), dtype), np.empty((n, n), np.int32) if self.predecessors else None

    def mend(self, d: Array, p: Array, rows: slice, edges: Callable[[], Edges]) -> None:
        """Make trees of some rows of the predecessors; `d` as it was computed."""
        mend(cpu, self.source.s, d, p, np.arange(rows.start, rows.stop), edges)


Run = Callable[[Elimination, Weights, Steps], tuple[Any, Any]]


def over(places: Sequence[Place], tile: int | None = None, otherwise: Run | None = None) -> Run:
    """A run in the memory of some places, to arrays on the host.

    `otherwise` is what is done if they have not enough, which is a MemoryError without it.
    """

    def run(task: Elimination, weights: Weights, steps: Steps) -> tuple[Array, Array | None]:
        source = task.source
        n, whole = source.n, slice(0, source.n)
        blocks = Blocks(places, n, tile or _tile(places, n), steps, task.timeline)
        if short := _lacking(blocks):
            if otherwise is not None:
                return otherwise(task, weights, steps)
            raise MemoryError(short)
        d, p = task.results(weights)

        def read(rows: slice, columns: slice, xp: Any) -> Array:
            del xp
            return weights.widen(source.read(rows, columns))

        blocks.load(read)
        blocks.run(reporter(task.progress, blocks.pairs))

        edges = functools.cache(lambda: best_edges(source, lambda rows: blocks.read(rows, whole)))

        def take(i: int) -> None:
            rows = blocks.grid.part(i)
            strip = blocks.read(rows, whole)
            if p is not None:
                p[rows] = blocks.read_predecessors(rows, whole)
                task.mend(strip, p[rows], rows, edges)
            d[rows] = task.lower(strip, weights, rows, whole)

        with ThreadPoolExecutor(2 * len(places)) as pool:
            list(pool.map(take, range(blocks.grid.count)))
        return d, p

    return run


def streamed(
    out: Out, *, devices: Sequence[int] | None, memory_limit: int | None, checkpoint: int,
    resume: bool,
) -> Run:  # fmt: skip
    """A run over tiles that come and go (:func:`solve_streamed`), to paths or to arrays."""

    def run(task: Elimination, weights: Weights, steps: Steps) -> tuple[Any, Any]:
        source = task.source
        if isinstance(source, TruthSource):
            if devices is not None:
                raise TypeError(
                    "predecessors of truth values do not stream through devices: leave them to the "
                    "CPU, or give numbers 0 and 1 and the semiring max_min"
                )
            source = source.source  # a tile's k one after the other keeps trees of them, too
            weights = Weights(source.s, source.dtype, source.n, source.facts)
            steps = Steps.of(weights, symmetric=False, predecessors=True)
        into = task.results(weights) if out is None else out
        n = task.source.n
        total = n**3 / 2 if steps.symmetric else float(n) ** 3
        return solve_streamed(
            source, steps, weights, out=into, devices=devices, memory_limit=memory_limit,
            checkpoint=checkpoint, resume=resume, tick=reporter(task.progress, total),
            timeline=task.timeline,
        )  # fmt: skip

    return run


def _lacking(blocks: Blocks) -> str:
    """What is missing where the blocks do not fit, or an empty string."""
    for place in blocks.places:
        with place:
            free = place.engine.free_memory()
        if free is not None and blocks.needed() > free:
            (m, n), dtype = (blocks.grid.n, blocks.other.n), blocks.steps.dtype
            return (
                f"{place.name}: its part of the {m} x {n} matrix in {dtype} needs "
                f"{blocks.needed() / 1e9:.3g} GB, and {free / 1e9:.3g} GB are free: take more "
                f"devices, or float32 (half of float64)"
            )
    return ""


def _tile(places: Sequence[Place], n: int) -> int:
    return tile_of(n, *shape_of(len(places)))


# --- what users call ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Where:
    """Where work over tiles is done, as :func:`semiring_mm.apsp` is told.

    Parameters
    ----------
    device : {None, "cpu", "cuda", "cuda:N"}
    devices : {None, "all"} or sequence of int
    out : path or pair of paths, optional
    memory_limit : int or str, optional
    checkpoint : int
    resume : bool
    """

    device: str | None = None
    devices: Any = None
    out: Any = None
    memory_limit: int | str | None = None
    checkpoint: int = 1
    resume: bool = False

    def __post_init__(self) -> None:
        try:
            count = operator.index(self.checkpoint)
        except TypeError:
            count = 0
        if count < 1:
            raise ValueError(f"checkpoint is a number of steps from 1 on, got {self.checkpoint!r}")
        if self.resume and self.out is None:
            raise ValueError("resume goes on with a run that had out=PATH: give the same path")

    @classmethod
    def of(
        cls, device: str | None, devices: Any, out: Any, memory_limit: int | str | None,
        checkpoint: int, resume: bool,
    ) -> Where:  # fmt: skip
        """The same; a single device that is to hold the matrix needs no tiles."""
        where = cls(device, devices, out, memory_limit, checkpoint, resume)
        if devices is None or out is not None or memory_limit is not None:
            return where
        found = where.indices()
        assert found is not None
        return cls(f"cuda:{found[0]}") if len(found) == 1 else where

    def __bool__(self) -> bool:
        """Whether it asks for work over tiles at all."""
        return any(x is not None for x in (self.devices, self.out, self.memory_limit))

    def indices(self) -> list[int] | None:
        """CUDA devices, or None for the CPU."""
        if self.devices is not None:
            if self.device is not None:
                raise ValueError(
                    f"device={self.device!r} and devices={self.devices!r}: give one of them"
                )
            return device_list(self.devices)
        word = self.device or "cpu"
        if word == "cpu":
            return None
        kind, _, number = word.partition(":")
        if kind != "cuda" or not (number.isdecimal() or word == "cuda"):
            raise ValueError(f"device is None, 'cpu', 'cuda' or 'cuda:N', got {word!r}")
        if word == "cuda":
            device_list("all", "device")
            import cupy

            return [int(cupy.cuda.runtime.getDevice())]
        return device_list([int(number)], "device")

    def limit(self) -> int | None:
        """Bytes."""
        return None if self.memory_limit is None else parse_size(self.memory_limit)

    def paths(self, predecessors: bool) -> tuple[Path, Path | None] | None:
        """Where distances and predecessors go."""
        if self.out is None:
            return None
        given = self.out if isinstance(self.out, (tuple, list)) else (self.out,)
        if len(given) != 1 + predecessors or not all(isinstance(x, (str, PathLike)) for x in given):
            wanted = "two paths, out=(distances, predecessors)" if predecessors else "a path"
            raise ValueError(f"out is {wanted} ending in .npy or .zarr, got {self.out!r}")
        first, *rest = (Path(x) for x in given)
        return first, rest[0] if rest else None


def close(
    s: Semiring, graph: Any, where: Where, *, directed: bool | None, predecessors: bool,
    progress: Progress,
) -> Any:  # fmt: skip
    """The closure of a graph over tiles; see :func:`semiring_mm.apsp`.

    Parameters
    ----------
    graph : EdgeList, or what gives arrays on the host for two slices
    """
    devices, limit, paths = where.indices(), where.limit(), where.paths(predecessors)
    labels = graph.nodes if isinstance(graph, EdgeList) else None
    task = Elimination(source_of(s, graph, directed), directed, predecessors, labels, progress)
    stream = streamed(
        paths, devices=devices, memory_limit=limit, checkpoint=where.checkpoint,
        resume=where.resume,
    )  # fmt: skip
    if paths is not None or limit is not None or devices is None:
        found = task.solve(stream)
    else:
        found = task.solve(over(places_of(devices), otherwise=stream))
    return found if predecessors else found[0]


def product(
    s: Semiring, a: Any, b: Any, dtype: np.dtype[Any], where: Where, progress: Progress
) -> Any:
    """A ⊗ B over tiles; see :func:`semiring_mm.matmul`.

    Parameters
    ----------
    a, b : of shapes (m, k), (k, n); what gives arrays on the host for two slices
    dtype : dtype
        Of the result.
    """
    devices, limit, paths = where.indices(), where.limit(), where.paths(False)
    (m, depth), n = a.shape, b.shape[1]
    tick = reporter(progress, float(m) * n * depth)
    wide = np.dtype(np.float32 if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype)
    if paths is None:
        check_memory(m * n * dtype.itemsize, f"the {m} x {n} result in {dtype}")
    if paths is None and limit is None and devices is not None:
        places = places_of(devices)
        tile = _tile(places, max(m, n))
        steps = Steps(s, wide, None, look=False)
        blocks = Blocks(places, m, tile, steps, columns=n, depth=depth)
        if not _lacking(blocks):
            zero = s.identities(wide)[0]
            blocks.load(
                lambda rows, columns, xp: xp.full(
                    (rows.stop - rows.start, columns.stop - columns.start), zero, wide
                )
            )
            blocks.multiply(_reader(a, wide), _reader(b, wide), tick)
            c = np.empty((m, n), dtype)
            for i in range(blocks.grid.count):
                rows = blocks.grid.part(i)
                c[rows] = blocks.read(rows, slice(0, n))
            return c
    if wide != dtype:
        raise TypeError(
            f"out of core, {dtype} would be rounded at every step: give operands in float32"
        )
    into = np.empty((m, n), dtype) if paths is None else paths[0]
    return multiply_streamed(
        s, _Cast(a, dtype), _Cast(b, dtype), out=into, devices=devices, memory_limit=limit,
        checkpoint=where.checkpoint, resume=where.resume, tick=tick,
    )  # fmt: skip


def _reader(x: Any, dtype: np.dtype[Any]) -> Any:
    cast = _Cast(x, dtype)
    return lambda rows, columns, xp: cast[rows, columns]


class _Cast:
    """A matrix of another dtype, by blocks."""

    def __init__(self, x: Any, dtype: np.dtype[Any]) -> None:
        self.x, self.shape, self.dtype = x, x.shape, dtype

    def __getitem__(self, at: tuple[slice, slice]) -> Array:
        return np.asarray(self.x[at]).astype(self.dtype, copy=False)
