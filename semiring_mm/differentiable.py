"""Verbs with gradients: rows, and functions of them, once for all libraries that differentiate.

``semiring_mm.torch`` and ``semiring_mm.jax`` make an operator of each row of :data:`VERBS`, and
have the public functions, whose first argument is the library.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np

import semiring_mm as public

from . import (
    alignment,
    blas,
    chain_gradients,
    chains,
    gradients,
    neighbours,
    sequences,
    summation,
)  # fmt: skip
from .expressions import derivative
from .graphs import apsp as graphs
from .metrics import BuiltIn, Metric, as_metric, smooth
from .semirings import Semiring, as_semiring, row_of, semiring_of
from .text import docstring
from .verb import Backward, Library, Verb

__all__ = ["CONSTANTS", "VERBS", "Operators", "bound"]

Array = Any  # of any array library
Given = Mapping[str, Any]
P = ParamSpec("P")
R = TypeVar("R")


class Operators(Library, Protocol):
    """What the functions take of a library besides."""

    ARRAY: str  # what its arrays are called in its documentation

    def arrays(self, verb: str, /, **operands: Any) -> list[Array]:
        """The operands as arrays of the library, or an error; None stays None."""

    def promoted(self, *arrays: Array) -> list[Array]:
        """Arrays of the dtype that the library promotes theirs to."""

    def real(self, verb: str, *arrays: Array) -> list[Array]:
        """Arrays of one dtype of floats, at least of 32 bits, or an error."""

    def lengths(self, lengths: Any, like: Array) -> Array:
        """Lengths as an array that lies where another does."""

    def concrete(self, x: Array) -> bool:
        """Whether an array has numbers, and nobody else looks at the call."""

    def differentiated(self, *arrays: Array) -> list[bool]:
        """Whose gradients are wanted, as far as it is known before a gradient is asked for."""

    def cast(self, x: Array, dtype: Any) -> Array: ...

    def broadcast_shapes(self, *shapes: Any) -> tuple[int, ...]: ...

    def repeated(self, head: tuple[Any, ...], *operands: Any) -> Any:
        """The result of a call that is kept, or None."""

    def launched(self, verb: str, /, *operands: Any) -> Any:
        """The result of a model of sequences, if one launch is kept for it, or None."""


def bound(
    module: str, library: Operators, function: Callable[Concatenate[Any, P], R],
    source: Callable[..., Any],
) -> Callable[P, R]:  # fmt: skip
    """A function of this module for one library, with a docstring from that for NumPy.

    `module` is where users find it.
    """

    def call(*args: P.args, **named: P.kwargs) -> R:
        return function(library, *args, **named)

    signature = inspect.signature(function)
    parameters = [x for name, x in signature.parameters.items() if name != "library"]
    home = "semiring_mm" if function.__name__ in public.__all__ else source.__module__
    call.__doc__ = docstring(function, source, library.ARRAY, home)
    call.__name__ = call.__qualname__ = function.__name__
    call.__module__ = module
    vars(call)["__signature__"] = signature.replace(parameters=parameters)
    return call


# --- products -------------------------------------------------------------------------------------


def _product(a: Array, b: Array, row: str, wanted: bool) -> tuple[Array, Array | None]:
    s = semiring_of(row) if ";" in row else row  # by the name in a call, by which that is kept
    if wanted:
        c, k = blas.matmul(a, b, s, return_arg=True)
        return c, k
    return blas.matmul(a, b, s), None


def _product_keeps(given: Given, needs: Mapping[str, bool]) -> Set[str]:
    s = semiring_of(given["semiring"])
    if s.selective and not given["wanted"]:  # computed again, with the winning k
        return {"a", "b"}
    try:
        return gradients.reads(s, (needs["a"], needs["b"]))
    except NotImplementedError:  # raised when the gradient is computed
        return set()


def _product_gradient(at: Backward) -> tuple[Array | None, Array | None]:
    library, row, g = at.library, at["semiring"], at.came[0]
    s, needs = semiring_of(row), (at.needs["a"], at.needs["b"])
    a, b, c, arg = (at[name] for name in ("a", "b", "c", "arg"))
    left, right = at.shapes["a"] or (), at.shapes["b"] or ()
    kind = gradients.way(s)
    if kind == "bilinear":
        return gradients.bilinear(library, g, a, b, (left, right), needs)
    if kind == "selective":
        if left[-1] == 0:
            zero, shape = library.xp.zeros_like(g.sum()), library.xp.broadcast_to
            return shape(zero, left), shape(zero, right)
        if arg is None:
            arg = library.run("product", a, b, row, True)[1]
        return gradients.selective(library, s, g, arg, a, b, (left, right), needs)
    if a.dtype.itemsize < 4:  # the rounding of c would scale every contribution
        g, a, b = (library.wide(x) for x in (g, a, b))
        c = library.run("product", a, b, row, False)[0]
    by_a, by_b = library.run("product_shares", g, a, b, c, row, *needs)
    return by_a if needs[0] else None, by_b if needs[1] else None


def _shares(
    g: Array, a: Array, b: Array, c: Array, row: str, need_a: bool, need_b: bool
) -> tuple[Array | None, Array | None]:
    return gradients.summed(semiring_of(row), g, a, b, c, (need_a, need_b))


# --- closures -------------------------------------------------------------------------------------


def _closure(
    a: Array, row: str, sources: Sequence[int] | None, trees: bool
) -> tuple[Array, Array | None]:
    x = a if a.ndim < 4 else a.reshape(-1, *a.shape[-2:])  # a stack of stacks, by vmap
    if row == "min_plus":
        found = graphs.apsp(x, sources=sources, return_predecessors=trees)
    else:
        found = graphs.closure(x, semiring_of(row), return_predecessors=trees)
    d, p = found if trees else (found, None)
    d, p = (None if y is None else y.reshape(*a.shape[:-2], *y.shape[-2:]) for y in (d, p))
    return d, p


def _closure_sizes(sizes: dict[str, int], given: Given) -> None:
    sources = given.get("sources")
    sizes["R"] = sizes["N"] if sources is None else len(sources)


def _closure_keeps(given: Given, needs: Mapping[str, bool]) -> set[str]:
    s, trees = semiring_of(given["semiring"]), given["trees"]
    read = gradients.reads(s, (True, True)) if s.selective else set()
    kept = {"d": "a" in read, "a": "b" in read or not trees, "p": trees}
    return {name for name, is_read in kept.items() if is_read}


def _closure_gradient(at: Backward) -> tuple[Array]:
    row, p = at["semiring"], at["p"]
    s = semiring_of(row)
    gradients.way(s)
    if p is None:
        p = at.library.run("closure", at["a"], row, at["sources"], True)[1]
    read = gradients.reads(s, (True, True))
    d, w = (at[name] if letter in read else None for name, letter in (("d", "a"), ("a", "b")))
    return (at.library.run("closure_trees", at.came[0], d, w, p, row)[0],)


def _trees(g: Array, d: Array | None, w: Array | None, p: Array, row: str) -> tuple[Array]:
    return (gradients.along_trees(semiring_of(row), g, d, w, p),)


# --- chains and sequences -------------------------------------------------------------------------


def _chain(
    a: Array, e: Array | None, x: Array | None, lengths: Array | None, row: str, reverse: bool,
    every: bool,
) -> tuple[Array]:  # fmt: skip
    s = semiring_of(row)
    if every:
        return (chains.scan(a, s, x=x, emissions=e, lengths=lengths, reverse=reverse),)
    return (chains.chain(a, x, s, emissions=e, lengths=lengths, reverse=reverse),)


def _chain_axes(given: Given) -> list[str]:
    return ["T" * given["every"] + ("SS" if given["x"] is None else "S")]


def _chain_gradient(at: Backward) -> tuple[Array | None, ...]:
    found = chain_gradients.along_chain(
        at.library, semiring_of(at["semiring"]), at.came[0], at["a"], at["emissions"], at["x"],
        at["lengths"], at["y"] if at["every"] else None, reverse=at["reverse"],
    )  # fmt: skip
    return *found, None


def _posterior_axes(given: Given) -> list[str | None]:
    return ["", "TS" if given["what"] else None, "USS" if given["what"] > 1 else None]


def _posterior(
    e: Array, a: Array, start: Array | None, end: Array | None, lengths: Array | None, what: int,
    verb: str,
) -> tuple[Any, ...]:  # fmt: skip
    return sequences.posterior(verb, e, a, start, end, lengths, what)


def _posterior_keeps(given: Given, needs: Mapping[str, bool]) -> set[str]:
    results = ("total", "states", "pairs")[: 1 + given["what"]] if given["what"] else ()
    return {*MODEL.names, *results}


def _posterior_gradient(at: Backward) -> tuple[Array | None, ...]:
    operands = tuple(at[name] for name in ("emissions", "transitions", "start", "end"))
    known = at["total"], at["states"], at["pairs"]
    there = known[1] is not None and (known[2] is not None or not at.needs["transitions"])
    came = tuple(g if i <= at["what"] else None for i, g in enumerate(at.came))
    found = chain_gradients.of_posterior(
        at.library, came, operands, at["lengths"], known if there else None
    )
    return *found, None


def _best_path(
    e: Array, a: Array, start: Array | None, end: Array | None, lengths: Array | None
) -> tuple[Array, Array]:
    path, value = sequences.viterbi(e, a, start, end, lengths=lengths)
    return value, path


def _score(
    e: Array, a: Array, start: Array | None, end: Array | None, tags: Array,
    lengths: Array | None, verb: str,
) -> tuple[Array]:  # fmt: skip
    return (sequences.path_score(verb, e, a, start, end, tags, lengths),)


def _path_gradient(at: Backward) -> tuple[Array | None, ...]:
    path = at["path"] if at["tags"] is None else at["tags"]
    indicators = at.library.fused(chain_gradients.indicators)
    found = indicators(at.library, at.came[0], path, at["transitions"], at["lengths"])
    return *found, *(None,) * (len(at.shapes) - 4)


# --- alignment ------------------------------------------------------------------------------------


def _dtw(
    x: Array, y: Array, first: Array | None, second: Array | None, cost: str, band: int | None,
    paths: bool,
) -> tuple[Array, Array | None]:  # fmt: skip
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    x, y = (_stacked(v, batch) for v in (x, y))
    lengths = [
        None if v is None else np.broadcast_to(chains.on_host(v), batch).ravel()
        for v in (first, second)
    ]
    distances = alignment.dtw(x, y, cost=cost, band=band, lengths=lengths)
    if not paths:
        return distances.reshape(batch), None
    found = np.full((len(x), x.shape[1] + y.shape[1], 2), -1, np.int32)
    for i in range(len(x)):
        one, other = (
            v[i] if own is None else v[i, : int(own[i])]
            for v, own in zip((x, y), lengths, strict=True)
        )
        _, path = alignment.dtw(one, other, cost=cost, band=band, return_path=True)
        if path is not None:
            found[i, : len(path)] = path
    return distances.reshape(batch), found.reshape(*batch, *found.shape[1:])


def _stacked(x: Array, batch: tuple[int, ...]) -> Array:
    """Pairs of series under one axis; `batch` is larger than that of an operand by vmap alone."""
    if tuple(x.shape[:-2]) != batch:
        shape = (*batch, *x.shape[-2:])
        x = x.expand(shape) if hasattr(x, "expand") else np.broadcast_to(np.asarray(x), shape)
    return x.reshape(math.prod(batch), *x.shape[-2:])


def _dtw_sizes(sizes: dict[str, int], given: Given) -> None:
    sizes["P"] = sizes["N"] + sizes["M"]


def _dtw_gradient(at: Backward) -> tuple[Array | None, ...]:
    """The derivatives of the local costs along the best path."""
    library, xp, g = at.library, at.library.xp, at.came[0]
    x, y, path = at["x"], at["y"], at["path"]
    if path is None:
        given = (x, y, at["first"], at["second"], at["cost"], at["band"])
        path = library.run("dtw", *given, True)[1]
    x, y = (xp.broadcast_to(v, (*g.shape, *v.shape[-2:])) for v in (x, y))
    steps = (*path.shape[:-1], x.shape[-1])
    i, j = (xp.broadcast_to(xp.clip(path[..., k : k + 1], 0, None), steps) for k in (0, 1))
    gap = library.take(x, i, -2) - library.take(y, j, -2)
    slope = xp.sign(gap) if at["cost"] == "absolute" else 2 * gap
    along = xp.where(path[..., :1] >= 0, slope * g[..., None, None], 0)
    rank = len(steps)
    return (
        library.add_at(x.shape, rank - 2, i, along), library.add_at(y.shape, rank - 2, j, -along),
        None, None,
    )  # fmt: skip


# --- distances ------------------------------------------------------------------------------------


def _metric_of(text: Any, p: float) -> Metric:
    return Metric(*text.split("; ")) if ";" in text else as_metric(text, p)


def _cdist(x: Array, y: Array, text: str, p: float) -> tuple[Array]:
    metric, batch = _metric_of(text, p), np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    if not batch:
        return (neighbours.cdist(x, y, metric),)
    x, y = (np.asarray(chains.on_host(_stacked(v, batch))) for v in (x, y))
    found = [neighbours.cdist(*pair, metric) for pair in zip(x, y, strict=True)]
    return (np.array(found, None if found else x.dtype).reshape(*batch, x.shape[1], y.shape[1]),)


def _cdist_gradient(at: Backward) -> tuple[Array, Array]:
    """Those of products, from the slope of the function that makes distances of their entries."""
    library, xp, g = at.library, at.library.xp, at.came[0]
    metric, (x, y) = _metric_of(at["metric"], at["p"]), (at["X"], at["Y"])
    over = metric.over_metric if isinstance(metric, BuiltIn) and metric.over else None
    points, norms = (x, y), None
    if isinstance(metric, BuiltIn) and metric.unit:
        norms = [xp.sqrt((v * v).sum(-1))[..., None] for v in points]
        points = x / norms[0], y / norms[1]
    rows = [row_of(one.algebra) for one in (smooth(metric), over) if one is not None]
    given = [_joined(library, row, *points) for row in rows]
    entries, other = given[0][0], x.shape[-1] if over is None else given[1][0]
    slopes = [derivative(metric.final_expr, name) for name in ("a", "b")[: len(rows)]]
    steep = bool(metric.final_expr.ops() & {"sqrt", "log"})  # infinitely so at 0
    away = entries != 0
    safe = xp.where(away, entries, 1) if steep else entries
    left: Any = 0
    right: Any = 0
    for row, (c, arg), slope in zip(rows, given, slopes, strict=True):
        part = g * gradients.value_of(xp, slope, safe, other)
        part = xp.where(away, part, 0) if steep else part
        arrays = {"a": points[0], "b": points[1].mT, "c": c, "arg": arg, "semiring": row}
        shapes = {name: arrays[name].shape for name in ("a", "b")}
        both: Any = _product_gradient(
            Backward(library, (part,), arrays, shapes, {"a": True, "b": True})
        )
        left, right = left + both[0], right + both[1].mT
    if norms is None:
        return left, right
    found = ((by - v * (v * by).sum(-1)[..., None]) / norm
             for by, v, norm in zip((left, right), points, norms, strict=True))  # fmt: skip
    return next(found), next(found)


def _joined(library: Library, row: str, x: Array, y: Array) -> tuple[Array, Array | None]:
    """The product that a metric is, and which coordinates won."""
    wanted = selects(row) and x.shape[-1] > 0
    c, arg = library.run("product", x, y.mT, row, wanted)
    return c, arg if wanted else None


# --- the rows -------------------------------------------------------------------------------------

MODEL = sequences.MODEL
_MODEL = MODEL.signature.replace("[U]", "U")
_PATHS = _MODEL.replace("lengths", "tags ...T:i8, lengths")

VERBS = {
    row.name: row
    for row in (
        Verb(
            "product", "a ...MK, b ...KN; semiring: str, wanted: bool -> c ...MN, arg ...MN:i4",
            _product, _product_gradient, _product_keeps,
            axes=lambda given: ["MN", "MN" if given["wanted"] else None],
            prepared=lambda shapes, row, wanted: (
                row, wanted or (semiring_of(row).selective and shapes[0][-1] > 0)
            ),
        ),
        Verb(
            "product_shares",
            "g ...MN, a ...MK, b ...KN, c ...MN; semiring: str, need_a: bool, need_b: bool "
            "-> left ...MK, right ...KN",
            _shares,
            axes=lambda given: ["MK" if given["need_a"] else None,
                                "KN" if given["need_b"] else None],
        ),
        Verb(
            "closure",
            "a ...NN; semiring: str, sources: int[]?, trees: bool -> d ...RN, p ...RN:i4",
            _closure, _closure_gradient, _closure_keeps, sizes=_closure_sizes,
            axes=lambda given: ["RN", "RN" if given["trees"] else None],
            prepared=lambda shapes, row, sources, trees: (row, sources, True),
        ),
        Verb(
            "closure_trees",
            "g ...RN, d ...RN = none, w ...NN = none, p ...RN:i4; semiring: str -> weights ...NN",
            _trees,
        ),
        Verb(
            "chain",
            chains.CHAIN.signature.replace("[U]", "U")
            + "; semiring: str, reverse: bool, every: bool -> y ...TSS",
            _chain, _chain_gradient, axes=_chain_axes, sizes=chains.CHAIN.sizes,
            keeps=lambda given, needs: {*chains.CHAIN.names, *(["y"] if given["every"] else [])},
        ),
        Verb(
            "posterior", _MODEL + "; what: int, verb: str -> total ..., states ...TS, pairs ...USS",
            _posterior, _posterior_gradient, _posterior_keeps, axes=_posterior_axes,
            prepared=lambda shapes, what, verb: (2, verb),
        ),
        Verb(
            "best_path", _MODEL + " -> score ..., path ...T:i4", _best_path, _path_gradient,
            lambda given, needs: {"transitions", "lengths", "path"},
        ),
        Verb(
            "path_score", _PATHS + "; verb: str -> score ...", _score, _path_gradient,
            lambda given, needs: {"transitions", "lengths", "tags"},
        ),
        Verb(
            "cdist", "X ...MK, Y ...NK; metric: str, p: float -> d ...MN", _cdist, _cdist_gradient,
            lambda given, needs: {"X", "Y"},
        ),
        Verb(
            "dtw",
            "x ...ND, y ...MD, first ...:i8 = N, second ...:i8 = M; cost: str, band: int?, "
            "paths: bool -> distance ..., path ...P2:i4",
            _dtw, _dtw_gradient, sizes=_dtw_sizes,
            axes=lambda given: ["", "P2" if given["paths"] else None],
            prepared=lambda shapes, cost, band, paths: (cost, band, True),
        ),
    )
}  # fmt: skip


# --- public functions -----------------------------------------------------------------------------


def matmul(
    library: Operators, a: Any, b: Any, semiring: str | Semiring = "plus_times", *,
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
    c = library.repeated(("matmul", semiring, return_arg), a, b)  # of no gradient
    if c is not None:
        return c
    a, b = library.arrays("matmul", a=a, b=b)
    if not (a.ndim and b.ndim) or a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
        raise ValueError(
            f"matmul multiplies matrices and vectors of one k, got shapes {tuple(a.shape)} and "
            f"{tuple(b.shape)}: the last axis of a must match the second last (or only) one of b"
        )
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
    return results if return_arg else results[0]


def closure(
    library: Operators, a: Any, semiring: str | Semiring, *, return_predecessors: bool = False
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


def apsp(
    library: Operators, graph: Any, *, sources: Sequence[int] | None = None,
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
    library: Operators, a: Any, row: str, sources: Sequence[int] | None, wanted: bool
) -> Any:
    (a,) = library.arrays("apsp" if row == "min_plus" else "closure", **{"the graph": a})
    trees = wanted or any(library.differentiated(a))
    results = library.run("closure", a, row, sources, trees)
    return results[:2] if wanted else results[0]


def chain(
    library: Operators, a: Any, x: Any = None, semiring: str | Semiring = "plus_times", *,
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


def scan(
    library: Operators, a: Any, semiring: str | Semiring = "plus_times", *, x: Any = None,
    emissions: Any = None, axis: int = -3, lengths: Any = None, reverse: bool = False,
) -> Any:  # fmt: skip
    """All prefixes of a chain of matrices, or what they make of a vector, with gradients.

    Notes
    -----
    As of :func:`chain`.
    """
    return _carried(library, "scan", a, semiring, x, emissions, lengths, reverse, True, axis)


def _carried(
    library: Operators, verb: str, a: Any, semiring: Any, x: Any, e: Any, lengths: Any,
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


def viterbi(
    library: Operators, emissions: Any, transitions: Any, start: Any = None, end: Any = None, *,
    lengths: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """The best sequence of states, and its score with gradients.

    Parameters
    ----------
    emissions : array_like, shape (..., T, S)
        The score of each state at each step. Batches of sequences have leading dimensions.

    Returns
    -------
    path : ndarray of int32, shape (..., T)
        -1 behind a sequence's end.
    score : ndarray, shape (...)
        Its gradient is 1 for each score that the path has in it, and 0 for all others.
    """
    found = library.launched("viterbi", emissions, transitions, start, end, lengths)
    if found is not None:
        return found[0], found[1]
    m = _model(library, "viterbi", emissions, transitions, start, end, lengths)
    value, path = library.run("best_path", *m)
    return path, value


def log_partition(
    library: Operators, emissions: Any, transitions: Any, start: Any = None, end: Any = None, *,
    lengths: Any = None,
) -> Any:  # fmt: skip
    """The logarithm of the sum of exp(score) over all sequences of states, with gradients.

    Notes
    -----
    The gradient is what :func:`marginals` has, computed at once (forward-backward algorithm) where
    an operand requires it; 0 where no sequence is possible. Derivatives of all orders: from the
    second on with O(T S²) memory.
    """
    found = library.launched("log_partition", emissions, transitions, start, end, lengths)
    if found is not None:
        return found
    m = _model(library, "log_partition", emissions, transitions, start, end, lengths)
    return _total(library, "log_partition", m)


def marginals(
    library: Operators, emissions: Any, transitions: Any, start: Any = None, end: Any = None, *,
    lengths: Any = None, pairs: bool = False,
) -> Any:  # fmt: skip
    """The posterior probability of each state at each step, with gradients.

    Notes
    -----
    Derivatives of all orders, with O(T S²) memory.
    """
    m = _model(library, "marginals", emissions, transitions, start, end, lengths)
    (given,) = library.arrays("marginals", transitions=transitions)
    _, states, both = library.run("posterior", *m, 1 + pairs, "marginals")
    if not pairs:
        return states
    return states, both[..., 0, :, :] if given.ndim == 2 else both


def forward(
    library: Operators, emissions: Any, transitions: Any, start: Any = None, *, lengths: Any = None
) -> Any:
    """The log-sums of all beginnings: that end, at each step, in each state, with gradients.

    Notes
    -----
    Derivatives of all orders, with O(T S²) memory.
    """
    m = _model(library, "forward", emissions, transitions, start, None, lengths)
    given = m[0][..., 0, :] if m[0].shape[-2] else m[0].sum(-2)
    return _rows(library, "forward", m, given if start is None else given + m[2], False)


def backward(
    library: Operators, emissions: Any, transitions: Any, end: Any = None, *, lengths: Any = None
) -> Any:
    """The log-sums of all continuations: from each state at each step to the end, with gradients.

    Notes
    -----
    Derivatives of all orders, with O(T S²) memory.
    """
    m = _model(library, "backward", emissions, transitions, None, end, lengths)
    given = library.xp.zeros_like(m[0].sum(-2))
    return _rows(library, "backward", m, given if end is None else given + m[3], True)


def score(
    library: Operators, emissions: Any, transitions: Any, tags: Any, start: Any = None,
    end: Any = None, *, lengths: Any = None,
) -> Any:  # fmt: skip
    """The score of given sequences of states, with gradients."""
    m = _model(library, "score", emissions, transitions, start, end, lengths)
    return _scored(library, "score", m, tags)


def crf_loss(
    library: Operators, emissions: Any, transitions: Any, tags: Any, start: Any = None,
    end: Any = None, *, lengths: Any = None,
) -> Any:  # fmt: skip
    """The negative log-likelihood of tags in a linear-chain conditional random field.

    Returns
    -------
    ndarray, shape (...)
        The loss of each sequence: :func:`log_partition` less :func:`score`, with their gradients.
        inf where the tags are impossible; NaN where every sequence of states is, with the gradient
        of the score alone.
    """
    found = library.launched("crf_loss", emissions, transitions, start, end, lengths, tags)
    if found is not None:
        return found
    m = _model(library, "crf_loss", emissions, transitions, start, end, lengths)
    return _total(library, "crf_loss", m) - _scored(library, "crf_loss", m, tags)


def _model(
    library: Operators, verb: str, e: Any, a: Any, start: Any, end: Any, lengths: Any
) -> tuple[Array, Array, Array | None, Array | None, Array | None]:
    """Operands as the operators take them, (S, S) transitions as (1, S, S)."""
    given = library.arrays(verb, emissions=e, transitions=a, start=start, end=end)
    e, a, start, end = library.real(verb, *given)
    lengths = None if lengths is None else library.lengths(lengths, e)
    shapes = (None if v is None else v.shape for v in (e, a, start, end, lengths))
    MODEL.check(shapes, library.broadcast_shapes, verb)
    return e, a.reshape(1, *a.shape) if a.ndim == 2 else a, start, end, lengths


def _total(library: Operators, verb: str, m: tuple[Any, ...]) -> Array:
    """Log-partitions, with what their gradients read."""
    needs = library.differentiated(*m[:4])
    return library.run("posterior", *m, 2 if needs[1] else int(any(needs)), verb)[0]


def _scored(library: Operators, verb: str, m: tuple[Any, ...], tags: Any) -> Array:
    (tags,) = library.arrays(verb, tags=tags)
    shapes = [None if v is None else v.shape for v in m]
    batch, sizes = MODEL.check(shapes, library.broadcast_shapes, verb)
    at = sequences.tags_of_shape(verb, tags, (*batch, sizes["T"]), library.xp.broadcast_to)
    return library.run("path_score", *m[:4], at, m[4], verb)[0]


def _rows(library: Operators, verb: str, m: tuple[Any, ...], given: Array, reverse: bool) -> Array:
    e, a, _, _, lengths = m
    xp, steps = library.xp, e.shape[-2]
    shapes = [None if v is None else v.shape for v in m]
    batch, _ = MODEL.check(shapes, library.broadcast_shapes, verb)
    if lengths is not None and library.concrete(lengths):  # the chain is a step shorter
        chains.as_lengths(lengths, tuple(lengths.shape), steps, verb)
    given = xp.broadcast_to(given, (*batch, e.shape[-1]))
    if not steps:
        return xp.broadcast_to(e, (*batch, *e.shape[-2:]))
    whole = given[..., None, :]
    found = xp.zeros_like(whole)
    if steps > 1:
        behind = None if lengths is None else xp.clip(lengths - 1, 0, None)
        (rest,) = library.run("chain", a, e[..., 1:, :], given, behind, "log_plus", reverse, True)
        found = xp.concatenate([rest, found] if reverse else [found, rest], -2)
    t = library.count(steps, given)
    last = t * 0 + steps - 1 if lengths is None else lengths[..., None] - 1
    found = xp.where((t == (last if reverse else 0))[..., None], whole, found)
    return xp.where((t <= last)[..., None], found, -math.inf)


def dtw(
    library: Operators, x: Any, y: Any, *, cost: str = "absolute", band: int | None = None,
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


def cdist(
    library: Operators, X: Any, Y: Any, metric: str | Metric = "euclidean", *, p: float = 2
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
    if X.ndim != 2 or Y.ndim != 2 or X.shape[1] != Y.shape[1]:
        raise ValueError(
            f"cdist: X and Y have a point in each row, shapes (m, k) and (n, k); got "
            f"{tuple(X.shape)} and {tuple(Y.shape)}"
        )
    text = metric
    if isinstance(metric, Metric):
        text = f"{metric.name}; {metric.pair}; {metric.join}; {metric.final}"
    return library.run("cdist", X, Y, text, float(p))[0]


def einsum(
    library: Operators, subscripts: Any, *operands: Any,
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

    def __init__(self, library: Operators) -> None:
        self._library = library

    def product(self, s: Semiring, a: Array, b: Array) -> Array:
        return matmul(self._library, a, b, s)

    def each(self, s: Semiring, a: Array, b: Array) -> Array:
        """A ⊗ B entry by entry: products of matrices of one entry, whose dtypes are kept."""
        a, b = (x[..., None, None] for x in (a, b))
        return matmul(self._library, a, b, s)[..., 0, 0]

    def total(self, s: Semiring, x: Array) -> Array:
        """The sum along the last axis: a product with ones, where `one` is neutral."""
        row = row_of(s)
        summed = row_of_sum(row)
        ones = self._library.xp.full_like(
            self._library.count(x.shape[-1], x), int(s.one) if summed == row else 0
        )
        return matmul(self._library, x, self._library.cast(ones, x.dtype), summed)

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


CONSTANTS = (selects, commutes, have_laws, row_of_sum, path)
