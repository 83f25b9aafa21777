"""The forward-backward algorithm without logarithms, where all steps of a chain share one matrix.

Rows of sums are carried as float64 with an exponent of their own (Rabiner, 1989): a step is
multiply-adds, the exponentials of its emissions less the largest of them, and one exact scaling by
a power of two. Some chains go on together, a step each in turn, so that one does not wait for the
result of its last step while another could compute; an entry of the matrix is loaded once for all
of them. The order of a sum does not depend on how many are together.
"""

from __future__ import annotations

import math

from ...kernel import (  # isort: skip
    S, T, across, bits, decode, each, encode, exp_gap, f64, fma, i64, kernel, lanes, log, static,
    u8, unrolled,
)  # fmt: skip

INF, NAN, LOG_2 = math.inf, math.nan, math.log(2)
BIAS, EXPONENT = 1023, 0x7FF << 52  # of a float64
STEPS = 64  # whose emissions are exponentiated at a time, and whose pairs are added up
LEAST, WHOLE = 2.0**-400, 2.0**-300  # of entries of rows, where limited; of all sequences' sum


@kernel
def exponentials(row, n, padded, times, least, to):
    """Of a row less its largest entry, which is returned: NaN if one but -inf is under `least`."""
    top = each(-INF)
    for j in lanes(padded, whole=True, times=times):
        top = max(top, decode(row[j]) if j < n else -INF)
    high = across(top, max)
    base = 0.0 if high == -INF else high
    lost = each(False)
    for j in lanes(padded, whole=True, times=times):
        gap = (decode(row[j]) if j < n else -INF) - base
        lost |= (gap < least) & (gap > -INF)
        to[j] = exp_gap(gap, 0, -1021)
    return NAN if across(lost, any) else base


@kernel
def of_symbols(
    count: i64, n: i64, padded: i64, least: T, e: S[count, n], powers: T[1, count, padded],
    tops: T[1, count],
):  # fmt: skip
    """Exponentials of a table of emissions, a row for each symbol."""
    for k in range(count):
        tops[0, k] = exponentials(e[k], n, padded, 0, least, powers[0, k])


@kernel
def products(rows, matrix, depth, j, together, width):
    """Σ_i row[i] matrix[i, j] for each of some rows, in two parts."""
    sums = [each(0.0, width) for _ in unrolled(2 * together)]
    for i in range(0, depth, 2):
        for k in unrolled(2):
            for c in unrolled(together):
                sums[2 * c + k] = fma(rows[c][i + k], matrix[i + k, j], sums[2 * c + k])
    return [sums[2 * c] + sums[2 * c + 1] for c in unrolled(together)]


@kernel
def power_of(top):
    """The biased exponent of the largest entry of a row, and a factor that takes it away."""
    exponent = bits(across(top, max)) & EXPONENT
    return exponent >> 52, bits((2 * BIAS << 52) - exponent)


@kernel
def dot(x, y, padded, times):
    total = each(0.0)
    for j in lanes(padded, whole=True, times=times):
        total = fma(x[j], y[j], total)
    return across(total, sum)


@kernel
def give(row, after, inverse, n, times, out):
    """Probabilities of the states at a step."""
    for j in lanes(n, times=times):
        out[j] = encode(row[j] * after[j] * inverse)


@kernel
def add_pairs(rows, count, shares, first, last, n, padded, sums, width, down):
    """Products of rows and of the shares of the steps after them, for some steps back."""
    for j in lanes(padded, width, whole=True):
        for i in range(0, n, down):
            total = [sums[i + s, j] for s in unrolled(down)]
            for k in range(first, last):
                row = rows[count - 1 - k]
                for s in unrolled(down):
                    total[s] = fma(row[i + s], shares[k - first, j], total[s])
            for s in unrolled(down):
                sums[i + s, j] = total[s]


@kernel
def give_pairs(sums, matrix, n, wide, panels, odd, pairs):
    """Add the sums, times the matrix, to the result, and clear them."""
    for p in range(panels):
        for i in range(n):
            if odd == 0:
                for j in lanes(min(wide, n - p * wide)):
                    v = fma(sums[i, p * wide + j], matrix[p, i, j], decode(pairs[i, p * wide + j]))
                    pairs[i, p * wide + j] = encode(v)
            for j in lanes(wide, whole=True):
                sums[i, p * wide + j] = 0.0


@kernel
def kept(out, t):
    """Where a step's row is: without `out` two are kept."""
    return t & 1 if out is None else t


@kernel
def place(symbols, out, b, t):
    """Where the exponentials of a step's emissions are."""
    if symbols is not None:
        return symbols[b, t]
    return t & (STEPS - 1) if out is None else t


