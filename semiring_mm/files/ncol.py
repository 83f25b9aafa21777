"""Edge lists of igraph and of LGL, ``.ncol``: undirected, and never with names of columns."""

from __future__ import annotations

from dataclasses import replace

from . import edge_list
from .file import File, Reading

__all__ = ["read"]


def read(file: File, weight: str | None) -> Reading:
    """The undirected graph of lines of two names and perhaps a weight."""
    reading = edge_list.read(file, weight)
    graph = replace(reading.graph, directed=False, direction_source="a .ncol file lists edges")
    return replace(reading, graph=graph, two_way=None)
