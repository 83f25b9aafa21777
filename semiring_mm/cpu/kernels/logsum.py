"""Shifted exponentials, and logarithms of their sums: see :mod:`semiring_mm.cpu.logsum`."""

from __future__ import annotations

from ...kernel import (  # isort: skip
    S, T, across, add, add_exp, decode, each, encode, exp_gap, i64, kernel, lanes, log, static, u8,
    unrolled,
)  # fmt: skip
from .shared import INF, finite, scaled

VECTORS = 4  # of a row that are looked at together


@kernel
def shift(
    rows: i64, n: i64, x: T[rows, n], down: T[rows], along: T[n], lift: static, least: static,
    to: T[rows, n],
):  # fmt: skip
    """2**lift * exp(x - r), zero where below 2**least; r is a number for each row, or column."""
    for i in range(rows):
        for k in lanes(n):
            gap = x[i, k] - (down[i] if along is None else along[k])
            to[i, k] = exp_gap(gap, lift, least)


@kernel
def finish(
    i0: i64, i1: i64, n: i64, sums: T[i1, n], factor: T, rows: T[i1], columns: T[n], c: S[i1, n],
    more: static, alpha: T, beta: T, least: T, left: u8[i1],
):  # fmt: skip
    """C from sums, times a factor, and shifts, for rows i0 to i1 - 1.

    Where a sum is too small C stays as it is, and the row's byte in ``left`` is set.
    """
    for i in range(i0, i1):
        for j in lanes(n):
            total, old = sums[i, j] * factor, c[i, j]
            shifts = rows[i] + columns[j]
            nothing = shifts != shifts  # every term is NaN
            value = scaled(alpha, shifts if nothing else shifts + log(total))
            if more:
                value = add(value, scaled(beta, decode(old)))
            good = (total >= least) & (total < INF) | nothing
            c[i, j] = encode(value) if good else old
            if across((not good) & (j < n), any):
                left[i] = 1


@kernel
def entries(
    first: i64, last: i64, n: i64, a: T[:, n], b: T[:, n], places: i64[2, last], to: T[last],
    width: static,
):  # fmt: skip
    """log Σ exp(a[i, k] + b[j, k]) for some i and j; some vectors of `width` divide the rows.

    One exponential a term, after the greatest of them, as in the product itself.
    """
    for e in range(first, last):
        x, y = a[places[0, e]], b[places[1, e]]
        for j in lanes(width, whole=True):
            high = [each(-INF) for _ in unrolled(VECTORS)]  # may miss a NaN
            for k in range(0, n, VECTORS * width):
                for p in unrolled(VECTORS):
                    at = k + p * width + j
                    high[p] = max(high[p], x[at] + y[at])
            best = across(max(max(high[0], high[1]), max(high[2], high[3])), max)
            base = finite(best)
            total = [each(0.0) for _ in unrolled(VECTORS)]
            for k in range(0, n, VECTORS * width):
                for p in unrolled(VECTORS):
                    at = k + p * width + j
                    total[p] = add_exp(total[p], x[at] + y[at] - base)
            whole = across((total[0] + total[1]) + (total[2] + total[3]), sum)
            to[e] = best + log(whole)
