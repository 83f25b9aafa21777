"""Truth values as bits on the device, eight to a byte in the order of ``numpy.packbits``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from . import device
from .launch import Launch, entry, struct_of
from .source import flags
from .views import address, aligned, strides, wide_along

__all__ = ["THREADS", "Packing", "pack_bytes", "packed_bits", "transpose_bits"]

Array = Any

#: Threads of a block; and of sr::PackTile the rows and words, and the bytes of shared memory.
THREADS, _ROWS, _WORDS, _SHARED = 256, 128, 8, 128 * 9 * 4


@dataclass(frozen=True, kw_only=True)
class Packing(Launch):
    """The launch that packs an array, `from` an address `to` another one."""

    pitch: int  # words of a row of the result
    bytes: int  # of the result


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
    return _packing(here, "PackRows", wide, batch, rows, columns, steps, pitch, groups, lanes=lanes)


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
    return _packing(here, name, wide, batch, rows, columns, steps, pitch, groups, shared=_SHARED)


def _packing(
    here: device.Device, name: str, wide: bool, batch: int, rows: int, columns: int,
    steps: tuple[int, int, int], pitch: int, groups: tuple[int, int], *, shared: int = 0,
    lanes: int = 0,
) -> Packing:  # fmt: skip
    """That of ``PackRows``, ``PackAcross`` or ``TransposeBits``."""
    params = struct_of("PackParams")
    source = entry("pack.cuh", params, f"sr::{name}<{flags(wide)}>::run", THREADS)
    names = "batch_stride row_stride column_stride pitch row_groups column_groups rows columns"
    values = *steps, pitch, *groups, rows, columns
    fields = dict(zip(names.split(), values, strict=True)) | {"lanes": lanes}
    return Packing(
        here.kernel(source), groups[0] * groups[1] * batch, THREADS, shared, params, fields,
        pitch=pitch, bytes=4 * batch * rows * pitch,
    )  # fmt: skip


def pack_bits(x: Array) -> Array:
    """Bool (..., m, n) as uint8 (..., m, ceil(n / 8)), whose rows are a multiple of 16 apart."""
    here, n = device.current(), x.shape[-1]
    out = here.xp.empty((*x.shape[:-1], -(-n // 128) * 16), np.uint8)
    if out.size:
        pack_bytes(here, x, 4).send({"from": x, "to": out})
    return out[..., : -(-n // 8)]


def packed_bits(b: Array) -> Array:
    """Bool (..., k, n) as uint32 (..., k, words): column 32 w + j is bit ``j ^ 7`` of word w."""
    here = device.current()
    out = device.scratch((*b.shape[:-1], -(-b.shape[-1] // 32)), np.uint32)
    if out.size:
        pack_bytes(here, b).send({"from": b, "to": out})
    return out
