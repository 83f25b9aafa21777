"""Results in words: a line in the terminal, tables between markers, the figure."""

from __future__ import annotations

import datetime
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from . import machine
from .measure import UNITS, Contender, Line

RESULTS = machine.ROOT / "bench" / "results"
FIGURE = machine.ROOT / "docs" / "performance.svg"
ROOFLINE = machine.ROOT / "docs" / "roofline.svg"


def seconds(value: float) -> str:
    """Three digits and a unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if value >= 0.9995 * scale:
            return f"{three(value / scale)} {unit}"
    return f"{three(value / 1e-6)} µs"


def three(value: float) -> str:
    """Three digits, none of them behind an empty point."""
    return (
        f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
    )


def rate(contender: Contender, unit: str) -> str:
    return f"{three(contender.rate / UNITS[unit])} {unit}" if contender.work and unit else ""


def of_ceiling(line: Line) -> str:
    if not line.ceiling_rate or not line.ours.samples:
        return ""
    return f"{100 * line.ours.rate / line.ceiling_rate:.0f} %"


def compared(line: Line, other: Contender) -> str:
    """A rival and how many times slower it is; of our own, how much of its rate is reached."""
    if other.skipped or not other.samples:
        return f"{other.name} {other.skipped or 'not run'}"
    by_time = line.case.startswith("apsp") or not line.unit
    value = seconds(other.median) if by_time else rate(other, line.unit)
    slower = [ratio(line, other)]
    return f"{other.name} {value} ({percents(slower) if other.ours else times(slower)})"


def ratio(line: Line, other: Contender) -> float:
    """How many times slower a contender is than ours: by rates where the work differs."""
    ours = line.ours
    return ours.rate / other.rate if ours.work and other.work else other.median / ours.median


def text(line: Line) -> str:
    """One line of the terminal."""
    head = f"{line.case:30}{line.size:>6}  "
    if line.skipped:
        return f"{head}skipped: {line.skipped}"
    ours = line.ours
    best = f"(best {seconds(min(ours.samples))})"
    top = ""
    if line.ceiling_rate:
        top = f"{of_ceiling(line):>6} of {three(line.ceiling_rate / UNITS[line.unit])}"
    one = "1 thread" if line.threads == 1 else ""
    parts = [f"{seconds(ours.median):>8} {best:16} {rate(ours, line.unit):>10} {top:15}", one]
    parts += [compared(line, other) for other in line.contenders[1:]]
    return head + "  ".join(part for part in parts if part).rstrip()


def heading(result: dict[str, Any]) -> str:
    m, v = result["machine"], result["versions"]
    if "gpu" in m:
        return _device_heading(result)
    caches = ", ".join(f"{level} {size}" for level, size in m["caches"].items())
    packages = ", ".join(f"{k} {x}" for k, x in v.items() if k != "BLAS" and x != "absent")
    absent = ", ".join(k for k, x in v.items() if x == "absent")
    lines = [
        f"{m['cpu']}, {m['cores']} cores, {caches}, {m['memory_gib']:g} GiB, {m['os']}",
        f"{packages}; {v['BLAS']}" + (f"; absent: {absent}" if absent else ""),
        f"{result['threads']} threads, commit {result['commit'] or 'unknown'}, {result['date']}",
    ]
    if m["load"] and m["load"][0] > 0.5:
        lines.append(f"other work runs on this machine: load {m['load'][0]:.1f}")
    return "\n".join([*lines, "", _COLUMNS])


_COLUMNS = f"{'operation':30}{'n':>6}  {'time':>8} {'':16} {'rate':>10} ceiling"


def _device_heading(result: dict[str, Any]) -> str:
    m = result["machine"]
    told = ", ".join(f"{k} {m[k]}" for k in ("driver", "clock", "power") if k in m)
    return "\n".join(
        [
            f"{m['gpu']} ({m['arch']}), {m['multiprocessors']} multiprocessors, "
            f"{m['memory_gib']:g} GiB, L2 {m['l2_mib']:g} MiB" + (f", {told}" if told else ""),
            f"{m['host']}, {m['os']}",
            ", ".join(f"{k} {x}" for k, x in result["versions"].items()),
            f"commit {result['commit'] or 'unknown'}, {result['date']}",
            "",
            _COLUMNS,
        ]
    )


def ceilings_text(ceilings: Iterable[dict[str, Any]]) -> str:
    """The ceilings' forms, before and after: the best sample of each."""
    ceilings = list(ceilings)
    on_device = any(not row["threads"] for row in ceilings)
    scale, units = (1e12, "T/s or TB/s") if on_device else (1e9, "G/s or GB/s")
    lines = [f"ceilings, {units}, best samples before → after"]
    for row in ceilings:
        forms = (
            f"{form} {three(max(row['before'][form]) / scale)} → {three(max(after) / scale)}"
            for form, after in row["after"].items()
        )
        count = row["threads"]
        threads = f"{count} thread{'s' * (count > 1)}" if count else ""
        lines.append(f"  {row['name']:20}{threads:<{11 * bool(count)}}{'; '.join(forms)}")
    return "\n".join(lines)


