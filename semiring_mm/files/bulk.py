"""Edges as plain lines of numbers, parsed by NumPy a block at a time.

A reader's own loop takes some two microseconds a line, of which a road network has millions. This
takes a fifth of it, and returns None for a file in which anything is not as plain as can be: the
loop then reads it, or finds the line to name in an error.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..closures.edges import NumberLabels
from .file import NumberedEdges
from .graph import Graph

__all__ = ["listed_edges", "plain_edges"]

_BLOCK = 1 << 20  # bytes: what is known of each stays in the cache
_LONGEST = 18  # digits: such a number fits in 64 bits
_SPACE, _DIGIT, _REAL = 1, 2, 4
_KINDS = np.zeros(256, np.uint8)
_KINDS[list(b" \t\n")] = _SPACE
_KINDS[list(b"0123456789")] = _DIGIT
_KINDS[list(b"+-.eE")] = _REAL


def listed_edges(
    edges: NumberedEdges, lines: Iterator[tuple[int, str]], form: str, comment: str, **known: Any
) -> Graph:
    """The graph of the edges that the rest of a file lists, a line each.

    Parameters
    ----------
    edges : NumberedEdges
        None yet.
    lines : iterator of (int, str)
        Those after the one that promises edges.
    form : str
        What a line has: nodes, numbered from 1, perhaps an ``a`` before and a value behind them.
    comment : str
        What a line begins with that is to be skipped.
    **known
        More fields of `Graph`.
    """
    known["nodes"] = NumberLabels(1, edges.n)
    if (rows := plain_edges(edges, form, comment.encode())) is not None:
        row, col = (rows[:, k].astype(np.int64) - 1 for k in (0, 1))
        weight = rows[:, 2].copy() if rows.shape[1] > 2 else np.ones(len(rows))
        return Graph(row=row, col=col, weight=weight, **known)
    number = edges.promised
    for number, line in lines:
        if line[:1] != comment and line.strip():
            edges.add_line(number, line, form)
    return edges.graph(number, **known)


def plain_edges(edges: NumberedEdges, form: str, comment: bytes) -> NDArray[np.float64] | None:
    """The numbers of all edges of a file without anything unusual; None of any other file."""
    tag = b"a" if form.startswith("a ") else b""
    columns = len(form.split()) - len(tag)
    blocks = [np.empty((0, columns))]
    with edges.file.open() as stream:
        for _ in range(edges.promised):
            line = stream.readline().removesuffix(b"\n").removesuffix(b"\r")
            if not line.isascii() or {0, 13}.intersection(line):  # the loop counts its lines
                return None
        while block := stream.read(_BLOCK):
            rows = _rows(block + stream.readline(), columns, tag, comment)
            if rows is None:
                return None
            blocks.append(rows)
    rows = np.concatenate(blocks)
    ends = rows[:, :2]
    whole = len(rows) == edges.m and np.isfinite(rows).all()
    return rows if whole and ((ends >= 1) & (ends <= edges.n)).all() else None


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
