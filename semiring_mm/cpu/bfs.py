"""Breadth-first search from 512 sources at once, a bit each, compiled.

Of every node a vector of bits says which searches have met it. A level goes along the edges from
the nodes that were met last or, where these are many, to all nodes not met by all searches, which
is a product of truth values that ends where nothing is missing (Then
et al., The more the merrier: efficient multi-source graph traversal, 2014; Beamer, Asanović and
Patterson, Direction-optimizing breadth-first search, 2012). How many nodes each search meets in a
level is counted in bit slices.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from typing import Any

from .blocks import Items, address, block, load_block
from .compiler import compile_functions, host_target
from .ir import F64, I1, I8, I32, I64, PTR, Function, Type, Value

__all__ = ["LANES", "levels"]

LANES = 512  #: searches at once
_WORD = I64.vector(8)
_BYTES = 64
_SLICES = 8  # of the counters; after 255 nodes they are added up
_LOOK = 8  # edges to a node after which it is looked whether all searches have met it
_PULL = 3  # an edge followed to a node that is met at once costs so much more than one from it

_FIELDS = (
    "n arcs count radii mark : source first back_first table radius : near back_near active "
    "touched counts : seen frontier next full slices total far inverse within reached label"
)


def levels(fields: Mapping[str, Any], *, labels: int = 0) -> None:
    """Search from ``source``, `count` nodes; ``seen``, ``frontier`` and ``next`` are zeros.

    For each search: ``reached`` nodes beside its source, the ``total`` of their distances and of
    the inverse distances, the largest, ``far``, and the number ``within`` each radius. ``table``
    has the number of pairs for each distance. With `labels`, 1 or 4 bytes each, ``label`` (a row
    for each node) receives the distances themselves; what is farther than ``mark`` is left out.
    """
    values = block(_FIELDS, fields)
    _compiled(labels)(address(values))


@functools.cache
def _compiled(labels: int) -> Any:
    counts = _count_function()
    functions = [counts, _levels_function(counts, labels)]
    return compile_functions(functions, host_target()).function("levels", ctypes.c_void_p)


def _count_function() -> Function:
    """counts += the numbers in the slices, bit p of which is worth 2^p."""
    f = Function("count_slices", [PTR, PTR], private=True)
    slices, counts = f.args
    t = I32.vector(16)
    with f.loop(0, LANES // 16) as i:
        at = counts.at(i * t.size)
        total = f.load(at, t, 4)
        for p in range(_SLICES):
            bits = f.load(slices.at(p * _BYTES).at(i * 2), Type("i", 16), 2)
            mask = bits.bits_as(I1.vector(16))
            total = total + f.select(mask, f.const(1 << p, t), f.const(0, t))
        f.store(total, at, 4)
    return f


def _levels_function(counts: Function, labels: int) -> Function:
    f = Function("levels", [PTR])
    x = load_block(f, _FIELDS)
    first, near = x["first"], x["near"]
    frontier, following = f.var(x["frontier"]), f.var(x["next"])
    active, touched = f.var(x["active"].base), f.var(x["touched"].base)
    some, work, level = (f.var(f.const(0, I64)) for _ in range(3))
    planes = [f.var(f.const(0, _WORD)) for _ in range(_SLICES)]
    held = f.var(f.const(0, I64))

    def word(base: Value, v: Value) -> Value:
        return f.load(base.at(v * _BYTES), _WORD, 8)

    def put(value: Value, base: Value, v: Value) -> None:
        f.store(value, base.at(v * _BYTES), 8)

    def some_bit(value: Value) -> Value:
        return value.cmp("!=", 0).bits_as(I8).cmp("!=", 0)

    def degree(v: Value) -> Value:
        number: Value = first[v + 1] - first[v]
        return number

    def add_up() -> None:
        for p, plane in enumerate(planes):
            f.store(plane.get(), x["slices"].at(p * _BYTES), 8)
            plane.set(f.const(0, _WORD))
        f.invoke(counts, [x["slices"], x["counts"].base])
        held.set(0)

    def meet(v: Value, new: Value, known: Value, listed: Value, number: Any) -> None:
        """Some searches meet a node for the first time."""
        put(known | new, x["seen"], v)
        Items(f, listed, I32)[number.get()] = v
        number.set(number.get() + 1)
        work.set(work.get() + degree(v))
        if labels:
            lanes = _BYTES // labels
            mark = level.get().to(Type("i", 8 * labels)).splat(lanes)
            with f.if_(level.get().cmp("<=", x["mark"])), f.loop(0, LANES // lanes) as i:
                own = f.load(following.get().at(v * _BYTES).at(i * (lanes // 8)), Type("i", lanes))
                at = x["label"].at((v * (LANES // lanes) + i) * _BYTES)
                f.store_masked(mark, at, own.bits_as(I1.vector(lanes)), labels)
        carry = new
        for plane in planes:
            old = plane.get()
            plane.set(old ^ carry)
            carry = old & carry
        held.set(held.get() + 1)
        with f.if_(held.get().cmp("==", (1 << _SLICES) - 1)):
            add_up()

    with f.loop(0, x["count"]) as i:
        v = x["source"][i]
        here = word(frontier.get(), v)
        with f.if_(some_bit(here) ^ 1):
            Items(f, active.get(), I32)[some.get()] = v
            some.set(some.get() + 1)
            work.set(work.get() + degree(v))
        place = v * 8 + (i >> 6)
        bit = f.const(1, I64) << (i & 63)
        for base in (frontier.get(), x["seen"]):
            at = base.at(place * 8)
            f.store(f.load(at, I64, 8) | bit, at, 8)

    with f.while_() as done:
        f.break_if(some.get().cmp("==", 0), done)
        level.set(level.get() + 1)
        pull = (work.get() * _PULL).cmp(">", x["arcs"])
        work.set(0)
        found = f.var(f.const(0, I64))
        with f.if_else(pull) as push:
            with f.loop(0, x["n"]) as v:
                known = word(x["seen"], v)
                missing = f.load(x["full"], _WORD, 8) & (known ^ -1)
                with f.if_(some_bit(missing)):
                    new = f.var(f.const(0, _WORD))
                    last, at = x["back_first"][v + 1], f.var(x["back_first"][v])
                    with f.while_() as met:
                        f.break_if(at.get().cmp(">=", last), met)
                        begin, end = at.get(), at.get() + _LOOK
                        at.set(end)
                        with f.loop(begin, f.select(end.cmp("<", last), end, last)) as e:
                            new.set(new.get() | word(frontier.get(), x["back_near"][e]))
                        new.set(new.get() & missing)
                        f.break_if(new.get().cmp("!=", missing).bits_as(I8).cmp("==", 0), met)
                    with f.if_(some_bit(new.get())):
                        put(new.get(), following.get(), v)
                        meet(v, new.get(), known, touched.get(), found)
            with f.loop(0, some.get()) as i:
                put(f.const(0, _WORD), frontier.get(), Items(f, active.get(), I32)[i])
            before = active.get()
            active.set(touched.get())
            touched.set(before)
            with push():
                reach = f.var(f.const(0, I64))
                with f.loop(0, some.get()) as i:
                    v = Items(f, active.get(), I32)[i]
                    here = word(frontier.get(), v)
                    put(f.const(0, _WORD), frontier.get(), v)
                    with f.loop(first[v], first[v + 1]) as e:
                        u = near[e]
                        old = word(following.get(), u)
                        with f.if_(some_bit(old) ^ 1):
                            Items(f, touched.get(), I32)[reach.get()] = u
                            reach.set(reach.get() + 1)
                        put(old | here, following.get(), u)
                with f.loop(0, reach.get()) as i:
                    u = Items(f, touched.get(), I32)[i]
                    known = word(x["seen"], u)
                    fresh = word(following.get(), u) & (known ^ -1)
                    put(fresh, following.get(), u)
                    with f.if_(some_bit(fresh)):
                        meet(u, fresh, known, active.get(), found)
        some.set(found.get())
        add_up()
        _account(f, x, level.get())
        swapped = frontier.get()
        frontier.set(following.get())
        following.set(swapped)
    return f


def _account(f: Function, x: dict[str, Any], level: Value) -> None:
    """What the counts of a level add to the results of each search; they are zeros again."""
    t = I64.vector(8)
    far = level.splat(8)
    distance = level.to(F64).splat(8)
    with f.loop(0, LANES, 8) as i:
        at = x["counts"].base.at(i * 4)
        few = f.load(at, I32.vector(8), 4)
        f.store(f.const(0, few.type), at, 4)
        number = few.to(I64)

        def join(base: Value, value: Value, i: Value = i) -> None:
            place = base.at(i * 8)
            f.store(f.load(place, value.type, 8) + value, place, 8)

        join(x["reached"], number)
        join(x["total"], number * far)
        join(x["inverse"], number.to(F64) / distance)
        place = x["far"].at(i * 8)
        f.store(f.select(number.cmp(">", 0), far, f.load(place, t, 8)), place, 8)
        pairs = f.call("llvm.vector.reduce.add.v8i64", I64, [number])
        x["table"][level] = x["table"][level] + pairs
        with f.loop(0, x["radii"]) as r, f.if_(level.cmp("<=", x["radius"][r])):
            join(x["within"].at(r * (LANES * 8)), number)
