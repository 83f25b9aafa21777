"""All-pairs shortest paths, and closures over any idempotent semiring."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Call, check_memory, masked, repeat
from ..bits import BitMatrix
from ..closures.bits import closure_bits
from ..closures.edges import EdgeList, edge_dtype
from ..closures.labelled import labelled
from ..closures.weights import check_idempotent
from ..deprecated import apart
from ..naming import integer
from ..progress import Progress, reporter
from ..semirings import Semiring, as_semiring, semirings
from ..tiles import TileOptions, Tiles
from .choice import Request, check_graph, check_shape, matrix_of
from .dijkstra import Lists, search_lists
from .hops import brief
from .inputs import as_graph, as_typed, positions, warn_of_entries
from .methods import solve

__all__ = ["Task", "apsp", "check_asked", "closure", "distances"]

Array = Any  # of the engine's library
Index = NDArray[np.int64]
_NO_TILES = TileOptions()
_AT_ONCE = 2048  # nodes of a matrix whose closure may be one launch
_LARGE = 1 << 30  # bytes of a result that there may not be room for: known before any work


@apart()
def apsp(
    graph: Any,
    *,
    weight: str | int | None = "weight",
    source: Any = None,
    target: Any = None,
    dtype: Any = None,
    directed: bool | None = None,
    method: str = "auto",
    sources: Any = None,
    targets: Any = None,
    return_predecessors: bool = False,
    max_hops: int | None = None,
    overwrite: bool = False,
    device: str | None = None,
    progress: Progress = None,
    tiles: Tiles | None = None,
) -> Any:
    """All-pairs shortest paths.

    Parameters
    ----------
    graph : array_like, SciPy sparse, NetworkX or igraph graph, table, dict, Graph, or path
        A dense (n, n) matrix holds edge weights, inf (in an integer dtype its largest value) where
        there is no edge; a 0 diagonal is implied. A (b, n, n) array is a batch of graphs. For
        other kinds see :func:`adjacency`.
    weight : str or None, default "weight"
        The attribute of edges, or the column, that holds their weights; None: each edge counts 1.
        See :func:`adjacency`.
    source, target : optional
        The columns of a table, or of a file, that hold the ends of edges.
    dtype : dtype, optional
        Of the distances. Default: that of a dense matrix; else float32 for float32 weights and
        float64 for others.
    directed : bool, optional
        False reads every edge both ways. Default: what the graph says; a matrix that is symmetric
        is found to be undirected, which halves the work.
    method : {"auto", "floyd_warshall", "squaring", "sparse"}
        ``"floyd_warshall"``: Kleene's elimination in blocks, n³ steps. ``"squaring"``: repeated
        min-plus squaring, at most ⌈log₂ n⌉ products, fewer if nothing changes any more.
        ``"sparse"``: elimination of vertices and a sweep from each source, for graphs with small
        separators such as road networks. ``"auto"``: ``"squaring"`` with `max_hops`; for a graph
        with few edges ``"sparse"`` where that is faster, or else Dijkstra's search from each source
        if no weight is negative and that is faster; else ``"floyd_warshall"``.
    sources, targets : node or sequence of nodes, optional
        Only paths from the sources, and to the targets, by label if the graph has labels and else
        by number: the result has a row for each source and a column for each target. For many
        tables of one graph :func:`prepare` it.
    return_predecessors : bool, default False
        Also return the predecessor matrix, which has a column for every node: not with `targets`.
    max_hops : int, optional
        Only paths of at most this many edges.
    overwrite : bool, default False
        Use the memory of `graph`, a dense matrix, for the result.
    device : {None, "cpu", "cuda", "cuda:N"}
        Where to run. None: where `graph` lives; a graph on the host goes to a CUDA device and the
        result comes back if there is one with room, the graph has 2048 nodes or more and is dense
        (over 16 edges a node, where it might else be eliminated as a sparse one), and all pairs are
        wanted; or if there is much to sweep. On a CUDA device a graph of fewer than 4 edges a node
        that is no matrix, or with ``method="sparse"``, is eliminated and swept there.
    progress : bool or callable, optional
        True shows a bar by tqdm, on the terminal or in a notebook, for work over a second; a
        callable is called with (done, in all), of the pairs (⊗, ⊕) or what else the method counts,
        and may raise to stop the work.
    tiles : Tiles, optional
        Work on several devices, in files, or in limited memory: see :class:`Tiles`.

    Returns
    -------
    distances : ndarray, shape (n, n), (sources, n), (sources, targets) or (b, n, n)
        Of the library, on the device and in the dtype of a dense input; for other graphs NumPy's,
        float64 unless their weights are float32, and of a graph with labels a
        :class:`LabelledArray`, which has them as ``nodes``. With ``tiles.out`` the file, open to
        be read: numpy.memmap or zarr.Array.
    predecessors : ndarray of int32
        Only with `return_predecessors`. ``P[i, j]`` is the number of the node before `j` on a
        shortest path from `i`; -9999 if there is none, and on the diagonal. See
        :func:`reconstruct_path`.

    Raises
    ------
    NegativeCycleError
        With the cycle in it.
    MemoryError, OSError
        Before any work, if the matrix does not fit in memory, or not on the disk; and if that of a
        graph that is no matrix would take more than 4 GiB, where neither `tiles` nor `sources`
        speaks of it.
    FileExistsError
        If there is such a file already; with ``tiles.resume``, if it is not known to be the result
        of the same graph and arguments.
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

    Where each edge counts 1, in sparse graphs and dense ones, distances come from breadth-first
    searches from 512 sources at once, on a CUDA device from thousands (Then et al., 2014).

    In files or limited memory (`tiles`) the rows of a sparse graph, and those from `sources`, are
    computed as in memory and written once, some at a time. Dense graphs, and all on several
    devices, are computed in square tiles, n³ pairs (n³/2 undirected); out of core each step reads
    and writes the matrix once. A run that was killed at any moment can go on: rows that are there
    stay, and a step may be repeated on tiles that it has reached.

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

    A graph with labels keeps them.

    >>> D, P = sm.apsp({"a": {"b": 3, "c": 8}, "b": {"c": 1}}, return_predecessors=True)
    >>> D.nodes, D.path("a", "c")
    (['a', 'b', 'c'], ['a', 'b', 'c'])
    """
    max_hops = None if max_hops is None else integer(max_hops, "max_hops")
    check_asked(method, max_hops, return_predecessors)
    options = TileOptions.of(device, tiles).alone()
    s = semirings["min_plus"]
    graph, weight = as_typed(s, graph, weight, directed, source, target, dtype)
    return _between(
        s, graph, targets, weight=weight, directed=directed, sources=sources, options=options,
        method=method, predecessors=return_predecessors, hops=max_hops, overwrite=overwrite,
        progress=progress,
    )  # fmt: skip


@apart()
def closure(
    a: Any,
    semiring: str | Semiring,
    *,
    weight: str | int | None = "weight",
    source: Any = None,
    target: Any = None,
    dtype: Any = None,
    directed: bool | None = None,
    sources: Any = None,
    targets: Any = None,
    return_predecessors: bool = False,
    overwrite: bool = False,
    device: str | None = None,
    progress: Progress = None,
    tiles: Tiles | None = None,
) -> Any:
    """The closure ``A* = I ⊕ A ⊕ A² ⊕ …``: the best path between every two nodes.

    Widest paths over max_min, minimax over min_max, most reliable over max_times, reachability
    over lor_land (dtype bool, 32 columns to a word), shortest over min_plus.

    Parameters
    ----------
    a : array_like of shape (n, n) or (b, n, n), or any graph that :func:`adjacency` takes
        Over lor_land also a :class:`BitMatrix` (n, n), whose closure is one.
        The semiring's zero means no edge: inf over min_plus, -inf over max_min. There is a warning
        if a matrix has inf where -inf means no edge.
    semiring : str or Semiring
        With an idempotent ⊕.
    weight, source, target, dtype, directed, sources, targets, return_predecessors, overwrite, \
