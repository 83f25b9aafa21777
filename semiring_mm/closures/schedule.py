"""Blocked Floyd-Warshall and products over a grid of tiles, for any executor of the steps.

Step k of an elimination closes tile (k, k), multiplies row and column k by it, and joins the
products of the two to all other tiles (Park, Penner and Prasanna, 2004). Row and column k + 1 come
first there, so that the next step's can be made, and travel, while the rest is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Executor", "Grid", "eliminate", "multiply"]


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

        These are shared then. For a product nothing is computed: column k of A and row k of B
        are shared as they are.
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


def multiply(m: int, n: int, depth: int, executor: Executor) -> None:
    """C ← C ⊕ A ⊗ B for m x depth tiles of A and depth x n of B."""
    if depth:
        executor.pivot(0)
    for k in range(depth):
        if k + 1 < depth:
            executor.pivot(k + 1)
        executor.update(k, range(m), range(n))
        executor.finish(k)
