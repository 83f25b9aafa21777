"""The steps of closures beside products: small blocks in the first-level cache, and moves.

Each is a function that the threads of a program call together; see :mod:`semiring_mm.cpu.team`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..engine import Known
from ..memory import workspace
from ..plan import Plan, closure_plan
from ..semirings import Semiring
from .algebra import Algebra
from .compiler import KEPT, Library, Target, compile_functions, compile_kept, host_target, writers
from .ir import I32, I64, PTR, Function, Type, Value, module_text
from .product_code import PARAMS, SQUARE, params_of
from .team import COUNTERS, Team
from .views import HEAD, ArrayView, check_array_layout, function_of_arrays

__all__ = [
    "BASE", "ClosureCode", "closure_batch", "closure_block", "closure_code", "closure_functions",
    "keeping",
]  # fmt: skip

Array = NDArray[Any]

#: Largest block, in rows.
BASE = 64


@dataclass(frozen=True, eq=False)
class ClosureCode:
    """Compiled steps: ``closure`` of a block, ``look`` and ``mirror``."""

    library: Library
    call: Any  # the first of them
    params: Callable[[int], bytes]  # of so many rows on one thread; remembered
    own: int  # bytes that a thread needs for itself

    def address(self, name: str) -> int:
        """Where a function lies."""
        return self.library.address(name)


@functools.lru_cache(maxsize=KEPT)
def closure_code(
    semiring: Semiring, dtype: np.dtype[Any], known: Known | None, depth: int, *, marked: bool
) -> ClosureCode:
    """The code for matrices of up to `depth` rows, with predecessors if they are `marked`."""
    return _code(closure_plan(semiring, dtype, known, depth), marked)


def closure_block(
    semiring: Semiring,
    a: Array,
    known: Known | None,
    predecessors: NDArray[np.int32] | None = None,
) -> None:
    """A ← A* in place for a matrix of at most :data:`BASE` rows with one on its diagonal."""
    code = closure_code(semiring, a.dtype, known, a.shape[-1], marked=predecessors is not None)
    p = a if predecessors is None else predecessors
    code.call(a, a, a, workspace(code.own + COUNTERS), code.params(len(a)), p, p)


def closure_batch(
    semiring: Semiring,
    a: Array,
    known: Known | None,
    out: Array,
    predecessors: NDArray[np.int32] | None = None,
) -> bool:
    """Out ← (I ⊕ A)* for a stack of matrices at once, or False: here there is no batched kernel."""
    return False


@functools.lru_cache(maxsize=KEPT)
def _code(plan: Plan, marked: bool) -> ClosureCode:
    library = compile_kept(
        ["closure", "look", "mirror"],
        (writers("closure", "product_code", "team"), repr((plan, marked, host_target()))),
        lambda: module_text(closure_functions(plan, host_target(), marked=marked)), host_target(),
    )  # fmt: skip
    params = functools.lru_cache(maxsize=BASE)(lambda n: params_of(plan, 0, 0, 0, i1=n))
    call = function_of_arrays(library, "closure")
    return ClosureCode(library, call, params, _own(plan))


def _own(plan: Plan) -> int:
    """Bytes of the rows of a block and of their predecessors."""
    return 64 + BASE * BASE * (plan.computed_in.itemsize + 4)


_keeping: list[Library] = []
_lock = pool.hold_at_fork(threading.Lock())


def keeping() -> Library:
    """The compiled step ``keep``.

    One library, made by one thread: programs have its address, and it is never unloaded.
    """
    with _lock:
        if not _keeping:
            check_array_layout()
            _keeping.append(compile_functions([_keep_function()], host_target()))
        return _keeping[0]


def closure_functions(plan: Plan, target: Target, *, marked: bool) -> list[Function]:
    """Generate ``closure``, ``look`` and ``mirror``, each (A, B, C, workspace, params, K, P)."""
    return [_closure_function(plan, target, marked=marked), _look_function(plan),
            _mirror_function(plan)]  # fmt: skip


class _Call:
    """The arguments of a step; without counters that are shared, they lie behind the workspace.

    `own`: bytes of a workspace.
    """

    def __init__(self, f: Function, own: int = 64) -> None:
        a, _, c, workspace, params, k, p = f.args
        self.a, self.c, self.k, self.p = (ArrayView(f, x) for x in (a, c, k, p))
        self.field = {name: params.at(8 * i) for i, name in enumerate(PARAMS)}
        self.begin, self.end = (f.load(self.field[x], I64, 8) for x in ("i0", "i1"))
        self.workspace = f.load(workspace.at(HEAD), PTR, 8)
        team = f.load(self.field["team"], PTR, 8)
        alone = team.cmp("==", f.pointer(0))
        counters = f.select(alone, self.workspace.at(own), team)
        self.team = Team(f, self.workspace, counters)
        with f.if_(alone):
            self.team.reset()
            self.team.join()


def _entry(view: ArrayView, i: Value, j: Value) -> Value:
    return view.data.at(i * view.stride(-2) + j * view.stride(-1))


def _closure_function(plan: Plan, target: Target, *, marked: bool) -> Function:
    """Generate ``closure``: A ← A* in place for a block on the diagonal with one on its own.

    For each k, every row i becomes row i ⊕ (A[i, k] ⊗ row k). Marked (a selective ⊕), P[i, j] takes
    P[k, j] where an entry strictly improves. Needs an idempotent ⊕ for which one ⊕ x = one (no
    negative cycle): then A[k, k] needs no star of its own.

    Rows are computed in their whole width, so that row k stays in registers while others pass.
    """
    f = Function("closure", [PTR] * 7)
    call = _Call(f, _own(plan))
    algebra = Algebra(f, plan)
    t, s = algebra.compute, algebra.storage
    lanes = target.vector_bytes // t.size
    width = max(BASE, lanes)
    n, local = call.end - call.begin, call.workspace.at(64)
    marks = local.at(BASE * width * t.size)
    vector, index = t.vector(lanes), I32.vector(lanes)
    pieces = range(0, width, lanes)

    def encode(x: Value) -> Value:
        value, overflow = algebra.encode(x)
        assert overflow is None, "a closure's plan covers its whole range"
        return value

    def move(view: ArrayView, near: Value, outer: Type, inner: Type, *, back: bool) -> None:
        """Copy a block to the workspace, or back; whole rows as vectors."""
        numbers = near is local
        straight = view.stride(-1).cmp("==", outer.size) & n.cmp("==", width)

        def entries(far: Value, line: Value, count: int) -> None:
            if back:
                x = f.load(line, inner.vector(count), inner.size)
                f.store(encode(x) if numbers else x, far)
                return
            x = f.load(far, outer.vector(count))
            f.store(algebra.decode(x) if numbers else x, line, inner.size)

        with f.loop(0, n) as i:
            far = _entry(view, call.begin + i, call.begin)
            line = near.at(i * (width * inner.size))
            with f.if_else(straight) as otherwise:
                for at in pieces:
                    entries(far.at(at * outer.size), line.at(at * inner.size), lanes)
                with otherwise():
                    if numbers and not back:
                        for at in pieces:
                            f.store(algebra.start(lanes), line.at(at * t.size), t.size)
                    with f.loop(0, n) as j:
                        entries(far.at(j * view.stride(-1)), line.at(j * inner.size), 1)

    def move_all(*, back: bool) -> None:
        move(call.a, local, s, t, back=back)
        if marked:
            move(call.k, marks, I32, I32, back=back)

    with call.team.loop(f.const(1, I64)):
        move_all(back=False)
        with f.loop(0, n) as k:
            row, mark = local.at(k * (width * t.size)), marks.at(k * (width * 4))
            through = [f.load(row.at(at * t.size), vector, t.size) for at in pieces]
            with f.loop(0, n) as i, f.if_(i.cmp("!=", k)):
                line, own = local.at(i * (width * t.size)), marks.at(i * (width * 4))
                x = f.load(line.at(k * t.size), t, t.size).splat(lanes)
                for at, right in zip(pieces, through, strict=True):
                    place = line.at(at * t.size)
                    old, new = f.load_apart(place, vector, t.size), algebra.mul(x, right)
                    if not marked:
                        f.store(algebra.add(old, new), place, t.size)
                        continue
                    wins = algebra.better(new, old)
                    f.store(f.select(wins, new, old), place, t.size)
                    both = (f.load_apart(y.at(at * 4), index, 4) for y in (mark, own))
                    f.store(f.select(wins, *both), own.at(at * 4), 4)
        move_all(back=True)
    return f


def _look_function(plan: Plan) -> Function:
    """Generate ``look``: stop at the first entry of a block's diagonal that is not ``least``."""
    f = Function("look", [PTR] * 7)
    call, algebra = _Call(f), Algebra(f, plan)
    one = algebra.decode(f.load(call.field["least"], algebra.storage))
    with call.team.loop(f.const(1, I64)):
        i = f.var(call.begin)
        with f.while_() as looked:
            f.break_if(i.get().cmp(">=", call.end), looked)
            place = _entry(call.a, i.get(), i.get())
            differs = algebra.decode(f.load(place, algebra.storage)).cmp("!=", one)
            with f.if_(differs):
                value = f.alloca(I64)
                f.store(f.load(place, algebra.storage), value)
                call.team.stop(i.get(), f.load(value, I64, 8))
            f.break_if(differs, looked)
            i.set(i.get() + 1)
    return f


