"""Structure of sparse eliminations, compiled: orders, fill and elimination trees."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from .blocks import Items, address, block
from .compiler import compile_functions, host_target
from .ir import I8, I32, I64, PTR, Function, Value

__all__ = [
    "adjacency", "climb", "elimination_tree", "locate", "minimum_degree",
    "postorder", "repack", "symbolic", "totals", "transpose",
]  # fmt: skip

#: Parameter blocks: numbers, then int64 arrays, int32 arrays, and int8 arrays.
_BLOCKS = {
    "adjacency": "n m : first place : row col near mark",
    "minimum_degree": "n capacity sources least order_cost triangle sweep pair : state begin mark "
    ": size room pool bucket next before order degree",
    "repack": "n : begin place : size pool larger",
    "elimination_tree": "n : first : near order rank parent ancestor",
    "postorder": "n : size : parent position below level",
    "symbolic": "n stop capacity : state first near_first : near order rank child sibling mark "
    "head parent",
    "transpose": "n : first place edge : head tail",
    "locate": "m : first slot : row col head",
    "totals": "n : work size : parent",
    "climb": "m fringe : start : parent : mark",
}

#: Work of an order for a vertex, and for each of its neighbours, beside those of these.
_VERTEX, _NEIGHBOUR = 64, 8


def adjacency(fields: Mapping[str, Any]) -> None:
    """The distinct neighbours of each vertex, in ``near`` from ``first`` on, which is rewritten.

    ``place`` is a copy of ``first``, which counts both ends of every edge; ``row`` differs from
    ``col``, and ``mark`` holds -1.
    """
    _call("adjacency", fields)


def minimum_degree(fields: Mapping[str, Any]) -> None:
    """Eliminate vertices of least degree until the rest is nearly a clique, or not worth it.

    Where more than ``least`` vertices are left, each has to gain more in the closure of the rest as
    a dense core than it costs: for ``sources`` rows, at the costs of a unit of work here, of a
    triangle, of an edge in a sweep, and of a pair of a dense product.

    ``state`` holds the vertices eliminated so far, the end of the pool, the last stamp, the work
    left, and why the function returned: 0 done, 1 the pool is full, 2 no work is left.
    """
    _call("minimum_degree", fields)


def repack(fields: Mapping[str, Any]) -> None:
    """Copy lists of neighbours from ``begin`` on in ``pool`` to ``place`` in ``larger``."""
    _call("repack", fields)


def elimination_tree(fields: Mapping[str, Any]) -> None:
    """The parent of each position, n of a root (Liu, 1990); ``ancestor`` holds n."""
    _call("elimination_tree", fields)


def postorder(fields: Mapping[str, Any]) -> None:
    """Positions in a postorder of a forest whose parents have higher numbers, and heights.

    A parent of n or more is none. ``size`` and ``level`` hold zeros.
    """
    _call("postorder", fields)


def symbolic(fields: Mapping[str, Any]) -> None:
    """The higher neighbours of each position after the fill, from position ``state[0]`` on.

    ``state[1]`` becomes 1 where ``head`` is full; then the caller makes it longer and goes on.
    """
    _call("symbolic", fields)


def transpose(fields: Mapping[str, Any]) -> None:
    """For each edge by ascending tail: the next place of its head takes the tail and the edge."""
    _call("transpose", fields)


def locate(fields: Mapping[str, Any]) -> None:
    """The edge 2 e of each arc up, 2 e + 1 of each arc down; ``head`` ascends from ``first`` on."""
    _call("locate", fields)


def totals(fields: Mapping[str, Any]) -> None:
    """``work`` and ``size`` summed over the descendants of each position; n and more: no parent."""
    _call("totals", fields)


def climb(fields: Mapping[str, Any]) -> None:
    """``mark`` 1 at some positions and their ancestors below ``fringe``."""
    _call("climb", fields)


def _call(name: str, fields: Mapping[str, Any]) -> None:
    values = block(_BLOCKS[name], fields)
    _compiled()[name](address(values))


@functools.cache
def _compiled() -> dict[str, Any]:
    functions = [
        _adjacency_function(), _minimum_degree_function(), _repack_function(),
        _elimination_tree_function(),
        _postorder_function(), _symbolic_function(), _transpose_function(), _locate_function(),
        _totals_function(), _climb_function(),
    ]  # fmt: skip
    library = compile_functions(functions, host_target())
    return {f.name: library.function(f.name, ctypes.c_void_p) for f in functions}


def _block(f: Function) -> tuple[Sequence[Value], Sequence[Items]]:
    """The numbers and the arrays of the parameter block of a function."""
    numbers, *kinds = (part.split() for part in _BLOCKS[f.name].split(":"))
    types = [t for names, t in zip(kinds, (I64, I32, I8), strict=False) for _ in names]
    loaded = [
        f.load(f.args[0].at(8 * i), PTR if i >= len(numbers) else I64, 8)
        for i in range(len(numbers) + len(types))
    ]
    arrays = [Items(f, base, t) for base, t in zip(loaded[len(numbers) :], types, strict=True)]
    return loaded[: len(numbers)], arrays


def _minimum_degree_function() -> Function:
    """Lists of neighbours in a pool; a list that outgrows its room moves to the pool's end."""
    f = Function("minimum_degree", [PTR])
    (n, capacity, sources, few, order_cost, triangle, sweep, pair), arrays = _block(f)
    state, begin, mark, size, room, pool, bucket, following, before, order, degree = arrays

    def unlink(v: Value) -> None:
        after, ahead = following[v], before[v]
        with f.if_else(ahead.cmp(">=", 0)) as otherwise:
            following[ahead] = after
            with otherwise():
                bucket[size[v]] = after
        with f.if_(after.cmp(">=", 0)):
            before[after] = ahead

    def link(v: Value) -> None:
        d = size[v]
        first = bucket[d]
        following[v] = first
        before[v] = -1
        with f.if_(first.cmp(">=", 0)):
            before[first] = v
        bucket[d] = v

    done, least = f.var(state[0]), f.var(f.const(0, I64))
    state[4] = 0
    with f.while_() as stopped:
        f.break_if(done.get().cmp(">=", n), stopped)
        with f.while_() as found:
            f.break_if(bucket[least.get()].cmp(">=", 0), found)
            least.set(least.get() + 1)
        d = least.get()
        left = n - done.get()
        f.break_if((d * 3).cmp(">=", left), stopped)
        v = bucket[d]
        around = begin[v]
        needed, work = f.var(f.const(0, I64)), f.var(d * d + _VERTEX)
        with f.loop(around, around + d) as i:
            u = pool[i]
            more = size[u] + d
            work.set(work.get() + size[u] + _NEIGHBOUR)
            with f.if_(more.cmp(">", room[u])):
                needed.set(needed.get() + more * 2)
        costs = order_cost * work.get() + triangle * d * d + sweep * sources * d
        gain = pair * left * (left * 3 + f.low(sources, done.get()) * 2)
        f.break_if(left.cmp(">", few) & costs.cmp(">", gain), stopped)
        with f.if_((state[1] + needed.get()).cmp(">", capacity)):
            state[4] = 1
        with f.if_(state[3].cmp("<", work.get())):
            state[4] = 2
        f.break_if(state[4].cmp("!=", 0), stopped)
        state[3] = state[3] - work.get()
        unlink(v)
        order[done.get()] = v
        degree[done.get()] = d
        done.set(done.get() + 1)
        with f.loop(around, around + d) as i:
            u = pool[i]
            unlink(u)
            stamp = state[2] + 1
            state[2] = stamp
            count, old = f.var(f.const(0, I64)), begin[u]
            moves = (size[u] + d).cmp(">", room[u])
            own = f.select(moves, state[1], old)
            with f.loop(old, old + size[u]) as j:  # without v
                w = pool[j]
                mark[w] = stamp
                with f.if_(w.cmp("!=", v)):
                    pool[own + count.get()] = w
                    count.set(count.get() + 1)
            with f.if_(moves):
                more = (size[u] + d) * 2
                begin[u], room[u] = own, more
                state[1] = state[1] + more
            with f.loop(around, around + d) as j:
                w = pool[j]
                with f.if_(w.cmp("!=", u) & mark[w].cmp("!=", stamp)):
                    pool[own + count.get()] = w
                    count.set(count.get() + 1)
            size[u] = count.get()
            link(u)
        size[v] = 0
        # Neighbours that now have no others than each other go at once: they fill nothing in.
        alike = f.var(f.const(0, I64))
        with f.loop(around, around + d) as i:
            u = pool[i]
            with f.if_(size[u].cmp("==", d - 1)):
                unlink(u)
                size[u] = -1
                alike.set(alike.get() + 1)
                order[done.get()] = u
                degree[done.get()] = d - alike.get()
                done.set(done.get() + 1)
        with f.if_(alike.get().cmp(">", 0)):
            with f.loop(around, around + d) as i:
                u = pool[i]
                with f.if_(size[u].cmp(">=", 0)):
                    unlink(u)
                    count, own = f.var(f.const(0, I64)), begin[u]
                    with f.loop(own, own + size[u]) as j:
                        w = pool[j]
                        with f.if_(size[w].cmp(">=", 0)):
                            pool[own + count.get()] = w
                            count.set(count.get() + 1)
                    size[u] = count.get()
                    link(u)
            with f.loop(around, around + d) as i, f.if_(size[pool[i]].cmp("<", 0)):
                size[pool[i]] = 0
        lower = d - 1 - alike.get()
        least.set(f.select(lower.cmp(">", 0), lower, f.const(0, I64)))
    state[0] = done.get()
    return f


