"""Convert NetworkX graphs to arrays, and arrays to NetworkX's types of results."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..closures.edges import EdgeList
from ..graph_kernels import offsets
from ..graphs.hops import Hops
from ..lazy import cached_property

__all__ = ["Graph", "Network"]

Array = NDArray[Any]

#: Sums of three whole numbers below this are exact in float64.
_WHOLE = 2**51
#: Floats that are multiples of 2**-20 have exact sums, up to a range.
_POWER = 20


class Graph:
    """A NetworkX graph wrapped for the dispatcher, and what was read of it.

    NetworkX keeps the wrapper (``G.__networkx_cache__``) until a method of the graph changes it, so
    that edges and weights are read once, in O(m), for any number of calls.
    """

    __networkx_backend__ = "semiring_mm"

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self._networks: dict[tuple[Any, ...], Network] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return (Graph, (self.graph,))  # networks are read again

    def is_directed(self) -> bool:
        return bool(self.graph.is_directed())

    def is_multigraph(self) -> bool:
        return bool(self.graph.is_multigraph())

    def __len__(self) -> int:
        return len(self.graph)

    def network(
        self, weight: Any, *, default: Any = 1, mixed: bool = False, reverse: bool = False
    ) -> Network:
        """The adjacency and one weight of the edges, or unit weights for None; read once.

        Raises
        ------
        NotImplementedError
            Where distances would not be what NetworkX computes from these weights. The dispatcher
            goes on to another backend then.
        """
        reverse = reverse and self.is_directed()
        key = (weight, type(default), mixed, reverse)
        if key not in self._networks:
            graph = self.graph.reverse(copy=False) if reverse else self.graph
            self._networks[key] = _read(graph, weight, default, mixed)
        return self._networks[key]


@dataclass(frozen=True)
class Network:
    """A graph by positions 0 … n - 1 in the order of its nodes."""

    nodes: Array  # (n,) objects
    arcs: EdgeList  # in the order of the graph's adjacency; of parallel edges the least weight
    directed: bool
    kind: type  # of the weights and therefore of distances: int, float or numpy.float64
    # weights times 2**power are whole, and so all their sums are exact; None: they are rounded
    power: int | None

    @property
    def exact(self) -> bool:
        return self.power is not None

    @cached_property
    def negative(self) -> bool:
        return bool((self.arcs.weight < 0).any())

    @cached_property
    def unit(self) -> bool:
        return bool((self.arcs.weight == 1).all())

    @cached_property
    def index(self) -> dict[Any, int]:
        return {node: i for i, node in enumerate(self.nodes.tolist())}

    def positions(self, nodes: Iterable[Any]) -> Array:
        return np.array([self.index[node] for node in nodes], np.int64)

    def edges(self, weight: Array) -> EdgeList:
        """The graph with a weight for each arc, undirected edges once."""
        x = EdgeList.by_rows(self.arcs.starts, self.arcs.col.astype(np.int64), weight)
        return x if self.directed else x.kept(x.row <= x.col).undirected()

    @cached_property
    def connected(self) -> bool:
        """Whether there is a path from every node to every other."""
        x = self.edges(self.arcs.weight)
        graph = Hops(x.n, x.row, x.col, directed=self.directed)
        ways, start = (graph, graph.reverse()) if self.directed else (graph,), np.arange(x.n)[:1]
        return all(way.distances(start).min() >= 0 for way in ways if x.n)

    def numbers(self, values: Array) -> list[Any]:
        """Convert values to the Python numbers that NetworkX would return."""
        if self.kind is int:
            whole: list[int] = values.astype(np.int64).tolist()
            return whole
        return self.floats(values)

    def floats(self, values: Array) -> list[Any]:
        """Convert quotients of distances: to float, unless the weights are NumPy scalars."""
        return list(values.astype(np.float64)) if self.kind is np.float64 else values.tolist()

    def lengths(self, values: Array) -> list[Any]:
        """As :meth:`numbers`, of distances from a source that comes first: its own is the int 0."""
        found = self.numbers(values)
        found[:1] = [0]
        return found


def _read(graph: Any, weight: Any, default: Any, mixed: bool) -> Network:
    if callable(weight):
        raise NotImplementedError(
            "weights that are a function are left to networkx: semiring_mm reads an edge attribute"
        )
    adjacency, n = [graph._adj[node] for node in graph], len(graph)
    nodes = np.fromiter(graph, object, n)
    index = {node: i for i, node in enumerate(graph)}
    counts = [len(nbrs) for nbrs in adjacency]
    first = offsets(np.array(counts, np.int64))
    heads = itertools.chain.from_iterable(adjacency)
    head = np.fromiter((index[v] for v in heads), np.int32, int(first[-1]))
    if weight is None and type(default) is int:
        arcs = EdgeList.by_rows(first, head, np.ones(len(head)))
        return Network(nodes, arcs, graph.is_directed(), int, 0)
    data = itertools.chain.from_iterable(nbrs.values() for nbrs in adjacency)
    if graph.is_multigraph():
        values = [min([d.get(weight, default) for d in keys.values()]) for keys in data]
    else:
        values = [d.get(weight, default) for d in data]
    kind, power = _kind(values, n, mixed)
    weights = np.array(values, np.float64) + 0.0  # -0.0 added to a path is 0.0
    arcs = EdgeList.by_rows(first, head, weights)
    return Network(nodes, arcs, graph.is_directed(), kind, power)


def _kind(values: list[Any], n: int, mixed: bool) -> tuple[type, int | None]:
    kinds = set(map(type, values))
    if kinds <= {int}:
        largest = max(map(abs, values), default=0) * n
        if largest >= min(_WHOLE, 2**63 // max(n, 1)):
            raise NotImplementedError(
                f"integer weights of which n = {n} may add up to {largest} are left to networkx: "
                f"sums must stay below 2**51"
            )
        return int, 0
    if mixed and kinds <= {int, float, np.float64}:
        kinds = {float}
    if len(kinds) > 1 or not kinds <= {float, np.float64}:
        names = ", ".join(sorted(kind.__qualname__ for kind in kinds))
        raise NotImplementedError(
            f"edge weights of type {names} are left to networkx; semiring_mm takes all int, all "
            f"float or all numpy.float64 (an edge without a weight counts as int 1, and as float "
            f"1.0 for Floyd and Warshall's algorithm)"
        )
    weights = np.array(values, np.float64)
    if not np.isfinite(weights).all():
        raise NotImplementedError("weights that are NaN or infinite are left to networkx")
    if not _whole(weights, _POWER):
        return kinds.pop(), None
    power = next(p for p in range(_POWER + 1) if _whole(weights, p))
    return kinds.pop(), power if np.ldexp(abs(weights).max(), power) * n < _WHOLE else None


def _whole(weights: Array, power: int) -> bool:
    steps = np.ldexp(weights, power)
    return bool((steps == np.rint(steps)).all())
