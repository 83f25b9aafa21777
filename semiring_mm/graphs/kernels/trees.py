"""Trees of predecessors: rows with cycles, and their repair along edges of shortest paths."""

from __future__ import annotations

from ...kernel import S, T, across, better, decode, each, f64, i32, i64, kernel, lanes, mul, u8

INF = float("inf")
MARGIN = 16.0  # units of rounding that an edge of a path may be off by; more where no path is so


@kernel
def components(n, root, p, state, on_cycle):
    """Where each node's predecessors lead, and the number of other ends than the root.

    ``state`` is 0 if they lead to the root, -2 of nodes without a predecessor, which have no path,
    and k > 0 if they lead to ``on_cycle[k]``: a node on a cycle, or after one without a path.
    """
    for v in range(n):
        state[v] = -1 if p[v] >= 0 else -2
    state[root] = 0
    count = 0
    for v in range(n):
        if state[v] == -1:
            count += 1
            u, last = v, v
            while state[u] == -1:
                state[u] = count
                last = u
                u = p[u]
            end = state[u]
            if end == count:
                on_cycle[count] = u
            elif end == -2:
                on_cycle[count] = last
            else:
                u = v
                while state[u] == count:
                    state[u] = end
                    u = p[u]
                count -= 1
    return count


@kernel
def cyclic(
    n: i64, rows: i64, root: i64[rows] < n, p: i32[rows, n], cyclic: u8[rows], state: i32[n],
    on_cycle: i32[n + 1],
):  # fmt: skip
    """1 for each row with a node whose predecessors do not lead to the root."""
    for row in range(rows):
        cyclic[row] = components(n, root[row], p[row], state, on_cycle) > 0


@kernel
def largest(n, labels):
    """The largest finite distance of a row, whose rounding sums of them have."""
    most = each(f64(0))
    for v in lanes(n):
        size = abs(f64(decode(labels[v])))
        most = size if (size > most) & (size < INF) else most
    return across(most, max)


@kernel
def excess(value, exact, unit):
    """How far a value is from a distance, in units of rounding; infinite where that is exact."""
    off = abs(f64(value) - f64(exact))
    return 0.0 if value == exact else (off / unit if unit > 0.0 else INF)


@kernel
def is_open(start, tree, state):
    """Whether the cycle of a node is there still: no path to another one leads through it."""
    u = start
    if state[start] > 0:
        u = tree[start]
        while (u != start) & (state[u] > 0):
            u = tree[u]
    return ((u == start) & (state[start] > 0)) | (state[u] < 0)


@kernel
def repair(
    n: i64, rows: i64, unit: f64, sums: i64, root: i64[rows] < n, first: i64[n + 1],
    tail: i32[first[n]] < n, weight: S[first[n]], d: S[rows, n], p: i32[rows, n], state: i32[n],
    on_cycle: i32[n + 1], following: i32[n], mark: i32[n], queue: i32[n], label: f64[n],
    lost: i64[rows],
):  # fmt: skip
    """Attach each cycle of a row of predecessors to what leads to its root.

    From the nodes of a cycle a search (Bellman and Ford) goes backwards, along edges that enter
    node v from ``first[v]`` on, to the node that leads to the root by a path of the least excess.
    The nodes of that path get its predecessors, and so all that led to the cycle leads to the root.
    A node that leads there keeps its predecessor, so no new cycle is closed. No excess is negative:
    strict improvements close none among ``following``.

    Parameters
    ----------
    unit, sums
        Of rounding; whether it is that of the largest distance, or else of the distance itself.
    lost
        A node on a cycle to which no path leads; -1: none.
    """
    stamp = 0  # 2 * stamp: labelled in this search, and 1 more: in the queue
    for v in range(n):
        mark[v] = 0
    for row in range(rows):
        labels, tree = d[row], p[row]
        lost[row] = -1
        scale = unit * largest(n, labels) if (sums != 0) & (unit > 0.0) else unit
        count = components(n, root[row], tree, state, on_cycle)
        for k in range(1, count + 1):
            start = on_cycle[k]
            margin = MARGIN
            searching = is_open(start, tree, state)
            while searching:
                stamp += 2
                head, waiting = 0, 0
                u = start
                while waiting == 0 or (u != start and state[u] > 0):
                    label[u] = 0.0
                    following[u] = -1
                    mark[u] = stamp + 1
                    queue[waiting] = u
                    waiting += 1
                    u = tree[u]
                best, goal = INF, -1
                while waiting > 0 and best > 0.0:
                    v = queue[head]
                    head = head + 1 if head + 1 < n else 0
                    waiting -= 1
                    mark[v] = stamp
                    here, exact = label[v], decode(labels[v])
                    each_unit = scale if sums != 0 else scale * abs(f64(exact))
                    for e in range(first[v], first[v + 1]):
                        u = tail[e]
                        leads = state[u]
                        if leads != -2:
                            x = excess(mul(decode(labels[u]), decode(weight[e])), exact, each_unit)
                            through = here + x
                            nearer = (mark[u] < stamp) | (through < label[u])
                            if (x <= margin) & (through < best) & nearer:
                                label[u] = through
                                following[u] = v
                                if leads == 0 or on_cycle[leads] < 0:
                                    best, goal = through, u
                                    mark[u] = stamp
                                elif mark[u] != stamp + 1:
                                    end = head + waiting
                                    queue[end if end < n else end - n] = u
                                    waiting += 1
                                    mark[u] = stamp + 1
                while goal >= 0 and following[goal] >= 0:
                    u = following[goal]
                    tree[u] = goal
                    state[u] = 0
                    goal = u
                    searching = False
                if searching and margin == INF:
                    lost[row] = start
                    searching = False
                margin = margin * margin
            on_cycle[k] = -1


