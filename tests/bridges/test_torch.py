"""semiring_mm.torch: gradients against plain PyTorch and against differences, and the operators."""

import importlib
import itertools
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

import semiring_mm as sm
from semiring_mm import arrays, gradients
from semiring_mm.gpu import device, engine

torch = pytest.importorskip("torch", reason="PyTorch is not here: pip install '.[torch]'")
from torch.autograd import gradcheck  # noqa: E402
from torch.testing import assert_close  # noqa: E402

from bench import gpu_sequences, neighbours_torch  # noqa: E402
from bench.cases import Options  # noqa: E402
from semiring_mm import torch as semiring_torch  # noqa: E402
from semiring_mm.torch import apsp, closure, matmul, operators  # noqa: E402

inf = math.inf
CHEBYSHEV = sm.Semiring("min_maxabs", "min(a, b)", "max(abs(a), abs(b))", inf, 0)
#: ⊗ and ⊕ in PyTorch, over the (m, k, n) tensor that these products do without.
PLAIN = {
    "plus_times": (torch.mul, lambda x: x.sum(-2)),
    "min_plus": (torch.add, lambda x: x.amin(-2)),
    "max_plus": (torch.add, lambda x: x.amax(-2)),
    "min_times": (torch.mul, lambda x: x.amin(-2)),
    "max_times": (torch.mul, lambda x: x.amax(-2)),
    "min_max": (torch.maximum, lambda x: x.amin(-2)),
    "max_min": (torch.minimum, lambda x: x.amax(-2)),
    "plus_min": (torch.minimum, lambda x: x.sum(-2)),
    "log_plus": (torch.add, lambda x: x.logsumexp(-2)),
}
SELECTIVE = [name for name in PLAIN if sm.semirings[name].selective]
SHAPES = [
    ((3, 4), (4, 5)),
    ((2, 1, 3, 4), (3, 4, 5)),
    ((3, 4), (4,)),
    ((4,), (2, 4, 5)),
    ((4,),) * 2,
]
#: Over max_times and its kin, paths must not gain by going around.
WEIGHTS = {"min_plus": (0, 1), "max_plus": (-1, 0), "max_min": (0, 1), "min_max": (0, 1),
           "max_times": (0, 1), "min_times": (1, 2)}  # fmt: skip


def plain(a, b, name):
    times, plus = PLAIN[name]
    left, right = a[None] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b
    c = plus(times(left[..., :, :, None], right[..., None, :, :]))
    c = c.squeeze(-1) if b.ndim == 1 else c
    return c.squeeze(-1 if b.ndim == 1 else -2) if a.ndim == 1 else c


def tensors(*shapes, dtype=torch.float64, low=0.0, high=1.0, seed=0):
    """Numbers without ties."""
    rng = np.random.default_rng(seed)
    return [
        torch.tensor(rng.uniform(low, high, shape), dtype=dtype).requires_grad_()
        for shape in shapes
    ]


def gradients_of(result, inputs, seed=1):
    g = torch.tensor(np.random.default_rng(seed).normal(size=tuple(result.shape)))
    return torch.autograd.grad(result, inputs, g.to(result.dtype))


# --- products -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mul", ["a - b / 2", "a / (1 + b)", "exp(a) * b", "a if a > b else 2 * b"])
@pytest.mark.parametrize("add", ["max(a, b)", "a + b", "logaddexp(b, a)"])
def test_gradients_of_a_semiring_of_your_own(add, mul):
    s = sm.Semiring("mine", add, mul, 0, 1)
    assert gradcheck(lambda a, b: matmul(a, b, s), tensors((2, 3), (3, 2)))


def test_ties_go_to_the_smallest_k_and_the_left_operand():
    a, b = torch.zeros(1, 3, requires_grad=True), torch.zeros(3, 1, requires_grad=True)
    for name in SELECTIVE:
        c, arg = matmul(a + 1, b + 1, name, return_arg=True)
        assert arg.item() == 0
        da, db = torch.autograd.grad(c.sum(), (a, b))
        assert da.tolist() == [[1, 0, 0]]
        both = sm.semirings[name].mul in ("a + b", "a * b")
        assert db.tolist() == [[1.0 * both], [0], [0]]


