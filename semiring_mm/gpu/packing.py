"""Truth values packed 32 to a word on the device."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from . import device
from .source import pack
from .views import address, aligned, strides, wide_along

__all__ = ["pack_source", "packed_bits"]

Array = Any

_THREADS = 256  # sr::PackBits's


@functools.cache
def pack_source(wide: bool, by_rows: bool) -> str:
    """The text of the kernel that packs; `by_rows` where the rows lie closer than the columns."""
    flags = ", ".join("true" if x else "false" for x in (wide, by_rows))
    return f"""#include "pack.cuh"
extern "C" __global__ void __launch_bounds__({_THREADS})
kernel(const __grid_constant__ sr::PackParams p) {{
  sr::PackBits<{flags}>::run(p);
}}
"""


def packed_bits(b: Array) -> Array:
    """Bool (..., k, n) as uint32 (..., k, ceil(n / 32)): bit ``j % 32`` of word ``j // 32``."""
    here = device.current()
    k, n = b.shape[-2:]
    batch = b.shape[0] if b.ndim == 3 else 1
    words = -(-n // 32)
    out = device.scratch((*b.shape[:-1], words), np.uint32)
    if out.size == 0:
        return out
    steps = strides(b)
    by_rows = abs(steps[1]) < abs(steps[2]) and k > 1
    by_16 = steps[2] == 1 and aligned(address(b), 1, steps[:2], 16)  # a row may end anywhere
    wide = wide_along(b, -2) if by_rows else by_16
    rows = 4 if wide and by_rows else 1  # of a thread
    lanes = min(_THREADS, 1 << (words - 1).bit_length())
    if by_rows:  # a warp along the rows
        lanes = min(lanes, _THREADS // 32)
    segments, groups = -(-words // lanes), -(-k // (_THREADS // lanes * rows))
    params = pack((address(b), address(out), *steps, k, segments, groups), (n, words, lanes))
    kernel = here.kernel(pack_source(wide, by_rows))
    kernel.launch(segments * groups * batch, _THREADS, 0, params, 2)
    return out
