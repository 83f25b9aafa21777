"""Pairs within a radius against the matrix of all distances."""

from dataclasses import replace

import numpy as np
import pytest
from metrics import graph, leave_core, only, squares
from optional import pa, pd, sp
from plain_kernels import MIN_PLUS, both

import semiring_mm as sm
from semiring_mm.cpu import engine as cpu
from semiring_mm.graphs import within as module
from semiring_mm.graphs.kernels import reach as kernels
from semiring_mm.hierarchy.reach import Reach

INF = np.inf


def dense(found):
    """The pairs as a matrix, inf where there is none; each is there once."""
    d = np.full(found.shape, INF)
    row = np.repeat(np.arange(len(found.sources)), np.diff(found.indptr))
    d[row, found.indices] = found.distance
    assert len(found) == found.indptr[-1] == np.isfinite(d).sum()
    assert found.indices.dtype == np.int32
    return d


def cut(d, radius):
    return np.where(d <= radius, d, INF)


@pytest.mark.parametrize("way", ["sweeps", "core", "search"])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_pairs_are_those_of_the_matrix(way, directed, whole, monkeypatch):
    if way == "search":
        only(monkeypatch, "a search from each source", "elimination in blocks")
    if way == "core":
        leave_core(monkeypatch)
    for seed in range(9):
        given = graph(seed, directed=directed, whole=whole)
        d, rng = np.asarray(sm.apsp(given)), np.random.default_rng(seed)
        asked = given if way == "search" else sm.prepare(given)
        some = rng.integers(0, given.n, rng.integers(0, 40))
        finite = d[np.isfinite(d)] * (1 if whole else 1 + 1e-9)  # methods round in other orders
        for radius in (0, 2, float(np.median(finite)), float(finite.max()), INF):
            found = sm.within(asked, radius)
            np.testing.assert_allclose(dense(found), cut(d, radius), rtol=1e-12)
            found = sm.within(asked, radius, sources=some, outward=False)
            np.testing.assert_allclose(dense(found), cut(d.T[some], radius), rtol=1e-12)
            assert found.sources.tolist() == some.tolist()
            ends = list(dict.fromkeys(some.tolist()))
            found = sm.within(asked, radius, targets=some)
            np.testing.assert_allclose(dense(found), cut(d[:, ends], radius), rtol=1e-12)
            assert found.targets.tolist() == ends


def test_few_targets_of_many_sources():
    """Subtrees without a target are left out."""
    given = squares()
    net, d = sm.prepare(given), np.asarray(sm.apsp(given))
    for radius in (3, 12):
        found = net.within(radius, targets=[7, 511, 890])
        np.testing.assert_array_equal(dense(found), cut(d[:, [7, 511, 890]], radius))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("whole", [False, True])
def test_types(dtype, whole):
    """The radius counts as it is, not as rounded to the type; and distances are those of apsp."""
    given = graph(4, directed=True, whole=whole or dtype[0] == "i", density=2)
    d = np.asarray(sm.apsp(given, dtype=dtype if dtype[0] == "f" else "float64"))
    net = sm.prepare(given, dtype=dtype)
    for radius in (0, 2.5, 7, INF):
        found = [net.within(radius)]
        if dtype[0] == "f":
            found.append(sm.within(given, radius, dtype=dtype))
        for one in found:
            assert one.distance.dtype == dtype
            np.testing.assert_allclose(dense(one), cut(d, radius), rtol=1e-6)


@pytest.mark.parametrize("batch", [1, 7, 1000, "auto"])
@pytest.mark.parametrize("core", [False, True])
def test_batches_have_all_pairs(batch, core, monkeypatch):
    if core:
        leave_core(monkeypatch)
    monkeypatch.setattr(module, "_LEAST", 5)
    monkeypatch.setattr(module, "_PAIRS", 1000)
    given = graph(7, directed=True, whole=False)
    d, net = np.asarray(sm.apsp(given)), sm.prepare(given)
    parts = list(net.within(4, batch=batch))
    assert sorted(np.concatenate([x.sources for x in parts])) == list(range(given.n))
    for part in parts:
        np.testing.assert_allclose(dense(part), cut(d[part.sources], 4), rtol=1e-12)
        if batch != "auto":
            assert len(part.sources) <= batch
    assert len(parts) > 1 or batch == 1000


