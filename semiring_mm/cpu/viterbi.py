"""How best paths are computed where all steps of a sequence share one matrix: schedule, memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..memory import pieces_of
from ..plan import Plan
from .codegen import Call, Compiled, compiled
from .compiler import KEPT, host_target
from .kernels import viterbi as kernels

__all__ = ["Task", "task_of", "viterbi"]

Array = NDArray[Any]

_SUMS = 8  # independent sums of vectors that hide how long one addition and comparison take
_LANES = 1 << 24  # bytes of rows of which the states of a sequence may lie so far apart
_KEPT = 1 << 21  # bytes of rows from which fewer sequences go on together


class Task(NamedTuple):
    """How to compute chains."""

    #: ``bind(first, last, memory)``: the call for chains ``order[first:last]``, in a workspace.
    bind: Callable[[int, int, NDArray[np.uint8]], Call]
    room: int  # bytes of the workspace
    together: int  # chains that go on together


def task_of(
    call: Compiled,
    fields: dict[str, Any],
    together: int,
    rooms: dict[str, tuple[int, ...]],
    dtype: np.dtype[Any],
    filled: dict[str, float],
) -> Task:
    """The task of a kernel with some parameters, and arrays of these shapes that it writes.

    What is in `filled` is that number before.
    """
    size = np.dtype(dtype).itemsize
    sizes = [math.prod(shape) * size for shape in rooms.values()]
    places, room = pieces_of(*(min(size, _KEPT) for size in sizes))

    def bind(first: int, last: int, memory: NDArray[np.uint8]) -> Call:
        arrays = {}
        for (name, shape), place, size in zip(rooms.items(), places, sizes, strict=True):
            piece = memory[place]
            if size > len(piece):  # of a long chain: not kept after the call
                piece = np.empty(size + 64, np.uint8)
                piece = piece[-piece.ctypes.data % 64 :]
            arrays[name] = np.ndarray(shape, dtype, piece)
            if name in filled:
                arrays[name].fill(filled[name])
        return call.bind(**fields, **arrays, begin=first, stop=last)

    return Task(bind, room, together)


@functools.lru_cache(maxsize=KEPT)
def _without_nan(plan: Plan) -> Plan:
    return replace(plan, keep_nan=False)


def viterbi(
    plan: Plan,
    far: float,
    a: Array,
    e: Array,
    x: Array,
    end: Array,
    path: NDArray[np.int32],
    score: Array,
    lengths: NDArray[np.int64],
    symbols: NDArray[np.int64] | None,
    order: NDArray[np.int64],
    odd: NDArray[np.uint8],
    threads: int,
) -> Task:
    """How to compute the best paths of some chains; see :meth:`.engine.Chains.best_path`.

    The matrix is that of all steps, and has neither NaN nor an infinity that is not `far`, the
    semiring's zero, or 0. Chains in `order` have steps; neighbours, which go on together, are best
    of one length. `odd` (batch,) receives 1 where results are to be computed with care instead.
    So many `threads` call the function.
    """
    n, size, steps = a.shape[-1], a.itemsize, int(lengths.max(initial=0))
    shared, lanes = a.strides[0] == 0, host_target().vector_bytes // size
    padded = -(-n // lanes) * lanes
    row, vectors = steps * padded * size, padded // lanes
    chains = -(-len(order) // threads) if shared else 1
    matrix = np.ascontiguousarray(a[:1, 0] if shared else a[:, 0])
    fields = {
        "far": far, "order": order, "lengths": lengths, "e": e if symbols is None else e[None],
        "symbols": symbols, "x": x, "end": end, "path": path, "score": score, "odd": odd, "n": n,
    }  # fmt: skip
    plan = _without_nan(plan)
    together, rooms = 1, dict[str, tuple[int, ...]]()
    if lanes * size == 64 and n <= lanes <= 2 * chains and n * row <= _LANES:
        together = lanes
        call = compiled(kernels.best_paths_in_lanes, plan, plan.start)
        wide = np.full((n, lanes), plan.start, a.dtype)
        wide[:, :n] = matrix[0]
        fields |= {"many": lanes, "a": wide.ravel()}
        rooms = {"rows": (steps, n * lanes)}
    else:
        while 2 * together <= min(_SUMS, 2 * chains - 1) and 2 * together * row <= _KEPT:
            together *= 2
        parts = min(_SUMS // together, lanes)
        deep = -(-n // parts) * parts
        few = vectors <= min(_SUMS, 64 // lanes)
        width = 1 if few else math.gcd(vectors, min(4, 64 // lanes))
        call = compiled(kernels.best_paths, plan, plan.start)
        fields |= {
            "padded": padded, "deep": deep, "panels": vectors, "shared": shared, "W": lanes,
            "width": width,
            "times": vectors if few else 0, "together": together, "parts": parts, "a": matrix,
        }  # fmt: skip
        rooms = {
            "rows": (together, steps, padded), "matrix": (vectors, deep, lanes),
            "columns": (n + together, padded),
        }  # fmt: skip
    return task_of(
        call, fields, together, rooms, a.dtype, dict.fromkeys(("matrix", "columns"), plan.start)
    )
