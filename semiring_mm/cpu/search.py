"""From known distances to the search that has them, for some rows, that is sources; compiled.

``settle`` adds the weights up from the source, as a search does, where an elimination has put
brackets elsewhere. ``order`` follows the edges that lie on shortest paths, first in, first out
among nodes at equal distance: Dijkstra's order with a heap that breaks ties by age, and over unit
weights that of breadth-first search. ``dependencies`` counts the shortest paths in that order and
gives each node and edge its share of them, as betweenness centrality sums them up (Brandes, 2001).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .codegen import compiled
from .kernels import search as kernels

__all__ = ["dependencies", "order", "settle"]


def settle(fields: Mapping[str, Any]) -> None:
    """Labels in ``d`` that no edge improves, from infinity; ``near`` is about their order."""
    compiled(kernels.settle)(**fields)


def order(fields: Mapping[str, Any]) -> None:
    """Fill ``order`` and ``pred``, which hold -1; nodes of a ``group`` take its next ``slot``."""
    compiled(kernels.order)(**fields)


def dependencies(fields: Mapping[str, Any], *, late: bool) -> None:
    """Dependencies of each source, in ``delta`` by node and in ``share`` by edge.

    These two and ``sigma`` hold zeros. ``tail``, ``back_weight`` and ``edge`` are the edges by the
    node where they end, from ``back_first`` on. `late`: the paths through a node's predecessor are
    added last, as Dijkstra's search does when it settles the node, else in order.
    """
    compiled(kernels.dependencies)(**fields, late=late)
