"""The CPU engine: threads, slabs, vector widths, memory, and the pure decisions before the code."""

import ctypes
import functools
import gc
import itertools
import os
import sys
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import reference
from numpy.testing import assert_array_equal
from processes import script
from reference import BFLOAT16

import semiring_mm as sm
from semiring_mm import plan, pool
from semiring_mm.cpu import (
    compiler,
    engine,
    facts,
    product,
    product_code,
    team,
    tuning,
)
from semiring_mm.cpu.ir import PTR, Function

inf, nan = np.inf, np.nan


# --- many threads -------------------------------------------------------------------------------

LARGE = [
    ("plus_times", "f4", (700, 2500, 900)), ("min_plus", "f4", (1200, 300, 1100)),
    ("max_min", "f8", (500, 2100, 600)), ("min_plus", "i4", (900, 200, 1000)),
    ("lor_land", "?", (1500, 1200, 5000)), ("plus_times", "f2", (400, 2500, 500)),
]  # fmt: skip


def fractions(rng, name, shape, dtype):
    """Random numbers whose sums round, so that an order of summation shows."""
    if dtype == "?":
        return rng.random(shape) < 0.02
    x = rng.random(shape) * (1 if dtype[0] == "f" else 1000)
    return x.astype(dtype)


@pytest.mark.parametrize(("name", "dtype", "shape"), LARGE)
def test_any_number_of_threads_gives_the_same_bits(name, dtype, shape, monkeypatch):
    monkeypatch.setattr(product, "blas_serves", lambda *_: False)  # which promises no such thing
    rng = np.random.default_rng(1)
    m, k, n = shape
    a, b = fractions(rng, name, (m, k), dtype), fractions(rng, name, (k, n), dtype)
    results = []
    for count in (1, 2, 3, 4):
        sm.set_num_threads(count)
        assert sm.get_num_threads() == count
        results.append(sm.matmul(a, b, name))
    for other in results[1:]:
        assert_array_equal(other.view(np.uint8), results[0].view(np.uint8))
    if name != "plus_times":  # which rounds; some rows, as the reference is slow
        rows = [0, 1, m // 2, m - 1, *rng.integers(0, m, 12)]
        assert_array_equal(results[0][rows], reference.product(name, a[rows], b))


@pytest.mark.parametrize("served", [True, False], ids=["blas", "own"])
def test_large_products_of_small_integers_are_exact(served, monkeypatch):
    """Over several slabs of K and every edge of the blocks."""
    if not served:
        monkeypatch.setattr(product, "blas_serves", lambda *_: False)
    rng = np.random.default_rng(2)
    for m, k, n in [(1003, 4099, 517), (97, 6000, 1030), (2050, 33, 1027)]:
        a, b = (rng.integers(-3, 4, s).astype("f4") for s in ((m, k), (k, n)))
        expected = a.astype("f8") @ b.astype("f8")
        for dtype in ("f4", "i2", "i4"):
            assert_array_equal(sm.matmul(a.astype(dtype), b.astype(dtype)), expected)
    rows = rng.integers(0, 2050, 20)
    assert_array_equal(sm.matmul(a, b, "min_plus")[rows], reference.product("min_plus", a[rows], b))


@pytest.mark.parametrize("count", [1, 4])
def test_return_arg_and_gemm_of_large_matrices(count):
    sm.set_num_threads(count)
    rng = np.random.default_rng(3)
    a, b = (rng.integers(0, 1000, s).astype("f4") for s in ((900, 500), (500, 700)))
    result, arg = sm.matmul(a, b, "min_plus", return_arg=True)
    assert_array_equal(result, sm.matmul(a, b, "min_plus"))
    i, j = np.indices(arg.shape)
    assert_array_equal(a[i, arg] + b[arg, j], result)
    for row in (0, 333, 899):
        assert_array_equal(arg[row], (a[row][:, None] + b).argmin(0))
    c = rng.integers(0, 1000, (900, 700)).astype("f4")
    joined = sm.gemm(None, a, b, 3, c, semiring="min_plus")
    assert_array_equal(joined, np.minimum(result, c + 3))
    sm.gemm(None, a, b, 3, c, semiring="min_plus", out=c)
    assert_array_equal(c, joined)


@pytest.mark.parametrize("count", [1, 4])
def test_batches_of_every_size_of_matrix(count):
    sm.set_num_threads(count)
    rng = np.random.default_rng(4)
    for batch, m in [(500, 20), (5, 300), (3, 700), (40, 64)]:
        shapes = (batch, m, m - 7), (batch, m - 7, m + 5)  # and strides that differ
        a, b = (rng.integers(-9, 10, shape).astype("f4") for shape in shapes)
        for x, y in ((a, b), (a[:1], b), (a, b[:1])):
            assert_array_equal(sm.matmul(x, y), np.matmul(x.astype("f8"), y))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("shape", [(3000, 700), (700, 3000), (100_003, 7), (7, 100_003)])
def test_large_gemv(shape, count):
    sm.set_num_threads(count)
    rng = np.random.default_rng(5)
    a, x = (rng.integers(-9, 10, s).astype("f4") for s in (shape, shape[1]))
    for matrix in (a, np.asfortranarray(a)):
        assert_array_equal(sm.matmul(matrix, x), a.astype("f8") @ x)
        assert_array_equal(sm.matmul(matrix, x, "min_plus"), (a + x).min(1))
        assert_array_equal(sm.matmul(x, matrix.T, "max_plus"), (a + x).max(1))


def test_an_overflow_in_any_thread_is_raised_and_leaves_nothing_behind():
    sm.set_num_threads(4)
    a, b = np.ones((900, 400), "i2"), np.ones((400, 900), "i2")
    for i, j in ((0, 0), (450, 899), (899, 3)):
        x, y = a.copy(), b.copy()
        x[i], y[:, j] = 100, 100
        with pytest.raises(OverflowError, match="a result of plus_times does not fit int16"):
            sm.matmul(x, y)
        assert_array_equal(sm.matmul(a, b), np.full((900, 900), 400))


def test_several_callers_at_once():
    rng = np.random.default_rng(6)
    jobs = []
    for i in range(24):
        name, dtype, _ = LARGE[i % 6]
        size = [30, 150, 500][i % 3]
        a, b = (reference.small(rng, name, (size, size), np.dtype(dtype)) for _ in range(2))
        jobs.append((name, a, b, reference.product(name, a, b)))
    sm.set_num_threads(3)
    barrier = threading.Barrier(8)

    def caller(number):
        barrier.wait()
        for name, a, b, expected in jobs[number:] + jobs[:number]:
            assert_array_equal(sm.matmul(a, b, name), expected)
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(caller, range(8)))


