"""Viterbi's algorithm where all steps of a sequence share one matrix: forward and back, compiled.

Some sequences go on together, a step each in turn, so that one does not wait for the result of its
last step while another could compute; an entry of the matrix is loaded once for all of them. The
scores of every step are kept, in rows padded to whole vectors that stay in the cache. On the way
back the state before a state is the first that attains ⊕_i v[i] ⊗ A[i, j], found again in O(S).

Few states leave lanes of a vector idle and the way back is a wait for single numbers. There, a
vector is one state of as many sequences as it has lanes: nothing is broadcast, summed over lanes or
looked for, and the way back takes A[i, j] of each lane's j by a permutation of a row in a register.

A NaN, or an infinity that is not the semiring's zero, is not computed with here: sequences that
meet one are marked, for :mod:`semiring_mm.cpu.chain` to compute with care.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..memory import cut, room_of
from ..plan import Plan
from .algebra import Algebra
from .blocks import address, block, load_block, load_item
from .compiler import KEPT, compile_functions, host_target
from .ir import I1, I32, I64, PTR, Function, Type, Value, Var
from .product_code import transposed

__all__ = ["Shape", "Task", "shape_of", "viterbi", "viterbi_code", "viterbi_function"]

Array = NDArray[Any]

VITERBI = (
    "first last states panels steps a_batch a_row a_col e_batch e_step x_batch end_batch path_batch"
    " symbol_batch : lengths order symbols : path : a e x end score odd down across rows"
)
_SUMS = 8  # independent sums of vectors that hide how long one addition and comparison take
_LANES = 1 << 24  # bytes of rows of which the states of a sequence may lie so far apart
_KEPT = 1 << 21  # bytes of rows from which fewer sequences go on together


@dataclass(frozen=True)
class Shape:
    """What the code is generated for.

    Attributes
    ----------
    width : int
        Vectors of a panel of columns, whose sums are in registers.
    together : int
        Sequences that go on together.
    split : int
        Sums of one column, over rows that differ by less than this.
    one : bool
        Whether there is one panel.
    states : int
        Of sequences that are a lane each; 0 for sequences of which a vector holds several states.
    table : bool
        Whether the emissions are a row for each symbol, and the symbols are given.
    """

    width: int
    together: int
    split: int
    one: bool
    states: int = 0
    table: bool = False


class Task(NamedTuple):
    """How to compute best paths.

    Attributes
    ----------
    code : callable
        Takes the address of a block.
    block : callable
        ``block(first, last, memory)``: of chains ``order[first:last]``, and what it refers to;
        `memory` is a workspace.
    room : int
        Bytes of the workspace.
    together : int
        How many chains go on together.
    """

    code: Any
    block: Callable[[int, int, NDArray[np.uint8]], tuple[Array, list[Array]]]
    room: int
    together: int


def shape_of(
    states: int, lanes: int, chains: int, row: int, *, wide: bool = False
) -> tuple[Shape, int]:
    """How so many chains are computed, and the number of panels.

    `row` is the number of bytes of all rows of a chain, which is what limits how many are together;
    `wide` says whether the processor permutes the lanes of a whole vector.
    """
    if wide and states <= lanes <= 2 * chains and states * row <= _LANES:
        return Shape(1, lanes, 1, True, states), 1
    vectors = -(-states // lanes)
    most = min(_SUMS, 64 // lanes)  # a panel's columns are bits of one word
    width = vectors if vectors <= most else min((4, 3), key=lambda w: -(-vectors // w) * w)
    together = 1
    while 2 * together * width <= _SUMS and together < chains and 2 * together * row <= _KEPT:
        together *= 2
    split = 1
    while 2 * split * together * width <= _SUMS and 2 * split <= lanes:
        split *= 2
    return Shape(width, together, split, vectors <= most), -(-vectors // width)


def viterbi(
    plan: Plan,
    far: float,
    a: Array,
    e: Array,
    x: Array,
    end: Array,
    path: NDArray[np.int32],
    score: Array,
    lengths: NDArray[np.int64],
    odd: NDArray[np.uint8],
    order: NDArray[np.int64],
    threads: int,
    symbols: NDArray[np.int64] | None = None,
) -> Task:
    """How to compute the best paths of some chains.

    Parameters
    ----------
    plan : Plan
    far : float
        The infinity that is the semiring's zero, or 0.
    a, e, x, end, path, score, lengths
        As in :meth:`semiring_mm.engine.Chains.best_path`; the matrix is that of all steps, and has
        neither NaN nor an infinity that is not `far`.
    odd : ndarray of uint8, shape (batch,)
        Receives 1 where the results are to be computed with care instead.
    order : ndarray of int64
        Chains that have steps; neighbours, which go on together, are best of one length.
    threads : int
        How many call the function.
    symbols : ndarray of int64, shape (batch, steps), contiguous, optional
        The emissions are then rows of `e`.

    Returns
    -------
    Task
    """
    n, size, steps = a.shape[-1], a.itemsize, int(lengths.max(initial=0))
    lanes = host_target().vector_bytes // size
    row = steps * -(-n // lanes) * lanes * size
    chains = -(-len(order) // threads) if a.strides[0] == 0 else 1
    shape, panels = shape_of(n, lanes, chains, row, wide=host_target().vector_bytes == 64)
    shape = replace(shape, table=symbols is not None)
    padded = panels * shape.width * lanes
    deep = -(-n // shape.split) * shape.split
    code = viterbi_code(plan, far, shape)
    fixed = block(VITERBI, {
        "states": n, "panels": panels, "steps": steps,
        "a_batch": a.strides[0], "a_row": a.strides[2], "a_col": a.strides[3],
        "e_batch": e.strides[0], "e_step": e.strides[-2], "x_batch": x.strides[0],
        "end_batch": end.strides[0], "path_batch": path.shape[1], "symbol_batch": path.shape[1],
        "lengths": lengths, "order": order, "symbols": symbols, "path": path, "a": a, "e": e,
        "x": x, "end": end, "score": score, "odd": odd,
    })  # fmt: skip

    whole = shape.together * steps * (n if shape.states else padded) * size
    sizes = deep * padded * size, n * padded * size, min(whole, _KEPT)

    def part(first: int, last: int, memory: NDArray[np.uint8]) -> tuple[Array, list[Array]]:
        own = cut(memory, *sizes)
        if whole > _KEPT:  # of a long chain: not kept after the call
            own[2] = np.empty(whole + 64, np.uint8)
            own[2] = own[2][-address(own[2]) % 64 :]
        for packed in own[:2]:  # what pads is never the best
            packed.view(a.dtype)[:] = plan.start
        values = fixed.copy()
        values[:2] = first, last
        values[-3:] = [address(piece) for piece in own]
        return values, own

    return Task(code, part, room_of(*sizes), shape.together)


@functools.lru_cache(maxsize=KEPT)
def viterbi_code(plan: Plan, far: float, shape: Shape) -> Any:
    """The compiled :func:`viterbi_function`."""
    f = (lanes_function if shape.states else viterbi_function)(plan, far, shape)
    return compile_functions([f], host_target()).function(f.name, ctypes.c_void_p)


def viterbi_function(plan: Plan, far: float, shape: Shape) -> Function:
    """Generate ``viterbi(block)``: the best paths of chains of floats; see :func:`viterbi`."""
    f = Function("viterbi", [PTR], opaque=False)
    x = load_block(f, VITERBI)
    n, panels, steps = x["states"], x["panels"], x["steps"]
    algebra = Algebra(f, replace(plan, keep_nan=False))
    t = algebra.compute
    lanes = host_target().vector_bytes // t.size
    vec, width, together, split = t.vector(lanes), shape.width, shape.together, shape.split
    wide = width * lanes  # columns of a panel
    padded = panels * wide
    deep = (n + (split - 1)) // split * split
    start = algebra.start(lanes)
    each = range(together)

    def mask(j: Value) -> Value:
        left = (n - j).to(I32).splat(lanes)
        return f.iota(I32.vector(lanes)).cmp("<", left)

    def in_panels(take: Callable[[Value, Value], None]) -> None:
        """Call with the number of each panel and its first column."""
        if shape.one:
            zero = f.const(0, I64)
            take(zero, zero)
            return
        with f.loop(0, panels) as p:
            take(p, p * wide)

    def operand(base: Value, j: Value, g: int) -> tuple[Value, Value | None]:
        """Vector g of a panel of a row of an operand, and its mask, where it has one."""
        at = base.at((j + g * lanes) * t.size)
        if shape.one and g < width - 1:
            return f.load(at, vec, t.size), None
        inside = mask(j + g * lanes)
        return f.load_masked(at, vec, inside, t.size), inside

    def row(c: int, step: Value) -> Value:
        at: Value = x["rows"].at((steps * c + step) * (padded * t.size))
        return at

    def pack(b: Value) -> None:
        """Columns of the matrix in panels, and its columns as rows."""
        base = x["a"].at(b * x["a_batch"])
        with f.loop(0, n) as j:
            panel, rest = j // wide, j % wide
            with f.loop(0, n) as i:
                entry = f.load(base.at(i * x["a_row"] + j * x["a_col"]), t, t.size)
                f.store(entry, x["down"].at(((panel * deep + i) * wide + rest) * t.size), t.size)
                f.store(entry, x["across"].at((j * padded + i) * t.size), t.size)

    def combine(p: Value, sources: list[Value]) -> list[list[Value]]:
        """⊕_i v[i] ⊗ A[i, j] of each chain for the columns of a panel."""
        sums = [[[f.var(start) for _ in range(width)] for _ in each] for _ in range(split)]
        first = x["down"].at(p * (deep * (wide * t.size)))
        with f.loop(0, deep, split) as i:
            for s in range(split):
                line = first.at((i + s) * (wide * t.size))
                entries = [f.load(line.at(g * lanes * t.size), vec, t.size) for g in range(width)]
                for c in each:
                    own = load_item(f, sources[c], i + s, t).splat(lanes)
                    for total, entry in zip(sums[s][c], entries, strict=True):
                        total.set(algebra.add(total.get(), algebra.mul(own, entry)))
        found = [[[total.get() for total in line] for line in one] for one in sums]
        while len(found) > 1:
            found = [
                [[algebra.add(u, v) for u, v in zip(*lines, strict=True)]
                 for lines in zip(*pair, strict=True)]
                for pair in zip(found[::2], found[1::2], strict=True)
            ]  # fmt: skip
        return found[0]

    def across(v: Value, join: Callable[[Value, Value], Value]) -> Value:
        while v.type.lanes > 2:
            half = v.type.lanes // 2
            v = join(f.shuffle(v, v, range(half)), f.shuffle(v, v, range(half, 2 * half)))
        return join(v[0], v[1])

    def choose(value: Callable[[Value, int], Value]) -> tuple[Value, Value]:
        """The first state of the best value, and this."""
        best = f.var(start)

        def look(p: Value, j: Value) -> None:
            found = [value(j, g) for g in range(width)]
            while len(found) > 1:
                joined = zip(found[::2], found[1::2], strict=False)
                rest = found[-1:] if len(found) % 2 else []
                found = [algebra.add(u, v) for u, v in joined] + rest
            best.set(found[0] if shape.one else algebra.add(best.get(), found[0]))

        in_panels(look)
        top = across(best.get(), algebra.add)
        bits = Type("u", 64)
        chosen = f.var(f.const(1 << 62, I64))

        def find(p: Value, j: Value) -> None:
            wins: Value | None = None
            for g in range(width):
                own = value(j, g).cmp("==", top.splat(lanes)).bits_as(Type("u", lanes)).to(bits)
                wins = own if wins is None else wins | (own << (g * lanes))
            assert wins is not None
            place = f.call("llvm.cttz.i64", bits, [wins, f.const(0, I1)])
            here = f.select(wins.cmp("!=", 0), place.to(I64) + j, f.const(1 << 62, I64))
            chosen.set(f.low(chosen.get(), here))

        in_panels(find)
        return f.low(chosen.get(), n - 1), top  # none is equal to a NaN

    with f.loop(x["first"], x["last"], together) as b0:
        chains = [x["order"][f.low(b0 + c, x["last"] - 1)] for c in each]
        counts = [x["lengths"][b] for b in chains]
        longest = counts[0]
        for count in counts[1:]:
            longest = f.select(count.cmp(">", longest), count, longest)
        with f.if_(b0.cmp("==", x["first"]) | x["a_batch"].cmp("!=", 0)):
            pack(chains[0])
        odd = [f.var(f.const(0, I1.vector(lanes))) for _ in each]

        def put(c: int, to: Value, j: Value, g: int, v: Value, inside: Value | None) -> None:
            v = v if inside is None else f.select(inside, v, start)
            odd[c].set(odd[c].get() | _strange(v, far))
            f.store(v, to.at((j + g * lanes) * t.size), t.size)

        def begin(p: Value, j: Value) -> None:
            for c in each:
                base = x["x"].at(chains[c] * x["x_batch"])
                for g in range(width):
                    put(c, row(c, f.const(0, I64)), j, g, *operand(base, j, g))

        in_panels(begin)
        with f.loop(1, longest) as step:
            # a chain that has ended repeats its last emissions, behind its own rows
            own = [
                _emitted(x, b, f.low(step, count - 1), shape)
                for b, count in zip(chains, counts, strict=True)
            ]
            sources, targets = ([row(c, at) for c in each] for at in (step - 1, step))

            def forward(p: Value, j: Value) -> None:
                for c, sums in enumerate(combine(p, sources)):
                    for g, total in enumerate(sums):
                        emitted, inside = operand(own[c], j, g)
                        put(c, targets[c], j, g, algebra.mul(total, emitted), inside)

            in_panels(forward)
        states: list[Var] = []
        for c, (b, count) in enumerate(zip(chains, counts, strict=True)):
            last, base = row(c, count - 1), x["end"].at(b * x["end_batch"])

            def ended(
                j: Value, g: int, c: int = c, last: Value = last, base: Value = base
            ) -> Value:
                v, inside = operand(base, j, g)
                v = algebra.mul(f.load(last.at((j + g * lanes) * t.size), vec, t.size), v)
                v = v if inside is None else f.select(inside, v, start)
                odd[c].set(odd[c].get() | _strange(v, far))
                return v

            state, top = choose(ended)
            states.append(f.var(state))
            f.store(top, x["score"].at(b * t.size), t.size)
            x["path"][b * x["path_batch"] + count - 1] = state
            seen = odd[c].get().bits_as(Type("u", lanes)).cmp("!=", 0)
            f.store(seen.to(Type("u", 8)), x["odd"].at(b))
        with f.loop(1, longest) as k:
            for c, (b, count) in enumerate(zip(chains, counts, strict=True)):
                there = k.cmp("<", count)  # else its first state once more
                at = f.select(there, count - 1 - k, f.const(0, I64))
                line, before = x["across"].at(states[c].get() * (padded * t.size)), row(c, at)

                def came(j: Value, g: int, line: Value = line, before: Value = before) -> Value:
                    place = (j + g * lanes) * t.size
                    return algebra.mul(
                        f.load(before.at(place), vec, t.size), f.load(line.at(place), vec, t.size)
                    )

                state, _ = choose(came)
                states[c].set(f.select(there, state, states[c].get()))
                x["path"][b * x["path_batch"] + at] = states[c].get()
    return f


def _strange(v: Value, far: float) -> Value:
    """Lanes that are NaN, or an infinity that is not the semiring's zero."""
    if not far:
        return (v - v).cmp("uno", v)
    return v.cmp("uge", math.inf) if far < 0 else v.cmp("ule", -math.inf)


