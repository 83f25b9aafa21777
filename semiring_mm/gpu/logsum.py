"""Products whose ⊕ is logaddexp, on the device.

Where ⊗ is a + b, the product is one over plus-times of exponentials, shifted so that the largest of
each row of A and of each column of B is 1. Sums that are too small to be right are marked on the
device, and the kernel that computes term by term is always launched: its blocks return at once
where nothing is marked. So the host never waits. ``docs/log_plus.md`` has the error bounds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..engine import Scaling
from ..expressions import joins, joins_logarithms
from ..plan import Plan, make_plan, scalar_bits
from ..semirings import Semiring
from . import device
from .launch import entry, launch, struct_of
from .source import algebra, flags, word_size
from .tiles import Tile
from .views import reading, stride_fields

__all__ = ["log_sum_source", "product", "serves", "settle_source", "shift_source", "shifted"]

Array = Any

_LARGE = Tile(32, 32, 32, 4, 2, 8, 5)
_SMALL = Tile(32, 32, 32, 4, 2, 8, 4)
_WORTH = 640**3  # pairs from which shifting takes less time, ...
_SHALLOW, _DEEP = 16, 2048  # ... but for so few steps of k; and steps from which it always does
_MOST = 1 << 30  # bytes of a temporary array


def serves(semiring: Semiring, dtype: np.dtype[Any]) -> bool:
    """Whether a product is computed here: ⊕ is logaddexp, and the entries are floats."""
    return joins_logarithms(semiring.add_expr) and dtype.kind not in "iub"


def product(
    plus_times: Callable[[Array, Array, Array], None],
    semiring: Semiring,
    a: Array,
    b: Array,
    c: Array,
    scaling: Scaling,
) -> None:
    """C ← (α ⊗ (A ⊗ B)) ⊕ (β ⊗ C) for a finite α, by the engine's product over plus_times.

    The device arrays have any strides, a batch stride of 0 included, and one dtype.
    """
    here = device.current()
    plan = make_plan(semiring, a.dtype, None, None, 1, alpha=scaling.alpha, beta=scaling.beta)
    (m, n), k = c.shape[-2:], a.shape[-1]
    batch = c.shape[0] if c.ndim == 3 else 1
    few = -(-m // _LARGE.bm) * -(-n // _LARGE.bn) * batch < 2 * here.sms
    tile = _SMALL if few or word_size(plan) == 8 else _LARGE
    settle = functools.partial(_settle, here, plan, tile, scaling)
    worth = k >= _DEEP or (k >= _SHALLOW and float(m) * n * k * batch >= _WORTH)
    if joins(semiring.mul_expr) != "+" or not worth:
        settle(a, b, c)
        return
    right = shifted(here, plan, b.swapaxes(-1, -2)) if c.ndim == 2 else None
    for left, part_b, part in _parts(a, b, c, word_size(plan)):
        columns, column_ends = right or shifted(here, plan, part_b.swapaxes(-1, -2))
        rows, row_ends = shifted(here, plan, left)
        if part.ndim == 3:
            rows, columns = (
                here.xp.broadcast_to(x, (len(part), *x.shape[-2:])) for x in (rows, columns)
            )
        sums = device.scratch(part.shape, rows.dtype)
        plus_times(rows, columns.swapaxes(-1, -2), sums)
        settle(left, part_b, part, (sums, row_ends, column_ends))


def _parts(a: Array, b: Array, c: Array, size: int) -> Iterator[tuple[Array, Array, Array]]:
    """Rows of C, or matrices of a stack, with temporary arrays of about ``_MOST`` bytes each."""
    (m, n), k = c.shape[-2:], a.shape[-1]
    if c.ndim == 3:
        step = max(1, _MOST // (size * max(m * n, m * k, k * n)))
        for i in range(0, len(c), step):
            part = slice(i, i + step)
            yield a[part], b[part], c[part]
    else:
        step = max(1, _MOST // (size * max(n, k) * 1024)) * 1024
        for i in range(0, m, step):
            yield a[i : i + step], b, c[i : i + step]


def shifted(here: device.Device, plan: Plan, x: Array) -> tuple[Array, Array]:
    """UP exp(x - r) of (batch, rows, k), r the largest entry of a row, and the ends of the rows.

    Returns
    -------
    e : device array of the shape of `x`, or without batch where one matrix is repeated
    ends : device array (2, rows) or (batch, 2, rows)
        r, and the least finite entry less r.
    """
    if x.ndim == 3 and (x.strides[0] == 0 or len(x) == 1):
        x = x[0]
    *batch, rows, depth = x.shape
    dtype = np.dtype(f"f{word_size(plan)}")
    k_unit = abs(x.strides[-1]) <= abs(x.strides[-2])
    e = device.scratch(x.shape if k_unit else (*batch, depth, rows), dtype)
    e = e if k_unit else e.swapaxes(-1, -2)
    ends = device.scratch((*batch, 2, rows), dtype)
    a_block, threads = (4, 512) if k_unit else (32, 1024)
    blocks = -(-rows // a_block) * (batch[0] if batch else 1)
    launch(
        shift_source(plan, k_unit), struct_of("ShiftParams"), blocks, threads,
        2 * threads * dtype.itemsize,
        stride_fields("x", x, "row k") | stride_fields("e", e, "row k"), x=x, e=e,
        ends=ends, rows=rows, depth=depth,
    )  # fmt: skip
    return e, ends


def _settle(
    here: device.Device, plan: Plan, tile: Tile, scaling: Scaling, a: Array, b: Array, c: Array,
    shifted: tuple[Array, Array, Array] | None = None,
) -> None:  # fmt: skip
    """C from the sums of exponentials and the ends of rows and columns, or all term by term."""
    (m, n), k = c.shape[-2:], a.shape[-1]
    tiles_m, tiles_n = -(-m // tile.bm), -(-n // tile.bn)
    blocks = tiles_m * tiles_n * (c.shape[0] if c.ndim == 3 else 1)
    if blocks > 0x7FFFFFFF:
        raise ValueError(
            f"a product of {c.shape[0]} matrices of shape {(m, n)} takes {blocks} blocks, and one "
            f"launch at most 2147483647; multiply parts of the batch"
        )
    sums, rows, columns = shifted or (None, None, None)
    marks = device.scratch(blocks, np.uint32) if shifted else None
    params, ends = struct_of("LogSumParams"), {"rows": rows, "columns": columns}
    given = (
        stride_fields("a", a, "m k") | stride_fields("b", b, "k n") | stride_fields("c", c) | ends
        | {f"{name}_batch": 2 * x.shape[-1] for name, x in ends.items()
           if x is not None and x.ndim == 3}
        | {"a": a, "b": b, "c": c, "sums": sums, "marks": marks, "m": m, "n": n, "k": k,
           "alpha": scalar_bits(plan, scaling.alpha), "beta": scalar_bits(plan, scaling.beta),
           "mode": scaling.mode, "tiles_m": tiles_m, "tiles_n": tiles_n}
    )  # fmt: skip
    if shifted:
        launch(settle_source(plan, tile), params, blocks, tile.threads, 0, given)
    source = log_sum_source(plan, tile, *reading(a, -1, m), *reading(b, -2, n))
    launch(source, params, blocks, tile.threads, tile.shared(word_size(plan)), given)


# --- the text of the kernels --------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def shift_source(plan: Plan, k_unit: bool) -> str:
    """The text of the kernel that shifts; `k_unit` where steps of k lie closer than rows."""
    return entry("logsum.cuh", struct_of("ShiftParams"), "Shift::run", "Shift::THREADS", f"""
{algebra(plan)}
using Shift = sr::Shift<Algebra, {flags(k_unit)}>;
""")  # fmt: skip


@functools.lru_cache(maxsize=64)
def settle_source(plan: Plan, tile: Tile) -> str:
    """The text of the kernel that takes the logarithm of sums and marks what is left."""
    run = f"sr::Settle<Algebra, sr::{tile.struct()}>::run"
    return entry("logsum.cuh", struct_of("LogSumParams"), run, tile.threads, algebra(plan))


@functools.lru_cache(maxsize=256)
def log_sum_source(plan: Plan, tile: Tile, *given: bool) -> str:
    """The text of the kernel that computes term by term; for the flags see sr::LogSum."""
    bounds = f"{tile.threads}, {tile.blocks}"
    return entry("logsum.cuh", struct_of("LogSumParams"), "LogSum::run", bounds, f"""
{algebra(plan)}
using LogSum = sr::LogSum<Algebra, sr::{tile.struct()}, {flags(*given)}>;
static_assert(LogSum::BYTES == {tile.shared(word_size(plan))}, "as the launch has it");
""")  # fmt: skip
