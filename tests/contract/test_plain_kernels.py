"""Kernels of graphs, compiled, against the same text in Python, as they are called."""

import functools
import operator
from dataclasses import replace

import numpy as np
import pytest
from metrics import solved
from plain_kernels import MIN_PLUS

import semiring_mm as sm
from semiring_mm import engine as contract
from semiring_mm import pool
from semiring_mm.closures import spanning
from semiring_mm.closures.edges import EdgeList
from semiring_mm.closures.solve import Problem
from semiring_mm.closures.sources import EdgeSource
from semiring_mm.closures.trees import repair_trees
from semiring_mm.cpu import codegen, facts, screen, select
from semiring_mm.cpu import engine as cpu
from semiring_mm.cpu import spanning as cpu_spanning
from semiring_mm.graphs.kernels import elimination, forest, trees
from semiring_mm.hierarchy import symbolic
from semiring_mm.hierarchy.collector import Wanted
from semiring_mm.hierarchy.metric import customize
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
        if isinstance(plan, Plan) and plan.missing is not None:
            apart = plan.infinite, plan.missing
            operations = replace(
                operations, encode=lambda x: apart[1] if x == apart[0] else x,
                decode=lambda x: apart[0] if x == apart[1] else x,
            )  # fmt: skip

        def call(**fields):
            names.append(kernel.name)
            once = {id(x): x.copy() if isinstance(x, np.ndarray) else x for x in fields.values()}
            copies = {k: once[id(x)] for k, x in fields.items()}  # two may be the same array
            expected = kernel.plain(operations, **copies)
            result = real(**fields)
            assert result == expected
            if fields.get("table") is not None:  # row 0 is for lanes that are not counted
                copies["table"][0] = fields["table"][0]
            for k, x in fields.items():
                np.testing.assert_array_equal(x, copies[k], err_msg=f"{kernel.name}: {k}")
            return result

        real = codegen.compiled(kernel, plan, zero, one)
        call.dtypes, call.bind = real.dtypes, lambda **fields: functools.partial(call, **fields)
        call.function_of = lambda name, **fields: lambda x: call(**fields | {name: x})
        return call

    for module in (cpu, cpu_spanning, facts, screen):
        monkeypatch.setattr(module, "compiled", checked)
    kept = facts._compiled, contract.compiled
    for cache in kept:
        cache.cache_clear()
    with pool.limited(1):  # others would change an array that a copy is compared with
        yield names
    for cache in kept:
        cache.cache_clear()


@pytest.fixture
def edges():
    row, col = np.random.default_rng(0).integers(0, 70, (2, 150))
    return 70, row[row != col], col[row != col]


def test_eliminations(edges, called, monkeypatch):
    monkeypatch.setattr(symbolic, "_BEGIN", 1000)
    monkeypatch.setattr(symbolic, "_GRANT", 1000)
    monkeypatch.setattr(symbolic, "_LEAST", 100)
    monkeypatch.setattr(symbolic, "_larger", lambda lists, entries: 2 * entries + 5 * lists)
    n, row, col = edges
    x = symbolic.analyze(n, row, col, "minimum_degree")
    names = ("eliminated", "parent", "height", "first", "head")
    symbolic.Structure.checked(row, col, x.order, **{name: getattr(x, name) for name in names})
    for listed, transposed in zip(x.down, replace(x).down, strict=True):
        np.testing.assert_array_equal(listed, transposed)
    assert x.schedule[1][-1] == x.eliminated
    assert x.ancestors(np.array([3, 9])).max() == n - 1
    assert (x.slots(row, col) >= 0).all()
    assert symbolic.eliminate(n, row, col)[0].core > 0
    assert called.count("minimum_degree") > 4  # in parts, and the pool of lists becomes full
    assert set(called) == kernels(elimination)


def test_spanning_forests(edges, called):
    n, row, col = edges
    a = np.zeros((n, n), np.int32)
    a[row, col] = a[col, row] = np.random.default_rng(1).integers(1, 30, len(row))
    found = spanning.of_matrix(cpu, semirings["max_min"], a)
    found.write(cpu, np.empty_like(a), np.empty_like(a))
    spanning.of_edges(semirings["max_min"], n, row, col, a[row, col]).rooted()
    d, p = np.array([[0, 1.0, 3], [np.inf, 0, 2]]), np.array([[-1, 0, 1], [-1, -1, 2]], "i4")
    assert cpu.doubtful(semirings["min_plus"], d, p).tolist() == [1]
    assert set(called) == kernels(forest) | kernels(cpu_spanning.kernels) | {"adjacency"}


@pytest.mark.parametrize("dtype", ["f8", "i8"])
def test_repairs_of_trees(called, dtype):
    d = np.array([[0, 3, 3, 3, 5, 5], [0, 3, 3, 3, 5, 5]], dtype)
    p = np.array([[-9999, 2, 3, 2, 5, 4], [-9999, 0, 1, 2, 3, 4]], "i4")
    row, col = np.array([0, 1, 2, 3, 2, 3, 4, 5]), np.array([1, 2, 3, 2, 1, 4, 5, 4])
    weight = np.array([3, 0, 0, 0, 0, 2, 0, 0], dtype)
    tree = EdgeList.of(6, row, col, weight)
    repair_trees(cpu, semirings["min_plus"], d, p, lambda: tree, np.array([0, 0]))
    assert p.tolist() == [[-9999, 0, 1, 2, 3, 4]] * 2
    assert "repair" not in called  # all cycles are within components of edges of length 0
    d, p = np.array([[0, 1, 2]], dtype), np.array([[-9999, 2, 1]], "i4")
    ring = EdgeList.of(3, np.array([0, 1, 2]), np.array([1, 2, 1]), np.array([1, 1, -1], dtype))
    repair_trees(cpu, semirings["min_plus"], d, p, lambda: ring, np.array([0]))
    assert p.tolist() == [[-9999, 0, 1]]
    assert set(called) == kernels(trees)


