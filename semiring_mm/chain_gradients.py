"""Derivatives of chains of products, written once for all libraries that differentiate.

All of it is in the functions of the library itself, whose scans and posterior probabilities are
operators with these same derivatives: so they are differentiated as often as wanted.
"""

from __future__ import annotations

import math
from typing import Any

from .gradients import factors, scaled, value_of, way
from .semirings import Semiring, row_of
from .verb import Library

__all__ = ["along_chain", "ends", "indicators", "of_posterior"]

Array = Any  # of any array library


def along_chain(
    library: Library, s: Semiring, g: Array, a: Array, e: Array | None, x: Array | None,
    lengths: Array | None, y: Array | None, *, reverse: bool,
) -> tuple[Array, Array | None, Array | None]:  # fmt: skip
    """The gradients of all prefixes of a chain, or of the last one.

    A step makes y[j] = ⊕_i (x[i] ⊗ A[i, j]) of a row x. Its Jacobian matrices J are the shares of
    ⊕ times the derivative of ⊗ (see :mod:`semiring_mm.gradients`), and what came to a row and to
    all behind it, L, is a chain over plus_times itself, L_t = g_t + J_t+1 L_t+1: a scan.

    What came, `g`, is (..., T, S) with `x`, else (..., T, S, S), without the axis T of the last one
    only. The operands are (..., T or 1, S, S), (..., T, S), (..., S) and lengths (...). All
    prefixes `y` are computed again where only the last was. With `reverse` they are suffixes.

    Returned are the gradients by a, e and x, before what was broadcast is summed; None where there
    is no operand. O(T R S²) memory for R carried rows: 1 with `x`, else S.
    """
    xp, kind, n = library.xp, way(s), a.shape[-1]
    last = y is None
    batch = tuple(g.shape[: len(g.shape) - (2 if x is None else 1) - (not last)])
    a = xp.broadcast_to(a, (*batch, *a.shape[-3:]))
    e = None if e is None else xp.broadcast_to(e, (*batch, *e.shape[-2:]))
    x = None if x is None else xp.broadcast_to(x, (*batch, n))
    lengths = None if lengths is None else xp.broadcast_to(lengths, batch)
    if y is None:
        (y,) = library.run("chain", a, e, x, lengths, row_of(s), reverse, True)
    steps = y.shape[-3 if x is None else -2]
    t, state = library.count(steps, g), library.count(n, g)
    length = steps if lengths is None else lengths[..., None]
    inside = xp.broadcast_to(t < length, (*batch, steps))
    if lengths is not None:  # nothing behind the ends is read
        a = xp.where(_wide(inside, 2), a, 0)
        e = None if e is None else xp.where(_wide(inside, 1), e, 0)
    equal = state[:, None] == state
    # what is carried, after each step; what came to that; what the first step takes: (..., R, S)
    if x is None:
        rows, own = (y.mT, g.mT) if reverse else (y, g)
        unit = xp.where(equal, xp.full_like(y[..., 0, :, :], s.one), s.zero)
        given = xp.broadcast_to(unit, (*batch, n, n))
    else:
        rows, own, given = y[..., None, :], g[..., None, :], x[..., None, :]
    if last:
        final = (t == (0 if reverse else length - 1)) & inside
        came = xp.where(_wide(final, 2), own[..., None, :, :], 0)
    else:
        came = xp.where(_wide(inside, 2), own, 0)
    rows = xp.where(_wide(inside, 2), rows, given[..., None, :, :])
    matrix = a if e is None else value_of(xp, s.mul_expr, a, e[..., None, :])
    matrix = xp.broadcast_to(matrix, (*batch, steps, n, n))
    if reverse:
        matrix, rows, came = (xp.flip(v, (-3,)) for v in (matrix.mT, rows, came))
        inside = xp.flip(inside, (-1,))
    before = xp.concatenate([given[..., None, :, :], rows[..., :-1, :, :]], -3)
    carried, step = before[..., :, None], matrix[..., None, :, :]  # (..., S, 1), (..., 1, S, S)
    left, right = (step, carried) if reverse else (carried, step)
    by_carried, by_step = factors(s)[::-1] if reverse else factors(s)
    terms = value_of(xp, s.mul_expr, left, right)  # (..., T, R, S, S)
    if kind == "selective":
        best = (xp.argmin if s.add_kind == "min" else xp.argmax)(terms, -2)
        share = xp.where(state[:, None] == best[..., None, :], xp.ones_like(terms), 0)
    elif s.add_kind == "+":
        share = xp.ones_like(terms)
    else:  # of the sum of these: what the rounded result lacks would add up from step to step
        high = xp.amax(terms, -2, keepdims=True)
        reached = high != -math.inf
        share = xp.exp(terms - xp.where(reached, high, 0))
        share = xp.where(reached, share / xp.where(reached, share, 1).sum(-2, keepdims=True), 0)

    through, shares = (scaled(xp, share, x, left, right) for x in (by_carried, by_step))
    jacobian = xp.where(_wide(inside, 3), through, xp.where(equal, 1.0, 0.0))
    after, came = xp.swapaxes(jacobian, -4, -3), xp.swapaxes(came, -3, -2)  # (..., R, T, ...)
    total = _sums(library, after[..., 1:, :, :], came)  # what came to a row and to all behind it
    total = xp.swapaxes(total, -3, -2)
    shares = xp.where(_wide(inside, 3), shares, 0)
    along = (total[..., None, :] * shares).sum(-3)  # (..., T, S, S)
    along = xp.flip(along, (-3,)).mT if reverse else along
    gx = None
    if x is not None:
        gx = (jacobian[..., 0, :, :, :] @ total[..., 0, :, :, None])[..., 0, :, 0]
        gx = gx + xp.where((lengths == 0)[..., None], g, 0) if last and lengths is not None else gx
    if e is None:
        return along, None, gx
    by_a, by_e = (scaled(xp, along, factor, a, e[..., None, :]) for factor in factors(s))
    return by_a, by_e.sum(-2), gx


