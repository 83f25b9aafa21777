"""Statistics of distances by triangular solves from many sources, whose labels are not kept."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from .. import pool
from ..graph_kernels import Index, Node, SymbolicFactor
from ..graphs.kernels import statistics as kernels
from ..memory import scratch
from .collector import Collector, Wanted, zero_bin
from .metric import Metric, solve

__all__ = ["SweepCollector", "stack"]

Array = NDArray[Any]


def stack(x: SymbolicFactor) -> tuple[Node, Node]:
    """The row of each position on a stack of labels, behind the core's, and that of each head."""
    depth = np.empty(x.eliminated, np.int32)
    engines.compiled(kernels.depths)(n=x.eliminated, parent=x.parent, depth=depth)
    depth += np.int32(x.core)
    return depth, np.concatenate([depth, np.arange(x.core, dtype=np.int32)])[x.head]


class SweepCollector(Collector):
    """Passes over sources of one metric of min_plus, by triangular solves on the host."""

    def __init__(self, metric: Metric, wanted: Wanted) -> None:
        x, extent = metric.structure, metric.extent
        extent.check_sums(x.n)
        if extent.whole:
            metric = metric.in_integers(extent.dtype, negative=extent.negative)
        self.metric, self.zero = metric, metric.identities[0]
        depth_row, slot = stack(x)
        self.depth = x.depth
        host = engines.host_rows()
        self.vectors, self.lanes = host.vectors(), host.lanes(extent.dtype.itemsize)
        self.width = self.vectors * self.lanes
        self.batch = max(1024, 4 * self.width * pool.get_num_threads())
        segment = kernels.SEGMENT
        if extent.whole:
            most = (1 << (8 * extent.dtype.itemsize - 1)) - 1
            segment = max(1, min(most // max(int(extent.bound), 1), 1 << 16))
        self._down = {
            "eliminated": x.eliminated, "core": x.core, "segment": segment, "slot": slot,
            "depth_row": depth_row, "out": metric.out, "back": metric.back, "parent": x.parent,
            "first": x.first, "head": x.head, "whole": extent.whole, "width": self.width,
            "vectors": self.vectors, "narrow": extent.dtype.itemsize == 4,
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
        shape, kinds = (-(-len(sources) // self.width), self.width), self.wanted.kinds
        real = self.down["real_mass"] is not None

        def zeros(there: bool, dtype: Any, *rows: int) -> Any:
            return np.zeros((shape[0], *rows, self.width), dtype) if there else None

        whole, floats = "sum" in kinds and self.whole, "sum" in kinds and not self.whole
        acc: dict[str, Any] = {
            "largest": zeros("largest" in kinds, self.dtype),
            "counts": zeros("count" in kinds, "i4"), "total": zeros(whole, "i8"),
            "within": zeros("within" in kinds and not real, "i8", self.radii),
            "real_within": zeros("within" in kinds and real, "f8", self.radii),
            "real_total": zeros(floats, "f8"), "rest": zeros(floats, "f8"),
            "inverse_total": zeros("inverse" in kinds, "f8"),
            "inverse_rest": zeros("inverse" in kinds, "f8"),
        }  # fmt: skip
        tables = list[Array]()
        some = functools.partial(self._some, acc, tables, len(sources))
        solve(self.metric, position.astype(np.int64), self.width, some)

        def of_sources(x: Array) -> Array:
            return np.moveaxis(x, -1, 1).reshape(-1, *x.shape[1:-1])[: len(sources)]

        if "largest" in kinds:
            results["largest"][:] = of_sources(acc["largest"])
        if "count" in kinds:
            results["count"][:] = of_sources(acc["counts"])
        if "sum" in kinds:
            total = acc["total"] if whole else acc["real_total"] + acc["rest"]
            results["sum"][:] = of_sources(total)
        if "inverse" in kinds:
            results["inverse"][:] = of_sources(acc["inverse_total"] + acc["inverse_rest"])
        if "within" in kinds:
            results["within"][:] = of_sources(acc["real_within" if real else "within"])
        for table in tables:
            results["bins"] += 2 * table if self.half else table
        edges = self.wanted.edges if self.half else None
        if edges is not None and (at_zero := zero_bin(edges)) is not None:
            results["bins"][at_zero] += len(sources)
        return results

    def _some(self, acc: dict[str, Any], tables: list[Array], sources: int, **blocks: Any) -> None:
        """Solves of some blocks; other lanes reach nothing."""
        x, (*labels, place, visited, table) = self.metric.structure, scratch(*self.sizes())
        label, up_label = (y.view(self.dtype).reshape(-1, self.width) for y in labels)
        rows = place.view(np.int32)
        rows[x.eliminated :] = np.arange(x.core)
        counted = table.view(np.int32).reshape(self.rows, self.lanes)
        counted[...] = 0
        sums = np.zeros(self.rows - 2, np.int64) if self.rows else None

        def zeros(name: str, dtype: Any) -> Any:
            return None if acc[name] is None else np.zeros(self.width, dtype)

        blocks.pop("core_pred")
        self.metric.compiled(kernels.collect)(
            label=label, up_label=up_label, place=rows, visited=visited.view(np.int32),
            table=counted if self.rows else None, sums=sums,
            binned=max(0, self.rows - 2),
            part=zeros("total", self.dtype), real_part=zeros("real_total", "f8"),
            inverse_part=zeros("inverse_total", "f8"), sources=sources, **self.down, **acc,
            **blocks,
        )  # fmt: skip
        if sums is not None:
            tables.append(sums)

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
