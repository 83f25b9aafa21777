"""What only a CUDA device can show: sizes, streams, and many random products against the CPU."""

import threading

import numpy as np
import pytest
import reference
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from reference import BFLOAT16

import semiring_mm as sm
from bench import gpu_clock
from semiring_mm.engine import PLAIN
from semiring_mm.gpu import device, engine, launch, memory, product
from semiring_mm.gpu import facts as scan
from semiring_mm.gpu.source import KINDS
from semiring_mm.plan import Facts

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(bool(device.why_not()), reason=device.why_not() or "there is a device"),
]

NAMES = ["min_plus", "max_plus", "max_times", "max_min", "plus_times", "plus_min"]
DTYPES = ["f4", "f2", "i4", "i2", "f8"]


def entries(random, shape, dtype, least):
    """Small whole numbers, which every semiring computes exactly, in a view of any strides."""
    rows, columns = (2 * x + 3 for x in shape)
    whole = random.integers(least, 9, (rows, columns)).astype(dtype)
    row, column = random.integers(0, 3, 2)
    down, across = random.choice([1, 2, -1], 2)
    view = whole[row:, column:][::down, ::across][: shape[0], : shape[1]]
    return np.ascontiguousarray(view) if random.random() < 0.4 else view


@settings(
    max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
@given(
    name=st.sampled_from(NAMES),
    dtype=st.sampled_from(DTYPES),
    shape=st.tuples(*[st.integers(1, 150)] * 3),
    turned=st.tuples(st.booleans(), st.booleans()),
    least=st.sampled_from([0, -8]),
    arg=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_random_products(name, dtype, shape, turned, least, arg, seed):
    import cupy

    random = np.random.default_rng(seed)
    m, k, n = shape
    if name == "plus_times" and dtype == "f2":
        k = min(k, 25)  # sums that 16 bits hold exactly
    a = entries(random, (k, m) if turned[0] else (m, k), dtype, least)
    b = entries(random, (n, k) if turned[1] else (k, n), dtype, least)
    arg = arg and sm.semirings[name].selective
    # a copy keeps no strides: the base moves over, and the view is taken there
    here = [moved(cupy, x) for x in (a, b)]
    a, b = a.T if turned[0] else a, b.T if turned[1] else b
    there = [x.T if t else x for x, t in zip(here, turned, strict=True)]
    out = cupy.full((m, n), -77, dtype)
    try:
        expected = sm.matmul(a, b, name, return_arg=arg)
    except OverflowError:
        with pytest.raises(OverflowError):
            sm.matmul(*there, name, out=out, return_arg=arg)
        return
    for _ in range(2):  # the second one repeats the launches of the first
        out[...] = -77
        found = sm.matmul(*there, name, out=out, return_arg=arg)
        for x, y in zip(found if arg else [found], expected if arg else [expected], strict=True):
            assert_array_equal(x.get(), y)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    "shape", [(4096, 520, 4096), (4099, 1029, 4101), (1024, 1024, 1024), (513, 4099, 515)]
)
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True)])
def test_large_products(shape, turned, dtype):
    """Large tiles at their edges; parts of k, of one length and of two, from memory and not."""
    import cupy

    m, k, n = shape
    rng = cupy.random.default_rng(m + n)
    a, b = (rng.integers(-8, 9, x).astype(dtype) for x in ((m, k), (k, n)))
    left, right = (cupy.asfortranarray(x) if t else x for x, t in zip((a, b), turned, strict=True))
    c = cupy.full((m, n), np.nan, dtype)
    sm.matmul(left, right, out=c)
    rows = [*range(0, m, 97), m - 1]
    assert_array_equal(c[rows].get(), a[rows].get() @ b.get())


