"""Best-first search from each source, compiled for a semiring: Dijkstra (1959), in a 4-ary heap."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from typing import Any

from ..plan import Plan
from .algebra import Algebra
from .blocks import Items, block, load_block
from .compiler import KEPT, compile_functions, host_target
from .ir import I32, I64, PTR, Function, Value

__all__ = ["search"]

#: The parameter block: numbers, then int64 arrays, int32 arrays, and arrays of labels.
_FIELDS = "n rows : source first : head heap place pred : weight label"
_FREE, _CHILDREN = -1, 4


def search(
    plan: Plan, zero: float | int, one: float | int, trees: bool, fields: Mapping[str, Any]
) -> None:
    """Rows of ``label`` (n each, and of ``pred`` with `trees`) from the sources.

    Arcs are those of ``first`` and ``head``; no ``weight`` may be better than one. ``heap`` and
    ``place``, n each, are scratch.
    """
    values = block(_FIELDS, fields)
    _compiled(plan, zero, one, trees)(values.ctypes.data)


@functools.lru_cache(maxsize=KEPT)
def _compiled(plan: Plan, zero: float | int, one: float | int, trees: bool) -> Any:
    library = compile_functions([_search_function(plan, zero, one, trees)], host_target())
    return library.function("search", ctypes.c_void_p)


def _search_function(plan: Plan, zero: float | int, one: float | int, trees: bool) -> Function:
    f = Function("search", [PTR])
    algebra = Algebra(f, plan)
    x = load_block(f, _FIELDS)
    t = algebra.compute
    n, head, heap, place = x["n"], x["head"], x["heap"], x["place"]

    with f.loop(0, x["rows"]) as row:
        labels = x["label"].at(row * n * t.size)
        pred = Items(f, x["pred"].base.at(row * n * 4), I32)

        def label(v: Value, labels: Value = labels) -> Value:
            return f.load(labels.at(v * t.size), t, t.size)

        def put(v: Value, at: Value) -> None:
            heap[at] = v
            place[v] = at

        def rise(v: Value, at: Value) -> None:
            """Put a vertex where its parent in the heap is no worse, from a free place up."""
            i, own = f.var(at), label(v)
            with f.while_() as settled:
                f.break_if(i.get().cmp("==", 0), settled)
                above = (i.get() - 1) >> 2
                u = heap[above]
                f.break_if(algebra.better(own, label(u)) ^ 1, settled)
                put(u, i.get())
                i.set(above)
            put(v, i.get())

        def sink(v: Value, size: Value) -> None:
            """Put a vertex where its children in the heap are no better, from the top down."""
            i, own = f.var(f.const(0, I64)), label(v)
            with f.while_() as settled:
                child = i.get() * _CHILDREN + 1
                f.break_if(child.cmp(">=", size), settled)
                best, least = f.var(child), f.var(label(heap[child]))
                with f.loop(child + 1, f.low(child + _CHILDREN, size)) as k:
                    other = label(heap[k])
                    with f.if_(algebra.better(other, least.get())):
                        best.set(k)
                        least.set(other)
                f.break_if(algebra.better(least.get(), own) ^ 1, settled)
                put(heap[best.get()], i.get())
                i.set(best.get())
            put(v, i.get())

        with f.loop(0, n) as v:
            f.store(f.const(zero, t), labels.at(v * t.size), t.size)
            place[v] = _FREE
            if trees:
                pred[v] = -9999
        source = x["source"][row]
        f.store(f.const(one, t), labels.at(source * t.size), t.size)
        size = f.var(f.const(1, I64))
        put(source, f.const(0, I64))
        with f.while_() as empty:
            f.break_if(size.get().cmp("==", 0), empty)
            v = heap[0]
            place[v] = _FREE
            size.set(size.get() - 1)
            with f.if_(size.get().cmp(">", 0)):
                sink(heap[size.get()], size.get())
            here = label(v)
            with f.loop(x["first"][v], x["first"][v + 1]) as e:
                u = head[e]
                through = algebra.mul(here, f.load(x["weight"].at(e * t.size), t, t.size))
                with f.if_(algebra.better(through, label(u))):
                    f.store(through, labels.at(u * t.size), t.size)
                    if trees:
                        pred[u] = v
                    at = f.var(place[u])
                    with f.if_(at.get().cmp("<", 0)):
                        at.set(size.get())
                        size.set(size.get() + 1)
                    rise(u, at.get())
    return f
