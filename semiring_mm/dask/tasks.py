"""The tasks on tiles: what the workers do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..closures.edges import EdgeList
from ..closures.paths import NO_PREDECESSOR
from ..closures.solve import restore
from ..closures.steps import Steps
from ..closures.trees import best_edges, cyclic_rows, repair_trees
from ..closures.weights import Weights
from ..engine import Engine
from ..semirings import Semiring
from ..storage import atomic_write, read_arrays
from .cluster import Worker, worker_name

__all__ = [
    "begin", "close", "column", "distances", "edges_of_rows", "has_cycle", "joined", "load",
    "predecessors", "repair", "repaired", "row", "save", "update",
]  # fmt: skip

Array = Any  # of the engine's library
Tile = tuple[Array, Array | None]  # of D and of P
At = tuple[int, ...]  # the step, if there is one, and row and column of a tile


def begin(
    steps: Steps, worker: Worker, weights: Weights, block: Array, rows: slice, columns: slice
) -> Tile:
    """A block of the graph as a tile to be computed with."""
    with worker.engine() as engine:
        d = engine.from_host(np.array(weights.widen(block)))
        return d, steps.begin(engine.xp, d, rows, columns)


def _copy(tile: Tile) -> Tile:
    """A task may be done again, from the same operands."""
    d, p = tile
    return d.copy(), None if p is None else p.copy()


def close(at: At, tile: Tile, first: int, *, steps: Steps, worker: Worker) -> Tile:
    with worker.engine(*at) as engine:
        d, p = _copy(tile)
        steps.close(engine, d, p, first)
        return d, p


def row(at: At, tile: Tile, diagonal: Tile, *, steps: Steps, worker: Worker) -> Tile:
    with worker.engine(*at) as engine:
        d, p = _copy(tile)
        steps.row(engine, diagonal[0], d, p)
        return d, p


def column(at: At, tile: Tile, diagonal: Tile, *, steps: Steps, worker: Worker) -> Tile:
    with worker.engine(*at) as engine:
        d, p = _copy(tile)
        steps.column(engine, d, diagonal[0], p, diagonal[1])
        return d, p


def update(
    at: At, tile: Tile, left: Tile, right: Tile, turn_left: bool, turn_right: bool, *,
    steps: Steps, worker: Worker,
) -> Tile:  # fmt: skip
    with worker.engine(*at) as engine:
        d, p = _copy(tile)
        a = left[0].T if turn_left else left[0]
        b = right[0].T if turn_right else right[0]
        steps.update(engine, a, b, d, p, right[1])
        return d, p


def save(at: At, tile: Tile, *, folder: Path, worker: Worker) -> None:
    if not folder.is_dir():
        raise FileNotFoundError(
            f"worker {worker_name()} does not see {folder}: a checkpoint needs a folder that the "
            f"client and all workers share"
        )
    with worker.engine(*at) as engine:
        parts: dict[str, Any] = {
            name: np.ascontiguousarray(engine.to_host(x))
            for name, x in zip("dp", tile, strict=True)
            if x is not None
        }
    with atomic_write(_file(folder, at)) as part:
        np.savez(part, **parts)


def _file(folder: Path, at: At) -> Path:
    return folder / f"{at[-2]}-{at[-1]}.npz"


def load(at: At, *, folder: Path, steps: Steps, worker: Worker) -> Tile:
    path = _file(folder, at)
    try:
        parts = read_arrays(path)  # the reader of zip files compares checksums
        d = parts["d"].view(steps.dtype)  # NumPy saves bfloat16 as bytes
        p = parts["p"] if steps.predecessors else None
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"{path} has changed since it was written: remove the checkpoint to begin again"
        ) from error
    with worker.engine(*at) as engine:
        return engine.from_host(d), None if p is None else engine.from_host(p)


def distances(
    at: At, tile: Tile, turned: bool, *, worker: Worker, weights: Weights, truth: bool
) -> Array:
    """A block of the result, on the host, in the graph's dtype."""
    with worker.engine(*at) as engine:
        d = engine.to_host(tile[0])
    d = np.ascontiguousarray(d.T) if turned else d
    return restore(d, weights, truth=truth)


def predecessors(at: At, tile: Tile, *, worker: Worker) -> Array:
    with worker.engine(*at) as engine:
        p = engine.to_host(tile[1])
    if at[0] == at[1]:  # where rounding may have taken a cycle for better than none
        p = p.copy()
        np.fill_diagonal(p, NO_PREDECESSOR)
    return p


def _strip(engine: Engine, tiles: Sequence[Tile]) -> Tile:
    """Whole rows."""
    d, p = (engine.xp.concatenate(x, axis=1) for x in zip(*tiles, strict=True))
    return d, p


def has_cycle(at: At, tiles: Sequence[Tile], rows: slice, *, s: Semiring, worker: Worker) -> bool:
    """Whether a row of P is no tree."""
    with worker.engine(*at) as engine:
        own = np.arange(rows.start, rows.stop)
        return any(True for _ in cyclic_rows(engine, s, *_strip(engine, tiles), own))


def edges_of_rows(
    at: At, tiles: Sequence[Tile], rows: slice, blocks: Sequence[Array], *, s: Semiring, n: int,
    worker: Worker,
) -> EdgeList:  # fmt: skip
    """The edges of some rows that are best paths."""
    with worker.engine(*at) as engine:
        d = engine.to_host(engine.xp.concatenate([x for x, _ in tiles], axis=1))
    return best_edges(s, n, [(rows.start, np.concatenate(blocks, axis=1), d)])


def joined(parts: Sequence[EdgeList], n: int) -> EdgeList:
    return EdgeList.joined(n, [x.arrays for x in parts])


def repair(
    at: At, tiles: Sequence[Tile], rows: slice, *, s: Semiring, edges: EdgeList, worker: Worker
) -> Array:
    with worker.engine(*at) as engine:
        d, p = _strip(engine, tiles)
        repair_trees(engine, s, d, p, lambda: edges, np.arange(rows.start, rows.stop))
        return p


def repaired(at: At, tile: Tile, rows: Array, columns: slice, *, worker: Worker) -> Tile:
    return tile[0], rows[:, columns].copy()
