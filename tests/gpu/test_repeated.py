"""Repeated calls on a device launch what the first one did, with other addresses; on the host."""

import contextlib
import ctypes
import functools
import math
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from host_device import HostDevice
from numpy.testing import assert_array_equal

import semiring_mm as sm
from semiring_mm import arrays, blas, gradients, sequences
from semiring_mm import bits as packed
from semiring_mm import summation as sums
from semiring_mm.gpu import calls, device, engine, launch, tensor, wide
from semiring_mm.gpu import product as products
from semiring_mm.graphs import apsp as graphs
from semiring_mm.graphs import dense

pytestmark = pytest.mark.usefixtures("gxx")
INF, NAN = np.inf, np.nan
RNG = np.random.default_rng(3)


class On(np.ndarray):
    """An array of CuPy's, as far as this package looks at it."""

    def __new__(cls, shape, dtype):
        return there(np.full(shape, 77, dtype))

    data = property(lambda self: SimpleNamespace(ptr=self.ctypes.data, device_id=0))

    def get(self):
        return np.array(self)


class Memory:
    """Bytes from one of CuPy's pools, which hold anything."""

    def __init__(self, size):
        self._bytes = On(size, np.uint8)
        self._bytes[...] = 255
        self.ptr = self._bytes.ctypes.data


class Runtime:
    """CUDA's functions, done at once; streams are numbers."""

    index, stream, captures = 0, 0, False

    def getDevice(self):
        return self.index

    def streamIsCapturing(self, stream):
        assert stream == self.stream
        return self.captures

    def memsetAsync(self, place, value, size, stream):
        assert stream == self.stream
        ctypes.memset(place, value, size)

    def memcpyAsync(self, to, source, size, kind, stream):
        assert (kind, stream) == (4, self.stream)
        ctypes.memmove(to, source, size)


class Cupy:
    """CuPy: NumPy's functions, but for arrays that are made."""

    ndarray, empty = On, On

    def __init__(self):
        self.cuda = SimpleNamespace(
            runtime=Runtime(), alloc=Memory, malloc_async=Memory,
            get_current_stream=lambda: SimpleNamespace(ptr=self.cuda.runtime.stream),
        )  # fmt: skip

    @staticmethod
    def from_dlpack(x):
        return np.asarray(x).view(On)

    def __getattr__(self, name):
        return getattr(np, name)


def torch_of(torch, runtime):
    """PyTorch, whose tensors on the host count as those of a device."""

    def empty(shape, dtype, device):
        return torch.from_numpy(np.asarray(On(shape, torch.empty(0, dtype=dtype).numpy().dtype)))

    stream = SimpleNamespace(_cuda_getCurrentRawStream=lambda index: runtime.stream)
    return SimpleNamespace(empty=empty, uint8=torch.uint8, _C=stream)


@pytest.fixture
def general(monkeypatch):
    """A list that grows with each call that takes the general way."""
    found, as_semiring = [], blas.as_semiring
    for module in (blas, sums):
        monkeypatch.setattr(module, "as_semiring", lambda x: found.append(x) or as_semiring(x))
    return found


@pytest.fixture(autouse=True)
def host(request, monkeypatch):
    """A device on the host, for arrays of CuPy or, if a test says so, of PyTorch."""
    here = HostDevice()
    here.xp = cupy = Cupy()
    library = getattr(request, "param", "cupy")
    monkeypatch.setattr(device, "current", lambda: here)
    monkeypatch.setattr(arrays, "where", lambda x, name: 0)
    monkeypatch.setattr(arrays, "_library", lambda x, place: library)
    monkeypatch.setattr(device, "why_not", lambda: "")
    monkeypatch.setattr(arrays, "_PLAIN", {type(None)})
    monkeypatch.setattr(engine, "on", lambda *_: contextlib.ExitStack())
    monkeypatch.setattr(products, "_WORTH_A_SCAN", 30**3)
    monkeypatch.setattr(device, "replace_address", replace_address)
    known = {On: calls._Cupy(cupy)}
    if library == "torch":
        torch = pytest.importorskip("torch")
        cupy.cuda.runtime.index = -1  # of tensors on the host
        stream = SimpleNamespace(cuda_stream=0)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda index: stream)
        monkeypatch.setitem(MAKERS, "on", lambda x: torch.from_numpy(np.asarray(there(x))))
        known = {torch.Tensor: calls._Torch(torch_of(torch, cupy.cuda.runtime), cupy)}
    monkeypatch.setattr(calls, "_libraries", known)
    launch.forget()
    yield here
    launch.forget()


