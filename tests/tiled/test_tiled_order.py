"""Copies between devices are ordered with whatever else uses the same memory.

Each device has a stream that computes and one that sends. Here they are parts of the host, where
all is done in order, but every operation notes a vector clock: what it comes after by the order of
its stream, by the marks that it waited for, by what the host had waited for. Two operations on one
piece of memory, one of which writes and one of which is a copy between devices, must be ordered so.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import pytest

from semiring_mm.closures import solve as driver
from semiring_mm.closures.sources import DenseSource
from semiring_mm.closures.steps import Steps
from semiring_mm.semirings import semirings
from semiring_mm.tiled import solve
from semiring_mm.tiled.devices import Device


class Use(NamedTuple):
    """Memory that an operation reads or writes."""

    memory: np.ndarray
    writes: bool
    stream: tuple
    clock: dict
    what: str

    def before(self, other):
        return other.clock.get(self.stream, 0) >= self.clock[self.stream]


class Clocks:
    """Of all streams, and of the host."""

    def __init__(self):
        self.streams, self.host, self.uses = {}, {}, []

    def wait(self, stream, mark):
        clock = self.host if stream is None else self.streams.setdefault(stream, {})
        for who, time in mark.items():
            clock[who] = max(clock.get(who, 0), time)

    def do(self, stream, what, *uses):
        self.wait(stream, self.host)  # what the host gives out comes after what it waited for
        clock = self.streams[stream]
        clock[stream] = clock.get(stream, 0) + 1
        mark = dict(clock)
        self.uses += [Use(x, writes, stream, mark, what) for x, writes in uses if x is not None]
        return mark

    def races(self):
        copies = [x for x in self.uses if x.what == "send"]
        return {
            f"{a.what} and {b.what}, {'write' if b.writes else 'read'}"
            for a in copies
            for b in self.uses
            if a.stream != b.stream
            and (a.writes or b.writes)
            and not (a.before(b) or b.before(a))
            and np.may_share_memory(a.memory, b.memory)
            and np.shares_memory(a.memory, b.memory)
        }


class Streams(Device):
    """A part of the host that notes what a device would have done when."""

    now: ClassVar[list] = []  # the devices that are entered

    def __init__(self, name, clocks):
        super().__init__(name)
        self.clocks = clocks
        self.compute, self.link = (name, "compute"), (name, "link")

    def __enter__(self):
        self.now.append(self)
        return self

    def __exit__(self, *_):
        self.now.pop()

    def mark(self):
        return self.clocks.do(self.compute, "mark")

    def after(self, marks):
        for mark in marks:
            self.clocks.wait(self.compute, mark)

    def wait(self, mark):
        self.clocks.wait(None, mark)

    def time(self, mark):
        self.wait(mark)
        return 0.0

    def send(self, x, to, into, after):
        made, *_ = after  # the mark after it was filled
        self.clocks.uses.append(Use(x, True, self.compute, made, "fill"))
        for mark in after:
            self.clocks.wait(self.link, mark)
        np.copyto(into, x)
        return self.clocks.do(self.link, "send", (x, False), (into, True))


@dataclass(frozen=True)
class Noting(Steps):
    """Operations on tiles that note what they use, on the device that is entered."""

    def _note(self, what, reads, writes):
        device = Streams.now[-1]
        uses = [(x, False) for x in reads] + [(x, True) for x in writes]
        device.clocks.do(device.compute, what, *uses)

    def close(self, engine, d, p, first):
        self._note("close", [], [d, p])
        super().close(engine, d, p, first)

    def update(self, engine, left, right, d, p=None, p_right=None, **options):
        self._note("update", [left, right, p_right], [d, p])
        super().update(engine, left, right, d, p, p_right, **options)


@pytest.mark.parametrize("form", ["directed", "undirected", "predecessors"])
@pytest.mark.parametrize("count", [2, 3, 4, 6, 8, 16])
def test_copies_and_products_are_ordered(count, form, monkeypatch):
    monkeypatch.setattr(driver, "Steps", Noting)
    rng = np.random.default_rng(0)
    for n, tile in ((40, 8), (17, 8), (9, 8), (5, 1)):
        clocks = Clocks()
        w = rng.random((n, n))
        w = np.minimum(w, w.T) if form == "undirected" else w
        source = DenseSource(semirings["min_plus"], w)
        problem = driver.Problem.of(source, predecessors=form == "predecessors")
        devices = [Streams(f"device {i}", clocks) for i in range(count)]
        problem.solve(solve.over(devices, tile))
        assert any(x.what == "send" for x in clocks.uses)
        assert clocks.races() == set(), f"n = {n}, tiles of {tile}"


def test_the_clocks_find_a_race():
    clocks = Clocks()
    a, b = (Streams(name, clocks) for name in "ab")
    x, y = np.zeros(4), np.zeros(4)
    made = clocks.do(a.compute, "update", (x, True))
    sent = a.send(x, b, y, [made])
    assert clocks.races() == set()
    clocks.do(a.compute, "update", (x, True))  # while it travels
    assert clocks.races() == {"send and update, write"}
    b.after([sent])
    clocks.do(b.compute, "row", (y, True))
    assert clocks.races() == {"send and update, write"}
