"""Convert graphs of all kinds to edge lists and to adjacency matrices over a semiring."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from ..arrays import check_memory, masked
from ..closures.edges import EdgeList, NumberLabels, edge_dtype, is_table, join_edges, symmetrize
from ..closures.labelled import LabelledArray, Labels
from ..naming import integer
from ..registry import provided
from ..semirings import Semiring, as_semiring
from ..warn import warn
from .packages import from_dict, from_igraph, from_networkx

__all__ = [
    "adjacency", "are_paths", "as_graph", "check_matrix", "edges_hint", "is_matrix", "positions",
    "warn_of_edges", "warn_of_entries",
]  # fmt: skip

Array = Any  # of the engine's library
_PIECE = 1 << 16  # entries of a matrix that are looked at together


def adjacency(
    graph: Any,
    semiring: str | Semiring = "min_plus",
    *,
    weight: str | int | None = "weight",
    source: Any = None,
    target: Any = None,
    dtype: Any = None,
    directed: bool | None = None,
    out: Array | None = None,
) -> tuple[Array, list[Any]]:
    """The adjacency matrix of a graph over a semiring, and its nodes in the order of the rows.

    Parameters
    ----------
    graph : ndarray, SciPy sparse, NetworkX or igraph graph, table, dict, Graph, or path
        A dense matrix is taken as it is: the semiring's zero (inf for min_plus) means no edge. In a
        sparse one every stored entry is an edge, explicit zeros too. Of parallel edges the best
        counts: they are joined by ⊕.

        A path, a list of paths, and a table of pandas, Polars or Arrow are read as
        :func:`semiring_mm.files.read_graph` does, and its warnings are warnings here: an edge a
        row, in the columns source and target, or from and to; a column directed or oneway tells
        how they lead. A table of pandas whose rows and columns have the same labels is a matrix. A
        dict has for each node the neighbours and weights, ``{"a": {"b": 3}}``, or the neighbours
        and attributes, or a list of neighbours; its edges are directed.
    semiring : str or Semiring, default "min_plus"
    weight : str or None, default "weight"
        The attribute of edges, or the column, that holds their weights; None: each edge counts 1.
        An edge without it counts 1, too, and if it has other numbers there is a warning that names
        them. In a file ``"weight"`` stands for all the usual names.
    source, target : optional
        The columns of a table of pandas, or of a file, that hold the ends of edges.
    dtype : dtype, optional
        Default: that of a dense matrix; else float32 for float32 weights and float64 for others;
        bool where the semiring works on truth values (any edge is True).
    directed : bool, optional
        False also reads every edge backwards. Default: what the graph says of itself; matrices are
        read as they are.
    out : ndarray, shape (n, n), optional
        Filled and returned in place of a new array.

    Returns
    -------
    matrix : ndarray, shape (n, n)
        zero where there is no edge. The diagonal holds self-loops only.
    nodes : list
        Node labels; for matrices 0 … n - 1.

    Examples
    --------
    >>> import networkx as nx
    >>> import semiring_mm as sm
    >>> G = nx.DiGraph()
    >>> G.add_weighted_edges_from([("a", "b", 3), ("b", "a", 1)])
    >>> sm.adjacency(G)
    (array([[inf,  3.],
           [ 1., inf]]), ['a', 'b'])
    """
    s = as_semiring(semiring)
    graph, nodes = as_graph(graph, weight=weight, directed=directed, source=source, target=target)
    if isinstance(graph, EdgeList):
        warn_of_edges(s, graph)
        return _from_edges(s, graph, dtype, out), list(graph.nodes)
    matrix, known = _from_dense(s, np.asarray(graph), dtype, directed is False, out)
    warn_of_entries(s, graph)
    return matrix, known if nodes is None else list(nodes)


def as_typed(
    s: Semiring, graph: Any, weight: str | int | None, directed: bool | None, source: Any,
    target: Any, dtype: Any,
) -> tuple[Any, str | int | None]:  # fmt: skip
    """A graph read from chosen columns, or in a dtype, and the `weight` that is still to be chosen.

    The graph as it is where neither is asked for.
    """
    if source is target is dtype is None:
        return graph, weight
    found, nodes = as_graph(graph, weight=weight, directed=directed, source=source, target=target)
    if isinstance(found, EdgeList):
        return (found if dtype is None else _typed(s, found, np.dtype(dtype))), "weight"
    graph = found if nodes is None else graph
    if not hasattr(graph, "astype"):
        raise TypeError(f"dtype: convert the {type(graph).__name__}, and leave dtype out")
    same = getattr(graph, "dtype", None) == np.dtype(dtype)
    return (graph if same else graph.astype(dtype)), weight


def _typed(s: Semiring, edges: EdgeList, dtype: np.dtype[Any]) -> EdgeList:
    """Edges with weights of the dtype that results are wanted in."""
    known = ["bool"] if s.bitwise else ["float32", "float64"]
    if dtype not in known:
        raise TypeError(
            f"dtype: results of a graph that is no matrix are {' or '.join(known)} over {s.name}, "
            f"got {dtype}; sm.adjacency(graph, {s.name!r}, dtype=...)[0] is a matrix"
        )
    return edges if s.bitwise else edges.weighted(edges.weight.astype(dtype))


def as_graph(
    graph: Any, *, weight: str | int | None = "weight", directed: bool | None = None,
    source: Any = None, target: Any = None,
) -> tuple[Any, Sequence[Any] | None]:  # fmt: skip
    """What :func:`adjacency` takes as an :class:`EdgeList` or a dense array, and its labels.

    The array may be of another library. Labels are None where nodes are mere numbers.
    """
    if type(graph) is np.ndarray and weight == "weight" and source is target is None:
        return graph, None  # at once: a small matrix takes some microseconds
    if not (weight is None or isinstance(weight, (str, int))):
        raise TypeError(f"weight is the name of an attribute of edges, or None, got {weight!r}")
    edges = _edge_list(graph, weight, directed, source, target)
    if edges is not None:
        edges = _checked(edges)
        if directed is False:
            edges = edges.undirected()
        return edges, None if isinstance(edges.nodes, range) else edges.nodes
    if masked(graph):
        raise TypeError("the graph is a masked array: use graph.filled(inf)")
    nodes: Sequence[Any] | None = None
    if is_table(graph):
        graph, nodes = graph.to_numpy(), list(graph.index)
    elif isinstance(graph, LabelledArray):
        nodes = graph.nodes if graph.nodes is graph.sources else None
        graph = graph.view(np.ndarray)
    elif isinstance(graph, (list, tuple)):
        graph = np.asarray(graph)
    words = isinstance(graph, np.ndarray) and graph.dtype.kind in "OUS"
    if words or not (hasattr(graph, "__array__") or hasattr(graph, "__dlpack__")):
        came = f"an array of dtype {graph.dtype}" if words else type(graph).__name__
        raise TypeError(
            f"a graph is a square array of numbers, a SciPy sparse matrix, a graph of NetworkX or "
            f"igraph, a table of edges (pandas, Polars, Arrow), a dict of dicts, a "
            f"semiring_mm.files.Graph or a path to a file, got {came}"
            + (edges_hint(np.shape(graph)) if words else "")
        )
    if weight != "weight":
        raise ValueError(
            f"weight={weight!r}: a matrix has one number for each edge and no attributes; leave "
            f"weight out"
            + ("" if weight else ", and to count edges give the matrix 1 for each of them")
        )
    return graph, nodes


def edges_hint(shape: Sequence[int]) -> str:
    """What to write for what may be a list of edges, as the end of a message."""
    if len(shape) != 2 or shape[1] not in (2, 3):
        return ""
    names = ["source", "target", "weight"][: shape[1]]
    return f"; a list of edges is a table: pandas.DataFrame(edges, columns={names})"


def _edge_list(
    graph: Any, weight: str | int | None, directed: bool | None, source: Any, target: Any
) -> EdgeList | None:
    """The edges, or None for what is no list of edges."""
    chosen = source is not None or target is not None
    if hasattr(type(graph), "tocoo") and not chosen:
        return _edges_of_sparse(graph, weight)
    table = is_table(graph) and (chosen or not is_matrix(graph))
    if table or isinstance(graph, (str, PathLike)) or are_paths(graph):
        read_graph = provided("read_graph")
        graph = read_graph(graph, weight=weight, source=source, target=target, directed=directed)
        for text in graph.warnings:
            warn(text)
        return _numbered(graph)
    if chosen:
        raise ValueError(
            f"source and target are columns of a table or of a file, got {type(graph).__name__}"
        )
    if isinstance(graph, np.ndarray):
        return None
    if isinstance(graph, EdgeList):
        if weight not in (None, "weight"):
            raise ValueError(
                f"weight={weight!r}: the weights were chosen when the graph was read; write "
                f"read_graph(path, weight={weight!r})"
            )
        return _numbered(graph if weight else _unweighted(graph))
    if isinstance(graph, Mapping):
        return from_dict(graph, weight)
    if hasattr(graph, "vs") and hasattr(graph, "es"):
        return from_igraph(graph, weight)
    if hasattr(graph, "adj") and hasattr(graph, "edges"):
        return from_networkx(graph, weight)
    return None


def _edges_of_sparse(graph: Any, weight: str | int | None) -> EdgeList:
    """The entries of a sparse matrix of SciPy's."""
    if weight not in (None, "weight"):
        raise ValueError(
            f"weight={weight!r}: a sparse matrix has one number for each edge; leave it out"
        )
    _check_square(graph.shape)
    if getattr(graph, "format", None) == "csr":
        edges = EdgeList.of_csr(graph)
    else:
        coo = graph.tocoo()
        edges = EdgeList(range(coo.shape[0]), coo.row, coo.col, coo.data, True)
    return edges if weight else _unweighted(edges)


