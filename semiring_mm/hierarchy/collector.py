"""What is collected of the distances from many sources: statistics without the distances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..graph_kernels import Index

if TYPE_CHECKING:
    from .demand import Demand
    from .metric import Metric

__all__ = ["NO_PATH", "Collector", "Extent", "LoadCollector", "Wanted", "zero_bin"]

Array = NDArray[Any]

#: What stands for no path in integers of a type.
NO_PATH = {"i4": (1 << 30) - 1, "i8": (1 << 62) - 1}


@dataclass(frozen=True)
class Wanted:
    """What to collect."""

    # of ``largest``, ``count``, ``sum``, ``inverse``, ``bins`` and ``within``
    kinds: frozenset[str]
    # (bins + 1,), of a histogram: ascending; the last bin has both of its edges
    edges: Array | None = None
    radii: Array | None = None  # (k,)
    # (n,) of int64 or float64: what is added up within a radius in place of the number of nodes
    mass: Array | None = None
    every: bool = False  # whether the sources are all nodes, each once


def zero_bin(edges: Array) -> int | None:
    """The bin of distance 0."""
    place = int(np.searchsorted(edges, 0, side="right")) - 1
    place -= place == len(edges) - 1 and edges[-1] == 0
    return place if 0 <= place < len(edges) - 1 else None


@dataclass(frozen=True)
class Extent:
    """How large the distances of a metric of min_plus are."""

    bound: float  # no distance is larger
    tight: bool  # whether it is at most twice the largest one
    negative: bool  # whether there are negative weights
    # the narrowest type for all distances and weights, of whole numbers where they are
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, metric: Metric) -> Extent:
        finite, (bound, tight), dtype = metric.finite(), metric.bound, metric.out.dtype
        negative, most = metric.negative, max(bound, metric.largest)
        small = not negative and most < NO_PATH["i4"]
        if dtype.kind == "f":
            exact = most < 2 ** np.finfo(dtype).nmant
            if small and exact and all(bool((w == np.trunc(w)).all()) for w in finite):
                dtype = np.dtype(np.int32)
        else:
            dtype = np.dtype(np.int32 if small or dtype.itemsize == 4 else np.int64)
        return cls(bound, tight, negative, dtype)

    @property
    def whole(self) -> bool:
        """Whether distances are whole numbers, so that sums are exact."""
        return self.dtype.kind == "i"

    def check_sums(self, n: int) -> None:
        """Raise OverflowError where the sum of n distances may not fit."""
        if self.whole and n * int(self.bound) >= 1 << 63:
            raise OverflowError(
                f"{n} distances of up to {self.bound} may add up to more than 64 bits hold; "
                f"give the weights as floating-point numbers"
            )


class Collector:
    """Passes over sources, whose statistics are collected.

    `bound`, `tight`, `negative`, `dtype` and `whole` are those of the :class:`Extent` of distances.
    """

    batch: int  # sources of a call of :meth:`run` that keep all threads, or devices, at work
    devices = 1  # that share the sources of a call

    def __init__(self, extent: Extent, wanted: Wanted) -> None:
        self.bound, self.tight = extent.bound, extent.tight
        self.negative, self.dtype, self.whole = extent.negative, extent.dtype, extent.whole
        self.want(wanted)

    def want(self, wanted: Wanted) -> None:
        """Collect something else from now on."""
        self.wanted = wanted

    def bytes(self) -> int:
        """Memory of the host that a call of :meth:`run` takes."""
        raise NotImplementedError

    def empty(self, count: int) -> dict[str, Array]:
        """Arrays of results for some sources."""
        wanted, number = self.wanted, np.dtype(np.int64 if self.whole else np.float64)
        types: dict[str, Any] = {
            "largest": number if self.whole else self.dtype, "sum": number, "count": np.int64,
            "inverse": np.float64,
        }  # fmt: skip
        results: dict[str, Array] = {
            name: np.zeros(count, kind) for name, kind in types.items() if name in wanted.kinds
        }
        if "within" in wanted.kinds:
            assert wanted.radii is not None
            mass = np.int64 if wanted.mass is None else wanted.mass.dtype
            results["within"] = np.zeros((count, len(wanted.radii)), mass)
        if "bins" in wanted.kinds:
            assert wanted.edges is not None
            results["bins"] = np.zeros(len(wanted.edges) - 1, np.int64)
        return results

    def run(self, sources: Index, at: Index, results: dict[str, Array]) -> None:
        """Fill entries `at` of results, and join to the histogram, from some sources."""
        for part, result in self.shares(sources):
            for name, values in result.items():
                if name == "bins":
                    results[name] += values
                else:
                    results[name][at[part]] = values

    def shares(self, sources: Index) -> list[tuple[Index, dict[str, Array]]]:
        """Which of some sources each device takes, and their results."""
        parts = np.array_split(np.arange(len(sources)), self.devices)
        if self.devices == 1:
            computed = [self.collect(0, sources)]
        else:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(self.devices) as threads:
                shares = [sources[part] for part in parts]
                computed = list(threads.map(self.collect, range(self.devices), shares))
        return list(zip(parts, computed, strict=True))

    def collect(self, device: int, sources: Index) -> dict[str, Array]:
        """Results of some sources, on one of the devices."""
        raise NotImplementedError


class LoadCollector(Collector):
    """Passes over sources, whose loads of nodes and edges are added up.

    Results of :meth:`empty` are sums over the sources so far, which :meth:`loads` turns into those
    of nodes and edges. ``lost`` among them is the demand without a path.
    """

    demand: Demand | None  # that of the next sources at least; None: 1 between all nodes

    def loads(self, results: dict[str, Array]) -> tuple[Array, Array]:
        """The loads of nodes, their own paths left out, and of edges, either way."""
        raise NotImplementedError

    def run(self, sources: Index, at: Index, results: dict[str, Array]) -> None:
        """Add what the shortest paths from some sources put on nodes and edges."""
        for _, result in self.shares(sources):
            for name, values in result.items():
                results[name] += values
