"""A table of the methods for paths: what each takes, and which one is taken."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..display import html_table
from ..hierarchy.costs import TooExpensive
from ..naming import integer
from ..semirings import Semiring, as_semiring, semirings
from ..tiles import TileOptions, Tiles
from .apsp import Task, check_asked
from .choice import Request
from .inputs import as_typed, positions
from .methods import METHODS, plan
from .prepared import PreparedGraph, edges_of_graph, preparing
from .statistics import OF_PATHS, request_of

__all__ = ["Estimate", "Explanation", "explain"]

#: Uses for which shortest paths are counted.
_COUNTED = ("flows", *OF_PATHS)


@dataclass(frozen=True)
class Estimate:
    """What a method takes, for one request.

    Attributes
    ----------
    method : str
    seconds : float, optional
        On the host's threads; None where that is not known, as of a method that does not apply.
    memory : int
        Bytes beside the graph and the result.
    why : str
        Why the method does not apply, or what it takes longer than; "" otherwise.
    """

    __module__ = "semiring_mm"  # where users import it from

    method: str
    seconds: float | None
    memory: int
    why: str


@dataclass(frozen=True, repr=False)
class Explanation:
    """The methods for a request, and the one that is taken; printed, a table.

    Parameters
    ----------
    title : str
        The request.
    taken : str
        The method.
    methods : tuple of Estimate
    """

    __module__ = "semiring_mm"  # where users import it from

    title: str
    taken: str
    methods: tuple[Estimate, ...]

    def _cells(self) -> Iterator[list[str]]:
        for x in self.methods:
            time = "" if x.seconds is None else f"{x.seconds:.3g}"
            memory = f"{x.memory / 1e6:,.1f}" if x.memory else ""
            yield [x.method, time, memory, "taken" if x.method == self.taken else x.why]

    def __repr__(self) -> str:
        head = ["method", "seconds", "MB", ""]
        rows = [head, *self._cells()]
        first, *others = (max(len(row[k]) for row in rows) for k in range(3))
        lines = (
            f"{row[0]:<{first}}  {row[1]:>{others[0]}}  {row[2]:>{others[1]}}  {row[3]}".rstrip()
            for row in rows
        )
        return "\n".join([self.title, *lines])

    def _repr_html_(self) -> str:
        return html_table(self.title, ["method", "seconds", "MB", ""], list(self._cells()))


def explain(
    graph: Any,
    use: str = "apsp",
    *,
    semiring: str | Semiring = "min_plus",
    weight: str | int | None = "weight",
    source: Any = None,
    target: Any = None,
    dtype: Any = None,
    directed: bool | None = None,
    method: str = "auto",
    sources: Any = None,
    return_predecessors: bool = False,
    max_hops: int | None = None,
    overwrite: bool = False,
    device: str | None = None,
    tiles: Tiles | None = None,
) -> Explanation:
    """Explain which method is taken for paths, and what the others take.

    Nothing is computed but what decides: the order of a sparse elimination, for example, as long as
    it may be the fastest.

    Parameters
    ----------
    graph : any graph that :func:`apsp` takes
        Or a prepared one, which has its method: then the table is what was prepared.
    use : str, default "apsp"
        The function that is explained, one of "apsp", "prepare", "statistics", "nearest", "flows",
        "betweenness", "edge_betweenness" and "stress": :func:`apsp`, or :func:`closure` over
        another semiring, :func:`statistics` of the distances from `sources`, or one that counts
        their shortest paths, :func:`nearest` of facilities, or :func:`flows` from origins, which
        are the `sources`. Of :func:`prepare` the memory is told that it takes for a network like
        one of roads.
    semiring : str or Semiring, default "min_plus"
        As for :func:`closure`.
    weight, source, target, dtype, directed, method, sources, return_predecessors, max_hops, \
