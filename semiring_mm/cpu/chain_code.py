"""Generated code of chains: rows carried through one matrix after the other, and the ways back.

The matrix of a step, decoded, lies in a buffer of the thread, so that a step is the same whatever
the operands' dtype and strides: panels of columns, as wide as a vector, whose rows lie one after
the other. The rows that are carried lie beside it, padded to whole vectors. Where chains share a
matrix, some go on together, a step each in turn: the next row does not wait for the last.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..expressions import joins_logarithms
from ..plan import Plan, can_use_fma
from . import vmath
from .algebra import Algebra
from .blocks import load_block, load_item
from .compiler import KEPT, compile_functions, host_target
from .ir import F64, I1, I32, I64, PTR, Function, Type, Value, Var
from .logsum import RANGES

__all__ = ["CARRY", "PATH", "POSTERIOR", "carry_code", "path_code", "posterior_code", "shifts"]

CARRY = (
    "first last together row0 rows states padded steps skip reverse every shared shifted given"
    " factored levelled a_batch a_step a_row a_col e_batch e_step x_batch x_row y_batch y_step"
    " y_row level_batch : lengths : : a e x y flags packed powers tops now next weights offsets"
    " levels"
)
PATH = (
    "first last states padded draws a_batch a_step a_row a_col v_batch v_step end_batch"
    " shared uniform_batch uniform_step path_batch : lengths : path"
    " : a v end score uniform packed column"
)
POSTERIOR = (
    "first last states v_batch v_step e_batch e_step a_batch a_step a_row a_col"
    " paired pair_batch pair_step end_batch out_batch level_batch : lengths"
    " : : a e forward backward end total out pairs column levels sums"
)
_PAIRS = 64  # steps whose probabilities of pairs are added up before they join the others
_GROUP, _UNROLL = 2, 4  # vectors of a row, and rows of the matrix, that are in registers at a time


def shifts(plan: Plan) -> bool:
    """Whether rows are carried by exponentials: see :mod:`semiring_mm.cpu.logsum`."""
    return joins_logarithms(plan.add) and can_use_fma(plan)


@functools.lru_cache(maxsize=KEPT)
def carry_code(plan: Plan, quick: bool, far: float, swapped: bool) -> Any:
    """The compiled :func:`carry_function`."""
    f = carry_function(plan, quick, far, swapped)
    return compile_functions([f], host_target()).function(f.name, ctypes.c_void_p)


@functools.lru_cache(maxsize=KEPT)
def path_code(plan: Plan) -> Any:
    """The compiled :func:`path_function`."""
    f = path_function(plan)
    return compile_functions([f], host_target()).function(f.name, ctypes.c_void_p)


@functools.lru_cache(maxsize=KEPT)
def posterior_code(plan: Plan) -> Any:
    """The compiled :func:`posterior_function`."""
    f = posterior_function(plan)
    return compile_functions([f], host_target()).function(f.name, ctypes.c_void_p)


class _Vectors:
    """What all functions here do with rows: loops over vectors, masks, sums over lanes."""

    def __init__(self, f: Function, plan: Plan, n: Value) -> None:
        self.f, self.n = f, n
        self.algebra = Algebra(f, plan)
        self.t, self.s = self.algebra.compute, self.algebra.storage
        self.lanes = host_target().vector_bytes // self.t.size
        self.vec = self.t.vector(self.lanes)

    def mask(self, j: Value) -> Value:
        """The lanes of a vector at column j that are columns."""
        left = (self.n - j).to(I32).splat(self.lanes)
        return self.f.iota(I32.vector(self.lanes)).cmp("<", left)

    def own(self, base: Value, j: Value) -> Value:
        """A vector of the type computed in, from a padded row."""
        return self.f.load(base.at(j * self.t.size), self.vec, self.t.size)

    def put(self, x: Value, base: Value, j: Value) -> None:
        self.f.store(x, base.at(j * self.t.size), self.t.size)

    def stored(self, base: Value, j: Value, mask: Value) -> Value:
        """A vector of an operand's row, decoded."""
        s = self.s
        x = self.f.load_masked(base.at(j * s.size), s.vector(self.lanes), mask, s.size)
        return self.algebra.decode(x)

    def across(self, x: Value, join: Callable[[Value, Value], Value]) -> Value:
        """All lanes joined, by halves."""
        while x.type.lanes > 2:
            n = x.type.lanes // 2
            x = join(self.f.shuffle(x, x, range(n)), self.f.shuffle(x, x, range(n, 2 * n)))
        return join(x[0], x[1])

    def larger(self, x: Value, y: Value) -> Value:
        return self.f.select(x.cmp(">", y), x, y)

    def any(self, x: Value) -> Value:
        return x.bits_as(Type("u", self.lanes)).cmp("!=", 0)

    def pack(
        self, to: Value, base: Value, row: Value, col: Value, padded: Value, panels: bool
    ) -> None:
        """Decode a matrix of any strides into padded rows, or panels; what pads joins nothing."""
        f, t, s, lanes = self.f, self.t, self.s, self.lanes
        with f.loop(0, self.n) as i:
            at = base.at(i * row)

            def place(j: Value, k: Value | int, i: Value = i) -> Value:
                """Of entry (i, j + k), where j begins a vector."""
                line = j * self.n + i * lanes if panels else i * padded + j
                return to.at((line + k) * t.size)

            whole = self.n // lanes * lanes
            whole = f.select(col.cmp("==", s.size), whole, f.const(0, I64))
            with f.loop(0, whole, lanes) as j:
                x = f.load(at.at(j * s.size), s.vector(lanes))
                f.store(self.algebra.decode(x), place(j, 0), t.size)
            with f.loop(whole, padded, lanes) as j:
                filled = f.low(self.n - j, lanes)
                with f.loop(0, filled) as k:
                    x = self.algebra.decode(f.load(at.at((j + k) * col), s))
                    f.store(x, place(j, k), t.size)
                with f.loop(filled, f.const(lanes, I64)) as k:
                    f.store(self.algebra.start(1), place(j, k), t.size)


