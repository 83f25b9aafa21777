"""Run the rungs, check each against NumPy, and time them by the device's clock."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

import semiring_mm as sm
from bench import gpu_ceilings, machine
from bench.gpu_clock import elapsed, timed
from semiring_mm.expressions import evaluate
from semiring_mm.gpu import device
from semiring_mm.gpu.source import Step, steps, word_size
from semiring_mm.gpu.views import to_host
from semiring_mm.semirings import Semiring

from . import rungs
from .rungs import Loop, VectorLoop
from .steps import BLOCKS, ELEMENTS, LANES, PRODUCT, ROWS, STAGES, VECTOR, Rung

__all__ = [
    "CUBLAS", "Operands", "expected", "ladder", "measure", "once", "rungs_of", "wanted", "whole",
]  # fmt: skip

Array = Any
CUBLAS = "cuBLAS"
_SAMPLE, _SAMPLES, _SECONDS = 2e-3, 7, 0.25  # seconds of a sample; samples, unless they take longer
_LOCAL, _REGISTERS = 3, 4  # of CUfunction_attribute
_LARGEST_SWEEP = 2048  # a block of one thread takes seconds beyond
_ROUNDED = frozenset({"exp", "log", "log1p", "expm1", "logaddexp", "sqrt", "/"})


# --- operands and expected results ----------------------------------------------------------------


def whole(semiring: Semiring, rng: Any, shape: tuple[int, ...]) -> Array:
    """Small whole numbers in the semiring's domain, which most semirings compute exactly."""
    low, high = {"binary": (0, 2), "nonnegative": (0, 5), "positive": (1, 5)}.get(
        semiring.domain, (-4, 5)
    )
    return rng.integers(low, high, shape).astype(np.float32)


def expected(
    semiring: Semiring, a: NDArray[Any], b: NDArray[Any]
) -> tuple[NDArray[np.float64], float]:
    """A ⊗ B by NumPy in float64, one step of k after the other, and the error that is allowed.

    Returns
    -------
    values : array (m, n)
    error : float
        Of an entry, relative where it is more than 1; 0 where float32 is exact on such operands.
    """
    a, b = a.astype(np.float64), b.astype(np.float64)
    total = None
    for k in range(a.shape[1]):
        term = evaluate(semiring.mul_expr, a[:, k, None], b[None, k])
        term = np.asarray(term, np.float64)
        total = term if total is None else evaluate(semiring.add_expr, total, term)
    assert total is not None, "an empty k has no terms"
    rounds = _ROUNDED & (semiring.add_expr.ops() | semiring.mul_expr.ops())
    error = a.shape[1] * float(np.finfo(np.float32).eps) if rounds else 0.0
    return np.asarray(total, np.float64), error


def _agree(name: str, got: NDArray[Any], values: NDArray[np.float64], error: float) -> None:
    off = np.abs(got - values) / np.maximum(1, np.abs(values))
    if not np.all((got == values) | (off <= error)):
        i, j = np.unravel_index(int(np.argmin((got == values) | (off <= error))), got.shape)
        raise AssertionError(
            f"{name} is wrong: {got[i, j]:.9g} in place of {values[i, j]:.9g}, in column {j} of "
            f"sampled row {i}"
        )


@dataclass
class Operands:
    """A rung's operands A and B (or x) on the device, and its output."""

    a: Array
    b: Array
    c: Array
    by_columns: Array = None  # A of a matrix-vector product, by columns


def _operands(semiring: Semiring, verb: str, n: int, exact: bool) -> Operands:
    import cupy

    shapes: list[tuple[int, ...]] = [(n, n), (n, n) if verb == "product" else (n,)]
    rng = cupy.random.default_rng(1)
    if exact:
        a, b = (whole(semiring, rng, shape) for shape in shapes)
    else:
        make = rng.standard_normal if semiring.domain == "any" else rng.random
        a, b = (make(shape, dtype=cupy.float32) for shape in shapes)
        if semiring.domain == "binary":
            a, b = (x.round() for x in (a, b))
    c = cupy.empty(shapes[1], cupy.float32)
    return Operands(a, b, c, cupy.asfortranarray(a) if verb == "gemv" else None)


# --- the rungs as calls ---------------------------------------------------------------------------


