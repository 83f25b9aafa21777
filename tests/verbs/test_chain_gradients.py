"""Gradients of chains and sequences: against differences, of each library's own operators."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import semiring_mm as sm
from semiring_mm import sequences as host
from tests.verbs.test_sequences import model

torch = pytest.importorskip("torch", reason="PyTorch is not here: pip install '.[torch]'")
from torch.autograd import gradcheck, gradgradcheck  # noqa: E402
from torch.testing import assert_close  # noqa: E402

from semiring_mm.torch import chain, scan, sequences  # noqa: E402

LENGTHS = torch.tensor([3, 2, 0])
TAGS = torch.tensor([[0, 1, 1], [1, 0, 9], [7, 7, 7], [1, 1, 0]])  # not read behind the ends
MODELS = {
    "log_partition": sequences.log_partition,
    "marginals": sequences.marginals,
    "pairs": lambda *m, **k: sequences.marginals(*m, **k, pairs=True),
    "viterbi": lambda *m, **k: sequences.viterbi(*m, **k)[1],
    "score": lambda e, a, *ends, **k: sequences.score(e, a, TAGS, *ends, **k),
    "crf_loss": lambda e, a, *ends, **k: sequences.crf_loss(e, a, TAGS, *ends, **k),
    "forward": lambda e, a, s, t, **k: finite(sequences.forward(e, a, s, **k)),
    "backward": lambda e, a, s, t, **k: finite(sequences.backward(e, a, t, **k)),
}


def finite(x):
    return torch.nan_to_num(x, 0, 0, 0)


def numbers(*shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [torch.tensor(rng.uniform(0.2, 1, shape), requires_grad=True) for shape in shapes]


def models(each, ragged):
    scores, counts = model(2, 3, each)
    args = [torch.tensor(x, requires_grad=True) for x in scores.values()]
    return args, {"lengths": torch.tensor(counts) if ragged else None}


@pytest.mark.parametrize("reverse", [False, True])
def test_what_lies_behind_an_end_has_no_gradient(reverse):
    clean = numbers((3, 3, 2, 2), (3, 2), (3, 3, 2))
    dirty = [v.detach().clone() for v in clean]
    for v in (dirty[0], dirty[2]):
        v[1, 2] = v[2] = torch.nan

    def gradients(a, x, e):
        operands = [v.detach().requires_grad_() for v in (a, x, e)]
        y = chain(operands[0], operands[1], "log_plus", emissions=operands[2], lengths=LENGTHS,
                  reverse=reverse)  # fmt: skip
        found = torch.autograd.grad(y.square().sum(), operands, create_graph=True)
        return found, torch.autograd.grad(sum(v.square().sum() for v in found), operands)

    assert_close(gradients(*dirty), gradients(*clean))


@pytest.mark.parametrize("each", [False, True], ids=["one matrix", "a matrix a step"])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_sequences_are_differences(name, each):
    args, lengths = models(each, ragged=name != "viterbi")
    function = MODELS[name]
    assert gradcheck(lambda *m: function(*m, **lengths), args, fast_mode=True)
    assert gradgradcheck(lambda *m: function(*m, **lengths), args, fast_mode=True)


def test_results_are_those_of_the_host():
    args, lengths = models(True, True)
    plain = [v.detach().numpy() for v in args]
    counts = lengths["lengths"].numpy()
    for name in ("log_partition", "marginals"):
        found = getattr(sequences, name)(*args, **lengths).detach()
        assert_allclose(found, getattr(host, name)(*plain, lengths=counts))
    path, score = sequences.viterbi(*args, **lengths)
    assert path.tolist() == host.viterbi(*plain, lengths=counts)[0].tolist()
    assert_allclose(score.detach(), host.viterbi(*plain, lengths=counts)[1])
    loss = sequences.crf_loss(args[0], args[1], TAGS, *args[2:], **lengths)
    expected = host.crf_loss(*plain[:2], TAGS.numpy(), *plain[2:], lengths=counts)
    assert_allclose(loss.detach(), expected.loss)
    for x, name in zip(torch.autograd.grad(loss.sum(), args),
                       ("emissions", "transitions", "start", "end"), strict=True):  # fmt: skip
        assert_allclose(x, getattr(expected, name), atol=1e-12)
    for name, m in (("forward", args[:3]), ("backward", [*args[:2], args[3]])):
        found = getattr(sequences, name)(*m, **lengths).detach()
        numpy = [v.detach().numpy() for v in m]
        assert_allclose(found, getattr(host, name)(*numpy, lengths=counts))
    half = [v.detach().half() for v in args[:2]]
    assert sequences.log_partition(*half).dtype == torch.float32
    assert chain(half[1], semiring="max_plus").dtype == torch.float16
    assert scan(torch.tensor([[[1, 1], [1, 0]]] * 5))[:, 0, 1].tolist() == [1, 1, 2, 3, 5]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("steps", [3, 30, 300])
def test_entropies_of_chains(steps, reverse):
    """The log-sum less the mean score, in float32: a step's shares sum to 1 whatever is rounded."""
    scores = numbers((3, steps, 5, 5))[0].detach() * 4

    def entropy(dtype):
        a = scores.float().to(dtype).requires_grad_()
        ends = chain(a, torch.zeros(3, 5, dtype=dtype), "log_plus", reverse=reverse)
        high = ends.amax(-1, keepdim=True).detach()  # a large logarithm has digits of no share
        total = (ends - high).logsumexp(-1) + high[:, 0]
        often = torch.autograd.grad(total.sum(), a)[0]
        return (total.detach() - (often * a.detach()).sum((1, 2, 3))).double()

    assert_close(entropy(torch.float32), entropy(torch.float64), rtol=5e-6, atol=0)


