"""What users of SciPy's csgraph and of NumPy's einsum gain; renews docs/scipy.md, docs/einsum.md.

``python -m bench.neighbours_scipy`` measures, ``--table`` only writes the newest tables again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.csgraph as theirs

import semiring_mm as sm
from semiring_mm import csgraph as ours

from . import machine, report
from .cases import OURS, Case, Options, rival
from .measure import Contender, Line, Skip, sample

PAGES = {"scipy": "docs/scipy.md", "einsum": "docs/einsum.md"}
KIND = "neighbours-scipy"


# Shortest paths


def graph_of(kind: str, n: int) -> Any:
    """Random weights in (0, 1], dense or on eight edges a node, or a real network."""
    rng = np.random.default_rng(n)
    if kind == "dense":
        return 1 - rng.random((n, n))
    if kind == "negative":
        h = rng.random(n)
        return 1 - rng.random((n, n)) + h[:, None] - h
    if kind == "sparse":
        ends = np.repeat(np.arange(n), 8), rng.integers(0, n, 8 * n)
        matrix = scipy.sparse.coo_array((1 - rng.random(8 * n), ends), (n, n))
        return matrix.tocsr()
    from semiring_mm.files import read_graph

    folder = Path(os.environ.get("SEMIRING_MM_DATA") or machine.ROOT.parent / "shared" / "data")
    if not (folder / kind).exists():
        raise Skip(f"no file {kind}")
    graph = read_graph(folder / kind)
    size = len(graph.nodes)
    order = np.lexsort((graph.weight, graph.col, graph.row))  # of parallel edges the first
    row, col, weight = (x[order] for x in (graph.row, graph.col, graph.weight))
    first = np.r_[True, (np.diff(row) != 0) | (np.diff(col) != 0)]
    return scipy.sparse.csr_array((weight[first] * 1.0, (row[first], col[first])), (size, size))


def paths(function: str, kind: str, **options: Any) -> Callable[[int, Options], Line]:
    """One function of csgraph, called the same way in both libraries."""

    def build(n: int, _: Options) -> Line:
        graph = graph_of(kind, n)
        size = graph.shape[0]
        chosen = {k: v(size) if callable(v) else v for k, v in options.items()}
        few = np.atleast_1d(chosen.get("indices", [0, size // 2, size - 1]))[:3]
        directed = chosen.get("directed", True)
        expected = theirs.johnson(scipy.sparse.csr_array(graph), directed, indices=few)
        at = range(len(few)) if "indices" in chosen else few

        def check(result: Any) -> None:
            d = result[0] if isinstance(result, tuple) else result
            np.testing.assert_allclose(np.atleast_2d(d)[at], expected, rtol=1e-9, atol=1e-9)

        contenders = [
            Contender(OURS, lambda: getattr(ours, function)(graph, **chosen)),
            Contender("SciPy", lambda: getattr(theirs, function)(graph, **chosen)),
        ]
        return Line("", str(size), "", 0, contenders, check=check)

    return build


# Einstein sums


def sums(
    subscripts: str, semiring: str, dtype: str, shapes: Callable[[int], Sequence[Sequence[int]]]
) -> Callable[[int, Options], Line]:
    """An Einstein sum, beside what NumPy and PyTorch have for it."""

    def build(n: int, _: Options) -> Line:
        rng = np.random.default_rng(n)
        operands = [rng.random(shape).astype(dtype) for shape in shapes(n)]
        contenders = [
            Contender(OURS, lambda: sm.einsum(subscripts, *operands, semiring=semiring)),
        ]
        if semiring == "plus_times":
            expected = np.einsum(subscripts, *operands, optimize=True)
            call = lambda: np.einsum(subscripts, *operands, optimize=True)  # noqa: E731
            contenders.append(Contender("NumPy einsum", call))
        else:
            expected = by_broadcasting(np, *operands)
            call = lambda: by_broadcasting(np, *operands)  # noqa: E731
            contenders.append(Contender("NumPy broadcasting", call))

        def torch(library: Any) -> Callable[[], Any]:
            tensors = [library.from_numpy(x) for x in operands]
            if semiring == "plus_times":
                return lambda: library.einsum(subscripts, *tensors)
            return lambda: by_broadcasting(library, *tensors)

        contenders.append(rival("PyTorch", "torch", torch))

        def check(result: Any) -> None:
            np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-4)

        return Line("", str(n), "", 0, contenders, check=check)

    return build


def by_broadcasting(xp: Any, a: Any, b: Any) -> Any:
    """The min-plus product that one writes without a library for it."""
    return xp.amin(a[..., :, :, None] + b[..., None, :, :], -2)


def square(count: int) -> Callable[[int], list[tuple[int, ...]]]:
    return lambda n: [(n, n)] * count


def chain(n: int) -> list[tuple[int, int]]:
    return [(8, n), (n, n), (n, n), (n, 8)]


ROADS = "ChicagoRegional_net.tntp"
CASES = {
    "scipy": [
        Case("shortest_path, dense", paths("shortest_path", "dense"), (2048,), full=(4096,)),
        Case(
            "shortest_path, dense, predecessors",
            paths("shortest_path", "dense", return_predecessors=True), (2048,),
        ),
        Case(
            "floyd_warshall, dense, undirected",
            paths("floyd_warshall", "dense", directed=False), (2048,),
        ),
        Case("johnson, dense, negative weights", paths("johnson", "negative"), (1024,)),
        Case("dijkstra, rome99", paths("dijkstra", "rome99.gr"), (0,), quick=()),
        Case(
            "dijkstra, rome99, predecessors",
            paths("dijkstra", "rome99.gr", return_predecessors=True), (0,), quick=(),
        ),
        Case("dijkstra, ChicagoRegional", paths("dijkstra", ROADS), (0,), quick=()),
        Case("shortest_path, 8 edges a node", paths("shortest_path", "sparse"), (2048, 4096, 8192)),
        Case(
            "dijkstra, dense, 100 sources",
            paths("dijkstra", "dense", indices=lambda n: np.arange(min(n, 100))), (2048,),
        ),
        Case(
            "dijkstra, 8 edges a node, a single source",
            paths("dijkstra", "sparse", indices=0), (8192,),
        ),
    ],
    "einsum": [
        Case(
            "ij,jk->ik, min_plus f32",
            sums("ij,jk->ik", "min_plus", "f4", square(2)), (64, 256, 512),
        ),
        Case(
            "bij,bjk->bik, min_plus f32, b = 64",
            sums("bij,bjk->bik", "min_plus", "f4", lambda n: [(64, n, n)] * 2), (64, 128),
        ),
        Case(
            "ij,jk,kl,lm->im, plus_times f64, 8 rows",
            sums("ij,jk,kl,lm->im", "plus_times", "f8", chain), (2048,),
        ),
        Case(
            "abcd,cdef->abef, plus_times f64",
            sums("abcd,cdef->abef", "plus_times", "f8", lambda n: [(n,) * 4] * 2), (32,),
            quick=(4,),
        ),
        Case(
            "bij,bj->bi, plus_times f32, b = 4096",
            sums("bij,bj->bi", "plus_times", "f4", lambda n: [(4096, n, n), (4096, n)]), (32,),
            quick=(4,),
        ),
        Case(
            "ij,ij->ij, plus_times f64", sums("ij,ij->ij", "plus_times", "f8", square(2)), (1024,),
        ),
    ],
}  # fmt: skip


# Tables


def table(result: dict[str, Any], page: str, source: str) -> str:
    """The lines of a page as Markdown, and what they were measured on."""
    rows = ["| call | n | semiring_mm | beside it |", "| --- " * 4 + "|"]
    for raw in result["lines"][page]:
        line = Line.from_raw(raw)
        if line.skipped:
            rows.append(f"| {line.case} | {line.size} | skipped: {line.skipped} | |")
            continue
        rest = [c for c in line.contenders[1:] if c.samples]
        beside = "; ".join(
            f"{c.name} {report.seconds(c.median)} (× {report.three(c.median / line.ours.median)})"
            for c in rest
        )
        ours_took = report.seconds(line.ours.median)
        rows.append(f"| {line.case} | {line.size} | {ours_took} | {beside} |")
    used = ("numpy", "scipy", "torch", "opt_einsum")
    packages = [name for name in used if result["versions"].get(name, "absent") != "absent"]
    note = "Medians; × says how many times slower."
    return "\n".join([*rows, "", report.provenance(result, source, note, packages)])


def renew() -> int:
    """Renew both pages from the newest results."""
    found = sorted(
        report.RESULTS.glob(f"{KIND}-*.json"), key=lambda p: json.loads(p.read_text())["date"]
    )
    if not found:
        print("bench: no results of this module below bench/results", file=sys.stderr)
        return 1
    result = json.loads(found[-1].read_text(encoding="utf-8"))
    source = str(found[-1].relative_to(machine.ROOT))
    for page, name in PAGES.items():
        if not report.put(machine.ROOT / name, table(result, page, source), page):
            print(f"{name}: has no markers {' and '.join(report.markers(page))}", file=sys.stderr)
            return 1
        print(f"{name}: {len(result['lines'][page])} lines")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.neighbours_scipy", description=__doc__)
    parser.add_argument("--table", action="store_true", help="only write the tables again")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does everything run?")
    parser.add_argument("--full", action="store_true", help="add the lines that take minutes")
    parser.add_argument("--out", type=Path, metavar="FILE", help="raw results")
    args = parser.parse_args(arguments)
    if args.table:
        return renew()
    threads = sm.get_num_threads()
    options = Options(threads, full=args.full, quick=args.quick)
    versions = machine.versions(("numpy", "scipy", "torch", "opt_einsum"))
    result = report.begin(threads) | {"versions": versions, "lines": {}}
    for page, cases in CASES.items():
        result["lines"][page] = []
        for case in cases:
            for line in case.lines(options):
                if not line.skipped:
                    sample(line, quick=args.quick)
                print(report.text(line), flush=True)
                result["lines"][page].append(line.raw())
                line.check = None
                line.contenders.clear()  # their data may fill the memory
    kept = report.keep(result, KIND, args.out, scratch=args.quick)
    return 0 if args.out or not kept else renew()


if __name__ == "__main__":
    sys.exit(main())
