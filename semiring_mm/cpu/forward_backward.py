"""The forward-backward algorithm without logarithms, where all steps of a chain share one matrix.

Rows of sums are carried as float64 with an exponent of their own (Rabiner, 1989): a step is
multiply-adds, the exponentials of its emissions less the largest of them, and one exact scaling by
a power of two. Exponentials do not wait for the step before; those of a table of symbols are
computed once. Some chains go on together, a step each in turn, so that one does not wait for the
result of its last step while another could compute; an entry of the matrix is loaded once for all
of them. The order of a sum does not depend on how many are together.

What is lost below the range of float64 must not come to count later. Where each state follows each
one, with at least 2**-RANGE of the largest factor, each sum of the next row is at least that part
of the largest entry of this row: beside it what was lost is nothing, whatever the emissions are.
Where transitions are impossible (-inf), nothing may be lost: emissions have to be within that range
of the largest, too, and entries of rows within 2**-LEAST. Chains that do not keep to this, or have
NaN, an infinity or no possible path, are marked: :mod:`semiring_mm.cpu.chain` computes them in
logarithms.
"""

from __future__ import annotations

import ctypes
import functools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..memory import cut, room_of
from . import vmath
from .blocks import address, block, load_block, load_item
from .codegen import Call
from .compiler import KEPT, compile_functions, host_target
from .ir import F64, I1, I64, PTR, Function, Type, Value
from .viterbi import Task

__all__ = ["Shape", "forward_backward", "functions", "tiles"]

Array = NDArray[Any]

BLOCK = (
    "first last states panels steps kept paired least a_batch e_batch e_step x_batch"
    " end_batch out_batch out_step pair_batch symbol_batch : lengths order symbols : : down across"
    " a_tops e e_tops x end total odd out pairs rows powers tops behind shares sums"
)
#: Powers of two: of transitions and emissions, of entries of rows, of the sum over all sequences.
RANGE, LEAST, WHOLE = 150, 400, 300
_SPLIT = 2  # independent sums of a column
_BIAS = 1023  # of the exponent of a float64
_STEPS = 64  # whose emissions are exponentiated at a time, and whose pairs are added up
_KEPT = 1 << 21  # bytes of rows from which fewer sequences go on together
_EXPONENTIALS = (PTR, I64, PTR, PTR, I64, I64, I64, I64)
_C = {PTR: ctypes.c_void_p, I64: ctypes.c_int64}


@dataclass(frozen=True)
class Shape:
    """What the code is generated for.

    Attributes
    ----------
    bits : int
        Of the operands' floats.
    width : int
        Vectors of a panel of columns, whose sums are in registers.
    together : int
        Sequences that go on together.
    one : bool
        Whether there is one panel.
    table : bool
        Whether the emissions are a row for each symbol, and the symbols are given.
    limited : bool
        Whether some transitions are impossible, so that small entries are looked for.
    """

    bits: int
    width: int
    together: int
    one: bool
    table: bool
    limited: bool


