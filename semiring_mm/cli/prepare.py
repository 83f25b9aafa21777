"""``semiring-mm prepare``: read a graph, prepare it for many questions, and save that."""

from __future__ import annotations

import argparse
import contextlib
import time

import semiring_mm as sm

from .compute import refused, watched
from .graph import GivenGraph, read
from .options import Refusal
from .report import finish, graph_name, summary, warn
from .tables import print_data

__all__ = ["prepared", "run"]


def run(args: argparse.Namespace, stack: contextlib.ExitStack) -> int:
    """Run the command and return its exit code."""
    chosen = args.semiring is not None
    args.semiring = args.semiring or "min_plus"
    given = read(args)
    warnings = warn(given, chosen)
    if args.explain:
        with refused(given):
            print_data(f"{sm.explain(given.labelled, 'prepare', semiring=args.semiring)}\n")
        return 0
    start = time.perf_counter()
    net = prepared(args, given, stack, labelled=True)
    seconds = time.perf_counter() - start
    stack.close()  # the progress
    net.save(args.output)
    structure = net.metric.structure
    fill, core = len(structure.head), structure.core
    depth = int(structure.height.max(initial=-1)) + 1
    title = f"{graph_name(args)}: prepared for {given.kind.paths}"
    finish(
        args, given, warnings, {args.output: ""},
        lambda: {"fill_edges": fill, "core": core, "depth": depth, "seconds": seconds},
        lambda: summary(title, [
            ("nodes", f"{given.graph.n:,}"),
            ("edges", given.edges_as_text),
            ("weight", given.weight),
            ("fill edges", f"{fill:,}"),
            ("depth", f"{depth:,}"),
            ("core", f"{core:,} nodes"),
            ("time", f"{seconds:.3f} s"),
        ]),
    )  # fmt: skip
    return 0


def prepared(
    args: argparse.Namespace, given: GivenGraph, stack: contextlib.ExitStack, *,
    labelled: bool = False,
) -> sm.PreparedGraph:  # fmt: skip
    """The graph prepared as the options ask, its nodes being numbers or `labelled`."""
    if args.semiring == "lor_land" and args.dtype:
        raise Refusal("lor_land has results of dtype bool; leave out --dtype")
    with refused(given):
        return sm.prepare(
            given.labelled if labelled else given.numbered, semiring=args.semiring,
            order=args.order or "auto", dtype=args.dtype, progress=watched(args, stack),
        )  # fmt: skip
