"""Best paths between pairs of nodes over a customized elimination.

A best path first goes up to an ancestor of both ends in the elimination tree, or into the core, and
then down (the elimination-tree query of Dibbelt, Strasser and Wagner, 2016). Positions below
``eliminated`` are in the tree; edge e leads from a position up to ``head[e]`` at weight ``out[e]``,
and down from there at ``back[e]``.
"""

from __future__ import annotations

from ...kernel import (
    I,
    S,
    T,
    across,
    add,
    better,
    decode,
    each,
    encode,
    i32,
    i64,
    kernel,
    lanes,
    mul,
    one,
    unrolled,
    zero,
)


@kernel
def relax_ancestors(start, eliminated, parent, first, head, weight, label, downward):
    """Labels of the ancestors of a position, which were zero."""
    label[start] = one
    v = start
    while v < eliminated:
        here = label[v]
        if here != zero:  # which may not annihilate
            for e in range(first[v], first[v + 1]):
                u = head[e]
                through = mul(weight[e], here) if downward else mul(here, weight[e])
                label[u] = add(label[u], through)
        v = parent[v]


@kernel
def edge(first, head, tail, u):
    """The edge from a position up to another one, by bisection; else one of its other edges."""
    lo, hi = first[tail], first[tail + 1]
    while hi - lo > 1:
        middle = (lo + hi) >> 1
        below = head[middle] <= u
        lo, hi = (middle if below else lo), (hi if below else middle)
    return lo


@kernel
def push(stack, at, e, tail, downward):
    """Put an edge on the stack, to be walked up from its tail, or down to it."""
    stack[at, 0] = 2 * e + downward
    stack[at, 1] = tail


@kernel
def trace(stack, size, top, start, parent, first, head, weight, label, way, downward):
    """Put the edges on the stack that lead to the label of `top`, the last one first; their number.

    ``way`` is scratch, for the positions from `start` to `top`.
    """
    count, u = 0, start
    while u != top:
        way[count] = u
        count += 1
        u = parent[u]
    for i in range(count):
        v = way[count - 1 - i]
        e = edge(first, head, v, u)
        if (head[e] == u) & (label[v] != zero):
            through = mul(weight[e], label[v]) if downward else mul(label[v], weight[e])
            if through == label[u]:
                push(stack, size, e, v, downward)
                size += 1
                u = v
    return size


@kernel
def split(e, a, downward, sides, head, low_first, low_edge, low_tail, out, back):
    """Find the lower triangle whose sides give an edge its weight: these, one more than the first.

    -1 stands for no such triangle: the edge is the graph's.
    """
    b = head[e]
    whole = back[e] if downward else out[e]
    sides[0] = -1
    i, j = low_first[a], low_first[b]
    of_a, of_b = low_first[a + 1], low_first[b + 1]
    while (i < of_a) & (j < of_b):
        while (i < of_a - 1) & (low_tail[i] < low_tail[j]):
            i += 1
        while (j < of_b - 1) & (low_tail[j] < low_tail[i]):
            j += 1
        if low_tail[i] == low_tail[j]:
            falling, rising = low_edge[j if downward else i], low_edge[i if downward else j]
            if mul(back[falling], out[rising]) == whole:
                sides[0], sides[1] = low_edge[i] + 1, low_edge[j]
                sides[2] = low_tail[i]
                break
            j += 1
        i += 1


@kernel
def unpack(
    source, target, top, capacity, room, parent, first, head, low_first, low_edge, low_tail, stack,
    at, walk, used, out, back, up, down, sides, both,
):  # fmt: skip
    """The positions after the source on a path over `top`; their number, or -1 for no room.

    They are written from ``walk[at]`` on, and the edges there as ``used`` has them.
    """
    # the stack has the first edge of the walk on top
    size = trace(stack, 0, top, target, parent, first, head, back, down, walk[at:], 1)
    for i in range(size >> 1):
        for k in unrolled(2):
            swapped = stack[i, k]
            stack[i, k] = stack[size - 1 - i, k]
            stack[size - 1 - i, k] = swapped
    size = trace(stack, size, top, source, parent, first, head, out, up, walk[at:], 0)
    steps = 0
    while size > 0:
        if size >= capacity:
            steps = room + 1
        if steps > room:
            break
        size -= 1
        e, downward, a = stack[size, 0] >> 1, stack[size, 0] & 1, stack[size, 1]
        known = sides[e * both + (downward & (both - 1))]
        if known[0] == 0:
            split(e, a, downward, known, head, low_first, low_edge, low_tail, out, back)
        if known[0] < 0:
            here = at + min(steps, room - 1)
            walk[here] = a if downward else head[e]
            if used is not None:
                used[here] = 2 * e + downward
            steps += 1
        else:
            to_a, to_b, middle = known[0] - 1, known[1], known[2]
            push(stack, size, to_a if downward else to_b, middle, 0)
            push(stack, size + 1, to_b if downward else to_a, middle, 1)
            size += 2
    return steps if steps <= room else -1


@kernel
def cut_rings(source, steps, at, walk, used, place):
    """Leave out what a walk does between two visits of a node; the number of steps that are left.

    ``place``, scratch of zeros, has one more than the steps to a node that is on the path.
    """
    place[source] = 1
    kept = 0
    for i in range(at, at + steps):
        v = walk[i]
        if place[v] > 0:
            for j in range(place[v] - 1, kept):
                place[walk[at + j]] = 0
            kept = place[v] - 1
        else:
            walk[at + kept] = v
            if used is not None:
                used[at + kept] = used[i]
            kept += 1
            place[v] = i32(kept + 1)
    place[source] = 0
    for i in range(at, at + kept):
        place[walk[i]] = 0
    return kept


