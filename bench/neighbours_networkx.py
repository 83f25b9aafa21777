"""NetworkX with and without the backend: ``python -m bench.neighbours_networkx``.

Each line is one call of networkx, with ``backend="semiring_mm"`` and without; both results are
compared. Where that takes NetworkX minutes or days, it searches from some of the nodes only, which
the line says, and its time is scaled; results that are a number for each node are compared for
these. Road networks are read from the folder that ``SEMIRING_MM_DATA`` names. Raw results go below
bench/results, the table into docs/networkx.md; ``--table`` renews it from the newest results.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import networkx as nx
import numpy as np

from . import machine, report, sparse
from .measure import Contender, Line, Skip, sample

PAGE = machine.ROOT / "docs" / "networkx.md"


@dataclass(frozen=True)
class Case:
    """A call, and the graph that it is given for a number of nodes."""

    name: str
    graph: Callable[[int], Any]
    about: str
    n: int
    arguments: dict[str, Any] = field(default_factory=dict)
    sampled: int = 0  # nodes from which NetworkX searches; 0: all

    def line(self, quick: bool) -> Line:
        graph = self.graph(40 if quick else self.n)
        if self.sampled:
            return self._sampled(graph)
        before: list[Any] = []

        def contender(name: str, backend: str) -> Contender:
            return Contender(name, lambda: self.call(graph, backend))

        def check(result: Any) -> None:
            if before:
                np.testing.assert_equal(type(result), type(before[0]))
                if isinstance(result, np.ndarray):
                    np.testing.assert_allclose(result, before[0], rtol=1e-12)
                elif isinstance(result, nx.Graph):
                    assert result.adj == before[0].adj
                elif "betweenness" in self.name:  # sums of another order
                    assert list(result) == list(before[0])
                    values = [list(x.values()) for x in (result, before[0])]
                    np.testing.assert_allclose(*values, rtol=1e-12)
                elif not self.name.startswith("floyd"):
                    assert result == before[0], "not what networkx returns"
                before.clear()  # millions of objects slow down the garbage collector
            else:
                before.append(result)

        return Line(
            self.shown, self.size(graph), "", 0,
            [contender("semiring_mm", "semiring_mm"), contender("networkx", "networkx")],
            check=check, prepare=gc.collect, most=3,
        )  # fmt: skip

    def _sampled(self, graph: Any) -> Line:
        nodes = random.Random(1).sample(list(graph), min(self.sampled, len(graph)))
        found: list[Any] = []
        self.call(self.graph(40), "semiring_mm")  # compiles

        def ours() -> float:
            start = time.perf_counter()
            result = self.call(graph, "semiring_mm")
            elapsed = time.perf_counter() - start
            found[:] = [result]
            return elapsed

        def theirs() -> float:
            start = time.perf_counter()
            for node, value in PARTS[self.name](graph, nodes, **self.arguments).items():
                if isinstance(found[0], dict):
                    assert found[0][node] == value, "not what networkx returns"
            return (time.perf_counter() - start) * len(graph) / len(nodes)

        line = Line(
            self.shown, self.size(graph), "", 0,
            [Contender("semiring_mm", ours, own_clock=True),
             Contender(f"networkx, {len(nodes)} sources", theirs, own_clock=True)],
            prepare=gc.collect, most=1,
        )  # fmt: skip
        line.note = f"NetworkX from {len(nodes)} of {len(graph)} nodes, its time scaled"
        return line

    @property
    def shown(self) -> str:
        return f"{self.name}(G{''.join(f', {k}={v!r}' for k, v in self.arguments.items())})"

    def size(self, graph: Any) -> str:
        return f"{len(graph)}, {graph.number_of_edges()}: {self.about}"

    def call(self, graph: Any, backend: str) -> Any:
        with nx.config(cache_converted_graphs=False):  # the graph is read in every call
            result = getattr(nx, self.name)(graph, backend=backend, **self.arguments)
        return dict(result) if isinstance(result, Iterator) else result


def _from(call: str, parameter: str) -> Callable[..., dict[Any, Any]]:
    """A function of NetworkX's from some nodes, one after the other."""

    def part(graph: Any, nodes: list[Any], **arguments: Any) -> dict[Any, Any]:
        function = getattr(nx, call)
        return {
            x: function(graph, backend="networkx", **{parameter: x}, **arguments) for x in nodes
        }

    return part


#: How NetworkX does a part of a function: searches from some nodes.
PARTS = {
    "average_shortest_path_length": _from("shortest_path_length", "source"),
    "closeness_centrality": _from("closeness_centrality", "u"),
    "diameter": _from("eccentricity", "v"),
    "eccentricity": _from("eccentricity", "v"),
    "betweenness_centrality": lambda graph, nodes, **arguments: (
        nx.betweenness_centrality(graph, k=len(nodes), seed=1, backend="networkx", **arguments)
        and {}
    ),
}


def grid(n: int) -> Any:
    """A road network of sorts: streets of integer lengths."""
    side = round(n**0.5)
    return weighted(nx.grid_2d_graph(side, side), lambda rng: rng.randint(50, 500))


def few_edges(n: int) -> Any:
    return weighted(nx.gnm_random_graph(n, 4 * n, seed=1), lambda rng: rng.random())


