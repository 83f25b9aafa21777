"""``semiring-mm flows``: what the edges of a graph carry if every trip takes a shortest path."""

from __future__ import annotations

import argparse
import contextlib
from dataclasses import replace
from typing import Any

import numpy as np

import semiring_mm as sm

from ..files import Graph, read_graph
from ..text import NumberFormat
from .compute import refused, watched
from .graph import Finder, GivenGraph, read_network
from .options import Refusal
from .report import finish_rows, graph_name, summary, warn
from .tables import Columns, number, print_data

__all__ = ["run"]


def run(args: argparse.Namespace, stack: contextlib.ExitStack) -> int:
    """Run the command and return its exit code."""
    given, net = read_network(args, sums=True)
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
    told = {name: number(getattr(found, name)) for name in ("trips", "without_path", "distance")}
    return finish_rows(
        args, given, warnings, columns, found=told,
        lines=lambda: _summary(args, given, found) if args.output else [],
    )  # fmt: skip


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
