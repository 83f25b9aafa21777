"""Symbolic analysis of sparse eliminations: orders, elimination trees, postorders and fill."""

from __future__ import annotations

from ...kernel import i8, i32, i64, kernel

#: Work of the order for an eliminated vertex, and for each of its neighbours, in steps.
VERTEX, NEIGHBOUR = 64, 8


@kernel
def append(near, place, u, v):
    at = place[u]
    near[at] = v
    place[u] = at + 1


@kernel
def adjacency(
    n: i64, m: i64, first: i64[:], place: i64[:], row: i32[:], col: i32[:], near: i32[:],
    mark: i32[:],
):  # fmt: skip
    """adj(v), the distinct neighbours of each vertex v: ``near`` from ``first[v]`` on.

    ``first``, which is rewritten, counts both ends of every edge, and ``place`` is a copy of it;
    ``row`` differs from ``col``, and ``mark`` holds -1.
    """
    for e in range(m):
        append(near, place, row[e], col[e])
        append(near, place, col[e], row[e])
    kept = 0
    for v in range(n):
        begin, end = first[v], place[v]
        first[v] = kept
        for e in range(begin, end):
            u = near[e]
            if mark[u] != v:
                mark[u] = v
                near[kept] = u
                kept += 1
    first[n] = kept


@kernel
def unlink(v, size, bucket, following, before):
    """Take a vertex from the list of those of its degree."""
    after, ahead = following[v], before[v]
    if ahead >= 0:
        following[ahead] = after
    else:
        bucket[size[v]] = after
    if after >= 0:
        before[after] = ahead


@kernel
def link(v, size, bucket, following, before):
    """Put a vertex into the list of those of its degree."""
    after = bucket[size[v]]
    following[v] = after
    before[v] = -1
    if after >= 0:
        before[after] = v
    bucket[size[v]] = v


@kernel
def minimum_degree(
    n: i64, capacity: i64, sources: i64, least: i64, order_cost: i64, triangle: i64, sweep: i64,
    pair: i64, state: i64[:], begin: i64[:], mark: i64[:], size: i32[:], room: i32[:], pool: i32[:],
    bucket: i32[:], following: i32[:], before: i32[:], order: i32[:], degree: i32[:],
):  # fmt: skip
    """Eliminate vertices of minimum degree until the rest is nearly a clique, or not worth it.

    Where more than ``least`` vertices are left, each has to gain more in the closure of the rest as
    a dense core than it costs: for ``sources`` rows, at the costs of a unit of work here, of a
    triangle, of an edge in a sweep, and of a pair of a dense product.

    The neighbours of a vertex, ``size`` of them, lie in ``pool`` from ``begin`` on, with ``room``
    for so many; a list that outgrows its room moves to the pool's end. ``bucket`` begins the doubly
    linked lists of vertices of each degree. ``state`` holds the vertices eliminated so far, the end
    of the pool, the last stamp, the work left, and why the kernel returned: 0 done, 1 the pool is
    full, 2 no work is left.
    """
    done, free, stamp, granted = state[0], state[1], state[2], state[3]
    why, d = 0, 0
    while done < n:
        while bucket[d] < 0:
            d += 1
        left = n - done
        if 3 * d >= left:
            break
        v = bucket[d]
        begin_v = begin[v]
        end_v = begin_v + d
        needed, work = 0, d * d + VERTEX
        for i in range(begin_v, end_v):
            u = pool[i]
            work += size[u] + NEIGHBOUR
            if size[u] + d > room[u]:
                needed += 2 * (size[u] + d)
        costs = order_cost * work + triangle * d * d + sweep * sources * d
        if left > least and costs > pair * left * (3 * left + 2 * min(sources, done)):
            break
        if free + needed > capacity:
            why = 1
        if granted < work:
            why = 2
        if why != 0:
            break
        granted -= work
        unlink(v, size, bucket, following, before)
        order[done] = v
        degree[done] = d
        done += 1
        for i in range(begin_v, end_v):  # adj(u) ← adj(u) ∪ adj(v) \ {u, v}
            u = pool[i]
            unlink(u, size, bucket, following, before)
            stamp += 1
            old, most = begin[u], size[u] + d
            moves = most > room[u]
            end = free if moves else old
            if moves:
                begin[u] = free
                room[u] = 2 * most
                free += 2 * most
            for j in range(old, old + size[u]):
                w = pool[j]
                mark[w] = stamp
                if w != v:
                    pool[end] = w
                    end += 1
            for j in range(begin_v, end_v):
                w = pool[j]
                if (w != u) & (mark[w] != stamp):
                    pool[end] = w
                    end += 1
            size[u] = end - begin[u]
            link(u, size, bucket, following, before)
        size[v] = 0
        # Neighbours that now have no others than each other go at once: they fill nothing in.
        alike = 0
        for i in range(begin_v, end_v):
            u = pool[i]
            if size[u] == d - 1:
                unlink(u, size, bucket, following, before)
                size[u] = -1
                alike += 1
                order[done] = u
                degree[done] = d - alike
                done += 1
        if alike > 0:
            for i in range(begin_v, end_v):
                u = pool[i]
                if size[u] >= 0:
                    unlink(u, size, bucket, following, before)
                    end = begin[u]
                    for j in range(begin[u], begin[u] + size[u]):
                        w = pool[j]
                        if size[w] >= 0:
                            pool[end] = w
                            end += 1
                    size[u] = end - begin[u]
                    link(u, size, bucket, following, before)
            for i in range(begin_v, end_v):
                u = pool[i]
                if size[u] < 0:
                    size[u] = 0
        d = max(d - 1 - alike, 0)
    state[0], state[1], state[2], state[3], state[4] = done, free, stamp, granted, why


