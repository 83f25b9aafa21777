"""The current device and what runs on it, as results name them."""

from __future__ import annotations

import platform
import subprocess
from importlib import metadata
from typing import Any

__all__ = ["describe", "versions"]


def describe() -> dict[str, Any]:
    """The current CUDA device: what a reader needs to judge a rate."""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())
    return {
        "gpu": properties["name"].decode(),
        "arch": f"sm_{properties['major']}{properties['minor']}",
        "multiprocessors": properties["multiProcessorCount"],
        "memory_gib": round(properties["totalGlobalMem"] / 2**30, 1),
        "l2_mib": round(properties["l2CacheSize"] / 2**20, 1),
        **_driver_says(),
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
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


def versions() -> dict[str, str]:
    """Versions of what takes part on a CUDA device."""
    import cupy
    from cupy.cuda import nvrtc

    def dotted(number: int) -> str:
        return f"{number // 1000}.{number % 1000 // 10}"

    found = {"python": platform.python_version()}
    for name in ("numpy", "cupy-cuda13x", "cupy-cuda12x", "torch", "jax"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found | {
        "CUDA runtime": dotted(cupy.cuda.runtime.runtimeGetVersion()),
        "CUDA of the driver": dotted(cupy.cuda.runtime.driverGetVersion()),
        "NVRTC": ".".join(map(str, nvrtc.getVersion())),
        "cuBLAS": str(cupy.cuda.cublas.getVersion(cupy.cuda.device.get_cublas_handle())),
    }
