"""Progress of long work: callbacks, and a bar on the terminal."""

from __future__ import annotations

import inspect
import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Progress", "ProgressBar", "Tick", "Watched", "format_rate", "reporter"]


@dataclass
class Watched:
    """A progress argument that is also told how the work is done.

    Attributes
    ----------
    progress : bool or callable, optional
        Told of the progress, as without this.
    method : str
        Such as "sparse elimination"; the last that was begun.
    unit : str
        What is counted: "pairs" (⊗, ⊕), or "entries" of the result.
    total : float
        How many of them there are in all.
    """

    progress: bool | Callable[[float, float], None] | None = None
    method: str = ""
    unit: str = ""
    total: float = 0.0


Progress = bool | Callable[[float, float], None] | Watched | None


class Tick(Protocol):
    """A callback for the pairs done so far and, where there are several, those of each device."""

    def __call__(self, done: float, parts: Mapping[str, float] | None = None) -> None: ...


def reporter(
    progress: Progress, total: float, method: str = "", unit: str = "pairs"
) -> Tick | None:
    """The callback for the pairs, or other units, done so far, or None.

    `method` is told to :class:`Watched`; "": only the argument is checked.
    """
    if isinstance(progress, Watched):
        if method:
            progress.method, progress.unit, progress.total = method, unit, total
        progress = progress.progress
    if progress is None or progress is False:
        return None
    if progress is True:
        progress = ProgressBar()
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


def format_rate(pairs: float) -> str:
    """Pairs (⊗, ⊕) a second as text."""
    size, prefix = next(
        (size, prefix) for size, prefix in ((1e12, "T"), (1e9, "G"), (0, "M")) if pairs >= size
    )
    return f"{pairs / (size or 1e6):.3g} {prefix}/s"


class ProgressBar:
    """A progress bar on standard error for work of more than a second.

    Parameters
    ----------
    transient : bool, default False
        Whether :meth:`close` erases the bar, so that results follow; else the full bar stays.
    """

    def __init__(self, *, transient: bool = False) -> None:
        self._transient = transient
        self._terminal = sys.stderr.isatty()
        self._start = self._last = time.perf_counter()
        self._open = False  # whether the terminal's cursor is behind the bar

    def __call__(self, done: float, total: float, parts: Mapping[str, float] | None = None) -> None:
        now = time.perf_counter()
        elapsed, since = now - self._start, now - self._last
        full = done >= total
        if elapsed < 1 or not total or (since < (0.1 if self._terminal else 1) and not full):
            return
        self._last = now
        share = min(done / total, 1.0)
        rate = done / elapsed
        left = math.ceil((total - done) / rate) if rate else 0
        filled = round(30 * share)
        line = (
            f"{'█' * filled}{'░' * (30 - filled)} {100 * share:3.0f} %  {format_rate(rate)}  "
            f"{left // 60}:{left % 60:02d} left"
        )
        line += "".join(f"  {who} {format_rate(x / elapsed)}" for who, x in (parts or {}).items())
        self._open = self._terminal and (self._transient or not full)
        print(
            f"\r{line}\x1b[K" if self._terminal else line,
            end="" if self._open else "\n", file=sys.stderr, flush=True,
        )  # fmt: skip

    def close(self) -> None:
        """Erase the bar."""
        if self._open:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        self._open = False
