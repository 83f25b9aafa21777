"""A line on the terminal for long work."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

__all__ = ["Progress", "Tick", "reporter"]

Progress = bool | Callable[[float, float], None] | None


class Tick(Protocol):
    """Told the pairs done so far, and how many of them each device did, where there are several."""

    def __call__(self, done: float, parts: Mapping[str, float] | None = None) -> None: ...


def reporter(progress: Progress, total: float) -> Tick | None:
    """What the algorithms call with the pairs done so far, or None."""
    if progress is None or progress is False:
        return None
    if progress is True:
        return _Line(total)
    if not callable(progress):
        raise TypeError(
            f"progress is True, False or a callable progress(done, total), got {progress!r}"
        )
    if _takes_parts(progress):
        each: Any = progress
        return lambda done, parts=None: each(min(done, total), total, parts=parts)
    return lambda done, parts=None: progress(min(done, total), total)


def _takes_parts(progress: Callable[..., None]) -> bool:
    """Whether a callable has a parameter `parts`, for what each device did."""
    try:
        return "parts" in inspect.signature(progress).parameters
    except (TypeError, ValueError):  # some built-in functions have no signature
        return False


class _Line:
    """Percent, rate and time left, on standard error, from the second second on."""

    def __init__(self, total: float) -> None:
        self.total, self.begin, self.last = total, time.monotonic(), 0.0

    def __call__(self, done: float, parts: Mapping[str, float] | None = None) -> None:
        now = time.monotonic()
        spent = now - self.begin
        finished = done >= self.total
        if spent < 1 or (now - self.last < 0.2 and not finished):
            return
        self.last = now
        part = min(1.0, done / self.total) if self.total else 1.0
        left = spent * (1 - part) / part if part else 0.0
        each = "".join(f"  {who} {x / spent / 1e9:.1f}" for who, x in (parts or {}).items())
        sys.stderr.write(
            f"\r{part:4.0%}  {done / spent / 1e9:.1f} G pairs/s{each}  {left:.0f} s left "
            + ("\n" if finished else "")
        )
        sys.stderr.flush()
