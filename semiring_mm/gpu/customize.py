"""Customization on the device: the edges of a sparse elimination get weights from a graph's."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from ..graph_kernels import Index, SymbolicFactor
from ..layouts import assert_lies
from ..plan import Plan, bytewise, computed, stored
from ..semirings import Semiring
from . import device
from .launch import entry, launch, struct_of
from .memory import from_host, to_host
from .source import algebra, compute_dtype, flags
from .views import bits_of

__all__ = ["Customizer"]

Array = Any

_LEVELS = struct.Struct("3i")  # begin, end, shift: sr::CustomizeParams ends with them

_THREADS, _ALONE = 256, 1024  # of a block that is one of many; of one that takes levels alone
_BLOCKS = 32  # for each multiprocessor, of one launch
#: Triangles of a level up to which one block joins them in less time than a launch takes.
_FEW = 4096
_MOST = (1 << 31) - 1  # edges


class Customizer:
    """See :class:`semiring_mm.graph_kernels.Customizer`; on the current device.

    Levels of up to `few` triangles share a launch.
    """

    def __init__(
        self, structure: SymbolicFactor, slot: Index, *, undirected: bool, few: int = _FEW
    ) -> None:
        if len(structure.head) > _MOST:
            raise ValueError(
                f"on the device a hierarchy has up to {_MOST} edges, this one {len(structure.head)}"
            )
        assert_lies("slot", slot, "whole(i64[:])")
        self.structure, self.undirected, self.here = structure, undirected, device.current()
        self.head, self.slot = from_host(structure.head), from_host(slot)
        self._lay_out(few)

    def _lay_out(self, few: int) -> None:
        """sr::Pairs of all edges with others behind them, by levels; launches of some levels."""
        x, xp = self.structure, self.here.xp
        first, level = from_host(x.first.astype(np.int32)), from_host(x.height)
        edge, head = xp.arange(len(x.head), dtype=np.int32), self.head
        tail = xp.searchsorted(first[1:], edge, side="right")
        inner = head < x.eliminated
        at = xp.where(inner, head, 0)
        row = xp.where(inner, first[at], x.eliminated - 1 - head)
        pairs = xp.stack([edge, first[tail + 1], row, first[at + 1]], axis=1)
        kept = pairs[:, 0] + 1 < pairs[:, 1]
        pairs, level = pairs[kept], level[tail[kept]]
        order = xp.argsort(level, kind="stable")
        self.pairs = xp.ascontiguousarray(pairs[order], np.int32)
        levels = int(x.height.max(initial=-1)) + 1
        cuts = xp.searchsorted(level[order], xp.arange(levels + 1))
        self.cuts = cuts.astype(np.int32)
        behind = (self.pairs[:, 1] - self.pairs[:, 0] - 1).astype(np.int64)
        before = xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(behind)])
        items, triangles = (np.diff(to_host(y)) for y in (cuts, before[cuts]))
        self.launches: list[tuple[int, int, bytes]] = []  # blocks, threads, the last parameters
        begin = 0
        for stop in range(1, levels + 1):
            alone = triangles[stop - 1] <= few
            if alone and stop < levels and triangles[stop] <= few:
                continue
            some = slice(begin, stop)
            mean = -(-int(triangles[some].sum()) // max(1, int(items[some].sum())))
            shift = min(5, max(0, mean - 1).bit_length())
            blocks = -(-int(items[stop - 1] << shift) // _THREADS)
            shape = (1, _ALONE) if alone else (min(blocks, _BLOCKS * self.here.sms), _THREADS)
            if mean:
                self.launches.append((*shape, _LEVELS.pack(begin, stop, shift)))
            begin = stop

    def __call__(
        self, semiring: Semiring, dtype: np.dtype[Any], plan: Plan, weight: Array, *, look: bool
    ) -> tuple[Array, Array, Array, bool]:
        """The weights of a factor: see :class:`semiring_mm.graph_kernels.Customizer`."""
        x, xp = self.structure, self.here.xp
        plan = bytewise(plan) if plan.codec == "bits" else plan
        compute = np.dtype(compute_dtype(plan))
        zero, one = (_identity(plan, value, compute) for value in semiring.identities(dtype))
        symmetric = self.undirected and semiring.commutes
        out = xp.full(len(x.head), zero, compute)
        back = out if symmetric else out.copy()
        matrix = xp.full((x.core, x.core), zero, compute)
        improves = xp.zeros(1, np.uint32)
        fields = {
            "out": out, "back": back, "matrix": matrix, "head": self.head, "pairs": self.pairs,
            "cuts": self.cuts, "slot": self.slot, "weight": weight, "improves": improves,
            "zero": bits_of(zero, compute), "one": bits_of(one, compute), "fringe": x.eliminated,
            "core": x.core, "both": int(self.undirected),
        }  # fmt: skip

        params, text = struct_of("CustomizeParams"), algebra(plan)

        def each(body: str, count: int, **more: Any) -> None:
            if count:
                source = entry("customize.cuh", params, f"{body}::run", _THREADS, text)
                blocks = -(-count // _THREADS)
                launch(source, params, blocks, _THREADS, 0, fields, count=count, **more)

        each("sr::Place<Algebra>", len(weight))
        if self.undirected and not symmetric:
            each("sr::Place<Algebra>", len(weight), out=fields["back"], back=fields["out"])
        run = f"sr::Triangles<Algebra, {flags(symmetric)}>::run"
        kernel = self.here.kernel(entry("customize.cuh", params, run, _ALONE, text))
        same = params.pack(fields)[: -_LEVELS.size]  # hundreds of launches differ in little
        for blocks, threads, levels in self.launches:
            kernel.launch(blocks, threads, 0, same + levels)
        if look:
            each("sr::Around<Algebra>", len(x.head))
        return out, back, stored(plan, matrix, dtype), look and bool(int(improves[0]))


def _identity(plan: Plan, value: Any, dtype: np.dtype[Any]) -> Any:
    """zero or one in the type computed in."""
    if plan.codec == "mask":
        return dtype.type(-1 if value else 0)
    return dtype.type(computed(plan, value))
