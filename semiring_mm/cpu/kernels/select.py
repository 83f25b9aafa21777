"""Heaps with the k least of each row, the worst of them at the root.

A vector of new values is compared with the root at once; on random data few pass. The order is that
of (value, index), NaN last.
"""

from __future__ import annotations

from ...kernel import T, i64, kernel, lanes, static, where


@kernel
def worse(d, i, e, j):
    """Whether value d at index i comes after e at j."""
    later = (d > e) | (d != d) & (e == e)
    same = (d == e) | (d != d) & (e != e)
    return later | same & (i > j)


@kernel
def sink(values, places, size, d, i):
    """Replace the root of a heap, and move it down to its place."""
    at = 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and worse(
            values[child + 1], places[child + 1], values[child], places[child]
        ):
            child += 1
        if not worse(values[child], places[child], d, i):
            break
        values[at], places[at] = values[child], places[child]
        at = child
    values[at], places[at] = d, i


@kernel
def put(
    many: static, real: static, rows: i64, columns: i64, k: i64, base: i64, value: T[rows, k],
    index: i64[rows, k], tile: T[rows, columns],
):  # fmt: skip
    """Put the values of a tile, `many` vectors at once, into the heaps of its rows."""
    for r in range(rows):
        values, places, row = value[r], index[r], tile[r]
        for j in lanes(columns, many):
            least = values[0]  # NaN is passed by all; whole numbers have none, but a greatest one
            for c in where(j, not row[j] >= least if real else row[j] <= least):
                if worse(values[0], places[0], row[c], base + c):
                    sink(values, places, k, row[c], base + c)


@kernel
def sort(rows: i64, k: i64, value: T[rows, k], index: i64[rows, k]):
    """Sort each heap, best first."""
    for r in range(rows):
        values, places = value[r], index[r]
        for last in range(k - 1, 0, -1):
            d, i = values[last], places[last]
            values[last], places[last] = values[0], places[0]
            sink(values, places, last, d, i)
