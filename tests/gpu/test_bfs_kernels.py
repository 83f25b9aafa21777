"""Breadth-first searches by the CUDA kernels, on the host, against the CPU's."""

import contextlib
import functools
import re

import numpy as np
import pytest
from host_device import KERNELS, HostDevice
from numpy.testing import assert_array_equal

import semiring_mm as sm
from semiring_mm.arrays import Call
from semiring_mm.closures.sources import ArraySource
from semiring_mm.gpu import bfs, device
from semiring_mm.gpu import engine as gpu
from semiring_mm.gpu.bfs import HopSearches, Shape
from semiring_mm.graphs import choice, dense, methods, statistics
from semiring_mm.graphs.choice import Request
from semiring_mm.graphs.hops import HopCollector, Hops
from semiring_mm.hierarchy.collector import Wanted
from tests.graphs.test_hops import EVERYTHING, FAMILIES, family

HOST = HostDevice()
SMALL = Shape(each=1, threads=64, blocks=1, limit=20)


@pytest.fixture
def host(monkeypatch, gxx):
    monkeypatch.setattr(device, "current", lambda: HOST)
    monkeypatch.setattr(device, "why_not", lambda: "")
    monkeypatch.setattr(gpu, "on", lambda index: contextlib.ExitStack())
    return HOST


def check(graph, there, sources):
    d = graph.distances(sources)
    radii = np.array([-1, 0, 2, 7])
    found = there.statistics(sources, radii)
    known, apart = d >= 0, d > 0
    assert_array_equal(found["reached"], apart.sum(1))
    assert_array_equal(found["total"], np.where(known, d, 0).sum(1))
    assert_array_equal(found["far"], d.max(1, initial=0))
    inverse = np.divide(1, d, out=np.zeros(d.shape), where=apart).sum(1)
    np.testing.assert_allclose(found["inverse"], inverse, rtol=1e-13)
    assert_array_equal(found["within"], [(apart & (d <= r)).sum(1) for r in radii])
    assert_array_equal(found["table"], np.bincount(d[apart], minlength=graph.n + 2))
    for dtype, far in (("int32", -1), ("float32", np.inf)):
        rows = there.rows(sources, dtype, far)
        assert rows.dtype == dtype
        assert_array_equal(rows, np.where(known, d, far))


def there(graph, **shape):
    return HopSearches(graph.n, graph.out, graph.back, shape=SMALL._replace(**shape))


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_searches(host, name, directed):
    n = 45
    graph = Hops(n, *family(name, n), directed=directed)
    device = there(graph)
    heavy = name in ("dense", "power") or (name, directed) == ("star", False)
    assert (len(device.heavy) > 0) == heavy
    check(graph, device, np.random.default_rng(0).integers(0, n, 37))


@pytest.mark.parametrize(("each", "threads"), [(1, 32), (2, 64), (4, 64)])
def test_many_sources(host, each, threads):
    """Several batches, the last one of few columns, and all shapes of blocks."""
    n = 20
    graph = Hops(n, *family("sparse", n), directed=True)
    device = there(graph, each=each, threads=threads)
    check(graph, device, np.random.default_rng(0).integers(0, n, device.shape.columns + 37))


@pytest.mark.parametrize("n", [0, 1, 2])
def test_few_nodes(host, n):
    graph = Hops(n, *family("path", max(n, 1)), directed=True)
    check(graph, there(graph), np.arange(n))


def test_more_levels_than_are_counted_at_once(host, monkeypatch):
    monkeypatch.setattr(bfs, "_LEVELS", 8)
    monkeypatch.setattr(bfs, "_FIRST", 3)
    graph = Hops(40, *family("path", 40), directed=False)
    check(graph, there(graph), np.array([0, 20, 39]))


def test_counters_of_many_nodes(host, monkeypatch):
    """A block counts more nodes than a warp's planes hold; its warps share one of many edges."""
    monkeypatch.setattr(HOST, "sms", 1)
    n = 450
    graph = Hops(n, *family("star", n), directed=False)
    device = there(graph)
    assert device.blocks == 2
    check(graph, device, np.array([5, 0]))
    few, ends = 300, np.arange(300, n)  # which lie at ends of the star
    star = np.concatenate([family("star", few), [ends - few + 1, ends]], axis=1)
    graph = Hops(n, *star, directed=False)
    check(graph, there(graph), ends)
    n = 400
    graph = Hops(n, *family("dense", n), directed=False)  # all have many
    device = there(graph, threads=128)
    assert device.blocks == 4
    check(graph, device, np.array([5, 0]))


