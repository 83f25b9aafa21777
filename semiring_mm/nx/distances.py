"""Distances, searches and sums of distances from the nodes of a network, by the fastest way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from ..closures.edges import EdgeList
from ..closures.paths import NegativeCycleError
from ..graphs.apsp import distances
from ..graphs.bounds import Bounds
from ..graphs.choice import SPARSE_FROM
from ..graphs.search import search_order, settle
from ..graphs.statistics import FEW, collect, extremes, finder, request_of
from .convert import Network

__all__ = [
    "Reached", "Rows", "device_name", "extreme_eccentricities", "from_several", "matrix",
    "measures", "on_device", "refuse_negative", "rows", "searches",
]  # fmt: skip

Array = NDArray[Any]
Index = NDArray[np.int64]
#: Entries of the distances that are in memory at a time, and rows of them that are searched.
_ENTRIES, _ROWS = 1 << 24, 128


def matrix(net: Network, predecessors: bool = False) -> Any:
    """Return all distances, and the predecessors if they are wanted."""
    return distances(_edges(net), predecessors=predecessors, device=device_name())


def device_name() -> str | None:
    """The device that NetworkX's configuration names."""
    device: str = nx.config.backends.semiring_mm.device
    return None if device == "auto" else device


def on_device() -> bool:
    """Whether NetworkX's configuration names a CUDA device."""
    return device_name() not in (None, "cpu")


def _edges(net: Network) -> EdgeList:
    """With weights in float32 where all distances are exact in it."""
    weight = net.arcs.weight
    small = net.power == 0 and abs(weight).max(initial=0) * len(net.nodes) < 2**24
    return net.edges(weight.astype(np.float32) if small else weight)


def refuse_negative(net: Network) -> None:
    if net.negative:
        raise NotImplementedError(
            "negative weights are left to networkx, whose search by Dijkstra's algorithm does not "
            "give distances then; use the functions named after Bellman and Ford, Johnson, or "
            "Floyd and Warshall"
        )


@dataclass(frozen=True)
class Rows:
    """Distances from some nodes."""

    arcs: EdgeList  # the arcs that may lie on shortest paths
    sources: Index  # (k,)
    d: Array  # (k, n) in float32 where that is exact, else float64; inf where there is no path


def rows(net: Network, sources: Index | None = None) -> Iterator[Rows]:
    """Yield the distances from all nodes, or some, in order, without n² memory.

    They are summed along paths as Dijkstra does, equal to the last bit.
    """
    refuse_negative(net)
    return _rows(net, np.arange(len(net.nodes)) if sources is None else sources)


