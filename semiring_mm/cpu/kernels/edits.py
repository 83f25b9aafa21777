"""Edit distances by bits: 64 cells of a column in a word (Myers, 1999; Hyyrö, 2003).

Neighbours in the table of unit costs differ by -1, 0 or 1. A column is kept as two bits a cell:
whether it is one more, or one less, than the cell above it. A column from the one before takes some
17 operations a word; an addition carries matches down the column.
"""

from __future__ import annotations

from ...kernel import each, i32, i64, kernel, lanes, popcount, static, u64, unrolled


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
