"""The range of a matrix, whether NaN or the integer "no edge" is in it, and the class of these."""

from __future__ import annotations

import math

from ...kernel import S, T, across, decode, each, i64, kernel, lanes, static, u64, unrolled

INF = math.inf
UNROLL = 4  # vectors at once
#: Numbers of bits that the classes of integers part at.
BITS = (0, 2, 4, 6, 7, 8, 10, 12, 15, 16, 20, 28, 31, 40, 52, 64)
CUTS = len(BITS) - 1


@kernel
def note(x, low, high, odd, missing):
    """The range with one more entry."""
    if missing is None:
        new = x != x
        low, high = min(low, x), max(high, x)
    else:
        new = x == missing
        low, high = min(low, low if new else x), max(high, high if new else x)
    return low, high, odd | new


@kernel
def range_of(rows, columns, x, apart, count, lowest, highest, missing):
    """The least and the greatest entry, and whether one is NaN or missing."""
    low, high, odd = T(lowest), T(highest), 0 != 0
    if apart is not None:
        for i in range(rows):
            for j in range(columns):
                low, high, odd = note(decode(apart[i, j, 0]), low, high, odd, missing)
        return low, high, odd
    lows, highs, odds = each(low, UNROLL), each(high, UNROLL), each(odd, UNROLL)
    least, most, some = each(low), each(high), each(odd)
    whole = columns & -(UNROLL * count)
    single = (columns & -count) - whole
    for i in range(rows):
        row, rest = x[i], x[i, whole:]
        for j in lanes(whole, UNROLL, whole=True):
            lows, highs, odds = note(decode(row[j]), lows, highs, odds, missing)
        for j in lanes(single, whole=True):
            least, most, some = note(decode(rest[j]), least, most, some, missing)
        for j in range(whole + single, columns):
            low, high, odd = note(decode(row[j]), low, high, odd, missing)
    low = min(low, across(least, min), across(lows, min))
    high = max(high, across(most, max), across(highs, max))
    return low, high, odd | across(some, any) | across(odds, any)


@kernel
def facts(
    layers: i64, rows: i64, columns: i64, x: S[layers, rows, columns],
    apart: S[layers, rows, columns, 1], count: static, lowest: static, highest: static,
    missing: static, out: T[3],
):  # fmt: skip
    """Store the least and the greatest entry, and whether one is NaN or missing.

    Entries that are not contiguous are `apart`, one in a row; a vector has `count` entries.
    """
    low, high, odd = T(lowest), T(highest), 0 != 0
    for i in range(layers):
        least, most, some = range_of(
            rows, columns, None if x is None else x[i], None if apart is None else apart[i],
            count, lowest, highest, missing,
        )  # fmt: skip
        low, high, odd = min(low, least), max(high, most), odd | some
    out[0] = low
    out[1] = high
    out[2] = T(odd)


@kernel
def side(x):
    """Which infinity a number is, or of which sign, from 0 to 4."""
    return i64(x > -INF) + i64(x >= 0.0) + i64(x > 0.0) + i64(x == INF)


@kernel
def class_of(
    rows: i64, columns: i64, x: S[rows, columns], apart: S[rows, columns, 1], count: static,
    lowest: static, highest: static, missing: static, whole: static,
) -> i64:  # fmt: skip
    """Compute the class of a matrix of whole numbers, or of floats."""
    low, high, odd = range_of(rows, columns, x, apart, count, lowest, highest, missing)
    if whole:
        negative = (low <= high) & (low < 0)
        above = u64(high) if (low <= high) & (high > 0) else u64(0)
        below = u64(~low) if negative else u64(0)
        most, number = max(above, below), i64(negative)
        for k in unrolled(CUTS):
            number += 2 * i64(most >> BITS[k] != 0)
    else:
        number = 5 * side(low) + side(high)
    return 2 * number + i64(odd)
