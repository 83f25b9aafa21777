"""Edge lists, and functions that join them to a dense matrix over a semiring."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from ..display import Shown, Table
from ..engine import Engine
from ..expressions import evaluate
from ..graph_kernels import offsets
from ..lazy import cached_property
from ..semirings import Semiring

__all__ = [
    "EdgeList", "NumberLabels", "both_ways", "edge_dtype", "is_table", "join_edges", "symmetrize",
    "with_ends",
]  # fmt: skip

Array = Any  # of the engine's library
E = TypeVar("E", bound="EdgeList")


@dataclass(frozen=True, repr=False)
class EdgeList(Shown):
    """The edges of a graph, parallel ones and loops included.

    Attributes
    ----------
    nodes : sequence
        Node labels; ``range(n)`` where the graph has none.
    row, col : (m,) integers
        Where each edge starts and ends. `row` may be None where `first` is given: then it is made
        of that when it is asked for.
    weight : (m,) array
        Real numbers, none of them NaN.
    directed : bool
        Whether an edge leads only from `row` to `col`; else it stands for both directions.
    first : (n + 1,) int64, optional
        Where the edges of each row begin, of directed edges that come row after row, as in CSR.
    table_rows : (m,) int64, optional
        The row of the table, or the entry of the file, that each edge was read from, where some
        lead both ways and so are two edges.
    ends : (k,) int64, optional
        Where paths to each of the first k nodes end: at itself, or at a node of its own after
        these, which no edge leaves. See :meth:`ending`.
    """

    nodes: Sequence[Any]
    row: NDArray[Any]
    col: NDArray[Any]
    weight: Array
    directed: bool
    first: NDArray[np.int64] | None = field(default=None, kw_only=True)
    table_rows: NDArray[np.int64] | None = field(default=None, kw_only=True)
    ends: NDArray[np.int64] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.first is not None and not self.directed:
            raise ValueError("edges by rows are directed: undirected ones have first=None")
        row: Any = self.row
        if row is None:
            object.__delattr__(self, "row")

    def __getattr__(self, name: str) -> Any:
        if name != "row" or self.first is None:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        self.__dict__["row"] = row = np.arange(len(self.nodes)).repeat(
            self.first[1:] - self.first[:-1]
        )
        return row

    def _title(self) -> str:
        return f"{type(self).__name__}: {self.summary}, {self.weight.dtype}"

    @property
    def summary(self) -> str:
        """Numbers of nodes and edges, as text."""
        kind = "directed" if self.directed else "undirected"
        return f"{self.n} nodes, {len(self.col)} {kind} edges"

    def _table(self) -> Table:
        def row(e: int) -> list[Any]:
            return [self.nodes[self.row[e]], self.nodes[self.col[e]], self.weight[e]]

        return ["from", "to", "weight"], len(self.col), row

    @classmethod
    def by_rows(cls, first: NDArray[np.int64], col: NDArray[Any], weight: Array) -> EdgeList:
        """Directed edges, row after row, of the nodes 0, 1, ..."""
        row: Any = None
        return cls(range(len(first) - 1), row, col, weight, True, first=first)

    @classmethod
    def of_csr(cls, matrix: Any) -> EdgeList:
        """The entries of a sparse matrix of SciPy's in compressed rows."""
        first = np.ascontiguousarray(matrix.indptr, np.int64)
        m = first[-1]  # arrays may have room for more
        col = matrix.indices[:m].astype(np.int64, casting="same_kind", copy=False)
        return cls.by_rows(first, col, matrix.data[:m])

    @classmethod
    def of(cls, n: int, row: NDArray[Any], col: NDArray[Any], weight: Array) -> EdgeList:
        """Directed edges of the nodes 0, 1, ..., n - 1."""
        return cls(range(n), row, col, weight, True)

    @classmethod
    def joined(cls, n: int, parts: Iterable[tuple[Array, Array, Array]]) -> EdgeList:
        """The same from parts of rows, columns and weights."""
        row, col, weight = map(np.concatenate, zip(*parts, strict=True))
        return cls.of(n, row, col, weight)

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.nodes)

    @property
    def arrays(self) -> tuple[NDArray[Any], NDArray[Any], Array]:
        """Row, column and weight of each edge."""
        return self.row, self.col, self.weight

    def weighted(self: E, weight: Array) -> E:
        """The same edges with other weights."""
        row: Any = self.__dict__.get("row")  # not made of `first` for this
        return replace(self, row=row, weight=weight)

    def ending(self: E, at: NDArray[np.int64], one: float) -> E:
        """Directed edges over which paths begin and end at some nodes, but pass through none.

        Edges into a node of `at` lead to another one, its end, which no edge leaves. One that
        weighs nothing, `one` (0 over min_plus), leads there from the node itself.
        """
        n, some = self.n, at.tolist()
        ends = np.arange(n)
        ends[at] = n + np.arange(len(at))
        numbered = isinstance(self.nodes, range)
        nodes = range(n + len(at)) if numbered else with_ends(self.nodes, some)
        return replace(
            self, nodes=nodes, row=np.concatenate([self.row, at]),
            col=ends[np.concatenate([self.col, at])],
            weight=np.concatenate([self.weight, np.full(len(at), one, self.weight.dtype)]),
            table_rows=None, ends=ends,
        )  # fmt: skip

    @property
    def original(self) -> EdgeList:
        """The edges before :meth:`ending`."""
        if self.ends is None:
            return self
        n = len(self.ends)
        m, node = len(self.col) - (self.n - n), np.arange(self.n)
        node[self.ends] = np.arange(n)
        edges = self.row[:m], node[self.col[:m]], self.weight[:m]
        return EdgeList(self.nodes[:n], *edges, self.directed)

    def undirected(self: E) -> E:
        """The same edges, each in both directions."""
        return replace(self, directed=False, first=None)

    def reversed(self) -> EdgeList:
        """The same edges, each from its end to its start."""
        return EdgeList(self.nodes, self.col, self.row, self.weight, self.directed)

    def kept(self, wanted: NDArray[np.bool_]) -> EdgeList:
        """Some of the edges, in their order."""
        if False not in wanted:
            return self
        col, weight = self.col[wanted], self.weight[wanted]
        if self.first is not None:
            first = offsets(wanted)[self.first]
            return EdgeList.by_rows(first, col, weight)
        return EdgeList(self.nodes, self.row[wanted], col, weight, self.directed)

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where the edges of each row begin, of edges that come row after row."""
        assert self.first is not None
        return self.first

    @cached_property
    def sorted(self) -> EdgeList:
        """The edges row after row, by column in each; undirected ones in both directions."""
        row, col, weight = self.arrays
        if not self.directed:
            row, col, weight = *both_ways(row, col), np.concatenate([weight, weight])
        ends = row * np.int64(self.n) + col
        order = np.argsort(ends, kind="stable")  # at once where they are sorted
        first = offsets(np.bincount(row, minlength=self.n))
        row, col, weight = row[order], col[order], weight[order]
        return replace(EdgeList.of(self.n, row, col, weight), first=first)

    @cached_property
    def entering(self) -> EdgeList:
        """The edges that lead the other way, sorted: by the nodes to which these lead."""
        return EdgeList(range(self.n), self.col, self.row, self.weight, self.directed).sorted


def with_ends(labels: Sequence[Any], at: Sequence[int]) -> list[Any]:
    """Labels of nodes and of the ends of some."""
    return [*labels, *((labels[k], "end") for k in at)]


class NumberLabels(Sequence[str]):
    """The labels of n numbered nodes, as strings that take no memory until they are read.

    Parameters
    ----------
    first : int
        The first node's number.
    n : int
        Number of nodes.

    Examples
    --------
    >>> labels = NumberLabels(1, 3)
    >>> list(labels), labels.index("3"), "4" in labels
    (['1', '2', '3'], 2, False)
    """

    def __init__(self, first: int, n: int) -> None:
        self._numbers = range(first, first + n)

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [str(number) for number in self._numbers[index]]
        return str(self._numbers[index])

    def index(self, label: object, start: int = 0, stop: int | None = None) -> int:
        """The position of a label, without a search."""
        digits = isinstance(label, str) and label.isascii() and label.isdigit()
        if digits and len(str(label)) < 20 and str(int(str(label))) == label:
            position = int(label) - self._numbers.start
            if start <= position < (len(self) if stop is None else stop):
                return position
        raise ValueError(f"{label!r} is not the label of a node")

    def __contains__(self, label: object) -> bool:
        try:
            return self.index(label) >= 0
        except ValueError:
            return False

    def __eq__(self, other: object) -> bool:
        if isinstance(other, NumberLabels):
            return self._numbers == other._numbers
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment] # as a list's

    def __repr__(self) -> str:
        return f"NumberLabels({self._numbers.start}, {len(self)})"


def both_ways(row: NDArray[Any], col: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The ends of undirected edges in one direction, and then in the other."""
    return np.concatenate([row, col]), np.concatenate([col, row])


