"""Where blocks of a matrix lie and are computed with: devices of this machine, or its memory."""

from __future__ import annotations

import contextlib
import functools
import operator
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from ..arrays import gpu_engine
from ..cpu import engine as cpu

__all__ = ["Cuda", "Host", "Place", "device_list", "places_of"]

Array = Any
Mark = Any  # a point in what a place has been given to do


class Place(Protocol):
    """An engine with memory of its own. Inside ``with place`` its arrays are made and used.

    Work is given out in order and may be done later; copies between places go on beside it.
    """

    name: str
    engine: Any

    def __enter__(self) -> Any: ...
    def __exit__(self, *_: object) -> None: ...

    def mark(self) -> Mark:
        """The work given out so far."""

    def after(self, marks: Iterable[Mark]) -> None:
        """What is given out from now on waits for these."""

    def wait(self, mark: Mark) -> None:
        """Return when the work up to a mark is done."""

    def send(self, x: Array, to: Place, into: Array, after: Iterable[Mark]) -> Mark:
        """Copy a contiguous array to another place, after some marks; gives a mark of the copy."""

    def seconds(self, mark: Mark) -> float:
        """When it was reached, from :meth:`start` on."""

    def start(self) -> None:
        """Begin a run."""


class Host:
    """The memory of this machine and the CPU engine: all is done at once, in order."""

    engine: Any = cpu

    def __init__(self, name: str = "cpu") -> None:
        self.name = name
        self._begin = 0.0

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None: ...

    def mark(self) -> Mark:
        return time.perf_counter()

    def after(self, marks: Iterable[Mark]) -> None: ...

    def wait(self, mark: Mark) -> None: ...

    def send(self, x: Array, to: Place, into: Array, after: Iterable[Mark]) -> Mark:
        np.copyto(into, x)
        return time.perf_counter()

    def start(self) -> None:
        self._begin = time.perf_counter()

    def seconds(self, mark: Mark) -> float:
        return float(mark) - self._begin


class Cuda:
    """A CUDA device: a stream that computes, and one for what it sends."""

    def __init__(self, index: int) -> None:
        import cupy

        self._cuda = cupy.cuda
        self.index, self.name = index, f"cuda:{index}"
        self.engine: Any = gpu_engine()
        with cupy.cuda.Device(index):
            self._stream = cupy.cuda.Stream(non_blocking=True)
            self._link = cupy.cuda.Stream(non_blocking=True)
        self._inside = threading.local()  # contexts that were entered, of each thread
        self._begin: Any = None

    def __enter__(self) -> Cuda:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._cuda.Device(self.index))
            stack.enter_context(self._stream)
            self._inside.__dict__.setdefault("stack", []).append(stack.pop_all())
        return self

    def __exit__(self, *_: object) -> None:
        self._inside.stack.pop().close()

    def _record(self, stream: Any) -> Mark:
        with self._cuda.Device(self.index):
            event = self._cuda.Event()
            event.record(stream)
        return event

    def mark(self) -> Mark:
        return self._record(self._stream)

    def after(self, marks: Iterable[Mark]) -> None:
        for mark in marks:
            self._stream.wait_event(mark)

    def wait(self, mark: Mark) -> None:
        mark.synchronize()

    def send(self, x: Array, to: Place, into: Array, after: Iterable[Mark]) -> Mark:
        assert isinstance(to, Cuda)
        with self._cuda.Device(self.index):
            for mark in after:
                self._link.wait_event(mark)
            self._cuda.runtime.memcpyPeerAsync(
                into.data.ptr, to.index, x.data.ptr, self.index, x.nbytes, self._link.ptr
            )
        return self._record(self._link)

    def start(self) -> None:
        self._stream.synchronize()
        self._begin = self.mark()

    def seconds(self, mark: Mark) -> float:
        return float(self._cuda.get_elapsed_time(self._begin, mark)) / 1e3


def device_list(devices: Any, name: str = "devices") -> list[int]:
    """The numbers of CUDA devices that a user named: "all", or some of them.

    Raises
    ------
    ValueError, RuntimeError
        For what names no devices; where there are none.
    """
    if isinstance(devices, str) and devices != "all":
        raise ValueError(f"devices is 'all' or a sequence of device numbers, got {devices!r}")
    from ..gpu import device

    if why := device.why_not():
        raise RuntimeError(f"{name}: {why}")
    import cupy

    count = int(cupy.cuda.runtime.getDeviceCount())
    if isinstance(devices, str):
        return list(range(count))
    try:
        found = [operator.index(x) for x in devices]
    except TypeError:
        raise ValueError(
            f"devices is 'all' or a sequence of device numbers, got {devices!r}"
        ) from None
    if not found or len(set(found)) < len(found) or not all(0 <= x < count for x in found):
        raise ValueError(f"{name}: some of 0 to {count - 1}, each once, got {list(devices)!r}")
    return found


def places_of(devices: Sequence[int]) -> list[Cuda]:
    """CUDA devices as places that send to each other directly where the hardware can."""
    for one in devices:
        for other in devices:
            if one != other:
                _connect(one, other)
    return [Cuda(x) for x in devices]


@functools.cache
def _connect(one: int, other: int) -> None:
    """Let `one` write to `other` without a detour through the host; the copy works without, too."""
    import cupy

    runtime = cupy.cuda.runtime
    if runtime.deviceCanAccessPeer(one, other):
        with cupy.cuda.Device(one), contextlib.suppress(runtime.CUDARuntimeError):  # it is already
            runtime.deviceEnablePeerAccess(other)
