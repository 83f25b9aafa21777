"""Sums over the distances from many sources, compiled: sweeps whose labels stay in the cache.

The pass down over an elimination takes vertices in a depth-first order, and a label is read by
descendants of its vertex only. So labels lie on a stack, a row for each depth of the elimination
tree; what is wanted of them is taken up at once, and they are overwritten (as GPHAST does per
block: Delling, Goldberg, Nowatzyk and Werneck, 2013). The lanes of the vectors are sources.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from typing import Any

from .blocks import address, block, load_block
from .compiler import KEPT, Target, compile_functions, host_target
from .ir import F32, F64, I32, I64, PTR, Function, Type, Value

__all__ = ["KINDS", "SEGMENT", "Code", "chunk_width", "depths", "far_of", "vectors"]

#: What can be collected of the labels of a source.
KINDS = ("largest", "count", "sum", "inverse", "bins", "within")

#: Distances that are added up before they join a sum with compensation.
SEGMENT = 64

_CLIMB = "fringe : source first visits : parent head place visited : risen out"
_FALL = (
    "fringe core segment bins radii : source first visits : slot own visited counts table : "
    "label risen back largest part total rest inverse_part inverse inverse_rest "
    "radius within edges scale mass"
)
_BLOCKS = {"climb": _CLIMB, "fall": _FALL, "depths": "n : : parent depth"}


def far_of(dtype: str) -> float | int:
    """What stands for no path."""
    return {"int32": (1 << 30) - 1, "int64": (1 << 62) - 1}.get(dtype, float("inf"))


def _type(dtype: str) -> Type:
    return Type(dtype[0], int(dtype[-2:]))


def chunk_width(itemsize: int) -> int:
    """Sources of one chunk."""
    return vectors() * (host_target().vector_bytes // itemsize)


def vectors() -> int:
    """Vectors of a row: each weight that is loaded serves all of them, in registers."""
    return 8 if host_target().registers >= 32 else 4


def depths(fields: Mapping[str, Any]) -> None:
    """``depth`` of each of `n` positions whose parents have higher numbers; of roots it is 0."""
    values = block(_BLOCKS["depths"], fields)
    _compiled_depths()(address(values))


@functools.cache
def _compiled_depths() -> Any:
    f = Function("depths", [PTR])
    x = load_block(f, _BLOCKS[f.name])
    with f.loop(0, x["n"]) as i:
        v = x["n"] - 1 - i
        up = x["parent"][v]
        x["depth"][v] = 0
        with f.if_(up.cmp("<", x["n"])):
            x["depth"][v] = x["depth"][up] + 1
    return compile_functions([f], host_target()).function("depths", ctypes.c_void_p)


class Code:
    """The functions for one type of labels and one selection of :data:`KINDS`.

    Parameters
    ----------
    dtype : {"int32", "int64", "float32", "float64"}
    kinds : frozenset of str
        Of a histogram "bins" stand for even distances, "even" for those of whole numbers, "edges"
        for others; with "half" each source counts only what has a lower position.
    negative : bool
        Whether there are negative weights.
    mass : {"", "int64", "float64"}
        The type of an attribute of nodes of which sums within a radius are taken; "": they are
        counted.
    """

    def __init__(self, dtype: str, kinds: frozenset[str], negative: bool, mass: str = "") -> None:
        self._functions = _compiled(dtype, kinds, negative, mass)

    def __call__(self, name: str, fields: Mapping[str, Any]) -> None:
        """Call a function by the names of its parameter block.

        ``climb``: labels from the source of each lane, in ``risen``: first rows of the core, which
        hold no path beforehand, then one for each ancestor, whose position goes to ``visited``.
        ``source`` ascends and ends with a number that is no vertex; ``place`` has the rows of the
        core.

        ``fall``: from rows of the core in ``label``, and the ancestors, to all vertices.
        """
        values = block(_BLOCKS[name], fields)
        self._functions[name](address(values))


@functools.lru_cache(maxsize=KEPT)
def _compiled(dtype: str, kinds: frozenset[str], negative: bool, mass: str) -> dict[str, Any]:
    target = host_target()
    functions = [
        _climb_function(dtype, negative, target),
        _fall_function(dtype, kinds, negative, mass, target),
    ]
    library = compile_functions(functions, target)
    return {f.name: library.function(f.name, ctypes.c_void_p) for f in functions}


class _Rows:
    """Rows of labels: some vectors of lanes each, over min and +."""

    def __init__(self, f: Function, dtype: str, negative: bool, target: Target) -> None:
        self.f, self.type, self.far = f, _type(dtype), far_of(dtype)
        self.vectors = vectors()
        self.lanes = target.vector_bytes // self.type.size
        self.width = self.vectors * self.lanes
        self.vector = self.type.vector(self.lanes)
        # A label is never worse than no path, and with no negative weight a sum not better.
        self.absorbs = negative and self.type.kind == "i"

    def at(self, base: Value, row: Value, g: int = 0) -> Value:
        return base.at(row * (self.width * self.type.size)).at(g * self.vector.size)

    def read(self, base: Value, row: Value) -> list[Value]:
        at = self.at(base, row)
        size = self.vector.size
        return [
            self.f.load(at.at(g * size), self.vector, self.type.size) for g in range(self.vectors)
        ]

    def write(self, base: Value, row: Value, values: list[Value]) -> None:
        at = self.at(base, row)
        for g, value in enumerate(values):
            self.f.store(value, at.at(g * self.vector.size), self.type.size)

    def weight(self, base: Value, e: Value) -> Value:
        size = self.type.size
        return self.f.load(base.at(e * size), self.type, size).splat(self.lanes)

    def none(self) -> Value:
        return self.f.const(self.far, self.vector)

    def relax(self, tail: Value, w: Value, old: Value) -> Value:
        through = tail + w
        if self.absorbs:
            far = self.none()
            lost = tail.cmp("==", far) | w.cmp("==", far)
            through = self.f.select(lost, far, through)
        return self.f.select(through.cmp("<", old), through, old)

    def own(self, base: Value, lane: Value, row: Value) -> None:
        """The label of a source."""
        place = self.at(base, row).at(lane * self.type.size)
        self.f.store(self.f.const(0, self.type), place, self.type.size)


def _climb_function(dtype: str, negative: bool, target: Target) -> Function:
    f = Function("climb", [PTR])
    x, rows = load_block(f, _BLOCKS[f.name]), _Rows(f, dtype, negative, target)
    source, visited, first, head = x["source"], x["visited"], x["first"], x["head"]
    place, core = x["place"], x["visits"][1]
    count, lane = f.var(f.const(0, I64)), f.var(f.const(0, I64))
    at = f.var(source[0])
    with f.while_() as risen:
        v = at.get()
        f.break_if(v.cmp(">=", x["fringe"]), risen)
        row = core + count.get()
        rows.write(x["risen"], row, [rows.none()] * rows.vectors)
        visited[count.get()] = v
        place[v] = row
        count.set(count.get() + 1)
        with f.while_() as passed:
            f.break_if(source[lane.get()].cmp("!=", v), passed)
            rows.own(x["risen"], lane.get(), row)
            lane.set(lane.get() + 1)
        # Subtrees are ranges: a parent beyond the next source is an ancestor of that one too.
        at.set(f.low(x["parent"][v], source[lane.get()]))
    x["visits"][0] = count.get()
    with f.loop(0, count.get()) as i:
        v = visited[i]
        tails = rows.read(x["risen"], core + i)
        with f.loop(first[v], first[v + 1]) as e:
            w, u = rows.weight(x["out"], e), place[head[e]]
            olds = rows.read(x["risen"], u)
            pairs = zip(tails, olds, strict=True)
            rows.write(x["risen"], u, [rows.relax(tail, w, old) for tail, old in pairs])
    return f


class _Sums:
    """What is taken up of rows of labels, into accumulators of a number for each lane."""

    def __init__(
        self, f: Function, rows: _Rows, x: dict[str, Any], kinds: frozenset[str], mass: str
    ) -> None:
        self.f, self.rows, self.x, self.kinds, self.mass = f, rows, x, kinds, mass
        self.whole = rows.type.kind == "i"
        self.halves = 64 // rows.type.bits  # vectors of 64-bit numbers for one of labels
        self.lanes = rows.lanes // self.halves

    def wide(self, value: Value, g: int) -> list[tuple[Value, int]]:
        """The parts of a vector, and the first lane of each."""
        f, lanes = self.f, self.lanes
        if self.halves == 1:
            return [(value, g * lanes)]
        cut = [f.shuffle(value, value, range(h * lanes, (h + 1) * lanes)) for h in range(2)]
        return [(part, g * self.rows.lanes + h * lanes) for h, part in enumerate(cut)]

    def join(self, base: Value, lane: int, t: Type, value: Value) -> None:
        at = base.at(lane * t.size)
        old = self.f.load(at, value.type, t.size)
        self.f.store(old + value, at, t.size)

    def take(self, v: Value, values: list[Value]) -> None:
        """The labels of a vertex."""
        f, x, rows, kinds = self.f, self.x, self.rows, self.kinds
        t, size = rows.type, rows.type.size
        far = rows.none()
        none = f.const(0, rows.vector)
        for g, value in enumerate(values):
            there = value.cmp("!=", far)
            lane = g * rows.lanes
            finite = f.select(there, value, none)
            if "largest" in kinds:
                at = x["largest"].at(lane * size)
                old = f.load(at, rows.vector, size)
                f.store(f.select(finite.cmp(">", old), finite, old), at, size)
            if "count" in kinds:
                ones = f.select(there, *(f.const(c, I32.vector(rows.lanes)) for c in (1, 0)))
                self.join(x["counts"].base, lane, I32, ones)
            if "sum" in kinds:
                if self.whole:
                    self.join(x["part"], lane, t, finite)
                else:
                    for part, lo in self.wide(finite, g):
                        self.join(x["part"], lo, F64, part.to(F64))
            if "inverse" in kinds:
                self._invert(g, value)
            if "within" in kinds:
                self._within(v, g, value)
            for kind in sorted({"bins", "edges", "even"} & kinds):
                if "half" not in kinds:
                    self._bin(value, there, kind)
                    continue
                with f.if_(v.cmp("<", x["source"][lane + rows.lanes - 1])):
                    own = f.load(x["source"].base.at(lane * 8), I64.vector(rows.lanes), 8)
                    self._bin(value, there & own.cmp(">", v.splat(rows.lanes)), kind)

    def _invert(self, g: int, value: Value) -> None:
        """Add up the inverse distances to other places."""
        f, rows = self.f, self.rows
        rough = None
        if rows.type == I32:  # Newton's method from there is faster than a division in 64 bits
            rough = f.const(1.0, F32.vector(rows.lanes)) / value.to(F32)
        for h, (part, lane) in enumerate(self.wide(value, g)):
            d = part.to(F64)
            zero, one = (f.const(c, d.type) for c in (0.0, 1.0))
            counts = d.cmp("!=", zero)
            if self.whole:
                counts = counts & part.cmp("!=", rows.far)
            if rough is None:
                inverse = one / d
            else:
                inverse = self.wide(rough, g)[h][0].to(F64)
                for _ in range(2):
                    inverse = f.fma(inverse, f.fma(-d, inverse, one), inverse)
            self.join(self.x["inverse_part"], lane, F64, f.select(counts, inverse, zero))

    def _within(self, v: Value, g: int, value: Value) -> None:
        f, x, rows = self.f, self.x, self.rows
        t = {"": I64, "int64": I64, "float64": F64}[self.mass]
        size = rows.type.size
        one = f.load(x["mass"].at(v * 8), t, 8) if self.mass else f.const(1, t)
        with f.loop(0, x["radii"]) as r:
            near = f.load(x["radius"].at(r * size), rows.type, size).splat(rows.lanes)
            inside = value.cmp("<=", near)
            base = x["within"].at(r * (rows.width * 8))
            for h in range(self.halves):
                part = inside
                if self.halves == 2:
                    lanes = range(h * self.lanes, (h + 1) * self.lanes)
                    part = f.shuffle(inside, inside, lanes)
                amount = one.splat(self.lanes)
                none = f.const(0, t.vector(self.lanes))
                lane = g * rows.lanes + h * self.lanes
                self.join(base, lane, t, f.select(part, amount, none))

    def _bin(self, value: Value, there: Value, kind: str) -> None:
        """Count each label in row i + 1 of a table, i being its bin; row 0 is for those outside."""
        f, x, lanes = self.f, self.x, self.rows.lanes
        index = I32.vector(lanes)
        if kind == "edges":
            row = self._search(value)
        else:
            row = self._quotient(value, there, exact=kind == "even")
        row = f.select(there, row, f.const(0, index))
        place = row * lanes + f.iota(index)
        old = self._gather(x["table"].base, place, I32)
        self._scatter(x["table"].base, place, old + 1)

    def _search(self, value: Value) -> Value:
        """The number of edges, ascending, that are not beyond; ``bins`` - 1 of them, 2^k - 1."""
        f, x, lanes = self.f, self.x, self.rows.lanes
        row, step = f.var(f.const(0, I32.vector(lanes))), f.var(x["bins"])
        with f.while_() as found:
            step.set(step.get() >> 1)
            f.break_if(step.get().cmp("==", 0), found)
            by = step.get().to(I32).splat(lanes)
            edge = self._gather(x["edges"], row.get() + by - 1, self.rows.type)
            row.set(f.select(value.cmp(">=", edge), row.get() + by, row.get()))
        return row.get()

    def _quotient(self, value: Value, there: Value, *, exact: bool) -> Value:
        """The same of edges at even distances: by division and, unless that is exact, the edges.

        ``scale`` has what is added to a label, by what the sum is multiplied, and the last row.
        """
        f, x, rows = self.f, self.x, self.rows
        t, lanes = rows.type, rows.lanes
        real = t if t.kind == "f" else Type("f", t.bits)
        shift, scale, last = (
            f.load(x["scale"].at(i * real.size), real, real.size).splat(lanes) for i in range(3)
        )
        zero = f.const(0, real.vector(lanes))
        if exact:  # the last bin has its upper edge, which is one less than in the list
            top = f.load(x["edges"].at((x["bins"] + 1) * t.size), t, t.size).splat(lanes) - 1
            value = f.select(value.cmp("==", top), value - 1, value)
        at = (f.select(there, value, f.const(0, rows.vector)).to(real) + shift) * scale
        at = f.select(at.cmp(">", zero), at, zero)
        row = f.select(at.cmp("<", last), at, last).to(I32)
        if exact:
            return row
        # Row i is from edge i - 1 to edge i, with one more before the first; it may be off by one.
        row = f.select(value.cmp("<", self._gather(x["edges"], row, t)), row - 1, row)
        return f.select(value.cmp(">=", self._gather(x["edges"], row + 1, t)), row + 1, row)

    def _pointers(self, base: Value, index: Value, size: int) -> Value:
        f, lanes = self.f, index.type.lanes
        wide = index.to(I64)
        return f.emit(
            f"getelementptr i{8 * size}, ptr {base.name}, {wide.type} {wide.name}",
            PTR.vector(lanes),
        )

    def _gather(self, base: Value, index: Value, t: Type) -> Value:
        f, lanes = self.f, index.type.lanes
        out = t.vector(lanes)
        where = self._pointers(base, index, t.size)
        mask = f.const(1, Type("i", 1, lanes))
        name = f"llvm.masked.gather.{out.suffix()}.v{lanes}p0"
        return f.call(name, out, [where, f.const(t.size, I32), mask, f.const(0, out)])

    def _scatter(self, base: Value, index: Value, value: Value) -> None:
        f, lanes = self.f, index.type.lanes
        where = self._pointers(base, index, value.type.scalar.size)
        mask = f.const(1, Type("i", 1, lanes))
        name = f"llvm.masked.scatter.{value.type.suffix()}.v{lanes}p0"
        f.call(name, None, [value, where, f.const(value.type.scalar.size, I32), mask])

    def flush(self) -> None:
        """Partial sums join the totals: whole numbers as 64 bits, others with compensation."""
        f, x, rows = self.f, self.x, self.rows
        if "sum" in self.kinds and self.whole:
            with f.loop(0, rows.width, self.lanes) as i:
                at = x["part"].at(i * rows.type.size)
                part = f.load(at, rows.type.vector(self.lanes), rows.type.size)
                f.store(f.const(0, part.type), at, rows.type.size)
                total = x["total"].at(i * 8)
                old = f.load(total, I64.vector(self.lanes), 8)
                f.store(old + part.to(I64), total, 8)
        names = []
        if "sum" in self.kinds and not self.whole:
            names.append(("part", "total", "rest"))
        if "inverse" in self.kinds:
            names.append(("inverse_part", "inverse", "inverse_rest"))
        for name in names:
            with f.loop(0, rows.width, self.lanes) as i:
                places = [x[y].at(i * 8) for y in name]
                part, total, rest = (f.load(y, F64.vector(self.lanes), 8) for y in places)
                new = total + part
                back = new - total
                lost = (total - (new - back)) + (part - back)  # Knuth's exact sum of two
                zero = f.const(0.0, part.type)
                for value, place in zip((zero, new, rest + lost), places, strict=True):
                    f.store(value, place, 8)


def _fall_function(
    dtype: str, kinds: frozenset[str], negative: bool, mass: str, target: Target
) -> Function:
    f = Function("fall", [PTR])
    x, rows = load_block(f, _BLOCKS[f.name]), _Rows(f, dtype, negative, target)
    sums = _Sums(f, rows, x, kinds, mass)
    visited, first, slot, own = x["visited"], x["first"], x["slot"], x["own"]
    core, fringe = x["core"], x["fringe"]
    left = f.var(x["visits"][0])
    # first the core, whose labels are there; then the fringe, downward
    with f.loop(0, core, x["segment"]) as begin:
        with f.loop(begin, f.low(begin + x["segment"], core)) as i:
            sums.take(fringe + i, rows.read(x["label"], i))
        sums.flush()
    with f.loop(0, fringe, x["segment"]) as begin:
        with f.loop(begin, f.low(begin + x["segment"], fringe)) as i:
            v = fringe - 1 - i
            best = [f.var(rows.none()) for _ in range(rows.vectors)]
            met = left.get().cmp(">", 0)
            with f.if_(met), f.if_(visited[left.get() - 1].cmp("==", v)):
                for var, value in zip(
                    best, rows.read(x["risen"], core + left.get() - 1), strict=True
                ):
                    var.set(value)
            with f.loop(first[v], first[v + 1]) as e:
                w = rows.weight(x["back"], e)
                tails = rows.read(x["label"], slot[e])
                for var, tail in zip(best, tails, strict=True):
                    var.set(rows.relax(tail, w, var.get()))
            row = own[v]
            rows.write(x["label"], row, [var.get() for var in best])
            with f.if_(left.get().cmp(">", 0)), f.if_(visited[left.get() - 1].cmp("==", v)):
                left.set(left.get() - 1)
                # rounding in a cycle of weight 0 must not show
                with f.loop(0, rows.width) as lane, f.if_(x["source"][lane].cmp("==", v)):
                    rows.own(x["label"], lane, row)
                for var, value in zip(best, rows.read(x["label"], row), strict=True):
                    var.set(value)
            sums.take(v, [var.get() for var in best])
        sums.flush()
    return f
