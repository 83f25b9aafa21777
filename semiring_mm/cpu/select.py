"""The k least of each row of a matrix that comes tile by tile, compiled.

Of each row there is a heap with the worst of its k best at the root. A vector of new values is
compared with it at once; on random data few pass. The order is that of (value, index), NaN last.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from .blocks import Items, load_item
from .codegen import compiled
from .compiler import host_target
from .ir import I64, PTR, Function, Type, Value
from .kernels import select as kernels

__all__ = [
    "BEHIND", "FEW", "MOST", "NOTHING", "each_hit", "empty", "finish", "put", "room_of", "run",
    "sink_function", "worse",
]  # fmt: skip

NOTHING = (1 << 63) - 1  #: the index of an entry that has none
_TOGETHER = 4  # vectors that are tested at once
BEHIND = 4 * 64  #: bytes behind a tile that are read
MOST = NOTHING  #: the largest heap
FEW = 96  # rows that threads share by their columns
_ROWS = 288  # of a tile
_TILE = 3 << 19  # bytes of a tile in float32


def empty(rows: int, k: int, dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Heaps that every value improves."""
    worst = np.nan if dtype.kind == "f" else np.iinfo(dtype).max
    return np.full((rows, k), worst, dtype), np.full((rows, k), NOTHING)


def put(value: NDArray[Any], index: NDArray[np.int64], tile: NDArray[Any], base: int) -> None:
    """Put the values of a tile (rows, columns) into the heaps (rows, k) of its rows.

    Column j has index ``base + j``. Its rows are contiguous, and BEHIND bytes after it may be
    read.
    """
    lanes = host_target().vector_bytes // value.itemsize
    compiled(kernels.put, value.dtype.str[1:])(
        many=min(_TOGETHER, 64 // lanes), real=value.dtype.kind == "f", rows=value.shape[0],
        columns=tile.shape[1], k=value.shape[1], base=base, value=value, index=index, tile=tile,
    )  # fmt: skip
    pool.look()


def room_of(m: int, n: int, k: int, dtype: np.dtype[Any]) -> tuple[int, int]:
    """Rows and columns of the tiles of an m × n matrix: they stay in a cache, one for a thread."""
    rows = min(_ROWS, -(-m // pool.get_num_threads())) or 1
    if m <= FEW:
        rows = m or 1
    return rows, max(1, min(n, _TILE // (rows * dtype.itemsize)))


def run(tasks: Sequence[Callable[[], None]]) -> None:
    """Call functions, on all threads."""
    pool.run(tasks)


def finish(value: NDArray[Any], index: NDArray[np.int64]) -> None:
    """Sort each heap, best first."""
    rows, k = value.shape
    compiled(kernels.sort, value.dtype.str[1:])(rows=rows, k=k, value=value, index=index)


def worse(f: Function, d: Value, i: Value, e: Value, j: Value) -> Value:
    """Whether value d at index i comes after e at j."""
    same = d.cmp("==", e)
    later = d.cmp(">", e)
    if d.type.kind == "f":
        later = later | (d.cmp("uno", d) & e.cmp("ord", e))
        same = same | (d.cmp("uno", d) & e.cmp("uno", e))
    return later | (same & i.cmp(">", j))


def sink_function(t: Type) -> Function:
    """Replace the root of a heap of `size` entries, and move it down to its place."""
    f = Function("sink", [PTR, PTR, I64, t, I64], private=True)
    value, base, size, d, i = f.args
    index = Items(f, base, I64)
    at = f.var(f.const(0, I64))
    with f.while_() as done:
        left = at.get() * 2 + 1
        f.break_if(left.cmp(">=", size), done)
        child = f.var(left)
        with f.if_((left + 1).cmp("<", size)):
            e, o = (load_item(f, value, x, t) for x in (left, left + 1))
            with f.if_(worse(f, o, index[left + 1], e, index[left])):
                child.set(left + 1)
        e, j = load_item(f, value, child.get(), t), index[child.get()]
        f.break_if(worse(f, e, j, d, i) ^ 1, done)
        f.store(e, value.at(at.get() * t.size), t.size)
        index[at.get()] = j
        at.set(child.get())
    f.store(d, value.at(at.get() * t.size), t.size)
    index[at.get()] = i
    return f


def each_hit(
    f: Function, columns: Value, lanes: int, hits: Callable[[Value], Value],
    visit: Callable[[Value], None],
) -> None:  # fmt: skip
    """Visit the columns of a row that pass a test; `hits` makes it of a vector from a column on.

    Some vectors are tested together, also behind the row's end, whose columns are not visited.
    """
    with f.loop(0, columns, _TOGETHER * lanes) as c:
        masks = [hits(c + v * lanes).bits_as(Type("u", lanes)).to(I64) for v in range(_TOGETHER)]
        with f.if_(functools.reduce(operator.or_, masks).cmp("!=", 0)):
            for v, mask in enumerate(masks):
                left, first = f.var(mask), c + v * lanes
                inside = f.low(columns - first, lanes)
                with f.while_() as done:
                    bits = left.get()
                    lane = f.call("llvm.cttz.i64", I64, [bits, f.const(0, Type("i", 1))])
                    f.break_if(lane.cmp(">=", inside), done)
                    left.set(bits & (bits - 1))
                    visit(first + lane)
