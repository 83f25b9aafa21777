"""Symbolic analysis of sparse eliminations: orders, elimination trees, postorders and fill.

:class:`semiring_mm.graph_kernels.Elimination` has what the arguments are.
"""

from __future__ import annotations

from ...kernel import I, i8, i32, i64, kernel

#: Work of the order for an eliminated vertex, and for each of its neighbours, in steps.
VERTEX, NEIGHBOUR = 64, 8
HUB = 64  #: Degree from which a list of neighbours is not searched


@kernel
def append(near, first, u, v):
    """Put an entry behind those of list u, whose end is at u + 1."""
    at = first[u + 1]
    near[at] = v
    first[u + 1] = at + 1


@kernel
def ends_of(n, first):
    """Where lists begin, each at one place more than its number, from their lengths, at two."""
    for v in range(n):
        first[v + 1] += first[v]


@kernel
def adjacency(
    n: i64, m: i64, row: I[m] < n, col: I[m] < n, first: i64[n + 2], near: i32[2 * m],
    mark: i32[n],
):  # fmt: skip
    """Distinct neighbours of each vertex: adj(v) is ``near`` from ``first[v]`` on."""
    for v in range(n + 2):
        first[v] = 0
    for v in range(n):
        mark[v] = -1
    for e in range(m):
        if row[e] != col[e]:
            first[row[e] + 2] += 1
            first[col[e] + 2] += 1
    ends_of(n, first)
    for e in range(m):
        if row[e] != col[e]:
            append(near, first, row[e], col[e])
            append(near, first, col[e], row[e])
    kept, begin = 0, 0
    for v in range(n):
        end = first[v + 1]
        first[v] = kept
        for e in range(begin, end):
            u = near[e]
            if mark[u] != v:
                mark[u] = v
                near[kept] = u
                kept += 1
        begin = end
    first[n] = kept


@kernel
def bypass(u, v, w, first, near, size):
    """Put w in the place of v among the neighbours of u, or nothing where w < 0 or is one."""
    at, there = 0, w < 0
    for e in range(first[u], first[u] + size[u]):
        if near[e] == v:
            at = e
        there = there | (near[e] == w)
    near[at] = w
    if there:
        size[u] -= 1
        near[at] = near[first[u] + size[u]]


@kernel
def contract(
    n: i64, first: i64[n + 1], near: i32[first[n]], size: i32[n], turn: i32[n], lists: i32[2, n],
    order: i32[n], degree: i32[n],
) -> i64:  # fmt: skip
    """Eliminate vertices of degrees 0, 1 and 2 but for those next to a hub; return their number.

    In each round no two are neighbours, so that a chain becomes a tree of logarithmic height.
    ``near``, of which each vertex has the first ``size``, is then the graph of the others, where
    ``size`` is not negative.
    """
    now, later = lists[0], lists[1]
    done, round_ = 0, 0
    for v in range(n):
        size[v] = first[v + 1] - first[v]
        turn[v] = 0
    for most in range(1, 3):  # trees that hang on a node first: they fill nothing in
        count = 0
        for v in range(n):
            if (size[v] >= 0) & (size[v] <= most):
                now[count] = v
                count += 1
        while count > 0:
            round_ += 1
            waiting = 0
            for i in range(count):
                v = now[i]
                d, at, hub = size[v], first[v], False
                for e in range(at, at + d):
                    hub = hub | (size[near[e]] > HUB)
                if turn[v] == round_:
                    later[waiting] = v
                    waiting += 1
                elif not hub:
                    order[done] = v
                    degree[done] = d
                    done += 1
                    size[v] = -1
                    for k in range(d):
                        u, w = near[at + k], near[at + 1 - k] if d == 2 else -1
                        turn[u] = round_
                        before = size[u]
                        bypass(u, v, w, first, near, size)
                        if (before > most) & (size[u] == most):
                            later[waiting] = u
                            waiting += 1
            now, later, count = later, now, waiting
    return done


