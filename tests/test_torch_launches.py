"""Models of PyTorch's tensors that take one launch on a device, against the operators.

The kernels run on the host, on tensors of the host.
"""

import pytest
from host_device import HostDevice

torch = pytest.importorskip("torch")

from semiring_mm.gpu import device  # noqa: E402
from semiring_mm.torch import launches, sequences  # noqa: E402

pytestmark = pytest.mark.usefixtures("gxx")
HOST = HostDevice()
BATCH, STEPS, STATES = 4, 6, 5
LENGTHS = [6, 0, 3, 1]


class Cuda:
    """Tensors of the host count as those of a device."""

    def __init__(self):
        self.number = torch.zeros(1, dtype=torch.int32)
        self.waits = 0

    def has(self, x):
        return True

    def stream(self, index):
        return 0

    def flag(self):
        return self.number

    def wait(self, stream):
        self.waits += 1


@pytest.fixture
def cuda(monkeypatch):
    on = Cuda()
    monkeypatch.setattr(device, "current", lambda: HOST)
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
    """What one launch makes, and what the operators make."""
    HOST.launched.clear()
    found = call()
    assert len(HOST.launched) == 1
    with monkeypatch.context() as patch:
        patch.setattr(launches, "sequences", lambda *_: None)
        patch.setattr(device, "current", lambda: None)
        return found, call()


def gradients(value, operands):
    weights = torch.linspace(0.5, 2, value.numel(), dtype=value.dtype).view_as(value)
    return torch.autograd.grad((value * weights).sum(), operands)


@pytest.mark.parametrize("lengths", [None, LENGTHS, torch.tensor(LENGTHS, dtype=torch.int32)])
@pytest.mark.parametrize("tagged", [False, True])
def test_sums_and_gradients(cuda, monkeypatch, tagged, lengths):
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
