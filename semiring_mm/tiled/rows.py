"""Rows of a closure that are computed some at a time, in files that a killed run leaves usable."""

from __future__ import annotations

import contextlib
import errno
import hashlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..closures.elimination import Grid
from ..closures.solve import Problem
from ..progress import Tick
from .checkpoint import Checkpoint, find_state, keep_record
from .run import Run
from .stored import check_graph, finished, full, opened, paths_of, task_of
from .stores import Shape

__all__ = ["Fill", "RowFiles"]

Array = NDArray[Any]
Index = NDArray[np.int64]
#: Computes rows from some sources: ``fill(sources, d, p)``.
Fill = Callable[[Index, Array, "NDArray[np.int32] | None"], None]

_TILE = 8 << 20  # bytes of which there is a checksum, or a chunk of Zarr


@dataclass
class RowFiles:
    """Files for the rows from some nodes; the state of an unfinished run is as that of tiles.

    Parameters
    ----------
    problem : Problem
        Of the graph as it was given.
    out : (Path, Path or None)
        For distances and predecessors.
    sources : (rows,) int64, optional
        The nodes at which paths begin; None: all.
    resume : bool
        Go on from the state that is there, if there is one.

    Raises
    ------
    FileExistsError, ValueError
        As :func:`.stored.solve_streamed`.
    """

    problem: Problem
    out: tuple[Path, Path | None]
    sources: Index | None
    resume: bool
    state: Checkpoint | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        sources = self.sources
        rows = None if sources is None else hashlib.sha256(sources.tobytes()).hexdigest()
        self.paths = paths_of(self.out, self.problem)
        self.task = task_of(self.problem, self.paths, rows)
        self.fingerprint = self.problem.source.fingerprint
        self.finished = self.resume and finished(self.paths, self.task, self.fingerprint)

    @property
    def begun(self) -> str:
        """What the run that is resumed has written: "rows", "tiles", or nothing."""
        path = self.paths[0]
        if not self.resume or not Checkpoint(path, {}, 1).file.exists():
            return ""
        return "tiles" if Checkpoint.load(path).task.get("rows") is None else "rows"

    @property
    def count(self) -> int:
        """Rows."""
        return self.problem.source.n if self.sources is None else len(self.sources)

    def find(self) -> Checkpoint | None:
        """The state to resume from; None: there is nothing yet."""
        task = self.task | {"rows": self.task["rows"] or "all"}  # None stands for tiles
        found = find_state(self.paths, task, self.resume, self.count)
        if found is not None:
            check_graph(found, self.paths, self.fingerprint)
        self.state = found or Checkpoint(self.paths[0], task, 1)
        return found

    def opened(self) -> tuple[Any, Any]:
        """The finished files, to be read."""
        return opened(self.out[0]), opened(self.out[1]) if self.problem.predecessors else None

    def write(
        self, problem: Problem, fill: Fill, height: int, checkpoint: int, tick: Tick | None
    ) -> None:
        """Compute all rows that are not there, `height` at a time, and publish the files.

        While rows are computed, those before them are written, and the state is saved after every
        `checkpoint` such strips. `problem` is what is computed, and has the edges at hand.
        """
        state, n = self.state, problem.source.n
        assert state is not None
        state.tile = height
        if "fingerprint" not in state.extra:
            state.extra["fingerprint"] = self.fingerprint()
        parts = max(1, -(-height * n * problem.dtype.itemsize // _TILE))
        tile = height, max(1, -(-n // parts))
        run = _RowRun(problem, self.out, (self.count, n), tile, state)
        with contextlib.closing(run):
            try:
                run.open(pool.get_num_threads())
                if run.phase != "publish":
                    self._write(run, fill, checkpoint, tick)
                run.finish()
            except (OverflowError, TypeError):  # a resumed run would fail again
                run.discard()
                raise
            except OSError as error:
                if error.errno != errno.ENOSPC or not state.file.exists():
                    raise
                raise full(self.paths) from error
        keep_record(self.paths, self.task, state.extra["fingerprint"])
        state.remove()

    def _write(self, run: _RowRun, fill: Fill, checkpoint: int, tick: Tick | None) -> None:
        n, grid = self.problem.source.n, run.grid
        sources = np.arange(n) if self.sources is None else self.sources
        buffers = [run.buffers() for _ in range(min(2, grid.count - run.step))]
        writing: Future[None] | None = None
        if run.phase == "load":
            run.keep(0)

        def put(i: int, blocks: list[Array]) -> None:
            whole = slice(0, n)
            for store, block in zip(run.results, blocks, strict=False):
                assert store is not None
                store.write(grid.part(i), whole, block)
            if (i + 1) % checkpoint == 0:
                run.keep(i + 1)

        with ThreadPoolExecutor(1) as executor:
            for i in range(run.step, grid.count):
                blocks = [x[: grid.size(i)] for x in buffers[i % len(buffers)]]
                fill(sources[grid.part(i)], blocks[0], blocks[1] if len(blocks) > 1 else None)
                if writing is not None:
                    writing.result()
                writing = executor.submit(put, i, blocks)
                if tick is not None:
                    tick(float(grid.part(i).stop) * n)
            if writing is not None:
                writing.result()


class _RowRun(Run):
    """The stores of rows."""

    def __init__(
        self, problem: Problem, out: tuple[Path, Path | None], shape: Shape, tile: Shape,
        state: Checkpoint,
    ) -> None:  # fmt: skip
        super().__init__(problem, out, tile[0], state)
        self.grid, self.shape, self.tile = Grid(shape[0], tile[0]), shape, tile
        self.apart = False  # rows are narrowed before they are written

    def buffers(self) -> list[Array]:
        """Memory for the distances and predecessors of a strip."""
        shape = self.tile[0], self.shape[1]
        kinds = [self.dtype, np.dtype(np.int32)][: 1 + self.steps.predecessors]
        return [np.empty(shape, x) for x in kinds]

    def complete(self) -> None:
        """Rows are in their final form as they are written."""
