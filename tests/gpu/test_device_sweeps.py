"""Prepared graphs, statistics and all pairs of sparse graphs on a device: as on the CPU.

On the host the kernels are compiled by g++; with a CUDA device the same tests run there.
"""

import contextlib
import functools

import host_device
import numpy as np
import pytest
from metrics import grid, leave_core
from numpy.testing import assert_array_equal

import semiring_mm as sm
from semiring_mm.cpu import engine as cpu
from semiring_mm.gpu import device, engine, sweeps
from semiring_mm.graphs import choice, contraction, statistics
from semiring_mm.graphs.packages import EdgeList
from semiring_mm.hierarchy import devices
from semiring_mm.tiles import TileOptions

HOST = host_device.HostDevice()
#: Small blocks, several groups of sources, levels of regions, and a core of some nodes.
SMALL = {"threads": 32, "nodes": 6, "rows": 14, "edges": 40, "upper": 5, "core": 9}


@pytest.fixture(params=["host", pytest.param("cuda", marks=pytest.mark.gpu)], autouse=True)
def moves(request, monkeypatch):
    """A device for what is on the host, and the same again as another one."""
    # Statistics of small graphs are found by sweeps as well, not by searches.
    from_edges = statistics.request_of

    def request_of(*args, **more):
        request = from_edges(*args, **more)
        request.searchable = False
        return request

    monkeypatch.setattr(statistics, "request_of", request_of)
    if request.param == "cuda":
        if reason := device.why_not():
            pytest.skip(reason)
        return
    host_device.need_compiler()
    monkeypatch.setattr(device, "current", lambda: HOST)
    monkeypatch.setattr(device, "why_not", lambda: "")
    monkeypatch.setattr(engine, "on", lambda *_: contextlib.ExitStack())
    monkeypatch.setattr(engine, "free_memory", cpu.free_memory)
    monkeypatch.setattr(sweeps, "Shape", functools.partial(sweeps.Shape, **SMALL))

    def indices(options):
        given = options.device, options.devices
        return None if given in ((None, None), ("cpu", None)) else [-1] * (1 + (given[0] is None))

    monkeypatch.setattr(TileOptions, "indices", indices)


def random_graph(kind="whole", *, directed=True, side=7):
    """A grid, with another component."""
    n, row, col = grid(side)
    rng = np.random.default_rng(2)
    if directed:
        row, col = np.append(row, col), np.append(col, row)
    weight = rng.integers(1, 40, len(row)).astype("float64")
    if kind == "fractions":
        weight = rng.integers(1, 1000, len(row)) / 8
    if kind == "large":
        weight *= 1 << 30
    if kind == "one way":  # from the left half to the right one only
        kept = (row % side < 4) | (col % side >= 4)
        row, col, weight = row[kept], col[kept], weight[kept]
    if kind in ("negative", "one way"):
        height = rng.integers(0, 50, n)
        weight += height[col] - height[row]
    row, col = np.append(row, n), np.append(col, n + 1)
    weight = np.append(weight, 5)
    if kind == "heavy":  # no best path has this edge
        row, col, weight = np.append(row, 0), np.append(col, n - 1), np.append(weight, 2.0**50)
    if kind in ("heavy", "large", "one way"):
        weight = weight.astype(np.int64)
    return EdgeList(range(n + 3), row, col, weight, directed)


EDGES = [-30, 0, 10, 11, 40, 100, 1000]
STATISTICS = [
    ("whole", {"directed": False}, {}),
    ("whole", {}, {"radius": [20, 0, 33.5, 7, np.inf], "sources": range(3, 40)}),
    ("fractions", {}, {"radius": 60.125, "attribute": np.linspace(0, 4, 52), "bins": 9}),
    ("negative", {}, {"bins": EDGES, "radius": -3}),
    ("one way", {}, {"bins": EDGES, "radius": -3}),
    ("heavy", {"directed": False}, {"bins": EDGES, "radius": 50}),
    ("large", {"directed": False}, {"bins": 9}),
]


@pytest.mark.parametrize(("kind", "graph", "options"), STATISTICS)
@pytest.mark.parametrize(
    "where", [{"device": "cuda"}, {"tiles": sm.Tiles(devices=[0, 1])}], ids=["one", "two"]
)
def test_statistics(kind, graph, options, where, monkeypatch):
    leave_core(monkeypatch)
    if "tiles" in where and not device.current().index < 0:
        where = {"tiles": sm.Tiles(devices="all")}
    edges = random_graph(kind, **graph)
    net = sm.prepare(edges, dtype=edges.weight.dtype)  # by sweeps on the CPU, too
    expected = sm.statistics(net, **options, device="cpu")
    found = sm.statistics(edges if kind == "whole" else net, **options, **where)
    assert found.ends == expected.ends
    for name in ("diameter", "radius", "mean_distance", "nodes", "radii"):
        assert getattr(found, name) == getattr(expected, name)
    for name, values in expected.columns().items():
        exact = kind != "fractions" or name in ("reached", "eccentricity")
        assert found.columns()[name].dtype == values.dtype
        if exact and name != "harmonic":
            assert_array_equal(found.columns()[name], values, err_msg=name)
        else:
            np.testing.assert_allclose(found.columns()[name], values, rtol=1e-12, err_msg=name)
    assert_array_equal(found.histogram.counts, expected.histogram.counts)
    assert_array_equal(found.histogram.edges, expected.histogram.edges)


