"""A matrix spread over several places, tile (i, j) at place (i mod r, j mod c) of r x c.

Each place holds its tiles as one matrix, side by side, so that an update of many tiles is a few
large products. What a step shares is sent as it is needed: rows of a place row's left factor lie
together in memory, and each tile of the right one does, so that every message is one piece.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import product
from typing import Any

import numpy as np

from ..closures.progress import Tick
from ..closures.schedule import Grid, eliminate, multiply
from ..closures.steps import Steps
from .devices import Mark, Place
from .timeline import Timeline

__all__ = ["Blocks", "shape_of"]

Array = Any
Read = Callable[[slice, slice, Any], Array]  # (rows, columns, namespace) -> a block, or on the host
_SETS = 2  # of what is shared: of this step, and of the next


def shape_of(count: int) -> tuple[int, int]:
    """Rows and columns of places, as square as can be."""
    rows = max(x for x in range(1, math.isqrt(count) + 1) if count % x == 0)
    return rows, count // rows


class _Tiles:
    """The tiles of a line (rows or columns) that one of several places has."""

    def __init__(self, grid: Grid, first: int, step: int) -> None:
        self.grid, self.step = grid, step
        self.all = range(first, grid.count, step)
        self.lines = sum(grid.size(i) for i in self.all)

    def at(self, i: int) -> slice:
        """Where tile i lies."""
        begin = i // self.step * self.grid.tile
        return slice(begin, begin + self.grid.size(i))

    def runs(self, chosen: Sequence[int]) -> Iterator[slice]:
        """Where the chosen ones of these tiles lie, in pieces without a gap."""
        own = [i for i in chosen if i in self.all]
        while own:
            count = 1
            while count < len(own) and own[count] == own[0] + count * self.step:
                count += 1
            yield slice(self.at(own[0]).start, self.at(own[count - 1]).stop)
            own = own[count:]


class _Share:
    """What a place has of one step's cross: left factors (rows, k) and right ones (k, columns)."""

    def __init__(self, xp: Any, dtype: Any, grid: Grid, rows: _Tiles, columns: _Tiles) -> None:
        self._left = xp.empty(rows.lines * grid.tile, dtype)
        self._right = xp.empty(columns.lines * grid.tile, dtype)
        self.arrived: list[Mark] = []  # copies that updates wait for
        self.sent: list[Mark] = []  # copies that who fills it anew waits for, ...
        self.before: list[Mark] = []  # ... and the last one of what is filled anew
        self.kept: list[Array] = []  # until then

    def left(self, lines: slice, depth: int) -> Array:
        return self._left[lines.start * depth : lines.stop * depth].reshape(-1, depth)

    def right(self, lines: slice, depth: int) -> Array:
        return self._right[lines.start * depth : lines.stop * depth].reshape(depth, -1)


