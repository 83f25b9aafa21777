"""Predecessors on the device: found from distances, and rows of them that may not be trees."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..plan import Facts, Plan, closure_plan
from ..semirings import Semiring
from . import device
from .launch import entry, launch, struct_of
from .source import algebra, flags, word_size
from .views import bits_of, stride_fields, strides, to_host, wide_along

__all__ = ["closed_plan", "doubtful", "predecessors", "splits"]

Array = Any
Known = tuple[Facts, Facts, Facts]

_THREADS = 256  # of the kernels of trees.cuh
_SIDE, _WARPS = 32, 8  # sr::Trees'
_MANY = 128  # tight edges into a node, above which the changes of an elimination are used
_STRIP = 1 << 28  # bytes of distances by columns, but for a few rows
#: The distance from 1 to the next number, and how many of it equally good paths may differ by.
_EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
_UNITS = 16


@functools.lru_cache(maxsize=1024)
def closed_plan(semiring: Semiring, dtype: np.dtype[Any], known: Known | None, depth: int) -> Plan:
    """The plan of a closure whose entries, at all times, are in the ranges that are known."""
    plan = closure_plan(semiring, dtype, known, depth, annihilate=False)
    return replace(plan, annihilate=plan.annihilate or _drifts(plan, known))


def _drifts(plan: Plan, known: Known | None) -> bool:
    """Whether sums with infinity could become better than infinity, step by step."""
    if plan.codec != "sentinel":
        return False
    assert known is not None  # integers have ranges, and are added, in closures: see Weights
    if plan.infinite > 0:
        return any(x.lo < 0 for x in known if x.lo <= x.hi)
    return any(x.hi > 0 for x in known if x.lo <= x.hi)


def predecessors(
    semiring: Semiring, weights: Array, closed: Array, p: Array, known: Known | None, *,
    fresh: bool = True, changes: Array | None = None, grain: int = 0, side: int = 0,
) -> Array:  # fmt: skip
    """Predecessors from a closure: see :meth:`semiring_mm.engine.Trees.predecessors`.

    Unless they are `fresh`: P has the predecessors of the weights, and P[i, j] takes P[k, j] for
    the last node k of the matrix before j. `changes`, uint16 of shape (..., n, pitch), has for each
    column which `grain` nodes changed its entries last in an elimination by tiles of `side` rows;
    with them nodes that many tight edges lead to take little time. The result has a byte for each
    row, which is 0 where fresh predecessors are known to be trees.

    O(n² t) pairs if t tight edges (whose weight is the distance of their ends) lead to a node.
    """
    here, n = device.current(), p.shape[-1]
    plan = closed_plan(semiring, closed.dtype, known, n if closed.dtype.kind in "iu" else 1)
    size, words, across = closed.dtype.itemsize, -(-n // 32), -(-n // _SIDE)
    height = 1024 // word_size(plan)  # rows that a block takes
    rows = min(n, max(height, _STRIP // (n * size) // height * height))  # of a strip
    strips = [(first, min(rows, n - first)) for first in range(0, n, rows)]
    pitch = -(-rows // height) * height
    batch = p.shape[0] if p.ndim == 3 else 1
    each = max(1, min(batch, _STRIP // (n * rows * size)))
    turned = device.scratch((each, n, pitch), closed.dtype)
    tight = device.scratch((each, 2, n, words), np.uint32)
    lines = device.scratch((batch, n, -(-words // 32)), np.uint32, zero=True)
    found = device.scratch(p.shape[:-1], np.uint8)
    unit = 0.0 if semiring.order_only else _UNITS * _EPSILON.get(plan.storage, 0.0)
    line = 0 if changes is None else changes.shape[-1]
    attached = 8 * n + 4 * words + 4  # bytes of shared memory: see sr::Trees::attach
    attaches = fresh and attached <= here.shared_limit
    later = attaches and semiring.order_only  # of many that are as good, most would close cycles
    params, text = struct_of("TreesParams"), algebra(plan)
    same = {
        **stride_fields("from", weights), **stride_fields("a", closed),
        **stride_fields("pred", p), "n": n, "words": words,
        "zero": bits_of(semiring.identities(closed.dtype)[0], closed.dtype), "unit": unit,
        "pitch": pitch, "change_pitch": line, "grain": grain, "side": side, "many": _MANY,
        "wide": wide_along(closed, -1), "later": later,
    }  # fmt: skip

    def run(arrays: dict[str, Array | None], count: int) -> None:
        def step(name: str, blocks: int, shared: int, first: int, rows: int) -> None:
            run = f"sr::Trees<Algebra, {flags(fresh)}>::{name}"
            source = entry("trees.cuh", params, run, f"{_THREADS}, 2", text)
            own = {**same, **arrays, "batch": count, "first": first, "rows": rows}
            launch(source, params, blocks, _THREADS, shared, own)

        def find(first: int, rows: int) -> None:
            squares = count * across * -(-rows // _SIDE)  # each by a warp
            step("find", -(-squares * 32 // _THREADS), _THREADS * (_SIDE + 1) * size, first, rows)

        for strip in strips:  # all tight edges first
            find(*strip)
        for strip in strips:
            if len(strips) > 1:  # the distances of the strip again
                find(*strip)
            blocks = count * -(-n // _WARPS) * (pitch // height)
            step("choose", blocks, _WARPS * (height + 4) * 4, *strip)
        if changes is not None:
            step("split", count * n, _split_bytes(n, word_size(plan)), 0, n)
        if attaches:
            step("attach", count * n, attached, 0, n)

    for first in range(0, batch, each):
        arrays = {"from": weights, "a": closed, "preds": p, "lines": lines, "open": found,
                  "changes": changes}  # fmt: skip
        if first:
            arrays = {name: x if x is None else x[first:] for name, x in arrays.items()}
        run(arrays | {"turned": turned, "tight": tight}, min(each, batch - first))
    return found


#: Rows above which the closure in one launch takes so much longer than by products that it takes
#: less time to carry predecessors through these.
_SPLITS = 6144


def splits(semiring: Semiring, dtype: np.dtype[Any], n: int) -> bool:
    """Whether :func:`predecessors` can use the changes of an elimination of n rows, and gains."""
    if semiring.order_only or n > _SPLITS:
        return False
    return _split_bytes(n, max(4, dtype.itemsize)) <= device.current().shared_limit


def _split_bytes(n: int, word: int) -> int:
    return n * (word + 4) + 12  # see sr::Trees::split


def doubtful(semiring: Semiring, d: Array, p: Array) -> NDArray[np.int64]:
    """Rows of predecessors in which one is not strictly nearer than its node; waits for them."""
    (rows, n), here = p.shape, device.current()
    if not p.size:
        return np.empty(0, np.int64)
    whole = Facts(-1, 1, True)  # entries are only compared
    plan = closed_plan(semiring, d.dtype, (whole,) * 3, 1)
    found = here.xp.zeros(rows, np.uint8)
    (_, d_m, d_n), (_, pred_m, pred_n) = strides(d), strides(p)
    params = struct_of("DoubtfulParams")
    source = entry("trees.cuh", params, "sr::Doubtful<Algebra>::run", _THREADS, algebra(plan))
    launch(
        source, params, rows, _THREADS, d=d, preds=p, doubtful=found, d_m=d_m, d_n=d_n,
        pred_m=pred_m, pred_n=pred_n, n=n,
    )  # fmt: skip
    return np.flatnonzero(to_host(found))
