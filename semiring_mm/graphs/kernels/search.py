"""From known distances to the search that has them: sums, the order of the nodes, shortest paths.

Rows are sources. Arcs lead from node v to ``head[e]`` for e from ``first[v]`` to ``first[v + 1]``.
"""

from __future__ import annotations

from ...kernel import f64, i32, i64, kernel


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
