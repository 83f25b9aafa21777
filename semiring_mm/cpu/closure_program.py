"""The steps of a closure as one program: all in compiled code, on all threads at once.

A closure of 1,024 rows has a hundred small products, which take less time than it takes to call
them. So they are one program: threads are woken once, and no step waits for Python.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..engine import JOIN, CloseSteps, Known
from ..plan import Plan, needs_facts
from ..semirings import Semiring
from .closure import ClosureCode, closure_code
from .product import Cutter, Program, Step, choose, coarse, program_of, team_of
from .product_code import ProductCode
from .team import stopped

__all__ = ["eliminate"]

Array = NDArray[Any]


def eliminate(
    semiring: Semiring, d: Array, p: NDArray[np.int32] | None, steps: CloseSteps,
    known: Known | None, one: Any, improves: Callable[[int, Any], NoReturn],
    tick: Callable[[float], None] | None,
) -> bool:  # fmt: skip
    """Do the steps of a closure; see :class:`semiring_mm.engine.Engine`."""
    if known is None and needs_facts(semiring, d.dtype):  # of what each product is given
        return False
    n, marked = len(d), p is not None
    plan, code = choose(semiring, d.dtype, *coarse(known, d.dtype), n, JOIN, marked, n)
    ends = closure_code(semiring, d.dtype, known, n, marked=marked)
    team = team_of(code, float(n) ** 3 / code.unit)
    marks = d if p is None else p
    program = _program(
        plan, code, ends, steps, team, d.strides, marks.strides, marked,
        int.from_bytes(np.asarray(one, d.dtype).tobytes(), "little", signed=True),
    )  # fmt: skip
    shared = program.run(
        semiring,
        code,
        (d, d, d, marks, marks),
        team,
        None if tick is None else (lambda part: tick(part * steps.pairs)),
    )
    found = stopped(shared)
    if found is not None:
        node, value = found
        improves(node, value[: d.itemsize].view(d.dtype)[0])
    return True


@functools.lru_cache(maxsize=16)
def _program(
    plan: Plan, code: ProductCode, ends: ClosureCode, steps: CloseSteps, team: int,
    strides: tuple[int, ...], mark_strides: tuple[int, ...], marked: bool, one: int,
) -> Program:  # fmt: skip
    common = {"mode": JOIN.mode, "batch": 1, "least": one}
    cutter = Cutter(plan, code, team, common, (strides, strides, mark_strides), marked, marked)
    found = []
    for step in steps.steps:
        if step.kind == "product":
            found += cutter.product(
                step.rows, step.inner, step.columns, step.overlap, step.turned,
                triangle=step.triangle,
            )  # fmt: skip
        else:
            name = {"close": "closure"}.get(step.kind, step.kind)
            lines = dict(zip(("i0", "i1"), step.rows, strict=True))
            found.append(Step(ends.address(name), {**common, **lines}, step.pairs))
    return program_of(plan, max(code.own(arg=marked), ends.own), found)
