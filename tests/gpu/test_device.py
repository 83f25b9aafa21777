"""The verbs and graphs on device arrays: what they refuse, and the GPU engine under them.

Each test of the engine runs twice: on the host, where :class:`host_device.HostDevice` compiles the
kernels with g++ and NumPy's arrays stand for those of a device, and on a CUDA device if one is
there.
"""

import contextlib

import host_device
import numpy as np
import pytest
import reference
from engines import HOST, Host, for_a_device, on_host
from numpy.testing import assert_array_equal
from reference import BFLOAT16
from walks import check_paths

import semiring_mm as sm
from semiring_mm import arrays
from semiring_mm.gpu import device, engine
from semiring_mm.tiled import solve

inf = np.inf
DTYPES = [np.dtype(x) for x in ("f4", "f8", "f2", "i4", "u1")] + [BFLOAT16]


def rng(seed=0):
    return np.random.default_rng(seed)


def graph(n, dtype=np.float32, *, edges=0.3, least=1, most=9, seed=0):
    random = rng(seed)
    w = random.integers(least, most, (n, n)).astype(dtype)
    w[random.random((n, n)) > edges] = sm.semirings["min_plus"].identities(dtype)[0]
    return w


def shortest(w):
    """Floyd and Warshall's algorithm, in float64."""
    d = reference.widen("min_plus", w).astype(np.float64)
    np.fill_diagonal(d, np.minimum(d.diagonal(), 0))
    for k in range(len(d)):
        d = np.minimum(d, d[:, k, None] + d[k])
    return d


def check(found, expected, dtype):
    assert found.dtype == dtype
    assert_array_equal(reference.widen("min_plus", found).astype(np.float64), expected)


def check_trees(w, d, p):
    check_paths(w, d, p, zero=sm.semirings["min_plus"].identities(w.dtype)[0])


# --- products -----------------------------------------------------------------------------------


def test_the_rest_of_the_verbs(there):
    a, b, c = (rng(2).integers(0, 9, s).astype("f4") for s in ((2, 6, 8), (8, 5), (6, 5)))
    x, y, z = map(there.put, (a, b, c))
    sums = (a[:, :, :, None] + b).min(2)
    assert_array_equal(there.get(sm.matmul(x, y, "min_plus")), sums)
    found, k = sm.matmul(x[0], y, "min_plus", return_arg=True)
    assert isinstance(k, there.kind)
    assert_array_equal(there.get(k), (a[0][:, :, None] + b).argmin(1))
    out = there.put(np.zeros_like(c))
    assert sm.matmul(x[0], y, "min_plus", out=out) is out
    assert_array_equal(there.get(out), there.get(found))
    assert sm.gemm(2, x[0], y, 1, z, semiring="min_plus", out=z) is z
    assert_array_equal(there.get(z), np.minimum(sums[0] + 2, c + 1))
    square = there.put(a[0, :, :6].copy())
    before = there.get(square).copy()
    sm.matmul(square, square, "min_plus", out=square)
    assert_array_equal(there.get(square), (before[:, :, None] + before).min(1))
    v = sm.gemv(3, y, there.put(c[0]), semiring="min_plus")
    assert_array_equal(there.get(v), (b + c[0]).min(1) + 3)
    v = sm.gemv(None, y, there.put(b[:, 0].copy()), 1, there.put(c[0]), trans=True)
    assert_array_equal(there.get(v), b.T @ b[:, 0] + c[0])
    assert_array_equal(there.get(sm.matmul(y[:, :0], y[:0], "min_plus")), np.full((8, 5), inf))
    power = sm.matrix_power(there.put(np.array([[1, 1], [1, 0]])), 10)
    assert_array_equal(there.get(power), [[89, 55], [55, 34]])
    assert_array_equal(there.get(sm.matrix_power(x[:, :, :6], 0)), np.array([np.eye(6)] * 2))
    with pytest.raises(OverflowError, match="does not fit int8"):
        sm.matmul(*[there.put(np.full((4, 4), 9, "i1"))] * 2)
    with pytest.raises(ValueError, match=r"out has shape \(2, 6, 8\)"):
        sm.matmul(x[0], y, out=x)


