"""Sweeps of a customized elimination: regions by brute force, and the CUDA kernels on the host."""

import re

import numpy as np
import pytest
from host_device import KERNELS, HostDevice
from metrics import grid, metric_of, on_device, swept
from numpy.testing import assert_allclose, assert_array_equal

from semiring_mm.gpu import device, engine, sweeps
from semiring_mm.gpu.regions import Limits, regions
from semiring_mm.gpu.sweeps import KINDS, Shape
from semiring_mm.hierarchy.devices import weighed
from semiring_mm.hierarchy.symbolic import eliminate

HOST = HostDevice()
#: Small blocks and regions: several groups of sources, levels of regions, sizes of leaves.
SMALL = Shape(threads=32, each=2, nodes=6, rows=14, edges=40, upper=5, narrow=1, core=0)
SINGLE = Shape(threads=32, each=1, nodes=1, rows=4, edges=8, upper=1, narrow=1, core=0)


@pytest.fixture
def host(monkeypatch):
    monkeypatch.setattr(device, "current", lambda: HOST)
    monkeypatch.setattr(HOST, "shared_limit", 232448)
    return HOST


def random_graph(seed, largest=60):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, largest))
    return rng, n, *rng.integers(0, n, (2, int(rng.integers(0, 3 * n))))


# --- regions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize(
    "limits",
    [(Limits(6, 14, 40), Limits(5, 20, 60)), (Limits(1, 3, 9), Limits(2, 4, 9))],
    ids=["some", "few"],
)
def test_regions(seed, limits):
    _, n, row, col = random_graph(seed)
    x, _ = eliminate(n, row, col, sources=1)
    f = regions(x, *limits)
    leaf, upper = limits
    assert_array_equal(np.sort(f.place), np.arange(n))
    assert_array_equal(f.position[f.place], np.arange(n))
    assert f.first[-1] == x.eliminated
    begin = 0
    for r in range(len(f.leaf)):
        nodes = f.position[f.first[r] : f.first[r + 1]]
        top = nodes[0]
        assert (np.diff(nodes) < 0).all()
        inside = set(nodes.tolist())
        assert all(x.parent[v] in inside for v in nodes[1:])  # it is connected
        above = x.parent[top] if x.parent[top] < x.eliminated else -1
        assert f.parent[r] == (f.of_place[f.place[above]] if above >= 0 else -1)
        assert f.depth[r] == (f.depth[f.parent[r]] + 1 if above >= 0 else 0)
        heads = x.head[x.first[top] : x.first[top + 1]]
        assert f.held[r] == (len(nodes) + len(heads) <= upper.rows)
        outer = f.outer[f.outer_first[r] : f.outer_first[r + 1]]
        assert_array_equal(outer, f.place[heads] if f.held[r] else [])
        rows = np.concatenate([np.arange(f.first[r], f.first[r + 1]), outer])
        by_level = np.append(np.full(f.levels[r], -1), outer)  # what is in each row on the way down
        for v in nodes:
            edges = np.arange(x.first[v], x.first[v + 1])
            begin += begin % 2
            end = f.edge_first[r] + f.end[f.place[v]]
            assert_array_equal(f.edge[begin:end], edges)
            found = f.row[begin:end]
            assert_array_equal(rows[found] if f.held[r] else found, f.place[x.head[edges]])
            found, place = f.level_row[begin:end], f.place[v]
            assert_array_equal(by_level[found] if f.held[r] else found, f.place[x.head[edges]])
            by_level[f.level[place]] = place
            begin = end
        begin += begin % 2
        assert begin == f.edge_first[r + 1]
        assert f.levels[r] == f.level[f.first[r] : f.first[r + 1]].max() + 1
        if f.leaf[r]:
            assert r not in f.parent
            assert len(nodes) + len(heads) <= leaf.rows
        assert len(nodes) <= max(leaf.nodes, upper.nodes)


# --- sweeps -------------------------------------------------------------------------------------

WEIGHTS = {
    "min_plus": lambda rng, m: rng.integers(1, 20, m),
    "max_min": lambda rng, m: rng.integers(-5, 9, m),
    "min_max": lambda rng, m: rng.integers(-5, 9, m),
    "max_times": lambda rng, m: 0.5 ** rng.integers(0, 4, m),  # exact in any order
}
DTYPES = ["float32", "float64", "int32", "int64"]


def figures(d, radii, mass, edges):
    """The statistics by NumPy on the full matrix, over min_plus."""
    reached = d != (np.inf if d.dtype.kind == "f" else np.iinfo(d.dtype).max)
    wide = np.where(reached, d, 0).astype(np.float64 if d.dtype.kind == "f" else np.int64)
    inverse = np.divide(1, wide, out=np.zeros(d.shape), where=wide != 0)
    near = [np.where(reached & (d <= r), 1 if mass is None else mass, 0).sum(1) for r in radii]
    return {
        "largest": wide.max(1, initial=0), "count": reached.sum(1), "sum": wide.sum(1),
        "inverse": inverse.sum(1), "within": np.stack(near, 1),
        "bins": np.histogram(d[reached], edges)[0],
    }  # fmt: skip


