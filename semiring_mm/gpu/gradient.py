"""Reverse sweeps over a customized factor on the device: loads of edges in all shortest paths."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graph_kernels import Index, Node, PathCounts, SymbolicFactor, ranges
from . import device
from .launch import entry, struct_of
from .memory import free_memory, from_host, to_host
from .regions import Limits, subtrees
from .source import STORAGE, flags
from .sweeps import FactorSweeps

__all__ = ["ReverseSweeps"]

Array = Any

_LEVEL = struct.Struct("4i")  # begin, count, shift, room: sr::LoadParams ends with them

_WARPS, _LANES = 8, 32  # of a block; sources of a warp
_SHARED = _WARPS * _LANES * 16  # bytes of a block
_SOURCES = 4096  # of a batch
_SHARE = 0.6  # of the free memory
_WARPS_AT_ONCE = 32  # of a multiprocessor, from which on none shares the edges of a node
#: Subtrees in shared memory, and their rows there, up to so many in one launch.
_LEAF = Limits(32, 40, 1 << 31)
_CLASSES = (5, 7, 9, 12, 16, 20, 26, 33)
_EACH, _LEAF_WARPS = 2, 2  # sources of a lane; warps of a block


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
        far = sweeps.zero

        def there(given: NDArray[Any], kind: Any) -> Array:
            return from_host(np.ascontiguousarray(given, kind))

        def both(out: NDArray[Any], back: NDArray[Any], kind: Any) -> tuple[Array, Array]:
            up = there(out, kind)
            return up, up if back is out else there(back, kind)

        out = np.minimum(counts.out, far)
        back = out if counts.back is counts.out else np.minimum(counts.back, far)
        weights, numbers = both(out, back, dtype), both(*counts.paths, np.float64)
        top, size = subtrees(x, leaf)
        above, upper = np.ones(x.n, bool), np.full(x.n, -1, np.int32)
        above[ranges(top - size + 1, size)] = False
        self.upper = int(np.count_nonzero(above))
        upper[above] = np.arange(self.upper)
        order = np.argsort(x.height, kind="stable")
        order = order[above[order]]
        levels = np.flatnonzero(np.diff(x.height[order], prepend=-1, append=-1))
        self.cuts, self.degree = levels, np.diff(x.first)[order]
        rows = size + np.diff(x.first)[top]
        by_rows = np.argsort(rows, kind="stable")
        self.leaves = _launches(rows[by_rows])
        leaves, edges = np.stack([top, size], 1)[by_rows], _leaf_edges(x, top, size)
        self.fields: dict[str, Any] = {
            "slot": there(sweeps.slots[x.order], np.int32), "parent": there(x.parent, np.int32),
            "first": there(x.first, np.int32), "head": there(x.head, np.int32),
            "out": weights[0], "back": weights[1], "out_count": numbers[0],
            "back_count": numbers[1], "seed": None if seed is None else there(seed, np.float64),
            "upper": there(upper, np.int32), "leaves": there(leaves, np.int32),
            "edges": self._records(edges, back, counts.paths[1]),
            "order": there(order, np.int32), "slack": counts.slack, "nodes": x.n,
            "rows": min(x.n, _LANES * counts.depth), "stress": int(stress),
        }  # fmt: skip

    def _records(
        self, edges: tuple[Index, Index], weight: NDArray[Any], paths: NDArray[np.float64]
    ) -> Array:
        """sr::LeafEdge for the edges of the subtrees; others have none."""
        edge, row = edges
        size = self.sweeps.size
        kind = np.dtype({
            "names": ["count", "weight", "row"], "formats": ["f8", f"i{size}", "i4"],
            "offsets": [0, 8, 8 + size], "itemsize": 16 if size == 4 else 32,
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

    def _levels(self, groups: int) -> list[tuple[int, tuple[int, ...]]]:
        """For each level how many blocks of warps, and its words of the parameters."""
        levels = list[tuple[int, tuple[int, ...]]]()
        for begin, end in itertools.pairwise(self.cuts.tolist()):
            warps, degree = (end - begin) * groups, self.degree[begin:end].mean()
            most = min(_WARPS_AT_ONCE * self.here.sms / warps, degree / 2, _WARPS)
            shift = int(math.log2(most)) if most > 1 else 0
            levels.append((-(-(warps << shift) // _WARPS), (begin, end - begin, shift, 0)))
        return levels

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
        )[: -_LEVEL.size]  # hundreds of launches differ in little
        kind = f"{STORAGE[labels.dtype.name]}, {flags(wide)}"

        def kernel(body: str, threads: int, shared_bytes: int) -> Callable[..., None]:
            source = entry("gradient.cuh", params, f"sr::{body}>::run", threads)
            launch = self.here.kernel(source).launch

            def run(blocks: int, level: tuple[int, ...], rows: int = 1) -> None:
                text = packed + _LEVEL.pack(*level)
                launch(blocks, threads, rows * shared_bytes, text, params.pointers)

            return run

        count_up, count_down, hand_down, hand_up = (
            kernel(f"{name}<{kind}", _WARPS * _LANES, _SHARED)
            for name in ("CountUp", "CountDown", "HandDown", "HandUp")
        )
        row = _LEAF_WARPS * _LANES * _EACH * (16 + self.sweeps.size + 4 * wide)
        pass_leaves = kernel(f"Leaves<{kind}, {_EACH}", _LEAF_WARPS * _LANES, row)
        levels, none = self._levels(groups), (0, 0, 0, 0)
        count_up(groups, none)
        for blocks, level in reversed(levels):
            count_down(blocks, level)
        for begin, count, rows in self.leaves:
            warps = count * columns // (_LANES * _EACH)
            pass_leaves(-(-warps // _LEAF_WARPS), (begin, count, 0, rows), rows)
        for blocks, level in levels:
            hand_down(blocks, level)
        hand_up(groups, none)


def _launches(rows: NDArray[Any]) -> list[tuple[int, int, int]]:
    """Of subtrees by ascending rows those of each launch: the first, how many, and their rows."""
    ends = np.searchsorted(rows, (*_CLASSES, rows.max(initial=0)), side="right")
    begins = np.concatenate([[0], ends[:-1]])
    return [
        (begin, end - begin, int(rows[end - 1]))
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True) if begin < end
    ]  # fmt: skip


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