@kernel
def query(
    n: i64, eliminated: i64, core: i64, begin: i64, end: i64, ends: i64[end, 2], capacity: i64,
    room: i64, size: i64, first: i64[eliminated + 1], low_first: i64[n + 1],
    low_edge: i64[low_first[n]], stack: i64[capacity, 2], count: i64[end],
    parent: i32[eliminated], head: i32[first[-1]], low_tail: i32[low_first[n]], walk: i32[size],
    used: I[size], place: i32[n], out: T[first[-1]], back: T[first[-1]], both: i64,
    sides: I[both * head.size, 3], matrix: S[core, core], up: T[n], down: T[n], value: T[end],
) -> i64:  # fmt: skip
    """Elimination tree queries: weights of best paths between pairs of positions, and the paths.

    ``walk`` has the positions after the source of each pair from `begin` to `end`, along edges of
    the graph, one path after the other; with None only weights are computed. ``count`` is their
    number, or -1 if `room` is too little for one. Where less than that is left of the `size` of
    all, the rest of the pairs is not done: the first one of these, or `end`, is returned. There is
    no walk through a core. ``used``, if wanted, has twice the edge of each step, and one more
    downward. With a ``place``, zeros, walks leave out rings, as ties close them. ``up``, ``down``
    and ``stack``, of `capacity` rows (three for each level of the tree are enough), are scratch.
    ``sides`` has what :func:`split` found, for each edge if `both` is 1 and else for both
    directions of it, and zeros.
    """
    at = 0
    for pair in range(begin, end):
        if walk is not None:  # noqa: SIM102 - decided when it is compiled
            if at + room > size:
                return pair
        source, target = ends[pair, 0], ends[pair, 1]
        for i in range(2):
            v = ends[pair, i]
            while v < eliminated:
                up[v] = zero
                down[v] = zero
                v = parent[v]
        for v in range(eliminated, eliminated + core):
            up[v] = zero
            down[v] = zero
        relax_ancestors(source, eliminated, parent, first, head, out, up, False)
        relax_ancestors(target, eliminated, parent, first, head, back, down, True)
        best, top = zero, -1
        v = source
        while v < eliminated:
            there, onward = up[v], down[v]
            whole = mul(there, onward)
            wins = better(whole, best) & (there != zero) & (onward != zero)
            best, top = (whole if wins else best), (v if wins else top)
            v = parent[v]
        for i in range(core):
            there = up[eliminated + i]
            if there != zero:
                for j in range(core):
                    inner = mul(there, decode(matrix[i, j]))
                    best = add(best, mul(inner, down[eliminated + j]))
        value[pair] = best
        if walk is not None:
            steps = 0
            if top >= 0:
                steps = unpack(
                    source, target, top, capacity, room, parent, first, head, low_first, low_edge,
                    low_tail, stack, at, walk, used, out, back, up, down, sides, both,
                )  # fmt: skip
            if place is not None:  # noqa: SIM102 - decided when it is compiled
                if steps > 0:
                    steps = cut_rings(source, steps, at, walk, used, place)
            count[pair] = steps
            at += max(steps, 0)
    return end


@kernel
def common(a, b, count):
    """How many nodes two ways from a root, of `count` nodes at least, have in common."""
    lo, hi = 0, count
    while lo < hi:
        middle = (lo + hi + 1) >> 1
        same = a[middle - 1] == b[middle - 1]
        lo, hi = (middle if same else lo), (hi if same else middle - 1)
    return lo


@kernel
def table(
    low: i64, high: i64, begin: i64, end: i64, sources: i64, targets: i64, eliminated: i64,
    depth: i64, position: i64[sources + targets], count: i64[sources + targets],
    first: i64[eliminated + 1], parent: i32[eliminated], head: i32[first[-1]],
    chain: i32[sources + targets, depth], row: T[sources + targets, depth], out: T[first[-1]],
    back: T[first[-1]], label: T[eliminated], d: S[sources, targets],
):  # fmt: skip
    """Elimination tree queries between positions, where all are eliminated.

    First positions `low` to `high` climb the tree, the sources before the targets: ``chain`` and
    ``row`` receive their ancestors and the labels of these, from the root on, and ``count`` their
    number. Then rows `begin` to `end` of the table are joined from them, which the caller has in
    order. ``label`` is scratch.
    """
    for i in range(low, high):
        v, size = position[i], 0
        while v < eliminated:
            label[v] = zero
            size += 1
            v = parent[v]
        v, count[i] = position[i], size
        if i < sources:
            relax_ancestors(v, eliminated, parent, first, head, out, label, False)
        else:
            relax_ancestors(v, eliminated, parent, first, head, back, label, True)
        while v < eliminated:
            size -= 1
            chain[i, size], row[i, size] = v, label[v]
            v = parent[v]
    for i in range(begin, end):
        for j in range(targets):
            t = sources + j
            best = one
            if position[i] != position[t]:
                shared = common(chain[i], chain[t], min(count[i], count[t]))
                wide = each(zero)
                for k in lanes(shared):
                    wide = add(wide, mul(row[i, k], row[t, k]))
                best = across(wide)
            d[i, j] = encode(best)
