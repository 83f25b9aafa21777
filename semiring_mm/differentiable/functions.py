"""Products, sums, closures, chains, distances and alignments with gradients.

The first argument of each function is the library; see :func:`semiring_mm.differentiable.bind`.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

import semiring_mm as public

from .. import alignment, chains, neighbours, summation
from ..graphs.prepared import PreparedGraph, network
from ..metrics import Metric
from ..products import check_inner
from ..semirings import Semiring, as_semiring, row_of, semiring_of
from ..verb import Library
from . import like
from .rows import VERBS

__all__ = ["apsp", "cdist", "chain", "closure", "distances", "dtw", "einsum", "matmul", "scan"]

Array = Any  # of any array library


@like(public.matmul)
def matmul(
    library: Library, a: Any, b: Any, semiring: str | Semiring = "plus_times", *,
    return_arg: bool = False,
) -> Any:  # fmt: skip
    """Matrix product over a semiring, with gradients.

    Parameters
    ----------
    a : array_like, shape (..., m, k) or (k,)
    b : array_like, shape (..., k, n) or (k,)
        Of any strides, on one device. Leading dimensions broadcast, and 1-D arrays are treated, as
        in :func:`numpy.matmul`.

    Returns
    -------
    c : ndarray, shape (..., m, n)
        Of the dtype that the library promotes the operands to.
    arg : ndarray of int32, shape (..., m, n)
        Only with `return_arg`. The smallest k on ties.

    Raises
    ------
    NotImplementedError
        When a gradient is wanted and ⊕ is not min, max, a + b or logaddexp.
    TypeError, ValueError, OverflowError
        As :func:`semiring_mm.matmul`.

    Notes
    -----
    Where ⊕ is min or max, the gradient of an entry goes to the k that attained it, the smallest on
    ties; over ⊗ = a + b to both operands, over a * b times the other one, over min(a, b) and
    max(a, b) to the one that decided, `a` if they are equal. plus_times and log_plus have their
    full gradients: those of a sum and of a log-sum-exp. A ⊗ of your own is differentiated as the
    expression that it is.

    Gradients are of the operands' dtype; sums of 16-bit ones are added up in float32. Kept for them
    are, over min_plus and max_plus, the m × n int32 numbers of `return_arg` and no operand; else
    the operands that they read, over log_plus the product too. There is no m × k × n array.

    Second derivatives: all where ⊕ is min or max and over plus_times; none over log_plus and
    others that sum, where asking for them is an error. There is no forward mode.
    """
    c = library.repeated("matmul", semiring, return_arg, a, b)  # of no gradient
    if c is not None:
        return c
    results = _product(library, a, b, semiring, return_arg)
    return results if return_arg else results[0]


def _product(
    library: Library, a: Any, b: Any, semiring: str | Semiring, return_arg: bool
) -> tuple[Array, ...]:
    a, b = library.arrays("matmul", a=a, b=b)
    if not (a.ndim and b.ndim):
        raise ValueError(
            f"matmul multiplies matrices and vectors, got shapes {tuple(a.shape)} and "
            f"{tuple(b.shape)}"
        )
    check_inner(a.shape, b.shape)
    row = row_of(semiring)
    left, right = library.promoted(a, b)
    left = left[None] if a.ndim == 1 else left
    right = right[:, None] if b.ndim == 1 else right
    differentiated = any(library.differentiated(a, b)) and a.shape[-1] > 0
    wanted = return_arg or (differentiated and selects(row))
    results = library.run("product", left, right, row, wanted)[: 1 + return_arg]
    if b.ndim == 1:
        results = tuple(x.squeeze(-1) for x in results)
    if a.ndim == 1:
        results = tuple(x.squeeze(-1 if b.ndim == 1 else -2) for x in results)
    return results


@like(public.closure)
def closure(
    library: Library, a: Any, semiring: str | Semiring, *, return_predecessors: bool = False
) -> Any:
    """The closure of a matrix: the best path between every two nodes, with gradients.

    Parameters
    ----------
    a : array_like, shape (n, n) or (b, n, n)
        The semiring's zero means no edge.
    return_predecessors : bool, default False

    Returns
    -------
    closure : ndarray, shape (n, n) or (b, n, n)
    predecessors : ndarray of int32
        Only with `return_predecessors`; see :func:`semiring_mm.closure`.

    Notes
    -----
    An entry's gradient goes along its best path, that of the predecessors: over min_plus and
    max_plus to each edge of it, over max_min and min_max to the edge that decides (the first of
    equals), over max_times to each edge times the product of the others. Of several best paths one
    is taken. O(n² log h) for paths of at most h edges, by sums up the n trees of best paths; only
    these are kept, in int32, and over other ⊗ than a + b the matrix and the closure. There are no
    second derivatives.
    """
    return _best_paths(library, a, row_of(semiring), None, return_predecessors)


@like(public.apsp)
def apsp(
    library: Library, graph: Any, *, sources: Sequence[int] | None = None,
    return_predecessors: bool = False,
) -> Any:  # fmt: skip
    """All-pairs shortest paths, with gradients.

    Parameters
    ----------
    graph : array_like, shape (n, n) or (b, n, n)
        Edge weights; inf means no edge.
    sources : sequence of int, optional
        Only paths from these nodes, of one graph: the result has a row for each.
    return_predecessors : bool, default False

    Returns
    -------
    distances : ndarray, shape (n, n), (len(sources), n) or (b, n, n)
    predecessors : ndarray of int32
        Only with `return_predecessors`; see :func:`semiring_mm.apsp`.

    Notes
    -----
    The derivative of a distance with respect to a weight is 1 for the edges of one shortest path,
    that of the predecessors, and 0 for all others; see :func:`closure`.
    """
    rows = None if sources is None else tuple(int(i) for i in sources)
    return _best_paths(library, graph, "min_plus", rows, return_predecessors)


def _best_paths(
    library: Library, a: Any, row: str, sources: Sequence[int] | None, wanted: bool
) -> Any:
    (a,) = library.arrays("apsp" if row == "min_plus" else "closure", **{"the graph": a})
    trees = wanted or any(library.differentiated(a))
    results = library.run("closure", a, row, sources, trees)
    return results[:2] if wanted else results[0]


@like(PreparedGraph.distances)
def distances(
    library: Library, graph: PreparedGraph, weights: Any, sources: Any = None, targets: Any = None
) -> Any:
    """Distances of a prepared graph whose edges have these weights, with gradients.

    Parameters
    ----------
    graph : PreparedGraph
        Of :func:`semiring_mm.prepare`, over min_plus. Its own weights are not used, nor changed.
    weights : array_like, shape (..., m)
        A length for each edge, in the order of the edges of the graph, or for each row of the table
        that it was prepared from; none negative, inf closes an edge.
    sources, targets : node, or sequence of nodes, optional
        Default: all nodes. An array has their numbers, from 0 on, and may be traced and batched.

    Returns
    -------
    ndarray, shape (..., sources, targets)
        inf where there is no path.

    Raises
    ------
    ValueError
        If a weight is negative or NaN, there are more or fewer weights than edges, or there is no
        such node; for gradients, if a cycle has length 0.

    Notes
    -----
    The gradient of a weight is what its edge carries if each pair sends what came to its distance
    along the shortest path, and shares it evenly among several: edges of pairs without a path have
    0. There are no second derivatives. O(f) for each source, f being the edges of the elimination,
    and O(Σ degree²) for the weights, forward and backward; on the CPU, wherever the arrays live.
    """
    if not isinstance(graph, PreparedGraph):
        raise TypeError(
            f"distances: a prepared graph, got a {type(graph).__name__}: write sm.prepare(graph), "
            f"or, for a matrix of weights, apsp"
        )
    if graph.semiring.name != "min_plus":
        raise ValueError(f"distances are of min_plus, the graph is over {graph.semiring.name}")
    (w,) = library.real("distances", *library.arrays("distances", weights=weights))
    start, end = (
        _places(library, graph, x, w, name)
        for x, name in ((sources, "sources"), (targets, "targets"))
    )
    shapes = (None if x is None else x.shape for x in (w, start, end))
    VERBS["network_distances"].check(shapes, library.broadcast_shapes, "distances")
    return library.run("network_distances", w, start, end, graph.key)[0]


def _places(library: Library, graph: PreparedGraph, nodes: Any, like: Array, name: str) -> Any:
    """The numbers of nodes; arrays have them already, unless nodes have labels."""
    plain = isinstance(graph.nodes, range)
    if nodes is None:
        return None
    if not isinstance(nodes, int) and getattr(nodes, "ndim", None):
        if plain:
            return library.lengths(nodes, like)
        nodes = nodes.tolist()
    several = isinstance(nodes, (list, tuple) if plain else list)  # a tuple may be a label
    given = tuple(nodes) if several else (nodes,)
    given = tuple(index(x) if type(x) is int else x for x in given)  # which compilers keep
    return library.lengths(places(graph.key, given, name, several), like)


@like(chains.chain)
def chain(
    library: Library, a: Any, x: Any = None, semiring: str | Semiring = "plus_times", *,
    emissions: Any = None, lengths: Any = None, reverse: bool = False,
) -> Any:  # fmt: skip
    """The product of a chain of matrices, or a vector carried through it, with gradients.

    Notes
    -----
    Gradients of all orders, by the shares of :func:`matmul`; over ⊕ = min or max they go along the
    best sequence of states. The first derivative is a chain over plus_times of the steps' Jacobian
    matrices: O(T S²) memory for a carried vector, O(T S³) without. For the sum over all sequences
    of a model with emissions, ``sequences.log_partition`` needs no such memory.
    """
    return _carried(library, "chain", a, semiring, x, emissions, lengths, reverse, False, -3)


@like(chains.scan)
def scan(
    library: Library, a: Any, semiring: str | Semiring = "plus_times", *, x: Any = None,
    emissions: Any = None, axis: int = -3, lengths: Any = None, reverse: bool = False,
) -> Any:  # fmt: skip
    """All prefixes of a chain of matrices, or what they make of a vector, with gradients.

    Notes
    -----
    As of :func:`chain`.
    """
    return _carried(library, "scan", a, semiring, x, emissions, lengths, reverse, True, axis)


def _carried(
    library: Library, verb: str, a: Any, semiring: Any, x: Any, e: Any, lengths: Any,
    reverse: bool, every: bool, axis: int,
) -> Any:  # fmt: skip
    if isinstance(x, (str, Semiring)):
        raise TypeError(f"{verb}: x is a vector, got {x!r}: write {verb}(a, semiring={x!r})")
    a, e, x = library.promoted(*library.arrays(verb, a=a, emissions=e, x=x))
    dtype = a.dtype
    a, e, x = (None if v is None else library.wide(v) for v in (a, e, x))
    a = a[None] if e is not None and a.ndim == 2 else a
    axis = chains.axis_of_steps(verb, a.ndim, axis) if a.ndim > 2 else -3
    a = library.xp.moveaxis(a, axis, -3) if axis != -3 else a
    lengths = None if lengths is None else library.lengths(lengths, a)
    shapes = (None if v is None else v.shape for v in (a, e, x, lengths))
    chains.CHAIN.check(shapes, library.broadcast_shapes, verb)
    (y,) = library.run("chain", a, e, x, lengths, row_of(semiring), reverse, every)
    y = library.cast(y, dtype)
    return library.xp.moveaxis(y, -3, axis) if every and x is None and axis != -3 else y


@like(alignment.dtw)
def dtw(
    library: Library, x: Any, y: Any, *, cost: str = "absolute", band: int | None = None,
    lengths: Any = None,
) -> Any:  # fmt: skip
    """Dynamic time warping: the least cost of aligning two series, with gradients.

    Parameters
    ----------
    x, y : array_like, shape (n,) or (n, d), or (pairs, n, d)
        Two series, of d features at each time; or stacks of as many first as second ones.

    Returns
    -------
    ndarray
        The distance, or one for each pair of stacks, as of :func:`semiring_mm.alignment.dtw`.

    Notes
    -----
    The gradient goes along the best path (one of them): at each of its pairs (i, j) it is the
    derivative of the local cost, the sign of ``x[i] - y[j]``, 0 where they are equal, or twice
    this difference. It is 0 where the distance is infinite. Second derivatives are those of the
    local costs along the same path. Paths are found pair by pair, in O(n m) memory.
    """
    x, y = library.real("dtw", *library.arrays("dtw", x=x, y=y))
    single = x.ndim < 3 and y.ndim < 3
    x, y = (v[:, None] if v.ndim == 1 else v for v in (x, y))
    x, y = (v[None] if single else v for v in (x, y))
    first, second = lengths or (None, None)
    first, second = (None if v is None else library.lengths(v, x) for v in (first, second))
    VERBS["dtw"].check((x.shape, y.shape, None, None), library.broadcast_shapes)
    paths = any(library.differentiated(x, y))
    found = library.run("dtw", x, y, first, second, cost, band, paths)[0]
    return found[0] if single else found


@like(neighbours.cdist)
def cdist(
    library: Library, X: Any, Y: Any, metric: str | Metric = "euclidean", *, p: float = 2
) -> Any:
    """Distances between all rows of two matrices, with gradients.

    Notes
    -----
    A metric is a product, of which the gradient is taken as of :func:`matmul`, and a function of
    its entries. Where a distance has no derivative it is a subgradient: 0 between equal rows, 0 for
    equal coordinates under ``abs(a - b)``, the first of the largest gaps of ``"chebyshev"``. That
    of ``"hamming"`` is 0. Second derivatives of ``"chebyshev"`` alone. Weights: multiply the
    columns by them, or by their roots.
    """
    X, Y = library.real("cdist", *library.arrays("cdist", X=X, Y=Y))
    neighbours.POINTS.check((X.shape, Y.shape), library.broadcast_shapes, "cdist")
    text = metric
    if isinstance(metric, Metric):
        text = f"{metric.name}; {metric.pair}; {metric.join}; {metric.final}"
    return library.run("cdist", X, Y, text, float(p))[0]


@like(summation.einsum)
def einsum(
    library: Library, subscripts: Any, *operands: Any,
    semiring: str | Semiring = "plus_times", optimize: Any = True,
) -> Any:  # fmt: skip
    """Einstein sum over a semiring, with gradients.

    Notes
    -----
    Gradients are those of the pairwise products that the sum is made of, see :func:`matmul`.
    """
    s = as_semiring(semiring)
    inputs, output, operands = summation.parsed(subscripts, *operands)
    named = {f"operand_{i}": x for i, x in enumerate(operands)}
    arrays = library.promoted(*library.arrays("einsum", **named))
    return summation.contracted(_Sums(library), s, arrays, inputs, output, optimize)


class _Sums:
    """The steps of an Einstein sum, as operators of a library."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def product(self, s: Semiring, a: Array, b: Array) -> Array:
        return _product(self._library, a, b, s, False)[0]

    def each(self, s: Semiring, a: Array, b: Array) -> Array:
        """A ⊗ B entry by entry: products of matrices of one entry, whose dtypes are kept."""
        a, b = (x[..., None, None] for x in (a, b))
        return self.product(s, a, b)[..., 0, 0]

    def total(self, s: Semiring, x: Array) -> Array:
        """The sum along the last axis: a product with ones, where `one` is neutral."""
        row = row_of(s)
        summed = row_of_sum(row)
        ones = self._library.xp.full_like(
            self._library.count(x.shape[-1], x), int(s.one) if summed == row else 0
        )
        return _product(self._library, x, self._library.cast(ones, x.dtype), summed, False)[0]

    def transposed(self, x: Array, axes: Sequence[int]) -> Array:
        return self._library.xp.moveaxis(x, tuple(axes), tuple(range(len(axes))))

    def one_by_one(self, x: Array) -> bool:
        return False

    def path(self, subscripts: str, shapes: Sequence[Sequence[int]], optimize: Any) -> Any:
        return path(subscripts, tuple(tuple(int(n) for n in x) for x in shapes), optimize)

    def commutes(self, s: Semiring) -> bool:
        return commutes(row_of(s))

    def need_laws(self, s: Semiring, x: Array) -> None:
        have_laws(row_of(s), str(x.dtype).rpartition(".")[2])


# --- what does not change from call to call, which compilers take as it is ------------------------


def selects(row: str) -> bool:
    """Whether the ⊕ of a semiring is min or max."""
    return semiring_of(row).selective


def commutes(row: str) -> bool:
    return summation.commutes(semiring_of(row))


def have_laws(row: str, dtype: str) -> bool:
    """True, or an error; see :func:`.summation.need_laws`."""
    kind = np.dtype(np.float32 if dtype == "bfloat16" else dtype)
    summation.need_laws(semiring_of(row), kind)
    return True


def row_of_sum(row: str) -> str:
    """The semiring by which a product sums rows: itself with a vector of its `one`, or another."""
    s = semiring_of(row)
    return row if s.mul_kind in ("+", "*") else row_of(summation.sum_of(s))


def path(subscripts: str, shapes: tuple[tuple[int, ...], ...], optimize: Any) -> Any:
    return summation.found_path(subscripts, shapes, optimize)


def places(key: str, nodes: Any, name: str, several: bool) -> list[int]:
    found = network(key).positions(list(nodes) if several else nodes[0], name)
    return [] if found is None else found.tolist()


CONSTANTS = (selects, commutes, have_laws, row_of_sum, path, places)
