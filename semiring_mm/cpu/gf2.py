"""Packed truth values: their products, and elimination over GF(2) of a narrow matrix."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..plan import words_of_bits
from ..semirings import Semiring
from .codegen import compiled
from .compiler import host_target
from .kernels import gf2 as kernels

__all__ = ["PANEL", "ROWS", "product_bits", "reduce_bits"]

#: Columns and rows of the largest matrix.
PANEL, ROWS = 256, 320

_BLOCK = 2048  # rows of C whose strip stays in a cache
_LEAST, _MOST = 1 << 24, 1 << 37  # pairs that pay for one more thread, and between looks for Ctrl-C


def product_bits(
    semiring: Semiring, a: NDArray[np.uint8], b: NDArray[np.uint8], c: NDArray[np.uint8], n: int,
    accumulate: bool = False,
) -> None:  # fmt: skip
    """C ← A B, or C ⊕ A B, of packed bits; see :meth:`semiring_mm.engine.Engine.product_bits`."""
    either = words_of_bits(semiring).add_kind == "|"
    if not accumulate:
        c[...] = 0
    if c.ndim == 3:
        for each in zip(a, b, c, strict=True):
            product_bits(semiring, *each, n, True)
        return
    (m, depth), (k, width) = a.shape, b.shape

    def part(i: int, j: int) -> None:
        compiled(kernels.multiply, None)(
            either=either, m=j - i, depth=depth, k=k, width=width, a=a[i:j], b=b, c=c[i:j],
            table=np.empty((16 * kernels.TABLES, kernels.STRIP), np.uint8),
        )  # fmt: skip
        pool.look()

    pieces = max(-(-m // _BLOCK), m * k * n // _MOST)
    pool.run_parts(part, m, max(pieces, min(pool.get_num_threads(), m * k * n // _LEAST), 1))


def reduce_bits(
    rows: NDArray[np.uint8], columns: int
) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Reduce packed rows; see :meth:`semiring_mm.engine.Engine.reduce_bits`."""
    count, size = rows.shape
    words, lanes = -(-size // 8), host_target().vector_bytes // 8
    width = -(-(words + -(-count // 64)) // lanes) * lanes
    own = np.zeros((count, width), np.int64)  # the rows, and which rows were added to each
    own[:, :words].view(np.uint8)[:, :size] = rows
    at = np.arange(count)
    own[:, words:].view(np.uint8)[at, at // 8] = 128 >> at % 8
    pivots = np.empty(columns, np.int32)
    compiled(kernels.reduce, None)(
        columns=columns, count=count, width=width, own=own, pivots=pivots,
        free=np.ones(count, np.uint8),
    )  # fmt: skip
    sums = np.zeros((columns, -(-count // 8)), np.uint8)
    there = np.flatnonzero(pivots >= 0)
    sums[there] = own[:, words:].view(np.uint8)[pivots[there], : sums.shape[1]]
    return sums, pivots
