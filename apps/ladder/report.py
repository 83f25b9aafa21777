"""Format results: tables for the terminal and in Markdown, and the ladder unmeasured."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterable
from typing import Any

from semiring_mm.semirings import Semiring

from . import rungs
from .measure import CUBLAS, rungs_of
from .rungs import Loop, VectorLoop

__all__ = [
    "COUNTED", "counted", "dumps", "heading", "markdown", "median", "rate", "show", "sizes",
    "steps", "sweep", "table", "text", "three",
]  # fmt: skip

Rows = list[list[str]]
H200 = (132, 90)  # multiprocessors and architecture, where there is no device to ask


def three(value: float) -> str:
    """Format a number in three digits."""
    if abs(value) >= 999.5:
        return f"{value:.0f}"
    return f"{value:#.3g}".rstrip(".") if value else "0"


def _scaled(value: float, unit: str) -> str:
    for scale, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= 0.9995 * scale:
            return f"{three(value / scale)} {prefix}{unit}"
    return f"{three(value)} {unit}"


def seconds(value: float) -> str:
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if value >= 0.9995 * scale:
            return f"{three(value / scale)} {unit}"
    return f"{three(value / 1e-6)} µs"


def median(line: dict[str, Any]) -> float:
    return float(statistics.median(line["seconds"]))


def rate(line: dict[str, Any]) -> float:
    """Format a rate in pairs (⊗, ⊕) a second."""
    return float(line["pairs"]) / median(line)


def _bandwidth(line: dict[str, Any]) -> float:
    """Return the bandwidth of a matrix-vector product, A read once, in bytes a second."""
    return 4.0 * float(line["pairs"]) / median(line)


def _of(result: dict[str, Any], n: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the results of a size, and cuBLAS's."""
    lines = [line for line in result["lines"] if line["n"] == n]
    beside: dict[str, Any] = next((line for line in lines if line["name"] == CUBLAS), {})
    return [line for line in lines if line is not beside], beside


def _ceiling(result: dict[str, Any], line: dict[str, Any]) -> float:
    if result["verb"] == "gemv":
        return float(result["copy"])
    if line["name"].startswith("tensor cores"):
        return 0.0
    return float(result["ceilings"].get("fused" if line["name"] == "fused step" else "general", 0))


def steps(result: dict[str, Any], n: int) -> Rows:
    """The rungs at a size: a heading and a row for each, cuBLAS last."""
    gemv = result["verb"] == "gemv"
    lines, beside = _of(result, n)
    seen = result.get("profile", {}).get(str(n), {})
    rows = [["rung", "", "time", "rate", "× the one before", "of the ceiling", "× cuBLAS"]]
    rows[0] += ["pairs a byte", "bytes asked"] + ["from L2", "from DRAM"] * bool(seen)
    times = {line["rung"]: median(line) for line in lines}
    before = ""
    for line in [*lines, *([beside] if beside else [])]:
        now, top = median(line), _ceiling(result, line)
        reached = _bandwidth(line) if gemv else rate(line)
        moved = line.get("read", 0.0) + line.get("written", 0.0)
        counted = seen.get(line["rung"] or CUBLAS, {})
        row = [
            line["rung"], line["name"], seconds(now),
            _scaled(reached, "B/s") if gemv else _scaled(reached, "/s"),
            _gain(times, line["after"] or before, before, now) if line["rung"] else "",
            f"{100 * reached / top:.0f} %" if top and (gemv or line is not beside) else "",
            f"{median(beside) / now:.2f}" if beside and line is not beside else "",
            three(line["pairs"] / moved) if moved else "", _scaled(moved, "B") if moved else "",
        ]  # fmt: skip
        if seen:
            dram = counted.get("dram_read", 0.0) + counted.get("dram_written", 0.0)
            row += [_scaled(x, "B") if x else "" for x in (counted.get("l2_bytes", 0.0), dram)]
        rows.append(row)
        before = line["rung"]
    return rows


