"""Eliminations and products over several devices: parts of the CPU's memory, or CUDA devices."""

import itertools
import sys

import fake_cupy
import numpy as np
import pytest
import walks
from numpy.testing import assert_array_equal

import semiring_mm as sm
from semiring_mm import engine as engines
from semiring_mm import tiles
from semiring_mm.closures.edges import EdgeList
from semiring_mm.closures.elimination import Grid, eliminate
from semiring_mm.closures.solve import Problem
from semiring_mm.closures.sources import DenseSource, EdgeSource
from semiring_mm.closures.steps import Steps
from semiring_mm.cpu import engine
from semiring_mm.semirings import semirings
from semiring_mm.tiled import blocks as blocks_module
from semiring_mm.tiled import solve
from semiring_mm.tiled.blocks import Blocks, shape_of
from semiring_mm.tiled.devices import CudaDevice, Device, cuda_devices
from semiring_mm.tiled.timeline import Timeline
from semiring_mm.tiles import device_list


def cuda_count():
    """How many there are."""
    from semiring_mm.gpu import device

    if device.why_not():
        return 0
    import cupy

    return cupy.cuda.runtime.getDeviceCount()


DEVICES = [pytest.param(count, marks=pytest.mark.multigpu, id=f"cuda-{count}") for count in (2, 4)]


@pytest.fixture(params=[1, 2, 4, 6, *DEVICES])
def devices(request):
    """Some parts of the CPU's memory, or as many devices."""
    if "cuda" not in request.node.callspec.id:
        return [Device(f"cpu:{i}") for i in range(request.param)]
    if cuda_count() < request.param:
        pytest.skip(f"needs {request.param} CUDA devices, and there are {cuda_count()}")
    return cuda_devices(range(request.param))


def close(devices, w, name="min_plus", *, tile=16, directed=None, predecessors=False, **options):
    source = DenseSource(semirings[name], w, undirected=directed is False)
    timeline = options.pop("timeline", None)
    problem = Problem.of(source, directed, predecessors, **options)
    return problem.solve(solve.over(devices, tile, timeline=timeline))


# --- the schedule -------------------------------------------------------------------------------


class Recorder:
    """An executor that notes what it is told to do."""

    def __init__(self):
        self.told = []

    def pivot(self, k):
        self.told.append(("pivot", k))

    def update(self, k, rows, columns):
        self.told += [("update", k, i, j) for i in rows for j in columns]

    def finish(self, k):
        self.told.append(("finish", k))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5])
def test_every_tile_is_updated_once_in_every_step(count):
    seen = Recorder()
    eliminate(count, seen)
    updates = [x[1:] for x in seen.told if x[0] == "update"]
    every = range(count)
    assert sorted(updates) == [
        (k, i, j) for k in every for i in every for j in every if k not in (i, j)
    ]
    assert [x[1] for x in seen.told if x[0] == "pivot"] == list(every)


def test_the_next_pivot_comes_before_the_rest_of_a_step():
    seen = Recorder()
    eliminate(4, seen)
    for k in range(3):
        pivot = seen.told.index(("pivot", k + 1))
        before = {x[2:] for x in seen.told[:pivot] if x[:2] == ("update", k)}
        cross = {(i, j) for i in range(4) for j in range(4) if k + 1 in (i, j) and k not in (i, j)}
        assert before == cross
        assert seen.told.index(("finish", k)) > pivot


def test_an_elimination_goes_on_from_a_step():
    whole, rest = Recorder(), Recorder()
    eliminate(4, whole)
    eliminate(4, rest, 2)
    assert [x for x in rest.told if x[1] > 2] == [x for x in whole.told if x[1] > 2]
    assert rest.told[0] == ("pivot", 2)
    eliminate(4, done := Recorder(), 4)
    assert done.told == []


def test_grid():
    grid = Grid(10, 4)
    assert (grid.count, [grid.size(i) for i in range(3)], grid.part(2)) == (
        3,
        [4, 4, 2],
        slice(8, 10),
    )
    assert Grid(0, 4).count == 0


@pytest.mark.parametrize(("count", "shape"), [(1, (1, 1)), (2, (1, 2)), (4, (2, 2)), (6, (2, 3))])
def test_devices_stand_in_a_rectangle(count, shape):
    assert shape_of(count) == shape


# --- closures -----------------------------------------------------------------------------------

GRAPHS = [(75, 16), (64, 16), (49, 16), (33, 32), (16, 16), (5, 16), (1, 4), (0, 4)]


