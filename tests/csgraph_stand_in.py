"""A pytest plugin: SciPy's tests see this library's functions in place of scipy.sparse.csgraph's.

The environment's CSGRAPH_STEP sets what decides between the two ways: inf has every graph solved
by this library's engine, 0 by searches.
"""

import os

import scipy.sparse.csgraph

from semiring_mm import csgraph

csgraph._STEP = float(os.environ["CSGRAPH_STEP"])
for name in ("shortest_path", "floyd_warshall", "dijkstra", "johnson", "bellman_ford"):
    setattr(scipy.sparse.csgraph, name, getattr(csgraph, name))
