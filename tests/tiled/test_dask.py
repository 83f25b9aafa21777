"""Several machines, through Dask: two worker processes here, which are killed on purpose."""

import contextlib
import json
import os
import pickle
import signal
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from reference import ALGEBRAS
from walks import check_paths

import semiring_mm as sm
from semiring_mm import pool
from semiring_mm.closures.steps import Improves, Steps
from semiring_mm.storage import seal, unseal
from tests.graphs import test_trees

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
sd = pytest.importorskip("semiring_mm.dask")

from semiring_mm.dask import tasks  # noqa: E402
from semiring_mm.dask.checkpoint import State  # noqa: E402
from semiring_mm.dask.cluster import Worker  # noqa: E402

INF = np.inf


@contextlib.contextmanager
def started():
    """A client of two worker processes."""
    options = {
        "distributed.scheduler.allowed-failures": 20,  # the same task may be hit by many deaths
        "distributed.worker.daemon": True,
        "logging.distributed": "critical",
        "distributed.worker.profile.enabled": False,  # takes time, and nobody looks at it
    }
    with (
        dask.config.set(options),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs="CRITICAL"
        ) as local,
        distributed.Client(local) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def cluster():
    with started() as found:
        yield found


@pytest.fixture
def client(cluster):
    """With both workers: on a busy machine one may have been given up and started again."""
    cluster.wait_for_workers(2, timeout=60)
    return cluster


@pytest.fixture
def mortal():
    """A cluster of its own, for workers that are killed."""
    with started() as found:
        yield found


def graph(n, seed=0, dtype=np.float64, density=0.1, zero=INF, symmetric=False):
    """Whole numbers, so that all results are exact."""
    rng = np.random.default_rng(seed)
    w = rng.integers(1, 100, (n, n)).astype(dtype)
    edges = rng.random((n, n)) < density
    if symmetric:
        edges = np.triu(edges, 1)
        edges, w = edges | edges.T, np.triu(w) + np.triu(w, 1).T
    return np.where(edges, w, dtype(zero)).astype(dtype)


def same(found, expected):
    assert isinstance(found, da.Array)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found.compute(), expected)


def soon(holds):
    """What a client lets go of is forgotten a little later."""
    end = time.monotonic() + 5
    while not holds() and time.monotonic() < end:
        time.sleep(0.02)
    assert holds()


# --- results ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 31, 32, 97])
def test_distances(client, n):
    w = graph(n)
    same(sd.apsp(client, w, tile=32), sm.apsp(w))


@pytest.mark.parametrize("n", [64, 97])
def test_undirected_graphs_take_half_the_tasks(client, n):
    w = graph(n, symmetric=True)
    totals = []
    same(sd.apsp(client, w, tile=32, progress=lambda _, all_: totals.append(all_)), sm.apsp(w))
    assert set(totals) == {n**3 / 2}
    one_way = np.triu(w)
    one_way[one_way == 0] = INF
    for x in (one_way, da.from_array(one_way, chunks=40)):
        same(sd.apsp(client, x, tile=32, directed=False), sm.apsp(one_way, directed=False))


CASES = [
    ("max_min", np.float32, -INF), ("lor_land", np.bool_, 0), ("max_times", np.float64, 0),
    ("min_plus", np.int16, 32767),
]  # fmt: skip


@pytest.mark.parametrize(("name", "dtype", "zero"), CASES)
def test_closures_with_predecessors(client, name, dtype, zero):
    w = graph(70, 1, dtype, 0.08, zero)
    if name == "max_times":
        w = np.where(w > 0, np.exp2(-(w % 8)), 0)
    same(sd.closure(client, w, name, tile=24), sm.closure(w, name))
    d, p = sd.closure(client, da.from_array(w, chunks=(30, 50)), name, tile=24,
                      return_predecessors=True)  # fmt: skip
    same(d, sm.closure(w, name))
    assert p.dtype == np.int32
    trees(name, w, d.compute(), p.compute())


