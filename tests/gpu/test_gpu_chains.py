"""Chains and sequences on a CUDA device, as they are on the CPU."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import semiring_mm as sm
from semiring_mm import sequences
from semiring_mm.gpu import device

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(bool(device.why_not()), reason=device.why_not() or "there is a device"),
]
SIZES = [
    (3, 7, 5, "f4"), (2, 1, 5, "f4"), (4, 200, 32, "f4"), (4, 200, 32, "f8"), (2, 40, 128, "f4"),
    (2, 30, 230, "f4"), (300, 50, 17, "f4"), (3, 9, 100, "f8"),
]  # fmt: skip


def there(*arrays):
    import cupy

    return [cupy.asarray(x) for x in arrays]


@pytest.mark.parametrize(("batch", "steps", "states", "dtype"), SIZES)
def test_models(batch, steps, states, dtype):
    rng = np.random.default_rng(states)
    model = [rng.normal(size=s).astype(dtype) for s in
             ((batch, steps, states), (states, states), states, (batch, states))]  # fmt: skip
    model[1][rng.random((states, states)) < 0.1] = -np.inf
    on_device = there(*model)
    counts = rng.integers(0, steps + 1, batch)
    counts[0] = steps
    exact = [x.astype("f8") for x in model]
    eps = 2e-4 if dtype == "f4" else 1e-9
    tags = rng.integers(states, size=(batch, steps))
    for lengths in (None, counts):
        path, score = sequences.viterbi(*on_device, lengths=lengths)
        expected = sequences.viterbi(*model, lengths=lengths)
        assert_allclose(score.get(), expected[1], rtol=1e-6)
        assert_array_equal(path.get(), expected[0])
        total = sequences.log_partition(*on_device, lengths=lengths)
        assert_allclose(total.get(), sequences.log_partition(*exact, lengths=lengths), rtol=1e-6)
        found = sequences.marginals(*on_device, pairs=True, lengths=lengths)
        expected = sequences.marginals(*exact, pairs=True, lengths=lengths)
        assert_allclose(found[0].get(), expected[0], atol=eps)
        assert_allclose(found[1].get(), expected[1], atol=10 * eps, rtol=eps)
        loss = sequences.crf_loss(*on_device[:2], *there(tags), *on_device[2:], lengths=lengths)
        expected = sequences.crf_loss(*exact[:2], tags, *exact[2:], lengths=lengths)
        for name in ("loss", "emissions", "transitions", "start", "end"):
            x, y = getattr(loss, name).get(), getattr(expected, name)
            assert_allclose(x, y, atol=50 * eps, rtol=eps)
    laid = [model[0].reshape(-1, states), *model[1:]]  # one sequence after the other
    found = sequences.marginals(*there(*laid), lengths=[steps] * batch)
    assert_allclose(found.get(), sequences.marginals(*laid, lengths=[steps] * batch), atol=eps)
    assert_array_equal(sequences.viterbi(*model, device="cuda")[0], sequences.viterbi(*model)[0])
    loss, expected = (
        sequences.crf_loss(*model[:2], tags, *model[2:], **on).loss
        for on in ({"device": "cuda"}, {})
    )
    assert_allclose(loss, expected, rtol=1e-4)
    table, seen = (
        model[1][:, : min(states, 9)].clip(-9),
        rng.integers(0, min(states, 9), (2, steps)),
    )
    for verb in (sequences.log_partition, sequences.marginals):
        x, y = (verb(table, model[1], observations=seen, **on) for on in ({"device": "cuda"}, {}))
        assert_allclose(x, y, rtol=1e-4, atol=eps)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("max_plus", "f4"), ("min_plus", "i4"), ("plus_times", "f8"), ("log_plus", "f4"),
     ("max_times", "f2"), ("lor_land", "?")],
)  # fmt: skip
def test_chains(name, dtype):
    rng = np.random.default_rng(1)
    a, e, x = (rng.integers(0, 3, s).astype(dtype) for s in ((3, 9, 6, 6), (3, 9, 6), (3, 6)))
    far = there(a, e, x)
    for more in ({}, {"reverse": True}, {"lengths": [9, 0, 2]}):
        for names in ((), ("emissions",), ("emissions", "x")):
            for verb in (sm.scan, sm.chain):
                found, expected = (
                    verb(a, semiring=name, **dict(zip(names, rest, strict=False)), **more)
                    for a, *rest in (far, (a, e, x))
                )
                assert_allclose(found.get(), expected, rtol=2e-3 if dtype == "f2" else 1e-5)


@pytest.mark.parametrize(
    ("name", "states", "dtype"),
    [("log_plus", 130, "f4"), ("log_plus", 70, "f8"), ("log_plus", 130, "f2"),
     ("log_plus", 1100, "f4"), ("max_plus", 210, "f4"), ("plus_times", 110, "f8")],
)  # fmt: skip
def test_chains_of_many_states(name, states, dtype):
    """More than a block holds the matrix of, also more than it has threads."""
    rng = np.random.default_rng(states)
    a, e, x = (rng.normal(size=s).astype(dtype) for s in
               ((states, states), (3, 9, states), (3, states)))  # fmt: skip
    a[rng.random(a.shape) < 0.3] = sm.semirings[name].zero
    exact = [v.astype("f8") for v in (a, e, x)]
    far = there(a, e, x)
    for more in ({}, {"reverse": True}, {"lengths": [9, 0, 2]}):
        for verb in (sm.scan, sm.chain):
            found, expected = (
                verb(a, semiring=name, x=x, emissions=e, **more) for a, e, x in (far, exact)
            )
            assert_allclose(found.get(), expected, rtol=2e-3 if dtype == "f2" else 1e-5, atol=1e-4)


@pytest.mark.parametrize(("batch", "steps", "n", "dtype"),
                         [(3, 70, 9, "f4"), (1, 2000, 32, "f4"), (40, 50, 20, "f8")])  # fmt: skip
def test_products_over_log_plus(batch, steps, n, dtype):
    """Of matrices near to each other, and far apart."""
    rng = np.random.default_rng(n)
    lengths = rng.integers(0, steps + 1, batch)
    lengths[0] = steps
    for scale in (1, 60):
        a = rng.normal(0, scale, (batch, steps, n, n)).astype(dtype)
        a[rng.random(a.shape) < 0.1] = -np.inf
        found = sm.chain(*there(a), semiring="log_plus", lengths=lengths).get()
        expected = sm.chain(a.astype("f8"), semiring="log_plus", lengths=lengths)
        eps = 1e-5 if dtype == "f4" else 1e-12
        assert_allclose(found, expected, rtol=eps, atol=scale * eps)


def test_gradients():
    torch = pytest.importorskip("torch")
    from semiring_mm.torch import sequences as learn

    here = [torch.randn(s, dtype=torch.float64, requires_grad=True)
            for s in ((5, 40, 32), (32, 32))]  # fmt: skip
    cuda = [x.detach().cuda().requires_grad_() for x in here]
    tags = torch.randint(32, (5, 40))
    losses = [learn.crf_loss(*m, t, lengths=torch.tensor([40, 3, 2, 1, 40])).square().sum()
              for m, t in ((here, tags), (cuda, tags.cuda()))]  # fmt: skip
    torch.testing.assert_close(losses[1].cpu(), losses[0])
    for x, y in zip(*(torch.autograd.grad(v, m) for v, m in zip(losses, (here, cuda), strict=True)),
                    strict=True):  # fmt: skip
        torch.testing.assert_close(y.cpu(), x)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((64, 20, 8), "float32"), ((3, 30, 200), "float64"), ((2, 1, 5), "float32"),
     ((9, 100, 33), "float64")],
)  # fmt: skip
def test_launches_of_tensors(shape, dtype, monkeypatch):
    """The same by one launch as by the operators."""
    torch = pytest.importorskip("torch")
    from semiring_mm.torch import launches
    from semiring_mm.torch import sequences as learn

    (batch, steps, n), dtype = shape, getattr(torch, dtype)
    torch.manual_seed(n)
    shapes = (steps, batch, n), (n, n), (n,), (batch, n)
    e, a, start, end = (torch.randn(s, device="cuda", dtype=dtype) for s in shapes)
    e = e.transpose(0, 1)
    e[0, -1] = -torch.inf
    model = [x.requires_grad_() for x in (e, a, start, end)]
    tags = torch.randint(n, (batch, steps), device="cuda")
    lengths = torch.randint(steps + 1, (batch,), device="cuda")
    quick, results = launches.sequences, []
    for ready in (quick, lambda *_: None):
        asked = []
        monkeypatch.setattr(
            launches, "sequences", lambda *x, ready=ready, a=asked: a.append(ready(*x)) or a[-1]
        )
        found = []
        for counts in (None, lengths, lengths.tolist()):
            values = (
                learn.log_partition(*model, lengths=counts),
                learn.crf_loss(e, a, tags, start, end, lengths=counts),
            )
            for value in values:
                found += [value, *torch.autograd.grad(value[1:].square().sum(), model)]
            with torch.no_grad():
                found += learn.viterbi(*model, lengths=counts)
        results.append(found)
        assert [x is None for x in asked] == [ready is not quick] * 9
    eps = {"rtol": 2e-4, "atol": 2e-3} if dtype == torch.float32 else {"rtol": 1e-8, "atol": 1e-8}
    for x, y in zip(*results, strict=True):
        torch.testing.assert_close(x, y, equal_nan=True, **eps)


def test_graphs_of_training():
    """A loss and its gradients, captured in a graph."""
    torch = pytest.importorskip("torch")
    from semiring_mm.torch import sequences as learn

    e, a = (torch.randn(s, device="cuda", requires_grad=True) for s in ((5, 9, 4), (4, 4)))
    tags = torch.randint(4, (5, 9), device="cuda")

    def step():
        return torch.autograd.grad(learn.crf_loss(e, a, tags).sum(), (e, a))

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    with torch.no_grad():
        e.copy_(torch.randn_like(e))
    tags.copy_(torch.randint_like(tags, 4))
    graph.replay()
    torch.testing.assert_close(found, step())


def test_samples():
    rng = np.random.default_rng(4)
    model = rng.normal(size=(3, 20, 40)), rng.normal(size=(40, 40))
    found = sequences.sample(*there(*model), size=50, lengths=[20, 0, 7], rng=1)
    expected = sequences.sample(*model, size=50, lengths=[20, 0, 7], rng=1)
    assert_array_equal(found.get(), expected)
    draws = sequences.sample(*model, size=4000, rng=2, device="cuda")
    share = (draws[..., np.newaxis] == np.arange(40)).mean(0)
    assert_allclose(share, sequences.marginals(*model), atol=0.05)


def test_the_best_paths():
    rng = np.random.default_rng(5)
    model = rng.normal(size=(3, 50, 20)), rng.normal(size=(20, 20))
    found = sequences.viterbi(*there(*model), k=7, lengths=[50, 0, 9])
    expected = sequences.viterbi(*model, k=7, lengths=[50, 0, 9])
    for one, other in zip(found, expected, strict=True):
        assert_array_equal(one.get(), other)


def test_long_sequences():
    """In parts, side by side."""
    rng = np.random.default_rng(6)
    model = rng.normal(size=(12000, 8)), rng.normal(size=(8, 8))
    path, score = sequences.viterbi(*there(*model))
    expected = sequences.viterbi(*model)
    assert_array_equal(path.get(), expected[0])
    assert_allclose(score.get(), expected[1])
    assert_allclose(sequences.log_partition(*there(*model)).get(), sequences.log_partition(*model))
    found = sequences.marginals(*there(*model), pairs=True)
    for one, other in zip(found, sequences.marginals(*model, pairs=True), strict=True):
        assert_allclose(one.get(), other, atol=1e-6, rtol=1e-6)
