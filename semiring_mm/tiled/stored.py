"""Closures and products of matrices that are larger than memory, from a graph to the result."""

from __future__ import annotations

import base64
import contextlib
import errno
import functools
import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import check_memory
from ..closures.progress import Tick
from ..closures.schedule import Grid, eliminate
from ..closures.sources import Operand, Source, best_edges
from ..closures.steps import Improves, Steps
from ..closures.trees import repair_trees
from ..closures.weights import Weights
from ..cpu import engine as cpu
from ..cpu import threads
from ..semirings import Semiring
from .checkpoint import Checkpoint
from .results import (
    check_room,
    check_suffix,
    create,
    discard,
    open_part,
    open_result,
    part_of,
    publish,
)
from .stores import HostStore, Store
from .streamed import LEAST, Device, Host, Place, Product, Streamed, choose_tile, room
from .timeline import Timeline

__all__ = ["multiply_streamed", "solve_streamed"]

Array = NDArray[Any]
Out = Path | Array | None

#: The largest tiles that are chosen: on the CPU smaller ones fill its caches as well, and reading
#: them overlaps better; on a device computing must outlast the way to it and back.
_MOST_HOST, _MOST_DEVICE = 2048, 4096
_LOADING = 5  # tiles' worth of memory that loading one takes


def solve_streamed(
    source: Source,
    steps: Steps,
    weights: Weights,
    *,
    out: tuple[Out, Out],
    devices: Sequence[int] | None = None,
    memory_limit: int | None = None,
    checkpoint: int = 1,
    resume: bool = False,
    tick: Tick | None = None,
    timeline: Timeline | None = None,
    tile: int | None = None,
) -> tuple[Any, Any]:
    """Close the matrix of a graph out of core.

    Parameters
    ----------
    source : Source
    steps, weights
        Of the source.
    out : (Path or ndarray, Path, ndarray or None)
        Where distances and predecessors go: paths that end in ``.npy`` or ``.zarr``, or arrays of
        the source's dtype and of int32.
    devices : sequence of int, optional
        CUDA devices that compute; default the CPU.
    memory_limit : int, optional
        Bytes that tiles may take on the host; default half of what is free. An array given as
        `out` does not count. On a device nine tenths of what is free are used.
    checkpoint : int
        Steps from one state to the next (paths only).
    resume : bool
        Go on from the state that is beside the path (with margins: if there is one).
    tick, timeline : optional
    tile : int, optional
        Lines of a tile; default :func:`choose_tile`. A run that goes on keeps those that it has.

    Returns
    -------
    distances, predecessors : ndarray or zarr.Array
        As they were given; a path is opened to read.

    Raises
    ------
    FileExistsError
        If there is such a result, or an unfinished one.
    OSError
        If the disk is too small, or gets full; then the state stays, and `resume` goes on.
    Improves
        If a cycle improves itself; then nothing stays.
    """
    _check_every(checkpoint)
    paths = _paths(out, source, steps)
    task = {
        "semiring": str(source.s), "n": source.n, "dtype": str(source.dtype),
        "symmetric": steps.symmetric, "predecessors": steps.predecessors,
        "results": [str(x.name) for x in paths],
    }  # fmt: skip
    if source.margins is not None and paths:
        resume &= Checkpoint(paths[0], {}, 1).file.exists()  # the attempt without them left none
    state = _state(paths, task, resume, source.n)
    if state is not None and "margins" in state.extra and source.margins is None:
        margins = np.frombuffer(base64.b85decode(state.extra["margins"]), np.float64)
        if margins.shape != (source.n,):
            raise state.unusable()
        source = source.worsened(margins)
        weights = Weights(source.s, source.dtype, source.n, source.facts)
        steps = Steps.of(weights, symmetric=False, predecessors=steps.predecessors)
    if state is not None and state.phase != "load":
        found = source.fingerprint()
        if state.extra.get("fingerprint") != found:
            raise ValueError(
                f"resume: {state.file} is the state of a run on another graph; give that one, or "
                f"remove it and {_rest(paths)}, and leave out resume"
            )
    size = steps.dtype.itemsize + 4 * steps.predecessors
    plan = _plan(source.n, size, devices, memory_limit, tile if state is None else state.tile)
    if paths and state is None:
        state = Checkpoint(paths[0], task, plan.tile)
        if source.margins is not None:
            state.extra["margins"] = base64.b85encode(source.margins.tobytes()).decode()
    with contextlib.ExitStack() as stack:
        run = _Run(source, steps, weights, out, plan.tile, state)
        stack.callback(run.close)
        try:
            run.open(resume, plan.loaders)
            if run.phase == "load":
                run.load(plan.loaders)
            if run.phase == "steps":
                _run_steps(run, plan, checkpoint, tick, timeline)
            run.finish()
        except (Improves, OverflowError, TypeError):  # to go on would fail again
            run.discard()
            raise
        except OSError as error:
            if error.errno != errno.ENOSPC or state is None or not state.file.exists():
                raise
            raise _full(paths) from error
    if state is not None:
        state.remove()
    return _opened(out[0]), _opened(out[1]) if steps.predecessors else None


