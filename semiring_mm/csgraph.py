"""A drop-in replacement for :mod:`scipy.sparse.csgraph`: only the import changes.

``shortest_path``, ``floyd_warshall``, ``dijkstra``, ``johnson`` and ``bellman_ford`` take the
arguments of SciPy's and return the same; all other names are SciPy's own, untouched.

What is a graph is SciPy's: in a dense matrix 0, NaN and infinities are no edges, in a masked array
masked entries are none and zeros are edges, in a sparse array every stored entry is an edge but NaN
and inf. Entries stored twice add up in COO, as always in SciPy, and are parallel edges in CSR and
CSC. ``directed=False`` goes both ways along every edge: the smaller of G[i, j] and G[j, i] counts.

>>> import numpy as np
>>> from semiring_mm import csgraph
>>> csgraph.shortest_path(np.array([[0, 3, 8], [0, 0, 1], [2, 0, 0]]))
array([[0., 3., 4.],
       [3., 0., 1.],
       [2., 5., 0.]])
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .closures.edges import EdgeList, both_ways
from .closures.paths import NO_PREDECESSOR, find_negative_cycle
from .closures.paths import NegativeCycleError as _NamedCycleError
from .graph_kernels import offsets
from .graphs.apsp import distances
from .graphs.choice import DENSE, Request
from .graphs.dijkstra import MALFORMED, Found, Lists, search_lists
from .graphs.hops import brief
from .graphs.methods import plan, searches_first
from .lazy import cached_property
from .naming import listing
from .semirings import semirings

try:
    import scipy.sparse.csgraph as _scipy
    from scipy.sparse import issparse
    from scipy.sparse.csgraph import *  # noqa: F403
    from scipy.sparse.csgraph import NegativeCycleError
except ImportError as error:
    raise ImportError(
        "semiring_mm.csgraph stands in for scipy.sparse.csgraph and needs SciPy: "
        'python -m pip install "semiring-mm[scipy]"'
    ) from error

__all__ = list(_scipy.__all__)
__dir__ = listing(__all__)

Matrix = NDArray[np.float64]
Result = Any  # distances, or (distances, predecessors)


class _NegativeCycle(_NamedCycleError, NegativeCycleError):  # type: ignore[misc]
    """A NegativeCycleError of this library that is also SciPy's."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _negative_cycle, (self.cycle, self.weight), {"args": self.args}


# As tracebacks show it; in this module SciPy's class has that name.
_NegativeCycle.__name__ = _NegativeCycle.__qualname__ = "NegativeCycleError"


def _negative_cycle(cycle: list[int], weight: float) -> _NegativeCycle:
    return _NegativeCycle(cycle, weight)


