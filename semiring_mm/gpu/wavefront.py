"""Alignments on the device: all pairs of sequences in one launch, a block of warps for each.

The costs of entries of several features are a product, which another launch computes: of as many
pairs at a time, or of as many rows of a long pair, as fit in the temporary memory.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ..engine import AlignmentRule, Ragged
from ..metrics import as_metric
from ..plan import make_plan
from . import device
from .launch import entry, launch, struct_of
from .source import STORAGE, algebra, flags, word_size
from .tiles import Tile
from .views import address, to_host

__all__ = ["align", "costs_source"]

Array = Any

_MOST_WARPS = 8  # of a block: below each other, two chunks of 32 columns apart
_ENOUGH = 32  # warps of a multiprocessor, for which pairs may provide
_BLOCKS = 32  # of a multiprocessor, at most
_SHARED = 4  # warps of a block where several share a pair
_EDITS = AlignmentRule("f4", "equal")
# Entries, at most, of the shorter and of the longer sequence of a pair that one thread aligns.
_WORD, _SHORT = 64, 512
_MANY_SHORT = 256  # such pairs for each multiprocessor
_THREADS = 128  # of a block of these
_ROWS = 16  # of a lane of couples, at most
_MANY = 4  # pairs for each multiprocessor, and
_WORK = 1 << 28  # cells, that repay a look at all codes and an order of the pairs
_FAR = 0x6000  # what sr::Couple has as ∞
_CODES = 0x7FFE  # what codes of couples are below
_LETTERS = 32  # of a table that lies in shared memory, at most
_NONE = 127  # the cost of no letter, in such a table
_WALK = 72 + 2 * 32 * 256  # bytes of shared memory: sr::Alignment's place and tile of moves
_LONGEST = 1 << 30  # entries of a sequence, whose numbers are of 32 bits
_MOST = 1 << 29  # bytes of costs, of which there may be two arrays at a time
_TILE = Tile(64, 64, 16, 8, 4, 8, 4)  # of costs


def align(
    rule: AlignmentRule, x: Ragged, y: Ragged, band: int | None, gaps: Sequence[float],
    table: Array | None, *, keep: bool, tick: Callable[[float], None] | None = None,
) -> tuple[Array, Array | None]:  # fmt: skip
    """Costs of pairs of sequences, and a path; see :meth:`semiring_mm.engine.Engine.align`."""
    here, dtype = device.current(), np.dtype(rule.dtype)
    xp, most, width = here.xp, x.longest, y.longest + 1
    if max(most, width) > _LONGEST:
        raise ValueError(f"sequences of more than {_LONGEST} entries are not aligned on a device")
    if rule == _EDITS and list(gaps) == [0, 1, 0, 1] and band is None and _short(x, y):
        return _edit_distances(x, y, tick), None
    band = None if band is None else min(band, _LONGEST)
    given = x.entries.ndim == 2 and x.entries.shape[1] != 1
    couples = not keep and band is None and _coupled(rule, x, y, gaps, table)
    # rows of a lane, whose costs are in registers: as few as the same number of strips takes
    full = _ROWS if couples else 4 if rule.affine or dtype.itemsize > 4 else 8
    each = max(1, -(-most // (32 * max(1, -(-most // (32 * full))))))
    if given:
        each = 1 << (each - 1).bit_length()  # of which a vector is loaded
    letters = 0 if table is None else len(table)
    if couples and table is not None:  # words of bytes, of which the last is of no letter
        behind = (0, 0), (0, 4 - letters % 4)
        table = np.pad(table.astype(np.int8), behind, constant_values=_NONE)
    copied = not couples and 0 < letters <= _LETTERS
    out = xp.empty(len(x.starts), dtype)
    moves = xp.empty((-(-most // each), width), np.uint16) if keep else None
    path = xp.empty((2, most + width - 1), np.int32) if keep else None
    steps = xp.zeros(1, np.int32) if keep else None
    names = "opening gap equal other".split()
    fields = {
        "x": x.entries, "y": y.entries, "table": None if table is None else xp.asarray(table),
        "moves": moves, "path": path, "steps": steps, "width": width, "band": band or 0,
        "letters": letters, "free": rule.ends, "copied": copied,
        **{name: _bits(v) for name, v in zip(names, gaps, strict=True)},
    }  # fmt: skip
    cost = "GIVEN" if given else rule.cost.upper()
    options = flags(rule.warp, rule.affine, rule.local, rule.ends > 0, band is not None, keep)
    of = "sr::Couple" if couples else STORAGE[dtype.name]
    run = f"sr::Alignment<{of}, sr::COST_{cost}, {each}, {options}>::run"
    params = struct_of("AlignParams")
    source = entry("wavefront.cuh", params, run, 32 * (_SHARED if couples else _MOST_WARPS))
    pieces = _pieces(x, y, dtype.itemsize, 32 * each) if given else [(slice(None), [(0, most)])]
    for some, ranges in pieces:
        pairs, rows = len(x.starts[some]), ranges[0][1] - ranges[0][0]
        blocks, warps, parts = _blocks(pairs, rows, each, couples)
        room = _WALK if keep else 64  # what each warp found, before what sr::Alignment has else
        if copied:
            room += dtype.itemsize * letters**2
        elif couples and letters:  # profiles
            room += warps * 64 * (letters + 1) * max(4, 1 << (each - 1).bit_length())
        lines = xp.empty((blocks // parts, 1 + rule.affine, width), dtype)
        places, there = _places(x, y, some)
        order = None
        if couples and not x.even & y.even:  # so that those of a couple have about one length
            order = xp.argsort(-there[2] * there[3])
            there = [v[order] for v in there]
        fields |= _named(there) | {
            "lines": lines, "out": out[some], "pairs": pairs, "parts": parts,
        }  # fmt: skip
        for first, last in ranges:
            progress = xp.zeros(1 + pairs * parts, np.uint32) if parts > 1 else None
            fields |= {"progress": progress, "first": first, "last": last}
            if given:
                costs, starts = _costs(rule, x, y, places, first, last, band)
                fields |= {"costs": costs, "cost_starts": starts}
            launch(source, params, blocks, 32 * warps, room, fields)
        if order is not None:
            out[order] = out.copy()
    _tell(tick, out)
    if steps is None or path is None:
        return out, None
    count = int(to_host(steps)[0])
    return out, to_host(path)[:, :count].T[::-1].astype(np.int64)  # it was walked from its end


def _tell(tick: Callable[[float], None] | None, out: Array) -> None:
    if tick is not None:
        to_host(out[:1])  # when all is done
        tick(1.0)


def _short(x: Ragged, y: Ragged) -> bool:
    """Whether there are as many pairs as take all threads, one each, and these are soon done."""
    low, high = sorted((x.longest, y.longest))
    many = len(x.starts) >= _MANY_SHORT * device.current().sms
    return many and 0 < low <= _WORD and high <= _SHORT


def _edit_distances(x: Ragged, y: Ragged, tick: Callable[[float], None] | None) -> Array:
    """The least numbers of insertions, deletions and substitutions, as float32."""
    here, pairs = device.current(), len(x.starts)
    if x.longest > y.longest:
        x, y = y, x
    out, params = here.xp.empty(pairs, np.float32), struct_of("AlignParams")
    word = "sr::u32" if x.longest <= _WORD // 2 else "sr::u64"
    launch(
        entry("wavefront.cuh", params, f"sr::Edits<{word}, {_THREADS}>::run", _THREADS), params,
        min(-(-pairs // _THREADS), _BLOCKS * here.sms), _THREADS, 4 * _THREADS * x.longest,
        _named(_places(x, y, slice(None))[1]), x=x.entries, y=y.entries, out=out, pairs=pairs,
    )  # fmt: skip
    _tell(tick, out)
    return out


def _coupled(
    rule: AlignmentRule, x: Ragged, y: Ragged, gaps: Sequence[float], table: Array | None
) -> bool:
    """Whether pairs are computed two at a time: many, all of whose costs fit in 16 bits."""
    here, count, most, width = device.current(), len(x.starts), x.longest, y.longest
    if rule.warp or rule.ends or rule.dtype != "f4" or here.arch < 90:  # without VIADDMNMX.16x2
        return False
    if count < _MANY * here.sms or count * most * width < _WORK:
        return False
    opening, gap = gaps[:2]
    costs = np.array(gaps if table is None else [opening, gap, *table.ravel()])
    largest = np.abs(costs).max()
    # every cell can be reached by gaps alone, and each entry of the shorter one can be matched once
    worst = 0 if rule.local else (most + width) * gap + 2 * opening
    reach = max(worst, -min(most, width) * costs.min()) + 12 * largest
    if (costs % 1).any() or reach >= _FAR:
        return False
    if table is not None:
        return len(table) <= _LETTERS and bool(largest < _NONE)
    if here.capturing() or (rule.local and gaps[3] < 0):
        return False  # no wait; what is behind the end of a sequence would be better than nothing
    first, second = (s.entries.view(np.uint32).max() for s in (x, y))
    return int(to_host(here.xp.maximum(first, second))) < _CODES


def _blocks(pairs: int, rows: int, each: int, couples: bool) -> tuple[int, int, int]:
    """Blocks, their warps, and how many of them share a pair."""
    sms = device.current().sms
    units = -(-pairs // 2) if couples else pairs
    strips, wanted = max(1, -(-rows // (32 * each))), -(-_ENOUGH * sms // units)
    most = _SHARED if couples else _MOST_WARPS
    if min(strips, wanted) > most and not couples:
        parts = -(-strips // _SHARED)
        return pairs * parts, _SHARED, parts
    rounds = -(-strips // min(most, strips, wanted))
    # about as many strips in the last round as in the others
    return min(units, _BLOCKS * sms), -(-strips // rounds), 1


def _places(x: Ragged, y: Ragged, some: slice) -> tuple[list[Array], list[Array]]:
    """Where some sequences begin and how many entries they have, as given and on the device."""
    xp, given = device.current().xp, [v[some] for v in (x.starts, y.starts, x.lengths, y.lengths)]
    if all(isinstance(v, np.ndarray) for v in given):
        return given, list(xp.asarray(np.stack(given)))  # one transfer
    return given, [xp.asarray(v) for v in given]


def _named(places: Iterable[Array]) -> dict[str, Array]:
    return dict(zip("x_starts y_starts x_lengths y_lengths".split(), places, strict=False))


def _pieces(
    x: Ragged, y: Ragged, size: int, strip: int
) -> Iterator[tuple[slice, list[tuple[int, int]]]]:
    """Pairs whose costs fit in the memory, and all their rows; or parts of the rows of one pair."""
    columns = np.maximum(y.lengths, 1)
    room = np.cumsum((x.lengths + 7) * columns * size)
    begin, used = 0, 0
    while begin < len(room):
        fitting = int(np.searchsorted(room, used + _MOST, side="right")) - begin
        end = begin + max(1, fitting)
        rows = int(x.lengths[begin:end].max())
        step = rows if fitting else max(1, _MOST // (size * strip * int(columns[begin]))) * strip
        ranges = [(i, min(i + step, rows)) for i in range(0, rows, step)] if rows else [(0, 0)]
        yield slice(begin, end), ranges
        begin, used = end, int(room[end - 1])


def _costs(
    rule: AlignmentRule, x: Ragged, y: Ragged, places: list[Array], first: int, last: int,
    band: int | None,
) -> tuple[Array, Array]:  # fmt: skip
    """The costs of some rows of pairs with all columns, and where those of each pair begin."""
    here, (x_starts, y_starts, rows, columns) = device.current(), places
    xp, features, dtype = here.xp, x.entries.shape[1], np.dtype(rule.dtype)
    rows = np.minimum(rows, last) - first
    sizes = -(-rows // 8) * 8 * columns
    tiles = np.cumsum(-(-rows // _TILE.bn) * -(-columns // _TILE.bm))
    costs = xp.empty(int(sizes.sum()), dtype)
    known = np.stack([x_starts + first, y_starts, rows, columns, np.cumsum(sizes) - sizes])
    known, ends = xp.asarray(known), xp.asarray(np.concatenate([[0], tiles]))
    if tiles[-1] == 0:
        return costs, known[4]
    begins = address(x.entries) | address(y.entries)
    vector = features % 4 == 0 and begins % (4 * dtype.itemsize) == 0
    launch(
        costs_source(rule, vector, band is not None), struct_of("CostParams"), int(tiles[-1]),
        _TILE.threads, _TILE.shared(dtype.itemsize), _named(known), x=x.entries, y=y.entries,
        tiles=ends, starts=known[4], costs=costs, features=features, pairs=len(rows),
        band=band or 0, first=first, unit=1,
    )  # fmt: skip
    return costs, known[4]


def _bits(x: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", x))[0])


@functools.lru_cache(maxsize=64)
def costs_source(rule: AlignmentRule, vector: bool, banded: bool) -> str:
    """The text of the kernel that computes costs of several features; see sr::Costs."""
    metric = as_metric({"absolute": "cityblock", "squared": "sqeuclidean"}[rule.cost])
    plan = make_plan(metric.algebra, np.dtype(rule.dtype), None, None, 1)
    word = word_size(plan)
    bounds = f"{_TILE.threads}, {_TILE.blocks * 4 // word}"
    return entry("costs.cuh", struct_of("CostParams"), "Costs::run", bounds, f"""
{algebra(plan)}
using Step = sr::General<Algebra>;
using Costs = sr::Costs<Step, sr::{_TILE.struct()}, {flags(vector, banded)}>;
static_assert(Costs::BYTES == {_TILE.shared(word)}, "as the launch has it");
""")  # fmt: skip
