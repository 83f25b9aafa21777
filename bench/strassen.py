"""Strassen's products (apps/strassen.py) against the plain one and the library's: time, and error.

``python -m bench.strassen`` measures on this machine's CPU and writes raw results below
``bench/results``; ``--device cuda`` does so on the current CUDA device; ``--table`` renews the
tables of docs/strassen.md from the newest committed results. Contenders of a line take turns, as
in ``python -m bench``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import semiring_mm as sm
from apps.strassen import strassen

from . import machine, report
from .measure import Contender, Line, Wall, sample

TARGET = machine.ROOT / "docs" / "strassen.md"
#: Sides of the squares, by device and dtype.
SIZES = {
    "cpu": {
        "float32": (1024, 2048, 4096, 4097, 8192),
        "float64": (1024, 2048, 4096, 4097),
    },
    "cuda": {
        "float32": (2048, 4096, 8192, 8193, 16384, 32768),
        "float64": (2048, 4096, 8192, 16384),
    },
}
LEVELS = (1, 2)
PLAIN = "matmul"


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.strassen", description=__doc__)
    parser.add_argument("--device", choices=tuple(SIZES), default="cpu")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, two samples")
    parser.add_argument(
        "--out", type=Path, help="default bench/results/strassen-DEVICE-MACHINE-DATE.json"
    )
    parser.add_argument("--table", action="store_true", help="renew the tables of docs/strassen.md")
    args = parser.parse_args(words)
    if args.table:
        return report.renew_page(TARGET, [f"strassen-{device}" for device in SIZES], table)
    result = _measure(args.device, args.quick)
    report.keep(result, f"strassen-{args.device}", args.out, scratch=args.quick)
    return 0


def _measure(device: str, quick: bool) -> dict[str, Any]:
    on_device = device == "cuda"
    xp: Any = np
    clock = Wall()
    if on_device:
        import cupy

        from .gpu import Events

        xp, clock = cupy, Events()
    threads = 0 if on_device else sm.get_num_threads()
    result = report.begin(threads, on_device=on_device) | {"errors": []}
    for dtype, sizes in SIZES[device].items():
        for n in (32, 33) if quick else sizes:
            line = _line(xp, n, dtype, threads)
            sample(line, quick=quick, clock=clock)
            result["lines"].append(line.raw())
            print(report.text(line), flush=True)
            if on_device:
                xp.get_default_memory_pool().free_all_blocks()
    for dtype, n in (("float32", 1024), ("float64", 256)):
        for name, draw in DATA.items():
            result["errors"].append(_errors(xp, name, draw, 32 if quick else n, dtype))
            print(_error_row(result["errors"][-1]), flush=True)
    return result


def _line(xp: Any, n: int, dtype: str, threads: int) -> Line:
    rng = xp.random.default_rng(0)
    a, b = (rng.standard_normal((n, n), dtype=dtype) for _ in "ab")
    c = xp.empty((n, n), dtype)

    def ours(levels: int) -> Callable[[], Any]:
        return lambda: strassen(a, b, levels, out=c)

    contenders = [Contender(PLAIN, lambda: sm.matmul(a, b, out=c), float(n) ** 3)]
    contenders += [Contender(_name(x), ours(x), float(n) ** 3, ours=True) for x in LEVELS]
    library = "NumPy" if xp is np else "cuBLAS by CuPy"
    contenders.append(Contender(library, lambda: xp.matmul(a, b, out=c), float(n) ** 3))
    rows = [0, n // 2, n - 1]
    right = a[rows].astype("f8") @ b.astype("f8")

    def check(found: Any) -> None:
        error = float(abs(found[rows] - right).max())
        assert error < 1000 * np.finfo(dtype).eps * n**0.5, f"off by {error}"
        c[...] = 0

    return Line(dtype, str(n), "G/s" if xp is np else "T/s", threads, contenders, check=check)


def _name(levels: int) -> str:
    return f"{levels} level{'s' * (levels > 1)}"


# --- errors -------------------------------------------------------------------------------------

DATA: dict[str, Callable[[Any, int], Any]] = {
    "normal": lambda rng, n: rng.standard_normal((n, n)),
    "uniform in [0, 1)": lambda rng, n: rng.random((n, n)),
    "16 orders of magnitude": lambda rng, n: (
        rng.standard_normal((n, n)) * 10 ** rng.uniform(-8, 8, (n, n))
    ),
}


def _errors(xp: Any, name: str, draw: Any, n: int, dtype: str) -> dict[str, Any]:
    """Largest errors, of the norms and of each entry's own terms, in units of the roundoff."""
    rng = np.random.default_rng(0)
    a, b = (draw(rng, n).astype(dtype) for _ in "ab")
    exact = np.float64 if dtype == "float32" else np.longdouble
    right = a.astype(exact) @ b.astype(exact)
    terms = np.abs(a).astype("f8") @ np.abs(b).astype("f8")
    unit = np.finfo(dtype).eps / 2
    found: dict[str, Any] = {"data": name, "dtype": dtype, "n": n}
    for levels in (0, *LEVELS):
        c = strassen(xp.asarray(a), xp.asarray(b), levels)
        error = np.abs((c if xp is np else c.get()) - right).astype("f8")
        norm = float(error.max() / (unit * np.abs(a).max() * np.abs(b).max()))
        found[f"levels {levels}"] = {"norm": norm, "entry": float((error / terms).max() / unit)}
    return found


# --- the tables ---------------------------------------------------------------------------------


def row(line: Line) -> str:
    cells = [line.case, line.size, report.seconds(line.ours.median)]
    for other in line.contenders[1:]:
        times = report.three(line.ours.median / other.median)
        cells.append(f"{report.seconds(other.median)} (× {times})")
    return f"| {' | '.join(cells)} |"


def _error_row(raw: dict[str, Any]) -> str:
    cells = [raw["data"], raw["dtype"], str(raw["n"])]
    for levels in (0, *LEVELS):
        cells += [f"{raw[f'levels {levels}'][kind]:.2g}" for kind in ("norm", "entry")]
    return f"| {' | '.join(cells)} |"


def pays(lines: list[Line], dtype: str, levels: int) -> str:
    """From which measured size on a level is faster than one less."""
    before = PLAIN if levels == 1 else _name(levels - 1)
    found = ""
    for line in sorted((x for x in lines if x.case == dtype), key=lambda x: -int(x.size)):
        medians = {c.name: c.median for c in line.contenders}
        if medians[_name(levels)] >= medians[before]:
            break
        found = line.size
    return f"from n = {found}" if found else "at none of these sizes"


def table(result: dict[str, Any], source: str) -> str:
    lines = [Line.from_raw(raw) for raw in result["lines"]]
    names = [c.name for c in lines[0].contenders]
    note = (
        "Medians; × says how many times faster than `matmul`. Errors in units of u ‖A‖ ‖B‖, and by "
        "entry of u (|A| |B|)ᵢⱼ."
    )
    sums = [
        f"{dtype}: one level pays {pays(lines, dtype, 1)}, a second {pays(lines, dtype, 2)}."
        for dtype in dict.fromkeys(line.case for line in lines)
    ]
    return "\n".join(
        [
            f"| dtype | n | {' | '.join(names)} |",
            "| --- " * (2 + len(names)) + "|",
            *map(row, lines),
            "",
            " ".join(sums),
            "",
            "| entries | dtype | n "
            + "".join(f"| {x} | by entry " for x in (PLAIN, *map(_name, LEVELS)))
            + "|",
            "| --- " * (5 + 2 * len(LEVELS)) + "|",
            *map(_error_row, result["errors"]),
            "",
            report.provenance(result, source, note),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
