"""Sources: the matrix of a graph, read by rectangle, wherever it is kept."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from ..engine import Engine
from ..expressions import evaluate
from ..lazy import cached_property
from ..plan import Facts
from ..semirings import Semiring
from . import trees
from .edges import EdgeList, edge_dtype, join_edges
from .weights import Weights, edges_of, worsened

__all__ = [
    "ArraySource", "DenseSource", "EdgeSource", "Source", "best_edges", "source_of", "weights_of",
]  # fmt: skip

Array = Any
_PIECE = 1 << 20  # entries read at a time: a whole matrix may not fit in memory


class Source(Protocol):
    """A graph's matrix over a semiring: zero where there is no edge."""

    s: Semiring
    n: int  # nodes
    dtype: np.dtype[Any]  # of the entries
    margins: Array | None  # (n,) of float64, of the nodes, if weights are :func:`worsened` by them

    @property
    def facts(self) -> Facts:
        """The range of the entries."""

    def read(self, rows: slice, columns: slice) -> Array:
        """A new array of ``dtype`` with these entries; the slices have both ends."""

    def refuse(self, weights: Weights) -> None:
        """Raise ValueError at the first entry that is no weight."""

    def symmetric(self) -> bool:
        """Whether the matrix equals its transpose."""

    def edges(self) -> EdgeList:
        """Every edge in each of its directions, not worsened."""

    def worsened(self, margins: NDArray[np.float64]) -> Source:
        """The same graph with weights worsened by the margins of its nodes."""

    def numbers(self, s: Semiring) -> Source:
        """A matrix of truth values as the numbers 0 and 1 of another semiring."""

    def fingerprint(self) -> str:
        """A digest of the graph, not worsened."""


