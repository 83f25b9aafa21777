"""Betweenness, flows and diameters beside other libraries: ``python -m bench.betweenness``.

Every contender of a line computes the same in the same process, one after the other, in turns.
Two clocks are kept: ``samples`` are seconds of the wall, which the table has, ``processor`` are
seconds of all threads of the process, which other work on the machine stretches less. All
contenders have ``--threads``, by default one. Social graphs are read from the folder that
``SEMIRING_MM_DATA`` names: as20graph.txt (SNAP), PGPgiantcompo.graph (NetworKit's, METIS format)
and musae_PTBR_edges.csv (Twitch). ``--table`` only writes the table into docs/sparse-graphs.md.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

import semiring_mm as sm

from . import report, sparse
from .cases import OURS, Case, Options
from .measure import Contender, Line, sample
from .sparse import part

KIND = "betweenness-cpu"
SOCIAL = ("as20graph", "PGP", "Twitch PTBR", "Erdős–Rényi", "Barabási–Albert")


@functools.lru_cache(maxsize=1)
def social(name: str) -> nx.Graph:
    """An undirected graph without loops, its nodes numbered."""
    if name in ("Erdős–Rényi", "Barabási–Albert"):
        graph = sparse.social(name, (10_000, 3))[0].copy()
    elif name == "PGP":
        lines = sparse.data_file("PGPgiantcompo.graph").read_text().splitlines()[1:]
        graph = nx.Graph((i, int(j) - 1) for i, line in enumerate(lines) for j in line.split())
    elif name == "as20graph":
        graph = nx.read_edgelist(sparse.data_file("as20graph.txt"), nodetype=int)
    elif name == "Twitch PTBR":
        lines = sparse.data_file("musae_PTBR_edges.csv").read_text().splitlines()[1:]
        graph = nx.parse_edgelist(lines, delimiter=",", nodetype=int)
    else:
        graph = sparse.social("Barabási–Albert", (int(name), 3))[0].copy()
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    return nx.convert_node_labels_to_integers(graph)


def network(graph: nx.Graph) -> sparse.Network:
    """The graph's edges, each of length 1."""
    row, col = np.array(graph.edges()).T
    return sparse.Network(len(graph), row, col, np.ones(len(row)))


def titled(name: str, graph: nx.Graph) -> str:
    return f"{name}, {len(graph):,} nodes, {graph.number_of_edges():,} edges"


def values(expected: Any) -> Callable[[Any], None]:
    """A check of numbers of nodes or edges, also in dicts."""

    def check(found: Any) -> None:
        found = list(found.values()) if isinstance(found, dict) else found
        np.testing.assert_allclose(np.asarray(found), expected, 1e-9, 1e-9 * np.max(expected))

    return check


def of_nodes(name: str, options: Options) -> Line:
    """Of all nodes, by hops, from a graph of NetworkX."""
    graph = social(name)
    x = network(graph)
    expected = sm.statistics(x.edges, "betweenness", directed=False).betweenness
    check = values(expected)

    def igraph() -> Contender:
        return part("igraph", sparse.in_igraph(x).betweenness, check=check)

    few, some = (min(k, len(graph)) for k in (20, 500))

    def NetworKit() -> Contender:
        import networkit

        networkit.setNumberOfThreads(options.threads)
        there = sparse.in_networkit(x, weighted=False)

        def call() -> Any:
            return networkit.centrality.EstimateBetweenness(there, some).run().scores()

        return part(f"NetworKit, {some} nodes", call, len(graph) / some)

    def door() -> Any:
        getattr(graph, "__networkx_cache__", {}).clear()
        return nx.betweenness_centrality(graph, normalized=False, backend="semiring_mm")

    def NetworkX() -> Any:
        return nx.betweenness_centrality(graph, k=few, seed=1, backend="networkx")

    def kept() -> Any:
        return nx.betweenness_centrality(graph, normalized=False, backend="semiring_mm")

    def direct() -> Any:
        return sm.statistics(x.edges, "betweenness", directed=False).betweenness

    return sparse.line(
        titled(name, graph),
        [
            part(OURS, door, check=check),
            part("converted before", kept, check=check, ours=True),
            part("sm.statistics", direct, check=check, ours=True),
            igraph,
            NetworKit,
            part(f"NetworkX, {few} nodes", NetworkX, len(graph) / few),
        ],
        most=3,
    )


