"""``semiring-mm stats``: statistics of all distances of a graph, none of which are kept."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import semiring_mm as sm

from ..files.file import File
from ..files.nodes import read_numbers
from ..graphs.statistics import OF_PATHS
from ..plot import draw_statistics
from ..plot.draw import can_be_drawn, statistic_drawn
from ..storage import atomic_write
from ..text import NumberFormat
from .compute import refused, watched
from .graph import Finder, GivenGraph, read_network, read_nodes
from .options import USUAL, Refusal, kept_tiles
from .report import finish, graph_name, reach_as_text, remark, summary, warn
from .tables import number, print_data, write_columns

__all__ = ["check", "run"]

_BARS, _BAR = 12, 30  # lines of the histogram that are printed at most, and signs of the longest


@dataclass(frozen=True)
class _Found:
    """What was found, and of which graph."""

    args: argparse.Namespace
    given: GivenGraph
    statistics: sm.Statistics  # nodes by their positions
    seconds: float
    method: str

    @property
    def labels(self) -> list[str]:
        """The labels of the nodes that the statistics cover."""
        return [self.given.graph.nodes[k] for k in self.statistics.nodes]

    def best(self, values: NDArray[Any] | None) -> tuple[float, int] | None:
        """The largest value, and the node that has it."""
        if values is None or not len(values):
            return None
        k = int(np.argmax(values))
        return float(values[k]), self.statistics.nodes[k]

    @property
    def centre(self) -> tuple[float, int | None] | None:
        """The radius, and a node that has no more to the farthest other, if it is known."""
        found = self.statistics
        if found.radius is None:
            return None
        return float(found.radius), found.center[0] if found.center else None

    @property
    def pairs(self) -> tuple[int, int]:
        """Ordered pairs of different nodes with a path, and all of them."""
        found = self.statistics
        possible = len(found.nodes) * (found.n - 1)
        return 0 if found.reached is None else int((found.reached - 1).sum()), possible


def check(args: argparse.Namespace) -> None:
    """Refuse options that need others."""
    if args.attribute and not (args.within and args.nodes):
        raise Refusal(
            "--attribute is a column of the table of nodes, added up within a distance: add "
            "--nodes FILE and --within R"
        )
    if (args.checkpoint or args.resume) and not args.output:
        raise Refusal("--checkpoint and --resume keep a state beside the output: add -o S.csv")


def run(args: argparse.Namespace, stack: contextlib.ExitStack) -> int:
    """Run the command and return its exit code."""
    given, net = read_network(args, sums=True)
    if given.graph.n == 0:
        raise Refusal(f"{', '.join(args.graph)}: the graph has no nodes")
    if args.plot and "histogram" not in (args.what or USUAL) and not can_be_drawn(given.graph):
        raise Refusal(
            f"there is nothing to draw: {given.graph.n:,} nodes without coordinates are too many "
            f"to be laid out; add --nodes FILE, a table with their coordinates, or histogram to "
            f"--what"
        )
    nodes = None
    if args.sources is not None:
        find = Finder(given.graph)
        nodes = [k for (k,) in read_nodes("--sources", args.sources, find, given.notes)]
    mass = None
    if args.attribute:
        mass = read_numbers(File.of(args.nodes), args.attribute, given.graph.nodes)
    warnings = warn(given, chosen=True)
    if args.explain:
        tiles = kept_tiles(args, None, devices=args.devices)
        counted = [name for name in args.what or () if name in OF_PATHS]
        plain = len(counted) < len(args.what or USUAL) or args.within
        for use in ["statistics"] * bool(plain) + counted[:1]:
            methods = sm.explain(
                net or given.numbered, use, sources=nodes, device=args.device, tiles=tiles
            )
            print_data(f"{methods}\n")
        return 0
    asked = {
        "what": [*(args.what or USUAL), *(["within"] if args.within else [])],
        "bins": args.bins, "radius": args.within,
    }  # fmt: skip
    state = _State(args, given, asked | {"sources": _digest(nodes), "attribute": _digest(mass)})
    if state.is_done:
        remark(args, f"note: nothing to do: {args.output} is finished")
        return 0
    work = watched(args, stack)
    start = time.perf_counter()
    try:
        with refused(given):
            found = _call(args, given, net, asked, nodes, mass, state.file, work)
    except KeyboardInterrupt as end:
        if state.file is not None and state.file.exists():
            end.add_note(f"--resume goes on with what is in {state.file}")
        raise
    stack.close()  # the progress
    done = _Found(args, given, found, time.perf_counter() - start, work.method)
    written = _write(done)
    state.finished()
    finish(
        args, given, warnings, dict.fromkeys(written, ""), lambda: _as_json(done),
        lambda: _as_lines(done),
    )  # fmt: skip
    return 0


def _call(
    args: argparse.Namespace, given: GivenGraph, net: sm.PreparedGraph | None,
    asked: dict[str, Any], nodes: list[int] | None,
    mass: NDArray[Any] | None, state: Path | None, work: Any,
) -> sm.Statistics:  # fmt: skip
    """What the library's function returns."""
    graph: Any = net or given.numbered
    sources = nodes if net is None or nodes is None else [net.nodes[k] for k in nodes]
    found = sm.statistics(
        graph, **asked, sources=sources, attribute=mass, progress=work, device=args.device,
        tiles=kept_tiles(args, state, devices=args.devices),
    )  # fmt: skip
    if net is None:
        return found
    if found.ends is not None:
        a, b = map(net.nodes.index, found.ends)
        found = replace(found, ends=(a, b))
    if found.center is not None:
        found = replace(found, center=[*map(net.nodes.index, found.center[:1])])
    if nodes is None or set(asked["what"]) <= set(OF_PATHS):
        nodes = [*range(given.graph.n)]
    return replace(found, nodes=nodes)


