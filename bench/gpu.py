"""The table of measured cases on a CUDA device; cases.py has the CPU's.

Data are made on the device. Times are the device's own, between two events; calls that are short
are issued behind a kernel that keeps the device busy, so that they follow each other without gaps.
"""

from __future__ import annotations

import functools
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import semiring_mm as sm

from . import gpu_ceilings
from .cases import (
    OURS,
    Case,
    Options,
    Rows,
    agree,
    check_paths,
    expect,
    rival,
)
from .gpu_clock import elapsed, timed
from .machine import ROOT
from .measure import Contender, Line, Skip, Wall

try:
    import cupy
except ImportError:  # the table can be looked at without it
    cupy = None

Build = Callable[[Any, Options], Line]

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX shares the device


class Events(Wall):
    """The device's clock."""

    seconds, long, span = 0.2, 1.5, 3e-3
    compiles = True

    def tidy(self) -> None:
        """Give back what the pools of CuPy and PyTorch keep: one cannot use the other's."""
        cupy.get_default_memory_pool().free_all_blocks()
        if "torch" in sys.modules:
            sys.modules["torch"].cuda.empty_cache()

    def first(self, call: Callable[[], Any]) -> tuple[float, Any]:
        result = []
        took = elapsed(lambda: result.append(call()))
        return took, result[0]

    def __call__(self, call: Callable[[], Any], repeats: int) -> float:
        return timed(call, repeats)


# Data, and rows of results on the host


def random(shape: tuple[int, ...], dtype: str, data: str, seed: int = 1) -> Any:
    """Random entries on the device: of either sign, in [0, 1), whole, truth values or wide.

    Wide ones are normal ones times powers of two up to ± 20.
    """
    rng = cupy.random.default_rng(seed)
    if data == "whole":
        return rng.integers(-1000, 1000, shape).astype(dtype)
    if data == "truth":  # so few that a product of two is true in about half of its entries
        return rng.random(shape, dtype=np.float32) < math.sqrt(math.log(2) / shape[-1])
    if data == "wide":
        powers = cupy.exp2(rng.uniform(-20, 20, shape))
        return (rng.standard_normal(shape, dtype=np.float32) * powers).astype(dtype)
    make = rng.standard_normal if data == "normal" else rng.random
    own = np.float64 if dtype == "f8" else np.float32  # of CuPy's generators
    return make(shape, dtype=own).astype(dtype, copy=False)


def rows_of(c: Any, index: Any) -> Any:
    """Rows of CuPy's, PyTorch's or JAX's array as NumPy's."""
    return cupy.asnumpy(cupy.from_dlpack(c)[cupy.asarray(index)])


def poison(size: int) -> Callable[[], None]:
    """Fill the memory that the next result of this size will get with NaN (or other poison)."""

    def fill() -> None:
        cupy.full(size, 255, np.uint8)

    return fill


def check_rows(a: Any, b: Any, kind: str, spoiled: int | None = None) -> Callable[[Any], None]:
    """Compare sampled rows with NumPy, computed when they are first asked for."""
    m = a.shape[0]
    count = 4 if b.size <= 1 << 25 else 2
    index = sorted({m - 1, *np.random.default_rng(7).integers(0, m, count - 1).tolist()})
    if spoiled is not None:
        index = sorted({*index[1:], spoiled})

    @functools.cache
    def expected() -> tuple[Any, Any]:
        rows, right = rows_of(a, index), b.get()
        strips = [slice(j, j + 256) for j in range(0, right.shape[1], 256)]
        with ThreadPoolExecutor() as pool:
            parts = list(pool.map(lambda strip: expect(rows, right[:, strip], kind), strips))
        exact, off = zip(*parts, strict=True)
        return np.concatenate(exact, 1), 0.0 if np.ndim(off[0]) == 0 else np.concatenate(off, 1)

    def check(c: Any) -> None:
        agree(rows_of(c[0] if isinstance(c, tuple) else c, index), *expected())

    return check


# Rivals


def torch_call(function: Callable[[Any, Any, Any], Any], *arrays: Any) -> Any:
    """Return a builder for :func:`rival`: operands as PyTorch tensors, without TF32."""

    def make(torch: Any) -> Callable[[], Any]:
        if not torch.cuda.is_available():
            raise Skip("PyTorch without CUDA")
        torch.backends.cuda.matmul.allow_tf32 = False
        tensors = [torch.from_dlpack(x) for x in arrays]
        return lambda: function(torch, *tensors)

    return make


def torch_rival(name: str, work: float, function: Callable[..., Any], *arrays: Any) -> Contender:
    try:
        return rival(name, "torch", torch_call(function, *arrays), work)
    except Skip as reason:
        return Contender(name, None, skipped=str(reason))


