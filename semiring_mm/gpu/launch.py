"""Launches: a kernel's parameters, as its header declares them, and the text of its entry.

The struct in ``kernels/*.cuh`` is the only declaration of a kernel's parameters. :func:`struct_of`
reads it, so that a launch names what it passes and cannot mix up the order, and so that the
addresses among the parameters are known to :mod:`.calls`.
"""

from __future__ import annotations

import ctypes
import functools
import re
import struct
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from . import device
from .device import address

__all__ = [
    "Launch",
    "Replay",
    "Struct",
    "entry",
    "forget",
    "keep",
    "launch",
    "prepared",
    "recall",
    "struct_of",
]

_CODES = {"i64": "q", "u64": "Q", "int": "i", "i32": "i", "u32": "I", "double": "d", "float": "f"}


class Struct:
    """Parameters of a kernel.

    Attributes
    ----------
    name : str
        With its namespace: ``sr::CopyParams``.
    size : int
        Bytes, without the tensor maps at its beginning.
    pointers : tuple of int
        Which words of 8 bytes are addresses.
    offsets : dict
        Of each field its first byte.
    """

    def __init__(
        self, name: str, fields: list[tuple[str, Struct | str, int]], alignment: int = 8
    ) -> None:
        self.name, self._counts = f"sr::{name}", {name: count for name, _, count in fields}
        self.offsets: dict[str, int] = {}
        self._defaults: dict[str, Any] = {}
        format_, words = "", list[int]()
        self._addresses: tuple[int, ...] = ()  # which of the packed values are addresses
        values = 0
        for field, kind, count in fields:
            within = isinstance(kind, Struct)
            code = f"{kind.size}s" if isinstance(kind, Struct) else "Q" if kind == "*" else kind
            end = struct.calcsize(format_ + code * count)
            size = struct.calcsize(code)
            self.offsets[field] = end - count * size
            format_ += code * count
            pointers = kind.pointers if isinstance(kind, Struct) else (0,) * (kind == "*")
            words += [
                (end - k * size) // 8 + word for k in range(count, 0, -1) for word in pointers
            ]
            self._addresses += tuple(range(values, values + count)) if kind == "*" else ()
            values += count
            self._defaults[field] = bytes(size) if within else 0
        format_ += "0q"
        format_ += f"{-struct.calcsize(format_) % alignment}x"
        self._struct = struct.Struct(format_)
        self.size: int = self._struct.size
        self.pointers: tuple[int, ...] = tuple(words)
        self._plain = all(count == 1 for count in self._counts.values())

    def pack(self, fields: dict[str, Any] | None = None, /, **more: Any) -> bytes:
        """The bytes of a struct; what is not given is 0.

        Arrays stand for their addresses, None for the address 0, bytes for a struct within.
        """
        given = self._defaults | fields | more if fields else self._defaults | more
        if len(given) > len(self._defaults):
            raise TypeError(f"{self.name} has no {', '.join(given.keys() - self._counts.keys())}")
        values = [*given.values()]
        if not self._plain:
            values = [
                x for value, count in zip(values, self._counts.values(), strict=True)
                for x in (value if isinstance(value, (list, tuple)) else [value] * count)
            ]  # fmt: skip
        for i in self._addresses:
            if type(values[i]) is not int:
                values[i] = address(values[i])
        return self._struct.pack(*values)


