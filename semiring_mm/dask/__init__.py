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

from typing import Any

import numpy as np

from ..closures.elimination import Grid
from ..closures.solve import Problem
from ..closures.weights import check_idempotent, check_predecessors
from ..deprecated import apart
from ..naming import listing
from ..progress import Progress, reporter
from ..semirings import Semiring, as_semiring, semirings
from ..tiles import TileOptions, Tiles

try:
    import dask.array as da
    import distributed  # noqa: F401
except ImportError as error:
    raise ImportError(
        "semiring_mm.dask works with the packages dask and distributed, and one of them is not "
        'here: python -m pip install "semiring-mm[distributed]"'
    ) from error

from .checkpoint import State
from .cluster import LEAST, Cluster, check_client, positive
from .futures import run
from .product import product
from .source import DaskSource, Given

__all__ = ["apsp", "closure", "matmul"]
__dir__ = listing(__all__)


@apart()
def apsp(
    client: Any,
    graph: Any,
    *,
    weight: str | int | None = "weight",
    source: Any = None,
    target: Any = None,
    dtype: Any = None,
    directed: bool | None = None,
    return_predecessors: bool = False,
    tile: int | None = None,
    device: str | None = None,
    progress: Progress = None,
    tiles: Tiles | None = None,
) -> Any:
    """All-pairs shortest paths on the workers of a Dask cluster.

    Parameters
    ----------
    client : distributed.Client
    graph : dask.array.Array of shape (n, n), or any graph that :func:`semiring_mm.apsp` takes
        What is not a Dask array travels to the workers through the scheduler, which keeps it: a
        file or a list of edges is small, but a large dense matrix is better given as a Dask array.
    weight, source, target, dtype : optional
        As for :func:`semiring_mm.apsp`.
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
    progress : bool or callable, optional
        As for :func:`semiring_mm.apsp`.
    tiles : Tiles, optional
        Every ``checkpoint`` of the n / tile steps (default: eight times in a run) the tiles are
        written to the folder ``out``, which all workers and the client see, and the work goes on
        from what is written. See :class:`semiring_mm.Tiles`.

    Returns
    -------
    distances : dask.array.Array, shape (n, n)
        Its tiles are in the workers' memory, in the dtype that :func:`semiring_mm.apsp` gives. An
        array of Dask has no labels: rows and columns are in the order of ``list(graph)``, or of the
        `nodes` of what :func:`semiring_mm.files.read_graph` returns.
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
        If there is a state in the folder, and ``tiles.resume`` is not asked for.
    ValueError
        If the state is that of another graph; and as :func:`semiring_mm.apsp`.

    Notes
    -----
    n³ pairs, or n³/2 undirected, in n / tile steps (Park, Penner and Prasanna, 2004). The tiles of
    row and column k + 1 go first, so that the next step's pivot is made, and travels, while the
    rest of step k is computed. At most two steps are with the scheduler at a time.

    If a worker dies, its tiles are computed again from the tiles that are left and, where these
    are not enough, from the last checkpoint; without one, from the beginning. The result is the
    same to the last bit, and the run takes longer.

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
        client, semirings["min_plus"], graph, (weight, directed, source, target, dtype),
        return_predecessors, tile, device, progress, tiles,
    )  # fmt: skip


@apart()
def closure(
    client: Any,
    a: Any,
    semiring: str | Semiring,
    *,
    weight: str | int | None = "weight",
    source: Any = None,
    target: Any = None,
    dtype: Any = None,
    directed: bool | None = None,
    return_predecessors: bool = False,
    tile: int | None = None,
    device: str | None = None,
    progress: Progress = None,
    tiles: Tiles | None = None,
) -> Any:
    """The closure ``A* = I ⊕ A ⊕ A² ⊕ …`` on the workers of a Dask cluster.

    Parameters
    ----------
    client : distributed.Client
    a : dask.array.Array of shape (n, n), or any graph that :func:`semiring_mm.closure` takes
    semiring : str or Semiring
        With an idempotent ⊕.
    weight, source, target, dtype, directed, return_predecessors, tile, device, progress, tiles
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
    check_idempotent(s, "matmul")
    return _solve(
        client, s, a, (weight, directed, source, target, dtype), return_predecessors, tile, device,
        progress, tiles,
    )  # fmt: skip


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
    return product(as_semiring(semiring), a, b)


def _solve(
    client: Any, s: Semiring, graph: Any, reading: tuple[Any, ...], predecessors: bool,
    tile: int | None, device: str | None, progress: Progress, tiles: Tiles | None,
) -> Any:  # fmt: skip
    reporter(progress, 1.0)  # the argument's own errors come first
    check_client(client)
    if device not in LEAST:
        raise ValueError(
            f"device must be None, 'cpu' or 'cuda' (each worker's first), got {device!r}"
        )
    tile = None if tile is None else positive(tile, "tile")
    options = TileOptions.of(None, tiles, "devices", "memory")  # workers have their own
    paths = options.paths(False, "of a folder")
    given, directed = Given.of(s, graph, *reading), reading[1]
    if predecessors:
        check_predecessors(s, given.dtype)
    if given.n == 0:
        nothing = da.zeros((0, 0), dtype=given.dtype)
        return (nothing, da.zeros((0, 0), dtype=np.int32)) if predecessors else nothing
    cluster = Cluster.of(client, device)
    state = None
    if paths is not None:
        state = State.open(paths[0].absolute(), options.checkpoint, options.resume)
    grid = Grid(given.n, tile or (state and state.tile) or cluster.tile(given.n))
    cluster.check(grid, given.dtype, predecessors)
    source = DaskSource(
        client, grid, s, given.dtype, given.blocks(grid), undirected=directed is False,
        marked=state is not None,
    )  # fmt: skip
    problem = Problem.of(source, directed, predecessors, given.labels, progress).in_numbers()
    margins = None
    if state is not None:
        state.begin(problem, grid)
        margins = state.margins()

    def attempt(problem: Problem) -> Any:
        found = problem.source.margins
        if state is not None and found is not None and found is not margins:
            state.keep_margins(found)
            state.write(0)  # the run begins anew
        return run(problem, cluster, grid, state)

    return problem.solve(attempt, margins)
