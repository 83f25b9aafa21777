"""A stand-in for the CUDA device: NumPy's arrays, and the kernels compiled for the host by g++.

The files ``kernels/*.cuh`` are compiled as they are, but for two: ``host/`` has an
``instructions.cuh`` and a ``hopper.cuh`` of its own, and comes first in the search path. Its
``host.cc`` provides threads, barriers and shared memory. What a device would refuse or get wrong is
an error here: a misaligned or wild access, threads that wait for others in vain, a write behind
shared memory, parameters of the wrong size.
"""

import collections
import contextlib
import ctypes
import functools
import hashlib
import math
import mmap
import os
import re
import shutil
import struct
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from semiring_mm.gpu import device

HERE = Path(__file__).resolve().parent
KERNELS = HERE.parent / "kernels"
COMPILED = HERE.parent / ".pytest_cache" / "kernels"
KEPT = 3 * 86400  # seconds: every change of a header leaves a set of libraries behind
FLAGS = (
    "-std=c++17", "-ffp-contract=off", f"-I{HERE / 'host'}", f"-I{KERNELS}",
    "-Wall", "-Werror", "-Wno-unknown-pragmas", "-fsanitize=alignment", "-fPIC",
)  # fmt: skip
#: host.cc has what the sanitizer calls; its library and C++'s would only be searched in vain.
LINK = ("-shared", "-nodefaultlibs", "-lm", "-lc", "-lgcc")
#: Of what runs the threads, for every kernel: worth some optimization.
RUNNER = ("-x", "c++", "-O2", "-U_FORTIFY_SOURCE", "-fno-sanitize=alignment")
#: Headers whose kernels run for longer than it takes to optimize them.
LONG = ("tensor.cuh", "trees.cuh")
BITS = {"bfloat16": "uint16", "tfloat32": "float32"}  # dtypes that NumPy has not
#: Headers whose blocks wait for each other: so many run at the same time, and take turns.
WAITS, TURNS = ("elimination.cuh", "wavefront.cuh"), 8
#: Threads that compile at once wait for what all of them need.
FIRST = threading.Lock()
LAUNCH = """
extern "C" const char* launch(unsigned blocks, unsigned threads, unsigned shared,
                              const void* params, unsigned size, unsigned cluster,
                              unsigned together, unsigned upwards) {
  return host::launch(kernel, blocks, threads, shared, params, size,
                      {cluster, together, upwards});
}
"""


def compiler() -> str:
    return os.environ.get("CXX", "g++")


def need(missing: str) -> None:
    """Skip a test for what is missing; under ``CI=true``, where all of it is to be, it fails."""
    if missing:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(missing)


def need_compiler() -> None:
    here = sys.platform == "linux" and shutil.which(compiler())  # whose contexts host.cc uses
    need("" if here else "no g++ to compile the kernels with")


class Kernel:
    """A kernel compiled for the host."""

    def __init__(self, source: str, on: "HostDevice") -> None:
        self.source, self.on = source, on
        found = re.search(r"__cluster_dims__\((\d+)", source)
        self.cluster = int(found[1]) if found else 1
        self.together = TURNS if includes(source, WAITS) else 1
        self.launches = 0
        self._launch = ctypes.PyDLL(str(compiled(source))).launch  # keeps other threads waiting
        self._launch.restype = ctypes.c_char_p

    def prepared(
        self, blocks: int, threads: int, shared: int, size: int = 0, *, together: bool = False
    ) -> device.Start:
        """A launch with parameters of so many bytes, if that is known."""

        def start(stream: int, at: int, extra: int) -> None:
            assert (stream, extra) == (0, 0)
            self.on.launched.append(self.source)
            params = ctypes.c_void_p.from_address(at)
            self.launches += 1  # threads go upwards first, then downwards, and so on
            order = self.cluster, blocks if together else self.together, self.launches % 2
            if trouble := self._launch(blocks, threads, shared, params, size, *order):
                raise RuntimeError(trouble.decode())

        return start

    def launch(
        self, blocks: int, threads: int, shared: int, params: bytes, pointers=None, maps=(),
        early=False, together=False,
    ) -> None:  # fmt: skip
        assert not early or "sr::TensorProduct<" in self.source, "a kernel that does not wait"
        assert 0 < blocks < 2**31
        assert 0 < threads <= 1024
        assert 0 <= shared <= self.on.shared_limit
        block = device.parameters(params, maps)
        start = self.prepared(blocks, threads, shared, len(block), together=together)
        buffer = ctypes.create_string_buffer(block, len(block))
        place = ctypes.c_void_p(ctypes.addressof(buffer))
        start(0, ctypes.addressof(place), 0)
        places = tuple(place for _, place in maps)
        device.note(device.Launched(start, block, pointers, places))


class Memory:
    """NumPy's functions, but arrays have memory of their own, as on a device: it is not clean at
    first, and not any more when nothing holds the array. What is read before it is written, or
    after a kernel got the address of an array that was let go, shows."""

    def __init__(self) -> None:
        self._gone: collections.deque[np.ndarray] = collections.deque(maxlen=64)

    def empty(self, shape, dtype=float):
        dtype = np.dtype(dtype)
        count = math.prod(shape if isinstance(shape, tuple) else (shape,))
        room = np.empty(max(1, count * dtype.itemsize), np.uint8)
        soil(room)
        whole = np.frombuffer(memoryview(room), np.uint8)  # what all views of it hold
        weakref.finalize(whole, self._let_go, room).atexit = False
        return whole[: count * dtype.itemsize].view(dtype).reshape(shape)

    def _let_go(self, room) -> None:
        soil(room)
        self._gone.append(room)  # so that nothing else lies there soon

    def zeros(self, shape, dtype=float):
        return self._filled(self.empty(shape, dtype), 0)

    def full(self, shape, value, dtype=None):
        return self._filled(self.empty(shape, dtype or np.asarray(value).dtype), value)

    def asarray(self, x, dtype=None):
        x = np.asarray(x, dtype)
        return self._filled(self.empty(x.shape, x.dtype), x)

    @staticmethod
    def _filled(array, value):
        array[...] = value
        return array

    def __getattr__(self, name):
        return getattr(np, name)


