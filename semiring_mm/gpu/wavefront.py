"""Alignments on the device: all pairs of sequences in one launch, a block of warps for each."""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..engine import AlignmentRule, Ragged
from . import device
from .source import flags, pack
from .views import address, to_host

__all__ = ["FIELDS", "align", "alignment_source"]

Array = Any

#: The fields of sr::AlignParams, in order: 8 bytes, then 4 bytes each.
_LONGS = """x y x_starts y_starts x_lengths y_lengths table lines out moves path steps progress
    opening gap equal other pairs width""".split()
_INTS = "features letters band parts".split()
FIELDS = (*_LONGS, *_INTS)

_MOST_WARPS = 8  # of a block: below each other, two chunks of 32 columns apart
_ENOUGH = 32  # warps of a multiprocessor, for which pairs may provide
_BLOCKS = 32  # of a multiprocessor, at most
_SHARED = 4  # warps of a block where several share a pair
_WALK = 72 + 2 * 32 * 256  # bytes of shared memory: sr::Alignment's place and tile of moves
_LONGEST = 1 << 30  # entries of a sequence, whose numbers are of 32 bits


def align(
    rule: AlignmentRule, x: Ragged, y: Ragged, band: int | None, gaps: Sequence[float],
    table: Array | None, *, keep: bool,
) -> tuple[Array, Array | None]:  # fmt: skip
    """Costs of pairs of sequences, and a path; see :meth:`semiring_mm.engine.Engine.align`."""
    here, dtype, pairs = device.current(), np.dtype(rule.dtype), len(x.starts)
    xp, most, width = here.xp, int(x.lengths.max()), int(y.lengths.max()) + 1
    if max(most, width) > _LONGEST:
        raise ValueError(f"sequences of more than {_LONGEST} entries are not aligned on a device")
    # rows of a lane: few where that leaves none without any; their costs are in registers
    features = x.entries.shape[1] if x.entries.ndim == 2 else 1
    full = 4 if rule.affine or dtype.itemsize > 4 or features > 1 else 8
    each = min(full, 1 << (max(0, most - 1) // 32).bit_length())
    strips, wanted = max(1, -(-most // (32 * each))), -(-_ENOUGH * here.sms // pairs)
    rounds, parts = -(-strips // min(_MOST_WARPS, strips, wanted)), 1
    warps = -(-strips // rounds)  # about as many strips in the last round as in the others
    if min(strips, wanted) > _MOST_WARPS:  # few pairs, which several blocks share
        warps, parts = _SHARED, -(-strips // _SHARED)
    blocks = min(pairs, _BLOCKS * here.sms) if parts == 1 else pairs * parts
    lines = xp.empty((min(pairs, blocks), 1 + rule.affine, width), dtype)
    out = xp.empty(pairs, dtype)
    places = xp.asarray(np.stack([x.starts, y.starts, x.lengths, y.lengths]))
    progress = xp.zeros(1 + pairs * parts, np.uint32) if parts > 1 else None
    moves = xp.empty((-(-most // each), width), np.uint16) if keep else None
    ends = int(x.lengths[0] + y.lengths[0])  # of a path, at most
    path = xp.empty((2, ends), np.int32) if keep else None
    steps = xp.zeros(1, np.int32) if keep else None
    names = "opening gap equal other".split()
    fields = {
        "x": address(x.entries), "y": address(y.entries), "x_starts": address(places[0]),
        "y_starts": address(places[1]), "x_lengths": address(places[2]),
        "y_lengths": address(places[3]), "table": address(table), "lines": address(lines),
        "out": address(out), "moves": address(moves), "path": address(path),
        "steps": address(steps), "progress": address(progress), "pairs": pairs, "width": width,
        "band": 0 if band is None else min(band, _LONGEST),
        "features": features, "parts": parts,
        "letters": 0 if table is None else len(table),
        **{name: _bits(v) for name, v in zip(names, gaps, strict=True)},
    }  # fmt: skip
    values = [fields[name] for name in FIELDS]
    source = alignment_source(rule, each, features > 1, band is not None, keep)
    params = pack(tuple(values[: len(_LONGS)]), tuple(values[len(_LONGS) :]))
    room = max(warps * dtype.itemsize, _WALK if keep else 0)
    here.kernel(source).launch(blocks, 32 * warps, room, params)
    if steps is None or path is None:
        return out, None
    count = int(to_host(steps)[0])
    return out, to_host(path)[:, :count].T[::-1].astype(np.int64)  # it was walked from its end


def _bits(x: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", x))[0])


@functools.lru_cache(maxsize=256)
def alignment_source(rule: AlignmentRule, rows: int, many: bool, banded: bool, keep: bool) -> str:
    """The text of the kernel; see sr::Alignment."""
    entry = {"f4": "float", "f8": "double"}[rule.dtype]
    given = flags(many, rule.warp, rule.affine, rule.local, banded, keep)
    return f"""#include "wavefront.cuh"
using Alignment = sr::Alignment<{entry}, sr::COST_{rule.cost.upper()}, {rows}, {given}>;
extern "C" __global__ void __launch_bounds__({32 * max(_MOST_WARPS, _SHARED)})
kernel(const __grid_constant__ sr::AlignParams p) {{
  Alignment::run(p);
}}
"""
