"""Large copies between host and device by pieces in pinned memory, with a driver that is late."""

import ctypes
import threading
import types

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from semiring_mm import pool as team_of
from semiring_mm.gpu import device, memory


class Driver:
    """What the copies use of CuPy: a copy happens when something waits for it."""

    memcpyHostToDevice, memcpyDeviceToHost = 1, 2

    def __init__(self):
        self.begun, self.recorded, self.moved = [], {}, 0
        self.lock = threading.Lock()

    def Event(self, disable_timing):
        event = types.SimpleNamespace(ptr=len(self.recorded), done=False)
        self.recorded[event.ptr] = 0
        event.synchronize = lambda: self.finish(self.recorded[event.ptr])
        return event

    def finish(self, count):
        with self.lock:
            while self.moved < count:
                to, source, size, _ = self.begun[self.moved]
                self.moved += 1
                ctypes.memmove(to, source, size)

    def memcpyAsync(self, to, source, size, kind, stream):
        self.begun.append((to, source, size, kind))

    def eventRecord(self, event, stream):
        self.recorded[event] = len(self.begun)

    def streamWaitEvent(self, stream, event):
        assert event in self.recorded

    def setDevice(self, index):
        assert index == 0


@pytest.fixture
def driver(monkeypatch):
    found = Driver()
    cuda = types.SimpleNamespace(
        runtime=found, Event=found.Event, alloc_pinned_memory=bytearray,
        get_current_stream=lambda: types.SimpleNamespace(ptr=7),
    )  # fmt: skip

    class There(np.ndarray):
        get = data = property(lambda x: types.SimpleNamespace(ptr=x.ctypes.data))

    xp = types.SimpleNamespace(
        cuda=cuda, array=lambda x: np.array(x).view(There),
        empty=lambda *x: np.full(x[0], 7, x[1]).view(There),
    )  # fmt: skip
    here = types.SimpleNamespace(xp=xp, index=0, capturing=lambda: False)
    monkeypatch.setattr(device, "current", lambda: here)
    monkeypatch.setitem(__import__("sys").modules, "cupy", types.SimpleNamespace(cuda=cuda))
    memory._ring.cache_clear()
    yield found
    memory._ring.cache_clear()


@pytest.mark.parametrize("team", [1, 2, 5])
def test_copies_in_pieces(driver, monkeypatch, team):
    monkeypatch.setattr(memory, "_PIECE", 1000)
    monkeypatch.setattr(memory, "_LEAST", 0)
    monkeypatch.setattr(team_of, "get_num_threads", lambda: team)
    rng = np.random.default_rng(team)
    for size in (1, 999, 1000, 1001, 5000, 23_456):
        x = rng.integers(0, 255, size).astype("u1")
        there = memory.from_host(x)
        driver.finish(len(driver.begun))
        assert_array_equal(there, x)
        assert driver.begun
        count = len(driver.begun)
        back = memory.to_host(there)
        assert len(driver.begun) - count >= -(-size // 1000)
        assert_array_equal(back, x)


def test_a_copy_beside_another_takes_the_plain_way(driver, monkeypatch):
    monkeypatch.setattr(memory, "_LEAST", 0)
    x = np.arange(5000)
    with memory._ring_for(x) as ring:
        assert ring is not None
        assert_array_equal(memory.from_host(x), x)
        assert not driver.begun
    for other in (x[::2], x.reshape(100, 50).T):
        with memory._ring_for(other) as ring:
            assert ring is None
    assert_array_equal(memory.from_host(x).size, x.size)
    assert driver.begun
