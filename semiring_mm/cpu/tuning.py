"""Measurements of this processor, made once and kept in the user's cache directory."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import json
import time
from dataclasses import replace

import numpy as np

from ..cache import cache_directory
from ..plan import Facts, Plan, can_use_fma, can_use_keys, make_plan, with_keys
from ..semirings import semirings
from ..storage import atomic_write
from ..version import __version__
from .compiler import compile_functions, host_target
from .product_code import micro_function, tile_shape

__all__ = ["calibration", "tuned"]


@functools.lru_cache(maxsize=4096)
def tuned(plan: Plan) -> Plan:
    """The plan in the form that is fastest on this core."""
    if can_use_fma(plan) and plan.add.op in ("min", "max") and calibration()["fma"]:
        return replace(plan, fma=True)
    if can_use_keys(plan) and calibration()["keys"]:
        return with_keys(plan)
    return plan


@functools.cache
def calibration() -> dict[str, bool]:
    """Whether fused multiply-adds beat additions here, and integer minima those of floats.

    Kept in the user's cache directory for this processor.

    Some cores run additions and minima on the same two pipes and fused multiply-adds on two others,
    so that ``fma(b, 1, a)`` doubles a min-plus product; on others it brings nothing. The
    micro-kernels themselves are timed, for about a millisecond.
    """
    key = hashlib.sha256(repr((host_target(), __version__)).encode()).hexdigest()[:16]
    path = cache_directory() / f"calibration-{key}.json"
    try:
        kept = json.loads(path.read_text())
        if set(kept) == {"fma", "keys"}:
            return {name: bool(value) for name, value in kept.items()}
    except (OSError, ValueError, TypeError):
        pass
    found = _calibrate()
    with contextlib.suppress(OSError):  # a read-only home costs the measurement each time
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as part:
            part.write_text(json.dumps(found))
    return found


def _calibrate() -> dict[str, bool]:
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