def is_table(graph: Any) -> bool:
    """Whether it is a table in memory: a DataFrame of pandas or Polars, or a Table of Arrow."""
    kind = type(graph)
    exports = ("iloc", "__arrow_c_stream__", "collect")  # the last of Polars' lazy tables
    return hasattr(kind, "columns") and any(hasattr(kind, name) for name in exports)


def edge_dtype(s: Semiring, weight: Array) -> np.dtype[Any]:
    """The dtype of the matrix of a graph whose edges have these weights."""
    if s.bitwise:
        return np.dtype(np.bool_)
    return np.dtype(np.float32 if weight.dtype == np.float32 else np.float64)


def join_edges(
    s: Semiring, matrix: Array, row: NDArray[np.int64], col: NDArray[np.int64], values: Array
) -> None:
    """matrix[row, col] ⊕= values, parallel edges one after the other."""
    if matrix.dtype.kind == "b":
        matrix[row, col] = True
        return
    ufunc = {"min": np.minimum, "max": np.maximum, "+": np.add}.get(s.add_kind)
    if ufunc is not None:
        ufunc.at(matrix, (row, col), values)
        return
    for i, j, w in zip(row, col, values, strict=True):
        matrix[i, j] = evaluate(s.add_expr, matrix[i, j], w)


def symmetrize(engine: Engine, s: Semiring, matrix: Array) -> None:
    """matrix ← matrix ⊕ its transpose, tile by tile; a stack of matrices each by itself."""
    n, tile = matrix.shape[-1], engine.TILE
    for i in range(0, n, tile):
        for j in range(i, n, tile):
            above = matrix[..., i : i + tile, j : j + tile]
            below = matrix[..., j : j + tile, i : i + tile]
            above[...] = evaluate(s.add_expr, above, below.swapaxes(-1, -2).copy())
            below[...] = above.swapaxes(-1, -2).copy()