def moved(cupy, view):
    base = view if view.base is None else view.base
    begin = (view.ctypes.data - base.ctypes.data) // base.itemsize
    flat = cupy.asarray(np.ascontiguousarray(base).ravel())
    return cupy.ndarray(
        view.shape, view.dtype, flat.data + begin * base.itemsize, strides=view.strides
    )


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("min_plus", "f4"), ("max_plus", "f4"), ("min_plus", "f2"), ("max_times", "f2"),
     ("min_plus", BFLOAT16), ("max_plus", BFLOAT16), ("max_min", "f8")],
    ids=str,
)  # fmt: skip
def test_special_values_and_rounding(name, dtype):
    """As on the CPU, to the last bit: what is NaN, what is infinite, what a short float keeps."""
    import cupy

    random = np.random.default_rng(5)
    special = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-3, 60_000.0]

    def drawn(shape, share):
        x = 100 * random.standard_normal(shape)
        return np.where(random.random(shape) < share, random.choice(special, shape), x)

    for k, share in ((40, 0.02), (40, 0), (1, 0.3)):
        a, b = (drawn(shape, share).astype(dtype) for shape in ((150, k), (k, 170)))
        found = sm.matmul(cupy.asarray(a), cupy.asarray(b), name).get()
        expected = sm.matmul(a, b, name)
        assert_array_equal(reference.comparable(found), reference.comparable(expected))
    terms = sm.matmul(cupy.asarray(a), cupy.asarray(b)).get()  # one each, over k = 1
    expected = sm.matmul(a, b)
    assert_array_equal(reference.comparable(terms), reference.comparable(expected))


def test_kinds_of_entries_that_many_blocks_find_at_once():
    import cupy

    values = {"nan": np.nan, "-inf": -np.inf, "-": -2, "0": 0, "+": 1, "+inf": np.inf}
    x = cupy.ones((8192, 8192), "f4")
    for i, value in enumerate(values.values()):
        x[1300 * i + 700, 1000 * i + 3] = value
    expected = sum(KINDS[kind] for kind in values)
    found = [scan.flags_of(x, x) for _ in range(50)]
    assert [int(np.bitwise_or.reduce(flags.get())) for flags in found] == [expected] * 50


@pytest.mark.parametrize(
    ("name", "dtype", "precision"),
    [("plus_times", "f2", None), ("plus_times", BFLOAT16, None), ("plus_times", "f4", "tf32"),
     ("plus_times", "f4", "float32_emulated"), ("lor_land", "?", None),
     ("xor_land", "?", None), ("plus_times", "f8", None)],
    ids=str,
)  # fmt: skip
def test_tensor_cores(name, dtype, precision):
    """Operands that are taken where they lie, and copies; whole tiles, edges, k in parts."""
    import cupy

    random = np.random.default_rng(6)
    most = {"tf32": (9, 9), "float32_emulated": (8000, 1)}.get(precision, (2, 2))
    for m, k, n in [(1408, 1344, 1536), (1401, 1343, 1501), (130, 64_000, 260)]:
        if dtype == "?":
            a, b = (random.random(shape) < 0.02 for shape in ((m, k), (k, n)))
        else:
            shapes = zip(most, ((m, k), (k, n)), strict=True)
            a, b = (random.integers(-x, x + 1, shape).astype("f4") for x, shape in shapes)
            if max(most) * min(most) * k > 2**24:  # whose sums float32 does not hold
                a %= 3
        expected = a.astype("f8") @ b.astype("f8")
        expected = (expected % 2 if name == "xor_land" else expected).astype(dtype)
        a, b = cupy.asarray(a.astype(dtype)), cupy.asarray(b.astype(dtype))
        for left, right in ((a, b), (a.T.copy().T, b.T.copy().T)):
            found = sm.gemm(None, left, right, semiring=name, precision=precision).get()
            assert_array_equal(reference.comparable(found), reference.comparable(expected))
    if device.current().arch == 90:
        assert any("sr::TensorProduct<" in text for text in device.current()._kernels)


