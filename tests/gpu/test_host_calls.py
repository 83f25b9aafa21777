"""What a repeated call on a device costs the host, in calls of Python's functions.

Nothing is launched: CuPy and the driver are stand-ins that do nothing, and all of this package runs
as it does before a device. The figures are ceilings, which keep the time of small calls from
growing unseen; a change that needs more of them has to say why.
"""

import contextlib
import ctypes
import functools
import math
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import semiring_mm as sm
from semiring_mm.gpu import calls, device, launch


class Array:
    """An array of CuPy's: NumPy's, which is not one of NumPy's to who asks."""

    memory, used = np.zeros(1 << 30, np.uint8), 0  # which nobody touches

    def __init__(self, shape, dtype=float):
        self.on_host = shape
        if not isinstance(shape, np.ndarray):
            size = np.dtype(dtype).itemsize * math.prod(np.atleast_1d(shape))
            self.on_host = np.ndarray(shape, dtype, self.memory, self.take(size))
        self.data = SimpleNamespace(ptr=self.on_host.ctypes.data, device_id=0)

    @classmethod
    def take(cls, size):
        """Where so many bytes are."""
        if cls.used + size > len(cls.memory):
            cls.used = 0
        at, cls.used = cls.used, cls.used + -(-size // 256) * 256
        return at

    shape, strides, dtype, ndim, size, nbytes, itemsize, flags = (
        property(lambda self, name=name: getattr(self.on_host, name))
        for name in ("shape", "strides", "dtype", "ndim", "size", "nbytes", "itemsize", "flags")
    )

    def __len__(self):
        return len(self.on_host)

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self):
        raise AssertionError("an array of CuPy's needs no conversion")

    def __getitem__(self, index):
        return Array(self.on_host[index])

    def get(self, stream=None, out=None, blocking=True):
        return np.zeros(self.shape, self.dtype) if out is None else out


class Cupy(ModuleType):
    """CuPy, whose calls are counted by their names where they wait for the device."""

    ndarray, empty = Array, Array

    def __init__(self):
        super().__init__("cupy")
        self.waits = []
        event = SimpleNamespace(ptr=3, synchronize=lambda: self.waits.append("event"))
        stream = SimpleNamespace(ptr=7)
        properties = {
            "name": b"none", "major": 9, "minor": 0, "multiProcessorCount": 132,
            "sharedMemPerBlockOptin": 232448,
        }  # fmt: skip
        runtime = SimpleNamespace(
            getDevice=lambda: 0, getDeviceCount=lambda: 1, streamIsCapturing=lambda stream: False,
            getDeviceProperties=lambda index: properties, driverGetVersion=lambda: 13000,
            memGetInfo=lambda: (1 << 36, 1 << 37), eventRecord=lambda event, stream: None,
            memsetAsync=lambda *_: None,
            memcpyAsync=lambda to, source, size, kind, stream: ctypes.memset(to, 0, size),
        )  # fmt: skip
        code = SimpleNamespace(ptr=1)
        module = SimpleNamespace(load=lambda cubin: None, get_function=lambda name: code)
        self.launched = []
        driver = SimpleNamespace(
            launchKernel=lambda *given: self.launched.append(given),
            funcSetAttribute=lambda *given: None,
        )
        self.cuda = SimpleNamespace(
            runtime=runtime, driver=driver, function=SimpleNamespace(Module=lambda: module),
            get_current_stream=lambda: stream, alloc=self.take, malloc_async=self.take,
            Device=Context,
            alloc_pinned_memory=self.pinned, Event=lambda disable_timing: event,
        )  # fmt: skip

    def zeros(self, shape, dtype=float):
        return Array(shape, dtype)

    @staticmethod
    def take(size):
        return Array(size, np.uint8).data

    @staticmethod
    def pinned(size):
        """Memory that holds ranges already: weights from 1 to 2."""
        return np.tile([1.0, 2.0, 0.0], -(-size // 24)).view(np.uint8)[:size]


class Context(contextlib.nullcontext):
    """A device that is made the current one."""


@pytest.fixture
def cupy(monkeypatch):
    found = Cupy()
    monkeypatch.setitem(sys.modules, "cupy", found)
    for name in ("cuda", "cuda.driver", "cuda.function", "cuda.runtime"):
        part = found
        for word in name.split("."):
            part = getattr(part, word)
        monkeypatch.setitem(sys.modules, f"cupy.{name}", part)
    monkeypatch.setattr(device, "why_not", lambda: "")
    monkeypatch.setattr(device, "compiled", lambda *_: b"")
    device._device.cache_clear()
    launch.forget()
    yield found
    device._device.cache_clear()
    launch.forget()


def counted(call, *given):
    """Of the second of two calls: how many functions of Python's are called, but the stand-in's."""
    call(*given)
    count = within = 0

    def see(frame, event, _):
        nonlocal count, within
        if event not in ("call", "return"):
            return
        step = 1 if event == "call" else -1
        if within or frame.f_code.co_filename == __file__:
            within += step
        elif step > 0:
            count += 1

    sys.setprofile(see)
    try:
        call(*given)
    finally:
        sys.setprofile(None)
    assert count, "all is the stand-in's"
    return count


@pytest.mark.parametrize("n", [100, 512, 1024, 2048])
def test_all_shortest_paths_of_a_small_matrix(cupy, n):
    w = Array((n, n), np.float32)
    assert counted(sm.apsp, w) <= 75
    del cupy.waits[:], cupy.launched[:]
    sm.apsp(w)
    assert cupy.waits == ["event"]
    assert len(cupy.launched) == 2, "the ranges of the weights, and the closure"


@pytest.mark.parametrize("n", [100, 512, 1024, 2048])
def test_predecessors_of_a_small_matrix(cupy, n):
    w = Array((n, n), np.float32)
    assert counted(functools.partial(sm.apsp, return_predecessors=True), w) <= 75
    del cupy.waits[:], cupy.launched[:]
    sm.apsp(w, return_predecessors=True)
    assert cupy.waits == ["event"]


def test_all_shortest_paths_by_the_general_way(cupy, monkeypatch):
    monkeypatch.setattr(calls, "learn", lambda *_: None)
    w = Array((512, 512), np.float32)
    assert counted(sm.apsp, w) <= 300
    del cupy.waits[:]
    sm.apsp(w)
    assert cupy.waits == ["event"]


def test_a_product(cupy):
    a, b = Array((512, 300), np.float32), Array((300, 200), np.float32)
    assert counted(sm.matmul, a, b, "min_plus") <= 15
    assert not cupy.waits
