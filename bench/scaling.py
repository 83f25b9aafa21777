"""All-pairs shortest paths on several GPUs and out of core, beside a model; renews docs/scaling.md.

``python -m bench.scaling`` measures on all CUDA devices (``--devices 0,1`` picks some): strong
scaling at one n, weak scaling with n²/P the same on each of P devices, a timeline. ``--only`` picks
parts. ``--out-of-core N`` streams a matrix from host memory through the first device instead, and
``--cpu N`` one from a file through the CPU, each beside the same work in memory. ``--table`` renews
tables and figures from the committed results.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import semiring_mm as sm
from semiring_mm.closures.solve import Problem
from semiring_mm.closures.sources import DenseSource
from semiring_mm.plan import Facts
from semiring_mm.tiled.timeline import Timeline

from . import machine, model, report

PAGE = machine.ROOT / "docs" / "scaling.md"
FIGURE = machine.ROOT / "docs" / "scaling.svg"
TIMELINE = machine.ROOT / "docs" / "timeline.svg"
#: What stands on the page with the figures.
PICTURE = "![Efficiency over the number of devices, measured and by the model](scaling.svg)"
LANES = """![What each device computes and sends, over some steps](timeline.svg)

{} steps in the middle of a run on all devices, odd ones darker: what is sent travels while the
update of the step before it runs."""
PARTS = ("links", "strong", "weak", "timeline")
CHUNK = 256  # rows of the graph at a time, when a row is checked
SHOWN = 4  # steps of a timeline
GIB = 1 << 30


# --- the graph --------------------------------------------------------------------------------


def weights(xp: Any, rows: slice, columns: slice) -> Any:
    """Weights uniform in (0, 1], of a hash of row and column: any rectangle, wherever it is wanted.

    The finalizer of MurmurHash3 (Appleby, 2008), over the two numbers as Weyl sequences; all are
    multiples of 2⁻²⁴, so that sums up to 1 are exact in float32.
    """
    u = xp.uint32
    i = xp.arange(rows.start, rows.stop, dtype=u)[:, None] * u(0x9E3779B1)
    j = xp.arange(columns.start, columns.stop, dtype=u) * u(0x85EBCA77) + u(0xC2B2AE3D)
    x = i ^ (j << u(15) | j >> u(17))
    x += j
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x ^= x >> u(shift)
        x *= u(factor)
    x ^= x >> u(16)
    x >>= u(8)
    w = x.astype(xp.float32)
    w += xp.float32(1)
    w *= xp.float32(2.0**-24)
    return w


class Hashed(DenseSource):
    """That graph, as the algorithms take it; made on a device where `xp` is CuPy."""

    def __init__(self, xp: Any, n: int) -> None:
        self.s, self.n, self.dtype = sm.semirings["min_plus"], n, np.dtype(np.float32)
        self.xp, self.undirected = xp, False

    facts = Facts(2.0**-24, 1.0, False)

    def read(self, rows: slice, columns: slice) -> Any:
        w = weights(self.xp, rows, columns)
        return w.get() if hasattr(w, "get") else w

    def symmetric(self) -> bool:
        return False

    def fingerprint(self) -> str:
        return f"hashed {self.n}"


def problem_of(source: Hashed) -> Problem:
    return Problem(source, directed=True)


def check(xp: Any, n: int, row: Callable[[int], Any]) -> int:
    """Some rows of a result against the graph; how many entries were right, or AssertionError.

    Of weights that are all positive, d with d[i] = 0 and d[j] = min over k of d[k] + w[k, j] for
    all other j is the row of distances from i, and nothing else is: each d[j] is the weight of a
    path, since its terms get smaller, and none is lighter. So one round of Bellman and Ford's
    relaxations proves a row; it is exact where distances are below 1, and they are looked at.
    """
    which = sorted({0, n // 3, n // 2, n - 1})
    found = xp.asarray(np.stack([np.asarray(row(i)).reshape(n) for i in which]))
    best = xp.full_like(found, np.inf)
    for k in range(0, n, CHUNK):
        lines = slice(k, min(k + CHUNK, n))
        w = weights(xp, lines, slice(0, n))
        for d, b in zip(found, best, strict=True):
            xp.minimum(b, (d[lines, None] + w).min(axis=0), out=b)
    for i, b in zip(which, best, strict=True):
        b[i] = 0
    wrong = int((found != best).sum())
    assert wrong == 0, f"n = {n}: {wrong} entries of rows {which} are no distances"
    assert float(best.max()) < 1, f"n = {n}: rows {which} have distances that are rounded"
    return int(found.size)


# --- measuring --------------------------------------------------------------------------------


def weak_size(n: int, devices: int) -> int:
    """Nodes with about as many entries on each of some devices as n have on one.

    A multiple of what divides into tiles of one size, as many on each of up to eight devices.
    """
    unit = 8192 if n >= 8192 else 1
    return round(n * math.sqrt(devices) / unit) * unit


def counts(devices: int) -> list[int]:
    """1, 2, 4, ... and all."""
    return (
        sorted({*(1 << i for i in range(devices.bit_length())), devices} - {0}) if devices else []
    )


def tile_of(n: int, devices: int) -> int:
    """Lines of a tile, as the library chooses them."""
    from semiring_mm.tiled.solve import tile_of

    return tile_of(n, *model.grid_of(devices))


def blocks(devices: Sequence[int], n: int, tile: int, timeline: Timeline | None = None) -> Any:
    """The tiles of a matrix, spread over devices; on a single one the whole."""
    if len(devices) == 1 and timeline is None:
        return Whole(devices[0], n)
    from semiring_mm.tiled.blocks import Blocks
    from semiring_mm.tiled.devices import cuda_devices

    steps = problem_of(Hashed(np, n)).steps
    return Blocks(cuda_devices(list(devices)), n, tile, steps, timeline=timeline)


class Whole:
    """A matrix on one device, closed in place by divide and conquer; used as ``Blocks`` is."""

    sent = 0

    def __init__(self, device: int, n: int) -> None:
        self.device, self.n, self.seconds = device, n, 0.0
        self.d: Any = None

    def load(self, read: Callable[[slice, slice, Any], Any]) -> None:
        import cupy

        with cupy.cuda.Device(self.device):
            self.d = cupy.empty((self.n, self.n), np.float32)
            for i in range(0, self.n, CHUNK):
                rows = slice(i, min(i + CHUNK, self.n))
                self.d[rows] = read(rows, slice(0, self.n), cupy)
            cupy.fill_diagonal(self.d, 0)

    def run(self, _: None) -> None:
        import cupy

        from semiring_mm.gpu import engine

        steps = problem_of(Hashed(np, self.n)).steps
        with cupy.cuda.Device(self.device):
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record()
            steps.close(engine, self.d, None)
            end.record()
            end.synchronize()
        self.seconds = float(cupy.cuda.get_elapsed_time(begin, end)) / 1000

    def read(self, rows: slice, columns: slice) -> Any:
        return self.d[rows, columns].get()


@dataclass
class Bench:
    """What measures, and on what: ``xp`` is that of the devices."""

    xp: Any
    devices: list[int]
    n: int
    tile: int | None = None
    make: Callable[..., Any] = blocks

    def run(self, n: int, count: int, timeline: Timeline | None = None) -> dict[str, Any]:
        """Eliminate once on the first devices, and check."""
        found = self._run(n, count, timeline)
        gc.collect()
        if self.xp is not np:
            for device in self.devices:
                with self.xp.cuda.Device(device):
                    self.xp.get_default_memory_pool().free_all_blocks()
        return found

    def _run(self, n: int, count: int, timeline: Timeline | None) -> dict[str, Any]:
        tile = self.tile or tile_of(n, count)
        held = self.make(self.devices[:count], n, tile, timeline)
        held.load(lambda rows, columns, xp: weights(xp, rows, columns))
        held.run(None)
        checked = check(self.xp, n, lambda i: held.read(slice(i, i + 1), slice(0, n)))
        return {
            "n": n, "devices": count, "tile": tile, "seconds": float(f"{held.seconds:.6g}"),
            "sent": int(held.sent), "checked": checked,
        }  # fmt: skip

    def lines(self, parts: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Strong and weak scaling; the kernels are compiled and the links opened beforehand."""
        top = counts(len(self.devices))
        for count in top:
            self.run(min(self.n, 16384 * max(model.grid_of(count))), count)
        if "strong" in parts:
            for count in top:
                yield {"kind": "strong", **self.run(self.n, count)}
        if "weak" in parts:
            for count in top:
                if count > 1 or "strong" not in parts:
                    yield {"kind": "weak", **self.run(weak_size(self.n, count), count)}

    def timeline(self) -> dict[str, Any]:
        """A few steps in the middle of a run on all devices."""
        kept = Timeline()
        found = self.run(self.n, len(self.devices), kept)
        return {**found, "marks": window(kept, -(-found["n"] // found["tile"]) // 2)}

    def out_of_core(self, n: int) -> dict[str, Any]:
        """A matrix in memory of the first device, and the same streamed from the host's."""
        from semiring_mm.tiled.stored import solve_streamed

        problem = problem_of(Hashed(self.xp, small := min(n, 16384)))
        devices = None if self.xp is np else self.devices[:1]
        self.run(small, 1)  # compiles
        solve_streamed(
            problem, out=(np.empty((small, small), np.float32), None),
            devices=devices, memory_limit=8 * GIB, tile=min(4096, small),
        )  # fmt: skip
        inside = self.run(n, 1)
        problem = problem_of(Hashed(self.xp, n))
        out = np.empty((n, n), np.float32)
        kept = Timeline()
        start = time.perf_counter()
        solve_streamed(
            problem, out=(out, None), devices=devices, memory_limit=8 * GIB,
            timeline=kept,
        )  # fmt: skip
        whole = time.perf_counter() - start
        checked = check(self.xp, n, lambda i: out[i])
        return {
            "where": "device", "n": n, "in_memory": inside["seconds"],
            "seconds": float(f"{computing(kept):.6g}"), "whole": float(f"{whole:.6g}"),
            "checked": checked,
        }  # fmt: skip


def window(timeline: Timeline, first: int) -> list[list[Any]]:
    """The marks of the time from the beginning of one step to that of another soon after it."""

    def begin(step: int) -> float:
        return min((m.begin for m in timeline.intervals if m.step == step), default=math.inf)

    lo, hi = begin(first), begin(first + SHOWN)
    return [
        [*m[:4], *(float(f"{min(max(x, lo), hi) - lo:.6g}") for x in m[4:])]
        for m in timeline.intervals
        if m.end > lo and m.begin < hi
    ]


def computing(timeline: Timeline) -> float:
    """Seconds from the first to the last computation, whatever was read before or written after."""
    marks = [m for m in timeline.intervals if m.lane == "compute"]
    return max(m.end for m in marks) - min(m.begin for m in marks)


def on_cpu(n: int) -> dict[str, Any]:
    """A matrix in memory, and the same from and to a file with a quarter of its size as memory."""
    w = weights(np, slice(0, n), slice(0, n))
    limit = w.nbytes // 4
    sm.apsp(w[:256, :256].copy(), device="cpu")  # compiles
    times: dict[str, list[float]] = {"in_memory": [], "seconds": []}
    with tempfile.TemporaryDirectory(dir=".") as folder:
        for turn in range(2):
            start = time.perf_counter()
            d = sm.apsp(w, device="cpu", method="floyd_warshall", directed=True)
            times["in_memory"].append(time.perf_counter() - start)
            start = time.perf_counter()
            out = Path(folder, f"{turn}.npy")
            stored = sm.apsp(
                w, device="cpu", method="floyd_warshall", directed=True, out=out,
                memory_limit=limit,
            )  # fmt: skip
            times["seconds"].append(time.perf_counter() - start)
            np.testing.assert_array_equal(stored[:: n // 7], d[:: n // 7])  # no sum is rounded
            del stored
        checked = check(np, n, lambda i: np.load(out, mmap_mode="r")[i])
    best = {name: float(f"{min(t):.6g}") for name, t in times.items()}
    return {"where": "cpu", "n": n, "limit": limit, **best, "samples": times, "checked": checked}


def links(xp: Any, devices: Sequence[int], size: int = GIB, repeat: int = 5) -> dict[str, float]:
    """Bytes a second of a copy: to and from the host, to another device."""
    from semiring_mm.tiled.devices import cuda_devices

    cuda_devices(list(devices))  # lets devices write to each other
    cuda = xp.cuda
    runtime = cuda.runtime
    held = []
    for device in devices:
        with cuda.Device(device):
            held.append(cuda.alloc(size))
    pinned = cuda.alloc_pinned_memory(size)

    def best(on: Sequence[int], call: Callable[[], None]) -> float:
        rates = []
        for _ in range(repeat):
            start = time.perf_counter()
            call()
            for device in on:
                cuda.Device(device).synchronize()
            rates.append(size / (time.perf_counter() - start))
        return float(f"{max(rates):.4g}")

    first = devices[0]
    with cuda.Device(first):
        up, down = runtime.memcpyHostToDevice, runtime.memcpyDeviceToHost
        found = {
            "host to device": best(
                [first], lambda: runtime.memcpy(held[0].ptr, pinned.ptr, size, up)
            ),
            "device to host": best(
                [first], lambda: runtime.memcpy(pinned.ptr, held[0].ptr, size, down)
            ),
        }
    if len(devices) == 1:
        return found
    found["device to device"] = best(
        devices[:2],
        lambda: runtime.memcpyPeer(held[1].ptr, devices[1], held[0].ptr, first, size),
    )
    return found


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.scaling", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--devices", help="0,1,...; default all CUDA devices")
    parser.add_argument("--n", type=int, default=65_536, help="nodes, on one device if weak")
    parser.add_argument("--tile", type=int, help="lines of a tile; default what the library takes")
    parser.add_argument("--only", default=",".join(PARTS), help="of " + ",".join(PARTS))
    parser.add_argument("--out-of-core", type=int, metavar="N", help="instead: streamed, on one")
    parser.add_argument("--cpu", type=int, metavar="N", help="instead: from a file, on the CPU")
    parser.add_argument("--out", type=Path, help="default bench/results/scaling-MACHINE-DATE.json")
    parser.add_argument("--table", action="store_true", help="renew docs/scaling.md")
    args = parser.parse_args(words)
    if args.table:
        return renew()
    if unknown := set(args.only.split(",")) - {*PARTS}:
        parser.error(f"--only takes {', '.join(PARTS)}; got {', '.join(sorted(unknown))}")
    result = _measure(args)
    out = args.out
    if out is None:
        m = result["machine"]
        what = "cpu" if args.cpu else f"x{len(result['devices'])}"
        what += "-out-of-core" if args.out_of_core else ""
        name = f"scaling-{machine.slug(m.get('gpu', m.get('cpu')))}-{what}"
        out = report.RESULTS / f"{name}-{result['date'][:10]}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(report.dumps(result), encoding="utf-8")
    print(f"raw results: {out}")
    return 0


def _measure(args: argparse.Namespace) -> dict[str, Any]:
    result: dict[str, Any] = {
        "format": 1,
        "date": datetime.datetime.now().astimezone().replace(microsecond=0).isoformat(),
        "commit": machine.commit(),
    }
    if args.cpu:
        found = on_cpu(args.cpu)
        print(_streamed_row(found))
        return result | {
            "machine": machine.describe(), "versions": machine.versions(),
            "threads": sm.get_num_threads(), "devices": [], "streamed": [found],
        }  # fmt: skip
    import cupy

    there = range(cupy.cuda.runtime.getDeviceCount())
    devices = [int(x) for x in args.devices.split(",")] if args.devices else list(there)
    cupy.cuda.Device(devices[0]).use()
    result |= {
        "machine": machine.describe_device(), "versions": machine.device_versions(),
        "devices": devices,
    }  # fmt: skip
    bench = Bench(cupy, devices, args.n, args.tile)
    if args.out_of_core:
        result["streamed"] = [bench.out_of_core(args.out_of_core)]
        result["links"] = links(cupy, devices[:1])
        print(_streamed_row(result["streamed"][0]))
        return result
    parts = args.only.split(",")
    if "links" in parts:
        result["links"] = links(cupy, devices)
        print(result["links"], flush=True)
    result["lines"] = []
    for line in bench.lines(parts):
        result["lines"].append(line)
        print(line, flush=True)
    if "timeline" in parts:
        result["timeline"] = bench.timeline()
    return result


# --- tables and figures -----------------------------------------------------------------------


def row(line: dict[str, Any], base: dict[str, Any]) -> str:
    """A run beside the one on a single device."""
    n, p, t = line["n"], line["devices"], line["seconds"]
    rate = n**3 / t / 1e12
    gain = rate / (base["n"] ** 3 / base["seconds"] / 1e12)
    speed = f"{report.three(gain)} ×" if line["n"] == base["n"] else ""
    cells = [
        f"{n:,}", str(p), report.seconds(t), report.three(rate), report.three(rate / p), speed,
        f"{100 * gain / p:.0f} %", f"{line['sent'] / 1e9:,.1f} GB",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def table(lines: Sequence[dict[str, Any]], said: str) -> str:
    """Strong and weak scaling as Markdown."""
    base = next(x for x in lines if x["devices"] == 1)
    rows = [
        "| n | devices | time | T pairs/s | of each | speed-up | efficiency | sent |",
        "| --- " * 8 + "|",
        *(row(line, base) for line in lines),
    ]
    return "\n".join([*rows, "", said])


def forecast_table(lines: Sequence[dict[str, Any]], device: model.Device, way: model.Links) -> str:
    """Measured beside forecast."""
    rows = ["| n | devices | tile | measured | model | off by | a step waits for |"]
    rows.append("| --- " * 7 + "|")
    for x in lines:
        f = model.forecast(x["n"], x["devices"], x["tile"], device, way)
        rows.append(
            f"| {x['n']:,} | {x['devices']} | {x['tile']:,} | {report.seconds(x['seconds'])} | "
            f"{report.seconds(f.seconds)} | {100 * (f.seconds / x['seconds'] - 1):+.0f} % | "
            f"{f.bound} |"
        )
    return "\n".join(rows)


def _streamed_row(x: dict[str, Any]) -> str:
    where = "host memory, one GPU" if x["where"] == "device" else "a file, the CPU"
    rate = x["n"] ** 3 / x["seconds"]
    shown = (
        f"{report.three(rate / 1e12)} T/s" if rate >= 1e12 else f"{report.three(rate / 1e9)} G/s"
    )
    return (
        f"| {where} | {x['n']:,} | {report.seconds(x['in_memory'])} | "
        f"{report.seconds(x['seconds'])} | {shown} | × {x['seconds'] / x['in_memory']:.2f} |"
    )


def streamed_table(lines: Sequence[dict[str, Any]], said: str) -> str:
    """Out of core beside in memory."""
    rows = ["| tiles in | n | in memory | out of core | rate | times as long |", "| --- " * 6 + "|"]
    return "\n".join([*rows, *map(_streamed_row, lines), "", said])


#: A network of one InfiniBand or Ethernet card of 400 Gb/s for each device.
NETWORK = model.Links(50e9, latency=30e-6, in_turn=False)
#: 419 failures in 54 days on 16,384 GPUs (Llama Team, "The Llama 3 herd of models", 2024, § 3.3.4).
BETWEEN = 54 * 86400 * 16384 / 419
#: Bytes a second of each device to a parallel file system.
FILES = 1e9


def large_table(device: model.Device) -> str:
    """The forecast for very many devices."""
    rows = [
        "| nodes | devices | graph | memory of each | tile | time | efficiency | on the links "
        "| waits for | a failure in it | a checkpoint |",
        "| --- " * 11 + "|",
    ]
    cases = (
        (10**6, 1000, False),
        (10**6, 1000, True),
        (10**6, 4000, False),
        (4 * 10**6, 16000, False),
    )
    for n, p, symmetric in cases:
        b = model.best_tile(n, p, device, NETWORK, symmetric=symmetric)
        f = model.forecast(n, p, b, device, NETWORK, symmetric=symmetric)
        ideal = n**3 / (2 if symmetric else 1) / device.rate / p
        write = model.SIZE * n**2 / (2 if symmetric else 1) / p / FILES
        rows.append(
            f"| {n:,} | {p:,} | {'undirected' if symmetric else 'directed'} | "
            f"{f.memory / 1e9:.1f} GB | {b:,} | {report.seconds(f.seconds)} | "
            f"{100 * ideal / f.seconds:.0f} % | {100 * f.send / max(f.compute, f.chain):.0f} % | "
            f"{f.bound} | {100 * -math.expm1(-f.seconds * p / BETWEEN):.2g} % | "
            f"{report.seconds(write)}, every "
            f"{model.interval(write, BETWEEN / p) / 60:.0f} min |"
        )
    return "\n".join(rows)


def results() -> list[tuple[str, dict[str, Any]]]:
    """Committed results, one of each name, the newest; those of more devices first."""
    import json

    newest: dict[str, tuple[str, dict[str, Any]]] = {}
    for name in machine.git("ls-files", "bench/results").split():
        if Path(name).name.startswith("scaling-"):
            result = json.loads((machine.ROOT / name).read_text(encoding="utf-8"))
            key = Path(name).name[: -len("-2026-01-01.json")]
            if key not in newest or newest[key][1]["date"] < result["date"]:
                newest[key] = (name, result)
    return sorted(newest.values(), key=lambda x: -len(x[1]["devices"]))


def chosen(found: Sequence[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Each size on each number of devices once, as measured on the host with the most."""
    lines: dict[tuple[str, int, int], dict[str, Any]] = {}
    for _, result in found:
        for line in result.get("lines", ()):
            lines.setdefault((line["kind"], line["n"], line["devices"]), line)
    order = sorted(lines.items(), key=lambda x: (x[0][0] != "strong", x[0][2], x[0][1]))
    return [line for _, line in order]


def renew() -> int:
    """Tables and figures from the committed results."""
    found = results()
    _, gpu = report.newest("gpu")
    if gpu is None:
        print("bench: no results of a GPU are committed below bench/results", file=sys.stderr)
        return 1
    device = model.device_of(gpu)
    report.put(PAGE, large_table(device), "scaling-large")
    way = links_of(found)
    lines = chosen(found)
    spread = [x for x in found if x[1].get("lines")]
    if lines:
        said = f"{_said(spread)} Efficiency: of the rate of one device, times devices."
        report.put(PAGE, f"{table(lines, said)}\n\n{PICTURE}", "scaling")
        report.put(PAGE, forecast_table(lines, device, way), "scaling-model")
        draw(lines, device, way, spread[0][1]["machine"]["gpu"], FIGURE)
    if streams := [(name, x) for name, x in found if x.get("streamed")]:
        rows = [line for _, x in streams for line in x["streamed"]]
        report.put(PAGE, streamed_table(rows, _said(streams)), "scaling-streamed")
    for _, result in spread:
        if result.get("timeline"):
            draw_timeline(result["timeline"], result["machine"]["gpu"], TIMELINE)
            report.put(PAGE, LANES.format(SHOWN), "scaling-timeline")
            break
    print(f"docs/scaling.md: {len(lines)} runs, {len(streams)} out of core")
    return int(not lines)


def links_of(found: Sequence[tuple[str, dict[str, Any]]]) -> model.Links:
    """The links as measured; before they are, as they were on a host of four H200."""
    rates: dict[str, float] = {}
    for _, result in found:
        for name, rate in result.get("links", {}).items():
            rates.setdefault(name, rate)
    ways = [rates[x] for x in ("host to device", "device to host") if x in rates]
    return model.Links(rates.get("device to device", 395e9), store=min(ways, default=55e9))


def _said(found: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """On what it was measured."""
    parts = []
    for name, x in found:
        m = x["machine"]
        what = (
            f"{len(x['devices'])} × {m['gpu']}"
            if "gpu" in m
            else f"{m['cpu']}, {x['threads']} threads"
        )
        driver = f", driver {m['driver']}" if "driver" in m else ""
        parts.append(f"{what}{driver}; {x['date'][:10]}, commit {x['commit']}, raw: `{name}`.")
    return " ".join(parts)


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= report.STYLE
    from matplotlib import pyplot as plt

    return plt


def draw(
    lines: Sequence[dict[str, Any]], device: model.Device, way: model.Links, title: str,
    target: Path,
) -> None:  # fmt: skip
    """Efficiency over the number of devices: measured points, the model's line."""
    plt = _pyplot()
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained", sharey=True)
    base = next(x for x in lines if x["devices"] == 1)
    alone = base["n"] ** 3 / base["seconds"]
    own = model.forecast(base["n"], 1, base["tile"], device, way)
    for ax, kind in zip(axes, ("strong", "weak"), strict=True):
        shown = [x for x in lines if x["kind"] == kind or x is base]
        size = f"n = {base['n']:,}" if kind == "strong" else f"n = {base['n']:,} √devices"
        ax.set(title=f"{kind} scaling, {size}", xlabel="devices", xscale="log")
        most = max(8, *(x["devices"] for x in shown))
        many = [1 << i for i in range(most.bit_length())]
        curve = []
        for p in many:
            n = base["n"] if kind == "strong" else weak_size(base["n"], p)
            f = model.forecast(n, p, base["tile"], device, way)
            curve.append(100 * n**3 / f.seconds / p / (base["n"] ** 3 / own.seconds))
        ax.plot(many, curve, color="gray", lw=1.2, label="model")
        ax.plot(
            [x["devices"] for x in shown],
            [100 * x["n"] ** 3 / x["seconds"] / x["devices"] / alone for x in shown],
            "o", ms=6, label="measured",
        )  # fmt: skip
        ax.set_xticks(many, [str(p) for p in many])
        ax.minorticks_off()
        ax.set_ylim(0, 110)
        ax.grid(axis="y", color="#dddddd", lw=0.6)
    axes[0].set_ylabel("efficiency, % of one device's rate")
    axes[0].legend(frameon=False, loc="lower left")
    figure.suptitle(title, fontsize=9)
    figure.savefig(target, metadata={"Date": None})
    plt.close(figure)


def draw_timeline(raw: dict[str, Any], title: str, target: Path) -> None:
    """What each device's lanes did, over some steps."""
    plt = _pyplot()
    marks = raw["marks"]
    lanes = sorted({(m[0], m[1]) for m in marks})
    kinds = list(dict.fromkeys(m[2] for m in sorted(marks, key=lambda m: m[4])))
    colors = dict(zip(kinds, plt.get_cmap("tab10").colors, strict=False))
    height = 1.2 + 0.28 * len(lanes)
    figure, axes = plt.subplots(figsize=(9, height), layout="constrained")
    for place, lane, what, step, begin, end in marks:
        at = len(lanes) - 1 - lanes.index((place, lane))
        axes.broken_barh(
            [(1e3 * begin, 1e3 * (end - begin))], (at - 0.38, 0.76), color=colors[what],
            alpha=0.95 if step % 2 else 0.55, lw=0,
        )  # fmt: skip
    axes.set_yticks(range(len(lanes)), [" ".join(x) for x in reversed(lanes)])
    axes.set(xlabel="ms", title=f"{title}: n = {raw['n']:,}, tiles of {raw['tile']:,}")
    for what in kinds:
        axes.barh(0, 0, color=colors[what], label=what)
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(target, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    sys.exit(main())
