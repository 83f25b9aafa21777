"""Reverse sweeps over a customized factor on the device: loads of edges in all shortest paths."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graph_kernels import Index, Node, PathCounts, SymbolicFactor, offsets, ranges
from . import device
from .launch import entry, struct_of
from .memory import free_memory, from_host, to_host
from .regions import Limits, pieces, subtrees
from .source import STORAGE, flags
from .sweeps import FactorSweeps

__all__ = ["ReverseSweeps"]

Array = Any

_LAUNCH = struct.Struct("4i")  # begin, count, room, edge_room: sr::LoadParams ends with them

_WARPS, _LANES = 8, 32  # of a block; sources of a warp
_SHARED = _WARPS * _LANES * 16  # bytes of a block that shares the edges of a node
_SOURCES = 1 << 14  # of a batch, as far as the memory is there for them
_SHARE = 0.6  # of the free memory
_WARPS_AT_ONCE = 16  # of a multiprocessor, from which on each takes a piece alone
_TIED = 32  # edges of a node in sr::Leaves, each to another row
#: Subtrees in shared memory; what launches have of their rows; and pieces of what is above them.
_LEAF = Limits(16, 24, 200)
_CLASSES = (0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0)
_PIECE = Limits(32, 1 << 31, 1024)


class ReverseSweeps:
    """Reverse sweeps over one factor: see :class:`semiring_mm.graph_kernels.ReverseSweeps`."""

    def __init__(
        self, sweeps: FactorSweeps, counts: PathCounts, seed: NDArray[np.float64] | None = None, *,
        stress: bool = False, batch: int | None = None, leaf: Limits = _LEAF,
    ) -> None:  # fmt: skip
        self.here, self.sweeps, self.counts, self.batch = device.current(), sweeps, counts, batch
        self.seed, self.stress = seed, stress
        x, dtype = counts.structure, sweeps.compute
        self.structure, self.powers = x, dict[str, Array]()
        self.leaf, far = leaf, sweeps.zero
        assert leaf.rows <= _TIED + 1, "sr::Leaves has a bit for each edge of a node"

        def there(given: NDArray[Any], kind: Any) -> Array:
            return from_host(np.ascontiguousarray(given, kind))

        def both(out: NDArray[Any], back: NDArray[Any], kind: Any) -> tuple[Array, Array]:
            up = there(out, kind)
            return up, up if back is out else there(back, kind)

        out = np.minimum(counts.out, far)
        back = out if counts.back is counts.out else np.minimum(counts.back, far)
        weights, numbers = both(out, back, dtype), both(*counts.paths, np.float64)
        order, starts = self._pieces()
        upper = np.full(x.n, -1, np.int32)
        upper[order] = np.arange(len(order))
        leaves, edges = self._leaves()
        self.fields: dict[str, Any] = {
            "slot": there(sweeps.slots[x.order], np.int32), "parent": there(x.parent, np.int32),
            "first": there(x.first, np.int32), "head": there(x.head, np.int32),
            "out": weights[0], "back": weights[1], "out_count": numbers[0],
            "back_count": numbers[1], "seed": None if seed is None else there(seed, np.float64),
            "upper": there(upper, np.int32), "leaves": there(leaves, np.int32),
            "edges": self._records(edges, back, counts.paths[1]),
            "order": there(order, np.int32), "pieces": there(starts, np.int32),
            "slack": counts.slack, "nodes": x.n, "rows": min(x.n, _LANES * counts.depth),
            "stress": int(stress),
        }  # fmt: skip

    def _pieces(self) -> tuple[Index, Index]:
        """The nodes above the subtrees, piece by piece, and where these begin.

        Launches are of pieces that have as many above them.
        """
        x = self.structure
        of, roots = pieces(x, self.leaf, _PIECE)
        leaf = np.isin(roots, subtrees(x, self.leaf)[0])
        depth = [0] * len(roots)
        parent = np.append(of, -1)[x.parent[roots]].tolist()
        for i in range(len(roots) - 1, -1, -1):
            if parent[i] >= 0:
                depth[i] = depth[parent[i]] + 1
        above = np.flatnonzero(~leaf[of])
        rank = np.argsort(np.array(depth, np.int64), kind="stable")
        rank = rank[~leaf[rank]]
        place = np.empty(len(roots), np.int64)
        place[rank] = np.arange(len(rank))
        order = above[np.lexsort((-above, place[of[above]]))]
        sizes = np.bincount(place[of[above]], minlength=len(rank))
        counts = np.bincount(np.array(depth, np.int64)[rank])
        self.launches = list(zip(offsets(counts)[:-1].tolist(), counts.tolist(), strict=True))
        self.upper = len(order)
        return order, offsets(sizes)

    def _leaves(self) -> tuple[NDArray[np.int64], tuple[Index, Index]]:
        """The subtrees by launches, and the rows of the heads of their edges."""
        x = self.structure
        top, size = subtrees(x, self.leaf)
        rows, edges = size + np.diff(x.first)[top], x.first[top + 1] - x.first[top - size + 1]
        order = np.argsort(rows, kind="stable")
        limits = np.array(_CLASSES) * rows.max(initial=0)
        ends = np.searchsorted(rows[order], limits, side="right")
        self.leaf_launches = [
            (begin, end - begin, int(rows[order[end - 1]]), int(edges[order[begin:end]].max()))
            for begin, end in itertools.pairwise([0, *ends.tolist()]) if begin < end
        ]  # fmt: skip
        return np.stack([top, size], 1)[order], _leaf_edges(x, top, size)

    def _records(
        self, edges: tuple[Index, Index], weight: NDArray[Any], paths: NDArray[np.float64]
    ) -> Array:
        """sr::LeafEdge for the edges of the subtrees; others have none."""
        edge, row = edges
        size = self.sweeps.size
        kind = np.dtype({
            "names": ["count", "weight", "row"], "formats": ["f8", f"i{size}", "i4"],
            "offsets": [0, 8, 8 + size], "itemsize": _edge_size(size),
        })  # fmt: skip
        records = np.zeros(len(weight), kind)
        records["count"][edge], records["weight"][edge] = paths[edge], weight[edge]
        records["row"][edge] = row
        return from_host(records.view(np.uint8))

    def loads(self, sources: Index, *, wide: bool) -> dict[str, NDArray[np.float64]] | None:
        """The loads from some sources: see :class:`semiring_mm.graph_kernels.ReverseSweeps`."""
        xp, x = self.here.xp, self.structure
        if wide and not self.powers:
            powers = [from_host(np.ascontiguousarray(y, np.int32)) for y in self.counts.powers]
            self.powers = dict(zip(("out_power", "back_power"), powers, strict=True))
        sums = {name: xp.zeros(len(x.head)) for name in ("out_load", "back_load")}
        sums["ends"] = xp.zeros(x.n)
        missed, large = xp.zeros(x.n, np.uint32), xp.zeros(1, np.uint32)
        shared = self.fields | sums | {"missed": missed, "large": large}
        room: dict[str, Array] = {}
        for nodes, labels in self.sweeps.labels(sources, self.batch or self._columns(wide=wide)):
            if not room:
                room = self._room(len(nodes), wide=wide)
            self._batch(nodes, labels, shared | room, wide=wide)
        if not wide and int(large[0]):
            return None
        found = {name: to_host(y) for name, y in sums.items()}
        if not self.stress:
            position = x.rank[sources]
            reached = len(sources) - to_host(missed).astype(np.float64)
            reached -= np.bincount(position, minlength=x.n)
            found["ends"] = reached if self.seed is None else reached * self.seed
        return {name.removesuffix("_load"): y for name, y in found.items()}

    def _columns(self, *, wide: bool) -> int:
        """How many sources there is memory for at a time."""
        if self.here.index < 0:  # no device of its own memory
            return _SOURCES
        x = self.structure
        each = x.n * self.sweeps.size + self.upper * (16 + 4 * wide) + 4 * x.n // _LANES
        each += self.fields["rows"] * (16 + 4 * wide)
        return int(min(_SOURCES, _SHARE * (free_memory() or 0) // each))

    def _room(self, columns: int, *, wide: bool) -> dict[str, Array]:
        """Arrays of a batch of so many columns."""
        xp, n, rows = self.here.xp, self.structure.n, self.fields["rows"]
        groups = columns // _LANES
        up, all_ = (groups, rows, _LANES), (self.upper, columns)
        room = {
            "paths": xp.empty(all_, np.float64), "demand": xp.empty(all_, np.float64),
            "met": xp.empty((n, groups), np.int32), "visited": xp.empty((groups, rows), np.int32),
            "lengths": xp.empty(groups, np.int32), "up_paths": xp.empty(up, np.float64),
            "up_demand": xp.empty(up, np.float64),
        }  # fmt: skip
        if wide:
            room |= {"power": xp.empty(all_, np.int32), "up_power": xp.empty(up, np.int32)}
        return room

    def _batch(self, nodes: Node, labels: Array, shared: dict[str, Any], *, wide: bool) -> None:
        """The passes of the sources of one matrix of labels."""
        x, columns = self.structure, len(nodes)
        position = np.where(nodes < 0, x.n, x.rank[nodes]).astype(np.int32)
        ascending = np.sort(position.reshape(-1, _LANES), axis=1)
        shared["met"][...] = -1
        params, groups = struct_of("LoadParams"), columns // _LANES
        given = from_host(position), from_host(np.ascontiguousarray(ascending))
        packed = params.pack(
            shared | (self.powers if wide else {}),
            labels=labels,
            columns=columns,
            sources=given[0],
            ascending=given[1],
        )[: -_LAUNCH.size]  # hundreds of launches differ in little
        kind = f"{STORAGE[labels.dtype.name]}, {flags(wide)}"

        def kernel(body: str, threads: int) -> Callable[..., None]:
            source = entry("gradient.cuh", params, f"sr::{body}>::run", threads)
            launch = self.here.kernel(source).launch

            def run(blocks: int, shared_bytes: int, *last: int) -> None:
                text = packed + _LAUNCH.pack(*last)
                launch(blocks, threads, shared_bytes, text, params.pointers)

            return run

        def pieces_of(name: str) -> Callable[[int, int], None]:
            kernels = {
                team: kernel(f"{name}<{kind}, {team}", _WARPS * _LANES) for team in (1, _WARPS)
            }

            def run(begin: int, count: int) -> None:
                alone = count * groups >= _WARPS_AT_ONCE * self.here.sms
                blocks = -(-count * groups // _WARPS) if alone else count * groups
                kernels[1 if alone else _WARPS](blocks, _SHARED, begin, count, 0, 0)

            return run

        count_down, hand_down = pieces_of("CountDown"), pieces_of("HandDown")
        pass_leaves = kernel(f"Leaves<{kind}", _LANES)
        row, edge = _LANES * (16 + self.sweeps.size + 4 * wide) + 4, _edge_size(self.sweeps.size)
        kernel(f"CountUp<{kind}", _WARPS * _LANES)(groups, 0, 0, 0, 0, 0)
        for begin, count in self.launches:
            count_down(begin, count)
        for begin, count, rows, edges in self.leaf_launches:
            pass_leaves(count * groups, rows * row + edges * edge, begin, count, rows, edges)
        for begin, count in reversed(self.launches):
            hand_down(begin, count)
        kernel(f"HandUp<{kind}", _WARPS * _LANES)(groups, _SHARED, 0, 0, 0, 0)


def _edge_size(size: int) -> int:
    """Bytes of sr::LeafEdge for labels of that size."""
    return 16 if size == 4 else 32


def _leaf_edges(x: SymbolicFactor, top: Index, size: Index) -> tuple[Index, Index]:
    """The edges of some subtrees, and the rows of their heads in shared memory.

    The highest position has row 0, the others follow, then the heads of the highest.
    """
    low = top - size + 1
    counts = x.first[top + 1] - x.first[low]
    edge, leaf = ranges(x.first[low], counts), np.repeat(np.arange(len(top)), counts)
    head = x.head[edge].astype(np.int64)
    outers = np.diff(x.first)[top]
    # heads of the subtrees' highest positions, ascending, as all heads beyond them are among these
    key = np.repeat(np.arange(len(top)), outers) * x.n + x.head[ranges(x.first[top], outers)]
    begin = np.cumsum(outers) - outers
    outer = np.searchsorted(key, leaf * x.n + head) - begin[leaf] + size[leaf]
    return edge, np.where(head <= top[leaf], top[leaf] - head, outer)
