"""Closures and products of matrices that are larger than memory, from a graph to the result."""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..closures.elimination import Grid
from ..closures.solve import Problem
from ..closures.sources import Operand
from ..closures.steps import Improves
from ..naming import named
from ..progress import Tick
from ..semirings import Semiring
from .budget import Plan, make_plan
from .checkpoint import Checkpoint, find_state, is_finished, keep_record, leftovers
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
from .run import Out, Run, Saver
from .stores import HostStore, OperandStore, Store
from .streamed import Product, Streamed
from .timeline import Timeline

__all__ = [
    "check_graph", "finished", "full", "multiply_streamed", "opened", "paths_of", "solve_streamed",
    "task_of",
]  # fmt: skip

Array = NDArray[Any]


def solve_streamed(
    problem: Problem,
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
    problem : Problem
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
        Resume from the state beside the path (with its margins, if there are some); begin where
        there is nothing yet, and compute nothing where the results are there.
    tick, timeline : optional
    tile : int, optional
        Rows of a tile; default :func:`.budget.choose_tile`. A resumed run keeps its own.

    Returns
    -------
    distances, predecessors : ndarray or zarr.Array
        As they were given; a path is opened to read.

    Raises
    ------
    FileExistsError
        If there is such a result, or an unfinished one.
    OSError
        If the disk is too small or becomes full; then the state is kept, and `resume` continues.
    ValueError
        If the state to resume from is of another run, or it or a tile has changed since it was
        written.
    Improves
        If a cycle improves itself; then nothing is kept.
    """
    check_every(checkpoint)
    source, steps = problem.source, problem.steps
    paths = paths_of(out, problem)
    result = task_of(problem, paths)
    if resume and finished(paths, result, source.fingerprint):
        return opened(out[0]), opened(out[1]) if steps.predecessors else None
    task = result | {"symmetric": steps.symmetric}
    state = find_state(paths, task, resume, source.n)
    if state is not None and "margins" in state.extra and source.margins is None:
        margins = np.frombuffer(base64.b85decode(state.extra["margins"]), np.float64)
        if margins.shape != (source.n,):
            raise state.unusable()
        problem = replace(problem, source=source.worsened(margins))
        source, steps = problem.source, problem.steps
    if state is not None:
        check_graph(state, paths, source.fingerprint)
    size = steps.dtype.itemsize + 4 * steps.predecessors
    plan = make_plan(source.n, size, devices, memory_limit, tile if state is None else state.tile)
    if paths and state is None:
        state = Checkpoint(paths[0], task, plan.tile)
        if source.margins is not None:
            state.extra["margins"] = base64.b85encode(source.margins.tobytes()).decode()
    with contextlib.ExitStack() as stack:
        run = Run(problem, out, plan.tile, state)
        stack.callback(run.close)
        try:
            run.open(plan.loaders)
            if run.phase == "load":
                run.load(plan.loaders)
            if run.phase == "steps":
                _run_steps(run, plan, checkpoint, tick, timeline)
            run.finish()
        except (Improves, OverflowError, TypeError):  # a resumed run would fail again
            run.discard()
            raise
        except OSError as error:
            if error.errno != errno.ENOSPC or state is None or not state.file.exists():
                raise
            raise full(paths) from error
    if state is not None:
        keep_record(paths, result, state.extra["fingerprint"])
        state.remove()
    return opened(out[0]), opened(out[1]) if steps.predecessors else None


def _run_steps(
    run: Run, plan: Plan, checkpoint: int, tick: Tick | None, timeline: Timeline | None
) -> None:
    """Run the remaining steps of the elimination, and save states on the way."""
    with Saver(run, checkpoint) as saver:
        executor = Streamed(
            run.grid, run.steps, *run.stores, plan.open(), slots=plan.slots,
            workers=plan.workers, first=run.step, saved=saver, tick=tick, timeline=timeline,
        )  # fmt: skip
        with contextlib.closing(executor):
            executor.run()


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
        Of the computation; default that of `a`.
    devices, memory_limit, checkpoint, resume, tick, timeline, tile
        As for :func:`solve_streamed`; a step is a row of tiles.
    """
    check_every(checkpoint)
    (m, k), n = a.shape, b.shape[1]
    dtype = np.dtype(a.dtype).newbyteorder("=") if dtype is None else dtype
    a, b = Operand(a, dtype), Operand(b, dtype)
    paths = [out] if isinstance(out, Path) else []
    task: dict[str, Any] = {
        "semiring": str(s), "m": m, "k": k, "n": n, "dtype": str(dtype),
        "operands": _fingerprint(a, b) if paths else "",
    }  # fmt: skip
    for path in paths:
        check_suffix(path)
    if resume and finished(paths, task, lambda: str(task["operands"])):
        return opened(out)
    state = find_state(paths, task, resume, m)
    given = tile if state is None else state.tile
    plan = make_plan(max(m, n, k), dtype.itemsize, devices, memory_limit, given)
    square = plan.tile, plan.tile
    if paths and state is None:
        state = Checkpoint(paths[0], task, plan.tile)
    try:
        if state is None:
            assert not isinstance(out, Path)
            _multiply(s, a, b, HostStore(out), plan, 0, None, tick, timeline)
        elif state.phase == "publish":
            if part_of(state.path).exists():
                with contextlib.closing(open_part(state.path, (m, n), dtype, square)) as c:
                    c.verify(plan.loaders)
        else:
            first = state.step
            if state.phase == "steps":
                c = open_part(state.path, (m, n), dtype, square)
                c.verify(plan.loaders)
            else:
                discard(state.path)
                check_room([(state.path, m * n * dtype.itemsize)])
                state.save("load")
                c = create(state.path, (m, n), dtype, square)
            kept = state

            def saved(step: int) -> None:
                if step % checkpoint == 0:
                    c.flush()
                    kept.save("steps", step)

            try:
                with contextlib.closing(c):
                    _multiply(s, a, b, c, plan, first, saved, tick, timeline)
                    c.flush()
            except (OverflowError, TypeError):  # a resumed run would fail again
                discard(state.path)
                state.remove()
                raise
            state.save("publish")
    except OSError as error:
        if error.errno != errno.ENOSPC or state is None or not state.file.exists():
            raise
        raise full(paths) from error
    if state is not None:
        publish(state.path)
        keep_record(paths, task, str(task["operands"]))
        state.remove()
    return opened(out)


def _multiply(
    s: Semiring, a: Any, b: Any, c: Store, plan: Plan, first: int,
    saved: Callable[[int], None] | None, tick: Tick | None, timeline: Timeline | None,
) -> None:  # fmt: skip
    if not a.shape[1]:
        _fill(c, plan.tile, s.identities(c.dtype)[0])
        return
    product = Product(
        s, plan.tile, OperandStore(a), OperandStore(b), c, plan.open(), slots=plan.slots,
        workers=plan.workers, first=first, saved=saved, tick=tick, timeline=timeline,
    )  # fmt: skip
    with contextlib.closing(product):
        product.run()


def _fill(c: Store, tile: int, value: Any) -> None:
    rows, columns = (Grid(x, tile) for x in c.shape)
    for i in range(rows.count):
        for j in range(columns.count):
            block = np.full((rows.size(i), columns.size(j)), value, c.dtype)
            c.write(rows.part(i), columns.part(j), block)


# Checks and messages


def finished(paths: Sequence[Path], task: dict[str, Any], graph: Callable[[], str]) -> bool:
    """Whether a run that may go on finds its results there, and no state of an unfinished one."""
    return bool(
        paths and not Checkpoint(paths[0], {}, 1).file.exists() and is_finished(paths, task, graph)
    )


def task_of(problem: Problem, paths: Sequence[Path], rows: str | None = None) -> dict[str, Any]:
    """What is computed, of what; `rows`: from which nodes, if not from all."""
    source = problem.source
    return {
        "semiring": str(source.s), "n": source.n, "dtype": str(source.dtype),
        "predecessors": problem.predecessors, "results": [str(x.name) for x in paths], "rows": rows,
    }  # fmt: skip


def check_graph(state: Checkpoint, paths: Sequence[Path], graph: Callable[[], str]) -> None:
    """Raise ValueError if a state is of another graph."""
    if state.phase != "load" and state.extra.get("fingerprint") != graph():
        raise ValueError(
            f"{named('tiles.resume')}: {state.file} is the state of a run on another graph; give "
            f"that one, or remove it and {leftovers(paths)}, and leave out {named('tiles.resume')}"
        )


def check_every(checkpoint: int) -> None:
    if checkpoint < 1:
        raise ValueError(f"checkpoint is the steps from one state to the next, got {checkpoint}")


def paths_of(out: tuple[Out, Out], problem: Problem) -> list[Path]:
    """The paths of the results: of all, or of none."""
    source = problem.source
    wanted = [(out[0], source.dtype)]
    if problem.predecessors:
        wanted.append((out[1], np.dtype(np.int32)))
    for x, dtype in wanted:
        if isinstance(x, Path):
            check_suffix(x)
            if dtype.kind not in "biuf":
                raise TypeError(
                    f"{named('tiles.out')}: files hold no {dtype}; give the graph in float32"
                )
        elif x is None or x.shape != (source.n, source.n) or x.dtype != dtype:
            came = "None" if x is None else f"{x.dtype} of shape {x.shape}"
            raise ValueError(
                f"{named('tiles.out')}: a path or an array of {dtype} and shape "
                f"{(source.n, source.n)} is needed, got {came}"
            )
    paths = [x for x, _ in wanted if isinstance(x, Path)]
    if paths and len(paths) < len(wanted):
        raise ValueError("out: distances and predecessors both go to paths, or both to arrays")
    if len({x.resolve() for x in paths}) < len(paths):
        raise ValueError(
            f"{named('tiles.out')}: {paths[0]} cannot hold distances and predecessors both"
        )
    return paths


def _fingerprint(*operands: Operand) -> str:
    """A hash of matrices."""
    mark = hashlib.sha256()
    for x in operands:
        lines = max(1, (1 << 20) // max(1, x.shape[1]))
        for i in range(0, x.shape[0], lines):
            part = x.read(slice(i, min(i + lines, x.shape[0])), slice(0, x.shape[1]))
            mark.update(np.ascontiguousarray(part).tobytes())
    return mark.hexdigest()


def full(paths: Sequence[Path]) -> OSError:
    return OSError(
        errno.ENOSPC,
        f"the disk is full; what has been computed is kept in {part_of(paths[0])}: make room and "
        f"go on with {named('tiles.resume', True)}",
    )


def opened(out: Out) -> Any:
    return open_result(out) if isinstance(out, Path) else out
