"""Closures and products on disk: exact, within memory, and not lost when interrupted."""

import errno
import functools
import importlib.util
import itertools
import json
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import fake_cupy
import numpy as np
import pytest
import walks
from processes import run, script

import semiring_mm as sm
from semiring_mm import engine as engines
from semiring_mm import storage
from semiring_mm.closures import sources
from semiring_mm.closures.edges import EdgeList
from semiring_mm.closures.elimination import Grid
from semiring_mm.closures.solve import Problem
from semiring_mm.closures.sources import DenseSource, EdgeSource
from semiring_mm.closures.steps import Improves
from semiring_mm.cpu import engine as cpu
from semiring_mm.semirings import semirings
from semiring_mm.tiled import budget, results, stored, stores, streamed
from semiring_mm.tiled import run as run_module
from semiring_mm.tiled.checkpoint import Checkpoint
from semiring_mm.tiled.devices import Device
from semiring_mm.tiled.timeline import Timeline

ZARR = importlib.util.find_spec("zarr") is not None
KINDS = ["memory", "npy", "zarr"]
DISKS = KINDS[1:]


def solve(
    w, out, semiring="min_plus", *, symmetric=False, predecessors=False, source=None, **options
):
    """The closure of a matrix, with `out` as paths or arrays."""
    source = source or DenseSource(semirings[semiring], w)
    problem = Problem(source, directed=not symmetric, predecessors=predecessors)
    d, p = stored.solve_streamed(problem, out=out, **options)
    return d[:, :], None if p is None else p[:, :]


def multiply(a, b, out, semiring="plus_times", *, tile=None, progress=None, **options):
    """A product in tiles of so many rows; `options` are those of sm.Tiles."""
    tiles = sm.Tiles(out=out, **options)
    return stored.multiply_tiles(semirings[semiring], a, b, None, tiles, progress, tile)


@pytest.fixture(autouse=True)
def _with_zarr(request):
    """Without it only what runs on devices is tested, since there it may be absent."""
    if (
        not ZARR
        and not request.node.get_closest_marker("gpu")
        and not request.node.get_closest_marker("multigpu")
    ):
        pytest.skip("zarr is not installed")


def places(kind, folder, w, predecessors=False):
    """Where results go."""
    if kind == "memory":
        return np.empty_like(w), np.empty(w.shape, np.int32) if predecessors else None
    return folder / f"d.{kind}", folder / f"p.{kind}" if predecessors else None


def graph(n, dtype=np.float32, seed=0, **options):
    return walks.weights(np.random.default_rng([n, seed]), n, dtype=dtype, **options)


def files_in(folder):
    """Names of the files there but for the record of what is finished, which is there, too."""
    names = sorted(path.name for path in folder.iterdir())
    (record,) = [name for name in names if name.endswith(".done.json")]
    return [name for name in names if name != record]


# Results


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [0, 1, 5, 48, 130])
def test_shortest_paths(tmp_path, kind, n):
    """Fewer nodes than a tile has, as many, and a number that it does not divide."""
    for dtype in (np.float32, np.float64, np.int32):
        w = graph(n, dtype)
        folder = tmp_path / np.dtype(dtype).name
        folder.mkdir()
        d, _ = solve(w, places(kind, folder, w), tile=48)
        np.testing.assert_array_equal(d, sm.apsp(w))
        assert d.dtype == dtype


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("semiring", ["max_min", "min_max", "lor_land", "max_times"])
def test_other_semirings(tmp_path, semiring, symmetric):
    w = graph(100, np.float64, density=0.04)
    w = np.where(np.isinf(w), semirings[semiring].zero, w / 64)
    if semiring == "lor_land":
        w = w > 0
    if symmetric:
        w = (np.minimum if semiring == "min_max" else np.maximum)(w, w.T)
    d, _ = solve(w, places("zarr", tmp_path, w), semiring, symmetric=symmetric, tile=32)
    np.testing.assert_array_equal(d, sm.closure(w, semiring))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 40, 150])
def test_half_of_a_symmetric_matrix(tmp_path, kind, n):
    w = graph(n, directed=False)
    d, _ = solve(w, places(kind, tmp_path, w), symmetric=True, tile=40)
    np.testing.assert_array_equal(d, sm.apsp(w))


def test_one_entry_far_from_the_diagonal_makes_a_graph_directed(monkeypatch):
    monkeypatch.setattr(sources, "_PIECE", 4 << 10)  # entries: strips of four rows
    w = graph(30, directed=False)
    source = DenseSource(semirings["min_plus"], w)
    assert source.symmetric()
    w[0, 29] = w[29, 0] / 2 if np.isfinite(w[29, 0]) else 1
    assert not source.symmetric()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lo", [0, 1])
def test_predecessors(tmp_path, kind, lo):
    w = graph(110, np.float64, lo=lo, hi=3)  # ties, and rings of weight zero
    d, p = solve(w, places(kind, tmp_path, w, True), predecessors=True, tile=32)
    walks.check_paths(w, d, p)
    if kind != "memory":
        assert files_in(tmp_path) == [f"d.{kind}", f"p.{kind}"]


@pytest.mark.parametrize("kind", DISKS)
def test_integers_that_are_computed_in_wider_ones(tmp_path, kind):
    w = graph(70, np.int8, lo=1, hi=9)
    d, p = solve(w, places(kind, tmp_path, w, True), predecessors=True, tile=32)
    assert d.dtype == np.int8
    walks.check_paths(w, d, p, zero=127)
    assert files_in(tmp_path) == [f"d.{kind}", f"p.{kind}"]
    chain = np.full((50, 50), 127, np.int8)
    chain[np.arange(49), np.arange(1, 50)] = 9
    folder = tmp_path / "chain"
    folder.mkdir()
    with pytest.raises(OverflowError, match="use int64"):
        solve(chain, places(kind, folder, chain), tile=32)


def test_negative_weights_and_cycles(tmp_path):
    rng = np.random.default_rng(3)
    w = walks.potentials(rng, graph(90, np.float64))
    d, p = solve(w, places("npy", tmp_path, w, True), predecessors=True, tile=32)
    walks.check_paths(w, d, p)
    w[5, 6], w[6, 5] = 1, -2
    with pytest.raises(Improves):
        solve(w, (tmp_path / "other.npy", None), tile=32)
    assert not list(tmp_path.glob("other*"))  # such a state is of no use