device, progress, tiles
        As for :func:`apsp`.

    Returns
    -------
    closure : ndarray
        ``one`` on the diagonal. Of a graph with labels a :class:`LabelledArray`.
    predecessors : ndarray of int32
        Only with `return_predecessors` (⊕ must choose one of its operands: min, max, or).

    Raises
    ------
    ValueError
        If ⊕ is not idempotent, or a cycle improves itself (over min_plus as
        :class:`NegativeCycleError`), so that no closure exists.

    Notes
    -----
    n³ pairs, as of :func:`apsp`; of an undirected graph over minimum and maximum O(n²), from a
    spanning forest. Hu (1961); Gower and Ross (1969).

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
    check_idempotent(s, "matrix_power")
    if isinstance(a, BitMatrix):
        others = (source, target, dtype, directed, sources, targets, progress, tiles)
        refused = return_predecessors or overwrite or any(x is not None for x in others)
        return _closure_of_bits(s, a, device, refused)
    options = TileOptions.of(device, tiles).alone()
    a, weight = as_typed(s, a, weight, directed, source, target, dtype)
    return _between(
        s, a, targets, weight=weight, directed=directed, sources=sources, options=options,
        predecessors=return_predecessors, overwrite=overwrite, progress=progress,
    )  # fmt: skip


