"""The driver of all eliminations: weights, the run, what is done about cycles, the result.

Where the matrix lies and who computes is the executor's matter: a callable that is given a
:class:`Problem` and returns what it has computed. There are three: one engine's memory
(:mod:`.memory`), tiles of devices or files (:mod:`..tiled.solve`), and the tasks of a Dask cluster
(:mod:`..dask`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from ..lazy import cached_property
from ..progress import Progress, reporter
from ..semirings import semirings
from .sources import Source
from .steps import Improves, Steps
from .weights import (
    Weights,
    as_numbers,
    check_dtype,
    check_predecessors,
    improved,
    with_margins,
)  # fmt: skip

__all__ = ["Problem", "restore"]

Array = Any
T = TypeVar("T")


@dataclass(frozen=True)
class Problem:
    """The closure of one graph."""

    source: Source
    directed: bool | None = None  # None: a symmetric matrix is found to be undirected
    predecessors: bool = False
    labels: Sequence[Any] | None = None  # names of the nodes, for messages
    progress: Progress = None
    # whether the source has numbers, and the result truth values
    truth: bool = False

    @classmethod
    def of(
        cls, source: Source, directed: bool | None = None, predecessors: bool = False,
        labels: Sequence[Any] | None = None, progress: Progress = None,
    ) -> Problem:  # fmt: skip
        """A problem whose semiring is checked against the dtype and the predecessors wanted.

        Raises
        ------
        ValueError
            If ⊕ does not choose one of its operands.
        TypeError
            If the semiring makes no sense in the graph's dtype.
        """
        check_dtype(source.s, source.dtype)
        if predecessors:
            check_predecessors(source.s, source.dtype)
        return cls(source, directed, predecessors, labels, progress)

    def in_numbers(self) -> Problem:
        """The same in the numbers 0 and 1 under max and min where truth values need them.

        Predecessors of truth values do, unless one k is taken after the other.
        """
        source = self.source
        if not self.predecessors or not as_numbers(source.s, source.dtype):
            return self
        return replace(self, source=source.numbers(semirings["max_min"]), truth=True)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the result."""
        return np.dtype(bool) if self.truth else self.source.dtype

    @cached_property
    def weights(self) -> Weights:
        """What is known of the weights; ValueError at the first entry that is no weight."""
        source = self.source
        weights = Weights(source.s, source.dtype, source.n, source.facts)
        if weights.broken:
            source.refuse(weights)
        return weights

    @cached_property
    def undirected(self) -> bool:
        """Whether each edge leads both ways."""
        return self.directed is not True and self.source.symmetric()

    @cached_property
    def steps(self) -> Steps:
        """The operations on tiles."""
        s, weights = self.source.s, self.weights
        halved = not self.predecessors and s.commutes and self.undirected
        look = weights.look(1) > 0
        return Steps(s, weights.wide, weights.known(), look, halved, self.predecessors)

    @property
    def pairs(self) -> float:
        """Pairs of an elimination."""
        n = float(self.source.n)
        return n**3 / 2 if self.steps.symmetric else n**3

    def solve(self, run: Callable[[Problem], T], margins: Array | None = None) -> T:
        """What `run` returns for this problem, or for the same with worsened weights.

        Where rounding lets a cycle of weight zero improve itself, the run begins again with
        margins, which make the weights of such cycles worse. With `margins` given it begins so.

        Raises
        ------
        NegativeCycleError, ValueError
            If a cycle improves itself.
        """
        reporter(self.progress, 1.0)  # the argument's own errors come first
        source = self.source

        def attempt(margins: Array | None) -> T:
            again = self if margins is None else replace(self, source=source.worsened(margins))
            return again._attempt(run)

        return with_margins(source.s, source.dtype, attempt, margins)

    def _attempt(self, run: Callable[[Problem], T]) -> T:
        try:
            return run(self)
        except Improves as improves:
            found = improves.node, improves.value
        # out here, so that tracebacks end with the error that follows
        source, edges = self.source, self.source.edges if self.weights.improving else None
        improved(source.s, source.n, *found, edges, self.labels)

    def restore(self, d: Array) -> Array:
        """Entries of the closure in the type of the result."""
        return restore(d, self.weights, truth=self.truth)


def restore(d: Array, weights: Weights, *, truth: bool) -> Array:
    """Entries of a closure in the type of the graph, which may be that of truth values."""
    return d != 0 if truth else weights.narrow(d)
