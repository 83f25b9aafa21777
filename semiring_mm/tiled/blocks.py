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
from itertools import product
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


class Blocks:
    """Executor of eliminations over a matrix in the memory of several devices.

    Parameters
    ----------
    devices : sequence of Device
    n : int
        Rows of the matrix.
    tile : int
    steps : Steps
    timeline : Timeline, optional

    Attributes
    ----------
    seconds : float
        The elimination's, once :meth:`run` has returned.
    sent : int
        Bytes between devices.
    """

    def __init__(
        self, devices: Sequence[Device], n: int, tile: int, steps: Steps,
        timeline: Timeline | None = None,
    ) -> None:  # fmt: skip
        self.steps, self.timeline = steps, timeline
        self.devices = list(devices)
        self.grid = Grid(n, tile)
        self.height, self.width = shape_of(len(self.devices))
        self.rows = [_Tiles(self.grid, r, self.height) for r in range(self.height)]
        self.columns = [_Tiles(self.grid, c, self.width) for c in range(self.width)]
        self.seconds, self.sent = 0.0, 0
        self._d: dict[Device, Array] = {}
        self._p: dict[Device, Array] = {}
        self._panels: dict[Device, list[_Panels]] = {}
        self._p_panels: dict[Device, list[_Panels]] = {}
        self._diagonal: dict[Device, tuple[Array, Array | None]] = {}
        self._tick: Tick | None = None
        self._done: dict[Device, list[Mark]] = {x: [] for x in self.devices}
        self._pairs = dict.fromkeys(self.devices, 0.0)
        self._history: list[dict[str, float]] = []
        self._spans: list[tuple[Device, str, str, int, Mark, Mark]] = []

    # --- which device has what ------------------------------------------------------------------

    def _at(self, r: int, c: int) -> Device:
        """The device of tile (r, c)."""
        return self.devices[r % self.height * self.width + c % self.width]

    def _parts(self) -> Iterator[tuple[Device, _Tiles, _Tiles]]:
        for r, c in product(range(self.height), range(self.width)):
            yield self._at(r, c), self.rows[r], self.columns[c]

    def _kept(self, i: int, j: int) -> bool:
        return i <= j or not self.steps.symmetric

    @property
    def pairs(self) -> float:
        """Pairs of all steps together."""
        n = float(self.grid.n)
        return n * n * (n + self.grid.tile) / 2 if self.steps.symmetric else n**3

    def needed(self) -> int:
        """Bytes that the fullest device needs, without temporary memory of products."""
        return max(self._needed(rows, columns) for _, rows, columns in self._parts())

    def _needed(self, rows: _Tiles, columns: _Tiles) -> int:
        entry = self.steps.dtype.itemsize + 4 * self.steps.predecessors
        longer = max(rows.lines, columns.lines)  # copied for products in place
        panels = (_SETS * (rows.lines + columns.lines) + longer) * self.grid.tile
        if self.steps.symmetric:  # tiles that others need transposed
            panels += _SETS * longer * self.grid.tile
        return entry * (rows.lines * columns.lines + panels + self.grid.tile**2)

    # --- in and out -----------------------------------------------------------------------------

    def load(self, read: Read) -> None:
        """Fill the matrix with blocks that `read` returns in the dtype of the computation."""
        with ThreadPoolExecutor(len(self.devices)) as pool:
            list(pool.map(lambda part: self._load(read, *part), self._parts()))

    def _load(self, read: Read, device: Device, rows: _Tiles, columns: _Tiles) -> None:
        with device:
            xp, dtype = device.engine.xp, self.steps.dtype
            self._allocate(device, rows, columns)
            for i, j in product(rows.all, columns.all):
                if not self._kept(i, j):
                    continue
                at = (rows.at(i), columns.at(j))
                own = (self.grid.part(i), self.grid.part(j))
                block = _on_device(device, read(*own, xp))
                p = self.steps.begin(xp, block, *own)
                if p is not None:
                    self._p[device][at] = p
                self._d[device][at] = block.astype(dtype, copy=False)

    def _allocate(self, device: Device, rows: _Tiles, columns: _Tiles) -> None:
        xp, dtype = device.engine.xp, self.steps.dtype
        shape = (rows.lines, columns.lines)
        try:
            self._d[device] = xp.empty(shape, dtype)
            panels = [_Panels(xp, dtype, self.grid, rows, columns) for _ in range(_SETS)]
            self._panels[device] = panels
            if self.steps.predecessors:
                self._p[device] = xp.empty(shape, np.int32)
                p_panels = [_Panels(xp, np.int32, self.grid, rows, columns) for _ in range(_SETS)]
                self._p_panels[device] = p_panels
        except MemoryError as error:  # CuPy's is one, too
            part = f"{device.name}: a part of {shape[0]} x {shape[1]} of the matrix in {dtype}"
            raise beyond_devices(part, self._needed(rows, columns), None) from error

    def read(self, rows: slice, columns: slice) -> Array:
        """Any rectangle of the matrix, on the host."""
        return self._read(self._d, self.steps.dtype, rows, columns)

    def read_predecessors(self, rows: slice, columns: slice) -> Array:
        """Any rectangle of the predecessors, on the host."""
        return self._read(self._p, np.dtype(np.int32), rows, columns)

    def _read(
        self, held: dict[Device, Array], dtype: np.dtype[Any], rows: slice, columns: slice
    ) -> Array:
        result = np.empty((rows.stop - rows.start, columns.stop - columns.start), dtype)
        tile = self.grid.tile

        def tiles(wanted: slice) -> range:
            return range(wanted.start // tile, -(-wanted.stop // tile))

        def part(i: int, j: int, wanted: slice, other: slice, *, transposed: bool) -> None:
            device = self._at(i, j)
            own, across = (wanted, other) if not transposed else (other, wanted)
            x, to_x = _overlap(self.grid.part(i), self.rows[i % self.height].at(i), own)
            y, to_y = _overlap(self.grid.part(j), self.columns[j % self.width].at(j), across)
            with device:
                block = device.engine.to_host(held[device][x, y])
            if transposed:
                result[to_y, to_x] = block.T
            else:
                result[to_x, to_y] = block

        for i, j in product(tiles(rows), tiles(columns)):
            if self._kept(i, j):
                part(i, j, rows, columns, transposed=False)
            else:
                part(j, i, rows, columns, transposed=True)
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
            for device in self.devices:
                for held in (self._panels, self._p_panels):
                    for panels in held.get(device, ()):
                        device.after(panels.sent)
                self.seconds = max(self.seconds, device.time(device.mark()) - start)
        if tick is not None:
            tick(sum(self._pairs.values()), self._by_name())
        if self.timeline is not None:
            self.timeline.origin = start
            for device, lane, what, k, begin, end in self._spans:
                self.timeline.note(device.name, lane, what, k, device.time(begin), device.time(end))

    def _by_name(self) -> dict[str, float]:
        return {device.name: pairs for device, pairs in self._pairs.items()}

    @contextmanager
    def _computing(self, device: Device, what: str, k: int) -> Iterator[Any]:
        with device:
            begin = device.mark() if self.timeline is not None else None
            yield device.engine
            if self.timeline is not None:
                self._spans.append((device, "compute", what, k, begin, device.mark()))

    def pivot(self, k: int) -> None:
        """See :class:`Executor`."""
        for device in self.devices:  # nothing overwrites panels of step k - 2 before they are sent
            for panels in (self._panels[device][k % _SETS], *self._p_of(device, k)):
                device.after(panels.sent)
                panels.before, panels.sent = panels.sent[-1:], []
                panels.kept.clear()
        self._close(k)
        self._share_panels(k)

    def _p_of(self, device: Device, k: int) -> list[_Panels]:
        return [self._p_panels[device][k % _SETS]] if self.steps.predecessors else []

    def _close(self, k: int) -> None:
        """Close the diagonal tile, and multiply row and column k by it, on their own devices."""
        steps, r0, c0 = self.steps, k % self.height, k % self.width
        owner, rows, columns = self._at(r0, c0), self.rows[r0], self.columns[c0]
        at = (rows.at(k), columns.at(k))
        with self._computing(owner, "close", k) as engine:
            d, p = self._d[owner][at], None
            if steps.predecessors:
                p = self._p[owner][at]
            steps.close(engine, d, p, k * self.grid.tile)
            self._pairs[owner] += float(len(d)) ** 3
            self._diagonal = {owner: (d.copy(), None if p is None else p.copy())}
            ready = owner.mark()
        across = {self._at(r0, c) for c in range(self.width)}
        down = {self._at(r, c0) for r in range(self.height)}
        for device in across | down:
            if device is not owner:
                self._diagonal[device] = self._copy_to(device, owner, ready, k)
        others = [i for i in range(self.grid.count) if i != k]
        for c in range(self.width):
            device, own = self._at(r0, c), self.columns[c]
            with self._computing(device, "row", k) as engine:
                diagonal, _ = self._diagonal[device]
                for run in own.runs([j for j in others if self._kept(k, j)]):
                    block = (rows.at(k), run)
                    p = self._p[device][block] if steps.predecessors else None
                    steps.row(engine, diagonal, self._d[device][block], p)
                    self._pairs[device] += float(len(diagonal)) ** 2 * (run.stop - run.start)
        for r in range(self.height):
            device, own = self._at(r, c0), self.rows[r]
            with self._computing(device, "column", k) as engine:
                diagonal, p_diagonal = self._diagonal[device]
                for run in own.runs([i for i in others if self._kept(i, k)]):
                    block = (run, columns.at(k))
                    p = self._p[device][block] if steps.predecessors else None
                    steps.column(engine, self._d[device][block], diagonal, p, p_diagonal)
                    self._pairs[device] += float(len(diagonal)) ** 2 * (run.stop - run.start)

    def _copy_to(
        self, device: Device, owner: Device, ready: Mark, k: int
    ) -> tuple[Array, Array | None]:
        """Copy the closed diagonal tile to another device."""
        own = self._panels[owner][k % _SETS]
        copies: list[Array | None] = []
        with device:
            for x in self._diagonal[owner]:
                if x is None:
                    copies.append(None)
                    continue
                into = device.engine.xp.empty(x.shape, x.dtype)
                copied = owner.send(x, device, into, [ready, device.mark()])
                device.after([copied])
                own.sent.append(copied)
                own.kept.append(x)
                self.sent += x.nbytes
                copies.append(into)
        return copies[0], copies[1]

    def _share_panels(self, k: int) -> None:
        """Send row k as right factors and column k as left ones; if symmetric, each as both."""
        row, column = self.rows[k % self.height].at(k), self.columns[k % self.width].at(k)
        for j in range(self.grid.count):
            in_row = (self._at(k, j), (row, self.columns[j % self.width].at(j)))
            in_column = (self._at(j, k), (self.rows[j % self.height].at(j), column))
            right, left = self._kept(k, j), self._kept(j, k)
            self._send_tile(k, j, "right", *(in_row if right else in_column), transposed=not right)
            self._send_tile(k, j, "left", *(in_column if left else in_row), transposed=not left)

    def _send_tile(
        self, k: int, j: int, side: str, owner: Device, at: tuple[slice, slice], *, transposed: bool
    ) -> None:
        """Send a tile of row or column k to all devices that need it as a factor."""
        matrices = [(self._d, self._panels)]
        if self.steps.predecessors and side == "right":
            matrices.append((self._p, self._p_panels))
        for matrix, panels in matrices:
            pieces = {
                device: getattr(panels[device][k % _SETS], side)(tiles.at(j), self.grid.size(k))
                for device, tiles in self._needing(side, j)
            }
            with owner:
                tile = matrix[owner][at].T if transposed else matrix[owner][at]
                stage = pieces.pop(owner, None)
                if stage is None:  # the owner itself does not need it
                    stage = tile.copy()  # D is updated while the copy is on its way
                else:
                    stage[...] = tile
                ready = owner.mark()
            own = panels[owner][k % _SETS]
            own.kept.append(stage)
            for device, piece in pieces.items():
                free = [*self._done[device][-1:], *panels[device][k % _SETS].before]
                copied = owner.send(stage, device, piece, [ready, *free])
                own.sent.append(copied)
                panels[device][k % _SETS].arrived.append(copied)
                self.sent += stage.nbytes
                if self.timeline is not None:
                    self._spans.append((owner, "send", "tile", k, ready, copied))

    def _needing(self, side: str, j: int) -> Iterator[tuple[Device, _Tiles]]:
        if side == "right":
            for r in range(self.height):
                yield self._at(r, j), self.columns[j % self.width]
        else:
            for c in range(self.width):
                yield self._at(j, c), self.rows[j % self.height]

    def update(self, k: int, rows: Sequence[int], columns: Sequence[int]) -> None:
        """See :class:`Executor`."""
        depth = self.grid.size(k)
        for device, own_rows, own_columns in self._parts():
            panels, p_panels = self._panels[device][k % _SETS], self._p_of(device, k)
            with self._computing(device, "update", k) as engine:
                for x in (panels, *p_panels):
                    device.after(x.arrived)
                    x.arrived.clear()
                for j in columns:
                    if j not in own_columns.all:
                        continue
                    across = own_columns.at(j)
                    right = panels.right(across, depth)
                    p_right = p_panels[0].right(across, depth) if p_panels else None
                    for run in own_rows.runs([i for i in rows if self._kept(i, j)]):
                        p = self._p[device][run, across] if p_right is not None else None
                        self.steps.update(
                            engine, panels.left(run, depth), right, self._d[device][run, across], p,
                            p_right,
                        )  # fmt: skip
                        pairs = float(run.stop - run.start) * (across.stop - across.start) * depth
                        self._pairs[device] += pairs

    def finish(self, k: int) -> None:
        """See :class:`Executor`."""
        self._history.append(self._by_name())
        for device in self.devices:
            with device:
                self._done[device].append(device.mark())
        if len(self._history) <= _SETS:
            return
        for device in self.devices:  # at most two steps are queued ahead of the finished ones
            device.wait(self._done[device][-1 - _SETS])
            del self._done[device][:-_SETS]
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
