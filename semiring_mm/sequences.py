"""Hidden Markov models and linear-chain conditional random fields, over whole batches.

A model gives a sequence of states y the score
``start[y₁] + emissions[1, y₁] + transitions[y₁, y₂] + emissions[2, y₂] + … + end[y_T]``. For a
hidden Markov model these are logarithms of probabilities, for a random field any numbers.

>>> import numpy as np
>>> from semiring_mm import sequences
>>> stay = np.log([[0.9, 0.1], [0.1, 0.9]])
>>> seen = np.log([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2], [0.1, 0.9], [0.2, 0.8]])
>>> path, score = sequences.viterbi(seen, stay)
>>> path
array([0, 0, 0, 1, 1], dtype=int32)
>>> sequences.marginals(seen, stay)[:, 1].round(2)
array([0.17, 0.33, 0.42, 0.85, 0.87])
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .arrays import Call, check_memory, repeat
from .chains import as_lengths, flat, on_host
from .engine import Chains
from .lazy import cached_property
from .naming import integer, listing
from .semirings import Semiring, semirings
from .verb import Verb, refuse_ragged, sum_to

__all__ = [
    "CRFLoss", "backward", "crf_loss", "forward", "log_partition", "marginals", "sample", "score",
    "viterbi",
]  # fmt: skip
__dir__ = listing(__all__)

Array = Any
Shape = tuple[int, ...]
_LOG, _MAX = semirings["log_plus"], semirings["max_plus"]
_UNASKED = 1 << 30  # bytes of rows without a sequence
STEPS = -1  # in a shape: the axis of steps


def _steps(sizes: dict[str, int], given: Mapping[str, Any]) -> str | None:
    """Whose sizes are wrong: there is a state, and a matrix for all steps or for each."""
    if not sizes["S"]:
        return "emissions"
    return "transitions" if sizes.get("U", 1) not in (1, max(0, sizes["T"] - 1)) else None


#: The operands of all functions here.
MODEL = Verb(
    "model",
    "emissions ...TS, transitions ...[U]SS, start ...S = 0, end ...S = 0, lengths ...:i8 = T",
    sizes=_steps,
    wants={
        "emissions": lambda at: (
            "emissions have a row of at least one state for each step, (..., T, S)"
        ),
        "transitions": lambda at: (
            f"emissions of shape {at['emissions']} take transitions of shape "
            f"({at['S']}, {at['S']}) for all steps, or (..., {max(0, at['T'] - 1)}, {at['S']}, "
            f"{at['S']}) for each"
        ),
        "start": lambda at: f"start has S = {at['S']} scores, (..., S)",
        "end": lambda at: f"end has S = {at['S']} scores, (..., S)",
    },
)


@dataclass(frozen=True)
class CRFLoss:
    """The loss of a conditional random field, and the gradient of its sum over the batch.

    Attributes
    ----------
    loss : (...) array
        The negative log-likelihood of each sequence.
    emissions, transitions, start, end : arrays
        The gradient with respect to each argument, of its shape.
    """

    loss: Array
    emissions: Array
    transitions: Array
    start: Array
    end: Array


def viterbi(
    emissions: ArrayLike,
    transitions: ArrayLike,
    start: ArrayLike | None = None,
    end: ArrayLike | None = None,
    *,
    observations: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    k: int | None = None,
    device: str | None = None,
) -> tuple[Any, Any]:
    """The best sequence of states, by Viterbi's algorithm (1967).

    Parameters
    ----------
    emissions : array_like, shape (..., T, S), or (S, V) with `observations`
        The score of each state at each step: the log-probability of what is seen there. Batches
        of sequences have leading dimensions. With `observations`, the score of each symbol in each
        state.
    transitions : array_like, shape (S, S) or (..., T - 1, S, S)
        The score of state j after state i at [i, j]: of all steps, or of each of them;
        (..., 1, S, S) is a matrix for each sequence. -inf forbids it.
    start, end : array_like, shape (..., S), optional
        The scores of the first state and of the last; 0 by default.
    observations : array_like of int, shape (..., T), optional
        The symbol, below V, that is seen at each step of a model with discrete emissions.
    lengths : array_like of int, shape (...), optional
        The steps of each sequence, at most T. What lies behind them is not read. Or, of shape
        (sequences,) with emissions (T, S) or observations (T,), of sequences that lie one after the
        other, as hmmlearn takes them: T steps in all. The results by steps then lie so, too, as in
        `path` (T,), with `k` (k, T); all else is by sequences.
    k : int, optional
        Return so many sequences, best first.
    device : {None, "cpu", "cuda", "cuda:N"}
        As for :func:`semiring_mm.matmul`.

    Returns
    -------
    path : ndarray of int32, shape (..., T), or (..., k, T) with `k`
        -1 behind a sequence's end. Of equally good states the lowest at each step, from the end
        back; where the score is -inf a path of no meaning.
    score : ndarray, shape (...), or (..., k) with `k`
        0 for an empty sequence. Where fewer than k sequences are possible, the rest have the score
        -inf and states -1.

    Raises
    ------
    ValueError, TypeError
        For shapes that do not match, no states, and numbers that are not real.
    MemoryError, ValueError
        For a k whose results do not fit in memory, or are rows without a sequence for a GiB.
    NotImplementedError
        On a CUDA device for more than 1,024 states, and for so many sequences that k S scores do
        not fit into a block's shared memory: 605 of up to 32 states in float32 on Hopper.

    Notes
    -----
    O(T S²) a sequence; scores are those of the steps one after the other, exactly. No pointers are
    kept: a sequence's scores stay in the cache, and the state before a state is found again in O(S)
    on the way back. float32 and float64 are computed with as they are, 16-bit floats in float32,
    whole numbers in float64. A NaN counts as better than any number, so it is seen in the score.
    On a CUDA device few long sequences are cut in parts, so that scores are rounded in another
    order, and of equally good paths any is found.

    The k best take O(k T S) more: a sequence parts from a better one at some step, in some state,
    and the best way there is known (Hoffman and Pavley, 1959). On a CUDA device each state keeps
    its k best beginnings (the parallel list Viterbi algorithm: Seshadri and Sundberg, 1994).
    Sequences of one score come in no particular order.

    Examples
    --------
    >>> import numpy as np
    >>> from semiring_mm import sequences
    >>> seen = np.log([[[0.9, 0.1], [0.6, 0.4], [0.1, 0.9]], [[0.3, 0.7], [0.5, 0.5], [1, 1]]])
    >>> path, score = sequences.viterbi(seen, np.log([[0.8, 0.2], [0.2, 0.8]]), lengths=[3, 2])
    >>> path
    array([[ 0,  0,  1],
           [ 1,  1, -1]], dtype=int32)
    >>> np.exp(score).round(4)
    array([0.0778, 0.28  ])
    >>> sequences.viterbi(seen[0], np.log([[0.8, 0.2], [0.2, 0.8]]), k=3)[0]
    array([[0, 0, 1],
           [0, 1, 1],
           [0, 0, 0]], dtype=int32)
    """
    if k is not None and (k := integer(k, "viterbi: k", " or None")) < 1:
        raise ValueError(f"viterbi: k is how many sequences are wanted, at least 1, got {k}")
    if k is None:
        return best_path(emissions, transitions, start, end, lengths, observations, device)
    with _model("viterbi", device, emissions, transitions, start, end, lengths, observations) as m:
        path, value = _best(m, k)
        return m.give(path, k, STEPS), m.give(value, k)


def log_partition(
    emissions: ArrayLike,
    transitions: ArrayLike,
    start: ArrayLike | None = None,
    end: ArrayLike | None = None,
    *,
    observations: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    device: str | None = None,
) -> Any:
    """The logarithm of the sum of exp(score) over all sequences of states.

    Of a hidden Markov model it is the log-likelihood of what was seen.

    Parameters
    ----------
    emissions, transitions, start, end, observations, lengths, device
        As for :func:`viterbi`, which has the errors too.

    Returns
    -------
    ndarray, shape (...)
        0 for an empty sequence (there is one, of score 0); -inf if no sequence is possible.

    Notes
    -----
    O(T S²) by the forward algorithm. On the CPU, where all steps share the transitions, it is
    without logarithms; sequences with factors too far apart for float64 are computed in these.

    Examples
    --------
    >>> import numpy as np
    >>> from semiring_mm import sequences
    >>> rain = np.log([[0.7, 0.3], [0.4, 0.6]])
    >>> seen = np.log([[0.1, 0.8], [0.1, 0.8], [0.9, 0.2]])
    >>> np.exp(sequences.log_partition(seen, rain, start=np.log([0.5, 0.5]))).round(4)
    np.float64(0.1114)
    """
    model = emissions, transitions, start, end, lengths
    return posterior("log_partition", *model, 0, observations, device)[0]


def forward(
    emissions: ArrayLike,
    transitions: ArrayLike,
    start: ArrayLike | None = None,
    *,
    observations: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    device: str | None = None,
) -> Any:
    """The log-sums of all beginnings: that end, at each step, in each state.

    Parameters
    ----------
    emissions, transitions, start, observations, lengths, device
        As for :func:`viterbi`, which has the errors too.

    Returns
    -------
    ndarray, shape (..., T, S)
        With the emissions of the step itself; -inf behind a sequence's end.

    Examples
    --------
    >>> import numpy as np
    >>> from semiring_mm import sequences
    >>> walk = np.log([[0.5, 0.5], [0.25, 0.75]])
    >>> np.exp(sequences.forward(np.zeros((3, 2)), walk, np.log([0.5, 0.5]))).round(3)
    array([[0.5  , 0.5  ],
           [0.375, 0.625],
           [0.344, 0.656]])
    """
    with _model("forward", device, emissions, transitions, start, None, lengths, observations) as m:
        return m.give(_rows(m), STEPS, m.states)


def backward(
    emissions: ArrayLike,
    transitions: ArrayLike,
    end: ArrayLike | None = None,
    *,
    observations: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    device: str | None = None,
) -> Any:
    """The log-sums of all continuations: from each state at each step to the end.

    Parameters
    ----------
    emissions, transitions, end, observations, lengths, device
        As for :func:`viterbi`, which has the errors too.

    Returns
    -------
    ndarray, shape (..., T, S)
        Without the emissions of the step itself, so that ``forward + backward`` are the sums over
        all sequences through a state; -inf behind a sequence's end.

    Examples
    --------
    >>> import numpy as np
    >>> from semiring_mm import sequences
    >>> walk = np.log([[0.5, 0.5], [0.25, 0.75]])
    >>> np.exp(sequences.backward(np.zeros((3, 2)), walk, end=[0, -np.inf])).round(4)
    array([[0.375 , 0.3125],
           [0.5   , 0.25  ],
           [1.    , 0.    ]])
    """
    with _model("backward", device, emissions, transitions, None, end, lengths, observations) as m:
        return m.give(_rows(m, reverse=True), STEPS, m.states)


def marginals(
    emissions: ArrayLike,
    transitions: ArrayLike,
    start: ArrayLike | None = None,
    end: ArrayLike | None = None,
    *,
    observations: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    pairs: bool = False,
    device: str | None = None,
) -> Any:
    """The posterior probability of each state at each step (forward-backward algorithm).

    Parameters
    ----------
    emissions, transitions, start, end, observations, lengths
        As for :func:`viterbi`, which has the errors too.
    pairs : bool, default False
        Also return how often state j follows state i, expected.
    device : {None, "cpu", "cuda", "cuda:N"}

    Returns
    -------
    states : ndarray, shape (..., T, S)
        They sum to 1 at each step of a sequence, and are 0 behind its end; NaN where no sequence is
        possible.
    pairs : ndarray, shape (..., S, S) or (..., T - 1, S, S)
        Only with `pairs`: the sum over all steps, or each where `transitions` has a matrix for
        each.

    Notes
    -----
    O(T S²) a sequence. They are the gradients of :func:`log_partition` with respect to the
    emissions and the transitions. The sums of both directions stay in the cache.

    Examples
    --------
    >>> import numpy as np
    >>> from semiring_mm import sequences
    >>> seen = np.log([[0.9, 0.1], [0.5, 0.5], [0.9, 0.1]])
    >>> states, pairs = sequences.marginals(seen, np.log([[0.9, 0.1], [0.1, 0.9]]), pairs=True)
    >>> states[:, 0].round(3), pairs.round(3)
    (array([0.965, 0.954, 0.965]), array([[1.885, 0.035],
           [0.035, 0.046]]))
    """
    model = emissions, transitions, start, end, lengths
    _, *found = posterior("marginals", *model, 1 + bool(pairs), observations, device)
    return tuple(found) if pairs else found[0]


def sample(
    emissions: ArrayLike,
    transitions: ArrayLike,
    start: ArrayLike | None = None,
    end: ArrayLike | None = None,
    *,
    size: int | None = None,
    observations: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    rng: np.random.Generator | int | None = None,
    device: str | None = None,
) -> Any:
    """Draw sequences of states with their posterior probabilities.

    Parameters
    ----------
    emissions, transitions, start, end
        As for :func:`viterbi`, which has the errors too.
    size : int, optional
        How many of each; None: one, without an axis of its own.
    observations, lengths
        As for :func:`viterbi`.
    rng : numpy.random.Generator or int, optional
        What draws, or its seed; the same one draws the same sequences (on a device, but for
        rounding).
    device : {None, "cpu", "cuda", "cuda:N"}

    Returns
    -------
    ndarray of int32, shape (..., T) or (size, ..., T)
        -1 behind a sequence's end.

    Raises
    ------
    ValueError
        Where no sequence of states is possible, and for scores of NaN or +inf.

    Notes
    -----
    Forward filtering, backward sampling (Carter and Kohn, 1994; Frühwirth-Schnatter, 1994): O(T S²)
    once and O(T S) for each draw, by inverting cumulative sums.

    Examples
    --------
    >>> import numpy as np
    >>> from semiring_mm import sequences
    >>> seen, steps = np.log([[0.9, 0.1], [0.5, 0.5]]), np.log([[0.9, 0.1], [0.1, 0.9]])
    >>> draws = sequences.sample(seen, steps, size=10_000, rng=0)
    >>> draws.shape, (draws == 0).mean(0).round(1)
    ((10000, 2), array([0.9, 0.8]))
    """
    if size is not None and (size := integer(size, "sample: size", " or None")) < 0:
        raise ValueError(f"sample: size must be at least 0, got {size}")
    with _model("sample", device, emissions, transitions, start, end, lengths, observations) as m:
        count = 1 if size is None else size
        uniforms = np.random.default_rng(rng).random((count, m.chains, m.steps), m.dtype)
        paths = m.xp.full(uniforms.shape, -1, np.int32)
        if paths.size:
            _check_possible(m)
            drawn = m.call.engine.from_host(uniforms)
            m.verbs.draw(m.a, m.e, m.x, m.end, drawn, paths, m.counts)
        several = () if size is None else (count,)
        if m.places is not None:
            return m.give(paths.swapaxes(0, 1), *several, STEPS)
        return m.call.give(paths.reshape(*several, *m.batch, m.steps))


def score(
    emissions: ArrayLike,
    transitions: ArrayLike,
    tags: ArrayLike,
    start: ArrayLike | None = None,
    end: ArrayLike | None = None,
    *,
    observations: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    device: str | None = None,
) -> Any:
    """The score of given sequences of states.

    Parameters
    ----------
    emissions, transitions
        As for :func:`viterbi`, which has the errors too.
    tags : array_like of int, shape (..., T)
        The states. What lies behind a sequence's end is not read.
    start, end, observations, lengths, device
        As for :func:`viterbi`.

    Returns
    -------
    ndarray, shape (...)
        0 for an empty sequence.

    Examples
    --------
    >>> from semiring_mm import sequences
    >>> sequences.score([[1, 2], [3, 4]], [[10, 20], [30, 40]], [1, 0], start=[0, 100])
    np.float64(135.0)
    """
    with _model("score", device, emissions, transitions, start, end, lengths, observations) as m:
        return m.give(_scored(m, _tags(m, "score", tags)))


def crf_loss(
    emissions: ArrayLike,
    transitions: ArrayLike,
    tags: ArrayLike,
    start: ArrayLike | None = None,
    end: ArrayLike | None = None,
    *,
    lengths: ArrayLike | None = None,
    device: str | None = None,
) -> CRFLoss:
    """The negative log-likelihood of tags in a linear-chain conditional random field.

    Parameters
    ----------
    emissions, transitions
        As for :func:`viterbi`, which has the errors too.
    tags : array_like of int, shape (..., T)
        The states. What lies behind a sequence's end is not read.
    start, end, lengths, device
        As for :func:`viterbi`.

    Returns
    -------
    CRFLoss
        The loss of each sequence, and the gradient of their sum with respect to each argument: what
        is expected less what is in `tags` (Lafferty, McCallum and Pereira, 2001).

    Notes
    -----
    O(T S²) a sequence, as of :func:`marginals`, whose values the gradient is made of.

    The loss is inf where the tags are impossible. Where every sequence of states is, it is -inf
    less -inf: NaN, without a warning, and its gradient is that of the score alone.

    Examples
    --------
    >>> import numpy as np
    >>> from semiring_mm import sequences
    >>> found = sequences.crf_loss(np.zeros((3, 2)), np.zeros((2, 2)), [0, 1, 1])
    >>> found.loss.round(3)  # log 8
    np.float64(2.079)
    >>> found.transitions
    array([[ 0.5, -0.5],
           [ 0.5, -0.5]])
    """
    with _model("crf_loss", device, emissions, transitions, start, end, lengths) as m:
        at = _tags(m, "crf_loss", tags)
        total, states, pairs = _posterior(m, 2)
        gone = total == -np.inf
        states[gone], pairs[gone] = 0, 0
        with np.errstate(invalid="ignore"):  # NaN where it is gone
            loss = total - _scored(m, at)
        gradient = states
        b, t = m.xp.nonzero(m.inside)
        gradient[b, t, at[b, t]] -= 1
        b, t = m.xp.nonzero(m.inside[:, 1:])
        step = () if m.plain else (0 * t if m.shared else t,)
        m.xp.add.at(pairs, (b, *step, at[b, t], at[b, t + 1]), -1)
        ends = m.xp.zeros((2, m.chains, m.states), m.dtype)
        if m.steps:
            full, last = m.full
            ends[0, full] = gradient[full, 0]
            ends[1, full] = gradient[full, last]

        def own(found: Array, like: Any, *axes: int) -> Array:
            found = m.with_axes(found, *axes, *found.shape[1 + len(axes) :])
            shape = np.shape(like) if like is not None else found.shape[-1:]
            return m.call.give(sum_to(found, shape))

        found = (own(gradient, emissions, STEPS), own(pairs, transitions), own(ends[0], start))
        return CRFLoss(m.give(loss), *found, own(ends[1], end))


def best_path(
    emissions: Any, transitions: Any, start: Any, end: Any, lengths: Any,
    observations: Any = None, device: str | None = None, *, known: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """The result of :func:`viterbi`; for `known` see :func:`posterior`."""
    model = device, emissions, transitions, start, end, lengths, observations
    head, found = _again("best_path", *model, known=known)
    if found is not None:
        return found[0], found[1]
    with _model("viterbi", *model, head) as m:
        path = m.filled((m.chains, m.steps), np.int32, 0xFF)
        value = m.filled((m.chains,), m.dtype)
        if path.size:
            m.verbs.best_path(
                _MAX, m.a, m.given, m.x, m.end, path, value, m.lengths, symbols=m.symbols
            )
        path, value = m.give_all((path, STEPS), (value,))
        return path, value


def posterior(
    verb: str, emissions: Any, transitions: Any, start: Any, end: Any, lengths: Any, what: int,
    observations: Any = None, device: str | None = None, *, known: bool = False,
) -> tuple[Any, ...]:  # fmt: skip
    """The result of :func:`log_partition`, and with `what` from 1 on those of :func:`marginals`.

    With 2 also of pairs. For a function of this name, as has :func:`path_score`. `known` says that
    lengths are an array of int64 on the operands' device, none of them out of range.
    """
    model = device, emissions, transitions, start, end, lengths, observations
    head, found = _again(f"posterior {what}", *model, known=known)
    if found is None:
        with _model(verb, *model, head) as m:
            results = _posterior(m, what)
            axes = (), (STEPS, m.states), results[-1].shape[1:]
            found = m.give_all(*((x, *own) for x, own in zip(results, axes, strict=False)))
    return (*found, None, None)[:3]


def path_score(
    verb: str, emissions: Any, transitions: Any, start: Any, end: Any, tags: Any, lengths: Any
) -> Any:
    """The result of :func:`score`."""
    with _model(verb, None, emissions, transitions, start, end, lengths) as m:
        return m.give(_scored(m, _tags(m, verb, tags)))


def tags_of_shape(
    verb: str, tags: Any, shape: tuple[int, ...], expand: Callable[[Any, tuple[int, ...]], Any]
) -> Any:
    """Tags for sequences of a shape (..., T), by a library's function that repeats them."""
    try:
        return expand(tags, shape)
    except (ValueError, RuntimeError):
        raise ValueError(
            f"{verb}: tags of shape {tuple(tags.shape)} for {shape[-1]} steps of sequences of "
            f"shape {tuple(shape[:-1])}"
        ) from None


