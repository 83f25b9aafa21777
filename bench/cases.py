"""The table of measured cases: a name, sizes, and a function that builds a line."""

from __future__ import annotations

import atexit
import functools
import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import semiring_mm as sm

from .machine import ROOT
from .measure import Contender, Line, Skip

OURS = "semiring_mm"
FUNCTIONS: dict[str, Any] = {
    "min": np.minimum, "max": np.maximum, "plus": np.add, "times": np.multiply,
    "lor": np.logical_or, "xor": np.logical_xor, "land": np.logical_and,
}  # fmt: skip
#: The ceiling of a product, by (⊕_⊗, dtype).
CEILINGS = {
    ("min_plus", "f4"): "min-plus f32", ("min_plus", "f8"): "min-plus f64",
    ("min_plus", "i8"): "min-plus i64", ("min_plus", "i4"): "min-plus i32",
    ("min_plus", "i2"): "min-plus i16", ("max_min", "f4"): "max-min f32",
    ("max_times", "f4"): "max-times f32", ("plus_times", "f4"): "plus-times f32",
    ("plus_times", "f8"): "plus-times f64", ("lor_land", "?"): "or-and bits",
}  # fmt: skip


@dataclass(frozen=True)
class Options:
    threads: int  # 0: a device does the work
    full: bool = False
    quick: bool = False


@dataclass(frozen=True)
class Case:
    """Lines of one operation: `build(size, options)` gives a line ready to be sampled."""

    name: str
    build: Callable[[Any, Options], Line]
    sizes: tuple[Any, ...]  # n, or whatever `build` takes
    quick: tuple[Any, ...] = (48,)
    full: tuple[Any, ...] = ()  # sizes that only --full measures
    threads: int = 0  # 0: all that the run has
    table: str = ""  # of Line

    def wanted(self, options: Options) -> tuple[Any, ...]:
        """The sizes that a run measures."""
        return self.quick if options.quick else self.sizes + (self.full if options.full else ())

    def line(self, size: Any, options: Options) -> Line:
        """The line of one size."""
        threads = self.threads or options.threads
        try:
            line = self.build(size, options)
        except Skip as reason:
            line = Line("", "", "", threads, [Contender(OURS, None)], skipped=str(reason))
        line.case, line.size, line.threads = self.name, line.size or str(size), threads
        line.table = self.table
        return line

    def lines(self, options: Options) -> Iterator[Line]:
        """The case's lines, each built just before it is asked for; its threads are set."""
        before = sm.get_num_threads()
        for size in self.wanted(options):
            if options.threads:
                sm.set_num_threads(self.threads or options.threads)
            yield self.line(size, options)
        sm.set_num_threads(before)


def rival(name: str, module: str, make: Callable[[Any], Callable[[], Any]], work: float = 0) -> Any:
    """Return a contender of another library, or a note that it is not installed."""
    try:
        found = importlib.import_module(module)
    except ImportError:
        return Contender(name, None, skipped="absent")
    return Contender(name, make(found), work)


# Products


def random_matrix(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, kind: str) -> Any:
    """Random entries for an operation; never all equal."""
    if dtype == "?":  # so few that a product of two is true in about half of its entries
        return rng.random(shape, dtype=np.float32) < np.sqrt(np.log(2) / shape[-1])
    if dtype.startswith("i"):
        return rng.integers(-1000, 1000, shape, dtype=dtype)
    if kind == "max_times":
        return rng.random(shape, dtype=dtype)  # probabilities
    return rng.standard_normal(shape, dtype=dtype)


