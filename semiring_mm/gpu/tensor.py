"""Products over plus-times on Hopper's tensor cores: kernels, and operands in their layout."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..expressions import joins
from ..plan import Plan
from . import device
from .chips import has
from .source import KINDS as ENTRIES
from .source import STORAGE, algebra, flags, pack
from .views import address, strides, wide_along

__all__ = [
    "REDUCING", "ROWS", "THREADS", "Kind", "Operand", "TensorKernel", "convert_source", "kind_of",
    "parts_source", "prepare_operand", "repays", "split_tiles", "tensor_source", "together",
]  # fmt: skip

Array = Any


@dataclass(frozen=True)
class Kind:
    """The element type of a tensor-core product (``kernels/base.cuh``).

    Parameters
    ----------
    name : str
        The struct's name.
    element : str
        NumPy's name of the dtype that operands are read in.
    parts : int
        Matrices that an operand is split into; it is their sum.
    """

    name: str
    element: str
    parts: int = 1

    @property
    def forbidden(self) -> int:
        """Kinds of entries it cannot multiply: a sum of two parts cannot represent them."""
        far = ("nan", "-inf", "+inf", "far") if self.parts == 2 else ()
        return sum(ENTRIES[kind] for kind in far)

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return {"float32": 4, "uint8": 1}.get(self.element, 2)

    @property
    def bk(self) -> int:
        """Steps of k in a tile: a row of 128 bytes."""
        return 128 // self.size

    @property
    def bn(self) -> int:
        """Columns of a tile; products of parts need two sets of accumulators."""
        return 128 if self.parts == 2 else 256


_KINDS = {
    ("float16", None): Kind("Halves", "float16"),
    ("bfloat16", None): Kind("Bfloats", "bfloat16"),
    ("float32", "tf32"): Kind("Tf32", "float32"),
    ("float32", "float32_emulated"): Kind("Tf32", "float32", 2),
}
_TRUTH = Kind("Bytes", "uint8")
# The least number of pairs (m n k) for which tensor cores are faster, measured on an H200; and the
# longest k whose sums fit.
_WORTH = {"Halves": 600**3, "Bfloats": 600**3, "Tf32": 700**3, "Bytes": 1200**3}
_WORTH_PARTS, _LONGEST_TRUTH = 1300**3, 1 << 16


def kind_of(plan: Plan, precision: str | None, arch: int) -> Kind | None:
    """The element type in which tensor cores can compute a plan, or None."""
    if not has(arch, "HGMMA"):
        return None
    join = (joins(plan.add), joins(plan.mul))
    if plan.codec == "bits" and join == ("|", "&"):
        return _TRUTH
    if plan.codec == "plain" and join == ("+", "*"):
        return _KINDS.get((plan.storage, precision))
    return None


def repays(kind: Kind, m: int, n: int, k: int, batch: int) -> bool:
    """Whether tensor cores compute a product of these sizes, and faster than other kernels."""
    if min(m, n) < 64 or (kind is _TRUTH and k > _LONGEST_TRUTH):
        return False
    return m * n * k * batch >= (_WORTH_PARTS if kind.parts == 2 else _WORTH[kind.name])


@dataclass(frozen=True)
class TensorKernel:
    """What a kernel is compiled for.

    Parameters
    ----------
    plan : Plan
    kind : Kind
    a_rows, b_rows : bool
        Whether k is the contiguous direction of the operand.
    c_wide : bool
        Whether neighbouring columns can be stored as one vector.
    """

    plan: Plan
    kind: Kind
    a_rows: bool
    b_rows: bool
    c_wide: bool

    @property
    def stages(self) -> int:
        """Tiles of k in the pipeline, loading or in use: as many as fit in shared memory."""
        return 3 if self.kind.parts == 2 else 4

    @property
    def shared(self) -> int:
        """Bytes of shared memory."""
        return 1024 + self.stages * (self.kind.parts * (ROWS + self.kind.bn) * _LINE + 32)

    @property
    def together(self) -> int:
        """Neighbouring columns of a thread."""
        return together(self.plan)

    def types(self) -> str:
        """The first lines of a source: its types."""
        return f"""#include "tensor.cuh"
{algebra(self.plan)}
using Step = sr::Tensor<Algebra, sr::{self.kind.name}, {self.kind.parts}>;
using Shape = sr::TensorTile<{self.kind.bn}, {self.together}>;
"""


#: Rows of a tile (sr::TensorTile's); threads of a product, of which 128 copy, and of ReduceSplits.
ROWS, THREADS, REDUCING = 128, 384, 256
_LINE = 128  # bytes of a row of a tile in shared memory
_CONVERT, _SIDE, _BYTES_SIDE = 256, 64, 128  # sr::Convert's threads and tiles, sr::TransposeBytes's


def together(plan: Plan) -> int:
    """Neighbouring columns that a thread stores.

    Two words of 4 bytes: the four lanes of a row fill a sector of memory.
    """
    return 2 if plan.storage == "float32" else 8


@functools.lru_cache(maxsize=1024)
def tensor_source(kernel: TensorKernel) -> str:
    """The text of a product kernel, for the architecture's own instructions."""
    given = flags(kernel.a_rows, kernel.b_rows, kernel.c_wide)
    return f"""{kernel.types()}
using Product = sr::TensorProduct<Step, Shape, {kernel.stages}, {given}>;
static_assert(Product::BYTES == {kernel.shared}, "as the launch has it");
extern "C" __global__ void __launch_bounds__({THREADS}, 1)
kernel(const __grid_constant__ sr::TensorParams p) {{
  Product::run(p);
}}
"""