def _again(
    name: str, device: str | None, emissions: Any, transitions: Any, start: Any, end: Any,
    lengths: Any, observations: Any, *, known: bool,
) -> tuple[tuple[Any, ...] | None, Any]:  # fmt: skip
    """What a call is kept by on a device, and its results if it was made before, or None."""
    if device is not None or observations is not None or (lengths is not None and not known):
        return None, None
    operands = [emissions, transitions, start, end, lengths]
    head = (name, *(x is None for x in operands[2:]))
    found = repeat(head, tuple(x for x in operands if x is not None))
    return head, found if found is None or isinstance(found, tuple) else (found,)


# --- the checked model ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Model:
    """Operands as the engine takes them, of a flattened batch."""

    call: Call
    xp: Any
    verbs: Chains
    a: Array  # (chains, steps - 1, S, S)
    given: Array  # (chains, steps, S): the emissions; (V, S) with symbols
    symbols: Array | None  # (chains, steps)
    x: Array  # (chains, S): the first row, with its emissions, for the call alone
    start: Array
    end: Array
    counts: Array  # lengths
    lengths: Array  # the same, on the device if they are known there
    batch: tuple[int, ...]
    plain: bool  # whether the transitions were given as one matrix
    shared: bool  # whether all steps of a sequence have one
    places: Array | None  # in chains times steps, of what came one sequence after the other

    @property
    def chains(self) -> int:
        return len(self.counts)

    @property
    def steps(self) -> int:
        return int((self.given if self.symbols is None else self.symbols).shape[1])

    @property
    def states(self) -> int:
        return int(self.given.shape[-1])

    @property
    def dtype(self) -> Any:
        return self.given.dtype

    @cached_property
    def e(self) -> Array:
        """The emissions (chains, steps, S)."""
        return self.given if self.symbols is None else self.given[self.symbols]

    @property
    def inside(self) -> Array:
        """Which steps (chains, steps) are before the ends."""
        return self.xp.arange(self.steps) < self.xp.asarray(self.counts)[:, np.newaxis]

    @property
    def full(self) -> tuple[Array, Array]:
        """The chains that have steps, and the last of these."""
        full = np.flatnonzero(self.counts)
        return self.xp.asarray(full), self.xp.asarray(self.counts[full] - 1)

    def filled(self, shape: Shape, dtype: Any, byte: int = 0) -> Array:
        """A result whose bytes are all the same at first."""
        return self.call.engine.fill(self.xp.empty(shape, dtype), byte)

    def give(self, x: Array, *shape: int) -> Any:
        return self.give_all((x, *shape))[0]

    def give_all(self, *results: tuple[Any, ...]) -> tuple[Any, ...]:
        """Arrays, with the axes behind the batch, as the caller gets them."""
        found = [self.with_axes(x, *shape) for x, *shape in results]
        given = tuple(x if x.ndim else x[()] for x in found)
        return tuple(self.call.give(given))

    def with_axes(self, x: Array, *shape: int) -> Array:
        """Results (chains, ...) with axes behind the batch, or one sequence after the other."""
        wide = [self.steps if n == STEPS else n for n in shape]
        if self.places is None or STEPS not in shape:
            return x.reshape((*self.batch, *wide))
        at = shape.index(STEPS)
        x = self.xp.moveaxis(x.reshape(self.chains, *wide), 0, at)
        wide[at : at + 1] = [self.chains * self.steps]
        return x.reshape(wide).take(self.places, axis=at)


