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
import ctypes
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..semirings import Semiring
from . import device, launch
from .device import Launched, Looked, Scratch, address, recorded
from .sparse import kept

__all__ = ["learn", "prepared", "recorded", "repeat"]

Array = Any

_LAUNCHES = 64  # of a call
_ALIGNED = 128  # the strictest alignment that a kernel asks for
_GRAIN = 256  # of parts of the memory for intermediate results
_LINE = 64  # a tensor map lies on a multiple of it
_BYTE = np.dtype(np.uint8)


class _Library(Protocol):
    """How arrays of a library are read and made."""

    runtime: Any
    device: Callable[[], int]  # the current one
    stream: Callable[[int], int]  # the current one of a device
    pooled: bool  # whether a captured graph would not own a new array's memory

    def look(self, x: Array) -> tuple[int, int, Any]:
        """Address, device, and all else that a launch depends on, of an array."""

    def two(self, head: Any, a: Array, b: Array) -> tuple[Any, list[int], int]:
        """The key of a call of two arrays, their addresses and their device."""
        (p, index, first), (q, at, second) = self.look(a), self.look(b)
        key = head, first, second, p % _ALIGNED, q % _ALIGNED, p == q, index, at
        return key, [p, q], index

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

    def look(self, x: Array) -> tuple[int, int, Any]:
        data = x.data
        return data.ptr, data.device_id, (x.shape, x.strides, x.dtype)

    def two(self, head: Any, a: Array, b: Array) -> tuple[Any, list[int], int]:  # for speed
        x, y = a.data, b.data
        p, q, index = x.ptr, y.ptr, x.device_id
        key = (
            head, a.shape, a.strides, a.dtype, b.shape, b.strides, b.dtype, p % _ALIGNED,
            q % _ALIGNED, p == q, index, y.device_id,
        )  # fmt: skip
        return key, [p, q], index

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

    def look(self, x: Array) -> tuple[int, int, Any]:
        if x.requires_grad or x.is_neg():
            raise TypeError("the general way refuses it")
        return x.data_ptr(), x.get_device(), (x.shape, x.stride(), x.dtype)

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
    """Launches of a call, to be made again with other addresses.

    Parameters
    ----------
    starts : list of (callable, int)
        The launches, and where the addresses of their parameters are.
    block : tuple
        The memory of their parameters, and of the addresses of these.
    words : memoryview of int64
        The parameters of all launches.
    writes : list of (int, int, int)
        Words that are addresses: the index of a word, the array that it belongs to (operands in
        their order, the results, intermediate results, memory of the host), and the bytes from
        where that begins.
    maps : list of (int, int, int)
        Tensor maps: the address of a map, then array and bytes as above.
    spans : list of (int, int)
        Of each operand and the result: the first byte of its memory, and that behind the last, from
        where it begins.
    room : int
        Bytes of intermediate results.
    looks : list of _Look
    seen : (int, int)
        Bytes of the host that these read, and how many launches write them.
    given : str
        The name of the operands' dtype; empty if they differ.
    shape, dtype
        Of the result.
    others : list of _Like
        Of further results.
    """

    starts: list[tuple[device.Start, int]]
    block: Any
    words: memoryview
    writes: list[tuple[int, int, int]]
    maps: list[tuple[int, int, int]]
    spans: list[tuple[int, int]]
    room: int
    looks: list[_Look]
    seen: tuple[int, int]
    given: str
    shape: tuple[int, ...]
    dtype: Any
    others: list[_Like]

    def __post_init__(self) -> None:
        self._last: list[int] = []
        self._lock = threading.Lock()

    def run(self, bases: list[int], stream: int) -> Callable[[], None] | None:
        """Launch, with the arrays at these addresses; a call that waits for what is looked at."""
        reached = None
        with self._lock:  # until the driver has read the parameters
            if bases != self._last:
                self._last = []
                words = self.words
                for at, array, offset in self.writes:
                    words[at] = bases[array] + offset
                for at, array, offset in self.maps:
                    device.replace_address(at, bases[array] + offset)
                self._last = bases
            for count, (start, where) in enumerate(self.starts, 1):
                start(stream, where, 0)
                if count == self.seen[1]:
                    reached = device.current().mark(stream)
        return reached


_libraries: dict[type, _Library] = {}