def _run_steps(
    run: _Run, plan: _Plan, checkpoint: int, tick: Tick | None, timeline: Timeline | None
) -> None:
    """The elimination from where it stands, with states left on the way."""
    with _Keeper(run, checkpoint) as keeper:
        executor = Streamed(
            run.grid, run.steps, *run.stores, plan.places(), slots=plan.slots,
            workers=plan.workers, first=run.step, saved=keeper, tick=tick, timeline=timeline,
        )  # fmt: skip
        with contextlib.closing(executor):
            eliminate(run.grid.count, executor, run.step)


def multiply_streamed(
    s: Semiring,
    a: Any,
    b: Any,
    *,
    out: Path | Array,
    dtype: np.dtype[Any] | None = None,
    devices: Sequence[int] | None = None,
    memory_limit: int | None = None,
    checkpoint: int = 1,
    resume: bool = False,
    tick: Tick | None = None,
    timeline: Timeline | None = None,
    tile: int | None = None,
) -> Any:
    """C = A ⊗ B out of core.

    Parameters
    ----------
    s : Semiring
    a, b : array_like of shapes (m, k) and (k, n)
        Anything that gives NumPy arrays for two slices.
    out : Path or ndarray
    dtype : dtype, optional
        In which it is computed; default that of `a`.
    devices, memory_limit, checkpoint, resume, tick, timeline, tile
        As for :func:`solve_streamed`; a step is a row of tiles.
    """
    _check_every(checkpoint)
    (m, k), n = a.shape, b.shape[1]
    dtype = np.dtype(a.dtype).newbyteorder("=") if dtype is None else dtype
    a, b = Operand(a, dtype), Operand(b, dtype)
    paths = [out] if isinstance(out, Path) else []
    task: dict[str, Any] = {
        "semiring": str(s), "m": m, "k": k, "n": n, "dtype": str(dtype),
        "operands": _mark(a, b) if paths else "",
    }  # fmt: skip
    for path in paths:
        check_suffix(path)
    state = _state(paths, task, resume, m)
    given = tile if state is None else state.tile
    plan = _plan(max(m, n, k), dtype.itemsize, devices, memory_limit, given)
    if paths and state is None:
        state = Checkpoint(paths[0], task, plan.tile)
    try:
        if state is None:
            assert not isinstance(out, Path)
            _multiply(s, a, b, HostStore(out), plan, 0, None, tick, timeline)
        elif state.phase == "publish":
            if part_of(state.path).exists():
                with contextlib.closing(open_part(state.path, (m, n), dtype, plan.tile)) as c:
                    c.verify(plan.loaders)
        else:
            first = state.step
            if state.phase == "steps":
                c = open_part(state.path, (m, n), dtype, plan.tile)
                c.verify(plan.loaders)
            else:
                discard(state.path)
                check_room([(state.path, m * n * dtype.itemsize)])
                state.save("load")
                c = create(state.path, (m, n), dtype, plan.tile)
            kept = state

            def saved(step: int) -> None:
                if step % checkpoint == 0:
                    c.flush()
                    kept.save("steps", step)

            try:
                with contextlib.closing(c):
                    _multiply(s, a, b, c, plan, first, saved, tick, timeline)
                    c.flush()
            except (OverflowError, TypeError):  # to go on would fail again
                discard(state.path)
                state.remove()
                raise
            state.save("publish")
    except OSError as error:
        if error.errno != errno.ENOSPC or state is None or not state.file.exists():
            raise
        raise _full(paths) from error
    if state is not None:
        publish(state.path)
        state.remove()
    return _opened(out)


