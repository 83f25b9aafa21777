"""The CUDA device: kernels compiled at run time, kept on disk, launched on the current stream.

CuPy is imported here and nowhere else in the package before it is needed.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..cache import cached
from ..naming import install
from ..pool import hold_at_fork
from ..version import __version__

__all__ = [
    "DEFAULT", "TENSOR_MAP", "Device", "Graph", "Kernel", "Launched", "Looked", "Scratch", "Start",
    "address", "compile_source", "compiled", "copy", "current", "fill", "headers", "look", "note",
    "note_unknown", "parameters", "recorded", "recording", "refuse_capture",
    "replace_address", "scratch", "why_not",
]  # fmt: skip

Array = Any

_lock = hold_at_fork(threading.RLock())
_MAX_SHARED = 8  # of CUfunction_attribute: dynamic bytes


@functools.cache
def headers() -> dict[str, str]:
    """The CUDA sources by name: inside the installed package, or beside it in a checkout."""
    here = Path(__file__).resolve().parent.parent
    for folder in (here / "kernels", here.parent / "kernels"):
        if (folder / "product.cuh").is_file():
            return {path.name: path.read_text() for path in sorted(folder.glob("*.cuh"))}
    raise FileNotFoundError(f"the CUDA sources are missing: there is no folder {here / 'kernels'}")


def compile_source(source: str, arch: int, own: str = "", *more: str) -> tuple[bytes, str]:
    """Compile for ``sm_arch`` with NVRTC, which needs neither a driver nor a device.

    `own` is "a" for code with instructions that only this architecture has; `more` are further
    options of the compiler. Returns the cubin, and what the compiler said: registers, shared memory
    and spills.
    """
    from cupy.cuda import nvrtc

    files = headers()
    texts, names = (tuple(x.encode() for x in y) for y in (files.values(), files))
    program = nvrtc.createProgram(source, "kernel.cu", texts, names)
    try:
        # sums are contracted where the algebra says so, as on the CPU, and nowhere else
        options = ("-std=c++17", f"-arch=sm_{arch}{own}", "-fmad=false", "--ptxas-options=-v")
        try:
            nvrtc.compileProgram(program, (*options, *more))
        except nvrtc.NVRTCError as error:
            log = nvrtc.getProgramLog(program)
            raise RuntimeError(f"NVRTC: {error}\n{log}\nin\n{source}") from None
        cubin: bytes = nvrtc.getCUBIN(program)
        report: str = nvrtc.getProgramLog(program)
    finally:
        nvrtc.destroyProgram(program)
    return cubin + b"\0", report  # CuPy's binding drops the last byte


def compiled(source: str, arch: int, own: str = "") -> bytes:
    """The machine code, from the disk cache where it is there."""
    from cupy.cuda import nvrtc

    parts = (source, *headers().values(), f"{arch}{own}", str(nvrtc.getVersion()), __version__)
    return cached("kernels", parts, lambda: compile_source(source, arch, own)[0])


# --- what a call does, noted so that it can be done again ----------------------------------------

#: Launch on a stream with the parameters whose address is at an address; the last argument is 0.
Start = Callable[[int, int, int], None]


#: Launch a graph on a stream.
Graph = Callable[[int], None]


class Launched(NamedTuple):
    """A launch: its parameters, which words of them are addresses, and those of tensor maps.

    `early` as of :meth:`Kernel.launch`.
    """

    start: Start
    params: bytes
    pointers: int | tuple[int, ...] | None
    maps: tuple[int, ...]
    early: bool = False


class Scratch(NamedTuple):
    """An array for the call alone."""

    array: Array


class Looked(NamedTuple):
    """Memory of the host for what was launched before: what a call reads in it, it decides by."""

    array: NDArray[Any]
    read: Callable[[NDArray[Any]], Any] = np.asarray


class _Thread(threading.local):
    notes: list[Any] | None = None


_thread = _Thread()


@contextlib.contextmanager
def recorded() -> Iterator[list[Any]]:
    """A list of what this thread launches, allocates by :func:`scratch` and copies meanwhile."""
    before, _thread.notes = _thread.notes, []
    try:
        yield _thread.notes
    finally:
        _thread.notes = before


def recording() -> bool:
    """Whether what this thread does is noted."""
    return _thread.notes is not None


_NOTES = 256  # of a call, and bytes of its arrays; with more it is forgotten, and so are they
_HELD = 1 << 30


def note(event: Any) -> None:
    """Add to what is recorded by this thread, if anything is."""
    notes = _thread.notes
    if notes is not None:
        notes.append(event)
        held = sum(x.array.nbytes for x in notes if isinstance(x, Scratch))
        if len(notes) > _NOTES or held > _HELD:
            notes.clear()
            _thread.notes = None


def scratch(shape: int | tuple[int, ...], dtype: Any = np.uint8, *, zero: bool = False) -> Array:
    """An array for intermediate results on the current device: of zeros, or whatever it holds."""
    xp = current().xp
    array = (xp.zeros if zero else xp.empty)(shape, dtype)
    note(Scratch(array))
    if zero:
        _note_filled(array, 0)
    return array


def fill(x: Array, byte: int) -> Array:
    """A contiguous array, of which all bytes are set."""
    x.reshape(-1).view(np.uint8)[...] = byte
    _note_filled(x, byte)
    return x


def copy(x: Array, to: Array) -> None:
    """Copy an array to another one of its shape and dtype."""
    to[...] = x
    if x.flags.c_contiguous and to.flags.c_contiguous:
        note(Launched(_move, struct.pack("3q", address(to), address(x), x.nbytes), 2, ()))
    else:
        note_unknown()


def look(x: Array) -> NDArray[Any]:
    """A copy on the host of a contiguous array; waits for it, and is noted."""
    here = current()
    found, stream = here.host_memory(x.shape, x.dtype), here.stream()
    moved = address(found), address(x), x.nbytes
    here.xp.cuda.runtime.memcpyAsync(*moved, _ANYWHERE, stream)
    note(Launched(_move, struct.pack("3q", *moved), 2, ()))
    here.mark(stream)()
    note(Looked(found))
    return found


def note_unknown() -> None:
    """What is done by a kernel of CuPy's, so that the call is not kept."""
    note(Launched(_fill, b"", None, ()))


