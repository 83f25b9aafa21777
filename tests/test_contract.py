"""The contract of an engine is enough: every algorithm runs on one of NumPy that has nothing else.

The type checker holds the two engines to the protocol; here a third, ``plain_engine``, takes the
place of the CPU's, and the results are those of the CPU.
"""

import inspect

import numpy as np
import plain_engine
import pytest
from numpy.testing import assert_array_equal

import semiring_mm as sm
from semiring_mm.arrays import Call
from semiring_mm.cpu import engine as cpu
from semiring_mm.engine import Engine
from semiring_mm.gpu import engine as gpu

inf = np.inf
RNG = np.random.default_rng(11)
A, B, C = (RNG.integers(0, 9, s) for s in ((13, 9), (9, 11), (13, 11)))
SQUARE = RNG.integers(1, 10_000, (21, 21)).astype("f8")  # hardly ever two shortest paths
GRAPH = np.where(RNG.random((21, 21)) < 0.2, SQUARE, inf)
PAIRS = [
    ("plus_times", "f8"), ("plus_times", "i4"), ("min_plus", "f4"), ("min_plus", "i2"),
    ("max_min", "f4"), ("max_times", "f8"), ("lor_land", "?"), ("any_pair", "i4"),
]  # fmt: skip


def on_plain(patch):
    """Calls with device="cpu" run on the plain engine, and on nothing else."""
    patch.setattr(Call, "engine", plain_engine)
    for verb in (
        "product", "gemv", "csr_product", "dia_product", "closure_block", "best_outside",
        "between", "towards", "symmetric", "pack_bits", "product_bits", "reduce_bits",
    ):  # fmt: skip
        patch.setattr(cpu, verb, None)


def both(call, *args, **options):
    """The results of the CPU engine and of the plain one are the same."""
    options["device"] = "cpu"
    expected = call(*args, **options)
    with pytest.MonkeyPatch.context() as patch:
        on_plain(patch)
        result = call(*args, **options)
    results = [x if isinstance(x, tuple) else (x,) for x in (result, expected)]
    for x, y in zip(*results, strict=True):
        assert x.dtype == y.dtype
        assert_array_equal(x, y)


def members():
    return [name for name in (*Engine.__annotations__, *vars(Engine)) if not name.startswith("_")]


@pytest.mark.parametrize("engine", [cpu, gpu, plain_engine], ids=["cpu", "gpu", "plain"])
def test_every_engine_has_every_member_with_the_same_parameters(engine):
    for name in members():
        if name == "xp" and engine is gpu:  # of the device, which may be absent
            continue
        member, declared = getattr(engine, name), getattr(Engine, name, None)
        if callable(member) and callable(declared):
            wanted = list(inspect.signature(declared).parameters)[1:]
            assert list(inspect.signature(member).parameters)[: len(wanted)] == wanted, name


@pytest.mark.parametrize(("name", "dtype"), PAIRS)
def test_products(name, dtype):
    a, b, c = (x.astype(dtype) for x in (A, B, C))
    both(sm.matmul, a, b, name)
    both(sm.matmul, np.stack([a, a | a if dtype == "?" else a + a]), b, name)
    both(sm.matmul, a[3], b, name)
    for alpha, beta in [(True, True)] if dtype == "?" else [(None, 2), (3, 2)]:
        both(sm.gemm, alpha, a, b, semiring=name)
        both(sm.gemm, alpha, a, b, beta, c, semiring=name)
        both(sm.gemm, alpha, a[:, :0], b[:0], beta, c, semiring=name)
        both(sm.gemv, alpha, a, b[:, 2], beta, c[:, 0], semiring=name)
    if sm.semirings[name].selective:
        both(sm.matmul, a, b, name, return_arg=True)


@pytest.mark.parametrize("name", ["plus_times", "max_times", "any_pair"])
def test_sparse_operands(name):
    sparse = pytest.importorskip("scipy.sparse")
    dense = np.where(RNG.random((13, 9)) < 0.3, A, 0) * 1.0
    for form in (sparse.csr_array, sparse.dia_array):
        both(sm.matmul, form(dense), B * 1.0, name)
        both(sm.gemv, 2, form(dense), C[:, 0] * 1.0, 3, B[:, 0] * 1.0, trans=True, semiring=name)


def test_algorithms_on_products():
    both(sm.matrix_power, SQUARE, 5, "min_plus")
    both(sm.einsum, "ij,jk,kl->il", SQUARE, SQUARE, SQUARE, semiring="min_plus", optimize=False)


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


def test_closures():
    longest = np.where(inf > GRAPH, -GRAPH, -inf)
    both(sm.closure, longest, "max_min")
    both(sm.closure, longest, "max_plus")
    both(sm.closure, GRAPH, "min_max")
    both(sm.closure, inf > GRAPH, "lor_land")


def test_packed_bits():
    bits = [sm.BitMatrix.pack(x > 4) for x in (A, B)]
    both(lambda **k: sm.matmul(*bits, "xor_land", **k).bits)
    square = RNG.random((30, 30)) < 0.5
    both(lambda **k: sm.gf2.row_reduce(square, **k))
    both(lambda **k: sm.gf2.null_space(square[:20], **k))


@pytest.mark.parametrize("use", [lambda _: None, on_plain], ids=["cpu", "plain"])
def test_a_negative_cycle_is_named(use, monkeypatch):
    graph = GRAPH.copy()
    graph[2, 5], graph[5, 2] = 1, -3
    use(monkeypatch)
    with pytest.raises(ValueError, match="cycle"):
        sm.apsp(graph, device="cpu")