def indicators(
    library: Library, g: Array, path: Array, a: Array, lengths: Array | None
) -> tuple[Array, Array, Array, Array]:
    """The gradients of a path's score with respect to emissions, transitions, start and end.

    `g` is (...), `path` (..., T) of whole numbers; the one of transitions has the shape of `a`.
    """
    xp, steps = library.xp, path.shape[-1]
    t = library.count(steps, g)
    inside = t < (steps if lengths is None else lengths[..., None])
    on = (path[..., None] == library.count(a.shape[-1], g)) & _wide(inside, 1)
    scaled = xp.where(on, g[..., None, None], 0)
    if steps < 2:
        moves = xp.broadcast_to(_wide(xp.zeros_like(g), 3), (*g.shape, *a.shape[-3:]))
    elif a.shape[-3] == 1:
        ones = xp.where(on, xp.ones_like(scaled), 0)
        moves = (ones[..., :-1, :].mT @ ones[..., 1:, :])[..., None, :, :] * _wide(g, 3)
    else:
        moves = xp.where(on[..., :-1, :, None], scaled[..., 1:, None, :], 0)
    return scaled, moves, *ends(library, scaled, lengths)


def of_posterior(
    library: Library, came: tuple[Array | None, ...], operands: tuple[Any, ...],
    lengths: Array | None, results: tuple[Any, ...] | None,
) -> tuple[Array | None, ...]:  # fmt: skip
    """The gradients of log-partitions and posterior probabilities.

    Those of a log-partition are the probabilities. Those of a probability are its covariances with
    what is on a path: with v, what came to the probabilities of states and pairs, summed along a
    path to V, it is p · (E[V | state or pair] - E[V]). The expectations given a state are those of
    the beginning and of the rest, two chains over plus_times.

    What `came` is that of the log-partition (...), of the states' probabilities (..., T, S), and of
    the pairs'. The operands are emissions (..., T, S), transitions (..., 1 or T - 1, S, S), start
    and end (..., S). The `results`, the log-partition and the probabilities, are given where they
    are known; without those of the pairs where transitions need no gradient.

    Returned are four gradients, before what was broadcast is summed; None of transitions whose
    probabilities are not known. Of a probability O(T S²) memory.
    """
    e, a, start, end = operands
    by_total, by_states, by_pairs = came
    xp, (steps, n) = library.xp, e.shape[-2:]
    if steps == 0:
        return tuple(None if x is None else xp.zeros_like(x) for x in operands)
    found = None
    if by_total is not None:
        known = results or library.run("posterior", e, a, start, end, lengths, 2, "marginals")
        found = library.fused(_of_total)(library, by_total, *known, lengths)
    if by_states is None and by_pairs is None:
        return found or (None,) * 4
    each = xp.broadcast_to(a, (*a.shape[:-3], steps - 1, n, n))
    total, states, pairs = library.run("posterior", e, each, start, end, lengths, 2, "marginals")
    possible = total != -math.inf
    states = xp.where(_wide(possible, 2), states, 0)
    pairs = xp.where(_wide(possible, 3), pairs, 0)
    v = xp.zeros_like(states) if by_states is None else by_states
    u = xp.zeros_like(pairs) if by_pairs is None else xp.broadcast_to(by_pairs, pairs.shape)
    # behind an end the probabilities are 0, and so are these
    backward = _ratio(xp, pairs, states[..., 1:, None, :])  # of the state before, given one
    forward = _ratio(xp, pairs, states[..., :-1, :, None])  # of the next state, given one
    ahead = (forward * (u + v[..., 1:, None, :])).sum(-1)
    behind = v[..., 1:, :] + (backward * u).sum(-2)
    begun = xp.concatenate([v[..., :1, :], behind], -2)  # with what the state itself has
    flipped = xp.flip(backward.mT, (-3,)), xp.flip(begun, (-2,))
    begun = xp.flip(_sums(library, *flipped), (-2,))
    rest = xp.concatenate([ahead, xp.zeros_like(v[..., :1, :])], -2)
    rest = _sums(library, forward, rest)
    mean = (states * v).sum((-1, -2)) + (pairs * u).sum((-1, -2, -3))
    by_e = states * (begun + rest - _wide(mean, 2))
    through = begun[..., :-1, :, None] + u + (v + rest)[..., 1:, None, :]
    by_a = pairs * (through - _wide(mean, 3))
    if a.shape[-3] == 1:
        by_a = by_a.sum(-3, keepdims=True)
    own = (by_e, by_a, *ends(library, by_e, lengths))
    if found is None:
        return own
    return tuple(y if x is None else x + y for x, y in zip(found, own, strict=True))


