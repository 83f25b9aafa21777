"""The directory of cached measurements and compiled kernels."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_directory"]


def cache_directory() -> Path:
    """Return ``$SEMIRING_MM_CACHE``, or semiring_mm's folder in the user's cache directory."""
    if named := os.environ.get("SEMIRING_MM_CACHE"):
        return Path(named)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home) / "semiring_mm"
