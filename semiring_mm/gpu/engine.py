"""The GPU engine: the verbs on device arrays, run by kernels compiled for the semiring.

The same verbs as :mod:`semiring_mm.cpu.engine`, with checked arguments. Launches go to the current
device and stream and return at once. Floating point never waits for the device: where a faster
kernel needs operands of some kind, a scan leaves its findings on the device, both kernels are
launched, and one of them returns at once. Integers do wait, twice: for the ranges that decide how
to compute them, and for the flag that says whether every result fits.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..plan import Facts, Plan, bytewise, can_use_keys, make_plan, needs_facts, with_keys
from ..semirings import Semiring
from . import device
from .closure import BASE, closure_batch, closure_block
from .facts import facts, flags_of
from .packing import packed_bits
from .source import (
    KINDS,
    ProductKernel,
    Step,
    join_source,
    kind_of,
    pack,
    product_source,
    steps,
    word_size,
)
from .tiles import choose
from .vector import gemv

__all__ = [
    "BASE",
    "Facts",
    "closure_batch",
    "closure_block",
    "facts",
    "gemv",
    "product",
]

Array = Any
Scalar = float | int | None

READ_C, ALPHA, BETA = 1, 2, 4
_JOINERS = 256  # threads of a block that joins parts


@functools.lru_cache(maxsize=4096)
def _plans(
    semiring: Semiring, dtype: np.dtype[Any], fa: Facts | None, fb: Facts | None,
    fc: Facts | None, depth: int, alpha: Scalar, beta: Scalar, arg: bool, arch: int,
) -> tuple[tuple[Plan, Step], ...]:  # fmt: skip
    """The ways to compute a product, best first; the last one is right for all operands."""
    plan = make_plan(semiring, dtype, fa, fb, depth, c=fc, alpha=alpha, beta=beta)
    if arg and plan.codec == "bits":
        plan = bytewise(plan)
    keys = None
    ordered = replace(plan, keep_nan=False)  # a scan sees to NaN
    if alpha is None and beta is None and can_use_keys(ordered):
        keys = with_keys(ordered)
    return tuple(steps(plan, keys, arch, arg=arg, scaled=alpha is not None))


def product(
    semiring: Semiring,
    a: Array,
    b: Array,
    c: Array,
    *,
    accumulate: bool = False,
    alpha: Scalar = None,
    beta: Scalar = None,
    arg: Array | None = None,
    gather: Array | None = None,
    known: tuple[Facts, Facts, Facts] | None = None,
    overlap: str = "",
    triangle: bool = False,
    on_done: Callable[[float], None] | None = None,
) -> None:
    """C ← (α ⊗ A ⊗ B), or with `accumulate` C ← (α ⊗ A ⊗ B) ⊕ (β ⊗ C).

    The arguments are those of :func:`semiring_mm.cpu.engine.product`, on device arrays.
    """
    here = device.current()
    xp = here.xp
    if overlap == "a":  # C coincides with A: read it as it was
        a = a.copy()
    elif overlap == "b":
        b = b.copy()
        if gather is not None and gather is arg:
            gather = gather.copy()
    fa = fb = fc = None
    whole = a.dtype.kind in "iu"
    if whole and needs_facts(semiring, a.dtype):
        if known is not None:
            fa, fb, fc = known
        else:
            fa, fb = facts(semiring, a), facts(semiring, b)
            fc = facts(semiring, c) if accumulate else None
    ways = _plans(
        semiring, a.dtype, fa, fb, fc if accumulate else None, a.shape[-1] if whole else 1,
        alpha, beta, arg is not None, here.arch,
    )  # fmt: skip
    if ways[0][1].columns == 32:
        b = packed_bits(b)
    bad = xp.zeros(1, np.uint32) if ways[-1][0].check else None
    job = _Job(semiring, a, b, c, accumulate, alpha, beta, arg, gather, triangle, bad)
    plan, step = ways[0]
    if not step.forbidden:
        job.run(plan, step)
    elif known is not None and known[0] is not None:
        seen = _kinds(known[0]) | _kinds(known[1])
        job.run(*next(way for way in ways if not way[1].forbidden & seen))
    elif a.shape[-2] * b.shape[-1] * a.shape[-1] < _WORTH_A_SCAN:
        job.run(*ways[-1])
    else:
        flags = flags_of(semiring, a, b)
        job.run(plan, step, flags, step.forbidden, 0)
        job.run(*ways[-1], flags, step.forbidden, 1)
    if bad is not None and int(bad[0]):
        raise OverflowError(
            f"a result of {semiring.name} does not fit {c.dtype}: use a wider dtype, for example "
            f"A.astype({'np.int64' if c.dtype.itemsize < 8 else 'np.float64'})"
        )
    if on_done is not None:
        on_done(1.0)


_WORTH_A_SCAN = 512**3  # pairs


def _kinds(x: Facts) -> int:
    return sum(KINDS[kind] for kind in x.kinds())


class _Job:
    """One product, however many kernels it takes."""

    def __init__(
        self, semiring: Semiring, a: Array, b: Array, c: Array, accumulate: bool, alpha: Scalar,
        beta: Scalar, arg: Array | None, gather: Array | None, triangle: bool, bad: Array | None,
    ) -> None:  # fmt: skip
        self.a, self.b, self.c = a, b, c
        self.alpha, self.beta = alpha, beta
        self.arg, self.gather, self.bad, self.triangle = arg, gather, bad, triangle
        self.mode = READ_C if accumulate else 0
        self.mode |= (ALPHA if alpha is not None else 0) | (BETA if beta is not None else 0)

    def run(
        self, plan: Plan, step: Step, flags: Array | None = None, forbidden: int = 0,
        unless: int = 0,
    ) -> None:  # fmt: skip
        here = device.current()
        a, b, c, arg = self.a, self.b, self.c, self.arg
        (m, n), k = c.shape[-2:], a.shape[-1]
        batch = c.shape[0] if c.ndim == 3 else 1
        words = -(-n // step.columns)
        kind = kind_of(plan, step, arg=arg is not None)
        launch = choose(kind, m, words, k, batch, here.sms, split=arg is None and not self.triangle)
        tile = launch.tile
        a_strides, b_strides, c_strides = (_strides(x) for x in (a, b, c))
        a_k = a_strides[2] == 1 and not (a_strides[1] == 1 and m > 1)
        b_k = b_strides[1] == 1 and not (b_strides[2] == 1 and n > 1)
        elements = 4 if step.columns == 32 else 4 * step.columns
        group = min((4 if tile.tn % 4 == 0 else 2) * step.columns, 16 // c.itemsize)
        kernel = ProductKernel(
            plan, step.name, tile, a_k,
            _wide(a, a_strides, 2 if a_k else 1, 4), b_k,
            _wide(b, b_strides, 1 if b_k else 2, 4 if b_k else elements),
            c_strides[2] == 1 and n % group == 0 and _aligned(c, c_strides[:2], group),
            arg is not None,
        )  # fmt: skip
        tiles_m, tiles_n = -(-m // tile.bm), -(-words // tile.bn)
        blocks = tiles_m * tiles_n * launch.splits * batch
        if blocks > 0x7FFFFFFF:
            raise ValueError(
                f"a product of {batch} matrices of shape {(m, n)} takes {blocks} blocks, and one "
                f"launch at most 2147483647; multiply parts of the batch"
            )
        size = word_size(plan)
        parts = None
        if launch.splits > 1:
            parts = here.xp.empty(batch * launch.splits * m * words * size, np.uint8)
        arg_strides = (0, 0, 0) if arg is None else _strides(arg)
        gather_strides = (0, 0, 0) if self.gather is None else _strides(self.gather)
        longs = (
            *map(_address, (a, b, c, parts, arg, self.gather, flags, self.bad)),
            a_strides[1], a_strides[2], a_strides[0], b_strides[1], b_strides[2], b_strides[0],
            c_strides[1], c_strides[2], c_strides[0],
            arg_strides[1], arg_strides[2], arg_strides[0], *gather_strides[1:],
            _bits(plan, self.alpha), _bits(plan, self.beta),
        )  # fmt: skip
        ints = (
            m, n, k, batch, tiles_m, tiles_n, launch.splits, launch.k_split, self.mode, forbidden,
            unless, 1, int(self.triangle),
        )  # fmt: skip
        params = pack(longs, ints)
        code = here.kernel(product_source(kernel))
        code.launch(blocks, tile.threads, tile.shared(size), params)
        if launch.splits > 1:
            joiners = -(-m * words * batch // _JOINERS)
            here.kernel(join_source(plan, step.name)).launch(joiners, _JOINERS, 0, params)


def _strides(x: Array) -> tuple[int, int, int]:
    """Strides in elements of a matrix or a stack: along the stack, the rows, the columns."""
    steps_ = [s // x.itemsize for s in x.strides]
    return (steps_[0] if x.ndim == 3 else 0, steps_[-2], steps_[-1])


def _address(x: Array | None) -> int:
    if x is None:
        return 0
    return int(x.ctypes.data if isinstance(x, np.ndarray) else x.data.ptr)


def _aligned(x: Array, strides: tuple[int, ...], elements: int) -> bool:
    """Whether so many elements can be read at once at every multiple of these strides."""
    return _address(x) % (elements * x.itemsize) == 0 and all(s % elements == 0 for s in strides)


def _wide(x: Array, strides: tuple[int, int, int], unit: int, elements: int) -> bool:
    """Whether the kernel may read `elements` at a time along the axis `unit`."""
    return (
        strides[unit] == 1
        and x.shape[unit - 3] % elements == 0
        and elements * x.itemsize <= 32
        and _aligned(x, (strides[0], strides[3 - unit]), elements)
    )


_BITS = {"f32": "f", "f64": "d", "i64": "q", "u64": "Q", "u32": "I"}


def _bits(plan: Plan, value: Scalar) -> int:
    """A scalar as the low bytes of a 64-bit parameter, in the type computed in."""
    if value is None:
        return 0
    if plan.missing is not None and value == plan.missing:
        value = plan.infinite
    code = _BITS.get(plan.compute, "i")
    raw = struct.pack(code, value if code in "fd" else int(value))
    return int.from_bytes(raw.ljust(8, b"\0"), "little", signed=True)