def test_results_are_the_same_on_any_number_of_threads():
    net = sm.prepare(graph(8, directed=False, whole=False, density=2))
    results = []
    for threads in (1, 2, 3):
        sm.set_num_threads(threads)
        results.append(net.within(6))
    for other in results[1:]:
        for name in ("indptr", "indices", "distance"):
            np.testing.assert_array_equal(getattr(other, name), getattr(results[0], name))


@pytest.mark.parametrize("whole", [False, True])
def test_negative_weights(whole):
    """Nothing but what is not reached is left out then."""
    given, rng = squares(12), np.random.default_rng(0)
    height = rng.integers(-30, 30, given.n) * (1 if whole else 0.7)
    row, col = np.append(given.row, given.col), np.append(given.col, given.row)
    weight = rng.integers(1, 9, len(row)) + height[row] - height[col]
    given = sm.files.Graph(range(given.n), row, col, weight, True)
    net, d = sm.prepare(given), np.asarray(sm.apsp(given))
    for radius in (1e-9, 3 + 1e-9, 20 + 1e-9, INF):
        np.testing.assert_allclose(dense(net.within(radius)), cut(d, radius), atol=1e-12)


def test_rings_of_weight_0_leave_sources_at_0():
    """Whatever differences of heights round to."""
    given, height = squares(12), np.random.default_rng(6).random(144)
    row, col = np.append(given.row, given.col), np.append(given.col, given.row)
    net = sm.prepare(sm.files.Graph(range(144), row, col, height[col] - height[row], True))
    assert set(np.diag(dense(net.within(0.5)))) == {0}


@pytest.mark.parametrize("core", [False, True])
def test_distances_beyond_32_bits(core, monkeypatch):
    """What is near is found as in 32 bits where that is right."""
    if core:
        leave_core(monkeypatch)
    given = squares(9)
    given = replace(given, weight=np.random.default_rng(0).integers(1, 5, 144) * 2.0**28)
    d, net = np.asarray(sm.apsp(given)), sm.prepare(given)
    for radius in (2**27, 2**28, 2**30, 2**32, INF):
        np.testing.assert_array_equal(dense(net.within(radius)), cut(d, radius))


def test_tables():
    net = sm.prepare({"a": {"b": 3, "c": 8}, "b": {"c": 1}})
    found = net.within(3.5, targets=["c", "b"])
    rows = {("a", "b", 3.0), ("b", "c", 1.0), ("b", "b", 0.0), ("c", "c", 0.0)}
    frame = found.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert set(frame.itertuples(index=False, name=None)) == rows
    table = found.to_arrow()
    assert isinstance(table, pa.Table)
    assert set(zip(*table.to_pydict().values(), strict=True)) == rows
    matrix = found.to_scipy()
    assert isinstance(matrix, sp.csr_array)
    assert matrix.nnz == 4  # of which two are distances of 0
    np.testing.assert_array_equal(matrix.toarray(), [[0, 3], [1, 0], [0, 0]])
    assert np.shares_memory(matrix.data, found.distance)
    assert repr(found) == "<Within: 4 pairs of 3 x 2 nodes, float64>"
    assert "<tr><td>" in found._repr_html_() or "<tr><th>" in found._repr_html_()
    assert len(sm.within(np.zeros((0, 0)), 1)) == 0
    numbers = sm.within(squares(), 2)
    assert numbers._repr_html_().count("...") == 3
    assert numbers.to_frame().dtypes.astype(str).tolist() == ["int64", "int32", "float64"]


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"radius": -1}, "radius is not negative, got -1"),
        ({"radius": float("nan")}, "radius is not negative, got nan"),
        ({"radius": "2 km"}, "radius is a number in the unit of the weights, got '2 km'"),
        ({"radius": True}, "radius is a number"),
        ({"radius": 1, "sources": [7]}, "no node 7"),
        ({"radius": 1, "targets": [7]}, "no node 7"),
        ({"radius": 1, "batch": 0}, "batch: a positive number of sources, got 0"),
        ({"radius": 1, "batch": "all"}, "batch must be an integer, \"auto\" or None, got 'all'"),
    ],
)
def test_errors(given, error):
    with pytest.raises((ValueError, TypeError), match=error):
        sm.within(np.ones((2, 2)), **given)