EDGES = [-3.5, 0, 0.1, 0.7, 2, 5, 8.25, 1000]


def check(metric, there, sources, *, thorough=False, **options):
    """Rows, and statistics over min_plus; if `thorough`, of many radii, and masses."""
    expected = swept(metric, sources)
    assert_array_equal(there.rows(sources, **options), expected)
    if metric.steps.s.name != "min_plus":
        return
    edges, radii = np.array(EDGES), np.array([9, 0, -4.5, 20, np.inf, 5])
    radii = radii if thorough else radii[-3:]
    if expected.dtype.kind == "f":
        edges[-2] = radii[-1] = expected[0, -1]  # an edge that a label has
        edges.sort()
    rng = np.random.default_rng(1)
    mass = rng.integers(-99, 99, metric.structure.n) << 40
    most = np.abs(expected, where=expected < 1 << 50, out=np.zeros_like(expected)).max()
    variants = (
        (mass, np.linspace(0, 90, 10), most), (None, edges, np.inf), (abs(mass) / 7, edges, most),
    )  # fmt: skip
    for options["mass"], options["edges"], options["bound"] in variants[: 3 if thorough else 1]:
        found = there.statistics(sources, KINDS, radii=radii, **options)
        for key, value in figures(expected, radii, options["mass"], options["edges"]).items():
            if value.dtype.kind == "f":
                assert_allclose(found[key], value, rtol=1e-5, atol=1e-5, err_msg=key)
            else:
                assert_array_equal(found[key], value, err_msg=key)


@pytest.mark.usefixtures("gxx")
@pytest.mark.parametrize(
    ("name", "dtype"),
    [*(("min_plus", dtype) for dtype in DTYPES), ("max_min", "float32"), ("min_max", "int32"),
     ("max_times", "float64")],
)  # fmt: skip
def test_sweeps_over_semirings(name, dtype, host):
    n, row, col = grid(9)
    rng = np.random.default_rng(3)
    weight = WEIGHTS[name](rng, 2 * len(row)).astype(dtype)
    row, col = np.concatenate([row, col]), np.concatenate([col, row])
    metric = metric_of(name, n, row, col, weight)
    assert metric.structure.eliminated > 40
    there = on_device(metric, shape=SMALL)
    check(metric, there, rng.permutation(n)[:75], batch=64, thorough=dtype == "int32")


FAMILIES = {
    "one node": (1, [], []),
    "no edges": (70, [], []),
    "path": (50, range(49), range(1, 50)),
    "star": (40, [0] * 39, range(1, 40)),
    "clique": (12, *np.nonzero(~np.eye(12, dtype=bool))),
    "two parts": (30, [*range(14), *range(15, 29)], [*range(1, 15), *range(16, 30)]),
}  # fmt: skip


@pytest.mark.usefixtures("gxx")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shape", [SMALL, SINGLE], ids=["small", "single"])
def test_sweeps_over_families(family, shape, host):
    n, row, col = FAMILIES[family]
    row, col = np.array(row, np.int64), np.array(col, np.int64)
    rng = np.random.default_rng(4)
    metric = metric_of("min_plus", n, row, col, rng.integers(0, 9, len(row)))
    there = on_device(metric, shape=shape)
    check(metric, there, np.concatenate([np.arange(n), [0, 0]]))
    assert there.rows(np.arange(0)).shape == (0, n)


@pytest.mark.usefixtures("gxx")
@pytest.mark.parametrize("seed", range(6))
def test_regions_that_shared_memory_does_not_hold(seed, host, monkeypatch):
    """Their labels stay in memory, where the device has little else."""
    rng, n, row, col = random_graph(seed + 100, 150)
    weight = rng.integers(1, 99, len(row)).astype("float32")
    metric = metric_of("min_plus", n, row, col, weight)
    with monkeypatch.context() as small:  # not for the product with the core
        small.setattr(host, "shared_limit", 3 << 10)
        there = on_device(metric, shape=Shape(32, 2, 3, 8, 10, 3, 2, 0))
    assert seed or not there.pieces.held.all()
    check(metric, there, np.arange(n))


@pytest.mark.usefixtures("gxx")
def test_negative_weights_and_long_words(host):
    n, row, col = grid(7)
    rng = np.random.default_rng(5)
    height = rng.integers(0, 50, n)
    uphill = rng.integers(1, 9, len(row)) + height[col] - height[row]  # no cycle is negative
    check(*with_device(metric_of("min_plus", n, row, col, uphill.astype("int32"))))
    far = rng.integers(1 << 40, 1 << 50, len(row))
    metric, there, sources = with_device(metric_of("min_plus", n, row, col, far, directed=False))
    assert there.compute == np.int64
    check(metric, there, sources)
    narrow = metric_of("min_plus", n, row, col, far >> 40, directed=False)
    assert on_device(narrow, shape=SMALL).compute == np.int32


