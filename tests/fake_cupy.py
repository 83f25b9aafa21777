"""CuPy's streams, events and copies over the host's memory, as late as they may be done.

A copy is queued in its stream, and done only when an event that was recorded after it is awaited.
What does not wait for a copy therefore finds old data. Computations are the CPU engine's and done
at once, so the stream in which they are, which is the one that is entered, never lags.
"""

import contextlib
import ctypes
import threading
import time
from types import SimpleNamespace

import numpy as np


class There(np.ndarray):
    """An array on a device, as far as copies to it go."""

    data = property(lambda self: SimpleNamespace(ptr=self.ctypes.data))


class Stream(contextlib.AbstractContextManager):
    lock = threading.RLock()  # of all queues

    def __init__(self, non_blocking):
        assert non_blocking  # else it would wait for those of others
        self.queue, self.entered = [], False

    def __enter__(self):
        self.entered = True
        self.synchronize()

    def __exit__(self, *_):
        pass

    def push(self, call):
        with self.lock:
            self.queue.append(call)
            if self.entered:
                self.synchronize()

    def synchronize(self):
        with self.lock:
            while self.queue:
                self.queue.pop(0)()

    def wait_event(self, event):
        self.push(event.synchronize)


class Event:
    def __init__(self, block=False, disable_timing=False):
        self.timed, self.time, self.stream = not disable_timing, None, None

    def record(self, stream):
        self.stream = stream
        stream.push(self.reach)

    def reach(self):
        self.time = time.perf_counter()

    def synchronize(self):
        with Stream.lock:
            while self.time is None:
                self.stream.queue.pop(0)()


class Cupy:
    """What :class:`~semiring_mm.tiled.devices.CudaDevice` uses of CuPy."""

    def __init__(self):
        self.pinned, self.entered, self.streams = [], [], {}
        self.cuda = SimpleNamespace(
            Device=self.device, Stream=self.stream, Event=Event, alloc_pinned_memory=self.pin,
            get_elapsed_time=self.elapsed,
            runtime=SimpleNamespace(
                memcpyHostToDevice=1, memcpyDeviceToHost=2, memcpyAsync=self.copy,
                memcpyPeerAsync=self.send,
            ),
        )  # fmt: skip

    def stream(self, non_blocking):
        made = Stream(non_blocking)
        made.ptr = id(made)
        self.streams[made.ptr] = made
        return made

    @contextlib.contextmanager
    def device(self, index):
        self.entered.append(index)
        yield

    def pin(self, size):
        self.pinned.append(np.zeros(size, np.uint8))
        return self.pinned[-1]

    def elapsed(self, first, last):
        assert first.timed
        assert last.timed
        return 1000 * (last.time - first.time)

    def copy(self, to, source, size, kind, stream):
        here, there = (source, to) if kind == 1 else (to, source)
        around = [0 <= here - x.ctypes.data <= x.nbytes - size for x in self.pinned]
        assert sum(around) == 1
        assert not any(0 <= there - x.ctypes.data < x.nbytes for x in self.pinned)
        self.streams[stream].push(lambda: ctypes.memmove(to, source, size))

    def send(self, to, there, source, here, size, stream):
        assert here != there
        self.streams[stream].push(lambda: ctypes.memmove(to, source, size))

    def empty(self, *shape_and_dtype):
        return np.empty(*shape_and_dtype).view(There)

    def __getattr__(self, name):
        return getattr(np, name)


class Engine:
    """The CPU engine, whose arrays are on a device."""

    def __init__(self, cupy, engine):
        self.xp, self._engine = cupy, engine

    def __getattr__(self, name):
        return getattr(self._engine, name)
