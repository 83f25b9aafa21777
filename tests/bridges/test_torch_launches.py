"""Models of PyTorch's tensors that take one launch on a device, against the operators.

The kernels run on the host, on tensors of the host.
"""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from host_device import HostDevice

torch = pytest.importorskip("torch")

from semiring_mm import sequences as host_sequences  # noqa: E402
from semiring_mm.gpu import chain, device, wide  # noqa: E402
from semiring_mm.torch import launches, sequences  # noqa: E402

pytestmark = pytest.mark.usefixtures("gxx")
HOST = HostDevice()
BATCH, STEPS, STATES = 4, 6, 5
LENGTHS = [6, 0, 3, 1]


class Cuda:
    """Tensors of the host count as those of a device."""

    def __init__(self):
        self.number = torch.zeros(1, dtype=torch.int32)
        self.waits, self.graph = 0, False

    def has(self, x):
        return True

    def stream(self, index):
        return 0

    def captures(self):
        return self.graph

    def flag(self):
        return self.number

    def wait(self, stream):
        self.waits += 1


@pytest.fixture
def cuda(monkeypatch):
    on = Cuda()
    monkeypatch.setattr(device, "current", lambda: HOST)
    monkeypatch.setattr(device, "why_not", lambda: "")
    monkeypatch.setattr(launches, "cuda", on)
    monkeypatch.setattr(launches, "_models", {})
    HOST.launched.clear()
    return on


def model(dtype=torch.float64, states=STATES, shapes=(None, "sequence")):
    torch.manual_seed(states)
    made = {None: (states,), "sequence": (BATCH, states)}
    shapes = [(BATCH, STEPS, states), (states, states), *(made[s] for s in shapes)]
    return [torch.randn(s, dtype=dtype, requires_grad=True) for s in shapes]


def both(monkeypatch, call):
    """What one launch makes, or two with gradients, and what the operators make."""
    HOST.launched.clear()
    found = call()
    kernels = [re.findall(r"sr::(\w+)<.*::run", source)[0] for source in HOST.launched]
    kept = (["Posterior"], ["BestPath"], ["Posterior", "TotalGradients"])
    assert kernels in (([], ["TotalGradients"]) if wide._HELD < STATES else kept)
    with monkeypatch.context() as patch:
        patch.setattr(launches, "sequences", lambda *_: None)
        patch.setattr(device, "current", lambda: None)
        return found, call()


def gradients(value, operands):
    weights = torch.linspace(0.5, 2, value.numel(), dtype=value.dtype).view_as(value)
    return torch.autograd.grad((value * weights).sum(), operands)


@pytest.fixture(params=[False, True], ids=["few", "many"])
def states(request, monkeypatch):
    """Few, or as if they were many: the sums are those of tensors on the host then."""
    if request.param:
        monkeypatch.setattr(wide, "_HELD", 3)