def replace_address(tensor_map, place):  # of a host's: its first word
    ctypes.c_int64.from_address(tensor_map).value = place


def kept_calls():
    return [row for row in launch._rows.values() if isinstance(row, calls._Call)]


BOTH = pytest.mark.parametrize("host", ["cupy", "torch"], indirect=True)


def there(x):
    """A copy that begins at a multiple of 256 bytes."""
    copy = unset(x.shape, x.dtype)
    copy[...] = x
    return copy


def unset(shape, dtype):
    """An array that begins at a multiple of 256 bytes, whose pages nobody has touched."""
    size = math.prod(np.atleast_1d(shape)) * np.dtype(dtype).itemsize
    memory = np.empty(size + 256, np.uint8)
    at = -memory.ctypes.data % 256
    return memory[at : at + size].view(dtype).reshape(shape).view(On)


MAKERS = {"on": there}


def on(x):
    """A copy on the device, in the library of the test."""
    return MAKERS["on"](x)


def normal(*shape, dtype="f4", scale=1.0):
    return on((scale * RNG.standard_normal(shape)).astype(dtype))


def positive(*shape):
    return on(RNG.random(shape).astype("f4") + 1)


N = 33
CALLS = {
    "plus_times": (lambda a, b, **k: sm.matmul(a, b, **k), (N, 9), (9, 20)),
    "min_plus": (lambda a, b, **k: sm.matmul(a, b, "min_plus", **k), (N, 9), (9, 20)),
    "a scan": (lambda a, b, **k: sm.matmul(a, b, "min_plus", **k), (N, N), (N, N)),
    "k in parts": (lambda a, b, **k: sm.matmul(a, b, "min_plus", **k), (N, 400), (400, N)),
    "log_plus": (lambda a, b, **k: sm.matmul(a, b, "log_plus", **k), (N, 9), (9, 20)),
    "log_plus, sums of exponentials": (
        lambda a, b, **k: sm.matmul(a, b, "log_plus", **k), (3, 8, 2048), (2048, 5),
    ),
    "a stack": (lambda a, b, **k: sm.matmul(a, b, "max_min", **k), (3, N, 5), (3, 5, 4)),
    "gemm": (
        lambda a, b, c, **k: sm.gemm(2.0, a, b, 0.5, c, trans_a=True, **k), (9, N), (9, 4), (N, 4),
    ),
    "sgemm": (lambda a, b, **k: sm.sgemm(1.0, a, b, **k), (N, 9), (9, 4)),
    "sgemv": (lambda a, b, c, **k: sm.sgemv(1.0, a, b, 2.0, c, **k), (N, 70), (70,), (N,)),
    "sgemv, k in parts": (lambda a, b, **k: sm.sgemv(1.0, a, b, **k), (2, 1 << 18), (1 << 18,)),
    "C with gaps": (
        lambda a, b, c, **k: sm.gemm(2.0, a, b, 1.0, c[:, 1::2], **k), (N, 9), (9, 40), (N, 80),
    ),
    "C in columns": (
        lambda a, b, c, **k: sm.gemm(2.0, a, b, 1.0, c.T, **k), (N, 9), (9, 40), (40, N),
    ),
    "a vector with gaps": (lambda a, b, **k: sm.sgemv(1.0, a, b[::2], **k), (N, 64), (128,)),
    "gemv": (
        lambda a, b, **k: sm.gemv(None, a, b, trans=True, semiring="min_plus", **k), (70, N), (70,),
    ),
    "a sum": (lambda a, **k: sm.einsum("hij->h", a, **k), (N, 7, 2)),
    "sums": (lambda a, **k: sm.einsum("ij->j", a, semiring="max_plus", **k), (N, 7)),
    "einsum": (lambda a, b, **k: sm.einsum("ij,jk->ik", a, b, **k), (N, 7), (7, 5)),
}  # fmt: skip


def made(shapes, maker=normal):
    return [maker(*shape) for shape in shapes]


