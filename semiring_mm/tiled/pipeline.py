"""Pipeline of tiles through devices: threads read ahead from a store, and write back to it."""

from __future__ import annotations

import functools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Self

import numpy as np

from ..progress import Tick
from .budget import Plan
from .devices import Device
from .stores import Store
from .timeline import Timeline

__all__ = ["Job", "Pair", "Pipelines"]

Array = Any  # of a device's engine
Stores = tuple[Store | None, Store | None]  # of D and of P


class Pair(NamedTuple):
    """Memory of a device for a tile of D, and for one of P."""

    d: Array
    p: Array | None

    def cut(self, shape: tuple[int, int]) -> Pair:
        """The beginning of the memory, as contiguous blocks of a shape."""
        size = shape[0] * shape[1]
        p = None if self.p is None else self.p[:size].reshape(shape)
        return Pair(self.d[:size].reshape(shape), p)


class Job(NamedTuple):
    """A tile to be read, computed and written."""

    rows: slice
    columns: slice
    read: Stores | None  # stores of D and P to read from
    write: Stores | None = None  # and to write to
    into: Pair | None = None  # memory that it stays in; otherwise it takes a free slot
    work: Callable[[Pair, Pair | None], None] | None = None  # of the tile and the held one
    held: bool = False  # it is kept as an operand of the next jobs, until another held one comes
    pairs: float = 0.0
    what: str = "tile"


class _Pipeline:
    """A device with slots for tiles, through which jobs pass one after the other."""

    def __init__(
        self, device: Device, slots: Sequence[Pair], pools: Sequence[ThreadPoolExecutor],
        timeline: Timeline | None, stop: threading.Event,
    ) -> None:  # fmt: skip
        self.device, self.timeline, self.stop = device, timeline, stop
        self.readers, self.writers = pools
        self.free: queue.SimpleQueue[Pair] = queue.SimpleQueue()
        self.depth = len(slots)
        for slot in slots:
            self.free.put(slot)

    def run(self, step: int, jobs: Iterable[Job], count: Callable[[str, float], None]) -> None:
        """Do all jobs; return when their tiles are written."""
        todo, ahead = iter(jobs), deque[tuple[Job, Pair, "Future[Pair]"]]()
        ends: deque[Future[None]] = deque()
        held: tuple[Job, Pair, Pair] | None = None

        def end(job: Job, slot: Pair, tile: Pair, begin: Any) -> None:
            now = self.device.mark()
            ends.append(self.writers.submit(self._end, step, job, slot, tile, begin, now))

        job = next(todo, None)
        while not self.stop.is_set():
            while job is not None and len(ahead) < self.depth:
                slot = job.into
                if slot is None:
                    try:
                        slot = self.free.get(block=not ahead)
                    except queue.Empty:
                        break
                ahead.append((job, slot, self.readers.submit(self._read, step, job, slot)))
                job = next(todo, None)
            while ends and ends[0].done():
                ends.popleft().result()
            if not ahead:
                break
            this, slot, future = ahead.popleft()
            tile = future.result()
            begin = self.device.mark()
            if this.held:
                if held is not None:
                    end(*held, None)
                held = this, slot, tile
            elif this.work is not None:
                this.work(tile, None if held is None else held[2])
                end(this, slot, tile, begin)
                count(self.device.name, this.pairs)
        if held is not None:
            end(*held, None)
        for last in ends:
            last.result()

    def _read(self, step: int, job: Job, slot: Pair) -> Pair:
        rows, columns = job.rows, job.columns
        tile = slot.cut((rows.stop - rows.start, columns.stop - columns.start))
        span = functools.partial(self._span, step, job.what)
        for store, block in zip(job.read or (), tile, strict=False):
            if store is not None and block is not None:
                self.device.load(functools.partial(store.read, rows, columns), block, span)
        return tile

    def _end(self, step: int, job: Job, slot: Pair, tile: Pair, begin: Any, end: Any) -> None:
        """Wait for the work on a tile, write it, free its slot.

        P is written before D: if the process is killed in between, D is improved again, and P with
        it.
        """
        try:
            done = self.device.time(end)
            if self.timeline is not None and begin is not None:
                start = self.device.time(begin)
                self.timeline.note(self.device.name, "compute", job.what, step, start, done)
            span = functools.partial(self._span, step, job.what)
            for store, block in reversed(list(zip(job.write or (), tile, strict=False))):
                if store is not None and block is not None:
                    write = functools.partial(store.write, job.rows, job.columns)
                    self.device.save(block, write, span)
        finally:
            if job.into is None:
                self.free.put(slot)

    def _span(self, step: int, what: str, device: str, lane: str, begin: float) -> float:
        now = time.perf_counter()
        if self.timeline is not None:
            self.timeline.note(device, lane, what, step, begin, now)
        return now