def _gain(times: dict[str, float], other: str, before: str, now: float) -> str:
    """Format the speed-up over another rung, named if it is not the previous one."""
    if other not in times:
        return ""
    return f"{times[other] / now:.2f}" + f" (rung {other})" * (other != before)


def _uses_shared(counts: dict[str, float], pairs: float) -> bool:
    """Whether a rung uses more shared memory than every launch does."""
    return 32 * counts["shared_wavefronts"] > 1e-3 * pairs


#: Columns of a profile: heading, and text from a rung's counters and pairs.
COUNTED: dict[str, Callable[[dict[str, float], float], str]] = {
    "instructions a pair": lambda c, pairs: three(32 * c["instructions"] / pairs),
    "L1 bytes a pair": lambda c, pairs: three(c["l1_bytes"] / pairs),
    "L2 bytes a pair": lambda c, pairs: three(c["l2_bytes"] / pairs),
    "DRAM": lambda c, _: _scaled(c["dram_read"] + c["dram_written"], "B"),
    "shared wavefronts for 32 pairs": lambda c, pairs: (
        three(32 * c["shared_wavefronts"] / pairs) if _uses_shared(c, pairs) else ""
    ),
    "of them conflicts": lambda c, pairs: (
        f"{100 * (c['conflicts_load'] + c['conflicts_store']) / c['shared_wavefronts']:.0f} %"
        if _uses_shared(c, pairs)
        else ""
    ),
    "occupancy": lambda c, _: f"{c['occupancy']:.0f} %",
    "issue slots": lambda c, _: f"{c['issue']:.0f} %",
}  # fmt: skip


def counted(result: dict[str, Any], n: int) -> Rows:
    """Return the profiler's counters at a size."""
    seen = result.get("profile", {}).get(str(n), {})
    lines, beside = _of(result, n)
    rows = [["rung", "", *COUNTED]]
    for line in [*lines, *([beside] if beside else [])]:
        if found := seen.get(line["rung"] or CUBLAS):
            cells = []
            for say in COUNTED.values():
                try:
                    cells.append(say(found, line["pairs"]))
                except KeyError:
                    cells.append("")
            rows.append([line["rung"], line["name"], *cells])
    return rows if len(rows) > 1 else []


def sizes(result: dict[str, Any]) -> Rows:
    """The rates of every rung: a row for each, a column for each size."""
    gemv = result["verb"] == "gemv"
    columns = list(dict.fromkeys(line["n"] for line in result["lines"]))
    rows: dict[tuple[str, str], dict[int, str]] = {}
    for line in result["lines"]:
        shown = _scaled(_bandwidth(line), "B/s") if gemv else _scaled(rate(line), "/s")
        rows.setdefault((line["rung"], line["name"]), {})[line["n"]] = shown
    head = ["rung", "", *(f"n = {n}" for n in columns)]
    return [head, *([*who, *(found.get(n, "") for n in columns)] for who, found in rows.items())]


def sweep(result: dict[str, Any], name: str) -> Rows:
    """A sweep: a row for each size, a column for each value."""
    lines = result["sweeps"].get(name, [])
    sizes = sorted({line["n"] for line in lines})
    values = list(dict.fromkeys(line["value"] for line in lines))
    gemv = result["verb"] == "gemv"
    rows = [["n", *map(str, values)]]
    for n in sizes:
        found = {line["value"]: line for line in lines if line["n"] == n}
        rates = [_bandwidth(found[v]) if gemv else rate(found[v]) for v in values]
        rows.append([str(n), *(_scaled(x, "B/s" if gemv else "/s") for x in rates)])
    return rows


