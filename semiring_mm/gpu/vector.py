"""The matrix-vector product on the device: one pass over A, and the shape of the launch."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from ..engine import PLAIN, Scaling
from ..expressions import joins_logarithms
from ..plan import ALPHA, Plan, is_sum, make_plan, overflow, scalar_bits, unseen_plan
from ..semirings import Semiring
from . import device
from .device import refuse_capture
from .facts import facts
from .launch import entry, launch
from .memory import contiguous
from .source import PRODUCT, algebra, flags, word_size
from .views import address, aligned, to_host

__all__ = ["Shape", "choose_plan", "gemv", "join_vector_source", "shape", "vector_source"]

Array = Any

_THREADS = 256  # sr::Vector's
_LOADS = 8  # that a thread has under way
_SMALL = 1 << 18  # entries of A
_PARTS, _JOINED = 128, 1 << 14  # of k, at most; or as many as are quickly joined


class Shape(NamedTuple):
    """How a block goes over A, and into how many parts k is split."""

    lanes: int  # threads that share the k of each row; a power of two up to 256
    rows: int  # rows that a thread takes at once
    splits: int  # parts of k
    k_split: int  # and the steps in each


@functools.lru_cache(maxsize=4096)
def shape(m: int, k: int, chunk: int, k_unit: bool, sms: int) -> Shape:
    """The shape for a matrix (m, k) that is read `chunk` elements at a time."""
    if k_unit:
        chunks = -(-k // chunk)
        lanes = min(8, 1 << (chunks - 1).bit_length())
        rows = 1
        if m * chunks > 8 * _THREADS * sms:  # as many as leave few threads without a row
            rows = 4 if m % 4 == 0 or m >= 16 else 2 if m % 2 == 0 or m >= 8 else 1
        while lanes < _THREADS and lanes * _LOADS // rows < chunks:
            lanes *= 2
        least = lanes * chunk * _LOADS // rows  # steps of k that a part repays
        fewest, most = 8 * sms, 8 * sms
    else:
        rows, lanes = chunk, 1
        wanted = 8 if m * k > _SMALL else 32
        while lanes * _LOADS < k and (
            lanes < wanted or (lanes < 32 and m * lanes < 2 * _THREADS * chunk)
        ):
            lanes *= 2
        least = lanes * _LOADS
        fewest, most = 2 * sms, 24 * sms
    blocks = -(-m // (_THREADS // lanes * rows))
    # at least `fewest` blocks if that leaves a thread one turn, up to `most` if it leaves it eight
    splits = 1
    if m * k > _SMALL:  # joining parts takes as long as reading so much
        splits = max(min(fewest // blocks, k // least), min(most // blocks, k // (8 * least)))
        splits = max(1, min(splits, max(_PARTS, _JOINED // m)))
    k_split = -(-k // (splits * least)) * least if splits > 1 else k
    return Shape(lanes, rows, -(-k // k_split) if splits > 1 else 1, k_split)


@functools.lru_cache(maxsize=1024)
def vector_source(
    plan: Plan, k_unit: bool, wide: bool, lanes: int, rows: int, scaled: str = ""
) -> str:
    """The text of the kernel; see sr::Vector for its arguments.

    `scaled`: the operand whose entries α scales, "a" or "x", or neither.
    """
    logarithms, compensated = joins_logarithms(plan.add), is_sum(plan)
    kind = "LogAccumulator" if logarithms else "SumAccumulator" if compensated else "Accumulator"
    fold = f"sr::{kind}<Algebra>"
    if scaled:
        fold = f"sr::Scaled<{fold}, Algebra, {flags(scaled == 'a')}>"
    # room for 64 registers: left to itself, the compiler keeps fewer loads under way
    bounds = f"{_THREADS}, {2 if (logarithms or compensated) and word_size(plan) == 8 else 4}"
    vector = f"sr::Vector<{fold}, Algebra, {flags(k_unit, wide)}, {lanes}, {rows}>"
    return _source(plan, vector, bounds)


@functools.lru_cache(maxsize=1024)
def join_vector_source(plan: Plan) -> str:
    """The text of the kernel that joins the parts of a product whose k was split."""
    return _source(plan, "sr::ReduceVector<Algebra>", "1024")


def _source(plan: Plan, body: str, bounds: str) -> str:
    return entry("vector.cuh", PRODUCT(), f"{body}::run", bounds, algebra(plan))


def choose_plan(
    semiring: Semiring, a: Array, x: Array, y: Array, depth: int, scaling: Scaling
) -> Plan:
    """The plan of a product whose time is that of reading A: if possible without a scan of it.

    `depth`: how many products an entry of y joins, at most.
    """
    dtype, alpha, beta = a.dtype, scaling.alpha, scaling.beta
    depth = depth if dtype.kind in "iu" else 1
    try:
        return unseen_plan(semiring, dtype, depth, alpha, beta, scaling.accumulate)
    except OverflowError:
        third = facts(semiring, y) if scaling.accumulate else None
        left, right = facts(semiring, a), facts(semiring, x)
        return make_plan(semiring, dtype, left, right, depth, c=third, alpha=alpha, beta=beta)


def gemv(
    semiring: Semiring, a: Array, x: Array, y: Array, scaling: Scaling = PLAIN, *,
    scale_x: bool = False,
) -> None:  # fmt: skip
    """y ← ((α ⊗ A) ⊗ x) ⊕ (β ⊗ y); see :meth:`semiring_mm.engine.Engine.gemv`.

    Waits for the device only where an integer's result may not fit its dtype.
    """
    if a.ndim == 3:
        if y.flags.c_contiguous:  # as one matrix, copied where its strides do not allow it
            a, y = a.reshape(-1, a.shape[-1]), y.reshape(-1)
        else:
            for matrix, result in zip(a, y, strict=True):
                gemv(semiring, matrix, x, result, scaling, scale_x=scale_x)
            return
    m, k = a.shape
    if m == 0:
        return
    left, right = (x, a) if scale_x else (a, x)
    plan = choose_plan(semiring, left, right, y, k, scaling)
    here = device.current()
    size = a.itemsize
    a_m, a_k = (s // size for s in a.strides)
    k_unit = abs(a_k) < abs(a_m) or m == 1
    a_at, x_at = address(a), address(x)
    step, other, extent = (a_k, a_m, m) if k_unit else (a_m, a_k, k)
    wide = step == 1 and aligned(a_at, size, (other,) if extent > 1 else (), 16 // size)
    if wide and k_unit and not (x.strides[0] == size and x_at % 16 == 0):
        x = contiguous(x)  # far smaller than A
        x_at = address(x)
    way = shape(m, k, 16 // size if wide else 1, k_unit, here.sms)
    blocks = -(-m // (_THREADS // way.lanes * way.rows))
    scales = "" if scaling.alpha is None else "x" if scale_x else "a"
    parts = errors = None
    if way.splits > 1:
        parts = device.scratch(way.splits * m * word_size(plan))
    if plan.check:
        refuse_capture()
        errors = here.xp.zeros(1, np.uint32)
    fields = {
        "a": a_at, "b": x_at, "c": address(y), "partials": address(parts),
        "errors": address(errors), "a_m": a_m, "a_k": a_k, "b_k": x.strides[0] // size,
        "c_m": y.strides[0] // size, "alpha": scalar_bits(plan, scaling.alpha),
        "beta": scalar_bits(plan, scaling.beta), "m": m, "n": 1, "k": k, "batch": 1,
        "tiles_m": blocks,
        "splits": way.splits, "k_split": way.k_split,
        "mode": scaling.mode & ~ALPHA,
    }  # fmt: skip
    words = 0  # of shared memory
    if k_unit and way.lanes > 32:
        words = _THREADS // 32 * way.rows
    elif not k_unit and way.lanes > 1:
        words = _THREADS * way.rows
    source = vector_source(plan, k_unit, wide, way.lanes, way.rows, scales)
    shared = words * word_size(plan)
    launch(source, PRODUCT(), blocks * way.splits, _THREADS, shared, fields)
    if parts is not None:
        threads = 32 * min(32, 1 << (way.splits - 1).bit_length())
        source = join_vector_source(plan)
        launch(source, PRODUCT(), -(-m // 32), threads, threads * word_size(plan), fields)
    if errors is not None and to_host(errors)[0]:
        raise overflow(semiring, y.dtype)