def expect(rows: Any, b: Any, kind: str) -> tuple[Any, Any]:
    """Expected rows of A times B in NumPy, and the tolerance."""
    if kind == "plus_times":
        exact = rows.astype("f8") @ b.astype("f8")
        scale = np.abs(rows).astype("f8") @ np.abs(b).astype("f8") + 1
        return exact, 4 * np.finfo(rows.dtype).eps * scale
    if kind == "log_plus":  # docs/log_plus.md has the bound in full
        terms = [row[:, None] + b.astype("f8") for row in rows.astype("f8")]
        top = np.stack([x.max(0) for x in terms])
        exact = top + np.log([np.exp(x - x.max(0)).sum(0) for x in terms])
        reach = np.abs(rows).max(1)[:, None] + np.abs(b).max(0) + np.abs(exact)
        return exact, np.finfo(rows.dtype).eps * (len(b) + 4 * reach)
    add, mul = (FUNCTIONS[word] for word in kind.split("_"))
    return np.stack([add.reduce(mul(row[:, None], b), axis=0) for row in rows]), 0.0


def agree(got: Any, exact: Any, off: Any) -> None:
    """Raise AssertionError where a result is further from the expected one than the tolerance."""
    if np.ndim(off) == 0:
        np.testing.assert_array_equal(got, exact)
    else:
        assert np.all(np.abs(got - exact) <= off), f"off by {np.max(np.abs(got - exact) / off):.3g}"


def check_product(a: Any, b: Any, kind: str) -> Callable[[Any], None]:
    """Compare four sampled rows with NumPy."""

    def check(c: Any) -> None:
        c = np.asarray(c[0] if isinstance(c, tuple) else c).reshape(len(a), b.shape[1])
        for i in np.random.default_rng(7).integers(0, len(a), 4):
            agree(c[i], *(x[0] if np.ndim(x) else x for x in expect(a[i : i + 1], b, kind)))

    return check


def product(kind: str, dtype: str) -> Callable[[int, Options], Line]:
    """C = A B over a built-in semiring, beside its rivals."""

    def build(n: int, options: Options) -> Line:
        rng = np.random.default_rng(n)
        a, b = (random_matrix(rng, (n, n), dtype, kind) for _ in range(2))
        work = float(n) ** 3
        contenders = [Contender(OURS, lambda: sm.matmul(a, b, semiring=kind), work)]
        if kind == "plus_times":
            contenders.append(Contender("NumPy", lambda: a @ b, work))
        if kind == "min_plus" and dtype == "f4":
            contenders += _min_plus_rivals(a, b, work)
        if kind == "max_times":
            make = _tropical("maxmul_matmul", a, b)
            contenders.append(rival("tropical-gemm", "tropical_gemm", make, work))
        if dtype == "?" and options.full and n <= 8192:
            name = "NumPy, float32 product > 0"
            contenders.append(Contender(name, lambda: a.astype("f4") @ b.astype("f4") > 0, work))
        unit = "T/s" if dtype == "?" else "G/s"
        check = check_product(a, b, kind)
        return Line("", "", unit, 0, contenders, CEILINGS[kind, dtype], check=check)

    return build


def rank_over_gf2(n: int, options: Options) -> Line:
    """The rank of a matrix of even truth values, beside packages that compute in the field."""
    a = np.random.default_rng(n).random((n, n)) < 0.5
    contenders = [Contender(OURS, lambda: sm.gf2.rank(a))]
    if n <= 1024:

        def galois_rank(galois: Any) -> Callable[[], Any]:
            field = galois.GF2(a.astype(np.uint8))
            return lambda: int(np.linalg.matrix_rank(field))

        def flint_rank(flint: Any) -> Callable[[], Any]:
            whole = flint.nmod_mat(n, n, a.astype(int).ravel().tolist(), 2)
            return lambda: whole.rank()

        contenders.append(rival("galois", "galois", galois_rank))
        contenders.append(rival("python-flint", "flint", flint_rank))

    @functools.cache
    def expected() -> int:
        rows, rank = [int.from_bytes(row) for row in np.packbits(a, axis=-1)], 0
        while rows:
            pivot = rows.pop()
            rank += pivot != 0
            low = pivot & -pivot
            rows = [row ^ pivot if row & low else row for row in rows]
        return rank

    return Line(
        "", "", "", 0, contenders, check=lambda c: np.testing.assert_equal(c, expected())
    )  # fmt: skip


