"""Pointer, strides and vector width of an array for a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .device import address, look, note_unknown, recording, refuse_capture

__all__ = [
    "address", "aligned", "ascending", "bits_of", "layouts", "placed", "reading", "strides",
    "to_host", "wide_along",
]  # fmt: skip

Array = Any


def strides(x: Array) -> tuple[int, int, int]:
    """Strides in elements of a matrix or a stack: along the stack, the rows, the columns."""
    steps = [s // x.itemsize for s in x.strides]
    return (steps[0] if x.ndim == 3 else 0, steps[-2], steps[-1])


def stride_fields(name: str, x: Array, axes: str = "m n") -> dict[str, int]:
    """The strides of a matrix or a stack, as fields of a struct: a_m, a_n and a_batch."""
    batch, row, column = strides(x)
    m, n = axes.split()
    return {f"{name}_{m}": row, f"{name}_{n}": column, f"{name}_batch": batch}


def placed(name: str, x: Array, axes: str) -> dict[str, int]:
    """The address of an array, and the strides of the first axes, by their names."""
    steps = zip(axes.split(), x.strides, strict=False)
    return {name: address(x), **{f"{name}_{axis}": stride // x.itemsize for axis, stride in steps}}


def layouts(*arrays: Array | None) -> tuple[Any, ...]:
    """What a launch is prepared for of its arrays: shapes, strides, alignments, and which is None.

    Equal ones are equal as keys.
    """
    return tuple(None if x is None else (x.shape, x.strides, address(x) % 32) for x in arrays)


def aligned(place: int, size: int, steps: tuple[int, ...], elements: int) -> bool:
    """Whether so many elements can be read at once at every multiple of these strides."""
    return place % (elements * size) == 0 and all(s % elements == 0 for s in steps)


def wide_along(x: Array, axis: int, elements: int = 4) -> bool:
    """Whether so many elements, of 32 bytes at most, can be read at once along -1 or -2, anywhere.

    They lie side by side, and end where the axis does.
    """
    at = strides(x)
    return (
        at[axis] == 1
        and x.shape[axis] % elements == 0
        and elements * x.itemsize <= 32
        and aligned(address(x), x.itemsize, (at[0], at[-3 - axis]), elements)
    )


def reading(x: Array, k: int, extent: int, across: int = 4) -> tuple[bool, bool]:
    """How the tiles of an operand are read whose axis `k`, -1 or -2, is summed over.

    The other axis stands for `extent` rows or columns of C; along it `across` elements are read at
    once. Returns whether it is read along k, since that is contiguous, and whether four steps of k,
    or so many elements of the other axis, are read at once.
    """
    at, other = strides(x), -3 - k
    by_k = at[k] == 1 and not (at[other] == 1 and extent > 1)
    return by_k, wide_along(x, k) if by_k else wide_along(x, other, across)


def ascending(x: Array) -> tuple[int, list[tuple[int, int]]]:
    """An array as three nested runs (stride in elements, size), shortest stride first.

    For work that does not depend on the order of the entries: the axes are sorted, and joined where
    one continues another; an axis with a negative stride is followed from its other end, and one
    that repeats its entries is looked at once. The address of the first entry comes first.
    """
    first, axes = address(x), []
    for size, stride in zip(x.shape, x.strides, strict=True):
        if stride < 0:
            first += (size - 1) * stride
        if size > 1 and stride:
            axes.append((abs(stride) // x.itemsize, size))
    runs: list[tuple[int, int]] = []
    for stride, size in sorted(axes):
        if runs and stride == runs[-1][0] * runs[-1][1]:
            runs[-1] = (runs[-1][0], runs[-1][1] * size)
        else:
            runs.append((stride, size))
    return first, runs + [(1, 1)] * (3 - len(runs))


def to_host(x: Array) -> NDArray[Any]:
    """A copy on the host; waits for it."""
    refuse_capture()
    if recording() and hasattr(x, "get"):
        if x.flags.c_contiguous:
            return look(x)
        note_unknown()
    copy: NDArray[Any] = x.get() if hasattr(x, "get") else x
    return copy


def bits_of(x: Any, dtype: np.dtype[Any]) -> int:
    """The bytes of a number in a dtype, as an integer of 8 bytes."""
    return int.from_bytes(np.array(x, dtype).tobytes().ljust(8, b"\0"), "little", signed=True)
