"""The k nearest of some places to every vertex, over an elimination, compiled.

Labels are lists of the k best (distance, place), ascending, of different places; they pass up, over
the core, and down as single distances do. What is not among the k best of a vertex on a path is not
among those of its end.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from typing import Any

from ..graph_kernels import NOWHERE
from .blocks import Items, address, block, load_block
from .compiler import compile_functions, host_target
from .ir import I64, PTR, Function, Type, Value

__all__ = ["rise_and_fall"]

_FIELDS = "fringe core k : first : head place own_place : label own matrix out back"


def rise_and_fall(dtype: str, far: float | int, fields: Mapping[str, Any]) -> None:
    """Complete the lists of all vertices, which hold the places themselves at distance 0.

    ``label`` and ``place`` have k entries for each vertex, ``far`` and NOWHERE where there is
    none; ``own`` and ``own_place`` are room for those of the core.
    """
    values = block(_FIELDS, fields)
    _compiled(dtype, far)(address(values))


@functools.lru_cache(maxsize=16)
def _compiled(dtype: str, far: float | int) -> Any:
    f = Function("rise_and_fall", [PTR])
    t = Type(dtype[0], int(dtype[-2:]))
    x = load_block(f, _FIELDS)
    k, fringe, core = x["k"], x["fringe"], x["core"]
    first, head = x["first"], x["head"]

    def number(base: Value, i: Value) -> Value:
        return f.load(base.at(i * t.size), t, t.size)

    def less(d: Value, place: Value, e: Value, other: Value) -> Value:
        return d.cmp("<", e) | (d.cmp("==", e) & place.cmp("<", other))

    def merge(to: Value, base: Value, places: Items, begin: Value, w: Value) -> None:
        """Join to the list of a vertex another list, whose distances are longer by w."""
        label, place = x["label"], x["place"]
        last = to * k + k - 1
        r = f.var(f.const(0, I64))
        with f.while_() as done:
            f.break_if(r.get().cmp(">=", k), done)
            i = begin + r.get()
            who, d = places[i], number(base, i) + w
            f.break_if(who.cmp("==", NOWHERE), done)
            f.break_if(less(d, who, number(label, last), place[last]) ^ 1, done)
            r.set(r.get() + 1)
            at = f.var(to * k)  # where this place is already, or the last
            with f.while_() as found:
                f.break_if(at.get().cmp(">=", last) | place[at.get()].cmp("==", who), found)
                at.set(at.get() + 1)
            here = at.get()
            old = place[here].cmp("==", who) & d.cmp(">=", number(label, here))
            with f.if_(old ^ 1):
                with f.while_() as sunk:
                    j = at.get()
                    f.break_if(j.cmp("<=", to * k), sunk)
                    before = number(label, j - 1)
                    f.break_if(less(d, who, before, place[j - 1]) ^ 1, sunk)
                    f.store(before, label.at(j * t.size), t.size)
                    place[j] = place[j - 1]
                    at.set(j - 1)
                f.store(d, label.at(at.get() * t.size), t.size)
                place[at.get()] = who

    with f.loop(0, fringe) as v, f.loop(first[v], first[v + 1]) as e:
        w, u = number(x["out"], e), head[e]
        with f.if_(w.cmp("!=", far)):
            merge(u, x["label"], x["place"], v * k, w)
    with f.loop(0, core * k) as i:  # the lists before the core's paths
        f.store(number(x["label"], fringe * k + i), x["own"].at(i * t.size), t.size)
        x["own_place"][i] = x["place"][fringe * k + i]
    with f.loop(0, core) as i, f.loop(0, core) as j:
        w = number(x["matrix"], i * core + j)
        with f.if_(i.cmp("!=", j) & w.cmp("!=", far)):
            merge(fringe + j, x["own"], x["own_place"], i * k, w)
    with f.loop(0, fringe) as i:
        v = fringe - 1 - i
        with f.loop(first[v], first[v + 1]) as e:
            w, u = number(x["back"], e), head[e]
            with f.if_(w.cmp("!=", far)):
                merge(v, x["label"], x["place"], u * k, w)
    return compile_functions([f], host_target()).function("rise_and_fall", ctypes.c_void_p)
