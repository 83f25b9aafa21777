"""The k least of each row of a matrix that comes tile by tile, compiled.

Of each row there is a heap with the worst of its k best at the root. A vector of new values is
compared with it at once; on random data few pass. The order is that of (value, index), NaN last.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .algebra import storage_type
from .blocks import Items, block, load_block, load_item
from .compiler import compile_functions, host_target
from .ir import I64, PTR, Function, Type, Value

__all__ = ["NOTHING", "empty_heaps", "put", "sink_function", "sort", "worse"]

NOTHING = (1 << 63) - 1  #: the index of an entry that has none
_FIELDS = "rows columns step k base : index : : value tile"


def empty_heaps(rows: int, k: int, dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Heaps that every value improves."""
    worst = np.nan if dtype.kind == "f" else np.iinfo(dtype).max
    return np.full((rows, k), worst, dtype), np.full((rows, k), NOTHING)


def put(value: NDArray[Any], index: NDArray[np.int64], tile: NDArray[Any], base: int) -> None:
    """Put the values of a tile (rows, columns) into the heaps (rows, k) of its rows.

    Column j has index ``base + j``. Rows of the tile are contiguous and followed by a vector of
    memory that may be read.
    """
    rows, k = value.shape
    fields = {
        "rows": rows, "columns": tile.shape[1], "step": tile.strides[0], "k": k, "base": base,
        "index": index, "value": value, "tile": tile,
    }  # fmt: skip
    _call("put", value.dtype.name, fields)


def sort(value: NDArray[Any], index: NDArray[np.int64]) -> None:
    """Sort each heap, best first."""
    rows, k = value.shape
    _call("sort", value.dtype.name, {"rows": rows, "k": k, "index": index, "value": value})


def _call(name: str, dtype: str, fields: Mapping[str, Any]) -> None:
    values = block(_FIELDS, fields)
    _compiled(dtype)[name](values.ctypes.data)


@functools.cache
def _compiled(dtype: str) -> dict[str, Any]:
    t, target = storage_type(dtype), host_target()
    sink = sink_function(t)
    functions = [
        sink,
        _put_function(t, sink, target.vector_bytes // t.size),
        _sort_function(t, sink),
    ]
    library = compile_functions(functions, target)
    return {name: library.function(name, ctypes.c_void_p) for name in ("put", "sort")}


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


def _put_function(t: Type, sink: Function, lanes: int) -> Function:
    f = Function("put", [PTR])
    x = load_block(f, _FIELDS)
    k = x["k"]
    with f.loop(0, x["rows"]) as r:
        row, value = x["tile"].at(r * x["step"]), x["value"].at(r * k * t.size)
        base = x["index"].base.at(r * k * 8)
        with f.loop(0, x["columns"], lanes) as c:
            worst = f.load(value, t, t.size).splat(lanes)
            new = f.load(row.at(c * t.size), t.vector(lanes), t.size)
            # of floats: or one of the two is NaN
            hits = new.cmp("ult" if t.kind == "f" else "<=", worst).bits_as(Type("u", lanes))
            with f.if_(hits.cmp("!=", 0)):
                inside = f.low(x["columns"] - c, lanes)
                _each_hit(f, hits.to(I64), c, inside, row, t, value, base, k, x["base"], sink)
    return f


def _each_hit(
    f: Function, hits: Value, c: Value, inside: Value, row: Value, t: Type, value: Value,
    base: Value, k: Value, first: Value, sink: Function,
) -> None:  # fmt: skip
    left = f.var(hits)
    index = Items(f, base, I64)
    with f.while_() as done:
        bits = left.get()
        lane = f.call("llvm.cttz.i64", I64, [bits, f.const(0, Type("i", 1))])
        f.break_if(lane.cmp(">=", inside), done)
        left.set(bits & (bits - 1))
        d, i = load_item(f, row, c + lane, t), first + c + lane
        with f.if_(worse(f, load_item(f, value, f.const(0, I64), t), index[0], d, i)):
            f.invoke(sink, [value, base, k, d, i])


def _sort_function(t: Type, sink: Function) -> Function:
    f = Function("sort", [PTR])
    x = load_block(f, _FIELDS)
    k = x["k"]
    with f.loop(0, x["rows"]) as r, f.loop(1, k) as n:
        value, base = x["value"].at(r * k * t.size), x["index"].base.at(r * k * 8)
        index, last = Items(f, base, I64), k - n
        d, i = load_item(f, value, last, t), index[last]
        f.store(load_item(f, value, f.const(0, I64), t), value.at(last * t.size), t.size)
        index[last] = index[0]
        f.invoke(sink, [value, base, last, d, i])
    return f
