"""Versions, engines and devices of this installation: ``show_config``."""

from __future__ import annotations

import sys
from typing import Any, TextIO

import numpy as np

from . import engine, pool
from .cache import cache_directory
from .version import __version__

__all__ = ["configuration", "show_config"]


def configuration() -> dict[str, Any]:
    """Versions, engines and devices, as JSON holds them."""
    import importlib.metadata  # imported lazily: tens of milliseconds
    import platform

    packages = {}
    for package in ("llvmlite", "scipy", "networkx", "opt_einsum", "matplotlib", "ml_dtypes"):
        try:
            packages[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "version": __version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "packages": {"numpy": np.__version__} | packages,
        "cpu": {**engine.named("cpu").describe(), "threads": pool.get_num_threads()},
        "cache": str(cache_directory()),
        "gpu": _gpu(),
    }


def show_config(file: TextIO | None = None) -> None:
    """Print the version, the engines and what they run on.

    Parameters
    ----------
    file : text stream, optional
        Default standard output.
    """
    found = configuration()
    packages, cpu, gpu = found["packages"], found["cpu"], found["gpu"]
    others = (f"{name} {version}" for name, version in packages.items() if name != "numpy")
    lines = [
        f"semiring_mm {found['version']}",
        f"python      {found['python']} on {found['platform']}",
        f"numpy       {packages['numpy']}",
        f"found       {', '.join(others)}",
        f"cpu engine  {cpu['name']}: {cpu['vector_bits']}-bit vectors, {cpu['registers']} "
        f"registers, {cpu['threads']} threads",
        f"            additions as fused multiply-adds: {_yes(cpu['fused_additions'])}; "
        f"max-min of floats on integer keys: {_yes(cpu['integer_keys'])}",
        f"cache       {found['cache']}",
    ]
    for k, device in enumerate(gpu["devices"]):
        lines.append(
            f"{' ' * 11 if k else 'gpu engine '} cuda:{k}  {device['name']}: sm_{device['arch']}, "
            f"{device['multiprocessors']} multiprocessors, {device['memory'] / 2**30:.0f} GiB, "
            f"{device['free'] / 2**30:.0f} GiB free"
        )
    if gpu["devices"]:
        versions = f"driver {gpu['driver']}, runtime {gpu['runtime']}"
        lines.append(f"            CUDA {versions}; CuPy {gpu['cupy']}")
    else:
        lines.append(f"gpu engine  no: {gpu['reason']}")
    stream = file or sys.stdout
    encoding = getattr(stream, "encoding", None) or "utf-8"
    print("\n".join(lines).encode(encoding, "replace").decode(encoding), file=stream)


def _yes(there: bool) -> str:
    return "yes" if there else "no"


def _gpu() -> dict[str, Any]:
    if reason := engine.why_not("cuda"):
        return {"devices": [], "reason": reason}
    return engine.named("cuda").describe()