@pytest.mark.parametrize("reverse", [False, True])
def test_infinite_factors_without_a_share(reverse):
    """What is not chosen has no gradient, also where the derivative of ⊗ is infinite."""
    a, x, e = numbers((2, 2), (2,), (3, 2))
    found = []
    for far in (torch.inf, 1e6):
        operands = [v.detach().clone() for v in (a, x, e)]
        operands[0][0, 1] = far
        for v in operands:
            v.requires_grad_()
        y = chain(operands[0], operands[1], "min_times", emissions=operands[2], reverse=reverse)
        found.append(torch.autograd.grad(y.sum(), operands))
    assert_close(*found)


def test_no_sequence_is_possible():
    e, a = torch.zeros(2, 3, 2, requires_grad=True), torch.full((2, 2), -torch.inf)
    total = sequences.log_partition(e, a)
    assert (total == -torch.inf).all()
    assert not torch.autograd.grad(total.sum(), e)[0].any()


def layer(e, a, tags):
    loss = sequences.crf_loss(e, a, tags).square().sum() + sequences.viterbi(e, a)[1].sum()
    return loss + chain(a, e[:, 0], "log_plus", emissions=e).sum()


def test_compile_in_one_graph():
    torch.compiler.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    e, a = numbers((2, 4, 3), (3, 3))
    tags = torch.zeros(2, 4, dtype=torch.long)
    found, expected = compiled(e, a, tags), layer(e, a, tags)
    assert_close(found, expected)
    assert_close(torch.autograd.grad(found, (e, a)), torch.autograd.grad(expected, (e, a)))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda e, a: sequences.viterbi([[1.0]], a), TypeError, "emissions is a list"),
        (lambda e, a: sequences.viterbi(e, a[:1]), ValueError, r"shape \(2, 2\) for all steps"),
        (lambda e, a: sequences.viterbi(e, a, a[:, :1]), ValueError, "start has S = 2 scores"),
        (lambda e, a: sequences.viterbi(e, a, lengths=[1, 1]), ValueError, "one for each"),
        (lambda e, a: sequences.viterbi(e[0], a, lengths=[1, 1]), ValueError, "one sequence of 3"),
        (lambda e, a: sequences.score(e, a, TAGS), ValueError, "tags must be from 0 to 1"),
        (lambda e, a: chain(a), ValueError, "chain takes square matrices"),
        (lambda e, a: chain(a, "max_plus"), TypeError, "x is a vector"),
        (
            lambda e, a: chain(
                a[None], semiring=sm.Semiring("hypot", "sqrt(a*a + b*b)", "a * b", 0, 1)
            ).sum().backward(),
            NotImplementedError, "no gradient is known",
        ),
    ],
)  # fmt: skip
def test_refusals(call, error, words):
    e, a = numbers((4, 3, 2), (2, 2))
    with pytest.raises(error, match=words):
        call(e, a)


