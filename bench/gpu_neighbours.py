"""Cases of distances between points, and of the nearest ones, on a CUDA device."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import semiring_mm as sm

from . import gpu
from .cases import OURS, Case, Options, rival
from .machine import ROOT
from .measure import Contender, Line, Skip

__all__ = ["CASES"]

Size = tuple[int, int, int]  # rows of X, columns, rows of Y

TABLE = "neighbours-gpu"
#: Of the metrics that are computed term by term.
CEILINGS = {"l1": "Σ |a − b| f32", "linf": "max |a − b| f32", "hamming": "Σ a ≠ b f32"}
_BLOCK = 1 << 30  # bytes of the distances that PyTorch has at a time


def _points(size: Size, metric: str) -> tuple[Any, Any]:
    m, k, n = size
    data = "whole" if metric == "hamming" else "normal"  # of which some are equal
    return gpu.random((m, k), "f4", data, 1), gpu.random((n, k), "f4", data, 2)


def _exact(x: Any, y: Any, metric: str) -> Any:
    """Distances of some rows, in float64 by NumPy."""
    found = []
    for row in x.astype(np.float64):
        gap = abs(y - row)
        found.append({
            "l1": lambda gap=gap: gap.sum(1),
            "l2": lambda gap=gap: np.sqrt((gap * gap).sum(1)),
            "sqeuclidean": lambda gap=gap: (gap * gap).sum(1),
            "linf": lambda gap=gap: gap.max(1),
            "hamming": lambda gap=gap: (gap != 0).mean(1),
            "cosine": lambda row=row: (
                1 - y @ row / np.linalg.norm(row) / np.linalg.norm(y.astype(np.float64), axis=1)
            ),
        }[metric]())  # fmt: skip
    return np.array(found)


def _torch_distances(torch: Any, metric: str, x: Any, y: Any) -> Any:
    """As users of PyTorch write it."""
    p = {"l1": 1.0, "l2": 2.0, "sqeuclidean": 2.0, "linf": float("inf"), "hamming": 0.0}
    if metric == "cosine":
        x, y = (v / v.norm(dim=1, keepdim=True) for v in (x, y))
        return 1 - x @ y.T
    found = torch.cdist(x, y, p=p[metric])
    if metric == "hamming":
        return found / x.shape[1]
    return found * found if metric == "sqeuclidean" else found


def distances(metric: str) -> Callable[[Size, Options], Line]:
    """All distances, beside PyTorch's."""

    def build(size: Size, options: Options) -> Line:
        (m, k, n), (x, y) = size, _points(size, metric)
        work = float(m * n * k)
        contenders = [
            Contender(OURS, lambda: sm.neighbours.cdist(x, y, metric), work),
            gpu.torch_rival(
                "PyTorch", work, lambda torch, a, b: _torch_distances(torch, metric, a, b), x, y
            ),
        ]
        index = [0, m - 1]
        rows, right = gpu.rows_of(x, index), y.get()

        def check(found: Any) -> None:
            expected = _exact(rows, right, metric)
            error = abs(gpu.rows_of(found, index) - expected).max() / abs(expected).max()
            assert error < 2e-5, error

        return Line(
            "", gpu.words(size), "T/s", 0, contenders, CEILINGS.get(metric, ""), check=check,
            prepare=gpu.poison(4 * m * n), pairs=work, bytes=4.0 * (m * k + n * k + m * n),
        )  # fmt: skip

    return build


def _torch_nearest(torch: Any, metric: str, x: Any, y: Any, count: int) -> Any:
    step = max(1, _BLOCK // (4 * len(y)))
    parts = [
        torch.topk(
            torch.cdist(x[i : i + step], y, p=1.0 if metric == "l1" else 2.0), count, largest=False
        )
        for i in range(0, len(x), step)
    ]
    return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])


