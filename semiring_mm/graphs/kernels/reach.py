"""Sweeps that end at a radius: labels of what is within it, and sums over them.

Weights are not negative, so a vertex is out of reach, with its whole subtree of the elimination
tree, if every way into the subtree is too long: an edge to any of its vertices begins at an
ancestor of them all. Subtrees are ranges of positions, and a sweep from the top down leaps over
them: its time is that of what it reaches (of contraction hierarchies and ranges: Efentakis and
Pfoser, 2014). Labels are on a stack, as in :mod:`.statistics`.
"""

from __future__ import annotations

from ...kernel import (
    S,
    T,
    across,
    add,
    encode,
    f32,
    f64,
    i32,
    i64,
    kernel,
    lanes,
    mul,
    one,
    static,
    where,
    zero,
)
from .factor import forward_solve

SUBTREE, BLOCK, ROWS, LEFT, FLOOR = range(5)  #: what ``state`` has, of `reach`


@kernel
def ways_in(
    n: i64, wanted: i32[n], first: i64[n + 1], head: i32[first[-1]], parent: i32[n],
    place: i32[:], size: i32[n], back: T[head.size], enter: T[head.size], some: i32[n],
):  # fmt: skip
    """Least weights from the head of each edge into the subtree of its tail, and sizes of subtrees.

    Of subtrees with a `wanted` vertex alone; None: with any. ``place`` and ``some`` are scratch.
    """
    for v in range(n):
        size[v] = 1
        some[v] = 1 if wanted is None else wanted[v]
        for e in range(first[v], first[v + 1]):
            enter[e] = zero
    for v in range(n):
        if some[v] != 0:
            for e in range(first[v], first[v + 1]):
                enter[e] = add(enter[e], back[e])
        p = i64(parent[v])
        if p < n:
            size[p] = i32(size[p] + size[v])
            if some[v] != 0:
                some[p] = 1
                for e in range(first[p], first[p + 1]):
                    place[head[e]] = i32(e - first[p])
                for e in range(first[v], first[v + 1]):
                    if head[e] != p:
                        g = first[p] + place[head[e]]
                        enter[g] = add(enter[g], enter[e])


@kernel
def reach(
    end: i64, sources: i64, down: i64, eliminated: i64, core: i64, width: static, vectors: static,
    radius: T, capacity: i64, enough: i64, source: i64[end, width + 1], state: i64[5],
    column: i32[eliminated + core], visited: i32[:], place: i32[eliminated + core],
    parent: i32[eliminated], size: i32[eliminated], first: i64[eliminated + 1],
    head: i32[first[-1]], slot: i32[first[-1]], depth_row: i32[eliminated], out: T[slot.size],
    back: T[slot.size], enter: T[slot.size], label: T[:, width], up_label: T[:, width],
    core_label: T[sources, core], ends: i64[end], vertex: i32[capacity], near: T[capacity, width],
):  # fmt: skip
    """Labels of what the sources of some blocks reach, as many rows as there is room for.

    Forward and, with `down`, backward solves, as :func:`.statistics.collect`. What has a column and
    is within the radius of one of a block's sources gets a row of ``near``, in descending order of
    positions, its column an entry of ``vertex``. The rows of each block end at ``ends``. No block
    begins after `enough` rows.

    ``state`` is where a call goes on: the block, the vertex that is next (-1: the block has not
    begun), the rows, how many ancestors of the sources are left, and what ends the subtree.
    """
    rows = 0
    block, v = state[BLOCK], state[SUBTREE]
    left, floor = state[LEFT], state[FLOOR]
    full = 0
    while (block < end) & (full == 0):
        at = block * width
        some = min(width, sources - at)
        if v < 0:  # it has not begun
            if rows > enough:
                full = 1
            else:
                count = forward_solve(
                    eliminated, core, width, vectors, source[block], visited, place, parent, first,
                    head, out, None, up_label, None, None, None, radius,
                )  # fmt: skip
                left = 0
                for i in range(count):
                    close = 0
                    for j in lanes(width, vectors, whole=True):
                        if across(up_label[core + i, j] <= radius, any):
                            close = 1
                    if close != 0:
                        visited[left] = visited[i]
                        left += 1
                v, floor = 0, 0  # positions are one more than they are, so that 0 is the end
                if core > 0:
                    v = eliminated
                    for i in range(core):
                        for j in range(some):
                            if down == 0:
                                core_label[at + j, i] = up_label[i, j]
                    if down == 0:
                        v, left = 0, 0
                    else:
                        for i in range(core):
                            for j in range(width):
                                label[i, j] = core_label[at + j, i] if j < some else zero
                            if column[eliminated + i] >= 0:
                                rows = emit(
                                    rows,
                                    width,
                                    vectors,
                                    radius,
                                    column[eliminated + i],
                                    label[i],
                                    vertex,
                                    near,
                                )
        while (full == 0) & ((v > floor) | (left > 0)):
            if v <= floor:  # all of this subtree is done
                v = visited[left - 1] + 1
                floor = v - size[v - 1]
                clear(core, depth_row[v - 1], width, vectors, label)
            if rows >= capacity:
                full = 1
                break
            u, row = v - 1, i64(depth_row[v - 1])
            met, ahead = 0, 0
            if left > 0:
                met = 1 if visited[left - 1] == u else 0
            own = i64(place[u]) if met != 0 else 0
            for j in lanes(width, vectors, whole=True):
                best = up_label[own, j] if met != 0 else zero
                least = best
                for e in range(first[u], first[u + 1]):
                    above = label[slot[e], j]
                    best = add(best, mul(above, back[e]))
                    least = add(least, mul(above, enter[e]))
                label[row, j] = best
                if across(least <= radius, any):
                    ahead = 1
            if ahead == 0:
                v -= size[u]
                if left > 0:
                    below = visited[left - 1] + 1
                    if below > v:  # what of the subtree is within the radius is below this one
                        v = below
                        clear(row, depth_row[v - 1], width, vectors, label)
            else:
                v -= 1
                if met != 0:
                    left -= 1
                    for lane in range(width):  # rounding in a cycle of weight 0 must not show
                        if source[block, lane] == u:
                            label[row, lane] = one
                if column[u] >= 0:
                    rows = emit(rows, width, vectors, radius, column[u], label[row], vertex, near)
        if full == 0:
            ends[block] = rows
            block += 1
            v = -1
    state[SUBTREE] = v
    state[BLOCK] = block
    state[ROWS] = rows
    state[LEFT] = left
    state[FLOOR] = floor


