"""Sums, extrema and histograms of the distances from each of many sources, which are not kept."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from .. import pool
from ..engine import JOIN
from ..graph_kernels import Index
from ..graphs.kernels import sums as kernels
from ..kernel import Kernel
from ..memory import scratch
from .sweeps import Metric, is_symmetric, reversed_metric

__all__ = ["Collector", "Extent", "Wanted", "is_symmetric", "reversed_metric", "zero_bin"]

Array = NDArray[Any]


def far_of(dtype: np.dtype[Any]) -> float | int:
    """What stands for no path."""
    return {"i4": (1 << 30) - 1, "i8": (1 << 62) - 1}.get(dtype.str[1:], math.inf)


@dataclass(frozen=True)
class Wanted:
    """What to collect.

    Attributes
    ----------
    kinds : frozenset of str
        Of ``largest``, ``count``, ``sum``, ``inverse``, ``bins`` and ``within``.
    edges : (bins + 1,) array, optional
        Of a histogram: ascending; the last bin has both of its edges.
    radii : (k,) array, optional
    mass : (n,) array of int64 or float64, optional
        What is added up within a radius in place of the number of nodes.
    every : bool
        Whether the sources are all nodes, each once.
    """

    kinds: frozenset[str]
    edges: Array | None = None
    radii: Array | None = None
    mass: Array | None = None
    every: bool = False

    def empty(self, count: int, distance: np.dtype[Any], number: np.dtype[Any]) -> dict[str, Array]:
        """Arrays of results for some sources, with the types of distances and of their sums."""
        types: dict[str, Any] = {
            "largest": distance, "sum": number, "count": np.int64, "inverse": np.float64,
        }  # fmt: skip
        found: dict[str, Array] = {
            name: np.zeros(count, each) for name, each in types.items() if name in self.kinds
        }
        if "within" in self.kinds:
            assert self.radii is not None
            mass = np.int64 if self.mass is None else self.mass.dtype
            found["within"] = np.zeros((count, len(self.radii)), mass)
        if "bins" in self.kinds:
            assert self.edges is not None
            found["bins"] = np.zeros(len(self.edges) - 1, np.int64)
        return found


def zero_bin(edges: Array) -> int | None:
    """The bin of distance 0."""
    place = int(np.searchsorted(edges, 0, side="right")) - 1
    place -= place == len(edges) - 1 and edges[-1] == 0
    return place if 0 <= place < len(edges) - 1 else None


@dataclass(frozen=True)
class Extent:
    """How large the distances of a metric of min_plus are.

    Attributes
    ----------
    bound : int or float
        No distance is larger.
    tight : bool
        Whether it is at most twice the largest one.
    negative : bool
        Whether there are negative weights.
    dtype : dtype
        The narrowest type for all distances, of whole numbers where they are.
    """

    bound: float
    tight: bool
    negative: bool
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, metric: Metric) -> Extent:
        finite, largest = metric.finite(), metric.largest
        negative = any(bool((w < 0).any()) for w in finite)
        bound, tight = metric.bound
        return cls(bound, tight, negative, _label_type(metric, bound, largest, negative, finite))

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
    """Passes over sources of one metric of min_plus.

    Parameters
    ----------
    metric : Metric
    wanted : Wanted

    Attributes
    ----------
    bound, tight, negative, whole
        As of :class:`Extent`.
    """

    def __init__(self, metric: Metric, wanted: Wanted) -> None:
        x = metric.structure
        self.metric = metric
        far = metric.identities[0]
        extent = Extent.of(metric)
        extent.check_sums(x.n)
        self.bound, self.tight = extent.bound, extent.tight
        self.negative, self.dtype, self.whole = extent.negative, extent.dtype, extent.whole
        self.far = far_of(self.dtype)
        out, back = (self._labels(w, far) for w in (metric.out, metric.back))
        depth = np.empty(x.fringe, np.int32)
        engines.compiled(kernels.depths)(n=x.fringe, parent=x.parent, depth=depth)
        own = depth + np.int32(x.core)
        row = np.concatenate([own, np.arange(x.core, dtype=np.int32)])
        self.depth = int(depth.max(initial=-1)) + 1
        host = engines.host_rows()
        self.vectors, self.lanes = host.vectors(), host.lanes(self.dtype.itemsize)
        self.width = self.vectors * self.lanes
        segment = kernels.SEGMENT
        if self.whole:
            most = (1 << (8 * self.dtype.itemsize - 1)) - 1
            segment = max(1, min(most // max(int(self.bound), 1), 1 << 16))
        self.shared: dict[str, Any] = {
            "fringe": x.fringe, "first": x.first, "width": self.width, "vectors": self.vectors,
            "negative": self.negative and self.whole, "far": self.far,
        }  # fmt: skip
        self.up = {"parent": x.parent, "head": x.head, "out": out}
        self._down = {
            "core": x.core, "segment": segment, "slot": row[x.head], "own": own, "back": back,
            "whole": self.whole, "narrow": self.dtype.itemsize == 4,
        }  # fmt: skip
        self.want(wanted)

    def want(self, wanted: Wanted) -> None:
        """Collect something else from now on."""
        self.wanted, self.kinds = wanted, wanted.kinds
        names = "radius mass real_mass edges scale"
        self.down = {**self._down, **dict.fromkeys(names.split()), "exact": False}
        self.down |= {"radii": 0, "bins": 0}
        self._histogram()
        self.half = bool(wanted.every and self.whole and self.rows and is_symmetric(self.metric))
        self.down["half"] = self.half
        self._radii()

    def compiled(self, kernel: Kernel) -> Any:
        """A kernel for the type of labels."""
        return engines.compiled(kernel, self.dtype.str[1:])

    def _labels(self, w: Array, far: Any) -> Array:
        missing = w == far
        found = np.where(missing, 0, w).astype(self.dtype)
        found[missing] = self.far
        return found

    def _histogram(self) -> None:
        """The edges as labels are compared with them, and how a bin is guessed."""
        self.rows, edges = 0, self.wanted.edges
        if edges is None:
            return
        if self.whole and bool((edges == np.trunc(edges)).all()) and abs(edges).max() < 1 << 53:
            edges = edges.astype(np.int64)
        bins = len(edges) - 1
        gaps = np.diff(edges.astype(np.float64))
        if self.whole:
            limits = np.ceil(edges.astype(np.float64)) if edges.dtype.kind == "f" else edges
            limits = np.clip(limits, -self.far + 1, self.far - 1).astype(self.dtype)
            last = math.floor(float(edges[-1])) + 1 if edges.dtype.kind == "f" else edges[-1] + 1
            limits[-1] = min(int(last), self.far)
        else:
            limits = edges.astype(self.dtype)
            limits[-1] = np.nextafter(limits[-1], self.dtype.type(np.inf))
        even = bool(gaps.max() - gaps.min() <= 1e-3 * gaps.mean() / bins)
        self.rows = bins + 2
        if even:
            real = np.float32 if self.dtype.itemsize == 4 else np.float64
            width, start = gaps.mean(), float(edges[0])
            # Whole distances plus a half are so far from all edges that no rounding matters.
            most = 2.0 ** (21 if real == np.float32 else 50)
            exact = bool(
                self.whole and edges.dtype.kind == "i" and gaps.max() == gaps.min()
                and max(abs(start), abs(float(edges[-1]))) + width < most
            )  # fmt: skip
            ends = np.concatenate([[-self.far], limits, [self.far]])
            scale = np.array([width - start + 0.5 * exact, 1 / width, bins + 1], real)
            self.down |= {
                "edges": ends.astype(self.dtype), "bins": bins, "exact": exact,
                "scale": scale.astype(np.float64),
            }  # fmt: skip
            return
        size = 1 << (bins + 1).bit_length()
        top = np.iinfo(self.dtype).max if self.whole else np.inf
        self.down |= {
            "edges": np.concatenate([limits, np.full(size - 1 - len(limits), top, self.dtype)]),
            "bins": size,
        }

    def _radii(self) -> None:
        radii = self.wanted.radii
        self.radii = 0
        if radii is None:
            return
        if self.whole:
            radii = np.floor(np.clip(radii.astype(np.float64), -self.far, self.far - 1))
        else:
            radii = np.minimum(radii, np.finfo(self.dtype).max)
        self.radii = len(radii)
        self.down |= {"radii": len(radii), "radius": radii.astype(self.dtype)}
        if self.wanted.mass is not None:
            mass = np.ascontiguousarray(self.wanted.mass[self.metric.structure.node])
            self.down["mass" if mass.dtype == np.int64 else "real_mass"] = mass

    def empty(self, count: int) -> dict[str, Array]:
        """Arrays of results for some sources."""
        number = np.dtype(np.int64 if self.whole else np.float64)
        return self.wanted.empty(count, number if self.whole else self.dtype, number)

    @property
    def batch(self) -> int:
        """Sources of a call of :meth:`run` that keep all threads at work."""
        return max(1024, 4 * self.width * pool.get_num_threads())

    def run(self, sources: Index, at: Index, found: dict[str, Array]) -> None:
        """Fill entries `at` of results, and join to the histogram, from some sources.

        Sources are nodes by ascending positions.
        """
        metric, x = self.metric, self.metric.structure
        steps, position = metric.steps, x.position[sources].astype(np.int64)
        outside = int(np.searchsorted(position, x.fringe))
        core = np.full((len(sources), x.core), steps.identities[0], steps.dtype)
        tables: list[Array] = []

        def each(work: Callable[[_Chunk, slice], None], count: int) -> None:
            def task(begin: int) -> None:
                some = slice(begin, begin + self.width)
                work(_Chunk(self, position[some]), some)

            pool.run([functools.partial(task, i) for i in range(0, count, self.width)])

        def climb(chunk: _Chunk, some: slice) -> None:
            chunk.climb()
            chunk.give(core[some])

        def fall(chunk: _Chunk, some: slice) -> None:
            chunk.climb()
            chunk.take(core[some])
            chunk.fall(at[some], found, tables)

        if x.core:
            each(climb, outside)
            risen, inside = core[np.newaxis, :outside].copy(), position[outside:] - x.fringe
            engines.named("cpu").product(
                steps.s, risen, metric.core[np.newaxis], core[np.newaxis, :outside], JOIN,
                known=steps.known,
            )  # fmt: skip
            core[outside:] = metric.core[inside]
        each(fall, len(sources))
        for table in tables:
            found["bins"] += 2 * table if self.half else table
        own = zero_bin(self.wanted.edges) if self.half and self.wanted.edges is not None else None
        if own is not None:
            found["bins"][own] += len(sources)

    def bytes(self) -> int:
        """Memory of the passes of all threads."""
        return pool.get_num_threads() * sum(self._sizes())

    def _sizes(self) -> list[int]:
        x = self.metric.structure
        row = self.width * self.dtype.itemsize
        ancestors = min(x.fringe, self.width * self.depth)
        return [
            (x.core + self.depth) * row, (x.core + ancestors) * row, 4 * x.n, 4 * ancestors,
            4 * self.rows * self.lanes,
        ]  # fmt: skip


class _Chunk:
    """The labels of the sources of one chunk, in this thread's memory."""

    def __init__(self, collector: Collector, position: Index) -> None:
        c = self.c = collector
        x, width = c.metric.structure, c.width
        sizes = c._sizes()
        label, risen, place, visited, table = scratch(*sizes)
        self.label = label.view(c.dtype).reshape(-1, width)
        self.risen = risen.view(c.dtype).reshape(-1, width)
        self.risen[: x.core] = c.far
        place = place.view(np.int32)
        place[x.fringe :] = np.arange(x.core)
        self.count = len(position)
        self.table = table.view(np.int32).reshape(c.rows, c.lanes)
        source = np.concatenate([position, np.full(width + 1 - len(position), x.n)])
        self.place = place
        self.fields = c.shared | {
            "source": source, "visits": np.array([0, x.core], np.int64),
            "visited": visited.view(np.int32), "risen": self.risen,
        }  # fmt: skip

    def climb(self) -> None:
        self.c.compiled(kernels.climb)(place=self.place, **self.c.up, **self.fields)

    def give(self, core: Array) -> None:
        """Store the labels of the core, a row for each source."""
        labels = self.risen[: core.shape[1], : len(core)].T
        core[...] = labels
        core[labels == self.c.far] = self.c.metric.steps.identities[0]

    def take(self, core: Array) -> None:
        """Load the labels of the core; lanes without a source reach nothing."""
        c, some = self.c, self.label[: core.shape[1]]
        some[:, : len(core)] = c._labels(core, c.metric.steps.identities[0]).T
        some[:, len(core) :] = c.far

    def fall(self, at: Index, found: dict[str, Array], tables: list[Array]) -> None:
        c, kinds, count = self.c, self.c.wanted.kinds, self.count

        def zeros(there: bool, dtype: Any, *rows: int) -> Any:
            return np.zeros((*rows, c.width), dtype) if there else None

        real = c.down["real_mass"] is not None
        acc: dict[str, Any] = {
            "largest": zeros("largest" in kinds, c.dtype), "counts": zeros("count" in kinds, "i4"),
            "part": zeros("sum" in kinds and c.whole, c.dtype),
            "total": zeros("sum" in kinds and c.whole, "i8"),
            "within": zeros("within" in kinds and not real, "i8", c.radii),
            "real_within": zeros("within" in kinds and real, "f8", c.radii),
        }  # fmt: skip
        for name in ("real_part", "real_total", "rest"):
            acc[name] = zeros("sum" in kinds and not c.whole, "f8")
        for name in ("inverse_part", "inverse_total", "inverse_rest"):
            acc[name] = zeros("inverse" in kinds, "f8")
        self.table[...] = 0
        table = self.table if "bins" in kinds else None
        c.compiled(kernels.fall)(label=self.label, table=table, **c.down, **acc, **self.fields)
        if "largest" in kinds:
            found["largest"][at] = acc["largest"][:count]
        if "count" in kinds:
            found["count"][at] = acc["counts"][:count]
        if "sum" in kinds:
            total = acc["total"] if c.whole else acc["real_total"] + acc["rest"]
            found["sum"][at] = total[:count]
        if "inverse" in kinds:
            found["inverse"][at] = (acc["inverse_total"] + acc["inverse_rest"])[:count]
        if "within" in kinds:
            found["within"][at] = acc["real_within" if real else "within"][:, :count].T
        if "bins" in kinds:
            tables.append(self.table[1:-1].sum(axis=1, dtype=np.int64))


def _label_type(
    metric: Metric, bound: float, largest: float, negative: bool, finite: list[Array]
) -> np.dtype[Any]:
    """The narrowest type that holds all distances and weights, whole numbers where they are."""
    dtype, far = metric.out.dtype, far_of(np.dtype(np.int32))
    small = not negative and max(bound, largest) < far
    if dtype.kind == "f":
        exact = max(bound, largest) < 2 ** np.finfo(dtype).nmant
        whole = small and exact and all(bool((w == np.trunc(w)).all()) for w in finite)
        return np.dtype(np.int32) if whole else dtype
    return np.dtype(np.int32 if small or dtype.itemsize == 4 else np.int64)
