"""The k nearest of some places to every vertex, over an elimination.

Labels are lists of the k best (distance, place), ascending, of different places; they pass up, over
the core, and down as single distances do. What is not among the k best of a vertex on a path is not
among those of its end.
"""

from __future__ import annotations

from ...kernel import T, i32, i64, kernel

NOWHERE = (1 << 31) - 1  #: the place of an entry that has none


@kernel
def less(d, place, e, other):
    """Whether a distance, and its place, come before another one."""
    return (d < e) | ((d == e) & (place < other))


@kernel
def merge(k, label, place, more, places, w):
    """Join another list to a list; its distances are longer by w."""
    for r in range(k):
        d, who = more[r] + w, places[r]
        if who == NOWHERE or not less(d, who, label[k - 1], place[k - 1]):
            break
        at = 0  # where this place is already, or the last entry
        while at < k - 1 and place[at] != who:
            at += 1
        if place[at] != who or d < label[at]:
            while at > 0 and less(d, who, label[at - 1], place[at - 1]):
                label[at] = label[at - 1]
                place[at] = place[at - 1]
                at -= 1
            label[at] = d
            place[at] = who


@kernel
def k_nearest(
    eliminated: i64, core: i64, k: i64, far: T, first: i64[eliminated + 1], head: i32[first[-1]],
    place: i32[eliminated + core, k], core_place: i32[core, k], label: T[eliminated + core, k],
    core_label: T[core, k], matrix: T[core, core], out: T[first[-1]], back: T[first[-1]],
):  # fmt: skip
    """Complete the lists of all vertices, which hold the places themselves at distance 0.

    ``label`` and ``place`` have k entries for each vertex, `far` and NOWHERE where there is none;
    ``core_label`` and ``core_place`` are scratch, for the lists of the core.
    """
    for v in range(eliminated):
        own, own_place = label[v], place[v]
        for e in range(first[v], first[v + 1]):
            if out[e] != far:
                merge(k, label[head[e]], place[head[e]], own, own_place, out[e])
    for i in range(core):  # before the core's paths
        for r in range(k):
            core_label[i, r] = label[eliminated + i, r]
            core_place[i, r] = place[eliminated + i, r]
    for i in range(core):
        own, own_place, row = core_label[i], core_place[i], matrix[i]
        for j in range(core):
            if (i != j) & (row[j] != far):
                merge(k, label[eliminated + j], place[eliminated + j], own, own_place, row[j])
    for v in range(eliminated - 1, -1, -1):
        own, own_place = label[v], place[v]
        for e in range(first[v], first[v + 1]):
            if back[e] != far:
                merge(k, own, own_place, label[head[e]], place[head[e]], back[e])
