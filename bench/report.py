"""Results in words: a line in the terminal, tables between markers, the figure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import machine
from .measure import UNITS, Contender, Line

RESULTS = machine.ROOT / "bench" / "results"
FIGURE = machine.ROOT / "docs" / "performance.svg"
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"


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
    ours = line.ours
    times = ours.rate / other.rate if ours.work and other.work else other.median / ours.median
    return f"{other.name} {value} ({f'{100 * times:.0f} %' if other.ours else f'× {three(times)}'})"


def text(line: Line) -> str:
    """One line of the terminal."""
    head = f"{line.case:29}{line.size:>6}  "
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
    lines += ["", f"{'operation':29}{'n':>6}  {'time':>8} {'':16} {'rate':>10} ceiling"]
    return "\n".join(lines)


def ceilings_text(ceilings: Iterable[dict[str, Any]]) -> str:
    """The ceilings' forms, before and after: the best sample of each."""
    lines = ["ceilings, G/s or GB/s, best samples before → after"]
    for row in ceilings:
        forms = (
            f"{form} {three(max(row['before'][form]) / 1e9)} → {three(max(after) / 1e9)}"
            for form, after in row["after"].items()
        )
        threads = f"{row['threads']} thread{'s' * (row['threads'] > 1)}"
        lines.append(f"  {row['name']:17}{threads:11}{'; '.join(forms)}")
    return "\n".join(lines)


def dumps(result: dict[str, Any]) -> str:
    """JSON in six digits, with every list of samples on a line of its own."""
    lines = json.dumps(result, indent=1, ensure_ascii=False)  # a number ends its line
    short = re.sub(r"\d+\.\d{4,}(e-?\d+)?(?=,?\n)", lambda m: f"{float(m[0]):.6g}", lines)
    samples = r"\[\s+([-\d.e+,\s]+?)\s+\]"
    return re.sub(samples, lambda m: f"[{' '.join(m[1].split())}]", short) + "\n"


# The README's table and figure


def renew() -> int:
    """Tables and figure from the newest committed results, between the markers."""
    path, result = newest()
    if result is None:
        print("bench: no results are committed below bench/results")
        return 1
    lines = [Line.from_raw(raw) for raw in result["lines"]]
    drawn = draw(result, lines)
    for name, chosen in (("README.md", largest(lines)), ("docs/performance.md", lines)):
        target = machine.ROOT / name
        block = table(result, chosen, path)
        if target.exists() and put(target, block):
            print(f"{name}: {len(chosen)} lines")
        else:
            print(f"{name}: has no markers {BEGIN} and {END}")
    print(f"{FIGURE.relative_to(machine.ROOT)}: {'drawn' if drawn else 'Matplotlib is absent'}")
    return 0


def newest() -> tuple[str, dict[str, Any] | None]:
    """The committed results with the latest date."""
    found = []
    for name in machine.git("ls-files", "bench/results").split():
        if Path(name).name.startswith("cpu-"):
            result = json.loads((machine.ROOT / name).read_text(encoding="utf-8"))
            found.append((result["date"], name, result))
    _, name, result = max(found, default=("", "", None), key=lambda row: row[0])
    return name, result


def largest(lines: list[Line]) -> list[Line]:
    """Each case at its largest size, for a table that one reads."""
    kept = {line.case: line for line in lines if not line.skipped}
    return list(kept.values())


def put(target: Path, block: str) -> bool:
    """Replace what stands between the markers; whether there are any."""
    old = target.read_text(encoding="utf-8")
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    new, count = pattern.subn(lambda _: f"{BEGIN}\n{block}\n{END}", old)
    if new != old:
        target.write_text(new, encoding="utf-8")
    return count > 0


def table(result: dict[str, Any], lines: Iterable[Line], source: str) -> str:
    """The lines as Markdown, with what they were measured on."""
    rows = ["| operation | n | time | rate | of the ceiling | beside it |", "| --- " * 6 + "|"]
    for line in lines:
        cells = [line.case + (", 1 thread" if line.threads == 1 else ""), line.size]
        if line.skipped:
            cells += [f"skipped: {line.skipped}", "", "", ""]
        else:
            others = [c for c in line.contenders[1:] if c.samples]
            cells += [seconds(line.ours.median), rate(line.ours, line.unit), of_ceiling(line)]
            cells.append("; ".join(compared(line, other) for other in others))
        rows.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
    m, v = result["machine"], result["versions"]
    rows += [
        "",
        f"{m['cpu']}, {result['threads']} threads; NumPy {v['numpy']}, LLVM {v['LLVM']}; "
        f"{result['date'][:10]}, commit {result['commit']}. Medians; × says how many times slower, "
        f"% how much of that rate is reached. "
        f"Raw: `{source}`.",
    ]
    return "\n".join(rows)


def draw(result: dict[str, Any], lines: list[Line]) -> bool:
    """Products against their ceiling, shortest paths against their rivals, over n."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": "bench", "font.size": 9, "axes.spines.top": False,
                            "axes.spines.right": False}  # fmt: skip
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
