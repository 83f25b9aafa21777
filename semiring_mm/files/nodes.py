"""Tables of nodes: their order, names and coordinates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .columns import (
    CITY,
    LATITUDE,
    LONGITUDE,
    NODE,
    Numbers,
    Origin,
    check_header,
    decimal,
    find_column,
    numbered_column,
    rows,
)
from .file import File, Reading, quote
from .graph import Graph, great_circle

__all__ = ["Nodes", "great_circle_weights", "read_nodes", "read_numbers"]


@dataclass(frozen=True)
class Nodes:
    """What a table says of the nodes, in its order."""

    path: Path
    nodes: list[str]
    names: list[str] | None
    coordinates: NDArray[np.float64] | None
    geographic: bool

    def of(self, file: Origin, reading: Reading) -> Graph:
        """The graph of a file with these nodes."""
        graph, index = reading.graph, {label: k for k, label in enumerate(self.nodes)}
        order = np.empty(len(graph.nodes), dtype=np.int64)
        for k, label in enumerate(graph.nodes):
            if label not in index:
                line = reading.lines[k] if reading.lines else None
                raise file.error(line, f"node {label!r} is not in {self.path}")
            order[k] = index[label]
        return replace(
            graph,
            nodes=self.nodes,
            row=order[graph.row],
            col=order[graph.col],
            centroids=None if graph.centroids is None else order[graph.centroids],
            coordinates=self.coordinates,
            geographic=self.geographic,
            names=self.names,
        )


def great_circle_weights(file: Origin, graph: Graph) -> Graph:
    """Great-circle lengths for the edges of a file that has coordinates and no weights."""
    points = graph.coordinates
    assert points is not None
    used = np.concatenate([graph.row, graph.col])
    if (bare := np.isnan(points[used].sum(axis=1))).any():
        label = graph.nodes[int(used[bare.argmax()])]
        raise file.error(
            None,
            f"the file has no weights and node {label!r} no coordinates to measure its edges by: "
            "add them, or count legs (weight=None, --unweighted)",
        )
    return replace(graph, weight=great_circle(points[graph.row], points[graph.col]), unit="km")


def read_nodes(file: File) -> Nodes:
    """Read a table of nodes."""
    table, number, header, key = _headed(file)
    name = find_column(file, number, header, CITY)
    across, up = (find_column(file, number, header, names) for names in (LONGITUDE, LATITUDE))
    geographic = across is not None and up is not None
    if not geographic:
        across, up = (find_column(file, number, header, [axis]) for axis in "xy")

    seen: dict[str, int] = {}
    names: list[str] = []
    points: list[tuple[float, float]] = []
    for number, fields in table:
        if len(fields) != len(header):
            raise file.error(
                number,
                f"expected {len(header)} fields ({', '.join(header)}), got {len(fields)}: "
                + quote(", ".join(fields)),
            )
        label = fields[key]
        if not label:
            raise file.error(number, f"a node without a name: {quote(', '.join(fields))}")
        if label in seen:
            raise file.error(number, f"node {label!r} again, after line {seen[label]}")
        seen[label] = number
        if name is not None:
            names.append(fields[name])
        if across is not None and up is not None:
            points.append(
                (
                    _coordinate(file, number, header[across], fields[across], 360 * geographic),
                    _coordinate(file, number, header[up], fields[up], 90 * geographic),
                )
            )
    if not seen:
        raise file.error(number, "a header line and no nodes")
    return Nodes(
        file.path,
        list(seen),
        names if name not in (None, key) else None,
        np.array(points) if points else None,
        geographic,
    )


def _headed(file: File) -> tuple[Iterator[tuple[int, list[str]]], int, list[str], int]:
    """The rows of a table of nodes, its header and the line of that, and the column of labels."""
    table = rows(file)
    number, header = next(table, (1, []))
    check_header(file, number, header)
    key = find_column(file, number, header, NODE)
    if key is None:
        raise file.error(
            number,
            f"expected a header line with a column {', '.join(NODE[:-1])} or {NODE[-1]}, got "
            + quote(", ".join(header)),
        )
    return table, number, header, key


def read_numbers(file: File, column: str, nodes: Sequence[str]) -> NDArray[Any]:
    """A column of a table of nodes, by name or number: int64 where all of it is whole."""
    table, number, header, key = _headed(file)
    at = numbered_column(file, number, header, column)
    place: dict[str, int] = {}
    numbers = Numbers(file, header[at])
    for line, (number, fields) in enumerate(table):
        numbers.add(number, fields[at] if at < len(fields) else "")
        place[fields[key]] = line
    if (absent := next((x for x in nodes if x not in place), None)) is not None:
        raise file.error(None, f"node {absent!r} is not in it")
    values = numbers.whole()[[place[x] for x in nodes]]
    whole = (values == np.rint(values)).all() and (abs(values) < 2.0**53).all()
    return values.astype(np.int64) if whole else values


def _coordinate(file: File, number: int, column: str, word: str, limit: float) -> float:
    if not word:
        return np.nan
    try:
        value = decimal(word)
    except ValueError:
        value = np.nan
    if not np.isfinite(value) or (limit and abs(value) > limit):
        bound = f" from {-limit} to {limit}" if limit else ""
        raise file.error(number, f"{column}: expected a number{bound}, got {quote(word)}")
    return value
