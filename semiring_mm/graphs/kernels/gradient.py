"""Reverse sweeps over a factor: how much of the shortest paths leads along each of its edges.

Betweenness is the gradient of the sum of distances. Distances L and numbers of shortest paths C
come up and down the elimination tree; then the sweeps run backwards: what a label hands to the
label u and the edge e that it is attained by is its demand times C[u] c[e] / C, for each label that
attains it. Edges add up their loads over all sources; once, at the end, the customization is
reversed, which hands the load of an edge to the triangles that attain its weight.

The pass down and its reverse are one depth-first walk: a vertex is entered from its ancestors and
left after its descendants, so that labels lie on a stack, a row for each depth of the tree.

A number of paths is ``m RADIX**x``: x, a whole number in float64, is None where all are 0, and
m < RADIX is 0 where there is no path, else at least 1. Paths are equally long if their lengths
differ by at most ``slack``.
"""

from __future__ import annotations

from ...kernel import T, across, add, each, f64, i32, i64, kernel, lanes, mul, static, zero
from .factor import forward_solve

RADIX = 2.0**400  #: A power of two, whose square and sums of that are in the range of float64.
_PART = 1 / RADIX


@kernel
def exponent(x, e):
    """Entry e of a list of exponents; 0 of None."""
    return 0.0 if x is None else x[e]


@kernel
def exponents(x, i, j):
    """Entry (i, j) of exponents; 0 of None."""
    return 0.0 if x is None else x[i, j]


@kernel
def times(m, x, n, y, wide):
    """Product of two numbers of paths."""
    product = m * n
    if not wide:
        return product, x
    large = product >= RADIX
    top = x + y + (1.0 if large else 0.0)
    return product * _PART if large else product, top if product > 0.0 else 0.0


@kernel
def plus(m, x, n, y, wide):
    """Sum of two numbers of paths; a part below RADIX**-1 of the other is nothing."""
    if not wide:
        return m + n, x
    top = x if x > y else y
    a = m if x == top else (m * _PART if x == top - 1.0 else 0.0)
    b = n if y == top else (n * _PART if y == top - 1.0 else 0.0)
    total = a + b
    large = total >= RADIX
    return total * _PART if large else total, top + 1.0 if large else top


@kernel
def quotient(m, x, n, y, wide):
    """m RADIX**x / (n RADIX**y), which is at most about 1."""
    part = m / n
    if not wide:
        return part
    return part if x == y else (part * _PART if x == y - 1.0 else 0.0)


@kernel
def join_product(counts, powers, e, one, one_power, f, two, two_power, g):
    """counts[e] += one[f] · two[g]."""
    paths, power = times(one[f], one_power[f], two[g], two_power[g], True)
    paths, power = plus(counts[e], powers[e], paths, power, True)
    counts[e] = paths
    powers[e] = power


@kernel
def count_paths(
    n: i64, slack: T, first: i64[n + 1], head: i32[first[-1]], low_first: i64[:], low_edge: i64[:],
    low_tail: i32[low_edge.size], place: i64[:], out: T[head.size], back: T[head.size],
    out_count: f64[head.size], back_count: f64[head.size], out_power: f64[head.size],
    back_power: f64[head.size],
):  # fmt: skip
    """Numbers of shortest paths of all edges, which begin with those of the graph's own edges.

    ``back_count`` is None where it is ``out_count``; ``place``, an entry for each vertex, is
    scratch.
    """
    down_count = out_count if back_count is None else back_count
    down_power = out_power if back_count is None else back_power
    for v in range(n):
        for e in range(first[v], first[v + 1]):
            place[head[e]] = e
        for k in range(low_first[v], low_first[v + 1]):
            low = low_edge[k]
            for g in range(low + 1, first[low_tail[k] + 1]):
                e = place[head[g]]
                if mul(back[low], out[g]) <= out[e] + slack:
                    join_product(
                        out_count, out_power, e, down_count, down_power, low, out_count, out_power,
                        g,
                    )  # fmt: skip
                if back_count is not None:  # noqa: SIM102 - decided when it is compiled
                    if mul(back[g], out[low]) <= back[e] + slack:
                        join_product(
                            back_count, back_power, e, back_count, back_power, g, out_count,
                            out_power, low,
                        )  # fmt: skip


@kernel
def hand_down(
    e, low, g, one, one_power, two, two_power, whole, whole_power, load, one_load, two_load
):  # fmt: skip
    """The legs of a triangle receive their share of the load of its edge."""
    paths, power = times(one[low], one_power[low], two[g], two_power[g], True)
    if paths > 0.0:
        part = load[e] * quotient(paths, power, whole[e], whole_power[e], True)
        one_load[low] += part
        two_load[g] += part


