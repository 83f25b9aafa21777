"""Costs of aligning pairs of sequences by dynamic programming, and edit distances by bits.

In ``align``, a cell (i, j) needs (i - 1, j), (i, j - 1) and (i - 1, j - 1): on two antidiagonals
before its own. So the cells of one do not wait for each other, and the lanes of a vector are
neighbours of it.

``edit_distances`` computes 64 cells of a column in a word (Myers, 1999; Hyyrö, 2003). Neighbours in
the table of unit costs differ by -1, 0 or 1. A column is kept as two bits a cell: whether it is one
more, or one less, than the cell above it. A column from the one before takes some 17 operations a
word; an addition carries matches down the column.
"""

from __future__ import annotations

import math

from ...kernel import T, across, add, each, i32, i64, kernel, lanes, popcount, static, u64, unrolled

INF = math.inf


@kernel
def line_of(k, keep):
    """The line that has antidiagonal k - 2: one of three, unless all of them are kept."""
    return k if keep else k % 3


@kernel
def gap(x, y, squared):
    """How far two numbers are apart."""
    return (x - y) * (x - y) if squared else abs(x - y)


@kernel
def align(
    W: static, warp: static, affine: static, local: static, squared: static, single: static,
    keep: static, ends: static, first: i64, last: i64, begin: i64, end: i64, band: i64,
    features: i64, rows: i64[last], columns: i64[last], before_x: i64, x_starts: i64[last],
    behind_y: i64, y_starts: i64[last],
    x: T[features, :], y: T[features, :], x_codes: i32[:], y_codes: i32[:], table: T[:, :],
    gaps: T[4], lines: T[3, :], gap_lines: T[4, :], out: T[last],
):  # fmt: skip
    """Of the pairs `first` to `last` - 1 the antidiagonals `begin` to `end` - 1.

    ``add`` is the minimum that passes on a NaN. A cell has the place i on its antidiagonal. Vectors
    of W cells are computed beyond the last one, too. The sequences of y are in reverse, from
    `behind_y` back, and those of x from `before_x` on. They are
    series of features, or of a `single` one, or codes. ``gap_lines`` has, if gaps cost to open, the
    two last lines of alignments that end with a gap, in x and in y. ``ends`` are those of
    :class:`semiring_mm.engine.AlignmentRule`.
    """
    opening, extending, equal, other = gaps[0], gaps[1], gaps[2], gaps[3]
    for b in range(first, last):
        n, m, x_start, y_end = rows[b], columns[b], before_x + x_starts[b], behind_y - y_starts[b]
        before, now = lines[line_of(begin, keep)], lines[line_of(begin + 1, keep)]
        new = lines[line_of(begin + 2, keep)]
        if affine:
            up_now, up_new = gap_lines[begin & 1], gap_lines[(begin + 1) & 1]
            left_now, left_new = gap_lines[2 + (begin & 1)], gap_lines[2 + ((begin + 1) & 1)]
        best = each(out[b] if begin > 0 else 0.0)
        least = out[b] if begin > 0 else T(INF)  # of the last row and column
        for k in range(begin, min(n + m + 1, end)):
            low = max(k - m, (k - band + 1) >> 1, 1)  # 2 i - k is i - j, which the band limits
            high = min(n, k - 1, (k + band) >> 1)
            for start in range(low, high + 1, W):
                at_x, at_y = x_start + start - 1, y_end - k + start
                if table is not None:
                    costs = [table[x_codes[at_x + c], y_codes[at_y + c]] for c in unrolled(W)]
                for lane in lanes(W, whole=True):
                    i = start + lane
                    if table is not None:
                        step = costs[lane]
                    elif x_codes is not None:
                        step = equal if x_codes[at_x + lane] == y_codes[at_y + lane] else other
                    elif single:
                        step = gap(x[0, at_x + lane], y[0, at_y + lane], squared)
                    else:
                        step = each(0.0)
                        for f in range(features):
                            step += gap(x[f, at_x + lane], y[f, at_y + lane], squared)
                    both, up, left = before[i - 1], now[i - 1], now[i]
                    if warp:
                        value = step + add(add(up, left), both)
                    else:
                        up, left = up + extending, left + extending
                        if affine:
                            up = add(up + opening, up_now[i - 1] + extending)
                            left = add(left + opening, left_now[i] + extending)
                            up_new[i], left_new[i] = up, left
                        value = add(add(up, left), both + step)
                    if local:
                        value = add(value, 0.0)
                        value = value if i < high + 1 else 0.0
                        best = add(value, best)
                    new[i] = value
            edge = T(k) * extending  # of the cells (0, k) and (k, 0)
            if affine:
                edge += opening
            if warp:
                edge = T(INF)
            if local:
                edge = T(0.0)
            edge = edge if k > 0 else 0.0
            first_row, first_column = edge, edge
            if ends & 4:
                first_row = T(0.0)
            if ends & 1:
                first_column = T(0.0)
            new[low - 1] = first_row if (low == 1) & (k <= m) & (k <= band) else INF
            new[high + 1] = first_column if (high == k - 1) & (k <= n) & (k <= band) else INF
            if ends:
                in_row = (k >= n) & (abs(k - 2 * n) <= band)
                in_column = (k >= m) & (abs(k - 2 * m) <= band)
                if in_row & (ends & 8 != 0):
                    least = add(least, new[n])
                if in_column & ((ends & 2 != 0) | (k == n + m)):
                    least = add(least, new[k - m])
            if affine:
                up_new[low - 1], left_new[low - 1] = INF, INF
                up_new[high + 1], left_new[high + 1] = INF, INF
                up_now, up_new = up_new, up_now
                left_now, left_new = left_new, left_now
            before, now, new = now, new, lines[k + 3] if keep else before
        whole = now[n] if abs(n - m) <= band else T(INF)
        out[b] = across(best) if local else least if ends else whole


