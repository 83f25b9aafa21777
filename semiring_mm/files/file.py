"""A file as lines of text or as bytes, unpacked within limits; and errors that name its lines."""

from __future__ import annotations

import contextlib
import importlib
import io
import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..closures.edges import NumberLabels
from ..memory import free_memory
from ..naming import optional
from .graph import Graph

__all__ = [
    "PACKINGS", "File", "GraphFileError", "NumberedEdges", "Reading", "cut_short", "plain",
    "quote", "real",
]  # fmt: skip

#: A result has n² entries, so that a larger number of nodes is a mistake in the file.
MAX_NODES = 50_000_000
#: Compressed text of graphs is up to some thirty times smaller; what unpacks to much more is none.
_MAX_RATIO = 100
_MIN_LIMIT = 64 << 20  # bytes that any compressed file may unpack to
_MAX_MESSAGE = 500  # characters of a message: it may quote the file
#: Compressions, by the extension behind that of the format.
PACKINGS = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "Zstandard"}


class GraphFileError(ValueError):
    """A file that is not the graph it should be; the text starts with path and line number."""

    __module__ = "semiring_mm.files"  # where users import it from


@dataclass(frozen=True)
class File:
    """A file to read a graph from."""

    path: Path  # for a stream, its name in messages
    format: str = ""  # an extension that goes before that of the path, with a dot; or ""
    data: bytes | None = None  # what a stream held

    @classmethod
    def of(cls, source: str | PathLike[str] | BinaryIO, format: str | None = None) -> File:
        """The file at a path, or what is left of a stream of bytes."""
        if format is not None and not isinstance(format, str):
            raise TypeError(f"format is an extension such as 'csv', got {format!r}")
        kind = "." + format.lower().removeprefix(".") if format else ""
        if isinstance(source, (str, PathLike)):
            path = Path(source)
            if path.is_dir():
                raise cls(path).error(
                    None, "it is a directory: give a file, or several, which make one graph"
                )
            if not (path.is_fifo() or path.is_char_device()):
                return cls(path, kind)
            with path.open("rb") as stream:
                return cls.of(stream, format)
        text: Any = source
        if not hasattr(source, "read") or isinstance(text, io.TextIOBase):
            raise TypeError(
                "a graph is read from a path, a list of paths or a stream of bytes such as "
                f"sys.stdin.buffer, got {type(source).__name__}"
            )
        name = getattr(source, "name", None)
        file = cls(Path(name if isinstance(name, str) else "<stream>"), kind)
        limit = _share(4)
        data = source.read(limit + 1)  # readers look at a file twice
        if len(data) > limit:
            raise file._too_large(limit)
        return cls(file.path, kind, data)

    @property
    def packing(self) -> str:
        """The extension of a compression, or ""."""
        suffixes = (Path("x" + self.format).suffix, self.path.suffix.lower())
        return next((suffix for suffix in suffixes if suffix in PACKINGS), "")

    @property
    def kind(self) -> str:
        """The extension that names the format, without that of a compression behind it."""
        name = f"x{self.format}" if self.format else self.path.name.lower()
        return Path(name.removesuffix(self.packing)).suffix

    def error(self, line: int | None, message: str) -> GraphFileError:
        """The exception to raise for a line, or for the file as a whole (None or 0)."""
        message = " ".join(message.split())
        if len(message) > _MAX_MESSAGE:
            message = message[: _MAX_MESSAGE - 3] + "..."
        return GraphFileError(f"{self.path}{f':{line}' if line else ''}: {message}")

    def out_of_range(self, line: int, node: int, n: int) -> GraphFileError:
        """The exception to raise for a number that is none of n nodes."""
        return self.error(line, f"node {node} is out of range: nodes are 1 to {n}")

    def _too_large(self, limit: int) -> GraphFileError:
        verb = "unpacks to" if self.packing else "has"
        return self.error(
            None,
            f"{verb} more than {limit / 1e9:.2g} GB of text, too much for a graph that this "
            "machine can hold",
        )

    def raw(self) -> BinaryIO:
        """The bytes as they are stored."""
        return self.path.open("rb") if self.data is None else io.BytesIO(self.data)

    @contextlib.contextmanager
    def open(self, share: int = 4) -> Iterator[io.BufferedReader]:
        """The unpacked bytes, at most ``1 / share`` of the free memory."""
        limit = _share(share)
        with contextlib.ExitStack() as stack:
            stream = stack.enter_context(self.raw())
            if self.packing:
                size = stream.seek(0, io.SEEK_END)
                stream.seek(0)
                limit = min(limit, max(_MIN_LIMIT, _MAX_RATIO * size))
                stream = stack.enter_context(self._unpacked(stream))
            yield io.BufferedReader(_Limited(self, stream, limit), 1 << 16)

    def _unpacked(self, stream: BinaryIO) -> BinaryIO:
        """A stream of the bytes that a compressed stream stands for."""
        name = {".gz": "gzip", ".bz2": "bz2", ".xz": "lzma"}.get(self.packing)
        opened: Any = importlib.import_module(name) if name else _zstd(self)
        unpacked: BinaryIO = opened.open(stream)
        return unpacked

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


