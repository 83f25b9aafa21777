"""Breadth-first searches by the CUDA kernels, on the host, against the CPU's."""

import re

import numpy as np
import pytest
from host_device import KERNELS, HostDevice
from numpy.testing import assert_array_equal
from test_hops import FAMILIES, family
from test_sweep_kernels import Soiled

from semiring_mm.gpu import bfs, device
from semiring_mm.gpu.bfs import DeviceHops, Shape
from semiring_mm.graphs.hops import Hops

HOST = HostDevice()
HOST.xp = Soiled()
SMALL = Shape(each=1, threads=64, blocks=1, limit=20)


@pytest.fixture
def host(monkeypatch, gxx):
    monkeypatch.setattr(device, "current", lambda: HOST)
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


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_searches(host, name, directed):
    n = 90
    graph = Hops(n, *family(name, n), directed=directed)
    there = DeviceHops(n, graph.out, graph.back, shape=SMALL)
    assert (len(there.heavy) > 0) == (
        name in ("dense", "power") or (name, directed) == ("star", False)
    )
    check(graph, there, np.random.default_rng(0).integers(0, n, 70))


@pytest.mark.parametrize("each", [1, 2, 4])
def test_many_sources(host, each):
    """Several batches, the last one of few columns, and all shapes of blocks."""
    n = 40
    graph = Hops(n, *family("sparse", n), directed=True)
    for threads in (32, 128):
        shape = SMALL._replace(each=each, threads=threads)
        there = DeviceHops(n, graph.out, graph.back, shape=shape)
        check(graph, there, np.random.default_rng(0).integers(0, n, shape.columns + 37))


@pytest.mark.parametrize("n", [0, 1, 2])
def test_few_nodes(host, n):
    graph = Hops(n, *family("path", max(n, 1)), directed=True)
    check(graph, DeviceHops(n, graph.out, graph.back, shape=SMALL), np.arange(n))


def test_more_levels_than_are_counted_at_once(host):
    n = 150
    graph = Hops(n, *family("path", n), directed=False)
    check(graph, DeviceHops(n, graph.out, graph.back, shape=SMALL), np.array([0, 70, n - 1]))


def test_counters_of_many_nodes(host, monkeypatch):
    """A block counts more nodes than a warp's planes hold."""
    monkeypatch.setattr(HOST, "sms", 1)
    n = 900
    star = np.zeros(n - 1, int), np.arange(1, n)
    graph = Hops(n, *star, directed=False)
    there = DeviceHops(n, graph.out, graph.back, shape=SMALL._replace(threads=128))
    assert there.blocks < 3
    check(graph, there, np.array([5, 0]))


def test_parameters_are_the_fields_of_the_struct():
    text = (KERNELS / "bfs.cuh").read_text()
    body = re.sub(r"//.*", "", re.search(r"struct HopParams \{(.*?)\n\};", text, re.S)[1])
    fields = [
        name.strip(" *")
        for line in body.split(";")
        if line.strip()
        for name in re.sub(r"^\s*(const )?(void|int|i64|u8|u32|u64)\*? ", "", line.strip()).split(
            ","
        )
    ]
    assert tuple(fields) == bfs.PARAMS


def test_sizes_are_those_of_the_kernel():
    text = (KERNELS / "bfs.cuh").read_text()
    constants = dict(re.findall(r"constexpr int (\w+) = ([^;]+);", text))
    values = {"AHEAD": int(constants["AHEAD"]), "PLANES": int(constants["PLANES"])}
    assert eval(constants["LIST"], values) == bfs._LIST
    assert eval(constants["SUMS"], values) == bfs._SUMS
    assert 1 << values["PLANES"] > 2 * bfs._COUNTED
