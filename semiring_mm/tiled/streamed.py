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
from .budget import Plan
from .pipeline import Job, Pair, Pipelines
from .stores import Store
from .timeline import Timeline

__all__ = ["Product", "Streamed"]


class Streamed(Pipelines):
    """An elimination over a store; the operations are those of :mod:`..closures.elimination`.

    Each device holds the pivot row of a step, and computes a part of the tiles. `d` has the matrix
    after :meth:`Steps.begin`, in the dtype of `steps`, and `p` predecessors, if these want them;
    the rest is as for :class:`.pipeline.Pipelines`.
    """

    def __init__(
        self, grid: Grid, steps: Steps, d: Store, p: Store | None, plan: Plan, first: int = 0,
        saved: Callable[[int], None] | None = None, tick: Tick | None = None,
        timeline: Timeline | None = None,
    ) -> None:  # fmt: skip
        self.grid, self.steps, self.stores = grid, steps, (d, p)
        super().__init__(
            plan, [steps.dtype, np.dtype(np.int32)][: 1 + steps.predecessors],
            [grid.size(j) for j in range(grid.count)], range(first, grid.count), saved, tick,
            timeline, float(first) * grid.tile * float(grid.n) ** 2 / (2 if steps.symmetric else 1),
        )  # fmt: skip

    def step(self, k: int) -> None:
        """The pivot, its row and column, all other tiles."""
        steps, count = self.steps, len(self.devices)
        others = [i for i in range(self.grid.count) if i != k]
        tiles = [(i, j) for i in others for j in others if i <= j or not steps.symmetric]
        engine = self.devices[0].engine

        def close(tile: Pair, _: Pair | None) -> None:
            steps.close(engine, tile.d, tile.p, k * self.grid.tile)

        self.work(k, [[self._job(k, k, k, self.rows[0][k], close, "pivot")]])
        self.work(k, [self._cross(k, rank, others[rank::count]) for rank in range(count)])
        ends = np.linspace(0, len(tiles), count + 1).astype(int).tolist()
        parts = [tiles[ends[rank] : ends[rank + 1]] for rank in range(count)]
        self.work(k, [self._trailing(k, rank, others, parts[rank]) for rank in range(count)])

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
        steps, row, engine = self.steps, self.rows[rank], self.devices[rank].engine
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
        steps, row, engine = self.steps, self.rows[rank], self.devices[rank].engine
        grid, half, last = self.grid, steps.symmetric, -1
        for at, j in enumerate(others):
            if tiles and at % len(self.devices) != rank:
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


class Product(Pipelines):
    """C ← A ⊗ B out of core: a row of tiles of A stays in memory, B streams past it.

    Each tile of C is accumulated in memory and written once, so that ⊕ need not be idempotent: a
    row of tiles that was not finished is computed again from A and B. The stores of A and B are in
    the dtype to compute in; the rest is as for :class:`.pipeline.Pipelines`, of which a step is a
    row of tiles of C, whose columns are shared out to the devices.
    """

    def __init__(
        self, s: Semiring, a: Store, b: Store, c: Store, plan: Plan, first: int,
        saved: Callable[[int], None], tick: Tick | None,
    ) -> None:  # fmt: skip
        self.s, self.stores = s, (a, b, c)
        (m, k), n, tile = a.shape, b.shape[1], plan.tile
        self.m, self.k, self.n = Grid(m, tile), Grid(k, tile), Grid(n, tile)
        super().__init__(
            plan, [a.dtype], [self.k.size(x) for x in range(self.k.count)],
            range(first, self.m.count), saved, tick, None, float(min(first * tile, m)) * k * n,
        )  # fmt: skip

    def step(self, k: int) -> None:
        """A row of tiles of C."""
        count, columns = len(self.devices), range(self.n.count)
        self.work(k, [self._row(k, rank, columns[rank::count]) for rank in range(count)])

    def _row(self, i: int, rank: int, columns: Sequence[int]) -> Iterator[Job]:
        a, b, c = self.stores
        row, engine, rows = self.rows[rank], self.devices[rank].engine, self.m.part(i)
        depth = range(self.k.count)
        zero = self.s.identities(a.dtype)[0]

        def clear(tile: Pair, _: Pair | None) -> None:
            tile.d[...] = zero

        for k in depth if columns else ():
            yield Job(rows, self.k.part(k), (a, None), into=row[k], what="row")
        for j in columns:
            into = Job(rows, self.n.part(j), None, (c, None), what="product")
            yield into._replace(held=True) if depth else into._replace(work=clear)
            for k in depth:
                left = row[k].cut((self.m.size(i), self.k.size(k)))

                def work(
                    tile: Pair, held: Pair | None, left: Pair = left, again: bool = k > 0
                ) -> None:
                    assert held is not None
                    engine.product(self.s, left.d, tile.d, held.d, Scaling(again))

                pairs = float(self.m.size(i)) * self.n.size(j) * self.k.size(k)
                part = self.k.part(k), self.n.part(j)
                yield Job(*part, (b, None), work=work, pairs=pairs, what="product")
