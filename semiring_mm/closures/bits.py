"""Reachability on packed truth values: an elimination by blocks of pivots."""

from __future__ import annotations

from typing import Any

from ..engine import Engine
from ..semirings import semirings

__all__ = ["close_bits"]

Array = Any
#: Rows of a block: as many as a tile of k on tensor cores holds.
_BLOCK = 1024


def close_bits(engine: Engine, c: Array, n: int) -> None:
    """C ← C* over lor_land, in place, for packed C (n, bytes) with ones on its diagonal.

    The nodes of a block are closed among themselves by squaring; then paths go through them
    (Warshall, 1962).
    """
    s, xp = semirings["lor_land"], engine.xp
    for k in range(0, n, _BLOCK):
        size = min(_BLOCK, n - k)
        panel = xp.ascontiguousarray(c[:, k // 8 : (k + size + 7) // 8])
        block, steps = xp.ascontiguousarray(panel[k : k + size]), 1
        while steps < size - 1:  # paths of so many edges inside of the block
            longer = xp.empty_like(block)
            engine.product_bits(s, block, block, longer, size)
            block, steps = longer, 2 * steps
        rows = xp.empty((size, c.shape[1]), c.dtype)
        engine.product_bits(s, block, c[k : k + size], rows, n)
        engine.product_bits(s, panel, rows, c, n, True)