@kernel
def mark(b, count, low, rows, x_starts, x, table, there):
    """Set, or clear, the bits of the codes in x."""
    for lane in range(count):
        start = x_starts[b, lane]
        for i in range(rows[b, lane]):
            code, word = x[start + i] - low, i >> 6
            bits = table[code, word, lane]
            table[code, word, lane] = bits | u64(1 << (i & 63)) if there else 0


@kernel
def edit_distances(
    count: static, first: i64, last: i64, begin: i64, end: i64, low: i64, letters: i64, words: i64,
    rows: i64[last, count], columns: i64[last, count], x_starts: i64[last, count],
    y_starts: i64[last, count], x: i32[:], y: i32[:], table: u64[letters, words, count],
    room: u64[words, 2, count], out: i64[last, count],
):  # fmt: skip
    """Columns `begin` to `end` - 1 of groups of `count` pairs, one to a lane.

    ``table`` has, for each code from `low` on, the bits of each lane: where the code is in x. It
    holds zeros before the first column and after the last. ``room`` has two words for each of x:
    which cells are one more, and one less, than those above them.
    """
    for b in range(first, last):
        tall, wide = 0, 0
        for lane in range(count):
            tall, wide = max(tall, rows[b, lane]), max(wide, columns[b, lane])
        height = (tall + 63) >> 6
        if begin == 0:
            mark(b, count, low, rows, x_starts, x, table, True)
        for lane in lanes(count, whole=True):
            if begin == 0:
                for w in range(height):
                    room[w, 0, lane] = u64(-1)
                    room[w, 1, lane] = 0
            starts = [y_starts[b, k] for k in unrolled(count)]
            ends = [columns[b, k] for k in unrolled(count)]
            length = columns[b, lane]
            for j in range(begin, min(end, wide)):
                codes = [y[starts[k] + j if j < ends[k] else 0] - low for k in unrolled(count)]
                here = [table[codes[k]] for k in unrolled(count)]
                going = j < length
                more, less = each(u64(1)), each(u64(0))  # along the row above the word
                for w in range(height):
                    matches = [here[k][w, k] for k in unrolled(count)]
                    up, down, same = room[w, 0, lane], room[w, 1, lane], matches[lane] | less
                    equal = u64((same & up) + up) ^ up | same | down
                    above, below = down | u64(~(equal | up)), equal & up
                    across, back = u64(above << 1) | more, u64(below << 1) | less
                    more, less = above >> 63, below >> 63
                    room[w, 0, lane] = back | u64(~(equal | across)) if going else up
                    room[w, 1, lane] = across & equal if going else down
            if end >= wide:
                # the first row counts up to the columns, the last column goes on from there
                total = u64(length)
                for w in range(height):
                    left = max(rows[b, lane] - 64 * w, 0)
                    mask = u64((1 << left) - 1) if left < 64 else u64(-1)
                    total += popcount(room[w, 0, lane] & mask)
                    total -= popcount(room[w, 1, lane] & mask)
                out[b, lane] = total
        if end >= wide:
            mark(b, count, low, rows, x_starts, x, table, False)


