"""Sums over the distances from many sources: sweeps over a factor whose labels stay in the cache.

The pass down over an elimination takes vertices in a depth-first order, and a label is read by
descendants of its vertex only. So labels lie on a stack, a row for each depth of the elimination
tree; what is wanted of them is taken up at once, and they are overwritten (as GPHAST does per
block: Delling, Goldberg, Nowatzyk and Werneck, 2013). The lanes are ``width`` sources, in some
``vectors``: each weight that is loaded serves all of them, in registers.
"""

from __future__ import annotations

from ...kernel import (
    T,
    across,
    add,
    each,
    f32,
    f64,
    fma,
    i32,
    i64,
    kernel,
    lanes,
    mul,
    one,
    static,
    zero,
)
from .factor import forward_solve

SEGMENT = 64  # distances that are added up before they join a sum with compensation


@kernel
def depths(n: i64, parent: i32[n], depth: i32[n]):
    """Depth of each position in a forest whose parents have higher numbers; of roots it is 0."""
    for v in range(n - 1, -1, -1):
        depth[v] = depth[parent[v]] + 1 if parent[v] < n else 0


@kernel
def inverse_of(x, whole, narrow):
    """1 / x in 64 bits."""
    d = f64(x)
    if whole and narrow:  # Newton's method from a rough one is faster than a division
        rough = f64(f32(1) / f32(x))
        rough = fma(rough, fma(-d, rough, 1.0), rough)
        return fma(rough, fma(-d, rough, 1.0), rough)
    return 1.0 / d


@kernel
def bin_by_search(x, bins, edges):
    """The number of edges, ascending, that are not beyond; ``bins`` - 1 of them, 2^k - 1."""
    row, step = each(i32(0)), bins >> 1
    while step > 0:
        row = row + i32(step) if x >= edges[row + i32(step - 1)] else row
        step >>= 1
    return row


@kernel
def bin_by_quotient(x, bins, edges, scale, exact, narrow):
    """The same of edges at even distances: by division and, unless that is exact, the edges.

    ``scale`` has what is added to a label, by what the sum is multiplied, and the last row.
    """
    if exact:  # the last bin has its upper edge, which is one less than in the list
        x = x - 1 if x == edges[bins + 1] - 1 else x
    at = (f32(x) + f32(scale[0])) * f32(scale[1]) if narrow else (f64(x) + scale[0]) * scale[1]
    last = f32(scale[2]) if narrow else scale[2]
    at = at if at > 0.0 else 0.0
    row = i32(at if at < last else last)
    if exact:
        return row
    # Row i is from edge i - 1 to edge i, with one more before the first; it may be off by one.
    row = row - i32(1) if x < edges[row] else row
    return row + i32(1) if x >= edges[row + i32(1)] else row


@kernel
def add_exactly(part, total, rest, width):
    """Partial sums join the totals with compensation: Knuth's exact sum of two."""
    for j in lanes(width, whole=True):
        x, before = part[j], total[j]
        new = before + x
        back = new - before
        total[j] = new
        rest[j] += (before - (new - back)) + (x - back)
        part[j] = 0.0


@kernel
def row(x, i):
    """Row i of an array, None of None."""
    return None if x is None else x[i]


