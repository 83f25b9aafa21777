"""The operations of an elimination on blocks of the matrix, for every executor."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from .. import pool
from ..engine import JOIN, CloseStep, Engine
from ..expressions import evaluate
from ..lazy import cached_property
from ..plan import Facts, Plan, make_plan
from ..progress import Tick, part_of
from ..semirings import Semiring
from .elimination import steps_in_memory
from .paths import NO_PREDECESSOR

__all__ = ["Improves", "Steps", "path_plan"]

Array = Any  # of an engine's library
_ROWS = 1024  # compared at a time: no second matrix
_ENTRIES = 1 << 17  # the same on the host, where threads compare parts that a cache holds


class Improves(Exception):
    """A diagonal entry got better than one: a cycle through this node improves itself."""

    def __init__(self, node: int, value: Any) -> None:
        super().__init__(node, value)
        self.node, self.value = node, value


@dataclass(frozen=True)
class Steps:
    """An elimination's operations on blocks of the matrix; plain data, so that it can travel."""

    s: Semiring
    dtype: np.dtype[Any]  # in which it is computed: ``Weights.wide``
    # ranges that hold for all entries at all times (``Weights.known()``)
    known: tuple[Facts, Facts, Facts] | None
    look: bool  # whether diagonals are to be looked at for a cycle that improves itself
    symmetric: bool = False  # tiles (i, j) with i ≤ j stand for both triangles
    predecessors: bool = False  # each block of D comes with a block of P (int32)

    @cached_property
    def identities(self) -> tuple[Any, Any]:
        """zero and one in ``dtype``."""
        return self.s.identities(self.dtype)

    def begin(self, xp: Any, d: Array, rows: slice, columns: slice) -> Array | None:
        """Join one to the diagonal of D[rows, columns], in place; gives its predecessors.

        `d` is of ``dtype`` already. The slices have both ends.
        """
        own = self.join_one(xp, d, rows, columns)
        if not self.predecessors:
            return None
        p = self.first(xp, d, xp.arange(rows.start, rows.stop, dtype=np.int32))
        p[own] = NO_PREDECESSOR
        return p

    def join_one(self, xp: Any, d: Array, rows: slice, columns: slice) -> tuple[Array, Array]:
        """Join one to the diagonal of D[rows, columns], in place; gives its places in `d`."""
        one = self.identities[1]
        index = xp.arange(max(rows.start, columns.start), min(rows.stop, columns.stop))
        same = rows.start == columns.start == 0
        own = (index, index) if same else (index - rows.start, index - columns.start)
        if index.size:
            loops = xp.diagonal(d, rows.start - columns.start)
            best = {"min": xp.minimum, "max": xp.maximum}.get(self.s.add_kind)
            if best is None or self.dtype.kind not in "iuf":
                host = loops.get() if hasattr(loops, "get") else loops
                d[own] = xp.asarray(evaluate(self.s.add_expr, host, one))
            else:
                d[own] = best(loops, one)
        return own

    def first(self, xp: Any, d: Array, starts: Array) -> Array:
        """Predecessors on single edges: the node of the row, where there is an edge."""
        zero = self.identities[0]
        p = xp.empty(d.shape, np.int32)
        rows = _ROWS if xp is not np else max(1, _ENTRIES // max(1, p.shape[1]))

        def some(i: int) -> None:
            part = slice(i, i + rows)
            p[part] = xp.where(d[part] == zero, np.int32(NO_PREDECESSOR), starts[part, np.newaxis])

        tasks = [functools.partial(some, i) for i in range(0, len(p), rows)]
        if xp is np:
            pool.run(tasks)
        else:
            for task in tasks:
                task()
        return p

    def close(
        self, engine: Engine, d: Array, p: Array | None, first: int = 0, tick: Tick | None = None
    ) -> None:
        """D ← D* for a tile on the diagonal that begins at node `first`; both triangles of it.

        `tick` is told how many pairs have been done.

        Raises
        ------
        Improves
            If a cycle improves itself. (Only then does the host wait for a device.)
        """

        def improves(node: int, value: Any) -> NoReturn:
            raise Improves(first + node, value)

        n, look, half = len(d), 0, self.symmetric and p is None
        if self.look:  # the whole at least
            look = min(1 if self.dtype.kind in "iu" else engine.LOOK, n)
        given = steps_in_memory(n, engine.BASE, engine.LEAF, look, symmetric=half)
        at_once = engine.eliminate if n > engine.LEAF else None
        one = self.identities[1]
        if at_once and at_once(self.s, d, p, given, self.known, one, improves, tick):
            return
        done = 0.0
        for step in given.steps:
            self._do(step, engine, d, p, first, part_of(tick, done, step.pairs))
            done += step.pairs
            if tick is not None and step.pairs:
                tick(done)

    def _do(
        self, step: CloseStep, engine: Engine, d: Array, p: Array | None, first: int,
        on_done: Callable[[float], None] | None,
    ) -> None:  # fmt: skip
        rows, inner, columns = (slice(*x) for x in (step.rows, step.inner, step.columns))
        c, arg = d[rows, columns], None if p is None else p[rows, columns]
        if step.kind == "look":
            self.check(c.diagonal(), range(first + rows.start, first + rows.stop))
        elif step.kind == "mirror":
            engine.mirror(c)
        elif step.kind == "close":
            engine.closure_block(self.s, c, self.known, arg)
        else:
            a = d[inner, rows].T if step.turned == "a" else d[rows, inner]
            b = d[columns, inner].T if step.turned == "b" else d[inner, columns]
            self.update(
                engine, a, b, c, arg, None if p is None else p[inner, columns],
                overlap=step.overlap, triangle=step.triangle, on_done=on_done,
            )  # fmt: skip

    def check(self, values: Array, nodes: Sequence[int] | Array) -> None:
        """Raise Improves if the path from one of some nodes back to itself is better than one."""
        if self.look and (wrong := values != self.identities[1]).any():
            at = int(wrong.argmax())
            raise Improves(int(nodes[at]), self.dtype.type(values[at].item()))

    def row(self, engine: Engine, diagonal: Array, d: Array, p: Array | None) -> None:
        """D ← D[k, k] ⊗ D for blocks of row k."""
        self.update(engine, diagonal, d, d, p, p, overlap="b")

    def column(
        self, engine: Engine, d: Array, diagonal: Array, p: Array | None, p_diagonal: Array | None
    ) -> None:
        """D ← D ⊗ D[k, k] for blocks of column k."""
        self.update(engine, d, diagonal, d, p, p_diagonal, overlap="a")

    def update(
        self, engine: Engine, left: Array, right: Array, d: Array, p: Array | None = None,
        p_right: Array | None = None, **options: Any,
    ) -> None:  # fmt: skip
        """D ← D ⊕ D[i, k] ⊗ D[k, j] for blocks; `options` are those of :meth:`Engine.product`."""
        engine.product(
            self.s, left, right, d, JOIN, arg=p, gather=p_right, known=self.known, **options
        )


def path_plan(steps: Steps, n: int) -> Plan:
    """How labels are computed along paths of up to n edges, whose weights the plan holds."""
    return _path_plan(steps.s, steps.dtype, steps.known, n)


@functools.lru_cache(maxsize=64)
def _path_plan(
    s: Semiring, dtype: np.dtype[Any], known: tuple[Facts, Facts, Facts] | None, n: int
) -> Plan:
    a, b, c = known or (None, None, None)
    plan = replace(make_plan(s, dtype, a, b, n, c=c), check=False)
    return replace(plan, annihilate=True) if plan.codec == "sentinel" else plan
