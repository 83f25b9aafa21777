"""Sparse and band matrices times dense ones, C ← (α ⊗ A ⊗ B) ⊕ (β ⊗ C), row by row.

Bound by reading A once, and the rows of B that its entries meet. Entries that are not stored are
zero, and skipped. α scales the entries of A: that is right whether or not ⊗ distributes or
commutes, and hides behind the memory.
"""

from __future__ import annotations

import bisect
import ctypes
import functools
import itertools
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..engine import PLAIN, Scaling
from ..memory import workspace
from ..plan import BETA, BROKEN, READ_C, Plan, absent, overflow, scalar_bits
from ..semirings import Semiring
from .algebra import Algebra
from .compiler import KEPT, Target, host_target
from .ir import I32, I64, PTR, Function, Type, Value, Var
from .vector import vector_plan
from .views import HEAD, ArrayView, array_function

__all__ = [
    "CHUNK", "PARAMS", "ROWS", "csr_matrix_function", "csr_product", "csr_vector_function",
    "dia_matrix_function", "dia_product", "dia_vector_function", "even_rows", "transpose_function",
]  # fmt: skip

Array = NDArray[Any]

#: The fields of the parameter block, 64 bits each.
PARAMS = ("i0", "i1", "mode", "alpha", "beta", "zero", "trans")
#: Elements of y that stay in the cache while diagonals pass by.
CHUNK = 4096
#: Rows whose entries are laid row by row before they are multiplied.
ROWS = 64
_PIECE = 1 << 28  # pairs in a call, between which Ctrl-C is seen
_VECTORS = 4  # of a row of C in registers
_SUMS = 4  # that a row times a vector is added up in
_BYTE = Type("u", 8)


def csr_product(
    semiring: Semiring, data: Array, indices: Array, indptr: Array, b: Array, c: Array,
    scaling: Scaling = PLAIN, *, trans: bool = False,
) -> None:  # fmt: skip
    """C ← ((α ⊗ op(A)) ⊗ B) ⊕ (β ⊗ C) for A in compressed rows.

    Raises ValueError for column indices out of range and row pointers that do not ascend.
    """
    data, indices, indptr = (np.ascontiguousarray(x) for x in (data, indices, indptr))
    if trans:
        data, indices, indptr = _transposed(data, indices, indptr, c.shape[0])
    depth = 1
    if data.dtype.kind in "iu" and semiring.add_kind == "+":  # entries of a row, at most
        depth = max(1, int(np.diff(indptr).max()))

    def make(plan: Plan, scaled: bool, joined: bool, vector: bool) -> Any:
        return _csr_code(plan, indices.itemsize, vector, scaled, joined)

    _sparse_product(
        semiring, data, (data, indices, indptr), b, c, depth, scaling, make,
        functools.partial(even_rows, indptr),
    )  # fmt: skip


