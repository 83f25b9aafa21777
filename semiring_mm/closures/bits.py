"""Reachability on packed truth values: an elimination by blocks of pivots."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import Call
from ..bits import BitMatrix, eye_bits
from ..engine import Engine
from ..plan import bit_join, unpack_bits
from ..semirings import Semiring, semirings
from .steps import Steps

__all__ = ["closure_bits"]

Array = Any
#: Rows of a block: as many as a tile of k on tensor cores holds.
_BLOCK = 1024


def closure_bits(s: Semiring, a: BitMatrix, device: str | None = None) -> BitMatrix:
    """``I ⊕ A ⊕ A² ⊕ …`` over lor_land."""
    n = a.shape[-1]
    if bit_join(s) != "|":
        raise TypeError(f"closure of a BitMatrix is over lor_land, and not {s.name}")
    with Call(device, a=a.bits) as call:
        c = call["a"] | eye_bits(call.engine, n)
        _close(call.engine, c, n)
        return BitMatrix(call.give(c), n)


def _close(engine: Engine, c: Array, n: int) -> None:
    """C ← C* over lor_land, in place, for packed C (n, bytes) with ones on its diagonal.

    The nodes of a block are closed among themselves, as bytes; then paths go through them
    (Warshall, 1962).
    """
    s, xp = semirings["lor_land"], engine.xp
    steps = Steps(s, np.dtype(bool), None, look=False)
    for k in range(0, n, _BLOCK):
        size = min(_BLOCK, n - k)
        panel = xp.ascontiguousarray(c[:, k // 8 : (k + size + 7) // 8])
        whole = unpack_bits(xp, panel[k : k + size], size)
        steps.close(engine, whole, None)
        block = engine.pack_bits(whole)
        rows = xp.empty((size, c.shape[1]), c.dtype)
        engine.product_bits(s, block, c[k : k + size], rows, n)
        engine.product_bits(s, panel, rows, c, n, True)
