"""Turn costs: expanded graphs here and in RoutingKit, their distances compared and timed.

``ROUTINGKIT=folder python -m bench.turns road_NY.gr.xz``; see routingkit.py.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semiring_mm.files import read_graph
from semiring_mm.geo import TurnNetwork

from . import routingkit
from .sparse import DATA

PAIRS, SIDE = 5000, 1000
UNREACHED = 2**31 - 1  # RoutingKit's infinity


def bans(u: NDArray[Any], v: NDArray[Any], count: int) -> NDArray[Any]:
    """Turns of edges drawn at random, each to the first edge that leaves there."""
    edge = np.random.default_rng(0).choice(len(u), count, replace=False)
    order = np.argsort(u, kind="stable")
    return np.stack([edge, order[np.searchsorted(u[order], v[edge])]], axis=1)


def compare(name: str, u: Any, v: Any, weight: Any, **turns: Any) -> None:
    """Prepare, customize and ask both of the same expanded graph."""

    def timed(what: str, call: Any) -> Any:
        start = time.perf_counter()
        found = call()
        print(f"{name:<20}{what:<36}{time.perf_counter() - start:9.3f} s", flush=True)
        return found

    net = timed("TurnNetwork", lambda: TurnNetwork((u, v), weight, **turns))
    timed("customize", lambda: net.customize(weight))
    edges = net.graph.edges
    arcs = net.graph.metric.structure.order, edges.row, edges.col
    rival = timed("RoutingKit, given the order", lambda: routingkit.Net(*arcs))
    whole = edges.weight.astype(np.uint32)
    timed("RoutingKit, customize, 2 threads", lambda: rival.customize(whole, 2))
    pairs = np.random.default_rng(1).integers(0, len(net.nodes), (PAIRS, 2)).tolist()
    own = timed(f"{PAIRS} pairs", lambda: [net.distance(a, b) for a, b in pairs])
    ends = [(a, int(net.arrivals[b])) for a, b in pairs]
    theirs = timed(f"RoutingKit, {PAIRS} pairs", lambda: [rival.distance(a, b) for a, b in ends])
    expected = np.array([np.inf if x == UNREACHED else x for x in theirs])
    expected[[a == b for a, b in pairs]] = 0.0
    np.testing.assert_array_equal(own, expected)
    some = np.array(pairs[:SIDE])
    table = timed(f"{SIDE} x {SIDE}", lambda: net.distances(some[:, 0], some[:, 1]))
    other = timed(
        f"RoutingKit, {SIDE} x {SIDE}", lambda: rival.table(some[:, 0], net.arrivals[some[:, 1]])
    )
    expected = np.where(other == UNREACHED, np.inf, other)
    expected[some[:, :1] == some[:, 1]] = 0.0
    np.testing.assert_array_equal(table, expected)
    print(f"{name:<20}{PAIRS} pairs and a table of {SIDE} x {SIDE} are the same: {net}")


def main(path: Path) -> None:
    routingkit.library()  # compiles
    graph = read_graph(path)
    row, col, weight = (np.asarray(x) for x in (graph.row, graph.col, graph.weight))
    u, v = np.concatenate([row, col]), np.concatenate([col, row])
    weight = np.concatenate([weight, weight])
    compare("a ban in 100 edges", u, v, weight, bans=bans(u, v, len(u) // 100))
    compare("and turning around", u, v, weight, bans=bans(u, v, len(u) // 100), u_turn=np.inf)


if __name__ == "__main__":
    main(DATA / (sys.argv[1] if len(sys.argv) > 1 else "road_NY.gr.xz"))
