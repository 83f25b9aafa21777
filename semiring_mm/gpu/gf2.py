"""Elimination over GF(2) of a narrow matrix, in one block of the device."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import device
from .launch import entry, launch, struct_of
from .views import address, aligned, strides, to_host

__all__ = ["PANEL", "ROWS", "reduce_bits"]

Array = Any

#: Columns and rows of the largest matrix, and of a small one.
PANEL, ROWS = 512, 576
_SIZES = ((64, 96), (PANEL, ROWS))


def reduce_bits(rows: Array, columns: int) -> tuple[Array, NDArray[np.int32]]:
    """Reduce packed rows; see :meth:`semiring_mm.engine.Engine.reduce_bits`."""
    xp, count = device.current().xp, len(rows)
    width, threads = next(x for x in _SIZES if columns <= x[0] and count <= x[1])
    words = -(-columns // 32)  # that are read of a row
    if rows.shape[1] < 4 * words or not aligned(address(rows), 1, strides(rows)[1:2], 4):
        padded = xp.zeros((count, 4 * words), np.uint8)
        padded[:, : rows.shape[1]] = rows
        rows = padded
    sums, pivots = xp.empty((columns, threads // 8), np.uint8), xp.empty(columns, np.int32)
    params = struct_of("ReduceParams")
    launch(
        entry("gf2.cuh", params, f"sr::ReduceBits<{width // 32}, {threads}>::run", threads),
        params, 1, threads, 2 * 4 * (width + 2 * threads) // 32, {"from": sums}, rows=rows,
        pivots=pivots, pitch=strides(rows)[1] // 4, row_count=count, columns=columns,
    )  # fmt: skip
    found: NDArray[np.int32] = to_host(pivots)
    return sums[:, : -(-count // 8)], found