def _note_filled(x: Array, byte: int) -> None:
    note(Launched(_fill, struct.pack("3q", address(x), byte, x.nbytes), 1, ()))


def _fill(stream: int, at: int, _: int) -> None:
    """Set bytes, as a launch: from an address, to a value, so many."""
    words = (ctypes.c_int64 * 3).from_address(ctypes.c_int64.from_address(at).value)
    current().xp.cuda.runtime.memsetAsync(*words, stream)


def _move(stream: int, at: int, _: int) -> None:
    """Copy bytes, as a launch: to an address, from one, and how many."""
    words = (ctypes.c_int64 * 3).from_address(ctypes.c_int64.from_address(at).value)
    current().xp.cuda.runtime.memcpyAsync(*words, _ANYWHERE, stream)


_ANYWHERE = 4  # cudaMemcpyDefault: addresses tell where they are


def address(x: Array | None) -> int:
    """Where an array begins; 0 for none."""
    if x is None:
        return 0
    return int(x.ctypes.data if isinstance(x, np.ndarray) else x.data.ptr)


def parameters(params: bytes, maps: tuple[tuple[bytes, int], ...]) -> bytes:
    """What a kernel takes: tensor maps, then its struct."""
    return b"".join(text for text, _ in maps) + params if maps else params


def refuse_capture() -> None:
    """Raise RuntimeError where a wait for the device would break the capture of a CUDA graph."""
    if current().capturing():
        raise RuntimeError(
            "this call waits for the device, which a CUDA graph that is being captured cannot "
            "hold: capture matmul, gemm, gemv or einsum of floating point or bool"
        )


# --- kernels and devices --------------------------------------------------------------------------


