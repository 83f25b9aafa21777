"""Rows of a closure that are computed some at a time, in files that a killed run leaves usable."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..closures.elimination import Grid
from ..closures.solve import Problem
from ..progress import Tick
from .checkpoint import Checkpoint
from .run import Run, task_of

__all__ = ["Fill", "RowFiles"]

Array = NDArray[Any]
Index = NDArray[np.int64]
#: Computes rows from some sources: ``fill(sources, d, p)``.
Fill = Callable[[Index, Array, "NDArray[np.int32] | None"], None]

_TILE = 8 << 20  # bytes of which there is a checksum, or a chunk of Zarr


class RowFiles(Run):
    """Files for the rows from some nodes; the state of an unfinished run is as that of tiles.

    The problem is of the graph as it was given; `out` has paths for distances and predecessors;
    `sources` are the nodes at which paths begin, all without them. `resume`: go on from the state
    that is there, if there is one. Raises as :class:`.run.Run`.
    """

    def __init__(
        self, problem: Problem, out: tuple[Path, Path | None], sources: Index | None, resume: bool
    ) -> None:
        rows = None if sources is None else hashlib.sha256(sources.tobytes()).hexdigest()
        n = problem.source.n
        self.sources = np.arange(n) if sources is None else sources
        dtypes = [problem.dtype, np.dtype(np.int32)][: 1 + problem.predecessors]
        super().__init__(
            out, dtypes, (len(self.sources), n), task_of(problem, out, rows),
            problem.source.fingerprint, resume,
        )  # fmt: skip

    @property
    def begun(self) -> str:
        """What the run that is resumed has written: "rows", "tiles", or nothing."""
        path = self.paths[0]
        if not self.resume or not Checkpoint(path).file.exists():
            return ""
        return "tiles" if Checkpoint.load(path).task.get("rows") is None else "rows"

    def find(self, **more: Any) -> Checkpoint | None:
        """See :class:`.run.Run`."""
        return super().find(rows=self.task["rows"] or "all", **more)  # None stands for tiles

    def write(
        self, problem: Problem, fill: Fill, height: int, checkpoint: int, tick: Tick | None
    ) -> None:
        """Compute all rows that are not there, `height` at a time, and publish the files.

        While rows are computed, those before them are written, and the state is saved after every
        `checkpoint` such strips. `problem` is what is computed, and has the edges at hand.
        """
        n = self.shape[1]
        parts = max(1, -(-height * n * problem.dtype.itemsize // _TILE))
        with self.open((height, max(1, -(-n // parts))), pool.get_num_threads()):
            if self.phase != "publish":
                self._write(fill, Grid(self.shape[0], height), checkpoint, tick)
            self.finish()

    def _write(self, fill: Fill, grid: Grid, checkpoint: int, tick: Tick | None) -> None:
        n = self.shape[1]
        buffers = [
            [np.empty((grid.tile, n), x) for x in self.dtypes]
            for _ in range(min(2, grid.count - self.step))
        ]
        writing: Future[None] | None = None
        if self.phase == "load":
            self.keep(0)

        def put(i: int, blocks: list[Array]) -> None:
            for store, block in zip(self.results, blocks, strict=True):
                store.write(grid.part(i), slice(0, n), block)
            if (i + 1) % checkpoint == 0:
                self.keep(i + 1)

        with ThreadPoolExecutor(1) as executor:
            for i in range(self.step, grid.count):
                blocks = [x[: grid.size(i)] for x in buffers[i % len(buffers)]]
                fill(self.sources[grid.part(i)], blocks[0], blocks[1] if len(blocks) > 1 else None)
                if writing is not None:
                    writing.result()
                writing = executor.submit(put, i, blocks)
                if tick is not None:
                    tick(float(grid.part(i).stop) * n)
            if writing is not None:
                writing.result()