def _keops(metric: str, x: Any, y: Any, count: int) -> Callable[[Any], Callable[[], Any]]:
    def make(pykeops: Any) -> Callable[[], Any]:
        import torch

        if not _keops_works(metric, x.shape[1], count):
            raise Skip("fails here")
        a, b = torch.from_dlpack(x), torch.from_dlpack(y)
        _keops_nearest(metric, a[:8], b, count)  # compiles
        return lambda: _keops_nearest(metric, a, b, count)

    return make


def _keops_nearest(metric: str, a: Any, b: Any, count: int) -> Any:
    from pykeops.torch import LazyTensor

    gap = LazyTensor(a[:, None, :]) - LazyTensor(b[None, :, :])
    d = gap.abs().sum(-1) if metric == "l1" else (gap**2).sum(-1)
    value, index = d.Kmin_argKmin(count, dim=1)
    return (value if metric == "l1" else value.sqrt()), index


@functools.cache
def _keops_works(metric: str, columns: int, count: int) -> bool:
    """Whether a small call succeeds in a process of its own, which some versions of CUDA end.

    The formula is compiled before by a process without PyTorch, as for arrays on the device, and
    found in KeOps's cache; that process fails after it, since its arrays are on the host.
    """
    pair = "gap.abs()" if metric == "l1" else "gap**2"
    alone = f"""if True:
        import numpy
        from pykeops.numpy import LazyTensor
        x = numpy.ones((99, {columns}), "f4")
        gap = LazyTensor(x[:, None, :]) - LazyTensor(x[None, :, :])
        ({pair}).sum(-1).Kmin_argKmin({count}, dim=1, backend="GPU_1D_device")
    """
    code = f"""if True:
        import torch
        from bench.gpu_neighbours import _keops_nearest
        _keops_nearest({metric!r}, *torch.rand(2, 99, {columns}, device="cuda"), {count})
        torch.cuda.synchronize()
    """
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    for text in (alone, code):
        done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, check=False, **quiet)
    return not done.returncode


def nearest(metric: str, count: int) -> Callable[[Size, Options], Line]:
    """The nearest rows, beside PyTorch's cdist with topk and KeOps."""

    def build(size: Size, options: Options) -> Line:
        (m, k, n), (x, y) = size, _points(size, metric)
        work = float(m * n * k)
        contenders = [Contender(OURS, lambda: sm.neighbours.knn(x, y, count, metric), work)]
        if metric == "l2" or m <= 1 << 15:  # PyTorch takes minutes
            contenders.append(gpu.torch_rival(
                "PyTorch, cdist and topk", work,
                lambda torch, a, b: _torch_nearest(torch, metric, a, b, count), x, y,
            ))  # fmt: skip
        try:
            contenders.append(rival("KeOps", "pykeops", _keops(metric, x, y, count), work))
        except (Skip, ImportError, RuntimeError, OSError) as reason:
            contenders.append(Contender("KeOps", None, skipped=str(reason)[:80]))
        index = [0, m // 2, m - 1]
        rows, right = gpu.rows_of(x, index), y.get()

        def check(found: Any) -> None:
            expected = np.sort(_exact(rows, right, metric), axis=1)[:, :count]
            error = abs(gpu.rows_of(found[0], index) / expected - 1).max()
            assert error < 1e-4, error  # PyTorch's l2 is a product, which loses digits

        return Line(
            "", gpu.words(size), "T/s", 0, contenders, check=check, pairs=work,
            bytes=4.0 * (m * k + n * k + 3 * m * count),
        )  # fmt: skip

    return build


_ALL = (32768, 128, 32768)
_SMALL = (70, 9, 300)
_SEARCHED = {"sizes": ((20_000, 128, 100_000),), "full": ((1_000_000, 128, 100_000),)}

CASES = [
    *(
        Case(f"cdist {metric}, f32", distances(metric), (_ALL,), (_SMALL,), table=TABLE)
        for metric in ("l1", "linf", "hamming", "sqeuclidean", "cosine")
    ),
    *(
        Case(f"knn {metric}, k = 32", nearest(metric, 32), quick=(_SMALL,), table=TABLE,
             **_SEARCHED)
        for metric in ("l2", "l1")
    ),
]  # fmt: skip
