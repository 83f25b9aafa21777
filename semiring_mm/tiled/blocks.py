"""Executor over a matrix that is spread block-cyclically over several devices.

Tile (i, j) is on device (i mod r, j mod c) of r x c. Each device holds its tiles as one matrix,
side by side, so that an update of many tiles is a few large products. The pivot row and column of a
step are sent tile by tile, into panels in which a tile is contiguous: each message is one copy.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, product
from typing import Any

import numpy as np

from ..closures.elimination import Grid, eliminate
from ..closures.steps import Steps
from ..memory import too_large
from ..naming import named
from ..progress import Tick
from .devices import Device, Mark
from .timeline import Timeline

__all__ = ["Blocks", "beyond_devices", "shape_of"]

Array = Any
#: Reads (rows, columns) of an operand, as an array of this namespace or of the host.
Read = Callable[[slice, slice, Any], Array]
_SETS = 2  # of panels: of this step, and of the next


def beyond_devices(what: str, needed: int | None, free: int | None) -> MemoryError:
    """The error for work that needs more than devices have."""
    return too_large(
        what, needed, free, "take more devices, float32 (half of float64), or "
        f"{named('tiles.out')} and {named('tiles.memory')}",
    )  # fmt: skip


def shape_of(count: int) -> tuple[int, int]:
    """Rows and columns of the grid of devices, as square as possible."""
    rows = max(x for x in range(1, math.isqrt(count) + 1) if count % x == 0)
    return rows, count // rows


class _Tiles:
    """The rows (or columns) of tiles that a device holds: each `step`-th from `first` on."""

    def __init__(self, grid: Grid, first: int, step: int) -> None:
        self.grid, self.step = grid, step
        self.all = range(first, grid.count, step)
        self.lines = sum(grid.size(i) for i in self.all)

    def at(self, i: int) -> slice:
        """Lines of tile i in the device's matrix."""
        begin = i // self.step * self.grid.tile
        return slice(begin, begin + self.grid.size(i))

    def runs(self, chosen: Sequence[int]) -> Iterator[slice]:
        """Lines of the chosen tiles in the device's matrix, adjacent tiles as one slice."""
        own = [i for i in chosen if i in self.all]
        while own:
            count = 1
            while count < len(own) and own[count] == own[0] + count * self.step:
                count += 1
            yield slice(self.at(own[0]).start, self.at(own[count - 1]).stop)
            own = own[count:]


class _Panels:
    """A device's pivot panels of one step: left factors (rows, k) and right ones (k, columns)."""

    def __init__(self, xp: Any, dtype: Any, grid: Grid, rows: _Tiles, columns: _Tiles) -> None:
        self._left = xp.empty(rows.lines * grid.tile, dtype)
        self._right = xp.empty(columns.lines * grid.tile, dtype)
        self.arrived: list[Mark] = []  # copies into the panels, for which updates wait
        self.sent: list[Mark] = []  # copies out of them, to be awaited before they are refilled
        self.before: list[Mark] = []  # the last copy out of them in the step that used them before
        self.kept: list[Array] = []  # sources of `sent`, alive until the panels are refilled

    def left(self, lines: slice, depth: int) -> Array:
        return self._left[lines.start * depth : lines.stop * depth].reshape(-1, depth)

    def right(self, lines: slice, depth: int) -> Array:
        return self._right[lines.start * depth : lines.stop * depth].reshape(depth, -1)


class _Part:
    """A device's tiles of D and, if they are wanted, of P, and its panels."""

    def __init__(self, device: Device, rows: _Tiles, columns: _Tiles) -> None:
        self.device, self.rows, self.columns = device, rows, columns
        self.matrices: list[Array] = []
        self.panels: list[list[_Panels]] = []  # of each step in turn, for each matrix
        self.diagonal: tuple[Array, Array | None] = None, None
        self.done: list[Mark] = []
        self.pairs = 0.0

    def allocate(self, grid: Grid, dtypes: Sequence[np.dtype[Any]]) -> None:
        xp = self.device.engine.xp
        self.matrices = [xp.empty((self.rows.lines, self.columns.lines), x) for x in dtypes]
        self.panels = [
            [_Panels(xp, x, grid, self.rows, self.columns) for x in dtypes] for _ in range(_SETS)
        ]

    def at(self, i: int, j: int) -> tuple[slice, slice]:
        """Tile (i, j) in the device's matrices."""
        return self.rows.at(i), self.columns.at(j)

    def cut(self, rows: slice, columns: slice) -> tuple[Array, Array | None]:
        """A rectangle of D, and of P."""
        d, p = (*(x[rows, columns] for x in self.matrices), None)[:2]
        return d, p


