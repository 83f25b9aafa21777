"""From a plan to the text of a kernel: an algebra, a shape and one entry, around ``kernels/*.cuh``.

Everything here is a pure function of values, and can be looked at and tested without a GPU.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ..expressions import Expr, joins, to_cuda
from ..plan import Plan, contracted
from .chips import has
from .launch import entry, struct_of
from .tiles import Tile

__all__ = [
    "FIND_COLUMNS", "FIND_ROWS", "KINDS", "LAST", "PRODUCT", "STORAGE", "ProductKernel",
    "Step", "algebra", "compute_dtype", "find_source", "flags", "join_source", "kind_of", "literal",
    "matrix_step", "product_source", "steps", "word_size",
]  # fmt: skip

#: Bits that a scan of an operand sets.
KINDS = {
    "nan": 1,
    "-inf": 2,
    "-": 4,
    "0": 8,
    "+": 16,
    "+inf": 32,
    "far": 64,
    "lossy": 128,
    "spread": 256,
}

#: C++ types of dtypes.
STORAGE = {
    "float16": "sr::half", "bfloat16": "sr::bfloat", "float32": "float", "float64": "double",
    "bool": "sr::u8", "int8": "sr::i8", "int16": "sr::i16", "int32": "sr::i32", "int64": "sr::i64",
    "uint8": "sr::u8", "uint16": "sr::u16", "uint32": "sr::u32", "uint64": "sr::u64",
}  # fmt: skip
_COMPUTE = {
    "f32": "float", "f64": "double", "i8": "sr::i32", "i16": "sr::i32", "i32": "sr::i32",
    "i64": "sr::i64", "u8": "sr::i32", "u16": "sr::i32", "u32": "sr::u32", "u64": "sr::u64",
}  # fmt: skip


@dataclass(frozen=True)
class Step:
    """An inner step (``kernels/steps.cuh``), and the entries that it must not meet."""

    name: str
    forbidden: int = 0
    columns: int = 1


def steps(
    plan: Plan,
    keys: Plan | None,
    arch: int,
    *,
    arg: bool,
    scaled: bool = False,
    precision: str | None = None,
) -> list[tuple[Plan, Step]]:
    """The steps that may compute a plan, best first; the last one is right for every operand.

    `keys` is the same plan on order-preserving integers, where there is one; `arg`: the k that won
    is kept; `scaled`: the product is multiplied by α, so that it must not be rounded before;
    `precision` is that of :func:`semiring_mm.gemm`.
    """
    if "w" in plan.mul.ops():
        return [(plan, Step("Weighted"))]
    if plan.codec == "bits":
        return [(plan, Step("Bits", columns=32))]
    if name := matrix_step(plan, precision, arch):
        return [(plan, Step(name))]
    found = _joined(plan, keys, arch, packable=not arg and not scaled)
    if found is None:
        return [(plan, Step("General"))]
    return [found, (plan, Step("General"))] if found[1].forbidden else [found]


def _joined(
    plan: Plan, keys: Plan | None, arch: int, *, packable: bool
) -> tuple[Plan, Step] | None:
    """The step for which a chip has instructions that do more than one operation, if any.

    `packable`: two columns may share a word.
    """
    if _fused(plan) and plan.compute == "f32" and has(arch, "FFMA2"):
        return plan, Step("Packed")
    if joins(plan.add) not in ("min", "max") or plan.annihilate:
        return None
    mul, compute = joins(plan.mul), plan.compute
    if compute == "f32":
        linear = mul in ("+", "*")
        if linear and packable and _short(plan) and has(arch, "HMNMX2"):
            return plan, Step("FloatsJoined" if has(arch, "VHMNMX") else "FloatsPaired", columns=2)
        if has(arch, "FMNMX3"):
            return plan, Step("Packed" if linear else "Twice")
        if has(arch, "VIMNMX3"):
            if linear:
                signs = KINDS["nan"] | KINDS["-inf"] | KINDS["-"]
                signs |= KINDS["+inf"] if mul == "*" else 0  # 0 x inf is NaN
                return plan, Step("Nonnegative", signs)
            if keys is not None and keys.compute == "i32":
                return keys, Step("Ordered", KINDS["nan"])
    if mul == "+":
        if compute == "i16" and plan.storage == "int16" and packable and has(arch, "VIMNMX.S16x2"):
            return plan, Step("SumsPaired", columns=2)
        if compute == "i32" and has(arch, "VIADDMNMX"):
            return plan, Step("Sums")
    if mul in ("min", "max") and compute in _SIGNED and has(arch, "VIMNMX3"):
        return plan, Step("Ordered")
    return None


#: Computed in 32-bit signed integers.
_SIGNED = ("i8", "i16", "i32", "u8", "u16")


def matrix_step(plan: Plan, precision: str | None, arch: int) -> str:
    """The step that takes matrix instructions for a plan, or none."""
    if not (has(arch, "HMMA") and _fused(plan)):
        return ""
    if plan.storage == "float32":
        return "MatrixTf32" if precision == "tf32" else ""
    if plan.storage == "float64":  # siblings of these chips have them too, as slow as other means
        return "MatrixDoubles" if arch in (80, 90, 100) else ""
    kinds = {"float16": "MatrixHalves", "bfloat16": "MatrixBfloats"}
    return "" if precision == "ieee" else kinds.get(plan.storage, "")


def kind_of(plan: Plan, step: Step, *, arg: bool, b_k: bool = False) -> str:
    """The kind of product, a key of the table of tiles. `b_k`: whether B lies along k."""
    if step.name.startswith("Matrix"):
        return "matrix wide" if word_size(plan) == 8 else "matrix"
    if word_size(plan) == 8:
        return "arg wide" if arg else "wide"
    if arg:
        return "arg"
    if step.columns > 1:
        kinds = {"Bits": "bits", "SumsPaired": "pair", "FloatsPaired": "halves"}
        return kinds.get(step.name, "joined halves, B along k" if b_k else "joined halves")
    if _SLOW & (plan.add.ops() | plan.mul.ops()):
        return "slow"
    if not _plain(plan):
        return "coded"
    if _fused(plan):
        return "fma"
    if step.name == "Nonnegative":
        return "nonnegative"
    return "sum" if joins(plan.add) == "+" else "word"


#: Functions that take many instructions.
_SLOW = frozenset({"exp", "log", "log1p", "expm1", "logaddexp", "//", "%"})


def _short(plan: Plan) -> bool:
    """Whether values are 16-bit floats."""
    return plan.storage in ("float16", "bfloat16")


def _plain(plan: Plan) -> bool:
    """Whether values are computed with as they are stored."""
    return plan.codec == "plain" and STORAGE[plan.storage] == _COMPUTE[plan.compute]


def _fused(plan: Plan) -> bool:
    """Whether ⊕ and ⊗ are one multiply-add."""
    floating = plan.compute[0] == "f" and plan.codec == "plain"
    return floating and joins(plan.add) == "+" and joins(plan.mul) == "*"


def word_size(plan: Plan) -> int:
    """Bytes of a register word."""
    return 8 if plan.compute[1:] == "64" else 4


def compute_dtype(plan: Plan) -> str:
    """NumPy's name of ``Algebra::Compute``; masks are signed."""
    names = {"f32": "float32", "f64": "float64", "u32": "uint32", "i64": "int64", "u64": "uint64"}
    return names.get(plan.compute, "int32")