def _matmul(semiring: Semiring, x: Operands) -> Array:
    return sm.matmul(x.a, x.b, semiring=semiring, out=x.c)


def _gemv(semiring: Semiring, x: Operands) -> Array:
    return sm.gemv(None, x.a, x.b, semiring=semiring)


def _gemv_columns(semiring: Semiring, x: Operands) -> Array:
    return sm.gemv(None, x.by_columns, x.b, semiring=semiring)


def _precise(precision: str) -> Callable[[Semiring, Operands], Array]:
    def call(semiring: Semiring, x: Operands) -> Array:
        return sm.gemm(None, x.a, x.b, semiring=semiring, precision=precision)

    return call


def _halves(semiring: Semiring, x: Operands) -> Array:
    return sm.gemm(None, x.a, x.b, semiring=semiring)


def _cublas(semiring: Semiring, x: Operands) -> Array:
    import cupy

    return cupy.matmul(x.a, x.b, out=x.c) if x.b.ndim == 2 else cupy.matmul(x.a, x.b)


#: Rungs that are calls of public functions, by :attr:`.steps.Rung.call`.
CALLS: dict[str, Callable[[Semiring, Operands], Array]] = {
    "matmul": _matmul, "fused": _matmul, "tf32": _precise("tf32"), "float16": _halves,
    "float32_emulated": _precise("float32_emulated"), "gemv": _gemv,
    "gemv columns": _gemv_columns, "cublas": _cublas,
}  # fmt: skip
_TENSOR = (
    Rung("10a", "tensor cores, TF32", "many more multipliers, on 10-bit fractions", call="tf32"),
    Rung("10b", "tensor cores, float16", "the same on half the bytes", call="float16", after="9"),
    Rung("10c", "tensor cores, float32 from three TF32", "the error of float32 at three products",
         call="float32_emulated", after="9"),
)  # fmt: skip
_FUSED = Rung(
    "10", "fused step", "operands ≥ 0: two steps of k in one three-input instruction", call="fused"
)


def rungs_of(semiring: Semiring, verb: str, arch: int) -> tuple[list[Rung], list[str]]:
    """Return the rungs available for a semiring on a chip, and a line for each that is not.

    The last rung is what the chip has beyond the general inner step: tensor cores for plus-times,
    three-input instructions for semirings of minima and maxima.
    """
    if verb == "gemv":
        return list(VECTOR), []
    found, notes = list(PRODUCT), []
    if semiring.add_kind == "+" and semiring.mul_kind == "*":
        if arch < 80:
            notes.append(f"rung 10, tensor cores: TF32 needs sm_80, and this is sm_{arch}")
        else:
            found += _TENSOR
    elif semiring.domain == "any" and _fused(semiring, arch) is not None:
        found.append(_FUSED)
    return found, notes


def wanted(chain: list[Rung], only: frozenset[str]) -> list[Rung]:
    """Select rungs by number, where "10" is all of 10a, 10b, ...; all if none are given."""
    return [r for r in chain if not only or {r.number, r.number.rstrip("abc")} & only]


def _fused(semiring: Semiring, arch: int) -> Step | None:
    """Return the fused step for nonnegative operands."""
    _, best = steps(rungs.plan_of(semiring), None, arch, arg=False)[0]
    return best if best.forbidden else None


def _call(semiring: Semiring, rung: Rung, x: Operands) -> Callable[[], Array]:
    if isinstance(rung.loop, Loop):
        loop = rung.loop
        return lambda: (rungs.product(semiring, loop, x.a, x.b, x.c), x.c)[1]
    if isinstance(rung.loop, VectorLoop):
        way, a = rung.loop, x.a if rung.loop.by_rows else x.by_columns
        return lambda: (rungs.gemv(semiring, way, a, x.b, x.c), x.c)[1]
    return functools.partial(CALLS[rung.call], semiring, x)


def _suited(rung: Rung, x: Operands) -> Operands:
    """Return the operands in the layout that a rung needs."""
    if rung.call == "fused":
        return replace(x, a=abs(x.a), b=abs(x.b))
    if rung.call == "float16":
        return replace(x, a=x.a.astype("float16"), b=x.b.astype("float16"))
    return x


# --- measuring ------------------------------------------------------------------------------------