class Blocks:
    """An executor over the memory of several places.

    Parameters
    ----------
    places : sequence of Place
    n : int
        Rows of the matrix; with `columns` and `depth` C ← A ⊗ B instead of an elimination.
    tile : int
    steps : Steps
    timeline : Timeline, optional

    Attributes
    ----------
    seconds : float
        The elimination's, once :meth:`run` has returned.
    sent : int
        Bytes between places.
    """

    def __init__(
        self, places: Sequence[Place], n: int, tile: int, steps: Steps,
        timeline: Timeline | None = None, *, columns: int | None = None, depth: int | None = None,
    ) -> None:  # fmt: skip
        self.steps, self.timeline = steps, timeline
        self.places = list(places)
        self.grid = Grid(n, tile)
        self.other = self.grid if columns is None else Grid(columns, tile)
        self.depth = None if depth is None else Grid(depth, tile)
        self.height, self.width = shape_of(len(self.places))
        self.rows = [_Tiles(self.grid, r, self.height) for r in range(self.height)]
        self.columns = [_Tiles(self.other, c, self.width) for c in range(self.width)]
        self.seconds, self.sent = 0.0, 0
        self._d: dict[Place, Array] = {}
        self._p: dict[Place, Array] = {}
        self._shares: dict[Place, list[_Share]] = {}
        self._p_shares: dict[Place, list[_Share]] = {}
        self._diagonal: dict[Place, tuple[Array, Array | None]] = {}
        self._tick: Tick | None = None
        self._done: dict[Place, list[Mark]] = {x: [] for x in self.places}
        self._pairs = dict.fromkeys(self.places, 0.0)
        self._history: list[dict[str, float]] = []
        self._spans: list[tuple[Place, str, str, int, Mark, Mark]] = []
        self._operands: tuple[Read, Read] | None = None

    # --- which place has what -------------------------------------------------------------------

    def _at(self, r: int, c: int) -> Place:
        return self.places[r % self.height * self.width + c % self.width]

    def _where(self) -> Iterator[tuple[Place, _Tiles, _Tiles]]:
        for r, c in product(range(self.height), range(self.width)):
            yield self._at(r, c), self.rows[r], self.columns[c]

    def _kept(self, i: int, j: int) -> bool:
        return i <= j or not self.steps.symmetric

    @property
    def pairs(self) -> float:
        """Pairs of all steps together."""
        n = float(self.grid.n)
        if self.depth is not None:
            return n * self.other.n * self.depth.n
        return n * n * (n + self.grid.tile) / 2 if self.steps.symmetric else n**3

    def needed(self) -> int:
        """Bytes of the place that needs most, what products use on the way not counted."""
        return max(self._needed(rows, columns) for _, rows, columns in self._where())

    def _needed(self, rows: _Tiles, columns: _Tiles) -> int:
        entry = self.steps.dtype.itemsize + 4 * self.steps.predecessors
        longer = max(rows.lines, columns.lines)  # copied for products in place
        panels = (_SETS * (rows.lines + columns.lines) + longer) * self.grid.tile
        if self.steps.symmetric:  # tiles that others need turned
            panels += _SETS * longer * self.grid.tile
        return entry * (rows.lines * columns.lines + panels + self.grid.tile**2)

    # --- in and out -----------------------------------------------------------------------------

    def load(self, read: Read) -> None:
        """Fill the matrix: `read` gives blocks in the type that is computed in."""
        with ThreadPoolExecutor(len(self.places)) as pool:
            list(pool.map(lambda where: self._load(read, *where), self._where()))

    def _load(self, read: Read, place: Place, rows: _Tiles, columns: _Tiles) -> None:
        with place:
            xp, dtype = place.engine.xp, self.steps.dtype
            self._allocate(place, rows, columns)
            for i, j in product(rows.all, columns.all):
                if not self._kept(i, j):
                    continue
                at = (rows.at(i), columns.at(j))
                own = (self.grid.part(i), self.other.part(j))
                block = _there(place, read(*own, xp))
                if self.depth is None:
                    p = self.steps.begin(xp, block, *own)
                    if p is not None:
                        self._p[place][at] = p
                self._d[place][at] = block.astype(dtype, copy=False)

    def _allocate(self, place: Place, rows: _Tiles, columns: _Tiles) -> None:
        xp, dtype = place.engine.xp, self.steps.dtype
        shape = (rows.lines, columns.lines)
        try:
            self._d[place] = xp.empty(shape, dtype)
            shared = [_Share(xp, dtype, self.grid, rows, columns) for _ in range(_SETS)]
            self._shares[place] = shared
            if self.steps.predecessors:
                self._p[place] = xp.empty(shape, np.int32)
                p_shared = [_Share(xp, np.int32, self.grid, rows, columns) for _ in range(_SETS)]
                self._p_shares[place] = p_shared
        except MemoryError as error:  # CuPy's is one, too
            raise MemoryError(
                f"{place.name}: a part of {shape[0]} x {shape[1]} of the matrix in {dtype} and "
                f"what goes with it need {self._needed(rows, columns) / 1e9:.3g} GB: take more "
                f"devices, float32, or out=PATH with memory_limit"
            ) from error

    def read(self, rows: slice, columns: slice) -> Array:
        """A block on the host, of any tiles."""
        return self._read(self._d, self.steps.dtype, rows, columns)

    def read_predecessors(self, rows: slice, columns: slice) -> Array:
        """A block of the predecessors on the host."""
        return self._read(self._p, np.dtype(np.int32), rows, columns)

    def _read(
        self, held: dict[Place, Array], dtype: np.dtype[Any], rows: slice, columns: slice
    ) -> Array:
        result = np.empty((rows.stop - rows.start, columns.stop - columns.start), dtype)
        tile = self.grid.tile

        def tiles(wanted: slice) -> range:
            return range(wanted.start // tile, -(-wanted.stop // tile))

        def part(i: int, j: int, wanted: slice, other: slice, *, turned: bool) -> None:
            place = self._at(i, j)
            own, across = (wanted, other) if not turned else (other, wanted)
            x, to_x = _overlap(self.grid.part(i), self.rows[i % self.height].at(i), own)
            y, to_y = _overlap(self.other.part(j), self.columns[j % self.width].at(j), across)
            with place:
                block = place.engine.to_host(held[place][x, y])
            if turned:
                result[to_y, to_x] = block.T
            else:
                result[to_x, to_y] = block

        for i, j in product(tiles(rows), tiles(columns)):
            if self._kept(i, j):
                part(i, j, rows, columns, turned=False)
            else:
                part(j, i, rows, columns, turned=True)
        return result

    # --- the run --------------------------------------------------------------------------------

    def run(self, tick: Tick | None = None) -> None:
        """Close the matrix; returns when all places are done."""
        self._run(tick, lambda: eliminate(self.grid.count, self))

    def multiply(self, a: Read, b: Read, tick: Tick | None = None) -> None:
        """C ← C ⊕ A ⊗ B for operands that are read by blocks."""
        assert self.depth is not None
        self._operands = (a, b)
        count = self.depth.count
        self._run(tick, lambda: multiply(self.grid.count, self.other.count, count, self))

    def _run(self, tick: Tick | None, work: Callable[[], None]) -> None:
        self._tick = tick
        for place in self.places:
            place.start()
        try:
            work()
        except MemoryError as error:  # of a device, beside the tiles
            raise MemoryError(
                f"a device had no memory left for the work beside its tiles ({error}): take more "
                f"devices, float32 (half of float64), or out=PATH with memory_limit"
            ) from error
        finally:  # nothing of an interrupted run goes on
            for place in self.places:
                for shares in (self._shares, self._p_shares):
                    for share in shares.get(place, ()):
                        place.after(share.sent)
                last = place.mark()
                place.wait(last)
                self.seconds = max(self.seconds, place.seconds(last))
        if tick is not None:
            tick(sum(self._pairs.values()), self._by_name())
        if self.timeline is not None:
            for place, lane, what, k, begin, end in self._spans:
                self.timeline.note(
                    place.name, lane, what, k, place.seconds(begin), place.seconds(end)
                )

    def _by_name(self) -> dict[str, float]:
        return {place.name: pairs for place, pairs in self._pairs.items()}

    @contextmanager
    def _computing(self, place: Place, what: str, k: int) -> Iterator[Any]:
        with place:
            begin = place.mark() if self.timeline is not None else None
            yield place.engine
            if self.timeline is not None:
                self._spans.append((place, "compute", what, k, begin, place.mark()))

    def pivot(self, k: int) -> None:
        """See :class:`Executor`."""
        for place in self.places:  # what was sent of step k - 2 is not written over before
            for share in (self._shares[place][k % _SETS], *self._p_share(place, k)):
                place.after(share.sent)
                share.before, share.sent = share.sent[-1:], []
                share.kept.clear()
        if self._operands is not None:
            self._read_operands(k)
        else:
            self._close(k)
            self._share_cross(k)

    def _p_share(self, place: Place, k: int) -> list[_Share]:
        return [self._p_shares[place][k % _SETS]] if self.steps.predecessors else []

    def _close(self, k: int) -> None:
        """The tile on the diagonal, and row and column k by it, where they lie."""
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
        for place in across | down:
            if place is not owner:
                self._diagonal[place] = self._copy_to(place, owner, ready, k)
        others = [i for i in range(self.grid.count) if i != k]
        for c in range(self.width):
            place, own = self._at(r0, c), self.columns[c]
            with self._computing(place, "row", k) as engine:
                diagonal, _ = self._diagonal[place]
                for run in own.runs([j for j in others if self._kept(k, j)]):
                    block = (rows.at(k), run)
                    p = self._p[place][block] if steps.predecessors else None
                    steps.row(engine, diagonal, self._d[place][block], p)
                    self._pairs[place] += float(len(diagonal)) ** 2 * (run.stop - run.start)
        for r in range(self.height):
            place, own = self._at(r, c0), self.rows[r]
            with self._computing(place, "column", k) as engine:
                diagonal, p_diagonal = self._diagonal[place]
                for run in own.runs([i for i in others if self._kept(i, k)]):
                    block = (run, columns.at(k))
                    p = self._p[place][block] if steps.predecessors else None
                    steps.column(engine, self._d[place][block], diagonal, p, p_diagonal)
                    self._pairs[place] += float(len(diagonal)) ** 2 * (run.stop - run.start)

    def _copy_to(
        self, place: Place, owner: Place, ready: Mark, k: int
    ) -> tuple[Array, Array | None]:
        """The closed tile at another place."""
        own = self._shares[owner][k % _SETS]
        copies: list[Array | None] = []
        with place:
            for x in self._diagonal[owner]:
                if x is None:
                    copies.append(None)
                    continue
                into = place.engine.xp.empty(x.shape, x.dtype)
                copied = owner.send(x, place, into, [ready, place.mark()])
                place.after([copied])
                own.sent.append(copied)
                own.kept.append(x)
                self.sent += x.nbytes
                copies.append(into)
        return copies[0], copies[1]

    def _share_cross(self, k: int) -> None:
        """Row k as right factors, column k as left ones; of a symmetric matrix each as both."""
        row, column = self.rows[k % self.height].at(k), self.columns[k % self.width].at(k)
        for j in range(self.grid.count):
            in_row = (self._at(k, j), (row, self.columns[j % self.width].at(j)))
            in_column = (self._at(j, k), (self.rows[j % self.height].at(j), column))
            right, left = self._kept(k, j), self._kept(j, k)
            self._give(k, j, "right", *(in_row if right else in_column), turned=not right)
            self._give(k, j, "left", *(in_column if left else in_row), turned=not left)

    def _give(
        self, k: int, j: int, side: str, owner: Place, at: tuple[slice, slice], *, turned: bool
    ) -> None:
        """A tile of the cross from where it lies to all who need it as a factor."""
        held = [(self._d, self._shares)]
        if self.steps.predecessors and side == "right":
            held.append((self._p, self._p_shares))
        for matrix, shares in held:
            pieces = {
                place: getattr(shares[place][k % _SETS], side)(tiles.at(j), self.grid.size(k))
                for place, tiles in self._needing(side, j)
            }
            with owner:
                tile = matrix[owner][at].T if turned else matrix[owner][at]
                stage = pieces.pop(owner, None)
                if stage is None:  # only to be sent on
                    stage = tile.copy()  # D goes on to be updated while it travels
                else:
                    stage[...] = tile
                ready = owner.mark()
            own = shares[owner][k % _SETS]
            own.kept.append(stage)
            for place, piece in pieces.items():
                free = [*self._done[place][-1:], *shares[place][k % _SETS].before]
                copied = owner.send(stage, place, piece, [ready, *free])
                own.sent.append(copied)
                shares[place][k % _SETS].arrived.append(copied)
                self.sent += stage.nbytes
                if self.timeline is not None:
                    self._spans.append((owner, "send", "tile", k, ready, copied))

    def _needing(self, side: str, j: int) -> Iterator[tuple[Place, _Tiles]]:
        if side == "right":
            for r in range(self.height):
                yield self._at(r, j), self.columns[j % self.width]
        else:
            for c in range(self.width):
                yield self._at(j, c), self.rows[j % self.height]

    def _read_operands(self, k: int) -> None:
        """Column k of A and row k of B, each place what it needs of them."""
        assert self.depth is not None
        assert self._operands is not None
        a, b = self._operands
        own, depth = self.depth.part(k), self.depth.size(k)
        for place, rows, columns in self._where():
            share = self._shares[place][k % _SETS]
            with place:
                xp = place.engine.xp
                for i in rows.all:
                    block = a(self.grid.part(i), own, xp)
                    share.left(rows.at(i), depth)[...] = _there(place, block)
                for j in columns.all:
                    block = b(own, self.other.part(j), xp)
                    share.right(columns.at(j), depth)[...] = _there(place, block)

    def update(self, k: int, rows: Sequence[int], columns: Sequence[int]) -> None:
        """See :class:`Executor`."""
        depth = (self.depth or self.grid).size(k)
        for place, own_rows, own_columns in self._where():
            share = self._shares[place][k % _SETS]
            shares = [share, *self._p_share(place, k)]
            with self._computing(place, "update", k) as engine:
                for x in shares:
                    place.after(x.arrived)
                    x.arrived.clear()
                for j in columns:
                    if j not in own_columns.all:
                        continue
                    across = own_columns.at(j)
                    right = share.right(across, depth)
                    p_right = None
                    if len(shares) > 1:
                        p_right = shares[1].right(across, depth)
                    for run in own_rows.runs([i for i in rows if self._kept(i, j)]):
                        p = self._p[place][run, across] if p_right is not None else None
                        self.steps.update(
                            engine, share.left(run, depth), right, self._d[place][run, across], p,
                            p_right,
                        )  # fmt: skip
                        pairs = float(run.stop - run.start) * (across.stop - across.start) * depth
                        self._pairs[place] += pairs

    def finish(self, k: int) -> None:
        """See :class:`Executor`."""
        self._history.append(self._by_name())
        for place in self.places:
            with place:
                self._done[place].append(place.mark())
        if len(self._history) <= _SETS:
            return
        for place in self.places:  # no more than two steps are given out ahead of what is done
            place.wait(self._done[place][-1 - _SETS])
            del self._done[place][:-_SETS]
        parts = self._history[-1 - _SETS]
        if self._tick is not None:
            self._tick(sum(parts.values()), parts)


def _there(place: Place, block: Array) -> Array:
    """A block from the host or the place itself, at the place."""
    host = isinstance(block, np.ndarray) and place.engine.xp is not np
    return place.engine.from_host(block) if host else block


def _overlap(lines: slice, at: slice, wanted: slice) -> tuple[slice, slice]:
    """What of the lines of a tile, which lies at `at`, is wanted: there, and in the result."""
    begin, end = max(lines.start, wanted.start), min(lines.stop, wanted.stop)
    shift = at.start - lines.start
    return slice(begin + shift, end + shift), slice(begin - wanted.start, end - wanted.start)