class Kernel:
    """A compiled entry on one device."""

    def __init__(self, cubin: bytes) -> None:
        from cupy.cuda import driver, function

        self._driver = driver
        self._module = function.Module()
        self._module.load(cubin)
        self.function = self._module.get_function("kernel")
        self._shared = 48 << 10

    def prepared(
        self, blocks: int, threads: int, shared: int, early: bool = False, together: bool = False
    ) -> Start:
        """A launch without its parameters: ``start(stream, address of their address, 0)``."""
        if shared > self._shared:
            self._driver.funcSetAttribute(self.function.ptr, _MAX_SHARED, shared)
            self._shared = shared
        at = self.function.ptr
        attribute = _EARLY if early else _TOGETHER
        start = functools.partial(_start_with, attribute, at, blocks, threads, shared)
        if not (early or together):
            launch = self._driver.launchKernel
            start = functools.partial(launch, at, blocks, 1, 1, threads, 1, 1, shared)
        vars(start)["kernel"] = self  # whose code stays loaded as long as it may be launched
        return start

    def launch(
        self, blocks: int, threads: int, shared: int, params: bytes,
        pointers: int | tuple[int, ...] | None = None,
        maps: tuple[tuple[bytes, int], ...] = (), early: bool = False, together: bool = False,
    ) -> None:  # fmt: skip
        """Run on the current device and stream; returns at once.

        Parameters
        ----------
        params : bytes
            The struct that the kernel takes, without tensor maps.
        pointers : int or tuple of int, optional
            Which words of 8 bytes in `params` are addresses: so many at its beginning, or those of
            these numbers. Without it, a call with this launch is not kept to be repeated
            (:mod:`.calls`).
        maps : tuple of (bytes, int)
            Tensor maps, which come before `params`, and the addresses that they describe.
        early : bool
            Whether it may begin while the launch before it on the stream ends (programmatic
            dependent launch): the kernel waits for that one by itself (``wait_for_launch``).
        together : bool
            Whether blocks wait for each other: none begins unless all of them can run at once
            (cooperative launch).
        """
        import cupy

        start = self.prepared(blocks, threads, shared, early, together)
        block = parameters(params, maps)
        buffer = ctypes.create_string_buffer(block, len(block))
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(buffer))
        start(cupy.cuda.get_current_stream().ptr, ctypes.addressof(arguments), 0)
        note(Launched(start, block, pointers, tuple(place for _, place in maps), early))


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute; its `value` has 64 bytes."""

    _fields_ = (("id", ctypes.c_int), ("value", ctypes.c_int * 17))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("blocks", ctypes.c_uint * 3), ("threads", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p), ("count", ctypes.c_uint),
    )  # fmt: skip


_EARLY = _Attribute(6, (0, 1))  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
_TOGETHER = _Attribute(2, (0, 1))  # CU_LAUNCH_ATTRIBUTE_COOPERATIVE


def _start_with(
    attribute: _Attribute, function: int, blocks: int, threads: int, shared: int, stream: int,
    arguments: int, _: int,
) -> None:  # fmt: skip
    config = _Config(
        (blocks, 1, 1), (threads, 1, 1), shared, stream, ctypes.addressof(attribute), 1
    )  # of this call: others may launch at the same time
    status = _driver().cuLaunchKernelEx(
        ctypes.byref(config), ctypes.c_void_p(function), ctypes.c_void_p(arguments), None
    )
    if status:
        raise RuntimeError(f"cuLaunchKernelEx: error {status}")


class Device:
    """One CUDA device, with the kernels loaded on it."""

    def __init__(self, index: int) -> None:
        import cupy

        self.xp: Any = cupy
        self.index = index
        properties = cupy.cuda.runtime.getDeviceProperties(index)
        self.name: str = properties["name"].decode()
        self.arch = 10 * int(properties["major"]) + int(properties["minor"])
        self.sms = int(properties["multiProcessorCount"])
        self.shared_limit = int(properties["sharedMemPerBlockOptin"])
        # graphs hold early launches from CUDA 12.3 on
        self.early = self.arch >= 90 and cupy.cuda.runtime.driverGetVersion() >= 12030
        self._kernels: dict[str, Kernel] = {}

    def kernel(self, source: str, own: str = "") -> Kernel:
        """The entry ``kernel`` of a source, compiled once (:func:`compile_source`)."""
        found = self._kernels.get(source)
        if found is None:
            if self.capturing():
                raise RuntimeError(
                    "a CUDA graph is being captured, and this call needs a kernel that is not "
                    "loaded yet: make the same call once before the capture"
                )
            with _lock:
                found = self._kernels.get(source)
                if found is None:
                    found = self._kernels[source] = Kernel(compiled(source, self.arch, own))
        return found

    def stream(self) -> int:
        """The current stream."""
        return int(self.xp.cuda.get_current_stream().ptr)

    def capturing(self) -> bool:
        """Whether the current stream is captured in a CUDA graph."""
        return self.captures(self.stream())

    def captures(self, stream: int) -> bool:
        """Whether a stream is captured in a CUDA graph."""
        return stream not in DEFAULT and bool(self.xp.cuda.runtime.streamIsCapturing(stream))

    def host_memory(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """An array of the host's that kernels can write to; :meth:`mark` tells when they have."""
        size = math.prod(shape)
        memory = self.xp.cuda.alloc_pinned_memory(size * dtype.itemsize)
        array: NDArray[Any] = np.frombuffer(memory, dtype, size).reshape(shape)
        return array

    def mark(self, stream: int) -> Callable[[], None]:
        """A call that waits for what is on a stream now."""
        event = self.xp.cuda.Event(disable_timing=True)
        self.xp.cuda.runtime.eventRecord(event.ptr, stream)
        wait: Callable[[], None] = event.synchronize
        return wait

    def graph(self, launch: Callable[[int], Any]) -> Graph:
        """A CUDA graph of what is launched on a stream."""
        stream = self.xp.cuda.Stream(non_blocking=True)
        stream.begin_capture()
        try:
            launch(stream.ptr)
        finally:
            graph = stream.end_capture()
        start = functools.partial(self.xp.cuda.runtime.graphLaunch, graph.graphExec)
        vars(start)["graph"] = graph  # which stays as long as it may be launched
        return start

    def tensor_map(
        self, place: int, element: str, sizes: tuple[int, int, int], pitch: tuple[int, int],
        lines: int = 64, width: int = 0,
    ) -> bytes:  # fmt: skip
        """An array as the copy engine takes it, in boxes of lines of 128 bytes (sr::TensorMap).

        Parameters
        ----------
        place : int
            Address; a multiple of 16.
        element : str
            NumPy's name of the dtype.
        sizes : (int, int, int)
            Elements along each axis, the contiguous one first.
        pitch : (int, int)
            Bytes from one entry to the next along the second axis and the third; multiples of 16.
        lines : int
            Of a box; at most 256.
        width : int
            Elements of a line, at most 256, if its pieces are to lie in order; 0: 128 bytes of
            which the pieces of 16 are swizzled.
        """
        kind, size = _ELEMENTS[element]
        room = ctypes.create_string_buffer(TENSOR_MAP + 63)
        map_at = -(-ctypes.addressof(room) // 64) * 64
        u64, u32 = ctypes.c_uint64, ctypes.c_uint32
        status = _driver().cuTensorMapEncodeTiled(
            ctypes.c_void_p(map_at), kind, u32(3), ctypes.c_void_p(place), (u64 * 3)(*sizes),
            (u64 * 2)(*pitch), (u32 * 3)(width or 128 // size, lines, 1), (u32 * 3)(1, 1, 1),
            0, 0 if width else _SWIZZLE_128, _PROMOTE_256, 0,
        )  # fmt: skip
        if status:
            raise RuntimeError(f"cuTensorMapEncodeTiled: error {status}, {element} {sizes} {pitch}")
        return ctypes.string_at(map_at, TENSOR_MAP)


TENSOR_MAP = 128  # bytes of one
#: Streams that no graph can be captured from, and that must not be asked for it.
DEFAULT = (0, 1)
#: CUtensorMapDataType and bytes of dtypes; CUtensorMapSwizzle and CUtensorMapL2promotion.
_ELEMENTS = {
    "uint8": (0, 1), "float16": (6, 2), "float32": (7, 4), "float64": (8, 8),
    "bfloat16": (9, 2),
    "tfloat32": (11, 4),  # rounded as it is loaded
}  # fmt: skip
_SWIZZLE_128, _PROMOTE_256 = 3, 3


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")


def replace_address(tensor_map: int, place: int) -> None:
    """Let the tensor map at an address describe an array elsewhere."""
    status = _driver().cuTensorMapReplaceAddress(
        ctypes.c_void_p(tensor_map), ctypes.c_void_p(place)
    )
    if status:
        raise RuntimeError(f"cuTensorMapReplaceAddress: error {status}, {place:#x}")


@functools.cache
def _device(index: int) -> Device:
    return Device(index)


def current() -> Device:
    """The device that CuPy works on now."""
    import cupy

    return _device(cupy.cuda.runtime.getDevice())


@functools.cache
def why_not() -> str:
    """Empty where the GPU engine can run; else what is missing and how to get it."""
    try:
        import cupy
    except ImportError:
        return (
            f"CuPy is not installed: {install('cuda13')} (or [cuda12], after the CUDA version of "
            "the driver)"
        )
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"CuPy finds no CUDA device ({error}); look at nvidia-smi"
    return "" if count else "CuPy finds no CUDA device; look at nvidia-smi"
