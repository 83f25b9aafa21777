"""Customized eliminations of small graphs, for tests."""

import numpy as np

import semiring_mm as sm
from semiring_mm.closures.edges import EdgeList
from semiring_mm.closures.solve import Problem
from semiring_mm.closures.sources import EdgeSource
from semiring_mm.gpu import engine as gpu
from semiring_mm.graphs import methods
from semiring_mm.graphs.contraction import rows_by_sweeps
from semiring_mm.hierarchy import symbolic as elimination
from semiring_mm.hierarchy.devices import weighed
from semiring_mm.hierarchy.metric import customize


def only(monkeypatch, *names):
    """Leave these methods alone."""
    left = [x for x in methods.METHODS if x.name in names]
    assert len(left) == len(names)
    monkeypatch.setattr(methods, "METHODS", left)


def solved(problem):
    """All pairs of a problem by a sparse elimination."""
    row, col, _ = problem.source.given.arrays
    return rows_by_sweeps(problem, elimination.eliminate(problem.source.n, row, col)[0], None)


def structure_of(n, row, col):
    """By minimum degree, but for a quarter of the nodes, which are a core."""
    first, near = elimination.neighbours(n, row, col)
    order = elimination.analyze(n, row, col, "minimum_degree").order
    return elimination.factorize(n, first, near, order, n - n // 4)


def leave_core(monkeypatch):
    """Let graphs be prepared with a quarter of their nodes in a dense core."""
    monkeypatch.setattr(
        "semiring_mm.graphs.prepared.analyze",
        lambda n, row, col, *_: structure_of(n, row, col),
    )


def metric_of(name, n, row, col, weight, *, directed=True, sources=None):
    """The metric of a graph; `sources`, if given, decide how large the core is."""
    edges = EdgeList(range(n), row, col, weight, directed)
    source = EdgeSource(sm.semirings[name], edges, weight.dtype)
    ends = source.edges().arrays[:2]
    structure = (
        structure_of(n, *ends) if sources is None
        else elimination.eliminate(n, *ends, sources=sources)[0]
    )  # fmt: skip
    found = []
    Problem.of(source, None, False).solve(lambda given: found.append(customize(structure, given)))
    return found[-1]


def on_device(metric, bound=None, **options):
    """Sweeps over a metric on the current device."""
    return weighed(gpu, gpu.FactorSweeps(**options), metric, bound)


def swept(metric, sources):
    """All distances from some nodes, by the CPU."""
    d = np.empty((len(sources), metric.structure.n), metric.steps.dtype)
    metric.sweep(np.asarray(sources), d, None)
    return d


def grid(height, width=None):
    """The number of nodes of a grid, a square if need be, and the ends of its edges."""
    i = np.arange(height * (width or height)).reshape(height, -1)
    row = np.concatenate([i[:, 1:].ravel(), i[1:].ravel()])
    return i.size, row, np.concatenate([i[:, :-1].ravel(), i[:-1].ravel()])


def graph(seed, *, directed, whole, density=None):
    """A random graph with islands, edges of length 0, parallel ones and loops."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 150))
    density = (0.8, 1.3, 4)[seed % 3] if density is None else density
    ends = rng.integers(0, n, (2, int(density * n)))
    weight = rng.integers(0, 9, len(ends[0])) if whole else rng.random(len(ends[0])) * 9
    return sm.files.Graph(range(n), *ends, weight.astype(float), directed)


def squares(side=30):
    """A grid of edges of length 1."""
    n, row, col = grid(side)
    return sm.files.Graph(range(n), row, col, np.ones(len(row)), False)
