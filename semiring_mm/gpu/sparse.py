"""Sparse and band matrices times dense ones on the device: plans, sources, launches."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np

from ..engine import PLAIN, Scaling
from ..plan import BROKEN, Plan, absent, overflow, scalar_bits
from ..semirings import Semiring
from . import device
from .source import algebra, pack, word_size
from .vector import choose_plan
from .views import address, strides, wide_along

__all__ = ["PARAMS", "csr_product", "dia_product", "sparse_source"]

Array = Any

_THREADS = 256  # sr::Along's
_ITEMS = {True: 8, False: 64}  # steps of a group of a vector's, a matrix's
_FLAGS = 4  # sr::DOES_NOT_FIT and the others
_EACH = 4  # entries of a row that a thread of sr::CsrRows takes at a time
_LONG = 8  # times as many for each of its threads make a row long
_INDEX = {4: "sr::i32", 8: "sr::i64"}

#: The fields of sr::SparseParams, in order.
_LONGS = """data indices ends offsets b c cuts heads tails errors m k n entries data_d b_k c_m c_n
    alpha beta zero""".split()
_INTS = "tiles strips diagonals trans mode".split()
PARAMS = (*_LONGS, *_INTS)


@functools.lru_cache(maxsize=1024)
def sparse_source(plan: Plan, body: str, bounds: str = str(_THREADS)) -> str:
    """The text of a kernel: a struct of ``kernels/sparse.cuh`` with its arguments."""
    return f"""#include "sparse.cuh"
{algebra(plan)}
extern "C" __global__ void __launch_bounds__({bounds})
kernel(const __grid_constant__ sr::SparseParams p) {{
  {body}::run(p);
}}
"""


def csr_product(
    semiring: Semiring, data: Array, indices: Array, indptr: Array, b: Array, c: Array,
    scaling: Scaling = PLAIN, *, trans: bool = False,
) -> None:  # fmt: skip
    """C ← ((α ⊗ op(A)) ⊗ B) ⊕ (β ⊗ C) for A in compressed rows.

    Waits for the device for integers, truth values and `trans` only. The kernels find column
    indices out of range and row pointers that do not ascend: an error of integers and truth values,
    NaN of floats.
    """
    here, xp = device.current(), device.current().xp
    if trans:
        data, indices, indptr = _transposed(xp, data, indices, indptr, c.shape[0])
    data, indices, indptr = (xp.ascontiguousarray(x) for x in (data, indices, indptr))
    depth = 1
    if data.dtype.kind in "iu" and semiring.add_kind == "+":  # entries of a row, at most
        depth = max(1, int((indptr[1:] - indptr[:-1]).max()))
    run = _Run(semiring, data, b, c, depth, scaling, look=True)
    m, n, plan = c.shape[0], c.shape[1], run.plan
    entries = min(data.size, indices.size)
    index, items = _INDEX[indices.itemsize], _ITEMS[run.columns == 1]
    groups = _THREADS // run.lanes
    tile = groups * items
    tiles = -(-(m + entries) // tile)
    size = word_size(plan)
    parts = xp.empty(2 * tiles * n * size, np.uint8)
    cuts = xp.empty(tiles + 1, np.int64)
    params = run.params(
        data=address(data), indices=address(indices), ends=address(indptr), cuts=address(cuts),
        heads=address(parts), tails=address(parts) + tiles * n * size, entries=entries, tiles=tiles,
    )  # fmt: skip
    wide, scaled, join = run.flags
    across, rows = 0, "true" if run.columns == 1 else "false"
    if run.columns == 1:  # threads of a row: they take two thirds of what it has at once, or more
        across = min(32, 1 << (-(-entries // (6 * max(m, 1))) - 1).bit_length())
    longest = _LONG * _EACH * across
    kernel = here.kernel(sparse_source(plan, f"sr::CsrCuts<{index}, {tile}, {longest}>"))
    kernel.launch(min(-(-max(m, tiles + 1) // _THREADS), 8 * here.sms), _THREADS, 0, params)
    if across:  # of the two ways for a vector one returns at once
        each = 4 if max(data.itemsize, indices.itemsize) <= 4 else 2  # blocks of a multiprocessor
        body = f"sr::CsrRows<Algebra, {index}, {across}, {_EACH}, {scaled}, {join}>"
        kernel = here.kernel(sparse_source(plan, body, f"{_THREADS}, {each}"))
        blocks = min(-(-m * across // _THREADS), each * here.sms)
        kernel.launch(max(1, blocks), _THREADS, 0, params)
    arguments = f"Algebra, {index}, {run.lanes}, {wide}, {items}, {scaled}, {join}, {rows}"
    products = tile + tile // 32 if run.columns == 1 else 0
    shared = (2 * groups * run.columns + products) * size + 4 * (tile + 2 * groups)
    # of a vector, room for 64 registers: left to itself, the compiler keeps fewer loads under way
    bounds = f"{_THREADS}, 4" if run.columns == 1 else str(_THREADS)
    run.launch(f"sr::Csr<{arguments}>", tiles, shared, params, bounds)
    lanes = min(32, 1 << (n - 1).bit_length())
    kernel = here.kernel(
        sparse_source(plan, f"sr::CsrReduce<Algebra, {index}, {lanes}, {tile}, {join}, {rows}>")
    )
    kernel.launch(-(-tiles // (_THREADS // 32)), _THREADS, _THREADS * size, params)
    run.end()


def _transposed(
    xp: Any, data: Array, indices: Array, indptr: Array, rows: int
) -> tuple[Array, Array, Array]:
    """Aᵀ in compressed rows, by a stable sort; this waits for the device."""
    count = int(indptr[-1])
    fine = int(indptr[0]) == 0 and count <= indices.size and bool((indptr[1:] >= indptr[:-1]).all())
    indices = indices[: max(count, 0)]
    if not fine or not bool(((indices >= 0) & (indices < rows)).all()):
        raise ValueError(BROKEN)
    order = xp.argsort(indices, kind="stable")
    row = xp.searchsorted(indptr, xp.arange(count), side="right") - 1
    ends = xp.searchsorted(indices[order], xp.arange(rows + 1))
    return data[order], row[order].astype(indices.dtype), ends.astype(indices.dtype)


def dia_product(
    semiring: Semiring, data: Array, offsets: Array, b: Array, c: Array,
    scaling: Scaling = PLAIN, *, trans: bool = False,
) -> None:  # fmt: skip
    """C ← ((α ⊗ op(A)) ⊗ B) ⊕ (β ⊗ C) for A stored by diagonals.

    Waits for the device where an integer's result may not fit its dtype.
    """
    xp = device.current().xp
    if data.strides[-1] != data.itemsize:
        data = xp.ascontiguousarray(data)
    small = max(*c.shape, b.shape[0], data.shape[1]) < 1 << 31  # the kernel counts in their type
    offsets = xp.ascontiguousarray(offsets, None if small else np.int64)
    run = _Run(semiring, data, b, c, max(1, offsets.size), scaling)
    params = run.params(
        data=address(data), offsets=address(offsets), entries=data.shape[1],
        data_d=data.strides[0] // data.itemsize, diagonals=offsets.size, trans=int(trans),
    )  # fmt: skip
    wide, scaled, join = run.flags
    arguments = f"{_INDEX[offsets.itemsize]}, {run.lanes}, {wide}, {scaled}, {join}"
    blocks = -(-c.shape[0] // (_THREADS // run.lanes))
    run.launch(f"sr::Dia<Algebra, {arguments}>", blocks, 0, params)
    run.end()


class _Run:
    """One launch of either format: the plan, B and C, and how threads lie along columns."""

    def __init__(
        self, semiring: Semiring, data: Array, b: Array, c: Array, depth: int, scaling: Scaling,
        *, look: bool = False,
    ) -> None:  # fmt: skip
        self.here, self.semiring, self.c = device.current(), semiring, c
        size, n = b.itemsize, b.shape[1]
        if b.strides[n > 1] != size:
            b = self.here.xp.ascontiguousarray(b)  # read once for each entry of A
        self.b = b
        self.plan = choose_plan(semiring, data, b, c, depth, scaling)
        chunk = 16 // size
        (_, b_k, _), (_, c_m, c_n) = strides(b), strides(c)
        wide = wide_along(b, -1, chunk) and wide_along(c, -1, chunk)
        each = chunk if wide else 1
        self.lanes = min(32, 1 << (-(-n // each) - 1).bit_length())
        self.columns = self.lanes * each
        self.strips = -(-n // self.columns)
        zero = absent(semiring, c.dtype, self.plan)
        self.flags = [
            "true" if x else "false" for x in (wide, scaling.alpha is not None, zero is not None)
        ]
        look = look or self.plan.check  # whether to read the kernels' error flags
        self.errors = self.here.xp.zeros(_FLAGS, np.uint32) if look else None
        self.fields = {
            "b": address(b), "c": address(c), "errors": address(self.errors), "m": c.shape[0],
            "k": b.shape[0], "n": n, "b_k": b_k, "c_m": c_m, "c_n": c_n,
            "alpha": scalar_bits(self.plan, scaling.alpha),
            "beta": scalar_bits(self.plan, scaling.beta),
            "zero": scalar_bits(self.plan, zero), "strips": self.strips,
            "mode": replace(scaling, alpha=None).mode,
        }  # fmt: skip

    def params(self, **fields: int) -> bytes:
        values = [(self.fields | fields).get(name, 0) for name in PARAMS]
        return pack(tuple(values[: len(_LONGS)]), tuple(values[len(_LONGS) :]))

    def launch(
        self, body: str, blocks: int, shared: int, params: bytes, bounds: str = str(_THREADS)
    ) -> None:
        if blocks * self.strips > 0x7FFFFFFF:
            raise ValueError(
                f"a sparse product of shape {self.c.shape} takes {blocks * self.strips} blocks, "
                f"and one launch at most 2147483647; multiply parts of b's columns"
            )
        kernel = self.here.kernel(sparse_source(self.plan, body, bounds))
        kernel.launch(blocks * self.strips, _THREADS, shared, params)

    def end(self) -> None:
        """Raise what the kernels found; not for floats, since that would wait for the device."""
        if self.errors is None or self.c.dtype.kind not in "iub":
            return
        does_not_fit, no_column, no_rows, _ = self.errors.tolist()
        if no_column or no_rows:
            raise ValueError(BROKEN)
        if does_not_fit:
            raise overflow(self.semiring, self.c.dtype)
