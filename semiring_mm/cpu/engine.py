"""The CPU engine: the verbs of :class:`semiring_mm.engine.Engine` on NumPy arrays.

They run code that is generated for the semiring and this processor, and compiled by LLVM.
"""

from __future__ import annotations

import numpy as np

from . import chain as chains
from . import select
from .closure import BASE, closure_batch, closure_block
from .combine import apply, combine
from .facts import facts
from .memory import free_memory, from_host, mirror, on, symmetric, to_host, wait
from .product import product
from .screen import Screen
from .spanning import best_outside, between, towards
from .sparse import csr_product, dia_product
from .vector import gemv

__all__ = [
    "BASE", "BATCH", "LOOK", "SPARSE", "TILE", "WHERE", "Screen", "apply", "best_outside",
    "between", "chains", "closure_batch", "closure_block", "combine", "csr_product", "dia_product",
    "facts", "free_memory", "from_host", "gemv", "mirror", "on", "product", "select", "symmetric",
    "to_host", "towards", "wait", "xp",
]  # fmt: skip

xp = np
WHERE = ""
TILE = 256
LOOK = 1
BATCH = 0
SPARSE = True