def test_graphs_and_weights_as_for_apsp(client, tmp_path):
    roads = {"a": {"b": {"km": 3}}, "b": {"c": {"km": 4}}}
    with pytest.warns(UserWarning, match="no edge has 'weight'.*edges have 'km'") as found:
        same(sd.apsp(client, roads), sm.apsp(roads, weight=None))
    assert found[0].filename == __file__
    same(sd.apsp(client, roads, weight="km"), sm.apsp(roads, weight="km"))
    widest = sm.closure(roads, "max_min", weight="km")
    same(sd.closure(client, roads, "max_min", weight="km"), widest)
    path = tmp_path / "roads.csv"
    path.write_text("from,to,price\na,b,3\nb,c,4\n")
    same(sd.apsp(client, path, weight="price"), sm.apsp(roads, weight="km"))
    w = np.where(np.eye(3), 0, INF)
    with pytest.warns(UserWarning, match="is inf, .* where inf means no edge, write -inf"):
        sd.closure(client, w, "max_min")
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'semiring'"):
        sd.closure(client, w)
    with pytest.raises(TypeError, match="got set"):
        sd.apsp(client, {1, 2})


def trees(name, w, d, p):
    """Each row of p is a tree of edges that explains d."""
    zero, one = sm.semirings[name].identities(w.dtype)
    check_paths(w, d, p, mul=ALGEBRAS[name].mul, zero=zero, one=one)


def test_ties_are_repaired_into_trees(client):
    """All edges are equally wide: in blocks the predecessors of many nodes form rings."""
    w = np.where(graph(60, 3, density=0.15) < INF, 5.0, -INF)
    d, p = sd.closure(client, w, "max_min", tile=16, return_predecessors=True)
    same(d, sm.closure(w, "max_min"))
    trees("max_min", w, d.compute(), p.compute())


@pytest.mark.parametrize("lazy", [True, False])
def test_cycles_of_weight_zero_that_round(client, lazy):
    weights, there = test_trees.tenths(2)
    w = test_trees.matrix(weights, there, np.float64)
    graph = da.from_array(w, 7) if lazy else w
    d, p = sd.apsp(client, graph, return_predecessors=True, tile=8)
    test_trees.check(w, d.compute(), p.compute(), best=test_trees.exact(weights, there))


def test_what_a_graph_may_be(client):
    nx = pytest.importorskip("networkx")
    g = nx.gnp_random_graph(40, 0.1, seed=1, directed=True)
    for u, v in g.edges:
        g.edges[u, v]["weight"] = (u * v) % 7 + 1
    same(sd.apsp(client, g, tile=16), sm.apsp(g))
    same(sd.apsp(client, g, tile=16, directed=False), sm.apsp(g, directed=False))
    same(sd.closure(client, g, "lor_land", tile=16), sm.closure(g, "lor_land"))
    same(sd.apsp(client, [[0, 1], [1, 0]]), sm.apsp([[0, 1], [1, 0]]))
    d, p = sd.apsp(client, np.empty((0, 0)), return_predecessors=True)
    assert d.shape == p.shape == (0, 0)


def test_the_graph_is_not_written_to(client):
    w = graph(40)
    x = client.persist(da.from_array(w.copy(), chunks=20))
    sd.apsp(client, x, tile=20)
    same(x, w)


def test_a_task_does_not_write_to_its_operands():
    """The scheduler may give them to others, or do the task again."""
    steps = Steps(sm.semirings["min_plus"], np.dtype(float), None, False)
    options = {"steps": steps, "worker": Worker(None, 1)}
    tiles = [(graph(20, seed, density=0.5), None) for seed in range(3)]
    kept = pickle.loads(pickle.dumps(tiles))
    tasks.close((0, 0, 0), tiles[0], 0, **options)
    tasks.row((0, 0, 1), *tiles[:2], **options)
    tasks.column((0, 1, 0), *tiles[:2], **options)
    tasks.update((0, 1, 1), *tiles, False, False, **options)
    np.testing.assert_array_equal([x for x, _ in tiles], [x for x, _ in kept])


# --- cycles -------------------------------------------------------------------------------------


