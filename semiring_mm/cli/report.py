"""Results as text, JSON and pictures."""

from __future__ import annotations

import argparse
import itertools
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..lazy import cached_property
from ..plot import draw
from ..progress import format_rate
from ..storage import atomic_write
from ..text import NumberFormat
from .compute import Result
from .graph import GivenGraph
from .tables import Columns, csv_lines, number, print_data, write_columns

__all__ = [
    "Report", "finish", "finish_rows", "graph_name", "reach_as_text", "remark", "summary", "warn",
]  # fmt: skip

#: What a column of weights is called that does not add up along a path.
_NOT_SUMMED = {
    ("capacity", "widest"): "capacity bandwidth throughput width",
    ("probability", "reliable"): "probability prob reliability likelihood",
}


def remark(args: argparse.Namespace, text: str) -> None:
    """Print what a user may want to know, but not what was asked for."""
    if not args.quiet:
        print(f"semiring-mm: {text}", file=sys.stderr)


def graph_name(args: argparse.Namespace) -> str:
    """What the graph is called."""
    first, *more = args.graph
    name = "standard input" if first == "-" else Path(first).name
    return f"{name} and {len(more)} more" if more else name


def finish(
    args: argparse.Namespace, given: GivenGraph, warnings: Sequence[str],
    written: Mapping[str, str], found: Callable[[], dict[str, Any]],
    lines: Callable[[], Sequence[str]] = list, data: Iterable[str] | None = None,
) -> None:  # fmt: skip
    """Print a result: as JSON; or lines of text and data, and what goes with them.

    Parameters
    ----------
    written : dict of str to str
        The files that were written, and what is in each of them.
    found, lines : callable
        Return what is known of the result, for JSON; and lines that tell it.
    data : iterable of str, optional
        What is printed exactly, after the lines.
    """
    if args.json:
        about = {
            "graph": args.graph,
            "semiring": args.semiring,
            "nodes": given.graph.n,
            "edges": given.edges(),
            "directed": given.graph.directed,
            "direction_source": given.graph.direction_source,
            "weight_source": given.graph.weight_source,
            "weights": given.kind.counted or None,
            "unit": given.unit or None,
            "warnings": [*warnings],
            "notes": given.all_notes,
        }
        print(json.dumps(about | found() | {"written": [*written]}, indent=2))
    else:
        told = lines()
        for line in told:
            print(line)
        for text in data or ():
            print_data(text)
        if not told and (written or data is not None):
            remark(args, f"weight: {given.weight}; edges: {given.edges_as_text}")
        for note in given.all_notes:
            remark(args, f"note: {note}")
    if written:
        words = (f"{name} ({what})" if what else name for name, what in written.items())
        remark(args, f"wrote {', '.join(words)}")


def finish_rows(
    args: argparse.Namespace, given: GivenGraph, warnings: Sequence[str], columns: Columns, *,
    found: Mapping[str, Any] | None = None, lines: Callable[[], Sequence[str]] = list,
    write: Callable[[], int] | None = None, drawn: str | None = None,
) -> int:  # fmt: skip
    """Write a table, or print it if it is not drawn: as :func:`finish`, and the exit code.

    Parameters
    ----------
    found : dict, optional
        What is known besides its rows, for JSON.
    write : callable, optional
        Writes it, and returns the number of rows. Default: as CSV or Parquet.
    drawn : str, optional
        The file of a picture of it.
    """
    write = write or (lambda: write_columns(args.output, [columns]))
    written = {args.output: f"{write():,} rows"} if args.output else {}
    data = None if written or drawn else csv_lines([columns])

    def told() -> dict[str, Any]:
        lists = [x.tolist() if isinstance(x, np.ndarray) else x for x in columns.values()]
        rows = [] if args.output else zip(*lists, strict=True)
        return {**(found or {}), args.command: [
            {x: number(y) if isinstance(y, float) else y for x, y in zip(columns, row, strict=True)}
            for row in rows
        ]}  # fmt: skip

    finish(args, given, warnings, written | ({drawn: ""} if drawn else {}), told, lines, data)
    return 0


def summary(title: str, rows: Sequence[tuple[str, str]]) -> list[str]:
    """Lines of a title, and of a word and a text each."""
    width = max(len(word) for word, _ in rows)
    return [title, *(f"  {word.ljust(width)}  {text}" for word, text in rows)]