@pytest.mark.parametrize("library", ["torch", "jax"])
@pytest.mark.parametrize("name", ["viterbi", "log_partition", "marginals", "forward", "backward"])
def test_errors_name_the_function_that_was_called(name, library):
    """Lengths are looked at behind operators that several functions have in common."""
    there, at = in_library(library)
    e, a, lengths = there(np.zeros((4, 3, 2))), there(np.zeros((2, 2))), there([3, 3, 3, 9])
    with pytest.raises(ValueError, match=f"{name}: lengths must be from 0 to the 3 steps"):
        getattr(at, name)(e, a, lengths=lengths)


@pytest.mark.parametrize("library", ["torch", "jax"])
@pytest.mark.parametrize("name", ["score", "crf_loss"])
def test_errors_of_tags_name_the_function_that_was_called(name, library):
    there, at = in_library(library)
    e, a = there(np.zeros((4, 3, 2))), there(np.zeros((2, 2)))
    for tags, words in (
        (np.full((4, 3), 2), "tags must be from 0 to 1, got 2 to 2"),
        (np.zeros((4, 2), int), r"tags of shape \(4, 2\) for 3 steps of sequences of shape \(4,\)"),
    ):
        with pytest.raises(ValueError, match=f"{name}: {words}"):
            getattr(at, name)(e, a, there(tags))
    with pytest.raises(ValueError, match=f"{name}: lengths must be from 0 to the 3 steps"):
        getattr(at, name)(e, a, there(np.zeros((4, 3), int)), lengths=there([0, 0, 0, -1]))


def in_library(library):
    """What makes arrays of a library, and its functions of sequences."""
    if library == "torch":
        return torch.as_tensor, sequences
    jax = pytest.importorskip("jax")
    from semiring_mm.jax import sequences as there

    return jax.numpy.asarray, there


# --- JAX ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["log_partition", "crf_loss", "chain"])
def test_jax_agrees(name):
    """With its first and second derivatives inside jit, and under vmap."""
    jax = pytest.importorskip("jax")
    from semiring_mm import jax as sj

    args, lengths = models(False, True)
    counts = lengths["lengths"].numpy()

    def call(module, own, e, a, start, end):
        if name == "chain":
            return module.chain(a, start, "log_plus", emissions=e, lengths=own(counts))
        more = (own(TAGS.numpy()),) if name == "crf_loss" else ()
        return getattr(module.sequences, name)(e, a, *more, start, end, lengths=own(counts))

    def total(*m):
        return (call(sj, np.asarray, *m) ** 2).sum()

    which = (0, 1, 2)
    with jax.enable_x64(True):
        plain = [v.detach().numpy() for v in args]
        found = jax.jit(jax.grad(total, which))(*plain)
        twice = jax.jit(
            jax.grad(lambda *m: sum((g**2).sum() for g in jax.grad(total, which)(*m)), which)
        )(*plain)
        if name == "log_partition":
            each = jax.vmap(lambda e: sj.sequences.log_partition(e, plain[1]))(plain[0])
            assert_allclose(each, host.log_partition(*plain[:2]))
    whole = (call(sm.torch, torch.tensor, *args) ** 2).sum()
    expected = torch.autograd.grad(whole, args[:3], create_graph=True)
    for x, y in zip(found, expected, strict=True):
        assert_allclose(x, y.detach(), atol=1e-12)
    squares = sum((g**2).sum() for g in expected)
    for x, y in zip(twice, torch.autograd.grad(squares, args[:3]), strict=True):
        assert_allclose(x, y, atol=1e-11)
