"""Weights of a sparse elimination, their customization, and triangular solves from many sources."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from .. import pool
from ..closures.edges import join_edges
from ..closures.paths import NO_PREDECESSOR
from ..closures.solve import Problem
from ..closures.sources import EdgeSource, weights_of
from ..closures.steps import Improves, Steps, path_plan
from ..engine import JOIN
from ..expressions import evaluate
from ..graph_kernels import Factor, Index
from ..graphs.kernels import factor as kernels
from ..graphs.kernels import queries
from ..kernel import Kernel
from ..lazy import cached_property
from ..memory import scratch
from ..plan import Plan, computed, stored
from ..progress import Progress, Tick, part_of, reporter
from .collector import NO_PATH, Extent
from .symbolic import Structure

__all__ = [
    "Arcs", "Metric", "check_edges", "customize", "customize_along", "factorize_weights", "solve",
]  # fmt: skip

Array = Any  # NumPy's; of a metric that was computed on a device, the device's

_BATCH = 1024  # sources at least whose labels of the core are computed at once
_ENTRIES = 1 << 22  # labels of the core that may be
_LEAST, _MOST = 1e6, 1e8  # labels through edges in a task: 0.2 ms, and 20 ms until Ctrl-C is seen
_ROOTS = 8  # components whose diameters are bounded by a sweep
_HALF = 4  # sources of a block that takes half of the time
_CLIMBS = 32  # nodes of a table that a task takes at least
_FEW = 64  # rows for which the bound of distances is not computed


@dataclass(frozen=True)
class Metric:
    """Weights of a structure: those of its edges after the elimination, and the core's closure.

    They are on the host, or (:mod:`.devices`) on a device, and cannot be swept here.
    """

    structure: Structure
    steps: Steps  # the semiring's operations on blocks
    plan: Plan  # its operations on entries
    out: Array  # (edges,) in the type computed in: upward
    back: Array  # the same downward
    core: Array  # (core, core): best paths within the core and through the other positions
    out_pred: NDArray[np.int32] | None = None  # the node before the last of each
    back_pred: NDArray[np.int32] | None = None
    core_pred: NDArray[np.int32] | None = None
    # (k,): eliminated positions, descending, of which labels are wanted, these and their ancestors;
    # None: all
    targets: NDArray[np.int32] | None = None
    written: Plan | None = None  # how labels are stored in rows, if not as `plan` says
    # (edges,): sums of a second quantity, without a core: the least of those with an edge's weight
    out_along: NDArray[np.float64] | None = None
    back_along: NDArray[np.float64] | None = None

    @cached_property
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
    def largest(self) -> Any:
        """The largest absolute value of a weight."""
        return max((abs(w).max().item() for w in self.finite() if w.size), default=0)

    def finite(self) -> list[Array]:
        """The weights that are edges, and those of the core."""
        zero, core = self.identities[0], self.core
        arrays = [self.out] if self.back is self.out else [self.out, self.back]
        return [*(w[w != zero] for w in arrays), core[core != self.steps.identities[0]]]

    @cached_property
    def symmetric(self) -> bool:
        """Whether distances are the same both ways."""
        same = self.back is self.out or np.array_equal(self.out, self.back)
        return same and np.array_equal(self.core, self.core.T)

    @cached_property
    def whole(self) -> bool:
        """Whether all weights are whole numbers."""
        for w in (self.out, self.back, self.core):  # of most graphs the first one tells
            if not np.logical_and.reduce(w == np.trunc(w), None):
                return False
        return True

    @cached_property
    def negative(self) -> bool:
        """Whether there are negative weights."""
        return any(bool((w < 0).any()) for w in self.finite())

    @property
    def reversed(self) -> Metric:
        """The metric of the graph whose edges lead the other way."""
        alike = self.back is self.out and not self.structure.core and not self.trees
        return self if alike else self._reversed

    @cached_property
    def _reversed(self) -> Metric:
        return replace(
            self, out=self.back, back=self.out, core=np.ascontiguousarray(self.core.T),
            out_pred=None, back_pred=None, core_pred=None, out_along=self.back_along,
            back_along=self.out_along,
        )  # fmt: skip

    def restricted(self, sources: Index, targets: Index) -> Metric:
        """What solves between these positions need, which become its nodes."""
        x = self.structure
        kept = x.ancestors(np.concatenate([sources, targets]))
        structure, edges = x.restricted(kept)
        out = self.out[edges]
        back = out if self.back is self.out else self.back[edges]
        wanted = np.searchsorted(kept, self._wanted(targets)).astype(np.int32)
        along = self.out_along, self.back_along
        if along[0] is not None and along[1] is not None:
            one = along[0][edges]
            along = one, one if along[1] is along[0] else along[1][edges]
        return replace(
            self, structure=structure, out=out, back=back, targets=wanted, out_along=along[0],
            back_along=along[1],
        )  # fmt: skip

    def _wanted(self, targets: Index) -> NDArray[np.int32]:
        """The eliminated positions, descending, whose labels those of `targets` follow from."""
        ends = self.structure.ancestors(targets)
        return ends[: len(ends) - self.structure.core][::-1].astype(np.int32)

    # --- types of labels ------------------------------------------------------------------------

    @cached_property
    def bound(self) -> tuple[float, bool]:
        """A number that no distance over min_plus exceeds, and whether it is near the largest one.

        That is at most twice the largest distance from any one node.
        """
        largest, x, zero = self.largest, self.structure, self.steps.identities[0]
        plain = largest * max(x.n - 1, 0)
        if x.n < 2:
            return plain, True
        row = np.empty((1, x.n), self.steps.dtype)
        left, bound, back = np.ones(x.n, bool), 0.0, None if self.symmetric else self.reversed
        for _ in range(_ROOTS):
            rest = np.flatnonzero(left[x.order])
            if len(rest) == 0 or largest * (len(rest) - 1) <= bound:
                break
            root = x.order[rest[-1:]].astype(np.int64)
            self.sweep(root, row, None)
            there = row[0] != zero
            diameter = row[0][there].max().item()
            if back is None:
                diameter *= 2
            else:
                back.sweep(root, row, None)
                if not (there.all() and (row[0] != zero).all()):
                    return plain, False
                diameter += row[0].max().item()
            bound = max(bound, diameter)
            left &= ~there
        else:
            return max(bound, largest * int(left.sum())), False
        if self.out.dtype.kind == "f":
            bound *= 1 + 1e-6  # roundings
        return bound, True

    @cached_property
    def extent(self) -> Extent:
        """How large distances over min_plus are."""
        return Extent.of(self)

    def converted(self, x: Array, plan: Plan, zero: Any, most: float | None = None) -> Array:
        """Weights in the type that another plan computes in.

        No edge, and weights above `most`, become `zero`.
        """
        missing = x == self.identities[0]
        if most is not None:
            missing |= x > most
        values = np.where(missing, 0, x).astype(plan.computed_in)
        values[missing] = zero
        return values

    def in_type(self, plan: Plan, zero: Any, most: float | None = None) -> Metric:
        """The same with all weights but those of the core :meth:`converted`."""
        out = self.converted(self.out, plan, zero, most)
        back = out if self.back is self.out else self.converted(self.back, plan, zero, most)
        return replace(self, plan=plan, out=out, back=back)

    def in_integers(
        self, dtype: np.dtype[Any], *, negative: bool = False, most: float | None = None
    ) -> Metric:
        """The same over min_plus with labels that are whole numbers of a type."""
        far, zero = NO_PATH[dtype.str[1:]], np.array(self.steps.identities[0], self.steps.dtype)
        plan = replace(
            self.plan, storage=zero.dtype.name, compute=f"i{8 * dtype.itemsize}", codec="sentinel",
            start=far, missing=zero.item(), infinite=far, keep_nan=False, annihilate=negative,
            check=False, fma=False,
        )  # fmt: skip
        return self.in_type(plan, far, most)

    def narrowed(self, dtype: np.dtype[Any], rows: float) -> Metric | None:
        """The same with labels in 32-bit integers, which are written to rows of a type.

        None: distances are not whole, or not known to be below 2²⁹; or it does not pay to look
        for so few `rows`.
        """
        kinds = self.steps.s.add_kind, self.steps.s.mul_kind
        if self.out.dtype.itemsize <= 4 or kinds != ("min", "+") or self.trees:
            return None
        if rows <= 1 or ("_narrow" not in self.__dict__ and rows < _FEW) or self._narrow is None:
            return None  # of one source numbers in floating point are faster: no branches
        plan, missing = self._narrow.plan, np.array(self.steps.s.identities(dtype)[0], dtype).item()
        return replace(self._narrow, written=replace(plan, storage=dtype.name, missing=missing))

    @cached_property
    def _narrow(self) -> Metric | None:
        """The same in 32-bit integers, if these hold all distances."""
        if not self.whole or self.largest >= 1 << 29 or self.negative or self.bound[0] >= 1 << 29:
            return None
        return self.in_integers(np.dtype(np.int32))

    # --- rows of distances ----------------------------------------------------------------------

    @cached_property
    def width(self) -> int:
        """Sources of a block, if there are many."""
        return kernels.VECTORS * self._lanes

    @cached_property
    def _lanes(self) -> int:
        return engines.host_rows().lanes(self.out.dtype.itemsize)

    def _width(self, count: int) -> int:
        """Sources of a block, of so many: one label takes a quarter of the time of a block."""
        each = -(-count // pool.get_num_threads())
        return 1 if each <= 1 else min(_HALF, self.width) if each <= _HALF else self.width

    def sweep(
        self, sources: Index, d: Array, p: Array | None,
        tick: Callable[[float], None] | None = None, *,
        targets: Index | None = None,
    ) -> None:  # fmt: skip
        """Fill a row of `d` (and of `p`), contiguous, for each source.

        Of `p` with predecessors, if there are trees, or with sums of the second quantity. Columns
        are all nodes, or the `targets`. `tick` is told the fraction done.
        """
        x, width = self.structure, self._width(len(sources))
        columns, kind = x.rank if targets is None else x.rank[targets], self.out.dtype
        wanted = self.targets
        if targets is not None and wanted is None:
            wanted = self._wanted(columns.astype(np.int64))
        kernel = engines.compiled(kernels.sweep, self.written or self.plan, *self.identities)
        entries, turned, trees = x.n * width, width * kernels.COLUMNS, self.trees
        vector = min(width, self._lanes) * kind.itemsize  # bytes
        sums, p = (None, p) if self.out_along is None else (p, None)
        summed = 8 * (sums is not None)
        fields: dict[str, Any] = {
            "eliminated": x.eliminated, "core": x.core, "width": width, "columns": len(columns),
            "where": columns, "count": x.eliminated if wanted is None else len(wanted),
            "order": wanted, "parent": x.parent,
            "first": x.first, "head": x.head, "out": self.out, "back": self.back,
            "out_pred": self.out_pred, "back_pred": self.back_pred, "d": d, "p": p,
            "lane_count": vector // kind.itemsize, "per": max(1, vector // d.itemsize),
            "per_pred": max(1, vector // 4),
            "stored_in": max(1, kind.itemsize // d.itemsize), "pred_in": max(1, kind.itemsize // 4),
        }  # fmt: skip
        fields["base"], fields["pitch"] = _lines(d)
        fields["pred_base"], fields["pred_pitch"] = (0, 0) if p is None else _lines(p)
        fields["along_base"], fields["along_pitch"] = (0, 0) if sums is None else _lines(sums)
        fields |= {
            "along_count": min(width, engines.host_rows().lanes(8)), "out_along": self.out_along,
            "back_along": self.back_along, "sums": sums,
        }  # fmt: skip

        def some(lines: Index, **blocks: Any) -> None:
            label, pred, visited, rows, pred_rows, along, along_rows = scratch(
                entries * kind.itemsize, 4 * entries * trees, 4 * x.eliminated,
                turned * kind.itemsize, 4 * turned * trees, entries * summed, turned * summed,
            )  # fmt: skip
            kernel(
                **fields, **blocks, sources=len(lines), lines=lines,
                label=label.view(kind).reshape(-1, width), visited=visited.view(np.int32),
                turned=rows.view(kind).reshape(width, -1),
                pred=pred.view(np.int32).reshape(-1, width) if trees else None,
                turned_pred=pred_rows.view(np.int32).reshape(width, -1) if trees else None,
                along=along.view(np.float64).reshape(-1, width) if summed else None,
                turned_along=along_rows.view(np.float64).reshape(width, -1) if summed else None,
            )  # fmt: skip

        order = x.rank[sources].argsort(kind="stable")
        batch = max(_BATCH, 4 * width * pool.get_num_threads(), _ENTRIES // max(1, x.core))
        for begin in range(0, len(order), batch):
            lines = order[begin : begin + batch]
            position = x.rank[sources[lines]].astype(np.int64)
            told = part_of(tick, begin / len(order), len(lines) / len(order))
            solve(self, position, width, functools.partial(some, lines), told)

    def table(self, sources: Index, targets: Index, d: Array) -> None:
        """Fill `d`, contiguous, with the weights from nodes to nodes, of a tree without a core.

        All of them climb the elimination tree, and each pair meets at what it has in common.
        """
        x, k = self.structure, len(sources)
        position = x.rank[np.concatenate([sources, targets])].astype(np.int64)
        count, kind = len(position), self.out.dtype
        kernel = engines.compiled(queries.table, self.written or self.plan, *self.identities)
        fields: dict[str, Any] = {
            "sources": k, "targets": len(targets), "eliminated": x.eliminated, "depth": x.depth,
            "position": position, "count": np.empty(count, np.int64), "first": x.first,
            "parent": x.parent, "head": x.head, "chain": np.empty((count, x.depth), np.int32),
            "row": np.empty((count, x.depth), kind), "out": self.out, "back": self.back, "d": d,
        }  # fmt: skip

        def run(low: int, high: int, begin: int, end: int) -> None:
            label = scratch(x.eliminated * kind.itemsize)[0].view(kind)
            kernel(**fields, low=low, high=high, begin=begin, end=end, label=label)

        parts = min(count // _CLIMBS, 4 * pool.get_num_threads())
        if parts <= 1:
            run(0, count, 0, k)
        else:
            pool.run_parts(lambda low, high: run(low, high, 0, 0), count, parts)
            pool.run_parts(lambda begin, end: run(0, 0, begin, end), k, parts)


def _lines(rows: Array) -> tuple[int, int]:
    """Entries from a line of the caches to the first one, -1 for none; and between rows."""
    base, odd = divmod(rows.__array_interface__["data"][0] % kernels.LINE, rows.itemsize)
    return (-1 if odd else base), rows.strides[0] // rows.itemsize


# --- triangular solves --------------------------------------------------------------------------


def solve(
    metric: Metric, position: Index, width: int, sweep: Callable[..., None],
    tick: Callable[[float], None] | None = None, *, at_once: bool = False,
) -> None:  # fmt: skip
    """Triangular solves from many sources: up the elimination tree, over the core, and down.

    Parameters
    ----------
    metric : Metric
    position : (k,) int64
        Of the sources, ascending.
    width : int
        Sources of a block.
    sweep : callable
        Forward and, with `down`, backward solves of the blocks from `begin` to `end`. ``source``
        has the positions of each, n for none and at the end; ``core_label`` and ``core_pred`` a
        row for each source, which forward solves fill.
    tick : callable, optional
        Is told the fraction done.
    at_once : bool
        Whether one call of `sweep` takes all blocks.
    """
    x, steps, count = metric.structure, metric.steps, len(position)
    assert False not in (position[1:] >= position[:-1])  # kernels walk from one to the next
    source = np.empty((-(-count // width), width + 1), np.int64)
    source.fill(x.n)
    source[:, :-1].flat[:count] = position
    label = np.empty((count, x.core), metric.out.dtype)
    pred = np.empty(label.shape, np.int32) if metric.trees else None

    threads = pool.get_num_threads()

    def run(sources: int, down: int) -> None:
        blocks = -(-sources // width)
        work = float(blocks) * width * (len(x.head) + x.n)
        parts = max(work / _MOST, min(4 * threads, work / _LEAST) if threads > 1 else 0)
        parts = 1 if at_once else max(1, min(blocks, math.ceil(parts)))
        tasks = [
            functools.partial(
                sweep, begin=blocks * i // parts, end=blocks * (i + 1) // parts, down=down,
                source=source, core_label=label, core_pred=pred,
            )
            for i in range(parts)
        ]  # fmt: skip
        told = None if not (down and tick) else (lambda done: tick(done / parts))
        pool.run(tasks if blocks else [], told)

    if x.core:
        below = int(position.searchsorted(x.eliminated))
        run(below, 0)
        core, inside = stored(metric.plan, label, steps.dtype), position[below:] - x.eliminated
        engines.named("cpu").product(
            steps.s, core[np.newaxis, :below].copy(), metric.core[np.newaxis],
            core[np.newaxis, :below], JOIN, known=steps.known,
            arg=None if pred is None else pred[np.newaxis, :below], gather=metric.core_pred,
        )  # fmt: skip
        core[below:] = metric.core[inside]
        if pred is not None and metric.core_pred is not None:
            pred[below:] = metric.core_pred[inside]
        label[...] = computed(metric.plan, core)
    run(count, 1)


# --- customization ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Arcs:
    """Where the edges of a list go in a structure, computed once for all weights."""

    row: Index  # (m,)
    col: Index  # (m,)
    undirected: bool  # whether each stands for both directions
    apart: Index | slice  # (a,): the edges that are no loops
    slot: Index  # (a,): as :meth:`Structure.slots`

    @classmethod
    def of(cls, structure: Structure, row: Index, col: Index, *, undirected: bool) -> Arcs:
        loops = row == col
        apart = (~loops).nonzero()[0] if True in loops else slice(None)
        return cls(row, col, undirected, apart, structure.slots(row[apart], col[apart]))

    def weights(self, problem: Problem) -> Array:
        """The weights without those of loops, in the type that labels are stored in.

        Raises
        ------
        Improves
            If a loop improves itself.
        """
        source = problem.source
        assert isinstance(source, EdgeSource)
        weight = problem.weights.widen(weights_of(source, source.given))
        if isinstance(self.apart, slice):
            return weight
        loop = np.ones(len(weight), bool)
        loop[self.apart] = False
        _check_loops(problem.steps, self.row[loop], weight[loop])
        return weight[self.apart]


def customize(
    structure: Structure, problem: Problem, arcs: Arcs | None = None, *, trees: bool = False,
    progress: Progress = None,
) -> Metric:  # fmt: skip
    """Numeric factorization: weights of the edges of a structure, from those of a graph.

    Of an undirected graph whose ⊗ commutes ``back`` is ``out``, unless there are `trees`.

    Parameters
    ----------
    structure : Structure
    problem : Problem
        Of an :class:`EdgeSource`.
    arcs : Arcs, optional
        Of the problem's edges, if they are at hand.
    trees : bool
        Whether predecessors are wanted.
    progress : bool or callable, optional

    Raises
    ------
    Improves
        If a cycle improves itself.
    """
    source, steps = problem.source, problem.steps
    assert isinstance(source, EdgeSource)
    if arcs is None:
        edges = source.given
        arcs = Arcs.of(structure, edges.row, edges.col, undirected=not edges.directed)
    weight, slot = arcs.weights(problem), arcs.slot
    plan, size, core = path_plan(steps, structure.n), len(structure.head), structure.core
    out = np.empty(size, plan.computed_in)
    out.fill(computed(plan, steps.identities[0]))
    symmetric = arcs.undirected and source.s.commutes and not trees
    back = out if symmetric else out.copy()
    matrix = np.empty((core, core), steps.dtype)
    matrix.fill(steps.identities[0])
    preds: list[Any] = [None] * 3
    if trees:
        preds = [np.full(x.shape, NO_PREDECESSOR, np.int32) for x in (out, back, matrix)]
    metric = Metric(structure, steps, plan, out, back, matrix, *preds)
    inside = slice(0, 0) if not core else slot < 0
    outside = slice(None) if not core else slot >= 0
    ends, edge = np.divmod(-1 - slot[inside], max(core, 1)), slot[outside]
    given = np.ascontiguousarray(weight[outside])
    for turned in range(1 + arcs.undirected):
        i, j = ends[::-1] if turned else ends
        join_edges(source.s, matrix, i, j, weight[inside])
        if not (turned and symmetric):
            metric.compiled(kernels.add_arcs)(
                m=len(edge), slot=edge, weight=given, out=(out, back)[turned],
                back=(back, out)[turned],
            )  # fmt: skip
        if trees:
            tail = (arcs.row, arcs.col)[turned][arcs.apart]
            preds[2][i, j] = tail[inside]
            for pred, odd in zip(preds, (turned, 1 - turned), strict=False):
                here = edge % 2 == odd
                pred[edge[here] // 2] = tail[outside][here]
    closing = float(core) ** 3 / (2 if steps.symmetric else 1)
    factorize_weights(metric, reporter(progress, structure.pairs + closing, "weights"))
    return metric


def factorize_weights(metric: Metric, tick: Tick | None = None) -> None:
    """Join paths through lower neighbours to all edges, subtrees first; close the core."""
    x, steps = metric.structure, metric.steps

    nodes, cuts = x.schedule
    low_first, low_tail, low_edge = x.down
    fields = {
        "first": x.first, "head": x.head, "low_first": low_first, "low_tail": low_tail,
        "low_edge": low_edge, "out": metric.out, "out_pred": metric.out_pred,
    }  # fmt: skip

    def some(begin: int, end: int) -> None:
        metric.compiled(kernels.customize)(
            begin=begin, end=end, nodes=nodes, place=scratch(4 * x.n)[0].view(np.int32),
            back=None if metric.back is metric.out else metric.back, back_pred=metric.back_pred,
            **fields,
        )  # fmt: skip

    core = metric.compiled(kernels.customize_core)

    def some_of_core(begin: int, end: int) -> None:
        core(
            begin=begin, end=end, eliminated=x.eliminated, back=metric.back, matrix=metric.core,
            core_pred=metric.core_pred, **fields,
        )  # fmt: skip

    *parts, last = itertools.pairwise(cuts.tolist())
    each = x.pairs / (len(parts) + 1)
    if parts:
        pool.run(
            [functools.partial(some, *part) for part in parts],
            None if tick is None else (lambda done: tick(float(done * each))),
        )
    some(*last)
    if tick is not None:
        tick(x.pairs)
    if steps.look:
        check_edges(metric)
    if x.core:
        threads = pool.get_num_threads()
        if threads > 1:
            pool.run_parts(some_of_core, x.core, max(1, min(4 * threads, x.core // 64)))
        else:
            some_of_core(0, x.core)
        diagonal = np.arange(x.core)
        metric.core[diagonal, diagonal] = steps.identities[1]
        if metric.core_pred is not None:
            metric.core_pred[diagonal, diagonal] = NO_PREDECESSOR
        steps.close(
            engines.named("cpu"), metric.core, metric.core_pred, 0,
            None if tick is None else (lambda done, parts=None: tick(x.pairs + done, parts)),
        )  # fmt: skip


def customize_along(
    structure: Structure, problem: Problem, arcs: Arcs, values: NDArray[np.float64]
) -> Metric:
    """A metric (:func:`customize`) without a core, and a second quantity along its edges.

    Parameters
    ----------
    structure, problem, arcs
        As for :func:`customize`, which raises Improves.
    values : (m,) float64
        Of each edge of the graph.

    Raises
    ------
    ValueError
        If a cycle that weighs nothing has a negative sum.
    """
    metric, weight, slot = customize(structure, problem, arcs), arcs.weights(problem), arcs.slot
    x, given = metric.structure, values[arcs.apart]
    there = weight != metric.steps.identities[0]
    final, sums = np.stack([metric.out, metric.back], 1).ravel(), np.full(2 * len(x.head), np.inf)
    for slots in (slot, slot ^ 1)[: 1 + arcs.undirected]:
        best = (computed(metric.plan, weight) == final[slots]) & there
        np.minimum.at(sums, slots[best], given[best])
    out = sums[::2].copy()
    back = out if metric.back is metric.out else sums[1::2].copy()
    low_first, low_tail, low_edge = x.down
    nodes, cuts = x.schedule
    kernel = metric.compiled(kernels.customize_along)

    def some(begin: int, end: int) -> None:
        kernel(
            begin=begin, end=end, nodes=nodes, first=x.first, head=x.head, low_first=low_first,
            low_edge=low_edge, low_tail=low_tail, place=scratch(4 * x.n)[0].view(np.int32),
            out=metric.out, back=metric.back, out_along=out,
            back_along=None if back is out else back,
        )  # fmt: skip

    *parts, last = itertools.pairwise(cuts.tolist())
    pool.run([functools.partial(some, *part) for part in parts])
    some(*last)
    if (given[there] < 0).any():
        around = evaluate(metric.steps.s.mul_expr, metric.out, metric.back)
        free = np.flatnonzero((around == metric.identities[1]) & (out + back < 0))
        if free.size:
            tail = int(np.searchsorted(x.first, free[0], side="right")) - 1
            names = range(x.n) if problem.labels is None else problem.labels
            u, v = (names[x.order[k]] for k in (tail, x.head[free[0]]))
            raise ValueError(
                f"along: a cycle through {u!r} and {v!r} weighs nothing, and its sum is negative: "
                f"there is no least one"
            )
    return replace(metric, out_along=out, back_along=back)


def _check_loops(steps: Steps, nodes: Index, weight: Array) -> None:
    one = steps.identities[1]
    better = evaluate(steps.s.add_expr, weight, weight.dtype.type(one)) != one
    if steps.look and better.any():
        raise Improves(int(nodes[better][0]), weight[better][0])


def check_edges(metric: Metric) -> None:
    """Raise Improves if the path up an edge and back is better than none."""
    x, s, (zero, one) = metric.structure, metric.steps.s, metric.identities
    there = (metric.out != zero) & (metric.back != zero)
    around = np.empty_like(metric.out[there])
    around[...] = evaluate(s.mul_expr, metric.out[there], metric.back[there])  # or a constant
    better = np.flatnonzero(evaluate(s.add_expr, around, around.dtype.type(one)) != one)
    if better.size:
        edge = int(np.flatnonzero(there)[better[0]])
        tail = int(np.searchsorted(x.first, edge, side="right")) - 1
        raise Improves(int(x.order[tail]), around[better[0]])
