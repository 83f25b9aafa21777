"""Dependencies on nodes and edges, summed over sources: the terms of betweenness."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from .. import pool
from ..closures.edges import EdgeList
from ..lazy import cached_property
from ..plan import Facts, make_plan
from ..semirings import semirings
from .kernels import dependencies as kernels

__all__ = ["Dependencies"]

Float = NDArray[np.float64]
Index = NDArray[np.int64]

#: Sources of a batch, and of one over more nodes than :data:`_MANY`, whose values of 8 bytes a
#: source and node are to stay in the L2 cache.
_WIDTH, _NARROW, _MANY = 16, 8, 1 << 15
#: Sums that are computed apart and then added up, however many threads there are, and at most so
#: many entries of them.
_PARTS, _ENTRIES = 64, 1 << 24
_CALL = 1 << 22  # arcs and nodes of batches in a call, between which Ctrl-C is seen
_LARGEST = 1e300  # number of paths whose inverse has all its digits


class Dependencies:
    """Sums over sources of the shares of their shortest paths that pass through nodes and edges.

    The shares are of all shortest paths from a source to a node, and parallel edges are paths of
    their own. Numbers of paths are float64: exact up to 2^53, then rounded.

    Parameters
    ----------
    arcs : EdgeList
        Directed edges by rows, of finite positive weights, in float64 without rounding.
    """

    def __init__(self, arcs: EdgeList) -> None:
        self.arcs, self.n = arcs, arcs.n
        weight = arcs.weight
        self.unit = bool(weight.size == 0 or weight.min() == weight.max() > 0)
        self._lists = {
            "n": arcs.n, "arcs": len(arcs.col), "first": np.ascontiguousarray(arcs.starts),
            "head": np.ascontiguousarray(arcs.col, np.int32),
        }  # fmt: skip

    def loads(
        self, sources: Index, demand: Float | None = None, *, edges: bool = False
    ) -> tuple[Float, Float | None]:
        """Sums over sources; those of nodes leave out paths that begin or end there.

        Parameters
        ----------
        sources : (k,) int64
            One that comes twice counts twice.
        demand : (n,) float64, optional
            By what the shares of the paths to each node are multiplied. Default: 1.
        edges : bool

        Returns
        -------
        nodes : (n,) float64
        edges : (arcs,) float64, or None

        Raises
        ------
        ValueError
            If a weight is 0, or so small that it is lost in rounding.
        OverflowError
            If there are more than 1e300 shortest paths between two nodes.
        """
        near = np.argsort(self._place[sources], kind="stable")
        ordered = np.ascontiguousarray(sources[near], np.int64)
        width = 1 if not self.unit else _WIDTH if self.n <= _MANY else _NARROW
        batches = -(-len(ordered) // width)
        entries = self.n + len(self.arcs.col) * edges
        parts = max(1, min(_PARTS, batches, _ENTRIES // max(1, entries)))
        rows = np.full((batches, width), self.n)
        rows.ravel()[: len(ordered)] = ordered
        nodes = np.zeros((parts, self.n))
        links = np.zeros((parts, len(self.arcs.col))) if edges else None
        most = np.ones((parts, 1))
        cuts = [batches * i // parts for i in range(parts + 1)]

        def some(k: int, _: int) -> None:
            sums = {
                "node_load": nodes[k], "arc_load": None if links is None else links[k],
                "most": most[k], "demand": demand,
            }  # fmt: skip
            mine = rows[cuts[k] : cuts[k + 1]]
            step = max(1, _CALL // max(1, self.n + len(self.arcs.col)))
            room = self._room(width)
            for i in range(0, len(mine), step):
                self._add(mine[i : i + step], sums | room)
                pool.look()

        pool.run_parts(some, parts, parts)
        if most.max() > _LARGEST:
            raise OverflowError(
                f"there are more than {_LARGEST:g} shortest paths between two nodes, whose shares "
                f"are below what float64 holds"
            )
        return nodes.sum(axis=0), None if links is None else links.sum(axis=0)

    @cached_property
    def _place(self) -> NDArray[np.int32]:
        """Numbers of the nodes by which those that are near each other have near numbers."""
        node, place = np.empty(self.n, np.int32), np.full(self.n, -1, np.int32)
        root = np.argsort(-np.diff(self.arcs.starts), kind="stable")
        engines.compiled(kernels.breadth_first)(**self._lists, root=root, node=node, place=place)
        return place

    @cached_property
    def _entering(self) -> dict[str, Any]:
        """The arcs by their heads."""
        tails = self.arcs.entering
        return {"back_first": tails.starts, "tail": np.ascontiguousarray(tails.col, np.int32)}

    def _room(self, width: int) -> dict[str, Any]:
        """What a thread writes to."""
        n, m = self.n, len(self.arcs.col)
        if not self.unit:
            return {
                "heap": np.empty(m + 1, np.int32), "key": np.empty(m + 1),
                "node": np.empty(n, np.int32), "label": np.empty(n), "value": np.empty(n),
            }  # fmt: skip
        return {
            "seen": np.empty(n, np.uint32), "mask": np.zeros((2, n), np.uint32),
            "node": np.empty((n + 1) * width, np.int32), "begins": np.empty(n + 2, np.int64),
            "event": np.empty((n + 1) * width, np.uint32), "value": np.zeros((n, width)),
        }  # fmt: skip

    def _add(self, rows: Index, given: dict[str, Any]) -> None:
        batches, width = rows.shape
        if self.unit:
            engines.compiled(kernels.by_levels, "f8")(
                **self._lists, **self._entering, **given, batches=batches, width=width, source=rows
            )
            return
        weight = np.ascontiguousarray(self.arcs.weight, np.float64)
        kind = Facts(0.0, np.inf, False)
        plan = make_plan(semirings["min_plus"], weight.dtype, kind, kind, self.n)
        lost = engines.compiled(kernels.by_searches, plan, np.inf, 0.0)(
            **self._lists, **given, weight=weight, sources=batches, source=rows.ravel()
        )
        if lost:
            raise ValueError(
                "weights: some are 0, or too small to change the sum of others, so that the number "
                "of shortest paths is not finite or lost in rounding; give positive weights"
            )
