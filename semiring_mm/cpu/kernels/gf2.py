"""Packed truth values: sums of rows by tables of them, and elimination of a few rows."""

from __future__ import annotations

from ...kernel import i32, i64, kernel, lanes, static, u8, unrolled

TABLES = 8  #: of sums of four rows, in which a row of A is looked up together
STRIP = 256  #: columns of bytes


@kernel
def joined(x, y, either):
    return x | y if either else x ^ y


@kernel
def sum_of(found, j, either):
    total = found[0][j]
    for t in unrolled(TABLES - 1):
        total = joined(total, found[t + 1][j], either)
    return total


@kernel
def multiply(
    either: static, m: i64, depth: i64, k: i64, width: i64, a: u8[m, depth],
    b: u8[k, width], c: u8[m, width], table: u8[16 * TABLES, STRIP],
):  # fmt: skip
    """C ← C ⊕ A B of packed bits, by the method of the four Russians.

    Of each four rows of B there is a table of the 16 ways to join some of them.
    """
    for left in range(0, width, STRIP):
        columns = min(STRIP, width - left)
        for first in range(0, depth, TABLES // 2):
            for t in range(TABLES):
                for j in lanes(STRIP, 8, whole=True):
                    table[16 * t, j] = 0
                for e in unrolled(4):
                    r = 8 * first + 4 * t + 3 - e
                    row, some = b[min(r, k - 1)], columns if r < k else 0
                    alone = table[16 * t + (1 << e)]
                    for j in lanes(STRIP, 8, whole=True):
                        alone[j] = row[left + j] if j < some else 0
                    for x in range(1, 1 << e):
                        own, to = table[16 * t + x], table[16 * t + (1 << e) + x]
                        for j in lanes(STRIP, 8, whole=True):
                            to[j] = joined(own[j], alone[j], either)
            for i in range(m):
                bytes_ = [a[i, min(first + h, depth - 1)] for h in unrolled(TABLES // 2)]
                found = [
                    table[16 * t + (bytes_[t // 2] & 15 if t % 2 else bytes_[t // 2] >> 4)]
                    for t in unrolled(TABLES)
                ]
                to = c[i, left:]
                if columns == STRIP:
                    for j in lanes(STRIP, 8, whole=True):
                        to[j] = joined(to[j], sum_of(found, j, either), either)
                else:
                    for j in lanes(columns, 8):
                        to[j] = joined(to[j], sum_of(found, j, either), either)


@kernel
def reduce(
    columns: i64, count: i64, width: i64, own: i64[count, width], free: u8[count],
    pivots: i32[columns],
):  # fmt: skip
    """Clear each of some columns in all rows but one that is `free`, the first that has its bit.

    Column j is bit j ^ 7 of its word, as bytes hold bits. `width` is that of whole vectors.
    """
    for j in range(columns):
        word, shift, pivot = j >> 6, (j & 63) ^ 7, -1
        for r in range(count):
            if free[r] > 0 and own[r, word] >> shift & 1 > 0:
                pivot = r
                break
        pivots[j] = pivot
        if pivot >= 0:
            free[pivot] = 0
            added = own[pivot]
            for r in range(count):
                row = own[r]
                there = 0 if r == pivot else -(row[word] >> shift & 1)
                for w in lanes(width, whole=True):
                    row[w] = row[w] ^ (added[w] & there)
