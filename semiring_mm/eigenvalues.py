"""Eigenvalues over max_plus and min_plus: cycle means, by Howard's policy iteration."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Call
from .naming import listing
from .semirings import Semiring, as_semiring

__all__ = ["Eigen", "eigen"]
__dir__ = listing(__all__)

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
        The semiring's zero (-inf over max_plus, inf over min_plus, of integers the end of their
        range) means no edge. Of sparse matrices of SciPy what is stored is an edge.
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
    OverflowError
        If an entry of the vector is beyond the range of float64.
    NotImplementedError
        For arrays on a CUDA device.

    Notes
    -----
    Howard's policy iteration (Cochet-Terrasson, Cohen, Gaubert, McGettrick and Quadrat, 1998): one
    edge is chosen for each node, the cycles of these edges are evaluated, and better edges are
    chosen until there are none. Each round takes O(n + edges); there are few in practice. All
    comparisons are exact, in whole numbers, so that no choice of edges comes twice. The value and
    the entries of the vector are rounded once.

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> wait = np.array([[-np.inf, 5, 2], [1, -np.inf, -np.inf], [-np.inf, 3, 1]])
    >>> found = sm.eigenvalues.eigen(wait, "max_plus")
    >>> found.value, found.cycle
    (3.0, [0, 1])
    >>> found.vector - found.vector[0]
    array([ 0., -2., -2.])
    """
    s = as_semiring(semiring)
    if s.mul_kind != "+" or s.add_kind not in ("min", "max"):
        raise ValueError(f"eigen is over max_plus or min_plus, got {s.name}")
    sign = 1 if s.add_kind == "max" else -1
    n, source, target, weight = _edges(a, sign, device)
    vector = np.full(n, -math.inf)
    lasting = _before_cycles(n, source, target)
    keep = lasting[target]
    if not keep.any():  # every column that has an edge ends somewhere
        vector[np.bincount(target, minlength=n) == 0] = 0.0
        return Eigen(sign * -math.inf, sign * vector + 0.0, [])
    alive, place = np.flatnonzero(lasting), np.cumsum(lasting) - 1
    graph = _Graph(place[source[keep]], place[target[keep]], weight[keep], sign)
    value, vector[alive], cycle = graph.howard()
    return Eigen(sign * value + 0.0, sign * vector + 0.0, alive[cycle].tolist())  # no -0.0


def _edges(a: Any, sign: int, device: str | None) -> tuple[int, Array, Array, Array]:
    """Edges by their source, with weights in float64 or integers."""
    if hasattr(a, "tocoo"):
        if device not in (None, "cpu"):
            raise ValueError(f"eigen: a sparse matrix is on the host, and device is {device!r}")
        stored = a.tocsr().tocoo()
        shape, weight = a.shape, np.asarray(stored.data)
        places = tuple(np.asarray(x, np.int64) for x in (stored.row, stored.col))
    else:
        with Call(device, a=a) as call:
            weight = call["a"]
            if call.engine.WHERE:
                raise NotImplementedError(
                    'eigen runs on the host: copy the matrix, or pass device="cpu"'
                )
        shape, places = weight.shape, ()
    kind = weight.dtype.kind
    if len(shape) != 2 or (kind not in "fbiu" and weight.dtype.name != "bfloat16"):
        raise ValueError(f"eigen takes a matrix of numbers, got {weight.dtype} of shape {shape}")
    if shape[0] != shape[1]:
        raise ValueError(f"eigen takes a square matrix, got shape {tuple(shape)}")
    zero: float = -sign * math.inf
    if kind not in "iu":
        weight = weight.astype(np.float64)
    elif kind == "i" or sign < 0:  # no unsigned integer stands for -inf
        zero = getattr(np.iinfo(weight.dtype), "min" if sign > 0 else "max")
    keep = weight != zero
    source, target = (x[keep] for x in places) if places else np.nonzero(keep)
    weight = weight[keep]
    if not np.isfinite(weight).all():
        what = "NaN" if np.isnan(weight).any() else f"{sign * math.inf:g}"
        raise ValueError(f"eigen: the matrix holds {what}, which no cycle can have")
    order = np.argsort(source, kind="stable")
    return shape[0], source[order], target[order], weight[order]


def _before_cycles(n: int, source: Array, target: Array) -> Array:
    """Whether a cycle is reached from each node."""
    into = source[np.argsort(target, kind="stable")]
    ends = np.cumsum(np.bincount(target, minlength=n))
    left = np.bincount(source, minlength=n)  # edges to nodes that are not in the list
    dead = np.flatnonzero(left == 0).tolist()
    for node in dead:  # the list grows
        for before in into[ends[node - 1] if node else 0 : ends[node]].tolist():
            left[before] -= 1
            if not left[before]:
                dead.append(before)
    found: Array = left > 0
    return found


_MARGIN = 2.0**-50  # above the relative error of four roundings
_TINY = 2.0**-1070  # above the absolute error of those below the normal numbers


