"""Sums and differences of matrices on the device, in one pass over memory."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from . import device
from .source import STORAGE, pack
from .views import address, aligned, strides

__all__ = ["combine", "combine_source"]

Array = Any

_THREADS = 256  # sr::Combine's


@functools.cache
def combine_source(storage: str, signs: tuple[tuple[int, ...], ...], wide: bool) -> str:
    """The text of the kernel; `wide`: 16 bytes can be read and written at once along the rows."""
    shape = f"{len(signs[0])}, {len(signs)}"
    sums = "\n".join(f"    y[{i}] = {_sum(row)};" for i, row in enumerate(signs))
    return f"""#include "combine.cuh"
using T = {STORAGE[storage]};
struct Sums {{
  SR_FN static void of(const T* x, T* y) {{
{sums}
  }}
}};
extern "C" __global__ void __launch_bounds__({_THREADS})
kernel(const __grid_constant__ sr::CombineParams<{shape}> p) {{
  sr::Combine<T, Sums, {shape}, {"true" if wide else "false"}>::run(p);
}}
"""


def _sum(row: tuple[int, ...]) -> str:
    terms = (f"{'+' if sign > 0 else '-'} x[{j}]" for j, sign in enumerate(row) if sign)
    return " ".join(terms).removeprefix("+ ")


def combine(signs: tuple[tuple[int, ...], ...], x: Sequence[Array], out: Sequence[Array]) -> None:
    """``out[i] ← Σ_j signs[i][j] · x[j]``: see :func:`semiring_mm.cpu.combine.combine`."""
    if abs(out[0].strides[0]) < abs(out[0].strides[1]):
        x, out = [v.T for v in x], [v.T for v in out]
    (m, n), size = out[0].shape, out[0].itemsize
    if not m * n:
        return
    here = device.current()
    every = [*x, *out]
    places, steps = [address(v) for v in every], [strides(v)[1:] for v in every]
    chunk = 16 // size
    wide = n % chunk == 0 and all(
        column == 1 and aligned(place, size, (row,), chunk)
        for place, (row, column) in zip(places, steps, strict=True)
    )
    chunks = n // chunk if wide else n
    lanes = min(_THREADS, 1 << (chunks - 1).bit_length())
    segments = -(-chunks // lanes)
    rows, columns = zip(*steps, strict=True)
    params = pack((*places, *rows, *columns, m, n, segments), (lanes,))
    blocks = segments * -(-m // (_THREADS // lanes))
    here.kernel(combine_source(out[0].dtype.name, signs, wide)).launch(blocks, _THREADS, 0, params)