@contextlib.contextmanager
def _model(
    verb: str, device: str | None, emissions: Any, transitions: Any, start: Any, end: Any,
    lengths: Any, observations: Any = None, head: tuple[Any, ...] | None = None,
) -> Iterator[_Model]:  # fmt: skip
    given = {"emissions": emissions, "transitions": transitions, "start": start, "end": end}
    refuse_ragged(verb, emissions=emissions, observations=observations)
    there = {"lengths": None if head is None else lengths}
    with Call(device, None, head, **given, **there) as call:
        verbs, xp = call.engine.chains, call.engine.xp
        e, a, *ends = (None if v is None else _real(verb, name, call[name]) for name, v in
                       given.items())  # fmt: skip
        seen = None
        if observations is not None:
            seen = _whole(xp, verb, "observations are the numbers of symbols", observations)
        if seen is not None and e is not None:
            if e.ndim != 2 or not seen.ndim:
                raise ValueError(
                    f"{verb}: with observations (..., T), emissions are a table of scores (S, V), "
                    f"one for each state and symbol; got shapes {seen.shape} and {e.shape}"
                )
            symbols, e = e.shape[1], xp.ascontiguousarray(e.T)
        places = None
        if lengths is not None and np.ndim(lengths) == 1:
            if seen is not None and seen.ndim == 1:
                seen, places = _stacked(xp, verb, seen, lengths, a)
            elif seen is None and e is not None and e.ndim == 2:
                e, places = _stacked(xp, verb, e, lengths, a)
        shapes = [None if v is None else np.shape(v) for v in (e, a, *ends, lengths)]
        if seen is not None and e is not None:
            shapes[0] = (*seen.shape, e.shape[1])
        batch, _ = MODEL.check(shapes, verb=verb)
        dtype = np.result_type(*(v.dtype for v in (e, a, *ends) if v is not None))
        e, a, start, end = (None if v is None else v.astype(dtype, copy=False)
                            for v in (e, a, *ends))  # fmt: skip
        assert e is not None
        assert a is not None
        n, steps = e.shape[-1], (e.shape[-2] if seen is None else seen.shape[-1])
        matrix = a[np.newaxis] if a.ndim == 2 else a
        counts = as_lengths(lengths, batch, steps, verb)
        if seen is None:
            e = flat(xp, e, batch, (steps, n))
        else:
            seen = _below(
                xp, xp.ascontiguousarray(flat(xp, seen, batch, (steps,))), symbols,
                None if lengths is None else counts, f"{verb}: observations",
            )  # fmt: skip
        one = call.engine.fill(call.engine.scratch(n, dtype), 0)
        start, end = (flat(xp, one if v is None else v, batch, (n,)) for v in (start, end))
        plain = a.ndim == 2
        shared = plain or (matrix.shape[-3] == 1 and steps != 2)
        matrix = flat(xp, matrix, batch, matrix.shape[-3:])
        if shared:
            matrix = xp.broadcast_to(matrix, (len(counts), max(0, steps - 1), n, n))
        x = start
        if steps:
            x = verbs.first(start, e[:, 0] if seen is None else e[seen[:, 0]])
        own = counts if there["lengths"] is None else call["lengths"]
        yield _Model(
            call, xp, verbs, matrix, e, seen, x, start, end, counts, own, batch, plain, shared,
            places,
        )  # fmt: skip