def carry_function(plan: Plan, quick: bool, far: float, swapped: bool) -> Function:
    """Generate ``carry(block)``: rows through the matrices of chains ``first`` to ``last`` - 1.

    A row x becomes x ⊗ A, or with `swapped` operands of ⊗ A ⊗ x for the columns of A. A chain has
    ``lengths[b] - skip`` steps, and where that is none nothing is stored. With ``reverse`` the last
    matrix comes first, the caller has exchanged rows and columns, and a row is multiplied by the
    emissions before the matrix, else after it. Where rows are not ``given``, they are those of the
    first matrix.

    With `quick`, a row of numbers and of `far`, the infinity that is the semiring's zero (0: none),
    needs no care for NaN: that is seen at each step in as many comparisons as it has entries.
    Sums of exponentials are shifted by the largest entry of the row and of each column
    (``shifted``), and computed again term by term where they are too small to be right.
    From each row of logarithms its largest is taken after a step, so that rows are as exact behind
    many steps as behind one. What was taken, summed in ``offsets``, is added to what is stored, or
    with ``levelled`` goes to ``levels``.
    """
    f = Function("carry", [PTR], opaque=False)
    x = load_block(f, CARRY)
    n, padded = x["states"], x["padded"]
    v = _Vectors(f, plan, n)
    algebra, t, lanes, vec = v.algebra, v.t, v.lanes, v.vec
    fast = Algebra(f, replace(plan, keep_nan=False)) if quick else algebra
    logarithms, shifting = joins_logarithms(plan.add), shifts(plan)
    reverse, has_e = x["reverse"].cmp("!=", 0), x["factored"].cmp("!=", 0)
    packed = x["packed"]
    whole_numbers = plan.compute[0] in "iu" and plan.codec in ("plain", "sentinel")
    low = f.const(-math.inf, t) if shifting else None
    keep = f.var(f.const(0, I1))  # whether what a step computes is stored

    def entries(i: Value, j: Value) -> Value:
        """The place of row i of the panel of columns from j on."""
        place: Value = j * n + i * lanes
        return place

    def times(by: Algebra, row: Value, entry: Value) -> Value:
        return by.mul(entry, row) if swapped else by.mul(row, entry)

    def exponentials() -> None:
        """Of the packed matrix, each column less its largest entry."""
        assert low is not None
        with f.loop(0, padded, lanes) as j:
            top = f.var(low.splat(lanes))
            with f.loop(0, n) as i:
                top.set(v.larger(v.own(packed, entries(i, j)), top.get()))
            base = vmath.without_infinity(f, top.get())
            unknown = top.get().cmp("==", math.inf)
            with f.loop(0, n) as i:
                entry = v.own(packed, entries(i, j))
                r = RANGES[t.bits]
                power = vmath.lifted_exp(f, entry - base, r.lift, r.least)
                v.put(f.select(unknown, f.const(math.nan, vec), power), x["powers"], entries(i, j))
            v.put(base, x["tops"], j)

    def prepare(b: Value, at: Value) -> None:
        base = x["a"].at(b * x["a_batch"] + at * x["a_step"])
        v.pack(packed, base, x["a_row"], x["a_col"], padded, True)
        if shifting:
            with f.if_(x["shifted"].cmp("!=", 0)):
                exponentials()

    def settled(value: Value, mask: Value) -> Value:
        """The value; of whole numbers as it is stored, which tells whether it fits."""
        if not whole_numbers:
            return value
        stored, overflow = algebra.encode(value)
        if overflow is not None:
            byte = Type("i", 8)
            bad = v.any(overflow & mask).to(Type("u", 8)).to(byte)
            f.store(f.load(x["flags"], byte) | bad, x["flags"])
        return algebra.decode(stored)

    def store(value: Value, y: Value, j: Value) -> None:
        with f.if_(keep.get()):
            stored, _ = algebra.encode(value)
            f.store_masked(stored, y.at(j * v.s.size), v.mask(j), v.s.size)

    def finish(value: Value, j: Value, e: Value, y: Value, to: Value) -> None:
        """Emissions, the result, and the row as it goes on."""
        mask = v.mask(j)
        result = f.var(settled(value, mask))
        with f.if_(has_e & (reverse ^ 1)):
            result.set(settled(algebra.mul(result.get(), v.stored(e, j, mask)), mask))
        if not shifting:  # else level() does
            store(result.get(), y, j)
        v.put(f.select(mask, result.get(), algebra.start(lanes)), to, j)

    def combined(by: Algebra, row: Value, j: Value, width: int) -> list[Value]:
        """⊕_i row[i] ⊗ A[i, j] for some vectors of columns."""
        several = [[f.var(by.start(lanes)) for _ in range(width)] for _ in range(_UNROLL)]

        def some(i: Value, count: int) -> None:
            for u in range(count):
                own = load_item(f, row, i + u, t).splat(lanes)
                for g in range(width):
                    entry = v.own(packed, entries(i + u, j + g * lanes))
                    total = several[u][g]
                    total.set(by.add(total.get(), times(by, own, entry)))

        whole = n // _UNROLL * _UNROLL
        with f.loop(0, whole, _UNROLL) as i:
            some(i, _UNROLL)
        with f.loop(whole, n) as i:
            some(i, 1)
        parts = [[several[u][g].get() for u in range(_UNROLL)] for g in range(width)]
        return [by.add(by.add(p[0], p[1]), by.add(p[2], p[3])) for p in parts]

    def log_sums(row: Value, j: Value) -> Value:
        """The same for logarithms, one vector of columns, term by term."""
        total = vmath.LogSum(f, vec)
        with f.loop(0, n) as i:
            own = load_item(f, row, i, t).splat(lanes)
            total.look(times(algebra, own, v.own(packed, entries(i, j))))
        total.begin()
        with f.loop(0, n) as i:
            own = load_item(f, row, i, t).splat(lanes)
            total.add(times(algebra, own, v.own(packed, entries(i, j))))
        return total.value()

    def groups(take: Callable[[Value, int], None]) -> None:
        step = _GROUP * lanes
        whole = padded // step * step
        with f.loop(0, whole, step) as j:
            take(j, _GROUP)
        with f.loop(whole, padded, lanes) as j:
            take(j, 1)

    def multiply(row: Value, e: Value, y: Value, to: Value) -> None:
        """One step of one row."""

        def plainly(by: Algebra) -> Callable[[Value, int], None]:
            def take(j: Value, width: int) -> None:
                for g, value in enumerate(combined(by, row, j, width)):
                    finish(value, j + g * lanes, e, y, to)

            return take

        def by_terms(j: Value, width: int) -> None:
            for g in range(width):
                finish(log_sums(row, j + g * lanes), j + g * lanes, e, y, to)

        if logarithms:
            if not shifting:
                groups(by_terms)
                return
            with f.if_else(x["shifted"].cmp("!=", 0)) as otherwise:
                shifted(row, e, y, to)
                with otherwise():
                    groups(by_terms)
            return
        if not quick:
            groups(plainly(algebra))
            return
        odd = f.var(f.const(0, Type("i", 1, lanes)))
        with f.loop(0, padded, lanes) as j:
            entry = v.own(row, j)
            strange = entry.cmp("uno", entry)
            for infinity in {math.inf, -math.inf} - {far}:
                strange = strange | entry.cmp("==", infinity)
            odd.set(odd.get() | (strange & v.mask(j)))
        with f.if_else(v.any(odd.get())) as otherwise:
            groups(plainly(algebra))
            with otherwise():
                groups(plainly(fast))

    def shifted(row: Value, e: Value, y: Value, to: Value) -> None:
        """By exponentials of the row and of the matrix, each less its largest."""
        r = RANGES[t.bits]
        assert low is not None
        top = f.var(low.splat(lanes))
        with f.loop(0, padded, lanes) as j:
            top.set(v.larger(v.own(row, j), top.get()))
        highest = v.across(top.get(), v.larger)
        base = vmath.without_infinity(f, highest)
        with f.loop(0, padded, lanes) as j:
            power = vmath.lifted_exp(f, v.own(row, j) - base.splat(lanes), r.lift, r.least)
            v.put(power, x["weights"], j)
        least = n.to(t) * r.sum_from(1)
        least = f.select(highest.cmp("==", math.inf), f.const(math.inf, t), least).splat(lanes)

        def take(j: Value, width: int) -> None:
            sums = [[f.var(f.const(0.0, vec)) for _ in range(width)] for _ in range(_UNROLL)]

            def some(i: Value, count: int) -> None:
                for u in range(count):
                    own = load_item(f, x["weights"], i + u, t).splat(lanes)
                    for g in range(width):
                        entry = v.own(x["powers"], entries(i + u, j + g * lanes))
                        sums[u][g].set(f.fma(own, entry, sums[u][g].get()))

            whole = n // _UNROLL * _UNROLL
            with f.loop(0, whole, _UNROLL) as i:
                some(i, _UNROLL)
            with f.loop(whole, n) as i:
                some(i, 1)
            for g in range(width):
                at = j + g * lanes
                a, b, c, d = (sums[u][g].get() for u in range(_UNROLL))
                total = ((a + b) + (c + d)) * 2.0 ** (-2 * r.lift)
                good = total.cmp(">=", least) & total.cmp("<", math.inf)
                value = f.var((base.splat(lanes) + v.own(x["tops"], at)) + vmath.log(f, total))
                with f.if_(v.any((good ^ 1) & v.mask(at))):
                    value.set(f.select(good, value.get(), log_sums(row, at)))
                finish(value.get(), at, e, y, to)

        groups(take)

    def level(y: Value, to: Value, offset: Value, place: Value) -> None:
        """Take from the row that was computed its largest, and store the result."""
        assert low is not None
        levelled, gone = x["levelled"].cmp("!=", 0), f.load(offset, F64)
        top = f.var(low.splat(lanes))
        with f.loop(0, padded, lanes) as j:
            top.set(v.larger(v.own(to, j), top.get()))
        base = vmath.without_infinity(f, v.across(top.get(), v.larger))
        with f.loop(0, padded, lanes) as j:
            value = v.own(to, j)
            less, whole = value - base.splat(lanes), value.to(F64) + gone.splat(lanes)
            v.put(less, to, j)
            store(f.select(levelled, less, whole.to(t)), y, j)
        f.store(gone + base.to(F64), offset)
        with f.if_(levelled):
            f.store(base, place, t.size)

    def begin(r: Value, e: Value, y: Value, to: Value) -> None:
        """The first step where no rows are given: the matrix itself."""
        with f.loop(0, padded, lanes) as j:
            value = f.var(v.own(packed, entries(x["row0"] + r, j)))
            with f.if_(has_e & reverse):
                own = algebra.decode(f.load(e.at((x["row0"] + r) * v.s.size), v.s)).splat(lanes)
                value.set(algebra.mul(value.get(), own))
            finish(value.get(), j, e, y, to)

    now, then = f.var(x["now"]), f.var(x["next"])
    with f.loop(x["first"], x["last"], x["together"]) as b0:
        ends = f.low(b0 + x["together"], x["last"])
        most = f.var(f.const(0, I64))
        with f.if_(
            x["shared"].cmp("!=", 0) & (b0.cmp("==", x["first"]) | x["a_batch"].cmp("!=", 0))
        ):
            prepare(b0, f.const(0, I64))
        with f.loop(b0, ends) as b:
            count = x["lengths"][b] - x["skip"]
            most.set(f.select(count.cmp(">", most.get()), count, most.get()))
            with f.loop(0, x["rows"]) as r:
                f.store(f.const(0.0, F64), x["offsets"].at(((b - b0) * x["rows"] + r) * F64.size))
            with f.if_(x["given"].cmp("!=", 0)), f.loop(0, x["rows"]) as r:
                source = x["x"].at(b * x["x_batch"] + r * x["x_row"])
                with f.loop(0, padded, lanes) as j:
                    mask = v.mask(j)
                    value = f.select(mask, v.stored(source, j, mask), algebra.start(lanes))
                    v.put(value, now.get(), ((b - b0) * x["rows"] + r) * padded + j)
        with f.loop(0, most.get()) as step:
            with f.loop(b0, ends) as b:
                length = x["lengths"][b]
                left = length - x["skip"] - step
                with f.if_(left.cmp(">", 0)):
                    at = f.select(reverse, length - 1 - step, step)
                    with f.if_(x["shared"].cmp("==", 0)):
                        prepare(b, at)
                    e = x["e"].at(b * x["e_batch"] + at * x["e_step"])
                    place = f.select(reverse, at - x["skip"], at + x["skip"])
                    line = x["y"].at(b * x["y_batch"] + place * x["y_step"] * x["every"])
                    keep.set(x["every"].cmp("!=", 0) | left.cmp("==", 1))
                    with f.loop(0, x["rows"]) as r:
                        turn = (b - b0) * x["rows"] + r
                        y, row, to = (
                            line.at(r * x["y_row"]),
                            now.get().at(turn * padded * t.size),
                            then.get().at(turn * padded * t.size),
                        )
                        with f.if_else(step.cmp("==", 0) & x["given"].cmp("==", 0)) as otherwise:
                            begin(r, e, y, to)
                            with otherwise():
                                with f.if_(has_e & reverse), f.loop(0, padded, lanes) as j:
                                    mask = v.mask(j)
                                    value = algebra.mul(v.stored(e, j, mask), v.own(row, j))
                                    value = settled(value, mask)
                                    v.put(f.select(mask, value, algebra.start(lanes)), row, j)
                                multiply(row, e, y, to)
                        if shifting:
                            at = x["levels"].at(b * x["level_batch"] + place * t.size)
                            level(y, to, x["offsets"].at(turn * F64.size), at)
            was = now.get()
            now.set(then.get())
            then.set(was)
    return f