# --- a run that may be ended ---------------------------------------------------------------------


class _State:
    """The state of a run beside its output, and the record that it is done."""

    def __init__(self, args: argparse.Namespace, given: GivenGraph, task: dict[str, Any]) -> None:
        self._task, self._given = task, given
        self.file: Path | None = None
        self.is_done = False
        if not (args.checkpoint or args.resume):
            return
        self._output = Path(args.output)
        self.file = self._output.with_name(f"{self._output.name}.part.npz")
        if args.force and not args.resume:
            self.file.unlink(missing_ok=True)
        drawn = not args.plot or os.path.exists(args.plot)
        if args.resume and not (args.force or self.file.exists()) and drawn:
            from ..tiled.checkpoint import is_finished

            self.is_done = is_finished([self._output], task, self._fingerprint)

    def finished(self) -> None:
        """Keep the record."""
        if self.file is not None:
            from ..tiled.checkpoint import keep_record

            keep_record([self._output], self._task, self._fingerprint())

    def _fingerprint(self) -> str:
        from ..closures.sources import source_of

        return source_of(sm.semirings["min_plus"], self._given.numbered, None).fingerprint()


def _digest(values: Any) -> str | None:
    return None if values is None else hashlib.sha256(repr(list(values)).encode()).hexdigest()


# --- what is written -----------------------------------------------------------------------------


def _write(done: _Found) -> list[str]:
    """Write the files that are asked for; their names."""
    args, graph, found = done.args, done.given.graph, done.statistics
    written: list[str] = []
    if args.output:
        written.append(args.output)
        columns: dict[str, Any] = {"node": done.labels}
        if graph.names:
            columns["name"] = [graph.names[k] for k in found.nodes]
        numbers, edges = found.columns(), _edge_columns(done)
        if args.output.lower().endswith(".npz"):
            _write_arrays(args.output, columns | numbers | edges, done)
        elif edges and not numbers:
            write_columns(args.output, [edges])
        else:
            write_columns(args.output, [columns | numbers])
            if edges:
                beside = Path(args.output)
                stem, dot, ending = beside.name.partition(".")
                beside = beside.with_name(f"{stem}.edges{dot}{ending}")
                write_columns(str(beside), [edges])
                written.append(str(beside))
    if args.plot:
        words = "distances" if found.histogram is not None else ""
        coloured = statistic_drawn(found).replace("_", " ")
        if coloured and can_be_drawn(graph):
            words = f"{coloured} and {words}" if words else coloured
        elif coloured and words:
            done.given.notes.append(
                f"{args.plot} has no map: more nodes than can be laid out, and no coordinates "
                f"(--nodes FILE)"
            )
        title = f"{graph_name(args)}: {words}"
        with atomic_write(args.plot) as part:
            draw_statistics(str(part), found, graph, title=title)
        written.append(args.plot)
    return written


def _edge_columns(done: _Found) -> dict[str, Any]:
    """The ends and the number of each edge, where there are any."""
    graph, numbers = done.given.graph, done.statistics.edge_betweenness
    if numbers is None:
        return {}
    labels = np.array([*graph.nodes], object)
    return {
        "source": labels[graph.row], "target": labels[graph.col], "edge_betweenness": numbers
    }  # fmt: skip


def _write_arrays(target: str, columns: dict[str, Any], done: _Found) -> None:
    found = done.statistics
    arrays: dict[str, Any] = {name: np.asarray(x) for name, x in columns.items()}
    arrays |= {name: x.astype(str) for name, x in arrays.items() if x.dtype.kind == "O"}
    if found.histogram is not None:
        arrays["histogram_counts"] = found.histogram.counts
        arrays["histogram_edges"] = found.histogram.edges
    for name in ("radius", "diameter", "mean_distance"):
        if getattr(found, name) is not None:
            arrays[name] = np.asarray(getattr(found, name))
    if found.ends is not None:
        arrays["ends"] = np.array([done.given.graph.nodes[k] for k in found.ends])
    with atomic_write(target) as part:
        np.savez(part, **arrays)


