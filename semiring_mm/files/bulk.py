"""Edges as plain lines of numbers, parsed by NumPy a block at a time.

A reader's own loop takes some two microseconds a line, of which a road network has millions. This
takes a fifth of it, and returns None for a file in which anything is not as plain as can be: the
loop then reads it, or finds the line to name in an error.
"""

from __future__ import annotations

import re
import warnings
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..closures.edges import NumberLabels
from .graph import Graph

__all__ = ["plain_edges", "plain_line"]

_BLOCK = 1 << 20  # bytes: what is known of each stays in the cache
_LONGEST = 18  # digits: such a number fits in 64 bits
_SPACE, _DIGIT, _REAL = 1, 2, 4
_KINDS = np.zeros(256, np.uint8)
_KINDS[list(b" \t\n")] = _SPACE
_KINDS[list(b"0123456789")] = _DIGIT
_KINDS[list(b"+-.eE")] = _REAL


def plain_line(line: bytes) -> str | None:
    """The text of a line before the edges, or None where the reader's loop has to look at it."""
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    return line.decode() if line.isascii() and not {0, 13}.intersection(line) else None


def plain_edges(
    stream: BinaryIO,
    n: int,
    m: int,
    *,
    directed: bool,
    weighted: bool = True,
    tag: bytes = b"",
    comment: bytes = b"c",
    **known: Any,
) -> Graph | None:
    """The graph of m lines of two nodes, numbered from 1, and a weight; or None.

    Parameters
    ----------
    stream : file of bytes
        At the start of a line, of which it has nothing but edges and comments.
    n, m : int
        Number of nodes and edges that the file promises.
    directed, weighted : bool
        Whether edges lead one way, and whether lines have weights.
    tag, comment : bytes
        What each line of an edge, and each line to be skipped, begins with.
    **known
        More fields of `Graph`.
    """
    blocks = [np.empty((0, 3 if weighted else 2))]
    while block := stream.read(_BLOCK):
        rows = _rows(block + stream.readline(), blocks[0].shape[1], tag, comment)
        if rows is None:
            return None
        blocks.append(rows)
    rows = np.concatenate(blocks)
    ends = rows[:, :2]
    if len(rows) != m or not ((ends >= 1) & (ends <= n)).all() or not np.isfinite(rows).all():
        return None
    row, col = (ends[:, k].astype(np.int64) - 1 for k in (0, 1))
    weight = rows[:, 2].copy() if weighted else np.ones(m)
    return Graph(NumberLabels(1, n), row, col, weight, directed, **known)


def _rows(block: bytes, columns: int, tag: bytes, comment: bytes) -> NDArray[np.float64] | None:
    """The numbers of whole lines, the first two of each of digits only."""
    block = block.replace(b"\r\n", b"\n")
    if block.startswith(comment) or b"\n" + comment in block:
        # The loop refuses these in comments too, and for it a bare \r ends a line.
        if not block.isascii() or b"\0" in block or b"\r" in block:
            return None
        block = re.sub(rb"(?m)^" + comment + rb".*\n?", b"", block)
    block = b"\n" + block.rstrip() + b"\n"  # every line stands between two ends of lines
    if block == b"\n\n":
        return np.empty((0, columns))
    if tag:
        start = b"\n" + tag + b" "
        if block.count(start) != block.count(b"\n") - 1:
            return None
        block = block.replace(start, b"\n")
    text = np.frombuffer(block, np.uint8)
    kinds = _KINDS[text]
    if not kinds.all():
        return None
    space = kinds == _SPACE
    borders = np.flatnonzero(space[1:] != space[:-1]) + 1
    starts, ends = borders[::2], borders[1::2]  # of the words
    lines = np.flatnonzero(text == ord("\n"))
    if len(starts) != columns * (len(lines) - 1):
        return None
    first, last = starts[::columns], starts[columns - 1 :: columns]
    if (first < lines[:-1]).any() or (last > lines[1:]).any():  # too many words, or too few
        return None
    lengths = (ends - starts).reshape(-1, columns)
    real = np.flatnonzero(kinds == _REAL)
    column = (np.searchsorted(starts, real, "right") - 1) % columns
    if (column < 2).any() or lengths[:, :2].max() > _LONGEST:
        return None
    dtype = np.float64 if len(real) or lengths.max() > _LONGEST else np.int64
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a word such as 1e ends the parse, with a warning
        try:
            numbers = np.fromstring(block, dtype, sep=" ")
        except (DeprecationWarning, ValueError):
            return None
    # Words such as 1-2 are two numbers each to this parser, and none is less than one.
    return numbers.reshape(-1, columns).astype(np.float64) if len(numbers) == len(starts) else None
