"""Arrays between host and device, and what else the engine does by CuPy alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from . import device

__all__ = ["free_memory", "from_host", "mirror", "on", "to_host", "wait"]

Array = Any


@contextlib.contextmanager
def on(index: int, stream: int | None = None) -> Iterator[None]:
    """Work on a device (-1: the current one), and on another library's stream if it is given."""
    import cupy

    with contextlib.ExitStack() as stack:
        if index >= 0:
            stack.enter_context(cupy.cuda.Device(index))
        if stream is not None:
            stack.enter_context(cupy.cuda.ExternalStream(stream))
        yield


def wait() -> None:
    """Until all that was launched on the current stream is done."""
    import cupy

    cupy.cuda.get_current_stream().synchronize()


def from_host(x: Array) -> Array:
    """A copy on the device."""
    return device.current().xp.array(x)


def to_host(x: Array) -> Array:
    """A copy on the host; waits for it."""
    return x.get() if hasattr(x, "get") else x


def free_memory() -> int | None:
    """Bytes that the current device can still give, those that CuPy keeps for later among them."""
    import cupy

    free, _ = cupy.cuda.runtime.memGetInfo()
    return int(free) + int(cupy.get_default_memory_pool().free_bytes())


def mirror(x: Array, strip: int = 1024) -> None:
    """Copy what is above the diagonal of a square matrix below it."""
    xp, n = device.current().xp, x.shape[0]
    for i in range(0, n, strip):
        rows, end = x[i : i + strip], min(i + strip, n)
        below = xp.arange(end) < xp.arange(i, end)[:, None]
        rows[:, :end] = xp.where(below, x[:end, i:end].T, rows[:, :end])