def _between(s: Semiring, graph: Any, targets: Any, **asked: Any) -> Any:
    """Best paths to some nodes: to few of them along the reversed edges."""
    if targets is None:
        if asked["sources"] is not None and (found := _searched(s, graph, **asked)) is not None:
            return found
        head = _head(s, graph, **asked)
        d = None if head is None else repeat(head, (graph,))
        return Task(s, graph, head=head, **asked).solve() if d is None else d
    for name, given in (
        ("return_predecessors", asked["predecessors"]), ("overwrite", asked["overwrite"]),
        ("tiles", bool(asked["options"])),
    ):  # fmt: skip
        if given:
            raise ValueError(f"{name} is for all targets: leave out {name} or targets")
    graph, nodes = as_graph(graph, weight=asked.pop("weight"), directed=asked["directed"])
    edges = graph if isinstance(graph, EdgeList) else None
    if edges is None:
        check_shape(graph)
        if len(graph.shape) == 3:
            raise ValueError("sources, targets and max_hops are for one graph, not for a batch")
    n = graph.shape[0] if edges is None else edges.n
    rows = positions(asked.pop("sources"), n, nodes)
    columns = positions(targets, n, nodes, "targets")
    assert columns is not None

    def solve(graph: Any, chosen: Index | None) -> Array:
        if chosen is not None and edges is not None and nodes is not None:
            chosen = [nodes[i] for i in chosen]  # type: ignore[assignment]
        found = Task(s, graph, sources=chosen, **asked).solve()
        return found.view(np.ndarray) if isinstance(found, np.ndarray) else found

    d = None
    if s.commutes and (rows is None or len(columns) < len(rows)):
        back = graph.T if edges is None else edges.reversed()
        with contextlib.suppress(ValueError):  # of a cycle: the graph itself has it in order
            d = solve(back, columns).T
            d = d if rows is None else d[rows]
    if d is None:
        d = solve(graph, rows)[:, columns]
    named = nodes is not None and isinstance(d, np.ndarray)
    return labelled(d, None, s, nodes or (), rows, columns)[0] if named else d


def _searched(
    s: Semiring, graph: Any, *, weight: str | int | None, directed: bool | None, sources: Any,
    options: TileOptions, predecessors: bool, overwrite: bool, progress: Progress,
    method: str = "auto", hops: int | None = None,
) -> Any:  # fmt: skip
    """Rows of a matrix in CSR by searches, before anyone has looked at it.

    None where another method may take less time, or where there is something about the graph to be
    told: a negative weight, NaN, an index out of range.
    """
    if getattr(graph, "format", None) != "csr" or s.name != "min_plus" or options:
        return None
    plain = method == "auto" and hops is progress is None and not overwrite
    shape = graph.shape
    if not plain or weight not in ("weight", None) or options.device not in (None, "cpu"):
        return None
    if len(shape) != 2 or shape[0] != shape[1] or graph.dtype.kind not in "biuf":
        return None
    n, first, head = shape[0], graph.indptr, graph.indices
    rows = positions(sources, n, None)
    lists = Lists(n, first, head, None) if weight is None else Lists.of(n, first, head, graph.data)
    assert rows is not None
    arcs, count = len(head) * (2 if directed is False else 1), len(rows)
    if not brief(n, arcs, count, equal=lists.weight is None, predecessors=predecessors):
        return None
    found = search_lists(
        lists, rows, predecessors=predecessors, directed=directed is not False,
        dtype="float32" if graph.dtype == np.float32 else "float64",
    )  # fmt: skip
    if found is None:
        return None
    return (found.d, found.pred) if predecessors else found.d


def _head(
    s: Semiring, graph: Any, *, weight: str | int | None, directed: bool | None, sources: Any,
    options: TileOptions, predecessors: bool, overwrite: bool, progress: Progress,
    method: str = "auto", hops: int | None = None,
) -> tuple[Any, ...] | None:  # fmt: skip
    """By what a small matrix's closure is known where it comes again; None where none may."""
    if type(graph) is np.ndarray or hasattr(graph, "tocoo"):
        return None
    shape: Sequence[int] = getattr(graph, "shape", ())
    if len(shape) < 2:
        return None
    plain = weight == "weight" and sources is hops is progress is None and options == _NO_TILES
    if not plain or overwrite or shape[-1] > _AT_ONCE:
        return None
    return "closure", s, directed, method, predecessors


