"""Dependencies on nodes and edges: how many of the shortest paths from sources pass through them.

Brandes (2001): forward, σ(v) is the number of shortest paths from a source to node v. Backward,
γ(v) = demand(v) / σ(v) + Σ γ(w) over the nodes w after v on shortest paths. The edge from v to w
carries σ(v) γ(w), and what passes through node v is σ(v) Σ γ(w). σ and γ share an array: γ(v)
replaces σ(v).
"""

from __future__ import annotations

from ...kernel import (
    T,
    across,
    better,
    bit,
    bits,
    each,
    f64,
    i32,
    i64,
    kernel,
    lanes,
    mul,
    one,
    static,
    u32,
    zero,
)
from .dijkstra import push, sink

#: Added to a float, its lowest bits are the nearest whole number.
SHIFT = 2.0**52


@kernel
def breadth_first(
    n: i64, arcs: i64, root: i64[n] < n, first: i64[n + 1], head: i32[arcs] < n, node: i32[n],
    place: i32[n],
):  # fmt: skip
    """Number all nodes in the order of searches from the roots; ``place`` holds -1."""
    size, i = 0, 0
    for r in range(n):
        if place[root[r]] < 0:
            node[size] = root[r]
            place[root[r]] = size
            size += 1
        while i < size:
            v = node[i]
            i += 1
            for e in range(first[v], first[v + 1]):
                u = head[e]
                if place[u] < 0:
                    node[size] = u
                    place[u] = size
                    size += 1


@kernel
def put(begin, end, width, target, entry_first, entry_lane, amount, demand):
    """Write the amounts of some targets to their rows."""
    for t in range(begin, end):
        if amount is None:
            for j in lanes(width, width, whole=True):
                demand[target[t], j] = 1.0
        else:
            for k in range(entry_first[t], entry_first[t + 1]):
                demand[target[t], entry_lane[k]] = amount[k]


@kernel
def clear(begin, end, width, target, demand):
    """Write zeros there again."""
    for t in range(begin, end):
        for j in lanes(width, width, whole=True):
            demand[target[t], j] = 0.0