def test_margins_outlast_an_interruption(tmp_path):
    w = graph(80, np.float64)
    margins = np.random.default_rng(1).integers(0, 3, 80) * 2.0**20
    source = DenseSource(semirings["min_plus"], w).worsened(margins)
    worse = source.read(slice(0, 80), slice(0, 80))
    assert (worse != w).any()
    expected = sm.apsp(worse)
    out = tmp_path / "d.zarr", tmp_path / "p.zarr"
    with pytest.raises(KeyboardInterrupt):
        solve(None, out, source=source, predecessors=True, tile=32, tick=interrupt(20))
    (tmp_path / "p.zarr").touch()
    with pytest.raises(FileExistsError, match=r"p.zarr is there already"):
        solve(None, out, source=source, predecessors=True, resume=True)
    (tmp_path / "p.zarr").unlink()
    plain = DenseSource(semirings["min_plus"], w)  # what a new process knows
    d, p = solve(None, out, source=plain, predecessors=True, resume=True)
    np.testing.assert_allclose(d, expected, rtol=1e-15)
    walks.check_paths(worse, d, p, tol=1e-15)
    again, _ = solve(None, (tmp_path / "new.npy", None), source=source, resume=True)  # or anew
    np.testing.assert_allclose(again, expected, rtol=1e-15)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("form", ["directed", "undirected", "predecessors"])
def test_several_places(count, form, monkeypatch):
    """As with several devices: each has a part of the tiles, and row k as a copy."""
    monkeypatch.setattr(budget.Plan, "open", lambda _: [Device() for _ in range(count)])
    plan = budget.Plan(tile=32, size=12, slots=2, workers=1, loaders=1, devices=None)
    w = graph(140, np.float64, directed=form != "undirected")
    source = DenseSource(semirings["min_plus"], w)
    steps = Problem.of(source, form != "undirected", predecessors=form == "predecessors").steps
    d = w.copy()
    p = steps.begin(np, d, slice(0, 140), slice(0, 140))
    trees_store = None if p is None else stores.Store(p)
    with streamed.Streamed(Grid(140, 32), steps, stores.Store(d), trees_store, plan) as run:
        run.run()
    if form == "undirected":
        upper = np.triu_indices(140)
        np.testing.assert_array_equal(d[upper], sm.apsp(w)[upper])
    else:
        np.testing.assert_array_equal(d, sm.apsp(w))
    if p is not None:
        walks.check_paths(w, d, p)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("semiring", ["plus_times", "min_plus", "lor_land", "log_plus"])
def test_products(tmp_path, kind, semiring):
    rng = np.random.default_rng(0)
    for at, (m, k, n) in enumerate([(70, 90, 50), (32, 32, 32), (3, 0, 5), (0, 3, 4), (1, 40, 1)]):
        a, b = rng.integers(0, 5, (m, k)) * 1.0, rng.integers(0, 5, (k, n)) * 1.0
        if semiring == "lor_land":
            a, b = a > 3, b > 3
        out = None if kind == "memory" else tmp_path / f"{at}.{kind}"
        c = multiply(a, b, out, semiring, tile=32)
        np.testing.assert_allclose(c[:, :], sm.matmul(a, b, semiring), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["f2", "bfloat16"])
def test_sums_of_16_bits_are_rounded_once(tmp_path, kind, dtype):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    a = np.array([[2048.0, 1, 1], [1, 2, 3]]).astype(dtype)
    b = np.ones((3, 2), dtype)
    if kind != "memory" and a.dtype != np.float16:
        with pytest.raises(TypeError, match="files hold no bfloat16"):
            multiply(a, b, tmp_path / f"c.{kind}", tile=1)
        return
    c = multiply(a, b, None if kind == "memory" else tmp_path / f"c.{kind}", tile=1)
    assert c.dtype == a.dtype
    np.testing.assert_array_equal(c[:, :], sm.matmul(a, b))


# Memory


def test_the_tile_that_fits():
    n, size, slots = 100_000, 4, 4
    tile = budget.choose_tile(n, size, 1 << 30, slots=slots, most=4096)
    assert budget.room(n, tile, size, slots) <= 1 << 30
    assert budget.room(n, tile + 64, size, slots) > 1 << 30
    assert budget.choose_tile(n, size, 1 << 40, slots=slots, most=4096) == 4032  # 25 even ones
    assert budget.choose_tile(100, size, 1 << 30, slots=slots, most=4096) == 100
    assert budget.choose_tile(0, size, 0, slots=slots, most=4096) == 1
    with pytest.raises(MemoryError, match=r"104.2 MB, and 1 MB are allowed: use a larger"):
        budget.choose_tile(n, 4, 1_000_000, slots=slots, most=4096)


def test_too_little_memory_is_told_before_any_work(tmp_path):
    w = graph(300)
    with pytest.raises(MemoryError, match=r"use a larger tiles\.memory"):
        solve(w, (tmp_path / "d.npy", None), memory_limit=100_000)
    with pytest.raises(MemoryError, match="in tiles of 256"):
        solve(w, (tmp_path / "d.npy", None), memory_limit=100_000, tile=256)
    assert not list(tmp_path.iterdir())


RUN = """
import resource, sys
import numpy as np
import semiring_mm as sm
from pathlib import Path
from semiring_mm.semirings import semirings
from semiring_mm.closures.solve import Problem
from semiring_mm.closures.sources import DenseSource
from semiring_mm.tiled.stored import solve_streamed

class Lines:  # a graph of which no part is kept
    def __init__(self, n):
        self.shape, self.dtype = (n, n), np.dtype(np.float32)
    def __getitem__(self, at):
        i, j = (np.arange(x.start, x.stop, dtype=np.float32) for x in at)
        i = i[:, None]
        return (i % 64 * 15 + j % 67 * 14) % 251 + np.float32(1)

def solve(n, path, **options):
    source = DenseSource(semirings["min_plus"], Lines(n))
    trees = options.pop("trees", False)
    problem = Problem(source, directed=True, predecessors=trees)
    out = Path(path), Path(path).with_stem("p") if trees else None
    return solve_streamed(problem, out=out, **options)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak as Linux counts it")
def test_memory_is_kept_within_its_limit(tmp_path):
    """A process with a small graph behind it takes the limit more, and no part of the result."""
    used = script(
        RUN
        + f"""
def peak():
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
for kind in ("npy", "zarr"):
    solve(900, rf"{tmp_path}/small.{{kind}}", memory_limit=9 << 20)
peak()
for kind in ("npy", "zarr"):
    solve(3000, rf"{tmp_path}/large.{{kind}}", memory_limit=9 << 20)  # a quarter of the matrix
    peak()