def test_log_plus_where_little_or_nothing_is_reached():
    """PyTorch's own gradients are NaN there."""
    a, b = tensors((6, 7), (7, 5), low=-3e4, high=3e4)
    with torch.no_grad():
        a[1] = -inf  # reaches nothing
        a[:, 3] = b[2] = -inf  # ways that nobody takes
        b[:, 4] = -inf
    found = matmul(a, b, "log_plus")
    da, db = gradients_of(found, (a, b))
    assert not da[1].any()
    assert not db[:, 4].any()
    rows, cols = torch.tensor([0, 2, 3, 4, 5]), torch.arange(4)
    x, y = a.detach()[rows].requires_grad_(), b.detach()[:, cols].requires_grad_()
    g = torch.tensor(np.random.default_rng(1).normal(size=(6, 5)))
    expected = plain(x, y, "log_plus")
    assert_close(found[rows][:, cols], expected)
    dx, dy = torch.autograd.grad(expected, (x, y), g[rows][:, cols])
    assert_close(da[rows], dx)
    assert_close(db[:, cols], dy)


def test_log_plus_far_from_zero():
    """Long sequences have log-probabilities of some thousands, whose differences count."""
    a, b = tensors((6, 7), (7, 5), low=-5, high=5)
    x = (a.detach() - 2.0**14).float().requires_grad_()
    y = (b.detach() + 2.0**13 * torch.arange(5)).float().requires_grad_()
    exact = x.detach().double().requires_grad_(), y.detach().double().requires_grad_()
    found = gradients_of(matmul(x, y, "log_plus"), (x, y))
    expected = gradients_of(plain(*exact, "log_plus"), exact)
    rounding = 2.0**16 * torch.finfo(torch.float32).eps  # of the product, which a share is held to
    for part, whole in zip(found, expected, strict=True):
        assert_close(part.double(), whole, rtol=rounding, atol=rounding)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["min_plus", "max_times", "plus_times", "log_plus"])
def test_sixteen_bits_are_rounded_once(name, dtype):
    a, b = tensors((30, 40), (40, 50), dtype=dtype)
    x, y = (t.detach().double().requires_grad_() for t in (a, b))
    found, expected = matmul(a, b, name), matmul(x, y, name)
    c, arg = matmul(a, b, name, return_arg=True) if name in SELECTIVE else (found, None)
    eps = torch.finfo(dtype).eps
    assert found.dtype == dtype
    assert_close(found.double(), expected, rtol=eps, atol=eps)
    got = torch.autograd.grad(found.sum(), (a, b))
    for part, whole in zip(got, torch.autograd.grad(expected.sum(), (x, y)), strict=True):
        assert part.dtype == dtype
        assert_close(part.double(), whole, rtol=eps, atol=eps)
    assert arg is None or torch.equal(arg, matmul(x, y, name, return_arg=True)[1])
    assert torch.equal(c, found)


