"""The best path of one pair over a customized elimination.

A best path first goes up to an ancestor of both ends in the elimination tree, or into the core, and
then down (the elimination-tree query of Dibbelt, Strasser and Wagner, 2016). Positions below
``eliminated`` are in the tree; edge e leads from a position up to ``head[e]`` at weight ``out[e]``,
and down from there at ``back[e]``.
"""

from __future__ import annotations

from ...kernel import S, T, add, better, decode, i32, i64, kernel, mul, one, zero


@kernel
def relax_ancestors(start, eliminated, parent, first, head, weight, label, tail, downward):
    """Labels of the ancestors of a position, and where their last edges begin."""
    label[start] = one
    v = start
    while v < eliminated:
        here = label[v]
        if here != zero:  # which may not annihilate; and what has no path has no tail to return to
            for e in range(first[v], first[v + 1]):
                u = head[e]
                through = mul(weight[e], here) if downward else mul(here, weight[e])
                if tail is None:
                    label[u] = add(label[u], through)
                elif better(through, label[u]):
                    label[u] = through
                    tail[u] = v
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
def unpack(
    source, target, top, capacity, room, first, head, low_first, low_edge, low_tail, stack,
    up_tail, down_tail, walk, out, back,
):  # fmt: skip
    """The positions after the source on a path over `top`; their number, or -1 for no room.

    A shortcut is unpacked by the lower triangle whose sides give its weight.
    """
    # the stack has the first edge of the walk on top
    size, u = 0, top
    while u != target:
        size += 1
        u = down_tail[u]
    at, u = size, top
    while u != target:
        at -= 1
        push(stack, at, edge(first, head, down_tail[u], u), down_tail[u], 1)
        u = down_tail[u]
    u = top
    while u != source:
        push(stack, size, edge(first, head, up_tail[u], u), up_tail[u], 0)
        size += 1
        u = up_tail[u]
    steps = 0
    while size > 0:
        if size >= capacity:
            steps = room + 1
        if steps > room:
            break
        size -= 1
        e, downward, a = stack[size, 0] >> 1, stack[size, 0] & 1, stack[size, 1]
        b = head[e]
        whole = back[e] if downward else out[e]
        middle, to_a, to_b = -1, 0, 0
        for k in range(low_first[a], low_first[a + 1]):
            near, far = low_edge[k], edge(first, head, low_tail[k], b)
            if head[far] == b:
                falling, rising = (far if downward else near), (near if downward else far)
                if mul(back[falling], out[rising]) == whole:
                    middle, to_a, to_b = low_tail[k], near, far
                    break
        if middle < 0:
            walk[min(steps, room - 1)] = a if downward else b
            steps += 1
        else:
            push(stack, size, to_a if downward else to_b, middle, 0)
            push(stack, size + 1, to_b if downward else to_a, middle, 1)
            size += 2
    return steps if steps <= room else -1


@kernel
def query(
    n: i64, eliminated: i64, core: i64, ends: i64[2], capacity: i64, room: i64,
    first: i64[eliminated + 1], low_first: i64[n + 1], low_edge: i64[low_first[n]],
    stack: i64[capacity, 2], count: i64[1],
    parent: i32[eliminated], head: i32[first[-1]], low_tail: i32[low_first[n]], up_tail: i32[n],
    down_tail: i32[n], walk: i32[room], out: T[first[-1]], back: T[first[-1]],
    matrix: S[core, core], up: T[n], down: T[n], value: T[1],
):  # fmt: skip
    """Elimination tree query: the weight of a best path between two positions, and the path.

    ``walk`` has the positions after the source, along edges of the graph, and ``count[0]`` their
    number, or -1 if `room` is too little; with None only the weight is computed. There is no walk
    through a core. ``up``, ``down``, ``stack`` of `capacity` rows (three for each level of the tree
    are enough), ``up_tail`` and ``down_tail`` are scratch.
    """
    source, target = ends[0], ends[1]
    for i in range(2):
        v = ends[i]
        while v < eliminated:
            up[v] = zero
            down[v] = zero
            v = parent[v]
    for v in range(eliminated, eliminated + core):
        up[v] = zero
        down[v] = zero
    relax_ancestors(source, eliminated, parent, first, head, out, up, up_tail, False)
    relax_ancestors(target, eliminated, parent, first, head, back, down, down_tail, True)
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
    value[0] = best
    if walk is not None:
        count[0] = 0
        if top >= 0:
            count[0] = unpack(
                source, target, top, capacity, room, first, head, low_first, low_edge, low_tail,
                stack, up_tail, down_tail, walk, out, back,
            )  # fmt: skip
