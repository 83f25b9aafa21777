"""Functions of the entries of matrices."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..expressions import Expr, evaluate
from . import threads

__all__ = ["apply", "combine"]

Array = NDArray[Any]

_STRIP = 64 << 10  # bytes of each matrix that stay in the second-level cache


def combine(sums: Sequence[tuple[int, int, int, int]], arrays: Sequence[Array]) -> None:
    """Sums of matrices, entry by entry, one after the other.

    Parameters
    ----------
    sums : sequence of (to, left, sign, right)
        ``arrays[to] ← arrays[left] + sign · arrays[right]``, with sign 1 or -1. Where `to` is the
        number of arrays, it is a temporary value that later sums may read and replace.
    arrays : sequence of ndarray (m, n)
        Floating point, any strides. Two may be the same matrix.
    """
    if abs(arrays[0].strides[0]) < abs(arrays[0].strides[1]):
        arrays = [x.T for x in arrays]
    m, n = arrays[0].shape
    step = max(1, _STRIP // (n * arrays[0].itemsize or 1))
    threads.run(
        [
            functools.partial(_strip, sums, [x[i : i + step] for x in arrays])
            for i in range(0, m, step)
        ]
    )


def apply(expr: Expr, x: Array, other: Array | float) -> None:
    """x ← expr(x, other): see :meth:`semiring_mm.engine.Engine.apply`."""
    with np.errstate(all="ignore"):
        x[...] = evaluate(expr, x, other)


def _strip(sums: Sequence[tuple[int, int, int, int]], strips: list[Array]) -> None:
    if any(to == len(strips) for to, *_ in sums):
        strips = [*strips, np.empty(strips[0].shape, strips[0].dtype)]
    with np.errstate(all="ignore"):
        for to, left, sign, right in sums:
            (np.add if sign > 0 else np.subtract)(strips[left], strips[right], out=strips[to])
