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

from typing import Any, NamedTuple

import torch

from .. import chain_gradients, chains
from .. import sequences as host
from ..gradients import sum_to
from ..naming import listing
from . import launches
from .chains import as_lengths, take
from .operators import LIBRARY, batched, is_plain, node, operate, register

__all__ = [
    "backward", "crf_loss", "forward", "log_partition", "marginals", "score", "viterbi",
]  # fmt: skip
__dir__ = listing(__all__)

Tensor = Any


def viterbi(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor | None = None,
    end: Tensor | None = None,
    *,
    lengths: Any = None,
) -> tuple[Tensor, Tensor]:
    """The best sequence of states, and its score with gradients.

    Parameters
    ----------
    emissions, transitions, start, end, lengths
        As for :func:`semiring_mm.sequences.viterbi`; tensors on one device.

    Returns
    -------
    path : Tensor of int32, shape (..., T)
    score : Tensor, shape (...)
        Its gradient is 1 for each score that the path has in it, and 0 for all others.

    Raises
    ------
    TypeError, ValueError, NotImplementedError
        As :func:`semiring_mm.sequences.viterbi`.

    Examples
    --------
    >>> import torch
    >>> from semiring_mm.torch import sequences
    >>> seen = torch.tensor([[1.0, 0], [0, 3], [1, 0]], requires_grad=True)
    >>> path, score = sequences.viterbi(seen, torch.zeros(2, 2))
    >>> score.backward()
    >>> path.tolist(), seen.grad.tolist()
    ([0, 1, 0], [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    """
    if not _wanted(emissions, transitions, start, end):
        e, a, first, last = _promoted(emissions, transitions, start, end)
        ready = launches.sequences(e, a, first, last, lengths)
        found = ready and ready.best_path()
        if found is not None:
            return found
    m = _model("viterbi", emissions, transitions, start, end, lengths)
    value, path = operate("best_path", *m)
    return path, value


def log_partition(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor | None = None,
    end: Tensor | None = None,
    *,
    lengths: Any = None,
) -> Tensor:
    """The logarithm of the sum of exp(score) over all sequences of states, with gradients.

    Parameters
    ----------
    emissions, transitions, start, end, lengths
        As for :func:`semiring_mm.sequences.viterbi`; tensors on one device.

    Returns
    -------
    Tensor, shape (...)

    Raises
    ------
    TypeError, ValueError, NotImplementedError
        As :func:`semiring_mm.sequences.viterbi`.

    Notes
    -----
    The gradient is what :func:`marginals` has, computed at once (forward-backward algorithm) where
    an operand requires it; 0 where no sequence is possible. Derivatives of all orders: from the
    second on with O(T S²) memory.

    Examples
    --------
    >>> import torch
    >>> from semiring_mm.torch import sequences
    >>> seen = torch.zeros(3, 2, requires_grad=True)
    >>> total = sequences.log_partition(seen, torch.zeros(2, 2))
    >>> total.detach()  # log 8
    tensor(2.0794)
    >>> torch.autograd.grad(total, seen)[0][0]
    tensor([0.5000, 0.5000])
    """
    found = _launched(emissions, transitions, start, end, lengths)
    if found is not None:
        return found
    m = _model("log_partition", emissions, transitions, start, end, lengths)
    wanted = _wanted(emissions, transitions, start, end)
    total: Tensor = operate("posterior", *m, wanted, "log_partition")[0]
    return total


