"""The matrix of a graph in tiles that the workers of a cluster compute."""

from __future__ import annotations

import functools
import hashlib
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dask
import dask.array as da
import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from ..closures.edges import EdgeList, edge_dtype, join_edges
from ..closures.elimination import Grid
from ..closures.sources import EdgeSource
from ..closures.weights import Weights, edges_of, worsened
from ..expressions import evaluate
from ..graphs.inputs import adjacency, as_graph, as_typed, warn_of_entries
from ..lazy import cached_property
from ..plan import Facts
from ..semirings import Semiring

__all__ = ["At", "DaskSource", "Given", "later"]

Array = Any
Delayed = Any
At = tuple[int, int]  # row and column of a tile


def later(function: Callable[..., Any], *args: Any) -> Delayed:
    """A call that a worker makes when its result is wanted."""
    return dask.delayed(function, pure=False)(*args)


@dataclass(frozen=True)
class Given:
    """A graph as it was given: a matrix, at the client or of Dask, or edges at the client."""

    s: Semiring
    n: int
    dtype: np.dtype[Any]
    array: Any = None
    edges: EdgeSource | None = None
    undirected: bool = False  # each entry of the matrix leads both ways
    labels: Sequence[Any] | None = None

    @classmethod
    def of(
        cls, s: Semiring, graph: Any, weight: str | int | None, directed: bool | None,
        source: Any, target: Any, dtype: Any,
    ) -> Given:  # fmt: skip
        """What :func:`semiring_mm.dask.apsp` takes."""
        graph, weight = as_typed(s, graph, weight, directed, source, target, dtype)
        x, labels = as_graph(graph, weight=weight, directed=directed)
        if isinstance(x, EdgeList):
            source = EdgeSource(s, x, edge_dtype(s, x.weight))
            return cls(s, source.n, source.dtype, edges=source, labels=x.nodes)
        if not isinstance(x, (da.Array, np.ndarray)):
            x = adjacency(x, s)[0]
        warn_of_entries(s, x)
        if any(math.isnan(size) for size in x.shape):
            raise ValueError("the graph has chunks of unknown size: call compute_chunk_sizes()")
        if x.ndim != 2 or x.shape[0] != x.shape[1]:
            raise ValueError(f"a graph's matrix is square, got shape {x.shape}")
        if x.dtype.kind not in "biuf" and x.dtype.name != "bfloat16":
            raise TypeError(f"a graph's weights are real numbers, got dtype {x.dtype}")
        dtype = x.dtype.newbyteorder("=")
        return cls(s, x.shape[0], dtype, x, undirected=directed is False, labels=labels)

    def blocks(self, grid: Grid) -> dict[At, Delayed]:
        """Its tiles, each computed when it is wanted, by the worker that needs it."""
        s, dtype = self.s, self.dtype
        at = [(i, j) for i in range(grid.count) for j in range(grid.count)]
        if self.edges is None:
            array, chunks = self.array, (grid.tile, grid.tile)
            if not isinstance(array, da.Array):
                array = da.from_array(np.asarray(array), chunks, name=False)
            parts = array.rechunk(chunks).to_delayed()
            return {
                (i, j): later(
                    _entries, s, dtype, parts[i, j], parts[j, i] if self.undirected else None
                )
                for i, j in at
            }
        row, col, weight = self.edges.edges().arrays
        tile = row // grid.tile * grid.count + col // grid.tile
        order = np.argsort(tile, kind="stable")
        cuts = np.searchsorted(tile[order], np.arange(grid.count**2 + 1))
        blocks = {}
        for i, j in at:
            k = i * grid.count + j
            some = order[cuts[k] : cuts[k + 1]]
            own = (row[some] - i * grid.tile, col[some] - j * grid.tile)
            shape = (grid.size(i), grid.size(j))
            blocks[i, j] = later(_of_edges, s, dtype, shape, *own, weight[some])
        return blocks


