"""Distances and searches between all nodes of a network, by :func:`semiring_mm.apsp`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from ..closures.edges import EdgeList
from ..closures.paths import NegativeCycleError
from ..graphs.apsp import apsp
from ..graphs.search import Arcs, search_order, settle
from .convert import Network

__all__ = [
    "Reached", "Search", "distances", "predecessors", "refuse_negative", "searches",
    "trees", "unrounded",
]  # fmt: skip

Array = NDArray[Any]
Index = NDArray[np.int64]
#: Sources processed at a time.
_ROWS = 128


def distances(net: Network, sources: Index | None = None) -> Array:
    """Return the matrix of distances, or some rows: float32 where exact, else float64."""
    solved: Array = _solve(net, False, sources)
    return solved


def predecessors(net: Network) -> tuple[Array, Array]:
    """Return the matrices of distances and of predecessors."""
    solved: tuple[Array, Array] = _solve(net, True, None)
    return solved


def _solve(net: Network, trees: bool, sources: Index | None) -> Any:
    arcs, n = net.arcs, len(net.nodes)
    row, col, weight = arcs.tail, arcs.head.astype(np.int64), arcs.weight
    if not net.directed:
        once = row <= col
        row, col, weight = row[once], col[once], weight[once]
    if net.exact and abs(weight).max(initial=0) * n < 2**24 and _whole(weight):
        weight = weight.astype(np.float32)
    edges = EdgeList(range(n), row, col, weight, net.directed)
    device = nx.config.backends.semiring_mm.device
    return apsp(
        edges, return_predecessors=trees, sources=sources,
        device=None if device == "auto" else device,
    )  # fmt: skip


def _whole(weight: Array) -> bool:
    return bool((weight == np.rint(weight)).all())


def unrounded(net: Network, sources: Index | None = None) -> Array:
    """Return distances summed along paths as Dijkstra does, equal to the last bit."""
    refuse_negative(net)
    d = distances(net, sources)
    if net.exact:
        return d
    if sources is not None:
        return settle(net.arcs, d, sources)
    return settle(_shortest(net.arcs, d, net), d, np.arange(len(d)))


def refuse_negative(net: Network) -> None:
    if net.negative:
        raise NotImplementedError(
            "negative weights are left to networkx, whose search by Dijkstra's algorithm does not "
            "give distances then; use the functions named after Bellman and Ford, Johnson, or "
            "Floyd and Warshall"
        )


def _shortest(arcs: Arcs, d: Array, net: Network) -> Arcs:
    if net.exact:
        return arcs.shortest(d, 0.0)
    # n additions in any order, each rounding by half an ulp of the largest distance
    largest = float(d.max(initial=0, where=np.isfinite(d)))
    return arcs.shortest(d, 8 * len(d) * float(np.finfo(np.float64).eps) * largest)


@dataclass(frozen=True)
class Reached:
    """The nodes that a search from one node reaches, in its order, that node first."""

    nodes: list[Any]
    lengths: list[Any]
    before: list[Any]  # of each node but the first

    def paths(self) -> dict[Any, list[Any]]:
        found = {self.nodes[0]: self.nodes[:1]}
        for node, last in zip(self.nodes[1:], self.before, strict=True):
            found[node] = [*found[last], node]
        return found


def searches(
    net: Network, sources: Index | None = None, *, negative: bool = False, paths: bool = True
) -> Iterator[Reached]:
    """Yield a search from each node, or some, in order; all distances are computed beforehand.

    With `negative` weights by Johnson's (1977) potentials, the least distances to each node: they
    change every path between two nodes by the same, and leave no weight below 0.
    """
    if not negative:
        refuse_negative(net)
    potential = np.zeros(len(net.nodes))
    if net.negative:
        if not net.exact:
            raise NotImplementedError(
                "negative weights whose sums are rounded are left to networkx; semiring_mm takes "
                "integers, and floats that are multiples of 2**-20 and not too large"
            )
        try:
            d = distances(net)
        except NegativeCycleError:
            raise nx.NetworkXUnbounded("Negative cycle detected.") from None
        potential = d.min(axis=0).astype(np.float64)
        d = d + potential[:, np.newaxis] - potential
        arcs = net.arcs
        lifted = arcs.weight + potential[arcs.tail] - potential[arcs.head]
        arcs = Arcs(arcs.first, arcs.head, lifted)
    else:
        d, arcs = distances(net, sources), net.arcs
    found = trees(net, arcs, d, sources)
    return (x for each in found for x in _reached(net, each, potential, paths))


@dataclass(frozen=True)
class Search:
    """Searches from some nodes, each a row.

    Attributes
    ----------
    arcs : Arcs
        The arcs that may lie on shortest paths.
    sources : (k,) int64
    d : (k, n) float64
    order, before : (k, n) int32
        As :func:`search_order` returns them.
    """

    arcs: Arcs
    sources: Index
    d: Array
    order: Array
    before: Array


def trees(net: Network, arcs: Arcs, d: Array, sources: Index | None = None) -> Iterator[Search]:
    """Yield the searches that find distances `d`, some rows at a time."""
    if sources is None:
        sources, arcs = np.arange(len(d)), _shortest(arcs, d, net)
    for begin in range(0, len(sources), _ROWS):
        some = slice(begin, begin + _ROWS)
        rows = d[some].astype(np.float64)
        if not net.exact:
            rows = settle(arcs, rows, sources[some])
        yield Search(arcs, sources[some], rows, *search_order(arcs, rows, sources[some]))


def _reached(net: Network, found: Search, potential: Array, paths: bool) -> Iterator[Reached]:
    for source, d, order, before in zip(
        found.sources, found.d, found.order, found.before, strict=True
    ):
        line = order[: np.count_nonzero(before >= 0) + 1]
        lengths = net.lengths(d[line] - potential[source] + potential[line])
        last = net.nodes[before[line[1:]]].tolist() if paths else []
        yield Reached(net.nodes[line].tolist(), lengths, last)