def dumps(result: dict[str, Any]) -> str:
    """JSON in six digits, with every list of samples on a line of its own."""
    lines = json.dumps(result, indent=1, ensure_ascii=False)  # a number ends its line
    short = re.sub(r"\d+\.\d{4,}(e-?\d+)?(?=,?\n)", lambda m: f"{float(m[0]):.6g}", lines)
    samples = r"\[\s+([-\d.e+,\s]+?)\s+\]"
    return re.sub(samples, lambda m: f"[{' '.join(m[1].split())}]", short) + "\n"


# Raw results


def begin(threads: int, *, on_device: bool = False, **more: Any) -> dict[str, Any]:
    """Raw results without lines: when, on what and of which commit. A device has 0 threads."""
    return {
        "format": 1,
        "date": datetime.datetime.now().astimezone().replace(microsecond=0).isoformat(),
        "commit": machine.commit(),
        **more,
        "machine": machine.describe_device() if on_device else machine.describe(),
        "versions": machine.device_versions() if on_device else machine.versions(),
        "threads": threads,
        "lines": [],
    }


def keep(
    result: dict[str, Any], kind: str, out: Path | None, *, scratch: bool, quiet: bool = False
) -> Path | None:
    """Write raw results to `out`, by default bench/results/KIND-MACHINE-DATE.json.

    Those of a `scratch` run are only kept where `out` says so. Gives the file, if there is one.
    """
    if out is None:
        if scratch:
            return None
        m = result["machine"]
        where = machine.slug(m.get("gpu") or m["cpu"])
        out = RESULTS / f"{kind}-{where}-{result['date'][:10]}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(dumps(result), encoding="utf-8")
    if not quiet:
        print(f"\nraw results: {out}")
    return out


# Tables and figures of the pages


#: Tables of a GPU run that have pages of their own, and the page and second column of each. They
#: are of the newest run of all, or of theirs alone (``--only``, kept as KIND-MACHINE-DATE.json).
GPU_TABLES = {
    "sequences-gpu": ("docs/sequences.md", "sequences"),
    "neighbours-gpu": ("docs/neighbours.md", "rows of X, columns, rows of Y"),
    "sparse-gpu": ("docs/sparse.md", "n"),
}
#: Packages whose versions matter to the tables of a device.
_STACK = ("cupy", "torch", "jax", "NVRTC", "cuBLAS", *machine.RIVALS)


def renew() -> int:
    """Tables and figures from the newest committed results, between the markers.

    And the table of semirings, from the code.
    """
    from semiring_mm import semirings

    from . import aims, headlines, roofline

    put(machine.ROOT / "docs" / "semirings.md", semirings._repr_markdown_(), "semirings")
    path, result = newest("cpu")
    if result is not None:
        lines = [Line.from_raw(raw) for raw in result["lines"]]
        _put("docs/performance.md", summary(result, lines, path), "cpu")
        _say_drawn(FIGURE, draw(result, lines))
    device_path, on_device = newest("gpu")
    if on_device is not None:
        lines = [Line.from_raw(raw) for raw in on_device["lines"]]
        own_page = [x for x in lines if not x.table]
        _put("docs/performance.md", summary(on_device, own_page, device_path), "gpu")
        for kind, (page, size) in GPU_TABLES.items():
            where, last = newest("gpu", kind)
            shown = map(Line.from_raw, last["lines"] if last else [])
            if last and (rows := [x for x in shown if x.table == kind]):
                _put(page, table(last, rows, where, size), kind)
        _say_drawn(ROOFLINE, roofline.draw(on_device, own_page))
    if result is None and on_device is None:
        print("bench: no results are committed below bench/results")
        return 1
    _put("docs/performance.md", aims.table(), "aims")
    for name in ("README.md", "docs/index.md"):
        _put(name, headlines.table(), "headlines")
    return 0


def _say_drawn(figure: Path, drawn: bool) -> None:
    print(f"{figure.relative_to(machine.ROOT)}: {'drawn' if drawn else 'Matplotlib is absent'}")


def _put(name: str, block: str, kind: str) -> None:
    done = put(machine.ROOT / name, block, kind)
    print(f"{name}: {'renewed' if done else 'has no markers ' + ' and '.join(markers(kind))}")


