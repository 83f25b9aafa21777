"""Chains of products on the device: one launch, a block of threads for each chain or row of one.

Few chains of many steps are cut in parts, whose products are computed side by side: a parallel
scan of matrices by parts, as Blelloch's (1990) of numbers: reduce, scan what is left, and scan.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..expressions import joins, joins_logarithms, parse
from ..plan import Plan, make_step_plan, needs_facts, overflow, unseen_plan
from ..semirings import Semiring, semirings
from . import device, wide
from .combine import combine
from .facts import facts
from .launch import Replay, entry, launch, prepared, struct_of
from .source import STORAGE, algebra, flags, word_size
from .views import address, placed, to_host

__all__ = [
    "POINTERS", "Model", "best_path", "best_paths", "carry", "draw", "first", "path_source",
    "posterior", "posterior_source",
]  # fmt: skip

Array = Any
Lengths = np.ndarray[Any, np.dtype[np.int64]]

#: The addresses at the beginning of sr::ChainParams.
POINTERS = tuple("a e x end y total path pointers offsets pairs lengths errors tags".split())
_EVERY, _EXCLUSIVE, _WHOLE = 1, 2, 4  # of mode

_HELD = 128  # words up to which a thread has a column of the matrix in its registers
_MOST = 1024  # states: the threads of a block
_CHASED = 4096  # sr::BestPath's
_SUM = parse("a + b")


def carry(
    semiring: Semiring,
    a: Array,
    e: Array | None,
    x: Array | None,
    y: Array,
    lengths: Lengths,
    *,
    every: bool,
    reverse: bool,
    exclusive: bool,
) -> None:
    """Rows through chains of matrices; see :meth:`semiring_mm.engine.Chains.carry`.

    Waits for the device only where an integer's result may not fit its dtype.
    """
    if wide.serves(semiring, a, reverse=reverse):
        wide.carry(semiring, a, e, x, y, lengths, every=every, reverse=reverse, exclusive=exclusive)
        return
    whole = reverse or not _associates(semiring, a.dtype)
    if not whole and x is None and e is None and not every and _has_products(semiring, a):
        _product(semiring, a, y, lengths)
        return
    parts = 1 if whole else _parts(y.shape[-1], y.shape[-2], lengths)
    if parts == 1:
        _walk(semiring, a, e, x, y, lengths, every=every, reverse=reverse, exclusive=exclusive)
        return
    for i, length in enumerate(lengths.tolist()):
        own_e, own_x = (None if v is None else v[i : i + 1] for v in (e, x))
        _carry_in_parts(
            semiring, a[i : i + 1], own_e, own_x, y[i : i + 1], length, parts, every, exclusive
        )


#: ⊕ and ⊗ for which steps may be joined in any order but for rounding. Not sums of products, nor
#: maxima of them: a part alone may overflow, or be 0, where the whole chain does not.
_ASSOCIATE = {("min", "+"), ("max", "+"), ("min", "max"), ("max", "min"), ("|", "&"), ("^", "&")}
_WALKS = 16  # blocks of 32 threads that a multiprocessor runs at once without slowing them down
_LAUNCHES = 2048  # steps in whose time the host launches what a chain in parts takes


def _associates(semiring: Semiring, dtype: np.dtype[Any]) -> bool:
    """Whether a chain may be cut; 16-bit floats are carried in float32, and parts would not be."""
    add, mul = semiring.add_expr, semiring.mul_expr
    known = (joins(add), joins(mul)) in _ASSOCIATE
    logarithms = joins_logarithms(add) and joins(mul) == "+"
    return (known or logarithms) and dtype.name in ("float32", "float64", "bool")


def _parts(n: int, rows: int, lengths: Lengths) -> int:
    """In how many parts the steps of each chain of n states are to be cut.

    A part's product has a row for each state: that is as many times the work of a vector, for
    multiprocessors that have none otherwise.
    """
    most = int(lengths.max(initial=0))
    room = device.current().sms * max(1, min(_WALKS, 32 * _WALKS // (-(-n // 32) * 32)))
    parts = min(room // n, math.isqrt(3 * most))
    if parts < 2:
        return 1
    rounds = -(-len(lengths) * rows // room)
    cut = len(lengths) * (3 * -(-most // parts) + parts + _LAUNCHES)  # steps, one after the other
    return parts if cut < rounds * most else 1


def _carry_in_parts(
    semiring: Semiring, a: Array, e: Array | None, x: Array | None, y: Array, length: int,
    parts: int, every: bool, exclusive: bool,
) -> None:  # fmt: skip
    """The same for one chain, (1, steps, ...): parts' products, their prefixes, then all steps."""
    xp, (rows, n) = device.current().xp, y.shape[-2:]
    walk = functools.partial(_walk, semiring, reverse=False)
    size = max(1, -(-length // parts))
    parts = -(-length // size)
    if parts < 2:
        walk(a, e, x, y, np.array([length]), every=every, exclusive=exclusive)
        return

    def cut(v: Array | None, first: int) -> Array | None:
        return None if v is None else _pieces(v[:, first * size :], parts - first, size, size)

    sizes = np.full(parts, size)
    sizes[-1] = length - (parts - 1) * size
    products = xp.empty((parts, 1, n, n), y.dtype)
    walk(cut(a, 0), cut(e, 0), None, products, sizes, every=False, exclusive=False)
    products = products.reshape(1, parts, n, n)
    if not every:
        walk(products, None, x, y, np.array([parts]), every=False, exclusive=False)
        return
    ends = xp.empty((1, parts, rows, n), y.dtype)
    walk(products, None, x, ends, np.array([parts]), every=True, exclusive=False)
    starts = ends[0, :-1]  # of the second part and those behind it
    walk(a, e, x, y, sizes[:1], every=True, exclusive=exclusive)
    walk(cut(a, 1), cut(e, 1), starts, cut(y, 1), sizes[1:], every=True, exclusive=exclusive)
    if exclusive:
        y[0, size:length:size] = starts


def _pieces(v: Array, parts: int, size: int, steps: int) -> Array:
    """So many steps from each multiple of `size`; the last part may be shorter than it looks."""
    strided = device.current().xp.lib.stride_tricks.as_strided
    return strided(v[0], (parts, steps, *v.shape[2:]), (size * v.strides[1], *v.strides[1:]))


#: Of sr::ChainProduct: states, the threads of a block and its warps, the least steps of a part, and
#: blocks for each multiprocessor.
_FEW, _FULL, _BLOCK, _WARPS, _SHORT, _FILL = 9, 32, 256, 8, 16, 4


def _has_products(semiring: Semiring, a: Array) -> bool:
    """Whether sr::ChainProduct has the product of all matrices, each of its own."""
    logarithms = joins_logarithms(semiring.add_expr) and joins(semiring.mul_expr) == "+"
    return logarithms and bool(a.strides[1]) and _FEW <= a.shape[-1] <= _FULL


def _product(semiring: Semiring, a: Array, y: Array, lengths: Lengths) -> None:
    """The product of each chain's matrices: of parts side by side, and then of what these are."""
    here, n = device.current(), a.shape[-1]
    batch, most = len(lengths), int(lengths.max(initial=0))
    parts = max(1, min(_FILL * here.sms // max(batch, 1), most // _SHORT))
    size = max(1, -(-most // parts))
    parts = max(1, -(-most // size))
    found = y if parts == 1 else here.xp.empty((batch, parts, n, n), y.dtype)
    plan = _plan(semiring, a, n)
    fields = _fields(a, None) | {"steps": size, **placed("y", found, "batch step row")}
    rows = -(-n // _WARPS) * _WARPS
    room = 2 * rows * _line(n) * word_size(plan) + 8 * _WARPS
    source = _source(plan, _BLOCK, f"ChainProduct<Algebra, {n}>")
    _launch(here, source, lengths, parts, room, fields, threads=_BLOCK)
    if parts > 1:
        _product(semiring, found, y, -(-lengths // size))


class _Long:
    """A long chain, (1, steps, ...), in parts whose first step is the last one of the part before.

    What comes before a part and after it, for each state there, is found in float64: a part is a
    chain of its own then.
    """

    def __init__(
        self, semiring: Semiring, a: Array, e: Array, x: Array, end: Array, length: int, parts: int
    ) -> None:
        device.note_unknown()
        xp, n = device.current().xp, a.shape[-1]
        self._semiring, self._n, self.length = semiring, n, length
        self.size = -(-(length - 1) // parts)
        self.parts = -(-(length - 1) // self.size)
        self.counts = np.full(self.parts, self.size + 1)
        self.counts[-1] = length - (self.parts - 1) * self.size
        self.a, self.e = self._cut(a, e)
        wide = np.float64
        if a.strides[1]:
            a = a.astype(wide, copy=False)
        else:
            a = xp.broadcast_to(a[:, :1].astype(wide, copy=False), a.shape)
        a, e = self._cut(a, e.astype(wide, copy=False))
        products = xp.empty((self.parts, 1, n, n), wide)
        _walk(semiring, a, e[:, 1:], None, products, self.counts - 1, every=False, reverse=False,
              exclusive=False)  # fmt: skip
        self.products = products.reshape(1, self.parts, n, n)
        self.x, self.end = (v.astype(wide, copy=False) for v in (x, end))

    def _cut(self, a: Array, e: Array) -> tuple[Array, Array]:
        """Matrices between the steps of each part, and the emissions of these."""
        return (
            _pieces(a, self.parts, self.size, self.size),
            _pieces(e, self.parts, self.size, self.size + 1),
        )

    def ways(self, *, reverse: bool = False) -> Array:
        """What leads to the end of each part, or (reversed) from the start of each to the end."""
        found = device.current().xp.empty((1, self.parts, 1, self._n))
        x = self.end if reverse else self.x
        _walk(
            self._semiring, self.products, None, x[:, np.newaxis], found,
            np.array([self.parts]), every=True, reverse=reverse, exclusive=False,
        )  # fmt: skip
        return found[0, :, 0]

    def put(self, out: Array, found: Array) -> None:
        """Put the results of the parts (parts, size + 1, ...) together."""
        last = int(self.counts[-1])
        each = found[:, :-1].reshape(-1, *found.shape[2:])
        out[0, : self.length - 1] = each[: self.length - 1]
        out[0, self.length - 1] = found[-1, last - 1]


def _long_parts(semiring: Semiring, a: Array, lengths: Lengths) -> int:
    """In how many parts the chains of a model are to be cut."""
    n, logarithms = a.shape[-1], joins_logarithms(semiring.add_expr)
    if not _associates(semiring, a.dtype):
        return 1
    if logarithms and (a.strides[1] or 8 * n > 4 * _HELD):  # each sum would be term by term
        return 1
    return _parts(n, 1, lengths)


def _walk(
    semiring: Semiring, a: Array, e: Array | None, x: Array | None, y: Array, lengths: Lengths, *,
    every: bool, reverse: bool, exclusive: bool,
) -> None:  # fmt: skip
    """Rows through chains, each by a block of its own."""
    here = device.current()
    rows, n = y.shape[-2:]
    plan = _plan(semiring, a, n, e, reverse=reverse)
    errors = here.xp.zeros(1, np.uint32) if plan.check else None
    shared = a.strides[1] == 0
    logarithms = joins_logarithms(plan.add) and joins(plan.mul) == "+"
    given, states = (
        flags(shared, reverse, logarithms, e is not None, x is not None),
        _known(plan, n),
    )
    source = _source(plan, states, f"Carry<Algebra, {states}, {given}>")
    fields = _fields(a, e) | {
        "errors": address(errors), "mode": every * _EVERY + exclusive * _EXCLUSIVE,
        **placed("y", y, "batch step row"),
    }  # fmt: skip
    if x is not None:
        fields |= placed("x", x, "batch row")
    room = (4 if logarithms else 2) * _line(n) * word_size(plan) + _ring(n, a.itemsize)
    _launch(here, source, lengths, rows, room, fields)
    if errors is not None and int(errors[0]):
        raise overflow(semiring, y.dtype)


def first(start: Array, e: Array) -> Array:
    """See :meth:`semiring_mm.engine.Chains.first`."""
    found = device.scratch(start.shape, start.dtype)
    combine(_SUM, start, e, found)
    return found


def best_path(
    semiring: Semiring,
    a: Array,
    e: Array,
    x: Array,
    end: Array,
    path: Array,
    score: Array,
    lengths: Array,
    *,
    symbols: Array | None = None,
) -> None:
    """The best sequence of states; see :meth:`semiring_mm.engine.Chains.best_path`.

    Of few long chains it is found in parts: first the states at their ends.
    """
    e = e if symbols is None else e[symbols]
    if wide.serves(semiring, a):
        wide.best_path(semiring, a, e, x, end, path, score, lengths)
        return
    lengths = to_host(lengths)
    parts = _long_parts(semiring, a, lengths)
    if parts == 1:
        _best_path(semiring, a, e, x, end, path, score, lengths)
        return
    xp, n = device.current().xp, a.shape[-1]
    for i, length in enumerate(lengths.tolist()):
        one = slice(i, i + 1)
        model = a[one], e[one], x[one], end[one]
        if length <= parts:
            _best_path(semiring, *model, path[one], score[one], lengths[one])
            continue
        cut = _Long(semiring, *model, length, parts)
        ends, value = xp.empty((1, cut.parts + 1), np.int32), xp.empty(1)
        _best_path(
            semiring, cut.products, xp.zeros((1, cut.parts + 1, n)), cut.x, cut.end, ends, value,
            np.array([cut.parts + 1]),
        )  # fmt: skip
        only = xp.where(ends[0, :, np.newaxis] == xp.arange(n), 0, -np.inf).astype(a.dtype)
        found = xp.empty((cut.parts, cut.size + 1), np.int32)
        unused = xp.empty(cut.parts, a.dtype)
        _best_path(semiring, cut.a, cut.e, only[:-1], only[1:], found, unused, cut.counts)
        cut.put(path[one], found)
        score[one] = value


def _best_path(
    semiring: Semiring, a: Array, e: Array, x: Array, end: Array, path: Array, score: Array,
    lengths: Lengths,
) -> None:  # fmt: skip
    """The same, each chain by a block of its own."""
    here, n = device.current(), a.shape[-1]
    plan = _plan(semiring, a, n)
    batch, steps = path.shape
    pointers = device.scratch((batch, steps, n), np.uint16)
    fields = _path_fields(a, e, x, end, path, score, pointers)
    source = path_source(plan, _known(plan, n), a.strides[1] == 0)
    _launch(here, source, lengths, 1, _path_room(plan, n), fields)


def _path_room(plan: Plan, n: int) -> int:
    """Bytes of shared memory of sr::BestPath."""
    word = word_size(plan)
    return 2 * _line(n) * word + max(_ring(n, word), 2 * max(_CHASED, n))


def _path_fields(
    a: Array, e: Array, x: Array, end: Array, path: Array, score: Array, pointers: Array
) -> dict[str, int]:
    return _fields(a, e) | {
        "total": address(score), "path": address(path), "pointers": address(pointers),
        "steps": path.shape[-1], **placed("x", x, "batch"), **placed("end", end, "batch"),
    }  # fmt: skip


def best_paths(
    semiring: Semiring, a: Array, e: Array, x: Array, end: Array, paths: Array, scores: Array,
    lengths: Lengths,
) -> None:  # fmt: skip
    """The k best sequences of states; see :meth:`semiring_mm.engine.Chains.best_paths`."""
    here, n = device.current(), a.shape[-1]
    plan = _plan(semiring, a, n)
    batch, k, steps = paths.shape
    room = k * -(-n // 32) * 32 * (2 * word_size(plan) + 4)
    if room > here.shared_limit:
        most = here.shared_limit * k // room
        raise NotImplementedError(
            f"of chains of {n} states the {most} best sequences are found on a device, got k = "
            f"{k}: copy the arrays (x.get() in CuPy, x.cpu() in PyTorch) to find more on the host"
        )
    pointers = here.xp.empty((batch, steps, k, n), np.uint32)
    fields = _path_fields(a, e, x, end, paths, scores, pointers) | {"rows": k}
    _launch(here, _source(plan, 0, "BestPaths<Algebra>"), lengths, 1, room, fields)


def posterior(
    a: Array, e: Array, x: Array, end: Array, total: Array, out: Array | None,
    pairs: Array | None, lengths: Array, *, symbols: Array | None = None,
) -> None:  # fmt: skip
    """Probabilities of states and pairs; see :meth:`semiring_mm.engine.Chains.posterior`.

    Those of few long chains are found in parts: first what leads to these and away from them.
    """
    log_plus, e = semirings["log_plus"], e if symbols is None else e[symbols]
    each = pairs is not None and pairs.shape[1] > 1
    if not each and wide.serves(log_plus, a):
        wide.posterior(a, e, x, end, total, out, pairs, lengths)
        return
    lengths = to_host(lengths)
    parts = 1 if each else _long_parts(log_plus, a, lengths)
    if parts == 1:
        _posterior(a, e, x, end, total, out, pairs, lengths)
        return
    for i, length in enumerate(lengths.tolist()):
        one = slice(i, i + 1)
        model = a[one], e[one], x[one], end[one]
        found = total[one], None if out is None else out[one], None if pairs is None else pairs[one]
        if length <= parts:
            _posterior(*model, *found, lengths[one])
        else:
            _posterior_in_parts(_Long(log_plus, *model, length, parts), *found)


def _posterior_in_parts(cut: _Long, total: Array, out: Array | None, pairs: Array | None) -> None:
    xp, dtype, n = device.current().xp, total.dtype, cut.a.shape[-1]
    before = cut.ways()
    total[:] = _sum_of(before[-1:] + cut.end)
    if out is None:
        return
    behind = cut.ways(reverse=True)
    # of states before and behind a part only the differences count
    starts = _less_the_largest(xp.concatenate([cut.x, before[:-1]])).astype(dtype)
    ends = _less_the_largest(xp.concatenate([behind[1:], cut.end])).astype(dtype)
    found = xp.empty((cut.parts, cut.size + 1, n), dtype)
    own: Any = None if pairs is None else xp.zeros((cut.parts, 1, n, n), dtype)
    _posterior(cut.a, cut.e, starts, ends, xp.empty(cut.parts, dtype), found, own, cut.counts)
    cut.put(out, found)
    if pairs is not None:
        pairs += own.sum(0)


def _less_the_largest(rows: Array) -> Array:
    high = rows.max(1, keepdims=True)
    return rows - device.current().xp.where(abs(high) < np.inf, high, 0)


def _sum_of(rows: Array) -> Array:
    """The logarithm of the sum of exponentials of each row; of what is not finite the largest."""
    xp, high = device.current().xp, rows.max(1)
    with np.errstate(invalid="ignore"):
        found = high + xp.log(xp.exp(rows - high[:, np.newaxis]).sum(1))
    return xp.where(abs(high) < np.inf, found, high)


def _posterior(
    a: Array, e: Array, x: Array, end: Array, total: Array, out: Array | None,
    pairs: Array | None, lengths: Lengths,
) -> None:  # fmt: skip
    """The same, each chain by a block of its own."""
    here, n = device.current(), a.shape[-1]
    plan = _plan(semirings["log_plus"], a, n)
    offsets = None if out is None else device.scratch(out.shape[:2], np.float64)
    # one matrix for all steps, and one sum of pairs: both stay in registers
    shared = a.strides[1] == 0 and (pairs is None or pairs.shape[1] == 1)
    fields = _fields(a, e) | {
        "total": address(total), "offsets": address(offsets), "steps": e.shape[1],
        **placed("x", x, "batch"), **placed("end", end, "batch"),
    }  # fmt: skip
    if out is not None:
        fields |= placed("y", out, "batch step")
    if pairs is not None:
        fields |= placed("pairs", pairs, "batch step row")
        fields["pairs_step"] *= pairs.shape[1] > 1
    wanted = 0 if out is None else 1 if pairs is None else 2
    source = posterior_source(plan, _known(plan, n), shared, wanted)
    _launch(here, source, lengths, 1, _posterior_room(plan, n), fields)


def _posterior_room(plan: Plan, n: int) -> int:
    """Bytes of shared memory of sr::Posterior."""
    word = word_size(plan)
    return 4 * _line(n) * word + _ring(n, 2 * word + 8)


def draw(
    a: Array, e: Array, x: Array, end: Array, uniforms: Array, paths: Array, lengths: Lengths
) -> None:
    """Draw sequences of states; see :meth:`semiring_mm.engine.Chains.draw`."""
    here, n = device.current(), a.shape[-1]
    rows = here.xp.empty(e.shape, e.dtype)
    rows[:, 0] = x
    if e.shape[1] > 1:
        carry(
            semirings["log_plus"], a, e[:, 1:], x[:, np.newaxis], rows[:, 1:, np.newaxis],
            np.maximum(lengths - 1, 0), every=True, reverse=False, exclusive=False,
        )  # fmt: skip
    plan = _plan(semirings["log_plus"], a, n)
    size, batch, steps = paths.shape
    fields = _fields(a, None) | {
        "x": address(uniforms), "path": address(paths), "steps": steps, "draw": batch * steps,
        **placed("y", rows, "batch step"), **placed("end", end, "batch"),
    }  # fmt: skip
    _launch(here, _source(plan, 32, "Draw<Algebra>"), lengths, size, 0, fields, threads=32)


def _plan(
    semiring: Semiring, a: Array, n: int, e: Array | None = None, *, reverse: bool = False
) -> Plan:
    """How a step is computed whatever is carried."""
    dtype = a.dtype
    if n > _MOST:
        raise NotImplementedError(
            f"chains of more than {_MOST} states run on the host, got {n}: copy the arrays "
            f"(x.get() in CuPy, x.cpu() in PyTorch), or multiply step by step by matmul"
        )
    if dtype.kind in "iu" and needs_facts(semiring, dtype):
        try:
            known = (facts(semiring, v) for v in (a, e) if v is not None)
            return make_step_plan(semiring, dtype, known, n, reverse=reverse)
        except OverflowError:
            raise NotImplementedError(
                f"chains of {dtype} over {semiring.name} run on the host: copy the arrays (x.get() "
                f"in CuPy, x.cpu() in PyTorch), or use a narrower dtype or float64"
            ) from None
    return unseen_plan(semiring, dtype, n if dtype.kind in "iu" else 1)


def _known(plan: Plan, n: int) -> int:
    """The number of states that a kernel is compiled for; 0: any."""
    return n if n * word_size(plan) <= 4 * _HELD else 0


def _ring(n: int, size: int) -> int:
    """Bytes of what is under way to all threads; see sr::Ahead."""
    return 8 * -(-n // 32) * 32 * size


def _line(n: int) -> int:
    return -(-n // 4) * 4


def _fields(a: Array, e: Array | None) -> dict[str, int]:
    fields = {"states": a.shape[-1], **placed("a", a, "batch step row col")}
    return fields if e is None else fields | placed("e", e, "batch step")


def _launch(
    here: device.Device, source: str, lengths: Lengths, rows: int, room: int,
    fields: dict[str, int], threads: int = 0,
) -> None:  # fmt: skip
    """A block of `threads`, or as many as there are states, for each row if there is any work."""
    blocks, most = len(lengths) * rows, int(lengths.max(initial=0))
    if blocks == 0 or most == 0:
        return
    if blocks > 0x7FFFFFFF:
        raise ValueError(f"{blocks} rows of chains are more than one launch takes: 2147483647")
    there = None if int(lengths.min()) == most else here.xp.asarray(lengths)
    given = {"rows": rows, "length": most, "lengths": address(there)} | fields
    threads = threads or _threads(fields["states"])
    launch(source, struct_of("ChainParams"), blocks, threads, room, given)


def _threads(states: int) -> int:
    return -(-states // 32) * 32


# --- launches that are kept -----------------------------------------------------------------------


class Model:
    """Launches for models of one shape, as users give them: nothing is converted before.

    See :class:`semiring_mm.engine.Chains`. Results are written whatever their memory holds (see
    CHAIN_WHOLE of ``kernels/chain.cuh``).
    """

    def __init__(
        self, dtype: np.dtype[Any], batch: int, steps: int, states: int, strides: dict[str, int]
    ) -> None:
        #: Whether :mod:`.wide` has chains of so many states.
        self.wide = wide.together(semirings["log_plus"], dtype, states)
        if not self.wide and _parts(states, 1, np.full(batch, steps)) > 1:
            raise NotImplementedError("these chains are cut in parts")
        self._dtype, self._batch, self._steps, self._states = dtype, batch, steps, states
        self._params = struct_of("ChainParams").pack(
            strides | _numbered(POINTERS), states=states, steps=steps, length=steps, rows=1,
            mode=_WHOLE, y_batch=steps * states, y_step=states, pairs_batch=states * states,
            pairs_row=states,
        )  # fmt: skip
        self._pieces = -(-steps * states // _PIECE)

    def launch(
        self, stream: int, addresses: Sequence[int], wanted: int | None, tagged: bool = False
    ) -> None:
        """Launch sr::Posterior, or sr::BestPath: see :class:`semiring_mm.engine.ChainModel`."""
        replay = prepared((self, wanted, tagged), lambda: self._prepared(wanted, tagged))
        replay.run(addresses, stream, captured=device.current().captures(stream))

    def gradients(self, stream: int, addresses: Sequence[int], step: int) -> None:
        """Launch sr::TotalGradients: see :meth:`semiring_mm.engine.ChainModel.gradients`."""
        pairs = addresses[2] != 0
        replay = prepared((self, "gradients", pairs), lambda: self._gradients(pairs))
        captured = device.current().captures(stream)
        replay.run((*addresses, step), stream, captured=captured)

    def _gradients(self, pairs: bool) -> Replay:
        params = struct_of("GradientParams").pack(
            _numbered(_VARY), each=self._steps * self._states, pairs_each=self._states**2,
            chains=self._batch, pieces=self._pieces,
        )  # fmt: skip
        run = f"sr::TotalGradients<{STORAGE[self._dtype.name]}>::run"
        source = entry("chain.cuh", struct_of("GradientParams"), run, _THREADS)
        blocks = self._batch * self._pieces + pairs * -(-(self._states**2) // _COLUMNS)
        kernel = device.current().kernel(source)
        start = kernel.prepared(blocks, _THREADS, _THREADS * self._dtype.itemsize)
        return _replay(start, params, len(_VARY))

    def _prepared(self, wanted: int | None, tagged: bool) -> Replay:
        n, name = self._states, "max_plus" if wanted is None else "log_plus"
        plan = unseen_plan(semirings[name], self._dtype, 1)
        if wanted is None:
            source, room = path_source(plan, _known(plan, n), True), _path_room(plan, n)
        else:
            source = posterior_source(plan, _known(plan, n), True, wanted, tagged)
            room = _posterior_room(plan, n)
        kernel = device.current().kernel(source)
        start = kernel.prepared(self._batch, _threads(n), room)
        return _replay(start, self._params, len(POINTERS))


def _numbered(names: Sequence[str]) -> dict[str, int]:
    """What stands for fields that vary, in the parameters of :func:`_replay`."""
    return {name: i for i, name in enumerate(names, 1)}


def _replay(start: device.Start, params: bytes, words: int) -> Replay:
    """A launch of which so many words vary, the first ones."""
    return Replay([device.Launched(start, params, words, ())], lambda number: (number - 1, 0))


#: Of sr::TotalGradients: fields that vary, threads, and what a block of them writes.
_VARY = "g", "states", "pairs", "by_states", "by_pairs", "g_step"
_THREADS, _COLUMNS, _PIECE = 256, 32, 1024


# --- the text of the kernels --------------------------------------------------------------------


def path_source(plan: Plan, states: int, shared: bool) -> str:
    """The text of the kernel that finds a best path; see sr::BestPath."""
    return _source(plan, states, f"BestPath<Algebra, {states}, {flags(shared)}>")


def posterior_source(
    plan: Plan, states: int, shared: bool, wanted: int, tagged: bool = False
) -> str:
    """The text of the kernel that finds probabilities; see sr::Posterior."""
    given = f"{states}, {flags(shared)}, {wanted}, {flags(tagged)}"
    return _source(plan, states, f"Posterior<Algebra, {given}>")


def _source(plan: Plan, states: int, body: str) -> str:
    params, threads = struct_of("ChainParams"), _threads(states) or _MOST
    return entry("chain.cuh", params, f"sr::{body}::run", threads, algebra(plan))
