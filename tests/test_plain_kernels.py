"""Kernels of graphs, compiled, against the same text in Python, as they are called."""

import functools
import operator
from dataclasses import replace

import numpy as np
import pytest
from plain_kernels import MIN_PLUS

import semiring_mm as sm
from semiring_mm import pool
from semiring_mm.closures import spanning
from semiring_mm.closures.edges import EdgeList
from semiring_mm.closures.solve import Problem
from semiring_mm.closures.sources import EdgeSource
from semiring_mm.cpu import codegen
from semiring_mm.cpu import engine as cpu
from semiring_mm.cpu import spanning as cpu_spanning
from semiring_mm.graphs.contraction import solve
from semiring_mm.graphs.kernels import elimination, forest
from semiring_mm.hierarchy import symbolic
from semiring_mm.hierarchy.collector import Wanted
from semiring_mm.hierarchy.statistics import SweepCollector
from semiring_mm.kernel import Kernel, Operations
from semiring_mm.plan import Plan
from semiring_mm.semirings import semirings

MAX_MIN = Operations(max, min, operator.gt, 0, 0)


def kernels(module):
    """The names of a module's kernels that are called from outside."""
    return {
        name
        for name, x in vars(module).items()
        if isinstance(x, Kernel) and x.function.__annotations__
    }


@pytest.fixture
def called(monkeypatch):
    """Names of the kernels that were called; each ran in Python, too, with the same results."""
    names = []

    def checked(kernel, plan=None, zero=0, one=0):
        maxima = isinstance(plan, Plan) and plan.add.op == "max"
        operations = replace(MAX_MIN if maxima else MIN_PLUS, zero=zero)

        def call(**fields):
            names.append(kernel.name)
            once = {id(x): x.copy() if isinstance(x, np.ndarray) else x for x in fields.values()}
            copies = {k: once[id(x)] for k, x in fields.items()}  # two may be the same array
            kernel.plain(operations, **copies)
            codegen.compiled(kernel, plan, zero, one)(**fields)
            if fields.get("table") is not None:  # row 0 is for lanes that are not counted
                copies["table"][0] = fields["table"][0]
            for k, x in fields.items():
                np.testing.assert_array_equal(x, copies[k], err_msg=f"{kernel.name}: {k}")

        call.bind = lambda **fields: functools.partial(call, **fields)
        return call

    for module in (cpu, cpu_spanning):
        monkeypatch.setattr(module, "compiled", checked)
    with pool.limited(1):  # others would change an array that a copy is compared with
        yield names


@pytest.fixture
def edges():
    row, col = np.random.default_rng(0).integers(0, 70, (2, 150))
    return 70, row[row != col], col[row != col]


def test_eliminations(edges, called, monkeypatch):
    monkeypatch.setattr(symbolic, "_GRANT", 1000)
    n, row, col = edges
    x = symbolic.analyze(n, row, col, "minimum_degree")
    names = ("fringe", "parent", "level", "first", "head")
    symbolic.Structure.checked(row, col, x.node, **{name: getattr(x, name) for name in names})
    assert len(x.down[1]) == len(x.head)
    assert x.schedule[1][-1] == x.fringe
    assert x.ancestors(np.array([3, 9])).max() == n - 1
    assert (x.slots(row, col) >= 0).all()
    assert symbolic.eliminate(n, row, col).core > 0
    assert called.count("minimum_degree") > 4  # in parts, and the pool of lists becomes full
    assert set(called) == kernels(elimination)


def test_spanning_forests(edges, called):
    n, row, col = edges
    a = np.zeros((n, n), np.int32)
    a[row, col] = a[col, row] = np.random.default_rng(1).integers(1, 30, len(row))
    found = spanning.of_matrix(cpu, semirings["max_min"], a)
    found.write(cpu, np.empty_like(a), np.empty_like(a))
    spanning.of_edges(semirings["max_min"], n, row, col, a[row, col]).rooted()
    assert set(called) == kernels(forest) | kernels(cpu_spanning.kernels) | {"adjacency"}


@pytest.mark.parametrize("trees", [False, True])
def test_factors(edges, called, trees):
    n, row, col = edges
    weight = np.random.default_rng(1).integers(1, 30, len(row)).astype(float)
    graph = EdgeList(range(n), row, col, weight, True)
    problem = Problem.of(EdgeSource(semirings["min_plus"], graph, "f8"), predecessors=trees)
    problem.solve(lambda x: solve(x, sources=None))
    assert set(called) >= {"customize", "customize_core", "forward_solve", "backward_solve"}


def test_undirected_factors(edges, called):
    n, row, col = edges
    graph = EdgeList(range(n), row, col, np.ones(len(row)), False)
    sm.prepare(graph, order="minimum_degree").distances(np.arange(n))
    assert set(called) >= {"add_arcs", "customize", "forward_solve", "backward_solve"}


@pytest.mark.parametrize("weight", ["small integers", "large integers", "float32", "float64"])
@pytest.mark.parametrize("gap", [1.0, 2.5, None])
def test_sums(called, weight, gap):
    n, rng = 20, np.random.default_rng(1)
    row, col = rng.integers(0, n, (2, 40))
    values = {
        "small integers": rng.integers(0, 9, len(row)),
        "large integers": rng.integers(1 << 33, 1 << 34, len(row)),
        "float32": rng.random(len(row)).astype("f4"), "float64": rng.random(len(row)),
    }[weight]  # fmt: skip
    step = values.max() * (gap or 1)
    bins = np.arange(20) * step if gap else np.cumsum(np.arange(1, 20)) * step / 9
    graph = sm.prepare(EdgeList(range(n), row, col, values, False), order="minimum_degree")
    measures = frozenset(("largest", "count", "sum", "inverse", "within", "bins"))
    for mass in (None, np.arange(n), np.arange(n) / 3):
        wanted = Wanted(measures, bins, np.array([0.0, step, 3.3 * step]), mass, every=True)
        collector = SweepCollector(graph.metric, wanted)
        found = collector.empty(n)
        collector.run(graph.metric.structure.node.astype("i8"), np.arange(n), found)
    assert set(called) >= {"depths", "forward_solve", "collect"}
