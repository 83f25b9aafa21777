"""Sparse and band matrices times dense ones on the device: plans, sources, launches."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..engine import PLAIN, Scaling
from ..plan import BROKEN, absent, overflow, scalar_bits
from ..semirings import Semiring
from . import device
from .launch import entry, struct_of
from .memory import contiguous
from .source import algebra, flags, word_size
from .vector import choose_plan
from .views import address, strides, wide_along

__all__ = ["csr_product", "dia_product", "kept"]

Array = Any

_THREADS = 256  # sr::Along's
_SHORT = 16  # entries of a row
_EACH = (4, 8)  # entries that a thread of sr::CsrRows reads at a time, of short rows and others
_BLOCKS = {4: (4, 3), 8: (2, 2)}  # of it on a multiprocessor, by an entry's bytes: its registers
_ITEMS = 8  # entries of a chunk of sr::CsrVector for each thread
_PIECES = {4: 3, 8: 2}  # blocks of it on a multiprocessor
_FEWEST = 256  # steps of the path that a warp of it repays
_LONG_PIECE = 16  # a row of more than such a part of a piece is shared
_STEPS = 128  # of the path for a group of sr::Csr
_BOUNDS = f"{_THREADS}, 4"  # its launch bounds
_NONE = 1 << 62  # no row has as many entries
_FLAGS = 3  # sr::DOES_NOT_FIT and the others
_INDEX = {4: "sr::i32", 8: "sr::i64"}


def csr_product(
    semiring: Semiring, data: Array, indices: Array, indptr: Array, b: Array, c: Array,
    scaling: Scaling = PLAIN, *, trans: bool = False,
) -> None:  # fmt: skip
    """C ← ((α ⊗ op(A)) ⊗ B) ⊕ (β ⊗ C) for A in compressed rows.

    Waits for the device for integers, truth values, `trans`, and in the first product of a matrix
    and a vector, for the lengths of its rows. The kernels find column indices out of range and row
    pointers that do not ascend: an error of integers and truth values, NaN of floats.
    """
    here, xp = device.current(), device.current().xp
    if trans:
        data, indices, indptr = _transposed(xp, data, indices, indptr, c.shape[0])
    data, indices, indptr = (
        x if x.flags.c_contiguous else xp.ascontiguousarray(x) for x in (data, indices, indptr)
    )
    depth = 1
    if data.dtype.kind in "iu" and semiring.add_kind == "+":  # entries of a row, at most
        depth = max(1, int((indptr[1:] - indptr[:-1]).max()))
    run = _Run(semiring, data, b, c, depth, scaling)
    m, n, plan, vector = c.shape[0], c.shape[1], run.plan, run.columns == 1
    entries, index = min(data.size, indices.size), _INDEX[indices.itemsize]
    warps, across, each = _THREADS // 32, 0, 0
    entry_size = max(4, data.itemsize, indices.itemsize)
    path = _STEPS if run.lanes >= 4 else _STEPS // 2  # of a group; more need more shared memory
    steps, longest, size = _THREADS // run.lanes * path, 0, word_size(plan)
    if vector:  # a piece for each warp that the device runs at once
        steps = max(_FEWEST, -(-(m + entries) // (_PIECES[entry_size] * here.sms * warps)))
        most = _longest_row(indptr)
        across, each = _rows_at_once(m, entries, most)
        longest = max(_FEWEST, steps // _LONG_PIECE)
        longest = longest if most is None or most > longest else _NONE
    pieces = 0 if across else -(-(m + entries) // steps)
    parts = None if across else device.scratch(pieces * (2 * n * size + 8) + 8)
    rows = address(parts)
    params = run.params(
        data=data, indices=indices, ends=indptr, rows=rows,
        heads=rows and rows + 8 * (pieces + 1),
        tails=rows and rows + 8 * (pieces + 1) + pieces * n * size,
        entries=entries, pieces=pieces, steps=steps, longest=longest,
    )  # fmt: skip
    wide, scaled, join = run.flags
    if across:
        most_blocks = _BLOCKS[entry_size][_EACH.index(each)]
        body = f"sr::CsrRows<Algebra, {index}, {across}, {each}, {scaled}, {join}>"
        blocks = min(-(-m * across // _THREADS), most_blocks * here.sms)
        run.strip(body, blocks, 0, params, f"{_THREADS}, {most_blocks}")
    elif vector:
        body = f"sr::CsrVector<Algebra, {index}, {_ITEMS}, {scaled}, {join}>"
        blocks, shared = -(-pieces // warps), 33 * _ITEMS * warps * size
        run.strip(body, blocks, shared, params, f"{_THREADS}, {_PIECES[entry_size]}")
    else:
        arguments = f"Algebra, {index}, {run.lanes}, {wide}, {path}, {scaled}, {join}"
        groups = _THREADS // run.lanes
        shared = 2 * groups * run.columns * size + 4 * (steps + 2 + 2 * groups)
        run.launch(f"sr::CsrPieces<{index}>", -(-pieces // warps), 0, params)
        run.strip(f"sr::Csr<{arguments}>", pieces, shared, params, _BOUNDS)
    if pieces > 1 and longest < _NONE:
        lanes = min(32, 1 << (n - 1).bit_length())
        body = f"sr::CsrReduce<Algebra, {index}, {lanes}, {join}>"
        run.launch(body, -(-pieces // warps), _THREADS * size, params)
    run.end()


def _rows_at_once(rows: int, entries: int, longest: int | None) -> tuple[int, int]:
    """Threads of sr::CsrRows for each row, and entries that each reads of it in its only turn.

    (0, 0) where rows are too unlike for it.
    """
    if longest is None:
        return 0, 0
    each = _EACH[longest > _SHORT]
    lanes = 1 << (max(1, -(-longest // each)) - 1).bit_length()
    fits = lanes <= 32 and rows * lanes * each <= 3 * entries
    return (lanes, each) if fits else (0, 0)


_longest: dict[int, tuple[weakref.ref[Any], int]] = {}  # by the identity of row pointers


def _longest_row(indptr: Array) -> int | None:
    """Entries of the longest row: found out once, and kept with the row pointers.

    The kernels are right whatever the answer, and whatever becomes of the row pointers. None where
    a wait for the device is not allowed, since a graph is captured.
    """
    key = id(indptr)
    found = _longest.get(key)
    if found is None:
        if device.current().capturing():
            return None
        longest = int((indptr[1:] - indptr[:-1]).max())
        found = weakref.ref(indptr, lambda _: _longest.pop(key, None)), longest
        _longest[key] = found
    return found[1]


def kept(arrays: Sequence[Array], b: Array) -> int | None:
    """Entries of a matrix's longest row, on which launches depend, by its arrays and the operand.

    None for a matrix by diagonals. TypeError where they are to be counted first, for a vector.
    """
    found = _longest.get(id(arrays[-1]))
    if found is None and len(arrays) == 3 and (b.ndim < 2 or b.shape[-1] < 2):
        raise TypeError("the rows of this matrix were not counted yet")
    return None if found is None else found[1]


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
        data=data, offsets=offsets, entries=data.shape[1],
        data_d=data.strides[0] // data.itemsize, diagonals=offsets.size, trans=int(trans),
    )  # fmt: skip
    wide, scaled, join = run.flags
    arguments = f"{_INDEX[offsets.itemsize]}, {run.lanes}, {wide}, {scaled}, {join}"
    blocks = -(-c.shape[0] // (_THREADS // run.lanes))
    run.strip(f"sr::Dia<Algebra, {arguments}>", blocks, 0, params)
    run.end()


_flags: dict[int, Array] = {}  # by the device


def _unread(here: device.Device) -> Array:
    """Error flags that nobody reads: storing to them takes no branch in the kernels."""
    found = _flags.get(here.index)
    if found is None:
        found = _flags[here.index] = here.xp.empty(_FLAGS, np.uint32)
    return found


class _Run:
    """One launch of either format: the plan, B and C, and how threads lie along columns."""

    def __init__(
        self, semiring: Semiring, data: Array, b: Array, c: Array, depth: int, scaling: Scaling
    ) -> None:
        self.here, self.semiring, self.c = device.current(), semiring, c
        size, n = b.itemsize, b.shape[1]
        if b.strides[n > 1] != size:
            b = contiguous(b)  # read once for each entry of A
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
        self.flags = map(flags, (wide, scaling.alpha is not None, zero is not None))
        # the kernels' error flags are read of integers and truth values; those of floats are not
        # among the addresses that differ from call to call
        self.exact = c.dtype.kind in "iub"
        self.errors = self.here.xp.zeros(_FLAGS, np.uint32) if self.exact else _unread(self.here)
        pointers = struct_of("SparseParams").pointers  # of which the last one is `errors`
        self.pointers = pointers if self.exact else pointers[:-1]
        self.fields = {
            "b": address(b), "c": address(c), "errors": address(self.errors), "m": c.shape[0],
            "k": b.shape[0], "n": n, "b_k": b_k, "c_m": c_m, "c_n": c_n,
            "alpha": scalar_bits(self.plan, scaling.alpha),
            "beta": scalar_bits(self.plan, scaling.beta),
            "zero": scalar_bits(self.plan, zero), "strips": self.strips,
            "mode": scaling._replace(alpha=None).mode,
        }  # fmt: skip

    def params(self, **fields: Any) -> bytes:
        return struct_of("SparseParams").pack(self.fields, **fields)

    def launch(
        self, body: str, blocks: int, shared: int, params: bytes, bounds: str = str(_THREADS)
    ) -> None:
        """Run a struct of ``kernels/sparse.cuh`` with its arguments."""
        kind, text = struct_of("SparseParams"), algebra(self.plan)
        kernel = self.here.kernel(entry("sparse.cuh", kind, f"{body}::run", bounds, text))
        kernel.launch(blocks, _THREADS, shared, params, self.pointers)

    def strip(
        self, body: str, blocks: int, shared: int, params: bytes, bounds: str = str(_THREADS)
    ) -> None:
        """So many blocks for each strip of columns."""
        if blocks * self.strips > 0x7FFFFFFF:
            raise ValueError(
                f"a sparse product of shape {self.c.shape} takes {blocks * self.strips} blocks, "
                f"and one launch at most 2147483647; multiply parts of b's columns"
            )
        self.launch(body, blocks * self.strips, shared, params, bounds)

    def end(self) -> None:
        """Raise what the kernels found; not for floats, since that would wait for the device."""
        if not self.exact:
            return
        does_not_fit, no_column, no_rows = self.errors.tolist()
        if no_column or no_rows:
            raise ValueError(BROKEN)
        if does_not_fit:
            raise overflow(self.semiring, self.c.dtype)
