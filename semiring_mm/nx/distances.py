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

__all__ = ["Reached", "distances", "predecessors", "searches", "unrounded"]

Array = NDArray[Any]
#: Sources processed at a time.
_ROWS = 128


def distances(net: Network) -> Array:
    """Return the matrix of distances: float32 where exact, else float64."""
    solved: Array = _solve(net, False)
    return solved


def predecessors(net: Network) -> tuple[Array, Array]:
    """Return the matrices of distances and of predecessors."""
    solved: tuple[Array, Array] = _solve(net, True)
    return solved


def _solve(net: Network, trees: bool) -> Any:
    arcs, n = net.arcs, len(net.nodes)
    row, col, weight = arcs.tail, arcs.head.astype(np.int64), arcs.weight
    if not net.directed:
        once = row <= col
        row, col, weight = row[once], col[once], weight[once]
    if net.exact and abs(weight).max(initial=0) * n < 2**24 and _whole(weight):
        weight = weight.astype(np.float32)
    edges = EdgeList(range(n), row, col, weight, net.directed)
    device = nx.config.backends.semiring_mm.device
    return apsp(edges, return_predecessors=trees, device=None if device == "auto" else device)


def _whole(weight: Array) -> bool:
    return bool((weight == np.rint(weight)).all())


def unrounded(net: Network) -> Array:
    """Return distances summed along paths as Dijkstra does, equal to the last bit."""
    refuse_negative(net)
    d = distances(net)
    return d if net.exact else settle(_shortest(net.arcs, d, net), d, np.arange(len(d)))


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


def searches(net: Network, *, negative: bool = False, trees: bool = True) -> Iterator[Reached]:
    """Yield a search from each node, in order; all distances are computed beforehand.

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
        d, arcs = distances(net), net.arcs
    return _reached(net, _shortest(arcs, d, net), d, potential, trees)


def _reached(
    net: Network, arcs: Arcs, d: Array, potential: Array, trees: bool
) -> Iterator[Reached]:
    n = len(net.nodes)
    for begin in range(0, n, _ROWS):
        sources = np.arange(begin, min(begin + _ROWS, n))
        rows = d[sources].astype(np.float64)
        if not net.exact:
            rows = settle(arcs, rows, sources)
        order, pred = search_order(arcs, rows, sources)
        for i, source in enumerate(sources):
            line = order[i, : np.count_nonzero(pred[i] >= 0) + 1]
            lengths = rows[i, line] - potential[source] + potential[line]
            before = net.nodes[pred[i, line[1:]]].tolist() if trees else []
            yield Reached(net.nodes[line].tolist(), net.lengths(lengths), before)
