"""Dependencies on nodes and edges, summed over sources: the terms of betweenness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from .. import pool
from ..closures.edges import EdgeList, both_ways
from ..graph_kernels import HopDependencies, Index
from ..hierarchy import costs
from ..hierarchy.collector import Extent, LoadCollector, Wanted
from ..hierarchy.demand import Demand
from ..hierarchy.gradient import whole_weights
from ..lazy import cached_property
from ..plan import Facts, make_plan
from ..semirings import semirings
from .choice import Request, hop_device
from .hops import engine_on
from .kernels import dependencies as kernels

__all__ = ["Dependencies", "SearchLoads", "paths_device", "searches_bytes", "searches_cost"]

Float = NDArray[np.float64]

#: Sources of a batch, and of one over more nodes than :data:`_MANY`, whose values of 8 bytes a
#: source and node are to stay in the L2 cache.
_WIDTH, _NARROW, _MANY = 16, 8, 1 << 15
#: Sums that are computed apart and then added up, however many threads there are, and at most so
#: many entries of them.
_PARTS, _ENTRIES = 64, 1 << 24
_CALL = 1 << 22  # arcs and nodes of batches in a call, between which Ctrl-C is seen
#: By how much more than a bucket labels lie apart; most buckets of a search are `_HOPS` of the
#: largest weight, of which there may be as many as nodes, or so many.
_APART, _HOPS, _FEWEST = 1e-6, 8, 4096
_BATCH = 4096  # sources of a call of :class:`SearchLoads`
_TARGETS = "bounds", "target", "entry_first", "entry_lane", "amount"  # of kernels
_EXACT = 1 << 53
_LARGEST = 1e300  # number of paths whose inverse has all its digits
_NODES = 1 << 26  # whose events a device numbers in 32 bits
#: Where searches tell equal lengths by rounded sums, how much longer sweeps may take, and
#: nanoseconds that they may take anyway.
_ROUNDED, _BRIEF = 4, 1e8


def paths_device(n: int, arcs: int, count: int) -> int | None:
    """The CUDA device for sums over so many sources, where each edge counts 1; None: the CPU."""
    if n >= _NODES:
        return None
    threads = pool.get_num_threads()
    cost = costs.reversed_searches(n, arcs, count, unit=True, threads=threads)
    return hop_device(cost, n, arcs, paths=True)


class Dependencies:
    """Sums over sources of the shares of their shortest paths that pass through nodes and edges.

    The shares are of all shortest paths from a source to a node, and parallel edges are paths of
    their own. Numbers of paths are float64: exact up to 2^53, then rounded.

    Parameters
    ----------
    arcs : EdgeList
        Directed edges by rows, of finite positive weights, in float64 without rounding.
    device : int, optional
        A CUDA device, -1 for the current one, if all weights are equal and the demand is that of
        :meth:`Demand.to`. Default: the CPU.
    """

    def __init__(self, arcs: EdgeList, device: int | None = None) -> None:
        self.arcs, self.n, self.device = arcs, arcs.n, device
        weight = arcs.weight
        self.unit = bool(weight.size == 0 or weight.min() == weight.max() > 0)
        self._lists = {
            "n": arcs.n, "arcs": len(arcs.col), "first": np.ascontiguousarray(arcs.starts),
            "head": np.ascontiguousarray(arcs.col, np.int32),
        }  # fmt: skip

    def loads(
        self, sources: Index, demand: Demand | None = None, *, edges: bool = False,
        stress: bool = False, single: bool = False,
    ) -> tuple[Float, Float | None, float]:  # fmt: skip
        """Sums over sources; those of nodes leave out paths that begin or end there.

        Parameters
        ----------
        sources : (k,) int64
            One that comes twice counts twice.
        edges : bool
            Whether the sums of edges are wanted.
        demand, stress, single
            As for :class:`SearchLoads`; `single` with `edges`.

        Returns
        -------
        nodes : (n,) float64
        edges : (arcs,) float64, or None
        lost : float
            The amounts of pairs without a path; 0 where there are none but those that count 1.

        Raises
        ------
        ValueError
            If a weight is 0, negative, or so small that it is lost in rounding.
        OverflowError
            If there are more than 1e300 shortest paths between two nodes, or stress is not finite.
        """
        near = np.argsort(self._place[sources], kind="stable")
        ordered = np.ascontiguousarray(sources[near], np.int64)
        if self.device is None:
            nodes, links, lost, more = self._on_host(
                ordered, demand, edges=edges, stress=stress, single=single
            )
        else:
            assert not single, "a device shares ties evenly"
            each, lost = None if demand is None else demand.of_targets, 0.0
            with engine_on(self.device):
                nodes, links, more = self._there.sums(
                    ordered, each, _LARGEST, edges=edges, stress=stress
                )
        if more or not np.isfinite(nodes).all():
            raise OverflowError(
                f"there are more than {_LARGEST:g} shortest paths between two nodes, whose shares "
                f"are below what float64 holds; a prepared graph (sm.prepare) counts any number"
            )
        return nodes, links, lost

    def _on_host(
        self, ordered: Index, demand: Demand | None, *, edges: bool, stress: bool, single: bool
    ) -> tuple[Float, Float | None, float, bool]:
        """Sums, the demand without a path, and whether there are too many paths."""
        width = self._width
        batches = -(-len(ordered) // width)
        parts = min(_parts(self.n + len(self.arcs.col) * edges), max(1, batches))
        nodes = np.zeros((parts, self.n))
        links = np.zeros((parts, len(self.arcs.col))) if edges else None
        most, lost = np.ones((parts, 1)), np.zeros((parts, 1))
        cuts = [batches * i // parts for i in range(parts + 1)]

        def some(k: int, _: int) -> None:
            sums = {
                "node_load": nodes[k], "arc_load": None if links is None else links[k],
                "most": most[k], "lost": lost[k], "stress": stress, "single": single,
            }  # fmt: skip
            step = max(1, _CALL // max(1, self.n + len(self.arcs.col)))
            room = self._room(width)
            room["demand"] = None if demand is None else np.zeros((self.n, width))
            for i in range(cuts[k], cuts[k + 1], step):
                mine = ordered[i * width : min(i + step, cuts[k + 1]) * width]
                given: dict[str, Any] = dict.fromkeys(_TARGETS)
                if demand is not None:
                    given = demand.blocks(mine, width)
                rows = np.full((-(-len(mine) // width), width), self.n)
                rows.ravel()[: len(mine)] = mine
                self._add(rows, sums | room | given)
                pool.look()

        pool.run_parts(some, parts, parts)
        carried = None if links is None else links.sum(axis=0)
        return nodes.sum(axis=0), carried, float(lost.sum()), bool(most.max() > _LARGEST)

    def bytes(self) -> int:
        """Memory of the host that :meth:`loads` of nodes and edges takes."""
        if self.device is not None:
            return 0
        return _bytes(self.n, len(self.arcs.col), unit=self.unit)

    @property
    def _width(self) -> int:
        """Sources of a batch."""
        return 1 if not self.unit else _width(self.n)

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

    @cached_property
    def _there(self) -> HopDependencies:
        """The graph on the current device."""
        searches = engines.named("cuda").HopDependencies
        assert searches is not None
        assert self.unit
        x, back = self._lists, self._entering
        lists = (x["first"], x["head"]), (back["back_first"], back["tail"])
        return searches(self.n, *lists)

    @cached_property
    def _scale(self) -> float:
        """Buckets for a unit of length: a little more than one for the least weight."""
        least = float(self.arcs.weight.min(initial=np.inf))
        return (1 + _APART) / least if least > 0 else 0.0

    @cached_property
    def _slots(self) -> int:
        """Buckets that labels in the queue are in, a power of two; 0: a heap is the queue.

        Distances are as many buckets as are not worth a heap, and are told apart in float64.
        """
        largest = float(self.arcs.weight.max(initial=0)) * self._scale
        if not largest or not largest * _HOPS < max(_FEWEST, self.n):
            return 0
        return 1 << (int(largest) + 2).bit_length()

    def _room(self, width: int) -> dict[str, Any]:
        """What a thread writes to."""
        n, m = self.n, len(self.arcs.col)
        if not self.unit:
            queue: dict[str, Any] = {}
            if self._slots:
                queue = {"bucket": np.full(self._slots, -1, np.int32)}
                queue["following"] = np.empty(m + 1, np.int32)
            return queue | {
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
        kernel = kernels.by_buckets if self._slots else kernels.by_searches
        if self._slots:
            given = given | {"slots": self._slots, "scale": self._scale}
        lost = engines.compiled(kernel, plan, np.inf, 0.0)(
            **self._lists, **given, weight=weight, sources=batches, source=rows.ravel()
        )
        if lost:
            raise ValueError(
                "weights: some are 0, negative, or too small to change the sum of others, so that "
                "searches cannot count shortest paths; give positive weights"
            )


def _width(n: int) -> int:
    """Sources of a batch where every edge counts 1."""
    return _WIDTH if n <= _MANY else _NARROW


def _parts(entries: int) -> int:
    """Sums of so many entries that are computed apart."""
    return max(1, min(_PARTS, _ENTRIES // max(1, entries)))


def _bytes(n: int, arcs: int, *, unit: bool) -> int:
    """Memory of the sums of all parts and of the searches of all threads."""
    each = 24 * n + 16 * n * _width(n) if unit else 32 * n + 16 * arcs
    return _parts(n + arcs) * 8 * (n + arcs) + pool.get_num_threads() * each


def searches_bytes(r: Request) -> int:
    """Memory of searches that count shortest paths."""
    return _bytes(r.n, r.both, unit=_equal(r))


def searches_cost(r: Request, _: float) -> float:
    """Nanoseconds of searches that count shortest paths."""
    cost = costs.reversed_searches(r.n, r.both, r.count, unit=_equal(r), threads=r.threads)
    return cost if _comparable(r.listed) else max(_BRIEF, _ROUNDED * cost)


def _equal(r: Request) -> bool:
    """Whether all edges have one weight."""
    facts = r.sparse.weights.facts
    return bool(facts.lo == facts.hi)


def _comparable(edges: EdgeList) -> bool:
    """Whether searches tell equal lengths: sums of whole numbers of a unit."""
    weight = edges.weight
    if not weight.size or weight.dtype.kind in "biu":
        return True
    return whole_weights(weight, edges.n * float(weight.max()))[2] == 0


class SearchLoads(LoadCollector):
    """Loads by searches, of graphs without small separators and with positive weights.

    Whole numbers and decimals of up to 12 digits are added up exactly; others as they come, from
    the source on.

    Parameters
    ----------
    edges : EdgeList
        Of parallel ones the shortest share what the pair of nodes carries.
    demand : Demand, optional
        What the paths of each pair of nodes carry; None: 1.
    stress : bool
        Whether each of the shortest paths between two nodes counts 1, not all of them together.
    single : bool
        Whether one of the shortest paths between two nodes, and one of parallel edges, carries all.
    of_edges : bool
        Whether the loads of edges are wanted; else they are 0.
    devices : sequence of int, optional
        CUDA devices that share the sources, -1 for the current one, if all weights are equal; None:
        the CPU. They take demand that is the same for all sources.
    """

    def __init__(
        self, edges: EdgeList, demand: Demand | None = None, *, stress: bool = False,
        single: bool = False, of_edges: bool = True, devices: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        places = [*devices] if devices else [None]
        self.m, self.demand, self.devices = len(edges.col), demand, len(places)
        self.stress, self.single, self.of_edges = stress, single, of_edges
        self.batch = _BATCH * self.devices
        edge = np.flatnonzero((edges.weight != np.inf) & (edges.row != edges.col))
        row, col = (x[edge].astype(np.int64) for x in (edges.row, edges.col))
        bound = edges.n * float(edges.weight[edge].max(initial=0))
        weight, _, slack = whole_weights(edges.weight[edge], bound)
        if edges.weight.dtype.kind in "biu" and bound >= _EXACT:
            raise OverflowError(
                f"distances of up to {bound:g} may not be exact in float64, in which searches add "
                f"them up to count shortest paths; give the weights in a larger unit"
            )
        real = (edges.weight[edge] if slack else weight).astype(np.float64)
        if not edges.directed:
            (row, col), edge, real = both_ways(row, col), np.tile(edge, 2), np.tile(real, 2)
        order = np.lexsort((real, col, row))
        row, col, real, self.edge = row[order], col[order], real[order], edge[order]
        new = np.ones(len(order), bool)
        new[1:] = (row[1:] != row[:-1]) | (col[1:] != col[:-1])
        self.pair = np.cumsum(new) - 1  # of each arc the nodes that it joins
        self.shortest = new if single else real == real[new][self.pair]
        first = np.searchsorted(row[new], np.arange(edges.n + 1))
        arcs = EdgeList.by_rows(first, col[new], real[new])
        self.dependencies = [Dependencies(arcs, device) for device in places]
        super().__init__(Extent(bound, False, False, np.dtype(np.float64)), Wanted(frozenset()))

    def bytes(self) -> int:
        """Memory of the sums of all parts and of the searches of all threads."""
        return self.dependencies[0].bytes()

    def empty(self, count: int) -> dict[str, Any]:
        x = self.dependencies[0]
        edges = np.zeros(len(x.arcs.col) * self.of_edges)
        return {"nodes": np.zeros(x.n), "edges": edges, "lost": np.zeros(1)}

    def collect(self, device: int, sources: Index) -> dict[str, Any]:
        nodes, edges, lost = self.dependencies[device].loads(
            sources, self.demand, edges=self.of_edges, stress=self.stress, single=self.single
        )
        edges = np.zeros(0) if edges is None else edges
        return {"nodes": nodes, "edges": edges, "lost": np.array([lost])}

    def loads(self, results: dict[str, Any]) -> tuple[Float, Float]:
        if not self.of_edges:
            return results["nodes"], np.zeros(self.m)
        parallel = np.bincount(self.pair, self.shortest)
        flow = np.where(self.shortest, (results["edges"] / parallel)[self.pair], 0.0)
        edges: Float = np.bincount(self.edge, flow, self.m).astype(np.float64, copy=False)
        return results["nodes"], edges