def test_improves_survives_a_pickle():
    error = pickle.loads(pickle.dumps(Improves(3, np.float32(-1))))
    assert (error.node, error.value, error.value.dtype) == (3, -1, np.float32)


@pytest.mark.parametrize("lazy", [False, True])
def test_negative_cycles_are_named(client, lazy):
    w = graph(50, 4)
    w[20, 3], w[3, 41], w[41, 20] = 2, -8, 5
    with pytest.raises(sm.NegativeCycleError) as expected:
        sm.apsp(w)
    x, before = da.from_array(w, chunks=17) if lazy else w, set(client.futures)
    with pytest.raises(sm.NegativeCycleError) as found:
        sd.apsp(client, x, tile=16)
    # though the exception, with its frames, is kept
    soon(lambda: set(client.futures) <= before)
    assert (found.value.weight, set(found.value.cycle)) == (-1, set(expected.value.cycle))


def test_negative_cycles_have_the_names_of_nodes(client):
    nx = pytest.importorskip("networkx")
    g = nx.DiGraph()
    g.add_weighted_edges_from([("a", "b", 1), ("b", "a", -2), ("b", "c", 1)])
    with pytest.raises(sm.NegativeCycleError, match=r"(a → b|b → a)"):
        sd.apsp(client, g, tile=2)


@pytest.mark.parametrize("lazy", [False, True])
def test_a_cycle_that_rounding_made_negative(client, lazy, tmp_path):
    w = np.full((9, 9), INF)
    w[0, 1], w[1, 2], w[2, 0] = 0.7, 0.1, -0.8
    w[2, 5], w[5, 8], w[8, 3] = 0.3, -0.1, 0.25
    with np.errstate(all="raise"):
        expected = sm.apsp(w)
    x = da.from_array(w, chunks=4) if lazy else w
    for again in (False, True):
        d = sd.apsp(client, x, tile=4, tiles=sm.Tiles(out=tmp_path / "run", resume=again))
        np.testing.assert_allclose(d.compute(), expected, rtol=1e-12, atol=1e-12)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["extra"]["margins"]


# --- deaths -------------------------------------------------------------------------------------


def kill_some(client, at, seed):
    """A progress callback that kills a worker some time after the run has come so far."""
    rng = np.random.default_rng(seed)
    pending = sorted(at)
    killed = []

    def kill():
        nannies = client.cluster.workers.values()
        # one that is killed as it starts is not replaced, but given up by its nanny
        processes = [x.process for x in nannies if x.process and x.process.status.name == "running"]
        if processes:
            killed.append(processes[rng.integers(len(processes))].pid)
            os.kill(killed[-1], signal.SIGKILL)

    def progress(done, total):
        if pending and done >= pending[0] * total:
            pending.pop(0)
            threading.Timer(rng.random() / 10, kill).start()

    return progress, killed


def test_workers_are_killed_and_the_result_is_exact(mortal, tmp_path, kill_seed):
    w = graph(200, 5)
    expected = sm.apsp(w)
    for seed, checkpoint in enumerate(
        [None, sm.Tiles(out=tmp_path / "run", checkpoint=1)], kill_seed
    ):
        mortal.wait_for_workers(2, timeout=60)
        progress, killed = kill_some(mortal, np.random.default_rng(seed).random(2), seed)
        d, p = sd.apsp(
            mortal, da.from_array(w, chunks=100), tile=50, tiles=checkpoint,
            progress=progress, return_predecessors=True,
        )  # fmt: skip
        assert killed
        same(d, expected)
        trees("min_plus", w, expected, p.compute())


def updates(client):
    return {key for key in client.cluster.scheduler.tasks if "update" in str(key)}