def measure(call: Callable[[], Any]) -> list[float]:
    """Return samples of a call's seconds; the first call is not counted."""
    call()
    once = elapsed(call)
    repeats = max(1, int(_SAMPLE / once))
    wanted = min(_SAMPLES, max(1, int(_SECONDS / max(once, _SAMPLE))))
    return [float(f"{timed(call, repeats):.6g}") for _ in range(wanted)]


class _Check:
    """Sampled rows of the expected product of whole numbers, computed once."""

    def __init__(self, semiring: Semiring, verb: str, n: int) -> None:
        self.operands = _operands(semiring, verb, n, exact=True)
        rng = np.random.default_rng(n)
        self.rows = sorted({0, n - 1, *rng.integers(0, n, 2 if verb == "product" else 30).tolist()})
        self._semiring = semiring

    @functools.cached_property
    def values(self) -> tuple[NDArray[np.float64], float]:
        return self._of(self.operands)

    def _of(self, x: Operands) -> tuple[NDArray[np.float64], float]:
        a, b = to_host(x.a[self.rows]), to_host(x.b)
        return expected(self._semiring, a, b if b.ndim == 2 else b[:, None])

    def __call__(self, rung: Rung) -> None:
        x = _suited(rung, self.operands)
        x.c.fill(math.nan)
        result = _call(self._semiring, rung, x)()
        got = to_host(result[self.rows]).reshape(len(self.rows), -1)
        values, error = self.values if x is self.operands else self._of(x)
        if rung.call == "cublas" and (self._semiring.add, self._semiring.mul) != ("a + b", "a * b"):
            return
        if rung.call == "float16":
            error = 2.0**-10
        _agree(f"rung {rung.number}, {rung.name}, n = {len(x.a)}", got, values, error)


def _line(
    semiring: Semiring, verb: str, rung: Rung, n: int, check: _Check, x: Operands
) -> dict[str, Any]:
    check(rung)
    x = _suited(rung, x)
    samples = measure(_call(semiring, rung, x))
    line: dict[str, Any] = {
        "rung": rung.number, "name": rung.name, "after": rung.after, "n": n, "seconds": samples,
        "pairs": float(n) ** (3 if verb == "product" else 2),
    }  # fmt: skip
    if isinstance(rung.loop, Loop):
        loop = rung.loop
        kernel = rungs.product(semiring, loop, x.a, x.b, x.c)
        line |= _kernel(kernel, loop.tile.threads, loop.shared)
        line |= {"arguments": loop.arguments(), "stages": loop.stages}
        line |= rungs.traffic(loop.tile, loop.stages, n, n, n)._asdict()
    elif isinstance(rung.loop, VectorLoop):
        loop_v = rung.loop
        kernel = rungs.gemv(semiring, loop_v, x.a if loop_v.by_rows else x.by_columns, x.b, x.c)
        line |= _kernel(kernel, 256, 1024 * loop_v.rows * (loop_v.lanes > 1))
        line |= {"arguments": ", ".join(map(str, astuple(loop_v)))}
        line |= rungs.vector_traffic(loop_v, n, n)._asdict()
    elif rung.call == "matmul":
        here = device.current()
        tile = rungs.chosen(semiring, n, here.sms, here.arch, here.name)
        line |= {"arguments": f"sr::{tile.struct()}", "stages": tile.stages}
        line |= rungs.traffic(tile, tile.stages, n, n, n)._asdict()
    elif verb == "gemv":
        line |= {"read": 4.0 * (n * n + n), "written": 4.0 * n}
    return line


def _kernel(kernel: device.Kernel, threads: int, shared: int) -> dict[str, Any]:
    """Registers of a thread, bytes that did not fit into them, and blocks on a multiprocessor."""
    from cupy.cuda import driver

    at = kernel.function.ptr
    return {
        "registers": driver.funcGetAttribute(_REGISTERS, at),
        "spilled": driver.funcGetAttribute(_LOCAL, at),
        "shared_bytes": shared,
        "threads": threads,
        "blocks_per_sm": driver.occupancyMaxActiveBlocksPerMultiprocessor(at, threads, shared),
    }


