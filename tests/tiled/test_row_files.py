"""Rows of sparse graphs straight into files: exact, within memory, not lost when interrupted."""

import itertools
import signal
import sys
from dataclasses import replace

import numpy as np
import pytest
from metrics import only
from optional import csgraph, nx
from processes import run, script

import semiring_mm as sm
from semiring_mm.closures.solve import Problem
from semiring_mm.closures.sources import EdgeSource
from semiring_mm.graphs.inputs import as_graph
from semiring_mm.graphs.rows import Searches
from semiring_mm.progress import Watched
from semiring_mm.tiled import results, solve, stores
from semiring_mm.tiled import sparse as out_of_core
from semiring_mm.tiled.checkpoint import Checkpoint
from tests.graphs.test_sparse import GRAPHS, undirected, walk
from tests.tiled.test_out_of_core import ZARR, flip

pytestmark = pytest.mark.usefixtures("two_threads")
KINDS = [
    "npy",
    pytest.param("zarr", marks=pytest.mark.skipif(not ZARR, reason="zarr is not installed")),
]
GRAPH = GRAPHS["directed"]
EXPECTED = csgraph.dijkstra(GRAPH)
N = len(EXPECTED)


@pytest.fixture(autouse=True)
def small_strips(monkeypatch):
    """Some strips even of small graphs; and tiles are told of."""
    monkeypatch.setattr(out_of_core, "_ROWS", 20)
    monkeypatch.setattr(out_of_core, "_STRIP", 0)
    monkeypatch.setattr(solve, "close_tiles", None)


def resumed(words):
    """The arguments of a call that may go on."""
    return words | {"tiles": replace(words["tiles"], resume=True)}


def places(folder, kind, trees):
    out = folder / f"d.{kind}", folder / f"p.{kind}"
    tiles = sm.Tiles(out=out if trees else out[0])
    return {"tiles": tiles, "return_predecessors": trees, "method": "sparse"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["grid", "star", "islands", "no edges", "directed", "complete"])
def test_rows_are_those_in_memory(tmp_path, kind, name):
    graph = GRAPHS[name]
    d, p = sm.apsp(graph, **places(tmp_path, kind, True))
    np.testing.assert_array_equal(d[:], csgraph.dijkstra(graph))
    walk(graph, d[:], p[:])
    kept = {f"d.{kind}", f"p.{kind}", f"d.{kind}.done.json"}
    assert {x.name for x in tmp_path.iterdir()} == kept


@pytest.mark.parametrize("n", [0, 1, 500])
def test_large_sparse_graphs_need_no_tiles(tmp_path, n, monkeypatch):
    graph = undirected(nx.path_graph(n)) if n else np.empty((0, 0))
    if n < out_of_core.SPARSE_FROM:
        monkeypatch.undo()  # tiles do
    d = sm.apsp(graph, tiles=sm.Tiles(out=tmp_path / "d.npy"))
    np.testing.assert_array_equal(d, csgraph.dijkstra(graph) if n else graph)