@kernel
def edit_rows(
    count: static, single: static, bounded: static, first: i64, last: i64, others: i64,
    letters: i64, words: i64, cutoff: i64, rows: i64[last, count], x_starts: i64[last, count],
    x: i32[:],
    y_starts: i64[others], columns: i64[others], y: i32[:], table: u64[letters, words, count],
    room: u64[words, 2, count], out: i64[last, others, count],
):  # fmt: skip
    """Groups of `count` sequences of x, one to a lane, against each of `others` ones of y.

    ``table`` and ``room`` are those of :func:`edit_distances`; a group's table is made once. Codes
    of y that no x has are rows of zeros. Those of `single` words keep a column in registers. Every
    16 columns a group is left that has no lane within the `cutoff`: each column that is to come
    lessens the distance by 1 at most. What is given for it then is more than the cutoff.
    """
    for b in range(first, last):
        tall = 0
        for lane in range(count):
            tall = max(tall, rows[b, lane])
        height = (tall + 63) >> 6
        mark(b, count, 0, rows, x_starts, x, table, True)
        for o in range(others):
            start, wide, done, near = y_starts[o], columns[o], 0, True
            for lane in lanes(count, whole=True):
                for w in range(height):
                    room[w, 0, lane] = u64(-1)
                    room[w, 1, lane] = 0
            while near:
                end = min(done + 16, wide) if bounded else wide
                for lane in lanes(count, 2, whole=True):
                    if single:
                        up, down = room[0, 0, lane], room[0, 1, lane]
                        for j in range(done, end):
                            matches = table[y[start + j], 0, lane]
                            equal = u64((matches & up) + up) ^ up | matches | down
                            above, below = down | u64(~(equal | up)), equal & up
                            across_, back = u64(above << 1) | u64(1), u64(below << 1)
                            up, down = back | u64(~(equal | across_)), across_ & equal
                        room[0, 0, lane], room[0, 1, lane] = up, down
                    else:
                        for j in range(done, end):
                            code = y[start + j]
                            more, less = each(u64(1)), each(u64(0))
                            for w in range(height):
                                matches = table[code, w, lane]
                                up, down = room[w, 0, lane], room[w, 1, lane]
                                same = matches | less
                                equal = u64((same & up) + up) ^ up | same | down
                                above, below = down | u64(~(equal | up)), equal & up
                                across_, back = u64(above << 1) | more, u64(below << 1) | less
                                more, less = above >> 63, below >> 63
                                room[w, 0, lane] = back | u64(~(equal | across_))
                                room[w, 1, lane] = across_ & equal
                    total = each(u64(end))
                    for w in range(height):
                        left = max(rows[b, lane] - 64 * w, 0)
                        mask = u64((1 << left) - 1) if left < 64 else u64(-1)
                        total += popcount(room[w, 0, lane] & mask)
                        total -= popcount(room[w, 1, lane] & mask)
                    out[b, o, lane] = total
                done, near = end, False
                if done < wide:
                    for lane in range(count):
                        near = near | (out[b, o, lane] <= cutoff + wide - done)
            if done < wide:
                for lane in range(count):
                    out[b, o, lane] = cutoff + 1
        mark(b, count, 0, rows, x_starts, x, table, False)