def log_plus(dtype: str, scale: float) -> Callable[[int, Options], Line]:
    """C = A B over log_plus beside plus-times, for entries of a given spread."""

    def build(n: int, options: Options) -> Line:
        rng = np.random.default_rng(n)
        a, b = (scale * random_matrix(rng, (n, n), dtype, "log_plus") for _ in range(2))
        work = float(n) ** 3
        contenders = [
            Contender(OURS, lambda: sm.matmul(a, b, "log_plus"), work),
            Contender("plus-times", lambda: sm.matmul(a, b), work, ours=True),
        ]
        checks = iter([check_product(a, b, kind) for kind in ("log_plus", "plus_times")])
        return Line("", "", "G/s", 0, contenders, check=lambda c: next(checks)(c))

    return build


def _tropical(function: str, a: Any, b: Any) -> Callable[[Any], Callable[[], Any]]:
    return lambda module: lambda: getattr(module, function)(a, b)  # gives C as a flat array


def _min_plus_rivals(a: Any, b: Any, work: float) -> list[Contender]:
    n = len(a)
    rivals = [rival("tropical-gemm", "tropical_gemm", _tropical("minplus_matmul", a, b), work)]
    if n <= 512:
        rivals.append(Contender("NumPy", lambda: _numpy_min_plus(a, b), work))
    if n in (1024, 2048):
        rivals.append(rival("Numba", "numba", lambda numba: _numba_min_plus(numba, a, b), work))
    return rivals


def _numpy_min_plus(a: Any, b: Any) -> Any:
    """Broadcasting, a row of the result at a time: an n³ temporary would be slower."""
    c = np.empty((len(a), b.shape[1]), a.dtype)
    for i, row in enumerate(a):
        np.min(row[:, None] + b, axis=0, out=c[i])
    return c


def _numba_min_plus(numba: Any, a: Any, b: Any) -> Callable[[], Any]:
    """What a careful user writes: i, k, j with the rows of the result on all cores."""

    def loops(a: Any, b: Any) -> Any:
        c = np.full((a.shape[0], b.shape[1]), np.inf, a.dtype)
        for i in numba.prange(a.shape[0]):
            for k in range(a.shape[1]):
                x = a[i, k]
                for j in range(b.shape[1]):
                    c[i, j] = min(c[i, j], x + b[k, j])
        return c

    multiply = numba.njit(parallel=True)(loops)
    multiply(np.ascontiguousarray(a[:8, :8]), np.ascontiguousarray(b[:8, :8]))  # compiles it
    return lambda: multiply(a, b)


def twin(n: int, options: Options) -> Line:
    """A user-defined semiring equal to a built-in one, written differently."""
    mine = sm.Semiring("shortest", "a if a < b else b", "b + a", np.inf, 0)
    rng = np.random.default_rng(n)
    a, b = (random_matrix(rng, (n, n), "f4", "min_plus") for _ in range(2))
    work = float(n) ** 3
    contenders = [
        Contender(OURS, lambda: sm.matmul(a, b, semiring=mine), work),
        Contender("built-in", lambda: sm.matmul(a, b, semiring="min_plus"), work, ours=True),
    ]
    check = check_product(a, b, "min_plus")
    return Line("", "", "G/s", 0, contenders, CEILINGS["min_plus", "f4"], check=check)


