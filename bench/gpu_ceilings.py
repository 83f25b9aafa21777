"""Peak rates of a CUDA device: loops in registers and shared memory, and copying memory.

Each form of an inner step is written into the loop of ``ceiling.cuh`` and compiled and
launched as the library's own kernels are. The entries are random and every accumulator is fed back,
so that nothing can be hoisted or left out; a ceiling is the best sample of its best form.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from semiring_mm.gpu import device, source
from semiring_mm.plan import Plan

from .gpu_clock import elapsed

#: Accumulators of a thread, and the steps of k in the body of the loop.
TILES = ((8, 8, 4), (8, 8, 16), (8, 16, 4), (8, 16, 16))
#: Steps of k in the body where two lie side by side in shared memory, for 8 × 16 accumulators.
PAIRS = (4, 16)
_THREADS, _BK, _WAVES = 256, 16, 24  # sr::Ceiling's; blocks for each multiprocessor
_KERNELS = Path(__file__).with_name("ceiling.cuh").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Step:
    """One inner step: C++ in the accumulator c and the entries a0, b0 (and a1, b1)."""

    kind: str  # of the entries: a key of ENTRIES
    take: str
    depth: int = 1  # steps of k at once
    pairs: int = 1  # of a word in a step of k


#: Kind: (C++ type of a word, an entry of random bits r, the accumulator's start).
ENTRIES = {
    "f32": ("float", "0x3f800000u | r >> 9", "1.0f"),  # in [1, 2)
    "i32": ("sr::i32", "r >> 22", "0x3fffffff"),
    "i16x2": ("sr::u32", "r & 0x03ff03ffu", "0x3fff3fffu"),
    "f16x2": ("sr::u32", "0x3c003c00u | (r & 0x03ff03ffu)", "0x7bff7bffu"),  # in [1, 2)
    "bf16x2": ("sr::u32", "0x3f803f80u | (r & 0x007f007fu)", "0x7f7f7f7fu"),
    "bits": ("sr::u32", "r", "0u"),
}

_LEAST = "sr::bits_as<float>(sr::min3(I(c), I(a0 + b0), I(a1 + b1)))"
_MOST = "sr::bits_as<float>(sr::max3(I(c), I(a0 * b0), I(a1 * b1)))"
_MIXED = (
    "odd ? sr::min3(c, a0 * unit + b0, a1 * unit + b1) "
    ": sr::add_min(a1, b1, sr::add_min(a0, b0, c))"
)
_HALVES = (
    "sr::min_x2<sr::{0}>(sr::min_x2<sr::{0}>(c, sr::add_x2<sr::{0}>(a0, b0)), "
    "sr::add_x2<sr::{0}>(a1, b1))"
)
_SQUARES = "sr::fma(a0 - b0, a0 - b0, c)"
_GAPS = "c + fabsf(a0 - b0)"
_LARGEST = "sr::max(c, fabsf(a0 - b0))"
_DIFFERING = "c + (a0 != b0 ? 1.0f : 0.0f)"
_FLOATS = Step("f32", "sr::max(c, sr::min(a0, b0))")

#: Ceiling: {form: step}.
STEPS: dict[str, dict[str, Step]] = {
    "plus-times f32": {"fma": Step("f32", "sr::fma(a0, b0, c)")},
    "min-plus f32": {"add, min": Step("f32", "sr::min(c, a0 + b0)")},
    "min-plus f32 ≥ 0": {"2 adds, min of 3": Step("f32", _LEAST, 2)},
    "min-plus i32": {
        "add-min": Step("i32", "sr::add_min(a0, b0, c)"),
        "add-min and 2 multiply-adds, min of 3": Step("i32", _MIXED, 2),
    },
    "min-plus i16": {"add-min": Step("i16x2", "sr::add_min_x2(a0, b0, c)", 1, 2)},
    "min-plus f16": {"2 adds, min of 3": Step("f16x2", _HALVES.format("half"), 2, 2)},
    "min-plus bf16": {"2 adds, min of 3": Step("bf16x2", _HALVES.format("bfloat"), 2, 2)},
    "Σ (a − b)² f32": {"subtract, fma": Step("f32", _SQUARES)},
    "Σ |a − b| f32": {"subtract, add": Step("f32", _GAPS)},
    "max |a − b| f32": {"subtract, max": Step("f32", _LARGEST)},
    "Σ a ≠ b f32": {"compare, add": Step("f32", _DIFFERING)},
    "max-times f32": {"mul, max": Step("f32", "sr::max(c, a0 * b0)")},
    "max-times f32 ≥ 0": {"2 muls, max of 3": Step("f32", _MOST, 2)},
    "max-min f32, floats": {"min, max": _FLOATS},
    "max-min f32": {
        "min, max": _FLOATS,
        "keys: 2 mins, max of 3": Step("i32", "sr::max3(c, sr::min(a0, b0), sr::min(a1, b1))", 2),
    },
    "or-and bits": {"and, or": Step("bits", "c | (a0 & b0)", 1, 32)},
}  # fmt: skip
COPY = "copy"
_COPY_BYTES = 1 << 30


def of_form(step: Step, tile: tuple[int, int, int], *, pairs: bool = False) -> str:
    """The text of one loop's kernel; `pairs`: two steps of k side by side in shared memory."""
    word, entry, start = ENTRIES[step.kind]
    names = "\n".join(
        f"    [[maybe_unused]] const Word a{d} = a[{d}], b{d} = b[{d}];" for d in range(step.depth)
    )
    form = f"""struct Form {{
  using Word = {word};
  static constexpr int DEPTH = {step.depth};
  SR_FN static sr::u32 entry(sr::u32 r) {{ return {entry}; }}
  SR_FN static Word start() {{ return {start}; }}
  SR_FN static sr::i32 I(float x) {{ return sr::bits_as<sr::i32>(x); }}
  SR_FN static Word take(Word c, const Word* a, const Word* b, [[maybe_unused]] bool odd,
                         [[maybe_unused]] sr::i32 unit) {{
{names}
    return {step.take};
  }}
}};
"""
    return _text(form, tile, pairs=pairs)