def _repack_function() -> Function:
    f = Function("repack", [PTR])
    (n,), (begin, place, size, pool, larger) = _block(f)
    with f.loop(0, n) as v:
        old, new = begin[v], place[v]
        with f.loop(0, size[v]) as i:
            larger[new + i] = pool[old + i]
    return f


def _symbolic_function() -> Function:
    """Of each vertex its own higher neighbours and those of its children but itself."""
    f = Function("symbolic", [PTR])
    (n, stop, capacity), arrays = _block(f)
    state, first, near_first, near, order, rank, child, sibling, mark, head, parent = arrays
    at = f.var(state[0])
    with f.while_() as stopped:
        v = at.get()
        f.break_if(v.cmp(">=", stop), stopped)
        node, end = order[v], f.var(first[v])
        needed = f.var(near_first[node + 1] - near_first[node])
        c = f.var(child[v])
        with f.while_() as counted:
            f.break_if(c.get().cmp("<", 0), counted)
            needed.set(needed.get() + first[c.get() + 1] - first[c.get()])
            c.set(sibling[c.get()])
        with f.if_((end.get() + needed.get()).cmp(">", capacity)):
            state[1] = 1
        f.break_if(state[1].cmp("!=", 0), stopped)
        least = f.var(n)

        def take(u: Value, v: Value = v, end: Any = end, least: Any = least) -> None:
            with f.if_(u.cmp(">", v) & mark[u].cmp("!=", v)):
                mark[u] = v
                head[end.get()] = u
                end.set(end.get() + 1)
                least.set(f.low(least.get(), u))

        with f.loop(near_first[node], near_first[node + 1]) as e:
            take(rank[near[e]])
        c.set(child[v])
        with f.while_() as joined:
            f.break_if(c.get().cmp("<", 0), joined)
            with f.loop(first[c.get()], first[c.get() + 1]) as e:
                take(head[e])
            c.set(sibling[c.get()])
        first[v + 1] = end.get()
        up = least.get()
        parent[v] = up
        with f.if_(up.cmp("<", n)):
            sibling[v] = child[up]
            child[up] = v
        at.set(v + 1)
    state[0] = at.get()
    return f