def test_a_checkpoint_ends_the_history(client, tmp_path):
    w, before = graph(100), updates(client)  # some of other tests may be there still
    d = sd.apsp(client, w, tile=25)
    assert updates(client) - before  # from which lost tiles would be computed again
    del d
    lags = []

    def note(done, total):
        if (tmp_path / "run" / "run.json").exists():
            step = json.loads((tmp_path / "run" / "run.json").read_text())["step"]
            lags.append(step / 4 - done / total)

    d = sd.apsp(
        client, w, tile=25, tiles=sm.Tiles(out=tmp_path / "run", checkpoint=1), progress=note
    )
    soon(lambda: not updates(client) - before)
    same(d, sm.apsp(w))
    assert max(lags) < 1e-9  # what a checkpoint has is known to be done


class Stop(Exception):
    pass


@pytest.mark.parametrize("predecessors", [False, True])
def test_an_interrupted_run_goes_on(client, predecessors, tmp_path, kill_seed):
    w, before = graph(100, 6), updates(client)
    path, part = tmp_path / "run", np.random.default_rng(kill_seed).random() * 0.8

    def stop(done, total):
        if done > part * total:
            raise Stop

    fresh = sm.Tiles(out=path, checkpoint=1)
    options = {"tile": 20, "return_predecessors": predecessors, "tiles": fresh}
    again = options | {"tiles": replace(fresh, resume=True)}
    with pytest.raises(Stop):
        sd.apsp(client, w, progress=stop, **again)  # there is nothing yet
    soon(lambda: not updates(client) - before)
    state = json.loads((path / "run.json").read_text())
    # what a client that died just then may have left
    (path / "step-9-half").mkdir()
    (path / "step-9-half" / "0-0.npz").write_bytes(b"half")
    (path / "run.json.1.part").write_text("{")

    with pytest.raises(FileExistsError, match="resume=True"):
        sd.apsp(client, w, **options)
    with pytest.raises(ValueError, match="the state of a run with graph = "):
        sd.apsp(client, w + 1, **again)
    with pytest.raises(ValueError, match="a run with tile = 20, and this one has 40"):
        sd.apsp(client, w, **again | {"tile": 40})
    with pytest.raises(ValueError, match="a run with predecessors"):
        sd.apsp(client, w, **again | {"return_predecessors": not predecessors})

    seen = []
    found = sd.apsp(
        client, w, progress=lambda done, _: seen.append(done), **again | {"tile": None}
    )  # fmt: skip
    assert seen[0] / 100**3 >= state["step"] / 5
    d, p = found if predecessors else (found, None)
    same(d, sm.apsp(w))
    if predecessors:
        trees("min_plus", w, d.compute(), p.compute())
    kept = json.loads((path / "run.json").read_text())
    assert kept["step"] == 5
    found = sd.apsp(client, w, **again)  # nothing is left to do
    same(found[0] if predecessors else found, sm.apsp(w))


def test_changed_bytes_of_a_checkpoint_are_refused(client, tmp_path):
    """In the state, at any place; in a tile; and a state that no run has written."""
    w, path, rng = graph(60), tmp_path / "run", np.random.default_rng(0)
    same(sd.apsp(client, w, tile=20, tiles=sm.Tiles(out=path)), sm.apsp(w))
    file = path / "run.json"
    good = file.read_bytes()
    for at, bit in zip(range(len(good)), rng.integers(0, 8, len(good)), strict=True):
        file.write_bytes(good[:at] + bytes([good[at] ^ 1 << bit]) + good[at + 1 :])
        with pytest.raises(ValueError, match=r"run.json is no state of .* begin again"):
            State.open(path, None, resume=True)
    fields = unseal(good.decode())
    for wrong in (
        {"step": 4}, {"step": -1}, {"tile": 0}, {"tile": 20.0}, {"extra": {"folder": "../other"}},
        {"extra": {}}, {"extra": fields["extra"] | {"margins": ""}}, {"format": 1},
    ):  # fmt: skip
        file.write_text(seal({**fields, **wrong}))
        with pytest.raises(ValueError, match=r"run.json is no state of .* begin again"):
            sd.apsp(client, w, tiles=sm.Tiles(out=path, resume=True))
    file.write_bytes(good)
    tile = next(path.glob("step-*/1-2.npz"))
    data = tile.read_bytes()
    for at in rng.integers(200, len(data) - 200, 2):  # its array; around it are names and dates
        tile.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        with pytest.raises(ValueError, match=r"1-2.npz has changed since it was written"):
            sd.apsp(client, w, tiles=sm.Tiles(out=path, resume=True)).compute()
    tile.write_bytes(data)
    same(sd.apsp(client, w, tiles=sm.Tiles(out=path, resume=True)), sm.apsp(w))


