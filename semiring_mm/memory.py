"""Memory of the host: how much there is, and each thread's buffer for intermediate results."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import pool

__all__ = ["free_memory", "pieces_of", "scratch", "too_large", "workspace"]


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


def too_large(
    what: str, needed: float | None, free: float | None, advice: str, *, where: str = "",
    room: str = "free",
) -> MemoryError:  # fmt: skip
    """The error for work that does not fit in memory.

    Parameters
    ----------
    what : str
        ``"the 9 x 9 matrix"``.
    needed, free : float
        Bytes; None if that is not known.
    advice : str
        What to do instead.
    where : str
        ``" on cuda:0"``, if not on the host.
    room : str
        What the `free` bytes are.

    Examples
    --------
    >>> too_large("the 50000 x 50000 matrix", 2e10, 9.5e8, "take float32")
    MemoryError('the 50000 x 50000 matrix needs 20 GB, and 950 MB are free: take float32')
    """
    there = "" if free is None else f", and {_amount(free)} are {room}"
    size = "more memory than there is" if needed is None else _amount(needed)
    return MemoryError(f"{what} needs {size}{where}{there}: {advice}")


def _amount(size: float) -> str:
    return f"{size / 1e9:.3g} GB" if size >= 1e9 else f"{size / 1e6:.4g} MB"


def _read(path: str) -> bytes:
    """The beginning of a file of the system's: this is done before every small graph."""
    handle = os.open(path, os.O_RDONLY)
    try:
        return os.read(handle, 4096)
    finally:
        os.close(handle)


def workspace(size: int, worker: pool.Worker | None = None) -> NDArray[np.uint8]:
    """A thread's buffer, kept between calls (fresh pages cost a tenth of a product).

    It is this thread's, or that of a worker that it has leased. It begins on a page, with flags (64
    bytes) that are 0.
    """
    here = pool.here
    owner: Any = worker or here.worker or here
    buffer: NDArray[np.uint8] | None = getattr(owner, "buffer", None)
    if buffer is None or buffer.nbytes < size:
        raw = np.empty(size + 4096, np.uint8)
        first = -raw.ctypes.data % 4096
        buffer = owner.buffer = raw[first : first + size]
        buffer[:64] = 0
    return buffer


def scratch(*sizes: int) -> list[NDArray[np.uint8]]:
    """Pieces of :func:`workspace`, in bytes: see :func:`pieces_of`."""
    pieces, room = pieces_of(*sizes)
    return list(map(workspace(room).__getitem__, pieces))


def pieces_of(*sizes: int) -> tuple[list[slice], int]:
    """Pieces of a workspace, each from a cache line on, and the bytes that it needs for them.

    The first line is left out: products keep their flags there.
    """
    pieces, room = list[slice](), 64
    for size in sizes:
        pieces.append(slice(room, room + size))
        room += -(-size // 64) * 64
    return pieces, room
