"""The best path of one pair over a customized elimination, compiled for a semiring.

A best path first rises to an ancestor of both ends in the elimination tree, or into the core, and
then falls (the elimination-tree query of Dibbelt, Strasser and Wagner, 2016). A shortcut is
unpacked by the lower triangle whose sides give its weight.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from ..graph_kernels import Factor, Index, Node
from ..plan import Plan, computed
from .algebra import Algebra
from .blocks import block, load_block, load_item
from .compiler import KEPT, compile_functions, host_target
from .ir import I64, PTR, Function, Value, Var

__all__ = ["PathQuery"]

#: Parameter blocks: numbers, then int64 arrays, int32 arrays, and others.
_BLOCKS = {
    "meet": "fringe core source target : first : parent head : out back matrix rise fall value",
    "route": "fringe source target capacity room : first low_first low_edge stack count : parent "
    "head low_tail rise_tail fall_tail found : out back rise fall value",
}


class PathQuery:
    """Parameter blocks and memory of one query at a time."""

    def __init__(self, factor: Factor, low_first: Index, low_tail: Node, low_edge: Index) -> None:
        x, kind = factor.structure, factor.out.dtype
        identities = (computed(factor.plan, y) for y in factor.semiring.identities(factor.dtype))
        self._functions = _compiled(factor.plan, *identities)
        room = 3 * (int(x.level.max(initial=0)) + 1) + 8
        self._value, self._count = np.empty(1, kind), np.empty(1, np.int64)
        self._found = np.empty(x.n, np.int32)
        fields: dict[str, Any] = {
            "fringe": x.fringe, "core": x.core, "first": x.first, "parent": x.parent,
            "head": x.head, "low_first": low_first, "low_tail": low_tail, "low_edge": low_edge,
            "out": factor.out, "back": factor.back, "matrix": factor.core, "value": self._value,
            "found": self._found, "count": self._count,
            "rise": np.empty(x.n, kind), "fall": np.empty(x.n, kind),
            "rise_tail": np.empty(x.n, np.int32), "fall_tail": np.empty(x.n, np.int32),
            "capacity": room, "stack": np.empty(2 * room, np.int64), "room": x.n,
        }  # fmt: skip
        self._fields = fields  # keeps the memory
        self._blocks, self._ends = {}, {}
        for name, layout in _BLOCKS.items():
            self._blocks[name] = block(layout, fields)
            begin = layout.split().index("source")  # among the numbers, which come first
            self._ends[name] = self._blocks[name][begin : begin + 2]
        self._address = {name: x.ctypes.data for name, x in self._blocks.items()}

    def meet(self, source: int, target: int) -> Any:
        """The weight from one position to another, in the type computed in."""
        return self._run("meet", source, target)

    def route(self, source: int, target: int) -> tuple[Any, Node | None]:
        """The same, and the positions after the source on a walk along real edges, if it fits."""
        value, count = self._run("route", source, target), int(self._count[0])
        return value, None if count < 0 else self._found[:count].copy()

    def _run(self, name: str, source: int, target: int) -> Any:
        ends = self._ends[name]
        ends[0], ends[1] = source, target
        self._functions[name](self._address[name])
        return self._value[0].item()


@functools.lru_cache(maxsize=KEPT)
def _compiled(plan: Plan, zero: float | int, one: float | int) -> dict[str, Any]:
    """Functions of the address of a parameter block.

    ``meet``: ``value[0]`` becomes the weight from the position `source` to `target`, in the type
    computed in. `rise` and `fall` are scratch, an entry for each position.

    ``route``: the same for a structure without a core and, in `found`, the positions after the
    source on a walk along real edges; ``count[0]`` is their number, or -1 if `room` is too little.
    `stack` is scratch of `capacity` pairs; three for each level of the tree are enough.
    `rise_tail` and `fall_tail` are scratch, too.
    """
    target = host_target()
    functions = [_meet_function(plan, zero, one), _route_function(plan, zero, one)]
    library = compile_functions(functions, target)
    return {f.name: library.function(f.name, ctypes.c_void_p) for f in functions}


class _Climb:
    """Labels of the ancestors of both ends."""

    def __init__(self, f: Function, plan: Plan, zero: float | int, one: float | int) -> None:
        self.f, self.algebra, self.x = f, Algebra(f, plan), load_block(f, _BLOCKS[f.name])
        self.type = self.algebra.compute
        self.zero, self.one = (f.const(value, self.type) for value in (zero, one))

    def label(self, which: str, v: Value) -> Value:
        return load_item(self.f, self.x[which], v, self.type)

    def put(self, which: str, v: Value, value: Value) -> None:
        self.f.store(value, self.x[which].at(v * self.type.size), self.type.size)

    def chain(self, start: Value, work: Any) -> None:
        """`work` for a position and its ancestors in the fringe."""
        f, at = self.f, self.f.var(start)
        with f.while_() as risen:
            v = at.get()
            f.break_if(v.cmp(">=", self.x["fringe"]), risen)
            work(v)
            at.set(self.x["parent"][v])

    def clear(self) -> None:
        """No label is reached but those of the ends."""
        f, x = self.f, self.x

        def none(v: Value) -> None:
            self.put("rise", v, self.zero)
            self.put("fall", v, self.zero)

        for end in ("source", "target"):
            self.chain(x[end], none)
        if "core" in x:
            with f.loop(x["fringe"], x["fringe"] + x["core"]) as v:
                none(v)
        self.put("rise", x["source"], self.one)
        self.put("fall", x["target"], self.one)

    def relax(self, which: str, way: str, v: Value, *, tails: bool) -> None:
        """Labels of the higher neighbours through v."""
        f, x, algebra = self.f, self.x, self.algebra
        own = self.label(which, v)
        # zero may not annihilate; and what is not reached has no tail to go back to
        with f.if_(own.cmp("!=", self.zero)), f.loop(x["first"][v], x["first"][v + 1]) as e:
            u, w = x["head"][e], load_item(f, x[way], e, self.type)
            through = algebra.mul(own, w) if which == "rise" else algebra.mul(w, own)
            old = self.label(which, u)
            if tails:
                with f.if_(algebra.better(through, old)):
                    self.put(which, u, through)
                    x[f"{which}_tail"][u] = v
            else:
                self.put(which, u, algebra.add(old, through))

    def climb(self, *, tails: bool) -> tuple[Var, Var]:
        """The best label where the ways meet in the fringe, and its position."""
        f, x, algebra = self.f, self.x, self.algebra
        self.clear()
        self.chain(x["source"], lambda v: self.relax("rise", "out", v, tails=tails))
        self.chain(x["target"], lambda v: self.relax("fall", "back", v, tails=tails))
        best, place = f.var(self.zero), f.var(f.const(-1, I64))

        def meet(v: Value) -> None:
            up, down = self.label("rise", v), self.label("fall", v)
            whole = algebra.mul(up, down)
            better = algebra.better(whole, best.get())
            better = better & up.cmp("!=", self.zero) & down.cmp("!=", self.zero)
            best.set(f.select(better, whole, best.get()))
            place.set(f.select(better, v, place.get()))

        self.chain(x["source"], meet)
        return best, place


def _meet_function(plan: Plan, zero: float | int, one: float | int) -> Function:
    f = Function("meet", [PTR])
    climb = _Climb(f, plan, zero, one)
    x, algebra, s = climb.x, climb.algebra, climb.algebra.storage
    best, _ = climb.climb(tails=False)
    core, fringe = x["core"], x["fringe"]
    with f.loop(0, core) as i:
        up = climb.label("rise", fringe + i)
        with f.if_(up.cmp("!=", climb.zero)), f.loop(0, core) as j:
            inner = algebra.decode(load_item(f, x["matrix"], i * core + j, s))
            whole = algebra.mul(algebra.mul(up, inner), climb.label("fall", fringe + j))
            best.set(algebra.add(best.get(), whole))
    f.store(best.get(), x["value"], climb.type.size)
    return f


def _route_function(plan: Plan, zero: float | int, one: float | int) -> Function:
    f = Function("route", [PTR])
    climb = _Climb(f, plan, zero, one)
    x, algebra, t = climb.x, climb.algebra, climb.type
    stack, head, first = x["stack"], x["head"], x["first"]
    best, place = climb.climb(tails=True)
    f.store(best.get(), x["value"], t.size)
    x["count"][0] = 0

    def edge(tail: Value, up: Value) -> Value:
        """The edge between two positions, which is there."""
        lo, hi = f.var(first[tail]), f.var(first[tail + 1])
        with f.while_() as found:
            f.break_if((hi.get() - lo.get()).cmp("<=", 1), found)
            middle = (lo.get() + hi.get()) >> 1
            below = head[middle].cmp("<=", up)
            lo.set(f.select(below, middle, lo.get()))
            hi.set(f.select(below, hi.get(), middle))
        return lo.get()

    def push(at: Value, tail: Value, e: Value, down: Value | int) -> None:
        """An edge to be walked, up from its tail or down to it."""
        stack[at * 2] = e * 2 + down
        stack[at * 2 + 1] = tail

    with f.if_(place.get().cmp(">=", 0)):
        # The stack has the first edge of the walk on top.
        length, at = f.var(f.const(0, I64)), f.var(place.get())
        with f.while_() as counted:
            f.break_if(at.get().cmp("==", x["target"]), counted)
            length.set(length.get() + 1)
            at.set(x["fall_tail"][at.get()])
        top = f.var(length.get())
        at.set(place.get())
        with f.while_() as fallen:
            u = at.get()
            f.break_if(u.cmp("==", x["target"]), fallen)
            tail = x["fall_tail"][u]
            length.set(length.get() - 1)
            push(length.get(), tail, edge(tail, u), 1)
            at.set(tail)
        at.set(place.get())
        with f.while_() as risen:
            u = at.get()
            f.break_if(u.cmp("==", x["source"]), risen)
            tail = x["rise_tail"][u]
            push(top.get(), tail, edge(tail, u), 0)
            top.set(top.get() + 1)
            at.set(tail)
        count = f.var(f.const(0, I64))
        with f.while_() as walked:
            f.break_if(top.get().cmp("<=", 0), walked)
            with f.if_((top.get() + 1).cmp(">", x["capacity"])):
                count.set(x["room"] + 1)
            f.break_if(count.get().cmp(">", x["room"]), walked)
            top.set(top.get() - 1)
            code, a = stack[top.get() * 2], stack[top.get() * 2 + 1]
            e, down = code >> 1, (code & 1).cmp("!=", 0)
            b = head[e]
            along = f.select(down, x["back"], x["out"])
            wanted = load_item(f, along, e, t)
            k, through = f.var(x["low_first"][a]), f.var(f.const(-1, I64))
            to_a, to_b = f.var(f.const(0, I64)), f.var(f.const(0, I64))
            with f.while_() as searched:
                f.break_if(k.get().cmp(">=", x["low_first"][a + 1]), searched)
                u, near = x["low_tail"][k.get()], x["low_edge"][k.get()]
                far = edge(u, b)
                with f.if_(head[far].cmp("==", b)):
                    # from one end down to u by `back`, and up to the other by `out`
                    falls, rises = f.select(down, far, near), f.select(down, near, far)
                    left, right = (
                        load_item(f, x[way], g, t) for way, g in (("back", falls), ("out", rises))
                    )
                    with f.if_(algebra.mul(left, right).cmp("==", wanted)):
                        through.set(u)
                        to_a.set(near)
                        to_b.set(far)
                f.break_if(through.get().cmp(">=", 0), searched)
                k.set(k.get() + 1)
            u = through.get()
            with f.if_else(u.cmp(">=", 0)) as original:
                falls = f.select(down, to_b.get(), to_a.get())
                rises = f.select(down, to_a.get(), to_b.get())
                push(top.get(), u, rises, 0)
                push(top.get() + 1, u, falls, 1)
                top.set(top.get() + 2)
                with original():
                    x["found"][f.low(count.get(), x["room"] - 1)] = f.select(down, a, b)
                    count.set(count.get() + 1)
        enough = count.get().cmp("<=", x["room"])
        x["count"][0] = f.select(enough, count.get(), f.const(-1, I64))
    return f
