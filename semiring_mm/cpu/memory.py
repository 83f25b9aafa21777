"""Moving data within the host's memory."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool

__all__ = ["capturing", "copy", "fill", "from_host", "mirror", "on", "symmetric", "to_host", "wait"]

Array = NDArray[Any]


def to_host(x: Array) -> Array:
    """The array itself, which is on the host."""
    return x


def from_host(x: Array) -> Array:
    """The array itself, which is on the host."""
    return x


def mirror(x: Array, tile: int = 64) -> None:
    """Copy what is above the diagonal of a square matrix below it.

    Squares of `tile` on the diagonal are left as they are: a product with ``triangle`` computes
    them whole.
    """
    n = x.shape[0]

    def strip(i: int) -> None:
        for j in range(i + tile, n, tile):
            x[j : j + tile, i : i + tile] = x[i : i + tile, j : j + tile].T

    _each_strip(strip, n, tile)


def symmetric(x: Array, tile: int = 256) -> bool:
    """Whether a square matrix equals its transpose: tile by tile, up to the first that differs."""
    n = x.shape[0]
    differs: list[int] = []

    def strip(i: int) -> None:
        # rows of a copy begin in different cache sets, which columns of a matrix may not do
        room = np.empty((tile, tile + 16), x.dtype)
        for j in range(i, n, tile):
            if differs:
                return
            across, down = x[i : i + tile, j : j + tile], x[j : j + tile, i : i + tile]
            copied = room[: len(down), : down.shape[1]]
            copied[...] = down
            if not np.array_equal(across, copied.T):
                differs.append(i)

    _each_strip(strip, n, tile)
    return not differs


def _each_strip(strip: Callable[[int], None], n: int, tile: int) -> None:
    """Call a function with the first row of each strip of a square, on all threads if it pays."""
    tasks = [functools.partial(strip, i) for i in range(0, n, tile)]
    if n >= 1024:
        pool.run(tasks)
    else:
        for task in tasks:
            task()


_COPIED = 1 << 19  # bytes that pay for one more thread: new memory is slow to write first


def fill(x: Array, byte: int) -> Array:
    """A contiguous array, of which all bytes are set."""
    x.reshape(-1).view(np.uint8)[...] = byte
    return x


def copy(x: Array, to: Array) -> None:
    """Copy an array to another one of its shape and dtype."""
    pieces = min(pool.get_num_threads(), x.nbytes // _COPIED) if x.ndim else 0
    if pieces < 2:
        to[...] = x
        return
    pool.run_parts(lambda i, j: np.copyto(to[i:j], x[i:j]), len(x), pieces)


def on(
    index: int, stream: int | None = None, allocate: Callable[[int], Any] | None = None
) -> contextlib.ExitStack:
    """A context that does nothing: there is one host, and no stream."""
    return contextlib.ExitStack()


def capturing() -> bool:
    """No launches are put off."""
    return False


def wait() -> None:
    """Do nothing: verbs return when they are done."""