@kernel
def reverse_customization(
    n: i64, slack: T, first: i64[n + 1], head: i32[first[-1]], low_first: i64[:], low_edge: i64[:],
    low_tail: i32[low_edge.size], place: i64[:], out: T[head.size], back: T[head.size],
    out_count: f64[head.size], back_count: f64[head.size], out_power: f64[head.size],
    back_power: f64[head.size], out_load: f64[head.size], back_load: f64[head.size],
):  # fmt: skip
    """Hand the loads of all edges to the legs of the triangles that attain their weights."""
    for v in range(n - 1, -1, -1):
        for e in range(first[v], first[v + 1]):
            place[head[e]] = e
        for k in range(low_first[v], low_first[v + 1]):
            low = low_edge[k]
            for g in range(low + 1, first[low_tail[k] + 1]):
                e = place[head[g]]
                if out_load[e] > 0.0 and mul(back[low], out[g]) <= out[e] + slack:
                    hand_down(
                        e, low, g, back_count, back_power, out_count, out_power, out_count,
                        out_power, out_load, back_load, out_load,
                    )  # fmt: skip
                if back_load[e] > 0.0 and mul(back[g], out[low]) <= back[e] + slack:
                    hand_down(
                        e, low, g, out_count, out_power, back_count, back_power, back_count,
                        back_power, back_load, out_load, back_load,
                    )  # fmt: skip


@kernel
def through(paths, power, u, j, edge_count, edge_power, e, wide):
    """The number of shortest paths to a row of labels and on along an edge, and its exponent."""
    return times(paths[u, j], exponents(power, u, j), edge_count[e], exponent(edge_power, e), wide)


@kernel
def count_up(
    count, eliminated, width, vectors, wide, slack, source, visited, place, first, head, out,
    out_count, out_power, label, paths, power,
):  # fmt: skip
    """Numbers of shortest paths up from the sources to their ancestors, whose labels are there."""
    for i in range(count):
        for j in lanes(width, vectors, whole=True):
            paths[i, j] = 0.0
            if wide:
                power[i, j] = 0.0
    for lane in range(width):
        if source[lane] < eliminated:
            paths[place[source[lane]], lane] = 1.0
    for i in range(count):
        v = visited[i]
        for e in range(first[v], first[v + 1]):
            u = place[head[e]]
            for j in lanes(width, vectors, whole=True):
                tie = mul(label[i, j], out[e]) <= label[u, j] + slack
                if across(tie, any):
                    m, x = through(paths, power, i, j, out_count, out_power, e, wide)
                    total, top = plus(
                        paths[u, j], exponents(power, u, j), m if tie else 0.0, x if tie else 0.0,
                        wide,
                    )  # fmt: skip
                    paths[u, j] = total
                    if wide:
                        power[u, j] = top


@kernel
def enter(
    v, row, met, width, vectors, wide, stress, slack, source, seed, first, slot, back, back_count,
    back_power, up_label, up_paths, up_power, label, paths, power, demand, peak, ends,
):  # fmt: skip
    """Distances and numbers of paths to a vertex, from those of its ancestors, and its demand.

    `met`: the row of its labels on the way up; -1: there are none.
    """
    for j in lanes(width, vectors, whole=True):
        best = up_label[met, j] if met >= 0 else zero
        for e in range(first[v], first[v + 1]):
            best = add(best, mul(label[slot[e], j], back[e]))
        limit = best + slack
        count, top = each(f64(0)), each(f64(0))
        if met >= 0:
            count = up_paths[met, j] if up_label[met, j] <= limit else 0.0
            if wide:
                top = up_power[met, j] if up_label[met, j] <= limit else 0.0
        for e in range(first[v], first[v + 1]):
            u = slot[e]
            tie = mul(label[u, j], back[e]) <= limit
            if across(tie, any):
                m, x = through(paths, power, u, j, back_count, back_power, e, wide)
                m = m if tie else 0.0
                count, top = plus(count, top, m, x if tie else 0.0, wide)
        label[row, j] = best
        paths[row, j] = count
        if wide:
            power[row, j] = top
        most = peak[j]
        peak[j] = most if most > count else count
        given = 1.0 if seed is None else seed[v]
        asked = given * count if stress else given
        wanted = asked if count > 0.0 else 0.0
        demand[row, j] = wanted
        ends[v] += across(wanted, sum)
    if met >= 0:
        for lane in range(width):
            if source[lane] == v:
                ends[v] -= demand[row, lane]
                demand[row, lane] = 0.0


