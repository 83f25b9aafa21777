"""Interleaved timing: contenders of a line alternate, so that drift affects all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

#: Seven samples, or as many as fit in two seconds; three, or as many as fit in eight; one at least.
SAMPLES, FEW, SECONDS, LONG = 7, 3, 2.0, 8.0
WARM = 1.0  # a first call shorter than this is not counted
SAMPLE = 0.01  # calls shorter than this are repeated within a sample
#: Units of a rate, and what one is in work a second.
UNITS = {"G/s": 1e9, "T/s": 1e12, "GB/s": 1e9, "TB/s": 1e12, "": 1.0}


class Wall:
    """The host's clock, for synchronous calls."""

    seconds, long, span = SECONDS, LONG, SAMPLE
    compiles = False  # whether a first call of ours may compile, however long it takes

    def tidy(self) -> None:
        """Release the memory that a line has left."""

    def first(self, call: Callable[[], Any]) -> tuple[float, Any]:
        """The first call: its seconds and its result."""
        start = time.perf_counter()
        result = call()
        return time.perf_counter() - start, result

    def __call__(self, call: Callable[[], Any], repeats: int) -> float:
        """Seconds of one of so many calls in a row."""
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        return (time.perf_counter() - start) / repeats


class Brief(Wall):
    """The host's clock, for lines of which many take seconds."""

    seconds, long = 0.3, 2.0


class Skip(Exception):
    """Raised for a line or rival that is not available here; the text is the reason."""


@dataclass
class Contender:
    """One implementation of a line; the first is this library."""

    name: str
    call: Callable[[], Any] | None
    work: float = 0.0  # pairs (or bytes) of one call; 0 where only the time counts
    ours: bool = False  # this library too: what the line is to be held against
    own_clock: bool = False  # the call returns the seconds it took
    skipped: str = ""
    samples: list[float] = field(default_factory=list)  # seconds a call
    processor: list[float] = field(default_factory=list)  # the same of all threads, where kept

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def rate(self) -> float:
        return self.work / self.median if self.work else 0.0


@dataclass
class Line:
    """One operation at one size: what was measured, and the ceiling of its inner loop."""

    case: str
    size: str
    unit: str
    threads: int
    contenders: list[Contender]
    ceiling: str = ""
    ceiling_rate: float = 0.0
    check: Callable[[Any], None] | None = None  # of every contender's first result
    prepare: Callable[[], None] | None = None  # before every contender's first call
    skipped: str = ""
    note: str = ""
    pairs: float = 0.0  # of the operation, and the bytes that it has to move at least
    bytes: float = 0.0
    most: int = 5 * SAMPLES  # samples of a contender
    table: str = ""  # which table shows the line, where a run's lines are in several
    took: float = 0.0  # seconds from making its data until the last sample

    @property
    def ours(self) -> Contender:
        return self.contenders[0]

    def raw(self) -> dict[str, Any]:
        """Return the line's entry in the results file."""
        kept = {k: v for k, v in vars(self).items() if k not in _CALLABLE}
        kept["checked"] = self.check is not None and not self.skipped
        kept["contenders"] = [
            {k: v for k, v in vars(c).items() if k != "call"} for c in self.contenders
        ]
        return kept

    @classmethod
    def from_raw(cls, raw: dict[str, Any]) -> Line:
        kept = {k: v for k, v in raw.items() if k not in ("checked", "contenders")}
        rows = [Contender(call=None, **row) for row in raw["contenders"]]
        return cls(contenders=rows, **kept)


#: What is not kept of a line as it is.
_CALLABLE = ("check", "prepare", "contenders")


def sample(line: Line, *, quick: bool = False, clock: Wall | None = None) -> None:
    """Sample a line's contenders alternately; check the first result of each."""
    clock = clock or Wall()
    todo = [c for c in line.contenders if c.call is not None]
    repeats: dict[str, int] = {}
    for contender in todo:  # the first round: warm-up and check
        assert contender.call is not None
        if line.prepare is not None:
            line.prepare()
        first, result = clock.first(contender.call)
        if contender.own_clock:
            first = float(result)
        elif line.check is not None:
            try:
                line.check(result)
            except AssertionError as error:
                raise AssertionError(
                    f"{line.case} {line.size}: {contender.name}: {error}"
                ) from None
        del result
        repeats[contender.name] = 1
        own = contender is line.ours or contender.ours
        unknown = clock.compiles and own and line.most > 1
        if contender.own_clock or (first >= WARM and not unknown):
            contender.samples.append(_six(first))
            continue
        again = _timed(contender, 1, clock)
        if again < WARM:  # the 2nd and the 3rd may still compile
            again = min(again, *(_timed(contender, 1, clock) for _ in range(2)))
        repeats[contender.name] = max(1, int(clock.span / max(again, 1e-7)))
    while todo := [c for c in todo if _wants_more(c, repeats[c.name], line, quick, clock)]:
        for contender in todo:
            contender.samples.append(_six(_timed(contender, repeats[contender.name], clock)))


def _six(seconds: float) -> float:
    """Round to the digits of the results file, so that printed and stored numbers agree."""
    return float(f"{seconds:.6g}")


def _wants_more(contender: Contender, repeats: int, line: Line, quick: bool, clock: Wall) -> bool:
    count, spent = len(contender.samples), sum(contender.samples) * repeats
    if quick:
        return count < 2
    if count >= line.most:
        return False
    if count < FEW:
        return count == 0 or spent * (count + 1) / count < clock.long
    brief = spent < clock.seconds / 10 and not contender.own_clock
    return spent < clock.seconds and count < (5 * SAMPLES if brief else SAMPLES)


def _timed(contender: Contender, repeats: int, clock: Wall) -> float:
    assert contender.call is not None
    return float(contender.call()) if contender.own_clock else clock(contender.call, repeats)