def _ceilings(semiring: Semiring, arch: int) -> dict[str, float]:
    """Measure the best rate of the inner loop alone, for the general and the fused step."""
    plan = rungs.plan_of(semiring)
    if word_size(plan) != 4:
        return {}
    found = {}
    named = {"general": Step("General"), "fused": _fused(semiring, arch)}
    for name, step in named.items():
        if step is not None:
            found[name] = max(
                max(gpu_ceilings.rates(gpu_ceilings.of_step(plan, step, tile), tile, repeat=3))
                for tile in gpu_ceilings.TILES
            )
    return found


def ladder(
    semiring: Semiring,
    verb: str,
    sizes: Iterable[int],
    *,
    only: frozenset[str] = frozenset(),
    sweeps: bool = True,
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Run every rung at every size, checked and timed.

    Parameters
    ----------
    semiring : Semiring
    verb : {"product", "gemv"}
        C = A ⊗ B, or y = A ⊗ x; square matrices of float32.
    sizes : iterable of int
    only : frozenset of str
        Numbers of the rungs to climb; all if empty.
    sweeps : bool
        Whether the block sizes, elements per thread and so on are gone through too.
    tell : callable
        Called with a word on what is measured.

    Returns
    -------
    dict
        What is kept as JSON: the machine, the ceilings, a line for each rung and size.

    Raises
    ------
    AssertionError
        A rung's result is not NumPy's.
    """
    here = device.current()
    chain, notes = rungs_of(semiring, verb, here.arch)
    chain = wanted(chain, only)
    beside = Rung("", CUBLAS, "", call="cublas")
    sizes = sorted(set(sizes))
    tell("ceilings")
    result: dict[str, Any] = {
        "verb": verb,
        "semiring": {"name": semiring.name, "add": semiring.add, "mul": semiring.mul},
        "machine": machine.describe_device(),
        "versions": machine.device_versions(()),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": machine.commit(),
        "notes": notes,
        "ceilings": _ceilings(semiring, here.arch),
        "copy": max(gpu_ceilings.copies(1 << 30)),
        "lines": [],
        "sweeps": {},
    }
    swept: dict[str, dict[int, Any]] = (
        {"block": BLOCKS, "elements": ELEMENTS, "stages": STAGES} if verb == "product"
        else {"lanes": LANES, "rows": ROWS}
    )  # fmt: skip
    if verb == "product":
        tell("compiling")
        needed = [rung.loop for rung in chain]
        needed += [loop for more in swept.values() for loop in more.values() if sweeps]
        plan, aligned = rungs.plan_of(semiring), all(n % 4 == 0 for n in sizes)
        sources = [
            rungs.product_source(plan, loop, rungs.reach_of(loop, aligned))
            for loop in needed
            if isinstance(loop, Loop)
        ]
        with ThreadPoolExecutor() as pool:  # into the disk cache
            list(pool.map(lambda source: device.compiled(source, here.arch), sources))
    for n in sizes:
        check, x = _Check(semiring, verb, n), _operands(semiring, verb, n, exact=False)
        for rung in [*chain, beside]:
            tell(f"n = {n}: {rung.number} {rung.name}")
            result["lines"].append(_line(semiring, verb, rung, n, check, x))
        if sweeps and (n <= _LARGEST_SWEEP or verb == "gemv"):
            for name, loops in swept.items():
                for value, loop in loops.items():
                    tell(f"n = {n}: {name} {value}")
                    rung = Rung(name, str(value), "", loop)
                    line = _line(semiring, verb, rung, n, check, x)
                    result["sweeps"].setdefault(name, []).append(line | {"value": value})
        del check, x
        _free()
    return result


def once(
    semiring: Semiring, verb: str, n: int, only: frozenset[str], mark: Callable[[str], None]
) -> None:
    """Run every rung once, for a profiler; `mark` is called before each with its index."""
    import cupy

    chain, _ = rungs_of(semiring, verb, device.current().arch)
    x = _operands(semiring, verb, n, exact=False)
    chain = [*wanted(chain, only), Rung("", CUBLAS, "", call="cublas")]
    calls = [(rung, _call(semiring, rung, _suited(rung, x))) for rung in chain]
    for _, call in calls:
        call()
    cupy.cuda.get_current_stream().synchronize()
    cupy.cuda.profiler.start()
    for i, (_, call) in enumerate(calls):
        mark(str(i))
        call()
    cupy.cuda.get_current_stream().synchronize()
    cupy.cuda.profiler.stop()


def _free() -> None:
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()