def test_autocast_leaves_dtypes_alone():
    (x,) = tensors((3, 3), dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = torch.nn.functional.linear(x, x)
        assert y.dtype == torch.bfloat16
        assert matmul(y, y, "log_plus").dtype == torch.bfloat16
        mixed = matmul(y, x, "min_plus")
    assert mixed.dtype == torch.float32
    mixed.sum().backward()
    assert x.grad.dtype == torch.float32


def test_views_and_one_operand_only():
    a, b = tensors((8, 6), (5, 4))
    x, y = a.T[::2, 1::2], b.flip(0)[:4]  # (3, 4), (4, 4)
    found = matmul(x, y.expand(2, 4, 4), "min_plus")
    expected = plain(x, y.expand(2, 4, 4), "min_plus")
    assert_close(gradients_of(found, (a, b)), gradients_of(expected, (a, b)))
    for name in PLAIN:
        for left, right, one in ((x, y.detach(), a), (x.detach(), y, b)):
            (found,) = gradients_of(matmul(left, right, name), (one,))
            assert_close(found, gradients_of(plain(left, right, name), (one,))[0])


def test_integers_and_bools():
    a = torch.tensor([[1, 2], [3, 4]], dtype=torch.int32)
    assert matmul(a, a, "min_plus").tolist() == [[2, 3], [4, 5]]
    assert matmul(a, a.double(), "min_plus").dtype == torch.float64
    assert matmul(a > 1, a > 1, "lor_land").tolist() == [[True, True], [True, True]]
    with pytest.raises(OverflowError):
        matmul(a.to(torch.int8) * 100, a.to(torch.int8), "plus_times")


def test_what_is_kept_for_the_gradient():
    kept = []
    a, b = tensors((20, 30), (30, 40))

    def keep(x):
        kept.append((tuple(x.shape), x.dtype))
        return x

    def kept_by(name):
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            matmul(a, b, name)
        return {shape for shape, _ in kept}

    assert kept_by("min_plus") == {(20, 40)}
    assert kept[0][1] == torch.int32
    assert kept_by("plus_times") == {(20, 30), (30, 40)}
    assert kept_by("max_times") == {(20, 30), (30, 40), (20, 40)}
    assert kept_by("log_plus") == {(20, 30), (30, 40), (20, 40)}


def test_shares_in_parts(monkeypatch):
    monkeypatch.setattr(gradients, "_ENTRIES", 40)
    a, b = tensors((3, 11), (11, 5))
    found, expected = matmul(a, b, "plus_min"), plain(a, b, "plus_min")
    assert_close(gradients_of(found, (a, b)), gradients_of(expected, (a, b)))


HYPOT = sm.Semiring("hypot", "sqrt(a*a + b*b)", "a * b", 0, 1)


def twice(function, x):
    (g,) = torch.autograd.grad(function(x).square().sum(), x, create_graph=True)
    return torch.autograd.grad(g.sum(), x)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: matmul(x, x[:2], "min_plus"), ValueError, "has k = 3, but b of shape"),
        (lambda x: matmul(x, 1.0), TypeError, "b is a float, and semiring_mm.torch takes tensors"),
        (lambda x: matmul(x, x, "plus_tims"), ValueError, "no built-in semiring 'plus_tims'"),
        (lambda x: matmul(x, x, "log_plus", return_arg=True), ValueError, "return_arg needs"),
        (lambda x: apsp(x.tolist()), TypeError, "the graph is a list"),
        (lambda x: closure(x, "plus_times"), ValueError, "needs an idempotent"),
        (lambda x: apsp(-x), sm.NegativeCycleError, "negative"),
        (lambda x: matmul(x, x, HYPOT).backward(x), NotImplementedError, "is known for hypot"),
        (lambda x: twice(lambda x: matmul(x, x, "log_plus"), x), NotImplementedError, "second"),
        (lambda x: twice(apsp, x), NotImplementedError, "none of closures"),
    ],
)  # fmt: skip
def test_refusals(call, error, words):
    with pytest.raises(error, match=words):
        call(tensors((3, 3))[0])


# --- closures -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WEIGHTS)
def test_gradients_of_closures_are_differences(name):
    low, high = WEIGHTS[name]
    (w,) = tensors((2, 5, 5), low=low, high=high)
    if math.isinf(zero := sm.semirings[name].zero):  # a little more than 0 is an edge of max_times
        with torch.no_grad():
            w[torch.rand(w.shape, generator=torch.manual_seed(0)) < 0.4] = zero
    assert gradcheck(lambda w: torch.nan_to_num(closure(w, name), 0, 0, 0), w)


def test_gradients_of_paths_from_some_nodes():
    assert gradcheck(lambda w: apsp(w, sources=[2, 4]), tensors((5, 5)))


@pytest.mark.parametrize("entries", [64, 1 << 20])
def test_a_distance_is_the_sum_along_its_path(entries, monkeypatch):
    """Ties and cycles of weight zero too: the paths are those of the predecessors."""
    monkeypatch.setattr(gradients, "_ENTRIES", entries)
    rng = np.random.default_rng(5)
    w = np.where(rng.random((40, 40)) < 0.1, rng.integers(0, 3, (40, 40)), inf)
    w = torch.tensor(w, requires_grad=True)
    d, p = apsp(w, return_predecessors=True)
    g = torch.tensor(rng.integers(-9, 10, (40, 40)).astype(float))
    g[~torch.isfinite(d)] = math.nan  # of no concern where no path leads
    expected = torch.zeros_like(w)
    for i in range(40):
        for j in range(40):
            if p[i, j] >= 0:
                path = sm.reconstruct_path(p, i, j)
                for u, v in itertools.pairwise(path):
                    expected[u, v] += g[i, j]
    (found,) = torch.autograd.grad(d, w, g)
    assert torch.equal(found, expected)


def test_long_paths():
    n = 300
    w = torch.full((n, n), inf)
    w[torch.arange(n - 1), torch.arange(1, n)] = 1.0
    w.requires_grad_()
    (found,) = torch.autograd.grad(apsp(w)[torch.triu_indices(n, n).unbind()].sum(), w)
    i = torch.arange(n - 1)
    assert torch.equal(found[i, i + 1], ((i + 1) * (n - 1 - i)).float())
    assert found.count_nonzero() == n - 1