"""
    )
    before, npy, zarr = map(int, used.split())
    assert npy - before < 9 << 20
    assert zarr - before < 9 << 20


# Interruptions


class Stop(Exception):
    pass


def interrupt(at):
    """A progress function that presses Ctrl-C after so many tiles."""
    count = itertools.count()

    def tick(*_, **__):
        if next(count) == at:
            raise KeyboardInterrupt

    return tick


def test_progress_and_ctrl_c(tmp_path):
    w = graph(130)
    seen, before = [], set(threading.enumerate())
    d, _ = solve(w, (tmp_path / "d.npy", None), tile=32, tick=lambda x, parts=None: seen.append(x))
    assert seen == sorted(seen)
    assert seen[-1] == 130**3  # every pair once
    out = tmp_path / "again.npy", None
    with pytest.raises(KeyboardInterrupt):
        solve(w, out, tile=32, tick=interrupt(30))
    assert not out[0].exists()
    assert set(threading.enumerate()) <= before  # no thread is left
    later = []
    again, _ = solve(w, out, resume=True, tick=lambda x, parts=None: later.append(x))
    np.testing.assert_array_equal(again, d)
    assert later[-1] == 130**3
    assert len(later) < len(seen)  # what was done is not done again


@pytest.mark.parametrize("kind", DISKS)
@pytest.mark.parametrize("form", ["directed", "undirected", "predecessors"])
def test_a_write_that_fails_anywhere(tmp_path, monkeypatch, kind, form):
    """Every so many writes one stops half-way, until the run has come to its end."""
    trees = form == "predecessors"
    w = graph(100, np.float64, directed=form != "undirected", lo=0, hi=4)
    out = places(kind, tmp_path, w, trees)
    store = {"npy": stores.NpyStore, "zarr": stores.ZarrStore}[kind]
    write, count = store.write, itertools.count(1)
    often = itertools.cycle(np.array([3, 17, 29, 23]) * (2 if trees else 1))
    next_one = [next(often)]

    def failing(self, rows, columns, block):
        if next(count) == next_one[0]:
            next_one[0] += next(often)
            if kind == "npy":  # some lines of it are there
                half = slice(rows.start, (rows.start + rows.stop) // 2)
                write(self, half, columns, block[: half.stop - half.start])
            raise Stop
        write(self, rows, columns, block)

    monkeypatch.setattr(store, "write", failing)
    for attempt in range(40):
        try:
            d, p = solve(
                w, out, symmetric=form == "undirected", predecessors=trees,
                tile=32 if not attempt else None, resume=attempt > 0,
            )  # fmt: skip
            break
        except Stop:
            assert not out[0].exists()
    assert attempt > 1
    np.testing.assert_array_equal(d, sm.apsp(w))
    if trees:
        walks.check_paths(w, d, p)


class OneAfterAnother(ThreadPoolExecutor):
    """Work is done when it is submitted, so that every run makes the same calls."""

    def submit(self, *call):
        future = super().submit(*call)
        wait([future])
        return future


@pytest.mark.parametrize(("what", "every"), [("fsync", 3), ("replace", 1), ("rename", 1)])
def test_a_call_of_the_system_that_fails(tmp_path, monkeypatch, what, every):
    """Whichever it is, the result is not there or is whole under its state, and a run goes on."""
    monkeypatch.setattr(run_module, "ThreadPoolExecutor", OneAfterAnother)
    w, call, whole = graph(48), getattr(os, what), 0
    expected = sm.apsp(w)

    def failing(*arguments):
        if next(calls) == at:
            raise Stop
        return call(*arguments)

    for at in itertools.count(0, every):
        (folder := tmp_path / str(at)).mkdir()
        out, calls = folder / "d.zarr", itertools.count()
        with monkeypatch.context() as patch:
            patch.setattr(os, what, failing)
            try:
                solve(w, (out, None), tile=32)
                break
            except Stop:
                pass
        if out.exists():  # its record could not be written, or did not reach the disk
            whole += 1
            np.testing.assert_array_equal(results.open_result(out), expected)
            assert Checkpoint.load(out).phase == "publish"
        d, _ = solve(w, (out, None), tile=32, resume=True)
        np.testing.assert_array_equal(d, expected)
        assert files_in(folder) == ["d.zarr"]
    assert at >= every
    assert whole == (what != "rename")  # one call behind the result's rename is among them


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
@pytest.mark.parametrize(("kind", "trees"), [("npy", True), ("zarr", False)])
def test_killed_at_any_moment(tmp_path, kind, trees, kill_seed):
    """Processes that end in the midst of a write, without a word, until one comes to the end."""
    text = (
        RUN
        + f"""
