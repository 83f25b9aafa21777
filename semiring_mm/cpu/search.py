"""From known distances to the search that finds them, for some rows, that is sources.

``settle`` adds the weights up from the source, as a search does, where an elimination has put
brackets elsewhere. ``order`` follows the edges that lie on shortest paths, first in, first out
among nodes at equal distance: Dijkstra's order with a heap that breaks ties by age, and over unit
weights that of breadth-first search. ``dependencies`` counts the shortest paths in that order and
gives each node and edge its share of them, as betweenness centrality sums them up (Brandes, 2001).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from numpy.typing import NDArray

from .blocks import address, block
from .compiler import compile_functions, host_target
from .ir import F64, I32, I64, PTR, Function, Value

__all__ = ["dependencies", "order", "settle"]

_FIELDS = (
    "n", "rows", "m", "late", "source", "first", "head", "weight", "d", "near", "slot", "group",
    "order", "pred", "back_first", "tail", "back_weight", "edge", "sigma", "delta", "share",
)  # fmt: skip
_NUMBERS = 4  # of the fields; the others are addresses

#: Bytes of an entry in what has rows of n.
_OF_ROWS = {
    "d": 8, "near": 8, "slot": 8, "group": 8, "order": 4, "pred": 4, "sigma": 8, "delta": 8,
}  # fmt: skip


def settle(fields: Mapping[str, Any]) -> None:
    """Labels in ``d`` that no edge improves, from infinity; ``near`` is about their order."""
    _call("settle", fields)


def order(fields: Mapping[str, Any]) -> None:
    """Fill ``order`` and ``pred``, which hold -1; nodes of a ``group`` take its next ``slot``."""
    _call("order", fields)


def dependencies(fields: Mapping[str, Any]) -> None:
    """Add to ``delta`` and, by edge, to ``share`` (rows of m) the dependencies of each source.

    ``sigma`` and both of these hold zeros. ``tail``, ``back_weight`` and ``edge`` are the edges by
    the node where they end, from ``back_first`` on. Where ``late`` is 1 the paths through a node's
    predecessor are added last, as Dijkstra's search does when it settles the node, else in order.
    """
    _call("dependencies", fields)


def _call(name: str, fields: Mapping[str, Any]) -> None:
    code = _compiled()[name]
    values: NDArray[Any] = block(" ".join(_FIELDS), fields)
    code(address(values))


@functools.cache
def _compiled() -> dict[str, Any]:
    functions = [_settle_function(), _order_function(), _dependencies_function()]
    library = compile_functions(functions, host_target())
    return {f.name: library.function(f.name, ctypes.c_void_p) for f in functions}


@contextmanager
def _rows(f: Function) -> Iterator[dict[str, Value]]:
    """For each row the parameters: numbers, arrays shared by all rows, and the row's own arrays."""
    at = {
        name: f.load(f.args[0].at(8 * i), PTR if i >= _NUMBERS else I64, 8)
        for i, name in enumerate(_FIELDS)
    }
    with f.loop(0, at["rows"]) as row:
        own = {"source": f.load(at["source"].at(row * 8), I64, 8)}
        own["share"] = at["share"].at(row * at["m"] * 8)
        begin = row * at["n"]
        yield at | own | {name: at[name].at(begin * size) for name, size in _OF_ROWS.items()}


def _settle_function() -> Function:
    """d[u] ← min(d[u], d[v] + w) for all edges (v, u) until nothing changes."""
    f = Function("settle", [PTR])
    with _rows(f) as at:
        changed = f.var(f.const(1, I64))
        with f.while_() as settled:
            f.break_if(changed.get().cmp("==", 0), settled)
            changed.set(0)
            with f.loop(0, at["n"]) as i:
                v = f.load(at["near"].at(i * 8), I64, 8)
                here = f.load(at["d"].at(v * 8), F64, 8)
                lo, hi = (f.load(at["first"].at(v * 8 + x), I64, 8) for x in (0, 8))
                with f.loop(lo, hi) as e:
                    there = at["d"].at(f.load(at["head"].at(e * 4), I32, 4).to(I64) * 8)
                    through = here + f.load(at["weight"].at(e * 8), F64, 8)
                    with f.if_(through.cmp("<", f.load(there, F64, 8))):
                        f.store(through, there, 8)
                        changed.set(1)
    return f


