"""Truth values as bits on the device, eight to a byte in the order of ``numpy.packbits``."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import device
from .launch import entry, struct_of
from .source import flags
from .views import address, aligned, strides, wide_along

__all__ = ["THREADS", "Packing", "pack_bytes", "pack_source", "packed_bits", "transpose_bits"]

Array = Any

#: Threads of a block; and of sr::PackTile the rows and words, and the bytes of shared memory.
THREADS, _ROWS, _WORDS, _SHARED = 256, 128, 8, 128 * 9 * 4


@functools.cache
def pack_source(kernel: str, wide: bool) -> str:
    """The text of ``PackRows``, ``PackAcross`` or ``TransposeBits``."""
    run = f"sr::{kernel}<{flags(wide)}>::run"
    return entry("pack.cuh", struct_of("PackParams"), run, THREADS)


@dataclass(frozen=True)
class Packing:
    """The launch that packs an array, without its two addresses.

    Attributes
    ----------
    pitch : int
        Words of a row of the result.
    bytes : int
        Of the result.
    """

    kernel: device.Kernel
    blocks: int
    shared: int
    fields: dict[str, int]
    pitch: int
    bytes: int

    def launch(self, source: int, to: int) -> None:
        params = struct_of("PackParams")
        packed = params.pack(self.fields, **{"from": source, "to": to})
        self.kernel.launch(self.blocks, THREADS, self.shared, packed, params.pointers)


def pack_bytes(here: device.Device, x: Array, unit: int = 1) -> Packing:
    """Of bool (..., rows, columns); rows of the result are a multiple of `unit` words long."""
    rows, columns = x.shape[-2:]
    batch = x.shape[0] if x.ndim == 3 else 1
    steps = strides(x)
    words = -(-columns // 32)
    if abs(steps[1]) < abs(steps[2]) and columns > 1:
        name, wide = "PackAcross", wide_along(x, -2)
        return _tiles(here, name, wide, batch, rows, columns, steps, unit)
    wide = steps[2] == 1 and aligned(address(x), 1, steps[:2], 16)  # a row may end anywhere
    lanes = min(THREADS, 1 << (words - 1).bit_length()) if wide else 32
    groups = (-(-rows // (THREADS // lanes)), -(-words // lanes))
    pitch = -(-words // unit) * unit
    fields = _fields(steps, pitch, groups, rows, columns) | {"lanes": lanes}
    return Packing(
        here.kernel(pack_source("PackRows", wide)), groups[0] * groups[1] * batch, 0, fields,
        pitch, 4 * batch * rows * pitch,
    )  # fmt: skip


def transpose_bits(here: device.Device, bits: Array, rows: int, unit: int = 1) -> Packing:
    """Of packed bits (..., columns, bytes) as rows of packed columns."""
    columns, size = bits.shape[-2:]
    batch = bits.shape[0] if bits.ndim == 3 else 1
    steps = (strides(bits)[0], 0, strides(bits)[1])
    whole = columns == 1 or abs(steps[2]) >= -(-size // 16) * 16  # reads end with a row
    wide = whole and aligned(address(bits), 1, steps, 16)
    return _tiles(here, "TransposeBits", wide, batch, rows, columns, steps, unit)


def _tiles(
    here: device.Device, name: str, wide: bool, batch: int, rows: int, columns: int,
    steps: tuple[int, int, int], unit: int,
) -> Packing:  # fmt: skip
    words = -(-columns // 32)
    groups, pitch = (-(-rows // _ROWS), -(-words // _WORDS)), -(-words // unit) * unit
    return Packing(
        here.kernel(pack_source(name, wide)), groups[0] * groups[1] * batch, _SHARED,
        _fields(steps, pitch, groups, rows, columns), pitch, 4 * batch * rows * pitch,
    )  # fmt: skip


def _fields(
    steps: tuple[int, int, int], pitch: int, groups: tuple[int, int], rows: int, columns: int
) -> dict[str, int]:
    names = "batch_stride row_stride column_stride pitch row_groups column_groups rows columns"
    return dict(zip(names.split(), (*steps, pitch, *groups, rows, columns), strict=True))


def pack_bits(x: Array) -> Array:
    """Bool (..., m, n) as uint8 (..., m, ceil(n / 8)), whose rows are a multiple of 16 apart."""
    here, n = device.current(), x.shape[-1]
    out = here.xp.empty((*x.shape[:-1], -(-n // 128) * 16), np.uint8)
    if out.size:
        pack_bytes(here, x, 4).launch(address(x), address(out))
    return out[..., : -(-n // 8)]


def packed_bits(b: Array) -> Array:
    """Bool (..., k, n) as uint32 (..., k, words): column 32 w + j is bit ``j ^ 7`` of word w."""
    here = device.current()
    out = device.scratch((*b.shape[:-1], -(-b.shape[-1] // 32)), np.uint32)
    if out.size:
        pack_bytes(here, b).launch(address(b), address(out))
    return out
