"""Customization of a sparse factor, and sweeps over it, which are triangular solves.

Vertices are named by their positions in the elimination order; every edge leads up, from a lower to
a higher one, and has a weight for each direction, ``out`` and ``back``. The first ``eliminated``
positions are eliminated one by one, the others are a dense core. Labels settle in a pass up, a
closure of the core, and a pass down (PHAST: Delling, Goldberg, Nowatzyk and Werneck, 2013). The
lanes are ``width`` sources, a block: a row of labels is that of a vertex.
"""

from __future__ import annotations

from ...closures.paths import NO_PREDECESSOR
from ...kernel import (
    I,
    S,
    T,
    across,
    add,
    better,
    decode,
    encode,
    entries,
    f64,
    i32,
    i64,
    kernel,
    lanes,
    mul,
    one,
    prefetch,
    static,
    stream,
    unrolled,
    zero,
)

VECTORS = 2  # of a row of labels: they hide the latency of ⊕, but more labels leave the caches
#: Edges of a position that are joined without a branch in a block of one source; most positions
#: have no more. The last one is repeated, which no ⊕ that chooses notices.
AT_ONCE = 4
LINE = 64  #: bytes of a line of the caches
COLUMNS = 512  #: that are turned into rows at a time, in the second-level cache
FAR = float("inf")  #: Sum of a second quantity where there is no path.


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
    low_edge: i64[:], low_tail: i32[low_edge.size], place: i32[:], out: T[head.size],
    back: T[head.size], out_pred: i32[head.size], back_pred: i32[head.size],
):  # fmt: skip
    """W[v, b] ← W[v, b] ⊕ W[v, u] ⊗ W[u, b] for the lower neighbours u of v, either way.

    The lower neighbours of ``nodes[begin:end]`` are done. ``back`` is None where it is ``out``;
    ``place``, an entry for each vertex, is scratch: which edge of ``v`` leads there.
    """
    down = out if back is None else back
    for i in range(begin, end):
        v = nodes[i]
        start = first[v]
        for e in range(start, first[v + 1]):
            place[head[e]] = i32(e - start)
        for k in range(low_first[v], low_first[v + 1]):
            low = low_edge[k]
            from_v, to_v = down[low], out[low]
            pred = 0 if out_pred is None else out_pred[low]
            for g in range(low + 1, first[low_tail[k] + 1]):
                e = start + place[head[g]]
                after = 0 if out_pred is None else out_pred[g]
                relax(out, e, mul(from_v, out[g]), out_pred, after)
                if back is not None:
                    relax(back, e, mul(back[g], to_v), back_pred, pred)


@kernel
def customize_along(
    begin: i64, end: i64, nodes: i32[end], first: i64[:], head: i32[first[-1]], low_first: i64[:],
    low_edge: i64[:], low_tail: i32[low_edge.size], place: i32[:], out: T[head.size],
    back: T[head.size], out_along: f64[head.size], back_along: f64[head.size],
):  # fmt: skip
    """A second quantity of edges: the least sum along what gives an edge its final weight.

    As :func:`customize`, after it. ``back_along`` is None where it is ``out_along``.
    """
    down_along = out_along if back_along is None else back_along
    for i in range(begin, end):
        v = nodes[i]
        start = first[v]
        for e in range(start, first[v + 1]):
            place[head[e]] = i32(e - start)
        for k in range(low_first[v], low_first[v + 1]):
            low = low_edge[k]
            from_v, to_v = back[low], out[low]
            along_from, along_to = down_along[low], out_along[low]
            for g in range(low + 1, first[low_tail[k] + 1]):
                e = start + place[head[g]]
                if mul(from_v, out[g]) == out[e]:
                    out_along[e] = min(out_along[e], along_from + out_along[g])
                if back_along is not None:  # noqa: SIM102 - decided when it is compiled
                    if mul(back[g], to_v) == back[e]:
                        back_along[e] = min(back_along[e], back_along[g] + along_to)


