"""The closure of one small block: Kleene's elimination in the first-level cache."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine import Known
from ..expressions import evaluate
from ..plan import Plan, bytewise, make_plan
from ..semirings import Semiring
from .algebra import Algebra
from .compiler import KEPT, Target, host_target
from .ir import I32, PTR, Function
from .memory import workspace as buffer_of
from .views import HEAD, ArrayView, array_function

__all__ = ["BASE", "closure_batch", "closure_block", "closure_function", "doubtful"]

Array = NDArray[Any]

#: Largest block, in rows.
BASE = 64
_LOOKED_AT = 1 << 18  # entries looked at together


def closure_block(
    semiring: Semiring,
    a: Array,
    known: Known | None,
    predecessors: NDArray[np.int32] | None = None,
) -> None:
    """A ← A* in place for a matrix of at most :data:`BASE` rows with one on its diagonal."""
    fa, fb, fc = known or (None, None, None)
    plan = make_plan(semiring, a.dtype, fa, fb, a.shape[-1], c=fc)
    if plan.codec == "bits":
        plan = bytewise(plan)
    if plan.codec == "sentinel":
        plan = replace(plan, annihilate=True)
    plan = replace(plan, check=False)
    code = _code(plan, predecessors is not None)
    size = 64 + BASE * BASE * (int(plan.compute[1:]) // 8 + 4)
    code(a, buffer_of(size), a if predecessors is None else predecessors)


def closure_batch(
    semiring: Semiring,
    a: Array,
    known: Known | None,
    out: Array,
    predecessors: NDArray[np.int32] | None = None,
) -> bool:
    """Out ← (I ⊕ A)* for a stack of matrices at once, or False: here there is no batched kernel."""
    return False


def doubtful(semiring: Semiring, d: Array, p: NDArray[np.int32]) -> NDArray[np.int64]:
    """Rows of predecessors in which one is not strictly nearer than its node."""
    found, height = [], max(1, _LOOKED_AT // max(1, p.shape[1]))
    for top in range(0, len(p), height):
        marks, far = p[top : top + height], d[top : top + height]
        near = np.take_along_axis(far, np.maximum(marks, 0), 1)
        better = (evaluate(semiring.add_expr, near, far) == near) & (near != far)
        found.append(top + np.flatnonzero(((marks >= 0) & ~better).any(axis=1)))
    return np.concatenate(found) if found else np.empty(0, np.int64)


@functools.lru_cache(maxsize=KEPT)
def _code(plan: Plan, predecessors: bool) -> Any:
    function = closure_function(plan, host_target(), predecessors=predecessors)
    return array_function([function], 3)


def closure_function(plan: Plan, target: Target, *, predecessors: bool) -> Function:
    """Generate ``closure(A, workspace, P)``: A ← A* in place, n ≤ BASE, one on the diagonal.

    For each k, every row i becomes row i ⊕ (A[i, k] ⊗ row k). With predecessors (a selective ⊕),
    P[i, j] takes P[k, j] where an entry strictly improves. Needs an idempotent ⊕ for which
    one ⊕ x = one (no negative cycle): then A[k, k] needs no star of its own.
    """
    f = Function("closure", [PTR] * 3)
    a = ArrayView(f, f.args[0])
    workspace = f.load(f.args[1].at(HEAD), PTR, 8)
    algebra = Algebra(f, plan)
    t, s = algebra.compute, algebra.storage
    lanes = target.vector_bytes // t.size
    n = a.dim(-1)
    width = max(BASE, lanes)
    local = workspace.at(64)
    marks = local.at(BASE * width * t.size)
    p = ArrayView(f, f.args[2]) if predecessors else None
    columns = f.ceil_div(n, lanes) * lanes

    with f.loop(0, n) as i:
        with f.loop(0, columns, lanes) as j:
            f.store(algebra.start(lanes), local.at((i * width + j) * t.size), t.size)
        with f.loop(0, n) as j:
            x = f.load(a.data.at(i * a.stride(-2) + j * a.stride(-1)), s)
            f.store(algebra.decode(x), local.at((i * width + j) * t.size), t.size)
            if p:
                mark = f.load(p.data.at(i * p.stride(-2) + j * p.stride(-1)), I32)
                f.store(mark, marks.at((i * width + j) * 4), 4)
    index = I32.vector(lanes)
    with f.loop(0, n) as k, f.loop(0, n) as i, f.if_(i.cmp("!=", k)):
        x = f.load(local.at((i * width + k) * t.size), t, t.size).splat(lanes)
        with f.loop(0, columns, lanes) as j:
            place = local.at((i * width + j) * t.size)
            old = f.load(place, t.vector(lanes), t.size)
            row = f.load(local.at((k * width + j) * t.size), t.vector(lanes), t.size)
            through = algebra.mul(x, row)
            if p is None:
                f.store(algebra.add(old, through), place, t.size)
            else:
                wins = algebra.better(through, old)
                f.store(f.select(wins, through, old), place, t.size)
                mark = marks.at((i * width + j) * 4)
                new = f.load(marks.at((k * width + j) * 4), index, 4)
                f.store(f.select(wins, new, f.load(mark, index, 4)), mark, 4)
    with f.loop(0, n) as i, f.loop(0, n) as j:
        value, overflow = algebra.encode(f.load(local.at((i * width + j) * t.size), t, t.size))
        f.store(value, a.data.at(i * a.stride(-2) + j * a.stride(-1)))
        if p:
            mark = f.load(marks.at((i * width + j) * 4), I32, 4)
            f.store(mark, p.data.at(i * p.stride(-2) + j * p.stride(-1)))
        assert overflow is None, "a closure's plan covers its whole range"
    return f
