"""Customization on the device: the CUDA kernels on the host give what the CPU's code gives."""

import contextlib
from functools import partial

import numpy as np
import pytest
from metrics import grid, structure_of
from numpy.testing import assert_array_equal

import semiring_mm as sm
from semiring_mm.closures.edges import EdgeList
from semiring_mm.closures.solve import Problem
from semiring_mm.closures.sources import EdgeSource
from semiring_mm.gpu import device, engine
from semiring_mm.graphs import prepared
from semiring_mm.hierarchy.devices import device_customizer, host_metric
from semiring_mm.hierarchy.metric import Arcs, customize
from semiring_mm.hierarchy.symbolic import eliminate
from tests.gpu.test_sweep_kernels import FAMILIES, HOST, WEIGHTS, random_graph

#: Levels in launches of their own; some of them together, by one block; all of them.
FEW = {"apart": -1, "some": 6, "alone": 1 << 40}


@pytest.fixture(autouse=True)
def host(request, monkeypatch):
    request.getfixturevalue("gxx")
    monkeypatch.setattr(device, "current", lambda: HOST)


def problem_of(s, n, row, col, weight, *, directed=True):
    s = sm.semirings[s] if isinstance(s, str) else s
    edges = EdgeList(range(n), row, col, weight, directed)
    return Problem.of(EdgeSource(s, edges, weight.dtype), None if s.commutes else True)


def arcs_of(structure, problem):
    row, col, _ = problem.source.given.arrays
    return Arcs.of(structure, row, col, undirected=problem.source.symmetric())


def check(problem, *, few="some", sources=None):
    """The metric by both; the structure, and how often it was computed."""
    row, col, _ = problem.source.given.arrays
    n = problem.source.n
    structure = (
        structure_of(n, row, col) if sources is None else eliminate(n, row, col, sources=sources)[0]
    )
    arcs = arcs_of(structure, problem)
    expected = problem.solve(partial(customize, structure, arcs=arcs))
    customizer, runs = device_customizer(engine, structure, arcs, few=FEW[few]), list[Problem]()
    found = problem.solve(lambda x: (runs.append(x), customizer(x))[1])
    assert (found.back is found.out) == (expected.back is expected.out)
    found = host_metric(engine, found)
    for name in ("out", "back", "core"):
        x, y = getattr(found, name), getattr(expected, name)
        assert x.dtype == y.dtype
        assert_array_equal(x, y, err_msg=name)
    return structure, len(runs)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*(("min_plus", dtype) for dtype in ("float32", "float64", "int32", "int64")),
     ("max_min", "float32"), ("min_max", "int32"), ("max_times", "float64")],
)  # fmt: skip
def test_semirings(name, dtype):
    n, row, col = grid(7)
    rng = np.random.default_rng(1)
    row, col = np.concatenate([row, col]), np.concatenate([col, row])
    weight = WEIGHTS[name](rng, len(row)).astype(dtype)
    zero = sm.semirings[name].identities(np.dtype(dtype))[0]
    weight[rng.random(len(row)) < 0.1] = zero  # closed
    structure, _ = check(problem_of(name, n, row, col, weight))
    assert structure.core
    assert structure.eliminated > 20


@pytest.mark.parametrize("few", FEW)
@pytest.mark.parametrize("directed", [False, True])
def test_levels_of_random_graphs(few, directed):
    """With loops and parallel edges."""
    for seed in range(12):
        rng, n, row, col = random_graph(seed, 70)
        weight = rng.integers(1, 50, len(row)).astype("float32")
        problem = problem_of("min_plus", n, row, col, weight, directed=directed)
        check(problem, few=few, sources=(1, None)[seed % 2])


@pytest.mark.parametrize("family", FAMILIES)
def test_families(family):
    n, row, col = FAMILIES[family]
    row, col = np.array(row, np.int64), np.array(col, np.int64)
    weight = np.random.default_rng(2).integers(0, 9, len(row))
    check(problem_of("min_plus", n, row, col, weight, directed=False), few="alone")


def test_truth_values_and_narrow_integers():
    _, n, row, col = random_graph(3, 60)
    check(problem_of("max_times", n, row, col, np.ones(len(row), bool)))
    weight = np.random.default_rng(3).integers(0, 90, len(row))
    for name, dtype in (("max_min", "int8"), ("min_plus", "uint8"), ("min_plus", "float16")):
        check(problem_of(name, n, row, col, weight.astype(dtype)))