@BOTH
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("maker", [normal, positive])
def test_a_repeated_call(name, maker, general):
    call, *shapes = CALLS[name]
    first = call(*made(shapes, maker))
    for _ in range(3):
        operands = made(shapes, maker)
        wanted = call(*map(np.asarray, operands))
        seen = len(general)
        got = call(*operands)
        assert len(general) == seen, "the general way was taken"
        assert type(got) is type(operands[0])
        assert got.shape == first.shape
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-3)


@BOTH
@pytest.mark.parametrize("turned", [False, True], ids=["B as it lies", "B in columns"])
@pytest.mark.parametrize(
    "shapes", [((N, 9), (9, 20)), ((3, N, 5), (5, 4)), ((7,), (7, 5))], ids=str
)
def test_a_repeated_call_with_the_numbers_that_won(shapes, turned, general, monkeypatch):
    if turned:  # however small
        monkeypatch.setattr(products, "_WORTH_A_TRANSPOSE", (1, 1))
    for i in range(4):
        a, b = (on(RNG.integers(0, 4, s).astype("f4")) for s in shapes)
        terms = np.asarray(a)[..., np.newaxis] + np.asarray(b)[..., np.newaxis, :, :]
        shape = terms.min(-2).squeeze(-2).shape if len(shapes[0]) == 1 else terms.min(-2).shape
        for out in (None, on(np.zeros(shape, "f4"))):
            seen = len(general)
            c, k = sm.matmul(a, b, "min_plus", return_arg=True, out=out)
            assert i == 0 or len(general) == seen, "the general way was taken"
            assert out is None or c is out
            assert_array_equal(c, terms.min(-2).reshape(c.shape))
            assert_array_equal(k, terms.argmin(-2).reshape(c.shape))
            assert str(k.dtype).endswith("int32")


@BOTH
@pytest.mark.parametrize("name", [x for x in CALLS if "sum" not in x])
def test_a_repeated_call_writes_to_out(name, general):
    call, *shapes = CALLS[name]
    out = on(np.full_like(call(*made(shapes)), 7))
    operands = made(shapes)
    in_place = len(operands) == 3 and operands[2].shape == out.shape
    if in_place:
        call(*operands, out=operands[2])  # it is another call
    call(*operands, out=out)
    operands = made(shapes)
    wanted, seen = call(*map(np.asarray, operands)), len(general)
    out[...] = 7
    assert call(*operands, out=out) is out
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-3)
    if in_place:
        assert call(*operands, out=operands[2]) is operands[2]
        np.testing.assert_allclose(operands[2], wanted, rtol=1e-4, atol=1e-3)
    assert len(general) == seen


@pytest.mark.parametrize("arg", [False, True], ids=["", "the numbers that won"])
def test_a_result_that_overlaps_an_operand_takes_the_general_way(arg, general):
    a, b, c = (normal(8, 8, dtype="f8") for _ in range(3))
    sm.matmul(a, b, "min_plus", out=c, return_arg=arg)
    wanted = (np.asarray(a)[:, :, None] + np.asarray(b)).min(1)
    memory = on(np.zeros((20, 8)))
    for at in (0, 4, 6, 8, 12):
        x = memory[4:12]
        x[...] = a
        seen, out = len(general), memory[at : at + 8]
        sm.matmul(x, b, "min_plus", out=out, return_arg=arg)
        assert len(general) - seen == (at != 12), at
        assert_array_equal(out, wanted)


@BOTH
def test_operands_that_are_the_same_or_share_memory(general):
    """A scan looks at one array once: a call of one array twice is not that of two."""
    one, other = positive(N, N), positive(N, N)
    other[3, 4] = -INF
    for i in range(2):
        for pair in ((one, one), (one, other), (other, other), (other, one)):
            wanted = (np.asarray(pair[0])[:, :, None] + np.asarray(pair[1])).min(1)
            for out in (None, on(np.zeros((N, N), "f4")), on(np.zeros((N, 2 * N), "f4"))[:, ::2]):
                seen = len(general)
                assert_array_equal(sm.matmul(*pair, "min_plus", out=out), wanted)
                assert i == 0 or len(general) == seen, "the general way was taken"
    memory = positive(N + 1, N)
    memory[N, 3] = -INF
    low, high = memory[:N], memory[1:]
    launch.forget()
    for pair in ((low, high), (one, other)):
        wanted = (np.asarray(pair[0])[:, :, None] + np.asarray(pair[1])).min(1)
        assert_array_equal(sm.matmul(*pair, "min_plus"), wanted)


