"""Arrays between host and device and within it, and how much memory there is."""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from . import device, views
from .launch import entry, launch, struct_of
from .source import STORAGE, flags
from .views import stride_fields, strides

__all__ = [
    "capturing", "contiguous", "copy", "free_memory", "from_host", "mirror", "on",
    "symmetric", "to_host", "wait",
]  # fmt: skip

Array = Any


def on(
    index: int, stream: int | None = None, allocate: Callable[[int], Any] | None = None
) -> contextlib.ExitStack:
    """Work on a device (-1: the current one), and on another library's stream if it is given.

    From this call on, until what it returns is closed. `allocate` makes an array of that library
    of so many bytes, in which new arrays lie then.
    """
    import cupy

    cuda = cupy.cuda
    with contextlib.ExitStack() as stack:
        if index >= 0:
            stack.enter_context(cuda.Device(index))
        if stream is not None and hasattr(cuda.Stream, "from_external"):
            stack.enter_context(cuda.Stream.from_external(_Stream(stream)))
        elif stream is not None:  # CuPy before 14
            stack.enter_context(cuda.ExternalStream(stream))
        if allocate is not None:

            def memory(size: int) -> Any:
                array = allocate(size)
                return cuda.MemoryPointer(
                    cuda.UnownedMemory(array.data_ptr(), size, array, index), 0
                )

            stack.enter_context(cuda.using_allocator(memory))
        elif device.current().capturing():  # the graph owns what lies in it
            stack.enter_context(cuda.using_allocator(cuda.malloc_async))
        return stack.pop_all()


def capturing() -> bool:
    """Whether the current stream is captured in a CUDA graph."""
    return device.current().capturing()


class _Stream:
    """A stream by its address, in CUDA's protocol for streams."""

    def __init__(self, place: int) -> None:
        self.place = place

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.place


def wait() -> None:
    """Until all that was launched on the current stream is done."""
    import cupy

    cupy.cuda.get_current_stream().synchronize()


def from_host(x: Array) -> Array:
    """A copy on the device."""
    xp = device.current().xp
    with _ring_for(x) as ring:
        if ring is None:
            return xp.array(x)
        there = xp.empty(x.shape, x.dtype)
        ring.copy(_bytes(x), there.data.ptr, up=True)
    return there


def to_host(x: Array) -> NDArray[Any]:
    """A copy on the host; waits for it."""
    with _ring_for(x) as ring:
        if ring is None:
            return views.to_host(x)
        here = np.empty(x.shape, x.dtype)
        ring.copy(_bytes(here), x.data.ptr, up=False)
    return here


# The driver copies between the device and memory that is not pinned at a fraction of the bus's
# speed, and so does a single thread: in large copies several threads move pieces between the array
# and pinned memory, from and to which the device copies meanwhile. Each has two places for pieces.
_PIECE, _LEAST, _TEAM = 4 << 20, 2 << 20, 8  # bytes of a piece, at most and at least; threads