@pytest.mark.parametrize("lengths", [None, LENGTHS, torch.tensor(LENGTHS, dtype=torch.int32)])
@pytest.mark.parametrize("tagged", [False, True])
def test_sums_and_gradients(cuda, states, monkeypatch, tagged, lengths):
    operands = model()
    with torch.no_grad():
        operands[1][0, 1] = -torch.inf
    e, a, start, end = operands
    tags = torch.randint(STATES, (BATCH, STEPS))
    tags[:, 1:][(tags[:, :-1] == 0) & (tags[:, 1:] == 1)] = 2  # possible ones

    def call():
        if tagged:
            value = sequences.crf_loss(e, a, tags, start, end, lengths=lengths)
        else:
            value = sequences.log_partition(e, a, start, end, lengths=lengths)
        return value, *gradients(value, operands)

    found, expected = both(monkeypatch, call)
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x, y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("lengths", [None, torch.tensor(LENGTHS)], ids=["whole", "ragged"])
def test_without_gradients(cuda, states, monkeypatch, lengths, dtype):
    """Emissions in another order of axes, and rows that are not contiguous."""
    e, a, start, end = (x.detach() for x in model(dtype))
    a[2] = -torch.inf
    tags = torch.randint(STATES, (BATCH, STEPS))
    turned, apart = e.transpose(0, 1).contiguous().transpose(0, 1), torch.empty(*e.shape, 2)
    apart = apart.to(dtype)[..., 0].copy_(e)
    for call in (
        lambda: sequences.viterbi(turned, a.T, start, end, lengths=lengths),
        lambda: sequences.viterbi(apart, a, lengths=lengths),
        lambda: (sequences.log_partition(turned, a, end=end, lengths=lengths),),
        lambda: (sequences.crf_loss(apart, a.T, tags, start, lengths=lengths),),
    ):
        for x, y in zip(*both(monkeypatch, call), strict=True):
            torch.testing.assert_close(x, y)
    path, _ = sequences.viterbi(e, a, lengths=LENGTHS)
    assert [(row >= 0).sum() for row in path] == LENGTHS


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_where_no_sequence_is_possible(cuda, states, monkeypatch, dtype):
    """Gradients of 0; and NaN where there is one among the numbers."""
    e, a, start, end = model(dtype, shapes=("sequence", None))
    with torch.no_grad():
        e[0], start[1], e[2, 3, 1] = -torch.inf, -torch.inf, torch.nan
    operands = e, a, start, end

    def call():
        value = sequences.log_partition(*operands)
        return value, *gradients(value, (e, start, end))

    found, expected = both(monkeypatch, call)
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x, y, equal_nan=True)
    assert (found[1][:2] == 0).all()
    assert found[1][2].isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_losses_of_impossible_tags(cuda, states, monkeypatch, dtype):
    e, a, start, _ = model(dtype, shapes=("sequence", None))
    tags = torch.ones(BATCH, STEPS, dtype=torch.int64)
    with torch.no_grad():
        e[0], e[1, 2, 1] = -torch.inf, -torch.inf

    def call():
        value = sequences.crf_loss(e, a, tags, start)
        return value, *gradients(value, (e, start))

    (loss, by_e, by_start), expected = both(monkeypatch, call)
    for x, y in zip((loss, by_e, by_start), expected, strict=True):
        torch.testing.assert_close(x, y, equal_nan=True)
    assert loss[0].isnan()
    assert loss[1] == torch.inf
    assert by_e.isfinite().all()
    host = host_sequences.crf_loss(*(x.detach() for x in (e, a)), tags, start.detach())
    torch.testing.assert_close(host.loss, loss.detach(), equal_nan=True)


@pytest.mark.parametrize(("batch", "steps", "states"), [(40, 3, 7), (9, 300, 33), (1, 1, 1)])
def test_gradients_of_many_entries(cuda, batch, steps, states):
    """Chains, steps and states that need several rounds and blocks, and gradients of any stride."""
    torch.manual_seed(batch)
    derivatives = torch.randn(batch, steps, states), torch.randn(batch, states, states)
    strides = {"a_row": states, "a_col": 1, "e_batch": steps * states, "e_step": states}
    model = chain.Model(np.dtype("f4"), batch, steps, states, strides)
    for g in (torch.randn(batch), torch.randn(()).expand(batch), torch.randn(batch, 3)[:, 1]):
        for given in (derivatives, (derivatives[0], None)):
            HOST.launched.clear()
            found = launches.gradients(model, g, *given)
            assert len(HOST.launched) == 1
            torch.testing.assert_close(found[0], derivatives[0] * g[:, None, None])
            if given[1] is not None:
                expected = torch.tensordot(g.double(), derivatives[1].double(), 1).float()
                torch.testing.assert_close(found[1], expected, rtol=1e-5, atol=1e-5)


