"""The matrix product on NumPy arrays: how it is computed, and by how many threads.

The compiled loops are those of :mod:`semiring_mm.cpu.product_code`; large log_plus products are
turned into products of exponentials, and plus_times of floats may go to NumPy's BLAS.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..engine import PLAIN, Known, Lines, Scalar, Scaling
from ..expressions import Expr, joins, joins_logarithms
from ..memory import workspace
from ..plan import (
    Facts,
    Plan,
    bytewise,
    make_plan,
    needs_facts,
    overflow,
    scalar_bits,
)
from ..semirings import Semiring, semirings
from . import logsum
from .closure import keeping
from .combine import apply
from .compiler import KEPT
from .facts import class_of, coarse_facts, facts_of_class
from .product_code import (
    FEW,
    GATHER,
    NOTHING_SEEN,
    PARAMS,
    SEEN,
    SQUARE,
    TRIANGLE,
    TURN_A,
    TURN_B,
    ProductCode,
    Shape,
    fewer_vectors,
    params_of,
    product_code,
    watches,
)
from .team import COUNTERS, lease, run_program, stopped
from .tuning import tuned
from .views import address

__all__ = [
    "Blocks", "Cutter", "Program", "Step", "blas_serves", "blocks", "by_blas", "choose", "coarse",
    "code_of", "ends", "lie_well", "pack_bits", "product", "program_of", "team_of",
]  # fmt: skip

Array = NDArray[Any]

_STRIP = 32 << 20  # bytes of an operand packed over the whole of K
_TEAM = 64 << 20  # bytes of both operands that threads pack together
_SHARE = 4_000_000  # pairs that pay for one more thread
_LATE = 1 << 25  # pairs of a thread beside which the time until the last one begins is small
_SERIAL = 288**3  # pairs below which a second thread costs more than it brings
_GUESSED = 2 * _SHARE  # pairs beside which reading the operands twice is worth avoiding


def product(
    semiring: Semiring,
    a: Array,
    b: Array,
    c: Array,
    scaling: Scaling = PLAIN,
    *,
    arg: NDArray[np.int32] | None = None,
    gather: NDArray[np.int32] | None = None,
    known: Known | None = None,
    overlap: str = "",
    triangle: bool = False,
    precision: str | None = None,
    final: tuple[Expr, float] | None = None,
    on_done: Callable[[float], None] | None = None,
) -> None:
    """C ← ((α ⊗ A) ⊗ B) ⊕ (β ⊗ C); see :meth:`semiring_mm.engine.Engine.product`.

    Of the precisions there is one: float32 is always computed with as such.
    """
    depth = a.shape[-1]
    m, n = c.shape[-2:]
    if final is not None and (
        not ends(semiring, a.dtype, final[0])
        or blas_serves(semiring, a, b, c)
        or _shifting_pays(semiring, a.dtype, m, n, depth, None)
    ):
        product(semiring, a, b, c, known=known, on_done=on_done)
        apply(final[0], c, final[1])
        return
    whole = arg is None and not overlap and not triangle
    if scaling == PLAIN and whole and on_done is None and blas_serves(semiring, a, b, c):
        by_blas(a, b, c)
        return
    if whole and _shifting_pays(semiring, a.dtype, m, n, depth, scaling.alpha):
        _log_sum_product(semiring, a, b, c, scaling)
        if on_done is not None:
            on_done(1.0)
        return
    fa = fb = fc = None
    guess: _Guess | None = None
    if needs_facts(semiring, a.dtype):
        plain = scaling == PLAIN and not (overlap or triangle or gather is not None or on_done)
        if plain and known is None and final is None and c.ndim == 2 and m * n * depth >= _GUESSED:
            guess = _Guess(semiring, a, b, c, arg)
            if guess.right():
                return
        if known is not None:
            fa, fb, fc = coarse(known, a.dtype)
        elif guess and guess.seen:
            fa, fb = (facts_of_class(x, a.dtype) for x in guess.seen)
        else:
            fa, fb = coarse_facts(semiring, a), coarse_facts(semiring, b)
            fc = coarse_facts(semiring, c) if scaling.accumulate else None
    k_matters = depth if a.dtype.kind in "iu" else 1
    plan, code = choose(
        semiring, a.dtype, fa, fb, fc if scaling.accumulate else None, k_matters, scaling,
        arg is not None, _width(n), m <= FEW, None if final is None else final[0],
    )  # fmt: skip
    _run(semiring, plan, code, a, b, c, scaling, arg, gather, overlap, triangle, on_done)
    if guess and fa is not None and fb is not None:
        guess.keep(class_of(fa, a.dtype), class_of(fb, a.dtype))


def ends(semiring: Semiring, dtype: np.dtype[Any], final: Expr) -> bool:
    """Whether code that computes a product stores a function of its entries, of them alone."""
    both = semiring.add_expr.ops() | semiring.mul_expr.ops()
    return dtype.char in "fd" and "b" not in final.ops() and not _extrema(final) & both


def _extrema(final: Expr) -> frozenset[str]:
    """Minimum and maximum, where a function has one: it keeps NaN, as a product need not."""
    extrema = frozenset({"min", "max"})
    return extrema if final.ops() & extrema else frozenset()


@functools.lru_cache(maxsize=KEPT)
def coarse(
    known: tuple[Facts | None, ...] | None, dtype: np.dtype[Any]
) -> tuple[Facts | None, Facts | None, Facts | None]:
    """Facts as coarse as a plan needs them, so that few plans are looked up."""
    fa, fb, fc = known or (None, None, None)
    if dtype.kind != "f":
        return fa, fb, fc
    a, b, c = (
        None if x is None else facts_of_class(class_of(x, dtype), dtype) for x in (fa, fb, fc)
    )
    return a, b, c


class _Guess:
    """A product under the plan of the last one of its kind, whose packing sees what it packs.

    So that operands are not read once more before the product. Where other numbers are seen than
    those of the last one, it is computed once more under their plan.
    """

    _last: ClassVar[dict[tuple[Any, ...], tuple[int, int]]] = {}

    def __init__(
        self, semiring: Semiring, a: Array, b: Array, c: Array, arg: NDArray[np.int32] | None
    ) -> None:
        self._operands = semiring, a, b, c, arg
        self._key = semiring, a.dtype, a.shape, b.shape
        self.seen: tuple[int, int] | None = None

    def right(self) -> bool:
        """Compute the product if there was one like it: whether C holds it."""
        semiring, a, b, c, arg = self._operands
        guess = self._last.get(self._key)
        if guess is None or a.dtype.kind != "f":
            return False
        fa, fb = (facts_of_class(x, a.dtype) for x in guess)
        plan, code = choose(
            semiring, a.dtype, fa, fb, None, 1, PLAIN, arg is not None, _width(c.shape[-1])
        )  # fmt: skip
        if not watches(plan):
            return False
        memory = _run(semiring, plan, code, a, b, c, arg=arg)
        assert memory is not None
        found = memory[SEEN : SEEN + 6 * code.size].view(f"f{code.size}").tolist()
        x, y = (Facts(lo, hi, odd > 0) for lo, hi, odd in (found[:3], found[3:]))
        self.seen = class_of(x, a.dtype), class_of(y, a.dtype)
        return self.seen == guess

    def keep(self, *classes: int) -> None:
        """Remember what the operands held."""
        if len(self._last) >= KEPT:
            self._last.clear()
        self._last[self._key] = classes[0], classes[1]


def pack_bits(x: Array) -> Array:
    """Eight truth values to a byte; see :meth:`semiring_mm.engine.Engine.pack_bits`."""
    return np.packbits(x, axis=-1)


_SHIFTED, _THIN = 160**3, 16  # pairs, and steps or rows, from which exponentials of A and B gain


def _shifting_pays(
    semiring: Semiring, dtype: np.dtype[Any], m: int, n: int, k: int, alpha: Scalar
) -> bool:
    """Whether a product is to be one over plus-times of shifted exponentials."""
    if dtype.kind in "iub" or m * n * k < _SHIFTED or min(m, n, k) < _THIN or semiring.add_kind:
        return False
    log_plus = joins_logarithms(semiring.add_expr) and joins(semiring.mul_expr) == "+"
    return log_plus and (alpha is None or math.isfinite(alpha))


def _log_sum_product(semiring: Semiring, a: Array, b: Array, c: Array, scaling: Scaling) -> None:
    if c.ndim == 3:
        for x, y, z in zip(a, b, c, strict=True):
            _log_sum_product(semiring, x, y, z, scaling)
        return
    if c.strides[0] == c.itemsize != c.strides[1]:  # C is written along its rows
        a, b, c = b.T, a.T, c.T
    plan, code = choose(semiring, a.dtype, None, None, None, 1, scaling, False)

    def direct(a: Array, b: Array, c: Array) -> None:
        _run(semiring, plan, code, a, b, c, scaling)

    sums, reached = (functools.partial(product, semirings[x]) for x in ("plus_times", "lor_land"))
    logsum.product(sums, reached, direct, plan, a, b, c, scaling)


@functools.lru_cache(maxsize=KEPT)
def choose(
    semiring: Semiring, dtype: np.dtype[Any], fa: Facts | None, fb: Facts | None,
    fc: Facts | None, depth: int, scaling: Scaling, arg: bool, columns: int = 1 << 30,
    few: bool = False, final: Expr | None = None,
) -> tuple[Plan, ProductCode]:  # fmt: skip
    """The plan of a product and its code, compiled for about so many columns, or few rows."""
    alpha, beta = scaling.alpha, scaling.beta
    plan = make_plan(semiring, dtype, fa, fb, depth, c=fc, alpha=alpha, beta=beta)
    if arg and plan.codec == "sentinel":
        plan = replace(plan, annihilate=True)
    if arg and plan.codec == "bits":  # each entry has its own k
        plan = bytewise(plan)
    if alpha is None and beta is None:
        plan = tuned(plan)
    if final is not None:
        plan = replace(plan, final=final, keep_nan=plan.keep_nan or bool(_extrema(final)))
    return plan, product_code(plan, arg, *fewer_vectors(plan, columns, few=few))


_WIDE = 512  # columns that fill the widest tile


def _width(columns: int) -> int:
    """C's columns, rounded so that few plans are looked up."""
    return 1 << int(min(columns, _WIDE) - 1).bit_length()


