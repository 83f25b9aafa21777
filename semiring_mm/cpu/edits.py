"""Edit distances by bits: 64 cells of a column in a word, compiled (Myers, 1999; Hyyrö, 2003).

Neighbours in the table of unit costs differ by -1, 0 or 1. A column is kept as two bits a cell:
whether it is one more, or one less, than the cell above it. A column from the one before takes some
17 operations a word; an addition carries matches down the column.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..engine import Ragged
from .blocks import address, block, load_block
from .compiler import compile_functions, host_target
from .ir import I64, PTR, Function, Type, Value

__all__ = ["each_pair", "edit_distances"]

Array = NDArray[Any]

#: Of groups `first` to `last` - 1 of pairs, one to a lane, columns `begin` to `end` - 1. `table`
#: has, for each code from `low` on, `words` of bits of each lane: where the code is in x; zeros
#: before the first column and after the last. `room` has two words for each of x: which cells are
#: one more, and one less, than those above them.
_FIELDS = "first last begin end low words : rows columns x_starts y_starts : x y : table room out"
_MOST = 1 << 21  # words of a table
_PIECE = 1 << 24  # words in a call, between which Ctrl-C is seen
_U64 = Type("u", 64)
_ALONE = 1 << 16  # terms that do not repay a second thread


def edit_distances(x: Ragged, y: Ragged) -> Array | None:
    """The least numbers of insertions, deletions and substitutions, as float32.

    None for codes that are too far apart for a table.
    """
    pairs = len(x.starts)
    lanes = host_target().vector_bytes // 8 if pairs > 1 else 1
    some = [s.entries for s in (x, y) if len(s.entries)]
    low = min((int(v.min()) for v in some), default=0)
    letters = max((int(v.max()) for v in some), default=0) - low + 1
    words = -(-int(x.lengths.max()) // 64)
    if letters * words * lanes > _MOST:
        return None
    # the pairs of a group have about one length; it is filled up with empty ones
    order = np.lexsort((y.lengths, (x.lengths + 63) // 64))
    groups = -(-pairs // lanes)
    given = np.zeros((4, groups * lanes), np.int64)
    given[:, :pairs] = [v[order] for v in (x.lengths, y.lengths, x.starts, y.starts)]
    found = np.empty(groups * lanes, np.int64)
    fields = {
        "low": low, "words": words, "rows": given[0], "columns": given[1], "x_starts": given[2],
        "y_starts": given[3], "x": x.entries, "y": y.entries, "out": found,
    }  # fmt: skip
    function = _compiled(lanes)

    tall, most = (given[k].reshape(groups, lanes).max(axis=1) for k in range(2))

    def memory() -> dict[str, Array]:
        table, room = (np.zeros(n * words * lanes, np.uint64) for n in (letters, 2))
        return {"table": table, "room": room}

    each_pair(function, _FIELDS, fields, (tall // 64 + 1) * (most + 1), most, 1, memory)
    out = np.empty(pairs, np.float32)
    out[order] = found[:pairs]
    return out


def each_pair(
    function: Any, names: str, fields: dict[str, Any], terms: NDArray[np.int64],
    spans: NDArray[np.int64], unit: int, memory: Callable[[], dict[str, Array]],
) -> None:  # fmt: skip
    """Call a compiled function for all pairs, on all threads, some times a second.

    Parameters
    ----------
    function, names, fields
        It takes a block of these fields and of `first`, `last`, `begin` and `end`: the pairs
        `first` to `last` - 1, of which it goes along the antidiagonals, or columns, `begin` to
        `end` - 1; and of those that `memory` makes for a thread.
    terms, spans : array (pairs,)
        The work of each pair, and how many antidiagonals it has.
    unit : int
        Calls begin at multiples of it.
    """
    ends = np.cumsum(terms)
    size = min(max(int(ends[-1]) // (4 * pool.get_num_threads()), _ALONE), _PIECE)
    starts = np.flatnonzero(np.diff((ends - 1) // size, prepend=-1))
    all_ = int(spans.max()) + 1

    def some(first: int, last: int) -> None:
        own = fields | memory()

        def call(*places: int) -> None:
            at = dict(zip(("first", "last", "begin", "end"), places, strict=True))
            values = block(names, own | at)
            function(address(values))
            pool.look()

        if terms[first] > _PIECE:  # no other one here does
            step = max(_PIECE * int(spans[first]) // int(terms[first]) // unit, 1) * unit
            for begin in range(0, int(spans[first]), step):
                call(first, first + 1, begin, begin + step)
            first += 1
        if first < last:
            call(first, last, 0, all_)

    cuts = itertools.pairwise([*starts.tolist(), len(terms)])
    pool.run([functools.partial(some, *cut) for cut in cuts])


@functools.cache
def _compiled(lanes: int) -> Any:
    f = _function(lanes)
    return compile_functions([f], host_target()).function(f.name, ctypes.c_void_p)


def _function(lanes: int) -> Function:
    f = Function("edits", [PTR], opaque=False)
    z = load_block(f, _FIELDS)
    vec, wide = _U64.vector(lanes), I64.vector(lanes)
    ones, zero, one = (f.const(v, vec) for v in (-1, 0, 1))
    size = 8 * lanes  # bytes of a word of each lane
    stride = z["words"] * size

    def bits(code: Value, lane: Value | int) -> Value:
        """The words of a code in a lane."""
        base: Value = z["table"]
        return base.at((code - z["low"]) * stride).at(lane * 8)

    def each(name: str, b: Value) -> list[Value]:
        return [z[name][b * lanes + lane] for lane in range(lanes)]

    def together(values: list[Value]) -> Value:
        return values[0] if lanes == 1 else f.stack(values)

    def mark(b: Value, *, there: bool) -> None:
        """Set, or clear, the bits of what is in x."""
        with f.loop(0, lanes) as lane:
            pair = b * lanes + lane
            start = z["x_starts"][pair]
            with f.loop(0, z["rows"][pair]) as i:
                place = bits(z["x"][start + i], lane).at((i >> 6) * size)
                bit = f.const(1, _U64) << (i & 63).to(_U64)
                f.store(f.load(place, _U64, 8) | bit if there else f.const(0, _U64), place, 8)

    with f.loop(z["first"], z["last"]) as b:
        rows, columns = (together(each(name, b)) for name in ("rows", "columns"))
        tall, most = f.var(f.const(0, I64)), f.var(f.const(0, I64))
        for var, lengths in ((tall, rows), (most, columns)):
            for lane in range(lanes):
                length = lengths if lanes == 1 else lengths[lane]
                var.set(f.select(length.cmp(">", var.get()), length, var.get()))
        words = (tall.get() + 63) >> 6
        with f.if_(z["begin"].cmp("==", 0)):
            mark(b, there=True)
            with f.loop(0, words) as w:
                f.store(ones, z["room"].at(w * (2 * size)), 8)
                f.store(zero, z["room"].at(w * (2 * size) + size), 8)
        with f.loop(z["begin"], f.low(z["end"], most.get())) as j:
            matches = []
            for lane, start in enumerate(each("y_starts", b)):
                end = columns if lanes == 1 else columns[lane]
                place = f.select(j.cmp("<", end), start + j, f.const(0, I64))
                matches.append(bits(z["y"][place], lane))
            going = j.splat(lanes).cmp("<", columns)
            more, less = f.var(one), f.var(zero)  # along the row above the word
            with f.loop(0, words) as w:
                place = z["room"].at(w * (2 * size))
                vp, vn = (f.load(place.at(k), vec, 8) for k in (0, size))
                found = together([f.load(m.at(w * size), _U64, 8) for m in matches])
                same = found | less.get()
                d0 = (((same & vp) + vp) ^ vp) | same | vn
                hp, hn = vn | ((d0 | vp) ^ ones), d0 & vp
                across, back = (hp << one) | more.get(), (hn << one) | less.get()
                more.set(hp >> f.const(63, vec))
                less.set(hn >> f.const(63, vec))
                f.store(f.select(going, back | ((d0 | across) ^ ones), vp), place, 8)
                f.store(f.select(going, across & d0, vn), place.at(size), 8)
        with f.if_(z["end"].cmp(">=", most.get())):
            mark(b, there=False)
            # the first row counts up to the columns, the last column goes on from there
            total = f.var(columns.to(_U64))
            with f.loop(0, words) as w:
                inside = rows - (w << 6).splat(lanes)
                shift = f.select(inside.cmp("<", 64) & inside.cmp(">", 0), inside, f.const(0, wide))
                mask = f.select(inside.cmp("<", 64), (one << shift.to(_U64)) - one, ones)
                for at, sign in ((0, 1), (size, -1)):
                    place = z["room"].at(w * (2 * size) + at)
                    count = f.intrinsic("ctpop", f.load(place, vec, 8) & mask)
                    total.set(total.get() + count if sign > 0 else total.get() - count)
            f.store(total.get(), z["out"].at(b * size), 8)
    return f
