"""Ctrl-C in the midst of long calls, as processes of their own, and calls in pieces."""

import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from optional import sp

import semiring_mm as sm
from semiring_mm import alignment, pool
from semiring_mm.closures.edges import EdgeList
from semiring_mm.cpu import alignment as cpu_alignment
from semiring_mm.cpu import product, sparse, vector
from semiring_mm.graphs import dijkstra
from tests.cpu.test_long_runs import ENVIRONMENT, posix

#: What each call takes, and calls of minutes; a megabyte or two is soon made.
LONG = {
    "dtw": ("x = r.random((2, 300000))", "sm.alignment.dtw(*x)"),
    "dtw, features": ("x = r.random((2, 30000, 99))", "sm.alignment.dtw(*x)"),
    "dtw, pairs": ("x = r.random((2, 9, 90000, 1))", "sm.alignment.dtw(*x)"),
    "edit_distance": ("x = r.integers(0, 4, (2, 10**6))", "sm.alignment.edit_distance(*x)"),
    "smith_waterman": ("x = r.integers(0, 4, (2, 300000))", "sm.alignment.smith_waterman(*x)"),
    "needleman_wunsch": (
        "x = r.integers(0, 4, (2, 200000))",
        "sm.alignment.needleman_wunsch(*x, gap_open=-2)",
    ),
    "knn, few queries": (
        "x = r.random((300000, 64)); y = x[:90].copy()",
        "[sm.neighbours.knn(y, x, 5, 'minkowski', p=3.3) for _ in range(9)]",
    ),
    "knn": ("x = r.random((200000, 64))", "sm.neighbours.knn(x, x, 5)"),
    "radius_count": (
        "x = r.random((200000, 64))",
        "sm.neighbours.radius_count(x, x, 1.0, 'canberra')",
    ),
    "matmul of one thread": (
        "a = r.random((6000, 6000), 'f4'); sm.set_num_threads(1)",
        "[sm.matmul(a, a, 'min_plus') for _ in range(9)]",
    ),
    "matmul of a stack": (
        "a = np.broadcast_to(r.random((3000, 3000), 'f4'), (16, 3000, 3000))",
        "[sm.matmul(a, a, 'min_plus') for _ in range(9)]",
    ),
    "matmul of slow functions": (
        "a = r.random((4000, 4000)); s = sm.Semiring('s', 'a + b', 'exp(a) * log(b)', 0, 1)",
        "[sm.matmul(a, a, s) for _ in range(9)]",
    ),
}


@posix
@pytest.mark.skipif(
    signal.getsignal(signal.SIGINT) == signal.SIG_IGN, reason="ignored, as under nohup"
)
@pytest.mark.parametrize("name", LONG)
def test_a_call_of_minutes_ends_within_seconds(name):
    given, call = LONG[name]
    text = f"import numpy as np, semiring_mm as sm; r = np.random.default_rng(0); {given}\n"
    text += f"print('begun', flush=True)\n{call}\n"
    process = subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=ENVIRONMENT, text=True,
    )  # fmt: skip
    try:
        assert process.stdout.readline() == "begun\n", process.communicate()[1]
        time.sleep(1.2)  # compiled and under way
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        message = process.communicate(timeout=60)[1]
        assert message.rstrip().endswith("KeyboardInterrupt")
        assert time.monotonic() - begin < 5  # a second or less on a core of its own
    finally:
        process.kill()


def test_a_task_that_looks_ends_with_the_others():
    """Whichever thread fails, and while the calling one waits."""
    sm.set_num_threads(2)
    caller = threading.get_ident()
    for who in (True, False):
        both = threading.Barrier(2)

        def task(who=who, both=both):
            both.wait(10)
            if (threading.get_ident() == caller) == who:
                raise RuntimeError("one")
            for _ in range(2000):
                time.sleep(0.005)
                pool.look()

        begin = time.monotonic()
        with pytest.raises(RuntimeError, match="one"):
            pool.run([task, task])
        assert time.monotonic() - begin < 5
    pool.look()  # of no run