@kernel
def repack(n: i64, begin: i64[:], place: i64[:], size: i32[:], pool: i32[:], larger: i32[:]):
    """Copy the adjacency lists from ``begin`` on in ``pool`` to ``place`` in ``larger``."""
    for v in range(n):
        old, new = begin[v], place[v]
        for i in range(size[v]):
            larger[new + i] = pool[old + i]


@kernel
def elimination_tree(
    n: i64, first: i64[:], near: i32[:], order: i32[:], rank: i32[:], parent: i32[:],
    ancestor: i32[:],
):  # fmt: skip
    """Elimination tree: the parent of each position, n of a root (Liu, 1990).

    ``near`` and ``first`` are the graph's adjacency, ``order`` has the node at each position and
    ``rank`` the position of each node. The root of the subtree of each lower neighbour gets the
    position as its parent; paths of ``ancestor``, which holds n, are compressed.
    """
    for v in range(n):
        parent[v] = n
        node = order[v]
        for e in range(first[node], first[node + 1]):
            u = rank[near[e]]
            if u < v:
                while True:
                    above = ancestor[u]
                    if above == v:
                        break
                    ancestor[u] = v
                    if above == n:
                        parent[u] = v
                        break
                    u = above


@kernel
def postorder(n: i64, size: i64[:], parent: i32[:], position: i32[:], below: i32[:], level: i32[:]):
    """Postorder of a forest whose parents have higher numbers, with sizes of subtrees and heights.

    A parent of n or more is none. ``size`` and ``level`` hold zeros. A subtree ends with its root:
    ``below``, which is scratch, has the last place that is free in the subtree of each.
    """
    for v in range(n):
        size[v] += 1
        up = parent[v]
        if up < n:
            size[up] += size[v]
            level[up] = max(level[up], level[v] + 1)
    end = n - 1
    for v in range(n - 1, -1, -1):
        up = parent[v]
        if up < n:
            place = below[up]
            below[up] = place - size[v]
        else:
            place = end
            end -= size[v]
        position[v] = place
        below[v] = place - 1


@kernel
def add_to_struct(v, u, end, lowest, mark, head):
    """Add a position to struct(v), unless it is v, lower, or in it: the end and the parent."""
    if (u > v) & (mark[u] != v):
        mark[u] = v
        head[end] = u
        end += 1
        lowest = min(lowest, u)
    return end, lowest


@kernel
def symbolic(
    n: i64, stop: i64, capacity: i64, state: i64[:], first: i64[:], near_first: i64[:],
    near: i32[:], order: i32[:], rank: i32[:], child: i32[:], sibling: i32[:], mark: i32[:],
    head: i32[:], parent: i32[:],
):  # fmt: skip
    r"""Symbolic factorization: struct(v) = adj⁺(v) ∪ struct(children) \ {v}.

    struct(v), the higher neighbours of position v after the fill, is ``head`` from ``first[v]`` on,
    and its lowest member is the parent in the elimination tree. Begins with position ``state[0]``.
    ``state[1]`` becomes 1 where ``head`` is full; then the caller makes it longer and goes on.
    """
    v = state[0]
    while v < stop:
        node, end = order[v], first[v]
        needed = near_first[node + 1] - near_first[node]
        c = child[v]
        while c >= 0:
            needed += first[c + 1] - first[c]
            c = sibling[c]
        if end + needed > capacity:
            state[1] = 1
            break
        up = n
        for e in range(near_first[node], near_first[node + 1]):
            end, up = add_to_struct(v, rank[near[e]], end, up, mark, head)
        c = child[v]
        while c >= 0:
            for e in range(first[c], first[c + 1]):
                end, up = add_to_struct(v, head[e], end, up, mark, head)
            c = sibling[c]
        first[v + 1] = end
        parent[v] = up
        if up < n:
            sibling[v] = child[up]
            child[up] = v
        v += 1
    state[0] = v


@kernel
def transpose(n: i64, first: i64[:], place: i64[:], edge: i64[:], head: i32[:], tail: i32[:]):
    """Transpose of a pattern: for each edge by ascending tail, the next ``place`` of its head.

    It receives the tail and the edge.
    """
    for v in range(n):
        for e in range(first[v], first[v + 1]):
            u = head[e]
            at = place[u]
            place[u] = at + 1
            tail[at] = v
            edge[at] = e


@kernel
def locate(m: i64, first: i64[:], slot: i64[:], row: i32[:], col: i32[:], head: i32[:]):
    """Slots of arcs: 2 e of one that leads up edge e, 2 e + 1 of one down, by binary search.

    ``head`` ascends from ``first[v]`` on for each v.
    """
    for i in range(m):
        low, high = min(row[i], col[i]), max(row[i], col[i])
        begin, end = first[low], first[low + 1]
        while end - begin > 1:
            middle = (begin + end) >> 1
            right = head[middle] <= high
            begin = middle if right else begin
            end = end if right else middle
        slot[i] = 2 * begin + (row[i] >= col[i])


@kernel
def totals(n: i64, work: i64[:], size: i64[:], parent: i32[:]):
    """Sums of ``work`` and ``size`` over the descendants of each position; n: no parent."""
    for v in range(n):
        up = parent[v]
        if up < n:
            work[up] += work[v]
            size[up] += size[v]


@kernel
def climb(m: i64, fringe: i64, start: i64[:], parent: i32[:], mark: i8[:]):
    """Mark positions and their ancestors in the elimination tree, below ``fringe``."""
    for i in range(m):
        v = start[i]
        while v < fringe and mark[v] == 0:
            mark[v] = 1
            v = parent[v]
