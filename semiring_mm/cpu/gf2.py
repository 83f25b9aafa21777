"""Elimination over GF(2) of a narrow matrix, in NumPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["PANEL", "ROWS", "reduce_bits"]

#: Columns and rows of the largest matrix.
PANEL, ROWS = 256, 320


def reduce_bits(
    rows: NDArray[np.uint8], columns: int
) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Reduce packed rows; see :meth:`semiring_mm.engine.Engine.reduce_bits`."""
    count, size = rows.shape
    words, more = -(-size // 8), -(-count // 64)
    own = np.zeros((count, words + more), np.uint64)  # the rows, and those that were added to each
    own[:, :words].view(np.uint8)[:, :size] = rows
    at = np.arange(count)
    own[:, words:].view(np.uint8)[at, at // 8] = 128 >> at % 8
    free = np.ones(count, bool)
    pivots = np.full(columns, -1, np.int32)
    bytes_of = own.view(np.uint8)
    for j in range(columns):
        mine = np.flatnonzero(bytes_of[:, j // 8] & (128 >> j % 8))
        candidates = mine[free[mine]]
        if len(candidates):
            pivot = pivots[j] = candidates[0]
            free[pivot] = False
            own[mine[mine != pivot]] ^= own[pivot]
    sums = np.zeros((columns, -(-count // 8)), np.uint8)
    there = np.flatnonzero(pivots >= 0)
    sums[there] = own[:, words:].view(np.uint8)[pivots[there], : sums.shape[1]]
    return sums, pivots
