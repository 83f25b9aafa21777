"""Arrays between host and device and within it, and how much memory there is."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

from . import device
from .source import pack
from .views import address, strides

__all__ = ["free_memory", "from_host", "mirror", "mirror_source", "on", "wait"]

Array = Any


def on(index: int, stream: int | None = None) -> contextlib.AbstractContextManager[Any]:
    """Work on a device (-1: the current one), and on another library's stream if it is given."""
    import cupy

    if stream is None:
        return cupy.cuda.Device(index) if index >= 0 else contextlib.nullcontext()
    with contextlib.ExitStack() as stack:
        if index >= 0:
            stack.enter_context(cupy.cuda.Device(index))
        if hasattr(cupy.cuda.Stream, "from_external"):
            stack.enter_context(cupy.cuda.Stream.from_external(_Stream(stream)))
        else:  # CuPy before 14
            stack.enter_context(cupy.cuda.ExternalStream(stream))
        return stack.pop_all()


class _Stream:
    """A stream by its address, in CUDA's protocol for streams."""

    def __init__(self, place: int) -> None:
        self.place = place

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.place


def wait() -> None:
    """Until all that was launched on the current stream is done."""
    import cupy

    cupy.cuda.get_current_stream().synchronize()


def from_host(x: Array) -> Array:
    """A copy on the device."""
    return device.current().xp.array(x)


def free_memory() -> int | None:
    """Bytes that the current device can still give, those that CuPy keeps for later among them."""
    import cupy

    free, _ = cupy.cuda.runtime.memGetInfo()
    return int(free) + int(cupy.get_default_memory_pool().free_bytes())


@functools.cache
def mirror_source(itemsize: int) -> str:
    """The text of the kernel that mirrors a matrix; entries are moved as they are."""
    return f"""#include "mirror.cuh"
extern "C" __global__ void __launch_bounds__({_THREADS})
kernel(const __grid_constant__ sr::MirrorParams p) {{
  sr::Mirror<sr::u{8 * itemsize}>::run(p);
}}
"""


_THREADS, _SIDE = 256, 32  # sr::Mirror's


def mirror(x: Array) -> None:
    """Copy what is above the diagonal of a square matrix below it."""
    n = x.shape[0]
    tiles = -(-n // _SIDE)
    params = pack((address(x), *strides(x)[1:]), (n, tiles))
    kernel = device.current().kernel(mirror_source(x.itemsize))
    kernel.launch(tiles * tiles, _THREADS, _SIDE * (_SIDE + 1) * x.itemsize, params)
