"""From known distances to the search that has them: sums, the order of the nodes, shortest paths.

Rows are sources. Arcs lead from node v to ``head[e]`` for e from ``first[v]`` to ``first[v + 1]``.
"""

from __future__ import annotations

from ...kernel import f64, i32, i64, kernel, static


@kernel
def settle(
    n: i64, rows: i64, first: i64[n + 1], near: i64[rows, n], head: i32[first[n]],
    weight: f64[first[n]], d: f64[rows, n],
):  # fmt: skip
    """d[u] ← min(d[u], d[v] + w) for all edges (v, u) until nothing changes.

    ``near`` has the nodes in about the order of their distances.
    """
    for row in range(rows):
        label, order = d[row], near[row]
        changed = True
        while changed:
            changed = False
            for i in range(n):
                v = order[i]
                here = label[v]
                for e in range(first[v], first[v + 1]):
                    u = head[e]
                    through = here + weight[e]
                    if through < label[u]:
                        label[u] = through
                        changed = True


@kernel
def put(u, before, line, tree, group, slot):
    """Put a node into the next slot of its group."""
    tree[u] = before
    place = group[u]
    free = slot[place]
    line[free] = u
    slot[place] = free + 1


@kernel
def order(
    n: i64, rows: i64, source: i64[rows] < n, first: i64[n + 1], head: i32[first[n]],
    weight: f64[first[n]], d: f64[rows, n], group: i64[rows, n], slot: i64[rows, n],
    order: i32[rows, n], pred: i32[rows, n],
):  # fmt: skip
    """Fill ``order`` and ``pred``, which hold -1; nodes of a ``group`` take its next ``slot``.

    The predecessor of a node is the first in order that attains its distance.
    """
    for row in range(rows):
        label, line, tree = d[row], order[row], pred[row]
        groups, slots = group[row], slot[row]
        put(source[row], source[row], line, tree, groups, slots)
        i = 0
        while i < n and line[i] >= 0:
            v = line[i]
            here = label[v]
            for e in range(first[v], first[v + 1]):
                u = head[e]
                if (tree[u] < 0) & (here + weight[e] == label[u]):
                    put(u, v, line, tree, groups, slots)
            i += 1


@kernel
def dependencies(
    n: i64, rows: i64, m: i64, late: static, source: i64[rows] < n, first: i64[n + 1],
    head: i32[first[n]], weight: f64[first[n]], back_first: i64[n + 1], edge: i64[first[n]] < m,
    tail: i32[first[n]], back_weight: f64[first[n]], order: i32[rows, n], pred: i32[rows, n],
    d: f64[rows, n], sigma: f64[rows, n], delta: f64[rows, n], share: f64[rows, m],
):  # fmt: skip
    """Dependencies of each source, in ``delta`` by node and in ``share`` by edge.

    These two and ``sigma``, the numbers of shortest paths, hold zeros. Sums are in the order of
    NetworkX's: ``sigma`` is rounded from 2**53 on. ``tail``, ``back_weight`` and ``edge`` are the
    edges by the node where they end, from ``back_first`` on. `late`: the paths through a node's
    predecessor are added last, as Dijkstra's search does when it settles the node, else in order.
    """
    for row in range(rows):
        label, line, tree = d[row], order[row], pred[row]
        paths, depend, shares = sigma[row], delta[row], share[row]
        paths[source[row]] = 1.0
        i = 0
        while i < n and line[i] >= 0:
            v = line[i]
            if late and v != source[row]:
                paths[v] += paths[tree[v]]
            for e in range(first[v], first[v + 1]):
                u = head[e]
                if label[v] + weight[e] == label[u] and not (late and tree[u] == v):
                    paths[u] += paths[v]
            i += 1
        while i > 0:
            i -= 1
            u = line[i]
            part = (depend[u] + 1.0) / paths[u]
            for e in range(back_first[u], back_first[u + 1]):
                v = tail[e]
                if label[v] + back_weight[e] == label[u]:
                    term = paths[v] * part
                    depend[v] += term
                    shares[edge[e]] = term
