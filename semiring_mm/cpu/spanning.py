"""Closures from spanning forests: the best edges of rows, and rows of paths; compiled."""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..engine import Forest
from ..memory import scratch
from ..plan import Plan
from ..semirings import Semiring
from ..spanning import in_line, range_table, spanning_plan
from .algebra import Algebra
from .blocks import address, block, load_block
from .compiler import KEPT, Target, compile_functions, host_target
from .ir import I1, I32, I64, PTR, Function, Value

__all__ = ["best_outside", "between", "towards"]

Array = NDArray[Any]
Index = NDArray[np.int32]

_ENTRIES = 1 << 20  # that a task reads or writes, about
_ROWS = 64  # that share the worst gaps to all columns
_NONE = -9999  # no predecessor

#: Parameter blocks: numbers, then int32 arrays (there are no int64 ones), and others.
_BLOCKS = {
    "best_outside": "n count pitch : : rows group at : a zero value",
    "between": "n count pitch : : place node spots lines : table near out",
    "towards": "n count pitch : : order up last spots lines row : out",
}


def best_outside(
    semiring: Semiring, a: Array, group: Index, rows: Index, at: Index, value: Array
) -> None:
    """The best entry of each of some rows in a column of another group than the row's."""
    n = a.shape[1]
    code = _compiled(spanning_plan(semiring, a.dtype))["best_outside"]
    zero = np.array([semiring.identities(a.dtype)[0]], a.dtype)
    fixed = {"n": n, "pitch": a.strides[0], "group": group, "a": a, "zero": zero}

    def some(lo: int, hi: int) -> None:
        part = {"rows": rows[lo:hi], "at": at[lo:hi], "value": value[lo:hi], "count": hi - lo}
        values = block(_BLOCKS["best_outside"], fixed | part)
        code(address(values))

    _spread(len(rows), max(1, _ENTRIES // max(1, n)), some)


def between(semiring: Semiring, gaps: Array, place: Index, rows: Index, out: Array) -> None:
    """Rows of the closure of a line: ⊗ of the gaps between the places of two nodes."""
    n = len(place)
    plan = spanning_plan(semiring, gaps.dtype)
    code, size = _compiled(plan)["between"], int(plan.compute[1:]) // 8
    table = range_table(semiring, gaps)
    node = np.empty(n, np.int32)
    node[place] = np.arange(n, dtype=np.int32)
    spots, lines = in_line(place, rows)
    fixed = {"n": n, "pitch": out.strides[0], "place": place, "node": node, "table": table}

    def some(lo: int, hi: int) -> None:
        near = scratch(n * size)[0]
        for first in range(lo, hi, _ROWS):
            part = slice(first, min(first + _ROWS, hi))
            own = {"spots": spots[part], "lines": lines[part], "count": part.stop - first}
            values = block(_BLOCKS["between"], fixed | own | {"out": out, "near": near})
            code(address(values))

    _spread(len(rows), _ROWS * max(1, _ENTRIES // (_ROWS * max(1, n))), some)


def towards(forest: Forest, rows: Index, out: Index) -> None:
    """Rows of predecessors: the neighbour of each node in its tree towards that of the row."""
    n = len(forest.order)
    code = _towards_code()
    place = np.empty(n, np.int32)
    place[forest.order] = np.arange(n, dtype=np.int32)
    spots, lines = in_line(place, rows)
    fixed = {"n": n, "pitch": out.strides[0], **forest._asdict(), "out": out}

    def some(lo: int, hi: int) -> None:
        own = {"spots": spots[lo:hi], "lines": lines[lo:hi], "count": hi - lo}
        row = scratch(4 * n)[0]
        values = block(_BLOCKS["towards"], fixed | own | {"row": row})
        code(address(values))

    _spread(len(rows), max(_ROWS, _ENTRIES // max(1, n)), some)


def _spread(count: int, each: int, some: Callable[[int, int], None]) -> None:
    """Call a function for parts of a range, on all threads."""
    ends = [*range(0, count, each), count]
    pool.run([functools.partial(some, *part) for part in itertools.pairwise(ends)])


@functools.lru_cache(maxsize=KEPT)
def _compiled(plan: Plan) -> dict[str, Any]:
    target = host_target()
    functions = [_best_outside_function(plan, target), _between_function(plan, target)]
    library = compile_functions(functions, target)
    return {f.name: library.function(f.name, ctypes.c_void_p) for f in functions}


@functools.cache
def _towards_code() -> Any:
    target = host_target()
    library = compile_functions([_towards_function(target)], target)
    return library.function("towards", ctypes.c_void_p)


def _best_outside_function(plan: Plan, target: Target) -> Function:
    f = Function("best_outside", [PTR])
    algebra, x = Algebra(f, plan), load_block(f, _BLOCKS[f.name])
    t, s, group = algebra.compute, algebra.storage, x["group"]
    lanes = target.vector_bytes // t.size
    zero = algebra.decode(f.load(x["zero"], s))
    whole = x["n"] // lanes * lanes
    with f.loop(0, x["count"]) as i:
        row = x["rows"][i]
        a, own = x["a"].at(row * x["pitch"]), group[row].to(I32)

        def look(j: Value, best: Any, at: Any, own: Value = own, a: Value = a) -> None:
            """Take a vector of entries, or one, into account."""
            count = best.type.lanes
            entry = algebra.decode(f.load(a.at(j * s.size), s.vector(count)))
            other = f.load(group.base.at(j * 4), I32.vector(count), 4)
            wins = algebra.better(entry, best.get()) & other.cmp("!=", own.splat(count))
            best.set(f.select(wins, entry, best.get()))
            index = j.to(I32).splat(count) + f.iota(I32.vector(count))
            at.set(f.select(wins, index, at.get()))

        found = [
            (f.var(zero.splat(count)), f.var(f.const(-1, I32.vector(count))))
            for count in (1, lanes)
        ]
        with f.loop(0, whole, lanes) as j:
            look(j, *found[1])
        best, at = found[0]
        values, places = found[1][0].get(), found[1][1].get()
        for lane in range(lanes if lanes > 1 else 0):
            entry, index = values[lane], places[lane]
            earlier = entry.cmp("==", best.get()) & index.cmp("<", at.get())
            wins = algebra.better(entry, best.get()) | (earlier & index.cmp(">=", 0))
            best.set(f.select(wins, entry, best.get()))
            at.set(f.select(wins, index, at.get()))
        with f.loop(whole, x["n"]) as j:
            look(j, best, at)
        x["at"][i] = at.get().to(I64)
        f.store(algebra.encode(best.get())[0], x["value"].at(i * s.size))
    return f


def _between_function(plan: Plan, target: Target) -> Function:
    """Few rows, with the worst gaps from the first of them, and to the last, to all columns."""
    f = Function("between", [PTR])
    algebra, x = Algebra(f, plan), load_block(f, _BLOCKS[f.name])
    t, s = algebra.compute, algebra.storage
    n, place, spots, table = x["n"], x["place"], x["spots"], x["table"]
    lanes = target.vector_bytes // t.size
    first, last = spots[0], spots[x["count"] - 1]

    def over(begin: Value, end: Value) -> Value:
        """⊗ of a range of gaps."""
        zeros = f.call("llvm.ctlz.i64", I64, [end - begin, f.const(0, I1)])
        row = f.const(64, I64) - zeros
        width = (f.const(1, I64) << row) >> 1
        base = table.at(row * n * s.size)
        both = [algebra.decode(f.load(base.at(i * s.size), s)) for i in (begin, end - width)]
        return algebra.mul(*both)

    with f.loop(0, n) as j:
        q = place[j]
        before = q.cmp("<", last)
        begin, end = f.select(before, f.low(q, first), last), f.select(before, first, q)
        f.store(over(begin, end), x["near"].at(j * t.size), t.size)
    whole = n // lanes * lanes
    with f.loop(0, x["count"]) as r:
        spot = spots[r]
        line = x["out"].at(x["lines"][r] * x["pitch"])
        ends = over(first, spot), over(spot, last)

        def put(j: Value, count: int, ends: Any = ends, line: Value = line) -> None:
            near = f.load(x["near"].at(j * t.size), t.vector(count), t.size)
            q = f.load(place.base.at(j * 4), I32.vector(count), 4)
            left = q.cmp("<=", first.to(I32).splat(count))
            rest = f.select(left, *(end.splat(count) for end in ends))
            f.store(algebra.encode(algebra.mul(near, rest))[0], line.at(j * s.size))

        with f.loop(0, whole, lanes) as j:
            put(j, lanes)
        with f.loop(whole, n) as j:
            put(j, 1)
        with f.loop(first + 1, last) as q:  # between the rows
            before = q.cmp("<", spot)
            value = over(f.select(before, q, spot), f.select(before, spot, q))
            f.store(algebra.encode(value)[0], line.at(x["node"][q] * s.size))
    return f


def _towards_function(target: Target) -> Function:
    """From row to row only what lies between their nodes in the tree changes.

    Each edge of a tree is so followed twice at most, in the preorder.
    """
    f = Function("towards", [PTR])
    x = load_block(f, _BLOCKS[f.name])
    n, order, up, last, row = (x[name] for name in ("n", "order", "up", "last", "row"))
    lanes = target.vector_bytes // 4

    def none(v: Value) -> None:
        row[order[v]] = _NONE

    def inside(v: Value, top: Value) -> Value:
        """Whether a place is in the subtree of another."""
        return v.cmp(">=", top) & v.cmp("<", last[top])

    with f.loop(0, n) as j:
        row[j] = _NONE
    begin, end, at = (f.var(f.const(0, I64)) for _ in range(3))  # of the tree, and the node in it
    with f.loop(0, x["count"]) as r:
        spot = x["spots"][r]
        with f.if_(spot.cmp(">=", end.get())):  # a new tree: places ascend
            with f.loop(begin.get(), end.get()) as v:
                none(v)
            root = f.var(spot)
            with f.while_() as rooted:
                f.break_if(up[root.get()].cmp("<", 0), rooted)
                root.set(up[root.get()])
            begin.set(root.get())
            end.set(last[root.get()])
            at.set(root.get())
            with f.loop(root.get() + 1, end.get()) as v:
                row[order[v]] = order[up[v]]
        with f.while_() as common:
            v = at.get()
            f.break_if(inside(spot, v), common)
            row[order[v]] = order[up[v]]
            at.set(up[v])
        below = f.var(spot)
        with f.while_() as joined:
            v = below.get()
            f.break_if(v.cmp("==", at.get()), joined)
            row[order[up[v]]] = order[v]
            below.set(up[v])
        none(spot)
        at.set(spot)
        line = x["out"].at(x["lines"][r] * x["pitch"])
        whole = n // lanes * lanes
        for lo, hi, count in ((f.const(0, I64), whole, lanes), (whole, n, 1)):
            with f.loop(lo, hi, count) as j:
                entries = f.load(row.base.at(j * 4), I32.vector(count), 4)
                f.store(entries, line.at(j * 4), 4)
    return f