def _order_function() -> Function:
    """Each node in its slot; its predecessor is the first in order that attains its distance."""
    f = Function("order", [PTR])
    with _rows(f) as at:
        line, pred = at["order"], at["pred"]

        def put(u: Value, before: Value) -> None:
            f.store(before.to(I32), pred.at(u * 4), 4)
            place = at["slot"].at(f.load(at["group"].at(u * 8), I64, 8) * 8)
            free = f.load(place, I64, 8)
            f.store(u.to(I32), line.at(free * 4), 4)
            f.store(free + 1, place, 8)

        put(at["source"], at["source"])
        i = f.var(f.const(0, I64))
        with f.while_() as done:
            f.break_if(i.get().cmp(">=", at["n"]), done)
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


def _dependencies_function() -> Function:
    """σ forward in the order of the search, δ backward, in that of NetworkX's sums.

    σ is rounded from 2**53 on, so that there, too, the order matters.
    """
    f = Function("dependencies", [PTR])
    with _rows(f) as at:
        n, line = at["n"], at["order"]

        def place(name: str, node: Value) -> Value:
            return at[name].at(node * 8)

        def tight(before: Value, node: Value, weight: Value) -> Value:
            through = f.load(place("d", before), F64, 8) + weight
            return through.cmp("==", f.load(place("d", node), F64, 8))

        def add_paths(before: Value, node: Value) -> None:
            paths = f.load(place("sigma", node), F64, 8) + f.load(place("sigma", before), F64, 8)
            f.store(paths, place("sigma", node), 8)

        f.store(f.const(1, F64), place("sigma", at["source"]), 8)
        i = f.var(f.const(0, I64))
        with f.while_() as done:
            f.break_if(i.get().cmp(">=", n), done)
            v = f.load(line.at(i.get() * 4), I32, 4).to(I64)
            f.break_if(v.cmp("<", 0), done)  # none is left
            late = at["late"].cmp("!=", 0)
            with f.if_(late & v.cmp("!=", at["source"])):
                add_paths(f.load(at["pred"].at(v * 4), I32, 4).to(I64), v)
            lo, hi = (f.load(at["first"].at(v * 8 + x), I64, 8) for x in (0, 8))
            with f.loop(lo, hi) as e:
                u = f.load(at["head"].at(e * 4), I32, 4).to(I64)
                tree = late & f.load(at["pred"].at(u * 4), I32, 4).to(I64).cmp("==", v)
                on_path = tight(v, u, f.load(at["weight"].at(e * 8), F64, 8))
                with f.if_(on_path & tree.cmp("==", 0)):
                    add_paths(v, u)
            i.set(i.get() + 1)
        with f.while_() as done:
            i.set(i.get() - 1)
            f.break_if(i.get().cmp("<", 0), done)
            u = f.load(line.at(i.get() * 4), I32, 4).to(I64)
            own = f.load(place("delta", u), F64, 8)
            part = (own + 1.0) / f.load(place("sigma", u), F64, 8)
            lo, hi = (f.load(at["back_first"].at(u * 8 + x), I64, 8) for x in (0, 8))
            with f.loop(lo, hi) as e:
                v = f.load(at["tail"].at(e * 4), I32, 4).to(I64)
                with f.if_(tight(v, u, f.load(at["back_weight"].at(e * 8), F64, 8))):
                    term = f.load(place("sigma", v), F64, 8) * part
                    f.store(f.load(place("delta", v), F64, 8) + term, place("delta", v), 8)
                    f.store(term, at["share"].at(f.load(place("edge", e), I64, 8) * 8), 8)
    return f
