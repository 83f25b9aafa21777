"""TNTP networks, ``_net.tntp``, of the Transportation Networks collection."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .columns import column_unit, named_column
from .file import File, NumberedEdges, Reading, plain, quote

__all__ = ["read"]


def read(file: File, weight: str | None) -> Reading:
    """The directed graph of a network; by default its weights are the lengths."""
    lines = file.lines()
    tags = _Metadata(file, lines)
    _, n = tags.count("NUMBER OF NODES", "nodes")
    promised, m = tags.count("NUMBER OF LINKS", "links")
    edges = NumberedEdges(file, n, m, promised, "links")
    header: list[str] | None = None
    number, column = tags.end, 0
    for number, line in lines:
        line = line.strip()
        if line.startswith("~"):
            if header is not None:
                raise file.error(number, "a second line of column names")
            header = _header(file, number, line)
            name = "length" if weight in (None, "weight") else weight
            column = 2 + named_column(file, number, header[2:], name)
        elif line:
            if header is None:
                raise file.error(number, f"expected '~' and the column names, got {quote(line)}")
            fields = line.rstrip("; \t").split()
            try:
                if not line.endswith(";") or len(fields) != len(header) or not plain(line):
                    raise ValueError
                link = int(fields[0]), int(fields[1]), float(fields[column])
            except ValueError:
                raise file.error(
                    number,
                    f"expected {len(header)} numbers ({', '.join(header)}) and ';', got "
                    + quote(line),
                ) from None
            edges.add(number, *link)
    notes: tuple[str, ...] = ()
    if "FIRST THRU NODE" in tags:
        zones = tags.count("FIRST THRU NODE", "the first through node")[1] - 1
        if zones > 0:
            notes = (f"nodes 1-{zones} are zone centroids; paths here may pass through them",)
    unit = "" if header is None else column_unit(header[column])
    return Reading(edges.graph(number, directed=True, unit=unit, notes=notes))


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


def _header(file: File, number: int, line: str) -> list[str]:
    names = line.strip("~;\t ")
    header = re.split(r"\s*\t\s*" if "\t" in names else r"\s+", names)
    if len(header) < 3:
        raise file.error(number, f"expected the names of the columns, got {quote(line)}")
    return header
