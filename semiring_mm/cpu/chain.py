"""Chains of products on NumPy arrays: what is computed, by how many threads, in which memory."""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..expressions import joins_logarithms, may_be_nan
from ..memory import scratch, workspace
from ..plan import Plan, can_use_fma, make_step_plan, needs_facts, overflow, unseen_plan
from ..semirings import Semiring, semirings
from . import team
from .codegen import compiled
from .compiler import KEPT, host_target
from .facts import facts
from .forward_backward import forward_backward
from .kernels import chains as kernels
from .logsum import RANGES
from .product import product
from .viterbi import Task, viterbi

__all__ = [
    "POINTERS", "Model", "best_path", "best_paths", "carry", "draw", "first", "posterior",
]  # fmt: skip

Array = NDArray[Any]
Lengths = NDArray[np.int64]

_WIDE = 96  # states from which several rows are faster multiplied by blocks for the caches
_ROWS = 4  # rows that repay the exponentials of a matrix
_TOGETHER = 4  # chains that go on together
_LINEAR = 4  # pairs over plus_times in the time of one
_SMALL = 1 << 16  # pairs that one thread has done before a second has begun
_BEGINNING = 1 << 18  # pairs in the time that the interpreter takes to begin on a thread
_PIECE = 1 << 22  # pairs that repay handing them to a thread, which has to wait for the interpreter
_LONG = 1 << 32  # pairs in a call, between which Ctrl-C is seen; one chain may take more
POINTERS: tuple[str, ...] = ()
Model = None  # there are no launches
_BUFFER = 1 << 20  # bytes of rows that are kept for the way back, and stay in the cache


