"""The matrix product C ← (α ⊗ A ⊗ B) ⊕ (β ⊗ C), generated for one plan and one processor.

The loops are those of Goto and van de Geijn (2008), with one change: a block of C stays in a local,
tile-contiguous buffer through the whole K loop, so that C itself is touched once.

    for each slab of K and of N:                pack B's part, in pieces
      for each slab of M:                       pack A's part, in pieces
        for each block of C (MC x NC, or less): a local block
          for each block of K (KC):
            for each panel of A, of B:          the micro-kernel: an MR x NR tile in registers

The threads of a product run the same code. They share the packed operands, and a counter from which
each takes the next piece to pack or block to multiply: a stage (packing, or multiplying a slab)
begins when all pieces of those before it are done. Any number of threads may take part, and one
that comes late finds less to do.

Packed operands are K-block-major: ``[k block][panel][k][MR or NR]``, so that the panels a K block
needs are contiguous. Edges live in packing, which repeats the last row or column, and in the
write-back, which drops what lies outside, both as masked vectors of numbers of 32 bits and more;
the K loop runs exactly as far as K, so no padding value ever enters a result.
"""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .. import expressions as ex
from ..expressions import joins, joins_logarithms
from ..plan import ALPHA, BETA, READ_C, Plan, scalar_bits
from . import vmath
from .algebra import Algebra, compute_type
from .compiler import KEPT, Target, compile_kept, host_target, writers
from .ir import F32, I32, I64, PTR, Function, Type, Value, Var, module_text, transposed
from .team import COUNTERS, Team
from .views import HEAD, ArrayView, check_array_layout, unpacking

__all__ = [
    "GATHER", "NOTHING_SEEN", "PARAMS", "SEEN", "SLAB", "SQUARE", "TRIANGLE", "TURN_A", "TURN_B",
    "ProductCode", "Shape", "fewer_vectors", "micro_function", "params_of", "product_code",
    "product_functions", "tile_shape", "watches",
]  # fmt: skip

#: The fields of the parameter block, 64 bits each.
PARAMS = (
    "a_offset", "b_offset", "c_offset", "i0", "i1", "j0", "j1", "batch",
    "a_batch", "b_batch", "c_batch", "mode", "m_slab", "k_slab", "n_slab", "alpha", "beta", "one",
    "arg_offset", "pred_offset", "least", "m_block", "n_block", "team", "depth",
)  # fmt: skip
_DEFAULTS = dict.fromkeys(PARAMS, 0) | {"i1": -1, "j1": -1, "depth": -1, "batch": 1}
_pack_params = struct.Struct(f"{len(PARAMS)}q").pack


def params_of(plan: Plan, m_slab: int, k_slab: int, n_slab: int, **fields: int) -> bytes:
    """The parameter block of a kernel, with defaults for fields that are not given."""
    one = scalar_bits(plan, 1.0) if plan.compute[0] == "f" else 0
    slabs = {"m_slab": m_slab, "k_slab": k_slab, "n_slab": n_slab}
    return _pack_params(*{**_DEFAULTS, **slabs, "one": one, **fields}.values())


#: Bits of ``mode`` beside those of every engine: K receives rows of P; A, B is read as its
#: transpose; of C only blocks that touch its upper triangle are computed, or squares of ``SQUARE``
#: on the diagonal, whole.
GATHER, TURN_A, TURN_B, TRIANGLE = 8, 16, 32, 64
SQUARE = 64

SLAB = 2048  # K of one slab of packed operands
_COLUMNS = 8192  # bytes of its width

#: Bytes that the micro-kernel asks for ahead of its place in packed B.
PREFETCH = 768

#: Behind the first of the counters that threads share, the ranges of A and of B that were seen.
SEEN = 8
NOTHING_SEEN = (math.inf, -math.inf, 0.0)

#: k-steps between two looks at which accumulators improved (return_arg).
ARG_STEP = 16