def test_truth_values(there):
    a = rng(3).random((40, 70)) < 0.1
    found = sm.matmul(there.put(a), there.put(a.T.copy()), "lor_land")
    assert_array_equal(there.get(found), a.astype(int) @ a.T > 0)
    w = a[:, :40]
    reach = np.eye(40, dtype=bool) | w
    for _ in range(6):
        reach = reach.astype(int) @ reach > 0
    assert_array_equal(there.get(sm.closure(there.put(w), "lor_land")), reach)


# --- graphs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_shortest_paths(there, dtype):
    w = graph(70, dtype)
    expected = shortest(w)
    d, p = sm.apsp(there.put(w), return_predecessors=True)
    assert isinstance(d, there.kind)
    check(there.get(d), expected, dtype)
    check_trees(w, there.get(d), there.get(p))
    assert sm.reconstruct_path(p, 0, 0) == [0]
    check(there.get(sm.apsp(there.put(w))), expected, dtype)


def test_methods_and_options(there):
    w = graph(70)
    x, expected = there.put(w), shortest(w)
    check(there.get(sm.apsp(x, method="squaring")), expected, w.dtype)
    check(there.get(sm.apsp(x, sources=[5, 60])), expected[[5, 60]], w.dtype)
    _, p = sm.apsp(x, sources=[5, 60], return_predecessors=True)
    assert [sm.reconstruct_path(p, i, j)[0] for i, j in ((5, 1), (60, 2))] == [5, 60]
    legs = np.minimum(w, np.where(np.eye(70, dtype=bool), 0, inf))
    two = (legs[:, :, None] + legs).min(1)
    check(there.get(sm.apsp(x, max_hops=2)), two, w.dtype)
    both = np.minimum(w, w.T)
    check(there.get(sm.apsp(x, directed=False)), shortest(both), w.dtype)
    check(there.get(sm.apsp(there.put(both))), shortest(both), w.dtype)
    assert_array_equal(there.get(x), w)
    assert sm.apsp(x, overwrite=True) is x
    check(there.get(x), expected, w.dtype)
    widest = sm.closure(there.put(np.where(np.isinf(w), -inf, w)), "max_min")
    best = np.where(np.isinf(w), -inf, w).astype(float)
    np.fill_diagonal(best, inf)
    for k in range(70):
        best = np.maximum(best, np.minimum(best[:, k, None], best[k]))
    assert_array_equal(there.get(widest), best)
    with pytest.raises(ValueError, match="method='sparse' takes a matrix on the host"):
        sm.apsp(x, method="sparse")


def test_half_of_a_symmetric_matrix(there):
    """Several base blocks, so that what is below the diagonal is not computed."""
    w = graph(200, edges=0.05)
    both = np.minimum(w, w.T)
    check(there.get(sm.apsp(there.put(both))), shortest(both), w.dtype)


@pytest.mark.parametrize("dtype", ["?", "f2", "i4", "f8"])
@pytest.mark.parametrize("n", [1, 31, 32, 70])
def test_mirror(there, n, dtype):
    x = rng(n).integers(0, 99, (n + 3, n + 5)).astype(dtype)
    y = there.put(x)
    engine.mirror(y[1 : n + 1, 2 : n + 2])
    inner = x[1 : n + 1, 2 : n + 2]
    inner[...] = np.triu(inner) + np.triu(inner, 1).T
    assert_array_equal(there.get(y), x)


@pytest.mark.parametrize("dtype", ["?", "f2", "i4", "f8"])
@pytest.mark.parametrize("shape", [(1, 1), (33, 70), (3, 40, 5), (65,), (2, 3, 4, 5)])
def test_copies_between_any_layouts(there, shape, dtype):
    x = rng(7).integers(0, 99, shape).astype(dtype)
    gaps = tuple(slice(None, None, -2) for _ in shape)
    spread = np.zeros([2 * n for n in shape], dtype)
    spread[gaps] = x
    for given in (x, np.asfortranarray(x), spread):
        for to in (np.zeros_like(x), np.zeros(shape, dtype, "F"), np.zeros_like(spread)):
            source, result = there.put(given), there.put(to)
            views = [v if v.shape == x.shape else v[gaps] for v in (source, result, to)]
            engine.copy(*views[:2])
            views[2][...] = x
            assert_array_equal(there.get(result), to)


