"""Rows of bits beside RDKit, SciPy and Faiss on the CPU, and alone on a CUDA device.

``python -m bench.bits cpu`` and ``... gpu`` measure and write raw results below ``bench/results``;
``--table`` renews the tables of docs/neighbours.md from the newest committed results. Rows are
generated like Morgan fingerprints of molecules: about 50 of 2,048 bits are set, most of them in few
rows, and there are families of rows that differ in few bits. RDKit's call is the loop over
``BulkTanimotoSimilarity``, of one thread as it is; its fingerprints and Faiss's index are made
before the clock starts.

On a device all results are compared first, with NumPy's on small shapes and with those of the CPU
on larger ones.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import semiring_mm as sm

from . import machine, neighbours_knn, report
from .measure import Contender, Line, sample

TARGET = machine.ROOT / "docs" / "neighbours.md"
PACKAGES = ("numpy", "scipy", "rdkit", "faiss-cpu")
KINDS = {"cpu": "bits-cpu", "gpu": "bits-gpu"}
COLUMNS, NEAR = 2048, 0.2  # Tanimoto 0.8

Array = Any


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.bits", description=__doc__)
    parser.add_argument("what", nargs="?", choices=KINDS, help="where it is measured")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, two samples")
    parser.add_argument("--out", type=Path, help="default bench/results/KIND-MACHINE-DATE.json")
    parser.add_argument("--table", action="store_true", help="renew the tables of the page")
    args = parser.parse_args(words)
    if args.table:
        return report.renew_page(TARGET, KINDS.values(), table)
    if args.what is None:
        parser.error("say where it is measured: cpu or gpu")
    on_device = args.what == "gpu"
    result = report.begin(0 if on_device else machine.cores(), on_device=on_device)
    if not on_device:
        result |= {"versions": machine.versions(PACKAGES)}
    else:
        compare(args.quick)
    for line in (gpu_lines if on_device else cpu_lines)(args.quick, result["threads"]):
        sample(line, quick=args.quick)
        result["lines"].append(line.raw())
        print(row(line), flush=True)
        line.contenders.clear()
    report.keep(result, KINDS[args.what], args.out, scratch=args.quick)
    return 0


def fingerprints(n: int, columns: int = COLUMNS, seed: int = 0) -> Array:
    """Packed rows, in no order."""
    rng, step = np.random.default_rng(seed), 20_000
    found = np.empty((n, columns // 8), np.uint8)
    for first in range(0, n, step):
        m = min(step, n - first)
        sizes = np.clip(rng.normal(48, 15, m), 10, 95).astype(int)
        at = (columns * rng.random((-(-m // 4), 96)) ** 2.5).astype(int).repeat(4, axis=0)[:m]
        sizes = sizes[::4].repeat(4)[:m]
        for _ in range(2):  # a family differs in some bits
            changed = rng.integers(0, sizes)
            at[np.arange(m), changed] = rng.integers(0, columns, m)
        at = np.where(np.arange(96) < sizes[:, None], at, at[:, :1])
        bits = np.zeros((m, columns), bool)
        np.put_along_axis(bits, at, True, axis=1)
        found[first : first + m] = np.packbits(bits, axis=1)
    rng.shuffle(found)
    return found


def size_of(m: int, n: int, columns: int = COLUMNS) -> str:
    return f"{m:,} × {n:,} × {columns:,} bits"


# --- on the CPU ---------------------------------------------------------------------------------


def cpu_lines(quick: bool, threads: int) -> Iterator[Line]:
    m, n = (20, 50) if quick else (500, 20_000)
    x = fingerprints(n)
    some, every = sm.BitMatrix(x[:m]), sm.BitMatrix(x)

    def check(found: Array) -> None:
        np.testing.assert_allclose(np.asarray(found)[[0, -1]], plain(x[[0, m - 1]], x), atol=1e-6)

    yield line("cdist, Tanimoto", size_of(m, n), threads, check, [
        Contender("semiring_mm", lambda: sm.neighbours.cdist(some, every, "jaccard")),
        rdkit_of(x[:m], x), scipy_of(x[:m], x),
    ])  # fmt: skip
    counts = sm.neighbours.radius_count(every, every, NEAR, "jaccard")

    def check_pairs(found: Any) -> None:
        assert len(found.indices) == counts.sum() - n

    yield line("within itself, Tanimoto ≥ 0.8", size_of(n, n), threads, check_pairs, [
        Contender("semiring_mm", lambda: sm.neighbours.within(every, radius=NEAR, metric="jaccard"))
    ])  # fmt: skip
    for m, n, columns in [(9, 99, 64)] if quick else [(1000, 20_000, 2048), (1, 500_000, 2048),
                                                      (1000, 100_000, 256)]:  # fmt: skip
        y = np.random.default_rng(1).integers(0, 256, (n, columns // 8)).astype(np.uint8)
        yield nearest_line(y[:m] ^ 1, y, threads)


def nearest_line(x: Array, y: Array, threads: int, k: int = 10) -> Line:
    a, b, columns = sm.BitMatrix(x), sm.BitMatrix(y), 8 * x.shape[1]

    def check(found: tuple[Array, Array]) -> None:
        gaps = np.bitwise_count(x[0] ^ y).sum(1)
        np.testing.assert_allclose(found[0][0], np.sort(gaps)[:k] / columns)

    contenders = [Contender("semiring_mm", lambda: sm.neighbours.knn(a, b, k, "hamming"))]
    try:
        import faiss

        index = faiss.IndexBinaryFlat(columns)
        index.add(y)

        def search() -> tuple[Array, Array]:
            gaps, found = index.search(x, k)
            return gaps / columns, found

        contenders.append(Contender("Faiss", search))
    except ImportError:
        contenders.append(Contender("Faiss", None, skipped="not installed"))
    size = size_of(len(x), len(y), columns)
    return line(f"knn, hamming, k = {k}", size, threads, check, contenders)


def line(case: str, size: str, threads: int, check: Any, contenders: list[Contender]) -> Line:
    made = Line(case, size, "", threads, contenders)
    made.check, made.most = check, neighbours_knn.SAMPLES
    return made


def plain(x: Array, y: Array) -> Array:
    """Jaccard distances by NumPy."""
    both = np.array([np.bitwise_count(r & y).sum(1) for r in x])
    return 1 - both / np.array([np.bitwise_count(r | y).sum(1) for r in x])


def rdkit_of(x: Array, y: Array) -> Contender:
    try:
        from rdkit import DataStructs
    except ImportError:
        return Contender("RDKit", None, skipped="not installed")
    mine, theirs = ([DataStructs.CreateFromBinaryText(r.tobytes()) for r in v] for v in (x, y))
    bulk = DataStructs.BulkTanimotoSimilarity
    return Contender("RDKit", lambda: 1 - np.array([bulk(f, theirs) for f in mine]))


def scipy_of(x: Array, y: Array) -> Contender:
    from scipy.spatial import distance

    a, b = (np.unpackbits(v, axis=1).astype(bool) for v in (x, y))
    return Contender("SciPy", lambda: distance.cdist(a, b, "jaccard"))


# --- on a device --------------------------------------------------------------------------------


def compare(quick: bool) -> None:
    """Refuse to measure what is wrong."""
    import cupy as cp

    nb, rng = sm.neighbours, np.random.default_rng(2)
    shapes = [(65, 131, 70), (1, 999, 2048)]
    if not quick:
        shapes += [(3000, 5000, 1000), (2049, 2500, 2048), (4097, 4097, 166)]
    for m, n, columns in shapes:
        x, y = (rng.random((size, columns)) < rng.random((size, 1)) / 2 for size in (m, n))
        y[: m // 2] = x[: min(m // 2, n)] ^ (rng.random((min(m // 2, n), columns)) < 0.02)
        x[0] = y[-1] = False
        host = [sm.BitMatrix.pack(v) for v in (x, y)]
        there = [sm.BitMatrix(cp.asarray(v.bits), columns) for v in host]
        for metric in ("hamming", "jaccard", "dice", "cosine", "intersection"):
            wanted = nb.cdist(*host, metric)
            np.testing.assert_array_equal(nb.cdist(*there, metric).get(), wanted)
            if metric == "jaccard":
                common = (x.astype("f4") @ y.T.astype("f4")).astype(int)
                union = x.sum(1)[:, None] + y.sum(1) - common
                np.testing.assert_array_equal(wanted, (union - common) / np.maximum(union, 1))
            for k in (1, 10, min(n, 100)):
                for found, own in zip(nb.knn(*there, k, metric), nb.knn(*host, k, metric),
                                      strict=True):  # fmt: skip
                    np.testing.assert_array_equal(found.get(), own, f"{metric} {k}")
            for share in (0.001, 0.3):
                share = 1 - share if metric == "intersection" else share
                radius = float(np.quantile(wanted, share, method="nearest"))
                for given, own in ((there, host), (there[1:], host[1:])):
                    found = nb.within(*given, radius=radius, metric=metric)
                    own = nb.within(*own, radius=radius, metric=metric)
                    for name in ("indptr", "indices", "distance"):
                        np.testing.assert_array_equal(
                            getattr(found, name).get(), getattr(own, name), f"{metric} {radius}"
                        )
        print(f"as on the CPU: {size_of(m, n, columns)}", flush=True)


def gpu_lines(quick: bool, threads: int) -> Iterator[Line]:
    import cupy as cp

    nb = sm.neighbours

    def timed(call: Any) -> Contender:
        def run() -> Any:
            found = call()
            cp.cuda.get_current_stream().synchronize()
            return found

        return Contender("semiring_mm", run)

    most = 5000 if quick else 2_400_000
    start = time.perf_counter()
    bits = cp.asarray(fingerprints(most))
    print(f"{most:,} rows made in {time.perf_counter() - start:.0f} s", flush=True)
    screened(cp, bits[: 1 << 20])
    for n in [most] if quick else [100_000, 600_000, most]:
        every = sm.BitMatrix(bits[:n])
        found = nb.within(every, radius=NEAR, metric="jaccard")
        for i in (0, n - 1):  # beside NumPy
            d = plain(bits[i : i + 1].get(), bits[:n].get())[0]
            d[i] = 1
            own = found.indices[int(found.indptr[i]) : int(found.indptr[i + 1])].get()
            np.testing.assert_array_equal(own, np.flatnonzero(d <= NEAR + 1e-12))
        print(f"{len(found.indices):,} pairs", flush=True)
        yield line("within itself, Tanimoto ≥ 0.8", size_of(n, n), 0, None, [
            timed(lambda every=every: nb.within(every, radius=NEAR, metric="jaccard"))
        ])  # fmt: skip
    some = sm.BitMatrix(bits[: most // 240])
    for metric in ("jaccard", "hamming"):
        yield line(f"knn, {metric}, k = 10", size_of(some.shape[0], most), 0, None, [
            timed(lambda metric=metric: nb.knn(some, every, 10, metric))
        ])  # fmt: skip
    yield line("cdist, Tanimoto", size_of(some.shape[0], some.shape[0]), 0, None, [
        timed(lambda: nb.cdist(some, some, "jaccard"))
    ])  # fmt: skip


def screened(cp: Any, bits: Array) -> None:
    """Print the rate of the screening kernel, where hardly a pair is near."""
    from semiring_mm.gpu import bit_rows

    words = bits.view(np.uint64)
    sides, rows = bit_rows._Sides("jaccard", COLUMNS, words, words), slice(0, 1 << 14)
    if not sides.screened:
        return
    radius, count = cp.full(1 << 14, NEAR)[: len(words)], cp.zeros(1 << 14, np.uint32)
    candidates = cp.zeros((1 << 14, 64), np.uint32)
    for i in range(3):
        begin, end = cp.cuda.Event(), cp.cuda.Event()
        begin.record()
        sides.sift(rows, slice(0, len(words)), radius, count, candidates)
        end.record()
        end.synchronize()
        ms = cp.cuda.get_elapsed_time(begin, end)
        pairs = min(len(words), 1 << 14) * len(words) * COLUMNS
        print(f"screen {i}: {ms:.2f} ms, {pairs / ms / 1e9:,.0f} T bit-pairs/s", flush=True)


row = neighbours_knn.row


def table(result: dict[str, Any], source: str) -> str:
    note = "Medians; × says how many times slower."
    packages = [p for p in PACKAGES if p in result["versions"] and p != "numpy"]
    return "\n".join(
        [
            "| operation | rows of X and Y, bits | semiring_mm | beside it |",
            "| --- " * 4 + "|",
            *(row(Line.from_raw(raw)) for raw in result["lines"]),
            "",
            report.provenance(result, source, note, packages),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
