"""What is within a radius of many sources: sweeps that visit little else, and sums over them."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from .. import pool
from ..graph_kernels import Index, Node
from ..graphs.kernels import factor
from ..graphs.kernels import reach as kernels
from ..memory import scratch
from ..plan import Plan
from .metric import Metric, solve
from .statistics import stack

__all__ = ["Reach", "Sums"]

Array = NDArray[Any]
Told = Callable[[float], None] | None

_ROWS = 1 << 14  # of labels that are consumed at a time: in the second-level cache
_SHORT = 1 << 29  # whole distances that are computed in 32 bits
_PARTS = 64  # of sources, whatever the number of threads, so that sums are the same
_FEW = 256  # sources for which ways into what is wanted are not computed


@dataclass(frozen=True)
class Ways:
    """A metric with what sweeps to a radius read besides."""

    metric: Metric
    enter: Array  # (edges,): least weights from the head of each edge into the subtree of its tail
    size: Node  # (eliminated,), of subtrees
    depth_row: Node  # rows of a stack of labels: see :func:`.statistics.stack`
    slot: Node

    @classmethod
    def of(cls, metric: Metric, *, short: bool) -> Ways:
        """With labels in 32-bit integers, or of the metric's type; computed once."""
        kept, name = vars(metric), f"_ways_{short}"
        if name not in kept:
            typed = metric
            if short:
                typed = metric.in_integers(np.dtype(np.int32), most=_SHORT)
            size = np.empty(typed.structure.eliminated, np.int32)
            made = cls(typed, np.empty_like(typed.back), size, *stack(typed.structure))
            made._enter(None)
            kept.setdefault(name, made)
        found: Ways = kept[name]
        return found

    def into(self, wanted: NDArray[np.int32]) -> Ways:
        """The same with ways into subtrees that have a wanted position."""
        made = replace(self, enter=np.empty_like(self.enter))
        made._enter(wanted)
        return made

    def _enter(self, wanted: NDArray[np.int32] | None) -> None:
        x = self.metric.structure
        place, some = scratch(4 * x.n, 4 * x.eliminated)
        self.metric.compiled(kernels.ways_in)(
            n=x.eliminated, wanted=wanted, first=x.first, head=x.head, parent=x.parent,
            place=place.view(np.int32), size=self.size, back=self.metric.back, enter=self.enter,
            some=some.view(np.int32),
        )  # fmt: skip


