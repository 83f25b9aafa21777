"""Engines for tests: the plain one in the place of the CPU's, and a device, if need be of the host.

A test of the GPU engine runs twice: on a CUDA device if there is one, and on the host, where
:class:`host_device.HostDevice` compiles the kernels with g++ and has arrays of NumPy.
"""

import contextlib

import host_device
import numpy as np
import pytest

from semiring_mm import arrays, engine
from semiring_mm.cpu import engine as cpu
from semiring_mm.gpu import device
from semiring_mm.gpu import engine as gpu

HOST = host_device.HostDevice()


@contextlib.contextmanager
def on_plain():
    """The engine named "cpu" is the plain one, and the verbs of the CPU's are not there."""
    with pytest.MonkeyPatch.context() as patch:
        for verb in (
            "product", "gemv", "csr_product", "dia_product", "closure_block", "best_outside",
            "between", "towards", "symmetric", "pack_bits", "product_bits", "reduce_bits", "align",
            "apply", "calls", "chains", "eliminate", "select", "unit_rows", "Screen",
        ):  # fmt: skip
            patch.setattr(cpu, verb, None)
        usual = engine.registered()["cpu"]
        engine.register("cpu", "plain_engine")
        try:
            yield
        finally:
            engine.register("cpu", usual)


class Marked(np.ndarray):
    """No plain array of NumPy, which would be multiplied on the host at a glance."""


class Host:
    """NumPy's arrays, taken for those of device 0."""

    get = staticmethod(np.asarray)
    kind = np.ndarray

    @staticmethod
    def put(x):
        return np.array(x).view(Marked)


class Cuda:
    """CuPy's arrays."""

    def __init__(self):
        import cupy

        self.put, self.get, self.kind = cupy.asarray, cupy.asnumpy, cupy.ndarray


def on_host(monkeypatch):
    """The current device is the host's."""
    host_device.need_compiler()
    monkeypatch.setattr(device, "current", lambda: HOST)
    monkeypatch.setattr(device, "why_not", lambda: "")
    monkeypatch.setattr(gpu, "on", lambda *_: contextlib.ExitStack())
    monkeypatch.setattr(gpu, "free_memory", cpu.free_memory)


def for_a_device(monkeypatch):
    """NumPy's arrays are taken for a device's."""
    on_host(monkeypatch)
    monkeypatch.setattr(arrays, "where", lambda x, name: 0)
    monkeypatch.setattr(arrays, "_PLAIN", set())
    monkeypatch.setattr(cpu, "product", None)
    monkeypatch.setattr(cpu, "gemv", None)
