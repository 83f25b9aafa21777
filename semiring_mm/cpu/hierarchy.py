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
from .algebra import Algebra
from .blocks import address, block, load_block, load_item
from .compiler import KEPT, Target, compile_functions, host_target
from .ir import I32, I64, PTR, Function, Type, Value, transposed

__all__ = ["UNREACHED", "Code", "chunk_width", "turned_bytes"]

#: The predecessor of what has none.
UNREACHED = -9999
_VECTORS = 2  # of sources: they hide the latency of ⊕, but more labels leave the caches
_LINE = 64  # bytes of a line of the caches
_COLUMNS = 512  # that are turned into rows at a time, in the second-level cache

#: Parameter blocks: numbers, then int64 arrays, int32 arrays, and others.
_BLOCKS = {
    "place": "m : slot : : out back weight",
    "customize": "begin end : first low_first low_edge place : nodes head low_tail out_pred "
    "back_pred : out back",
    "join_core": "begin end fringe core : first low_first low_edge : head low_tail out_pred "
    "core_pred : out back matrix",
    "rise": "fringe : source first visits : parent head visited pred out_pred : label out",
    "fall": "falls : source first visits : head visited pred back_pred order : label back",
    "write_values": "n base : offsets where : : label rows turned",
    "write_nodes": "n base : offsets where : : label rows turned",
}


