"""Prepared graphs: an elimination computed once, for many weights and many queries."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from .. import pool
from ..arrays import Call, check_all_pairs, check_memory, device_index, where
from ..closures.edges import EdgeList, edge_dtype, is_table, with_ends
from ..closures.labelled import Labels, labelled, reconstruct_path
from ..closures.solve import Problem
from ..closures.sources import EdgeSource
from ..closures.steps import path_plan
from ..closures.trees import has_ties
from ..closures.weights import as_numbers, edges_of
from ..hierarchy import costs
from ..hierarchy.devices import Placed, device_customizer, fetch, host_metric, place
from ..hierarchy.leaves import Leaves
from ..hierarchy.metric import Arcs, Metric, customize, customize_along
from ..hierarchy.symbolic import Structure, analyze, factorize, neighbours
from ..lazy import cached_property
from ..plan import stored
from ..progress import Progress, part_of, reporter
from ..registry import provided
from ..semirings import Semiring, as_semiring, semirings
from ..storage import atomic_write, digest, one_line, read_arrays
from ..warn import warn
from .inputs import (
    are_paths,
    as_graph,
    check_matrix,
    is_matrix,
    positions,
    warn_of_edges,
    warn_of_entries,
)
from .queries import PathQuery
from .rows import Sweeps

if TYPE_CHECKING:
    from .flows import Flows
    from .routes import Paths
    from .within import Within

__all__ = [
    "PreparedGraph", "distances_of", "edges_of_graph", "load", "network", "prepare", "preparing",
]  # fmt: skip

Array = NDArray[Any]
Index = NDArray[np.int64]

_VERSION = 2
#: Nanoseconds of a core's closure from which there is a warning.
_LONG = 5e9
#: Bytes of an edge of an elimination with a second quantity.
_ENTRY = 60
#: Pairs of nodes whose paths a task of a thread finds at least.
_PAIRS = 16
#: Steps of a path that the predecessors of a sweep are to tell.
_BY_TREES = -2
#: Bytes a node and an edge that the preparation of a road network takes at its peak, beside the
#: graph: 0.8 GiB for 5 million nodes. Larger separators take more, which only the order tells.
_NODE, _EDGE = 100, 60
_UNPREPARED = (
    "without preparing it, sm.apsp(graph, sources=...) searches from some nodes, and "
    "sm.nearest(graph, facilities) from facilities"
)
#: What to do about a graph whose zone centroids begin and end paths only.
_THROUGH = "semiring-mm prepare --through prepares one in which paths may pass through them"
#: Types of what is said about a file's graph.
_ABOUT = {
    "version": int, "directed": bool, "dtype": str, "fringe": int, "columns": list, "semiring": list
}  # fmt: skip
#: Arrays of the structure in a file; types of all arrays but the weights and labels.
_STRUCTURE = {
    "node": "order", "parent": "parent", "level": "height", "first": "first", "head": "head",
}  # fmt: skip
_OPTIONAL = {"labels", "table_rows", "ends"}
_TYPES = {
    **dict.fromkeys(("node", "parent", "level", "head"), np.dtype(np.int32)),
    **dict.fromkeys(("row", "col", "table_rows", "ends"), np.dtype(np.int32)),
    "first": np.dtype(np.int64), "about": np.dtype(np.uint8),
}  # fmt: skip

#: What users see of a prepared graph; the rest is for the modules that compute with it.
_PUBLIC = (
    "accessibility", "customize", "directed", "distance", "distances", "dtype", "flows", "nodes",
    "path", "paths", "save", "semiring", "within",
)  # fmt: skip

#: Prepared graphs by their keys, and how many there have been.
_networks: weakref.WeakValueDictionary[str, PreparedGraph] = weakref.WeakValueDictionary()
_count = itertools.count()


class Key(str):
    """The text by which operators of array libraries, which take no objects, name a graph."""

    # the graph without a state, which so lives as long as any copy of the key that is no mere text
    graph: PreparedGraph


def network(key: str) -> PreparedGraph:
    """The prepared graph of a key, of which only :meth:`PreparedGraph.reweighted` is used."""
    found = key.graph if isinstance(key, Key) else _networks.get(key)
    if found is None:
        raise RuntimeError(
            "a prepared graph is gone, whose distances were compiled or exported: keep it as long "
            "as they and their gradients are computed"
        )
    return found


class PreparedGraph:
    """A graph prepared for many questions about best paths: a customizable contraction hierarchy.

    :func:`prepare` and :func:`load` make it. It is safe to ask from several threads.

    Attributes
    ----------
    nodes : sequence
        The labels of the nodes, or ``range(n)``.
    semiring : Semiring
    dtype : dtype
        Of the results.
    directed : bool
    fill : int
        Edges of the elimination that the graph has not.
    depth : int
        Nodes on the longest way up the elimination tree: a query climbs it.
    core : int
        Nodes that are left as a dense core, since they have no small separators.
    summary : str
        These in words, as :func:`explain` prints them.

    Examples
    --------
    >>> import semiring_mm as sm
    >>> net = sm.prepare({"a": {"b": 3, "c": 8}, "b": {"c": 1}})
    >>> net.fill, net.depth, net.core
    (0, 3, 0)
    >>> net.distance("a", "c"), net.path("a", "c")
    (4.0, ['a', 'b', 'c'])
    >>> net.distances(["a", "b"], targets=["c"])
    LabelledArray, 2 x 1, float64
       c
    a  4
    b  1
    >>> net.customize([3, 2, 1])
    >>> net.distance("a", "c")
    2.0
    """

    __module__ = "semiring_mm"  # where users import it from

    def __init__(
        self, s: Semiring, edges: EdgeList, structure: Structure,
        columns: tuple[str | int | None, Any, Any], progress: Progress = None,
    ) -> None:  # fmt: skip
        self.semiring, self.directed, self._ends = s, edges.directed, edges.ends
        self._nodes, self.nodes = edges.nodes, edges.nodes
        if edges.ends is not None:
            self.nodes = edges.nodes[: len(edges.ends)]
        self.dtype = np.dtype(edges.weight.dtype)
        self._structure, self._columns = structure, columns
        numbered = isinstance(edges.nodes, range)
        self._labels = None if numbered else Labels(self.nodes).unique()
        self._arcs = Arcs.of(structure, edges.row, edges.col, undirected=not edges.directed)
        self._table: Any = None  # what it was prepared from, if that has columns of weights
        self._said: list[Array] | None = None  # of its edges by that, if it is in memory
        self._customizers: dict[int, Callable[[Problem], Metric]] = {}  # of CUDA devices
        self._rows = edges.table_rows
        self._parts: list[tuple[Index, NDArray[np.float64]]] = []  # what edges of places are of
        self._register()
        self._state = self._customized(edges, None, progress=progress)

    def _register(self) -> None:
        """Have a key of its own, by which it is found."""
        self._last: PreparedGraph | None = None  # of other weights
        bare, self.key = self._copy(), Key(f"prepared graph {next(_count)}")
        self.key.graph = _networks[str(self.key)] = bare

    def _copy(self) -> PreparedGraph:
        """The same graph, whose state may change without this one's."""
        other = object.__new__(PreparedGraph)
        vars(other).update(vars(self))
        return other

    @property
    def edges(self) -> EdgeList:
        """The graph's edges with the weights of now."""
        return self._state.edges

    @property
    def metric(self) -> Metric:
        """The weights of the elimination, for what is computed from it."""
        return self._state.metric

    @property
    def problem(self) -> Problem:
        """The problem of the weights, for the same."""
        return self._state.problem

    @property
    def depth(self) -> int:
        """Nodes on the longest way up the elimination tree."""
        return self._structure.depth

    @property
    def core(self) -> int:
        """Nodes of the dense core."""
        return self._structure.core

    @property
    def fill(self) -> int:
        """Edges of the elimination that the graph has not."""
        x, edges = self._structure, self._state.edges
        u, v = x.rank[edges.row], x.rank[edges.col]
        low, high = np.minimum(u, v).astype(np.int64), np.maximum(u, v)
        own = (low < x.eliminated) & (low != high)  # between nodes of the core nothing is filled in
        return len(x.head) - len(np.unique(low[own] * x.n + high[own]))

    @property
    def summary(self) -> str:
        """What was prepared, in words."""
        return f"{self.edges.original.summary}; {self.fill:,} filled in: {self._structure.summary}"

    def __repr__(self) -> str:
        return f"<PreparedGraph: {self.edges.original.summary}, {self.semiring.name}, {self.dtype}>"

    def __dir__(self) -> list[str]:
        return [*_PUBLIC]

    def __reduce__(self) -> Any:
        own = (self.semiring, self._state.edges, self._structure, self._columns)
        return PreparedGraph, own

    def customize(
        self,
        weights: Any,
        *,
        weight: str | int | None = None,
        device: str | None = None,
        progress: Progress = None,
    ) -> None:
        """Give the edges new weights; what follows uses them.

        Parameters
        ----------
        weights : array_like of shape (m,), str, or a graph
            A number for each edge, in the order of the edges of the prepared graph, or for each row
            of the table that it was prepared from, of whose rows some may be two edges; the
            semiring's zero (inf for min_plus) closes an edge. A column of a table is taken row by
            row, whatever its index. Or a graph with the same nodes and edges in any order, such as
            a table with the columns of the prepared one. A string is a column of the table or file
            that the graph was prepared from or, where there is no such column, a file.
        weight : str or int, optional
            The column of a table or file, or the attribute of edges, that holds the weights.
            Default: that of the prepared graph.
        device : {None, "cpu", "cuda", "cuda:N"}
            Where the edges of the elimination get their weights; None: where `weights` lives. From
            a CUDA device they are copied when something is first asked of the CPU.
        progress : bool or callable, optional
            As for :func:`prepare`; on the CPU.

        Raises
        ------
        ValueError
            If there are more or fewer weights than edges, the graph has other edges, or a cycle
            improves itself (over min_plus as :class:`NegativeCycleError`). The weights are as
            before then.

        Notes
        -----
        Triangles are joined in O(Σ degree²) time, the degrees being those of the elimination;
        disjoint subtrees on all threads. Dibbelt, Strasser and Wagner (2016).

        Examples
        --------
        >>> import semiring_mm as sm
        >>> net = sm.prepare({0: {1: 5.0}, 1: {2: 5.0}})
        >>> net.customize([1, 2])
        >>> net.distances(0)
        LabelledArray, 1 x 3, float64
           0  1  2
        0  0  1  3
        """
        if self.dtype.kind == "b":
            raise ValueError(
                f"over {self.semiring.name} in bool an edge has no weight: prepare the graph "
                f"without the edges that are closed"
            )
        index, place = device_index(device), where(weights, "weights")
        if place is not None:
            engine = engines.named("cuda")
            index = place if device is None else index
            with engine.on(place):
                weights = engine.to_host(engine.xp.asarray(weights))
        edges = self._weighted(self._as_weights(weights, weight))
        warn_of_edges(self.semiring, edges)
        typed = _typed(self.semiring, edges, self.dtype)
        self._state = self._customized(typed, self._state, index, progress)

    def _weighted(self, values: Array) -> EdgeList:
        """The edges with a weight for each."""
        row, col, rows = self._arcs.row, self._arcs.col, self._rows
        further = len(self._nodes) - len(self.nodes)  # edges to ends
        m = len(row) - further
        if values.shape != (m,):
            read = "" if rows is None else f", read from a table of {rows.max() + 1} rows"
            raise ValueError(
                f"the prepared graph has {m} edges, one weight each{read}, got {len(values)}"
            )
        if further:
            one = np.full(further, self.semiring.one)
            if np.isfinite(self.semiring.one):
                one = one.astype(values.dtype)
            values = np.concatenate([values, one])
        return EdgeList(
            self._nodes, row, col, values, self.directed, table_rows=rows, ends=self._ends
        )

    def reweighted(self, weights: Array) -> PreparedGraph:
        """The same graph with other weights, in float64; this one stays as it is.

        That of the weights of the last call is kept, of which a gradient asks again. `weights` as
        for :meth:`customize`, but that negative ones are a ValueError.

        :meta private:
        """
        self._refuse_ends("lengths that are learned are")
        values = np.array(self._as_weights(weights, None), np.float64)  # theirs may change in place
        last, edges = self._last, self._weighted(values)
        if (negative := np.flatnonzero(edges.weight < 0)).size:
            e = int(negative[0])
            raise ValueError(
                f"the weight of {self._edge(e)} is {edges.weight[e]:g}, and lengths that are "
                f"learned are not negative: keep them so, as by softplus or exp"
            )
        if last is None or not np.array_equal(last.edges.weight, values):
            last = self._copy()
            last.dtype, last._last = values.dtype, None
            last._state = last._customized(edges, None)
            self._last = last
        return last

    def with_places(
        self, edge: Index, fraction: NDArray[np.float64], *, twin: Index | None = None,
        alone: int = 0,
    ) -> PreparedGraph:  # fmt: skip
        """The graph with nodes on its edges, which numbers name; this one stays as it is.

        An edge with a place leads as before, and over it.

        :meta private:

        Parameters
        ----------
        edge : (k,) int64, ascending
            The edge that each place is on.
        fraction : (k,) float64
            The part of the edge's weight from its tail to the place: more than 0, less than 1, and
            ascending along each edge.
        twin : (k,) int64, optional
            In a directed graph the edge that leads back over the same places, -1 where there is
            none, which is the default.
        alone : int
            Further nodes, without any edge.

        Returns
        -------
        PreparedGraph
            Over min_plus. Node `n + i` is the i-th place, and those without an edge come last.

        Raises
        ------
        ValueError
            If the graph is not of min_plus in floating point, or edges or fractions are not such.

        Notes
        -----
        No elimination: arrays are copied, with two edges for each place. O(n + m + f + k log k)
        time, f being the edges of the elimination.
        """
        self._refuse_ends("places are")
        m = len(self._arcs.row)
        if self.semiring.name != "min_plus" or self.dtype.kind != "f":
            raise ValueError(
                f"places are on edges of min_plus in floating point, the graph is over "
                f"{self.semiring.name} in {self.dtype}"
            )
        if len(edge) and not (edge[0] >= 0 and edge[-1] < m and (np.diff(edge) >= 0).all()):
            raise ValueError(f"edges are ascending positions among {m}")
        rising = (fraction[1:] > fraction[:-1]) | (edge[1:] != edge[:-1])
        if not (rising.all() and ((fraction > 0) & (fraction < 1)).all()):
            raise ValueError("fractions are between 0 and 1, and ascending along an edge")
        ends = self._arcs.row[edge], self._arcs.col[edge]
        leaves = Leaves.of(self._structure, edge, *ends, alone)
        edges, ways, part, share = leaves.split(self.edges, edge, fraction, twin)
        other = self._copy()
        other._parts = [*self._parts, (part, share)]
        other.nodes = other._nodes = edges.nodes
        other._labels, other._structure = None, leaves.after
        other._rows = other._table = None
        other._columns, other._customizers = (None, None, None), {}
        for name in ("_whole", "_weightless"):
            vars(other).pop(name, None)
        other._arcs = leaves.arcs(self._arcs, edges)
        other._register()
        problem = other._problem(edges)

        def run(problem: Problem) -> Metric:
            plan = path_plan(problem.steps, leaves.after.n)
            if plan.computed_in != self.metric.out.dtype:
                return customize(leaves.after, problem, other._arcs)
            return leaves.metric(self.metric, problem.steps, plan, ways[0], ways[-1])

        other._state = _State(edges, problem, problem.solve(run), other._arcs, None)
        return other

    def spread(self, values: Array) -> Array:
        """Numbers for the edges before there were places on them, (m,), for all edges: (edges,).

        Edges to and from places have their shares of them.

        :meta private:
        """
        for edge, share in self._parts:
            values = np.concatenate([values, values[edge] * share])
        return values

    def whole(self, edges: Index) -> Index:
        """Of which edges, before there were places on them, some edges, (k,), are parts: (k,).

        :meta private:
        """
        first, edges = len(self._arcs.row), edges.copy()
        for edge, _ in self._parts[::-1]:
            first -= len(edge)
            inside = edges >= first
            edges[inside] = edge[edges[inside] - first]
        return edges

    def _as_weights(self, weights: Any, weight: str | int | None) -> Array:
        """One for each edge."""
        table = is_table(weights)
        if table and weight is None:
            columns = provided("Table")(weights)
            if len(columns.names) == 1:
                weights, table = columns.column(0), False
        plain = isinstance(weights, (list, tuple)) and not any(
            isinstance(x, (str, os.PathLike, list, tuple, np.ndarray)) for x in weights
        )
        if plain or (
            hasattr(weights, "__array__") and getattr(weights, "ndim", 1) == 1 and not table
        ):
            if weight is not None:
                raise ValueError(
                    f"weight={weight!r} is a column of a table or an attribute of edges; leave it "
                    f"out, as weights has a number for each edge"
                )
            values = np.asarray(weights)
            rows = self._rows
            if rows is not None and len(values) == rows.max() + 1:
                values = values[rows]
            if values.dtype.kind == "O":  # such as a column that had words, or lacks entries
                values = np.array([self._number(e, x) for e, x in enumerate(values.tolist())])
            if values.dtype.kind not in "biuf":
                raise TypeError(f"weights are real numbers, got dtype {values.dtype}")
            if values.dtype.kind == "f" and np.isnan(values).any():
                e = int(np.flatnonzero(np.isnan(values))[0])
                raise ValueError(f"the weight of {self._edge(e)} is NaN")
            return values
        if isinstance(weights, str) and weight is None:
            file = os.path.isfile(weights)
            if self._table is None and not file:
                raise ValueError(
                    f"{weights!r} is no file, and the prepared graph keeps no table with such a "
                    f"column: write customize(table, weight={weights!r})"
                )
            if self._table is not None:  # a file of that name comes second
                with contextlib.suppress(*[ValueError] * file):
                    return self._of_graph(self._table, weights)
        if isinstance(weights, EdgeList):  # whose weights were chosen when it was read
            return self._matched(edges_of_graph(self.semiring, weights, "weight", self.directed))
        return self._of_graph(weights, self._columns[0] if weight is None else weight)

    def _of_graph(self, graph: Any, weight: str | int | None) -> Array:
        """The weights of a graph with the same edges."""
        if graph is self._table and self._said is not None:  # unchanged, it is not read again
            said, given = provided("columns_of")(graph, weight, *self._columns[1:])
            alike = len(said) == len(self._said) and all(map(np.array_equal, said, self._said))
            if alike and given is not None:
                values: Array = given if self._rows is None else given[self._rows]
                return values
        other = edges_of_graph(self.semiring, graph, weight, self.directed, *self._columns[1:])
        return self._matched(other)

    def _number(self, e: int, x: Any) -> float:
        if not isinstance(x, (int, float, np.integer, np.floating)):
            of = f" for {self._edge(e)[:-1]}" if e < len(self._arcs.row) else ""
            raise TypeError(f"weights are real numbers, got {x!r}{of}")
        return float(x)

    def _edge(self, e: int) -> str:
        edges = self._weightless
        u, v = self.nodes[edges.row[e]], self.nodes[edges.col[e]]
        return f"edge {e}, from {u!r} to {v!r},"

    def _matched(self, other: EdgeList) -> Array:
        """The weights of another graph's edges, in the order of the edges here."""
        row, col, n, own = other.row, other.col, len(self.nodes), self._weightless
        same = other.n == n and other.directed == self.directed and len(row) == len(own.row)
        if same and list(other.nodes) != list(self.nodes):
            for text in (False, True):  # numbers of a table in memory are words in a file
                labels = ([*map(str, x)] if text else [*x] for x in (self.nodes, other.nodes))
                names, new = Labels(next(labels)), next(labels)
                places = np.array([names.place(x) for x in new if x in names], np.int64)
                if same := len(np.unique(places)) == n:
                    row, col = places[row], places[col]
                    break
        if same:
            mine = _sorted_ends(n, own.row, own.col, self.directed)
            theirs = _sorted_ends(n, row, col, self.directed)
            same = np.array_equal(mine[0], theirs[0])
        if not same:
            kind = "directed" if other.directed else "undirected"
            way = "directed" if self.directed else "undirected"
            raise ValueError(
                f"the weights are of another graph: it has {other.n} nodes and {len(row)} {kind} "
                f"edges, the prepared one {n} nodes and {len(own.row)} {way} edges"
                + (", between other nodes" if len(row) == len(own.row) else "")
                + "; prepare it anew"
            )
        values = np.empty(len(row), other.weight.dtype)
        values[mine[1]] = other.weight[theirs[1]]
        return values

    @cached_property
    def _weightless(self) -> EdgeList:
        """The edges between nodes, whose weights are of no matter."""
        row, col = self._arcs.row, self._arcs.col
        return EdgeList(self._nodes, row, col, row, self.directed, ends=self._ends).original

    def _refuse_ends(self, what: str) -> None:
        """Refuse what is for graphs all of whose nodes paths may pass through."""
        _refuse_ends(self._ends, what)

    def _ending(self, pairs: Index) -> Index:
        """Where paths between positions of nodes, (k, 2), begin and end."""
        if self._ends is None:
            return pairs
        start, end = pairs.T
        return np.stack([start, np.where(start == end, end, self._ends[end])], 1)

    def _customized(
        self, edges: EdgeList, before: _State | None, index: int | None = None,
        progress: Progress = None,
    ) -> _State:  # fmt: skip
        """The state of weights, computed on a CUDA device (-1: the current one) or the CPU."""
        problem = self._problem(edges)
        x, size = self._structure, problem.steps.dtype.itemsize
        try:
            check_memory(x.bytes(size, trees=False, width=1), "the prepared graph")
        except MemoryError as error:
            if not x.core:
                raise
            raise MemoryError(f"{_dense(x)}: {error}; {_UNPREPARED}") from None
        if index is None:
            metric = problem.solve(lambda y: customize(x, y, self._arcs, progress=progress))
        else:
            with engines.named("cuda").on(index):
                metric = problem.solve(self._customizer())
        return _State(edges, problem, metric, self._arcs, before)

    def _problem(self, edges: EdgeList) -> Problem:
        """The problem of weights."""
        problem = Problem.of(
            EdgeSource(self.semiring, edges, self.dtype),
            None if self.semiring.commutes else True, labels=edges.nodes,
        )  # fmt: skip
        if not as_numbers(self.semiring, self.dtype):
            return problem
        numbers = problem.source.numbers(semirings["max_min"])
        return replace(problem, source=numbers, truth=True)

    def _customizer(self) -> Callable[[Problem], Metric]:
        """What customizes on the current CUDA device."""
        engine = engines.named("cuda")
        here = engine.current()
        if here not in self._customizers:
            self._customizers[here] = device_customizer(engine, self._structure, self._arcs)
        return self._customizers[here]

    def distances(
        self, sources: Any = None, targets: Any = None, *, along: Any = None,
        device: str | None = None, progress: Progress = None,
    ) -> Any:  # fmt: skip
        """The weights of best paths from some nodes to all others, or to some.

        Parameters
        ----------
        sources : node, or sequence of nodes, optional
            Default: all nodes.
        targets : node, or sequence of nodes, optional
            Default: all nodes. A table between chosen nodes takes only what they need.
        along : array_like of shape (m,), or str, optional
            A second quantity of the edges, such as the kilometres of the fastest way: a finite
            number for each edge or row, or a column, as `weights` of :meth:`customize`. Its sums
            are computed on the CPU, where ⊗ adds weights up (min_plus, max_plus).
        device : {None, "cpu", "cuda", "cuda:N"}
            Where to compute; None: where `sources` or `targets` live, if one is an array of numbers
            on a CUDA device, or else on the CPU. The first call brings the graph to the device.
        progress : bool or callable, optional
            As for :func:`apsp`, of the sources.

        Returns
        -------
        ndarray, shape (sources, targets)
            The semiring's zero (inf for min_plus) where there is no path. Of a graph with labels a
            :class:`LabelledArray`. For an array on a device one of its library, there.
        ndarray of float64, shape (sources, targets), with `along`
            The sums of the second quantity along these paths; inf where there is no path. Of paths
            of equal weight that of the least sum counts: pairs of weight and sum are compared like
            words. Floating-point weights are equal if their sums are, as rounded.

        Raises
        ------
        ValueError
            If there is no such node; `along` is not finite, or negative around a cycle that weighs
            nothing.
        OverflowError
            If whole numbers in `along` may add up to more than 2⁵³, up to which they are exact.
        MemoryError
            If neither `sources` nor `targets` are given and all pairs take more than 4 GiB.

        Notes
        -----
        O(f) for each source, f being the edges of the elimination, or those above a target: PHAST
        and RPHAST (Delling, Goldberg, Nowatzyk and Werneck, 2013). In a table of few pairs all
        nodes climb the elimination tree, as for :meth:`distance`. With `along` labels are pairs,
        which takes about three times as long, and a customization of the quantity, kept for the
        last four of them; a core of c nodes is eliminated for it, c³/3 pairs (⊗, ⊕).

        Examples
        --------
        >>> import numpy as np
        >>> import semiring_mm as sm
        >>> inf = np.inf
        >>> net = sm.prepare(np.array([[0, 3, 8], [inf, 0, 1], [2, inf, 0]]))
        >>> net.distances(0)
        array([[0., 3., 4.]])
        >>> net.distances([1, 2], targets=[0, 1])
        array([[3., 0.],
               [2., 5.]])
        >>> roads = sm.prepare({"a": {"b": 3, "c": 8}, "b": {"c": 1}})
        >>> minutes, km = roads.distances("a", along=[10, 20, 30])
        >>> km
        LabelledArray, 1 x 3, float64
           a   b   c
        a  0  10  40
        """
        n, state = len(self.nodes), self._state
        given = {"sources": sources, "targets": targets}
        arrays = {name: x for name, x in given.items() if _is_array(x)}
        with Call(device, **arrays) as call:
            given |= {name: call.engine.to_host(call[name]) for name in arrays}
            rows, columns = (self.positions(given[name], name) for name in given)
            count, width = (n if x is None else len(x) for x in (rows, columns))
            if rows is None and columns is None:
                check_all_pairs(
                    n, n * n * self.dtype.itemsize, "distances(net.nodes) takes them, "
                    "distances(sources, targets) finds some, sm.statistics(net) keeps none of them",
                )  # fmt: skip
            size = self.dtype.itemsize + 8 * (along is not None)
            check_memory(
                count * width * size, f"the result of {count} x {width} entries",
                engines.named("cpu") if call.moved else call.engine,
            )  # fmt: skip
            start = np.arange(n) if rows is None else rows
            tick = reporter(progress, float(count), "sweeps", "sources")
            host = call.engine.FactorSweeps is None
            sums = None if along is None else np.empty((count, width))
            if host:
                d = self.table(start, columns, part_of(tick, 0.0, count), along, sums)
            elif along is None:
                d = self._on_device(call, state, start, columns)
            else:
                raise ValueError(
                    "along is computed on the CPU: leave device out, and give sources and targets "
                    "from there"
                )
            if tick is not None:
                tick(float(count))
            if not (host or call.moved):
                return call.give(d)
        found = [d] if sums is None else [d, sums]
        if self._labels is not None:
            found = [labelled(x, None, self.semiring, self.nodes, rows, columns)[0] for x in found]
        return found[0] if sums is None else tuple(found)

    def table(
        self, start: Index, end: Index | None, tick: Callable[[float], None] | None = None,
        along: Any = None, sums: Array | None = None,
    ) -> Array:  # fmt: skip
        """Distances by positions of nodes, on the host; `sums` is filled with those of `along`.

        :meta private:
        """
        n, x, state = len(self._nodes), self._structure, self._state
        metric, problem = state.metric, state.problem
        if self._ends is not None:
            end = self._ends if end is None else self._ends[end]
        if along is not None:
            metric, problem = self._along(along)
            x = metric.structure
        d = np.empty((len(start), n if end is None else len(end)), self.dtype)
        work = float(len(start))  # in rows of all nodes
        if end is not None and min(d.shape) <= metric.width:
            work = 0.0  # for a single block other types are not worth a look
        elif end is not None and d.size:
            work *= len(x.ancestors(x.rank[end].astype(np.int64))) / n
        Sweeps(metric, problem, work).write(start, d, sums, tick, columns=end)
        return d

    def _along(self, along: Any) -> tuple[Metric, Problem]:
        """The metric with a second quantity, and its problem."""
        s, state = self.semiring, self._state
        if s.mul_kind != "+" or s.add_kind not in ("min", "max"):
            raise ValueError(
                f"along needs a semiring whose ⊗ adds weights up, such as min_plus, and {s.name} "
                f"has ⊗ = {s.mul}; net.paths(pairs).sums(along) has the sums of some paths"
            )
        given = self._quantity(along)
        for other, found in state.along:
            if np.array_equal(other, given):
                return found
        values = self._finite(given)
        structure, arcs = self._whole

        def run(problem: Problem) -> tuple[Metric, Problem]:
            return customize_along(structure, problem, arcs, values), problem

        found = state.problem.solve(run)
        state.along = [(values, found), *state.along[:3]]
        return found

    def _quantity(self, along: Any) -> Array:
        """A number for each edge."""
        named = self._state.columns
        if isinstance(along, str):
            if self._table is None:
                raise ValueError(
                    f"along={along!r} is a column, and the prepared graph keeps no table: give a "
                    f"number for each edge"
                )
            if along not in named:
                named[along] = self._of_graph(self._table, along)
            return named[along]
        try:
            given: Array = self._weighted(self._as_weights(along, None)).weight
        except (ValueError, TypeError) as error:
            raise type(error)(f"along: {error}") from None
        return given

    def _finite(self, given: Array) -> NDArray[np.float64]:
        """A copy of a quantity, whose sums are exact if it is whole."""
        edges, values = self._state.edges, np.array(given, np.float64)
        there = edges.weight != self.semiring.identities(self.dtype)[0]
        wrong = np.flatnonzero(there & ~np.isfinite(values))
        if wrong.size:
            e = int(wrong[0])
            raise ValueError(f"along: the number of {self._edge(e)} is {values[e]}, not finite")
        one = self.semiring.identities(self.dtype)[1]
        ring = there & (edges.row == edges.col) & (edges.weight == one) & (values < 0)
        if ring.any():
            e = int(np.flatnonzero(ring)[0])
            raise ValueError(f"along: {self._edge(e)} weighs nothing, and has {values[e]} < 0")
        most = np.abs(values, where=there, out=np.zeros(len(values))).max(initial=0)
        if given.dtype.kind in "iu" and most * max(1, len(self.nodes) - 1) > 1 << 53:
            raise OverflowError(
                f"along: whole numbers of up to {most:.0f} may add up to more than 2**53 on a path "
                f"of {len(self.nodes)} nodes: give them in a larger unit, or as floating-point "
                f"numbers, which are rounded"
            )
        return values

    @cached_property
    def _whole(self) -> tuple[Structure, Arcs]:
        """The structure with its core eliminated, too."""
        x, arcs = self._structure, self._arcs
        if not x.core:
            return x, arcs
        check_memory(_ENTRY * (len(x.head) + x.core**2 // 2), "the elimination of the core")
        near = neighbours(x.n, arcs.row, arcs.col)
        whole = factorize(x.n, *near, x.order, x.n)
        return whole, Arcs.of(whole, arcs.row, arcs.col, undirected=arcs.undirected)

    @property
    def placed(self) -> Callable[[Sequence[int]], Placed]:
        """What gives the weights of the elimination on CUDA devices, for what is computed there."""
        return self._state.placed

    def _on_device(self, call: Call, state: _State, start: Index, end: Index | None) -> Any:
        """Rows by the current device, on the host if the call came from there."""
        placed = state.placed([-1])
        if self._ends is not None:
            end = self._ends if end is None else self._ends[end]
        shape = len(start), len(self.nodes) if end is None else len(end)
        restore = None if self.dtype.kind == "f" else state.problem.restore
        if call.moved:
            d = np.empty(shape, self.dtype)
            fetch(placed, start, d, targets=end, restore=restore)
            return d
        sweeps = placed.sweeps[0][1]
        kind = self.dtype if restore is None else sweeps.factor.dtype
        d = sweeps.rows(start, targets=end, out=call.engine.xp.empty(shape, kind))
        return d if restore is None else restore(d)

    def distance(self, source: Any, target: Any) -> Any:
        """The weight of a best path between two nodes.

        Parameters
        ----------
        source, target : node

        Returns
        -------
        float, int or bool
            The semiring's zero (inf for min_plus) where there is no path.

        Notes
        -----
        Both ends climb the elimination tree, and meet.

        Examples
        --------
        >>> import semiring_mm as sm
        >>> net = sm.prepare({"a": {"b": 3, "c": 8}, "b": {"c": 1}})
        >>> net.distance("a", "c"), net.distance("c", "a")
        (4.0, inf)
        """
        i, j = self._place(source), self._place(target)
        return self._state.distance(i, j if self._ends is None or i == j else int(self._ends[j]))

    def path(self, source: Any, target: Any) -> list[Any]:
        """The nodes on a best path, along edges of the graph.

        Parameters
        ----------
        source, target : node

        Returns
        -------
        list
            From `source` to `target`, both included; ``[source]`` if they are the same.

        Raises
        ------
        ValueError
            If there is no path, or no such node.

        Examples
        --------
        >>> import semiring_mm as sm
        >>> sm.prepare({"a": {"b": 3, "c": 8}, "b": {"c": 1}}).path("a", "c")
        ['a', 'b', 'c']
        """
        i, j = self._place(source), self._place(target)
        nodes = self._state.path(*self._ending(np.array([[i, j]]))[0].tolist())
        if nodes is None:
            raise ValueError(f"there is no path from {source!r} to {target!r}")
        nodes[-1] = j
        return nodes if self._labels is None else [*map(self.nodes.__getitem__, nodes)]

    def paths(self, pairs: Any, *, progress: Progress = None) -> Paths:
        """The best paths of many pairs of nodes: their nodes and edges.

        Parameters
        ----------
        pairs : array_like of shape (k, 2), tuple, table or path
            A source and a target each; as a tuple of two sequences, sources and targets; or as a
            table of pandas, Polars or Arrow, or a file, with the columns origin and destination (or
            others that :func:`adjacency` reads).
        progress : bool or callable, optional
            As for :func:`apsp`, of the pairs.

        Returns
        -------
        Paths
            A pair between which there is no path is told there, and is no error.

        Raises
        ------
        ValueError
            If there is no such node, or these are no pairs.

        Notes
        -----
        As :meth:`path`, on all threads.

        Examples
        --------
        >>> import semiring_mm as sm
        >>> net = sm.prepare({"a": {"b": 3, "c": 8}, "b": {"c": 1}})
        >>> found = net.paths([("a", "c"), ("b", "c"), ("c", "a")])
        >>> found
        <Paths: 3 with 3 edges, 1 pairs without a path>
        >>> list(found), found.weight
        ([['a', 'b', 'c'], ['b', 'c'], []], array([ 4.,  1., inf]))
        >>> found.edges
        array([0, 2, 2])
        """
        from .routes import paths

        return paths(self, pairs, progress)

    def routes(
        self, ends: Index, tick: Callable[[float], None] | None = None
    ) -> tuple[Array, Index, Array, Index]:
        """Best paths between positions of nodes, (k, 2) int64.

        :meta private:

        Returns
        -------
        weight : (k,) array
        steps : (k,) int64
            The number of edges of each path; -1: there is none.
        nodes : array
            Those after the source, of one path after the other.
        edges : int64 array
            That lead to them.
        """
        weight, steps, nodes, edges = self._state.paths(self._ending(ends), tick)
        if self._ends is not None:
            there = steps > 0
            nodes[np.cumsum(steps[there]) - 1] = ends[there, 1]
        return weight, steps, nodes, edges

    def weights(self, ends: Index) -> Array:
        """The weights of best paths between positions of nodes, (k, 2) int64: (k,) array.

        :meta private:
        """
        return self._state.weights(self._ending(ends))

    def positions(self, nodes: Any, name: str = "nodes") -> Index | None:
        """Positions of one node or several, which an error calls by a name; None stays None.

        :meta private:
        """
        return positions(nodes, len(self.nodes), self._labels, name)

    def flows(
        self, demand: Any, *, trips: str | int = "trips", sources: Any = None, targets: Any = None,
        ties: str = "share", progress: Progress = None,
    ) -> Flows:  # fmt: skip
        """Flows along the edges if every trip takes a shortest path: :func:`flows` of the graph.

        Parameters
        ----------
        demand, trips, sources, targets, ties, progress
            As for :func:`flows`.

        Returns
        -------
        Flows

        Examples
        --------
        >>> import semiring_mm as sm
        >>> net = sm.prepare({"a": {"b": 3, "c": 8}, "b": {"c": 1}})
        >>> net.flows((["a", "b"], ["c", "c"], [10, 5])).load
        array([10.,  0., 15.])
        """
        from .flows import flows

        return flows(
            self, demand, trips=trips, sources=sources, targets=targets, ties=ties,
            progress=progress,
        )  # fmt: skip

    @overload
    def within(
        self, radius: float, sources: Any = ..., targets: Any = ..., *, outward: bool = ...,
        batch: None = ..., progress: Progress = ...,
    ) -> Within: ...  # fmt: skip
    @overload
    def within(
        self, radius: float, sources: Any = ..., targets: Any = ..., *, outward: bool = ...,
        batch: int | Literal["auto"], progress: Progress = ...,
    ) -> Iterator[Within]: ...  # fmt: skip
    def within(
        self, radius: float, sources: Any = None, targets: Any = None, *, outward: bool = True,
        batch: int | Literal["auto"] | None = None, progress: Progress = None,
    ) -> Within | Iterator[Within]:  # fmt: skip
        """Pairs of nodes within a radius of each other: :func:`within` of the graph.

        Parameters
        ----------
        radius, sources, targets, outward, batch, progress
            As for :func:`within`.

        Returns
        -------
        Within, or an iterator of Within

        Examples
        --------
        >>> import semiring_mm as sm
        >>> net = sm.prepare({"a": {"b": 3, "c": 8}, "b": {"c": 1}})
        >>> net.within(3, "a").distance
        array([3., 0.])
        """
        from .within import within

        return within(
            self, radius, sources=sources, targets=targets, outward=outward, batch=batch,
            progress=progress,
        )  # fmt: skip

    def accessibility(
        self, places: Any, weights: Any = None, *, radius: float | Sequence[float] | None = None,
        decay: Any = None, sources: Any = None, outward: bool = True, competition: Any = None,
        device: str | None = None, progress: Progress = None,
    ) -> Any:  # fmt: skip
        """Accessibility of places from each node: :func:`accessibility` of the graph.

        Parameters
        ----------
        places, weights, radius, decay, sources, outward, competition, device, progress
            As for :func:`accessibility`.

        Returns
        -------
        ndarray

        Examples
        --------
        >>> import semiring_mm as sm
        >>> net = sm.prepare({"a": {"b": 3, "c": 8}, "b": {"c": 1}})
        >>> net.accessibility(["b", "c"], radius=3)
        array([1, 2, 1])
        """
        from .accessibility import accessibility

        return accessibility(
            self, places, weights, radius=radius, decay=decay, sources=sources, outward=outward,
            competition=competition, device=device, progress=progress,
        )  # fmt: skip

    def _place(self, node: Any) -> int:
        if self._labels is not None:
            return self._labels.place(node)
        if type(node) is int and 0 <= node < len(self.nodes):
            return node
        place = self.positions([node])
        assert place is not None
        return int(place[0])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the prepared graph to a file, for :func:`load`.

        Parameters
        ----------
        path : path
            A name that ends in ``.npz``. The file is replaced as a whole or not at all.

        Raises
        ------
        ValueError
            If the name has another ending, or a label is no string, number, or tuple of them.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> import semiring_mm as sm
        >>> path = pathlib.Path(tempfile.mkdtemp(), "net.npz")
        >>> sm.prepare({"a": {"b": 3}}).save(path)
        >>> sm.load(path).distance("a", "b")
        3.0
        """
        name = os.fspath(path)
        if not name.endswith(".npz"):
            raise ValueError(f"a prepared graph is saved as .npz: save({name + '.npz'!r})")
        s, x, edges = self.semiring, self._structure, self._state.edges
        about = {
            "version": _VERSION, "directed": self.directed, "dtype": self.dtype.name,
            "fringe": x.eliminated, "columns": list(self._columns),
            "semiring": [s.name, s.add, s.mul, repr(s.zero), repr(s.one), s.domain, s.use],
        }  # fmt: skip
        arrays = {word: getattr(x, name) for word, name in _STRUCTURE.items()}
        arrays |= {"row": edges.row.astype(np.int32), "col": edges.col.astype(np.int32)}
        arrays["weights"] = edges.weight
        if edges.table_rows is not None:
            arrays["table_rows"] = edges.table_rows.astype(np.int32)
        if self._labels is not None:
            arrays["labels"] = _text(_encoded(self.nodes))
        if self._ends is not None:
            arrays["ends"] = self._ends.astype(np.int32)
        arrays["about"] = _text(about)
        arrays["digest"] = np.frombuffer(digest(arrays), np.uint8)
        with atomic_write(name) as part:
            np.savez(part, **arrays)


class _State:
    """What customization has computed, and scratch for queries.

    The arrays of the metric `customized` are on the host, or on a CUDA device.
    """

    def __init__(
        self, edges: EdgeList, problem: Problem, metric: Metric, arcs: Arcs, before: _State | None
    ) -> None:
        self.edges, self.problem, self.customized = edges, problem, metric
        self._arcs = arcs
        self.along: list[tuple[Array, tuple[Metric, Problem]]] = []  # the last first
        self.columns: dict[str, Array] = {}  # of the table, second quantities
        self._placed: dict[tuple[int, ...], Placed] = {}
        self._before: dict[tuple[int, ...], Placed] = {}
        if before is not None:
            self._before = before._before | before._placed
        x = metric.structure
        self._position = x.rank
        steps = metric.steps
        identities = problem.restore(np.array(steps.identities, steps.dtype))
        self._zero, self._one = (y.item() for y in identities)
        info = np.iinfo(problem.dtype) if problem.dtype.kind in "iu" else None
        self._reach = (info.min, info.max) if info and metric.plan.missing is not None else None
        self._free: list[PathQuery] = []  # one for each thread that asks
        self._trees: Sweeps | None = None

    @cached_property
    def metric(self) -> Metric:
        """The metric on the host."""
        if isinstance(self.customized.out, np.ndarray):
            return self.customized
        engine = engines.named("cuda")
        index = where(self.customized.out, "weights")
        with engine.on(-1 if index is None else index):
            return host_metric(engine, self.customized)

    @cached_property
    def _ties(self) -> bool:
        """Whether ties may close rings."""
        facts, source = self.problem.weights.facts, self.problem.source
        return has_ties(source.s, source.n, source.dtype, facts.lo, facts.hi)

    def placed(self, indices: Sequence[int]) -> Placed:
        """The metric on CUDA devices, in the layout of the one before."""
        engine = engines.named("cuda")
        devices = tuple(engine.current() if i < 0 else i for i in indices)
        placed = self._placed.get(devices)
        if placed is None:
            # On the device where it was computed the metric stays, but that whole numbers have
            # other types there.
            out, weight = self.customized.out, self.edges.weight
            stays = not isinstance(out, np.ndarray) and devices == (where(out, "weights"),)
            if stays and not (weight.dtype.kind == "f" and (weight == np.trunc(weight)).all()):
                metric = self.customized
            else:
                metric = self.metric
            placed = place(metric, devices, self._before.pop(devices, None))
            self._placed[devices] = placed
        return placed

    def distance(self, i: int, j: int) -> Any:
        """The weight between two nodes."""
        if i == j:
            return self._one
        query = self._query()
        value = query.distance(self._position[i], self._position[j])
        self._free.append(query)
        if value == self.metric.identities[0]:
            return self._zero
        if self.problem.truth:
            return value != 0
        if self._reach is not None and not self._reach[0] <= value <= self._reach[1]:
            self.problem.restore(np.array([value], self.metric.steps.dtype))  # raises
        return value

    def _query(self) -> PathQuery:
        return self._free.pop() if self._free else PathQuery(self.metric, ties=self._ties)

    def path(self, i: int, j: int) -> list[int] | None:
        """The nodes on a best path, or None."""
        if i == j:
            return [i]
        if not self.metric.structure.core:
            query = self._query()
            value, positions_after = query.path(self._position[i], self._position[j])
            self._free.append(query)
            if value == self.metric.identities[0]:
                return None
            if positions_after is not None:
                return [i, *self.metric.structure.order[positions_after].tolist()]
        elif self.distance(i, j) == self._zero:
            return None
        # by the predecessors of a sweep: through a core, or where ties close rings
        path: list[int] = reconstruct_path(self._tree(i)[1], i, j)
        return path

    def _tree(self, i: int) -> tuple[Array, NDArray[np.int32]]:
        """The row of distances from a node, as computed, and its predecessors."""
        if self._trees is None:
            with_trees = replace(self.problem, predecessors=True)

            def run(problem: Problem) -> Sweeps:
                return Sweeps(customize(self.metric.structure, problem, trees=True), problem)

            self._trees = with_trees.solve(run)
        n = self._trees.metric.structure.n
        d, p = np.empty((1, n), self.metric.steps.dtype), np.empty((1, n), np.int32)
        self._trees.fill(np.array([i]), d, p)
        return d, p

    @cached_property
    def _edge_of(self) -> Index:
        """The edge of the graph that is the best one in a slot; negative slots are of the core."""
        problem, arcs = self.problem, self._arcs
        x, s, edge = self.metric.structure, problem.source.s, np.arange(len(arcs.row))[arcs.apart]
        weight, slot = arcs.weights(problem), arcs.slot
        if arcs.undirected:
            turned = x.slots(arcs.col[arcs.apart], arcs.row[arcs.apart])
            weight, slot, edge = np.tile(weight, 2), np.append(slot, turned), np.tile(edge, 2)
        shape = 2 * len(x.head) + x.core**2
        best = np.full(shape, problem.steps.identities[0], weight.dtype)
        (np.maximum if s.add_kind == "max" else np.minimum).at(best, slot, weight)
        found = np.full(shape, len(arcs.row))
        np.minimum.at(found, slot, np.where(weight == best[slot], edge, len(arcs.row)))
        return found

    def weights(self, ends: Index) -> Array:
        """As :meth:`PreparedGraph.weights`."""
        k = len(ends)
        if self.metric.structure.core:
            return self.paths(ends, None)[0]
        value = np.empty(k, self.problem.steps.dtype)

        def some(begin: int, end: int) -> None:
            query = self._query()
            found = query.weights(self._position[ends[begin:end]].astype(np.int64))
            self._free.append(query)
            value[begin:end] = stored(self.metric.plan, found, value.dtype)

        if k:
            pool.run_parts(some, k, max(1, min(4 * pool.get_num_threads(), k // _PAIRS)))
        restored: Array = self.problem.restore(value)
        return restored

    def paths(
        self, ends: Index, tick: Callable[[float], None] | None
    ) -> tuple[Array, Index, Array, Index]:
        """As :meth:`PreparedGraph.routes`."""
        x, k, edge_of = self.metric.structure, len(ends), self._edge_of
        value = np.full(k, self.problem.steps.identities[0], self.problem.steps.dtype)
        steps = np.full(k, _BY_TREES)
        parts = {0: (np.empty(0, np.int32), np.empty(0, np.int64))}  # by their first pairs

        def some(begin: int, end: int) -> None:
            query = self._query()
            found, count, walk, used = query.paths(self._position[ends[begin:end]].astype(np.int64))
            self._free.append(query)
            there = found != self.metric.identities[0]
            value[begin:end] = stored(self.metric.plan, found, value.dtype)
            steps[begin:end] = np.where(there, np.where(count < 0, _BY_TREES, count), -1)
            kept = np.repeat(there, np.maximum(count, 0))
            parts[begin] = x.order[walk[kept]], edge_of[used[kept]]

        if k and not x.core:
            pieces = max(1, min(4 * pool.get_num_threads(), k // _PAIRS))
            pool.run_parts(some, k, pieces, tick and (lambda done: tick(done / k)))
        nodes, edges = (
            np.concatenate(y) for y in zip(*(parts[i] for i in sorted(parts)), strict=True)
        )
        if (left := np.flatnonzero(steps == _BY_TREES)).size:
            cuts = np.maximum(steps, 0).cumsum()[:-1]
            walks, alongside = np.split(nodes, cuts), np.split(edges, cuts)
            source = -1
            for at in left[ends[left, 0].argsort(kind="stable")].tolist():
                i, j = ends[at].tolist()
                if i != source:
                    source, (d, p) = i, self._tree(i)
                steps[at], value[at] = -1, d[0, j]
                if i == j or d[0, j] != self.problem.steps.identities[0]:
                    path = np.array(reconstruct_path(p, i, j))
                    walks[at], alongside[at] = path[1:], edge_of[x.slots(path[:-1], path[1:])]
                    steps[at] = len(path) - 1
            nodes, edges = np.concatenate(walks), np.concatenate(alongside)
        return self.problem.restore(value), steps, nodes, edges


def prepare(
    graph: Any,
    *,
    semiring: str | Semiring = "min_plus",
    weight: str | int | None = "weight",
    source: Any = None,
    target: Any = None,
    dtype: Any = None,
    directed: bool | None = None,
    order: str = "auto",
    progress: Progress = None,
) -> PreparedGraph:
    """Prepare a sparse graph for many questions about best paths.

    Parameters
    ----------
    graph : any graph that :func:`adjacency` takes
    semiring : str or Semiring, default "min_plus"
        Whose ⊕ chooses one of its operands (min, max), or works on truth values.
    weight : str or None, default "weight"
        As for :func:`adjacency`.
    source, target : optional
        The columns of a table, or of a file, that hold the ends of edges.
    dtype : dtype, optional
        Of the weights and the results: default float32 for float32 weights and
        float64 for others; bool where the semiring works on truth values.
    directed : bool, optional
        False also reads every edge backwards. Default: what the graph says of itself.
    order : {"auto", "minimum_degree", "nested_dissection"}
        In which nodes are eliminated. Nested dissection is METIS's (extra
        ``metis``), of what minimum degree leaves after the nodes of low degrees: the
        elimination tree is half as deep, so that a single pair takes a third of the time, but
        finding it may take as long again as all other preparation. "auto" takes it for graphs of
        more than 1000 nodes where METIS is installed.
    progress : bool or callable, optional
        As for :func:`apsp`: of the nodes in the order, and then of the pairs (⊗, ⊕) of weights.

    Returns
    -------
    PreparedGraph

    Raises
    ------
    ValueError
        If ⊕ does not choose, or a cycle improves itself (over min_plus as
        :class:`NegativeCycleError`).
    MemoryError
        Before the order is computed, if there are less than 100 bytes a node and 60 an edge; after
        it, if what is filled in needs more than there is.

    Notes
    -----
    Nodes are eliminated one after the other, and their neighbours joined; those of degrees 0, 1 and
    2 first, in rounds, so that chains become flat trees. Where separators are
    small, as in road networks, few edges are filled in; then every question is answered from them.
    Where they are large, what is left becomes a dense core of c nodes, whose closure takes c³
    pairs; there is a warning if that takes more than some seconds. Planken, de Weerdt and van der
    Krogt (2012); Dibbelt, Strasser and Wagner (2016).

    Examples
    --------
    >>> import networkx as nx
    >>> import semiring_mm as sm
    >>> net = sm.prepare(nx.path_graph(5))
    >>> net.distance(0, 4), net.path(1, 3)
    (4.0, [1, 2, 3])
    """
    s = as_semiring(semiring)
    if order not in ("auto", "minimum_degree", "nested_dissection"):
        raise ValueError(f"order is 'auto', 'minimum_degree' or 'nested_dissection', got {order!r}")
    edges = edges_of_graph(s, graph, weight, directed, source, target)
    warn_of_edges(s, edges)
    wanted = edge_dtype(s, edges.weight) if dtype is None else np.dtype(dtype)
    _check_chooses(s, wanted)
    edges = _typed(s, edges, wanted)
    reporter(progress, 1.0)  # the argument's own errors come first
    check_memory(preparing(edges), f"preparing {edges.n:,} nodes and {len(edges.row):,} edges")
    structure = analyze(edges.n, edges.row, edges.col, order, progress)
    _warn_of_core(structure, wanted.itemsize, undirected=s.commutes and not edges.directed)
    net = PreparedGraph(s, edges, structure, (weight, source, target), progress)
    if is_table(graph) or isinstance(graph, (str, os.PathLike)) or are_paths(graph):
        net._table = graph
        if is_table(graph) and not is_matrix(graph):
            net._said = provided("columns_of")(graph, weight, source, target)[0]
    return net


def preparing(edges: EdgeList) -> int:
    """Bytes that preparing a network like one of roads takes at its peak, beside the graph."""
    return _NODE * edges.n + _EDGE * len(edges.row)


def _warn_of_core(x: Structure, itemsize: int, *, undirected: bool) -> None:
    """Say what a large core takes, before it takes it."""
    working = pool.get_num_threads()
    time = costs.closure(x.core, None, itemsize=itemsize, undirected=undirected, threads=working)
    if time > _LONG:
        size = x.bytes(itemsize, trees=False, width=1)
        warn(
            f"{_dense(x)} of {size / 1e9:.2g} GB, which takes about "
            f"{time / 1e9:.2g} s now and for new weights; {_UNPREPARED}"
        )


def _dense(x: Structure) -> str:
    return f"{x.core:,} of the {x.n:,} nodes have no small separators and become a dense core"


def _check_chooses(s: Semiring, dtype: np.dtype[Any]) -> None:
    if not (s.selective or dtype.kind == "b"):
        raise ValueError(
            f"a prepared graph needs a semiring whose ⊕ chooses one of its operands (min or max), "
            f"and {s.name} has ⊕ = {s.add}"
        )


def _is_array(x: Any) -> bool:
    """Whether it is an array that may be on a device."""
    return not isinstance(x, np.ndarray) and (
        hasattr(x, "__dlpack__") or hasattr(x, "__cuda_array_interface__")
    )


def edges_of_graph(
    s: Semiring, graph: Any, weight: str | int | None, directed: bool | None, source: Any = None,
    target: Any = None, dtype: Any = None,
) -> EdgeList:  # fmt: skip
    """The edges of any graph, with weights of a dtype if one is asked for."""
    if isinstance(graph, PreparedGraph):
        raise TypeError("the graph is prepared already; customize() takes new weights")
    found, nodes = as_graph(graph, weight=weight, directed=directed, source=source, target=target)
    if not isinstance(found, EdgeList):
        matrix = np.asarray(found)
        check_matrix(matrix)
        warn_of_entries(s, matrix)
        row, col, values = edges_of(s, matrix)
        nodes = range(len(matrix)) if nodes is None else nodes
        found = EdgeList(nodes, row, col, values, directed is not False)
    return found if dtype is None else _typed(s, found, np.dtype(dtype))


def _refuse_ends(ends: Index | None, what: str) -> None:
    if ends is not None:
        raise ValueError(f"{what} for graphs without zone centroids: {_THROUGH}")


def distances_of(
    graph: Any, weight: str | int | None, directed: bool | None, source: Any, target: Any,
    dtype: Any, what: str = "",
) -> tuple[EdgeList, tuple[Metric, Problem] | None]:  # fmt: skip
    """The edges of a graph over min_plus, and the metric and problem of a prepared one.

    `what` names a function that does not know ends of nodes.
    """
    if not isinstance(graph, PreparedGraph):
        s = semirings["min_plus"]
        edges = edges_of_graph(s, graph, weight, directed, source, target, dtype)
        _refuse_ends(edges.ends if what else None, f"{what} is")
        return edges, None
    if graph.semiring.name != "min_plus":
        raise ValueError(f"distances are of min_plus, the graph is over {graph.semiring.name}")
    if what:
        graph._refuse_ends(f"{what} is")
    if not (source is target is dtype is directed is None and weight == "weight"):
        raise ValueError(
            "weight, source, target, dtype and directed are chosen when a graph is prepared: give "
            "them to sm.prepare"
        )
    return graph.edges, (graph.metric, graph.problem)


def _typed(s: Semiring, edges: EdgeList, dtype: np.dtype[Any]) -> EdgeList:
    """The edges with weights of a dtype, without loss."""
    weight = edges.weight
    if dtype.kind == "b":
        return edges.weighted(np.ones(len(weight), bool))
    if dtype.kind not in "iu" or weight.dtype == dtype:
        return edges.weighted(weight.astype(dtype))
    missing = weight == s.zero
    with np.errstate(invalid="ignore"):
        values = weight.astype(dtype)
    wrong = np.flatnonzero((values != weight) & ~missing)
    if wrong.size:
        e = wrong[0]
        u, v = edges.nodes[edges.row[e]], edges.nodes[edges.col[e]]
        raise ValueError(
            f"the edge from {u!r} to {v!r} has weight {weight[e]:g}, which {dtype} does not hold"
        )
    values[missing] = s.identities(dtype)[0]
    return edges.weighted(values)


def _sorted_ends(n: int, row: Index, col: Index, directed: bool) -> tuple[Index, Index]:
    """The ends of edges as numbers, ascending, and the edges in this order."""
    if not directed:
        row, col = np.minimum(row, col), np.maximum(row, col)
    ends = row * n + col
    order = np.argsort(ends, kind="stable")
    return ends[order], order


# Files


def load(path: str | os.PathLike[str]) -> PreparedGraph:
    """A prepared graph from a file that :meth:`PreparedGraph.save` wrote.

    Parameters
    ----------
    path : path

    Returns
    -------
    PreparedGraph

    Raises
    ------
    ValueError
        If the file holds no prepared graph, is damaged, or was written by a version whose files are
        different.

    Notes
    -----
    Nothing in the file is run. A digest tells whether it is as it was written, and its symbolic
    factorization is computed again and compared, in O(f) time and memory (f being its edges in the
    file), before anything else is computed with it.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import semiring_mm as sm
    >>> path = pathlib.Path(tempfile.mkdtemp(), "net.npz")
    >>> sm.prepare({"a": {"b": 3}, "b": {"c": 1}}).save(path)
    >>> sm.load(path).path("a", "c")
    ['a', 'b', 'c']
    """
    name = os.fspath(path)
    with open(name, "rb") as file:
        if file.read(4) != b"PK\x03\x04":
            raise ValueError(
                f"{name!r} is no prepared graph, or damaged: net.save(path) writes one, and "
                f"sm.prepare({name!r}) prepares a graph in another file"
            )
    try:
        arrays = read_arrays(name)
        if not {"about", "digest"} <= arrays.keys():
            raise ValueError(
                f"net.save(path) writes one, and sm.prepare({name!r}) prepares a graph"
            )
        about = dict(json.loads(bytes(arrays["about"])))
        if about.get("version") == _VERSION:
            return _restored(about, arrays)
    except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"{name!r} is no prepared graph, or damaged: {one_line(error)}") from None
    raise ValueError(
        f"{name!r} was saved in version {one_line(about.get('version'))} of the format, and this "
        f"is version {_VERSION}: prepare the graph anew"
    )


def _restored(about: dict[str, Any], arrays: dict[str, Array]) -> PreparedGraph:
    """The prepared graph of a file's arrays, which may be anything.

    Raises
    ------
    ValueError, TypeError, ArithmeticError, RecursionError
        If they are not what :meth:`PreparedGraph.save` writes.
    """
    if bytes(arrays.pop("digest")) != digest(arrays):
        raise ValueError("its contents are not what was saved")
    if {word: type(x) for word, x in about.items()} != _ABOUT:
        raise ValueError(f"it has no such fields as {about}")
    types = _TYPES | {"weights": np.dtype(about["dtype"])}
    if arrays.keys() - _OPTIONAL != types.keys() - _OPTIONAL:
        raise ValueError(f"its arrays are {', '.join(sorted(arrays))}")
    for word, x in arrays.items():
        if x.ndim != 1 or x.dtype != types.get(word, np.uint8):
            raise ValueError(f"{word} has shape {x.shape} and dtype {x.dtype}")
    title, add, mul, zero, one, domain, use = about["semiring"]
    s = Semiring(title, add, mul, float(zero), float(one), domain, use)
    if title in list(semirings) and semirings[title] == s:
        s = semirings[title]
    n = len(arrays["node"])
    nodes: Sequence[Any] = range(n)
    if "labels" in arrays:
        nodes = _decoded(json.loads(bytes(arrays["labels"])))
    ends = arrays.get("ends")
    row, col, weight = (arrays[word] for word in ("row", "col", "weights"))
    if ends is not None:
        ends = ends.astype(np.int64)
        at = _checked_ends(ends, n, row, col)
        nodes = nodes if "labels" not in arrays else with_ends(nodes, at.tolist())
    if len(nodes) != n:
        raise ValueError(f"{len(nodes)} labels of {n} nodes")
    if weight.dtype.kind == "b" and (weight.view(np.uint8) != 1).any():
        raise ValueError("an edge without a weight")
    edges = EdgeList(nodes, row, col, weight, about["directed"], ends=ends)
    if (rows := arrays.get("table_rows")) is not None:
        if len(rows) != len(row) or rows.min(initial=0) < 0:
            raise ValueError("the rows of the table are not one for each edge")
        edges = replace(edges, table_rows=rows.astype(np.int64))
    edges = edges_of_graph(s, edges, "weight", None)
    _check_chooses(s, weight.dtype)
    given = {name: arrays[word] for word, name in _STRUCTURE.items()}
    structure = Structure.checked(edges.row, edges.col, eliminated=about["fringe"], **given)
    weight_column, source, target = about["columns"]
    return PreparedGraph(s, edges, structure, (weight_column, source, target))


def _checked_ends(ends: Index, n: int, row: Array, col: Array) -> Index:
    """The nodes that have an end of their own, after which :meth:`EdgeList.ending` is undone.

    Raises
    ------
    ValueError
        If these are not what that makes.
    """
    at = np.flatnonzero(ends != np.arange(len(ends)))
    k, last = len(at), len(ends) + np.arange(len(at))
    whole = k <= len(row) and len(ends) + k == n and np.array_equal(ends[at], last)
    if not (whole and np.array_equal(row[len(row) - k :], at)):
        raise ValueError("ends are not those of zone centroids")
    if not np.array_equal(col[len(col) - k :], last) or (row >= len(ends)).any():
        raise ValueError("edges do not lead to the ends of zone centroids")
    return at


def _text(x: Any) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(x).encode(), np.uint8)


def _encoded(labels: Sequence[Any]) -> list[Any]:
    """Labels as JSON has them: tuples as lists."""

    def one(x: Any) -> Any:
        x = x.item() if isinstance(x, np.generic) else x
        if isinstance(x, tuple):
            return [one(y) for y in x]
        if x is None or type(x) in (str, int, float, bool):
            return x
        raise ValueError(
            f"labels are saved as text, and {x!r} is a {type(x).__name__}: use strings, numbers, "
            f"or tuples of them"
        )

    return [one(x) for x in labels]


def _decoded(labels: list[Any]) -> list[Any]:
    def one(x: Any) -> Any:
        return tuple(map(one, x)) if isinstance(x, list) else x

    return [one(x) for x in labels]
