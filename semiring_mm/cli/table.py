"""``semiring-mm table``: the values of best paths between chosen nodes, as a matrix with labels."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import semiring_mm as sm

from ..progress import Watched, reporter
from .compute import watched
from .graph import Finder, GivenGraph, read_network, read_nodes
from .options import Refusal, check_disk, check_labels
from .prepare import prepared
from .report import finish, warn
from .tables import Wide, print_data, write_labels, write_wide

__all__ = ["check", "run"]

_ENTRIES = 1 << 24  # of a table that are computed at a time
_ROWS = 64  # that are worth a sweep


def check(args: argparse.Namespace) -> None:
    """Refuse a table of all pairs."""
    if not any((args.start, args.start_file, args.end, args.end_file)):
        raise Refusal(
            "say from where or to where: --from A or --from-file a.csv, --to B or --to-file b.csv; "
            "what is left out stands for all nodes"
        )


def run(args: argparse.Namespace, stack: contextlib.ExitStack) -> int:
    """Run the command and return its exit code."""
    chosen = args.semiring is not None
    given, net = read_network(args)
    find = Finder(given.graph)
    start, end = (
        _chosen(f"--{word}-file", words, file, find, given)
        for word, words, file in (
            ("from", args.start, args.start_file), ("to", args.end, args.end_file)
        )
    )  # fmt: skip
    rows, columns = ([given.graph.nodes[k] for k in x.tolist()] for x in (start, end))
    files = _labels_files(args, rows, columns)
    warnings = warn(given, chosen)
    if net is None:
        net = prepared(args, given, stack)
    if args.explain:
        print_data(f"{len(rows):,} x {len(columns):,} entries of {sm.explain(net)}\n")
        return 0
    parts = _parts(net, start, end, args.device, watched(args, stack))
    none = net.semiring.identities(net.dtype)[0]
    table = Wide(rows, columns, net.dtype, parts, none, net.semiring.zero)
    written = {}
    if args.output:
        size = len(rows) * len(columns) * net.dtype.itemsize
        check_disk(args.output, "the table takes", size)
        write_wide(args.output, table)
        for file, some in files.items():
            write_labels(file, some)
        written[args.output] = f"{len(rows):,} × {len(columns):,}, {net.dtype}"
        written |= {str(file): "" for file in files}
    data = None if args.output else table.as_csv()
    finish(
        args, given, warnings, written, lambda: {} if args.output else table.as_json(), data=data
    )
    return 0


def _chosen(
    option: str, words: Sequence[str] | None, file: str | None, find: Finder, given: GivenGraph
) -> NDArray[np.int64]:
    """The nodes of a file, or of words; all without either."""
    if file is not None:
        return np.array(read_nodes(option, file, find, given.notes))[:, 0]
    return np.arange(given.graph.n) if words is None else np.array([find(word) for word in words])


def _parts(
    net: sm.PreparedGraph, start: NDArray[np.int64], end: NDArray[np.int64], device: str | None,
    work: Watched,
) -> Iterator[NDArray[Any]]:  # fmt: skip
    """The table, some rows at a time."""
    lines = max(_ROWS, _ENTRIES // max(1, len(end)))
    tick = reporter(work, float(len(start)) * len(end), "sweeps", "entries")
    targets = [net.nodes[k] for k in end.tolist()]
    for first in range(0, len(start), lines):
        some = [net.nodes[k] for k in start[first : first + lines].tolist()]
        yield np.asarray(net.distances(some, targets, device=device))
        if tick is not None:
            tick(float(first + len(some)) * len(end))


def _labels_files(
    args: argparse.Namespace, rows: Sequence[str], columns: Sequence[str]
) -> dict[Path, Sequence[str]]:
    """The files for the labels of the rows and columns, which T.npy has not."""
    target = args.output or ""
    if target.lower().endswith(".npy"):
        files = {
            Path(target).with_suffix(f".{word}.txt"): some
            for word, some in (("from", rows), ("to", columns))
        }
        for file, some in files.items():
            check_labels(target, file, some, args, "T.csv or T.parquet")
        return files
    names = ["from", *columns]
    if target.lower().endswith(".parquet") and len({*names}) < len(names):
        twice = next(x for k, x in enumerate(names) if x in names[:k])
        raise Refusal(
            f"{target}: the names of columns have to differ, and two would be {twice!r}; write "
            f"--output T.csv or T.npy"
        )
    return {}