def test_new_semirings_from_several_threads_at_once():
    """Compilation is for one thread at a time; the callers need not know."""
    x = np.arange(6.0)
    barrier = threading.Barrier(6)

    def caller(number):
        s = sm.Semiring("new", "max(a, b)", f"a * 3 - b + {number % 3 + 100}", -inf, 0)
        barrier.wait()
        return number, sm.matmul(x[:, None], x[None, :], s)

    with ThreadPoolExecutor(6) as pool:
        for number, result in pool.map(caller, range(6)):
            assert_array_equal(result, x[:, None] * 3 - x + number % 3 + 100)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_computes():
    code = """
import os, threading, warnings
import numpy as np, semiring_mm as sm
from semiring_mm import pool
warnings.simplefilter("ignore")
sm.set_num_threads(3)
together = threading.Barrier(2)
both = [lambda: together.wait(30)] * 2
a = np.random.default_rng(0).integers(0, 9, (700, 700)).astype("f4")
before = sm.matmul(a, a, "min_plus")
pool.run(both)                                # the pool has its threads
child = os.fork()
if child == 0:
    ok = (sm.matmul(a, a, "min_plus") == before).all()
    ok &= (sm.matmul(a, a) == a.astype("f8") @ a).all()    # new code, too
    pool.run(both)                               # and threads of its own
    os._exit(0 if ok else 1)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
after = sm.matmul(a, a, "min_plus")
print(status, (after == before).all())
"""
    assert script(code).split() == ["0", "True"]


@pytest.mark.parametrize("n", [0, -1, 1.5, "2", None, True])
def test_refused_numbers_of_threads(n):
    with pytest.raises(ValueError, match=r"the number of threads must be a positive integer, got"):
        sm.set_num_threads(n)


def test_the_environment_sets_the_number_of_threads():
    show = "import semiring_mm as sm; print(sm.get_num_threads())"
    assert script(show, SEMIRING_MM_NUM_THREADS="3").strip() == "3"
    catch = f"try:\n    {show}\nexcept ValueError as error:\n    print(error)"
    for bad in ("0", "two", "-1"):
        words = f"SEMIRING_MM_NUM_THREADS must be a positive integer, got {bad!r}"
        assert script(catch, SEMIRING_MM_NUM_THREADS=bad).strip() == words


def alive():
    return sum(thread.name == "semiring_mm" for thread in threading.enumerate())


def end_workers():
    sm.set_num_threads(1)
    deadline = time.monotonic() + 10
    while alive() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert not alive(), "threads that are not wanted any more end"
    assert not pool._workers


@pytest.mark.parametrize("own", [True, False], ids=["of the caller", "of a worker"])
def test_tasks_stop_at_the_first_error(own):
    end_workers()
    sm.set_num_threads(3)
    caller, done, failed = threading.get_ident(), [], threading.Event()

    def task():
        if (threading.get_ident() == caller) == own:
            failed.set()
            raise RuntimeError("a task")
        assert failed.wait(60)
        time.sleep(0.001)
        done.append(1)

    with pytest.raises(RuntimeError, match="a task"):
        pool.run([task] * 1000)
    assert len(done) < 500
    counts = []
    pool.run([lambda: None] * 20, counts.append)
    assert counts[-1] == 20
    assert counts == sorted(counts)


