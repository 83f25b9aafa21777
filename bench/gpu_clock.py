"""The device's own clock: seconds between two events of the current stream."""

from __future__ import annotations

import functools
import struct
import time
from collections.abc import Callable
from typing import Any

from semiring_mm.gpu import device

__all__ = ["elapsed", "spin", "timed"]


@functools.cache
def _spin_kernel(index: int) -> device.Kernel:
    return device.current().kernel(
        """#include "base.cuh"
struct Params { sr::i64 nanoseconds; };
extern "C" __global__ void __launch_bounds__(32)
kernel(const __grid_constant__ Params p) {
  sr::i64 start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - start < p.nanoseconds);
}
"""
    )


def spin(seconds: float) -> None:
    """Keep the current stream busy for so long, in one thread of the device."""
    kernel = _spin_kernel(device.current().index)
    kernel.launch(1, 32, 0, struct.pack("q", int(1e9 * seconds)))


def elapsed(call: Callable[[], Any]) -> float:
    """Seconds of the device between two events around a call."""
    import cupy

    start, end = cupy.cuda.Event(), cupy.cuda.Event()
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(cupy.cuda.get_elapsed_time(start, end)) * 1e-3


def timed(call: Callable[[], Any], repeats: int) -> float:
    """Seconds of one of so many calls in a row, without the time that the host takes to issue them.

    The calls are issued behind a kernel that keeps the device busy meanwhile, so that they follow
    each other without gaps.
    """
    host, few = 0.0, min(repeats, 8)
    if repeats > 1:
        begin = time.perf_counter()
        for _ in range(few):
            call()
        host = (time.perf_counter() - begin) / few * repeats
    spin(1.3 * host + 2e-4)

    def calls() -> None:
        for _ in range(repeats):
            call()

    return elapsed(calls) / repeats