def distances(
    graph: Any, *, predecessors: bool, sources: Any = None, directed: bool | None = None,
    method: str = "auto", overwrite: bool = False, device: str | None = None,
) -> Any:  # fmt: skip
    """As :func:`apsp`, of any size: for functions of other packages, which return a matrix."""
    return Task(
        semirings["min_plus"], graph, directed=directed, sources=sources, large=True,
        options=TileOptions(device=device), method=method, predecessors=predecessors,
        overwrite=overwrite,
    ).solve()  # fmt: skip


def check_asked(method: str, max_hops: int | None, return_predecessors: bool) -> None:
    """Raise ValueError for a method that there is not, or arguments that exclude each other."""
    if method not in ("auto", "floyd_warshall", "squaring", "sparse"):
        raise ValueError(
            f"method is 'auto', 'floyd_warshall', 'squaring' or 'sparse', got {method!r}"
        )
    if max_hops is not None:
        if max_hops < 0:
            raise ValueError(f"max_hops must be at least 0, got {max_hops}")
        if return_predecessors:
            raise ValueError(
                "max_hops: shortest paths of limited length do not form trees, so one predecessor "
                "a node cannot describe them; leave out return_predecessors"
            )
        if method in ("floyd_warshall", "sparse"):
            raise ValueError("max_hops needs method='squaring' (or 'auto')")


def _closure_of_bits(s: Semiring, a: BitMatrix, device: str | None, refused: bool) -> Any:
    if refused:
        raise TypeError(
            "closure of a BitMatrix takes no argument but the semiring and the device: leave the "
            "others out, or unpack the matrix"
        )
    if a.ndim != 2 or a.shape[0] != a.shape[1]:
        raise ValueError(f"closure takes a square BitMatrix, got shape {a.shape}")
    return closure_bits(s, a, device)


