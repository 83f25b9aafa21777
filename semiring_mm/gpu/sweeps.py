"""Sweeps over a customized factor on the device: distances, and statistics of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..engine import JOIN
from ..expressions import joins
from ..graph_kernels import Factor, Index, Node, offsets
from ..plan import Plan, bytewise, computed, stored
from . import device
from .launch import entry, launch, struct_of
from .memory import free_memory, from_host, to_host
from .product import product
from .regions import Cut, Limits, Regions, cut, regions
from .source import STORAGE, algebra, compute_dtype, word_size
from .views import address, bits_of

__all__ = ["KINDS", "FactorSweeps", "Shape"]

Array = Any

#: The statistics of a source's labels, as bits of sr::Statistics.
KINDS = {"largest": 1, "count": 2, "sum": 4, "inverse": 8, "within": 16, "bins": 32}
_SHORT, _MASS, _REAL_MASS, _RADIUS = 64, 128, 256, 512
_RUN = 64  # labels between two sr::Statistics::carry
_RADII = 4  # at once, each of which takes registers

_LANES = 256  # threads of sr::Finish
_SIDE, _ROWS = 32, 256  # sr::Rows's tile, and its threads
_BLOCKS = 24  # for each multiprocessor, of one launch: the last ones to end weigh little
_SOURCES = 8192  # of a batch: few enough that the upper labels of some are in the cache
_SHARE = 0.6  # of the free memory
_AHEAD = 4  # edges that are read ahead
#: Sizes of leaf regions, by rows, in launches of their own: the smaller, the more blocks at once.
_CLASSES = (0.25, 0.4, 0.55, 0.75, 1.0)
_UPPER = (0.5, 1.0)  # of other regions with as many above them
_OWN = 8  # blocks, at most, for the leaf regions that hold sources of a group


class Shape(NamedTuple):
    """Blocks of the sweeps, and the sizes of regions."""

    threads: int = 64  # of a block
    each: int = 4  # sources of each: an access has so many words
    nodes: int = 96  # of a leaf region
    rows: int = 112  # labels of it in shared memory
    edges: int = 832  # of it
    upper: int = 32  # nodes of another region
    # sources of a thread above leaf regions, where shared memory would hold few blocks
    narrow: int = 2
    core: int = 16384  # nodes of the dense core, at most, if the CPU's is not larger

    @property
    def width(self) -> int:
        """Sources of a block."""
        return self.threads * self.each

    def limits(self, size: int, shared: int) -> tuple[Limits, Limits]:
        """Of leaf regions and others, for words of that size and so much shared memory."""
        edges, record = 4 * self.edges, _record(size)
        lists = 16 * (self.upper + 1) + (edges + self.upper + _AHEAD) * record
        room = (shared - lists) // (self.threads * size)
        upper = Limits(self.upper, room // self.narrow, edges)
        return Limits(self.nodes, min(self.rows, room // self.each), self.edges), upper


def _record(size: int) -> int:
    """Bytes of an edge: a weight and a row."""
    return 2 * size


@dataclass(frozen=True)
class _Launch:
    """Regions of one launch of sr::Fall, and what their blocks take of shared memory."""

    begin: int
    count: int
    rows: int
    nodes: int
    edges: int


class _View(NamedTuple):
    """Which labels a sweep stores, and what it computes of the others."""

    nodes: Array  # (eliminated, 4) of int32: sr::SweepNode
    # (regions,): leaf regions that are swept apart for groups with sources in them
    own: NDArray[np.bool_]
    outer: Array  # of int32: slots of the heads above the regions
    slots: int  # labels that are stored
    names: Array  # (slots,) of int32
    order: Array  # of int32: regions by launches, none of which is empty
    upper: list[_Launch]  # one after the other, from the top
    leaves: list[_Launch]  # the last ones


class FactorSweeps:
    """Sweeps over one factor after the other on the current device.

    `shape` has the sizes of blocks and regions; `like` are sweeps over the same structure on
    another device, whose regions are taken over. The attribute ``structure`` is the factor's, with
    more nodes in its core.
    """

    factor: Factor
    cut: Cut
    pieces: Regions
    limits: tuple[Limits, Limits]

    def __init__(self, *, shape: Shape | None = None, like: FactorSweeps | None = None) -> None:
        self.here, self._given, self.size, self._like = device.current(), shape, 0, like

    @property
    def width(self) -> int:
        """Sources that are swept together."""
        return self.shape.width

    def _lay_out(self, factor: Factor, size: int) -> None:
        """The regions for labels of that size."""
        xp = self.here.xp
        self.size, self.shape = size, self._given or Shape(each=16 // size, narrow=8 // size)
        if {self.shape.each * size, self.shape.narrow * size} - {4, 8, 16}:
            raise ValueError(
                f"shape: a thread reads labels of 4, 8 or 16 bytes at once, got each = "
                f"{self.shape.each} and narrow = {self.shape.narrow} of {size} bytes"
            )
        limits, like = self.shape.limits(size, self.here.shared_limit), self._like
        if like is not None and like.size == size and like.limits == limits:
            larger, f = like.cut, like.pieces
        else:
            # half of them: a region with more stays alone, and so do its blocks
            larger = cut(factor.structure, limits[1].rows // 2, self.shape.core)
            f = regions(larger.structure, *limits)
        self.cut, self.limits, self._like = larger, limits, None
        x = self.structure = larger.structure
        self._old, self._kept = larger.old, xp.asarray(larger.edges)
        self._inner = tuple(map(xp.asarray, (larger.inner, larger.tail, larger.head)))
        self.pieces = f
        words = [
            f.first[:-1], np.diff(f.first), f.outer_first[:-1], np.diff(f.outer_first),
            f.edge_first[:-1], np.where(f.held, np.diff(f.edge_first), 0), f.leaf, f.held,
            f.levels, *np.zeros((3, len(f.leaf))),
        ]  # fmt: skip
        self.words = np.stack([x.astype(np.int32) for x in words], axis=1)
        self.place = f.place[x.rank]  # of each node
        times = np.repeat(np.where(f.held, self.shape.threads, 1), np.diff(f.edge_first))
        self._edges = xp.asarray(f.edge)
        self._rows, self._level_rows = (
            xp.asarray((x * times).astype(np.int32)) for x in (f.row, f.level_row)
        )
        self._regions = xp.asarray(self.words)
        self._views: dict[str, _View] = {}

    def weigh(self, factor: Factor, bound: float | None = None) -> Array | None:
        """Take a factor: see :meth:`semiring_mm.graph_kernels.FactorSweeps.weigh`."""
        xp = self.here.xp
        plan = _plan(xp, factor, bound)
        if word_size(plan) != self.size:
            self._lay_out(factor, word_size(plan))
        self.factor, self.plan = factor, plan
        self.compute = np.dtype(compute_dtype(self.plan))
        identities = factor.semiring.identities(factor.dtype)
        self.zero, self.one = (self._computed(computed(factor.plan, x)).item() for x in identities)
        out = xp.asarray(factor.out)
        back = out if factor.out is factor.back else xp.asarray(factor.back)
        self.down = self._records(back, self._level_rows)
        self.up = self._records(out, self._rows)
        self.core = xp.asarray(factor.core)
        if self.structure.core == self._old:
            return None
        self.core = self._larger_core(out, back, *identities)
        return self.core

    def _larger_core(self, out: Array, back: Array, zero: Any, one: Any) -> Array:
        """The matrix of the core, which has more nodes than that of the factor; not closed."""
        xp, size, factor = self.here.xp, self.structure.core, self.factor
        edges, tail, head = self._inner
        core = xp.full((size, size), zero, factor.dtype)
        core[tail, head] = stored(factor.plan, out[edges], factor.dtype)
        core[head, tail] = stored(factor.plan, back[edges], factor.dtype)
        core[size - self._old :, size - self._old :] = self.core
        core[xp.arange(size), xp.arange(size)] = one
        return core

    def _computed(self, x: Any) -> Any:
        """What the CPU computes with in the type of the device; an array of either."""
        xp = np if isinstance(x, np.ndarray | np.generic | int | float) else self.here.xp
        values = xp.asarray(x)
        if self.plan.codec == "mask":
            return -(values != 0).astype(self.compute)  # true is -1
        if self.plan.missing is not None:
            far = values.dtype.type(self.plan.infinite)
            if self.plan.annihilate:
                values = xp.where(values == self.factor.plan.infinite, far, values)
            else:  # nothing lies beyond it
                values = (xp.minimum if far > 0 else xp.maximum)(values, far)
        return values.astype(self.compute)

    def _ends(self, radii: NDArray[Any]) -> NDArray[Any]:
        """Radii in the type computed in, with the same labels within them."""
        if self.compute.kind == "f":
            most = np.finfo(self.compute.name).max
            values: NDArray[Any] = np.minimum(radii, most).astype(self.compute)
            return values
        ends: Any = np.iinfo(self.compute.name)
        whole = [math.floor(min(max(x, int(ends.min)), int(ends.max))) for x in radii.tolist()]
        return np.array(whole, self.compute)

    def _limits(self, edges: NDArray[Any]) -> NDArray[Any]:
        """The edges of a histogram in the type computed in, the last one beyond its bin."""
        if self.compute.kind == "f":
            limits = edges.astype(self.compute)
            limits[limits < edges] = np.nextafter(limits[limits < edges], self.compute.type(np.inf))
            if limits[-1] == edges[-1]:
                limits[-1] = np.nextafter(limits[-1], self.compute.type(np.inf))
            return limits
        ends: Any = np.iinfo(self.compute.name)
        whole = [*map(math.ceil, edges.tolist()[:-1]), math.floor(edges[-1]) + 1]
        return np.array([min(max(x, ends.min), ends.max) for x in whole], self.compute)

    def _scale(self, limits: NDArray[Any], bound: float) -> dict[str, int]:
        """Multiplier that gives the bin of a label, where bins are of equal width."""
        gaps = np.diff(limits.astype(np.float64))
        if self.size == 4 and self.compute.kind != "f":
            # Half-open bins are: no label is the last edge, which the last bin has, too. Granlund
            # and Montgomery: quotients of 31 bits by a product with 32.
            width = int(gaps[0])
            same = (gaps[:-1] == width).all() and gaps[-1] - width in (0, 1)
            if not same or bound >= limits[-1] - 1:
                return {}
            bits = (width - 1).bit_length()
            return {"scale": -(-(1 << 31 + bits) // width), "shift": 31 + bits}
        if np.ptp(gaps[:-1]) > 1e-3 * gaps[0] / len(gaps):
            return {}
        return {"scale": int(np.float64(1 / gaps[0]).view(np.int64))}

    def _bin_room(self, bins: int) -> int:
        """Bytes of sr::Bins in shared memory."""
        if not bins:
            return 0
        return sum(-(-(bins + 1) * size // 16) * 16 for size in (self.size, 4))

    def _records(self, weight: Array, rows: Array) -> Array:
        """sr::Sweep::Edge for each edge of the regions."""
        xp, words = self.here.xp, self.size // 4
        none = xp.full(1, self.zero, self.compute)
        weight = xp.concatenate([self._computed(weight[self._kept]), none])
        records = xp.zeros((len(self._edges), 2 * words), np.int32)
        records[:, :words] = weight[self._edges].view(np.int32).reshape(-1, words)
        records[:, words] = rows
        return records

    # --- what is stored -------------------------------------------------------------------------

    def _view(self, targets: Index | None) -> _View:
        """A sweep that stores the labels of upper regions and of `targets`, which are places.

        Only the regions that the targets need are swept, or all.
        """
        x, f = self.structure, self.pieces
        names = x.order[f.position]
        stored = ~f.leaf[f.of_place]
        needed = np.ones(len(f.leaf), bool)
        if targets is not None:
            inside = targets[targets < x.eliminated]
            stored[inside] = True
            needed[:] = False
            at = np.unique(f.of_place[inside])
            while len(at):
                needed[at] = True
                at = np.unique(f.parent[at])
                at = at[at >= 0]
        slot = np.full(x.eliminated, -1, np.int32)
        slot[stored] = x.core + np.arange(np.count_nonzero(stored))
        nodes = np.stack([f.end, slot, names[: x.eliminated], f.level], axis=1).astype(np.int32)
        slots = x.core + int(np.count_nonzero(stored))
        order = [np.empty(0, np.int64)]

        def put(chosen: NDArray[Any]) -> _Launch:
            order.append(chosen)
            return self._launch(sum(len(x) for x in order[:-1]), chosen)

        above, rows = needed & ~f.leaf, self.words[:, 8] + self.words[:, 3]

        def put_by_size(chosen: NDArray[np.bool_], classes: tuple[float, ...]) -> list[_Launch]:
            sizes = np.searchsorted(np.array(classes) * rows[chosen].max(initial=0), rows)
            parts = (np.flatnonzero(chosen & (sizes == i)) for i in range(len(classes)))
            return [put(part) for part in parts if part.size]

        depths = range(int(f.depth[above].max(initial=-1)) + 1)
        upper = [x for depth in depths for x in put_by_size(above & (f.depth == depth), _UPPER)]
        leaves = put_by_size(needed & f.leaf, _CLASSES)
        xp = self.here.xp
        outer = np.append(slot, np.arange(x.core))[f.outer]
        of_slot = np.concatenate([names[x.eliminated :], names[: x.eliminated][stored]])
        return _View(
            xp.asarray(nodes), needed & f.leaf, xp.asarray(outer.astype(np.int32)), slots,
            xp.asarray(of_slot.astype(np.int32)),
            xp.asarray(np.concatenate(order).astype(np.int32)), upper, leaves,
        )  # fmt: skip

    def _launch(self, begin: int, chosen: NDArray[Any], *, up: bool = False) -> _Launch:
        words = self.words[chosen]
        rows = (words[:, 1 if up else 8] + words[:, 3]).max(initial=1)
        nodes, edges = (words[:, k].max(initial=0) for k in (1, 5))
        return _Launch(begin, len(chosen), int(rows), int(nodes), int(edges))

    # --- sweeps ---------------------------------------------------------------------------------

    def rows(
        self, sources: Index, *, targets: Index | None = None, out: Array | None = None,
        edges: tuple[Index, Index, NDArray[Any]] | None = None, parents: Array | None = None,
        batch: int | None = None,
    ) -> Array:  # fmt: skip
        """Rows of distances: see :meth:`semiring_mm.graph_kernels.FactorSweeps.rows`.

        `batch`: sources at a time.
        """
        x, xp = self.structure, self.here.xp
        n = x.n if targets is None else len(targets)
        if out is None:
            out = xp.empty((len(sources), n), self.factor.dtype)
        places = self.place if targets is None else self.place[targets]
        view = self._view_of_all() if targets is None else self._view(places.astype(np.int64))
        slot = np.concatenate([to_host(view.nodes)[:, 1], np.arange(x.core, dtype=np.int32)])
        if not n or not len(sources):
            return out
        where, tile = xp.asarray(slot[places]), _SIDE * (_SIDE + 1)
        entry = STORAGE[str(out.dtype)]
        fields = {"where": address(where), "targets": n}
        near: tuple[Array, ...] = ()
        if edges is not None:
            near = self._near(*edges, slot)
        for run in self._batches(sources, view, 0, batch):
            run.sweep(0)
            blocks = run.columns // _SIDE * -(-n // _SIDE)
            run.launch(
                f"sr::Rows<Algebra, {entry}>", _ROWS, blocks, tile * out.itemsize, **fields,
                rows=address(out), pitch=out.strides[0] // out.itemsize,
            )  # fmt: skip
            if parents is not None:
                run.launch(
                    "sr::Parents<Algebra>", _ROWS, blocks, tile * 4, **fields,
                    rows=address(parents), pitch=parents.strides[0] // 4,
                    near_first=address(near[0]), near=address(near[1]),
                )  # fmt: skip
        return out

    def _view_of_all(self) -> _View:
        """A sweep that stores all labels: no slot is left out."""
        view = self._views.get("rows") or self._view(np.arange(self.structure.n))
        self._views["rows"] = view
        return view

    @property
    def slots(self) -> Node:
        """The row of each node in the matrices of :meth:`labels`."""
        x = self.structure
        core: NDArray[np.int32] = self.place - np.int32(x.eliminated)
        return np.where(core < 0, core + np.int32(x.n), core)

    def labels(self, sources: Index, batch: int) -> Iterator[tuple[Node, Array]]:
        """Labels of all nodes, with a column for each of some sources at a time.

        Yields
        ------
        nodes : (columns,) int32
            The source of each column, neighbours side by side; -1: none.
        labels : array (n, columns)
            In the type computed in, until the next are asked for.
        """
        n = self.structure.n
        for run in self._batches(sources, self._view_of_all(), 0, batch):
            run.sweep(0)
            nodes = run.shared.given[2, run.begin : run.begin + run.columns]
            yield nodes, run.shared.labels.reshape(-1)[: n * run.columns].reshape(n, -1)

    def _near(self, row: Index, col: Index, weight: NDArray[Any], slot: Index) -> tuple[Array, ...]:
        """sr::Parents::Near for the edges to each node, and where they begin."""
        xp, words = self.here.xp, self.size // 4
        apart = row != col
        row, col, weight = row[apart], col[apart], weight[apart]
        order = np.argsort(col, kind="stable")
        first = offsets(np.bincount(col, minlength=self.structure.n)).astype(np.int32)
        near = np.empty((len(row), words + 2), np.int32)
        near[:, :words] = self._computed(weight[order]).view(np.int32).reshape(-1, words)
        near[:, words], near[:, words + 1] = slot[self.place[row[order]]], row[order]
        return xp.asarray(first), xp.asarray(near)

    def statistics(
        self, sources: Index, kinds: Collection[str], *, radii: NDArray[Any] | None = None,
        mass: NDArray[Any] | None = None, edges: NDArray[Any] | None = None,
        bound: float = math.inf, batch: int | None = None,
    ) -> dict[str, NDArray[Any]]:  # fmt: skip
        """Statistics of distances: see :meth:`semiring_mm.graph_kernels.FactorSweeps.statistics`.

        No label of a leaf region is stored.
        """
        xp, kinds = self.here.xp, set(kinds)
        radii = np.empty(0) if radii is None or "within" not in kinds else radii
        width = self.shape.width
        room = -(-len(sources) // width) * width
        limits = self._limits(np.zeros(1) if edges is None else edges)
        bins = xp.zeros(len(limits) - 1, np.uint64)
        there = xp.asarray(limits)
        histogram = {"limits": address(there), "bins": address(bins), "bin_count": len(bins)}
        histogram |= self._scale(limits, bound) if len(bins) else {}
        weighed = mass is not None and "within" in kinds
        mass = np.empty(0, np.int64) if mass is None else mass
        given = xp.asarray(mass)
        flags = sum(KINDS[kind] for kind in kinds if kind != "within")
        longest = max(_RUN, self.shape.nodes)
        flags |= _SHORT * (self.compute.kind == "i" and longest * float(bound) < 1 << 31)
        sums: Any = np.float64 if self.compute.kind == "f" else np.int64
        types = {"largest": sums, "count": np.int64, "sum": sums, "inverse": np.float64}
        answer: dict[str, NDArray[Any]] = {
            name: np.empty(len(sources), kind) for name, kind in types.items() if name in kinds
        }
        if "within" in kinds:
            answer["within"] = np.empty((len(sources), len(radii)), mass.dtype)
        fields = [answer[name] for name in types if name in kinds]
        for begin in range(0, max(len(radii), 1), _RADII):
            some = radii[begin : begin + _RADII]
            mask = flags | _RADIUS * len(some)
            if len(some):
                mask |= KINDS["within"]
                mask |= weighed * (_REAL_MASS if mass.dtype.kind == "f" else _MASS)
                fields += list(answer["within"][:, begin : begin + _RADII].T)
            ends = xp.asarray(self._ends(some))
            results = xp.zeros((len(fields), room), np.int64)
            order = self._collect(
                sources, mask, results, batch, radii=address(ends), mass=address(given),
                **(histogram if begin == 0 else {}),
            )  # fmt: skip
            values = to_host(results)[:, : len(sources)]
            for one, line in zip(fields, values, strict=True):
                one[order] = line.view(one.dtype)
            fields, flags = [], 0
        if "bins" in kinds:
            answer["bins"] = to_host(bins).astype(np.int64)
        return answer

    def _collect(
        self, sources: Index, mask: int, results: Array, batch: int | None, **fields: int
    ) -> Index:
        """Fill a word for each source and field; the order of the sources."""
        view = self._views.get("statistics") or self._view(None)
        self._views["statistics"] = view
        order = np.arange(0)
        for run in self._batches(sources, view, len(results), batch):
            order = run.order
            begin = run.sweep(mask, **fields)
            groups = run.columns // self.shape.width
            each = run.share(view.slots, groups)
            stored = -(-view.slots // each) if view.slots else 0
            if stored:
                run.launch(
                    f"sr::Stored<Algebra, {self._shape}, {mask}>", self.shape.threads,
                    stored * groups, self._bin_room(fields.get("bin_count", 0)), each=each,
                    groups=groups, count=view.slots, part=begin, **fields,
                )  # fmt: skip
            if len(results):
                run.launch(
                    f"sr::Finish<Algebra, {mask}>", _LANES, -(-run.columns // _LANES), 0,
                    count=begin + stored, results=address(results) + 8 * run.begin,
                    room=results.shape[1],
                )  # fmt: skip
        return order

    @property
    def _shape(self) -> str:
        return f"{self.shape.threads}, {self.shape.each}"

    def _batches(
        self, sources: Index, view: _View, fields: int, batch: int | None
    ) -> Iterator[_Batch]:
        """The sources by ascending places, so that those of a group share their ancestors."""
        if not len(sources):
            return
        width = self.shape.width
        place = self.place[sources]
        order = np.argsort(place, kind="stable")
        groups = -(-len(sources) // width)
        columns = min(batch or self._columns(view, fields), groups * width) // width * width
        columns = max(columns, width)
        given = np.full((3, groups * width), -1, np.int32)
        given[:, : len(sources)] = place[order], order, sources[order]
        shared = _Shared(self, view, order, columns, fields, given)
        for begin in range(0, groups * width, columns):
            yield _Batch(shared, begin, min(columns, groups * width - begin))

    def _columns(self, view: _View, fields: int) -> int:
        """How many sources there is memory for at a time."""
        if self.here.index < 0:  # no device of its own memory
            return _SOURCES
        parts = 8 * fields * (1 + len(_CLASSES)) * (_BLOCKS * self.here.sms + 2 * _SOURCES)
        core = 3 * self.size * self.structure.core
        free = _SHARE * (free_memory() or 0) - parts
        return int(min(_SOURCES, max(free, 0) // (self.size * view.slots + core + 1)))

    def _visits(self, places: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The regions of each group's sources and those above them, ascending."""
        f, count = self.pieces, max(len(self.pieces.leaf), 1)
        inside = (places >= 0) & (places < self.structure.eliminated)
        group, _ = np.nonzero(inside)
        seen = np.zeros(len(places) * count, bool)
        seen[group * count + f.of_place[places[inside]]] = True
        key = np.flatnonzero(seen)
        while len(key):
            group, at = np.divmod(key, count)
            above = f.parent[at]
            key = (group * count + above)[above >= 0]
            key = key[~seen[key]]
            seen[key] = True
        group, at = np.divmod(np.flatnonzero(seen), count)
        first = np.searchsorted(group, np.arange(len(places) + 1)).astype(np.int32)
        return first, at.astype(np.int32)


