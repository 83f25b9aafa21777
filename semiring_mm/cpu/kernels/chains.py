"""Chains of products: rows carried through one matrix after the other, and the ways back.

The matrix of a step lies decoded in a buffer: panels of columns, as wide as a vector (``W``), whose
rows lie one after the other. The rows that are carried are padded to whole vectors. Where chains
share a matrix, some go on together, a step each in turn: the next row does not wait for the last.

Sums of exponentials are shifted by the largest entry of the row and of each column, and computed
again term by term where they are too small to be right. From each row of logarithms its largest is
taken after a step, so that rows are as exact after many steps as after one.
"""

from __future__ import annotations

import math

from ...kernel import (  # isort: skip
    S, T, across, add, add_exp, better, decode, each, encode, exp_gap, f64, first, fma, i32, i64,
    kernel, lanes, log, mul, overflows, same, static, u8, unrolled, zero,
)  # fmt: skip
from .shared import finite, merged
from .viterbi import strange

INF, NAN = math.inf, math.nan
TERMS, POWERS = 1, 2  # how sums of exponentials are computed; 0: there are none
SUMS = 4  # independent ones, since an addition and a comparison take some four cycles
PAIRS = 64  # steps whose probabilities of pairs are added up before they join the others


@kernel
def prepare(a, n, panels, W, turned, shifted, lift, least, packed, powers, tops):
    """Decode a matrix, or its transpose; the exponentials of each column less its largest entry."""
    last = panels - 1
    for i in range(n):
        for j in lanes(W, whole=True):
            if turned:
                packed[last, i, j] = zero
                for p in range(panels):
                    for k in range(min(W, n - p * W)):
                        packed[p, i, k] = decode(a[p * W + k, i])
            else:
                for p in range(last):
                    packed[p, i, j] = decode(a[i, p * W + j])
                packed[last, i, j] = decode(a[i, last * W + j]) if last * W + j < n else zero
    for p in range(panels):
        if shifted:
            for j in lanes(W, whole=True):
                top = each(-INF)
                for i in range(n):
                    top = max(top, packed[p, i, j])
                for i in range(n):
                    power = exp_gap(packed[p, i, j] - finite(top), lift, least)
                    powers[p, i, j] = NAN if top == INF else power
                tops[p * W + j] = finite(top)


@kernel
def stored(v, inside, whole, flags):
    """A result; of whole numbers as it is stored, which tells whether it fits."""
    if not whole:
        return v
    if across(overflows(v) & inside, any):
        flags[0] = 1
    return decode(encode(v))


@kernel
def times(x, entry, swapped, numbers):
    return mul(entry, x, numbers=numbers) if swapped else mul(x, entry, numbers=numbers)


@kernel
def by_terms(row, packed, n, p, j, swapped):
    """log Σ_i exp(row[i] ⊗ packed[p, i, j]), term by term."""
    high = each(-INF)
    for i in range(n):
        high = max(high, times(row[i], packed[p, i, j], swapped, False))
    total = each(0.0)
    for i in range(n):
        total = add_exp(total, times(row[i], packed[p, i, j], swapped, False) - finite(high))
    return high + log(total)


@kernel
def by_powers(
    row, to, n, panels, W, packed, powers, tops, weights, swapped, lift, least, enough, scale
):
    """The same for all columns, by the exponentials of the row and of the matrix."""
    top = each(-INF)
    for c in lanes(panels * W, whole=True):
        top = max(top, row[c])
    highest = across(top, max)
    base = finite(highest)
    for c in lanes(panels * W, whole=True):
        weights[c] = exp_gap(row[c] - base, lift, least)
    smallest = INF if highest == INF else T(n) * enough
    for p in range(panels):
        for j in lanes(W, whole=True):
            sums = [each(0.0) for _ in unrolled(4)]
            for i in range(0, n - 3, 4):
                for k in unrolled(4):
                    sums[k] = fma(weights[i + k], powers[p, i + k, j], sums[k])
            for i in range(n & -4, n):
                sums[0] = fma(weights[i], powers[p, i, j], sums[0])
            total = ((sums[0] + sums[1]) + (sums[2] + sums[3])) * scale
            good = (total >= smallest) & (total < INF)
            v = (base + tops[p * W + j]) + log(total)
            if across((p * W + j < n) & (not good), any):
                v = v if good else by_terms(row, packed, n, p, j, swapped)
            to[p * W + j] = v