@pytest.mark.parametrize("dtype", ["f4", "i4"])
def test_negative_weights_and_cycles(there, dtype):
    w = graph(150, np.dtype(dtype), edges=0.05)
    h = rng(4).integers(0, 30, 150)
    there_is = w < sm.semirings["min_plus"].identities(w.dtype)[0]
    w[there_is] += (h[:, None] - h)[there_is].astype(w.dtype)
    assert (w < 0).any()
    check(there.get(sm.apsp(there.put(w))), shortest(w), w.dtype)
    w[3, 140], w[140, 3] = 1, -2
    with pytest.raises(sm.NegativeCycleError) as caught:
        sm.apsp(there.put(w))
    cycle = caught.value.cycle
    assert sum(w[i, j] for i, j in zip(cycle, [*cycle[1:], cycle[0]], strict=True)) < 0


def test_what_rounding_makes_of_a_cycle_of_weight_zero(there):
    w = np.full((3, 3), inf)
    w[0, 1], w[1, 2], w[2, 0] = 0.7, 0.1, -0.8
    assert 0.7 + 0.1 - 0.8 < 0
    d = there.get(sm.apsp(there.put(w)))
    np.testing.assert_allclose(d, [[0, 0.7, 0.8], [-0.7, 0, 0.1], [-0.8, -0.1, 0]], atol=1e-12)
    many = sm.apsp(there.put(np.array([np.abs(w), w])))
    np.testing.assert_allclose(there.get(many)[1], d, atol=1e-12)


def test_ties_make_no_rings(there):
    w = np.where(rng(5).random((70, 70)) < 0.1, 0.0, inf)
    d, p = sm.apsp(there.put(w), return_predecessors=True)
    check_trees(w, there.get(d), there.get(p))


@pytest.mark.parametrize("dtype", ["f4", "i2"])
def test_many_graphs(there, dtype):
    many = np.array([graph(20, np.dtype(dtype), seed=i) for i in range(5)])
    d, p = sm.apsp(there.put(many), return_predecessors=True)
    for w, di, pi in zip(many, there.get(d), there.get(p), strict=True):
        check(di, shortest(w), w.dtype)
        check_trees(w, di, pi)
    many[2, 3, 4], many[2, 4, 3] = 1, -2
    with pytest.raises(sm.NegativeCycleError):
        sm.apsp(there.put(many))


def test_weights_refused(there):
    w = graph(10)
    w[3, 4] = np.nan
    with pytest.raises(ValueError, match=r"at \[3, 4\] is NaN"):
        sm.apsp(there.put(w))
    w[3, 4] = -inf
    with pytest.raises(ValueError, match=r"at \[3, 4\] is -inf"):
        sm.apsp(there.put(w))
    with pytest.raises(ValueError, match=r"the weight at \[0, 0\] is 2, and a cycle"):
        sm.closure(there.put(np.full((3, 3), 2.0)), "max_times")


# --- launches -----------------------------------------------------------------------------------

