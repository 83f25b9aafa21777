"""Shortest paths along the edges of an elimination order: contraction, and a sweep for each source.

Vertices are numbered by the order and every edge joins a lower vertex to a higher one, so that
labels settle in one pass up and one pass down (PHAST: Delling, Goldberg, Nowatzyk and Werneck,
2013). The lanes of the vectors are different sources.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .compiler import Target, compile_functions, host_target
from .ir import F32, F64, I32, I64, PTR, Function, Type, Value
from .product_code import _transposed

__all__ = ["UNREACHED", "block", "chunk_width", "contract", "sweep", "unreached"]

#: The predecessor of what has none.
UNREACHED = -9999
_VECTORS = 2  # of sources: they hide the latency of ⊕, but more labels leave the caches
_TYPES = {"float32": F32, "float64": F64, "int32": I32, "int64": I64}
_FIELDS = (
    "n", "first", "head", "out", "back", "out_hops", "back_hops", "out_pred", "back_pred", "status",
    "up_first", "up_head", "up", "up_hops", "up_pred", "down_first", "down_head", "down",
    "down_hops", "down_pred", "parent", "sources", "where", "label", "hops", "pred", "d", "p",
    "d_offsets", "p_offsets", "doubt",
)  # fmt: skip


def unreached(dtype: np.dtype[Any]) -> float | int:
    """What stands for no path while labels are added up.

    Of integers it is far below overflow; all above half of it are no path, whatever was added.
    """
    return float("inf") if dtype.kind == "f" else 1 << (8 * dtype.itemsize - 3)


def contract(dtype: np.dtype[Any], trees: bool, hops: bool, fields: Mapping[str, Any]) -> None:
    """For each vertex from the lowest: join its higher neighbours through it."""
    values = block(_FIELDS, fields)
    _code(dtype.name, trees, hops)["contract"](values.ctypes.data)


def sweep(dtype: np.dtype[Any], trees: bool, hops: bool, fields: Mapping[str, Any]) -> None:
    """Distances (and predecessors) from one chunk of sources."""
    values = block(_FIELDS, fields)
    _code(dtype.name, trees, hops)["sweep"](values.ctypes.data)


def chunk_width(dtype: np.dtype[Any]) -> int:
    """Sources of one sweep."""
    return _VECTORS * (host_target().vector_bytes // dtype.itemsize)


def block(names: Sequence[str], fields: Mapping[str, Any]) -> NDArray[np.int64]:
    """A parameter block: numbers, and the addresses of arrays."""
    values = (fields.get(name, 0) for name in names)
    return np.array([x.ctypes.data if isinstance(x, np.ndarray) else x for x in values], np.int64)


@functools.cache
def _code(dtype: str, trees: bool, hops: bool) -> dict[str, Any]:
    target, t = host_target(), _TYPES[dtype]
    functions = [_contract_function(t, trees, hops), _sweep_function(t, target, trees, hops)]
    library = compile_functions(functions, target)
    return {f.name: library.function(f.name, ctypes.c_void_p) for f in functions}


def _fields(f: Function) -> dict[str, Value]:
    """The parameter block: a count, and addresses."""
    return {
        name: f.load(f.args[0].at(8 * i), PTR if i else I64, 8) for i, name in enumerate(_FIELDS)
    }


def _contract_function(t: Type, trees: bool, hops: bool) -> Function:
    """W[a, b] ← min(W[a, b], W[a, v] + W[v, b]) for the higher neighbours a, b of each v."""
    f = Function("contract", [PTR])
    at = _fields(f)
    n, first, head, status = (at[x] for x in ("n", "first", "head", "status"))
    kinds = [("", t), *([("_hops", I32)] if hops else []), *([("_pred", I32)] if trees else [])]
    out, back = ([(at[way + name], s) for name, s in kinds] for way in ("out", "back"))

    def read(edges: list[tuple[Value, Type]], e: Value) -> list[Value]:
        return [f.load(base.at(e * s.size), s, s.size) for base, s in edges]

    def join(
        edges: list[tuple[Value, Type]], e: Value, before: list[Value], after: list[Value]
    ) -> None:
        through = before[0] + after[0]
        new, old = [through, *after[1:]], read(edges, e)
        if hops:  # of equally short ways that of fewer edges: then rings of weight 0 stay out
            new[1] = before[1] + after[1]
        with f.if_(_shorter(f, new, old, hops)):
            for (base, s), x in zip(edges, new, strict=True):
                f.store(x, base.at(e * s.size), s.size)

    with f.loop(0, n) as v:
        end = f.load(first.at(v * 8 + 8), I64, 8)
        with f.loop(f.load(first.at(v * 8), I64, 8), end) as e:
            to_a, from_a = read(out, e), read(back, e)
            with f.if_((to_a[0] + from_a[0]).cmp("<", 0)):
                f.store(f.const(1, I64), status, 8)
            a = f.load(head.at(e * 4), I32, 4).to(I64)
            place = f.var(f.load(first.at(a * 8), I64, 8))
            with f.loop(e + 1, end) as g:
                b = f.load(head.at(g * 4), I32, 4)
                with f.while_() as found:  # b is one of a's neighbours, and both lists ascend
                    f.break_if(f.load(head.at(place.get() * 4), I32, 4).cmp("==", b), found)
                    place.set(place.get() + 1)
                join(out, place.get(), from_a, read(out, g))
                join(back, place.get(), read(back, g), to_a)
    return f


def _shorter(f: Function, new: list[Value], old: list[Value], hops: bool) -> Value:
    wins = new[0].cmp("<", old[0])
    if hops:
        wins = wins | (new[0].cmp("==", old[0]) & new[1].cmp("<", old[1]))
    return wins


def _sweep_function(t: Type, target: Target, trees: bool, hops: bool) -> Function:
    """Labels of all vertices for a chunk of sources, written as rows of D (and P).

    ``sources`` ascend and end with n. The upward pass visits only ancestors of the sources in the
    elimination tree. ``where`` is the vertex of each column; ``d_offsets`` begin the rows.
    """
    f = Function("sweep", [PTR])
    at = _fields(f)
    n = at["n"]
    lanes, vectors = target.vector_bytes // t.size, _VECTORS
    width = lanes * vectors
    infinite = unreached(np.dtype(f"{t.kind}{t.size}"))
    kinds = [("label", "", t, infinite), *([("hops", "_hops", I32, 0)] if hops else []),
             *([("pred", "_pred", I32, UNREACHED)] if trees else [])]  # fmt: skip
    labels = [(at[name], s.vector(lanes)) for name, _, s, _ in kinds]

    def place(base: Value, v: Value, g: int, s: Type) -> Value:
        return base.at((v * width + g * lanes) * s.scalar.size)

    def read(v: Value, g: int) -> list[Value]:
        return [f.load(place(base, v, g, s), s, s.size) for base, s in labels]

    def write(v: Value, g: int, values: list[Value]) -> None:
        for (base, s), x in zip(labels, values, strict=True):
            f.store(x, place(base, v, g, s), s.size)

    def edge(way: str, e: Value) -> list[Value]:
        return [
            f.load(at[way + name].at(e * s.size), s, s.size).splat(lanes) for _, name, s, _ in kinds
        ]

    def relax(tail: list[Value], w: list[Value], old: list[Value]) -> list[Value]:
        new = [tail[0] + w[0], *w[1:]]
        if hops:
            new[1] = tail[1] + w[1]
        wins = _shorter(f, new, old, hops)
        return [f.select(wins, x, y) for x, y in zip(new, old, strict=True)]

    sources = at["sources"]
    with f.loop(0, n) as v:
        for g in range(vectors):
            write(v, g, [f.const(start, s.vector(lanes)) for *_, s, start in kinds])
    with f.loop(0, width) as i:
        v = f.load(sources.at(i * 8), I64, 8)
        f.store(f.const(0, t), at["label"].at((v * width + i) * t.size), t.size)

    parent, up_first, up_head = at["parent"], at["up_first"], at["up_head"]
    at_vertex, at_source = f.var(f.load(sources, I64, 8)), f.var(f.const(0, I64))
    with f.while_() as risen:
        v = at_vertex.get()
        f.break_if(v.cmp(">=", n), risen)
        tails = [read(v, g) for g in range(vectors)]
        lo, hi = (f.load(up_first.at(v * 8 + x), I64, 8) for x in (0, 8))
        with f.loop(lo, hi) as e:
            w, x = edge("up", e), f.load(up_head.at(e * 4), I32, 4).to(I64)
            for g in range(vectors):
                write(x, g, relax(tails[g], w, read(x, g)))
        with f.while_() as passed:
            following = f.load(sources.at(at_source.get() * 8), I64, 8)
            f.break_if(following.cmp(">", v), passed)
            at_source.set(at_source.get() + 1)
        # Subtrees are ranges: a parent beyond the next source is an ancestor of that one too.
        following = f.load(sources.at(at_source.get() * 8), I64, 8)
        at_vertex.set(f.low(f.load(parent.at(v * 8), I64, 8), following))

    down_first, down_head = at["down_first"], at["down_head"]
    with f.loop(0, n) as i:
        v = n - 1 - i
        best = [[f.var(x) for x in read(v, g)] for g in range(vectors)]
        lo, hi = (f.load(down_first.at(v * 8 + x), I64, 8) for x in (0, 8))
        with f.loop(lo, hi) as e:
            w, x = edge("down", e), f.load(down_head.at(e * 4), I32, 4).to(I64)
            for g in range(vectors):
                new = relax(read(x, g), w, [y.get() for y in best[g]])
                for y, value in zip(best[g], new, strict=True):
                    y.set(value)
        for g in range(vectors):
            write(v, g, [y.get() for y in best[g]])

    if trees and t.kind == "i":  # an edge that was added to the sentinel leads nowhere
        with f.loop(0, n) as v:
            for g in range(vectors):
                values = read(v, g)
                none = f.const(UNREACHED, values[-1].type)
                reached = values[0].cmp("<=", infinite // 2)
                write(v, g, [*values[:-1], f.select(reached, values[-1], none)])
    with f.loop(0, width) as i:  # rounding in a cycle of weight 0 must not show on the diagonal
        own = f.load(sources.at(i * 8), I64, 8) * width + i
        f.store(f.const(0, t), at["label"].at(own * t.size), t.size)
        if trees:
            f.store(f.const(UNREACHED, I32), at["pred"].at(own * 4), 4)
        if hops:
            f.store(f.const(0, I32), at["hops"].at(own * 4), 4)
    if hops:
        _doubt(f, at, t, width)
    _write_rows(f, at, "label", "d", t, lanes, vectors)
    if trees:
        _write_rows(f, at, "pred", "p", I32, lanes, vectors)
    return f


def _doubt(f: Function, at: dict[str, Value], t: Type, width: int) -> None:
    """Mark the lanes in which a predecessor is not nearer, so that a ring might be there."""
    n, where = at["n"], at["where"]
    with f.loop(0, n) as v, f.loop(0, width) as lane:
        own = v * width + lane
        k = f.load(at["pred"].at(own * 4), I32, 4)
        with f.if_(k.cmp(">=", 0)):
            before = f.load(where.at(k.to(I64) * 8), I64, 8) * width + lane
            nearer, mine = (
                [f.load(at["label"].at(x * t.size), t, t.size), f.load(at["hops"].at(x * 4), I32)]
                for x in (before, own)
            )
            with f.if_(_shorter(f, nearer, mine, True) ^ 1):
                f.store(f.const(1, I64), at["doubt"].at(lane * 8), 8)


def _write_rows(
    f: Function, at: dict[str, Value], labels: str, out: str, t: Type, lanes: int, vectors: int
) -> None:
    """Row of lane i, column j ← label of vertex where[j], turned a block of vectors at a time."""
    n, where, base, target = at["n"], at["where"], at[labels], at[out]
    offsets, width = at[f"{out}_offsets"], lanes * vectors
    whole = n // lanes * lanes

    def clean(x: Value) -> Value:
        if labels != "label" or t.kind == "f":
            return x
        largest = f.const((1 << (t.bits - 1)) - 1, x.type)  # the sentinel, whatever was added to it
        return f.select(x.cmp(">", unreached(np.dtype(f"i{t.size}")) // 2), largest, x)

    def column(j: Value) -> Value:
        return base.at(f.load(where.at(j * 8), I64, 8) * (width * t.size))

    vector = t.vector(lanes)
    for g in range(vectors):  # one after the other: few rows are written at a time
        with f.loop(0, whole, lanes) as j:
            columns = [column(j + i).at(g * vector.size) for i in range(lanes)]
            block = [f.load(x, vector, vector.size) for x in columns]
            for i, x in enumerate(_transposed(f, block)):
                row = f.load(offsets.at(8 * (g * lanes + i)), I64, 8)
                f.store(clean(x), target.at(row + j * t.size), t.size)
    with f.loop(whole, n) as j, f.loop(0, width) as lane:
        x = f.load(column(j).at(lane * t.size), t, t.size)
        f.store(clean(x), target.at(f.load(offsets.at(lane * 8), I64, 8) + j * t.size), t.size)
