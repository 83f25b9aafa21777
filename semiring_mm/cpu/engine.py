"""The CPU engine: the verbs on NumPy arrays, run by code generated for the semiring.

Everything here takes checked arguments; the messages are in :mod:`semiring_mm.blas`.
"""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import functools
import hashlib
import itertools
import json
import math
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cache import cache_directory
from ..expressions import joins, joins_logarithms
from ..plan import (
    BROKEN,
    Facts,
    Plan,
    absent,
    bytewise,
    can_use_fma,
    can_use_keys,
    infinite_zero,
    make_plan,
    mode_of,
    needs_facts,
    overflow,
    scalar_bits,
    with_keys,
)
from ..semirings import Semiring, semirings
from ..storage import atomic_write
from ..version import __version__
from . import threads
from .base import BASE
from .combine import combine
from .compiler import KEPT, compile_functions, host_target
from .ir import Function, Type
from .memory import free_memory, from_host, mirror, to_host
from .product import GATHER, PARAMS, Shape, tile_shape

__all__ = [
    "BASE", "BATCH", "LOOK", "SPARSE", "TILE", "WHERE", "Facts", "closure_batch", "closure_block",
    "combine", "csr_product", "dia_product", "facts", "free_memory", "from_host", "gemv", "mirror",
    "product", "to_host", "xp",
]  # fmt: skip

Array = NDArray[Any]
Scalar = float | int | None

xp = np  # the namespace of the arrays
WHERE = ""  # its memory is, in messages
TILE = 256  # side of the squares in which algorithms walk over a matrix
LOOK = 1  # rows of the smallest block whose diagonal a closure looks at as it goes
BATCH = 0  # rows of the largest matrices that closure_batch may take
SPARSE = True  # whether graphs of few edges have a way of their own

_HEAD = object.__basicsize__  # of the C struct that every Python object begins with
_SLAB = 2048  # K of one slab of packed operands
_COLUMNS = 8192  # bytes of its width
_STRIP = 32 << 20  # bytes of an operand packed over the whole of K
_TILE = 2048  # side of the blocks that threads take
_SERIAL = 288**3  # pairs below which a second thread costs more than it brings


# --- code, compiled once for each plan ----------------------------------------------------------


@dataclass(frozen=True)
class _Product:
    call: Any
    shape: Shape
    size: int  # bytes of the compute type
    k_slab: int
    n_slab: int  # in compute elements
    params: Callable[[int, int, int], bytes]  # of a whole product without scalars, remembered


@functools.cache
def _check_array_layout() -> None:
    """The kernels read NumPy's array struct; make sure that it lies as its C API says."""
    probe = np.zeros((3, 5), np.int16)[:, ::2]
    address = id(probe) + _HEAD
    data = ctypes.c_void_p.from_address(address).value
    ndim = ctypes.c_int.from_address(address + 8).value
    dims = (ctypes.c_ssize_t * 2).from_address(
        ctypes.c_void_p.from_address(address + 16).value or 0
    )
    strides = (ctypes.c_ssize_t * 2).from_address(
        ctypes.c_void_p.from_address(address + 24).value or 0
    )
    seen = (data, ndim, tuple(dims), tuple(strides))
    if seen != (probe.ctypes.data, 2, probe.shape, probe.strides):
        raise RuntimeError(
            f"NumPy {np.__version__} on this interpreter lays its arrays out in an unknown way; "
            f"please report it"
        )


def _compile(functions: list[Function], arguments: int) -> Any:
    """Compile; the last function is the entry and takes this many Python objects or bytes."""
    _check_array_layout()
    entry = functions[-1]
    library = compile_functions(functions, host_target())
    kinds: list[Any] = [ctypes.py_object] * arguments
    if arguments > 4:  # the parameter block is fifth everywhere
        kinds[4] = ctypes.c_char_p
    return library.function(entry.name, *kinds)


@functools.lru_cache(maxsize=KEPT)
def _product_code(plan: Plan, arg: bool) -> _Product:
    from .product import product_functions

    shape = tile_shape(plan, host_target())
    call = _compile(product_functions(plan, host_target(), _HEAD, arg=arg), 7)
    size = int(plan.compute[1:]) // 8
    # the bytes of a bool C are many times its bits: as few visits to it as possible
    deep = 4 if plan.codec == "bits" else 1
    n_slab = _COLUMNS * 2 // max(deep, 2) // size // shape.nr * shape.nr
    params = functools.lru_cache(maxsize=256)(functools.partial(_params, plan))
    return _Product(call, shape, size, _SLAB * deep, n_slab, params)


@functools.lru_cache(maxsize=KEPT)
def _vector_code(plan: Plan, scaled: bool) -> Any:
    from .vector import gemv_functions

    return _compile(gemv_functions(plan, host_target(), _HEAD, scaled=scaled), 5)


@functools.lru_cache(maxsize=KEPT)
def _log_sum_code(plan: Plan) -> tuple[Any, Any]:
    from .logsum import finish_function, shift_function

    shift = _compile([shift_function(plan, host_target(), _HEAD)], 3)
    return shift, _compile([finish_function(plan, host_target(), _HEAD)], 6)


@functools.lru_cache(maxsize=KEPT)
def _entries_code(plan: Plan) -> Any:
    from .logsum import entries_function

    return _compile([entries_function(plan, host_target(), _HEAD)], 4)


