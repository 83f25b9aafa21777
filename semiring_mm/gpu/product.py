"""The matrix product on device arrays: which kernels, prepared how, and when they are launched.

Launches go to the current device and stream and return at once. Floating point never waits for the
device: where a faster kernel needs operands of some kind, a scan leaves its findings on the device,
both kernels are launched, and one of them returns at once. Integers do wait, twice: for the ranges
that decide how to compute them, and for the flag that says whether every result fits.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..engine import PLAIN, Known, Scaling
from ..expressions import Expr, evaluate
from ..plan import (
    READ_C,
    Facts,
    Plan,
    bytewise,
    can_use_keys,
    distributes,
    make_plan,
    needs_facts,
    overflow,
    scalar_bits,
    unpack_bits,
    with_keys,
)
from ..semirings import Semiring, semirings
from . import bulk, device
from .closure import BASE
from .combine import scaled
from .device import refuse_capture
from .facts import facts, flags_of
from .launch import Launch, prepared, struct_of
from .logsum import product as log_sum_product
from .logsum import serves as is_log_sum
from .memory import contiguous
from .packing import pack_bits, packed_bits
from .source import (
    FIND_COLUMNS,
    FIND_ROWS,
    KINDS,
    LAST,
    PRODUCT,
    ProductKernel,
    Step,
    find_source,
    join_source,
    kind_of,
    product_source,
    steps,
    word_size,
)
from .tensor import (
    BINARY,
    CERTIFICATE,
    FINE,
    REDUCING,
    ROWS,
    Kind,
    Operand,
    Split,
    TensorKernel,
    in_place,
    parts_source,
    prepare_operand,
    readable,
    reads,
    repays,
    result_operand,
    tensor_source,
    together,
    transposed_operand,
    turns,
)
from .tensor import choose as choose_shape
from .tensor import kinds_of as tensor_kinds
from .tiles import choose
from .views import (
    address,
    layouts,
    reading,
    stride_fields,
    strides,
    to_host,
    wide_along,
)

__all__ = ["product", "product_bits", "sift"]

Array = Any


@functools.lru_cache(maxsize=4096)
def _plans(
    semiring: Semiring, dtype: np.dtype[Any], fa: Facts | None, fb: Facts | None,
    fc: Facts | None, depth: int, scaling: Scaling, arg: bool, arch: int,
    precision: str | None = None, final: tuple[Expr, float] | None = None,
) -> tuple[_Way, ...]:  # fmt: skip
    """The ways to compute a product, best first; the last one is right for all operands.

    The first one may be tensor cores, which not all sizes repay.
    """
    alpha, beta = scaling.alpha, scaling.beta
    plan = make_plan(semiring, dtype, fa, fb, depth, c=fc, alpha=alpha, beta=beta)
    if final is not None:
        plan = replace(plan, final=final[0], total=final[1])
    seen = [x for x in (fa, fb, fc) if x is not None]
    if plan.codec == "sentinel" and not any(x.special for x in seen) and plan.missing not in (
        alpha, beta,
    ):  # fmt: skip
        # nothing is missing, so nothing will be
        plan = replace(plan, codec="plain", missing=None, annihilate=False)
    if arg and plan.codec == "bits":
        plan = bytewise(plan)
    keys = None
    ordered = replace(plan, keep_nan=False)  # the operand scan excludes NaN
    if alpha is None and beta is None and final is None and can_use_keys(ordered):
        keys = with_keys(ordered)
    found = steps(plan, keys, arch, arg=arg, scaled=alpha is not None, precision=precision)
    ways = [_Way(*way) for way in found]
    kinds = () if arg else tensor_kinds(plan, precision, arch)
    if kinds and plan.codec == "bits":
        plan = bytewise(plan)
    return (*(_Way(plan, Step("Tensor", kind.forbidden), kind) for kind in kinds), *ways)


def product(
    semiring: Semiring,
    a: Array,
    b: Array,
    c: Array,
    scaling: Scaling = PLAIN,
    *,
    arg: Array | None = None,
    gather: Array | None = None,
    known: Known | None = None,
    overlap: str = "",
    triangle: bool = False,
    precision: str | None = None,
    final: tuple[Expr, float] | None = None,
    on_done: Callable[[float], None] | None = None,
) -> None:
    """C ← ((α ⊗ A) ⊗ B) ⊕ (β ⊗ C); see :meth:`semiring_mm.engine.Engine.product`."""
    here = device.current()
    if overlap == "a":  # C coincides with A: read it as it was
        a = a.copy()
    elif overlap == "b":
        b = b.copy()
        if gather is arg and gather is not None:
            gather = gather.copy()
    alpha = scaling.alpha
    if alpha is not None and not distributes(semiring, a.dtype, alpha):
        if a.dtype.kind not in "iub" and a.dtype.itemsize == 2:
            _product_in_float32(semiring, a, b, c, scaling, precision, on_done)
            return
        a, known = scaled(semiring, alpha, a), None  # what is known is of A before
        scaling = scaling._replace(alpha=None)
    by_columns = c.strides[-2] == c.itemsize != c.strides[-1]
    if gather is None and not triangle and by_columns and semiring.commutes:
        a, b, c = (x.swapaxes(-1, -2) for x in (b, a, c))  # the kernels write along rows
        arg = None if arg is None else arg.swapaxes(-1, -2)
    if arg is None and not triangle and is_log_sum(semiring, a.dtype):
        log_sum_product(
            functools.partial(product, semirings["plus_times"]), semiring, a, b, c, scaling
        )
        if on_done is not None:
            on_done(1.0)
        return
    fa = fb = fc = None
    whole = a.dtype.kind in "iu"
    if whole and needs_facts(semiring, a.dtype):
        if known is not None:
            fa, fb, fc = known
        else:
            fa, fb = facts(semiring, a), facts(semiring, b)
            fc = facts(semiring, c) if scaling.accumulate else None
    ways = _plans(
        semiring, a.dtype, fa, fb, fc if scaling.accumulate else None, a.shape[-1] if whole else 1,
        scaling, arg is not None, here.arch, precision, final,
    )  # fmt: skip
    kind = ways[0].kind
    if kind is not None:
        sizes = (*c.shape[-2:], a.shape[-1], c.shape[0] if c.ndim == 3 else 1)
        if triangle or not repays(kind, *sizes) or not reads(kind, a, b):
            ways = tuple(way for way in ways if way.kind is None)
    best, last = ways[0], ways[-1]
    if best.step.columns == 32:
        b = packed_bits(b)
    errors = None
    if last.plan.check:
        refuse_capture()
        errors = here.xp.zeros(1, np.uint32)
    transposed = functools.cache(lambda: contiguous(b.swapaxes(-1, -2)))
    run = functools.partial(
        _run, here, a=a, b=b, c=c, arg=arg, gather=gather, errors=errors, transposed=transposed,
        scaling=scaling, triangle=triangle,
    )  # fmt: skip
    forbidden = best.step.forbidden
    if not forbidden:
        run(best)
    elif known is not None and known[0] is not None:
        seen = _kinds(known[0]) | _kinds(known[1]) | KINDS["far"]  # facts do not tell
        run(next(way for way in ways if not way.step.forbidden & seen))
    elif best.kind is None and c.size * a.shape[-1] < _WORTH_A_SCAN:
        run(last)
    else:
        if best.kind is not None and best.kind.scaled:  # who looks at the operands itself
            flags = device.scratch(1, np.uint32, zero=True)
        else:
            flags = flags_of(a, b, far=bool(forbidden & KINDS["far"]))
        run(best, flags=flags, forbidden=forbidden, unless=0)
        for before, way in itertools.pairwise(ways):
            if not before.step.forbidden:
                break
            # entries that the way before excludes, and this one does not
            run(way, flags=flags, forbidden=before.step.forbidden & ~way.step.forbidden, unless=1)
    if errors is not None and to_host(errors)[0]:
        raise overflow(semiring, c.dtype)
    if on_done is not None:
        on_done(1.0)


def product_bits(
    semiring: Semiring, a: Array, b: Array, c: Array, n: int, accumulate: bool = False
) -> None:
    """C ← A B, or C ⊕ A B, of packed bits; see :meth:`semiring_mm.engine.Engine.product_bits`."""
    here = device.current()
    k = b.shape[-2]
    way = _plans(semiring, _BOOL, None, None, None, 1, PLAIN, False, here.arch)[0]
    if way.kind is None:
        whole = here.xp.empty((*c.shape[:-1], n), bool)
        product(semiring, unpack_bits(here.xp, a, k), unpack_bits(here.xp, b, n), whole)
        result = pack_bits(whole)
        c[...] = evaluate(semiring.add_expr, c, result) if accumulate else result
        return
    a = readable(a)
    plan, kind = way.plan, way.kind
    launch = prepared(
        (way, here, n, *layouts(a, b, c)),
        lambda: _prepare_tensors(here, plan, kind, a, b, c, n),
    )
    _start(here, launch, launch.fields | {
        "a": address(a), "b": address(b), "c": address(c), "mode": READ_C * accumulate,
    })  # fmt: skip


_BOOL = np.dtype(bool)


def _product_in_float32(
    semiring: Semiring, a: Array, b: Array, c: Array, scaling: Scaling, precision: str | None,
    on_done: Callable[[float], None] | None,
) -> None:  # fmt: skip
    """The product of 16-bit floats whose A is scaled: results are rounded once, α ⊗ A is not."""
    left, right, result = (x.astype(np.float32) for x in (a, b, c))
    product(semiring, left, right, result, scaling, precision=precision, on_done=on_done)
    c[...] = result.astype(c.dtype)


_WORTH_A_SCAN = 960**3  # pairs
_WORTH_A_TRANSPOSE = 64, 512**3  # rows of C that look through each column of B, and pairs


def _kinds(x: Facts) -> int:
    return sum(KINDS[kind] for kind in x.kinds())


@dataclass(eq=False)
class _Way:
    """A plan and an inner step.

    `kind`: the element type of tensor cores, or None for other kernels.
    """

    plan: Plan
    step: Step
    kind: Kind | None = None


@dataclass(frozen=True)
class _Launch(Launch):
    """That of a product; its fields are those of sr::ProductParams, of which others have one."""

    parts: int = 0  # bytes of partial results
    marks: int = 0  # bytes of the tiles that won
    last: Launch | None = None  # reduces partial results, or finds the k of each entry
    transposed: bool = False  # whether `last` reads a copy of B with k as its contiguous direction
    operands: tuple[Operand | None, ...] = ()  # that tensor cores read and write
    certificate: _Launch | None = None  # that comes before
    samples_at: tuple[int, ...] = ()  # its operands' bytes behind copies of A and B


_NO_MAP = (bytes(device.TENSOR_MAP), 0, None)


def _run(
    here: device.Device, way: _Way, *, a: Array, b: Array, c: Array, arg: Array | None,
    gather: Array | None, errors: Array | None, transposed: Callable[[], Array],
    scaling: Scaling = PLAIN, triangle: bool = False, flags: Array | None = None,
    forbidden: int = 0, unless: int = 0,
) -> None:  # fmt: skip
    if way.kind is not None and turns(way.kind, a, b, c, here.sms):
        a, b, c = (x.swapaxes(-1, -2) for x in (b, a, c))
    launch = _prepared(here, way, a, b, c, arg, gather, triangle)
    parts = device.scratch(launch.parts) if launch.parts else None
    marks = device.scratch(launch.marks) if launch.marks else None
    fields = launch.fields | {
        "a": address(a), "b": address(b), "c": address(c), "partials": parts, "k_tiles": marks,
        "arg": arg, "gather": gather, "flags": flags, "errors": errors,
        "alpha": scalar_bits(way.plan, scaling.alpha), "beta": scalar_bits(way.plan, scaling.beta),
        "mode": scaling.mode, "forbidden": forbidden, "unless": unless,
        "triangle": BASE * triangle, "flag_words": 0 if flags is None else flags.size,
    }  # fmt: skip
    _start(here, launch, fields, flags)
    if launch.transposed:
        batch, n, k = strides(transposed())
        fields |= {"b": transposed(), "b_k": k, "b_n": n, "b_batch": batch}
    if launch.last is not None:
        launch.last.send(fields)


def _start(
    here: device.Device, launch: _Launch, fields: dict[str, Any], flags: Array | None = None
) -> None:
    """Launch the product, after the copies of operands that it reads by tensor maps."""
    operands = [(x, fields[name]) for x, name in zip(launch.operands, "abc", strict=False)]
    forbidden, unless = (fields.get(name, 0) for name in ("forbidden", "unless"))
    sizes = [None if x is None else x.measure(here, at, flags) for x, at in operands]
    loaded = [
        _NO_MAP if x is None else x.load(here, at, size, flags, forbidden, unless)
        for (x, at), size in zip(operands, sizes, strict=True)
    ]
    if launch.certificate is not None:
        _certify(here, launch.certificate, loaded[:2], sizes, flags)
    _send(launch, fields, loaded, sizes)


def _send(
    launch: _Launch, fields: dict[str, Any], loaded: list[tuple[bytes, int, Array | None]],
    sizes: list[Array | None],
) -> None:  # fmt: skip
    """Launch with these parameters, and tensor maps and sizes of operands, if there are any."""
    params, packed = launch.params, PRODUCT().pack(fields)
    if params is not PRODUCT():
        scaled = dict(zip(("a_sizes", "b_sizes"), sizes, strict=False))
        packed = params.pack(p=packed, **{k: x for k, x in scaled.items() if x is not None})
    maps = tuple((text, place) for text, place, _ in loaded)
    launch.kernel.launch(
        launch.blocks, launch.threads, launch.shared, packed, params.pointers, maps, launch.early
    )


def _certify(
    here: device.Device, launch: _Launch, copies: list[tuple[bytes, int, Array | None]],
    sizes: list[Array | None], flags: Array | None,
) -> None:  # fmt: skip
    """Launch the product of samples of operands, which finds out whether they are spread."""
    places = [place + skip for (_, place, _), skip in zip(copies, launch.samples_at, strict=True)]
    fields = launch.fields | {
        "a": places[0], "b": places[1], "flags": flags, "errors": flags,
        "forbidden": KINDS["lossy"], "unless": 1, "flag_words": 1,
    }  # fmt: skip
    operands = zip(launch.operands, places, strict=True)
    loaded = [x.load(here, place) for x, place in operands if x is not None]
    _send(launch, fields, [*loaded, _NO_MAP], sizes)


def _prepared(
    here: device.Device, way: _Way, a: Array, b: Array, c: Array | None, arg: Array | None = None,
    gather: Array | None = None, triangle: bool = False,
) -> _Launch:  # fmt: skip
    """The launch that computes `c`, or, where that is None, compares the entries with lists."""
    return prepared(
        (way, here, triangle, *layouts(a, b, c, arg, gather)),
        lambda: (
            _prepare(here, way, a, b, c, arg, gather, triangle)
            if way.kind is None or c is None
            else _prepare_tensors(here, way.plan, way.kind, a, b, c)
        ),
    )


def _prepare(
    here: device.Device, way: _Way, a: Array, b: Array, c: Array | None, arg: Array | None,
    gather: Array | None, triangle: bool,
) -> _Launch:  # fmt: skip
    plan, step = way.plan, way.step
    (m, k), n = a.shape[-2:], (b if c is None else c).shape[-1]  # B may be packed
    batch = 1 if c is None or c.ndim == 2 else c.shape[0]
    words = -(-n // step.columns)
    elements = 4 if step.columns == 32 else 4 * step.columns
    b_reads = reading(b, -2, n, elements)
    kind = kind_of(plan, step, arg=arg is not None, b_k=b_reads[0])
    chosen = choose(
        kind, m, words, k, batch, here.sms,
        split=c is not None and arg is None and not triangle,
        clusters=here.arch >= 90, device=here.name,
    )  # fmt: skip
    tile, size = chosen.tile, word_size(plan)
    fields = _sized(m, n, k, batch, stride_fields("a", a, "m k") | stride_fields("b", b, "k n"))
    if c is not None:
        fields |= stride_fields("c", c)
    large = (tile.bm, tile.bn) == (bulk.TILE.bm, bulk.TILE.bn) and not triangle and arg is None
    operands = None if c is None or not large else bulk.operands(here, plan, step, a, b, c)
    resident = 0  # blocks that go from tile to tile
    tiles_m, tiles_n = -(-m // tile.bm), -(-words // tile.bn)
    wide = c is not None and wide_along(c, -1, min(tile.together * step.columns, 16 // c.itemsize))
    if operands is not None:
        tile = bulk.TILE
        chosen, resident = bulk.launch(tiles_m * tiles_n * batch, k, here.sms)
        kernel = ProductKernel(plan, step.name, tile, False, True, False, True, wide)
        main = here.kernel(bulk.bulk_source(kernel), "a")
        threads, shared = bulk.shape(plan)
        fields |= {"a_batch": int(operands[0].batched), "b_batch": int(operands[1].batched)}
    else:
        kernel = ProductKernel(
            plan, step.name, tile, *reading(a, -1, m), *b_reads, wide,
            arg is not None, chosen.splits if chosen.cluster else 1, sieve=c is None,
        )  # fmt: skip
        main, threads, shared = here.kernel(product_source(kernel)), tile.threads, kernel.shared
    split = tiles_m * tiles_n * batch - chosen.whole
    blocks = chosen.whole + split * chosen.splits
    if blocks > 0x7FFFFFFF:
        raise ValueError(
            f"a product of {batch} matrices of shape {(m, n)} takes {blocks} blocks, and one "
            f"launch at most 2147483647; multiply parts of the batch"
        )
    last, transposed, through_memory = None, False, split and not chosen.cluster
    if through_memory:
        each = split * (tile.tm * tile.tn // tile.together)  # sr::ReduceSplits's
        last = Launch(here.kernel(join_source(kernel)), each, tile.threads, 0, PRODUCT(), {})
    if arg is not None:
        # neighbouring entries were won by different tiles of k: along columns each reads alone
        rows, pairs = _WORTH_A_TRANSPOSE
        transposed = not kernel.b_k and m >= rows and float(m) * n * k * batch >= pairs
        long = k % 4 == 0 if transposed else kernel.b_k and kernel.b_wide
        each = -(-m // FIND_ROWS) * -(-n // FIND_COLUMNS) * batch
        last = Launch(here.kernel(find_source(kernel, long)), each, LAST, 0, PRODUCT(), {})
        fields |= stride_fields("arg", arg)
    if gather is not None:
        _, fields["gather_k"], fields["gather_n"] = strides(gather)
    fields |= _tiled(tiles_m, tiles_n, chosen.whole, chosen.splits, chosen.k_split)
    return _Launch(
        main, resident or blocks, threads, shared,
        struct_of("BulkParams") if operands else PRODUCT(), fields,
        parts=split * chosen.splits * tile.bm * tile.bn * size if through_memory else 0,
        marks=0 if arg is None else 4 * batch * m * n, last=last, transposed=transposed,
        operands=operands or (),
    )  # fmt: skip


def _sized(m: int, n: int, k: int, batch: int, strides: dict[str, int]) -> dict[str, int]:
    return {"m": m, "n": n, "k": k, "batch": batch, "unit": 1} | strides


def _tiled(tiles_m: int, tiles_n: int, whole: int, splits: int, k_split: int) -> dict[str, int]:
    return {
        "tiles_m": tiles_m, "tiles_n": tiles_n, "whole": whole, "splits": splits,
        "k_split": k_split,
    }  # fmt: skip


def sift(
    semiring: Semiring, a: Array, b: Array, final: tuple[Expr, float] | None,
    lists: dict[str, Any],
) -> None:  # fmt: skip
    """Compare a product of floats, or a function of it, with lists instead of storing it.

    `lists` are the fields of ``sr::SieveParams``.
    """
    here = device.current()
    ways = _plans(semiring, a.dtype, None, None, None, 1, PLAIN, False, here.arch, None, final)
    way = next(
        way for way in ways if way.kind is None and not way.step.forbidden and way.step.columns == 1
    )
    launch = _prepared(here, way, a, b, None)
    base = PRODUCT().pack(launch.fields, a=a, b=b)
    params = struct_of("SieveParams").pack(lists, base=base)
    launch.kernel.launch(launch.blocks, launch.threads, launch.shared, params)


def _prepare_tensors(
    here: device.Device, plan: Plan, kind: Kind, a: Array, b: Array, c: Array,
    columns: int | None = None,
) -> _Launch:  # fmt: skip
    """A launch on tensor cores: a block for each multiprocessor, which goes from tile to tile.

    `columns` are those of B and C, where all operands are packed bits.
    """
    packed = columns is not None
    (m, n), k = c.shape[-2:], a.shape[-1]
    if columns is not None:
        n = columns
    elif kind is BINARY:
        k = -(-k // 8)
    batch = c.shape[0] if c.ndim == 3 else 1
    fine = not packed and kind.size == 2 and kind.parts == 1 and _fine(kind, plan, a, b, c)
    shape, splits, k_split, whole = choose_shape(
        kind, m, n, k, batch, here.sms, split=not packed, fine=fine
    )
    across = fine and shape in FINE
    tiles_m = -(-m // (shape.rows * shape.cluster)) * shape.cluster
    tiles_n = -(-n // shape.columns)
    tiles = tiles_m * tiles_n * batch
    split = tiles - whole if splits > 1 else 0
    if columns is not None:
        left, group = in_place("uint8", 1, a, ROWS), 2
        assert left is not None, "see readable"
        right = transposed_operand(here, b, columns, shape.columns // shape.cluster)
    else:
        left = prepare_operand(here, kind, a, shape.rows, left=True)
        right = prepare_operand(
            here, kind, b.swapaxes(-1, -2), shape.columns // shape.cluster, CERTIFICATE.bn
        )
        group = 16 if kind is BINARY else min(together(plan, right.rows), 16 // c.itemsize)
    result = result_operand(plan, c, shape.columns if across else 0)
    kernel = TensorKernel(
        plan, kind, left.rows, right.rows, wide_along(c, -1, group),
        result is not None and not across, shape, packed, across=across,
    )  # fmt: skip
    blocks = tiles - split + split * splits
    if kind.size < 8:  # of doubles, the next tile is for the multiprocessor that is free first
        blocks = min(blocks, here.sms // shape.cluster * shape.cluster)
    at = {"a_batch": int(left.batched), "b_batch": int(right.batched), **stride_fields("c", c)}
    return _Launch(
        here.kernel(tensor_source(kernel), "a"), blocks, kernel.threads, kernel.shared,
        struct_of("TensorParams"),
        _sized(m, n, k, batch, at) | _tiled(tiles_m, tiles_n, tiles - split, splits, k_split),
        parts=split * splits * shape.rows * shape.columns * word_size(plan),
        last=Launch(
            here.kernel(parts_source(kernel)),
            split * (shape.columns // 2 // kernel.together),  # sr::ReduceSplits's
            REDUCING, 0, PRODUCT(), {},
        ) if split else None,
        operands=(left, right, result),
        certificate=_certificate(here, plan, left, right, m, n, batch) if kind.scaled else None,
        # repays where all blocks run at once
        early=here.early and kind.size in (2, 4) and kind.parts == 1 and tiles <= here.sms,
    )  # fmt: skip


def _fine(kind: Kind, plan: Plan, a: Array, b: Array, c: Array) -> bool:
    """Whether only the right operand of 16 bits lies along k, and C along its columns."""
    left, right = (in_place(kind.element, 2, x, ROWS) for x in (a, b.swapaxes(-1, -2)))
    across = left is not None and not left.rows and right is not None and right.rows
    return across and result_operand(plan, c, ROWS) is not None


def _certificate(
    here: device.Device, plan: Plan, left: Operand, right: Operand, m: int, n: int, batch: int
) -> _Launch:
    """The launch of sr::Certificate for operands that sr::Split scales."""
    kernel = TensorKernel(plan, CERTIFICATE, True, True, False, certifies=True)
    copies = [x.copy for x in (left, right) if isinstance(x.copy, Split)]
    a, b = (copy.sample for copy in copies)
    k, tiles_m, tiles_n = a.sizes[0], -(-m // ROWS), -(-n // CERTIFICATE.bn)
    tiles = tiles_m * tiles_n * batch
    return _Launch(
        here.kernel(tensor_source(kernel), "a"), min(tiles, here.sms), kernel.threads,
        kernel.shared, struct_of("TensorParams"),
        _sized(m, n, k, batch, {"a_batch": int(left.batched), "b_batch": int(right.batched)})
        | _tiled(tiles_m, tiles_n, tiles, 1, k),
        operands=(a, b), samples_at=tuple(copy.sample_at for copy in copies),
    )  # fmt: skip
