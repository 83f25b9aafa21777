"""Rows of speed for the first pages, from committed results."""

from __future__ import annotations

from typing import Any

from .measure import Contender, Line
from .report import newest, seconds, three

#: What the row says; the kind of results, the case and the size that it is taken from.
ROWS = (
    ("all distances, dense graph of 4,096 nodes", "cpu", "apsp f32", "4096"),
    (
        "all distances, Chicago's 12,982 crossings", "sparse-graphs-cpu",
        "all pairs as a matrix", "Chicago region",
    ),
    (
        "1,000 × 1,000 distances, New York's roads, prepared", "sparse-graphs-cpu", "table",
        "New York, 1,000²",
    ),
    (
        "closeness centrality of 10,000 nodes", "neighbours-networkx",
        "closeness_centrality(G)", "10000, 29991: Barabási–Albert",
    ),
    ("Boolean product of 8,192 × 8,192", "cpu", "or-and bool", "8192"),
    (
        "mean and largest of all distances, Florida's 1,070,376 crossings, on a GPU",
        "sparse-graphs-gpu", "statistics of all pairs", "Florida",
    ),
    ("min-plus product of 2,048 × 2,048, on a GPU", "gpu", "min-plus f32 ≥ 0", "2048"),
)  # fmt: skip
#: The usual names of rivals that have a longer one in the results.
NAMES = {
    "SciPy Floyd-Warshall": "SciPy",
    "networkx": "NetworkX",
    "networkx, 20 sources": "NetworkX, scaled from 20 sources",
    "NumPy, float32 product > 0": "NumPy in float32",
    "JAX, jitted broadcast": "JAX",
    "SciPy on the CPU, 4 rows": "SciPy on the CPU, scaled from 4 rows",
}


def table() -> str:
    """Each row beside the fastest of its rivals in the same run, as Markdown."""
    rows = ["| | fastest other | here | |", "| --- " * 4 + "|"]
    machines: dict[str, list[str]] = {}  # links to the raw results, by machine and date
    for words, kind, case, size in ROWS:
        path, result = newest(kind)
        if result is None:
            raise LookupError(f"no results of kind {kind!r} are committed below bench/results")
        line = find(result, case, size)
        rival = fastest(line)
        cells = [
            words,
            f"{NAMES.get(rival.name, rival.name)} {seconds(rival.median)}",
            seconds(line.ours.median),
            f"× {three(rival.median / line.ours.median)}",
        ]
        rows.append(f"| {' | '.join(cells)} |")
        links = machines.setdefault(measured_on(result), [])
        links += [f"[raw]({path})"] * (f"[raw]({path})" not in links)
    where = "; ".join(f"{who} ({', '.join(links)})" for who, links in machines.items())
    legend = (
        "Medians; rivals on the same data in the same run; *scaled*: a part of the work was timed, "
        "such as the rows from 4 nodes, and multiplied to the whole."
    )
    return "\n".join([*rows, "", f"{legend} {where}."])


def find(result: dict[str, Any], case: str, size: str) -> Line:
    for raw in result["lines"]:
        if (raw["case"], raw["size"]) == (case, size):
            return Line.from_raw(raw)
    raise LookupError(f"the results of {result['date']} have no line {case!r} of size {size!r}")


def fastest(line: Line) -> Contender:
    """The rival with the least median."""
    rivals = [c for c in line.contenders[1:] if c.samples and not c.ours]
    return min(rivals, key=lambda c: c.median)


def measured_on(result: dict[str, Any]) -> str:
    machine = result["machine"]
    where = machine.get("gpu") or f"{result['threads']} cores of an {machine['cpu']}"
    return f"{where}, {result['date'][:10]}"
