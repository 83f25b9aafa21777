"""Verbs with gradients as rows, of which each library that differentiates makes operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import alignment, blas, chain_gradients, chains, gradients, neighbours, sequences
from ..arrays import Call, check_memory
from ..expressions import derivative, parse
from ..graphs import apsp as graphs
from ..graphs.inputs import positions
from ..graphs.prepared import PreparedGraph, network
from ..graphs.rows import Sweeps
from ..hierarchy.demand import Demand
from ..metrics import Metric, as_metric, on_sphere, smooth
from ..semirings import row_of, semiring_of
from ..verb import Backward, Library, Verb

__all__ = ["VERBS"]

Array = Any  # of any array library
Given = Mapping[str, Any]
Index = NDArray[np.int64]


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
        return gradients.bilinear(library, g, a, b, needs)
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


# --- distances of prepared graphs -----------------------------------------------------------------


def _of_each(
    verb: str, one: Callable[..., Array], key: str, weights: Array, *others: Array | None
) -> tuple[Array]:
    """The result of each of a batch, for a verb of weights, sources, targets, and more.

    `one` is of the graph with its weights, of the places of sources and targets, and of what is
    more; `key` is that of the prepared graph.
    """
    graph, row = network(key), VERBS[verb]
    n, names = len(graph.nodes), [x.name for x in row.operands]
    with Call(None, **dict(zip(names, (weights, *others), strict=True))) as call:
        arrays = [None if call[name] is None else call.engine.to_host(call[name]) for name in names]
        shape = row.result_shapes((*arrays, key))[0] or ()
        batch = shape[: len(shape) - len(row.results[0].axes)]
        wide: list[Any] = [
            None if x is None else np.broadcast_to(x, (*batch, *x.shape[x.ndim - len(like.axes) :]))
            for x, like in zip(arrays, row.operands, strict=True)
        ]
        kind = np.dtype(wide[0].dtype.type)
        size = " x ".join(f"{k:,}" for k in shape)
        check_memory(math.prod(shape) * kind.itemsize, f"the result of {size} entries")
        found = np.empty(shape, kind)
        for i in np.ndindex(batch):
            parts: list[Any] = [None if x is None else x[i] for x in wide]
            start, end = positions(parts[1], n, None), positions(parts[2], n, None, "targets")
            start = np.arange(n) if start is None else start
            found[i] = one(graph.reweighted(parts[0]), start, end, *parts[3:])
        return (call.give(call.engine.xp.asarray(found)),)


def _network_sizes(sizes: dict[str, int], given: Given) -> None:
    if "network" in given:
        n = len(network(given["network"]).nodes)
        sizes.update({axis: n for axis in "ST" if axis not in sizes})


def _network_distances(
    weights: Array, sources: Array | None, targets: Array | None, key: str
) -> tuple[Array]:
    return _of_each("network_distances", PreparedGraph.table, key, weights, sources, targets)


def _network_gradient(at: Backward) -> tuple[Array | None, ...]:
    given = (at[name] for name in ("weights", "sources", "targets"))
    (loads,) = at.library.run("network_loads", *given, at.came[0], at["network"])
    return loads, None, None


def _network_loads(
    weights: Array, sources: Array | None, targets: Array | None, demand: Array, key: str
) -> tuple[Array]:
    def loads(graph: PreparedGraph, start: Index, end: Index | None, demand: Array) -> Array:
        n = len(graph.nodes)
        pairs = Demand.of(n, start, np.arange(n) if end is None else end, demand)
        found, _ = Sweeps(graph.metric, graph.problem).edge_loads(pairs)
        rows = graph.edges.table_rows
        if rows is None or weights.shape[-1] == len(found):
            return found
        return np.bincount(rows, found, weights.shape[-1])  # of which some are two edges

    return _of_each("network_loads", loads, key, weights, sources, targets, demand)


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
    return {*sequences.MODEL.names, *results}


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
        _, path = alignment.dtw([one], [other], cost=cost, band=band, return_path=True)
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
    over = metric.over_metric if metric.over else None
    points, norms = (x, y), None
    sphere = metric.sphere
    if sphere:
        points = tuple(on_sphere(xp, v) for v in points)
    centred = metric.centred
    if centred:
        points = tuple(v - v.mean(-1)[..., None] for v in points)
    if metric.unit:
        norms = [xp.sqrt((v * v).sum(-1))[..., None] for v in points]
        points = tuple(v / norm for v, norm in zip(points, norms, strict=True))
    rows = [row_of(one.algebra) for one in (smooth(metric), over) if one is not None]
    given = [_joined(library, row, *points) for row in rows]
    entries, other = given[0][0], x.shape[-1] if over is None else given[1][0]
    slopes = [derivative(metric.final_expr, name) for name in ("a", "b")[: len(rows)]]
    if sphere:  # of the angle, by the square of the chord
        slopes = [parse("1 / sqrt(a * (4 - a))")]
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
    if sphere:
        return _by_angles(xp, x, left), _by_angles(xp, y, right)
    if norms is None:
        return left, right
    found = ((by - v * (v * by).sum(-1)[..., None]) / norm
             for by, v, norm in zip((left, right), points, norms, strict=True))  # fmt: skip
    if centred:
        found = (by - by.mean(-1)[..., None] for by in found)
    return next(found), next(found)


def _by_angles(xp: Any, places: Array, came: Array) -> Array:
    """The gradient by latitudes and longitudes of what came to their unit vectors."""
    latitude, longitude = places[..., 0], places[..., 1]
    east = xp.cos(longitude) * came[..., 1] - xp.sin(longitude) * came[..., 0]
    out = xp.cos(longitude) * came[..., 0] + xp.sin(longitude) * came[..., 1]
    north = xp.cos(latitude) * came[..., 2] - xp.sin(latitude) * out
    return xp.stack((north, xp.cos(latitude) * east), -1)


def _joined(library: Library, row: str, x: Array, y: Array) -> tuple[Array, Array | None]:
    """The product that a metric is, and which coordinates won."""
    wanted = semiring_of(row).selective and x.shape[-1] > 0
    c, arg = library.run("product", x, y.mT, row, wanted)
    return c, arg if wanted else None


# --- the rows -------------------------------------------------------------------------------------

_MODEL = sequences.MODEL.signature.replace("[U]", "U")
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
            "network_distances",
            "weights ...E, sources ...S:i8 = none, targets ...T:i8 = none; network: str -> d ...ST",
            _network_distances, _network_gradient, lambda given, needs: {
                "weights", "sources", "targets"
            },
            sizes=_network_sizes,
        ),
        Verb(
            "network_loads",
            "weights ...E, sources ...S:i8 = none, targets ...T:i8 = none, demand ...ST; "
            "network: str -> loads ...E",
            _network_loads, sizes=_network_sizes,
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