def _stacked(xp: Any, verb: str, x: Array, lengths: Any, a: Array | None) -> tuple[Array, Array]:
    """Sequences that lie one after the other as a stack, and where their steps are in it."""
    total = len(x)
    counts = as_lengths(lengths, np.shape(lengths), total, verb)
    if counts.sum() != total:
        raise ValueError(
            f"{verb}: lengths of sequences one after the other add up to {int(counts.sum())}, and "
            f"there are {total} steps"
        )
    if a is not None and a.ndim > 2 and a.shape[-3] != 1:
        raise ValueError(
            f"{verb}: sequences one after the other have one matrix of transitions for all steps, "
            f"(S, S) or (..., 1, S, S); got shape {a.shape}"
        )
    steps = int(counts.max(initial=0))
    check_memory(
        len(counts) * steps * x[:1].nbytes, f"{verb}: {len(counts):,} sequences of {steps:,} steps",
        less="give the longest ones in a call of their own,",
    )  # fmt: skip
    places = xp.asarray(np.flatnonzero(np.arange(steps) < counts[:, np.newaxis]))
    return _placed(xp, x, places, len(counts), steps), places


def _placed(xp: Any, x: Array, places: Array, chains: int, steps: int) -> Array:
    y = xp.zeros((chains * steps, *x.shape[1:]), x.dtype)
    y[places] = x
    return y.reshape(chains, steps, *x.shape[1:])