@kernel
def by_levels(
    n: i64, arcs: i64, batches: i64, width: static, source: i64[batches, width] < n + 1,
    first: i64[n + 1], head: i32[arcs] < n, back_first: i64[n + 1], tail: i32[arcs] < n,
    bounds: i64[batches, 2], target: i32[:] < n, entry_first: i64[target.size + 1],
    entry_lane: i32[:], amount: f64[entry_lane.size], demand: f64[n, width], seen: u32[n],
    mask: u32[2, n], node: i32[(n + 1) * width], event: u32[(n + 1) * width], begins: i64[n + 2],
    value: f64[n, width], node_load: f64[n], arc_load: f64[arcs], most: f64[1], lost: f64[1],
    stress: static, single: static,
):  # fmt: skip
    """Add dependencies of batches of sources, a lane each, where every edge counts 1.

    A level has the nodes that some sources of a batch meet there, and a mask of these sources; the
    arcs of the node serve all of them at once. Values are gathered, from the level before or
    behind it, so the bytes that are read at random are those of ``value`` and of the masks.
    Source n stands for none. ``node_load``, ``arc_load`` (which may be None) and ``most``, the
    largest number of paths, hold what other calls have added; ``mask`` and ``demand`` hold zeros.
    A batch has the targets from ``bounds[batch, 0]`` to ``bounds[batch, 1]``. Each counts 1 for all
    sources or, where there is an ``amount``, those amounts for the lanes of its entries; ``lost``
    is the sum of those that are not reached. Without a ``demand`` each node counts 1. With `stress`
    each path to a node counts, not all together once; with `single` one carries all.
    """
    for batch in range(batches):
        for j in lanes(width, width, whole=True):
            here, there = mask[0], mask[1]
            end = 0
            for v in range(n):
                seen[v] = 0
            for i in range(width):
                v = source[batch, i]
                if v < n:
                    if here[v] == 0:
                        node[end] = v
                        end += 1
                    here[v] = here[v] | 1 << i
            for i in range(end):
                v = node[i]
                m = here[v]
                event[i] = m
                seen[v] = m
                x = value[v, j]
                value[v, j] = 1.0 if bit(m, j) else x
            begins[0] = 0
            begins[1] = end
            begin, level = 0, 0
            largest = each(1.0)
            while begin < end:
                size = end
                for i in range(begin, end):
                    m = event[i]
                    for e in range(first[node[i]], first[node[i] + 1]):
                        u = head[e]
                        old, new = there[u], m & ~seen[u]
                        node[size] = u
                        size += (old == 0) & (new != 0)
                        there[u] = old | new
                for i in range(end, size):
                    v = node[i]
                    m = there[v]
                    event[i] = m
                    seen[v] = seen[v] | m
                    paths = each(0.0)
                    for e in range(back_first[v], back_first[v + 1]):
                        before = here[tail[e]]
                        x = value[tail[e], j]
                        paths = paths + x if bit(before, j) else paths
                    if single:
                        paths = each(1.0)
                    x = value[v, j]
                    paths = paths if bit(m, j) else x
                    value[v, j] = paths
                    largest = max(largest, paths)
                for i in range(begin, end):
                    here[node[i]] = 0
                here, there = there, here
                begin, end = end, size
                level += 1
                begins[level + 1] = end
            most[0] = max(most[0], across(largest, max))
            if demand is not None:
                put(
                    bounds[batch, 0], bounds[batch, 1], width, target, entry_first, entry_lane,
                    amount, demand,
                )  # fmt: skip
            if amount is not None:
                for t in range(bounds[batch, 0], bounds[batch, 1]):
                    for k in range(entry_first[t], entry_first[t + 1]):
                        if (seen[target[t]] >> entry_lane[k]) & 1 == 0:
                            lost[0] += amount[k]
            for k in range(level - 1, -1, -1):  # ``here`` has the masks of the level behind
                for i in range(begins[k], begins[k + 1]):
                    v = node[i]
                    m = event[i]
                    paths = value[v, j]
                    worth = each(0.0)
                    for e in range(first[v], first[v + 1]):
                        behind = here[head[e]] & m
                        x = value[head[e], j]
                        if arc_load is None:
                            worth = worth + x if bit(behind, j) else worth
                        else:
                            part = x if bit(behind, j) else 0.0
                            worth += part
                            arc_load[e] += across(paths * part, sum)
                            if single:
                                value[head[e], j] = 0.0 if bit(behind, j) else x
                    if k > 0:
                        through = paths * worth if bit(m, j) else 0.0
                        node_load[v] += across(through, sum)
                        own = each(1.0)
                        if demand is not None:
                            own = demand[v, j]
                        share = own if stress else own / paths
                        value[v, j] = share + worth if bit(m, j) else paths
                for i in range(begins[k + 1], begins[k + 2]):
                    here[node[i]] = 0
                for i in range(begins[k], begins[k + 1]):
                    here[node[i]] = event[i]
            for i in range(begins[1]):
                here[node[i]] = 0
            if demand is not None:
                clear(bounds[batch, 0], bounds[batch, 1], width, target, demand)


@kernel
def hand_back(
    row, count, node, first, head, weight, bounds, target, entry_first, entry_lane, amount, demand,
    label, value, node_load, arc_load, lost, stress, single,
):  # fmt: skip
    """Dependencies of a source, from the nodes in the order of their labels, which are final."""
    if demand is not None:
        put(bounds[row, 0], bounds[row, 1], 1, target, entry_first, entry_lane, amount, demand)
    if amount is not None:
        for t in range(bounds[row, 0], bounds[row, 1]):
            for k in range(entry_first[t], entry_first[t + 1]):
                if not better(label[target[t]], zero):
                    lost[0] += amount[k]
    for i in range(count - 1, -1, -1):
        v = node[i]
        here, paths, worth = label[v], value[v], 0.0
        for e in range(first[v], first[v + 1]):
            if mul(here, weight[e]) == label[head[e]]:
                x = value[head[e]]
                worth += x
                if arc_load is not None:
                    arc_load[e] += paths * x
                if single:
                    value[head[e]] = 0.0
        if i > 0:
            own = 1.0
            if demand is not None:
                own = demand[v, 0]
            node_load[v] += paths * worth
            value[v] = own + worth if stress else own / paths + worth
    if demand is not None:
        clear(bounds[row, 0], bounds[row, 1], 1, target, demand)


