"""Graphs of which any rectangle of the matrix can be had, without the whole of it."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..cpu import engine as cpu
from ..expressions import evaluate
from ..plan import Facts
from ..semirings import Semiring
from .edges import EdgeList, join_edges
from .trees import Edges
from .weights import edges_of

__all__ = ["DenseSource", "EdgeSource", "LiftedSource", "Source", "TruthSource", "best_edges"]

Array = Any
_PIECE = 1 << 20  # entries of the pieces in which a matrix is looked at: they may not fit in memory


class Source(Protocol):
    """A graph's matrix over a semiring, as it came: zero where there is no edge."""

    s: Semiring
    n: int
    dtype: np.dtype[Any]

    @property
    def facts(self) -> Facts:
        """The range of the entries."""

    def read(self, rows: slice, columns: slice) -> Array:
        """A new host array of ``dtype`` with these entries; the slices have both ends."""

    def symmetric(self) -> bool:
        """Whether the matrix equals its transpose."""

    def edges(self) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
        """Row, column and weight of every edge."""

    def fingerprint(self) -> str:
        """A word that differs for other graphs."""


class _Squares:
    """What follows from :meth:`Source.read` alone."""

    s: Semiring
    n: int
    dtype: np.dtype[Any]

    def read(self, rows: slice, columns: slice) -> Array:
        raise NotImplementedError

    def _strips(self, width: int | None = None) -> list[slice]:
        """The rows in parts; of pieces that have so many columns, or all."""
        lines = max(1, _PIECE // max(1, self.n if width is None else width))
        return [slice(i, min(i + lines, self.n)) for i in range(0, self.n, lines)]

    def symmetric(self) -> bool:
        strips = self._strips(1024)
        return all(
            np.array_equal(self.read(x, y), self.read(y, x).T)
            for i, x in enumerate(strips)
            for y in strips[i:]
        )

    @functools.cached_property
    def facts(self) -> Facts:
        found = Facts(np.inf, -np.inf, False)
        for rows in self._strips():
            found = found.join(cpu.facts(self.s, self.read(rows, slice(0, self.n))))
        return found

    def edges(self) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
        parts = []
        for rows in self._strips():
            row, col, weight = edges_of(self.s, self.read(rows, slice(0, self.n)))
            parts.append((row + rows.start, col, weight))
        row, col, weight = (np.concatenate(x) for x in zip(*parts, strict=True))
        return row, col, weight

    def fingerprint(self) -> str:
        mark = hashlib.sha256(f"{self.s} {self.n} {self.dtype}".encode())
        for rows in self._strips():
            mark.update(self.read(rows, slice(0, self.n)).tobytes())
        return mark.hexdigest()


class DenseSource(_Squares):
    """A square matrix on the host, or anything that gives NumPy arrays for two slices."""

    def __init__(self, s: Semiring, matrix: Any, *, undirected: bool = False) -> None:
        self.s, self.matrix, self.undirected = s, matrix, undirected
        self.n = int(matrix.shape[0])
        self.dtype = np.dtype(matrix.dtype).newbyteorder("=")

    def read(self, rows: slice, columns: slice) -> Array:
        part = np.array(self.matrix[rows, columns], self.dtype)
        if self.undirected:
            other = np.array(self.matrix[columns, rows], self.dtype).T
            part = evaluate(self.s.add_expr, part, other).astype(self.dtype, copy=False)
        return part

    def symmetric(self) -> bool:
        return self.undirected or super().symmetric()


class EdgeSource(_Squares):
    """A graph given by its edges."""

    def __init__(self, s: Semiring, edges: EdgeList, dtype: Any) -> None:
        self.s, self.n, self.dtype = s, edges.n, np.dtype(dtype)
        row, col = edges.row, edges.col
        truth = self.dtype.kind == "b"
        weight = np.ones(len(row), bool) if truth else edges.weight.astype(self.dtype)
        if edges.undirected:
            row, col = np.concatenate([row, col]), np.concatenate([col, row])
            weight = np.concatenate([weight, weight])
        order = np.lexsort((col, row))
        self._row, self._col, self._weight = row[order], col[order], weight[order]
        self._undirected = edges.undirected

    def read(self, rows: slice, columns: slice) -> Array:
        zero = self.s.identities(self.dtype)[0]
        part = np.full((rows.stop - rows.start, columns.stop - columns.start), zero, self.dtype)
        lo, hi = np.searchsorted(self._row, [rows.start, rows.stop])
        here = (self._col[lo:hi] >= columns.start) & (self._col[lo:hi] < columns.stop)
        row, col, weight = (x[lo:hi][here] for x in (self._row, self._col, self._weight))
        join_edges(self.s, part, row - rows.start, col - columns.start, weight)
        return part

    @functools.cached_property
    def facts(self) -> Facts:
        return cpu.facts(self.s, self._weight[:, np.newaxis])

    def symmetric(self) -> bool:
        return self._undirected

    def edges(self) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
        return self._row, self._col, self._weight

    def fingerprint(self) -> str:
        mark = hashlib.sha256(f"{self.s} {self.n} {self.dtype}".encode())
        for x in (self._row, self._col, self._weight):
            mark.update(x.tobytes())
        return mark.hexdigest()


class LiftedSource(_Squares):
    """Another source with potentials on its nodes, so that all weights have one sign (Johnson)."""

    def __init__(self, source: Source, potentials: NDArray[np.float64]) -> None:
        self.source, self.h = source, potentials
        self.s, self.n, self.dtype = source.s, source.n, source.dtype

    def read(self, rows: slice, columns: slice) -> Array:
        end = np.minimum if self.s.zero < 0 else np.maximum
        weights = self.source.read(rows, columns).astype(np.float64)
        weights += self.h[rows, np.newaxis] - self.h[columns]
        return end(weights, 0).astype(self.dtype)

    def symmetric(self) -> bool:
        return False

    def lower(self, d: Array, rows: slice, columns: slice) -> Array:
        """Distances without the potentials again."""
        return (d.astype(np.float64) - self.h[rows, np.newaxis] + self.h[columns]).astype(d.dtype)

    def fingerprint(self) -> str:
        return self.source.fingerprint()


class TruthSource(_Squares):
    """Truth values as the numbers 0 and 1."""

    def __init__(self, source: Source, s: Semiring) -> None:
        self.source, self.s, self.n, self.dtype = source, s, source.n, np.dtype(np.uint8)

    def read(self, rows: slice, columns: slice) -> Array:
        return self.source.read(rows, columns).astype(np.uint8)

    def fingerprint(self) -> str:
        return self.source.fingerprint()


def best_edges(source: Source, distances: Callable[[slice], Array]) -> Edges:
    """The edges that are best paths themselves, for :func:`~semiring_mm.closures.trees.mend`.

    Every other best path is made of such edges; of a dense graph they are few.

    Parameters
    ----------
    source : Source
    distances : callable
        Gives the rows of the closure in a slice.
    """
    zero = source.s.identities(source.dtype)[0]
    lines = max(1, _PIECE // max(1, source.n))
    parts = []
    for i in range(0, source.n, lines):
        rows = slice(i, min(i + lines, source.n))
        weights, d = source.read(rows, slice(0, source.n)), distances(rows)
        row, col = np.nonzero((weights != zero) & (weights == d))
        off = row + i != col
        row, col = row[off], col[off]
        parts.append((row + i, col, d[row, col]))
    return Edges.by_end(source.n, *(np.concatenate(x) for x in zip(*parts, strict=True)))
