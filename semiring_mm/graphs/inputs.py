"""Convert graphs of all kinds to edge lists and to adjacency matrices over a semiring."""

from __future__ import annotations

import contextlib
import numbers
from dataclasses import replace
from decimal import Decimal
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import check_memory
from ..closures.edges import EdgeList, edge_dtype, join_edges, symmetrize
from ..cpu import engine as cpu
from ..semirings import Semiring, as_semiring

__all__ = ["adjacency", "edge_list"]

Array = Any  # of the engine's library


def adjacency(
    graph: Any,
    semiring: str | Semiring = "min_plus",
    *,
    dtype: Any = None,
    directed: bool | None = None,
    out: Array | None = None,
) -> tuple[Array, list[Any]]:
    """The adjacency matrix of a graph over a semiring, and its nodes in the order of the rows.

    Parameters
    ----------
    graph : ndarray, SciPy sparse matrix or array, NetworkX graph, semiring_mm.files.Graph, or path
        A dense matrix is taken as it is: the semiring's zero (inf for min_plus) means no edge. In a
        sparse one every stored entry is an edge, explicit zeros too. Of parallel edges the best
        counts: they are joined by ⊕.
    semiring : str or Semiring, default "min_plus"
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
    edges = edge_list(graph, directed=directed)
    if edges is not None:
        return _from_edges(s, edges, dtype, out), list(edges.nodes)
    if isinstance(graph, np.ma.MaskedArray):
        raise TypeError("the graph is a masked array: use graph.filled(inf)")
    if isinstance(graph, (list, tuple)) or hasattr(graph, "__array__"):
        return _from_dense(s, np.asarray(graph), dtype, directed is False, out)
    raise TypeError(
        f"a graph is a square array, a SciPy sparse matrix, a NetworkX graph, a "
        f"semiring_mm.files.Graph or a path to a file, got {type(graph).__name__}"
    )


def edge_list(graph: Any, *, directed: bool | None = None) -> EdgeList | None:
    """The edges of what :func:`adjacency` takes, or None for a dense matrix or no graph at all."""
    if isinstance(graph, (str, PathLike)):
        from ..files import read_graph

        graph = read_graph(Path(graph))
    if isinstance(graph, EdgeList):
        edges = graph
    elif hasattr(graph, "tocoo"):
        coo = graph.tocoo()
        _check_square(coo.shape)
        edges = EdgeList(range(coo.shape[0]), coo.row, coo.col, coo.data, True)
    elif hasattr(graph, "is_directed") and hasattr(graph, "edges"):
        edges = _from_networkx(graph)
    else:
        return None
    if directed is not None:
        edges = replace(edges, directed=directed)
    return _checked(edges)


def _checked(edges: EdgeList) -> EdgeList:
    """The edge list with arrays of one length, nodes that exist and real weights."""
    row, col, weight = (np.asarray(x) for x in (edges.row, edges.col, edges.weight))
    if not row.shape == col.shape == weight.shape == (len(row),):
        raise ValueError(
            f"row, col and weight are arrays of one length, got shapes {row.shape}, {col.shape} "
            f"and {weight.shape}"
        )
    if weight.dtype.kind not in "biuf":
        raise TypeError(f"edge weights are real numbers, got dtype {weight.dtype}")
    for ends in (row, col):
        if ends.size and ends.dtype.kind not in "iu":
            raise TypeError(f"row and col are numbers of nodes, got dtype {ends.dtype}")
        if ends.size and not (ends.min() >= 0 and ends.max() < edges.n):
            wrong = int(ends[(ends < 0) | (ends >= edges.n)][0])
            raise ValueError(f"an edge at node {wrong}, and nodes are 0 to {edges.n - 1}")
    missing = np.flatnonzero(np.isnan(weight))
    if missing.size:
        u, v = row[missing[0]], col[missing[0]]
        raise ValueError(f"the edge from node {u} to node {v} has weight NaN")
    index = np.int64
    return replace(
        edges, row=row.astype(index, copy=False), col=col.astype(index, copy=False), weight=weight
    )


def _from_networkx(graph: Any) -> EdgeList:
    nodes = list(graph)
    index = {node: i for i, node in enumerate(nodes)}
    row, col, weights = [], [], []
    for u, v, weight in graph.edges(data="weight", default=1):
        row.append(index[u])
        col.append(index[v])
        weights.append(_real(weight, u, v))
    return EdgeList(
        nodes,
        np.array(row, np.int64),
        np.array(col, np.int64),
        np.array(weights, np.float64),
        graph.is_directed(),
    )


def _real(weight: Any, u: Any, v: Any) -> float:
    """The weight of an edge as a float: no string that reads as one, no complex number's half."""
    if isinstance(weight, (numbers.Real, np.bool_, Decimal)):
        with contextlib.suppress(OverflowError, ValueError):
            return float(weight)
        raise ValueError(f"the weight of edge {u!r} - {v!r} does not fit float64: {weight!r:.60}")
    raise TypeError(f"edge weights must be numbers, got {weight!r:.60} between {u!r} and {v!r}")


def _from_dense(
    s: Semiring, matrix: Array, dtype: Any, undirected: bool, out: Array | None
) -> tuple[Array, list[Any]]:
    _check_square(matrix.shape)
    if matrix.dtype.kind not in "biuf" and matrix.dtype.name != "bfloat16":
        raise TypeError(f"a graph's weights are real numbers, got dtype {matrix.dtype}")
    wanted = np.dtype(matrix.dtype if dtype is None else dtype).newbyteorder("=")
    n = matrix.shape[0]
    result = _target(out, n, wanted)
    np.copyto(result, matrix, casting="unsafe" if dtype is not None else "same_kind")
    if undirected:
        symmetrize(cpu, s, result)
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


def _check_square(shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(f"a graph's matrix is square, got shape {shape}")
