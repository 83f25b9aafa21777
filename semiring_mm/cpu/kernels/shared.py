"""What several kernels begin and end with."""

from __future__ import annotations

import math

from ...kernel import add, kernel, scale, unrolled

INF = math.inf


@kernel
def finite(x):
    """What terms up to x are measured from: an infinity less itself would be NaN."""
    return 0.0 if abs(x) == INF else x


@kernel
def scaled(alpha, x):
    """(α ⊗) x."""
    return x if alpha is None else scale(alpha, x)


@kernel
def merged(sums, parts, count, numbers):
    """⊕ of `parts` times `count` sums, of neighbouring parts first: as many as `count`."""
    for k in unrolled(3):
        for p in unrolled(0, parts - (1 << k), 2 << k):
            for c in unrolled(count):
                other = sums[(p + (1 << k)) * count + c]
                sums[p * count + c] = add(sums[p * count + c], other, numbers=numbers)
    return [sums[c] for c in unrolled(count)]