@pytest.mark.parametrize("trees", [False, True])
def test_factors(edges, called, trees):
    n, row, col = edges
    weight = np.random.default_rng(1).integers(1, 30, len(row)).astype(float)
    graph = EdgeList(range(n), row, col, weight, True)
    problem = Problem.of(EdgeSource(semirings["min_plus"], graph, "f8"), predecessors=trees)
    problem.solve(solved)
    assert set(called) >= {"customize", "customize_core", "sweep"}


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_second_quantities_and_many_paths(edges, called, directed, dtype):
    n, row, col = edges
    weight = (np.arange(len(row)) % 3).astype(dtype)
    net = sm.prepare(EdgeList(range(n), row, col, weight, directed), order="minimum_degree")
    for count in (1, 3, n):
        net.distances(np.arange(count), along=np.arange(len(row)) % 5)
    net.paths([(0, n - 1), (3, 1), (2, 2)])
    assert set(called) >= {"customize_along", "sweep", "query"}


def test_undirected_factors(edges, called):
    n, row, col = edges
    graph = EdgeList(range(n), row, col, np.ones(len(row)), False)
    sm.prepare(graph, order="minimum_degree").distances(np.arange(n))
    assert set(called) >= {"add_arcs", "customize", "sweep"}


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
        collector.run(graph.metric.structure.order.astype("i8"), np.arange(n), found)
    assert set(called) >= {"depths", "collect"}


@pytest.mark.parametrize("count", [1, 3, 5])
@pytest.mark.parametrize(("dtype", "trees"), [("f4", True), ("i2", False), ("f8", False)])
def test_rows_of_labels(called, dtype, trees, count):
    """More of them than are turned at a time, from odd places on, in any order."""
    n, ends = 530, np.random.default_rng(2).permutation(530)
    edges = EdgeList(range(n), ends[:-1], ends[1:], (np.arange(n - 1) % 3).astype(dtype), False)
    problem = Problem.of(EdgeSource(semirings["min_plus"], edges, dtype), predecessors=trees)
    structure = symbolic.analyze(n, edges.row, edges.col, "minimum_degree")
    metric = problem.solve(lambda x: customize(structure, x, trees=trees))
    d, p = np.zeros((count, n + 3), dtype)[:, 1:-2], np.zeros((count, n), "i4") if trees else None
    sources = ends[[9, 0, 500, 3, 3][:count]]
    metric.sweep(sources, d, p)
    assert called.count("sweep") == 1
    place, along = np.argsort(ends), np.append(0, np.cumsum(edges.weight, dtype="i8"))[:n]
    np.testing.assert_array_equal(d, abs(along[place] - along[place[sources], np.newaxis]))
    if trees:
        before = place - np.sign(place - place[sources, np.newaxis])
        expected = np.where(np.arange(n) == sources[:, np.newaxis], -9999, ends[before])
        np.testing.assert_array_equal(p, expected)


@pytest.mark.parametrize("dtype", ["f4", "i8", "u1"])
@pytest.mark.parametrize("step", [1, -3])
def test_ranges(called, dtype, step):
    x = np.random.default_rng(3).integers(0, 99, (3, 5, 400)).astype(dtype)[:, ::2, ::step]
    known = facts.facts(semirings["min_plus"], x)
    assert (known.lo, known.hi, known.special) == (x.min(), x.max(), False)
    x[1, 2, 7] = np.nan if dtype == "f4" else semirings["min_plus"].identities(x.dtype)[0]
    assert facts.facts(semirings["min_plus"], x).special
    assert called == ["facts"] * 2
    for y in (*x, x[0] - x[0]):
        scan = facts.class_scan(semirings["min_plus"], y)
        assert scan(y) == facts.class_of(facts.facts(semirings["min_plus"], y), y.dtype)
    assert called.count("class_of") == 4


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_distances_that_bounds_leave(called, dtype):
    rng = np.random.default_rng(4)
    x, y = rng.random((3, 9)).astype(dtype), rng.random((150, 9)).astype(dtype)
    value, index = select.empty(3, 4, np.dtype(dtype))
    value[...] = 3
    both = screen.Screen(x, y, 1.0)
    for columns in (slice(0, 70), slice(70, 150)):
        tile = np.empty((3, columns.stop - columns.start), "f4")
        assert both.put(slice(0, 3), columns, tile, value, index) >= 4
    select.finish(value, index)
    assert called == ["put", "put"]
    wanted = ((x[:, None] - y) ** 2).sum(2)
    np.testing.assert_array_equal(index, np.argsort(wanted)[:, :4])
    np.testing.assert_allclose(value, np.sort(wanted)[:, :4], 1e-5)
