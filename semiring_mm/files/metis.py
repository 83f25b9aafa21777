"""METIS and Chaco, ``.graph``: a line for each node, with its neighbours."""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..closures.edges import NumberLabels
from .file import File, Reading, cut_short, plain, quote
from .graph import Graph

__all__ = ["read"]


@dataclass(frozen=True)
class _Header:
    """The line ``NODES EDGES [FORMAT [NODE_WEIGHTS]]``."""

    line: int
    n: int
    m: int
    skipped: int  # words before a line's neighbours: the node's size (in Chaco its number), weights
    weighted: bool  # whether each neighbour has a weight behind it


def read(file: File, weight: str | None) -> Reading:
    """The undirected graph of lines of neighbours; an empty line is a node without any."""
    header: _Header | None = None
    row, col, values, lines = array("q"), array("q"), array("d"), array("q")
    number = 0
    for number, line in file.lines():
        if line.startswith("%"):
            continue
        if header is None:
            header = _header(file, number, line) if line.strip() else None
            continue
        if len(lines) == header.n:
            if line.strip():
                raise file.error(
                    number, f"more than the {header.n} nodes promised on line {header.line}"
                )
            continue
        lines.append(number)
        ends, weights = _neighbours(file, number, line, header, len(lines))
        if len(row) + len(ends) > 2 * header.m:
            raise file.error(
                number,
                f"more than the {header.m} edges promised on line {header.line}; each is named at "
                "both ends, and counts once",
            )
        row.extend([len(lines)] * len(ends))
        col.extend(ends)
        values.extend(weights)
    if header is None:
        raise file.error(number, "only comments and blank lines in the file")
    start, end = (np.array(x, dtype=np.int64) - 1 for x in (row, col))
    kept = _once(file, start, end, np.array(values, dtype=np.float64), lines)
    if (found := int(kept.sum())) != header.m:
        raise cut_short(file, number, found, header.m, "edges", header.line)
    # Nodes without a line have no neighbours, since no edge is missing: editors drop empty lines.
    graph = Graph(
        NumberLabels(1, header.n),
        start[kept],
        end[kept],
        np.array(values, dtype=np.float64)[kept],
        directed=False,
        weight_source="number behind each neighbour",
        direction_source="a METIS file lists edges",
    )
    return Reading(graph, header.weighted)


def _header(file: File, number: int, line: str) -> _Header:
    words = line.split()
    form = words[2].zfill(3) if len(words) > 2 else "000"
    if not 2 <= len(words) <= 4 or not re.fullmatch("[01]{3}", form):
        raise file.error(
            number,
            "expected 'NODES EDGES' of a METIS graph, perhaps with a format of 0s and 1s (such as "
            f"011) and a number of node weights, got {quote(line)}",
        )
    n, m = file.count(number, words[0], "nodes"), file.count(number, words[1], "edges")
    weights = file.count(number, words[3], "weights of a node") if len(words) > 3 else 1
    skipped = (form[0] == "1") + (form[1] == "1") * weights
    return _Header(number, n, m, skipped, form[2] == "1")


def _neighbours(
    file: File, number: int, line: str, header: _Header, node: int
) -> tuple[list[int], list[float]]:
    """The neighbours of a node and the weights of the edges to them."""
    words = line.split()
    step = 2 if header.weighted else 1
    try:
        if len(words) < header.skipped or (len(words) - header.skipped) % step or not plain(line):
            raise ValueError
        [int(word) for word in words[: header.skipped]]
        ends = [int(word) for word in words[header.skipped :: step]]
        weights = [float(word) for word in words[header.skipped + 1 :: 2]]
    except ValueError:
        what = ["neighbours"]
        if header.skipped:
            what.insert(0, f"{header.skipped} whole number{'s' * (header.skipped > 1)} and then")
        if header.weighted:
            what.append("each with a weight")
        raise file.error(
            number, f"expected {' '.join(what)}, for node {node}; got {quote(line)}"
        ) from None
    if ends and not (min(ends) > 0 and max(ends) <= header.n):
        end = next(end for end in ends if not 0 < end <= header.n)
        raise file.out_of_range(number, end, header.n)
    if not all(map(math.isfinite, weights)):
        value = next(value for value in weights if not math.isfinite(value))
        raise file.error(number, f"weight {value}; expected a finite number")
    return ends, weights if header.weighted else [1.0] * len(ends)


def _once(
    file: File,
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    weight: NDArray[np.float64],
    lines: array[int],
) -> NDArray[np.bool_]:
    """Which entries to keep so that each edge is there once: it must be named at both its ends."""
    entries = np.stack([start, end, weight])
    up, down = entries[:, start < end], entries[[1, 0, 2]][:, start > end]
    if not np.array_equal(up[:, np.lexsort(up)], down[:, np.lexsort(down)]):
        counts = Counter(zip(start.tolist(), end.tolist(), weight.tolist(), strict=True))
        u, v, w = next((u, v, w) for (u, v, w), k in counts.items() if counts.get((v, u, w)) != k)
        raise file.error(
            lines[u],
            f"node {u + 1} names node {v + 1} (weight {w:.17g}), which does not name it back: in "
            "METIS files each edge is named at both ends, with the same weight",
        )
    kept: NDArray[np.bool_] = start <= end
    return kept