# --- operators ----------------------------------------------------------------------------------


def test_gradients_along_a_cycle_are_an_error():
    p = torch.tensor([[-9999, 2, 1], [1, -9999, 1], [2, 2, -9999]], dtype=torch.int32)
    with pytest.raises(RuntimeError, match="these predecessors are no trees"):
        gradients.along_trees(sm.semirings["min_plus"], torch.ones(3, 3), None, None, p)


def layer(a, b, w, semiring):
    paths = apsp(torch.nn.functional.softplus(w), sources=[0, 2])
    return (
        matmul(torch.sigmoid(a), b, semiring).square().sum()
        + paths.sum()
        + closure(w, "max_min")[0, 1]
    )


@pytest.mark.parametrize(
    ("backend", "semiring"),
    [
        ("eager", "min_plus"), ("eager", CHEBYSHEV), ("aot_eager", "min_plus"),
        ("aot_eager", "max_times"), ("aot_eager", "log_plus"), ("aot_eager", CHEBYSHEV),
        pytest.param("inductor", "log_plus", marks=pytest.mark.slow),
        pytest.param("inductor", "max_times", marks=pytest.mark.slow),
    ],
    ids=str,
)  # fmt: skip
def test_compile_in_one_graph(backend, semiring):
    torch.compiler.reset()
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    for m in (3, 6, 7):  # other sizes, which become symbols
        inputs = tensors((m, 4), (4, 5), (5, 5), seed=m)
        found, expected = compiled(*inputs, semiring), layer(*inputs, semiring)
        assert_close(found, expected)
        assert_close(torch.autograd.grad(found, inputs), torch.autograd.grad(expected, inputs))


@pytest.mark.parametrize("name", ["plus_times", "max_times", "log_plus", "closure"])
def test_many_gradients_at_once(name):
    a, b = tensors((2, 3, 4, 4), (3, 4, 4))
    c = matmul(a, b, name) if name != "closure" else closure(a[0] * b, "max_times")
    g = torch.rand(5, *c.shape).double()
    at_once = torch.autograd.grad(c, (a, b), g, is_grads_batched=True, retain_graph=True)
    for i in range(5):
        one = torch.autograd.grad(c, (a, b), g[i], retain_graph=True)
        assert_close(tuple(x[i] for x in at_once), one)


# --- the benchmark ------------------------------------------------------------------------------


def test_the_benchmark_runs(tmp_path, capsys):
    assert neighbours_torch.main(["--quick", "--out", str(tmp_path / "raw.json")]) == 0
    raw, printed = json.loads((tmp_path / "raw.json").read_text()), capsys.readouterr().out
    assert [line["case"] for line in raw["lines"]] == list(neighbours_torch.LINES)
    for line in raw["lines"]:
        assert all(row["samples"] for row in line["contenders"])
        assert line["checked"]
        assert neighbours_torch.row(line).startswith(f"| {line['case']} | {line['size']} | ")
        assert f"| {line['case']} | {line['size']} | " in printed
    neighbours_torch.main(["--quick", "--memory", "min-plus product", "PyTorch"])
    assert int(capsys.readouterr().out) >= 0


def test_the_lines_of_sequences_agree_with_their_rivals(monkeypatch):
    """The lines of a CUDA device, here on tiny data of the host: building one compares results."""
    monkeypatch.setattr(gpu_sequences, "DEVICE", "cpu")
    draw = {"normal": "standard_normal", "uniform": "random"}

    def random(shape, dtype, data, seed=1):
        return getattr(np.random.default_rng(seed), draw[data])(shape).astype(dtype)

    monkeypatch.setattr(gpu_sequences.gpu, "random", random)
    monkeypatch.setattr(gpu_sequences.gpu, "alone", lambda call, longest: call)
    for case in gpu_sequences.CASES:
        for line in case.lines(Options(0, quick=True)):
            assert not line.skipped or "pytorch-crf absent" in line.skipped
            for contender in line.contenders:
                if contender.call is not None:
                    contender.call()
    wrong = torch.ones(3)
    with pytest.raises(AssertionError, match="off by"):
        gpu_sequences._close(wrong / 2, wrong)


# --- on a CUDA device ---------------------------------------------------------------------------