def _real(verb: str, name: str, x: Array) -> Array:
    """As float32 or float64."""
    if x.dtype.kind in "iub":
        return x.astype(np.float64)
    if x.dtype.kind == "f" and x.dtype.itemsize in (4, 8):
        return x.astype(x.dtype.newbyteorder("="), copy=False)
    if x.dtype.name in ("float16", "bfloat16"):
        return x.astype(np.float32)
    raise TypeError(f"{verb}: {name} are real numbers, got dtype {x.dtype}: use float32 or float64")


_HOST = {1, 3}  # of DLPack: memory of the host, and of it what a device may reach


def _whole(xp: Any, verb: str, name: str, given: Any) -> Array:
    """Numbers of states or symbols as an array of int64."""
    if xp is np:
        x = np.asarray(on_host(given))
    else:
        there = hasattr(given, "__dlpack__") and given.__dlpack_device__()[0] not in _HOST
        x = xp.from_dlpack(given) if there else xp.asarray(np.asarray(given))
    if x.dtype.kind not in "iu" and x.size:
        raise TypeError(f"{verb}: {name}, got dtype {x.dtype}")
    return x.astype(np.int64, copy=False)


def _below(xp: Any, x: Array, count: int, lengths: Array | None, text: str) -> Array:
    """Numbers (chains, steps) below `count`, 0 behind the ends of the chains."""
    if lengths is not None:
        x = xp.where(xp.arange(x.shape[1]) < xp.asarray(lengths)[:, np.newaxis], x, 0)
    if x.size and not (x.min() >= 0 and x.max() < count):
        raise ValueError(f"{text} must be from 0 to {count - 1}, got {x.min()} to {x.max()}")
    return x


