"""``semiring-mm apsp``: read a graph, find its best paths, print and write what is asked for."""

from __future__ import annotations

import argparse
import contextlib
import os

from .compute import save, solve
from .graph import Finder, read, read_pairs
from .options import Refusal, check_outputs, check_tiles
from .report import plot, print_path, print_summary, write_pairs

__all__ = ["run"]


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    if (args.start is None) != (args.end is None):
        raise Refusal("--from and --to go together: --from A --to B")
    if args.semiring != "min_plus" and (args.max_hops or args.method != "auto"):
        raise Refusal(f"--max-hops and --method are for min_plus, not {args.semiring}")
    check_tiles(args)
    check_outputs(args)
    if args.threads:
        # Before the engine is loaded: it starts its threads once.
        os.environ["SEMIRING_MM_NUM_THREADS"] = str(args.threads)

    given = read(args)
    graph = given.graph
    if graph.n == 0:
        raise Refusal(f"{args.graph}: the graph has no nodes")
    find = Finder(graph)
    ends = (find(args.start), find(args.end)) if args.start is not None else None
    pairs = read_pairs(args.pairs, find) if args.pairs is not None else None

    with contextlib.ExitStack() as stack:
        asked = args.summary or not (args.output or args.predecessors or pairs or ends or args.plot)
        sources = _sources(args, asked, ends, pairs)
        result = solve(args, given, stack, sources)
        code = 0
        path: list[int] = []
        if ends is not None:
            path = result.path(*ends)
            if not path:
                code = 1
            else:
                print_path(result, path)
        if asked:
            if path:
                print()
            print_summary(args, result)
        if (asked or path) and not args.quiet:
            for note in graph.notes:
                print(f"note: {note}")
        if args.plot and not (result.done and os.path.exists(args.plot)):
            plot(args, result, path, ends)
        if args.predecessors and not result.stored:
            save(args.predecessors, result.predecessors)
        if args.output and args.output.lower().endswith(".npy") and not result.stored:
            save(args.output, result.values, result.mapped)
        if pairs is not None:
            write_pairs(args, result, pairs)
        if code:
            assert ends is not None
            a, b = (graph.nodes[k] for k in ends)
            raise Refusal(f"there is no path from {a} to {b}", 1)
    return code


def _sources(
    args: argparse.Namespace, asked: bool, ends: tuple[int, int] | None,
    pairs: list[tuple[int, int]] | None,
) -> list[int] | None:  # fmt: skip
    """The nodes from which paths are asked for; None: from all of them."""
    table = args.output and args.output.lower().endswith(".csv") and pairs is not None
    if asked or args.plot or args.predecessors or (args.output and not table):
        return None
    return sorted({i for i, _ in (*(pairs or ()), *((ends,) if ends else ()))})