def test_work_on_tensors_of_pytorch_is_on_its_stream(monkeypatch):
    class Asked(Exception):
        pass

    def on(*where):
        raise Asked(where)

    monkeypatch.setattr(device, "why_not", lambda: "")
    monkeypatch.setattr(arrays, "where", lambda x, name: 1)
    monkeypatch.setattr(arrays, "_PLAIN", set())
    monkeypatch.setattr(engine, "on", on)
    stream = SimpleNamespace(cuda_stream=1234)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda index: (stream, None)[index != 1])
    with pytest.raises(Asked) as asked:
        sm.matmul(torch.ones(2, 2), torch.ones(2, 2))
    (where,) = asked.value.args
    assert where[:2] == (1, 1234)
    assert where[2].keywords == {"dtype": torch.uint8, "device": torch.device("cuda:1")}


@pytest.fixture
def cuda():
    if not torch.cuda.is_available():
        pytest.skip("PyTorch finds no CUDA device")
    return torch.device("cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("name", PLAIN)
def test_products_on_a_device(cuda, name, shapes):
    a, b = tensors(*shapes)
    x, y = (t.detach().to(cuda).requires_grad_() for t in (a, b))
    found = matmul(x, y, name)
    assert found.device.type == "cuda"
    assert_close(found.cpu(), matmul(a, b, name))
    for here, there in zip(
        gradients_of(matmul(a, b, name), (a, b)),
        torch.autograd.grad(
            found,
            (x, y),
            torch.tensor(np.random.default_rng(1).normal(size=tuple(found.shape))).to(cuda),
        ),
        strict=True,
    ):
        assert there.device.type == "cuda"
        assert_close(there.cpu(), here)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize(
    "shapes",
    [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((3, 0), (0, 5)), ((900, 1100), (1100, 1200))],
    ids=str,
)  # fmt: skip
def test_shares_on_a_device(cuda, dtype, shapes):
    """As on the host, in one launch that is kept, and of many terms by products."""
    a, b = tensors(*shapes, dtype=dtype, low=-5, high=5)
    there = [x.detach().to(cuda).requires_grad_() for x in (a, b)]
    if a.shape[-1]:
        with torch.no_grad():
            a[..., 1, :] = there[0][..., 1, :] = -inf
    expected = gradients_of(matmul(a, b, "log_plus"), (a, b))
    eps = (20 + a.shape[-1]) * torch.finfo(dtype).eps
    for _ in range(3):
        c = matmul(*there, "log_plus")
        g = torch.tensor(np.random.default_rng(1).normal(size=tuple(c.shape))).to(cuda, dtype)
        for x, y in zip(torch.autograd.grad(c, there, g), expected, strict=True):
            assert_close(x.cpu(), y, rtol=eps, atol=eps)


@pytest.mark.gpu
@pytest.mark.parametrize("name", WEIGHTS)
def test_closures_on_a_device(cuda, name):
    low, high = WEIGHTS[name]
    (w,) = tensors((3, 50, 50), low=low, high=high)
    x = w.detach().to(cuda).requires_grad_()
    found, expected = closure(x, name), closure(w, name)
    assert_close(found.cpu(), expected)
    g = torch.rand(w.shape, generator=torch.manual_seed(0)).double()
    (there,) = torch.autograd.grad(found, x, g.to(cuda))
    assert_close(there.cpu(), torch.autograd.grad(expected, w, g)[0])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["min_plus", "plus_times", "log_plus"])
def test_autocast_on_a_device(cuda, name, dtype):
    (x,) = tensors((16, 16), dtype=torch.float32)  # gradients within float16
    x = x.detach().to(cuda).requires_grad_()
    with torch.autocast("cuda", dtype=dtype):
        y = torch.nn.functional.linear(x, x)
        c = matmul(y, y, name)
    assert c.dtype == dtype
    c.float().sum().backward()
    assert torch.isfinite(x.grad).all()


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compile_on_a_device(cuda, backend):
    torch.compiler.reset()
    inputs = [t.detach().to(cuda).requires_grad_() for t in tensors((6, 4), (4, 5), (5, 5))]
    found = torch.compile(layer, fullgraph=True, backend=backend)(*inputs, "log_plus")
    assert_close(found, layer(*inputs, "log_plus"))
    torch.autograd.grad(found, inputs)


def test_packed_bits():
    a = torch.rand(20, 20) < 0.3
    x = sm.BitMatrix.pack(a)
    assert isinstance(x.bits, torch.Tensor)
    y = sm.BitMatrix(torch.from_numpy(np.packbits(a.numpy(), axis=-1)), 20)
    assert torch.equal(sm.matmul(x, y, "lor_land").unpack(), a.float() @ a.float() > 0)
    assert sm.gf2.rank(a) == sm.gf2.rank(a.numpy())


