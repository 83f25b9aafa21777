"""What a device can do at most: loops of registers and shared memory, and copying memory.

The loop of ``kernels/ceiling.cuh`` is compiled and launched as the library's own kernels are. Its
entries are random and every accumulator is fed back, so that nothing can be hoisted or left out.
"""

from __future__ import annotations

from ..plan import Plan
from . import device
from .clock import elapsed
from .source import Step, algebra, pack

__all__ = ["PAIRS", "TILES", "copies", "of_step", "rates", "source"]

#: Accumulators of a thread, and the steps of k in the body of the loop.
TILES = ((8, 8, 4), (8, 8, 16), (8, 16, 4), (8, 16, 16))
#: Steps of k in the body where two lie side by side in shared memory, for 8 × 16 accumulators.
PAIRS = (4, 16)
_THREADS, _BK, _WAVES = 256, 16, 24  # sr::Ceiling's; blocks for each multiprocessor


def source(form: str, tile: tuple[int, int, int], *, pairs: bool = False) -> str:
    """The text of one loop's kernel; `form` defines ``Form``, see ``kernels/ceiling.cuh``."""
    return f"""#include "ceiling.cuh"
{form}
extern "C" __global__ void __launch_bounds__({_THREADS})
kernel(const __grid_constant__ sr::CeilingParams p) {{
  sr::Ceiling<Form, {tile[0]}, {tile[1]}, {tile[2]}{", true" if pairs else ""}>::run(p);
}}
"""


def of_step(plan: Plan, step: Step, tile: tuple[int, int, int]) -> str:
    """The text of the loop of one of the library's inner steps, on 32-bit words."""
    return source(f"{algebra(plan)}\nusing Form = sr::Formed<sr::{step.name}<Algebra>>;", tile)


def rates(
    text: str, tile: tuple[int, int, int], columns: int = 1, *, seconds: float = 0.005,
    repeat: int = 5,
) -> list[float]:  # fmt: skip
    """Samples of a loop's rate, in pairs a second; a word holds so many `columns`."""
    import cupy

    here = device.current()
    blocks = _WAVES * here.sms
    out = cupy.empty(blocks * _THREADS, cupy.uint32)
    kernel = here.kernel(text)
    work = float(blocks * _THREADS * tile[0] * tile[1] * _BK * columns)  # pairs

    def rate(passes: int) -> float:
        params = pack((out.data.ptr,), (passes, 12345, 1))
        return passes * work / elapsed(lambda: kernel.launch(blocks, _THREADS, 0, params))

    rate(2)
    passes = max(2, int(rate(10) * seconds / work))
    return [rate(passes) for _ in range(repeat)]


def copies(size: int, repeat: int = 5) -> list[float]:
    """Samples of copying so many bytes on the device, in bytes read and written a second."""
    import cupy

    x = cupy.random.default_rng(1).random(size // 4, dtype=cupy.float32)
    y = cupy.empty_like(x)
    return [2 * size / elapsed(lambda: cupy.copyto(y, x)) for _ in range(repeat + 1)][1:]
