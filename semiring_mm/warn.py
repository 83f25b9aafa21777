"""Warnings that point at the user's line, however deep inside the package they are raised."""

from __future__ import annotations

import sys
import warnings

__all__ = ["warn"]


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning at the innermost line outside this package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and _is_own(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _is_own(module: str) -> bool:
    """Whether a frame is of this package, or of a property that it has computed."""
    return module.partition(".")[0] in (__name__.partition(".")[0], "functools")