def test_a_repeated_product_is_looked_up_where_nobody_needs_the_operator(monkeypatch):
    """Not under gradients, compilation, tracing or a mode of dispatch."""
    a, kept, asked = torch.rand(3, 3), torch.zeros(()), []

    def repeat(head, operands):
        asked.append(head)
        return None if any(x.requires_grad for x in operands) else kept

    monkeypatch.setattr(arrays, "repeat", repeat)
    assert matmul(a, a, "min_plus") is kept
    assert matmul(a, a, "min_plus", return_arg=True) is kept
    assert asked == [("matmul", "min_plus", False), ("matmul", "min_plus", True)]
    matmul(a, a.clone().requires_grad_(), "min_plus").sum().backward()
    asked.clear()
    torch.compile(lambda x: matmul(x, x, "min_plus"), fullgraph=True, backend="eager")(a)
    make_fx = importlib.import_module("torch.fx.experimental.proxy_tensor").make_fx
    assert "semiring_mm.product" in make_fx(lambda x: matmul(x, x, "min_plus"))(a).code
    assert asked == []


def test_gradients_without_the_operator():
    """Nodes of autograd; a mode sees the operator."""
    python_dispatch = importlib.import_module("torch.utils._python_dispatch")
    seen = []

    class Mode(python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    a = torch.rand(3, 3, requires_grad=True)
    found = matmul(a, a, "log_plus")
    assert found.grad_fn.name() == "productBackward"
    with Mode():
        expected = matmul(a, a, "log_plus")
    assert "semiring_mm.product.default" in seen
    assert found.grad_fn.name() != expected.grad_fn.name()
    for x, y in zip(
        *(torch.autograd.grad(c.sum(), a, retain_graph=True) for c in (found, expected)),
        strict=True,
    ):
        torch.testing.assert_close(x, y)
    (g,) = torch.autograd.grad(found.sum(), a, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivatives of products"):
        g.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize(
    "shapes", [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((3, 0), (0, 5))], ids=str
)
def test_shares_by_the_functions_of_pytorch(monkeypatch, dtype, shapes):
    """As of many terms on a device, those of the engines."""
    monkeypatch.setattr(gradients, "_TERMS", {})
    torch.manual_seed(3)
    a, b = (torch.randn(s).to(dtype).requires_grad_() for s in shapes)
    with torch.no_grad():
        a[..., 1, :] = -torch.inf
        a[..., 0, :1] = torch.inf if dtype == torch.float64 else 80
    g = torch.randn(*shapes[0][:-1], shapes[1][-1]).to(dtype)
    results = []
    for there in (False, True):
        monkeypatch.setattr(operators, "_on_device", lambda x, there=there: there)
        results.append(torch.autograd.grad(matmul(a, b, "log_plus"), (a, b), g))
    for x, y in zip(*results, strict=True):
        torch.testing.assert_close(y, x, equal_nan=True)


def test_tensors_whose_memory_holds_the_negative_numbers():
    x = torch.randn(3, 3, dtype=torch.complex64).conj().imag
    assert x.is_neg()
    torch.testing.assert_close(sm.matmul(x, x), x @ x)
    torch.testing.assert_close(matmul(x, x), x @ x)
    np.testing.assert_array_equal(arrays._on_device(np, x, "a"), x.resolve_neg().numpy())
    for refused in (arrays._writable, lambda out: arrays._on_device(np, out, "out")):
        with pytest.raises(TypeError, match="imaginary part of a conjugate"):
            refused(x)


def test_other_functions_say_what_has_gradients():
    """No function that is not there: all that are, and how the others are called."""
    x = torch.ones(2, 2, requires_grad=True)
    names = [*semiring_torch.__all__]
    words = f"semiring_mm.torch has {', '.join(names[:-1])} and {names[-1]} with gradients; "
    calls = {
        "operand_0": lambda: sm.einsum("ij,jk->ik", x, x, semiring="min_plus"),
        "X": lambda: sm.neighbours.cdist(x, x),
        "w": lambda: sm.neighbours.knn(x.detach(), x.detach(), 1, w=x[0]),
        "x": lambda: sm.alignment.dtw(x[0], x[1]),
        "a": lambda: sm.gemm(1, x, x),
    }
    for name, call in calls.items():
        with pytest.raises(
            TypeError, match=f"{name} is a tensor .* give others {name}.detach"
        ) as e:
            call()
        assert words in str(e.value)
