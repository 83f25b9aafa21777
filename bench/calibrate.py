"""Measure the constants of :mod:`semiring_mm.hierarchy.costs`: ``python -m bench.calibrate``.

Each step is timed alone on one thread, in processor time, over some families of graphs; what is
printed is nanoseconds for a unit of its cost, beside the constant. The constants are about the
medians of these.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import semiring_mm as sm
from semiring_mm.closures.edges import EdgeList
from semiring_mm.closures.solve import Problem
from semiring_mm.closures.sources import EdgeSource
from semiring_mm.graphs.dijkstra import search
from semiring_mm.hierarchy import costs, symbolic
from semiring_mm.hierarchy.metric import customize

from .families import FAMILIES

_SEARCHES, _SWEEPS = 9, 64


def _least(call: Callable[[], Any], rounds: int = 3) -> tuple[float, Any]:
    """Nanoseconds of processor time, the least of some rounds, and the result."""
    least, found = np.inf, None
    for _ in range(rounds):
        begin = time.process_time()
        found = call()
        least = min(least, time.process_time() - begin)
    return 1e9 * least, found


def units(graph: Any) -> dict[str, float]:
    """Nanoseconds for a unit of each cost, of one graph."""
    n, coo = graph.shape[0], graph.tocoo()
    row, col = coo.row.astype(np.int64), coo.col.astype(np.int64)
    edges = EdgeList(range(n), row, col, coo.data, True)
    source = EdgeSource(sm.semirings["min_plus"], edges, np.float64)
    problem = Problem.of(source, True)
    source.edges()
    rows = np.random.default_rng(0).integers(0, n, _SEARCHES)

    def searched(edges: EdgeList) -> float:
        given = Problem.of(EdgeSource(source.s, edges, np.float64), True)
        one, _ = _least(lambda: search(given, sources=rows[:1]))
        many, _ = _least(lambda: search(given, sources=rows))
        return (many - one) / (_SEARCHES - 1)

    found = {"SEARCH": searched(edges) / (graph.nnz + n * np.log2(n + 1))}
    found["QUEUE"] = searched(edges.weighted(np.ones(graph.nnz))) / (graph.nnz + n)

    listed, (first, near) = _least(lambda: symbolic.neighbours(n, row, col))
    found["NEIGHBOUR"] = listed / (n + 2 * graph.nnz)
    ordered, (order, degree, _) = _least(
        lambda: symbolic.minimum_degree(n, first, near, 1 << 40, n)
    )
    d = degree.astype(float)
    built, x = _least(lambda: symbolic.factorize(n, first, near, order, len(degree)))
    found["order, a node"] = ordered / n
    found["STRUCTURE"] = built / (n + len(x.head))
    given, metric = _least(lambda: customize(x, problem))
    core = costs.PAIR * float(x.core) ** 2 * (x.core + costs.HALF)
    rest = given - core - costs.WEIGHT * graph.nnz - costs.ELIMINATION
    if rest > 0.2 * given:  # else it is the core that is measured
        found["TRIANGLE"] = rest / (d * d).sum()
    some = np.random.default_rng(0).integers(0, n, _SWEEPS)
    out = np.empty((_SWEEPS, n))
    swept, _ = _least(lambda: metric.sweep(some, out, None))
    each = swept / _SWEEPS - costs.LABEL * n - costs.PAIR * float(x.core) ** 2
    if each > 0:
        found["SWEEP"] = each / len(x.head)
    return found


def dense(n: int) -> float:
    """Nanoseconds for a pair of a dense elimination."""
    w = np.random.default_rng(n).random((n, n))
    took, _ = _least(lambda: sm.apsp(w, directed=True, method="floyd_warshall"), 2)
    return (took - costs.ENTRY * n * n) / (float(n) * n * (n + costs.HALF))


def main() -> int:
    """Print the constants measured beside those of the model."""
    sm.set_num_threads(1)
    measured: dict[str, list[float]] = {"PAIR": [dense(n) for n in (1000, 2000)]}
    for name, make in FAMILIES.items():
        if "New York" in name:
            continue
        found = units(make())
        print(name + ":", ", ".join(f"{k} {v:.3g}" for k, v in found.items()), flush=True)
        for key, value in found.items():
            measured.setdefault(key, []).append(value)
    for key, values in measured.items():
        model = getattr(costs, key, None)
        line = f"{key:14} median {np.median(values):8.3g}   {min(values):.3g} to {max(values):.3g}"
        print(line if model is None else f"{line}   in the model {model:g}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