@kernel
def induced(
    n: i64, least: i64, begin: i64[n], size: i32[n], near: i32[:], place: i32[n], nodes: i32[n],
    first: i64[n + 1], beside: i32[near.size],
) -> i64:  # fmt: skip
    """Induced subgraph of vertices of at least some degree, by new numbers; return how many."""
    count, end = 0, 0
    for v in range(n):
        if size[v] >= least:
            place[v] = count
            nodes[count] = v
            count += 1
    for i in range(count):
        v = nodes[i]
        first[i] = end
        for e in range(begin[v], begin[v] + size[v]):
            beside[end] = place[near[e]]
            end += 1
    first[count] = end
    return count


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
def packed(n, begin, size, room, old, new):
    """Copy lists to new memory, each with half of its size to spare; return where that ends."""
    free = 0
    for v in range(n):
        at = begin[v]
        begin[v] = free
        for i in range(size[v]):
            new[free + i] = old[at + i]
        room[v] = size[v] + (size[v] >> 1) + 4 if size[v] > 0 else 0
        free += room[v]
    return free


@kernel
def begin_degrees(
    n: i64, state: i64[5], first: i64[n + 1], near: i32[first[n]], begin: i64[n], size: i32[n],
    room: i32[n], pool: i32[:], mark: i64[n], bucket: i32[n + 1], following: i32[n + 1],
    before: i32[n + 1],
):  # fmt: skip
    """Lists of the neighbours, with room to grow, and of the vertices of each degree, ascending."""
    for v in range(n + 1):
        bucket[v] = -1
    for v in range(n):
        begin[v] = first[v]
        size[v] = first[v + 1] - first[v]
        mark[v] = 0
    for v in range(n - 1, -1, -1):
        link(v, size, bucket, following, before)
    state[1] = packed(n, begin, size, room, near, pool)


@kernel
def minimum_degree(
    n: i64, capacity: i64, low: i64, contracted: i64, sources: i64, least: i64, order_cost: i64,
    triangle: i64, sweep: i64, pair: i64, state: i64[5], begin: i64[n], mark: i64[n], size: i32[n],
    room: i32[n], pool: i32[capacity], bucket: i32[n + 1], following: i32[n + 1],
    before: i32[n + 1], order: i32[n], degree: i32[n],
):  # fmt: skip
    """Minimum degree order: eliminate vertices until the rest is a clique, or not worth it.

    A list of neighbours that outgrows its room moves to the end of the pool. It also stops where
    all degrees exceed ``low``. Some vertices have been ``contracted`` before.
    """
    done, free, stamp, granted = state[0], state[1], state[2], state[3]
    why, d = 0, 0
    while done < n:
        while bucket[d] < 0:
            d += 1
        left = n - done
        if 3 * d >= left:
            break
        if d > low:
            why = 3
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
        if left > least and costs > pair * left * (3 * left + 2 * min(sources, contracted + done)):
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
def repack(
    n: i64, state: i64[5], begin: i64[n], size: i32[n], room: i32[n], pool: i32[:], larger: i32[:]
):
    """Copy the lists to new memory."""
    state[1] = packed(n, begin, size, room, pool, larger)


@kernel
def tree_of(n, first, near, order, rank, parent, ancestor):
    """Elimination tree: the parent of each position (Liu, 1990).

    The root of the subtree of each lower neighbour gets the position as its parent. Paths of
    ``ancestor`` are compressed.
    """
    for v in range(n):
        parent[v] = n
        ancestor[v] = n
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
def postorder(n, size, parent, position, below, height):
    """Postorder of a forest, sizes of subtrees, and heights.

    A subtree ends with its root: ``below`` has the last place that is free in the subtree of each.
    """
    for v in range(n):
        size[v] = 1
        height[v] = 0
    for v in range(n):
        up = parent[v]
        if up < n:
            size[up] += size[v]
            height[up] = max(height[up], height[v] + 1)
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
def elimination_tree(
    n: i64, eliminated: i64, first: i64[n + 1], near: i32[first[n]], given: i32[n] < n,
    order: i32[n], rank: i32[n], parent: i32[eliminated], height: i32[eliminated],
    scratch: i32[6, n],
):  # fmt: skip
    """Elimination tree of an order that is ``given``, in an order that is a postorder of it."""
    up, ancestor, size, below = scratch[0], scratch[1], scratch[2], scratch[3]
    position, tall = scratch[4], scratch[5]
    for v in range(n):
        rank[given[v]] = v
    tree_of(n, first, near, given, rank, up, ancestor)
    postorder(eliminated, size, up, position, below, tall)
    for v in range(eliminated):
        place = position[v]
        order[place] = given[v]
        parent[place] = position[up[v]] if up[v] < eliminated else up[v]
        height[place] = tall[v]
    for v in range(eliminated, n):
        order[v] = given[v]
    for v in range(n):
        rank[order[v]] = v


