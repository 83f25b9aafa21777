"""Chains of many states, whose steps all share a matrix, on the device: one launch for all steps.

A block that walks a chain alone would read the matrix from memory at each step. So groups of blocks
carry the rows of some chains together (``kernels/wide.cuh``): each block keeps some columns of the
matrix. A matrix that fits a block's registers is for :mod:`.chain`.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from ..expressions import joins, joins_logarithms
from ..plan import unseen_plan
from ..semirings import Semiring, semirings
from . import device
from .launch import entry, launch, struct_of
from .logsum import shifted
from .memory import copy
from .product import product
from .source import STORAGE, algebra, flags, word_size
from .views import address, placed

__all__ = [
    "best_path", "carry", "posterior", "serves", "together",
]  # fmt: skip

Array = Any
Lengths = np.ndarray[Any, np.dtype[np.int64]]

_EVERY, _EXCLUSIVE, _RELATIVE = 1, 2, 4  # of mode

_HELD = 128  # words of a matrix's column that a block that walks a chain has in registers
_THREADS, _WARPS = 256, 8
_ROWS = 8  # that a thread multiplies at once
_PASS = 64  # rows of a block that are multiplied at once
_MOST = 1 << 30  # bytes of temporary arrays
_STATES = 1 << 16  # of back pointers


def together(semiring: Semiring, dtype: np.dtype[Any], states: int) -> bool:
    """Whether groups of blocks carry chains that share a matrix of so many states."""
    if dtype.kind in "iub" or (dtype.itemsize < 4 and not _logarithms(semiring)):
        return False
    return states * max(4, dtype.itemsize) > 4 * _HELD


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
    mode, rows = every * _EVERY + exclusive * _EXCLUSIVE, y.shape[2]
    for some in _parts(len(y), 4 * max(4, y.itemsize) * y[:1, 0].size):
        fields = {"mode": mode, "rows": rows, "steps": a.shape[1]}
        fields |= placed("y", y[some], "batch step row")
        if not every:
            fields["y_step"] = 0
        if e is not None:  # reversed, the emissions of the next step are added
            fields |= placed("e", e[some], "batch step")
            fields["e"] -= fields["e_step"] * e.itemsize if reverse else 0
        if x is not None:
            fields |= placed("x", x[some], "batch row") | {"first": -1}
        own = lengths[some]
        _walk(semiring, a[0, 0], fields, len(own), _there(own, a.shape[1]), reverse=reverse)


def best_path(
    semiring: Semiring, a: Array, e: Array, x: Array, end: Array, path: Array, score: Array,
    lengths: Lengths,
) -> None:  # fmt: skip
    """The best sequence of states; see :meth:`semiring_mm.engine.Chains.best_path`."""
    if a.shape[-1] > _STATES:
        raise NotImplementedError(
            f"best paths through more than {_STATES} states are found on the host, got "
            f"{a.shape[-1]}: copy the arrays (x.get() in CuPy, x.cpu() in PyTorch)"
        )
    pitch = -(-e.shape[-1] // 8) * 8
    for some in _parts(len(e), 2 * e.shape[1] * pitch):
        pointers = device.scratch((*e[some].shape[:2], pitch), np.uint16)
        fields = {
            "path": address(path[some]), "total": address(score[some]), "steps": e.shape[1],
            "pointers": address(pointers), "states_pitch": pitch,
            **placed("e", e[some], "batch step"), **placed("x", x[some], "batch"),
            **placed("end", end[some], "batch"),
        }  # fmt: skip
        own = lengths[some]
        _walk(semiring, a[0, 0], fields, len(own), _there(own, e.shape[1]), path=True)


def posterior(
    a: Array, e: Array, x: Array, end: Array, total: Array, out: Array | None,
    pairs: Array | None, lengths: Array,
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
    pairs: Array | None, lengths: Array,
) -> None:  # fmt: skip
    semiring, (batch, steps, n) = semirings["log_plus"], e.shape
    word = np.dtype(f"f{word_size(unseen_plan(semiring, a.dtype, 1))}")
    rows, there = device.scratch(e.shape, word), _there(lengths, steps)
    levels, whole = (device.scratch(shape, np.float64) for shape in ((batch, steps), batch))
    ahead = {
        "levels": address(levels), "whole": address(whole), "steps": steps,
        **placed("y", rows, "batch step"), **placed("e", e, "batch step"),
    }  # fmt: skip
    fields = ahead | {
        "mode": _RELATIVE, "total": address(total), **placed("x", x, "batch"),
        **placed("end", end, "batch"),
    }  # fmt: skip
    _walk(semiring, a, fields, batch, there)
    if out is None:
        return
    fields = ahead | {"states": address(out), **placed("x", end, "batch")}
    wanted = 1 if pairs is None else 2
    left = right = None
    if pairs is not None:
        left, right = (device.scratch(e.shape, word, zero=True) for _ in range(2))
        more = {"left": address(left), "right": address(right)}
        fields |= more | placed("pairs", pairs, "batch")
    powers = _walk(semiring, a, fields, batch, there, reverse=True, wanted=wanted)
    if left is None or right is None or steps < 2:
        return
    joined = device.scratch((batch, n, n), word)
    product(semirings["plus_times"], left[:, :-1].swapaxes(1, 2), right[:, 1:], joined)
    params = struct_of("WideParams")
    source = entry("wide.cuh", params, f"sr::WidePairs<{STORAGE[e.dtype.name]}>::run", _THREADS)
    own = placed("a", powers.swapaxes(0, 1), "row col") | {"n": n}
    launch(
        source, params, batch * n, _THREADS, 0, fields | own, lengths=there, matrix=joined
    )  # fmt: skip


def _parts(chains: int, each: int) -> list[slice]:
    """Chains, of which each takes so many bytes, that fit in the temporary memory."""
    step = max(1, _MOST // max(1, each))
    return [slice(i, i + step) for i in range(0, chains, step)]


def _there(lengths: Array, steps: int) -> Array | None:
    """The lengths of chains on the device; None where all of them have all steps."""
    if type(lengths) is not np.ndarray:
        return lengths
    return None if (lengths == steps).all() else device.current().xp.asarray(lengths)


def _walk(
    semiring: Semiring, a: Array, fields: dict[str, int], chains: int, lengths: Array | None, *,
    reverse: bool = False, wanted: int = 0, path: bool = False,
) -> Array:  # fmt: skip
    """Carry rows over all steps, from the first one or (reversed) from the last.

    `fields` are those of sr::WideParams; `wanted`: see sr::WideChain. All chains have all steps
    without `lengths`, which are on the device. Returns the (n, n) that rows are multiplied by: over
    log_plus the exponentials of `a`.
    """
    here, n, plan = device.current(), a.shape[-1], unseen_plan(semiring, a.dtype, 1)
    per, logarithms = fields.get("rows", 1), _logarithms(semiring)
    word, ends = np.dtype(f"f{word_size(plan)}"), None
    matrix = a.swapaxes(0, 1) if reverse else a  # (terms, entries)
    if logarithms:
        powers, ends = shifted(here, plan, matrix.swapaxes(0, 1))
        matrix = powers.swapaxes(0, 1)
    matrix, rows = _in_vectors(matrix), chains * per
    if rows == 0:
        return matrix
    shape = _shape(n, rows, word.itemsize, here.sms, here.shared_limit, path)
    blocks, size = shape.groups * shape.members, 2 * rows * n * (word.itemsize // 4)
    carried = device.scratch(size + shape.groups, np.uint64, zero=True)
    offsets = device.scratch((blocks, shape.each), np.float64) if logarithms else None
    given = f"{flags(logarithms, reverse)}, {wanted}, {flags(path)}"
    run = f"sr::WideChain<Algebra, {given}, {shape.tile}, {flags(shape.held)}>::run"
    params = struct_of("WideParams")
    launch(
        entry("wide.cuh", params, run, f"{_THREADS}, 1", algebra(plan)), params, blocks, _THREADS,
        shape.room, fields | shape.fields() | placed("a", a, "row col"), matrix=matrix,
        pitch=matrix.strides[0] // word.itemsize, ends=ends, lengths=lengths, carried=carried,
        offsets=offsets, progress=carried[size:], n=n, rows=per, all=rows,
        together=shape.members > 1,
    )  # fmt: skip
    return matrix


def _in_vectors(x: Array) -> Array:
    """A matrix whose rows are contiguous and begin at multiples of 16 bytes."""
    (m, n), each = x.shape, 16 // x.itemsize
    pitch = -(-n // each) * each
    step = x.strides[0]
    if x.strides[1] == x.itemsize and step >= pitch * x.itemsize and not (address(x) | step) % 16:
        return x
    found = device.scratch((m, pitch), x.dtype)[:, :n]
    copy(x, found)
    return found


class _Shape(NamedTuple):
    """How rows and columns are shared by the blocks of a launch; see sr::WideParams."""

    groups: int
    each: int
    members: int
    columns: int
    passed: int
    parts: int
    terms: int
    spread: int
    column_part: int
    row_part: int
    tile: int  # rows that a thread multiplies at once
    held: bool
    room: int

    def fields(self) -> dict[str, int]:
        names = "each members columns parts terms spread column_part row_part room".split()
        return {name: getattr(self, name) for name in names} | {"pass": self.passed}


@functools.lru_cache(maxsize=256)
def _shape(n: int, rows: int, word: int, sms: int, limit: int, path: bool) -> _Shape:
    """The shape that takes the least time, of a block for each multiprocessor at most.

    Groups of few blocks wait for each other less, and have fewer rows; but a block has to hold more
    columns then.
    """
    best: tuple[float, _Shape] | None = None
    for groups in range(1, min(rows, sms) + 1):
        each = -(-rows // groups)
        if groups != -(-rows // each):
            continue
        members = sms // groups
        while members:
            for held in (True, False):
                found = _shaped(n, each, members, word, limit, path, held)
                if found is not None:
                    time, shape = found
                    if best is None or time <= best[0]:
                        best = time, shape._replace(groups=groups)
                    break
            members //= 2
    if best is None:
        raise NotImplementedError(
            f"chains of {n} states run on the host: copy the arrays (x.get() in CuPy, x.cpu() in "
            f"PyTorch), or multiply step by step by matmul"
        )
    return best[1]


def _shaped(
    n: int, each: int, members: int, word: int, limit: int, path: bool, held: bool
) -> tuple[float, _Shape] | None:
    """A shape of groups of some blocks, and about how many cycles it takes for a step."""
    vector = 16 // word
    columns = -(-n // (members * vector)) * vector
    members, lanes = -(-n // columns), columns // vector
    if lanes > _THREADS:
        return None
    tile = min(_ROWS, 1 << (each - 1).bit_length())
    sets = max(1, min(-(-each // tile), _THREADS // lanes, _PASS // tile))
    while True:
        passes = -(-each // (sets * tile))
        sets = -(-each // (passes * tile))
        passed = sets * tile
        terms = -(-n // min(_THREADS // lanes // sets, n))
        parts = -(-n // terms)
        # so that neighbouring parts lie in different banks, of 128 bytes
        column_part = (terms * lanes + (lanes - terms * lanes) % 8) * vector
        row_part = (terms + (1 - terms) % max(1, 32 // tile)) * tile
        sums = parts * passed * columns
        words = held * parts * column_part + -(-sets * parts * row_part // vector) * vector + sums
        room = words * word + passed * (8 + 2 * word) + 2 * word * (passed + _WARPS)
        if room <= limit or sets == 1:
            break
        sets = -(-sets // 2)
    room = max(room, _THREADS * (word + 4), 2 * (n + 7) * path)
    if room > limit:
        return None
    spread = min(32, 1 << (_THREADS // min(passed * columns, _THREADS)).bit_length() - 1)
    while (spread - 1) * -(-parts // spread) >= parts:  # some would have no part
        spread //= 2
    # cycles, of instructions or of shared memory
    warps = -(-lanes * sets * parts // 32)
    loop = terms * max(8, warps * max(tile * vector / 2, 4 + tile / 4) * word / 4)
    fetched = 0 if held else n * columns * word / 32
    joined = -(-passed * columns * spread // _THREADS) * (-(-parts // spread) * 12 + 100)
    time = passes * (loop + fetched + joined + passed * n / 16 + 1000)
    time += (members > 1) * (1000 + 8 * members)
    return time, _Shape(0, each, members, columns, passed, parts, terms, spread, column_part,
                        row_part, tile, held, room)  # fmt: skip
