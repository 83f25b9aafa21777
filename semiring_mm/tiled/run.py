"""The files of one elimination, from the first tile to the published result."""

from __future__ import annotations

import functools
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from ..arrays import check_memory
from ..closures.elimination import Grid
from ..closures.solve import Problem
from ..closures.sources import best_edges
from ..closures.trees import repair_trees
from .checkpoint import Checkpoint
from .results import check_room, create, discard, open_part, part_of, publish, work_of
from .stores import HostStore, Store

__all__ = ["Out", "Run", "Saver"]

Array = NDArray[Any]
Out = Path | Array | None


class Run:
    """The stores of one elimination: created or reopened, loaded, saved, published.

    Parameters
    ----------
    problem : Problem
    out : (Path or ndarray, Path, ndarray or None)
        Distances and predecessors.
    tile : int
    state : Checkpoint, optional
        For paths.
    """

    def __init__(
        self, problem: Problem, out: tuple[Out, Out], tile: int, state: Checkpoint | None
    ) -> None:
        self.source, self.steps, self.weights = problem.source, problem.steps, problem.weights
        self.dtype = problem.dtype
        self.out, self.grid, self.state = out, Grid(self.source.n, tile), state
        self.shape, self.tile = (self.source.n, self.source.n), (tile, tile)
        self.phase = "load" if state is None else state.phase
        self.step = 0 if state is None else state.step
        self.results: list[Store | None] = [None, None]
        # widened integers have a store of their own: to narrow them in place would do harm if it
        # was interrupted and done twice
        self.apart = self.steps.dtype != self.dtype
        self.work: Store | None = None

    @property
    def stores(self) -> tuple[Store, Store | None]:
        """Of D in the type to compute in, and of P."""
        work = self.work if self.apart else self.results[0]
        assert work is not None
        return work, self.results[1]

    def _kinds(self) -> list[tuple[Path, np.dtype[Any], str]]:
        """Path, dtype and kind of each store on the disk."""
        d, p = self.out
        kinds = []
        if isinstance(d, Path):
            kinds.append((d, self.dtype, "d"))
            if self.apart:
                kinds.append((work_of(d), self.steps.dtype, "work"))
        if isinstance(p, Path) and self.steps.predecessors:
            kinds.append((p, np.dtype(np.int32), "p"))
        return kinds

    def open(self, workers: int) -> None:
        """Create the stores, or open existing ones and verify them."""
        shape, tile = self.shape, self.tile
        if self.state is None:
            for at in range(2):
                array = self.out[at]
                if isinstance(array, np.ndarray) and (at == 0 or self.steps.predecessors):
                    self.results[at] = HostStore(array)
            if self.apart:
                entries = shape[0] * shape[1]
                check_memory(entries * self.steps.dtype.itemsize, "the work beside the result")
                self.work = HostStore(np.empty(shape, self.steps.dtype))
            return
        kinds = self._kinds()
        if self.phase == "publish":  # some may have their final names already
            kinds = [x for x in kinds if x[2] != "work" and part_of(x[0]).exists()]
        if self.phase == "load":
            for path, *_ in kinds:  # what an attempt left that was stopped while it read
                discard(path)
            room = [shape[0] * shape[1], 1]  # in Zarr of whole chunks
            for grid in map(Grid, shape, tile):
                room[1] *= grid.count * grid.tile
            check_room([(path, room[path.suffix == ".zarr"] * x.itemsize) for path, x, _ in kinds])
            self.state.save("load")
        for path, dtype, what in kinds:
            make = create if self.phase == "load" else open_part
            store = make(path, shape, dtype, tile)
            if what == "work":
                self.work = store
            else:
                self.results["dp".index(what)] = store
            if make is open_part:
                store.verify(workers)

    def load(self, workers: int) -> None:
        """Read the graph into the store, with one on the diagonal."""
        count, half = self.grid.count, self.steps.symmetric
        tiles = [(i, j) for i in range(count) for j in range(i if half else 0, count)]
        with ThreadPoolExecutor(workers) as pool:
            futures = [pool.submit(self._load, *tile) for tile in tiles]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        self.phase = "steps"

    def _load(self, i: int, j: int) -> None:
        rows, columns = self.grid.part(i), self.grid.part(j)
        block = self.source.read(rows, columns)
        d = self.weights.widen(block)
        p = self.steps.begin(np, d, rows, columns)
        store, trees = self.stores
        if trees is not None:
            assert p is not None
            trees.write(rows, columns, p)
        store.write(rows, columns, d)

    def keep(self, step: int) -> None:
        """Save a state from which a run resumes with `step`."""
        if self.state is None:
            return
        if "fingerprint" not in self.state.extra:
            self.state.extra["fingerprint"] = self.source.fingerprint()
        self.flush()
        self.state.save("steps", step)

    def flush(self) -> None:
        for store in (*self.results, self.work):
            if store is not None:
                store.flush()

    def finish(self) -> None:
        """Complete and publish the results; it may be interrupted and done again."""
        if self.phase != "publish":
            self.complete()
            self.flush()
            if self.state is not None:
                self.state.save("publish")
        self.close()  # Windows does not rename open files
        for path, _, what in self._kinds():
            if what == "work":
                discard(path)
            else:
                publish(path)

    def complete(self) -> None:
        """Bring the results into their final form."""
        self._repair()
        self._narrow()

    def _repair(self) -> None:
        """Make every row of the predecessors a tree, a row of tiles at a time."""
        d, p = self.stores
        if p is None:
            return
        columns = slice(0, self.grid.n)

        def distances(rows: slice) -> Array:
            found = np.empty((rows.stop - rows.start, self.grid.n), d.dtype)
            d.read(rows, columns, found)
            return found

        edges = functools.cache(lambda: best_edges(self.source, distances))
        for i in range(self.grid.count):
            rows = self.grid.part(i)
            near = distances(rows)
            before = np.empty(near.shape, np.int32)
            p.read(rows, columns, before)
            own = np.arange(rows.start, rows.stop)
            repair_trees(engines.named("cpu"), self.source.s, near, before, edges, own)
            p.write(rows, columns, before)

    def _narrow(self) -> None:
        """Mirror a symmetric matrix, and convert distances to the type of the result."""
        half, (d, _), result = self.steps.symmetric, self.stores, self.results[0]
        assert result is not None
        if not half and not self.apart:
            return
        grid = self.grid
        for i in range(grid.count):
            for j in range(grid.count):
                rows, columns = grid.part(i), grid.part(j)
                other = half and j < i
                if not (other or self.apart):
                    continue
                at = (columns, rows) if other else (rows, columns)
                block = np.empty([x.stop - x.start for x in at], d.dtype)
                d.read(*at, block)
                block = block.T if other else block
                block = self.weights.narrow(block)
                result.write(rows, columns, np.ascontiguousarray(block))

    def discard(self) -> None:
        """Remove all files."""
        self.close()
        if self.state is not None:
            for path, *_ in self._kinds():
                discard(path)
            self.state.remove()

    def close(self) -> None:
        for store in (*self.results, self.work):
            if store is not None:
                store.close()
        self.results, self.work = [None, None], None


class Saver:
    """Saves states in a thread of its own while the next steps are computed.

    Tiles that change meanwhile do no harm: over an idempotent ⊕ a step may be repeated on tiles
    that it has reached. If the disk is slower than the steps, some steps are not saved.
    """

    def __init__(self, run: Run, every: int) -> None:
        self.run, self.every = run, every
        self._pool = ThreadPoolExecutor(1)
        self._next: list[int] = []  # the step to save next
        self._begun: list[Future[None]] = []
        self(0)

    def __call__(self, step: int) -> None:
        if self.run.state is None or step % self.every:
            return
        while self._begun and self._begun[0].done():
            self._begun.pop(0).result()
        self._next = [max(step, self.run.step)]
        self._begun.append(self._pool.submit(self._keep))

    def _keep(self) -> None:
        newest, self._next = self._next, []
        for step in newest:  # none, if an earlier call was late and has saved it
            self.run.keep(step)

    def __enter__(self) -> Saver:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._pool.shutdown()
        for future in self._begun if kind is None else ():
            future.result()