def test_the_scalars_and_flags_are_part_of_a_call():
    a, b, c = normal(6, 6), normal(6, 6), on(np.zeros((6, 6), "f4"))
    for _ in range(2):
        for alpha in (None, 1.0, 2.0, 0.0, -0.0, -1, NAN):
            for beta in (0.0, -0.0, 3.0):
                for trans in (False, True):
                    got = sm.gemm(alpha, a, b, beta, c, trans_a=trans)
                    left = np.array(a.T if trans else a)
                    wanted = (1 if alpha is None else np.float32(alpha)) * (left @ np.array(b))
                    wanted = wanted + np.float32(beta) * np.array(c)
                    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "call",
    [
        lambda: sm.matmul(on(np.ones((4, 4), "i4")), on(np.ones((4, 4), "i4"))),
        lambda: sm.matmul(normal(4, 4), normal(4, 4, dtype="f8")),
        lambda: sm.matmul(normal(4, 0), normal(0, 4)),
        lambda: sm.matmul(normal(4, 4), normal(4, 4), device="cuda:0"),
        lambda: sm.gemm(np.float32(2), normal(4, 4), normal(4, 4)),
        lambda: sm.gemm(0.5, normal(4, 4), normal(4, 4), semiring="plus_min"),
        lambda: sm.einsum("ij,j->j", normal(4, 4), normal(4)),
        lambda: sm.einsum("ij->ji", normal(4, 4)),
    ],
    ids=["integers", "two dtypes", "no k", "a device", "a scalar of NumPy",
         "alpha before the product", "entry by entry", "transposed"],
)  # fmt: skip
def test_other_calls_are_not_kept(call):
    call()
    assert not kept_calls()


def test_errors_are_those_of_the_general_way():
    a, b = normal(4, 4), normal(4, 4)
    sm.matmul(a, b)
    for wrong in (
        lambda: sm.matmul(a, b[:3]),
        lambda: sm.matmul(a, b, out=normal(4, 5)),
        lambda: sm.matmul(a, b, ["min_plus"]),
        lambda: sm.matmul(a, b, "min_pls"),
        lambda: sm.sgemm(1.0, a, normal(4, 4, dtype="f8")),
        lambda: sm.gemm("1", a, b),
        lambda: sm.gemm(1.0, a, b, 2.0),
    ):
        messages = []
        for _ in range(2):
            with pytest.raises((TypeError, ValueError, KeyError)) as error:
                wrong()
            messages.append(str(error.value))
        assert messages[0] == messages[1]


def test_a_blas_name_takes_its_own_dtype_only(general):
    """Though the general verb's repeated call is the same but for that."""
    a = normal(4, 4, dtype="f8")
    for _ in range(2):
        sm.gemm(1.0, a, a)
    with pytest.raises(TypeError, match="sgemm works on float32, got a of dtype float64"):
        sm.sgemm(1.0, a, a)
    seen = len(general)
    sm.dgemm(1.0, a, a)
    assert len(general) == seen


@BOTH
def test_another_device_and_another_alignment(host, general):
    a, b = normal(8, 8), normal(8, 8)
    sm.matmul(a, b)
    seen = len(general)
    runtime = host.xp.cuda.runtime
    its, runtime.index = runtime.index, 1
    sm.matmul(a, b)
    assert len(general) == seen + 1
    runtime.index = its
    memory = normal(65)
    odd = memory[1:].reshape(8, 8)
    got = sm.matmul(odd, b)
    assert len(general) == seen + 2
    np.testing.assert_allclose(got, np.asarray(odd) @ np.asarray(b), rtol=1e-5, atol=1e-5)


def test_what_is_kept_is_bounded(monkeypatch, general):
    """Of many launches nothing is kept, nor their memory meanwhile."""
    monkeypatch.setattr(device, "_NOTES", 9)
    with device.recorded() as notes:
        for _ in range(12):
            device.scratch(4)
    assert notes == []
    monkeypatch.setattr(device, "_HELD", 99)
    with device.recorded() as notes:
        for _ in range(3):
            device.scratch(40)
    assert notes == []
    monkeypatch.setattr(launch, "_KEPT", 3)
    for n in range(2, 9):
        sm.matmul(normal(n, 4), normal(4, 4))
        assert 0 < len(launch._rows) <= 3