@pytest.mark.parametrize("what", [["betweenness", "edge_betweenness"], "stress"])
@pytest.mark.parametrize("targets", [None, [3, 40, 11]])
@pytest.mark.parametrize("kind", ["whole", "fractions", "one way"])
def test_loads_of_shortest_paths(kind, targets, what):
    edges = random_graph(kind, directed=kind != "whole")
    net = sm.prepare(edges, dtype=edges.weight.dtype)
    sources = None if kind == "whole" else range(3, 40)
    asked = functools.partial(sm.statistics, what=what, sources=sources, targets=targets)
    expected = asked(net, device="cpu")
    for given, where in (
        (edges, {"device": "cuda"}), (net, {"device": "cuda"}),
        (net, {"tiles": sm.Tiles(devices=[0, 1] if device.current().index < 0 else "all")}),
    ):  # fmt: skip
        found = asked(given, **where)
        for name in ("betweenness", "edge_betweenness", "stress"):
            values = getattr(expected, name)
            if values is None:
                assert getattr(found, name) is None
            else:
                np.testing.assert_allclose(getattr(found, name), values, rtol=1e-11, atol=1e-11)


def test_loads_with_statistics_of_distances():
    edges = random_graph("whole", directed=False)
    what = ["eccentricity", "betweenness"]
    found, expected = (sm.statistics(sm.prepare(edges), what, device=x) for x in ("cuda", "cpu"))
    assert_array_equal(found.eccentricity, expected.eccentricity)
    np.testing.assert_allclose(found.betweenness, expected.betweenness, rtol=1e-11, atol=1e-11)


def test_loads_by_searches_are_not_for_devices(monkeypatch):
    leave_core(monkeypatch)
    edges = random_graph("whole", directed=False)
    with pytest.raises(
        ValueError, match="'betweenness' of this graph, with large separators, takes a search"
    ):
        sm.statistics(sm.prepare(edges), "betweenness", device="cuda")
    with pytest.raises(ValueError, match="targets: statistics of some are computed on the CPU"):
        sm.statistics(edges, ["mean", "betweenness"], targets=[3], device="cuda")


def test_statistics_go_on_from_a_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "state.npz"
    edges = random_graph("whole", directed=False)
    monkeypatch.setattr("semiring_mm.hierarchy.devices._BATCH", 20)
    monkeypatch.setattr(statistics, "_EVERY", 0)

    def stop(done, _):
        if done:
            raise KeyboardInterrupt

    run = functools.partial(sm.statistics, edges, tiles=sm.Tiles(out=path, resume=True))
    with pytest.raises(KeyboardInterrupt):
        run(device="cuda", progress=stop)
    assert path.exists()
    begun = []
    found = run(device="cuda", progress=lambda *x: begun.append(x[0]))
    assert begun[0] > 20 * len(edges.nodes)  # after the batch that was done
    expected = sm.statistics(sm.prepare(edges), device="cpu")
    assert_array_equal(found.closeness, expected.closeness)
    assert_array_equal(found.histogram.counts, expected.histogram.counts)
    assert not path.exists()


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("min_plus", "float64"), ("min_plus", "float32"), ("min_plus", "int32"),
     ("max_min", "float32"), ("lor_land", "bool")],
)  # fmt: skip
def test_distances_of_prepared_graphs(name, dtype):
    edges = random_graph("fractions" if dtype == "float64" else "whole")
    net = sm.prepare(edges, semiring=name, dtype=dtype)
    asked = [(None, None), ([3, 1, 3], None), (range(20), [7, 2]), (5, 50), ([], [1])]
    for sources, targets in asked:
        expected = net.distances(sources, targets)
        found = net.distances(sources, targets, device="cuda")
        assert (type(found), found.dtype) == (np.ndarray, expected.dtype)
        assert_array_equal(found, expected)
    if dtype != "bool":
        net.customize(np.arange(len(edges.row)) % 13 + 1.0)
        assert_array_equal(net.distances(device="cuda"), net.distances())


