"""Eigenvalues over max_plus and min_plus: cycle means, by Howard's policy iteration."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Call
from .semirings import Semiring, as_semiring

__all__ = ["Eigen", "eigen"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Eigen:
    """An eigenvalue, its eigenvector, and the cycle that attains it.

    Attributes
    ----------
    value : float
        The largest mean weight of a cycle (over min_plus the least).
    vector : (n,) array of float64
        ``A ⊗ vector = value ⊗ vector``; the semiring's zero where no cycle of that mean is reached.
    cycle : list of int
        The nodes of a critical cycle, one whose mean weight is `value`, in its direction.
    """

    __module__ = "semiring_mm"  # where users import it from

    value: float
    vector: Array
    cycle: list[int]


def eigen(
    a: Any, semiring: str | Semiring = "max_plus", *, device: str | None = None
) -> Eigen:  # fmt: skip
    """The eigenvalue of a square matrix over max_plus or min_plus, with a vector and a cycle.

    In a timed event graph, where event i waits a[i, j] after event j, the value is the time between
    two rounds of the fastest periodic schedule, the vector when each event happens within a round,
    and the cycle the bottleneck.

    Parameters
    ----------
    a : array_like or sparse matrix, shape (n, n)
        The semiring's zero (-inf over max_plus, inf over min_plus) means no edge. Of sparse
        matrices of SciPy what is stored is an edge.
    semiring : {"max_plus", "min_plus"}
    device : {None, "cpu"}
        It runs on the host.

    Returns
    -------
    Eigen
        The value is the largest (over min_plus the least) mean of a cycle. Other eigenvalues, of
        parts of the graph that do not reach that cycle, are not computed. Without a cycle the value
        is the semiring's zero and the cycle is empty.

    Raises
    ------
    ValueError
        For other semirings, matrices that are not square, NaN, and the infinity that is no zero.
    NotImplementedError
        For arrays on a CUDA device.

    Notes
    -----
    Howard's policy iteration (Cochet-Terrasson, Cohen, Gaubert, McGettrick and Quadrat, 1998): one
    edge is chosen for each node, the cycles of these edges are evaluated, and better edges are
    chosen until there are none. Each round takes O(n + edges); there are few in practice. The value
    is the sum of the critical cycle's weights over their number, rounded once.

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> wait = np.array([[-np.inf, 5, 2], [1, -np.inf, -np.inf], [-np.inf, 3, 1]])
    >>> found = sm.eigen(wait, "max_plus")
    >>> found.value, found.cycle
    (3.0, [0, 1])
    >>> found.vector - found.vector[0]
    array([ 0., -2., -2.])
    """
    s = as_semiring(semiring)
    if s.mul_kind != "+" or s.add_kind not in ("min", "max"):
        raise ValueError(f"eigen is over max_plus or min_plus, got {s.name}")
    sign = 1.0 if s.add_kind == "max" else -1.0
    n, source, target, weight = _edges(a, sign, device)
    value, vector, cycle = _howard(n, source, target, weight)
    return Eigen(sign * value + 0.0, sign * vector + 0.0, cycle)  # no negative zeros


def _edges(a: Any, sign: float, device: str | None) -> tuple[int, Array, Array, Array]:
    """Edges by their source, with weights of which the largest mean is sought."""
    if hasattr(a, "tocoo"):
        if device not in (None, "cpu"):
            raise ValueError(f"eigen: a sparse matrix is on the host, and device is {device!r}")
        shape, stored = a.shape, a.tocsr().tocoo()
        source, target = (np.asarray(x, np.int64) for x in (stored.row, stored.col))
        weight = sign * np.asarray(stored.data, np.float64)
    else:
        with Call(device, a=a) as call:
            x = call["a"]
            if call.engine.WHERE:
                raise NotImplementedError(
                    'eigen runs on the host: copy the matrix, or pass device="cpu"'
                )
            shape = x.shape
            if len(shape) == 2 and x.dtype.kind in "iu":
                x = x.astype(np.float64)
            if len(shape) != 2 or x.dtype.kind not in "fb":
                raise ValueError(f"eigen takes a matrix of numbers, got {x.dtype} of shape {shape}")
            x = sign * x.astype(np.float64)
        source, target = np.nonzero(x != -math.inf)
        weight = x[source, target]
    if shape[0] != shape[1]:
        raise ValueError(f"eigen takes a square matrix, got shape {tuple(shape)}")
    keep = weight != -math.inf
    source, target, weight = source[keep], target[keep], weight[keep]
    if not np.isfinite(weight).all():
        what = "NaN" if np.isnan(weight).any() else f"{sign * math.inf:g}"
        raise ValueError(f"eigen: the matrix holds {what}, which no cycle can have")
    order = np.argsort(source, kind="stable")
    return shape[0], source[order], target[order], weight[order]


def _howard(n: int, source: Array, target: Array, weight: Array) -> tuple[float, Array, list[int]]:
    """The largest mean of a cycle, an eigenvector, and such a cycle."""
    entered = np.bincount(target, minlength=n) > 0
    dead = np.zeros(n, bool)  # from which no cycle is reached
    while True:
        known = dead.copy()
        dead[:] = np.bincount(source, minlength=n) == 0
        if (dead == known).all():
            break
        keep = ~dead[target]
        source, target, weight = source[keep], target[keep], weight[keep]
    if dead.all():  # every column that has an edge ends somewhere
        return -math.inf, np.where(entered, -math.inf, 0.0), []
    alive, first = np.unique(source, return_index=True)
    place = np.zeros(n, np.int64)
    place[alive] = np.arange(len(alive))
    row, to = place[source], place[target]
    slack = 1e-13 * max(1.0, float(np.abs(weight).max())) * len(alive)
    edge = _best(weight, row, first)[1]  # the policy
    while True:
        mean, potential, cycles = _evaluated(to[edge], weight[edge])
        best, other = _best(mean[to], row, first)
        better = best > mean + slack
        if not better.any():
            level = mean[to] >= mean[row] - slack  # edges that lead to cycles as good
            gain = np.where(level, weight - mean[row] + potential[to], -math.inf)
            best, other = _best(gain, row, first)
            better = best > potential + slack
            if not better.any():
                break
        edge = np.where(better, other, edge)
    value, cycle = max(cycles, key=lambda found: found[0])
    vector = np.full(n, -math.inf)
    vector[alive] = np.where(mean >= value - slack, potential, -math.inf)
    nodes = [int(alive[i]) for i in cycle]
    start = nodes.index(min(nodes))
    return value, vector, nodes[start:] + nodes[:start]


def _best(x: Array, row: Array, first: Array) -> tuple[Array, Array]:
    """The largest number of each row, and the first place that has it."""
    best = np.maximum.reduceat(x, first)
    places = np.where(x == best[row], np.arange(len(x)), len(x))
    return best, np.minimum.reduceat(places, first)


def _evaluated(
    following: Array, weight: Array
) -> tuple[Array, Array, list[tuple[float, list[int]]]]:
    """The mean of the cycle that each node runs into, its potential, and all cycles."""
    after, cost = following.tolist(), weight.tolist()
    n = len(after)
    mean, potential, seen = [0.0] * n, [0.0] * n, [-1] * n
    cycles = []
    for start in range(n):
        walk, i = [], start
        while seen[i] < 0:
            seen[i] = start
            walk.append(i)
            i = after[i]
        if walk and seen[i] == start:  # a new cycle, from i on
            own = walk[walk.index(i) :]
            average = math.fsum(cost[j] for j in own) / len(own)
            cycles.append((average, own))
            mean[i], potential[i] = average, 0.0
            for j in reversed(own[1:]):
                mean[j] = average
                potential[j] = cost[j] - average + potential[after[j]]
            walk = walk[: len(walk) - len(own)]
        for j in reversed(walk):
            mean[j] = mean[after[j]]
            potential[j] = cost[j] - mean[j] + potential[after[j]]
    return np.array(mean), np.array(potential), cycles