def soil(room) -> None:
    """Fill bytes with NaN in every floating type, or large integers."""
    room[::2], room[1::2] = 0xFE, 0x7F


class HostDevice:
    """What :func:`semiring_mm.gpu.device.current` is replaced by."""

    xp = Memory()
    name = "host"
    index = -1  # what is remembered for it serves no device
    arch = 90
    sms = 4
    shared_limit = 232448
    early = True

    def __init__(self) -> None:
        self.kernels: dict[str, Kernel] = {}
        self.launched: list[str] = []  # the source of each launch
        for old in COMPILED.glob("*"):
            with contextlib.suppress(FileNotFoundError):  # another process removed it
                if time.time() - old.stat().st_mtime > KEPT:
                    old.unlink()

    def kernel(self, source: str, own: str = "") -> Kernel:
        if source not in self.kernels:
            self.kernels[source] = Kernel(source, self)
        return self.kernels[source]

    def stream(self) -> int:
        return 0

    def capturing(self) -> bool:
        return False

    def captures(self, stream) -> bool:
        return False

    def host_memory(self, shape, dtype):
        return self.xp.empty(shape, dtype)

    def graph(self, launch):
        return lambda stream: launch(stream)

    def mark(self, stream):
        return lambda: None

    def tensor_map(self, place, element, sizes, pitch, lines=64, width=0) -> bytes:
        """What the driver would refuse is refused; the rest as host.h's ``HostMap``."""
        size = np.dtype(BITS.get(element, element)).itemsize
        assert place % 16 == 0
        assert all(0 < x < 2**32 for x in sizes)
        assert all(x % 16 == 0 and 0 < x < 2**40 for x in pitch)
        assert 0 < lines <= 256
        assert 0 <= width <= 256
        assert width * size % 16 == 0
        return struct.pack(
            "11q40x", place, *sizes, size, *pitch, size, lines, element == "tfloat32", width
        )


def compiled(source: str) -> Path:
    """The library of a kernel, from the cache of the test-suite where it is there."""
    level = "-O1" if includes(source, LONG) else "-O0"
    with FIRST:
        headers, threads = parsed_headers(level), runner()
    path = headers.with_name(f"{digest(headers.name, source, LAUNCH, *LINK)}.so")
    if not path.exists():
        include = ("-include", str(headers), "-x", "c++", "-", "-x", "none", str(threads))
        make(path, source + LAUNCH, level, *include, *LINK)
    return path


def includes(source: str, headers: tuple[str, ...]) -> bool:
    return any(f'"{x}"' in source for x in headers)


@functools.cache
def runner() -> Path:
    """The library that runs threads; each kernel's names it by its path."""
    path = parsed_headers("-O0").with_suffix(".so")
    if not path.exists():
        make(path, "", *RUNNER, str(HERE / "host" / "host.cc"), *LINK)
    return path


@functools.cache
def parsed_headers(level: str) -> Path:
    """What most kernels include, read by the compiler once for all of them at this level."""
    own = {f"host/{path.name}": path.read_text() for path in sorted((HERE / "host").iterdir())}
    headers = {**device.headers(), **own}
    path = COMPILED / f"{digest(compiler(), level, *FLAGS, *headers, *headers.values())}.h"
    parsed = path.with_name(f"{path.name}.gch")  # where the compiler looks for it
    if not parsed.exists():
        COMPILED.mkdir(parents=True, exist_ok=True)
        fresh(path).write_text('#include "host.h"\n#include "product.cuh"\n')
        fresh(path).replace(path)
        make(parsed, "", level, "-x", "c++-header", str(path))
    return path


def make(path: Path, text: str, *arguments: str) -> None:
    """Compile to a file."""
    command = (compiler(), *FLAGS, *arguments, "-o", str(fresh(path)))
    done = subprocess.run(command, input=text, text=True, capture_output=True)
    if done.returncode:
        raise RuntimeError(f"{done.stderr}\nin\n{text}")
    fresh(path).replace(path)


def fresh(path: Path) -> Path:
    """A name beside it, of this thread alone: others may make the same file at once."""
    return path.with_suffix(f".{os.getpid()}.{threading.get_ident()}.tmp")


def digest(*parts: str) -> str:
    return hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:32]


def guarded(
    shape: tuple[int, ...], dtype: np.dtype, fill: float, *, first: bool = False
) -> np.ndarray:
    """An array between pages that nobody may touch; it ends at one, or begins there if `first`."""
    size, page = int(np.prod(shape)) * dtype.itemsize, mmap.PAGESIZE
    inside = -(-max(size, 1) // page) * page
    memory = mmap.mmap(-1, inside + 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for fence in (start, start + page + inside):
        ctypes.CDLL(None).mprotect(ctypes.c_void_p(fence), page, 0)
    begin = page if first else page + inside - size
    array = np.frombuffer(memory, np.uint8, size, begin).view(dtype).reshape(shape)
    array[...] = fill
    return array


def on_all_cores(run, cases):
    """Compiling takes most of the time, so several compilers at once."""
    with ThreadPoolExecutor() as pool:
        for case, done in [(case, pool.submit(run, case)) for case in cases]:
            try:
                done.result()
            except Exception as error:
                error.add_note(f"in the case {case}")
                raise
