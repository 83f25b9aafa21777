"""TNTP networks and trips, ``_net.tntp`` and ``_trips.tntp``, of Transportation Networks."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..closures.edges import NumberLabels
from .columns import column_unit, numbered_column
from .file import File, NumberedEdges, Reading, plain, quote
from .graph import Graph

__all__ = ["read"]


_LARGEST = 1 << 62  # number of a node


def read(file: File, weight: str | None) -> Reading:
    """The directed graph of a network, by default with its lengths; or that of trips."""
    lines = file.lines()
    end, tags = _metadata(file, lines)

    def count(tag: str, what: str) -> tuple[int, int]:
        """Line and number of a tag."""
        if tag not in tags:
            raise file.error(end, f"no <{tag}> before <END OF METADATA>")
        number, words = tags[tag]
        return number, file.count(number, words, what)

    if "NUMBER OF ZONES" in tags and not {"NUMBER OF NODES", "NUMBER OF LINKS"} & {*tags}:
        return _trips(file, count("NUMBER OF ZONES", "zones")[1], lines)
    n = count("NUMBER OF NODES", "nodes")[1]
    promised, m = count("NUMBER OF LINKS", "links")
    edges = NumberedEdges(file, n, m, promised, "links", _LARGEST)
    table: _Table | None = None
    number = end
    at = array("q")  # the line of each link
    for number, line in lines:
        line = line.strip()
        if line.startswith("~"):
            if table is not None:
                raise file.error(number, "a second line of column names")
            table = _Table(file, number, line, weight)
        elif line:
            if table is None:
                raise file.error(number, f"expected '~' and the column names, got {quote(line)}")
            edges.add(number, *table.link(number, line))
            at.append(number)
    notes: list[str] = []
    zones = 0
    if "FIRST THRU NODE" in tags:
        zones = count("FIRST THRU NODE", "the first through node")[1] - 1
        if zones > 0:
            notes.append(f"nodes 1-{zones} are zone centroids; paths here may pass through them")
    if table is not None and weight == "weight":
        times = (x for x in table.header if re.match("(?i)free.?flow.?time", x))
        if other := next(times, ""):
            notes.append(f"the weight is {table.weight_source}; {other} can be chosen instead")
    graph = edges.graph(
        number,
        directed=True,
        notes=tuple(notes),
        direction_source="a .tntp file lists links of one direction",
        unit="" if table is None else column_unit(table.header[table.column]),
        weight_source="" if table is None else table.weight_source,
    )
    graph = _labelled(file, graph, n, at)
    zone = [k for k in range(n) if int(graph.nodes[k]) <= zones] if zones > 0 else []
    return Reading(replace(graph, centroids=np.array(zone, np.int64)) if zone else graph)


def _trips(file: File, n: int, lines: Iterator[tuple[int, str]]) -> Reading:
    """Trips between zones: after a line ``Origin i`` there are many ``j : trips;`` of it."""
    row, col, trips = array("q"), array("q"), array("d")
    origin = 0
    for number, line in lines:
        parts = line.strip().removesuffix(";").split(";")
        if parts == [""] or parts[0].startswith("~"):
            continue
        try:
            begins = parts[0].casefold().startswith("origin")
            if not plain(line) or not (origin or begins):
                raise ValueError
            zones = [int(parts[0][6:])] if begins else [int(x.partition(":")[0]) for x in parts]
            values = [] if begins else [float(x.partition(":")[2]) for x in parts]
            if not all(map(math.isfinite, values)):
                raise ValueError
        except ValueError:
            raise file.error(
                number, f"expected 'Origin ZONE', or 'ZONE : TRIPS;' of it, got {quote(line)}"
            ) from None
        for zone in zones:
            if not 1 <= zone <= n:
                raise file.out_of_range(number, zone, n)
        if begins:
            (origin,) = zones
            continue
        row.extend([origin - 1] * len(zones))
        col.extend(zone - 1 for zone in zones)
        trips.extend(values)
    return Reading(Graph(
        NumberLabels(1, n), np.array(row, np.int64), np.array(col, np.int64), np.array(trips),
        directed=True, weight_source="trips",
        direction_source="a .tntp file of trips tells where they begin",
    ))  # fmt: skip


def _metadata(
    file: File, lines: Iterator[tuple[int, str]]
) -> tuple[int, dict[str, tuple[int, str]]]:
    """The lines ``<TAG> words`` before the table, each with its number, and the last number."""
    tags: dict[str, tuple[int, str]] = {}
    number = 0
    for number, line in lines:
        if match := re.match(r"\s*<([^>]*)>(.*)", line):
            tag = " ".join(match[1].upper().split())
            if tag in tags:
                raise file.error(number, f"a second <{tag}>, after that on line {tags[tag][0]}")
            tags[tag] = number, match[2].strip()
            if tag == "END OF METADATA":
                return number, tags
    raise file.error(number, "no <END OF METADATA> in the file; is it a TNTP network?")


def _labelled(file: File, graph: Graph, n: int, lines: array[int]) -> Graph:
    """The graph of n nodes, numbered from 1 or, as in Munich's network, in any other way."""
    ends = np.concatenate([graph.row, graph.col]) + 1
    if (ends <= n).all():
        return replace(graph, nodes=NumberLabels(1, n))
    numbers = np.unique(ends)
    if len(numbers) != n or numbers[0] <= n:
        k = int((ends > n).argmax())
        raise file.out_of_range(lines[k % len(lines)], int(ends[k]), n)
    return replace(
        graph,
        nodes=[str(number) for number in numbers.tolist()],
        row=np.searchsorted(numbers, graph.row + 1),
        col=np.searchsorted(numbers, graph.col + 1),
    )


class _Table:
    """The columns of the links: their names, and which of them holds the weights."""

    def __init__(self, file: File, number: int, line: str, weight: str | None) -> None:
        self.file = file
        names = line.strip("~;\t ")
        self.header = re.split(r"\s*\t\s*" if "\t" in names else r"\s+", names)
        if len(self.header) < 3:
            raise file.error(number, f"expected the names of the columns, got {quote(line)}")
        self.width = len(self.header)
        name = "length" if weight in (None, "weight") else str(weight)
        self.column = numbered_column(file, number, self.header, name)
        if self.column < 2:
            raise file.error(
                number,
                f"{self.header[self.column]!r} is an end of the links; choose the weight of "
                + ", ".join(self.header[2:]),
            )

    @property
    def weight_source(self) -> str:
        """Name and number of the column of the weights."""
        return f"{self.header[self.column]} (column {self.column + 1})"

    def link(self, number: int, line: str) -> tuple[int, int, float]:
        """Ends and weight of a link."""
        line = line.removesuffix(";")  # Sydney's lines do without
        fields = line.split()
        if len(fields) < self.width:  # some may be blank, between tabs
            fields = [field.strip() for field in line.removesuffix("\t").split("\t")]
        # More than there are names: Hessen's last column has none.
        try:
            if len(fields) < self.width or not plain(line):
                raise ValueError
            word = fields[self.column]
            link = int(fields[0]), int(fields[1]), float(word or "nan")
        except ValueError:
            raise self.file.error(
                number,
                f"expected {self.width} numbers ({', '.join(self.header)}), got {quote(line)}",
            ) from None
        if not math.isfinite(link[2]):  # some travel times of Munich are inf, one is blank
            raise self.file.error(
                number,
                f"expected a finite number as {self.header[self.column]}, got {quote(word)}: write "
                f"one there, or choose another weight, of {', '.join(self.header[2:])}",
            )
        return link