def _tags(m: _Model, verb: str, tags: Any) -> Array:
    """Tags as an array (chains, steps) of states, 0 behind the ends."""
    refuse_ragged(verb, tags=tags)
    at = _whole(m.xp, verb, "tags are the numbers of states", tags)
    if m.places is None:
        at = tags_of_shape(verb, at, (*m.batch, m.steps), m.xp.broadcast_to)
        at = at.reshape(m.chains, m.steps)
    else:
        at = tags_of_shape(verb, at, m.places.shape, m.xp.broadcast_to)
        at = _placed(m.xp, at, m.places, m.chains, m.steps)
    return _below(m.xp, at, m.states, m.counts, f"{verb}: tags")


def _scored(m: _Model, at: Array) -> Array:
    xp, inside = m.xp, m.inside
    each = xp.arange(m.chains)
    own = xp.take_along_axis(m.e, at[..., np.newaxis], 2)[..., 0]
    total = xp.where(inside, own, 0).sum(1, dtype=m.dtype)
    if m.steps > 1:
        step = xp.zeros(m.steps - 1, np.int64) if m.shared else xp.arange(m.steps - 1)
        moves = m.a[each[:, np.newaxis], step, at[:, :-1], at[:, 1:]]
        total += xp.where(inside[:, 1:], moves, 0).sum(1, dtype=m.dtype)
    if m.steps:
        full, last = m.full
        total[full] += m.start[full, at[full, 0]] + m.end[full, at[full, last]]
    return total


