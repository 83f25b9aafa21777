"""The entry point ``networkx.backends``: the dispatcher's hooks and the functions."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import networkx as nx

from ..arrays import check_memory
from ..cpu.threads import get_num_threads
from . import functions
from .convert import Graph
from .functions import *  # noqa: F403

#: Edges a node from which batches of neighbourhoods beat NetworkX's searches.
_DEGREE = 12
#: Nodes a thread at which n³ pairs take as long as n breadth-first searches in Python: 3·10¹⁰ pairs
#: a second and thread, against 0.3 µs for each node reached along few edges.
_SEARCH = 9000
#: Bytes a pair of nodes, at most: distances twice, predecessors, and sort keys.
_BYTES = 24

#: Parameters that ask for some of the pairs, or give distances: no gain in these cases.
_PARTS = {"v", "e", "sp", "u", "nbunch", "sources", "attr", "source", "target"}


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
    """Whether a function supports these arguments; weights are checked when it runs."""
    try:
        given = _arguments(name, args, kwargs)
    except TypeError as error:
        return str(error)
    for key in ("weight", "distance"):
        if callable(given.get(key)):
            return f"{key} is a function: semiring_mm reads an edge attribute"
    for key in _PARTS & given.keys():
        if given[key] is not None:
            return f"{key} is given: semiring_mm computes all pairs"
    if given.get("usebounds"):
        return "usebounds=True takes a few searches only"
    return True


def should_run(name: str, args: Any, kwargs: Any) -> bool | str:
    """Whether the backend is faster, by the measurements of docs/networkx.md."""
    given = _arguments(name, args, kwargs)
    graph, least = given["G"], nx.config.backends.semiring_mm.min_nodes
    n = len(graph)
    if n < least:
        return f"{n} nodes, and nx.config.backends.semiring_mm.min_nodes is {least}"
    degree = (1 if graph.is_directed() else 2) * graph.number_of_edges() / max(n, 1)
    if name == "local_efficiency" and degree < _DEGREE:
        return f"neighbourhoods of {degree:.3g} nodes on average are too small to gain"
    unweighted = given.get("weight", given.get("distance")) is None
    if unweighted and name in ("all_pairs_shortest_path", "shortest_path"):
        return (
            "lists of n² paths take as long to write as a breadth-first search takes to find them"
        )
    if unweighted and n > _SEARCH * get_num_threads():
        return f"{n} breadth-first searches may be less work than n³ pairs"
    try:
        check_memory(_BYTES * n * n, f"distances between {n} nodes")
    except MemoryError as error:
        return str(error)
    return True