@BOTH
def test_threads_at_once():
    pairs = [(normal(9, 9), normal(9, 9)) for _ in range(4)]
    wanted = [np.asarray(a) @ np.asarray(b) for a, b in pairs]
    sm.matmul(*pairs[0])
    wrong = []

    def work(pair, c):
        for _ in range(30):
            if not np.allclose(sm.matmul(*pair), c, atol=1e-5):
                wrong.append(1)

    threads = [threading.Thread(target=work, args=x) for x in zip(pairs, wanted, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_threads_wait_for_each_other_s_launches():
    """Between writing addresses and the launch that reads them."""
    words = memoryview(bytearray(8)).cast("q")
    seen = []

    def start(stream, where, _):
        time.sleep(0.01)
        seen.append((stream, words[0]))

    call = calls._Call(
        [(start, 0)], None, words, [(0, 0, 5)], [], [], 0, [], (0, 0), "float32", (1,),
        np.float32, [],
    )  # fmt: skip
    threads = [threading.Thread(target=call.run, args=([10 * i], i)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == [(i, 10 * i + 5) for i in range(8)]


@pytest.mark.parametrize("host", ["torch"], indirect=True)
def test_tensors_that_need_more_than_their_memory(general):
    """Gradients, and numbers whose negatives are in memory."""
    torch = pytest.importorskip("torch")
    a, b = normal(N, 9), normal(9, 20)
    wanted = torch.as_tensor(sm.matmul(a, b))
    sm.matmul(a, b)
    seen = len(general)
    with pytest.raises(TypeError, match="requires a gradient"):
        sm.matmul(normal(N, 9).requires_grad_(), b)
    assert_array_equal(sm.matmul(torch._neg_view(a), b), -wanted)
    assert len(general) == seen + 2


@BOTH
def test_memory_that_is_zeroed(general, monkeypatch):
    """Sizes of rows and flags of emulated products begin at zero, in each call."""
    monkeypatch.setattr(tensor, "_WORTH_PARTS", 0)
    a, b = normal(70, 80), normal(80, 72)
    launch.forget()
    wanted = sm.gemm(None, a, b, precision="float32_emulated")
    exact = np.asarray(sm.gemm(None, a, b))
    assert not np.array_equal(wanted, exact), "tensor cores round otherwise"
    for _ in range(2):
        seen = len(general)
        assert_array_equal(sm.gemm(None, a, b, precision="float32_emulated"), wanted)
        assert len(general) == seen, "the general way was taken"


SEQUENCES = {
    "viterbi": sequences.viterbi,
    "log_partition": sequences.log_partition,
    "marginals": sequences.marginals,
    "pairs": functools.partial(sequences.marginals, pairs=True),
}


@BOTH
@pytest.mark.parametrize("states", [3, 13])
@pytest.mark.parametrize("name", SEQUENCES)
def test_repeated_models_of_sequences(name, states, host, monkeypatch):
    """Of few states, and of so many that blocks keep columns of the matrix."""
    monkeypatch.setattr(wide, "_HELD", 3)
    call, batch, steps = SEQUENCES[name], 5, 4
    models = []
    model = sequences._model
    monkeypatch.setattr(sequences, "_model", lambda *x: models.append(x) or model(*x))
    for shapes in ([], [(states,)], [(batch, states), (states,)]):
        for i in range(3):
            operands = [
                normal(*shape) for shape in ((batch, steps, states), (states, states), *shapes)
            ]
            models.clear()
            host.launched.clear()
            found = call(*operands)
            assert len(models) == (i == 0), "the general way was taken"
            assert any("wide.cuh" in x for x in host.launched) == (states == 13)
            with monkeypatch.context() as patch:
                patch.setattr(arrays, "_PLAIN", {np.ndarray, type(None)})
                expected = call(*(np.array(np.asarray(x)) for x in operands))
            if not isinstance(found, tuple):
                found, expected = (found,), (expected,)
            for x, y in zip(found, expected, strict=True):
                assert type(x) is type(operands[0])
                assert x.shape == y.shape
                np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


class Unrun:
    """A kernel that is not run."""

    def __init__(self, source, launched):
        self._source, self._launched = source, launched

    def prepared(self, *_, **__):
        return lambda *_: self._launched.append(self._source)

    def launch(
        self, blocks, threads, shared, params, pointers=None, maps=(), early=False, together=False
    ):
        start, block = self.prepared(), device.parameters(params, maps)
        start()
        device.note(device.Launched(start, block, pointers, tuple(place for _, place in maps)))


PRODUCTS = {
    "plus_times": ("f4", "f2", "f8"), "min_plus": ("f4", "f2", "f8"), "max_min": ("f4", "i4"),
    "log_plus": ("f4", "f8"), "lor_land": ("?",),
}  # fmt: skip
LAYOUTS = {
    "A A": lambda a, b: (a, a), "A B": lambda a, b: (a, b), "A Bᵀ": lambda a, b: (a, b.T),
    "A Aᵀ": lambda a, b: (a, a.T), "Aᵀ B": lambda a, b: (a.T, b),
}  # fmt: skip


@pytest.mark.parametrize("n", [64, 512, 1024, 2048, 4096])
@pytest.mark.parametrize(
    ("semiring", "dtype"), [(name, dtype) for name, dtypes in PRODUCTS.items() for dtype in dtypes]
)
def test_products_of_every_size_are_repeated(semiring, dtype, n, host, general, monkeypatch):
    """On a large device: the launches of the first call are those of the others."""
    launched = []
    monkeypatch.setattr(type(host), "sms", 132)
    monkeypatch.setattr(type(host), "kernel", lambda self, source, own="": Unrun(source, launched))
    monkeypatch.setattr(products, "_WORTH_A_SCAN", 960**3)
    monkeypatch.setattr(host.xp.cuda, "alloc", lambda size: SimpleNamespace(ptr=256))
    monkeypatch.setattr(host.xp.cuda.runtime, "memsetAsync", lambda *_: None)
    monkeypatch.setattr(calls, "_libraries", {On: calls._Cupy(host.xp)})
    monkeypatch.setattr(host.xp, "empty", unset)
    a, b, out = (unset((n, n), dtype) for _ in range(3))
    options = [{}, {"out": out}]
    if semiring in ("min_plus", "max_min"):
        options.append({"return_arg": True})
    for layout in LAYOUTS.values():
        pair = layout(a, b)
        for more in options:
            launched.clear()
            sm.matmul(*pair, semiring, **more)
            first, seen = launched.copy(), len(general)
            launched.clear()
            sm.matmul(*pair, semiring, **more)
            assert len(general) == seen, "the general way was taken"
            assert launched == first
            assert first


# --- captured in a graph ------------------------------------------------------------------------


@pytest.fixture
def captured(host, monkeypatch):
    """A stream that is being captured."""
    monkeypatch.setattr(type(host), "capturing", lambda self: True)
    monkeypatch.setattr(engine, "capturing", lambda: True)
    host.xp.cuda.runtime.captures = True
    monkeypatch.setattr(calls.device, "DEFAULT", ())


@pytest.mark.usefixtures("captured")
def test_a_result_needs_a_place_while_a_graph_is_captured(general):
    a, b, out = normal(4, 4), normal(4, 4), normal(4, 4)
    with pytest.raises(RuntimeError, match="by out= where it goes"):
        sm.matmul(a, b)
    sm.matmul(a, b, out=out)
    seen = len(general)
    assert sm.matmul(a, b, out=out) is out
    assert len(general) == seen
    with pytest.raises(RuntimeError, match="by out= where it goes"):
        sm.matmul(a, b)


@pytest.mark.usefixtures("captured")
def test_what_waits_for_the_device_is_refused_while_a_graph_is_captured():
    a = on(np.ones((4, 4), "i4"))
    with pytest.raises(RuntimeError, match="cannot hold: capture matmul, gemm"):
        sm.matmul(a, a, out=a.copy())


class Sparse:
    """A matrix as CuPy has it, its arrays on the device."""

    def __init__(self, matrix):
        self.format, self.shape = matrix.format, matrix.shape
        self.has_canonical_format = True
        for name in ("data", "indices", "indptr") if self.format == "csr" else ("data", "offsets"):
            setattr(self, name, on(getattr(matrix, name)))

    def tocsr(self):
        raise AssertionError("a conversion")


@pytest.mark.parametrize("n", [None, 1, 8])
@pytest.mark.parametrize("form", ["csr", "dia"])
def test_a_repeated_sparse_product(form, n, monkeypatch):
    sparse = pytest.importorskip("scipy.sparse")
    general, product = [], getattr(engine, f"{form}_product")
    monkeypatch.setattr(
        engine, f"{form}_product", lambda *x, **k: general.append(x) or product(*x, **k)
    )

    def matrix(longest):
        counts = RNG.integers(7 if longest == 9 else 0, 9, 400)
        counts[7] = longest  # a row that several warps share
        ends = np.r_[0, np.cumsum(counts)].astype("i4")
        columns = RNG.integers(0, 400, ends[-1]).astype("i4")
        data = RNG.integers(-9, 9, ends[-1]).astype("f4")
        return sparse.csr_array((data, columns, ends), shape=(400, 400))

    for longest in (9, 400, 4000):
        counts = []
        for _ in range(5):
            exact = matrix(longest)
            if form == "dia":
                data = RNG.integers(-9, 9, (3, 400)).astype("f4")
                exact = sparse.dia_array((data, np.array([-1, 0, 5], "i4")), shape=(400, 400))
            a = Sparse(exact)
            for _ in range(4):
                shape = (400,) if n is None else (400, n)
                x = on(RNG.integers(-9, 9, shape).astype("f4"))
                out = on(np.full(shape, 7, "f4"))
                assert_array_equal(sm.matmul(a, x), exact @ x)
                assert sm.matmul(a, x, out=out) is out
                assert_array_equal(out, exact @ x)
                expected = exact @ x
                assert sm.matmul(a, x, out=x) is x  # computed aside
                assert_array_equal(x, expected)
                counts.append(len(general))
        # of a new matrix, the first product finds out what its rows are like; the last one of each
        # round takes the general way always
        assert counts[-1] - counts[-2] == 1, counts


@pytest.mark.parametrize("k", [128, 100], ids=["in place", "rows that are copied"])
def test_packed_products(k, monkeypatch):
    general, words = [], packed.words_of_bits
    monkeypatch.setattr(packed, "words_of_bits", lambda s: general.append(s) or words(s))
    for name in ("lor_land", "xor_land"):
        for _ in range(3):
            a, b = RNG.random((70, k)) < 0.3, RNG.random((k, 90)) < 0.3
            x, y = (sm.BitMatrix(on(np.packbits(z, axis=-1)), z.shape[1]) for z in (a, b))
            found = sm.matmul(x, y, name)
            sums = a.astype(int) @ b
            wanted = sums > 0 if name == "lor_land" else sums % 2 == 1
            assert_array_equal(found.bits, np.packbits(wanted, axis=-1))
            assert found.shape == (70, 90)
            assert len(general) == 1
        general.clear()


@pytest.mark.parametrize("needs", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("same", [False, True])
def test_shares_are_repeated(needs, same, host, monkeypatch):
    """Of one operand twice, too."""
    s, n = sm.semirings["log_plus"], 4
    for i in range(4):
        a, b, g = normal(n, n), normal(n, n), normal(n, n)
        b = a if same else b
        c = on(np.logaddexp.reduce(a[:, :, None] + b, axis=1))
        if i == 3:
            monkeypatch.setattr(gradients, "Call", None)
        found = gradients.summed(s, g, a, b, c, needs)
        terms = g[:, None] * np.exp(a[:, :, None] + b - c[:, None])
        for x, axis, need in zip(found, (2, 0), needs, strict=True):
            assert (x is None) == (not need)
            if need:
                np.testing.assert_allclose(x, terms.sum(axis), rtol=1e-5, atol=1e-6)


def test_results_of_another_alignment():
    """They are written in vectors where they can be."""
    a, b = normal(N, 8), normal(8, 32)
    wanted = np.asarray(a)[:, :, None] + np.asarray(b)
    for shift in (0, 0, 0, 1):
        out = on(np.zeros(N * 32 + 1, "f4"))[shift:][: N * 32].reshape(N, 32)
        assert sm.matmul(a, b, "min_plus", out=out) is out
        assert_array_equal(out, wanted.min(axis=1))


# --- closures -----------------------------------------------------------------------------------


@pytest.fixture
def solved(monkeypatch):
    """A list that grows with each graph for which a method is chosen."""
    found, solve = [], graphs.solve
    monkeypatch.setattr(graphs, "solve", lambda request: found.append(request.n) or solve(request))
    return found


def weights(n, seed, dtype="f4", least=1):
    random = np.random.default_rng(seed)
    w = random.integers(least, 9, (n, n)).astype(dtype)
    w[random.random((n, n)) > 0.3] = INF if w.dtype.kind == "f" else np.iinfo(dtype).max
    return w


@BOTH
@pytest.mark.parametrize("n", [20, 140], ids=["a block", "tiles"])
@pytest.mark.parametrize("semiring", ["min_plus", "max_min"])
def test_a_repeated_closure(n, semiring, solved):
    def given(seed):
        w = weights(n, seed)
        return w if semiring == "min_plus" else np.where(w < INF, w, -INF)

    sm.closure(on(given(0)), semiring)
    assert len(solved) == 1
    for seed in (1, 2):
        w = on(given(seed))
        del solved[:]
        found = sm.closure(w, semiring)
        assert not solved, "the general way was taken"
        assert type(found) is type(w)
        assert_array_equal(np.asarray(found), sm.closure(given(seed), semiring))
        assert_array_equal(np.asarray(w), given(seed))


@BOTH
@pytest.mark.parametrize("n", [20, 140], ids=["a block", "tiles"])
def test_a_repeated_closure_with_predecessors(n, solved):
    """Of weights without ties; where some rows are no trees, the general way mends them."""

    def given(seed):
        w = weights(n, seed).astype("f4")
        return w + np.random.default_rng(seed).random((n, n), "f4") / 7

    sm.apsp(on(given(0)), return_predecessors=True)
    for seed in (1, 2):
        del solved[:]
        d, p = sm.apsp(on(given(seed)), return_predecessors=True)
        assert not solved, "the general way was taken"
        assert type(d) is type(p) is type(on(given(seed)))
        exact = sm.apsp(given(seed), return_predecessors=True)
        for found, wanted in zip((d, p), exact, strict=True):
            assert_array_equal(np.asarray(found), wanted)


def test_rows_of_predecessors_that_are_no_trees_take_the_general_way(monkeypatch, solved):
    """As rounding may make them."""
    trees = [True, True, False, True]
    monkeypatch.setattr(dense, "_are_trees", lambda rows: trees.pop(0))
    w = on(weights(140, 0))
    for general in (True, False, True):
        del solved[:]
        sm.apsp(w, return_predecessors=True)
        assert bool(solved) == general
    assert not trees


def test_a_stack_and_integers(solved):
    for make in (lambda seed: np.stack([weights(9, seed), weights(9, seed + 9)]),
                 lambda seed: weights(9, seed, "i4")):  # fmt: skip
        sm.apsp(on(make(0)))
        del solved[:]
        found = sm.apsp(on(make(1)))
        assert not solved
        assert_array_equal(np.asarray(found), sm.apsp(make(1)))


def test_a_closure_of_other_weights_takes_the_general_way(solved):
    w = weights(20, 0)
    sm.apsp(on(w))
    shifted = w + np.arange(20)[:, np.newaxis] - np.arange(20)  # no cycle's weight changes
    assert_array_equal(np.asarray(sm.apsp(on(shifted))), sm.apsp(shifted))
    wrong = w.copy()
    wrong[3, 4] = NAN
    sm.apsp(on(w))
    with pytest.raises(ValueError, match=r"the weight at \[3, 4\] is NaN"):
        sm.apsp(on(wrong))
    wrong[3, 4], wrong[4, 3] = 1, -2
    sm.apsp(on(w))
    with pytest.raises(sm.NegativeCycleError):
        sm.apsp(on(wrong))
    del solved[:]
    sm.apsp(on(w))
    sm.apsp(on(w))
    assert len(solved) == 1, "it is prepared again"


@pytest.mark.parametrize(
    "asked", [{"method": "squaring"}, {"directed": False}, {"max_hops": 3}, {"sources": [1]},
              {"return_predecessors": True}, {"overwrite": True}], ids=str,
)  # fmt: skip
def test_what_is_asked_of_a_closure_besides_is_asked_each_time(asked):
    w, other = weights(20, 0), weights(20, 1)
    sm.apsp(on(w))
    sm.apsp(on(w), **asked)
    found, wanted = sm.apsp(on(other), **asked), sm.apsp(other, **asked)
    if "return_predecessors" in asked:
        found, wanted = found[0], wanted[0]
    assert_array_equal(np.asarray(found), wanted)
