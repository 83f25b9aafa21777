"""Rows of labels for many sources, as sweeps over a factor leave them, written as a matrix."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..layouts import LayoutError
from ..plan import Plan
from .algebra import Algebra
from .blocks import address, block, load_block, load_item
from .compiler import KEPT, Target, compile_functions, host_target
from .ir import I32, I64, PTR, Function, Type, Value, transposed

__all__ = ["lanes", "turned_bytes", "vectors", "write"]

Array = NDArray[Any]

_LINE = 64  # bytes of a line of the caches
_COLUMNS = 512  # that are turned into rows at a time, in the second-level cache
_BLOCK = "n base : offsets where : : label rows turned"


def lanes(itemsize: int) -> int:
    """Labels of a vector."""
    return host_target().vector_bytes // itemsize


def vectors() -> int:
    """Vectors of labels that stay in registers."""
    return 8 if host_target().registers >= 32 else 4


def turned_bytes(width: int, itemsize: int) -> int:
    """Scratch memory for :func:`write`."""
    return width * (_COLUMNS * max(itemsize, I32.size) + _LINE)


def write(
    plan: Plan | None, label: Array, where: NDArray[np.int64], lines: NDArray[np.int64], out: Array,
    turned: NDArray[np.uint8],
) -> None:  # fmt: skip
    """``out[lines[i], j]`` ← ``label[where[j], i]``, stored as a plan says; None: as it is."""
    width = label.shape[1]
    if len(turned) < turned_bytes(width, label.itemsize):
        raise LayoutError(f"turned has {len(turned)} bytes, less than turned_bytes")
    offsets = lines * out.strides[0]
    values = block(_BLOCK, {
        "n": len(where), "base": out.ctypes.data, "offsets": offsets,
        "where": where, "label": label, "rows": out, "turned": turned,
    })  # fmt: skip
    _compiled(plan, width)(address(values))


@functools.lru_cache(maxsize=KEPT)
def _compiled(plan: Plan | None, width: int) -> Any:
    target = host_target()
    library = compile_functions([_write_function(plan, width, target)], target)
    return library.function("write", ctypes.c_void_p)


def _write_function(plan: Plan | None, width: int, target: Target) -> Function:
    """Labels, some columns at a time, turned within a cache and then written past it."""
    f = Function("write", [PTR])
    algebra, x = None if plan is None else Algebra(f, plan), load_block(f, _BLOCK)
    t, s = (I32, I32) if algebra is None else (algebra.compute, algebra.storage)
    lanes = min(target.vector_bytes // t.size, width)
    pitch = _COLUMNS * t.size + _LINE  # rows do not fall upon each other in the cache
    turned, vector = x["turned"], t.vector(lanes)

    def stored(value: Value) -> Value:
        return value if algebra is None else algebra.encode(value)[0]

    def label(j: Value) -> Value:
        base: Value = x["label"]
        return base.at(x["where"][j] * (width * t.size))

    with f.loop(0, x["n"], _COLUMNS) as first:
        count = f.low(x["n"] - first, _COLUMNS)
        whole = count // lanes * lanes
        with f.loop(0, whole, lanes) as j:
            for i in range(lanes):  # labels are far from each other
                ahead = label(f.low(first + j + (2 * lanes + i), x["n"] - 1))
                for line in range(0, width * t.size, _LINE):
                    f.prefetch(ahead.at(line))
            for g in range(0, width, lanes):
                at = [label(first + j + i).at(g * t.size) for i in range(lanes)]
                vectors = [f.load(place, vector, t.size) for place in at]
                for i, value in enumerate(transposed(f, vectors)):
                    f.store(value, turned.at(j * t.size + (g + i) * pitch), t.size)
        with f.loop(whole, count) as j, f.loop(0, width) as lane:
            value = f.load(label(first + j).at(lane * t.size), t, t.size)
            f.store(value, turned.at(lane * pitch + j * t.size), t.size)
        with f.loop(0, width) as lane:
            start = x["offsets"][lane] + first * s.size
            row, own = x["rows"].at(start), turned.at(lane * pitch)
            _copy(f, t, s, stored, own, row, x["base"] + start, count, target.vector_bytes)
    f.fence()
    return f


def _copy(
    f: Function, t: Type, s: Type, stored: Callable[[Value], Value], own: Value, row: Value,
    address: Value, count: Value, line: int,
) -> None:  # fmt: skip
    """Convert entries; whole vectors of `line` bytes go past the caches."""
    per = max(1, line // s.size)

    def one(j: Value) -> None:
        f.store(stored(load_item(f, own, j, t)), row.at(j * s.size), s.size)

    head = f.low((f.const(line, I64) - (address & (line - 1)) & (line - 1)) // s.size, count)
    odd = (address & (s.size - 1)).cmp("!=", 0)  # of an array that is not aligned
    head = f.select(odd, count, head)
    tail = head + (count - head) // per * per
    with f.loop(0, head) as j:
        one(j)
    with f.loop(head, tail, per) as j:
        values = f.load(own.at(j * t.size), t.vector(per), t.size)
        f.store_past_caches(stored(values), row.at(j * s.size))
    with f.loop(tail, count) as j:
        one(j)
