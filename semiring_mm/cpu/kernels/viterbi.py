"""Viterbi's algorithm where all steps of a sequence share one matrix: forward and back.

In ``best_paths`` the lanes of a vector are states. Some sequences go on together, a step each in
turn, so that one does not wait for the result of its last step while another could compute; an
entry of the matrix is loaded once for all of them. In ``best_paths_in_lanes`` each lane is a
sequence, for few states, which would leave lanes idle: nothing is broadcast or joined over lanes.

A NaN, or an infinity that is not the semiring's zero, is not computed with here: sequences that
meet one are marked in ``odd``.
"""

from __future__ import annotations

import math

from ...kernel import (  # isort: skip
    T, across, add, better, each, entries, first, i32, i64, kernel, lanes, mul, pick, static,
    u8, unrolled, zero,
)  # fmt: skip
from .shared import merged

INF = math.inf


@kernel
def strange(v, far):
    """Whether a score is NaN, or an infinity other than `far`, the semiring's zero (0: none)."""
    return v - v != v - v if far == 0 else not v < INF if far < 0 else not v > -INF


@kernel
def seen(own, e, symbols, t):
    """Scores of what was seen at a step of a sequence: its own, or those of a symbol."""
    return own[t] if symbols is None else e[0, own[t]]


@kernel
def best_state(row, column, n, padded, width, times):
    """The first state j of the best row[j] ⊗ column[j], and that score."""
    best = each(zero, width)
    for j in lanes(padded, width, whole=True, times=times):
        best = add(best, mul(row[j], column[j]))
    top = across(best)
    state = n - 1  # no score is equal to a NaN
    for j in lanes(padded, width, whole=True, times=times):
        state = min(state, first(j, mul(row[j], column[j]) == top))
    return state, top


@kernel
def best_paths(
    begin: i64, stop: i64, n: i64, padded: i64, deep: i64, panels: i64, shared: i64,
    W: static, width: static, times: static, together: static, parts: static, far: static,
    order: i64[stop], lengths: i64[:], a: T[:, n, n], e: T[:, :, n], symbols: i64[:, :],
    x: T[:, n], end: T[:, n], path: i32[:, :], score: T[:], odd: u8[:],
    rows: T[together, :, padded], matrix: T[panels, deep, W], columns: T[n + together, padded],
):  # fmt: skip
    """Best paths of the sequences order[begin:stop]; `rows` has the scores of all their steps.

    Rows and columns are padded to whole vectors, by what is never the best. The matrix lies in
    panels of W columns, a vector. After the last step a sequence is in state n + c, whose column
    has the scores of its end.
    """
    for g in range(begin, stop, together):
        b = [order[min(g + c, stop - 1)] for c in unrolled(together)]
        count = [lengths[b[c]] for c in unrolled(together)]
        own = [e[b[c]] if symbols is None else symbols[b[c]] for c in unrolled(together)]
        longest = 0
        for c in unrolled(together):
            longest = max(longest, count[c])
        if g == begin or shared == 0:
            given = a[b[0] if shared == 0 else 0]
            for p in range(panels):
                for i in range(n):
                    for k in range(min(W, n - p * W)):
                        matrix[p, i, k] = given[i, p * W + k]
                        columns[p * W + k, i] = given[i, p * W + k]
        bad = [each(False) for c in unrolled(together)]
        for j in lanes(padded, whole=True):
            for c in unrolled(together):
                rows[c, 0, j] = x[b[c], j] if j < n else zero
                columns[n + c, j] = end[b[c], j] if j < n else zero
                bad[c] |= strange(rows[c, 0, j], far) | strange(columns[n + c, j], far)
        for t in range(1, longest):  # a sequence that has ended goes on, after its own rows
            now = [rows[c, t - 1] for c in unrolled(together)]
            emitted = [seen(own[c], e, symbols, min(t, count[c] - 1)) for c in unrolled(together)]
            for p in range(panels):
                for k in lanes(W, whole=True):
                    sums = [zero for _ in unrolled(parts * together)]
                    for i in range(0, deep, parts):
                        for s in unrolled(parts * together):
                            at = i + s // together
                            sums[s] = add(sums[s], mul(now[s % together][at], matrix[p, at, k]))
                    best = merged(sums, parts, together, False)
                    j = p * W + k
                    for c in unrolled(together):
                        v = mul(best[c], emitted[c][j]) if j < n else zero
                        bad[c] |= strange(v, far)
                        rows[c, t, j] = v
        state = [n + c for c in unrolled(together)]
        for k in range(1, longest + 1):
            for c in unrolled(together):
                t = count[c] - k
                if t >= 0:
                    row = rows[c, t]
                    state[c], top = best_state(row, columns[state[c]], n, padded, width, times)
                    path[b[c], t] = state[c]
                    if k == 1:
                        score[b[c]] = top
                        odd[b[c]] = across(bad[c], any) | strange(top, far)


@kernel
def best_of(scores, n):
    """The first of the best of at most 16 scores, and that score: the winner of two at a time."""
    state = [each(i32(j)) for j in unrolled(n)]
    for k in unrolled(4):
        for j in unrolled(0, n - (1 << k), 2 << k):
            wins = better(scores[j + (1 << k)], scores[j])
            state[j] = state[j + (1 << k)] if wins else state[j]
            scores[j] = add(scores[j], scores[j + (1 << k)])
    return state[0], scores[0]


@kernel
def best_paths_in_lanes(
    begin: i64, stop: i64, n: static, many: static, far: static,
    order: i64[stop], lengths: i64[:], a: T[n * many], e: T[:, :, n], symbols: i64[:, :],
    x: T[:, n], end: T[:, n], path: i32[:, :], score: T[:], odd: u8[:], rows: T[:, n * many],
):  # fmt: skip
    """The same where all sequences share a matrix, `many` in the lanes of a vector."""
    for g in range(begin, stop, many):
        for lane in lanes(many, whole=True):
            b = order[min(g + lane, stop - 1)]
            own = e[b] if symbols is None else symbols[b]
            count, longest = i32(lengths[b]), across(lengths[b], max)
            now, last = entries(x[b], n), entries(end[b], n)
            bad = each(False)
            for j in unrolled(n):
                bad |= strange(now[j], far)
                rows[0, j * many + lane] = now[j]
            for t in range(1, longest):
                scores = entries(seen(own, e, symbols, t), n)
                was = [now[i] for i in unrolled(n)]
                for j in unrolled(n):
                    best = mul(was[0], a[j])
                    for i in unrolled(1, n):
                        best = add(best, mul(was[i], a[i * many + j]))
                    v = mul(best, scores[j])
                    now[j] = v if i32(t) < count else was[j]  # one that has ended stays
                    bad |= strange(now[j], far)
                    rows[t, j * many + lane] = now[j]
            for j in unrolled(n):
                last[j] = mul(now[j], last[j])
                bad |= strange(last[j], far)
            state, top = best_of(last, n)
            score[b], odd[b] = top, bad
            for t in range(longest - 1, 0, -1):
                path[b, t] = state if i32(t) < count else -1
                row = rows[t - 1]
                came = [mul(row[j * many + lane], pick(a[j * many :], state)) for j in unrolled(n)]
                before, top = best_of(came, n)
                state = before if i32(t) < count else state
            path[b, 0] = state
