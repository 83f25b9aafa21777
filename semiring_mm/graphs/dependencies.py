"""Dependencies on nodes and edges, summed over sources: the terms of betweenness."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from .. import pool
from ..closures.edges import EdgeList, both_ways
from ..graph_kernels import offsets
from ..hierarchy.collector import Extent, LoadCollector, Wanted
from ..hierarchy.gradient import whole_weights
from ..lazy import cached_property
from ..plan import Facts, make_plan
from ..semirings import semirings
from .kernels import dependencies as kernels

__all__ = ["Dependencies", "SearchLoads"]

Float = NDArray[np.float64]
Index = NDArray[np.int64]

#: Sources of a batch, and of one over more nodes than :data:`_MANY`, whose values of 8 bytes a
#: source and node are to stay in the L2 cache.
_WIDTH, _NARROW, _MANY = 16, 8, 1 << 15
#: Sums that are computed apart and then added up, however many threads there are, and at most so
#: many entries of them.
_PARTS, _ENTRIES = 64, 1 << 24
_CALL = 1 << 22  # arcs and nodes of batches in a call, between which Ctrl-C is seen
_BATCH = 4096  # sources whose sums are computed in a call
_EXACT = 1 << 53  # whole numbers of float64
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
                f"are below what float64 holds; a prepared graph (sm.prepare) counts any number"
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


class SearchLoads(LoadCollector):
    """Loads of nodes and edges by searches from batches of sources.

    Parameters
    ----------
    edges : EdgeList
        Parallel ones are one path; the shortest of them share it.
    targets : (k,) int64, optional
        The nodes to which paths count; None: all.

    Raises
    ------
    ValueError
        If there are negative weights.
    OverflowError
        If distances may not fit 53 bits, and weights are whole numbers.
    """

    batch = _BATCH

    def __init__(self, edges: EdgeList, targets: Index | None = None) -> None:
        n, self.m, weight = edges.n, len(edges.col), edges.weight
        arc = np.flatnonzero((edges.row != edges.col) & (weight != np.inf))
        row, col, weight = edges.row[arc], edges.col[arc], weight[arc]
        if weight.size and weight.min() < 0:
            raise ValueError(
                "weights: searches that count shortest paths take positive ones, some are negative"
            )
        bound = max(n - 1, 0) * float(weight.max(initial=0))
        whole, _, slack = whole_weights(weight, bound)
        if weight.dtype.kind in "biu" and bound >= _EXACT:
            raise OverflowError(
                f"distances of up to {bound:g} do not fit the 53 bits in which shortest paths are "
                f"counted; give the weights in a larger unit, or as floating-point numbers"
            )
        weight = (weight if slack else whole).astype(np.float64)
        if not edges.directed:
            row, col = both_ways(row, col)
            arc, weight = np.tile(arc, 2), np.tile(weight, 2)
        order = np.lexsort((weight, row * np.int64(n) + col))
        arc, row, col, weight = arc[order], row[order], col[order], weight[order]
        new = np.ones(len(arc), bool)
        new[1:] = (row[1:] != row[:-1]) | (col[1:] != col[:-1])
        pair, least = np.cumsum(new) - 1, weight[new]
        tight = weight == least[pair]
        self.arc, self.pair = arc[tight], pair[tight]
        self.parallel = np.bincount(self.pair, minlength=len(least))
        first = offsets(np.bincount(row[new], minlength=n))
        self.work = Dependencies(EdgeList.by_rows(first, col[new], least))
        self.demand = None
        if targets is not None:
            self.demand = np.zeros(n)
            self.demand[targets] = 1.0
        super().__init__(Extent(bound, False, False, np.dtype(np.float64)), Wanted(frozenset()))

    def bytes(self) -> int:
        """Memory of the sums of one call."""
        return 8 * (_ENTRIES + pool.get_num_threads() * 16 * _WIDTH * self.work.n)

    def empty(self, count: int) -> dict[str, NDArray[Any]]:
        return {"nodes": np.zeros(self.work.n), "edges": np.zeros(len(self.parallel))}

    def collect(self, device: int, sources: Index) -> dict[str, NDArray[Any]]:
        nodes, edges = self.work.loads(sources, self.demand, edges=True)
        assert edges is not None
        return {"nodes": nodes, "edges": edges}

    def loads(self, results: dict[str, NDArray[Any]]) -> tuple[NDArray[Any], NDArray[Any]]:
        share = results["edges"] / self.parallel
        return results["nodes"], np.bincount(self.arc, share[self.pair], self.m)
