"""Distances between rows of bits, by population counts of what two rows have in common.

The lanes of a vector are rows of Y. Some are laid out word by word, as a panel that stays in the
first cache; four rows of X at a time are counted with it in registers. So no count is ever stored.
"""

from __future__ import annotations

from ...kernel import (
    across,
    each,
    f64,
    i64,
    kernel,
    lanes,
    popcount,
    sqrt,
    static,
    u64,
    unrolled,
    where,
)
from .select import sink, worse

#: What `measure` says: which distance.
HAMMING, JACCARD, DICE, COSINE, INTERSECTION = range(5)
TOGETHER = 4  # rows of X that are counted at once


@kernel
def lay(few, first, end, words, wide, right, panel, sizes):
    """Lay the rows of Y from `first` on out word by word, and their numbers of bits; 0 past them.

    Where `few` rows of X would meet the panel, it is not laid out.
    """
    if few:
        for c in range(wide):
            row = right[min(first + c, end - 1)]
            total = each(u64(0))
            for w in lanes(words):
                total += popcount(row[w])
            sizes[c] = f64(across(total, sum))
    else:
        for c in range(wide):
            here = first + c < end
            for w in range(words):
                panel[w, c] = right[first + c, w] if here else 0
        for j in lanes(wide, 2, whole=True):
            total = each(u64(0))
            for w in range(words):
                total += popcount(panel[w, j])
            sizes[j] = f64(total)


@kernel
def tally(few, i, first, end, rows, words, wide, left, right, room):
    """:func:`count` along rows of Y, where there is no panel."""
    if few:
        for r in range(min(TOGETHER, rows - i)):
            for c in range(wide):
                own, other = left[i + r], right[min(first + c, end - 1)]
                total = each(u64(0))
                for w in lanes(words):
                    total += popcount(own[w] & other[w])
                room[r, c] = across(total, sum)


@kernel
def count(few, j, i, rows, words, left, panel, room):
    """How many bits rows i, i + 1, ... of X and those of a panel have in common."""
    if few:
        totals = [room[r, j] for r in unrolled(TOGETHER)]
    else:
        own = [left[min(i + r, rows - 1)] for r in unrolled(TOGETHER)]
        totals = [each(u64(0)) for r in unrolled(TOGETHER)]
        for w in range(words):
            there = panel[w, j]
            for r in unrolled(TOGETHER):
                totals[r] += popcount(there & own[r][w])
    return totals


@kernel
def ratio(measure, common, p, q, columns):
    """The distance of rows of p and q bits of which some are common: above, and below the line."""
    both = p + q
    if measure == HAMMING:
        above, below = both - 2.0 * common, each(columns)
    elif measure == JACCARD:
        above, below = both - 2.0 * common, both - common
    elif measure == DICE:
        above, below = both - 2.0 * common, both
    elif measure == COSINE:
        # of a row without bits and another the mean is 1, so that they are 1 apart, not 0 / 0
        mean = max(sqrt(p * q), min(both, 1.0))
        above, below = mean - common, mean
    else:
        above, below = -common, each(1.0)
    return above, max(below, 1.0)  # 0 / 0 is 0: rows without bits are equal


@kernel
def visit(
    measure: static, few: static, wide: static, start: i64, end: i64, rows: i64, n: i64,
    words: i64, columns: f64, left: u64[rows, words], right: u64[n, words], bits: f64[rows],
    panel: u64[words, wide], sizes: f64[wide], line: f64[TOGETHER, wide], room: u64[TOGETHER, wide],
    out: f64[rows, n], k: i64, value: f64[rows, k], index: i64[rows, k], margin: f64,
    radius: f64, after: i64, counts: i64[rows], most: i64, row: i32[most], column: i64[most],
    distance: f64[most], found: i64[1],
) -> i64:  # fmt: skip
    """Distances to the rows of Y from `start` on: to `out`, to heaps, or those within a radius.

    Those are appended, or without `column` only counted. It stops ahead of a panel for whose pairs
    there may be no room: the row of Y from which to go on is returned, and their number is in
    `found`. Row i has no pair with rows of Y up to i + `after`. Only distances are divided that a
    bound and `margin` leave, for a heap those below its root.
    """
    total, first = found[0], start
    while first < end:
        if column is not None and total + rows * wide > most:
            break
        lay(few, first, end, words, wide, right, panel, sizes)
        for i in range(0, rows, TOGETHER):
            tally(few, i, first, end, rows, words, wide, left, right, room)
            for j in lanes(wide, 2, whole=True):
                totals = count(few, j, i, rows, words, left, panel, room)
                for r in unrolled(TOGETHER):
                    if i + r < rows:
                        above, below = ratio(
                            measure, f64(totals[r]), bits[i + r], sizes[j], columns
                        )
                        if out is not None:
                            line[r, j] = above / below
                        elif value is not None:
                            values, places = value[i + r], index[i + r]
                            near = above <= (values[0] + margin) * below
                            if across(near, any):
                                line[r, j] = above / below
                                for c in where(j, near):
                                    at = first + c
                                    if at < end and worse(values[0], places[0], line[r, c], at):
                                        sink(values, places, k, line[r, c], at)
                        else:
                            near = above <= (radius + margin) * below
                            if across(near, any):
                                line[r, j] = above / below
                                for c in where(j, near):
                                    at = first + c
                                    if line[r, c] <= radius and i + r + after < at < end:
                                        counts[i + r] += 1
                                        if column is not None:
                                            row[total], column[total] = i + r, at
                                            distance[total] = line[r, c]
                                            total += 1
            if out is not None:
                for r in range(min(TOGETHER, rows - i)):
                    for c in range(min(wide, end - first)):
                        out[i + r, first + c] = line[r, c]
        first += wide
    found[0] = total
    return min(first, end)
