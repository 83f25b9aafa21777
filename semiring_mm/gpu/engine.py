"""The GPU engine: the verbs of :class:`semiring_mm.engine.Engine` on device arrays.

They launch kernels that are compiled for the semiring, on the current device and stream.
"""

from __future__ import annotations

from typing import Any

from . import device, select
from .closure import BASE, closure_batch, closure_block
from .combine import apply, combine
from .facts import facts
from .memory import free_memory, from_host, mirror, on, symmetric, to_host, wait
from .product import product
from .select import Screen
from .spanning import best_outside, between, towards
from .sparse import csr_product, dia_product
from .vector import gemv

__all__ = [
    "BASE", "BATCH", "LOOK", "SPARSE", "TILE", "WHERE", "Screen", "apply", "best_outside",
    "between", "chains", "closure_batch", "closure_block", "combine", "csr_product", "dia_product",
    "facts", "free_memory", "from_host", "gemv", "mirror", "on", "product", "select", "symmetric",
    "to_host", "towards", "wait", "xp",
]  # fmt: skip

xp: Any  # of the current device: see __getattr__
WHERE = " on the device"
TILE = 2048
LOOK = 1024  # each look waits for the device
BATCH = 240
SPARSE = False
chains = None  # no kernel carries rows through a chain yet


def __getattr__(name: str) -> Any:
    if name == "xp":
        return device.current().xp
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