def shortest_path(
    csgraph: Any,
    method: str = "auto",
    directed: bool = True,
    return_predecessors: bool = False,
    unweighted: bool = False,
    overwrite: bool = False,
    indices: Any = None,
) -> Result:
    """Shortest paths, as :func:`scipy.sparse.csgraph.shortest_path`.

    Parameters
    ----------
    csgraph : array_like, masked array or sparse array, shape (n, n)
        The graph; see the module's documentation for what is an edge.
    method : {"auto", "FW", "D", "BF", "J"}
        Checked, and heeded in this alone: "FW" takes no `indices`, and with `indices` "D" and "BF"
        pass over negative cycles that no path from there reaches. The algorithm is chosen as the
        fastest for the graph.
    directed : bool, default True
        False also reads every edge backwards.
    return_predecessors : bool, default False
        Also return the predecessors.
    unweighted : bool, default False
        Count edges in place of adding up weights.
    overwrite : bool, default False
        The result may use the memory of `csgraph`, a C-contiguous array of float64.
    indices : int or array_like of int, optional
        Only paths from these nodes; negative ones count from the end.

    Returns
    -------
    dist_matrix : ndarray of float64, shape (n, n), or indices.shape + (n,)
        inf where there is no path.
    predecessors : ndarray of int32, of the same shape
        Only with `return_predecessors`: the node before j on a shortest path from i, -9999 if there
        is none. Of paths of equal length any may be shown.

    Raises
    ------
    NegativeCycleError
        SciPy's, and :class:`semiring_mm.NegativeCycleError` with the cycle in it.
    ValueError
        If the graph is not square, an index or the method is unknown, or a weight is -inf.

    Notes
    -----
    All pairs by :func:`semiring_mm.apsp`: in blocks for dense graphs, O(n³); by elimination for
    sparse ones with small separators. Where a search from each source is estimated to be faster,
    as it is from a single one, that is done, O(k (m + n) log n) for k sources; where weights are
    negative after potentials have made up for them (Johnson, 1977).

    Examples
    --------
    >>> from semiring_mm.csgraph import shortest_path
    >>> D, P = shortest_path([[0, 1, 2], [0, 0, -3], [0, 0, 0]], return_predecessors=True)
    >>> D
    array([[ 0.,  1., -2.],
           [inf,  0., -3.],
           [inf, inf,  0.]])
    >>> P
    array([[-9999,     0,     1],
           [-9999, -9999,     1],
           [-9999, -9999, -9999]], dtype=int32)
    """
    if method not in ("auto", "FW", "D", "BF", "J"):
        raise ValueError(f"method is 'auto', 'FW', 'D', 'BF' or 'J', got {method!r}")
    if method == "FW" and indices is not None:
        raise ValueError("method='FW' takes no indices: leave one of them out")
    graph = _Graph.read(csgraph, directed, unweighted, overwrite and method in ("auto", "FW"))
    rows, shape = _rows(graph, indices)
    if found := graph.search(rows, return_predecessors):
        return _give(found, return_predecessors, shape)
    if method in ("D", "BF"):
        graph = graph.reached(rows)
    elif rows is not None and graph.lowest < 0:
        graph.potentials()  # a negative cycle anywhere is an error
    return _give(_solve(graph, rows, return_predecessors), return_predecessors, shape)


def floyd_warshall(
    csgraph: Any,
    directed: bool = True,
    return_predecessors: bool = False,
    unweighted: bool = False,
    overwrite: bool = False,
) -> Result:
    """All-pairs shortest paths, as :func:`scipy.sparse.csgraph.floyd_warshall`.

    Parameters
    ----------
    csgraph, directed, return_predecessors, unweighted, overwrite
        As for :func:`shortest_path`.

    Returns
    -------
    dist_matrix, predecessors
        As of :func:`shortest_path`.

    Examples
    --------
    >>> from semiring_mm.csgraph import floyd_warshall
    >>> floyd_warshall([[0, 1, 5], [0, 0, 1], [0, 0, 0]], directed=False)
    array([[0., 1., 2.],
           [1., 0., 1.],
           [2., 1., 0.]])
    """
    return shortest_path(csgraph, "FW", directed, return_predecessors, unweighted, overwrite)


def johnson(
    csgraph: Any,
    directed: bool = True,
    indices: Any = None,
    return_predecessors: bool = False,
    unweighted: bool = False,
) -> Result:
    """Shortest paths with negative weights, as :func:`scipy.sparse.csgraph.johnson`.

    A negative cycle anywhere is an error.

    Parameters
    ----------
    csgraph, directed, indices, return_predecessors, unweighted
        As for :func:`shortest_path`.

    Returns
    -------
    dist_matrix, predecessors
        As of :func:`shortest_path`.

    Examples
    --------
    >>> from semiring_mm.csgraph import johnson
    >>> johnson([[0, 4, 2], [0, 0, 0], [0, -1, 0]], indices=0)
    array([0., 1., 2.])
    """
    return shortest_path(csgraph, "J", directed, return_predecessors, unweighted, False, indices)


def bellman_ford(
    csgraph: Any,
    directed: bool = True,
    indices: Any = None,
    return_predecessors: bool = False,
    unweighted: bool = False,
) -> Result:
    """Shortest paths with negative weights, as :func:`scipy.sparse.csgraph.bellman_ford`.

    A negative cycle is an error if it can be reached from `indices`.

    Parameters
    ----------
    csgraph, directed, indices, return_predecessors, unweighted
        As for :func:`shortest_path`.

    Returns
    -------
    dist_matrix, predecessors
        As of :func:`shortest_path`.

    Examples
    --------
    >>> from semiring_mm.csgraph import bellman_ford
    >>> bellman_ford([[0, 4, 2], [0, 0, 0], [0, -1, 0]], indices=[0, 2])
    array([[ 0.,  1.,  2.],
           [inf, -1.,  0.]])
    """
    return shortest_path(csgraph, "BF", directed, return_predecessors, unweighted, False, indices)