@functools.lru_cache(maxsize=1024)
def parts_source(kernel: TensorKernel) -> str:
    """The text of the kernel that reduces partial results, where k was split."""
    return f"""{kernel.types()}
extern "C" __global__ void __launch_bounds__({REDUCING})
kernel(const __grid_constant__ sr::ProductParams p) {{
  sr::ReduceSplits<Step, Shape, {flags(kernel.c_wide)}>::run(p);
}}
"""


@functools.lru_cache(maxsize=64)
def convert_source(storage: str, kind: Kind, transposed: bool) -> str:
    """The text of the kernel that copies an operand into rows of k.

    `transposed`: bytes that are contiguous across k, four rows at once.
    """
    name = f"Convert<{STORAGE[storage]}, sr::{kind.name}, {kind.parts}>"
    return f"""#include "tensor.cuh"
extern "C" __global__ void __launch_bounds__({_CONVERT})
kernel(const __grid_constant__ sr::ConvertParams p) {{
  sr::{"TransposeBytes" if transposed else name}::run(p);
}}
"""


@dataclass(frozen=True)
class _Copy:
    """The launch that lays an operand out in rows of k, without its two addresses."""

    kernel: device.Kernel
    blocks: int
    shared: int
    longs: tuple[int, ...]
    ints: tuple[int, ...]
    bytes: int  # of the copy


@dataclass(frozen=True)
class Operand:
    """A stack of [rows][k] for the copy engine: in place, or as a copy in another layout.

    Parameters
    ----------
    element, sizes, pitch
        Of its tensor map (:meth:`Device.tensor_map`).
    rows : bool
        Whether k is the contiguous direction.
    batched : bool
        Whether there is a matrix for each one of the batch, not one for all.
    copy : _Copy, optional
        The launch that copies it; None if it is read in place.
    maps : dict
        Tensor maps by address.
    """

    element: str
    sizes: tuple[int, int, int]
    pitch: tuple[int, int]
    rows: bool
    batched: bool
    copy: _Copy | None = None
    maps: dict[int, bytes] = field(default_factory=dict)

    def load(self, here: device.Device, place: int) -> tuple[bytes, Array | None]:
        """The tensor map of an operand at this address, and the copy it describes, if any.

        The copy must live until the product is launched.
        """
        memory, copy = None, self.copy
        if copy is not None:
            memory = here.xp.empty(copy.bytes, np.uint8)
            source, place = place, address(memory)
            params = pack((source, place, *copy.longs), copy.ints)
            copy.kernel.launch(copy.blocks, _CONVERT, copy.shared, params)
        found = self.maps.get(place)
        if found is None:
            if len(self.maps) >= 256:
                self.maps.clear()
            found = here.tensor_map(place, self.element, self.sizes, self.pitch)
            self.maps[place] = found
        return found, memory


def prepare_operand(here: device.Device, kind: Kind, x: Array) -> Operand:
    """An operand in place if the copy engine can read it there; else as a copy."""
    (rows, k), at = x.shape[-2:], strides(x)
    size, batched = kind.size, x.ndim == 3 and x.shape[0] > 1 and at[0] != 0
    batch = x.shape[0] if batched else 1
    if kind.size < 4 and address(x) % 16 == 0 and at[0] >= 0 and at[0] * size % 16 == 0:
        for by_rows, unit, other in ((True, 2, 1), (False, 1, 2)):
            if not by_rows and size == 1:  # only 16-bit floats may be contiguous across k
                break
            if at[unit] == 1 and at[other] > 0 and at[other] * size % 16 == 0:
                sizes = (k, rows, batch) if by_rows else (rows, k, batch)
                pitch = (size * at[other], size * at[0] if batched else 16)
                return Operand(kind.element, sizes, pitch, by_rows, batched)
    ld = math.ceil(k * size / 16) * 16 // size
    transposed = size == 1 and wide_along(x, -2)
    side = _BYTES_SIDE if transposed else _SIDE
    shared = side * (side // 4 + 1) * 4 if transposed else side * (side + 1) * x.itemsize
    tiles = (-(-k // side), -(-rows // side))
    copy = _Copy(
        here.kernel(convert_source(x.dtype.name, kind, transposed)), math.prod(tiles) * batch,
        shared, (at[1], at[2], at[0], ld, *tiles), (rows, k),
        batch * kind.parts * rows * ld * size,
    )  # fmt: skip
    sizes, pitch = (k, rows, batch * kind.parts), (ld * size, rows * ld * size)
    return Operand(kind.element, sizes, pitch, True, batched, copy)


_LEAST_DEPTH = 8  # tiles of k that repay a partial result


def split_tiles(tiles: int, k: int, bk: int, sms: int) -> tuple[int, int]:
    """Blocks that share each tile of C, and the steps of k of each.

    k is split where there are fewer tiles than multiprocessors.
    """
    steps = math.ceil(k / bk)
    splits = max(1, min(sms // tiles, steps // _LEAST_DEPTH))
    depth = math.ceil(steps / splits) * bk
    return math.ceil(k / depth), depth
