"""Rows of labels for many sources, as sweeps over a factor leave them, written as a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..layouts import LayoutError
from ..plan import Plan
from .codegen import compiled
from .compiler import host_target
from .kernels import rows as kernels

__all__ = ["lanes", "turned_bytes", "vectors", "write"]

Array = NDArray[Any]


def lanes(itemsize: int) -> int:
    """Labels of a vector."""
    return host_target().vector_bytes // itemsize


def vectors() -> int:
    """Vectors of labels that stay in registers."""
    return 8 if host_target().registers >= 32 else 4


def turned_bytes(width: int, itemsize: int) -> int:
    """Scratch memory for :func:`write`."""
    return width * _pitch(max(itemsize, np.dtype(np.int32).itemsize))


def _pitch(itemsize: int) -> int:
    """Bytes between rows of scratch memory, which do not fall upon each other in the cache."""
    return kernels.COLUMNS * itemsize + kernels.LINE


def write(
    plan: Plan | None, label: Array, where: NDArray[np.int64], lines: NDArray[np.int64], out: Array,
    turned: NDArray[np.uint8],
) -> None:  # fmt: skip
    """``out[lines[i], j]`` ← ``label[where[j], i]``, stored as a plan says; None: as it is."""
    width, size = label.shape[1], label.itemsize
    if len(turned) < turned_bytes(width, size):
        raise LayoutError(f"turned has {len(turned)} bytes, less than turned_bytes")
    count, line = min(lanes(size), width), host_target().vector_bytes
    base, odd = divmod(out.ctypes.data % kernels.LINE, out.itemsize)
    compiled(kernels.write, "i4" if plan is None else plan)(
        n=len(where), width=width, count=count, per=line // out.itemsize,
        vectors=max(1, size // out.itemsize), base=-1 if odd else base,
        pitch=out.strides[0] // out.itemsize, where=where, lines=lines, label=label, rows=out,
        turned=turned[: width * _pitch(size)].view(label.dtype).reshape(width, -1),
    )  # fmt: skip
