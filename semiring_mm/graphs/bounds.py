"""Diameter, radius and centre of undirected graphs, by few searches that bound all eccentricities.

A search from v that finds its eccentricity e bounds that of each node at a distance d from v:
max(d, e - d) <= eccentricity <= e + d (F. W. Takes and W. A. Kosters, 2011). Nodes whose bounds
leave the result open are searched next; in most graphs they soon are none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..closures.edges import EdgeList
from ..closures.spanning import of_edges
from ..semirings import semirings

__all__ = ["Bounds"]

Array = NDArray[Any]
Index = NDArray[np.int64]
Open = NDArray[np.bool_]

_MOST, _ENTRIES = 64, 1 << 22  # sources of a round, and entries of its rows


@dataclass
class Bounds:
    """Bounds of the eccentricities of an undirected graph."""

    edges: EdgeList  # at least one node; no negative weights
    whole: bool  # whether distances are integers
    # the largest relative error of a distance: 0 if none is rounded, or if the result may be off by
    # as much
    rounding: float = 0

    def __post_init__(self) -> None:
        x = self.edges
        self.degree = np.bincount(x.row, minlength=x.n) + np.bincount(x.col, minlength=x.n)
        self._begin(np.full(x.n, x.n))

    def _begin(self, size: Index) -> None:
        """Bounds without a search, from the number of nodes of each node's component."""
        sizes, place = np.unique(size, return_inverse=True)
        self.main: Open = size == sizes[-1]  #: nodes that reach the most
        self.lower = np.zeros(len(size), np.int64 if self.whole else np.float64)
        longest = self.edges.weight.max(initial=0)
        # int: the product of two numbers of a short type would wrap
        bound = [int(k - 1) * longest.item() for k in sizes]
        self.upper = np.array(bound, self.lower.dtype)[place]
        self.known = size == 1  #: nodes whose eccentricity both bounds are
        self.ends = int(np.argmax(self.main)), int(np.argmax(self.main))

    def _components(self) -> Index:
        """The number of nodes of the component of each node."""
        x = self.edges
        forest = of_edges(semirings["lor_land"], x.n, x.row, x.col, np.ones(len(x.row), bool))
        part = np.append(0, np.cumsum(~forest.gaps))[forest.place]
        size: Index = np.bincount(part)[part]
        return size

    @property
    def diameter(self) -> Any:
        return self.lower.max()

    @property
    def radius(self) -> Any:
        return self.upper[self.main].min()

    @property
    def center(self) -> Index:
        """The nodes of least eccentricity, once it is decided."""
        return np.flatnonzero(self.main & (self.upper == self.radius))

    def undecided(self, what: set[str]) -> Open:
        """The nodes that may still change some of diameter, periphery, radius and center."""
        low, high, rounds = self.lower, self.upper, self.rounding > 0
        margin = self.rounding * high
        found = np.zeros(len(low), bool)
        if what & {"diameter", "periphery"}:
            found |= high + margin > self.diameter
        if "periphery" in what:
            found |= (high + margin >= self.diameter) & ((low < self.diameter) | rounds)
        if what & {"radius", "center"}:
            found |= self.main & (low - margin < self.radius)
        if "center" in what:
            found |= self.main & (low - margin <= self.radius) & ((high > self.radius) | rounds)
        still: Open = found & ~self.known
        return still

    def decide(
        self, what: set[str], rows: Callable[[Index], Array],
        eccentricities: Callable[[Index], Array], cheaper: float = 1,
        tick: Callable[[float], None] | None = None,
    ) -> Bounds:  # fmt: skip
        """Search until what is asked is decided.

        As soon as the eccentricities of all nodes left take no longer than the rows so far, they
        are computed: at most twice the time of the better of both.

        Parameters
        ----------
        what : set of str
            Some of "diameter", "periphery" (all nodes whose eccentricity is the diameter have it as
            their lower bound, and no others), "radius" and "center".
        rows : callable
            The distances from some nodes, -1 where there is no path.
        eccentricities : callable
            Those of some nodes.
        cheaper : float
            Eccentricities that take as long as a row.
        tick : callable, optional
            Is told how many nodes are decided.
        """
        n = len(self.lower)
        first = np.array([np.argmax(self.degree)])  # begin in the middle
        row = rows(first)
        if row.min() < 0:  # some nodes are not reached: the components matter
            self._begin(self._components())
        self._join(first, row)
        done = 1
        while len(left := np.flatnonzero(self.undecided(what))):
            if len(left) <= done * cheaper:
                self.lower[left] = self.upper[left] = eccentricities(left)
                self.known[left] = True
                top = left[[np.argmax(self.lower[left])]]
                if "diameter" in what and self.lower[top[0]] == self.diameter:
                    self.ends = int(top[0]), int(np.argmax(rows(top)[0]))
                break
            sources = self._next(max(1, min(done // 2, _MOST, _ENTRIES // n)))
            self._join(sources, rows(sources))
            done += len(sources)
            if tick is not None:
                tick(float(n - len(left)))
        return self

    def _next(self, count: int) -> Index:
        """Nodes to search from: in turn the farthest and the most central ones, by their bounds.

        Both help with every question: a search from the centre lowers all upper bounds.
        """
        left = np.flatnonzero(~self.known)
        inside = left[self.main[left]]
        far, near = self._least(left, -self.upper, count), self._least(inside, self.lower, count)
        turns = np.stack([np.resize(x, count) for x in (far, near) if len(x)], axis=1)
        return np.array([*dict.fromkeys(turns.ravel().tolist())][:count])

    def _least(self, nodes: Index, key: Array, count: int) -> Index:
        """The nodes of least key, and of these the ones with the most edges first."""
        if len(nodes) > count:
            nodes = nodes[key[nodes] <= np.partition(key[nodes], count - 1)[count - 1]]
        return nodes[np.lexsort((-self.degree[nodes], key[nodes]))[:count]]

    def _join(self, sources: Index, d: Array) -> None:
        """Tighten the bounds by the rows of some sources."""
        there, far = d >= 0, d.max(axis=1, initial=0)
        if far.max() > self.diameter:
            i = int(np.argmax(far))
            self.ends = int(sources[i]), int(np.argmax(d[i]))
        least = np.where(there, np.maximum(d, far[:, None] - d), 0).max(axis=0)
        most = np.where(there, d + far[:, None], self.upper).min(axis=0)
        open_ = ~self.known  # sums along the same path from its other end may be rounded otherwise
        np.maximum(self.lower, least, out=self.lower, where=open_)
        np.minimum(self.upper, most, out=self.upper, where=open_)
        self.lower[sources] = self.upper[sources] = far
        self.known[sources] = True
