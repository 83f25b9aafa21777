"""Customization, sweeps and statistics on the devices of an engine, as the CPU has them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from ..closures.solve import Problem
from ..closures.steps import Steps, path_plan
from ..engine import Engine
from ..graph_kernels import FactorSweeps, Index
from ..plan import Facts, computed, stored
from .collector import Collector, Extent, Wanted
from .metric import Arcs, Metric, check_edges
from .symbolic import Structure

__all__ = [
    "DeviceCollector", "Placed", "device_customizer", "fetch", "host_metric", "place", "weighed",
    "whole_metric",
]  # fmt: skip

Array = NDArray[Any]

_BATCH = 1 << 16  # sources of a device between two checkpoints
_SHARE = 0.3  # of free memory, for rows
_SHORT = 1 << 28  # distances that products in int32 hold


def device_customizer(
    engine: Engine, structure: Structure, arcs: Arcs, **options: Any
) -> Callable[[Problem], Metric]:
    """:func:`.metric.customize` on an engine's current device, where the arrays stay.

    `options` are those of the engine's customizer.
    """
    assert engine.Customizer is not None
    customizer = engine.Customizer(structure, arcs.slot, undirected=arcs.undirected, **options)

    def run(problem: Problem) -> Metric:
        steps, plan = problem.steps, path_plan(problem.steps, structure.n)
        weight = engine.from_host(np.ascontiguousarray(arcs.weights(problem)))
        out, back, core, improves = customizer(steps.s, steps.dtype, plan, weight, look=steps.look)
        metric = Metric(structure, steps, plan, out, back, core)
        if improves:
            check_edges(host_metric(engine, metric))  # raises
        if structure.core:
            diagonal = engine.xp.arange(structure.core)
            core[diagonal, diagonal] = steps.identities[1]
            steps.close(engine, core, None, 0)
        return metric

    return run


def host_metric(engine: Engine, metric: Metric) -> Metric:
    """A metric in an engine's memory, in that of the host."""
    dtype = metric.plan.computed_in
    out = engine.to_host(metric.out).astype(dtype, copy=False)
    back = out
    if metric.back is not metric.out:
        back = engine.to_host(metric.back).astype(dtype, copy=False)
    return replace(metric, out=out, back=back, core=engine.to_host(metric.core))


def weighed(
    engine: Engine, sweeps: FactorSweeps, metric: Metric, bound: float | None = None
) -> FactorSweeps:
    """Give sweeps the weights of a metric, and close the core that they make of them."""
    core = sweeps.weigh(metric.factor, bound)
    if core is not None:  # no cycle improves, which customization has looked for
        replace(metric.steps, look=False).close(engine, core, None, 0)
    return sweeps


@dataclass(frozen=True)
class Placed:
    """A metric on some devices."""

    # of distances; None over other semirings than min_plus, and where weights are on a device
    extent: Extent | None
    engine: Engine
    sweeps: list[tuple[int, FactorSweeps]]  # the number of each device, -1 for the current one


def place(metric: Metric, indices: Sequence[int], before: Placed | None = None) -> Placed:
    """Bring a metric to CUDA devices.

    Parameters
    ----------
    metric : Metric
    indices : sequence of int
        Devices; -1 is the current one.
    before : Placed, optional
        Another metric of the same structure on the same devices, whose layout is kept.
    """
    extent, bound, engine = None, None, engines.named("cuda")
    assert engine.FactorSweeps is not None
    if metric.steps.s.name == "min_plus" and isinstance(metric.out, np.ndarray):
        extent = metric.extent
        metric = whole_metric(metric)
        bound = None if extent.negative else extent.bound
    placed: list[tuple[int, FactorSweeps]] = []
    for i, index in enumerate(indices):
        with engine.on(index):
            if before is not None:
                sweeps = copy.copy(before.sweeps[i][1])
            else:
                sweeps = engine.FactorSweeps(like=placed[0][1] if placed else None)
            placed.append((index, weighed(engine, sweeps, metric, bound)))
    return Placed(extent, engine, placed)


def fetch(
    placed: Placed, sources: Index, d: Array, *, targets: Index | None = None,
    p: NDArray[np.int32] | None = None, edges: tuple[Index, Index, Array] | None = None,
    restore: Callable[[Any], Any] | None = None,
) -> None:  # fmt: skip
    """Fill rows on the host with best paths from a device, as many at a time as it has room for.

    Parameters
    ----------
    placed : Placed
        The first of its devices takes all sources.
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
    engine, (index, sweeps) = placed.engine, placed.sweeps[0]
    with engine.on(index):
        xp, kind = engine.xp, d.dtype if restore is None else sweeps.factor.dtype
        each = d.shape[1] * (kind.itemsize + d.itemsize + 4)
        room = len(d) if index < 0 else int(_SHARE * (engine.free_memory() or 0)) // each
        lines = min(len(d), max(sweeps.width, room))
        for begin in range(0, len(d), lines):
            part = slice(begin, min(begin + lines, len(d)))
            values = xp.empty(d[part].shape, kind)
            parents = None if p is None else xp.empty(d[part].shape, np.int32)
            sweeps.rows(sources[part], targets=targets, out=values, parents=parents, edges=edges)
            d[part] = engine.to_host(values if restore is None else restore(values))
            if p is not None:
                p[part] = engine.to_host(parents)


def whole_metric(metric: Metric) -> Metric:
    """The metric in integers, as narrow as they may be, where all its distances are such."""
    extent = metric.extent
    if not extent.whole or extent.negative:
        return metric
    kind = np.dtype(np.int32 if extent.bound < _SHORT else np.int64)
    if metric.steps.dtype == kind:
        return metric
    limit = int(extent.bound)
    reach = Facts(0, limit, True)
    steps = Steps(
        metric.steps.s, kind, (reach, reach, reach), look=False, symmetric=metric.steps.symmetric
    )
    plan = path_plan(steps, metric.structure.n)
    zero = computed(plan, steps.identities[0])
    core = metric.converted(computed(metric.plan, metric.core), plan, zero, limit)
    narrow = metric.in_type(plan, zero, limit)  # no best path has a longer edge
    return replace(narrow, steps=steps, core=stored(plan, core, kind))


class DeviceCollector(Collector):
    """Passes over sources, which devices share, by sweeps over a metric of min_plus.

    It is `placed` there; `metric` is the same on the host.
    """

    def __init__(self, placed: Placed, metric: Metric, wanted: Wanted) -> None:
        extent = placed.extent or metric.extent
        extent.check_sums(metric.structure.n)
        self.placed, self.devices = placed, len(placed.sweeps)
        self.batch = _BATCH * self.devices
        super().__init__(extent, wanted)

    def bytes(self) -> int:
        return 64 * self.batch

    def collect(self, device: int, sources: Index) -> dict[str, Array]:
        wanted, (index, sweeps) = self.wanted, self.placed.sweeps[device]
        with self.placed.engine.on(index):
            return sweeps.statistics(
                sources, wanted.kinds, radii=wanted.radii, mass=wanted.mass, edges=wanted.edges,
                bound=self.bound,
            )  # fmt: skip