def _as_lines(done: _Found) -> list[str]:
    given, found = done.given, done.statistics
    some, label = done.args.sources is not None, given.label
    lines = [
        ("nodes", f"{given.graph.n:,}" + (f", of {len(found.nodes):,} of them" if some else "")),
        ("edges", given.edges_as_text),
        ("weight", given.weight),
    ]
    if found.reached is not None:
        lines.append(("reachable", reach_as_text(given, *done.pairs, some=some)))
    if found.ends is not None:
        a, b = map(label, found.ends)
        lines.append(("diameter", f"{_form(done, found.diameter)}, {a} → {b}"))
    if done.centre is not None:
        value, node = done.centre
        ends = "" if node is None else f", {label(node)}"
        lines.append(("radius", f"{_form(done, value)}{ends}"))
    if found.mean_distance is not None and not math.isnan(found.mean_distance):
        mean = found.mean_distance
        lines.append(("average", NumberFormat([mean], given.unit, whole=False)(mean)))
    for word in ("closeness", "harmonic", "betweenness", "stress"):
        if best := done.best(getattr(found, word)):
            lines.append((word, f"at most {best[0]:.5g}, {label(best[1])}"))
    if found.edge_betweenness is not None and len(found.edge_betweenness):
        e, graph = int(np.argmax(found.edge_betweenness)), given.graph
        a, b = label(graph.row[e]), label(graph.col[e])
        lines.append(("edges", f"at most {found.edge_betweenness[e]:.5g}, {a} → {b}"))
    for k, radius in enumerate(found.radii):
        assert found.within is not None
        near = found.within[:, k]
        if best := done.best(near):
            mean, what = float(near.mean()), done.args.attribute or "nodes"
            lines.append((
                f"within {radius:,g} {given.unit}".rstrip(),
                f"{mean:,.5g} {what} on average, at most {best[0]:,.10g}, {label(best[1])}",
            ))  # fmt: skip
    lines.append(("time", f"{done.seconds:.3f} s, {done.method}"))
    return [*summary(f"{graph_name(done.args)}: distances", lines), *_bars(done)]


def _bars(done: _Found) -> Iterator[str]:
    """A bar for some neighbouring bins together."""
    bins = done.statistics.histogram
    if bins is None or not bins.counts.sum():
        return
    step = -(-len(bins.counts) // _BARS)
    starts = np.arange(0, len(bins.counts), step)
    share = np.add.reduceat(bins.counts, starts) / bins.counts.sum()
    edges = bins.edges[np.append(starts, len(bins.counts))].tolist()
    form = NumberFormat(edges, done.given.unit)
    words = [(form(a), form(b)) for a, b in itertools.pairwise(edges)]
    width = max(len(word) for row in words for word in row)
    for (a, b), part in zip(words, share.tolist(), strict=True):
        bar = "#" * round(_BAR * part / share.max())
        yield (f"  {a.rjust(width)} – {b.rjust(width)}  {100 * part:5.1f} %  {bar}".rstrip())


def _form(done: _Found, value: float) -> str:
    return NumberFormat([value], done.given.unit, whole=done.given.whole)(value)


def _as_json(done: _Found) -> dict[str, Any]:
    found, graph = done.statistics, done.given.graph

    def with_node(best: tuple[float, int | None] | None) -> dict[str, Any] | None:
        if best is None:
            return None
        value, node = best
        return {"value": number(value)} | ({} if node is None else {"node": graph.nodes[node]})

    there, possible = done.pairs
    mean, bins, ends = found.mean_distance, found.histogram, found.ends
    return {
        "pairs": possible,
        "reachable": None if found.reached is None else there,
        "diameter": ends
        and {
            "value": number(found.diameter),
            "from": graph.nodes[ends[0]],
            "to": graph.nodes[ends[1]],
        },
        "radius": with_node(done.centre),
        "average": None if mean is None or math.isnan(mean) else mean,
        "closeness": with_node(done.best(found.closeness)),
        "harmonic": with_node(done.best(found.harmonic)),
        **{
            name: with_node(done.best(getattr(found, name)))
            for name in ("betweenness", "stress")
            if getattr(found, name) is not None
        },
        "within": [
            {"radius": r, "mean": float(near.mean())} | (with_node(done.best(near)) or {})
            for r, near in zip(found.radii, found.within.T, strict=True)
        ]
        if found.within is not None and len(found.nodes)
        else [],
        "histogram": bins and {"counts": bins.counts.tolist(), "edges": bins.edges.tolist()},
        "method": done.method,
        "seconds": done.seconds,
    }