def newest(*kinds: str) -> tuple[str, dict[str, Any] | None]:
    """The committed results of some kinds with the latest date."""
    found, begins = [], tuple(f"{kind}-" for kind in kinds)
    for name in machine.git("ls-files", "bench/results").split():
        if name.endswith(".json") and Path(name).name.startswith(begins):
            result = json.loads((machine.ROOT / name).read_text(encoding="utf-8"))
            found.append((result["date"], name, result))
    _, name, result = max(found, default=("", "", None), key=lambda row: row[0])
    return name, result


def renew_page(
    page: Path, kinds: Iterable[str], table_of: Callable[[dict[str, Any], str], str]
) -> int:
    """Renew the tables of a page from the newest results of some kinds; the exit code."""
    found = 0
    for kind in kinds:
        files = RESULTS.glob(f"{kind}-*.json")
        path = max(files, key=lambda p: json.loads(p.read_text())["date"], default=None)
        if path is None:
            print(f"bench: no results {kind}-*.json below bench/results", file=sys.stderr)
            continue
        block = table_of(json.loads(path.read_text()), str(path.relative_to(machine.ROOT)))
        assert put(page, block, kind), f"{page.name} has no markers for {kind}"
        print(f"{page.name}: the table {kind} is renewed")
        found += 1
    return int(not found)


def pair_row(line: Line, *, named: bool = False) -> str:
    """A row of two contenders: their times, and how many times slower the second one is."""
    ours, theirs = line.contenders
    cells = [line.case, line.size, seconds(ours.median), seconds(theirs.median)]
    if named:
        cells[-1] = f"{theirs.name} {cells[-1]}"
    return f"| {' | '.join(cells)} | × {three(theirs.median / ours.median)} |"


def renew_pairs(page: Path, kind: str, head: str, packages: Sequence[str], slower: str) -> int:
    """Renew a table of :func:`pair_row`; `slower` ends "says how many times slower".

    With several packages a row names its own.
    """

    def table_of(result: dict[str, Any], source: str) -> str:
        note = f"Medians; × says how many times slower {slower}."
        return "\n".join(
            [
                head,
                "| --- " * 5 + "|",
                *(pair_row(Line.from_raw(raw), named=len(packages) > 1) for raw in result["lines"]),
                "",
                provenance(result, source, note, [x for x in packages if x in result["versions"]]),
            ]
        )

    return renew_page(page, (kind,), table_of)


def markers(kind: str) -> tuple[str, str]:
    """The comments around the table of a kind of results in a page."""
    return f"<!-- bench-{kind}:begin -->", f"<!-- bench-{kind}:end -->"


def put(target: Path, block: str, kind: str = "cpu") -> bool:
    """Replace what stands between the markers; whether there are any.

    Names of raw results become links that work from the page.
    """
    begin, end = markers(kind)
    root = Path(os.path.relpath(machine.ROOT, target.parent)).as_posix()
    block = block.replace("](bench/", f"]({root}/bench/").replace("(./", "(")
    raw = rf"[`\1`]({root}/\1)".replace("(./", "(")
    block = re.sub(r"`(bench/results/[\w.-]+\.json)`", raw, block)
    old = target.read_text(encoding="utf-8")
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    new, count = pattern.subn(lambda _: f"{begin}\n{block}\n{end}", old)
    if new != old:
        target.write_text(new, encoding="utf-8")
    return count > 0


def table(result: dict[str, Any], lines: Iterable[Line], source: str, size: str = "n") -> str:
    """The lines as Markdown, with what they were measured on; without columns that are empty."""
    head = ["operation", size, "time", "rate", "of the ceiling", "beside it"]
    rows = []
    for line in lines:
        cells = [line.case + (", 1 thread" if line.threads == 1 else ""), line.size]
        if line.skipped:
            cells += [f"skipped: {line.skipped}", "", "", ""]
        else:
            others = [c for c in line.contenders[1:] if c.samples]
            cells += [seconds(line.ours.median), rate(line.ours, line.unit), of_ceiling(line)]
            cells.append("; ".join(compared(line, other) for other in others))
        rows.append(cells)
    kept = [i for i in range(len(head)) if i < 3 or any(cells[i] for cells in rows)]
    text = [f"| {' | '.join(cells[i] for i in kept)} |" for cells in (head, *rows)]
    text.insert(1, "| --- " * len(kept) + "|")
    note = "Medians; × says how many times slower, % how much of that rate is reached."
    found = "\n".join(row.replace("|  |", "| |") for row in text)
    return f"{found}\n\n{provenance(result, source, note)}"


_VERB = re.compile("[a-z]+_?[a-z]* ")  # of a size such as "sgemm 64" or "min_plus 64"


