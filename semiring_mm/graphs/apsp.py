"""All-pairs shortest paths, and closures over any idempotent semiring."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..arrays import Call, check_memory, gpu_engine, gpu_has
from ..blas import multiply
from ..closures.edges import EdgeList, is_symmetric, symmetrize
from ..closures.kleene import Closure
from ..closures.paths import NO_PREDECESSOR
from ..closures.progress import Progress, reporter
from ..closures.trees import Edges, best_edges, cyclic_rows, repair_trees
from ..closures.weights import Rounding, Weights, as_numbers, check_predecessors, edges_of, improved
from ..cpu import threads
from ..engine import JOIN
from ..expressions import evaluate
from ..semirings import Semiring, as_semiring, semirings
from ..tiled.solve import TileOptions, close
from .contraction import dense_pairs, solve, solve_edges
from .inputs import adjacency, edge_list

__all__ = ["apsp", "closure"]

Array = Any  # of the engine's library
Index = NDArray[np.int64]
Tick = Callable[[float], None] | None

#: Nodes from which a dense graph on the host is moved to a GPU, if there is one: about where what
#: it costs to move and to launch some hundred kernels is small beside the work on few cores.
_GPU_FROM = 2048


def apsp(
    graph: Any,
    *,
    method: str = "auto",
    directed: bool | None = None,
    return_predecessors: bool = False,
    sources: Any = None,
    max_hops: int | None = None,
    overwrite: bool = False,
    device: str | None = None,
    progress: Progress = None,
    devices: Any = None,
    out: Any = None,
    memory_limit: int | str | None = None,
    checkpoint: int = 1,
    resume: bool = False,
) -> Any:
    """All-pairs shortest paths.

    Parameters
    ----------
    graph : array_like, SciPy sparse matrix, NetworkX graph, semiring_mm.files.Graph, or path
        A dense (n, n) matrix holds edge weights, inf (in an integer dtype its largest value) where
        there is no edge; a 0 diagonal is implied. A (b, n, n) array is a batch of graphs. For
        other kinds see :func:`adjacency`.
    method : {"auto", "floyd_warshall", "squaring", "sparse"}
        ``"floyd_warshall"``: Kleene's elimination in blocks, n³ steps. ``"squaring"``: repeated
        min-plus squaring, at most ⌈log₂ n⌉ products, fewer if nothing changes any more.
        ``"sparse"``: elimination of vertices and a sweep from each source, for graphs with small
        separators such as road networks. ``"auto"`` takes the last if it is the faster for a graph
        with few edges, squaring if `max_hops` asks for it, and else the first.
    directed : bool, optional
        False reads every edge both ways. Default: what the graph says; a matrix that is symmetric
        is found to be undirected, which halves the work.
    return_predecessors : bool, default False
        Also return the predecessor matrix.
    sources : int or sequence of int, optional
        Only paths from these nodes: the result has a row for each. NetworkX graphs take node
        labels.
    max_hops : int, optional
        Only paths of at most this many edges.
    overwrite : bool, default False
        Use the memory of `graph`, a dense matrix, for the result.
    device : {None, "cpu", "cuda", "cuda:N"}
        Where to run. None: where `graph` lives; a graph on the host goes to a CUDA device and the
        result comes back if there is one with room, the graph has 2048 nodes or more and is dense
        (over 16 edges a node, where it might else be eliminated as a sparse one), and all pairs are
        wanted.
    progress : bool or callable, optional
        True shows a line on the terminal for work over a second; a callable is called with
        (pairs done, pairs in all), and may raise to stop the work.
    devices : {None, "all"} or sequence of int, optional
        CUDA devices of this machine to share the work. If all of them together cannot hold the
        matrix, it stays on the host and streams through them.
    out : path or (path, path), optional
        Where the distances go (and the predecessors, if they are wanted): a file that ends in
        ``.npy``, or a directory that ends in ``.zarr``. The matrix is never whole in memory then.
        It has another name until it is finished. What is there already is not overwritten.
    memory_limit : int or str, optional
        Bytes, or a word such as ``"16GB"``, that tiles may take on the host, beside a result in
        memory; default half of what is free. The smaller, the more is read and written.
    checkpoint : int, default 1
        With `out`: steps (of which there are as many as tiles in a row) from one state on the disk,
        from which `resume` goes on, to the next.
    resume : bool, default False
        With `out`: go on with a run that was stopped or killed.

    Returns
    -------
    distances : ndarray, shape (n, n), (sources, n) or (b, n, n)
        Of the library, on the device and in the dtype of a dense input; for other graphs NumPy's,
        float64 unless their weights are float32. With `out` the file, open to be read:
        numpy.memmap or zarr.Array.
    predecessors : ndarray of int32
        Only with `return_predecessors`. ``P[i, j]`` is the node before `j` on a shortest path from
        `i`; -9999 if there is none, and on the diagonal. See :func:`reconstruct_path`.

    Raises
    ------
    NegativeCycleError
        With the cycle in it.
    MemoryError, OSError
        Before any work, if the matrix does not fit in memory, or not on the disk.
    FileExistsError
        If there is such a file already.
    OverflowError
        If an integer distance does not fit the dtype.

    Notes
    -----
    Negative weights and cycles of weight zero are welcome. n³ pairs, or n³/2 undirected; in place
    but for one copy of the input. Floyd (1962), Warshall (1962), Kleene (1956); the blocked form
    after Park, Penner and Prasanna (2004).

    ``"sparse"`` takes n·f pairs, f being the edges after an elimination by minimum degree: O(n) for
    bounded treewidth, O(n log n) for planar graphs with the best order. There is no n × n matrix
    beside the result, and with `sources` none at all. Planken, de Weerdt and van der Krogt (2012);
    the sweeps after Delling, Goldberg, Nowatzyk and Werneck (2013).

    `devices`, `out` and `memory_limit` compute in square tiles, n³ pairs (n³/2 undirected); out of
    core each step reads and writes the matrix once. A run that was killed at any moment can go on,
    since a step may be repeated on tiles that it has reached.

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> inf = np.inf
    >>> W = np.array([[0, 3, 8], [inf, 0, 1], [2, inf, 0]])
    >>> D, P = sm.apsp(W, return_predecessors=True)
    >>> D
    array([[0., 3., 4.],
           [3., 0., 1.],
           [2., 5., 0.]])
    >>> sm.reconstruct_path(P, 0, 2)
    [0, 1, 2]
    """
    if method not in ("auto", "floyd_warshall", "squaring", "sparse"):
        raise ValueError(
            f"method is 'auto', 'floyd_warshall', 'squaring' or 'sparse', got {method!r}"
        )
    if max_hops is not None:
        max_hops = _index(max_hops, "max_hops")
        if max_hops < 0:
            raise ValueError(f"max_hops must be at least 0, got {max_hops}")
        if return_predecessors:
            raise ValueError(
                "max_hops: shortest paths of limited length do not form trees, so one predecessor "
                "a node cannot describe them; leave out return_predecessors"
            )
        if method in ("floyd_warshall", "sparse"):
            raise ValueError("max_hops needs method='squaring' (or 'auto')")
    where = TileOptions.of(device, devices, out, memory_limit, checkpoint, resume)
    return _solve(
        semirings["min_plus"], graph, method, directed, return_predecessors, sources, max_hops,
        overwrite, where, progress,
    )  # fmt: skip


def closure(
    a: Any,
    semiring: str | Semiring = "max_min",
    *,
    return_predecessors: bool = False,
    directed: bool | None = None,
    overwrite: bool = False,
    device: str | None = None,
    progress: Progress = None,
    devices: Any = None,
    out: Any = None,
    memory_limit: int | str | None = None,
    checkpoint: int = 1,
    resume: bool = False,
) -> Any:
    """The closure ``A* = I ⊕ A ⊕ A² ⊕ …``: the best path between every two nodes.

    Widest paths over max_min, minimax over min_max, most reliable over max_times, reachability
    over lor_land (dtype bool, 32 columns to a word), shortest over min_plus.

    Parameters
    ----------
    a : array_like of shape (n, n) or (b, n, n), or any graph that :func:`adjacency` takes
        The semiring's zero means no edge.
    semiring : str or Semiring, default "max_min"
        With an idempotent ⊕.
    return_predecessors, directed, overwrite, device, progress
        As for :func:`apsp`.
    devices, out, memory_limit, checkpoint, resume
        As for :func:`apsp`, too: over several devices, in files.

    Returns
    -------
    closure : ndarray
        ``one`` on the diagonal.
    predecessors : ndarray of int32
        Only with `return_predecessors` (⊕ must choose one of its operands: min, max, or).

    Raises
    ------
    ValueError
        If ⊕ is not idempotent, or a cycle improves itself (over min_plus as
        :class:`NegativeCycleError`), so that no closure exists.

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> A = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)
    >>> sm.closure(A, "lor_land").astype(int)
    array([[1, 1, 1],
           [0, 1, 1],
           [0, 0, 1]])
    """
    s = as_semiring(semiring)
    if not s.idempotent:
        raise ValueError(
            f"a closure needs an idempotent ⊕ (a ⊕ a = a), and {s.name} has ⊕ = {s.add}; "
            f"use matrix_power for a fixed number of steps"
        )
    where = TileOptions.of(device, devices, out, memory_limit, checkpoint, resume)
    return _solve(
        s, a, "auto", directed, return_predecessors, None, None, overwrite, where, progress
    )


def _solve(
    s: Semiring,
    graph: Any,
    method: str,
    directed: bool | None,
    return_predecessors: bool,
    sources: Any,
    max_hops: int | None,
    overwrite: bool,
    where: TileOptions,
    progress: Progress,
) -> Any:
    reporter(progress, 1.0)  # the argument's own errors come first
    device = where.device
    dense = isinstance(graph, (np.ndarray, list, tuple)) or (
        (hasattr(graph, "__array__") or hasattr(graph, "__dlpack__"))
        and not hasattr(graph, "tocoo")
        and not hasattr(graph, "edges")
    )
    if overwrite and not (isinstance(graph, np.ndarray) or hasattr(graph, "__dlpack__")):
        raise ValueError(
            f"overwrite=True needs a NumPy array to overwrite, got {type(graph).__name__}"
        )
    if isinstance(graph, np.ma.MaskedArray):
        raise TypeError(f"the graph is a masked array: use graph.filled({s.zero:g})")
    edges = None if dense else edge_list(graph, directed=directed)
    count = graph if edges is None else edges
    tiled = not _refused_by_tiles(method, sources, max_hops, overwrite)
    if device is None and not where and sources is None and _gpu_gains(s, count, method):
        there = replace(where, device="cuda")
        if tiled or not _exceeds(there, count, return_predecessors):
            where, device = there, "cuda"
    if where or (tiled and _exceeds(where, count, return_predecessors)):
        _check_tiled(where, method, sources, max_hops, overwrite)
        matrix = edges if edges is not None else _on_host(graph)
        return close(
            s, matrix, where, directed=directed, predecessors=return_predecessors,
            progress=progress,
        )  # fmt: skip
    with Call(device, graph if overwrite else None, graph=graph if dense else None) as call:
        if dense and call["graph"].ndim == 3:
            if sources is not None or max_hops is not None:
                raise ValueError("sources and max_hops are for one graph, not for a batch")
            return call.give(_batch(call, s, directed, return_predecessors, progress))
        here = call.engine.SPARSE
        if method == "sparse" and not here:
            raise ValueError(
                "method='sparse' runs on the CPU: leave device out, and copy an array on a device "
                "to the host first"
            )
        if s.name != "min_plus" or max_hops is not None or method not in ("auto", "sparse"):
            here = False
        task = _Task(
            call.engine, s, method, directed, return_predecessors, max_hops, here and dense
        )
        if edges is not None and here:
            rows = None if sources is None else _sources(sources, edges.nodes, graph)
            solved = solve_edges(edges, method, rows, return_predecessors, progress)
            if solved is not None:
                return solved if return_predecessors else solved[0]
        nodes: Sequence[Any]
        if not dense:
            d, nodes = adjacency(graph if edges is None else edges, s, directed=directed)
            original = None
            if call.moved:
                check_memory(d.nbytes, _matrix_of(d), call.engine)
                d = call.engine.from_host(d)
        else:
            d, original = _own(call, s, directed)
            nodes = range(d.shape[0])
        rows = None if sources is None else _sources(sources, nodes, graph)
        labels = None if dense else nodes
        return call.give(task.solve(d, original, rows, labels, progress))


def _gpu_gains(s: Semiring, graph: Any, method: str) -> bool:
    """Whether a graph on the host is big and dense enough for a GPU, and one is there."""
    if isinstance(graph, EdgeList):
        n = len(graph.nodes)
    elif type(graph) is np.ndarray and graph.ndim == 2:
        n = graph.shape[0]
    else:
        return False
    if n < _GPU_FROM or method == "sparse":
        return False
    if s.name == "min_plus" and method == "auto":  # which may be sparse
        edges, step = 0, 64
        if isinstance(graph, EdgeList):
            edges = len(graph.row)
        elif graph.dtype.kind in "iuf":
            zero = s.identities(graph.dtype)[0]
            for i in range(0, n, step):  # as far as it takes to see that it is dense
                edges += int(np.count_nonzero(graph[i : i + step] != zero))
                if not dense_pairs(n, edges, method, None):
                    break
        if dense_pairs(n, edges, method, None):
            return False
    return gpu_has(0)


def _exceeds(where: TileOptions, graph: Any, predecessors: bool) -> bool:
    """Whether a graph on the host is to be moved to a device that cannot hold it."""
    if where.device is None or not where.device.startswith("cuda") or not gpu_has(0):
        return False
    if isinstance(graph, EdgeList):
        n, size = len(graph.nodes), 4 if graph.weight.dtype == np.float32 else 8
    elif isinstance(graph, np.ndarray) and graph.ndim == 2:
        n, size = graph.shape[0], graph.itemsize
    else:
        return False
    number, engine = where.device.partition(":")[2], gpu_engine()
    with engine.on(int(number) if number.isdecimal() else -1):
        free = engine.free_memory()
    # itself, as it came, and half of it for products in place
    return n >= _GPU_FROM and n * n * (5 * size // 2 + 6 * predecessors) > (free or 1 << 62)


def _refused_by_tiles(
    method: str, sources: Any, max_hops: int | None, overwrite: bool
) -> list[str]:
    """What was asked for that tiles have no way for."""
    given = {
        "sources": sources is not None, "max_hops": max_hops is not None, "overwrite": overwrite,
        f"method={method!r}": method not in ("auto", "floyd_warshall"),
    }  # fmt: skip
    return [name for name, there in given.items() if there]


def _check_tiled(
    where: TileOptions, method: str, sources: Any, max_hops: int | None, overwrite: bool
) -> None:
    for name in _refused_by_tiles(method, sources, max_hops, overwrite):
        raise ValueError(
            f"{name} is for graphs in one memory: leave it out, or leave out devices, out, "
            f"memory_limit and resume"
        )


def _on_host(graph: Any) -> Any:
    """A dense graph of which blocks can be had as NumPy arrays."""
    if isinstance(graph, (list, tuple)):
        graph = np.asarray(graph)
    sliced = hasattr(graph, "shape") and hasattr(graph, "dtype") and hasattr(graph, "__getitem__")
    numpys = sliced and isinstance(graph.dtype, np.dtype)
    if not numpys or hasattr(graph, "__cuda_array_interface__"):
        raise TypeError(
            f"over tiles a graph is a matrix on the host, a SciPy sparse matrix, a NetworkX graph "
            f"or a path to a file, got {type(graph).__name__}; copy an array on a device to the "
            f"host first"
        )
    _check_graph(graph)
    if len(graph.shape) != 2:
        raise ValueError(f"over tiles there is one graph, (n, n), got shape {graph.shape}")
    return graph


def _own(call: Call, s: Semiring, directed: bool | None) -> tuple[Array, Array | None]:
    """The matrix or matrices of a dense graph to work on, and as they came if they stay so."""
    x = call["graph"]
    _check_graph(x)
    if call.out is not None:
        d, original = call.out, None
        if not getattr(d.flags, "writeable", True):
            raise ValueError("overwrite=True: the array is read-only")
    elif call.moved:
        d, original = x, None
    else:
        check_memory(x.size * x.itemsize, _matrix_of(x), call.engine)
        d, original = x.astype(x.dtype.newbyteorder("="), order="C"), x
    if directed is False:
        symmetrize(call.engine, s, d)
        original = None
    return d, original


def _check_graph(x: Array) -> None:
    if len(x.shape) == 3 and x.shape[1] != x.shape[2]:
        raise ValueError(f"a batch of graphs has shape (b, n, n), got {x.shape}")
    if len(x.shape) not in (2, 3) or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"a graph's matrix is square, got shape {x.shape}")
    if x.dtype.kind not in "biuf" and x.dtype.name != "bfloat16":
        raise TypeError(f"a graph's weights are real numbers, got dtype {x.dtype}")


def _matrix_of(d: Array) -> str:
    return f"the {' x '.join(map(str, d.shape))} matrix in {d.dtype}"


@dataclass(frozen=True)
class _Task:
    """What is to be found of a graph, and how."""

    engine: Any
    s: Semiring
    method: str
    directed: bool | None
    predecessors: bool
    max_hops: int | None
    sparse: bool  # whether sparse elimination may be tried

    def solve(
        self, d: Array, original: Array | None, rows: Index | None, labels: Sequence[Any] | None,
        progress: Progress,
    ) -> Any:  # fmt: skip
        """Distances in `d`, with predecessors if they are wanted."""
        s, n = self.s, d.shape[0]
        self.check(d)
        extra = n * n * 4 if self.predecessors and rows is None else 0
        if self.method == "squaring" and rows is None:
            extra += 2 * n * n * d.dtype.itemsize
        check_memory(extra, f"the work beside the {n} x {n} matrix", self.engine)
        run = _Run(self.engine, s, d, original, labels, trees=self.predecessors)
        try:
            try:
                result = self._work(run, rows, progress)
            except Rounding as rounding:
                run.lift(rounding.potentials)
                result = self._work(run, rows, progress)
                run.lower(rounding.potentials, result[0], rows)
        finally:
            run.close()
        distances, predecessors = result
        if run.back is not None:
            distances = run.restore(distances, d if rows is None else None)
        return (distances, predecessors) if self.predecessors else distances

    def check(self, d: Array) -> None:
        if self.predecessors:
            check_predecessors(self.s, d.dtype)

    def _work(
        self, run: _Run, rows: Index | None, progress: Progress
    ) -> tuple[Array, Array | None]:
        if self.sparse:
            solved = run.sparse(self.method, rows, self.predecessors, progress)
            if solved is not None:
                return solved
        if rows is not None:
            return run.rows(rows, self.max_hops, self.predecessors, progress)
        if self.max_hops is not None:
            return run.hops(self.max_hops, progress), None
        if self.method == "squaring":
            return run.squaring(self.predecessors, progress)
        undirected = self.directed is False or (
            self.directed is None and not self.predecessors and is_symmetric(self.engine, run.d)
        )
        return run.elimination(self.predecessors, undirected, progress)


def _index(value: Any, name: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None


def _sources(sources: Any, nodes: Sequence[Any], graph: Any) -> Index:
    chosen = [sources] if np.ndim(sources) == 0 else list(sources)
    if hasattr(graph, "edges"):
        index = {node: i for i, node in enumerate(nodes)}
        missing = [x for x in chosen if x not in index]
        if missing:
            raise ValueError(f"sources: {missing[0]!r} is not a node of the graph")
        return np.array([index[x] for x in chosen], np.int64)
    n, rows = len(nodes), np.array([_index(x, "sources") for x in chosen], np.int64)
    if ((rows < 0) | (rows >= n)).any():
        bad = int(rows[(rows < 0) | (rows >= n)][0])
        raise ValueError(f"sources: there is no node {bad}, they are 0 to {n - 1}")
    return rows


class _Run:
    """One computation on the matrix `d`, which it overwrites, or on a stack of them.

    With `intact` nothing of `d` is changed: whoever closes it joins one to the diagonal.
    """

    def __init__(
        self, engine: Any, s: Semiring, d: Array, original: Array | None,
        labels: Sequence[Any] | None, *, trees: bool, intact: bool = False,
    ) -> None:  # fmt: skip
        self.engine, self.xp = engine, engine.xp
        self.s, self.d, self.labels = s, d, labels
        self.n = d.shape[-1]
        self.back: np.dtype[Any] | None = None  # the dtype to return to
        self.original = original
        weights = Weights(s, d.dtype, self.n, engine.facts(s, d))
        if weights.broken:
            weights.refuse(engine.to_host(d))
        self.d = weights.widen(d)
        self.back = None if self.d is d else d.dtype
        self.zero, self.one = s.identities(self.d.dtype)
        if self.original is None and (weights.improving or (trees and weights.look(1))):
            # to name a cycle that improves itself, to repair trees where rounding has closed one
            self.original = self.d.copy()
        if not intact:
            self._reflexive()
        self._learn(weights)

    def _learn(self, weights: Weights) -> None:
        self.weights, self.known = weights, weights.known()
        self.look = weights.look(int(self.engine.LOOK))

    def _reflexive(self) -> None:
        """Join one to the diagonal."""
        s, engine = self.s, self.engine
        index, loops = self.xp.arange(self.n), self.diagonal()
        best = {"min": self.xp.minimum, "max": self.xp.maximum}.get(s.add_kind)
        if best is not None and self.d.dtype.kind in "iuf":
            joined = best(loops, self.one)
        else:
            joined = engine.from_host(evaluate(s.add_expr, engine.to_host(loops), self.one))
        self.d[..., index, index] = joined

    def diagonal(self) -> Array:
        return self.xp.diagonal(self.d, 0, -2, -1)

    def restore(self, distances: Array, out: Array | None) -> Array:
        """Bring integers back to the input's dtype, if they fit."""
        result = self.weights.narrow(distances)
        if out is None:
            return result
        out[...] = result
        return out

    def _predecessors(self, rows: Array | None = None) -> Array:
        xp, n, tile = self.xp, self.n, self.engine.TILE
        index = xp.arange(n, dtype=np.int32) if rows is None else rows.astype(np.int32)
        p = xp.empty((len(index), n), np.int32)
        for first in range(0, len(index), tile):  # a block at a time: no second matrix
            part = index[first : first + tile]
            there = self.d[first : first + tile] if rows is None else self.d[part]
            p[first : first + tile] = xp.where(
                there == self.zero, np.int32(NO_PREDECESSOR), part[:, np.newaxis]
            )
        p[xp.arange(len(index)), index] = NO_PREDECESSOR
        return p

    def improved(self, first: int, diagonal: Array) -> NoReturn:
        """A diagonal entry got better than one: name the cycle, or say that it was rounding."""
        engine, original = self.engine, self.original
        edges = None
        if original is not None:
            edges = functools.partial(_edges_on, engine, self.s, original)
        improved(self.s, self.n, first, engine.to_host(diagonal), edges, self.labels)

    def edges(self, p: Array | None) -> Edges:
        """Edges to repair trees with, among them all that are best paths.

        Where no cycle can be better than none, an edge that is a best path is that to the last bit
        and keeps its start as predecessor; so these can be read off `p`.
        """
        to_host, zero, n = self.engine.to_host, self.zero, self.n
        if p is None:  # `d` is the graph itself
            weights = to_host(self.d)
            row, col = np.nonzero((weights != zero) & ~np.eye(n, dtype=bool))
            return Edges.by_end(n, row, col, weights[row, col])
        d, step = self.d, self.engine.TILE
        if self.original is None:
            row, col = np.nonzero(to_host(p) == np.arange(n)[:, np.newaxis])
            return Edges.by_end(n, row, col, to_host(d)[row, col])
        graph = self.original
        strips = (
            (i, *map(to_host, (graph[i : i + step], d[i : i + step]))) for i in range(0, n, step)
        )
        return best_edges(self.s, n, strips)

    def sparse(
        self,
        method: str,
        rows: Index | None,
        predecessors: bool,
        progress: Progress,
    ) -> tuple[Array, Array | None] | None:
        """Distances by sparse elimination, or None where it would be slower."""
        d, n = self.d, self.n
        there = d != self.zero
        pairs = dense_pairs(n, np.count_nonzero(there) - n, method, rows)
        if not pairs:
            return None
        np.fill_diagonal(there, d.diagonal() != self.one)
        row, col = np.nonzero(there)
        del there
        small = {"i": np.int32, "f": np.float32, "V": np.float32}[d.dtype.kind]
        weight = d[row, col].astype(d.dtype if d.dtype.itemsize >= 4 else small)
        whole = rows is None and weight.dtype == d.dtype and d.strides[1] == d.itemsize
        solved = solve(
            n, row, col, weight, sources=rows, trees=predecessors, pairs=pairs,
            out=d if whole else None, labels=self.labels, progress=progress,
        )  # fmt: skip
        if solved is None or whole:
            return solved
        distances, p = solved
        narrow = distances.astype(d.dtype)
        narrow[distances == semirings["min_plus"].identities(distances.dtype)[0]] = self.zero
        if rows is not None:
            return narrow, p
        d[...] = narrow
        return d, p

    def elimination(
        self, predecessors: bool, symmetric: bool, progress: Progress
    ) -> tuple[Array, Array | None]:
        n = float(self.n)
        if predecessors and as_numbers(self.s, self.d.dtype):
            return self._bool_predecessors(progress)
        p = self._predecessors() if predecessors else None
        tick = reporter(progress, n**3 / 2 if symmetric else n**3)
        closure = Closure(self.engine, self.s, self.known, self.one, self.look, self.improved, tick)
        closure.run(self.d, p, symmetric=symmetric)
        if tick is not None:
            tick(n**3)
        if p is not None:
            repair_trees(self.engine, self.s, self.d, p, functools.partial(self.edges, p))
        return self.d, p

    def _bool_predecessors(self, progress: Progress) -> tuple[Array, Array]:
        """Truth values as 0 and 1 under max and min, where one k wins."""
        numbers = _Run(
            self.engine, semirings["max_min"], self.d.astype(np.uint8), None, self.labels,
            trees=True,
        )  # fmt: skip
        numbers.zero, numbers.one = np.uint8(0), np.uint8(1)
        diagonal = self.xp.arange(self.n)
        numbers.d[diagonal, diagonal] = 1
        result, p = numbers.elimination(True, False, progress)
        self.d[...] = result != 0
        return self.d, p

    def squaring(self, predecessors: bool, progress: Progress) -> tuple[Array, Array | None]:
        n = self.n
        p = self._predecessors() if predecessors else None
        steps = max(1, math.ceil(math.log2(max(n - 1, 1))) + 1)
        tick = reporter(progress, steps * float(n) ** 3)
        d = self.d
        for step in range(steps):
            following = d.copy()
            marks = None if p is None else p.copy()
            before = step * float(n) ** 3
            self.engine.product(
                self.s, d, d, following, JOIN, known=self.known, arg=marks, gather=p,
                on_done=None if tick is None else functools.partial(_add, tick, before, n**3),
            )  # fmt: skip
            diagonal = following.diagonal()
            if self.look and not (diagonal == self.one).all():
                self.improved(0, diagonal)
            same = bool(self.xp.array_equal(following, d))
            d, p = following, marks
            if same:
                break
        if tick is not None:
            tick(math.inf)
        self.d[...] = d
        if p is not None:
            repair_trees(self.engine, self.s, self.d, p, functools.partial(self.edges, p))
        return self.d, p

    def hops(self, limit: int, progress: Progress) -> Array:
        """Distances over at most `limit` edges: a power of the matrix with one on its diagonal."""
        result: Array | None = None
        square, times = self.d, functools.partial(multiply, self.engine, self.s)
        steps = max(1, limit.bit_length() + limit.bit_count() - 1)
        tick = reporter(progress, float(steps))
        done = 0
        if limit == 0:
            result = self.xp.full_like(self.d, self.zero)
            self.xp.fill_diagonal(result, self.one)
        while limit:
            if limit & 1:
                result = square.copy() if result is None else times(result, square)
                done += 1
            limit >>= 1
            if limit:
                square = times(square, square)
                done += 1
            if tick is not None:
                tick(float(done))
        assert result is not None
        diagonal = result.diagonal()
        if self.look and not (diagonal == self.one).all():
            self.improved(0, diagonal)
        self.d[...] = result
        return self.d

    def rows(
        self, rows: Index, limit: int | None, predecessors: bool, progress: Progress
    ) -> tuple[Array, Array | None]:
        """Paths from some nodes: rounds of Bellman and Ford for all of them at once.

        After as many rounds as the elimination of the whole matrix would cost, that is done
        instead; so the work is at most twice the cheaper of the two.
        """
        n, index = self.n, self.engine.from_host(rows)
        own = (self.xp.arange(len(rows)), index)
        x = self.d[index]
        if limit == 0:
            x[...] = self.zero
            x[own] = self.one
            return x, None
        p = self._predecessors(index) if predecessors else None
        worth = limit - 1 if limit is not None else max(4, n // max(1, len(rows)))
        tick = reporter(progress, float(max(1, worth)))
        for step in range(worth):
            following = x.copy()
            arg = None if p is None else p.copy()
            self.engine.product(self.s, x, self.d, following, JOIN, known=self.known, arg=arg)
            if self.look and not (following[own] == self.one).all():
                at = int(self.xp.flatnonzero(following[own] != self.one)[0])
                self.improved(int(rows[at]), following[own][at : at + 1])
            same = bool(self.xp.array_equal(following, x))
            x, p = following, arg
            if tick is not None:
                tick(float(step + 1))
            if same:
                break
        else:
            if limit is None:
                whole, trees = self.elimination(predecessors, False, None)
                return whole[index], None if trees is None else trees[index]
        if p is not None:
            repair_trees(self.engine, self.s, x, p, functools.partial(self.edges, None), rows)
        return x, p

    def lift(self, potentials: NDArray[np.float64]) -> None:
        """Begin again with weights of one sign: no path's order changes by potentials (Johnson)."""
        assert self.original is not None
        xp, tile = self.xp, self.engine.TILE
        end = xp.minimum if self.s.zero < 0 else xp.maximum
        h = self.engine.from_host(potentials)
        for i in range(0, self.n, tile):
            part = slice(i, i + tile)
            weights = xp.asarray(self.original[part]).astype(np.float64)
            self.d[part] = end(weights + h[part, np.newaxis] - h, 0)
        self.xp.fill_diagonal(self.d, self.one)
        self._learn(Weights(self.s, self.d.dtype, self.n, self.engine.facts(self.s, self.d)))
        self.original = None

    def lower(self, potentials: NDArray[np.float64], d: Array, rows: Index | None) -> None:
        """Take the potentials off the distances again."""
        tile = self.engine.TILE
        h = self.engine.from_host(potentials)
        first = h if rows is None else h[self.engine.from_host(rows)]
        for i in range(0, d.shape[0], tile):
            part = slice(i, i + tile)
            d[part] = d[part].astype(np.float64) - first[part, np.newaxis] + h

    def close(self) -> None:
        self.original = None


def _edges_on(engine: Any, s: Semiring, matrix: Array) -> Any:
    return edges_of(s, engine.to_host(matrix))


def _add(tick: Callable[[float], None], before: float, pairs: float, part: float) -> None:
    tick(before + part * pairs)


def _batch(
    call: Call, s: Semiring, directed: bool | None, predecessors: bool, progress: Progress
) -> Any:
    """Many graphs, each a matrix of its own; small ones at once or spread over the threads."""
    engine, x = call.engine, call["graph"]
    sparse = engine.SPARSE and s.name == "min_plus"
    task = _Task(engine, s, "auto", directed, predecessors, None, sparse)
    tick = reporter(progress, float(len(x)))
    if x.size and x.shape[-1] <= engine.BATCH:
        keep = call.out is None and not call.moved and directed is not False
        if keep:
            _check_graph(x)
        else:
            x = _own(call, s, directed)[0]
        task.check(x)
        if (solved := _at_once(task, x, keep)) is not None:
            if tick is not None:
                tick(float(len(x)))
            return solved
    d, _ = _own(call, s, directed)
    b, n = d.shape[:2]
    task.check(d)
    p = engine.xp.empty(d.shape, np.int32) if predecessors else None

    def some(first: int, last: int) -> None:
        for i in range(first, last):
            solved = task.solve(d[i], None, None, None, None)
            if p is not None:
                p[i] = solved[1]

    if n > 4 * engine.BASE or not engine.SPARSE:
        for i in range(b):
            some(i, i + 1)
            if tick is not None:
                tick(float(i + 1))
    elif b:
        cuts = np.linspace(0, b, min(b, 8 * threads.get_num_threads()) + 1).astype(int).tolist()
        ends: Sequence[int] = cuts[1:]
        threads.run(
            [functools.partial(some, i, j) for i, j in zip(cuts, ends, strict=False)],
            None if tick is None else (lambda k: tick(float(cuts[k]))),
        )
    return (d, p) if predecessors else d


def _at_once(task: _Task, d: Array, keep: bool) -> Any:
    """All matrices of a stack in one launch, or None where the engine has no such way.

    `keep`: they are left as they are, and the result is an array of its own.
    """
    engine, xp, s = task.engine, task.engine.xp, task.s
    if task.predecessors and d.dtype.kind == "b":
        return None
    p = xp.empty(d.shape, np.int32) if task.predecessors else None
    closed = xp.empty(d.shape, d.dtype) if keep else d
    early = keep and d.dtype.kind not in "biu"  # the device computes while the host looks at d
    if early and not engine.closure_batch(s, d, None, closed, p):
        return None
    run = _Run(engine, s, d, d if keep else None, None, trees=task.predecessors, intact=True)
    if run.d is not d:  # integers that had to be widened
        closed = run.d
    if not early and not engine.closure_batch(s, run.d, run.known, closed, p):
        return None
    run.d = closed
    again = engine.to_host((run.diagonal() != run.one).any(1)) if run.look else np.zeros(0, bool)
    if p is not None and run.look:
        # One k after the other with strict improvements gives trees, but for rounding.
        b, n = d.shape[:2]
        near, before = closed.reshape(b * n, n), p.reshape(b * n, n)
        for rows, _ in cyclic_rows(engine, s, near, before, np.tile(np.arange(n), b)):
            again[rows // n] = True
    for i in np.flatnonzero(again).tolist():  # a cycle to name, or rounding
        if run.original is None:
            run.improved(0, run.diagonal()[i])
        solved = task.solve(run.original[i].copy(), None, None, None, None)
        run.d[i] = solved[0] if task.predecessors else solved
        if p is not None:
            p[i] = solved[1]
    if run.back is not None:
        closed = run.restore(run.d, None if keep else d)
    return closed if p is None else (closed, p)