def plain_grid(n: int) -> Any:
    side = round(n**0.5)
    return nx.grid_2d_graph(side, side)


def scale_free(n: int) -> Any:
    return nx.barabasi_albert_graph(n, 3, seed=1)


def road(n: int) -> Any:
    """Streets of New York, or a path in place of so large a graph."""
    if n < 1000:
        return weighted(nx.path_graph(n), lambda rng: rng.randint(1, 5000))
    x = sparse.network("NY")
    graph = nx.Graph()
    graph.add_nodes_from(range(x.n))
    graph.add_weighted_edges_from(
        zip(x.row.tolist(), x.col.tolist(), x.weight.tolist(), strict=True)
    )
    return graph


def dense(n: int) -> Any:
    return weighted(nx.gnm_random_graph(n, n * n // 8, seed=1), lambda rng: rng.random())


def directed(n: int) -> Any:
    return nx.gnm_random_graph(n, 3 * n, seed=1, directed=True)


def weighted(graph: Any, draw: Callable[[random.Random], float]) -> Any:
    rng = random.Random(1)
    graph = nx.compose(nx.path_graph(graph), graph)  # connected
    for *_, data in graph.edges(data=True):
        data["weight"] = draw(rng)
    return graph


WEIGHT = {"weight": "weight"}
CASES = [
    Case("all_pairs_dijkstra_path_length", few_edges, "random", 1000),
    Case("all_pairs_dijkstra_path", few_edges, "random", 500),
    Case("johnson", few_edges, "random", 500),
    Case("floyd_warshall", dense, "random", 200),
    Case("floyd_warshall_numpy", dense, "random", 1000),
    Case("wiener_index", dense, "random", 300, WEIGHT),
    Case("all_pairs_shortest_path_length", few_edges, "random", 1000),
    Case("all_pairs_shortest_path", few_edges, "random", 1000),
    Case("harmonic_centrality", few_edges, "random", 1000),
    Case("global_efficiency", few_edges, "random", 1000),
    Case("local_efficiency", dense, "random", 200),
    Case("local_efficiency", few_edges, "random", 1000),
    Case("edge_betweenness_centrality", few_edges, "random", 500),
    Case("transitive_closure", directed, "directed", 500),
    Case("closeness_centrality", few_edges, "random", 1000, {"distance": "weight"}, 50),
    Case("betweenness_centrality", few_edges, "random", 1000, WEIGHT, 50),
    Case("closeness_centrality", plain_grid, "grid", 1600, {}, 100),
    Case("diameter", plain_grid, "grid", 1600, {}, 100),
    Case("eccentricity", grid, "grid", 1600, WEIGHT, 50),
    Case("average_shortest_path_length", grid, "grid", 1600, WEIGHT, 50),
    Case("betweenness_centrality", grid, "grid", 1600, WEIGHT, 50),
    Case("closeness_centrality", scale_free, "Barabási–Albert", 10_000, {}, 20),
    Case("diameter", scale_free, "Barabási–Albert", 10_000, {}, 20),
    Case("average_shortest_path_length", scale_free, "Barabási–Albert", 10_000, {}, 20),
    Case("betweenness_centrality", scale_free, "Barabási–Albert", 10_000, {}, 20),
    Case("closeness_centrality", road, "New York", 264_346, {"distance": "weight"}, 3),
    Case("diameter", road, "New York", 264_346, WEIGHT, 3),
]


def measure(quick: bool) -> dict[str, Any]:
    result = report.begin(machine.cores())
    for case in CASES:
        try:
            line = case.line(quick)
        except Skip as reason:
            print(f"{case.shown:62}{case.about}: {reason}")
            continue
        sample(line, quick=quick)
        print(f"{line.case:62}{line.size:30}{compared(line)}", flush=True)
        result["lines"].append(line.raw())
    return result


def compared(line: Line) -> str:
    ours, theirs = (report.seconds(c.median) for c in line.contenders)
    ratio = line.contenders[1].median / line.ours.median
    return f"{ours:>9}{theirs:>9}  × {report.three(ratio)}"


def table(result: dict[str, Any], source: str) -> str:
    rows = ["| call | n, m | networkx | with the backend | faster |", "| --- " * 5 + "|"]
    for raw in result["lines"]:
        line = Line.from_raw(raw)
        ours, theirs = (report.seconds(c.median) for c in line.contenders)
        ratio = line.contenders[1].median / line.ours.median
        rows.append(
            f"| `{line.case}` | {line.size} | {theirs}{' ¹' * bool(line.note)} | {ours} | "
            f"× {report.three(ratio)} |"
        )
    note = (
        "Medians of at most three calls, whose time includes reading the graph. ¹ From some of "
        "the nodes, scaled."
    )
    return "\n".join([*rows, "", report.provenance(result, source, note, ("networkx",))])


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.neighbours_networkx")
    parser.add_argument("--quick", action="store_true", help="tiny graphs, nothing is kept")
    parser.add_argument("--table", action="store_true", help="only the table, from the newest")
    args = parser.parse_args(words)
    if not args.table:
        result = measure(args.quick)
        if args.quick:
            return 0
        report.keep(result, "neighbours-networkx", None, scratch=False)
    return report.renew_page(PAGE, ("neighbours-networkx",), table)


if __name__ == "__main__":
    sys.exit(main())
