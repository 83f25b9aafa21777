"""Rows of best paths from batches of sources, by one method or another, and their statistics."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from .. import pool
from ..arrays import check_memory
from ..closures.edges import EdgeList
from ..closures.solve import Problem
from ..closures.sources import EdgeSource
from ..closures.spanning import SpanningForest
from ..closures.trees import has_ties, repair_trees
from ..hierarchy.collector import Collector, Extent, LoadCollector, Wanted
from ..hierarchy.demand import Demand, DemandRows
from ..hierarchy.devices import DeviceCollector, Placed, place
from ..hierarchy.gradient import DeviceLoads, SweepLoads
from ..hierarchy.metric import Metric, customize
from ..hierarchy.statistics import SweepCollector
from ..hierarchy.symbolic import Structure
from ..lazy import cached_property
from ..progress import part_of
from .choice import Request, hop_device, sweep_device
from .dependencies import SearchLoads, paths_device
from .dijkstra import search
from .hops import HopCollector, Hops

__all__ = [
    "WIDE", "Forest", "HopRows", "RowCollector", "Rows", "Searches", "Sweeps", "searched",
    "swept",
]  # fmt: skip

Array = NDArray[Any]
Index = NDArray[np.int64]
Trees = NDArray[Any] | None  # predecessors, in int32; or sums of a second quantity, in float64
Told = Callable[[float], None] | None

_LOADS = 20  # bytes of a label on a device beside itself: of numbers of paths and of demands
#: Nodes of a table of at most a block of sources or targets, and pairs of a larger one, for which
#: climbs of the elimination tree take less than sweeps.
_CLIMBS, _PAIRS = 16, 100_000
_ROWS = 64  # of a thread, that are added up together
#: Rows, and entries, of a result that are computed at a time where they are converted, and entries
#: that a thread converts at a time.
WIDE, _PIECE, _LINE = 64, 1 << 16, 1 << 14


class Rows:
    """Rows of best paths from batches of sources, by one method.

    The source of the problem has its edges at hand; `dtype` is that of distances.
    """

    method = ""  # for messages
    along = True  # whether weights are added up from the source on, which rounding depends on
    negative = False  # whether there are negative weights
    width = 1  # sources that a thread computes at once
    extra = 0  # bytes of each row beside it
    cheaper = 1  # sources whose statistics take about as long as the row of one
    devices: Sequence[int] | None = None  # CUDA devices that collect statistics; None: the CPU
    # what is there on these devices already
    placed: Callable[[Sequence[int]], Placed] | None = None

    def __init__(self, problem: Problem) -> None:
        self.problem, self.dtype = problem, problem.source.dtype

    @cached_property
    def symmetric(self) -> bool:
        """Whether distances are the same both ways."""
        return self.problem.source.symmetric()

    @property
    def reversed(self) -> Rows:
        """Those of the graph whose edges lead the other way."""
        source = self.problem.source
        row, col, weight = source.edges().arrays
        edges = EdgeList.of(source.n, col, row, weight)
        return type(self)(Problem.of(EdgeSource(source.s, edges, source.dtype)))

    @property
    def fixed(self) -> int:
        """Bytes that are taken however many rows there are."""
        return 0

    @property
    def counts_there(self) -> bool:
        """Whether there are devices' loads of nodes and edges."""
        return False

    def device(self, count: int, *, paths: bool = False) -> int | None:
        """The CUDA device for statistics of so many rows where none is asked for; None: the CPU.

        `paths`: loads are among them.
        """
        return None

    def order(self, sources: Index) -> Index:
        """An order in which sources are near each other."""
        return np.arange(len(sources))

    def takes(self, dtype: np.dtype[Any]) -> bool:
        """Whether rows of a type are filled as they are computed."""
        return dtype == self.problem.steps.dtype and not self.problem.truth

    def fill(
        self, sources: Index, d: Array, p: Trees = None, tick: Told = None, *,
        columns: Index | None = None,
    ) -> None:  # fmt: skip
        """Fill rows of a type that :meth:`takes` accepts, or that is computed in.

        Parameters
        ----------
        d, p : arrays
            With a row for each source.
        tick : callable, optional
            Is told the fraction done.
        columns : array of int64, optional
            The nodes that have a column; None: all.
        """
        if columns is None:
            self.fill_all(sources, d, p)
        else:
            d[...] = self.computed(sources)[:, columns]

    def fill_all(self, sources: Index, d: Array, p: Trees) -> None:
        """Fill rows with a column for each node."""
        raise NotImplementedError

    def write(
        self, sources: Index, d: Array, p: Trees = None, tick: Told = None, *,
        columns: Index | None = None,
    ) -> None:  # fmt: skip
        """Fill rows of the type of the result."""
        if not d.size or self.takes(d.dtype):
            self.fill(sources, d, p, tick, columns=columns)
            return
        (count, n), restore = d.shape, self.problem.restore
        wide = np.empty((min(count, max(WIDE, _PIECE // n)), n), self.problem.steps.dtype)
        for begin in range(0, count, len(wide)):
            some, rows = wide[: count - begin], d[begin : begin + len(wide)]
            part = slice(begin, begin + len(some))
            told = part_of(tick, begin / count, len(some) / count)
            self.fill(sources[part], some, None if p is None else p[part], told, columns=columns)

            def narrow(lines: slice, some: Array = some, rows: Array = rows) -> None:
                rows[lines] = restore(some[lines])

            step = max(1, _LINE // n)
            parts = (slice(i, i + step) for i in range(0, len(some), step))
            pool.run([functools.partial(narrow, lines) for lines in parts])

    def computed(self, sources: Index, columns: Index | None = None) -> Array:
        """Rows in the type computed in."""
        n = self.problem.source.n if columns is None else len(columns)
        d = np.empty((len(sources), n), self.problem.steps.dtype)
        self.fill(sources, d, columns=columns)
        return d

    def rows(self, sources: Index, columns: Index | None = None) -> Array:
        """The distances from nodes in floating point, inf where there is no path."""
        d = self.computed(sources, columns)
        if d.dtype.kind == "f":
            return d
        found = d.astype(np.float64)
        found[d == self.problem.steps.identities[0]] = np.inf
        return found

    def farthest(self, source: int, nodes: Index) -> int:
        """The node, of some, that is the farthest of those that a source reaches."""
        d = self.computed(np.array([source]))[0]
        return int(nodes[np.argmax(np.where(d == self.problem.steps.identities[0], -1, d)[nodes])])

    def collector(
        self, wanted: Wanted, columns: Index | None = None, *, backward: bool = False
    ) -> Collector:
        """What collects statistics of the distances to all nodes or some or, `backward`, from."""
        some = self.reversed if backward else self
        n = self.problem.source.n if columns is None else len(columns)
        return RowCollector(
            lambda sources: some.computed(sources, columns), n,
            self.problem.steps.identities[0], wanted, negative=self.negative,
        )  # fmt: skip

    def loads(
        self, demand: Demand | None = None, *, stress: bool = False, single: bool = False,
        of_edges: bool = True,
    ) -> LoadCollector:  # fmt: skip
        """What collects the loads of nodes and edges in the shortest paths between all nodes.

        Parameters are those of :class:`SearchLoads`.
        """
        source = self.problem.source
        assert isinstance(source, EdgeSource)
        return SearchLoads(
            source.given, demand, stress=stress, single=single, of_edges=of_edges,
            devices=self.devices,
        )  # fmt: skip

    def edge_loads(
        self, demand: Demand | DemandRows, *, single: bool = False, tick: Told = None
    ) -> tuple[NDArray[np.float64], float]:
        """What each of the graph's edges carries, either way, and the demand without a path.

        Parameters
        ----------
        demand : Demand or DemandRows
        single : bool
            As for :class:`SearchLoads`.
        tick : callable, optional
            Is told how many of the demand's sources are done.
        """
        collector, sources = self.loads(single=single), demand.sources
        check_memory(collector.bytes(), f"the work by {self.method} over {demand.n} nodes")
        results = collector.empty(len(sources))
        order = self.order(sources)
        step = min(collector.batch, demand.step)
        for done in range(0, len(order), step):
            some = order[done : done + step]
            collector.demand = demand.batch(sources[some])
            collector.run(sources[some], some, results)
            if tick is not None:
                tick(float(done + len(some)))
        return collector.loads(results)[1], float(results["lost"][0])


class Sweeps(Rows):
    """By sweeps over an elimination, in types that are chosen by the `count` of rows in all."""

    method, along, cheaper = "sweeps", False, 2

    def __init__(self, metric: Metric, problem: Problem, count: float = 0) -> None:
        super().__init__(problem)
        self.metric, self.count, self.dtype = metric, count, metric.out.dtype
        size = problem.steps.dtype.itemsize
        self.width, self.extra = metric.width, 4 * metric.structure.core * (size + 4 * metric.trees)

    @cached_property
    def symmetric(self) -> bool:
        return self.metric.symmetric

    @property
    def reversed(self) -> Sweeps:
        return Sweeps(self.metric.reversed, self.problem, self.count)

    @staticmethod
    def bytes(problem: Problem, structure: Structure) -> int:
        """Memory beside that of the rows."""
        size, arcs = problem.steps.dtype.itemsize, len(problem.source.edges().col)
        return structure.bytes(size, trees=problem.predecessors) + arcs * (16 + size)

    @property
    def fixed(self) -> int:
        return self.bytes(self.problem, self.metric.structure)

    def device(self, count: int, *, paths: bool = False) -> int | None:
        if paths and not self.counts_there:
            return None
        size = self.dtype.itemsize + _LOADS * paths
        return sweep_device(None, self.metric.structure, count, size)

    @property
    def counts_there(self) -> bool:
        return not self.metric.structure.core

    def order(self, sources: Index) -> Index:
        return np.argsort(self.metric.structure.rank[sources], kind="stable")

    def takes(self, dtype: np.dtype[Any]) -> bool:
        whole = not self.problem.truth and self.metric.narrowed(dtype, self.count) is not None
        return whole or super().takes(dtype)

    def fill(
        self, sources: Index, d: Array, p: Trees = None, tick: Told = None, *,
        columns: Index | None = None,
    ) -> None:  # fmt: skip
        if not d.size:
            return
        metric = self.metric.narrowed(d.dtype, self.count) or self.metric
        if columns is not None and p is None and self._climbs(len(sources), len(columns)):
            metric.table(sources, columns, d)
        elif columns is None or len(sources) <= metric.width:
            # a copy of what is swept costs more than it saves in a single block
            metric.sweep(sources, d, p, tick, targets=columns)
        elif len(columns) <= metric.width and self._turns(p):
            turned = np.empty(d.T.shape, d.dtype)
            sums = None if p is None else np.empty(d.T.shape)
            metric.reversed.sweep(columns, turned, sums, tick, targets=sources)
            d[...] = turned.T
            if p is not None and sums is not None:
                p[...] = sums.T
        else:
            rank = metric.structure.rank
            start, end = (rank[x].astype(np.int64) for x in (sources, columns))
            metric.restricted(start, end).sweep(start, d, p, tick, targets=end)
        self.repair(sources, d, p)

    def _climbs(self, sources: int, targets: int) -> bool:
        """Whether climbs from all nodes of a table take less than sweeps over what is above."""
        few, many = sorted((sources, targets))
        small = many <= _CLIMBS if few <= self.width else sources * targets <= _PAIRS
        return small and not self.metric.structure.core

    def _turns(self, p: Trees) -> bool:
        """Whether the columns of a table are rows of the reversed graph, at no cost."""
        commutes = self.problem.source.s.commutes and not self.metric.structure.core
        return commutes and (p is None or self.metric.out_along is not None)

    def repair(self, sources: Index, d: Array, p: Trees) -> None:
        """Make trees of predecessors among which ties have closed rings."""
        if p is None or self.metric.out_along is not None:  # sums, no trees
            return
        source, facts = self.problem.source, self.problem.weights.facts
        if has_ties(source.s, source.n, source.dtype, facts.lo, facts.hi):
            repair_trees(engines.named("cpu"), source.s, d, p, source.edges, sources)

    def collector(
        self, wanted: Wanted, columns: Index | None = None, *, backward: bool = False
    ) -> Collector:
        metric = self.metric.reversed if backward else self.metric
        if columns is not None:
            self.negative = metric.extent.negative
            return super().collector(wanted, columns, backward=backward)
        if self.devices is None:
            return SweepCollector(metric, wanted)
        if backward or self.placed is None:
            return DeviceCollector(place(metric, self.devices), metric, wanted)
        return DeviceCollector(self.placed(self.devices), metric, wanted)

    def loads(
        self, demand: Demand | None = None, *, stress: bool = False, single: bool = False,
        of_edges: bool = True,
    ) -> LoadCollector:  # fmt: skip
        source = self.problem.source
        assert isinstance(source, EdgeSource)
        if self.metric.structure.core:
            return super().loads(demand, stress=stress, single=single, of_edges=of_edges)
        if self.devices is None:
            return SweepLoads(self.metric, source.given, demand, stress=stress, single=single)
        assert not single, "a device shares ties evenly"
        return DeviceLoads(self.metric, source.given, demand, indices=self.devices, stress=stress)


def swept(r: Request) -> Rows:
    """Sweeps over the elimination of the request's structure."""
    structure = r.structure
    assert structure is not None
    if structure.core:  # there is no other method, and searches tell why they are none
        return searched(r)
    return Sweeps(r.sparse.solve(lambda x: customize(structure, x)), r.sparse)


class HopRows(Rows):
    """Numbers of edges, by breadth-first searches."""

    method, cheaper = "breadth-first searches", 64

    def __init__(self, graph: Hops, problem: Problem) -> None:
        super().__init__(problem)
        self.graph = graph

    @property
    def reversed(self) -> HopRows:
        return HopRows(self.graph.reverse(), self.problem)

    def device(self, count: int, *, paths: bool = False) -> int | None:
        return hop_device(self.graph.time(count, labels=False), self.graph.n, self.graph.arcs)

    def fill_all(self, sources: Index, d: Array, p: Trees) -> None:
        self.graph.distances(sources, d.dtype, self.problem.steps.identities[0], out=d)

    def collector(
        self, wanted: Wanted, columns: Index | None = None, *, backward: bool = False
    ) -> Collector:
        if columns is not None:
            return super().collector(wanted, columns, backward=backward)
        graph = self.graph.reverse() if backward else self.graph
        return HopCollector(graph, wanted, self.devices)


class Searches(Rows):
    """By a search of Dijkstra's from each source."""

    method = "a search from each source"

    @property
    def counts_there(self) -> bool:
        """Whether all edges count the same, and more than 0."""
        facts = self.problem.weights.facts
        return facts.lo > facts.hi or facts.lo == facts.hi > 0

    def device(self, count: int, *, paths: bool = False) -> int | None:
        source = self.problem.source
        if not paths or not self.counts_there:
            return None
        return paths_device(source.n, len(source.edges().col), count)

    @property
    def fixed(self) -> int:
        source, size = self.problem.source, self.problem.steps.dtype.itemsize
        arcs = len(source.edges().col)
        return arcs * (36 + 2 * size) + pool.get_num_threads() * (arcs + source.n) * (4 + size)

    def fill_all(self, sources: Index, d: Array, p: Trees) -> None:
        _, trees = search(self.problem, sources=sources, out=d)
        if p is not None and trees is not None:
            p[...] = trees


def searched(r: Request) -> Searches:
    """Searches over the request's edges."""
    return Searches(r.sparse)


class Forest(Rows):
    """By a spanning forest, of undirected graphs over minimum and maximum."""

    method = "a spanning tree"

    def __init__(self, problem: Problem, forest: SpanningForest) -> None:
        super().__init__(problem)
        self.forest = forest

    @property
    def fixed(self) -> int:
        n, size = self.problem.source.n, self.problem.steps.dtype.itemsize
        return n * (64 + size * (n.bit_length() + 2))

    def fill_all(self, sources: Index, d: Array, p: Trees) -> None:
        self.forest.write(engines.named("cpu"), d, p, sources.astype(np.int32))


class RowCollector(Collector):
    """Passes over sources by a search from each, whose rows are added up.

    `rows` gives the distances from some sources to n nodes, in the type of `missing`, which stands
    for no path. `negative`: there are negative weights.
    """

    def __init__(
        self, rows: Callable[[Index], Array], n: int, missing: Any, wanted: Wanted, *,
        negative: bool = False,
    ) -> None:  # fmt: skip
        self.rows, self.n, self.missing = rows, n, missing
        self.batch = _ROWS * pool.get_num_threads()
        kind = np.int64 if np.asarray(missing).dtype.kind == "i" else np.float64
        super().__init__(Extent(np.inf, False, negative, np.dtype(kind)), wanted)

    def bytes(self) -> int:
        """Memory of the rows of one call."""
        return 6 * self.batch * self.n * 8

    def collect(self, device: int, sources: Index) -> dict[str, Array]:
        kinds, wanted = self.wanted.kinds, self.wanted
        results, d = self.empty(len(sources)), self.rows(sources)
        there = d != self.missing
        finite = np.where(there, d, 0).astype(self.dtype if "sum" in kinds else d.dtype)
        if self.whole and int(finite.max(initial=0)) * self.n >= 1 << 63:
            raise OverflowError(
                f"{self.n} distances of up to {finite.max()} may add up to more than 64 bits hold; "
                f"give the weights as floating-point numbers"
            )
        if "largest" in kinds:
            results["largest"][:] = finite.max(axis=1, initial=0)
        if "count" in kinds:
            results["count"][:] = there.sum(axis=1)
        if "sum" in kinds:
            results["sum"][:] = finite.sum(axis=1)  # by pairs, as NumPy adds up what is contiguous
        if "inverse" in kinds:
            inverse = np.divide(1.0, finite, out=np.zeros(finite.shape), where=finite > 0)
            results["inverse"][:] = inverse.sum(axis=1)
        if "within" in kinds:
            assert wanted.radii is not None
            for i, r in enumerate(wanted.radii):
                mass = 1 if wanted.mass is None else wanted.mass
                results["within"][:, i] = np.where(there & (finite <= r), mass, 0).sum(axis=1)
        if "bins" in kinds:
            assert wanted.edges is not None
            results["bins"][:] = np.histogram(d[there], wanted.edges)[0]
        return results