def table(rows: Rows) -> str:
    """Aligned columns."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(w) if i == 1 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def markdown(rows: Rows) -> str:
    head, *body = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |".replace("  |", " |") for line in lines)


def heading(result: dict[str, Any]) -> str:
    """Return the heading: what was measured, and on which device."""
    m, v, row = result["machine"], result["versions"], result["semiring"]
    verb = "y = A ⊗ x" if result["verb"] == "gemv" else "C = A ⊗ B"
    parts = [
        f"{row['name']} (⊕ is {row['add']}, ⊗ is {row['mul']}), {verb}, float32",
        f"{m['gpu']} ({m['arch']}), {m['multiprocessors']} multiprocessors"
        + "".join(f", {key} {m[key]}" for key in ("driver", "clock") if key in m),
        ", ".join(f"{k} {x}" for k, x in v.items()),
        f"commit {result['commit'] or 'unknown'}, {result['date']}",
    ]
    named = {"general": "inner loop alone", "fused": "fused inner loop alone"}
    roofs = [f"{named[k]} {_scaled(x, '/s')}" for k, x in result["ceilings"].items()]
    parts.append("; ".join([*roofs, f"copying memory {_scaled(result['copy'], 'B/s')}"]))
    return "\n".join(parts)


def text(result: dict[str, Any]) -> str:
    """Format a whole result for the terminal."""
    parts = [heading(result)]
    names = {
        "block": "rung 3, by the side of a block", "elements": "rung 5, by elements per thread",
        "stages": "rung 8, by stages", "lanes": "rung 3, by threads per row",
        "rows": "rung 7, by rows per thread",
    }  # fmt: skip
    for n in dict.fromkeys(line["n"] for line in result["lines"]):
        parts.append(f"n = {n}\n{table(steps(result, n))}")
        if rows := counted(result, n):
            parts.append(f"n = {n}, as Nsight Compute counts\n{table(rows)}")
    parts += [f"{names[name]}\n{table(sweep(result, name))}" for name in result["sweeps"]]
    return "\n\n".join([*parts, *result["notes"]])


def show(semiring: Semiring, verb: str, sizes: Iterable[int]) -> str:
    """The rungs with their template arguments, and what the model says; needs no device."""
    sms, arch = H200
    chain, notes = rungs_of(semiring, verb, arch)
    parts = []
    for n in sizes:
        rows = [["rung", "", "pairs a byte", "bytes asked", "template arguments"]]
        for rung in chain:
            arguments, traffic = "", None
            if isinstance(rung.loop, Loop):
                loop = rung.loop
                arguments = f"{loop.arguments()}, {loop.stages} stage{'s' * (loop.stages != 1)}"
                words = {"ahead": loop.ahead, "16 bytes": loop.wide, "asynchronous": loop.async_}
                arguments += "".join(f", {word}" for word, on in words.items() if on)
                traffic = rungs.traffic(loop.tile, loop.stages, n, n, n)
            elif isinstance(rung.loop, VectorLoop):
                way = rung.loop
                arguments = f"{'row' if way.by_rows else 'column'}-major, {way.lanes} threads a row"
                arguments += f", {way.rows} rows a thread" + ", 16 bytes" * way.wide
                traffic = rungs.vector_traffic(way, n, n)
            elif rung.call == "matmul":
                tile = rungs.chosen(semiring, n, sms, arch)
                arguments = f"sr::{tile.struct()} on {sms} multiprocessors"
                traffic = rungs.traffic(tile, tile.stages, n, n, n)
            moved = traffic.read + traffic.written if traffic else 0.0
            pairs = float(n) ** (3 if verb == "product" else 2)
            rows.append([
                rung.number, rung.name, three(pairs / moved) if moved else "",
                _scaled(moved, "B") if moved else "", arguments or rung.why,
            ])  # fmt: skip
        parts.append(f"{semiring.name}, n = {n}\n{_left(rows)}")
    return "\n\n".join([*parts, *notes])


def _left(rows: Rows) -> str:
    width = max(len(row[-1]) for row in rows)
    return table([[*row[:-1], row[-1].ljust(width)] for row in rows])


def dumps(result: dict[str, Any]) -> str:
    """JSON in six digits, with every list of samples on a line of its own."""
    lines = json.dumps(result, indent=1, ensure_ascii=False)
    short = re.sub(r"\d+\.\d{6,}(e-?\d+)?(?=,?\n)", lambda m: f"{float(m[0]):.6g}", lines)
    samples = r"\[\s+([-\d.e+,\s]+?)\s+\]"
    return re.sub(samples, lambda m: f"[{' '.join(m[1].split())}]", short) + "\n"
