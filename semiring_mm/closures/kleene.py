"""The closure A* = I ⊕ A ⊕ A² ⊕ …, in place, by divide and conquer.

For a matrix in four blocks Kleene's elimination is eight steps, six of them block products in
place, so that n³ pairs run at the product's speed with most of them in the largest products:

    A11 ← A11*            A12 ← A11 A12          A21 ← A21 A11         A22 ← A22 ⊕ A21 A12
    A22 ← A22*            A21 ← A22 A21          A12 ← A12 A22         A11 ← A11 ⊕ A12 A21

This is blocked Floyd-Warshall with blocks of every size at once (Park, Penner and Prasanna, 2004;
R-Kleene: D'Alberto and Nicolau, 2007). Of a symmetric matrix only blocks on and above the diagonal
are computed: half the work.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from ..engine import JOIN, CloseStep, CloseSteps, Engine
from ..plan import Facts
from ..semirings import Semiring

__all__ = ["Closure", "elimination"]

Array = Any  # of the engine's library
Known = tuple[Facts, Facts, Facts]


@functools.lru_cache(maxsize=16)
def elimination(n: int, base: int, leaf: int, look: int, *, symmetric: bool) -> CloseSteps:
    """The steps of the closure of n rows, which is divided after multiples of `base` rows.

    Blocks of up to `leaf` rows are closed at once, and the diagonals of those of `look` rows and
    more are looked at; 0: of none.
    """

    def on(kind: str, lines: tuple[int, int]) -> CloseStep:
        return CloseStep(kind, lines, lines, lines)

    def close(lo: int, hi: int) -> Iterator[CloseStep]:
        whole, size = (lo, hi), hi - lo
        looks = [on("look", whole)] if 0 < look <= size else []
        if size <= leaf:
            if symmetric and size > base:  # of which products compute the upper triangle
                yield on("mirror", whole)
            yield from [*looks, on("close", whole), *looks]
            return
        mid = lo + -(-size // (2 * base)) * base
        first, second = (lo, mid), (mid, hi)
        for one, other in ((first, second), (second, first)):
            yield from close(*one)
            if symmetric:  # one of the two blocks beside the diagonal stands for both
                yield on("mirror", one)
                yield CloseStep("product", first, one, second)
            else:
                yield CloseStep("product", one, one, other)
                yield CloseStep("product", other, one, one)
            yield CloseStep("product", other, one, other, symmetric)
        yield from looks

    steps = list(close(0, n))
    if symmetric:
        steps.append(on("mirror", (0, n)))
    return CloseSteps(tuple(steps))


class Closure:
    """One run of the elimination.

    Parameters
    ----------
    engine : module
    semiring : Semiring
        With an idempotent ⊕.
    known : tuple of Facts, optional
        Ranges that hold for all entries at all times.
    one : scalar
        The value that the diagonal has and must keep.
    look : int
        Rows of the smallest block whose diagonal is looked at on the way; 0 where no cycle can
        improve itself, so that there is nothing to look for.
    improved : callable
        Told (first node of the block, its diagonal) when an entry of the diagonal is better than
        one: a cycle that improves itself. Raises.
    tick : callable, optional
        Told how many pairs have been done.
    """

    def __init__(
        self,
        engine: Engine,
        semiring: Semiring,
        known: Known | None,
        one: Any,
        look: int,
        improved: Callable[[int, Array], NoReturn],
        tick: Callable[[float], None] | None = None,
    ) -> None:
        self.engine, self.semiring, self.known = engine, semiring, known
        self.one, self.look = one, look
        self.improved, self.tick = improved, tick

    def run(self, d: Array, p: Array | None = None, *, symmetric: bool = False) -> None:
        """Close `d` in place, carrying predecessors in `p`."""
        engine, n = self.engine, d.shape[0]
        symmetric = symmetric and p is None
        look = min(self.look, n)  # the whole at least
        steps = elimination(n, engine.BASE, engine.LEAF, look, symmetric=symmetric)
        if (
            n > engine.LEAF
            and engine.eliminate is not None
            and engine.eliminate(
                self.semiring, d, p, steps, self.known, self.one, self.improved, self.tick
            )
        ):
            return
        done = 0.0
        for step in steps.steps:
            self._run(step, d, p, done)
            done += step.pairs
            if self.tick is not None and step.pairs:
                self.tick(done)

    def _run(self, step: CloseStep, d: Array, p: Array | None, done: float) -> None:
        engine, tick = self.engine, self.tick
        rows, inner, columns = (slice(*x) for x in (step.rows, step.inner, step.columns))
        c, arg = d[rows, columns], None if p is None else p[rows, columns]
        if step.kind == "look":
            diagonal = c.diagonal()
            if not (diagonal == self.one).all():
                self.improved(rows.start, diagonal)
        elif step.kind == "mirror":
            engine.mirror(c)
        elif step.kind == "close":
            engine.closure_block(self.semiring, c, self.known, arg)
        else:
            a = d[inner, rows].T if step.turned == "a" else d[rows, inner]
            b = d[columns, inner].T if step.turned == "b" else d[inner, columns]
            engine.product(
                self.semiring, a, b, c, JOIN, arg=arg, known=self.known,
                gather=None if p is None else p[inner, columns], overlap=step.overlap,
                triangle=step.triangle,
                on_done=None if tick is None else (lambda part: tick(done + part * step.pairs)),
            )  # fmt: skip
