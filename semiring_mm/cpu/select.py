"""The k least of each row of a matrix that comes tile by tile, compiled.

Of each row there is a heap with the worst of its k best at the root. A vector of new values is
compared with it at once; on random data few pass. The order is that of (value, index), NaN last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from .codegen import compiled
from .compiler import host_target
from .kernels import select as kernels

__all__ = ["FEW", "MOST", "NOTHING", "empty", "finish", "put", "room_of", "run"]

NOTHING = (1 << 63) - 1  #: the index of an entry that has none
_TOGETHER = 4  # vectors that are tested at once
MOST = NOTHING  #: the largest heap
FEW = 96  # rows that threads share by their columns
_ROWS = 288  # of a tile
_TILE = 3 << 19  # bytes of a tile in float32


def empty(rows: int, k: int, dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Heaps that every value improves."""
    worst = np.nan if dtype.kind == "f" else np.iinfo(dtype).max
    return np.full((rows, k), worst, dtype), np.full((rows, k), NOTHING)


def put(value: NDArray[Any], index: NDArray[np.int64], tile: NDArray[Any], base: int) -> None:
    """Put the values of a tile (rows, columns) into the heaps (rows, k) of its rows.

    Column j has index ``base + j``. Its rows are contiguous.
    """
    lanes = host_target().vector_bytes // value.itemsize
    compiled(kernels.put, value.dtype.str[1:])(
        many=min(_TOGETHER, 64 // lanes), real=value.dtype.kind == "f", rows=value.shape[0],
        columns=tile.shape[1], k=value.shape[1], base=base, value=value, index=index, tile=tile,
    )  # fmt: skip
    pool.look()


def room_of(m: int, n: int, k: int, dtype: np.dtype[Any]) -> tuple[int, int]:
    """Rows and columns of the tiles of an m × n matrix: they stay in a cache, one for a thread."""
    rows = min(_ROWS, -(-m // pool.get_num_threads())) or 1
    if m <= FEW:
        rows = m or 1
    return rows, max(1, min(n, _TILE // (rows * dtype.itemsize)))


def run(tasks: Sequence[Callable[[], None]]) -> None:
    """Call functions, on all threads."""
    pool.run(tasks)


def finish(value: NDArray[Any], index: NDArray[np.int64]) -> None:
    """Sort each heap, best first."""
    rows, k = value.shape
    compiled(kernels.sort, value.dtype.str[1:])(rows=rows, k=k, value=value, index=index)
