"""Reverse sweeps of the device on the host: loads as those of the CPU's."""

import contextlib

import host_device
import numpy as np
import pytest
from metrics import grid

from semiring_mm.closures.edges import EdgeList
from semiring_mm.gpu import device, engine
from semiring_mm.gpu import gradient as device_gradient
from semiring_mm.gpu.regions import Limits
from semiring_mm.graphs.statistics import problem_of
from semiring_mm.hierarchy.demand import Demand
from semiring_mm.hierarchy.gradient import DeviceLoads, SweepLoads
from semiring_mm.hierarchy.metric import customize
from semiring_mm.hierarchy.symbolic import factorize, neighbours

HOST = host_device.HostDevice()


@pytest.fixture(params=["host", pytest.param("cuda", marks=pytest.mark.gpu)], autouse=True)
def there(request, monkeypatch):
    """The host for a device, or one."""
    if request.param == "cuda":
        if reason := device.why_not():
            pytest.skip(reason)
        return
    host_device.need_compiler()
    monkeypatch.setattr(device, "current", lambda: HOST)
    monkeypatch.setattr(device, "why_not", lambda: "")
    monkeypatch.setattr(engine, "on", lambda *_: contextlib.ExitStack())
    monkeypatch.setattr(device_gradient, "_SOURCES", 256)


@pytest.fixture(params=[Limits(1, 2, 99), Limits(5, 9, 99), Limits(32, 33, 999)])
def leaf(request, monkeypatch):
    """Subtrees in shared memory: none but some nodes alone, small ones, and most."""
    monkeypatch.setattr(device_gradient.ReverseSweeps.__init__, "__kwdefaults__", {
        **device_gradient.ReverseSweeps.__init__.__kwdefaults__, "leaf": request.param,
    })  # fmt: skip


def random_edges(seed, *, directed, kind="whole"):
    """A random graph with many ties, often disconnected, with loops and parallel edges."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 40))
    row, col = rng.integers(0, n, (2, int(n * rng.choice([0.7, 1.5, 4]))))
    weight = rng.integers(1, [2, 3, 6, 99][seed % 4], len(row)) * {"thirds": 1 / 3}.get(kind, 1)
    if kind == "large":
        weight = weight * (1 << 40)
    if kind == "negative":
        height = rng.integers(0, 50, n)
        weight = weight + height[col] - height[row]
    return EdgeList(range(n), row, col, weight, directed)


def metric_of(edges, order=None):
    first, near = neighbours(edges.n, edges.row, edges.col)
    order = np.arange(edges.n) if order is None else order
    structure = factorize(edges.n, first, near, order.astype(np.int32), edges.n)
    return problem_of(edges).solve(lambda x: customize(structure, x))


def compare(
    edges, sources=None, demand=None, *, order=None, wide=False, stress=False, indices=(-1,)
):
    """Results of the host and of the device, before and after the reverse customization."""
    metric = metric_of(edges, order)
    sources = np.arange(edges.n) if sources is None else sources
    host = SweepLoads(metric, edges, demand, stress=stress)
    there = DeviceLoads(metric, edges, demand, indices=indices, stress=stress)
    host.wide = there.wide = wide
    results = []
    for collector in (host, there):
        results.append(collector.empty(len(sources)))
        collector.run(sources, np.arange(len(sources)), results[-1])
    assert host.wide == there.wide
    for name, expected in results[0].items():
        np.testing.assert_allclose(results[1][name], expected, rtol=1e-12, atol=1e-12, err_msg=name)
    for found, expected in zip(there.loads(results[1]), host.loads(results[0]), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)
    return results[0]


@pytest.mark.usefixtures("leaf")
@pytest.mark.parametrize("kind", ["whole", "thirds", "large", "negative"])
@pytest.mark.parametrize("directed", [False, True])
def test_of_graphs_with_ties(directed, kind):
    if kind == "negative" and not directed:
        kind = "whole"
    for seed in range(8):
        edges = random_edges(seed, directed=directed, kind=kind)
        order = np.random.default_rng(seed).permutation(edges.n)
        compare(edges, order=order, wide=seed % 2 == 1)


@pytest.mark.parametrize("stress", [False, True])
def test_sources_and_targets(stress):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        edges = random_edges(seed, directed=seed % 2 == 1)
        sources, targets = rng.permutation(edges.n)[::2], rng.permutation(edges.n)[::3]
        compare(edges, sources, Demand.to(edges.n, targets), stress=stress, indices=(-1, -1))


@pytest.mark.usefixtures("leaf")
@pytest.mark.parametrize("wide", [False, True])
def test_several_batches_and_levels(wide):
    n, row, col = grid(19)  # 361 sources: a batch is 256
    rng = np.random.default_rng(1)
    edges = EdgeList(range(n), row, col, rng.integers(1, 3, len(row)), False)
    compare(edges, order=rng.permutation(n), wide=wide)


@pytest.mark.usefixtures("leaf")
@pytest.mark.parametrize("wide", [False, True])
def test_blocks_and_threads_in_either_order(wide):
    n, row, col = grid(9)
    rng = np.random.default_rng(2)
    edges = EdgeList(range(n), row, col, rng.integers(1, 3, len(row)), False)
    order = rng.permutation(n)
    for first in range(2):  # a kernel's launches alternate
        for kernel in HOST.kernels.values():
            kernel.launches = first
        compare(edges, order=order, wide=wide)


def test_subtrees_whose_nodes_have_more_edges_than_bits(monkeypatch):
    defaults = device_gradient.ReverseSweeps.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "leaf", Limits(32, 34, 999))
    with pytest.raises(AssertionError, match="a bit for each edge"):
        compare(random_edges(0, directed=False))


def chain_of_diamonds(count, ways=8):
    """Nodes 0, 1, ... between neighbours of which there are so many ways of equal length."""
    middle = np.arange(count * ways) + count + 1
    start = np.repeat(np.arange(count), ways)
    row, col = np.concatenate([start, middle]), np.concatenate([middle, start + 1])
    n = count * (ways + 1) + 1
    return EdgeList(range(n), row, col, np.ones(len(row)), False)


def test_numbers_of_paths_that_no_float_holds():
    edges = chain_of_diamonds(20, 2)
    order = np.concatenate([np.arange(21, edges.n), np.arange(21)])
    compare(edges, order=order)
    compare(edges, order=order, wide=True)
    edges = chain_of_diamonds(500, 2)  # 2^500 paths
    order = np.concatenate([np.arange(501, edges.n), np.random.default_rng(0).permutation(501)])
    compare(edges, np.array([0, 3, 500, 250, 800]), order=order)
    with pytest.raises(OverflowError, match="shortest paths between some nodes"):
        compare(edges, np.array([0]), order=order, stress=True)
