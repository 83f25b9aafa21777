"""Pipeline of tiles through devices: threads read ahead from a store, and write back to it."""

from __future__ import annotations

import functools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from ..progress import Tick
from .devices import Device
from .stores import Readable, Store
from .timeline import Timeline

__all__ = ["Job", "Pair", "Pipelines"]

Array = Any  # of a device's engine
Stores = tuple[Store | None, Store | None]  # of D and of P
Note = Callable[[str, str, str, int, float, float], None]


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
    read: tuple[Readable | None, Readable | None] | None  # stores of D and P to read from
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
        note: Note | None, stop: threading.Event,
    ) -> None:  # fmt: skip
        self.device, self.note, self.stop = device, note, stop
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
            if self.note is not None and begin is not None:
                start = self.device.time(begin)
                self.note(self.device.name, "compute", job.what, step, start, done)
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
        if self.note is not None:
            self.note(device, lane, what, step, begin, now)
        return now


class Pipelines:
    """Devices that work on tiles at the same time, each through a pipeline of its own.

    Parameters
    ----------
    devices : sequence of Device
    slots, workers : int
        Tiles that each device has in its memory, and threads that read for it, and that write.
    pair : callable
        Allocates memory for so many entries on a device.
    size : int
        Entries of a slot.
    tick, timeline : optional
    first : float
        Pairs that were done before, for `tick`.
    """

    def __init__(
        self, devices: Sequence[Device], slots: int, workers: int,
        pair: Callable[[Device, int], Pair], size: int, *, tick: Tick | None,
        timeline: Timeline | None, first: float = 0.0,
    ) -> None:  # fmt: skip
        self.devices = devices
        self._pools = [ThreadPoolExecutor(workers * len(devices)) for _ in range(2)]
        self._stop, note = threading.Event(), _noter(timeline)
        self._pipelines = []
        for device in devices:
            held = [pair(device, size) for _ in range(slots)]
            self._pipelines.append(_Pipeline(device, held, self._pools, note, self._stop))
        self._tick, self._done = tick, first
        self._parts: dict[str, float] = {}
        self._lock = threading.Lock()

    def run(self, step: int, jobs: Sequence[Iterable[Job]]) -> None:
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

    def close(self) -> None:
        """Let the threads finish their tiles, end them, and free the memory."""
        for pool in self._pools:
            pool.shutdown(cancel_futures=True)
        for device in self.devices:
            device.synchronize()
        self._pipelines = []


def _noter(timeline: Timeline | None) -> Note | None:
    if timeline is None:
        return None
    origin = time.perf_counter()

    def note(device: str, lane: str, what: str, step: int, begin: float, end: float) -> None:
        timeline.note(device, lane, what, step, begin - origin, end - origin)

    return note
