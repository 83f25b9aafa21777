"""The entry point ``networkx.backends``: what NetworkX's dispatcher asks, and the functions."""

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

#: Edges a node from which stacks of neighbourhoods beat searches of theirs.
_DEGREE = 12
#: Nodes a thread at which n³ pairs take as long as n breadth-first searches in Python: 3·10¹⁰ pairs
#: a second and thread, against 0.3 µs for each node reached along few edges.
_SEARCH = 9000
#: Of a pair of nodes, at most: distances twice, predecessors, and what they are sorted by.
_BYTES = 24

#: Parameters that ask for part of the pairs, or bring distances along: nothing is gained then.
_PARTS = {"v", "e", "sp", "u", "nbunch", "sources", "attr", "source", "target"}


def convert_from_nx(graph: Any, **_: Any) -> Graph:
    """Wrap a graph; the functions read what they need."""
    return Graph(graph)


def convert_to_nx(result: Any, **_: Any) -> Any:
    """The graph in the wrapper; results are NetworkX's types already."""
    return result.graph if isinstance(result, Graph) else result


@functools.cache
def _signature(name: str) -> inspect.Signature:
    return inspect.signature(getattr(functions, name))


def _arguments(name: str, args: Any, kwargs: Any) -> dict[str, Any]:
    bound = _signature(name).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


def can_run(name: str, args: Any, kwargs: Any) -> bool | str:
    """Whether the arguments are ones that a function takes; what the edges hold, it will see."""
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
    """Whether something is gained, by what was measured (docs/networkx.md)."""
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
