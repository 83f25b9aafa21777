"""From LLVM IR text to callable machine code, for this processor or one like it."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..cache import cached
from ..pool import hold_at_fork
from ..version import __version__
from .ir import Function, module_text

__all__ = [
    "KEPT",
    "Library",
    "Target",
    "compile_functions",
    "compile_kept",
    "host_target",
    "writers",
]

#: Compiled forms of each kind (products, matrix-vector products, ...) that are kept, those used
#: last; one takes about 100 kB, and three memory maps, of which Linux gives a process 65,530.
KEPT = 1024


@dataclass(frozen=True)
class Target:
    """A processor as the code generator takes it."""

    cpu: str  # these two as LLVM names them
    features: str
    vector_bytes: int  # width of a vector register
    registers: int  # for vectors
    l1: int = 32 << 10  # bytes of the data caches of a core
    l2: int = 1 << 20

    @property
    def fma(self) -> bool:
        """Whether the processor has a fused multiply-add."""
        return "+fma" in self.features or "neon" in self.features

    @property
    def half(self) -> bool:
        """Whether the processor converts between float16 and float32."""
        return "+f16c" in self.features or "neon" in self.features


#: Conversions that LLVM calls where the processor has none; the process does not export them.
#: Widening scales the shifted bits by 2**112, denormals included. Narrowing rounds to even: below
#: 2**-14 by adding 0.5, whose last bit is float16's smallest step, else with integers.
_HALF = """
define float @__extendhfsf2(half %x) {
  %bits = bitcast half %x to i16
  %wide = zext i16 %bits to i32
  %size = and i32 %wide, 32767
  %shifted = shl i32 %size, 13
  %small = bitcast i32 %shifted to float
  %scaled = fmul float %small, 0x46F0000000000000
  %finite = bitcast float %scaled to i32
  %special = or i32 %shifted, 2139095040
  %beyond = icmp uge i32 %size, 31744
  %value = select i1 %beyond, i32 %special, i32 %finite
  %minus = and i32 %wide, 32768
  %sign = shl i32 %minus, 16
  %signed = or i32 %value, %sign
  %result = bitcast i32 %signed to float
  ret float %result
}