def test_searches_where_they_take_less_time(tmp_path, monkeypatch):
    only(monkeypatch, "strips of rows", "a search from each source")
    graph, sources, told = GRAPHS["sparse"], range(0, 300, 2), []
    watched = Watched(lambda *x: told.append(x))
    out = tmp_path / "d.npy", tmp_path / "p.npy"
    d, p = sm.apsp(
        graph, tiles=sm.Tiles(out=out), sources=sources, return_predecessors=True, progress=watched
    )
    np.testing.assert_array_equal(d, csgraph.dijkstra(graph)[sources])
    walk(graph, d, p, sources)
    assert watched.method == "a search from each source"
    assert told == sorted(told)
    assert told[-1] == (45e3, 45e3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sources", [[7], [5, 5, 2, 99], []])
def test_some_rows(tmp_path, kind, sources):
    words = places(tmp_path, kind, True) | {"sources": sources}
    d, p = sm.apsp(GRAPH, **words)
    np.testing.assert_array_equal(d[:], EXPECTED[sources])
    walk(GRAPH, d[:], p[:], sources)
    d, _ = sm.apsp(GRAPH, **resumed(words))  # nothing is left to do
    np.testing.assert_array_equal(d[:], EXPECTED[sources])
    with pytest.raises(FileExistsError, match=r"is the result of a run with rows = "):
        sm.apsp(GRAPH, **resumed(words) | {"sources": [1]})


def test_rows_go_on_as_rows(tmp_path, monkeypatch):
    """Though tiles would be chosen now, on another machine."""

    def stop(done, total):
        if done > 0:
            raise KeyboardInterrupt

    monkeypatch.setattr(out_of_core, "_sparse", lambda *_: True)
    out = tmp_path / "d.npy"
    with pytest.raises(KeyboardInterrupt):
        sm.apsp(GRAPH, tiles=sm.Tiles(out=out), progress=stop)
    monkeypatch.setattr(out_of_core, "_sparse", lambda *_: False)
    np.testing.assert_array_equal(sm.apsp(GRAPH, tiles=sm.Tiles(out=out, resume=True)), EXPECTED)


def test_one_row_has_to_fit():
    problem = Problem.of(EdgeSource(sm.semirings["min_plus"], as_graph(GRAPH)[0], float))
    solver = Searches(problem)
    each = out_of_core._row_bytes(problem) + solver.extra
    least = solver.fixed + out_of_core._wide_bytes(problem) + each
    assert out_of_core._height(solver, N, least, None) == 1
    for limit in (0, least - 1):
        with pytest.raises(
            MemoryError, match=f"^a strip of 1 rows of {N} nodes needs .* larger tiles.memory"
        ):
            out_of_core._height(solver, N, limit, None)


def test_some_rows_of_any_matrix(tmp_path):
    w = np.random.default_rng(0).integers(1, 90, (40, 40))
    np.save(tmp_path / "w.npy", w)
    for at, graph in enumerate([w, np.load(tmp_path / "w.npy", mmap_mode="r"), w.astype("f4")]):
        d = sm.apsp(graph, tiles=sm.Tiles(out=tmp_path / f"{at}.npy"), sources=[3, 1])
        np.testing.assert_array_equal(d, csgraph.dijkstra(w)[[3, 1]])
        assert d.dtype == graph.dtype
    np.testing.assert_array_equal(sm.apsp(w, sources=3, tiles=sm.Tiles(memory="9MB")), d[:1])


def test_labels(tmp_path):
    graph = nx.relabel_nodes(nx.path_graph(6), dict(enumerate("uvwxyz")))
    d = sm.apsp(graph, tiles=sm.Tiles(out=tmp_path / "d.npy"), sources=["z", "u"])
    np.testing.assert_array_equal(d, [[5, 4, 3, 2, 1, 0], [0, 1, 2, 3, 4, 5]])
    found, _ = sm.apsp(graph, tiles=sm.Tiles(memory="9MB"), sources="z", return_predecessors=True)
    assert found.path("z", "w") == [*"zyxw"]
    with pytest.raises(ValueError, match="'q' is not a node"):
        sm.apsp(graph, tiles=sm.Tiles(out=tmp_path / "e.npy"), sources=["q"])


@pytest.mark.parametrize("trees", [False, True])
@pytest.mark.parametrize("semiring", ["max_min", "min_max", "max_times", "lor_land"])
def test_other_semirings(tmp_path, semiring, trees):
    rng, n = np.random.default_rng(1), 500
    ends, weights = rng.integers(0, n, (900, 2)), rng.integers(1, 8, 900) / 8
    graph = nx.empty_graph(n, nx.DiGraph)
    graph.add_weighted_edges_from(zip(*ends.T.tolist(), weights.tolist(), strict=True))
    out = (tmp_path / "d.npy", tmp_path / "p.npy") if trees else tmp_path / "d.npy"
    found = sm.closure(graph, semiring, tiles=sm.Tiles(out=out), return_predecessors=trees)
    d, p = found if trees else (found, None)
    w = sm.adjacency(graph, semiring)[0]
    np.testing.assert_array_equal(d, sm.closure(w, semiring))
    assert d.dtype == w.dtype
    for i in range(0, n if trees else 0, 50):
        for j in np.flatnonzero(p[i] >= 0)[::40]:
            path = sm.reconstruct_path(p, i, j)
            steps = [w[x] for x in itertools.pairwise(path)]
            join = {"max_times": np.prod, "min_max": max}.get(semiring, min)
            assert join(steps) == d[i, j]


@pytest.mark.parametrize("limit", [None, "2MB"])
def test_integers_and_negative_weights(tmp_path, limit):
    rng, n = np.random.default_rng(2), 600
    high = rng.integers(0, 50, n)
    w = np.full((n, n), 2**31 - 1, "i4")
    i, j = rng.integers(0, n, (2, 1500))
    w[i, j] = rng.integers(1, 9, 1500) + high[i] - high[j]
    np.save(tmp_path / "w.npy", w)
    given = np.load(tmp_path / "w.npy", mmap_mode="r")
    d = sm.apsp(given, tiles=sm.Tiles(out=tmp_path / "d.npy", memory=limit))
    np.testing.assert_array_equal(d, sm.apsp(w))
    w[i, j] = 2**29
    with pytest.raises(OverflowError, match="use int64"):
        sm.apsp(w, tiles=sm.Tiles(out=tmp_path / "e.npy"))
    w[[1, 2], [2, 1]] = -1, -1
    with pytest.raises(sm.NegativeCycleError):
        sm.apsp(w, tiles=sm.Tiles(out=tmp_path / "e.npy"))
    assert not list(tmp_path.glob("e.*"))  # such states are of no use


# Interruptions


class Stop(Exception):
    pass


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trees", [False, True])
def test_a_write_that_fails_anywhere(tmp_path, monkeypatch, kind, trees):
    store = {"npy": stores.NpyStore, "zarr": stores.ZarrStore}[kind]
    write, count, words = store.write, itertools.count(1), places(tmp_path, kind, trees)

    def failing(self, rows, columns, block):
        if next(count) % (4 if trees else 3) == 0:
            raise Stop
        write(self, rows, columns, block)

    monkeypatch.setattr(store, "write", failing)
    for attempt in range(20):
        try:
            found = sm.apsp(GRAPH, **(resumed(words) if attempt else words))
            break
        except Stop:
            assert not (tmp_path / f"d.{kind}").exists()
    assert attempt > 1
    d, p = found if trees else (found, None)
    np.testing.assert_array_equal(d[:], EXPECTED)
    if trees:
        walk(GRAPH, d[:], p[:])


def stop(at):
    def progress(done, total):
        if done >= at * total:
            raise KeyboardInterrupt

    return progress


def begun(folder, at=0.5, **words):
    """A run that was stopped."""
    out = folder / "d.npy"
    with pytest.raises(KeyboardInterrupt):
        sm.apsp(GRAPH, method="sparse", tiles=sm.Tiles(out=out), progress=stop(at), **words)
    return out


def test_what_is_there_is_not_done_again(tmp_path):
    told = []
    out = begun(tmp_path)
    assert Checkpoint.load(out).step > 1
    d = sm.apsp(
        GRAPH, tiles=sm.Tiles(out=out, resume=True), progress=lambda *x: told.append(x)
    )  # rows by itself
    np.testing.assert_array_equal(d, EXPECTED)
    assert told[0][0] > 0.4 * told[0][1]
    assert told[-1] == (N * N, N * N)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"sources": [0]}, ValueError, "is the state of a run with rows = 'all', and this one has"),
        ({"graph": GRAPH * 2}, ValueError, "state of a run on another graph"),
        (
            {"tiles": {"resume": False}},
            FileExistsError,
            "did not end; tiles.resume=True",
        ),
        ({"tiles": {"memory": "20kB"}}, MemoryError, "20 rows of 130 nodes .* use a larger tiles"),
    ],
)
def test_other_work_is_refused(tmp_path, change, error, message):
    out = begun(tmp_path)
    before = results.part_of(out).read_bytes()
    tiles = sm.Tiles(**{"out": out, "resume": True} | change.pop("tiles", {}))
    with pytest.raises(error, match=message):
        sm.apsp(**{"graph": GRAPH, "method": "sparse", "tiles": tiles} | change)
    assert results.part_of(out).read_bytes() == before