@kernel
def closer(through, further, old, before):
    """The better one of two labels with sums of a second quantity, the least of equal ones."""
    best = add(through, old, numbers=True)
    least = before if old == best else FAR
    return best, min(least, further if through == best else FAR)


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
    eliminated, core, width, vectors, source, visited, place, parent, first, head, out, out_pred,
    label, pred, out_along, along, radius,
):  # fmt: skip
    """Forward solve: labels from the sources to their ancestors in the elimination tree, and core.

    ``source`` ascends and ends with a number that is no vertex, as lanes without a source have.
    ``visited`` receives the ancestors, ascending; their number is returned. A vertex has the row of
    its number or, where there is a ``place``, that one: behind the rows of the core, whose places
    are given, those of the ancestors. ``along`` receives the sums of a second quantity, if there is
    one, of which the least counts where labels are equal. What is beyond a ``radius``, if there is
    one, leads nowhere.
    """
    for i in range(core):
        row = eliminated + i if place is None else i
        for j in lanes(width, vectors, whole=True):
            label[row, j] = zero
            if pred is not None:
                pred[row, j] = NO_PREDECESSOR
            if along is not None:
                along[row, j] = FAR
    count, lane, v = 0, 0, source[0]
    while v < eliminated:
        row = v if place is None else core + count
        for j in lanes(width, vectors, whole=True):
            label[row, j] = zero
            if pred is not None:
                pred[row, j] = NO_PREDECESSOR
            if along is not None:
                along[row, j] = FAR
        visited[count] = v
        if place is not None:
            place[v] = row
        count += 1
        while source[lane] == v:
            label[row, lane] = one
            if along is not None:
                along[row, lane] = 0.0
            lane += 1
        # Subtrees are ranges: a parent beyond the next source is an ancestor of that one, too.
        v = min(parent[v], source[lane])
    for i in range(count):
        v = visited[i]
        row = v if place is None else core + i
        for j in lanes(width, vectors, whole=True):
            here, end = label[row, j], first[v + 1]
            if radius is not None:
                end = end if across(here <= radius, any) else first[v]
            for e in range(first[v], end):
                u = head[e] if place is None else place[head[e]]
                through, old = mul(here, out[e]), label[u, j]
                if along is not None:
                    further = along[row, j] + out_along[e]
                    best, least = closer(through, further, old, along[u, j])
                    label[u, j] = best
                    along[u, j] = least
                elif pred is None:
                    label[u, j] = add(old, through)
                else:
                    wins, before, now = better(through, old), i32(pred[u, j]), i32(out_pred[e])
                    label[u, j] = through if wins else old
                    pred[u, j] = now if wins else before
    return count


@kernel
def backward_solve(
    count,
    left,
    width,
    vectors,
    order,
    visited,
    first,
    head,
    back,
    back_pred,
    label,
    pred,
    back_along,
    along,
):
    """Backward solve: labels from the core and the `left` ``visited`` to ``order``, downward.

    These are `count` descending positions with all of their ancestors; None: all below `count`.
    """
    ancestor = visited[left - 1] if left > 0 else -1
    for i in range(count):
        v = count - 1 - i if order is None else order[i]
        while ancestor > v:  # an ancestor of none of them
            left -= 1
            ancestor = visited[left - 1] if left > 0 else -1
        met = ancestor == v
        for j in lanes(width, vectors, whole=True):
            best = label[v, j] if met else zero
            if pred is not None:
                before = i32(pred[v, j]) if met else i32(NO_PREDECESSOR)
            if along is not None:
                least = along[v, j] if met else FAR
            end = first[v + 1]
            for begin in range(first[v], end, AT_ONCE if width == 1 else 1):
                for k in unrolled(AT_ONCE if width == 1 else 1):
                    e = min(begin + k, end - 1) if width == 1 else begin
                    through = mul(label[head[e], j], back[e])
                    if along is not None:
                        further = along[head[e], j] + back_along[e]
                        best, least = closer(through, further, best, least)
                    elif pred is None:
                        best = add(best, through)
                    else:
                        wins, now = better(through, best), i32(back_pred[e])
                        best = through if wins else best
                        before = now if wins else before
            label[v, j] = best
            if pred is not None:
                pred[v, j] = before
            if along is not None:
                along[v, j] = least


@kernel
def stored(x, plain):
    """What is stored for a label, or the number itself if it is `plain`: 1, int32; 2, float64."""
    return x if plain == 2 else (i32(x) if plain else encode(x))


@kernel
def copy(own, row, first, count, head, per, vectors, plain):
    """Store converted entries; whole lines of `per` entries go past the caches."""
    head = min(head, count)
    tail = head + (count - head) // per * per
    for j in range(head):
        row[first + j] = stored(own[j], plain)
    for begin in range(head, tail, per):
        for j in lanes(per, vectors, whole=True):
            stream(row, first + begin + j, stored(own[begin + j], plain))
    for j in range(tail, count):
        row[first + j] = stored(own[j], plain)