def test_progress_comes_to_its_end(client):
    w, seen = graph(64), []
    sd.apsp(client, w, tile=16, progress=lambda *x: seen.append(x))
    assert [x for x, _ in seen] == sorted(x for x, _ in seen)
    np.testing.assert_allclose(seen[-1], (64**3, 64**3))


# --- errors -------------------------------------------------------------------------------------


def refused(error, words, client, x, **options):
    run = sd.closure if "semiring" in options else sd.apsp
    with pytest.raises(error, match=words):
        run(client, x, **options)


def test_errors_at_the_door(client):
    w = graph(6)
    refused(TypeError, "distributed.Client", "tcp://127.0.0.1:8786", w)
    refused(ValueError, "idempotent", client, w, semiring="plus_times")
    refused(ValueError, "at least 1, got 0", client, w, tile=0)
    refused(TypeError, "tile must be an integer", client, w, tile=2.5)
    refused(ValueError, "device must be", client, w, device="cuda:1")
    refused(ValueError, "out is a path of a folder", client, w, tiles=sm.Tiles(out=3))
    refused(ValueError, "tiles has no devices here", client, w, tiles=sm.Tiles(devices="all"))
    refused(TypeError, "progress is True", client, w, progress=3)
    refused(ValueError, "square", client, w[:3])
    refused(ValueError, "square", client, da.zeros((4, 5)))
    refused(ValueError, "unknown size", client, da.from_array(w, chunks=3)[da.ones(6) > 0])
    refused(TypeError, "real numbers", client, w.astype(complex))
    refused(TypeError, "a graph is a square array", client, object())
    s = sm.Semiring("gcd_like", "a | b", "a & b", 0, -1)
    refused(ValueError, "chooses one of its operands", client, np.eye(3, dtype=np.int32),
            semiring=s, return_predecessors=True)  # fmt: skip
    refused(MemoryError, r"needs 8\.\d+e\+03 GB on the workers", client, da.zeros((10**6, 10**6)),
            tile=10**4)  # fmt: skip


@pytest.mark.parametrize("lazy", [False, True])
def test_what_is_no_weight_is_named(client, lazy):
    w = graph(20)
    w[13, 7] = np.nan
    x = da.from_array(w, chunks=6) if lazy else w
    refused(ValueError, r"the weight at \[13, 7\] is NaN", client, x, tile=8)
    w[13, 7] = -INF
    x = da.from_array(w, chunks=6) if lazy else w
    refused(ValueError, r"the weight at \[13, 7\] is -inf", client, x, tile=8)


def test_a_worker_without_a_gpu_says_so(client):
    from semiring_mm.gpu import device

    if not device.why_not():
        pytest.skip("there is a GPU")
    refused(ValueError, "device='cuda'", client, graph(6), device="cuda")


def test_a_task_without_memory_names_its_tile():
    worker, words = Worker(None, 1), r"tile \(2, 3\) of step 1: .*smaller tiles"
    with pytest.raises(MemoryError, match=words), worker.engine(1, 2, 3):
        raise MemoryError("no room")


def test_a_folder_that_a_worker_does_not_see(tmp_path):
    with pytest.raises(FileNotFoundError, match="all workers share"):
        tasks.save((0, 0), (np.ones(3), None), folder=tmp_path / "absent", worker=Worker(None, 1))


def test_a_caller_is_held_to_its_part_of_the_threads():
    before = sm.get_num_threads()
    try:
        sm.set_num_threads(4)
        with pool.limited(3):
            assert sm.get_num_threads() == 3
            with pool.limited(1):
                assert sm.get_num_threads() == 1
                seen = set()
                pool.run([lambda: seen.add(threading.get_ident())] * 8)
                assert seen == {threading.get_ident()}
        assert sm.get_num_threads() == 4
    finally:
        sm.set_num_threads(before)


