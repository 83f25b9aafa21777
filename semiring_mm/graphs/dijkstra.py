"""Shortest paths of sparse graphs without negative weights by SciPy's search from each source."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..arrays import check_memory
from ..closures.edges import EdgeList
from ..closures.progress import Progress, reporter
from ..semirings import semirings

__all__ = ["search", "search_edges", "searchable"]

Array = NDArray[np.generic]
Index = NDArray[np.int64]
_ROWS = 64  # sources of one call


def searchable(weight: Array, n: int) -> bool:
    """Whether a search in float64 finds the exact paths of these weights."""
    if not weight.size:
        return True
    if not weight.min() >= 0:
        return False
    return weight.dtype.kind == "f" or n * int(weight.max()) <= 1 << 53


def search(
    n: int,
    row: Index,
    col: Index,
    weight: Array,
    *,
    sources: Index | None,
    predecessors: bool,
    out: Array | None = None,
    progress: Progress = None,
) -> tuple[Array, NDArray[np.int32] | None]:
    """Distances, and predecessors if they are wanted, from all or some sources.

    Parameters
    ----------
    n : int
        Nodes of the graph.
    row, col, weight : (m,) arrays
        The edges, in one direction each, of weights that are :func:`searchable`.
    out : (n, n) array, optional
        Filled in place of a new array of the type of the weights.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    dtype = weight.dtype
    chosen = np.arange(n) if sources is None else sources
    shape = (len(chosen), n)
    each = 4 * predecessors + (dtype.itemsize if out is None else 0)
    check_memory(
        shape[0] * n * each + min(_ROWS, len(chosen)) * n * 12,
        f"the result of {shape[0]} x {n} entries",
    )
    d = np.empty(shape, dtype) if out is None else out
    p = np.empty(shape, np.int32) if predecessors else None
    # of parallel edges SciPy would take the sum
    order = np.lexsort((weight, col, row))
    row, col, weight = row[order], col[order], weight[order]
    first = np.ones(len(row), bool)
    first[1:] = (row[1:] != row[:-1]) | (col[1:] != col[:-1])
    row, col, weight = row[first], col[first], weight[first]
    starts = np.searchsorted(row, np.arange(n + 1))
    graph = csr_array((weight.astype(np.float64), col, starts), shape=(n, n))
    unreachable = semirings["min_plus"].identities(dtype)[0]
    total = float(len(chosen)) * n
    tick = reporter(progress, total, "Dijkstra from each node", "entries")
    for i in range(0, len(chosen), _ROWS):
        part = slice(i, i + _ROWS)
        found = dijkstra(graph, indices=chosen[part], return_predecessors=predecessors)
        distances = found[0] if predecessors else found
        if p is not None:
            p[part] = found[1]
        if dtype.kind in "iu":
            far = np.isinf(distances)
            distances[far] = 0
            d[part] = distances
            d[part][far] = unreachable
        else:
            d[part] = distances
        if tick is not None:
            tick(min(total, float(i + _ROWS) * n))
    return d, p


def search_edges(
    edges: EdgeList, sources: Index | None, predecessors: bool, progress: Progress
) -> tuple[Array, NDArray[np.int32] | None] | None:
    """:func:`search` of an edge list, or None if its weights are not :func:`searchable`."""
    row, col, weight = edges.row, edges.col, edges.weight
    weight = weight.astype(np.float32 if weight.dtype == np.float32 else np.float64)
    if not searchable(weight, edges.n):
        return None
    kept = weight < np.inf
    row, col, weight = row[kept], col[kept], weight[kept]
    if not edges.directed:
        row, col = np.concatenate([row, col]), np.concatenate([col, row])
        weight = np.concatenate([weight, weight])
    return search(
        edges.n, row, col, weight, sources=sources, predecessors=predecessors, progress=progress
    )  # fmt: skip
