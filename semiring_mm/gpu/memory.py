"""Arrays between host and device and within it, and how much memory there is."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import device, views
from .source import STORAGE, pack
from .views import address, strides

__all__ = [
    "capturing", "free_memory", "from_host", "mirror", "mirror_source", "on", "symmetric",
    "to_host", "wait",
]  # fmt: skip

Array = Any


@contextlib.contextmanager
def on(
    index: int, stream: int | None = None, allocate: Callable[[int], Any] | None = None
) -> Iterator[None]:
    """Work on a device (-1: the current one), and on another library's stream if it is given.

    `allocate` makes an array of that library of so many bytes, in which new arrays lie then.
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
        yield


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
    if x.nbytes <= 2 * _PIECE or not x.flags.c_contiguous:
        return xp.array(x)
    there = xp.empty(x.shape, x.dtype)
    with _Pieces(x.nbytes) as pieces:
        for at, size, buffer in pieces:
            pieces.copy(buffer, _bytes(x)[at : at + size])
            pieces.move(there.data.ptr + at, buffer.ctypes.data, size, up=True)
    return there


def to_host(x: Array) -> NDArray[Any]:
    """A copy on the host; waits for it."""
    if x.nbytes <= 2 * _PIECE or not hasattr(x, "get") or not x.flags.c_contiguous:
        return views.to_host(x)
    here = np.empty(x.shape, x.dtype)
    started: list[tuple[int, int, Array]] = []
    with _Pieces(x.nbytes) as pieces:
        for at, size, buffer in pieces:
            pieces.move(buffer.ctypes.data, x.data.ptr + at, size, up=False)
            started.append((at, size, buffer))
            if len(started) == _BUFFERS:
                pieces.land(here, *started.pop(0))
        for one in started:
            pieces.land(here, *one)
    return here


# Pieces of a large copy: while one travels between the device and pinned memory, the next is copied
# between that and the array, by several threads, since one alone is slower than the bus.
_PIECE, _BUFFERS, _COPIERS = 32 << 20, 3, 6


class _Pieces:
    """A copy in pieces: (first byte, bytes, pinned memory that is free) for each."""

    def __init__(self, size: int) -> None:
        import cupy

        self._cuda, self._size = cupy.cuda, size
        self._pinned = [cupy.cuda.alloc_pinned_memory(_PIECE) for _ in range(_BUFFERS)]
        self._events: dict[int, Any] = {}  # by the address of the buffer: when it is free, or full
        self._pool = ThreadPoolExecutor(_COPIERS)

    def __enter__(self) -> _Pieces:
        return self

    def __exit__(self, *_: object) -> None:
        for event in self._events.values():  # before the buffers can go to others
            event.synchronize()
        self._pool.shutdown()

    def __iter__(self) -> Iterator[tuple[int, int, Array]]:
        for i, at in enumerate(range(0, self._size, _PIECE)):
            size = min(_PIECE, self._size - at)
            buffer = np.frombuffer(self._pinned[i % _BUFFERS], np.uint8, size)
            self._wait(buffer)
            yield at, size, buffer

    def _wait(self, buffer: Array) -> None:
        if event := self._events.get(buffer.ctypes.data):
            event.synchronize()

    def move(self, to: int, source: int, size: int, *, up: bool) -> None:
        """Begin to copy between a buffer and the device, on the current stream."""
        runtime, stream = self._cuda.runtime, self._cuda.get_current_stream()
        kind = runtime.memcpyHostToDevice if up else runtime.memcpyDeviceToHost
        runtime.memcpyAsync(to, source, size, kind, stream.ptr)
        event = self._cuda.Event(disable_timing=True)
        event.record(stream)
        self._events[source if up else to] = event

    def land(self, here: Array, at: int, size: int, buffer: Array) -> None:
        """Copy a piece that came from the device to its place in an array."""
        self._wait(buffer)
        self.copy(_bytes(here)[at : at + size], buffer)

    def copy(self, to: Array, source: Array) -> None:
        """Between two places on the host."""
        ends = np.linspace(0, len(to), _COPIERS + 1).astype(int)
        parts = [slice(*x) for x in itertools.pairwise(ends.tolist())]
        list(self._pool.map(lambda part: np.copyto(to[part], source[part]), parts))


def _bytes(x: Array) -> Array:
    return x.reshape(-1).view(np.uint8)


def free_memory() -> int | None:
    """Bytes that the current device can still give, those that CuPy keeps for later among them."""
    import cupy

    free, _ = cupy.cuda.runtime.memGetInfo()
    return int(free) + int(cupy.get_default_memory_pool().free_bytes())


@functools.cache
def mirror_source(itemsize: int) -> str:
    """The text of the kernel that mirrors a matrix; entries are moved as they are."""
    return f"""#include "mirror.cuh"
extern "C" __global__ void __launch_bounds__({_THREADS})
kernel(const __grid_constant__ sr::MirrorParams p) {{
  sr::Mirror<sr::u{8 * itemsize}>::run(p);
}}
"""


_THREADS, _SIDE = 256, 32  # sr::Mirror's


def mirror(x: Array) -> None:
    """Copy what is above the diagonal of a square matrix below it."""
    n = x.shape[0]
    tiles = -(-n // _SIDE)
    params = pack((address(x), *strides(x)[1:]), (n, tiles))
    kernel = device.current().kernel(mirror_source(x.itemsize))
    kernel.launch(tiles * tiles, _THREADS, _SIDE * (_SIDE + 1) * x.itemsize, params)


@functools.cache
def symmetric_source(storage: str) -> str:
    """The text of the kernel that compares a matrix with its transpose."""
    return f"""#include "mirror.cuh"
extern "C" __global__ void __launch_bounds__({_THREADS})
kernel(const __grid_constant__ sr::SymmetricParams p) {{
  sr::Symmetric<{STORAGE[storage]}>::run(p);
}}
"""


_TILE = 64  # sr::Symmetric's


def symmetric(x: Array) -> bool:
    """Whether a square matrix equals its transpose; waits for the device."""
    n, here = x.shape[0], device.current()
    if not n:
        return True
    differs, tiles = here.xp.zeros(1, np.uint32), -(-n // _TILE)
    params = pack((address(x), address(differs), *strides(x)[1:]), (n, tiles))
    kernel = here.kernel(symmetric_source(x.dtype.name))
    kernel.launch(tiles * tiles, _THREADS, _TILE * (_TILE + 1) * x.itemsize, params)
    return not views.to_host(differs)[0]