def argument(n: int, options: Options) -> Line:
    """The product that also says which k attained each entry."""
    rng = np.random.default_rng(n)
    a, b = (random_matrix(rng, (n, n), "f4", "min_plus") for _ in range(2))
    work = float(n) ** 3
    contenders = [
        Contender(OURS, lambda: sm.matmul(a, b, semiring="min_plus", return_arg=True), work),
        Contender("plain product", lambda: sm.matmul(a, b, semiring="min_plus"), work, ours=True),
    ]
    values = check_product(a, b, "min_plus")

    def check(result: Any) -> None:
        values(result)
        if isinstance(result, tuple):
            for i in range(0, n, max(1, n // 4)):
                k = result[1][i]
                np.testing.assert_array_equal(a[i, k] + b[k, np.arange(n)], result[0][i])

    return Line("", "", "G/s", 0, contenders, CEILINGS["min_plus", "f4"], check=check)


def odd(n: int, options: Options) -> Line:
    """A size that no tile divides, beside the round one next to it."""
    near = 1 << round(np.log2(n))
    rng = np.random.default_rng(n)
    a, b, c, d = (random_matrix(rng, (size, size), "f4", "min_plus") for size in (n, n, near, near))
    contenders = [
        Contender(OURS, lambda: sm.matmul(a, b, semiring="min_plus"), float(n) ** 3),
        Contender(
            f"n = {near}", lambda: sm.matmul(c, d, semiring="min_plus"), float(near) ** 3, ours=True
        ),
    ]
    checks = {n: check_product(a, b, "min_plus"), near: check_product(c, d, "min_plus")}
    return Line(
        "", "", "G/s", 0, contenders, CEILINGS["min_plus", "f4"],
        check=lambda result: checks[len(result)](result),
    )  # fmt: skip


def gemv(kind: str, trans: bool) -> Callable[[int, Options], Line]:
    """y = A x, or Aᵀ x: A is read once, so the machine's read bandwidth is the ceiling."""

    def build(n: int, options: Options) -> Line:
        rng = np.random.default_rng(n)
        a = random_matrix(rng, (n, n), "f4", kind)
        x = random_matrix(rng, (n,), "f4", kind)
        alpha = sm.semirings[kind].one
        op = a.T if trans else a

        def reference() -> Any:
            return op @ x if kind == "plus_times" else np.min(op + x, axis=1)

        check_rows = check_product(x[None, :], op.T, kind)
        contenders = [
            Contender(OURS, lambda: sm.gemv(alpha, a, x, trans=trans, semiring=kind), a.nbytes),
        ]
        if kind == "plus_times" or n <= 8192:
            contenders.append(Contender("NumPy", reference, a.nbytes))
        return Line("", "", "GB/s", 0, contenders, "read", check=check_rows)

    return build


# Shortest paths


def apsp(*, directed: bool = True, predecessors: bool = False) -> Callable[[int, Options], Line]:
    """All pairs of a dense graph with random weights."""

    def build(n: int, options: Options) -> Line:
        # SciPy takes a zero in a dense matrix for no edge: weights in (0, 1]
        w = 1 - np.random.default_rng(n).random((n, n), dtype=np.float32)
        if not directed:
            w = np.minimum(w, w.T)
        ours = Contender(
            OURS,
            lambda: sm.apsp(w, directed=directed, return_predecessors=predecessors),
            float(n) ** 3,
        )
        contenders = [ours]
        if not directed or predecessors:
            name = "directed" if not directed else "without predecessors"
            contenders.append(
                Contender(name, lambda: sm.apsp(w, directed=True), float(n) ** 3, ours=True)
            )
        else:
            contenders += _dense_rivals(w, options)
        return Line("", "", "G/s", 0, contenders, CEILINGS["min_plus", "f4"], check=check_paths(w))

    return build


def _dense_rivals(w: Any, options: Options) -> list[Contender]:
    n = len(w)
    rivals = []
    if n <= 2048 or (options.full and n <= 4096):
        rivals.append(
            rival(
                "SciPy Floyd-Warshall",
                "scipy.sparse.csgraph",
                lambda csgraph: lambda: csgraph.floyd_warshall(w),
                float(n) ** 3,
            )
        )
    if n <= 512:

        def make(networkx: Any) -> Callable[[], Any]:
            graph = networkx.from_numpy_array(w.astype("f8"), create_using=networkx.DiGraph)
            return lambda: networkx.floyd_warshall_numpy(graph)

        rivals.append(rival("NetworkX Floyd-Warshall", "networkx", make, float(n) ** 3))
    return rivals


def random_graph(n: int, options: Options) -> Line:
    """All pairs of a sparse graph: eight random edges leave each node."""
    rng = np.random.default_rng(n)
    w: Any = np.full((n, n), np.inf, np.float32)
    w[np.arange(n)[:, None], rng.integers(0, n, (n, 8))] = rng.random((n, 8), dtype=np.float32)
    return sparse_line(w, options)


def network(file: str) -> Callable[[int, Options], Line]:
    """All pairs of a real network."""

    def build(n: int, options: Options) -> Line:
        from semiring_mm.files import read_graph

        folder = Path(os.environ.get("SEMIRING_MM_DATA") or ROOT.parent / "shared" / "data")
        if not (folder / file).exists():
            raise Skip(f"no file {file}")
        graph = read_graph(folder / file)
        size = len(graph.nodes)
        w: Any = np.full((size, size), np.inf, np.float32)
        np.minimum.at(w, (graph.row, graph.col), graph.weight.astype("f4"))
        if not graph.directed:
            w = np.minimum(w, w.T)
        return sparse_line(w, options)

    return build


def sparse_line(w: Any, options: Options) -> Line:
    """Ours on the dense matrix, rivals on their own sparse graphs, made beforehand."""
    n = len(w)
    edges = np.nonzero(np.isfinite(w) & ~np.eye(n, dtype=bool))
    row, col = (np.ascontiguousarray(ends) for ends in edges)
    weight = w[row, col].astype("f8")
    work = float(n) ** 3

    def scipy(csgraph: Any) -> Callable[[], Any]:
        from scipy.sparse import csr_array

        graph = csr_array((weight, (row, col)), (n, n))  # keeps edges of weight zero
        return lambda: csgraph.dijkstra(graph)

    def networkit(nk: Any) -> Callable[[], Any]:
        nk.setNumberOfThreads(options.threads)
        graph = nk.GraphFromCoo((weight, (row, col)), n=n, weighted=True, directed=True)

        def run() -> Any:
            paths = nk.distance.APSP(graph)
            paths.run()
            return Rows(lambda i: [paths.getDistance(i, j) for j in range(n)])

        return run

    def igraph(ig: Any) -> Callable[[], Any]:
        graph = ig.Graph(n, np.c_[row, col].tolist(), directed=True)
        weights = weight.tolist()
        return lambda: graph.distances(weights=weights)

    contenders = [
        Contender(OURS, lambda: sm.apsp(w), work),
        rival("SciPy Dijkstra", "scipy.sparse.csgraph", scipy, work),
        rival("NetworKit", "networkit", networkit, work),
    ]
    if n <= 4096:
        contenders.append(rival("igraph", "igraph", igraph, work))
    return Line("", str(n), "G/s", 0, contenders, CEILINGS["min_plus", "f4"], check=check_paths(w))


@dataclass(frozen=True)
class Rows:
    """Rows of a result that is slow to copy whole."""

    row: Callable[[int], Any]

    def __getitem__(self, i: int) -> Any:
        return self.row(i)


def check_paths(w: Any, count: int = 2) -> Callable[[Any], None]:
    """Compare sampled rows with Dijkstra's, and the last step of their paths."""
    sources = np.random.default_rng(7).integers(0, len(w), count)
    expected = {int(s): dijkstra(w, int(s)) for s in sources}

    def check(result: Any) -> None:
        d, predecessors = result if isinstance(result, tuple) else (result, None)
        for s, row in expected.items():
            # NetworKit has the largest double where there is no path.
            got = np.array(d[s], dtype="f8").ravel()
            got[got > 1e300] = np.inf
            np.testing.assert_allclose(got, row, rtol=1e-5)
            if predecessors is not None:
                p = predecessors[s]
                at = np.flatnonzero(p >= 0)
                assert at.size == np.isfinite(row).sum() - 1
                np.testing.assert_allclose(got[p[at]] + w[p[at], at], got[at], rtol=1e-5)

    return check


def dijkstra(w: Any, source: int, *, widest: bool = False) -> Any:
    """Distances (or widest paths) from a node of a dense graph without negative weights."""
    worst, start = (-np.inf, np.inf) if widest else (np.inf, 0.0)
    best, pick = (np.maximum, np.argmax) if widest else (np.minimum, np.argmin)
    d = np.full(len(w), worst)
    d[source] = start
    todo = d.copy()  # distances of nodes not yet done
    done: Any = np.zeros(len(w), bool)
    while True:
        i = int(pick(todo))
        if todo[i] == worst:
            return d
        reach = np.minimum(d[i], w[i]) if widest else d[i] + w[i]
        d = np.where(done, d, best(d, reach))
        done[i] = True
        todo = np.where(done, worst, d)


def widest(n: int, options: Options) -> Line:
    """Closure over max_min: the widest path of all pairs."""
    w = np.random.default_rng(n).random((n, n), dtype=np.float32)

    def check(result: Any) -> None:
        expected = dijkstra(w, n // 2, widest=True)
        expected[n // 2] = result[n // 2, n // 2]  # the empty path, by its own convention
        np.testing.assert_array_equal(result[n // 2], expected.astype("f4"))

    contenders = [Contender(OURS, lambda: sm.closure(w, semiring="max_min"), float(n) ** 3)]
    return Line("", "", "G/s", 0, contenders, CEILINGS["max_min", "f4"], check=check)


# Start-up, each in an interpreter of its own

_FIRST = """
import time
import numpy as np
start = time.perf_counter()
import semiring_mm as sm
imported = time.perf_counter() - start
rng = np.random.default_rng()
a = rng.random(({n}, {n}), dtype="f4")
own = sm.Semiring("own", "max(a, b)", f"a + {{1 + rng.random()!r}} * b", -np.inf, 0)
def seconds(a, semiring):
    start = time.perf_counter()
    sm.matmul(a, a, semiring=semiring)
    return time.perf_counter() - start
print(imported, seconds(a, "min_plus"), seconds(a.astype("f8"), "min_plus"), seconds(a, own))
"""


@functools.cache
def _bytecode() -> str:
    """A temporary directory for this run's bytecode."""
    directory = tempfile.TemporaryDirectory()
    atexit.register(directory.cleanup)
    return directory.name


def _printed(script: str, which: int) -> float:
    """One of the numbers that a script prints in an interpreter of its own."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT, capture_output=True, text=True, check=True,
        env={k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        | {"PYTHONPYCACHEPREFIX": _bytecode()},  # an installed package has its bytecode
    )  # fmt: skip
    return float(done.stdout.split()[which])


def start_up(which: int) -> Callable[[int, Options], Line]:
    """One of the four times that the script above prints."""

    def build(n: int, options: Options) -> Line:
        call = functools.partial(_printed, _FIRST.format(n=n), which)
        return Line("", "–", "", 0, [Contender(OURS, call, own_clock=True)])

    return build


#: What a process does that begins with importing NumPy, and how.
_USES = {
    "import": "",
    "min-plus product": "sm.matmul(a, a, semiring='min_plus')",
    "apsp, predecessors": "sm.apsp(a, return_predecessors=True)",
    "Viterbi": "sm.sequences.viterbi(a[:, :6], a[:6, :6])",
    "knn": "sm.neighbours.knn(a[:, :3], a[:, 3:6], 3)",
    "prepare and a path": "sm.prepare(roads).path(0, 899)",
    "statistics": "sm.statistics(roads)",
}
_START = """
import time
start = time.process_time()
import numpy as np
known = time.process_time() - start
rng = np.random.default_rng(0)
a = rng.random((64, 64))
near = lambda i: [j for j, there in ((i + 1, i % 30 < 29), (i + 30, i < 870)) if there]
roads = {{i: {{j: 1 + rng.random() for j in near(i)}} for i in range(900)}}
start = time.process_time()
import semiring_mm as sm
{use}
print(time.process_time() - start, known)
"""


def first_use(what: str, options: Options) -> Line:
    """Seconds of CPU time of the import and a call, all compiled already, beside NumPy's import."""
    script = _START.format(use=_USES[what])
    contenders = [
        Contender(name, functools.partial(_printed, script, i), own_clock=True)
        for i, name in enumerate((OURS, "import numpy"))
    ]
    compiled = functools.partial(_printed, script, 0)
    return Line("", what, "", 0, contenders, prepare=compiled)


CASES = [
    Case("import, over NumPy's", start_up(0), (64,), (8,)),
    Case("first product", start_up(1), (64,), (8,)),
    Case("first product, new dtype", start_up(2), (64,), (8,)),
    Case("first product, new semiring", start_up(3), (64,), (8,)),
    Case("CPU time beyond NumPy's", first_use, tuple(_USES), tuple(_USES)),
    Case("small min-plus f32", product("min_plus", "f4"), (1, 16, 32, 64, 128), (16,), threads=1),
    Case("small plus-times f32", product("plus_times", "f4"), (8, 16, 64), (16,), threads=1),
    Case("small plus-times f32 A x", gemv("plus_times", False), (8, 16, 64), (16,), threads=1),
    Case("min-plus f32", product("min_plus", "f4"), (256, 512, 1024, 2048, 4096)),
    Case("min-plus f32, odd", odd, (1000, 1023, 4097), (49,)),
    Case("min-plus f32, user-defined", twin, (2048,)),
    Case("min-plus f32 with argmin", argument, (1024, 4096)),
    Case("min-plus f64", product("min_plus", "f8"), (1024, 4096)),
    Case("min-plus i32", product("min_plus", "i4"), (1024, 4096)),
    Case("min-plus i16", product("min_plus", "i2"), (1024, 4096)),
    Case("max-times f32", product("max_times", "f4"), (2048,)),
    Case("max-min f32", product("max_min", "f4"), (1024, 4096)),
    Case("or-and bool", product("lor_land", "?"), (8192, 16384)),
    Case("rank over GF(2)", rank_over_gf2, (1024, 4096)),
    Case("plus-times f32", product("plus_times", "f4"), (2048, 4096)),
    Case("plus-times f64", product("plus_times", "f8"), (2048, 4096)),
    Case("log-plus f32", log_plus("f4", 1.0), (1024, 2048)),
    Case("log-plus f64", log_plus("f8", 1.0), (2048,)),
    Case("log-plus f32, term by term", log_plus("f4", 100.0), (1024,)),
    Case("plus-times f32 A x", gemv("plus_times", False), (8192, 16384)),
    Case("plus-times f32 Aᵀ x", gemv("plus_times", True), (8192, 16384)),
    Case("min-plus f32 A x", gemv("min_plus", False), (8192, 16384)),
    Case("min-plus f32 Aᵀ x", gemv("min_plus", True), (8192, 16384)),
    Case("apsp f32", apsp(), (512, 1024, 2048, 4096), full=(8192,)),
    Case("apsp f32, undirected", apsp(directed=False), (2048, 4096)),
    Case("apsp f32, predecessors", apsp(predecessors=True), (2048,), full=(4096,)),
    Case("apsp f32, 8 edges a node", random_graph, (2048, 4096)),
    Case("apsp rome99", network("rome99.gr"), (0,), ()),
    Case("widest paths f32", widest, (2048,)),
]
