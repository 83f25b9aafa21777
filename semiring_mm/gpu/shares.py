"""Gradients of products over log_plus on the device, in one launch for both operands."""

from __future__ import annotations

import functools
from typing import Any

from . import device
from .source import STORAGE, pack
from .views import address, strides

__all__ = ["log_shares", "shares_source"]

Array = Any

_TILE = 32  # sr::Shares's rows and columns
_THREADS = 256
_ROOM = 3 * 32 * 36  # words of shared memory
_ADDRESSES = 5  # of a side


def log_shares(
    g: Array, a: Array, b: Array, c: Array, left: Array | None, right: Array | None
) -> None:
    """See :meth:`semiring_mm.engine.Engine.log_shares`."""
    here = device.current()
    sides = [] if left is None else [_side(a, b, c, g, left)]
    if right is not None:
        sides.append(_side(*(x.swapaxes(-1, -2) for x in (b, a, c, g, right))))
    params = b"".join(params for params, _ in sides)
    words = len(sides[0][0]) // 8
    here.kernel(shares_source(c.dtype.name)).launch(
        sum(blocks for _, blocks in sides), _THREADS, _ROOM * c.itemsize,
        params + bytes(8 * words * (2 - len(sides))),
        tuple(words * i + j for i in range(len(sides)) for j in range(_ADDRESSES)),
    )  # fmt: skip


def _side(x: Array, y: Array, c: Array, g: Array, out: Array) -> tuple[bytes, int]:
    """A ``sr::SharesSide`` and its blocks."""
    (rows, columns), depth = out.shape[-2:], c.shape[-1]
    tiles_m, tiles_n = -(-rows // _TILE), -(-columns // _TILE)
    blocks = tiles_m * tiles_n * (out.shape[0] if out.ndim == 3 else 1)
    arrays = (x, y, c, g, out)
    steps = [at for batch, row, step in map(strides, arrays) for at in (row, step, batch)]
    sizes = (rows, columns, depth, tiles_m, tiles_n, blocks)
    return pack((*map(address, arrays), *steps), sizes), blocks


@functools.cache
def shares_source(storage: str) -> str:
    """The text of the kernel."""
    return f"""#include "shares.cuh"
using Shares = sr::Shares<{STORAGE[storage]}>;
static_assert(Shares::BYTES == {_ROOM} * sizeof({STORAGE[storage]}), "as the launch has it");
extern "C" __global__ void __launch_bounds__(Shares::THREADS)
kernel(const __grid_constant__ sr::SharesParams p) {{
  Shares::run(p);
}}
"""