def _emitted(x: dict[str, Any], b: Value, step: Value, shape: Shape) -> Value:
    """Where the emissions of a step of a chain lie."""
    if shape.table:
        place: Value = x["e"].at(x["symbols"][b * x["symbol_batch"] + step] * x["e_step"])
    else:
        place = x["e"].at(b * x["e_batch"] + step * x["e_step"])
    return place


def lanes_function(plan: Plan, far: float, shape: Shape) -> Function:
    """Generate the same for few states: a vector is one state of a sequence in each lane."""
    f = Function("viterbi", [PTR], opaque=False)
    x = load_block(f, VITERBI)
    algebra = Algebra(f, replace(plan, keep_nan=False))
    t, n, lanes = algebra.compute, shape.states, shape.together
    vec, line = t.vector(lanes), lanes * t.size
    index = Type("i", t.bits)
    states, each = range(n), range(lanes)
    filled = f.const(n, I64)

    def columns(bases: list[Value]) -> list[Value]:
        """One state of all chains in a vector, from rows of states."""
        mask = f.below(filled, lanes)
        rows = [
            f.load(base, vec, t.size) if n == lanes else f.load_masked(base, vec, mask, t.size)
            for base in bases
        ]
        return transposed(f, rows)[:n]

    def row(step: Value) -> Value:
        place: Value = x["rows"].at(step * (n * line))
        return place

    def best(values: list[Value]) -> tuple[Value, Value]:
        """The first state of the best value of each lane, and this."""
        found = [(v, f.const(j, index.vector(lanes))) for j, v in enumerate(values)]
        while len(found) > 1:
            joined = []
            for (u, i), (v, j) in zip(found[::2], found[1::2], strict=False):
                wins = algebra.better(v, u)
                joined.append((algebra.add(u, v), f.select(wins, j, i)))
            found = joined + (found[-1:] if len(found) % 2 else [])
        return found[0][1], found[0][0]

    def permuted(v: Value, lane: Value) -> Value:
        name = f"llvm.x86.avx512.permvar.{'sf' if t.bits == 32 else 'df'}.512"
        return f.call(name, vec, [v, lane])

    with f.loop(0, n) as r, f.loop(0, n) as q:
        entry = f.load(x["a"].at(r * x["a_row"] + q * x["a_col"]), t, t.size)
        f.store(entry, x["across"].at(r * line + q * t.size), t.size)
    with f.loop(x["first"], x["last"], lanes) as b0:
        chains = [x["order"][f.low(b0 + lane, x["last"] - 1)] for lane in each]
        counts = [x["lengths"][b] for b in chains]
        longest = shortest = counts[0]
        for count in counts[1:]:
            longest = f.select(count.cmp(">", longest), count, longest)
            shortest = f.low(shortest, count)
        ends = f.stack([count.to(index) for count in counts])
        odd = f.var(f.const(0, I1.vector(lanes)))

        def put(place: Value, j: int, v: Value) -> None:
            odd.set(odd.get() | _strange(v, far))
            f.store(v, place.at(j * line), t.size)

        for s, v in enumerate(columns([x["x"].at(b * x["x_batch"]) for b in chains])):
            put(row(f.const(0, I64)), s, v)

        def forward(step: Value, some: bool) -> None:
            """One step; with `some`, chains that have ended stay as they are."""
            emitted = columns([
                _emitted(x, b, f.low(step, count - 1) if some else step, shape)
                for b, count in zip(chains, counts, strict=True)
            ])  # fmt: skip
            before = [f.load(row(step - 1).at(i * line), vec, t.size) for i in states]
            inside = step.to(index).splat(lanes).cmp("<", ends)
            for j in states:
                total: Value | None = None
                for i in states:
                    own = f.load(x["across"].at(i * line + j * t.size), t, t.size).splat(lanes)
                    term = algebra.mul(before[i], own)
                    total = term if total is None else algebra.add(total, term)
                assert total is not None
                v = algebra.mul(total, emitted[j])
                put(row(step), j, f.select(inside, v, before[j]) if some else v)

        with f.loop(1, shortest) as step:
            forward(step, False)
        with f.loop(f.select(shortest.cmp("<", 1), f.const(1, I64), shortest), longest) as step:
            forward(step, True)
        ending = columns([x["end"].at(b * x["end_batch"]) for b in chains])
        last = [f.load(row(longest - 1).at(j * line), vec, t.size) for j in states]
        values = [algebra.mul(v, w) for v, w in zip(last, ending, strict=True)]
        for v in values:
            odd.set(odd.get() | _strange(v, far))
        found, top = best(values)
        seen = odd.get()
        for lane, (b, count) in enumerate(zip(chains, counts, strict=True)):
            f.store(top[lane], x["score"].at(b * t.size), t.size)
            f.store(seen[lane].to(Type("u", 8)), x["odd"].at(b))
            x["path"][b * x["path_batch"] + count - 1] = found[lane].to(I64)
        state = f.var(found)

        def back(step: Value, some: bool) -> None:
            """The states of a step; with `some`, the last ones of chains that end before it."""
            entries = [f.load(x["across"].at(i * line), vec, t.size) for i in states]
            found, _ = best([
                algebra.mul(
                    f.load(row(step).at(i * line), vec, t.size), permuted(entries[i], state.get())
                )
                for i in states
            ])  # fmt: skip
            if some:
                inside = (step + 1).to(index).splat(lanes).cmp("<", ends)
                found = f.select(inside, found, state.get())
            state.set(found)
            for lane, (b, count) in enumerate(zip(chains, counts, strict=True)):
                at = f.low(step, count - 1) if some else step
                x["path"][b * x["path_batch"] + at] = found[lane].to(I64)

        with f.loop(1, longest - shortest + 1) as k:
            back(longest - 1 - k, True)
        with f.loop(1, shortest) as k:
            back(shortest - 1 - k, False)
    return f