# --- the algebra --------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1024)
def algebra(plan: Plan) -> str:
    """The struct ``Algebra`` of a plan: its types, operations and conversions."""
    storage, compute = STORAGE[plan.storage], _COMPUTE[plan.compute]
    if plan.codec == "bits":
        compute = "sr::u32"
    add = _number(to_cuda(plan.add, "Compute"), plan.add)
    mul = _number(to_cuda(plan.mul, "Compute"), plan.mul)
    far = f"Compute({_literal(plan.infinite, plan)})"
    found = f"(a == {far} || b == {far}) ? {far} : "
    least = plan.add.op in ("min", "&") if plan.codec == "mask" else plan.add.op == "min"
    floating = compute in ("float", "double")
    raw = plan.codec == "plain"  # short values are stored as their bits in a word are
    if plan.codec == "mask":
        wins = "a > b" if least else "a < b"  # true is -1
    else:
        wins = "a < b" if least else "a > b"
    fused = _fused(plan)
    operands = "Compute a, Compute b" + ", Compute w = 1" * ("w" in plan.mul.ops())
    pair = {"+": "sr::add_x2", "*": "sr::mul_x2"}.get(joins(plan.mul))
    lines = [
        "struct Algebra {",
        f"  using Storage = {storage};",
        f"  using Compute = {compute};",
        f"  static constexpr bool PLAIN = {flags(_plain(plan))}, LEAST = {flags(least)},",
        f"      INTEGER = {flags(not floating)}, CHECK = {flags(plan.check)},",
        f"      FUSED = {flags(fused)}, NAN = {flags(floating)}, RAW = {flags(raw)},",
        f"      SELECTS = {flags(plan.add.op in ('min', 'max'))};",
        f"  SR_FN static Compute start() {{ return {_literal(plan.start, plan)}; }}",
        f"  SR_FN static Compute add(Compute a, Compute b) {{ return {add}; }}",
        f"  SR_FN static Compute fold(Compute c, {operands}) {{ return {_fold(plan)}; }}",
        f"  SR_FN static Compute mul({operands}) {{",
        f"    return {found if plan.annihilate else ''}{mul};",
        "  }",
        f"  SR_FN static Compute scale({operands}) {{",
        f"    return {found if plan.missing is not None else ''}{mul};",
        "  }",
        f"  SR_FN static Compute decode(Storage x) {{ {_decode(plan, storage)} }}",
        f"  SR_FN static Storage encode(Compute x) {{ {_encode(plan, storage)} }}",
        f"  SR_FN static bool fits(Compute x) {{ {_fits(plan)} }}",
        f"  SR_FN static bool better(Compute a, Compute b) {{ return {wins}; }}",
    ]
    if pair and _short(plan):
        lines.append(
            "  SR_FN static sr::u32 mul_x2(sr::u32 a, sr::u32 b) "
            f"{{ return {pair}<Storage>(a, b); }}"
        )
    if pair and compute == "float":
        lines.append(
            f"  SR_FN static sr::Two mul_x2(Compute a, sr::Two b) {{ return {pair}(a, b); }}"
        )
    return "\n".join([*lines, "};", ""])


