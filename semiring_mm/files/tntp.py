"""TNTP networks, ``_net.tntp``, of the Transportation Networks collection."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..closures.edges import NumberLabels
from .columns import column_unit, numbered_column
from .file import File, GraphFileError, NumberedEdges, Reading, plain, quote
from .graph import Graph

__all__ = ["read"]


_LARGEST = 1 << 62  # number of a node


def read(file: File, weight: str | None) -> Reading:
    """The directed graph of a network; by default its weights are the lengths."""
    lines = file.lines()
    tags = _Metadata(file, lines)
    _, n = tags.count("NUMBER OF NODES", "nodes")
    promised, m = tags.count("NUMBER OF LINKS", "links")
    edges = NumberedEdges(file, _LARGEST, m, promised, "links")
    table: _Table | None = None
    number = tags.end
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
            start, end, value = table.link(number, line)
            for node in (start, end):
                if not 0 < node <= _LARGEST:
                    raise _out_of_range(file, number, node, n)
            edges.add(number, start, end, value)
            at.append(number)
    notes: list[str] = []
    if "FIRST THRU NODE" in tags:
        zones = tags.count("FIRST THRU NODE", "the first through node")[1] - 1
        if zones > 0:
            notes.append(f"nodes 1-{zones} are zone centroids; paths here may pass through them")
    known: dict[str, Any] = {}
    if table is not None:
        if weight == "weight" and (other := table.travel_time()):
            notes.append(f"the weight is {table.weight_source}; {other} can be chosen instead")
        known = {"unit": table.unit, "weight_source": table.weight_source}
    graph = edges.graph(
        number,
        directed=True,
        notes=tuple(notes),
        direction_source="a .tntp file lists links of one direction",
        **known,
    )
    return Reading(_labelled(file, graph, n, at))


def _labelled(file: File, graph: Graph, n: int, lines: array[int]) -> Graph:
    """The graph of n nodes, numbered from 1 or, as in Munich's network, in any other way."""
    ends = np.concatenate([graph.row, graph.col]) + 1
    if (ends <= n).all():
        return replace(graph, nodes=NumberLabels(1, n))
    numbers = np.unique(ends)
    if len(numbers) != n or numbers[0] <= n:
        k = int((ends > n).argmax())
        raise _out_of_range(file, lines[k % len(lines)], int(ends[k]), n)
    return replace(
        graph,
        nodes=[str(number) for number in numbers.tolist()],
        row=np.searchsorted(numbers, graph.row + 1),
        col=np.searchsorted(numbers, graph.col + 1),
    )


def _out_of_range(file: File, line: int, node: int, n: int) -> GraphFileError:
    return file.error(line, f"node {node} is out of range: nodes are 1 to {n}")


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
    def unit(self) -> str:
        """The unit in the name of the weights."""
        return column_unit(self.header[self.column])

    @property
    def weight_source(self) -> str:
        """Name and number of the column of the weights."""
        return f"{self.header[self.column]} (column {self.column + 1})"

    def travel_time(self) -> str:
        """The name of another column that adds up along a path, or ""."""
        return next((x for x in self.header if re.match("(?i)free.?flow.?time", x)), "")

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


class _Metadata:
    """The lines ``<TAG> words`` before the table, with the number of each."""

    def __init__(self, file: File, lines: Iterator[tuple[int, str]]) -> None:
        self._file = file
        self._tags: dict[str, tuple[int, str]] = {}
        number = 0
        for number, line in lines:
            if match := re.match(r"\s*<([^>]*)>(.*)", line):
                tag = " ".join(match[1].upper().split())
                if tag in self._tags:
                    first = self._tags[tag][0]
                    raise file.error(number, f"a second <{tag}>, after that on line {first}")
                self._tags[tag] = number, match[2].strip()
                if tag == "END OF METADATA":
                    self.end = number
                    return
        raise file.error(number, "no <END OF METADATA> in the file; is it a TNTP network?")

    def __contains__(self, tag: str) -> bool:
        return tag in self._tags

    def count(self, tag: str, what: str) -> tuple[int, int]:
        """Line and number of a tag."""
        if tag not in self._tags:
            raise self._file.error(self.end, f"no <{tag}> before <END OF METADATA>")
        number, words = self._tags[tag]
        return number, self._file.count(number, words, what)