#: Squares that are mirrored together.
_STRETCH = 4


def _mirror_function(plan: Plan) -> Function:
    """Generate ``mirror``: what is above the squares on a block's diagonal is copied below."""
    f = Function("mirror", [PTR] * 7)
    call, s = _Call(f), Algebra(f, plan).storage
    item = Type("u", 8 * s.size)
    squares = f.ceil_div(call.end - call.begin, SQUARE)
    across = f.ceil_div(squares, _STRETCH)
    with call.team.loop(squares * across) as piece:
        top = call.begin + piece // across * SQUARE
        left = call.begin + piece % across * (SQUARE * _STRETCH)
        after = top + SQUARE
        first = f.select(left.cmp(">", after), left, after)
        end = f.low(left + SQUARE * _STRETCH, call.end)
        with (
            f.loop(first, end, 8) as near,
            f.loop(top, f.low(after, call.end)) as i,
            f.loop(near, f.low(near + 8, end)) as j,
        ):
            f.store(f.load(_entry(call.a, i, j), item), _entry(call.a, j, i))
    return f


def _keep_function() -> Function:
    """Generate ``keep``: a block of K is copied to P, from its first entry on."""
    f = Function("keep", [PTR] * 7)
    call = _Call(f)
    left, right = (f.load(call.field[x], I64, 8) for x in ("j0", "j1"))
    with call.team.loop(call.end - call.begin) as i, f.loop(left, right) as j:
        x = f.load(_entry(call.k, call.begin + i, j), I32)
        f.store(x, _entry(call.p, i, j - left))
    return f