@pytest.mark.parametrize(("dtype", "precision"), [("f2", None), ("f4", "tf32")])
def test_launches_that_begin_early_wait_for_the_one_before(dtype, precision):
    """Each product permutes the columns of the last one; between other kernels, and in a graph."""
    import cupy

    random = np.random.default_rng(8)
    for n in (256, 520, 768, 1024):
        order = random.permutation(n)
        b = cupy.asarray(np.eye(n, dtype=dtype)[order])
        x = random.integers(-9, 10, (n, n)).astype(dtype)
        steps = [cupy.asarray(x), cupy.empty((n, n), dtype)]
        stream = cupy.cuda.Stream(non_blocking=True)

        def walk(count, steps=steps, b=b):
            for i in range(count):
                sm.gemm(None, steps[i % 2], b, precision=precision, out=steps[1 - i % 2])
                if i % 5 == 2:
                    steps[1 - i % 2] += 1
                    steps[1 - i % 2] -= 1

        with stream:
            stream.wait_event(cupy.cuda.Stream.null.record())
            walk(40)
            stream.begin_capture()
            walk(10)
            graph = stream.end_capture()
            for _ in range(6):
                graph.launch(stream)
            found = steps[0].get()
        back = np.arange(n)
        for _ in range(100):  # column i moves to order[i]
            back = back[np.argsort(order)]
        assert_array_equal(found, x[:, back])


@pytest.mark.parametrize("data", ["normal", "positive", "wide", "graded", "along k"])
def test_emulated_float32_errs_no_more_than_float32(data):
    """Whichever floats the operands call for; and again, as a repeated call."""
    import cupy

    rng = cupy.random.default_rng(7)
    (m, k, n), scale = (1501, 2043, 1401), [1.0, 1.0]
    if data == "wide":
        scale = [cupy.exp2(rng.uniform(-20, 20, shape)) for shape in ((m, k), (k, n))]
    elif data == "graded":
        scale = [cupy.exp2(rng.uniform(-20, 20, shape)) for shape in ((m, 1), (1, n))]
    elif data == "along k":
        powers = cupy.exp2(cupy.linspace(-20, 20, k))
        scale = [powers, 1 / powers[:, None]]
    a, b = (
        (rng.standard_normal(shape) * x).astype("f4")
        for shape, x in zip(((m, k), (k, n)), scale, strict=True)
    )
    if data == "positive":
        a, b = (cupy.maximum(x, 0) for x in (a, b))
    exact, whole = a.astype("f8") @ b.astype("f8"), abs(a).astype("f8") @ abs(b).astype("f8")

    def errors(precision):
        off = sm.gemm(None, a, b, precision=precision) - exact
        return float(cupy.linalg.norm(off)), float((abs(off) / whole).max())

    single = errors("ieee")
    for _ in range(3):
        assert all(x <= y for x, y in zip(errors("float32_emulated"), single, strict=True))


@pytest.mark.parametrize(
    ("name", "dtype", "least"),
    [("min_plus", "f4", 0), ("max_times", "f4", 0), ("max_min", "f4", -1), ("min_plus", "f2", 0),
     ("min_plus", "f2", -1), ("min_plus", "i4", -1), ("min_plus", "i2", -1)],
)  # fmt: skip
def test_fused_steps_at_full_size(name, dtype, least):
    """Equal to the general step, bit for bit, in a large product of random numbers."""
    import cupy

    n, s = 8192, sm.semirings[name]
    random = cupy.random.default_rng(1)
    draw = [random.random((n, n), dtype=cupy.float32) * (1 - least) + least for _ in range(2)]
    a, b = ((x if dtype[0] == "f" else x * 1000).astype(dtype) for x in draw)
    kinds = (None, None) if dtype[0] == "f" else tuple(engine.facts(s, x) for x in (a, b))
    depth = n if dtype[0] == "i" else 1
    general = product._plans(s, a.dtype, *kinds, None, depth, PLAIN, False, 75)[-1]
    assert general.step.name == "General"
    c = cupy.full((n, n), -1, dtype)
    product._run(
        device.current(), general, a=a, b=b, c=c, arg=None, gather=None, errors=None,
        transposed=lambda: None,
    )  # fmt: skip
    assert bool((sm.matmul(a, b, name) == c).all())


