"""From known distances to the search that finds them: one row, that is one source, at a time.

``settle`` adds the weights up from the source, as a search does, where an elimination has put
brackets elsewhere. ``order`` follows the edges that lie on shortest paths, first in, first out
among nodes at equal distance: Dijkstra's order with a heap that breaks ties by age, and over unit
weights that of breadth-first search.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from .compiler import compile_functions, host_target, prototype
from .ir import F64, I32, I64, PTR, Function, Value
from .sweep import block

__all__ = ["order", "settle"]

_FIELDS = (
    "n", "source", "first", "head", "weight", "d", "near", "slot", "group", "order", "pred",
)  # fmt: skip

_lock = threading.Lock()


def settle(fields: Mapping[str, Any]) -> None:
    """Labels in ``d`` that no edge improves, from infinity; ``near`` is about their order."""
    _call("settle", fields)


def order(fields: Mapping[str, Any]) -> None:
    """Fill ``order`` and ``pred``, which hold -1; nodes of a ``group`` take its next ``slot``."""
    _call("order", fields)


def _call(name: str, fields: Mapping[str, Any]) -> None:
    with _lock:
        code = _compiled()[name]
    values: NDArray[Any] = block(_FIELDS, fields)
    code(values.ctypes.data)


@functools.cache
def _compiled() -> dict[str, Any]:
    found = compile_functions([_settle_function(), _order_function()], host_target())
    return {name: prototype(address, ctypes.c_void_p) for name, address in found.items()}


def _fields(f: Function) -> dict[str, Value]:
    """The parameter block: two numbers, and addresses."""
    return {
        name: f.load(f.args[0].at(8 * i), PTR if i > 1 else I64, 8)
        for i, name in enumerate(_FIELDS)
    }


def _settle_function() -> Function:
    """d[u] ← min(d[u], d[v] + w) for all edges (v, u) until nothing changes."""
    f = Function("settle", [PTR])
    at = _fields(f)
    d = at["d"]
    changed = f.var(f.const(1, I64))
    with f.while_() as settled:
        f.break_if(changed.get().cmp("==", 0), settled)
        changed.set(0)
        with f.loop(0, at["n"]) as i:
            v = f.load(at["near"].at(i * 8), I64, 8)
            here = f.load(d.at(v * 8), F64, 8)
            lo, hi = (f.load(at["first"].at(v * 8 + x), I64, 8) for x in (0, 8))
            with f.loop(lo, hi) as e:
                there = d.at(f.load(at["head"].at(e * 4), I32, 4).to(I64) * 8)
                through = here + f.load(at["weight"].at(e * 8), F64, 8)
                with f.if_(through.cmp("<", f.load(there, F64, 8))):
                    f.store(through, there, 8)
                    changed.set(1)
    return f


def _order_function() -> Function:
    """Each node in its slot; its predecessor is the first in order that attains its distance."""
    f = Function("order", [PTR])
    at = _fields(f)
    n, slot, line, pred = (at[x] for x in ("n", "slot", "order", "pred"))

    def put(u: Value, before: Value) -> None:
        f.store(before.to(I32), pred.at(u * 4), 4)
        place = slot.at(f.load(at["group"].at(u * 8), I64, 8) * 8)
        free = f.load(place, I64, 8)
        f.store(u.to(I32), line.at(free * 4), 4)
        f.store(free + 1, place, 8)

    put(at["source"], at["source"])
    i = f.var(f.const(0, I64))
    with f.while_() as done:
        f.break_if(i.get().cmp(">=", n), done)
        v = f.load(line.at(i.get() * 4), I32, 4).to(I64)
        f.break_if(v.cmp("<", 0), done)  # none is left
        here = f.load(at["d"].at(v * 8), F64, 8)
        lo, hi = (f.load(at["first"].at(v * 8 + x), I64, 8) for x in (0, 8))
        with f.loop(lo, hi) as e:
            u = f.load(at["head"].at(e * 4), I32, 4).to(I64)
            through = here + f.load(at["weight"].at(e * 8), F64, 8)
            new = f.load(pred.at(u * 4), I32, 4).cmp("<", 0)
            with f.if_(new & through.cmp("==", f.load(at["d"].at(u * 8), F64, 8))):
                put(u, v)
        i.set(i.get() + 1)
    return f
