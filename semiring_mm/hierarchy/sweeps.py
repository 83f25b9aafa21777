"""Best paths over a customized elimination: weights of its edges, and sweeps from sources."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from .. import pool
from ..closures.edges import join_edges
from ..closures.paths import NO_PREDECESSOR
from ..closures.solve import Problem
from ..closures.sources import EdgeSource, WorsenedEdges, weights_of
from ..closures.steps import Improves, Steps, path_plan
from ..engine import JOIN
from ..expressions import evaluate
from ..graph_kernels import Factor, Index
from ..graphs.kernels import factor as kernels
from ..kernel import Kernel
from ..lazy import cached_property
from ..memory import scratch
from ..plan import Plan, computed, stored
from ..progress import Progress, Tick, reporter
from .structure import Structure

__all__ = [
    "Arcs", "Metric", "check_edges", "customize", "customize_arcs", "is_symmetric",
    "reversed_metric",
]  # fmt: skip

Array = Any  # NumPy's; of a metric that was computed on a device, the device's

_BATCH = 1024  # sources whose labels of the core are computed at once
_ROOTS = 8  # components whose widths are bounded by a sweep
_FEW = 64  # rows for which the bound of distances is not looked for
_FAR = (1 << 30) - 1  # no path, where labels are 32-bit integers


@dataclass(frozen=True)
class Metric:
    """Weights of a structure: those of its edges after the elimination, and the core's closure.

    They are on the host, or (:mod:`.devices`) on a device, and cannot be swept here.

    Attributes
    ----------
    structure : Structure
    steps : Steps
        The semiring's operations on blocks.
    plan : Plan
        Its operations on entries.
    out, back : (edges,) arrays of the type computed in
        Upward and downward.
    core : (core, core) array
        Best paths within the core and through the fringe.
    out_pred, back_pred, core_pred : arrays of int32, optional
        The node before the last of each.
    falls : (k,) int32, optional
        Positions of the fringe, descending, of which labels are wanted: these and their ancestors.
        None: all.
    written : Plan, optional
        How labels are stored in rows, if not as `plan` says.
    """

    structure: Structure
    steps: Steps
    plan: Plan
    out: Array
    back: Array
    core: Array
    out_pred: NDArray[np.int32] | None = None
    back_pred: NDArray[np.int32] | None = None
    core_pred: NDArray[np.int32] | None = None
    falls: NDArray[np.int32] | None = None
    written: Plan | None = None

    @property
    def trees(self) -> bool:
        """Whether there are predecessors."""
        return self.core_pred is not None

    @cached_property
    def identities(self) -> tuple[Any, Any]:
        """zero and one in the type computed in."""
        zero, one = self.steps.identities
        return computed(self.plan, zero), computed(self.plan, one)

    @property
    def factor(self) -> Factor:
        """What an engine sweeps: all but the predecessors."""
        steps = self.steps
        return Factor(
            self.structure, steps.s, steps.dtype, steps.known, self.plan, self.out, self.back,
            self.core,
        )  # fmt: skip

    def compiled(self, kernel: Kernel) -> Any:
        """A kernel for the type computed in."""
        return engines.compiled(kernel, self.plan, *self.identities)

    @cached_property
    def fall_order(self) -> NDArray[np.int32]:
        """Positions of the fringe, descending, of which labels are wanted."""
        if self.falls is not None:
            return self.falls
        return np.arange(self.structure.fringe - 1, -1, -1, dtype=np.int32)

    @cached_property
    def largest(self) -> Any:
        """The largest absolute value of a weight."""
        return max((abs(w).max().item() for w in self.finite() if w.size), default=0)

    def finite(self) -> list[Array]:
        """The weights that are edges, and those of the core."""
        far, core = self.identities[0], self.core
        arrays = [self.out] if self.back is self.out else [self.out, self.back]
        found = [w[w != far] for w in arrays]
        return [*found, core[core != self.steps.identities[0]]]

    @cached_property
    def bound(self) -> tuple[float, bool]:
        """A number that no distance over min_plus exceeds, and whether it is near the largest one.

        That is at most twice the largest distance from any one node.
        """
        return _bound(self)

    def above(self, sources: Index, targets: Index) -> Metric:
        """What sweeps between these positions need, which become its nodes."""
        x = self.structure
        kept = x.above(np.concatenate([sources, targets]))
        structure, edges = x.part(kept)
        out = self.out[edges]
        back = out if self.back is self.out else self.back[edges]
        ends = x.above(targets)
        falls = np.searchsorted(kept, ends[: len(ends) - x.core])[::-1].astype(np.int32)
        return replace(self, structure=structure, out=out, back=back, falls=falls)

    def whole(self, dtype: np.dtype[Any], rows: float) -> Metric | None:
        """The same with labels in 32-bit integers, which are written to rows of a type.

        None: distances are not whole, or not known to be below 2²⁹; or it does not pay to look
        for so few `rows`.
        """
        kinds = self.steps.s.add_kind, self.steps.s.mul_kind
        if self.out.dtype.itemsize <= 4 or kinds != ("min", "+") or self.trees:
            return None
        if ("_whole" not in self.__dict__ and rows < _FEW) or self._whole is None:
            return None
        plan = replace(
            self.plan, storage=self.steps.dtype.name, compute="i32", codec="sentinel", start=_FAR,
            missing=np.array(self.steps.identities[0], self.steps.dtype).item(), infinite=_FAR,
            keep_nan=False, annihilate=False, check=False, fma=False,
        )  # fmt: skip
        missing = np.array(self.steps.s.identities(dtype)[0], dtype).item()
        out, back = self._whole
        return replace(
            self, plan=plan, out=out, back=back,
            written=replace(plan, storage=dtype.name, missing=missing),
        )  # fmt: skip

    @cached_property
    def _whole(self) -> tuple[Array, Array] | None:
        """The weights as 32-bit integers, if these hold all distances."""
        if self.largest >= 1 << 29 or any(
            bool(((w < 0) | (w != np.trunc(w))).any()) for w in self.finite()
        ):
            return None
        if self.bound[0] >= 1 << 29:
            return None
        far, found = self.identities[0], []
        for w in (self.out,) if self.back is self.out else (self.out, self.back):
            there = w != far
            found.append(np.full(w.shape, _FAR, np.int32))
            found[-1][there] = w[there]
        return found[0], found[-1]

    def sweep(
        self, sources: Index, d: Array, p: NDArray[np.int32] | None,
        tick: Callable[[float], None] | None = None, *, targets: Index | None = None,
    ) -> None:  # fmt: skip
        """Fill a row of `d` (and of `p`, with trees), contiguous, for each source.

        Columns are all nodes, or the `targets`.
        """
        where = self.structure.position if targets is None else self.structure.position[targets]
        columns = where.astype(np.int64)
        order = np.argsort(self.structure.position[sources], kind="stable")
        batch = max(_BATCH, 4 * self.width * pool.get_num_threads())
        for begin in range(0, len(order), batch):
            self._batch(sources, order[begin : begin + batch], columns, d, p)
            if tick is not None:
                tick(float(min(begin + batch, len(order))) * self.structure.n)

    @property
    def width(self) -> int:
        """Sources of a chunk."""
        return kernels.VECTORS * engines.host_rows().lanes(self.out.dtype.itemsize)

    def _batch(
        self, sources: Index, rows: Index, columns: Index, d: Array, p: NDArray[np.int32] | None
    ) -> None:
        """Rows of sources by ascending positions."""
        x, steps = self.structure, self.steps
        position = x.position[sources[rows]].astype(np.int64)
        outside = int(np.searchsorted(position, x.fringe))
        core = np.full((len(rows), x.core), steps.identities[0], steps.dtype)
        pred = None if p is None else np.full(core.shape, NO_PREDECESSOR, np.int32)

        def each(work: Callable[[_Chunk, slice], None], count: int) -> None:
            def task(begin: int) -> None:
                some = slice(begin, begin + self.width)
                work(_Chunk(self, position[some]), some)

            pool.run([functools.partial(task, i) for i in range(0, count, self.width)])

        def rise(chunk: _Chunk, some: slice) -> None:
            chunk.rise()
            chunk.give(core[some], None if pred is None else pred[some])

        def fall(chunk: _Chunk, some: slice) -> None:
            chunk.rise()
            chunk.take(core[some], None if pred is None else pred[some])
            chunk.fall()
            chunk.write(rows[some], columns, d, p)

        if x.core:
            each(rise, outside)
            risen, inside = core[np.newaxis, :outside].copy(), position[outside:] - x.fringe
            engines.named("cpu").product(
                steps.s, risen, self.core[np.newaxis], core[np.newaxis, :outside], JOIN,
                known=steps.known, arg=None if pred is None else pred[np.newaxis, :outside],
                gather=self.core_pred,
            )  # fmt: skip
            core[outside:] = self.core[inside]
            if pred is not None and self.core_pred is not None:
                pred[outside:] = self.core_pred[inside]
        each(fall, len(rows))


class _Chunk:
    """The labels of the sources of one chunk, in this thread's memory."""

    def __init__(self, metric: Metric, position: Index) -> None:
        x, width, dtype = metric.structure, metric.width, metric.out.dtype
        self.metric = metric
        entries = x.n * width
        turned_bytes = engines.host_rows().turned_bytes(width, dtype.itemsize)
        sizes = (entries * dtype.itemsize, 4 * entries * metric.trees, 4 * x.fringe, turned_bytes)
        label, pred, visited, turned = scratch(*sizes)
        self.label = label.view(dtype).reshape(x.n, width)
        self.label[x.fringe :] = metric.identities[0]
        self.pred = pred.view(np.int32).reshape(-1, width)
        self.pred[x.fringe :] = NO_PREDECESSOR
        source = np.concatenate([position, np.repeat(position[-1:], width - len(position)), [x.n]])
        self.turned = turned
        self.fields = {
            "width": width, "source": source, "visited": visited.view(np.int32),
            "visits": np.zeros(1, np.int64), "first": x.first, "head": x.head, "label": self.label,
            "pred": self.pred if metric.trees else None,
        }  # fmt: skip

    def rise(self) -> None:
        x, metric = self.metric.structure, self.metric
        metric.compiled(kernels.rise)(
            fringe=x.fringe, parent=x.parent, out=metric.out, out_pred=metric.out_pred,
            **self.fields,
        )  # fmt: skip

    def fall(self) -> None:
        metric, order = self.metric, self.metric.fall_order
        metric.compiled(kernels.fall)(
            falls=len(order), order=order, back=metric.back, back_pred=metric.back_pred,
            **self.fields,
        )  # fmt: skip

    def give(self, core: Array, pred: NDArray[np.int32] | None) -> None:
        """Store the labels of the core, a row for each source."""
        some = slice(self.metric.structure.fringe, None), slice(0, len(core))
        core[...] = stored(self.metric.plan, self.label[some].T, core.dtype)
        if pred is not None:
            pred[...] = self.pred[some].T

    def take(self, core: Array, pred: NDArray[np.int32] | None) -> None:
        """Load the labels of the core; lanes that repeat the last source take those of it."""
        fringe = self.metric.structure.fringe
        lanes = np.minimum(np.arange(self.metric.width), len(core) - 1)
        self.label[fringe:] = computed(self.metric.plan, core)[lanes].T
        if pred is not None:
            self.pred[fringe:] = pred[lanes].T

    def write(self, rows: Index, columns: Index, d: Array, p: NDArray[np.int32] | None) -> None:
        """Write the labels of positions to the rows of the sources."""
        rows = np.concatenate([rows, np.repeat(rows[-1:], self.metric.width - len(rows))])
        plan, write = self.metric.written or self.metric.plan, engines.host_rows().write
        write(plan, self.label, columns, rows, d, self.turned)
        if p is not None:
            write(None, self.pred, columns, rows, p, self.turned)


