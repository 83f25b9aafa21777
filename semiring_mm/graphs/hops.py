"""Numbers of edges on shortest paths, by searches from 512 sources at once."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..closures.edges import both_ways, offsets
from ..cpu import bfs

if TYPE_CHECKING:
    from ..gpu.bfs import DeviceHops
    from ..hierarchy.statistics import Wanted

__all__ = ["HopCollector", "Hops", "lists_of_rows"]

Array = NDArray[Any]
Index = NDArray[np.int64]

_BYTE = 254  # the largest distance that a byte holds beside 255 for no path
_FEW = 4  # sources that are supposed to meet a node one by one, in whatever levels
#: Nanoseconds of one thread for a node: to begin, and each time that some searches meet it; for an
#: edge, as often. What labels of one byte, and of four, add to the first two.
_NODE, _MEET, _EDGE = 100.0, 80.0, 2.5
_LABEL, _WIDE = (150.0, 50.0), (750.0, 300.0)
_PIECE = 1 << 24  # entries of a matrix that are looked at together
_DEVICE_BATCH = 1 << 15  # sources of a call on a device


class Hops:
    """A graph whose edges all count 1.

    Parameters
    ----------
    n : int
    row, col : (m,) int64
    directed : bool
        Whether edges lead one way only.
    """

    negative = False

    def __init__(self, n: int, row: Index, col: Index, *, directed: bool) -> None:
        if n > np.iinfo(np.int32).max:
            raise ValueError(f"a graph for breadth-first searches has less than 2³¹ nodes, got {n}")
        self.n, self.symmetric = n, not directed
        apart = row != col
        row, col = (x[apart].astype(np.int64, copy=False) for x in (row, col))
        if not directed:
            row, col = both_ways(row, col)
        self.arcs = len(row)
        self.out = _lists(n, row, col)
        self.back = _lists(n, col, row) if directed else self.out

    @classmethod
    def of_matrix(cls, there: NDArray[np.bool_], *, symmetric: bool) -> Hops:
        """The graph of a matrix that is true where an edge leads from its row to its column."""
        graph: Hops = object.__new__(cls)
        graph.n, graph.symmetric = len(there), symmetric
        graph.out = lists_of_rows(np, there)
        graph.back = graph.out if symmetric else lists_of_rows(np, there.T)
        graph.arcs = len(graph.out[1])
        return graph

    def reverse(self) -> Hops:
        """The graph whose edges lead the other way."""
        other = object.__new__(Hops)
        other.n, other.symmetric, other.arcs = self.n, self.symmetric, self.arcs
        other.out, other.back = self.back, self.out
        return other

    @staticmethod
    def room(n: int, count: int, *, labels: bool = True) -> int:
        """Bytes of searches from so many sources, whose distances are wanted or not, at once."""
        together = min(pool.get_num_threads(), -(-count // bfs.LANES))
        return together * n * (3 * bfs.LANES // 8 + 16 + (bfs.LANES if labels else 0))

    @staticmethod
    def least(n: int, arcs: int, count: int, *, labels: bool) -> float:
        """What :meth:`time` is about or more, whatever the graph: known without its lists."""
        return _time(n, arcs, count, 2, _LABEL if labels else (0.0, 0.0))

    def time(self, count: int, *, labels: bool) -> float:
        """Nanoseconds of searches from so many sources, on all threads.

        In a level all searches that meet a node do that together. Where there are few levels, most
        of them do; in road networks each comes in a level of its own.

        Parameters
        ----------
        labels : bool
            Whether distances are wanted, and not only their statistics.
        """
        levels = self.levels if count > _FEW else count
        extra = (0.0, 0.0) if not labels else _LABEL if 3 * levels < 2 * _BYTE else _WIDE
        return _time(self.n, self.arcs, count, 1 + levels // 2, extra)

    @functools.cached_property
    def levels(self) -> int:
        """Of a search from a node with many edges."""
        if not self.arcs:
            return 1
        probe = np.array([np.argmax(np.diff(self.out[0]))])
        return int(self.search(probe)["far"][0]) + 1

    def search(
        self, sources: Index, *, radii: Index | None = None, labels: Array | None = None
    ) -> dict[str, Array]:
        """Results of :func:`..cpu.bfs.levels` for at most 512 sources.

        `labels`, n rows of 512 bytes or int32, receives distances, as bytes those of up to 254.
        """
        n, lanes = self.n, bfs.LANES
        count = len(sources)
        mark = _BYTE if labels is None or labels.itemsize == 1 else n
        radii = np.empty(0, np.int64) if radii is None else radii
        bits = np.zeros(lanes, np.uint8)
        bits[:count] = 1
        words = np.zeros((3, n + 1, lanes // 64), np.uint64)
        found: dict[str, Array] = {
            "reached": np.zeros(lanes, np.int64), "total": np.zeros(lanes, np.int64),
            "far": np.zeros(lanes, np.int64), "inverse": np.zeros(lanes),
            "within": np.zeros((len(radii), lanes), np.int64), "table": np.zeros(n + 2, np.int64),
        }  # fmt: skip
        fields = found | {
            "n": n, "arcs": self.arcs, "count": count, "radii": len(radii), "mark": mark,
            "source": np.ascontiguousarray(sources, np.int64), "radius": radii,
            "first": self.out[0], "near": self.out[1], "back_first": self.back[0],
            "back_near": self.back[1], "active": np.empty(n + 1, np.int32),
            "touched": np.empty(n + 1, np.int32),
            "counts": np.zeros(lanes, np.int32), "seen": words[0], "frontier": words[1],
            "next": words[2], "slices": np.zeros((8, lanes // 64), np.uint64),
            "full": np.packbits(bits, bitorder="little"), "label": labels,
        }  # fmt: skip
        bfs.levels(fields, labels=0 if labels is None else labels.itemsize)
        return found

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
        if device is not None:
            from ..gpu.bfs import DeviceHops
            from ..gpu.memory import on, to_host

            with on(device):
                there = DeviceHops(self.n, self.out, self.back)
                for begin in range(0, len(sources), there.shape.columns):
                    some = slice(begin, min(begin + there.shape.columns, len(sources)))
                    d[some] = to_host(there.rows(sources[some], d.dtype, unreached))
                    if done is not None:
                        done(some.stop)
            return d
        values = np.arange(_BYTE + 2).astype(d.dtype)
        values[-1] = unreached

        def part_of(begin: int) -> None:
            part = sources[begin : begin + bfs.LANES]
            labels = np.full((self.n, bfs.LANES), 255, np.uint8)
            if self.search(part, labels=labels)["far"].max() > _BYTE:
                labels = np.full(labels.shape, -1, np.int32)
                self.search(part, labels=labels)
            labels[part, np.arange(len(part))] = 0
            rows = d[begin : begin + bfs.LANES]
            for i in range(0, self.n, 256):  # a piece is turned in the cache
                piece = labels[i : i + 256, : len(part)].T
                if labels.itemsize == 1:
                    rows[:, i : i + 256] = values[piece]
                else:
                    rows[:, i : i + 256] = np.where(piece < 0, values[-1], piece)

        starts = range(0, len(sources), bfs.LANES)
        pool.run(
            [functools.partial(part_of, i) for i in starts],
            None if done is None else (lambda k: done(min((k + 1) * bfs.LANES, len(sources)))),
        )
        return d


def _time(n: int, arcs: int, count: int, often: int, extra: tuple[float, float]) -> float:
    """Nanoseconds of searches of which some meet each node so often, apart from the others."""
    often, calls = min(count, bfs.LANES, often), -(-count // bfs.LANES)
    node = _NODE + extra[0] + (_MEET + extra[1]) * often
    return max(1.0, calls / pool.get_num_threads()) * (node * n + _EDGE * often * arcs)


def _lists(n: int, row: Index, col: Index) -> tuple[Index, NDArray[np.int32]]:
    """The heads of the edges from each node."""
    first = offsets(np.bincount(row, minlength=n))
    both = row << 32 | col
    both.sort()
    return first, both.astype(np.int32)  # the lower half


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


class HopCollector:
    """Passes over sources, as :class:`..hierarchy.statistics.Collector`.

    Parameters
    ----------
    graph : Hops
    wanted : Wanted
    devices : sequence of int, optional
        CUDA devices that share the sources, -1 for the current one; None: the CPU.
    """

    whole, negative, tight = True, False, False

    def __init__(self, graph: Hops, wanted: Wanted, devices: Sequence[int] | None = None) -> None:
        self.graph, self.bound = graph, max(graph.n - 1, 0)
        self.there: list[tuple[int, DeviceHops]] = []
        if devices:
            from ..gpu.bfs import DeviceHops
            from ..gpu.memory import on

            for index in devices:
                with on(index):
                    self.there.append((index, DeviceHops(graph.n, graph.out, graph.back)))
        self.want(wanted)

    def want(self, wanted: Wanted) -> None:
        """Collect something else from now on."""
        self.wanted = wanted

    @property
    def batch(self) -> int:
        """Sources of a call of :meth:`run` that keep all threads at work."""
        if self.there:
            return _DEVICE_BATCH * len(self.there)
        return bfs.LANES * pool.get_num_threads()

    def bytes(self) -> int:
        """Memory of the searches of all threads."""
        if self.there:
            return 0  # of the host
        return self.graph.room(self.graph.n, self.batch, labels=False)

    def empty(self, count: int) -> dict[str, Array]:
        """Arrays of results for some sources."""
        number = np.dtype(np.int64)
        return self.wanted.empty(count, number, number)

    def run(self, sources: Index, at: Index, found: dict[str, Array]) -> None:
        """Fill entries `at` of results, and join to the histogram, from some sources."""
        kinds, wanted = self.wanted.kinds, self.wanted
        radii = None
        if wanted.radii is not None:
            clipped = np.clip(wanted.radii.astype(np.float64), -1, self.graph.n)
            radii = np.floor(clipped).astype(np.int64)
        radii = np.empty(0, np.int64) if radii is None else radii
        tables: list[Array] = []

        def join(mine: dict[str, Array], here: Index) -> None:
            count = len(here)
            for name, own in (("largest", "far"), ("sum", "total"), ("inverse", "inverse")):
                if name in kinds:
                    found[name][here] = mine[own][:count]
            if "count" in kinds:
                found["count"][here] = mine["reached"][:count] + 1
            if "within" in kinds:
                found["within"][here] = mine["within"][:, :count].T + (radii >= 0)
            mine["table"][0] = count
            tables.append(mine["table"])

        def some(begin: int) -> None:
            part = slice(begin, begin + bfs.LANES)
            join(self.graph.search(sources[part], radii=radii), at[part])

        if self.there:
            from concurrent.futures import ThreadPoolExecutor

            from ..gpu.memory import on

            def away(place: tuple[int, DeviceHops], part: slice) -> None:
                index, there = place
                with on(index):
                    join(there.statistics(sources[part], radii), at[part])

            cuts = np.linspace(0, len(sources), len(self.there) + 1).astype(int).tolist()
            parts = [slice(*x) for x in itertools.pairwise(cuts)]
            with ThreadPoolExecutor(len(self.there)) as executor:
                list(executor.map(away, self.there, parts))
        else:
            pool.run([functools.partial(some, i) for i in range(0, len(sources), bfs.LANES)])
        if "bins" in kinds:
            for table in tables:
                distances = np.flatnonzero(table)
                found["bins"] += _binned(distances, table[distances], wanted.edges)


def _binned(distances: Index, counts: Index, edges: Array | None) -> Index:
    """Exact sums of counts in the bins of NumPy's histogram."""
    assert edges is not None
    bins = len(edges) - 1
    place = np.searchsorted(edges, distances, side="right") - 1
    place[distances == edges[-1]] = bins - 1
    inside = (place >= 0) & (place < bins)
    found = np.zeros(bins, np.int64)
    np.add.at(found, place[inside], counts[inside])
    return found
