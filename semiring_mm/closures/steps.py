"""The operations on tiles: what every executor does with the blocks that it has at hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from ..engine import JOIN
from ..expressions import evaluate
from ..plan import Facts
from ..semirings import Semiring
from .kleene import Closure
from .paths import NO_PREDECESSOR
from .weights import Weights

__all__ = ["Improves", "Steps"]

Array = Any  # of an engine's library


class Improves(Exception):
    """A diagonal entry got better than one: a cycle improves itself."""

    def __init__(self, first: int, diagonal: Array) -> None:
        super().__init__(first, diagonal)
        self.first, self.diagonal = first, diagonal  # the latter on the host


@dataclass(frozen=True)
class Steps:
    """An elimination's operations on blocks of the matrix; plain data, so that it can travel.

    Parameters
    ----------
    s : Semiring
    dtype : dtype
        In which it is computed: ``Weights.wide()``.
    known : tuple of Facts, optional
        Ranges that hold for all entries at all times (``Weights.known()``).
    look : bool
        Whether diagonals are to be looked at for a cycle that improves itself.
    symmetric : bool
        Tiles (i, j) with i ≤ j stand for both triangles.
    predecessors : bool
        Each block of D comes with a block of P (int32).
    """

    s: Semiring
    dtype: np.dtype[Any]
    known: tuple[Facts, Facts, Facts] | None
    look: bool
    symmetric: bool = False
    predecessors: bool = False

    @classmethod
    def of(cls, weights: Weights, *, symmetric: bool, predecessors: bool) -> Steps:
        """The elimination that weights ask for."""
        return cls(
            weights.s, weights.wide(), weights.known(), weights.look(1) > 0,
            symmetric and not predecessors, predecessors,
        )  # fmt: skip

    def begin(self, xp: Any, d: Array, rows: slice, columns: slice) -> Array | None:
        """Join one to the diagonal of D[rows, columns], in place; gives its predecessors.

        `d` is of ``dtype`` already. The slices have both ends.
        """
        zero, one = self.s.identities(self.dtype)
        index = np.arange(max(rows.start, columns.start), min(rows.stop, columns.stop))
        own = (index - rows.start, index - columns.start)
        if index.size:
            loops = d[own]
            best = {"min": xp.minimum, "max": xp.maximum}.get(self.s.add_kind)
            if best is None or self.dtype.kind not in "iuf":
                host = loops.get() if hasattr(loops, "get") else loops
                d[own] = xp.asarray(evaluate(self.s.add_expr, host, one))
            else:
                d[own] = best(loops, one)
        if not self.predecessors:
            return None
        start = xp.arange(rows.start, rows.stop, dtype=np.int32)[:, np.newaxis]
        p = xp.where(d == zero, np.int32(NO_PREDECESSOR), start)
        if index.size:
            p[own] = NO_PREDECESSOR
        return p

    def close(self, engine: Any, d: Array, p: Array | None, first: int) -> None:
        """D ← D* for a tile on the diagonal that begins at node `first`; both triangles of it.

        Raises
        ------
        Improves
            If a cycle improves itself. (Only then does the host wait for a device.)
        """
        one = self.s.identities(self.dtype)[1]

        def improved(lo: int, diagonal: Array) -> NoReturn:
            raise Improves(first + lo, engine.to_host(diagonal))

        look = (1 if self.dtype.kind in "iu" else int(engine.LOOK)) if self.look else 0
        closure = Closure(engine, self.s, self.known, one, look, improved)
        closure.run(d, p, symmetric=self.symmetric)

    def row(self, engine: Any, diagonal: Array, d: Array, p: Array | None) -> None:
        """D ← D[k, k] ⊗ D for blocks of row k."""
        engine.product(self.s, diagonal, d, d, JOIN, arg=p, gather=p, known=self.known, overlap="b")

    def column(
        self, engine: Any, d: Array, diagonal: Array, p: Array | None, p_diagonal: Array | None
    ) -> None:
        """D ← D ⊗ D[k, k] for blocks of column k."""
        engine.product(
            self.s, d, diagonal, d, JOIN, arg=p, gather=p_diagonal, known=self.known,
            overlap="a",
        )  # fmt: skip

    def update(
        self, engine: Any, left: Array, right: Array, d: Array, p: Array | None = None,
        p_right: Array | None = None,
    ) -> None:  # fmt: skip
        """D ← D ⊕ D[i, k] ⊗ D[k, j] for blocks that are not in row or column k."""
        engine.product(self.s, left, right, d, JOIN, arg=p, gather=p_right, known=self.known)