def of_step(plan: Plan, step: source.Step, tile: tuple[int, int, int]) -> str:
    """The text of the loop of one of the library's inner steps, on 32-bit words."""
    form = f"{source.algebra(plan)}\nusing Form = sr::Formed<sr::{step.name}<Algebra>>;"
    return _text(form, tile)


def _text(form: str, tile: tuple[int, int, int], *, pairs: bool = False) -> str:
    """The text of one loop's kernel; `form` defines ``Form``, see ``ceiling.cuh``."""
    return f"""{_KERNELS}
{form}
extern "C" __global__ void __launch_bounds__({_THREADS})
kernel(const __grid_constant__ sr::CeilingParams p) {{
  sr::Ceiling<Form, {tile[0]}, {tile[1]}, {tile[2]}{", true" if pairs else ""}>::run(p);
}}
"""


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
        params = struct.pack("=qiii4x", out.data.ptr, passes, 12345, 1)
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


def measure(
    name: str, threads: int = 0, *, seconds: float = 0.005, repeat: int = 5
) -> dict[str, list[float]]:
    """Every form's samples: pairs a second, or for "copy" bytes read and written."""
    if name == COPY:
        size = _COPY_BYTES if seconds >= 0.005 else 1 << 24
        return {"device to device": copies(size, repeat)}
    found = {}
    for form, step in STEPS[name].items():
        loops = [(tile, False) for tile in TILES]
        loops += [((8, 16, steps), True) for steps in PAIRS if step.depth == 2]
        for tile, pairs in loops:
            label = f"{form}; {tile[0]} × {tile[1]} × {tile[2]}{', pairs of k' * pairs}"
            text = of_form(step, tile, pairs=pairs)
            found[label] = rates(text, tile, step.pairs, seconds=seconds, repeat=repeat)
    return found