def reach_as_text(given: GivenGraph, pairs: int, possible: int, *, some: bool = False) -> str:
    """How many of the possible ordered pairs have a path, those from all nodes or from some."""
    whole = pairs == possible
    share = 100 * pairs / possible if possible else 100.0
    # A network that is almost connected is not "100 %".
    percent = "100" if whole else f"{min(share, 99.99):.4g}"
    strongly = "strongly " if given.graph.directed else ""
    connected = "" if some else f", {'' if whole else 'not '}{strongly}connected"
    return f"{percent} % of {possible:,} ordered pairs{connected}"


def warn(given: GivenGraph, chosen: bool) -> list[str]:
    """Print and return what may make the results mean something else than intended.

    Whether the semiring was `chosen`, or is the default.
    """
    graph, kind = given.graph, given.kind
    texts = [*graph.warnings]
    words = re.split(r"[^a-z]+", graph.weight_source.casefold())
    for (what, semiring), names in _NOT_SUMMED.items():
        if not chosen and not {*names.split()}.isdisjoint(words):
            texts.append(
                f"weight: {given.weight}; for the path of the largest {what} write "
                f"--semiring {semiring}"
            )
    if kind.counted not in ("", "summed") and graph.weight_source.startswith("none"):
        texts.append(f"weight: {given.weight}, and so does every path; choose one with --weight")
    for text in texts:
        print(f"semiring-mm: warning: {text}", file=sys.stderr)
    return texts


@dataclass(frozen=True)
class _Statistics:
    pairs: int  # ordered pairs i ≠ j with a path
    total: float
    worst: float
    ends: tuple[int, int]


