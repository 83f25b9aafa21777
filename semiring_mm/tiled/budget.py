"""Memory budget of a run out of core: rows of a tile, slots and threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .. import engine as engines
from .. import pool
from ..memory import free_memory, too_large
from ..naming import named
from .devices import CudaDevice, Device

__all__ = ["Plan", "allowance", "beyond_limit", "choose_tile", "make_plan", "room"]

_SPARE = 3  # tiles' worth of temporary memory: the engine's, a chunk at the edge read, one written
_LEAST, _STEP = 256, 64  # rows of the smallest tile, and of which others are a multiple


def beyond_limit(what: str, needed: int, limit: int) -> MemoryError:
    """The error for work that needs more than it may take."""
    return too_large(what, needed, limit, f"use a larger {named('tiles.memory')}", room="allowed")


def allowance(limit: int | None) -> int:
    """Bytes that work on the host may take: half of what is free, if no limit is given."""
    return limit if limit is not None else (free_memory() or 1 << 62) // 2


def room(n: int, tile: int, size: int, slots: int) -> int:
    """Bytes of memory for streaming a matrix of n rows; `size` is that of an entry."""
    tile = min(tile, n)
    return (n + (slots + _SPARE) * tile) * tile * size


def choose_tile(n: int, size: int, limit: int, *, slots: int, most: int) -> int:
    """Rows of the largest tile with which the work stays within `limit` bytes.

    Large tiles are better: each entry is read and written once in every step, of which there are
    n / tile.

    Raises
    ------
    MemoryError
        If there is none of 256 lines or more.
    """
    least = min(_LEAST, n)
    if room(n, least, size, slots) > limit:
        raise beyond_limit(f"the work on {n} nodes in tiles", room(n, least, size, slots), limit)
    tile = next((x for x in range(most, _LEAST, -_STEP) if room(n, x, size, slots) <= limit), least)
    count = -(-n // max(tile, 1))  # and as even as possible
    return max(1, min(n, tile, -(-n // max(count, 1) // _STEP) * _STEP))


#: The largest tiles that are chosen: on the CPU smaller ones fill its caches as well, and reading
#: them overlaps better; on a device computing must outlast the copies there and back.
_MOST_HOST, _MOST_DEVICE = 2048, 4096
_LOADING = 5  # tiles' worth of memory that loading one takes


@dataclass(frozen=True)
class Plan:
    """Rows of a tile, bytes of an entry, slots for tiles on each device, and threads.

    Each device has as many threads that read as such that write (`workers`); `loaders` are those
    that read a graph.
    """

    tile: int
    size: int
    slots: int
    workers: int
    loaders: int
    devices: Sequence[int] | None

    def open(self) -> list[Device]:
        """The devices, with pinned memory for the tiles on their way."""
        if self.devices is None:
            return [Device()]
        return [CudaDevice(x, 2 * self.workers, self.tile**2 * self.size) for x in self.devices]


def make_plan(
    n: int, size: int, devices: Sequence[int] | None, limit: int | None, tile: int | None
) -> Plan:
    """Plan for n rows with `size` bytes for each entry, within `limit` bytes on the host."""
    allowed = allowance(limit)
    room_, most, workers, staged = allowed, _MOST_HOST, max(1, pool.get_num_threads() // 4), 0
    if devices is not None:
        workers, most = 4, _MOST_DEVICE
        most = min(most, max(_LEAST, n // (4 * len(devices))))  # all have tiles to compute
        staged = 2 * workers * len(devices)
        while most > _LEAST and staged * most**2 * size > allowed:
            most //= 2
        room_ = int(0.9 * min(_device_memory(x) for x in devices))
    workers = min(4, workers)
    slots = 2 + 2 * workers + (0 if devices is None else 2)
    if tile is None:
        tile = choose_tile(n, size, room_, slots=slots, most=most)
    elif (needed := room(n, tile, size, slots)) > room_:
        raise beyond_limit(f"the work on {n} nodes in tiles of {tile}", needed, room_)
    spare = allowed // (tile**2 * size) - staged
    loaders = max(1, min(pool.get_num_threads(), spare // _LOADING))
    return Plan(tile, size, slots, workers, loaders, devices)


def _device_memory(index: int) -> int:
    engine = engines.named("cuda")
    with engine.on(index):
        return engine.free_memory() or 0