@functools.lru_cache(maxsize=KEPT)
def _base_code(plan: Plan, predecessors: bool) -> Any:
    from .base import base_function

    function = base_function(plan, host_target(), _HEAD, predecessors=predecessors)
    return _compile([function], 3)


@functools.lru_cache(maxsize=KEPT)
def _scan_code(storage: str, missing: int | None) -> Any:
    from .scan import scan_function

    width = {"float64": "f64"}.get(storage, "f32") if "float" in storage else "i64"
    plan = Plan(
        semirings["min_plus"].add_expr, semirings["min_plus"].mul_expr, storage, width,
        missing=missing,
    )  # fmt: skip
    return _compile([scan_function(plan, host_target(), _HEAD)], 2)


class _Quick:
    """The shortest way to a small product in floating point: one call, nothing looked up twice.

    Its parameters fit any shape within the limits; pages of the workspace that a small product
    does not use are never touched.
    """

    def __init__(self, semiring: Semiring, dtype: np.dtype[Any], plan: Plan, code: _Product):
        self.semiring, self.dtype, self.plan, self.code = semiring, dtype, plan, code
        k_slab, self.n = _SLAB, code.n_slab // code.shape.nr * code.shape.nr
        self.params = _params(plan, code.shape.mc, k_slab, self.n)
        self.size = code.shape.workspace(code.size, code.shape.mc, k_slab, self.n, arg=False)
        self.product = ctypes.cast(code.call, ctypes.c_void_p)
        self.table = np.zeros(64, np.uint64)
        if needs_facts(semiring, dtype):
            from .scan import guarded_function

            function = guarded_function(plan, host_target(), _HEAD)
            objects = [ctypes.py_object] * 4
            self.call = compile_functions([function], host_target()).function(
                "guarded", *objects, ctypes.c_char_p, ctypes.py_object, ctypes.c_void_p
            )
            self.tail: tuple[Any, ...] = (self.table, self.product)
        else:
            self.call, self.tail = code.call, (self.table, self.table)

    def learn(self, buffer: Array) -> bool:
        """Whether the plan serves operands of the kinds that were refused; remember it."""
        from .scan import facts_of_kinds

        kinds = [int(x) for x in buffer[8:24].view(np.int64)]
        buffer[:64] = 0
        a, b = (facts_of_kinds(mask) for mask in kinds)
        plan, _ = _choose(self.semiring, self.dtype, a, b, None, 1, None, None, False)
        if plan == self.plan:
            self.table[kinds[0]] |= np.uint64(1 << kinds[1])
        return plan == self.plan


_quick: dict[tuple[Semiring, np.dtype[Any]], _Quick | None] = {}
_QUICK_DEPTH, _QUICK_PAIRS = 512, 160**3


def quick_product(semiring: Semiring, a: Array, b: Array) -> Array | None:
    """A ⊗ B for small matrices of floats of one dtype, or None to take the general way."""
    way = _quick.get((semiring, a.dtype))
    if way is None:
        return None
    m, k = a.shape
    n = b.shape[1]
    if k > _QUICK_DEPTH or n > way.n or m * n * k > _QUICK_PAIRS:
        return None
    c = np.empty((m, n), a.dtype)
    try:
        buffer = _local.buffer
    except AttributeError:
        buffer = _workspace(way.size)
    if buffer.nbytes < way.size:
        buffer = _workspace(way.size)
    way.call(a, b, c, buffer, way.params, *way.tail)
    if buffer.item(0):
        return quick_product(semiring, a, b) if way.learn(buffer) else None
    return c


def _make_quick(semiring: Semiring, dtype: np.dtype[Any], plan: Plan, code: _Product) -> None:
    """The first small product of its kind notes it, the second compiles the shorter way."""
    key = (semiring, dtype)
    if key not in _quick:
        if len(_quick) >= KEPT:
            _quick.clear()
        _quick[key] = None
    elif _quick[key] is None and not plan.keep_nan and dtype.kind == "f":
        _quick[key] = _Quick(semiring, dtype, plan, code)


_local = threading.local()


def _workspace(size: int) -> NDArray[np.uint8]:
    """This thread's buffer, kept between calls (fresh pages cost a tenth of a product)."""
    buffer: NDArray[np.uint8] | None = getattr(_local, "buffer", None)
    if buffer is None or buffer.nbytes < size:
        raw = np.empty(size + 4096, np.uint8)
        first = -raw.ctypes.data % 4096
        buffer = _local.buffer = raw[first : first + size]
        buffer[:64] = 0
    return buffer


# --- what this core is good at ------------------------------------------------------------------


@functools.cache
def calibration() -> dict[str, bool]:
    """Whether fused multiply-adds beat additions here, and integer minima those of floats.

    Some cores run additions and minima on the same two pipes and fused multiply-adds on two others,
    so that ``fma(b, 1, a)`` doubles a min-plus product; on others it brings nothing. The
    micro-kernels themselves are timed, for about a millisecond.
    """
    return _measured_once("calibration", ("fma", "keys"), (host_target(),), _calibrate)


@functools.cache
def blas_wins() -> bool:
    """Whether NumPy's BLAS multiplies float32 faster than the engine, on all threads."""
    key = (host_target(), np.__version__, threads.default_threads())
    return _measured_once("blas", ("wins",), key, _race_blas)["wins"]


