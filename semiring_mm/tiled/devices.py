"""Devices that hold and compute tiles: the CPU, or CUDA devices of this machine."""

from __future__ import annotations

import contextlib
import functools
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from ..engine import Engine

__all__ = ["CudaDevice", "Device", "Span", "cuda_devices"]

Array = Any  # of a device's engine
HostArray = NDArray[Any]
Mark = Any  # a point in the work that a device was given
Span = Callable[[str, str, float], float]  # notes (device, lane, begin) until now; returns now


class Device:
    """An engine with memory of its own; this one is the CPU, which does all work at once, in order.

    Inside ``with device`` its arrays are made and used. On another device, work on its arrays is
    given in order and may be done later, and copies to and from the host and to other devices run
    beside it.
    """

    def __init__(self, name: str = "cpu") -> None:
        self.name = name
        self.engine: Engine = engines.named("cuda" if name.startswith("cuda") else "cpu")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def empty(self, size: int, dtype: np.dtype[Any]) -> Array:
        """Memory for `size` entries."""
        with self:
            return self.engine.xp.empty(size, dtype)

    def start(self) -> None:
        """Wait for the work given so far, and set the origin of the clock."""

    def mark(self) -> Mark:
        """A mark after the work given so far."""
        return time.perf_counter()

    def after(self, marks: Iterable[Mark]) -> None:
        """Let the work given from now on wait for these marks."""

    def wait(self, mark: Mark) -> None:
        """Return when the work up to a mark is done."""

    def time(self, mark: Mark) -> float:
        """Wait for a mark; the time at which it was reached, by :func:`time.perf_counter`."""
        return float(mark)

    def send(self, x: Array, to: Any, into: Array, after: Iterable[Mark]) -> Mark:
        """Copy a contiguous array to another device after some marks; a mark after the copy."""
        np.copyto(into, x)
        return time.perf_counter()

    def load(self, read: Callable[[HostArray], None], into: Array, span: Span) -> None:
        """Let `read` fill a contiguous array of the device; returns when it is filled."""
        begin = time.perf_counter()
        read(into)
        span("disk", "read", begin)

    def save(self, block: Array, write: Callable[[HostArray], None], span: Span) -> None:
        """Give a contiguous array of the device to `write`; returns when it is written."""
        begin = time.perf_counter()
        write(block)
        span("disk", "write", begin)

    def synchronize(self) -> None:
        """Wait for the work given so far."""


class CudaDevice(Device):
    """A CUDA device with a stream for computing and one for each direction of copies.

    :meth:`load` and :meth:`save` copy through `stages` pieces of pinned host memory, of `size`
    bytes each.
    """

    def __init__(self, index: int, stages: int = 0, size: int = 0) -> None:
        import cupy

        super().__init__(f"cuda:{index}")
        self.index, self._cuda = index, cupy.cuda
        self._stages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        with cupy.cuda.Device(index):
            self._compute, self._link, self._up, self._down = (
                cupy.cuda.Stream(non_blocking=True) for _ in range(4)
            )
            for _ in range(stages):
                self._stages.put(cupy.cuda.alloc_pinned_memory(max(size, 1)))
        self._entered = threading.local()  # exit stacks of `with` blocks, of each thread
        self.start()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._cuda.Device(self.index))
            stack.enter_context(self._compute)
            self._entered.__dict__.setdefault("stacks", []).append(stack.pop_all())
        return self

    def __exit__(self, *_: object) -> None:
        self._entered.stacks.pop().close()

    def start(self) -> None:
        self.synchronize()
        self._origin = self.mark()
        self._origin.synchronize()
        self._begin = time.perf_counter()

    def _record(self, stream: Any) -> Mark:
        with self._cuda.Device(self.index):
            event = self._cuda.Event(block=True)  # threads that wait leave their cores to others
            event.record(stream)
        return event

    def mark(self) -> Mark:
        return self._record(self._compute)

    def after(self, marks: Iterable[Mark]) -> None:
        for mark in marks:
            self._compute.wait_event(mark)

    def wait(self, mark: Mark) -> None:
        mark.synchronize()

    def time(self, mark: Mark) -> float:
        mark.synchronize()
        return self._begin + float(self._cuda.get_elapsed_time(self._origin, mark)) / 1e3

    def send(self, x: Array, to: CudaDevice, into: Array, after: Iterable[Mark]) -> Mark:
        with self._cuda.Device(self.index):
            for mark in after:
                self._link.wait_event(mark)
            self._cuda.runtime.memcpyPeerAsync(
                into.data.ptr, to.index, x.data.ptr, self.index, x.nbytes, self._link.ptr
            )
        return self._record(self._link)

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
            kind = self._cuda.runtime.memcpyHostToDevice
            self._copy(into.data.ptr, stage.ctypes.data, into.nbytes, kind, self._up)
            span(self.name, "receive", here)

    def save(self, block: Array, write: Callable[[HostArray], None], span: Span) -> None:
        with self._staged(block) as stage:
            begin = time.perf_counter()
            kind = self._cuda.runtime.memcpyDeviceToHost
            self._copy(stage.ctypes.data, block.data.ptr, block.nbytes, kind, self._down)
            here = span(self.name, "send", begin)
            write(stage)
            span("disk", "write", here)

    def _copy(self, to: int, source: int, size: int, kind: int, stream: Any) -> None:
        with self._cuda.Device(self.index):
            self._cuda.runtime.memcpyAsync(to, source, size, kind, stream.ptr)
            done = self._cuda.Event(block=True, disable_timing=True)
            done.record(stream)
            done.synchronize()  # with this copy only: other threads may have begun more since

    def synchronize(self) -> None:
        with self._cuda.Device(self.index):
            self._compute.synchronize()


def cuda_devices(indices: Sequence[int]) -> list[CudaDevice]:
    """CUDA devices that send to each other directly where the hardware can."""
    for one in indices:
        for other in indices:
            if one != other:
                _connect(one, other)
    return [CudaDevice(x) for x in indices]


@functools.cache
def _connect(one: int, other: int) -> None:
    """Enable peer access from `one` to `other`; without it copies go through the host."""
    import cupy

    runtime = cupy.cuda.runtime
    if runtime.deviceCanAccessPeer(one, other):
        with cupy.cuda.Device(one), contextlib.suppress(runtime.CUDARuntimeError):  # it is already
            runtime.deviceEnablePeerAccess(other)
