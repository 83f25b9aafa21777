"""One pass over an operand on the device: its range, or the kinds of its entries."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from ..plan import Facts, infinite_zero
from ..semirings import Semiring
from . import device
from .source import STORAGE, pack
from .views import address, aligned, ascending, to_host

__all__ = ["facts", "flags_of", "scan_source"]

Array = Any

_THREADS, _ITEMS = 256, 8  # sr::Scan's
_BLOCKS = 8  # for each multiprocessor
_NOTHING = Facts(math.inf, -math.inf, False)


@functools.cache
def scan_source(
    storage: str, missing: int | None, wide: bool, kinds: bool, far: bool = False
) -> str:
    """The text of a scan.

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
    return f"""#include "scan.cuh"
using Scan = sr::Scan<{STORAGE[storage]}, {result}, {"true" if missing is not None else "false"},
                      {f"-{-signed - 1}ll - 1" if signed < 0 else f"{signed}ll"}, {flags}>;
extern "C" __global__ void __launch_bounds__({_THREADS})
kernel(const __grid_constant__ sr::ScanParams p) {{
  Scan::run(p);
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


def _scan(x: Array, missing: int | None, found: Array | None, far: bool = False) -> Array:
    """Launch a scan that joins kinds into `found`, or writes one range for each block."""
    here = device.current()
    place, runs = ascending(x)
    way = _tasks(place, runs, x.itemsize)
    blocks = min(way.tasks, _BLOCKS * here.sms)
    source = scan_source(x.dtype.name, missing, way.wide, found is not None, far)
    if found is None:
        # short integers, signed or not, are compared as signed ones
        wide = np.float64 if x.dtype.kind not in "iub" else np.int64
        found = here.xp.empty((blocks, 3), np.uint64 if x.dtype == np.uint64 else wide)
    shared = _THREADS * (24 if x.itemsize == 8 else 12)
    params = pack((place, address(found), *way.longs), (way.lanes,))
    here.kernel(source).launch(blocks, _THREADS, shared, params)
    return found


def facts(semiring: Semiring, x: Array) -> Facts:
    """Range of an array's entries (up to three dimensions), and whether it holds NaN or "no edge".

    The findings come to the host: this waits for the device.
    """
    if x.size == 0:
        return _NOTHING
    found = to_host(_scan(x, infinite_zero(semiring, x.dtype), None))
    lo, hi, odd = found[:, 0].min(), found[:, 1].max(), bool(found[:, 2].any())
    if lo > hi:
        return Facts(math.inf, -math.inf, odd)
    return Facts(lo.item(), hi.item(), odd)


def flags_of(semiring: Semiring, a: Array, b: Array, *, far: bool = False) -> Array:
    """The kinds (:data:`.source.KINDS`) of all entries of two arrays of floats, joined.

    `far` asks for that kind, too.

    Returns
    -------
    flags : device array of one uint32
        The host does not wait for it.
    """
    flags = device.current().xp.zeros(1, np.uint32)
    for x in (a,) if _same(a, b) else (a, b):
        if x.size:
            _scan(x, None, flags, far)
    return flags


def _same(a: Array, b: Array) -> bool:
    """Whether two views hold the same entries, in any order."""
    return ascending(a) == ascending(b)