def test_more_elements_than_32_bits_count():
    import cupy

    m, k = 70_000, 32_768  # 2.3e9 entries of one byte
    a = cupy.zeros((m, k), np.int8)
    a[-5:, -7:] = 3
    b = cupy.ones((k, 3), np.int8)
    expected = np.zeros((m, 3))
    expected[-5:] = 21
    assert_array_equal(sm.matmul(a, b).get(), expected)
    assert_array_equal(sm.gemv(None, a, b[:, 0]).get(), expected[:, 0])
    tall = sm.matmul(a[:, :3].astype("f4"), cupy.ones((3, k), "f4"), "max_times")
    assert tall.size > 2**31
    assert float(tall[-6:].max()) == 0.0
    a[-5:, 0] = 3
    tall = sm.matmul(a[:, :3].astype("f4"), cupy.ones((3, k), "f4"), "max_times")
    assert_array_equal(tall[-6:, -1].get(), [0, 3, 3, 3, 3, 3])


def test_more_matrices_than_a_grid_dimension_holds():
    import cupy

    a = cupy.random.default_rng(2).integers(0, 9, (70_000, 5, 7)).astype("f4")
    b = cupy.random.default_rng(3).integers(0, 9, (7, 6)).astype("f4")
    found = sm.matmul(a, b, "min_plus")
    for i in (0, 65_535, 65_536, 69_999):
        assert_array_equal(found[i].get(), (a[i].get()[:, :, None] + b.get()).min(1))


def test_threads_and_streams_at_once():
    import cupy

    wrong = []

    def work(seed):
        random = np.random.default_rng(seed)
        with cupy.cuda.Stream(non_blocking=True) as stream:
            for _ in range(20):
                x, y = (random.random((90 + seed, 90 + seed), dtype="f4") for _ in range(2))
                gpu_clock.spin(1e-3)  # whose end nobody awaits who is on another stream
                z = sm.matmul(cupy.asarray(x), cupy.asarray(y), "min_plus")
                stream.synchronize()
                if not np.array_equal(z.get(), sm.matmul(x, y, "min_plus")):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("size", [0, 1, 10_001, 65_536, 200_000])
def test_large_copies_go_in_pieces(size, monkeypatch):
    import cupy

    monkeypatch.setattr(memory, "_PIECE", 10_000)
    monkeypatch.setattr(memory, "_LEAST", 0)
    x = np.random.default_rng(size).integers(0, 255, (size, 3)).astype("u1")
    for host in (x, x[::-1], x.T, x.view("i1"), x.astype("f4")):
        gpu_clock.spin(1e-3)  # until the host has gone on
        there = memory.from_host(host)
        assert isinstance(there, cupy.ndarray)
        for _ in range(2):  # the buffers are used again
            gpu_clock.spin(1e-3)
            assert_array_equal(memory.to_host(there), host)
        there[: size // 2] += 1
        assert_array_equal(memory.to_host(there), there.get())


def test_sgemm_of_random_numbers():
    import cupy

    random = cupy.random.default_rng(4)
    a, b = (random.standard_normal((1500, 1500), dtype=cupy.float32) for _ in range(2))
    error = abs(sm.sgemm(1.0, a, b) - a.astype("f8") @ b.astype("f8"))
    bound = 1500 * 2.0**-24 * (abs(a.astype("f8")) @ abs(b.astype("f8")))  # of any order of sums
    assert bool((error <= bound).all())


@pytest.mark.parametrize("name", ["min_plus", "max_min", "lor_land"])
def test_closures_in_one_launch(name, monkeypatch):
    """However many blocks there are, and whatever else runs, every bit is the same."""
    import cupy

    random, semiring = np.random.default_rng(12), sm.semirings[name]
    for n, dtype in ((517, "f4"), (900, "i4"), (300, "f8")):
        if name == "lor_land":
            a, dtype = random.random((n, n)) < 2 / n, "?"
        else:
            a = random.integers(1, 10_000, (n, n)).astype(dtype)
            a[random.random((n, n)) > 0.1] = semiring.identities(np.dtype(dtype))[0]
        expected = sm.closure(a, name, directed=True)
        there, found = cupy.asarray(a), []
        for blocks in (None, 1, 7, None):
            launch.forget()
            if blocks is not None:
                monkeypatch.setattr(device.current(), "sms", blocks)
            found.append(cupy.asnumpy(sm.closure(there, name, directed=True)))
            monkeypatch.undo()
        streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(4)]
        out = [cupy.full_like(there, 1) for _ in streams]
        cupy.cuda.Device().synchronize()  # of the default stream, which these do not wait for
        known = (Facts(-(1 << 28), 1 << 28, True),) * 3 if dtype == "i4" else None
        for stream, x in zip(streams, out, strict=True):
            with stream:
                engine.closure_batch(semiring, there, known, x)
        cupy.cuda.Device().synchronize()
        for x in (*found, *map(cupy.asnumpy, out)):
            assert_array_equal(x, expected)
    launch.forget()


