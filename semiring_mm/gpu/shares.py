"""Gradients of products over log_plus on the device, in one launch for both operands."""

from __future__ import annotations

import functools
from typing import Any

from .launch import entry, launch, struct_of
from .source import STORAGE
from .views import stride_fields

__all__ = ["log_shares", "shares_source"]

Array = Any

_TILE = 32  # sr::Shares's rows and columns
_THREADS = 256
_ROOM = 3 * 32 * 36  # words of shared memory


def log_shares(
    g: Array, a: Array, b: Array, c: Array, left: Array | None, right: Array | None
) -> None:
    """See :meth:`semiring_mm.engine.Engine.log_shares`."""
    sides = [] if left is None else [_side(a, b, c, g, left)]
    if right is not None:
        sides.append(_side(*(x.swapaxes(-1, -2) for x in (b, a, c, g, right))))
    none = bytes(struct_of("SharesSide").size)
    launch(
        shares_source(c.dtype.name), struct_of("SharesParams"), sum(blocks for _, blocks in sides),
        _THREADS, _ROOM * c.itemsize, sides=[*(side for side, _ in sides), none][:2],
    )  # fmt: skip


def _side(x: Array, y: Array, c: Array, g: Array, out: Array) -> tuple[bytes, int]:
    """A ``sr::SharesSide`` and its blocks."""
    (rows, columns), depth = out.shape[-2:], c.shape[-1]
    tiles_m, tiles_n = -(-rows // _TILE), -(-columns // _TILE)
    blocks = tiles_m * tiles_n * (out.shape[0] if out.ndim == 3 else 1)
    fields = {
        "x": x, "y": y, "c": c, "g": g, "out": out, "rows": rows, "columns": columns,
        "depth": depth, "tiles_m": tiles_m, "tiles_n": tiles_n, "blocks": blocks,
    }  # fmt: skip
    axes = {"x": "row column", "y": "column step", "c": "row step", "g": "row step",
            "out": "row column"}  # fmt: skip
    for name, both in axes.items():
        fields |= stride_fields(name, fields[name], both)
    return struct_of("SharesSide").pack(fields), blocks


@functools.cache
def shares_source(storage: str) -> str:
    """The text of the kernel."""
    return entry("shares.cuh", struct_of("SharesParams"), "Shares::run", "Shares::THREADS", f"""
using Shares = sr::Shares<{STORAGE[storage]}>;
static_assert(Shares::BYTES == {_ROOM} * sizeof({STORAGE[storage]}), "as the launch has it");
""")  # fmt: skip
