"""The contract of graph kernels is enough: prepared graphs, searches, trees on a plain engine."""

from dataclasses import replace

import numpy as np
import pytest
from engines import on_plain
from metrics import grid, leave_core
from numpy.testing import assert_allclose, assert_array_equal
from optional import nx

import semiring_mm as sm
from semiring_mm import engine
from semiring_mm.closures.edges import EdgeList
from semiring_mm.cpu import engine as cpu
from semiring_mm.layouts import LayoutError

FAMILIES = ("compiled", "rows", "HopSearches")


def graph(side=5, *, directed=True, dtype="int64", weight=None):
    """A grid with an edge that leads away from it; hardly ever two shortest paths."""
    n, row, col = grid(side)
    if directed:
        row, col = np.append(row, col), np.append(col, row)
    row, col = np.append(row, 0), np.append(col, n)
    values = (
        np.random.default_rng(5).integers(1, 10_000, len(row))
        if weight is None
        else np.full(len(row), weight)
    )
    return EdgeList(range(n + 1), row, col, values.astype(dtype), directed)


def both(call, near=assert_array_equal):
    """What a call returns on the CPU engine and on the plain one, whose families are all it has."""
    expected = call()
    with on_plain(), pytest.MonkeyPatch.context() as patch:
        for name in FAMILIES:
            getattr(cpu, name)  # loads it
            patch.setattr(cpu, name, None)
        result = call()
    for x, y in zip(result, expected, strict=True):
        near(x, y)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("min_plus", "int64"), ("min_plus", "float64"), ("max_min", "float32"), ("min_max", "int32")],
)
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("core", [False, True])
def test_prepared_graphs(name, dtype, directed, core, monkeypatch):
    edges = graph(directed=directed, dtype=dtype)
    if core:
        leave_core(monkeypatch)

    def call():
        net = sm.prepare(edges, semiring=name, dtype=dtype)
        yield net.distances()
        yield net.distances([3, 20], [7, 1, 25])
        yield [net.distance(3, 21), net.distance(25, 3)]
        net.customize(edges.weight[::-1])
        yield net.distances(np.arange(9))

    both(lambda: list(call()))


@pytest.mark.parametrize("sources", [None, [3, 9, 25]])
def test_paths_by_elimination(sources):
    edges = graph()
    both(
        lambda: sm.apsp(edges, sources=sources, method="sparse", return_predecessors=True),
    )


def test_routes():
    edges = graph(directed=False)
    net = sm.prepare(edges)
    expected = [net.path(0, 24), net.path(25, 7)]
    with on_plain():
        net = sm.prepare(edges)
        assert [net.path(0, 24), net.path(25, 7)] == expected


@pytest.mark.parametrize("dtype", ["int64", "float64"])
@pytest.mark.parametrize("directed", [False, True])
def test_statistics(dtype, directed):
    edges = graph(directed=directed, dtype=dtype)

    def call():
        found = sm.statistics(sm.prepare(edges, dtype=dtype), radius=[0, 9000])
        yield from found.columns().values()
        yield found.histogram.counts
        yield [found.diameter, found.radius]

    both(lambda: list(call()), assert_allclose)


def test_nearest():
    edges = graph()

    def call():
        found = sm.nearest(sm.prepare(edges), [3, 9, 17], 2)
        return found.facility, found.distance

    both(call)


@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_within_and_accessibility(dtype):
    edges = graph(dtype=dtype)

    def call():
        net = sm.prepare(edges)
        found = net.within(9000)
        yield from (found.indptr, found.indices, found.distance)
        yield net.accessibility([3, 9, 17], radius=[3000, 9000])
        yield net.accessibility(np.arange(26), sources=[3, 9], decay=("exponential", 0.0001))

    both(lambda: list(call()), assert_allclose)


@pytest.mark.parametrize("trees", [False, True])
def test_searches(trees):
    """From few sources."""
    edges = graph(6)

    def call():
        found = sm.apsp(edges, sources=[0, 3, 36], return_predecessors=trees)
        return found if trees else (found,)

    both(call)


def test_hops():
    edges = graph(6, weight=1, dtype="float64")
    both(lambda: list(sm.statistics(edges, radius=3).columns().values()), assert_allclose)


def test_trees_of_edges_and_matrices():
    edges = graph(directed=False, dtype="float64")
    matrix = sm.adjacency(edges, "max_min")[0]
    for x in (edges, matrix):
        both(lambda x=x: sm.closure(x, "max_min", return_predecessors=True))


def test_orders_of_searches():
    G = nx.Graph()
    edges = graph(directed=False)
    columns = (x.tolist() for x in (edges.row, edges.col, edges.weight))
    G.add_weighted_edges_from(zip(*columns, strict=True))

    def call():
        found = nx.betweenness_centrality(G, weight="weight", backend="semiring_mm")
        yield list(found.values())
        yield list(nx.single_source_dijkstra_path(G, 3, backend="semiring_mm").items())

    def near(x, y):
        assert x == y if isinstance(x[0], tuple) else np.allclose(x, y, rtol=1e-13)

    both(lambda: list(call()), near)


# --- layouts ------------------------------------------------------------------------------------


def test_an_engine_without_rows(monkeypatch):
    with on_plain():
        monkeypatch.setattr(engine.named("cpu"), "rows", None)
        with pytest.raises(NotImplementedError, match="no rows of labels"):
            engine.host_rows()


def test_values_of_the_contract_lie_as_engines_read_them():
    net = sm.prepare(graph())
    factor = net.metric.factor
    x, n = factor.structure, factor.structure.n
    for wrong in (
        {"rank": x.rank.astype("i8")}, {"order": x.order[::2]}, {"head": x.head[1:]},
        {"first": np.repeat(x.first, 2)[::2]},
    ):  # fmt: skip
        with pytest.raises(LayoutError, match=f"{next(iter(wrong))} is"):
            replace(x, **wrong)
    for name in ("out", "back", "core"):
        with pytest.raises(LayoutError, match=f"{name} is"):
            replace(factor, **{name: getattr(factor, name).astype("f2")[..., np.newaxis]})
    first, near = np.arange(n + 1), np.zeros(n, "i4")
    for out, message in [
        ((first[1:], near), "first is int64 of shape"), ((first, near.astype("i8")), "near is"),
        ((first, near[1:]), "first leads from 0 to"),
    ]:  # fmt: skip
        with pytest.raises(LayoutError, match=message):
            engine.named("cpu").HopSearches(n, out, out)