def _check_possible(m: _Model) -> None:
    """Refuse models whose sequences have no probabilities to draw by."""
    total = m.call.engine.to_host(_posterior(m, 0)[0])
    for i in np.flatnonzero(~np.isfinite(total))[:1]:
        known = {-np.inf: "no sequence of states is possible", np.inf: "there are scores of +inf"}
        place = tuple(map(int, np.unravel_index(i, m.batch)))
        where = f" in sequence {place} of the batch" if place else ""
        found = known.get(total[i], "there are scores of NaN")
        raise ValueError(f"sample: {found}{where}: there is nothing to draw by")


def _best(m: _Model, k: int) -> tuple[Array, Array]:
    """The k best sequences and their scores."""
    there = min(k, m.states ** min(m.steps, 64))  # no more sequences than there are
    needed = m.chains * k * (4 * m.steps + m.dtype.itemsize)
    if there < k and needed > _UNASKED:
        raise ValueError(
            f"viterbi: k = {k}, which takes {needed / 1e9:.3g} GB, and there are {there} sequences "
            f"of {m.steps} steps: all of them are k={there}"
        )
    check_memory(
        needed,
        f"a table of the {k} best of {m.chains} sequences",
        m.call.engine,
        "take a lower k",
    )
    paths = m.xp.full((m.chains, k, m.steps), -1, np.int32)
    scores = m.xp.full((m.chains, k), -np.inf, m.dtype)
    scores[m.xp.asarray(m.counts == 0), 0] = 0
    if not paths.size:
        return paths, scores
    if there == k:
        m.verbs.best_paths(_MAX, m.a, m.e, m.x, m.end, paths, scores, m.counts)
    else:
        best = paths[:, :there].copy(), scores[:, :there].copy()
        m.verbs.best_paths(_MAX, m.a, m.e, m.x, m.end, *best, m.counts)
        paths[:, :there], scores[:, :there] = best
    return paths, scores