def test_gradients_of_a_stack(cuda):
    """Of many gradients at once, as is_grads_batched has them."""
    e, a, *_ = model()
    value = sequences.log_partition(e, a)
    stack = torch.eye(BATCH, dtype=e.dtype)
    found = torch.autograd.grad(value, (e, a), stack, is_grads_batched=True, retain_graph=True)
    for i, row in enumerate(stack):
        for x, y in zip(
            found, torch.autograd.grad(value, (e, a), row, retain_graph=True), strict=True
        ):
            torch.testing.assert_close(x[i], y)


def test_one_operand_alone_and_second_derivatives(cuda):
    e, a, start, _ = model()
    tags = torch.randint(STATES, (BATCH, STEPS))
    for operand in (e, a, start):
        given = [x if x is operand else x.detach() for x in (e, a, start)]
        value = sequences.crf_loss(*given[:2], tags, given[2], lengths=LENGTHS)
        (found,) = gradients(value, operand)
        value = sequences.crf_loss(e, a, tags, start, lengths=LENGTHS)
        torch.testing.assert_close(found, gradients(value, operand)[0])
    few = [x[:2, :3].detach().requires_grad_() if x is e else x for x in (e, a)]

    def loss(e, a):
        return sequences.crf_loss(e, a, tags[:2, :3], lengths=[3, 2])

    several = torch.autograd.grad(
        sequences.log_partition(e, a),
        (e, a),
        torch.eye(BATCH, dtype=e.dtype),
        is_grads_batched=True,
    )
    assert (several[0][0, 1:] == 0).all()
    whole = torch.autograd.grad(sequences.log_partition(e, a).sum(), (e, a))
    for x, y in zip(several, whole, strict=True):
        torch.testing.assert_close(x.sum(0), y)
    assert torch.autograd.gradcheck(loss, few)
    assert torch.autograd.gradgradcheck(loss, few)


def test_what_is_out_of_range_is_an_error(cuda):
    """It is found by the launch, which reads and writes nothing that is out of range."""
    e, a, _, _ = model()
    tags = torch.zeros(BATCH, STEPS, dtype=torch.int64)
    for far in (STATES, -1, 2**40):
        wrong = tags.clone()
        wrong[1, 2] = far
        with pytest.raises(ValueError, match=f"tags must be from 0 to 4, got .*{far}"):
            sequences.crf_loss(e, a, wrong)
        sequences.crf_loss(e, a, wrong, lengths=[6, 2, 6, 6])  # behind the end
    for far in (STEPS + 1, -1, 2**32):
        with pytest.raises(ValueError, match="lengths must be from 0 to the 6 steps"):
            sequences.log_partition(e, a, lengths=torch.tensor([1, 2, far, 3]))
    for wrong in ("all", [[1], [2, 3]], ["x"] * BATCH, [1.5] * BATCH):
        with pytest.raises((TypeError, ValueError)):
            sequences.log_partition(e, a, lengths=wrong)
    assert cuda.waits > 0
    before = cuda.waits
    sequences.log_partition(e, a)
    assert cuda.waits == before


def test_a_refused_call_spoils_no_other(cuda):
    e, a = (x.detach() for x in model()[:2])
    for lengths, right in (([1, 2, 7, 3], False), (LENGTHS, True)):
        ready = launches.sequences(e, a, None, None, torch.tensor(lengths))
        assert (ready.posterior(0) is not None) == right
        assert (ready.best_path() is not None) == right


class Elsewhere(torch.Tensor):
    """A tensor that is not where the emissions are."""

    device = torch.device("meta")


def test_lengths_on_the_host(cuda):
    """They are looked at before the launch, which waits for nothing."""
    e, a = (x.detach() for x in model()[:2])
    for lengths, right in (([1, 2, 7, 3], False), ([1, -1, 6, 3], False), (LENGTHS, True)):
        ready = launches.sequences(e, a, None, None, torch.tensor(lengths).as_subclass(Elsewhere))
        assert (ready is not None) == right
    torch.testing.assert_close(
        ready.posterior(0)[0], sequences.log_partition(e, a, lengths=torch.tensor(LENGTHS))
    )
    assert cuda.waits == 1  # of the second call


