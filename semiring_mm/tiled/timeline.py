"""Timeline of a run: which device computed, copied, read or wrote what, and when."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Interval", "Timeline"]


class Interval(NamedTuple):
    """One operation; times are in seconds from the beginning of the run."""

    device: str  # "cuda:0", "cpu", "disk"
    lane: str  # "compute", "send", "receive", "read", "write"
    what: str  # "pivot" ("close"), "row", "column", "update", "product", "tile"
    step: int
    begin: float
    end: float


@dataclass
class Timeline:
    """The operations of a run, noted from any thread, after `origin` on the clock."""

    origin: float = 0.0
    intervals: list[Interval] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def note(self, device: str, lane: str, what: str, step: int, begin: float, end: float) -> None:
        """Add an operation."""
        with self._lock:
            times = begin - self.origin, end - self.origin
            self.intervals.append(Interval(device, lane, what, step, *times))
