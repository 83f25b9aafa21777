"""The matrix-vector product: rows of A folded with x, or columns of A that pass over a part of y.

Sums of floats that are no products are compensated: what adding a block of some terms rounds off
is added up beside the total, so that the error does not grow with the number of terms. Where ⊕ is
logaddexp, terms are looked at twice: each of them costs one exponential.
"""

from __future__ import annotations

from ...kernel import (  # isort: skip
    S, T, across, add, add_exp, decode, each, encode, i64, kernel, lanes, log, mul, overflows,
    static, u8, unrolled, zero,
)  # fmt: skip
from .shared import INF, finite, scaled

CHUNK = 2048  # entries of y that stay in the cache while columns of A pass by
ROWS = 4  # that are folded with x together
BLOCK = (
    8  # of a sum of floats: steps of k, or columns, that are added up before they meet the total
)
STEPS = 1024  # of k that are looked at twice in a row


@kernel
def finish(y, n, i, value, more, beta, wrong):
    """Join (β ⊗) the entry that was there, and store."""
    if more:
        old = decode(y[n, i, 0])
        value = add(value, scaled(beta, old))
    y[n, i, 0] = encode(value)
    if overflows(value):
        wrong[0] = 1


@kernel
def add_exactly(total, lost, x):
    """The sum of two floats, and what was rounded off so far (Neumaier, Knuth)."""
    new = total + x
    of_x = new - total
    return new, lost + ((total - (new - of_x)) + (x - of_x))


@kernel
def exact(total, lost):
    """A compensated sum; where it is infinite or NaN, what was lost is no number."""
    both = total + lost
    return both if both - both == 0.0 else total


@kernel
def term(row, xs, k, alpha, apart):
    """(α ⊗) entries of a row of A, ⊗ those of x."""
    return mul(scaled(alpha, decode(row[k] if apart is None else row[k, 0])), xs[k])