class _Graph:
    """A graph in which a cycle is reached from each node.

    Edges lead from `row`, which ascends and has all nodes, `to` others. Weights are multiplied by
    `sign`, 1 or -1, so that the largest mean is sought.

    What is compared is whole: weights in units of ``2 ** self.low``, a mean p / q by p and q, and
    the potential of a node, which runs into a cycle of that mean, in units of 1 / q. Floats, in
    units of ``2 ** self.top``, above all weights, exclude the edges that are worse beyond rounding.
    """

    def __init__(self, row: Array, to: Array, weight: Array, sign: int) -> None:
        self.row, self.to, self.sign = row, to, sign
        n, self.first = int(row[-1]) + 1, np.flatnonzero(np.diff(row, prepend=-1))
        self.odd, shift = weight, np.zeros(len(weight), np.int64)
        floats = weight.astype(np.float64)
        if weight.dtype.kind == "f":
            fraction, exponent = np.frexp(floats)
            whole = (fraction * 2.0**53).astype(np.int64)
            zeros = np.frexp((whole & -whole).astype(np.float64))[1] - (whole != 0)
            self.odd = whole >> zeros
            shift = np.where(whole == 0, exponent.max(), exponent - 53 + zeros)
        self.low = int(shift.min())
        self.shift = shift - self.low
        self.top = int(np.frexp(np.abs(floats).max())[1])
        self.near = np.ldexp(sign * floats, -self.top)
        # a potential is a sum of n terms of at most 2 q times the largest weight
        bits = self.top - self.low + 2 * n.bit_length() + 2
        self.kind: Any = np.int64 if bits <= 62 else object

    def weights(self, edges: Array) -> Array:
        """The exact weights of some edges."""
        odd, shift = (x[edges].astype(self.kind) for x in (self.odd, self.shift))
        found: Array = (odd << shift) * self.sign
        return found

    def rounded(self, x: int, q: int, unit: int = 0) -> float:
        """The number x / q, rounded once, in units of ``2 ** unit``."""
        shift = self.low - unit
        return (x << shift) / q if shift > 0 else x / (q << -shift)

    def howard(self) -> tuple[float, Array, list[int]]:
        """The largest mean of a cycle, an eigenvector, and such a cycle.

        No policy, a choice of an edge for each node, comes twice. Where edges to cycles of larger
        means are taken, no cycle is new, and no node's mean falls. Where edges to cycles as good
        are taken, a new cycle has a larger mean; and without one potentials only rise, since a
        cycle keeps its potentials: that of its lowest node is 0.
        """
        policy = _best(self.near, self.row, self.first)[1]
        while True:
            after, cost = self.to[policy].tolist(), self.weights(policy).tolist()
            cycles, run, potential = _evaluated(after, cost)
            means = [Fraction(p, q) for p, q, _ in cycles]
            places = {mean: i for i, mean in enumerate(sorted(set(means)))}
            rank = np.array([places[mean] for mean in means])[run]
            best, other = _best(rank[self.to], self.row, self.first)
            improved = np.where(best > rank, other, policy)
            if (improved == policy).all():
                improved = self._improved(policy, rank, cycles, run, potential)
            if (improved == policy).all():
                break
            policy = improved
        top = means.index(max(means))
        p, q, cycle = cycles[top]
        try:
            vector = [
                self.rounded(x, q) if place == rank[cycle[0]] else -math.inf
                for x, place in zip(potential, rank, strict=True)
            ]
        except OverflowError:
            raise OverflowError(
                "eigen: an entry of the vector is beyond the range of float64: divide the weights "
                "by a power of two"
            ) from None
        return self.rounded(p, q), np.array(vector), cycle

    def _improved(
        self, policy: Array, rank: Array, cycles: list[_Cycle], run: Array, potential: list[int]
    ) -> Array:
        """The best edges to cycles as good, those of the policy where they are among them."""
        row, to = self.row, self.to
        p, q = (np.array([cycle[i] for cycle in cycles], self.kind)[run] for i in range(2))
        mean = np.array([self.rounded(x, y, self.top) for x, y, _ in cycles])[run]
        height = np.array([
            self.rounded(x, y, self.top) for x, y in zip(potential, q.tolist(), strict=True)
        ])  # fmt: skip
        gain = self.near - mean[row] + height[to]
        error = (abs(self.near) + abs(mean[row]) + abs(height[to])) * _MARGIN + _TINY
        level = rank[to] == rank[row]
        least = _best(np.where(level, gain - error, -math.inf), row, self.first)[0]
        edges = np.flatnonzero(level & (gain + error >= least[row]))
        nodes, first, group = np.unique(row[edges], return_index=True, return_inverse=True)
        if len(nodes) == len(edges):  # nothing is left to compare
            return edges
        exact = np.array(potential, self.kind)
        gain = q[row[edges]] * self.weights(edges) - p[row[edges]] + exact[to[edges]]
        best, other = _best(gain, group, first)
        return np.where(best > exact, edges[other], policy)


def _best(x: Array, row: Array, first: Array) -> tuple[Array, Array]:
    """The largest number of each row, and the first place that has it."""
    best = np.maximum.reduceat(x, first)
    places = np.where(x == best[row], np.arange(len(x)), len(x))
    return best, np.minimum.reduceat(places, first)


_Cycle = tuple[int, int, list[int]]  # p and q of its mean, and its nodes from the lowest on


def _evaluated(after: list[int], cost: list[int]) -> tuple[list[_Cycle], Array, list[int]]:
    """All cycles of a policy, and of each node the one it runs into and its potential."""
    n = len(after)
    run, potential, seen = [-1] * n, [0] * n, [-1] * n
    cycles: list[_Cycle] = []
    for start in range(n):
        walk, i = [], start
        while seen[i] < 0:
            seen[i] = start
            walk.append(i)
            i = after[i]
        if walk and seen[i] == start:  # a new cycle, from i on
            own = walk[walk.index(i) :]
            lowest = own.index(min(own))
            own = own[lowest:] + own[:lowest]
            mean = Fraction(sum(cost[j] for j in own), len(own))
            cycles.append((mean.numerator, mean.denominator, own))
            run[own[0]] = len(cycles) - 1
            walk = walk[: len(walk) - len(own)] + own[1:]
        for j in reversed(walk):
            run[j] = run[after[j]]
            p, q, _ = cycles[run[j]]
            potential[j] = q * cost[j] - p + potential[after[j]]
    return cycles, np.array(run), potential