def customize(structure: Structure, problem: Problem, *, trees: bool) -> Metric:
    """Give the edges of a structure the weights of a problem's graph.

    Raises
    ------
    Improves
        If a cycle improves itself.
    """
    source, steps, weights = problem.source, problem.steps, problem.weights
    row, col, _ = source.edges().arrays
    weight = weights.widen(weights_of(source, source.edges()))
    _check_loops(steps, row[row == col], weight[row == col])
    apart = row != col
    row, col, weight = row[apart], col[apart], weight[apart]
    slot = structure.slots(row, col)

    zero, plan = steps.identities[0], path_plan(steps, structure.n)

    def joined(size: int, at: Index, arcs: NDArray[np.bool_]) -> tuple[Array, Any]:
        entries = np.full((1, size), zero, steps.dtype)
        join_edges(source.s, entries, np.zeros_like(at), at, weight[arcs])
        if not trees:
            return entries[0], None
        pred = np.full(size, NO_PREDECESSOR, np.int32)
        pred[at] = row[arcs]
        return entries[0], pred

    edges = len(structure.head)
    up, down, inside = (slot >= 0) & (slot % 2 == 0), (slot >= 0) & (slot % 2 == 1), slot < 0
    out, out_pred = joined(edges, slot[up] // 2, up)
    back, back_pred = joined(edges, slot[down] // 2, down)
    core, core_pred = joined(structure.core**2, -1 - slot[inside], inside)
    square = (structure.core, structure.core)
    metric = Metric(
        structure, steps, plan, computed(plan, out), computed(plan, back), core.reshape(square),
        out_pred, back_pred, core_pred if core_pred is None else core_pred.reshape(square),
    )  # fmt: skip
    _contract(metric)
    return metric


@dataclass(frozen=True)
class Arcs:
    """Where the edges of a list go in a structure, found once for all weights.

    Attributes
    ----------
    row, col : (m,) int64
    undirected : bool
        Whether each stands for both directions.
    apart : (a,) int64 or slice
        The edges that are no loops.
    slot : (a,) int64
        As :meth:`Structure.slots`.
    """

    row: Index
    col: Index
    undirected: bool
    apart: Index | slice
    slot: Index

    @classmethod
    def of(cls, structure: Structure, row: Index, col: Index, *, undirected: bool) -> Arcs:
        loops = row == col
        apart = np.flatnonzero(~loops) if loops.any() else slice(None)
        return cls(row, col, undirected, apart, structure.slots(row[apart], col[apart]))

    def weights(self, problem: Problem) -> Array:
        """The weights without those of loops, in the type that labels are stored in.

        Raises
        ------
        Improves
            If a loop improves itself.
        """
        source = problem.source
        assert isinstance(source, EdgeSource | WorsenedEdges)
        weight = problem.weights.widen(weights_of(source, source.given))
        if isinstance(self.apart, slice):
            return weight
        loop = np.ones(len(weight), bool)
        loop[self.apart] = False
        _check_loops(problem.steps, self.row[loop], weight[loop])
        return weight[self.apart]


def customize_arcs(
    structure: Structure, problem: Problem, arcs: Arcs, progress: Progress = None
) -> Metric:
    """As :func:`customize`, without predecessors, for the edges of an :class:`EdgeSource`.

    Of an undirected graph whose ⊗ commutes ``back`` is ``out``.
    """
    source, steps, weight = problem.source, problem.steps, arcs.weights(problem)
    plan = path_plan(steps, structure.n)
    size, core = len(structure.head), structure.core
    infinite = computed(plan, steps.identities[0])
    out = np.full(size, infinite, plan.computed_in)
    symmetric = arcs.undirected and source.s.commutes
    back = out if symmetric else out.copy()
    matrix = np.full((core, core), steps.identities[0], steps.dtype)
    metric = Metric(structure, steps, plan, out, back, matrix)
    slot = arcs.slot
    if core:
        inside = slot < 0
        i, j = np.divmod(-1 - slot[inside], core)
        join_edges(source.s, matrix, i, j, weight[inside])
        if arcs.undirected:
            join_edges(source.s, matrix, j, i, weight[inside])
        slot, weight = slot[~inside], weight[~inside]
    weight = np.ascontiguousarray(weight)
    place = metric.compiled(kernels.place)
    place(m=len(slot), slot=slot, out=out, back=back, weight=weight)
    if arcs.undirected and not symmetric:
        place(m=len(slot), slot=slot, out=back, back=out, weight=weight)
    closing = float(core) ** 3 / (2 if steps.symmetric else 1)
    _contract(metric, reporter(progress, structure.pairs + closing, "weights"))
    return metric


def _contract(metric: Metric, tick: Tick | None = None) -> None:
    """Join the ways through lower neighbours to all edges, subtrees first; close the core."""
    x, steps = metric.structure, metric.steps

    def told(done: float, parts: Mapping[str, float] | None = None) -> None:
        if tick is not None:
            tick(float(done), parts)

    nodes, cuts = x.schedule
    fields = {
        "first": x.first, "head": x.head, "low_first": x.low_first, "low_tail": x.low_tail,
        "low_edge": x.low_edge, "out": metric.out, "out_pred": metric.out_pred,
    }  # fmt: skip

    def some(begin: int, end: int) -> None:
        metric.compiled(kernels.customize)(
            begin=begin, end=end, nodes=nodes, place=scratch(8 * x.n)[0].view(np.int64),
            back=None if metric.back is metric.out else metric.back, back_pred=metric.back_pred,
            **fields,
        )  # fmt: skip

    def some_of_core(begin: int, end: int) -> None:
        metric.compiled(kernels.join_core)(
            begin=begin, end=end, fringe=x.fringe, back=metric.back, matrix=metric.core,
            core_pred=metric.core_pred, **fields,
        )  # fmt: skip

    *parts, last = itertools.pairwise(cuts.tolist())
    each = x.pairs / (len(parts) + 1)
    pool.run([functools.partial(some, *part) for part in parts], lambda done: told(done * each))
    some(*last)
    told(x.pairs)
    if steps.look:
        check_edges(metric)
    if x.core:
        _in_parts(some_of_core, 0, x.core)
        own = np.arange(x.core)
        metric.core[own, own] = steps.identities[1]
        if metric.core_pred is not None:
            metric.core_pred[own, own] = NO_PREDECESSOR
        steps.close(
            engines.named("cpu"),
            metric.core,
            metric.core_pred,
            0,
            lambda done, parts=None: told(x.pairs + done, parts),
        )


def _in_parts(work: Callable[[int, int], None], begin: int, end: int) -> None:
    """A range in some parts on all threads."""
    parts = max(1, min(4 * pool.get_num_threads(), (end - begin) // 64))
    cuts = np.linspace(begin, end, parts + 1).astype(int).tolist()
    pool.run([functools.partial(work, *x) for x in itertools.pairwise(cuts)])


def _check_loops(steps: Steps, nodes: Index, weight: Array) -> None:
    one = steps.identities[1]
    better = evaluate(steps.s.add_expr, weight, weight.dtype.type(one)) != one
    if steps.look and better.any():
        raise Improves(int(nodes[better][0]), weight[better][0])


def check_edges(metric: Metric) -> None:
    """Raise Improves if the way up an edge and back is better than none."""
    x, s, (zero, one) = metric.structure, metric.steps.s, metric.identities
    there = (metric.out != zero) & (metric.back != zero)
    around = np.empty_like(metric.out[there])
    around[...] = evaluate(s.mul_expr, metric.out[there], metric.back[there])  # or a constant
    better = np.flatnonzero(evaluate(s.add_expr, around, around.dtype.type(one)) != one)
    if better.size:
        edge = int(np.flatnonzero(there)[better[0]])
        tail = int(np.searchsorted(x.first, edge, side="right")) - 1
        raise Improves(int(x.node[tail]), around[better[0]])


def reversed_metric(metric: Metric) -> Metric:
    """The metric of the graph whose edges lead the other way."""
    return replace(
        metric, out=metric.back, back=metric.out, core=np.ascontiguousarray(metric.core.T),
        out_pred=None, back_pred=None, core_pred=None,
    )  # fmt: skip


def _bound(metric: Metric) -> tuple[float, bool]:
    largest = metric.largest
    x, far = metric.structure, metric.steps.identities[0]
    plain = largest * max(x.n - 1, 0)
    if x.n < 2:
        return plain, True
    back = reversed_metric(metric)
    symmetric = is_symmetric(metric)
    row = np.empty((1, x.n), metric.steps.dtype)
    left, bound = np.ones(x.n, bool), 0.0
    for _ in range(_ROOTS):
        rest = np.flatnonzero(left[x.node])
        if len(rest) == 0 or largest * (len(rest) - 1) <= bound:
            break
        root = x.node[rest[-1:]].astype(np.int64)
        metric.sweep(root, row, None)
        there = row[0] != far
        wide = row[0][there].max().item()
        if symmetric:
            wide *= 2
        else:
            back.sweep(root, row, None)
            if not (there.all() and (row[0] != far).all()):
                return plain, False
            wide += row[0].max().item()
        bound = max(bound, wide)
        left &= ~there
    else:
        return max(bound, largest * int(left.sum())), False
    if metric.out.dtype.kind == "f":
        bound *= 1 + 1e-6  # roundings
    return bound, True


def is_symmetric(metric: Metric) -> bool:
    """Whether distances are the same both ways."""
    same = metric.back is metric.out or np.array_equal(metric.out, metric.back)
    return same and np.array_equal(metric.core, metric.core.T)
