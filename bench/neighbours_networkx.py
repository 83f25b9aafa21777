"""NetworkX with and without the backend: ``python -m bench.neighbours_networkx``.

Each line is one call of networkx, with ``backend="semiring_mm"`` and without; both results are
compared. Raw results go below bench/results, the table into docs/networkx.md; ``--table`` renews
the table from the newest results.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from . import machine, report
from .measure import Contender, Line, sample

PAGE = machine.ROOT / "docs" / "networkx.md"
report.MARKERS["networkx"] = ("<!-- bench-networkx:begin -->", "<!-- bench-networkx:end -->")


@dataclass(frozen=True)
class Case:
    """A call, and the graph that it is given for a number of nodes."""

    name: str
    graph: Callable[[int], Any]
    about: str
    n: int
    arguments: dict[str, Any] = field(default_factory=dict)

    def line(self, quick: bool) -> Line:
        graph = self.graph(40 if quick else self.n)
        shown = "".join(f", {k}={v!r}" for k, v in self.arguments.items())
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
                elif not self.name.startswith("floyd"):
                    assert result == before[0], "not what networkx returns"
                before.clear()  # millions of objects slow down the garbage collector
            else:
                before.append(result)

        size = f"{len(graph)}, {graph.number_of_edges()}: {self.about}"
        return Line(
            f"{self.name}(G{shown})", size, "", 0,
            [contender("semiring_mm", "semiring_mm"), contender("networkx", "networkx")],
            check=check, prepare=gc.collect, most=3,
        )  # fmt: skip

    def call(self, graph: Any, backend: str) -> Any:
        with nx.config(cache_converted_graphs=False):  # the graph is read in every call
            result = getattr(nx, self.name)(graph, backend=backend, **self.arguments)
        return dict(result) if isinstance(result, Iterator) else result


def grid(n: int) -> Any:
    """A road network of sorts: streets of integer lengths."""
    side = round(n**0.5)
    return weighted(nx.grid_2d_graph(side, side), lambda rng: rng.randint(50, 500))


def sparse(n: int) -> Any:
    return weighted(nx.gnm_random_graph(n, 4 * n, seed=1), lambda rng: rng.random())


def thin(n: int) -> Any:
    return nx.gnm_random_graph(n, 3 * n // 2, seed=1)


def dense(n: int) -> Any:
    return weighted(nx.gnm_random_graph(n, n * n // 8, seed=1), lambda rng: rng.random())


def directed(n: int) -> Any:
    return nx.gnm_random_graph(n, 3 * n, seed=1, directed=True)


def denser(n: int) -> Any:
    return nx.gnm_random_graph(n, 5 * n, seed=1, directed=True)


def weighted(graph: Any, draw: Callable[[random.Random], float]) -> Any:
    rng = random.Random(1)
    graph = nx.compose(nx.path_graph(graph), graph)  # connected
    for *_, data in graph.edges(data=True):
        data["weight"] = draw(rng)
    return graph


WEIGHT = {"weight": "weight"}
CASES = [
    Case("all_pairs_dijkstra_path_length", grid, "grid", 1600),
    Case("all_pairs_dijkstra_path_length", sparse, "random", 1000),
    Case("all_pairs_dijkstra_path", sparse, "random", 1000),
    Case("johnson", sparse, "random", 500),
    Case("floyd_warshall", dense, "random", 300),
    Case("floyd_warshall_numpy", dense, "random", 1000),
    Case("average_shortest_path_length", grid, "grid", 1600, WEIGHT),
    Case("closeness_centrality", sparse, "random", 1000, {"distance": "weight"}),
    Case("eccentricity", grid, "grid", 1600, WEIGHT),
    Case("wiener_index", dense, "random", 300, WEIGHT),
    Case("all_pairs_shortest_path_length", sparse, "random", 1000),
    Case("all_pairs_shortest_path", sparse, "random", 1000),
    Case("average_shortest_path_length", sparse, "random", 2000),
    Case("diameter", sparse, "random", 2000),
    Case("harmonic_centrality", sparse, "random", 1000),
    Case("global_efficiency", sparse, "random", 1000),
    Case("local_efficiency", dense, "random", 300),
    Case("local_efficiency", sparse, "random", 1000),
    Case("betweenness_centrality", sparse, "random", 1000),
    Case("betweenness_centrality", grid, "grid", 1600, WEIGHT),
    Case("edge_betweenness_centrality", sparse, "random", 1000),
    Case("transitive_closure", directed, "directed", 500),
    Case("closeness_centrality", thin, "random", 6000),
    Case("closeness_centrality", denser, "directed", 4000),
]


def measure(quick: bool) -> dict[str, Any]:
    result = report.begin(machine.cores())
    for case in CASES:
        line = case.line(quick)
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
            f"| `{line.case}` | {line.size} | {theirs} | {ours} | × {report.three(ratio)} |"
        )
    m, v = result["machine"], result["versions"]
    rows += [
        "",
        f"{m['cpu']}, {result['threads']} threads; networkx {v.get('networkx', nx.__version__)}; "
        f"{result['date'][:10]}, commit {result['commit']}. Medians of at most three calls. "
        f"Raw: `{source}`.",
    ]
    return "\n".join(rows)


def newest() -> Path:
    found = sorted(report.RESULTS.glob("neighbours-networkx-*.json"))
    if not found:
        raise SystemExit("bench: there are no results yet; leave out --table")
    return max(found, key=lambda path: json.loads(path.read_text(encoding="utf-8"))["date"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.neighbours_networkx")
    parser.add_argument("--quick", action="store_true", help="tiny graphs, nothing is kept")
    parser.add_argument("--table", action="store_true", help="only the table, from the newest")
    args = parser.parse_args()
    if not args.table:
        result = measure(args.quick)
        if args.quick:
            return
        report.keep(result, "neighbours-networkx", None, scratch=False)
    path = newest()
    result = json.loads(path.read_text(encoding="utf-8"))
    report.put(PAGE, table(result, f"bench/results/{path.name}"), "networkx")


if __name__ == "__main__":
    main()
