"""Reverse sweeps over a customized factor on the device: loads of edges in all shortest paths."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graph_kernels import Index, PathCounts
from . import device
from .launch import entry, struct_of
from .memory import free_memory, from_host, to_host
from .source import STORAGE, flags
from .sweeps import FactorSweeps

__all__ = ["ReverseSweeps"]

Array = Any

_LEVEL = struct.Struct("3i4x")  # begin, count, shift: sr::LoadParams ends with them

_WARPS, _LANES = 8, 32  # of a block; sources of a warp
_SHARED = _WARPS * _LANES * 16  # bytes of a block
_SOURCES = 4096  # of a batch
_SHARE = 0.6  # of the free memory
_WARPS_AT_ONCE = 32  # of a multiprocessor, from which on none shares the edges of a node


class ReverseSweeps:
    """Reverse sweeps over one factor: see :class:`semiring_mm.graph_kernels.ReverseSweeps`."""

    def __init__(
        self, sweeps: FactorSweeps, counts: PathCounts, seed: NDArray[np.float64] | None = None, *,
        stress: bool = False, batch: int | None = None,
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
        order = np.argsort(x.height, kind="stable")
        self.cuts = np.searchsorted(x.height[order], np.arange(int(x.height.max(initial=-1)) + 2))
        self.degree = np.diff(x.first)[order]
        self.fields: dict[str, Any] = {
            "slot": there(sweeps.slots[x.order], np.int32), "parent": there(x.parent, np.int32),
            "first": there(x.first, np.int32), "head": there(x.head, np.int32),
            "out": weights[0], "back": weights[1], "out_count": numbers[0],
            "back_count": numbers[1], "seed": None if seed is None else there(seed, np.float64),
            "order": there(order, np.int32), "slack": counts.slack, "nodes": x.n,
            "rows": min(x.n, _LANES * counts.depth), "stress": int(stress),
        }  # fmt: skip

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
        each = x.n * (self.sweeps.size + 16 + 4 * wide) + 4 * x.n // _LANES
        each += self.fields["rows"] * (16 + 4 * wide)
        return int(min(_SOURCES, _SHARE * (free_memory() or 0) // each))

    def _room(self, columns: int, *, wide: bool) -> dict[str, Array]:
        """Arrays of a batch of so many columns."""
        xp, n, rows = self.here.xp, self.structure.n, self.fields["rows"]
        groups = columns // _LANES
        up, all_ = (groups, rows, _LANES), (n, columns)
        room = {
            "paths": xp.empty(all_, np.float64), "demand": xp.empty(all_, np.float64),
            "met": xp.empty((n, groups), np.int32), "visited": xp.empty((groups, rows), np.int32),
            "lengths": xp.empty(groups, np.int32), "up_paths": xp.empty(up, np.float64),
            "up_demand": xp.empty(up, np.float64),
        }  # fmt: skip
        if wide:
            room |= {"power": xp.empty(all_, np.int32), "up_power": xp.empty(up, np.int32)}
        return room

    def _batch(
        self, nodes: NDArray[np.int32], labels: Array, shared: dict[str, Any], *, wide: bool
    ) -> None:
        """The passes of the sources of one matrix of labels."""
        x, columns = self.structure, len(nodes)
        position = np.where(nodes < 0, x.n, x.rank[nodes]).astype(np.int32)
        ascending = np.sort(position.reshape(-1, _LANES), axis=1)
        shared["met"][...] = -1
        params, groups = struct_of("LoadParams"), columns // _LANES
        given = from_host(position), from_host(np.ascontiguousarray(ascending))
        packed = params.pack(
            shared | (self.powers if wide else {}), labels=labels, columns=columns,
            sources=given[0], ascending=given[1],
        )[: -_LEVEL.size]  # hundreds of launches differ in little

        def kernel(name: str) -> Any:
            run = f"sr::{name}<{STORAGE[labels.dtype.name]}, {flags(wide)}>::run"
            bounds = f"{_WARPS * _LANES}, 4"
            return self.here.kernel(entry("gradient.cuh", params, run, bounds))

        def launch(name: str, blocks: int, *level: int) -> None:
            last = _LEVEL.pack(*(level or (0, 0, 0)))
            kernels[name].launch(blocks, _WARPS * _LANES, _SHARED, packed + last, params.pointers)

        kernels = {x: kernel(x) for x in ("CountUp", "CountDown", "HandDown", "HandUp")}
        levels = []
        for begin, end in zip(self.cuts[:-1].tolist(), self.cuts[1:].tolist(), strict=True):
            items, degree = (end - begin) * groups, self.degree[begin:end].mean()
            shift = 0
            most = min(_WARPS_AT_ONCE * self.here.sms / items, degree / 2, _WARPS)
            shift = max(0, int(math.log2(most))) if most > 1 else 0
            blocks = -(-(items << shift) // _WARPS)
            levels.append((blocks, begin, end - begin, shift))
        launch("CountUp", groups)
        for level in reversed(levels):
            launch("CountDown", *level)
        for level in levels:
            launch("HandDown", *level)
        launch("HandUp", groups)
