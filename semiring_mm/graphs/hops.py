"""Numbers of edges on shortest paths, by searches from 512 sources at once."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from .. import pool
from ..graph_kernels import Arcs, HopSearches, Index
from ..hierarchy import costs
from ..hierarchy.collector import Collector, Extent, Wanted
from ..lazy import cached_property
from .dijkstra import Lists, listed, search_lists

__all__ = ["HopCollector", "Hops", "brief", "engine_on", "lists_of_rows"]

Array = NDArray[Any]

_BYTE = 254  # the largest distance that a label of one byte holds
_ALONE = 3  # searches that take less one by one than together
_FEW = 4  # sources that are supposed to meet a node one by one, in whatever levels
#: Nanoseconds of one thread for a node: to begin, and each time that some searches meet it; for an
#: edge, as often. What labels of one byte, and of four, add to the first two.
_NODE, _MEET, _EDGE = 100.0, 80.0, 2.5
_LABEL, _WIDE = (150.0, 50.0), (750.0, 300.0)
_NONE = np.empty(0, np.int64)  # no radii
_PIECE = 1 << 24  # entries of a matrix that are looked at together
_DEVICE_BATCH = 1 << 15  # sources of a call on a device


class Hops:
    """A graph whose edges all count 1, and lead one way only if it is `directed`."""

    def __init__(self, n: int, row: Index, col: Index, *, directed: bool) -> None:
        if n > np.iinfo(np.int32).max:
            raise ValueError(f"a graph for breadth-first searches has less than 2³¹ nodes, got {n}")
        self.n = n
        apart = row != col
        if not apart.all():
            row, col = row[apart], col[apart]
        self.out = listed(n, row, col, both=not directed)[1:3]
        self.back = listed(n, col, row, both=False)[1:3] if directed else self.out

    @classmethod
    def of_matrix(cls, there: NDArray[np.bool_], *, symmetric: bool) -> Hops:
        """The graph of a matrix that is true where an edge leads from its row to its column."""
        out = lists_of_rows(np, there)
        return cls._of(len(there), out, out if symmetric else lists_of_rows(np, there.T))

    @classmethod
    def _of(cls, n: int, out: Arcs, back: Arcs) -> Hops:
        graph: Hops = object.__new__(cls)
        graph.n, graph.out, graph.back = n, out, back
        return graph

    def reverse(self) -> Hops:
        """The graph whose edges lead the other way."""
        return self._of(self.n, self.back, self.out)

    @property
    def arcs(self) -> int:
        """Edges, each in each of its directions."""
        return len(self.out[1])

    @staticmethod
    def least(n: int, arcs: int, count: int, *, labels: bool) -> float:
        """What :meth:`time` is about or more, whatever the graph: known without its lists."""
        return _time(n, arcs, count, 2, _LABEL if labels else (0.0, 0.0))

    def time(self, count: int, *, labels: bool) -> float:
        """Nanoseconds of searches from so many sources, on all threads.

        In a level all searches that meet a node do that together. Where there are few levels, most
        of them do; in road networks each comes in a level of its own. `labels`: distances are
        wanted, and not only their statistics.
        """
        levels = self.levels if count > _FEW else count
        extra = (0.0, 0.0) if not labels else _LABEL if 3 * levels < 2 * _BYTE else _WIDE
        return _time(self.n, self.arcs, count, 1 + levels // 2, extra)

    @cached_property
    def levels(self) -> int:
        """Of a search from a node with many edges."""
        if not self.arcs:
            return 1
        probe = np.array([np.argmax(np.diff(self.out[0]))])
        return int(self.on("cpu").statistics(probe, _NONE)["far"][0]) + 1

    def on(self, name: str) -> HopSearches:
        """Searches of it by an engine, in its memory."""
        return _searches(name)(self.n, self.out, self.back)

    def distances(
        self, sources: Index, dtype: Any = np.int32, unreached: float = -1, *,
        out: Array | None = None, done: Callable[[int], None] | None = None,
        device: int | None = None,
    ) -> Array:  # fmt: skip
        """A row for each source.

        Parameters
        ----------
        sources : array of int64
        dtype : dtype
        unreached : number
            The distance where there is no path.
        out : array of that dtype, optional
        done : callable, optional
            Is told after how many sources the work stands.
        device : int, optional
            A CUDA device, -1 for the current one; None: the CPU.
        """
        d = np.empty((len(sources), self.n), dtype) if out is None else out
        if device is None and len(sources) <= _ALONE:
            found = search_lists(Lists(self.n, *self.out, None), sources, predecessors=False)
            assert found is not None
            np.copyto(d, np.where(np.isinf(found.d), unreached, found.d), casting="unsafe")
            return d
        with engine_on(device) as name:
            self.on(name).rows(sources, d.dtype, unreached, d, done)
        return d


def brief(n: int, arcs: int, count: int, *, equal: bool, predecessors: bool) -> bool:
    """Whether searches over lists that are there end before any other method can.

    `equal`: all arcs weigh the same, and searches from all sources at once are another method.
    """
    together = None
    if equal:
        together = 2 * costs.LIST * arcs + Hops.least(n, arcs, count, labels=True)
        together = together if count > 1 and not predecessors else math.inf
    return costs.brief(n, arcs, count, threads=pool.get_num_threads(), hops=together)


def _searches(name: str) -> type[HopSearches]:
    found = engines.named(name).HopSearches
    assert found is not None
    return found


@contextlib.contextmanager
def engine_on(device: int | None) -> Iterator[str]:
    """The engine, and its device the current one."""
    if device is None:
        yield "cpu"
        return
    with engines.named("cuda").on(device):
        yield "cuda"


def _time(n: int, arcs: int, count: int, often: int, extra: tuple[float, float]) -> float:
    """Nanoseconds of searches of which some meet each node so often, apart from the others."""
    lanes = _searches("cpu").LANES
    often, calls = min(count, lanes, often), -(-count // lanes)
    node = _NODE + extra[0] + (_MEET + extra[1]) * often
    return max(1.0, calls / pool.get_num_threads()) * (node * n + _EDGE * often * arcs)


def lists_of_rows(xp: Any, there: Array) -> tuple[Array, Array]:
    """The true columns of each row of a matrix, in the memory of a library."""
    n = len(there)
    first, near = xp.zeros(n + 1, np.int64), [xp.empty(0, np.int32)]
    step = max(1, _PIECE // max(n, 1))
    for i in range(0, n, step):
        part = xp.ascontiguousarray(there[i : i + step])
        first[i + 1 : i + 1 + len(part)] = part.sum(1)
        near.append(xp.nonzero(part)[1].astype(np.int32))
    return xp.cumsum(first), xp.concatenate(near)


class HopCollector(Collector):
    """Passes over sources by breadth-first searches.

    CUDA `devices`, -1 for the current one, share the sources; None: the CPU.
    """

    def __init__(self, graph: Hops, wanted: Wanted, devices: Sequence[int] | None = None) -> None:
        super().__init__(Extent(max(graph.n - 1, 0), False, False, np.dtype(np.int64)), wanted)
        self.graph = graph
        self.places = [*devices] if devices else [None]
        self.devices = len(self.places)
        self.searches: list[HopSearches] = []
        for device in self.places:
            with engine_on(device) as name:
                self.searches.append(graph.on(name))
        self.batch = _DEVICE_BATCH * self.devices
        if self.places[0] is None:
            self.batch = self.searches[0].LANES * pool.get_num_threads()

    def bytes(self) -> int:
        """Memory of the searches of all threads."""
        if self.places[0] is not None:
            return 0  # of the host
        return self.searches[0].bytes(self.graph.n, self.graph.arcs, self.batch, labels=False)

    def collect(self, device: int, sources: Index) -> dict[str, Array]:
        wanted, radii = self.wanted, _NONE
        if wanted.radii is not None:
            clipped = np.clip(wanted.radii.astype(np.float64), -1, self.graph.n)
            radii = np.floor(clipped).astype(np.int64)
        with engine_on(self.places[device]):
            given = self.searches[device].statistics(sources, radii)
        given["table"][0] = len(sources)
        distances = np.flatnonzero(given["table"])
        results = {
            "largest": given["far"], "sum": given["total"], "inverse": given["inverse"],
            "count": given["reached"] + 1, "within": given["within"].T + (radii >= 0),
        }  # fmt: skip
        if wanted.edges is not None:
            results["bins"] = _binned(distances, given["table"][distances], wanted.edges)
        return {name: values for name, values in results.items() if name in wanted.kinds}


def _binned(distances: Index, counts: Index, edges: Array) -> Index:
    """Exact sums of counts in the bins of NumPy's histogram."""
    bins = len(edges) - 1
    place = np.searchsorted(edges, distances, side="right") - 1
    place[distances == edges[-1]] = bins - 1
    inside = (place >= 0) & (place < bins)
    found = np.zeros(bins, np.int64)
    np.add.at(found, place[inside], counts[inside])
    return found