def test_a_closure_in_a_graph():
    """A launch waits for nothing on the host: it can be captured, and repeated on new numbers."""
    import cupy

    semiring, stream = sm.semirings["min_plus"], cupy.cuda.Stream(non_blocking=True)
    a, out = cupy.zeros((300, 300), "f4"), cupy.zeros((300, 300), "f4")
    random = np.random.default_rng(1)
    with stream:
        engine.closure_batch(semiring, a, None, out)  # compiles
        stream.synchronize()
        stream.begin_capture()
        engine.closure_batch(semiring, a, None, out)
        graph = stream.end_capture()
        for _ in range(3):
            w = random.integers(1, 1000, (300, 300)).astype("f4")
            a.set(w)
            graph.launch(stream)
            stream.synchronize()
            assert_array_equal(cupy.asnumpy(out), sm.apsp(w, device="cpu"))


# --- repeated calls, and calls in CUDA graphs ---------------------------------------------------

#: A call, and the shapes of its float32 operands.
CALLS = {
    "sgemm": (lambda a, b, **k: sm.sgemm(2.0, a, b, **k), (300, 200), (200, 100)),
    "k in parts": (lambda a, b, **k: sm.sgemm(1.0, a, b, **k), (64, 9000), (9000, 64)),
    "a scan": (lambda a, b, **k: sm.matmul(a, b, "min_plus", **k), (1024, 1024), (1024, 1024)),
    "tensor cores": (
        lambda a, b, **k: sm.gemm(1.0, a, b, precision="float32_emulated", **k),
        (1500, 1500), (1500, 1500),
    ),
    "sgemv": (lambda a, b, **k: sm.sgemv(1.0, a, b, **k), (10_000, 32), (32,)),
    "sgemv, k in parts": (lambda a, b, **k: sm.sgemv(1.0, a, b, **k), (32, 1 << 18), (1 << 18,)),
    "a sum": (lambda a, **k: sm.einsum("ij->i", a, **k), (300, 1000)),
    "alpha before the product": (  # ⊗ does not distribute: CuPy scales a copy of A
        lambda a, b, **k: sm.gemm(0.25, a, b, semiring="plus_min", **k), (50, 60), (60, 70),
    ),
}  # fmt: skip


def operands_of(name, seed, least=0.0):
    import cupy

    random = cupy.random.default_rng(seed)
    return [random.random(s, dtype="f4") + np.float32(least) for s in CALLS[name][1:]]


def on_the_host(name, operands):
    return CALLS[name][0](*(x.get() for x in operands))


