"""The contract of an engine is enough: every algorithm runs on one of NumPy that has nothing else.

The type checker holds the two engines to the protocol; here a third, ``plain_engine``, takes the
place of the CPU's, and the results are those of the CPU.
"""

import contextlib
import inspect

import numpy as np
import plain_engine
import pytest
from engines import on_plain
from numpy.testing import assert_allclose, assert_array_equal

import semiring_mm as sm
from semiring_mm import engine, gradients, neighbours
from semiring_mm.cpu import engine as cpu
from semiring_mm.engine import Engine
from semiring_mm.gpu import engine as gpu

inf = np.inf
RNG = np.random.default_rng(11)
A, B, C = (RNG.integers(0, 9, s) for s in ((13, 9), (9, 11), (13, 11)))
SQUARE = RNG.integers(1, 10_000, (21, 21)).astype("f8")  # hardly ever two shortest paths
GRAPH = np.where(RNG.random((21, 21)) < 0.2, SQUARE, inf)


def both(call, *args, near=assert_array_equal, **options):
    """The results of the CPU engine and of the plain one are the same, or near."""
    options["device"] = "cpu"
    expected = call(*args, **options)
    with on_plain():
        result = call(*args, **options)
    results = [x if isinstance(x, tuple) else (x,) for x in (result, expected)]
    for x, y in zip(*results, strict=True):
        assert np.asarray(x).dtype == np.asarray(y).dtype
        near(x, y)


def test_engines_have_names():
    assert list(engine.registered()) == ["cpu", "cuda"]
    assert engine.named("cpu") is engine.of(A) is cpu
    with on_plain():
        assert engine.named("cpu") is engine.of(A) is plain_engine
    assert engine.loaded("cpu") is None  # until it is needed
    assert engine.named("cpu") is engine.loaded("cpu") is cpu


def members():
    return [name for name in (*Engine.__annotations__, *vars(Engine)) if not name.startswith("_")]


@pytest.mark.parametrize("here", [cpu, gpu, plain_engine], ids=["cpu", "gpu", "plain"])
def test_every_engine_has_every_member_with_the_same_parameters(here):
    for name in members():
        if name == "xp" and here is gpu:  # of the device, which may be absent
            continue
        member, declared = getattr(here, name), getattr(Engine, name, None)
        builtin = inspect.isbuiltin(member)  # NumPy's have no signature before 2.4
        if callable(member) and callable(declared) and not builtin:
            wanted = list(inspect.signature(declared).parameters)[1:]
            assert list(inspect.signature(member).parameters)[: len(wanted)] == wanted, name


@pytest.mark.parametrize("name", ["plus_times", "max_times", "any_pair"])
def test_sparse_operands(name):
    sparse = pytest.importorskip("scipy.sparse")
    dense = np.where(RNG.random((13, 9)) < 0.3, A, 0) * 1.0
    for form in (sparse.csr_array, sparse.dia_array):
        both(sm.matmul, form(dense), B * 1.0, name)
        both(sm.gemv, 2, form(dense), C[:, 0] * 1.0, 3, B[:, 0] * 1.0, trans=True, semiring=name)


@pytest.mark.parametrize("method", ["floyd_warshall", "squaring"])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4"])
def test_shortest_paths(method, dtype):
    zero = sm.semirings["min_plus"].identities(dtype)[0]
    graph = np.where(inf > GRAPH, SQUARE.astype(dtype), zero)
    both(sm.apsp, graph, method=method)
    both(sm.apsp, graph, method=method, return_predecessors=True)
    both(sm.apsp, graph, method=method, directed=False)
    both(sm.apsp, graph, sources=[3, 7])
    both(sm.apsp, graph, max_hops=3)
    both(sm.apsp, np.stack([graph, graph.T]))


def test_packed_bits():
    bits = [sm.BitMatrix.pack(x > 4) for x in (A, B)]
    both(lambda **k: sm.matmul(*bits, "xor_land", **k).bits)
    square = RNG.random((30, 30)) < 0.5
    both(lambda **k: sm.gf2.row_reduce(square, **k))
    both(lambda **k: sm.gf2.null_space(square[:20], **k))


@pytest.mark.parametrize("n", [20, 21])
@pytest.mark.parametrize("use", [contextlib.nullcontext, on_plain], ids=["cpu", "plain"])
def test_a_negative_cycle_is_named(use, n):
    graph = GRAPH[:n, :n].copy()
    graph[2, 5], graph[5, 2] = 1, -3
    with use(), pytest.raises(ValueError, match="cycle"):
        sm.apsp(graph, device="cpu")


def near(x, y):
    assert_allclose(x, y, 1e-12, 1e-12)


def test_edit_distances_of_all_pairs():
    both(sm.alignment.cdist, ["abc", "", "bcd"], ["ab", "d"])


@pytest.mark.parametrize("free_ends", ["x", ["y_start", "x_end"]])
def test_alignments_with_free_ends(free_ends):
    for verb in (sm.alignment.edit_distance, sm.alignment.needleman_wunsch):
        for band in (None, 2):
            both(verb, ["abcab", "", "cc"], ["ab", "d", "aacca"], free_ends=free_ends, band=band)


def test_alignments_tell_their_progress():
    x, y = ([RNG.integers(0, 3, n) for n in sizes] for sizes in ((9, 5), (7, 0)))
    told = []
    both(sm.alignment.edit_distance, x, y, progress=lambda *given: told.append(given))
    assert told.count((0, 63)) == told.count((63, 63)) == 2


POINTS = RNG.integers(-9, 9, (12, 9)) * 1.0, RNG.integers(-9, 9, (200, 9)) * 1.0


@pytest.mark.parametrize("metric", ["euclidean", "cityblock", "hamming", "cosine", "braycurtis"])
def test_distances(metric, monkeypatch):
    both(sm.neighbours.cdist, *POINTS, metric, near=near)
    both(
        sm.neighbours.radius_count,
        *POINTS,
        10 if metric in ("euclidean", "cityblock") else 0.7,
        metric,
    )
    for smallest in (neighbours._ALONE, 0):  # calls that one thread does at once, and others
        monkeypatch.setattr(neighbours, "_ALONE", smallest)
        both(sm.neighbours.knn, *POINTS, 3, metric, near=near)
        both(sm.neighbours.argbest, *POINTS, metric, near=near)
    monkeypatch.setattr(neighbours, "_SIEVED", 0)
    both(sm.neighbours.knn, *POINTS, 3, metric, near=near)


def test_gradients_over_log_plus():
    a, b, g = A[:, :5] / 7, B[:5] / 5, C * 1.0
    log = sm.semirings["log_plus"]
    c = sm.matmul(a, b, log)
    both(lambda device: gradients.summed(log, g, a, b, c, (True, True)), near=near)


def test_predecessors_of_a_stack():
    stack = np.stack([GRAPH[:7, :7], GRAPH[7:14, 7:14]])
    both(sm.apsp, stack)
    both(sm.apsp, stack, return_predecessors=True)
