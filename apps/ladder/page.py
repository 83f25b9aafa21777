"""Renew docs/ladder.md and its figures from the raw results: python -m apps.ladder.page.

The results are the files of ``python -m apps.ladder --out``, kept in apps/ladder/results: one for
each semiring, with ``gemv-`` before its name for the matrix-vector product.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.machine import ROOT

from . import report
from .measure import CUBLAS
from .published import PUBLISHED
from .report import Rows, markdown, rate

PAGE = ROOT / "docs" / "ladder.md"
RESULTS = Path(__file__).with_name("results")
Result = dict[str, Any]


def largest(result: Result) -> int:
    return max(int(line["n"]) for line in result["lines"])


def measured_on(result: Result) -> str:
    m, v = result["machine"], result["versions"]
    driver = f", driver {m['driver']}" if "driver" in m else ""
    packages = ", ".join(f"{k} {v[k]}" for k in v if k.startswith(("cupy", "NVRTC", "cuBLAS")))
    name = f"{'gemv-' * (result['verb'] == 'gemv')}{result['semiring']['name']}"
    return (
        f"{m['gpu']}{driver}; {packages}; {result['date'][:10]}, commit {result['commit']}. "
        f"Raw: `apps/ladder/results/{name}.json`."
    )


def rungs(result: Result) -> str:
    n = largest(result)
    notes = "".join(f"\n\n{note}." for note in result["notes"])
    return f"n = {n}:\n\n{markdown(report.steps(result, n))}\n\n{measured_on(result)}{notes}"


def counters(result: Result) -> str:
    n = largest(result)
    rows = report.counted(result, n)
    return f"n = {n}:\n\n{markdown(rows)}" if rows else "No counters were read."


def published(result: Result) -> str:
    """A published ladder and this one: GFLOP/s, and the ratio of each rung to its cuBLAS."""
    n = largest(result)
    ours = {line["rung"] or CUBLAS: 2e-9 * rate(line) for line in result["lines"] if line["n"] == n}
    top = PUBLISHED.rows[-1][2]
    rows: Rows = [["our rung", "theirs", "GFLOP/s", "of cuBLAS", "ours", "of cuBLAS"]]
    for rung, words, value in PUBLISHED.rows:
        own = ours.get(rung, 0.0)
        row = [rung, words, f"{value:.0f}", f"{100 * value / top:.1f} %"]
        row += [f"{own:.0f}", f"{100 * own / ours[CUBLAS]:.1f} %"] if own else ["", ""]
        rows.append(row)
    return f"[{PUBLISHED.title}]({PUBLISHED.source}), ours at n = {n}:\n\n{markdown(rows)}"


#: Generated sections by marker name: the result and the function that formats it.
BLOCKS: dict[str, tuple[str, Callable[[Result], str]]] = {
    "min_plus": ("min_plus", rungs),
    "min_plus counters": ("min_plus", counters),
    "plus_times": ("plus_times", rungs),
    "gemv": ("gemv-plus_times", rungs),
    "published": ("plus_times", published),
}
FIGURES = {
    "min_plus": "ladder.svg",
    "plus_times": "ladder-plus-times.svg",
    "gemv-plus_times": "ladder-gemv.svg",
}


def put(text: str, name: str, block: str) -> str:
    """Return a page with the text between a name's markers replaced."""
    begin, end = f"<!-- ladder {name}:begin -->", f"<!-- ladder {name}:end -->"
    if begin not in text or end not in text:
        raise SystemExit(f"{PAGE.name} has no markers {begin} and {end}")
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    return pattern.sub(lambda _: f"{begin}\n{block}\n{end}", text)


def renew(page: str, results: dict[str, Result]) -> str:
    """Renew the page's tables from these results."""
    for name, (source, make) in BLOCKS.items():
        if source in results:
            page = put(page, name, make(results[source]))
    return page


def main() -> int:
    results = {
        path.stem: json.loads(path.read_text(encoding="utf-8")) for path in RESULTS.glob("*.json")
    }
    PAGE.write_text(renew(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
    for name, file in FIGURES.items():
        if name in results:
            from .draw import draw

            draw(str(ROOT / "docs" / file), results[name])
    print(f"{PAGE.relative_to(ROOT)}: {', '.join(sorted(results)) or 'no results'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