def test_other_semirings_are_refused():
    with pytest.raises(ValueError, match="distances are of min_plus, the graph is over max_min"):
        sm.prepare(np.ones((2, 2)), semiring="max_min").within(1)


def test_too_many_pairs(monkeypatch):
    """Are refused before they fill the memory, and come in batches."""
    net = sm.prepare(squares())
    monkeypatch.setattr(module, "_PAIRS", 1 << 16)
    monkeypatch.setattr(cpu, "free_memory", lambda: 10_000_000)
    assert len(net.within(3)) < 30_000
    monkeypatch.setattr(cpu, "free_memory", lambda: 8_000_000)
    with pytest.raises(MemoryError, match=r'pairs needs .* batch="auto" gives them in batches'):
        net.within(INF)
    assert sum(len(x) for x in net.within(INF, batch="auto")) == 900**2


@pytest.mark.parametrize("core", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_the_kernels_in_python(core, whole, monkeypatch):
    """They stop where there is no more room, and go on."""
    if core:
        leave_core(monkeypatch)
    metric = sm.prepare(graph(5, directed=True, whole=whole, density=1.2)).metric
    x = metric.structure
    assert bool(x.core) == core
    found = Reach(metric, 4, x.n)
    # of several lanes what is beyond the radius may differ: they are out of reach together
    metric, kind, width = found.metric, found.dtype, 1
    operations = replace(MIN_PLUS, zero=metric.identities[0])
    fields = found.fields | {"width": width}
    blocks = -(-x.n // width)
    source = np.full((blocks, width + 1), x.n)
    source[:, :-1].flat[: x.n] = np.arange(x.n)
    state, capacity = np.array([-1, 0, 0, 0, 0]), x.core + 20
    fields |= {
        "end": blocks, "sources": x.n, "down": 0, "source": source, "state": state,
        "capacity": capacity, "enough": 10, "place": np.zeros(x.n, "i4"),
        "visited": np.zeros(x.eliminated, "i4"), "ends": np.zeros(blocks, "i8"),
        "label": np.zeros((x.core + x.depth, width), kind),
        "up_label": np.zeros((x.n, width), kind),
        "core_label": np.zeros((x.n, x.core), kind), "vertex": np.zeros(capacity, "i4"),
        "near": np.zeros((capacity, width), kind),
    }  # fmt: skip
    fields["place"][x.eliminated :] = np.arange(x.core)
    calls = 0
    for down in (0, 1)[not core :]:
        fields["down"], fields["state"] = down, np.array([-1, 0, 0, 0, 0])
        while fields["state"][kernels.BLOCK] < blocks:
            fields = both(kernels.reach, operations, metric.plan, **fields)
            calls += 1
    assert calls > 10
    width, ends = 8, np.array([3, 7, 11])
    near = np.random.default_rng(0).integers(0, 9, (11, width)).astype(kind)
    ways = both(
        kernels.ways_in, operations, metric.plan, n=x.eliminated, wanted=None, first=x.first,
        head=x.head, parent=x.parent, place=np.zeros(x.n, "i4"), size=np.zeros(x.eliminated, "i4"),
        back=metric.back, enter=np.zeros_like(metric.back), some=np.zeros(x.eliminated, "i4"),
    )  # fmt: skip
    np.testing.assert_array_equal(ways["enter"], fields["enter"])
    given = {
        "begin": 0, "end": 3, "width": width, "vectors": 2, "radius": found.radius, "ends": ends,
        "near": near,
    }  # fmt: skip
    count = both(
        kernels.count_pairs, operations, metric.plan, part=np.zeros(width, "i4"),
        count=np.zeros((3, width), "i8"), **given,
    )["count"]  # fmt: skip
    place = (np.cumsum(count) - count.ravel()).reshape(count.shape)
    pairs = int(count.sum())
    written = both(
        kernels.write_pairs, operations, metric.plan, vertex=fields["vertex"], place=place,
        index=np.zeros(pairs, "i4"), distance=np.zeros(pairs), **given,
    )  # fmt: skip
    assert pairs > 0
    assert (written["distance"] <= 4).all()
