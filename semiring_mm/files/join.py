"""Graphs of several files as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from .columns import Origin
from .graph import Graph

__all__ = ["joined"]


def joined(files: Sequence[Origin], graphs: Sequence[Graph]) -> Graph:
    """The graph of the edges of all files, nodes of one label being one."""
    for k, (file, graph) in enumerate(zip(files, graphs, strict=True)):
        for before, one in zip(files[:k], graphs[:k], strict=True):
            _check_alike(before, one, file, graph)
    index: dict[str, int] = {}
    at = [
        np.array([index.setdefault(label, len(index)) for label in graph.nodes], dtype=np.int64)
        for graph in graphs
    ]
    ends = list(zip(graphs, at, strict=True))
    # Of names and coordinates those in the first file that says.
    names, points = list(index), np.full((len(index), 2), np.nan)
    for graph, place in reversed(ends):
        for k, name in zip(place, graph.names or (), strict=False):
            names[k] = name
        if graph.coordinates is not None:
            known = ~np.isnan(graph.coordinates).any(axis=1)
            points[place[known]] = graph.coordinates[known]
    zones = [place[graph.centroids] for graph, place in ends if graph.centroids is not None]
    return replace(
        graphs[0],
        centroids=np.unique(np.concatenate(zones)) if zones else None,
        nodes=list(index),
        row=np.concatenate([place[graph.row] for graph, place in ends]),
        col=np.concatenate([place[graph.col] for graph, place in ends]),
        weight=np.concatenate([graph.weight for graph in graphs]),
        table_rows=_table_rows(graphs),
        coordinates=points if any(graph.coordinates is not None for graph in graphs) else None,
        geographic=any(graph.geographic for graph in graphs),
        names=names if any(graph.names is not None for graph in graphs) else None,
        unit=next((graph.unit for graph in graphs if graph.unit), ""),
        notes=tuple(dict.fromkeys(note for graph in graphs for note in graph.notes)),
        warnings=tuple(dict.fromkeys(text for graph in graphs for text in graph.warnings)),
        weight_source="; ".join(dict.fromkeys(graph.weight_source for graph in graphs)),
        direction_source="; ".join(dict.fromkeys(graph.direction_source for graph in graphs)),
    )


def _check_alike(before: Origin, one: Graph, file: Origin, other: Graph) -> None:
    """Raise an error for two graphs whose edges are not of one kind."""
    if one.directed != other.directed:
        raise file.error(
            None,
            f"its edges lead {_ways(other)}, those of {before.path} {_ways(one)}: choose one for "
            "all (directed=, --directed, --undirected)",
        )
    if _kind(one) != _kind(other):
        raise file.error(
            None,
            f"the weights are {_weights(other)}, those of {before.path} {_weights(one)}: what is "
            "added up is of one kind and one unit",
        )
    located = one.coordinates is not None and other.coordinates is not None
    if located and one.geographic != other.geographic:
        raise file.error(None, f"its coordinates are not of the kind of those of {before.path}")


def _ways(graph: Graph) -> str:
    return f"{'one way' if graph.directed else 'both ways'} ({graph.direction_source})"


def _weights(graph: Graph) -> str:
    if _kind(graph) == "legs":
        return graph.weight_source
    return f"{graph.weight_source} in {graph.unit or 'no unit'}"


def _kind(graph: Graph) -> str:
    """The unit of the weights, or legs."""
    return "legs" if graph.weight_source.startswith("none") else graph.unit


def _table_rows(graphs: Sequence[Graph]) -> NDArray[np.int64] | None:
    """The rows that edges were read from, of all tables one below the other."""
    if all(graph.table_rows is None for graph in graphs):
        return None
    count, rows = 0, []
    for graph in graphs:
        own = np.arange(len(graph.row)) if graph.table_rows is None else graph.table_rows
        rows.append(own + count)
        count += int(own.max(initial=-1)) + 1
    return np.concatenate(rows)
