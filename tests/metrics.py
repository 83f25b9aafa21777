"""Customized eliminations of small graphs, for tests."""

import numpy as np

import semiring_mm as sm
from semiring_mm.closures.edges import EdgeList
from semiring_mm.closures.solve import Problem
from semiring_mm.closures.sources import EdgeSource
from semiring_mm.hierarchy.structure import eliminate
from semiring_mm.hierarchy.sweeps import customize


def metric_of(name, n, row, col, weight, *, directed=True, sources=1):
    """The metric of a graph; `sources` weighs how large the core is."""
    edges = EdgeList(range(n), row, col, weight, directed)
    source = EdgeSource(sm.semirings[name], edges, weight.dtype)
    structure = eliminate(n, *source.edges()[:2], sources=sources)
    found = []
    Problem.of(source, None, False).solve(
        lambda given: found.append(customize(structure, given, trees=False))
    )
    return found[-1]


def swept(metric, sources):
    """All distances from some nodes, by the CPU."""
    d = np.empty((len(sources), metric.structure.n), metric.steps.dtype)
    metric.sweep(np.asarray(sources), d, None)
    return d


def grid(side):
    i = np.arange(side * side).reshape(side, side)
    row = np.concatenate([i[:, 1:].ravel(), i[1:].ravel()])
    return i.size, row, np.concatenate([i[:, :-1].ravel(), i[:-1].ravel()])