@kernel
def clear(begin, end, width, vectors, label):
    """Rows of the stack of vertices out of reach."""
    for i in range(begin, end):
        for j in lanes(width, vectors, whole=True):
            label[i, j] = zero


@kernel
def emit(rows, width, vectors, radius, column, label, vertex, near):
    """Another row, if any of its labels is within the radius; how many there are then."""
    close = 0
    vertex[rows] = column
    for j in lanes(width, vectors, whole=True):
        x = label[j]
        near[rows, j] = x
        if across(x <= radius, any):
            close = 1
    return rows + close


@kernel
def count_pairs(
    begin: i64, end: i64, width: static, vectors: static, radius: T, ends: i64[end],
    near: T[:, width], part: i32[width], count: i64[end, width],
):  # fmt: skip
    """How many labels of each source are within the radius, by the rows that `reach` has found."""
    row = 0
    for block in range(begin, end):
        for j in lanes(width, whole=True):
            part[j] = i32(0)
        for i in range(row, ends[block]):
            for j in lanes(width, vectors, whole=True):
                part[j] = i32(part[j]) + i32(near[i, j] <= radius)
        row = ends[block]
        for j in range(width):
            count[block, j] = part[j]


@kernel
def write_pairs(
    begin: i64, end: i64, width: static, vectors: static, radius: T, ends: i64[end],
    vertex: i32[:], near: T[:, width], place: i64[end, width], index: i32[:],
    distance: S[index.size],
):  # fmt: skip
    """Write what is within the radius from entry ``place`` of each source on, which moves."""
    row = 0
    for block in range(begin, end):
        for i in range(row, ends[block]):
            for j in lanes(width, vectors, whole=True):
                for c in where(j, near[i, j] <= radius):
                    k = place[block, c]
                    index[k] = vertex[i]
                    distance[k] = encode(near[i, c])
                    place[block, c] = k + 1
        row = ends[block]


@kernel
def length(i, j, whole, single, real):
    """A label in float64."""
    if whole is not None:
        x = f64(whole[i, j])
    elif single is not None:
        x = f64(single[i, j])
    else:
        x = real[i, j]
    return x


@kernel
def lengths(i, width, vectors, whole, single, real, value):
    """Distances of a row in float64, and their ⊗, the decay."""
    for j in lanes(width, vectors, whole=True):
        x = length(i, j, whole, single, real)
        value[0, j] = x
        value[1, j] = mul(x, one)


@kernel
def add_at_vertices(
    begin: i64, end: i64, rows: i64, width: static, vectors: static, alone: static, radii: i64,
    amounts: i64, ends: i64[end], vertex: i32[:], whole: i32[:, width], single: f32[:, width],
    real: f64[:, width], radius: f64[radii], weight: f64[amounts, end, width], value: T[2, width],
    total: f64[:, radii, amounts],
):  # fmt: skip
    """Each vertex sums up weight times decay of the sources that reach it, of each radius.

    ⊗ is the decay. Rows are those that `reach` has found, the last block's up to `rows`. `alone`:
    there is one radius and one weight, so that nothing need be kept.
    """
    row = 0
    for block in range(begin, end):
        stop = rows if block == end - 1 else ends[block]
        for i in range(row, stop):
            v = i64(vertex[i])
            if alone:
                for j in lanes(width, vectors, whole=True):
                    x = length(i, j, whole, single, real)
                    part = mul(x, one) * weight[0, block, j]
                    part = part if x <= radius[0] else 0.0
                    total[v, 0, 0] += across(part, sum)
            else:
                lengths(i, width, vectors, whole, single, real, value)
                for r in range(radii):
                    for a in range(amounts):
                        for j in lanes(width, vectors, whole=True):
                            part = value[1, j] * weight[a, block, j]
                            part = part if value[0, j] <= radius[r] else 0.0
                            total[v, r, a] += across(part, sum)
        row = stop


@kernel
def add_at_sources(
    begin: i64, end: i64, rows: i64, width: static, vectors: static, radii: i64, amounts: i64,
    ends: i64[end], vertex: i32[:], whole: i32[:, width], single: f32[:, width],
    real: f64[:, width], radius: f64[radii], weight: f64[amounts, :], value: T[2, width],
    total: f64[end, radii, amounts, width],
):  # fmt: skip
    """The same of each source, over the vertices that it reaches."""
    row = 0
    for block in range(begin, end):
        stop = rows if block == end - 1 else ends[block]
        for i in range(row, stop):
            lengths(i, width, vectors, whole, single, real, value)
            v = i64(vertex[i])
            for r in range(radii):
                for a in range(amounts):
                    amount = weight[a, v]
                    for j in lanes(width, vectors, whole=True):
                        part = value[1, j] * amount if value[0, j] <= radius[r] else 0.0
                        total[block, r, a, j] += part
        row = stop