@kernel
def collect(
    begin: i64, end: i64, sources: i64, down: i64, eliminated: i64, core: i64, segment: i64,
    width: static, vectors: static, whole: static, narrow: static, source: i64[end, width + 1],
    visited: i32[:], place: i32[eliminated + core], parent: i32[eliminated],
    first: i64[eliminated + 1], head: i32[first[-1]], slot: i32[first[-1]],
    depth_row: i32[eliminated], out: T[slot.size], back: T[slot.size], label: T[:, width],
    up_label: T[:, width], core_label: T[sources, core], largest: T[end, width],
    counts: i32[end, width], part: T[width], total: i64[end, width], real_part: f64[width],
    real_total: f64[end, width], rest: f64[end, width], inverse_part: f64[width],
    inverse_total: f64[end, width], inverse_rest: f64[end, width], radii: i64, radius: T[radii],
    within: i64[end, radii, width], mass: i64[eliminated + core],
    real_within: f64[end, radii, width], real_mass: f64[eliminated + core], bins: i64,
    exact: static, half: static, edges: T[:], scale: f64[3], table: i32[:, :], binned: i64,
    sums: i64[binned],
):  # fmt: skip
    """Statistics of blocks of sources: forward and, with `down`, backward solves.

    As :func:`.factor.sweep`; labels are not kept. Of each source, what is wanted of them is added
    up, arrays that are None are not: the largest, their number, their sum, that of 1 / label, and
    of each radius the number or the mass of those within it. ``sums`` counts, of all sources,
    labels by bins, row i + 1 of ``table`` being bin i; row 0 is for those outside. With `half`
    each source counts only what has a lower position.
    """
    for block in range(begin, end):
        at = block * width
        some = min(width, sources - at)
        count = forward_solve(
            eliminated, core, width, vectors, source[block], visited, place, parent, first, head,
            out, None, up_label, None, None, None, None,
        )  # fmt: skip
        for j in range(some):
            for i in range(core):
                if down == 0:
                    core_label[at + j, i] = up_label[i, j]
        if down != 0:
            for i in range(core):
                for j in range(width):
                    label[i, j] = core_label[at + j, i] if j < some else zero
            add_up(
                count, eliminated, core, segment, width, vectors, whole, narrow, source[block],
                visited, first, slot, depth_row, back, label, up_label, row(largest, block),
                row(counts, block), part, row(total, block), real_part, row(real_total, block),
                row(rest, block), inverse_part, row(inverse_total, block),
                row(inverse_rest, block), radii, radius, row(within, block), mass,
                row(real_within, block), real_mass, bins, exact, half, edges, scale, table,
            )  # fmt: skip
            if table is not None:
                for i in range(binned):
                    for j in range(width // vectors):
                        sums[i] += table[i + 1, j]
                        table[i + 1, j] = 0


@kernel
def add_up(
    left, eliminated, core, segment, width, vectors, whole, narrow, source, visited, first, slot,
    depth_row, back, label, up_label, largest, counts, part, total, real_part, real_total, rest,
    inverse_part, inverse_total, inverse_rest, radii, radius, within, mass, real_within, real_mass,
    bins, exact, half, edges, scale, table,
):  # fmt: skip
    """Backward solve of a block: labels are on a stack, by the depth of their vertices.

    Sums are added up in ``part``, which joins the total after a segment; with ``rest`` of floats.
    """
    since, end = 0, core + eliminated
    for i in range(end):
        row, v = i, eliminated + i
        if i >= core:  # below the core, whose labels are there
            v = end - 1 - i
            row = depth_row[v]
            met = left > 0 and visited[left - 1] == v
            for j in lanes(width, vectors, whole=True):
                best = up_label[core + left - 1, j] if met else zero
                for e in range(first[v], first[v + 1]):
                    best = add(best, mul(label[slot[e], j], back[e]))
                label[row, j] = best
            if met:
                left -= 1
                for lane in range(width):  # rounding in a cycle of weight 0 must not show
                    if source[lane] == v:
                        label[row, lane] = one
        for j in lanes(width, times=vectors, whole=True):
            x = label[row, j]
            there = x != zero
            finite = x if there else 0
            if largest is not None:
                largest[j] = max(largest[j], finite)
            if counts is not None:
                counts[j] = i32(counts[j]) + i32(there)
            if part is not None:
                part[j] += finite
            if real_part is not None:
                real_part[j] += f64(finite)
            if inverse_part is not None:
                inverse = inverse_of(x, whole, narrow)
                inverse_part[j] += inverse if there & (x != 0) else 0.0
            if within is not None:
                amount = 1 if mass is None else mass[v]
                for r in range(radii):
                    within[r, j] += amount if x <= radius[r] else 0
            if real_within is not None:
                for r in range(radii):
                    real_within[r, j] += real_mass[v] if x <= radius[r] else 0.0
            if table is not None:
                counted = there & (source[j] > v) if half else there
                if not half or across(counted, any):
                    if scale is None:
                        place = bin_by_search(x, bins, edges)
                    else:
                        place = bin_by_quotient(finite, bins, edges, scale, exact, narrow)
                    place = place if counted else i32(0)
                    table[place, j % (width // vectors)] += 1
        since += 1
        if since == segment or i == core - 1 or i == end - 1:
            since = 0
            if part is not None:
                for j in lanes(width, whole=True):
                    total[j] += i64(part[j])
                    part[j] = 0
            if real_part is not None:
                add_exactly(real_part, real_total, rest, width)
            if inverse_part is not None:
                add_exactly(inverse_part, inverse_total, inverse_rest, width)