def test_a_caller_that_waits_is_told_when_another_thread_looks():
    sm.set_num_threads(2)
    caller, told, first = threading.get_ident(), [], threading.Barrier(2)

    def task():
        first.wait(10)
        if threading.get_ident() != caller:
            for _ in range(500):
                time.sleep(0.005)
                pool.look()
                if len(told) > 2:  # of which the last was told in vain
                    return

    pool.run([task, task], lambda number: told.append((number, threading.get_ident())))
    assert told[:3] == [(1, caller)] * 3
    assert told[-1] == (2, caller)


@posix
def test_ctrl_c_while_another_thread_works():
    """The calling thread has nothing left to do, and waits until the other one has ended."""
    sm.set_num_threads(2)
    caller, ended = threading.get_ident(), []
    both = threading.Barrier(2)

    def task():
        both.wait(10)
        if threading.get_ident() != caller:
            time.sleep(0.1)
            signal.pthread_kill(caller, signal.SIGINT)
            time.sleep(0.1)
            ended.append(True)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            pool.run([task, task])
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended


@pytest.mark.parametrize("piece", [1, 300, 2000])
def test_alignments_in_pieces(piece, monkeypatch):
    """Bit for bit as in one, of pairs of all lengths, in lists and alone."""
    rng = np.random.default_rng(piece)
    lengths = rng.integers(0, 90, (12, 2))
    series = [[rng.normal(size=(n, 2)) for n in some] for some in lengths.T]
    codes = [[rng.integers(0, 3, n) for n in some] for some in lengths.T]

    def results():
        for band in (None, 40):
            for option in ({}, {"gap_open": -2}, {"matrix": np.arange(9).reshape(3, 3) - 4.0}):
                for verb in (alignment.needleman_wunsch, alignment.smith_waterman):
                    yield verb(*codes, band=band, **option)
                    yield verb(codes[0][3], codes[1][3], band=band, **option)
            yield alignment.edit_distance(*codes, band=band)
            yield alignment.edit_distance(codes[0][3], codes[1][3], band=band)
            yield alignment.dtw(*series, band=band)
            yield from alignment.dtw(series[0][3], series[1][3], band=band, return_path=True)

    whole = list(results())
    monkeypatch.setattr(cpu_alignment, "_PIECE", piece)
    for found, expected in zip(results(), whole, strict=True):
        assert_array_equal(found, expected)


def test_searches_in_pieces(monkeypatch):
    rng = np.random.default_rng(0)
    row, col = rng.integers(0, 400, (2, 1200))
    graph = EdgeList(range(400), row, col, rng.integers(1, 9, 1200) * 1.0, True)
    whole = sm.apsp(graph, sources=[7], return_predecessors=True)
    looks = []
    monkeypatch.setattr(dijkstra, "_MOST", 3)
    monkeypatch.setattr(pool, "look", lambda: looks.append(1))
    pieces = sm.apsp(graph, sources=[7], return_predecessors=True)
    assert_array_equal(pieces, whole)
    assert len(looks) > 100


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("dtype", ["f4", "i2", "?"])
def test_products_in_pieces(dtype, count, monkeypatch):
    """Of one matrix, of a stack, of a sparse one, and of a vector."""
    sm.set_num_threads(count)
    rng = np.random.default_rng(count)
    a, b = (rng.integers(-9, 9, shape).astype(dtype) for shape in ((9, 211, 97), (9, 97, 130)))
    name = "lor_land" if dtype == "?" else "min_plus"
    thin = sp.csr_array(np.where(a[0] > 4, a[0], 0).astype(dtype))

    def results():
        yield sm.matmul(a[0], b[0], name)
        if dtype != "?":
            yield from sm.matmul(a[0], b[0], name, return_arg=True)
        yield sm.matmul(a, b, name)
        yield sm.matmul(a, b[0], name)
        yield sm.matmul(thin, b[0], name)
        yield sm.gemv(1, a[0], b[0, :, 0], semiring=name)

    whole = list(results())
    monkeypatch.setattr(product, "_LONGEST", 1 << 14)
    for module in (sparse, vector):
        monkeypatch.setattr(module, "_PIECE", 1 << 10)
    product._longest.cache_clear()
    product._program_of_one.cache_clear()
    try:
        pieces = list(results())
    finally:
        product._longest.cache_clear()
        product._program_of_one.cache_clear()
    for found, expected in zip(pieces, whole, strict=True):
        assert_array_equal(found, expected)
