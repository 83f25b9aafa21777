"""Pairs of nodes within a radius, without the matrix of all distances."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from .. import pool
from ..arrays import check_memory
from ..closures.labelled import objects, pandas
from ..display import Shown, Table
from ..graph_kernels import Index, offsets, ranges
from ..hierarchy.reach import Reach
from ..memory import too_large
from ..naming import integer, optional
from ..progress import Progress, Tick, reporter
from .inputs import positions
from .prepared import distances_of
from .rows import Rows, Sweeps
from .statistics import rows_for

__all__ = ["Within", "check_radius", "within"]

Array = NDArray[Any]
Part = tuple[Index, NDArray[np.int32], Array]

_PAIRS = 1 << 23  # of a batch: 100 MB
_LEAST = 64  # sources of a batch
_ADVICE = (
    'batch="auto" gives them in batches of sources, and sm.statistics(graph, "within", '
    "radius=...) counts them"
)


@dataclass(frozen=True, repr=False)
class Within(Shown):
    """Pairs of nodes within a radius: a sparse matrix by rows, one for each source.

    The pairs of source i are the entries from ``indptr[i]`` to ``indptr[i + 1]``, in no order of
    use. A source that is a target is within any radius of itself.

    Attributes
    ----------
    nodes : sequence
        All nodes of the graph.
    sources : (k,) int64
        The positions of the sources in `nodes`.
    targets : (t,) int64, optional
        Those of the targets; None: all nodes.
    indptr : (k + 1,) int64
    indices : (pairs,) int32
        Columns: positions in `targets` or, without these, in `nodes`.
    distance : (pairs,) array
    """

    __module__ = "semiring_mm"  # where users import it from

    nodes: Sequence[Any]
    sources: Index
    targets: Index | None
    indptr: Index
    indices: NDArray[np.int32]
    distance: Array

    @property
    def shape(self) -> tuple[int, int]:
        """Number of sources and of targets."""
        return len(self.sources), len(self.nodes if self.targets is None else self.targets)

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self.indices)

    def _title(self) -> str:
        rows, columns = self.shape
        return f"Within: {len(self):,} pairs of {rows} x {columns} nodes, {self.distance.dtype}"

    def _table(self) -> Table:
        def row(i: int) -> list[Any]:
            source = self.sources[np.searchsorted(self.indptr, i, side="right") - 1]
            target = self.indices[i] if self.targets is None else self.targets[self.indices[i]]
            return [self.nodes[int(source)], self.nodes[int(target)], self.distance[i]]

        return ["source", "target", "distance"], len(self), row

    def to_scipy(self) -> Any:
        """The pairs as a sparse matrix of SciPy's, which shares the memory.

        Distances of 0 are stored entries.

        Returns
        -------
        scipy.sparse.csr_array, shape (sources, targets)
        """
        sparse = optional("scipy.sparse", "to_scipy() makes an array of SciPy", "scipy")
        return sparse.csr_array((self.distance, self.indices, self.indptr), shape=self.shape)

    def _columns(self) -> dict[str, Any]:
        source = np.repeat(self.sources, np.diff(self.indptr))
        target = self.indices if self.targets is None else self.targets[self.indices]
        if not isinstance(self.nodes, range):
            names = objects(self.nodes)
            source, target = names[source], names[target]
        return {"source": source, "target": target, "distance": self.distance}

    def to_frame(self) -> Any:
        """A table of pandas with a row for each pair.

        Returns
        -------
        pandas.DataFrame
            Columns source, target and distance.
        """
        return pandas().DataFrame(self._columns())

    def to_arrow(self) -> Any:
        """A table of Arrow with a row for each pair.

        Returns
        -------
        pyarrow.Table
            Columns source, target and distance.
        """
        pa = optional("pyarrow", "to_arrow() makes a table of Arrow", "io")
        return pa.table(self._columns())


@overload
def within(
    graph: Any, radius: float, *, weight: str | int | None = ..., source: Any = ...,
    target: Any = ..., dtype: Any = ..., directed: bool | None = ..., sources: Any = ...,
    targets: Any = ..., outward: bool = ..., batch: None = ..., progress: Progress = ...,
) -> Within: ...  # fmt: skip
@overload
def within(
    graph: Any, radius: float, *, weight: str | int | None = ..., source: Any = ...,
    target: Any = ..., dtype: Any = ..., directed: bool | None = ..., sources: Any = ...,
    targets: Any = ..., outward: bool = ..., batch: int | Literal["auto"],
    progress: Progress = ...,
) -> Iterator[Within]: ...  # fmt: skip
def within(
    graph: Any,
    radius: float,
    *,
    weight: str | int | None = "weight",
    source: Any = None,
    target: Any = None,
    dtype: Any = None,
    directed: bool | None = None,
    sources: Any = None,
    targets: Any = None,
    outward: bool = True,
    batch: int | Literal["auto"] | None = None,
    progress: Progress = None,
) -> Within | Iterator[Within]:
    """Pairs of nodes within a radius of each other, with their distances.

    Parameters
    ----------
    graph : any graph that :func:`adjacency` takes, or a prepared one of :func:`prepare`
    radius : float
        Pairs at this distance belong to it; inf: all that there are paths between. In the unit of
        the weights.
    weight, source, target, dtype, directed : optional
        As for :func:`statistics`.
    sources, targets : node, or sequence of nodes, optional
        Default: all nodes. A target that is given twice has one column.
    outward : bool, default True
        In a directed graph: the distances from the sources; False: to them.
    batch : int or "auto", optional
        How many sources the parts have of an iterator, for more pairs than there is memory for;
        "auto": as many as have about eight million pairs. Sources that are near each other come
        together: each part has its own ``sources``. None: all at once.
    progress : bool or callable, optional
        As for :func:`apsp`, of the sources.

    Returns
    -------
    Within, or an iterator of Within

    Raises
    ------
    ValueError
        If the radius is negative or NaN, there is no such node, or a cycle has negative weight
        (:class:`NegativeCycleError`).
    MemoryError
        If the pairs do not fit.

    Notes
    -----
    Over an elimination (see :func:`prepare`) a sweep from a block of sources leaves out each
    subtree whose nodes are all beyond the radius: about O(g) time for a source, g being the edges
    of the elimination between what is within the radius and what is above it. Where there are
    negative weights nothing is left out. Graphs with large separators are searched from each
    source, without regard to the radius, unless they are prepared.

    Examples
    --------
    >>> import semiring_mm as sm
    >>> net = sm.prepare({"a": {"b": 3, "c": 8}, "b": {"c": 1}})
    >>> found = sm.within(net, 3)
    >>> found
    <Within: 5 pairs of 3 x 3 nodes, float64>
    >>> sorted(zip(*(x.tolist() for x in found._columns().values())))
    [('a', 'a', 0.0), ('a', 'b', 3.0), ('b', 'b', 0.0), ('b', 'c', 1.0), ('c', 'c', 0.0)]
    >>> sum(len(part) for part in net.within(3, batch="auto"))
    5
    """
    radius = check_radius(radius)
    if not (batch is None or batch == "auto"):
        batch = integer(batch, "batch", ', "auto" or None')
        if batch < 1:
            raise ValueError(f"batch: a positive number of sources, got {batch}")
    edges, metric = distances_of(graph, weight, directed, source, target, dtype, "within")
    start = positions(sources, edges.n, edges.nodes, "sources")
    end = positions(targets, edges.n, edges.nodes, "targets")
    start = np.arange(edges.n) if start is None else start
    if end is not None:
        end = end[np.sort(np.unique(end, return_index=True)[1])]
    reporter(progress, 1.0)  # the argument's own errors come first
    rows = rows_for(edges, len(start), metric, metric=True)
    rows = rows if outward else rows.reversed
    order, nodes = rows.order(start), edges.nodes
    tick = reporter(progress, float(len(start)), "pairs within a radius", "sources")
    parts = _parts(rows, radius, start[order], end, batch, tick)
    if batch is not None:
        return (Within(nodes, some, end, offsets(part[0]), *part[1:]) for some, part in parts)
    kept = list[Part]()
    pairs = done = 0
    for some, part in parts:
        kept.append(part)
        pairs, done = pairs + len(part[1]), done + len(some)
        _check(pairs, 12 * max(pairs, pairs * len(start) // done // 4))  # others may have fewer
    counts = np.empty(len(start), np.int64)
    counts[order] = np.concatenate([np.empty(0, np.int64), *(x[0] for x in kept)])
    indptr = offsets(counts)
    kind = kept[0][2].dtype if kept else rows.dtype
    indices, distance = np.empty(pairs, np.int32), np.empty(pairs, kind)
    kept.reverse()
    done = 0
    while kept:
        count, index, d = kept.pop()
        at = ranges(indptr[order[done : done + len(count)]], count)
        indices[at], distance[at] = index, d
        done += len(count)
    return Within(nodes, start, end, indptr, indices, distance)


def check_radius(radius: Any, name: str = "radius") -> float:
    """A radius as a number.

    Raises
    ------
    ValueError, TypeError
        If it is negative, NaN, or no number.
    """
    if isinstance(radius, bool) or not isinstance(radius, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} is a number in the unit of the weights, got {radius!r}")
    if not radius >= 0:
        raise ValueError(f"{name} is not negative, got {radius!r}")
    return float(radius)


def _check(pairs: int, needed: int) -> None:
    """Raise MemoryError if there is no such memory beside that of the pairs so far."""
    free = engines.named("cpu").free_memory() if needed > 1 << 20 else None
    if free is not None and needed > free:
        raise too_large(f"the list of more than {pairs:,} pairs", needed, free, _ADVICE)


def _parts(
    rows: Rows, radius: float, sources: Index, targets: Index | None,
    batch: int | Literal["auto"] | None, tick: Tick | None,
) -> Iterator[tuple[Index, Part]]:  # fmt: skip
    """Sources, in their order, and what they reach."""
    if isinstance(rows, Sweeps):
        pairs = _by_sweeps(rows, radius, len(sources), targets)
    else:
        pairs = _by_rows(rows, radius, len(sources), targets)
    n = rows.problem.source.n
    size = batch if isinstance(batch, int) else max(_LEAST, _PAIRS // max(n, 1))
    done = 0
    while done < len(sources):
        some = sources[done : done + size]
        part = pairs(some)
        done += len(some)
        if tick is not None:
            tick(float(done))
        yield some, part
        if not isinstance(batch, int):
            size = min(8 * size, max(_LEAST, _PAIRS * len(some) // max(1, len(part[1]))))


def _by_sweeps(rows: Sweeps, radius: float, count: int, targets: Index | None) -> Any:
    reach = Reach(rows.metric, radius, count, targets)
    check_memory(reach.bytes(whole=True), f"the work by {rows.method}")
    rank, dtype = rows.metric.structure.rank, rows.problem.source.dtype

    def pairs(some: Index) -> Part:
        parts = reach.parts(rank[some].astype(np.int64))
        found: list[Any] = [None] * len(parts)

        def run(i: int) -> None:
            found[i] = reach.pairs(parts[i], dtype)

        pool.run([functools.partial(run, i) for i in range(len(parts))])
        count, index, d = (np.concatenate(x) for x in zip(*found, strict=True))
        return count, index, d

    return pairs


def _by_rows(rows: Rows, radius: float, count: int, targets: Index | None) -> Any:
    n = rows.problem.source.n if targets is None else len(targets)
    step = max(1, _PAIRS // max(n, 1))
    check_memory(min(step, count) * n * 20, f"the work by {rows.method}")

    def pairs(some: Index) -> Part:
        parts = list[Part]()
        for i in range(0, len(some), step):
            d = rows.computed(some[i : i + step], targets)
            near = d != rows.problem.steps.identities[0]
            near &= d <= radius
            row, column = near.nonzero()
            counts = np.bincount(row, minlength=len(d))
            parts.append((counts, column.astype(np.int32), rows.problem.restore(d[row, column])))
        count, index, distance = (np.concatenate(x) for x in zip(*parts, strict=True))
        return count, index, distance

    return pairs