class Shape(NamedTuple):
    """Block sizes in elements of the compute type."""

    mr: int  # rows of the register tile
    vectors: int  # in a row of it
    lanes: int  # elements in a vector
    kc: int  # block of K
    mc: int  # of M: a multiple of mr
    nc: int  # and of N: a multiple of nr
    fused: bool = False  # a step is one multiply-add

    @property
    def nr(self) -> int:
        return self.vectors * self.lanes

    def a_size(self, size: int) -> int:
        """Bytes of an element of packed A: short ones fill 32 bits, which a load can broadcast."""
        return max(size, 4)

    def own_bytes(self, size: int, *, arg: bool) -> int:
        """Bytes that a thread needs for itself: flags, and the local block of C (and its arg)."""
        return 64 + self.mc * self.nc * (size + 4 * arg)

    def workspace(self, size: int, m_slab: int, k_slab: int, n_slab: int, *, arg: bool) -> int:
        """Those, counters, and both packed operands (and their lines), which threads can share."""
        rows, columns = -(-m_slab // self.mr) * self.mr, -(-n_slab // self.nr) * self.nr
        lines = (rows + columns) * size if arg else 0
        packed = k_slab * (rows * self.a_size(size) + columns * size + lines)
        return self.own_bytes(size, arg=arg) + COUNTERS + packed


_WIDEST = 1 << 30  # columns
FEW = 8  #: rows up to which a tile is low
_LOW = 4  # rows of such a one


def tile_shape(plan: Plan, target: Target, columns: int = _WIDEST, *, few: bool = False) -> Shape:
    """The register tile and the cache blocks for a C of so many columns (or words of bits).

    `few`: C has no more than ``FEW`` rows.

    A pure function of the plan and the processor.

    With 32 registers there are about 24 accumulators. A step of one instruction (a fused
    multiply-add) is held up by loads, which a tile 14 rows high and two vectors wide has fewest of.
    A step with a temporary runs best 24 x 1, where the temporary is the broadcast of A itself.
    Short elements and packed bits, whose rows are wide and whose A costs most to pack, take
    6 x 4. With 16 registers the same, halved. Where C has no columns for so many vectors, there are
    fewer, and more rows; where it has few rows, tiles are lower, and wider.
    """
    size = compute_type(plan).size
    lanes = target.vector_bytes // size
    fused = _multiply_add(plan)
    if fused:
        mr, vectors, depth = (14, 2, 768) if target.registers >= 32 else (6, 2, 1024)
    elif plan.codec == "bits" or size < 4:
        mr, vectors, depth = (6, 4, 1024) if target.registers >= 32 else (6, 2, 1024)
    else:
        mr, vectors, depth = (24, 1, 1024) if target.registers >= 32 else (12, 1, 1024)
        if few and columns >= 4 * lanes:
            mr, vectors = _LOW, 4 if target.registers >= 32 else 2
    needed = 1 << (-(-columns // lanes) - 1).bit_length()
    if needed < vectors:
        mr, vectors = (24 if target.registers >= 32 else 12) // needed, needed
    nr = vectors * lanes
    # the panel that the inner loop keeps, and much of the other, in the first-level cache
    kc = max(64, depth * min(target.l1, 64 << 10) // (32 << 10) // size // ARG_STEP * ARG_STEP)
    # the blocks of A, of B and of C in the second
    nc = 1024 // size
    while nc > 2 * nr and nc * kc * size > target.l2 * 2 // 5:
        nc //= 2
    nc = max(1, nc // nr) * nr
    fits = (target.l2 * 7 // 8 - nc * kc * size) // ((kc + nc) * size)
    mc = max(1, min(288, fits) // mr) * mr
    return Shape(mr, vectors, lanes, kc, mc, nc, fused=fused)


def watches(plan: Plan) -> bool:
    """Whether packing sees which numbers the operands hold."""
    return plan.compute[0] == "f" and not (_multiply_add(plan) or joins_logarithms(plan.add))


def _multiply_add(plan: Plan) -> bool:
    """Whether ⊕ and ⊗, on the operands as they are, are one fused multiply-add."""
    return (joins(plan.add), joins(plan.mul)) == ("+", "*") and plan.compute[0] == "f"


@dataclass(frozen=True, eq=False)
class ProductCode:
    """A compiled product and the sizes that its workspace and parameters follow from."""

    call: Any  # of a tuple of its arguments; it returns whether a result does not fit
    address: int  # where the function itself lies
    shape: Shape
    size: int  # bytes of the compute type
    k_slab: int
    n_slab: int  # in compute elements
    params: Callable[..., bytes]  # of slabs and a mode, on one thread, without scalars; remembered
    unit: int  # columns of C in an element computed with
    watches: bool  # whether packing sees which numbers the operands hold
    plan: Plan

    def own(self, *, arg: bool) -> int:
        """Bytes that a thread needs for itself."""
        return self.shape.own_bytes(self.size, arg=arg)


def fewer_vectors(plan: Plan, columns: int, *, few: bool = False) -> tuple[int, ...]:
    """The vectors in a row of the tile for a C of so many columns; nothing where it is the usual.

    And whether it has few rows: what :func:`product_code` takes beside plan and arg.
    """
    words = -(-columns // 32) if plan.codec == "bits" else columns
    own, usual = (tile_shape(plan, host_target(), x) for x in (words, _WIDEST))
    if few and tile_shape(plan, host_target(), words, few=True) != own:
        return own.vectors, True
    return () if own.vectors == usual.vectors else (own.vectors,)


@functools.lru_cache(maxsize=KEPT)
def product_code(plan: Plan, arg: bool, vectors: int = 0, few: bool = False) -> ProductCode:
    lanes = tile_shape(plan, host_target()).lanes
    columns = _WIDEST if few else vectors * lanes or _WIDEST
    shape = tile_shape(plan, host_target(), columns, few=few)
    library = compile_kept(
        ["product", "call"], (writers("product_code", "team"), repr((plan, arg, shape))),
        lambda: module_text(product_functions(plan, host_target(), arg=arg, shape=shape)),
        host_target(),
    )  # fmt: skip
    check_array_layout()
    call = library.function("call", ctypes.py_object, result=ctypes.c_int64)
    size = int(plan.compute[1:]) // 8
    # the bytes of a bool C are many times its bits: as few visits to it as possible
    deep = 4 if plan.codec == "bits" else 1
    n_slab = _COLUMNS * 2 // max(deep, 2) // size // shape.nr * shape.nr
    params = functools.lru_cache(maxsize=256)(
        functools.partial(params_of, plan, m_block=shape.mc, n_block=shape.nc)
    )
    unit = 32 if plan.codec == "bits" else 1
    return ProductCode(
        call, library.address("product"), shape, size, SLAB * deep, n_slab, params, unit,
        watches(plan), plan,
    )  # fmt: skip


def product_functions(
    plan: Plan, target: Target, *, arg: bool, shape: Shape | None = None
) -> list[Function]:
    """Generate ``product(A, B, C, workspace, params, K, P)``, and ``call`` of a tuple of these.

    With `arg`, the k that attained each entry goes
    to the int32 array K; in mode ``GATHER`` K receives P[k, j] instead, where an entry improved.
    """
    shape = shape or tile_shape(plan, target)
    micro = micro_function(plan, shape, arg=arg)
    micro.private = True
    watched = watches(plan)
    packs = [_pack("pack_a", plan, shape, shape.mr, spread=True, watched=watched)]
    if plan.codec == "bits":
        packs.append(_pack_bits("pack_b", shape.nr))
    else:
        packs.append(_pack("pack_b", plan, shape, shape.nr, watched=watched))
    if arg:
        packs.append(_pack("pack_lines", None, shape, ARG_STEP, compute_type(plan)))
    moves = [_move_c(plan, shape, "load"), _move_c(plan, shape, "store")]
    direct = []
    if not arg and _multiplies_in_place(plan, shape):
        flat = _FLAT if shape.mr == _LOW else ()
        direct = [_small_function(plan, shape), *(_flat_function(plan, shape, k) for k in flat)]
    product = _Driver(plan, shape, micro, packs, moves, direct, arg=arg).function()
    return [micro, *packs, *moves, *direct, product, unpacking("call", product)]


def micro_function(plan: Plan, shape: Shape, *, arg: bool, name: str = "micro") -> Function:
    """c[mr][nr] ⊕= a[k][mr] ⊗ b[k][nr], both packed; with `arg` also the step that won.

    Where ⊗ has a weight, each second row of b is those of the one before.
    """
    if joins_logarithms(plan.add):
        return _log_sum_function(plan, shape, name)
    f = Function(name, [I64, PTR, PTR, PTR, PTR, PTR, I64], opaque=False)
    kc, a, b, c, one_at, where, step0 = f.args
    t = compute_type(plan)
    vec = t.vector(shape.lanes)
    one = f.load(one_at, t).splat(shape.lanes) if plan.fma else None
    algebra = Algebra(f, plan, one)
    spread = Type(t.kind, 8 * shape.a_size(t.size))
    tile = [(r, v) for r in range(shape.mr) for v in range(shape.vectors)]
    weighted = ex.W.op in plan.mul.ops()

    def at(r: int, v: int, size: int) -> int:
        return (r * shape.nr + v * shape.lanes) * size

    def steps(acc: dict[tuple[int, int], Var], count: Value, a: Value, b: Value) -> None:
        with f.loop(0, count, 2 if weighted else 1) as k:
            row_a = a.at(k * (shape.mr * spread.size))
            row_b = b.at(k * (shape.nr * t.size))
            for ahead in range(0, shape.nr * t.size, 64):  # streams from the second-level cache
                f.prefetch(row_b.at(PREFETCH + ahead))
            bs = [f.load(row_b.at(v * vec.size), vec, vec.size) for v in range(shape.vectors)]
            if weighted:
                algebra.weight = f.load(row_b.at(shape.nr * t.size), vec, vec.size)
            for r in range(shape.mr):
                x = f.load(row_a.at(r * spread.size), spread, spread.size)
                x = x.splat(vec.size // spread.size).bits_as(vec)
                for v in range(shape.vectors):
                    slot = acc[r, v]
                    slot.set(algebra.fold(slot.get(), x, bs[v]))

    if not arg:
        acc = {rv: f.var(f.load(c.at(at(*rv, t.size)), vec, vec.size)) for rv in tile}
        steps(acc, kc, a, b)
        for rv in tile:
            f.store(acc[rv].get(), c.at(at(*rv, t.size)), vec.size)
        return f

    # accumulators stay in registers; C holds what they were a step before
    index = I32.vector(shape.lanes)
    acc = {rv: f.var(f.load(c.at(at(*rv, t.size)), vec, vec.size)) for rv in tile}
    with f.loop(0, kc, ARG_STEP) as k0:
        count = f.low(kc - k0, ARG_STEP)
        steps(acc, count, a.at(k0 * (shape.mr * spread.size)), b.at(k0 * (shape.nr * t.size)))
        step = (step0 + k0 // ARG_STEP).to(I32).splat(shape.lanes)
        for rv in tile:
            place, mark = c.at(at(*rv, t.size)), where.at(at(*rv, 4))
            new, old = acc[rv].get(), f.load_apart(place, vec, vec.size)
            wins = algebra.better(new, old)
            f.store(f.select(wins, new, old), place, vec.size)
            f.store(f.select(wins, step, f.load_apart(mark, index, 4)), mark, 4)
    return f


def _log_sum_function(plan: Plan, shape: Shape, name: str) -> Function:
    """c[mr][nr] ⊕= log Σ exp(a[k][mr] ⊗ b[k][nr]), both packed, with one exponential a term.

    The greatest term of each entry first, then the sum of the exponentials of what the terms are
    below it; ⊕ itself only joins the block of k to C. A third of the rows at a time, so that both
    stay in registers.
    """
    f = Function(name, [I64, PTR, PTR, PTR, PTR, PTR, I64], opaque=False)
    kc, a, b, c, *_ = f.args
    t = compute_type(plan)
    vec = t.vector(shape.lanes)
    algebra = Algebra(f, plan)
    rows = shape.mr // 3
    tile = [(r, v) for r in range(rows) for v in range(shape.vectors)]
    with f.loop(0, shape.mr, rows) as first:

        def terms(k: Value) -> Iterator[tuple[tuple[int, int], Value]]:
            row_a, row_b = a.at((k * shape.mr + first) * t.size), b.at(k * (shape.nr * t.size))
            right = [f.load(row_b.at(v * vec.size), vec, vec.size) for v in range(shape.vectors)]
            for r in range(rows):
                left = f.load(row_a.at(r * t.size), t, t.size).splat(shape.lanes)
                for v in range(shape.vectors):
                    yield (r, v), algebra.mul(left, right[v])

        sums = {rv: vmath.LogSum(f, vec) for rv in tile}
        with f.loop(0, kc) as k:
            for rv, term in terms(k):
                sums[rv].look(term)
        for sum_ in sums.values():
            sum_.begin()
        with f.loop(0, kc) as k:
            for rv, term in terms(k):
                sums[rv].add(term)
        for (r, v), sum_ in sums.items():
            place = c.at(((first + r) * shape.nr + v * shape.lanes) * t.size)
            old = f.load(place, vec, vec.size)
            f.store(algebra.add(old, sum_.value()), place, vec.size)
    return f


def _pack(
    name: str, plan: Plan | None, shape: Shape, width: int, t: Type = F32, *,
    spread: bool = False, watched: bool = False,
) -> Function:  # fmt: skip
    """Pack one K block: ``dst[panel][k][width]`` from ``src`` with any strides.

    Arguments: src, stride along the panel, stride along k, extent (rows of A or columns of B),
    k extent, dst. Without a plan, `src` holds values of the compute type `t` already. With
    `spread`, short elements are repeated to 32 bits. If they are `watched`, a last argument is
    where their range is kept (see :class:`_Range`).
    """
    f = Function(name, [PTR, I64, I64, I64, I64, PTR, *([PTR] if watched else [])], private=True)
    src, along, down, extent, depth, dst, *seen = f.args
    s = t
    if plan is not None:
        algebra = Algebra(f, plan)
        t, s = algebra.compute, algebra.storage

    size = shape.a_size(t.size) if spread else t.size  # of an element of dst

    pieces, run = _pieces(width, shape.lanes), min(64 // s.size, shape.lanes)
    range_ = _Range(f, t, {1, run, *(lanes for _, lanes in pieces)}) if watched else None

    def decode(x: Value) -> Value:
        x = x if plan is None else algebra.decode(x)
        if range_:
            range_.note(x)
        if size == t.size:
            return x
        word = x.to(Type("u", t.bits)).to(Type("u", 32))
        return word * (0x00010001 if t.bits == 16 else 0x01010101)

    panels = f.ceil_div(extent, width)
    # where the panel's direction is contiguous, vectors are copied: some panels at once while there
    # are as many, so that a row's lines come together, then one by one
    straight = f.select(along.cmp("==", s.size), extent // width, f.const(0, I64))
    grouped = straight // _GROUP * _GROUP
    for first, last, group in ((0, grouped, _GROUP), (grouped, straight, 1)):
        with f.loop(first, last, group) as p, f.loop(0, depth) as k, f.loop(0, group) as panel:
            to = dst.at(((p + panel) * depth + k) * (width * size))
            row = src.at(k * down + (p + panel) * (width * s.size))
            f.prefetch(row.at(down * 4))
            for at, lanes in pieces:
                x = f.load(row.at(at * s.size), s.vector(lanes))
                f.store(decode(x), to.at(at * size), size)
    begin = f.var(straight)
    if s.size >= 4:  # the last one, which repeats the last column
        begin.set(f.select(along.cmp("==", s.size), panels, straight))
        with f.loop(straight, begin.get()) as p, f.loop(0, depth) as k:
            to, row = dst.at((p * depth + k) * (width * size)), src.at(k * down)
            last = f.load(row.at((extent - 1) * s.size), s)
            for at, lanes in pieces:
                first = p * width + at
                inside = f.below(extent - first, lanes)
                x = f.load_masked(row.at(first * s.size), s.vector(lanes), inside)
                f.store(decode(f.select(inside, x, last.splat(lanes))), to.at(at * size), size)
    # a cache line of each row, before it can be lost
    runs = f.select(down.cmp("==", s.size), depth // run * run, f.const(0, I64))
    with f.loop(begin.get(), panels) as p:
        base = src.at(p * along * width)
        out = dst.at(p * depth * (width * size))
        last = extent - p * width - 1  # rows beyond the edge repeat the last one

        def transpose(first: Value | int, rows: int, kept: int) -> None:
            """Transpose `rows` rows from `first`, `run` steps of k at a time."""
            at = f.const(first, I64) if isinstance(first, int) else first
            starts = [base.at(f.low(at + r, last) * along) for r in range(rows)]
            to = out.at(at * size)
            with f.loop(0, runs, run) as k:
                block = []
                for x in starts:
                    f.prefetch(x.at(k * s.size).at(128))
                    block.append(decode(f.load(x.at(k * s.size), s.vector(run))))
                for i, column in enumerate(transposed(f, block)):
                    x = column if kept == rows else f.shuffle(column, column, range(kept))
                    f.store(x, to.at((k + i) * (width * size)), size)

        square = min(_ROWS, run)  # no more rows than a vector of them has steps
        if width >= square:
            with f.loop(0, width // square * square, square) as w:
                transpose(w, square, square)
        if rest := width % square:
            transpose(width - rest, min(1 << (rest - 1).bit_length(), run), rest)
        with f.loop(runs, depth) as k, f.loop(0, width) as w:
            x = f.load(base.at(f.low(w, last) * along + k * down), s)
            f.store(decode(x), out.at((k * width + w) * size), size)
    if range_:
        range_.join(seen[0])
    return f


class _Range:
    """The least and the greatest number that a function has seen, and whether one was NaN.

    Kept as three numbers; a plan depends on them, so that packing under a plan for other numbers is
    seen when it is done.
    """

    def __init__(self, f: Function, t: Type, widths: set[int]) -> None:
        self.f, self.t = f, t
        self.found = {
            lanes: tuple(
                f.var(f.const(x, t.vector(lanes) if i < 2 else Type("i", 1, lanes)))
                for i, x in enumerate((math.inf, -math.inf, 0))
            )
            for lanes in sorted(widths)
        }

    def note(self, x: Value) -> None:
        low, high, odd = self.found[x.type.lanes]
        low.set(self.f.select(x.cmp("<", low.get()), x, low.get()))
        high.set(self.f.select(x.cmp(">", high.get()), x, high.get()))
        odd.set(odd.get() | x.cmp("uno", x))

    def join(self, place: Value) -> None:
        """Join to the numbers at an address."""
        f, t = self.f, self.t
        for lanes, (low, high, odd) in self.found.items():
            ends, bad = [low.get(), high.get()], odd.get()
            if lanes > 1:
                suffix = t.vector(lanes).suffix()
                ends = [f.call(f"llvm.vector.reduce.{name}.{suffix}", t, [x])
                        for name, x in zip(("fmin", "fmax"), ends, strict=True)]  # fmt: skip
                bad = bad.bits_as(Type("u", lanes)).cmp("!=", 0)
            ends.append(f.select(bad, f.const(1.0, t), f.const(0.0, t)))
            for i, (x, sign) in enumerate(zip(ends, "<>>", strict=True)):
                at = place.at(i * t.size)
                old = f.load(at, t, t.size)
                f.store(f.select(x.cmp(sign, old), x, old), at, t.size)

    @staticmethod
    def begin(f: Function, t: Type, place: Value) -> None:
        """Nothing seen."""
        for i, x in enumerate(NOTHING_SEEN):
            f.store(f.const(x, t), place.at(i * t.size), t.size)

    @staticmethod
    def publish(f: Function, t: Type, place: Value, shared: Value) -> None:
        """Join to what other threads have seen."""
        for i, way in enumerate(("fmin", "fmax", "fmax")):
            x = f.load(place.at(i * t.size), t, t.size)
            f.emit(f"atomicrmw {way} ptr {shared.at(i * t.size).name}, {t} {x.name} acq_rel", t)


#: Panels packed side by side, and rows transposed at once.
_GROUP, _ROWS = 16, 8

#: Bytes of B, and from one of its rows to the next, up to which a product is multiplied from where
#: the operands lie: rows further apart share few sets of a cache, each of which has so many ways.
_SMALL, _NEAR, _WAYS = 160 << 10, 2048, 8
_FLAT = 2, 3  # steps of k of few rows, for which there is code of its own
_SMALL_ARGUMENTS = PTR, I64, I64, PTR, I64, PTR, I64, I64, I64, I64


def _multiplies_in_place(plan: Plan, shape: Shape) -> bool:
    """Whether products of few entries, or of few rows, are computed from where operands lie."""
    plain = plan.compute[0] == "f" and plan.storage not in ("float16", "bfloat16")
    once = not joins_logarithms(plan.add) and ex.W.op not in plan.mul.ops()
    return plain and once and (shape.fused or shape.mr == _LOW)


def _small_function(plan: Plan, shape: Shape) -> Function:
    """Generate ``small``: C ← A B of few entries, unpacked; B and C have contiguous rows.

    Arguments: A, its strides, B, its row stride, C, its row stride, m, n, k. A tile is as many rows
    and vectors as remain, so that no row or vector of it is computed in vain.
    """
    f = Function("small", _SMALL_ARGUMENTS, private=True, opaque=False)
    algebra = Algebra(f, plan)
    a, a_row, a_col, b, b_row, c, c_row, m, n, depth = f.args
    t, lanes = algebra.compute, shape.lanes
    vector, most = t.vector(lanes), 24 // shape.vectors if shape.mr > 6 else shape.mr

    def tile(i: Value, rows: int, j: Value, vectors: int, left: Value | None) -> None:
        """Some rows and vectors of C; of the last vector those lanes that are left."""
        last = None if left is None else f.below(left - (vectors - 1) * lanes, lanes)
        masks = [*[None] * (vectors - 1), last]
        starts = [a.at((i + r) * a_row) for r in range(rows)]
        sums = [[f.var(algebra.start(lanes)) for _ in range(vectors)] for _ in starts]
        with f.loop(0, depth) as k:
            line = b.at(k * b_row + j * t.size)
            right = [
                f.load(line.at(v * vector.size), vector)
                if mask is None
                else f.load_masked(line.at(v * vector.size), vector, mask)
                for v, mask in enumerate(masks)
            ]
            for start, row in zip(starts, sums, strict=True):
                x = f.load(start.at(k * a_col), t).splat(lanes)
                for total, y in zip(row, right, strict=True):
                    total.set(algebra.fold(total.get(), x, y))
        for r, row in enumerate(sums):
            for v, (total, mask) in enumerate(zip(row, masks, strict=True)):
                place = c.at((i + r) * c_row + (j + v * lanes) * t.size)
                value = algebra.ended(total.get())
                if mask is None:
                    f.store(value, place)
                else:
                    f.store_masked(value, place, mask)

    def across(i: Value, rows: int) -> None:
        whole = n // shape.nr * shape.nr
        with f.loop(0, whole, shape.nr) as j:
            tile(i, rows, j, shape.vectors, None)
        for vectors in range(shape.vectors, 0, -1):
            least = (vectors - 1) * lanes
            left = n - whole
            with f.if_(left.cmp(">", least) & left.cmp("<=", least + lanes)):
                tile(i, rows, whole, vectors, left)

    first = f.const(0, I64)
    for rows in dict.fromkeys((most, 4, 1)):
        end = first + (m - first) // rows * rows
        with f.loop(first, end, rows) as i:
            across(i, rows)
        first = end
    return f


def _flat_function(plan: Plan, shape: Shape, depth: int) -> Function:
    """Generate ``flatN``: C ← A B of N steps of k, whose columns of B follow one another.

    Arguments are those of ``small``. Columns are turned in registers.
    """
    f = Function(f"flat{depth}", _SMALL_ARGUMENTS, private=True)
    a, a_row, a_col, b, _, c, c_row, m, n, _ = f.args
    algebra, lanes = Algebra(f, plan), shape.lanes
    t = algebra.compute
    vector = t.vector(lanes)
    with f.loop(0, n, lanes) as j:
        rest, at = (n - j) * depth, b.at(j * (depth * t.size))
        parts = [
            f.load_masked(at.at(v * vector.size), vector, f.below(rest - v * lanes, lanes))
            for v in range(depth)
        ]
        right = [f.strided(parts, k) for k in range(depth)]
        with f.loop(0, m) as i:
            total, left = algebra.start(lanes), a.at(i * a_row)
            for k, y in enumerate(right):
                x = f.load(left.at(a_col * k), t).splat(lanes)
                total = algebra.fold(total, x, y)
            place = c.at(i * c_row + j * t.size)
            f.store_masked(algebra.ended(total), place, f.below(n - j, lanes))
    return f


def _pieces(width: int, lanes: int) -> list[tuple[int, int]]:
    """Cut `width` into vectors of at most `lanes`, powers of two."""
    pieces, first = [], 0
    while first < width:
        n = lanes
        while n > width - first:
            n //= 2
        pieces.append((first, n))
        first += n
    return pieces


def _pack_bits(name: str, width: int) -> Function:
    """Pack one K block of a bool operand whose columns become words of 32; as :func:`_pack`."""
    f = Function(name, [PTR, I64, I64, I64, I64, PTR], private=True)
    src, along, down, extent, depth, dst = f.args
    words = f.ceil_div(extent, 32)
    panels = f.ceil_div(words, width)
    byte, mask = Type("u", 8), Type("i", 32)
    contiguous = along.cmp("==", 1)
    with f.loop(0, panels) as p, f.loop(0, depth) as k:
        row = src.at(k * down)
        out = dst.at((p * depth + k) * (width * 4))
        with f.loop(0, width) as w:
            first = (p * width + w) * 32
            with f.if_else(contiguous & (first + 32).cmp("<=", extent)) as otherwise:
                bits = f.load(row.at(first), byte.vector(32)).cmp("!=", 0).bits_as(mask)
                f.store(bits, out.at(w * 4), 4)
                with otherwise():
                    word = f.var(f.const(0, mask))
                    with f.loop(first, f.low(first + 32, extent)) as j:
                        on = f.load(row.at(j * along), byte).cmp("!=", 0)
                        bit = f.select(on, f.const(1, mask), f.const(0, mask))
                        word.set(word.get() | (bit << (j - first).to(mask)))
                    f.store(word.get(), out.at(w * 4), 4)
    return f


def _move_c(plan: Plan, shape: Shape, way: str) -> Function:
    """Move one tile between C (any strides) and its local copy.

    Arguments: C at the tile, row stride, column stride, rows and columns (in C's elements) inside,
    local tile, flags, β. Loading with β multiplies by it; storing notes a result that does not fit.
    """
    f = Function(f"{way}_c", [PTR, I64, I64, I64, I64, PTR, PTR, PTR], private=True)
    c, rs, cs, rows, columns, local, flags, beta = f.args
    algebra = Algebra(f, plan)
    t, s = algebra.compute, algebra.storage
    if plan.codec == "bits":
        _move_bits(f, shape, way, c, rs, cs, rows, columns, local)
        return f

    def element(
        place: Value, near: Value, lanes: int, factor: Value | None, inside: Value | None = None
    ) -> None:
        """Move a vector; of one that C's edge cuts those lanes that are inside."""
        if way == "load":
            vector = s.vector(lanes)
            x = f.load(place, vector) if inside is None else f.load_masked(place, vector, inside)
            x = algebra.decode(x)
            if factor is not None:
                x = algebra.scale(factor.splat(lanes), x)
            f.store(x, near, t.size)
            return
        value, overflow = algebra.encode(f.load(near, t.vector(lanes), t.size))
        value = algebra.ended(value)
        if inside is None:
            f.store(value, place)
        else:
            f.store_masked(value, place, inside)
        if overflow is not None:
            overflow = overflow if inside is None else overflow & inside
            one = Type("i", 8).vector(lanes)
            seen = f.select(overflow, f.const(1, one), f.const(0, one))
            any_ = (
                seen
                if lanes == 1
                else f.call(f"llvm.vector.reduce.or.{one.suffix()}", Type("i", 8), [seen])
            )
            f.store(f.load(flags, Type("i", 8)) | any_, flags)

    def line(row: Value, near: Value, factor: Value | None, *, whole: bool) -> None:
        """A row of the tile, contiguous in C."""
        for v in range(0, shape.nr, shape.lanes):
            inside = None if whole else f.below(columns - v, shape.lanes)
            element(row.at(v * s.size), near.at(v * t.size), shape.lanes, factor, inside)

    def walk(factor: Value | None) -> None:
        straight, whole = cs.cmp("==", s.size), columns.cmp(">=", shape.nr)
        with f.loop(0, f.low(rows, shape.mr)) as r:
            row, near = c.at(r * rs), local.at(r * (shape.nr * t.size))
            with f.if_else(straight & whole) as otherwise:
                line(row, near, factor, whole=True)
                with otherwise():
                    apart = f.var(f.const(0, I64))
                    if s.size >= 4:  # as vectors of short numbers are masked one by one
                        with f.if_(straight):
                            line(row, near, factor, whole=False)
                            apart.set(columns)
                    with f.loop(apart.get(), f.low(columns, shape.nr)) as j:
                        element(row.at(j * cs), near.at(j * t.size), 1, factor)

    if way == "load":
        with f.if_else(beta.cmp("==", f.emit("inttoptr i64 0 to ptr", PTR))) as otherwise:
            walk(None)
            with otherwise():
                walk(f.load(beta, t))
    else:
        walk(None)
    return f


def _move_bits(
    f: Function, shape: Shape, way: str, c: Value, rs: Value, cs: Value, rows: Value,
    columns: Value, local: Value,
) -> None:  # fmt: skip
    word, byte = Type("i", 32), Type("u", 8)
    fast = cs.cmp("==", 1)
    with f.loop(0, f.low(rows, shape.mr)) as r:
        row, near = c.at(r * rs), local.at(r * (shape.nr * 4))
        with f.loop(0, f.low(f.ceil_div(columns, 32), shape.nr)) as w:
            first = w * 32
            with f.if_else(fast & (first + 32).cmp("<=", columns)) as otherwise:
                if way == "store":
                    bits = f.load(near.at(w * 4), word, 4).bits_as(Type("i", 1, 32))
                    f.store(bits.to(byte), row.at(first))
                else:
                    bits = f.load(row.at(first), byte.vector(32)).cmp("!=", 0).bits_as(word)
                    f.store(bits, near.at(w * 4), 4)
                with otherwise():
                    value = f.var(f.load(near.at(w * 4), word, 4) if way == "store"
                                  else f.const(0, word))  # fmt: skip
                    with f.loop(first, f.low(first + 32, columns)) as j:
                        place, shift = row.at(j * cs), (j - first).to(word)
                        if way == "store":
                            f.store(((value.get() >> shift) & 1).to(byte), place)
                        else:
                            on = f.load(place, byte).cmp("!=", 0)
                            bit = f.select(on, f.const(1, word), f.const(0, word))
                            value.set(value.get() | (bit << shift))
                    if way == "load":
                        f.store(value.get(), near.at(w * 4), 4)


class _Driver:
    """Generates the entry ``product``: the loops over packed blocks, each phase a method.

    A thread's workspace begins with flags (64 bytes) and the local block of C, with `arg` its
    winning steps, too. What threads share lies behind, or at the address ``team``: counters, packed
    A and packed B, and with `arg` both once more (see :class:`_Search`).
    """

    def __init__(
        self, plan: Plan, shape: Shape, micro: Function, packs: list[Function],
        moves: list[Function], direct: list[Function], *, arg: bool,
    ) -> None:  # fmt: skip
        f = self.f = Function("product", [PTR] * 7)
        A, B, C, workspace, params, K, P = f.args
        self.a, self.b, self.c = (ArrayView(f, x) for x in (A, B, C))
        p = self.p = {name: f.load(params.at(8 * i), I64) for i, name in enumerate(PARAMS)}
        self.field = {name: params.at(8 * i) for i, name in enumerate(PARAMS)}
        self.plan, self.shape = plan, shape
        self.micro, self.packs, self.moves, self.direct = micro, packs, moves, direct
        self.algebra = Algebra(f, plan)
        self.t = self.algebra.compute
        self.unit = 32 if plan.codec == "bits" else 1  # columns of C in an element computed with
        self.a_size = shape.a_size(self.t.size)
        self.tile_bytes = shape.mr * shape.nr * self.t.size
        self.depth = f.select(p["depth"].cmp("<", 0), self.a.dim(-1), p["depth"])
        # bytes from row to row, and from column to column
        self.a_steps = self._strides(self.a, TURN_A)
        self.b_steps = self._strides(self.b, TURN_B)
        self.i1 = f.select(p["i1"].cmp("<", 0), self.c.dim(-2), p["i1"])
        self.j1 = f.select(p["j1"].cmp("<", 0), self.c.dim(-1), p["j1"])
        self.panels = (p["m_block"] // shape.mr, p["n_block"] // shape.nr)  # of a block, at most
        ws = self.flags = f.load(workspace.at(HEAD), PTR, 8)
        self.local = ws.at(64)
        self.marks = self.local.at(shape.mc * shape.nc * self.t.size)
        alone = p["team"].cmp("==", 0)
        mine = ws.at(shape.own_bytes(self.t.size, arg=arg))
        shared = f.emit(f"inttoptr i64 {p['team'].name} to ptr", PTR)
        self.claimed = f.select(alone, mine, shared)
        self.seen = [f.alloca(self.t, 3) for _ in range(2)] if watches(plan) else []
        for place in self.seen:
            _Range.begin(f, self.t, place)
        self.team = Team(f, ws, self.claimed)
        with f.if_(alone):
            self.team.reset()
            self.team.join()
            for i in range(len(self.seen)):
                _Range.begin(f, self.t, self.claimed.at(SEEN + 3 * i * self.t.size))
        rows = f.ceil_div(p["m_slab"], shape.mr) * shape.mr
        columns = f.ceil_div(p["n_slab"], shape.nr) * shape.nr
        self.packed_a = self.claimed.at(COUNTERS)
        self.packed_b = self.packed_a.at(p["k_slab"] * rows * self.a_size)
        self.null = f.emit("inttoptr i64 0 to ptr", PTR)
        self.beta = f.select((p["mode"] & BETA).cmp("!=", 0), self.field["beta"], self.null)
        self.search = None
        if arg:
            lines_a = self.packed_b.at(p["k_slab"] * columns * self.t.size)
            lines_b = lines_a.at(p["k_slab"] * rows * self.t.size)
            self.search = _Search(
                f, plan, shape, packs[2], ArrayView(f, K), ArrayView(f, P), p, self.field,
                self.local, self.marks, lines_a, lines_b,
            )  # fmt: skip

    def function(self) -> Function:
        f, p = self.f, self.p
        if not self.direct:
            self._by_slabs()
            with f.if_((p["mode"] & READ_C).cmp("==", 0)):
                for i, place in enumerate(self.seen):
                    shared = self.claimed.at(SEEN + 3 * i * self.t.size)
                    _Range.publish(f, self.t, place, shared)
            return f
        whole = p["mode"] | p["team"] | p["i0"] | p["j0"] | (p["i1"] + 1) | (p["j1"] + 1)
        plain = whole.cmp("==", 0) & self.c.stride(-1).cmp("==", self.t.size)
        self._in_place([(function, plain & fits) for function, fits in self._served()])
        return f

    def _served(self) -> Iterator[tuple[Function, Value]]:
        """Functions that multiply from where operands lie, and whether they lie well for each."""
        depth, size, (small, *flat) = self.depth, self.t.size, self.direct
        row, column = self.b.stride(-2), self.b.stride(-1)
        few = (depth * self.c.dim(-1) * size).cmp("<=", _SMALL)
        near = row.cmp("<=", _NEAR) | depth.cmp("<=", _WAYS)
        yield small, column.cmp("==", size) & few & near
        for function, steps in zip(flat, _FLAT, strict=False):
            turned = row.cmp("==", size) & column.cmp("==", steps * size)
            yield function, depth.cmp("==", steps) & turned

    def _in_place(self, choices: Sequence[tuple[Function, Value]]) -> None:
        """Multiply by the first function whose condition holds, or by slabs."""
        if not choices:
            self._by_slabs()
            return
        f, ((function, fits), *others) = self.f, choices
        with f.if_else(fits) as otherwise:
            with f.loop(0, self.p["batch"]) as batch:
                a, b, c = self._matrices(batch)
                f.invoke(function, [
                    a, self.a.stride(-2), self.a.stride(-1), b, self.b.stride(-2), c,
                    self.c.stride(-2), self.c.dim(-2), self.c.dim(-1), self.depth,
                ])  # fmt: skip
            with otherwise():
                self._in_place(others)

    def _strides(self, view: ArrayView, turn: int) -> tuple[Value, Value]:
        """The bytes from row to row and from column to column, of the transpose in a mode."""
        straight = (self.p["mode"] & turn).cmp("==", 0)
        row, column = view.stride(-2), view.stride(-1)
        return self.f.select(straight, row, column), self.f.select(straight, column, row)

    def _matrices(self, batch: Value) -> tuple[Value, ...]:
        """Where A, B and C of a stack begin."""
        return tuple(
            view.data.at(self.p[f"{name}_offset"] + batch * self.p[f"{name}_batch"])
            for name, view in (("a", self.a), ("b", self.b), ("c", self.c))
        )

    def _by_slabs(self) -> None:
        f, p, shape, unit = self.f, self.p, self.shape, self.unit
        with f.loop(0, p["batch"]) as batch:
            data_a, data_b, data_c = self._matrices(batch)
            with f.loop(0, self.depth, p["k_slab"]) as ks:
                kk = f.low(self.depth - ks, p["k_slab"])
                with f.loop(p["j0"], self.j1, p["n_slab"] * unit) as jb:
                    nn = f.low(self.j1 - jb, p["n_slab"] * unit)  # columns of C
                    panels_b = f.ceil_div(nn if unit == 1 else f.ceil_div(nn, unit), shape.nr)
                    with f.loop(p["i0"], self.i1, p["m_slab"]) as ib:
                        mm = f.low(self.i1 - ib, p["m_slab"])
                        panels_a = f.ceil_div(mm, shape.mr)
                        starts = (
                            data_a.at(ib * self.a_steps[0] + ks * self.a_steps[1]),
                            data_b.at(ks * self.b_steps[0] + jb * self.b_steps[1]),
                            data_c.at(ib * self.c.stride(-2) + jb * self.c.stride(-1)),
                        )
                        # rows of A that are one slab stay packed for all columns
                        several = (self.i1 - p["i0"]).cmp(">", p["m_slab"])
                        new = tuple(
                            f.select(x, f.const(1, I64), f.const(0, I64))
                            for x in (several | jb.cmp("==", p["j0"]), ib.cmp("==", p["i0"]))
                        )
                        self._pack(starts, kk, (mm, panels_a), (nn, panels_b), new)
                        self._multiply(starts[2], ks, kk, (ib, mm, panels_a), (jb, nn, panels_b),
                                       batch)  # fmt: skip

    def _pack(
        self, starts: tuple[Value, ...], kk: Value, rows: tuple[Value, Value],
        columns: tuple[Value, Value], new: tuple[Value, ...],
    ) -> None:  # fmt: skip
        """Pack rows of A and columns of B, of each if they are `new`, through a slab of K."""
        f, shape = self.f, self.shape
        depths = f.ceil_div(kk, shape.kc)
        pieces_a, pieces_b = (
            (panels + (most - 1)) // most * depths * some
            for (_, panels), most, some in zip((rows, columns), self.panels, new, strict=True)
        )

        def pack(which: int, piece: Value) -> None:
            (along, down), (extent, panels), most, width, size, packed = (
                (self.a_steps, rows, self.panels[0], shape.mr, self.a_size, self.packed_a),
                (self.b_steps[::-1], columns, self.panels[1], shape.nr, self.t.size,
                 self.packed_b),
            )[which]  # fmt: skip
            kb, panel = piece % depths * shape.kc, piece // depths * most
            kc, count = f.low(kk - kb, shape.kc), f.low(panels - panel, most)
            first = panel * (width * (self.unit if which else 1))
            inside = f.low(extent - first, count * (width * (self.unit if which else 1)))
            to = packed.at((kb * panels + panel * kc) * (width * size))
            f.invoke(self.packs[which], [
                starts[which].at(kb * down + first * along), along, down, inside, kc, to,
                *self.seen[which : which + 1],
            ])  # fmt: skip
            if which == 0 and self.plan.codec != "bits":
                with f.if_((self.p["mode"] & ALPHA).cmp("!=", 0)):
                    self._scale_a(to, count * kc * width)
            if self.search:
                with f.loop(0, count) as x:
                    self.search.pack(which, to.at(x * kc * (width * size)), panel + x, kb, kc)

        with (
            self.team.loop(pieces_a + pieces_b) as piece,
            f.if_else(piece.cmp("<", pieces_a)) as otherwise,
        ):
            pack(0, piece)
            with otherwise():
                pack(1, piece - pieces_a)

    def _scale_a(self, packed: Value, count: Value) -> None:
        f, t = self.f, self.t
        factor = f.load(self.field["alpha"], t)
        with f.loop(0, count) as e:
            place = packed.at(e * self.a_size)
            x = self.algebra.scale(factor, f.load(place, t, t.size))
            for copy in range(0, self.a_size, t.size):
                f.store(x, place.at(copy), t.size)

    def _multiply(
        self, c: Value, ks: Value, kk: Value, rows: tuple[Value, ...], columns: tuple[Value, ...],
        batch: Value,
    ) -> None:  # fmt: skip
        """Multiply a slab: each block of C through all its blocks of K."""
        f, shape, unit = self.f, self.shape, self.unit
        (ib, mm, panels_a), (jb, nn, panels_b) = rows, columns
        most_a, most_b = self.panels
        across = (panels_b + (most_b - 1)) // most_b
        pieces = (panels_a + (most_a - 1)) // most_a * across
        with self.team.loop(pieces) as piece:
            pa, pb = piece // across * most_a, piece % across * most_b
            i, j = pa * shape.mr, pb * (shape.nr * unit)
            below = (jb + j + most_b * (shape.nr * unit)).cmp("<=", (ib + i) // SQUARE * SQUARE)
            below = below & (self.p["mode"] & TRIANGLE).cmp("!=", 0)
            with f.if_(below ^ 1):
                corner = c.at(i * self.c.stride(-2) + j * self.c.stride(-1))
                block = (f.low(panels_a - pa, most_a), f.low(panels_b - pb, most_b))
                inside = (mm - i, nn - j)
                with f.loop(0, kk, shape.kc) as kb:
                    kc = f.low(kk - kb, shape.kc)
                    at_a = self.packed_a.at((kb * panels_a + pa * kc) * (shape.mr * self.a_size))
                    at_b = self.packed_b.at((kb * panels_b + pb * kc) * (shape.nr * self.t.size))
                    ends = (kb.cmp("==", 0), (kb + kc).cmp("==", kk))
                    self._block(block, inside, corner, at_a, at_b, (ks, kb, kc), ends)
                if self.search:
                    self.search.run(block, inside, (ib + i, jb + j), (pa, pb), ks, batch)

    def _block(
        self, block: tuple[Value, Value], inside: tuple[Value, Value], corner: Value, at_a: Value,
        at_b: Value, depth: tuple[Value, Value, Value], ends: tuple[Value, Value],
    ) -> None:  # fmt: skip
        """The micro-kernel on each tile of the local block, which comes from C and goes there."""
        f, t, shape = self.f, self.t, self.shape
        (panels_a, panels_b), (ks, kb, kc), (first, last) = block, depth, ends
        rs, cs = self.c.stride(-2), self.c.stride(-1)
        width = shape.nr * self.unit
        # along C's rows: its lines are written one after the other, where few steps of k leave no
        # time to wait for them; A's panel stays in the first-level cache
        with f.loop(0, panels_a) as ir, f.loop(0, panels_b) as jr:
            n = jr * panels_a + ir
            local, marks = (
                self.local.at(n * self.tile_bytes),
                self.marks.at(n * shape.mr * shape.nr * 4),
            )
            place = corner.at(ir * rs * shape.mr + jr * cs * width)
            move = [place, rs, cs, inside[0] - ir * shape.mr, inside[1] - jr * width, local,
                    self.flags]  # fmt: skip
            with f.if_(first):
                self._begin(move, ks, local, marks)
            with f.if_(last), f.loop(0, f.low(move[3], shape.mr)) as r:
                for line in range(0, shape.nr * self.algebra.storage.size, 64):
                    f.prefetch(place.at(r * rs).at(line), write=True)
            f.invoke(self.micro, [
                kc, at_a.at(ir * kc * (shape.mr * self.a_size)),
                at_b.at(jr * kc * (shape.nr * t.size)), local, self.field["one"], marks,
                kb // ARG_STEP,
            ])  # fmt: skip
            with f.if_(last):
                f.invoke(self.moves[1], [*move, self.null])

    def _begin(self, move: list[Value], ks: Value, local: Value, marks: Value) -> None:
        """Fill a tile: from the start of ⊕, or from β ⊗ C, or C after the first slab."""
        f, t, shape = self.f, self.t, self.shape
        entries = shape.mr * shape.nr
        fresh = ((self.p["mode"] & READ_C).cmp("==", 0)) & ks.cmp("==", 0)
        with f.if_else(fresh) as otherwise:
            with f.loop(0, self.tile_bytes // 64) as e:
                f.store(self.algebra.start(64 // t.size), local.at(e * 64), t.size)
            if self.search:
                _fill(f, marks, entries, 0)
            with otherwise():
                f.invoke(self.moves[0], [*move, f.select(ks.cmp("==", 0), self.beta, self.null)])
                if self.search:
                    _fill(f, marks, entries, -1)


def _fill(f: Function, where: Value, count: int, value: int) -> None:
    line = I32.vector(8)
    with f.loop(0, count // 8) as e:
        f.store(f.const(value, line), where.at(e * 32), 4)


class _Search:
    """Finds the k of each entry: in the step that won, the first that gives the entry's value.

    Both operands are laid out once more, as ``[panel][step][row or column][k in the step]``, so
    that an entry's step is one line of each: one vector product and one comparison.
    """

    def __init__(
        self, f: Function, plan: Plan, shape: Shape, pack: Function, k_array: ArrayView,
        p_array: ArrayView, p: dict[str, Value], field: dict[str, Value], *buffers: Value,
    ) -> None:  # fmt: skip
        self.f, self.plan, self.shape, self.code = f, plan, shape, pack
        self.k_array, self.p_array, self.p, self.field = k_array, p_array, p, field
        self.local, self.marks, *self.lines = buffers
        self.t = compute_type(plan)
        self.firsts = f.alloca(I32, shape.mr * shape.nr)  # the place of k in the step that won

    def _panel(self, which: int, panel: Value) -> Value:
        """Where the lines of a panel of A (0) or B (1) begin."""
        width = (self.shape.mr, self.shape.nr)[which]
        return self.lines[which].at(panel * self.p["k_slab"] * (width * self.t.size))

    def pack(self, which: int, packed: Value, panel: Value, kb: Value, kc: Value) -> None:
        """One K block of a packed panel as lines."""
        f, t, shape = self.f, self.t, self.shape
        width, size = ((shape.mr, shape.a_size(t.size)), (shape.nr, t.size))[which]
        f.invoke(self.code, [
            packed, f.const(width * size, I64), f.const(size, I64), kc, f.const(width, I64),
            self._panel(which, panel).at(kb * (width * t.size)),
        ])  # fmt: skip

    def run(
        self, block: tuple[Value, Value], inside: tuple[Value, Value],
        corner: tuple[Value, Value], first: tuple[Value, Value], ks: Value, batch: Value,
    ) -> None:  # fmt: skip
        """Write the k, or what P holds for it, of the entries that improved in this slab of K."""
        f, t, shape = self.f, self.t, self.shape
        keys = self.k_array
        out = keys.data.at(self.p["arg_offset"] + batch * keys.stride(-2) * keys.dim(-2))
        marks = I32.vector(shape.lanes)
        with f.loop(0, block[1]) as jr:
            columns = f.low(inside[1] - jr * shape.nr, shape.nr)
            right = self._panel(1, first[1] + jr)
            with f.loop(0, block[0]) as ir:
                rows = f.low(inside[0] - ir * shape.mr, shape.mr)
                left = self._panel(0, first[0] + ir)
                column = corner[1] + jr * shape.nr

                def entry(r: Value, ir: Value = ir, jr: Value = jr) -> Value:
                    return ((jr * block[0] + ir) * shape.mr + r) * shape.nr

                with f.loop(0, rows) as r:
                    line = self.marks.at(entry(r) * 4)
                    newest = f.load(line, marks, 4)
                    for v in range(1, shape.vectors):
                        other = f.load(line.at(v * marks.size), marks, 4)
                        newest = f.select(newest.cmp(">", other), newest, other)
                    best = f.call(f"llvm.vector.reduce.smax.{marks.suffix()}", I32, [newest])
                    with f.if_(best.cmp(">=", 0)):
                        self._row(left, right, r, line, self.local.at(entry(r) * t.size))
                # by now a row's places can be loaded as vectors: a load waits for narrower stores
                with f.loop(0, rows) as r:
                    place = out.at(
                        (corner[0] + ir * shape.mr + r) * keys.stride(-2) + column * keys.stride(-1)
                    )
                    self._write(place, columns, self.marks.at(entry(r) * 4), r, column, ks)

    def _row(self, panel: Value, across: Value, r: Value, line: Value, values: Value) -> None:
        """Find the place of k within the step of each entry of a row of marks."""
        f, t, shape = self.f, self.t, self.shape
        vector, hits = t.vector(ARG_STEP), Type("u", ARG_STEP)
        one = f.load(self.field["one"], t).splat(ARG_STEP) if self.plan.fma else None
        algebra = Algebra(f, self.plan, one)
        together = math.gcd(shape.nr, 4)
        with f.loop(0, shape.nr, together) as j0:
            for j in (j0 + x for x in range(together)):
                mark = f.load(line.at(j * 4), I32, 4)
                step = f.call("llvm.smax.i32", I32, [mark, f.const(0, I32)]).to(I64)
                left = f.load(panel.at((step * shape.mr + r) * vector.size), vector, t.size)
                right = f.load(across.at((step * shape.nr + j) * vector.size), vector, t.size)
                # the row after next: its lines lie beyond the second-level cache
                later = f.load(line.at((j + 2 * shape.nr) * 4), I32, 4).to(I64)
                for part in range(0, vector.size, 64):
                    f.prefetch(panel.at((later * shape.mr + r + 2) * vector.size + part))
                    f.prefetch(across.at((later * shape.nr + j) * vector.size + part))
                value = f.load(values.at(j * t.size), t, t.size).splat(ARG_STEP)
                found = algebra.same(algebra.mul(left, right), value).bits_as(hits)
                bits = found.to(I32) | (1 << (ARG_STEP - 1))
                first = f.call("llvm.cttz.i32", I32, [bits, f.const(1, Type("i", 1))])
                f.store(first, self.firsts.at((r * shape.nr + j) * 4), 4)

    def _write(
        self, place: Value, columns: Value, line: Value, r: Value, column: Value, ks: Value
    ) -> None:
        """Write the k of a row where its mark is a step, not -1."""
        f, shape, keys, table = self.f, self.shape, self.k_array, self.p_array
        vector = I32.vector(shape.lanes)
        whole = keys.stride(-1).cmp("==", 4) & columns.cmp(">=", shape.nr)
        whole = whole & (self.p["mode"] & GATHER).cmp("==", 0)
        for v in range(shape.vectors):
            at = v * vector.size
            mark = f.load(line.at(at), vector, 4)
            first = f.load(self.firsts.at(r * (shape.nr * 4) + at), vector, 4)
            k = mark * ARG_STEP + first + ks.to(I32).splat(shape.lanes)
            improved = mark.cmp(">=", 0)
            with f.if_else(whole) as otherwise:
                f.store_masked(k, place.at(at), improved, 4)
                with otherwise():
                    f.store(f.select(improved, k, mark), line.at(at), 4)
        with f.if_(whole.cmp("==", 0)), f.loop(0, columns) as j:
            k, to = f.load(line.at(j * 4), I32, 4), place.at(j * keys.stride(-1))
            with (
                f.if_(k.cmp(">=", 0)),
                f.if_else((self.p["mode"] & GATHER).cmp("!=", 0)) as otherwise,
            ):
                row = self.p["pred_offset"] + k.to(I64) * table.stride(-2)
                got = f.load(table.data.at(row + (column + j) * table.stride(-1)), I32)
                f.store(got, to)
                with otherwise():
                    f.store(k, to)
