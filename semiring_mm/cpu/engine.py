"""The CPU engine: the verbs of :class:`semiring_mm.engine.Engine` on NumPy arrays.

They run code that is generated for the semiring and this processor, and compiled by LLVM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine import Engine, lazily
from ..memory import free_memory
from .closure import BASE, closure_batch, closure_block
from .combine import apply, unit_rows
from .facts import facts, facts_later
from .gf2 import PANEL, ROWS, product_bits, reduce_bits
from .memory import capturing, copy, fill, from_host, mirror, on, symmetric, to_host, wait
from .product import pack_bits, product
from .vector import gemv

if TYPE_CHECKING:
    from . import bit_rows, calls, engine, rows, select
    from . import chain as chains
    from .alignment import align, edit_rows
    from .bfs import HopSearches
    from .closure_program import eliminate
    from .codegen import compiled
    from .screen import Screen
    from .spanning import best_outside, between, doubtful, towards
    from .sparse import csr_product, dia_product

    _: Engine = engine

Sieve = None
xp = np
scratch = np.empty
HOST = True
WHERE = ""
TILE = 256
LEAF = BASE
LOOK = 1
BATCH = 0
SPARSE = True
trees = log_shares = FactorSweeps = ReverseSweeps = Customizer = HopDependencies = None

#: What no product takes part in.
__getattr__ = lazily(__package__, {
    "alignment": "align edit_rows", "bfs": "HopSearches", "bit_rows": "bit_rows",
    "calls": "calls", "chain": "chains",
    "closure_program": "eliminate", "codegen": "compiled", "rows": "rows",
    "screen": "Screen", "select": "select", "spanning": "best_outside between doubtful towards",
    "sparse": "csr_product dia_product",
})  # fmt: skip


def why_not() -> str:
    """Nothing is missing."""
    return ""


def current() -> int:
    """The host has no number."""
    return -1


def count() -> int:
    """There is one host."""
    return 1


def describe() -> dict[str, Any]:
    """The processor, as code is generated for it."""
    from .compiler import host_target
    from .tuning import calibration

    target, gains = host_target(), calibration()
    return {
        "name": target.cpu,
        "vector_bits": 8 * target.vector_bytes,
        "registers": target.registers,
        "fused_additions": bool(gains["fma"]),
        "integer_keys": bool(gains["keys"]),
    }
