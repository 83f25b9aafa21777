"""``semiring-mm nearest``: the nearest of some facilities to every node."""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

import semiring_mm as sm

from . import options
from .compute import refused
from .graph import Finder, chosen_nodes, read_network
from .options import Parser, Refusal
from .report import about, remark, remark_notes, warn
from .tables import Columns, csv_lines, number, print_data, write_columns

__all__ = ["add_options", "run"]


def add_options(command: Parser) -> None:
    """Add what ``semiring-mm nearest`` takes."""
    options.graph_options(command)
    what = command.add_argument_group("the facilities")
    what.add_argument(
        "--facilities",
        required=True,
        metavar="NODES",
        help="a CSV file of nodes, one a row, or 'A,B,C'; of equally near ones the first counts",
    )
    what.add_argument(
        "-k", type=options.positive, default=1, metavar="K", help="how many; default 1"
    )
    what.add_argument(
        "--outward", action="store_true", help="distances from the facilities, not to them"
    )
    work = command.add_argument_group("the computation")
    options.threads_option(work)
    options.explain_option(work)
    out = options.output_file(
        command,
        "N.csv, N.csv.gz or N.parquet: a row for each node and facility (node, rank, facility, "
        "distance). Default: CSV is printed",
    )
    options.output_manner(out)


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    accepted = (".csv", ".csv.gz", ".parquet")
    options.check_names(args, {"--output": (args.output, accepted)})
    with options.settings(args):
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    """The same, once the options are in order."""
    given, net = read_network(args)
    if args.semiring != "min_plus":
        raise Refusal(f"{args.graph[0]} is over {args.semiring}, and distances are of min_plus")
    places = chosen_nodes("--facilities", args.facilities, Finder(given.graph), given.notes)
    warnings = warn(given, chosen=True)
    if args.explain:
        print_data(f"{sm.explain(net or given.numbered, use='nearest', sources=places)}\n")
        return 0
    graph: Any = given.numbered if net is None else net
    facilities = places if net is None else [net.nodes[k] for k in places]
    with refused(given):
        found = sm.nearest(graph, facilities, args.k, outward=args.outward)
    node, rank = np.nonzero(found.facility >= 0)
    labels = given.graph.nodes
    columns: Columns = {
        "node": [labels[k] for k in node.tolist()],
        "rank": rank + 1,
        "facility": [labels[k] for k in found.facility[node, rank].tolist()],
        "distance": found.distance[node, rank],
    }
    if args.output:
        write_columns(args.output, [columns])
    elif not args.json:
        for text in csv_lines([columns]):
            print_data(text)
    if args.json:
        rows = [] if args.output else zip(*(list(x) for x in columns.values()), strict=True)
        table = [
            {"node": a, "rank": int(b), "facility": c, "distance": number(float(d))}
            for a, b, c, d in rows
        ]
        end = {"nearest": table, "written": [args.output] if args.output else []}
        print(json.dumps(about(args, given, warnings) | end, indent=2))
        return 0
    remark(args, f"weight: {given.weight}; edges: {given.edges_as_text}")
    if without := int((found.facility[:, 0] < 0).sum()):
        remark(args, f"note: {without:,} nodes have no path to a facility and are left out")
    remark_notes(args, given)
    if args.output:
        remark(args, f"wrote {args.output} ({len(node):,} rows)")
    return 0
