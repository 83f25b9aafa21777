"""Best paths from one node after the other: Dijkstra's search with a 4-ary heap."""

from __future__ import annotations

from ...kernel import I, T, add, better, i32, i64, kernel, mul, one, static, zero

#: What a search returns.
DONE, UNREAD, WRONG, ONE_WAY = range(4)
CHILDREN = 4  # of a node of the heap: fewer levels, and the children share a cache line


@kernel
def better_of(i, a, j, b):
    """The better one of two labels, and its place."""
    second = better(b, a)
    return j if second else i, b if second else a


@kernel
def push(node, key, v, label, size):
    """Put a node into the heap: up from the end to where its parent is no worse."""
    i = size
    while i > 0:
        parent = (i - 1) >> 2
        above = key[parent]
        if not better(label, above):
            break
        node[i] = node[parent]
        key[i] = above
        i = parent
    node[i] = v
    key[i] = label


@kernel
def sink(node, key, v, label, size):
    """Put a node into the heap: down from the top to where no child is better."""
    i = 0
    while True:
        child = i * CHILDREN + 1
        if child >= size:
            break
        best, least = child, key[child]
        if child + CHILDREN <= size:
            left, low = better_of(child, least, child + 1, key[child + 1])
            right, high = better_of(child + 2, key[child + 2], child + 3, key[child + 3])
            best, least = better_of(left, low, right, high)
        else:
            for k in range(child + 1, size):
                other = key[k]
                if better(other, least):
                    best, least = k, other
        if not better(least, label):
            break
        node[i] = node[best]
        key[i] = least
        i = best
    node[i] = v
    key[i] = label


@kernel
def search(
    n: i64, rows: i64, arcs: i64, starts: i64, most: i64, open: i64[2], source: i64[starts],
    first: I[n + 1], head: I[arcs], node: i32[arcs + starts], pred: i32[rows, n], root: i32[n],
    weight: T[arcs], step: T, label: T[rows, n], key: T[arcs + starts], bound: T, both: static,
) -> i64:  # fmt: skip
    """Best labels from each source, over arcs whose weights are not better than one.

    Without ``weight`` all arcs have the weight `step`, and a queue does in place of the heap. Else
    labels in the heap never change: a node goes there each time that its label gets better, and
    the last time counts. Only paths that are better than `bound` are followed. With ``root`` there
    is one row, of the best paths from any source: ``root`` is where each starts.

    Arcs are checked as they are read: WRONG where an index or a weight is not allowed, UNREAD where
    those of some nodes were read for no path of the first row. `both`: arcs lead both ways. They
    are followed as they are listed, and ONE_WAY tells that a path against an arc is better: then
    the lists have to have both directions.

    After `most` nodes the search stops, and the next call goes on: ``open`` has the size of the
    heap then, and the place in the queue.
    """
    unread = DONE
    for row in range(rows):
        labels = label[row]
        size = open[0]
        at = open[1]
        taken = 0
        if size == 0:
            for v in range(n):
                labels[v] = zero
                if pred is not None:
                    pred[row, v] = -9999
                if root is not None:
                    root[v] = -9999
            for i in range(row if root is None else 0, row + 1 if root is None else starts):
                s = source[i]
                if (s < 0) | (s >= n):
                    return WRONG
                if root is not None:
                    root[s] = s
                if better(one, labels[s]):
                    labels[s] = one
                    node[size] = s
                    if weight is not None:
                        key[size] = one
                    size += 1
        while size != at and taken != most:
            taken += 1
            v = node[at]
            here = one
            if weight is None:
                here = labels[v]
                at += 1
            else:
                here = key[0]
                size -= 1
                if size > 0:
                    sink(node, key, node[size], key[size], size)
            if not better(labels[v], here):
                begin, end = first[v], first[v + 1]
                if (begin < 0) | (end < begin) | (end > arcs):
                    return WRONG
                for e in range(begin, end):
                    u = head[e]
                    if (u < 0) | (u >= n):
                        return WRONG
                    by = step
                    if weight is not None:
                        by = weight[e]
                        if better(by, one) | (by != by):
                            return WRONG
                    other = labels[u]
                    if bound is not None:  # one branch: which it takes is hard to predict
                        other = add(other, bound)
                    through = mul(here, by)
                    if better(through, other):
                        labels[u] = through
                        if pred is not None:
                            pred[row, u] = v
                        if root is not None:
                            root[u] = root[v]
                        if weight is None:
                            node[size] = u
                        else:
                            push(node, key, u, through, size)
                        size += 1
                    elif both and better(mul(other, by), here):
                        return ONE_WAY
        open[0] = 0 if size == at else size
        open[1] = 0 if size == at else at
        for v in range(n if size == at else 0):
            if not better(labels[v], zero):
                unread = UNREAD
                if not both:
                    break
                begin, end = first[v], first[v + 1]
                if (begin < 0) | (end < begin) | (end > arcs):
                    return WRONG
                for e in range(begin, end):
                    u = head[e]
                    if (u < 0) | (u >= n):
                        return WRONG
                    by = step
                    if weight is not None:
                        by = weight[e]
                        if better(by, one) | (by != by):
                            return WRONG
                    if better(mul(labels[u], by), zero if bound is None else bound):
                        return ONE_WAY
    return unread


@kernel
def put(first, head, weight, u, v, given, e):
    at = first[u] - 1
    first[u] = at
    head[at] = v
    if weight is not None:
        weight[at] = given[e]


@kernel
def arcs(
    n: i64, m: i64, both: i64, row: i64[m] < n, col: i64[m] < n, first: i64[n + 1],
    head: i32[m * (1 + both)], given: T[m], weight: T[m * (1 + both)],
):  # fmt: skip
    """Counting sort of edges by their source; with `both`, of each edge in both directions.

    ``first``, n + 1, holds zeros.
    """
    for e in range(m):
        first[row[e]] += 1
        if both != 0:
            first[col[e]] += 1
    total = 0
    for v in range(n + 1):
        total += first[v]
        first[v] = total
    for e in range(m - 1, -1, -1):
        put(first, head, weight, row[e], col[e], given, e)
        if both != 0:
            put(first, head, weight, col[e], row[e], given, e)
