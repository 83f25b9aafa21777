"""Elimination over GF(2) of a narrow matrix, in one block of the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import device
from .source import pack
from .views import address

__all__ = ["PANEL", "ROWS", "reduce_bits"]

Array = Any

#: Columns and rows of the largest matrix.
PANEL, ROWS = 512, 576
_SHARED = 2 * 4 * (PANEL // 32 + ROWS // 32 + ROWS // 32)

_SOURCE = f"""#include "gf2.cuh"
extern "C" __global__ void __launch_bounds__({ROWS})
kernel(const __grid_constant__ sr::ReduceParams p) {{
  sr::ReduceBits<{PANEL // 32}, {ROWS}>::run(p);
}}
"""


def reduce_bits(rows: Array, columns: int) -> tuple[Array, np.ndarray[Any, np.dtype[np.int32]]]:
    """Reduce packed rows; see :meth:`semiring_mm.engine.Engine.reduce_bits`."""
    here = device.current()
    xp = here.xp
    padded = xp.zeros((len(rows), PANEL // 8), np.uint8)
    padded[:, : rows.shape[1]] = rows
    sums = xp.zeros((columns, ROWS // 8), np.uint8)
    pivots = xp.full(columns, -1, np.int32)
    params = pack((address(padded), address(sums), address(pivots), PANEL // 32),
                  (len(rows), columns))  # fmt: skip
    here.kernel(_SOURCE).launch(1, ROWS, _SHARED, params)
    return sums[:, : -(-len(rows) // 8)], pivots.get() if hasattr(pivots, "get") else pivots
