"""Closures of small matrices on the device, one block of threads for each."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..expressions import joins
from ..naming import named
from ..plan import Facts, Plan, bytewise, make_plan
from ..semirings import Semiring
from . import device
from .source import algebra, pack, word_size
from .views import address, strides, wide_along

__all__ = ["BASE", "closure_batch", "closure_block", "closure_source", "shape"]

Array = Any
Known = tuple[Facts, Facts, Facts]

#: Rows of the largest block that :func:`closure_block` takes.
BASE = 128


class Shape(NamedTuple):
    """Which kernel closes a matrix: in registers, or in shared memory where `side` is 0.

    Parameters
    ----------
    side, entries : int
        A block is side x side threads with entries x entries of the matrix each; or else `entries`
        is the number of columns that a lane has.
    threads, shared : int
        Threads of a block, and bytes of its shared memory.
    """

    side: int
    entries: int
    threads: int
    shared: int


#: Threads and entries a side of the kernels in registers, smallest first. Where matrices are few,
#: many threads with few entries each wait least.
_ALONE = ((8, 4), (16, 4), (24, 4), (16, 8))
_MANY = ((8, 4), (8, 8), (12, 8), (16, 8))
_LARGE = ((20, 8), (24, 8))  # where there is one word to an entry


def shape(n: int, word: int, marks: bool, *, alone: bool) -> Shape:
    """The shape for matrices of n rows; `alone` where there are too few to fill the device."""
    single = word == 4 and not marks
    for side, entries in (*(_MANY if single and not alone else _ALONE), *(_LARGE * single)):
        if n <= side * entries:
            line = side * entries * (2 * word + 4 * marks)  # row k, column k, marks of row k
            return Shape(side, entries, side * side, 2 * line)
    return Shape(0, -(-n // 32), 1024, n * (n + 2) * word + (4 * n * n if marks else 0))


@functools.lru_cache(maxsize=1024)
def closure_source(
    plan: Plan, side: int, entries: int, wide: bool, fresh: bool, marks: bool
) -> str:
    """The text of the kernel; see sr::ClosureTile and sr::ClosureShared."""
    nans = marks and plan.keep_nan
    flags = ", ".join("true" if x else "false" for x in (wide, fresh, marks, nans)[side == 0 :])
    body = f"ClosureTile<Algebra, {side}" if side else "ClosureShared<Algebra"
    return f"""#include "closure.cuh"
{algebra(plan)}
using Closure = sr::{body}, {entries}, {flags}>;
extern "C" __global__ void __launch_bounds__({side * side or 1024})
kernel(const __grid_constant__ sr::ClosureParams p) {{
  Closure::run(p);
}}
"""


@functools.lru_cache(maxsize=1024)
def _plan(semiring: Semiring, dtype: np.dtype[Any], known: Known | None, depth: int) -> Plan:
    fa, fb, fc = known or (None, None, None)
    plan = make_plan(semiring, dtype, fa, fb, depth, c=fc)
    if plan.codec == "bits":
        plan = bytewise(plan)
    # what is closed stays within the ranges that are known
    return replace(plan, check=False, annihilate=plan.annihilate or _drifts(plan, known))


def _drifts(plan: Plan, known: Known | None) -> bool:
    """Whether sums with infinity could become better than infinity, step by step."""
    if plan.codec != "sentinel":
        return False
    if known is None or joins(plan.mul) != "+":
        return True
    if plan.infinite > 0:
        return any(x.lo < 0 for x in known if x.lo <= x.hi)
    return any(x.hi > 0 for x in known if x.lo <= x.hi)


def closure_block(
    semiring: Semiring, a: Array, known: Known | None, predecessors: Array | None = None
) -> None:
    """A ← A* in place for a matrix of at most :data:`BASE` rows with one on its diagonal.

    With predecessors (and a selective ⊕) P[i, j] takes P[k, j] where an entry strictly improves.
    """
    if not _close(semiring, a, known, a, predecessors, fresh=False):
        raise MemoryError(
            f"a block of {a.shape[-1]} rows in {a.dtype} does not fit the shared memory of this "
            f"device; use {named('device', 'cpu')}, or a narrower dtype"
        )


def closure_batch(
    semiring: Semiring, a: Array, known: Known | None, out: Array, predecessors: Array | None = None
) -> bool:
    """Out ← (I ⊕ A)* for each of a stack of matrices (batch, n, n); `out` may be `a`.

    With predecessors (and a selective ⊕) P[i, j] becomes the node before j on a path from i, or
    -9999.

    Returns
    -------
    bool
        False, and nothing is done, if n is too large for one launch.
    """
    return _close(semiring, a, known, out, predecessors, fresh=True)


def _close(
    semiring: Semiring, a: Array, known: Known | None, out: Array, predecessors: Array | None, *,
    fresh: bool,
) -> bool:  # fmt: skip
    n, batch = a.shape[-1], a.shape[0] if a.ndim == 3 else 1
    if a.size == 0:
        return True
    depth = n if a.dtype.kind in "iu" else 1  # else it does not matter
    plan = _plan(semiring, a.dtype, known, depth)
    here = device.current()
    marks = predecessors is not None
    way = shape(n, word_size(plan), marks, alone=batch <= here.sms)
    if way.shared > here.shared_limit:
        return False
    steps = [(0, 0, 0) if x is None else strides(x) for x in (a, out, predecessors)]
    wide = way.side > 0 and all(x is None or wide_along(x, -1) for x in (a, out, predecessors))
    ends = (_bits(x, a.dtype) for x in semiring.identities(a.dtype))
    params = pack((*map(address, (a, out, predecessors)), *sum(steps, ()), *ends), (n,))
    source = closure_source(plan, way.side, way.entries, wide, fresh, marks)
    here.kernel(source).launch(batch, way.threads, way.shared, params)
    return True


def _bits(x: Any, dtype: np.dtype[Any]) -> int:
    return int.from_bytes(np.array(x, dtype).tobytes().ljust(8, b"\0"), "little", signed=True)