@kernel
def strong_components(
    n: i64, first: i64[n + 1], head: i32[first[n]] < n, at: i64[n], number: i32[n], low: i32[n],
    above: i32[n], stack: i32[n], component: i32[n], top: i32[n],
) -> i64:  # fmt: skip
    """Strongly connected components (Tarjan, 1972), and their number.

    The nodes of a component are below its ``top`` in the tree of a depth-first search, ``above``.
    """
    for v in range(n):
        at[v] = first[v]
        number[v] = 0
        component[v] = -1
    count, seen, size = 0, 0, 0
    for start in range(n):
        v, u = -1, start if number[start] == 0 else -1
        while u >= 0:
            if number[u] == 0:
                seen += 1
                number[u] = seen
                low[u] = seen
                above[u] = v
                stack[size] = u
                size += 1
                v = u
            if at[v] < first[v + 1]:
                u = head[at[v]]
                at[v] += 1
                if number[u] > 0:
                    if component[u] < 0:
                        low[v] = min(low[v], number[u])
                    u = v
            else:
                if low[v] == number[v]:
                    top[count] = v
                    u = -1
                    while u != v:
                        size -= 1
                        u = stack[size]
                        component[u] = count
                    count += 1
                u = above[v]
                if u >= 0:
                    low[u] = min(low[u], low[v])
                v = u
    return count


@kernel
def span(
    n: i64, parts: i64, top: i32[parts] < n, first: i64[n + 1], head: i32[first[n]] < n,
    before: i32[n], queue: i32[n],
):  # fmt: skip
    """Breadth-first search from the top of each component along arcs within it.

    ``before``, which holds -1, becomes the predecessors; that of a top is itself.
    """
    for k in range(parts):
        queue[0] = top[k]
        before[top[k]] = top[k]
        done, size = 0, 1
        while done < size:
            v = queue[done]
            done += 1
            for e in range(first[v], first[v + 1]):
                u = head[e]
                if before[u] < 0:
                    before[u] = v
                    queue[size] = u
                    size += 1


@kernel
def enter(
    n: i64, rows: i64, parts: i64, root: i64[rows] < n, part: i32[n], top: i32[parts] < n,
    before: i32[n], above: i32[n], into: i64[parts + 1], tail: i32[into[parts]] < n,
    head: i32[into[parts]] < n, weight: S[into[parts]], d: S[rows, n], p: i32[rows, n],
    label: T[n], lost: i64[rows],
):  # fmt: skip
    """Attach each component of arcs that weigh one by a single arc of a best path to it.

    All nodes of a component are equally far from the root. From the one where that arc ends, or
    from the root, a path leads to the top, from which a tree leads to all nodes that are not on
    that path.

    Parameters
    ----------
    part, top
        The component of each node, -1 for none, and a node of each component.
    before
        The predecessors in a tree from the top of each component, -1 for nodes of none.
    above
        The node after each one of a component in a tree that leads to the top.
    into, tail, head, weight
        The arcs that lead to each component from elsewhere.
    lost
        A node that has a path, while no arc leads to its component; -1: none.
    """
    for row in range(rows):
        labels, tree, start = d[row], p[row], root[row]
        lost[row] = -1
        # rows are read from end to end, which takes less time than a miss of the caches an entry
        for v in lanes(n):
            label[v] = decode(labels[v])
        for v in lanes(n):
            tree[v] = before[v] if (tree[v] >= 0) & (before[v] >= 0) else tree[v]
        for k in range(parts):
            entry, link = i64(top[k]), -9999
            if part[start] == k:
                entry = start
            elif tree[top[k]] >= 0:
                best, arc = label[entry], -1
                for e in range(into[k], into[k + 1]):  # no branches: they are hard to predict
                    u = tail[e]
                    through = mul(label[u], decode(weight[e]))
                    nearer = (arc < 0) | better(through, best)
                    nearer = nearer & ((tree[u] >= 0) | (u == start))
                    best = through if nearer else best
                    arc = e if nearer else arc
                if arc < 0:
                    lost[row] = entry
                else:
                    entry = i64(head[arc])
                    link = tail[arc]
            u = entry
            while u != top[k]:
                tree[above[u]] = u
                u = above[u]
            tree[entry] = link