def path_function(plan: Plan) -> Function:
    """Generate ``path(block)``: from the last state back to the first, of chains of floats.

    ``v`` holds the rows that were carried, after each step. The state before state j is the first
    that attains ⊕_i v[i] ⊗ A[i, j], or with ``draws`` one drawn with its share of that sum: the
    first at which the running sum of exponentials exceeds a uniform number's part of the whole.
    """
    f = Function("path", [PTR], opaque=False)
    x = load_block(f, PATH)
    n, padded, column = x["states"], x["padded"], x["column"]
    v = _Vectors(f, plan, n)
    algebra, t, lanes = v.algebra, v.t, v.lanes
    index = Type("i", t.bits)
    nowhere = f.const((1 << (t.bits - 1)) - 1, index)

    def picked(best: Var, at: Var) -> Value:
        """The first place of the best entry, of each lane's."""
        top = v.across(best.get(), algebra.add)
        wins = algebra.same(best.get(), top.splat(lanes))
        found = f.select(wins, at.get(), nowhere.splat(lanes))
        return v.across(found, lambda i, j: f.select(i.cmp("<", j), i, j)).to(I64)

    def choose(row: Value, entry: Callable[[Value, Value], Value], uniform: Value) -> Value:
        """The state of the best entry, or one drawn; entries are computed once."""
        best = f.var(algebra.start(lanes))
        at = f.var(f.const(0, index.vector(lanes)))
        at.set(f.iota(index.vector(lanes)))
        with f.loop(0, padded, lanes) as j:
            mask = v.mask(j)
            value = f.select(mask, entry(row, j), algebra.start(lanes))
            v.put(value, column, j)
            wins = algebra.better(value, best.get())
            here = f.iota(index.vector(lanes)) + j.to(index).splat(lanes)
            at.set(f.select(wins, here, at.get()))
            best.set(f.select(wins, value, best.get()))
        chosen = f.var(picked(best, at))
        with f.if_(x["draws"].cmp("!=", 0)):
            base = vmath.without_infinity(f, v.across(best.get(), algebra.add)).splat(lanes)
            total = f.var(f.const(0.0, v.vec))
            with f.loop(0, padded, lanes) as j:
                power = vmath.add_exp(f, f.const(0.0, v.vec), v.own(column, j) - base)
                power = f.select(v.mask(j), power, f.const(0.0, v.vec))
                v.put(power, column, j)
                total.set(total.get() + power)
            left = f.var(v.across(total.get(), lambda p, q: p + q) * f.load(uniform, t, t.size))
            i = f.var(f.const(0, I64))
            with f.while_() as done:  # a state without a share is passed over
                f.break_if(i.get().cmp(">=", n), done)
                share = load_item(f, column, i.get(), t)
                chosen.set(f.select(share.cmp(">", 0.0), i.get(), chosen.get()))
                left.set(left.get() - share)
                f.break_if(left.get().cmp("<", 0.0) & share.cmp(">", 0.0), done)
                i.set(i.get() + 1)
        return chosen.get()

    def ended(row: Value, j: Value) -> Value:
        mask = v.mask(j)
        return algebra.mul(v.stored(row, j, mask), v.stored(end.get(), j, mask))

    def came(row: Value, j: Value) -> Value:
        mask = v.mask(j)
        return algebra.mul(v.stored(row, j, mask), v.own(line.get(), j))

    end, line = f.var(x["end"]), f.var(column)
    with f.loop(x["first"], x["last"]) as b:
        length = x["lengths"][b]
        with f.if_(x["shared"].cmp("!=", 0)):
            again = b.cmp("==", x["first"]) | x["a_batch"].cmp("!=", 0)
            with f.if_(again):  # columns as rows
                base = x["a"].at(b * x["a_batch"])
                v.pack(x["packed"], base, x["a_col"], x["a_row"], padded, False)
        with f.if_(length.cmp(">", 0)):
            rows = x["v"].at((b - x["first"]) * x["v_batch"])
            uniforms = x["uniform"].at(b * x["uniform_batch"])
            end.set(x["end"].at(b * x["end_batch"]))
            last = length - 1
            by = uniforms.at(last * x["uniform_step"])
            state = f.var(choose(rows.at(last * x["v_step"]), ended, by))
            f.store(load_item(f, column, state.get(), t), x["score"].at(b * t.size), t.size)
            x["path"][b * x["path_batch"] + last] = state.get()
            with f.loop(1, length) as k:
                at = last - k
                with f.if_else(x["shared"].cmp("!=", 0)) as otherwise:
                    line.set(x["packed"].at(state.get() * padded * t.size))
                    with otherwise():
                        base = x["a"].at(b * x["a_batch"] + at * x["a_step"])
                        base = base.at(state.get() * x["a_col"])
                        with f.loop(0, n) as i:
                            entry = algebra.decode(f.load(base.at(i * x["a_row"]), v.s))
                            f.store(entry, x["packed"].at(i * t.size), t.size)
                        line.set(x["packed"])
                by = uniforms.at(at * x["uniform_step"])
                state.set(choose(rows.at(at * x["v_step"]), came, by))
                x["path"][b * x["path_batch"] + at] = state.get()
    return f