def torch_min_plus(torch: Any, a: Any, b: Any) -> Any:
    """Broadcasting, as many rows at a time as make a temporary of 1 GiB."""
    c = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    step = max(1, (1 << 28) // b.numel())
    for i in range(0, len(a), step):
        c[i : i + step] = (a[i : i + step, :, None] + b).amin(1)
    return c


def jax_min_plus(a: Any, b: Any) -> Callable[[Any], Callable[[], Any]]:
    def make(jax: Any) -> Callable[[], Any]:
        if jax.default_backend() != "gpu":
            raise Skip("JAX without CUDA")
        left, right = (jax.dlpack.from_dlpack(x) for x in (a, b))
        jitted = jax.jit(lambda x, y: jax.numpy.min(x[:, :, None] + y[None], 1))

        def call() -> Any:  # JAX has a stream of its own
            cupy.cuda.get_current_stream().synchronize()
            return jitted(left, right).block_until_ready()

        call()  # compiles
        return call

    return make


def min_plus_rivals(a: Any, b: Any, work: float) -> list[Contender]:
    rivals = [torch_rival("PyTorch, chunked broadcast", work, torch_min_plus, a, b)]
    try:
        rivals.append(rival("JAX, jitted broadcast", "jax", jax_min_plus(a, b), work))
    except (Skip, RuntimeError) as reason:
        rivals.append(Contender("JAX", None, skipped=str(reason).splitlines()[0]))
    return rivals


# Products


def shape_of(size: int | tuple[int, int, int]) -> tuple[int, int, int]:
    """The m, k and n of a size."""
    return (size, size, size) if isinstance(size, int) else size


def words(size: Any) -> str:
    return " × ".join(map(str, size)) if isinstance(size, tuple) else str(size)


def product_line(
    size: Any, a: Any, b: Any, kind: str, ceiling: str, contenders: Sequence[Contender],
    spoiled: int | None = None,
) -> Line:  # fmt: skip
    m, k, n = shape_of(size)
    item = a.dtype.itemsize
    return Line(
        "", words(size), "T/s", 0, list(contenders), ceiling,
        check=check_rows(a, b, kind, spoiled), prepare=poison(m * n * item),
        pairs=float(m * n * k), bytes=float(item * (m * k + k * n + m * n)),
    )  # fmt: skip


def plain(dtype: str, ceiling: str) -> Build:
    """C = A B in float32 or float64, beside cuBLAS."""

    def build(size: Any, options: Options) -> Line:
        m, k, n = shape_of(size)
        a, b = random((m, k), dtype, "normal", 1), random((k, n), dtype, "normal", 2)
        call = sm.sgemm if dtype == "f4" else sm.dgemm
        work = float(m) * k * n
        contenders = [
            Contender(OURS, lambda: call(None, a, b), work),
            Contender("cuBLAS by CuPy", lambda: cupy.matmul(a, b), work),
            torch_rival("cuBLAS by PyTorch", work, lambda torch, x, y: torch.matmul(x, y), a, b),
        ]
        return product_line(size, a, b, "plus_times", ceiling, contenders)

    return build


sgemm = plain("f4", "plus-times f32")


def gemm(dtype: str, precision: str | None, roundoff: float, data: str = "normal") -> Build:
    """C = A B on tensor cores, beside cuBLAS: in the same precision, or in float32."""

    def build(n: int, options: Options) -> Line:
        a, b = (random((n, n), dtype, data, seed) for seed in (1, 2))
        work, emulated = float(n) ** 3, precision == "float32_emulated"

        def rival_call(torch: Any, x: Any, y: Any) -> Any:
            torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
            return torch.matmul(x, y)

        name = "cuBLAS by PyTorch, float32" if emulated else "cuBLAS by PyTorch"
        contenders = [
            Contender(OURS, lambda: sm.gemm(None, a, b, precision=precision), work),
            torch_rival(name, work, rival_call, a, b),
        ]
        if dtype == "f2":
            contenders.append(Contender("cuBLAS by CuPy", lambda: cupy.matmul(a, b), work))
        line = product_line(n, a, b, "plus_times", "", contenders)
        index = [0, n // 2, n - 1]
        rows, right = (x.astype(np.float32) for x in (rows_of(a, index), b.get()))
        exact, off = expect(rows, right, "plus_times")
        bound = off / np.finfo(np.float32).eps * roundoff
        line.check = lambda c: agree(rows_of(c, index).astype("f8"), exact, bound)
        return line

    return build


def turned(turn_a: bool, turn_b: bool) -> Build:
    """Sgemm of operands that lie by columns, without a copy."""

    def build(n: int, options: Options) -> Line:
        a, b = (random((n, n), "f4", "normal", seed) for seed in (1, 2))
        x, y = a.T if turn_a else a, b.T if turn_b else b
        contenders = [
            Contender(OURS, lambda: sm.sgemm(None, x, y), float(n) ** 3),
            Contender("cuBLAS by CuPy", lambda: cupy.matmul(x, y), float(n) ** 3),
        ]
        return product_line(n, x, y, "plus_times", "plus-times f32", contenders)

    return build


def product(kind: str, dtype: str, ceiling: str, data: str = "normal") -> Build:
    """C = A B over a built-in semiring."""

    def build(size: Any, options: Options) -> Line:
        m, k, n = shape_of(size)
        a, b = random((m, k), dtype, data, 1), random((k, n), dtype, data, 2)
        work = float(m) * k * n
        contenders = [Contender(OURS, lambda: sm.matmul(a, b, semiring=kind), work)]
        if (kind, dtype, n) == ("min_plus", "f4", 2048):
            contenders += min_plus_rivals(a, b, work)
        return product_line(size, a, b, kind, ceiling, contenders)

    return build


def truth(kind: str, packed: bool = False) -> Build:
    """C = A B of truth values, bytes in and bytes out, or packed in and out."""

    def build(size: Any, options: Options) -> Line:
        m, k, n = shape_of(size)
        a, b = random((m, k), "?", "truth", 1), random((k, n), "?", "truth", 2)
        x, y = (sm.BitMatrix.pack(z) if packed else z for z in (a, b))
        work = float(m) * k * n
        contenders = [Contender(OURS, lambda: sm.matmul(x, y, kind), work)]
        if (kind, n, packed) == ("lor_land", 8192, False):

            def positive(torch: Any, left: Any, right: Any) -> Any:
                return (torch.matmul(left.half(), right.half()) > 0).to(torch.uint8)

            bytes_of = [z.view(np.uint8) for z in (a, b)]
            name = "cuBLAS float16 by PyTorch, > 0"
            contenders.append(torch_rival(name, work, positive, *bytes_of))
        line = product_line(size, a, b, kind, "or-and bits" if n < 800 else "", contenders)
        if packed:
            check = line.check
            line.check, line.bytes = lambda c: check(c.unpack()), line.bytes / 8
        return line

    return build


def random_bits(m: int, n: int, seed: int) -> Any:
    """Even truth values, packed; n is a multiple of 8.

    Drawn by NumPy: numbers of CuPy's generator, XORWOW, are nearly linear over GF(2).
    """
    bits = np.random.default_rng(seed).integers(0, 256, (m, n // 8), dtype=np.uint8)
    return sm.BitMatrix(cupy.asarray(bits))


def reachability(n: int, options: Options) -> Line:
    """Which nodes reach which, of bytes and packed, in a graph of two edges a node."""
    a = random((n, n), "f4", "uniform") < 2 / n
    packed = sm.BitMatrix.pack(a)
    contenders = [
        Contender(OURS, lambda: sm.closure(a, "lor_land")),
        Contender("packed", lambda: sm.closure(packed, "lor_land"), ours=True),
    ]

    @functools.cache
    def expected() -> Any:
        edges, reach = a.astype("f4"), cupy.eye(n, dtype="f4")[[0, n // 2, n - 1]]
        while True:
            further = cupy.minimum(reach + reach @ edges, 1)
            if (further == reach).all():
                return reach.get() > 0
            reach = further

    def check(found: Any) -> None:
        whole = found.unpack() if isinstance(found, sm.BitMatrix) else found
        np.testing.assert_array_equal(whole[[0, n // 2, n - 1]].get(), expected())

    return Line("", "", "", 0, contenders, check=check)


def rank_over_gf2(n: int, options: Options) -> Line:
    """The rank of a packed matrix that lacks a few of its n."""
    rank = n - n // 32 // 8 * 8
    a = sm.matmul(random_bits(n, rank, 1), random_bits(rank, n, 2), "xor_land")
    line = Line("", "", "", 0, [Contender(OURS, lambda: sm.gf2.rank(a))])
    line.check = lambda found: np.testing.assert_equal(found, rank)
    return line


def inverse_over_gf2(n: int, options: Options) -> Line:
    """The inverse of a packed matrix: of a product of two triangles."""
    ones = cupy.eye(n, dtype=bool)
    upper, lower = (cupy.triu(random((n, n), "f4", "uniform", i) < 0.5, 1) for i in (1, 2))
    a = sm.matmul(*map(sm.BitMatrix.pack, ((lower | ones).T, upper | ones)), "xor_land")
    index = [0, n // 2, n - 1]
    whole = a.unpack().get().astype("f4")

    def check(found: Any) -> None:
        rows = rows_of(found.unpack().view(np.uint8), index).astype("f4")
        np.testing.assert_array_equal(rows @ whole % 2, np.eye(n)[index])

    return Line("", "", "", 0, [Contender(OURS, lambda: sm.gf2.inv(a))], check=check)


def spoiled(kind: str, ceiling: str, data: str, entry: float) -> Build:
    """Operands with one entry that the fused step does not support: the general step runs."""

    def build(n: int, options: Options) -> Line:
        a, b = random((n, n), "f4", data, 1), random((n, n), "f4", data, 2)
        clean = a.copy()
        a[n // 2, n // 3] = entry
        work = float(n) ** 3
        contenders = [
            Contender(OURS, lambda: sm.matmul(a, b, semiring=kind), work),
            Contender("without it", lambda: sm.matmul(clean, b, semiring=kind), work, ours=True),
        ]
        line = product_line(n, a, b, kind, ceiling, contenders)
        checks = iter([check_rows(x, b, kind, n // 2) for x in (a, clean)])
        line.check = lambda c: next(checks)(c)
        return line

    return build


def log_plus(scale: float) -> Build:
    """C = A B over log_plus beside plus-times, of entries that are so far apart."""

    def build(size: Any, options: Options) -> Line:
        m, k, n = shape_of(size)
        a, b = (scale * random(s, "f4", "normal", i) for i, s in enumerate(((m, k), (k, n))))
        work = float(m) * k * n
        contenders = [
            Contender(OURS, lambda: sm.matmul(a, b, "log_plus"), work),
            Contender("plus-times", lambda: sm.matmul(a, b), work, ours=True),
        ]
        line = product_line(size, a, b, "log_plus", "", contenders)
        checks = iter([check_rows(a, b, kind) for kind in ("log_plus", "plus_times")])
        line.check = lambda c: next(checks)(c)
        return line

    return build


def bfloat(kind: str, name: str) -> Build:
    """PyTorch tensors in bfloat16, a type NumPy and CuPy lack."""

    def build(n: int, options: Options) -> Line:
        try:
            import torch
        except ImportError:
            raise Skip("PyTorch absent") from None
        floats = [random((n, n), "f4", "normal", seed) for seed in (1, 2)]
        x, y = (torch.from_dlpack(f).bfloat16() for f in floats)
        a, b = (cupy.from_dlpack(t.float()) for t in (x, y))
        work, sums = float(n) ** 3, kind == "plus_times"
        contenders = [Contender(OURS, lambda: sm.matmul(x, y, semiring=kind), work)]
        if sums:
            contenders.append(Contender("cuBLAS by PyTorch", lambda: torch.matmul(x, y), work))
        line = product_line(n, a, b, kind, name, contenders)
        index = [0, n // 2, n - 1]

        def check(c: Any) -> None:
            exact, off = expect(rows_of(a, index), b.get(), kind)
            found = c.float().cpu().numpy()[index]
            if sums:
                agree(found.astype("f8"), exact, off / np.finfo(np.float32).eps * 2.0**-8)
            else:
                rounded = torch.from_numpy(exact).bfloat16().float().numpy()
                np.testing.assert_array_equal(found, rounded)

        line.check, line.bytes = check, line.bytes / 2
        return line

    return build


def squares(size: Any, options: Options) -> Line:
    """A semiring of one's own: ⊗ is the square of a difference, ⊕ a sum."""
    m, k, n = shape_of(size)
    a, b = random((m, k), "f4", "normal", 1), random((k, n), "f4", "normal", 2)
    own = sm.Semiring("squares", "a + b", "(a - b) * (a - b)", 0, 0)
    work = float(m) * k * n
    contenders = [Contender(OURS, lambda: sm.matmul(a, b, own), work)]
    line = product_line(size, a, b, "plus_times", "Σ (a − b)² f32", contenders)
    index = [m // 3, m - 1]

    def check(c: Any) -> None:
        for row, found in zip(rows_of(a, index), rows_of(c, index), strict=True):
            gaps = (row[:, None] - b.get()).astype("f8")
            np.testing.assert_allclose(found, (gaps * gaps).sum(0), rtol=1e-4)

    line.check = check
    return line


def argument(data: str, ceiling: str) -> Build:
    """The product that also says which k attained each entry."""

    def build(n: int, options: Options) -> Line:
        a, b = random((n, n), "f4", data, 1), random((n, n), "f4", data, 2)
        work = float(n) ** 3
        contenders = [
            Contender(OURS, lambda: sm.matmul(a, b, "min_plus", return_arg=True), work),
            Contender("plain product", lambda: sm.matmul(a, b, "min_plus"), work, ours=True),
        ]
        line = product_line(n, a, b, "min_plus", ceiling, contenders)
        values = check_rows(a, b, "min_plus")

        def check(result: Any) -> None:
            values(result)
            if isinstance(result, tuple):
                c, arg = result
                assert bool(((arg >= 0) & (arg < n)).all()), "an arg is no k"
                for i in range(0, n, n // 4):
                    sums = a[i, arg[i]] + b[arg[i], cupy.arange(n)]
                    np.testing.assert_array_equal(sums.get(), c[i].get())

        line.check = check
        return line

    return build


# Matrix-vector products


def gemv(kind: str, trans: bool) -> Build:
    """y = A x, or Aᵀ x: A is read once, so copying memory is the ceiling."""

    def build(shape: tuple[int, int], options: Options) -> Line:
        a = random(shape, "f4", "normal", 1)
        op = a.T if trans else a
        m, k = op.shape
        x = random((k,), "f4", "normal", 2)
        moved = float(4 * (m * k + m + k))
        contenders = [
            Contender(OURS, lambda: sm.gemv(None, a, x, trans=trans, semiring=kind), moved),
            torch_rival(
                "cuBLAS by PyTorch" if kind == "plus_times" else "cuBLAS, plus-times", moved,
                lambda torch, t, v: torch.mv(t.t() if trans else t, v), a, x,
            ),
        ]  # fmt: skip
        if kind == "plus_times":
            contenders.append(Contender("cuBLAS by CuPy", lambda: op @ x, moved))
        sampled = sorted({0, m - 1, *np.random.default_rng(7).integers(0, m, 30).tolist()})

        def check(y: Any) -> None:
            rows, vector = op[cupy.asarray(sampled)].get(), x.get()[:, None]
            agree(rows_of(y, sampled)[:, None], *expect(rows, vector, kind))

        cached = 4 * m * k < 128 << 20  # calls that follow each other find A in the L2 cache
        line = Line(
            "", words(shape), "TB/s", 0, contenders, "" if cached else gpu_ceilings.COPY,
            check=check, prepare=poison(4 * m), pairs=float(m * k), bytes=moved,
        )  # fmt: skip
        if kind != "plus_times":  # the rivals compute another product of the same size
            first = iter([True])
            line.check = lambda y: check(y) if next(first, False) else None
        return line

    return build


# Shortest paths


def graph(n: int, directed: bool) -> Any:
    """Random weights in (0, 1]."""
    w = 1 - random((n, n), "f4", "uniform", n)
    return w if directed else cupy.minimum(w, w.T)


@functools.lru_cache(maxsize=8)
def path_check(n: int, directed: bool) -> Callable[[Any], None]:
    return check_paths(graph(n, directed).get(), 2 if n <= 16384 else 1)


def apsp(*, directed: bool = True, predecessors: bool = False) -> Build:
    """All pairs of a dense graph, by elimination."""

    def build(n: int, options: Options) -> Line:
        w = graph(n, directed)
        work = float(n) ** 3

        def solve(directed: bool, predecessors: bool = False) -> Callable[[], Any]:
            return lambda: sm.apsp(
                w, method="floyd_warshall", directed=directed, return_predecessors=predecessors
            )

        contenders = [Contender(OURS, solve(directed, predecessors), work)]
        if directed and not predecessors:
            plain = Contender("product", lambda: sm.matmul(w, w, "min_plus"), work, ours=True)
        else:
            name = "directed" if not directed else "without predecessors"
            plain = Contender(name, solve(True), work, ours=True)
        if n <= 32768:  # it takes as long again
            contenders.append(plain)
        turn = iter(contenders)

        def check(result: Any) -> None:
            if next(turn).name == "product":
                check_rows(w, w, "min_plus")(result)
                return
            parts = result if isinstance(result, tuple) else (result,)
            rows = [Rows(lambda i, x=x: cupy.asnumpy(x[int(i)])) for x in parts]
            path_check(n, directed)(tuple(rows) if len(rows) > 1 else rows[0])

        return Line(
            "", "", "T/s", 0, contenders, "min-plus f32 ≥ 0", check=check,
            prepare=poison(4 * n * n), pairs=work, bytes=8.0 * n * n,
            **({"most": 1} if n > 32768 else {}),
        )  # fmt: skip

    return build


def among_points(reach: float) -> Build:
    """Predecessors among points of a square: every edge is a shortest path."""

    def build(n: int, options: Options) -> Line:
        x = random((n, 2), "f4", "uniform", n)
        w = cupy.sqrt(sum((x[:, None, k] - x[None, :, k]) ** 2 for k in range(2)))
        w[w > reach] = cupy.inf
        work = float(n) ** 3
        contenders = [
            Contender(OURS, lambda: sm.apsp(w, directed=True, return_predecessors=True), work),
            Contender("without predecessors", lambda: sm.apsp(w, directed=True), work, ours=True),
        ]

        def check(result: Any) -> None:
            parts = result if isinstance(result, tuple) else (result,)
            rows = [Rows(lambda i, x=x: cupy.asnumpy(x[int(i)])) for x in parts]
            check_paths(w.get(), 2)(tuple(rows) if len(rows) > 1 else rows[0])

        return Line("", words(n), "T/s", 0, contenders, "min-plus f32 ≥ 0", check=check, pairs=work)

    return build


def from_host(n: int, options: Options) -> Line:
    """A graph that lies on the host goes to the device, and its distances come back."""
    w = graph(n, True)
    host, work = w.get(), float(n) ** 3
    contenders = [
        Contender(OURS, lambda: sm.apsp(host, directed=True, device="cuda"), work),
        Contender("on the device", lambda: sm.apsp(w, directed=True), work, ours=True),
    ]
    return Line(
        "", words(n), "T/s", 0, contenders, "min-plus f32 ≥ 0",
        check=lambda d: path_check(n, True)(Rows(lambda i: cupy.asnumpy(d[int(i)]))),
        prepare=poison(4 * n * n), pairs=work, bytes=8.0 * n * n,
    )  # fmt: skip


def batch(predecessors: bool) -> Build:
    """Many small graphs at once."""

    def build(shape: tuple[int, int], options: Options) -> Line:
        b, n = shape
        w = 1 - random((b, n, n), "f4", "uniform", n)
        work = float(b) * n**3
        solve = functools.partial(sm.apsp, w, directed=True, return_predecessors=predecessors)

        def check(result: Any) -> None:
            d = result[0] if predecessors else result
            for i in (0, b // 2, b - 1):
                exact = w[i].get().astype("f8")
                np.fill_diagonal(exact, 0)
                for k in range(n):
                    exact = np.minimum(exact, exact[:, k : k + 1] + exact[k])
                np.testing.assert_allclose(d[i].get(), exact, rtol=1e-5)

        contenders = [Contender(OURS, solve, work)]
        return Line(
            "", words(shape), "T/s", 0, contenders, "min-plus f32 ≥ 0", check=check,
            prepare=poison(4 * b * n * n), pairs=work, bytes=8.0 * b * n * n,
        )  # fmt: skip

    return build


# Start-up, and what a call costs the host

_FIRST = """
import time
import cupy
a = cupy.random.default_rng(1).random(({n}, {n}), dtype=cupy.float32)
cupy.cuda.Device().synchronize()
import semiring_mm as sm
start = time.perf_counter()
sm.matmul(a, a, semiring="min_plus")
cupy.cuda.Device().synchronize()
print(time.perf_counter() - start)
"""


@functools.cache
def _warm_cache() -> tempfile.TemporaryDirectory[str]:
    """A temporary kernel cache that holds what the first call needs."""
    folder = tempfile.TemporaryDirectory()
    _first_call(Path(folder.name), 2048)
    return folder


def _first_call(cache: Path, n: int) -> float:
    done = subprocess.run(
        [sys.executable, "-c", _FIRST.format(n=n)],
        cwd=ROOT, capture_output=True, text=True, check=True,
        # NVRTC has a cache of its own, besides
        env=os.environ | {"SEMIRING_MM_CACHE": str(cache), "CUDA_CACHE_DISABLE": "1"},
    )  # fmt: skip
    return float(done.stdout.split()[-1])


def first_call(cold: bool) -> Build:
    """A process's first product, its device and operands ready."""

    def build(n: int, options: Options) -> Line:
        def call() -> float:
            if not cold:
                return _first_call(Path(_warm_cache().name), n)
            with tempfile.TemporaryDirectory() as folder:
                return _first_call(Path(folder), n)

        return Line("", "", "", 0, [Contender(OURS, call, own_clock=True)], most=3)

    return build


def _calls(name: str) -> tuple[Callable[[], Any], Callable[[], Any] | None]:
    """A call, and CuPy's of the same result, by its name in the table."""
    verb, *rest = name.split()
    if verb == "einsum":
        x = random((10**6,) if rest[0] == "i->" else (1000, 1000), "f4", "normal")
        axis = {"i->": 0, "ij->i": 1, "ij->j": 0}[rest[0]]
        return lambda: sm.einsum(rest[0], x), lambda: x.sum(axis)
    m, *k = map(int, rest[::2])
    a = random((m, k[0] if k else m), "f4", "normal" if verb == "sgemm" else "uniform", 1)
    if verb == "sgemv":
        x = random(a.shape[1:], "f4", "normal", 2)
        return lambda: sm.sgemv(1.0, a, x), lambda: a @ x
    b = random((m, m), "f4", "normal" if verb == "sgemm" else "uniform", 2)
    if verb == "sgemm":
        return lambda: sm.sgemm(1.0, a, b), lambda: cupy.matmul(a, b)
    return lambda: sm.matmul(a, b, "min_plus"), None


def _host(call: Callable[[], Any]) -> Callable[[], float]:
    """Seconds of the host in a call: many are launched, and not waited for."""

    def run() -> float:
        call()
        took = []
        for _ in range(5):
            cupy.cuda.Device().synchronize()
            start = time.perf_counter()
            for _ in range(100):
                call()
            took.append((time.perf_counter() - start) / 100)
        cupy.cuda.Device().synchronize()
        return min(took)

    return run


def alone(call: Callable[[], Any], longest: float = 1.0) -> Callable[[], float]:
    """Seconds of a call, from before it until its result is there: the median of some.

    So many are made as fit in `longest` seconds; the first is not counted unless it takes all.
    """

    def run() -> float:
        took: list[float] = []
        while len(took) < 2 or (len(took) < 51 and sum(took) < longest):
            cupy.cuda.Device().synchronize()
            start = time.perf_counter()
            call()
            cupy.cuda.Device().synchronize()
            took.append(time.perf_counter() - start)
            if took[0] >= longest:
                break
        return float(np.median(took[1:] or took))

    return run


def calls(clocked: Callable[[Callable[[], Any]], Callable[[], float]]) -> Build:
    """What a repeated call costs its caller, beside CuPy's."""

    def build(name: str, options: Options) -> Line:
        ours, theirs = _calls(name)
        contenders = [Contender(OURS, clocked(ours), own_clock=True)]
        if theirs is not None:
            cupy.testing.assert_allclose(ours(), theirs(), rtol=1e-3, atol=1e-2)
            contenders.append(Contender("CuPy", clocked(theirs), own_clock=True))
        return Line("", name, "", 0, contenders, most=3)

    return build


LOW = tuple((m, 65536, 4096) for m in (16, 64, 256))
NARROW = tuple((4096, 65536, n) for n in (16, 64, 256))
VECTORS = (
    (256, 256), (4096, 4096), (8192, 8192), (128, 262144), (262144, 128), (1_000_000, 32),
    (16384, 16384), (32768, 32768),
)  # fmt: skip
SMALL = (48, (33, 70, 5))
CALLS = (
    "sgemm 64", "sgemm 256", "sgemm 512", "min_plus 64", "min_plus 256", "min_plus 512",
    "sgemv 256 × 256", "einsum i-> of 10⁶", "einsum ij->i of 10⁶", "einsum ij->j of 10⁶",
)  # fmt: skip
#: What takes the device longer than the host.
LONGER = ("sgemm 1024", "sgemm 2048", "min_plus 1024", "min_plus 2048")
WAITED = (
    *LONGER, "sgemv 4096 × 4096", "sgemv 1000000 × 32",
    "sgemv 32 × 1000000", "sgemv 262144 × 128",
)  # fmt: skip
MIDDLE = (4096, 8192)
LARGE = (*MIDDLE, 16384)
MIDDLE_GRAPHS = (512, 1024, 2048, *MIDDLE)

#: A run that is interrupted keeps its lines: what is compared with most often comes first.
CASES = [
    Case("calls: time of the host", calls(_host), (*CALLS, *LONGER), ("sgemm 8",)),
    Case("calls: each waited for", calls(alone), (*CALLS, *WAITED), ("sgemm 8",)),
    Case("sgemm", sgemm, (256, 512, 1024, 2048, 4096, 8192, 12288, 16384), SMALL),
    Case("sgemm, low", sgemm, LOW, ((3, 70, 50),)),
    Case("sgemm, narrow", sgemm, NARROW, ((50, 70, 3),)),
    Case("sgemm, Aᵀ B", turned(True, False), (8192,)),
    Case("sgemm, A Bᵀ", turned(False, True), (8192,)),
    Case("sgemm, Aᵀ Bᵀ", turned(True, True), (8192,)),
    Case("dgemm", plain("f8", ""), (1024, 2048, 4096, 8192), SMALL),
    Case("gemm f16", gemm("f2", None, 2.0**-11), (512, 1024, 2048, *LARGE), (48,)),
    Case("gemm bf16", bfloat("plus_times", ""), LARGE),
    Case("gemm f32, tf32", gemm("f4", "tf32", 2.0**-11), (1024, 2048, *LARGE), (48,)),
    Case(
        "gemm f32, emulated", gemm("f4", "float32_emulated", 2.0**-23),
        (1024, 2048, *LARGE), (48,),
    ),
    Case(
        "gemm f32, emulated, ± 20 binades",
        gemm("f4", "float32_emulated", 2.0**-21, "wide"), (8192,), (48,),  # SGEMM errs by 2^-21.1
    ),
    Case("apsp f32", apsp(), (512, 1024, 2048, 4096, 8192, 16384, 32768)),
    Case("apsp f32, predecessors", apsp(predecessors=True), (1024, 2048, 4096, 8192, 16384)),
    Case("apsp f32, predecessors, all pairs of points", among_points(2), MIDDLE_GRAPHS),
    Case("apsp f32, predecessors, near points", among_points(0.4), MIDDLE_GRAPHS),
    Case("apsp f32, from the host", from_host, (1024, 2048, 4096, 16384)),
    Case("apsp f32, undirected", apsp(directed=False), (16384,)),
    Case("apsp f32, batch", batch(False), ((1000, 240), (10_000, 64)), ((5, 20),)),
    Case("apsp f32, batch, predecessors", batch(True), ((10_000, 64),), ((5, 20),)),
    Case("min-plus f32", product("min_plus", "f4", "min-plus f32"), (1024, 2048, *LARGE), SMALL),
    Case(
        "min-plus f32 ≥ 0", product("min_plus", "f4", "min-plus f32 ≥ 0", "uniform"),
        (1024, 2048, *LARGE), SMALL,
    ),
    Case("min-plus f16", product("min_plus", "f2", "min-plus f16"), LARGE, SMALL),
    Case("min-plus bf16", bfloat("min_plus", "min-plus bf16"), (8192,)),
    Case("or-and bool", truth("lor_land"), (512, 1024, 2048, *LARGE, 32768), SMALL),
    Case("xor-and bool", truth("xor_land"), (8192, 32768), SMALL),
    Case("or-and, packed", truth("lor_land", packed=True), (8192, 32768), SMALL),
    Case("xor-and, packed", truth("xor_land", packed=True), (32768,), SMALL),
    Case("plus-times f32 A x", gemv("plus_times", False), VECTORS, ((48, 33),)),
    Case("plus-times f32 Aᵀ x", gemv("plus_times", True), VECTORS, ((48, 33),)),
]  # fmt: skip
#: What is compared with less often.
REST = [
    Case("min-plus f32, argmin", argument("normal", "min-plus f32"), (8192,)),
    Case("min-plus f32 ≥ 0, argmin", argument("uniform", "min-plus f32 ≥ 0"), (8192, 16384)),
    Case(
        "min-plus f32, one entry < 0", spoiled("min_plus", "min-plus f32", "uniform", -1.0), (8192,)
    ),
    Case("min-plus f32, one NaN", spoiled("min_plus", "min-plus f32", "uniform", np.nan), (8192,)),
    Case("min-plus i32", product("min_plus", "i4", "min-plus i32", "whole"), MIDDLE, SMALL),
    Case("min-plus i16", product("min_plus", "i2", "min-plus i16", "whole"), MIDDLE, SMALL),
    Case("Σ (a − b)² f32", squares, MIDDLE, SMALL),
    Case("max-min f32", product("max_min", "f4", "max-min f32"), MIDDLE, SMALL),
    Case(
        "max-min f32, one NaN",
        spoiled("max_min", "max-min f32, floats", "normal", np.nan),
        (8192,),
    ),
    Case(
        "max-times f32 ≥ 0",
        product("max_times", "f4", "max-times f32 ≥ 0", "uniform"),
        MIDDLE,
        SMALL,
    ),
    Case(
        "max-times f32, one entry < 0",
        spoiled("max_times", "max-times f32", "uniform", -1.0),
        (8192,),
    ),
    Case("log-plus f32", log_plus(1.0), (1024, 2048, *MIDDLE), SMALL),
    Case("log-plus f32, term by term", log_plus(1000.0), (2048, 4096), SMALL),
    Case("min-plus f32 A x", gemv("min_plus", False), VECTORS[2:5], ((48, 33),)),
    Case("min-plus f32 Aᵀ x", gemv("min_plus", True), VECTORS[2:5], ((48, 33),)),
    Case("closure of truth values", reachability, (16384,)),
    Case("rank over GF(2)", rank_over_gf2, (8192, 32768), (512,)),
    Case("inverse over GF(2)", inverse_over_gf2, (8192,), (48,)),
    Case("first product, cold", first_call(True), (2048,), (8,)),
    Case("first product, from the disk", first_call(False), (2048,), (8,)),
]
#: Half a minute with its check.
LONGEST = Case("apsp f32, the whole device", apsp(), (), full=(65536,))  # fmt: skip


def compile_share(i: int, n: int, chosen: Sequence[Case], options: Options) -> None:
    """Run every n-th line once, from the i-th on: its kernels are in the disk cache then."""
    start = time.perf_counter()
    for name in list(gpu_ceilings.STEPS)[i::n]:
        gpu_ceilings.measure(name, seconds=0.001, repeat=1)
    print(f"{time.perf_counter() - start:.1f} s  start and ceilings", flush=True)
    jobs = [
        (case, size) for case in chosen for size in case.wanted(options)
        if size != 65536 and not case.name.startswith("first product")
    ]  # fmt: skip
    for case, size in jobs[i::n]:
        start, note = time.perf_counter(), ""
        try:
            for contender in case.line(size, options).contenders:
                mine = contender.name in (OURS, "KeOps") or contender.ours
                if contender.call is not None and mine:
                    contender.call()
            cupy.cuda.Device().synchronize()
        except Exception as error:  # the line will say so when it is measured
            note = f"  {type(error).__name__}: {error}".splitlines()[0]
        Events().tidy()
        print(f"{time.perf_counter() - start:.1f} s  {case.name} {size}{note}", flush=True)
