"""Alignments of pairs of sequences, on all threads."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..engine import AlignmentRule, Ragged
from ..plan import Plan
from ..semirings import semirings
from .codegen import Compiled, compiled
from .compiler import KEPT, host_target
from .kernels import alignment as kernels

__all__ = ["align", "edit_rows"]

Array = NDArray[Any]

_MOST = 1 << 21  # words of a table
_PIECE = 1 << 24  # words in a call, between which Ctrl-C is seen
_ALONE = 1 << 16  # terms that do not repay a second thread
_FEW = 1 << 12  # numbers that a table may have for nothing
_ALL = 1 << 62  # antidiagonals
_EDITS = AlignmentRule("f4", "equal")


def align(
    rule: AlignmentRule, x: Ragged, y: Ragged, band: int | None, gaps: Sequence[float],
    table: Array | None, *, keep: bool, tick: Callable[[float], None] | None = None,
) -> tuple[Array, Array | None]:  # fmt: skip
    """Costs of pairs of sequences, and a path; see :meth:`semiring_mm.engine.Engine.align`."""
    if rule == _EDITS and band is None and list(gaps) == [0, 1, 0, 1]:
        distances = edit_distances(x, y, tick)
        if distances is not None:
            return distances, None
    dtype, pairs = np.dtype(rule.dtype), len(x.starts)
    rows, columns = x.lengths, y.lengths
    lanes = host_target().vector_bytes // dtype.itemsize
    more = lanes + 2  # is read behind sequences and lines
    longest = max(x.longest, y.longest)
    width = longest + 2 * more
    out, letters = np.empty(pairs, dtype), rule.cost in ("equal", "table")
    first, second = _lines(x.entries, more), _lines(y.entries[::-1], more)
    features = 1 if letters else len(first)
    lines, tail = longest * 2 + 4 if keep else 3, 4 if rule.affine else 0
    kept = np.full((lines, width), np.inf, dtype) if keep else None
    fields = {
        "W": lanes, "warp": rule.warp,
        "affine": rule.affine, "local": rule.local, "squared": rule.cost == "squared",
        "single": not letters and features == 1, "keep": keep, "ends": rule.ends,
        "band": 2 * width if band is None else min(band, 2 * width), "features": features,
        "rows": rows, "columns": columns, "before_x": more, "x_starts": x.starts,
        "behind_y": more + len(y.entries), "y_starts": y.starts, "x": None if letters else first,
        "y": None if letters else second, "x_codes": first if letters else None,
        "y_codes": second if letters else None, "out": out, "gaps": np.array(gaps, dtype),
        "table": table,
    }  # fmt: skip

    def memory() -> dict[str, Array | None]:
        room = np.empty((lines * (not keep) + tail, width), dtype)
        room.fill(np.inf)
        return {"lines": room if kept is None else kept, "gap_lines": room[-4:] if tail else None}

    def work() -> tuple[Array, Array]:
        spans = rows + columns + 1
        return (np.minimum(rows, columns) + more) * spans * max(1, features), spans

    bound = pairs * (longest + more) * (2 * longest + 1) * max(1, features)
    each_pair(_compiled(rule.dtype), fields, pairs, bound, work, memory, tick)
    return out, None if kept is None else _path(kept[2:], int(rows[0]), int(columns[0]))


@functools.lru_cache(maxsize=KEPT)
def _compiled(dtype: str) -> Compiled:
    minima = semirings["min_plus"]
    name, kind = np.dtype(dtype).name, f"f{8 * np.dtype(dtype).itemsize}"
    plan = Plan(minima.add_expr, minima.mul_expr, name, kind, keep_nan=True)
    return compiled(kernels.align, plan)


def _lines(entries: Array, more: int) -> Array:
    """Sequences along the last axis, a line for each feature, with zeros at both ends."""
    lines = np.zeros((*entries.shape[1:], len(entries) + 2 * more), entries.dtype)
    lines[..., more : more + len(entries)] = entries.T
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


def edit_distances(
    x: Ragged, y: Ragged, tick: Callable[[float], None] | None = None
) -> Array | None:
    """The least numbers of insertions, deletions and substitutions, as float32.

    None for codes that are too far apart for a table.
    """
    pairs = len(x.starts)
    lanes = host_target().vector_bytes // 8 if pairs > 1 else 1
    some = [s.entries.view(np.uint32) for s in (x, y) if len(s.entries)]
    low, words = 0, -(-x.longest // 64)
    letters = max((int(np.maximum.reduce(v)) for v in some), default=0) + 1
    if letters > _FEW or letters * words * lanes > _MOST:  # some may be negative
        low = min(int(v.view(np.int32).min()) for v in some)
        letters = max(int(v.view(np.int32).max()) for v in some) - low + 1
        if letters * words * lanes > _MOST:
            return None
    # the pairs of a group have about one length; it is filled up with empty ones
    order: Any = slice(None)
    if pairs > 1:
        order = np.lexsort((y.lengths, (x.lengths + 63) // 64))
    groups = -(-pairs // lanes)
    given = np.zeros((4, groups, lanes), np.int64)
    for row, v in zip(given, (x.lengths, y.lengths, x.starts, y.starts), strict=True):
        row.ravel()[:pairs] = v[order]
    found = np.empty((groups, lanes), np.int64)
    fields = {
        "count": lanes, "low": low, "letters": letters, "words": words, "rows": given[0],
        "columns": given[1], "x_starts": given[2], "y_starts": given[3], "x": x.entries,
        "y": y.entries, "out": found,
    }  # fmt: skip

    def work() -> tuple[Array, Array]:
        tall, most = given[:2].max(axis=2)
        return (tall // 64 + 1) * (most + 1), most

    def memory() -> dict[str, Array]:
        shapes = {"table": (letters, words, lanes), "room": (words, 2, lanes)}
        return {name: np.zeros(shape, np.uint64) for name, shape in shapes.items()}

    call = compiled(kernels.edit_distances)
    bound = groups * words * (y.longest + 1)
    each_pair(call, fields, groups, bound, work, memory, tick)
    out = np.empty(pairs, np.float32)
    out[order] = found.ravel()[:pairs]
    return out


def edit_rows(
    x: Ragged, y: Ragged, cutoff: int | None, take: Callable[[Array, Array, Array], None],
    tick: Callable[[float], None] | None = None,
) -> bool:  # fmt: skip
    """Edit distances of each sequence of x from each of y, given in blocks.

    False, and nothing is done, for more codes than a table has room for.

    Parameters
    ----------
    cutoff : int, optional
        Those whose lengths differ by more are left out; distances above it may be any above it.
    take : callable
        ``take(i, j, distances)``, on several threads: of rows i and columns j, shape (j, i).
    """
    some = x.entries[: int((x.starts + x.lengths).max())]
    codes, known = np.unique(some, return_inverse=True)
    known = known.reshape(-1).astype(np.int32)
    at = np.searchsorted(codes, y.entries).astype(np.int32)
    at[at == len(codes)] = 0
    other = np.where(codes[at] == y.entries, at, np.int32(len(codes))) if len(codes) else at
    letters, lanes = len(codes) + 1, host_target().vector_bytes // 8
    count, words = 2 * lanes, max(1, -(-x.longest // 64))
    if letters * words * count > _MOST:
        return False
    order, ends = np.argsort(x.lengths, kind="stable"), np.argsort(y.lengths, kind="stable")
    lengths, run = y.lengths[ends], compiled(kernels.edit_rows)
    step = max(1, _PIECE // (16 * max(1, int(lengths.max())) * words * count))
    done, caller = 0, threading.get_ident()

    def rows(first: int, last: int) -> None:
        nonlocal done
        memory = {
            "table": np.zeros((letters, words, count), np.uint64),
            "room": np.zeros((words, 2, count), np.uint64),
        }
        for begin in range(first, last, count):
            group = order[begin : min(begin + count, last)]
            low, high = 0, len(ends)
            if cutoff is not None:
                shortest, longest = x.lengths[group[0]], x.lengths[group[-1]]
                low = int(np.searchsorted(lengths, shortest - cutoff))
                high = int(np.searchsorted(lengths, longest + cutoff, "right"))
            given = np.zeros((2, 1, count), np.int64)
            given[:, 0, : len(group)] = x.lengths[group], x.starts[group]
            for start in range(low, high, step):
                there = ends[start : min(start + step, high)]
                out = np.empty((1, len(there), count), np.int64)
                run(
                    count=count, single=words == 1, first=0, last=1, others=len(there),
                    bounded=cutoff is not None, letters=letters, words=words, cutoff=cutoff or 0,
                    rows=given[0], x_starts=given[1], x=known, y_starts=y.starts[there],
                    columns=y.lengths[there], y=other, out=out, **memory,
                )  # fmt: skip
                take(group, there, out[0, :, : len(group)])
                pool.look()
            done += len(group)
            if tick is not None and threading.get_ident() == caller:
                tick(min(1.0, done / len(order)))

    size = max(count, -(-len(order) // (4 * pool.get_num_threads()) // count) * count)
    parts = [(i, min(i + size, len(order))) for i in range(0, len(order), size)]
    pool.run([functools.partial(rows, *part) for part in parts])
    if tick is not None:
        tick(1.0)
    return True


def each_pair(
    run: Callable[..., None], fields: dict[str, Any], pairs: int, bound: int,
    work: Callable[[], tuple[NDArray[np.int64], NDArray[np.int64]]],
    memory: Callable[[], dict[str, Any]], tick: Callable[[float], None] | None = None,
) -> None:  # fmt: skip
    """Call a kernel for all pairs, on all threads, some times a second.

    Parameters
    ----------
    run, fields
        It takes these fields, those that `memory` makes for a thread, and `first`, `last`, `begin`
        and `end`: the pairs `first` to `last` - 1, of which it goes along the antidiagonals, or
        columns, `begin` to `end` - 1.
    bound : int
        The work is not more than that: little is not shared, and not looked at further.
    work : callable
        Two arrays (pairs,): the work of each pair, and how many antidiagonals it has.
    tick : callable, optional
        Told by the calling thread which part of the terms is done, from 0 to 1.
    """
    if tick is None and bound <= _ALONE:
        run(**fields, **memory(), first=0, last=pairs, begin=0, end=_ALL)
        return
    terms, spans = work()
    ends = np.cumsum(terms)
    size = min(max(int(ends[-1]) // (4 * pool.get_num_threads()), _ALONE), _PIECE)
    starts = np.flatnonzero(np.diff((ends - 1) // size, prepend=-1))
    caller, parts, done = threading.get_ident(), list[int](), 0

    def report(_: int) -> None:
        nonlocal done
        before = done
        while parts:
            done += parts.pop()
        if tick is not None and done > before:
            tick(done / int(ends[-1]))

    def some(first: int, last: int) -> None:
        given = fields | memory()

        def call(first: int, last: int, begin: int, end: int, done: int) -> None:
            run(**given, first=first, last=last, begin=begin, end=end)
            parts.append(done)
            pool.look()
            if threading.get_ident() == caller:
                report(0)

        if terms[first] > _PIECE:  # no other one here does
            span, own = int(spans[first]), int(terms[first])
            step = max(_PIECE * span // own, 1)
            for begin in range(0, span, step):
                end = min(begin + step, span)
                part = own * end // span - own * begin // span
                call(first, first + 1, begin, end, part)
            first += 1
        if first < last:
            call(first, last, 0, _ALL, int(terms[first:last].sum()))

    cuts = itertools.pairwise([*starts.tolist(), len(terms)])
    pool.run([functools.partial(some, *cut) for cut in cuts], report if tick else None)