@kernel
def by_panels(row, packed, p, count, n, j, swapped, numbers):
    """⊕_i row[i] ⊗ packed[p + c, i, j] for some panels from p on."""
    sums = [zero for _ in unrolled(SUMS * count)]
    for i in range(0, n & -SUMS, SUMS):
        for s in unrolled(SUMS * count):
            at = i + s // count
            x = times(row[at], packed[p + s % count, at, j], swapped, numbers)
            sums[s] = add(sums[s], x, numbers=numbers)
    for i in range(n & -SUMS, n):
        for c in unrolled(count):
            x = times(row[i], packed[p + c, i, j], swapped, numbers)
            sums[c] = add(sums[c], x, numbers=numbers)
    return merged(sums, SUMS, count, numbers)


@kernel
def by_columns(row, to, n, panels, W, packed, swapped, numbers):
    """The same for all columns, of two panels at a time."""
    for j in lanes(W, whole=True):
        for p in range(0, panels - 1, 2):
            found = by_panels(row, packed, p, 2, n, j, swapped, numbers)
            to[p * W + j], to[p * W + W + j] = found[0], found[1]
        for p in range(panels & -2, panels):
            to[p * W + j] = by_panels(row, packed, p, 1, n, j, swapped, numbers)[0]


@kernel
def carry(
    begin: i64, stop: i64, row0: i64, rows: i64, n: i64, panels: i64, skip: i64, every: i64,
    own: i64, together: static, W: static, reverse: static, turned: static, shared: static,
    quick: static, far: static, swapped: static, whole: static, logs: static, levelled: static,
    lift: static, least: static, enough: static, scale: static,
    lengths: i64[stop], a: S[stop, :, n, n], e: S[stop, :, n], x: S[stop, rows, n],
    y: S[stop, :, rows, n], levels: S[stop, :], flags: u8[1], packed: T[panels, n, W],
    powers: T[:, :, W], tops: T[panels * W], carried: T[2, rows * together, panels * W],
    weights: T[panels * W], offsets: f64[rows * together],
):  # fmt: skip
    """Rows through the matrices of chains begin to stop - 1.

    A row x becomes x ⊗ A, or with `swapped` operands of ⊗ A ⊗ x for the columns of A. A chain has
    ``lengths[b] - skip`` steps, and where that is none nothing is stored. With `reverse` the last
    matrix comes first, and a row is multiplied by the emissions before the matrix, else after it.
    Where no rows `x` are given, they are those of the first matrix.

    With `quick`, a row of numbers and of `far`, the infinity that is the semiring's zero (0: none),
    needs no care for NaN: that is seen at each step in as many comparisons as it has entries.
    What was taken from a row of logarithms, summed in ``offsets``, is added to what is stored, or
    goes to ``levels``. ``flags[0]`` is set where a `whole` number does not fit.
    """
    for b0 in range(begin, stop, together):
        end = min(b0 + together, stop)
        if shared and (b0 == begin or own != 0):
            prepare(
                a[b0, 0], n, panels, W, turned, logs == POWERS, lift, least, packed, powers, tops
            )
        most, padded = 0, panels * W
        for b in range(b0, end):
            most = max(most, lengths[b] - skip)
            for r in range(rows):
                turn = (b - b0) * rows + r
                offsets[turn] = 0.0
                if x is not None:
                    for c in lanes(padded, whole=True):
                        carried[0, turn, c] = decode(x[b, r, c]) if c < n else zero
        for step in range(most):
            now, then = carried[step & 1], carried[1 - (step & 1)]
            for b in range(b0, end):
                left = lengths[b] - skip - step
                if left <= 0:
                    continue
                at = lengths[b] - 1 - step if reverse else step
                if not shared:
                    prepare(
                        a[b, at], n, panels, W, turned, logs == POWERS, lift, least, packed,
                        powers, tops,
                    )  # fmt: skip
                place = at - skip if reverse else at + skip
                keep = (every != 0) | (left == 1)
                for r in range(rows):
                    turn = (b - b0) * rows + r
                    row, to, out = now[turn], then[turn], y[b, place if every != 0 else 0, r]
                    if x is None and step == 0:
                        for p in range(panels):
                            for j in lanes(W, whole=True):
                                v = packed[p, row0 + r, j]
                                if e is not None and reverse:
                                    v = mul(v, decode(e[b, at, row0 + r]))
                                to[p * W + j] = v
                    else:
                        strangers = each(False)
                        if quick or (e is not None and reverse):
                            for c in lanes(padded, whole=True):
                                if e is not None and reverse:
                                    v = mul(decode(e[b, at, c]), row[c]) if c < n else zero
                                    v = stored(v, c < n, whole, flags)
                                    row[c] = v if c < n else zero
                                if quick:
                                    strangers |= strange(row[c], far) & (c < n)
                        if logs == POWERS:
                            by_powers(
                                row, to, n, panels, W, packed, powers, tops, weights, swapped,
                                lift, least, enough, scale,
                            )  # fmt: skip
                        elif logs == TERMS:
                            for p in range(panels):
                                for j in lanes(W, whole=True):
                                    to[p * W + j] = by_terms(row, packed, n, p, j, swapped)
                        elif quick and not across(strangers, any):
                            by_columns(row, to, n, panels, W, packed, swapped, True)
                        else:
                            by_columns(row, to, n, panels, W, packed, swapped, False)
                    if levelled:
                        top = each(-INF)
                    for c in lanes(padded, whole=True):
                        v = stored(to[c], c < n, whole, flags)
                        if e is not None and not reverse:
                            v = mul(v, decode(e[b, at, c])) if c < n else zero
                            v = stored(v, c < n, whole, flags)
                        to[c] = v if c < n else zero
                        if levelled:
                            top = max(top, to[c])
                        elif keep:  # noqa: SIM102
                            if c < n:
                                out[c] = encode(v)
                    if levelled:
                        base = finite(across(top, max))
                        for c in lanes(padded, whole=True):
                            v = to[c]
                            to[c] = v - base
                            if keep:
                                v = T(f64(v) + offsets[turn]) if levels is None else to[c]
                                if c < n:
                                    out[c] = encode(v)
                        offsets[turn] += f64(base)
                        if levels is not None:
                            levels[b, place] = encode(base)