@kernel
def write(
    n, sources, width, count, per, vectors, base, pitch, where, lines, begin, label, rows, turned,
    plain,
):  # fmt: skip
    """Write ``rows[lines[begin + i], j]`` ← ``label[where[j], i]``, some columns at a time.

    A vector has `count` labels; a line has `per` entries, in `vectors` vectors of labels. The rows
    begin `base` entries after an address that is a multiple of a line, and are `pitch` apart; base
    is -1 where no entry lies at such an address.
    """
    if width == 1:  # a row is a column
        row = rows[lines[begin]]
        for j in range(n):
            row[j] = stored(label[where[j], 0], plain)
        return
    for first in range(0, n, COLUMNS):
        some = min(n - first, COLUMNS)
        whole = some // count * count
        for j in range(0, whole, count):
            for i in unrolled(count):  # labels are far from each other
                ahead = label[where[min(first + j + (2 * count + i), n - 1)]]
                for k in unrolled(0, width, per):
                    prefetch(ahead, k)
            for i in lanes(count, whole=True):
                for g in unrolled(0, width, count):
                    column = entries(label[where[first + j + i], g:], count)
                    for k in unrolled(count):
                        turned[g + k, j + i] = column[k]
        for j in range(whole, some):
            for i in range(width):
                turned[i, j] = label[where[first + j], i]
        for i in range(sources):
            line = lines[begin + i]
            head = some if base < 0 else -(base + line * pitch + first) & (per - 1)
            copy(turned[i], rows[line], first, some, head, per, vectors, plain)


@kernel
def sweep(
    begin: i64, end: i64, sources: i64, down: i64, eliminated: i64, core: i64, count: i64,
    columns: i64, width: static, lane_count: static, per: static, per_pred: static,
    stored_in: static, pred_in: static, base: i64, pitch: i64, pred_base: i64, pred_pitch: i64,
    source: i64[end, width + 1], lines: i64[sources], where: I[columns], order: i32[count],
    visited: i32[eliminated], parent: i32[eliminated], first: i64[eliminated + 1],
    head: i32[first[-1]], out: T[head.size], back: T[head.size], out_pred: i32[head.size],
    back_pred: i32[head.size], core_label: T[sources, core], core_pred: i32[sources, core],
    label: T[eliminated + core, width], pred: i32[eliminated + core, width],
    turned: T[width, COLUMNS], turned_pred: i32[width, COLUMNS], d: S[:, columns],
    p: i32[:, columns], along_count: static, along_base: i64, along_pitch: i64,
    out_along: f64[head.size], back_along: f64[head.size], along: f64[eliminated + core, width],
    turned_along: f64[width, COLUMNS], sums: f64[:, columns],
):  # fmt: skip
    """Forward and, with `down`, backward solves of blocks of sources, whose labels become rows.

    Without `down` labels of the core are kept, for all sources of the blocks, in ``core_label``;
    with it they are there, closed. Row ``lines[i]`` of ``d`` is that of source i, column j the
    vertex ``where[j]``. ``sums``, without a core, are those of a second quantity. ``visited``,
    ``label``, ``pred``, ``along`` and all ``turned`` are scratch.
    """
    for block in range(begin, end):
        at = block * width
        some = min(width, sources - at)
        left = forward_solve(
            eliminated, core, width, VECTORS, source[block], visited, None, parent, first, head,
            out, out_pred, label, pred, out_along, along, None,
        )  # fmt: skip
        for j in range(some):
            for i in range(core):
                if down != 0:
                    label[eliminated + i, j] = core_label[at + j, i]
                else:
                    core_label[at + j, i] = label[eliminated + i, j]
                if pred is not None:
                    if down != 0:
                        pred[eliminated + i, j] = core_pred[at + j, i]
                    else:
                        core_pred[at + j, i] = pred[eliminated + i, j]
        if down != 0:
            backward_solve(
                count, left, width, VECTORS, order, visited, first, head, back, back_pred, label,
                pred, back_along, along,
            )  # fmt: skip
            for j in range(some):  # rounding in a cycle of weight 0 must not show
                label[source[block, j], j] = one
                if pred is not None:
                    pred[source[block, j], j] = NO_PREDECESSOR
                if along is not None:
                    along[source[block, j], j] = 0.0
            write(
                columns, some, width, lane_count, per, stored_in, base, pitch, where, lines, at,
                label, d, turned, 0,
            )  # fmt: skip
            if p is not None:
                write(
                    columns, some, width, lane_count, per_pred, pred_in, pred_base, pred_pitch,
                    where, lines, at, pred, p, turned_pred, 1,
                )  # fmt: skip
            if sums is not None:
                write(
                    columns, some, width, along_count, along_count, 1, along_base, along_pitch,
                    where, lines, at, along, sums, turned_along, 2,
                )  # fmt: skip
