"""``semiring-mm nearest``: the nearest of some facilities to every node."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

import semiring_mm as sm

from .compute import refused
from .graph import Finder, GivenGraph, read_network, read_nodes
from .options import Refusal
from .report import finish_rows, warn
from .streets import has_points, places_of
from .tables import Columns, print_data

__all__ = ["run"]


def run(args: argparse.Namespace, _: contextlib.ExitStack) -> int:
    """Run the command and return its exit code."""
    given, net = read_network(args, sums=True)
    if given.streets is not None and has_points(args.facilities):
        return _of_places(args, given)
    find = Finder(given.graph)
    places = [k for (k,) in read_nodes("--facilities", args.facilities, find, given.notes)]
    warnings = warn(given, chosen=True)
    if args.explain:
        print_data(f"{sm.explain(net or given.numbered, use='nearest', sources=places)}\n")
        return 0
    graph: Any = given.numbered if net is None else net
    facilities = places if net is None else [net.nodes[k] for k in places]
    with refused(given):
        found = sm.nearest(graph, facilities, args.k, outward=args.outward)
    return _told(args, given, found, given.graph.nodes, warnings)


def _of_places(args: argparse.Namespace, given: GivenGraph) -> int:
    """The same for facilities that are places on streets."""
    if args.explain:
        raise Refusal("--explain is for facilities that are nodes")
    warnings = warn(given, chosen=True)
    places, _ = places_of(args, args.facilities, given.streets)
    found = given.streets.nearest(places, args.k, outward=args.outward)
    return _told(args, given, found, [*given.graph.nodes, *places.ids], warnings)


def _told(
    args: argparse.Namespace, given: GivenGraph, found: sm.Nearest, labels: Sequence[str],
    warnings: Sequence[str],
) -> int:  # fmt: skip
    """Write or print what was found."""
    node, rank = np.nonzero(found.facility >= 0)
    columns: Columns = {
        "node": [labels[k] for k in node.tolist()],
        "rank": rank + 1,
        "facility": [labels[k] for k in found.facility[node, rank].tolist()],
        "distance": found.distance[node, rank],
    }
    if without := int((found.facility[:, 0] < 0).sum()):
        given.notes.append(f"{without:,} nodes have no path to a facility and are left out")
    return finish_rows(args, given, warnings, columns)
