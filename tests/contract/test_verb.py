"""Rows of verbs: how a signature reads, what its errors say, and gradients that follow from it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import semiring_mm as sm
from semiring_mm.text import docstring
from semiring_mm.verb import Verb

ROW = Verb(
    "mix",
    "a ...[U]ST, b ...TK, c ...K = 0, lengths ...:i8 = T; kind: str, sources: int[]? "
    "-> d ...SK, p ...2:i4",
    axes=lambda given: ["SK", "2" if given["kind"] == "both" else None],
)


def test_a_signature():
    assert [(x.name, x.axes, x.shorter) for x in ROW.operands[:2]] == [
        ("a", "UST", "ST"), ("b", "TK", None),
    ]  # fmt: skip
    assert [x.default for x in ROW.operands] == [None, None, "0", "T"]
    assert [x.dtype for x in (*ROW.operands, *ROW.results)] == [None, None, None, "i8", None, "i4"]
    assert ROW.options == (("kind", "str"), ("sources", "int[]?"))


def test_sizes_and_batches():
    assert ROW.check([(2, 3), (3, 4), None, None]) == ((), {"S": 2, "T": 3, "K": 4})
    batch, sizes = ROW.check([(5, 1, 2, 3), (7, 1, 3, 4), (4,), (7, 5)])
    assert (batch, sizes["U"]) == ((7, 5), 1)


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ([(3,), (3, 4), None, None], r"other: a is of shape \(..., U, S, T\); got shape \(3,\)"),
        ([(2, 3), (5, 4), None, None], r"b is of .* T, K\) with T = 3 as in a; got shape \(5, 4\)"),
        ([(2, 3), (3, 4), (5,), None], r"c is of shape \(..., K\) with K = 4 as in b; got"),
        ([(2, 1, 2, 3), (3, 3, 4), None, None], r"dimensions \(2,\), \(3,\) do not broadcast"),
        ([(2, 3), (3, 4), None, (5,)], "lengths of shape .* for one sequence of 3 steps"),
    ],
)  # fmt: skip
def test_an_error_names_the_operand_and_the_axis(shapes, words):
    with pytest.raises(ValueError, match=words):
        ROW.check(shapes, verb="other")
    with pytest.raises(TypeError, match="b must be an array of numbers, got None"):
        ROW.check([(2, 3), None, None, None])


def test_shapes_of_results():
    a, b = np.zeros((5, 1, 2, 3)), np.zeros((3, 4))
    assert ROW.result_shapes((a, b, None, None, "one", None)) == [(5, 2, 4), None]
    assert ROW.result_shapes((a, b, None, None, "both", None)) == [(5, 2, 4), (5, 2)]


def test_a_mapped_axis_leads():
    a, b = np.zeros((5, 1, 2, 3)), np.zeros((3, 6, 4))
    found = ROW.front((None, 1), (a, b, None, None, "", None), 6, np.moveaxis, np.broadcast_to)
    assert [x.shape for x in found[:2]] == [(6, 5, 1, 2, 3), (6, 1, 3, 4)]


def test_docstrings_are_derived():
    def function(a, b, k):
        """Something with gradients.

        Parameters
        ----------
        b : array_like, shape (1,)
            Of its own.

        Notes
        -----
        Its gradient.
        """

    def source(a, b, c, d, k):
        """Something.

        Parameters
        ----------
        a, b : array_like, shape (2,)
            Both.
        c, k, d
            As for another.

        Returns
        -------
        ndarray, shape (3,)

        Notes
        -----
        Of no concern.
        """

    text = docstring(function, source, "Tensor", "home")
    assert text.splitlines()[0] == "Something with gradients."
    assert "a : Tensor, shape (2,)\n    Both.\nb : Tensor, shape (1,)\n    Of its own.\nk\n" in text
    assert "Returns\n-------\nTensor, shape (3,)\n" in text
    assert "Its gradient." in text
    assert "concern" not in text
    assert "home.source : For all libraries" in text


# --- einsum, cdist and dtw in the libraries that differentiate ------------------------------------

METRICS = [
    "cityblock", "euclidean", "sqeuclidean", "chebyshev", "hamming", "canberra", "braycurtis",
    "cosine", "haversine", ("minkowski", 3), ("minkowski", 1.7), ("minkowski", 0.5),
]  # fmt: skip
SUMS = {
    "ij,jk->ik": ((3, 4), (4, 2)), "ij->i": ((3, 4),), "bij,bjk->bk": ((2, 3, 4), (2, 4, 2)),
    "ij,ij->": ((3, 4), (3, 4)), "i,j->ij": ((3,), (4,)), "bi,bi->b": ((2, 3), (2, 3)),
    "ii->i": ((3, 3),), "...i,i": ((2, 3), (3,)), "ij,jk,kl->il": ((2, 3), (3, 2), (2, 4)),
    "ij,ij->ij": ((3, 4), (3, 4)),
}  # fmt: skip


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def learn(torch):
    from semiring_mm import torch as learn

    return learn


def tensors(torch, *shapes):
    rng = np.random.default_rng(0)
    return [torch.tensor(rng.normal(size=shape), requires_grad=True) for shape in shapes]


def on_host(x):
    return x.detach().numpy()


@pytest.mark.parametrize("metric", METRICS, ids=str)
def test_gradients_of_distances(torch, learn, metric):
    name, p = metric if isinstance(metric, tuple) else (metric, 2)
    columns = 2 if name == "haversine" else 3
    x, y = tensors(torch, (5, columns), (4, columns))
    if name == "haversine":
        x, y = ((v / 2).detach().requires_grad_() for v in (x, y))  # latitudes below π / 2
    found = learn.cdist(x, y, name, p=p)
    assert_allclose(
        found.detach(), sm.neighbours.cdist(on_host(x), on_host(y), name, p=p), rtol=1e-12
    )
    assert torch.autograd.gradcheck(lambda x, y: learn.cdist(x, y, name, p=p), (x, y))
    learn.cdist(x, x, name, p=p).sum().backward()
    assert torch.isfinite(x.grad).all()  # between equal rows, too


def test_distances_of_one_s_own_metric(torch, learn):
    rms = sm.neighbours.Metric("rms", "(a - b) * (a - b)", final="sqrt(a / b)")
    x, y = tensors(torch, (5, 3), (4, 3))
    assert_allclose(
        learn.cdist(x, y, rms).detach(), sm.neighbours.cdist(on_host(x), on_host(y), rms)
    )
    assert torch.autograd.gradcheck(lambda x, y: learn.cdist(x, y, rms), (x, y))
    with pytest.raises(ValueError, match=r"Y is .* with K = 3 as in X; got shape \(4, 2\)"):
        learn.cdist(x, y[:, :2])


@pytest.mark.parametrize("semiring", ["plus_times", "min_plus", "log_plus", "max_times"])
@pytest.mark.parametrize("subscripts", SUMS)
def test_gradients_of_einstein_sums(torch, learn, subscripts, semiring):
    operands = tensors(torch, *SUMS[subscripts])

    def call(*operands):
        return learn.einsum(subscripts, *operands, semiring=semiring)

    expected = sm.einsum(subscripts, *map(on_host, operands), semiring=semiring)
    assert_allclose(call(*operands).detach(), expected, rtol=1e-12)
    assert torch.autograd.gradcheck(call, operands)
    if semiring == "plus_times":
        assert torch.autograd.gradgradcheck(call, operands)


def test_sums_of_other_dtypes(torch, learn):
    a = torch.tensor([[1, 2], [3, 4]])
    for x, semiring in ((a, "min_plus"), (a > 1, "lor_land"), (a.bfloat16(), "max_plus")):
        for subscripts in ("ij,jk->ik", "ij,ij->ij"):
            found = learn.einsum(subscripts, x, x, semiring=semiring)
            assert torch.equal(found, sm.einsum(subscripts, x, x, semiring=semiring))
    with pytest.raises(OverflowError):
        learn.einsum(
            "i,i->i", *[torch.full((2,), 100, dtype=torch.int8)] * 2, semiring="plus_times"
        )


def test_compiled_in_one_graph(torch, learn):
    torch.compiler.reset()

    def loss(x, y):
        far = learn.cdist(x, y, "cityblock").sum() + learn.dtw(x, y, cost="squared")
        far = far + learn.cdist(x, y, "minkowski", p=3).sum()
        return far + learn.einsum("ij,kj,kl->il", x, y, y, semiring="log_plus").sum()

    x, y = tensors(torch, (5, 3), (4, 3))
    found = torch.compile(loss, fullgraph=True, backend="aot_eager")(x, y)
    torch.testing.assert_close(found, loss(x, y))
    grads = (torch.autograd.grad(value, (x, y)) for value in (found, loss(x, y)))
    torch.testing.assert_close(*grads)


TAGS = [0, 1, 2, 0, 1]
MODEL = ((5, 3), (3, 3))
NETWORK = sm.prepare({0: {1: 3.0, 2: 8.0}, 1: {2: 1.0, 3: 4.0}, 2: {3: 1.0}})
#: Every public function, and the shapes of its operands.
FUNCTIONS = {
    "matmul": (lambda m, x, y: m.matmul(x, y, "log_plus"), ((3, 4), (4, 5))),
    "closure": (lambda m, x: m.closure(x, "max_min"), ((4, 4),)),
    "apsp": (lambda m, x: m.apsp(x), ((4, 4),)),
    "distances": (lambda m, x: m.distances(NETWORK, x, [0, 1], [2, 3]), ((5,),)),
    "chain": (lambda m, a, x: m.chain(a, x, "log_plus"), ((3, 2, 2), (2,))),
    "scan": (lambda m, a: m.scan(a), ((3, 2, 2),)),
    "einsum": (lambda m, x, y: m.einsum("ij,kj->ik", x, y, semiring="min_plus"), ((3, 4), (5, 4))),
    "cdist": (lambda m, x, y: m.cdist(x, y), ((3, 4), (5, 4))),
    "dtw": (lambda m, x, y: m.dtw(x, y), ((6,), (5,))),
    "viterbi": (lambda m, e, a: m.sequences.viterbi(e, a)[1], MODEL),
    "log_partition": (lambda m, e, a: m.sequences.log_partition(e, a), MODEL),
    "marginals": (lambda m, e, a: m.sequences.marginals(e, a), MODEL),
    "forward": (lambda m, e, a: m.sequences.forward(e, a), MODEL),
    "backward": (lambda m, e, a: m.sequences.backward(e, a), MODEL),
    "score": (lambda m, e, a: m.sequences.score(e, a, tags_of(m)), MODEL),
    "crf_loss": (lambda m, e, a: m.sequences.crf_loss(e, a, tags_of(m)), MODEL),
}


def tags_of(module):
    return np.array(TAGS) if module.__name__.endswith("jax") else module.torch.tensor(TAGS)


def case(torch, learn, name):
    """A function's sum, operands, and its gradients by PyTorch's backward pass."""
    function, shapes = FUNCTIONS[name]
    operands = [x.abs().detach().requires_grad_() for x in tensors(torch, *shapes)]
    expected = torch.autograd.grad(function(learn, *operands).sum(), operands)
    return function, [x.detach() for x in operands], expected


def test_every_function_is_here(torch, learn):
    names = {*learn.__all__, *learn.sequences.__all__} - {"sequences"}
    assert names == FUNCTIONS.keys()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_transformations_of_pytorch(torch, learn, name):
    function, operands, expected = case(torch, learn, name)

    class Module(torch.nn.Module):
        def forward(self, *operands):
            return function(learn, *operands)

    exported = torch.export.export(Module(), tuple(operands)).module()
    torch.testing.assert_close(exported(*operands), function(learn, *operands))
    every = tuple(range(len(operands)))
    grad = torch.func.grad(lambda *x: function(learn, *x).sum(), argnums=every)
    torch.testing.assert_close(grad(*operands), expected)
    stacks = [torch.stack([x * 2, x]) for x in operands]
    for found, wanted in zip(torch.func.vmap(grad)(*stacks), expected, strict=True):
        torch.testing.assert_close(found[1], wanted)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_transformations_of_jax(torch, learn, name):
    jax = pytest.importorskip("jax")
    from semiring_mm import jax as there

    function, operands, expected = case(torch, learn, name)
    every = tuple(range(len(operands)))
    with jax.enable_x64(True):
        stacks = [np.stack([x * 2, x]) for x in operands]
        grad = jax.grad(lambda *x: function(there, *x).sum(), argnums=every)
        for found, wanted in zip(jax.jit(jax.vmap(grad))(*stacks), expected, strict=True):
            assert_allclose(found[1], wanted, atol=1e-12)

        def step(total, x):
            value = function(there, *x)
            return total + value.sum(), value

        _, values = jax.jit(lambda *x: jax.lax.scan(step, 0.0, x))(*stacks)
        assert_allclose(values[1], function(learn, *operands), rtol=1e-12)
