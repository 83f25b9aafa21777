"""GraphML and GML, ``.graphml`` and ``.gml``, read with NetworkX."""

from __future__ import annotations

import io
import math
import re
from typing import Any
from xml.etree.ElementTree import ParseError

import numpy as np
from numpy.typing import NDArray

from .columns import LATITUDE, LONGITUDE, WEIGHT, column_unit, find_column
from .file import File, Reading
from .graph import Graph

__all__ = ["read"]


def read(file: File, weight: str | None) -> Reading:
    """The graph, its weights those of one attribute of the edges."""
    source = _parse(file)
    ids = list(source)
    attributes = [source.nodes[node] for node in ids]
    labels, names = _labels(file, ids, attributes)
    index = {node: k for k, node in enumerate(ids)}
    edges = [(index[u], index[v], known) for u, v, known in source.edges(data=True)]

    column = weight
    if weight == "weight":
        column = None
        present = sorted({name for *_, known in edges for name in known})
        if (k := find_column(file, None, present, WEIGHT)) is not None:
            column = present[k]
    values = [
        1.0
        if column is None
        else _attribute(file, known, column, f"edge {labels[u]} - {labels[v]}")
        for u, v, known in edges
    ]
    coordinates, geographic = _coordinates(file, labels, attributes)
    graph = Graph(
        labels,
        np.array([u for u, *_ in edges], dtype=np.int64),
        np.array([v for _, v, _ in edges], dtype=np.int64),
        np.array(values, dtype=np.float64),
        directed=source.is_directed(),
        coordinates=coordinates,
        geographic=geographic,
        names=names,
        unit="" if column is None else column_unit(column),
    )
    return Reading(graph, weighted=column is not None)


def _parse(file: File) -> Any:
    """The file as a NetworkX graph."""
    try:
        import networkx as nx
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"{file.path}: {file.kind} files are read with NetworkX; "
            'write: pip install "semiring-mm[io]"'
        ) from None

    data = io.BytesIO(file.read())
    try:
        return nx.read_graphml(data) if file.kind == ".graphml" else nx.read_gml(data, label=None)
    except ParseError as error:
        raise file.error(error.position[0], f"not XML ({error})") from None
    except Exception as error:  # the parsers let any error of Python through
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise file.error(None, f"not a {file.kind} graph ({reason})") from None


def _labels(
    file: File, ids: list[Any], attributes: list[dict[str, Any]]
) -> tuple[list[str], list[str] | None]:
    """Labels and, where they are not the labels, names of the nodes."""
    labels = [str(node) for node in ids]
    if not all("label" in known for known in attributes):
        return labels, None
    own = [str(known["label"]) for known in attributes]
    # GML names its nodes by label and numbers them by id, where the labels tell them apart.
    if file.kind == ".gml" and len(set(own)) == len(own):
        return own, None
    return labels, own


def _number(value: Any) -> float:
    """The value as a float, NaN where it is no number."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _attribute(file: File, known: dict[str, Any], name: str, owner: str) -> float:
    if name not in known:
        there = ", ".join(sorted(known)) or "none"
        raise file.error(None, f"{owner} has no attribute {name!r}; it has: {there}")
    value = _number(known[name])
    if not math.isfinite(value):
        raise file.error(None, f"{owner}: expected a finite number as {name}, got {known[name]!r}")
    return value


def _coordinates(
    file: File, labels: list[str], attributes: list[dict[str, Any]]
) -> tuple[NDArray[np.float64] | None, bool]:
    """Coordinates that all nodes have, under one of the usual names, and whether on the Earth."""
    if not attributes:
        return None, False
    pairs = [(lon, lat, True) for lon in LONGITUDE for lat in LATITUDE]
    for across, up, geographic in [*pairs, ("x", "y", False)]:
        if not all(across in known and up in known for known in attributes):
            continue
        points = np.array([(_number(known[across]), _number(known[up])) for known in attributes])
        limits = (360, 90) if geographic else (math.inf, math.inf)
        wrong = ~np.isfinite(points) | (abs(points) > limits)
        if not wrong.any():
            return points, geographic
        node, k = np.argwhere(wrong)[0].tolist()
        name = (across, up)[k]
        bound = f" from {-limits[k]} to {limits[k]}" if geographic else ""
        raise file.error(
            None,
            f"node {labels[node]}: expected a number{bound} as {name}, got "
            f"{attributes[node][name]!r}",
        )
    words = [str(known.get("pos", "")) for known in attributes]
    found = [re.findall(r"[-+]?[\d.]+(?:[eE][-+]?\d+)?", word) for word in words]
    points = np.array([[_number(x) for x in pair] for pair in found if len(pair) == 2])
    return (points if len(points) == len(found) and np.isfinite(points).all() else None), False
