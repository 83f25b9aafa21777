"""Sums and differences of matrices on the device, in one pass over memory."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from . import device
from .source import STORAGE, pack
from .views import address, strides, wide_along

__all__ = ["combine", "combine_source"]

Array = Any

_THREADS = 256  # sr::Combine's


Sums = tuple[tuple[int, int, int, int], ...]


@functools.cache
def combine_source(storage: str, sums: Sums, count: int, wide: bool) -> str:
    """The text of the kernel; `wide`: 16 bytes can be read and written at once along the rows."""
    written: set[int] = set()
    read: set[int] = set()
    lines = []
    for to, left, sign, right in sums:
        read |= {left, right} - written
        lines.append(f"    {_name(to, count)} = {_name(left, count)} {'+' if sign > 0 else '-'} "
                     f"{_name(right, count)};")  # fmt: skip
        written.add(to)
    bits = [sum(1 << i for i in x if i < count) for x in (read, written)]
    text = "\n".join(lines)
    return f"""#include "combine.cuh"
using T = {STORAGE[storage]};
struct Sums {{
  SR_FN static void of(T* v) {{
    [[maybe_unused]] T value;
{text}
  }}
}};
extern "C" __global__ void __launch_bounds__({_THREADS})
kernel(const __grid_constant__ sr::CombineParams<{count}> p) {{
  sr::Combine<T, Sums, {count}, {bits[0]}, {bits[1]}, {"true" if wide else "false"}>::run(p);
}}
"""


def _name(i: int, count: int) -> str:
    return "value" if i == count else f"v[{i}]"


def combine(sums: Sums, arrays: Sequence[Array]) -> None:
    """Sums of matrices, entry by entry: see :func:`semiring_mm.cpu.combine.combine`."""
    if abs(arrays[0].strides[0]) < abs(arrays[0].strides[1]):
        arrays = [x.T for x in arrays]
    (m, n), size, dtype = arrays[0].shape, arrays[0].itemsize, arrays[0].dtype.name
    if not m * n:
        return
    here = device.current()
    chunk = 16 // size
    wide = all(wide_along(x, -1, chunk) for x in arrays)
    chunks = n // chunk if wide else n
    lanes = min(_THREADS, 1 << (chunks - 1).bit_length())
    segments = -(-chunks // lanes)
    rows, columns = zip(*(strides(x)[1:] for x in arrays), strict=True)
    params = pack((*map(address, arrays), *rows, *columns, m, n, segments), (lanes,))
    blocks = segments * -(-m // (_THREADS // lanes))
    source = combine_source(dtype, sums, len(arrays), wide)
    here.kernel(source).launch(blocks, _THREADS, 0, params)