@functools.cache
def struct_of(name: str, **sizes: int) -> Struct:
    """A struct that a header declares; `sizes` are those of its template's arguments."""
    pattern = re.compile(rf"struct {name}(?: : (\w+))? {{\n(.*?)\n}};", re.DOTALL)
    declared = next(filter(None, map(pattern.search, device.headers().values())), None)
    if declared is None:
        raise TypeError(
            f"sr::{name} is no type of a kernel's parameters: use a pointer, a struct that a "
            f"header in kernels/ declares with its closing brace in the first column, or one of "
            f"{', '.join(_CODES)}"
        )
    base, body = declared.groups()
    fields = list[tuple[str, Struct | str, int]]()
    if base:
        fields.append(("base", struct_of(base), 1))
    for statement in re.sub("//.*", "", body).split(";")[:-1]:
        kind, names = statement.strip().removeprefix("const ").split(None, 1)
        for declarator in names.split(","):
            field, _, count = declarator.strip().removesuffix("]").partition("[")
            many = int(sizes.get(count, count or 1))
            if kind == "TensorMap":
                continue  # Kernel.launch puts them first
            if "*" in kind or field.startswith("*"):
                fields.append((field.removeprefix("*"), "*", many))
            else:
                fields.append((field, _CODES.get(kind) or struct_of(kind), many))
    return Struct(name, fields, 64 if "TensorMap" in body else 8)


@functools.lru_cache(maxsize=4096)
def entry(
    header: str, params: Struct | str, run: str, bounds: int | str, definitions: str = "", *,
    cluster: int = 1,
) -> str:  # fmt: skip
    """The text of a kernel: its entry calls the function `run` with the parameters.

    `header` is of the folder ``kernels``; several are separated by spaces. `run` is a C++ function
    of the parameters, such as ``sr::Copy<float>::run``. `bounds` has the threads of a block, and
    how many blocks a multiprocessor is to hold; `definitions` are C++ before the entry; `cluster`
    is the number of blocks of a cluster.
    """
    included = "".join(f'#include "{name}"\n' for name in header.split())
    together = f"__cluster_dims__({cluster}) " if cluster > 1 else ""
    struct_ = params.name if isinstance(params, Struct) else params
    return f"""{included}{definitions.strip()}
extern "C" __global__ void {together}__launch_bounds__({bounds})
kernel(const __grid_constant__ {struct_} p) {{
  {run}(p);
}}
"""


def launch(
    source: str, params: Struct, blocks: int, threads: int, shared: int = 0,
    fields: dict[str, Any] | None = None, /, *, together: bool = False, **more: Any,
) -> None:  # fmt: skip
    """Launch the kernel of an entry's text with parameters by their names.

    `blocks` of so many `threads` and bytes of `shared` memory; `together` as of
    :meth:`.device.Kernel.launch`.
    """
    packed, kernel = params.pack(fields, **more), device.current().kernel(source)
    kernel.launch(blocks, threads, shared, packed, params.pointers, together=together)


# --- launches that are prepared -------------------------------------------------------------------


@dataclass(frozen=True)
class Launch:
    """A kernel, and all of its launch that does not depend on addresses."""

    kernel: device.Kernel
    blocks: int
    threads: int
    shared: int  # bytes of shared memory
    params: Struct
    fields: dict[str, Any]  # parameters: strides and sizes
    early: bool = False  # as of :meth:`.device.Kernel.launch`

    def send(
        self, fields: dict[str, Any] | None = None, /, *,
        maps: tuple[tuple[bytes, int], ...] = (), **more: Any,
    ) -> None:  # fmt: skip
        """Launch it, with tensor maps and the parameters that are missing."""
        packed = self.params.pack(self.fields | fields if fields else self.fields, **more)
        self.kernel.launch(
            self.blocks, self.threads, self.shared, packed, self.params.pointers, maps, self.early
        )


_LINE = 64  # bytes: a tensor map lies on a multiple of it
# Graphs of a replay, at most; and launches with the same addresses before there is one: it takes as
# long to make.
_GRAPHS, _OFTEN = 16, 8