class _Matrices(NamedTuple):
    """Exponentials of matrices less the largest entry of each.

    Attributes
    ----------
    powers : ndarray of float64, shape (matrices, n, n)
    tops : ndarray of float64, shape (matrices,)
        The largest entries.
    odd : ndarray of bool, shape (matrices,)
        Where exponentials are not within the range.
    limited : bool
        Whether some transitions are impossible.
    """

    powers: Array
    tops: Array
    odd: NDArray[np.bool_]
    limited: bool

    def packed(self, panels: int, wide: int) -> tuple[Array, Array]:
        """The matrices and their transposes in panels: (matrices, panels, depth, wide)."""
        many, n, _ = self.powers.shape
        filled = np.zeros((2, many, -(-n // _SPLIT) * _SPLIT, panels * wide))
        filled[0, :, :n, :n] = self.powers
        filled[1, :, :n, :n] = self.powers.transpose(0, 2, 1)
        filled = filled.reshape(2, many, -1, panels, wide).transpose(0, 1, 3, 2, 4)
        down, across = np.ascontiguousarray(filled)
        return down, across


def forward_backward(
    a: Array,
    e: Array,
    x: Array,
    end: Array,
    total: NDArray[np.float64],
    out: Array | None,
    pairs: Array | None,
    lengths: NDArray[np.int64],
    odd: NDArray[np.uint8],
    order: NDArray[np.int64],
    threads: int,
    symbols: NDArray[np.int64] | None = None,
) -> Task:
    """How to compute the log-partitions and the posterior probabilities of some chains.

    Parameters
    ----------
    a, e, x, end, out, pairs, lengths, symbols
        As in :meth:`semiring_mm.engine.Chains.posterior`; the matrix is that of all steps.
    total : ndarray of float64, shape (batch,)
        Receives the log-partitions.
    odd : ndarray of uint8, shape (batch,)
        Receives 1 where the results are to be computed in logarithms instead; nothing is added to
        `pairs` there.
    order : ndarray of int64
        Chains that have steps; neighbours, which go on together, are best of one length.
    threads : int
        How many call the function.

    Returns
    -------
    Task
    """
    n, steps, own = a.shape[-1], int(lengths.max(initial=0)), a.strides[0] != 0
    lanes = host_target().vector_bytes // F64.size
    table, whole = symbols is not None, out is not None
    rows = steps if whole else 2
    powers = 0 if table else steps if whole else _STEPS
    room = (rows + powers) * -(-n // lanes) * lanes * F64.size
    matrices = _exponentials_of(a[:, 0] if own else a[:1, 0])
    odd[:] = matrices.odd
    width, together, panels = tiles(n, 1 if own else -(-len(order) // threads), room)
    shape = Shape(8 * a.itemsize, width, together, panels == 1, table, matrices.limited)
    code, exponentials = _code(shape)
    wide = width * lanes
    padded, line = panels * wide, panels * wide * F64.size
    down, across = matrices.packed(panels, wide)
    least = -RANGE * math.log(2) if matrices.limited else -math.inf
    fields = {
        "states": n, "panels": panels, "steps": steps, "kept": whole, "paired": pairs is not None,
        "least": int(np.float64(least).view(np.int64)), "a_batch": down.strides[0] * own,
        "e_batch": e.strides[0], "e_step": e.strides[-2], "x_batch": x.strides[0],
        "end_batch": end.strides[0], "lengths": lengths, "order": order, "symbols": symbols,
        "down": down, "across": across, "a_tops": matrices.tops, "e": e, "x": x, "end": end,
        "total": total, "odd": odd, "out": out, "pairs": pairs,
    }  # fmt: skip
    if symbols is not None:
        found = np.empty((len(e), padded)), np.empty(len(e))
        to, tops = map(address, found)
        exponentials(address(e), e.strides[0], to, tops, n, padded, len(e), fields["least"])
        fields |= {"e": found[0], "e_tops": found[1], "symbol_batch": symbols.shape[1]}
    if out is not None:
        fields |= {"out_batch": out.strides[0], "out_step": out.strides[1]}
    if pairs is not None:
        fields |= {"pair_batch": pairs.strides[0]}
    fixed = block(BLOCK, fields)
    paired = together * (pairs is not None)
    sizes = [
        together * rows * line, together * powers * line, together * powers * F64.size,
        together * 2 * line, paired * _STEPS * line, paired * padded * line,
    ]  # fmt: skip
    held = [0 if size > _KEPT else size for size in sizes]

    def bind(first: int, last: int, memory: NDArray[np.uint8]) -> Any:
        rooms = cut(memory, *held)
        for k, size in enumerate(sizes):
            if size > _KEPT:  # of a long chain: not kept after the call
                long = np.empty(size + 64, np.uint8)
                rooms[k] = long[-address(long) % 64 :]
        rooms[-1][: sizes[-1]] = 0
        values = fixed.copy()
        values[:2] = first, last
        values[-len(rooms) :] = [address(room) for room in rooms]
        return Call(code, values.tolist(), (rooms, fields))

    return Task(bind, room_of(*held), together)


def tiles(states: int, chains: int, room: int) -> tuple[int, int, int]:
    """Vectors of a panel, chains that go on together, and the number of panels.

    `room` is the number of bytes that are kept of a chain, which limits how many are together.
    """
    target = host_target()
    vectors = -(-states // (target.vector_bytes // F64.size))
    most = target.registers // (2 * _SPLIT)  # sums of one part: half of the registers have sums
    wide = most // 2  # an entry of the matrix is used twice
    width = vectors
    if vectors > wide:
        width = min(wide, wide - wide // 4, key=lambda w: -(-vectors // w) * w)
    together = 1
    while 2 * together * width <= most and together < chains and 2 * together * room <= _KEPT:
        together *= 2
    return width, together, -(-vectors // width)


def _exponentials_of(a: Array) -> _Matrices:
    """Those of matrices (matrices, n, n)."""
    with np.errstate(all="ignore"):
        tops = a.max((1, 2)).astype(np.float64)
        powers = np.exp(a.astype(np.float64) - tops[:, np.newaxis, np.newaxis])
    impossible = a == -math.inf
    least = powers.min((1, 2), initial=1, where=~impossible)
    odd = ~(np.isfinite(tops) & (least >= 2.0**-RANGE))
    return _Matrices(powers, tops, odd, bool(impossible.any()))


@functools.lru_cache(maxsize=KEPT)
def _code(shape: Shape) -> tuple[Any, Any]:
    """The compiled :func:`functions`."""
    library = compile_functions(functions(shape), host_target())
    return (
        library.function("forward_backward", ctypes.c_void_p),
        library.function("exponentials", *(_C[kind] for kind in _EXPONENTIALS)),
    )


def functions(shape: Shape) -> list[Function]:
    """Generate ``forward_backward(block)`` and ``exponentials(...)``, which it calls."""
    exponentials = _exponentials(shape.bits)
    return [exponentials, _forward_backward(shape, exponentials)]


def _joined(f: Function, x: Value, join: Callable[[Value, Value], Value]) -> Value:
    """All lanes joined, in each of them."""
    half = x.type.lanes // 2
    while half:
        x = join(x, f.shuffle(x, x, [lane ^ half for lane in range(x.type.lanes)]))
        half //= 2
    return x


def _larger(f: Function, x: Value, y: Value) -> Value:
    return f.select(x.cmp(">", y), x, y)


def _exponentials(bits: int) -> Function:
    """Generate ``exponentials(rows, step, powers, tops, states, padded, count, least)``.

    Of each row less its largest entry, which is stored: as NaN where one is less than the float64
    `least`, given by its bits, and yet not -inf.
    """
    f = Function("exponentials", _EXPONENTIALS, opaque=False)
    rows, step, powers, tops, n, padded, count, least = f.args
    t, lanes = Type("f", bits), host_target().vector_bytes // F64.size
    vec = F64.vector(lanes)
    far = f.const(-math.inf, vec)
    low = least.bits_as(F64).splat(lanes)

    def entries(row: Value, j: Value) -> Value:
        inside = f.below(n - j, lanes)
        found = f.load_masked(row.at(j * t.size), t.vector(lanes), inside, t.size)
        return f.select(inside, found.to(F64), far)

    with f.loop(0, count) as k:
        row, to = rows.at(k * step), powers.at(k * padded * F64.size)
        top = f.var(far)
        with f.loop(0, n, lanes) as j:
            top.set(_larger(f, entries(row, j), top.get()))
        high = _joined(f, top.get(), functools.partial(_larger, f))
        base = f.select(high.cmp("==", -math.inf), f.const(0.0, vec), high)
        lost = f.var(f.const(0, I1.vector(lanes)))
        with f.loop(0, padded, lanes) as j:
            gap = entries(row, j) - base
            lost.set(lost.get() | (gap.cmp("<", low) & gap.cmp(">", -math.inf)))
            f.store(vmath.lifted_exp(f, gap, 0, -1021), to.at(j * F64.size), F64.size)
        known = lost.get().bits_as(Type("u", lanes)).cmp("==", 0)
        f.store(f.select(known, base[0], f.const(math.nan, F64)), tops.at(k * 8), 8)
    return f


def _forward_backward(shape: Shape, exponentials: Function) -> Function:
    f = Function("forward_backward", [PTR], opaque=False)
    x = load_block(f, BLOCK)
    walk = _Walk(f, x, shape, exponentials)
    with f.loop(x["first"], x["last"], shape.together) as b0:
        chains = [_Chain(walk, c, b0 + c) for c in range(shape.together)]
        longest = chains[0].count
        for chain in chains[1:]:
            longest = f.select(chain.count.cmp(">", longest), chain.count, longest)
        walk.forward(chains, longest)
        with f.if_(x["kept"].cmp("!=", 0)):
            walk.back(chains, longest)
    return f


class _Chain:
    """What is known of one of the chains that go on together, and where its rows lie."""

    def __init__(self, walk: _Walk, c: int, place: Value) -> None:
        f, x, line = walk.f, walk.x, walk.line
        self.walk, self.c = walk, c
        self.own = place.cmp("<", x["last"])  # else the last one once more
        self.b = x["order"][f.low(place, x["last"] - 1)]
        self.count = x["lengths"][self.b]
        self.first_row = x["rows"].at(walk.rows * c)
        self.behind = x["behind"].at(line * (2 * c))  # the sums of all continuations
        self.ahead = x["behind"].at(line * (2 * c + 1))  # the same with a step's emissions
        self.shares, self.sums = (x["shares"].at(line * (_STEPS * c)), x["sums"].at(
            line * walk.padded * c))  # fmt: skip
        self.top, self.dot = f.var(walk.zero), f.var(walk.zero)
        self.scale, self.inverse = f.var(walk.one), f.var(walk.one)
        self.exponent = f.var(f.const(_BIAS, walk.integers))  # of what a row is divided by, biased
        self.exponents = f.var(f.const(0, I64))
        self.level = f.var(f.const(0.0, F64))
        self.small = f.var(f.const(0, I1.vector(walk.lanes)))

    def row(self, step: Value) -> Value:
        """The sums of all beginnings that end at a step."""
        place: Value = self.first_row.at((step & self.walk.last_row) * self.walk.line)
        return place

    def emitted(self, step: Value) -> tuple[Value, Value]:
        """Where the exponentials of a step's emissions lie, and what was taken from these."""
        x, line = self.walk.x, self.walk.line
        if self.walk.shape.table:
            symbol = x["symbols"][self.b * x["symbol_batch"] + step]
            return x["e"].at(symbol * line), x["e_tops"].at(symbol * F64.size)
        place = self.walk.powers * self.c + ((step - 1) & self.walk.last_power)
        return x["powers"].at(place * line), x["tops"].at(place * F64.size)

    def put(self, value: Value, to: Value, there: Value) -> None:
        """Store some entries of a row, and look at them."""
        f = self.walk.f
        f.store(value, to, F64.size)
        self.top.set(_larger(f, value, self.top.get()))
        if self.walk.shape.limited:
            small = value.cmp(">", 0.0) & value.cmp("<", 2.0**-LEAST)
            self.small.set(self.small.get() | (small & there.splat(self.walk.lanes)))

    def rescale(self) -> None:
        """The next row is divided by the power of two in the largest entry of this one."""
        f, integers = self.walk.f, self.walk.integers
        top = _joined(f, self.top.get(), functools.partial(_larger, f))
        exponent = top.bits_as(integers) & (0x7FF << 52)
        self.scale.set((f.const(2 * _BIAS << 52, integers) - exponent).bits_as(top.type))
        self.exponent.set(exponent >> 52)
        self.top.set(self.walk.zero)

    def mark(self, condition: Value) -> None:
        """Where the condition holds, the chain is to be computed in logarithms."""
        f = self.walk.f
        with f.if_(condition):
            f.store(f.const(1, Type("u", 8)), self.walk.x["odd"].at(self.b))

    def mark_small(self) -> None:
        if self.walk.shape.limited:
            self.mark(self.small.get().bits_as(Type("u", self.walk.lanes)).cmp("!=", 0))


class _Walk:
    """The code of steps forward and back."""

    def __init__(self, f: Function, x: dict[str, Any], shape: Shape, exponentials: Function):
        self.f, self.x, self.shape, self.exponentials = f, x, shape, exponentials
        self.t, self.lanes = Type("f", shape.bits), host_target().vector_bytes // F64.size
        self.vec, self.integers = F64.vector(self.lanes), I64.vector(self.lanes)
        self.wide = shape.width * self.lanes  # columns of a panel
        self.n, self.padded = x["states"], x["panels"] * self.wide
        self.line = self.padded * F64.size
        self.depth = (self.n + (_SPLIT - 1)) // _SPLIT * _SPLIT
        self.zero, self.one = f.const(0.0, self.vec), f.const(1.0, self.vec)
        # what is not kept for the way back: but two rows, and the emissions of some steps
        kept, steps = x["kept"].cmp("!=", 0), x["steps"]
        self.rows = f.select(kept, steps, f.const(2, I64)) * self.line
        self.last_row = f.select(kept, f.const(-1, I64), f.const(1, I64))
        self.powers = f.select(kept, steps, f.const(_STEPS, I64))
        self.last_power = f.select(kept, f.const(-1, I64), f.const(_STEPS - 1, I64))

    def load(self, base: Value, at: Value | int) -> Value:
        return self.f.load(base.at(at), self.vec, F64.size)

    def in_panels(self, take: Callable[[Value], None]) -> None:
        """Call with the number of each panel."""
        if self.shape.one:
            take(self.f.const(0, I64))
            return
        with self.f.loop(0, self.x["panels"]) as p:
            take(p)

    def in_vectors(self, take: Callable[[Value], None]) -> None:
        """Call with the first column of each vector."""

        def panel(p: Value) -> None:
            for g in range(self.shape.width):
                take(p * self.wide + g * self.lanes)

        self.in_panels(panel)

    def exponentiate(
        self, row: Value, step: Value, to: Value, tops: Value, count: Value | int
    ) -> None:
        f = self.f
        count = f.const(count, I64) if isinstance(count, int) else count
        f.invoke(
            self.exponentials, [row, step, to, tops, self.n, self.padded, count, self.x["least"]]
        )

    def combine(self, matrix: Value, p: Value, sources: list[Value]) -> list[list[Value]]:
        """Σ_i v[i] A[i, j] of each chain for the columns of a panel."""
        f, width = self.f, range(self.shape.width)
        sums = [[[f.var(self.zero) for _ in width] for _ in sources] for _ in range(_SPLIT)]
        first = matrix.at(p * (self.depth * (self.wide * F64.size)))
        with f.loop(0, self.depth, _SPLIT) as i:
            for s in range(_SPLIT):
                line = first.at((i + s) * (self.wide * F64.size))
                entries = [self.load(line, g * self.vec.size) for g in width]
                for source, totals in zip(sources, sums[s], strict=True):
                    own = load_item(f, source, i + s, F64).splat(self.lanes)
                    for total, entry in zip(totals, entries, strict=True):
                        total.set(f.fma(own, entry, total.get()))
        return [
            [functools.reduce(operator.add, [part[c][g].get() for part in sums]) for g in width]
            for c in range(len(sources))
        ]

    def forward(self, chains: list[_Chain], longest: Value) -> None:
        f, x, zero = self.f, self.x, self.f.const(0, I64)
        for chain in chains:
            row, top = x["x"].at(chain.b * x["x_batch"]), chain.behind  # which is not used yet
            self.exponentiate(row, zero, chain.row(zero), top, 1)
            chain.level.set(f.load(top, F64, 8))
        with f.loop(1, longest, _STEPS) as first:
            last = f.low(first + _STEPS, longest)
            for chain in [] if self.shape.table else chains:
                e = x["e"].at(chain.b * x["e_batch"] + first * x["e_step"])
                count = f.low(last, chain.count) - first
                self.exponentiate(e, x["e_step"], *chain.emitted(first), count)
            with f.loop(first, last) as step:
                self.step_forward(chains, step)
        for chain in chains:
            self.whole(chain)

    def step_forward(self, chains: list[_Chain], step: Value) -> None:
        """One step; what chains that have ended go on with is not used."""
        f = self.f
        there = [step.cmp("<", chain.count) for chain in chains]
        powers = [f.select(on, step, f.const(1, I64)) for on in there]
        emitted = [chain.emitted(at) for chain, at in zip(chains, powers, strict=True)]
        steps = [f.low(step, chain.count) for chain in chains]  # the last row is still to be read
        sources = [chain.row(at - 1) for chain, at in zip(chains, steps, strict=True)]
        targets = [chain.row(at) for chain, at in zip(chains, steps, strict=True)]

        def panel(p: Value) -> None:
            found = self.combine(self.matrix("down", chains[0]), p, sources)
            for c, chain in enumerate(chains):
                for g, value in enumerate(found[c]):
                    at = (p * self.wide + g * self.lanes) * F64.size
                    value = value * chain.scale.get() * self.load(emitted[c][0], at)
                    chain.put(value, targets[c].at(at), there[c])

        self.in_panels(panel)
        for chain, on, (_, top) in zip(chains, there, emitted, strict=True):
            with f.if_(on):
                chain.exponents.set(chain.exponents.get() + chain.exponent.get()[0])
                chain.level.set(chain.level.get() + f.load(top, F64, 8))
            chain.rescale()

    def matrix(self, name: str, chain: _Chain) -> Value:
        place: Value = self.x[name].at(chain.b * self.x["a_batch"])
        return place

    def whole(self, chain: _Chain) -> None:
        """The sum over all sequences, where the way back begins."""
        f, x, top = self.f, self.x, chain.ahead  # which is not used yet
        end, last = x["end"].at(chain.b * x["end_batch"]), chain.row(chain.count - 1)
        self.exponentiate(end, f.const(0, I64), chain.behind, top, 1)
        chain.scale.set(self.one)

        def add(j: Value) -> None:
            at = j * F64.size
            own, after = self.load(last, at), self.load(chain.behind, at)
            chain.dot.set(f.fma(own, after, chain.dot.get()))

        self.in_vectors(add)
        whole, moves = self.invert(chain)[0], chain.count - 1
        matrix = f.select(x["a_batch"].cmp("!=", 0), chain.b, f.const(0, I64))
        level = f.fma(moves.to(F64), load_item(f, x["a_tops"], matrix, F64), chain.level.get())
        level = level + f.load(top, F64, 8)
        power = (chain.exponents.get() - moves * _BIAS).to(F64)
        total = f.fma(power, f.const(math.log(2), F64), vmath.log(f, whole)) + level
        f.store(total, x["total"].at(chain.b * F64.size), 8)
        chain.mark((whole.cmp(">=", 2.0**-WHOLE) & (total - total).cmp("==", 0.0)) ^ 1)
        chain.mark_small()

    def invert(self, chain: _Chain) -> Value:
        """The sum over a step's states, of which they have shares."""
        found = _joined(self.f, chain.dot.get(), operator.add)
        chain.inverse.set(self.one / found)
        chain.dot.set(self.zero)
        return found

    def back(self, chains: list[_Chain], longest: Value) -> None:
        f, paired = self.f, self.x["paired"].cmp("!=", 0)
        for chain in chains:
            self.give(chain, chain.count - 1)
        with f.loop(1, longest, _STEPS) as first:
            last = f.low(first + _STEPS, longest)
            with f.loop(first, last) as k:
                self.step_back(chains, k, k - first)
            with f.if_(paired):
                for chain in chains:
                    self.add_pairs(chain, first, f.low(last, chain.count))
        for chain in chains:
            chain.mark_small()
            with f.if_(paired & chain.own):
                self.give_pairs(chain)

    def step_back(self, chains: list[_Chain], k: Value, place: Value) -> None:
        """To the step that is k before the last; `place` is that of its shares."""
        f = self.f
        there = [k.cmp("<", chain.count) for chain in chains]
        after = [f.select(on, chain.count - k, f.const(1, I64))
                 for chain, on in zip(chains, there, strict=True)]  # fmt: skip
        for chain, step in zip(chains, after, strict=True):
            emitted, _ = chain.emitted(step)

            def emit(j: Value, chain: _Chain = chain, emitted: Value = emitted) -> None:
                at = j * F64.size
                value = self.load(chain.behind, at) * self.load(emitted, at)
                f.store(value, chain.ahead.at(at), F64.size)

            self.in_vectors(emit)
        rows = [chain.row(step - 1) for chain, step in zip(chains, after, strict=True)]

        def panel(p: Value) -> None:
            matrix = self.matrix("across", chains[0])
            found = self.combine(matrix, p, [chain.ahead for chain in chains])
            for c, chain in enumerate(chains):
                for g, value in enumerate(found[c]):
                    at = (p * self.wide + g * self.lanes) * F64.size
                    value = value * chain.scale.get()
                    chain.put(value, chain.behind.at(at), there[c])
                    chain.dot.set(f.fma(value, self.load(rows[c], at), chain.dot.get()))

        self.in_panels(panel)
        for chain, step, on in zip(chains, after, there, strict=True):
            self.invert(chain)
            with f.if_(on):
                self.give(chain, step - 1)
                with f.if_(self.x["paired"].cmp("!=", 0)):
                    self.share(chain, place)
            chain.rescale()

    def give(self, chain: _Chain, step: Value) -> None:
        """The probabilities of the states at a step."""
        f, x, row = self.f, self.x, chain.row(step)
        out = x["out"].at(chain.b * x["out_batch"] + step * x["out_step"])

        def take(j: Value) -> None:
            at = j * F64.size
            value = self.load(row, at) * self.load(chain.behind, at) * chain.inverse.get()
            value, to = value.to(self.t), out.at(j * self.t.size)
            with f.if_else((j + self.lanes).cmp("<=", self.n)) as otherwise:
                f.store(value, to, self.t.size)
                with otherwise():  # some processors are slow at this
                    f.store_masked(value, to, f.below(self.n - j, self.lanes), self.t.size)

        self.in_vectors(take)

    def share(self, chain: _Chain, place: Value) -> None:
        """What the row of the step before is multiplied by for probabilities of pairs."""
        f, to = self.f, chain.shares.at(place * self.line)
        factor = chain.scale.get() * chain.inverse.get()

        def take(j: Value) -> None:
            at = j * F64.size
            f.store(self.load(chain.ahead, at) * factor, to.at(at), F64.size)

        self.in_vectors(take)

    def add_pairs(self, chain: _Chain, first: Value, last: Value) -> None:
        """Products of rows and shares, of some steps back, to the sums of a chain."""
        f, width, size = self.f, self.shape.width, self.vec.size
        for g in range(0, width, 4):
            some = range(g, min(width, g + 4))
            down = range(min(self.lanes, 8 // len(some)))
            with f.loop(0, self.x["panels"]) as p, f.loop(0, self.n, len(down)) as i:
                places = [
                    [chain.sums.at(((p * self.padded + i + s) * width + v) * size) for v in some]
                    for s in down
                ]
                sums = [[f.var(self.load(place, 0)) for place in line] for line in places]
                with f.loop(first, last) as k:
                    share = chain.shares.at((k - first) * self.line + p * (width * size))
                    values = [self.load(share, v * size) for v in some]
                    row = chain.row(chain.count - 1 - k)
                    for s in down:
                        own = load_item(f, row, i + s, F64).splat(self.lanes)
                        for total, value in zip(sums[s], values, strict=True):
                            total.set(f.fma(own, value, total.get()))
                for line, totals in zip(places, sums, strict=True):
                    for place, total in zip(line, totals, strict=True):
                        f.store(total.get(), place, F64.size)

    def give_pairs(self, chain: _Chain) -> None:
        """Add the sums, times the matrix, to the result, and clear them."""
        f, x, t, width = self.f, self.x, self.t, self.shape.width
        matrix, pairs = self.matrix("down", chain), x["pairs"].at(chain.b * x["pair_batch"])
        good = f.load(x["odd"].at(chain.b), Type("u", 8)).cmp("==", 0)
        with f.loop(0, x["panels"]) as p, f.loop(0, self.n) as i, f.loop(0, width) as g:
            column = p * self.wide + g * self.lanes
            own = chain.sums.at(((p * self.padded + i) * width + g) * self.vec.size)
            entry = self.load(matrix, ((p * self.depth + i) * width + g) * self.vec.size)
            with f.if_(good):
                inside = f.below(self.n - column, self.lanes)
                to = pairs.at((i * self.n + column) * t.size)
                before = f.load_masked(to, t.vector(self.lanes), inside, t.size).to(F64)
                value = f.fma(self.load(own, 0), entry, before)
                f.store_masked(value.to(t), to, inside, t.size)
            f.store(self.zero, own, F64.size)