LAUNCHES = {
    "product": (1, lambda x: sm.matmul(x(70, 80), x(80, 90), "min_plus")),
    "argument": (2, lambda x: sm.matmul(x(70, 80), x(80, 90), "min_plus", return_arg=True)),
    "products": (1, lambda x: sm.matmul(x(20, 9, 9), x(20, 9, 9), "min_plus")),
    "vector": (1, lambda x: sm.gemv(None, x(70, 80), x(80), semiring="min_plus")),
    "paths": (2, lambda x: sm.apsp(x(60, 60))),
    "predecessors": (2, lambda x: sm.apsp(x(60, 60), return_predecessors=True)),
    "many graphs": (2, lambda x: sm.apsp(x(20, 30, 30))),
    "alignments": (1, lambda x: sm.alignment.dtw([x(9), x(7)], [x(8), x(8)])),
    "viterbi": (2, lambda x: sm.sequences.viterbi(x(5, 20, 9), x(9, 9))),
    "marginals": (2, lambda x: sm.sequences.marginals(x(5, 20, 9), x(9, 9))),
    "chain": (1, lambda x: sm.chain(x(5, 20, 9, 9), semiring="min_plus")),
    "distances": (1, lambda x: sm.neighbours.cdist(x(50, 5), x(40, 5))),
    "neighbours": (3, lambda x: sm.neighbours.knn(x(50, 5), x(40, 5), 3)),
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_a_call_that_comes_again_compiles_nothing_and_launches_little(name, monkeypatch):
    for_a_device(monkeypatch)
    most, call = LAUNCHES[name]
    draw = lambda *shape: Host.put(rng().random(shape).astype("f4"))  # noqa: E731
    call(draw)
    monkeypatch.setattr(host_device, "Kernel", None)
    HOST.launched.clear()
    call(draw)
    assert 0 < len(HOST.launched) <= most


# --- from the host and back ---------------------------------------------------------------------


@pytest.mark.usefixtures("moves")
def test_host_arrays_are_moved_and_come_back():
    a = rng(6).integers(0, 9, (6, 6)).astype(">f4")
    expected = (a[:, :, None] + a).min(1)
    found = sm.matmul(a, a, "min_plus", device="cuda")
    assert type(found) is np.ndarray
    assert_array_equal(found, expected)
    out = np.zeros((6, 6), "f4")
    assert sm.matmul(a, a, "min_plus", device="cuda", out=out) is out
    assert_array_equal(out, expected)
    assert sm.gemm(None, a, a, 1, out, semiring="min_plus", out=out, device="cuda") is out
    assert_array_equal(out, np.minimum(expected, expected + 1))
    assert type(sm.matmul(a[0], a[0], device="cuda")) is np.float32
    w = graph(30)
    d = w.copy()
    assert sm.apsp(d, overwrite=True, device="cuda") is d
    check(d, shortest(w), w.dtype)
    d, p = sm.apsp(w.tolist(), return_predecessors=True, device="cuda")
    check_trees(w, d, p)
    with pytest.raises(ValueError, match="out is read-only"):
        sm.matmul(a, a, out=np.broadcast_to(np.float32(0), (6, 6)), device="cuda")


@pytest.mark.usefixtures("moves")
def test_edges_are_moved_as_a_matrix():
    nx = pytest.importorskip("networkx")
    g = nx.DiGraph()
    g.add_weighted_edges_from([("a", "b", 3), ("b", "c", 1), ("c", "a", 2)])
    assert_array_equal(sm.apsp(g, device="cuda"), [[0, 3, 4], [3, 0, 1], [2, 5, 0]])


def test_big_dense_graphs_choose_a_device(monkeypatch):
    from semiring_mm.graphs import choice

    on_host(monkeypatch)
    seen = []
    monkeypatch.setattr(engine, "on", lambda *_: seen.append(True) or contextlib.ExitStack())
    monkeypatch.setattr(choice, "GPU_FROM", 60)
    w = graph(60, edges=0.9)
    check(sm.apsp(w), shortest(w), w.dtype)
    assert seen
    seen.clear()
    sm.apsp(w, device="cpu")
    sm.apsp(w[:50, :50])
    sm.apsp(w, sources=[3])
    assert not seen
    monkeypatch.setattr(engine, "free_memory", lambda: 10_000)
    streamed = []  # what the device cannot hold streams through it
    monkeypatch.setattr(solve, "close_tiles", lambda s, graph, where, **_: streamed.append(where))
    sm.apsp(w)
    sm.apsp(w, device="cuda")
    assert [x.device for x in streamed] == ["cuda", "cuda"]
    sm.apsp(w, max_hops=2)  # tiles have no way for these
    assert len(streamed) == 2


# --- refusals -----------------------------------------------------------------------------------


class Far:
    """An array of another library."""

    def __init__(self, kind, index=0):
        self.place = kind, index

    def __dlpack_device__(self):
        return self.place


def test_refusals(monkeypatch):
    monkeypatch.setattr(device, "why_not", lambda: "CuPy is not installed; use pip install ...")
    two = np.ones((2, 2), "f4")
    for call in (
        lambda: sm.matmul(two, two, device="cuda"),
        lambda: sm.matmul(two, two, device="cuda:1"),
        lambda: sm.apsp(two, device="cuda"),
        lambda: sm.matmul(Far(2), Far(2)),
    ):
        with pytest.raises(ValueError, match="device='cuda': CuPy is not installed"):
            call()
    with pytest.raises(ValueError, match="device must be None, 'cpu', 'cuda' or 'cuda:N', got 'g"):
        sm.gemv(1, two, two[0], device="gpu")
    with pytest.raises(ValueError, match="device='cpu', but a lives on CUDA device 0: leave"):
        sm.matmul(Far(2), Far(2), device="cpu")
    with pytest.raises(ValueError, match="device='cuda:1', but a lives on CUDA device 0"):
        sm.matmul(Far(2), Far(2), device="cuda:1")
    with pytest.raises(TypeError, match=r"a lives on CUDA device 0 and b on the host: .*asarray"):
        sm.matmul(Far(2), two)
    with pytest.raises(TypeError, match=r"a lives on the host and out on CUDA device 1"):
        sm.matmul(two, two, out=Far(2, 1))
    with pytest.raises(TypeError, match=r"a lives on a device that is neither .* type 10"):
        sm.matmul(Far(10), two)
    assert_array_equal(sm.matmul(two, two, device="cpu"), two @ two)


def test_lists_go_where_the_arrays_are(there, monkeypatch):
    """Also in a call that is made again with another list."""
    own = arrays.where
    monkeypatch.setattr(
        arrays, "where", lambda x, name: pytest.fail(name) if type(x) is list else own(x, name)
    )
    a = np.arange(6, dtype="f4").reshape(2, 3)
    for b in ([[1], [2], [4]], [[0], [0], [1]]):
        found = there.get(sm.matmul(there.put(a), b))
        assert_array_equal(found, a @ np.array(b))
    weighted = sm.neighbours.cdist(there.put(a), [[0, 0, 0]], "l1", w=(1, 2, 0))
    assert_array_equal(there.get(weighted), a @ [[1], [2], [0]])


def test_without_a_device_show_config_says_why(monkeypatch, capsys):
    monkeypatch.setattr(device, "why_not", lambda: "CuPy is not installed")
    sm.show_config()
    assert "gpu engine  no: CuPy is not installed" in capsys.readouterr().out


def test_the_reasons_name_what_to_install(monkeypatch):
    device.why_not.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    assert 'python -m pip install "semiring-mm[cuda13]"' in device.why_not()
    device.why_not.cache_clear()


# --- other libraries ----------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_torch(where):
    torch = pytest.importorskip("torch")
    if where == "cuda" and (reason := device.why_not()):
        pytest.skip(reason)
    a = torch.arange(12, dtype=torch.float32).reshape(3, 4).to(where)
    for kind in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32):
        x = a.to(kind)
        found = sm.matmul(x, x.T, "min_plus")
        assert (found.dtype, found.device) == (kind, x.device)
        expected = (x.float()[:, None] + x.float()).amin(2)
        assert torch.equal(found.float(), expected)
    mask = a > 4
    assert torch.equal(sm.matmul(mask, mask.T, "lor_land"), mask.float() @ mask.float().T > 0)
    out = torch.empty(3, 3, device=where)
    assert sm.matmul(a, a.T, "min_plus", out=out) is out
    assert torch.equal(out, (a[:, None] + a).amin(2))
    w = torch.tensor([[0, 3, inf], [inf, 0, 1], [2, inf, 0]], device=where)
    d, p = sm.apsp(w, return_predecessors=True)
    assert d.tolist() == [[0, 3, 4], [3, 0, 1], [2, 5, 0]]
    assert sm.reconstruct_path(p, 0, 2) == [0, 1, 2]
    assert sm.apsp(w, overwrite=True) is w
    assert w.tolist() == d.tolist()
    assert torch.equal(sm.sgemm(1.0, a, a.T), a @ a.T)
    with pytest.raises(TypeError, match=r"semiring_mm.torch has .* give others a\.detach\(\)"):
        sm.matmul(a.clone().requires_grad_(), a.T)
    if where == "cuda":
        sm.matmul(big := torch.rand(2000, 2000, device=where), big, "max_min")  # compiles
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)  # cycles, until which the operands are not there
            big = torch.rand(2000, 2000, device=where)
            found = sm.matmul(big, big, "max_min")
            again = torch.minimum(big[:1, :, None], big[None]).amax(1)
        stream.synchronize()
        assert torch.equal(found[:1], again)
        with pytest.raises(TypeError, match="a lives on CUDA device 0 and b on the host"):
            sm.matmul(a, a.T.cpu())