def is_matrix(table: Any) -> bool:
    """Whether a table is a matrix, of pandas: its rows and columns have the same labels."""
    same = getattr(getattr(table, "index", None), "equals", None)
    return same is not None and bool(same(table.columns))


def are_paths(graph: Any) -> bool:
    """Whether it is a list of files, which make one graph."""
    several = isinstance(graph, (list, tuple)) and len(graph) > 0
    return several and all(isinstance(x, (str, PathLike)) for x in graph)


def _unweighted(edges: EdgeList) -> EdgeList:
    return edges.weighted(np.ones(len(edges.col)))


def _numbered(edges: EdgeList) -> EdgeList:
    """The edges, without labels where they are the positions of the nodes in a matrix."""
    if type(edges.nodes) is NumberLabels and edges.nodes == NumberLabels(0, edges.n):
        return replace(edges, nodes=range(edges.n))
    return edges


def warn_of_entries(s: Semiring, matrix: Any) -> None:
    """Warn of entries of a matrix, or a stack, on the host that are hardly the edges they count as.

    They are inf where -inf means no edge, or 0 in half of a matrix where inf does.
    """
    if type(matrix) is not np.ndarray or matrix.ndim not in (2, 3) or not matrix.size:
        return
    if s.zero == math.inf and matrix.dtype.kind in "iuf":
        _warn_of_zeros(s, matrix)
    if s.zero != -math.inf or matrix.dtype.kind != "f":
        return
    step = max(1, _PIECE // matrix[0].size)  # rows, or matrices of a stack
    for first in range(0, len(matrix), step):
        part = matrix[first : first + step]
        if part.max() == np.inf:
            at = np.argwhere(part == np.inf)
            at[:, 0] += first
            off = at[at[:, -2] != at[:, -1]]
            if len(off):
                _warn_of_infinity(s, f"the weight at {off[0].tolist()}")
                return


def _warn_of_zeros(s: Semiring, matrix: NDArray[Any]) -> None:
    """Warn if half of the entries off the diagonal are 0 and none says that there is no edge."""
    none, n = s.identities(matrix.dtype)[0], matrix.shape[-1]
    # some rows tell at once of most matrices: reading all takes as long as a copy to a device
    few = matrix[tuple(slice(None, None, max(1, size // 16)) for size in matrix.shape[:-1])]
    if few.max() == none or 4 * np.count_nonzero(few) > 3 * few.size:
        return
    diagonal = np.count_nonzero(matrix.diagonal(0, -2, -1) == 0)
    zeros = matrix.size - int(np.count_nonzero(matrix)) - int(diagonal)
    if 2 * zeros >= max(matrix.size - matrix.size // n, 3) and matrix.max() != none:
        warn(
            f"{zeros:,} of {matrix.size - matrix.size // n:,} entries off the diagonal are 0 and "
            f"none is inf: over {s.name} a 0 is an edge of weight 0. Where it means no edge, write "
            f"np.where(W == 0, np.inf, W), or use semiring_mm.csgraph, which reads 0 as no edge"
        )


def warn_of_edges(s: Semiring, edges: EdgeList) -> None:
    """Warn if the weight of an edge is inf where -inf means no edge."""
    edges = edges.original
    if s.zero == -math.inf and edges.weight.dtype.kind == "f":
        at = np.flatnonzero((edges.weight == np.inf) & (edges.row != edges.col))
        if at.size:
            u, v = edges.nodes[edges.row[at[0]]], edges.nodes[edges.col[at[0]]]
            _warn_of_infinity(s, f"the weight of edge {u!r} - {v!r}")


def _warn_of_infinity(s: Semiring, what: str) -> None:
    warn(
        f"{what} is inf, and over {s.name} no edge is better than that; where inf means no edge, "
        f"write -inf: np.where(np.isinf(W), -np.inf, W)"
    )


def _checked(edges: EdgeList) -> EdgeList:
    """The edge list with arrays of one length, nodes that exist and real weights."""
    first = edges.first
    if first is not None and (first[0] != 0 or True in (first[1:] < first[:-1])):
        raise ValueError("indptr of a sparse matrix begins with 0 and never decreases")
    col, weight = np.asarray(edges.col), np.asarray(edges.weight)
    row = np.asarray(edges.row) if first is None else col[:0]  # made of indptr: as it must be
    if not (len(row) if first is None else first[-1],) == col.shape == weight.shape:
        raise ValueError(
            f"row, col and weight are arrays of one length, got shapes "
            f"{row.shape if first is None else (int(first[-1]),)}, {col.shape} and {weight.shape}"
        )
    if weight.dtype.kind not in "biuf":
        raise TypeError(f"edge weights are real numbers, got dtype {weight.dtype}")
    for ends in (row, col):
        if ends.size and ends.dtype.kind not in "iu":
            raise TypeError(f"row and col are numbers of nodes, got dtype {ends.dtype}")
        # negative numbers are large ones without their sign
        if ends.size and np.maximum.reduce(ends.view(ends.dtype.str.replace("i", "u"))) >= len(
            edges.nodes
        ):
            wrong = int(ends[(ends < 0) | (ends >= edges.n)][0])
            raise ValueError(f"an edge at node {wrong}, and nodes are 0 to {edges.n - 1}")
    if weight.size and np.isnan(np.minimum.reduce(weight)):
        missing = np.flatnonzero(np.isnan(weight))
        u, v = (edges.nodes[x[missing[0]]] for x in (edges.row, col))
        raise ValueError(f"the edge from node {u} to node {v} has weight NaN")
    index = np.int64
    col = col.astype(index, copy=False)
    if first is not None:
        same = col is edges.col and weight is edges.weight
        return edges if same else EdgeList.by_rows(first, col, weight)
    return replace(edges, row=row.astype(index, copy=False), col=col, weight=weight)


def _from_dense(
    s: Semiring, matrix: Array, dtype: Any, undirected: bool, out: Array | None
) -> tuple[Array, list[Any]]:
    check_matrix(matrix)
    wanted = np.dtype(matrix.dtype if dtype is None else dtype).newbyteorder("=")
    n = matrix.shape[0]
    result = _target(out, n, wanted)
    np.copyto(result, matrix, casting="unsafe" if dtype is not None else "same_kind")
    if undirected:
        symmetrize(engines.named("cpu"), s, result)
    return result, list(range(n))


def _from_edges(s: Semiring, edges: EdgeList, dtype: Any, out: Array | None) -> Array:
    row, col, weight = edges.row, edges.col, edges.weight
    n = edges.n
    wanted = edge_dtype(s, weight) if dtype is None else np.dtype(dtype)
    zero, _ = s.identities(wanted)
    matrix = _target(out, n, wanted)
    matrix[...] = zero
    values = np.ones(len(row), bool) if wanted.kind == "b" else weight.astype(wanted)
    join_edges(s, matrix, row, col, values)
    if not edges.directed:
        join_edges(s, matrix, col, row, values)
    return matrix


def _target(out: Array | None, n: int, dtype: np.dtype[Any]) -> Array:
    if out is None:
        check_memory(n * n * dtype.itemsize, f"the {n} x {n} matrix in {dtype}")
        return np.empty((n, n), dtype)
    if out.shape != (n, n) or out.dtype != dtype:
        raise ValueError(
            f"out has shape {out.shape} and dtype {out.dtype}, the matrix has shape {(n, n)} and "
            f"dtype {dtype}"
        )
    return out


def check_matrix(x: Array) -> None:
    """Raise ValueError or TypeError if an array is no matrix of a graph."""
    _check_square(x.shape)
    if x.dtype.kind not in "biuf" and x.dtype.name != "bfloat16":
        raise TypeError(f"a graph's weights are real numbers, got dtype {x.dtype}")


def _check_square(shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(f"a graph's matrix is square, got shape {shape}{edges_hint(shape)}")


def positions(
    chosen: Any, n: int, nodes: Labels | Sequence[Any] | None, name: str = "sources"
) -> NDArray[np.int64] | None:
    """The positions of one or several of n nodes, of their labels where they have any; None: all.

    `nodes` is None, or a range, where they have none.

    Raises
    ------
    ValueError
        If there is no such node.
    """
    if chosen is None:
        return None
    if not (nodes is None or isinstance(nodes, range)):
        labels = nodes if isinstance(nodes, Labels) else Labels(nodes)
        single = isinstance(chosen, str) or not isinstance(chosen, Iterable) or chosen in labels
        chosen = [chosen] if single else chosen
        return labels.unique().positions(chosen)
    if isinstance(chosen, np.ndarray) and chosen.ndim == 1 and chosen.dtype.kind in "iu":
        rows = chosen.astype(np.int64)
    else:
        chosen = [chosen] if np.ndim(chosen) == 0 else list(chosen)
        rows = np.array([integer(x, name) for x in chosen], np.int64)
    numbers = rows.tolist()  # mostly few, for which NumPy takes longer than Python
    if numbers and not 0 <= min(numbers) <= max(numbers) < n:
        bad = next(x for x in numbers if not 0 <= x < n)
        raise ValueError(f"{name}: there is no node {bad}, they are 0 to {n - 1}")
    return rows