def test_new_weights_leave_those_of_before(monkeypatch):
    """What was placed may still be asked by another thread."""
    net = sm.prepare(random_graph())
    first = devices.place(net.metric, [-1])
    expected = net.distances()
    net.customize(2 * net.edges.weight)
    second = devices.place(net.metric, [-1], first)
    rows = np.arange(len(net.nodes))
    factors = [p.sweeps[0][1].factor for p in (first, second)]
    far = [x.semiring.identities(x.dtype)[0] for x in factors]
    for placed, factor, none in zip((first, second), (1, 2), far, strict=True):
        found = engine.to_host(placed.sweeps[0][1].rows(rows)).astype(float)
        assert_array_equal(np.where(found == none, np.inf, found), factor * expected)


def test_labels_and_where_a_result_is(monkeypatch):
    net = sm.prepare({"a": {"b": 3.5, "c": 8}, "b": {"c": 1}})
    found = net.distances(["a", "b"], ["c"], device="cuda")
    assert (type(found), found.tolist()) == (sm.LabelledArray, [[4.5], [1]])
    assert found.nodes == ["c"]
    with pytest.raises(ValueError, match="device must be None, 'cpu', 'cuda' or 'cuda:N'"):
        net.distances(device="gpu")
    monkeypatch.undo()
    with pytest.raises(ValueError, match="give one of them"):
        sm.statistics({0: {1: 1}}, device="cuda", tiles=sm.Tiles(devices="all"))


@pytest.mark.parametrize("kind", ["whole", "fractions", "negative"])
@pytest.mark.parametrize("sources", [None, [4, 40, 50]])
def test_all_pairs_and_predecessors(kind, sources):
    edges = random_graph(kind, directed=kind != "whole")
    asked = functools.partial(sm.apsp, edges, sources=sources, method="sparse")
    expected = asked(device="cpu")
    found, p = asked(device="cuda", return_predecessors=True)
    assert (found.dtype, p.dtype) == (np.float64, np.int32)
    assert_array_equal(found, expected)
    assert_array_equal(asked(device="cuda"), expected)
    best = np.full((len(edges.nodes),) * 2, np.inf)
    np.minimum.at(best, (edges.row, edges.col), edges.weight)
    if not edges.directed:
        best = np.minimum(best, best.T)
    own = np.arange(len(edges.nodes)) == np.reshape(sources or range(len(found)), (-1, 1))
    assert_array_equal(p == -9999, own | np.isinf(found))
    row, col = np.nonzero(p >= 0)
    near = p[row, col]
    before = found[row, near]
    assert_array_equal(before + best[near, col], found[row, col])  # edges, on best paths
    assert (before < found[row, col]).all() or kind == "negative"  # so no rings


def test_predecessors_are_of_worsened_weights(monkeypatch):
    """Where cycles of weight 0 round to less, the device gets the weights that distances are of."""
    n, row, col = grid(7)
    row, col = np.append(row, col), np.append(col, row)
    height = np.random.default_rng(0).random(n)
    weight = (height[col] - height[row]).astype("float32")
    given, run = [], contraction._fetched

    def fetched(metric, problem, *rest):
        given.append(problem)
        run(metric, problem, *rest)

    def fetch(*args, edges, **rest):
        given.append(edges)
        return whole_fetch(*args, edges=edges, **rest)

    whole_fetch = contraction.fetch
    monkeypatch.setattr(contraction, "_fetched", fetched)
    monkeypatch.setattr(contraction, "fetch", fetch)
    edges = EdgeList(range(n), row, col, weight, True)
    sm.apsp(edges, device="cuda", method="sparse", return_predecessors=True)
    problem, (row, col, worse) = given
    assert problem.source.margins is not None
    matrix = problem.source.read(slice(0, n), slice(0, n))
    assert_array_equal(worse, matrix[row, col])
    assert (worse != problem.source.edges().weight).any()


def test_rings_of_ties_are_repaired():
    edges = random_graph("whole", directed=False)
    edges.weight[:] = 0
    _, p = sm.apsp(edges, device="cuda", method="sparse", return_predecessors=True)
    for i in range(49):
        assert sm.reconstruct_path(p, i, 48)[0] == i


def test_large_work_goes_to_a_device(monkeypatch):
    edges = random_graph("fractions")
    used = []
    monkeypatch.setattr(choice, "gpu_has", lambda memory: used.append(memory) or True)
    for run in (
        lambda: sm.statistics(sm.prepare(edges), "closeness").closeness,
        lambda: sm.apsp(edges, method="sparse"),
    ):
        HOST.launched.clear()
        expected = run()
        assert not used
        monkeypatch.setattr(choice, "GPU_SWEEPS", 1)
        found = run()
        assert used
        assert HOST.launched or device.current() is not HOST
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        used.clear()
        monkeypatch.setattr(choice, "GPU_SWEEPS", 1e10)