def marginals(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor | None = None,
    end: Tensor | None = None,
    *,
    lengths: Any = None,
    pairs: bool = False,
) -> Any:
    """The posterior probability of each state at each step, with gradients.

    Parameters
    ----------
    emissions, transitions, start, end, lengths, pairs
        As for :func:`semiring_mm.sequences.marginals`; tensors on one device.

    Returns
    -------
    states : Tensor, shape (..., T, S)
    pairs : Tensor, shape (..., S, S) or (..., T - 1, S, S)
        Only with `pairs`.

    Raises
    ------
    TypeError, ValueError, NotImplementedError
        As :func:`semiring_mm.sequences.viterbi`.

    Notes
    -----
    Derivatives of all orders, with O(T S²) memory.

    Examples
    --------
    >>> import torch
    >>> from semiring_mm.torch import sequences
    >>> seen = torch.tensor([[0.0, 0.0], [2.0, 0.0]], requires_grad=True)
    >>> stay = torch.tensor([[2.0, 0.0], [0.0, 2.0]])
    >>> first = sequences.marginals(seen, stay)[0, 0]
    >>> torch.autograd.grad(first, seen)[0][1, 0]  # what the second step says of the first
    tensor(0.0800)
    """
    m = _model("marginals", emissions, transitions, start, end, lengths)
    _, states, both = operate("posterior", *m, 1 + pairs, "marginals")
    if not pairs:
        return states
    return states, both[..., 0, :, :] if transitions.ndim == 2 else both


def forward(
    emissions: Tensor, transitions: Tensor, start: Tensor | None = None, *, lengths: Any = None
) -> Tensor:
    """The log-sums of all beginnings: that end, at each step, in each state, with gradients.

    Parameters
    ----------
    emissions, transitions, start, lengths
        As for :func:`semiring_mm.sequences.forward`; tensors on one device.

    Returns
    -------
    Tensor, shape (..., T, S)

    Raises
    ------
    TypeError, ValueError, NotImplementedError
        As :func:`semiring_mm.sequences.viterbi`.

    Notes
    -----
    Derivatives of all orders, with O(T S²) memory.

    Examples
    --------
    >>> import torch
    >>> from semiring_mm.torch import sequences
    >>> sequences.forward(torch.zeros(3, 2), torch.zeros(2, 2)).exp()[:, 0]
    tensor([1., 2., 4.])
    """
    m = _model("forward", emissions, transitions, start, None, lengths)
    given = m.start + m.emissions[..., 0, :] if m.steps else m.start
    return _rows("forward", m, given, False)


def backward(
    emissions: Tensor, transitions: Tensor, end: Tensor | None = None, *, lengths: Any = None
) -> Tensor:
    """The log-sums of all continuations: from each state at each step to the end, with gradients.

    Parameters
    ----------
    emissions, transitions, end, lengths
        As for :func:`semiring_mm.sequences.backward`; tensors on one device.

    Returns
    -------
    Tensor, shape (..., T, S)

    Raises
    ------
    TypeError, ValueError, NotImplementedError
        As :func:`semiring_mm.sequences.viterbi`.

    Notes
    -----
    Derivatives of all orders, with O(T S²) memory.

    Examples
    --------
    >>> import torch
    >>> from semiring_mm.torch import sequences
    >>> sequences.backward(torch.zeros(3, 2), torch.zeros(2, 2)).exp()[:, 0]
    tensor([4., 2., 1.])
    """
    m = _model("backward", emissions, transitions, None, end, lengths)
    return _rows("backward", m, m.end, True)


def score(
    emissions: Tensor,
    transitions: Tensor,
    tags: Tensor,
    start: Tensor | None = None,
    end: Tensor | None = None,
    *,
    lengths: Any = None,
) -> Tensor:
    """The score of given sequences of states, with gradients.

    Parameters
    ----------
    emissions, transitions
        As for :func:`semiring_mm.sequences.viterbi`; tensors on one device.
    tags : Tensor of whole numbers, shape (..., T)
        The states. What lies behind a sequence's end is not read.
    start, end, lengths
        As for :func:`semiring_mm.sequences.viterbi`.

    Returns
    -------
    Tensor, shape (...)

    Raises
    ------
    TypeError, ValueError, NotImplementedError
        As :func:`semiring_mm.sequences.score`.

    Examples
    --------
    >>> import torch
    >>> from semiring_mm.torch import sequences
    >>> seen, transitions = torch.eye(2, requires_grad=True), torch.zeros(2, 2)
    >>> sequences.score(seen, transitions, torch.tensor([0, 0])).backward()
    >>> seen.grad
    tensor([[1., 0.],
            [1., 0.]])
    """
    m = _model("score", emissions, transitions, start, end, lengths)
    return _scored("score", m, tags)


