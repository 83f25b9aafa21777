"""All-pairs shortest paths, and closures over any idempotent semiring."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Call, check_all_pairs, check_memory, masked, where
from ..bits import BitMatrix
from ..closures.bits import closure_bits
from ..closures.edges import EdgeList, edge_dtype, symmetrize
from ..closures.labelled import Labels, labelled
from ..closures.sources import ArraySource
from ..closures.spanning import spans
from ..closures.weights import check_idempotent
from ..deprecated import apart
from ..naming import integer
from ..progress import Progress, reporter
from ..registry import provided
from ..semirings import Semiring, as_semiring, semirings
from ..tiles import TileOptions, Tiles
from .choice import Request, choose, machine_for
from .dense import Dense
from .inputs import (
    adjacency,
    as_graph,
    as_typed,
    edges_hint,
    positions,
    warn_of_edges,
    warn_of_entries,
)  # fmt: skip

__all__ = ["apsp", "closure", "distances"]

Array = Any  # of the engine's library
Index = NDArray[np.int64]
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
    if method not in ("auto", "floyd_warshall", "squaring", "sparse"):
        raise ValueError(
            f"method is 'auto', 'floyd_warshall', 'squaring' or 'sparse', got {method!r}"
        )
    if max_hops is not None:
        max_hops = integer(max_hops, "max_hops")
        if max_hops < 0:
            raise ValueError(f"max_hops must be at least 0, got {max_hops}")
        if return_predecessors:
            raise ValueError(
                "max_hops: shortest paths of limited length do not form trees, so one predecessor "
                "a node cannot describe them; leave out return_predecessors"
            )
        if method in ("floyd_warshall", "sparse"):
            raise ValueError("max_hops needs method='squaring' (or 'auto')")
    options = TileOptions.of(device, tiles).alone()
    asked = Request(
        "min_plus", 0, 0, method=method, predecessors=return_predecessors,
        hops=max_hops is not None, overwrite=overwrite,
    )  # fmt: skip
    s = semirings["min_plus"]
    graph, weight = as_typed(s, graph, weight, directed, source, target, dtype)
    return _between(
        s, graph, asked, weight, directed, sources, targets, max_hops, options,
        progress,
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
    asked = Request(s.name, 0, 0, predecessors=return_predecessors, overwrite=overwrite)
    a, weight = as_typed(s, a, weight, directed, source, target, dtype)
    return _between(s, a, asked, weight, directed, sources, targets, None, options, progress)


def _between(
    s: Semiring, graph: Any, asked: Request, weight: str | int | None, directed: bool | None,
    sources: Any, targets: Any, max_hops: int | None, options: TileOptions, progress: Progress,
) -> Any:  # fmt: skip
    """Best paths to some nodes: to few of them along the reversed edges."""
    if targets is None:
        return _solve(s, graph, asked, weight, directed, sources, max_hops, options, progress)
    for name, given in (
        ("return_predecessors", asked.predecessors), ("overwrite", asked.overwrite),
        ("tiles", bool(options)),
    ):  # fmt: skip
        if given:
            raise ValueError(f"{name} is for all targets: leave out {name} or targets")
    graph, nodes = as_graph(graph, weight=weight, directed=directed)
    edges = graph if isinstance(graph, EdgeList) else None
    if edges is None:
        _check_graph(graph)
        if len(graph.shape) == 3:
            raise ValueError("sources, targets and max_hops are for one graph, not for a batch")
    n, labels = graph.shape[0] if edges is None else edges.n, _labels(nodes)
    rows, columns = positions(sources, n, labels), positions(targets, n, labels, "targets")
    assert columns is not None

    def solve(graph: Any, chosen: Index | None) -> Array:
        if chosen is not None and edges is not None and nodes is not None:
            chosen = [nodes[i] for i in chosen]  # type: ignore[assignment]
        found = _solve(s, graph, asked, "weight", directed, chosen, max_hops, options, progress)
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


def distances(
    graph: Any, *, predecessors: bool, sources: Any = None, directed: bool | None = None,
    method: str = "auto", overwrite: bool = False, device: str | None = None,
) -> Any:  # fmt: skip
    """As :func:`apsp`, of any size: for functions of other packages, which return a matrix."""
    asked = Request(
        "min_plus", 0, 0, method=method, predecessors=predecessors, overwrite=overwrite
    )  # fmt: skip
    return _solve(
        semirings["min_plus"], graph, asked, "weight", directed, sources, None,
        TileOptions(device=device), None, large=True,
    )  # fmt: skip


def _check_asked(s: Semiring, edges: EdgeList, *, predecessors: bool) -> None:
    """Raise MemoryError for a matrix of all pairs of a graph that has none, if it is large."""
    size = (edge_dtype(s, edges.weight).itemsize + 4 * predecessors) * edges.n**2
    statistics = ", sm.statistics(graph) keeps none of them" if s.name == "min_plus" else ""
    check_all_pairs(
        edges.n, size,
        f"tiles=sm.Tiles(memory='4GB') takes them, with so much for the work, Tiles(out='D.npy') "
        f"writes them to a file, sources=[...] finds some rows{statistics}, sm.prepare(graph) "
        f"answers for pairs",
    )  # fmt: skip


def _closure_of_bits(s: Semiring, a: BitMatrix, device: str | None, refused: bool) -> Any:
    if refused:
        raise TypeError(
            "closure of a BitMatrix takes no argument but the semiring and the device: leave the "
            "others out, or unpack the matrix"
        )
    if a.ndim != 2 or a.shape[0] != a.shape[1]:
        raise ValueError(f"closure takes a square BitMatrix, got shape {a.shape}")
    return closure_bits(s, a, device)


def _solve(
    s: Semiring, graph: Any, asked: Request, weight: str | int | None, directed: bool | None,
    sources: Any, max_hops: int | None, options: TileOptions, progress: Progress, *,
    large: bool = False,
) -> Any:  # fmt: skip
    reporter(progress, 1.0)  # the argument's own errors come first
    if asked.overwrite and not (isinstance(graph, np.ndarray) or hasattr(graph, "__dlpack__")):
        raise ValueError(
            f"overwrite=True needs a NumPy array to overwrite, got {type(graph).__name__}"
        )
    if masked(graph):
        raise TypeError(f"the graph is a masked array: use graph.filled({s.zero:g})")
    if weight == "weight" and sources is max_hops is None and not options:
        solved = _small(s, graph, asked, directed, options.device, progress)
        if solved is not None:
            return solved
    graph, nodes = as_graph(graph, weight=weight, directed=directed)
    edges = graph if isinstance(graph, EdgeList) else None
    if edges is not None and not options:  # before any work
        if sources is None and not large:
            _check_asked(s, edges, predecessors=asked.predecessors)
        count = edges.n if sources is None else np.size(sources)
        size = count * edges.n * edge_dtype(s, edges.weight).itemsize
        if size >= _LARGE:
            check_memory(size, f"the result of {count} x {edges.n} entries")
    if edges is not None and directed is None and spans(s, edge_dtype(s, edges.weight)):
        from .spanning import as_undirected

        graph = edges = as_undirected(edges, s.add_kind == "min")
    request = _request(s, asked, graph, sources, options)
    choice = choose(request, machine_for(request))
    if edges is not None and choice.sparse and choice.device not in (None, "cpu"):
        from .contraction import solve_edges

        rows = positions(sources, edges.n, _labels(nodes))
        found = solve_edges(s, edges, choice, rows, asked.predecessors, progress)
        if found is not None:
            return _named(s, found if asked.predecessors else found[0], nodes, rows)
        request = replace(request, edges=None)  # of these there are too many after all
        choice = choose(request, machine_for(request))
    if choice.tiles:
        by_rows = options.devices is None and choice.device in (None, "cpu")
        for name in request.refused_by_tiles():
            if by_rows and name in ("sources", "method='sparse'"):
                continue
            raise ValueError(
                f"{name} is for graphs in one memory: leave it out, or leave out tiles"
            )
        warn_of_entries(s, graph)
        host: Any = _on_host(graph) if edges is None else edges
        options = replace(options, device=choice.device)
        if by_rows and asked.method in ("auto", "sparse"):
            rows = positions(
                sources, edges.n if edges is not None else host.shape[0], _labels(nodes)
            )
            found = provided("sparse_rows")(
                s, host, request, options, rows, directed=directed,
                predecessors=asked.predecessors, progress=progress,
            )  # fmt: skip
            if found is not None:
                return _named(s, found, nodes, rows)
        found = provided("close_tiles")(
            s, host, options, directed=directed, predecessors=asked.predecessors,
            progress=progress,
        )  # fmt: skip
        return _named(s, found, nodes, None)
    dense = graph if edges is None else None
    with Call(choice.device, graph if asked.overwrite else None, graph=dense) as call:
        if edges is None and call["graph"].ndim == 3:
            warn_of_entries(s, graph if type(graph) is np.ndarray else call["graph"])
            if sources is not None or max_hops is not None:
                raise ValueError("sources and max_hops are for one graph, not for a batch")
            return _give(call, _batch(call, s, Dense(asked, directed, progress=progress)))
        if asked.method == "sparse" and not call.engine.SPARSE and edges is None:
            raise ValueError(
                "method='sparse' takes a matrix on the host, and there it runs on the CPU: leave "
                "device out, and copy an array on a device to the host first"
            )
        if edges is not None:
            rows = positions(sources, edges.n, _labels(nodes))
            if choice.forest and not edges.directed and call.engine.SPARSE:
                from .spanning import solve_forest

                warn_of_edges(s, edges)
                found = solve_forest(s, edges, rows, asked.predecessors, progress)
                if found is not None:
                    return _named(s, found if asked.predecessors else found[0], nodes, rows)
            if choice.sparse:
                from .contraction import solve_edges

                found = solve_edges(s, edges, choice, rows, asked.predecessors, progress)
                if found is not None:
                    return _named(s, found if asked.predecessors else found[0], nodes, rows)
                choice = replace(choice, dense=0.0)  # refused
            few = rows is not None and 4 * len(rows) <= edges.n and call.engine.SPARSE
            if few and rows is not None and max_hops is not None:
                from .rounds import solve_rounds

                return _named(s, solve_rounds(s, edges, rows, max_hops, progress), nodes, rows)
            if rows is not None:
                _check_asked(s, edges, predecessors=False)
            d = adjacency(edges, s)[0]
            if call.moved:
                check_memory(d.nbytes, _matrix_of(d), call.engine)
                d = call.engine.from_host(d)
            source = ArraySource(call.engine, s, d, undirected=not edges.directed)
        else:
            x = call["graph"]
            _check_graph(x)
            rows = positions(sources, x.shape[0], _labels(nodes))
            warn_of_entries(s, graph if type(graph) is np.ndarray else x)
            plain = rows is None and max_hops is None and asked.method != "squaring"
            if plain and not spans(s, x.dtype) and x.shape[0] <= call.engine.BATCH:
                solved = _at_once(call, s, Dense(request, directed, None, None, nodes, progress))
                if solved is not None:
                    return _named(s, _give(call, solved), nodes, None)
            if type(graph) is not np.ndarray:  # only now it can be read
                request = replace(
                    request, n=x.shape[0], itemsize=x.dtype.itemsize, host=False,
                    comparing=spans(s, x.dtype),
                )  # fmt: skip
                if request.countable and call.engine.SPARSE:
                    request = request.counted(x, s.identities(x.dtype)[0])
                choice = choose(request, machine_for(request))
            task = Dense(request, directed, rows, max_hops, nodes, progress)
            if choice.forest and _left(call, directed):
                kept = task.forest(ArraySource(call.engine, s, x), choice)
                if kept is not None:
                    return _named(s, _give(call, kept, rows), nodes, rows)
            if rows is None and choice.method == "elimination":
                solved = _at_once(call, s, task)
                if solved is not None:
                    return _named(s, _give(call, solved), nodes, None)
            source = _own(call, s, directed)
        labels = nodes if edges is None else edges.nodes
        task = Dense(request, directed, rows, max_hops, labels, progress)
        return _named(s, _give(call, task.solve(source, choice), rows), nodes, rows)


def _small(
    s: Semiring, graph: Any, asked: Request, directed: bool | None, device: str | None,
    progress: Progress,
) -> Any:  # fmt: skip
    """A matrix of few rows on a device, which is closed before all else is looked at, or None."""
    if isinstance(graph, np.ndarray) or asked.method not in ("auto", "floyd_warshall"):
        return None
    if not hasattr(graph, "__dlpack__") or len(getattr(graph, "shape", ())) != 2:
        return None
    if where(graph, "graph") is None:
        return None
    with Call(device, graph if asked.overwrite else None, graph=graph) as call:
        x = call["graph"]
        if x.shape[0] > call.engine.BATCH:
            return None
        _check_graph(x)
        if spans(s, x.dtype):
            return None
        asked = replace(asked, host=False, device=device)
        solved = _at_once(call, s, Dense(asked, directed, progress=progress))
        return None if solved is None else _give(call, solved)


def _named(s: Semiring, found: Any, nodes: Sequence[Any] | None, rows: Index | None) -> Any:
    """Results in memory with the labels of their nodes, if there are any."""
    if nodes is None:
        return found
    d, p = found if isinstance(found, tuple) else (found, None)
    if type(d) is not np.ndarray:  # in a file
        return found
    named, trees = labelled(d, p, s, nodes, rows)
    return named if trees is None else (named, trees)


def _request(
    s: Semiring, asked: Request, graph: Any, sources: Any, options: TileOptions
) -> Request:
    """What is asked for, with what is known of the graph before it is converted."""
    known: dict[str, Any] = {"host": False}
    count = None if sources is None else np.size(sources)
    if isinstance(graph, EdgeList):
        size = 4 if graph.weight.dtype == np.float32 else 8
        numbers = edge_dtype(s, graph.weight).kind == "f"
        known = {
            "n": graph.n, "itemsize": size, "edges": len(graph.col),
            "undirected": not graph.directed,
            # all pairs of truth values are 32 columns to a word
            "selective": s.selective if numbers else count is not None,
            "comparing": spans(s, edge_dtype(s, graph.weight)),
        }  # fmt: skip
    elif type(graph) is np.ndarray and graph.ndim == 2:
        _check_graph(graph)
        known = {
            "n": len(graph), "itemsize": graph.itemsize, "comparing": spans(s, graph.dtype)
        }  # fmt: skip
    tiles = bool(options)
    asked = replace(asked, sources=count, device=options.device, tiles=tiles, **known)
    if "n" not in known or "edges" in known or tiles:
        return asked
    if not asked.overwrite and (sources is None or asked.countable):
        # before a matrix is read that may be one number, broadcast
        check_memory(graph.size * graph.itemsize, _matrix_of(graph))
    return asked.counted(graph, s.identities(graph.dtype)[0]) if asked.countable else asked


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
    _check_graph(graph)
    if len(graph.shape) != 2:
        raise ValueError(f"over tiles there is one graph, (n, n), got shape {graph.shape}")
    return graph


def _left(call: Call, directed: bool | None) -> bool:
    """Whether a matrix can be read where it is, and is not to be overwritten."""
    native = call["graph"].dtype.isnative
    return native and call.out is None and not call.moved and directed is not False


def _own(call: Call, s: Semiring, directed: bool | None) -> ArraySource:
    """The matrix or matrices of a dense graph, to be overwritten."""
    x = call["graph"]
    _check_graph(x)
    native = x.dtype.newbyteorder("=")
    original = None
    if call.out is not None:
        if not getattr(call.out.flags, "writeable", True):
            raise ValueError("overwrite=True: the array is read-only")
        d = call.out.astype(native, copy=False)
    elif call.moved:
        d = x
    else:
        check_memory(x.size * x.itemsize, _matrix_of(x), call.engine)
        original = x
        if isinstance(x, np.ndarray):
            d = np.empty(x.shape, native)
            call.engine.copy(x, d)  # by all threads
        else:
            d = x.astype(native, order="C")
    if directed is False:
        symmetrize(call.engine, s, d)
        original = None
    return ArraySource(call.engine, s, d, original, undirected=directed is False)


def _batch(call: Call, s: Semiring, task: Dense) -> tuple[Array, Array | None]:
    """Many graphs, each a matrix of its own."""
    x = call["graph"]
    _check_graph(x)
    request = replace(
        task.request, n=x.shape[-1], itemsize=x.dtype.itemsize, host=False, method="auto",
        comparing=spans(s, x.dtype),
    )  # fmt: skip
    task = replace(task, request=request)
    found = _at_once(call, s, task)
    return task.stack(_own(call, s, task.directed)) if found is None else found


def _at_once(call: Call, s: Semiring, task: Dense) -> tuple[Array, Array | None] | None:
    """One graph or many in one launch, or None where the engine has no such way."""
    engine, x = call.engine, call["graph"]
    truth = x.dtype.kind == "b" and task.request.predecessors
    if not x.size or x.shape[-1] > engine.BATCH or truth:
        return None
    keep = call.out is None and not call.moved and task.directed is not False
    source = ArraySource(engine, s, x, x) if keep else _own(call, s, task.directed)
    tick = reporter(task.progress, 1.0, "closures", "launches")
    found = task.at_once(source)
    if tick is not None:
        tick(1.0)
    return found


def _check_graph(x: Array) -> None:
    if len(x.shape) == 3 and x.shape[1] != x.shape[2]:
        raise ValueError(f"a batch of graphs has shape (b, n, n), got {x.shape}")
    if len(x.shape) not in (2, 3) or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"a graph's matrix is square, got shape {x.shape}{edges_hint(x.shape)}")
    if x.dtype.kind not in "biuf" and x.dtype.name != "bfloat16":
        raise TypeError(f"a graph's weights are real numbers, got dtype {x.dtype}")


def _matrix_of(d: Array) -> str:
    return f"the {' x '.join(map(str, d.shape))} matrix in {d.dtype}"


def _labels(nodes: Sequence[Any] | None) -> Labels | None:
    return None if nodes is None else Labels(nodes)
