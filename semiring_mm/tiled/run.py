"""The matrices of one run, in memory or in files, from the first tile to the published result."""

from __future__ import annotations

import contextlib
import errno
import functools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import check_memory
from ..closures.elimination import Grid
from ..closures.solve import Problem
from ..closures.steps import Improves
from ..naming import named
from .checkpoint import Checkpoint, find_state, is_finished, keep_record, leftovers
from .results import (
    check_path,
    check_room,
    create,
    discard,
    open_part,
    open_result,
    part_of,
    publish,
    work_of,
)
from .stores import Shape, Store

__all__ = ["Out", "Run", "Saver", "task_of"]

Array = NDArray[Any]
Out = Path | Array | None


def task_of(problem: Problem, out: Sequence[Out], rows: str | None = None) -> dict[str, Any]:
    """What is computed, of what; `rows`: from which nodes, if not from all."""
    source, names = problem.source, [x.name for x in out if isinstance(x, Path)]
    return {
        "semiring": str(source.s), "n": source.n, "dtype": str(source.dtype),
        "predecessors": problem.predecessors, "results": names, "rows": rows,
    }  # fmt: skip


class Run:
    """Stores for the results of one run: created or reopened, saved, published.

    Parameters
    ----------
    out : sequence of Path or ndarray
        Of each result: paths that end in ``.npy`` or ``.zarr``, or arrays of `shape`.
    dtypes : sequence of dtype
        Of the results. What `out` has beyond these is None.
    shape : (int, int)
    task : dict
        What is computed, of what: only the same task resumes, or is done.
    fingerprint : callable
        Gives a digest of what was given.
    resume : bool
        Go on from the state beside the paths, begin where there is nothing yet, and compute nothing
        where the results are there.

    Attributes
    ----------
    finished : bool
        Whether there is nothing to do but to open the results.
    phase : str
        As of :class:`.checkpoint.Checkpoint`.
    step : int
        The first step that may not have been done.

    Raises
    ------
    FileExistsError
        If there are results of other work.
    """

    def __init__(
        self, out: Sequence[Out], dtypes: Sequence[np.dtype[Any]], shape: Shape,
        task: dict[str, Any], fingerprint: Callable[[], str], resume: bool,
    ) -> None:  # fmt: skip
        self.out, self.dtypes, self.shape = list(out[: len(dtypes)]), list(dtypes), shape
        self.task, self.resume = task, resume
        self.fingerprint = functools.cache(fingerprint)
        self.paths = [x for x in self.out if isinstance(x, Path)]
        for path, dtype in zip(self.paths, dtypes, strict=False):
            check_path(path, dtype)
        if len({x.resolve() for x in self.paths}) < len(self.paths):
            raise ValueError(
                f"{named('tiles.out')}: {self.paths[0]} cannot hold distances and predecessors both"
            )
        self.state = Checkpoint(self.paths[0], task, 0) if self.paths else None
        self.results: list[Store] = []
        self.work: Store | None = None
        self.phase, self.step = "load", 0
        self.finished = (
            self.state is not None and resume and not self.state.file.exists()
            and is_finished(self.paths, task, self.fingerprint)
        )  # fmt: skip

    def find(self, **more: Any) -> Checkpoint | None:
        """The state to resume from; None: the run begins.

        `more` belongs to the task, too, though not to the record of a finished one.

        Raises
        ------
        FileExistsError
            If there is such a result, or an unfinished one.
        ValueError
            If the state is of another run, or has changed since it was written.
        """
        if self.state is None:
            return None
        task = self.task | more
        found = find_state(self.paths, task, self.resume, self.shape[0])
        self.state = found or Checkpoint(self.paths[0], task, 0)
        self.phase, self.step = self.state.phase, self.state.step
        if found is None:
            return None
        mark = found.extra.get("fingerprint", found.task.get("operands"))
        if found.phase != "load" and mark != self.fingerprint():
            raise ValueError(
                f"{named('tiles.resume')}: {found.file} is the state of a run on another graph; "
                f"give that one, or remove it and {leftovers(self.paths)}, and leave out "
                f"{named('tiles.resume')}"
            )
        return found

    @property
    def stores(self) -> tuple[Store, Store | None]:
        """Of the first result in the type to compute in, and of the second."""
        d, p = (*self.results, None)[:2]
        assert d is not None
        return self.work or d, p

    @contextlib.contextmanager
    def open(self, tile: Shape, workers: int, dtype: np.dtype[Any] | None = None) -> Iterator[None]:
        """Stores in tiles of some shape, until the block ends; existing ones are verified.

        Parameters
        ----------
        workers : int
            Threads that verify.
        dtype : dtype, optional
            In which the first result is computed: if it has another, there is a store beside it.
            (To narrow integers in place would do harm if it was interrupted and done twice.)

        Raises
        ------
        OSError
            If the disk is too small or becomes full; then the state is kept.
        ValueError
            If a tile has changed since it was written.
        """
        apart = None if dtype is None or dtype == self.dtypes[0] else dtype
        try:
            if self.state is None:
                self._allocate(apart)
            else:
                self._open(self.state, tile, workers, apart)
            yield
        except (Improves, OverflowError, TypeError):  # a resumed run would fail again
            self._discard()
            raise
        except OSError as error:
            if error.errno != errno.ENOSPC or self.state is None or not self.state.file.exists():
                raise
            raise OSError(
                errno.ENOSPC,
                f"the disk is full; what has been computed is kept in {part_of(self.paths[0])}: "
                f"make room and go on with {named('tiles.resume', True)}",
            ) from error
        finally:
            self.close()

    def _allocate(self, apart: np.dtype[Any] | None) -> None:
        """Stores in memory."""
        self.results = [Store(x) for x in self.out]
        if apart is not None:
            entries = self.shape[0] * self.shape[1]
            check_memory(entries * apart.itemsize, "the work beside the result")
            self.work = Store(np.empty(self.shape, apart))

    def _open(
        self, state: Checkpoint, tile: Shape, workers: int, apart: np.dtype[Any] | None
    ) -> None:
        state.tile, new = tile[0], self.phase == "load"
        kinds = list(zip(self.paths, self.dtypes, strict=True))
        if self.phase == "publish":  # some may have their final names already
            kinds = [x for x in kinds if part_of(x[0]).exists()]
        elif apart is not None:
            kinds.append((work_of(self.paths[0]), apart))
        if new:
            for path, _ in kinds:  # what an attempt left that was stopped while it read
                discard(path)
            room = [self.shape[0] * self.shape[1], 1]  # in Zarr of whole chunks
            for grid in map(Grid, self.shape, tile):
                room[1] *= grid.count * grid.tile
            check_room([(path, room[path.suffix == ".zarr"] * x.itemsize) for path, x in kinds])
            state.save("load")
        for path, dtype in kinds:
            store = (create if new else open_part)(path, self.shape, dtype, tile)
            self.results.append(store)
            if not new:
                store.verify(workers)
        if apart is not None and self.phase != "publish":
            self.work = self.results.pop()

    def keep(self, step: int) -> None:
        """Save a state from which a run resumes with `step`."""
        if self.state is not None:
            self.state.extra["fingerprint"] = self.fingerprint()
            self._flush()
            self.state.save("steps", step)

    def _flush(self) -> None:
        for store in self._opened():
            store.flush()

    def finish(self) -> None:
        """Publish complete results; it may be interrupted and done again."""
        if self.state is None:
            return
        if self.phase != "publish":
            self._flush()
            self.state.save("publish")
        self.close()  # Windows does not rename open files
        for path in self.paths:
            publish(path)
        discard(work_of(self.paths[0]))
        keep_record(self.paths, self.task, self.fingerprint())
        self.state.remove()

    def opened(self) -> tuple[Any, Any]:
        """The first and the second result, files open to be read; None for what there is not."""
        d, p = (*(open_result(x) if isinstance(x, Path) else x for x in self.out), None)[:2]
        return d, p

    def _discard(self) -> None:
        """Remove all files."""
        self.close()
        if self.state is not None:
            for path in (*self.paths, work_of(self.paths[0])):
                discard(path)
            self.state.remove()

    def _opened(self) -> list[Store]:
        return [*self.results, *([] if self.work is None else [self.work])]

    def close(self) -> None:
        """Close the stores."""
        for store in self._opened():
            store.close()
        self.results, self.work = [], None


class Saver:
    """Saves states in a thread of its own while the next steps are computed.

    What changes meanwhile does no harm: a step of an elimination may be repeated on tiles that it
    has reached, over an idempotent ⊕, and one of a product changes other tiles than those before.
    If the disk is slower than the steps, some steps are not saved.
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