# --- products -----------------------------------------------------------------------------------

PRODUCTS = [
    ("min_plus", np.float64), ("max_plus", np.float32), ("plus_times", np.float32),
    ("plus_times", np.int16), ("min_plus", np.int32), ("lor_land", np.bool_),
    ("log_plus", np.float64), ("max_min", np.float16), ("plus_times", np.uint8),
]  # fmt: skip


@pytest.mark.parametrize(("name", "dtype"), PRODUCTS)
@pytest.mark.parametrize("chunks", [(7, 5, 9), (20, 100, 30), (3, 2, 30)])
def test_products(name, dtype, chunks):
    rng = np.random.default_rng(7)
    a, b = (rng.integers(0, 3, shape).astype(dtype) for shape in ((20, 40), (40, 30)))
    m, k, n = chunks
    c = sd.matmul(da.from_array(a, chunks=(m, k)), da.from_array(b, chunks=(k + 1, n)), name)
    expected = sm.matmul(a, b, name)
    assert (c.dtype, c.shape) == (expected.dtype, expected.shape)
    found = c.compute(scheduler="sync")
    assert found.dtype == expected.dtype
    if name == "log_plus":
        np.testing.assert_allclose(found, expected, rtol=1e-14)
    else:
        np.testing.assert_array_equal(found, expected)


def test_products_on_the_cluster(client):
    x = graph(60, 8)
    y = da.from_array(x, chunks=25)
    same(sd.matmul(y, y, "min_plus"), sm.matmul(x, x, "min_plus"))


def test_16_bit_sums_are_rounded_once():
    a = np.full((1, 4000), 1, np.float16)
    x = da.from_array(a, chunks=(1, 10))
    assert sd.matmul(x, x.T).compute(scheduler="sync") == 4000
    b = np.array([[2048, 1, 1]], np.float16)
    y = da.from_array(b, chunks=(1, 1))
    found = sd.matmul(y, da.ones((3, 1), chunks=1, dtype=np.float16)).compute(scheduler="sync")
    assert found == 2050


def test_vectors_mixed_dtypes_and_an_empty_k():
    a, v = np.arange(12.0, dtype=np.float32).reshape(3, 4), np.arange(4)
    x, y = da.from_array(a, chunks=2), da.from_array(v, chunks=3)
    for left, right, at in ((x, y, (a, v)), (y, x.T, (v, a.T)), (y, y, (v, v))):
        found, expected = sd.matmul(left, right, "max_plus"), sm.matmul(*at, "max_plus")
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found.compute(scheduler="sync"), expected)
    empty = sd.matmul(da.zeros((2, 0)), da.zeros((0, 3)), "min_plus")
    np.testing.assert_array_equal(empty.compute(scheduler="sync"), np.full((2, 3), INF))


def test_integers_that_fit_only_as_a_whole():
    a = da.from_array(np.array([[100, 100, -100]], np.int8), chunks=1)
    found = sd.matmul(a, da.ones((3, 1), chunks=1, dtype=np.int8)).compute(scheduler="sync")
    assert found.tolist() == [[100]]
    with pytest.raises(OverflowError):
        sd.matmul(a, a.T).compute(scheduler="sync")


def test_errors_of_products():
    x = da.ones((3, 4), chunks=2)
    with pytest.raises(TypeError, match=r"a is a ndarray, and .* Dask arrays"):
        sd.matmul(np.ones((3, 3)), x)
    with pytest.raises(ValueError, match="k = 4, but b of shape"):
        sd.matmul(x, x)
    with pytest.raises(ValueError, match="matrices and vectors"):
        sd.matmul(x[None], x)
    with pytest.raises(ValueError, match="unknown size"):
        sd.matmul(x[da.ones(3) > 0], x.T)
    with pytest.raises(TypeError, match="complex"):
        sd.matmul(x.astype(complex), x.T)