class Pipelines:
    """Steps over tiles on several devices at the same time, each with a pipeline of its own.

    Parameters
    ----------
    plan : Plan
    dtypes : sequence of dtype
        Of a tile of D, and of P if there is one.
    sizes : sequence of int
        Columns of the tiles of a row that each device has in memory in addition to its slots.
    todo : range
        The steps.
    saved : callable, optional
        Called after each step with the step from which a run would resume.
    tick, timeline : optional
    done : float
        Pairs that were done before, for `tick`.

    Attributes
    ----------
    devices : list of Device
    rows : list of list of Pair
        The rows of tiles in the devices' memory.
    """

    def __init__(
        self, plan: Plan, dtypes: Sequence[np.dtype[Any]], sizes: Sequence[int], todo: range,
        saved: Callable[[int], None] | None, tick: Tick | None, timeline: Timeline | None,
        done: float,
    ) -> None:  # fmt: skip
        self.devices, self._todo, self._saved = plan.open(), todo, saved
        self._pools = [ThreadPoolExecutor(plan.workers * len(self.devices)) for _ in range(2)]
        self._stop = threading.Event()
        if timeline is not None:
            timeline.origin = time.perf_counter()

        def pair(device: Device, columns: int) -> Pair:
            d, p = (*(device.empty(plan.tile * columns, x) for x in dtypes), None)[:2]
            return Pair(d, p)

        self._pipelines = [
            _Pipeline(
                x, [pair(x, plan.tile) for _ in range(plan.slots)], self._pools, timeline,
                self._stop,
            )
            for x in self.devices
        ]  # fmt: skip
        self.rows = [[pair(x, columns) for columns in sizes] for x in self.devices]
        self._tick, self._done = tick, done
        self._parts: dict[str, float] = {}
        self._lock = threading.Lock()

    def run(self) -> None:
        """All steps."""
        for k in self._todo:
            self.step(k)
            if self._saved is not None:
                self._saved(k + 1)

    def step(self, k: int) -> None:
        """One step, by :meth:`work`."""
        raise NotImplementedError

    def work(self, step: int, jobs: Sequence[Iterable[Job]]) -> None:
        """Run the jobs of each device, in a thread for each where there are several."""
        if len(jobs) == 1:  # Ctrl-C comes to the main thread
            self._one(self._pipelines[0], step, jobs[0])
            return
        with ThreadPoolExecutor(len(jobs)) as pool:
            try:
                pairs = zip(self._pipelines, jobs, strict=True)
                for future in [pool.submit(self._one, one, step, own) for one, own in pairs]:
                    future.result()
            except BaseException:
                self._stop.set()
                raise

    def _one(self, pipeline: _Pipeline, step: int, jobs: Iterable[Job]) -> None:
        with pipeline.device:
            pipeline.run(step, jobs, self._count)

    def _count(self, name: str, pairs: float) -> None:
        with self._lock:
            self._done += pairs
            self._parts[name] = self._parts.get(name, 0.0) + pairs
            if self._tick is not None:
                self._tick(self._done, self._parts if len(self.devices) > 1 else None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let the threads finish their tiles, end them, and free the memory."""
        for pool in self._pools:
            pool.shutdown(cancel_futures=True)
        for device in self.devices:
            device.synchronize()
        self._pipelines, self.rows = [], []