def _fold(plan: Plan) -> str:
    """What c becomes: c ⊕ (a ⊗ b)."""
    parts = contracted(plan)
    if parts is None:
        return f"add(c, mul(a, b{', w' * ('w' in plan.mul.ops())}))"
    x, y, z = (None if e is None else _number(to_cuda(e, "Compute"), e) for e in parts)
    return f"sr::fma({x}, {y}, c)" if z is None else f"c + sr::fma({x}, {y}, {z})"


def flags(*values: bool) -> str:
    """Template arguments."""
    return ", ".join("true" if x else "false" for x in values)


def _number(text: str, expr: Expr) -> str:
    """A comparison's outcome counts as 0 or 1."""
    return f"Compute({text})" if expr.op in ("<", "<=", ">", ">=", "==", "!=") else text


def _literal(value: float | int, plan: Plan) -> str:
    if plan.compute[0] == "f":
        number = float(value)
        if number in (float("inf"), float("-inf")):
            return f"{'-' if number < 0 else ''}sr::infinity<Compute>()"
        return f"Compute({number!r})"
    number = int(value)
    if plan.codec == "bits":
        return f"{number & 0xFFFFFFFF}u"
    return f"{number}ull" if plan.compute[0] == "u" else literal(number)


def literal(number: int) -> str:
    """A signed integer; the lowest one has no literal of its own."""
    return f"(-{-number - 1}ll - 1)" if number < 0 else f"{number}ll"


def _decode(plan: Plan, storage: str) -> str:
    if plan.codec == "bits":
        return "return x ? ~0u : 0u;"
    if plan.codec == "mask":
        return "return x ? -1 : 0;"
    value = "sr::to_float(x)" if storage in ("sr::half", "sr::bfloat") else "x"
    if plan.codec == "key":
        if plan.compute == "i64":
            return (
                "sr::i64 raw = sr::bits_as<sr::i64>(x + 0.0); "
                "return raw ^ ((raw >> 63) & 0x7fffffffffffffffll);"
            )
        return (  # -0.0 becomes 0.0, so that the two compare equal as keys
            f"sr::i32 raw = sr::bits_as<sr::i32>({value} + 0.0f); "
            "return raw ^ ((raw >> 31) & 0x7fffffff);"
        )
    if plan.codec == "sentinel":
        return (
            f"return x == {_missing(plan)} ? Compute({_literal(plan.infinite, plan)}) : Compute(x);"
        )
    return f"return Compute({value});"


def _encode(plan: Plan, storage: str) -> str:
    if plan.codec in ("bits", "mask"):
        return "return Storage(x & 1);"
    value = "x"
    if plan.final is not None:
        final = _number(to_cuda(plan.final, "Compute"), plan.final)
        return (
            f"[[maybe_unused]] const Compute a = x, b = {_literal(plan.total, plan)}; "
            f"return Storage({final});"
        )
    if plan.codec == "key":
        if plan.compute == "i64":
            return "return sr::bits_as<double>(x ^ ((x >> 63) & 0x7fffffffffffffffll));"
        value = "sr::bits_as<float>(x ^ ((x >> 31) & 0x7fffffff))"
    if storage == "sr::half":
        return f"return sr::to_half({value});"
    if storage == "sr::bfloat":
        return f"return sr::to_bfloat({value});"
    if plan.codec == "sentinel":
        return f"return {_is_missing(plan)} ? {_missing(plan)} : Storage(x);"
    return f"return Storage({value});"


def _missing(plan: Plan) -> str:
    assert plan.missing is not None
    number = int(plan.missing)
    return f"Storage({f'{number}ull' if number >= 0 else literal(number)})"


