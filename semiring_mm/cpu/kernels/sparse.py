"""Sparse and band matrices times dense ones, row by row.

Bound by reading A once, and the rows of B that its entries meet. Entries that are not stored are
zero, and skipped. α scales the entries of A: that is right whether or not ⊗ distributes or
commutes, and hides behind the memory. Nothing outside of A's arrays is read, whatever is in them.
"""

from __future__ import annotations

from ...kernel import (  # isort: skip
    I, S, T, across, add, decode, encode, i64, kernel, lanes, mul, overflows, static, u8, u64,
    unrolled, zero,
)  # fmt: skip
from .shared import scaled

CHUNK = 4096  # entries of y that stay in the cache while diagonals pass by
ROWS = 64  # of a band, whose entries are laid row by row before they are multiplied
SUMS = 4  # that a row times a vector is added up in
VECTORS = 4  # of a row of C in registers


@kernel
def term(x, y, alpha):
    """(α ⊗) an entry of A, ⊗ one of B."""
    return mul(scaled(alpha, decode(x)), decode(y))


@kernel
def inside(x, i, j, there):
    """Some entries of row i: those that are there, where not all are, and zeros."""
    return x[i, j] if there is None else x[i, j] if there else 0


@kernel
def finish(c, i, j, there, value, few, more, absent, beta, wrong):
    """Join what is absent and (β ⊗) C, and store; `few`: not every entry of the row is stored."""
    if absent is not None and few:
        value = add(value, absent)
    if more:
        value = add(value, scaled(beta, decode(inside(c, i, j, there))))
    if there is not None:
        if there:
            c[i, j] = encode(value)
    else:
        c[i, j] = encode(value)
    if across(overflows(value) if there is None else overflows(value) & there, any):
        wrong[0] = 1


@kernel
def bounds(i, ends, entries, wrong):
    """Where the entries of a row begin and end; it has none if that is outside of the arrays."""
    begin, end = ends[i], ends[i + 1]
    if begin < 0 or begin > end or end > entries:
        wrong[1] = 1
        end = begin
    return begin, end


@kernel
def csr_vector(
    i0: i64, i1: i64, k: i64, entries: i64, data: S[entries], indices: I[entries], ends: I[i1 + 1],
    b: S[k], c: S[i1, 1], alpha: T, beta: T, absent: T, more: static, wrong: u8[2],
):  # fmt: skip
    """Rows i0 to i1 - 1 of a matrix in compressed rows, times a vector.

    Some entries at a time, in as many sums. What they meet is loaded one by one, since gathering
    instructions are slow on some processors, and memory is the bound on the others.
    """
    for i in range(i0, i1):
        begin, end = bounds(i, ends, entries, wrong)
        whole = begin + (end - begin & -SUMS)
        total = zero
        if begin < whole:
            parts = [zero for _ in unrolled(SUMS)]
            for j in lanes(SUMS, SUMS, whole=True):
                some = zero
                for e in range(begin, whole, SUMS):
                    if across(u64(indices[e + j]) >= u64(k), any):
                        wrong[1] = 1
                    else:
                        met = [b[indices[e + p]] for p in unrolled(SUMS)]
                        some = add(some, term(data[e + j], met[j], alpha))
                parts[j] = some
            total = add(add(parts[0], parts[2]), add(parts[1], parts[3]))
        for e in range(whole, end):
            if u64(indices[e]) < u64(k):
                total = add(total, term(data[e], b[indices[e]], alpha))
            else:
                wrong[1] = 1
        for j in lanes(1, whole=True):
            few = (end - begin < k) | (k == 0)
            finish(c, i, j, None, total, few, more, absent, beta, wrong)


@kernel
def add_row(sums, left, b, row, j, there, vectors, width):
    """left ⊗ some columns of a row of B; of the last vector those that are there."""
    for v in unrolled(vectors):
        right = inside(b, row, j + v * width, there if v == vectors - 1 else None)
        sums[v] = add(sums[v], mul(left, decode(right)))


@kernel
def finish_row(c, i, j, there, vectors, width, sums, few, more, absent, beta, wrong):
    for v in unrolled(vectors):
        own = there if v == vectors - 1 else None
        finish(c, i, j + v * width, own, sums[v], few, more, absent, beta, wrong)


@kernel
def csr_strip(
    i, at, vectors, rest, width, begin, end, k, n, data, indices, b, c, alpha, beta, absent, more,
    wrong,
):  # fmt: skip
    """Some vectors of a row of C, from a column on."""
    for j in lanes(width, whole=True):
        there = at + (vectors - 1) * width + j < n if rest else None
        sums = [zero for _ in unrolled(vectors)]
        for e in range(begin, end):
            if u64(indices[e]) < u64(k):
                left = scaled(alpha, decode(data[e]))
                add_row(sums, left, b, indices[e], at + j, there, vectors, width)
            else:
                wrong[1] = 1
        few = (end - begin < k) | (k == 0)
        finish_row(
            c, i, at + j, there, vectors, width, sums, few, more, absent, beta, wrong
        )  # fmt: skip


@kernel
def csr_matrix(
    i0: i64, i1: i64, k: i64, entries: i64, data: S[entries], indices: I[entries], ends: I[i1 + 1],
    n: i64, width: static, rest: static, b: S[k, n], c: S[i1, n], alpha: T, beta: T, absent: T,
    more: static, wrong: u8[2],
):  # fmt: skip
    """The same times a matrix; ``rest`` vectors have the columns that fill no strip."""
    whole = n & -(VECTORS * width)
    for i in range(i0, i1):
        begin, end = bounds(i, ends, entries, wrong)
        for last in unrolled(2 if rest > 0 else 1):
            for at in range(whole if last else 0, n if last else whole, VECTORS * width):
                csr_strip(
                    i, at, rest if last else VECTORS, last, width, begin, end, k, n, data, indices,
                    b, c, alpha, beta, absent, more, wrong,
                )  # fmt: skip


