"""Euclidean distances by products of tensor cores."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ..semirings import semirings
from . import device
from .chips import has
from .product import product
from .source import flags, pack
from .views import address, strides, wide_along

__all__ = ["euclidean", "expand_source"]

Array = Any

_WIDTH, _WORTH = 64, 1 << 33  # coordinates, and pairs of them, from which this is faster
_SAMPLE = 1000  # points whose median is the origin
_DIGITS = 4  # binary ones of the origin, in units of the points' spread
_WARPS = 8  # sr::Expand's


@functools.lru_cache(maxsize=8)
def expand_source(wide: bool, root: bool) -> str:
    """The text of the kernel that makes distances of products."""
    return f"""#include "expand.cuh"
extern "C" __global__ void __launch_bounds__({32 * _WARPS})
kernel(const __grid_constant__ sr::ExpandParams p) {{
  sr::Expand<{flags(wide, root)}>::run(p);
}}
"""


def euclidean(x: Array, y: Array, out: Array, *, root: bool) -> bool:
    """Distances by |x|² + |y|² - 2 x·y: see :meth:`semiring_mm.engine.Engine.euclidean`.

    The points are seen from an origin amid them. A product of float32's accuracy has an error of
    some 2⁻²³ (|x|² + |y|²), so one of 2⁻²⁰ of squares that are an eighth of that sum; smaller
    ones are summed up directly.
    """
    here = device.current()
    (m, n), k, xp = out.shape, x.shape[1], here.xp
    if not (
        out.dtype == np.float32 and k >= _WIDTH and m * n * k >= _WORTH
        and has(here.arch, "HGMMA") and strides(out)[2] == 1
    ):  # fmt: skip
        return False
    x, y = (xp.ascontiguousarray(v) for v in (x, y))
    origin = _origin(xp, y)
    left, right = x - origin, y - origin
    norms = [(v * v).sum(axis=1, dtype=np.float64).astype(np.float32) for v in (left, right)]
    left *= np.float32(-2)
    product(semirings["plus_times"], left, right.T, out, precision="float32_emulated")
    wide = wide_along(out, -1)
    segments = -(-n // (32 * (4 if wide else 1)))
    params = pack((*map(address, (out, *norms, x, y)), strides(out)[1], m, n, segments), (k,))
    blocks = segments * -(-m // _WARPS)
    here.kernel(expand_source(wide, root)).launch(blocks, 32 * _WARPS, 0, params)
    return True


def _origin(xp: Any, points: Array) -> Array:
    """A point amid others, of few digits: whole numbers stay so when they are seen from it."""
    sample = points[:: max(1, len(points) // _SAMPLE)]
    middle = xp.median(sample, axis=0)
    _, exponent = xp.frexp(xp.abs(sample - middle).max())
    unit = xp.ldexp(np.float32(1), exponent - _DIGITS)
    found = xp.rint(middle / unit) * unit
    return xp.where(xp.isfinite(found), found, np.float32(0)).astype(np.float32)