def test_a_run_of_tiles_stays_one(tmp_path, monkeypatch):
    monkeypatch.undo()
    graph = undirected(nx.path_graph(600))
    with monkeypatch.context() as patch:
        only(patch, "tiles")
        with pytest.raises(KeyboardInterrupt):
            sm.apsp(graph, tiles=sm.Tiles(out=tmp_path / "d.npy", memory="5MB"), progress=stop(0.5))
    assert Checkpoint.load(tmp_path / "d.npy").task["rows"] is None
    d = sm.apsp(graph, tiles=sm.Tiles(out=tmp_path / "d.npy", memory="5MB", resume=True))
    np.testing.assert_array_equal(d, csgraph.dijkstra(graph))


def test_the_end_may_be_interrupted(tmp_path, monkeypatch):
    words = places(tmp_path, "npy", True)
    save = Checkpoint.save

    def stopped(self, phase, step=0):
        save(self, phase, step)
        if phase == "publish":
            raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", stopped)
        with pytest.raises(Stop):
            sm.apsp(GRAPH, **words)
    monkeypatch.setattr(out_of_core, "plan", None)  # nothing is computed any more
    d, p = sm.apsp(GRAPH, **resumed(words))
    np.testing.assert_array_equal(d, EXPECTED)
    walk(GRAPH, d, p)