def _rows(m: _Model, semiring: Semiring = _LOG, *, reverse: bool = False) -> Array:
    out = m.xp.full((m.chains, m.steps, m.states), -np.inf, m.dtype)
    if not out.size:
        return out
    full, last = m.full
    ends = np.maximum(m.counts - 1, 0)
    given = m.end if reverse else m.x
    out[full, last if reverse else 0] = given[full]
    if m.steps > 1:
        place = out[:, :-1] if reverse else out[:, 1:]
        m.verbs.carry(
            semiring, m.a, m.e[:, 1:], given[:, np.newaxis], place[:, :, np.newaxis], ends,
            every=True, reverse=reverse, exclusive=False,
        )  # fmt: skip
    return out


def _posterior(m: _Model, what: int) -> list[Array]:
    """The log-partition, and with `what` from 1 on probabilities of states, then of pairs."""
    steps = 1 if m.shared else max(0, m.steps - 1)
    shapes: list[Shape] = [(), (m.steps, m.states), (steps, m.states, m.states)]
    found = [m.filled((m.chains, *shape), m.dtype) for shape in shapes[: 1 + what]]
    if m.chains and m.steps:
        total, states, pairs = [*found, None, None][:3]
        m.verbs.posterior(
            m.a, m.given, m.x, m.end, total, states, pairs, m.lengths, symbols=m.symbols
        )  # fmt: skip
    if what > 1 and m.plain:
        found[2] = found[2][:, 0]
    return found
