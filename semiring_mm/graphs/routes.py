"""Routes: the best paths of many pairs of nodes at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..closures.edges import EdgeList, is_table
from ..closures.labelled import objects, pandas
from ..display import Shown, Table
from ..graph_kernels import Index, offsets
from ..naming import integer
from ..progress import Progress, part_of, reporter
from .inputs import as_graph

if TYPE_CHECKING:
    from .prepared import PreparedGraph

__all__ = ["Paths", "paths"]

Array = NDArray[Any]

_FORMS = (
    "pairs are a sequence or an array of (source, target), a tuple of two sequences (sources, "
    "targets), or a table or file with the columns origin and destination"
)


@dataclass(frozen=True, repr=False)
class Paths(Shown):
    """Best paths of many pairs of nodes: :meth:`PreparedGraph.paths` finds them.

    Path i, from ``sources[i]`` to ``targets[i]``, has the nodes
    ``nodes[indptr[i]:indptr[i + 1]]``, both ends included, and along these the edges
    ``edges[edge_indptr[i]:edge_indptr[i + 1]]``. Where there is no path it has neither. Iteration
    gives the labels of the nodes of each.

    Attributes
    ----------
    sources, targets : (k,) int64
        Positions of nodes.
    weight : (k,) array
        The semiring's zero (inf for min_plus) where there is no path.
    indptr, edge_indptr : (k + 1,) int64
        Where the nodes and the edges of each path begin.
    nodes : int32 array
        Positions of nodes.
    edges : int64 array
        Positions in the edges of the graph, in their order when it was prepared; of parallel edges
        that of the best one, of equal ones the first.
    graph : EdgeList
        The edges of the graph: ``nodes``, the labels, and ``row``, ``col`` and ``weight``.
    """

    __module__ = "semiring_mm"  # where users import it from

    sources: Index
    targets: Index
    weight: Array
    indptr: Index
    edge_indptr: Index
    nodes: NDArray[np.int32]
    edges: Index
    graph: EdgeList = field(repr=False)

    @property
    def without_path(self) -> NDArray[np.bool_]:
        """Whether there is no path, of each pair."""
        none: NDArray[np.bool_] = self.indptr[1:] == self.indptr[:-1]
        return none

    @property
    def legs(self) -> Index:
        """The number of edges of each path."""
        count: Index = np.diff(self.edge_indptr)
        return count

    @property
    def rows(self) -> Index:
        """The row of the table that the graph was prepared from, of each of `edges`."""
        rows = self.graph.table_rows
        return self.edges if rows is None else rows[self.edges]

    def __len__(self) -> int:
        return len(self.sources)

    def labels(self, i: int) -> list[Any]:
        """The labels of the nodes of a path.

        Parameters
        ----------
        i : int

        Returns
        -------
        list
            Empty where there is no path.
        """
        i = integer(i, "i")
        if not -len(self) <= i < len(self):
            raise IndexError(f"there are {len(self)} paths, 0 to {len(self) - 1}, got {i}")
        i %= len(self)
        names = self.graph.nodes
        return [names[v] for v in self.nodes[self.indptr[i] : self.indptr[i + 1]].tolist()]

    def __iter__(self) -> Iterator[list[Any]]:
        return map(self.labels, range(len(self)))

    def sums(self, values: Any) -> NDArray[np.float64]:
        """Sums of another quantity along each path, such as its length.

        Parameters
        ----------
        values : (m,) array_like
            A number for each edge of the graph, or each row of the table it was prepared from.

        Returns
        -------
        (k,) float64
            inf where there is no path.

        Examples
        --------
        >>> import semiring_mm as sm
        >>> net = sm.prepare({"a": {"b": 3, "c": 8}, "b": {"c": 1}})
        >>> net.paths([("a", "c"), ("c", "a")]).sums([10, 20, 30])
        array([40., inf])
        """
        given, m, table = np.asarray(values), len(self.graph.col), self.graph.table_rows
        if table is not None and len(table) and given.shape == (table.max() + 1,):
            given = given[table]
        if given.shape != (m,) or given.dtype.kind not in "biuf":
            raise ValueError(
                f"values are {m} numbers, one for each edge of the graph, got shape {given.shape} "
                f"and dtype {given.dtype}"
            )
        found = np.full(len(self), np.inf)
        found[~self.without_path] = 0.0
        some = np.flatnonzero(self.legs)
        if some.size:
            along = given[self.edges].astype(np.float64)
            found[some] = np.add.reduceat(along, self.edge_indptr[some])
        return found

    def _title(self) -> str:
        lost = int(self.without_path.sum())
        rest = f", {lost} pairs without a path" if lost else ""
        return f"Paths: {len(self)} with {len(self.edges)} edges{rest}"

    def _table(self) -> Table:
        def row(i: int) -> list[Any]:
            ends = (self.graph.nodes[v[i]] for v in (self.sources, self.targets))
            return [*ends, self.weight[i], self.legs[i]]

        return ["from", "to", "weight", "legs"], len(self), row

    def to_frame(self, *, legs: bool = False) -> Any:
        """A table of pandas with a row for each path, or for each edge of them.

        Parameters
        ----------
        legs : bool, default False
            A row for each edge of each path, in turn.

        Returns
        -------
        pandas.DataFrame
            Columns from, to, weight and legs, the number of edges; of edges path, the number of the
            path, from, to, and edge, its position in the graph.
        """
        pd, names = pandas(), objects(self.graph.nodes)

        def labels(x: Array) -> Any:
            return pd.Series(names[x]).infer_objects()

        if not legs:
            return pd.DataFrame({
                "from": labels(self.sources), "to": labels(self.targets), "weight": self.weight,
                "legs": self.legs,
            })  # fmt: skip
        last = np.zeros(len(self.nodes), bool)
        last[self.indptr[1:][~self.without_path] - 1] = True
        begins = np.flatnonzero(~last)
        return pd.DataFrame({
            "path": np.arange(len(self)).repeat(self.legs), "from": labels(self.nodes[begins]),
            "to": labels(self.nodes[begins + 1]), "edge": self.edges,
        })  # fmt: skip


def paths(net: PreparedGraph, pairs: Any, progress: Progress = None) -> Paths:
    """Best paths of many pairs of nodes: :meth:`PreparedGraph.paths`."""
    ends = _ends(net, pairs)
    tick = reporter(progress, float(len(ends)), "queries", "pairs")
    weight, steps, after, edges = net.routes(ends, part_of(tick, 0.0, len(ends)))
    if tick is not None:
        tick(float(len(ends)))
    there = steps >= 0
    indptr, edge_indptr = offsets(steps + 1), offsets(np.maximum(steps, 0))
    nodes, begins = np.empty(indptr[-1], np.int32), np.zeros(indptr[-1], bool)
    begins[indptr[:-1][there]] = True
    nodes[begins], nodes[~begins] = ends[there, 0], after
    source, target = ends.T.copy()
    return Paths(source, target, weight, indptr, edge_indptr, nodes, edges, net.edges.original)


def _ends(net: PreparedGraph, pairs: Any) -> Index:
    """The positions of pairs, (k, 2)."""
    if is_table(pairs) or isinstance(pairs, (str, PathLike)):
        found, labels = as_graph(pairs, weight=None)
        if found.table_rows is not None:
            raise ValueError(
                "the table of pairs has a column that tells in which direction edges lead: leave "
                "it out"
            )
        names = range(found.n) if labels is None else labels
        known = net.positions(list(names), "pairs")
        assert known is not None
        return np.stack([known[found.row], known[found.col]], 1)
    if isinstance(pairs, tuple):
        if len(pairs) != 2 or not all(_several(x) for x in pairs):
            given = "a tuple" if len(pairs) != 2 else "a tuple of two nodes: path() finds one path"
            raise ValueError(f"{_FORMS}, got {given}")
        columns = pairs
    elif isinstance(pairs, np.ndarray):
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise ValueError(f"{_FORMS}, got an array of shape {pairs.shape}")
        columns = tuple(pairs.T) if pairs.dtype.kind in "iu" else tuple(pairs.T.tolist())
    else:
        try:
            rows = list(pairs)
            wrong = next((x for x in rows if isinstance(x, str) or len(x) != 2), None)
        except TypeError:
            raise TypeError(f"{_FORMS}, got {pairs!r:.60}") from None
        if wrong is not None:
            raise ValueError(f"{_FORMS}, got {wrong!r:.60} in place of a pair")
        columns = [x[0] for x in rows], [x[1] for x in rows]
    source, target = (
        net.positions(np.ascontiguousarray(x) if isinstance(x, np.ndarray) else list(x), name)
        for x, name in zip(columns, ("sources", "targets"), strict=True)
    )
    assert source is not None
    assert target is not None
    if len(source) != len(target):
        raise ValueError(
            f"pairs: there are {len(source)} sources and {len(target)} targets, one each for a path"
        )
    return np.stack([source, target], 1)


def _several(x: Any) -> bool:
    """Whether it is a sequence of nodes."""
    return hasattr(x, "__len__") and not isinstance(x, (str, bytes)) and hasattr(x, "__iter__")
