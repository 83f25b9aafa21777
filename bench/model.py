"""Cost model of blocked Floyd-Warshall on a grid of devices, from measured constants.

docs/scaling.md says what each term is for.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SIZE = 4  # bytes of an entry, float32


@dataclass(frozen=True)
class Device:
    """Compute rates of one device."""

    rate: float  # pairs a second of a product as deep as can be
    half: float  # depth at which a product has half of that rate
    stall: float  # seconds, for each line of a tile, that closing it takes beside its products

    def product(self, rows: float, columns: float, depth: float) -> float:
        """Seconds of a product."""
        return rows * columns * (depth + self.half) / self.rate

    def close(self, tile: float) -> float:
        """Seconds to close a tile on the diagonal."""
        return self.product(tile, tile, tile) + self.stall * tile


@dataclass(frozen=True)
class Links:
    """Bandwidths between devices, and to the storage of tiles."""

    bandwidth: float  # bytes a second out of a device, and into another
    latency: float = 20e-6  # seconds of a message
    store: float = 55e9  # bytes a second each way, between a device and the tiles it streams
    in_turn: bool = True  # one copy after the other; else a pipeline that all pass on

    def broadcast(self, size: float, devices: int) -> float:
        """Seconds to bring so many bytes from one device to all others of a line of the grid."""
        if devices == 1:
            return 0.0
        if self.in_turn:
            return (devices - 1) * (size / self.bandwidth + self.latency)
        return size / self.bandwidth + self.latency * math.ceil(math.log2(devices))


@dataclass(frozen=True)
class Forecast:
    """Seconds of a run, and of the parts of a step that bound it."""

    seconds: float
    compute: float  # of a step: what the busiest device computes
    chain: float  # of a step: from one pivot's tiles to the next, which look-ahead hides
    send: float  # of which on the links
    memory: float  # bytes on each device

    @property
    def bound(self) -> str:
        """Return the resource that bounds a step."""
        if self.compute >= self.chain:
            return "computing"
        return "sending" if self.send > self.chain / 2 else "the pivot's chain"


def grid_of(devices: int) -> tuple[int, int]:
    """Rows and columns of the grid that is nearest to a square."""
    rows = max(r for r in range(1, math.isqrt(devices) + 1) if devices % r == 0)
    return rows, devices // rows


def forecast(
    n: int, devices: int, tile: int, device: Device, links: Links, *,
    symmetric: bool = False, look_ahead: bool = True,
) -> Forecast:  # fmt: skip
    """Forecast an elimination of n nodes; tiles are dealt cyclically to a grid of devices."""
    rows, columns = grid_of(devices)
    count = n / tile  # the last tile may be smaller: its part of a step's work is
    # tiles of a row and of a column on the device that has the most of them
    down, across = math.ceil(math.ceil(count) / rows), math.ceil(math.ceil(count) / columns)
    if devices == 1:
        down = across = count
    one = device.product(tile, tile, tile)
    held = down * across
    if symmetric:  # those on and above the diagonal, and a row more where they are dealt unevenly
        held = held / 2 + max(down, across) / 2
    compute = held * one + device.stall * tile
    row, column = (SIZE * tile**2 * k for k in (across, down))
    send = links.broadcast(row, rows) + links.broadcast(column, columns)
    send += links.broadcast(SIZE * tile**2, max(rows, columns))  # the closed tile itself
    # row and column k + 1 brought up to date, the pivot closed, both multiplied by it, and sent
    crossed = (across if symmetric else across + down) * one
    chain = crossed + device.close(tile) + crossed + send
    step = max(compute, chain) if look_ahead else compute + send + device.close(tile)
    seconds = count * step + (chain if devices > 1 else 0)  # the first pivot hides behind nothing
    memory = SIZE * tile**2 * (held + 2 * (down + across))
    return Forecast(seconds, compute, chain, send, memory)


def best_tile(n: int, devices: int, device: Device, links: Links, **kind: bool) -> int:
    """The tile, of 256 lines or a multiple, with which a run is shortest."""
    least = min(n, 256)
    tiles = range(least, max(min(n, 8192), least) + 1, least)
    return min(tiles, key=lambda b: forecast(n, devices, b, device, links, **kind).seconds)


def streamed(n: int, tile: int, device: Device, links: Links, devices: int = 1) -> float:
    """Seconds out of core: each step reads and writes the matrix once, while it computes."""
    step = device.product(n, n, tile) / devices + device.stall * tile
    return n / tile * max(step, SIZE * n**2 / (links.store * devices))


def hiding_tile(device: Device, links: Links) -> float:
    """Lines of the tile from which on streaming hides behind computing."""
    return max(0.0, SIZE * device.rate / links.store - device.half)


def interval(write: float, between: float) -> float:
    """Seconds from one checkpoint to the next that lose the least.

    `write`: of a checkpoint; `between`: mean time between failures. Daly (2006), of whose series
    Young (1974) is the first term.
    """
    if write >= 2 * between:
        return between
    x = math.sqrt(write / (2 * between))
    return math.sqrt(2 * write * between) * (1 + x / 3 + x * x / 9) - write


def overhead(write: float, between: float, every: float, restart: float = 0.0) -> float:
    """Part of the time that checkpoints take and failures lose, to first order."""
    return write / every + (every / 2 + restart) / between


# --- the constants, from raw results --------------------------------------------------------------


def device_of(result: dict[str, Any]) -> Device:
    """A device's constants from the results of ``python -m bench gpu``."""
    medians = {
        (line["case"], line["size"], c["name"]): statistics.median(c["samples"])
        for line in result["lines"]
        for c in line["contenders"]
        if c["samples"]
    }
    ours = "semiring_mm"
    products = {
        int(n): t
        for (case, n, who), t in medians.items()
        if case == "min-plus f32 ≥ 0" and who == ours and int(n) >= 2048
    }
    slope, start = line_through([(1 / n, t / n**3) for n, t in products.items()])
    stalls = [
        (t - medians[case, n, "product"]) / int(n)
        for (case, n, who), t in medians.items()
        if case == "apsp f32" and who == ours and 4096 <= int(n) <= 16384
    ]
    return Device(1 / start, slope / start, statistics.median(stalls))


def line_through(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Slope and value at 0 of the line of least squares."""
    xs, ys = zip(*points, strict=True)
    slope, start = statistics.linear_regression(xs, ys)
    return slope, start
