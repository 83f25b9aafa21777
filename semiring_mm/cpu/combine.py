"""Sums and differences of matrices, in one pass over memory."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import threads

__all__ = ["combine"]

Array = NDArray[Any]

_STRIP = 64 << 10  # bytes of each matrix that stay in the second-level cache


def combine(signs: Sequence[Sequence[int]], x: Sequence[Array], out: Sequence[Array]) -> None:
    """``out[i] ← Σ_j signs[i][j] · x[j]``, entry by entry; an output may be one of the inputs.

    Parameters
    ----------
    signs : sequence of sequences of {-1, 0, 1}
        One for each output, with two terms at least, of which the first has sign 1. They are added
        from left to right.
    x, out : sequences of ndarray (m, n)
        Floating point, any strides.
    """
    if abs(out[0].strides[0]) < abs(out[0].strides[1]):
        x, out = [v.T for v in x], [v.T for v in out]
    m, n = out[0].shape
    step = max(1, _STRIP // (n * out[0].itemsize or 1))
    tasks = [
        functools.partial(
            _strip, signs, [v[i : i + step] for v in x], [v[i : i + step] for v in out]
        )
        for i in range(0, m, step)
    ]
    threads.run(tasks)


def _strip(signs: Sequence[Sequence[int]], x: list[Array], out: list[Array]) -> None:
    sums = []
    with np.errstate(all="ignore"):
        for row in signs:
            first, second, *rest = ((sign, v) for sign, v in zip(row, x, strict=True) if sign)
            plain = len(signs) == 1 and not rest  # each entry is read just before it is written
            value = _add(first[1], *second, out[0] if plain else None)
            for sign, v in rest:
                _add(value, sign, v, value)
            sums.append(value)
        for target, value in zip(out, sums, strict=True):
            if value is not target:
                target[...] = value


def _add(x: Array, sign: int, y: Array, out: Array | None) -> Array:
    result: Array = (np.add if sign > 0 else np.subtract)(x, y, out=out)
    return result