def crf_loss(
    emissions: Tensor,
    transitions: Tensor,
    tags: Tensor,
    start: Tensor | None = None,
    end: Tensor | None = None,
    *,
    lengths: Any = None,
) -> Tensor:
    """The negative log-likelihood of tags in a linear-chain conditional random field.

    Parameters
    ----------
    emissions, transitions
        As for :func:`semiring_mm.sequences.viterbi`; tensors on one device.
    tags : Tensor of whole numbers, shape (..., T)
        The states. What lies behind a sequence's end is not read.
    start, end, lengths
        As for :func:`semiring_mm.sequences.viterbi`.

    Returns
    -------
    Tensor, shape (...)
        The loss of each sequence: :func:`log_partition` less :func:`score`, with their gradients.
        inf where the tags are impossible; NaN where every sequence of states is, with the gradient
        of the score alone.

    Raises
    ------
    TypeError, ValueError, NotImplementedError
        As :func:`semiring_mm.sequences.crf_loss`.

    Examples
    --------
    >>> import torch
    >>> from semiring_mm.torch import sequences
    >>> sequences.crf_loss(torch.zeros(3, 2), torch.zeros(2, 2), torch.tensor([0, 1, 1]))
    tensor(2.0794)
    """
    found = _launched(emissions, transitions, start, end, lengths, tags)
    if found is not None:
        return found
    m = _model("crf_loss", emissions, transitions, start, end, lengths)
    wanted = _wanted(emissions, transitions, start, end)
    total = operate("posterior", *m, wanted, "crf_loss")[0]
    return total - _scored("crf_loss", m, tags)


# --- the checked model ----------------------------------------------------------------------------


class _Model(NamedTuple):
    """Operands as the operators take them, all with the leading dimensions of the batch."""

    emissions: Tensor  # (..., T, S)
    transitions: Tensor  # (..., 1 or T - 1, S, S)
    start: Tensor  # (..., S)
    end: Tensor
    lengths: Tensor | None  # (...)

    @property
    def steps(self) -> int:
        return int(self.emissions.shape[-2])


def _model(verb: str, e: Any, a: Any, start: Any, end: Any, lengths: Any) -> _Model:
    present = take(verb, emissions=e, transitions=a, start=start, end=end)
    dtype = torch.float32
    for x in present:
        if x.is_complex():
            raise TypeError(f"{verb} takes real numbers, got dtype {x.dtype}: use float32")
        exact = not x.is_floating_point()
        dtype = torch.promote_types(dtype, torch.float64 if exact else x.dtype)
    e, a, start, end = (None if v is None else v.to(dtype) for v in (e, a, start, end))
    lengths = as_lengths(lengths, e)
    shapes = (None if v is None else v.shape for v in (e, a, start, end, lengths))
    batch = host.batch_of_model(verb, shapes, torch.broadcast_shapes)
    a = a[None] if a.ndim == 2 else a
    none = e.new_zeros(e.shape[-1])
    start, end = ((none if v is None else v).expand(*batch, e.shape[-1]) for v in (start, end))
    return _Model(
        e.expand(*batch, *e.shape[-2:]), a.expand(*batch, *a.shape[-3:]),
        start, end, None if lengths is None else lengths.expand(batch),
    )  # fmt: skip


def _wanted(emissions: Tensor, transitions: Tensor, *ends: Tensor | None) -> int:
    """What :func:`_posterior` computes beside a log-partition, for its gradient."""
    if not torch.is_grad_enabled():
        return 0
    some = any(getattr(x, "requires_grad", False) for x in (emissions, *ends))
    return 2 if getattr(transitions, "requires_grad", False) else int(some)