class Replay:
    """Launches that were made before, to be made again with other addresses.

    Where they come often with the same addresses on the same stream, they become one launch of a
    CUDA graph, which takes half as long as that of a kernel. `owner` gives of each address among
    the parameters the number of an array, and the bytes from where that begins. It may raise
    LookupError.
    """

    def __init__(
        self, launches: Sequence[device.Launched], owner: Callable[[int], tuple[int, int]]
    ) -> None:
        sizes = [-(-len(x.params) // _LINE) * _LINE for x in launches]
        self._block = (ctypes.c_char * (sum(sizes) + _LINE))()  # of the parameters
        skipped = -ctypes.addressof(self._block) % _LINE
        begin = ctypes.addressof(self._block) + skipped
        bytes_ = memoryview(self._block).cast("B")[skipped : skipped + sum(sizes)]
        self._words = words = bytes_.cast("q")
        # word or place of a tensor map, array, bytes from where that begins
        self._writes, self._maps = list[tuple[int, int, int]](), list[tuple[int, int, int]]()
        self._starts, self._arguments, at = list[tuple[device.Start, int]](), [], 0
        for one, size in zip(launches, sizes, strict=True):
            bytes_[at : at + len(one.params)] = one.params
            for i, place in enumerate(one.maps):
                if place:
                    self._maps.append((begin + at + device.TENSOR_MAP * i, *owner(place)))
            first = (at + device.TENSOR_MAP * len(one.maps)) // 8
            pointers = one.pointers if one.pointers is not None else ()
            for i in range(pointers) if isinstance(pointers, int) else pointers:
                if words[first + i]:
                    self._writes.append((first + i, *owner(words[first + i])))
            arguments = (ctypes.c_void_p * 1)(begin + at)
            self._arguments.append(arguments)
            self._starts.append((one.start, ctypes.addressof(arguments)))
            at += size
        # what begins while the launch before it ends would wait for it as the first of a graph
        self._apart = launches[0].early
        self._last: Sequence[int] = ()
        self._lock = threading.Lock()
        self._graphs: dict[tuple[int, ...], device.Graph | int] = {}

    def run(
        self, bases: Sequence[int], stream: int, mark: int = 0, *, captured: bool = False
    ) -> Callable[[], None] | None:
        """Launch, with the arrays at these addresses; a call that waits for the first `mark`.

        `captured`: for a CUDA graph of somebody else.
        """
        with self._lock:  # until the driver has read the parameters; and graphs know no threads
            if captured or self._apart or mark % len(self._starts):
                return self._each(bases, stream, mark)
            key = (stream, *bases)
            graph = self._graphs.get(key, 0)
            if isinstance(graph, int):
                if graph < _OFTEN:
                    self._graphs[key] = graph + 1
                    if len(self._graphs) > _GRAPHS:
                        del self._graphs[next(iter(self._graphs))]
                    return self._each(bases, stream, mark)
                each = functools.partial(self._each, bases)
                graph = self._graphs[key] = device.current().graph(each)
            graph(stream)
        return device.current().mark(stream) if mark else None

    def _each(self, bases: Sequence[int], stream: int, mark: int = 0) -> Callable[[], None] | None:
        """Make one launch after the other."""
        reached = None
        if bases != self._last:
            self._last = ()
            for at, array, offset in self._writes:
                self._words[at] = bases[array] + offset
            for at, array, offset in self._maps:
                device.replace_address(at, bases[array] + offset)
            self._last = bases
        for count, (start, where) in enumerate(self._starts, 1):
            start(stream, where, 0)
            if count == mark:
                reached = device.current().mark(stream)
        return reached


_KEPT = 4096
_rows: dict[Hashable, Any] = {}
Row = TypeVar("Row")


def prepared(key: Hashable, prepare: Callable[[], Row]) -> Row:
    """What was prepared for a key, or is now."""
    row = _rows.get(key)
    if row is None:
        row = keep(key, prepare())
    found: Row = row
    return found


def recall(key: Hashable) -> Any:
    """What was prepared for a key, or None."""
    return _rows.get(key)


def keep(key: Hashable, row: Row) -> Row:
    """Prepare for a key; where there are too many rows, all others go."""
    if len(_rows) >= _KEPT:
        _rows.clear()
    _rows[key] = row
    return row


def forget(key: Hashable = None) -> None:
    """Let calls and launches be prepared again: all, or that of one key."""
    if key is None:
        _rows.clear()
    else:
        _rows.pop(key, None)
