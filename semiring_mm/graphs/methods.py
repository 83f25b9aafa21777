"""Methods for paths, a row each, and the loop that takes the cheapest.

A row says for which requests a method is, what it takes, and what does it. Costs are nanoseconds of
the host's threads (:mod:`..hierarchy.costs`). The cost of a sparse elimination is known once its
order is: finding that goes on only while it is below the cost of the other methods.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from .. import engine as engines
from ..arrays import check_memory
from ..hierarchy import costs
from ..hierarchy.costs import TooExpensive
from ..memory import too_large
from ..naming import named
from ..registry import provided
from . import choice
from .choice import Request

__all__ = ["METHODS", "Method", "plan", "searches_first", "solve"]

_NONE: Mapping[str, str] = {}
_UNASKED = 1 << 24  # bytes that are taken without asking how many are free


@dataclass(frozen=True)
class Method:
    """A method for paths."""

    name: str
    refuses: Callable[[Request], str]  # why it is not for a request; "" where it is
    # nanoseconds of a request, below a limit; TooExpensive where it is not below
    cost: Callable[[Request, float], float]
    # distances and predecessors; of those with `loads` :class:`.rows.Rows` that give them.
    # TooExpensive where it takes longer than was expected
    run: Callable[[Request], Any]
    memory: Callable[[Request], int] = lambda _: 0  # bytes beside the graph and the result
    stacks: bool = False  # whether it takes a stack of graphs
    edges: bool = False  # whether it needs a list of edges alone, and no matrix
    what: str = "the work beside the {n} x {n} matrix"  # what needs the memory, for messages
    loads: bool = False  # whether it counts shortest paths, for the loads of nodes and edges


def plan(request: Request, refused: Mapping[str, str] = _NONE) -> Method:
    """The cheapest method that has room, or MemoryError of the cheapest one."""
    able: list[tuple[float, int]] = []
    for k, method in enumerate(METHODS):
        if method.loads != request.loads or method.name in refused:
            continue
        if request.stack > method.stacks or method.refuses(request):
            continue
        try:
            cost = method.cost(request, min(able)[0] if able else math.inf)
        except TooExpensive:
            continue
        able.append((cost, k))
    able.sort()
    for _, k in able:
        needed = METHODS[k].memory(request)
        if needed <= _UNASKED and request.room is None:
            return METHODS[k]
        free = request.free(host=METHODS[k].edges)
        if free is None or needed <= free:
            return METHODS[k]
    best = METHODS[able[0][1]]
    needed, what = best.memory(request), best.what.format(n=request.n)
    if request.room is not None:
        raise too_large(
            what, needed, request.room, f"use a larger {named('tiles.memory')}", room="allowed"
        )
    check_memory(needed, what, request.engine)
    return best


def searches_first(request: Request) -> bool:
    """Whether searches take less time than a dense method, by the number of edges alone."""
    return _search_cost(request, math.inf, looked_at=False) < _dense_cost(request, request.sources)


def solve(request: Request, leave_out: str = "") -> Any:
    """Distances, and predecessors if they are wanted, by the cheapest method."""
    refused = {leave_out: "it was tried"}
    while True:
        method = plan(request, refused)
        try:
            return method.run(request)
        except TooExpensive as error:
            refused[method.name] = str(error)


# --- for what the methods are -------------------------------------------------------------------


def _of_matrix(r: Request) -> str:
    """Why no dense method is for a request."""
    if not r.kept:
        return "makes a matrix, and none is wanted"
    return "the matrix is in tiles" if r.tiles else ""


def _searches(r: Request) -> str:
    if r.matrix_only:
        return r.matrix_only
    if (r.method == "sparse" and r.kept) or r.elsewhere:
        return "needs the CPU and method='auto'"
    return "" if r.searchable else "needs weights that are not negative, or better than ⊗'s one"


def _potentials(r: Request) -> str:
    if r.matrix_only or not r.kept:
        return r.matrix_only or "makes rows, and none are wanted"
    if r.s.name != "min_plus" or r.method == "sparse" or r.elsewhere:
        return "needs min_plus, the CPU and method='auto'"
    if r.searchable:
        return "needs negative weights"
    return _OVERFLOW if r.sparse.weights.may_overflow else ""


_OVERFLOW = "sums may overflow, which an elimination in blocks tells"


def _hops(r: Request) -> str:
    if r.predecessors or r.hops is not None or r.metric or r.method != "auto":
        return "finds distances alone, of any length, with method='auto'"
    if r.s.name != "min_plus" or r.tiles:
        return "needs min_plus, in one memory"
    if r.matrix_only:
        large = r.n >= choice.SPARSE_FROM or not r.engine.SPARSE
        return "" if large and r.kept and r.edges is None else r.matrix_only
    if r.kept and r.count < 2:
        return "needs several sources"
    return "" if r.searchable and r.unit else "needs edges that all count 1"


def _elimination(r: Request) -> str:
    if r.matrix_only:
        return r.matrix_only
    return _OVERFLOW if r.kept and not r.searchable and r.sparse.weights.may_overflow else ""


def _counted(r: Request) -> str:
    facts = r.sparse.weights.facts
    if not (facts.lo > 0 or not len(r.listed.col)):
        return "needs positive weights"
    exact = r.dtype.kind == "f" or r.n * facts.hi < 1 << 53
    return "" if exact else "needs distances below 2**53, which float64 adds up exactly"


def _forest(r: Request) -> str:
    if not r.comparing or r.hops is not None or r.method != "auto":
        return "needs minimum and maximum as ⊕ and ⊗, all lengths of paths, method='auto'"
    if why := _of_matrix(r):
        return why
    if r.edges is not None and r.edges.directed and not r.dense:
        return "needs undirected edges"
    from . import spanning

    given = spanning.gives(r)
    return "" if given else "needs an undirected graph, and weights between the identities"


def _one_launch(r: Request) -> str:
    if r.edges is not None or not 0 < r.n <= r.engine.BATCH:
        return "needs a small matrix on a device"
    plain = r.sources is r.hops is None and r.method in ("auto", "floyd_warshall")
    truth = r.dtype.kind == "b" and r.predecessors
    return _of_matrix(r) if plain and not truth else "needs all pairs, not predecessors of bool"


def _few_edges(r: Request) -> bool:
    """Whether rounds go over a list of edges."""
    few = r.edges is not None and r.hops is not None and r.sources is not None
    return few and 4 * r.count <= r.n and not r.elsewhere


def _edge_rounds(r: Request) -> str:
    return _of_matrix(r) if _few_edges(r) else "needs max_hops, edges and few sources"


def _rounds(r: Request) -> str:
    if r.sources is None:
        return "needs sources"
    return _of_matrix(r) or ("rounds over the edges need no matrix" if _few_edges(r) else "")


def _powers(r: Request) -> str:
    asked = r.hops is not None and r.sources is None
    return _of_matrix(r) if asked else "needs max_hops, and all pairs"


def _squaring(r: Request) -> str:
    asked = r.method == "squaring" and r.sources is r.hops is None
    return _of_matrix(r) if asked else "needs method='squaring'"


def _blocks(r: Request) -> str:
    if r.hops is not None or (r.method == "squaring" and r.sources is None):
        return "finds paths of any length, without method='squaring'"
    return _of_matrix(r)


def _strips(r: Request) -> str:
    by_rows = r.options.devices is None and r.method in ("auto", "sparse") and not r.elsewhere
    return "" if by_rows and r.options else "needs tiles=sm.Tiles(out= or memory=) on the CPU"


def _tiles(r: Request) -> str:
    asked = r.strips or (r.tiles and r.kept)
    return "" if asked else "needs tiles=sm.Tiles(...), or a device without room for the matrix"


# --- what they take -----------------------------------------------------------------------------


def _dense_cost(r: Request, count: int | None) -> float:
    if r.method == "sparse":
        return math.inf  # where nothing else does
    return costs.closure(
        r.n, count, itemsize=r.itemsize, predecessors=r.predecessors, undirected=r.undirected,
        threads=r.threads,
    )  # fmt: skip


def _blocks_cost(r: Request, limit: float) -> float:
    whole = _dense_cost(r, None)
    # rounds stop where they have taken as long
    return whole if r.sources is None else max(whole, _dense_cost(r, r.sources))


def _search_cost(r: Request, limit: float, *, looked_at: bool = True) -> float:
    if r.method == "sparse":
        return math.inf  # where an elimination has no room
    # rows that only pass take as long to be looked at
    facts = r.sparse.weights.facts if looked_at and r.kept else None
    equal = facts is not None and facts.lo == facts.hi
    return costs.searches(r.n, r.both, r.count, threads=r.threads, equal=equal)


def _potentials_cost(r: Request, limit: float) -> float:
    return _search_cost(r, limit) + costs.potentials(r.n, len(r.listed.col))


def _hops_cost(r: Request, limit: float) -> float:
    from . import contraction, dense

    cost: Callable[[Request, float], float]
    cost = dense.hops_cost if r.matrix_only else contraction.hops_cost
    return cost(r, limit)


def _hops_bytes(r: Request) -> int:
    searches = engines.named("cpu").HopSearches
    if r.hop_graph is None or searches is None or not r.kept:
        return 0
    return searches.bytes(r.n, r.hop_graph.arcs, r.count, labels=True)


def _products_cost(r: Request, limit: float) -> float:
    """So many products of n³ pairs at most."""
    products = 1 if r.hops is None else max(1, r.hops.bit_length() + r.hops.bit_count() - 1)
    return products * costs.PAIR * float(r.n) ** 3 / r.threads


# --- what does them -----------------------------------------------------------------------------


def _run(room: str, name: str) -> Callable[..., Any]:
    """A function of a module that is loaded when it is first used."""
    return lambda *asked: _function(room, name)(*asked)


@functools.cache
def _function(room: str, name: str) -> Callable[..., Any]:
    return cast(Callable[..., Any], getattr(importlib.import_module(f".{room}", __package__), name))


def _tiled(name: str) -> Callable[[Request], Any]:
    """What the room of tiles provides."""

    def run(r: Request) -> Any:
        graph = r.tiled if r.edges is None else r.edges
        if name == "close_tiles":
            return provided(name)(
                r.s, graph, r.options, directed=r.directed, predecessors=r.predecessors,
                progress=r.progress,
            )  # fmt: skip
        return provided(name)(graph, r)

    return run


def _trees(r: Request) -> int:
    return 4 * r.predecessors * r.n**2 if r.sources is None else 0


#: In the order in which their costs are estimated; the first of two that take as long is taken.
METHODS: Sequence[Method] = (
    Method("a spanning forest", _forest, lambda r, _: costs.forest(r.n, r.both, r.count),
           _run("spanning", "solve_forest")),
    Method("one launch", _one_launch, lambda r, _: costs.launch(r.n),
           _run("dense", "close_at_once"), stacks=True),
    Method("each of a batch", lambda r: "" if r.stack else "needs a stack of matrices",
           lambda r, _: _dense_cost(r, None), _run("dense", "close_stack"), stacks=True),
    Method("rounds over the edges", _edge_rounds,
           lambda r, _: costs.rounds(r.both, r.hops or 0, r.count), _run("rounds", "solve_rounds")),
    Method("rounds of products", _rounds, lambda r, _: _dense_cost(r, r.sources),
           _run("dense", "from_sources")),
    Method("powers of the matrix", _powers, _products_cost, _run("dense", "powers")),
    Method("repeated squaring", _squaring, _products_cost, _run("dense", "squaring"),
           lambda r: _trees(r) + 2 * r.dtype.itemsize * r.n**2),
    Method("elimination in blocks", _blocks, _blocks_cost, _run("dense", "close"), _trees),
    Method("strips of rows", _strips, lambda r, _: 0.0, _tiled("sparse_rows")),
    Method("tiles", _tiles, lambda r, _: _dense_cost(r, r.sources), _tiled("close_tiles")),
    Method("a search from each source", _searches, _search_cost, _run("contraction", "by_search"),
           edges=True),
    Method("potentials and searches", _potentials, _potentials_cost,
           _run("contraction", "by_search_shifted"), edges=True),
    Method("breadth-first searches", _hops, _hops_cost, _run("contraction", "by_hops"),
           _hops_bytes, edges=True),
    Method("sparse elimination", _elimination, _run("contraction", "elimination_cost"),
           _run("contraction", "by_elimination"), lambda r: r.structure_bytes, edges=True,
           what="the elimination of {n} nodes"),
    Method("searches and back", _counted, _run("dependencies", "searches_cost"),
           _run("rows", "searched"), _run("dependencies", "searches_bytes"), edges=True,
           what="the work by searches over {n} nodes", loads=True),
    Method("reverse sweeps", lambda r: "", _run("contraction", "reverse_sweeps_cost"),
           _run("rows", "swept"), _run("contraction", "reverse_sweeps_bytes"), edges=True,
           what="the elimination of {n} nodes", loads=True),
)  # fmt: skip
