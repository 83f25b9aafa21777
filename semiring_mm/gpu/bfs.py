"""Breadth-first search from thousands of sources at once on the device, a bit each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..graph_kernels import assert_arcs
from . import device
from .launch import entry, launch, struct_of
from .memory import from_host, to_host
from .views import address, bits_of

__all__ = ["HopSearches", "Shape"]

Array = Any
Index = NDArray[np.int64]
Lists = tuple[Array, Array]

_LEVELS = 64  # whose counts there is room for
_FIRST = 8  # levels of the first batch that are launched before any is looked at
_CACHE = 50 << 20  # bytes of rows that stay in the cache of an H100
_BLOCKS = ((4, 2), (2, 4))  # words of a thread, and blocks of a multiprocessor
_COUNTED = 127  # nodes that a warp may count, and nodes of many edges that a block may
_LIST, _SUMS = 36, 13  # sr::HopLevel's LIST and SUMS
_ENTRIES = {"int32": "i32", "int64": "i64", "float32": "float", "float64": "double"}


class Shape(NamedTuple):
    """Blocks of the searches."""

    each: int = 2  # words of a thread: a warp searches from 1,024 times so many sources
    threads: int = 256  # of a block; a power of two
    blocks: int = 4  # of a multiprocessor; registers are divided among so many
    limit: int = 512  # edges of a node above which all warps of a block look at them

    @property
    def shared(self) -> int:
        """Bytes of shared memory of sr::HopLevel."""
        warps = self.threads // 32
        return 16 + 4 * warps * _LIST + 128 * self.each * max(warps, max(1, warps // 2) * _SUMS)

    @property
    def columns(self) -> int:
        """Sources at once."""
        return 1024 * self.each

    @classmethod
    def of(cls, n: int) -> Shape:
        """As many sources at once as the cache has the rows of."""
        each, blocks = next(((x, y) for x, y in _BLOCKS if 2 * n * 128 * x <= _CACHE), _BLOCKS[-1])
        return cls(each, blocks=blocks)


class HopSearches:
    """See :class:`semiring_mm.graph_kernels.HopSearches`; on the current device."""

    LANES = 1024 * max(each for each, _ in _BLOCKS)

    def __init__(self, n: int, out: Lists, back: Lists, *, shape: Shape | None = None) -> None:
        assert_arcs(n, out, back)
        self.here, self.n, self.shape = device.current(), n, shape or Shape.of(n)
        self.out = tuple(map(_there, out))
        self.back = self.out if back is out else tuple(map(_there, back))
        degrees = np.diff(to_host(back[0]))
        heavy = np.flatnonzero(degrees > self.shape.limit).astype(np.int32)
        self.heavy = from_host(heavy)
        warps = self.shape.threads // 32
        self.blocks = max(
            1, min(self.here.sms * self.shape.blocks, -(-n // warps)),
            -(-n // (warps * _COUNTED)), -(-len(heavy) // _COUNTED),
        )  # fmt: skip
        xp, words = self.here.xp, 32 * self.shape.each
        self._rows = xp.empty((2, n + 1, words), np.uint32)
        self._states = xp.empty((2, n + 1), np.uint8)
        self._counts = xp.empty((_LEVELS, 32 * words), np.uint32)
        self._alive = xp.empty(n + _LEVELS + 2, np.uint32)
        self._digits = xp.empty((0, n + 1, words), np.uint32)
        self._guess = _FIRST
        self._fields: dict[str, int] = {
            "first": address(self.out[0]), "near": address(self.out[1]),
            "back": address(self.back[0]), "before": address(self.back[1]),
            "heavy": address(self.heavy), "counts": address(self._counts),
            "alive": address(self._alive), "n": n, "words": words, "heavies": len(heavy),
            "limit": self.shape.limit,
        }  # fmt: skip

    @staticmethod
    def bytes(n: int, arcs: int, count: int = 1, *, labels: bool = False) -> int:
        """About how much memory of the device searches take."""
        return n * (2 * 128 * Shape.of(n).each + 24) + 8 * arcs

    def statistics(self, sources: Index, radii: Index) -> dict[str, NDArray[Any]]:
        """See :meth:`semiring_mm.graph_kernels.HopSearches.statistics`."""
        xp, room = self.here.xp, len(sources)
        results = xp.zeros((4, room), np.int64)
        within = xp.zeros((len(radii), room), np.int64)
        table = xp.zeros(self.n + _LEVELS + 2, np.uint64)
        there, radius = from_host(sources.astype(np.int32)), from_host(radii.astype(np.int64))
        fields = {
            "room": room,
            "table": address(table),
            "radius": address(radius),
            "radii": len(radii),
        }
        for begin in range(0, room, self.shape.columns):
            self._search(
                fields | {
                    "sources": address(there) + 4 * begin,
                    "columns": min(self.shape.columns, room - begin),
                    "results": address(results) + 8 * begin, "within": address(within) + 8 * begin,
                },
                digits=False,
            )  # fmt: skip
        reached, total, far, inverse = to_host(results)
        return {
            "reached": reached, "total": total, "far": far, "inverse": inverse.view(np.float64),
            "within": to_host(within), "table": to_host(table)[: self.n + 2].astype(np.int64),
        }  # fmt: skip

    def rows(
        self, sources: Index, dtype: Any, unreached: float, out: Array | None = None,
        done: Callable[[int], None] | None = None,
    ) -> Array:  # fmt: skip
        """Distances: see :meth:`semiring_mm.graph_kernels.HopSearches.rows`."""
        kind, xp = np.dtype(dtype), self.here.xp
        entry = _ENTRIES[kind.name]
        if out is None:
            out = xp.empty((len(sources), self.n), kind)
        aside = isinstance(out, np.ndarray) and xp is not np  # copied to the host, a batch a time
        there = from_host(sources.astype(np.int32))
        for begin in range(0, len(sources) if self.n else 0, self.shape.columns):
            columns = min(self.shape.columns, len(sources) - begin)
            some = slice(begin, begin + columns)
            part = xp.empty((columns, self.n), kind) if aside else out[some]
            fields = {"sources": address(there) + 4 * begin, "columns": columns}
            seen = self._search(fields, digits=True)
            warps = -(-self.n // 32) * -(-columns // 32)
            self._launch(
                f"HopRows<sr::{entry}>" if entry[0] == "i" else f"HopRows<{entry}>",
                -(-warps * 32 // self.shape.threads), 0,
                fields | {
                    "seen": address(seen), "digits": address(self._digits),
                    "places": len(self._digits), "pitch": part.strides[0] // part.itemsize,
                    "rows": address(part),
                    "unreached": bits_of(unreached, kind),
                },
            )  # fmt: skip
            if aside:
                out[some] = to_host(part)
            if done is not None:
                done(some.stop)
        return out

    def _search(self, fields: dict[str, int], *, digits: bool) -> Array:
        """All levels from some sources; the rows of bits at the end."""
        rows, states, alive = self._rows, self._states, self._alive
        for x in (rows, states, alive):
            x[...] = 0
        self._digits[...] = 0
        flag, begin, ahead = str(digits).lower(), 1, self._guess
        while True:
            end = begin + ahead
            if digits:
                self._have(end.bit_length())
            common = fields | {"digits": address(self._digits), "places": len(self._digits)}
            self._counts[...] = 0
            if begin == 1:
                warps = self.shape.threads // 32
                self._launch(
                    f"HopStart<{flag}>", -(-fields["columns"] // warps), 0,
                    common | {"next": address(rows[0]), "following": address(states[0])},
                )  # fmt: skip
            for level in range(max(begin, 2), end):
                now, then = level % 2, (level + 1) % 2
                self._launch(
                    f"HopLevel<{self.shape.each}, {flag}>", self.blocks, self.shape.shared,
                    common | {
                        "seen": address(rows[now]), "next": address(rows[then]),
                        "state": address(states[now]), "following": address(states[then]),
                        "level": level,
                        "counts": address(self._counts) + (level - begin) * self._counts.strides[0],
                    },
                )  # fmt: skip
            if "results" in fields:
                self._launch(
                    "HopSums", -(-self.shape.columns // self.shape.threads), 0,
                    common | {"level": begin, "levels": end - begin},
                )  # fmt: skip
            over = np.flatnonzero(to_host(alive[begin:end]) == 0)
            if len(over):
                self._guess = min(begin + int(over[0]), _LEVELS)
                return rows[0]
            begin, ahead = end, min(2 * ahead, _LEVELS)

    def _have(self, places: int) -> None:
        """Room for so many binary digits of distances; new ones are 0."""
        if len(self._digits) < places:
            xp, old = self.here.xp, self._digits
            self._digits = xp.zeros((places, *old.shape[1:]), np.uint32)
            self._digits[: len(old)] = old

    def _launch(self, body: str, blocks: int, shared: int, fields: dict[str, int]) -> None:
        """Run a struct of ``kernels/bfs.cuh`` with its arguments."""
        threads, params = self.shape.threads, struct_of("HopParams")
        bounds = f"{threads}, {self.shape.blocks}" if shared else str(threads)
        source = entry("bfs.cuh", params, f"sr::{body}::run", bounds)
        launch(source, params, blocks, threads, shared, self._fields | fields)


def _there(x: Array) -> Array:
    return from_host(x) if isinstance(x, np.ndarray) else x