@kernel
def chosen(row, line, n, padded, column, draws, uniform):
    """The first state of the best row[j] ⊗ line[j], all of which go to `column`, or one drawn.

    That is the first at which the running sum of exponentials exceeds a uniform number's part of
    the whole; a state without a share is passed over.
    """
    best = each(zero)
    for c in lanes(padded, whole=True):
        v = mul(decode(row[c]), decode(line[c])) if c < n else zero
        column[c] = v
        best = v if better(v, best) else best
    top = across(best)
    state = n - 1
    for c in lanes(padded, whole=True):
        state = min(state, first(c, same(column[c], top)))
    if draws:
        total = each(0.0)
        for c in lanes(padded, whole=True):
            power = add_exp(each(0.0), column[c] - finite(top)) if c < n else 0.0
            column[c] = power
            total += power
        left = across(total, sum) * uniform
        i = 0
        while i < n:
            share = column[i]
            if share > 0.0:
                state = i
            left -= share
            if left < 0.0 and share > 0.0:
                break
            i += 1
    return state


@kernel
def paths(
    begin: i64, stop: i64, n: i64, padded: i64, own: i64, shared: static, draws: static,
    lengths: i64[stop], a: S[stop, :, n, n], rows: S[stop - begin, :, n], end: S[stop, n],
    uniform: S[stop, :], path: i32[stop, :], score: T[stop], packed: S[:, n], column: T[padded],
):  # fmt: skip
    """From the last state back to the first, of chains of floats, whose `rows` were carried.

    The state before state j is the first that attains ⊕_i rows[i] ⊗ A[i, j], or with `draws` one
    drawn with its share of that sum. Chain b's rows are ``rows[b - begin]``.
    """
    for b in range(begin, stop):
        if shared and (b == begin or own != 0):
            for i in range(n):
                for j in range(n):
                    packed[j, i] = a[b, 0, i, j]
        last = lengths[b] - 1
        if last < 0:
            continue
        u = uniform[b, last] if draws else 0.0
        state = chosen(rows[b - begin, last], end[b], n, padded, column, draws, u)
        score[b] = column[state]
        path[b, last] = state
        for t in range(last - 1, -1, -1):
            if not shared:
                for i in range(n):
                    packed[0, i] = a[b, t, i, state]
            u = uniform[b, t] if draws else 0.0
            line = packed[state if shared else 0]
            state = chosen(rows[b - begin, t], line, n, padded, column, draws, u)
            path[b, t] = state