@pytest.mark.parametrize("where", ["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def test_jax(where):
    jax = pytest.importorskip("jax")
    if where == "gpu" and (reason := device.why_not()):
        pytest.skip(reason)
    home = jax.devices(where)[0]
    a = jax.device_put(np.arange(12, dtype=np.float32).reshape(3, 4), home)
    for kind in ("float32", "float16", "bfloat16", "int32"):
        x = a.astype(kind)
        found = sm.matmul(x, x.T, "min_plus")
        assert isinstance(found, jax.Array)
        assert (found.dtype, found.devices()) == (x.dtype, {home})
        wide = np.asarray(x, np.float32)
        assert_array_equal(np.asarray(found, np.float32), (wide[:, None] + wide).min(2))
    mask = a > 4
    found = sm.matmul(mask, mask.T, "lor_land")
    assert_array_equal(np.asarray(found), np.asarray(mask, int) @ np.asarray(mask, int).T > 0)
    w = jax.device_put(np.array([[0, 3, inf], [inf, 0, 1], [2, inf, 0]], np.float32), home)
    assert np.asarray(sm.apsp(w)).tolist() == [[0, 3, 4], [3, 0, 1], [2, 5, 0]]
    with pytest.raises(TypeError, match="JAX arrays cannot be written to"):
        sm.apsp(w, overwrite=True)
    with pytest.raises(TypeError, match=r"traced by JAX .* semiring_mm\.jax"):
        jax.jit(lambda x: sm.matmul(x, x.T))(a)


def test_labels_come_back_from_a_device(moves):
    roads = {"a": {"b": 3, "c": 8}, "b": {"c": 1}}
    d, p = sm.apsp(roads, device="cuda", return_predecessors=True)
    assert_array_equal(d, [[0, 3, 4], [inf, 0, 1], [inf, inf, 0]])
    assert d.path("a", "c") == sm.reconstruct_path(p, "a", "c") == [*"abc"]


def test_distances_by_the_kernels_of_products(moves):
    x, y = rng(1).normal(size=(2, 9, 5)).astype(np.float32)
    for metric in ("euclidean", "chebyshev"):
        for w in (None, np.array([1.0, 0, 2, 2, 1])):
            found = sm.neighbours.cdist(x, y, metric, w=w, device="cuda")
            np.testing.assert_allclose(found, sm.neighbours.cdist(x, y, metric, w=w), 1e-6)
    for metric in ("cosine", "braycurtis", "hamming"):
        found = sm.neighbours.cdist(x, y, metric, device="cuda")
        np.testing.assert_allclose(found, sm.neighbours.cdist(x, y, metric), 1e-5)
    for found, expected in zip(
        sm.neighbours.knn(x, y, 3, device="cuda"), sm.neighbours.knn(x, y, 3), strict=True
    ):
        np.testing.assert_allclose(found, expected, 1e-6)