@kernel
def span(offset, first, last, k, slots, trans):
    """Of rows `first` to `last` - 1: the first that a diagonal meets, how many, and its slot."""
    begin = max(first, -offset)
    end = min(last, (k if trans else min(k, slots)) - offset)
    count = (min(end, slots) if trans else end) - begin
    return begin, max(count, 0), begin if trans else begin + offset


@kernel
def meets(i, column, k, slots, trans):
    """Whether a diagonal that is in this column of row i has an entry there."""
    return (u64(column) < u64(k)) & ((i if trans else column) < slots)


@kernel
def dia_vector(
    i0: i64, i1: i64, k: i64, slots: i64, count: i64, data: S[count, slots], offsets: i64[count],
    trans: static, b: S[k], c: S[i1, 1], alpha: T, beta: T, absent: T, more: static,
    room: T[1, CHUNK], wrong: u8[2],
):  # fmt: skip
    """Rows i0 to i1 - 1 of a matrix by diagonals, times a vector: they pass over a part of y.

    Entry (i, j) of op(A) is in slot j of its diagonal, or i where op transposes.
    """
    y = room[0]
    for first in range(i0, i1, CHUNK):
        size = min(i1 - first, CHUNK)
        for e in lanes(size):
            y[e] = zero
        for d in range(count):
            begin, some, slot = span(offsets[d], first, first + size, k, slots, trans)
            to, row, x = y[begin - first :], data[d, slot:], b[begin + offsets[d] :]
            for e in lanes(some):
                to[e] = add(to[e], term(row[e], x[e], alpha))
        for e in range(size):
            i, stored = first + e, count
            if absent is not None and count >= k:  # fewer diagonals than columns fill no row
                stored = 0
                for d in range(count):
                    stored += meets(i, i + offsets[d], k, slots, trans)
            for j in lanes(1, whole=True):
                few = (stored < k) | (k == 0)
                finish(c, i, j, None, y[e], few, more, absent, beta, wrong)


@kernel
def dia_strip(
    i, at, vectors, rest, width, row, k, n, slots, count, offsets, trans, b, c, alpha, beta, absent,
    more, wrong,
):  # fmt: skip
    """Some vectors of a row of C, from a column on."""
    for j in lanes(width, whole=True):
        stored = 0
        there = at + (vectors - 1) * width + j < n if rest else None
        sums = [zero for _ in unrolled(vectors)]
        for d in range(count):
            column = i + offsets[d]
            if meets(i, column, k, slots, trans):
                add_row(sums, row[d], b, column, at + j, there, vectors, width)
                stored += 1
        few = (stored < k) | (k == 0)
        finish_row(
            c, i, at + j, there, vectors, width, sums, few, more, absent, beta, wrong
        )  # fmt: skip


@kernel
def dia_matrix(
    i0: i64, i1: i64, k: i64, slots: i64, count: i64, data: S[count, slots], offsets: i64[count],
    trans: static, n: i64, width: static, rest: static, b: S[k, n], c: S[i1, n], alpha: T, beta: T,
    absent: T, more: static, room: T[ROWS, count], wrong: u8[2],
):  # fmt: skip
    """The same times a matrix, the columns of C as in :func:`csr_matrix`.

    The entries of some rows are first laid row by row: to read each row's from as many places as
    there are diagonals would cost more than the product.
    """
    whole = n & -(VECTORS * width)
    for first in range(i0, i1, ROWS):
        last = min(i1, first + ROWS)
        for d in range(count):
            begin, some, slot = span(offsets[d], first, last, k, slots, trans)
            for e in range(some):
                room[begin - first + e, d] = scaled(alpha, decode(data[d, slot + e]))
        for i in range(first, last):
            row = room[i - first]
            for strip in unrolled(2 if rest > 0 else 1):
                for at in range(whole if strip else 0, n if strip else whole, VECTORS * width):
                    dia_strip(
                        i, at, rest if strip else VECTORS, strip, width, row, k, n, slots, count,
                        offsets, trans, b, c, alpha, beta, absent, more, wrong,
                    )  # fmt: skip


@kernel
def transpose(
    m: i64, k: i64, entries: i64, data: T[entries], indices: I[entries], ends: I[m + 1],
    new_data: T[entries], new_indices: I[entries], new_ends: I[k + 2], wrong: u8[2],
):  # fmt: skip
    """Counting sort by columns, for entries of any type of this size.

    The new row pointers are zero at first, and there is one more than in the end. Where A is broken
    that is said, and nothing moved.
    """
    last = 0
    for i in range(m + 1):  # ascending from 0 to the number of entries, at most
        if ends[i] < last or ends[i] > entries or (i == 0 and ends[i] != 0):
            wrong[1] = 1
        last = ends[i]
    if wrong[1] != 0:
        return
    for e in range(last):
        if u64(indices[e]) < u64(k):
            new_ends[indices[e] + 2] += 1
        else:
            wrong[1] = 1
    if wrong[1] != 0:
        return
    for j in range(1, k + 2):
        new_ends[j] += new_ends[j - 1]
    for i in range(m):
        for e in range(ends[i], ends[i + 1]):
            to = new_ends[indices[e] + 1]  # where the next one of its column goes
            new_ends[indices[e] + 1] = to + 1
            new_indices[to] = i
            new_data[to] = data[e]
