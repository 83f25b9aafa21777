"""Repeated calls on a device: one look-up from what came in to the launches that were prepared.

The general way knows all cases and raises all errors, and costs tens of microseconds of the host.
So what it launches is recorded (:func:`.device.recorded`), with the memory that it uses. Each
address among the parameters belongs to an operand, to the result or to intermediate results, so the
same launches serve every call of the same verb, semiring, scalars and flags on operands of the same
shapes, strides, dtypes, alignments and device. A call that does anything else (waits for the
device, lets CuPy convert an operand) is not kept, and takes the general way each time.

What the entries of operands decide is decided on the device, in what is launched. A call that reads
ranges of the entries and decides by them tells for which others it does the same: they are read
again when all is launched, and the general way is taken where they are others.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..engine import PLAIN, Scaling
from ..expressions import Expr
from ..semirings import Semiring
from . import device, launch
from .device import Launched, Looked, Scratch, address, recorded
from .sparse import kept

__all__ = ["learn", "prepared", "recorded", "repeat"]

Array = Any

_LAUNCHES = 64  # of a call
_ALIGNED = 128  # the strictest alignment that a kernel asks for
_GRAIN = 256  # of parts of the memory for intermediate results
_BYTE = np.dtype(np.uint8)


class _Library(Protocol):
    """How arrays of a library are read and made."""

    runtime: Any
    device: Callable[[], int]  # the current one
    stream: Callable[[int], int]  # the current one of a device
    pooled: bool  # whether a captured graph would not own a new array's memory

    def look(self, arrays: Sequence[Array], key: list[Any], bases: list[int]) -> int:
        """Add to a key what launches depend on, and addresses to `bases`; return the device."""

    def empty(self, call: _Call | _Like, like: Array) -> tuple[Array, int]:
        """An array for a result, and its address."""

    def room(self, size: int, index: int, captured: bool) -> tuple[Any, int]:
        """Memory for intermediate results, and its address."""


class _Cupy(_Library):
    pooled = True

    def __init__(self, cupy: Any) -> None:
        self._array, self.runtime = cupy.ndarray, cupy.cuda.runtime
        self.device = self.runtime.getDevice
        current, self._alloc = cupy.cuda.get_current_stream, cupy.cuda.alloc
        self.stream = lambda index: current().ptr
        self._alloc_async = cupy.cuda.malloc_async

    def look(self, arrays: Sequence[Array], key: list[Any], bases: list[int]) -> int:
        index = -1
        for x in arrays:
            data = x.data
            place, index = data.ptr, data.device_id
            key += x.shape, x.strides, x.dtype, place % _ALIGNED, index
            bases.append(place)
        return index

    def empty(self, call: _Call | _Like, like: Array) -> tuple[Array, int]:
        c = self._array(call.shape, call.dtype)
        return c, c.data.ptr

    def room(self, size: int, index: int, captured: bool) -> tuple[Any, int]:
        memory = self._alloc_async(size) if captured else self._alloc(size)
        return memory, memory.ptr


class _Torch(_Library):
    pooled = False

    def __init__(self, torch: Any, cupy: Any) -> None:
        self._empty, self._byte, self.runtime = torch.empty, torch.uint8, cupy.cuda.runtime
        self.device = self.runtime.getDevice
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # PyTorch's own generated code's
        self.stream = raw or (lambda index: torch.cuda.current_stream(index).cuda_stream)

    def look(self, arrays: Sequence[Array], key: list[Any], bases: list[int]) -> int:
        index = -1
        for x in arrays:
            if x.requires_grad or x.is_neg():
                raise TypeError("the general way refuses it")
            place, index = x.data_ptr(), x.get_device()
            key += x.shape, x.stride(), x.dtype, place % _ALIGNED, index
            bases.append(place)
        return index

    def empty(self, call: _Call | _Like, like: Array) -> tuple[Array, int]:
        c = self._empty(call.shape, dtype=call.dtype, device=like.device)
        return c, c.data_ptr()

    def room(self, size: int, index: int, captured: bool) -> tuple[Any, int]:
        memory = self._empty(size, dtype=self._byte, device=index)
        return memory, memory.data_ptr()


class _Like(NamedTuple):
    """How a result is made."""

    shape: tuple[int, ...]
    dtype: Any


class _Look(NamedTuple):
    """What a call reads in memory of the host, from a byte on, and whether it is the same then."""

    begin: int
    shape: tuple[int, ...]
    dtype: Any
    read: Callable[[NDArray[Any]], Any]
    holds: Callable[[Any], bool]


@dataclass(eq=False)
class _Call:
    """Launches of a call, to be made again with other addresses."""

    # Its arrays are the operands in their order, the results, intermediate results, and memory of
    # the host.
    replay: launch.Replay
    # Of each operand and the result: the first byte of its memory, and that behind the last, from
    # where it begins.
    spans: list[tuple[int, int]]
    room: int  # bytes of intermediate results
    looks: list[_Look]
    seen: tuple[int, int]  # bytes of the host that looks read, and how many launches write them
    given: str  # the name of the operands' dtype; empty if they differ
    shape: tuple[int, ...]  # of the result
    dtype: Any  # of the result
    others: list[_Like]  # of further results


_libraries: dict[type, _Library] = {}


def repeat(
    head: tuple[Any, ...], operands: tuple[Any, ...], out: Any = None, dtype: str = ""
) -> Any:
    """The result of a call that was made before; see :meth:`semiring_mm.engine.Calls.repeat`."""
    library = _libraries.get(type(operands[0]))
    if library is None:
        return None
    try:
        key, bases, index = _key(library, head, operands, out)
        call: _Call | None = launch.recall(key)
    except (AttributeError, TypeError, RuntimeError):  # another library's, no memory, unhashable
        return None
    if call is None or (dtype and call.given != dtype) or library.device() != index:
        return None
    stream = library.stream(index)
    captured = stream not in device.DEFAULT and bool(library.runtime.streamIsCapturing(stream))
    if out is not None:
        result, place = out, bases[-1]
        joined = place if _joins(head, operands) else -1
        low, high = call.spans[len(operands)]
        for base, (first, last) in zip(bases[:-1], call.spans, strict=False):
            if base + first < place + high and place + low < base + last and base != joined:
                return None
    elif captured and (library.pooled or call.looks):
        return None
    else:
        result, place = library.empty(call, operands[0])
        bases.append(place)
    others = []
    for like in call.others:
        other, place = library.empty(like, operands[0])
        others.append(other)
        bases.append(place)
    memory = None  # until all is launched
    if call.room:
        memory, at = library.room(call.room, index, captured)
        bases.append(at)
    if call.looks:
        seen = device.current().host_memory((call.seen[0],), _BYTE)
        bases.append(address(seen))
    reached = call.replay.run(bases, stream, call.seen[1], captured=captured)
    del memory
    if reached is not None:
        reached()
        for begin, shape, dtype, read, holds in call.looks:
            there: NDArray[Any] = np.ndarray(shape, dtype, seen, begin)
            if not holds(read(there)):
                launch.forget(key)  # of one kind of graph after another neither is prepared
                return None
    return (result, *others) if others else result


def prepared(
    head: tuple[Any, ...], semiring: Semiring, a: Array, b: Array, out: Any = None,
    scaling: Scaling = PLAIN, final: Expr | None = None,
) -> Any:  # fmt: skip
    """:func:`repeat`: only what was launched is prepared."""
    return repeat(head, (a, b), out)


def _joins(head: tuple[Any, ...], operands: Sequence[Any]) -> bool:
    return len(operands) == 3 and head[0] != "sparse"


def _key(
    library: _Library, head: tuple[Any, ...], operands: Sequence[Any], out: Any
) -> tuple[Any, list[int], int]:
    """What a call is kept by; addresses of operands and of `out`; and a device."""
    key: list[Any] = [head, out is None]
    bases: list[int] = []
    if head[0] == "sparse":
        key.append(kept(operands[:-1], operands[-1]))
    index = library.look(operands if out is None else (*operands, out), key, bases)
    key += bases[:1] == bases[1:2], bases[-1:] == bases[-2:-1]
    return tuple(key), bases, index


def _library_of(x: Any) -> _Library | None:
    kind: Any = type(x)
    if kind not in _libraries:
        cupy: Any = sys.modules.get("cupy")
        torch: Any = sys.modules.get("torch")
        if cupy is not None and kind is cupy.ndarray:
            _libraries[kind] = _Cupy(cupy)
        elif torch is not None and kind is torch.Tensor:
            _libraries[kind] = _Torch(torch, cupy)
    return _libraries.get(kind)


# --- learning -----------------------------------------------------------------------------------


def learn(
    notes: Sequence[Any], head: tuple[Any, ...], operands: Sequence[Any], out: Any, given: Any,
    arrays: Sequence[Array], result: Array, holds: Sequence[Callable[[Any], bool]] = (),
) -> None:  # fmt: skip
    """Keep a call that was recorded; see :meth:`semiring_mm.engine.Calls.learn`."""
    results, returned = (x if isinstance(x, tuple) else (x,) for x in (result, given))
    result = results[0]
    library = _library_of(operands[0])
    launches = [x for x in notes if isinstance(x, Launched)]
    known = all(x.pointers is not None for x in launches)
    looked = [(i, x) for i, x in enumerate(notes) if isinstance(x, Looked)]
    if library is None or not known or not 0 < len(launches) <= _LAUNCHES:
        return
    if len(looked) != len(holds):  # what it reads decides something that is not known
        return
    if any(type(x) is not type(operands[0]) for x in (*operands, *returned)):
        return
    spans = [_span(x) for x in (*arrays, *results)]
    joins = _joins(head, arrays)
    if not all(x.size for x in (*arrays, *results)):
        return
    if not _apart([*arrays, *results], result, spans, joins):
        return
    room, places = 0, []  # array, where it begins, its memory
    for i, (x, (low, high)) in enumerate(zip((*arrays, *results), spans, strict=True)):
        places.append((i, address(x), address(x) + low, address(x) + high))
    for x in (note.array for note in notes if isinstance(note, Scratch)):
        places.append((len(spans), address(x) - room, address(x), address(x) + x.nbytes))
        room += -(-x.nbytes // _GRAIN) * _GRAIN
    looks, size, before = list[_Look](), 0, 0
    for (i, (x, read)), holding in zip(looked, holds, strict=True):
        begin = address(x)
        places.append((len(spans) + (room > 0), begin - size, begin, begin + x.nbytes))
        looks.append(_Look(size, x.shape, x.dtype, read, holding))
        size += -(-x.nbytes // _GRAIN) * _GRAIN
        before = sum(isinstance(note, Launched) for note in notes[:i])
    if not all(x.flags.c_contiguous for x in results[out is not None :]):  # of those that are made
        return

    def owner(place: int) -> tuple[int, int]:
        for array, begin, low, high in places:
            if low <= place < high:
                return array, place - begin
        raise LookupError("CuPy made it")

    names = {str(x.dtype).rpartition(".")[2] for x in operands}
    like = [_Like(tuple(x.shape), x.dtype) for x in returned]
    given = names.pop() if len(names) == 1 else ""
    with contextlib.suppress(AttributeError, LookupError, TypeError, RuntimeError):
        replay = launch.Replay(launches, owner)
        call = _Call(replay, spans, room, looks, (size, before), given, *like[0], like[1:])
        launch.keep(_key(library, head, operands, out)[0], call)


def _span(x: Array) -> tuple[int, int]:
    """The first byte of an array's memory and that behind the last one, from its first entry."""
    ends = [(n - 1) * step for n, step in zip(x.shape, x.strides, strict=True)]
    return sum(min(e, 0) for e in ends), sum(max(e, 0) for e in ends) + x.itemsize


def _apart(
    every: Sequence[Array], result: Array, spans: Sequence[tuple[int, int]], joins: bool
) -> bool:
    """Whether each address tells to which array it belongs, or the key says which are the same."""
    for j, y in enumerate(every):
        for i, x in enumerate(every[:j]):
            at, to = address(x), address(y)
            if at == to and ((i, j) == (0, 1) or (joins and i == 2 and y is result)):
                continue
            if at + spans[i][0] < to + spans[j][1] and to + spans[j][0] < at + spans[i][1]:
                return False
    return True