def _of_total(
    library: Library, g: Array, total: Array, states: Array, pairs: Array | None,
    lengths: Array | None,
) -> tuple[Array | None, ...]:  # fmt: skip
    """The gradients of log-partitions, of what is known."""
    xp, possible = library.xp, total != -math.inf
    by_e = xp.where(_wide(possible, 2), _wide(g, 2) * states, 0)
    by_a = None if pairs is None else xp.where(_wide(possible, 3), _wide(g, 3) * pairs, 0)
    return by_e, by_a, *ends(library, by_e, lengths)


def ends(library: Library, x: Array, lengths: Array | None) -> tuple[Array, Array]:
    """The rows of the first and the last step of each sequence; 0 if it is empty."""
    steps = x.shape[-2]
    if lengths is None and steps:
        return x[..., 0, :], x[..., -1, :]
    t = library.count(steps, x)
    last = t == (steps if lengths is None else lengths[..., None]) - 1
    return x[..., :1, :].sum(-2), library.xp.where(_wide(last, 1), x, 0).sum(-2)


def _sums(library: Library, j: Array, c: Array) -> Array:
    """r with r_T = c_T and r_t = c_t + j_t r_t+1, for j (..., T - 1, S, S) and c (..., T, S)."""
    xp, n = library.xp, c.shape[-1]
    none = xp.zeros_like(c[..., -1:, :, None] * c[..., -1:, None, :])
    wide = xp.concatenate([xp.concatenate([j, none], -3), c[..., None]], -1)
    one = xp.where(library.count(n + 1, c) == n, xp.ones_like(wide[..., :1, :]), 0)
    # columns (r, 1): one more row and column add c
    steps, given = xp.concatenate([wide, one], -2), one[..., 0, 0, :]
    return library.run("chain", steps, None, given, None, "plus_times", True, True)[0][..., :n]


def _ratio(xp: Any, x: Array, y: Array) -> Array:
    return xp.where(y == 0, 0, x / xp.where(y == 0, 1, y))


def _wide(x: Array, axes: int) -> Array:
    return x[(..., *(None,) * axes)]