def _multiply(
    s: Semiring, a: Any, b: Any, c: Store, plan: _Plan, first: int,
    saved: Callable[[int], None] | None, tick: Tick | None, timeline: Timeline | None,
) -> None:  # fmt: skip
    if not a.shape[1]:
        _fill(c, plan.tile, s.identities(c.dtype)[0])
        return
    product = Product(
        s, plan.tile, _OperandStore(a), _OperandStore(b), c, plan.places(), slots=plan.slots,
        workers=plan.workers, first=first, saved=saved, tick=tick, timeline=timeline,
    )  # fmt: skip
    with contextlib.closing(product):
        product.run()


class _OperandStore:
    """An operand as a store to read."""

    def __init__(self, x: Operand) -> None:
        self.x, self.shape, self.dtype = x, x.shape, x.dtype

    def read(self, rows: slice, columns: slice, into: Array) -> None:
        np.copyto(into, self.x.read(rows, columns))

    def write(self, rows: slice, columns: slice, block: Array) -> None:
        raise TypeError("operands are read only")

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def _fill(c: Store, tile: int, value: Any) -> None:
    rows, columns = (Grid(x, tile) for x in c.shape)
    for i in range(rows.count):
        for j in range(columns.count):
            block = np.full((rows.size(i), columns.size(j)), value, c.dtype)
            c.write(rows.part(i), columns.part(j), block)


# What a run begins with


def _check_every(checkpoint: int) -> None:
    if checkpoint < 1:
        raise ValueError(f"checkpoint is the steps from one state to the next, got {checkpoint}")


def _paths(out: tuple[Out, Out], source: Source, steps: Steps) -> list[Path]:
    """The paths among the results; all of them are, or none."""
    wanted = [(out[0], source.dtype)]
    if steps.predecessors:
        wanted.append((out[1], np.dtype(np.int32)))
    for x, dtype in wanted:
        if isinstance(x, Path):
            check_suffix(x)
            if dtype.kind not in "biuf":
                raise TypeError(f"out: files hold no {dtype}; give the graph in float32")
        elif x is None or x.shape != (source.n, source.n) or x.dtype != dtype:
            came = "None" if x is None else f"{x.dtype} of shape {x.shape}"
            raise ValueError(
                f"out: a path or an array of {dtype} and shape {(source.n, source.n)} is needed, "
                f"got {came}"
            )
    paths = [x for x, _ in wanted if isinstance(x, Path)]
    if paths and len(paths) < len(wanted):
        raise ValueError("out: distances and predecessors both go to paths, or both to arrays")
    if len({x.resolve() for x in paths}) < len(paths):
        raise ValueError(f"out: {paths[0]} cannot hold distances and predecessors both")
    return paths


def _state(
    paths: Sequence[Path], task: dict[str, Any], resume: bool, rows: int
) -> Checkpoint | None:
    """The state to resume from; an error if results or states are there that would be lost."""
    state = None
    if resume:
        if not paths:
            raise ValueError("resume: results in memory leave no state; give paths as out")
        state = Checkpoint.load(paths[0])
        state.check(task, Grid(rows, state.tile).count)
    for path in paths:
        if os.path.lexists(path) and (state is None or state.phase != "publish"):
            raise FileExistsError(f"out: {path} is there already; give another path, or remove it")
        if resume:
            continue
        for rest in (Checkpoint(path, {}, 1).file, part_of(path), part_of(_work_of(path))):
            if rest.exists():
                raise FileExistsError(
                    f"out: {rest} is left from a run that did not end; resume=True goes on with "
                    f"it, or remove it (and {_rest([path])}, what there is of them) to begin again"
                )
    return state


def _work_of(path: Path) -> Path:
    """Where integers that were widened lie until the end."""
    return path.with_stem(path.stem + ".work")


def _rest(paths: Sequence[Path]) -> str:
    """What an unfinished run leaves, beside its state, in words."""
    return ", ".join(str(part_of(x)) for x in (*paths, _work_of(paths[0])))


