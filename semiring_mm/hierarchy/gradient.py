"""Loads of edges and nodes in all shortest paths: sweeps over a factor, and their reverse."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from .. import pool
from ..closures.edges import EdgeList
from ..graph_kernels import Index, PathCounts, ReverseSweeps
from ..graphs.kernels import gradient as kernels
from ..graphs.kernels.statistics import depths
from .collector import NO_PATH, Extent, LoadCollector, Wanted
from .demand import Demand
from .devices import place
from .metric import Arcs, Metric, factorize_weights
from .symbolic import Structure

__all__ = ["DeviceLoads", "SweepLoads", "whole_weights"]

Array = NDArray[Any]

_VECTORS = 4  # of labels: each weight that is loaded serves them all
_DIGITS = 12  # of decimals that are whole numbers of their last digit
_FEW = 1000  # weights that are looked at first
_EXACT = 1 << 53
_FIXED = 60  # bits of a distance in fixed point
_NOISE = 2.0**-40  # of the paths that end at a node: rounding of those that pass, which is 0
_BATCH = 1024  # sources at least of a call
_DEVICE_BATCH = 1 << 15  # sources of a device between two checkpoints
_LOOK = 1e8  # labels through edges until Ctrl-C is seen


def whole_weights(weight: Array, bound: float) -> tuple[NDArray[np.int64], int, int]:
    """Weights as whole numbers, so that equal lengths of paths are equal numbers.

    Whole numbers and hops are what they are. Decimals of up to 12 digits are whole numbers of their
    last digit. Others are in fixed point, with 60 bits for the largest distance: sums are then
    independent of the order of additions.

    Parameters
    ----------
    weight : (m,) array
        Finite.
    bound : float
        No distance is larger.

    Returns
    -------
    weight : (m,) int64
    most : int
        No distance is larger, in the same unit.
    slack : int
        By how much lengths may differ that count as equal: 0, or eight roundings of `bound` in the
        type of the weights, 2⁻⁵⁰ of it in float64.

    Raises
    ------
    OverflowError
        If distances may not fit 60 bits.
    """
    if weight.dtype.kind in "biu":
        if bound >= 1 << _FIXED:
            raise OverflowError(
                f"distances of up to {bound} do not fit the {_FIXED} bits in which shortest paths "
                f"are counted; give the weights in a larger unit, or as floating-point numbers"
            )
        return weight.astype(np.int64), _rounded_up(bound), 0
    real = weight.astype(np.float64)
    largest = max(bound, float(np.abs(real).max(initial=0)))
    for digits in range(_DIGITS + 1):
        scale = 10.0**digits
        if largest * scale < _EXACT and all(
            bool(((np.rint(x * scale) / scale).astype(weight.dtype) == x).all())
            for x in (real[:_FEW].astype(weight.dtype), weight)
        ):
            return np.rint(real * scale).astype(np.int64), _rounded_up(bound * scale), 0
    bound = min(bound, float(np.finfo(np.float64).max))
    power = _FIXED - math.frexp(bound)[1] if bound > 0 else 0
    far = float(NO_PATH["i8"])
    with np.errstate(over="ignore"):  # of weights that are in no shortest path
        fixed = np.clip(np.rint(np.ldexp(real, power)), -far, far)
    slack = 8 << _FIXED - 1 - np.finfo(weight.dtype).nmant
    return fixed.astype(np.int64), _rounded_up(math.ldexp(bound, power)), slack


def _rounded_up(bound: float) -> int:
    return int(bound * (1 + 1e-6)) + 1


def _width(dtype: np.dtype[Any]) -> int:
    """Sources of a block, by the type of distances."""
    return _VECTORS * engines.host_rows().lanes(dtype.itemsize)


class SweepLoads(LoadCollector):
    """Loads by reverse sweeps over a metric of min_plus without a core, on the host.

    Parameters
    ----------
    metric : Metric
    edges : EdgeList
        Those of which `metric` was made.
    demand, stress, single
        As for :class:`..graphs.dependencies.SearchLoads`.

    Raises
    ------
    ValueError
        If a cycle has length 0, unless one path carries all, or is lost in rounding.
    """

    def __init__(
        self, metric: Metric, edges: EdgeList, demand: Demand | None = None, *,
        stress: bool = False, single: bool = False,
    ) -> None:  # fmt: skip
        x = metric.structure
        assert not x.core, "the core is eliminated, too"
        self.structure, self.edges, self.stress, self.single = x, edges, stress, single
        self.demand = demand
        self.edge = np.flatnonzero(edges.weight != np.inf)  # those that there are
        bound = metric.bound[0]
        weight, most, slack = whole_weights(edges.weight[self.edge], bound)
        dtype = np.dtype(np.int32 if most < NO_PATH["i4"] else np.int64)
        super().__init__(Extent(most, False, False, dtype), Wanted(frozenset()))
        self.metric = self._customized(metric, weight, 0 if single else slack, exact=not slack)
        self.width = _width(dtype)
        self.batch = max(_BATCH, self.width * pool.get_num_threads())
        depth = np.empty(x.n, np.int32)
        engines.compiled(depths)(n=x.n, parent=x.parent, depth=depth)
        self.depth = int(depth.max(initial=-1)) + 1
        self.ancestors = min(x.n, self.width * self.depth)  # of the sources of a block
        self._fields |= {
            "eliminated": x.n, "depth": self.depth, "ancestors": self.ancestors,
            "width": self.width, "vectors": _VECTORS, "stress": stress, "parent": x.parent,
            "slot": depth[x.head], "depth_row": depth,
        }  # fmt: skip

    def _customized(self, metric: Metric, weight: Array, slack: int, *, exact: bool) -> Metric:
        """The metric in whole numbers, with numbers of shortest paths of the factor's edges.

        If one path carries all, these numbers are of the graph's own edges only: 0 or 1.
        """
        x, edges = self.structure, self.edges.kept(self.edges.weight != np.inf)
        far, size = NO_PATH[self.dtype.str[1:]], len(x.head)
        arcs = Arcs.of(x, edges.row, edges.col, undirected=not edges.directed)
        apart, weight = arcs.apart, np.minimum(weight[arcs.apart], far).astype(self.dtype)
        ends = [arcs.col[apart]] + [arcs.row[apart]] * arcs.undirected
        edge = self.edge[apart]
        slot = np.concatenate([arcs.slot ^ turned for turned in range(len(ends))])
        given = np.full(2 * size, far, self.dtype)
        np.minimum.at(given, slot, np.tile(weight, len(ends)))
        out = given[::2].copy()
        back = out if arcs.undirected else given[1::2].copy()
        metric = replace(metric, out=out, back=back)
        metric = metric.in_integers(self.dtype, negative=bool((weight < 0).any()))
        metric = replace(metric, steps=replace(metric.steps, look=False))  # it was looked at before
        factorize_weights(metric)
        self._check(metric, -1 if self.single else 2 * slack, exact=exact)
        # The graph's own edges that are shortest paths: one path, however many are parallel.
        final = np.stack([metric.out, metric.back], 1).ravel()
        tight = np.flatnonzero(np.tile(weight, len(ends)) <= final[slot] + slack)
        if self.single:
            tight = tight[np.unique(slot[tight], return_index=True)[1]]
        self.arc, self.end = np.tile(edge, len(ends))[tight], np.concatenate(ends)[tight]
        self.slot = slot[tight]
        self.once = np.unique(self.slot, return_index=True)[1]
        self.parallel = np.bincount(self.slot, minlength=2 * size)
        counts = (self.parallel.reshape(-1, 2).T > 0).astype(np.float64, order="C")
        powers = np.zeros((2, size))
        low_first, low_tail, low_edge = x.down
        self._fields: dict[str, Any] = {
            "slack": slack, "first": x.first, "head": x.head, "out": metric.out,
            "back": metric.back,
        }  # fmt: skip
        self._triangles: dict[str, Any] = {
            "n": x.n, "low_first": low_first, "low_tail": low_tail, "low_edge": low_edge,
            "place": np.empty(x.n, np.int64),
        }  # fmt: skip
        alone = {"back_count": None, "back_power": None} if arcs.undirected else {}
        self.counts = dict(zip(("out_count", "back_count"), counts, strict=True))
        self.powers = dict(zip(("out_power", "back_power"), powers, strict=True))
        if not self.single:
            metric.compiled(kernels.count_paths)(
                **self._fields | self._triangles | self.counts | self.powers | alone
            )
        if arcs.undirected:
            self.counts["back_count"] = self.counts["out_count"]
            self.powers["back_power"] = self.powers["out_power"]
        self.wide = any(bool(x.any()) for x in self.powers.values())
        return metric

    def _check(self, metric: Metric, most: int, *, exact: bool) -> None:
        """Raise ValueError if a cycle is no longer than `most`: all pass along an edge and back."""
        far = metric.identities[0]
        there = (metric.out < far) & (metric.back < far)
        around = metric.out.astype(np.int64) + metric.back
        for e in np.flatnonzero(there & (around <= most))[:1].tolist():
            x = self.structure
            tail = int(np.searchsorted(x.first, e, side="right")) - 1
            u, v = (self.edges.nodes[x.order[k]] for k in (tail, x.head[e]))
            why = "is 0" if exact else "is lost in rounding"
            raise ValueError(
                f"the length of the cycle through {u!r} and {v!r} {why}: there are no finite "
                f"numbers of shortest paths, which betweenness is made of; join these nodes, or "
                f"give their edges a length (flows with ties='one' take any)"
            )

    def bytes(self) -> int:
        """Memory of the passes of all threads."""
        return self.needed(self.structure, self.depth, self.dtype)

    @staticmethod
    def needed(x: Structure, depth: int, dtype: np.dtype[Any]) -> int:
        """The same, by the depth of the elimination tree."""
        width = _width(dtype)
        rows = (depth + min(x.n, width * depth)) * (dtype.itemsize + 24)
        return pool.get_num_threads() * (rows * width + 16 * len(x.head) + 16 * x.n)

    def empty(self, count: int) -> dict[str, Array]:
        x = self.structure
        sizes = {"out": len(x.head), "back": len(x.head), "ends": x.n, "lost": 1}
        return {name: np.zeros(size) for name, size in sizes.items()}

    def collect(self, device: int, sources: Index) -> dict[str, Array]:
        sources = sources[np.argsort(self.structure.rank[sources], kind="stable")]
        blocks = -(-len(sources) // self.width)
        parts = max(1, min(pool.get_num_threads(), blocks))
        cuts = itertools.pairwise(blocks * i // parts for i in range(parts + 1))
        sums = [self.empty(0) for _ in range(parts)]
        peaks = np.zeros((parts, self.width))
        pool.run([
            functools.partial(self._some, sources, *cut, mine, peak)
            for cut, mine, peak in zip(cuts, sums, peaks, strict=True)
        ])  # fmt: skip
        if not self.wide and not bool((peaks < kernels.RADIX).all()):
            self.wide = True
            return self.collect(device, sources)
        self.check_stress()
        return {name: np.sum([x[name] for x in sums], axis=0) for name in sums[0]}

    def check_stress(self) -> None:
        """Raise OverflowError where numbers of paths are added up that do not fit a float64."""
        if self.wide and self.stress:
            raise OverflowError(
                f"there are more than {kernels.RADIX:.0e} shortest paths between some nodes, which "
                f"stress adds up; betweenness counts them as shares"
            )

    def _some(
        self, sources: Index, begin: int, end: int, sums: dict[str, Array], peak: Array
    ) -> None:
        """Solves of some blocks and their reverse."""
        x, rows, width = self.structure, {"": self.depth, "up_": self.ancestors}, self.width
        fields: dict[str, Any] = {**self._fields, **self.counts, "peak": peak}
        fields |= {"ends": sums["ends"], "out_load": sums["out"], "back_load": sums["back"]}
        fields |= {"lost": sums["lost"]} | dict.fromkeys((*self.powers, "power", "up_power"))
        names = ["paths", "demand"]
        if self.wide:
            fields |= self.powers
            names += ["power"]
        if self.single:
            fields |= dict.fromkeys((*self.counts, "paths", "up_paths"))
            names = ["demand"]
        for up, count in rows.items():
            fields[f"{up}label"] = np.empty((count, width), self.dtype)
            fields |= {f"{up}{name}": np.empty((count, width)) for name in names}
        for name in ("walk", "met_row"):
            fields[name] = np.empty(self.depth, np.int32)
        fields |= {"visited": np.empty(self.ancestors, np.int32)}
        fields |= {name: np.empty(x.n, np.int32) for name in ("place", "chain")}
        kernel = self.metric.compiled(kernels.reverse_sweeps)
        demand = Demand.to(x.n) if self.demand is None else self.demand
        step = max(1, int(_LOOK / (width * (len(x.head) + x.n))))
        for some in range(begin, end, step):
            blocks = min(step, end - some)
            mine = sources[some * width : (some + blocks) * width]
            source = np.full((blocks, width + 1), x.n)
            source[:, :-1].flat[: len(mine)] = x.rank[mine]
            kernel(**fields, **demand.blocks(mine, width, x.rank), source=source, blocks=blocks)
            pool.look()

    def loads(self, results: dict[str, Array]) -> tuple[Array, Array]:
        loads = {"out_load": results["out"].copy(), "back_load": results["back"].copy()}
        self.metric.compiled(kernels.reverse_customization)(
            **{k: self._fields[k] for k in ("slack", "first", "head", "out", "back")},
            **self._triangles, **self.counts, **self.powers, **loads, single=self.single,
        )  # fmt: skip
        share = np.stack(
            [
                loads[f"{way}_load"] / np.maximum(self.counts[f"{way}_count"], 1)
                * (self.powers[f"{way}_power"] == 0)
                for way in ("out", "back")
            ], 1,
        ).ravel()  # fmt: skip
        flow = share[self.slot] / self.parallel[self.slot]
        edges = np.bincount(self.arc, flow, len(self.edges.col))
        ends = results["ends"][self.structure.rank]
        through = share[self.slot[self.once]]  # whole numbers stay whole
        nodes = np.bincount(self.end[self.once], through, self.structure.n) - ends
        nodes[nodes <= _NOISE * ends] = 0.0
        return nodes, edges


class DeviceLoads(SweepLoads):
    """The same by reverse sweeps on CUDA devices, which share the sources.

    Customization and its reverse, once for a graph, are the host's. The demand is the same for all
    sources; of the `indices` of devices -1 is the current one.
    """

    def __init__(
        self, metric: Metric, edges: EdgeList, demand: Demand | None = None, *,
        indices: Sequence[int], stress: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(metric, edges, demand, stress=stress)
        metric = self.metric
        self.seeded = demand
        seed = None if demand is None else demand.of_targets[metric.structure.order]
        self.placed, self.devices = place(metric, indices), len(indices)
        self.batch = _DEVICE_BATCH * self.devices
        engine, fields = self.placed.engine, self._fields
        assert engine.ReverseSweeps is not None
        counts = PathCounts(
            metric.structure, self.depth, metric.out, metric.back,
            (self.counts["out_count"], self.counts["back_count"]),
            (self.powers["out_power"], self.powers["back_power"]), fields["slack"],
        )  # fmt: skip
        self.reverse = list[ReverseSweeps]()
        for index, sweeps in self.placed.sweeps:
            with engine.on(index):
                self.reverse.append(engine.ReverseSweeps(sweeps, counts, seed, stress=stress))

    def bytes(self) -> int:
        return 8 * self.devices * (2 * len(self.structure.head) + 3 * self.structure.n)

    def collect(self, device: int, sources: Index) -> dict[str, Array]:
        assert self.demand is self.seeded, "devices have the demand from the beginning on"
        with self.placed.engine.on(self.placed.sweeps[device][0]):
            found = self.reverse[device].loads(sources, wide=self.wide)
        if found is None:
            self.wide = True
            return self.collect(device, sources)
        self.check_stress()
        return found
