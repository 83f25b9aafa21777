"""Elimination in blocks: the order of its steps, over tiles and within one matrix.

Step k closes block (k, k), multiplies row and column k by it, and joins the products of the two to
all other blocks (blocked Floyd-Warshall: Park, Penner and Prasanna, 2004). Row and column k + 1
come first there, so that the next step's can be made, and travel, while the rest is computed.

Tiles of several memories are the blocks of :func:`eliminate`. One matrix in memory is two blocks,
each of which is two again (R-Kleene: D'Alberto and Nicolau, 2007), so that most of its n³ pairs are
in the largest products:

    A11 ← A11*            A12 ← A11 A12          A21 ← A21 A11         A22 ← A22 ⊕ A21 A12
    A22 ← A22*            A21 ← A22 A21          A12 ← A12 A22         A11 ← A11 ⊕ A12 A21

Of a symmetric matrix only blocks on and above the diagonal are computed: half the work.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ..engine import CloseStep, CloseSteps, Lines

__all__ = ["Executor", "Grid", "eliminate", "steps_in_memory"]


@dataclass(frozen=True)
class Grid:
    """The lines of a matrix in tiles of one size; the last one may be smaller."""

    n: int
    tile: int

    @property
    def count(self) -> int:
        """Tiles."""
        return -(-self.n // self.tile)

    def size(self, i: int) -> int:
        """Lines of tile i."""
        return min(self.tile, self.n - i * self.tile)

    def part(self, i: int) -> slice:
        """The lines of tile i."""
        return slice(i * self.tile, i * self.tile + self.size(i))


class Executor(Protocol):
    """Where tiles lie, and who computes with them.

    What a step shares is its cross: row and column k as they are after :meth:`pivot`. An executor
    keeps those of two steps, since ``pivot(k + 1)`` comes before the last ``update(k, …)``.
    """

    def pivot(self, k: int) -> None:
        """D[k, k] ← D[k, k]*; D[k, j] ← D[k, k] ⊗ D[k, j]; D[i, k] ← D[i, k] ⊗ D[k, k].

        These are shared then.
        """

    def update(self, k: int, rows: Sequence[int], columns: Sequence[int]) -> None:
        """D[i, j] ← D[i, j] ⊕ D[i, k] ⊗ D[k, j] for all i in `rows` and j in `columns`.

        Both ascend. Of a symmetric matrix only tiles with i ≤ j are kept, and the others passed
        over.
        """

    def finish(self, k: int) -> None:
        """Step k has been given out: tell how far the work is, leave a checkpoint."""


def eliminate(count: int, executor: Executor, first: int = 0) -> None:
    """Close a matrix of count x count tiles, from step `first` on.

    A step may be repeated, over tiles some of which it has reached before and others not: over an
    idempotent ⊕ each entry stays the value of a path, and gets no worse.
    """
    if first < count:
        executor.pivot(first)
    for k in range(first, count):
        others = [i for i in range(count) if i not in (k, k + 1)]
        if k + 1 < count:
            executor.update(k, [k + 1], sorted([*others, k + 1]))
            executor.update(k, others, [k + 1])
            executor.pivot(k + 1)
        executor.update(k, others, others)
        executor.finish(k)


@functools.lru_cache(maxsize=16)
def steps_in_memory(n: int, base: int, leaf: int, look: int, *, symmetric: bool) -> CloseSteps:
    """The steps of the closure of n rows, which are divided after multiples of `base` rows.

    Blocks of up to `leaf` rows are closed at once, and the diagonals of those of `look` rows and
    more are looked at; 0: of none.
    """
    halves = _Halves(base, leaf, look, symmetric, ((0, n),), [])
    eliminate(1, halves)
    return CloseSteps(tuple(halves.steps))


@dataclass
class _Halves:
    """Executor that lists the steps on two blocks of a matrix, or on the whole."""

    base: int
    leaf: int
    look: int
    symmetric: bool
    blocks: tuple[Lines, ...]
    steps: list[CloseStep]

    def pivot(self, k: int) -> None:
        lo, hi = self.blocks[k]
        size = hi - lo
        looks = [self._on("look", k)] * (0 < self.look <= size)
        mirror = [self._on("mirror", k)] * self.symmetric
        if size > self.leaf:
            mid = lo + -(-size // (2 * self.base)) * self.base
            eliminate(2, replace(self, blocks=((lo, mid), (mid, hi))))
        else:
            half = self.symmetric and size > self.base  # of it products compute the upper triangle
            self.steps += [*mirror[:half], *looks, self._on("close", k)]
        self.steps += [*looks, *mirror]
        for i in {*range(len(self.blocks))} - {k}:
            ends = [(min(i, k), max(i, k))] if self.symmetric else [(k, i), (i, k)]
            self.steps += [self._product(row, k, column) for row, column in ends]

    def update(self, k: int, rows: Sequence[int], columns: Sequence[int]) -> None:
        self.steps += [
            self._product(i, k, j, triangle=self.symmetric) for i in rows for j in columns
        ]

    def finish(self, k: int) -> None:
        """Nothing."""

    def _on(self, kind: str, k: int) -> CloseStep:
        return CloseStep(kind, *(self.blocks[k],) * 3)

    def _product(self, i: int, k: int, j: int, *, triangle: bool = False) -> CloseStep:
        rows, inner, columns = (self.blocks[x] for x in (i, k, j))
        return CloseStep("product", rows, inner, columns, triangle)
