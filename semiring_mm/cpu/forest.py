"""Spanning forests on the host, compiled: Kruskal's joins, Borůvka's rounds, and a preorder."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping
from typing import Any

from .blocks import Items, address, block, load_block
from .compiler import compile_functions, host_target
from .ir import I64, PTR, Function, Value

__all__ = ["grow", "kruskal", "preorder"]

#: Parameter blocks: numbers, then int64 arrays and int32 arrays.
_BLOCKS = {
    "kruskal": "n m : : row col parent size head tail following after order gap",
    "grow": "n : state key : near group parent fresh stale joined rows",
    "preorder": "n : first : near order above up last",
}


def kruskal(fields: Mapping[str, Any]) -> None:
    """Join parts along edges, the best first (Kruskal, 1956), into a line of nodes.

    Parts that an edge joins are put one after the other: so the worst gap between two places in the
    line is the worst edge between two nodes in the forest. ``order`` receives the line, ``gap`` the
    edge that joined the parts on both sides of the gap behind each place, -1 where none did.
    ``parent``, ``head`` and ``tail`` hold 0 to n - 1, ``size`` 1, ``following`` and ``after`` -1.
    """
    _call("kruskal", fields)


def grow(fields: Mapping[str, Any]) -> None:
    """Rounds of Borůvka (1926): every part is joined to another by its best edge, if it is known.

    ``near[i]`` is the end of an edge from node i that was the best to another ``group`` when it was
    looked for, -1 where there is none, and ``key[i]`` is less the better it is. Groups only
    grow, so where they have become one it still tells how good an edge can be. ``joined`` receives
    the nodes whose edges are taken, from ``state[0]`` on, and ``rows`` the ``state[1]`` nodes for
    which to look again: none, when the forest is done. ``parent`` is kept between calls, and
    begins as ``group`` does, with 0 to n - 1.
    """
    _call("grow", fields)


def preorder(fields: Mapping[str, Any]) -> None:
    """The nodes of a forest in preorder.

    ``up`` receives, for each place, that of its parent, or -1, and ``last`` the end of its subtree.
    ``near`` from ``first`` on are the neighbours of each node. ``above`` holds -2.
    """
    _call("preorder", fields)


def _call(name: str, fields: Mapping[str, Any]) -> None:
    values = block(_BLOCKS[name], fields)
    _compiled()[name](address(values))


@functools.cache
def _compiled() -> dict[str, Any]:
    functions = [_kruskal_function(), _grow_function(), _preorder_function()]
    library = compile_functions(functions, host_target())
    return {f.name: library.function(f.name, ctypes.c_void_p) for f in functions}


def _finder(f: Function, parent: Items) -> Callable[[Value], Value]:
    """The function that finds the root of a part; it halves paths."""

    def find(v: Value) -> Value:
        at = f.var(v)
        with f.while_() as rooted:
            above = parent[at.get()]
            f.break_if(above.cmp("==", at.get()), rooted)
            further: Value = parent[above]
            parent[at.get()] = further
            at.set(further)
        return at.get()

    return find


def _kruskal_function() -> Function:
    f = Function("kruskal", [PTR])
    x = load_block(f, _BLOCKS[f.name])
    n, parent, size, following, after = (
        x[name] for name in ("n", "parent", "size", "following", "after")
    )
    find = _finder(f, parent)
    with f.loop(0, x["m"]) as e:
        u, v = find(x["row"][e]), find(x["col"][e])
        with f.if_(u.cmp("!=", v)):
            swap = size[u].cmp("<", size[v])
            large, small = f.select(swap, v, u), f.select(swap, u, v)
            parent[small] = large
            size[large] = size[large] + size[small]
            end = x["tail"][large]
            following[end] = x["head"][small]
            after[end] = e
            x["tail"][large] = x["tail"][small]
    place = f.var(f.const(0, I64))
    with f.loop(0, n) as v, f.if_(parent[v].cmp("==", v)):
        at = f.var(x["head"][v])
        with f.while_() as done:
            node = at.get()
            f.break_if(node.cmp("<", 0), done)
            x["order"][place.get()] = node
            x["gap"][place.get()] = after[node]
            place.set(place.get() + 1)
            at.set(following[node])
    return f


def _grow_function() -> Function:
    f = Function("grow", [PTR])
    x = load_block(f, _BLOCKS[f.name])
    n, key, near, group = x["n"], x["key"], x["near"], x["group"]
    fresh, stale, state = x["fresh"], x["stale"], x["state"]
    find = _finder(f, x["parent"])

    def none(i: Value) -> Value:
        return i.cmp("<", 0)

    def better(i: Value, j: Value) -> Value:
        """Whether node i has a better edge than node j, if that is one."""
        own: Value = key[i]
        return none(j) | own.cmp("<", key[f.select(none(j), i, j)])

    with f.while_() as settled:
        with f.loop(0, n) as c:
            fresh[c] = -1
            stale[c] = -1
        with f.loop(0, n) as i, f.if_(near[i].cmp(">=", 0)):
            own = group[i]
            with f.if_else(group[near[i]].cmp("!=", own)) as otherwise:
                with f.if_(better(i, fresh[own])):
                    fresh[own] = i
                with otherwise(), f.if_(better(i, stale[own])):
                    stale[own] = i
        before = state[0]
        with f.loop(0, n) as c:
            i, j = fresh[c], stale[c]
            with f.if_(none(i) ^ 1), f.if_(key[f.select(none(j), i, j)].cmp(">=", key[i])):
                u, v = find(c), find(group[near[i]])
                with f.if_(u.cmp("!=", v)):
                    x["parent"][v] = u
                    x["joined"][state[0]] = i
                    state[0] = state[0] + 1
        f.break_if(state[0].cmp("==", before), settled)
        with f.loop(0, n) as i:
            group[i] = find(group[i])
    count = f.var(f.const(0, I64))
    several = f.select(state[0].cmp("<", n - 1), n, f.const(0, I64))
    with f.loop(0, several) as i, f.if_(near[i].cmp(">=", 0)):
        own = group[i]
        with f.if_(group[near[i]].cmp("==", own)), f.if_(better(i, fresh[own])):
            x["rows"][count.get()] = i
            count.set(count.get() + 1)
    state[1] = count.get()
    return f


def _preorder_function() -> Function:
    f = Function("preorder", [PTR])
    x = load_block(f, _BLOCKS[f.name])
    n, first, near, order, above, up, last = (
        x[name] for name in ("n", "first", "near", "order", "above", "up", "last")
    )
    place = f.var(f.const(0, I64))
    # The end of `order` is the stack of nodes that are met but have no place yet.
    with f.loop(0, n) as root, f.if_(above[root].cmp("==", -2)):
        top = f.var(n - 1)
        order[top.get()] = root
        above[root] = -1
        with f.while_() as done:
            f.break_if(top.get().cmp(">=", n), done)
            v = order[top.get()]
            top.set(top.get() + 1)
            here = place.get()
            order[here] = v
            up[here] = above[v]
            last[here] = here + 1
            with f.loop(first[v], first[v + 1]) as e:
                u = near[e]
                with f.if_(above[u].cmp("==", -2)):
                    above[u] = here
                    top.set(top.get() - 1)
                    order[top.get()] = u
            place.set(here + 1)
    with f.loop(0, n) as i:
        v = n - 1 - i
        parent = up[v]
        with f.if_(parent.cmp(">=", 0)):
            end, own = last[parent], last[v]
            last[parent] = f.select(end.cmp("<", own), own, end)
    return f
