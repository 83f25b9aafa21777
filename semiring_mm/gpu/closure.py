"""Closures on the device in one launch: of small matrices by a block each, of others by tiles."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..expressions import joins
from ..plan import Facts, Plan, can_use_keys, closure_plan, with_keys
from ..semirings import Semiring
from . import device, trees
from .launch import Launch, entry, prepared, struct_of
from .source import KINDS, algebra, flags, steps, word_size
from .tiles import Tile
from .trees import closed_plan
from .views import address, bits_of, layouts, stride_fields, wide_along

__all__ = [
    "BASE", "BATCH", "LEAF", "closure_batch", "closure_block", "elimination_source", "shape",
]  # fmt: skip

Array = Any
Known = tuple[Facts, Facts, Facts]

#: Multiples of so many rows divide a larger matrix.
BASE = 128
#: Rows of the largest matrix that is closed in one launch: above, products of large blocks are
#: faster.
LEAF = BATCH = 2048


class Shape(NamedTuple):
    """The block that closes a small matrix: side x side threads with entries x entries each."""

    side: int
    entries: int


#: Smallest first. Where matrices are few, many threads with few entries each wait least.
_ALONE = (Shape(8, 4), Shape(16, 4), Shape(24, 4), Shape(16, 8))
_MANY = (Shape(8, 4), Shape(8, 8), Shape(12, 8), Shape(16, 8))
_LARGE = (Shape(20, 8), Shape(24, 8))  # where there is one word to an entry


def shape(n: int, word: int, marks: bool, *, alone: bool) -> Shape | None:
    """The block for matrices of n rows, or None; `alone`: they are too few to fill the device."""
    single = word == 4 and not marks
    shapes = (*(_MANY if single and not alone else _ALONE), *(_LARGE * (single and not alone)))
    return next((x for x in shapes if n <= x.side * x.entries), None)


def closure_block(
    semiring: Semiring, a: Array, known: Known | None, predecessors: Array | None = None
) -> None:
    """A ← A* in place; see :meth:`semiring_mm.engine.Engine.closure_block`."""
    _close(semiring, a, known, a, predecessors, fresh=False)


def closure_batch(
    semiring: Semiring, a: Array, known: Known | None, out: Array, predecessors: Array | None = None
) -> Array | bool:
    """Out ← (I ⊕ A)*; see :meth:`semiring_mm.engine.Engine.closure_batch`. `out` may be `a`.

    Returns what :func:`.trees.predecessors` does, if these were found from the closure, or True.
    """
    found = _close(semiring, a, known, out, predecessors, fresh=True)
    return True if found is None else found


@dataclass(frozen=True)
class _Launch(Launch):
    """That of a closure, and its intermediate results."""

    panels: int = 0  # bytes of panels
    progress: int = 0  # words
    side: int = 0  # of tiles
    grain: int = 0  # nodes whose changes are noted together, or 0: see sr::Elimination


def _close(
    semiring: Semiring, a: Array, known: Known | None, out: Array, predecessors: Array | None, *,
    fresh: bool,
) -> Array | None:  # fmt: skip
    if a.size == 0:
        return None
    here = device.current()
    arrays = (a, out, predecessors)
    key = ("closure", here, semiring, a.dtype, known, fresh, *layouts(*arrays))
    launch = prepared(key, lambda: _prepare(here, semiring, a, known, out, predecessors, fresh))
    if not launch.panels:
        launch.send({"from": a, "a": out, "preds": predecessors})
        return None
    weights = a
    if predecessors is not None and address(a) == address(out):
        weights = device.scratch(a.shape, a.dtype)
        weights[...] = a
    panels = device.scratch(launch.panels)
    pitch, each = launch.fields["pitch"], launch.fields["batch"]  # matrices of a launch
    changes = device.scratch((*a.shape[:-1], pitch), np.uint16) if launch.grain else None
    progress = device.scratch(launch.progress, np.uint32, zero=True)
    for first in range(0, len(a) if a.ndim == 3 else 1, each):
        if first:
            device.fill(progress, 0)
        count = min(each, len(a) - first) if a.ndim == 3 else 1
        at, to, marks = (x if x is None or not first else x[first:] for x in (a, out, changes))
        launch.send({"from": at, "a": to}, panels=panels, progress=progress, changes=marks,
                    batch=count)  # fmt: skip
    if predecessors is None:
        return None
    return trees.predecessors(
        semiring, weights, out, predecessors, known, fresh=fresh, changes=changes,
        grain=launch.grain, side=launch.side,
    )  # fmt: skip


def _prepare(
    here: device.Device, semiring: Semiring, a: Array, known: Known | None, out: Array,
    predecessors: Array | None, fresh: bool,
) -> _Launch:  # fmt: skip
    n, batch = a.shape[-1], a.shape[0] if a.ndim == 3 else 1
    depth = n if a.dtype.kind in "iu" else 1  # else it does not matter
    plan = closed_plan(semiring, a.dtype, known, depth)
    marks, word = predecessors is not None, word_size(plan)
    zero, one = (bits_of(x, a.dtype) for x in semiring.identities(a.dtype))
    fields = {
        **stride_fields("from", a),
        **stride_fields("a", out),
        "zero": zero,
        "one": one,
        "n": n,
    }
    small = shape(n, word, marks, alone=batch <= here.sms)
    if small is not None:
        arrays = (a, out, predecessors)
        wide = all(x is None or wide_along(x, -1) for x in arrays)
        if predecessors is not None:
            fields |= stride_fields("pred", predecessors)
        side = small.side * small.entries
        shared = 2 * side * (2 * word + 4 * marks)  # row k, column k, predecessors of row k; twice
        given = flags(wide, fresh, marks, marks and plan.keep_nan)
        run = f"sr::ClosureTile<Algebra, {small.side}, {small.entries}, {given}>::run"
        params, threads = struct_of("ClosureParams"), small.side**2
        kernel = here.kernel(entry("closure.cuh", params, run, threads, algebra(plan)))
        return _Launch(kernel, batch, threads, shared, params, fields)
    wide = wide_along(a, -1) and wide_along(out, -1)
    noted = marks and fresh and trees.splits(semiring, a.dtype, n)
    tile = _TILES[word > 4]
    if _shared(tile, word, noted) > here.shared_limit:
        tile = _LEAST
    tiles = -(-n // tile.bm)
    size = _RING * tiles * tile.bm**2 * 2 * word  # bytes of the panels of a matrix
    each = min(batch, max(1, _PANELS // size))
    way = _way(semiring, a.dtype, known, depth, here.arch)
    tasks = each * tiles * tiles  # at once, at most
    blocks = min(tile.blocks if tasks > _FEW * here.sms else 1, tile.blocks) * here.sms
    fields |= {
        "batch": each, "tiles": tiles, "ahead": _AHEAD * here.sms, "unit": 1,
        "pitch": -(-n // 4) * 4,
    }  # fmt: skip
    return _Launch(
        here.kernel(elimination_source(way, tile, wide, fresh, noted)), min(blocks, tasks),
        tile.threads, _shared(tile, word, noted), struct_of("EliminationParams"), fields,
        panels=each * size, progress=1 + each * (1 + tiles + tiles * tiles), side=tile.bm,
        grain=min(tile.bm, _GRAIN) * noted,
    )  # fmt: skip


# --- matrices of many tiles ---------------------------------------------------------------------

#: The tiles of sr::Elimination: where an entry is a word of 4 bytes, and where it is more; for less
#: shared memory.
_TILES = (Tile(64, 64, 64, 4, 4, 8, 3), Tile(64, 64, 64, 4, 4, 8, 2))
_LEAST = Tile(32, 32, 32, 4, 4, 8, 2)
_GRAIN = 64  # nodes, at most, whose changes are noted together
_RING = 3  # rounds whose panels are kept
_AHEAD = 5  # updates before the panels of the next round, for each multiprocessor
_PANELS = 1 << 28  # bytes of the panels of a launch, but for a single matrix
_FEW = 3  # tiles of a launch for each multiprocessor, where one block each is faster


class Way(NamedTuple):
    """How updates are computed, and the plan of the pivots."""

    plan: Plan
    step: str
    pivot: Plan


@functools.lru_cache(maxsize=1024)
def _way(
    semiring: Semiring, dtype: np.dtype[Any], known: Known | None, depth: int, arch: int
) -> Way:
    """The fastest way that is right for all that is known of the entries."""
    closed = closed_plan(semiring, dtype, known, depth)
    plan = closure_plan(semiring, dtype, known, depth, annihilate=False)
    ordered, keys = replace(plan, keep_nan=False), None
    if can_use_keys(ordered):
        keys = with_keys(ordered)
    seen = sum(KINDS.values())
    if known is not None and known[0] is not None:
        seen = sum(KINDS[x] for x in known[0].kinds() | known[1].kinds())
    found = steps(plan, keys, arch, arg=True)  # one column to a word
    way, step = next(x for x in found if not x[1].forbidden & seen)
    return Way(way, step.name, way if way.codec == "key" else closed)


@functools.lru_cache(maxsize=1024)
def elimination_source(way: Way, tile: Tile, wide: bool, fresh: bool, changes: bool = False) -> str:
    """The text of the kernel; see sr::Elimination."""
    pivot, shared = way.pivot, _shared(tile, word_size(way.plan), changes)
    stops = pivot.compute[0] == "i" and pivot.codec in ("plain", "sentinel")
    stops = stops and joins(pivot.add) in ("min", "max")
    given = flags(wide, fresh, stops, changes)
    bounds = f"{tile.threads}, {tile.blocks}"
    return entry("elimination.cuh", struct_of("EliminationParams"), "Closure::run", bounds, f"""
{algebra(way.plan)}
namespace pivot {{
{algebra(pivot)}
}}
using Step = sr::{way.step}<Algebra>;
using Closure = sr::Elimination<Step, pivot::Algebra, sr::{tile.struct()}, {given}>;
static_assert(Closure::BYTES == {shared}, "as the launch has it");
static_assert(Closure::RING == {_RING}, "as the launch has it");
static_assert(Closure::GRAIN == {min(tile.bm, _GRAIN)}, "as the launch has it");
""")  # fmt: skip


def _shared(tile: Tile, word: int, changes: bool) -> int:
    """Bytes of shared memory: operands, the lines of a pivot, the ticket, entries as they were."""
    side = tile.bm
    return side * (side + 4) * 2 * word + 4 * side * word + 16 + side * side * word * changes