def posterior_function(plan: Plan) -> Function:
    """Generate ``posterior(block)``: the probabilities of states, and of pairs of them in a row.

    Given forward and backward rows of logarithms, levelled (the latter without the emissions of
    their step), and how much was taken from the forward ones. Each is one exponential, divided by
    their sum at its step, so that the rounding of many steps does not add up. ``total`` receives
    the log-sum over the states at a chain's end; where it is -inf or NaN, all of them are NaN.
    """
    f = Function("posterior", [PTR], opaque=False)
    x = load_block(f, POSTERIOR)
    n, column = x["states"], x["column"]
    v = _Vectors(f, plan, n)
    algebra, t, lanes = v.algebra, v.t, v.lanes
    none = f.const(0.0, v.vec)

    def add_pairs(b: Value, at: Value, row: Value, count: Value) -> None:
        """Those of a step and the one before, whose row this is, to the sums of some steps."""
        base = x["a"].at(b * x["a_batch"] + (at - 1) * x["a_step"])
        with f.loop(0, n) as i:
            own = load_item(f, row, i, t).splat(lanes)
            with f.loop(0, n, lanes) as j:
                mask = v.mask(j)
                steps = v.stored(base.at(i * x["a_row"]), j, mask)
                share = vmath.add_exp(f, none, (own + steps) + v.own(column, j))
                line = x["sums"].at((i * n + j) * t.size)
                before = v.stored(line, f.const(0, I64), mask)
                f.store_masked(f.fma(share, count, before), line, mask, t.size)

    def keep_pairs(b: Value, at: Value) -> None:
        pairs = x["pairs"].at(b * x["pair_batch"] + (at - 1) * x["pair_step"])
        with f.loop(0, n * n, lanes) as i:
            mask = f.below(n * n - i, lanes)
            place, own = pairs.at(i * t.size), x["sums"].at(i * t.size)
            some = f.load_masked(own, v.vec, mask, t.size)
            before = f.load_masked(place, v.vec, mask, t.size)
            f.store_masked(before + some, place, mask, t.size)
            f.store_masked(none, own, mask, t.size)

    with f.loop(x["first"], x["last"]) as b:
        length = x["lengths"][b]
        fore, back = (x[k].at((b - x["first"]) * x["v_batch"]) for k in ("forward", "backward"))
        out = x["out"].at(b * x["out_batch"])
        whole = vmath.LogSum(f, v.vec)
        final = fore.at((length - 1) * x["v_step"])
        end = x["end"].at(b * x["end_batch"])

        def ended(j: Value, final: Value = final, end: Value = end) -> Value:
            mask = v.mask(j)
            share = v.stored(final, j, mask) + v.stored(end, j, mask)
            return f.select(mask, share, algebra.start(lanes))

        there = f.select(length.cmp(">", 0), n, f.const(0, I64))
        with f.loop(0, there, lanes) as j:
            whole.look(ended(j))
        whole.begin()
        with f.loop(0, there, lanes) as j:
            whole.add(ended(j))
        total = v.across(whole.value(), algebra.add)
        f.store(f.select(length.cmp(">", 0), total, f.const(0.0, t)), x["total"].at(b * t.size))
        known = (total - total).cmp("==", 0.0)
        with f.loop(0, length) as at:
            row, behind = fore.at(at * x["v_step"]), back.at(at * x["v_step"])
            line = out.at(at * x["v_step"])
            top = f.var(algebra.start(lanes))
            with f.loop(0, n, lanes) as j:
                mask = v.mask(j)
                share = v.stored(row, j, mask) + v.stored(behind, j, mask)
                share = f.select(mask, share, algebra.start(lanes))
                top.set(v.larger(share, top.get()))
                f.store_masked(share, line.at(j * t.size), mask, t.size)
            base = vmath.without_infinity(f, v.across(top.get(), v.larger)).splat(lanes)
            whole_step = f.var(none)
            with f.loop(0, n, lanes) as j:
                mask, place = v.mask(j), line.at(j * t.size)
                power = vmath.add_exp(f, none, v.stored(place, f.const(0, I64), mask) - base)
                power = f.select(mask, power, none)
                whole_step.set(whole_step.get() + power)
                f.store_masked(power, place, mask, t.size)
            count = v.across(whole_step.get(), lambda p, q: p + q)
            count = f.select(known, count, f.const(math.nan, t)).splat(lanes)
            with f.loop(0, n, lanes) as j:
                mask, place = v.mask(j), line.at(j * t.size)
                share = v.stored(place, f.const(0, I64), mask) / count
                f.store_masked(share, place, mask, t.size)
            with f.if_(x["paired"].cmp("!=", 0) & at.cmp(">", 0)):
                level = f.load(x["levels"].at(b * x["level_batch"] + at * t.size), t, t.size)
                less = base + level.splat(lanes)
                e = x["e"].at(b * x["e_batch"] + at * x["e_step"])
                with f.loop(0, n, lanes) as j:
                    mask = v.mask(j)
                    rest = (v.stored(e, j, mask) - less) + v.stored(behind, j, mask)
                    v.put(rest, column, j)
                add_pairs(b, at, fore.at((at - 1) * x["v_step"]), f.const(1.0, v.vec) / count)
                end_of_some = (at % _PAIRS).cmp("==", 0) | (at + 1).cmp("==", length)
                with f.if_(end_of_some | x["pair_step"].cmp("!=", 0)):
                    keep_pairs(b, at)
    return f