def test_only_the_current_device_is_launched_on(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    for index, there in ((0, False), (1, True)):
        x = SimpleNamespace(is_cuda=True, get_device=lambda index=index: index)
        assert launches.cuda.has(x) == there


def test_what_takes_the_operators(cuda, monkeypatch):
    """All that one launch is not kept for, and those who need to see an operator."""
    e, a = (x.detach() for x in model()[:2])
    wanted = sequences.log_partition(e, a)
    HOST.launched.clear()
    monkeypatch.setattr(device, "current", lambda: HOST)
    long = torch.zeros(1, 4000, 2)
    calls = [
        lambda: sequences.log_partition(e[0], a),
        lambda: sequences.log_partition(e, a.expand(STEPS - 1, STATES, STATES)),
        lambda: sequences.log_partition(e.long(), a),
        lambda: sequences.log_partition(long, torch.zeros(2, 2)),
        lambda: sequences.viterbi(e.requires_grad_(), a),
        lambda: torch.vmap(lambda x: sequences.log_partition(x[None], a)[0])(e),
        lambda: torch.compile(sequences.log_partition, fullgraph=True, backend="eager")(e, a),
    ]
    for call in calls:
        call()
    assert not HOST.launched
    torch.testing.assert_close(calls[-1](), wanted)
    torch.testing.assert_close(calls[-2](), wanted)


def test_a_launch_is_kept_by_shapes_and_strides(cuda):
    e, a, start, _ = (x.detach() for x in model())
    for x in (e, e.clone(), 2 * e):
        sequences.log_partition(x, a)
    assert len(launches._models) == 1
    sequences.log_partition(e, a.T)
    sequences.log_partition(e, a, start)
    sequences.log_partition(e[:2], a)
    assert len(launches._models) == 4
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launches, "_KEPT", 4)
        sequences.log_partition(e[:3], a)
    assert len(launches._models) == 1


def test_in_a_graph_what_is_out_of_range_is_no_number(cuda):
    """Nothing can be waited for there."""
    cuda.graph = True
    e, a, start, end = model()
    tags = torch.zeros(BATCH, STEPS, dtype=torch.int64)
    tags[1, 2] = STATES
    wrong = torch.tensor([6, 7, 0, -1])
    losses = sequences.crf_loss(e, a, tags, start, end)
    assert losses.isnan().tolist() == [False, True, False, False]
    totals = sequences.log_partition(e, a, lengths=wrong)
    assert totals.isnan().tolist() == [False, True, False, True]
    path, score = sequences.viterbi(e.detach(), a.detach(), lengths=wrong)
    assert score.isnan().tolist() == [False, True, False, True]
    assert (path[1:] == -1).all()
    assert cuda.waits == 0


@pytest.mark.parametrize("dtypes", [("float16", "float32"), ("float32", "float64"),
                                    ("bfloat16", "bfloat16")], ids=str)  # fmt: skip
def test_dtypes_are_promoted(cuda, monkeypatch, dtypes):
    """As under autocast: emissions of 16 bits, and parameters of 32; tags of any whole dtype."""
    first, second = (getattr(torch, name) for name in dtypes)
    operands = [x.detach().to(d).requires_grad_() for x, d in
                zip(model(), (first, *(second,) * 3), strict=True)]  # fmt: skip
    e, a, start, end = operands
    tags = torch.randint(STATES, (BATCH, STEPS), dtype=torch.int32)

    def call():
        value = sequences.crf_loss(e, a, tags, start, end)
        return value, *gradients(value, operands)

    found, expected = both(monkeypatch, call)
    assert [x.dtype for x in found[1:]] == [first, *(second,) * 3]
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x, y)
