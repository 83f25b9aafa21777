"""Statistics of rows of distances, where a search finds them one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..hierarchy.statistics import Wanted
from .dijkstra import search

__all__ = ["RowCollector"]

Array = NDArray[Any]
Index = NDArray[np.int64]

_ROWS = 64


class RowCollector:
    """Passes over sources, as :class:`..hierarchy.statistics.Collector`.

    Parameters
    ----------
    n : int
    row, col, weight : (m,) arrays
        Edges in one direction each, of weights that are not negative, float64.
    wanted : Wanted
    """

    whole, negative, tight, batch = False, False, False, _ROWS

    def __init__(self, n: int, row: Index, col: Index, weight: Array, wanted: Wanted) -> None:
        self.n, self.graph, self.bound = n, (row, col, weight), np.inf
        self.want(wanted)

    def want(self, wanted: Wanted) -> None:
        """Collect something else from now on."""
        self.wanted = wanted

    def bytes(self) -> int:
        """Memory of the rows of one call."""
        return 6 * _ROWS * self.n * 8

    def empty(self, count: int) -> dict[str, Array]:
        """Arrays of results for some sources."""
        kinds, wanted = self.wanted.kinds, self.wanted
        found: dict[str, Array] = {
            x: np.zeros(count) for x in ("largest", "sum", "inverse") if x in kinds
        }
        if "count" in kinds:
            found["count"] = np.zeros(count, np.int64)
        if "within" in kinds:
            assert wanted.radii is not None
            dtype = np.dtype(np.int64) if wanted.mass is None else wanted.mass.dtype
            found["within"] = np.zeros((count, len(wanted.radii)), dtype)
        if "bins" in kinds:
            assert wanted.edges is not None
            found["bins"] = np.zeros(len(wanted.edges) - 1, np.int64)
        return found

    def run(self, sources: Index, at: Index, found: dict[str, Array]) -> None:
        """Fill entries `at` of results, and join to the histogram, from some sources."""
        kinds, wanted = self.wanted.kinds, self.wanted
        d = search(self.n, *self.graph, sources=sources, predecessors=False)[0]
        there = np.isfinite(d)
        finite = np.where(there, d, 0)
        if "largest" in kinds:
            found["largest"][at] = finite.max(axis=1, initial=0)
        if "count" in kinds:
            found["count"][at] = there.sum(axis=1)
        if "sum" in kinds:
            found["sum"][at] = finite.sum(axis=1)  # by pairs, as NumPy adds up what is contiguous
        if "inverse" in kinds:
            inverse = np.divide(1.0, finite, out=np.zeros_like(finite), where=finite > 0)
            found["inverse"][at] = inverse.sum(axis=1)
        if "within" in kinds:
            assert wanted.radii is not None
            for i, r in enumerate(wanted.radii):
                near = d <= r
                if wanted.mass is None:
                    found["within"][at, i] = near.sum(axis=1)
                else:
                    found["within"][at, i] = np.where(near, wanted.mass, 0).sum(axis=1)
        if "bins" in kinds:
            assert wanted.edges is not None
            found["bins"] += np.histogram(d[there], wanted.edges)[0]
