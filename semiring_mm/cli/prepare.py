"""``semiring-mm prepare``: read a graph, prepare it for many questions, and save that."""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from typing import Any

import semiring_mm as sm

from . import options
from .compute import refused, watched
from .graph import GivenGraph, read
from .options import Parser, Refusal
from .report import graph_name, print_lines, remark, remark_notes, warn

__all__ = ["add_options", "prepared", "preparing_options", "run"]


def add_options(command: Parser) -> None:
    """Add what ``semiring-mm prepare`` takes."""
    options.graph_options(command, prepared=False)
    work = command.add_argument_group("the computation")
    preparing_options(work)
    options.threads_option(work)
    out = options.output_file(
        command, "the prepared graph: sm.load(path)", file="NET.npz", required=True
    )
    options.output_manner(out)


def preparing_options(work: argparse._ArgumentGroup) -> None:
    """Add how a graph is prepared."""
    options.semiring_option(work)
    work.add_argument(
        "--order",
        choices=("auto", "minimum_degree", "nested_dissection"),
        help="in which nodes are eliminated; default auto: nested dissection by METIS where it is "
        "installed and the graph has more than 1000 nodes",
    )
    work.add_argument(
        "--dtype",
        choices=("float64", "float32", "int64", "int32"),
        help="of the weights and results; default float64",
    )


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    options.check_names(args, {"--output": (args.output, (".npz",))})
    with options.settings(args):
        chosen = args.semiring is not None
        args.semiring = args.semiring or "min_plus"
        given = read(args)
        warnings = warn(given, chosen)
        start = time.perf_counter()
        net = prepared(args, given, labelled=True)
        seconds = time.perf_counter() - start
        net.save(args.output)
    structure = net.metric.structure
    found: dict[str, Any] = {
        "nodes": structure.n, "edges": given.edges(), "fill_edges": len(structure.head),
        "core": structure.core, "depth": int(structure.height.max(initial=-1)) + 1,
    }  # fmt: skip
    if args.json:
        about = {"graph": args.graph, "semiring": args.semiring, "directed": given.graph.directed}
        end = {"seconds": seconds, "warnings": warnings, "notes": given.all_notes}
        print(json.dumps(about | found | end | {"written": [args.output]}, indent=2))
    else:
        lines = [
            ("nodes", f"{found['nodes']:,}"),
            ("edges", f"{found['edges']:,}, {given.direction}"),
            ("weight", given.weight),
            ("fill edges", f"{found['fill_edges']:,}"),
            ("depth", f"{found['depth']:,}"),
            ("core", f"{found['core']:,} nodes"),
            ("time", f"{seconds:.3f} s"),
        ]
        print_lines(f"{graph_name(args)}: prepared for {given.kind.paths}", lines)
        remark_notes(args, given)
    remark(args, f"wrote {args.output}")
    return 0


def prepared(
    args: argparse.Namespace, given: GivenGraph, *, labelled: bool = False
) -> sm.PreparedGraph:
    """The graph prepared as the options ask, its nodes being numbers or `labelled`."""
    if args.semiring == "lor_land" and args.dtype:
        raise Refusal("lor_land has results of dtype bool; leave out --dtype")
    with refused(given), contextlib.ExitStack() as stack:
        return sm.prepare(
            given.graph if labelled else given.numbered, semiring=args.semiring,
            order=args.order or "auto", dtype=args.dtype, progress=watched(args, stack),
        )  # fmt: skip