define half @__truncsfhf2(float %x) {
  %bits = bitcast float %x to i32
  %size = and i32 %bits, 2147483647
  %positive = bitcast i32 %size to float
  %stepped = fadd float %positive, 5.0e-1
  %steps = bitcast float %stepped to i32
  %denormal = sub i32 %steps, 1056964608
  %last = lshr i32 %size, 13
  %odd = and i32 %last, 1
  %rebased = add i32 %size, -939520001
  %rounded = add i32 %rebased, %odd
  %normal = lshr i32 %rounded, 13
  %is_nan = icmp ugt i32 %size, 2139095040
  %special = select i1 %is_nan, i32 32256, i32 31744
  %is_small = icmp ult i32 %size, 947912704
  %finite = select i1 %is_small, i32 %denormal, i32 %normal
  %is_large = icmp uge i32 %size, 1199570944
  %value = select i1 %is_large, i32 %special, i32 %finite
  %shifted = lshr i32 %bits, 16
  %sign = and i32 %shifted, 32768
  %signed = or i32 %value, %sign
  %short = trunc i32 %signed to i16
  %result = bitcast i16 %short to half
  ret half %result
}
"""


#: LLVM's global context is not for two threads at once. A fork waits for the thread that compiles:
#: the child would inherit LLVM's state, and this lock and llvmlite's own, as they were.
_lock = hold_at_fork(threading.RLock())


@functools.cache
def _llvm() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


def cache_sizes(root: str = "/sys/devices/system/cpu/cpu0/cache") -> tuple[int, int]:
    """Bytes of the first two data caches of a core, as the system tells; else what many have."""
    found = {1: Target.l1, 2: Target.l2}
    if sys.platform == "darwin":
        libc = ctypes.CDLL(None)
        for level, name in ((1, b"hw.perflevel0.l1dcachesize"), (2, b"hw.perflevel0.l2cachesize")):
            size, length = ctypes.c_int64(), ctypes.c_size_t(8)
            if libc.sysctlbyname(name, ctypes.byref(size), ctypes.byref(length), None, 0) == 0:
                found[level] = size.value
    units = {"K": 1 << 10, "M": 1 << 20}
    for index in sorted(Path(root).glob("index*")):
        try:
            place, kind, text = ((index / x).read_text().strip() for x in ("level", "type", "size"))
            if kind != "Instruction" and int(place) in found:
                found[int(place)] = int(text[:-1]) * units[text[-1]]
        except (OSError, ValueError, KeyError, IndexError):
            continue
    return found[1], found[2]


@functools.cache
def host_target() -> Target:
    """This machine; ``SEMIRING_MM_VECTOR=avx2`` or ``sse`` holds the vectors to a narrower set."""
    with _lock:
        llvm = _llvm()
        name, features = llvm.get_host_cpu_name(), dict(llvm.get_host_cpu_features())
    limit = os.environ.get("SEMIRING_MM_VECTOR", "").lower()
    if limit not in ("", "avx512", "avx2", "sse"):
        raise ValueError(f"SEMIRING_MM_VECTOR is avx512, avx2 or sse, got {limit!r}")
    if limit in ("avx2", "sse"):
        features = {k: v and not k.startswith("avx512") for k, v in features.items()}
    if limit == "sse":
        features = {k: v and not k.startswith(("avx", "fma", "f16c")) for k, v in features.items()}
    text = ",".join(f"{'+' if on else '-'}{name}" for name, on in sorted(features.items()))
    if features.get("avx512f") and features.get("avx512bw"):
        width, registers = 64, 32
    elif features.get("avx2"):
        width, registers = 32, 16
    else:
        width, registers = 16, 32 if features.get("neon") else 16
    return Target(name, text, width, registers, *cache_sizes())


def _machine(target: Target) -> Any:
    llvm = _llvm()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=target.cpu, features=target.features, opt=2, reloc="pic", codemodel="jitdefault"
    )


def _optimised(text: str, machine: Any) -> Any:
    """Parse and run the few passes that hand-shaped code needs."""
    llvm = _llvm()
    module = llvm.parse_assembly(text)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.add_new_gvn_pass()
    passes.run(module, builder)
    return module


#: LLVM's trackers of what is loaded. Here, and not with their libraries, since the collector of
#: cycles would close them, too, at any time and without the lock.
_loaded: dict[int, Any] = {}
_unused: list[int] = []  # what the next compilation unloads


class Library:
    """Compiled functions, unloaded when neither it nor any of its functions is referenced.

    The next compilation does that: `__del__` would wait for the lock, and Ctrl-C is lost in it.
    """

    def __init__(self, serial: int, tracker: Any) -> None:
        self._serial = serial
        _loaded[serial] = tracker

    def function(self, name: str, *argtypes: Any, result: Any = None) -> Any:
        """A function to be called without the GIL; `result` is the type of what it returns."""
        function: Any = ctypes.CFUNCTYPE(result, *argtypes)(self.address(name))
        function.library = self  # a caller's reference keeps the code
        return function

    def address(self, name: str) -> int:
        """Where a function lies, as long as the library is referenced."""
        return int(_loaded[self._serial][name])

    def __del__(self, drop: Callable[[int], None] = _unused.append) -> None:
        drop(self._serial)


def compile_functions(functions: Sequence[Function], target: Target) -> Library:
    """Compile functions into a library that exports all but the private ones."""
    text, names = module_text(functions), [f.name for f in functions if not f.private]
    return compile_kept(names, (text,), lambda: text, target)


@functools.cache
def writers(*names: str) -> str:
    """Digest of the modules of this folder, by name, that some IR is written by."""
    folder, digest = Path(__file__).parent, hashlib.sha256()
    for name in ("ir", "algebra", "vmath", "views", *names):
        digest.update((folder / f"{name}.py").read_bytes())
    return digest.hexdigest()


def compile_kept(
    names: Sequence[str], parts: Sequence[str], write: Callable[[], str], target: Target
) -> Library:
    """Compile the module that `write` gives, unless code made of the same `parts` is kept."""
    with _lock:
        while _unused:
            _loaded.pop(_unused.pop()).close()
        return _compiled(names, parts, write, target)


def _compiled(
    names: Sequence[str], parts: Sequence[str], write: Callable[[], str], target: Target
) -> Library:
    """The same under the lock, which LLVM's objects need to the last reference."""
    global _serial
    llvm = _llvm()
    image = cached("objects", (*parts, *_environment(target)), lambda: _object(write(), target))
    builder = llvm.JITLibraryBuilder().add_object_img(image).add_current_process()
    for name in names:
        builder = builder.export_symbol(name)
    _serial += 1
    return Library(_serial, builder.link(_jit(), f"semiring_mm_{_serial}"))


def _environment(target: Target) -> tuple[str, ...]:
    """What machine code depends on beside the text: processor, operating system, compiler."""
    from llvmlite import __version__ as llvmlite

    llvm = _llvm()
    compiler = ".".join(map(str, llvm.llvm_version_info))
    return target.cpu, target.features, llvm.get_process_triple(), compiler, llvmlite, __version__


def _object(text: str, target: Target) -> bytes:
    machine = _machine(target)
    text += "" if target.half else _HALF
    image: bytes = machine.emit_object(_optimised(text, machine))
    return image


_serial = 0  # names of libraries are used once


@functools.cache
def _jit() -> Any:
    return _llvm().create_lljit_compiler()
