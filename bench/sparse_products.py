"""Sparse and band matrices times dense ones, beside SciPy or cuSPARSE; renews docs/sparse.md.

``python -m bench.sparse_products`` measures the CPU; ``--table`` only writes the newest table
again. The lines of a CUDA device are part of ``python -m bench gpu``.
"""

from __future__ import annotations

import argparse
import functools
import operator
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import semiring_mm as sm

from . import ceilings, machine, report
from .cases import FUNCTIONS, OURS, Case, Options, agree
from .measure import Contender, Line, sample

PAGE = machine.ROOT / "docs" / "sparse.md"
ROWS = 1_000_000


# Matrices


@functools.lru_cache(maxsize=2)
def matrix(kind: str, m: int) -> Any:
    """A square matrix of float32 in (0, 1]: a band of 32 diagonals, or about 16 entries a row."""
    import scipy.sparse

    rng = np.random.default_rng(m)
    if kind == "band":
        data = 1 - rng.random((32, m), dtype=np.float32)
        return scipy.sparse.dia_array((data, np.arange(32) - 16), shape=(m, m))
    if kind == "random":
        counts = np.full(m, 16)
    else:  # few rows have most of the entries, and few columns
        counts = np.minimum(4 * (rng.pareto(1.3, m) + 1), m // 4).astype(np.int64)
    ends = np.r_[0, np.cumsum(counts)]
    places = rng.random(ends[-1], dtype=np.float32)
    columns = (m * (places if kind == "random" else places**3)).astype(np.int32)
    data = 1 - rng.random(ends[-1], dtype=np.float32)
    made = scipy.sparse.csr_array((data, columns % m, ends.astype(np.int32)), shape=(m, m))
    made.sum_duplicates()  # what CuPy does before it multiplies
    return made


@functools.lru_cache(maxsize=2)
def in_rows(kind: str, m: int) -> Any:
    """The same matrix in CSR."""
    return matrix(kind, m).tocsr()


def expected(rows: Any, b: Any, kind: str) -> tuple[Any, Any]:
    """Rows of a product, one after the other in float64, and by how much a right one may differ."""
    add, mul = (FUNCTIONS[word] for word in kind.split("_"))
    exact = np.zeros((rows.shape[0], b.shape[1]))
    for i in range(rows.shape[0]):
        own = slice(rows.indptr[i], rows.indptr[i + 1])
        terms = mul(rows.data[own, None].astype("f8"), b[rows.indices[own]])
        exact[i] = add.reduce(terms, axis=0, initial=np.inf if kind == "min_plus" else 0)
    return exact, 1e-5 * np.abs(exact)


# Lines


def alone(call: Callable[[], Any]) -> float:
    """Seconds of a call on a device that has nothing else to do, its host's time included."""
    import cupy

    cupy.cuda.Device().synchronize()
    begin = time.perf_counter()
    call()
    cupy.cuda.Device().synchronize()
    return time.perf_counter() - begin


def product(
    form: str, kind: str, semiring: str, columns: int, gpu: bool, single: bool = False
) -> Any:
    """C = A B for a kind of matrix in a format, beside rivals; `single`: one call at a time."""

    def build(m: int, _: Options) -> Line:
        rows = in_rows(kind, m)
        a = matrix(kind, m) if form == "DIA" else rows
        b = np.random.default_rng(1).random((m, columns), dtype=np.float32)
        index = np.random.default_rng(7).integers(0, m, 30)
        exact, off = expected(rows[index], b, semiring)
        entries = rows.nnz
        stored = 4 * a.data.size if form == "DIA" else 8 * entries + 4 * m
        work = stored + 8.0 * m if columns == 1 else float(entries * columns)
        right = b[:, 0] if columns == 1 else b
        theirs = [a] if form == "CSR" or not gpu else [rows]
        if gpu:
            import cupy
            from cupyx.scipy import sparse

            right = cupy.asarray(right)
            move: Any = {"csr": sparse.csr_matrix, "dia": sparse.dia_matrix}
            theirs = [move[x.format](x) for x in theirs]
            a = theirs[0] if form == "CSR" else move["dia"](a)
        names = ["cuSPARSE" if gpu else "SciPy"]
        if form == "DIA" and gpu:  # what users of CuPy do, and what they write
            names = ["cuSPARSE, CSR", "CuPy, DIA"]
            theirs.append(a)
        names = [x if semiring == "plus_times" else f"{x}, plus_times" for x in names]
        calls: list[Callable[[], Any]] = [lambda: sm.matmul(a, right, semiring=semiring)]
        calls += [functools.partial(operator.matmul, x, right) for x in theirs]
        first = iter([True] * (len(calls) if semiring == "plus_times" else 1))

        def check(c: Any) -> None:
            if next(first, False):
                c = c[index].get() if gpu else c[index]
                agree(c.reshape(exact.shape), exact, off)

        for call in calls if gpu else ():  # CuPy compiles at first
            check(call())
        contenders = [
            Contender(name, functools.partial(alone, x) if single else x, work, own_clock=single)
            for name, x in zip([OURS, *names], calls, strict=True)
        ]
        unit = ("TB/s" if gpu else "GB/s") if columns == 1 else "G/s"
        ceiling = "" if columns > 1 else "copy" if gpu else "read"
        return Line("", f"{m:,}", unit, 0, contenders, ceiling, check=check)

    return build


def cases(gpu: bool) -> list[Case]:
    """Vectors first; every matrix is made once for all that it is multiplied with."""
    found = []
    shown = "sparse-gpu" if gpu else ""
    for kind, form in (("band", "DIA"), ("band", "CSR"), ("random", "CSR"), ("power law", "CSR")):
        for columns in (1, 32):
            for semiring in ("plus_times", "min_plus"):
                name = f"{form}, {kind}, {semiring}" + f", {columns} columns" * (columns > 1)
                build: Callable[[Any, Options], Line] = product(form, kind, semiring, columns, gpu)
                found.append(Case(name, build, (ROWS,), quick=(200,), table=shown))
        if gpu:  # as a user calls it, at a size where the host's time counts
            build = product(form, kind, "plus_times", 1, gpu, single=True)
            found.append(
                Case(
                    f"{form}, {kind}, plus_times, a single call",
                    build,
                    (20_000, ROWS),
                    quick=(200,),
                    table=shown,
                )
            )
    return found


# Results


def table(result: dict[str, Any], source: str) -> str:
    """The lines as Markdown, and what they were measured on."""
    return report.table(result, [Line.from_raw(raw) for raw in result["lines"]], source)


def renew() -> int:
    """Renew the table of the CPU from the newest results."""
    return report.renew_page(PAGE, ("sparse-cpu",), table)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.sparse_products", description=__doc__)
    parser.add_argument("--table", action="store_true", help="only write the tables again")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does everything run?")
    parser.add_argument("--only", default="", help="only the lines whose names contain this")
    parser.add_argument("--out", type=Path, metavar="FILE", help="raw results")
    args = parser.parse_args(arguments)
    if args.table:
        return renew()
    options = Options(sm.get_num_threads(), quick=args.quick)
    result = report.begin(options.threads)
    rates: dict[str, float] = {}
    for case in cases(False):
        if args.only not in case.name:
            continue
        for line in case.lines(options):
            if line.ceiling and not args.quick:
                if line.ceiling not in rates:
                    samples = ceilings.measure(line.ceiling, options.threads)
                    rates[line.ceiling] = max(max(x) for x in samples.values())
                line.ceiling_rate = float(f"{rates[line.ceiling]:.6g}")
            sample(line, quick=args.quick)
            print(report.text(line), flush=True)
            result["lines"].append(line.raw())
            line.check = None
            line.contenders.clear()  # their data may fill the memory
    kept = report.keep(result, "sparse-cpu", args.out, scratch=bool(args.quick or args.only))
    return 0 if args.out or not kept else renew()


if __name__ == "__main__":
    sys.exit(main())
