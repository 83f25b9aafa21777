"""One pass over an operand on the device: its range, or the kinds of its entries."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..plan import Facts, infinite_zero
from ..semirings import Semiring
from . import device
from .device import refuse_capture
from .launch import Launch, entry, launch, prepared, struct_of
from .source import STORAGE, flags, literal
from .views import address, aligned, ascending

__all__ = [
    "facts", "facts_later", "flags_of", "joined_facts", "kinds_source", "scan_source",
]  # fmt: skip

Array = Any

_THREADS, _ITEMS = 256, 8  # sr::Scan's
_BLOCKS = 8  # for each multiprocessor, where ranges are wanted; else one for each operand
_NOTHING = Facts(math.inf, -math.inf, False)


def _scan_type(
    storage: str, missing: int | None, wide: bool, *, kinds: bool, far: bool = False
) -> str:
    """A type sr::Scan, for a dtype by NumPy's name and the integer that stands for "no edge".

    `wide`: 16 bytes can be read at once; `kinds`: the kinds of the entries are wanted, not their
    range, and with `far` very small and very large numbers are one of the kinds.
    """
    result = {"i": "sr::i64", "u": "sr::u64", "b": "sr::u64"}.get(storage[0], "double")
    if storage.startswith("bfloat"):
        result = "double"
    signed = (missing or 0) - (1 << 64 if (missing or 0) >= 1 << 63 else 0)
    return f"""sr::Scan<{STORAGE[storage]}, {result}, {flags(missing is not None)},
                         {literal(signed)}, {flags(wide, kinds, far)}>"""


@functools.cache
def scan_source(storage: str, missing: int | None, wide: bool) -> str:
    """The text of a scan for the range of an array."""
    return entry("scan.cuh", struct_of("ScanParams"), "scan", _THREADS, f"""
using Scan = {_scan_type(storage, missing, wide, kinds=False)};
SR_FN static void scan(const sr::ScanParams& p) {{ Scan::run(p, blockIdx.x, gridDim.x); }}
""")  # fmt: skip


@functools.cache
def kinds_source(storage: str, left_wide: bool, right_wide: bool, far: bool) -> str:
    """The text of a scan for the kinds of the entries of two arrays."""
    left, right = (
        _scan_type(storage, None, wide, kinds=True, far=far) for wide in (left_wide, right_wide)
    )
    return entry("scan.cuh", struct_of("ScanPairParams"), "sr::scan_pair<Left, Right>", _THREADS,
                 f"using Left = {left};\nusing Right = {right};")  # fmt: skip


class _Tasks(NamedTuple):
    """How a scan's blocks go over an array: see sr::ScanParams."""

    wide: bool
    fields: dict[str, int]


def _tasks(place: int, runs: list[tuple[int, int]], size: int) -> _Tasks:
    (column, columns), (row, rows), (batch, batches) = runs
    wide = column == 1 and aligned(
        place, size, (row if rows > 1 else 0, batch if batches > 1 else 0), 16 // size
    )
    chunk = 16 // size if wide else 1
    lanes = min(_THREADS, 1 << (-(-columns // chunk) - 1).bit_length())
    if lanes == _THREADS:  # a block's items lie side by side
        column_step, row_step, span = lanes * chunk, 0, 1
        segments = -(-columns // (_ITEMS * column_step))
    else:  # they lie one below the other
        column_step, row_step, segments = 0, _THREADS // lanes, 1
        span = _ITEMS * row_step
    groups = -(-rows // span)
    tasks = segments * groups * batches
    return _Tasks(wide, {
        "column_stride": column, "row_stride": row, "batch_stride": batch, "columns": columns,
        "rows": rows, "segments": segments, "groups": groups, "tasks": tasks,
        "column_step": column_step, "row_step": row_step, "lanes": lanes,
    })  # fmt: skip


def _shared(x: Array) -> int:
    """Bytes of shared memory of a block."""
    return _THREADS * (24 if x.itemsize == 8 else 12)


@dataclass(frozen=True, kw_only=True)
class _Launch(Launch):
    """That of a scan for the range of an array."""

    begin: int  # bytes from the array's address to its first entry in memory
    result: np.dtype[Any]


def facts(semiring: Semiring, x: Array) -> Facts:
    """Range of an array's entries (up to three dimensions), and whether it holds NaN or "no edge".

    The findings come to the host: this waits for the device.
    """
    return facts_later(semiring, x)()


def facts_later(semiring: Semiring, x: Array) -> Callable[[], Facts]:
    """Launch the search for :func:`facts`; what is returned waits for it, not for later launches.

    The kernel writes to the host's own memory: no copy is launched, and no memory of the device is
    in use that an allocator could give to somebody else meanwhile.
    """
    if x.size == 0:
        return lambda: _NOTHING
    refuse_capture()
    here, place, missing = device.current(), address(x), infinite_zero(semiring, x.dtype)
    key = "facts", x.shape, x.strides, x.dtype, place % 16, missing, here
    scan = prepared(key, lambda: _prepare(here, x, missing))
    ranges = here.host_memory((scan.blocks, 3), scan.result)
    scan.send(a=place + scan.begin, found=ranges)
    reached = here.mark(here.stream())
    device.note(device.Looked(ranges, joined_facts))

    def wait() -> Facts:
        reached()
        return joined_facts(ranges)

    return wait


def joined_facts(ranges: NDArray[Any]) -> Facts:
    """The facts from the range of each block of a scan."""
    lo, hi, odd = ranges[:, 0].min(), ranges[:, 1].max(), bool(ranges[:, 2].any())
    return Facts(lo.item(), hi.item(), odd) if lo <= hi else _NOTHING._replace(special=odd)


def _prepare(here: device.Device, x: Array, missing: int | None) -> _Launch:
    first, runs = ascending(x)
    way = _tasks(first, runs, x.itemsize)
    # short integers, signed or not, are compared as signed ones
    result = np.float64 if x.dtype.kind not in "iub" else np.int64
    return _Launch(
        here.kernel(scan_source(x.dtype.name, missing, way.wide)),
        min(way.fields["tasks"], _BLOCKS * here.sms), _THREADS, _shared(x),
        struct_of("ScanParams"), way.fields, begin=first - address(x),
        result=np.dtype(np.uint64 if x.dtype == np.uint64 else result),
    )  # fmt: skip


def flags_of(a: Array, b: Array, *, far: bool = False) -> Array:
    """The kinds (:data:`.source.KINDS`) of the entries of two arrays of floats, by one launch.

    `far` asks for that kind, too. They are uint32 on the device, to be joined by or; the host does
    not wait for them.
    """
    here, size = device.current(), a.itemsize
    (left, left_runs), (right, right_runs) = ascending(a), ascending(b)
    first, second = _tasks(left, left_runs, size), _tasks(right, right_runs, size)
    same = (left, left_runs) == (right, right_runs)  # the same entries, in any order
    tasks = [way.fields["tasks"] for way in (first, second)]
    blocks = [max(1, min(tasks[0], here.sms)), 0 if same else min(tasks[1], here.sms)]
    source = kinds_source(a.dtype.name, first.wide, second.wide, far)
    flags = device.scratch(sum(blocks), np.uint32)
    at = address(flags)
    ends = at, at + 4 * blocks[0] * (not same)  # of no block: an address within the array still
    one, both = struct_of("ScanParams"), struct_of("ScanPairParams")
    launch(
        source, both, sum(blocks), _THREADS, _shared(a),
        left=one.pack(first.fields, a=left, found=ends[0]),
        right=one.pack(second.fields, a=right, found=ends[1]), left_blocks=blocks[0],
    )  # fmt: skip
    return flags