def of_edges(name: str, _: Options) -> Line:
    """Of all edges, by hops, from a graph of NetworkX."""
    graph = social(name)
    x = network(graph)
    found = sm.statistics(x.edges, "edge_betweenness", directed=False).edge_betweenness
    check = values(found)

    def igraph() -> Contender:
        return part("igraph", sparse.in_igraph(x).edge_betweenness, check=check)

    def door() -> Any:
        getattr(graph, "__networkx_cache__", {}).clear()
        return nx.edge_betweenness_centrality(graph, normalized=False, backend="semiring_mm")

    def direct() -> Any:
        return sm.statistics(x.edges, "edge_betweenness", directed=False).edge_betweenness

    return sparse.line(
        titled(name, graph),
        [
            part(OURS, door, check=check),
            part("sm.statistics", direct, check=check, ours=True),
            igraph,
        ],
        most=3,
    )


def diameter(name: str, options: Options) -> Line:
    """The diameter in hops of the largest component, from edges."""
    graph = social(name)
    graph = nx.convert_node_labels_to_integers(
        graph.subgraph(max(nx.connected_components(graph), key=len))
    )
    x = network(graph)
    expected = sm.statistics(x.edges, "diameter", directed=False).diameter

    def check(found: Any) -> None:
        assert found == expected

    def igraph() -> Contender:
        return part("igraph", sparse.in_igraph(x).diameter, check=check)

    def NetworKit() -> Contender:
        import networkit

        networkit.setNumberOfThreads(options.threads)
        there, exact = sparse.in_networkit(x, weighted=False), networkit.distance.DiameterAlgo.EXACT

        def call() -> Any:
            return networkit.distance.Diameter(there, exact).run().getDiameter()[0]

        return part("NetworKit", call, check=check)

    return sparse.line(
        titled(name, graph),
        [
            part(
                OURS,
                lambda: sm.statistics(x.edges, "diameter", directed=False).diameter,
                check=check,
            ),
            NetworKit,
            igraph,
        ],
        most=5,
    )


def weighted(name: str, _: Options) -> Line:
    """Of all nodes of a road network, by length."""
    x = sparse.network(name)
    some = np.random.default_rng(6).choice(x.n, min(x.n, 100), replace=False)
    every = sm.prepare(x.edges, directed=x.directed)
    expected = sm.statistics(every, "betweenness", sources=some).betweenness

    def igraph() -> Contender:
        there, weight = sparse.in_igraph(x), x.weight.tolist()

        def call() -> Any:
            return there.betweenness(directed=x.directed, weights=weight, sources=some.tolist())

        return part(f"igraph, {len(some)} sources", call, x.n / len(some), values(expected))

    return sparse.line(
        f"{sparse.titled(name)}, {x.n:,} nodes",
        [part(OURS, lambda: sm.statistics(every, "betweenness").betweenness), igraph],
        most=3,
    )


def sampled(name: str, _: Options) -> Line:
    """From some sources of a road network, the time scaled to all."""
    x = sparse.network(name)
    net, few = sparse.prepared(name), x.random(min(2000, x.n), 6)
    there = few[:8].tolist()

    def igraph() -> Contender:
        graph, weight = sparse.in_igraph(x), x.weight.tolist()
        expected = sm.statistics(net, "betweenness", sources=few[:8]).betweenness

        def call() -> Any:
            return graph.betweenness(directed=False, weights=weight, sources=there)

        return part("igraph, 8 sources", call, x.n / 8, values(expected))

    return sparse.line(
        f"{sparse.titled(name)}, {len(few):,} sources, scaled to {x.n:,}",
        [
            part(OURS, lambda: sm.statistics(net, "betweenness", sources=few), x.n / len(few)),
            igraph,
        ],
        most=1,
    )


