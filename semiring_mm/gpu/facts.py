"""One pass over an operand on the device: its range, or the kinds of its entries."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..plan import Facts, infinite_zero
from ..semirings import Semiring
from . import device
from .device import refuse_capture
from .source import STORAGE, pack
from .views import address, aligned, ascending, to_host_later

__all__ = ["facts", "facts_beside", "flags_of", "kinds_source", "scan_source"]

Array = Any
T = TypeVar("T")

_THREADS, _ITEMS = 256, 8  # sr::Scan's
_BLOCKS = 8  # for each multiprocessor, where ranges are wanted; else one for each operand
_NOTHING = Facts(math.inf, -math.inf, False)


def _scan_type(
    storage: str, missing: int | None, wide: bool, *, kinds: bool, far: bool = False
) -> str:
    """A type sr::Scan.

    Parameters
    ----------
    storage : str
        NumPy's name of the array's dtype.
    missing : int, optional
        The integer that stands for "no edge".
    wide : bool
        Whether 16 bytes can be read at once.
    kinds : bool
        Whether the kinds of the entries are wanted, not their range.
    far : bool
        Whether very small and very large numbers are one of the kinds.
    """
    result = {"i": "sr::i64", "u": "sr::u64", "b": "sr::u64"}.get(storage[0], "double")
    if storage.startswith("bfloat"):
        result = "double"
    signed = (missing or 0) - (1 << 64 if (missing or 0) >= 1 << 63 else 0)
    flags = ", ".join("true" if x else "false" for x in (wide, kinds, far))
    return f"""sr::Scan<{STORAGE[storage]}, {result}, {"true" if missing is not None else "false"},
                         {f"-{-signed - 1}ll - 1" if signed < 0 else f"{signed}ll"}, {flags}>"""


@functools.cache
def scan_source(storage: str, missing: int | None, wide: bool) -> str:
    """The text of a scan for the range of an array."""
    return f"""#include "scan.cuh"
using Scan = {_scan_type(storage, missing, wide, kinds=False)};
extern "C" __global__ void __launch_bounds__({_THREADS})
kernel(const __grid_constant__ sr::ScanParams p) {{
  Scan::run(p, blockIdx.x, gridDim.x);
}}
"""


@functools.cache
def kinds_source(storage: str, left_wide: bool, right_wide: bool, far: bool) -> str:
    """The text of a scan for the kinds of the entries of two arrays."""
    left, right = (
        _scan_type(storage, None, wide, kinds=True, far=far) for wide in (left_wide, right_wide)
    )
    return f"""#include "scan.cuh"
using Left = {left};
using Right = {right};
extern "C" __global__ void __launch_bounds__({_THREADS})
kernel(const __grid_constant__ sr::ScanPairParams p) {{
  sr::scan_pair<Left, Right>(p);
}}
"""


class _Tasks(NamedTuple):
    """How a scan's blocks go over an array: see sr::ScanParams."""

    wide: bool
    tasks: int
    longs: tuple[int, ...]
    lanes: int


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
    longs = (column, row, batch, columns, rows, segments, groups, tasks, column_step, row_step)
    return _Tasks(wide, tasks, longs, lanes)


def _shared(x: Array) -> int:
    """Bytes of shared memory of a block."""
    return _THREADS * (24 if x.itemsize == 8 else 12)


_scans: dict[Any, tuple[int, _Tasks]] = {}  # by shape, strides and alignment


def _ranges(x: Array, missing: int | None) -> Array:
    """Launch a scan that writes a range for each block."""
    here, place = device.current(), address(x)
    key = (x.shape, x.strides, x.itemsize, place % 16)
    seen = _scans.get(key)
    if seen is None:
        if len(_scans) >= 4096:
            _scans.clear()
        first, runs = ascending(x)
        seen = _scans[key] = (first - place, _tasks(first, runs, x.itemsize))
    place, way = place + seen[0], seen[1]
    blocks = min(way.tasks, _BLOCKS * here.sms)
    # short integers, signed or not, are compared as signed ones
    wide = np.float64 if x.dtype.kind not in "iub" else np.int64
    found = here.xp.empty((blocks, 3), np.uint64 if x.dtype == np.uint64 else wide)
    params = pack((place, address(found), *way.longs), (way.lanes,))
    kernel = here.kernel(scan_source(x.dtype.name, missing, way.wide))
    kernel.launch(blocks, _THREADS, _shared(x), params)
    return found


def facts(semiring: Semiring, x: Array) -> Facts:
    """Range of an array's entries (up to three dimensions), and whether it holds NaN or "no edge".

    The findings come to the host: this waits for the device.
    """
    return _facts_later(semiring, x)()


def facts_beside(
    semiring: Semiring, x: Array, launch: Callable[[], T]
) -> tuple[T, Callable[[], Facts]]:
    """What `launch` returns, and a call that waits for the facts, but not for what was launched.

    The device finds them on a stream of their own, after what was on the current one before.
    """
    if isinstance(x, np.ndarray):
        return launch(), _facts_later(semiring, x)
    refuse_capture()
    import cupy

    before, side = cupy.cuda.get_current_stream().record(), _side(cupy.cuda.runtime.getDevice())
    result = launch()
    side.wait_event(before)
    with side:
        return result, _facts_later(semiring, x)


@functools.cache
def _side(index: int) -> Any:
    """A stream of a device, for short work beside long."""
    import cupy

    with cupy.cuda.Device(index):
        return cupy.cuda.Stream(non_blocking=True)


def _facts_later(semiring: Semiring, x: Array) -> Callable[[], Facts]:
    """The facts, whose search begins now: the call that is returned waits for them."""
    if x.size == 0:
        return lambda: _NOTHING
    refuse_capture()  # before memory is taken
    ranges = _ranges(x, infinite_zero(semiring, x.dtype))
    arrive = to_host_later(ranges)

    def wait() -> Facts:
        found = arrive()
        assert ranges.size  # held until now: another stream's memory may be taken at once
        lo, hi, odd = found[:, 0].min(), found[:, 1].max(), bool(found[:, 2].any())
        if lo > hi:
            return Facts(math.inf, -math.inf, odd)
        return Facts(lo.item(), hi.item(), odd)

    return wait


def flags_of(a: Array, b: Array, *, far: bool = False) -> Array:
    """The kinds (:data:`.source.KINDS`) of the entries of two arrays of floats, by one launch.

    `far` asks for that kind, too.

    Returns
    -------
    flags : device array of uint32
        To be joined by or. The host does not wait for it.
    """
    here, size = device.current(), a.itemsize
    (left, left_runs), (right, right_runs) = ascending(a), ascending(b)
    first, second = _tasks(left, left_runs, size), _tasks(right, right_runs, size)
    same = (left, left_runs) == (right, right_runs)  # the same entries, in any order
    blocks = [max(1, min(first.tasks, here.sms)), 0 if same else min(second.tasks, here.sms)]
    kernel = here.kernel(kinds_source(a.dtype.name, first.wide, second.wide, far))
    flags = device.scratch(sum(blocks), np.uint32)
    at = address(flags)
    ends = at, at + 4 * blocks[0] * (not same)  # of no block: an address within the array still
    params = b"".join(
        pack((place, found, *way.longs), (way.lanes,))
        for place, found, way in zip((left, right), ends, (first, second), strict=True)
    ) + pack((blocks[0],), ())
    words = len(params) // 16  # of one array's parameters
    kernel.launch(sum(blocks), _THREADS, _shared(a), params, (0, 1, words, words + 1))
    return flags
