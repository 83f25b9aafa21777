"""The GPU engine: the verbs of :class:`semiring_mm.engine.Engine` on device arrays.

They launch kernels that are compiled for the semiring, on the current device and stream.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import chain as chains
from . import device, select, trees
from .closure import BASE, LEAF, closure_batch, closure_block
from .combine import apply, unit_rows
from .device import fill, scratch
from .facts import facts, facts_beside
from .gf2 import PANEL, ROWS, reduce_bits
from .memory import capturing, copy, free_memory, from_host, mirror, on, symmetric, to_host, wait
from .packing import pack_bits
from .product import product, product_bits
from .select import Screen, Sieve
from .shares import log_shares
from .spanning import best_outside, between, towards
from .sparse import csr_product, dia_product
from .trees import doubtful
from .vector import gemv
from .wavefront import align

if TYPE_CHECKING:
    from .bfs import HopSearches
    from .customize import Customizer
    from .sweeps import FactorSweeps

__all__ = [
    "BASE", "BATCH", "LEAF", "LOOK", "PANEL", "ROWS", "SPARSE", "TILE", "WHERE", "Customizer",
    "FactorSweeps", "HopSearches", "PathQuery", "Screen", "Sieve", "align", "apply", "best_outside",
    "between", "capturing", "chains", "closure_batch", "closure_block", "copy", "count",
    "csr_product", "current", "describe", "dia_product", "doubtful", "eliminate", "elimination",
    "factor", "facts", "facts_beside", "fill", "forest", "free_memory", "from_host", "gemv",
    "log_shares", "mirror", "nearest", "on", "orders", "pack_bits", "product", "product_bits",
    "reduce_bits", "scratch", "searches", "select", "sums", "symmetric", "to_host", "towards",
    "trees", "unit_rows", "wait", "why_not", "xp",
]  # fmt: skip

xp: Any  # of the current device: see __getattr__
WHERE = " on the device"
TILE = 2048
LOOK = 1024  # each look waits for the device
BATCH = LEAF
SPARSE = False
eliminate = None
#: Graph kernels on the host.
elimination = factor = sums = forest = searches = orders = nearest = PathQuery = None


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


#: Families that few calls need, and their modules: loaded on first use.
_HOMES = {"Customizer": ".customize", "FactorSweeps": ".sweeps", "HopSearches": ".bfs"}


def __getattr__(name: str) -> Any:
    if name == "xp":
        return device.current().xp
    if name in _HOMES:
        globals()[name] = getattr(importlib.import_module(_HOMES[name], __package__), name)
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
