"""Description of a measurement's machine: processor, system, versions, commit."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = "numpy llvmlite scipy networkx igraph networkit tropical-gemm numba matplotlib".split()
#: On a CUDA device.
STACK = ("numpy", "cupy-cuda13x", "cupy-cuda12x", "torch", "jax")
RIVALS = ("pytorch-crf", "torch-struct", "pykeops")


def cores() -> int:
    """Number of processors that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe() -> dict[str, Any]:
    """Describe the machine."""
    return {
        "cpu": _cpu(),
        "cores": cores(),
        "caches": _caches(),
        "memory_gib": _memory(),
        "os": _system(),
        "load": list(os.getloadavg()) if hasattr(os, "getloadavg") else [],
    }


def describe_device() -> dict[str, Any]:
    """The current CUDA device: what a reader needs to judge a rate; and the machine around it."""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())
    return {
        "gpu": properties["name"].decode(),
        "arch": f"sm_{properties['major']}{properties['minor']}",
        "multiprocessors": properties["multiProcessorCount"],
        "memory_gib": round(properties["totalGlobalMem"] / 2**30, 1),
        "l2_mib": round(properties["l2CacheSize"] / 2**20, 1),
        **_driver_says(),
        "os": _system(),
        "host": f"{_cpu()}, {cores()} cores",
    }


def _driver_says() -> dict[str, str]:
    """What nvidia-smi knows of the first device."""
    names = {"driver_version": "driver", "clocks.max.sm": "clock", "power.limit": "power"}
    command = ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader", "--id=0"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return {}
    return dict(zip(names.values(), done.stdout.strip().split(", "), strict=False))


def device_versions(rivals: Iterable[str] = RIVALS) -> dict[str, str]:
    """Versions of the CUDA stack, and of rivals that are installed."""
    import cupy
    from cupy.cuda import nvrtc

    def dotted(number: int) -> str:
        return f"{number // 1000}.{number % 1000 // 10}"

    def present(packages: Iterable[str]) -> dict[str, str]:
        return {name: x for name, x in _installed(packages).items() if x != "absent"}

    return {
        "python": platform.python_version(),
        **present(STACK),
        "CUDA runtime": dotted(cupy.cuda.runtime.runtimeGetVersion()),
        "CUDA of the driver": dotted(cupy.cuda.runtime.driverGetVersion()),
        "NVRTC": ".".join(map(str, nvrtc.getVersion())),
        "cuBLAS": str(cupy.cuda.cublas.getVersion(cupy.cuda.device.get_cublas_handle())),
        **present(rivals),
    }


def _system() -> str:
    return f"{platform.system()} {platform.release()} {platform.machine()}"


def _cpu() -> str:
    try:
        info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        info = ""
    found = dict(re.findall(r"^(model name|cpu family|model)\s*: (.*)$", info, re.MULTILINE))
    name = re.sub(r"\((R|TM|r|tm)\)", "", found.get("model name", "")) or platform.processor()
    core = _core_name()
    return " ".join(name.split()) + (f" ({core})" if core else "") or "unknown"


def _core_name() -> str:
    """The compiler's name for the core, such as "cascadelake": cloud machines hide the model."""
    import llvmlite.binding as llvm

    return str(llvm.get_host_cpu_name())


def _caches() -> dict[str, str]:
    caches = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level, kind, size = (
                (index / what).read_text(encoding="ascii").strip()
                for what in ("level", "type", "size")
            )
        except OSError:
            continue
        if kind != "Instruction":
            caches[f"L{level}{'D' if kind == 'Data' else ''}"] = size
    return caches


def _memory() -> float:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, OSError, ValueError):
        return 0.0


def versions(packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Versions of the packages involved; "absent" where not installed."""
    found = {"python": platform.python_version()} | _installed(packages)
    return found | {"LLVM": _llvm(), "BLAS": _blas()}


def _installed(packages: Iterable[str]) -> dict[str, str]:
    found = {}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "absent"
    return found


def _llvm() -> str:
    import llvmlite.binding as llvm

    return ".".join(map(str, llvm.llvm_version_info))


def _blas() -> str:
    import numpy as np

    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return str(blas.get("openblas configuration") or f"{blas.get('name')} {blas.get('version')}")


def commit() -> str:
    """The commit measured, "+" where tracked files differ from it.

    Outside a checkout it is what the variable BENCH_COMMIT says.
    """
    if os.environ.get("BENCH_COMMIT"):
        return os.environ["BENCH_COMMIT"][:12]
    head = git("rev-parse", "--short=12", "HEAD")
    return head + ("+" if head and git("status", "--porcelain", "--untracked-files=no") else "")


def git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