# --- operands that are looked at while they are packed -----------------------------------------


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("shape", [(300, 260, 280), (257, 511, 200)], ids=str)
def test_operands_that_hold_other_numbers_than_before(shape, dtype, count, monkeypatch):
    """A product under the plan of the last one is computed once more where it is not its own."""
    sm.set_num_threads(count)
    scans = []
    scan = product.coarse_facts
    monkeypatch.setattr(product, "coarse_facts", lambda *x: (scans.append(x), scan(*x))[1])
    monkeypatch.setattr(product._Guess, "_last", {})
    rng = np.random.default_rng(0)
    m, k, n = shape
    rows = [0, m // 2, m - 1]
    for change in ("", "", "inf", "", "negative", "nan", "", "both", "nan b", "turned", "inf b"):
        a, b = (rng.integers(0, 9, x).astype(dtype) for x in ((m, k), (k, n)))
        if change == "inf":
            a[rng.random(a.shape) < 0.3] = np.inf
        elif change == "negative":
            a -= 5
        elif change == "nan":
            a[-1, -1] = np.nan
        elif change == "nan b":
            b[-1, -1] = np.nan
        elif change == "both":
            b[0, -1], a[0, 0] = -np.inf, np.inf
        elif change == "inf b":
            b[:, -1] = np.inf
        elif change == "turned":
            a, b = np.asfortranarray(a), np.asfortranarray(b)
        expected = reference.product("min_plus", a[rows], b)
        assert_array_equal(sm.matmul(a, b, "min_plus")[rows], expected)
        found, arg = sm.matmul(a, b, "min_plus", return_arg=True)
        assert_array_equal(found[rows], expected)
        if change in ("", "inf", "negative"):
            assert_array_equal(a[rows][np.arange(3)[:, None], arg[rows]] + b[arg[rows], range(n)],
                               expected)  # fmt: skip
    assert len(scans) == 2, "of both operands, only the first time"


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_small_products_are_not_packed(dtype):
    """Every rest of rows and of columns, from where the operands lie."""
    rng = np.random.default_rng(1)
    whole = rng.integers(-5, 6, (90, 90)).astype(dtype)
    for m, n, k in itertools.product((1, 3, 4, 12, 13, 29), (2, 8, 15, 16, 17, 31, 33, 65), (1, 7)):
        for a in (whole[:m, :k], whole[:k, :m].T, whole[: 2 * m : 2, :k]):
            b, c = whole[5 : 5 + k, 3 : 3 + n], np.full((m + 2, n + 2), 7, dtype)
            sm.matmul(a, b, out=c[1:-1, 1:-1])
            assert_array_equal(c[1:-1, 1:-1], a.astype("f8") @ b)
            c[1:-1, 1:-1] = 7
            assert (c == 7).all(), "nothing beside C is written"


# --- how a product is cut -----------------------------------------------------------------------

TILE = product_code.Shape(24, 1, 16, 256, 288, 256)


def makespan(cut, m, n, team):
    """The tiles of the busiest of `team` threads that take blocks in turn, and all tiles."""
    tiles_of = [
        [min(block, extent - x) for x in range(0, extent, block)]
        for extent, block in (
            (-(-m // TILE.mr), cut.m_block // TILE.mr), (-(-n // TILE.nr), cut.n_block // TILE.nr)
        )
    ]  # fmt: skip
    busy = [0] * team
    for p, q in itertools.product(*tiles_of):
        busy[busy.index(min(busy))] += p * q
    return max(busy), sum(busy)


@pytest.mark.parametrize("n", [384, 512, 700, 1024, 2048, 4096])
def test_any_number_of_threads_has_even_shares(n):
    for count in range(2, 65):
        count = min(count, n**3 // product._SHARE)
        cut = product.blocks(n, n, n, TILE, 4, (2048, 2048), count, False)
        assert cut.n_slab >= n, "small enough for one slab"
        assert cut.m_slab >= n
        longest, tiles = makespan(cut, n, n, count)
        assert longest * count <= (1.25 if n < 1024 else 1.1) * tiles, (count, cut)


def test_blocks_stay_within_a_thread_s_local_block_and_the_shared_room():
    for m, n, k, count, whole in itertools.product(
        (1, 300, 5000, 100_000), (1, 700, 50_000), (1, 3000, 70_000), (1, 2, 16), (False, True)
    ):
        cut = product.blocks(m, n, k, TILE, 4, (2048, 2048), count, whole)
        assert cut.k_slab % 64 == 0
        assert cut.k_slab >= k or not whole
        assert 0 < cut.m_block <= TILE.mc
        assert 0 < cut.n_block <= TILE.nc
        assert cut.m_block % TILE.mr == 0 == cut.n_block % TILE.nr
        packed = cut.k_slab * (cut.m_slab + cut.n_slab) * 4
        assert packed <= max(1.6 * product._TEAM, 4 * cut.k_slab * (TILE.mr + TILE.nr)), cut


class Idle(list):
    """Workers that have nothing to do: two callers must not get the same one."""

    def pop(self):
        assert pool._lock.locked()
        return super().pop()


@pytest.fixture(params=["compiled", "Python's"])
def waits(request, monkeypatch):
    """How idle workers wait: in compiled code, or as where there are no futexes."""
    kind = team._Worker
    if request.param != "compiled":
        monkeypatch.setattr(team, "_FUTEX", None)
        kind = pool.Worker
    elif team._FUTEX is None:
        pytest.skip("no futexes here")
    end_workers()
    pool.start_with(kind)
    yield kind
    end_workers()


def test_workers_are_reused_and_need_not_come(waits, monkeypatch):
    monkeypatch.setattr(pool, "_idle", Idle())
    sm.set_num_threads(4)
    seen = set()

    def note():
        seen.add(threading.get_ident())
        time.sleep(0.001)

    for _ in range(20):
        pool.run([note] * 8)
    assert 2 <= len(seen) <= 4
    pool.run([lambda: None] * 2)  # done before any worker wakes
    end_workers()


def test_workers_of_a_product(waits):
    """Jobs one after the other and from several threads at once; each call is made once."""
    sm.set_num_threads(4)
    x = np.random.default_rng(0).random((900, 4000), dtype=np.float32)
    found = [facts.facts(sm.semirings["min_plus"], y) for y in (x, -x[:7])]
    assert [(y.lo, y.hi, y.special) for y in found] == [
        (x.min(), x.max(), False), (-x[:7].max(), -x[:7].min(), False),
    ]  # fmt: skip
    x[777, 3333] = np.nan
    seen = []

    def caller():
        for _ in range(50):
            seen.append(facts.facts(sm.semirings["min_plus"], x).special)

    callers = [threading.Thread(target=caller) for _ in range(3)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join()
    assert seen == [True] * 150
    assert len(pool._idle) == len(pool._workers) <= 3
    assert {type(worker) for worker in pool._workers} == {waits}


def test_code_in_a_cycle_is_unloaded_by_the_next_compilation_only():
    """The collector of cycles finalizes all that is in one, at any time and without the lock."""
    add = Function("add", [PTR])
    add.claim(add.args[0])
    library = compiler.compile_functions([add], compiler.host_target())
    serial = library._serial
    cycle = [library]
    cycle.append(cycle)
    del library, cycle
    gc.collect()
    assert not compiler._loaded[serial].closed
    compiler.compile_functions([add], compiler.host_target())
    assert serial not in compiler._loaded


def test_tasks_and_jobs_take_turns(waits):
    """Each is done once, also by workers that are still waking for a task that was withdrawn."""
    add = Function("add", [PTR])
    add.claim(add.args[0])
    call = compiler.compile_functions([add], compiler.host_target()).function(
        "add", ctypes.c_void_p
    )
    sm.set_num_threads(3)
    counts, done = np.zeros((3, 8), np.int64), []
    rows = [(row.ctypes.data,) for row in counts]
    for i in range(1, 2001):
        pool.run([functools.partial(done.append, k) for k in range(3)])
        with team.lease(2) as workers:
            assert len(workers) == 2
            team.call_each(call, rows, workers)
        assert (counts[:, 0] == i).all()
    assert sorted(done) == sorted([0, 1, 2] * 2000)


def test_workers_end_when_they_are_not_wanted(waits):
    sm.set_num_threads(3)
    with team.lease(5) as workers:
        assert len(workers) == alive() == 2
        with pool.lease(5) as more:
            assert not more, "all are in use"
        sm.set_num_threads(2)
    assert len(pool._idle) == 1
    seen = []

    def note():
        with team.lease(1) as workers:
            seen.append(len(workers))

    pool.run([note] * 4)
    assert seen == [0] * 4, "none inside a task: others are busy, too"


# --- other vector widths ------------------------------------------------------------------------

COMPACT = """
import numpy as np, reference, semiring_mm as sm
from semiring_mm.cpu.compiler import host_target
target = host_target()
rng = np.random.default_rng(0)
for name, algebra in reference.ALGEBRAS.items():
    whole = name == "min_plus"  # every type, and vectors besides; else one type
    kinds = sorted(algebra.dtypes, key=lambda x: x.name not in ("float32", "int16"))
    for dtype in kinds if whole else kinds[:1]:
        for m, k, n in ((13, 70, 37), (5, 40, 1))[: 1 + whole]:
            a, b = (reference.small(rng, name, s, dtype) for s in ((m, k), (k, n)))
            reference.check(name, sm.matmul(a, b, name), reference.product(name, a, b))
a = rng.choice([np.nan, np.inf, -np.inf, 0.0, 1.0], (30, 40)).astype("f4")
for name in ("min_plus", "max_min"):
    result, arg = sm.matmul(a, a.T, name, return_arg=True)
    np.testing.assert_array_equal(result, reference.product(name, a, a.T))
    terms = reference.terms(name, a, a.T)
    np.testing.assert_array_equal(arg, (np.argmin if name == "min_plus" else np.argmax)(terms, 0))
every = np.arange(65536, dtype="u2").view("f2")
same = sm.matmul(every[:, None], np.zeros((1, 2), "f2"), "min_plus")[:, 1]
np.testing.assert_array_equal(same, every)
x, y = rng.permutation(every)[:300], rng.permutation(every)[:300]
with np.errstate(all="ignore"):  # every way to round, overflow and underflow
    expected = (x[:, None].astype("f4") * y.astype("f4")).astype("f2")
np.testing.assert_array_equal(sm.matmul(x[:, None], y[None], "max_times"), expected)
print(target.vector_bytes, target.registers)
"""


@pytest.mark.parametrize(("limit", "size"), [("avx2", 32), ("sse", 16)])
def test_narrower_vectors(limit, size):
    target = compiler.host_target()
    if target.vector_bytes < size or "+sse2" not in target.features:
        pytest.skip(f"this processor has no {limit}")
    if limit == "avx2" and "+avx2" not in target.features:
        pytest.skip("this processor has no avx2")
    assert script(COMPACT, SEMIRING_MM_VECTOR=limit).split() == [str(size), "16"]


def test_an_unknown_vector_width_is_refused():
    code = """
import numpy as np, semiring_mm as sm
try:
    sm.matmul(np.ones((2, 2)), np.ones((2, 2)), "min_plus")
except ValueError as error:
    print(error)
"""
    words = "SEMIRING_MM_VECTOR is avx512, avx2 or sse, got 'avx1024'"
    assert script(code, SEMIRING_MM_VECTOR="avx1024").strip() == words


# --- memory -------------------------------------------------------------------------------------


def allocated(call):
    """Bytes at the peak of a call beyond those before it, with code and buffers in place."""
    call()
    tracemalloc.start()
    try:
        call()
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        result = call()
        return tracemalloc.get_traced_memory()[1] - before, result
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["min_plus", "plus_times", "max_min"])
def test_a_product_allocates_its_result_and_nothing_like_it(name):
    sm.set_num_threads(1)
    wide = np.ones((800, 1600), "f4")
    operands = {"C": wide[:, :800].copy(), "F": np.asfortranarray(wide[:, :800]),
                "strided": wide[:, ::2], "reversed": wide[::-1, 800:]}  # fmt: skip
    b = np.ones((800, 800), "f4")
    out = np.empty((800, 800), "f4")
    for how, a in operands.items():
        extra, result = allocated(lambda a=a: sm.matmul(a, b, name, out=out))
        assert result is out
        assert extra < 100_000, (how, extra)
        extra, result = allocated(lambda a=a: sm.matmul(a, b, name))
        assert result.nbytes <= extra < result.nbytes + 100_000, (how, extra)
    extra, _ = allocated(lambda: sm.gemm(2, b, b, 1, out, semiring=name, out=out, trans_b=True))
    assert extra < 100_000
    vector = np.ones(800, "f4")
    extra, _ = allocated(lambda: sm.gemv(None, b, vector, semiring=name, trans=True))
    assert extra < 100_000


def test_broadcast_operands_are_not_copied():
    sm.set_num_threads(1)
    a, b = np.ones((60, 1, 50, 50), "f4"), np.ones((40, 50, 50), "f4")
    out = np.empty((60, 40, 50, 50), "f4")
    extra, _ = allocated(lambda: sm.matmul(a, b, "min_plus", out=out))
    assert extra < 500_000  # the operands, spelt out, would be 24 MB each
    assert_array_equal(out, np.full_like(out, 2))


def test_buffers_do_not_grow_with_the_matrices():
    """A thread of its own, so that the first buffer is seen as well."""
    sm.set_num_threads(1)
    sizes = []

    def caller():
        for n in (1024, 2048, 3000):
            a, out = np.ones((n, n), "f4"), np.empty((n, n), "f4")
            tracemalloc.start()
            sm.matmul(a, a, "min_plus", out=out)
            sizes.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()

    worker = threading.Thread(target=caller)
    worker.start()
    worker.join()
    assert max(sizes) < 32 << 20
    assert sizes[2] < 20 << 20 < 36_000_000  # less than the matrices, 36 MB


# --- pure decisions -----------------------------------------------------------------------------


def facts_of(name, x):
    return engine.facts(sm.semirings[name], x)


@pytest.mark.parametrize(
    "dtype", ["f2", "f4", "f8", BFLOAT16, "i1", "i4", "i8", "u2", "u8"], ids=str
)
def test_facts_are_the_range_of_the_entries(dtype):
    rng = np.random.default_rng(7)
    for shape in ((1, 1), (3, 5), (40, 130), (1200, 900)):
        x = rng.integers(0, 100, shape).astype(dtype)
        lo, hi = float(x.min()), float(x.max())
        for y in (x, x.T, np.asfortranarray(x), x[::-1, ::-1], np.repeat(x, 2, 1)[:, ::2]):
            assert facts_of("min_plus", y) == plan.Facts(lo, hi, False)
        if x.size > 1:
            special = x.copy()
            floating = x.dtype.kind == "f" or x.dtype == BFLOAT16
            special[-1, -1] = nan if floating else np.iinfo(x.dtype).max
            rest = special.ravel()[:-1]
            expected = plan.Facts(float(rest.min()), float(rest.max()), True)
            assert facts_of("min_plus", special) == expected
            assert facts_of("min_plus", special[::-1, ::-1].T) == expected
    everything = np.full((3, 40), nan if np.dtype(dtype).kind != "i" else 0, "f4")
    found = facts_of("min_plus", everything * nan)
    assert found.special
    assert found.lo > found.hi
    assert found.interval() == (0, 0)


def integer_plan(name, dtype, left, right, k):
    return plan.make_plan(
        sm.semirings[name], np.dtype(dtype), plan.Facts(*left, False), plan.Facts(*right, False), k
    )


@pytest.mark.parametrize(
    ("name", "dtype", "left", "right", "k", "compute", "check"),
    [
        ("min_plus", "i4", (0, 2**28), (0, 2**28), 9, "i32", False),
        ("min_plus", "i4", (0, 2**28 + 1), (0, 1), 9, "i64", False),
        ("min_plus", "i4", (0, 2**30), (0, 2**30), 9, "i64", True),
        ("min_plus", "i1", (0, 8), (-8, 8), 9, "i8", False),
        ("min_plus", "i1", (0, 100), (0, 100), 9, "i16", True),
        ("plus_times", "i1", (0, 3), (0, 3), 10, "i8", False),
        ("plus_times", "i1", (-3, 3), (-3, 3), 15, "i16", True),
        ("plus_times", "i4", (0, 1000), (0, 1000), 2000, "i32", False),
        ("plus_times", "i4", (0, 1000), (0, 1000), 3000, "i64", True),
        ("plus_times", "u1", (0, 5), (0, 5), 10, "i16", False),
        ("plus_times", "u1", (0, 5), (0, 5), 11, "i16", True),
        ("max_min", "u4", (0, 9), (0, 9), 9, "u32", False),
        ("max_times", "i2", (-200, 100), (0, 100), 9, "i16", False),
        ("max_times", "i2", (-200, 200), (-200, 200), 9, "i32", True),
    ],
)  # fmt: skip
def test_integers_compute_in_the_narrowest_type_that_holds_all(
    name, dtype, left, right, k, compute, check
):
    found = integer_plan(name, dtype, left, right, k)
    assert (found.compute, found.check) == (compute, check)


def test_what_64_bits_cannot_hold_is_refused():
    integer_plan("plus_times", "i8", (0, 2**31), (0, 2**31), 1)
    with pytest.raises(
        OverflowError, match=r"from 0 to 2147483648 and k = 2, .* more than 64 bits"
    ):
        integer_plan("plus_times", "i8", (0, 2**31), (0, 2**31), 2)


def test_float_plans_keep_nan_where_one_can_appear():
    def keeps(name, a, b):
        return plan.make_plan(
            sm.semirings[name], np.dtype("f4"), plan.Facts(*a), plan.Facts(*b), 1
        ).keep_nan

    plain, positive = (-5.0, 5.0, False), (0.5, inf, False)
    assert not keeps("min_plus", plain, positive)
    assert keeps("min_plus", (-inf, 5.0, False), positive)
    assert keeps("min_plus", (0.0, 5.0, True), plain)
    assert not keeps("max_times", positive, positive)
    assert keeps("max_times", plain, positive)
    assert not keeps("max_min", (-inf, inf, False), (-inf, inf, False))
    assert not plan.needs_facts(sm.semirings["plus_times"], np.dtype("f4"))


@pytest.mark.parametrize("bits", [32, 64])
def test_keys_are_ordered_as_the_floats(bits):
    x = [-inf, -3.0, -1.0, -(2.0**-140), 0.0, 2.0**-149, 1.0, 3.0, inf]
    keys = [plan.float_key(v, bits) for v in x]
    assert keys == sorted(set(keys))


def test_cache_sizes_are_read(tmp_path):
    assert all(size > 0 for size in compiler.cache_sizes())
    nothing = (compiler.Target.l1, compiler.Target.l2)
    assert compiler.cache_sizes(str(tmp_path / "none")) == nothing or sys.platform == "darwin"
    caches = [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2M"), ("3",)]
    for number, files in enumerate(caches):
        index = tmp_path / f"index{number}"
        index.mkdir()
        for name, text in zip(("level", "type", "size"), files, strict=False):
            (index / name).write_text(text + "\n")
    assert compiler.cache_sizes(str(tmp_path)) == (48 << 10, 2 << 20)


@pytest.mark.parametrize("few", [False, True])
def test_tiles_fit_their_blocks_and_the_caches(few):
    targets = [compiler.Target("x", "+fma", size, count, l1 << 10, l2 << 10)
               for size, count in ((64, 32), (32, 16), (16, 16), (16, 32))
               for l1, l2 in ((32, 256), (32, 1024), (48, 2048), (128, 12288))]  # fmt: skip
    facts = plan.Facts(0, 1, False)
    for name, algebra in reference.ALGEBRAS.items():
        for dtype in algebra.dtypes:
            found = plan.make_plan(sm.semirings[name], dtype, facts, facts, 4)
            for target in targets:
                shape = product_code.tile_shape(found, target, few=few)
                size = int(found.compute[1:]) // 8
                assert shape.lanes * size == target.vector_bytes
                assert shape.mc % shape.mr == 0
                assert shape.nc % shape.nr == 0
                assert shape.kc % product_code.ARG_STEP == 0
                if found.codec == "plain" and size >= 4:
                    assert shape.kc * shape.mr * size <= target.l1 * 3 // 4
                    in_use = shape.kc * (shape.mc + shape.nc) + shape.mc * shape.nc
                    assert in_use * size <= target.l2
                assert shape.mr * shape.vectors < target.registers


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_plus_times_by_either_way(dtype, monkeypatch):
    """NumPy's BLAS where it needs no copy, the engine's kernels elsewhere: one contract."""
    served = []
    real = product.blas_serves
    sm.set_num_threads(pool.default_threads())
    monkeypatch.setattr(
        product, "blas_serves", lambda *x: served.append(real(*x)) or served[-1]
    )  # fmt: skip
    rng = np.random.default_rng(31)
    big = rng.integers(-8, 9, (2, 260, 300)).astype(dtype)
    a, b = big[0, :200, :150], big[1, 10:160, 20:280]
    cases = [
        (a, b, True), (a, b.T[::-1].T, False), (b.T, a.T, True), (a[:, ::2], b[::2], False),
        (big, big.transpose(0, 2, 1), True), (a[0], b, True), (big[0], big[1, 0], True),
        (np.asfortranarray(a), b, True), (a[:4, :4], b[:4, :4], True),
    ]  # fmt: skip
    for left, right, blas in cases:
        exact = left.astype("f8") @ right.astype("f8")
        assert_array_equal(sm.matmul(left, right), exact)
        assert (True in served) == blas
        served.clear()
        target = np.full((*exact.shape[:-1], 2 * exact.shape[-1]), np.nan, dtype)[..., ::2]
        assert_array_equal(sm.matmul(left, right, out=target), exact)
    square = rng.integers(-8, 9, (1000, 1000)).astype(dtype)
    x = square[3].copy()
    for matrix in (square, square.T):
        served.clear()
        assert_array_equal(sm.gemv(None, matrix, x), matrix.astype("f8") @ x.astype("f8"))
        assert served == [True]
    a, b = np.full((2, 160, 160), np.inf, dtype)
    a[:, 3] = 0
    b[5] = -np.inf
    assert np.isnan(sm.matmul(a, b)).all()  # and no warning, as in every other semiring
    sm.set_num_threads(pool.default_threads() + 1)  # a BLAS has threads of its own
    sm.matmul(square, square)
    assert not served[-1]


def test_a_blas_serves_again_without_a_second_look(monkeypatch):
    sm.set_num_threads(pool.default_threads())
    a = np.random.default_rng(3).integers(-8, 9, (160, 170)).astype("f4")
    b = a.T.copy()
    expected = a.astype("f8") @ b.astype("f8")
    smallest = (a[:, :, None] + b).min(1)
    turned = np.asfortranarray(a)
    same = [
        lambda: sm.matmul(a, b), lambda: sm.sgemm(1.0, a, b), lambda: sm.sgemm(None, turned, b),
        lambda: sm.gemm(None, a, b.T.copy(), trans_b=True), lambda: sm.matmul(a, b, "plus-times"),
        lambda: sm.matmul(a, b, out=np.empty((160, 160), "f4")),
    ]  # fmt: skip
    for call in same:
        assert_array_equal(call(), expected)
    with monkeypatch.context() as patch:
        patch.setattr(product, "blas_serves", None)  # a call of it would raise
        for call in same:
            assert_array_equal(call(), expected)
    for out in (np.empty((160, 160)).T, np.empty((320, 160), "f4")[::2]):  # the general way
        if out.dtype == "f4":
            assert sm.matmul(a, b, out=out) is out
            assert_array_equal(out, expected)
        else:
            with pytest.raises(ValueError, match="out has shape"):
                sm.matmul(a, b, out=out)
    with pytest.raises(ValueError, match="out is read-only"):
        sm.matmul(a, b, out=np.broadcast_to(np.float32(0), (160, 160)))
    room = np.zeros((170, 170), "f4")
    room[:160] = a
    assert_array_equal(sm.matmul(room[:160], b, out=room[10:, :160]), expected)
    assert_array_equal(sm.matmul(a, b, "min_plus"), smallest)
    sm.set_num_threads(pool.default_threads() + 1)
    assert_array_equal(sm.matmul(a, b), expected)


@pytest.mark.parametrize(("name", "dtype"), [("plus_times", "f4"), ("plus_times", "f8"),
                                             ("min_plus", "i2"), ("min_plus", "f2")])  # fmt: skip
def test_tiles_of_narrow_products(name, dtype):
    """As many vectors as C has columns for, and results as of wide ones."""
    facts_ = plan.Facts(-4, 4, False)
    found, _ = product.choose(
        sm.semirings[name], np.dtype(dtype), facts_, facts_, None, 9, product.PLAIN, False
    )
    target = compiler.host_target()
    wide, narrow = (product_code.tile_shape(found, target, x) for x in (1 << 30, 1))
    assert narrow.vectors == 1
    assert narrow.mr >= wide.mr
    assert narrow.mr * narrow.vectors <= 24
    rng = np.random.default_rng(3)
    a = rng.integers(-4, 5, (70, 90)).astype(dtype)
    b = rng.integers(-4, 5, (90, 200)).astype(dtype)
    sm.set_num_threads(2)  # no BLAS
    expected = sm.matmul(a, b, name)
    for n in (1, 2, 8, 16, 17, 40, 64):
        np.testing.assert_array_equal(
            sm.matmul(a, np.ascontiguousarray(b[:, :n]), name), expected[:, :n]
        )


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "i8"])
def test_tiles_of_few_rows(dtype):
    """Lower and wider ones, and results as of many rows."""
    facts_ = plan.Facts(-4, 4, False)
    given = sm.semirings["min_plus"], np.dtype(dtype), facts_, facts_, None, 9, product.PLAIN, False
    shapes = [product.choose(*given, 200, few)[1].shape for few in (False, True)]
    assert (shapes[1].mr < shapes[0].mr) == (dtype != "i2")
    assert shapes[1].nr >= shapes[0].nr
    rng = np.random.default_rng(3)
    a = rng.integers(-4, 5, (70, 90)).astype(dtype)
    b = rng.integers(-4, 5, (90, 1009)).astype(dtype)
    expected, args = sm.matmul(a, b, "min_plus", return_arg=True)
    for m in (1, 4, 5, 8, 9):
        for n in (1, 31, 1009):
            rows, args_of_rows = sm.matmul(a[:m], b[:, :n], "min_plus", return_arg=True)
            np.testing.assert_array_equal(rows, expected[:m, :n])
            np.testing.assert_array_equal(args_of_rows, args[:m, :n])
            np.testing.assert_array_equal(sm.matmul(a[:m], b[:, :n], "min_plus"), rows)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", ["min_plus", "max_plus", "min_max", "max_min"])
@pytest.mark.parametrize("form", [False, True])
def test_both_forms_of_a_product_are_exact(form, name, dtype, monkeypatch):
    """Whichever is faster here: multiply-adds or additions, keys or floats; 0 and -0 are equal."""
    monkeypatch.setattr(tuning, "calibration", lambda: {"fma": form, "keys": form})
    for cache in (tuning.tuned, product.choose):
        cache.cache_clear()
    rng = np.random.default_rng(0)
    worst = -np.inf if name.startswith("max") else np.inf
    values = np.array([worst, -3, -1e-30, -0.0, 0.0, 2, 1e30], dtype)
    a, b = rng.choice(values, (37, 65)), rng.choice(values, (65, 41))
    terms = {"plus": np.add, "max": np.maximum, "min": np.minimum}[name[4:]](a[:, :, None], b)
    expected = (terms.max if name.startswith("max") else terms.min)(axis=1)
    first = (terms == expected[:, np.newaxis]).argmax(axis=1)
    try:
        for _ in range(3):
            np.testing.assert_array_equal(sm.matmul(a, b, name), expected)
        found, k = sm.matmul(a, b, name, return_arg=True)
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(k, first)
    finally:
        for cache in (tuning.tuned, product.choose):
            cache.cache_clear()


def test_calibration_answers_for_both_forms():
    found = tuning.calibration()
    assert set(found) == {"fma", "keys"}
    assert all(type(x) is bool for x in found.values())
