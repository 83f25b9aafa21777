"""Results as text, CSV and pictures."""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..closures.progress import format_rate
from ..plot import draw
from ..signs import exact
from ..storage import atomic_write
from ..text import NumberFormat
from .compute import Result
from .options import Kind

__all__ = ["plot", "print_path", "print_summary", "write_pairs"]


def _unit(result: Result) -> str:
    return result.given.graph.unit if result.given.kind.unit else ""


def _title(result: Result, path: list[int]) -> str:
    legs = len(path) - 1
    ends = f"{result.given.label(path[0])} → {result.given.label(path[-1])}"
    count = f"{legs} leg{'s' * (legs != 1)}"
    if result.given.kind.path == "any":
        return f"{ends} in {count}"
    value = float(result.value(path[0], path[-1])) if legs else 0.0
    return f"{ends}: {NumberFormat([value], _unit(result))(value)} in {count}"


def print_path(result: Result, path: list[int]) -> None:
    """Print a path leg by leg."""
    kind = result.given.kind
    print(_title(result, path))
    names = result.given.graph.names or [""] * len(result.given.graph.nodes)
    rows = [(result.given.graph.nodes[node], names[node], "", "") for node in path]
    if kind.path != "any" and len(path) > 1:
        legs = [result.given.leg(u, v) for u, v in itertools.pairwise(path)]
        totals = list(itertools.accumulate(legs, kind.join))
        form = NumberFormat([*legs, *totals])
        for k, (leg, total) in enumerate(zip(legs, totals, strict=True), 1):
            rows[k] = (*rows[k][:2], form(leg), form(total))
        unit = f" ({_unit(result)})" if _unit(result) else ""
        total_word = "total" if kind.value == "distance" else kind.value
        rows.insert(0, ("", "", f"leg{unit}", f"{total_word}{unit}"))
    widths = [max(len(row[k]) for row in rows) for k in range(4)]
    for row in rows:
        cells = [row[k].ljust(widths[k]) if k < 2 else row[k].rjust(widths[k]) for k in range(4)]
        print(("  " + "  ".join(cell for cell in cells if cell)).rstrip())


@dataclass(frozen=True)
class _Statistics:
    pairs: int  # ordered pairs i ≠ j with a path
    total: float
    worst: float
    ends: tuple[int, int]
    whole: bool  # whether all values are whole numbers


def _statistics(result: Result) -> _Statistics:
    pairs, total, worst, ends, whole = 0, 0.0, math.nan, (0, 0), True
    sign = 1.0 if result.given.kind.better is min else -1.0
    for row, column, block in result.blocks():
        there = block != result.zero
        own = np.arange(max(row, column), min(row + block.shape[0], column + block.shape[1]))
        there[own - row, own - column] = False
        if not (count := int(np.count_nonzero(there))):
            continue
        pairs += count
        total += float(block.sum(where=there, dtype=np.float64))
        ranked = np.where(there, sign * block.astype(np.float64), -math.inf)
        i, j = divmod(int(ranked.argmax()), block.shape[1])
        if worst != worst or ranked[i, j] > sign * worst:
            worst, ends = float(block[i, j]), (row + i, column + j)
        if whole and block.dtype.kind == "f":
            whole = bool(np.all(block == np.rint(block), where=there))
    return _Statistics(pairs, total, worst, ends, whole)


def print_summary(args: argparse.Namespace, result: Result) -> None:
    """Print size, reach, diameter, average and time."""
    kind = result.given.kind
    n = len(result.given.graph.nodes)
    edges = result.given.edges()
    found = _statistics(result)
    possible = n * (n - 1)
    whole_graph = found.pairs == possible
    strongly = "strongly " if result.given.graph.directed else ""
    share = 100 * found.pairs / possible if possible else 100.0
    # A network that is almost connected is not "100 %".
    percent = "100" if whole_graph else f"{min(share, 99.99):.4g}"
    lines = [
        ("nodes", f"{n:,}"),
        ("edges", f"{edges:,}, {'directed' if result.given.graph.directed else 'undirected'}"),
        (
            "reachable",
            f"{percent} % of {possible:,} ordered pairs, {'' if whole_graph else 'not '}{strongly}"
            "connected",
        ),
    ]
    if found.pairs and kind.path != "any":
        a, b = (result.given.label(node) for node in found.ends)
        form = NumberFormat([found.worst], _unit(result), whole=found.whole)
        lines.append((kind.worst, f"{form(found.worst)}, {a} → {b}"))
        mean = found.total / found.pairs
        lines.append(("average", f"{NumberFormat([mean], _unit(result))(mean)}"))
    work = float(n) ** 3
    # Of a small graph that is the time to compile the kernels: a rate would say nothing.
    rate = (
        f", n³ = {work:.3g} pairs (⊗, ⊕) at {format_rate(work / result.seconds)}"
        if work >= 1e9
        else ""
    )
    lines.append(("time", f"{result.seconds:.3f} s{rate}"))
    print(f"{Path(args.graph).name}: {_paths(kind)}")
    width = max(len(word) for word, _ in lines)
    for word, text in lines:
        print(f"  {word.ljust(width)}  {text}")


def _paths(kind: Kind) -> str:
    return "reachability" if kind.path == "any" else f"{kind.path} paths"


def write_pairs(args: argparse.Namespace, result: Result, pairs: list[tuple[int, int]]) -> None:
    """Write the values of pairs as CSV, to the output's file or to standard output."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["from", "to", result.given.kind.value.replace(" ", "_")])
    for i, j in pairs:
        value = float(result.value(i, j))
        shown = int(value) if math.isfinite(value) and value == int(value) else value
        writer.writerow([result.given.graph.nodes[i], result.given.graph.nodes[j], shown])
    if args.output and args.output.lower().endswith(".csv"):
        with atomic_write(args.output) as part:
            part.write_text(text.getvalue(), encoding="utf-8")
    else:
        print(exact(text.getvalue()), end="")


def plot(
    args: argparse.Namespace, result: Result, path: list[int], ends: tuple[int, int] | None
) -> None:
    """Draw the network with the path, or with that of the worst pair where none is asked for."""
    kind = result.given.kind
    title = f"{Path(args.graph).name}: {_paths(kind)}"
    if not path and ends is None and result.predecessors is not None:
        path = result.path(*_statistics(result).ends)
    if len(path) > 1:
        title = _title(result, path)
    graph = replace(result.given.graph, unit=_unit(result))
    with atomic_write(args.plot) as part:
        draw(
            str(part),
            result.values,
            graph,
            path=path,
            value=kind.value,
            missing=result.zero,
            title=title,
        )
