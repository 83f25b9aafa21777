"""``semiring-mm apsp``: read a graph, find its best paths, print and write what is asked for."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..files.columns import FROM, TO
from .compute import Result, asks_net, explained, from_net, save, solve
from .graph import Finder, read_network, read_nodes
from .options import (
    Refusal,
    check_labels,
    check_paths,
    check_tiles,
    given_files,
    in_tiles,
    is_matrix,
    is_table,
)
from .report import Report, finish, warn
from .tables import (
    all_pairs,
    csv_lines,
    print_data,
    some_pairs,
    write_columns,
    write_labels,
)

__all__ = ["check", "run"]

Pairs = list[tuple[int, int]]


def check(args: argparse.Namespace) -> None:
    """Refuse options that exclude each other."""
    check_paths(args)
    check_tiles(args)


def run(args: argparse.Namespace, stack: contextlib.ExitStack) -> int:
    """Run the command and return its exit code."""
    chosen = args.semiring is not None
    given, net = read_network(args, dense=True, tiles=in_tiles(args))
    if net is not None:
        check_paths(args)  # now that its semiring is known
        chosen = True
    graph = given.graph
    if graph.n == 0:
        raise Refusal(f"{', '.join(args.graph)}: the graph has no nodes")
    if given.ways is not None and in_tiles(args):
        raise Refusal(
            "no path passes through a zone centroid, but in a matrix of several devices or in "
            "files: leave out --devices, --scheduler, --memory-limit, --checkpoint, --resume and "
            ".zarr, or add --through"
        )
    find = Finder(graph)
    ends = (find(args.start), find(args.end)) if args.start is not None else None
    pairs: Pairs | None = None
    if args.pairs is not None:
        rows = read_nodes("--pairs", args.pairs, find, given.notes, (FROM, TO))
        pairs = [(i, j) for i, j in rows]
    labels = _labels_file(args, graph.nodes)
    warnings = warn(given, chosen)

    asked = args.summary or not (args.output or args.predecessors or pairs or ends or args.plot)
    sources = _sources(args, asked, ends, pairs)
    if args.explain:
        print_data(f"{explained(args, given, sources)}\n")
        return 0
    if net is not None and sources is not None and asks_net(args):
        result = from_net(args, given, net, {*(pairs or ()), *([ends] if ends else ())})
    else:
        result = solve(args, given, stack, sources, None if ends else pairs)
    report = Report(args, result, ends)
    written = _write(args, report, pairs, labels)
    shown = None if is_table(args.output) else pairs
    data = None
    if shown is not None:  # in one piece: nothing of it is printed if a label cannot be
        data = ["".join(csv_lines(some_pairs(result, shown, routes=args.routes)))]
    finish(
        args, given, warnings, written, lambda: report.found(asked, shown),
        lambda: report.lines(asked), data,
    )  # fmt: skip
    if ends is not None and not report.path:
        a, b = (graph.nodes[k] for k in ends)
        raise Refusal(f"there is no path from {a} to {b}", 1)
    return 0


def _sources(
    args: argparse.Namespace, asked: bool, ends: tuple[int, int] | None,
    pairs: Pairs | None,
) -> list[int] | None:  # fmt: skip
    """The nodes from which paths are asked for; None: from all of them."""
    table = is_table(args.output) and pairs is not None
    # A map shows one path; without ends it is the worst of all.
    drawn = args.plot and (ends is None or tuple(args.plot_what) != ("map",))
    if asked or drawn or args.predecessors or (args.output and not table):
        return None
    return sorted({i for i, _ in (*(pairs or ()), *((ends,) if ends else ()))})


def _labels_file(args: argparse.Namespace, labels: Sequence[str]) -> Path | None:
    """The file for the labels of the matrix's rows, which is needed where they are not 0, 1, ...

    Also where there is such a file of other labels already.
    """
    target = args.output if is_matrix(args.output) else args.predecessors
    if target is None:
        return None
    file = Path(target).with_suffix(".nodes.txt")
    plain = all(label == str(k) for k, label in enumerate(labels))
    if plain and (not file.exists() or file.resolve() in given_files(args)):
        return None
    check_labels(target, file, labels, args, "D.csv or D.parquet", goes_on=args.resume)
    return file


def _write(
    args: argparse.Namespace, report: Report, pairs: Pairs | None, labels: Path | None
) -> dict[str, str]:
    """Write the files that are asked for; their names, and what is in them."""
    result, written = report.result, {}
    if args.plot and not (result.done and os.path.exists(args.plot)):
        report.plot()
        written[args.plot] = ""
    if result.done:  # what the same work has written already
        return written
    if args.predecessors and not result.stored:
        save(args.predecessors, result.predecessors)
    if is_matrix(args.output):
        if args.output.lower().endswith(".npy") and not result.stored:
            save(args.output, result.values, result.mapped)
        written[args.output] = _shape(result.values)
    elif is_table(args.output):
        some = all_pairs(result) if pairs is None else some_pairs(result, pairs, routes=args.routes)
        count = write_columns(args.output, some)
        written[args.output] = f"{count:,} rows{'' if pairs else _left_out(result, count)}"
    if labels is not None:
        write_labels(labels, result.given.graph.nodes)
        written[str(labels)] = ""
    if args.predecessors:
        written[args.predecessors] = _shape(result.predecessors)
    return written


def _left_out(result: Result, count: int) -> str:
    n = result.given.graph.n
    without = n * (n - 1) - count
    return f", {without:,} pairs without a path left out" if without else ""


def _shape(array: Any) -> str:
    rows, columns = array.shape
    return f"{rows:,} × {columns:,}, {array.dtype}"
