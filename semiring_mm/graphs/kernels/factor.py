"""Customization of a sparse factor, and sweeps over it, which are triangular solves.

Vertices are named by their positions in the elimination order; every edge leads up, from a lower to
a higher one, and has a weight for each direction, ``out`` and ``back``. The first ``eliminated``
positions are eliminated one by one, the others are a dense core. Labels settle in a pass up, a
closure of the core, and a pass down (PHAST: Delling, Goldberg, Nowatzyk and Werneck, 2013). The
lanes are ``width`` sources: a row of labels is that of a vertex.
"""

from __future__ import annotations

from ...closures.paths import NO_PREDECESSOR
from ...kernel import (
    S,
    T,
    add,
    better,
    decode,
    encode,
    i32,
    i64,
    kernel,
    lanes,
    mul,
    one,
    static,
    zero,
)

VECTORS = 2  # of a row of labels: they hide the latency of ⊕, but more labels leave the caches


@kernel
def add_arcs(m: i64, slot: i64[m], out: T[:], back: T[out.size], weight: S[m]):
    """Weights of arcs join those of edges: slot 2 e is upward along edge e, 2 e + 1 downward."""
    for i in range(m):
        arc = slot[i] >> 1
        edges = back if slot[i] & 1 else out
        edges[arc] = add(edges[arc], decode(weight[i]))


@kernel
def relax(edges, e, through, preds, pred):
    """The weight of an edge ⊕= another, with its predecessor if there are any."""
    if preds is None:
        edges[e] = add(edges[e], through)
    elif better(through, edges[e]):
        edges[e] = through
        preds[e] = pred


@kernel
def customize(
    begin: i64, end: i64, nodes: i32[end], first: i64[:], head: i32[first[-1]], low_first: i64[:],
    low_edge: i64[:], low_tail: i32[low_edge.size], place: i64[:], out: T[head.size],
    back: T[head.size], out_pred: i32[head.size], back_pred: i32[head.size],
):  # fmt: skip
    """W[v, b] ← W[v, b] ⊕ W[v, u] ⊗ W[u, b] for the lower neighbours u of v, either way.

    The lower neighbours of ``nodes[begin:end]`` are done. ``back`` is None where it is ``out``;
    ``place``, an entry for each vertex, is scratch.
    """
    down = out if back is None else back
    for i in range(begin, end):
        v = nodes[i]
        for e in range(first[v], first[v + 1]):
            place[head[e]] = e
        for k in range(low_first[v], low_first[v + 1]):
            low = low_edge[k]
            from_v, to_v = down[low], out[low]
            pred = 0 if out_pred is None else out_pred[low]
            for g in range(low + 1, first[low_tail[k] + 1]):
                e = place[head[g]]
                after = 0 if out_pred is None else out_pred[g]
                relax(out, e, mul(from_v, out[g]), out_pred, after)
                if back is not None:
                    relax(back, e, mul(back[g], to_v), back_pred, pred)


@kernel
def customize_core(
    begin: i64, end: i64, eliminated: i64, first: i64[:], head: i32[first[-1]], low_first: i64[:],
    low_edge: i64[:], low_tail: i32[low_edge.size], out: T[head.size], back: T[head.size],
    out_pred: i32[head.size], matrix: S[end, end], core_pred: i32[end, end],
):  # fmt: skip
    """The same between nodes of the core, in rows `begin` to `end` of its matrix."""
    for i in range(begin, end):
        v = i + eliminated
        for k in range(low_first[v], low_first[v + 1]):
            from_v, u = back[low_edge[k]], low_tail[k]
            for g in range(first[u], first[u + 1]):
                b = head[g] - eliminated
                if (b >= 0) & (b != i):
                    through = mul(from_v, out[g])
                    if better(through, decode(matrix[i, b])):
                        matrix[i, b] = encode(through)
                        if core_pred is not None:
                            core_pred[i, b] = out_pred[g]


@kernel
def forward_solve(
    eliminated: i64, width: static, source: i64[width + 1], visits: i64[2], visited: i32[:],
    place: i32[:], parent: i32[eliminated], first: i64[eliminated + 1], head: i32[first[-1]],
    out: T[head.size], out_pred: i32[head.size], label: T[:, width], pred: i32[:, width],
    vectors: static,
):  # fmt: skip
    """Forward solve: labels from the sources to their ancestors in the elimination tree.

    Labels of the core are zero beforehand. ``source`` ascends and ends with a number that is no
    vertex. ``visited`` receives the ancestors, ascending, and ``visits[0]`` their number. A vertex
    has the row of its number or, where there is a ``place``, that one: behind the ``visits[1]``
    rows of the core, whose places are given, those of the ancestors.
    """
    core, count, lane, v = visits[1], 0, 0, source[0]
    while v < eliminated:
        row = v if place is None else core + count
        for j in lanes(width, vectors, whole=True):
            label[row, j] = zero
            if pred is not None:
                pred[row, j] = NO_PREDECESSOR
        visited[count] = v
        if place is not None:
            place[v] = row
        count += 1
        while source[lane] == v:
            label[row, lane] = one
            lane += 1
        # Subtrees are ranges: a parent beyond the next source is an ancestor of that one, too.
        v = min(parent[v], source[lane])
    visits[0] = count
    for i in range(count):
        v = visited[i]
        row = v if place is None else core + i
        for j in lanes(width, vectors, whole=True):
            here = label[row, j]
            for e in range(first[v], first[v + 1]):
                u = head[e] if place is None else place[head[e]]
                through, old = mul(here, out[e]), label[u, j]
                if pred is None:
                    label[u, j] = add(old, through)
                else:
                    wins, before, now = better(through, old), i32(pred[u, j]), i32(out_pred[e])
                    label[u, j] = through if wins else old
                    pred[u, j] = now if wins else before


@kernel
def backward_solve(
    count: i64, width: static, order: i32[count], source: i64[width + 1], visits: i64[2],
    visited: i32[:], first: i64[:], head: i32[first[-1]], back: T[head.size],
    back_pred: i32[head.size], label: T[:, width], pred: i32[:, width], vectors: static,
):  # fmt: skip
    """Backward solve: labels from the core and the ``visited`` to ``order``, downward.

    These are descending positions with all of their ancestors.
    """
    left = visits[0]
    for i in range(count):
        v = order[i]
        while left > 0 and visited[left - 1] > v:  # an ancestor of none of them
            left -= 1
        met = left > 0 and visited[left - 1] == v
        if met:
            left -= 1
        for j in lanes(width, vectors, whole=True):
            best = label[v, j] if met else zero
            if pred is not None:
                before = i32(pred[v, j]) if met else i32(NO_PREDECESSOR)
            for e in range(first[v], first[v + 1]):
                u = head[e]
                through = mul(label[u, j], back[e])
                if pred is None:
                    best = add(best, through)
                else:
                    wins, now = better(through, best), i32(back_pred[e])
                    best = through if wins else best
                    before = now if wins else before
            label[v, j] = best
            if pred is not None:
                pred[v, j] = before
    for i in range(width):  # rounding in a cycle of weight 0 must not show
        label[source[i], i] = one
        if pred is not None:
            pred[source[i], i] = NO_PREDECESSOR