def _rows(net: Network, sources: Index) -> Iterator[Rows]:
    if not len(sources):
        return
    n, step = len(net.nodes), max(1, _ENTRIES // len(net.nodes))
    if len(sources) == n <= step and not net.unit:
        way, along = matrix(net).__getitem__, False
    else:
        found = finder(request_of(_edges(net), len(sources)))
        way, along = found.rows, found.along
    for begin in range(0, len(sources), step):
        some, arcs = sources[begin : begin + step], net.arcs
        d = way(some)
        if len(some) == n:
            arcs = _shortest(net, d, some)
        yield Rows(arcs, some, d if net.exact or along else settle(arcs, d, some))


def _shortest(net: Network, d: Array, sources: Index) -> EdgeList:
    """The arcs that are shortest paths, but for rounding, by the distances from all nodes."""
    arcs, place, margin = net.arcs, np.empty(len(sources), np.int64), 0.0
    place[sources] = np.arange(len(sources))
    if not net.exact:
        # n additions in any order, each rounding by half an ulp of the largest distance
        largest = float(d.max(initial=0, where=np.isfinite(d)))
        margin = 8 * len(d) * float(np.finfo(np.float64).eps) * largest
    return arcs.kept(arcs.weight <= d[place[arcs.row], arcs.col] + margin)


def measures(
    net: Network, kinds: set[str], sources: Index | None = None, *, negative: bool = False
) -> dict[str, list[Any]]:
    """Return measures of the distances from each node, or some, as the numbers of NetworkX.

    Parameters
    ----------
    net : Network
    kinds : set of str
        Of "largest" and "sum" of the distances of nodes that are reached, and their "count".
    sources : (k,) int64, optional
    negative : bool
        Whether weights may be negative; no cycle is, then.
    """
    if not negative:
        refuse_negative(net)
    n = len(net.nodes)
    chosen = np.arange(n) if sources is None else sources
    small = n < SPARSE_FROM and not (net.unit or net.negative)  # the matrix takes less time
    if net.power is not None and len(chosen) and not small:
        weight = np.ldexp(net.arcs.weight, net.power).astype(np.int64)
        if int(abs(weight).max(initial=0)) * n * n < 2**62:
            found = collect(net.edges(weight), chosen, kinds, device_name())
            sums = found.get("sum", np.zeros(1, np.int64))
            if net.kind is int or int(abs(sums).max()) < 2**53:
                return {name: _numbers(net, name, x) for name, x in found.items()}
    out: dict[str, list[Any]] = {name: [] for name in kinds}
    for part in rows(net, chosen):
        d = np.sort(part.d) if "sum" in kinds else part.d
        there = np.isfinite(d)
        count = there.sum(axis=1).tolist()
        if "count" in kinds:
            out["count"] += count
        if "largest" in kinds:
            out["largest"] += net.numbers(d.max(axis=1, initial=0, where=there))
        if "sum" in kinds:
            lines = zip(d, count, strict=True)
            out["sum"] += [sum(net.lengths(row[:reached])) for row, reached in lines]
    return out


def extreme_eccentricities(net: Network, name: str) -> Bounds:
    """Bounds of eccentricities that decide the diameter, periphery, radius or center."""
    refuse_negative(net)
    if net.power is not None:
        weight = np.ldexp(net.arcs.weight, net.power).astype(np.int64)
        bounds = extremes(finder(request_of(net.edges(weight), FEW)), {name})
        if net.kind is not int:
            bounds.lower, bounds.upper = (
                np.ldexp(x, -net.power) for x in (bounds.lower, bounds.upper)
            )
        return bounds
    n = len(net.nodes)
    bounds = Bounds(net.arcs, False, 2 * n * float(np.finfo(np.float64).eps))

    def distances_from(sources: Index) -> Array:
        return np.concatenate([part.d for part in rows(net, sources)])

    def eccentricities(sources: Index) -> Array:
        return np.concatenate([part.d.max(axis=1) for part in rows(net, sources)])

    return bounds.decide({name}, distances_from, eccentricities)


def _numbers(net: Network, name: str, values: Array) -> list[Any]:
    if name == "count":
        counts: list[int] = values.tolist()
        return counts
    return net.numbers(values if net.kind is int else np.ldexp(values, -(net.power or 0)))


@dataclass(frozen=True)
class Reached:
    """The nodes that a search reaches, in its order, first where it begins."""

    nodes: list[Any]
    lengths: list[Any]
    before: list[Any]  # of the other nodes

    @property
    def starts(self) -> int:
        return len(self.nodes) - len(self.before)

    def paths(self) -> dict[Any, list[Any]]:
        found = {node: [node] for node in self.nodes[: self.starts]}
        for node, last in zip(self.nodes[self.starts :], self.before, strict=True):
            found[node] = [*found[last], node]
        return found


def searches(
    net: Network, sources: Index | None = None, *, negative: bool = False, paths: bool = True
) -> Iterator[Reached]:
    """Yield a search from each node, or some, in order.

    With `negative` weights by Johnson's (1977) potentials, the least distances to each node: they
    change every path between two nodes by the same, and leave no weight below 0.
    """
    potential = np.zeros(len(net.nodes))
    if negative and net.negative:
        potential = _potential(net)
        arcs = net.arcs
        lifted = arcs.weight + potential[arcs.row] - potential[arcs.col]
        net = replace(net, arcs=arcs.weighted(lifted))
    found = trees(net, sources)
    return (x for each in found for x in _reached(net, each, potential, paths))


def _potential(net: Network) -> Array:
    """The least distances to each node."""
    if not net.exact:
        raise NotImplementedError(
            "negative weights whose sums are rounded are left to networkx; semiring_mm takes "
            "integers, and floats that are multiples of 2**-20 and not too large"
        )
    more, start = from_several(net, np.arange(len(net.nodes)))
    try:
        d = finder(request_of(_edges(more), 1)).rows(start)
    except NegativeCycleError:
        raise nx.NetworkXUnbounded("Negative cycle detected.") from None
    least: Array = d[0, :-1].astype(np.float64)
    return least


def from_several(net: Network, sources: Index) -> tuple[Network, Index]:
    """Add a node from which edges of weight 0 lead to these: the network, and where it is."""
    n, arcs = len(net.nodes), net.arcs
    first = np.append(arcs.starts, arcs.starts[-1] + len(sources))
    head = np.append(arcs.col, sources.astype(np.int32))
    weight = np.append(arcs.weight, np.zeros(len(sources)))
    nodes = np.empty(n + 1, object)
    nodes[:-1] = net.nodes
    more = replace(net, nodes=nodes, arcs=EdgeList.by_rows(first, head, weight), directed=True)
    return more, np.array([n])


@dataclass(frozen=True)
class Search(Rows):
    """Searches from some nodes, each a row."""

    # (k, n): as :func:`search_order` returns them
    order: Array
    before: Array


def trees(net: Network, sources: Index | None = None) -> Iterator[Search]:
    """Yield searches from all nodes, or some, in order; see :func:`rows`."""
    found = rows(net, sources)
    return (_search(part, begin) for part in found for begin in range(0, len(part.d), _ROWS))


def _search(part: Rows, begin: int) -> Search:
    some = slice(begin, begin + _ROWS)
    d, sources = part.d[some].astype(np.float64), part.sources[some]
    return Search(part.arcs, sources, d, *search_order(part.arcs, d, sources))


def _reached(net: Network, found: Search, potential: Array, paths: bool) -> Iterator[Reached]:
    for source, d, order, before in zip(
        found.sources, found.d, found.order, found.before, strict=True
    ):
        line = order[: np.count_nonzero(before >= 0) + 1]
        lengths = net.lengths(d[line] - potential[source] + potential[line])
        last = net.nodes[before[line[1:]]].tolist() if paths else []
        yield Reached(net.nodes[line].tolist(), lengths, last)