class _Readable:
    """The members of :class:`Source` that follow from its entries."""

    s: Semiring
    n: int
    dtype: np.dtype[Any]
    margins: Array | None = None
    #: With what the graph was given, where :meth:`numbers` replaced it.
    _given: tuple[Semiring, np.dtype[Any]] | None = None

    def _entries(self, rows: slice, columns: slice) -> Array:
        """As :meth:`Source.read`, not worsened."""
        raise NotImplementedError

    def read(self, rows: slice, columns: slice) -> Array:
        part, x = self._entries(rows, columns), self.margins
        return part if x is None else worsened(self.s, part, x[rows, np.newaxis], x[columns])

    def worsened(self, margins: NDArray[np.float64]) -> Source:
        found = copy.copy(self)
        vars(found).pop("facts", None)
        found.margins = margins
        return found

    def numbers(self, s: Semiring) -> Source:
        found = copy.copy(self)
        vars(found).pop("facts", None)
        found._given = self._given or (self.s, self.dtype)
        found.s, found.dtype = s, np.dtype(np.uint8)
        return found

    def refuse(self, weights: Weights) -> None:
        step = 2048
        for i in range(0, self.n, step):
            rows = slice(i, min(i + step, self.n))
            weights.refuse(self.read(rows, slice(0, self.n)), (i, 0))

    def _strips(self, width: int | None = None) -> list[slice]:
        """Slices of rows: about ``_PIECE`` entries in pieces of `width` (or all) columns."""
        lines = max(1, _PIECE // max(1, self.n if width is None else width))
        return [slice(i, min(i + lines, self.n)) for i in range(0, self.n, lines)]

    def symmetric(self) -> bool:
        strips = self._strips(1024)
        return all(
            np.array_equal(self.read(x, y), self.read(y, x).T)
            for i, x in enumerate(strips)
            for y in strips[i:]
        )

    @cached_property
    def facts(self) -> Facts:
        found = Facts(np.inf, -np.inf, False)
        for rows in self._strips():
            found = found.join(
                engines.named("cpu").facts(self.s, self.read(rows, slice(0, self.n)))
            )
        return found

    def edges(self) -> EdgeList:
        parts = []
        for rows in self._strips():
            row, col, weight = edges_of(self.s, self._entries(rows, slice(0, self.n)))
            parts.append((row + rows.start, col, weight))
        return EdgeList.joined(self.n, parts)

    def fingerprint(self) -> str:
        s, dtype = self._given or (self.s, self.dtype)
        mark = hashlib.sha256(f"{s} {self.n} {dtype}".encode())
        for x in self._marked():
            mark.update(x.tobytes())
        return mark.hexdigest()

    def _marked(self) -> Iterable[Array]:
        """Arrays that tell the graph from others."""
        return (self._entries(rows, slice(0, self.n)) for rows in self._strips())


class DenseSource(_Readable):
    """A square matrix on the host, or anything that gives NumPy arrays for two slices."""

    def __init__(self, s: Semiring, matrix: Any, *, undirected: bool = False) -> None:
        self.s, self.matrix, self.undirected = s, matrix, undirected
        self.n = int(matrix.shape[0])
        self.dtype = np.dtype(matrix.dtype).newbyteorder("=")

    def _entries(self, rows: slice, columns: slice) -> Array:
        part = np.array(self.matrix[rows, columns], self.dtype)
        if self.undirected:
            other = np.array(self.matrix[columns, rows], self.dtype).T
            part = evaluate(self.s.add_expr, part, other).astype(self.dtype, copy=False)
        return part

    def symmetric(self) -> bool:
        return self.undirected or super().symmetric()


class EdgeSource(_Readable):
    """A graph given by its edges; where it has margins, they have not worsened `given`.

    These are the edges in their order, with weights in the dtype of the matrix.
    """

    def __init__(self, s: Semiring, edges: EdgeList, dtype: Any) -> None:
        self.s, self.n, self.dtype = s, len(edges.nodes), np.dtype(dtype)
        self.given = edges
        if self.dtype.kind == "b":
            self.given = edges.weighted(np.ones(len(edges.col), bool))
        elif edges.weight.dtype != self.dtype:
            self.given = edges.weighted(edges.weight.astype(self.dtype))

    def _entries(self, rows: slice, columns: slice) -> Array:
        zero = self.s.identities(self.dtype)[0]
        part = np.full((rows.stop - rows.start, columns.stop - columns.start), zero, self.dtype)
        lo, hi = self.given.sorted.starts[[rows.start, rows.stop]]
        row, col, weight = (x[lo:hi] for x in self.given.sorted.arrays)
        here = (col >= columns.start) & (col < columns.stop)
        row, col, weight = row[here], col[here], weight[here]
        join_edges(self.s, part, row - rows.start, col - columns.start, weight)
        return part

    @cached_property
    def facts(self) -> Facts:
        return engines.named("cpu").facts(self.s, weights_of(self, self.given))

    def symmetric(self) -> bool:
        return not self.given.directed

    def edges(self) -> EdgeList:
        return self.given.sorted

    def numbers(self, s: Semiring) -> EdgeSource:
        return EdgeSource(s, self.given, "u1")

    def refuse(self, weights: Weights) -> None:
        row, col, weight = self.given.arrays
        wrong = np.isnan(weight) if weights.facts.special else weight == -self.s.zero
        for e in np.flatnonzero(wrong)[:1]:
            u, v = self.given.nodes[row[e]], self.given.nodes[col[e]]
            raise ValueError(
                f"the edge from node {u} to node {v} has weight {weight[e]:g}; use "
                f"{self.s.zero:g} for no edge"
            )

    def _marked(self) -> Iterable[Array]:
        return self.edges().arrays


class ArraySource(_Readable):
    """A matrix, or a stack of them, in the memory of one engine, which a run may overwrite.

    Parameters
    ----------
    engine : module
    s : Semiring
    array : array of shape (..., n, n)
    original : array, optional
        The same entries in memory that is not overwritten; None: :meth:`take` keeps them if they
        are needed.
    undirected : bool
        Whether the matrix is known to equal its transpose.
    """

    def __init__(
        self, engine: Engine, s: Semiring, array: Array, original: Array = None, *,
        undirected: bool = False,
    ) -> None:  # fmt: skip
        self.engine, self.s, self.array, self.original = engine, s, array, original
        self.n, self.dtype, self.undirected = int(array.shape[-1]), array.dtype, undirected
        self._taken: Array | None = None
        self._facts: Callable[[], Facts] | None = None

    @cached_property
    def facts(self) -> Facts:
        return self._facts() if self._facts else self.engine.facts(self.s, self.array)

    def look_ahead(self) -> None:
        """Begin the search for the facts, which are read later."""
        self._facts = self.engine.facts_later(self.s, self.array)

    def take(self, weights: Weights, *, trees: bool) -> Array:
        """The matrix in the type to compute in, to be overwritten: in place where that is the same.

        A copy of the entries stays if they are needed to name a cycle, to run again, or to repair
        `trees` in which rounding has closed one.
        """
        if self._taken is None:
            self._taken = weights.widen(self.array)
            if self.original is None and (weights.improving or (trees and weights.look(1))):
                copied = self._taken is not self.array
                self.original = self.array if copied else self.array.copy()
        return self._taken

    def read(self, rows: slice, columns: slice) -> Array:
        return self.engine.to_host(self.original[rows, columns])

    def refuse(self, weights: Weights) -> None:
        weights.refuse(self.engine.to_host(self.array))

    def symmetric(self) -> bool:
        return self.undirected or self.engine.symmetric(self.array)

    def edges(self) -> EdgeList:
        return EdgeList.of(self.n, *edges_of(self.s, self.engine.to_host(self.original)))

    def worsened(self, margins: NDArray[np.float64]) -> ArraySource:
        """The same with worsened weights, in the memory of the run before."""
        found = ArraySource(self.engine, self.s, self.array, self.original)
        found.margins = x = self.engine.from_host(margins)
        for i in range(0, self.n, self.engine.TILE):
            rows = slice(i, i + self.engine.TILE)
            self.array[rows] = worsened(self.s, self.original[rows], x[rows, np.newaxis], x)
        return found

    def numbers(self, s: Semiring) -> ArraySource:
        return ArraySource(self.engine, s, self.array.astype(np.uint8))


def source_of(s: Semiring, graph: Array | EdgeList, directed: bool | None) -> Source:
    """A matrix on the host or an edge list as a source."""
    if isinstance(graph, EdgeList):
        return EdgeSource(s, graph, edge_dtype(s, graph.weight))
    return DenseSource(s, graph, undirected=directed is False)


def weights_of(source: Source, edges: EdgeList) -> Array:
    """The weights of some edges of a source, worsened where it has margins."""
    margins = source.margins
    if margins is None:
        return edges.weight
    return worsened(source.s, edges.weight, margins[edges.row], margins[edges.col])


def best_edges(source: Source, distances: Callable[[slice], Array]) -> EdgeList:
    """The edges of a source that are best paths themselves (:func:`.trees.best_edges`).

    `distances` gives the rows of the closure in a slice.
    """
    lines = max(1, _PIECE // max(1, source.n))
    strips = (slice(i, min(i + lines, source.n)) for i in range(0, source.n, lines))
    whole = slice(0, source.n)
    return trees.best_edges(
        source.s, source.n, ((x.start, source.read(x, whole), distances(x)) for x in strips)
    )