def _share(share: int) -> int:
    """That part of the free memory, in bytes."""
    free = free_memory()
    return (1 << 62) if free is None else free // share


def _zstd(file: File) -> Any:
    """Python's module for Zstandard, which is in 3.14, or its backport."""
    try:
        return importlib.import_module("compression.zstd")
    except ModuleNotFoundError:
        use = f"{file.path}: .zst files are read with Python 3.14 or backports.zstd"
        return optional("backports.zstd", use, "io")


class _Limited(io.RawIOBase):
    """A stream that ends in an error beyond a number of bytes, or where packed data are damaged."""

    def __init__(self, file: File, stream: BinaryIO, limit: int) -> None:
        self._file, self._stream, self._limit, self._total = file, stream, limit, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._stream.read(len(buffer))
        except Exception as error:  # each decompressor has its own
            if not self._file.packing or getattr(error, "errno", None) is not None:
                raise
            kind = PACKINGS[self._file.packing]
            raise self._file.error(None, f"not a whole {kind} file ({error})") from None
        self._total += len(data)
        if self._total > self._limit:
            raise self._file._too_large(self._limit)
        buffer[: len(data)] = data
        return len(data)


@dataclass(frozen=True)
class Reading:
    """What a format's reader returns."""

    graph: Graph  # with `weight_source` where it is weighted, and `direction_source`
    weighted: bool = True  # whether its weights are of the file
    lines: Sequence[int] = ()  # the line where each node is first named, where that is known
    unused: Sequence[str] = ()  # columns or attributes of numbers that are not the weights
    # (m,): of a directed graph, the edges that lead both ways
    two_way: NDArray[np.bool_] | None = None


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
    """Edges between nodes 1 … n, checked as they are read, of which a line may promise m.

    Parameters
    ----------
    file : File
    n : int
    m : int, optional
        Number of nodes and edges that the file promises.
    promised : int
        The line that does.
    what : str
        What the format calls its edges.
    largest : int, optional
        The largest number of a node, if not n.
    """

    def __init__(
        self, file: File, n: int, m: int | None, promised: int, what: str, largest: int = 0
    ) -> None:
        self.largest = largest or n
        self.file, self.n, self.m, self.promised, self.what = file, n, m, promised, what
        self._row, self._col, self._weight = array("q"), array("q"), array("d")

    def add_line(self, number: int, line: str, form: str) -> None:
        """Append the edge of a line FROM TO; the `form` may have an a before and a value behind."""
        words, tag = line.split(), ["a"] if form.startswith("a ") else []
        try:
            if len(words) != 1 + form.count(" ") or words[: len(tag)] != tag or not plain(line):
                raise ValueError
            start, end, *value = words[len(tag) :]
            edge = int(start), int(end), float(value[0]) if value else 1.0
        except ValueError:
            raise self.file.error(number, f"expected '{form}', got {quote(line)}") from None
        self.add(number, *edge)

    def add(self, line: int, start: int, end: int, weight: float) -> None:
        """Append an edge of a line."""
        if len(self._row) == self.m:
            raise self.file.error(
                line, f"more than the {self.m} {self.what} promised on line {self.promised}"
            )
        for node in (start, end):
            if not 0 < node <= self.largest:
                raise self.file.out_of_range(line, node, self.n)
        # Not even inf: it is also what a number too large for a float reads as.
        if not math.isfinite(weight):
            raise self.file.error(line, f"weight {weight}; expected a finite number")
        self._row.append(start - 1)
        self._col.append(end - 1)
        self._weight.append(weight)

    def graph(self, last: int, *, directed: bool, **known: Any) -> Graph:
        """The graph, after the last line of the file."""
        if self.m is not None and len(self._row) < self.m:
            raise cut_short(self.file, last, len(self._row), self.m, self.what, self.promised)
        row, col = (np.array(x, dtype=np.int64) for x in (self._row, self._col))
        weight: NDArray[np.float64] = np.array(self._weight, dtype=np.float64)
        known = {"nodes": NumberLabels(1, self.n)} | known
        return Graph(row=row, col=col, weight=weight, directed=directed, **known)


def cut_short(
    file: File, last: int, found: int, m: int, what: str, promised: int
) -> GraphFileError:
    """The error for a file that ends too soon."""
    return file.error(
        last,
        f"the file ends after {found} of the {m} {what} promised on line {promised}; is it cut "
        "short?",
    )