@pytest.mark.parametrize(("n", "tile"), GRAPHS)
@pytest.mark.parametrize("dtype", ["f4", "i4"])
def test_distances(devices, n, tile, dtype):
    w = walks.weights(np.random.default_rng(n), n, density=0.1, dtype=dtype)
    d, p = close(devices, w, tile=tile)
    assert p is None
    assert d.dtype == w.dtype
    assert_array_equal(d, sm.apsp(w, device="cpu"))


@pytest.mark.parametrize(("n", "tile"), GRAPHS)
def test_undirected_graphs(devices, n, tile):
    w = walks.weights(np.random.default_rng(n), n, density=0.1, directed=False)
    d, _ = close(devices, w, tile=tile)
    assert_array_equal(d, sm.apsp(w, device="cpu"))


def test_an_edge_leads_both_ways_where_this_is_asked_for(devices):
    w = walks.weights(np.random.default_rng(3), 40, density=0.05)
    d, _ = close(devices, w, directed=False)
    assert_array_equal(d, sm.apsp(w, directed=False, device="cpu"))


@pytest.mark.parametrize("name", ["min_plus", "max_min", "min_max", "max_times"])
def test_predecessors(devices, name):
    rng = np.random.default_rng(7)
    s = semirings[name]
    w = np.where(rng.random((60, 60)) < 0.1, rng.integers(1, 9, (60, 60)) / 16, s.zero)
    if name == "min_plus":
        w = walks.potentials(rng, walks.weights(rng, 60, density=0.1))
    d, p = close(devices, w, name, predecessors=True)
    assert_array_equal(d, sm.closure(w, name, device="cpu"))
    mul = {"min_plus": np.add, "max_min": np.minimum, "min_max": np.maximum}.get(name, np.multiply)
    walks.check_paths(w, d, p, mul=mul, zero=s.zero, one=s.one)


@pytest.mark.parametrize("predecessors", [False, True])
def test_truth_values(devices, predecessors):
    a = np.random.default_rng(1).random((70, 70)) < 0.03
    d, p = close(devices, a, "lor_land", predecessors=predecessors)
    assert d.dtype == bool
    assert_array_equal(d, sm.closure(a, "lor_land", device="cpu"))
    if predecessors:
        w = np.where(a, 1.0, np.inf)
        for i, j in np.argwhere(d & ~np.eye(70, dtype=bool))[::17]:
            path = sm.reconstruct_path(p, i, j)
            assert np.isfinite([w[u, v] for u, v in itertools.pairwise(path)]).all()


def test_negative_cycles_are_named(devices):
    w = walks.weights(np.random.default_rng(0), 50, density=0.1)
    w[40, 41], w[41, 40] = -7, 3
    with pytest.raises(sm.NegativeCycleError) as found:
        close(devices, w)
    assert sorted(found.value.cycle) == [40, 41]
    assert found.value.weight == -4


def test_cycles_of_weight_zero_are_not_taken_for_negative_by_rounding(devices):
    """Floats of both signs whose cycles add up to nothing, but for rounding."""
    rng = np.random.default_rng(5)
    h = rng.random(40)
    w = np.where(rng.random((40, 40)) < 0.3, h[:, None] - h, np.inf)
    d, _ = close(devices, w)
    np.testing.assert_allclose(d, sm.apsp(w, device="cpu"), rtol=0, atol=1e-12)


def test_integers_are_widened_and_brought_back(devices):
    w = np.full((40, 40), 2**31 - 1, "i4")
    w[np.arange(39), np.arange(1, 40)] = 5 * 10**7
    d, _ = close(devices, w)
    assert d.dtype == w.dtype
    assert d[0, 39] == 39 * 5 * 10**7
    w[np.arange(39), np.arange(1, 40)] = 10**8
    with pytest.raises(OverflowError, match="use int64"):
        close(devices, w)


def test_edges_as_they_are(devices):
    source = EdgeSource(
        semirings["min_plus"],
        EdgeList([*"abc"], *map(np.array, ([0, 0, 1], [1, 1, 2], [4.0, 3.0, 0.0])), True),
        "f8",
    )
    d, _ = Problem.of(source).solve(solve.over(devices, 2))
    assert_array_equal(d, [[0, 3, 3], [np.inf, 0, 0], [np.inf, np.inf, 0]])


def test_weights_that_are_none(devices):
    w = np.ones((40, 40))
    w[30, 7] = np.nan
    with pytest.raises(ValueError, match=r"the weight at \[30, 7\] is NaN"):
        close(devices, w)


# --- the run ------------------------------------------------------------------------------------


