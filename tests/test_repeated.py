"""Repeated calls on a device launch what the first one did, with other addresses; on the host."""

import contextlib
import sys

import numpy as np
import pytest
from host_device import HostDevice

import semiring_mm as sm
from semiring_mm import arrays, blas
from semiring_mm.gpu import calls, device, engine
from semiring_mm.gpu import product as products

pytestmark = pytest.mark.usefixtures("gxx")
sums = sys.modules["semiring_mm.einsum"]
INF, NAN = np.inf, np.nan
RNG = np.random.default_rng(3)


class On(np.ndarray):
    """An array on the device."""


class Space:
    """NumPy's functions; arrays that are made are on the device."""

    @staticmethod
    def empty(shape, dtype):
        return on(np.full(shape, 77, dtype))

    def __getattr__(self, name):
        return getattr(np, name)


class Library:
    """What :mod:`semiring_mm.gpu.calls` asks of a library."""

    pooled, captured = True, False

    def __init__(self):
        self.runtime = self
        self.made = 0

    getDevice = staticmethod(lambda: 0)
    stream = staticmethod(lambda index: 0)

    def look(self, x):
        return x.ctypes.data, 0, (x.shape, x.strides, x.dtype)

    def empty(self, call, like):
        c = np.full(call.shape, 77, call.dtype).view(On)
        return c, c.ctypes.data

    def room(self, size, index, captured):
        memory = np.full(size + 256, 255, np.uint8)
        return memory, -(-memory.ctypes.data // 256) * 256

    def memcpyAsync(self, to, source, size, kind, stream):
        assert (kind, stream) == (3, 0)
        calls.ctypes.memmove(to, source, size)


@pytest.fixture
def general(monkeypatch):
    """A list that grows with each call that takes the general way."""
    found, as_semiring = [], blas.as_semiring
    for module in (blas, sums):
        monkeypatch.setattr(module, "as_semiring", lambda x: found.append(x) or as_semiring(x))
    return found


@pytest.fixture(autouse=True)
def host(monkeypatch):
    here = HostDevice()
    here.xp = Space()
    monkeypatch.setattr(device, "current", lambda: here)
    monkeypatch.setattr(arrays, "where", lambda x, name: 0)
    monkeypatch.setattr(arrays, "_library", lambda x, place: "cupy")
    monkeypatch.setattr(arrays, "gpu_engine", lambda: engine)
    monkeypatch.setattr(arrays, "_PLAIN", {type(None)})
    monkeypatch.setattr(engine, "on", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(calls, "_libraries", {On: Library()})
    monkeypatch.setattr(products, "_WORTH_A_SCAN", 30**3)
    calls.forget()
    yield here
    calls.forget()


def on(x):
    """A copy on the device, which begins at a multiple of 256 bytes."""
    memory = np.empty(x.nbytes + 256, np.uint8)
    at = -memory.ctypes.data % 256
    copy = memory[at : at + x.nbytes].view(x.dtype).reshape(x.shape).view(On)
    copy[...] = x
    return copy


def normal(*shape, dtype="f4", scale=1.0):
    return on((scale * RNG.standard_normal(shape)).astype(dtype))


def positive(*shape):
    return on(RNG.random(shape).astype("f4") + 1)


N = 33
CALLS = {
    "plus_times": (lambda a, b, **k: sm.matmul(a, b, **k), (N, 9), (9, 20)),
    "min_plus": (lambda a, b, **k: sm.matmul(a, b, "min_plus", **k), (N, 9), (9, 20)),
    "a scan": (lambda a, b, **k: sm.matmul(a, b, "min_plus", **k), (N, N), (N, N)),
    "k in parts": (lambda a, b, **k: sm.matmul(a, b, "min_plus", **k), (N, 400), (400, N)),
    "a stack": (lambda a, b, **k: sm.matmul(a, b, "max_min", **k), (3, N, 5), (3, 5, 4)),
    "gemm": (
        lambda a, b, c, **k: sm.gemm(2.0, a, b, 0.5, c, trans_a=True, **k), (9, N), (9, 4), (N, 4),
    ),
    "sgemm": (lambda a, b, **k: sm.sgemm(1.0, a, b, **k), (N, 9), (9, 4)),
    "sgemv": (lambda a, b, c, **k: sm.sgemv(1.0, a, b, 2.0, c, **k), (N, 70), (70,), (N,)),
    "sgemv, k in parts": (lambda a, b, **k: sm.sgemv(1.0, a, b, **k), (2, 1 << 18), (1 << 18,)),
    "gemv": (
        lambda a, b, **k: sm.gemv(None, a, b, trans=True, semiring="min_plus", **k), (70, N), (70,),
    ),
    "a sum": (lambda a, **k: sm.einsum("hij->h", a, **k), (N, 7, 2)),
    "sums": (lambda a, **k: sm.einsum("ij->j", a, semiring="max_plus", **k), (N, 7)),
    "einsum": (lambda a, b, **k: sm.einsum("ij,jk->ik", a, b, **k), (N, 7), (7, 5)),
}  # fmt: skip


def made(shapes, maker=normal):
    return [maker(*shape) for shape in shapes]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("maker", [normal, positive])
def test_a_repeated_call(name, maker, general):
    call, *shapes = CALLS[name]
    first = call(*made(shapes, maker))
    for _ in range(3):
        operands = made(shapes, maker)
        wanted = call(*map(np.array, operands))
        seen = len(general)
        got = call(*operands)
        assert len(general) == seen, "the general way was taken"
        assert type(got) is On
        assert got.shape == first.shape
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-3)