@kernel
def forward_backward(
    begin: i64, stop: i64, n: i64, padded: i64, depth: i64, wide: i64, panels: i64, own: i64,
    least: T, together: static, width: static, times: static, down: static, limited: static,
    order: i64[stop], lengths: i64[:], matrices: T[:, panels, depth, wide],
    turned: T[:, panels, depth, wide], a_tops: T[:],
    e: S[:, :, n], symbols: i64[:, :], x: S[:, n], end: S[:, n],
    total: T[:], odd: u8[:], out: S[:, :, n], pairs: S[:, n, n],
    rows: T[together, :, padded], powers: T[:, :, padded], tops: T[:, :],
    behind: T[together, padded], ahead: T[together, padded], shares: T[together, 64, padded],
    sums: T[together, padded, padded],
):  # fmt: skip
    """Log-partitions and posterior probabilities of the chains order[begin:stop].

    Without `out` two rows of a chain are kept, and the emissions of some steps. What a chain goes
    on with after its end is not used. Chains whose small numbers could come to count are marked in
    ``odd``.
    """
    for g in range(begin, stop, together):
        b = [order[min(g + c, stop - 1)] for c in unrolled(together)]
        count = [lengths[b[c]] for c in unrolled(together)]
        longest = 0
        for c in unrolled(together):
            longest = max(longest, count[c])
        which = b[0] if own != 0 else 0
        row = [rows[c] for c in unrolled(together)]
        power = [powers[0 if symbols is not None else c] for c in unrolled(together)]
        taken = [tops[0 if symbols is not None else c] for c in unrolled(together)]
        for c in range(together):
            one = order[min(g + c, stop - 1)]
            behind[c, 0] = exponentials(x[one], n, padded, times, least, rows[c, 0])
        level = [behind[c, 0] for c in unrolled(together)]
        exponent = [BIAS for c in unrolled(together)]
        exponents = [0 for c in unrolled(together)]
        scale = [1.0 for c in unrolled(together)]
        top = [each(0.0, width) for c in unrolled(together)]
        small = [each(False, width) for c in unrolled(together)]
        for part in range(1, longest, STEPS):
            past = min(part + STEPS, longest)
            if symbols is None:
                for c in range(together):
                    one = order[min(g + c, stop - 1)]
                    for t in range(part, min(past, lengths[one])):
                        to = place(symbols, out, one, t)
                        tops[c, to] = exponentials(
                            e[one, t], n, padded, times, least, powers[c, to]
                        )
            for t in range(part, past):
                at = [
                    place(symbols, out, b[c], t if t < count[c] else 1) for c in unrolled(together)
                ]
                seen = [power[c][at[c]] for c in unrolled(together)]
                now = [row[c][kept(out, min(t, count[c]) - 1)] for c in unrolled(together)]
                then = [row[c][kept(out, min(t, count[c]))] for c in unrolled(together)]
                for p in range(panels):
                    for j in lanes(wide, width, whole=True, times=1):
                        found = products(now, matrices[which, p], depth, j, together, width)
                        for c in unrolled(together):
                            v = found[c] * scale[c] * seen[c][p * wide + j]
                            then[c][p * wide + j] = v
                            top[c] = max(top[c], v)
                            if limited:
                                small[c] |= (v > 0.0) & (v < LEAST) & (t < count[c])
                for c in unrolled(together):
                    if t < count[c]:
                        exponents[c] += exponent[c]
                        level[c] += taken[c][at[c]]
                    exponent[c], scale[c] = power_of(top[c])
                    top[c] = 0.0
        for c in range(together):
            one = order[min(g + c, stop - 1)]
            ahead[c, 0] = exponentials(end[one], n, padded, times, least, behind[c])
        inverse = [1.0 for c in unrolled(together)]
        for c in unrolled(together):
            whole = dot(row[c][kept(out, count[c] - 1)], behind[c], padded, times)
            inverse[c], scale[c] = 1.0 / whole, 1.0
            moves = count[c] - 1
            level[c] = fma(f64(moves), a_tops[which], level[c]) + ahead[c, 0]
            value = fma(f64(exponents[c] - moves * BIAS), LOG_2, log(whole)) + level[c]
            total[b[c]] = value
            if not (whole >= WHOLE) & (value - value == 0.0):
                odd[b[c]] = 1
            if limited and across(small[c], any):
                odd[b[c]] = 1
            if out is not None:
                t = count[c] - 1
                give(row[c][t], behind[c], inverse[c], n, times, out[b[c], t])
        if out is None:
            continue
        last, next = [behind[c] for c in unrolled(together)], [ahead[c] for c in unrolled(together)]
        for part in range(1, longest, STEPS):  # to the step k before the last
            past = min(part + STEPS, longest)
            for k in range(part, past):
                after = [count[c] - k if k < count[c] else 1 for c in unrolled(together)]
                for c in unrolled(together):
                    to = place(symbols, out, b[c], after[c])
                    for j in lanes(padded, whole=True, times=times):
                        next[c][j] = last[c][j] * power[c][to, j]
                for p in range(panels):
                    for j in lanes(wide, width, whole=True, times=1):
                        found = products(next, turned[which, p], depth, j, together, width)
                        for c in unrolled(together):
                            v = found[c] * scale[c]
                            last[c][p * wide + j] = v
                            top[c] = max(top[c], v)
                            if limited:
                                small[c] |= (v > 0.0) & (v < LEAST) & (k < count[c])
                for c in unrolled(together):
                    if k < count[c]:
                        t = after[c] - 1
                        inverse[c] = 1.0 / dot(last[c], row[c][t], padded, times)
                        give(row[c][t], behind[c], inverse[c], n, times, out[b[c], t])
                        if pairs is not None:
                            for j in lanes(padded, whole=True, times=times):
                                shares[c, k - part, j] = next[c][j] * (scale[c] * inverse[c])
                    exponent[c], scale[c] = power_of(top[c])
                    top[c] = 0.0
            if pairs is not None:
                for c in range(together):
                    length = lengths[order[min(g + c, stop - 1)]]
                    add_pairs(
                        rows[c], length, shares[c], part, min(past, length), n, padded, sums[c],
                        width, down,
                    )  # fmt: skip
        for c in unrolled(together):
            if limited and across(small[c], any):
                odd[b[c]] = 1
        if pairs is not None:
            for c in range(min(together, stop - g)):
                one = order[g + c]
                give_pairs(sums[c], matrices[which], n, wide, panels, odd[one], pairs[one])
