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
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..graph_kernels import Arcs, Index, assert_arcs
from .blocks import Items, address, block, load_block
from .compiler import compile_functions, host_target
from .ir import F64, I1, I8, I32, I64, PTR, Function, Type, Value

__all__ = ["LANES", "HopSearches", "levels"]

Array = NDArray[Any]

LANES = 512  #: searches at once
_BYTE = 254  # the largest distance that a byte holds beside 255 for no path
_TURNED = 256  # rows of labels that are turned in the cache
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


class HopSearches:
    """Searches over lists of arcs: see :class:`semiring_mm.graph_kernels.HopSearches`."""

    LANES = LANES

    def __init__(self, n: int, out: Arcs, back: Arcs) -> None:
        assert_arcs(n, out, back)
        self.n, self.out, self.back = n, out, back

    @staticmethod
    def bytes(n: int, arcs: int, count: int, *, labels: bool) -> int:
        """What the searches of all threads take."""
        together = min(pool.get_num_threads(), -(-count // LANES))
        return together * n * (3 * LANES // 8 + 16 + (LANES if labels else 0))

    def statistics(self, sources: Index, radii: Index) -> dict[str, Array]:
        """Numbers of nodes at each distance from some sources, added up."""
        count = len(sources)
        found: dict[str, Array] = {
            name: np.zeros(count, np.int64) for name in ("reached", "total", "far")
        }
        found["inverse"] = np.zeros(count)
        found["within"] = np.zeros((len(radii), count), np.int64)
        tables: list[Array] = []

        def some(begin: int) -> None:
            part = slice(begin, min(begin + LANES, count))
            mine = self._search(sources[part], radii)
            tables.append(mine.pop("table"))
            for name, values in mine.items():
                found[name][..., part] = values[..., : part.stop - begin]

        self._each(some, count)
        found["table"] = sum(tables, np.zeros(self.n + 2, np.int64))
        return found

    def rows(
        self, sources: Index, dtype: Any, unreached: float, out: Array | None = None,
        done: Callable[[int], None] | None = None,
    ) -> Array:  # fmt: skip
        """Distances: as bytes first, which nearly all graphs get by with."""
        d = np.empty((len(sources), self.n), dtype) if out is None else out
        values = np.arange(_BYTE + 2).astype(d.dtype)
        values[-1] = unreached

        def some(begin: int) -> None:
            part = sources[begin : begin + LANES]
            labels = np.full((self.n, LANES), 255, np.uint8)
            if self._search(part, labels=labels)["far"].max() > _BYTE:
                labels = np.full(labels.shape, -1, np.int32)
                self._search(part, labels=labels)
            labels[part, np.arange(len(part))] = 0
            rows = d[begin : begin + LANES]
            for i in range(0, self.n, _TURNED):
                piece = labels[i : i + _TURNED, : len(part)].T
                if labels.itemsize == 1:
                    rows[:, i : i + _TURNED] = values[piece]
                else:
                    rows[:, i : i + _TURNED] = np.where(piece < 0, values[-1], piece)

        self._each(some, len(sources), done)
        return d

    def _each(
        self, work: Callable[[int], None], count: int, done: Callable[[int], None] | None = None
    ) -> None:
        """Call a function with the first source of each pass, on all threads."""
        pool.run(
            [functools.partial(work, i) for i in range(0, count, LANES)],
            None if done is None else (lambda k: done(min((k + 1) * LANES, count))),
        )

    def _search(
        self, sources: Index, radii: Index | None = None, *, labels: Array | None = None
    ) -> dict[str, Array]:
        """Results of :func:`levels` for at most 512 sources.

        `labels`, n rows of 512 bytes or int32, receives distances, as bytes those of up to 254.
        """
        n, count = self.n, len(sources)
        mark = _BYTE if labels is None or labels.itemsize == 1 else n
        radii = np.empty(0, np.int64) if radii is None else radii
        bits = np.zeros(LANES, np.uint8)
        bits[:count] = 1
        words = np.zeros((3, n + 1, LANES // 64), np.uint64)
        found: dict[str, Array] = {
            "reached": np.zeros(LANES, np.int64), "total": np.zeros(LANES, np.int64),
            "far": np.zeros(LANES, np.int64), "inverse": np.zeros(LANES),
            "within": np.zeros((len(radii), LANES), np.int64), "table": np.zeros(n + 2, np.int64),
        }  # fmt: skip
        fields = found | {
            "n": n, "arcs": len(self.out[1]), "count": count, "radii": len(radii), "mark": mark,
            "source": np.ascontiguousarray(sources, np.int64), "radius": radii,
            "first": self.out[0], "near": self.out[1], "back_first": self.back[0],
            "back_near": self.back[1], "active": np.empty(n + 1, np.int32),
            "touched": np.empty(n + 1, np.int32),
            "counts": np.zeros(LANES, np.int32), "seen": words[0], "frontier": words[1],
            "next": words[2], "slices": np.zeros((8, LANES // 64), np.uint64),
            "full": np.packbits(bits, bitorder="little"), "label": labels,
        }  # fmt: skip
        levels(fields, labels=0 if labels is None else labels.itemsize)
        return found


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
