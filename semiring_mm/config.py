"""Versions, engines and devices of this installation: ``show_config``."""

from __future__ import annotations

import sys
from typing import TextIO

import numpy as np

from .cache import cache_directory
from .cpu import threads
from .cpu.compiler import host_target
from .cpu.product import blas_wins
from .cpu.tuning import calibration
from .signs import fitting
from .version import __version__

__all__ = ["show_config"]


def show_config(file: TextIO | None = None) -> None:
    """Print the version, the engines and what they run on.

    Parameters
    ----------
    file : text stream, optional
        Default standard output.
    """
    import importlib.metadata  # imported lazily: tens of milliseconds
    import platform

    target = host_target()
    gains = calibration()
    found = []
    for package in ("llvmlite", "scipy", "networkx", "opt_einsum", "matplotlib", "ml_dtypes"):
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    lines = [
        f"semiring_mm {__version__}",
        f"python      {platform.python_version()} on {platform.system()} {platform.machine()}",
        f"numpy       {np.__version__}",
        f"found       {', '.join(found)}",
        f"cpu engine  {target.cpu}: {8 * target.vector_bytes}-bit vectors, "
        f"{target.registers} registers, {threads.get_num_threads()} threads",
        f"            additions as fused multiply-adds: {'yes' if gains['fma'] else 'no'}; "
        f"max-min of floats on integer keys: {'yes' if gains['keys'] else 'no'}",
        f"            plus-times of float32 and float64 by NumPy's BLAS: "
        f"{'yes' if blas_wins() else 'no'}",
        f"cache       {cache_directory()}",
        *_gpu(),
    ]
    print(fitting("\n".join(lines), file), file=file or sys.stdout)


def _gpu() -> list[str]:
    from .gpu import device

    if reason := device.why_not():
        return [f"gpu engine  no: {reason}"]
    import cupy

    runtime, lines = cupy.cuda.runtime, []
    for index in range(runtime.getDeviceCount()):
        with cupy.cuda.Device(index):
            free, total = runtime.memGetInfo()
        here = device.Device(index)
        lines.append(
            f"{'gpu engine ' if not index else ' ' * 11} cuda:{index}  {here.name}: "
            f"sm_{here.arch}, {here.sms} multiprocessors, {total / 2**30:.0f} GiB, "
            f"{free / 2**30:.0f} GiB free"
        )
    versions = ", ".join(
        f"{name} {number // 1000}.{number % 1000 // 10}"
        for name, number in (
            ("driver", runtime.driverGetVersion()),
            ("runtime", runtime.runtimeGetVersion()),
        )
    )
    return [*lines, f"            CUDA {versions}; CuPy {cupy.__version__}"]
