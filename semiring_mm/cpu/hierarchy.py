"""Weights and paths over the edges of a sparse elimination, compiled for a semiring.

Vertices are named by their positions in the elimination order; every edge leads up, from a lower to
a higher one, and has a weight for each direction. The first ``fringe`` positions are eliminated one
by one, the others are a dense core. Labels settle in a pass up, a closure of the core, and a pass
down (PHAST: Delling, Goldberg, Nowatzyk and Werneck, 2013). The lanes of the vectors are different
sources.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping
from typing import Any

from ..plan import Plan
from .algebra import Algebra, compute_type
from .blocks import address, block, load_block, load_item
from .codegen import compiled
from .compiler import KEPT, Target, compile_functions, host_target
from .ir import I32, I64, PTR, Function, Type, Value, transposed
from .kernels import factor as kernels

__all__ = ["Code", "chunk_width", "turned_bytes"]

_LINE = 64  # bytes of a line of the caches
_COLUMNS = 512  # that are turned into rows at a time, in the second-level cache

#: Parameter blocks: numbers, then int64 arrays, int32 arrays, and others.
_BLOCKS = dict.fromkeys(
    ("write_values", "write_nodes"), "n base : offsets where : : label rows turned"
)


def chunk_width(itemsize: int) -> int:
    """Sources of one chunk, whose labels are computed in a type of that size."""
    return kernels.VECTORS * (host_target().vector_bytes // itemsize)


def turned_bytes() -> int:
    """Scratch memory of the functions that write."""
    return kernels.VECTORS * host_target().vector_bytes * (_COLUMNS + _LINE)


class Code:
    """The functions of one plan.

    Parameters
    ----------
    plan : Plan
    zero, one : float or int
        The identities in the type computed in.
    trees : bool
        Whether labels have predecessors.
    symmetric : bool
        Whether ``back`` is ``out``.
    """

    def __init__(
        self, plan: Plan, zero: float | int, one: float | int, trees: bool, *,
        symmetric: bool = False,
    ) -> None:  # fmt: skip
        self._plan, self._identities = plan, (zero, one)
        self._trees, self._symmetric = trees, symmetric

    def __call__(self, name: str, fields: Mapping[str, Any]) -> None:
        """Call a function by the names of its arguments."""
        if name in _BLOCKS:
            values = block(_BLOCKS[name], fields)
            _writing(self._plan, self._trees)[name](address(values))
            return
        kernel = getattr(kernels, name)
        given = {**fields, "width": chunk_width(compute_type(self._plan).size)}
        if name == "customize" and self._symmetric:
            given["back"] = None
        call = compiled(kernel, self._plan, *self._identities)
        call(**{p.name: given.get(p.name) for p in kernel.parameters})


@functools.lru_cache(maxsize=KEPT)
def _writing(plan: Plan, trees: bool) -> dict[str, Any]:
    target = host_target()
    functions = [_write_function("write_values", plan, target)]
    if trees:
        functions.append(_write_function("write_nodes", plan, target))
    return _compiled(functions, target)


def _compiled(functions: list[Function], target: Target) -> dict[str, Any]:
    library = compile_functions(functions, target)
    return {f.name: library.function(f.name, ctypes.c_void_p) for f in functions}


def _write_function(name: str, plan: Plan, target: Target) -> Function:
    """Labels, some columns at a time, turned within a cache and then written past it."""
    f = Function(name, [PTR])
    algebra, x = Algebra(f, plan), load_block(f, _BLOCKS[f.name])
    nodes = name == "write_nodes"
    t, s = (I32, I32) if nodes else (algebra.compute, algebra.storage)
    width = kernels.VECTORS * (target.vector_bytes // algebra.compute.size)
    lanes = min(target.vector_bytes // t.size, width)
    pitch = _COLUMNS * t.size + _LINE  # rows do not fall upon each other in the cache
    turned, vector = x["turned"], t.vector(lanes)

    def stored(value: Value) -> Value:
        return value if nodes else algebra.encode(value)[0]

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
