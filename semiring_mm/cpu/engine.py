"""The CPU engine: the verbs of :class:`semiring_mm.engine.Engine` on NumPy arrays.

They run code that is generated for the semiring and this processor, and compiled by LLVM.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from ..memory import free_memory
from .closure import BASE, closure_batch, closure_block, doubtful
from .combine import apply, unit_rows
from .facts import facts, facts_beside
from .gf2 import PANEL, ROWS, reduce_bits
from .memory import capturing, copy, fill, from_host, mirror, on, symmetric, to_host, wait
from .product import pack_bits, product, product_bits
from .vector import gemv

if TYPE_CHECKING:
    from . import chain as chains
    from . import dijkstra as searches
    from . import elimination, forest, nearest, select
    from . import hierarchy as factor
    from . import search as orders
    from . import statistics as sums
    from .bfs import HopSearches
    from .kleene import eliminate
    from .queries import PathQuery
    from .screen import Screen
    from .spanning import best_outside, between, towards
    from .sparse import csr_product, dia_product
    from .wavefront import align

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

Sieve = None
xp = np
scratch = np.empty
WHERE = ""
TILE = 256
LEAF = BASE
LOOK = 1
BATCH = 0
SPARSE = True
trees = log_shares = FactorSweeps = Customizer = None

#: The verbs that no product takes part in, and their modules: loaded on first use.
_HOMES = {
    "HopSearches": "bfs", "PathQuery": "queries", "elimination": "elimination",
    "factor": "hierarchy", "forest": "forest", "nearest": "nearest", "orders": "search",
    "searches": "dijkstra", "sums": "statistics", "Screen": "screen", "align": "wavefront",
    "best_outside": "spanning", "between": "spanning",
    "chains": "chain", "csr_product": "sparse", "dia_product": "sparse", "eliminate": "kleene",
    "select": "select", "towards": "spanning",
}  # fmt: skip


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
    """The processor, as the code is generated for it."""
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


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f".{_HOMES[name]}", __package__)
    found = getattr(module, name, module)
    globals()[name] = found  # from now on without this function
    return found
