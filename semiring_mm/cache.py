"""Where measurements and compiled kernels are kept."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_directory"]


def cache_directory() -> Path:
    """``SEMIRING_MM_CACHE``, or the user's cache directory."""
    if named := os.environ.get("SEMIRING_MM_CACHE"):
        return Path(named)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home) / "semiring_mm"