@kernel
def leave(
    v, row, met, width, vectors, wide, slack, first, slot, back, back_count, back_power, back_load,
    up_label, up_paths, up_power, up_demand, label, paths, power, demand,
):  # fmt: skip
    """The demand of a vertex is handed to its ancestors and edges, and to its labels going up."""
    for j in lanes(width, vectors, whole=True):
        limit = label[row, j] + slack
        count, top = paths[row, j], exponents(power, row, j)
        wanted = demand[row, j]
        if not wide:
            wanted = wanted / count if count > 0.0 else 0.0
        for e in range(first[v], first[v + 1]):
            u = slot[e]
            tie = mul(label[u, j], back[e]) <= limit
            if across(tie, any):
                m, x = through(paths, power, u, j, back_count, back_power, e, wide)
                part = wanted * (quotient(m, x, count, top, wide) if wide else m)
                part = part if tie & (count > 0.0) else 0.0
                demand[u, j] += part
                back_load[e] += across(part, sum)
        if met >= 0:
            m, x = up_paths[met, j], exponents(up_power, met, j)
            part = wanted * (quotient(m, x, count, top, wide) if wide else m)
            up_demand[met, j] = part if (up_label[met, j] <= limit) & (count > 0.0) else 0.0


@kernel
def reverse_up(
    count, width, vectors, wide, slack, visited, place, first, head, out, out_count, out_power,
    out_load, label, paths, power, demand,
):  # fmt: skip
    """The demands of ancestors go down to the sources, along edges that attain their labels."""
    for k in range(count):
        i = count - 1 - k
        v = visited[i]
        for j in lanes(width, vectors, whole=True):
            total = demand[i, j]
            for e in range(first[v], first[v + 1]):
                u = place[head[e]]
                tie = mul(label[i, j], out[e]) <= label[u, j] + slack
                if across(tie, any):
                    m, x = through(paths, power, i, j, out_count, out_power, e, wide)
                    part = demand[u, j] * quotient(m, x, paths[u, j], exponents(power, u, j), wide)
                    part = part if tie & (paths[u, j] > 0.0) else 0.0
                    total += part
                    out_load[e] += across(part, sum)
            demand[i, j] = total


@kernel
def reverse_sweeps(
    begin: i64, end: i64, eliminated: i64, depth: i64, ancestors: i64, width: static,
    vectors: static, stress: static, slack: T, source: i64[end, width + 1],
    visited: i32[ancestors], place: i32[eliminated], parent: i32[eliminated],
    first: i64[eliminated + 1], head: i32[first[-1]], slot: i32[first[-1]],
    depth_row: i32[eliminated], out: T[slot.size], back: T[slot.size], out_count: f64[slot.size],
    back_count: f64[slot.size], out_power: f64[slot.size], back_power: f64[slot.size],
    seed: f64[eliminated], label: T[depth, width], paths: f64[depth, width],
    power: f64[depth, width], demand: f64[depth, width], up_label: T[ancestors, width],
    up_paths: f64[ancestors, width], up_power: f64[ancestors, width],
    up_demand: f64[ancestors, width], walk: i32[depth], met_row: i32[depth], peak: f64[width],
    ends: f64[eliminated], out_load: f64[slot.size], back_load: f64[slot.size],
):  # fmt: skip
    """Add the loads of edges in the shortest paths from blocks of sources to all vertices.

    A vertex counts ``seed`` as a target, or 1; with `stress` that times the number of paths.
    ``ends`` are the demands of each vertex, added up. ``peak`` is, of each lane, the largest number
    of paths; unless there is a ``power`` loads are right only if that is below RADIX.
    """
    for block in range(begin, end):
        count = forward_solve(
            eliminated, 0, width, vectors, source[block], visited, place, parent, first, head, out,
            None, up_label, None,
        )  # fmt: skip
        count_up(
            count, eliminated, width, vectors, power is not None, slack, source[block], visited,
            place, first, head, out, out_count, out_power, up_label, up_paths, up_power,
        )  # fmt: skip
        left, top = count, -1
        for i in range(eliminated + 1):
            v = eliminated - 1 - i
            row = depth_row[v] if i < eliminated else 0
            while top >= row:
                leave(
                    walk[top], top, met_row[top], width, vectors, power is not None, slack, first,
                    slot, back, back_count, back_power, back_load, up_label, up_paths, up_power,
                    up_demand, label, paths, power, demand,
                )  # fmt: skip
                top -= 1
            if i < eliminated:
                met = -1
                if left > 0 and visited[left - 1] == v:
                    left -= 1
                    met = left
                enter(
                    v, row, met, width, vectors, power is not None, stress, slack, source[block],
                    seed, first, slot, back, back_count, back_power, up_label, up_paths, up_power,
                    label, paths, power, demand, peak, ends,
                )  # fmt: skip
                walk[row] = v
                met_row[row] = met
                top = row
        reverse_up(
            count, width, vectors, power is not None, slack, visited, place, first, head, out,
            out_count, out_power, out_load, up_label, up_paths, up_power, up_demand,
        )  # fmt: skip
