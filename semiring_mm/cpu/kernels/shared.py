"""What several kernels begin and end with."""

from __future__ import annotations

import math

from ...kernel import kernel, scale

INF = math.inf


@kernel
def finite(x):
    """What terms up to x are measured from: an infinity less itself would be NaN."""
    return 0.0 if abs(x) == INF else x


@kernel
def scaled(alpha, x):
    """(α ⊗) x."""
    return x if alpha is None else scale(alpha, x)