@kernel
def by_searches(
    n: i64, arcs: i64, sources: i64, source: i64[sources] < n, first: i64[n + 1],
    head: i32[arcs] < n, weight: T[arcs], bounds: i64[sources, 2], target: i32[:] < n,
    entry_first: i64[target.size + 1], entry_lane: i32[:], amount: f64[entry_lane.size],
    demand: f64[n, 1], heap: i32[arcs + 1], key: T[arcs + 1], node: i32[n], label: T[n],
    value: f64[n], node_load: f64[n], arc_load: f64[arcs], most: f64[1], lost: f64[1],
    stress: static, single: static,
) -> i64:  # fmt: skip
    """Add dependencies of sources by a search of Dijkstra's from each; as :func:`by_levels`.

    Whether an edge is no longer than nothing, so that numbers of paths are wrong.
    """
    for row in range(sources):
        for v in range(n):
            label[v] = zero
        label[source[row]] = one
        value[source[row]] = 1.0
        heap[0] = source[row]
        key[0] = one
        size, count = 1, 0
        while size > 0:
            v, here = heap[0], key[0]
            size -= 1
            if size > 0:
                sink(heap, key, heap[size], key[size], size)
            if better(label[v], here):
                continue
            node[count] = v
            count += 1
            most[0] = max(most[0], value[v])
            for e in range(first[v], first[v + 1]):
                u = head[e]
                through = mul(here, weight[e])
                if not better(here, through):
                    return 1
                if better(through, label[u]):
                    label[u] = through
                    value[u] = value[v]
                    push(heap, key, u, through, size)
                    size += 1
                elif through == label[u] and not single:
                    value[u] += value[v]
        hand_back(
            row, count, node, first, head, weight, bounds, target, entry_first, entry_lane, amount,
            demand, label, value, node_load, arc_load, lost, stress, single,
        )  # fmt: skip
    return 0


@kernel
def by_buckets(
    n: i64, arcs: i64, sources: i64, slots: i64, scale: T, source: i64[sources] < n,
    first: i64[n + 1], head: i32[arcs] < n, weight: T[arcs], bounds: i64[sources, 2],
    target: i32[:] < n, entry_first: i64[target.size + 1], entry_lane: i32[:],
    amount: f64[entry_lane.size], demand: f64[n, 1], bucket: i32[slots], following: i32[arcs + 1],
    heap: i32[arcs + 1], key: T[arcs + 1], node: i32[n], label: T[n], value: f64[n],
    node_load: f64[n], arc_load: f64[arcs], most: f64[1], lost: f64[1], stress: static,
    single: static,
) -> i64:  # fmt: skip
    """The same by buckets in place of a heap, of labels that differ by less than any weight.

    All labels of a bucket are final once the buckets before it are empty (Dinitz, 1978), and no
    shortest path leads from one to another. ``scale`` is buckets for a unit of length; ``slots``, a
    power of two, is more than buckets for any weight. ``bucket`` holds -1, also afterwards.
    """
    base = bits(f64(SHIFT))
    for row in range(sources):
        for v in range(n):
            label[v] = zero
        label[source[row]] = one
        value[source[row]] = 1.0
        heap[0] = source[row]
        key[0] = one
        following[0] = -1
        bucket[0] = 0
        size, left, count, at = 1, 1, 0, 0
        while left > 0:
            x = bucket[at & (slots - 1)]
            bucket[at & (slots - 1)] = -1
            at += 1
            while x >= 0:
                v, here = heap[x], key[x]
                x = following[x]
                left -= 1
                if better(label[v], here):
                    continue
                node[count] = v
                count += 1
                most[0] = max(most[0], value[v])
                for e in range(first[v], first[v + 1]):
                    u = head[e]
                    through = mul(here, weight[e])
                    if better(through, label[u]):
                        label[u] = through
                        value[u] = value[v]
                        slot = (bits(through * scale + SHIFT) - base) & (slots - 1)
                        heap[size] = u
                        key[size] = through
                        following[size] = bucket[slot]
                        bucket[slot] = size
                        size += 1
                        left += 1
                    elif through == label[u] and not single:
                        value[u] += value[v]
        hand_back(
            row, count, node, first, head, weight, bounds, target, entry_first, entry_lane, amount,
            demand, label, value, node_load, arc_load, lost, stress, single,
        )  # fmt: skip
    return 0
