"""Statistics of rows of distances, where a search finds them one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..hierarchy.collector import Collector, Extent, Wanted

__all__ = ["RowCollector"]

Array = NDArray[Any]
Index = NDArray[np.int64]

_ROWS = 64


class RowCollector(Collector):
    """Passes over sources by a search from each, whose rows are added up.

    Parameters
    ----------
    rows : callable
        The distances from some sources to n nodes, in the type of `missing`.
    n : int
    missing : scalar
        What stands for no path.
    wanted : Wanted
    negative : bool
        Whether there are negative weights.
    """

    def __init__(
        self, rows: Callable[[Index], Array], n: int, missing: Any, wanted: Wanted, *,
        negative: bool = False,
    ) -> None:  # fmt: skip
        self.rows, self.n, self.missing = rows, n, missing
        self.batch = _ROWS * pool.get_num_threads()
        kind = np.int64 if np.asarray(missing).dtype.kind == "i" else np.float64
        super().__init__(Extent(np.inf, False, negative, np.dtype(kind)), wanted)

    def bytes(self) -> int:
        """Memory of the rows of one call."""
        return 6 * self.batch * self.n * 8

    def collect(self, device: int, sources: Index) -> dict[str, Array]:
        kinds, wanted = self.wanted.kinds, self.wanted
        results, d = self.empty(len(sources)), self.rows(sources)
        there = d != self.missing
        finite = np.where(there, d, 0).astype(self.dtype if "sum" in kinds else d.dtype)
        if self.whole and int(finite.max(initial=0)) * self.n >= 1 << 63:
            raise OverflowError(
                f"{self.n} distances of up to {finite.max()} may add up to more than 64 bits hold; "
                f"give the weights as floating-point numbers"
            )
        if "largest" in kinds:
            results["largest"][:] = finite.max(axis=1, initial=0)
        if "count" in kinds:
            results["count"][:] = there.sum(axis=1)
        if "sum" in kinds:
            results["sum"][:] = finite.sum(axis=1)  # by pairs, as NumPy adds up what is contiguous
        if "inverse" in kinds:
            inverse = np.divide(1.0, finite, out=np.zeros(finite.shape), where=finite > 0)
            results["inverse"][:] = inverse.sum(axis=1)
        if "within" in kinds:
            assert wanted.radii is not None
            for i, r in enumerate(wanted.radii):
                mass = 1 if wanted.mass is None else wanted.mass
                results["within"][:, i] = np.where(there & (finite <= r), mass, 0).sum(axis=1)
        if "bins" in kinds:
            assert wanted.edges is not None
            results["bins"][:] = np.histogram(d[there], wanted.edges)[0]
        return results