def _rows(verb: str, m: _Model, given: Tensor, reverse: bool) -> Tensor:
    if m.lengths is not None and is_plain():  # the chain is a step shorter
        chains.as_lengths(m.lengths, tuple(m.lengths.shape), m.steps, verb)
    if not m.steps:
        return m.emissions
    t = torch.arange(m.steps, device=given.device)
    length = torch.full_like(given[..., 0], m.steps).long() if m.lengths is None else m.lengths
    last = (length - 1)[..., None]
    whole = given[..., None, :]
    if m.steps > 1:
        found = operate(
            "chain", m.transitions, m.emissions[..., 1:, :], given, last[..., 0].clamp(min=0),
            "log_plus", reverse, True,
        )  # fmt: skip
        parts = [found, torch.zeros_like(whole)]
        found = torch.cat(parts if reverse else parts[::-1], -2)
    else:
        found = torch.zeros_like(whole)
    found = torch.where((t == (last if reverse else 0))[..., None], whole, found)
    return torch.where((t <= last)[..., None], found, -torch.inf)


def _scored(verb: str, m: _Model, tags: Any) -> Tensor:
    (tags,) = take(verb, tags=tags)
    at = host.tags_of_shape(verb, tags, m.emissions.shape[:-1], torch.Tensor.expand)
    return operate("path_score", m.emissions, *m[1:4], at, m.lengths, verb)


# --- sums in one launch ---------------------------------------------------------------------------


def _launched(
    e: Tensor, a: Tensor, start: Tensor | None, end: Tensor | None, lengths: Any,
    tags: Tensor | None = None,
) -> Tensor | None:  # fmt: skip
    """The log-partition, less the score of tags, of what one launch is kept for."""
    e, a, start, end = _promoted(e, a, start, end)
    ready = launches.sequences(e, a, start, end, lengths, tags)
    wanted = _wanted(e, a, start, end)
    found = ready and ready.posterior(wanted)
    if ready is None or found is None:
        return None
    rest = tags is not None and ready.model.wide
    ready = ready._replace(tags=None) if rest else ready
    total = _sums.apply(found, ready, e, a, start, end) if wanted else found[0]
    if rest:
        total = total - _scored("crf_loss", _model("crf_loss", e, a, start, end, lengths), tags)
    return total


def _promoted(*operands: Tensor | None) -> Any:
    """Floats in the one dtype that they are computed with; all others as they are."""
    present = [x for x in operands if x is not None]
    if not all(isinstance(x, torch.Tensor) and x.is_floating_point() for x in present):
        return operands
    dtype = torch.float32
    for x in present:
        dtype = torch.promote_types(dtype, x.dtype)
    return tuple(x if x is None or x.dtype == dtype else x.to(dtype) for x in operands)


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
        m = _model("log_partition", e, a, start, end, lengths)
        total = operate("posterior", *m, 2, "log_partition")[0]
        total = total if tags is None else total - _scored("crf_loss", m, tags)
        wanted = [x for x, need in zip((e, a, start, end), needs, strict=True) if need]
        found = iter(torch.autograd.grad(total, wanted, came, create_graph=True))
        return None, None, *(next(found) if need else None for need in needs)
    by_e, by_a = launches.gradients(ctx.model, came, states, pairs if needs[1] else None)
    by_start = sum_to(by_e[:, 0], start.shape) if needs[2] else None
    by_end = None
    if needs[3]:
        by_end = sum_to(chain_gradients.ends(LIBRARY, by_e, lengths)[1], end.shape)
    return None, None, by_e if needs[0] else None, by_a, by_start, by_end


_sums = node("sums", _sums_forward, _sums_setup, _sums_backward)


# --- log-partitions and posterior probabilities ---------------------------------------------------


def _posterior(
    e: Tensor, a: Tensor, start: Tensor, end: Tensor, lengths: Tensor | None, what: int, verb: str
) -> tuple[Tensor, Tensor, Tensor]:
    found = host.posterior(verb, e, a, start, end, lengths, what)
    total, states, pairs = (e.new_empty(0) if x is None else x for x in found)
    return total, states, pairs


