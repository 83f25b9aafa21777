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
    own = np.zeros((count, words + more), np.uint64)  # the rows, and which rows were added to each
    own[:, :words].view(np.uint8)[:, :size] = rows
    at = np.arange(count)
    own[:, words:].view(np.uint8)[at, at // 8] = 128 >> at % 8
    bit, free, first = (np.ones(count, np.uint64) for _ in range(3))
    change = np.empty_like(own)
    pivots = np.full(columns, -1, np.int32)
    one = np.uint64(1)
    for j in range(columns):  # column j is bit j ^ 7 of a word
        np.right_shift(own[:, j // 64], np.uint64(j % 64 ^ 7), out=bit)
        np.bitwise_and(bit, one, out=bit)
        np.bitwise_and(bit, free, out=first)
        pivot = int(first.argmax())
        if first[pivot]:
            pivots[j] = pivot
            free[pivot] = bit[pivot] = 0
            np.multiply(bit[:, np.newaxis], own[pivot], out=change)
            np.bitwise_xor(own, change, out=own)
    sums = np.zeros((columns, -(-count // 8)), np.uint8)
    there = np.flatnonzero(pivots >= 0)
    sums[there] = own[:, words:].view(np.uint8)[pivots[there], : sums.shape[1]]
    return sums, pivots
