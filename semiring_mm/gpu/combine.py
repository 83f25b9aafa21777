"""Functions of the entries of matrices on the device, in one pass over memory."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..expressions import Expr, to_cuda
from . import device
from .source import STORAGE, flags, pack
from .views import address, strides, wide_along

__all__ = ["apply", "combine", "combine_source", "unit_rows"]

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
    return _source(storage, "\n".join(lines), count, bits[0], bits[1], wide)


@functools.cache
def _apply_source(storage: str, expr: Expr, count: int, wide: bool) -> str:
    other = "v[1]" if count == 2 else "T(scalar)"
    text = (
        f"    [[maybe_unused]] const T a = v[0], b = {other};\n    v[0] = T({to_cuda(expr, 'T')});"
    )
    return _source(storage, text, count, (1 << count) - 1, 1, wide)


def _source(storage: str, text: str, count: int, read: int, written: int, wide: bool) -> str:
    return f"""#include "combine.cuh"
using T = {STORAGE[storage]};
struct Sums {{
  SR_FN static void of(T* v, [[maybe_unused]] double scalar) {{
    [[maybe_unused]] T value;
{text}
  }}
}};
extern "C" __global__ void __launch_bounds__({_THREADS})
kernel(const __grid_constant__ sr::CombineParams<{count}> p) {{
  sr::Combine<T, Sums, {count}, {read}, {written}, {flags(wide)}>::run(p);
}}
"""


def _name(i: int, count: int) -> str:
    return "value" if i == count else f"v[{i}]"


def combine(sums: Sums, arrays: Sequence[Array]) -> None:
    """Sums of matrices, entry by entry: see :func:`semiring_mm.cpu.combine.combine`."""
    if abs(arrays[0].strides[0]) < abs(arrays[0].strides[1]):
        arrays = [x.T for x in arrays]
    _launch(functools.partial(combine_source, arrays[0].dtype.name, sums, len(arrays)), arrays)


def apply(expr: Expr, x: Array, other: Array | float) -> None:
    """x ← expr(x, other), entry by entry: see :meth:`semiring_mm.engine.Engine.apply`."""
    arrays = [x] if isinstance(other, float) else [x, other]
    scalar = other if isinstance(other, float) else 0.0
    _launch(functools.partial(_apply_source, x.dtype.name, expr, len(arrays)), arrays, scalar)


def unit_rows(x: Array) -> Array:
    """The rows divided by their norms: see :meth:`semiring_mm.engine.Engine.unit_rows`."""
    xp = device.current().xp
    with np.errstate(all="ignore"):
        _, exponent = xp.frexp(xp.abs(x).max(axis=1))
        rows = xp.ldexp(x, -exponent[:, np.newaxis])  # exactly: squares neither overflow nor vanish
        return rows / xp.sqrt((rows * rows).sum(axis=1))[:, np.newaxis]


def _launch(source_of: Callable[[bool], str], arrays: Sequence[Array], scalar: float = 0.0) -> None:
    (m, n), size = arrays[0].shape, arrays[0].itemsize
    if not m * n:
        return
    here = device.current()
    chunk = 16 // size
    wide = all(wide_along(x, -1, chunk) for x in arrays)
    chunks = n // chunk if wide else n
    lanes = min(_THREADS, 1 << (chunks - 1).bit_length())
    segments = -(-chunks // lanes)
    rows, columns = zip(*(strides(x)[1:] for x in arrays), strict=True)
    bits = struct.unpack("<q", struct.pack("<d", scalar))[0]
    params = pack((*map(address, arrays), *rows, *columns, m, n, segments, bits), (lanes,))
    blocks = segments * -(-m // (_THREADS // lanes))
    here.kernel(source_of(wide)).launch(blocks, _THREADS, 0, params, len(arrays))