def gradient(name: str, _: Options) -> Line:
    """A table of distances of weights of PyTorch, and back."""
    import torch

    from semiring_mm.torch import distances

    net, x = sparse.prepared(name), sparse.network(name)
    sources, targets = x.random(min(1000, x.n), 4), x.random(min(1000, x.n), 5)
    weight = torch.tensor(net.edges.weight.astype(np.float64), requires_grad=True)

    def forward() -> Any:
        return distances(net, weight, sources, targets)

    def back() -> Any:
        weight.grad = None
        forward().sum().backward()
        return weight.grad

    return sparse.line(
        f"{sparse.titled(name)}, {len(sources):,}²",
        [part(OURS, back), part("forward alone", forward, ours=True)],
        most=3,
    )


CASES = [
    Case("betweenness, hops", of_nodes, SOCIAL, quick=("60",)),
    Case("diameter, hops", diameter, SOCIAL, quick=("60",)),
    Case("betweenness, weighted", weighted, ("Chicago",), quick=("12",)),
    Case("flows of a demand", sparse.flows, ("Chicago",), quick=("12",)),
    Case("gradient of distances", gradient, ("Chicago",), quick=("12",)),
    Case("betweenness of a sample", sampled, ("NY",), quick=("12",)),
    Case("edge betweenness, hops", of_edges, SOCIAL, quick=("60",)),
]


def table_of(result: dict[str, Any], source: str) -> str:
    """The lines as Markdown."""
    rows = ["| work | graph | time | beside it |", "| --- | --- | --- | --- |"]
    for raw in result["lines"]:
        found = Line.from_raw(raw)
        if found.skipped:
            continue
        others = [
            f"{x.name} {report.seconds(x.median)}" if x.ours else report.compared(found, x)
            for x in found.contenders[1:]
            if x.samples
        ]
        clock = "" if found.ours.processor else ", wall"
        cells = [
            found.case,
            found.size,
            report.seconds(found.ours.median) + clock,
            "; ".join(others),
        ]
        rows.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
    note = (
        "Medians of each call, all contenders in turns in one process, on "
        f"{result['threads']} thread{'s' * (result['threads'] > 1)} if they use several (igraph, "
        f"SciPy and NetworkX use one); × says how many times slower. From some nodes: scaled."
    )
    return "\n".join([*rows, "", report.provenance(result, source, note)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.betweenness", description=__doc__)
    parser.add_argument("--table", action="store_true", help="only write the table again")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does everything run?")
    parser.add_argument("--only", default="", help="only the lines whose names contain this")
    parser.add_argument("--threads", type=int, default=1, metavar="T")
    parser.add_argument("--out", type=Path, metavar="FILE", help="raw results")
    args = parser.parse_args(arguments)
    if args.table:
        return report.renew_page(sparse.PAGE, (KIND,), table_of)
    options = Options(args.threads, quick=args.quick, full=False)
    result = report.begin(args.threads)
    for case in CASES:
        if args.only not in case.name:
            continue
        for made in case.lines(options):
            if not made.skipped:
                sample(made, quick=args.quick)
            print(report.text(made), flush=True)
            for x in made.contenders:
                if x.processor:
                    took = report.seconds(statistics.median(x.processor))
                    print(f"    {x.name}: {took} of the processor", flush=True)
            result["lines"].append(made.raw())
            made.contenders.clear()  # their data may fill the memory
            scratch = bool(args.quick or args.only)
            report.keep(result, KIND, args.out, scratch=scratch, quiet=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