import os, signal
from semiring_mm.tiled import stores
store = stores.NpyStore if "{kind}" == "npy" else stores.ZarrStore
left, resume = int(sys.argv[1]), sys.argv[2] == "True"
write = store.write
def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)
def counted(self, rows, columns, block):
    global left
    left -= 1
    if not left and "{kind}" == "npy":
        write(self, slice(rows.start, rows.start + 1), columns, block[:1])
        kill()
    if not left:
        whole = stores._bytes
        stores._bytes = lambda x: whole(x)[: x.nbytes // 2]
        try:
            write(self, rows, columns, block)
        finally:
            kill()
    write(self, rows, columns, block)
store.write = counted
solve(200, r"{tmp_path}/d.{kind}", tile=None if resume else 48, resume=resume, trees={trees})
"""
    )
    final, ends = tmp_path / f"d.{kind}", []
    for life in (30, int(np.random.default_rng(kill_seed).integers(20, 100)), 10_000):
        done = run("-c", text, str(life), str(bool(ends)))
        ends.append(done.returncode)
        assert final.exists() == (done.returncode == 0), done.stderr
    assert ends == [-signal.SIGKILL, -signal.SIGKILL, 0], done.stderr
    i, j = np.ogrid[:200, :200]
    w = ((i % 64 * 15 + j % 67 * 14) % 251 + 1).astype(np.float32)
    d = results.open_result(final)[:, :]
    np.testing.assert_array_equal(d, sm.apsp(w))
    if trees:
        walks.check_paths(w, d, results.open_result(tmp_path / "p.npy")[:, :])


@pytest.mark.parametrize("kind", DISKS)
def test_a_product_goes_on_exactly(tmp_path, monkeypatch, kind):
    """Sums would count twice what is done twice."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 9, (100, 80)), rng.integers(0, 9, (80, 90))
    out = tmp_path / f"c.{kind}"
    with pytest.raises(KeyboardInterrupt):
        multiply(a, b, out, tile=32, progress=interrupt(22))
    assert not out.exists()
    with pytest.raises(ValueError, match="n = 90, and this one has 80"):
        multiply(a, b[:, :80], out, resume=True)
    seen = []
    c = multiply(a, b, out, resume=True, progress=lambda done, _: seen.append(done))
    np.testing.assert_array_equal(c[:, :], a @ b)
    assert seen[0] > 32 * 80 * 90  # the first row of tiles was there
    assert files_in(tmp_path) == [out.name]


def test_the_end_may_be_interrupted_between_two_names(tmp_path, monkeypatch):
    w = graph(60, np.float64)
    out = places("npy", tmp_path, w, True)
    publish, names = run_module.publish, []

    def once(path):
        names.append(path)
        if len(names) == 2:
            raise Stop
        publish(path)

    monkeypatch.setattr(run_module, "publish", once)
    with pytest.raises(Stop):
        solve(w, out, predecessors=True, tile=32)
    d, p = solve(w, out, predecessors=True, resume=True)
    walks.check_paths(w, d, p)


@pytest.mark.parametrize("work", ["a closure", "a product"])
def test_a_state_speaks_of_data_that_are_on_the_disk(tmp_path, monkeypatch, work):
    said = []
    flush, save = stores.NpyStore.flush, Checkpoint.save
    monkeypatch.setattr(
        stores.NpyStore, "flush", lambda self: (said.append("flush"), flush(self)),
    )  # fmt: skip
    monkeypatch.setattr(
        Checkpoint, "save", lambda self, *x: (said.append(x), save(self, *x)),
    )  # fmt: skip
    w, out = graph(60), tmp_path / "d.npy"
    if work == "a closure":
        solve(w, (out, None), tile=32, checkpoint=2)
    else:
        multiply(w, w, out, "min_plus", tile=32, checkpoint=2)
    saved = [x for x in said if x != "flush"]
    assert saved[0] == ("load",)
    assert ("steps", 0) in saved
    assert ("steps", 1) not in saved
    assert saved[-2:] == [("steps", 2), ("publish",)]
    for before, after in itertools.pairwise(said):
        assert after == "flush" or before == "flush" or after == ("load",)


# The disk


def test_a_disk_that_is_too_small_is_told_before_any_work(tmp_path, monkeypatch):
    usage = results.shutil.disk_usage(tmp_path)._replace(free=100)
    monkeypatch.setattr(results.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(OSError, match=r"takes 1.64e-05 GB in .* and 1e-07 GB are free") as error:
        solve(graph(64), (tmp_path / "d.npy", None))
    assert error.value.errno == errno.ENOSPC
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_disk_that_gets_full(tmp_path, monkeypatch):
    """Writing to /dev/full fails as to a full disk."""
    monkeypatch.setattr(stores, "sync_file", lambda path: None)  # /dev/full has no disk to wait for
    w = graph(100)
    out = tmp_path / "d.zarr"
    chunk = results.part_of(out) / "c" / "1" / "2"
    aside = tmp_path / "chunk"

    def fill(done, parts=None):
        if not aside.exists():
            chunk.rename(aside)
            chunk.symlink_to("/dev/full")

    with pytest.raises(
        OSError, match=r"the disk is full; .* go on with tiles.resume=True"
    ) as error:
        solve(w, (out, None), tile=32, tick=fill)
    assert error.value.errno == errno.ENOSPC
    aside.replace(chunk)
    d, _ = solve(w, (out, None), resume=True)
    np.testing.assert_array_equal(d, sm.apsp(w))


def test_a_full_disk_under_a_npy_file_is_found_at_once(tmp_path, monkeypatch):
    """All its blocks are set aside: to write to a mapped hole would end the process."""
    if not hasattr(os, "posix_fallocate"):
        pytest.skip("blocks cannot be set aside here, they are written")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    w = graph(50)
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        with pytest.raises(OSError, match="resume=True"):
            solve(w, (tmp_path / "d.npy", None), tile=32)
    d, _ = solve(w, (tmp_path / "d.npy", None), resume=True)
    np.testing.assert_array_equal(d, sm.apsp(w))


# What is refused


def begun(tmp_path, w):
    """A run that was interrupted."""
    out = tmp_path / "d.npy"
    with pytest.raises(KeyboardInterrupt):
        solve(w, (out, None), tile=32, tick=interrupt(30))
    return out, Checkpoint.load(out)


def test_results_and_states_are_not_overwritten(tmp_path):
    w = graph(100)
    out, state = begun(tmp_path, w)
    with pytest.raises(
        FileExistsError, match=r"d.npy.part.json is left .* tiles.resume=True goes on"
    ):
        solve(w, (out, None))
    state.file.unlink()
    with pytest.raises(FileExistsError, match=r"d.npy.part is left"):
        solve(w, (out, None))
    with pytest.raises(FileExistsError, match=r"its state is not there, so that no run can go on"):
        solve(w, (out, None), resume=True)
    done, nowhere = tmp_path / "done.zarr", tmp_path / "nowhere.npy"
    solve(w, (done, None), tile=32)
    nowhere.symlink_to("gone.npy")
    for path in (done, nowhere):
        with pytest.raises(FileExistsError, match="is there already; give another path"):
            solve(w, (path, None))
    late = tmp_path / "late.npy"
    appear = lambda done, parts=None: late.write_bytes(b"another's")  # noqa: E731
    with pytest.raises(FileExistsError, match=r"late.npy appeared during the run; the result is"):
        solve(w, (late, None), tile=32, tick=appear)
    assert late.read_bytes() == b"another's"


def computed(path, w, **options):
    """The result of a call that may go on, and whether it has computed anything."""
    seen = []
    d = sm.apsp(
        w, tiles=sm.Tiles(out=path, resume=True), progress=lambda *x: seen.append(x), **options
    )
    return d, bool(seen)


@pytest.mark.parametrize("kind", DISKS)
@pytest.mark.parametrize("trees", [False, True])
def test_one_call_begins_goes_on_and_is_done(tmp_path, monkeypatch, kind, trees):
    w = graph(100, np.float64)
    w[5, 6], w[6, 5] = -3.0, 3.0  # a cycle of weight zero
    out, options = tmp_path / f"d.{kind}", {"return_predecessors": trees}
    path = (out, tmp_path / f"p.{kind}") if trees else out
    for phase in ("load", "steps", "publish"):
        stopped(
            monkeypatch, lambda: sm.apsp(w, tiles=sm.Tiles(out=path, resume=True), **options), phase
        )
    first, _ = computed(path, w, **options)
    times = [os.stat(x).st_mtime_ns for x in sorted(tmp_path.iterdir())]
    again, worked = computed(path, w, **options)
    assert not worked
    assert [os.stat(x).st_mtime_ns for x in sorted(tmp_path.iterdir())] == times
    for x, y, z in zip(
        *(f if trees else (f,) for f in (first, again, sm.apsp(w, **options))), strict=True
    ):
        np.testing.assert_array_equal(x[:, :], y[:, :])
        np.testing.assert_array_equal(x[:, :], z)


RESUMED = {"tiles": sm.Tiles(out="d.npy", resume=True)}
BOTH = {"tiles": sm.Tiles(out=("d.npy", "p.npy"), resume=True)}
OTHERS = {
    "a graph": (lambda w: sm.apsp(w + 1, **RESUMED), "is the result of a run on another graph"),
    "nodes": (lambda w: sm.apsp(w[:90, :90], **RESUMED), "n = 100, and this one has 90"),
    "a dtype": (lambda w: sm.apsp(w.astype("f8"), **RESUMED), "this one has 'float64'"),
    "a semiring": (lambda w: sm.closure(w, "min_max", **RESUMED), "a run with semiring"),
    "trees": (
        lambda w: sm.apsp(w, return_predecessors=True, **BOTH),
        "predecessors = False, and this one has True",
    ),
    "a product": (lambda w: sm.matmul(w, w, **RESUMED), "a run with semiring"),
    "a file": (lambda w: np.save("d.npy", w) or sm.apsp(w, **RESUMED), "has changed since the run"),
    "no record": (
        lambda w: os.unlink("d.npy.done.json") or sm.apsp(w, **RESUMED),
        r"no d.npy.done.json by which to know",
    ),
    "a broken record": (
        lambda w: Path("d.npy.done.json").write_text("{}") and sm.apsp(w, **RESUMED),
        r"no d.npy.done.json by which to know",
    ),
}


@pytest.mark.parametrize("case", OTHERS)
def test_what_is_done_is_known_by_its_work(tmp_path, monkeypatch, case):
    """Or it is refused and stays: another graph's result would be a wrong answer."""
    call, words = OTHERS[case]
    monkeypatch.chdir(tmp_path)
    w = graph(100)
    sm.apsp(w, tiles=sm.Tiles(out="d.npy"))
    with pytest.raises(FileExistsError, match=words):
        call(w)
    assert os.path.exists("d.npy")
    assert not os.path.exists("d.npy.part.json")


def test_half_of_a_result_is_not_done(tmp_path):
    w, out = graph(60), (tmp_path / "d.npy", tmp_path / "p.npy")
    sm.apsp(w, tiles=sm.Tiles(out=out), return_predecessors=True)
    out[1].unlink()
    with pytest.raises(FileExistsError, match=r"d.npy is there already, and .*p.npy, .* is not"):
        sm.apsp(w, tiles=sm.Tiles(out=out, resume=True), return_predecessors=True)


def test_a_product_that_is_done(tmp_path):
    a, b = graph(70), graph(70, seed=1)
    sm.matmul(a, b, "min_plus", tiles=sm.Tiles(out=tmp_path / "c.npy", resume=True))
    seen = []
    sm.matmul(
        a, b, "min_plus", tiles=sm.Tiles(out=tmp_path / "c.npy", resume=True), progress=seen.append
    )
    assert not seen
    with pytest.raises(FileExistsError, match="a run with operands"):
        sm.matmul(b, a, "min_plus", tiles=sm.Tiles(out=tmp_path / "c.npy", resume=True))


def test_a_state_of_another_run(tmp_path):
    w = graph(100)
    out, state = begun(tmp_path, w)
    other = w.copy()
    other[3, 4] = 77
    with pytest.raises(ValueError, match="another graph"):
        solve(other, (out, None), resume=True)
    with pytest.raises(ValueError, match="with n = 100, and this one has 90"):
        solve(w[:90, :90], (out, None), resume=True)
    with pytest.raises(ValueError, match="dtype = 'float32', and this one has 'float64'"):
        solve(w.astype(float), (out, None), resume=True)
    with pytest.raises(ValueError, match="predecessors = False, and this one has True"):
        solve(w, (out, tmp_path / "p.npy"), predecessors=True, resume=True)
    with pytest.raises(ValueError, match="semiring"):
        solve(w, (out, None), "max_min", resume=True)
    good = state.file.read_text()
    for broken in ("", good[:50], json.dumps({**json.loads(good), "format": 99}), "[]"):
        state.file.write_text(broken)
        with pytest.raises(ValueError, match=r"is no state of an unfinished run .* begin again"):
            solve(w, (out, None), resume=True)
    state.file.write_text(good)
    part = results.part_of(out)
    np.save(tmp_path / "x.npy", np.zeros((3, 3)))
    (tmp_path / "x.npy").replace(part)
    with pytest.raises(ValueError, match=r"the description of .* has changed since it was written"):
        solve(w, (out, None), resume=True)
    part.with_name("d.npy.part.sums").unlink()
    with pytest.raises(ValueError, match=r"holds float64 of shape \(3, 3\)"):
        solve(w, (out, None), resume=True)


def test_paths(tmp_path):
    w = graph(40)
    with pytest.raises(ValueError, match=r"ends in neither .npy nor .zarr"):
        solve(w, (tmp_path / "d.hdf5", None))
    with pytest.raises(ValueError, match="cannot hold"):
        solve(w, (tmp_path / "d.npy", tmp_path / "d.npy"), predecessors=True)


def test_without_zarr(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(ImportError, match=r'pip install "semiring-mm\[zarr\]"'):
        solve(graph(40), (tmp_path / "d.zarr", None))
    solve(graph(40), (tmp_path / "d.npy", None))


# Parts


@pytest.mark.parametrize("kind", KINDS)
def test_rectangles_of_a_store(tmp_path, kind):
    whole = np.arange(30 * 50, dtype=np.int32).reshape(30, 50)
    path = tmp_path / f"x.{kind}"
    if kind == "memory":
        store = stores.Store(np.zeros_like(whole))
    else:
        store = results.create(path, whole.shape, whole.dtype, (16, 16))
    for i, j in itertools.product(range(0, 30, 16), range(0, 50, 16)):
        at = slice(i, min(i + 16, 30)), slice(j, min(j + 16, 50))
        store.write(*at, whole[at])
    for at in ((slice(3, 29), slice(10, 50)), (slice(16, 30), slice(48, 50)), (slice(0, 30),) * 2):
        into = np.empty(whole[at].shape, np.int32)
        store.read(*at, into)
        np.testing.assert_array_equal(into, whole[at])
    store.flush()
    store.close()
    if kind != "memory":
        assert not path.exists()
        results.publish(path)
        np.testing.assert_array_equal(results.open_result(path)[:, :], whole)


def test_a_chunk_is_whole(tmp_path, monkeypatch):
    store = stores.ZarrStore.create(tmp_path / "x", (8, 8), np.dtype(np.int64), (8, 8))
    whole = slice(0, 8)
    with pytest.raises(ValueError, match="as a whole"):
        store.write(whole, slice(2, 8), np.ones((8, 6), np.int64))
    store.write(whole, whole, np.ones((8, 8), np.int64))
    with monkeypatch.context() as patch:  # a disk that has room for half of it
        write = os.write
        patch.setattr(os, "write", lambda file, data: write(file, data[: len(data) // 2]))
        with pytest.raises(OSError, match="No space left") as error:
            store.write(whole, whole, np.ones((8, 8), np.int64))
        assert error.value.errno == errno.ENOSPC
    os.truncate(tmp_path / "x" / "c" / "0" / "0", 100)
    with pytest.raises(OSError, match="shorter than a chunk of 512 bytes"):
        store.read(whole, whole, np.empty((8, 8), np.int64))


def test_what_happened_when(tmp_path):
    timeline = Timeline()
    solve(graph(100), (tmp_path / "d.zarr", None), tile=32, timeline=timeline)
    lanes = {(x.device, x.lane) for x in timeline.intervals}
    assert lanes == {("disk", "read"), ("cpu", "compute"), ("disk", "write")}
    assert {x.step for x in timeline.intervals} == set(range(4))
    assert all(0 <= x.begin <= x.end for x in timeline.intervals)
    assert sum(x.lane == "compute" for x in timeline.intervals) == 4 * 16


# Devices


@pytest.fixture
def fake(monkeypatch):
    """Devices with the CPU engine: every block passes through one piece of pinned memory."""
    found = fake_cupy.Cupy()
    monkeypatch.setitem(sys.modules, "cupy", found)
    engine = fake_cupy.Engine(found, cpu)
    engine.count = lambda: 4
    monkeypatch.setitem(engines._engines, "cuda", engine)
    monkeypatch.setattr(budget, "_device_memory", lambda index: 1 << 30)
    return found


@pytest.mark.parametrize("devices", [[0], [0, 3]])
@pytest.mark.parametrize("shape", [(70, 40, 50), (16, 16, 16), (1, 90, 3), (33, 0, 17)])
@pytest.mark.parametrize(
    ("semiring", "dtype"),
    [("plus_times", "f8"), ("min_plus", "i4"), ("max_min", "f4"), ("max_plus", "f2")],
)
def test_products_through_pinned_memory(fake, devices, shape, semiring, dtype):
    (m, k, n), rng = shape, np.random.default_rng(0)
    a, b = rng.integers(0, 9, (m, k)).astype(dtype), rng.integers(0, 9, (k, n)).astype(dtype)
    seen = {}
    c = multiply(
        a, b, None, semiring, tile=16, devices=devices,
        progress=lambda done, total, parts: seen.update(parts or {}),
    )  # fmt: skip
    np.testing.assert_array_equal(c, sm.matmul(a, b, semiring))
    if len(devices) > 1 and n > 16:  # more than one column of tiles
        assert set(seen) == {f"cuda:{x}" for x in devices}
    assert set(fake.entered) == set(devices)


@pytest.mark.parametrize("devices", [[0], [0, 3]])
@pytest.mark.parametrize("form", ["directed", "undirected", "predecessors"])
def test_through_pinned_memory(fake, devices, form):
    trees, timeline, seen = form == "predecessors", Timeline(), {}
    w = graph(150, np.float64, directed=form != "undirected")
    d, p = solve(
        w, places("memory", None, w, trees), symmetric=form == "undirected", predecessors=trees,
        devices=devices, tile=32, timeline=timeline,
        tick=lambda x, parts=None: seen.update(parts or {}),
    )  # fmt: skip
    np.testing.assert_array_equal(d, sm.apsp(w))
    if trees:
        walks.check_paths(w, d, p)
    names = {f"cuda:{x}" for x in devices}
    lanes = {("disk", "read"), ("disk", "write")}
    lanes |= {(x, lane) for x in names for lane in ("receive", "compute", "send")}
    assert {(x.device, x.lane) for x in timeline.intervals} == lanes
    assert set(seen) == (names if len(devices) > 1 else set())
    assert set(fake.entered) == set(devices)
    assert {len(x) for x in fake.pinned} == {32 * 32 * (12 if trees else 8)}


def gpu_only(count):
    """The first so many devices, on which the rest of the work is real."""
    from semiring_mm.gpu import device

    if device.why_not():
        pytest.skip(device.why_not())
    import cupy

    found = cupy.cuda.runtime.getDeviceCount()
    if found < count:
        pytest.skip(f"needs {count} devices, and there are {found}")
    return list(range(count))


@pytest.mark.parametrize(
    "count", [pytest.param(1, marks=pytest.mark.gpu), pytest.param(2, marks=pytest.mark.multigpu)]
)
@pytest.mark.parametrize("form", ["directed", "undirected", "predecessors"])
def test_on_devices(tmp_path, count, form):
    trees = form == "predecessors"
    for dtype, kind in ((np.float32, "memory"), (np.int32, "zarr"), (np.float64, "npy")):
        if kind == "zarr" and not ZARR:
            continue
        w = graph(1500, dtype, directed=form != "undirected", density=0.02)
        d, p = solve(
            w, places(kind, tmp_path, w, trees), symmetric=form == "undirected",
            predecessors=trees, devices=gpu_only(count), tile=400,
        )  # fmt: skip
        np.testing.assert_array_equal(d, sm.apsp(w, device="cpu"))
        if trees:
            missing = np.inf if w.dtype.kind == "f" else np.iinfo(dtype).max
            rows = slice(0, 1500, 100)
            walks.check_paths(w, d[rows], p[rows], sources=range(1500)[rows], zero=missing)


@pytest.mark.gpu
def test_products_on_a_device():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 9, (700, 900)) * 1.0, rng.integers(0, 9, (900, 500)) * 1.0
    for semiring in ("plus_times", "min_plus"):
        c = multiply(a, b, None, semiring, devices=gpu_only(1), tile=256)
        np.testing.assert_array_equal(c, sm.matmul(a, b, semiring))


# What cannot go on, and what would go on with something else


def test_fingerprints_tell_graphs_apart():
    """Any weight, any end of an edge; margins are no part of the graph."""

    def edges(row, weight, dtype="f8"):
        found = EdgeList(range(4), np.array(row), np.array([1, 2, 3]), np.array(weight), True)
        return EdgeSource(semirings["min_plus"], found, dtype)

    def dense(w, semiring="min_plus"):
        return DenseSource(semirings[semiring], w)

    w = graph(30)
    other = w.copy()
    other[3, 4] = 77
    truth = w < 5
    sources = [
        dense(w), dense(other), dense(w.astype(float)), dense(w[:29, :29]), dense(w, "max_min"),
        dense(truth, "lor_land"), dense(~truth, "lor_land"), edges([0, 1, 2], [1.0, 2, 3]),
        edges([0, 1, 2], [1.0, 2, 4]), edges([0, 1, 1], [1.0, 2, 3]),
        edges([0, 1, 2], [1.0, 2, 3], "f4"),
    ]  # fmt: skip
    found = [x.fingerprint() for x in sources]
    assert len(set(found)) == len(found)
    assert dense(w.copy()).fingerprint() == found[0]
    assert sources[0].worsened(np.ones(30)).fingerprint() == found[0]
    numbers = sources[5].numbers(semirings["max_min"])
    assert numbers.fingerprint() == found[5]


def stopped(monkeypatch, call, phase):
    """Run until a state of a phase is left, and no further."""
    save = Checkpoint.save

    def stop(self, now, step=0):
        save(self, now, step)
        if now == phase and (phase != "steps" or step):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", stop)
        with pytest.raises(KeyboardInterrupt):
            call()


def test_a_product_goes_on_with_its_own_operands_only(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    a, b, other = (rng.integers(0, 9, (600, 600)) * 1.0 for _ in range(3))
    out = tmp_path / "c.npy"
    stopped(monkeypatch, lambda: sm.matmul(a, b, tiles=sm.Tiles(out=out, memory="12MB")), "steps")
    for words in ((other, b), (a, other)):
        with pytest.raises(ValueError, match=r"resume: .* is the state of a run with operands"):
            sm.matmul(*words, tiles=sm.Tiles(out=out, memory="12MB", resume=True))
    c = sm.matmul(a, b, tiles=sm.Tiles(out=out, memory="12MB", resume=True))
    np.testing.assert_array_equal(c, a @ b)


def test_the_graph_is_looked_at_in_every_phase(tmp_path, monkeypatch):
    w, out = graph(60), tmp_path / "d.npy"
    stopped(monkeypatch, lambda: sm.apsp(w, tiles=sm.Tiles(out=out)), "publish")
    with pytest.raises(ValueError, match="state of a run on another graph"):
        sm.apsp(w + 1, tiles=sm.Tiles(out=out, resume=True))
    np.testing.assert_array_equal(sm.apsp(w, tiles=sm.Tiles(out=out, resume=True)), sm.apsp(w))


def test_what_can_never_end_leaves_nothing(tmp_path):
    w = np.full((40, 40), 127, "i1")
    w[np.arange(39), np.arange(1, 40)] = 100
    with pytest.raises(OverflowError, match="does not fit int8"):
        sm.apsp(w, tiles=sm.Tiles(out=tmp_path / "d.npy"))
    a = np.full((300, 300), 2**30, "i4")
    with pytest.raises(OverflowError):
        sm.matmul(a, a, tiles=sm.Tiles(out=tmp_path / "c.npy"))
    with pytest.raises(TypeError):
        sm.apsp(np.ones((9, 9), bool), tiles=sm.Tiles(out=tmp_path / "b.npy"))
    assert not list(tmp_path.iterdir())


def test_one_file_by_two_names(tmp_path):
    (tmp_path / "a").mkdir()
    out = tmp_path / "x.npy", tmp_path / "a" / ".." / "x.npy"
    with pytest.raises(ValueError, match="cannot hold distances and predecessors both"):
        sm.apsp(graph(9), tiles=sm.Tiles(out=out), return_predecessors=True)


def test_files_hold_no_bfloat16(tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with pytest.raises(TypeError, match="files hold no bfloat16; give the graph in float32"):
        sm.apsp(np.ones((9, 9), ml_dtypes.bfloat16), tiles=sm.Tiles(out=tmp_path / "d.npy"))
    assert not list(tmp_path.iterdir())


# Damage


def flip(path, at, bit):
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


@pytest.mark.parametrize("worse", [False, True])
def test_any_flipped_byte_of_a_state_is_refused(tmp_path, worse):
    source = DenseSource(semirings["min_plus"], w := graph(40, np.float64))
    source = source.worsened(np.zeros(40)) if worse else source
    out = tmp_path / "d.npy"
    with pytest.raises(KeyboardInterrupt):
        solve(w, (out, None), source=source, tile=8, tick=interrupt(30))
    state = Checkpoint.load(out)
    size, rng = state.file.stat().st_size, np.random.default_rng(0)
    for at, bit in zip(range(size), rng.integers(0, 8, size).tolist(), strict=True):
        flip(state.file, at, bit)
        with pytest.raises(ValueError, match="has changed since it was written; remove it and"):
            Checkpoint.load(out)
        flip(state.file, at, bit)
    assert Checkpoint.load(out) == state


@pytest.mark.parametrize(
    "wrong",
    [
        {"phase": "finish"}, {"phase": "load", "step": 1}, {"phase": "publish", "step": 4},
        {"phase": 7}, {"step": 5}, {"step": -1}, {"step": 1.5}, {"step": True}, {"step": None},
        {"tile": 0}, {"tile": -256}, {"tile": "32"}, {"tile": 31}, {"tile": 64, "step": 0},
        {"task": []}, {"extra": None}, {"extra": {}}, {"extra": {"margins": ""}},
    ],
)  # fmt: skip
def test_states_out_of_range(tmp_path, wrong):
    """Fields that no run has written, under a hash that is right."""
    w = graph(100)
    out, state = begun(tmp_path, w)
    fields = storage.unseal(state.file.read_text())
    state.file.write_text(storage.seal({**fields, **wrong}))
    before = results.part_of(out).read_bytes()
    with pytest.raises(ValueError, match=r"resume: .*(remove|give that one)"):
        solve(w, (out, None), resume=True)
    assert results.part_of(out).read_bytes() == before


@pytest.mark.parametrize("phase", ["steps", "publish"])
@pytest.mark.parametrize("kind", DISKS)
def test_flipped_bytes_of_tiles_are_refused(tmp_path, monkeypatch, kind, phase):
    """Anywhere in distances, predecessors, checksums and descriptions; nothing is changed then."""
    n = 70 if kind == "npy" else 64  # what a chunk has behind the edge is no part of the matrix
    w, out = graph(n, np.int8, lo=1, hi=9), places(kind, tmp_path, np.empty(0), True)
    run = functools.partial(solve, w, out, predecessors=True)
    stopped(monkeypatch, lambda: run(tile=32), phase)
    rng = np.random.default_rng(seed := 0)
    files = sorted(x for x in tmp_path.rglob("*") if x.is_file() and x.suffix != ".json")
    files += [] if kind == "npy" else sorted(tmp_path.rglob("zarr.json"))
    skipped = f"/d.{kind}." if phase == "steps" else "/d.work."  # written at last; used up
    files = [x for x in files if skipped not in str(x)]
    for path in files:
        size = path.stat().st_size
        for at, bit in zip(rng.integers(0, size, 4), rng.integers(0, 8, 4), strict=True):
            flip(path, at, bit)
            with pytest.raises(ValueError, match="has changed since it was written"):
                run(resume=True), pytest.fail(f"{path}, byte {at}, bit {bit}, seed {seed}")
            flip(path, at, bit)
    d, p = run(resume=True)
    walks.check_paths(w, d, p, zero=127)
    assert files_in(tmp_path) == [f"d.{kind}", f"p.{kind}"]


def test_a_tile_that_is_gone_and_checksums_that_are_taken_away(tmp_path):
    w, out = graph(100), tmp_path / "d.zarr"
    with pytest.raises(KeyboardInterrupt):
        solve(w, (out, None), tile=32, tick=interrupt(30))
    chunk = results.part_of(out) / "c" / "2" / "1"
    chunk.rename(tmp_path / "aside")
    with pytest.raises(ValueError, match=r"tile \(2, 1\) of .* has changed since"):
        solve(w, (out, None), resume=True)
    (tmp_path / "aside").rename(chunk)
    (tmp_path / "d.zarr.part.sums").unlink()
    d, _ = solve(w, (out, None), resume=True)
    np.testing.assert_array_equal(d, sm.apsp(w))


@pytest.mark.parametrize("kind", DISKS)
def test_flipped_bytes_of_a_product_are_refused(tmp_path, monkeypatch, kind):
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 9, (70, 50)), rng.integers(0, 9, (50, 90))
    out, part = tmp_path / f"c.{kind}", results.part_of(tmp_path / f"c.{kind}")
    run = functools.partial(multiply, a, b, out)
    for phase in ("steps", "publish"):
        stopped(monkeypatch, lambda: run(tile=32, resume=phase == "publish"), phase)  # noqa: B023
        tile = part if kind == "npy" else part / "c" / "0" / "1"
        flip(tile, 900, 3)
        with pytest.raises(ValueError, match=r"tile \(0, \d\) of .* has changed since"):
            run(resume=True)
        flip(tile, 900, 3)
    np.testing.assert_array_equal(run(resume=True)[:, :], a @ b)


def test_checksums():
    """One for each content: any word, any place of it; of every size and layout."""
    rng = np.random.default_rng(0)
    block = rng.integers(0, 256, (40, 700), dtype=np.uint8)
    seen = {results.checksum(block)}
    for at in rng.choice(block.size, 200, replace=False):
        changed = block.copy()
        changed.flat[at] ^= 1 << rng.integers(8)
        seen.add(results.checksum(changed))
    seen.add(results.checksum(block[::-1]))  # lines in another order
    pages = np.arange(2048, dtype=np.uint64).reshape(4, 512)
    seen |= {results.checksum(pages), results.checksum(pages[[1, 0, 2, 3]])}
    seen |= {results.checksum(pages[:, ::-1])}
    assert len(seen) == 205
    assert results.checksum(block) == results.checksum(np.asfortranarray(block))
    assert results.checksum(block[:, :0]) == results.checksum(block[:0])


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs the names of open files")
@pytest.mark.parametrize("kind", DISKS)
def test_data_reach_the_disk_before_their_state_and_their_name(tmp_path, monkeypatch, kind):
    events, fsync = [], os.fsync
    store = {"npy": stores.NpyStore, "zarr": stores.ZarrStore}[kind]
    write = store.write

    def noted_fsync(file):
        fsync(file)
        events.append(("fsync", os.readlink(f"/proc/self/fd/{file}"), None))

    def noted_write(self, rows, columns, block):
        write(self, rows, columns, block)
        for x in [out] if kind == "npy" else [x for x, *_ in self._chunks(rows, columns)]:
            path = results.part_of(out) if kind == "npy" else x
            events.append(("write", str(path), str(path.parent)))

    for name in ("rename", "replace"):
        call = getattr(os, name)
        noted = lambda a, b, call=call: (call(a, b), events.append(("name", str(a), str(b))))  # noqa: E731
        monkeypatch.setattr(os, name, noted)
    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(store, "write", noted_write)
    out = tmp_path / f"d.{kind}"
    solve(graph(70), (out, None), tile=32, checkpoint=99)
    last = max(at for at, x in enumerate(events) if x[0] == "write")
    dirty = {x for what, *paths in events if what == "write" for x in paths}
    names = [at for at, x in enumerate(events) if x[0] == "name" and ".zarr.part/" not in x[1]]
    assert names[-3] > last
    ends = [f"{out}.part.json", str(out), f"{out}.done.json"]
    assert [events[at][2] for at in names[-3:]] == ends
    synced = {x[1] for x in events[last : names[-3]] if x[0] == "fsync"}
    assert dirty - {str(tmp_path)} <= synced  # the result before the state that speaks of it,
    for at, after in itertools.pairwise([*names, len(events)]):
        source, target = events[at][1:]
        if target.endswith(".json"):  # the state before its name, and the folder after each
            assert ("fsync", source, None) in events[:at]
        assert ("fsync", str(tmp_path), None) in events[at:after]
    begun = next(at for at, x in enumerate(events) if x[0] == "write")
    sums = ("fsync", f"{out}.part.sums", None)  # checksums and their name, before the first tile
    assert ("fsync", str(tmp_path), None) in events[events.index(sums, 0, begun) : begun]
    if kind == "zarr":
        part = results.part_of(out)
        made = {x[1] for x in events[: names[1]] if x[0] == "fsync"}
        assert {str(part), str(part / "c"), str(part / "zarr.json")} <= made


@pytest.mark.parametrize("steps", [2.5, "1"])
def test_steps_between_states_are_counted(steps, tmp_path):
    with pytest.raises(ValueError, match="checkpoint is a number of steps from 1 on"):
        sm.apsp(graph(9), tiles=sm.Tiles(out=tmp_path / "d.npy", checkpoint=steps))
