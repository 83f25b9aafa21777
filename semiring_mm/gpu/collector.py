"""Statistics of distances by sweeps on one CUDA device or several, as the CPU collects them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..closures.steps import Steps, computed, path_plan, stored
from ..hierarchy.statistics import Extent, Wanted
from ..hierarchy.structure import Index
from ..hierarchy.sweeps import Metric
from ..plan import Facts
from . import device
from .hierarchy import DeviceMetric
from .memory import free_memory, on, to_host

__all__ = ["DeviceCollector", "Placed", "current_index", "fetch", "place", "whole_metric"]

Array = NDArray[Any]

_BATCH = 1 << 16  # sources of a device between two checkpoints
_SHARE = 0.3  # of free memory, for rows
_SHORT = 1 << 28  # distances that products in int32 hold


class Placed:
    """A metric on some devices.

    Attributes
    ----------
    extent : Extent, optional
        Of distances; None over other semirings than min_plus, and where weights are on a device.
    metrics : list of (int, DeviceMetric)
        The number of each device, -1 for the current one.
    """

    def __init__(self, extent: Extent | None, metrics: list[tuple[int, DeviceMetric]]) -> None:
        self.extent, self.metrics = extent, metrics


def place(metric: Metric, indices: Sequence[int], before: Placed | None = None) -> Placed:
    """Bring a metric to devices.

    Parameters
    ----------
    metric : Metric
    indices : sequence of int
        Devices; -1 is the current one.
    before : Placed, optional
        Another metric of the same structure on the same devices, whose layout is kept.
    """
    extent, bound = None, None
    if metric.steps.s.name == "min_plus" and isinstance(metric.out, np.ndarray):
        extent = Extent.of(metric)
        metric = whole_metric(metric, extent)
        bound = None if extent.negative else extent.bound
    found: list[tuple[int, DeviceMetric]] = []
    for i, index in enumerate(indices):
        with on(index):
            if before is not None:
                there = copy.copy(before.metrics[i][1])
                there.weigh(metric, bound=bound)
            else:
                like = found[0][1] if found else None
                there = DeviceMetric(metric, bound=bound, like=like)
        found.append((index, there))
    return Placed(extent, found)


def fetch(
    index: int, there: DeviceMetric, sources: Index, d: Array, *, targets: Index | None = None,
    p: NDArray[np.int32] | None = None, edges: tuple[Index, Index, Array] | None = None,
    restore: Callable[[Any], Any] | None = None,
) -> None:  # fmt: skip
    """Fill rows on the host with best paths from a device, as many at a time as it has room for.

    Parameters
    ----------
    sources, targets : array of int64
        Nodes.
    d, p : array
        A row for each source.
    edges : (row, col, weight), optional
        Of the graph, for `p`.
    restore : callable, optional
        From the type computed in to that of `d`, on the device.
    """
    if not d.size:
        return
    with on(index):
        xp, kind = there.here.xp, d.dtype if restore is None else there.metric.steps.dtype
        each = d.shape[1] * (kind.itemsize + d.itemsize + 4)
        room = len(d) if index < 0 else int(_SHARE * (free_memory() or 0)) // each
        lines = min(len(d), max(there.shape.width, room))
        for begin in range(0, len(d), lines):
            part = slice(begin, min(begin + lines, len(d)))
            values = xp.empty(d[part].shape, kind)
            parents = None if p is None else xp.empty(d[part].shape, np.int32)
            there.rows(sources[part], targets=targets, out=values, parents=parents, edges=edges)
            d[part] = to_host(values if restore is None else restore(values))
            if p is not None:
                p[part] = to_host(parents)


def whole_metric(metric: Metric, extent: Extent) -> Metric:
    """The metric in integers, as narrow as they may be, where all its distances are such."""
    if not extent.whole or extent.negative:
        return metric
    kind = np.dtype(np.int32 if extent.bound < _SHORT else np.int64)
    if metric.steps.dtype == kind:
        return metric
    reach = Facts(0, int(extent.bound), True)
    steps = Steps(
        metric.steps.s, kind, (reach, reach, reach), look=False, symmetric=metric.steps.symmetric
    )
    plan = path_plan(steps, metric.structure.n)
    far, none = metric.identities[0], computed(plan, steps.identities[0])
    limit = int(extent.bound)

    def converted(x: Array) -> Array:
        beyond = (x == far) | (x > limit)  # no best path has such an edge
        found = np.where(beyond, 0, x).astype(type_of(plan.compute))
        found[beyond] = none
        return found

    out = converted(metric.out)
    back = out if metric.back is metric.out else converted(metric.back)
    core = stored(plan, converted(computed(metric.plan, metric.core)), kind)
    return replace(metric, steps=steps, plan=plan, out=out, back=back, core=core)


def type_of(compute: str) -> str:
    """NumPy's name of a type that a plan computes in."""
    return f"{compute[0]}{int(compute[1:]) // 8}"


def current_index() -> int:
    """The number of the current device."""
    return device.current().index


class DeviceCollector:
    """Passes over sources, as :class:`semiring_mm.hierarchy.statistics.Collector`.

    Parameters
    ----------
    placed : Placed
        A metric of min_plus on the devices that share the sources.
    metric : Metric
        The same on the host.
    wanted : Wanted
    """

    def __init__(self, placed: Placed, metric: Metric, wanted: Wanted) -> None:
        self.placed, self.n = placed, metric.structure.n
        extent = Extent.of(metric) if placed.extent is None else placed.extent
        extent.check_sums(self.n)
        self.bound, self.tight = extent.bound, extent.tight
        self.negative, self.whole, self.dtype = extent.negative, extent.whole, extent.dtype
        self.want(wanted)

    def want(self, wanted: Wanted) -> None:
        """Collect something else from now on."""
        self.wanted = wanted

    @property
    def batch(self) -> int:
        """Sources of a call of :meth:`run` that keep all devices at work."""
        return _BATCH * len(self.placed.metrics)

    def bytes(self) -> int:
        """Memory of the host."""
        return 64 * self.batch

    def empty(self, count: int) -> dict[str, Array]:
        """Arrays of results for some sources."""
        number = np.dtype(np.int64 if self.whole else np.float64)
        return self.wanted.empty(count, number if self.whole else self.dtype, number)

    def run(self, sources: Index, at: Index, found: dict[str, Array]) -> None:
        """Fill entries `at` of results, and join to the histogram, from some sources."""
        wanted, metrics = self.wanted, self.placed.metrics

        def share(i: int, some: Index) -> dict[str, Array]:
            index, there = metrics[i]
            with on(index):
                return there.statistics(
                    sources[some], wanted.kinds, radii=wanted.radii, mass=wanted.mass,
                    edges=wanted.edges, bound=self.bound,
                )  # fmt: skip

        shares = np.array_split(np.arange(len(sources)), len(metrics))
        if len(metrics) == 1:
            results = [share(0, shares[0])]
        else:
            with ThreadPoolExecutor(len(metrics)) as pool:
                results = list(pool.map(share, range(len(metrics)), shares))
        for some, result in zip(shares, results, strict=True):
            for name, values in result.items():
                if name == "bins":
                    found[name] += values
                else:
                    found[name][at[some]] = values
