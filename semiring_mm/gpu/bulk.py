"""Products of float32 by Hopper's copy engine (``kernels/bulk.cuh``): when, and of which operands.

The kernel reads A where columns are contiguous, and B where rows are. An operand that lies the
other way is transposed to a copy first, where its size repays that.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any

from ..plan import Plan
from . import device
from .chips import has
from .launch import entry, struct_of
from .source import ProductKernel, Step, algebra, flags, kind_of, word_size
from .tensor import Kind, Operand, in_place, prepare_operand
from .tiles import Launch, Tile, divide

__all__ = ["TILE", "bulk_source", "launch", "operands", "shape"]

Array = Any

#: The tile of C, with steps of k that repay waiting for a stage.
TILE = Tile(128, 256, 32, 8, 16, 8, stages=4)
_FLOATS = Kind("Floats", "float32")
_COPYING = 128  # threads of the warpgroup that copies, beside the ones that multiply
_ALIGNED = 128  # bytes, of a box

# What is gained by kind of product and layout, as a part of the time of the kernel of product.cuh:
# where k is the contiguous direction of A, and of B (measured on an H200 at 4096 and 8192).
_GAINS = {
    "fma": {(False, False): 0.02, (True, False): 0.03, (False, True): 0.04, (True, True): 0.09},
    "sum": {(False, False): 0.04, (True, False): 0.06, (False, True): 0.04, (True, True): 0.06},
}
# Pairs in whose time a word is copied, and in which a copy is launched.
_COPIED, _LAUNCHED = 80, 1e8
_MEMORY = 1 << 30  # bytes of copies, at most
# Steps of k: up to so many, blocks go from tile to tile; so many are needed at least, by kind.
_SHORT, _LEAST = 512, {"fma": 128, "sum": 513}


def operands(
    here: device.Device, plan: Plan, step: Step, a: Array, b: Array, c: Array
) -> tuple[Operand, Operand] | None:
    """A as rows along m and B as rows along n, or None where the kernel of `step` is faster."""
    kind = kind_of(plan, step, arg=False)
    whole = kind == "fma" or a.shape[-1] % TILE.bk == 0
    plain = plan.storage == "float32" and step.name == "General" and kind in _GAINS
    if not (plain and whole and has(here.arch, "HGMMA")) or a.shape[-1] < _LEAST[kind]:
        return None
    lines = (a.swapaxes(-1, -2), TILE.bm), (b, TILE.bn)  # (..., k, m) and (..., k, n)
    found = [in_place("float32", 4, x, TILE.bk) for x, _ in lines]
    one, two = found
    if one is None or two is None:
        return None
    copied = sum(math.prod(x.sizes) for x in (one, two) if not x.rows)
    spent = _COPIED * copied + _LAUNCHED * ((not one.rows) + (not two.rows))
    gained = _GAINS[kind][not one.rows, not two.rows] * c.size * a.shape[-1]
    if 4 * copied > _MEMORY or spent > gained:
        return None
    left, right = (
        replace(prepare_operand(here, _FLOATS, x, TILE.bk), width=width) for x, width in lines
    )
    return left, right


def launch(tiles: int, k: int, sms: int) -> tuple[Launch, int]:
    """How so many tiles of C are divided among blocks, and how many of these go from tile to tile.

    Where k is short, the operands of the next tile are on their way while a tile is stored; else
    each tile has its block, and 0 is returned.
    """
    if k <= _SHORT:
        return Launch(TILE, tiles), min(tiles, sms)
    return divide(TILE, tiles, k, sms)[1], 0


def shape(plan: Plan) -> tuple[int, int]:
    """Threads of a block, and its bytes of shared memory: stages, with barriers behind each."""
    stage = TILE.bk * (TILE.bm + TILE.bn) * word_size(plan) + _ALIGNED
    return TILE.threads + _COPYING, _ALIGNED + TILE.stages * stage


@functools.lru_cache(maxsize=64)
def bulk_source(kernel: ProductKernel) -> str:
    """The text of a product kernel, for the architecture's own instructions."""
    threads, shared = shape(kernel.plan)
    params, bounds = struct_of("BulkParams"), f"{threads}, 1"
    return entry("bulk.cuh", params, "Product::run", bounds, f"""
{algebra(kernel.plan)}
using Step = sr::{kernel.step}<Algebra>;
using Shape = sr::{kernel.tile.struct()};
using Product = sr::BulkProduct<Step, Shape, {flags(kernel.c_wide)}>;
static_assert(Product::BYTES == {shared} && Product::THREADS == {threads}, "as the launch has it");
""")  # fmt: skip
