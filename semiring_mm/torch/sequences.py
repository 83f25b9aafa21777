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

from .. import chain_gradients
from ..differentiable import bind
from ..differentiable import sequences as functions
from ..differentiable.sequences import *  # noqa: F403  (for type checkers)
from ..naming import listing
from ..verb import sum_to
from . import launches
from .operators import PyTorch, node

__all__ = [*functions.__all__]
__dir__ = listing(__all__)

Tensor = Any


class _PyTorch(PyTorch):
    def repeated(self, verb: str, *arguments: Any) -> Any:
        """Of models that one launch on a device is kept for, see :mod:`.launches`."""
        e, a, start, end, lengths, tags = (*arguments, None)[:6]
        wanted = functions.wanted(self, e, a, start, end)
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
        if rest:
            total = total - score(e, a, tags, start, end, lengths=lengths)  # noqa: F405
        return total


_LIBRARY = _PyTorch()
globals().update(bind(__name__, _LIBRARY, functions))


# --- sums in one launch ---------------------------------------------------------------------------


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
        found: Any = chain_gradients.of_posterior(
            _LIBRARY, (came, None, None), (e, a[None], start, end), lengths, None
        )
        if tags is not None:
            other = chain_gradients.indicators(_LIBRARY, came, tags, a[None], lengths)
            found = tuple(x - y for x, y in zip(found, other, strict=True))
        operands = zip(found, (e, a, start, end), needs, strict=True)
        return None, None, *(sum_to(x, like.shape) if need else None for x, like, need in operands)
    by_e, by_a = launches.gradients(ctx.model, came, states, pairs if needs[1] else None)
    by_start = sum_to(by_e[:, 0], start.shape) if needs[2] else None
    by_end = None
    if needs[3]:
        by_end = sum_to(chain_gradients.ends(_LIBRARY, by_e, lengths)[1], end.shape)
    return None, None, by_e if needs[0] else None, by_a, by_start, by_end


_sums = node("sums", _sums_forward, _sums_setup, _sums_backward)