class Reach:
    """Sweeps from sources over a metric of min_plus, which end at a radius.

    Where there are negative weights nothing but what is not reached at all is left out.

    Parameters
    ----------
    metric : Metric
    radius : float
        Not NaN; inf: to all that is reached.
    count : int
        Sources in all.
    targets : (k,) int64, optional
        The nodes that are wanted, each once; None: all.
    in_order : bool
        Whether columns are positions, not nodes, where all are wanted.

    Attributes
    ----------
    radius
        The largest distance within it, in the type of labels.
    """

    def __init__(
        self,
        metric: Metric,
        radius: float,
        count: int,
        targets: Index | None = None,
        *,
        in_order: bool = False,
    ) -> None:
        ways = Ways.of(metric, short=self._short(metric, radius))
        self.metric, x = ways.metric, metric.structure
        self.dtype = kind = self.metric.out.dtype
        column = np.arange(x.n, dtype=np.int32) if in_order else x.order
        if targets is not None:
            column = np.full(x.n, -1, np.int32)
            column[x.rank[targets]] = np.arange(len(targets), dtype=np.int32)
            if count > _FEW:
                ways = ways.into((column[: x.eliminated] >= 0).astype(np.int32))
        zero = self.metric.identities[0]  # of whole numbers as large, less than it in float64, too
        most = np.finfo(kind).max if kind.kind == "f" else int(np.nextafter(float(zero), 0))
        self.radius = kind.type(
            most if radius > most else radius if kind.kind == "f" else radius // 1
        )
        self.width = 1 if count == 1 else self.metric.width
        self.fields: dict[str, Any] = {
            "eliminated": x.eliminated, "core": x.core, "width": self.width,
            "vectors": factor.VECTORS, "column": column, "parent": x.parent, "first": x.first,
            "head": x.head, "out": self.metric.out, "back": self.metric.back, "enter": ways.enter,
            "size": ways.size, "slot": ways.slot, "depth_row": ways.depth_row,
            "radius": kind.type(most) if metric.negative else self.radius,
        }  # fmt: skip

    @staticmethod
    def _short(metric: Metric, radius: float) -> bool:
        """Whether labels in 32-bit integers are the distances that are looked for."""
        kind, most = metric.out.dtype, _SHORT
        if kind == np.float32:
            most = 1 << np.finfo(kind).nmant
        if metric.negative or not metric.whole:
            return False
        if radius < most and not metric.structure.core:
            return True
        return metric.bound[0] < most and metric.largest < most

    def bytes(self, *, whole: bool) -> int:
        """Memory of the sweeps of all threads, with or without room for `whole` blocks."""
        rows = _ROWS + self.metric.structure.n * (1 + whole)
        return int(pool.get_num_threads() * rows * (self.width * self.dtype.itemsize + 4))

    def run(
        self, position: Index, consume: Callable[..., None], *, whole: bool = False
    ) -> None:  # fmt: skip
        """Sweeps of this thread, from positions that ascend.

        Parameters
        ----------
        position : (k,) int64
        consume : callable
            Is given rows of labels, as :func:`.kernels.reach` has them: ``begin`` and ``end`` of
            blocks of sources, ``ends``, ``vertex`` and ``near``, which are overwritten then.
        whole : bool
            Whether no block is consumed in pieces.
        """
        x = self.metric.structure
        enough = _ROWS
        capacity = enough + x.core + (x.n if whole else _ROWS)
        ancestors = min(x.eliminated, self.width * x.depth)
        row, kind = self.width * self.dtype.itemsize, self.dtype
        kernel = self.metric.compiled(kernels.reach)

        def some(*, begin: int, end: int, down: int, core_pred: Any, **blocks: Any) -> None:
            label, up_label, near, place, visited, vertex = scratch(
                (x.core + x.depth) * row, (x.core + ancestors) * row, capacity * row, 4 * x.n,
                4 * ancestors, 4 * capacity,
            )  # fmt: skip
            labels = [y.view(kind).reshape(-1, self.width) for y in (label, up_label, near)]
            places, vertices = place.view(np.int32), vertex.view(np.int32)
            places[x.eliminated :] = np.arange(x.core)
            state, ends = np.array([-1, begin, 0, 0, 0]), np.zeros(end, np.int64)
            call = kernel.bind(
                **self.fields, **blocks, end=end, sources=len(position), down=down, state=state,
                capacity=capacity, enough=enough, place=places, visited=visited.view(np.int32),
                label=labels[0], up_label=labels[1], near=labels[2], vertex=vertices, ends=ends,
            )  # fmt: skip
            while state[kernels.BLOCK] < end:
                pool.look()
                first = int(state[kernels.BLOCK])
                call()
                last = int(state[kernels.BLOCK] + (state[kernels.SUBTREE] >= 0))
                if down:
                    ends[last - 1] = state[kernels.ROWS]  # if it is not done, so far
                    consume(begin=first, end=last, ends=ends, vertex=vertices, near=labels[2])

        with pool.limited(1):
            solve(self.metric, position, self.width, some, at_once=True)

    def pairs(self, position: Index, dtype: np.dtype[Any]) -> tuple[Index, Node, Array]:
        """How many positions each of some, ascending, reaches; their columns, and the distances."""
        found = list[tuple[Index, Node, Array]]()
        plan = self.metric.plan
        if self.dtype != dtype:
            missing = np.array(self.metric.steps.s.identities(dtype)[0], dtype).item()
            plan = replace(plan, storage=dtype.name, missing=missing)
        part = np.empty(self.width, np.int32)
        fields = {"width": self.width, "vectors": factor.VECTORS, "radius": self.radius}
        write = engines.compiled(kernels.write_pairs, plan, *self.metric.identities)
        count_pairs = self.metric.compiled(kernels.count_pairs)

        def consume(*, begin: int, end: int, ends: Index, vertex: Node, near: Array) -> None:
            counts = np.empty((end, self.width), np.int64)
            given = {**fields, "begin": begin, "end": end, "ends": ends, "near": near}
            count_pairs(**given, part=part, count=counts)
            count = counts[begin:].ravel()
            place = np.zeros_like(counts)
            place[begin:] = (np.cumsum(count) - count).reshape(-1, self.width)
            index = np.empty(int(count.sum()), np.int32)
            distance = np.empty(len(index), dtype)
            write(**given, vertex=vertex, place=place, index=index, distance=distance)
            found.append((count, index, distance))

        self.run(position, consume, whole=True)
        each, indices, distances = (np.concatenate(x) for x in zip(*found, strict=True))
        return each[: len(position)], indices, distances

    def parts(self, position: Index) -> list[Index]:
        """Positions that a thread takes at a time."""
        blocks = -(-len(position) // self.width)
        parts = max(1, min(_PARTS, blocks))
        cuts = [blocks * i // parts * self.width for i in range(parts + 1)]
        return [position[i:j] for i, j in itertools.pairwise(cuts)]


def _lines(rows: int, width: int) -> NDArray[np.float64]:
    """An array of float64 that begins where a line of the caches does: half of the time."""
    size = rows * width
    raw = np.empty(size + factor.LINE // 8)
    first = -(raw.ctypes.data // 8) % (factor.LINE // 8)
    return raw[first : first + size].reshape(rows, width)


class Sums:
    """Sums of weights times decay over what is within radii.

    Parameters
    ----------
    reach : Reach
        To the largest radius.
    decay : Plan
        Whose ⊗ is the decay of its first operand.
    radii : (r,) float64
        Ascending.
    """

    def __init__(self, reach: Reach, decay: Plan, radii: NDArray[np.float64]) -> None:
        self.reach = reach
        kind = reach.dtype if reach.dtype.kind == "f" else np.dtype(np.float64)
        most = float(reach.radius)  # beyond which labels are not what they seem
        self.radii = np.minimum(radii.astype(kind).astype(np.float64), most)
        kinds = {"i": "whole", "f": "single" if reach.dtype.itemsize == 4 else "real"}
        self.name = kinds[reach.dtype.kind]
        self.kernel = functools.partial(engines.compiled, plan=decay, zero=0.0, one=1.0)

    def _fields(self, weight: NDArray[np.float64], near: Array) -> dict[str, Any]:
        if self.name == "whole" and near.dtype.itemsize == 8:
            near = near.astype(np.float64)
            labels = {"real": near}
        else:
            labels = {self.name: near}
        return {
            **dict.fromkeys(("whole", "single", "real")), **labels, "width": self.reach.width,
            "vectors": max(1, self.reach.width // engines.host_rows().lanes(8)),
            "radii": len(self.radii), "radius": self.radii, "weight": weight,
            "amounts": len(weight), "value": _lines(2, self.reach.width),
        }  # fmt: skip

    def at_vertices(
        self, position: Index, weight: NDArray[np.float64], total: NDArray[np.float64],
        told: Told = None,
    ) -> None:  # fmt: skip
        """Add to the sums of all columns what the sources bring, from positions that ascend.

        The sums are the same on any number of threads.

        Parameters
        ----------
        position : (k,) int64
        weight : (a, k) float64
        total : (columns, r, a) float64
        told : callable, optional
            Is told the fraction done.
        """
        width, kernel = self.reach.width, self.kernel(kernels.add_at_vertices)
        most, following = 2 * pool.get_num_threads(), [0]
        done, waiting = threading.Condition(), dict[int, Array]()

        def some(part: int, chosen: Index, place: slice) -> None:
            with done:  # no part is far ahead of the others, whose sums would wait
                while part >= following[0] + most:
                    done.wait(0.1)
                    pool.look()
            given = weight[:, place]
            amounts = np.zeros((len(weight), -(-len(chosen) // width), width))
            amounts.reshape(len(weight), -1)[:, : len(chosen)] = given
            own = np.zeros(total.shape)

            def consume(*, begin: int, end: int, ends: Index, vertex: Node, near: Array) -> None:
                fields = self._fields(amounts[:, :end].copy(), near)
                kernel(
                    **fields, begin=begin, end=end, ends=ends, rows=int(ends[end - 1]),
                    vertex=vertex, total=own, alone=own[:1].size == 1,
                )  # fmt: skip

            self.reach.run(chosen, consume)
            with done:  # in the order of the parts
                waiting[part] = own
                while following[0] in waiting:
                    np.add(total, waiting.pop(following[0]), out=total)
                    following[0] += 1
                done.notify_all()

        self._in_parts(position, some, told)

    def at_sources(
        self, position: Index, weight: NDArray[np.float64], told: Told = None
    ) -> NDArray[np.float64]:
        """The sums of sources over all columns, (k, r, a) float64; as :meth:`at_vertices`.

        `weight` is (a, columns).
        """
        width, kernel = self.reach.width, self.kernel(kernels.add_at_sources)
        shape = len(self.radii), len(weight)
        total = np.zeros((len(position), *shape))

        def some(part: int, chosen: Index, place: slice) -> None:
            own = np.zeros((-(-len(chosen) // width), *shape, width))

            def consume(*, begin: int, end: int, ends: Index, vertex: Node, near: Array) -> None:
                piece = np.zeros((end, *shape, width))
                kernel(
                    **self._fields(weight, near), begin=begin, end=end, ends=ends,
                    rows=int(ends[end - 1]), vertex=vertex, total=piece,
                )  # fmt: skip
                own[begin:end] += piece[begin:]

            self.reach.run(chosen, consume)
            sums = np.moveaxis(own, -1, 1).reshape(-1, *shape)
            total[place] = sums[: len(chosen)]

        self._in_parts(position, some, told)
        return total

    def _in_parts(
        self, position: Index, some: Callable[[int, Index, slice], None], told: Told
    ) -> None:
        """Call a function with the number, the positions and the place of each part of these."""
        parts = self.reach.parts(position) if len(position) else []
        ends = np.cumsum([0, *map(len, parts)]).tolist()
        places = itertools.starmap(slice, itertools.pairwise(ends))
        tasks = [
            functools.partial(some, i, *x) for i, x in enumerate(zip(parts, places, strict=True))
        ]
        pool.run(tasks, None if told is None else (lambda done: told(done / len(parts))))
