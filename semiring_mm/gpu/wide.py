"""Chains over log_plus of many states, whose steps all share a matrix, on the device.

A block that walks a chain would read the matrix from memory at each step. So all chains go on
together: a step is a product over plus-times, and a kernel for the rest (``kernels/wide.cuh``).
Two launches a step: what takes no longer than these, few states, is for :mod:`.chain`.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ..expressions import joins, joins_logarithms
from ..plan import Plan, make_plan
from ..semirings import Semiring, semirings
from . import calls, device
from .logsum import shifted
from .product import product
from .source import algebra, flags, pack, word_size
from .views import address

__all__ = ["FIELDS", "carry", "posterior", "serves", "step_source"]

Array = Any
Lengths = np.ndarray[Any, np.dtype[np.int64]]

#: The fields of sr::WideParams, in order: 8 bytes, then 4 bytes each.
_LONGS = """sums step powers logs offsets lows ends a e x end y lengths levels total whole states
    left right pairs a_row a_col e_batch e_step x_batch x_row end_batch y_batch y_step y_row
    pairs_batch""".split()
_INTS = "n rows steps mode".split()
FIELDS = (*_LONGS, *_INTS)
_EVERY, _EXCLUSIVE, _RELATIVE = 1, 2, 4  # of mode

_HELD = 128  # words of a matrix's column that a block that walks a chain has in registers
_THREADS = 256
_MOST = 1 << 30  # bytes of temporary arrays


def serves(semiring: Semiring, a: Array) -> bool:
    """Whether chains of these matrices, (batch, steps, n, n), are carried here."""
    logarithms = joins_logarithms(semiring.add_expr) and joins(semiring.mul_expr) == "+"
    repeated = all(n == 1 or (n and not a.strides[i]) for i, n in enumerate(a.shape[:2]))
    words = a.shape[-1] * max(4, a.itemsize)
    return logarithms and a.dtype.kind not in "iub" and repeated and words > 4 * _HELD


def carry(
    semiring: Semiring, a: Array, e: Array | None, x: Array | None, y: Array, lengths: Lengths, *,
    every: bool, reverse: bool, exclusive: bool,
) -> None:  # fmt: skip
    """Rows through chains of matrices; see :meth:`semiring_mm.engine.Chains.carry`."""
    mode = every * _EVERY + exclusive * _EXCLUSIVE
    for some in _parts(len(y), 4 * y[:1, 0].size):
        fields = {"mode": mode, **_strides("y", y[some], "batch step row")}
        if not every:
            fields["y_step"] = 0
        if e is not None:  # reversed, the emissions of the next step are added
            fields |= _strides("e", e[some], "batch step")
            fields["e"] -= fields["e_step"] * e.itemsize if reverse else 0
        if x is not None:
            fields |= _strides("x", x[some], "batch row")
        counts = lengths[some]
        first = 0 if x is None else -1
        steps = int(counts.max(initial=0)) - exclusive
        walk = _Walk(semiring, a[0, 0], reverse, len(counts) * y.shape[2], fields, counts)
        walk.run(first, steps)


def posterior(
    a: Array, e: Array, x: Array, end: Array, total: Array, out: Array | None,
    pairs: Array | None, lengths: Lengths,
) -> None:  # fmt: skip
    """Probabilities of states and pairs; see :meth:`semiring_mm.engine.Chains.posterior`.

    Those of pairs are for all steps together.
    """
    each = 4 * e[:1].size + (0 if pairs is None else 4 * pairs[:1].size)
    for some in _parts(len(e), each):
        counts = lengths[some]
        _posterior(
            a[0, 0], e[some], x[some], end[some], total[some], None if out is None else out[some],
            None if pairs is None else pairs[some, 0], counts,
        )  # fmt: skip


def _posterior(
    a: Array, e: Array, x: Array, end: Array, total: Array, out: Array | None,
    pairs: Array | None, lengths: Lengths,
) -> None:  # fmt: skip
    xp, semiring = device.current().xp, semirings["log_plus"]
    (batch, steps, n), most = e.shape, int(lengths.max(initial=0))
    if most == 0:
        return
    plan = _plan(semiring, a.dtype)
    word = np.dtype(f"f{word_size(plan)}")
    rows, levels, whole = xp.empty(e.shape, word), xp.empty((batch, steps)), xp.empty(batch)
    ahead = {
        "levels": address(levels), "whole": address(whole), "steps": steps,
        **_strides("y", rows, "batch step"), **_strides("e", e, "batch step"),
    }  # fmt: skip
    fields = ahead | {
        "mode": _RELATIVE, "total": address(total), **_strides("x", x, "batch"),
        **_strides("end", end, "batch"),
    }  # fmt: skip
    _Walk(semiring, a, False, batch, fields, lengths).run(0, most)
    if out is None:
        return
    fields = ahead | {"states": address(out), **_strides("x", end, "batch")}
    wanted = 1 if pairs is None else 2
    left = right = added = None
    if pairs is not None:
        left, right = (xp.zeros(e.shape, word) for _ in range(2))
        added = xp.zeros(pairs.shape, word)
        fields |= {"left": address(left), "right": address(right), "pairs": address(added)}
        fields["pairs_batch"] = n * n
    walk = _Walk(semiring, a, True, batch, fields, lengths, wanted)
    walk.run(0, most)
    if pairs is None or steps < 2:
        return
    assert left is not None
    assert right is not None
    joined = xp.empty(pairs.shape, word)
    product(semirings["plus_times"], left[:, :-1].swapaxes(1, 2), right[:, 1:], joined)
    joined *= walk.matrix.swapaxes(0, 1)
    joined += added
    several = xp.asarray(lengths > 1)
    joined[several & ~xp.isfinite(whole)] = np.nan
    joined[~several] = 0
    pairs += joined


def _parts(chains: int, each: int) -> list[slice]:
    """Chains whose numbers, so many of each, fit in the temporary memory."""
    step = max(1, _MOST // (8 * max(1, each)))
    return [slice(i, i + step) for i in range(0, chains, step)]


class _Walk:
    """What carries rows over all steps, from the first one or from the last.

    Parameters
    ----------
    semiring : Semiring
    a : device array (n, n)
    reverse : bool
    rows : int
        Of all chains.
    fields : dict
        Of sr::WideParams.
    lengths : array of int64
    wanted : int
        See sr::WideStep.
    """

    def __init__(
        self, semiring: Semiring, a: Array, reverse: bool, rows: int, fields: dict[str, int],
        lengths: Lengths, wanted: int = 0,
    ) -> None:  # fmt: skip
        self._here = here = device.current()
        xp, n, plan = here.xp, a.shape[-1], _plan(semiring, a.dtype)
        word = np.dtype(f"f{word_size(plan)}")
        powers, ends = shifted(here, plan, a if reverse else a.swapaxes(0, 1))
        self.matrix = powers.swapaxes(0, 1)  # (terms, entries)
        self._powers, self._sums = (xp.empty((rows, n), word) for _ in range(2))
        self._kept = [
            self._powers, ends, xp.empty((2, rows, n), word), xp.empty(rows), xp.empty(rows, word),
            xp.asarray(lengths),
        ]  # fmt: skip
        names = "powers", "ends", "logs", "offsets", "lows", "lengths"
        fields = fields | dict(zip(names, map(address, self._kept), strict=True)) | {
            "n": n, "rows": rows // max(1, len(lengths)), **_strides("a", a, "row col"),
        }  # fmt: skip
        values = [fields.get(name, 0) for name in FIELDS]
        params = pack(tuple(values[: len(_LONGS)]), tuple(values[len(_LONGS) :]))
        self._step = device.Kept(params, 2)  # of which the sums and the step change
        kernel = here.kernel(step_source(plan, reverse, wanted))
        self._start = kernel.prepared(rows, _THREADS, _THREADS * word.itemsize)

    def run(self, first: int, steps: int) -> None:
        """Make steps, of which the first one, or what comes before all, takes no product."""
        if steps <= 0 or self._powers.size == 0:
            return
        stream, multiply = self._here.stream(), None
        self._step.launch(self._start, stream, (0, first))
        for step in range(first + 1, steps):
            if multiply is None:
                with device.recorded() as notes:
                    product(semirings["plus_times"], self._powers, self.matrix, self._sums)
                multiply = calls.again(notes)
            else:
                multiply(stream)
            self._step.launch(self._start, stream, (address(self._sums), step))


@functools.lru_cache(maxsize=64)
def _plan(semiring: Semiring, dtype: np.dtype[Any]) -> Plan:
    return make_plan(semiring, dtype, None, None, 1)


def _strides(name: str, x: Array, axes: str) -> dict[str, int]:
    """The address of an array, and the strides of the first axes, by their names."""
    steps = zip(axes.split(), x.strides, strict=False)
    return {name: address(x), **{f"{name}_{axis}": stride // x.itemsize for axis, stride in steps}}


@functools.lru_cache(maxsize=64)
def step_source(plan: Plan, reverse: bool, wanted: int) -> str:
    """The text of the kernel that comes behind a product; see sr::WideStep."""
    return f"""#include "wide.cuh"
{algebra(plan)}
extern "C" __global__ void __launch_bounds__({_THREADS})
kernel(const __grid_constant__ sr::WideParams p) {{
  sr::WideStep<Algebra, {flags(reverse)}, {wanted}>::run(p);
}}
"""
