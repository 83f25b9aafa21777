"""Spanning forests: Kruskal's joins, Borůvka's rounds, and a preorder.

:class:`semiring_mm.graph_kernels.ForestKernels` has what the arguments are.
"""

from __future__ import annotations

from ...kernel import i32, i64, kernel


@kernel
def find(parent, v):
    """The root of the set of v (union-find); halves the path."""
    while True:
        above = parent[v]
        if above == v:
            return v
        further = parent[above]
        parent[v] = further
        v = further


@kernel
def kruskal(
    n: i64, m: i64, row: i32[m] < n, col: i32[m] < n, parent: i32[n] < n, size: i32[n],
    head: i32[n] < n, tail: i32[n] < n, following: i32[n], after: i32[n], order: i32[n],
    gap: i32[n],
):  # fmt: skip
    """Join parts along edges, the best first (Kruskal, 1956), into a line of nodes.

    ``parent`` is the union-find forest; ``head`` and ``tail`` of a root are the ends of its part in
    the line, which ``following`` links.
    """
    for e in range(m):
        u, v = find(parent, row[e]), find(parent, col[e])
        if u != v:
            swap = size[u] < size[v]
            large = v if swap else u
            small = u if swap else v
            parent[small] = large
            size[large] += size[small]
            end = tail[large]
            following[end] = head[small]
            after[end] = e
            tail[large] = tail[small]
    place = 0
    for v in range(n):
        if parent[v] == v:
            node = head[v]
            while node >= 0:
                order[place] = node
                gap[place] = after[node]
                place += 1
                node = following[node]


@kernel
def is_better(key, i, j):
    """Whether the edge of node i is better than that of node j; j < 0: there is none."""
    return j < 0 or key[i] < key[j]


@kernel
def grow(
    n: i64, state: i64[2], key: i64[n], near: i32[n], group: i32[n] < n, parent: i32[n] < n,
    fresh: i32[n], stale: i32[n], joined: i32[n], rows: i32[n],
):  # fmt: skip
    """Rounds of Borůvka (1926): every part is joined to another by its best edge, if it is known.

    ``fresh`` has of each group the node with the best edge out of it, and ``stale`` that with the
    best one that leads out no more.
    """
    edges = state[0]
    while True:
        for c in range(n):
            fresh[c] = -1
            stale[c] = -1
        for i in range(n):
            if near[i] >= 0:
                c = group[i]
                if group[near[i]] != c:
                    if is_better(key, i, fresh[c]):
                        fresh[c] = i
                elif is_better(key, i, stale[c]):
                    stale[c] = i
        before = edges
        for c in range(n):
            i, j = fresh[c], stale[c]
            if i >= 0 and (j < 0 or key[j] >= key[i]):
                u, v = find(parent, c), find(parent, group[near[i]])
                if u != v:
                    parent[v] = u
                    joined[edges] = i
                    edges += 1
        if edges == before:
            break
        for i in range(n):
            group[i] = find(parent, group[i])
    count = 0
    if edges < n - 1:
        for i in range(n):
            if near[i] >= 0 and group[near[i]] == group[i] and is_better(key, i, fresh[group[i]]):
                rows[count] = i
                count += 1
    state[0], state[1] = edges, count


@kernel
def preorder(
    n: i64, first: i64[n + 1], near: i32[first[n]] < n, order: i32[n], above: i32[n], up: i32[n],
    last: i32[n],
):  # fmt: skip
    """The nodes of a forest in preorder, with the parent and the end of the subtree of each."""
    place = 0
    for root in range(n):
        if above[root] == -2:
            # The end of `order` is the stack of nodes that are met but have no place yet.
            top = n - 1
            order[top] = root
            above[root] = -1
            while top < n:
                v = order[top]
                top += 1
                order[place] = v
                up[place] = above[v]
                last[place] = place + 1
                for e in range(first[v], first[v + 1]):
                    u = near[e]
                    if above[u] == -2:
                        above[u] = place
                        top -= 1
                        order[top] = u
                place += 1
    for v in range(n - 1, -1, -1):
        if up[v] >= 0:
            last[up[v]] = max(last[up[v]], last[v])