def test_statistics_of_a_graph_on_a_device(host, monkeypatch):
    """The collector's results are the same as on the CPU, batch by batch, also backwards."""
    monkeypatch.setattr(gpu, "HopSearches", functools.partial(HopSearches, shape=SMALL))
    n = 45
    graph = Hops(n, *family("sparse", n), directed=True)
    wanted = Wanted(EVERYTHING, np.array([0, 1, 2, 7, 9]), np.array([-1, 0, 2.5, 1e9]))
    for way in (graph, graph.reverse()):
        collectors = HopCollector(way, wanted), HopCollector(way, wanted, [0, 1])
        here, away = (c.empty(n) for c in collectors)
        for collector, found in zip(collectors, (here, away), strict=True):
            for some in (np.arange(20), np.arange(20, n)):
                collector.run(some, some, found)
        assert here.keys() == away.keys()
        for name, value in here.items():
            np.testing.assert_allclose(away[name], value, rtol=1e-13)
    assert collectors[1].bytes() == 0


def launched():
    found = {x for x in ("HopSums", "HopRows") if any(f"sr::{x}" in y for y in HOST.launched)}
    HOST.launched.clear()
    return found


def test_public_functions_on_a_device(host, monkeypatch):
    """By name, and by themselves where there is much to do."""
    monkeypatch.setattr(
        statistics.TileOptions, "indices", lambda self: [0] if self.device == "cuda" else None
    )
    monkeypatch.setattr(choice, "gpu_has", lambda memory: memory > 0)
    rng = np.random.default_rng(0)
    graph = sm.files.Graph(range(600), *rng.integers(0, 600, (2, 4000)), np.ones(4000), False)
    sources = [3, 7, 599]
    HOST.launched.clear()
    here = sm.statistics(graph, sources=sources, radius=2), sm.apsp(graph, sources=sources)
    assert not launched()

    def same(**options):
        found = sm.statistics(graph, sources=sources, radius=2, **options)
        assert launched() == {"HopSums"}
        for name, value in here[0].columns().items():
            assert_array_equal(found.columns()[name], value, err_msg=name)
        assert_array_equal(found.histogram.counts, here[0].histogram.counts)

    same(device="cuda")
    monkeypatch.setattr(choice, "GPU_HOPS", 0.0)
    same()
    assert_array_equal(sm.apsp(graph, sources=sources), here[1])
    assert launched() == {"HopRows"}
    sm.statistics(graph, sources=sources, device="cpu")
    sm.apsp(graph, sources=sources, device="cpu")
    assert not launched()


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_a_matrix_on_a_device(host, dtype, directed, monkeypatch):
    """Where all edges count 1 and levels are few; else it is eliminated."""
    monkeypatch.setattr(dense, "_DEVICE_FROM", 20)
    monkeypatch.setattr(gpu, "free_memory", lambda: 9 * 40**2)  # and no less
    n, far = 40, np.iinfo(dtype).max if dtype == "int32" else np.inf
    graph = Hops(n, *family("sparse", n), directed=directed)
    d, every = graph.distances(np.arange(n)), np.arange(n)
    expected = np.where(d < 0, far, d)
    W = np.full((n, n), far, dtype)
    W[np.repeat(every, np.diff(graph.out[0])), graph.out[1]] = 1

    def solve(W, rows=None):
        count = None if rows is None else len(rows)
        request = Request(sm.semirings["min_plus"], n, W.dtype, sources=count, rows=rows)
        with Call("cuda", graph=W) as request.call:
            request.given = ArraySource(gpu, request.s, W.copy())
            found = methods.solve(request, leave_out="one launch")[0]
        return found, "HopRows" in launched()

    found, searched = solve(W)
    assert searched
    assert_array_equal(found, expected)
    assert found.dtype == dtype
    found, searched = solve(W, np.array([7, 3]))
    assert searched
    assert_array_equal(found, expected[[7, 3]])
    twice = np.where(W == 1, 2, W).astype(dtype)
    found, searched = solve(twice)
    assert not searched
    assert_array_equal(found, np.where(d < 0, far, 2 * d))
    monkeypatch.setattr(dense, "_LEVELS", 0)  # as if there were many
    found, searched = solve(W)
    assert not searched
    assert_array_equal(found, expected)


def test_sizes_are_those_of_the_kernel():
    text = (KERNELS / "bfs.cuh").read_text()
    constants = dict(re.findall(r"constexpr int (\w+) = ([^;]+);", text))
    values = {"AHEAD": int(constants["AHEAD"]), "PLANES": int(constants["PLANES"])}
    assert eval(constants["LIST"], values) == bfs._LIST
    assert eval(constants["SUMS"], values) == bfs._SUMS
    assert 1 << values["PLANES"] > 2 * bfs._COUNTED