class _Ring:
    """Pinned memory for the copies of a device, one at a time."""

    def __init__(self, index: int, piece: int) -> None:
        import cupy

        self._runtime, self._index, self._piece = cupy.cuda.runtime, index, piece
        self._stream = cupy.cuda.get_current_stream
        self.lock = threading.Lock()
        memory = cupy.cuda.alloc_pinned_memory(2 * _TEAM * piece)
        self._places = np.frombuffer(memory, np.uint8, 2 * _TEAM * piece).reshape(-1, piece)
        # of each place: when what was to be copied from it, or to it, has been
        self._events = [cupy.cuda.Event(disable_timing=True) for _ in self._places]

    def copy(self, host: NDArray[np.uint8], there: int, *, up: bool) -> None:
        """Copy bytes on the host to the device (`up`), or fill them from there."""
        size, stream = len(host), self._stream().ptr
        piece = min(self._piece, max(_LEAST, -(-size // _TEAM), 1))
        count = -(-size // piece)
        team = min(pool.get_num_threads(), _TEAM, count)

        def move(i: int) -> None:  # piece i, by the device
            place, length = i % (2 * team), min(piece, size - i * piece)
            ends = [there + i * piece, self._places[place].ctypes.data]
            kind = self._runtime.memcpyHostToDevice if up else self._runtime.memcpyDeviceToHost
            self._runtime.memcpyAsync(*(ends if up else ends[::-1]), length, kind, stream)
            self._runtime.eventRecord(self._events[place].ptr, stream)

        def work(first: int) -> None:
            self._runtime.setDevice(self._index)  # of this thread
            own = range(first, count, team)
            if not up:
                for i in own:  # memory that is new takes time, while the device is busy elsewhere
                    if self._events[first].done:
                        break
                    host[i * piece : (i + 1) * piece : _PAGE] = 0
            for i in own:
                place, part = i % (2 * team), host[i * piece : (i + 1) * piece]
                self._events[place].synchronize()
                if up:
                    np.copyto(self._places[place][: len(part)], part)
                    move(i)
                else:
                    np.copyto(part, self._places[place][: len(part)])
                    if i + 2 * team < count:
                        move(i + 2 * team)

        if not up:
            for i in range(min(2 * team, count)):  # what an earlier call copies may be on the way
                self._runtime.streamWaitEvent(stream, self._events[i].ptr)
                move(i)
        pool.run([functools.partial(work, first) for first in range(team)])


_PAGE = 4096
_PER_THREAD = 2  # the stream that each thread has for itself
_ring = functools.cache(_Ring)


@contextlib.contextmanager
def _ring_for(x: Array) -> Iterator[_Ring | None]:
    """The pinned memory by which a large copy goes; None if it is in use, or would be no gain."""
    here = device.current()
    ring = None
    if x.nbytes >= 2 * _LEAST and x.flags.c_contiguous and here.index >= 0:
        stream = here.xp.cuda.get_current_stream().ptr
        if stream != _PER_THREAD and not here.capturing():
            ring = _ring(here.index, _PIECE)
    if ring is None or not ring.lock.acquire(blocking=False):
        yield None
        return
    try:
        yield ring
    finally:
        ring.lock.release()


def _bytes(x: Array) -> Array:
    return x.reshape(-1).view(np.uint8)


def free_memory() -> int | None:
    """Bytes that the current device can still give, with what CuPy keeps for later."""
    import cupy

    free, _ = cupy.cuda.runtime.memGetInfo()
    return int(free) + int(cupy.get_default_memory_pool().free_bytes())


_THREADS, _SIDE = 256, 32  # sr::Copy's


def _copy_tiles(x: Array, y: Array, *, upper: bool = False) -> None:
    """Copy a matrix, or a stack, or what is above its diagonal; x is read along its rows."""
    rows, columns = x.shape[-2:]
    tiles = -(-rows // _SIDE), -(-columns // _SIDE)
    fields = stride_fields("x", x, "row column") | stride_fields("y", y, "row column")
    across = abs(fields["y_column"]) > abs(fields["y_row"])
    params = struct_of("CopyParams")
    run = f"sr::Copy<sr::u{8 * x.itemsize}, {flags(across, upper)}>::run"  # entries as they are
    launch(
        entry("copy.cuh", params, run, _THREADS), params,
        math.prod(tiles) * (len(x) if x.ndim == 3 else 1), _THREADS,
        _SIDE * (_SIDE + 1) * x.itemsize, fields, x=x, y=y, rows=rows, columns=columns,
        tiles_m=tiles[0], tiles_n=tiles[1],
    )  # fmt: skip


def copy(x: Array, to: Array) -> None:
    """Copy an array to another one of its shape and dtype."""
    if x.ndim > 3 or x.size == 0 or (x.flags.c_contiguous and to.flags.c_contiguous):
        device.copy(x, to)
    elif x.ndim < 2:
        _copy_tiles(x[np.newaxis], to[np.newaxis])
    elif abs(x.strides[-1]) > abs(x.strides[-2]):
        _copy_tiles(x.swapaxes(-1, -2), to.swapaxes(-1, -2))
    else:
        _copy_tiles(x, to)


def contiguous(x: Array) -> Array:
    """A copy in C's order, for the call alone."""
    y = device.scratch(x.shape, x.dtype)
    copy(x, y)
    return y


def mirror(x: Array) -> None:
    """Copy what is above the diagonal of a square matrix below it."""
    if x.size:
        _copy_tiles(x, x.swapaxes(-1, -2), upper=True)


_TILE = 64  # sr::Symmetric's


def symmetric(x: Array) -> bool:
    """Whether a square matrix equals its transpose; waits for the device."""
    n, here = x.shape[0], device.current()
    if not n:
        return True
    differs, tiles = here.xp.zeros(1, np.uint32), -(-n // _TILE)
    _, row, column = strides(x)
    params = struct_of("SymmetricParams")
    run = f"sr::Symmetric<{STORAGE[x.dtype.name]}>::run"
    launch(
        entry("copy.cuh", params, run, _THREADS), params, tiles * tiles, _THREADS,
        _TILE * (_TILE + 1) * x.itemsize, x=x, differs=differs, row=row, column=column, n=n,
        tiles=tiles,
    )  # fmt: skip
    return not views.to_host(differs)[0]