def repeat(
    head: tuple[Any, ...], operands: tuple[Any, ...], out: Any = None, dtype: str = ""
) -> Any:
    """The result of a call that was made before; see :meth:`semiring_mm.engine.Calls.repeat`."""
    library = _libraries.get(type(operands[0]))
    if library is None:
        return None
    try:
        if out is None and len(operands) == 2:  # as in _key, written out for speed
            key, bases, index = library.two(head, *operands)
        else:
            key, bases, index, place = _key(library, head, operands, out)
        call: _Call | None = launch.recall(key)
    except (AttributeError, TypeError, RuntimeError):  # another library's, no memory, unhashable
        return None
    if call is None or (dtype and call.given != dtype) or library.device() != index:
        return None
    stream = library.stream(index)
    captured = stream not in device.DEFAULT and bool(library.runtime.streamIsCapturing(stream))
    if out is not None:
        result, joined = out, place if _joins(head, operands) else -1
        low, high = (place + x for x in call.spans[len(bases)])
        for base, (first, last) in zip(bases, call.spans, strict=False):
            if base + first < high and low < base + last and base != joined:
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
    reached = call.run(bases, stream)
    del memory
    if reached is not None:
        reached()
        for begin, shape, dtype, read, holds in call.looks:
            there: NDArray[Any] = np.ndarray(shape, dtype, seen, begin)
            if not holds(read(there)):
                launch.forget(key)  # of one kind of graph after another neither is prepared
                return None
    return (result, *others) if others else result


def prepared(head: tuple[Any, ...], semiring: Semiring, a: Array, b: Array, out: Any = None) -> Any:
    """:func:`repeat`: only what was launched is prepared."""
    return repeat(head, (a, b), out)


def _joins(head: tuple[Any, ...], operands: Sequence[Any]) -> bool:
    return len(operands) == 3 and head[0] != "sparse"


def _key(
    library: _Library, head: tuple[Any, ...], operands: Sequence[Any], out: Any
) -> tuple[Any, list[int], int, int]:
    """What a call is kept by; addresses of operands, their device, and the address of `out`."""
    if out is None and len(operands) == 2:
        return *library.two(head, *operands), 0
    look, index = library.look, -1
    key: list[Any] = [head]
    if head[0] == "sparse":
        key.append(kept(operands[:-1], operands[-1]))
    bases = []
    for x in operands:
        place, index, kind = look(x)
        key += place % _ALIGNED, index, kind
        bases.append(place)
    key.append(len(bases) > 1 and bases[0] == bases[1])
    place = 0
    if out is not None:
        place, at, kind = look(out)
        key += place % _ALIGNED, at, kind, place == bases[-1]
    return tuple(key), bases, index, place


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
    found = _laid_out(launches, places)
    if found is None:
        return
    names = {str(x.dtype).rpartition(".")[2] for x in operands}
    like = [_Like(tuple(x.shape), x.dtype) for x in returned]
    given = names.pop() if len(names) == 1 else ""
    with contextlib.suppress(AttributeError, TypeError, RuntimeError):
        key = _key(library, head, operands, out)[0]
        launch.keep(
            key, _Call(*found, spans, room, looks, (size, before), given, *like[0], like[1:])
        )


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


def _laid_out(
    launches: Sequence[Launched], places: Sequence[tuple[int, int, int, int]]
) -> tuple[
    list[tuple[device.Start, int]], Any, memoryview, list[tuple[int, int, int]],
    list[tuple[int, int, int]],
] | None:  # fmt: skip
    """The first fields of a :class:`_Call`, or None if an address belongs to no array."""

    def owner(place: int) -> tuple[int, int] | None:
        for array, begin, low, high in places:
            if low <= place < high:
                return array, place - begin
        return None

    sizes = [-(-len(x.params) // _LINE) * _LINE for x in launches]
    block = (ctypes.c_char * (sum(sizes) + _LINE))()
    skipped = -ctypes.addressof(block) % _LINE
    begin = ctypes.addressof(block) + skipped
    bytes_ = memoryview(block).cast("B")[skipped : skipped + sum(sizes)]
    words = bytes_.cast("q")
    starts, writes, maps, kept, at = [], [], [], [], 0
    for one, size in zip(launches, sizes, strict=True):
        bytes_[at : at + len(one.params)] = one.params
        for i, place in enumerate(one.maps):
            if place == 0:
                continue
            found = owner(place)
            if found is None:
                return None
            maps.append((begin + at + device.TENSOR_MAP * i, *found))
        first = (at + device.TENSOR_MAP * len(one.maps)) // 8
        pointers = one.pointers if one.pointers is not None else ()
        for i in range(pointers) if isinstance(pointers, int) else pointers:
            place = words[first + i]
            if place == 0:
                continue
            found = owner(place)
            if found is None:
                return None
            writes.append((first + i, *found))
        arguments = (ctypes.c_void_p * 1)(begin + at)
        kept.append(arguments)
        starts.append((one.start, ctypes.addressof(arguments)))
        at += size
    return starts, (block, kept), words, writes, maps
