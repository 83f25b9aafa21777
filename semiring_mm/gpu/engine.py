"""The GPU engine: the verbs of :class:`semiring_mm.engine.Engine` on device arrays.

They launch kernels that are compiled for the semiring, on the current device and stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..engine import Engine, lazily
from . import device

if TYPE_CHECKING:
    from . import bit_rows, calls, engine, select, trees
    from . import chain as chains
    from .bfs import HopSearches
    from .closure import BASE, BATCH, LEAF, closure_batch, closure_block
    from .combine import apply, unit_rows
    from .customize import Customizer
    from .dependencies import HopDependencies
    from .device import fill, scratch
    from .facts import facts, facts_later
    from .gf2 import PANEL, ROWS, reduce_bits
    from .gradient import ReverseSweeps
    from .memory import (
        capturing,
        copy,
        free_memory,
        from_host,
        mirror,
        on,
        symmetric,
        to_host,
        wait,
    )
    from .packing import pack_bits
    from .product import product, product_bits
    from .select import Screen, Sieve
    from .shares import log_shares
    from .spanning import best_outside, between, towards
    from .sparse import csr_product, dia_product
    from .sweeps import FactorSweeps
    from .trees import doubtful
    from .vector import gemv
    from .wavefront import align

    xp: Any

    _: Engine = engine

HOST = False
WHERE = " on the device"
TILE = 2048
LOOK = 1024  # each look waits for the device
SPARSE = False
edit_rows = eliminate = None
#: Graph kernels on the host.
compiled = rows = None

_member = lazily(__package__, {
    "bfs": "HopSearches", "bit_rows": "bit_rows", "customize": "Customizer",
    "dependencies": "HopDependencies",
    "sweeps": "FactorSweeps", "gradient": "ReverseSweeps",
    "calls": "calls", "chain": "chains", "closure": "BASE BATCH LEAF closure_batch closure_block",
    "combine": "apply unit_rows", "device": "fill scratch", "facts": "facts facts_later",
    "gf2": "PANEL ROWS reduce_bits",
    "memory": "capturing copy free_memory from_host mirror on symmetric to_host wait",
    "packing": "pack_bits", "product": "product product_bits", "select": "Screen Sieve select",
    "shares": "log_shares", "spanning": "best_outside between towards",
    "sparse": "csr_product dia_product", "trees": "doubtful trees", "vector": "gemv",
    "wavefront": "align",
})  # fmt: skip


def __getattr__(name: str) -> Any:
    return device.current().xp if name == "xp" else _member(name)


def why_not() -> str:
    """Empty where there is a device; else what is missing and how to get it."""
    return device.why_not()


def current() -> int:
    """The number of the current device."""
    return device.current().index


def count() -> int:
    """How many CUDA devices there are."""
    import cupy

    return int(cupy.cuda.runtime.getDeviceCount())


def describe() -> dict[str, Any]:
    """The devices, and the versions of what drives them."""
    import cupy

    runtime, devices = cupy.cuda.runtime, []
    for index in range(count()):
        with cupy.cuda.Device(index):
            free, total = runtime.memGetInfo()
        here = device.Device(index)
        devices.append(
            {
                "name": here.name, "arch": here.arch, "multiprocessors": here.sms,
                "memory": total, "free": free,
            }
        )  # fmt: skip
    driver, version = (
        f"{number // 1000}.{number % 1000 // 10}"
        for number in (runtime.driverGetVersion(), runtime.runtimeGetVersion())
    )
    return {"devices": devices, "driver": driver, "runtime": version, "cupy": cupy.__version__}