def with_device(metric):
    return metric, on_device(metric, shape=SMALL), np.arange(metric.structure.n)


@pytest.mark.usefixtures("gxx")
@pytest.mark.parametrize(
    "edges",
    [np.arange(41) * 0.1, np.arange(8, 60) / 7, EDGES],
    ids=["tenths", "sevenths", "uneven"],
)
def test_labels_at_the_edges_of_bins(edges, host):
    """A guess that rounds to the bin before or after, and edges that float32 does not hold."""
    edges = np.array(edges, np.float64)
    near = edges.astype(np.float32)
    ends = [np.nextafter(near, np.float32(x)) for x in (-np.inf, np.inf)]
    weight = np.unique(np.concatenate([near, *ends]))
    weight = weight[weight > 0]
    m = len(weight)
    metric = metric_of("min_plus", m + 1, np.zeros(m, int), 1 + np.arange(m), weight)
    there = on_device(metric, shape=SMALL)
    found = there.statistics(np.array([0]), {"bins"}, edges=edges)["bins"]
    labels = np.append(weight, 0).astype(np.float64)
    assert_array_equal(found, np.histogram(labels, edges)[0])


@pytest.mark.usefixtures("gxx")
@pytest.mark.parametrize("scale", [1, 3], ids=["short", "long"])
def test_sums_of_many_labels(host, monkeypatch, scale):
    """Up to 64 at a time in 32 bits, where these hold 64 of the largest; all in 64 bits.

    The regions of a block come one after the other.
    """
    monkeypatch.setattr(sweeps, "_BLOCKS", 1)
    monkeypatch.setattr(host, "sms", 2)
    n, row, col = grid(18)
    weight = np.random.default_rng(9).integers(1, 99, len(row)).astype("int32")
    sources = np.arange(0, n, 40)
    longest = swept(metric_of("min_plus", n, row, col, weight, directed=False), sources).max()
    weight *= int(scale * ((1 << 31) - 1) / 64 / longest)
    metric = metric_of("min_plus", n, row, col, weight, directed=False)
    distances = swept(metric, sources).astype(np.int64)
    assert (64 * distances.max() < 1 << 31) == (scale == 1)
    expected = distances.sum(1)
    assert expected.max() > 1 << 32
    for shape in (SMALL, SINGLE, Shape(threads=32, each=1, narrow=1, core=300)):
        there = on_device(metric, shape=shape)
        found = there.statistics(sources, {"sum"}, bound=int(distances.max()))["sum"]
        assert_array_equal(found, expected)


@pytest.mark.usefixtures("gxx")
def test_regions_of_another_device_are_taken_where_they_fit(host, monkeypatch):
    n, row, col = grid(9)
    weight = np.random.default_rng(3).integers(1, 20, len(row))
    metric = metric_of("min_plus", n, row, col, weight.astype("int32"), directed=False)
    first = on_device(metric, shape=SMALL)
    assert on_device(metric, shape=SMALL, like=first).pieces is first.pieces
    monkeypatch.setattr(host, "shared_limit", 4 << 10)
    smaller = on_device(metric, shape=SMALL, like=first)
    assert smaller.limits != first.limits
    assert smaller.pieces is not first.pieces
    wide = metric_of("min_plus", n, row, col, weight.astype("float64"), directed=False)
    assert on_device(wide, shape=Shape(32, 2, 6, 14, 40, 5, 1, 0), like=first).size == 8


@pytest.mark.usefixtures("gxx")
def test_targets(host):
    n, row, col = grid(10)
    rng = np.random.default_rng(6)
    metric = metric_of("min_plus", n, row, col, rng.random(len(row)), directed=False)
    there = on_device(metric, shape=SMALL)
    sources, targets = rng.permutation(n)[:40], rng.permutation(n)[:7]
    expected = swept(metric, sources)
    assert_array_equal(there.rows(sources, targets=targets), expected[:, targets])
    assert there.rows(sources, targets=targets[:0]).shape == (40, 0)


@pytest.mark.usefixtures("gxx")
def test_new_weights(host):
    n, row, col = grid(8)
    rng = np.random.default_rng(7)
    first, second, large = rng.integers(1, 9, (3, len(row))) * [[1], [1], [1 << 45]]
    metrics = [
        metric_of("min_plus", n, row, col, w, directed=False) for w in (first, second, large)
    ]
    there = on_device(metrics[0], shape=SMALL)
    for metric in metrics[1:]:
        weighed(engine, there, metric)
        check(metric, there, np.arange(n))


def test_kinds_are_those_of_the_kernels():
    text = (KERNELS / "sweep.cuh").read_text()
    names = dict(re.findall(r"([A-Z]+) = (\d+)", re.search(r"enum \{(.*?)\}", text)[1]))
    assert names == {kind.upper(): str(bit) for kind, bit in KINDS.items()}