@pytest.mark.parametrize("name", CALLS)
def test_a_repeated_call_is_that_of_its_operands(name):
    call = CALLS[name][0]
    call(*operands_of(name, 1))
    for seed, least in ((2, 0.0), (3, -0.5), (4, 0.0)):  # a scan finds other kinds
        operands = operands_of(name, seed, least)
        np.testing.assert_allclose(
            call(*operands).get(), on_the_host(name, operands), rtol=1e-4, atol=1e-2
        )


@pytest.mark.parametrize("name", CALLS)
def test_calls_in_a_graph_of_cupy(name):
    import cupy

    call, operands = CALLS[name][0], operands_of(name, 1)
    out = cupy.full_like(call(*operands), 7)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        call(*operands, out=out)
        stream.begin_capture()
        call(*operands, out=out)
        graph = stream.end_capture()
        for seed, least in ((2, 0.0), (3, -0.5)):
            for x, new in zip(operands, operands_of(name, seed, least), strict=True):
                x[...] = new
            out[...] = 7
            busy = [cupy.full(1 << 22, 255, np.uint8) for _ in range(9)]  # what was freed meanwhile
            graph.launch()
            graph.launch()
            stream.synchronize()
            del busy
            wanted = on_the_host(name, operands)
            np.testing.assert_allclose(out.get(), wanted, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("n", [512, 777, 1024])
def test_predecessors_of_tensors(n):
    """PyTorch's allocator gives memory back to its stream at once, while another one is in use."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch has no CUDA")
    node = torch.arange(n, device="cuda")
    for _ in range(20):
        w = torch.rand(n, n, device="cuda").fill_diagonal_(0)
        before = w.clone()
        d, p = sm.apsp(w, return_predecessors=True)
        assert torch.equal(w, before)
        assert torch.equal(p < 0, torch.eye(n, dtype=torch.bool, device="cuda"))
        last = p.long().where(p >= 0, node)
        assert torch.allclose(d.gather(1, last) + w[last, node], d, rtol=1e-5)
        for _ in range(n.bit_length()):
            last = last.gather(1, last)
        assert torch.equal(last, node[:, None].expand(n, n))


@pytest.mark.parametrize("name", [x for x in CALLS if x != "a sum"])
def test_calls_in_a_graph_of_pytorch(name):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch without CUDA")
    call, operands = CALLS[name][0], operands_of(name, 1)
    tensors = [torch.from_dlpack(x) for x in operands]
    call(*tensors)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call(*tensors)
    for seed, least in ((2, 0.0), (3, -0.5)):
        for x, new in zip(tensors, operands_of(name, seed, least), strict=True):
            x.copy_(torch.from_dlpack(new))
        result.fill_(7)
        busy = [torch.full((1 << 22,), 7.0, device="cuda") for _ in range(9)]
        graph.replay()
        torch.cuda.synchronize()
        del busy
        wanted = on_the_host(name, operands)
        np.testing.assert_allclose(result.cpu().numpy(), wanted, rtol=1e-4, atol=1e-2)


def test_what_cannot_be_captured_says_so():
    import cupy

    a = cupy.ones((50, 50), "f4")
    whole, out = a.astype("i4"), cupy.ones((50, 50), "i4")
    unseen = sm.Semiring("unseen", "min(a, b)", "a + 0.71 * b", np.inf, 0)  # no test has its kernel
    sm.matmul(a, a)
    sm.matmul(whole, whole, out=out)
    stream = cupy.cuda.Stream(non_blocking=True)
    for call, words in (
        (lambda: sm.matmul(a, a), "by out= where it goes"),
        (lambda: sm.matmul(whole, whole, out=out), "waits for the device"),
        (lambda: sm.apsp(a), "by out= where it goes"),
        (lambda: sm.matmul(a, a, unseen, out=a.copy()), "once before the capture"),
    ):
        with stream:
            stream.begin_capture()
            try:
                with pytest.raises(RuntimeError, match=words):
                    call()
            finally:
                stream.end_capture()
    np.testing.assert_array_equal(sm.matmul(a, a).get(), 50)
