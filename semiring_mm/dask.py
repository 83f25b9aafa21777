"""Shortest paths, closures and products on several machines, through Dask.

>>> import numpy as np
>>> from distributed import Client
>>> from semiring_mm.dask import apsp
>>> with Client(n_workers=1, processes=False, dashboard_address=None) as client:
...     apsp(client, np.array([[0, 3, 8], [np.inf, 0, 1], [2, np.inf, 0]])).compute()
array([[0., 3., 4.],
       [3., 0., 1.],
       [2., 5., 0.]])
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import functools
import hashlib
import math
import operator
import re
import shutil
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import blas
from .arrays import gpu_engine
from .closures.edges import edge_dtype, join_edges
from .closures.paths import NO_PREDECESSOR
from .closures.progress import Progress, Tick, reporter
from .closures.schedule import Grid, eliminate
from .closures.sources import DenseSource, EdgeSource
from .closures.steps import Improves, Steps
from .closures.trees import Edges, best_edges, cyclic_rows, repair_trees
from .closures.weights import (
    Weights,
    as_numbers,
    check_predecessors,
    edges_of,
    improved,
    with_margins,
    worsened,
)
from .cpu import engine as cpu
from .cpu import threads
from .expressions import evaluate
from .graphs.inputs import adjacency, edge_list
from .plan import Facts
from .semirings import Semiring, as_semiring, semirings
from .storage import atomic_write
from .tiled.checkpoint import seal, unseal

try:
    import dask
    import dask.array as da
    import distributed
except ImportError as error:
    raise ImportError(
        "semiring_mm.dask works with the packages dask and distributed, and one of them is not "
        'here: pip install "semiring-mm[distributed]"'
    ) from error

__all__ = ["apsp", "closure", "matmul"]

Array = Any  # of the engine's library
Delayed = Any
Future = Any
Tile = tuple[Array, Array | None]  # of D and of P
Place = tuple[int, int]
At = tuple[int, ...]  # the step, if there is one, and the place of a tile

_UNIT = 64  # tiles are multiples of it
_LEAST = {None: 1024, "cpu": 1024, "cuda": 8192}  # rows of a tile that is worth a task
_CHAIN = 8  # products that one task of matmul adds up, and sums that one task joins
_FOLDER = re.compile(r"step-\d+-[0-9a-f]{8}")  # of the tiles of a checkpoint
_USABLE = 0.8  # of a worker's memory: there Dask's workers pause


def apsp(
    client: Any,
    graph: Any,
    *,
    directed: bool | None = None,
    return_predecessors: bool = False,
    tile: int | None = None,
    device: str | None = None,
    checkpoint: Any = None,
    resume: bool = False,
    progress: Progress = None,
) -> Any:
    """All-pairs shortest paths on the workers of a Dask cluster.

    Parameters
    ----------
    client : distributed.Client
    graph : dask.array.Array of shape (n, n), or any graph that :func:`semiring_mm.apsp` takes
        What is not a Dask array travels to the workers through the scheduler, which keeps it: a
        file or a list of edges is small, but a large dense matrix is better given as a Dask array.
    directed : bool, optional
        As for :func:`semiring_mm.apsp`: a symmetric matrix is found to be undirected, which halves
        the work.
    return_predecessors : bool, default False
        Also return the predecessor matrix.
    tile : int, optional
        Side of the tiles. A run has (n / tile)³ tasks. Default: 16 tiles a side, more where there
        are more than 16 threads of workers, but none smaller than 1024 rows (8192 for CUDA).
    device : {None, "cpu", "cuda"}
        "cuda": each worker computes on its first GPU; dask-cuda starts a worker for each. A tile
        stays on its GPU; the result is brought to the host.
    checkpoint : path or (path, int), optional
        A folder that all workers and the client see. Every so many steps of n / tile the tiles are
        written there (default: eight times in a run), and the work goes on from what is written.
    resume : bool, default False
        Go on from the last complete checkpoint in that folder.
    progress : bool or callable, optional
        As for :func:`semiring_mm.apsp`.

    Returns
    -------
    distances : dask.array.Array, shape (n, n)
        Its tiles are in the workers' memory, in the dtype that :func:`semiring_mm.apsp` gives.
    predecessors : dask.array.Array of int32
        Only with `return_predecessors`.

    Raises
    ------
    NegativeCycleError
        With the cycle in it.
    MemoryError
        Before any work, if the cluster has too little; and if a worker's GPU has no room for a
        tile, which is named.
    FileExistsError
        If there is a checkpoint in the folder, and `resume` is not asked for.
    FileNotFoundError
        If there is none, and it is.
    ValueError
        If the checkpoint is that of another graph; and as :func:`semiring_mm.apsp`.

    Notes
    -----
    n³ pairs, or n³/2 undirected, in n / tile steps (Park, Penner and Prasanna, 2004). The tiles of
    row and column k + 1 go first, so that the next step's pivot is made, and travels, while the
    rest of step k is computed. At most two steps are with the scheduler at a time.

    If a worker dies, its tiles are computed again from those that are left and, where these are
    not enough, from the last checkpoint; without one, from the beginning. The result is the same
    to the last bit, and the run takes longer.

    Examples
    --------
    >>> import numpy as np
    >>> from distributed import Client
    >>> from semiring_mm.dask import apsp
    >>> W = np.array([[0, 3, 8], [np.inf, 0, 1], [2, np.inf, 0]])
    >>> with Client(n_workers=1, processes=False, dashboard_address=None) as client:
    ...     D, P = apsp(client, W, return_predecessors=True, tile=2)
    ...     P.compute()
    array([[-9999,     0,     1],
           [    2, -9999,     1],
           [    2,     0, -9999]], dtype=int32)
    """
    return _solve(
        client, semirings["min_plus"], graph, directed, return_predecessors, tile, device,
        checkpoint, resume, progress,
    )  # fmt: skip


def closure(
    client: Any,
    a: Any,
    semiring: str | Semiring = "max_min",
    *,
    directed: bool | None = None,
    return_predecessors: bool = False,
    tile: int | None = None,
    device: str | None = None,
    checkpoint: Any = None,
    resume: bool = False,
    progress: Progress = None,
) -> Any:
    """The closure ``A* = I ⊕ A ⊕ A² ⊕ …`` on the workers of a Dask cluster.

    Parameters
    ----------
    client : distributed.Client
    a : dask.array.Array of shape (n, n), or any graph that :func:`semiring_mm.closure` takes
    semiring : str or Semiring, default "max_min"
        With an idempotent ⊕.
    directed, return_predecessors, tile, device, checkpoint, resume, progress
        As for :func:`apsp`.

    Returns
    -------
    closure : dask.array.Array, shape (n, n)
    predecessors : dask.array.Array of int32
        Only with `return_predecessors` (⊕ must choose one of its operands: min, max, or).

    Raises
    ------
    ValueError
        As :func:`semiring_mm.closure`; and as :func:`apsp`.

    Examples
    --------
    >>> import numpy as np
    >>> from distributed import Client
    >>> from semiring_mm.dask import closure
    >>> A = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)
    >>> with Client(n_workers=1, processes=False, dashboard_address=None) as client:
    ...     closure(client, A, "lor_land").compute().astype(int)
    array([[1, 1, 1],
           [0, 1, 1],
           [0, 0, 1]])
    """
    s = as_semiring(semiring)
    if not s.idempotent:
        raise ValueError(
            f"a closure needs an idempotent ⊕ (a ⊕ a = a), and {s.name} has ⊕ = {s.add}; "
            f"use matmul for a fixed number of steps"
        )
    return _solve(
        client, s, a, directed, return_predecessors, tile, device, checkpoint, resume, progress
    )


def matmul(a: Any, b: Any, semiring: str | Semiring = "plus_times") -> Any:
    """Matrix product over a semiring of Dask arrays; nothing is computed yet.

    Parameters
    ----------
    a : dask.array.Array, shape (m, k) or (k,)
    b : dask.array.Array, shape (k, n) or (k,)
        Its rows are put into the chunks that the columns of `a` have.
    semiring : str or Semiring, default "plus_times"
        A name from :data:`semiring_mm.semirings` or your own.

    Returns
    -------
    dask.array.Array, shape (m, n)
        In chunks of the rows of `a` and the columns of `b`, and the dtype that
        :func:`semiring_mm.matmul` gives. Without the axes that 1-D operands do not have.

    Raises
    ------
    TypeError, ValueError, OverflowError
        As :func:`semiring_mm.matmul`; the last one when it is computed.

    Notes
    -----
    A task adds up the products of up to eight pairs of chunks in place, others join the sums eight
    at a time. Sums of 16-bit floats stay in float32 until the last one is rounded. Whether an
    integer result fits can be said of whole sums only, so integers are put into chunks with the
    whole of k first. Chunks are multiplied where they lie: CuPy's on the GPU.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> from semiring_mm.dask import matmul
    >>> x = da.from_array(np.array([[0, 3, np.inf], [np.inf, 0, 1], [2, np.inf, 0]]), chunks=2)
    >>> matmul(x, x, "min_plus").compute()
    array([[0., 3., 4.],
           [3., 0., 1.],
           [2., 5., 0.]])
    """
    s = as_semiring(semiring)
    for name, x in (("a", a), ("b", b)):
        if not isinstance(x, da.Array):
            raise TypeError(
                f"{name} is a {type(x).__name__}, and semiring_mm.dask multiplies Dask arrays: use "
                f"dask.array.from_array({name}), or semiring_mm.matmul for other arrays"
            )
        if x.ndim not in (1, 2):
            raise ValueError(
                f"{name} has shape {x.shape}: semiring_mm.dask multiplies matrices and vectors; "
                f"for a batch, multiply its matrices one by one"
            )
        if any(math.isnan(size) for size in x.shape):
            raise ValueError(
                f"{name} has chunks of unknown size: call {name}.compute_chunk_sizes() first"
            )
    left = a[np.newaxis] if a.ndim == 1 else a
    right = b[:, np.newaxis] if b.ndim == 1 else b
    if left.shape[1] != right.shape[0]:
        raise ValueError(
            f"matmul: a of shape {a.shape} has k = {left.shape[1]}, but b of shape {b.shape} has "
            f"k = {right.shape[0]}: the last axis of a must match the "
            f"{'only' if b.ndim == 1 else 'first'} axis of b"
        )
    dtype = blas.multiply(cpu, s, np.empty((0, 0), a.dtype), np.empty((0, 0), b.dtype)).dtype
    if dtype.kind in "iu":
        left = left.rechunk({1: -1})
    right = right.rechunk({0: left.chunks[1]})
    wide = np.dtype(np.float32) if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype
    product = _product(s, left, right, wide).astype(dtype)
    if b.ndim == 1:
        product = product[:, 0]
    return product[0] if a.ndim == 1 else product


def _product(s: Semiring, a: Any, b: Any, dtype: np.dtype[Any]) -> Any:
    rows, depth, columns = (range(x) for x in (*a.numblocks, b.numblocks[1]))
    left, right = a.__dask_keys__(), b.__dask_keys__()
    name = f"product-{dask.base.tokenize(s, a, b)}"
    graph: dict[Any, Any] = {}
    for i in rows:
        for j in columns:
            parts: list[Any] = []
            for k in depth[::_CHAIN]:
                chain = depth[k : k + _CHAIN]
                parts.append((f"part-{name}", i, j, k))
                graph[parts[-1]] = (
                    functools.partial(_sum_of_products, s, dtype),
                    [left[i][x] for x in chain], [right[x][j] for x in chain],
                )  # fmt: skip
            level = 0
            while len(parts) > 1:
                groups = [parts[x : x + _CHAIN] for x in range(0, len(parts), _CHAIN)]
                level += 1
                parts = [(f"join-{name}", level, i, j, x) for x in range(len(groups))]
                for part, group in zip(parts, groups, strict=True):
                    graph[part] = (functools.partial(_join, s), group)
            graph[name, i, j] = graph.pop(parts[0])
    layers = dask.highlevelgraph.HighLevelGraph.from_collections(name, graph, dependencies=[a, b])
    meta = a._meta.astype(dtype)
    return da.Array(layers, name, (a.chunks[0], b.chunks[1]), meta=meta, dtype=dtype)


def _sum_of_products(
    s: Semiring, dtype: np.dtype[Any], lefts: Sequence[Array], rights: Sequence[Array]
) -> Array:
    pairs = ((x.astype(dtype, copy=False), y.astype(dtype, copy=False))
             for x, y in zip(lefts, rights, strict=True))  # fmt: skip
    total = blas.matmul(*next(pairs), s)
    one = s.identities(dtype)[1]
    for x, y in pairs:
        total = blas.gemm(None, x, y, one, total, semiring=s, out=total)
    return total


def _join(s: Semiring, parts: Sequence[Array]) -> Array:
    return functools.reduce(functools.partial(evaluate, s.add_expr), parts)


# --- what is asked for --------------------------------------------------------------------------


def _solve(
    client: Any, s: Semiring, graph: Any, directed: bool | None, predecessors: bool,
    tile: int | None, device: str | None, checkpoint: Any, resume: bool, progress: Progress,
) -> Any:  # fmt: skip
    reporter(progress, 1.0)  # the argument's own errors come first
    _check_client(client)
    if device not in _LEAST:
        raise ValueError(
            f"device must be None, 'cpu' or 'cuda' (each worker's first), got {device!r}"
        )
    tile = None if tile is None else _positive(tile, "tile")
    state = None if checkpoint is None else _State.at(checkpoint)
    if resume and state is None:
        raise ValueError("resume=True needs checkpoint=, the folder to go on from")
    matrix = _Matrix.of(s, graph, directed)
    if predecessors:
        check_predecessors(s, matrix.dtype)
    if matrix.n == 0:
        nothing = da.zeros((0, 0), dtype=matrix.dtype)
        return (nothing, da.zeros((0, 0), dtype=np.int32)) if predecessors else nothing
    cluster = _Cluster.of(client, device)
    found = state.open(resume) if state else {}
    grid = Grid(matrix.n, tile or found.get("tile") or cluster.tile(matrix.n))
    cluster.check(grid, matrix.dtype, predecessors)
    if predecessors and as_numbers(s, matrix.dtype):
        matrix = dataclasses.replace(matrix, s=semirings["max_min"], truth=True)
    task = _Task(cluster, grid, matrix, matrix.blocks(grid), directed, predecessors, state)
    resumed = task.prepare(found)

    def attempt(margins: NDArray[np.float64] | None) -> Any:
        if margins is None:
            return task.solve(progress)
        if margins is not resumed:
            task.restart(margins)
        return task.worsened(margins).solve(progress)

    return with_margins(s, matrix.dtype, attempt, resumed)


def _check_client(client: Any) -> None:
    if not isinstance(client, distributed.Client):
        raise TypeError(
            f"client is a distributed.Client, such as Client('tcp://host:8786'), got "
            f"{type(client).__name__}"
        )
    if client.asynchronous:
        raise TypeError("the client is asynchronous, and this call waits: use another client")
    if client.status != "running":
        raise ValueError(f"the client is {client.status}: make a new one")


def _positive(value: Any, name: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None
    if number < 1:
        raise ValueError(f"{name} must be at least 1, got {number}")
    return number


@dataclass(frozen=True)
class _Matrix:
    """A graph's matrix over a semiring, wherever it is."""

    s: Semiring
    n: int
    dtype: np.dtype[Any]
    array: Any = None  # a Dask array, or
    source: DenseSource | EdgeSource | None = None  # at the client
    undirected: bool = False  # each entry of the Dask array leads both ways
    truth: bool = False  # truth values that are to be numbers
    labels: Sequence[Any] | None = None

    @classmethod
    def of(cls, s: Semiring, graph: Any, directed: bool | None) -> _Matrix:
        whole = isinstance(graph, da.Array) or type(graph) in (np.ndarray, np.memmap)
        edges = None if whole else edge_list(graph, directed=directed)
        if edges is not None:
            source = EdgeSource(s, edges, edge_dtype(s, edges.weight))
            return cls(s, source.n, source.dtype, source=source, labels=edges.nodes)
        x = graph if whole else adjacency(graph, s)[0]
        if any(math.isnan(size) for size in x.shape):
            raise ValueError("the graph has chunks of unknown size: call compute_chunk_sizes()")
        if x.ndim != 2 or x.shape[0] != x.shape[1]:
            raise ValueError(f"a graph's matrix is square, got shape {x.shape}")
        if x.dtype.kind not in "biuf" and x.dtype.name != "bfloat16":
            raise TypeError(f"a graph's weights are real numbers, got dtype {x.dtype}")
        if isinstance(x, da.Array):
            dtype = x.dtype.newbyteorder("=")
            return cls(s, x.shape[0], dtype, array=x, undirected=directed is False)
        dense = DenseSource(s, x, undirected=directed is False)
        return cls(s, dense.n, dense.dtype, source=dense)

    def blocks(self, grid: Grid) -> dict[Place, Delayed]:
        """Its tiles, each made when it is wanted, by whichever worker wants it."""
        side = range(grid.count)
        if self.array is not None:
            parts = self.array.rechunk((grid.tile, grid.tile)).to_delayed()
            return {
                (i, j): _later(
                    _entries, self.bare(), parts[i, j], parts[j, i] if self.undirected else None
                )
                for i in side for j in side
            }  # fmt: skip
        blocks = {}
        if isinstance(self.source, EdgeSource):
            row, col, weight = self.source.edges()
            tile = row // grid.tile * grid.count + col // grid.tile
            order = np.argsort(tile, kind="stable")
            cuts = np.searchsorted(tile[order], np.arange(grid.count**2 + 1))
            for i in side:
                for j in side:
                    at = i * grid.count + j
                    some = order[cuts[at] : cuts[at + 1]]
                    place = (row[some] - i * grid.tile, col[some] - j * grid.tile)
                    shape = (grid.size(i), grid.size(j))
                    blocks[i, j] = _later(_of_edges, self.bare(), shape, *place, weight[some])
        elif self.source is not None:
            for i in side:
                for j in side:
                    x = self.source.read(grid.part(i), grid.part(j))
                    blocks[i, j] = _later(_entries, self.bare(), x, None)
        return blocks

    def bare(self) -> _Matrix:
        """What there is to know of it, without the graph."""
        return dataclasses.replace(self, array=None, source=None, labels=None)

    def read_as(self) -> np.dtype[Any]:
        """The dtype of the blocks."""
        return np.dtype(np.uint8) if self.truth else self.dtype