def dia_product(
    semiring: Semiring, data: Array, offsets: Array, b: Array, c: Array,
    scaling: Scaling = PLAIN, *, trans: bool = False,
) -> None:  # fmt: skip
    """C ← ((α ⊗ op(A)) ⊗ B) ⊕ (β ⊗ C) for A stored by diagonals."""
    if data.strides[-1] != data.itemsize:
        data = np.ascontiguousarray(data)
    offsets = np.ascontiguousarray(-offsets if trans else offsets, np.int64)

    def make(plan: Plan, scaled: bool, joined: bool, vector: bool) -> Any:
        return _dia_code(plan, vector, scaled, joined)

    def cut(parts: int) -> list[int]:
        return [64 * round(x) for x in np.linspace(0, c.shape[0] // 64, parts + 1)[1:-1]]

    _sparse_product(
        semiring, data, (data, offsets, offsets), b, c, max(1, offsets.size), scaling, make, cut,
        trans=trans,
    )  # fmt: skip


def even_rows(indptr: Array, parts: int) -> list[int]:
    """Where to cut a matrix into parts of nearly as many entries and rows."""
    rows = len(indptr) - 1
    steps = np.linspace(0, rows + int(indptr[-1]), parts + 1)[1:-1]
    key = lambda i: i + int(indptr[i])  # noqa: E731
    return sorted(bisect.bisect_left(range(rows), step, key=key) for step in steps)


def _sparse_product(
    semiring: Semiring, data: Array, arrays: tuple[Array, Array, Array], b: Array, c: Array,
    depth: int, scaling: Scaling, make: Callable[[Plan, bool, bool, bool], Any],
    cut: Callable[[int], list[int]], *, trans: bool = False,
) -> None:  # fmt: skip
    """A product of either format: the plan, B and C laid out for the kernels, threads."""
    m, n = c.shape
    plan = vector_plan(semiring, data, b, c, depth, scaling)
    zero = absent(semiring, c.dtype, plan)
    code = make(plan, scaling.alpha is not None, zero is not None, n == 1)
    if b.strides[0 if n == 1 else 1] != b.itemsize:
        b = np.ascontiguousarray(b)
    to = c if n == 1 or c.strides[1] == c.itemsize else np.ascontiguousarray(c)
    scalars = [scalar_bits(plan, x) for x in (scaling.alpha, scaling.beta, zero)]
    mode = replace(scaling, alpha=None).mode  # α scales the entries as they are read
    pack = struct.Struct(f"{len(PARAMS)}q").pack
    kept = max(CHUNK, 0 if data.ndim == 1 else ROWS * len(data))  # entries, of a band
    size = 128 + kept * (int(plan.compute[1:]) // 8)

    def rows(i0: int, i1: int) -> None:
        buffer = workspace(size)
        params = pack(i0, i1, mode, *scalars, trans)
        code(*arrays, b, params, to, buffer)
        found = buffer[:2].tolist()
        buffer[:2] = 0
        if found[1]:
            raise ValueError(BROKEN)
        if found[0]:
            raise overflow(semiring, c.dtype)

    workers, least = pool.get_num_threads(), data.size * n // _PIECE
    if (workers == 1 and not least) or data.size * n < 1 << 16 or m < 2 * workers:
        rows(0, m)
    else:
        cuts = [0, *cut(max(4 * workers, least)), m]
        pool.run([functools.partial(rows, i, j) for i, j in itertools.pairwise(cuts) if i < j])
    if to is not c:
        c[...] = to


def _transposed(
    data: Array, indices: Array, indptr: Array, columns: int
) -> tuple[Array, Array, Array]:
    """Aᵀ in compressed rows, the entries of each in A's order."""
    ends = np.zeros(columns + 2, indptr.dtype)
    entries, places = np.empty_like(data), np.empty_like(indices)
    broken = ctypes.create_string_buffer(1)
    code = _transpose_code(indices.itemsize, data.itemsize)
    code(data, indices, indptr, entries, broken, places, ends)
    if broken.raw != b"\0":
        raise ValueError(BROKEN)
    return entries, places, ends[:-1]


@functools.lru_cache(maxsize=KEPT)
def _csr_code(plan: Plan, index_size: int, vector: bool, scaled: bool, joined: bool) -> Any:
    make, index = csr_vector_function if vector else csr_matrix_function, Type("i", 8 * index_size)
    function = make(plan, host_target(), index, scaled=scaled, joined=joined)
    return array_function([function], 7)


@functools.lru_cache(maxsize=KEPT)
def _dia_code(plan: Plan, vector: bool, scaled: bool, joined: bool) -> Any:
    make = dia_vector_function if vector else dia_matrix_function
    return array_function([make(plan, host_target(), scaled=scaled, joined=joined)], 7)


@functools.lru_cache(maxsize=KEPT)
def _transpose_code(index_size: int, size: int) -> Any:
    return array_function([transpose_function(Type("i", 8 * index_size), size)], 7)


# --- the generated functions --------------------------------------------------------------------


class _Kernel:
    """The arguments (A's arrays, B, params, C, workspace) and the code that all kernels share."""

    def __init__(
        self, name: str, arrays: int, plan: Plan, target: Target, scaled: bool,
        joined: bool,
    ) -> None:  # fmt: skip
        f = self.f = Function(name, [PTR] * 7, opaque=False)
        self.arrays = [ArrayView(f, x) for x in f.args[:arrays]]
        self.b, self.c = ArrayView(f, f.args[3]), ArrayView(f, f.args[5])
        params, self.flags = f.args[4], f.load(f.args[6].at(HEAD), PTR, 8)
        self.field = {name: params.at(8 * i) for i, name in enumerate(PARAMS)}
        self.i0, self.i1, self.mode = (f.load(self.field[x], I64) for x in PARAMS[:3])
        self.algebra = algebra = Algebra(f, plan)
        self.t, self.s = algebra.compute, algebra.storage
        self.lanes = target.vector_bytes // self.t.size
        self.k, self.n = self.b.dim(-2), self.c.dim(-1)
        self.row_of_b, self.row_of_c = self.b.stride(-2), self.c.stride(-2)  # bytes to the next
        self.alpha = f.load(self.field["alpha"], self.t) if scaled else None
        self.zero = f.load(self.field["zero"], self.t) if joined else None

    def flag(self, byte: int, condition: Value) -> None:
        """Set the flag of a result that does not fit (0), or of an invalid A (1)."""
        f = self.f
        if condition.type.lanes > 1:
            condition = condition.bits_as(Type("i", condition.type.lanes)).cmp("!=", 0)
        with f.if_(condition):
            f.store(f.const(1, _BYTE), self.flags.at(byte))

    def entry(self, x: Value) -> Value:
        """α ⊗ a stored entry, or some."""
        x = self.algebra.decode(x)
        if self.alpha is None:
            return x
        return self.algebra.scale(self.alpha.splat(x.type.lanes), x)

    def load(self, place: Value, mask: Value | None) -> Value:
        """A vector of B or of C, or the lanes of it that are inside."""
        kind = self.s.vector(self.lanes)
        raw = self.f.load(place, kind) if mask is None else self.f.load_masked(place, kind, mask)
        return self.algebra.decode(raw)

    def finish(self, place: Value, value: Value, stored: Value, mask: Value | None = None) -> None:
        """Join what is absent and β ⊗ C, and store; `stored`: entries that the row of A has."""
        f, algebra, lanes = self.f, self.algebra, value.type.lanes
        result = f.var(value)
        if self.zero is not None:
            with f.if_(stored.cmp("<", self.k) | self.k.cmp("==", 0)):
                result.set(algebra.add(result.get(), self.zero.splat(lanes)))
        with f.if_((self.mode & READ_C).cmp("!=", 0)):
            plain = lanes == 1  # an entry of a vector
            old = f.var(algebra.decode(f.load(place, self.s)) if plain else self.load(place, mask))
            with f.if_((self.mode & BETA).cmp("!=", 0)):
                beta = f.load(self.field["beta"], self.t).splat(lanes)
                old.set(algebra.scale(beta, old.get()))
            result.set(algebra.add(result.get(), old.get()))
        out, overflow = algebra.encode(result.get())
        if mask is None:
            f.store(out, place)
        else:
            f.store_masked(out, place, mask)
        if overflow is not None:
            self.flag(0, overflow if mask is None else overflow & mask)

    def each_strip(self, row: Callable[[Value, int, Value | None], None]) -> None:
        """Call `row` with the first column, vectors and mask of every strip of columns.

        What is left beside whole strips is one of fewer vectors, the last of them masked.
        """
        f, lanes = self.f, self.lanes
        whole = self.n // (lanes * _VECTORS) * (lanes * _VECTORS)
        with f.loop(0, whole, lanes * _VECTORS) as j:
            row(j, _VECTORS, None)
        left = self.n - whole
        for vectors in range(1, _VECTORS + 1):
            with f.if_(f.ceil_div(left, lanes).cmp("==", vectors)):
                last = (left - (vectors - 1) * lanes).to(I32).splat(lanes)
                row(whole, vectors, f.iota(I32.vector(lanes)).cmp("<", last))

    def strip(
        self, j: Value, vectors: int, mask: Value | None
    ) -> tuple[Callable[[Value, Value], None], Callable[[Value, Value], None]]:
        """How a row of B is folded into the accumulators of a strip, and how they are stored."""
        f, s, lanes = self.f, self.s, self.lanes
        acc = [f.var(self.algebra.start(lanes)) for _ in range(vectors)]
        masks = [*[None] * (vectors - 1), mask]

        def term(left: Value, row: Value) -> None:
            wide, at = left.splat(lanes), self.b.data.at(row * self.row_of_b + j * s.size)
            for v, state in enumerate(acc):
                right = self.load(at.at(v * lanes * s.size), masks[v])
                state.set(self.algebra.add(state.get(), self.algebra.mul(wide, right)))

        def store(i: Value, stored: Value) -> None:
            to = self.c.data.at(i * self.row_of_c + j * s.size)
            for v, state in enumerate(acc):
                self.finish(to.at(v * lanes * s.size), state.get(), stored, masks[v])

        return term, store


class _Rows:
    """The rows of a CSR matrix; nothing outside of its arrays is read, whatever is in them."""

    def __init__(self, kernel: _Kernel, index: Type) -> None:
        self.kernel, self.index = kernel, index
        self.data, self.indices, self.ends = (x.data for x in kernel.arrays)
        self.entries = kernel.arrays[1].dim(-1)
        k = kernel.f.low(kernel.k, 1 << 31) if index.bits == 32 else kernel.k
        self.limit = k.to(Type("u", index.bits))  # no index below it, as unsigned, is negative

    def bounds(self, i: Value) -> tuple[Value, Value]:
        f = self.kernel.f
        at = self.ends.at(i * self.index.size)
        begin, end = (f.load(at.at(x), self.index).to(I64) for x in (0, self.index.size))
        fine = begin.cmp(">=", 0) & begin.cmp("<=", end) & end.cmp("<=", self.entries)
        self.kernel.flag(1, fine ^ 1)
        return begin, f.select(fine, end, begin)

    @contextmanager
    def some(self, e: Value, count: int) -> Iterator[tuple[Value, list[Value]]]:
        """So many entries from e on and their columns; none if one of these is no column."""
        kernel, f, index = self.kernel, self.kernel.f, self.index
        at = self.indices.at(e * index.size)
        inside = f.load(at, Type("u", index.bits, count)).cmp("<", self.limit.splat(count))
        if count > 1:
            inside = (inside ^ 1).bits_as(Type("i", count)).cmp("==", 0)
        with f.if_else(inside) as otherwise:
            entries = f.load(self.data.at(e * kernel.s.size), kernel.s.vector(count))
            columns = [f.load(at.at(i * index.size), index).to(I64) for i in range(count)]
            yield kernel.entry(entries), columns
            with otherwise():
                f.store(f.const(1, _BYTE), kernel.flags.at(1))


def csr_vector_function(
    plan: Plan, target: Target, index: Type, *, scaled: bool, joined: bool
) -> Function:
    """Generate ``csr(data, indices, indptr, B, params, C, workspace)`` for rows i0 to i1, n = 1.

    Some entries at a time, in as many sums. What they meet is loaded one by one, since gathering
    instructions are slow on some processors, and memory is the bound on the others.
    """
    kernel = _Kernel("csr", 3, plan, target, scaled, joined)
    f, algebra, s, x = kernel.f, kernel.algebra, kernel.s, kernel.b.data
    rows = _Rows(kernel, index)
    with f.loop(kernel.i0, kernel.i1) as i:
        begin, end = rows.bounds(i)
        result = f.var(algebra.start(1))
        whole = begin + (end - begin) // _SUMS * _SUMS

        def fold(state: Var, e: Value, count: int) -> None:
            with rows.some(e, count) as (left, columns):
                met = [f.load(x.at(column * s.size), s) for column in columns]
                right = algebra.decode(f.stack(met) if count > 1 else met[0])
                state.set(algebra.add(state.get(), algebra.mul(left, right)))

        with f.if_(begin.cmp("<", whole)):
            sums = f.var(algebra.start(_SUMS))
            with f.loop(begin, whole, _SUMS) as e:
                fold(sums, e, _SUMS)
            four = sums.get()
            two = algebra.add(f.shuffle(four, four, (0, 1)), f.shuffle(four, four, (2, 3)))
            result.set(algebra.add(two[0], two[1]))
        with f.loop(whole, end) as e:
            fold(result, e, 1)
        kernel.finish(kernel.c.data.at(i * kernel.row_of_c), result.get(), end - begin)
    return f


def csr_matrix_function(
    plan: Plan, target: Target, index: Type, *, scaled: bool, joined: bool
) -> Function:
    """Generate the same for any n; the columns of B and of C lie side by side."""
    kernel = _Kernel("csr", 3, plan, target, scaled, joined)
    f = kernel.f
    rows = _Rows(kernel, index)
    with f.loop(kernel.i0, kernel.i1) as i:
        begin, end = rows.bounds(i)

        def row(j: Value, vectors: int, mask: Value | None) -> None:
            term, store = kernel.strip(j, vectors, mask)
            with f.loop(begin, end) as e, rows.some(e, 1) as (left, columns):
                term(left, columns[0])
            store(i, end - begin)

        kernel.each_strip(row)
    return f


class _Diagonals:
    """A matrix by diagonals: entry (i, j) of op(A) is in slot j, or i where op transposes."""

    def __init__(self, kernel: _Kernel) -> None:
        f = self.f = kernel.f
        self.kernel = kernel
        data, offsets = kernel.arrays
        self.data, self.step, self.slots = data.data, data.stride(-2), data.dim(-1)
        self.offsets, self.count = offsets.data, offsets.dim(-1)
        self.trans = f.load(kernel.field["trans"], I64).cmp("!=", 0)

    def offset(self, d: Value) -> Value:
        return self.f.load(self.offsets.at(d * 8), I64)

    def span(self, d: Value, first: Value, last: Value) -> tuple[Value, Value, Value]:
        """Of the rows from `first` to `last`: the first that a diagonal meets, how many, where."""
        f, k, offset = self.f, self.kernel.k, self.offset(d)
        low = f.const(0, I64) - offset
        begin = f.select(first.cmp(">", low), first, low)
        columns = f.select(self.trans, k, f.low(k, self.slots))
        end = f.low(last, columns - offset)
        end = f.select(self.trans, f.low(end, self.slots), end)
        slot = f.select(self.trans, begin, begin + offset)
        return begin, end - begin, self.data.at(d * self.step + slot * self.kernel.s.size)

    @contextmanager
    def entry(self, d: Value, i: Value) -> Iterator[Value]:
        """The column in which a diagonal meets row i, if it does."""
        j = i + self.offset(d)
        at = self.f.select(self.trans, i, j)
        inside = j.to(Type("u", 64)).cmp("<", self.kernel.k) & at.cmp("<", self.slots)
        with self.f.if_(inside):
            yield j


def dia_matrix_function(plan: Plan, target: Target, *, scaled: bool, joined: bool) -> Function:
    """Generate ``dia(data, offsets, -, B, params, C, workspace)`` for rows i0 to i1.

    The entries of some rows are first laid row by row: to read each row's from as many places as
    there are diagonals would cost more than the product.
    """
    kernel = _Kernel("dia", 2, plan, target, scaled, joined)
    f, s, t = kernel.f, kernel.s, kernel.t
    diagonals = _Diagonals(kernel)
    block = kernel.flags.at(64)
    with f.loop(kernel.i0, kernel.i1, ROWS) as first:
        last = f.low(kernel.i1, first + ROWS)
        with f.loop(0, diagonals.count) as d:
            begin, count, at = diagonals.span(d, first, last)
            to = block.at(((begin - first) * diagonals.count + d) * t.size)
            with f.loop(0, count) as e:
                x = kernel.entry(f.load(at.at(e * s.size), s))
                f.store(x, to.at(e * diagonals.count * t.size), t.size)
        with f.loop(first, last) as i:
            own = block.at((i - first) * diagonals.count * t.size)

            def row(j: Value, vectors: int, mask: Value | None) -> None:
                term, store = kernel.strip(j, vectors, mask)
                stored = f.var(f.const(0, I64))
                with f.loop(0, diagonals.count) as d, diagonals.entry(d, i) as column:
                    term(f.load(own.at(d * t.size), t, t.size), column)
                    stored.set(stored.get() + 1)
                store(i, stored.get())

            kernel.each_strip(row)
    return f


def dia_vector_function(plan: Plan, target: Target, *, scaled: bool, joined: bool) -> Function:
    """Generate the same for n = 1: diagonals pass over a chunk of y."""
    kernel = _Kernel("dia", 2, plan, target, scaled, joined)
    f, s, t, lanes, algebra = kernel.f, kernel.s, kernel.t, kernel.lanes, kernel.algebra
    diagonals = _Diagonals(kernel)
    chunk = kernel.flags.at(64)
    with f.loop(kernel.i0, kernel.i1, CHUNK) as first:
        size = f.low(kernel.i1 - first, CHUNK)
        with f.loop(0, f.ceil_div(size, lanes) * lanes, lanes) as e:
            f.store(algebra.start(lanes), chunk.at(e * t.size), t.size)
        with f.loop(0, diagonals.count) as d:
            begin, count, left_at = diagonals.span(d, first, first + size)
            right_at = kernel.b.data.at((begin + diagonals.offset(d)) * s.size)
            to = chunk.at((begin - first) * t.size)
            whole = f.select(count.cmp(">", 0), count // lanes * lanes, f.const(0, I64))
            for lo, hi, width in ((f.const(0, I64), whole, lanes), (whole, count, 1)):
                with f.loop(lo, hi, width) as e:
                    left, right = (
                        f.load(at.at(e * s.size), s.vector(width)) for at in (left_at, right_at)
                    )
                    place = to.at(e * t.size)
                    state = f.load(place, t.vector(width), t.size)
                    term = algebra.mul(kernel.entry(left), algebra.decode(right))
                    f.store(algebra.add(state, term), place, t.size)
        with f.loop(0, size) as e:
            i = first + e
            stored = f.var(diagonals.count)
            if joined:  # only as many diagonals as columns, or more, can fill a row
                with f.if_(diagonals.count.cmp(">=", kernel.k)):
                    stored.set(0)
                    with f.loop(0, diagonals.count) as d, diagonals.entry(d, i):
                        stored.set(stored.get() + 1)
            place = kernel.c.data.at(i * kernel.row_of_c)
            kernel.finish(place, f.load(chunk.at(e * t.size), t, t.size), stored.get())
    return f


def transpose_function(index: Type, size: int) -> Function:
    """Generate ``transpose(data, indices, indptr, new data, broken, new indices, new indptr)``.

    A counting sort by columns, for entries of `size` bytes. The new row pointers are zero at first,
    and there is one more than in the end. Where A is broken that is said, and nothing moved.
    """
    f = Function("transpose", [PTR] * 7, opaque=False)
    data, indices, ends, new_data, new_indices, new_ends = (
        ArrayView(f, x) for i, x in enumerate(f.args) if i != 4
    )
    broken, m, k = f.args[4], ends.dim(-1) - 1, new_ends.dim(-1) - 2
    entry = Type("u", 8 * size)
    last = f.var(f.const(0, I64))

    def at(array: ArrayView, i: Value) -> Value:
        return array.data.at(i * index.size)

    def number(array: ArrayView, i: Value) -> Value:
        return f.load(at(array, i), index).to(I64)

    with f.loop(0, m + 1) as i:  # ascending from 0 to the number of entries, at most
        end = number(ends, i)
        fine = end.cmp(">=", last.get()) & end.cmp("<=", indices.dim(-1))
        with f.if_((fine ^ 1) | (i.cmp("==", 0) & end.cmp("!=", 0))):
            f.store(f.const(1, _BYTE), broken)
        last.set(end)
    with f.if_(f.load(broken, _BYTE).cmp("==", 0)), f.loop(0, last.get()) as e:
        column = number(indices, e)
        with f.if_else(column.to(Type("u", 64)).cmp("<", k)) as otherwise:
            count = at(new_ends, column + 2)
            f.store(f.load(count, index) + 1, count)
            with otherwise():
                f.store(f.const(1, _BYTE), broken)
    with f.if_(f.load(broken, _BYTE).cmp("==", 0)):
        with f.loop(1, k + 2) as j:
            f.store(
                f.load(at(new_ends, j), index) + f.load(at(new_ends, j - 1), index), at(new_ends, j)
            )
        with f.loop(0, m) as i, f.loop(number(ends, i), number(ends, i + 1)) as e:
            begin = at(new_ends, number(indices, e) + 1)  # where the next one goes
            to = f.load(begin, index)
            f.store(to + 1, begin)
            f.store(i.to(index), at(new_indices, to.to(I64)))
            value = f.load(data.data.at(e * size), entry)
            f.store(value, new_data.data.at(to.to(I64) * size))
    return f