def dijkstra(
    csgraph: Any,
    directed: bool = True,
    indices: Any = None,
    return_predecessors: bool = False,
    unweighted: bool = False,
    limit: float = math.inf,
    min_only: bool = False,
) -> Result:
    """Shortest paths, as :func:`scipy.sparse.csgraph.dijkstra`.

    Negative weights are welcome too.

    Parameters
    ----------
    csgraph, directed, indices, return_predecessors, unweighted
        As for :func:`shortest_path`.
    limit : float, default inf
        Paths that are longer are not shown.
    min_only : bool, default False
        Only the shortest path from any of `indices` to each node.

    Returns
    -------
    dist_matrix : ndarray of float64, shape (n, n), indices.shape + (n,), or (n,) with `min_only`
    predecessors : ndarray of int32, of the same shape
        Only with `return_predecessors`.
    sources : ndarray of int32, shape (n,)
        Only with both: where the path to each node starts, -9999 if there is none.

    Raises
    ------
    NegativeCycleError
        If such a cycle can be reached from `indices`.
    ValueError
        As for :func:`shortest_path`, or if `limit` is negative.

    Notes
    -----
    With `limit` the search ends there, unless weights are negative: then distances beyond the limit
    are left out at the end, and predecessors stay, as paths that come back within the limit may
    lead there.

    Examples
    --------
    >>> from semiring_mm.csgraph import dijkstra
    >>> G = [[0, 1, 0, 0], [0, 0, 2, 0], [0, 0, 0, 2], [0, 0, 0, 0]]
    >>> dijkstra(G, indices=0, limit=4)
    array([ 0.,  1.,  3., inf])
    >>> dijkstra(G, indices=[0, 2], min_only=True)
    array([0., 1., 0., 2.])
    """
    if not limit >= 0:
        raise ValueError(f"limit must be at least 0, got {limit}")
    graph = _Graph.read(csgraph, directed, unweighted, False)
    rows, shape = _rows(graph, indices)
    if found := graph.search(rows, return_predecessors, limit, min_only):
        return _give(found, return_predecessors, shape[-1:] if min_only else shape)
    graph = graph.reached(rows)
    solved = _nearest(graph, rows) if min_only else _solve(graph, rows, return_predecessors)
    d, *rest = solved if isinstance(solved, tuple) else (solved,)
    if limit < math.inf:
        far = d > limit
        d[far] = np.inf
        if min_only:
            rest[1][far] = NO_PREDECESSOR
    return _give((d, *rest), return_predecessors, d.shape if min_only else shape)


def _nearest(graph: _Graph, rows: NDArray[np.int64] | None) -> tuple[Any, ...]:
    """Return the best paths from any of `rows`: from an extra node with an edge to each."""
    graph.potentials()  # report a negative cycle before the extra node is added
    g, n = graph.sparse(), graph.n
    first = np.arange(n) if rows is None else np.unique(rows)
    starts = np.append(g.starts, g.starts[-1] + len(first))
    weight = np.append(g.weight, np.zeros(len(first)))
    extended = EdgeList.by_rows(starts, np.append(g.col, first), weight)
    d, p = _solve(_Graph(n + 1, extended, graph.directed), np.array([n]), True)
    d, p = d[0, :n], p[0, :n]
    source = np.where(p == n, np.arange(n), p)  # pointer doubling
    for _ in range(n.bit_length()):
        source = np.where(source < 0, NO_PREDECESSOR, source[np.maximum(source, 0)])
    return d, np.where(p == n, NO_PREDECESSOR, p).astype(np.int32), source.astype(np.int32)


# --- graphs by SciPy's conventions ----------------------------------------------------------------


