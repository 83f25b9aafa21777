"""The table of an alignment of two sequences of codes, and the way back through it."""

from __future__ import annotations

import math

from .kernel import f64, i32, i64, kernel, static, u8

INF = math.inf
EQUAL, OTHER, OF_X, OF_Y = COLUMNS = tuple(b"=XID")  # of a CIGAR string


@kernel
def fill(
    affine: static, local: static, ends: static, n: i64, m: i64, begin: i64, end: i64, top: i64,
    band: i64, width: i64, x: i32[n], y: i32[m], table: f64[:, :], gaps: f64[4], line: f64[m + 1],
    up_line: f64[m + 1], ways: u8[:, width], best: f64[1], place: i64[3],
):  # fmt: skip
    """Rows `begin` to `end` - 1 of the table of costs, of which the last one is kept, and the ways.

    The first one of ``ways`` is `top`.

    A way says where a cell's least cost comes from: 0 nowhere, 1 both entries, 2 one of x, 3 one of
    y; besides, 4 if its gap in x goes on, 8 if its gap in y does. A row has the cells of the band;
    both lines begin with infinities, which are beyond it.
    """
    opening, extending, equal, other = gaps[0], gaps[1], gaps[2], gaps[3]
    for i in range(begin, end):
        low, high = max(i - band, 0), min(i + band, m)
        before = line[low - 1] if low > 0 else INF  # (i - 1, j - 1)
        left, left_gap = INF, INF
        for j in range(low, high + 1):
            above = line[j]
            value, way = 0.0, 0
            if i == 0 or j == 0:
                up_line[j] = INF
                free = ends & (4 if i == 0 else 1) != 0
                if not local and not free and i + j > 0:
                    value = f64(i + j) * extending + (opening if affine else 0.0)
                    way = (2 if j == 0 else 3) + (12 if i + j > 1 else 0)
            else:
                if table is not None:
                    value = before + table[x[i - 1], y[j - 1]]
                else:
                    value = before + (equal if x[i - 1] == y[j - 1] else other)
                up, over = above + extending, left + extending
                way = 1
                if affine:
                    longer = up_line[j] + extending
                    up, over = up + opening, over + opening
                    if longer < up:
                        up, way = longer, way | 4
                    if left_gap + extending < over:
                        over, way = left_gap + extending, way | 8
                    up_line[j], left_gap = up, over
                if up < value:
                    value, way = up, (way & 12) | 2
                if over < value:
                    value, way = over, (way & 12) | 3
                if local:
                    if value >= 0.0:
                        value, way = 0.0, way & 12
                    if value < best[0]:
                        best[0], place[0], place[1] = value, i, j
            if ends and (i == n or j == m):
                last = ends & (8 if i == n else 2) != 0
                if (last or (i == n and j == m)) and value < best[0]:
                    best[0], place[0], place[1] = value, i, j
            before = above
            line[j], left, ways[i - top, j - low] = value, value, way
    if not local and not ends and end == n + 1:
        best[0], place[0], place[1] = line[m], n, m


@kernel
def walk(
    n: i64, m: i64, top: i64, band: i64, width: i64, x: i32[n], y: i32[m], ways: u8[:, width],
    place: i64[3], columns: u8[:],
) -> i64:  # fmt: skip
    """The columns of the best alignment, from the last one, which ends at `place`, to the first.

    It returns how many there are down to row `top`; `place` is where they begin and, above that
    row, the gap that goes on.
    """
    i, j, count, gap = place[0], place[1], 0, place[2]
    while i >= top and (i > 0 or j > 0):
        way = i64(ways[i - top, j - max(i - band, 0)])
        kind = gap if gap > 0 else way & 3
        if kind == 0:
            break
        gap = 0
        if kind == 1:
            columns[count] = EQUAL if x[i - 1] == y[j - 1] else OTHER
            i, j = i - 1, j - 1
        elif kind == 2:
            columns[count] = OF_X
            gap = 2 if (way & 4) > 0 else 0
            i -= 1
        else:
            columns[count] = OF_Y
            gap = 3 if (way & 8) > 0 else 0
            j -= 1
        count += 1
    place[0], place[1], place[2] = i, j, gap
    return count
