"""Best-first search from each source, compiled for a semiring: Dijkstra (1959), in a 4-ary heap."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import pool
from ..plan import Plan
from .algebra import Algebra
from .blocks import Items, address, block, load_block, load_item
from .compiler import KEPT, compile_functions, host_target
from .ir import I32, I64, PTR, Function, Value, Var

__all__ = ["lists", "search"]

#: Parameter blocks: numbers, then int64 arrays, int32 arrays, and arrays of labels.
_BLOCKS = {
    "search": "n rows most : source first open : head node pred : weight label key",
    "lists": "n m both : row col first : head : weight given",
}
_CHILDREN = 4
_MOST = 1 << 20  # vertices taken from the heap in a call, between which Ctrl-C is seen


def search(
    plan: Plan, zero: float | int, one: float | int, trees: bool, fields: Mapping[str, Any]
) -> None:
    """Rows of ``label`` (n each, and of ``pred`` with `trees`) from the sources.

    Arcs are those of ``first`` and ``head``; no ``weight`` may be better than one. ``node`` and
    ``key``, one more than there are arcs each, are scratch.
    """
    code, going = _compiled(plan, zero, one, trees)["search"], np.zeros(1, np.int64)
    most = _MOST if fields["rows"] == 1 else 1 << 62  # several searches are short
    values = block(_BLOCKS["search"], {**fields, "most": most, "open": going})
    code(address(values))
    while going[0]:
        pool.look()
        code(address(values))


def lists(
    plan: Plan, zero: float | int, one: float | int, trees: bool, fields: Mapping[str, Any]
) -> None:
    """The arcs of each vertex, in ``head`` and ``weight`` from ``first`` on, of m edges.

    ``both``: edges lead in both directions. ``first``, n + 1, holds zeros.
    """
    values = block(_BLOCKS["lists"], fields)
    _compiled(plan, zero, one, trees)["lists"](address(values))


@functools.lru_cache(maxsize=KEPT)
def _compiled(plan: Plan, zero: float | int, one: float | int, trees: bool) -> dict[str, Any]:
    functions = [_search_function(plan, zero, one, trees), _lists_function(plan)]
    library = compile_functions(functions, host_target())
    return {f.name: library.function(f.name, ctypes.c_void_p) for f in functions}


def _lists_function(plan: Plan) -> Function:
    """Counted, added up from the end of each list, and filled in backwards."""
    f = Function("lists", [PTR])
    x, t = load_block(f, _BLOCKS[f.name]), Algebra(f, plan).compute
    row, col, first = x["row"], x["col"], x["first"]
    both = x["both"].cmp("!=", 0)
    with f.loop(0, x["m"]) as e:
        first[row[e]] = first[row[e]] + 1
        with f.if_(both):
            first[col[e]] = first[col[e]] + 1
    total = f.var(f.const(0, I64))
    with f.loop(0, x["n"] + 1) as v:
        total.set(total.get() + first[v])
        first[v] = total.get()

    def put(u: Value, v: Value, weight: Value) -> None:
        at = first[u] - 1
        first[u] = at
        x["head"][at] = v
        f.store(weight, x["weight"].at(at * t.size), t.size)

    with f.loop(0, x["m"]) as i:
        e = x["m"] - 1 - i
        weight = load_item(f, x["given"], e, t)
        put(row[e], col[e], weight)
        with f.if_(both):
            put(col[e], row[e], weight)
    return f


def _search_function(plan: Plan, zero: float | int, one: float | int, trees: bool) -> Function:
    """A vertex goes to the heap each time that its label gets better; the last time counts.

    So labels in the heap never change, and are next to each other where they are compared. After
    `most` vertices a search stops, and goes on in the next call: `open` has the heap's size then.
    """
    f = Function("search", [PTR])
    algebra, x = Algebra(f, plan), load_block(f, _BLOCKS[f.name])
    t = algebra.compute
    n, head, node, key = x["n"], x["head"], x["node"], x["key"]

    def put(at: Value, v: Value, own: Value) -> None:
        node[at] = v
        f.store(own, key.at(at * t.size), t.size)

    def push(v: Value, own: Value, size: Var) -> None:
        """Up from the end to where the parent is no worse."""
        i = f.var(size.get())
        size.set(size.get() + 1)
        with f.while_() as settled:
            f.break_if(i.get().cmp("==", 0), settled)
            above = (i.get() - 1) >> 2
            other = load_item(f, key, above, t)
            f.break_if(algebra.better(own, other) ^ 1, settled)
            put(i.get(), node[above], other)
            i.set(above)
        put(i.get(), v, own)

    def best(candidates: list[tuple[Value, Value]]) -> tuple[Value, Value]:
        """Of places and their labels."""
        if len(candidates) == 1:
            return candidates[0]
        half = len(candidates) // 2
        (i, a), (j, b) = best(candidates[:half]), best(candidates[half:])
        second = algebra.better(b, a)
        return f.select(second, j, i), f.select(second, b, a)

    def sink(v: Value, own: Value, size: Value) -> None:
        """Down from the top to where no child is better."""
        i = f.var(f.const(0, I64))
        with f.while_() as settled:
            child = i.get() * _CHILDREN + 1
            f.break_if(child.cmp(">=", size), settled)
            at, least = f.var(child), f.var(load_item(f, key, child, t))
            with f.if_else((child + _CHILDREN).cmp("<=", size)) as otherwise:
                places = [child + k for k in range(_CHILDREN)]
                found = best([(k, load_item(f, key, k, t)) for k in places])
                at.set(found[0])
                least.set(found[1])
                with otherwise(), f.loop(child + 1, size) as k:
                    other = load_item(f, key, k, t)
                    with f.if_(algebra.better(other, least.get())):
                        at.set(k)
                        least.set(other)
            f.break_if(algebra.better(least.get(), own) ^ 1, settled)
            put(i.get(), node[at.get()], least.get())
            i.set(at.get())
        put(i.get(), v, own)

    with f.loop(0, x["rows"]) as row:
        labels = x["label"].at(row * n * t.size)
        pred = Items(f, x["pred"].base.at(row * n * 4), I32)
        size, taken = f.var(x["open"][0]), f.var(f.const(0, I64))
        with f.if_(size.get().cmp("==", 0)):
            with f.loop(0, n) as v:
                f.store(f.const(zero, t), labels.at(v * t.size), t.size)
                if trees:
                    pred[v] = -9999
            source = x["source"][row]
            f.store(f.const(one, t), labels.at(source * t.size), t.size)
            size.set(f.const(1, I64))
            put(f.const(0, I64), source, f.const(one, t))
        with f.while_() as ended:
            f.break_if(size.get().cmp("==", 0) | taken.get().cmp("==", x["most"]), ended)
            taken.set(taken.get() + 1)
            v, here = node[0], load_item(f, key, f.const(0, I64), t)
            last = size.get() - 1
            size.set(last)
            with f.if_(last.cmp(">", 0)):
                sink(node[last], load_item(f, key, last, t), last)
            current = algebra.better(load_item(f, labels, v, t), here) ^ 1
            with f.if_(current), f.loop(x["first"][v], x["first"][v + 1]) as e:
                u = head[e]
                through = algebra.mul(here, load_item(f, x["weight"], e, t))
                with f.if_(algebra.better(through, load_item(f, labels, u, t))):
                    f.store(through, labels.at(u * t.size), t.size)
                    if trees:
                        pred[u] = v
                    push(u, through, size)
        x["open"][0] = size.get()
    return f
