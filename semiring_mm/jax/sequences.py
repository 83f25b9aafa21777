"""Hidden Markov models and linear-chain conditional random fields in JAX, with gradients.

The functions of ``semiring_mm.sequences``, on arrays of JAX. A model is trained by its loss:

>>> import jax, jax.numpy as jnp
>>> from semiring_mm.jax import sequences
>>> seen, tags = jnp.zeros((2, 5, 3)), jnp.array([[0, 1, 2, 0, 1], [1, 1, 1, 0, 0]])
>>> loss = lambda a: sequences.crf_loss(seen, a, tags, lengths=jnp.array([5, 3])).sum()
>>> jax.jit(jax.grad(loss))(jnp.zeros((3, 3))).round(4)[0].tolist()
[0.666700005531311, -1.333299994468689, 0.666700005531311]
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .. import chain_gradients, chains
from .. import sequences as host
from ..naming import listing
from ..semirings import semirings
from .chains import ChainFunctions
from .operators import run

__all__ = [
    "backward", "crf_loss", "forward", "log_partition", "marginals", "score", "viterbi",
]  # fmt: skip
__dir__ = listing(__all__)

Array = Any


def viterbi(
    emissions: Array,
    transitions: Array,
    start: Array | None = None,
    end: Array | None = None,
    *,
    lengths: Any = None,
) -> tuple[Array, Array]:
    """The best sequence of states, and its score with gradients.

    Parameters
    ----------
    emissions, transitions, start, end, lengths
        As for :func:`semiring_mm.sequences.viterbi`; arrays on one device.

    Returns
    -------
    path : Array of int32, shape (..., T)
    score : Array, shape (...)
        Its gradient is 1 for each score that the path has in it, and 0 for all others.

    Raises
    ------
    TypeError, ValueError, NotImplementedError
        As :func:`semiring_mm.sequences.viterbi`.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from semiring_mm.jax import sequences
    >>> seen = jnp.array([[1.0, 0], [0, 3], [1, 0]])
    >>> sequences.viterbi(seen, jnp.zeros((2, 2)))[0].tolist()
    [0, 1, 0]
    >>> jax.grad(lambda e: sequences.viterbi(e, jnp.zeros((2, 2)))[1])(seen).tolist()
    [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    """
    m = _model("viterbi", emissions, transitions, start, end, lengths)
    path, value = _best(*m)
    return path, value


def log_partition(
    emissions: Array,
    transitions: Array,
    start: Array | None = None,
    end: Array | None = None,
    *,
    lengths: Any = None,
) -> Array:
    """The logarithm of the sum of exp(score) over all sequences of states, with gradients.

    Parameters
    ----------
    emissions, transitions, start, end, lengths
        As for :func:`semiring_mm.sequences.viterbi`; arrays on one device.

    Returns
    -------
    Array, shape (...)

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
    >>> import jax, jax.numpy as jnp
    >>> from semiring_mm.jax import sequences
    >>> total = lambda e: sequences.log_partition(e, jnp.zeros((2, 2)))
    >>> total(jnp.zeros((3, 2))).round(3).tolist()  # log 8
    2.0789999961853027
    >>> jax.grad(total)(jnp.zeros((3, 2)))[0].tolist()
    [0.5, 0.5]
    """
    verb = "log_partition"
    return _total(verb, *_model(verb, emissions, transitions, start, end, lengths))


def marginals(
    emissions: Array,
    transitions: Array,
    start: Array | None = None,
    end: Array | None = None,
    *,
    lengths: Any = None,
    pairs: bool = False,
) -> Any:
    """The posterior probability of each state at each step, with gradients.

    Parameters
    ----------
    emissions, transitions, start, end, lengths, pairs
        As for :func:`semiring_mm.sequences.marginals`; arrays on one device.

    Returns
    -------
    states : Array, shape (..., T, S)
    pairs : Array, shape (..., S, S) or (..., T - 1, S, S)
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
    >>> import jax, jax.numpy as jnp
    >>> from semiring_mm.jax import sequences
    >>> stay = jnp.array([[2.0, 0.0], [0.0, 2.0]])
    >>> first = lambda e: sequences.marginals(e, stay)[0, 0]
    >>> slope = jax.grad(first)(jnp.array([[0.0, 0.0], [2.0, 0.0]]))
    >>> slope[1, 0].round(2).tolist()  # what the second step says of the first
    0.07999999821186066
    """
    m = _model("marginals", emissions, transitions, start, end, lengths)
    _, states, both = _posterior("marginals", *m)
    if not pairs:
        return states
    return states, both[..., 0, :, :] if jnp.ndim(transitions) == 2 else both


def forward(
    emissions: Array, transitions: Array, start: Array | None = None, *, lengths: Any = None
) -> Array:
    """The log-sums of all beginnings: that end, at each step, in each state, with gradients.

    Parameters
    ----------
    emissions, transitions, start, lengths
        As for :func:`semiring_mm.sequences.forward`; arrays on one device.

    Returns
    -------
    Array, shape (..., T, S)

    Raises
    ------
    TypeError, ValueError, NotImplementedError
        As :func:`semiring_mm.sequences.viterbi`.

    Notes
    -----
    Derivatives of all orders, with O(T S²) memory.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from semiring_mm.jax import sequences
    >>> jnp.exp(sequences.forward(jnp.zeros((3, 2)), jnp.zeros((2, 2))))[:, 0].round(2).tolist()
    [1.0, 2.0, 4.0]
    """
    m = _model("forward", emissions, transitions, start, None, lengths)
    given = m.start + m.emissions[..., 0, :] if m.steps else m.start
    return _rows("forward", m, given, False)


def backward(
    emissions: Array, transitions: Array, end: Array | None = None, *, lengths: Any = None
) -> Array:
    """The log-sums of all continuations: from each state at each step to the end, with gradients.

    Parameters
    ----------
    emissions, transitions, end, lengths
        As for :func:`semiring_mm.sequences.backward`; arrays on one device.

    Returns
    -------
    Array, shape (..., T, S)

    Raises
    ------
    TypeError, ValueError, NotImplementedError
        As :func:`semiring_mm.sequences.viterbi`.

    Notes
    -----
    Derivatives of all orders, with O(T S²) memory.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from semiring_mm.jax import sequences
    >>> jnp.exp(sequences.backward(jnp.zeros((3, 2)), jnp.zeros((2, 2))))[:, 0].round(2).tolist()
    [4.0, 2.0, 1.0]
    """
    m = _model("backward", emissions, transitions, None, end, lengths)
    return _rows("backward", m, m.end, True)


def score(
    emissions: Array,
    transitions: Array,
    tags: Array,
    start: Array | None = None,
    end: Array | None = None,
    *,
    lengths: Any = None,
) -> Array:
    """The score of given sequences of states, with gradients.

    Parameters
    ----------
    emissions, transitions
        As for :func:`semiring_mm.sequences.viterbi`; arrays on one device.
    tags : Array of whole numbers, shape (..., T)
        The states. What lies behind a sequence's end is not read.
    start, end, lengths
        As for :func:`semiring_mm.sequences.viterbi`.

    Returns
    -------
    Array, shape (...)

    Raises
    ------
    TypeError, ValueError, NotImplementedError
        As :func:`semiring_mm.sequences.score`.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from semiring_mm.jax import sequences
    >>> value = lambda e: sequences.score(e, jnp.zeros((2, 2)), jnp.array([0, 0]))
    >>> jax.grad(value)(jnp.eye(2)).tolist()
    [[1.0, 0.0], [1.0, 0.0]]
    """
    m = _model("score", emissions, transitions, start, end, lengths)
    return _scored("score", m, tags)


def crf_loss(
    emissions: Array,
    transitions: Array,
    tags: Array,
    start: Array | None = None,
    end: Array | None = None,
    *,
    lengths: Any = None,
) -> Array:
    """The negative log-likelihood of tags in a linear-chain conditional random field.

    Parameters
    ----------
    emissions, transitions
        As for :func:`semiring_mm.sequences.viterbi`; arrays on one device.
    tags : Array of whole numbers, shape (..., T)
        The states. What lies behind a sequence's end is not read.
    start, end, lengths
        As for :func:`semiring_mm.sequences.viterbi`.

    Returns
    -------
    Array, shape (...)
        The loss of each sequence: :func:`log_partition` less :func:`score`, with their gradients.
        inf where the tags are impossible; NaN where every sequence of states is, with the gradient
        of the score alone.

    Raises
    ------
    TypeError, ValueError, NotImplementedError
        As :func:`semiring_mm.sequences.crf_loss`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from semiring_mm.jax import sequences
    >>> loss = sequences.crf_loss(jnp.zeros((3, 2)), jnp.zeros((2, 2)), jnp.array([0, 1, 1]))
    >>> loss.round(3).tolist()
    2.0789999961853027
    """
    m = _model("crf_loss", emissions, transitions, start, end, lengths)
    return _total("crf_loss", *m) - _scored("crf_loss", m, tags)


# --- the checked model ----------------------------------------------------------------------------


class _Model(NamedTuple):
    """Operands as the operators take them, all with the leading dimensions of the batch."""

    emissions: Array  # (..., T, S)
    transitions: Array  # (..., 1 or T - 1, S, S)
    start: Array  # (..., S)
    end: Array
    lengths: Array | None  # (...)

    @property
    def steps(self) -> int:
        return int(self.emissions.shape[-2])


def _model(verb: str, e: Any, a: Any, start: Any, end: Any, lengths: Any) -> _Model:
    chains.refuse_ragged(verb, emissions=e)
    e, a, start, end, lengths = (
        None if v is None else jnp.asarray(v) for v in (e, a, start, end, lengths)
    )
    dtype = jnp.result_type(jnp.float32, *(v for v in (e, a, start, end) if v is not None))
    if not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(f"{verb} takes real numbers, got dtype {dtype}: use float32")
    shapes = (None if v is None else v.shape for v in (e, a, start, end, lengths))
    batch = host.batch_of_model(verb, shapes)
    return _Model(*_broadcast(e, a, start, end, lengths, dtype=dtype, batch=batch))


@functools.partial(jax.jit, static_argnames=("dtype", "batch"))
def _broadcast(
    e: Array, a: Array, start: Array | None, end: Array | None, lengths: Array | None, *,
    dtype: Any, batch: tuple[int, ...],
) -> _Model:  # fmt: skip
    e, a, start, end = (None if v is None else v.astype(dtype) for v in (e, a, start, end))
    a = a[None] if a.ndim == 2 else a
    none = jnp.zeros(e.shape[-1], dtype)
    ends = (jnp.broadcast_to(none if v is None else v, (*batch, *none.shape)) for v in (start, end))
    return _Model(
        jnp.broadcast_to(e, (*batch, *e.shape[-2:])), jnp.broadcast_to(a, (*batch, *a.shape[-3:])),
        next(ends), next(ends),
        None if lengths is None else jnp.broadcast_to(lengths, batch),
    )  # fmt: skip


def _rows(verb: str, m: _Model, given: Array, reverse: bool) -> Array:
    if m.lengths is not None and not isinstance(m.lengths, jax.core.Tracer):
        chains.as_lengths(m.lengths, m.lengths.shape, m.steps, verb)  # the chain is a step shorter
    if not m.steps:
        return m.emissions
    t = jnp.arange(m.steps)
    length = jnp.full(given.shape[:-1], m.steps) if m.lengths is None else m.lengths
    last = (length - 1)[..., None]
    whole = given[..., None, :]
    found = jnp.zeros_like(whole)
    if m.steps > 1:
        behind = jnp.maximum(length - 1, 0)
        found = ChainFunctions.prefixes(
            semirings["log_plus"], m.transitions, m.emissions[..., 1:, :], given, behind, reverse
        )
        parts = [found, jnp.zeros_like(whole)]
        found = jnp.concatenate(parts if reverse else parts[::-1], -2)
    found = jnp.where((t == (last if reverse else 0))[..., None], whole, found)
    return jnp.where((t <= last)[..., None], found, -jnp.inf)


def _scored(verb: str, m: _Model, tags: Any) -> Array:
    chains.refuse_ragged(verb, tags=tags)
    at = host.tags_of_shape(verb, jnp.asarray(tags), m.emissions.shape[:-1], jnp.broadcast_to)
    return _score(verb, *m[:4], at, m.lengths)


# --- log-partitions and posterior probabilities ---------------------------------------------------


def _operands(*given: Array | None) -> tuple[list[Array], Any]:
    """The arrays that are there, and what puts them back in their places."""
    there = [x is not None for x in given]

    def back(*arrays: Array) -> list[Array | None]:
        left = iter(arrays)
        return [next(left) if x else None for x in there]

    return [x for x in given if x is not None], back


def _like(x: Array, shape: Any) -> Any:
    return jax.ShapeDtypeStruct(tuple(shape), x.dtype)


def _compute_total(
    verb: str, e: Array, a: Array, start: Array, end: Array, lengths: Array | None
) -> Array:
    given, back = _operands(e, a, start, end, lengths)

    def total(*arrays: Array) -> tuple[Array]:
        e, a, start, end, counts = back(*arrays)
        return host.posterior(verb, e, a, start, end, counts, 0)[:1]

    return run(total, [_like(e, e.shape[:-2])], *given)[0]


def _compute_posterior(
    verb: str, e: Array, a: Array, start: Array, end: Array, lengths: Array | None
) -> tuple[Array, ...]:
    given, back = _operands(e, a, start, end, lengths)
    results = [_like(e, e.shape[:-2]), _like(e, e.shape), _like(e, a.shape)]

    def probabilities(*arrays: Array) -> tuple[Array, ...]:
        e, a, start, end, counts = back(*arrays)
        return host.posterior(verb, e, a, start, end, counts, 2)

    return run(probabilities, results, *given)


def _total_forward(verb: str, *operands: Array | None) -> tuple[Any, Any]:
    found = _posterior(verb, *operands)
    return found[0], (operands, found)


def _total_backward(_: str, kept: Any, g: Array) -> tuple[Any, ...]:
    (*operands, lengths), known = kept
    return *_by_total(g, tuple(operands), lengths, known), None


def _posterior_forward(verb: str, *operands: Array | None) -> tuple[Any, Any]:
    found = _posterior(verb, *operands)
    return found, (operands, found)


def _posterior_backward(_: str, kept: Any, came: Any) -> tuple[Any, ...]:
    (*operands, lengths), known = kept
    found = chain_gradients.of_posterior(_JAX, tuple(came), tuple(operands), lengths, known)
    return *found, None


_total = jax.custom_vjp(_compute_total, nondiff_argnums=(0,))
_total.defvjp(_total_forward, _total_backward)
_posterior = jax.custom_vjp(_compute_posterior, nondiff_argnums=(0,))
_posterior.defvjp(_posterior_forward, _posterior_backward)


class _Functions(ChainFunctions):
    @staticmethod
    def posterior(
        e: Array, a: Array, start: Array, end: Array, lengths: Array | None
    ) -> tuple[Array, Array, Array]:
        total, states, pairs = _posterior("marginals", e, a, start, end, lengths)
        return total, states, pairs


_JAX = _Functions()


def _compute_by_total(
    g: Array, operands: tuple[Array, ...], lengths: Array | None, known: tuple[Array, ...]
) -> tuple[Array, ...]:
    return chain_gradients.of_posterior(_JAX, (g, None, None), operands, lengths, known)


def _compute_indicators(
    g: Array, path: Array, a: Array, lengths: Array | None
) -> tuple[Array, ...]:
    return chain_gradients.indicators(_JAX, g, path, a, lengths)


# Each function of jax.numpy takes tens of microseconds where it is called alone.
_by_total, _indicators = jax.jit(_compute_by_total), jax.jit(_compute_indicators)


# --- scores of paths ------------------------------------------------------------------------------


def _compute_best(
    e: Array, a: Array, start: Array, end: Array, lengths: Array | None
) -> tuple[Array, Array]:
    given, back = _operands(e, a, start, end, lengths)

    def best(*arrays: Array) -> tuple[Array, Array]:
        *model, counts = back(*arrays)
        return host.viterbi(*model, lengths=counts)

    results = [jax.ShapeDtypeStruct(e.shape[:-1], jnp.int32), _like(e, e.shape[:-2])]
    path, value = run(best, results, *given)
    return path, value


def _best_forward(*operands: Array | None) -> tuple[Any, Any]:
    path, value = _best(*operands)
    return (path, value), (path, operands[1], operands[4])


def _best_backward(kept: Any, came: Any) -> tuple[Any, ...]:
    return *_indicators(came[1], *kept), None


def _compute_score(
    verb: str, e: Array, a: Array, start: Array, end: Array, tags: Array, lengths: Array | None
) -> Array:
    given, back = _operands(e, a, start, end, tags, lengths)

    def value(*arrays: Array) -> tuple[Array]:
        return (host.path_score(verb, *back(*arrays)),)

    return run(value, [_like(e, e.shape[:-2])], *given)[0]


def _score_forward(verb: str, *operands: Array | None) -> tuple[Any, Any]:
    return _score(verb, *operands), (operands[4], operands[1], operands[5])


def _score_backward(_: str, kept: Any, g: Array) -> tuple[Any, ...]:
    return *_indicators(g, *kept), None, None


_best = jax.custom_vjp(_compute_best)
_best.defvjp(_best_forward, _best_backward)
_score = jax.custom_vjp(_compute_score, nondiff_argnums=(0,))
_score.defvjp(_score_forward, _score_backward)