class _Shared:
    """Memory of all batches of one call, one of which is computed at a time."""

    def __init__(
        self, sweeps: FactorSweeps, view: _View, order: Index, columns: int, fields: int,
        given: NDArray[np.int32],
    ) -> None:  # fmt: skip
        xp, x, shape = sweeps.here.xp, sweeps.structure, sweeps.shape
        self.sweeps, self.view, self.order, self.given = sweeps, view, order, given
        self.sources = dict(zip(("sources", "lines", "origin"), map(from_host, given), strict=True))
        self.labels = xp.empty((view.slots, columns), sweeps.compute)
        marked = shape.threads * shape.narrow
        self.visited = xp.empty((len(sweeps.words), columns // marked), np.uint8)
        blocks = _BLOCKS * sweeps.here.sms // (columns // shape.width) + 2
        self.parts = xp.empty(((1 + len(_CLASSES)) * blocks + _OWN, fields, columns), np.int64)
        self.rise = sweeps._launch(0, np.arange(len(sweeps.words)), up=True)
        self.own = sweeps._launch(0, np.flatnonzero(view.own))
        self.fields: dict[str, int] = {
            "down": address(sweeps.down), "up": address(sweeps.up),
            "regions": address(sweeps._regions), "nodes": address(view.nodes),
            "outer": address(view.outer), "order": address(view.order),
            "visited": address(self.visited), "labels": address(self.labels),
            "names": address(view.names), "parts": address(self.parts),
            "zero": bits_of(sweeps.zero, sweeps.compute),
            "one": bits_of(sweeps.one, sweeps.compute), "fringe": x.eliminated, "core": x.core,
            "marked": marked,
        }  # fmt: skip


class _Batch:
    """Some sources, from the first one on, in one matrix of labels."""

    def __init__(self, shared: _Shared, begin: int, columns: int) -> None:
        self.shared, self.sweeps, self.order = shared, shared.sweeps, shared.order
        self.begin, self.columns = begin, columns
        # computed while the device is at the batch before
        places = shared.given[0, begin : begin + columns].reshape(-1, shared.fields["marked"])
        first, at = self.sweeps._visits(places)
        apart = shared.view.own[at]
        own_first = offsets(apart)[first]
        self.most = int(np.diff(own_first).max(initial=0))  # regions of a group that are apart
        self.visits = tuple(map(from_host, (first, at, own_first.astype(np.int32), at[apart])))
        names = ("visit_first", "visits", "own_first", "own")
        given = dict(zip(names, map(address, self.visits), strict=True))
        self.own = {"visit_first": given.pop("own_first"), "visits": given.pop("own")}
        self.fields = shared.fields | given | {"columns": columns}
        self.fields |= {name: address(x) + 4 * begin for name, x in shared.sources.items()}

    def launch(self, body: str, threads: int, blocks: int, shared: int, **fields: int) -> None:
        """Run a struct of ``kernels/sweep.cuh``."""
        bounds = f"{threads}, 4" if threads < _LANES else str(threads)  # room for 128 registers
        params, text = struct_of("SweepParams"), algebra(self.sweeps.plan)
        source = entry("sweep.cuh", params, f"{body}::run", bounds, text)
        launch(source, params, blocks, threads, shared, self.fields | fields)

    def share(self, count: int, groups: int) -> int:
        """Of so many regions or slots those of a block."""
        return max(1, -(-count * groups // (_BLOCKS * self.sweeps.here.sms)))

    def sweep(self, kinds: int, **fields: int) -> int:
        """Compute all labels, and statistics of leaf regions; the number of their parts."""
        shared, sweeps = self.shared, self.sweeps
        x, view = sweeps.structure, shared.view
        shared.visited[...] = 0
        self._regions("Rise", shared.rise, sweeps.shape.narrow, 1)
        if x.core:
            self._close(shared.labels.reshape(-1)[: view.slots * self.columns])
        for some in view.upper:
            self._regions("Fall", some, sweeps.shape.narrow, kinds=", 0")
        part = blocks = min(self.most, _OWN)
        if blocks:
            self._regions(
                "Own", replace(shared.own, rows=shared.own.rows + shared.own.nodes),
                sweeps.shape.narrow, blocks, kinds=f", {kinds}", each=blocks,
                row_room=shared.own.rows, **self.own, **fields,
            )  # fmt: skip
        for some in view.leaves:
            part += self._regions(
                "Fall", some, sweeps.shape.each, kinds=f", {kinds}", part=part, **fields
            )
        return part

    def _regions(
        self, name: str, some: _Launch, width: int, blocks: int = 0, *, kinds: str = "",
        **fields: int,
    ) -> int:  # fmt: skip
        """Launch blocks with `width` sources of a thread; how many there are for each group."""
        sweeps, threads = self.sweeps, self.sweeps.shape.threads
        groups = self.columns // (threads * width)
        each = fields.pop("each", self.share(some.count, groups))
        blocks = blocks or -(-some.count // each)
        shared = (
            16 * (some.nodes + 1) + _record(sweeps.size) * (some.edges + _AHEAD)
            + some.rows * threads * width * sweeps.size
            + sweeps._bin_room(fields.get("bin_count", 0))
        )  # fmt: skip
        self.launch(
            f"sr::{name}<Algebra, {threads}, {width}{kinds}>", threads, blocks * groups, shared,
            order=self.fields["order"] + 4 * some.begin, count=some.count, groups=groups,
            each=each, node_room=some.nodes + 1, edge_room=some.edges + _AHEAD, **fields,
        )  # fmt: skip
        return blocks

    def _close(self, labels: Array) -> None:
        """The labels of the core: what has risen to it, times its closure."""
        sweeps, factor = self.sweeps, self.sweeps.factor
        xp, x = sweeps.here.xp, sweeps.structure
        core = labels.reshape(-1, self.columns)[: x.core]
        risen = stored(sweeps.plan, core, factor.dtype)
        zero = factor.semiring.identities(factor.dtype)[0]
        closed = xp.full((x.core, self.columns), zero, factor.dtype)
        product(
            factor.semiring, risen.T[np.newaxis], sweeps.core[np.newaxis], closed.T[np.newaxis],
            JOIN, known=factor.known,
        )  # fmt: skip
        core[...] = _computed(xp, sweeps.plan, closed, sweeps.compute)


def _plan(xp: Any, factor: Factor, bound: float | None) -> Plan:
    """How the device computes: as the CPU does, but in words and without tests where it can."""
    plan, x = factor.plan, factor.structure
    if plan.codec == "bits":
        return bytewise(plan)
    if plan.codec != "sentinel" or joins(plan.mul) != "+" or not factor.semiring.selective:
        return plan
    sign = 1 if plan.infinite > 0 else -1
    largest = 0
    for weight, infinite in (
        (factor.out, plan.infinite), (factor.back, plan.infinite), (factor.core, plan.missing),
    ):  # fmt: skip
        finite = xp.asarray(weight)
        finite = finite[finite != infinite]
        if finite.size == 0:
            continue
        if sign * finite.min() < 0 or sign * finite.max() < 0:
            return plan  # infinity plus a weight may lie on either side of infinity
        edges = 1 if weight is factor.core else int(x.height.max(initial=0)) + 1
        largest += edges * max(abs(int(finite.min())), abs(int(finite.max())))
    # Infinity plus any weight is no smaller, and no path is as long: no test for it is needed. What
    # is longer than the longest of the best paths may be taken for infinite.
    largest = largest if bound is None else math.ceil(bound)
    for bits in (32, 64):
        far = (1 << (bits - 2)) - 1
        if largest < far - far // 4:  # from where on Algebra::encode stores it as infinite
            return replace(
                plan, compute=f"i{bits}", infinite=sign * far, start=sign * far, annihilate=False
            )
    return plan


def _computed(xp: Any, plan: Plan, x: Array, dtype: np.dtype[Any]) -> Array:
    """The reverse of :func:`.plan.stored`."""
    if plan.codec == "mask":
        return -(x.astype(dtype))
    values = x.astype(dtype)
    return values if plan.missing is None else xp.where(
        x == plan.missing, dtype.type(plan.infinite), values
    )  # fmt: skip