@kernel
def join_terms(rows, xs, begin, end, j, width, count, parts, alpha, apart):
    """⊕ over the terms of `count` rows from `begin` on, each in `parts` of `width` lanes."""
    sums = [zero for _ in unrolled(count * parts)]
    for k in range(begin, end, width * parts):
        for p in unrolled(count * parts):
            x = term(rows[p // parts], xs, k + p % parts * width + j, alpha, apart)
            sums[p] = add(sums[p], x)
    return sums


@kernel
def join_logarithms(rows, xs, begin, end, j, width, count, parts, alpha, apart):
    """The same where ⊕ is logaddexp."""
    sums = [zero for _ in unrolled(count * parts)]
    for start in range(begin, end, STEPS):
        last = min(start + STEPS, end)
        high = [each(-INF) for _ in unrolled(count * parts)]
        for k in range(start, last, width * parts):
            for p in unrolled(count * parts):
                x = term(rows[p // parts], xs, k + p % parts * width + j, alpha, apart)
                high[p] = max(high[p], x)
        base = [finite(high[p]) for p in unrolled(count * parts)]
        total = [each(0.0) for _ in unrolled(count * parts)]
        for k in range(start, last, width * parts):
            for p in unrolled(count * parts):
                x = term(rows[p // parts], xs, k + p % parts * width + j, alpha, apart)
                total[p] = add_exp(total[p], x - base[p])
        for p in unrolled(count * parts):
            sums[p] = add(sums[p], high[p] + log(total[p]))
    return sums


@kernel
def join_exactly(rows, xs, begin, end, j, width, count, parts, alpha, apart):
    """The same for a compensated sum, one of each row."""
    total, lost = [zero for _ in unrolled(count)], [each(0.0) for _ in unrolled(count)]
    for start in range(begin, end, 2 * BLOCK * width):
        last = min(start + 2 * BLOCK * width, end)
        sums = join_terms(rows, xs, start, last, j, width, count, parts, alpha, apart)
        for r in unrolled(count):
            x = sums[r] if parts == 1 else add(sums[2 * r], sums[2 * r + 1])
            total[r], lost[r] = add_exactly(total[r], lost[r], x)
    return [exact(total[r], lost[r]) for r in unrolled(count)]


@kernel
def dot(
    given, y, n, first, count, xs, depth, more, alpha, beta, wrong, apart, logarithms, exactly,
    width,
):  # fmt: skip
    """Rows from `first` on, folded with x in vectors, and what is left entry by entry."""
    rows = [given[n, first + r] for r in unrolled(count)]
    whole = depth & -(2 * width) if apart is None else 0
    for j in lanes(1, whole=True):
        if exactly:
            last = whole + (max(depth - whole - 1, 0) & -(2 * BLOCK))
            before = join_exactly(rows, xs, whole, last, j, 1, count, 1, alpha, apart)
            after = join_terms(rows, xs, last, depth, j, 1, count, 1, alpha, apart)
            sums = [add(before[r], after[r]) for r in unrolled(count)]
        elif logarithms:
            sums = join_logarithms(rows, xs, whole, depth, j, 1, count, 1, alpha, apart)
        else:
            sums = join_terms(rows, xs, whole, depth, j, 1, count, 1, alpha, apart)
    if apart is None and whole > 0:
        for j in lanes(width, whole=True):
            if exactly:
                wide = join_exactly(rows, xs, 0, whole, j, width, count, 2, alpha, apart)
            else:
                if logarithms:
                    two = join_logarithms(rows, xs, 0, whole, j, width, count, 2, alpha, apart)
                else:
                    two = join_terms(rows, xs, 0, whole, j, width, count, 2, alpha, apart)
                wide = [add(two[2 * r], two[2 * r + 1]) for r in unrolled(count)]
            for r in unrolled(count):
                sums[r] = add(sums[r], across(wide[r]))
    for r in unrolled(count):
        finish(y, n, first + r, sums[r], more, beta, wrong)


@kernel
def halved(x, half):
    return [add(x[c], x[c + half]) for c in unrolled(half)]


@kernel
def add_columns(columns, right, count, size, chunk, lost, alpha, logarithms, exactly):
    """Join some columns of A, each ⊗ its entry of x, to a part of y."""
    for e in lanes(size):
        x = [mul(scaled(alpha, decode(columns[c][e])), right[c]) for c in unrolled(count)]
        total = chunk[e]
        if exactly:
            some = x[0] if count == 1 else halved(halved(halved(x, 4), 2), 1)[0]
            total, lost[e] = add_exactly(total, lost[e], some)
        elif logarithms and count > 1:
            high = total
            for c in unrolled(count):
                high = max(high, x[c])
            base = finite(high)
            powers = add_exp(each(0.0), total - base)
            for c in unrolled(count):
                powers = add_exp(powers, x[c] - base)
            total = high + log(powers)
        else:
            for c in unrolled(count):
                total = add(total, x[c])
        chunk[e] = total


@kernel
def axpy(
    turned, y, n, first, size, count, xs, depth, more, alpha, beta, wrong, logarithms, exactly,
    chunk, lost,
):  # fmt: skip
    """Rows from `first` on: columns of A pass over them, some at a time."""
    for e in lanes(size):
        chunk[e] = zero
        if exactly:
            lost[e] = 0.0
    for k in range(0, depth & -count, count):
        columns = [turned[n, k + c, first:] for c in unrolled(count)]
        right = [xs[k + c] for c in unrolled(count)]
        add_columns(columns, right, count, size, chunk, lost, alpha, logarithms, exactly)
    for k in range(depth & -count, depth):
        columns, right = [turned[n, k, first:]], [xs[k]]
        add_columns(columns, right, 1, size, chunk, lost, alpha, logarithms, exactly)
    for e in range(size):
        value = exact(chunk[e], lost[e]) if exactly else chunk[e]
        finish(y, n, first + e, value, more, beta, wrong)


@kernel
def gemv(
    b0: i64, b1: i64, i0: i64, i1: i64, depth: i64, a: S[b1, i1, depth], turned: S[b1, depth, i1],
    apart: S[b1, i1, depth, 1], x: S[depth, 1], y: S[b1, i1, 1], alpha: T, factor: T, beta: T,
    room: T[2 * CHUNK + depth], wrong: u8[1], more: static, logarithms: static, exactly: static,
    width: static, together: static,
):  # fmt: skip
    """Rows i0 to i1 - 1 of A ⊗ x for matrices b0 to b1 - 1 of a stack.

    A is ``a`` where its rows are contiguous, ``turned`` (its transpose) where its columns are, else
    ``apart``. α scales the entries of A, ``factor`` those of x. ``width`` is that of a vector, and
    ``together`` how many columns pass over a part of y at a time.
    ``wrong`` receives 1 if a result does not fit.
    """
    lost, xs = room[CHUNK:], room[2 * CHUNK :]
    if not exactly:  # whose terms do without x
        for k in range(depth):
            xs[k] = scaled(factor, decode(x[k, 0]))
    for n in range(b0, b1):
        if turned is not None:
            for first in range(i0, i1, CHUNK):
                axpy(
                    turned, y, n, first, min(CHUNK, i1 - first), together, xs, depth, more,
                    alpha, beta, wrong, logarithms, exactly, room, lost,
                )  # fmt: skip
        else:
            given = a if apart is None else apart
            grouped = i0 + (i1 - i0 & -ROWS)
            for rest in unrolled(2):
                begin, end = grouped if rest else i0, i1 if rest else grouped
                for i in range(begin, end, 1 if rest else ROWS):
                    dot(
                        given, y, n, i, 1 if rest else ROWS, xs, depth, more, alpha, beta, wrong,
                        apart, logarithms, exactly, width,
                    )  # fmt: skip