def _transpose_function() -> Function:
    f = Function("transpose", [PTR])
    (n,), (first, place, edge, head, tail) = _block(f)
    with f.loop(0, n) as v, f.loop(first[v], first[v + 1]) as e:
        u = head[e]
        at = place[u]
        place[u] = at + 1
        tail[at] = v
        edge[at] = e
    return f


def _postorder_function() -> Function:
    f = Function("postorder", [PTR])
    (n,), (size, parent, position, below, level) = _block(f)
    with f.loop(0, n) as v:
        size[v] = size[v] + 1
        up = parent[v]
        with f.if_(up.cmp("<", n)):
            size[up] = size[up] + size[v]
            higher = level[v] + 1
            level[up] = f.select(higher.cmp(">", level[up]), higher, level[up])
    # A subtree ends with its root; `below` is the last place that is free in the subtree of each.
    roots = f.var(n - 1)
    with f.loop(0, n) as i:
        v = n - 1 - i
        up = parent[v]
        own = f.var(roots.get())
        with f.if_else(up.cmp("<", n)) as otherwise:
            own.set(below[up])
            below[up] = own.get() - size[v]
            with otherwise():
                roots.set(own.get() - size[v])
        position[v] = own.get()
        below[v] = own.get() - 1
    return f


def _adjacency_function() -> Function:
    f = Function("adjacency", [PTR])
    (n, m), (first, place, row, col, near, mark) = _block(f)
    with f.loop(0, m) as e:
        ends = row[e], col[e]
        for u, v in (ends, ends[::-1]):
            at = place[u]
            near[at] = v
            place[u] = at + 1
    kept = f.var(f.const(0, I64))
    with f.loop(0, n) as v:
        begin, end = first[v], place[v]
        first[v] = kept.get()
        with f.loop(begin, end) as e:
            u = near[e]
            with f.if_(mark[u].cmp("!=", v)):
                mark[u] = v
                near[kept.get()] = u
                kept.set(kept.get() + 1)
    first[n] = kept.get()
    return f


