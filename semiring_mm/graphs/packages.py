"""Graphs of NetworkX and igraph, and of dictionaries, as lists of edges."""

from __future__ import annotations

import contextlib
import numbers
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..closures.edges import EdgeList
from ..warn import warn

__all__ = ["UNITS", "WEIGHT", "from_dict", "from_igraph", "from_networkx"]

UNITS = "km m mi miles s min h".split()
#: Usual names of what adds up along a path. A capacity or a probability does not, and is chosen by
#: its name.
WEIGHT = "weight distance dist length cost w time duration".split() + UNITS
_NUMBERS = (numbers.Real, np.bool_, Decimal)


def from_networkx(graph: Any, weight: str | int | None) -> EdgeList:
    """Parallel edges are all of the list."""
    return _listed(graph, graph.edges(data=True), weight, graph.is_directed())


def from_dict(graph: Mapping[Any, Any], weight: str | int | None) -> EdgeList:
    """Neighbours and weights, or neighbours and attributes, or mere neighbours of each node."""
    return _listed(graph, _edges_of_dict(graph), weight, True)


def _edges_of_dict(graph: Mapping[Any, Any]) -> Iterator[tuple[Any, Any, Any]]:
    for u, near in graph.items():
        if isinstance(near, Mapping):
            for v, known in near.items():
                for one in known.values() if _is_multi(known) else [known]:
                    yield u, v, one
        elif isinstance(near, Iterable) and not isinstance(near, (str, bytes)):
            yield from ((u, v, {}) for v in near)
        else:
            raise TypeError(
                f"in a dict, each node has a dict of its neighbours and their weights, "
                f"{{'a': {{'b': 3}}}}, or a list of neighbours; {u!r} has {near!r:.60}"
            )


def _listed(
    nodes: Iterable[Any], edges: Iterable[tuple[Any, Any, Any]], weight: str | int | None,
    directed: bool,
) -> EdgeList:  # fmt: skip
    """Edges, of each of which the attributes are known or only the weight."""
    index: dict[Any, int] = {node: k for k, node in enumerate(nodes)}
    row, col, values, weighted = list[int](), list[int](), list[float](), False
    others: dict[Any, None] = {}  # numbers of edges without the weight, as they come
    for u, v, known in edges:
        value = 1.0
        if weight is not None:
            if not isinstance(known, Mapping):
                if weight != "weight":
                    raise ValueError(
                        f"weight={weight!r}: the edge {u!r} - {v!r} has no attributes, it is "
                        f"{known!r:.60}; leave weight out"
                    )
                value, weighted = _real(known, u, v), True
            elif weight in known:
                value, weighted = _real(known[weight], u, v), True
            else:
                others |= {name: None for name, x in known.items() if _is_number(x)}
        row.append(index.setdefault(u, len(index)))
        col.append(index.setdefault(v, len(index)))
        values.append(value)
    _tell(weight, weighted or not row, others)
    ends = np.array(row, np.int64), np.array(col, np.int64)
    return EdgeList(list(index), *ends, np.array(values, np.float64), directed)


def _is_multi(known: Any) -> bool:
    """Whether an edge is several parallel ones: attributes by key (NetworkX's dicts)."""
    return (
        isinstance(known, Mapping)
        and bool(known)
        and all(isinstance(x, Mapping) for x in known.values())
    )


def from_igraph(graph: Any, weight: str | int | None) -> EdgeList:
    """Its nodes have the names of its vertices, or none."""
    named = "name" in graph.vs.attributes()
    nodes = list(graph.vs["name"]) if named else range(graph.vcount())
    row, col = np.array(graph.get_edgelist(), np.int64).reshape(-1, 2).T
    columns = {name: graph.es[name] for name in graph.es.attributes()}
    values = _column(columns, weight, nodes, row, col)
    return EdgeList(nodes, row, col, values, bool(graph.is_directed()))


def _column(
    columns: Mapping[Any, Any], weight: str | int | None, nodes: Sequence[Any],
    row: NDArray[np.int64], col: NDArray[np.int64],
) -> NDArray[Any]:  # fmt: skip
    """The weights, a column of many, or 1 for each edge."""
    if weight is not None and weight in columns:
        values = np.asarray(columns[weight])
        if values.dtype.kind in "biuf":
            return values
        ends = zip(values.tolist(), row.tolist(), col.tolist(), strict=True)
        return np.array([_real(x, nodes[i], nodes[j]) for x, i, j in ends], np.float64)
    if weight is not None and len(row):
        _tell(weight, False, [name for name, x in columns.items() if _has_numbers(x)])
    return np.ones(len(row))


def _has_numbers(values: Any) -> bool:
    kind = getattr(values, "dtype", np.dtype(object)).kind
    return kind in "iuf" or (kind == "O" and any(map(_is_number, values)))


def _is_number(value: Any) -> bool:
    return isinstance(value, _NUMBERS) and not isinstance(value, (bool, np.bool_))


def _tell(weight: str | int | None, found: bool, others: Iterable[Any]) -> None:
    """Warn of numbers beside which an edge counts as 1; refuse a name that no edge has."""
    names = list(others)
    shown = ", ".join(map(repr, names[:6])) + (", …" if len(names) > 6 else "")
    if not found and weight not in (None, "weight"):
        raise ValueError(f"weight={weight!r}: no edge has it; edges have {shown or 'no numbers'}")
    if names:
        likely = next((x for x in WEIGHT if x in names), names[0])
        which = "not every edge has" if found else "no edge has"
        warn(
            f"{which} {weight!r}, and without it an edge counts as 1, although edges have {shown}: "
            f"write weight={likely!r}, or weight=None to count edges"
        )


def _real(weight: Any, u: Any, v: Any) -> float:
    """The weight of an edge as a float: no string that reads as one, no complex number's half."""
    if isinstance(weight, _NUMBERS):
        with contextlib.suppress(OverflowError, ValueError):
            return float(weight)
        raise ValueError(f"the weight of edge {u!r} - {v!r} does not fit float64: {weight!r:.60}")
    raise TypeError(f"edge weights must be numbers, got {weight!r:.60} between {u!r} and {v!r}")
