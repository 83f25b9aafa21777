"""One pass over an operand: its range, and whether NaN or the integer "no edge" is in it."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..kernel import Kernel
from ..plan import Facts, Plan, infinite_zero
from ..semirings import Semiring, semirings
from . import team
from .codegen import Compiled, compiled
from .compiler import KEPT, host_target
from .kernels import facts as kernels

__all__ = [
    "CLASSES", "class_of", "class_scan", "coarse_facts", "facts", "facts_later", "facts_of_class",
]  # fmt: skip

Array = NDArray[Any]

CLASSES = 64
_SHARE = 512 << 10  # bytes that pay for one more thread


def facts_later(semiring: Semiring, x: Array) -> Callable[[], Facts]:
    """A call that returns :func:`facts`."""
    return functools.partial(facts, semiring, x)


def facts(semiring: Semiring, x: Array) -> Facts:
    """Range of an array's entries (any shape), and whether it holds NaN or an integer "no edge"."""
    call, known = _compiled(kernels.facts, semiring, x.dtype)
    parts = _parts(x)
    workers = x.nbytes // _SHARE
    if workers > 1 and (workers := min(workers, pool.get_num_threads())) > 1:
        with team.lease(workers - 1) as leased:
            workers = len(leased) + 1
            parts = [y for part in parts for y in _cut(part, workers * part.nbytes // x.nbytes)]
            outs = [np.empty(3, call.dtypes["out"]) for _ in parts]
            calls = [
                call.bind(out=out, layers=len(part), **_fields(part), **known)
                for part, out in zip(parts, outs, strict=True)
            ]
            team.call_each(calls[0].code, [(one.block,) for one in calls[:workers]], leased)
            for one in calls[workers:]:
                one()
    else:
        outs = []
        for part in parts:
            outs.append(np.empty(3, call.dtypes["out"]))
            call(out=outs[-1], layers=len(part), **_fields(part), **known)
    lo, hi, special = math.inf, -math.inf, 0
    for out in outs:
        least, most, odd = out.tolist()
        lo, hi, special = min(least, lo), max(most, hi), special or odd
    return Facts(lo, hi, bool(special)) if lo <= hi else Facts(math.inf, -math.inf, bool(special))


def _parts(x: Array) -> list[Array]:
    """An array of any shape as arrays of three axes."""
    if not x.size:
        return []
    if x.ndim < 3:
        return [x[np.newaxis] if x.ndim == 2 else x.reshape(1, 1, -1)]
    if x.ndim == 3:
        return [x]
    if x.flags.c_contiguous:
        return [x.reshape(1, -1, x.shape[-1])]
    return [y for part in x for y in _parts(part)]


def _cut(x: Array, pieces: int) -> list[Array]:
    axis = max(range(x.ndim), key=x.shape.__getitem__)
    cuts = np.linspace(0, x.shape[axis], max(1, min(pieces, x.shape[axis])) + 1).astype(int)
    before = (slice(None),) * axis
    return [x[*before, i:j] for i, j in itertools.pairwise(cuts.tolist())]


def _fields(x: Array) -> dict[str, Any]:
    """Matrices as kernels take them: along the shorter strides, which may be negative."""
    if not x.flags.c_contiguous:
        x = x if x.flags.aligned else x.copy()
        if x.strides[-1] != x.itemsize and abs(x.strides[-2]) < abs(x.strides[-1]):
            x = x.swapaxes(-1, -2)
    *_, rows, columns = x.shape
    if x.strides[-1] == x.itemsize:
        return {"rows": rows, "columns": columns, "x": x, "apart": None}
    return {"rows": rows, "columns": columns, "x": None, "apart": x[..., np.newaxis]}


@functools.lru_cache(maxsize=KEPT)
def _compiled(
    kernel: Kernel, semiring: Semiring, dtype: np.dtype[Any]
) -> tuple[Compiled, dict[str, Any]]:
    """A kernel for arrays of a dtype, and those of its parameters that follow from that."""
    kind, bits = dtype.kind, 8 * dtype.itemsize
    whole = kind in "iub"
    compute = f"{'i' if kind == 'i' else 'u'}{bits}" if whole else f"f{max(bits, 32)}"
    add, mul = semirings["min_plus"].add_expr, semirings["min_plus"].mul_expr
    plan = Plan(add, mul, dtype.name, compute)  # of which the types count
    of = np.iinfo(plan.computed_in) if whole else None
    known = {
        "count": host_target().vector_bytes // plan.computed_in.itemsize,
        "lowest": of.max if of else math.inf, "highest": of.min if of else -math.inf,
        "missing": infinite_zero(semiring, dtype),
    }  # fmt: skip
    return compiled(kernel, plan), known


def coarse_facts(semiring: Semiring, x: Array) -> Facts:
    """:func:`facts`; of floats as coarse as a plan needs them, so that few plans are looked up."""
    if x.dtype.kind != "f":
        return facts(semiring, x)
    if x.ndim == 2 and 0 < x.nbytes < 2 * _SHARE:
        return facts_of_class(class_scan(semiring, x)(x), x.dtype)
    return facts_of_class(class_of(facts(semiring, x), x.dtype), x.dtype)


_scans: dict[tuple[Any, ...], Callable[[Array], int]] = {}


def class_scan(semiring: Semiring, like: Array) -> Callable[[Array], int]:
    """:func:`class_of` matrices that lie as one does, compiled."""
    key = semiring, like.dtype, like.shape, like.strides, like.flags.aligned
    scan = _scans.get(key)
    if scan is None:
        if len(_scans) >= KEPT:
            _scans.clear()
        scan = _scans[key] = _class_scan(semiring, like)
    return scan


def _class_scan(semiring: Semiring, like: Array) -> Callable[[Array], int]:
    call, known = _compiled(kernels.class_of, semiring, like.dtype)
    fields = _fields(like) | known | {"whole": like.dtype.kind in "iu"}
    name = "apart" if fields["x"] is None else "x"
    scan = call.function_of(name, **fields)
    if fields[name] is like:
        return scan
    if name == "x" and like.flags.aligned:
        return lambda x: scan(x.T)
    return lambda x: scan(_fields(x)[name])


def class_of(x: Facts, dtype: np.dtype[Any]) -> int:
    """The class, below ``CLASSES``, of arrays whose ranges are alike: one plan serves them all.

    Floats: which ends of the range are infinite, zero, or of which sign. Integers: how many bits
    the entries need, and whether one is negative. Both: whether NaN or "no edge" is there.
    """
    if dtype.kind in "iu":
        lo, hi = x.interval()
        most = max(hi, ~lo) if lo < 0 else hi
        number = 2 * sum(most >> bits != 0 for bits in kernels.BITS[:-1]) + (lo < 0)
    else:
        low, high = x.lo, x.hi
        number = 5 * ((low > -math.inf) + (low >= 0) + (low > 0) + (low == math.inf))
        number += (high > -math.inf) + (high >= 0) + (high > 0) + (high == math.inf)
    return 2 * number + x.special


@functools.lru_cache(maxsize=KEPT)
def facts_of_class(number: int, dtype: np.dtype[Any]) -> Facts:
    """The widest range of a class."""
    if dtype.kind in "iu":
        info, most = np.iinfo(dtype), 1 << kernels.BITS[number >> 2]
        lo = max(int(info.min), -most) if number >> 1 & 1 else 0
        return Facts(lo, min(int(info.max), most - 1), bool(number & 1))
    ends = -math.inf, -1.0, 0.0, 1.0, math.inf
    return Facts(ends[(number >> 1) // 5], ends[(number >> 1) % 5], bool(number & 1))
