"""A file as lines of text or as bytes, unpacked within limits; and errors that name its lines."""

from __future__ import annotations

import contextlib
import gzip
import io
import math
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cpu.memory import free_memory
from .graph import Graph, NumberLabels

__all__ = [
    "File", "GraphFileError", "NumberedEdges", "Reading", "cut_short", "plain", "quote",
    "real",
]  # fmt: skip

#: A result has n² entries, so that a larger number of nodes is a mistake in the file.
MAX_NODES = 50_000_000
#: Compressed text of graphs is up to some thirty times smaller; what unpacks to much more is none.
_MAX_RATIO = 100
_MIN_LIMIT = 64 << 20  # bytes that any compressed file may unpack to
_MAX_MESSAGE = 500  # characters of a message: it may quote the file


class GraphFileError(ValueError):
    """A file that is not the graph it should be; the text starts with path and line number."""


@dataclass(frozen=True)
class File:
    """A file to read a graph from."""

    path: Path

    @property
    def packed(self) -> bool:
        """Whether the name ends in ``.gz``."""
        return self.path.suffix.lower() == ".gz"

    @property
    def kind(self) -> str:
        """The extension that names the format, without a ``.gz`` behind it."""
        return Path(self.path.name.lower().removesuffix(".gz")).suffix

    def error(self, line: int | None, message: str) -> GraphFileError:
        """The exception to raise for a line, or for the file as a whole."""
        message = " ".join(message.split())
        if len(message) > _MAX_MESSAGE:
            message = message[: _MAX_MESSAGE - 3] + "..."
        return GraphFileError(f"{self.path}{'' if line is None else f':{line}'}: {message}")

    @contextlib.contextmanager
    def open(self, share: int = 4) -> Iterator[io.BufferedReader]:
        """The unpacked bytes, at most ``1 / share`` of the free memory."""
        free = free_memory()
        limit = (1 << 62) if free is None else free // share
        with contextlib.ExitStack() as stack:
            stream: io.BufferedIOBase = stack.enter_context(self.path.open("rb"))
            if self.packed:
                ratio_limit = max(_MIN_LIMIT, _MAX_RATIO * self.path.stat().st_size)
                limit = min(limit, ratio_limit)
                stream = stack.enter_context(gzip.GzipFile(fileobj=stream))
            yield io.BufferedReader(_Limited(self, stream, limit), 1 << 16)

    def read(self) -> bytes:
        """All bytes, for a parser that builds objects many times their size."""
        with self.open(16) as stream:
            data = stream.read()
        if not data.strip():
            raise self.error(None, "the file is empty")
        return data

    def lines(self) -> Iterator[tuple[int, str]]:
        """Number and text of each line, without its end."""
        number, blank = 0, True
        with self.open() as stream:
            # Not str.splitlines: it also splits at characters that editors do not count as lines.
            text = io.TextIOWrapper(stream, "utf-8-sig", newline=None)
            try:
                for number, line in enumerate(text, 1):
                    if "\0" in line:
                        raise self.error(number, "binary data, expected text")
                    if blank:
                        blank = not line.strip()
                    yield number, line[:-1] if line[-1] == "\n" else line
            except UnicodeDecodeError as error:
                before = error.object[: error.start].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
                raise self.error(
                    number + 1 + before.count(b"\n"),
                    f"byte 0x{error.object[error.start]:02x} is not UTF-8; expected text in UTF-8",
                ) from None
        if blank:
            raise self.error(None, "the file is empty")

    def count(self, line: int, word: str, what: str) -> int:
        """A number of nodes or edges that a line of the file promises."""
        value = int(word) if word.isascii() and word.isdigit() and len(word) < 20 else -1
        if value < 0 or (what == "nodes" and value > MAX_NODES):
            most = f" (at most {MAX_NODES:,})" if value > 0 else ""
            raise self.error(line, f"expected a number of {what}, got {quote(word)}{most}")
        return value


class _Limited(io.RawIOBase):
    """A stream that ends in an error beyond a number of bytes, and where gzip data are damaged."""

    def __init__(self, file: File, stream: io.BufferedIOBase, limit: int) -> None:
        self._file, self._stream, self._limit, self._total = file, stream, limit, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._stream.read(len(buffer))
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise self._file.error(None, f"not a whole gzip file ({error})") from None
        self._total += len(data)
        if self._total > self._limit:
            verb = "unpacks to" if self._file.packed else "has"
            raise self._file.error(
                None,
                f"{verb} more than {self._limit / 1e9:.2g} GB of text, too much for a graph that "
                "this machine can hold",
            )
        buffer[: len(data)] = data
        return len(data)


@dataclass(frozen=True)
class Reading:
    """What a format's reader returns.

    Attributes
    ----------
    graph : Graph
    weighted : bool
        Whether the file has weights.
    lines : sequence of int
        The line where each node is first named, where that is known.
    """

    graph: Graph
    weighted: bool = True
    lines: Sequence[int] = ()


def quote(text: str) -> str:
    """The text in quotes, cut to 60 characters, for a message."""
    text = text.strip()
    return repr(text if len(text) <= 60 else text[:57] + "...")


def plain(text: str) -> bool:
    """Whether numbers in the text are as other languages write them, not ``1_0`` or ``١``."""
    return "_" not in text and text.isascii()


def real(word: str) -> float:
    """A number in plain digits, ``nan`` or ``inf``."""
    if not plain(word):
        raise ValueError(word)
    return float(word)


class NumberedEdges:
    """Edges between nodes 1 … n, checked as they are read, of which a line promises m.

    Parameters
    ----------
    file : File
    n, m : int
        Number of nodes and edges that the file promises.
    promised : int
        The line that does.
    what : str
        What the format calls its edges.
    """

    def __init__(self, file: File, n: int, m: int, promised: int, what: str) -> None:
        self.file, self.n, self.m, self.promised, self.what = file, n, m, promised, what
        self._row, self._col, self._weight = array("q"), array("q"), array("d")

    def add(self, line: int, start: int, end: int, weight: float) -> None:
        """Append an edge of a line."""
        if len(self._row) == self.m:
            raise self.file.error(
                line, f"more than the {self.m} {self.what} promised on line {self.promised}"
            )
        if not (0 < start <= self.n and 0 < end <= self.n):
            node = end if 0 < start <= self.n else start
            raise self.file.error(line, f"node {node} is out of range: nodes are 1 to {self.n}")
        # Not even inf: it is also what a number too large for a float reads as.
        if not math.isfinite(weight):
            raise self.file.error(line, f"weight {weight}; expected a finite number")
        self._row.append(start - 1)
        self._col.append(end - 1)
        self._weight.append(weight)

    def graph(self, last: int, *, directed: bool, **known: Any) -> Graph:
        """The graph, after the last line of the file."""
        if len(self._row) < self.m:
            raise cut_short(self.file, last, len(self._row), self.m, self.what, self.promised)
        row, col = (np.array(x, dtype=np.int64) for x in (self._row, self._col))
        weight: NDArray[np.float64] = np.array(self._weight, dtype=np.float64)
        return Graph(NumberLabels(1, self.n), row, col, weight, directed, **known)


def cut_short(
    file: File, last: int, found: int, m: int, what: str, promised: int
) -> GraphFileError:
    """The error for a file that ends too soon."""
    return file.error(
        last,
        f"the file ends after {found} of the {m} {what} promised on line {promised}; is it cut "
        "short?",
    )