def test_progress_tells_what_each_device_does(devices):
    seen = []

    def progress(done, total, parts):
        seen.append((done, total, dict(parts)))

    w = walks.weights(np.random.default_rng(0), 80, density=0.2)
    close(devices, w, progress=progress)
    done, total, parts = seen[-1]
    assert done == total == 80**3
    assert set(parts) == {x.name for x in devices}
    assert sum(parts.values()) == done
    assert [x[0] for x in seen] == sorted(x[0] for x in seen)
    assert len(seen) > 2


def test_it_can_be_interrupted(devices):
    def stop(done, total):
        raise KeyboardInterrupt

    w = walks.weights(np.random.default_rng(0), 80, density=0.2)
    with pytest.raises(KeyboardInterrupt):
        close(devices, w, progress=stop)
    assert_array_equal(close(devices, w)[0], sm.apsp(w, device="cpu"))


def test_the_timeline_has_each_step_of_each_device(devices):
    timeline = Timeline()
    w = walks.weights(np.random.default_rng(0), 80, density=0.2)
    close(devices, w, timeline=timeline)
    marks = timeline.intervals
    assert {x.device for x in marks} == {x.name for x in devices}
    assert {x.step for x in marks} == set(range(5))
    assert all(x.begin <= x.end for x in marks)
    assert ("send" in {x.lane for x in marks}) == (len(devices) > 1)


def test_what_is_sent_is_what_the_others_need():
    """A row of k goes to all other rows of devices, a column to all other columns."""
    n, tile = 64, 16
    for count, copies in ((1, 0), (2, 1), (4, 2)):
        run = Blocks([Device() for _ in range(count)], n, tile, _steps())
        run.load(lambda rows, columns, xp: np.ones((16, 16), "f4"))
        run.run()
        diagonal = {1: 0, 2: 1, 4: 2}[count]
        assert run.sent == 4 * (n * n * copies + 4 * diagonal * tile**2)


def test_memory_is_checked_before_the_work(monkeypatch, devices):
    monkeypatch.setattr(blocks_module.Blocks, "load", None)
    monkeypatch.setattr(devices[0].engine, "free_memory", lambda: 10_000)
    monkeypatch.setattr(solve, "check_memory", lambda *_: None)
    with pytest.raises(
        MemoryError, match=r"its part of the 100 x 100 matrix in float64 needs .* free"
    ):
        close(devices, np.ones((100, 100)))


def test_a_device_that_runs_out_of_memory_is_named(monkeypatch):
    def full(*_, **__):
        raise MemoryError("Out of memory allocating 7 bytes")

    monkeypatch.setattr(engine, "product", full)
    with pytest.raises(MemoryError, match=r"7 bytes\) needs more memory .*: take more devices"):
        close([Device(), Device()], np.ones((40, 40)))


def _steps(name="min_plus", dtype="f4"):
    return Steps(semirings[name], np.dtype(dtype), None, look=False)


@pytest.mark.parametrize("form", ["directed", "undirected", "predecessors"])
@pytest.mark.parametrize("count", [2, 4])
def test_copies_between_cuda_devices_are_awaited(monkeypatch, count, form):
    """With the CPU engine, and copies that are done as late as they may be."""
    fake = fake_cupy.Cupy()
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setitem(engines._engines, "cuda", fake_cupy.Engine(fake, engine))
    w = walks.weights(np.random.default_rng(0), 70, density=0.1, directed=form != "undirected")
    cuda = [CudaDevice(x) for x in range(count)]
    d, p = close(cuda, w, predecessors=form == "predecessors")
    assert_array_equal(d, sm.apsp(w, device="cpu"))
    if p is not None:
        walks.check_paths(w, d, p)
    assert set(fake.entered) == set(range(count))


# --- products -----------------------------------------------------------------------------------


@pytest.mark.multigpu
def test_as_users_call_it():
    if cuda_count() < 2:
        pytest.skip(f"needs 2 CUDA devices, and there are {cuda_count()}")
    rng = np.random.default_rng(0)
    w = walks.weights(rng, 700, density=0.05, dtype="f4")
    d, p = sm.apsp(w, tiles=sm.Tiles(devices="all"), return_predecessors=True)
    assert_array_equal(d, sm.apsp(w, device="cpu"))
    walks.check_paths(w, d, p)
    assert_array_equal(sm.apsp(w, tiles=sm.Tiles(devices=[1, 0])), d)
    a, b = rng.integers(0, 9, (500, 300)).astype("f4"), rng.integers(0, 9, (300, 400)).astype("f4")
    assert_array_equal(sm.matmul(a, b, tiles=sm.Tiles(devices="all")), a @ b)
    assert_array_equal(
        sm.matmul(a.astype("f2"), b.astype("f2"), "max_min", tiles=sm.Tiles(devices=[0, 1])),
        sm.matmul(a, b, "max_min"),
    )


