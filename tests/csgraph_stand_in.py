"""A pytest plugin: SciPy's tests see this library's functions in place of scipy.sparse.csgraph's.

The environment's CSGRAPH_WAY says which way graphs take.
"""

import math
import os

import scipy.sparse.csgraph

from semiring_mm import csgraph
from semiring_mm.graphs import choice
from semiring_mm.hierarchy import costs


def force(way, put=setattr):
    """Have every graph solved by the dense engine, by searches, or before anyone looks at it."""
    put(choice, "SPARSE_FROM", math.inf if way == "engine" else 0)
    put(costs, "brief", lambda *_, **__: way == "at once")
    for name in ("SEARCH", "LIST", "CALL", "POTENTIAL"):
        put(costs, name, 0.0)


if "CSGRAPH_WAY" in os.environ:
    force(os.environ["CSGRAPH_WAY"])
    for name in ("shortest_path", "floyd_warshall", "dijkstra", "johnson", "bellman_ford"):
        setattr(scipy.sparse.csgraph, name, getattr(csgraph, name))