class Blocks:
    """Executor of eliminations over a matrix of n rows in the memory of several devices.

    Once :meth:`run` has returned, ``seconds`` is the elimination's time and ``sent`` has the bytes
    between devices.
    """

    def __init__(
        self, devices: Sequence[Device], n: int, tile: int, steps: Steps,
        timeline: Timeline | None = None,
    ) -> None:  # fmt: skip
        self.steps, self.timeline, self.devices = steps, timeline, list(devices)
        self.dtypes = [steps.dtype, np.dtype(np.int32)][: 1 + steps.predecessors]
        self.grid = Grid(n, tile)
        self.height, self.width = shape_of(len(self.devices))
        rows = [_Tiles(self.grid, r, self.height) for r in range(self.height)]
        columns = [_Tiles(self.grid, c, self.width) for c in range(self.width)]
        self._parts = [
            _Part(device, *at) for device, at in zip(devices, product(rows, columns), strict=True)
        ]
        self.seconds, self.sent = 0.0, 0
        self._tick: Tick | None = None
        self._history: list[dict[str, float]] = []
        self._spans: list[tuple[Device, str, str, int, Mark, Mark]] = []

    # --- which device has what ------------------------------------------------------------------

    def _at(self, r: int, c: int) -> _Part:
        """The device of tile (r, c)."""
        return self._parts[r % self.height * self.width + c % self.width]

    def _kept(self, i: int, j: int) -> bool:
        return i <= j or not self.steps.symmetric

    @property
    def pairs(self) -> float:
        """Pairs of all steps together."""
        n = float(self.grid.n)
        return n * n * (n + self.grid.tile) / 2 if self.steps.symmetric else n**3

    def needed(self) -> int:
        """Bytes that the fullest device needs, without temporary memory of products."""
        return max(map(self._needed, self._parts))

    def _needed(self, part: _Part) -> int:
        rows, columns = part.rows.lines, part.columns.lines
        longer = max(rows, columns)  # copied for products in place
        panels = (_SETS * (rows + columns) + longer) * self.grid.tile
        if self.steps.symmetric:  # tiles that others need transposed
            panels += _SETS * longer * self.grid.tile
        return sum(x.itemsize for x in self.dtypes) * (rows * columns + panels + self.grid.tile**2)

    # --- in and out -----------------------------------------------------------------------------

    def load(self, read: Read) -> None:
        """Fill the matrix with blocks that `read` returns in the dtype of the computation."""
        with ThreadPoolExecutor(len(self.devices)) as pool:
            list(pool.map(lambda part: self._load(read, part), self._parts))

    def _load(self, read: Read, part: _Part) -> None:
        with part.device:
            try:
                part.allocate(self.grid, self.dtypes)
            except MemoryError as error:  # CuPy's is one, too
                what = (
                    f"{part.device.name}: a part of {part.rows.lines} x {part.columns.lines} of "
                    f"the matrix in {self.steps.dtype}"
                )
                raise beyond_devices(what, self._needed(part), None) from error
            xp = part.device.engine.xp
            for i, j in product(part.rows.all, part.columns.all):
                if self._kept(i, j):
                    own = self.grid.part(i), self.grid.part(j)
                    block = _on_device(part.device, read(*own, xp))
                    p = self.steps.begin(xp, block, *own)
                    for matrix, x in zip(part.matrices, (block, p), strict=False):
                        matrix[part.at(i, j)] = x

    def read(self, rows: slice, columns: slice, which: int = 0) -> Array:
        """Any rectangle of the matrix, or with `which` = 1 of the predecessors, on the host."""
        shape = rows.stop - rows.start, columns.stop - columns.start
        result, tile = np.empty(shape, self.dtypes[which]), self.grid.tile
        down, across = (range(x.start // tile, -(-x.stop // tile)) for x in (rows, columns))
        for i, j in product(down, across):
            order = 1 if self._kept(i, j) else -1  # or the transpose of tile (j, i)
            x, y = (i, j)[::order]
            wanted, part = (rows, columns)[::order], self._at(x, y)
            places = (
                _overlap(self.grid.part(lines), at, some)
                for lines, at, some in zip((x, y), part.at(x, y), wanted, strict=True)
            )
            here, there = zip(*places, strict=True)
            with part.device:
                block = part.device.engine.to_host(part.matrices[which][here])
            result[there[::order]] = block if order == 1 else block.T
        return result

    # --- the run --------------------------------------------------------------------------------

    def run(self, tick: Tick | None = None) -> None:
        """Close the matrix; return when all devices are done."""
        self._tick = tick
        for device in self.devices:
            device.start()
        start = time.perf_counter()
        try:
            eliminate(self.grid.count, self)
        except MemoryError as error:  # of a device, beside the tiles
            what = f"the work of a device in addition to its tiles ({error})"
            raise beyond_devices(what, None, None) from error
        finally:  # nothing of an interrupted run goes on
            for part in self._parts:
                for panels in chain(*part.panels):
                    part.device.after(panels.sent)
                end = part.device.time(part.device.mark())
                self.seconds = max(self.seconds, end - start)
        if tick is not None:
            tick(sum(x.pairs for x in self._parts), self._by_name())
        if self.timeline is not None:
            self.timeline.origin = start
            for device, lane, what, k, begin, until in self._spans:
                self.timeline.note(
                    device.name, lane, what, k, device.time(begin), device.time(until)
                )

    def _by_name(self) -> dict[str, float]:
        return {part.device.name: part.pairs for part in self._parts}

    @contextmanager
    def _computing(self, device: Device, what: str, k: int) -> Iterator[Any]:
        with device:
            begin = device.mark() if self.timeline is not None else None
            yield device.engine
            if self.timeline is not None:
                self._spans.append((device, "compute", what, k, begin, device.mark()))

    def pivot(self, k: int) -> None:
        """See :class:`Executor`."""
        for part in self._parts:  # nothing overwrites panels of step k - 2 before they are sent
            for panels in part.panels[k % _SETS]:
                part.device.after(panels.sent)
                panels.before, panels.sent = panels.sent[-1:], []
                panels.kept.clear()
        self._close(k)
        for j in range(self.grid.count):  # row k as right factors, column k as left ones
            self._send_tile(k, j, "right")
            self._send_tile(k, j, "left")

    def _close(self, k: int) -> None:
        """Close the diagonal tile, and multiply row and column k by it, on their own devices."""
        steps, owner, size = self.steps, self._at(k, k), float(self.grid.size(k))
        for part in self._parts:
            part.diagonal = None, None
        with self._computing(owner.device, "close", k) as engine:
            d, p = owner.cut(*owner.at(k, k))
            steps.close(engine, d, p, k * self.grid.tile)
            owner.pairs += size**3
            owner.diagonal = d.copy(), None if p is None else p.copy()
            ready = owner.device.mark()
        across = [self._at(k, c) for c in range(self.width)]
        down = [self._at(r, k) for r in range(self.height)]
        for part in {*across, *down} - {owner}:
            self._copy_diagonal(owner, part, ready, k)
        others = [i for i in range(self.grid.count) if i != k]
        for part in across:
            with self._computing(part.device, "row", k) as engine:
                for run in part.columns.runs([j for j in others if self._kept(k, j)]):
                    steps.row(engine, part.diagonal[0], *part.cut(part.rows.at(k), run))
                    part.pairs += size**2 * (run.stop - run.start)
        for part in down:
            with self._computing(part.device, "column", k) as engine:
                for run in part.rows.runs([i for i in others if self._kept(i, k)]):
                    d, p = part.cut(run, part.columns.at(k))
                    steps.column(engine, d, part.diagonal[0], p, part.diagonal[1])
                    part.pairs += size**2 * (run.stop - run.start)

    def _copy_diagonal(self, owner: _Part, part: _Part, ready: Mark, k: int) -> None:
        """Copy the closed diagonal tile to another device."""
        own, copies = owner.panels[k % _SETS][0], []
        with part.device as device:
            for x in filter(lambda x: x is not None, owner.diagonal):
                into = device.engine.xp.empty(x.shape, x.dtype)
                copied = owner.device.send(x, device, into, [ready, device.mark()])
                device.after([copied])
                own.sent.append(copied)
                own.kept.append(x)
                self.sent += x.nbytes
                copies.append(into)
        d, p = (*copies, None)[:2]
        part.diagonal = d, p

    def _send_tile(self, k: int, j: int, side: str) -> None:
        """Send a tile of row or column k to all devices that need it as a factor.

        Of a symmetric matrix it may be kept as the transpose of another tile.
        """
        right, turn = side == "right", k % _SETS
        order = 1 if self._kept(*((k, j) if right else (j, k))) else -1
        at = ((k, j) if right else (j, k))[::order]
        if right:
            needing = {x: x.columns.at(j) for x in (self._at(r, j) for r in range(self.height))}
        else:
            needing = {x: x.rows.at(j) for x in (self._at(j, c) for c in range(self.width))}
        owner = self._at(*at)
        for which, matrix in enumerate(owner.matrices[: 1 + right]):  # left factors are of D alone
            pieces = {
                part: getattr(part.panels[turn][which], side)(lines, self.grid.size(k))
                for part, lines in needing.items()
            }
            with owner.device:
                tile = matrix[owner.at(*at)]
                tile = tile if order == 1 else tile.T
                stage = pieces.pop(owner, None)
                if stage is None:  # the owner itself does not need it
                    stage = tile.copy()  # D is updated while the copy is on its way
                else:
                    stage[...] = tile
                ready = owner.device.mark()
            own = owner.panels[turn][which]
            own.kept.append(stage)
            for part, piece in pieces.items():
                theirs = part.panels[turn][which]
                free = [*part.done[-1:], *theirs.before]
                copied = owner.device.send(stage, part.device, piece, [ready, *free])
                own.sent.append(copied)
                theirs.arrived.append(copied)
                self.sent += stage.nbytes
                if self.timeline is not None:
                    self._spans.append((owner.device, "send", "tile", k, ready, copied))

    def update(self, k: int, rows: Sequence[int], columns: Sequence[int]) -> None:
        """See :class:`Executor`."""
        depth = self.grid.size(k)
        for part in self._parts:
            panels = part.panels[k % _SETS]
            with self._computing(part.device, "update", k) as engine:
                for x in panels:
                    part.device.after(x.arrived)
                    x.arrived.clear()
                for j in columns:
                    if j not in part.columns.all:
                        continue
                    across = part.columns.at(j)
                    right, p_right = (*(x.right(across, depth) for x in panels), None)[:2]
                    for run in part.rows.runs([i for i in rows if self._kept(i, j)]):
                        left, (d, p) = panels[0].left(run, depth), part.cut(run, across)
                        self.steps.update(engine, left, right, d, p, p_right)
                        pairs = float(run.stop - run.start) * (across.stop - across.start) * depth
                        part.pairs += pairs

    def finish(self, k: int) -> None:
        """See :class:`Executor`."""
        self._history.append(self._by_name())
        for part in self._parts:
            with part.device:
                part.done.append(part.device.mark())
        if len(self._history) <= _SETS:
            return
        for part in self._parts:  # at most two steps are queued ahead of the finished ones
            part.device.wait(part.done[-1 - _SETS])
            del part.done[:-_SETS]
        parts = self._history[-1 - _SETS]
        if self._tick is not None:
            self._tick(sum(parts.values()), parts)


def _on_device(device: Device, block: Array) -> Array:
    """Copy a block to the device if it is on the host."""
    host = isinstance(block, np.ndarray) and device.engine.xp is not np
    return device.engine.from_host(block) if host else block


def _overlap(lines: slice, at: slice, wanted: slice) -> tuple[slice, slice]:
    """The wanted lines of a tile: in the device's matrix, where it lies `at`, and in the result."""
    begin, end = max(lines.start, wanted.start), min(lines.stop, wanted.stop)
    shift = at.start - lines.start
    return slice(begin + shift, end + shift), slice(begin - wanted.start, end - wanted.start)
