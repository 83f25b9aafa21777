"""Closures from spanning forests: the best edges of rows, and rows of paths; trees of paths."""

from __future__ import annotations

from ...kernel import (  # isort: skip
    S, T, across, add, better, bit_length, decode, each, encode, i32, i64, kernel, lanes, mul, u8,
)  # fmt: skip

ROWS = 64  # that share the worst gaps to all columns
NONE = -9999  # no predecessor


@kernel
def best_outside(
    n: i64, count: i64, rows: i32[count], group: i32[n], worst: S[1], a: S[:, n], at: i32[count],
    value: S[count],
):  # fmt: skip
    """The first best entry of each of some rows in a column of another group than the row's.

    ``worst`` is a zero, which is there where no entry is better.
    """
    for i in range(count):
        row, own = a[rows[i]], i32(group[rows[i]])
        best, place = each(decode(worst[0])), each(i32(-1))
        for j in lanes(n):
            x = decode(row[j])
            wins = better(x, best) & (i32(group[j]) != own)
            best = x if wins else best
            place = i32(j) if wins else place
        found = across(best)
        first = i64(across(place if (best == found) & (place >= 0) else i32(n), min))
        at[i] = first if first < n else -1
        value[i] = encode(found)


@kernel
def over(table, begin, end):
    """⊗ of a range of gaps, which two entries of the table make up."""
    k = bit_length(end - begin)
    width = (1 << k) >> 1
    return mul(decode(table[k, begin]), decode(table[k, end - width]))


@kernel
def between(
    n: i64, count: i64, place: i32[n], node: i32[n], spots: i32[count], lines: i32[count],
    table: S[:, n], near: T[n], out: S[:, n],
):  # fmt: skip
    """Rows of the closure of a line of nodes, by ascending places of their sources.

    The worst gaps from the first of some rows, and to their last, to all columns serve all of them.
    """
    for block in range(0, count, ROWS):
        block_end = min(block + ROWS, count)
        first, last = spots[block], spots[block_end - 1]
        for j in range(n):
            q = place[j]
            begin = min(q, first) if q < last else last
            end = first if q < last else q
            near[j] = over(table, begin, end)
        for r in range(block, block_end):
            spot, line = spots[r], out[lines[r]]
            left, right = over(table, first, spot), over(table, spot, last)
            for j in lanes(n):
                line[j] = encode(mul(near[j], left if i32(place[j]) <= i32(first) else right))
            for q in range(first + 1, last):  # between the rows
                line[node[q]] = encode(over(table, min(q, spot), max(q, spot)))


@kernel
def towards(
    n: i64, count: i64, order: i32[n], up: i32[n], last: i32[n], spots: i32[count],
    lines: i32[count], row: i32[n], out: i32[:, n],
):  # fmt: skip
    """Rows of predecessors by ascending places of their sources in the preorder of a forest.

    From row to row only what lies between their nodes in the tree changes. Each edge of a tree is
    so followed twice at most.
    """
    for j in range(n):
        row[j] = NONE
    begin, end, at = 0, 0, 0  # of the tree, and the node in it
    for r in range(count):
        spot = spots[r]
        if spot >= end:  # a new tree
            for v in range(begin, end):
                row[order[v]] = NONE
            at = spot
            while up[at] >= 0:
                at = up[at]
            begin, end = at, last[at]
            for v in range(begin + 1, end):
                row[order[v]] = order[up[v]]
        while spot < at or spot >= last[at]:
            row[order[at]] = order[up[at]]
            at = up[at]
        below = spot
        while below != at:
            row[order[up[below]]] = order[below]
            below = up[below]
        row[order[spot]] = NONE
        at = spot
        line = out[lines[r]]
        for j in lanes(n):
            line[j] = row[j]


@kernel
def doubtful(rows: i64, n: i64, d: S[rows, n], p: i32[rows, n], wrong: u8[rows]):
    """1 for each row of predecessors in which one is not strictly nearer than its node."""
    for i in range(rows):
        found = False
        for j in range(n):
            before = p[i, j]
            near, far = decode(d[i, max(before, 0)]), decode(d[i, j])
            nearer = (add(near, far) == near) & (near != far)
            found |= (before >= 0) & (not nearer)
        wrong[i] = found
