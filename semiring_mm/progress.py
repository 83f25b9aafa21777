"""Progress of long work: callbacks, and a bar on the terminal or in a notebook."""

from __future__ import annotations

import inspect
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Progress", "ProgressBar", "Tick", "Watched", "format_rate", "part_of", "reporter"]


@dataclass
class Watched:
    """A progress argument that is also told how the work is done."""

    # told of the progress, as without this
    progress: bool | Callable[[float, float], None] | None = None
    method: str = ""  # such as "sparse elimination"; the last that was begun
    unit: str = ""  # what is counted: "pairs" (⊗, ⊕), "entries" of the result, or "cells" of tables
    total: float = 0.0  # how many of them there are in all


Progress = bool | Callable[[float, float], None] | Watched | None


class Tick(Protocol):
    """A callback for the pairs done so far and, where there are several, those of each device."""

    def __call__(self, done: float, parts: Mapping[str, float] | None = None) -> None: ...


def part_of(
    tick: Callable[[float], None] | None, done: float, pairs: float
) -> Callable[[float], None] | None:
    """A callback for the fraction done of `pairs` that come after `done` others, or None."""
    return None if tick is None else lambda part: tick(done + part * pairs)


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
    if isinstance(progress, ProgressBar):
        progress.begin(method, unit)
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
    """A bar of tqdm's on standard error, or in a notebook, for work of more than a second.

    A rate is shown where what is counted is what is done: pairs, entries of the result, or cells of
    tables. Where standard error is no terminal there is a line every ten seconds.

    Parameters
    ----------
    transient : bool, default False
        Whether the bar is erased at the end, so that results follow; else the full bar stays.
    """

    def __init__(self, *, transient: bool = False) -> None:
        self._transient = transient
        self._bar: Any = None
        self.begin("", "pairs")

    def begin(self, method: str, unit: str) -> None:
        """Other work begins, of which a unit is counted."""
        self.close()
        self._method, self._unit = method, unit
        self._start = time.perf_counter()
        self._first: tuple[float, float, Mapping[str, float]] | None = None
        self._full = False

    def __call__(self, done: float, total: float, parts: Mapping[str, float] | None = None) -> None:
        now = time.perf_counter()
        if self._first is None:  # what was done by an earlier run is not of this one's rate
            self._first = now, done, dict(parts or {})
        if self._full or now - self._start < 1 or not total:
            return
        since, initial, before = self._first
        if self._bar is None:
            self._bar = self._open(total, initial, now - since)
        if parts:
            each = (
                (who, (x - before.get(who, 0)) / (now - since or 1)) for who, x in parts.items()
            )
            text = "  ".join(f"{who} {format_rate(rate)}" for who, rate in each)
            self._bar.set_postfix_str(text, refresh=False)
        self._bar.update(done - self._bar.n)
        if done >= total:
            self._full = True
            self.close()

    def _open(self, total: float, initial: float, elapsed: float) -> Any:
        from tqdm.auto import tqdm  # a quarter of a second, for what takes longer

        notebook = any(x.__module__ == "tqdm.notebook" for x in tqdm.__mro__)
        still = not (notebook or sys.stderr.isatty())
        what = f"{self._method}: " if self._method else ""
        rate = "{rate_fmt}, " if self._unit in ("pairs", "entries", "cells") else ""
        # tqdm shows nothing on a terminal that does not tell its size; this has a default.
        columns, lines = shutil.get_terminal_size()
        bar = tqdm(
            total=total, initial=initial, unit=f" {self._unit}", unit_scale=True, smoothing=0,
            miniters=0, mininterval=10 if still else 0.1, delay=1e-9,  # not at once
            leave=still or not self._transient, file=_Lines() if still else None,
            ncols=None if still or notebook else columns - 1, nrows=lines,
            bar_format=what + "{percentage:3.0f}%|{bar}| " + rate + "{remaining} left{postfix}",
        )  # fmt: skip
        bar.start_t -= elapsed
        return bar

    def close(self) -> None:
        """End the bar: erase it, or leave its last line."""
        if self._bar is not None:
            self._bar.close()
        self._bar = None


class _Lines:
    """Standard error that is no terminal: a line for each state of a bar."""

    encoding = property(lambda self: sys.stderr.encoding)

    def write(self, text: str) -> None:
        if text := text.strip():
            sys.stderr.write(f"{text}\n")

    def flush(self) -> None:
        sys.stderr.flush()