def _posterior_fake(
    e: Tensor, a: Tensor, start: Tensor, end: Tensor, lengths: Tensor | None, what: int, verb: str
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        e.new_empty(e.shape[:-2]), e.new_empty(e.shape if what else 0),
        e.new_empty(a.shape if what > 1 else 0),
    )  # fmt: skip


def _posterior_setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.what = inputs[5]
    ctx.set_materialize_grads(False)
    known = (output[0], output[1], output[2] if ctx.what > 1 else None)
    ctx.save_for_backward(*inputs[:5], *(known if ctx.what else (None,) * 3))


def _posterior_backward(ctx: Any, *came: Tensor | None) -> tuple[Tensor | None, ...]:
    *operands, lengths, total, states, pairs = ctx.saved_tensors
    came = tuple(g if i <= ctx.what else None for i, g in enumerate(came))
    if all(g is None for g in came):
        return (None,) * 7
    known = None if total is None else (total, states, pairs)
    if pairs is None and ctx.needs_input_grad[1]:
        known = None
    found = chain_gradients.of_posterior(LIBRARY, came, tuple(operands), lengths, known)
    return *found, None, None, None


def _posterior_vmap(info: Any, dims: Any, *args: Any) -> tuple[Any, Any]:
    found = operate("posterior", *batched(info, dims[:5], *args[:5]), *args[5:])
    return found, tuple(0 if i <= args[5] else None for i in range(3))


register(
    "posterior",
    "(Tensor e, Tensor a, Tensor start, Tensor end, Tensor? lengths, int what, str verb) "
    "-> (Tensor, Tensor, Tensor)",
    _posterior, _posterior_fake, _posterior_vmap, _posterior_backward, _posterior_setup,
)  # fmt: skip


# --- scores of paths ------------------------------------------------------------------------------


def _best(
    e: Tensor, a: Tensor, start: Tensor, end: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    path, value = host.viterbi(e, a, start, end, lengths=lengths)
    return value, path


def _best_fake(
    e: Tensor, a: Tensor, start: Tensor, end: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    return e.new_empty(e.shape[:-2]), e.new_empty(e.shape[:-1], dtype=torch.int32)


def _best_setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(inputs[1], inputs[4], output[1])


def _best_backward(ctx: Any, g: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    a, lengths, path = ctx.saved_tensors
    return *chain_gradients.indicators(LIBRARY, g, path, a, lengths), None


def _best_vmap(info: Any, dims: Any, *args: Any) -> tuple[Any, Any]:
    return operate("best_path", *batched(info, dims, *args)), (0, 0)


register(
    "best_path",
    "(Tensor e, Tensor a, Tensor start, Tensor end, Tensor? lengths) -> (Tensor, Tensor)",
    _best, _best_fake, _best_vmap, _best_backward, _best_setup,
)  # fmt: skip


def _score(
    e: Tensor, a: Tensor, start: Tensor, end: Tensor, tags: Tensor, lengths: Tensor | None,
    verb: str,
) -> Tensor:  # fmt: skip
    return host.path_score(verb, e, a, start, end, tags, lengths)


def _score_fake(
    e: Tensor, a: Tensor, start: Tensor, end: Tensor, tags: Tensor, lengths: Tensor | None,
    verb: str,
) -> Tensor:  # fmt: skip
    return e.new_empty(e.shape[:-2])


def _score_setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[1], *inputs[4:6])


def _score_backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    a, tags, lengths = ctx.saved_tensors
    return *chain_gradients.indicators(LIBRARY, g, tags, a, lengths), None, None, None


def _score_vmap(info: Any, dims: Any, *args: Any) -> tuple[Tensor, int]:
    return operate("path_score", *batched(info, dims[:6], *args[:6]), args[6]), 0


register(
    "path_score",
    "(Tensor e, Tensor a, Tensor start, Tensor end, Tensor tags, Tensor? lengths, str verb) "
    "-> Tensor",
    _score, _score_fake, _score_vmap, _score_backward, _score_setup,
)  # fmt: skip
