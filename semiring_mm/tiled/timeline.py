"""Who did what when, in a run over tiles."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Mark", "Timeline"]


class Mark(NamedTuple):
    """A span of time, in seconds from the beginning of the run."""

    place: str  # "cuda:0", "cpu", "disk"
    lane: str  # "compute", "send", "receive", "read", "write"
    what: str  # "pivot" ("close"), "row", "column", "update", "product", "tile"
    step: int
    begin: float
    end: float


@dataclass
class Timeline:
    """The marks of a run, from any thread."""

    marks: list[Mark] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def note(self, place: str, lane: str, what: str, step: int, begin: float, end: float) -> None:
        """Add a mark."""
        with self._lock:
            self.marks.append(Mark(place, lane, what, step, begin, end))