@dataclass(frozen=True)
class Report:
    """A result and what is to be told of it."""

    args: argparse.Namespace  # the options
    result: Result
    ends: tuple[int, int] | None  # the nodes of the path that is asked for

    @property
    def given(self) -> GivenGraph:
        return self.result.given

    @cached_property
    def path(self) -> list[int]:
        """The nodes of the path that is asked for; empty if none is, or there is none."""
        return [] if self.ends is None else self.result.path(*self.ends)

    def lines(self, asked: bool) -> list[str]:
        """The path, and the summary if it is `asked` for."""
        told = self._path_lines() if self.path else []
        if asked:
            return [*told, *([""] if told else []), *self._summary_lines()]
        weight = [f"weight  {self.given.weight}", f"edges   {self.given.edges_as_text}"]
        return [*told, *(weight if told else [])]

    # --- the path ---------------------------------------------------------------------------------

    @cached_property
    def _legs(self) -> list[tuple[float, float]]:
        """The legs of the path that is asked for."""
        return self._legs_of(self.path)

    def _legs_of(self, path: list[int]) -> list[tuple[float, float]]:
        """The weight of each leg of a path, and the value of the path as far as its end."""
        legs = self.given.legs(path)
        totals = list(itertools.accumulate(legs, self.given.kind.join))
        if totals:  # not summed again, which would round otherwise
            totals[-1] = float(self.result.value(path[0], path[-1]))
        return list(zip(legs, totals, strict=True))

    def _format(self, value: float, legs: Sequence[float] = (), unit: str = "") -> NumberFormat:
        """The one form of a value, wherever it is shown."""
        return NumberFormat([value] if value else legs, unit, whole=self.given.whole)

    def _title(self, path: list[int], legs: Sequence[tuple[float, float]]) -> str:
        ends = f"{self.given.label(path[0])} → {self.given.label(path[-1])}"
        count = f"{len(legs)} leg{'s' * (len(legs) != 1)}"
        if self.given.kind.path == "any":
            return f"{ends} in {count}"
        value = legs[-1][1] if legs else 0.0
        form = self._format(value, [leg for leg, _ in legs], self.given.unit)
        return f"{ends}: {form(value)} in {count}"

    def _path_lines(self) -> list[str]:
        given, kind, path = self.given, self.given.kind, self.path
        names = given.graph.names or [""] * len(given.graph.nodes)
        rows = [(given.graph.nodes[node], names[node], "", "") for node in path]
        if kind.path != "any" and len(path) > 1:
            form = self._format(self._legs[-1][1], [leg for leg, _ in self._legs])
            for k, (leg, total) in enumerate(self._legs, 1):
                rows[k] = (*rows[k][:2], form(leg), form(total))
            unit = f" ({given.unit})" if given.unit else ""
            total_word = "total" if kind.value == "distance" else kind.value
            rows.insert(0, ("", "", f"leg{unit}", f"{total_word}{unit}"))
        places = [(max(len(row[k]) for row in rows), "<<>>"[k]) for k in range(4)]
        lines = [self._title(path, self._legs)]
        for row in rows:
            cells = (f"{x:{side}{width}}" for x, (width, side) in zip(row, places, strict=True))
            lines.append("  " + "  ".join(filter(None, cells)).rstrip())
        return lines

    # --- the summary ------------------------------------------------------------------------------

    @cached_property
    def _statistics(self) -> _Statistics:
        result = self.result
        pairs, total, worst, ends = 0, 0.0, math.nan, (0, 0)
        sign = 1.0 if self.given.kind.better is min else -1.0
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
        return _Statistics(pairs, total, worst, ends)

    def _summary_lines(self) -> list[str]:
        given, found, work = self.given, self._statistics, self.result.work
        kind, n = given.kind, given.graph.n
        lines = [
            ("nodes", f"{n:,}"),
            ("edges", given.edges_as_text),
            ("weight", given.weight),
            ("reachable", reach_as_text(given, found.pairs, n * (n - 1))),
        ]
        if found.pairs and kind.path != "any":
            a, b = (given.label(node) for node in found.ends)
            form = self._format(found.worst, unit=given.unit)
            lines.append((kind.worst, f"{form(found.worst)}, {a} → {b}"))
            mean = found.total / found.pairs
            lines.append(("average", f"{NumberFormat([mean], given.unit)(mean)}"))
        lines.append(("time", f"{self.result.seconds:.3f} s, {work.method}{self._rate()}"))
        return summary(f"{graph_name(self.args)}: {kind.paths}", lines)

    def _rate(self) -> str:
        """Pairs per second as text, if the work was counted in pairs."""
        work = self.result.work
        # Of a small graph that is the time to compile the kernels: a rate would say nothing.
        if work.unit != "pairs" or work.total < 1e9:
            return ""
        rate = format_rate(work.total / self.result.seconds)
        return f": {work.total:.3g} pairs (⊗, ⊕) at {rate}"

    # --- JSON -------------------------------------------------------------------------------------

    def found(self, asked: bool, pairs: list[tuple[int, int]] | None) -> dict[str, Any]:
        """What is asked for."""
        found: dict[str, Any] = {"summary": self._summary()} if asked else {}
        if self.ends is not None:
            found["path"] = self._path() if self.path else None
        if pairs is not None:
            labels = self.given.graph.nodes
            found["pairs"] = [
                {
                    "from": labels[i],
                    "to": labels[j],
                    "value": number(float(self.result.value(i, j))),
                }
                | ({"path": self.result.labels(i, j)} if self.args.routes else {})
                for i, j in pairs
            ]
        return found | {"method": self.result.work.method, "seconds": self.result.seconds}

    def _summary(self) -> dict[str, Any]:
        n, found = self.given.graph.n, self._statistics
        worst, average = None, None
        if found.pairs and self.given.kind.path != "any":
            a, b = (self.given.graph.nodes[node] for node in found.ends)
            worst = {"value": number(found.worst), "from": a, "to": b}
            average = number(found.total / found.pairs)
        return {
            "pairs": n * (n - 1), "reachable": found.pairs, "worst": worst, "average": average,
        }  # fmt: skip

    def _path(self) -> dict[str, Any]:
        labels = [self.given.graph.nodes[node] for node in self.path]
        ends = itertools.pairwise(labels)
        legs = [
            {"from": a, "to": b, "weight": number(leg), "value": number(total)}
            for (a, b), (leg, total) in zip(ends, self._legs, strict=True)
        ]
        value = number(float(self.result.value(self.path[0], self.path[-1])))
        return {"from": labels[0], "to": labels[-1], "value": value, "legs": legs}

    # --- the picture ------------------------------------------------------------------------------

    def plot(self) -> None:
        """Draw the network with the path, or with that of the worst pair where none is asked."""
        kind, path, result = self.given.kind, self.path, self.result
        title = f"{graph_name(self.args)}: {kind.paths}"
        ranked = kind.path != "any" and result.predecessors is not None
        if not path and self.ends is None and ranked:
            path = result.path(*self._statistics.ends)
        if len(path) > 1:
            title = self._title(path, self._legs if self.path else self._legs_of(path))
        with atomic_write(self.args.plot) as part:
            draw(
                str(part),
                result.values,
                replace(self.given.graph, unit=self.given.unit),
                path=path,
                value=kind.value,
                missing=result.zero,
                title=title,
                what=self.args.plot_what,
            )