@dataclass(eq=False)
class _Graph:
    """A graph."""

    n: int
    # an array with inf where there is no edge, an EdgeList by rows, of undirected edges too, or a
    # csr_array of float64 that nobody has looked at
    given: Any
    directed: bool
    own: bool = False  # whether a dense matrix may be overwritten
    unweighted: bool = False  # whether edges of a csr_array count 1

    @classmethod
    def read(cls, graph: Any, directed: bool, unweighted: bool, overwrite: bool) -> _Graph:
        own = not issparse(graph)
        if own and hasattr(graph, "to_scipy_sparse"):  # an array of the package `sparse`
            graph, own = graph.to_scipy_sparse(accept_fv=[0, np.inf, np.nan]), False
        if np.iscomplexobj(graph):
            raise TypeError("a graph's weights are real numbers, got complex ones")
        given: Any = _dense(graph, overwrite) if own else graph.tocsr()
        if given.dtype != np.float64:
            given = given.astype(np.float64)
        shape = given.shape
        if len(shape) != 2 or shape[0] != shape[1]:
            raise ValueError(f"a graph's matrix is square, got shape {shape}")
        if own:
            _check_lowest(given)
            if unweighted:
                given[given < np.inf] = 1
        return cls(shape[0], given, bool(directed), own, unweighted)

    @cached_property
    def edges(self) -> Any:
        """The dense matrix, or edges by rows without weights that are not finite."""
        if not issparse(self.given):
            return self.given
        edges = EdgeList.of_csr(self.given)
        edges = edges.kept(~(np.isnan(edges.weight) | (edges.weight == np.inf)))
        _check_lowest(edges.weight)
        return edges.weighted(np.ones_like(edges.weight)) if self.unweighted else edges

    @property
    def dense(self) -> bool:
        return isinstance(self.given, np.ndarray)

    @property
    def lowest(self) -> float:
        weights = self.edges if self.dense else self.edges.weight
        return float(weights.min()) if weights.size else math.inf

    @cached_property
    def stored(self) -> int:
        """The number of entries that are edges."""
        if issparse(self.given):
            return int(self.given.indptr[-1])
        edges = self.edges
        return int(np.count_nonzero(edges < np.inf) if self.dense else len(edges.col))

    @property
    def few(self) -> bool:
        """Whether the graph is sparse enough for an attempt at sparse elimination."""
        return self.stored <= DENSE * self.n

    def sparse(self) -> EdgeList:
        """The edges, by rows."""
        if isinstance(self.edges, EdgeList):
            return self.edges
        there = self.edges < np.inf
        first, col = offsets(np.count_nonzero(there, axis=1)), np.nonzero(there)[1]
        return EdgeList.by_rows(first, col, self.edges[there])

    def search(
        self, rows: NDArray[np.int64] | None, predecessors: bool, limit: float = math.inf,
        nearest: bool = False,
    ) -> Found | None:  # fmt: skip
        """Shortest paths by searches; None where weights are negative, or others may be faster."""
        n, count = self.n, self.n if rows is None else len(rows)
        alone, arcs = nearest or limit < math.inf, self.stored * (1 if self.directed else 2)
        fast = functools.partial(brief, n, arcs, count, predecessors=predecessors)
        if not (alone or fast(equal=self.unweighted)):
            return None
        for lists in self._lists():
            if lists.weight is None and not (alone or fast(equal=True)):
                return None
            found = search_lists(
                lists, np.arange(n) if rows is None else rows, predecessors=predecessors,
                limit=limit, directed=self.directed, nearest=nearest,
            )  # fmt: skip
            if found is not None:
                return found
        if self.lowest >= 0:
            raise ValueError(MALFORMED)
        return None

    def _lists(self) -> Iterator[Lists]:
        """Arcs as they came and, if there is something wrong with them, without what is no edge."""
        g = self.given
        if issparse(g) and not (self.unweighted and not np.isfinite(g.data).all()):
            lists = Lists(self.n, g.indptr, g.indices, None)
            yield lists if self.unweighted else Lists.of(*lists[:3], g.data)
        if self.lowest >= 0:
            edges = self.sparse()
            yield Lists.of(self.n, edges.starts, edges.col, edges.weight)

    def potentials(self) -> Matrix:
        """Return Johnson's potentials; raise if there is a negative cycle."""
        row, col, weight = self.sparse().arrays
        if not self.directed:
            row, col, weight = *both_ways(row, col), np.concatenate([weight, weight])
        found = find_negative_cycle(row, col, weight, self.n)
        if isinstance(found, tuple):
            raise _NegativeCycle(*found)
        return found

    def reached(self, rows: NDArray[np.int64] | None) -> _Graph:
        """Return the graph without negative edges that are unreachable from `rows`."""
        if rows is None or self.lowest >= 0:
            return self
        g = self.sparse()
        steps = _Graph(self.n, g.weighted(np.ones_like(g.weight)), self.directed)
        found = steps.search(rows, False, nearest=True)
        assert found is not None
        there = found.d[0] < np.inf
        seen = there[g.row]
        if not self.directed:
            seen |= there[g.col]
        return self if seen.all() else _Graph(self.n, g.kept(seen), self.directed)