def test_flipped_bytes_are_refused(tmp_path):
    out = begun(tmp_path)
    rng, part = np.random.default_rng(0), results.part_of(out)
    done = Checkpoint.load(out).step * 20 * N * 8
    for path, size in ((part, done), (part.with_name("d.npy.part.sums"), None)):
        for at in rng.integers(0, size or path.stat().st_size, 4):
            flip(path, at, 3)
            with pytest.raises(ValueError, match="has changed since it was written"):
                sm.apsp(GRAPH, tiles=sm.Tiles(out=out, resume=True))
            flip(path, at, 3)
    np.testing.assert_array_equal(sm.apsp(GRAPH, tiles=sm.Tiles(out=out, resume=True)), EXPECTED)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_killed_at_any_moment(tmp_path, kill_seed):
    """Processes that end in the midst of a write, without a word, until one comes to the end."""
    text = f"""
import os, signal, sys
import numpy as np
import semiring_mm as sm
from semiring_mm.tiled import sparse as out_of_core
from semiring_mm.tiled import stores
out_of_core._ROWS, out_of_core._STRIP = 20, 0
left, write = int(sys.argv[1]), stores.NpyStore.write
def counted(self, rows, columns, block):
    global left
    left -= 1
    if not left:
        write(self, slice(rows.start, rows.start + 1), columns, block[:1])
        os.kill(os.getpid(), signal.SIGKILL)
    write(self, rows, columns, block)
stores.NpyStore.write = counted
w = np.load(r"{tmp_path}/w.npy")
out = r"{tmp_path}/d.npy", r"{tmp_path}/p.npy"
tiles = sm.Tiles(out=out, resume=sys.argv[2] == "True")
sm.apsp(w, return_predecessors=True, method="sparse", tiles=tiles)
"""
    w = GRAPH.toarray()
    w[w == 0] = np.inf
    np.save(tmp_path / "w.npy", w)
    final, ends = tmp_path / "d.npy", []
    for life in (int(np.random.default_rng(kill_seed).integers(1, 12)), 1, 10_000):
        done = run("-c", text, str(life), str(bool(ends)))
        ends.append(done.returncode)
        assert final.exists() == (done.returncode == 0), done.stderr
    assert ends == [-signal.SIGKILL, -signal.SIGKILL, 0], done.stderr
    d, p = (np.load(tmp_path / name) for name in ("d.npy", "p.npy"))
    np.testing.assert_array_equal(d, EXPECTED)
    walk(GRAPH, d, p)


# Memory


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak as Linux counts it")
def test_memory_is_kept_within_its_limit(tmp_path):
    """A process with a small graph behind it takes the limit more, and no part of the result."""
    text = f"""
import resource
import numpy as np
import semiring_mm as sm
from semiring_mm.closures.edges import EdgeList
def solve(n, limit):
    i = np.arange(n - 40)
    u, v = np.concatenate([i, i]), np.concatenate([i + 1, i + 40])
    graph = EdgeList(range(n), u, v, 1.0 + (u * 7 + v * 13) % 10, False)
    out = tuple(rf"{tmp_path}/{{x}}{{n}}.npy" for x in "dp")
    sm.apsp(graph, return_predecessors=True, tiles=sm.Tiles(out=out, memory=limit))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
solve(600, "1GB")
solve(2500, "16MB")  # of 75 MB
"""
    before, after = map(int, script(text).split())
    assert after - before < 16e6


def test_too_little_memory_is_told_before_any_work(tmp_path):
    for words in ({"sources": [1]}, {"method": "sparse"}):
        with pytest.raises(MemoryError, match=r"use a larger tiles\.memory"):
            sm.apsp(GRAPH, tiles=sm.Tiles(out=tmp_path / "d.npy", memory="10kB"), **words)
    assert not list(tmp_path.iterdir())