def _later(function: Callable[..., Any], *args: Any) -> Delayed:
    return dask.delayed(function, pure=False)(*args)


@dataclass(frozen=True)
class _Cluster:
    """The workers, and what they have."""

    client: Any
    device: str | None
    tasks: int  # that all workers together run at once
    sharers: int  # tasks that run at once on a host
    memory: float  # bytes

    @classmethod
    def of(cls, client: Any, device: str | None) -> _Cluster:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        if not workers:
            raise ValueError(
                "the cluster has no workers: start some, and call client.wait_for_workers(1)"
            )
        hosts: dict[str, int] = {}
        for worker in workers:
            hosts[worker["host"]] = hosts.get(worker["host"], 0) + worker["nthreads"]
        if device == "cuda":
            memory = math.fsum(client.run(_device_memory).values())
        else:  # 0 or None: no limit
            memory = math.fsum(worker["memory_limit"] or math.inf for worker in workers)
        return cls(client, device, sum(hosts.values()), max(hosts.values()), memory * _USABLE)

    def tile(self, n: int) -> int:
        """A side of the tiles: there are enough for all to have work, and few enough to give out.

        With 16 a side a step's pivot, which is one worker's, is a sixteenth of the step or less.
        """
        count = max(16, 4 * math.isqrt(self.tasks))
        return max(_LEAST[self.device], -(-n // (count * _UNIT)) * _UNIT)

    def check(self, grid: Grid, dtype: np.dtype[Any], predecessors: bool) -> None:
        """Refuse what does not fit."""
        n, tile, unit = grid.n, grid.tile, dtype.itemsize + 4 * predecessors
        side = math.sqrt(self.tasks)
        # the matrix; row and column k and k + 1 where they are needed; what tasks are writing
        needed = unit * (n * n + 4 * n * tile * side + 3 * tile * tile * self.tasks)
        if needed > self.memory:
            raise MemoryError(
                f"the {n} x {n} matrix in {dtype}{' with predecessors' if predecessors else ''}, "
                f"in tiles of {tile}, needs {needed / 1e9:.3g} GB on the workers, and they may use "
                f"{self.memory / 1e9:.3g} GB: add workers, or use float32 (half of float64)"
            )

    def where(self) -> _Where:
        return _Where(self.device, self.sharers)


def _device_memory() -> int:
    gpu_engine()  # raises where a device or CuPy is missing
    import cupy

    with cupy.cuda.Device(0):
        return int(cupy.cuda.runtime.memGetInfo()[1])


# --- checkpoints --------------------------------------------------------------------------------


@dataclass
class _State:
    """A folder with the tiles after some step, and the file that says which.

    Each checkpoint is a folder of its own, complete once ``run.json``, which is replaced in one
    piece, names it; only then is the one before it removed. ``run.json`` has a hash of itself and
    the files of tiles have checksums (CRC-32), so that a changed byte in either is refused.
    """

    path: Path
    every: int | None
    run: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def at(cls, checkpoint: Any) -> _State:
        path, every = checkpoint if isinstance(checkpoint, tuple) else (checkpoint, None)
        if not isinstance(path, (str, PathLike)):
            raise TypeError(
                f"checkpoint is a path or (path, steps between checkpoints), got {checkpoint!r}"
            )
        every = None if every is None else _positive(every, "steps between checkpoints")
        return cls(Path(path).absolute(), every)

    @property
    def _file(self) -> Path:
        return self.path / "run.json"

    def open(self, resume: bool) -> dict[str, Any]:
        """What the run that was here was about; empty for a new one."""
        there = self._file.exists()
        if resume and not there:
            raise FileNotFoundError(f"there is no checkpoint in {self.path} to resume from")
        if there and not resume:
            raise FileExistsError(
                f"there is a checkpoint in {self.path}: pass resume=True to go on from it, or "
                f"remove it"
            )
        return self._read() if there else {}

    def _read(self) -> dict[str, Any]:
        try:
            run = unseal(self._file.read_bytes().decode())
            step, tile, folder = (run[x] for x in ("step", "tile", "folder"))
            if not (
                type(step) is int and type(tile) is int and tile > 0
                and 0 <= step <= -(-run["n"] // tile)
                and (step == 0 if folder is None else _FOLDER.fullmatch(folder))
            ):  # fmt: skip
                raise ValueError("a field is out of range")
        except (ValueError, KeyError, TypeError):
            raise ValueError(
                f"{self._file} is no state of a run that this version can read, or it has changed "
                f"since it was written; remove {self.path}, and leave out resume to begin again"
            ) from None
        return run

    def begin(self, about: dict[str, Any], found: dict[str, Any]) -> NDArray[np.float64] | None:
        """Start, or go on from what was found; gives the margins of its weights."""
        for name, value in about.items():
            if found and found.get(name) != value:
                raise ValueError(
                    f"{self.path} holds a checkpoint of another run: its {name} is "
                    f"{found.get(name)}, and here it is {value}"
                )
        self.path.mkdir(parents=True, exist_ok=True)
        if found:
            self.run = found
        else:
            self.write({**about, "step": 0, "folder": None, "margins": None})
        margins = self.run["margins"]
        return None if margins is None else np.frombuffer(base64.b85decode(margins), np.float64)

    def restart(self, margins: NDArray[np.float64]) -> None:
        """The run begins anew, with margins."""
        text = base64.b85encode(margins.tobytes()).decode()
        self.write({**self.run, "step": 0, "folder": None, "margins": text})

    def write(self, run: dict[str, Any]) -> None:
        before, self.run = self.run.get("folder"), run
        with atomic_write(self._file) as part:
            part.write_bytes(seal(run).encode())
        if before is not None:
            shutil.rmtree(self.path / before, ignore_errors=True)

    def due(self, k: int, count: int) -> bool:
        """Whether the tiles are to be written after step k; after the last one they are."""
        return k + 1 == count or (k + 1) % (self.every or -(-count // 8)) == 0

    @property
    def folder(self) -> Path:
        return self.path / str(self.run["folder"])


# --- a run --------------------------------------------------------------------------------------


@dataclass
class _Looked:
    """What a pass over the tiles has found."""

    facts: dict[Place, Facts]
    symmetric: bool
    digest: str

    def range(self) -> Facts:
        return functools.reduce(Facts.join, self.facts.values())


@dataclass
class _Task:
    """One graph, and what is wanted of it."""

    cluster: _Cluster
    grid: Grid
    matrix: _Matrix
    blocks: dict[Place, Delayed]
    directed: bool | None
    predecessors: bool
    state: _State | None
    original: dict[Place, Delayed] | None = None  # `blocks` before they were worsened
    found: _Looked | None = None

    def prepare(self, found: dict[str, Any]) -> NDArray[np.float64] | None:
        """Begin the checkpoint; gives the margins with which the run found there goes on."""
        if self.state is None:
            return None
        about = {
            "semiring": str(self.matrix.s), "n": self.grid.n, "tile": self.grid.tile,
            "predecessors": self.predecessors, "symmetric": self.symmetric(),
            "graph": self.look().digest,
        }  # fmt: skip
        return self.state.begin(about, found)

    def restart(self, margins: NDArray[np.float64]) -> None:
        if self.state is not None:
            self.state.restart(margins)

    def worsened(self, margins: NDArray[np.float64]) -> _Task:
        """The same with weights worsened by the margins of the nodes."""
        part = self.grid.part
        blocks = {
            (i, j): _later(
                worsened, self.matrix.s, x, margins[part(i), np.newaxis], margins[part(j)]
            )
            for (i, j), x in self.blocks.items()
        }
        return dataclasses.replace(self, blocks=blocks, original=self.blocks, found=None)

    def compute(self, tasks: Iterable[Delayed]) -> list[Future]:
        with warnings.catch_warnings():  # the docstring says what a matrix at the client means
            warnings.filterwarnings("ignore", message="Sending large graph")
            return list(self.cluster.client.compute(list(tasks)))

    def gather(self, tasks: Iterable[Delayed]) -> list[Any]:
        return list(self.cluster.client.gather(self.compute(tasks)))

    def look(self) -> _Looked:
        if self.found is None:
            s, mark, side = self.matrix.s, self.state is not None, range(self.grid.count)
            pairs = [(i, j) for i in side for j in side[i:]]
            other = [None if i == j else self.blocks[j, i] for i, j in pairs]
            seen = self.gather(
                _later(_look, s, self.blocks[at], x, mark)
                for at, x in zip(pairs, other, strict=True)
            )
            facts = {}
            for (i, j), (above, below, _, _) in zip(pairs, seen, strict=True):
                facts[j, i], facts[i, j] = below, above
            digest = hashlib.sha256("".join(x[3] for x in seen).encode()).hexdigest()
            self.found = _Looked(facts, all(x[2] for x in seen), digest)
        return self.found

    def symmetric(self) -> bool:
        if self.predecessors or self.original is not None or self.directed is not None:
            return self.directed is False and not self.predecessors and self.original is None
        return self.look().symmetric

    def weights(self) -> Weights:
        """What the weights allow, or ValueError at the first that is none."""
        matrix, found = self.matrix, self.look()
        weights = Weights(matrix.s, matrix.read_as(), self.grid.n, found.range())
        if weights.broken:
            for at, facts in sorted(found.facts.items()):
                here = dataclasses.replace(weights, facts=facts)
                if here.broken:
                    (block,) = self.gather([self.blocks[at]])
                    here.refuse(block, (at[0] * self.grid.tile, at[1] * self.grid.tile))
        return weights

    def edges(self) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
        tile = self.grid.tile
        blocks = self.blocks if self.original is None else self.original
        found = self.gather(
            _later(_edges, self.matrix.s, x, i * tile, j * tile) for (i, j), x in blocks.items()
        )
        row, col, weight = (np.concatenate(x) for x in zip(*found, strict=True))
        order = np.lexsort((col, row))
        return row[order], col[order], weight[order]

    def graph(self) -> dict[Place, Future]:
        """The blocks of the weights."""
        return dict(zip(self.blocks, self.compute(self.blocks.values()), strict=True))

    def begin(self, run: _Futures, weights: Weights) -> None:
        where, part, places = self.cluster.where(), self.grid.part, run.places()
        begun = self.compute(
            _later(_begin, run.steps, where, weights, self.blocks[i, j], part(i), part(j))
            for i, j in places
        )
        run.tiles = dict(zip(places, begun, strict=True))

    def solve(self, progress: Progress) -> Any:
        weights = self.weights()
        n = self.grid.n
        steps = Steps.of(weights, symmetric=self.symmetric(), predecessors=self.predecessors)
        self.cluster.check(self.grid, steps.dtype, self.predecessors)
        total = float(n) ** 3 / (2 if steps.symmetric else 1)
        run = _Futures(self.cluster, self.grid, steps, reporter(progress, total), total, self.state)
        try:
            first = 0
            if self.state is not None and self.state.run["step"]:
                first = self.state.run["step"]
                run.resume(first)
            else:
                self.begin(run, weights)
            eliminate(self.grid.count, run, first)
            return run.result(weights, self.matrix, self.graph)
        except BaseException as error:
            run.drop()
            if isinstance(error, Improves):
                improved(
                    self.matrix.s, n, error.first, error.diagonal, self.edges, self.matrix.labels
                )
            raise


def _failure(future: Future) -> BaseException | None:
    """Why there is no result; without frames, which would keep the future, and that the rest."""
    if future.status not in ("error", "cancelled"):
        return None
    try:
        future.result()
    except BaseException as error:
        return error.with_traceback(None)
    return None


class _Futures:
    """The executor of an elimination whose tiles are futures.

    A future stands for one state of a tile and is never written to: a task copies what it changes.
    So what a dead worker had can be computed again from any states that are left, and the cross of
    a step stays as it was while the next one is made.
    """

    def __init__(
        self, cluster: _Cluster, grid: Grid, steps: Steps, tick: Tick | None, total: float,
        state: _State | None,
    ) -> None:  # fmt: skip
        self.cluster, self.client, self.grid, self.steps = cluster, cluster.client, grid, steps
        self.where, self.state = cluster.where(), state
        self.run = uuid.uuid4().hex
        self.tiles: dict[Place, Future] = {}
        self.made: dict[int, list[Future]] = {}  # by step, as long as they are not known to be done
        self.tick, self.done = tick, 0.0
        self.each = total / grid.count / len(self.places())  # pairs of a task, about

    def places(self) -> list[Place]:
        side = range(self.grid.count)
        return [(i, j) for i in side for j in (side[i:] if self.steps.symmetric else side)]

    def tasks(
        self, function: Callable[..., Any], args: Mapping[Place, tuple[Any, ...]],
        *step: int, priority: int = 0, retries: int = 0, **same: Any,
    ) -> dict[Place, Future]:  # fmt: skip
        """A task for each tile, given out together: that takes a fraction of the time.

        Where it runs is left to the scheduler, which goes by where the operands are. It could be
        told of a worker for each tile; but where all workers have died, tasks for one of those
        would wait for it for ever.
        """
        name, places = f"{function.__name__.strip('_')}-{self.run}", list(args)
        if not places:
            return {}
        futures = self.client.map(
            function, [(*step, *at) for at in places],
            *map(list, zip(*args.values(), strict=True)),
            key=[(name, *step, *at) for at in places], priority=priority, retries=retries,
            pure=False, where=self.where, **same,
        )  # fmt: skip
        return dict(zip(places, futures, strict=True))

    def give(
        self, function: Callable[..., Tile], k: int, args: Mapping[Place, tuple[Any, ...]],
        priority: int,
    ) -> None:  # fmt: skip
        """The next states of tiles, from their last ones and what else step k takes."""
        operands = {at: (self.tiles[at], *more) for at, more in args.items()}
        made = self.tasks(function, operands, k, priority=priority, steps=self.steps)
        self.tiles.update(made)
        self.made.setdefault(k, []).extend(made.values())

    def pivot(self, k: int) -> None:
        priority = 3 - 2 * k  # that of what precedes it
        self.give(_close, k, {(k, k): (k * self.grid.tile,)}, priority)
        diagonal = (self.tiles[k, k],)
        row = [(i, j) for i, j in self.places() if i == k and j != k]
        column = [(i, j) for i, j in self.places() if i != k and j == k]
        self.give(_row, k, dict.fromkeys(row, diagonal), priority)
        self.give(_column, k, dict.fromkeys(column, diagonal), priority)

    def update(self, k: int, rows: Sequence[int], columns: Sequence[int]) -> None:
        # What step k + 1 begins with goes before the rest of step k, and that before step k + 1.
        urgent = [k + 1] in (list(rows), list(columns))
        symmetric, args = self.steps.symmetric, {}
        for i in rows:
            for j in columns:
                if symmetric and i > j:
                    continue
                turned = (symmetric and i > k, symmetric and j < k)
                left = self.tiles[(k, i) if turned[0] else (i, k)]
                right = self.tiles[(j, k) if turned[1] else (k, j)]
                args[i, j] = (left, right, *turned)
        self.give(_update, k, args, urgent - 2 * k)

    def finish(self, k: int) -> None:
        self.settle(self.made.pop(k - 1, []), self.each)
        if self.state is not None and self.state.due(k, self.grid.count):
            self.save(k + 1)

    def settle(self, futures: list[Future], each: float = 0.0) -> None:
        """Wait, and let go of each: the tasks that need it keep it."""
        waiting = distributed.as_completed(futures)
        futures.clear()
        try:
            for future in waiting:
                failed = _failure(future)
                del future
                if failed is not None:
                    raise failed
                self.done += each
                if self.tick is not None and each:
                    self.tick(self.done)
        finally:
            waiting.clear()  # who keeps an exception keeps this frame

    def save(self, step: int) -> None:
        """Write all tiles, and go on from what is written: nothing before it is needed any more."""
        assert self.state is not None
        name = f"step-{step}-{uuid.uuid4().hex[:8]}"
        folder = self.state.path / name
        folder.mkdir()
        tiles = {at: (x,) for at, x in self.tiles.items()}
        saves = list(self.tasks(_save, tiles, step, retries=2, folder=folder).values())
        del tiles
        for k in sorted(self.made):
            self.settle(self.made.pop(k), self.each)
        self.settle(saves)
        self.state.write({**self.state.run, "step": step, "folder": name})
        self.resume(step, done=self.done)

    def resume(self, step: int, done: float | None = None) -> None:
        """Read the tiles of the checkpoint."""
        assert self.state is not None
        self.done = self.each * len(self.places()) * step if done is None else done
        self.tiles = self.tasks(
            _load, dict.fromkeys(self.places(), ()), step, retries=2, folder=self.state.folder,
            steps=self.steps,
        )  # fmt: skip

    def drop(self) -> None:
        """Nothing of this is wanted any more, whoever keeps an exception with its frames."""
        self.tiles.clear()
        self.made.clear()

    def result(
        self, weights: Weights, matrix: _Matrix, graph: Callable[[], dict[Place, Future]]
    ) -> Any:
        """Dask arrays of what the tiles have become."""
        for k in sorted(self.made):
            self.settle(self.made.pop(k), self.each)
        if self.steps.predecessors:
            self.repair(graph)
        side = range(self.grid.count)
        args = {}
        for i in side:
            for j in side:
                turned = self.steps.symmetric and i > j
                tile = self.tiles[(j, i) if turned else (i, j)]
                args[i, j] = (tile, turned)
        parts = self.tasks(_distances, args, weights=weights, matrix=matrix.bare())
        trees = {}
        if self.steps.predecessors:
            trees = self.tasks(_predecessors, {at: (x,) for at, x in self.tiles.items()})
        self.settle([*parts.values(), *trees.values()])
        distances = self.array(parts, matrix.dtype)
        return (distances, self.array(trees, np.dtype(np.int32))) if trees else distances

    def array(self, parts: dict[Place, Future], dtype: np.dtype[Any]) -> Any:
        name = next(iter(parts.values())).key[0]
        sizes = tuple(map(self.grid.size, range(self.grid.count)))
        graph = {future.key: future for future in parts.values()}
        return da.Array(graph, name, (sizes, sizes), dtype=dtype)

    def repair(self, graph: Callable[[], dict[Place, Future]]) -> None:
        """Make trees of the rows of P in which ties or rounding have closed a cycle."""
        part, side, s = self.grid.part, range(self.grid.count), self.steps.s
        strips = {(i, i): ([self.tiles[i, j] for j in side], part(i)) for i in side}
        cyclic = self.tasks(_has_cycle, strips, s=s)
        found = [at for at, cycle in self.client.gather(cyclic).items() if cycle]
        if not found:
            return
        blocks = graph()
        with_graph = {(i, i): (*strips[i, i], [blocks[i, j] for j in side]) for i in side}
        kept = self.tasks(_best_edges, with_graph, s=s, n=self.grid.n)
        edges = self.client.submit(_by_end, list(kept.values()), self.grid.n, pure=False)
        del blocks, with_graph
        rows = self.tasks(_repair, {at: strips[at] for at in found}, s=s, edges=edges)
        args = {
            (i, j): (self.tiles[i, j], rows[i, i], part(j))
            for i, j in self.places() if (i, i) in rows
        }  # fmt: skip
        self.tiles.update(self.tasks(_repaired, args))


# --- what the workers do ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Where:
    """With what a worker computes."""

    device: str | None
    sharers: int

    @contextlib.contextmanager
    def engine(self, *at: int) -> Iterator[Any]:
        """The engine, for tile (i, j) of step k or tile (i, j)."""
        tile = f"tile {at[-2:]}{f' of step {at[0]}' if len(at) > 2 else ''}"
        try:
            if self.device == "cuda":
                engine = gpu_engine()
                with engine.on(0):
                    yield engine
                    engine.wait()  # so that what goes wrong goes wrong here
            else:  # each of the tasks on this host has its part of the cores
                with threads.limited(max(1, threads.default_threads() // self.sharers)):
                    yield cpu
        except MemoryError as error:
            where = "its GPU" if self.device == "cuda" else "the host"
            raise MemoryError(
                f"{tile}: {where} of worker {_worker()} has too little memory ({error}); take "
                f"smaller tiles, or more workers"
            ) from None


def _worker() -> str:
    try:
        return str(distributed.get_worker().address)
    except ValueError:  # not in a task
        return "none"


def _entries(matrix: _Matrix, block: Array, opposite: Array | None) -> Array:
    """A block as a new array on the host; joined to the transpose of the one opposite."""
    entries = np.array(_on_host(block), matrix.dtype)
    if opposite is not None:
        other = np.asarray(_on_host(opposite)).T.astype(matrix.dtype)
        entries = np.asarray(evaluate(matrix.s.add_expr, entries, other)).astype(matrix.dtype)
    return entries.astype(matrix.read_as(), copy=False)


def _of_edges(
    matrix: _Matrix, shape: Place, row: NDArray[np.int64], col: NDArray[np.int64], weight: Array
) -> Array:
    block = np.full(shape, matrix.s.identities(matrix.dtype)[0], matrix.dtype)
    join_edges(matrix.s, block, row, col, weight)
    return block.astype(matrix.read_as(), copy=False)


def _on_host(x: Array) -> Array:
    return x.get() if hasattr(x, "get") else x


def _look(
    s: Semiring, above: Array, below: Array | None, mark: bool
) -> tuple[Facts, Facts, bool, str]:
    """Ranges of blocks (i, j) and (j, i), whether they mirror each other, and their digest."""
    blocks = [above] if below is None else [above, below]
    facts = [cpu.facts(s, x) for x in blocks]
    digest = hashlib.sha256()
    for x in blocks if mark else []:
        digest.update(x.tobytes())
    return facts[0], facts[-1], np.array_equal(above, blocks[-1].T), digest.hexdigest()


def _edges(s: Semiring, block: Array, row: int, col: int) -> tuple[Array, Array, Array]:
    rows, cols, weights = edges_of(s, block)
    return rows + row, cols + col, weights


def _begin(
    steps: Steps, where: _Where, weights: Weights, block: Array, rows: slice, columns: slice
) -> Tile:
    with where.engine() as engine:
        d = engine.from_host(np.array(weights.widen(block)))
        return d, steps.begin(engine.xp, d, rows, columns)


def _copy(tile: Tile) -> Tile:
    """A task may be done again, from the same operands."""
    d, p = tile
    return d.copy(), None if p is None else p.copy()


def _close(at: At, tile: Tile, first: int, *, steps: Steps, where: _Where) -> Tile:
    with where.engine(*at) as engine:
        d, p = _copy(tile)
        steps.close(engine, d, p, first)
        return d, p


def _row(at: At, tile: Tile, diagonal: Tile, *, steps: Steps, where: _Where) -> Tile:
    with where.engine(*at) as engine:
        d, p = _copy(tile)
        steps.row(engine, diagonal[0], d, p)
        return d, p


def _column(at: At, tile: Tile, diagonal: Tile, *, steps: Steps, where: _Where) -> Tile:
    with where.engine(*at) as engine:
        d, p = _copy(tile)
        steps.column(engine, d, diagonal[0], p, diagonal[1])
        return d, p


def _update(
    at: At, tile: Tile, left: Tile, right: Tile, turn_left: bool, turn_right: bool, *,
    steps: Steps, where: _Where,
) -> Tile:  # fmt: skip
    with where.engine(*at) as engine:
        d, p = _copy(tile)
        a = left[0].T if turn_left else left[0]
        b = right[0].T if turn_right else right[0]
        steps.update(engine, a, b, d, p, right[1])
        return d, p


def _save(at: At, tile: Tile, *, folder: Path, where: _Where) -> None:
    if not folder.is_dir():
        raise FileNotFoundError(
            f"worker {_worker()} does not see {folder}: a checkpoint needs a folder that the "
            f"client and all workers share"
        )
    with where.engine(*at) as engine:
        parts: dict[str, Any] = {
            name: np.ascontiguousarray(engine.to_host(x))
            for name, x in zip("dp", tile, strict=True)
            if x is not None
        }
    with atomic_write(_file(folder, at)) as part:
        np.savez(part, **parts)


def _file(folder: Path, at: At) -> Path:
    return folder / f"{at[-2]}-{at[-1]}.npz"


def _load(at: At, *, folder: Path, steps: Steps, where: _Where) -> Tile:
    path = _file(folder, at)
    try:
        with np.load(path) as parts:  # the reader of zip files compares checksums
            d = parts["d"].view(steps.dtype)  # NumPy saves bfloat16 as bytes
            p = parts["p"] if steps.predecessors else None
    except (OSError, MemoryError):
        raise
    except Exception as error:
        raise ValueError(
            f"{path} has changed since it was written: remove the checkpoint, and leave out resume "
            f"to begin again"
        ) from error
    with where.engine(*at) as engine:
        return engine.from_host(d), None if p is None else engine.from_host(p)


def _distances(
    at: At, tile: Tile, turned: bool, *, where: _Where, weights: Weights, matrix: _Matrix
) -> Array:
    """A block of the result, on the host, in the graph's dtype."""
    with where.engine(*at) as engine:
        d = engine.to_host(tile[0])
    d = np.ascontiguousarray(d.T) if turned else d
    return d != 0 if matrix.truth else weights.narrow(d)


def _predecessors(at: At, tile: Tile, *, where: _Where) -> Array:
    with where.engine(*at) as engine:
        p = engine.to_host(tile[1])
    if at[0] == at[1]:  # where rounding may have taken a cycle for better than none
        p = p.copy()
        np.fill_diagonal(p, NO_PREDECESSOR)
    return p


def _strip(engine: Any, tiles: Sequence[Tile]) -> Tile:
    """Whole rows."""
    d, p = (engine.xp.concatenate(x, axis=1) for x in zip(*tiles, strict=True))
    return d, p


def _has_cycle(at: At, tiles: Sequence[Tile], rows: slice, *, s: Semiring, where: _Where) -> bool:
    with where.engine(*at) as engine:
        own = np.arange(rows.start, rows.stop)
        return any(True for _ in cyclic_rows(engine, s, *_strip(engine, tiles), own))


def _best_edges(
    at: At, tiles: Sequence[Tile], rows: slice, blocks: Sequence[Array], *, s: Semiring, n: int,
    where: _Where,
) -> Edges:  # fmt: skip
    with where.engine(*at) as engine:
        d = engine.to_host(engine.xp.concatenate([x for x, _ in tiles], axis=1))
    return best_edges(s, n, [(rows.start, np.concatenate(blocks, axis=1), d)])


def _by_end(parts: Sequence[Edges], n: int) -> Edges:
    return Edges.by_end(
        n, *(np.concatenate([getattr(x, of) for x in parts]) for of in ("start", "end", "weight"))
    )


def _repair(
    at: At, tiles: Sequence[Tile], rows: slice, *, s: Semiring, edges: Edges, where: _Where
) -> Array:
    with where.engine(*at) as engine:
        d, p = _strip(engine, tiles)
        repair_trees(engine, s, d, p, lambda: edges, np.arange(rows.start, rows.stop))
        return p


def _repaired(at: At, tile: Tile, rows: Array, columns: slice, *, where: _Where) -> Tile:
    return tile[0], rows[:, columns].copy()