def summary(result: dict[str, Any], lines: Iterable[Line], source: str) -> str:
    """The lines as Markdown, one row for all sizes of an operation."""
    cases: dict[str, list[Line]] = {}
    for line in lines:
        if not line.skipped:
            name = line.case + (", 1 thread" if line.threads == 1 else "")
            verb = _VERB.match(line.size)
            cases.setdefault(f"{name}, {verb[0].strip()}" if verb else name, []).append(line)
    rows = ["| operation | n | time | rate | of the ceiling | compared with |", "| --- " * 6 + "|"]
    for name, sizes in cases.items():
        ends = [sizes[0], sizes[-1]][: len(sizes)]
        last = ends[-1]
        cells = [name, " … ".join(_VERB.sub("", x.size) for x in ends)]
        cells += [" … ".join(seconds(x.ours.median) for x in ends)]
        cells += [rate(last.ours, last.unit), of_ceiling(last), _compared_over(sizes)]
        rows.append(f"| {' | '.join(cells)} |")
    text = "\n".join(rows).replace("|  |", "| |").replace("|  |", "| |")
    return f"{text}\n\n{provenance(result, source)}"


def _compared_over(lines: Iterable[Line]) -> str:
    """Each rival, and how many times slower it is, from the least to the most of all sizes."""
    found: dict[tuple[str, bool], list[float]] = {}
    for line in lines:
        for other in line.contenders[1:]:
            if other.samples:
                name = re.sub("^n = .*", "an even n", other.name)
                found.setdefault((name, other.ours), []).append(ratio(line, other))
    return "; ".join(
        f"{name} {percents(values) if ours else times(values)}"
        for (name, ours), values in found.items()
    )


def times(values: Sequence[float]) -> str:
    return f"× {'–'.join(dict.fromkeys(three(x) for x in (min(values), max(values))))}"


def percents(values: Sequence[float]) -> str:
    return f"{'–'.join(dict.fromkeys(f'{100 * x:.0f}' for x in (min(values), max(values))))} %"


def provenance(
    result: dict[str, Any], source: str, note: str = "", packages: Sequence[str] = ()
) -> str:
    """The line below a table: machine, versions, date, commit, a note and the raw results.

    Without `packages`, those versions are named that matter to this library on such a machine.
    """
    m, v = result["machine"], result["versions"]
    if "gpu" in m:
        what = m["gpu"] + (f", driver {m['driver']}" if "driver" in m else "")
        packages = packages or [name for name in v if name.startswith(_STACK)]
    else:
        what = f"{m['cpu']}, {result['threads']} threads"
        packages = packages or ("numpy", "LLVM")
    versions = ", ".join(f"{'NumPy' if x == 'numpy' else x} {v[x]}" for x in packages)
    words = f"{what}; {versions}; {result['date'][:10]}, commit {result['commit']}."
    return " ".join(x for x in (words, note, f"Raw: `{source}`.") if x)


#: Of the figures.
STYLE = {"svg.hashsalt": "bench", "font.size": 9, "axes.spines.top": False,
         "axes.spines.right": False}  # fmt: skip


def draw(result: dict[str, Any], lines: list[Line]) -> bool:
    """Products against their ceiling, shortest paths against their rivals, over n."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("svg")
    matplotlib.rcParams |= STYLE
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    left.set(title="min-plus product, float32", xlabel="n", ylabel="10⁹ pairs/s", xscale="log")
    right.set(title="all-pairs shortest paths, float32, dense", xlabel="n", ylabel="s")
    right.set(xscale="log", yscale="log")
    products = [x for x in lines if x.case == "min-plus f32" and not x.skipped]
    paths = [x for x in lines if x.case == "apsp f32" and not x.skipped]
    _curves(left, products, lambda c: c.rate / 1e9)
    _curves(right, paths, lambda c: c.median)
    if products:
        top = products[-1].ceiling_rate / 1e9
        left.axhline(top, color="gray", lw=1, ls="--")
        left.text(
            0.01, top, "ceiling ", color="gray", va="bottom", transform=left.get_yaxis_transform()
        )
        left.set_ylim(0, 1.12 * top)
    for axes, shown in ((left, products), (right, paths)):
        sizes = [int(x.size) for x in shown]
        axes.set_xticks(sizes, [str(n) for n in sizes])
        axes.minorticks_off()
        axes.grid(axis="y", color="#dddddd", lw=0.6)
        if shown:
            axes.legend(frameon=False, fontsize=8)
    figure.suptitle(f"{result['machine']['cpu']}, {result['threads']} threads", fontsize=9)
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE, metadata={"Date": None})
    plt.close(figure)
    return True


def _curves(axes: Any, lines: list[Line], value: Any) -> None:
    names = dict.fromkeys(c.name for line in lines for c in line.contenders if c.samples)
    for i, name in enumerate(names):
        points = [
            (int(line.size), value(c))
            for line in lines
            for c in line.contenders
            if c.name == name and c.samples
        ]
        axes.plot(*zip(*points, strict=True), "o-", ms=4, lw=2.2 if i == 0 else 1.2, label=name)