def carry(
    semiring: Semiring,
    a: Array,
    e: Array | None,
    x: Array | None,
    y: Array,
    lengths: Lengths,
    *,
    every: bool,
    reverse: bool,
    exclusive: bool,
    levels: Array | None = None,
) -> None:
    """Rows through chains of matrices; see :meth:`semiring_mm.engine.Chains.carry`.

    With `levels` (batch, steps), which receives it, the largest is taken from each row.
    """
    n, rows = a.shape[-1], y.shape[-2]
    plan = _plan(semiring, a, n, e, reverse=reverse)
    if plan is None or (rows >= _ROWS and n >= _WIDE):
        _by_products(semiring, plan, a, e, x, y, lengths, every, reverse, exclusive)
        return
    shared = a.strides[1] == 0
    quick, far = _needs_no_care(semiring, plan, a) if shared else (False, 0.0)
    if reverse:
        a = a.swapaxes(2, 3)
    turned = a.strides[3] != a.itemsize and a.strides[2] == a.itemsize
    a = a.swapaxes(2, 3) if turned else a
    if a.strides[3] != a.itemsize:
        a = _contiguous(a)
    size, logs = plan.computed_in.itemsize, 0
    if joins_logarithms(plan.add):
        powers = shifts(plan) and (shared or rows >= _ROWS)
        logs = kernels.POWERS if powers else kernels.TERMS
    lanes = host_target().vector_bytes // size
    panels = -(-n // lanes)
    together = _TOGETHER if shared and a.strides[0] == 0 else 1
    r = RANGES.get(8 * size)
    call = compiled(kernels.carry, plan, plan.start)
    fixed = {
        "n": n, "panels": panels, "skip": exclusive, "every": every, "own": a.strides[0] != 0,
        "together": together, "W": lanes, "reverse": reverse, "turned": turned, "shared": shared,
        "quick": quick, "far": far, "swapped": reverse and not semiring.commutes,
        "whole": plan.compute[0] in "iu" and plan.codec in ("plain", "sentinel"), "logs": logs,
        "levelled": shifts(plan), "lift": r.lift if r and logs else 0,
        "least": r.least if r and logs else 0, "enough": r.sum_from(1) if r and logs else 0,
        "scale": 2.0 ** (-2 * r.lift) if r and logs else 0,
        "lengths": lengths, "a": a, "e": e, "levels": levels,
    }  # fmt: skip

    def part(b0: int, b1: int, r0: int, r1: int) -> None:
        count, line = r1 - r0, panels * lanes
        shapes = [
            (panels, n, lanes), (panels if logs == kernels.POWERS else 0, n, lanes),
            (line,), (2, together * count, line), (line,),
        ]  # fmt: skip
        flags, offsets, *rest = scratch(
            8, 8 * together * count, *(size * math.prod(shape) for shape in shapes)
        )
        packed, powers, tops, carried, weights = (
            np.ndarray(shape, plan.computed_in, room)
            for shape, room in zip(shapes, rest, strict=True)
        )
        flags[:] = 0
        call(
            **fixed, begin=b0, stop=b1, row0=r0, rows=count, flags=flags, packed=packed,
            powers=powers, tops=tops, carried=carried, weights=weights,
            offsets=offsets.view(np.float64), y=y[:, :, r0:], x=None if x is None else x[:, r0:],
        )  # fmt: skip
        if flags[0]:
            raise overflow(semiring, y.dtype)

    _split(part, lengths, rows, rows * n * n)


def shifts(plan: Plan) -> bool:
    """Whether rows are carried by exponentials: see :mod:`semiring_mm.cpu.logsum`."""
    return joins_logarithms(plan.add) and can_use_fma(plan)


def _contiguous(a: Array) -> Array:
    """Matrices with contiguous rows; those that are repeated are copied once."""
    once = a[tuple(slice(None) if stride else slice(1) for stride in a.strides[:2])]
    return np.broadcast_to(np.ascontiguousarray(once), a.shape)


def _split(
    part: Callable[[int, int, int, int], None], lengths: Lengths, rows: int, pairs: int
) -> None:
    """Chains over the threads; `pairs` are a step's."""
    pieces = _pieces(lengths, rows, pairs, 1)
    pool.run([functools.partial(part, *piece) for piece in pieces])


def _pieces(
    lengths: Lengths, rows: int, pairs: int, together: int
) -> list[tuple[int, int, int, int]]:
    """Chains by their lengths, or the rows of few chains: first and last of both."""
    batch, steps = len(lengths), int(lengths.sum())
    work = steps * pairs
    workers = _workers(work)
    if workers == 1 and work <= _LONG:
        return [(0, batch, 0, rows)] if batch else []
    by_rows = batch < 2 * workers and rows >= workers
    several = max(1, min(4, work // (_PIECE * workers)), work // (_LONG * workers))
    pieces = min(rows, workers) if by_rows else several * workers
    if by_rows:
        cuts = np.linspace(0, rows, pieces + 1).astype(int).tolist()
    else:
        shares = np.arange(1, pieces) * (steps / pieces) + 0.5
        ends = np.searchsorted(np.cumsum(lengths), shares)
        cuts = [0, *np.minimum(-(-ends // together) * together, batch).tolist(), batch]
    return [
        (0, batch, i, j) if by_rows else (i, j, 0, rows)
        for i, j in itertools.pairwise(cuts)
        if i < j
    ]


def _workers(pairs: int) -> int:
    """Threads for so many pairs; each begins a while after the one before."""
    most = max(2, math.isqrt(pairs // _BEGINNING))
    return 1 if pairs < _SMALL else min(most, pool.get_num_threads())


def _plan(
    semiring: Semiring, a: Array, n: int, e: Array | None = None, *, reverse: bool = False
) -> Plan | None:
    """How a step is computed whatever is carried; None: the range of integers must be watched."""
    dtype = a.dtype
    if dtype.kind in "iu" and needs_facts(semiring, dtype):
        try:
            known = (facts(semiring, v) for v in (a, e) if v is not None)
            return make_step_plan(semiring, dtype, known, n, reverse=reverse)
        except OverflowError:
            return None
    return unseen_plan(semiring, dtype, n if dtype.kind in "iu" else 1, nan=True)


def _needs_no_care(semiring: Semiring, plan: Plan, a: Array) -> tuple[bool, float]:
    """Whether rows of finite numbers and infinite zeros meet no NaN, and which infinity that is."""
    if plan.compute[0] != "f" or not semiring.selective:
        return False, 0.0
    return _meets_no_nan(
        semiring, facts(semiring, a[:1, 0] if a.strides[0] == 0 else a[:, 0]).kinds()
    )


@functools.lru_cache(maxsize=KEPT)
def _meets_no_nan(semiring: Semiring, kinds: frozenset[str]) -> tuple[bool, float]:
    """The same for a matrix with entries of these kinds."""
    far = semiring.zero if math.isinf(semiring.zero) else 0.0
    usual = {"-", "0", "+"} | ({"-inf" if far < 0 else "+inf"} if far else set())
    rows = frozenset(usual)
    care = "nan" in kinds or may_be_nan(semiring.mul_expr, rows, kinds)
    return not care and not may_be_nan(semiring.mul_expr, kinds, rows), far


def _by_products(
    semiring: Semiring, plan: Plan | None, a: Array, e: Array | None, x: Array | None, y: Array,
    lengths: Lengths, every: bool, reverse: bool, exclusive: bool,
) -> None:  # fmt: skip
    """The same one product after the other, by blocks for the caches and with watched integers."""
    dtype = a.dtype if plan is None or plan.compute != "f32" else np.dtype(np.float32)
    lowered = plan is not None and shifts(plan)
    for b, length in enumerate(lengths.tolist()):
        now = None if x is None else x[b].astype(dtype, copy=False)
        gone: Any = 0
        for step in range(length - exclusive):
            at = length - 1 - step if reverse else step
            matrix = a[b, at].astype(dtype, copy=False)
            own = None if e is None else e[b, at].astype(dtype, copy=False)
            if now is None:
                now = matrix if own is None else _scaled(semiring, matrix, own)
                now = now.T if reverse else now
            else:
                if reverse and own is not None:
                    now = _scaled(semiring, now.T, own, left=True).T
                then = np.empty(now.shape, dtype)
                if reverse:
                    product(semiring, matrix, now.T, then.T)
                else:
                    product(semiring, now, matrix, then)
                now = then
                if not reverse and own is not None:
                    now = _scaled(semiring, now, own)
            if every or step == length - exclusive - 1:
                place = (at - exclusive if reverse else at + exclusive) if every else 0
                y[b, place] = now + gone if lowered else now
            if lowered:  # so that rows are as exact behind many steps as behind one
                top = now.max(axis=1, keepdims=True)
                top[~np.isfinite(top)] = 0
                now, gone = now - top, gone + top.astype(np.float64)


def _scaled(semiring: Semiring, x: Array, e: Array, *, left: bool = False) -> Array:
    """The entries of each column ⊗ one number; with `left` that number ⊗ those of each row."""
    out = np.empty(x.shape, x.dtype)
    numbers = e[:, np.newaxis, np.newaxis]
    if left:
        product(semiring, numbers, x[:, np.newaxis], out[:, np.newaxis])
    else:
        product(semiring, x.T[:, :, np.newaxis], numbers, out.T[:, :, np.newaxis])
    return out


def first(start: Array, e: Array) -> Array:
    """See :meth:`semiring_mm.engine.Chains.first`."""
    return start + e


def best_path(
    semiring: Semiring,
    a: Array,
    e: Array,
    x: Array,
    end: Array,
    path: NDArray[np.int32],
    score: Array,
    lengths: Lengths,
    *,
    symbols: NDArray[np.int64] | None = None,
) -> None:
    """The best sequence of states; see :meth:`semiring_mm.engine.Chains.best_path`."""
    plan = _plan(semiring, a, a.shape[-1])
    assert plan is not None
    if a.shape[1] and a.strides[1] == 0:
        quick, far = _needs_no_care(semiring, plan, a)
        if quick:
            make = functools.partial(
                viterbi, plan, far, a, e, x, end, path, score, lengths, symbols
            )  # fmt: skip
            some = np.flatnonzero(_by_task(make, lengths, a.shape[-1] ** 2))
            if some.size:
                paths, scores = path[some], score[some]
                model = _some(a, e, x, end, symbols, some)
                _carefully(plan, semiring, *model, paths, scores, lengths[some])
                path[some], score[some] = paths, scores
            return
    e = e if symbols is None else e[symbols]
    _carefully(plan, semiring, a, e, x, end, path, score, lengths)


def _some(
    a: Array, e: Array, x: Array, end: Array, symbols: NDArray[np.int64] | None,
    some: NDArray[np.intp],
) -> tuple[Array, Array, Array, Array]:  # fmt: skip
    """The model of some chains whose steps share a matrix, as they still do."""
    own = a[:1, :1] if a.strides[0] == 0 else np.ascontiguousarray(a[some, :1])
    e, x, end = (
        np.ascontiguousarray(v)  # an index may leave axes in another order
        for v in (e[some] if symbols is None else e[symbols[some]], x[some], end[some])
    )
    return np.broadcast_to(own, (len(some), *a.shape[1:])), e, x, end


def _by_length(lengths: Lengths) -> Lengths:
    """The chains that have steps, those of about one length beside each other."""
    order = np.flatnonzero(lengths)
    return order[np.argsort(-lengths[order], kind="stable")] if len(order) > 1 else order


def _by_task(
    make: Callable[[Lengths, NDArray[np.uint8], int], Task], lengths: Lengths, pairs: int
) -> NDArray[np.uint8]:
    """Compute chains by a task; where results are to be computed in another way. `pairs`: a step's.

    `make` is given the order of the chains, what to mark, and the threads.
    """
    order, odd = _by_length(lengths), np.zeros(len(lengths), np.uint8)
    workers = _workers(int(lengths.sum()) * pairs)
    task = make(order, odd, workers)
    pieces = _pieces(lengths[order], 1, pairs, task.together)
    with team.lease(min(workers, len(pieces)) - 1) as leased:
        memories = [workspace(task.room, worker) for worker in (None, *leased)]
        for first in range(0, len(pieces), len(memories)):
            calls = [
                task.bind(i, j, memory)
                for (i, j, *_), memory in zip(pieces[first:], memories, strict=False)
            ]
            rows = [(call.block,) for call in calls]
            team.call_each(calls[0].code, rows, leased)
    return odd


def _carefully(
    plan: Plan, semiring: Semiring, a: Array, e: Array, x: Array, end: Array,
    path: NDArray[np.int32], score: Array, lengths: Lengths,
) -> None:  # fmt: skip
    """The same with a NaN kept, and for matrices that differ from step to step."""

    def part(first: int, last: int, rows: Array) -> None:
        _back(plan, a, end, path, lengths, rows, first, last, score=score)

    _each_block(semiring, a, e, x, lengths, part)


def best_paths(
    semiring: Semiring, a: Array, e: Array, x: Array, end: Array, paths: Array, scores: Array,
    lengths: Lengths,
) -> None:  # fmt: skip
    """The k best sequences of states; see :meth:`semiring_mm.engine.Chains.best_paths`.

    All sequences not yet found are in disjoint sets: sequences that end in a state at a step and go
    on as a known one does. The best of a set is a best beginning and that rest.
    """
    chains, k, steps = paths.shape
    states = e.shape[2]
    rows = np.empty(e.shape, e.dtype)
    _rows(semiring, a, e, x, lengths, rows)
    #: of each sequence: (-score, number of the set, step, state, place of the rest)
    sets: list[list[tuple[float, int, int, int, int]]] = [[] for _ in range(chains)]
    number = itertools.count()

    def add(b: int, step: int, values: Array, rest: int) -> None:
        """The most promising of some sets, (steps, states); only k can be of use."""
        order = np.where(np.isnan(values), np.inf, values).ravel()
        some = np.argpartition(-order, k - 1)[:k] if order.size > k else np.arange(order.size)
        for i in some[order[some] > -np.inf].tolist():
            at, state = divmod(i, states)
            heapq.heappush(sets[b], (-float(order[i]), next(number), step + at, state, rest))

    for b in np.flatnonzero(lengths).tolist():
        n = int(lengths[b])
        add(b, n - 1, rows[b, n - 1 : n] + end[b], 0)
    for found in range(k):
        ends = np.full((chains, states), -np.inf, e.dtype)
        counts, chosen = np.zeros(chains, np.int64), {}
        for b in range(chains):
            if sets[b]:
                _, _, step, state, rest = chosen[b] = heapq.heappop(sets[b])
                ends[b, state], counts[b] = 0, step + 1
                paths[b, found, step:] = paths[b, rest, step:]
        path, unused = np.full((chains, steps), -1, np.int32), np.empty(chains, e.dtype)
        if chosen:
            best_path(semiring, a, e, x, ends, path, unused, counts)
        for b, (_, _, step, state, _) in chosen.items():
            n = int(lengths[b])
            paths[b, found, :step], paths[b, found, step] = path[b, :step], state
            y, t = paths[b, found, :n], np.arange(n - 1)
            moves, own = a[b, t, y[:-1], y[1:]], e[b, t + 1, y[1:]]
            # one after the other, as the scores of the best are
            terms = [x[b, y[:1]], np.stack([moves, own], 1).ravel(), end[b, y[-1:]]]
            scores[b, found] = np.cumsum(np.concatenate(terms))[-1]
            rest = np.cumsum((moves + own)[::-1])[::-1] - moves + end[b, y[-1]]
            values = rows[b, :step] + a[b, t[:step], :, y[1 : step + 1]] + rest[:step, np.newaxis]
            values[t[:step], y[:step]] = -np.inf  # the one that was found
            add(b, 0, values, found)


def draw(
    a: Array, e: Array, x: Array, end: Array, uniforms: Array, paths: NDArray[np.int32],
    lengths: Lengths,
) -> None:  # fmt: skip
    """Sequences of states with their probabilities; see :meth:`semiring_mm.engine.Chains.draw`."""
    plan = _plan(semirings["max_plus"], a, a.shape[-1])
    assert plan is not None
    score = np.empty(len(lengths), a.dtype)

    def part(first: int, last: int, rows: Array) -> None:
        for uniform, path in zip(uniforms, paths, strict=True):
            _back(
                plan, a, end, path, lengths, rows, first, last, score=score, uniform=uniform,
                draws=True,
            )  # fmt: skip

    _each_block(semirings["log_plus"], a, e, x, lengths, part)


def posterior(
    a: Array, e: Array, x: Array, end: Array, total: Array, out: Array | None,
    pairs: Array | None, lengths: Lengths, *, symbols: NDArray[np.int64] | None = None,
) -> None:  # fmt: skip
    """Probabilities of states and pairs; see :meth:`semiring_mm.engine.Chains.posterior`."""
    each = pairs is not None and pairs.shape[1] > 1  # pairs of each step
    if each or not (a.shape[1] and a.strides[1] == 0):
        e = e if symbols is None else e[symbols]
        _posterior_in_logarithms(a, e, x, end, total, out, pairs, lengths)
        return
    if symbols is not None and len(e) > symbols.size:
        e, symbols = e[symbols], None
    sums = np.zeros(len(lengths))
    make = functools.partial(forward_backward, a, e, x, end, sums, out, pairs, lengths, symbols)
    odd = _by_task(make, lengths, a.shape[-1] ** 2 // _LINEAR)
    np.copyto(total, sums, where=lengths > 0, casting="same_kind")
    some = np.flatnonzero((odd != 0) & (lengths > 0))
    if not some.size:
        return
    found = total[some], None if out is None else out[some], None if pairs is None else pairs[some]
    _posterior_in_logarithms(*_some(a, e, x, end, symbols, some), *found, lengths[some])
    for result, own in zip((total, out, pairs), found, strict=True):
        if result is not None:
            result[some] = own


def _posterior_in_logarithms(
    a: Array, e: Array, x: Array, end: Array, total: Array, out: Array | None,
    pairs: Array | None, lengths: Lengths,
) -> None:  # fmt: skip
    """The same for any numbers, and for matrices that differ from step to step."""
    log_plus, n = semirings["log_plus"], a.shape[-1]
    levels, unused = np.zeros((2, *e.shape[:2]), e.dtype)
    if out is None:
        last = x[:, np.newaxis, np.newaxis].copy()
        if e.shape[1] > 1:
            carry(
                log_plus, a, e[:, 1:], x[:, np.newaxis], last, np.maximum(lengths - 1, 0),
                every=False, reverse=False, exclusive=False, levels=levels[:, 1:],
            )  # fmt: skip
        with np.errstate(invalid="ignore"):  # a NaN is seen in the result
            found = np.logaddexp.reduce(last[:, 0, 0] + end.astype(np.float64), axis=1)
        found += levels.sum(axis=1, dtype=np.float64)
        np.copyto(total, found, where=lengths > 0, casting="same_kind")
        return
    plan = _plan(log_plus, a, n)
    assert plan is not None
    call = compiled(kernels.posterior, plan, plan.start)
    a = a if a.strides[3] == a.itemsize else _contiguous(a)

    def backward(first: int, last: int) -> Array:
        some = slice(first, last)
        behind = np.empty((last - first, *e.shape[1:]), e.dtype)
        ends = np.maximum(lengths[some] - 1, 0)
        behind[np.arange(last - first), ends] = end[some]
        if e.shape[1] > 1:
            carry(
                log_plus, a[some], e[some, 1:], end[some, np.newaxis], behind[:, :, np.newaxis],
                ends, every=True, reverse=True, exclusive=False, levels=unused[some],
            )  # fmt: skip
        return behind

    def part(first: int, last: int, rows: Array, behind: Array | None = None) -> None:
        behind = backward(first, last) if behind is None else behind
        column, sums = (x.view(a.dtype) for x in scratch(n * a.itemsize, n * n * a.itemsize))
        sums[:] = 0
        call(
            begin=first, stop=last, n=n, lengths=lengths, a=a, e=e, forward=rows, backward=behind,
            end=end, total=total, out=out, pairs=pairs, column=column, levels=levels,
            every=pairs is not None and pairs.shape[1] > 1, sums=sums.reshape(n, n),
        )  # fmt: skip

    batch = len(lengths)
    if batch < _workers(int(lengths.sum()) * n * n):  # one way on a thread, one on another
        rows, behind = np.empty((batch, *e.shape[1:]), e.dtype), []
        pool.run([
            lambda: _rows(log_plus, a, e, x, lengths, rows, levels),
            lambda: behind.append(backward(0, batch)),
        ])  # fmt: skip
        part(0, batch, rows, behind[0])
    else:
        _each_block(log_plus, a, e, x, lengths, part, levels)
    total += levels.sum(axis=1, dtype=np.float64)


def _rows(
    semiring: Semiring, a: Array, e: Array, x: Array, lengths: Lengths, rows: Array,
    levels: Array | None = None,
) -> None:  # fmt: skip
    """What is carried, after each step, in `rows` (chains, steps, states)."""
    rows[:, 0] = x
    if e.shape[1] > 1:
        carry(
            semiring, a, e[:, 1:], x[:, np.newaxis], rows[:, 1:, np.newaxis],
            np.maximum(lengths - 1, 0), every=True, reverse=False, exclusive=False,
            levels=None if levels is None else levels[:, 1:],
        )  # fmt: skip


def _each_block(
    semiring: Semiring, a: Array, e: Array, x: Array, lengths: Lengths,
    part: Callable[[int, int, Array], None], levels: Array | None = None,
) -> None:  # fmt: skip
    """Call ``part(first, last, rows)`` for some chains at a time, with the rows of all steps."""
    _, steps, n = e.shape
    most = max(1, _BUFFER // (steps * n * e.itemsize))

    def several(first: int, last: int, *_: int) -> None:
        with pool.limited(1):  # the blocks are what is spread: chains of one go on together
            blocks(first, last)

    def blocks(first: int, last: int) -> None:
        rows = np.empty((min(most, last - first), steps, n), e.dtype)
        for i in range(first, last, most):
            j = min(last, i + most)
            some, here = slice(i, j), rows[: j - i]
            _rows(
                semiring, a[some], e[some], x[some], lengths[some], here,
                None if levels is None else levels[some],
            )  # fmt: skip
            part(i, j, here)

    _split(several, lengths, 1, n * n)


def _back(
    plan: Plan, a: Array, end: Array, path: NDArray[np.int32], lengths: Lengths, rows: Array,
    first: int, last: int, *, score: Array, uniform: Array | None = None, draws: bool = False,
) -> None:  # fmt: skip
    """The compiled way back through the rows of some chains."""
    n, size, shared = a.shape[-1], a.itemsize, a.strides[1] == 0
    lanes = host_target().vector_bytes // size
    padded = -(-n // lanes) * lanes
    packed, column = (
        x.view(a.dtype) for x in scratch((n if shared else 1) * n * size, padded * size)
    )
    compiled(kernels.paths, plan, plan.start)(
        begin=first, stop=last, n=n, padded=padded, own=a.strides[0] != 0, shared=shared,
        draws=draws, lengths=lengths, a=a if a.strides[3] == size else _contiguous(a), rows=rows,
        end=end, uniform=uniform, path=path, score=score, packed=packed.reshape(-1, n),
        column=column,
    )  # fmt: skip
