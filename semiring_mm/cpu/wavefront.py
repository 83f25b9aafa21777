"""Alignments of two sequences by dynamic programming, an antidiagonal after the other, compiled.

A cell (i, j) needs (i - 1, j), (i, j - 1) and (i - 1, j - 1): on two antidiagonals before its own.
So the cells of one do not wait for each other, and vectors hold neighbours of it.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine import AlignmentRule, Ragged
from .blocks import address, block, load_block, load_item
from .compiler import KEPT, compile_functions, host_target
from .edits import each_pair, edit_distances
from .ir import I32, I64, PTR, Function, Type, Value

__all__ = ["align"]

Array = NDArray[Any]

#: Of the pairs `first` to `last` - 1 the antidiagonals `begin` to `end` - 1, where `begin` is a
#: multiple of _TURNS. `room` has seven lines of `width`, or with `keep` two and one for each
#: antidiagonal, which stay. Where lengths differ by more than the band the result has no meaning.
_FIELDS = (
    "first last begin end width band features letters keep x_line y_line"
    " : rows columns x_starts y_starts : x_codes y_codes : x y table room out gaps"
)
_TURNS = 6  # antidiagonals after which three lines, and two of gaps, are in their places again


def align(
    rule: AlignmentRule, x: Ragged, y: Ragged, band: int | None, gaps: Sequence[float],
    table: Array | None, *, keep: bool, tick: Callable[[float], None] | None = None,
) -> tuple[Array, Array | None]:  # fmt: skip
    """Costs of pairs of sequences, and a path; see :meth:`semiring_mm.engine.Engine.align`."""
    if rule == AlignmentRule("f4", "equal") and band is None and list(gaps) == [0, 1, 0, 1]:
        distances = edit_distances(x, y, tick)
        if distances is not None:
            return distances, None
    dtype, pairs = np.dtype(rule.dtype), len(x.starts)
    rows, columns = x.lengths, y.lengths
    more = host_target().vector_bytes // dtype.itemsize + 2  # is read behind sequences and lines
    longest = int(max(rows.max(), columns.max()))
    width = longest + 2 * more
    out = np.empty(pairs, dtype)
    first, second = _lines(x.entries, more), _lines(y.entries[::-1], more)
    lines = longest * 2 + 4 if keep else 7
    kept = np.full((lines, width), np.inf, dtype) if keep else None
    fields = {
        "width": width, "band": 2 * width if band is None else min(band, 2 * width),
        "features": len(first), "letters": 0 if table is None else len(table), "keep": keep,
        "x_line": first.strides[0], "y_line": second.strides[0], "rows": rows, "columns": columns,
        "x_starts": x.starts + more, "y_starts": more + len(y.entries) - y.starts,
        "x_codes": first, "y_codes": second, "x": first, "y": second, "out": out,
        "gaps": np.array(gaps, dtype), "table": table,
    }  # fmt: skip
    function = _compiled(rule)

    def run(**own: Any) -> None:
        values = block(_FIELDS, own)
        function(address(values))

    spans = rows + columns + 1
    terms = (np.minimum(rows, columns) + more) * spans * max(1, len(first))

    def memory() -> dict[str, Array]:
        return {"room": np.full((lines, width), np.inf, dtype) if kept is None else kept}

    each_pair(run, fields, terms, spans, _TURNS, memory, tick)
    if band is not None and not rule.local:
        out[abs(rows - columns) > band] = np.inf
    return out, None if kept is None else _path(kept[2:], int(rows[0]), int(columns[0]))


def _lines(entries: Array, more: int) -> Array:
    """Sequences along the last axis, a line for each feature, with zeros at both ends."""
    flat = (entries if entries.ndim == 2 else entries[:, np.newaxis]).T
    lines = np.zeros((len(flat), flat.shape[1] + 2 * more), entries.dtype)
    lines[:, more : more + flat.shape[1]] = flat
    return lines


def _path(kept: Array, n: int, m: int) -> Array:
    """From the last cell back: along the least of the three before; of equals along both.

    A line of `kept` is an antidiagonal, by the first index.
    """
    i, j, path = n, m, []
    while i and j:
        path.append((i - 1, j - 1))
        both, up, left = kept[i + j - 2, i - 1], kept[i + j - 1, i - 1], kept[i + j - 1, i]
        if both <= up and both <= left:
            i, j = i - 1, j - 1
        elif up <= left:
            i -= 1
        else:
            j -= 1
    return np.array(path[::-1], np.int64).reshape(-1, 2)


@functools.lru_cache(maxsize=KEPT)
def _compiled(rule: AlignmentRule) -> Any:
    f = _function(rule)
    return compile_functions([f], host_target()).function(f.name, ctypes.c_void_p)


def _function(rule: AlignmentRule) -> Function:
    f = Function("align", [PTR], opaque=False)
    z = load_block(f, _FIELDS)
    t = Type("f", 8 * np.dtype(rule.dtype).itemsize)
    lanes = host_target().vector_bytes // t.size
    vec, codes = t.vector(lanes), I32.vector(lanes)
    far = f.const(math.inf, t)
    opening, extending, equal, other = (f.load(z["gaps"].at(k * t.size), t) for k in range(4))
    width: Value = z["width"]

    def low(x: Value, y: Value) -> Value:
        """The smaller; a NaN is passed on."""
        return f.select(x.cmp("<", y) | x.cmp("uno", x), x, y)

    def own(line: Value, i: Value) -> Value:
        return f.load(line.at(i * t.size), vec, t.size)

    def cost(x_start: Value, i: Value, at: Value) -> Value:
        """Of entries i - 1 of a sequence of x, and those at a place among all of y, reversed."""
        if rule.cost in ("absolute", "squared"):
            total = f.var(f.const(0.0, vec))
            with f.loop(0, z["features"]) as k:
                x = own(z["x"].at(k * z["x_line"]), x_start + i - 1)
                gap = x - own(z["y"].at(k * z["y_line"]), at)
                gap = gap * gap if rule.cost == "squared" else f.intrinsic("fabs", gap)
                total.set(total.get() + gap)
            return total.get()
        xs = z["x_codes"].base.at((x_start + i - 1) * 4)
        ys = z["y_codes"].base.at(at * 4)
        if rule.cost == "equal":
            same = f.load(xs, codes, 4).cmp("==", f.load(ys, codes, 4))
            return f.select(same, equal.splat(lanes), other.splat(lanes))
        found = []
        for lane in range(lanes):
            row, column = (f.load(p.at(4 * lane), I32, 4).to(I64) for p in (xs, ys))
            found.append(load_item(f, z["table"], row * z["letters"] + column, t))
        return f.stack(found)

    def border(k: Value) -> Value:
        """Of the cells (0, k) and (k, 0)."""
        if rule.local:
            return f.const(0.0, t)
        if rule.warp:
            return f.select(k.cmp("==", 0), f.const(0.0, t), far)
        gap = k.to(t) * extending
        gap = gap + opening if rule.affine else gap
        return f.select(k.cmp("==", 0), f.const(0.0, t), gap)

    with f.loop(z["first"], z["last"]) as b:
        n, m = z["rows"][b], z["columns"][b]
        x_start, y_end = z["x_starts"][b], z["y_starts"][b]
        # the antidiagonal two before, the last and the new one; of gaps the last and the new one
        lines = [f.var(z["room"].at(width * (g * t.size))) for g in range(3)]
        gaps = [[f.var(z["room"].at(0)) for _ in range(2)] for _ in range(2)]
        if rule.affine:
            for g in range(4):
                gaps[g // 2][g % 2].set(z["room"].at(width * ((3 + g) * t.size)))
        begin, found = z["begin"], load_item(f, z["out"], b, t)
        with f.if_(z["keep"].cmp("!=", 0)):
            for line in lines:
                line.set(line.get().at(begin * width * t.size))
        best = f.var(f.select(begin.cmp("==", 0), f.const(0.0, t), found).splat(lanes))
        with f.loop(begin, f.low(n + m + 1, z["end"])) as k:
            before, last, new = (line.get() for line in lines)
            first = f.select((k - m).cmp(">", 1), k - m, f.const(1, I64))
            # 2 i - k is i - j, which the band limits
            edge = (k - z["band"] + 1) >> 1
            first = f.select(edge.cmp(">", first), edge, first)
            final = f.low(f.low(n, k - 1), (k + z["band"]) >> 1)
            with f.loop(first, final + 1, lanes) as i:
                step = cost(x_start, i, y_end - k + i)  # of entry k - i - 1 of y
                both, up, left = own(before, i - 1), own(last, i - 1), own(last, i)
                if rule.warp:
                    value = step + low(low(up, left), both)
                else:
                    by = extending.splat(lanes)
                    up, left = up + by, left + by
                    if rule.affine:
                        began = opening.splat(lanes)
                        old, fresh = ([g.get() for g in pair] for pair in zip(*gaps, strict=True))
                        up = low(up + began, own(old[0], i - 1) + by)
                        left = low(left + began, own(old[1], i) + by)
                        f.store(up, fresh[0].at(i * t.size), t.size)
                        f.store(left, fresh[1].at(i * t.size), t.size)
                    value = low(low(up, left), both + step)
                if rule.local:
                    value = low(value, f.const(0.0, vec))
                    inside = f.iota(codes).cmp("<=", (final - i).to(I32).splat(lanes))
                    value = f.select(inside, value, f.const(0.0, vec))
                    best.set(low(value, best.get()))
                f.store(value, new.at(i * t.size), t.size)
            for place, there in (
                (first - 1, first.cmp("==", 1) & k.cmp("<=", m)),
                (final + 1, final.cmp("==", k - 1) & k.cmp("<=", n)),
            ):
                there = there & k.cmp("<=", z["band"])
                f.store(f.select(there, border(k), far), new.at(place * t.size), t.size)
                if rule.affine:
                    for pair in gaps:
                        f.store(far, pair[1].get().at(place * t.size), t.size)
            lines[0].set(last)
            lines[1].set(new)
            with f.if_else(z["keep"].cmp("!=", 0)) as otherwise:
                lines[2].set(new.at(width * t.size))
                with otherwise():
                    lines[2].set(before)
            if rule.affine:
                for pair in gaps:
                    was = pair[0].get()
                    pair[0].set(pair[1].get())
                    pair[1].set(was)
        if rule.local:
            x = best.get()
            while x.type.lanes > 2:
                half = x.type.lanes // 2
                x = low(f.shuffle(x, x, range(half)), f.shuffle(x, x, range(half, 2 * half)))
            result = low(x[0], x[1])
        else:
            result = load_item(f, lines[1].get(), n, t)
        f.store(result, z["out"].at(b * t.size), t.size)
    return f
