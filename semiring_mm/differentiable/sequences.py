"""Hidden Markov models and linear-chain conditional random fields with gradients.

The first argument of each function is the library; see :func:`semiring_mm.differentiable.bind`.
"""

from __future__ import annotations

import math
from typing import Any

from .. import chains
from .. import sequences as host
from ..verb import Library
from . import like

__all__ = [
    "backward", "crf_loss", "forward", "log_partition", "marginals", "score", "viterbi",
]  # fmt: skip

Array = Any  # of any array library


@like(host.viterbi)
def viterbi(
    library: Library, emissions: Any, transitions: Any, start: Any = None, end: Any = None, *,
    lengths: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """The best sequence of states, and its score with gradients.

    Parameters
    ----------
    emissions : array_like, shape (..., T, S)
        The score of each state at each step. Batches of sequences have leading dimensions.
    lengths : array_like of int, shape (...), optional
        The steps of each sequence, at most T. What lies behind them is not read. Sequences of
        several lengths are stacked, not one after the other.

    Returns
    -------
    path : ndarray of int32, shape (..., T)
        -1 behind a sequence's end.
    score : ndarray, shape (...)
        Its gradient is 1 for each score that the path has in it, and 0 for all others.
    """
    found = library.repeated("viterbi", emissions, transitions, start, end, lengths)
    if found is not None:
        return found[0], found[1]
    m, _ = _model(library, "viterbi", emissions, transitions, start, end, lengths)
    value, path = library.run("best_path", *m)
    return path, value


@like(host.log_partition)
def log_partition(
    library: Library, emissions: Any, transitions: Any, start: Any = None, end: Any = None, *,
    lengths: Any = None,
) -> Any:  # fmt: skip
    """The logarithm of the sum of exp(score) over all sequences of states, with gradients.

    Notes
    -----
    The gradient is what :func:`marginals` has, computed at once (forward-backward algorithm) where
    an operand requires it; 0 where no sequence is possible. Derivatives of all orders: from the
    second on with O(T S²) memory.
    """
    found = library.repeated("log_partition", emissions, transitions, start, end, lengths)
    if found is not None:
        return found
    m, _ = _model(library, "log_partition", emissions, transitions, start, end, lengths)
    return _total(library, "log_partition", m)


@like(host.marginals)
def marginals(
    library: Library, emissions: Any, transitions: Any, start: Any = None, end: Any = None, *,
    lengths: Any = None, pairs: bool = False,
) -> Any:  # fmt: skip
    """The posterior probability of each state at each step, with gradients.

    Notes
    -----
    Derivatives of all orders, with O(T S²) memory.
    """
    m, _ = _model(library, "marginals", emissions, transitions, start, end, lengths)
    (given,) = library.arrays("marginals", transitions=transitions)
    _, states, both = library.run("posterior", *m, 1 + pairs, "marginals")
    if not pairs:
        return states
    return states, both[..., 0, :, :] if given.ndim == 2 else both


@like(host.forward)
def forward(
    library: Library, emissions: Any, transitions: Any, start: Any = None, *, lengths: Any = None
) -> Any:
    """The log-sums of all beginnings: that end, at each step, in each state, with gradients.

    Notes
    -----
    Derivatives of all orders, with O(T S²) memory.
    """
    return _rows(library, "forward", emissions, transitions, start, lengths, reverse=False)


@like(host.backward)
def backward(
    library: Library, emissions: Any, transitions: Any, end: Any = None, *, lengths: Any = None
) -> Any:
    """The log-sums of all continuations: from each state at each step to the end, with gradients.

    Notes
    -----
    Derivatives of all orders, with O(T S²) memory.
    """
    return _rows(library, "backward", emissions, transitions, end, lengths, reverse=True)


@like(host.score)
def score(
    library: Library, emissions: Any, transitions: Any, tags: Any, start: Any = None,
    end: Any = None, *, lengths: Any = None,
) -> Any:  # fmt: skip
    """The score of given sequences of states, with gradients."""
    m, batch = _model(library, "score", emissions, transitions, start, end, lengths)
    return _scored(library, "score", m, batch, tags)


@like(host.crf_loss)
def crf_loss(
    library: Library, emissions: Any, transitions: Any, tags: Any, start: Any = None,
    end: Any = None, *, lengths: Any = None,
) -> Any:  # fmt: skip
    """The negative log-likelihood of tags in a linear-chain conditional random field.

    Returns
    -------
    ndarray, shape (...)
        The loss of each sequence: :func:`log_partition` less :func:`score`, with their gradients.
        inf where the tags are impossible; NaN where every sequence of states is, with the gradient
        of the score alone.
    """
    found = library.repeated("crf_loss", emissions, transitions, start, end, lengths, tags)
    if found is not None:
        return found
    m, batch = _model(library, "crf_loss", emissions, transitions, start, end, lengths)
    return _total(library, "crf_loss", m) - _scored(library, "crf_loss", m, batch, tags)


def wanted(library: Library, e: Any, a: Any, start: Any, end: Any) -> int:
    """How many results of a log-partition its gradients read, as ``posterior`` counts them."""
    needs = library.differentiated(e, a, start, end)
    return 2 if needs[1] else int(any(needs))


_Model = tuple[Array, Array, Array | None, Array | None, Array | None]


def _model(
    library: Library, verb: str, e: Any, a: Any, start: Any, end: Any, lengths: Any
) -> tuple[_Model, tuple[int, ...]]:
    """Operands as the operators take them, (S, S) transitions as (1, S, S), and their batch."""
    given = library.arrays(verb, emissions=e, transitions=a, start=start, end=end)
    e, a, start, end = library.real(verb, *given)
    lengths = None if lengths is None else library.lengths(lengths, e)
    shapes = (None if v is None else v.shape for v in (e, a, start, end, lengths))
    batch, _ = host.MODEL.check(shapes, library.broadcast_shapes, verb)
    return (e, a.reshape(1, *a.shape) if a.ndim == 2 else a, start, end, lengths), batch


def _total(library: Library, verb: str, m: _Model) -> Array:
    """Log-partitions, with what their gradients read."""
    return library.run("posterior", *m, wanted(library, *m[:4]), verb)[0]


def _scored(library: Library, verb: str, m: _Model, batch: tuple[int, ...], tags: Any) -> Array:
    (tags,) = library.arrays(verb, tags=tags)
    shape = *batch, m[0].shape[-2]
    at = host.tags_of_shape(verb, tags, shape, library.xp.broadcast_to)
    return library.run("path_score", *m[:4], at, m[4], verb)[0]


def _rows(
    library: Library, verb: str, emissions: Any, transitions: Any, outer: Any, lengths: Any, *,
    reverse: bool,
) -> Array:  # fmt: skip
    """Log-sums of all beginnings or, in reverse, of all continuations; `outer` is start or end."""
    start, end = (None, outer) if reverse else (outer, None)
    m, batch = _model(library, verb, emissions, transitions, start, end, lengths)
    e, a, start, end, lengths = m
    xp, (steps, n) = library.xp, e.shape[-2:]
    if lengths is not None and library.concrete(lengths):  # the chain is a step shorter
        chains.as_lengths(lengths, tuple(lengths.shape), steps, verb)
    if not steps:
        return xp.broadcast_to(e, (*batch, *e.shape[-2:]))
    given = xp.zeros_like(e[..., 0, :]) if reverse else e[..., 0, :]
    outer = end if reverse else start
    given = xp.broadcast_to(given if outer is None else given + outer, (*batch, n))
    whole = given[..., None, :]
    found = xp.zeros_like(whole)
    if steps > 1:
        behind = None if lengths is None else xp.clip(lengths - 1, 0, None)
        (rest,) = library.run("chain", a, e[..., 1:, :], given, behind, "log_plus", reverse, True)
        found = xp.concatenate([rest, found] if reverse else [found, rest], -2)
    t = library.count(steps, given)
    last = t * 0 + steps - 1 if lengths is None else lengths[..., None] - 1
    found = xp.where((t == (last if reverse else 0))[..., None], whole, found)
    return xp.where((t <= last)[..., None], found, -math.inf)
