"""Chains of many states, whose steps all share a matrix, on the device.

A block that walks a chain would read the matrix from memory at each step. So all chains go on
together: a step is a product, and a kernel for the rest (``kernels/wide.cuh``). A walk that takes
less time than these launches, of fewer states, is for :mod:`.chain`.
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
from .source import STORAGE, algebra, flags, pack, word_size
from .views import address

__all__ = ["FIELDS", "best_path", "carry", "pairs_source", "posterior", "serves", "step_source",
           "together"]  # fmt: skip

Array = Any
Lengths = np.ndarray[Any, np.dtype[np.int64]]

#: The fields of sr::WideParams, in order: 8 bytes, then 4 bytes each.
_LONGS = """sums step powers logs offsets lows ends a e x end y lengths levels total whole states
    left right pairs from pointers path a_row a_col e_batch e_step x_batch x_row end_batch y_batch
    y_step y_row pairs_batch""".split()
_INTS = "n rows steps mode".split()
FIELDS = (*_LONGS, *_INTS)
_EVERY, _EXCLUSIVE, _RELATIVE = 1, 2, 4  # of mode

_HELD = 128  # words of a matrix's column that a block that walks a chain has in registers
_READ = 200  # the same, of a column that it reads in about the time of two launches
_THREADS = 256
_MOST = 1 << 30  # bytes of temporary arrays


def together(semiring: Semiring, dtype: np.dtype[Any], states: int) -> bool:
    """Whether all chains take a step together, where they share a matrix of so many states."""
    words = states * max(4, dtype.itemsize)
    if _logarithms(semiring):
        return dtype.kind not in "iub" and words > 4 * _HELD
    return dtype.name in ("float32", "float64") and words > 4 * _READ


def serves(semiring: Semiring, a: Array, *, reverse: bool = False) -> bool:
    """Whether chains of these matrices, (batch, steps, n, n), are carried here."""
    shared = all(n == 1 or (n and not a.strides[i]) for i, n in enumerate(a.shape[:2]))
    ordered = reverse and not semiring.commutes
    return shared and not ordered and together(semiring, a.dtype, a.shape[-1])


def _logarithms(semiring: Semiring) -> bool:
    return bool(joins_logarithms(semiring.add_expr)) and joins(semiring.mul_expr) == "+"


def carry(
    semiring: Semiring, a: Array, e: Array | None, x: Array | None, y: Array, lengths: Lengths, *,
    every: bool, reverse: bool, exclusive: bool,
) -> None:  # fmt: skip
    """Rows through chains of matrices; see :meth:`semiring_mm.engine.Chains.carry`."""
    mode = every * _EVERY + exclusive * _EXCLUSIVE
    for some in _parts(len(y), 4 * max(4, y.itemsize) * y[:1, 0].size):
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


def best_path(
    semiring: Semiring, a: Array, e: Array, x: Array, end: Array, path: Array, score: Array,
    lengths: Lengths,
) -> None:  # fmt: skip
    """The best sequence of states; see :meth:`semiring_mm.engine.Chains.best_path`."""
    for some in _parts(len(e), 2 * e[:1].size):
        pointers = device.current().xp.empty(e[some].shape, np.uint16)
        fields = {
            "path": address(path[some]), "total": address(score[some]), "steps": e.shape[1],
            "pointers": address(pointers), **_strides("e", e[some], "batch step"),
            **_strides("x", x[some], "batch"), **_strides("end", end[some], "batch"),
        }  # fmt: skip
        walk = _Walk(semiring, a[0, 0], False, len(pointers), fields, lengths[some], path=True)
        walk.run(0, int(lengths[some].max(initial=0)))


def posterior(
    a: Array, e: Array, x: Array, end: Array, total: Array, out: Array | None,
    pairs: Array | None, lengths: Lengths,
) -> None:  # fmt: skip
    """Probabilities of states and pairs; see :meth:`semiring_mm.engine.Chains.posterior`.

    Those of pairs are for all steps together.
    """
    each = e[:1].nbytes + (0 if pairs is None else 2 * e[:1].nbytes + pairs[:1].nbytes)
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
    left = right = None
    if pairs is not None:
        left, right = (xp.zeros(e.shape, word) for _ in range(2))
        fields |= {
            "left": address(left),
            "right": address(right),
            **_strides("pairs", pairs, "batch"),
        }
    walk = _Walk(semiring, a, True, batch, fields, lengths, wanted)
    walk.run(0, most)
    if left is None or right is None or steps < 2:
        return
    joined = xp.empty((batch, n, n), word)
    product(semirings["plus_times"], left[:, :-1].swapaxes(1, 2), right[:, 1:], joined)
    params = _packed(walk.fields | {
        "sums": address(joined), **_strides("a", walk.matrix.swapaxes(0, 1), "row col"),
    })  # fmt: skip
    kernel = device.current().kernel(pairs_source(e.dtype))
    kernel.launch(batch * n, _THREADS, 0, params)


def _parts(chains: int, each: int) -> list[slice]:
    """Chains, of which each takes so many bytes, that fit in the temporary memory."""
    step = max(1, _MOST // max(1, each))
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
        lengths: Lengths, wanted: int = 0, *, path: bool = False,
    ) -> None:  # fmt: skip
        self._here = here = device.current()
        xp, n, plan = here.xp, a.shape[-1], _plan(semiring, a.dtype)
        word, kept = np.dtype(f"f{word_size(plan)}"), {"lengths": xp.asarray(lengths)}
        self._semiring, self._from = semiring, None
        self.matrix = a.swapaxes(0, 1) if reverse else a  # (terms, entries)
        if _logarithms(semiring):
            self._semiring = semirings["plus_times"]
            powers, kept["ends"] = shifted(here, plan, self.matrix.swapaxes(0, 1))
            self.matrix = powers.swapaxes(0, 1)
            kept |= {"logs": xp.empty((2, rows, n), word), "offsets": xp.empty(rows)}
            kept["lows"] = xp.empty(rows, word)
        elif path:
            self._from = kept["from"] = xp.empty((rows, n), np.int32)
        self._powers, self._sums = (xp.empty((rows, n), self.matrix.dtype) for _ in range(2))
        kept["powers"], self._kept = self._powers, kept
        self.fields = fields | {name: address(x) for name, x in kept.items()} | {
            "n": n, "rows": rows // max(1, len(lengths)), **_strides("a", a, "row col"),
        }  # fmt: skip
        self._step = device.Kept(_packed(self.fields), 2)  # of which the sums and the step change
        source = step_source(plan, _logarithms(semiring), reverse, wanted, path)
        self._start = here.kernel(source).prepared(rows, _THREADS, 2 * _THREADS * word.itemsize)

    def run(self, first: int, steps: int) -> None:
        """Make steps, of which the first one, or what comes before all, takes no product."""
        if steps <= 0 or self._powers.size == 0:
            return
        stream, multiply = self._here.stream(), None
        self._step.launch(self._start, stream, (0, first))
        for step in range(first + 1, steps):
            if multiply is None:
                with device.recorded() as notes:
                    product(self._semiring, self._powers, self.matrix, self._sums, arg=self._from)
                multiply = calls.again(notes)
            else:
                multiply(stream)
            self._step.launch(self._start, stream, (address(self._sums), step))


def _packed(fields: dict[str, int]) -> bytes:
    values = [fields.get(name, 0) for name in FIELDS]
    return pack(tuple(values[: len(_LONGS)]), tuple(values[len(_LONGS) :]))


@functools.lru_cache(maxsize=64)
def _plan(semiring: Semiring, dtype: np.dtype[Any]) -> Plan:
    return make_plan(semiring, dtype, None, None, 1)


def _strides(name: str, x: Array, axes: str) -> dict[str, int]:
    """The address of an array, and the strides of the first axes, by their names."""
    steps = zip(axes.split(), x.strides, strict=False)
    return {name: address(x), **{f"{name}_{axis}": stride // x.itemsize for axis, stride in steps}}


@functools.lru_cache(maxsize=64)
def step_source(
    plan: Plan, logarithms: bool, reverse: bool, wanted: int = 0, path: bool = False
) -> str:
    """The text of the kernel that comes behind a product; see sr::WideStep and sr::WideJoin."""
    step = f"WideStep<Algebra, {flags(reverse)}, {wanted}>"
    if not logarithms:
        step = f"WideJoin<Algebra, {flags(reverse, path)}>"
    return f"""#include "wide.cuh"
{algebra(plan)}
extern "C" __global__ void __launch_bounds__({_THREADS})
kernel(const __grid_constant__ sr::WideParams p) {{
  sr::{step}::run(p);
}}
"""


@functools.lru_cache(maxsize=64)
def pairs_source(dtype: np.dtype[Any]) -> str:
    """The text of the kernel that finds probabilities of pairs; see sr::WidePairs."""
    return f"""#include "wide.cuh"
extern "C" __global__ void __launch_bounds__({_THREADS})
kernel(const __grid_constant__ sr::WideParams p) {{
  sr::WidePairs<{STORAGE[dtype.name]}>::run(p);
}}
"""
