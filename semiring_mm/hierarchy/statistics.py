"""Statistics of distances by triangular solves from many sources, whose labels are not kept."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from .. import pool
from ..graph_kernels import Index
from ..graphs.kernels import statistics as kernels
from ..memory import scratch
from .collector import Collector, Wanted, zero_bin
from .metric import Block, Metric, solve

__all__ = ["SweepCollector"]

Array = NDArray[Any]


class SweepCollector(Collector):
    """Passes over sources of one metric of min_plus, by triangular solves on the host."""

    def __init__(self, metric: Metric, wanted: Wanted) -> None:
        x, extent = metric.structure, metric.extent
        extent.check_sums(x.n)
        if extent.whole:
            metric = metric.in_integers(extent.dtype, negative=extent.negative)
        self.metric, self.zero = metric, metric.identities[0]
        depth = np.empty(x.eliminated, np.int32)
        engines.compiled(kernels.depths)(n=x.eliminated, parent=x.parent, depth=depth)
        depth_row = depth + np.int32(x.core)
        row = np.concatenate([depth_row, np.arange(x.core, dtype=np.int32)])
        self.depth = int(depth.max(initial=-1)) + 1
        host = engines.host_rows()
        self.vectors, self.lanes = host.vectors(), host.lanes(extent.dtype.itemsize)
        self.width = self.vectors * self.lanes
        self.batch = max(1024, 4 * self.width * pool.get_num_threads())
        segment = kernels.SEGMENT
        if extent.whole:
            most = (1 << (8 * extent.dtype.itemsize - 1)) - 1
            segment = max(1, min(most // max(int(extent.bound), 1), 1 << 16))
        self._down = {
            "eliminated": x.eliminated, "core": x.core, "segment": segment, "slot": row[x.head],
            "depth_row": depth_row, "back": metric.back, "whole": extent.whole,
            "narrow": extent.dtype.itemsize == 4,
        }  # fmt: skip
        super().__init__(extent, wanted)

    def want(self, wanted: Wanted) -> None:
        """Collect something else from now on."""
        super().want(wanted)
        names = "radius mass real_mass edges scale"
        self.down = {**self._down, **dict.fromkeys(names.split()), "exact": False}
        self.down |= {"radii": 0, "bins": 0}
        self._histogram()
        self.half = bool(wanted.every and self.whole and self.rows and self.metric.symmetric)
        self.down["half"] = self.half
        self._radii()

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
            limits = np.clip(limits, -self.zero + 1, self.zero - 1).astype(self.dtype)
            last = math.floor(float(edges[-1])) + 1 if edges.dtype.kind == "f" else edges[-1] + 1
            limits[-1] = min(int(last), self.zero)
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
            ends = np.concatenate([[-self.zero], limits, [self.zero]])
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
            radii = np.floor(np.clip(radii.astype(np.float64), -self.zero, self.zero - 1))
        else:
            radii = np.minimum(radii, np.finfo(self.dtype).max)
        self.radii = len(radii)
        self.down |= {"radii": len(radii), "radius": radii.astype(self.dtype)}
        if self.wanted.mass is not None:
            mass = np.ascontiguousarray(self.wanted.mass[self.metric.structure.order])
            self.down["mass" if mass.dtype == np.int64 else "real_mass"] = mass

    def collect(self, device: int, sources: Index) -> dict[str, Array]:
        """Results of some sources, which are nodes by ascending positions."""
        position, results = self.metric.structure.rank[sources], self.empty(len(sources))
        tables = list[Array]()
        block = functools.partial(_Block, self, results, tables)
        solve(self.metric, position.astype(np.int64), self.width, block)
        for table in tables:
            results["bins"] += 2 * table if self.half else table
        edges = self.wanted.edges if self.half else None
        if edges is not None and (at_zero := zero_bin(edges)) is not None:
            results["bins"][at_zero] += len(sources)
        return results

    def bytes(self) -> int:
        """Memory of the passes of all threads."""
        return pool.get_num_threads() * sum(self.sizes())

    def sizes(self) -> list[int]:
        """Bytes of the arrays of a block."""
        x = self.metric.structure
        row = self.width * self.dtype.itemsize
        ancestors = min(x.eliminated, self.width * self.depth)
        return [
            (x.core + self.depth) * row, (x.core + ancestors) * row, 4 * x.n, 4 * ancestors,
            4 * self.rows * self.lanes,
        ]  # fmt: skip


class _Block(Block):
    """Labels on a stack, which are collected as they are computed; other lanes reach nothing."""

    def __init__(
        self, collector: SweepCollector, results: dict[str, Array], tables: list[Array],
        some: slice, position: Index,
    ) -> None:  # fmt: skip
        c, x = collector, collector.metric.structure
        label, up_label, place, visited, table = scratch(*c.sizes())
        label, up_label = (y.view(c.dtype).reshape(-1, c.width) for y in (label, up_label))
        self.place = place.view(np.int32)
        self.place[x.eliminated :] = np.arange(x.core)
        self.table = table.view(np.int32).reshape(c.rows, c.lanes)
        self.c, self.at, self.results, self.tables = c, some, results, tables
        super().__init__(
            c.metric, position, up_label, label, slice(0, x.core), others=x.n, vectors=c.vectors,
            visited=visited.view(np.int32),
        )  # fmt: skip

    def up(self, place: NDArray[np.int32] | None = None) -> None:
        super().up(self.place)

    def down(self) -> None:
        c, kinds, count, at, results = (
            self.c,
            self.c.wanted.kinds,
            self.count,
            self.at,
            self.results,
        )

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
        self.metric.compiled(kernels.collect)(
            label=self.label, up_label=self.up_label, table=table, **c.down, **acc, **self.fields
        )
        if "largest" in kinds:
            results["largest"][at] = acc["largest"][:count]
        if "count" in kinds:
            results["count"][at] = acc["counts"][:count]
        if "sum" in kinds:
            total = acc["total"] if c.whole else acc["real_total"] + acc["rest"]
            results["sum"][at] = total[:count]
        if "inverse" in kinds:
            results["inverse"][at] = (acc["inverse_total"] + acc["inverse_rest"])[:count]
        if "within" in kinds:
            results["within"][at] = acc["real_within" if real else "within"][:, :count].T
        if "bins" in kinds:
            self.tables.append(self.table[1:-1].sum(axis=1, dtype=np.int64))