@dataclass(eq=False)
class DaskSource:
    """A source (:class:`~semiring_mm.closures.sources.Source`) in tiles on a cluster."""

    client: Any
    grid: Grid
    s: Semiring
    dtype: np.dtype[Any]
    blocks: dict[At, Delayed]  # the tiles by row and column, each computed when it is wanted
    undirected: bool = False  # whether the matrix is known to equal its transpose
    marked: bool = False  # whether a scan of the tiles makes a digest of them
    margins: NDArray[np.float64] | None = None
    original: dict[At, Delayed] | None = None  # the tiles before they were worsened by margins

    def __post_init__(self) -> None:
        self.n = self.grid.n

    def compute(self, calls: Iterable[Delayed]) -> list[Any]:
        """Futures of some calls."""
        with warnings.catch_warnings():  # the docstring says what a matrix at the client means
            warnings.filterwarnings("ignore", message="Sending large graph")
            return list(self.client.compute(list(calls)))

    def gather(self, calls: Iterable[Delayed]) -> list[Any]:
        """The results of some calls."""
        return list(self.client.gather(self.compute(calls)))

    @cached_property
    def _scan(self) -> tuple[dict[At, Facts], bool, str]:
        """Ranges of the tiles, whether the matrix is symmetric, and a digest."""
        side = range(self.grid.count)
        pairs = [(i, j) for i in side for j in side[i:]]
        seen = self.gather(
            later(_look, self.s, self.blocks[i, j], None if i == j else self.blocks[j, i],
                  self.marked)
            for i, j in pairs
        )  # fmt: skip
        facts = {}
        for (i, j), (above, below, _, _) in zip(pairs, seen, strict=True):
            facts[j, i], facts[i, j] = below, above
        digest = hashlib.sha256("".join(x[3] for x in seen).encode()).hexdigest()
        return facts, all(x[2] for x in seen), digest

    @property
    def facts(self) -> Facts:
        """The range of the entries."""
        return functools.reduce(Facts.join, self._scan[0].values())

    def read(self, rows: slice, columns: slice) -> Delayed:
        """A tile, by its rows and columns."""
        return self.blocks[rows.start // self.grid.tile, columns.start // self.grid.tile]

    def refuse(self, weights: Weights) -> None:
        """Raise ValueError at the first entry that is no weight."""
        for at, facts in sorted(self._scan[0].items()):
            here = replace(weights, facts=facts)
            if here.broken:
                (block,) = self.gather([self.blocks[at]])
                here.refuse(block, (at[0] * self.grid.tile, at[1] * self.grid.tile))

    def symmetric(self) -> bool:
        """Whether the matrix equals its transpose."""
        return self.original is None and (self.undirected or self._scan[1])

    def edges(self) -> EdgeList:
        """Every edge in each of its directions, not worsened."""
        tile = self.grid.tile
        blocks = self.blocks if self.original is None else self.original
        found = self.gather(
            later(_edges, self.s, x, i * tile, j * tile) for (i, j), x in blocks.items()
        )
        return EdgeList.joined(self.n, found).sorted

    def worsened(self, margins: NDArray[np.float64]) -> DaskSource:
        """The same graph with weights worsened by the margins of its nodes."""
        part = self.grid.part
        blocks = {
            (i, j): later(worsened, self.s, x, margins[part(i), np.newaxis], margins[part(j)])
            for (i, j), x in self.blocks.items()
        }
        return replace(self, blocks=blocks, margins=margins, original=self.blocks)

    def numbers(self, s: Semiring) -> DaskSource:
        """A matrix of truth values as the numbers 0 and 1 of another semiring."""
        blocks = {at: later(np.asarray, x, np.uint8) for at, x in self.blocks.items()}
        return replace(self, s=s, dtype=np.dtype(np.uint8), blocks=blocks)

    def fingerprint(self) -> str:
        """A digest of the graph, if it is `marked`."""
        return self._scan[2]


# --- what the workers do ------------------------------------------------------------------------


def _entries(s: Semiring, dtype: np.dtype[Any], block: Array, opposite: Array | None) -> Array:
    """A block as a new array on the host; joined to the transpose of the one opposite."""
    entries = np.array(_on_host(block), dtype)
    if opposite is not None:
        other = np.asarray(_on_host(opposite)).T.astype(dtype)
        entries = np.asarray(evaluate(s.add_expr, entries, other)).astype(dtype)
    return entries


def _of_edges(
    s: Semiring, dtype: np.dtype[Any], shape: At, row: NDArray[np.int64], col: NDArray[np.int64],
    weight: Array,
) -> Array:  # fmt: skip
    block = np.full(shape, s.identities(dtype)[0], dtype)
    join_edges(s, block, row, col, weight)
    return block


def _on_host(x: Array) -> Array:
    return x.get() if hasattr(x, "get") else x


def _look(
    s: Semiring, above: Array, below: Array | None, mark: bool
) -> tuple[Facts, Facts, bool, str]:
    """Ranges of blocks (i, j) and (j, i), whether they mirror each other, and their digest."""
    blocks = [above] if below is None else [above, below]
    facts = [engines.named("cpu").facts(s, x) for x in blocks]
    digest = hashlib.sha256()
    for x in blocks if mark else []:
        digest.update(x.tobytes())
    return facts[0], facts[-1], np.array_equal(above, blocks[-1].T), digest.hexdigest()


def _edges(s: Semiring, block: Array, row: int, col: int) -> tuple[Array, Array, Array]:
    rows, cols, weights = edges_of(s, block)
    return rows + row, cols + col, weights