def _mark(*operands: Operand) -> str:
    """A word that differs for other matrices."""
    mark = hashlib.sha256()
    for x in operands:
        lines = max(1, (1 << 20) // max(1, x.shape[1]))
        for i in range(0, x.shape[0], lines):
            part = x.read(slice(i, min(i + lines, x.shape[0])), slice(0, x.shape[1]))
            mark.update(np.ascontiguousarray(part).tobytes())
    return mark.hexdigest()


def _full(paths: Sequence[Path]) -> OSError:
    return OSError(
        errno.ENOSPC,
        f"the disk is full; what has been computed is kept in {part_of(paths[0])}: make room and "
        f"go on with resume=True",
    )


def _opened(out: Out) -> Any:
    return open_result(out) if isinstance(out, Path) else out


@dataclass(frozen=True)
class _Plan:
    """Lines of a tile, and how many of them are at hand for how many threads."""

    tile: int
    size: int
    slots: int
    workers: int
    loaders: int
    devices: Sequence[int] | None

    def places(self) -> list[Place]:
        if self.devices is None:
            return [Host()]
        return [Device(x, 2 * self.workers, self.tile**2 * self.size) for x in self.devices]


def _plan(
    n: int, size: int, devices: Sequence[int] | None, limit: int | None, tile: int | None
) -> _Plan:
    """How to work on n lines with `size` bytes for each entry."""
    allowed = limit if limit is not None else (cpu.free_memory() or 1 << 62) // 2
    room_, most, workers, staged = allowed, _MOST_HOST, max(1, threads.get_num_threads() // 4), 0
    if devices is not None:
        workers, most = 4, _MOST_DEVICE
        staged = 2 * workers * len(devices)
        while most > LEAST and staged * most**2 * size > allowed:
            most //= 2
        room_ = int(0.9 * min(_device_memory(x) for x in devices))
    workers = min(4, workers)
    slots = 2 + 2 * workers + (0 if devices is None else 2)
    if tile is None:
        tile = choose_tile(n, size, room_, slots=slots, most=most)
    elif (needed := room(n, tile, size, slots)) > room_:
        raise MemoryError(
            f"out of core, {n} nodes in tiles of {tile} take {needed / 1e6:.4g} MB of memory, and "
            f"{room_ / 1e6:.4g} MB are allowed; use a larger memory_limit"
        )
    spare = allowed // (tile**2 * size) - staged
    loaders = max(1, min(threads.get_num_threads(), spare // _LOADING))
    return _Plan(tile, size, slots, workers, loaders, devices)


def _device_memory(index: int) -> int:
    from ..gpu import engine

    with engine.on(index):
        return engine.free_memory() or 0


class _Run:
    """The stores of a run, from the first tile to the name of the result."""

    def __init__(
        self, source: Source, steps: Steps, weights: Weights, out: tuple[Out, Out], tile: int,
        state: Checkpoint | None,
    ) -> None:  # fmt: skip
        self.source, self.steps, self.weights = source, steps, weights
        self.out, self.grid, self.state = out, Grid(source.n, tile), state
        self.phase = "load" if state is None else state.phase
        self.step = 0 if state is None else state.step
        self.results: list[Store | None] = [None, None]
        # integers that were widened go over to a store of their own at last
        self.apart = steps.dtype != source.dtype
        self.work: Store | None = None

    @property
    def stores(self) -> tuple[Store, Store | None]:
        """Of D, as it is computed, and of P."""
        work = self.work if self.apart else self.results[0]
        assert work is not None
        return work, self.results[1]

    def _kinds(self) -> list[tuple[Path, np.dtype[Any], str]]:
        """Path, dtype and place of each store on the disk."""
        d, p = self.out
        kinds = []
        if isinstance(d, Path):
            kinds.append((d, self.source.dtype, "d"))
            if self.apart:
                kinds.append((_work_of(d), self.steps.dtype, "work"))
        if isinstance(p, Path) and self.steps.predecessors:
            kinds.append((p, np.dtype(np.int32), "p"))
        return kinds

    def open(self, resume: bool, workers: int) -> None:
        """Make the stores, or open those that are there and verify them."""
        n, tile = self.grid.n, self.grid.tile
        if self.state is None:
            for at in range(2):
                array = self.out[at]
                if isinstance(array, np.ndarray) and (at == 0 or self.steps.predecessors):
                    self.results[at] = HostStore(array)
            if self.apart:
                check_memory(n * n * self.steps.dtype.itemsize, "the work beside the result")
                self.work = HostStore(np.empty((n, n), self.steps.dtype))
            return
        kinds = self._kinds()
        if self.phase == "publish":  # some may have their final names already
            kinds = [x for x in kinds if x[2] != "work" and part_of(x[0]).exists()]
        if self.phase == "load":
            if resume:
                for path, *_ in kinds:
                    discard(path)
            lines = self.grid.count * tile if kinds[0][0].suffix == ".zarr" else n
            check_room([(path, lines**2 * dtype.itemsize) for path, dtype, _ in kinds])
            self.state.save("load")
        for path, dtype, what in kinds:
            make = create if self.phase == "load" else open_part
            store = make(path, (n, n), dtype, tile)
            if what == "work":
                self.work = store
            else:
                self.results["dp".index(what)] = store
            if make is open_part:
                store.verify(workers)

    def load(self, workers: int) -> None:
        """The graph into the store, with one on the diagonal."""
        count, half = self.grid.count, self.steps.symmetric
        tiles = [(i, j) for i in range(count) for j in range(i if half else 0, count)]
        with ThreadPoolExecutor(workers) as pool:
            futures = [pool.submit(self._load, *tile) for tile in tiles]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        self.phase = "steps"

    def _load(self, i: int, j: int) -> None:
        rows, columns = self.grid.part(i), self.grid.part(j)
        block = self.source.read(rows, columns)
        d = self.weights.widen(block)
        p = self.steps.begin(np, d, rows, columns)
        store, trees = self.stores
        if trees is not None:
            assert p is not None
            trees.write(rows, columns, p)
        store.write(rows, columns, d)

    def keep(self, step: int) -> None:
        """Leave a state, from which a run goes on with `step`."""
        if self.state is None:
            return
        if "fingerprint" not in self.state.extra:
            self.state.extra["fingerprint"] = self.source.fingerprint()
        self.flush()
        self.state.save("steps", step)

    def flush(self) -> None:
        for store in (*self.results, self.work):
            if store is not None:
                store.flush()

    def finish(self) -> None:
        """Everything that is done once, after the last step; each part may be done again."""
        if self.phase != "publish":
            self._repair()
            self._turn()
            self.flush()
            if self.state is not None:
                self.state.save("publish")
        self.close()  # what is open keeps its name on some systems
        for path, _, what in self._kinds():
            if what == "work":
                discard(path)
            else:
                publish(path)

    def _repair(self) -> None:
        """Make every row of the predecessors a tree, a row of tiles at a time."""
        d, p = self.stores
        if p is None:
            return
        columns = slice(0, self.grid.n)

        def distances(rows: slice) -> Array:
            found = np.empty((rows.stop - rows.start, self.grid.n), d.dtype)
            d.read(rows, columns, found)
            return found

        edges = functools.cache(lambda: best_edges(self.source, distances))
        for i in range(self.grid.count):
            rows = self.grid.part(i)
            near = distances(rows)
            before = np.empty(near.shape, np.int32)
            p.read(rows, columns, before)
            own = np.arange(rows.start, rows.stop)
            repair_trees(cpu, self.source.s, near, before, edges, own)
            p.write(rows, columns, before)

    def _turn(self) -> None:
        """Mirror half a matrix, and bring what was computed into the form of the result."""
        half, (d, _), result = self.steps.symmetric, self.stores, self.results[0]
        assert result is not None
        if not half and not self.apart:
            return
        grid = self.grid
        for i in range(grid.count):
            for j in range(grid.count):
                rows, columns = grid.part(i), grid.part(j)
                other = half and j < i
                if not (other or self.apart):
                    continue
                at = (columns, rows) if other else (rows, columns)
                block = np.empty([x.stop - x.start for x in at], d.dtype)
                d.read(*at, block)
                block = block.T if other else block
                block = self.weights.narrow(block)
                result.write(rows, columns, np.ascontiguousarray(block))

    def discard(self) -> None:
        """Leave nothing."""
        self.close()
        if self.state is not None:
            for path, *_ in self._kinds():
                discard(path)
            self.state.remove()

    def close(self) -> None:
        for store in (*self.results, self.work):
            if store is not None:
                store.close()
        self.results, self.work = [None, None], None


class _Keeper:
    """Leaves states in a thread of its own, while the next steps are computed.

    What they change meanwhile does no harm: over an idempotent ⊕ a step may be repeated on tiles
    that it has reached. Where a disk is slower than the steps, some go by without a state.
    """

    def __init__(self, run: _Run, every: int) -> None:
        self.run, self.every = run, every
        self._pool = ThreadPoolExecutor(1)
        self._next: list[int] = []  # the step to speak of next
        self._begun: list[Future[None]] = []
        self(0)

    def __call__(self, step: int) -> None:
        if self.run.state is None or step % self.every:
            return
        while self._begun and self._begun[0].done():
            self._begun.pop(0).result()
        self._next = [max(step, self.run.step)]
        self._begun.append(self._pool.submit(self._keep))

    def _keep(self) -> None:
        newest, self._next = self._next, []
        for step in newest:  # or none, if an earlier call came late and saw to it
            self.run.keep(step)

    def __enter__(self) -> _Keeper:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._pool.shutdown()
        for future in self._begun if kind is None else ():
            future.result()