# --- the door -----------------------------------------------------------------------------------


FIELDS = {"devices", "out", "memory", "checkpoint", "resume"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"memory": "1kB"}, r"use a larger tiles.memory"),
        ({"memory": "much"}, r"expected a size such as '16GB'"),
        ({"memory": "1GB", "max_hops": 2}, r"max_hops is for graphs in one memory"),
        ({"memory": "1GB", "overwrite": True}, r"overwrite is for graphs in one memory"),
        ({"memory": "1GB", "method": "squaring"}, r"method='squaring' is for graphs in one"),
        ({"memory": "1GB", "checkpoint": 0}, r"checkpoint is a number of steps from 1 on"),
        ({"resume": True}, r"resume goes on with a run that had out=PATH"),
        ({"checkpoint": 3}, r"checkpoint counts the steps between states in out=PATH"),
        ({"out": "d.csv"}, r"ends in neither .npy nor .zarr"),
        ({"out": 5}, r"out is a path ending in .npy or .zarr, got 5"),
        ({"out": "d.npy", "return_predecessors": True}, r"two paths, out=\(distances, pred"),
        ({"devices": "some"}, "devices is 'all' or a sequence of devices such as 0 or 'cuda:0'"),
        ({"devices": [0], "device": "cuda"}, r"give one of them"),
        ({"memory": "1GB", "device": "tpu"}, "device must be None, 'cpu', 'cuda'"),
    ],
)  # fmt: skip
def test_refusals(words, message):
    fields = {name: x for name, x in words.items() if name in FIELDS}
    others = {name: x for name, x in words.items() if name not in FIELDS}
    with pytest.raises((ValueError, MemoryError), match=message):
        sm.apsp(np.ones((500, 500)), **others, tiles=sm.Tiles(**fields))


@pytest.mark.parametrize("words", [{"sources": 0}, {"method": "sparse"}])
def test_rows_alone_are_not_for_several_devices(monkeypatch, words):
    monkeypatch.setattr(tiles, "device_list", lambda *_: [0, 1])
    with pytest.raises(ValueError, match=r"(sources|method='sparse') is for graphs in one memory"):
        sm.apsp(np.ones((500, 500)), tiles=sm.Tiles(devices="all"), **words)


def test_devices_are_named_by_numbers_or_as_one_device_is(monkeypatch):
    cupy = pytest.importorskip("cupy")
    from semiring_mm.gpu import device

    monkeypatch.setattr(device, "why_not", lambda: "")
    monkeypatch.setattr(cupy.cuda.runtime, "getDeviceCount", lambda: 3)
    assert device_list("all") == [0, 1, 2]
    assert device_list((2, np.int64(0))) == [2, 0]
    assert device_list(["cuda:2", "cuda:0"]) == device_list([2, "cuda:0"]) == [2, 0]
    assert device_list("cuda:1") == [1]
    for wrong in ([], [3], [-1], [0, 0], [0, "cuda:0"], 1, [1.5], ["a"], ["cpu"], ["cuda"], "a",
                  ["cuda:3"], [True]):  # fmt: skip
        with pytest.raises(ValueError, match="devices"):
            device_list(wrong)
    monkeypatch.setattr(device, "why_not", lambda: "no GPU here")
    with pytest.raises(ValueError, match="devices: no GPU here"):
        device_list([0])


@pytest.mark.parametrize(
    ("a", "b", "words", "message"),
    [
        (np.ones((2, 3)), np.ones((2, 3)), {}, "a has 3 columns and b has 2 rows"),
        (np.ones(3), np.ones((3, 3)), {}, r"a is a matrix on the host .* got shape \(3,\)"),
        (np.ones((3, 3)), np.ones((3, 3)), {"return_arg": True}, "neither return_arg nor out"),
        (np.ones((3, 3)), np.ones((3, 3)), {"out": np.ones((3, 3))}, "neither return_arg nor out"),
    ],
)  # fmt: skip
def test_refusals_of_products(a, b, words, message):
    with pytest.raises((ValueError, TypeError), match=message):
        sm.matmul(a, b, tiles=sm.Tiles(memory="1GB"), **words)


def test_the_engine_is_named_where_it_lacks_memory(monkeypatch):
    monkeypatch.setattr(engine, "free_memory", lambda: 10)
    with pytest.raises(MemoryError, match="the 400 x 400 result in float64"):
        sm.apsp(np.ones((400, 400)), tiles=sm.Tiles(memory="1GB"))