overwrite, device, tiles
        As for :func:`apsp`.

    Returns
    -------
    Explanation
        Prints a table: each method with the seconds and the memory beside the result that it is
        estimated to take, and which one is taken, or why a method is not.

    Raises
    ------
    ValueError, TypeError, MemoryError
        As the function that is explained.

    Notes
    -----
    Seconds are those of this machine's number of threads at the speed of the machine where the
    constants were measured; only their ratios decide. A device's time is not estimated: where it
    is taken at all follows from the size of the graph (see :func:`apsp`).

    Examples
    --------
    >>> import networkx as nx
    >>> import semiring_mm as sm
    >>> found = sm.explain(nx.grid_2d_graph(40, 40), sources=[(0, 0)])
    >>> found.taken
    'a search from each source'
    >>> [x.method for x in found.methods if x.seconds is not None]
    ['rounds of products', 'elimination in blocks', 'a search from each source']
    """
    s = as_semiring(semiring)
    uses = ("apsp", "prepare", "statistics", "nearest", *_COUNTED)
    if use not in uses:
        raise ValueError(f"use is one of {', '.join(map(repr, uses))}, got {use!r}")
    if isinstance(graph, PreparedGraph):
        why = "" if use != "apsp" else "; distances() of a prepared graph takes no other method"
        return Explanation(f"{graph.summary}{why}", "sparse elimination", ())
    graph, weight = as_typed(s, graph, weight, directed, source, target, dtype)
    if use == "prepare":
        edges = edges_of_graph(s, graph, weight, directed)
        title = f"{edges.n:,} nodes, {len(edges.row):,} edges, {s.name}"
        taken = Estimate("sparse elimination", None, preparing(edges), "")
        return Explanation(title, taken.method, (taken,))
    if use != "apsp":
        return _explained(_passing(graph, use, weight, directed, sources, device, tiles))
    if s.name != "min_plus" and not (method == "auto" and max_hops is None):
        raise ValueError("method and max_hops are for min_plus: leave them out")
    limit = None if max_hops is None else integer(max_hops, "max_hops")
    check_asked(method, limit, return_predecessors)
    task = Task(
        s, graph, weight=weight, directed=directed, sources=sources, method=method, hops=limit,
        options=TileOptions.of(device, tiles).alone(),
        predecessors=return_predecessors, overwrite=overwrite,
    )  # fmt: skip
    found: Explanation = task.ready(_explained)
    return found


def _passing(
    graph: Any, use: str, weight: str | int | None, directed: bool | None, sources: Any,
    device: str | None, tiles: Tiles | None,
) -> Request:  # fmt: skip
    """The request of distances that are not kept."""
    edges = edges_of_graph(semirings["min_plus"], graph, weight, directed)
    rows = positions(sources, edges.n, edges.nodes)
    count = edges.n if rows is None else len(np.unique(rows))
    where = None if TileOptions.of(device, tiles).indices() is None else "cuda"
    return request_of(edges, count, device=where, metric=use == "nearest", loads=use in _COUNTED)


def _explained(request: Request) -> Explanation:
    found = tuple(_estimates(request))
    arcs = "" if request.arcs is None else f", {request.arcs:,} edges"
    rows = "all pairs" if request.sources is None else f"{request.sources:,} sources"
    rows += ", all shortest paths" if request.loads else ""
    where = f", device {request.device}" if request.elsewhere else ""
    title = f"{request.n:,} nodes{arcs}, {request.s.name}, {request.dtype}, {rows}{where}"
    if (x := request.structure) is not None:
        title += f"\nsparse elimination: {x.summary}"
    return Explanation(title, plan(request).name, found)


def _estimates(request: Request) -> Iterator[Estimate]:
    """What each method takes, as far as it may be the cheapest."""
    limit = math.inf
    for method in METHODS:
        if method.loads != request.loads:
            continue
        alone = request.stack > method.stacks
        why = "takes one graph at a time" if alone else method.refuses(request)
        cost = math.inf
        if not why:
            try:
                cost = method.cost(request, limit)
            except TooExpensive as error:
                why = str(error)
        limit = min(limit, cost)
        seconds = cost / 1e9 if cost < math.inf else None
        yield Estimate(method.name, seconds, 0 if why else method.memory(request), why)
