"""How much memory there is, and moving data within it."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool

__all__ = [
    "capturing",
    "copy",
    "cut",
    "fill",
    "free_memory",
    "from_host",
    "mirror",
    "on",
    "room_of",
    "scratch",
    "symmetric",
    "to_host",
    "wait",
    "workspace",
]

Array = NDArray[Any]


def to_host(x: Array) -> Array:
    """The array itself, which is on the host."""
    return x


def from_host(x: Array) -> Array:
    """The array itself, which is on the host."""
    return x


def free_memory() -> int | None:
    """Bytes of memory that can be had without swapping, or None if the system does not say."""
    found = []
    try:
        words = _read("/proc/meminfo").split()
        found.append(int(words[words.index(b"MemAvailable:") + 1]) * 1024)
    except (OSError, ValueError):
        pass
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ):
        try:
            most, now = _read(limit).strip(), _read(used).strip()
        except OSError:
            continue
        if most.isdigit() and int(most) < 1 << 60:
            found.append(max(0, int(most) - int(now)))
    if not found and hasattr(os, "sysconf"):
        try:
            found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        except (ValueError, OSError):
            return None
    return min(found) if found else None


def _read(path: str) -> bytes:
    """The beginning of a file of the system's: this is done before every small graph."""
    handle = os.open(path, os.O_RDONLY)
    try:
        return os.read(handle, 4096)
    finally:
        os.close(handle)


def mirror(x: Array, tile: int = 64) -> None:
    """Copy what is above the diagonal of a square matrix below it.

    Squares of `tile` on the diagonal are left as they are: a product with ``triangle`` computes
    them whole.
    """
    n = x.shape[0]

    def strip(i: int) -> None:
        for j in range(i + tile, n, tile):
            x[j : j + tile, i : i + tile] = x[i : i + tile, j : j + tile].T

    _each_strip(strip, n, tile)


def symmetric(x: Array, tile: int = 256) -> bool:
    """Whether a square matrix equals its transpose: tile by tile, up to the first that differs."""
    n = x.shape[0]
    differs: list[int] = []

    def strip(i: int) -> None:
        # rows of a copy begin in different cache sets, which columns of a matrix may not do
        room = np.empty((tile, tile + 16), x.dtype)
        for j in range(i, n, tile):
            if differs:
                return
            across, down = x[i : i + tile, j : j + tile], x[j : j + tile, i : i + tile]
            copied = room[: len(down), : down.shape[1]]
            copied[...] = down
            if not np.array_equal(across, copied.T):
                differs.append(i)

    _each_strip(strip, n, tile)
    return not differs


def _each_strip(strip: Callable[[int], None], n: int, tile: int) -> None:
    """Call a function with the first row of each strip of a square, on all threads if it pays."""
    tasks = [functools.partial(strip, i) for i in range(0, n, tile)]
    if n >= 1024:
        pool.run(tasks)
    else:
        for task in tasks:
            task()


_COPIED = 1 << 19  # bytes that pay for one more thread: new memory is slow to write first


def fill(x: Array, byte: int) -> Array:
    """A contiguous array, of which all bytes are set."""
    x.reshape(-1).view(np.uint8)[...] = byte
    return x


def copy(x: Array, to: Array) -> None:
    """Copy an array to another one of its shape and dtype."""
    pieces = min(pool.get_num_threads(), x.nbytes // _COPIED) if x.ndim else 0
    if pieces < 2:
        to[...] = x
        return
    cuts = np.linspace(0, len(x), pieces + 1).astype(int).tolist()
    pool.run([functools.partial(np.copyto, to[i:j], x[i:j]) for i, j in itertools.pairwise(cuts)])


def on(
    index: int, stream: int | None = None, allocate: Callable[[int], Any] | None = None
) -> contextlib.AbstractContextManager[Any]:
    """A context that does nothing: there is one host, and no stream."""
    return contextlib.nullcontext()


def capturing() -> bool:
    """No launches are put off."""
    return False


def wait() -> None:
    """Do nothing: verbs return when they are done."""


def workspace(size: int, worker: pool.Worker | None = None) -> NDArray[np.uint8]:
    """A thread's buffer, kept between calls (fresh pages cost a tenth of a product).

    It is this thread's, or that of a worker that it has leased.
    """
    owner: Any = worker or pool.this_thread()
    buffer: NDArray[np.uint8] | None = getattr(owner, "buffer", None)
    if buffer is None or buffer.nbytes < size:
        buffer = owner.buffer = _new_workspace(size)
    return buffer


def _new_workspace(size: int) -> NDArray[np.uint8]:
    """A buffer that begins on a page, with flags (64 bytes) that are 0."""
    raw = np.empty(size + 4096, np.uint8)
    first = -raw.ctypes.data % 4096
    buffer = raw[first : first + size]
    buffer[:64] = 0
    return buffer


def scratch(*sizes: int) -> list[NDArray[np.uint8]]:
    """Pieces of :func:`workspace`, in bytes, each from a cache line on.

    The first line is left out: products keep their flags there.
    """
    return cut(workspace(room_of(*sizes)), *sizes)


def room_of(*sizes: int) -> int:
    """Bytes of a workspace that holds such pieces."""
    return 64 + sum(-(-size // 64) * 64 for size in sizes)


def cut(memory: NDArray[np.uint8], *sizes: int) -> list[NDArray[np.uint8]]:
    """Pieces of a workspace, as of :func:`scratch`."""
    ends = itertools.accumulate((-(-size // 64) * 64 for size in sizes), initial=64)
    return [memory[first : first + size] for first, size in zip(ends, sizes, strict=False)]
