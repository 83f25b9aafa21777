"""Closures of graphs that are spread over devices, or larger than memory: who does what."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..cpu import engine as cpu
from ..graphs.inputs import EdgeList, check_memory
from ..graphs.progress import Progress, reporter
from ..graphs.trees import mend
from ..graphs.weights import Rounding, Weights, improved
from ..semirings import Semiring, semirings
from .blocks import Blocks, shape_of
from .places import Place
from .sources import DenseSource, EdgeSource, LiftedSource, Source, TruthSource, trees_of
from .steps import Improves, Steps
from .timeline import Timeline

__all__ = ["Elimination", "over", "source_of", "tile_of"]

Array = Any


def source_of(s: Semiring, graph: Array | EdgeList, directed: bool | None) -> Source:
    """A host matrix or a list of edges as a source."""
    if not isinstance(graph, EdgeList):
        return DenseSource(s, graph, undirected=directed is False)
    truth = bool({"|", "^"} & set(s.add_expr.ops()))
    single = graph.weight.dtype == np.float32
    return EdgeSource(s, graph, np.bool_ if truth else np.float32 if single else np.float64)


def tile_of(n: int, height: int, width: int) -> int:
    """Side of the tiles for a matrix over height x width devices.

    Large enough for the product's speed, which 2048 steps of k reach, and for the copies of a step
    to take less time than its products; small enough that each device has some 8 x 8 of them, so
    that all have work until the end.
    """
    each = n // (8 * max(height, width))
    return min(2048, max(256, each // 128 * 128))


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
        self.truth = self.predecessors and source.dtype.kind == "b"
        if self.truth:  # as 0 and 1 under max and min, where one k wins
            self.source = TruthSource(source, semirings["max_min"])
        elif self.predecessors and not s.selective:
            raise ValueError(
                f"return_predecessors needs a semiring whose ⊕ chooses one of its operands; "
                f"{s.name} has ⊕ = {s.add}"
            )

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

    def solve(self, run: Any) -> Any:
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
            lifted = replace(self, source=LiftedSource(self.source, rounding.potentials))
            return lifted._attempt(run)

    def _attempt(self, run: Any) -> Any:
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

    def mend(self, d: Array, p: Array, rows: slice) -> None:
        """Make trees of some rows of the predecessors; `d` as it was computed."""
        index = np.arange(rows.start, rows.stop)
        mend(cpu, self.source.s, d, p, index, lambda: trees_of(self.source))


def over(places: Sequence[Place], tile: int | None = None) -> Any:
    """A ``run`` for :meth:`Elimination.solve`: in the memory of some places, to arrays on the host.

    Raises
    ------
    MemoryError
        Before any work, if it does not fit.
    """

    def run(task: Elimination, weights: Weights, steps: Steps) -> Any:
        source = task.source
        n, whole = source.n, slice(0, source.n)
        blocks = Blocks(places, n, tile or _tile(places, n), steps, task.timeline)
        dtype = np.dtype(bool) if task.truth else weights.dtype
        check_memory(
            n * n * (dtype.itemsize + 4 * steps.predecessors), f"the {n} x {n} result in {dtype}"
        )
        for place in places:
            with place:
                free = place.engine.free_memory()
            if free is not None and blocks.needed() > free:
                raise MemoryError(
                    f"{place.name}: its part of the {n} x {n} matrix in {steps.dtype} needs "
                    f"{blocks.needed() / 1e9:.3g} GB, and {free / 1e9:.3g} GB are free: take more "
                    f"devices, float32 (half of float64), or out=PATH"
                )

        def read(rows: slice, columns: slice, xp: Any) -> Array:
            del xp
            return weights.widen(source.read(rows, columns))

        blocks.load(read)
        blocks.run(reporter(task.progress, blocks.pairs))
        d = np.empty((n, n), dtype)
        p = np.empty((n, n), np.int32) if steps.predecessors else None

        def take(i: int) -> None:
            rows = blocks.grid.part(i)
            strip = blocks.read(rows, whole)
            if p is not None:
                p[rows] = blocks.read_predecessors(rows, whole)
                task.mend(strip, p[rows], rows)
            d[rows] = task.lower(strip, weights, rows, whole)

        with ThreadPoolExecutor(2 * len(places)) as pool:
            list(pool.map(take, range(blocks.grid.count)))
        return d, p

    return run


def _tile(places: Sequence[Place], n: int) -> int:
    return tile_of(n, *shape_of(len(places)))