@kernel
def add_pairs(a, row, column, share, n, sums):
    """The probabilities of pairs of a step and the one before, whose row this is, to sums."""
    for i in range(n):
        for j in lanes(n):
            power = add_exp(each(0.0), (row[i] + a[i, j]) + column[j])
            sums[i, j] = fma(power, share, sums[i, j])


@kernel
def posterior(
    begin: i64, stop: i64, n: i64,
    lengths: i64[stop], a: T[stop, :, n, n], e: T[stop, :, n], forward: T[stop - begin, :, n],
    backward: T[stop - begin, :, n], end: T[stop, n], total: T[stop], out: T[stop, :, n],
    pairs: T[stop, :, n, n], every: static, column: T[n], levels: T[stop, :], sums: T[n, n],
):  # fmt: skip
    """The probabilities of states, and of pairs of them in a row.

    Given forward and backward rows of logarithms, levelled (the latter without the emissions of
    their step), and how much was taken from the forward ones. Each is one exponential, divided by
    their sum at its step, so that the rounding of many steps does not add up. ``total`` receives
    the log-sum over the states at a chain's end; where it is -inf or NaN, all of them are NaN.
    """
    for b in range(begin, stop):
        length = lengths[b]
        fore, back = forward[b - begin], backward[b - begin]
        if length <= 0:
            total[b] = 0.0
            continue
        high = each(-INF)
        for j in lanes(n):
            high = max(high, fore[length - 1, j] + end[b, j])
        whole = each(0.0)
        for j in lanes(n):
            whole = add_exp(whole, (fore[length - 1, j] + end[b, j]) - finite(high))
        score = across(high + log(whole))
        total[b] = score
        for t in range(length):
            top = each(-INF)
            for j in lanes(n):
                v = fore[t, j] + back[t, j]
                top = max(top, v)
                out[b, t, j] = v
            base = finite(across(top, max))
            share = each(0.0)
            for j in lanes(n):
                power = add_exp(each(0.0), out[b, t, j] - base)
                share += power
                out[b, t, j] = power
            count = across(share, sum) if score - score == 0.0 else NAN
            for j in lanes(n):
                out[b, t, j] = out[b, t, j] / count
            if pairs is not None and t > 0:
                for j in lanes(n):
                    column[j] = (e[b, t, j] - (base + levels[b, t])) + back[t, j]
                add_pairs(a[b, t - 1], fore[t - 1], column, T(1.0) / count, n, sums)
                if every or t % PAIRS == 0 or t + 1 == length:
                    which = t - 1 if every else 0
                    for i in range(n):
                        for j in lanes(n):
                            pairs[b, which, i, j] += sums[i, j]
                            sums[i, j] = 0.0
