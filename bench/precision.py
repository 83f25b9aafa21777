"""Errors of float32 products: true arithmetic, emulated, rounded to tf32, beside cuBLAS.

``python -m bench.precision`` measures on the current CUDA device and writes raw results below
``bench/results``; ``--table`` renews the table of docs/tensor-cores.md from the newest ones.
Exact is the product in float64. Both errors are relative: of all entries together (the norm of the
error over that of the result), and of the worst entry, over the sum of the absolute products.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import semiring_mm as sm

from . import machine, report

TARGET = machine.ROOT / "docs" / "tensor-cores.md"
DATA = ("normal", "uniform", "wide", "graded", "along k")
SIZES = (1024, 4096, 8192)
OURS = {"ieee": "ieee", "emulated": "float32_emulated", "tf32": "tf32"}
RIVALS = {"cuBLAS float32": False, "cuBLAS tf32": True}


def data(name: str, n: int, seed: int) -> Any:
    """Random entries: uniform in [0, 1), or normal ones, times powers of two up to ± 20.

    They are uniform: of each entry ("wide"), of each row of the first matrix and column of the
    second ("graded"), or of each k, inverse to each other ("along k").
    """
    import cupy

    rng = cupy.random.default_rng(seed)
    if name == "uniform":
        return rng.random((n, n), dtype=np.float32)
    x, first = rng.standard_normal((n, n), dtype=np.float32), seed == 1
    if name == "along k":
        scale = cupy.exp2(cupy.random.default_rng(3).uniform(-20, 20, n))
        return x * (scale if first else 1 / scale[:, None]).astype("f4")
    shapes = {"normal": (), "wide": (n, n), "graded": (n, 1) if first else (1, n)}
    return x * cupy.exp2(rng.uniform(-20, 20, shapes[name]) * (name != "normal")).astype("f4")


def products(a: Any, b: Any) -> dict[str, Callable[[], Any]]:
    import cupy
    import torch

    def rival(tf32: bool) -> Any:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        return cupy.from_dlpack(torch.from_dlpack(a) @ torch.from_dlpack(b))

    ours = {
        name: lambda p=precision: sm.gemm(None, a, b, precision=p)
        for name, precision in OURS.items()
    }
    return ours | {name: lambda t=tf32: rival(t) for name, tf32 in RIVALS.items()}


def errors(name: str, n: int) -> dict[str, Any]:
    import cupy

    a, b = data(name, n, 1), data(name, n, 2)
    exact = a.astype("f8") @ b.astype("f8")
    scale = cupy.abs(a).astype("f8") @ cupy.abs(b).astype("f8")
    found = {}
    for way, product in products(a, b).items():
        off = product() - exact
        whole = float(cupy.linalg.norm(off) / cupy.linalg.norm(exact))
        found[way] = [whole, float((cupy.abs(off) / scale).max())]
    return {"data": name, "n": n, "errors": found}


def table(result: dict[str, Any], source: str) -> str:
    ways = [*OURS, *RIVALS]
    rows = [f"| data | n | {' | '.join(ways)} |", "| --- " * (2 + len(ways)) + "|"]
    for line in result["lines"]:
        cells = [" / ".join(f"{x:.1e}" for x in line["errors"][way]) for way in ways]
        rows.append(f"| {line['data']} | {line['n']} | {' | '.join(cells)} |")
    return "\n".join([*rows, "", report.provenance(result, source)])


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.precision", description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", action="store_true", help="renew the table of the page")
    args = parser.parse_args(words)
    if args.table:
        return report.renew_page(TARGET, ("precision",), table)
    result = report.begin(0, on_device=True)
    result["lines"] = [errors(name, n) for name in DATA for n in SIZES]
    out = report.keep(result, "precision", args.out, scratch=False)
    print(table(result, str(out)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