def _measured_once(
    what: str, names: tuple[str, ...], key: object, measure: Callable[[], dict[str, bool]]
) -> dict[str, bool]:
    """A measurement that is kept in the user's cache directory for this processor."""
    digest = hashlib.sha256(repr((key, __version__)).encode()).hexdigest()[:16]
    path = cache_directory() / f"{what}-{digest}.json"
    try:
        kept = json.loads(path.read_text())
        if set(kept) == set(names):
            return {name: bool(value) for name, value in kept.items()}
    except (OSError, ValueError, TypeError):
        pass
    found = measure()
    with contextlib.suppress(OSError):  # a read-only home costs the measurement each time
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as part:
            part.write_text(json.dumps(found))
    return found


def _calibrate() -> dict[str, bool]:
    from .product import micro_function

    target = host_target()
    facts = Facts(0.0, 1.0, False)
    plus = make_plan(semirings["min_plus"], np.dtype("f4"), facts, facts, 1)
    order = make_plan(semirings["max_min"], np.dtype("f4"), facts, facts, 1)
    forms = {"plus": plus, "max": order, "keys": with_keys(order)}
    if target.fma:
        forms["fma"] = replace(plus, fma=True)
    functions, shapes = [], {}
    for name, plan in forms.items():
        shapes[name] = tile_shape(plan, target)
        functions.append(micro_function(plan, shapes[name], arg=False, name=name))
    library = compile_functions(functions, target)
    depth = 256
    buffer = np.full(4 * depth * 64, 1.0, np.float32)
    start = buffer[-buffer.ctypes.data % 64 // 4 :].ctypes.data
    rates: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(7):
        for name, shape in shapes.items():
            call = library.function(
                name, ctypes.c_ssize_t, *[ctypes.c_void_p] * 5, ctypes.c_ssize_t
            )
            begin = time.perf_counter()
            for _ in range(4):
                call(depth, start, start, start + 4 * depth * 48, start, start, 0)
            rates[name].append(shape.mr * shape.nr / (time.perf_counter() - begin))
    best = {name: max(rate) for name, rate in rates.items()}
    return {
        "fma": best.get("fma", 0.0) > 1.1 * best["plus"],
        "keys": best["keys"] > 1.1 * best["max"],
    }


def _race_blas() -> dict[str, bool]:
    n, semiring = 640, semirings["plus_times"]
    a = np.linspace(-1, 1, n * n, dtype=np.float32).reshape(n, n)
    c = np.empty_like(a)
    plan, code = _choose(semiring, a.dtype, None, None, None, 1, None, None, False)

    def own() -> None:
        _run_product(
            semiring, plan, code, a, a, c, False, None, None, None, None, "", False, None
        )  # fmt: skip

    def blas() -> None:
        np.matmul(a, a, out=c)

    best = []
    for run in (own, blas):  # not in turns: the threads of a BLAS may spin for a while
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            run()
            times.append(time.perf_counter() - begin)
        best.append(min(times))
    return {"wins": best[1] < best[0]}


_SMALL = 96**3  # pairs below which the way to a BLAS costs more than it brings


def _blas_serves(semiring: Semiring, *operands: Array) -> bool:
    """Whether a plain product is NumPy's business: where it is fastest and takes no copy.

    Its threads are its own, so it is left alone where the number of threads was set.
    """
    a, c = operands[0], operands[-1]
    if c.dtype.char not in "fd" or not _is_plus_times(semiring):
        return False
    if c.size * a.shape[-1] < _SMALL:
        return False
    for x in operands:
        size, strides, shape = x.itemsize, x.strides, x.shape
        if x.ndim == 1:
            if strides[0] != size:
                return False
            continue
        (m, n), (rs, cs) = shape[-2:], strides[-2:]
        if not (
            (cs == size and rs >= size * n and not rs % size)
            or (rs == size and cs >= size * m and not cs % size)
        ):
            return False
    if threads.get_num_threads() != threads.default_threads():
        return False
    return blas_wins() and all(x.flags.aligned for x in operands)


@functools.lru_cache(maxsize=1024)
def _is_plus_times(semiring: Semiring) -> bool:
    plus_times = semirings["plus_times"]
    return (semiring.add_expr, semiring.mul_expr) == (plus_times.add_expr, plus_times.mul_expr)


@functools.lru_cache(maxsize=4096)
def _tuned(plan: Plan) -> Plan:
    """The plan in the form that is fastest on this core."""
    if can_use_fma(plan) and plan.add.op in ("min", "max") and calibration()["fma"]:
        return replace(plan, fma=True)
    if can_use_keys(plan) and calibration()["keys"]:
        return with_keys(plan)
    return plan


# --- verbs --------------------------------------------------------------------------------------


def facts(semiring: Semiring, x: Array) -> Facts:
    """Range of an array's entries (any shape), and whether it holds NaN or an integer "no edge"."""
    if x.ndim < 2:
        x = x.reshape(1, -1)
    elif x.ndim > 2:
        if not x.flags.c_contiguous:
            return functools.reduce(Facts.join, (facts(semiring, part) for part in x), _NOTHING)
        x = x.reshape(-1, x.shape[-1])
    if x.size == 0:
        return _NOTHING
    code = _scan_code(x.dtype.name, infinite_zero(semiring, x.dtype))
    if x.size < 1 << 20 or threads.get_num_threads() == 1:
        return _scan(code, x)
    axis = 0 if x.shape[0] >= x.shape[1] else 1
    cuts = np.linspace(0, x.shape[axis], threads.get_num_threads() + 1).astype(int)
    found: list[Facts] = []
    parts = [x[a:b] if axis == 0 else x[:, a:b] for a, b in itertools.pairwise(cuts)]
    threads.run([functools.partial(_scan_into, code, part, found) for part in parts])
    return functools.reduce(Facts.join, found, _NOTHING)


_INF = float("inf")
_NOTHING = Facts(_INF, -_INF, False)


def _scan(code: Any, x: Array) -> Facts:
    out = np.empty(3, np.float64)
    code(x, out)
    if x.dtype.kind in "iu":
        whole = out.view(np.int64 if x.dtype.kind == "i" else np.uint64)
        lo, hi = int(whole[0]), int(whole[1])
        return Facts(lo, hi, bool(whole[2])) if lo <= hi else Facts(np.inf, -np.inf, True)
    return Facts(float(out[0]), float(out[1]), bool(out.view(np.int64)[2]))


def _scan_into(code: Any, x: Array, found: list[Facts]) -> None:
    found.append(_scan(code, x))


_pack_params = struct.Struct(f"{len(PARAMS)}q").pack


def _params(plan: Plan, m_block: int, k_slab: int, n_slab: int, **fields: int) -> bytes:
    one = scalar_bits(plan, 1.0) if plan.compute[0] == "f" else 0
    values = {
        "i1": -1, "j1": -1, "batch": 1, "m_block": m_block, "k_slab": k_slab, "n_slab": n_slab,
        "one": one,
    }  # fmt: skip
    return _pack_params(*((values | fields).get(name, 0) for name in PARAMS))


def _kind_of(x: Facts) -> Facts:
    """Facts as coarse as a plan in floating point needs them, so that few plans are looked up."""
    lo = x.lo if x.lo in (_INF, -_INF) else -1.0 if x.lo < 0 else 0.0 if x.lo == 0 else 1.0
    hi = x.hi if x.hi in (_INF, -_INF) else -1.0 if x.hi < 0 else 0.0 if x.hi == 0 else 1.0
    return Facts(lo, hi, x.special)


@functools.lru_cache(maxsize=KEPT)
def _choose(
    semiring: Semiring, dtype: np.dtype[Any], fa: Facts | None, fb: Facts | None,
    fc: Facts | None, depth: int, alpha: Scalar, beta: Scalar, arg: bool,
) -> tuple[Plan, _Product]:  # fmt: skip
    plan = make_plan(semiring, dtype, fa, fb, depth, c=fc, alpha=alpha, beta=beta)
    if arg and plan.codec == "sentinel":
        plan = replace(plan, annihilate=True)
    if arg and plan.codec == "bits":  # each entry has its own k
        plan = bytewise(plan)
    if alpha is None and beta is None:
        plan = _tuned(plan)
    return plan, _product_code(plan, arg)


def product(
    semiring: Semiring,
    a: Array,
    b: Array,
    c: Array,
    *,
    accumulate: bool = False,
    alpha: Scalar = None,
    beta: Scalar = None,
    arg: NDArray[np.int32] | None = None,
    gather: NDArray[np.int32] | None = None,
    known: tuple[Facts, Facts, Facts] | None = None,
    overlap: str = "",
    triangle: bool = False,
    precision: str | None = None,
    on_done: Callable[[float], None] | None = None,
) -> None:
    """C ← (α ⊗ A ⊗ B), or with `accumulate` C ← (α ⊗ A ⊗ B) ⊕ (β ⊗ C).

    Parameters
    ----------
    a, b, c : ndarray (batch, m, k), (batch, k, n), (batch, m, n), or without batch
        Any strides; one dtype. A batch stride of 0 repeats an operand.
    arg : ndarray of int32, shape of c, optional
        Receives the smallest k that attains each entry. With `gather` (an int32 matrix (k, n)) and
        `accumulate` it receives ``gather[k, j]`` instead, only where C strictly improves.
    known : tuple of Facts, optional
        Ranges of A, B and C; they are scanned where this is needed and not given.
    overlap : {"", "a", "b"}
        The operand that C coincides with, for an in-place product with a square matrix on the
        other side. The result is as if that operand had been copied first.
    triangle : bool
        Compute only blocks that touch the upper triangle (C is symmetric).
    precision : str, optional
        The least that will do; here float32 is always computed with as such.
    on_done : callable, optional
        Told the fraction done, from the calling thread.
    """
    plain = not (accumulate or alpha is not None or arg is not None or overlap or triangle)
    if plain and on_done is None and _blas_serves(semiring, a, b, c):
        with np.errstate(all="ignore"):
            np.matmul(a, b, out=c)
        return
    depth = a.shape[-1]
    if not (arg is not None or overlap or triangle) and _shifting_pays(semiring, a, c, alpha):
        _log_sum_product(semiring, a, b, c, accumulate, alpha, beta)
        if on_done is not None:
            on_done(1.0)
        return
    fa = fb = fc = None
    if needs_facts(semiring, a.dtype):
        if known is not None:
            fa, fb, fc = known
        else:
            fa, fb = facts(semiring, a), facts(semiring, b)
            fc = facts(semiring, c) if accumulate else None
        if a.dtype.kind == "f":
            fa, fb, fc = _kind_of(fa), _kind_of(fb), None if fc is None else _kind_of(fc)
    k_matters = depth if a.dtype.kind in "iu" else 1
    plan, code = _choose(
        semiring, a.dtype, fa, fb, fc if accumulate else None, k_matters, alpha, beta,
        arg is not None,
    )  # fmt: skip
    _run_product(
        semiring, plan, code, a, b, c, accumulate, alpha, beta, arg, gather, overlap, triangle,
        on_done,
    )  # fmt: skip


_SHIFTED, _THIN = 160**3, 16  # pairs, and steps or rows, from which exponentials of A and B gain


def _shifting_pays(semiring: Semiring, a: Array, c: Array, alpha: Scalar) -> bool:
    """Whether a product is to be one over plus-times of shifted exponentials."""
    if a.dtype.kind in "iub" or not _is_log_plus(semiring):
        return False
    (m, n), k = c.shape[-2:], a.shape[-1]
    large = m * n * k >= _SHIFTED and min(m, n, k) >= _THIN
    return large and (alpha is None or math.isfinite(alpha))


@functools.lru_cache(maxsize=1024)
def _is_log_plus(semiring: Semiring) -> bool:
    return joins_logarithms(semiring.add_expr) and joins(semiring.mul_expr) == "+"


def _log_sum_product(
    semiring: Semiring, a: Array, b: Array, c: Array, accumulate: bool, alpha: Scalar, beta: Scalar
) -> None:
    from . import logsum

    if c.ndim == 3:
        for x, y, z in zip(a, b, c, strict=True):
            _log_sum_product(semiring, x, y, z, accumulate, alpha, beta)
        return
    if c.strides[0] == c.itemsize != c.strides[1]:  # C is written along its rows
        a, b, c = b.T, a.T, c.T
    plan, code = _choose(semiring, a.dtype, None, None, None, 1, alpha, beta, False)
    mode = mode_of(accumulate, alpha, beta)

    def direct(a: Array, b: Array, c: Array) -> None:
        _run_product(
            semiring, plan, code, a, b, c, accumulate, alpha, beta, None, None, "", False, None
        )  # fmt: skip

    tools = logsum.Tools(
        functools.partial(product, semirings["plus_times"]),
        functools.partial(product, semirings["lor_land"]),
        direct,
        *_log_sum_code(plan),
        lambda *arrays: _entries_code(plan)(*arrays),
        lambda i, j, least: _params(
            plan, 0, 0, 0, i0=i, i1=j, mode=mode, alpha=scalar_bits(plan, alpha),
            beta=scalar_bits(plan, beta), least=scalar_bits(plan, least),
        ),
    )  # fmt: skip
    logsum.product(tools, plan, a, b, c, accumulate=accumulate, alpha=alpha, beta=beta)


def _loses_when_stored(plan: Plan, arg: bool) -> bool:
    """Whether C cannot hold a partial result between two slabs of K.

    An integer that will fit at the end may not fit yet, and a 16-bit float would be rounded more
    than once (which a minimum does not mind, but the search for its k does).
    """
    short = plan.storage in ("float16", "bfloat16")
    return plan.check or (short and (arg or joins(plan.add) not in ("min", "max")))


def _run_product(
    semiring: Semiring, plan: Plan, code: _Product, a: Array, b: Array, c: Array,
    accumulate: bool, alpha: Scalar, beta: Scalar, arg: Array | None, gather: Array | None,
    overlap: str, triangle: bool, on_done: Callable[[float], None] | None,
) -> None:  # fmt: skip
    m, n = c.shape[-2:]
    depth, batch = a.shape[-1], c.shape[0] if c.ndim == 3 else 1
    unit = 32 if plan.codec == "bits" else 1
    whole = -(-max(depth, 1) // 64) * 64  # packed panels begin on cache lines
    k_slab = _share(whole, code.k_slab, 64)
    words = -(-n // unit)
    width = -(-words // code.shape.nr) * code.shape.nr
    n_slab = _share(width, code.n_slab, code.shape.nr)
    if overlap == "b":  # a strip of C's columns at a time, packed over the whole of K before
        k_slab, n_slab = whole, min(_strip(code, whole, width), width)
    elif depth > k_slab and _loses_when_stored(plan, arg is not None):
        narrowed = n_slab * k_slab // whole // code.shape.nr * code.shape.nr
        k_slab, n_slab = whole, max(code.shape.nr, narrowed)
    m_block = code.shape.mc
    if k_slab > code.k_slab:
        fits = _STRIP // (k_slab * code.shape.a_size(code.size))
        m_block = max(code.shape.mr, min(m_block, fits // code.shape.mr * code.shape.mr))
    size = code.shape.workspace(code.size, m_block, k_slab, n_slab, arg=arg is not None)
    k_array = c if arg is None else arg
    p_array = c if gather is None else gather
    pairs = m * n * depth
    if (
        batch == 1 and (pairs < _SERIAL * unit or threads.get_num_threads() == 1)
        and not (accumulate or arg is not None or alpha is not None or triangle or overlap)
        and on_done is None
    ):  # fmt: skip
        buffer = _workspace(size)
        if pairs <= _QUICK_PAIRS:
            _make_quick(semiring, a.dtype, plan, code)
        code.call(a, b, c, buffer, code.params(m_block, k_slab, n_slab), c, c)
        if buffer[0]:
            _does_not_fit(semiring, buffer, c)
        return
    mode = mode_of(accumulate, alpha, beta) | (GATHER if gather is not None else 0)
    common = {
        "mode": mode, "alpha": scalar_bits(plan, alpha), "beta": scalar_bits(plan, beta),
        "a_batch": a.strides[0] if a.ndim == 3 else 0,
        "b_batch": b.strides[0] if b.ndim == 3 else 0,
        "c_batch": c.strides[0] if c.ndim == 3 else 0,
    }  # fmt: skip

    def block(i0: int, i1: int, j0: int, j1: int, first: int, count: int) -> None:
        fields = dict(common)
        a_view, p_view = a, p_array
        if overlap == "a":  # the rows of A as they were
            a_view = np.array(a[i0:i1])
        if gather is not None and overlap == "b":  # the strip of P as it was
            p_view = np.array(gather[:, j0:j1])
            fields["pred_offset"] = -j0 * p_view.strides[1]
        buffer = _workspace(size)
        fields |= {
            "i0": i0, "i1": i1, "j0": j0, "j1": j1, "batch": count,
            "a_offset": first * common["a_batch"], "b_offset": first * common["b_batch"],
            "c_offset": first * common["c_batch"],
        }  # fmt: skip
        if arg is not None and arg.ndim == 3:
            fields["arg_offset"] = first * arg.strides[0]
        if overlap == "a":
            fields["a_offset"] = -i0 * a_view.strides[0]
        block_params = _params(plan, m_block, k_slab, n_slab, **fields)
        code.call(a_view, b, c, buffer, block_params, k_array, p_view)
        if buffer[0]:
            _does_not_fit(semiring, buffer, c)

    blocks = _split(m, n, depth, batch, unit, code.shape, overlap, triangle, n_slab * unit)
    if triangle:
        blocks = [x for x in blocks if x[3] > x[0]]
    total = sum((i1 - i0) * (j1 - j0) for i0, i1, j0, j1, *_ in blocks) or 1
    done = [0.0]
    for x in blocks:
        done.append(done[-1] + (x[1] - x[0]) * (x[3] - x[2]) / total)
    threads.run(
        [functools.partial(block, *x) for x in blocks],
        (lambda count: on_done(done[count])) if on_done else None,
    )


def _strip(code: _Product, depth: int, width: int) -> int:
    """Columns, in compute elements, of an operand that is packed over the whole of K."""
    fits = _STRIP // (depth * code.size)
    shared = -(-width // threads.get_num_threads())
    nc = code.shape.nc
    return max(nc, min(code.n_slab, fits, shared) // nc * nc)


def _split(
    m: int,
    n: int,
    depth: int,
    batch: int,
    unit: int,
    shape: Shape,
    overlap: str,
    triangle: bool,
    strip: int,
) -> list[tuple[int, int, int, int, int, int]]:
    """Cut C into blocks for the threads: (i0, i1, j0, j1, first matrix, matrices)."""
    workers = threads.get_num_threads()
    if batch > 1 and (batch >= 4 * workers or m * n * depth < _SERIAL * unit):
        pieces = min(batch, 8 * workers) if m * n * depth * batch >= _SERIAL * unit else 1
        cuts = np.linspace(0, batch, pieces + 1).astype(int).tolist()
        return [(0, m, 0, n, x, y - x) for x, y in itertools.pairwise(cuts)]
    if m * n * depth < _SERIAL * unit // 8 or (workers == 1 and m * n < 2048 * 2048 * unit):
        tile = [(0, m, 0, n)]
    else:
        # every block packs its rows of A and its columns of B anew: few blocks, but some to share
        down, across = max(1, round(m / _TILE)), max(1, round(n / (_TILE * unit)))
        while down * across < 2 * workers:
            if m // down >= n // (across * unit) and m // down >= 2 * shape.mc:
                down *= 2
            elif n // across >= 2 * shape.nc * unit // 4:
                across *= 2
            else:
                break
        rows, columns = -(-m // down), -(-n // across)
        if overlap == "a":  # C's rows are A's: whole rows in one task
            rows, columns = _even(m, rows, shape.mr), n
        elif overlap == "b":
            rows, columns = m, strip
        elif triangle:  # whole blocks of the diagonal, small ones: half of those on it is waste
            side = min(_TILE // 4, max(4 * BASE, m // 8))
            rows, columns = _even(m, side, BASE), _even(n, side, math.lcm(BASE, shape.nr * unit))
        else:
            rows, columns = _even(m, rows, shape.mr), _even(n, columns, shape.nr * unit)
        tile = [
            (i, min(i + rows, m), j, min(j + columns, n))
            for i in range(0, m, rows)
            for j in range(0, n, columns)
        ]
    return [(*t, x, 1) for x in range(batch) for t in tile]


def _share(extent: int, slab: int, unit: int) -> int:
    """A slab of about this size (a quarter more at most) that leaves no small rest of `extent`."""
    pieces = max(1, math.ceil(extent / (1.25 * slab)))
    return -(-extent // (pieces * unit)) * unit


def _even(extent: int, block: int, unit: int) -> int:
    """The block size near `block` that cuts `extent` into nearly equal parts."""
    pieces = max(1, round(extent / block))
    return -(-extent // (pieces * unit)) * unit


def _does_not_fit(semiring: Semiring, buffer: Array, c: Array) -> None:
    buffer[:64] = 0
    raise overflow(semiring, c.dtype)


def gemv(
    semiring: Semiring,
    a: Array,
    x: Array,
    y: Array,
    *,
    accumulate: bool = False,
    alpha: Scalar = None,
    beta: Scalar = None,
    scale_x: bool = False,
) -> None:
    """y ← ((α ⊗ A) ⊗ x), or with `accumulate` y ← ((α ⊗ A) ⊗ x) ⊕ (β ⊗ y); A is (m, k).

    With `scale_x` y ← A ⊗ (α ⊗ x): A is then the right operand of a product with a row, x the left.
    """
    if not accumulate and alpha is None and _blas_serves(semiring, a, x, y):
        with np.errstate(all="ignore"):
            np.matmul(a, x, out=y)
        return
    m, depth = a.shape
    left, right = (x, a) if scale_x else (a, x)
    plan = _vector_plan(semiring, left, right, y if accumulate else None, depth, alpha, beta)
    code = _vector_code(plan, alpha is not None and not scale_x)
    size = 64 + (2048 + depth + 64) * (int(plan.compute[1:]) // 8)
    mode = mode_of(accumulate, alpha if scale_x else None, beta)

    def rows(i0: int, i1: int) -> None:
        buffer = _workspace(size)
        code(a, x, y, buffer, _params(
            plan, 0, 0, 0, i0=i0, i1=i1, mode=mode, alpha=scalar_bits(plan, alpha),
            beta=scalar_bits(plan, beta),
        ))  # fmt: skip
        if buffer[0]:
            _does_not_fit(semiring, buffer, y)

    workers = threads.get_num_threads()
    if m * depth < 1 << 17 or workers == 1 or m < 2 * workers:
        rows(0, m)
        return
    cuts = (np.linspace(0, m // 16, workers + 1).astype(int) * 16).tolist()
    cuts[-1] = m
    threads.run([functools.partial(rows, i, j) for i, j in itertools.pairwise(cuts) if i < j])


def _vector_plan(
    semiring: Semiring, a: Array, x: Array, y: Array | None, depth: int, alpha: Scalar,
    beta: Scalar,
) -> Plan:  # fmt: skip
    """Without a pass over the operands where that is possible: it would double the time.

    α scales `a`; `depth`: how many products an entry of y joins, at most.
    """
    dtype = a.dtype
    if not needs_facts(semiring, dtype) or dtype.kind not in "iu":
        return _factless_plan(semiring, dtype, depth if dtype.kind in "iu" else 1, alpha, beta)
    info = np.iinfo(dtype)
    widest = Facts(int(info.min), int(info.max), True)
    third = None if y is None else widest
    try:
        plan = make_plan(semiring, dtype, widest, widest, depth, c=third, alpha=alpha, beta=beta)
    except OverflowError:
        third = None if y is None else facts(semiring, y)
        left, right = facts(semiring, a), facts(semiring, x)
        plan = make_plan(semiring, dtype, left, right, depth, c=third, alpha=alpha, beta=beta)
    return plan


@functools.lru_cache(maxsize=4096)
def _factless_plan(
    semiring: Semiring, dtype: np.dtype[Any], depth: int, alpha: Scalar, beta: Scalar
) -> Plan:
    plan = make_plan(semiring, dtype, None, None, depth, alpha=alpha, beta=beta)
    if plan.codec == "bits":
        return bytewise(plan)
    return replace(plan, keep_nan=plan.compute[0] == "f")


def csr_product(
    semiring: Semiring, data: Array, indices: Array, indptr: Array, b: Array, c: Array, *,
    trans: bool = False, accumulate: bool = False, alpha: Scalar = None, beta: Scalar = None,
) -> None:  # fmt: skip
    """C ← (α ⊗ op(A) ⊗ B), or with `accumulate` ⊕ (β ⊗ C), for A in compressed rows.

    Raises ValueError for indices that are no columns, and row pointers that are none.
    """
    data, indices, indptr = (np.ascontiguousarray(x) for x in (data, indices, indptr))
    if trans:
        data, indices, indptr = _transposed(data, indices, indptr, c.shape[0])
    depth = 1
    if data.dtype.kind in "iu" and semiring.add_kind == "+":  # entries of a row, at most
        depth = max(1, int(np.diff(indptr).max()))

    def make(plan: Plan, scaled: bool, joined: bool, vector: bool) -> Any:
        return _csr_code(plan, indices.itemsize, vector, scaled, joined)

    _sparse_product(
        semiring, data, (data, indices, indptr), b, c, depth, False, accumulate, alpha, beta, make,
        functools.partial(even_rows, indptr),
    )  # fmt: skip


def even_rows(indptr: Array, parts: int) -> list[int]:
    """Where to cut a matrix into parts of nearly as many entries and rows."""
    rows = len(indptr) - 1
    steps = np.linspace(0, rows + int(indptr[-1]), parts + 1)[1:-1]
    key = lambda i: i + int(indptr[i])  # noqa: E731
    return sorted(bisect.bisect_left(range(rows), step, key=key) for step in steps)


def dia_product(
    semiring: Semiring, data: Array, offsets: Array, b: Array, c: Array, *, trans: bool = False,
    accumulate: bool = False, alpha: Scalar = None, beta: Scalar = None,
) -> None:  # fmt: skip
    """C ← (α ⊗ op(A) ⊗ B), or with `accumulate` ⊕ (β ⊗ C), for A stored by diagonals."""
    if data.strides[-1] != data.itemsize:
        data = np.ascontiguousarray(data)
    offsets = np.ascontiguousarray(-offsets if trans else offsets, np.int64)

    def make(plan: Plan, scaled: bool, joined: bool, vector: bool) -> Any:
        return _dia_code(plan, vector, scaled, joined)

    def cut(parts: int) -> list[int]:
        return [64 * round(x) for x in np.linspace(0, c.shape[0] // 64, parts + 1)[1:-1]]

    _sparse_product(
        semiring, data, (data, offsets, offsets), b, c, max(1, offsets.size), trans, accumulate,
        alpha, beta, make, cut,
    )  # fmt: skip


def _sparse_product(
    semiring: Semiring, data: Array, arrays: tuple[Array, Array, Array], b: Array, c: Array,
    depth: int, trans: bool, accumulate: bool, alpha: Scalar, beta: Scalar,
    make: Callable[[Plan, bool, bool, bool], Any], cut: Callable[[int], list[int]],
) -> None:  # fmt: skip
    """What both formats have in common: the plan, B and C as the kernels want them, threads."""
    from .sparse import CHUNK, ROWS
    from .sparse import PARAMS as FIELDS

    m, n = c.shape
    plan = _vector_plan(semiring, data, b, c if accumulate else None, depth, alpha, beta)
    zero = absent(semiring, c.dtype, plan)
    code = make(plan, alpha is not None, zero is not None, n == 1)
    if b.strides[0 if n == 1 else 1] != b.itemsize:
        b = np.ascontiguousarray(b)
    to = c if n == 1 or c.strides[1] == c.itemsize else np.ascontiguousarray(c)
    scalars = [scalar_bits(plan, x) for x in (alpha, beta, zero)]
    pack = struct.Struct(f"{len(FIELDS)}q").pack
    kept = max(CHUNK, 0 if data.ndim == 1 else ROWS * len(data))  # entries, of a band
    size = 128 + kept * (int(plan.compute[1:]) // 8)

    def rows(i0: int, i1: int) -> None:
        buffer = _workspace(size)
        params = pack(i0, i1, mode_of(accumulate, None, beta), *scalars, trans)
        code(*arrays, b, params, to, buffer)
        found = buffer[:2].tolist()
        buffer[:2] = 0
        if found[1]:
            raise ValueError(BROKEN)
        if found[0]:
            raise overflow(semiring, c.dtype)

    workers = threads.get_num_threads()
    if workers == 1 or data.size * n < 1 << 16 or m < 2 * workers:
        rows(0, m)
    else:
        cuts = [0, *cut(4 * workers), m]
        threads.run([functools.partial(rows, i, j) for i, j in itertools.pairwise(cuts) if i < j])
    if to is not c:
        c[...] = to


@functools.lru_cache(maxsize=KEPT)
def _csr_code(plan: Plan, index_size: int, vector: bool, scaled: bool, joined: bool) -> Any:
    from .sparse import csr_matrix_function, csr_vector_function

    make, index = csr_vector_function if vector else csr_matrix_function, Type("i", 8 * index_size)
    function = make(plan, host_target(), _HEAD, index, scaled=scaled, joined=joined)
    return _compile([function], 7)


@functools.lru_cache(maxsize=KEPT)
def _dia_code(plan: Plan, vector: bool, scaled: bool, joined: bool) -> Any:
    from .sparse import dia_matrix_function, dia_vector_function

    make = dia_vector_function if vector else dia_matrix_function
    return _compile([make(plan, host_target(), _HEAD, scaled=scaled, joined=joined)], 7)


@functools.lru_cache(maxsize=KEPT)
def _transpose_code(index_size: int, size: int) -> Any:
    from .sparse import transpose_function

    return _compile([transpose_function(Type("i", 8 * index_size), size, _HEAD)], 7)


def _transposed(
    data: Array, indices: Array, indptr: Array, columns: int
) -> tuple[Array, Array, Array]:
    """Aᵀ in compressed rows, the entries of each in A's order."""
    ends = np.zeros(columns + 2, indptr.dtype)
    entries, places = np.empty_like(data), np.empty_like(indices)
    broken = ctypes.create_string_buffer(1)
    code = _transpose_code(indices.itemsize, data.itemsize)
    code(data, indices, indptr, entries, broken, places, ends)
    if broken.raw != b"\0":
        raise ValueError(BROKEN)
    return entries, places, ends[:-1]


def closure_block(
    semiring: Semiring,
    a: Array,
    known: tuple[Facts, Facts, Facts] | None,
    predecessors: NDArray[np.int32] | None = None,
) -> None:
    """A ← A* in place for a matrix of at most :data:`BASE` rows with one on its diagonal."""
    fa, fb, fc = known or (None, None, None)
    plan = make_plan(semiring, a.dtype, fa, fb, a.shape[-1], c=fc)
    if plan.codec == "bits":
        plan = bytewise(plan)
    if plan.codec == "sentinel":
        plan = replace(plan, annihilate=True)
    plan = replace(plan, check=False)
    code = _base_code(plan, predecessors is not None)
    size = 64 + BASE * BASE * (int(plan.compute[1:]) // 8 + 4)
    code(a, _workspace(size), a if predecessors is None else predecessors)


def closure_batch(
    semiring: Semiring,
    a: Array,
    known: tuple[Facts, Facts, Facts] | None,
    out: Array,
    predecessors: NDArray[np.int32] | None = None,
) -> bool:
    """Out ← (I ⊕ A)* for a stack of matrices at once, or False where an engine has no such way."""
    return False
