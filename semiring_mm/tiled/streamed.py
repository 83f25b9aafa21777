"""Eliminations and products out of core: tiles stream from a store through a few buffers.

In memory are row k of a step, which all tiles need, and a few tiles that are read, computed or
written: ``(n + 7 tile) · tile`` entries on few cores (:func:`.budget.room`), for any n. Reading,
computing and writing overlap, each in threads of its own, and tiles are read ahead, so that the
steps of an elimination need no look-ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ..closures.elimination import Grid
from ..closures.steps import Steps
from ..engine import Scaling
from ..progress import Tick
from ..semirings import Semiring
from .devices import Device
from .pipeline import Job, Pair, Pipelines
from .stores import Readable, Store
from .timeline import Timeline

__all__ = ["Product", "Streamed"]


class Streamed:
    """An elimination over a store; the operations are those of :mod:`..closures.elimination`.

    Parameters
    ----------
    grid : Grid
    steps : Steps
    d : Store
        The matrix after :meth:`Steps.begin`, in the dtype of `steps`.
    p : Store, optional
        Predecessors, if `steps` wants them.
    devices : sequence of Device
        Each holds the pivot row of a step, and computes a part of the tiles.
    slots, workers : int
        As for :class:`.pipeline.Pipelines`.
    first : int
        The first step.
    saved : callable, optional
        Called after each step with the step from which a run would resume.
    tick, timeline : optional
    """

    def __init__(
        self, grid: Grid, steps: Steps, d: Store, p: Store | None, devices: Sequence[Device], *,
        slots: int, workers: int, first: int = 0, saved: Callable[[int], None] | None = None,
        tick: Tick | None = None, timeline: Timeline | None = None,
    ) -> None:  # fmt: skip
        self.grid, self.steps, self.first, self.saved = grid, steps, first, saved
        self.stores = (d, p)
        self._devices = devices
        done = float(first) * grid.tile * float(grid.n) ** 2 / (2 if steps.symmetric else 1)
        self._pipelines = Pipelines(
            devices, slots, workers, self._pair, grid.tile**2, tick=tick, timeline=timeline,
            first=done,
        )  # fmt: skip
        sizes = [grid.tile * grid.size(j) for j in range(grid.count)]
        self._rows = [[self._pair(device, size) for size in sizes] for device in devices]

    def _pair(self, device: Device, size: int) -> Pair:
        p = device.empty(size, np.dtype(np.int32)) if self.steps.predecessors else None
        return Pair(device.empty(size, self.steps.dtype), p)

    def run(self) -> None:
        """All steps from the first on."""
        for k in range(self.first, self.grid.count):
            self._step(k)
            if self.saved is not None:
                self.saved(k + 1)

    def _step(self, k: int) -> None:
        """The pivot, its row and column, all other tiles."""
        steps, count = self.steps, len(self._devices)
        others = [i for i in range(self.grid.count) if i != k]
        tiles = [(i, j) for i in others for j in others if i <= j or not steps.symmetric]
        engine = self._devices[0].engine

        def close(tile: Pair, _: Pair | None) -> None:
            steps.close(engine, tile.d, tile.p, k * self.grid.tile)

        self._pipelines.run(k, [[self._job(k, k, k, self._rows[0][k], close, "pivot")]])
        cross = [self._cross(k, rank, others[rank::count]) for rank in range(count)]
        self._pipelines.run(k, cross)
        ends = np.linspace(0, len(tiles), count + 1).astype(int).tolist()
        parts = [tiles[ends[rank] : ends[rank + 1]] for rank in range(count)]
        self._pipelines.run(
            k, [self._trailing(k, rank, others, parts[rank]) for rank in range(count)]
        )

    def _job(
        self, k: int, i: int, j: int, into: Pair | None,
        work: Callable[[Pair, Pair | None], None] | None, what: str,
    ) -> Job:  # fmt: skip
        grid, half = self.grid, self.steps.symmetric
        pairs = float(grid.size(i)) * grid.size(j) * grid.size(k)
        return Job(
            grid.part(i), grid.part(j), self.stores, self.stores if work else None, into, work,
            pairs=pairs / 2 if half and i == j else pairs, what=what,
        )  # fmt: skip

    def _cross(self, k: int, rank: int, others: Sequence[int]) -> Iterator[Job]:
        """Tiles of row k, which stay in memory, and of column k, which do not."""
        steps, row, engine = self.steps, self._rows[rank], self._devices[rank].engine
        own = row[k].cut((self.grid.size(k), self.grid.size(k)))
        if rank and others:
            yield self._job(k, k, k, row[k], None, "pivot")

        def across(tile: Pair, _: Pair | None) -> None:
            steps.row(engine, own.d, tile.d, tile.p)

        def down(tile: Pair, _: Pair | None) -> None:
            steps.column(engine, tile.d, own.d, tile.p, own.p)

        for j in others:
            if steps.symmetric and j < k:  # only the transpose is stored
                yield self._job(k, j, k, row[j], down, "pivot")
            else:
                yield self._job(k, k, j, row[j], across, "pivot")
        if not steps.symmetric:
            for i in others:
                yield self._job(k, i, k, None, down, "pivot")

    def _trailing(
        self, k: int, rank: int, others: Sequence[int], tiles: Sequence[tuple[int, int]]
    ) -> Iterator[Job]:
        """Tiles in neither; first read the tiles of row k that other devices have computed."""
        steps, row, engine = self.steps, self._rows[rank], self._devices[rank].engine
        grid, half, last = self.grid, steps.symmetric, -1
        for at, j in enumerate(others):
            if tiles and at % len(self._devices) != rank:
                i, j_ = (j, k) if half and j < k else (k, j)
                yield self._job(k, i, j_, row[j], None, "pivot")

        def right(j: int) -> Pair:
            if half and j < k:
                return Pair(row[j].cut((grid.size(j), grid.size(k))).d.T, None)
            return row[j].cut((grid.size(k), grid.size(j)))

        for i, j in tiles:
            if i != last and not half:
                yield Job(grid.part(i), grid.part(k), (self.stores[0], None), held=True)
            last = i

            def work(tile: Pair, left: Pair | None, i: int = i, j: int = j) -> None:
                a, b = right(i).d.T if left is None else left.d, right(j)
                steps.update(engine, a, b.d, tile.d, tile.p, b.p)

            yield self._job(k, i, j, None, work, "update")

    def close(self) -> None:
        """Let the threads finish their tiles, end them, and free the memory."""
        self._pipelines.close()
        self._rows = []


class Product:
    """C ← A ⊗ B out of core: a row of tiles of A stays in memory, B streams past it.

    Each tile of C is accumulated in memory and written once, so that ⊕ need not be idempotent: a
    row of tiles that was not finished is computed again from A and B.

    Parameters
    ----------
    s : Semiring
    tile : int
    a, b, c : Store
        Of shapes (m, k), (k, n) and (m, n), and one dtype.
    devices, slots, workers, first, saved, tick, timeline
        As for :class:`Streamed`; a step is a row of tiles of C.
    """

    def __init__(
        self, s: Semiring, tile: int, a: Readable, b: Readable, c: Store,
        devices: Sequence[Device], *, slots: int, workers: int, first: int = 0,
        saved: Callable[[int], None] | None = None, tick: Tick | None = None,
        timeline: Timeline | None = None,
    ) -> None:  # fmt: skip
        self.s, self.stores, self.first, self.saved = s, (a, b, c), first, saved
        (m, k), n = a.shape, b.shape[1]
        self.m, self.k, self.n = Grid(m, tile), Grid(k, tile), Grid(n, tile)
        self._devices = devices
        done = float(min(first * tile, m)) * k * n
        self._pipelines = Pipelines(
            devices, slots, workers, self._pair, tile**2, tick=tick, timeline=timeline, first=done
        )
        sizes = [tile * self.k.size(x) for x in range(self.k.count)]
        self._rows = [[self._pair(device, size) for size in sizes] for device in devices]

    def _pair(self, device: Device, size: int) -> Pair:
        return Pair(device.empty(size, self.stores[2].dtype), None)

    def run(self) -> None:
        """Compute all rows of tiles from the first on."""
        count = len(self._devices)
        for i in range(self.first, self.m.count):
            columns = range(self.n.count)
            self._pipelines.run(
                i, [self._row(i, rank, columns[rank::count]) for rank in range(count)]
            )
            if self.saved is not None:
                self.saved(i + 1)

    def _row(self, i: int, rank: int, columns: Sequence[int]) -> Iterator[Job]:
        a, b, c = self.stores
        row, engine = self._rows[rank], self._devices[rank].engine
        if columns:
            for k in range(self.k.count):
                yield Job(self.m.part(i), self.k.part(k), (a, None), into=row[k], what="row")
        for j in columns:
            yield Job(self.m.part(i), self.n.part(j), None, (c, None), held=True, what="product")
            for k in range(self.k.count):
                left = row[k].cut((self.m.size(i), self.k.size(k)))

                def work(
                    tile: Pair, held: Pair | None, left: Pair = left, again: bool = k > 0
                ) -> None:
                    assert held is not None
                    engine.product(self.s, left.d, tile.d, held.d, Scaling(again))

                pairs = float(self.m.size(i)) * self.n.size(j) * self.k.size(k)
                part = self.k.part(k), self.n.part(j)
                yield Job(*part, (b, None), work=work, pairs=pairs, what="product")

    def close(self) -> None:
        """Let the threads finish their tiles, end them, and free the memory."""
        self._pipelines.close()
        self._rows = []
