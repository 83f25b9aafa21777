"""The executor of an elimination whose tiles are futures on a Dask cluster."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dask.array as da
import distributed
import numpy as np

from ..closures.elimination import Grid, eliminate
from ..closures.solve import Problem
from ..progress import reporter
from . import tasks
from .checkpoint import State
from .cluster import Cluster, Worker
from .source import At, DaskSource, later

__all__ = ["Futures", "run"]

Future = Any


def run(problem: Problem, cluster: Cluster, grid: Grid, state: State | None) -> Any:
    """The closure of a problem as Dask arrays of distances and, if wanted, predecessors."""
    cluster.check(grid, problem.steps.dtype, problem.predecessors)
    futures = Futures(problem, cluster, grid, state)
    try:
        first = state.step if state is not None else 0
        if first:
            futures.resume(first)
        else:
            futures.begin(problem)
        eliminate(grid.count, futures, first)
        return futures.result(problem)
    except BaseException:
        futures.drop()
        raise


def _source(problem: Problem) -> DaskSource:
    assert isinstance(problem.source, DaskSource)
    return problem.source


def _failure(future: Future) -> BaseException | None:
    """Why there is no result; without frames, which would keep the future, and that the rest."""
    if future.status not in ("error", "cancelled"):
        return None
    try:
        future.result()
    except BaseException as error:
        return error.with_traceback(None)
    return None


class Futures:
    """The executor of an elimination whose tiles are futures.

    A future stands for one state of a tile and is never written to: a task copies what it changes.
    So what a dead worker had can be computed again from any states that are left, and the cross of
    a step stays as it was while the next one is made.
    """

    def __init__(self, problem: Problem, cluster: Cluster, grid: Grid, state: State | None) -> None:
        self.client, self.grid, self.steps = cluster.client, grid, problem.steps
        self.worker, self.state = Worker(cluster.device, cluster.sharers), state
        self.run = uuid.uuid4().hex
        self.tiles: dict[At, Future] = {}
        self.made: dict[int, list[Future]] = {}  # by step, as long as they are not known to be done
        self.tick = reporter(problem.progress, problem.pairs, "elimination on Dask's workers")
        self.done = 0.0
        self.each = problem.pairs / grid.count / len(self.places())  # pairs of a task, about

    def places(self) -> list[At]:
        side = range(self.grid.count)
        return [(i, j) for i in side for j in (side[i:] if self.steps.symmetric else side)]

    def submit(
        self, function: Callable[..., Any], args: Mapping[At, tuple[Any, ...]],
        *step: int, priority: int = 0, retries: int = 0, **same: Any,
    ) -> dict[At, Future]:  # fmt: skip
        """A task for each tile, given out together: that takes a fraction of the time.

        Where it runs is left to the scheduler, which goes by where the operands are. It could be
        told of a worker for each tile; but where all workers have died, tasks for one of those
        would wait for it for ever.
        """
        name, places = f"{function.__name__}-{self.run}", list(args)
        if not places:
            return {}
        futures = self.client.map(
            function, [(*step, *at) for at in places],
            *map(list, zip(*args.values(), strict=True)),
            key=[(name, *step, *at) for at in places], priority=priority, retries=retries,
            pure=False, worker=self.worker, **same,
        )  # fmt: skip
        return dict(zip(places, futures, strict=True))

    def give(
        self, function: Callable[..., tasks.Tile], k: int, args: Mapping[At, tuple[Any, ...]],
        priority: int,
    ) -> None:  # fmt: skip
        """The next states of tiles, from their last ones and what else step k takes."""
        operands = {at: (self.tiles[at], *more) for at, more in args.items()}
        made = self.submit(function, operands, k, priority=priority, steps=self.steps)
        self.tiles.update(made)
        self.made.setdefault(k, []).extend(made.values())

    def pivot(self, k: int) -> None:
        priority = 3 - 2 * k  # that of what precedes it
        self.give(tasks.close, k, {(k, k): (k * self.grid.tile,)}, priority)
        diagonal = (self.tiles[k, k],)
        row = [(i, j) for i, j in self.places() if i == k and j != k]
        column = [(i, j) for i, j in self.places() if i != k and j == k]
        self.give(tasks.row, k, dict.fromkeys(row, diagonal), priority)
        self.give(tasks.column, k, dict.fromkeys(column, diagonal), priority)

    def update(self, k: int, rows: Sequence[int], columns: Sequence[int]) -> None:
        # What step k + 1 begins with goes before the rest of step k, and that before step k + 1.
        urgent = [k + 1] in (list(rows), list(columns))
        symmetric, args = self.steps.symmetric, {}
        for i in rows:
            for j in columns:
                if symmetric and i > j:
                    continue
                turned = (symmetric and i > k, symmetric and j < k)
                left = self.tiles[(k, i) if turned[0] else (i, k)]
                right = self.tiles[(j, k) if turned[1] else (k, j)]
                args[i, j] = (left, right, *turned)
        self.give(tasks.update, k, args, urgent - 2 * k)

    def finish(self, k: int) -> None:
        self.settle(self.made.pop(k - 1, []), self.each)
        if self.state is not None and self.state.due(k, self.grid.count):
            self.save(k + 1)

    def settle(self, futures: list[Future], each: float = 0.0) -> None:
        """Wait, then release each future; dependent tasks keep their own references."""
        waiting = distributed.as_completed(futures)
        futures.clear()
        try:
            for future in waiting:
                failed = _failure(future)
                del future
                if failed is not None:
                    raise failed
                self.done += each
                if self.tick is not None and each:
                    self.tick(self.done)
        finally:
            waiting.clear()  # an exception keeps this frame

    def save(self, step: int) -> None:
        """Write all tiles, and continue from the files, so that earlier tiles can be released."""
        assert self.state is not None
        name = f"step-{step}-{uuid.uuid4().hex[:8]}"
        folder = self.state.path / name
        folder.mkdir()
        tiles = {at: (x,) for at, x in self.tiles.items()}
        saves = list(self.submit(tasks.save, tiles, step, retries=2, folder=folder).values())
        del tiles
        for k in sorted(self.made):
            self.settle(self.made.pop(k), self.each)
        self.settle(saves)
        self.state.write(step, name)
        self.resume(step, done=self.done)

    def resume(self, step: int, done: float | None = None) -> None:
        """Read the tiles of the checkpoint."""
        assert self.state is not None
        self.done = self.each * len(self.places()) * step if done is None else done
        self.tiles = self.submit(
            tasks.load, dict.fromkeys(self.places(), ()), step, retries=2, folder=self.state.folder,
            steps=self.steps,
        )  # fmt: skip

    def drop(self) -> None:
        """Release all futures, also where an exception keeps the frames that hold this."""
        self.tiles.clear()
        self.made.clear()

    def begin(self, problem: Problem) -> None:
        """Make the first states of the tiles."""
        source, part, at = _source(problem), self.grid.part, self.places()
        blocks = ((problem.weights, source.blocks[i, j], part(i), part(j)) for i, j in at)
        begun = source.compute(
            later(tasks.begin, self.steps, self.worker, *block) for block in blocks
        )
        self.tiles = dict(zip(at, begun, strict=True))

    def result(self, problem: Problem) -> Any:
        """Dask arrays of what the tiles have become."""
        for k in sorted(self.made):
            self.settle(self.made.pop(k), self.each)
        if self.steps.predecessors:
            self.repair(_source(problem))
        side = range(self.grid.count)
        args = {}
        for i in side:
            for j in side:
                turned = self.steps.symmetric and i > j
                tile = self.tiles[(j, i) if turned else (i, j)]
                args[i, j] = (tile, turned)
        parts = self.submit(tasks.distances, args, weights=problem.weights, truth=problem.truth)
        trees = {}
        if self.steps.predecessors:
            trees = self.submit(tasks.predecessors, {at: (x,) for at, x in self.tiles.items()})
        self.settle([*parts.values(), *trees.values()])
        distances = self.array(parts, problem.dtype)
        return (distances, self.array(trees, np.dtype(np.int32))) if trees else distances

    def array(self, parts: dict[At, Future], dtype: np.dtype[Any]) -> Any:
        name = next(iter(parts.values())).key[0]
        sizes = tuple(map(self.grid.size, range(self.grid.count)))
        graph = {future.key: future for future in parts.values()}
        return da.Array(graph, name, (sizes, sizes), dtype=dtype)

    def repair(self, source: DaskSource) -> None:
        """Make trees of the rows of P in which ties or rounding have closed a cycle."""
        part, side, s = self.grid.part, range(self.grid.count), self.steps.s
        strips = {(i, i): ([self.tiles[i, j] for j in side], part(i)) for i in side}
        cyclic = self.submit(tasks.has_cycle, strips, s=s)
        found = [at for at, cycle in self.client.gather(cyclic).items() if cycle]
        if not found:
            return
        blocks = dict(zip(source.blocks, source.compute(source.blocks.values()), strict=True))
        with_graph = {(i, i): (*strips[i, i], [blocks[i, j] for j in side]) for i in side}
        kept = self.submit(tasks.edges_of_rows, with_graph, s=s, n=self.grid.n)
        edges = self.client.submit(tasks.joined, list(kept.values()), self.grid.n, pure=False)
        del blocks, with_graph
        rows = self.submit(tasks.repair, {at: strips[at] for at in found}, s=s, edges=edges)
        args = {
            (i, j): (self.tiles[i, j], rows[i, i], part(j))
            for i, j in self.places() if (i, i) in rows
        }  # fmt: skip
        self.tiles.update(self.submit(tasks.repaired, args))
