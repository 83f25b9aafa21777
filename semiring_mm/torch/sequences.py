"""Hidden Markov models and linear-chain conditional random fields in PyTorch, with gradients.

The functions of ``semiring_mm.sequences``, on tensors. A model is trained by its loss:

>>> import torch
>>> from semiring_mm.torch import sequences
>>> seen = torch.zeros(2, 5, 3, requires_grad=True)  # (batch, steps, states)
>>> transitions = torch.zeros(3, 3, requires_grad=True)
>>> tags = torch.tensor([[0, 1, 2, 0, 1], [1, 1, 1, 0, 0]])
>>> loss = sequences.crf_loss(seen, transitions, tags, lengths=[5, 3])
>>> loss.detach()  # 5 log 3 and 3 log 3
tensor([5.4931, 3.2958])
>>> loss.sum().backward()
>>> transitions.grad[0]
tensor([ 0.6667, -1.3333,  0.6667])
"""

from __future__ import annotations

from typing import Any

import torch

from .. import chain_gradients, differentiable
from .. import sequences as host
from ..differentiable import bound
from ..naming import listing
from ..verb import sum_to
from . import launches
from .operators import PyTorch, node

__all__ = [
    "backward", "crf_loss", "forward", "log_partition", "marginals", "score", "viterbi",
]  # fmt: skip
__dir__ = listing(__all__)

Tensor = Any


class _PyTorch(PyTorch):
    def launched(self, verb: str, /, *operands: Any) -> Any:
        """Of models that one launch on a device is kept for, see :mod:`.launches`."""
        e, a, start, end, lengths, tags = (*operands, None)[:6]
        wanted = _wanted(e, a, start, end)
        if verb == "viterbi" and wanted:
            return None
        e, a, start, end = _promoted(e, a, start, end)
        ready = launches.sequences(e, a, start, end, lengths, tags)
        if ready is None or verb == "viterbi":
            return ready and ready.best_path()
        found = ready.posterior(wanted)
        if found is None:
            return None
        rest = tags is not None and ready.model.wide
        ready = ready._replace(tags=None) if rest else ready
        total = _sums.apply(found, ready, e, a, start, end) if wanted else found[0]
        return total - score(e, a, tags, start, end, lengths=lengths) if rest else total


_LIBRARY = _PyTorch()

backward = bound(__name__, _LIBRARY, differentiable.backward, host.backward)
crf_loss = bound(__name__, _LIBRARY, differentiable.crf_loss, host.crf_loss)
forward = bound(__name__, _LIBRARY, differentiable.forward, host.forward)
log_partition = bound(__name__, _LIBRARY, differentiable.log_partition, host.log_partition)
marginals = bound(__name__, _LIBRARY, differentiable.marginals, host.marginals)
score = bound(__name__, _LIBRARY, differentiable.score, host.score)
viterbi = bound(__name__, _LIBRARY, differentiable.viterbi, host.viterbi)


# --- sums in one launch ---------------------------------------------------------------------------


def _wanted(emissions: Tensor, transitions: Tensor, *ends: Tensor | None) -> int:
    """What a launch computes beside a log-partition, for its gradient."""
    if not torch.is_grad_enabled():
        return 0
    some = any(getattr(x, "requires_grad", False) for x in (emissions, *ends))
    return 2 if getattr(transitions, "requires_grad", False) else int(some)


def _promoted(*operands: Tensor | None) -> Any:
    """Floats in the one dtype that they are computed with; all others as they are."""
    present = [x for x in operands if x is not None]
    if not all(isinstance(x, torch.Tensor) and x.is_floating_point() for x in present):
        return operands
    return _LIBRARY.real("", *operands)


def _sums_forward(found: Any, ready: launches.Sequences, *operands: Tensor | None) -> Tensor:
    return found[0]


def _sums_setup(ctx: Any, inputs: Any, output: Tensor) -> None:
    (_, states, pairs), ready, *operands = inputs
    ctx.set_materialize_grads(False)
    ctx.model = ready.model
    ctx.save_for_backward(*operands, ready.lengths, ready.tags, states, pairs)


def _sums_backward(ctx: Any, came: Tensor | None) -> tuple[Tensor | None, ...]:
    e, a, start, end, lengths, tags, states, pairs = ctx.saved_tensors
    needs = ctx.needs_input_grad[2:]
    if came is None:
        return (None,) * 6
    if torch.is_grad_enabled():  # to be differentiated again: by the operators
        given = {"emissions": e, "transitions": a, "start": start, "end": end}
        found: Any = chain_gradients.of_posterior(
            _LIBRARY, (came, None, None), (e, a[None], start, end), lengths, None
        )
        if tags is not None:
            other = chain_gradients.indicators(_LIBRARY, came, tags, a[None], lengths)
            found = tuple(x - y for x, y in zip(found, other, strict=True))
        return None, None, *(
            sum_to(x if name != "transitions" else x[..., 0, :, :], given[name].shape)
            if need else None
            for name, x, need in zip(given, found, needs, strict=True)
        )  # fmt: skip
    by_e, by_a = launches.gradients(ctx.model, came, states, pairs if needs[1] else None)
    by_start = sum_to(by_e[:, 0], start.shape) if needs[2] else None
    by_end = None
    if needs[3]:
        by_end = sum_to(chain_gradients.ends(_LIBRARY, by_e, lengths)[1], end.shape)
    return None, None, by_e if needs[0] else None, by_a, by_start, by_end


_sums = node("sums", _sums_forward, _sums_setup, _sums_backward)
