"""The entry point ``networkx.backends``: the dispatcher's hooks and the functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import networkx as nx

from ..arrays import check_memory
from ..closures.paths import NegativeCycleError
from . import functions
from .convert import Graph

#: Edges a node from which batches of neighbourhoods beat NetworkX's searches.
_DEGREE = 12
#: Parameters that are where the paths of a call begin.
_STARTS = ("source", "u", "v", "sources", "nbunch", "center_nodes")
#: Bytes a pair of nodes, at most, of results that are matrices, or dictionaries from them.
_BYTES = 24
_SEARCHES = "a search that ends there is less work than all pairs"
_DISTANCES = "with the distances there is nothing left to gain"
#: Parameters that leave a call to NetworkX, and why.
_LEFT = {
    "target": _SEARCHES,
    "usebounds": _SEARCHES,
    "sp": _DISTANCES,
    "e": _DISTANCES,
    "attr": "the graph would be written to",
    "topo_order": "the closure does not depend on it",
}
_MATRICES = "floyd_warshall"  # what the names of their functions begin with


def refuse(given: Mapping[str, Any]) -> None:
    """Refuse what is left to NetworkX, by the values of parameters.

    Raises
    ------
    NotImplementedError
        With the reason.
    """
    for name in ("weight", "distance"):
        if callable(given.get(name)):
            raise NotImplementedError(
                f"{name} is a function: semiring_mm reads an edge attribute; give its name"
            )
    for name, reason in _LEFT.items():
        if given.get(name) is not None and given[name] is not False:
            raise NotImplementedError(f"{name} is given: {reason}; this is left to networkx")


def _entry(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function behind NetworkX's dispatcher: it refuses what is left to NetworkX.

    It takes a graph that is not wrapped, too.
    """

    @functools.wraps(function)
    def entry(*args: Any, **kwargs: Any) -> Any:
        given = _arguments(function.__name__, args, kwargs)
        refuse(given)
        if not isinstance(given["G"], Graph):
            given["G"] = Graph(given["G"])
        try:
            return function(**given)
        except NegativeCycleError as error:
            raise NotImplementedError(
                f"{error}; what networkx returns then is left to it"
            ) from None

    return entry


globals().update({name: _entry(getattr(functions, name)) for name in functions.__all__})


def convert_from_nx(graph: Any, **_: Any) -> Graph:
    """Wrap a graph; functions convert the attributes they need."""
    return Graph(graph)


def convert_to_nx(result: Any, **_: Any) -> Any:
    """Unwrap a graph; results already have NetworkX's types."""
    return result.graph if isinstance(result, Graph) else result


@functools.cache
def _signature(name: str) -> inspect.Signature:
    return inspect.signature(getattr(functions, name))


def _arguments(name: str, args: Any, kwargs: Any) -> dict[str, Any]:
    bound = _signature(name).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


def can_run(name: str, args: Any, kwargs: Any) -> bool | str:
    """Whether a function has these parameters.

    What it does not support of their values it refuses itself, with the reason: NetworkX writes a
    reason that is given here into its debug log only, and goes on after either.
    """
    try:
        _arguments(name, args, kwargs)
    except TypeError as error:
        return str(error)
    return True


def _one_search(name: str, given: dict[str, Any]) -> bool:
    """Whether a call asks for the paths from one node, or by one search from a few."""
    return not name.endswith("_subset") and any(given.get(key) is not None for key in _STARTS)


def _converted(graph: Any) -> bool:
    """Whether NetworkX keeps the converted graph."""
    kept = getattr(graph, "__networkx_cache__", None) or {}
    return isinstance(graph, Graph) or bool(kept.get("backends", {}).get("semiring_mm"))


def should_run(name: str, args: Any, kwargs: Any) -> bool | str:
    """Whether the backend is faster, by the measurements of docs/networkx.md."""
    given = _arguments(name, args, kwargs)
    try:
        refuse(given)
    except NotImplementedError as error:
        return str(error)
    graph, least = given["G"], nx.config.backends.semiring_mm.min_nodes
    n = len(graph)
    if n < least:
        return f"{n} nodes, and nx.config.backends.semiring_mm.min_nodes is {least}"
    if _one_search(name, given) and not _converted(graph):
        return "a search in networkx takes as long as reading the graph, which is not kept yet"
    degree = (1 if graph.is_directed() else 2) * graph.number_of_edges() / max(n, 1)
    if name == "local_efficiency" and degree < _DEGREE:
        return f"neighbourhoods of {degree:.3g} nodes on average are too small to gain"
    if _one_search(name, given):
        return True
    unweighted = given.get("weight", given.get("distance")) is None
    if unweighted and name in ("all_pairs_shortest_path", "shortest_path"):
        return (
            "lists of n² paths take as long to write as a breadth-first search takes to find them"
        )
    if name.startswith(_MATRICES):
        try:
            check_memory(_BYTES * n * n, f"a matrix of distances between {n} nodes")
        except MemoryError as error:
            return str(error)
    return True
