"""How posterior probabilities are computed without logarithms: schedule, memory, range.

The steps of a chain share one matrix: :mod:`semiring_mm.cpu.kernels.forward_backward`.

What is lost below the range of float64 must not come to count later. Where each state follows each
one, with at least 2**-RANGE of the largest factor, each sum of the next row is at least that part
of the largest entry of this row: beside it what was lost is nothing, whatever the emissions are.
Where transitions are impossible (-inf), nothing may be lost: emissions have to be within that range
of the largest, too, and entries of rows within 2**-400. Chains that do not keep to this, or have
NaN, an infinity or no possible path, are marked: :mod:`semiring_mm.cpu.chain` computes them in
logarithms.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .codegen import compiled
from .compiler import host_target
from .kernels import forward_backward as kernels
from .viterbi import Task, task_of

__all__ = ["forward_backward"]

Array = NDArray[Any]

RANGE = 150  # powers of two: of transitions and emissions
_SUMS = 8  # sums of vectors in registers, of one part of two
_KEPT = 1 << 21  # bytes of rows from which fewer sequences go on together


def forward_backward(
    a: Array,
    e: Array,
    x: Array,
    end: Array,
    total: NDArray[np.float64],
    out: Array | None,
    pairs: Array | None,
    lengths: NDArray[np.int64],
    symbols: NDArray[np.int64] | None,
    order: NDArray[np.int64],
    odd: NDArray[np.uint8],
    threads: int,
) -> Task:
    """How to compute the log-partitions and the posterior probabilities of some chains.

    See :meth:`.engine.Chains.posterior`; the matrix is that of all steps, and `total` of float64.
    For `order`, `odd` and `threads` see :func:`.viterbi.viterbi`: nothing is added to `pairs` of
    chains that are odd.
    """
    n, steps, own = a.shape[-1], int(lengths.max(initial=0)), a.strides[0] != 0
    lanes = host_target().vector_bytes // 8
    exponentials, tops, odd[:], limited = _exponentials_of(a[:, 0] if own else a[:1, 0])
    vectors = -(-n // lanes)
    width = math.gcd(vectors, 4) if vectors < 8 else 4
    wide, count = width * lanes, -(-vectors // width)
    padded = wide * count
    rows = steps if out is not None else 2
    powers = 0 if symbols is not None else steps if out is not None else kernels.STEPS
    room, chains = (rows + powers) * padded * 8, 1 if own else -(-len(order) // threads)
    together = 1
    while 2 * together * width <= _SUMS and together < chains and 2 * together * room <= _KEPT:
        together *= 2
    least = -RANGE * math.log(2) if limited else -math.inf
    down, turned = _panels(exponentials, count, wide)
    rooms = {
        "rows": (together, rows, padded), "behind": (together, padded), "ahead": (together, padded)
    }  # fmt: skip
    fields: dict[str, Any] = {
        "n": n, "padded": padded, "depth": n + n % 2, "wide": wide, "panels": count, "own": own,
        "least": least, "together": together, "width": width,
        "times": padded // lanes if padded <= 4 * lanes else 0, "down": min(lanes, _SUMS // width),
        "limited": limited, "order": order, "lengths": lengths, "matrices": down,
        "turned": turned, "a_tops": tops, "e": e, "symbols": symbols, "x": x, "end": end,
        "total": total, "odd": odd, "out": out,
    }  # fmt: skip
    types = f"f8 f{a.itemsize}"
    if symbols is None:
        rooms |= {"powers": (together, powers, padded), "tops": (together, powers)}
    else:
        table = {"powers": np.empty((1, len(e), padded)), "tops": np.empty((1, len(e)))}
        compiled(kernels.of_symbols, types)(
            count=len(e), n=n, padded=padded, least=least, e=e, **table
        )
        fields |= {"e": None, **table}
    if pairs is None:
        fields |= {"pairs": None, "shares": None, "sums": None}
    else:
        fields["pairs"] = pairs[:, 0]
        rooms |= {"shares": (together, kernels.STEPS, padded), "sums": (together, padded, padded)}
    call = compiled(kernels.forward_backward, types)
    return task_of(call, fields, together, rooms, np.dtype(np.float64), {"sums": 0})


def _exponentials_of(a: Array) -> tuple[Array, Array, NDArray[np.bool_], bool]:
    """Those of matrices (matrices, n, n) less the largest entry of each.

    And these entries, where exponentials are not within the range, and whether some transitions are
    impossible.
    """
    with np.errstate(all="ignore"):
        tops = a.max((1, 2)).astype(np.float64)
        powers = np.exp(a.astype(np.float64) - tops[:, np.newaxis, np.newaxis])
    impossible = a == -math.inf
    least = powers.min((1, 2), initial=1, where=~impossible)
    odd = ~(np.isfinite(tops) & (least >= 2.0**-RANGE))
    return powers, tops, odd, bool(impossible.any())


def _panels(powers: Array, count: int, wide: int) -> tuple[Array, Array]:
    """Matrices and their transposes in panels of columns, among zeros.

    Of shape (matrices, count, depth, wide), the depth even.
    """
    many, n, _ = powers.shape
    found = np.zeros((2, many, n + n % 2, count * wide))
    found[0, :, :n, :n] = powers
    found[1, :, :n, :n] = powers.transpose(0, 2, 1)
    found = found.reshape(2, many, -1, count, wide).transpose(0, 1, 3, 2, 4)
    down, turned = np.ascontiguousarray(found)
    return down, turned
