"""Breadth-first searches from 64 or 512 sources at once, a bit each."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..graph_kernels import Arcs, Index, assert_arcs
from .codegen import compiled
from .kernels import bfs as kernels

__all__ = ["LANES", "HopSearches"]

Array = NDArray[Any]

LANES = 64 * kernels.WORDS  #: searches at once
_BYTE = 254  # the largest distance that a byte holds beside 255 for no path
_TURNED = 256  # rows of labels that are turned in the cache


class HopSearches:
    """Searches over lists of arcs: see :class:`semiring_mm.graph_kernels.HopSearches`."""

    LANES = LANES

    def __init__(self, n: int, out: Arcs, back: Arcs) -> None:
        assert_arcs(n, out, back)
        self.n, self.out, self.back = n, out, back

    @staticmethod
    def bytes(n: int, arcs: int, count: int, *, labels: bool) -> int:
        """What the searches of all threads take."""
        together = min(pool.get_num_threads(), -(-count // LANES))
        return together * n * (3 * LANES // 8 + 16 + (LANES if labels else 0))

    def statistics(self, sources: Index, radii: Index) -> dict[str, Array]:
        """Numbers of nodes at each distance from some sources, added up."""
        count = len(sources)
        found: dict[str, Array] = {
            name: np.zeros(count, np.int64) for name in ("reached", "total", "far")
        }
        found["inverse"] = np.zeros(count)
        found["within"] = np.zeros((len(radii), count), np.int64)
        tables: list[Array] = []

        def some(begin: int) -> None:
            part = slice(begin, min(begin + LANES, count))
            mine = self._search(sources[part], radii)
            tables.append(mine.pop("table"))
            for name, values in mine.items():
                found[name][..., part] = values[..., : part.stop - begin]

        self._each(some, count)
        found["table"] = sum(tables, np.zeros(self.n + 2, np.int64))
        return found

    def rows(
        self, sources: Index, dtype: Any, unreached: float, out: Array | None = None,
        done: Callable[[int], None] | None = None,
    ) -> Array:  # fmt: skip
        """Distances: as bytes first, which nearly all graphs get by with."""
        d = np.empty((len(sources), self.n), dtype) if out is None else out
        values = np.arange(_BYTE + 2).astype(d.dtype)
        values[-1] = unreached

        def some(begin: int) -> None:
            part = sources[begin : begin + LANES]
            labels = np.full((self.n, 64 * _words(len(part))), 255, np.uint8)
            if self._search(part, labels=labels)["far"].max() > _BYTE:
                labels = np.full(labels.shape, -1, np.int32)
                self._search(part, labels=labels)
            labels[part, np.arange(len(part))] = 0
            rows = d[begin : begin + LANES]
            for i in range(0, self.n, _TURNED):
                piece = labels[i : i + _TURNED, : len(part)].T
                if labels.itemsize == 1:
                    rows[:, i : i + _TURNED] = values[piece]
                else:
                    rows[:, i : i + _TURNED] = np.where(piece < 0, values[-1], piece)

        self._each(some, len(sources), done)
        return d

    def _each(
        self, work: Callable[[int], None], count: int, done: Callable[[int], None] | None = None
    ) -> None:
        """Call a function with the first source of each pass, on all threads."""
        pool.run(
            [functools.partial(work, i) for i in range(0, count, LANES)],
            None if done is None else (lambda k: done(min((k + 1) * LANES, count))),
        )

    def _search(
        self, sources: Index, radii: Index | None = None, *, labels: Array | None = None
    ) -> dict[str, Array]:
        """Results of :func:`.kernels.bfs.levels` for at most 512 sources.

        `labels`, n rows of 64 or 512 bytes or int32, receives distances, as bytes those of up to
        254.
        """
        n, count = self.n, len(sources)
        radii = np.empty(0, np.int64) if radii is None else radii
        words = _words(count)
        bits, shape = np.zeros(64 * words, np.uint8), (64, words)
        bits[:count] = 1
        found: dict[str, Array] = {
            "reached": np.zeros(shape, np.int64), "total": np.zeros(shape, np.int64),
            "far": np.zeros(shape, np.int64), "inverse": np.zeros(shape),
            "within": np.zeros((len(radii), *shape), np.int64),
        }  # fmt: skip
        table = np.zeros(n + 2, np.int64)
        kind = np.dtype(np.uint8) if labels is None else labels.dtype
        compiled(kernels.levels, kind.str[1:])(
            **found, table=table, label=labels, most=_BYTE if kind.itemsize == 1 else n,
            words=words, n=n, arcs=len(self.out[1]), sources=count, radii=len(radii), radius=radii,
            source=np.ascontiguousarray(sources), first=self.out[0], near=self.out[1],
            back_first=self.back[0], back_near=self.back[1], nodes=np.empty((2, n), np.int32),
            bits=np.zeros((3, n, words), np.uint64), counts=np.zeros(shape, np.int64),
            full=np.packbits(bits, bitorder="little").view(np.uint64),
        )  # fmt: skip
        by_source = {
            k: x.swapaxes(-1, -2).reshape(*x.shape[:-2], 64 * words) for k, x in found.items()
        }
        return by_source | {"table": table}


def _words(count: int) -> int:
    """Words of the bits of so many searches."""
    return 1 if count <= 64 else kernels.WORDS
