"""Best paths from one node after the other: Dijkstra's search with a 4-ary heap."""

from __future__ import annotations

from ...kernel import T, better, i32, i64, kernel, mul, one, zero

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
    n: i64, rows: i64, most: i64, open: i64[1], source: i64[rows] < n, first: i64[n + 1],
    head: i32[first[n]], node: i32[first[n] + 1], pred: i32[rows, n], weight: T[first[n]],
    label: T[rows, n], key: T[first[n] + 1],
):  # fmt: skip
    """Best labels from each source, over arcs whose weights are not better than one.

    Labels in the heap never change: a node goes there each time that its label gets better, and
    the last time counts. After `most` nodes the search stops, and the next call goes on:
    ``open[0]`` has the heap's size then. ``node`` and ``key`` have one entry more than arcs.
    """
    for row in range(rows):
        labels = label[row]
        size = open[0]
        taken = 0
        if size == 0:
            for v in range(n):
                labels[v] = zero
                if pred is not None:
                    pred[row, v] = -9999
            labels[source[row]] = one
            node[0] = source[row]
            key[0] = one
            size = 1
        while size != 0 and taken != most:
            taken += 1
            v = node[0]
            here = key[0]
            size -= 1
            if size > 0:
                sink(node, key, node[size], key[size], size)
            if not better(labels[v], here):
                for e in range(first[v], first[v + 1]):
                    u = head[e]
                    through = mul(here, weight[e])
                    if better(through, labels[u]):
                        labels[u] = through
                        if pred is not None:
                            pred[row, u] = v
                        push(node, key, u, through, size)
                        size += 1
        open[0] = size


@kernel
def put(first, head, weight, u, v, value):
    at = first[u] - 1
    first[u] = at
    head[at] = v
    weight[at] = value


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
        put(first, head, weight, row[e], col[e], given[e])
        if both != 0:
            put(first, head, weight, col[e], row[e], given[e])
