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
    e, low, g, single, one, one_power, two, two_power, whole, whole_power, load, one_load, two_load
):  # fmt: skip
    """The legs of a triangle receive their share of the load of its edge.

    With `single` that is all, unless there is an edge of the graph that carries it.
    """
    if single:
        if whole[e] == 0.0:
            part = load[e]
            load[e] = 0.0
            one_load[low] += part
            two_load[g] += part
    else:
        paths, power = times(one[low], one_power[low], two[g], two_power[g], True)
        if paths > 0.0:
            part = load[e] * quotient(paths, power, whole[e], whole_power[e], True)
            one_load[low] += part
            two_load[g] += part


@kernel
def reverse_customization(
    n: i64, slack: T, single: static, first: i64[n + 1], head: i32[first[-1]], low_first: i64[:],
    low_edge: i64[:], low_tail: i32[low_edge.size], place: i64[:], out: T[head.size],
    back: T[head.size], out_count: f64[head.size], back_count: f64[head.size],
    out_power: f64[head.size], back_power: f64[head.size], out_load: f64[head.size],
    back_load: f64[head.size],
):  # fmt: skip
    """Hand the loads of all edges to the legs of the triangles that attain their weights.

    With `single` the counts are 1 where there is an edge of the graph of that weight, which keeps
    its load, and else 0: then one triangle carries all.
    """
    for v in range(n - 1, -1, -1):
        for e in range(first[v], first[v + 1]):
            place[head[e]] = e
        for k in range(low_first[v], low_first[v + 1]):
            low = low_edge[k]
            for g in range(low + 1, first[low_tail[k] + 1]):
                e = place[head[g]]
                if out_load[e] != 0.0 and mul(back[low], out[g]) <= out[e] + slack:
                    hand_down(
                        e, low, g, single, back_count, back_power, out_count, out_power, out_count,
                        out_power, out_load, back_load, out_load,
                    )  # fmt: skip
                if back_load[e] != 0.0 and mul(back[g], out[low]) <= back[e] + slack:
                    hand_down(
                        e, low, g, single, out_count, out_power, back_count, back_power, back_count,
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
def ancestors_of(eliminated, begin, end, target, parent, chain):
    """The targets from `begin` to `end`, ascending, and their ancestors, ascending; their number.

    Subtrees are ranges: a parent beyond the next target is an ancestor of that one, too.
    """
    count, t = 0, begin
    v = eliminated
    if t < end:
        v = target[t]
    while v < eliminated:
        chain[count] = v
        count += 1
        after = i64(parent[v])
        if t < end and target[t] == v:
            t += 1
        if t < end:
            after = min(after, target[t])
        v = after
    return count


@kernel
def enter(
    v, row, met, entry, width, vectors, wide, stress, slack, source, entry_first, entry_lane,
    amount, first, slot, back, back_count, back_power, up_label, up_paths, up_power, label, paths,
    power, demand, peak, ends, lost,
):  # fmt: skip
    """Distances and numbers of paths to a vertex, from those of its ancestors, and its demand.

    `met`: the row of its labels on the way up; -1: there are none. `entry`: its place among the
    targets; -1: it is none.
    """
    for j in lanes(width, vectors, whole=True):
        best = up_label[met, j] if met >= 0 else zero
        for e in range(first[v], first[v + 1]):
            best = add(best, mul(label[slot[e], j], back[e]))
        given = each(1.0 if (entry >= 0) & (amount is None) else 0.0)
        if paths is None:
            given = given if better(best, zero) else 0.0
        else:
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
            paths[row, j] = count
            if wide:
                power[row, j] = top
            most = peak[j]
            peak[j] = most if most > count else count
            if stress:
                given = given * count
            given = given if count > 0.0 else 0.0
        label[row, j] = best
        demand[row, j] = given
        ends[v] += across(given, sum)
    if amount is not None:  # noqa: SIM102 - decided when it is compiled
        if entry >= 0:
            for k in range(entry_first[entry], entry_first[entry + 1]):
                lane = entry_lane[k]
                if better(label[row, lane], zero):
                    demand[row, lane] = amount[k]
                    ends[v] += amount[k]
                else:
                    lost[0] += amount[k]
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
    """The demand of a vertex is handed to its ancestors and edges, and to its labels going up.

    Without numbers of paths one of them receives all.
    """
    for j in lanes(width, vectors, whole=True):
        limit = label[row, j] + slack
        wanted = demand[row, j]
        if paths is None:
            if met >= 0:
                tie = up_label[met, j] <= limit
                up_demand[met, j] = wanted if tie else 0.0
                wanted = 0.0 if tie else wanted
            for e in range(first[v], first[v + 1]):
                u = slot[e]
                tie = (mul(label[u, j], back[e]) <= limit) & (wanted != 0.0)
                if across(tie, any):
                    part = wanted if tie else 0.0
                    demand[u, j] += part
                    back_load[e] += across(part, sum)
                    wanted = 0.0 if tie else wanted
        else:
            count, top = paths[row, j], exponents(power, row, j)
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
                    handed = demand[u, j]
                    if paths is None:
                        part = handed if tie else 0.0
                        demand[u, j] = 0.0 if tie else handed
                    else:
                        m, x = through(paths, power, i, j, out_count, out_power, e, wide)
                        part = handed * quotient(
                            m, x, paths[u, j], exponents(power, u, j), wide
                        )  # fmt: skip
                        part = part if tie & (paths[u, j] > 0.0) else 0.0
                    total += part
                    out_load[e] += across(part, sum)
            demand[i, j] = total


@kernel
def reverse_sweeps(
    blocks: i64, eliminated: i64, depth: i64, ancestors: i64, width: static,
    vectors: static, stress: static, slack: T, source: i64[blocks, width + 1],
    bounds: i64[blocks, 2], target: i32[:], entry_first: i64[target.size + 1], entry_lane: i32[:],
    amount: f64[entry_lane.size], chain: i32[eliminated], visited: i32[ancestors],
    place: i32[eliminated], parent: i32[eliminated],
    first: i64[eliminated + 1], head: i32[first[-1]], slot: i32[first[-1]],
    depth_row: i32[eliminated], out: T[slot.size], back: T[slot.size], out_count: f64[slot.size],
    back_count: f64[slot.size], out_power: f64[slot.size], back_power: f64[slot.size],
    label: T[depth, width], paths: f64[depth, width],
    power: f64[depth, width], demand: f64[depth, width], up_label: T[ancestors, width],
    up_paths: f64[ancestors, width], up_power: f64[ancestors, width],
    up_demand: f64[ancestors, width], walk: i32[depth], met_row: i32[depth], peak: f64[width],
    ends: f64[eliminated], lost: f64[1], out_load: f64[slot.size], back_load: f64[slot.size],
):  # fmt: skip
    """Add the loads of edges in the shortest paths from blocks of sources to their targets.

    A block has the targets from ``bounds[block, 0]`` to ``bounds[block, 1]``, ascending. Each
    counts 1 in all lanes or, where there is an ``amount``, those amounts in the lanes of its
    entries. With `stress` a target counts that times the number of paths. Without ``paths`` one
    shortest path carries all. ``ends`` are the demands of each vertex, added up, and ``lost`` the
    amounts to which there is no path. ``peak`` is, of each lane, the largest number of paths;
    unless there is a ``power`` loads are right only if that is below RADIX.
    """
    for block in range(blocks):
        number = ancestors_of(
            eliminated, bounds[block, 0], bounds[block, 1], target, parent, chain
        )  # fmt: skip
        count = forward_solve(
            eliminated, 0, width, vectors, source[block], visited, place, parent, first, head, out,
            None, up_label, None, None, None, None,
        )  # fmt: skip
        for i in range(count):
            for j in lanes(width, vectors, whole=True):
                up_demand[i, j] = 0.0
        if paths is not None:
            count_up(
                count, eliminated, width, vectors, power is not None, slack, source[block], visited,
                place, first, head, out, out_count, out_power, up_label, up_paths, up_power,
            )  # fmt: skip
        left, top, t = count, -1, bounds[block, 1]
        for i in range(number + 1):
            v = 0
            if i < number:
                v = i64(chain[number - 1 - i])
            row = depth_row[v] if i < number else 0
            while top >= row:
                leave(
                    walk[top], top, met_row[top], width, vectors, power is not None, slack, first,
                    slot, back, back_count, back_power, back_load, up_label, up_paths, up_power,
                    up_demand, label, paths, power, demand,
                )  # fmt: skip
                top -= 1
            if i < number:
                met, entry = -1, -1
                while left > 0 and visited[left - 1] > v:
                    left -= 1
                if left > 0 and visited[left - 1] == v:
                    left -= 1
                    met = left
                if t > bounds[block, 0] and target[t - 1] == v:
                    t -= 1
                    entry = t
                enter(
                    v, row, met, entry, width, vectors, power is not None, stress, slack,
                    source[block], entry_first, entry_lane, amount, first, slot, back, back_count,
                    back_power, up_label, up_paths, up_power, label, paths, power, demand, peak,
                    ends, lost,
                )  # fmt: skip
                walk[row] = v
                met_row[row] = met
                top = row
        reverse_up(
            count, width, vectors, power is not None, slack, visited, place, first, head, out,
            out_count, out_power, out_load, up_label, up_paths, up_power, up_demand,
        )  # fmt: skip