def test_a_product_that_does_not_commute():
    """Of an undirected graph both directions are computed."""
    s = sm.Semiring("later", "min(a, b)", "a + 2 * b", np.inf, 0)
    n, row, col = grid(6)
    weight = np.random.default_rng(4).integers(1, 9, len(row)).astype("float64")
    assert not s.commutes
    check(problem_of(s, n, row, col, weight, directed=False))


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_cycles_that_improve_are_named(dtype):
    n, row, col = grid(6)
    rng = np.random.default_rng(5)
    height = rng.integers(0, 50, n)
    weight = rng.integers(1, 9, len(row)) + height[col] - height[row]  # no cycle is negative
    weight = weight.astype(dtype)
    both = np.concatenate([row, col]), np.concatenate([col, row])
    there = np.concatenate([weight, height[row] - height[col] + 1]).astype(dtype)
    check(problem_of("min_plus", n, *both, there))
    there[3] = there[3 + len(row)] = -1
    problem = problem_of("min_plus", n, *both, there)
    structure, _ = eliminate(n, *both, sources=1)
    arcs = arcs_of(structure, problem)
    messages = []
    on_device = device_customizer(engine, structure, arcs)
    for run in (partial(customize, structure, arcs=arcs), on_device):
        with pytest.raises(sm.NegativeCycleError) as caught:
            problem.solve(run)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    loops = problem_of("min_plus", 2, np.zeros(1, int), np.zeros(1, int), np.array([-1], dtype))
    structure, _ = eliminate(2, np.zeros(1, int), np.zeros(1, int))
    with pytest.raises(sm.NegativeCycleError, match="0"):
        loops.solve(device_customizer(engine, structure, arcs_of(structure, loops)))


def test_rounding_begins_again_with_margins():
    """A cycle of weight 0 that rounds to less than nothing is no error."""
    n, row, col = grid(6)
    height = np.random.default_rng(6).random(n)
    row, col = np.concatenate([row, col]), np.concatenate([col, row])
    weight = (height[col] - height[row]).astype("float32")
    _, runs = check(problem_of("min_plus", n, row, col, weight))
    assert runs > 1


@pytest.fixture
def moves(monkeypatch):
    """The host for a device: what is asked of one comes here."""
    monkeypatch.setattr(device, "why_not", lambda: "")
    monkeypatch.setattr(engine, "on", lambda *_: contextlib.ExitStack())


@pytest.mark.usefixtures("moves")
def test_a_prepared_graph_takes_weights_on_a_device(monkeypatch):
    n, row, col = grid(8)
    rng = np.random.default_rng(8)
    edges = EdgeList(range(n), row, col, rng.integers(1, 99, len(row)).astype("int32"), False)
    net, same = sm.prepare(edges, dtype="int32"), sm.prepare(edges, dtype="int32")
    for _ in range(2):
        weight = rng.integers(1, 99, len(row))
        HOST.launched.clear()
        net.customize(weight, device="cuda")
        assert HOST.launched
        same.customize(weight)
        assert_array_equal(net.distances(), same.distances())
        assert_array_equal(net.edges.weight, weight)
        assert net.distance(3, 60) == same.distance(3, 60)
        assert net.path(3, 60) == same.path(3, 60)
    assert len(net._customizers) == 1
    before = net.distances()
    weight[0] = -1
    with pytest.raises(sm.NegativeCycleError):
        net.customize(weight, device="cuda")
    assert_array_equal(net.distances(), before)
    HOST.launched.clear()
    monkeypatch.setattr(prepared, "where", lambda *_: 0)  # as if the weights were on it
    net.customize(abs(weight))
    assert HOST.launched
    HOST.launched.clear()
    net.customize(abs(weight), device="cpu")
    assert not HOST.launched


def test_a_device_that_is_not_there(monkeypatch):
    net = sm.prepare({0: {1: 5.0}})
    with pytest.raises(ValueError, match="device must be None, 'cpu', 'cuda'"):
        net.customize([1], device="gpu")
    monkeypatch.setattr(device, "why_not", lambda: "CuPy is not installed")
    with pytest.raises(ValueError, match="CuPy is not installed"):
        net.customize([1], device="cuda")
