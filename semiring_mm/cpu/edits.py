"""Edit distances by bits, and pairs of sequences on all threads."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..engine import Ragged
from .codegen import compiled
from .compiler import host_target
from .kernels import edits as kernels

__all__ = ["each_pair", "edit_distances"]

Array = NDArray[Any]

_MOST = 1 << 21  # words of a table
_PIECE = 1 << 24  # words in a call, between which Ctrl-C is seen
_ALONE = 1 << 16  # terms that do not repay a second thread


def edit_distances(
    x: Ragged, y: Ragged, tick: Callable[[float], None] | None = None
) -> Array | None:
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
    given = np.zeros((4, groups, lanes), np.int64)
    given.reshape(4, -1)[:, :pairs] = [v[order] for v in (x.lengths, y.lengths, x.starts, y.starts)]
    found = np.empty((groups, lanes), np.int64)
    fields = {
        "count": lanes, "low": low, "letters": letters, "words": words, "rows": given[0],
        "columns": given[1], "x_starts": given[2], "y_starts": given[3], "x": x.entries,
        "y": y.entries, "out": found,
    }  # fmt: skip
    tall, most = given[:2].max(axis=2)

    def memory() -> dict[str, Array]:
        shapes = {"table": (letters, words, lanes), "room": (words, 2, lanes)}
        return {name: np.zeros(shape, np.uint64) for name, shape in shapes.items()}

    call = compiled(kernels.edit_distances)
    each_pair(call, fields, (tall // 64 + 1) * (most + 1), most, 1, memory, tick)
    out = np.empty(pairs, np.float32)
    out[order] = found.ravel()[:pairs]
    return out


def each_pair(
    run: Callable[..., None], fields: dict[str, Any], terms: NDArray[np.int64],
    spans: NDArray[np.int64], unit: int, memory: Callable[[], dict[str, Array]],
    tick: Callable[[float], None] | None = None,
) -> None:  # fmt: skip
    """Call a kernel for all pairs, on all threads, some times a second.

    Parameters
    ----------
    run, fields
        It takes these fields, those that `memory` makes for a thread, and `first`, `last`, `begin`
        and `end`: the pairs `first` to `last` - 1, of which it goes along the antidiagonals, or
        columns, `begin` to `end` - 1.
    terms, spans : array (pairs,)
        The work of each pair, and how many antidiagonals it has.
    unit : int
        Calls begin at multiples of it.
    tick : callable, optional
        Told by the calling thread which part of the terms is done, from 0 to 1.
    """
    ends = np.cumsum(terms)
    size = min(max(int(ends[-1]) // (4 * pool.get_num_threads()), _ALONE), _PIECE)
    starts = np.flatnonzero(np.diff((ends - 1) // size, prepend=-1))
    all_ = int(spans.max()) + 1
    caller, parts, done = threading.get_ident(), list[int](), 0

    def report(_: int) -> None:
        nonlocal done
        before = done
        while parts:
            done += parts.pop()
        if tick is not None and done > before:
            tick(done / int(ends[-1]))

    def some(first: int, last: int) -> None:
        own = fields | memory()

        def call(first: int, last: int, begin: int, end: int, work: int) -> None:
            run(**own, first=first, last=last, begin=begin, end=end)
            parts.append(work)
            pool.look()
            if threading.get_ident() == caller:
                report(0)

        if terms[first] > _PIECE:  # no other one here does
            span, work = int(spans[first]), int(terms[first])
            step = max(_PIECE * span // work // unit, 1) * unit
            for begin in range(0, span, step):
                end = min(begin + step, span)
                part = work * end // span - work * begin // span
                call(first, first + 1, begin, end, part)
            first += 1
        if first < last:
            call(first, last, 0, all_, int(terms[first:last].sum()))

    cuts = itertools.pairwise([*starts.tolist(), len(terms)])
    pool.run([functools.partial(some, *cut) for cut in cuts], report if tick else None)
