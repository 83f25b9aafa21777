"""Eliminations and products out of core: tiles stream from a store through a few buffers.

In memory are row k of a step, which all tiles need, and a few tiles that are read, computed or
written: ``(n + 7 tile) · tile`` entries on few cores (:func:`room`), for any n. Reading, computing
and writing overlap, each in threads of its own, and tiles are read ahead, so that a step needs the
cross of no other (no look-ahead): :meth:`Streamed.finish` runs what the step has been given in the
order of the rows.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..closures.progress import Tick
from ..closures.schedule import Grid
from ..closures.steps import Steps
from ..cpu import engine as cpu
from ..semirings import Semiring
from .stores import Store
from .timeline import Timeline

__all__ = ["Device", "Host", "Place", "Product", "Streamed", "choose_tile", "room"]

Array = Any  # of a place's engine
HostArray = NDArray[Any]
Stores = tuple[Store | None, Store | None]  # of D and of P
Note = Callable[[str, str, str, int, float, float], None]
Span = Callable[[str, str, float], float]  # told place, lane and begin; gives the end, now

SPARE = 3  # tiles' worth of temporary memory: the engine's, a chunk at the edge read, one written
LEAST, STEP = 256, 64  # lines of the smallest tile, and what others are a multiple of


def room(n: int, tile: int, size: int, slots: int) -> int:
    """Bytes that tiles of a matrix with n lines take in memory; `size` is that of an entry."""
    tile = min(tile, n)
    return (n + (slots + SPARE) * tile) * tile * size


def choose_tile(n: int, size: int, limit: int, *, slots: int, most: int) -> int:
    """Lines of the largest tile with which the work stays within `limit` bytes.

    Large tiles are better: each entry is read and written once in every step, of which there are
    n / tile.

    Raises
    ------
    MemoryError
        If there is none of 256 lines or more.
    """
    least = min(LEAST, n)
    if room(n, least, size, slots) > limit:
        raise MemoryError(
            f"out of core, {n} nodes take {room(n, least, size, slots) / 1e6:.4g} MB of memory at "
            f"least, and {limit / 1e6:.4g} MB are allowed; use a larger memory_limit"
        )
    tile = next((x for x in range(most, LEAST, -STEP) if room(n, x, size, slots) <= limit), least)
    count = -(-n // max(tile, 1))  # and as even as may be
    return max(1, min(n, tile, -(-n // max(count, 1) // STEP) * STEP))


# Places


class Place(Protocol):
    """Memory and an engine that computes there; data come and go in other threads."""

    @property
    def name(self) -> str:
        """Of the timeline and of progress."""

    @property
    def engine(self) -> Any:
        """The module."""

    def on(self) -> contextlib.AbstractContextManager[Any]:
        """Where the computing thread works."""

    def empty(self, size: int, dtype: np.dtype[Any]) -> Array:
        """Memory for `size` entries."""

    def load(self, read: Callable[[HostArray], None], into: Array, span: Span) -> None:
        """Have `read` fill contiguous memory here; returns when it has."""

    def save(self, block: Array, write: Callable[[HostArray], None], span: Span) -> None:
        """Give contiguous memory to `write`."""

    def now(self) -> Any:
        """A mark in the stream of computations."""

    def when(self, mark: Any) -> float:
        """Wait until computing has come to a mark; when it was, by :func:`time.perf_counter`."""

    def close(self) -> None:
        """Free what was held."""


class Host:
    """The CPU engine; arrays in memory are read into, and written from, as they are."""

    name = "cpu"
    engine = cpu

    def on(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def empty(self, size: int, dtype: np.dtype[Any]) -> Array:
        return np.empty(size, dtype)

    def load(self, read: Callable[[HostArray], None], into: Array, span: Span) -> None:
        begin = time.perf_counter()
        read(into)
        span("disk", "read", begin)

    def save(self, block: Array, write: Callable[[HostArray], None], span: Span) -> None:
        begin = time.perf_counter()
        write(block)
        span("disk", "write", begin)

    def now(self) -> float:
        return time.perf_counter()

    def when(self, mark: float) -> float:
        return mark

    def close(self) -> None:
        pass


class Device:
    """A CUDA device; what comes and goes passes through pinned memory, each way on its stream.

    Parameters
    ----------
    index : int
    stages : int
        Pieces of pinned memory.
    size : int
        Bytes of each.
    """

    def __init__(self, index: int, stages: int, size: int) -> None:
        import cupy

        from ..gpu import engine

        self.name, self.engine = f"cuda:{index}", engine
        self._cuda, self._index, self._xp = cupy.cuda, index, cupy
        self._stages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        with cupy.cuda.Device(index):
            self._compute, self._up, self._down = (
                cupy.cuda.Stream(non_blocking=True) for _ in range(3)
            )
            for _ in range(stages):
                self._stages.put(cupy.cuda.alloc_pinned_memory(max(size, 1)))
            self._origin = cupy.cuda.Event()
            self._origin.record(self._compute)
            self._origin.synchronize()
            self._begin = time.perf_counter()

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        with self._cuda.Device(self._index), self._compute:
            yield

    def empty(self, size: int, dtype: np.dtype[Any]) -> Array:
        with self.on():
            return self._xp.empty(size, dtype)

    @contextlib.contextmanager
    def _staged(self, like: Array) -> Iterator[HostArray]:
        """Pinned memory in the shape of a block."""
        pinned = self._stages.get()
        try:
            yield np.frombuffer(pinned, like.dtype, like.size).reshape(like.shape)
        finally:
            self._stages.put(pinned)

    def load(self, read: Callable[[HostArray], None], into: Array, span: Span) -> None:
        with self._staged(into) as stage:
            begin = time.perf_counter()
            read(stage)
            here = span("disk", "read", begin)
            self._move(into.data.ptr, stage.ctypes.data, into.nbytes, self._up, up=True)
            span(self.name, "receive", here)

    def save(self, block: Array, write: Callable[[HostArray], None], span: Span) -> None:
        with self._staged(block) as stage:
            begin = time.perf_counter()
            self._move(stage.ctypes.data, block.data.ptr, block.nbytes, self._down, up=False)
            here = span(self.name, "send", begin)
            write(stage)
            span("disk", "write", here)

    def _move(self, to: int, source: int, size: int, stream: Any, *, up: bool) -> None:
        runtime = self._cuda.runtime
        kind = runtime.memcpyHostToDevice if up else runtime.memcpyDeviceToHost
        with self._cuda.Device(self._index):
            runtime.memcpyAsync(to, source, size, kind, stream.ptr)
            done = self._cuda.Event(block=True, disable_timing=True)
            done.record(stream)
            done.synchronize()  # of this copy, not of those that other threads have begun since

    def now(self) -> Any:
        mark = self._cuda.Event(block=True)  # threads that wait leave their cores to the others
        mark.record(self._compute)
        return mark

    def when(self, mark: Any) -> float:
        mark.synchronize()
        return self._begin + float(self._cuda.get_elapsed_time(self._origin, mark)) / 1000

    def close(self) -> None:
        with self._cuda.Device(self._index):
            self._compute.synchronize()


# Streams of tiles


class Pair(NamedTuple):
    """Memory of a place for a tile of D, and for one of P."""

    d: Array
    p: Array | None

    def cut(self, shape: tuple[int, int]) -> Pair:
        """Contiguous blocks in it."""
        size = shape[0] * shape[1]
        p = None if self.p is None else self.p[:size].reshape(shape)
        return Pair(self.d[:size].reshape(shape), p)


class Job(NamedTuple):
    """A tile to be read, changed and written."""

    rows: slice
    columns: slice
    read: Stores | None  # from where D and P come
    write: Stores | None = None  # and where they go
    into: Pair | None = None  # where they are meanwhile, if that is not a slot
    work: Callable[[Pair, Pair | None], None] | None = None  # told the tile and the one held
    held: bool = False  # whether it is for the jobs after it, until another such one comes
    pairs: float = 0.0
    what: str = "tile"


class _Lane:
    """A place with its slots, through which jobs pass one after the other."""

    def __init__(
        self, place: Place, slots: Sequence[Pair], pools: Sequence[ThreadPoolExecutor],
        note: Note | None, stop: threading.Event,
    ) -> None:  # fmt: skip
        self.place, self.note, self.stop = place, note, stop
        self.readers, self.writers = pools
        self.free: queue.SimpleQueue[Pair] = queue.SimpleQueue()
        self.depth = len(slots)
        for slot in slots:
            self.free.put(slot)

    def run(self, step: int, jobs: Iterable[Job], count: Callable[[str, float], None]) -> None:
        """Do all jobs; returns when what they wrote is written."""
        todo, ahead = iter(jobs), deque[tuple[Job, Pair, "Future[Pair]"]]()
        ends: deque[Future[None]] = deque()
        held: tuple[Job, Pair, Pair] | None = None

        def end(job: Job, slot: Pair, tile: Pair, begin: Any) -> None:
            now = self.place.now()
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
            begin = self.place.now()
            if this.held:
                if held is not None:
                    end(*held, None)
                held = this, slot, tile
            elif this.work is not None:
                this.work(tile, None if held is None else held[2])
                end(this, slot, tile, begin)
                count(self.place.name, this.pairs)
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
                self.place.load(functools.partial(store.read, rows, columns), block, span)
        return tile

    def _end(self, step: int, job: Job, slot: Pair, tile: Pair, begin: Any, end: Any) -> None:
        """Wait for the work on a tile, write it, free its slot.

        P goes before D: if the process ends between, D is improved again, and P with it.
        """
        try:
            done = self.place.when(end)
            if self.note is not None and begin is not None:
                self.note(self.place.name, "compute", job.what, step, self.place.when(begin), done)
            span = functools.partial(self._span, step, job.what)
            for store, block in reversed(list(zip(job.write or (), tile, strict=False))):
                if store is not None and block is not None:
                    write = functools.partial(store.write, job.rows, job.columns)
                    self.place.save(block, write, span)
        finally:
            if job.into is None:
                self.free.put(slot)

    def _span(self, step: int, what: str, place: str, lane: str, begin: float) -> float:
        now = time.perf_counter()
        if self.note is not None:
            self.note(place, lane, what, step, begin, now)
        return now


class Lanes:
    """Places that work on streams of tiles at the same time.

    Parameters
    ----------
    places : sequence of Place
    slots, workers : int
        Tiles that each place has at hand, and threads that read for it, and as many that write.
    pair : callable
        Makes memory for so many entries in a place.
    size : int
        Entries of a slot.
    """

    def __init__(
        self, places: Sequence[Place], slots: int, workers: int,
        pair: Callable[[Place, int], Pair], size: int, *, tick: Tick | None,
        timeline: Timeline | None, first: float = 0.0,
    ) -> None:  # fmt: skip
        self.places = places
        self._pools = [ThreadPoolExecutor(workers * len(places)) for _ in range(2)]
        self._stop, note = threading.Event(), _noter(timeline)
        self._lanes = []
        for place in places:
            held = [pair(place, size) for _ in range(slots)]
            self._lanes.append(_Lane(place, held, self._pools, note, self._stop))
        self._tick, self._done = tick, first
        self._parts: dict[str, float] = {}
        self._lock = threading.Lock()

    def run(self, step: int, jobs: Sequence[Iterable[Job]]) -> None:
        """Every place its jobs, each in a thread where there are several."""
        if len(jobs) == 1:  # Ctrl-C comes to the main thread
            self._one(self._lanes[0], step, jobs[0])
            return
        with ThreadPoolExecutor(len(jobs)) as pool:
            try:
                lanes = zip(self._lanes, jobs, strict=True)
                for future in [pool.submit(self._one, lane, step, own) for lane, own in lanes]:
                    future.result()
            except BaseException:
                self._stop.set()
                raise

    def _one(self, lane: _Lane, step: int, jobs: Iterable[Job]) -> None:
        with lane.place.on():
            lane.run(step, jobs, self._count)

    def _count(self, name: str, pairs: float) -> None:
        with self._lock:
            self._done += pairs
            self._parts[name] = self._parts.get(name, 0.0) + pairs
            if self._tick is not None:
                self._tick(self._done, self._parts if len(self.places) > 1 else None)

    def close(self) -> None:
        """End the threads, when what they have begun is done, and free the memory."""
        for pool in self._pools:
            pool.shutdown(cancel_futures=True)
        for place in self.places:
            place.close()
        self._lanes = []


def _noter(timeline: Timeline | None) -> Note | None:
    if timeline is None:
        return None
    origin = time.perf_counter()

    def note(place: str, lane: str, what: str, step: int, begin: float, end: float) -> None:
        timeline.note(place, lane, what, step, begin - origin, end - origin)

    return note


class Streamed:
    """An executor of :func:`semiring_mm.closures.schedule.eliminate` over a store.

    Parameters
    ----------
    grid : Grid
    steps : Steps
    d : Store
        Where :meth:`Steps.begin` has been; in the dtype of `steps`.
    p : Store, optional
        Predecessors, if `steps` wants them.
    places : sequence of Place
        Who computes; each holds the row of a step, and takes a part of the tiles.
    slots, workers : int
        As for :class:`Lanes`.
    first : int
        The first step.
    saved : callable, optional
        Told the step from which a run would go on, after each.
    tick, timeline : optional
    """

    def __init__(
        self, grid: Grid, steps: Steps, d: Store, p: Store | None, places: Sequence[Place], *,
        slots: int, workers: int, first: int = 0, saved: Callable[[int], None] | None = None,
        tick: Tick | None = None, timeline: Timeline | None = None,
    ) -> None:  # fmt: skip
        self.grid, self.steps, self.saved = grid, steps, saved
        self.stores = (d, p)
        self._tiles: list[tuple[int, int]] = []
        self._places = places
        done = float(first) * grid.tile * float(grid.n) ** 2 / (2 if steps.symmetric else 1)
        self._lanes = Lanes(
            places, slots, workers, self._pair, grid.tile**2, tick=tick, timeline=timeline,
            first=done,
        )  # fmt: skip
        sizes = [grid.tile * grid.size(j) for j in range(grid.count)]
        self._rows = [[self._pair(place, size) for size in sizes] for place in places]

    def _pair(self, place: Place, size: int) -> Pair:
        p = place.empty(size, np.dtype(np.int32)) if self.steps.predecessors else None
        return Pair(place.empty(size, self.steps.dtype), p)

    def pivot(self, k: int) -> None:
        """Its time comes in :meth:`finish`."""

    def update(self, k: int, rows: Sequence[int], columns: Sequence[int]) -> None:
        half = self.steps.symmetric
        self._tiles += [(i, j) for i in rows for j in columns if i <= j or not half]

    def finish(self, k: int) -> None:
        """Do step k."""
        steps, count = self.steps, len(self._places)
        others = [i for i in range(self.grid.count) if i != k]
        tiles, self._tiles = sorted(self._tiles), []
        engine = self._places[0].engine

        def close(tile: Pair, _: Pair | None) -> None:
            steps.close(engine, tile.d, tile.p, k * self.grid.tile)

        self._lanes.run(k, [[self._job(k, k, k, self._rows[0][k], close, "pivot")]])
        cross = [self._cross(k, who, others[who::count]) for who in range(count)]
        self._lanes.run(k, cross)
        ends = np.linspace(0, len(tiles), count + 1).astype(int).tolist()
        parts = [tiles[ends[who] : ends[who + 1]] for who in range(count)]
        self._lanes.run(k, [self._trailing(k, who, others, parts[who]) for who in range(count)])
        if self.saved is not None:
            self.saved(k + 1)

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

    def _cross(self, k: int, who: int, others: Sequence[int]) -> Iterator[Job]:
        """Tiles of row k, which stay, and of column k, which go."""
        steps, row, engine = self.steps, self._rows[who], self._places[who].engine
        own = row[k].cut((self.grid.size(k), self.grid.size(k)))
        if who and others:
            yield self._job(k, k, k, row[k], None, "pivot")

        def across(tile: Pair, _: Pair | None) -> None:
            steps.row(engine, own.d, tile.d, tile.p)

        def down(tile: Pair, _: Pair | None) -> None:
            steps.column(engine, tile.d, own.d, tile.p, own.p)

        for j in others:
            if steps.symmetric and j < k:  # of which the transpose is kept
                yield self._job(k, j, k, row[j], down, "pivot")
            else:
                yield self._job(k, k, j, row[j], across, "pivot")
        if not steps.symmetric:
            for i in others:
                yield self._job(k, i, k, None, down, "pivot")

    def _trailing(
        self, k: int, who: int, others: Sequence[int], tiles: Sequence[tuple[int, int]]
    ) -> Iterator[Job]:
        """The tiles that are in neither; first those of row k that other places have made."""
        steps, row, engine = self.steps, self._rows[who], self._places[who].engine
        grid, half, last = self.grid, steps.symmetric, -1
        for at, j in enumerate(others):
            if tiles and at % len(self._places) != who:
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
        """End the threads, when what they have begun is done, and free the memory."""
        self._lanes.close()
        self._rows = []


class Product:
    """C ← A ⊗ B out of core: a row of tiles of A stays, B streams past it, C is written once.

    Each tile of C gathers its products in one go, over whatever ⊕: a row that has been begun and
    not finished is computed again from A and B.

    Parameters
    ----------
    s : Semiring
    tile : int
    a, b, c : Store
        Of shapes (m, k), (k, n) and (m, n), and one dtype.
    places, slots, workers, first, saved, tick, timeline
        As for :class:`Streamed`; a step is a row of tiles of C.
    """

    def __init__(
        self, s: Semiring, tile: int, a: Store, b: Store, c: Store, places: Sequence[Place], *,
        slots: int, workers: int, first: int = 0, saved: Callable[[int], None] | None = None,
        tick: Tick | None = None, timeline: Timeline | None = None,
    ) -> None:  # fmt: skip
        self.s, self.stores, self.first, self.saved = s, (a, b, c), first, saved
        (m, k), n = a.shape, b.shape[1]
        self.m, self.k, self.n = Grid(m, tile), Grid(k, tile), Grid(n, tile)
        self._places = places
        done = float(min(first * tile, m)) * k * n
        self._lanes = Lanes(
            places, slots, workers, self._pair, tile**2, tick=tick, timeline=timeline, first=done
        )
        sizes = [tile * self.k.size(x) for x in range(self.k.count)]
        self._rows = [[self._pair(place, size) for size in sizes] for place in places]

    def _pair(self, place: Place, size: int) -> Pair:
        return Pair(place.empty(size, self.stores[2].dtype), None)

    def run(self) -> None:
        """Compute all rows of tiles from the first on."""
        count = len(self._places)
        for i in range(self.first, self.m.count):
            columns = range(self.n.count)
            self._lanes.run(i, [self._row(i, who, columns[who::count]) for who in range(count)])
            if self.saved is not None:
                self.saved(i + 1)

    def _row(self, i: int, who: int, columns: Sequence[int]) -> Iterator[Job]:
        a, b, c = self.stores
        row, place = self._rows[who], self._places[who]
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
                    place.engine.product(self.s, left.d, tile.d, held.d, accumulate=again)

                pairs = float(self.m.size(i)) * self.n.size(j) * self.k.size(k)
                part = self.k.part(k), self.n.part(j)
                yield Job(*part, (b, None), work=work, pairs=pairs, what="product")

    def close(self) -> None:
        """End the threads, when what they have begun is done, and free the memory."""
        self._lanes.close()
        self._rows = []