@kernel
def add_to_struct(v, u, end, mark, head):
    """Add a position to struct(v), unless it is v, lower, or in it; return its end."""
    if (u > v) & (mark[u] != v):
        mark[u] = v
        head[end] = u
        end += 1
    return end


@kernel
def symbolic(
    n: i64, stop: i64, capacity: i64, state: i64[2], first: i64[stop + 1], near_first: i64[n + 1],
    near: i32[near_first[n]], order: i32[n] < n, rank: i32[n] < n, child: i32[n], sibling: i32[n],
    mark: i32[n], head: i32[capacity], parent: i32[stop],
):  # fmt: skip
    r"""Symbolic factorization: struct(v) = adj⁺(v) ∪ struct(children) \ {v}.

    It stops where ``capacity`` is too little.
    """
    v = state[0]
    if v == 0:
        first[0] = 0
        for u in range(n):
            mark[u] = -1
            child[u] = -1
            sibling[u] = -1
    while v < stop:
        node, end, up = order[v], first[v], parent[v]
        needed = near_first[node + 1] - near_first[node]
        c = child[v]
        while c >= 0:
            needed += first[c + 1] - first[c]
            c = sibling[c]
        if end + needed > capacity:
            state[1] = 1
            break
        for e in range(near_first[node], near_first[node + 1]):
            end = add_to_struct(v, rank[near[e]], end, mark, head)
        c = child[v]
        while c >= 0:
            for e in range(first[c], first[c + 1]):
                end = add_to_struct(v, head[e], end, mark, head)
            c = sibling[c]
        first[v + 1] = end
        if up < n:
            sibling[v] = child[up]
            child[up] = v
        v += 1
    state[0] = v


@kernel
def transpose(
    n: i64, rows: i64, first: i64[rows + 1], head: i32[first[rows]] < n, begin: i64[n + 2],
    edge: i64[first[rows]], tail: i32[first[rows]],
):  # fmt: skip
    """Transpose of a pattern: counting sort of the edges by their heads; ``begin`` holds zeros."""
    for e in range(first[rows]):
        begin[head[e] + 2] += 1
    ends_of(n, begin)
    for v in range(rows):
        for e in range(first[v], first[v + 1]):
            at = begin[head[e] + 1]
            begin[head[e] + 1] = at + 1
            tail[at] = v
            edge[at] = e


@kernel
def sort_heads(
    n: i64, rows: i64, first: i64[rows + 1], head: i32[first[rows]] < n, begin: i64[n + 2],
    edge: i64[first[rows]], tail: i32[first[rows]], free: i64[rows],
):  # fmt: skip
    """Sort the heads of each row; the edges are then those of the :func:`transpose`."""
    transpose(n, rows, first, head, begin, edge, tail)
    for v in range(rows):
        free[v] = first[v]
    for v in range(n):
        for k in range(begin[v], begin[v + 1]):
            at = free[tail[k]]
            free[tail[k]] = at + 1
            head[at] = v
            edge[k] = at


@kernel
def locate(
    m: i64, eliminated: i64, core: i64, rank: i32[:], first: i64[eliminated + 1],
    head: i32[first[eliminated]], row: i64[m] < rank.size, col: i64[m] < rank.size, slot: i64[m],
):  # fmt: skip
    """Slots of arcs, by binary search among the higher neighbours of the lower end."""
    for i in range(m):
        u, v = rank[row[i]], rank[col[i]]
        low, high = min(u, v), max(u, v)
        if low >= eliminated:
            slot[i] = -1 - ((u - eliminated) * core + v - eliminated)
        else:
            begin, end = first[low], first[low + 1]
            while end - begin > 1:
                middle = (begin + end) >> 1
                right = head[middle] <= high
                begin = middle if right else begin
                end = end if right else middle
            slot[i] = 2 * begin + (u >= v)


@kernel
def subtree_sums(n: i64, work: i64[n], size: i64[n], parent: i32[n]):
    """Sums over the descendants of each position."""
    for v in range(n):
        up = parent[v]
        if up < n:
            work[up] += work[v]
            size[up] += size[v]


@kernel
def mark_ancestors(
    m: i64, eliminated: i64, start: i64[m] < mark.size, parent: i32[eliminated],
    mark: i8[eliminated],
):  # fmt: skip
    """Mark positions and their ancestors in the elimination tree."""
    for i in range(m):
        v = start[i]
        while v < eliminated and mark[v] == 0:
            mark[v] = 1
            v = parent[v]
