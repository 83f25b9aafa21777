"""Distances and nearest rows beside SciPy, scikit-learn and Faiss, on the CPU, as users call them.

``python -m bench.neighbours_knn cdist`` and ``... knn`` measure and write raw results below
``bench/results``; ``--table`` renews the tables of docs/neighbours.md from the newest committed
results. Contenders of a line take turns, as in ``python -m bench``. Every contender's first result
is compared with plain sums over the coordinates, for some rows.

scikit-learn's estimator is fitted and Faiss's index is filled before the clock starts; semiring_mm
keeps nothing between its calls. Faiss is only in lines of Euclidean distances in float32, which is
all that ``IndexFlatL2`` has, and gives their squares. scikit-learn and Faiss expand the square of
the difference for most of these lines; semiring_mm and SciPy do not.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import semiring_mm as sm

from . import machine, report
from .measure import Contender, Line, sample

TARGET = machine.ROOT / "docs" / "neighbours.md"
PACKAGES = ("numpy", "scipy", "scikit-learn", "faiss-cpu")
KINDS = {"cdist": "cdist-cpu", "knn": "knn-cpu"}
SAMPLES = 3  # of a contender, at most: some take seconds
ROWS = (0, -1)  # that are compared with plain sums

Array = Any
Metric = tuple[str, dict[str, float]]  # as SciPy calls it

#: Distances of one row x from rows y, in float64.
PLAIN: dict[str, Callable[..., Array]] = {
    "cityblock": lambda x, y: abs(x - y).sum(1),
    "euclidean": lambda x, y: np.sqrt(((x - y) ** 2).sum(1)),
    "sqeuclidean": lambda x, y: ((x - y) ** 2).sum(1),
    "chebyshev": lambda x, y: abs(x - y).max(1),
    "hamming": lambda x, y: (x != y).mean(1),
    "minkowski": lambda x, y, p: (abs(x - y) ** p).sum(1) ** (1 / p),
    "canberra": lambda x, y: (abs(x - y) / (abs(x) + abs(y))).sum(1),
    "braycurtis": lambda x, y: abs(x - y).sum(1) / abs(x + y).sum(1),
    "cosine": lambda x, y: 1 - y @ x / np.sqrt((x @ x) * (y * y).sum(1)),
}
METRICS: list[Metric] = [
    *((name, {}) for name in PLAIN if name != "minkowski"),
    ("minkowski", {"p": 3}), ("minkowski", {"p": 2.3}),
]  # fmt: skip


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.neighbours_knn", description=__doc__)
    parser.add_argument("what", nargs="?", choices=KINDS, help="which lines are measured")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, two samples")
    parser.add_argument("--out", type=Path, help="default bench/results/KIND-MACHINE-DATE.json")
    parser.add_argument("--table", action="store_true", help="renew the tables of the page")
    args = parser.parse_args(words)
    if args.table:
        return report.renew_page(TARGET, KINDS.values(), table)
    if args.what is None:
        parser.error("say what is measured: cdist or knn")
    result = report.begin(machine.cores()) | {"versions": machine.versions(PACKAGES)}
    lines = cdist_lines if args.what == "cdist" else knn_lines
    for line in lines(args.quick, result["threads"]):
        sample(line, quick=args.quick)
        result["lines"].append(line.raw())
        print(row(line), flush=True)
        line.contenders.clear()
    report.keep(result, KINDS[args.what], args.out, scratch=args.quick)
    return 0


def points(metric: str, m: int, n: int, columns: int, dtype: str) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    if metric == "hamming":
        return tuple(rng.integers(0, 4, (rows, columns)).astype(dtype) for rows in (m, n))
    return tuple(rng.random((rows, columns)).astype(dtype) for rows in (m, n))


def plain(metric: Metric, x: Array, y: Array, row: int) -> Array:
    name, options = metric
    return PLAIN[name](x[row].astype("f8"), y.astype("f8"), **options)


def label(metric: Metric) -> str:
    name, options = metric
    return name + "".join(f", {k} = {v:g}" for k, v in options.items())


def size_of(m: int, n: int, columns: int, dtype: str) -> str:
    bits = 8 * np.dtype(dtype).itemsize
    return f"{m:,} × {n:,} × {columns}, float{bits}"


def cdist_lines(quick: bool, threads: int) -> Iterator[Line]:
    from scipy.spatial import distance
    from sklearn.metrics import pairwise_distances

    shapes = [
        (1500, 1500, 16, "f8"), (1500, 1500, 128, "f8"), (1500, 1500, 128, "f4"),
        (1000, 1000, 3, "f8"), (100, 100, 3, "f8"), (1, 1000, 3, "f8"),
    ]  # fmt: skip
    for m, n, columns, dtype in [(20, 20, 3, "f4")] if quick else shapes:
        for metric in METRICS:
            name, options = metric
            few = name == "minkowski" and m > 100  # SciPy takes seconds for one of these
            rows, others = (m // 5, n // 5) if few else (m, n)
            x, y = points(name, rows, others, columns, dtype)
            given = (x, y, name)

            def check(found: Array, x: Array = x, y: Array = y, metric: Metric = metric) -> None:
                for r in ROWS:
                    # sums of squares that are expanded lose half of their digits
                    np.testing.assert_allclose(found[r], plain(metric, x, y, r), 1e-3, 1e-5)

            contenders = [
                Contender("semiring_mm", lambda g=given, o=options: sm.neighbours.cdist(*g, **o)),
                Contender("SciPy", lambda g=given, o=options: distance.cdist(*g, **o)),
                Contender("scikit-learn", lambda g=given, o=options: pairwise_distances(*g, **o)),
            ]
            size = size_of(rows, others, columns, dtype)
            line = Line(label(metric), size, "", threads, contenders)
            line.check, line.most = check, SAMPLES
            yield line


def knn_lines(quick: bool, threads: int) -> Iterator[Line]:
    large, wide, few, small = (5000, 20_000, 16), (2500, 20_000, 128), (10, 200_000, 16), (
        100, 100, 3)  # fmt: skip
    l2: Metric = ("euclidean", {})
    lines = [
        *((l2, shape, k, t) for shape in (large, wide) for t in ("f4", "f8") for k in (1, 10, 100)),
        *((metric, (1000, 20_000, 16), 10, "f8") for metric in METRICS if metric[0] != "minkowski"),
        (("minkowski", {"p": 3}), (200, 20_000, 16), 10, "f8"),
        *((l2, shape, k, "f4") for shape, k in (
            ((100, 100_000, 768), 10), ((1000, 10_000, 784), 10), ((1000, 100_000, 128), 100))),
        *((l2, (10_000, n, columns), 5, "f8") for columns in (2, 3) for n in (10_000, 100_000)),
        *((metric, few, 10, t) for metric in (l2, ("cityblock", {}), ("cosine", {}))
          for t in ("f4", "f8")),
        *((metric, small, 5, "f8") for metric in (l2, ("cityblock", {}), ("cosine", {}))),
    ]  # fmt: skip
    if quick:
        lines = [(l2, (20, 50, 3), k, t) for k, t in ((1, "f4"), (5, "f8"))]
    for metric, shape, k, dtype in lines:
        line = knn_line(metric, *shape, k, dtype)
        line.threads = threads
        yield line
    yield radius_line(*((20, 50, 3) if quick else large), threads)


def knn_line(metric: Metric, m: int, n: int, columns: int, k: int, dtype: str) -> Line:
    from scipy.spatial import cKDTree
    from sklearn.neighbors import NearestNeighbors

    name, options = metric
    x, y = points(name, m, n, columns, dtype)
    theirs = NearestNeighbors(n_neighbors=k, algorithm="brute", metric=name, **options).fit(y)
    contenders = [
        Contender("semiring_mm", lambda: sm.neighbours.knn(x, y, k, name, **options)),
        Contender("scikit-learn", lambda: theirs.kneighbors(x)),
    ]
    if columns < 4 and n > 1000:
        tree = functools.partial(cKDTree, y)
        contenders.append(Contender("SciPy's tree, built", lambda: tree().query(x, k, workers=-1)))
    if dtype == "f4" and name == "euclidean":
        contenders.append(faiss_of(x, y, k))

    def check(found: tuple[Array, Array]) -> None:
        for r in ROWS:
            wanted = plain(metric, x, y, r)
            np.testing.assert_allclose(found[0][r], np.sort(wanted)[:k], 1e-3, 1e-3)
            np.testing.assert_allclose(wanted[found[1][r]], np.sort(wanted)[:k], 1e-3, 1e-3)

    line = Line(label(metric), f"{size_of(m, n, columns, dtype)}, k = {k}", "", 0, contenders)
    line.check, line.most = check, SAMPLES
    return line


def faiss_of(x: Array, y: Array, k: int) -> Contender:
    try:
        import faiss
    except ImportError:
        return Contender("Faiss", None, skipped="not installed")
    index = faiss.IndexFlatL2(x.shape[1])
    index.add(y)

    def search() -> tuple[Array, Array]:
        squares, found = index.search(x, k)
        return np.sqrt(squares), found

    return Contender("Faiss", search)


def radius_line(m: int, n: int, columns: int, threads: int) -> Line:
    from sklearn.neighbors import NearestNeighbors

    x, y = points("euclidean", m, n, columns, "f8")
    r = float(np.quantile(plain(("euclidean", {}), x, y, 0), 0.001))
    theirs = NearestNeighbors(radius=r, algorithm="brute").fit(y)

    def lists() -> Array:
        return [len(found) for found in theirs.radius_neighbors(x, return_distance=False)]

    def check(counts: Any) -> None:
        for row in ROWS:
            assert counts[row] == (plain(("euclidean", {}), x, y, row) <= r).sum()

    contenders = [
        Contender("semiring_mm", lambda: sm.neighbours.radius_count(x, y, r)),
        Contender("scikit-learn", lists),
    ]
    line = Line("radius_count, euclidean", size_of(m, n, columns, "f8"), "", threads, contenders)
    line.check, line.most = check, SAMPLES
    return line


def row(line: Line) -> str:
    ours = line.ours.median
    beside = "; ".join(
        f"{c.name} {report.seconds(c.median)} (× {report.three(c.median / ours)})"
        for c in line.contenders[1:]
        if c.samples
    )
    return f"| {line.case} | {line.size} | {report.seconds(ours)} | {beside} |"


def table(result: dict[str, Any], source: str) -> str:
    note = "Medians; × says how many times slower."
    return "\n".join(
        [
            "| metric | rows of X and Y, columns | semiring_mm | beside it |",
            "| --- " * 4 + "|",
            *(row(Line.from_raw(raw)) for raw in result["lines"]),
            "",
            report.provenance(result, source, note, [p for p in PACKAGES if p != "numpy"]),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
