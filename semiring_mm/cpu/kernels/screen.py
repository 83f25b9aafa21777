"""Squared Euclidean distances of the pairs that bounds in float32 leave, put into heaps."""

from __future__ import annotations

from ...kernel import T, f32, f64, fma, i64, kernel, lanes, static, unrolled, where
from .select import sink, worse

TAKEN = 8  # distances that are summed up together
MOST = 64 + TAKEN  #: columns that wait for that


@kernel
def take(waiting, count, sums, row, right, width, values, places, k, base):
    """Put some columns' squared distances, each summed up in a product's order, into a heap."""
    others = [right[waiting[min(count - 1, s)]] for s in unrolled(TAKEN)]
    totals = [T(0.0) for s in unrolled(TAKEN)]
    for c in range(width):  # a sum waits for each of its additions: some at once
        own = row[c]
        for s in unrolled(TAKEN):
            gap = own - others[s][c]
            totals[s] = fma(gap, gap, totals[s])
    for s in unrolled(TAKEN):
        sums[s] = totals[s]
    for s in range(count):
        d, i = sums[s], base + waiting[s]
        if worse(values[0], places[0], d, i):
            sink(values, places, k, d, i)


@kernel
def put(
    many: static, together: static, rows: i64, columns: i64, width: i64, k: i64, base: i64,
    growth: f64, offset: f64[rows], squares: f32[columns], tile: f32[rows, columns],
    left: T[rows, width], right: T[columns, width], value: T[rows, k], index: i64[rows, k],
    waiting: i64[MOST], sums: T[TAKEN],
) -> i64:  # fmt: skip
    """Put columns into full heaps of squared distances; how many the bounds in the tile leave.

    Of a squared distance d, the entries of a row's tile and of `squares` add up to
    d · `growth` + `offset`, or less. `together` entries are compared at once, as many as `many`
    vectors of distances have.
    """
    total = 0
    for r in range(rows):
        keys, row, values, places = tile[r], left[r], value[r], index[r]
        count, most = 0, f32(f64(values[0]) * growth + offset[r])
        for first in range(0, columns, together):
            for j in lanes(min(columns - first, together), many):
                for c in where(j, keys[first + j] + squares[first + j] <= most):
                    waiting[count] = first + c
                    count += 1
            while count >= TAKEN or (count > 0 and first + together >= columns):
                some = min(count, TAKEN)
                count -= some
                take(waiting[count:], some, sums, row, right, width, values, places, k, base)
                total += some
                most = f32(f64(values[0]) * growth + offset[r])
    return total