def _is_missing(plan: Plan) -> str:
    if plan.annihilate:
        return f"x == Compute({_literal(plan.infinite, plan)})"
    limit = (abs(plan.infinite) + 1) // 4 * 3 - 1  # infinity plus a finite number is beyond it
    return f"x >= {limit}" if plan.infinite > 0 else f"x <= -{limit}"


def _fits(plan: Plan) -> str:
    if not plan.check:
        return "return true;"
    unsigned, bits = plan.storage.startswith("u"), int(plan.storage.lstrip("uint"))
    lowest = 0 if unsigned else -(1 << (bits - 1))
    highest = (1 << bits) - 1 if unsigned else (1 << (bits - 1)) - 1
    tests = []
    if lowest > -(1 << 63):
        tests.append(f"sr::i64(x) >= {literal(lowest + (plan.missing == lowest))}")
    if highest < (1 << 63) - 1:
        tests.append(f"sr::i64(x) <= {literal(highest - (plan.missing == highest))}")
    inside = " && ".join(tests) or "true"
    if plan.codec == "sentinel":
        inside = f"({_is_missing(plan)}) || ({inside})"
    return f"return {inside};"


# --- the product --------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProductKernel:
    """All that a product kernel is compiled for; equal ones are the same code."""

    plan: Plan
    step: str  # a step of ``kernels/steps.cuh``
    tile: Tile
    a_k: bool  # whether k is the contiguous direction of the operand
    a_wide: bool  # whether four words lie side by side, aligned, wherever the kernel looks
    b_k: bool
    b_wide: bool
    c_wide: bool
    arg: bool = False  # whether the k that won is kept
    cluster: int = 1  # blocks of a cluster, which share a tile of C; 1: none do, or through memory
    sieve: bool = False  # whether only the best entries of each row are kept (``sr::Sieve``)

    @property
    def shared(self) -> int:
        """Bytes of shared memory."""
        word, tile = word_size(self.plan), self.tile
        stages = tile.shared(word)
        return max(stages, tile.bm * tile.bn * word) if self.cluster > 1 else stages


@functools.lru_cache(maxsize=1024)
def product_source(kernel: ProductKernel) -> str:
    """The text of a product kernel."""
    tile = kernel.tile
    clusters = kernel.cluster > 1
    given = flags(kernel.a_k, kernel.a_wide, kernel.b_k, kernel.b_wide)
    ways = flags(kernel.arg, clusters)
    headers = f"{'matrix' if tile.matrix else 'multiplier'}.cuh product.cuh"
    store = f"Epilogue<Step, Shape, {flags(kernel.c_wide)}>"
    if kernel.sieve:
        headers, store = f"{headers} sieve.cuh", "Sieve<Step, Shape>"
    bounds = f"{tile.threads}, {tile.blocks}"
    return entry(headers, "Store::Params", "Product::run", bounds, f"""
{algebra(kernel.plan)}
using Step = sr::{kernel.step}<Algebra>;
using Shape = sr::{tile.struct()};
using Store = sr::{store};
using Product = sr::Product<Step, Shape, {given}, Store, {ways}>;
static_assert(Product::BYTES == {kernel.shared}, "as the launch has it");
""", cluster=kernel.cluster)  # fmt: skip


@functools.lru_cache(maxsize=1024)
def join_source(kernel: ProductKernel) -> str:
    """The text of the kernel that reduces partial results, where k was split."""
    headers = f"{'matrix' if kernel.tile.matrix else 'steps'}.cuh epilogue.cuh"
    run = f"sr::ReduceSplits<Step, Shape, {flags(kernel.c_wide)}>::run"
    return entry(headers, PRODUCT(), run, kernel.tile.threads, f"""
{algebra(kernel.plan)}
using Step = sr::{kernel.step}<Algebra>;
using Shape = sr::{kernel.tile.struct()};
""")  # fmt: skip


@functools.lru_cache(maxsize=1024)
def find_source(kernel: ProductKernel, b_wide: bool) -> str:
    """The text of the kernel that finds the k of each entry in the tile of k that won.

    `b_wide`: four steps of k of B lie side by side, aligned.
    """
    a_wide = flags(kernel.a_k and kernel.a_wide)
    step = f"sr::{kernel.step}<Algebra>"
    run = f"sr::FindArg<{step}, {kernel.tile.bk}, {a_wide}, {flags(b_wide)}>::run"
    return entry("arg.cuh", PRODUCT(), run, LAST, algebra(kernel.plan))


#: Threads of a block of these two kernels, which run last; the rows and columns that it looks at.
LAST, FIND_ROWS, FIND_COLUMNS = 256, 8, 32

#: The parameters of a product, as kernels/schedule.cuh declares them.
PRODUCT = functools.partial(struct_of, "ProductParams")