def _loses_when_stored(plan: Plan, arg: bool) -> bool:
    """Whether C cannot hold a partial result between two slabs of K.

    An integer that will fit at the end may not fit yet, and a 16-bit float would be rounded more
    than once (which a minimum does not mind, but the search for its k does). It may be a function
    of the result that is stored.
    """
    short = plan.storage in ("float16", "bfloat16")
    rounded = short and (arg or joins(plan.add) not in ("min", "max"))
    return rounded or plan.check or plan.final is not None


def code_of(
    semiring: Semiring, dtype: np.dtype[Any], known: Sequence[Facts], shape: tuple[int, ...],
    depth: int, scaling: Scaling, final: Expr | None = None,
) -> tuple[Any, bytes, int] | None:  # fmt: skip
    """Code of a product on one thread, its parameters and bytes of workspace.

    `known` are facts of A, of B and of a C that is joined, if they are needed. None where more than
    one call of compiled code is needed.
    """
    m, n = shape
    if _shifting_pays(semiring, dtype, m, n, depth, scaling.alpha):
        return None
    fa, fb, fc, *_ = (*known, None, None, None)
    plan, code = choose(
        semiring, dtype, fa, fb, fc, depth if dtype.kind in "iu" else 1, scaling, False, _width(n),
        m <= FEW, final,
    )  # fmt: skip
    if team_of(code, m * n * depth // code.unit) > 1:
        return None
    slabs, room, _ = _alone(code, m, n, depth, arg=False)
    return code.call, _params(plan, code, slabs, scaling), room


def _run(
    semiring: Semiring, plan: Plan, code: ProductCode, a: Array, b: Array, c: Array,
    scaling: Scaling = PLAIN, arg: Array | None = None, gather: Array | None = None,
    overlap: str = "", triangle: bool = False, on_done: Callable[[float], None] | None = None,
) -> NDArray[np.uint8] | None:  # fmt: skip
    """Compute a product; the counters, and the numbers seen, of one that is not cut in parts."""
    m, n = c.shape[-2:]
    depth, batch = a.shape[-1], c.shape[0] if c.ndim == 3 else 1
    pairs = m * n * depth // code.unit
    k_array, p_array = (c if arg is None else arg), (c if gather is None else gather)
    long = _longest(plan) * code.unit
    if batch > 1 and (
        pairs < _SERIAL
        or (batch >= 4 * pool.get_num_threads() and pairs * code.unit <= long)
    ):  # fmt: skip
        _run_each(
            semiring, plan, code, a, b, c, _common(plan, scaling, a, b, c), k_array,
            arg is not None, on_done,
        )  # fmt: skip
        return None
    team = team_of(code, batch * pairs)
    if (
        batch == team == 1 and pairs * code.unit <= long
        and not (gather is not None or triangle or overlap or on_done)
    ):  # fmt: skip
        slabs, room, own = _alone(code, m, n, depth, arg=arg is not None)
        buffer = workspace(room)
        if code.call((a, b, c, buffer, _params(plan, code, slabs, scaling), k_array, c)):
            _does_not_fit(semiring, c, buffer)
        pool.look()
        return buffer[own:]
    most = batch * pairs * code.unit / _REPORTS if on_done else math.inf
    program = _program_of_one(
        code, team, tuple(_common(plan, scaling, a, b, c).items()), (m, depth, n),
        (a.strides[-2:], b.strides[-2:], p_array.strides[-2:]), arg is not None, gather is not None,
        most, overlap, triangle,
    )  # fmt: skip
    return program.run(semiring, code, (a, b, c, k_array, p_array), team, on_done)


@functools.lru_cache(maxsize=KEPT)
def _alone(
    code: ProductCode, m: int, n: int, depth: int, *, arg: bool
) -> tuple[tuple[int, int, int], int, int]:
    """Slabs of a product on one thread, bytes of its workspace, and of its own part of that."""
    m_slab, k_slab, n_slab = _cut(code.plan, code, m, n, depth, 1, arg=arg)[:3]
    room = code.shape.workspace(code.size, m_slab, k_slab, n_slab, arg=arg)
    return (m_slab, k_slab, n_slab), room, code.own(arg=arg)


def _params(
    plan: Plan, code: ProductCode, slabs: tuple[int, int, int], scaling: Scaling
) -> bytes:  # fmt: skip
    """The parameter block of one product on one thread."""
    if scaling.alpha is scaling.beta is None:
        return code.params(*slabs, mode=scaling.mode)
    return params_of(
        plan, *slabs, m_block=code.shape.mc, n_block=code.shape.nc, mode=scaling.mode,
        alpha=scalar_bits(plan, scaling.alpha), beta=scalar_bits(plan, scaling.beta),
    )  # fmt: skip


def _common(plan: Plan, scaling: Scaling, a: Array, b: Array, c: Array) -> dict[str, int]:
    """Parameters of a product that do not depend on how it is cut."""
    strides = [x.strides[0] if x.ndim == 3 else 0 for x in (a, b, c)]
    return {
        "mode": scaling.mode, "alpha": scalar_bits(plan, scaling.alpha),
        "beta": scalar_bits(plan, scaling.beta), "batch": c.shape[0] if c.ndim == 3 else 1,
        **dict(zip(("a_batch", "b_batch", "c_batch"), strides, strict=True)),
    }  # fmt: skip


@functools.lru_cache(maxsize=256)
def _program_of_one(
    code: ProductCode, team: int, common: tuple[tuple[str, int], ...], sizes: tuple[int, int, int],
    strides: tuple[tuple[int, ...], ...], arg: bool, gather: bool, most: float, overlap: str,
    triangle: bool,
) -> Program:  # fmt: skip
    """The program of a whole product; as of :class:`Cutter`."""
    cutter = Cutter(code.plan, code, team, dict(common), strides, arg, gather, most)
    rows, inner, columns = ((0, x) for x in sizes)
    steps = cutter.product(rows, inner, columns, overlap, triangle=triangle)
    return program_of(code.plan, code.own(arg=arg), steps)


def _run_each(
    semiring: Semiring, plan: Plan, code: ProductCode, a: Array, b: Array, c: Array,
    common: dict[str, int], k_array: Array, arg: bool, on_done: Callable[[float], None] | None,
) -> None:  # fmt: skip
    """Compute the products of a stack, each on one thread."""
    (batch, m, n), depth = c.shape, a.shape[-1]
    sizes = _cut(plan, code, m, n, depth, 1, arg=arg)
    size = code.shape.workspace(code.size, *sizes[:3], arg=arg)

    def some(first: int, last: int) -> None:
        buffer = workspace(size)
        fields = common | sizes._asdict() | {"batch": last - first}
        fields |= {f"{x}_offset": first * common[f"{x}_batch"] for x in "abc"}
        if arg:
            fields["arg_offset"] = first * k_array.strides[0]
        if code.call((a, b, c, buffer, params_of(plan, **fields), k_array, c)):
            _does_not_fit(semiring, c, buffer)

    large = m * n * depth * batch >= _SERIAL * code.unit
    pieces = 1
    if large:
        least = int(m * n * depth * batch / (_longest(plan) * code.unit))
        pieces = min(batch, max(8 * pool.get_num_threads(), least))
    pool.run_parts(some, batch, pieces, (lambda done: on_done(done / batch)) if on_done else None)


def team_of(code: ProductCode, pairs: float) -> int:
    """How many threads so many pairs, of numbers or of words of bits, pay for."""
    most = int(pairs // (_SHARE * (3 if code.shape.fused else 1)))  # a fused step is so much faster
    return min(most, pool.get_num_threads()) if most > 1 else 1


def _cut(
    plan: Plan, code: ProductCode, m: int, n: int, depth: int, team: int, *, arg: bool,
    overlap: str = "",
) -> Blocks:  # fmt: skip
    """How a product is cut into blocks; in place, what it overwrites is packed before."""
    whole = overlap != "" or (depth > code.k_slab and _loses_when_stored(plan, arg))
    slab = code.k_slab, code.n_slab
    return blocks(
        m, -(-n // code.unit), depth, code.shape, code.size, slab, team, whole, overlap == "a"
    )


# --- programs of products -----------------------------------------------------------------------

_REPORTS = 100  # steps that tell how much is done, about
_LONGEST = 1 << 32  # pairs of a thread until a user can interrupt the work
_SLOW = frozenset({"/", "//", "%", "exp", "expm1", "log", "log1p", "logaddexp", "sqrt"})


@functools.lru_cache(maxsize=KEPT)
def _longest(plan: Plan) -> int:
    """Pairs that a thread computes in a fraction of a second."""
    return _LONGEST >> 5 if _SLOW & (plan.add.ops() | plan.mul.ops()) else _LONGEST


class Step(NamedTuple):
    """A call of a compiled function by all threads of a team."""

    call: int  # the function's address
    fields: dict[str, int]  # its parameters
    pairs: float = 0.0
    room: int = 0  # bytes of a workspace that holds the packed operands
    strip: tuple[int, int] = (0, 0)  # rows and columns of P that it keeps as they are, in Q
    kept: bool = False  # whether it is given Q in place of P


@dataclass(frozen=True)
class Cutter:
    """Cuts products of blocks of the same arrays into steps."""

    plan: Plan
    code: ProductCode
    team: int  # threads
    common: Mapping[str, int]  # parameters of all products
    strides: tuple[tuple[int, ...], ...]  # of A, B and P
    arg: bool = False  # these two as of :func:`product`
    gather: bool = False
    most: float = math.inf  # pairs of a step, about

    def product(
        self, rows: Lines, inner: Lines, columns: Lines, overlap: str = "", turned: str = "", *,
        triangle: bool = False,
    ) -> list[Step]:  # fmt: skip
        """C[rows, columns] ⊕= A[rows, inner] ⊗ B[inner, columns].

        Of the operands that `turned` names the arrays hold the transpose. Where C is A
        (`overlap`), a step computes rows that are packed before, whole; where C is B, columns.
        """
        code, (i0, i1), (k0, k1), (j0, j1) = self.code, rows, inner, columns
        m, n, depth = i1 - i0, j1 - j0, k1 - k0
        keeps = self.gather and overlap == "b"
        sizes = _cut(self.plan, code, m, n, depth, self.team, arg=self.arg, overlap=overlap)
        height = min(m, sizes.m_slab) if overlap == "a" else m
        width = min(n, sizes.n_slab * code.unit) if keeps else n
        most = min(self.most, float(_longest(self.plan) * self.team * code.unit))
        most /= self.common["batch"]
        if height * width * depth > most:
            if overlap == "b":
                width = _even(width, int(most / (height * depth)), code.shape.nr * code.unit)
            else:
                height = _even(height, int(most / (width * depth)), math.lcm(SQUARE, code.shape.mr))
            if not overlap and height * width * depth > 2 * most:  # of slow functions
                width = _even(width, int(most / (height * depth)), code.shape.nr * code.unit)
        (a_row, a_column), (b_row, b_column), (p_row, _) = self.strides
        mode = (GATHER * self.gather | TURN_A * ("a" in turned) | TURN_B * ("b" in turned)
                | TRIANGLE * triangle)  # fmt: skip
        found = []
        tops, lefts = range(i0, i1, max(1, height)), range(j0, j1, max(1, width))
        for i, j in itertools.product(tops, lefts):
            part = {"i0": i, "i1": min(i + height, i1), "j0": j, "j1": min(j + width, j1)}
            m, n = part["i1"] - i, part["j1"] - j
            sizes = _cut(self.plan, code, m, n, depth, self.team, arg=self.arg, overlap=overlap)
            if keeps:
                strip = {**part, "i0": k0, "i1": k1}
                found.append(Step(keeping().address("keep"), strip, strip=(depth, n), kept=True))
            fields = {
                **self.common, **part, **sizes._asdict(), "depth": depth,
                "mode": self.common["mode"] | mode,
                "a_offset": k0 * (a_row if "a" in turned else a_column),
                "b_offset": k0 * (b_column if "b" in turned else b_row),
                "pred_offset": -j * 4 if keeps else k0 * p_row,
            }  # fmt: skip
            pairs = float(m * n * depth * self.common["batch"]) / (2 if triangle else 1)
            room = code.shape.workspace(code.size, *sizes[:3], arg=self.arg)
            found.append(Step(code.address, fields, pairs, room, kept=keeps))
        return found


@dataclass(frozen=True)
class Program:
    """Steps as compiled code follows them: words of each, and what they need in all."""

    words: NDArray[np.int64]
    pairs: NDArray[np.float64]  # done at the end of each step
    own: int  # bytes of a thread's own memory, and of what threads share
    room: int
    strip: tuple[int, int]  # shape of Q

    def run(
        self, semiring: Semiring, code: ProductCode, arrays: Sequence[Array], team: int,
        on_done: Callable[[float], None] | None = None,
    ) -> NDArray[np.uint8]:  # fmt: skip
        """Follow the program; the memory that the threads shared.

        `arrays`: A, B, C, K and P. `on_done` is told the fraction done, some time after another.
        """
        ends = self.own, self.own + self.room, self.own + self.room + 4 * math.prod(self.strip)
        buffer = workspace(ends[2])
        shared, strip = buffer[ends[0] :], buffer[ends[1] : ends[2]].view(np.int32)
        arrays = [*arrays, strip.reshape(self.strip)]
        if code.watches:
            shared[SEEN : SEEN + 6 * code.size].view(f"f{code.size}")[:] = 2 * NOTHING_SEEN
        words = self.words.copy()
        words[:, _TEAM_WORD] = address(shared)
        total = self.pairs[-1] if len(words) else 0.0
        most = min(
            _longest(code.plan) * team * code.unit, total / _REPORTS if on_done else math.inf
        )
        first = 0
        with lease(team - 1) as workers:
            while first < len(words):
                done = self.pairs[first - 1] if first else 0.0
                last = max(first + 1, int(self.pairs.searchsorted(done + most, "right")))
                buffers = run_program(words[first:last], arrays, self.own, shared, workers, buffer)
                if any(map(operator.itemgetter(0), buffers)):
                    _does_not_fit(semiring, arrays[2], *buffers)
                if stopped(shared):
                    break
                if on_done is not None:
                    on_done(self.pairs[last - 1] / total if total else 1.0)
                pool.look()
                first = last
        return shared


_NO_SLABS = dict.fromkeys(("m_slab", "k_slab", "n_slab"), 0)
_TEAM_WORD = 2 + PARAMS.index("team")


def program_of(plan: Plan, own: int, steps: Sequence[Step]) -> Program:
    """The program of some steps, for threads with so many bytes of their own."""
    rows = [
        struct.pack("2q", step.call, step.kept) + params_of(plan, **{**_NO_SLABS, **step.fields})
        for step in steps
    ]
    room = max((step.room for step in steps), default=0)
    return Program(
        np.frombuffer(b"".join(rows), np.int64).reshape(len(rows), 2 + len(PARAMS)),
        np.cumsum([step.pairs for step in steps]),
        own,
        -(-max(room - own, COUNTERS) // 64) * 64,
        (max((x.strip[0] for x in steps), default=0), max((x.strip[1] for x in steps), default=0)),
    )


class Blocks(NamedTuple):
    """How a product is cut, in elements computed with."""

    m_slab: int  # rows of A, steps of k, and columns of B that are packed at once
    k_slab: int
    n_slab: int
    m_block: int  # rows and columns of C that a thread multiplies at once
    n_block: int


@functools.lru_cache(maxsize=1024)
def blocks(
    m: int, n: int, depth: int, shape: Shape, size: int, slab: tuple[int, int], team: int,
    whole: bool, tall: bool = False,
) -> Blocks:  # fmt: skip
    """Cut a product for `team` threads; `whole`: C holds no partial sums, so that K is one slab.

    Threads that work together share the packed slabs, and multiply blocks of C that are even, and
    small enough for the last ones to end at about the same time. `tall`: so many rows of A are
    packed at once for one thread, too.
    """
    deep = -(-max(depth, 1) // 64) * 64  # packed panels begin on cache lines
    k_slab = deep if whole else _share(deep, slab[0], 64)
    width = -(-n // shape.nr) * shape.nr
    step = k_slab * shape.a_size(size)  # bytes of a row of packed A
    if team > 1 or tall:
        room = _TEAM // step
        n_slab = _share(width, max(shape.nr, min(2 * slab[1], room // 2)), shape.nr)
        m_slab = _share(m, max(shape.mr, room - n_slab), shape.mr)
        late = 0.5 if m_slab * n_slab * k_slab >= team * _LATE else 0.0
        return Blocks(m_slab, k_slab, n_slab, *_even_blocks(m_slab, n_slab, shape, team, late))
    n_slab, m_slab = _share(width, slab[1], shape.nr), shape.mc
    if k_slab > slab[0]:
        narrow = n_slab * _share(deep, slab[0], 64) // k_slab // shape.nr * shape.nr
        n_slab = max(shape.nr, narrow)
        m_slab = max(shape.mr, min(m_slab, _STRIP // step // shape.mr * shape.mr))
    return Blocks(m_slab, k_slab, n_slab, m_slab, shape.nc)


def _even_blocks(m: int, n: int, shape: Shape, team: int, late: float = 0.0) -> tuple[int, int]:
    """Rows and columns of the blocks by which `team` threads multiply a slab soonest.

    The blocks that the busiest thread takes, and so much of one as others wait for, since threads
    neither begin at once nor are equally fast (`late`); times what one costs: its tiles, its
    panels, which come from a cache further off, and being taken.
    """

    def cuts(extent: int, unit: int, most: int) -> set[int]:
        panels = -(-extent // unit)
        return {-(-panels // pieces) for pieces in range(-(-panels // most), panels + 1)}

    p_all, q_all = -(-m // shape.mr), -(-n // shape.nr)
    rows, columns = (
        cuts(m, shape.mr, shape.mc // shape.mr), cuts(n, shape.nr, shape.nc // shape.nr)
    )  # fmt: skip

    def time(block: tuple[int, int]) -> float:
        p, q = block
        pieces = -(-p_all // p) * -(-q_all // q)
        return (-(-pieces // team) + late) * (p * q + 0.05 * (p + q) + 0.3)

    p, q = min(itertools.product(rows, columns), key=time)
    return p * shape.mr, q * shape.nr


def _share(extent: int, slab: int, unit: int) -> int:
    """A slab of about this size (a quarter more at most) that leaves no small rest of `extent`."""
    pieces = max(1, math.ceil(extent / (1.25 * slab)))
    return -(-extent // (pieces * unit)) * unit


def _even(extent: int, block: int, unit: int) -> int:
    """The block size near `block` that cuts `extent` into nearly equal parts."""
    pieces = max(1, round(extent / max(block, 1)))
    return -(-extent // (pieces * unit)) * unit


def _does_not_fit(semiring: Semiring, c: Array, *buffers: Array) -> None:
    for buffer in buffers:
        buffer[:64] = 0
    raise overflow(semiring, c.dtype)


# --- NumPy's BLAS -------------------------------------------------------------------------------


def blas_serves(semiring: Semiring, *operands: Array) -> bool:
    """Whether NumPy's BLAS computes a plain product: where it needs no copy.

    A BLAS has threads of its own, so it is not used where the number of threads was set.
    """
    return (
        operands[0].dtype.char in "fd"
        and _is_plus_times(semiring)
        and pool.get_num_threads() == pool.default_threads()
        and lie_well(*operands)
    )


def by_blas(a: Array, b: Array, c: Array) -> Array:
    """C ← A B by NumPy, without its warnings."""
    with np.errstate(all="ignore"):
        return np.matmul(a, b, out=c)


def lie_well(*operands: Array) -> bool:
    """Whether a BLAS takes all operands as they lie."""
    return all(_lies_well(x.shape, x.strides, x.itemsize) and x.flags.aligned for x in operands)


@functools.lru_cache(maxsize=4096)
def _lies_well(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> bool:
    """Whether an array's rows or columns are contiguous, as a BLAS takes them."""
    if len(shape) == 1:
        return strides[0] == size
    (m, n), (rs, cs) = shape[-2:], strides[-2:]
    by_rows = cs == size and rs >= size * n and not rs % size
    return by_rows or (rs == size and cs >= size * m and not cs % size)


@functools.lru_cache(maxsize=1024)
def _is_plus_times(semiring: Semiring) -> bool:
    plus_times = semirings["plus_times"]
    return (semiring.add_expr, semiring.mul_expr) == (plus_times.add_expr, plus_times.mul_expr)