def _elimination_tree_function() -> Function:
    """The root of each lower neighbour's tree gets the vertex as its parent; paths are halved."""
    f = Function("elimination_tree", [PTR])
    (n,), (first, near, order, rank, parent, ancestor) = _block(f)
    with f.loop(0, n) as v:
        parent[v] = n
        node = order[v]
        with f.loop(first[node], first[node + 1]) as e:
            u = f.var(rank[near[e]])
            with f.if_(u.get().cmp("<", v)), f.while_() as rooted:
                above = ancestor[u.get()]
                f.break_if(above.cmp("==", v), rooted)
                ancestor[u.get()] = v
                with f.if_(above.cmp("==", n)):
                    parent[u.get()] = v
                f.break_if(above.cmp("==", n), rooted)
                u.set(above)
    return f


def _locate_function() -> Function:
    f = Function("locate", [PTR])
    (m,), (first, slot, row, col, head) = _block(f)
    with f.loop(0, m) as e:
        a, b = row[e], col[e]
        up = a.cmp("<", b)
        low, high = f.select(up, a, b), f.select(up, b, a)
        lo, hi = f.var(first[low]), f.var(first[low + 1])
        with f.while_() as found:
            f.break_if((hi.get() - lo.get()).cmp("<=", 1), found)
            middle = (lo.get() + hi.get()) >> 1
            below = head[middle].cmp("<=", high)
            lo.set(f.select(below, middle, lo.get()))
            hi.set(f.select(below, hi.get(), middle))
        slot[e] = lo.get() * 2 + (up ^ 1).to(I64)
    return f


def _totals_function() -> Function:
    f = Function("totals", [PTR])
    (n,), (work, size, parent) = _block(f)
    with f.loop(0, n) as v:
        up = parent[v]
        with f.if_(up.cmp("<", n)):
            work[up] = work[up] + work[v]
            size[up] = size[up] + size[v]
    return f


def _climb_function() -> Function:
    f = Function("climb", [PTR])
    (m, fringe), (start, parent, mark) = _block(f)
    with f.loop(0, m) as i:
        at = f.var(start[i])
        with f.while_() as risen:
            v = at.get()
            f.break_if(v.cmp(">=", fringe), risen)
            f.break_if(mark[v].cmp("!=", 0), risen)
            mark[v] = 1
            at.set(parent[v])
    return f
