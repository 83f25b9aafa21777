"""Dependencies on nodes and edges on the device, where every edge counts 1."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graph_kernels import Arcs, Index, assert_arcs
from . import device
from .launch import entry, launch, struct_of
from .memory import from_host, to_host
from .views import address

__all__ = ["HopDependencies"]

Array = Any
Float = NDArray[np.float64]

_THREADS, _BLOCKS = 256, 4  # of a block, and blocks of a multiprocessor
_LIMIT = 256  # edges of a node above which all warps of a block look at them
_LANES = 64  # sources of a word
_WORDS, _MEMORY = 16, 1 << 31  # words of sources of a batch, at most, and bytes of its arrays
_LEVELS = 64  # at most, that are launched before any is looked at
_FIRST = 8  # of the first batch
_EVENTS = 1 << 32  # that 32 bits number


class HopDependencies:
    """See :class:`semiring_mm.graph_kernels.HopDependencies`; on the current device.

    A batch has 64 times `words` sources. A block takes the events of a node of more than `limit`
    edges, else a warp.
    """

    def __init__(
        self, n: int, out: Arcs, back: Arcs, *, words: int | None = None, limit: int = _LIMIT
    ) -> None:
        assert_arcs(n, out, back)
        self.here, self.n, self.arcs = device.current(), n, len(out[1])
        self.words = words or self._words(n, self.arcs)
        if _LANES * n * self.words >= _EVENTS:
            raise ValueError(
                f"betweenness on a device is of graphs of less than 2²⁶ nodes, got {n}: leave out "
                f"device"
            )
        first, back_first = (to_host(x[0]) for x in (out, back))
        many = np.maximum(np.diff(first), np.diff(back_first)) > limit
        self._many = from_host(many.astype(np.uint8))
        self._out = [from_host(to_host(x)) for x in out]
        self._back = self._out if back is out else [from_host(to_host(x)) for x in back]
        self._apart = _LANES * n * self.words
        self._levels = n + _LEVELS + 4
        xp, words = self.here.xp, self.words
        self._seen, self._masks = (xp.empty((k, n, words), np.uint64) for k in (1, 3))
        self._value = xp.empty((n, words, _LANES))
        events = self._apart + _LANES * words * int(many.sum())
        self._places, self._events = (xp.empty(events, x) for x in (np.uint32, np.uint64))
        self._bounds = xp.empty((2, self._levels), np.uint32)
        self._guess = _FIRST
        self._fields: dict[str, Any] = {
            "first": self._out[0], "near": self._out[1], "back": self._back[0],
            "before": self._back[1], "many": self._many, "seen": self._seen, "masks": self._masks,
            "value": self._value, "places": self._places, "events": self._events,
            "bounds": self._bounds, "arcs": self.arcs, "apart": self._apart, "n": n,
            "words": words, "levels": self._levels,
        }  # fmt: skip

    @staticmethod
    def _words(n: int, arcs: int) -> int:
        return int(np.clip(_MEMORY // max(1, _word_bytes(n, arcs)), 1, _WORDS))

    @classmethod
    def bytes(cls, n: int, arcs: int) -> int:
        """About how much memory of the device sums take."""
        return cls._words(n, arcs) * _word_bytes(n, arcs) + 24 * n + 8 * arcs

    def sums(
        self, sources: Index, demand: Float | None, most: float, *, edges: bool, stress: bool
    ) -> tuple[Float, Float | None, bool]:
        """See :meth:`semiring_mm.graph_kernels.HopDependencies.sums`."""
        xp, words = self.here.xp, self.words
        nodes = xp.zeros((words, self.n))
        arcs = xp.zeros((words, self.arcs)) if edges else None
        trouble = xp.zeros(1, np.uint32)
        there = from_host(sources.astype(np.int32))
        demands = None if demand is None else from_host(demand)
        fields = {
            "demand": demands, "node_load": nodes, "arc_load": arcs, "trouble": trouble,
            "most": most, "stress": int(stress),
        }  # fmt: skip
        for begin in range(0, len(sources) if self.arcs else 0, _LANES * words):
            columns = min(_LANES * words, len(sources) - begin)
            mine = {"sources": address(there) + 4 * begin, "columns": columns}
            last = self._meet(fields | mine)
            for level in range(last, -1 if edges else 0, -1):
                self._launch("PathShare", level, fields)
        carried = None if arcs is None else to_host(arcs.sum(axis=0))
        return to_host(nodes.sum(axis=0)), carried, bool(to_host(trouble)[0])

    def _meet(self, fields: dict[str, Any]) -> int:
        """Numbers of paths from the sources of a batch to all nodes; the last level."""
        for x in (self._seen, self._masks, self._bounds):
            x[...] = 0
        self._launch("PathStart", 0, fields, -(-fields["columns"] // _THREADS))
        begin, ahead = 0, self._guess
        while True:
            end = begin + ahead
            for level in range(begin, end):
                self._launch("PathCount", level, fields)
                self._launch("PathMeet", level, fields)
            sizes = np.diff(to_host(self._bounds[:, begin : end + 2])).sum(axis=0)
            over = np.flatnonzero(sizes == 0)
            if len(over):
                self._guess = min(begin + int(over[0]), _LEVELS)
                return begin + int(over[0]) - 1
            begin, ahead = end, min(2 * ahead, _LEVELS)

    def _launch(
        self, body: str, level: int, fields: dict[str, Any], blocks: int | None = None
    ) -> None:
        """Run a struct of ``kernels/dependencies.cuh`` with its arguments."""
        params = struct_of("PathParams")
        source = entry("dependencies.cuh", params, f"sr::{body}::run", f"{_THREADS}, {_BLOCKS}")
        launch(
            source, params, blocks or self.here.sms * _BLOCKS, _THREADS, 16 * _THREADS,
            self._fields | fields, level=level,
        )  # fmt: skip


def _word_bytes(n: int, arcs: int) -> int:
    """Bytes of a word of sources: values, events, masks and sums."""
    return n * (_LANES * (8 + 4 + 8) + 32 + 8) + 8 * arcs