class Task:
    """A graph and what is asked of it, a `request`: placed, and ready for the methods.

    `nodes` are the labels of the nodes, if there are any.
    """

    def __init__(
        self, s: Semiring, graph: Any, *, weight: str | int | None = "weight",
        directed: bool | None = None, sources: Any = None, options: TileOptions = _NO_TILES,
        large: bool = False, head: tuple[Any, ...] | None = None, **asked: Any,
    ) -> None:  # fmt: skip
        reporter(asked.get("progress"), 1.0)  # the argument's own errors come first
        overwrite = asked.get("overwrite", False)
        if overwrite and not (isinstance(graph, np.ndarray) or hasattr(graph, "__dlpack__")):
            raise ValueError(
                f"overwrite=True needs a NumPy array to overwrite, got {type(graph).__name__}"
            )
        if masked(graph):
            raise TypeError(f"the graph is a masked array: use graph.filled({s.zero:g})")
        self.s, self.sources, self._head = s, sources, head
        self.graph, self.nodes = as_graph(graph, weight=weight, directed=directed)
        self.asked = asked | {"directed": directed, "options": options, "device": options.device}
        if isinstance(self.graph, EdgeList):
            self.request = self._of_edges(self.graph, large)
        elif type(self.graph) is np.ndarray and self.graph.ndim == 2:
            self.request = self._of_array(self.graph)
        else:  # of a size that is known once it is where it is computed
            count = None if sources is None else np.size(sources)
            size = np.dtype(np.float64)
            self.request = Request(s, 0, size, sources=count, host=False, **self.asked).place()

    def _of_edges(self, edges: EdgeList, large: bool) -> Request:
        s, dtype = self.s, edge_dtype(self.s, edges.weight)
        n, count = edges.n, None if self.sources is None else np.size(self.sources)
        request = Request(
            s, n, dtype, len(edges.col), sources=count, labels=self.nodes, **self.asked
        )
        if not request.options:  # before any work
            if count is None:
                request.check_matrix(4 * request.predecessors, large=large)
            rows = n if count is None else count
            size = rows * n * dtype.itemsize
            if size >= _LARGE:
                check_memory(size, f"the result of {rows} x {n} entries")
        if request.directed is None and request.comparing:
            from .spanning import as_undirected

            edges = as_undirected(edges, s.add_kind == "min")
        request.edges, request.undirected, request.arcs = edges, not edges.directed, len(edges.col)
        request.rows = positions(self.sources, n, self.nodes)
        request.sources = None if request.rows is None else len(request.rows)
        return request.place()

    def _of_array(self, x: Array, *, host: bool = True) -> Request:
        """That of a matrix; `host`: of NumPy's, before it is known where it is computed."""
        check_graph(x)
        rows = positions(self.sources, x.shape[0], self.nodes)
        request = Request(
            self.s, x.shape[0], x.dtype.newbyteorder("="), rows=rows, host=host,
            sources=None if rows is None else len(rows), labels=self.nodes, **self.asked,
        )  # fmt: skip
        if host and not request.options:
            if not request.overwrite and (rows is None or request.countable):
                # before a matrix is read that may be one number, broadcast
                check_memory(x.size * x.itemsize, matrix_of(x))
            request.count_arcs(x)
        return request.place() if host else request

    def ready(self, use: Callable[[Request], Any]) -> Any:
        """What `use` makes of the request, where its matrix is computed."""
        request, edges = self.request, self.request.edges
        if request.tiles:
            self._check_tiles()
            return use(request)
        given = None if edges is not None else self.graph
        out = given if request.overwrite else None
        with Call(request.device, out, self._head, graph=given) as call:
            if edges is None:
                x = call["graph"]
                check_graph(x)
                warn_of_entries(self.s, given if type(given) is np.ndarray else x)
                if request.method == "sparse" and not call.engine.SPARSE:
                    raise ValueError(
                        "method='sparse' takes a matrix on the host, and there it runs on the CPU: "
                        "leave device out, and copy an array on a device to the host first"
                    )
                if x.ndim == 3 or not request.host:
                    request = self._in_place(x, call)
            request.call = call
            return use(request)

    def _in_place(self, x: Array, call: Call) -> Request:
        """The request of an array of another library, or of a stack."""
        if x.ndim == 3 and not (self.sources is None and self.asked.get("hops") is None):
            raise ValueError("sources and max_hops are for one graph, not for a batch")
        if x.ndim == 3:
            dtype = x.dtype.newbyteorder("=")
            return Request(self.s, x.shape[-1], dtype, host=False, stack=True, **self.asked)
        request = self._of_array(x, host=False)
        if call.engine.SPARSE:
            request.count_arcs(x)
        return request

    def _check_tiles(self) -> None:
        request = self.request
        by_rows = request.options.devices is None and not request.elsewhere
        for name in request.refused_by_tiles():
            if not (by_rows and name in ("sources", "method='sparse'")):
                raise ValueError(
                    f"{name} is for graphs in one memory: leave it out, or leave out tiles"
                )
        warn_of_entries(self.s, self.graph)
        if request.edges is None:
            x = _on_host(self.graph)
            request.n, request.dtype = x.shape[0], np.dtype(x.dtype).newbyteorder("=")
            request.tiled = x
            request.rows = positions(self.sources, request.n, self.nodes)
        request.options = replace(request.options, device=request.device)

    def solve(self) -> Any:
        """Distances, and predecessors if they are wanted, with labels."""

        def run(request: Request) -> Any:
            found = solve(request)
            if request.call is not None:
                found = _give(request.call, found, request.rows)
            return _named(self.s, found, self.nodes, request.rows)

        return self.ready(run)


def _named(s: Semiring, found: Any, nodes: Sequence[Any] | None, rows: Index | None) -> Any:
    """Results in memory with the labels of their nodes, if there are any."""
    if nodes is None:
        return found
    d, p = found if isinstance(found, tuple) else (found, None)
    if type(d) is not np.ndarray:  # in a file
        return found
    named, trees = labelled(d, p, s, nodes, rows)
    return named if trees is None else (named, trees)


def _give(call: Call, found: tuple[Array, Array | None], rows: Index | None = None) -> Any:
    """Distances, and predecessors if there are any, as arrays of the graph's library."""
    d, p = found
    if call.out is not None and rows is None and d is not call.out:
        call.out[...] = d  # of foreign byte order: it was computed in native order
        d = call.out
    return call.give(d) if p is None else call.give((d, p))


def _on_host(graph: Any) -> Any:
    """A dense graph on the host from which NumPy arrays can be sliced."""
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
    check_graph(graph)
    if len(graph.shape) != 2:
        raise ValueError(f"over tiles there is one graph, (n, n), got shape {graph.shape}")
    return graph
