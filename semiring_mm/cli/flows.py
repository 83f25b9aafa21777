"""``semiring-mm flows``: what the edges of a graph carry if every trip takes a shortest path."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

import semiring_mm as sm

from ..files import Graph, read_graph
from ..text import NumberFormat
from .compute import refused, watched
from .graph import Finder, GivenGraph, read_network
from .options import Refusal
from .report import finish, graph_name, summary, warn
from .tables import Columns, csv_lines, number, print_data, write_columns

__all__ = ["run"]


def run(args: argparse.Namespace, stack: contextlib.ExitStack) -> int:
    """Run the command and return its exit code."""
    given, net = read_network(args)
    if args.semiring != "min_plus":
        raise Refusal(f"{args.graph[0]} is over {args.semiring}, and distances are of min_plus")
    graph: Any = given.labelled if net is None else net
    demand = _demand(args, given, graph.nodes)
    warnings = warn(given, chosen=True)
    if args.explain:
        ends = [demand.row] if demand.directed else [demand.row, demand.col]
        made = (demand.weight > 0) & (demand.row != demand.col)
        begins = np.unique([x[made] for x in ends])
        origins = [demand.nodes[k] for k in begins.tolist()]
        with refused(given):
            print_data(f"{sm.explain(graph, 'flows', sources=origins)}\n")
        return 0
    with refused(given):
        found = sm.flows(graph, demand, ties=args.ties or "share", progress=watched(args, stack))
    stack.close()  # the progress
    edges, labels = given.graph, np.array([*given.graph.nodes], object)
    columns: Columns = {
        "from": labels[edges.row], "to": labels[edges.col], "weight": edges.weight,
        "load": found.load,
    }  # fmt: skip
    if found.without_path:
        given.notes.append(f"{found.without_path:,.8g} trips have no path and are left out")
    written: dict[str, str] = {}
    data: Iterable[str] | None = None
    if args.output:
        written[args.output] = f"{write_columns(args.output, [columns]):,} rows"
    else:
        data = csv_lines([columns])

    def table() -> dict[str, Any]:
        rows = [] if args.output else zip(
            *(np.asarray(x).tolist() for x in columns.values()), strict=True
        )  # fmt: skip
        return {
            "trips": number(found.trips), "without_path": number(found.without_path),
            "distance": number(found.distance),
            "flows": [
                {"from": a, "to": b, "weight": number(w), "load": number(x)} for a, b, w, x in rows
            ],
        }  # fmt: skip

    def lines() -> list[str]:
        return _summary(args, given, found) if args.output else []

    finish(args, given, warnings, written, table, lines, data)
    return 0


def _demand(args: argparse.Namespace, given: GivenGraph, nodes: Any) -> Graph:
    """The trips of a file, between nodes as the graph has them."""
    demand = read_graph(args.demand, weight=args.trips)
    find = Finder(given.graph)
    try:
        places = [find(word) for word in demand.nodes]
    except Refusal as refusal:
        raise Refusal(f"{args.demand}: {refusal}") from None
    if (demand.weight < 0).any():
        k = int((demand.weight < 0).argmax())
        u, v = (demand.nodes[x[k]] for x in (demand.row, demand.col))
        raise Refusal(
            f"{args.demand}: trips are not negative, got {demand.weight[k]:g} from {u} to {v}"
        )
    return replace(demand, nodes=[nodes[k] for k in places])


def _summary(args: argparse.Namespace, given: GivenGraph, found: sm.Flows) -> list[str]:
    lines = [("edges", given.edges_as_text), ("trips", f"{found.trips:,.8g}")]
    made = found.trips - found.without_path
    if made:
        total, mean = (
            NumberFormat([x], given.unit)(x) for x in (found.distance, found.distance / made)
        )
        lines.append(("distance", f"{total}, {mean} a trip"))
    if found.load.any():
        k = int(found.load.argmax())
        ends = (given.label(int(x[k])) for x in (given.graph.row, given.graph.col))
        lines.append(("largest load", f"{found.load[k]:,.8g}, {' → '.join(ends)}"))
    return summary(f"{graph_name(args)}: flows", lines)
