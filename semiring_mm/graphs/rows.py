"""Statistics of rows of distances, where a search finds them one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..hierarchy.statistics import Wanted

__all__ = ["RowCollector"]

Array = NDArray[Any]
Index = NDArray[np.int64]

_ROWS = 64


class RowCollector:
    """Passes over sources, as :class:`..hierarchy.statistics.Collector`.

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

    bound, tight = np.inf, False

    def __init__(
        self, rows: Callable[[Index], Array], n: int, missing: Any, wanted: Wanted, *,
        negative: bool = False,
    ) -> None:  # fmt: skip
        self.rows, self.n, self.missing, self.negative = rows, n, missing, negative
        self.whole = np.asarray(missing).dtype.kind == "i"
        self.want(wanted)

    @property
    def batch(self) -> int:
        """Sources of a call of :meth:`run` that keep all threads at work."""
        return _ROWS * pool.get_num_threads()

    def want(self, wanted: Wanted) -> None:
        """Collect something else from now on."""
        self.wanted = wanted

    def bytes(self) -> int:
        """Memory of the rows of one call."""
        return 6 * self.batch * self.n * 8

    def empty(self, count: int) -> dict[str, Array]:
        """Arrays of results for some sources."""
        number = np.dtype(np.int64 if self.whole else np.float64)
        return self.wanted.empty(count, number, number)

    def run(self, sources: Index, at: Index, found: dict[str, Array]) -> None:
        """Fill entries `at` of results, and join to the histogram, from some sources."""
        kinds, wanted = self.wanted.kinds, self.wanted
        d = self.rows(sources)
        there = d != self.missing
        finite = np.where(there, d, 0).astype(found["sum"].dtype if "sum" in kinds else d.dtype)
        if self.whole and int(finite.max(initial=0)) * self.n >= 1 << 63:
            raise OverflowError(
                f"{self.n} distances of up to {finite.max()} may add up to more than 64 bits hold; "
                f"give the weights as floating-point numbers"
            )
        if "largest" in kinds:
            found["largest"][at] = finite.max(axis=1, initial=0)
        if "count" in kinds:
            found["count"][at] = there.sum(axis=1)
        if "sum" in kinds:
            found["sum"][at] = finite.sum(axis=1)  # by pairs, as NumPy adds up what is contiguous
        if "inverse" in kinds:
            inverse = np.divide(1.0, finite, out=np.zeros(finite.shape), where=finite > 0)
            found["inverse"][at] = inverse.sum(axis=1)
        if "within" in kinds:
            assert wanted.radii is not None
            for i, r in enumerate(wanted.radii):
                near = there & (finite <= r)
                if wanted.mass is None:
                    found["within"][at, i] = near.sum(axis=1)
                else:
                    found["within"][at, i] = np.where(near, wanted.mass, 0).sum(axis=1)
        if "bins" in kinds:
            assert wanted.edges is not None
            found["bins"] += np.histogram(d[there], wanted.edges)[0]