def _dense(graph: Any, overwrite: bool) -> Matrix:
    masked = np.ma.isMaskedArray(graph)
    values = graph.data if masked else graph
    copy = None if overwrite else True
    matrix = np.array(values, np.float64, order="C", copy=copy)
    missing = ~np.isfinite(matrix)
    if masked:
        missing = np.isnan(matrix) | np.ma.getmaskarray(graph)
    else:
        missing |= matrix == 0
    matrix[missing] = np.inf
    return matrix


def _check_lowest(weights: NDArray[np.float64]) -> None:
    if weights.size and weights.min() == -np.inf:
        raise ValueError("a weight is -inf: leave the edge out if there is none")


def _rows(graph: _Graph, indices: Any) -> tuple[NDArray[np.int64] | None, tuple[int, ...]]:
    """The sources as a list of nodes, None for all, and the shape of the result."""
    n = graph.n
    if indices is None:
        return None, (n, n)
    nodes = np.array(indices, dtype=np.int64)
    shape = (*nodes.shape, n)
    nodes = nodes.reshape(-1)
    numbers = nodes.tolist()
    if numbers and not 0 <= min(numbers) <= max(numbers) < n:
        nodes[nodes < 0] += n
        outside = (nodes < 0) | (nodes >= n)
        if outside.any():
            raise ValueError(f"indices: there is no node {numbers[outside.argmax()]} among {n}")
    return nodes, shape


def _give(found: Any, predecessors: bool, shape: tuple[int, ...]) -> Result:
    if isinstance(found, Found):
        found = [x for x in found[:3] if x is not None]
    elif not isinstance(found, tuple):
        found = (found,)
    shaped = tuple(x.reshape(shape) for x in found)
    return shaped if predecessors else shaped[0]


# --- the algorithm --------------------------------------------------------------------------------


def _solve(graph: _Graph, rows: Any, predecessors: bool) -> Any:
    """Distances from some or all nodes, (k, n), with predecessors if they are wanted."""
    n, directed = graph.n, graph.directed
    k = n if rows is None else len(rows)
    if not n or not k:
        d, p = np.empty((k, n)), np.empty((k, n), np.int32)
        return (d, p) if predecessors else d
    try:
        request = Request(
            semirings["min_plus"], n, np.dtype(np.float64), graph.stored, device="cpu", rows=rows,
            predecessors=predecessors, sources=None if rows is None else k, undirected=not directed,
        )  # fmt: skip
        if not request.dense and (not graph.dense or graph.few or searches_first(request)):
            request.edges = graph.sparse() if directed else graph.sparse().undirected()
            method = plan(request)
            if method.edges:
                solved = method.run(request)
                return solved if predecessors else solved[0]
        return distances(
            graph.edges, method="floyd_warshall", sources=rows, overwrite=graph.own,
            directed=None if directed else False,  # None: symmetric ones take half the time
            predecessors=predecessors,
        )  # fmt: skip
    except _NamedCycleError as error:
        raise _NegativeCycle(error.cycle, error.weight) from None