def chunk_width(itemsize: int) -> int:
    """Sources of one chunk, whose labels are computed in a type of that size."""
    return _VECTORS * (host_target().vector_bytes // itemsize)


def turned_bytes() -> int:
    """Scratch memory of the functions that write."""
    return _VECTORS * host_target().vector_bytes * (_COLUMNS + _LINE)


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
        """Call a function by the names of its parameter block.

        ``place``: out[slot / 2], or back where that is odd, ⊕= each stored weight.

        ``customize``: for ``nodes[begin:end]``, whose lower neighbours are done, ``out`` and
        ``back`` of their edges ⊕= the ways down to a lower neighbour and up again. ``place`` is
        scratch.

        ``join_core``: the same for rows of the core's matrix.

        ``rise``: labels from the source of each lane to its ancestors in the elimination tree, and
        to the core, whose labels are zero beforehand. ``source`` ascends and ends with a number
        that is no vertex. ``visited`` receives the ancestors, ``visits[0]`` their number.

        ``fall``: labels from the core and the ``visited`` to ``order[:falls]``, descending
        positions with all of their ancestors.

        ``write_values``, ``write_nodes``: row of lane i, column j ← label of vertex ``where[j]``.
        Rows begin ``offsets`` bytes behind ``rows``, whose address is ``base``, too; ``turned`` is
        scratch of :func:`turned_bytes`.
        """
        if name in ("place", "customize", "join_core"):
            functions = _customizing(self._plan, self._trees, self._symmetric)
        else:
            functions = _sweeping(self._plan, *self._identities, self._trees)
        values = block(_BLOCKS[name], fields)
        functions[name](address(values))


@functools.lru_cache(maxsize=KEPT)
def _customizing(plan: Plan, trees: bool, symmetric: bool) -> dict[str, Any]:
    return _compiled(
        [
            _place_function(plan), _customize_function(plan, trees, symmetric),
            _join_core_function(plan, trees),
        ],
        host_target(),
    )  # fmt: skip


@functools.lru_cache(maxsize=KEPT)
def _sweeping(plan: Plan, zero: float | int, one: float | int, trees: bool) -> dict[str, Any]:
    target = host_target()
    functions = [
        _rise_function(plan, zero, one, target, trees),
        _fall_function(plan, zero, one, target, trees),
        _write_function("write_values", plan, target),
    ]  # fmt: skip
    if trees:
        functions.append(_write_function("write_nodes", plan, target))
    return _compiled(functions, target)


def _compiled(functions: list[Function], target: Target) -> dict[str, Any]:
    library = compile_functions(functions, target)
    return {f.name: library.function(f.name, ctypes.c_void_p) for f in functions}


def _place_function(plan: Plan) -> Function:
    f = Function("place", [PTR])
    algebra, x = Algebra(f, plan), load_block(f, _BLOCKS[f.name])
    t, s = algebra.compute, algebra.storage
    with f.loop(0, x["m"]) as i:
        slot = x["slot"][i]
        down = (slot & 1).cmp("!=", 0)
        at = f.select(down, x["back"], x["out"]).at((slot >> 1) * t.size)
        new = algebra.decode(load_item(f, x["weight"], i, s))
        f.store(algebra.add(f.load(at, t, t.size), new), at, t.size)
    return f


def _customize_function(plan: Plan, trees: bool, symmetric: bool) -> Function:
    """W[v, b] ← W[v, b] ⊕ W[v, u] ⊗ W[u, b] for the lower neighbours u of v, either way."""
    f = Function("customize", [PTR])
    algebra, x = Algebra(f, plan), load_block(f, _BLOCKS[f.name])
    t = algebra.compute
    first, head, place = x["first"], x["head"], x["place"]

    def join(way: str, e: Value, through: Value, pred: Value | None) -> None:
        at = x[way].at(e * t.size)
        old = f.load(at, t, t.size)
        if pred is None:
            f.store(algebra.add(old, through), at, t.size)
            return
        with f.if_(algebra.better(through, old)):
            f.store(through, at, t.size)
            x[f"{way}_pred"][e] = pred

    with f.loop(x["begin"], x["end"]) as i:
        v = x["nodes"][i]
        with f.loop(first[v], first[v + 1]) as e:
            place[head[e]] = e
        with f.loop(x["low_first"][v], x["low_first"][v + 1]) as k:
            down = x["low_edge"][k]
            from_v, to_v = load_item(f, x["back"], down, t), load_item(f, x["out"], down, t)
            v_pred = x["out_pred"][down] if trees else None
            with f.loop(down + 1, first[x["low_tail"][k] + 1]) as g:
                e = place[head[g]]
                ahead = x["out_pred"][g] if trees else None
                join("out", e, algebra.mul(from_v, load_item(f, x["out"], g, t)), ahead)
                if not symmetric:
                    join("back", e, algebra.mul(load_item(f, x["back"], g, t), to_v), v_pred)
    return f


def _join_core_function(plan: Plan, trees: bool) -> Function:
    """The same between nodes of the core, in rows `begin` to `end` of its matrix."""
    f = Function("join_core", [PTR])
    algebra, x = Algebra(f, plan), load_block(f, _BLOCKS[f.name])
    t, s = algebra.compute, algebra.storage
    with f.loop(x["begin"], x["end"]) as i:
        v = i + x["fringe"]
        with f.loop(x["low_first"][v], x["low_first"][v + 1]) as k:
            down, u = x["low_edge"][k], x["low_tail"][k]
            from_v = load_item(f, x["back"], down, t)
            with f.loop(x["first"][u], x["first"][u + 1]) as g:
                b = x["head"][g] - x["fringe"]
                with f.if_(b.cmp(">=", 0) & b.cmp("!=", i)):
                    through = algebra.mul(from_v, load_item(f, x["out"], g, t))
                    entry = i * x["core"] + b
                    at = x["matrix"].at(entry * s.size)
                    old = algebra.decode(f.load(at, s, s.size))
                    with f.if_(algebra.better(through, old)):
                        f.store(algebra.encode(through)[0], at, s.size)
                        if trees:
                            x["core_pred"][entry] = x["out_pred"][g]
    return f


class _Labels:
    """The labels of a chunk of sources: vectors for each vertex, and their predecessors."""

    def __init__(
        self, f: Function, algebra: Algebra, target: Target, x: dict[str, Any], trees: bool
    ) -> None:
        self.f, self.algebra, self.x = f, algebra, x
        self.lanes = target.vector_bytes // algebra.compute.size
        self.width = self.lanes * _VECTORS
        self.kinds = [(x["label"], algebra.compute)]
        if trees:
            self.kinds.append((x["pred"].base, I32))

    def read(self, v: Value, g: int) -> list[Value]:
        f, at = self.f, v * self.width + g * self.lanes
        return [
            f.load(base.at(at * t.size), t.vector(self.lanes), t.size) for base, t in self.kinds
        ]

    def write(self, v: Value, g: int, values: list[Value]) -> None:
        at = v * self.width + g * self.lanes
        for (base, t), value in zip(self.kinds, values, strict=True):
            self.f.store(value, base.at(at * t.size), t.size)

    def none(self, zero: float | int) -> list[Value]:
        """The labels of what is not reached."""
        kinds = zip((zero, UNREACHED), self.kinds, strict=False)
        return [self.f.const(value, t.vector(self.lanes)) for value, (_, t) in kinds]

    def edge(self, way: str, e: Value) -> list[Value]:
        """The weight of an edge, and its predecessor, in all lanes."""
        t = self.algebra.compute
        found = [load_item(self.f, self.x[way], e, t).splat(self.lanes)]
        if len(self.kinds) > 1:
            found.append(load_item(self.f, self.x[f"{way}_pred"].base, e, I32).splat(self.lanes))
        return found

    def relax(self, tail: list[Value], w: list[Value], old: list[Value]) -> list[Value]:
        through = self.algebra.mul(tail[0], w[0])
        if len(old) == 1:
            return [self.algebra.add(old[0], through)]
        wins = self.algebra.better(through, old[0])
        pairs = zip([through, w[1]], old, strict=True)
        return [self.f.select(wins, new, x) for new, x in pairs]

    def own(self, one: float | int) -> None:
        """The label of each lane's source."""
        f = self.f
        with f.loop(0, self.width) as i:
            at = self.x["source"][i] * self.width + i
            for value, (base, t) in zip((one, UNREACHED), self.kinds, strict=False):
                f.store(f.const(value, t), base.at(at * t.size), t.size)


def _rise_function(
    plan: Plan, zero: float | int, one: float | int, target: Target, trees: bool
) -> Function:
    f = Function("rise", [PTR])
    algebra, x = Algebra(f, plan), load_block(f, _BLOCKS[f.name])
    labels = _Labels(f, algebra, target, x, trees)
    source, visited, first, head = x["source"], x["visited"], x["first"], x["head"]
    count, lane = f.var(f.const(0, I64)), f.var(f.const(0, I64))
    at = f.var(source[0])
    with f.while_() as risen:
        v = at.get()
        f.break_if(v.cmp(">=", x["fringe"]), risen)
        for g in range(_VECTORS):
            labels.write(v, g, labels.none(zero))
        visited[count.get()] = v
        count.set(count.get() + 1)
        with f.while_() as passed:
            f.break_if(source[lane.get()].cmp(">", v), passed)
            lane.set(lane.get() + 1)
        # Subtrees are ranges: a parent beyond the next source is an ancestor of that one too.
        at.set(f.low(x["parent"][v], source[lane.get()]))
    x["visits"][0] = count.get()
    labels.own(one)
    with f.loop(0, count.get()) as i:
        v = visited[i]
        tails = [labels.read(v, g) for g in range(_VECTORS)]
        with f.loop(first[v], first[v + 1]) as e:
            w, u = labels.edge("out", e), head[e]
            for g in range(_VECTORS):
                labels.write(u, g, labels.relax(tails[g], w, labels.read(u, g)))
    return f


def _fall_function(
    plan: Plan, zero: float | int, one: float | int, target: Target, trees: bool
) -> Function:
    f = Function("fall", [PTR])
    algebra, x = Algebra(f, plan), load_block(f, _BLOCKS[f.name])
    labels = _Labels(f, algebra, target, x, trees)
    visited, first, head = x["visited"], x["first"], x["head"]
    left = f.var(x["visits"][0])
    with f.loop(0, x["falls"]) as i:
        v = x["order"][i]
        with f.while_() as passed:  # what lies between two of them is no ancestor of any
            last = f.select(left.get().cmp(">", 0), left.get() - 1, f.const(0, I64))
            beyond = left.get().cmp(">", 0) & visited[last].cmp(">", v)
            f.break_if(beyond ^ 1, passed)
            left.set(left.get() - 1)
        best = [[f.var(value) for value in labels.none(zero)] for _ in range(_VECTORS)]
        with f.if_(left.get().cmp(">", 0)), f.if_(visited[left.get() - 1].cmp("==", v)):
            left.set(left.get() - 1)
            for g in range(_VECTORS):
                for var, value in zip(best[g], labels.read(v, g), strict=True):
                    var.set(value)
        with f.loop(first[v], first[v + 1]) as e:
            w, u = labels.edge("back", e), head[e]
            for g in range(_VECTORS):
                new = labels.relax(labels.read(u, g), w, [var.get() for var in best[g]])
                for var, value in zip(best[g], new, strict=True):
                    var.set(value)
        for g in range(_VECTORS):
            labels.write(v, g, [var.get() for var in best[g]])
    labels.own(one)  # rounding in a cycle of weight 0 must not show on the diagonal
    return f


def _write_function(name: str, plan: Plan, target: Target) -> Function:
    """Labels, some columns at a time, turned within a cache and then written past it."""
    f = Function(name, [PTR])
    algebra, x = Algebra(f, plan), load_block(f, _BLOCKS[f.name])
    nodes = name == "write_nodes"
    t, s = (I32, I32) if nodes else (algebra.compute, algebra.storage)
    width = _VECTORS * (target.vector_bytes // algebra.compute.size)
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
