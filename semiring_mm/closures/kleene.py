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

from collections.abc import Callable
from typing import Any, NoReturn

from ..engine import JOIN, Engine
from ..plan import Facts
from ..semirings import Semiring

__all__ = ["Closure"]

Array = Any  # of the engine's library
Known = tuple[Facts, Facts, Facts]


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
        self.done = 0.0

    def run(self, d: Array, p: Array | None = None, *, symmetric: bool = False) -> None:
        """Close `d` in place, carrying predecessors in `p`."""
        symmetric = symmetric and p is None
        self.look = min(self.look, d.shape[0])  # the whole at least
        self._close(d, p, 0, d.shape[0], symmetric)
        if symmetric:
            self.engine.mirror(d)

    def _close(self, d: Array, p: Array | None, lo: int, hi: int, symmetric: bool) -> None:
        n, base = hi - lo, self.engine.BASE
        if n <= self.engine.LEAF:
            block = d[lo:hi, lo:hi]
            if symmetric and n > base:
                self.engine.mirror(block)  # of which products compute the upper triangle
            self._check(block, lo)
            self.engine.closure_block(
                self.semiring, block, self.known, None if p is None else p[lo:hi, lo:hi]
            )
            self._check(block, lo)
            self._count(n**3)
            return
        mid = lo + -(-n // (2 * base)) * base
        first, second = slice(lo, mid), slice(mid, hi)
        d11, d12, d21, d22 = (d[x, y] for x in (first, second) for y in (first, second))
        if symmetric:
            self._close(d, p, lo, mid, symmetric)
            self.engine.mirror(d11)
            self._product(d11, d12, d12, overlap="b")
            self._product(d12.T, d12, d22, triangle=True)
            self._close(d, p, mid, hi, symmetric)
            self.engine.mirror(d22)
            self._product(d12, d22, d12, overlap="a")
            self._product(d12, d12.T, d11, triangle=True)
            self._check(d[lo:hi, lo:hi], lo)
            return
        p11, p12, p21, p22 = (
            None if p is None else p[x, y] for x in (first, second) for y in (first, second)
        )
        self._close(d, p, lo, mid, symmetric)
        self._product(d11, d12, d12, p12, p12, overlap="b")
        self._product(d21, d11, d21, p21, p11, overlap="a")
        self._product(d21, d12, d22, p22, p12)
        self._close(d, p, mid, hi, symmetric)
        self._product(d22, d21, d21, p21, p21, overlap="b")
        self._product(d12, d22, d12, p12, p22, overlap="a")
        self._product(d12, d21, d11, p11, p21)
        self._check(d[lo:hi, lo:hi], lo)

    def _product(
        self,
        a: Array,
        b: Array,
        c: Array,
        arg: Array | None = None,
        gather: Array | None = None,
        *,
        overlap: str = "",
        triangle: bool = False,
    ) -> None:
        """C ← C ⊕ A ⊗ B; predecessors of improved entries come from those of B's row."""
        pairs = float(a.shape[0] * a.shape[1] * b.shape[1]) / (2 if triangle else 1)
        before, tick = self.done, self.tick
        self.engine.product(
            self.semiring, a, b, c, JOIN, arg=arg, gather=gather, known=self.known,
            overlap=overlap, triangle=triangle,
            on_done=None if tick is None else (lambda part: tick(before + part * pairs)),
        )  # fmt: skip
        self._count(pairs)

    def _count(self, pairs: float) -> None:
        self.done += pairs
        if self.tick is not None:
            self.tick(self.done)

    def _check(self, block: Array, lo: int) -> None:
        if 0 < self.look <= block.shape[0]:
            diagonal = block.diagonal()
            if not (diagonal == self.one).all():
                self.improved(lo, diagonal)
